//! Locks that a replay holds (`threading.Lock`, `threading.RLock`).
//!
//! A replay reads when its guards are checked and writes at its end, so it holds the locks of the recorded
//! call from its beginning to its end. It never waits for one: if it can't have them all at once, the call
//! runs natively, and waits where plain Python does. So replays can't come into a deadlock that plain Python
//! doesn't come into.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use smallvec::SmallVec;
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};

/// Locks that are held until this is dropped.
#[derive(Default)]
pub struct Held<'py>(SmallVec<[Object<'py>; 2]>);

impl<'py> Held<'py> {
    /// Takes locks, all of them or none; `None`: one of them is somebody else's, or no lock.
    #[must_use]
    pub fn take<'a>(locks: impl Iterator<Item = Borrowed<'a, 'py>>) -> Option<Self>
    where
        'py: 'a,
    {
        let mut held = Self::default();
        for lock in locks {
            if !try_acquire(lock) {
                return None;
            }
            held.0.push(lock.to_owned());
        }
        Some(held)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        while let Some(lock) = self.0.pop() {
            // What is being raised stays.
            let raised = PyErr::take(lock.py());
            release(lock.as_borrowed());
            if let Some(raised) = raised {
                raised.restore(lock.py());
            }
        }
    }
}

/// Takes a lock without waiting for it.
#[must_use]
pub fn try_acquire(lock: Borrowed<'_, '_>) -> bool {
    let py = lock.py();
    is_lock(lock)
        && lock
            .call_method1(pyo3::intern!(py, "acquire"), (false,))
            .and_then(|taken| taken.is_truthy())
            .unwrap_or(false)
}

/// Gives a lock back.
pub fn release(lock: Borrowed<'_, '_>) {
    let released = lock.call_method0(pyo3::intern!(lock.py(), "release"));
    debug_assert!(released.is_ok(), "it was acquired");
}

/// Whether an object is a lock of CPython's own, whose methods are C functions.
#[must_use]
pub fn is_lock(object: Borrowed<'_, '_>) -> bool {
    static CLASSES: PyOnceLock<[Py<PyType>; 2]> = PyOnceLock::new();
    let py = object.py();
    let find = || -> PyResult<[Py<PyType>; 2]> {
        let module = modules::import(py, "_thread")?;
        let class = |name| PyResult::Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind());
        Ok([class("LockType")?, class("RLock")?])
    };
    let classes = CLASSES.get_or_try_init(py, find);
    classes.is_ok_and(|classes| classes.iter().any(|class| object.get_type().is(class)))
}
