//! `threading.local`: an object of whose attributes each thread has its own.
//!
//! Instances of subclasses aren't read: a thread's first look at one runs its `__init__`.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use super::Any;
use crate::generic::WithoutGc;
use crate::modules;

fn local_type(py: Python<'_>) -> Option<&Py<PyAny>> {
    static TYPE: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    let find = || Some(modules::import(py, "_thread").ok()?.getattr("_local").ok()?.unbind());
    TYPE.get_or_init(py, find).as_ref()
}

/// Finds the type: once, before anything is read.
pub(super) fn prepare(py: Python<'_>) {
    local_type(py);
}

/// Whether the object is a `threading.local`, and of no subclass.
#[must_use]
pub fn is_thread_local(object: Any<'_, '_>) -> bool {
    local_type(object.py()).is_some_and(|ty| object.get_type().is(ty))
}

/// The attributes of a `threading.local` in this thread. It is one dictionary from this thread's first look at the
/// object until the object or the thread ends.
/// No code runs, although that first look may be this one.
#[must_use]
pub fn dict_of<'py>(object: Any<'_, 'py>) -> Option<Bound<'py, PyDict>> {
    if !is_thread_local(object) {
        return None;
    }
    let _uninterrupted = WithoutGc::new(object.py());
    let dict = object.getattr(pyo3::intern!(object.py(), "__dict__")).ok()?;
    dict.cast_into().ok()
}

/// The number of this thread, which no other thread ever has.
#[must_use]
pub(super) fn thread(_py: Python<'_>) -> i64 {
    // SAFETY: a thread that holds the GIL has a state.
    unsafe { ffi::PyThreadState_GetID(ffi::PyThreadState_Get()) }
}
