//! What Python's interpreter does between instructions, for loops that execute none: signals are
//! handled, and other threads get their turn.

use pyo3::prelude::*;
use stator_cpython::thread::Thread;

/// To be called often. Fails with what a signal's handler raises.
#[inline]
pub fn pause(py: Python<'_>) -> PyResult<()> {
    Thread::current(py).ask_for_events().map_err(|raised| raised.take(py))
}
