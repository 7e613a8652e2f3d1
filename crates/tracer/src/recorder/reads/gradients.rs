//! `grad` of tensors: a slot of leaves from outside, guarded where it is read and fetched at a replay.
//!
//! What this trace has put there itself is no outside read, and neither is what it has computed (see `backward`).

use pyo3::prelude::*;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_graph::Target;
use stator_guards::{GuardKind, Source};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Operations;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State, Stop};

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
    /// Takes note of the gradient that a leaf has, or of there being none.
    pub(in crate::recorder) fn read_gradient(
        &mut self,
        owner: Borrowed<'_, '_>,
        gradient: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let Some(source) = self.source(owner) else { return Ok(()) };
        if self.gradients.is_unknown {
            let detail = "a gradient behind a function that is one node of the graph";
            return Err((Reason::UnknownOrigin, detail.into()));
        }
        self.gradients.own(owner);
        if !self.gradients.set.contains(&(owner.as_ptr() as usize)) {
            let source = self.sources.intern(Source::Gradient(source));
            return self.adopt(source, gradient);
        }
        if gradient.is_none() || self.origin(gradient).is_some() {
            return Ok(());
        }
        Err((Reason::UnknownOrigin, format!("the gradient of a {}", heap::type_name(owner))))
    }

    /// A tensor from outside has no gradient, as far as the trace knows.
    pub(in crate::recorder) fn read_no_gradient(
        &mut self,
        owner: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let none = owner.py().None();
        self.read_gradient(owner, none.bind_borrowed(owner.py()))
    }

    /// This trace has set or deleted the gradient of a tensor.
    pub(in crate::recorder) fn wrote_gradient(&mut self, owner: Borrowed<'_, '_>) {
        if self.kind(owner) == Kind::Tensor {
            self.gradients.write(owner);
        }
    }

    /// Guards that tensors whose gradients were set, and others whose gradients were read, are different ones.
    pub(in crate::recorder) fn guard_owners_distinct(&mut self) {
        if self.gradients.set.is_empty() {
            return;
        }
        let owners = std::mem::take(&mut self.gradients.owners);
        let of = |owner: &Py<PyAny>| self.source_at(owner.as_ptr() as usize);
        let sources: Vec<_> = owners.iter().filter_map(of).collect();
        if let Some((first, rest)) = sources.split_first()
            && !rest.is_empty()
        {
            self.guard(*first, GuardKind::Distinct(rest.into()));
        }
        self.gradients.owners = owners;
    }
}

impl Recorder {
    /// Reads a gradient that the trace has computed; `None`: it hasn't.
    pub(in crate::recorder) fn computed_gradient<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        read: impl Fn() -> Result<Object<'py>>,
    ) -> Option<Result<Object<'py>>> {
        let known = {
            let state = self.state.try_borrow().ok()?;
            let is_own = || {
                state.gradients.has_gone_back()
                    && matches!(state.origin(owner), Some(Origin::Node(_)))
                    && tensor::retained_gradient(owner).is_some_and(|gradient| !gradient.is_none())
            };
            state.gradients.computed(owner).or_else(|| is_own().then_some(0))?
        };
        let value = match read() {
            Ok(value) if !value.is_none() && value.as_ptr() as usize != known => value,
            result => return Some(result),
        };
        let target = |state: &mut State| Target::GetAttr { name: state.graph.intern("grad") };
        let result = self.operation(frame, target, &[owner], None, || Ok(value));
        if let Ok(value) = &result {
            self.note(frame, |state| {
                if state.source(owner).is_some() {
                    state.gradients.found(owner, value.as_borrowed());
                }
                Ok(())
            });
        }
        Some(result)
    }
}
