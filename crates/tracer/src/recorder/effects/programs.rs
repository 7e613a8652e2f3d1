//! What is written in the trace of a tensor program: gradients of its own tensors.

use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::hook::Suspended;
use stator_cpython::object::Borrowed;
use stator_cpython::{Result, ops};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;

impl Recorder {
    /// Sets the gradient of a tensor of the trace; `None`: this isn't a program's trace. Who reads it
    /// finds the tensor that was put there, so it needs no node.
    pub(in crate::recorder) fn set_gradient<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Option<Result<()>> {
        self.session.program.as_ref()?;
        let is_known = value.is_none_or(|value| value.is_none() || self.is_known_gradient(value));
        if !self.is_stand_in(owner) || !is_known {
            self.stop(frame, Reason::Impure, "the gradient of a tensor from outside");
        }
        let _native = Suspended::new(frame.py());
        Some(ops::set_attr(owner, name, value))
    }
}
