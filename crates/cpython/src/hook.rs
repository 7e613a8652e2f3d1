//! PEP 523: who evaluates the frames of which thread.
//!
//! One C function is installed as the interpreter's frame evaluation function while, and only while,
//! some thread's evaluator is on: a hook slows down every Python call of the process. Hooks that were
//! there before (TorchDynamo's) are kept and called for everything that isn't Stator's. They come and
//! go when they like, on other threads too: each time a thread's evaluator is turned on, Stator's is
//! put on top again; where another one was put above it, it stays until that one is gone.
//!
//! * [`Active`]: this thread evaluates its frames with a given function;
//! * [`Suspended`]: for a while it doesn't, as native code runs. If no other thread is active the hook
//!   is taken out as well, so that the native code's own calls run at full speed;
//! * [`Begun`]: whether Python code began meanwhile in threads that C code keeps;
//! * [`evaluate_everything`]: a process-wide default, for tests.
//!
//! All of it is guarded by the GIL.

mod foreign;

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use pyo3::exceptions::PyRecursionError;
use pyo3::ffi::{self, PyObject, PyThreadState};
use pyo3::prelude::*;

use crate::ffi as shim;
use crate::frame::Frame;
use crate::frame::layout::InterpreterFrame;
use crate::layout;
use crate::object::{Object, owned};
use crate::raised::{Raised, Result};
use crate::thread::Thread;
use crate::thread::c_stack::{self, Room};

/// What a frame evaluates to: its return value, the value it yields, or the exception it raised.
pub type Evaluated<'py> = Result<Object<'py>>;

/// An evaluator of frames. With `throw`, an exception is set and to be raised where the frame stands.
pub type Evaluator = for<'py> fn(Python<'py>, Frame<'py>, bool) -> Evaluated<'py>;

/// Who evaluates a thread's frames.
#[derive(Clone, Copy)]
enum Choice {
    /// The process's default: CPython, unless [`evaluate_everything`] says otherwise.
    Default,
    /// CPython.
    Native,
    /// Stator.
    Evaluator(Evaluator),
}

impl Choice {
    /// Whether this choice needs the hook.
    fn is_active(self) -> bool {
        matches!(self, Choice::Evaluator(_))
    }
}

thread_local! {
    static CHOICE: Cell<Choice> = const { Cell::new(Choice::Default) };
    /// This thread's part of [`ASKING`].
    static ASKS: Cell<usize> = const { Cell::new(0) };
}

/// Threads whose evaluator is on, plus one for [`evaluate_everything`]. The hook is installed while it
/// isn't 0.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
/// The process's default evaluator, as a pointer; null for CPython.
static DEFAULT: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Those who [ask](Begun) where Python code begins; the hook is installed for each.
static ASKING: AtomicUsize = AtomicUsize::new(0);
/// Frames that began, while somebody asked, in threads that ran no other Python code beneath.
static BEGUN: AtomicUsize = AtomicUsize::new(0);

/// Sets this thread's choice and installs or removes the hook accordingly; returns the old choice.
#[inline]
fn choose(py: Python<'_>, choice: Choice) -> Choice {
    let old = CHOICE.replace(choice);
    match (old.is_active(), choice.is_active()) {
        (false, true) => activate(py),
        (true, false) => deactivate(py),
        _ => {}
    }
    old
}

#[inline]
fn activate(py: Python<'_>) {
    ACTIVE.fetch_add(1, Relaxed);
    install(py);
}

#[inline]
fn deactivate(py: Python<'_>) {
    if ACTIVE.fetch_sub(1, Relaxed) == 1 {
        uninstall(py);
    }
}

/// Puts the hook on top.
#[inline]
fn install(py: Python<'_>) {
    // SAFETY: the current interpreter, with the GIL held.
    let now = unsafe { shim::stator_get_hook(Thread::current(py).interpreter()) };
    if !is_ours(now) {
        install_above(py, now);
    }
}

fn install_above(py: Python<'_>, now: Option<shim::EvalFrame>) {
    static CHECKED: Once = Once::new();
    CHECKED.call_once(layout::check);
    match now {
        Some(now) => foreign::push(now),
        None => foreign::clear(),
    }
    // SAFETY: the current interpreter, with the GIL held.
    unsafe { shim::stator_set_hook(Thread::current(py).interpreter(), Some(hook)) };
}

/// Puts back what was there. If somebody put their hook above ours, it is theirs to put ours back:
/// it takes itself out when it is called without need.
fn uninstall(py: Python<'_>) {
    let interp = Thread::current(py).interpreter();
    // SAFETY: the current interpreter, with the GIL held.
    let is_on_top = || is_ours(unsafe { shim::stator_get_hook(interp) });
    while is_on_top() {
        let below = foreign::pop();
        // SAFETY: as above.
        unsafe { shim::stator_set_hook(interp, below) };
        if below.is_some() && foreign::was_crossed() {
            foreign::settle(py);
        }
    }
}

#[inline]
fn is_ours(now: Option<shim::EvalFrame>) -> bool {
    now.is_some_and(|now| foreign::is_same(now, hook))
}

/// Puts the hook on top again if this thread's evaluator is on: to be called where other threads may
/// have run, and taken it out with theirs.
#[inline]
pub(crate) fn restore(py: Python<'_>) {
    if is_active() {
        install(py);
    }
}

/// While it lives, this thread's frames are evaluated by the function it was made with.
#[must_use]
pub struct Active<'py> {
    before: Choice,
    py: Python<'py>,
}

impl<'py> Active<'py> {
    /// Turns the evaluator on. Guards nest, and must be dropped in reverse order.
    pub fn new(py: Python<'py>, evaluator: Evaluator) -> Self {
        Active { before: choose(py, Choice::Evaluator(evaluator)), py }
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        choose(self.py, self.before);
    }
}

/// While it lives, this thread's frames are left to CPython (or to a foreign hook).
#[must_use]
pub struct Suspended<'py> {
    before: Choice,
    py: Python<'py>,
}

impl<'py> Suspended<'py> {
    /// Turns this thread's evaluator off, if it is on.
    #[inline]
    pub fn new(py: Python<'py>) -> Self {
        Suspended { before: choose(py, Choice::Native), py }
    }
}

impl Drop for Suspended<'_> {
    #[inline]
    fn drop(&mut self) {
        choose(self.py, self.before);
    }
}

/// While it lives, it is noted whether Python code begins in a thread with none beneath it: threads of C code, such as
/// those in which PyTorch computes the gradients of a device's tensors, call it so. (New threads of the program do, too.)
#[must_use]
pub struct Begun<'py> {
    before: usize,
    py: Python<'py>,
}

impl<'py> Begun<'py> {
    /// Begins to ask.
    pub fn new(py: Python<'py>) -> Self {
        ASKS.set(ASKS.get() + 1);
        ASKING.fetch_add(1, Relaxed);
        activate(py);
        Begun { before: BEGUN.load(Relaxed), py }
    }

    /// Whether some has begun so far.
    pub fn has_begun(&self) -> bool {
        BEGUN.load(Relaxed) != self.before
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        ASKS.set(ASKS.get() - 1);
        ASKING.fetch_sub(1, Relaxed);
        deactivate(self.py);
    }
}

/// Whether this thread's frames are being evaluated by Stator.
pub fn is_active() -> bool {
    evaluator().is_some()
}

/// Whose hook is on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Top {
    /// CPython's own evaluation.
    Nobody,
    /// Stator's.
    Ours,
    /// Another one.
    Foreign,
}

/// Whose hook is on top now; for tests.
pub fn top(py: Python<'_>) -> Top {
    // SAFETY: the current interpreter, with the GIL held.
    match unsafe { shim::stator_get_hook(Thread::current(py).interpreter()) } {
        None => Top::Nobody,
        now if is_ours(now) => Top::Ours,
        Some(_) => Top::Foreign,
    }
}

/// Makes `evaluator` (or CPython) the default of all threads that didn't choose, new ones included.
///
/// For tests: the program as a whole slows down.
pub fn evaluate_everything(py: Python<'_>, evaluator: Option<Evaluator>) {
    let new = evaluator.map_or(ptr::null_mut(), |evaluator| evaluator as *mut ());
    let old = DEFAULT.swap(new, Relaxed);
    match (old.is_null(), new.is_null()) {
        (true, false) => activate(py),
        (false, true) => deactivate(py),
        _ => {}
    }
}

/// This is a forked process: what other threads had chosen is nothing any more.
pub fn forget_others(py: Python<'_>) {
    let is_default = !DEFAULT.load(Relaxed).is_null();
    let asks = ASKS.get();
    let own = usize::from(CHOICE.get().is_active()) + usize::from(is_default) + asks;
    ASKING.store(asks, Relaxed);
    ACTIVE.store(own, Relaxed);
    if own == 0 {
        uninstall(py);
    }
}

/// Evaluates a frame as CPython does.
#[inline]
pub fn default<'py>(py: Python<'py>, frame: Frame<'py>, throw: bool) -> Evaluated<'py> {
    let thread = Thread::current(py).as_ptr();
    // SAFETY: a frame that was handed to an evaluator, not linked, with the GIL held.
    unsafe {
        let throw = c_int::from(throw);
        owned(py, shim::stator_default(thread, frame.as_ptr(), throw))
    }
}

/// Evaluates a frame that an evaluator was given and leaves alone: the hooks of others get it.
pub fn pass_on<'py>(py: Python<'py>, frame: Frame<'py>, throw: bool) -> Evaluated<'py> {
    let thread = Thread::current(py).as_ptr();
    // SAFETY: a frame that was handed to an evaluator, not linked, with the GIL held.
    unsafe { owned(py, native(thread, frame.as_ptr(), c_int::from(throw))) }
}

#[inline(always)]
fn evaluator() -> Option<Evaluator> {
    match CHOICE.get() {
        Choice::Evaluator(evaluator) => Some(evaluator),
        Choice::Native => None,
        Choice::Default => {
            let pointer = DEFAULT.load(Relaxed);
            // SAFETY: the pointer is null or was stored from an `Evaluator`; `Option<fn>` is nullable.
            unsafe { std::mem::transmute::<*mut (), Option<Evaluator>>(pointer) }
        }
    }
}

/// The interpreter's frame evaluation function while Stator is active.
unsafe extern "C" fn hook(
    thread: *mut PyThreadState,
    frame: *mut InterpreterFrame,
    throw: c_int,
) -> *mut PyObject {
    if ASKING.load(Relaxed) != 0 {
        // SAFETY: CPython calls the hook with the GIL held.
        let current = Thread::current(unsafe { Python::assume_attached() });
        BEGUN.fetch_add(usize::from(current.frame_address() == 0), Relaxed);
    }
    let Some(evaluator) = evaluator() else {
        if ACTIVE.load(Relaxed) == 0 {
            // SAFETY: CPython calls the hook with the GIL held.
            uninstall(unsafe { Python::assume_attached() });
        }
        // SAFETY: passed on as it came.
        return unsafe { native(thread, frame, throw) };
    };
    // SAFETY: CPython calls the hook with the GIL held.
    let py = unsafe { Python::assume_attached() };
    if c_stack::room() != Room::Enough {
        let _suspended = Suspended::new(py);
        let _unhooked = Unhooked::new(py);
        // SAFETY: passed on as it came.
        return unsafe { native(thread, frame, throw) };
    }
    let evaluate = || {
        // SAFETY: CPython hands over a frame that is ready to run.
        let frame = unsafe { Frame::from_raw(py, frame) };
        evaluator(py, frame, throw != 0)
    };
    match catch_unwind(AssertUnwindSafe(evaluate)) {
        Ok(Ok(value)) => value.into_ptr(),
        Ok(Err(Raised)) => ptr::null_mut(),
        Err(payload) => {
            report_bug(&*payload);
            ptr::null_mut()
        }
    }
}

/// Takes the hook out where only the process's default would need it, as [`Suspended`] does for a
/// thread's own evaluator: CPython's calls take no C stack then.
struct Unhooked<'py>(Option<Python<'py>>);

impl<'py> Unhooked<'py> {
    fn new(py: Python<'py>) -> Self {
        let alone = ACTIVE.load(Relaxed) == 1 && !DEFAULT.load(Relaxed).is_null();
        if alone {
            uninstall(py);
        }
        Unhooked(alone.then_some(py))
    }
}

impl Drop for Unhooked<'_> {
    fn drop(&mut self) {
        if let Some(py) = self.0 {
            install(py);
        }
    }
}

/// Evaluates a frame that isn't Stator's.
///
/// # Safety
/// The arguments are those of the hook.
unsafe fn native(
    thread: *mut PyThreadState,
    frame: *mut InterpreterFrame,
    throw: c_int,
) -> *mut PyObject {
    if c_stack::room() == Room::Exhausted {
        // SAFETY: called with the GIL held.
        let py = unsafe { Python::assume_attached() };
        let message = "maximum recursion depth exceeded: the C stack is used up";
        let _: Raised = Raised::set(py, PyRecursionError::new_err(message));
        return ptr::null_mut();
    }
    if foreign::is_empty() {
        // SAFETY: the arguments are the hook's.
        return unsafe { shim::stator_default(thread, frame, throw) };
    }
    // SAFETY: called with the GIL held.
    let current = Thread::current(unsafe { Python::assume_attached() });
    let passing = foreign::Passing::new(current.frame_address());
    // SAFETY: the current interpreter, with the GIL held.
    let top = unsafe { shim::stator_get_hook(current.interpreter()) };
    if let Some(top) = top
        && passing.is_first()
        && !is_ours(Some(top))
    {
        // It has passed the frame on to ours: it isn't below any more.
        foreign::cross();
        foreign::remove(top);
    }
    let next = passing.next().unwrap_or(shim::stator_default);
    // SAFETY: the arguments are the hook's.
    unsafe { next(thread, frame, throw) }
}

/// Turns a panic of ours into a `SystemError`.
#[cold]
fn report_bug(payload: &(dyn Any + Send)) {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic without a message");
    let message = CString::new(format!("Stator has a bug: {}", text.replace('\0', "\\0")))
        .unwrap_or_else(|_| c"Stator has a bug".to_owned());
    // SAFETY: called from the hook, with the GIL held; the message ends with NUL.
    unsafe { ffi::PyErr_SetString(ffi::PyExc_SystemError, message.as_ptr()) };
}
