//! CPython 3.13's `PyCodeObject`, as far as the evaluator reads it.

use std::ffi::{c_int, c_void};

use pyo3::ffi::{PyObject, PyVarObject};

/// `PyCodeObject`; `base.ob_size` counts code units.
#[repr(C)]
pub struct CodeObject {
    pub(crate) base: PyVarObject,
    pub(crate) consts: *mut PyObject,
    pub(crate) names: *mut PyObject,
    pub(crate) exceptiontable: *mut PyObject,
    pub(crate) flags: c_int,
    pub(crate) argcount: c_int,
    pub(crate) posonlyargcount: c_int,
    pub(crate) kwonlyargcount: c_int,
    pub(crate) stacksize: c_int,
    pub(crate) firstlineno: c_int,
    pub(crate) nlocalsplus: c_int,
    framesize: c_int,
    pub(crate) nlocals: c_int,
    ncellvars: c_int,
    pub(crate) nfreevars: c_int,
    version: u32,
    pub(crate) localsplusnames: *mut PyObject,
    pub(crate) localspluskinds: *mut PyObject,
    pub(crate) filename: *mut PyObject,
    pub(crate) name: *mut PyObject,
    pub(crate) qualname: *mut PyObject,
    linetable: *mut PyObject,
    weakreflist: *mut PyObject,
    executors: *mut c_void,
    cached: *mut c_void,
    /// As of when who wants events the instructions are instrumented.
    pub(super) instrumentation_version: u64,
    /// Null if they never were.
    pub(super) monitoring: *mut c_void,
    pub(crate) firsttraceable: c_int,
    extra: *mut c_void,
    /// `co_code_adaptive`: the instructions, specialised in place.
    pub(crate) units: [u16; 1],
}
