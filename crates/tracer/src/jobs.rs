//! A graph that a backend compiles beside the program: what is known of it by the calls that wait for nothing and by
//! the thread that compiles. `python/stator/_background.py` has that thread and its queue.
//!
//! An entry owns its job. One that dies before the thread has begun with it is never begun, and what it holds dies with it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::lock;

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stand {
    /// The thread hasn't begun with it.
    Waiting,
    /// The thread is at it.
    Compiling,
    /// There is code, or the backend has failed: a call takes that over.
    Ended,
    /// Nobody wants it any more.
    Cancelled,
}

impl Stand {
    const ALL: [Self; 4] = [Self::Waiting, Self::Compiling, Self::Ended, Self::Cancelled];

    /// Whether nothing is under way any more.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Cancelled)
    }

    /// As `stator.stats` shows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Compiling => "compiling",
            Self::Ended => "made",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A graph that is to be compiled.
#[pyclass(frozen, weakref, module = "stator._stator")]
pub struct Job {
    stand: AtomicU8,
    /// What compiles it, until that is called.
    task: Mutex<Option<Py<PyAny>>>,
    /// What the task has returned: code, or what the backend has raised.
    made: Mutex<Option<Py<PyAny>>>,
}

#[pymethods]
impl Job {
    #[new]
    fn new(task: Py<PyAny>) -> Self {
        Self {
            stand: AtomicU8::new(Stand::Waiting as u8),
            task: Mutex::new(Some(task)),
            made: Mutex::default(),
        }
    }

    /// What the thread is to call now. `None`: the job was cancelled.
    fn start(&self) -> Option<Py<PyAny>> {
        self.move_on(Stand::Waiting, Stand::Compiling).then(|| lock(&self.task).take()).flatten()
    }

    /// What the task has returned.
    fn finish(&self, made: Py<PyAny>) {
        // First what it came to: a call that sees the job ended looks for that.
        let before = lock(&self.made).replace(made);
        let is_wanted = self.move_on(Stand::Compiling, Stand::Ended);
        let left = if is_wanted { None } else { lock(&self.made).take() };
        drop((before, left));
    }

    /// Nobody wants it any more. The thread may be at it: what comes of that is dropped.
    #[pyo3(name = "cancel")]
    fn cancel_it(&self) {
        self.cancel();
    }

    /// How far it is.
    #[getter(stand)]
    fn stand_name(&self) -> &'static str {
        self.stand().name()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Whoever holds a lock is no collection.
        if let Ok(task) = self.task.try_lock() {
            visit.call(task.as_ref())?;
        }
        let Ok(made) = self.made.try_lock() else { return Ok(()) };
        visit.call(made.as_ref())
    }

    fn __clear__(&self) {
        self.cancel();
    }
}

impl Job {
    /// How far it is.
    #[must_use]
    pub fn stand(&self) -> Stand {
        Stand::ALL[usize::from(self.stand.load(Relaxed))]
    }

    /// Nobody wants it any more.
    pub fn cancel(&self) {
        self.stand.store(Stand::Cancelled as u8, Relaxed);
        let task = lock(&self.task).take();
        let made = lock(&self.made).take();
        drop((task, made));
    }

    /// What it came to, once.
    pub fn take(&self) -> Option<Py<PyAny>> {
        lock(&self.made).take()
    }

    /// All changes are made with the GIL held.
    fn move_on(&self, from: Stand, to: Stand) -> bool {
        self.stand.compare_exchange(from as u8, to as u8, Relaxed, Relaxed).is_ok()
    }
}
