//! Frames: a safe view ([`Frame`]) and the evaluator's registers on a running one ([`Running`]).

use std::fmt;
use std::ptr::NonNull;

use pyo3::exceptions::{PyRecursionError, PyTypeError};
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::code::Code;
use crate::object::{Borrowed, Object, references};
use crate::opcode::NULL_IS_ABOVE;
use crate::raised::{Raised, Result};
use crate::thread::c_stack::{self, Room};
use crate::{heap, ops};

#[cfg_attr(not(Py_3_12), path = "v311.rs")]
#[cfg_attr(all(Py_3_12, not(Py_3_13)), path = "v312.rs")]
#[cfg_attr(Py_3_13, path = "v313.rs")]
pub(crate) mod layout;
mod running;
mod slot;
mod stack;
mod stand_in;

use layout::InterpreterFrame;
pub use running::{Running, enter};
use slot::Slot;
pub use stand_in::{StandIn, stand_in};

/// Who owns a frame's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The thread's data stack: an ordinary call.
    Thread,
    /// A generator, coroutine or asynchronous generator.
    Generator,
    /// A frame object that outlived its call.
    FrameObject,
    /// A C function that calls into CPython's evaluation loop: it has no code.
    Entry,
}

/// A frame of the interpreter, valid while it is on the stack or its generator is alive.
///
/// It is a pointer with a lifetime: holding one past the call that handed it out is a bug, as it is
/// in CPython.
#[derive(Clone, Copy)]
pub struct Frame<'py> {
    pointer: NonNull<InterpreterFrame>,
    py: Python<'py>,
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({:p})", self.pointer)
    }
}

impl PartialEq for Frame<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.pointer == other.pointer
    }
}

impl Eq for Frame<'_> {}

impl<'py> Frame<'py> {
    /// # Safety
    /// `pointer` is a frame with its code, function, globals and builtins set, alive as long as the
    /// view is used.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(py: Python<'py>, pointer: *mut InterpreterFrame) -> Self {
        // SAFETY: the caller gives a valid frame.
        Frame { pointer: unsafe { NonNull::new_unchecked(pointer) }, py }
    }

    /// The GIL token.
    #[inline(always)]
    pub fn py(&self) -> Python<'py> {
        self.py
    }

    /// The `_PyInterpreterFrame`.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut InterpreterFrame {
        self.pointer.as_ptr()
    }

    /// The frame's address: its identity while it is alive.
    #[inline(always)]
    pub fn id(&self) -> usize {
        self.pointer.as_ptr() as usize
    }

    #[inline(always)]
    fn fields(&self) -> &InterpreterFrame {
        // SAFETY: alive (see `from_raw`), and `layout::check` compared the struct.
        unsafe { self.pointer.as_ref() }
    }

    #[inline(always)]
    fn borrow<'a>(&'a self, pointer: *mut PyObject) -> Borrowed<'a, 'py> {
        // SAFETY: the frame keeps its fields' objects alive.
        unsafe { pyo3::Borrowed::from_ptr(self.py, pointer) }
    }

    #[inline(always)]
    fn borrow_opt<'a>(&'a self, pointer: *mut PyObject) -> Option<Borrowed<'a, 'py>> {
        // SAFETY: null or an object that the frame keeps alive.
        unsafe { pyo3::Borrowed::from_ptr_or_opt(self.py, pointer) }
    }

    /// The code object.
    #[inline(always)]
    pub fn code(&self) -> Code<'py> {
        // SAFETY: the frame owns its code object.
        unsafe { Code::from_raw(self.fields().code) }
    }

    /// The function whose call this is (for modules and `exec`, one made on the fly).
    pub fn function(&self) -> Borrowed<'_, 'py> {
        self.borrow(self.fields().function.cast())
    }

    /// The function's closure: a tuple of cells, or none.
    pub fn closure(&self) -> Option<Borrowed<'_, 'py>> {
        // SAFETY: the frame owns its function.
        self.borrow_opt(unsafe { (*self.fields().function).closure })
    }

    /// The global namespace.
    #[inline(always)]
    pub fn globals(&self) -> Borrowed<'_, 'py> {
        self.borrow(self.fields().globals)
    }

    /// The builtins' namespace.
    #[inline(always)]
    pub fn builtins(&self) -> Borrowed<'_, 'py> {
        self.borrow(self.fields().builtins)
    }

    /// The local namespace of a module, class body or `exec`; functions have none, unless
    /// somebody asked for `locals()`.
    #[inline]
    pub fn locals(&self) -> Option<Borrowed<'_, 'py>> {
        self.borrow_opt(self.fields().locals)
    }

    /// A fast local as its slot holds it (cells as cells), if it is bound.
    #[inline(always)]
    pub fn local(&self, index: usize) -> Option<Borrowed<'_, 'py>> {
        debug_assert!(index < self.code().nlocalsplus());
        // SAFETY: the slots of the code's fast locals exist from the frame's creation on.
        unsafe { (*self.slots().add(index)).borrow(self.py) }
    }

    /// Puts another object in the place of a bound fast local, of a frame that waits for a call;
    /// returns the old one.
    pub fn exchange_local(&self, index: usize, value: Object<'py>) -> Option<Object<'py>> {
        self.local(index)?;
        // SAFETY: the slot exists and owns its object, as whoever evaluates the frame knows it: locals
        // are read from their slots by each instruction, and none but the call is under way.
        unsafe { std::ptr::replace(self.slots().add(index), Slot::of(value)).take(self.py) }
    }

    /// The value stack, bottom first; `None` are the `NULL`s that calls push.
    ///
    /// While a frame is being evaluated it is right at instruction boundaries; during an
    /// instruction's own calls, operands are still on it.
    pub fn stack(&self) -> &[Option<Borrowed<'_, 'py>>] {
        let base = self.code().nlocalsplus();
        let length = usize::try_from(self.fields().stacktop).unwrap_or(0).saturating_sub(base);
        // SAFETY: `stacktop` counts valid slots.
        unsafe { Slot::objects(self.slots().add(base), length) }
    }

    /// The operands of a call with so many arguments, and so many values above them, as they lie on the stack.
    pub fn operands(&self, count: usize, above: usize) -> Option<Operands<'_, 'py>> {
        let stack = self.stack();
        let (below, given) = stack.split_at(stack.len().checked_sub(count + above)?);
        let [.., lower, upper] = below else { return None };
        let (callable, receiver) = match (lower, upper) {
            (None, callable) if !NULL_IS_ABOVE => (*callable, None),
            (callable, receiver) => (*callable, *receiver),
        };
        Some(Operands { callable: callable?, receiver, args: &given[..count] })
    }

    #[inline(always)]
    pub(crate) fn slots(&self) -> *mut Slot {
        // SAFETY: a field's address of a live struct.
        unsafe { (&raw mut (*self.pointer.as_ptr()).localsplus).cast() }
    }

    /// The calling frame, leaving out frames that haven't started yet.
    pub fn previous(&self) -> Option<Frame<'py>> {
        let mut pointer = self.fields().previous;
        while !pointer.is_null() {
            // SAFETY: callers of a running frame are alive.
            let frame = unsafe { Self::from_raw(self.py, pointer) };
            if frame.is_complete() {
                return Some(frame);
            }
            pointer = frame.fields().previous;
        }
        None
    }

    /// Whether the frame has reached its first `RESUME`: only then may a frame object be made.
    pub fn is_complete(&self) -> bool {
        match self.owner() {
            Owner::Generator => true,
            Owner::Entry => false,
            _ => self.signed_unit() >= self.code().first_traceable() as isize,
        }
    }

    #[inline(always)]
    fn signed_unit(&self) -> isize {
        // SAFETY: both point into (or just before) the code's units.
        unsafe { self.fields().instr.cast_const().offset_from(self.code().first_unit()) }
    }

    /// The current instruction's index in code units; 0 in a frame that hasn't started. Where one is suspended:
    /// [`Frame::rested_unit`].
    #[inline]
    pub fn unit(&self) -> usize {
        usize::try_from(self.signed_unit()).unwrap_or(0)
    }

    /// The index of the instruction behind which a suspended frame goes on.
    #[must_use]
    pub fn rested_unit(&self) -> usize {
        (self.unit() + InterpreterFrame::NEXT).saturating_sub(1)
    }

    /// The current source line.
    pub fn line(&self) -> Option<u32> {
        self.code().line_of(self.unit())
    }

    /// The address of the frame's object (`sys._getframe`); 0 until somebody has asked for it.
    pub fn object_address(&self) -> usize {
        self.fields().frame_object as usize
    }

    /// Whether anybody but the frame has its object.
    pub fn is_held(&self) -> bool {
        self.borrow_opt(self.fields().frame_object).is_some_and(|object| references(object) > 1)
    }

    /// Who owns the frame's memory.
    pub fn owner(&self) -> Owner {
        match self.fields().owner {
            0 => Owner::Thread,
            1 => Owner::Generator,
            2 => Owner::FrameObject,
            _ => Owner::Entry,
        }
    }
}

/// A call's operands.
pub struct Operands<'a, 'py> {
    /// What is called.
    pub callable: Borrowed<'a, 'py>,
    /// What a method was taken from.
    pub receiver: Option<Borrowed<'a, 'py>>,
    args: &'a [Option<Borrowed<'a, 'py>>],
}

impl Operands<'_, '_> {
    /// Whether the arguments are these very objects.
    #[must_use]
    pub fn are(&self, args: &[Borrowed<'_, '_>]) -> bool {
        let same = |(own, arg): (&Option<Borrowed<'_, '_>>, &Borrowed<'_, '_>)| {
            own.is_some_and(|own| own.as_ptr() == arg.as_ptr())
        };
        self.args.len() == args.len() && self.args.iter().zip(args).all(same)
    }

    /// Whether the last argument is a plain tuple: `*args`, as far as they are known.
    #[must_use]
    pub fn is_unpacked(&self) -> bool {
        matches!(self.args, [.., Some(last)] if last.is_exact_instance_of::<PyTuple>())
    }
}

/// Calls a Python function with `None` for every parameter: what its frame's evaluator gets is a
/// frame to be moved elsewhere, see [`Running::restore`].
///
/// # Errors
/// What the call raises; `RecursionError` where the C stack has no room for an evaluator.
pub fn call_anew<'py>(function: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    let py = function.py();
    if c_stack::room() != Room::Enough {
        let message = "maximum recursion depth exceeded: the C stack is used up";
        return Err(Raised::set(py, PyRecursionError::new_err(message)));
    }
    let code = heap::function::value(function, heap::function::Field::Code);
    let code = code.as_ref().and_then(|code| Code::of(code.as_borrowed()));
    let Some(code) = code else {
        return Err(Raised::set(py, PyTypeError::new_err("a frame is made of a function")));
    };
    let (positional, named) = (code.argcount(), code.kwonlyargcount());
    let none = py.None();
    let args: Vec<Borrowed<'_, 'py>> =
        (0..positional + named).map(|_| none.bind_borrowed(py)).collect();
    if named == 0 {
        return ops::call(function, &args, None);
    }
    let names = (positional..positional + named).map(|index| code.local_name(index).to_owned());
    let names =
        PyTuple::new(py, names.collect::<Vec<_>>()).map_err(|error| Raised::set(py, error))?;
    ops::call(function, &args, Some(names.as_any().as_borrowed()))
}
