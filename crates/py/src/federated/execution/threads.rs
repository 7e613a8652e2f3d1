//! Threads that work for a call: how they are stopped, and where those go that can't be.

use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use stator_cpython::thread::asynchronous::{current_ident, raise_in};

/// The threads that work for one call, as Python numbers them.
#[derive(Default)]
pub struct Working(Mutex<Vec<u64>>);

impl Working {
    fn with<R>(&self, f: impl FnOnce(&mut Vec<u64>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The current thread begins to work.
    pub fn begin(&self, py: Python<'_>) {
        self.with(|idents| idents.push(current_ident(py)));
    }

    /// The current thread ends its work.
    pub fn end(&self, py: Python<'_>) {
        let ident = current_ident(py);
        self.with(|idents| idents.retain(|other| *other != ident));
    }

    /// Interrupts the Python code that these threads execute.
    pub fn interrupt(&self, py: Python<'_>) {
        let idents = self.with(|idents| idents.clone());
        let class = py.get_type::<PyKeyboardInterrupt>();
        // A thread begins and ends with the interpreter's lock held: these are there.
        idents.into_iter().for_each(|ident| raise_in(ident, &class));
    }
}

/// Threads that nobody waits for any more, and the process that started them.
static LEFT: Mutex<Vec<(u32, JoinHandle<()>)>> = Mutex::new(Vec::new());

fn with_left<R>(f: impl FnOnce(&mut Vec<(u32, JoinHandle<()>)>) -> R) -> R {
    f(&mut LEFT.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Leaves a thread behind that works on something that can't be stopped. The interpreter waits for it
/// before it ends, as it does for all threads.
pub fn leave(py: Python<'_>, thread: JoinHandle<()>) {
    let is_first = with_left(|left| {
        left.retain(|(_, thread)| !thread.is_finished());
        left.push((std::process::id(), thread));
        left.len() == 1
    });
    if is_first {
        // Without it the thread ends with the process.
        let _ = wait_at_exit(py);
    }
}

fn wait_at_exit(py: Python<'_>) -> PyResult<()> {
    let wait = wrap_pyfunction!(_wait_for_threads, py)?;
    let atexit = py.import("atexit")?;
    atexit.call_method1("unregister", (&wait,))?;
    atexit.call_method1("register", (wait,)).map(drop)
}

/// Waits for the threads that were left behind.
#[pyfunction]
fn _wait_for_threads(py: Python<'_>) {
    let left = with_left(std::mem::take);
    py.detach(|| {
        for (process, thread) in left {
            // In a forked process there is no such thread.
            if process == std::process::id() {
                let _ = thread.join();
            }
        }
    });
}
