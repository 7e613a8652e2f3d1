//! `grad` of tensors: a slot of leaves from outside, guarded where it is read and fetched at a replay.
//!
//! What this trace has put there itself is no outside read. `backward` breaks the graph, so nothing
//! else changes a gradient while a trace goes on.

use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::Source;

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{State, Stop};

/// What a trace has done to gradients.
#[derive(Default)]
pub struct GradientWrites {
    /// Whether a function that is one node of the graph may have set any.
    unknown: bool,
    /// The tensors whose gradients were set.
    of: Vec<Py<PyAny>>,
}

impl GradientWrites {
    /// A function becomes a node: it may set any.
    pub fn set_unknown(&mut self) {
        self.unknown = true;
    }
}

impl Recorder {
    /// Reads the gradient of a leaf from outside; `None` where it isn't one.
    pub(in crate::recorder) fn outside_gradient<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if self.session.program.is_some() || self.state.borrow().source(owner).is_none() {
            return None;
        }
        let gradient = {
            let _native = Suspended::new(frame.py());
            tensor::gradient(owner)?
        };
        self.note(frame, |state| state.read_gradient(owner, gradient.as_borrowed()))?;
        Some(gradient)
    }
}

impl State {
    fn read_gradient(
        &mut self,
        owner: Borrowed<'_, '_>,
        gradient: Borrowed<'_, '_>,
    ) -> Result<(), Stop> {
        let Some(source) = self.source(owner) else { return Ok(()) };
        if self.gradients.unknown {
            let detail = "a gradient behind a function that is one node of the graph";
            return Err((Reason::UnknownOrigin, detail.into()));
        }
        let py = owner.py();
        let (mut is_written, mut others) = (false, Vec::new());
        for written in &self.gradients.of {
            let written = written.bind(py);
            if written.is(&*owner) { is_written = true } else { others.push(written.clone()) }
        }
        for other in others {
            self.guard_distinct(owner, other.as_borrowed());
        }
        if !is_written {
            let source = self.sources.intern(Source::Gradient(source));
            return self.adopt(source, gradient);
        }
        if gradient.is_none() || self.origin(gradient).is_some() {
            return Ok(());
        }
        Err((Reason::UnknownOrigin, format!("the gradient of a {}", heap::type_name(owner))))
    }

    /// This trace has set or deleted the gradient of a tensor.
    pub(in crate::recorder) fn wrote_gradient(&mut self, owner: Borrowed<'_, '_>) {
        if self.kind(owner) == Kind::Tensor
            && !self.gradients.of.iter().any(|written| written.is(&*owner))
        {
            self.gradients.of.push(owner.to_owned().unbind());
        }
    }
}
