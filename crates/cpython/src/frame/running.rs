//! A frame that is being evaluated: linked into the thread, with instruction and stack pointers.

use std::ptr;

use pyo3::ffi;

use super::Frame;
use super::layout::InterpreterFrame;
use super::slot::Slot;
#[cfg(Py_3_12)]
use crate::code::instrumentation::FIRST;
use crate::code::{Code, Handler};
use crate::ffi as shim;
use crate::hook::{self, Evaluated};
use crate::object::{Object, owned};
use crate::opcode;
use crate::raised::{Raised, Result};
use crate::thread::layout::{CFrame, Watch};
use crate::thread::{Breaker, Thread};

/// The evaluator's registers on a linked frame.
///
/// Invariants, which make the frame look to every other part of CPython as its own loop does:
/// * while an instruction runs, the frame's `instr` is that instruction (behind its
///   `EXTENDED_ARG`s);
/// * the frame's `stacktop` never counts a slot whose reference was given away: slots are
///   taken off the count before they are released, because releasing may run the garbage collector;
/// * the frame is linked, once, from [`enter`] until it is left in one of the ways below.
pub struct Running<'py> {
    pub(super) frame: Frame<'py>,
    thread: Thread<'py>,
    cframe: *mut CFrame,
    breaker: Breaker,
    watch: Watch,
    first: *const u16,
    next: *const u16,
    start: *const u16,
    pub(super) sp: *mut Slot,
    /// Where it was when the current instruction was read.
    start_sp: *mut Slot,
    pub(super) base: *mut Slot,
    linked: bool,
}

/// Links `frame` and evaluates it with `body`, which gets `Err` if the recursion limit is reached.
///
/// However `body` ends, the frame is unlinked afterwards.
#[inline(always)]
pub fn enter<'py>(
    frame: Frame<'py>,
    body: impl FnOnce(&mut Running<'py>, Result<()>) -> Evaluated<'py>,
) -> Evaluated<'py> {
    let thread = Thread::current(frame.py());
    let mut cframe = CFrame::unlinked();
    let code = frame.code();
    #[cfg(Py_3_12)]
    code.refresh_instrumentation(frame.py(), thread.interpreter());
    let base = frame.slots().wrapping_add(code.nlocalsplus());
    let mut running = Running {
        frame,
        thread,
        cframe: &raw mut cframe,
        breaker: thread.eval_breaker(),
        // SAFETY: `cframe` is linked as long as there is a `Running`, or the frame isn't evaluated.
        watch: unsafe { thread.watch(&raw const cframe) },
        first: code.first_unit(),
        // SAFETY: `instr` points at or just before a unit.
        next: unsafe { (*frame.as_ptr()).instr.add(InterpreterFrame::NEXT) },
        start: ptr::null(),
        // SAFETY: a frame that isn't running has its stack top written back.
        sp: unsafe { frame.slots().add((*frame.as_ptr()).stacktop as usize) },
        base,
        start_sp: ptr::null_mut(),
        linked: true,
    };
    running.start = running.next;
    // SAFETY: `cframe` stays in place until `running`'s drop has unlinked it.
    unsafe { shim::stator_link(thread.as_ptr(), running.cframe, frame.as_ptr()) };
    match thread.enter_recursion() {
        Ok(()) => body(&mut running, Ok(())),
        Err(raised) => {
            running.unlink();
            running.clear();
            body(&mut running, Err(raised))
        }
    }
}

impl Drop for Running<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.linked {
            self.publish();
            self.leave();
            self.clear();
        }
    }
}

impl<'py> Running<'py> {
    /// The frame.
    #[inline(always)]
    pub fn frame(&self) -> Frame<'py> {
        self.frame
    }

    /// The thread.
    #[inline(always)]
    pub fn thread(&self) -> Thread<'py> {
        self.thread
    }

    /// The code object.
    #[inline(always)]
    pub fn code(&self) -> Code<'py> {
        self.frame.code()
    }

    // -- instructions --------------------------------------------------------------------------

    /// Reads the next instruction, its `EXTENDED_ARG`s included; makes it the current one and moves
    /// behind its inline caches. The opcode comes in its general form.
    #[inline(always)]
    pub fn fetch(&mut self) -> (u8, u32) {
        self.start = self.next;
        self.start_sp = self.sp;
        self.publish();
        let (mut opcode, mut arg) = self.fetch_unit();
        while opcode == opcode::EXTENDED_ARG {
            let (next, low) = self.fetch_unit();
            (opcode, arg) = (next, arg << 8 | low);
        }
        self.next = self.next.wrapping_add(opcode::caches(opcode));
        (opcode, arg)
    }

    #[inline(always)]
    fn fetch_unit(&mut self) -> (u8, u32) {
        debug_assert!(self.next_unit() < self.code().units().len());
        // SAFETY: the compiler ends every path with a return, raise or jump, so `next` is inside the
        // code; `instr` is a field of the live frame.
        unsafe {
            (*self.frame.as_ptr()).instr = self.next.cast_mut();
            let unit = *self.next;
            let opcode = opcode::deopt(unit as u8);
            #[cfg(Py_3_12)]
            let opcode = if opcode < FIRST { opcode } else { self.uninstrumented(opcode) };
            self.next = self.next.add(1);
            (opcode, u32::from(unit >> 8))
        }
    }

    /// What the next instruction was before it was instrumented, unless a tool wants events of this code.
    #[cfg(Py_3_12)]
    #[cold]
    fn uninstrumented(&self, opcode: u8) -> u8 {
        let code = self.frame.code();
        if code.has_events_of_its_own() {
            return opcode;
        }
        code.plain_opcode(self.next_unit()).unwrap_or(opcode)
    }

    /// The unit behind the current instruction and its caches; after a jump, the target.
    #[inline(always)]
    pub fn next_unit(&self) -> usize {
        self.unit_of(self.next)
    }

    /// The unit that the current instruction begins at, its `EXTENDED_ARG`s included.
    #[inline(always)]
    pub fn start_unit(&self) -> usize {
        self.unit_of(self.start)
    }

    /// Whether the stack is as deep as it was when the current instruction was read.
    #[must_use]
    pub fn is_at_start(&self) -> bool {
        self.sp == self.start_sp
    }

    #[inline(always)]
    fn unit_of(&self, pointer: *const u16) -> usize {
        // SAFETY: both point into the same code object.
        (unsafe { pointer.offset_from(self.first) }) as usize
    }

    /// Jumps `units` forward.
    #[inline(always)]
    pub fn jump_forward(&mut self, units: u32) {
        self.next = self.next.wrapping_add(units as usize);
    }

    /// Jumps `units` backward.
    #[inline(always)]
    pub fn jump_backward(&mut self, units: u32) {
        self.next = self.next.wrapping_sub(units as usize);
    }

    /// Goes on at `unit`, which must be an instruction of the code.
    pub fn jump_to(&mut self, unit: usize) {
        assert!(unit < self.code().units().len());
        // SAFETY: a unit of the code.
        self.next = unsafe { self.first.add(unit) };
    }

    /// Makes `unit` the current instruction for tracebacks (`RERAISE` with a saved position).
    pub fn pretend_at(&mut self, unit: usize) {
        // SAFETY: a field of the live frame; the position was saved by `unwind_to`.
        unsafe { (*self.frame.as_ptr()).instr = self.first.add(unit).cast_mut() };
    }

    // -- events --------------------------------------------------------------------------------

    /// Whether a trace or profile function was set, so that the frame must be handed over.
    #[inline(always)]
    pub fn is_traced(&self) -> bool {
        // SAFETY: `cframe` is alive (see `enter`).
        unsafe { self.watch.is_on() }
    }

    /// Polls the eval breaker.
    #[inline(always)]
    pub fn poll(&mut self) -> Result<()> {
        // SAFETY: the current thread's.
        if unsafe { !self.breaker.is_set() } {
            return Ok(());
        }
        self.publish();
        let handled = self.thread.handle_pending();
        hook::restore(self.frame.py());
        handled
    }

    // -- exceptions ----------------------------------------------------------------------------

    /// Adds the frame to the raised exception's traceback, and tells a trace function.
    #[cold]
    pub fn add_traceback(&mut self) {
        self.publish();
        if !self.thread.is_raised() {
            // As CPython does when something returned an error without setting one.
            let message = c"error return without exception set";
            let _: Raised = Raised::system_error(self.frame.py(), message);
        }
        if self.frame.is_complete() {
            // SAFETY: the linked frame is the thread's current one.
            let object = unsafe {
                let pointer = shim::PyThreadState_GetFrame(self.thread.as_ptr());
                owned(self.frame.py(), pointer)
            };
            if let Ok(object) = object {
                // SAFETY: a frame object, and an exception is set.
                unsafe { shim::PyTraceBack_Here(object.as_ptr()) };
            }
        }
        // SAFETY: the current thread's state, with an exception set.
        unsafe { shim::stator_trace_exception(self.thread.as_ptr()) };
    }

    /// The object of the thread's current frame, which is this one (`sys._getframe()`).
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn object(&self) -> Result<Object<'py>> {
        // SAFETY: the linked frame is the thread's current one, and it's complete.
        unsafe { owned(self.frame.py(), shim::PyThreadState_GetFrame(self.thread.as_ptr())) }
    }

    /// The handler for an exception raised by the current instruction.
    ///
    /// CPython looks up the unit before the next one: it differs from the current instruction's where
    /// a jump was made first and then an event raised.
    #[cold]
    pub fn handler(&self) -> Option<Handler> {
        self.code().handler_for(self.next_unit().wrapping_sub(1))
    }

    /// Moves to a handler: unwinds the stack, pushes the position if asked for, then the exception.
    #[cold]
    pub fn unwind_to(&mut self, handler: Handler) {
        while self.depth() > handler.depth {
            drop(self.pop_or_null());
        }
        if handler.lasti {
            let unit = self.frame.unit() as isize;
            // SAFETY: no precondition. The exception is set while the integer is made; it is small.
            let position = unsafe { owned(self.frame.py(), ffi::PyLong_FromSsize_t(unit)) };
            if let Ok(position) = position {
                self.push(position);
            }
        }
        self.publish();
        let exception = self.thread.take_exception();
        self.push(exception);
        // SAFETY: the exception table's targets are units of the code.
        self.next = unsafe { self.first.add(handler.target) };
    }

    /// Empties the stack of a frame that leaves by an exception.
    #[cold]
    pub fn unwind_all(&mut self) {
        while self.depth() > 0 {
            drop(self.pop_or_null());
        }
        self.publish();
        if self.is_traced() {
            // SAFETY: the current thread's state, with an exception set.
            unsafe { shim::stator_trace_unwind(self.thread.as_ptr()) };
        }
    }

    // -- resuming ------------------------------------------------------------------------------

    /// Puts a frame that has just been entered somewhere else in its code: fast locals and stack are
    /// the given ones (`None`: unbound, or a `NULL` of the stack), `current` is the unit that
    /// tracebacks name, `next` the one to be evaluated next.
    ///
    /// Code that runs as old values are dropped sees the new ones.
    pub fn restore(
        &mut self,
        locals: impl IntoIterator<Item = Option<Object<'py>>>,
        stack: impl IntoIterator<Item = Option<Object<'py>>>,
        current: usize,
        next: usize,
    ) {
        debug_assert_eq!(self.depth(), 0);
        debug_assert!(current < self.code().units().len() && next < self.code().units().len());
        let old: Vec<_> = locals
            .into_iter()
            .take(self.code().nlocalsplus())
            .enumerate()
            .map(|(index, value)| self.set_local(index, value))
            .collect();
        for value in stack.into_iter().take(self.code().stacksize()) {
            match value {
                Some(value) => self.push(value),
                None => self.push_null(),
            }
        }
        self.publish();
        // SAFETY: both are units of the code.
        unsafe {
            (*self.frame.as_ptr()).instr = self.first.add(current).cast_mut();
            self.next = self.first.add(next);
        }
        drop(old);
    }

    // -- ways out ------------------------------------------------------------------------------

    #[inline(always)]
    fn unlink(&mut self) {
        self.linked = false;
        // SAFETY: linked in `enter`, and nothing linked since then is still linked: calls that the
        // frame made have returned.
        unsafe { shim::stator_unlink(self.thread.as_ptr(), self.cframe) };
    }

    #[inline(always)]
    fn leave(&mut self) {
        if self.linked {
            self.thread.leave_recursion();
            self.unlink();
        }
    }

    /// Frees what the unlinked frame owns, in versions where its evaluator does that: it is gone then.
    #[inline(always)]
    fn clear(&mut self) {
        // SAFETY: the frame was linked by `enter` and is unlinked now, on top of the thread's stack of frames
        // or a generator's; `stacktop` counts its valid slots.
        unsafe { shim::stator_clear(self.thread.as_ptr(), self.frame.as_ptr()) };
    }

    /// Gives the frame to CPython, to go on at `unit`; returns what it evaluates to.
    pub fn hand_over_at(&mut self, unit: usize) -> Evaluated<'py> {
        self.share_small_ints();
        self.go_on_at(unit)
    }

    /// Lets CPython make a generator of the frame, before the current instruction. Its variables stay the objects that they
    /// are: it may be evaluated further by who knows these.
    pub fn make_generator(&mut self) -> Evaluated<'py> {
        self.go_on_at(self.start_unit())
    }

    fn go_on_at(&mut self, unit: usize) -> Evaluated<'py> {
        self.publish();
        // SAFETY: `unit` is an instruction of the code, or the frame's start, where CPython goes on.
        unsafe {
            let instr = self.first.add(unit).wrapping_sub(InterpreterFrame::NEXT);
            (*self.frame.as_ptr()).instr = instr.cast_mut();
        }
        self.leave();
        // SAFETY: the frame is complete and unlinked, as the default evaluator expects it.
        unsafe {
            let thread = self.thread.as_ptr();
            let result = shim::stator_default(thread, self.frame.as_ptr(), 0);
            owned(self.frame.py(), result)
        }
    }

    /// Leaves with a value that was popped off the stack, to be resumed (`YIELD_VALUE`, which has this argument).
    #[inline]
    pub fn leave_suspended(&mut self, value: Object<'py>, arg: u32) -> Evaluated<'py> {
        debug_assert_eq!(self.frame.owner(), super::Owner::Generator);
        self.publish();
        self.leave();
        // SAFETY: only generators' code has YIELD_VALUE, so the frame is inside a generator; it is unlinked.
        unsafe { shim::stator_suspend(self.thread.as_ptr(), self.frame.as_ptr(), arg as i32) };
        Ok(value)
    }

    /// Drops what is on the stack.
    pub fn drop_all(&mut self) {
        while self.depth() > 0 {
            drop(self.pop_or_null());
        }
    }

    /// Unbinds the fast locals but for these, of a frame whose rest isn't needed: if somebody has its
    /// object, that would keep them alive. Variables of enclosing functions stay, as frame objects
    /// take them to be there.
    pub fn unbind_all_but(&mut self, kept: &[u32]) {
        if self.frame.object_address() == 0 {
            return;
        }
        let own = 0..self.code().first_free();
        let others = own.filter(|slot| !kept.contains(&(*slot as u32)));
        let old: Vec<_> = others.map(|slot| self.set_local(slot, None)).collect();
        drop(old);
    }

    /// Leaves a frame whose rest isn't needed: drops the stack. The value means nothing.
    pub fn abandon(&mut self) -> Evaluated<'py> {
        self.drop_all();
        let nothing = self.frame.py().None().into_bound(self.frame.py());
        self.leave_with(nothing)
    }

    /// Leaves with a value that was popped off the stack.
    #[inline(always)]
    pub fn leave_with(&mut self, value: Object<'py>) -> Evaluated<'py> {
        self.publish();
        self.leave();
        self.clear();
        Ok(value)
    }

    /// Leaves with the raised exception.
    pub fn leave_raised(&mut self, raised: Raised) -> Evaluated<'py> {
        self.leave();
        self.clear();
        Err(raised)
    }
}
