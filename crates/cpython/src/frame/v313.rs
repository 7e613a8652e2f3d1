//! CPython 3.13's frame, function and cell structs, as far as the evaluator touches them.

use std::ffi::c_int;

use pyo3::ffi::PyObject;

use super::slot::Slot;

/// `_PyInterpreterFrame`.
#[repr(C)]
pub struct InterpreterFrame {
    /// `f_executable`. Strong; a code object, but `None` in the entry frame of a C function.
    pub(crate) code: *mut PyObject,
    pub(crate) previous: *mut InterpreterFrame,
    /// Strong.
    pub(crate) function: *mut FunctionObject,
    /// Borrowed from the function.
    pub(crate) globals: *mut PyObject,
    /// Borrowed from the function.
    pub(crate) builtins: *mut PyObject,
    /// Strong; `NULL` in functions.
    pub(crate) locals: *mut PyObject,
    /// Strong; `NULL` until somebody asks for the frame object.
    pub(crate) frame_object: *mut PyObject,
    /// `instr_ptr`: the instruction that is being executed; in a frame that rests, the next one.
    pub(crate) instr: *mut u16,
    /// Number of valid slots in `localsplus`, the fast locals included.
    pub(crate) stacktop: c_int,
    /// How far the caller goes on behind `instr`, where CPython's loop runs both.
    return_offset: u16,
    pub(crate) owner: u8,
    /// Fast locals, cells and free variables, then the value stack.
    pub(crate) localsplus: [Slot; 1],
}

impl InterpreterFrame {
    /// How many units behind `instr` a frame that rests goes on.
    pub(crate) const NEXT: usize = 0;
}

/// `PyFunctionObject`.
#[repr(C)]
pub struct FunctionObject {
    base: PyObject,
    globals: *mut PyObject,
    builtins: *mut PyObject,
    name: *mut PyObject,
    qualname: *mut PyObject,
    code: *mut PyObject,
    defaults: *mut PyObject,
    kwdefaults: *mut PyObject,
    /// `NULL` or a tuple of cells.
    pub(crate) closure: *mut PyObject,
}

/// `PyCellObject`.
#[repr(C)]
pub struct CellObject {
    base: PyObject,
    /// `NULL` if unbound.
    pub(crate) contents: *mut PyObject,
}
