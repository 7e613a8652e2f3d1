//! The thread state: recursion, pending events, the exception being handled, stack depth.

use std::ffi::c_long;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use pyo3::ffi::{self, PyThreadState};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::ffi as shim;
use crate::frame::Frame;
use crate::object::{Object, cloned};
use crate::raised::{Raised, Result};

pub mod asynchronous;
pub mod c_stack;
mod deferred;
#[cfg_attr(not(Py_3_12), path = "v311.rs")]
#[cfg_attr(all(Py_3_12, not(Py_3_13)), path = "v312.rs")]
#[cfg_attr(Py_3_13, path = "v313.rs")]
pub(crate) mod layout;

pub use deferred::{Asking, Deferred, Heard, trip};
use layout::{CFrame, EVENTS, ThreadState, Watch};

/// Nanoseconds of processor time that the current thread has had; 0: the system doesn't say.
#[must_use]
pub fn processor_nanos() -> u64 {
    // SAFETY: it takes nothing, and only asks the system.
    unsafe { shim::stator_thread_nanos() }
}

/// What says that the evaluation loop of a thread has something else to do.
#[derive(Clone, Copy)]
pub(crate) struct Breaker(*const layout::Breaker);

impl Breaker {
    /// Whether it does.
    ///
    /// # Safety
    /// The thread lives.
    #[inline(always)]
    pub(crate) unsafe fn is_set(self) -> bool {
        // SAFETY: a field of the thread's state or of its interpreter, which outlives it.
        unsafe { (*self.0).load(Ordering::Relaxed) & EVENTS != 0 }
    }
}

/// The current thread's state.
#[derive(Clone, Copy)]
pub struct Thread<'py> {
    pointer: NonNull<ThreadState>,
    py: PhantomData<Python<'py>>,
}

impl<'py> Thread<'py> {
    /// The thread that holds the GIL.
    #[inline]
    pub fn current(_py: Python<'py>) -> Self {
        // SAFETY: with the GIL held there is a current thread state.
        let pointer = unsafe { NonNull::new_unchecked(ffi::PyThreadState_Get().cast()) };
        Thread { pointer, py: PhantomData }
    }

    /// The frame that is running, leaving out those that haven't started yet.
    pub fn frame(self, py: Python<'py>) -> Option<Frame<'py>> {
        let pointer = self.fields().current_frame();
        if pointer.is_null() {
            return None;
        }
        // SAFETY: a thread's current frame is alive.
        let frame = unsafe { Frame::from_raw(py, pointer) };
        if frame.is_complete() { Some(frame) } else { frame.previous() }
    }

    /// The address of the frame that is current, null included, which tells it from others.
    #[inline]
    pub(crate) fn frame_address(self) -> usize {
        self.fields().current_frame() as usize
    }

    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *mut PyThreadState {
        self.pointer.as_ptr().cast()
    }

    #[inline(always)]
    fn fields(&self) -> &ThreadState {
        // SAFETY: the current thread's state lives, and `layout::check` compared the struct.
        unsafe { self.pointer.as_ref() }
    }

    pub(crate) fn interpreter(self) -> *mut shim::Interpreter {
        self.fields().interp
    }

    /// Puts off a collection that is due, once collection is off. CPython 3.11 collects where something is allocated; later
    /// versions do between two instructions, where 3.12 doesn't ask whether collection is on.
    pub(crate) fn put_off_collection(self) {
        #[cfg(all(Py_3_12, not(Py_3_13)))]
        // SAFETY: the current thread's state.
        unsafe {
            shim::stator_put_off_collection(self.as_ptr());
        }
    }

    #[inline(always)]
    pub(crate) fn eval_breaker(self) -> Breaker {
        // SAFETY: the current thread's state.
        Breaker(unsafe { shim::stator_eval_breaker(self.as_ptr()).cast() })
    }

    /// Counts one more Python frame; `RecursionError` beyond the limit.
    #[inline(always)]
    pub(crate) fn enter_recursion(self) -> Result<()> {
        // SAFETY: the current thread's state.
        if unsafe { shim::stator_enter_recursion(self.as_ptr()) } != 0 {
            return Err(Raised);
        }
        Ok(())
    }

    /// Whether so many more Python frames are allowed that what Stator runs beside the program, imports included, doesn't
    /// meet the limit.
    #[must_use]
    pub fn has_room(self) -> bool {
        const NEEDED: i32 = 100;
        self.fields().recursion_remaining >= NEEDED
    }

    /// Undoes one successful [`Thread::enter_recursion`].
    #[inline(always)]
    pub(crate) fn leave_recursion(self) {
        // SAFETY: the state is the current thread's, only it writes this field.
        unsafe { (*self.pointer.as_ptr()).recursion_remaining += 1 };
    }

    /// Whether an exception is set.
    #[inline(always)]
    pub fn is_raised(self) -> bool {
        !self.fields().raised.is_null()
    }

    /// Whether a trace or profile function wants this thread's events.
    #[inline(always)]
    pub fn is_traced(self) -> bool {
        // SAFETY: the current thread's state, and what links its current frame.
        unsafe { self.watch(self.fields().link()).is_on() }
    }

    /// How many functions are under way that CPython tells of what the program does, one inside the other: trace
    /// functions, audit hooks, callbacks of `sys.monitoring`.
    #[inline(always)]
    #[must_use]
    pub fn observers(self) -> i32 {
        self.fields().tracing
    }

    /// What says the same of the frame that `cframe` links.
    ///
    /// # Safety
    /// It is linked as long as that is asked.
    #[inline(always)]
    pub(crate) unsafe fn watch(self, cframe: *const CFrame) -> Watch {
        // SAFETY: the current thread's state; the caller promises the rest.
        unsafe { Watch::new(self.pointer.as_ptr(), cframe) }
    }

    /// Whether another thread has sent this one an exception that hasn't been raised yet.
    #[must_use]
    pub fn was_sent_an_exception(self) -> bool {
        // SAFETY: the current thread's state.
        unsafe { shim::stator_has_async_exc(self.as_ptr()) != 0 }
    }

    /// Does what the evaluation loop does when its breaker is set: signal handlers, pending calls, the
    /// GIL for other threads, asynchronous exceptions.
    pub fn handle_pending(self) -> Result<()> {
        // SAFETY: the current thread's state.
        if unsafe { shim::stator_handle_pending(self.as_ptr()) } != 0 {
            return Err(Raised);
        }
        Ok(())
    }

    /// What the evaluation loop does between instructions, for a loop that executes none: nothing, or
    /// [`Thread::handle_pending`].
    #[inline]
    pub fn ask_for_events(self) -> Result<()> {
        // SAFETY: the current thread's.
        if unsafe { self.eval_breaker().is_set() } { self.handle_pending() } else { Ok(()) }
    }

    /// Raises an exception of this class where the thread asks for events next, as one that another thread
    /// has sent it.
    pub fn raise_later(self, class: &Bound<'_, PyType>) {
        // SAFETY: the GIL is held; the class lives, and the callee takes a reference of its own.
        unsafe {
            let thread = ffi::PyThread_get_thread_ident();
            ffi::PyThreadState_SetAsyncExc(thread as c_long, class.as_ptr());
        }
    }

    /// Replaces the exception this context is handling (`PUSH_EXC_INFO`, `POP_EXCEPT`); `None` is none.
    pub fn swap_handled(self, exception: Option<Object<'py>>) -> Option<Object<'py>> {
        let exception = exception.filter(|exception| !exception.is_none());
        let new = exception.map_or(std::ptr::null_mut(), Bound::into_ptr);
        // SAFETY: `exc_info` is never null and owns its value; ownership is exchanged.
        unsafe {
            let item = self.fields().exc_info;
            let old = std::mem::replace(&mut (*item).value, new);
            Bound::from_owned_ptr_or_opt(Python::assume_attached(), old)
        }
    }

    /// What [`Thread::swap_handled`] would give back.
    pub fn handled_here(self) -> Option<Object<'py>> {
        // SAFETY: `exc_info` is never null; its value is null or a valid object.
        unsafe { cloned(Python::assume_attached(), (*self.fields().exc_info).value) }
    }

    /// The exception being handled by the innermost `except` of this thread (`sys.exception()`).
    pub fn handled(self) -> Option<Object<'py>> {
        // SAFETY: the current thread's state; a borrowed reference or null.
        let found = unsafe {
            let pointer = shim::stator_topmost_exception(self.as_ptr());
            cloned(Python::assume_attached(), pointer)
        };
        found.filter(|exception| !exception.is_none())
    }

    /// Takes the raised exception, normalised, with its traceback attached.
    pub fn take_exception(self) -> Object<'py> {
        debug_assert!(self.is_raised());
        // SAFETY: an exception is set, so that a normalised instance comes back.
        unsafe { Bound::from_owned_ptr(Python::assume_attached(), shim::stator_take_exception()) }
    }

    /// Raises an exception instance again, as it is.
    pub fn restore_exception(self, exception: Object<'py>) -> Raised {
        // SAFETY: the instance's reference is given away.
        unsafe { shim::stator_restore_exception(exception.into_ptr()) };
        Raised
    }
}

/// While it lives, this thread's trace and profile functions are called for nothing.
#[must_use]
pub struct Unwatched<'py>(Python<'py>);

impl<'py> Unwatched<'py> {
    /// Begins. Guards nest.
    pub fn new(py: Python<'py>) -> Self {
        // SAFETY: the current thread's state.
        unsafe { shim::PyThreadState_EnterTracing(Thread::current(py).as_ptr()) };
        Self(py)
    }
}

impl Drop for Unwatched<'_> {
    fn drop(&mut self) {
        // SAFETY: the current thread's state; undoes what `new` has done.
        unsafe { shim::PyThreadState_LeaveTracing(Thread::current(self.0).as_ptr()) };
    }
}
