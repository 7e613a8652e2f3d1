//! What a trace knows of NumPy's arrays.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;
use stator_guards::SourceId;

/// What a trace knows of arrays and scalars of NumPy's.
#[derive(Default)]
pub struct Arrays {
    /// Those that nodes gave: nothing else comes to their addresses.
    pub(in crate::recorder) kept: Vec<Py<PyAny>>,
    /// Universal functions that are guarded by identity: `np.add` of `np.add.at`.
    pub(in crate::recorder) universal: FxHashSet<usize>,
    /// Those from outside whose facts were decided.
    pub(in crate::recorder) known: FxHashSet<SourceId>,
}
