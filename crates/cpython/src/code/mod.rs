//! Code objects, read in place: constants, names, instructions, exception table, lines.

use std::marker::PhantomData;
use std::ptr::NonNull;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use stator_bytecode::{Meaning, Opcode};

use crate::ffi as shim;
use crate::object::Borrowed;
use crate::opcode;

mod exception_table;
#[cfg(Py_3_12)]
pub(crate) mod instrumentation;
#[cfg_attr(not(Py_3_12), path = "v311.rs")]
#[cfg_attr(all(Py_3_12, not(Py_3_13)), path = "v312.rs")]
#[cfg_attr(Py_3_13, path = "v313.rs")]
pub(crate) mod layout;

pub use exception_table::Handler;
use layout::CodeObject;

/// `CO_FAST_LOCAL` in [`Code::local_kind`]: a plain local.
pub const FAST_LOCAL: u8 = 0x20;
/// `CO_FAST_CELL`: a local or argument that inner functions share.
pub const FAST_CELL: u8 = 0x40;
/// `CO_FAST_FREE`: a cell of an enclosing function.
pub const FAST_FREE: u8 = 0x80;

/// A code object, alive as long as the frame or function it was taken from.
#[derive(Clone, Copy)]
pub struct Code<'py> {
    pointer: NonNull<CodeObject>,
    py: PhantomData<Python<'py>>,
}

/// A code unit that holds an opcode, as it is read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The opcode, in its general form.
    pub opcode: Opcode,
    /// The low byte of its argument: what `EXTENDED_ARG`s before it add isn't in it.
    pub arg: u32,
    /// The unit behind it and its inline caches.
    pub next: usize,
}

impl Unit {
    /// What the instruction does.
    #[inline]
    pub fn meaning(&self) -> Meaning {
        Meaning::of(opcode::TARGET, self.opcode, self.arg)
    }
}

impl PartialEq for Code<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.pointer == other.pointer
    }
}

impl Eq for Code<'_> {}

impl<'py> Code<'py> {
    /// The view of a code object, if `object` is one. The caller keeps it alive.
    pub fn of(object: Borrowed<'_, 'py>) -> Option<Self> {
        // SAFETY: a type check on a valid object.
        let is_code = unsafe { ffi::PyCode_Check(object.as_ptr()) } != 0;
        // SAFETY: just checked.
        is_code.then(|| unsafe { Self::from_raw(object.as_ptr()) })
    }

    /// # Safety
    /// `pointer` is a code object that outlives the view.
    pub(crate) unsafe fn from_raw(pointer: *mut PyObject) -> Self {
        // SAFETY: the caller gives a valid object, so it isn't null.
        let pointer = unsafe { NonNull::new_unchecked(pointer.cast()) };
        Code { pointer, py: PhantomData }
    }

    #[inline(always)]
    fn fields(&self) -> &CodeObject {
        // SAFETY: the code object is alive (see `from_raw`) and `layout::check` compared the struct.
        unsafe { self.pointer.as_ref() }
    }

    #[inline(always)]
    fn borrow<'a>(&'a self, pointer: *mut PyObject) -> Borrowed<'a, 'py> {
        // SAFETY: fields of a code object are valid objects; 'py proves that the GIL is held.
        unsafe { pyo3::Borrowed::from_ptr(Python::assume_attached(), pointer) }
    }

    #[inline(always)]
    fn tuple_item<'a>(&'a self, tuple: *mut PyObject, index: usize) -> Borrowed<'a, 'py> {
        // SAFETY: the fields passed here are tuples; the compiler made `index` for this code.
        unsafe {
            debug_assert!((index as isize) < ffi::PyTuple_GET_SIZE(tuple));
            self.borrow(ffi::PyTuple_GET_ITEM(tuple, index as isize))
        }
    }

    /// The object's address: its identity.
    pub fn as_ptr(&self) -> *mut PyObject {
        self.pointer.as_ptr().cast()
    }

    /// The code object itself.
    pub fn object(&self) -> Borrowed<'_, 'py> {
        self.borrow(self.as_ptr())
    }

    /// `co_name`.
    pub fn name(&self) -> Borrowed<'_, 'py> {
        self.borrow(self.fields().name)
    }

    /// `co_qualname`.
    pub fn qualname(&self) -> Borrowed<'_, 'py> {
        self.borrow(self.fields().qualname)
    }

    /// `co_filename`.
    pub fn filename(&self) -> Borrowed<'_, 'py> {
        self.borrow(self.fields().filename)
    }

    /// `co_consts`.
    pub fn consts(&self) -> Borrowed<'_, 'py> {
        self.borrow(self.fields().consts)
    }

    /// `co_names`.
    pub fn names(&self) -> Borrowed<'_, 'py> {
        self.borrow(self.fields().names)
    }

    /// `co_flags`.
    #[inline]
    pub fn flags(&self) -> u32 {
        self.fields().flags as u32
    }

    /// `co_argcount`: positional parameters, positional-only ones included.
    pub fn argcount(&self) -> usize {
        self.fields().argcount as usize
    }

    /// `co_posonlyargcount`.
    pub fn posonlyargcount(&self) -> usize {
        self.fields().posonlyargcount as usize
    }

    /// `co_kwonlyargcount`.
    pub fn kwonlyargcount(&self) -> usize {
        self.fields().kwonlyargcount as usize
    }

    /// `co_stacksize`.
    pub fn stacksize(&self) -> usize {
        self.fields().stacksize as usize
    }

    /// `co_firstlineno`.
    pub fn firstlineno(&self) -> i32 {
        self.fields().firstlineno
    }

    /// Number of fast locals: plain locals, then cells that are no arguments, then free variables.
    #[inline]
    pub fn nlocalsplus(&self) -> usize {
        self.fields().nlocalsplus as usize
    }

    /// Number of plain locals (arguments included).
    pub fn nlocals(&self) -> usize {
        self.fields().nlocals as usize
    }

    /// Number of free variables.
    pub fn nfreevars(&self) -> usize {
        self.fields().nfreevars as usize
    }

    /// Index of the first free variable among the fast locals.
    #[inline]
    pub fn first_free(&self) -> usize {
        (self.fields().nlocalsplus - self.fields().nfreevars) as usize
    }

    /// A constant.
    #[inline(always)]
    pub fn const_at(&self, index: usize) -> Borrowed<'_, 'py> {
        self.tuple_item(self.fields().consts, index)
    }

    /// A name.
    #[inline(always)]
    pub fn name_at(&self, index: usize) -> Borrowed<'_, 'py> {
        self.tuple_item(self.fields().names, index)
    }

    /// Name of a fast local.
    pub fn local_name(&self, index: usize) -> Borrowed<'_, 'py> {
        self.tuple_item(self.fields().localsplusnames, index)
    }

    /// Kind of a fast local: a combination of [`FAST_LOCAL`], [`FAST_CELL`] and [`FAST_FREE`].
    pub fn local_kind(&self, index: usize) -> u8 {
        let kinds = self.fields().localspluskinds;
        debug_assert!(index < self.nlocalsplus());
        // SAFETY: a bytes object with one byte per fast local.
        unsafe { *ffi::PyBytes_AsString(kinds).cast::<u8>().add(index) }
    }

    /// The instructions as they stand, specialised in place; low byte opcode, high byte argument.
    pub fn units(&self) -> &[u16] {
        let length = self.fields().base.ob_size as usize;
        // SAFETY: `ob_size` counts the units that follow the struct's head.
        unsafe { std::slice::from_raw_parts(self.first_unit(), length) }
    }

    #[inline(always)]
    pub(crate) fn first_unit(&self) -> *const u16 {
        // Not `fields().units.as_ptr()`: the array is longer than its declared length.
        // SAFETY: a field's address of a live struct.
        unsafe { (&raw const (*self.pointer.as_ptr()).units).cast() }
    }

    /// What stands at a unit; `None` behind the last one.
    #[inline]
    pub fn unit(&self, at: usize) -> Option<Unit> {
        let [number, arg] = self.units().get(at)?.to_le_bytes();
        let number = opcode::deopt(number);
        #[cfg(Py_3_12)]
        let number = if number < instrumentation::FIRST { number } else { self.plain_opcode(at)? };
        let next = at + 1 + opcode::caches(number);
        Some(Unit { opcode: opcode::TARGET.opcode(number)?, arg: u32::from(arg), next })
    }

    /// The instructions in order, with whole arguments: each with the unit of its opcode, behind the
    /// `EXTENDED_ARG`s before it.
    pub fn instructions(&self) -> impl Iterator<Item = (usize, Unit)> {
        let (mut at, mut extended) = (0, 0);
        std::iter::from_fn(move || {
            loop {
                let mut unit = self.unit(at)?;
                unit.arg |= extended << 8;
                let here = std::mem::replace(&mut at, unit.next);
                if unit.meaning() != Meaning::Extend {
                    extended = 0;
                    return Some((here, unit));
                }
                extended = unit.arg;
            }
        })
    }

    /// The first unit whose frame counts as complete (the first `RESUME`).
    #[must_use]
    pub fn first_traceable(&self) -> usize {
        self.fields().firsttraceable as usize
    }

    /// `co_exceptiontable`.
    pub fn exception_table(&self) -> &[u8] {
        let table = self.fields().exceptiontable;
        // SAFETY: a bytes object; its buffer lives as long as it does.
        unsafe {
            let length = ffi::PyBytes_Size(table) as usize;
            std::slice::from_raw_parts(ffi::PyBytes_AsString(table).cast(), length)
        }
    }

    /// The handler that covers `unit`.
    pub fn handler_for(&self, unit: usize) -> Option<Handler> {
        exception_table::find(self.exception_table(), unit)
    }

    /// The source line of the instruction at `unit`; `None` for artificial ones.
    pub fn line_of(&self, unit: usize) -> Option<u32> {
        // SAFETY: a live code object; any offset is accepted.
        let line = unsafe { shim::PyCode_Addr2Line(self.as_ptr(), 2 * unit as i32) };
        u32::try_from(line).ok()
    }
}
