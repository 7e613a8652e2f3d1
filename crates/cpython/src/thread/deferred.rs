//! Signals that wait while Stator runs code of its own.
//!
//! CPython runs signal handlers where Python code asks for events, whoever's code that is. A handler may
//! raise, and what it raises is the program's: it must not end where Stator asks PyTorch something and takes
//! an exception for an answer. So Stator's own code lets signals wait; the program's next instruction that
//! asks gets them.

use std::ffi::c_ulong;

use pyo3::prelude::*;

use super::Thread;
use crate::ffi as shim;

/// While it lives, no signal handler runs. Nothing of the program's that takes long may run either.
#[must_use]
pub struct Deferred<'py> {
    /// The main thread, if this is the one.
    main_thread: c_ulong,
    py: Python<'py>,
}

impl<'py> Deferred<'py> {
    /// Begins. Guards nest.
    #[inline]
    pub fn new(py: Python<'py>) -> Self {
        // SAFETY: the GIL is held; the runtime's field is put back when the guard is dropped.
        let main_thread = unsafe { shim::stator_defer_signals() };
        Self { main_thread, py }
    }

    /// Whether a signal may come that was asked for beforehand (`signal.alarm`, `signal.setitimer`), and would
    /// run a handler that waits for this guard. Asks the system.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        // SAFETY: no precondition.
        self.main_thread != 0 && unsafe { shim::stator_is_timer_running() } != 0
    }
}

impl Drop for Deferred<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.main_thread != 0 {
            let thread = Thread::current(self.py).as_ptr();
            // SAFETY: the current thread's state; what `stator_defer_signals` gave.
            unsafe { shim::stator_allow_signals(thread, self.main_thread) };
        }
    }
}
