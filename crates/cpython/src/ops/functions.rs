//! Functions, methods, classes, and the interactive prompt.

use std::ptr;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::attributes::optional;
use crate::ffi as shim;
use crate::frame::Frame;
use crate::object::{Borrowed, Object, cloned, owned};
use crate::raised::{Raised, Result};

/// The optional parts of a new function, as `MAKE_FUNCTION` takes them.
type Part<'py> = Option<Object<'py>>;

/// A function without any of its parts, its closure included: what `MAKE_FUNCTION` begins with, and from CPython 3.13
/// on ends with.
///
/// # Errors
/// `MemoryError`.
pub fn bare_function<'py>(
    code: Borrowed<'_, 'py>,
    globals: Borrowed<'_, 'py>,
) -> Result<Object<'py>> {
    // SAFETY: a code object and a dictionary, as the callers give them.
    unsafe { owned(code.py(), ffi::PyFunction_New(code.as_ptr(), globals.as_ptr())) }
}

/// `MAKE_FUNCTION`.
pub fn make_function<'py>(
    frame: &Frame<'py>,
    code: Borrowed<'_, 'py>,
    closure: Part<'py>,
    annotations: Part<'py>,
    kwdefaults: Part<'py>,
    defaults: Part<'py>,
) -> Result<Object<'py>> {
    let pointer = |part: Part<'py>| part.map_or(ptr::null_mut(), Bound::into_ptr);
    let function = bare_function(code, frame.globals())?;
    // SAFETY: the compiler gives parts of the right types; the new function takes the references.
    unsafe {
        shim::stator_set_function_parts(
            function.as_ptr(),
            pointer(closure),
            pointer(annotations),
            pointer(kwdefaults),
            pointer(defaults),
        );
        Ok(function)
    }
}

/// `SET_FUNCTION_ATTRIBUTE`: a part that a new function hasn't got yet.
#[cfg(Py_3_13)]
pub fn set_function_part<'py>(function: &Object<'py>, part: u32, value: Object<'py>) {
    let value = value.into_ptr();
    let at = |bit| if part == bit { value } else { ptr::null_mut() };
    // SAFETY: the compiler gives a new function and one part of the right type, which it takes.
    unsafe { shim::stator_set_function_parts(function.as_ptr(), at(8), at(4), at(2), at(1)) };
}

/// `PRECALL`: (function, self) of a bound method.
#[inline]
pub fn split_method<'py>(callable: Borrowed<'_, 'py>) -> Option<(Object<'py>, Object<'py>)> {
    let py = callable.py();
    // SAFETY: an exact bound method has both, borrowed.
    unsafe {
        if ffi::Py_TYPE(callable.as_ptr()) != &raw mut shim::PyMethod_Type {
            return None;
        }
        let function = cloned(py, shim::PyMethod_Function(callable.as_ptr()))?;
        let owner = cloned(py, shim::PyMethod_Self(callable.as_ptr()))?;
        Some((function, owner))
    }
}

/// `LOAD_BUILD_CLASS`.
pub fn load_build_class<'py>(frame: &Frame<'py>) -> Result<Object<'py>> {
    let py = frame.py();
    let missing = || {
        // SAFETY: a static object and message.
        unsafe {
            let message = c"__build_class__ not found";
            ffi::PyErr_SetString(ffi::PyExc_NameError, message.as_ptr());
        }
        Raised
    };
    let name = pyo3::intern!(py, "__build_class__");
    let builtins = frame.builtins().as_ptr();
    // SAFETY: valid objects; `PyDict_GetItemWithError` borrows.
    unsafe {
        if ffi::PyDict_CheckExact(builtins) != 0 {
            let found = ffi::PyDict_GetItemWithError(builtins, name.as_ptr());
            ffi::Py_XINCREF(found);
            return optional(py, found)?.ok_or_else(missing);
        }
        owned(py, ffi::PyObject_GetItem(builtins, name.as_ptr())).map_err(|raised| {
            if ffi::PyErr_ExceptionMatches(ffi::PyExc_KeyError) != 0 { missing() } else { raised }
        })
    }
}

/// `PRINT_EXPR`: calls `sys.displayhook`.
pub fn print_expr(value: Borrowed<'_, '_>) -> Result<()> {
    let py = value.py();
    // SAFETY: a borrowed reference or null.
    let hook = unsafe { cloned(py, ffi::PySys_GetObject(c"displayhook".as_ptr())) };
    let Some(hook) = hook else {
        return Err(Raised::set(py, PyRuntimeError::new_err("lost sys.displayhook")));
    };
    // SAFETY: valid objects.
    unsafe { owned(py, ffi::PyObject_CallOneArg(hook.as_ptr(), value.as_ptr())) }?;
    Ok(())
}
