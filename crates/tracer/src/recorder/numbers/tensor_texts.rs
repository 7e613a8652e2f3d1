//! Texts of tensors with one element: those of the number that the tensor holds (`texts.rs`).
//!
//! `f"{loss:.3f}"` is what `Tensor.__format__` says of a tensor without dimensions: the text of `loss.item()`. `%f` asks
//! `float(t)`, and `%d` asks `int(t)`. `str(t)` and `repr(t)` are another matter: they ask how tensors are printed.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Raised, ops};

use super::read_tensors::TensorRead;
use crate::recorder::Recorder;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;

impl Recorder {
    /// The number whose text is that of a tensor in a placeholder; `None`: the object is no such tensor, or the trace
    /// can't go on behind it. What was executed can be again.
    pub(super) fn placeholder_number<'py>(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let is_plain = self.kind(value) == Kind::Tensor
            && heap::type_name(value) == "Tensor"
            && tensor::info(value).is_some_and(|info| info.sizes.is_empty());
        if is_plain { self.number_for_text(frame, TensorRead::Item, value) } else { None }
    }

    /// What a tensor with one element gives to who makes a text of it.
    fn number_for_text<'py>(
        &self,
        frame: &Frame<'py>,
        read: TensorRead,
        tensor: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if self.is_stopped() || !self.session.takes_steps() {
            return None;
        }
        let native = || {
            let _native = Suspended::new(frame.py());
            let name = PyString::intern(frame.py(), read.method());
            ops::get_attr(tensor, name.as_any().as_borrowed())
                .and_then(|method| ops::call(method.as_borrowed(), &[], None))
        };
        let number = self.converted(frame, read, tensor, native)?;
        let number = Raised::unless(frame.py(), number)?;
        // To read changes nothing: the instruction is as before.
        self.baseline.set(ops::executed());
        (!self.is_stopped()).then_some(number)
    }

    /// What `%` is given, with numbers where there are tensors; `None`: there is none, or the text isn't that of a number.
    pub(super) fn percent_numbers<'py>(
        &self,
        frame: &Frame<'py>,
        takes: &[char],
        parts: &[Object<'py>],
    ) -> Option<Vec<Object<'py>>> {
        let is_tensor = |part: &Object<'py>| self.kind(part.as_borrowed()) == Kind::Tensor;
        if takes.len() != parts.len() || !parts.iter().any(is_tensor) {
            return None;
        }
        let number = |(directive, part): (&char, &Object<'py>)| match directive {
            _ if !is_tensor(part) => Some(part.clone()),
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
                self.number_for_text(frame, TensorRead::Float, part.as_borrowed())
            }
            'd' | 'i' | 'u' => self.number_for_text(frame, TensorRead::Integer, part.as_borrowed()),
            _ => None,
        };
        takes.iter().zip(parts).map(number).collect()
    }

    /// The arguments of `"...".format(...)`, the text first, with numbers where there are tensors; `None`: there is none,
    /// or a field asks for something else than its text.
    pub(in crate::recorder) fn format_numbers<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Vec<Object<'py>>> {
        let Call { frame, callable, args, .. } = call;
        let [text, rest @ ..] = args else { return None };
        if !rest.iter().any(|arg| self.kind(*arg) == Kind::Tensor)
            || !text.is_exact_instance_of::<PyString>()
            || !text.get_type().getattr("format").ok()?.is(callable)
            || !are_simple(&heap::text(*text))
        {
            return None;
        }
        let number = |arg: &Borrowed<'_, 'py>| {
            if self.kind(*arg) == Kind::Tensor {
                self.placeholder_number(frame, *arg)
            } else {
                Some((*arg).to_owned())
            }
        };
        std::iter::once(Some((*text).to_owned())).chain(rest.iter().map(number)).collect()
    }

    /// Several values, as `%` takes them.
    pub(super) fn percent_operand<'py>(
        &self,
        frame: &Frame<'py>,
        parts: &[Object<'py>],
    ) -> Option<Object<'py>> {
        let tuple = PyTuple::new(frame.py(), parts).ok()?.into_any();
        self.note(frame, |state| {
            state.set_fresh(tuple.as_borrowed());
            Ok(())
        })?;
        Some(tuple)
    }
}

/// Whether no field of a text converts what it's given (`{!r}`), or looks into it (`{0.shape}`).
fn are_simple(format: &str) -> bool {
    format.split('{').skip(1).all(|field| {
        let name = field.split(['}', ':']).next().unwrap_or_default();
        !name.contains(['!', '.', '['])
    })
}
