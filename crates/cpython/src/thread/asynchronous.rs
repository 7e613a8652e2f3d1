//! Exceptions for other threads.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The number by which Python knows the current thread: what `threading.get_ident` gives.
#[must_use]
pub fn current_ident(_py: Python<'_>) -> u64 {
    // SAFETY: it reads what the thread says of itself.
    unsafe { ffi::PyThread_get_thread_ident() as u64 }
}

/// Lets a thread raise an exception of this class when it executes Python code the next time.
/// Nothing happens if there is no such thread.
pub fn raise_in(ident: u64, class: &Bound<'_, PyType>) {
    // SAFETY: the GIL is held; the class is an object, to which the thread gets a reference of its own.
    unsafe { ffi::PyThreadState_SetAsyncExc(ident as _, class.as_ptr()) };
}
