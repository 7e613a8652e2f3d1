//! Frame objects of calls that aren't made.

use std::ffi::c_int;
use std::ptr;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::code::Code;
use crate::ffi as shim;
use crate::object::{Object, owned, references};
use crate::raised::{Raised, Result};
use crate::thread::Thread;

/// A frame object for a traceback, of a call that isn't made: it says that it stands at `unit`, and has no variables.
///
/// # Errors
/// `MemoryError`; `SystemError` if there is no such unit.
pub fn stand_in<'py>(
    code: &Code<'py>,
    globals: &Bound<'py, PyDict>,
    unit: usize,
) -> Result<Object<'py>> {
    let py = globals.py();
    let Some(unit) = c_int::try_from(unit).ok().filter(|_| unit < code.units().len()) else {
        return Err(Raised::system_error(py, c"no such instruction"));
    };
    let thread = Thread::current(py).as_ptr();
    // SAFETY: the current thread's state, a code object, a dictionary, a unit of that code.
    unsafe {
        owned(py, shim::stator_stand_in(thread, code.as_ptr().cast(), globals.as_ptr(), unit))
    }
}

/// Such a frame object that can be the current frame for the length of a call: what C code says of the place that it is
/// called from, as of its warnings, it says of this one.
#[derive(Debug)]
pub struct StandIn {
    frame: Py<PyAny>,
    /// The frame object of the one that has called it, which it names as long as it lives.
    caller: Option<Py<PyAny>>,
    units: usize,
}

impl StandIn {
    /// One that nobody else has, and that nobody has called.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn new<'py>(code: &Code<'py>, globals: &Bound<'py, PyDict>) -> Result<Self> {
        let frame = stand_in(code, globals, 0)?.unbind();
        Ok(Self { frame, caller: None, units: code.units().len() })
    }

    /// The objects that it holds.
    pub fn objects(&self) -> impl Iterator<Item = &Py<PyAny>> {
        std::iter::once(&self.frame).chain(&self.caller)
    }

    /// Whether somebody keeps the frame object.
    #[must_use]
    pub fn is_kept(&self, py: Python<'_>) -> bool {
        references(self.frame.bind_borrowed(py)) > 1
    }

    /// It stands at `unit`, called by another one.
    ///
    /// # Panics
    /// If its code has no such unit.
    #[inline]
    pub fn stand(&mut self, py: Python<'_>, unit: usize, caller: Option<&Self>) {
        assert!(unit < self.units, "a unit of its code");
        let unit = c_int::try_from(unit).expect("code objects have fewer units");
        let caller = caller.map(|caller| &caller.frame);
        let object = caller.map_or(ptr::null_mut(), Py::as_ptr);
        // SAFETY: frame objects made by `stand_in`, and a unit of the first one's code. The other one lives as long
        // as it is named: `self.caller` keeps it, until `drop` or the next call of this.
        unsafe { shim::stator_set_stand_in(self.frame.as_ptr(), unit, object) };
        if self.caller.as_ref().map_or(ptr::null_mut(), Py::as_ptr) != object {
            self.caller = caller.map(|caller| caller.clone_ref(py));
        }
    }

    /// Makes a call from where it stands. `outermost` is the one from which calls lead to it, and is called by the
    /// frame that is current now; `None`: it is that itself.
    #[inline]
    pub fn call<R>(
        &mut self,
        py: Python<'_>,
        outermost: Option<&mut Self>,
        call: impl FnOnce() -> R,
    ) -> R {
        let thread = Thread::current(py);
        let outermost =
            outermost.as_ref().map_or(&self.frame, |outermost| &outermost.frame).as_ptr();
        // SAFETY: the current thread's state, and frame objects made by `stand_in`. `&mut` says that no other call is
        // made from them. They are left in `drop`, while the frame that is current now is still that.
        let before =
            unsafe { shim::stator_step_onto(thread.as_ptr(), self.frame.as_ptr(), outermost) };
        let _standing = Standing { thread, before, outermost };
        call()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let caller = self.caller.as_ref().map_or(ptr::null_mut(), Py::as_ptr);
        // SAFETY: frame objects made by `stand_in`. Whoever drops one that holds objects has the GIL.
        unsafe { shim::stator_retire_stand_in(self.frame.as_ptr(), caller) };
    }
}

struct Standing<'py> {
    thread: Thread<'py>,
    before: *mut std::ffi::c_void,
    outermost: *mut pyo3::ffi::PyObject,
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        // SAFETY: what the call has linked, it has unlinked; the frame objects are alive (see `StandIn::call`).
        unsafe { shim::stator_step_back(self.thread.as_ptr(), self.before, self.outermost) };
    }
}
