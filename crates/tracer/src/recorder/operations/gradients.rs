//! `grad` of tensors: a slot of leaves from outside, guarded where it is read and fetched at a replay.
//!
//! What this trace has put there itself is no outside read, and neither is what it has computed (see `backward`).

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::{GuardKind, Source};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{State, Stop};

/// What a trace has read of gradients, and done to them.
///
/// Invariant: `known` has the addresses of `owners`, which are kept alive.
#[derive(Default)]
pub struct Gradients {
    /// Whether a function that is one node of the graph may have set any.
    is_unknown: bool,
    /// Tensors from outside whose gradients were read or set.
    owners: Vec<Py<PyAny>>,
    known: FxHashSet<usize>,
    /// Those whose gradients were set.
    set: FxHashSet<usize>,
    /// Those whose gradients the trace has computed: the gradient, once it was read.
    computed: FxHashMap<usize, usize>,
    /// Whether the trace has gone back from a tensor to its leaves.
    has_gone_back: bool,
}

impl Gradients {
    /// A function becomes a node: it may set any.
    pub fn set_unknown(&mut self) {
        self.is_unknown = true;
    }

    fn own(&mut self, owner: Borrowed<'_, '_>) {
        if self.known.insert(owner.as_ptr() as usize) {
            self.owners.push(owner.to_owned().unbind());
        }
    }

    /// The gradient of a tensor is set, or taken away.
    fn write(&mut self, owner: Borrowed<'_, '_>) {
        self.own(owner);
        self.set.insert(owner.as_ptr() as usize);
        self.computed.remove(&(owner.as_ptr() as usize));
    }

    /// The gradient of a tensor is computed.
    pub fn compute(&mut self, owner: Borrowed<'_, '_>) {
        self.write(owner);
        self.computed.insert(owner.as_ptr() as usize, 0);
    }

    /// All that a call computes is noted; leaves that the trace has made may have gradients as well.
    pub fn went_back(&mut self) {
        self.has_gone_back = true;
    }

    /// Whether leaves that the trace has made may have gradients.
    pub fn has_gone_back(&self) -> bool {
        self.has_gone_back
    }

    /// If the trace has computed the gradient of a tensor: its address, or 0 before it was read.
    pub fn computed(&self, owner: Borrowed<'_, '_>) -> Option<usize> {
        self.computed.get(&(owner.as_ptr() as usize)).copied()
    }

    /// It was read.
    pub fn found(&mut self, owner: Borrowed<'_, '_>, gradient: Borrowed<'_, '_>) {
        self.computed.insert(owner.as_ptr() as usize, gradient.as_ptr() as usize);
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
    /// Takes note of the gradient that a leaf has, or of there being none.
    pub(in crate::recorder) fn read_gradient(
        &mut self,
        owner: Borrowed<'_, '_>,
        gradient: Borrowed<'_, '_>,
    ) -> Result<(), Stop> {
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
    ) -> Result<(), Stop> {
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
