//! What a trace knows of sparse tensors.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;
use stator_graph::Target;
use stator_guards::SourceId;

/// The sparse tensors of a trace, and what the operation that is being recorded does with such.
#[derive(Default)]
pub struct SparseTensors {
    /// Those that nodes gave: nothing else comes to their addresses.
    pub(in crate::recorder) kept: Vec<Py<PyAny>>,
    /// Those from outside whose description is guarded.
    pub(in crate::recorder) known: FxHashSet<SourceId>,
    /// The operation that is given its arguments.
    pub(in crate::recorder) taken_by: Option<Target>,
    /// Whether the operation was given a sparse tensor, or gives one.
    pub(in crate::recorder) is_met: bool,
}
