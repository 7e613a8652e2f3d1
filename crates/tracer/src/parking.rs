//! A thread that compiles beside the program keeps out of the way of compiled calls.
//!
//! PyTorch gives the interpreter lock back at every operation, and waits for it behind any thread that runs Python: a
//! replay of a third of a millisecond takes half a second so. So the compiling thread gives the lock back at its next
//! frame, by Stator's frame hook, and waits while a compiled call runs. A program that does nothing but call compiled
//! functions leaves it a small share all the same.
//!
//! Nothing here takes a lock: a process may be forked at any time.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::hook::{self, Active, Evaluated};
use stator_cpython::object::Object;

/// So long the thread waits at most, and then runs for so long at least.
const PATIENCE: Duration = Duration::from_millis(10);
const SHARE: Duration = Duration::from_millis(1);

/// How often it looks whether the calls have ended.
const STEP: Duration = Duration::from_micros(200);

/// Whether a thread compiles.
static COMPILES: AtomicBool = AtomicBool::new(false);
/// Compiled calls that run, of those that began since.
static CALLS: AtomicIsize = AtomicIsize::new(0);
/// Whether somebody waits for the compiling thread.
static HURRIES: AtomicBool = AtomicBool::new(false);
/// How often the thread has waited.
static PARKED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How many of the calls are this thread's.
    static DEPTH: Cell<isize> = const { Cell::new(0) };
    /// Whether this is the thread that compiles.
    static IS_COMPILING: Cell<bool> = const { Cell::new(false) };
    /// Since when it runs, if its patience was at an end.
    static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// While it lives, a compiled call runs.
#[must_use]
pub struct Running(bool);

impl Running {
    /// A call begins.
    #[inline]
    pub fn begin() -> Self {
        let counts = COMPILES.load(Relaxed) && !IS_COMPILING.get();
        if counts {
            count(1);
        }
        Self(counts)
    }
}

impl Drop for Running {
    #[inline]
    fn drop(&mut self) {
        if self.0 {
            count(-1);
        }
    }
}

fn count(calls: isize) {
    DEPTH.set(DEPTH.get() + calls);
    CALLS.fetch_add(calls, Relaxed);
}

/// Calls what compiles a graph, on a thread that keeps out of the way.
///
/// # Errors
/// What it raises.
pub fn compile<'py>(task: &Bound<'py, PyAny>) -> PyResult<Object<'py>> {
    let _ends = Compiling;
    COMPILES.store(true, Relaxed);
    IS_COMPILING.set(true);
    if !HURRIES.load(Relaxed) {
        // Nobody has counted a call that has begun before: a short one ends meanwhile.
        task.py().detach(|| std::thread::sleep(PATIENCE));
    }
    let _active = Active::new(task.py(), park);
    task.call0()
}

/// The thread compiles no more when it's dropped.
struct Compiling;

impl Drop for Compiling {
    fn drop(&mut self) {
        IS_COMPILING.set(false);
        COMPILES.store(false, Relaxed);
    }
}

/// Somebody waits for the thread, or does so no more: then it doesn't wait for others.
pub fn hurry(does: bool) {
    HURRIES.store(does, Relaxed);
}

/// How often the thread has waited so far; for tests.
#[must_use]
pub fn parked() -> usize {
    PARKED.load(Relaxed)
}

/// This is a forked process, which has one thread: no other compiles, calls or waits.
pub fn forget_others(py: Python<'_>) {
    COMPILES.store(IS_COMPILING.get(), Relaxed);
    CALLS.store(DEPTH.get(), Relaxed);
    HURRIES.store(false, Relaxed);
    hook::forget_others(py);
}

fn has_to_wait() -> bool {
    CALLS.load(Relaxed) > 0 && !HURRIES.load(Relaxed)
}

/// Evaluates a frame of the compiling thread, when that may run.
fn park<'py>(py: Python<'py>, frame: Frame<'py>, throw: bool) -> Evaluated<'py> {
    if has_to_wait() {
        wait(py);
    }
    hook::pass_on(py, frame, throw)
}

#[cold]
fn wait(py: Python<'_>) {
    if SINCE.get().is_some_and(|since| since.elapsed() < SHARE) {
        return;
    }
    PARKED.fetch_add(1, Relaxed);
    py.detach(|| {
        let began = Instant::now();
        while has_to_wait() && began.elapsed() < PATIENCE {
            std::thread::sleep(STEP);
        }
    });
    SINCE.set(has_to_wait().then(Instant::now));
}
