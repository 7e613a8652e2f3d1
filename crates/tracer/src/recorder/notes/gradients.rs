//! What a trace has read of gradients, and done to them.

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use stator_cpython::object::Borrowed;
use stator_graph::NodeId;

/// That a trace went back through a history that began outside.
pub struct Outer {
    /// The node that looks at that history.
    pub(in crate::recorder) node: NodeId,
    /// The leaves of which a replay has asked whether they are reached, by address.
    pub(in crate::recorder) known: FxHashSet<usize>,
    /// Leaves that are reached and that the trace hasn't met, and the gradients that they had.
    pub(in crate::recorder) unknown: Vec<(Py<PyAny>, Option<Py<PyAny>>)>,
}

/// What a trace has read of gradients, and done to them.
///
/// Invariant: `known` has the addresses of `owners`, which are kept alive.
#[derive(Default)]
pub struct Gradients {
    /// Whether a function that is one node of the graph may have set any.
    pub(in crate::recorder) is_unknown: bool,
    /// Tensors from outside whose gradients were read or set.
    pub(in crate::recorder) owners: Vec<Py<PyAny>>,
    pub(in crate::recorder) known: FxHashSet<usize>,
    /// Those whose gradients were set.
    pub(in crate::recorder) set: FxHashSet<usize>,
    /// Those whose gradients the trace has computed: the gradient, once it was read.
    pub(in crate::recorder) computed: FxHashMap<usize, usize>,
    /// What is known of each time that the trace went back through a history that began outside.
    pub(in crate::recorder) outer: Vec<Outer>,
    /// Whether the trace has gone back from a tensor to its leaves.
    has_gone_back: bool,
}

impl Gradients {
    /// A function becomes a node: it may set any.
    pub fn set_unknown(&mut self) {
        self.is_unknown = true;
    }

    pub(in crate::recorder) fn own(&mut self, owner: Borrowed<'_, '_>) {
        if self.known.insert(owner.as_ptr() as usize) {
            self.owners.push(owner.to_owned().unbind());
        }
    }

    /// The gradient of a tensor is set, or taken away.
    pub(in crate::recorder) fn write(&mut self, owner: Borrowed<'_, '_>) {
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
