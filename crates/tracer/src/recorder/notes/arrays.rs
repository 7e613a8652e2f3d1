//! What a trace knows of NumPy's arrays.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;
use stator_cpython::object::Borrowed;
use stator_guards::SourceId;

use super::heap;
use super::kinds::Kind;
use super::state::{Origin, State};

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

impl State {
    /// Whether an object is an array or a scalar of NumPy's that the graph may have.
    pub fn is_array_value(&mut self, object: Borrowed<'_, '_>) -> bool {
        self.kind(object) == Kind::Opaque
            && matches!(self.origin(object), Some(Origin::Handle(_) | Origin::Source(_)))
            && heap::is_array(object)
    }
}
