//! Numbers in an order that a generator of Python's draws (`random.shuffle`, see `functions/orders.rs`): a node gives a list
//! of them, and they are carried.

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList};
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;
use stator_graph::Arg;

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Ends};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::State;
use crate::recorder::numbers::read_numbers::own;

impl Recorder {
    /// Draws numbers, as a method of a generator does.
    pub(in crate::recorder) fn draw_order<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        let py = frame.py();
        let [generator, method, items, ..] = *args else { return call.natively() };
        // How many there are, and how many are drawn.
        self.concrete(frame, &args[3..], "read by a random generator");
        if !heap::is_exact_list(items) {
            self.concrete(frame, &[items], "read by a random generator");
        }
        let may_read = self.may_read(frame);
        let given = self.note(frame, |state| {
            let refused = || (Reason::RandomNumber, "where none can be carried".to_owned());
            let may_draw = may_read && !state.enclosed.is_on();
            let generator = state.take_generator(generator, may_draw).ok_or_else(refused)?;
            let mut given: SmallVec<[Arg; 4]> = [generator].into_iter().collect();
            for arg in &args[1..] {
                given.push(state.graph_arg(*arg)?);
            }
            Ok((given, state.bounds(items)))
        });
        let list = {
            let _native = Suspended::new(py);
            let _deferred = Deferred::new(py);
            call.natively()?
        };
        let Some((given, range)) = given else { return Ok(list) };
        let numbers = heap::list_items(list.as_borrowed());
        let numbers: Option<Vec<_>> = numbers.iter().map(own).collect();
        let numbers = numbers.and_then(|numbers| PyList::new(py, numbers).ok());
        let Some(numbers) = numbers.map(Bound::into_any) else {
            self.stop(frame, Reason::RandomNumber, "that can't be carried");
            return Ok(list);
        };
        self.numbers_read.borrow_mut().extend(self.markable_spot(frame));
        self.note(frame, |state| {
            let name = format!("random.{}", heap::text(method));
            let node = state.called(frame, callable, name, &given);
            state.carry_rows_between(node, &numbers, 1, range);
            state.has_taken(generator, node);
            Ok(())
        });
        Ok(numbers)
    }
}

impl State {
    /// Between which bounds these numbers are, or those below this one; `None`: nobody knows.
    fn bounds(&mut self, items: Borrowed<'_, '_>) -> Option<(i64, i64)> {
        if !heap::is_exact_list(items) {
            return Some((0, items.extract::<i64>().ok()? - 1));
        }
        let number = |item: &Object<'_>| {
            let is_constant = self.number(item.as_borrowed()).is_none();
            let is_int = is_constant && item.is_exact_instance_of::<PyInt>();
            is_int.then(|| item.extract::<i64>().ok()).flatten()
        };
        let numbers: Vec<_> = heap::list_items(items).iter().map(number).collect::<Option<_>>()?;
        Some((*numbers.iter().min()?, *numbers.iter().max()?))
    }
}
