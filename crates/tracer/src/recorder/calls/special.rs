//! Special methods that are Python functions: called as the interpreter's C code would call them, but
//! from here, so that a graph break in one is a break in an inlined call.
//!
//! Each `python_*` method returns `None` where C code is to do it.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::types;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, Asked, BinaryOp, CompareOp};
use stator_evaluator::Role;

use super::overridden;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Ends, Protocols};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::reads::protocols::is_handed;

impl Protocols for Recorder {
    fn overridden<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        self.taken_over(call)
    }

    fn python_binary<'py>(
        &self,
        frame: &Frame<'py>,
        op: BinaryOp,
        names: &[&'static str],
        [left, right]: [Borrowed<'_, 'py>; 2],
    ) -> Option<Result<Object<'py>>> {
        let [.., plain, reflected] = names else { return None };
        if !self.is_operand(left) || !self.is_operand(right) && !is_handed(op, right) {
            return None;
        }
        if self.kind(left) == Kind::Tensor && !self.is_left_to_others(frame, names, left, right) {
            return None;
        }
        let in_place = names.first().filter(|_| names.len() == 3);
        let in_place = in_place.and_then(|name| {
            let ty = left.get_type();
            let text = PyString::intern(frame.py(), name);
            types::lookup(ty.as_borrowed(), text.as_any().as_borrowed())?;
            Some(self.special(frame, left, name))
        });
        let (method, asked, args) = match in_place {
            Some(found) => (found?, Asked::InPlace, [left, right]),
            None if is_number(left) || self.kind(left) == Kind::Tensor => {
                if is_number(right) || is_derived_number(right) {
                    return None;
                }
                (self.special(frame, right, reflected)?, Asked::Both, [right, left])
            }
            None if ops::asks_right_first(left, right) => return None,
            None => (self.special(frame, left, plain)?, Asked::Left, [left, right]),
        };
        let role = Role::Operator(asked);
        let result = self.call_linked(role, None, Call::new(frame, method.as_borrowed(), &args));
        Some(self.or_others(frame, result, || ops::binary_rest(op, asked, left, right)))
    }

    fn python_compare<'py>(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        names: &[&'static str],
        [left, right]: [Borrowed<'_, 'py>; 2],
    ) -> Option<Result<Object<'py>>> {
        if !(self.is_operand(left) && self.is_operand(right)) {
            return None;
        }
        let (method, asked, args) = if is_number(left) {
            if is_number(right) || is_derived_number(right) {
                return None;
            }
            let reflected = if op == CompareOp::Ne { "__ne__" } else { names.last()? };
            (self.special(frame, right, reflected)?, Asked::Both, [right, left])
        } else if ops::asks_right_first(left, right) {
            return None;
        } else {
            (self.special(frame, left, names.first()?)?, Asked::Left, [left, right])
        };
        let role = Role::Operator(asked);
        let result = self.call_linked(role, None, Call::new(frame, method.as_borrowed(), &args));
        Some(self.or_others(frame, result, || ops::compare_rest(op, asked, left, right)))
    }

    fn python_unary<'py>(
        &self,
        frame: &Frame<'py>,
        name: &'static str,
        operand: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let method = self.special(frame, operand, name)?;
        let role = Role::Operator(Asked::Only);
        Some(self.call_linked(role, None, Call::new(frame, method.as_borrowed(), &[operand])))
    }

    fn python_contains<'py>(
        &self,
        frame: &Frame<'py>,
        container: Borrowed<'_, 'py>,
        item: Borrowed<'_, 'py>,
    ) -> Option<Result<bool>> {
        let method = self.special(frame, container, "__contains__")?;
        let args = [container, item];
        let role = Role::Contains;
        let result = self.call_linked(role, None, Call::new(frame, method.as_borrowed(), &args));
        Some(result.and_then(|result| {
            if result.is_none() || result.is_exact_instance_of::<PyBool>() {
                return ops::truth(result.as_borrowed());
            }
            self.truth_of(frame, result.as_borrowed())
        }))
    }

    fn python_truth<'py>(
        &self,
        frame: &Frame<'py>,
        operand: Borrowed<'_, 'py>,
    ) -> Option<Result<bool>> {
        if let Some(method) = self.special(frame, operand, "__bool__") {
            let args = [operand];
            let role = Role::Bool;
            let result =
                self.call_linked(role, None, Call::new(frame, method.as_borrowed(), &args));
            return Some(result.and_then(|result| ops::checked_bool(result.as_borrowed())));
        }
        let ty = operand.get_type();
        if types::slot(ty.as_borrowed(), types::SlotName::Bool) != types::Slot::Empty {
            return None;
        }
        let method = self.special(frame, operand, "__len__")?;
        let role = Role::Length;
        let result =
            self.call_linked(role, None, Call::new(frame, method.as_borrowed(), &[operand]));
        Some(result.and_then(|length| {
            if !length.is_exact_instance_of::<PyInt>() {
                self.stop(frame, Reason::OpaqueCall, "a length that isn't an int");
            }
            ops::checked_length(length.as_borrowed()).map(|length| length > 0)
        }))
    }

    fn python_iter<'py>(
        &self,
        frame: &Frame<'py>,
        iterable: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let method = self.special(frame, iterable, "__iter__")?;
        let role = Role::Iter;
        let result =
            self.call_linked(role, None, Call::new(frame, method.as_borrowed(), &[iterable]));
        Some(result.and_then(ops::checked_iterator))
    }

    fn python_next<'py>(
        &self,
        frame: &Frame<'py>,
        iterator: Borrowed<'_, 'py>,
    ) -> Option<Result<Option<Object<'py>>>> {
        let Some(method) = self.special(frame, iterator, "__next__") else {
            return self.advance_calling(frame, iterator);
        };
        let role = Role::Next;
        let result =
            self.call_linked(role, None, Call::new(frame, method.as_borrowed(), &[iterator]));
        Some(match result {
            Ok(item) => Ok(Some(item)),
            Err(raised) => {
                let py = frame.py();
                if ops::is_exhausted(py) { Ok(None) } else { Err(raised) }
            }
        })
    }
}

impl Recorder {
    /// Asks the other methods where the first one returned `NotImplemented`.
    fn or_others<'py>(
        &self,
        frame: &Frame<'py>,
        result: Result<Object<'py>>,
        rest: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        let result = result?;
        if !ops::is_not_implemented(&result) {
            return Ok(result);
        }
        let result = self.with_mode(frame, rest)?;
        self.note(frame, |state| state.register(result.as_borrowed()));
        Ok(result)
    }

    /// Whether CPython's rules for an operand are those of [`ops::binary_rest`].
    fn is_operand(&self, operand: Borrowed<'_, '_>) -> bool {
        let is_known = match self.kind(operand) {
            Kind::Object => !ops::is_sequence_operand(operand),
            Kind::Tensor => true,
            _ => false,
        };
        is_known || is_number(operand) || operand.is_none()
    }

    /// Whether a tensor's operator says that it's for the other operand's class to answer. PyTorch's parser tells that by
    /// classes alone.
    fn is_left_to_others(
        &self,
        frame: &Frame<'_>,
        names: &[&'static str],
        left: Borrowed<'_, '_>,
        right: Borrowed<'_, '_>,
    ) -> bool {
        let [name, _] = *names else { return false };
        if self.kind(right) != Kind::Object || is_derived_number(right) {
            return false;
        }
        let overrides = PyString::intern(frame.py(), overridden::METHOD);
        let ty = right.get_type();
        if self.lookup(frame, &ty, overrides.as_any().as_borrowed()).is_some() {
            return false;
        }
        let name = PyString::intern(frame.py(), name);
        let _native = Suspended::new(frame.py());
        let asked = ops::get_attr(left, name.as_any().as_borrowed())
            .and_then(|method| ops::call(method.as_borrowed(), &[right], None));
        match asked {
            Ok(answer) => ops::is_not_implemented(&answer),
            Err(raised) => {
                raised.clear(frame.py());
                false
            }
        }
    }
}

/// Whether an object is a number of a builtin type, which takes no operand but numbers.
fn is_number(object: Borrowed<'_, '_>) -> bool {
    object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyBool>()
}

/// Whether an object is an instance of a class that derives from such a type.
fn is_derived_number(object: Borrowed<'_, '_>) -> bool {
    object.is_instance_of::<PyInt>() || object.is_instance_of::<PyFloat>()
}
