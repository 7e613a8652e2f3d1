//! Modules by name, whatever frame is the current one.
//!
//! `PyImport_Import`, which all convenient ways of importing end in, asks the builtins of the current
//! frame for `__import__`: in the middle of a user's function these may be anything. (Those of a
//! named tuple's `__new__` are empty.)

use pyo3::exceptions::{PyAttributeError, PyImportError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use crate::object::Borrowed;

/// A module, imported if it isn't yet.
///
/// # Errors
/// `ImportError`, or what the module's code raises.
pub fn import<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyModule>> {
    let name = PyString::intern(py, name);
    let null = std::ptr::null_mut();
    // Also where the module is there: another thread may be in the middle of its code.
    // SAFETY: a string; nulls stand for no globals, no locals, and no names.
    let top = unsafe { ffi::PyImport_ImportModuleLevelObject(name.as_ptr(), null, null, null, 0) };
    // SAFETY: a new reference, or null with an exception.
    let _top = unsafe { Bound::from_owned_ptr_or_err(py, top)? };
    // SAFETY: a string. Null without an exception says that there is none.
    let found = unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyImport_GetModule(name.as_ptr())) };
    match found {
        Some(found) => Ok(found.cast_into()?),
        None => Err(PyErr::take(py)
            .unwrap_or_else(|| PyImportError::new_err(format!("no module named {name}")))),
    }
}

/// What a module has under a name.
///
/// Where it lacks it, no code in Python runs to say so: from CPython 3.13 on, a module's own error asks its spec
/// where its file lies.
///
/// # Errors
/// `AttributeError` if the module has no such name, or what a `__getattr__` of its own raises.
pub fn attribute<'py>(module: &Bound<'py, PyModule>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    module.getattr_opt(name)?.ok_or_else(|| PyAttributeError::new_err(name.to_owned()))
}

/// What a module of the standard library or of PyTorch has under a name for good, as `builtins.sorted`.
///
/// It's found once: to ask for a module takes some 5,000 instructions, and calls ask.
pub struct Named {
    module: &'static str,
    name: &'static str,
    found: PyOnceLock<Py<PyAny>>,
}

impl Named {
    /// What a module has under this name.
    #[must_use]
    pub const fn new(module: &'static str, name: &'static str) -> Self {
        Self { module, name, found: PyOnceLock::new() }
    }

    /// The object itself; its module is imported if it isn't yet.
    ///
    /// # Errors
    /// As [`import`]; `AttributeError` if the module has no such name.
    pub fn get<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        let find = || attribute(&import(py, self.module)?, self.name).map(Bound::unbind);
        self.found.get_or_try_init(py, find).map(|found| found.bind(py))
    }

    /// Whether it's this object.
    pub fn is(&self, object: Borrowed<'_, '_>) -> bool {
        self.get(object.py()).is_ok_and(|own| object.is(own))
    }
}

/// The modules that are loaded, by name: what `sys.modules` was at first. `None`: it's no dictionary.
#[must_use]
pub fn loaded(py: Python<'_>) -> Option<Bound<'_, PyDict>> {
    // SAFETY: a borrowed reference of the interpreter's, which lives as long as it.
    let modules = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyImport_GetModuleDict()) };
    modules?.cast_into().ok()
}
