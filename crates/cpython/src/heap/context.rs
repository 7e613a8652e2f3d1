//! Context variables, in the current context.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::Any;
use crate::ffi as shim;
use crate::raised::{Raised, Result};

/// Whether an object is a `contextvars.ContextVar`.
#[inline]
pub fn is_variable(object: Any<'_, '_>) -> bool {
    // SAFETY: compares the type of a live object.
    unsafe { ffi::PyContextVar_CheckExact(object.as_ptr()) != 0 }
}

/// What the variable was set to; `None` if it is unset, or no variable.
pub fn own_value<'py>(variable: Any<'_, 'py>) -> Option<Bound<'py, PyAny>> {
    static UNSET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = variable.py();
    let make = || py.get_type::<PyAny>().call0().map(Bound::unbind);
    let unset = UNSET.get_or_try_init(py, make).ok()?;
    let value = read(variable, unset.as_ptr())?;
    (!value.is(unset)).then_some(value)
}

/// The variable's default, if it is unset and has one.
pub fn default_value<'py>(variable: Any<'_, 'py>) -> Option<Bound<'py, PyAny>> {
    if own_value(variable).is_some() {
        return None;
    }
    read(variable, std::ptr::null_mut())
}

fn read<'py>(variable: Any<'_, 'py>, otherwise: *mut ffi::PyObject) -> Option<Bound<'py, PyAny>> {
    if !is_variable(variable) {
        return None;
    }
    let mut value = std::ptr::null_mut();
    // SAFETY: a context variable, and an object or null to fall back to; the value is a new reference.
    // Variables are hashed by their address, so no Python code runs.
    unsafe {
        if ffi::PyContextVar_Get(variable.as_ptr(), otherwise, &raw mut value) < 0 {
            ffi::PyErr_Clear();
            return None;
        }
        Bound::from_owned_ptr_or_opt(variable.py(), value)
    }
}

/// Sets the variable; the token that goes back to what it was.
///
/// # Errors
/// `TypeError` if it is none.
pub fn set<'py>(variable: Any<'_, 'py>, value: Any<'_, '_>) -> Result<Bound<'py, PyAny>> {
    // SAFETY: two live objects; the type of the first is checked by the callee. The token it returns is
    // a new reference, or null with an exception set.
    unsafe {
        let token = ffi::PyContextVar_Set(variable.as_ptr(), value.as_ptr());
        Bound::from_owned_ptr_or_opt(variable.py(), token).ok_or(Raised)
    }
}

/// Whether an object is a token that a variable can be reset with now: unused, of this variable and of the current context.
#[must_use]
pub fn fits(token: Any<'_, '_>, variable: Any<'_, '_>) -> bool {
    // SAFETY: two live objects; the type of the first is asked first.
    unsafe { shim::stator_token_fits(token.as_ptr(), variable.as_ptr()) != 0 }
}

/// Resets the variable to what it was when the token was made.
///
/// # Errors
/// As `ContextVar.reset`.
pub fn reset(variable: Any<'_, '_>, token: Any<'_, '_>) -> Result<()> {
    // SAFETY: two live objects, whose types the callee checks.
    match unsafe { ffi::PyContextVar_Reset(variable.as_ptr(), token.as_ptr()) } {
        0 => Ok(()),
        _ => Err(Raised),
    }
}
