//! `min`, `max` and `sorted` with a key that is a Python function: the recorder calls it for each item, so that what it gives may be a
//! number that was read, or a tensor with one. Their order is a row of decisions.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyRange};
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::CompareOp;
use stator_cpython::{Raised, Result, modules, ops};

use crate::breaks::Reason;
use crate::functions::Numeric;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Calls, Ends};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::numbers::orders::known_flag;
use crate::recorder::numbers::read_tensors::LONGEST;
use crate::recorder::reads::whole_containers::is_plain;

/// How a key may be compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    /// It's the same in each replay.
    Plain,
    /// A number, or a tensor with one, that may differ.
    Number,
    /// Anything else.
    Other,
}

impl Recorder {
    /// A call that orders things by a Python function. `None`: it's none, or C code is to do it.
    pub(in crate::recorder) fn ordered_by_key<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let names = heap::tuple_items(names?);
        let numeric = self.functions.numeric(callable)?;
        let is_sort = numeric == Numeric::Sorted;
        let op = match numeric {
            Numeric::Least => CompareOp::Lt,
            Numeric::Greatest | Numeric::Sorted => CompareOp::Gt,
            _ => return None,
        };
        let [sequence, named @ ..] = args else { return None };
        if named.len() != names.len() || self.is_stopped() || !self.session.takes_steps() {
            return None;
        }
        let (mut key, mut is_reverse) = (None, false);
        for (name, value) in names.iter().zip(named) {
            match &*heap::text(name.as_borrowed()) {
                "key" => key = Some(*value),
                "reverse" if is_sort => is_reverse = known_flag(*value)?,
                _ => return None,
            }
        }
        let key = key.filter(|key| self.kind(*key) == Kind::Function)?;
        let items = match self.listed(frame, *sequence)? {
            Ok(items) => items,
            Err(raised) => return Some(Err(raised)),
        };
        Some(match is_sort {
            true => self.sorted_by(frame, key, &items, is_reverse),
            false => self.extreme_by(frame, key, op, &items),
        })
    }

    /// The items of a container that can be gone over again.
    fn listed<'py>(
        &self,
        frame: &Frame<'py>,
        sequence: Borrowed<'_, 'py>,
    ) -> Option<Result<Vec<Object<'py>>>> {
        let py = frame.py();
        let is_known = heap::is_exact_list(sequence)
            || heap::is_plain_tuple(sequence)
            || heap::is_exact_dict(sequence)
            || sequence.is_exact_instance_of::<PyRange>()
            || heap::view_items(sequence).is_some();
        let fits = |length: usize| (1..=LONGEST as usize).contains(&length);
        if !is_known || !sequence.len().is_ok_and(fits) {
            return None;
        }
        let list = py.get_type::<PyList>();
        let made = self.call_object(Call::new(frame, list.as_any().as_borrowed(), &[sequence]));
        Some(made.map(|made| heap::list_items(made.as_borrowed())))
    }

    fn key_of<'py>(
        &self,
        frame: &Frame<'py>,
        key: Borrowed<'_, 'py>,
        item: &Object<'py>,
    ) -> Result<Object<'py>> {
        self.links.clear();
        let _collecting = self.collecting(frame);
        self.call_object(Call::new(frame, key, &[item.as_borrowed()]))
    }

    fn kind_of_key(&self, key: Borrowed<'_, '_>) -> Key {
        let is_single =
            |info: tensor::TensorInfo| info.is_plain() && info.sizes.iter().all(|size| *size == 1);
        if self.kind(key) == Kind::Tensor {
            return if tensor::info(key).is_some_and(is_single) { Key::Number } else { Key::Other };
        }
        let mut state = self.state.borrow_mut();
        let mut numbers = Vec::new();
        state.numbers_in(key, 0, &mut numbers);
        match numbers.is_empty() {
            true if is_plain(&mut state, key) => Key::Plain,
            false if heap::is_number(key) => Key::Number,
            _ => Key::Other,
        }
    }

    /// Whether keys can be compared; ends the trace if not.
    fn are_comparable(&self, frame: &Frame<'_>, keys: &[Object<'_>]) -> bool {
        if self.is_stopped() {
            return false;
        }
        let kinds: Vec<Key> = keys.iter().map(|key| self.kind_of_key(key.as_borrowed())).collect();
        if kinds.iter().all(|kind| *kind == Key::Plain) {
            let keys: Vec<_> = keys.iter().map(Bound::as_borrowed).collect();
            self.concrete(frame, &keys, "put in order");
            return !self.is_stopped();
        }
        let is_fine = kinds.iter().zip(keys).all(|(kind, key)| match kind {
            Key::Plain => heap::is_number(key.as_borrowed()),
            Key::Number => true,
            Key::Other => false,
        });
        if !is_fine {
            self.stop(frame, Reason::DataRead, "keys that are no numbers");
        }
        is_fine
    }

    /// As CPython looks for it: whichever comes before the best so far.
    fn extreme_by<'py>(
        &self,
        frame: &Frame<'py>,
        key: Borrowed<'_, 'py>,
        op: CompareOp,
        items: &[Object<'py>],
    ) -> Result<Object<'py>> {
        let mut best = items[0].clone();
        let mut greatest = self.key_of(frame, key, &best)?;
        for item in &items[1..] {
            let next = self.key_of(frame, key, item)?;
            let pair = [next, greatest];
            let is_traced = self.are_comparable(frame, &pair);
            let is_plain = pair.iter().all(|key| self.kind_of_key(key.as_borrowed()) == Key::Plain);
            let [next, before] = pair;
            let operands = (next.as_borrowed(), before.as_borrowed());
            let is_better = if is_traced && !is_plain {
                let answer = self.compare_op(frame, op, operands.0, operands.1)?;
                self.truth_of(frame, answer.as_borrowed())?
            } else {
                ops::truth(ops::compare(op, operands.0, operands.1)?.as_borrowed())?
            };
            greatest = if is_better { next } else { before };
            if is_better {
                best = item.clone();
            }
        }
        Ok(best)
    }

    fn sorted_by<'py>(
        &self,
        frame: &Frame<'py>,
        key: Borrowed<'_, 'py>,
        items: &[Object<'py>],
        is_reverse: bool,
    ) -> Result<Object<'py>> {
        let py = frame.py();
        let mut keys = Vec::with_capacity(items.len());
        for item in items {
            keys.push(self.key_of(frame, key, item)?);
        }
        let is_traced = self.are_comparable(frame, &keys);
        let order = {
            let _native = is_traced.then(|| Suspended::new(py));
            order_of(py, &keys, is_reverse).map_err(|error| Raised::set(py, error))
        }?;
        if is_traced {
            self.decide_order(frame, &keys, &order, is_reverse)?;
        }
        let sorted = PyList::new(py, order.iter().map(|place| &items[*place]));
        let sorted = sorted.map_err(|error| Raised::set(py, error))?.into_any();
        self.note(frame, |state| {
            state.set_fresh(sorted.as_borrowed());
            Ok(())
        });
        Ok(sorted)
    }

    /// That keys are in this order: of each and the next one. A NaN isn't in order.
    fn decide_order<'py>(
        &self,
        frame: &Frame<'py>,
        keys: &[Object<'py>],
        order: &[usize],
        is_reverse: bool,
    ) -> Result<()> {
        for pair in order.windows(2) {
            let [first, second] = [pair[0], pair[1]];
            let op = match (first < second, is_reverse) {
                (true, false) => CompareOp::Le,
                (false, false) => CompareOp::Lt,
                (true, true) => CompareOp::Ge,
                (false, true) => CompareOp::Gt,
            };
            let operands = (keys[first].as_borrowed(), keys[second].as_borrowed());
            if self.kind_of_key(operands.0) == Key::Plain
                && self.kind_of_key(operands.1) == Key::Plain
            {
                continue;
            }
            let answer = self.compare_op(frame, op, operands.0, operands.1)?;
            if !self.truth_of(frame, answer.as_borrowed())? {
                self.stop(frame, Reason::DataRead, "the order of a NaN");
            }
            if self.is_stopped() {
                break;
            }
        }
        Ok(())
    }
}

/// The places of keys in their order.
fn order_of(py: Python<'_>, keys: &[Object<'_>], is_reverse: bool) -> PyResult<Vec<usize>> {
    let keys = PyList::new(py, keys)?;
    let named = PyDict::new(py);
    named.set_item("key", keys.getattr("__getitem__")?)?;
    named.set_item("reverse", is_reverse)?;
    let sorted = modules::import(py, "builtins")?.getattr("sorted")?;
    let places = py.get_type::<PyRange>().call1((keys.len(),))?;
    sorted.call((places,), Some(&named))?.extract()
}
