//! Compiled functions that are called within another one's trace: there they are plain functions.
//!
//! What makes compiled functions stands above what traces calls, so it says here how one is told and seen through.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::PyFunction;
use stator_cpython::object::Borrowed;

use crate::disabled::Disabled;

/// How to see through a compiled function.
pub struct SeenThrough {
    /// Whether an object is a compiled function.
    pub is_compiled: fn(Borrowed<'_, '_>) -> bool,
    /// The function behind one that is called as a part of another one's trace.
    pub function: for<'py> fn(Borrowed<'_, 'py>) -> Option<Bound<'py, PyFunction>>,
}

static KNOWN: OnceLock<SeenThrough> = OnceLock::new();

/// Says how; before the first compiled function is made.
pub fn set(known: SeenThrough) {
    // It's said again for each, and each time the same.
    let _ = KNOWN.set(known);
}

/// Whether an object is one of Stator's that stand for a function.
#[must_use]
pub fn is_function_like(object: Borrowed<'_, '_>) -> bool {
    KNOWN.get().is_some_and(|known| (known.is_compiled)(object))
        || object.is_exact_instance_of::<Disabled>()
}

/// The function behind a compiled one that is called as a part of another one's trace.
#[must_use]
pub fn function<'py>(object: Borrowed<'_, 'py>) -> Option<Bound<'py, PyFunction>> {
    (KNOWN.get()?.function)(object)
}
