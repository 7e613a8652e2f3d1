//! The head of CPython 3.12's `PyThreadState`, and the C stack's link to the current frame.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::AtomicI32;

use pyo3::ffi::PyObject;

use crate::ffi::{self, Interpreter};
use crate::frame::layout::InterpreterFrame;

/// `_PyCFrame`.
#[repr(C)]
pub struct CFrame {
    pub(crate) current_frame: *mut InterpreterFrame,
    pub(crate) previous: *mut CFrame,
}

impl CFrame {
    /// Where `current_frame` is.
    pub(crate) const CURRENT_FRAME: usize = offset_of!(CFrame, current_frame);
    /// Where `previous` is.
    pub(crate) const PREVIOUS: usize = offset_of!(CFrame, previous);
    /// This version has no `use_tracing`.
    pub(crate) const USE_TRACING: usize = usize::MAX;

    /// One to be linked.
    #[inline(always)]
    pub(crate) fn unlinked() -> Self {
        CFrame { current_frame: ptr::null_mut(), previous: ptr::null_mut() }
    }
}

/// Where it stands whether somebody wants events: a trace or profile function, or a tool of
/// `sys.monitoring` that asked for those of all code. Code that a tool asked for events of by itself is
/// instrumented, and its instructions are handed over.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    /// One byte an event, 15 of them: the tools that want it.
    monitors: *const u8,
    thread: *const ThreadState,
}

/// The bits of the two tools that stand for trace and profile functions, which each thread has for itself.
const OF_THREADS: u64 = 0xc0c0_c0c0_c0c0_c0c0;

impl Watch {
    /// Of a thread.
    ///
    /// # Safety
    /// The thread lives as long as the watch is asked.
    #[inline(always)]
    pub(crate) unsafe fn new(thread: *const ThreadState, _cframe: *const CFrame) -> Self {
        // SAFETY: the thread is alive, as the caller says, and so is its interpreter.
        unsafe {
            let monitors = ffi::stator_monitors((*thread).interp);
            Watch { monitors, thread }
        }
    }

    /// Whether somebody does. Nobody is told of what a trace function itself runs.
    ///
    /// # Safety
    /// As said of [`Watch::new`].
    #[inline(always)]
    pub(crate) unsafe fn is_on(self) -> bool {
        // SAFETY: the interpreter outlives its threads, and the array has 15 bytes (the shim asserts it). CPython
        // writes them with the GIL held, in calls that the compiler can't look into.
        unsafe {
            let first = ptr::read_volatile(self.monitors.cast::<[u8; 8]>());
            let last = ptr::read_volatile(self.monitors.add(7).cast::<[u8; 8]>());
            let tools = u64::from_ne_bytes(first) | u64::from_ne_bytes(last);
            tools != 0 && self.is_meant(tools)
        }
    }

    /// Whether events that these tools want are events of this thread.
    ///
    /// # Safety
    /// As said of [`Watch::new`].
    #[cold]
    unsafe fn is_meant(self, tools: u64) -> bool {
        // SAFETY: the thread is alive.
        unsafe {
            let thread = self.thread;
            ptr::read_volatile(&raw const (*thread).tracing) == 0
                && (tools & !OF_THREADS != 0
                    || !ptr::read_volatile(&raw const (*thread).tracefunc).is_null()
                    || !ptr::read_volatile(&raw const (*thread).profilefunc).is_null())
        }
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
    status: c_int,
    pub(crate) recursion_remaining: c_int,
    recursion_limit: c_int,
    c_recursion_remaining: c_int,
    recursion_headroom: c_int,
    pub(crate) tracing: c_int,
    what_event: c_int,
    cframe: *mut CFrame,
    profilefunc: *mut c_void,
    pub(crate) tracefunc: *mut c_void,
    profileobj: *mut PyObject,
    traceobj: *mut PyObject,
    /// The exception that is set.
    pub(crate) raised: *mut PyObject,
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
