//! What a backend gives that leaves a call to the replay, or a graph.

use pyo3::prelude::*;

/// A backend's code doesn't serve a call, whose part of a graph is replayed; or a backend makes none of a part.
#[pyclass(frozen, get_all, module = "stator._stator")]
pub struct Declined {
    /// Why.
    pub why: String,
    /// Whether it serves no other call either.
    pub is_final: bool,
}

#[pymethods]
impl Declined {
    #[new]
    #[pyo3(signature = (why, *, is_final=false))]
    fn new(why: String, is_final: bool) -> Self {
        Self { why, is_final }
    }
}
