//! CPython 3.11's `PyCodeObject`, as far as the evaluator reads it.

use std::ffi::{c_char, c_int, c_short, c_void};

use pyo3::ffi::{PyObject, PyVarObject};

/// `PyCodeObject`; `base.ob_size` counts code units.
#[repr(C)]
pub struct CodeObject {
    pub(crate) base: PyVarObject,
    pub(crate) consts: *mut PyObject,
    pub(crate) names: *mut PyObject,
    pub(crate) exceptiontable: *mut PyObject,
    pub(crate) flags: c_int,
    warmup: c_short,
    linearray_entry_size: c_short,
    pub(crate) argcount: c_int,
    pub(crate) posonlyargcount: c_int,
    pub(crate) kwonlyargcount: c_int,
    pub(crate) stacksize: c_int,
    pub(crate) firstlineno: c_int,
    pub(crate) nlocalsplus: c_int,
    pub(crate) nlocals: c_int,
    nplaincellvars: c_int,
    ncellvars: c_int,
    pub(crate) nfreevars: c_int,
    pub(crate) localsplusnames: *mut PyObject,
    pub(crate) localspluskinds: *mut PyObject,
    pub(crate) filename: *mut PyObject,
    pub(crate) name: *mut PyObject,
    pub(crate) qualname: *mut PyObject,
    linetable: *mut PyObject,
    weakreflist: *mut PyObject,
    code: *mut PyObject,
    linearray: *mut c_char,
    pub(crate) firsttraceable: c_int,
    extra: *mut c_void,
    /// `co_code_adaptive`: the instructions, specialised in place.
    pub(crate) units: [u16; 1],
}
