//! The head of CPython 3.11's `PyThreadState`, and the C stack's link to the current frame.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::AtomicI32;

use pyo3::ffi::PyObject;

use crate::ffi::Interpreter;
use crate::frame::layout::InterpreterFrame;

/// `_PyCFrame`.
#[repr(C)]
pub struct CFrame {
    /// 0, or 255 while a trace or profile function is to be called.
    pub(crate) use_tracing: u8,
    pub(crate) current_frame: *mut InterpreterFrame,
    pub(crate) previous: *mut CFrame,
}

impl CFrame {
    /// Where `current_frame` is.
    pub(crate) const CURRENT_FRAME: usize = offset_of!(CFrame, current_frame);
    /// Where `previous` is.
    pub(crate) const PREVIOUS: usize = offset_of!(CFrame, previous);
    /// Where `use_tracing` is.
    pub(crate) const USE_TRACING: usize = offset_of!(CFrame, use_tracing);

    /// One to be linked.
    #[inline(always)]
    pub(crate) fn unlinked() -> Self {
        CFrame { use_tracing: 0, current_frame: ptr::null_mut(), previous: ptr::null_mut() }
    }
}

/// Where it stands whether a trace or profile function wants events.
#[derive(Clone, Copy)]
pub(crate) struct Watch(*const CFrame);

impl Watch {
    /// Of a thread's frame that is linked by `cframe`.
    ///
    /// # Safety
    /// `cframe` is linked as long as the watch is asked.
    #[inline(always)]
    pub(crate) unsafe fn new(_thread: *const ThreadState, cframe: *const CFrame) -> Self {
        Watch(cframe)
    }

    /// Whether one does.
    ///
    /// # Safety
    /// As said of [`Watch::new`].
    #[inline(always)]
    pub(crate) unsafe fn is_on(self) -> bool {
        // SAFETY: alive, as the caller says. CPython writes it through the thread state.
        unsafe { ptr::read_volatile(&raw const (*self.0).use_tracing) != 0 }
    }
}

/// The word that says that the evaluation loop has something else to do.
pub(crate) type Breaker = AtomicI32;

/// The bits of it that say so.
pub(crate) const EVENTS: i32 = -1;

/// `_PyErr_StackItem`.
#[repr(C)]
pub struct HandledItem {
    /// The exception being handled: strong, `NULL` or `None` if there is none.
    pub(crate) value: *mut PyObject,
    pub(crate) previous: *mut HandledItem,
}

/// The head of `PyThreadState`.
#[repr(C)]
pub struct ThreadState {
    prev: *mut ThreadState,
    next: *mut ThreadState,
    pub(crate) interp: *mut Interpreter,
    initialized: c_int,
    is_static: c_int,
    pub(crate) recursion_remaining: c_int,
    recursion_limit: c_int,
    recursion_headroom: c_int,
    pub(crate) tracing: c_int,
    tracing_what: c_int,
    cframe: *mut CFrame,
    profilefunc: *mut c_void,
    pub(crate) tracefunc: *mut c_void,
    profileobj: *mut PyObject,
    traceobj: *mut PyObject,
    /// The type of the exception that is set.
    pub(crate) raised: *mut PyObject,
    curexc_value: *mut PyObject,
    curexc_traceback: *mut PyObject,
    pub(crate) exc_info: *mut HandledItem,
}

impl ThreadState {
    /// Where that stands which names the current frame.
    pub(crate) const CURRENT: usize = offset_of!(ThreadState, cframe);

    /// The current frame.
    #[inline(always)]
    pub(crate) fn current_frame(&self) -> *mut InterpreterFrame {
        // SAFETY: a thread that runs Python code has a C frame.
        unsafe { (*self.cframe).current_frame }
    }

    /// The C frame that links it.
    #[inline(always)]
    pub(crate) fn link(&self) -> *const CFrame {
        self.cframe
    }
}
