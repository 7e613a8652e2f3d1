//! Signals that wait while Stator runs code of its own.
//!
//! CPython runs signal handlers where Python code asks for events, whoever's code that is. A handler may
//! raise, and what it raises is the program's: it must not end where Stator asks PyTorch something and takes
//! an exception for an answer. So Stator's own code lets signals wait; the program's next instruction that
//! asks gets them.

use std::ffi::c_ulong;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

use pyo3::ffi;
use pyo3::prelude::*;

use super::{Breaker, Thread};
use crate::ffi as shim;

/// The main thread, once signals have waited for it.
static MAIN_THREAD: AtomicU64 = AtomicU64::new(0);

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
        if main_thread != 0 {
            MAIN_THREAD.store(main_thread, Relaxed);
        }
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

/// While it lives, signal handlers run in spite of the [`Deferred`]s below: for code of others, which may take
/// long, within Stator's own.
#[must_use]
pub struct Heard<'py> {
    /// Whether signals waited for this thread.
    waited: bool,
    py: PhantomData<Python<'py>>,
}

impl<'py> Heard<'py> {
    /// Begins. The next instruction that asks gets what has come until now.
    pub fn new(py: Python<'py>) -> Self {
        let main_thread = MAIN_THREAD.load(Relaxed);
        // SAFETY: the GIL is held.
        let waited = main_thread != 0 && unsafe { shim::stator_do_signals_wait(main_thread) != 0 };
        if waited {
            let thread = Thread::current(py).as_ptr();
            // SAFETY: the current thread's state; what `stator_defer_signals` gave the guard below.
            unsafe { shim::stator_allow_signals(thread, main_thread) };
        }
        Self { waited, py: PhantomData }
    }
}

impl Drop for Heard<'_> {
    fn drop(&mut self) {
        if self.waited {
            // SAFETY: the GIL is held; the guard below puts back what this gives, once more.
            unsafe { shim::stator_defer_signals() };
        }
    }
}

/// What asks a thread to stop between the steps of a loop of Stator's: a signal that waits for a guard, or an
/// exception that another thread has sent.
#[derive(Clone, Copy)]
pub struct Asking<'py> {
    /// 1 if a signal waits; none if signals don't wait for this thread's sake.
    signals: Option<&'py AtomicI32>,
    breaker: Breaker,
    thread: Thread<'py>,
}

impl<'py> Asking<'py> {
    /// Asks on behalf of the guard.
    #[inline]
    #[must_use]
    pub fn new(deferred: &Deferred<'py>) -> Self {
        let thread = Thread::current(deferred.py);
        // SAFETY: a field of the runtime, which outlives its threads: an int that is written atomically.
        let signals = (deferred.main_thread != 0).then(|| unsafe {
            let signals: *const AtomicI32 = shim::stator_signals_pending().cast();
            &*signals
        });
        Self { signals, breaker: thread.eval_breaker(), thread }
    }

    /// Whether something waits.
    #[inline(always)]
    #[must_use]
    pub fn is_asked(&self) -> bool {
        let signals = self.signals.map_or(0, |signals| signals.load(Relaxed));
        // SAFETY: the current thread's.
        (signals != 0 || unsafe { self.breaker.is_set() }) && self.is_meant()
    }

    /// The breaker is set for others as well: other threads that want the GIL.
    #[cold]
    #[inline(never)]
    fn is_meant(&self) -> bool {
        self.has_signal() || self.thread.was_sent_an_exception()
    }

    /// Whether it is a signal that waits.
    #[must_use]
    pub fn has_signal(&self) -> bool {
        self.signals.is_some_and(|signals| signals.load(Relaxed) != 0)
    }
}

/// As if this signal had come, if it has a handler: for tests.
pub fn trip(signal: i32) {
    // SAFETY: it may be called at any time, whatever the number.
    unsafe { ffi::PyErr_SetInterruptEx(signal) };
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
