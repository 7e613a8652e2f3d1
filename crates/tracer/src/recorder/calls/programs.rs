//! Calls in the trace of a tensor program: its rules say what some of them are.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyList, PyString, PyTuple};
use rustc_hash::FxHashSet;
use stator_cpython::Result;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_graph::Value;

use crate::breaks::Reason;
use crate::program_rules::{Rules, Taken};
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Calls, Ends};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, Origin, State};

impl Recorder {
    /// Takes a call as the program's rules say; `None`: they say nothing.
    pub(in crate::recorder) fn call_in_program<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, .. } = call;
        let rules = self.session.program.as_ref()?;
        let is_array = |arg: &Borrowed<'_, '_>| heap::is_array(*arg) || rules.is_array(*arg);
        let taken = rules.calls(callable).find(|taken| match taken {
            Taken::OfArray(_) => args.first().is_some_and(is_array),
            Taken::OfNumbers(_) => args.iter().all(|number| is_plain(*number)),
            Taken::OfRow(_) => matches!(args, [row] if is_row(*row)),
            Taken::Node(_) | Taken::Silent | Taken::Substitute(_) => true,
        })?;
        match taken {
            Taken::Node(operation) => {
                self.links.clear();
                Some(self.tensor_call(operation, call))
            }
            Taken::Silent => {
                self.links.clear();
                Some(self.call_silently(rules, call))
            }
            Taken::Substitute(function)
            | Taken::OfArray(function)
            | Taken::OfNumbers(function)
            | Taken::OfRow(function) => {
                let function = function.bind_borrowed(frame.py());
                self.vouch(frame, function);
                Some(self.call_object(call.of(function)))
            }
        }
    }

    fn call_silently<'py>(&self, rules: &Rules, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, .. } = call;
        // Nobody sees which numbers become part of what it gives.
        let is_read = |value: &Borrowed<'_, '_>| {
            heap::is_number(*value)
                || value.is_exact_instance_of::<PyList>()
                || value.is_exact_instance_of::<PyTuple>()
        };
        let read: Vec<_> = call.args.iter().copied().filter(is_read).collect();
        self.fix_values(frame, &read, "made a constant");
        let result = {
            let _native = Suspended::new(frame.py());
            call.natively()?
        };
        if let Ok(text) = result.cast::<PyString>() {
            let text = text.to_string_lossy().into_owned();
            self.stop(frame, Reason::Impure, text);
        } else if result.is_exact_instance_of::<PyList>() {
            self.note(frame, |state| {
                state.set_fresh(result.as_borrowed());
                let items = heap::children(result.as_borrowed());
                let tells_numbers = items.iter().any(|item| is_number(item.as_borrowed()));
                if tells_numbers && call.args.iter().any(|tensor| state.follows_sizes(*tensor)) {
                    let detail = "a number of Python's that is made of it".into();
                    return Err((Reason::VaryingSize, detail));
                }
                items.iter().try_for_each(|item| state.know_constant(rules, item.as_borrowed()))
            });
        } else {
            debug_assert!(result.is_none() || result.is_instance_of::<PyBool>());
        }
        Ok(result)
    }
}

/// Whether something is one of Python's integers or floats.
fn is_plain(number: Borrowed<'_, '_>) -> bool {
    number.is_exact_instance_of::<PyInt>() || number.is_exact_instance_of::<PyFloat>()
}

/// Whether something is a list or a tuple of them, and there are some.
fn is_row(object: Borrowed<'_, '_>) -> bool {
    let is_known = heap::is_exact_list(object) || object.is_instance_of::<PyTuple>();
    let items = if is_known { heap::children(object) } else { Vec::new() };
    !items.is_empty() && items.iter().all(|item| is_plain(item.as_borrowed()))
}

fn is_number(item: Borrowed<'_, '_>) -> bool {
    item.is_instance_of::<PyInt>()
        || item.is_instance_of::<PyFloat>()
        || item.is_instance_of::<PyComplex>()
}

impl State {
    /// Whether numbers that aren't the same in each run are among what a tensor was made of: sizes that vary are.
    fn follows_sizes(&self, tensor: Borrowed<'_, '_>) -> bool {
        let Some(Origin::Node(node)) = self.origin(tensor) else { return false };
        let (mut left, mut seen) = (vec![node], FxHashSet::default());
        while let Some(node) = left.pop() {
            if matches!(self.graph.node(node).value, Value::Integer | Value::Float) {
                return true;
            }
            if seen.insert(node) {
                self.graph.visit_inputs(node, &mut |input| left.push(input));
            }
        }
        false
    }

    /// A tensor with data that nobody has found outside was made for this trace: it is a constant of the program. What
    /// is known of its address is of one that has died, as operations give tensors without data.
    fn know_constant(&mut self, rules: &Rules, item: Borrowed<'_, '_>) -> Noted<()> {
        let is_constant = self.kind(item) == Kind::Tensor
            && !rules.is_stand_in(item)
            && !matches!(self.origin(item), Some(Origin::Source(_)));
        if !is_constant {
            return Ok(());
        }
        self.objects.forget_origin(item);
        let id = self.object(item);
        let source = self.sources.anchor(id, || "a constant".into());
        self.adopt(source, item)
    }
}
