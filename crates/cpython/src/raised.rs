//! The marker for "an exception is set in the thread state".

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::{PyErr, ffi};

/// An exception is set in the current thread state; the caller passes it on or clears it.
///
/// It isn't fetched into a `PyErr`: the evaluator must leave the exception exactly as CPython set
/// it, normalised or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Raised;

/// Result of an operation that may leave an exception in the thread state.
pub type Result<T> = std::result::Result<T, Raised>;

impl Raised {
    /// Puts `error` into the thread state.
    pub fn set(py: Python<'_>, error: PyErr) -> Self {
        error.restore(py);
        Raised
    }

    /// Raises `SystemError` with a fixed message.
    pub fn system_error(_py: Python<'_>, message: &CStr) -> Self {
        // SAFETY: the exception type is a static object, the message ends with NUL.
        unsafe { ffi::PyErr_SetString(ffi::PyExc_SystemError, message.as_ptr()) };
        Raised
    }

    /// Takes the exception out of the thread state.
    pub fn take(self, py: Python<'_>) -> PyErr {
        PyErr::fetch(py)
    }

    /// What an operation gave; an exception is dropped.
    pub fn unless<T>(py: Python<'_>, result: Result<T>) -> Option<T> {
        result.map_err(|raised| raised.clear(py)).ok()
    }

    /// Drops the exception.
    pub fn clear(self, _py: Python<'_>) {
        // SAFETY: no precondition beyond the GIL.
        unsafe { ffi::PyErr_Clear() };
    }
}
