//! Attributes, methods, and the special methods of `with`.

use std::ffi::CStr;
use std::ptr;

use pyo3::intern;
use pyo3::types::PyString;
use pyo3::{ffi, prelude::*};

use crate::ffi as shim;
use crate::object::{Borrowed, Object, owned, status};
use crate::raised::{Raised, Result};

/// What `LOAD_METHOD` found.
#[derive(Clone, Debug)]
pub enum Method<'py> {
    /// A function of the type, to be called with the owner as first argument.
    Function(Object<'py>),
    /// Anything else, to be called as it is.
    Attribute(Object<'py>),
}

/// `owner.name`.
#[inline]
pub fn get_attr<'py>(owner: Borrowed<'_, 'py>, name: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    super::begin()?;
    // SAFETY: valid objects; the name is a string.
    unsafe { owned(owner.py(), ffi::PyObject_GetAttr(owner.as_ptr(), name.as_ptr())) }
}

/// `owner.name`, about to be called: without making a bound method where that can be avoided.
#[inline]
pub fn get_method<'py>(owner: Borrowed<'_, 'py>, name: Borrowed<'_, 'py>) -> Result<Method<'py>> {
    super::begin()?;
    let mut found = ptr::null_mut();
    // SAFETY: valid objects; the name is a string; a new reference or null is stored.
    unsafe {
        let is_unbound = shim::_PyObject_GetMethod(owner.as_ptr(), name.as_ptr(), &raw mut found);
        let found = owned(owner.py(), found)?;
        Ok(if is_unbound != 0 { Method::Function(found) } else { Method::Attribute(found) })
    }
}

/// `owner.name = value`, or `del owner.name`.
#[inline]
pub fn set_attr<'py>(
    owner: Borrowed<'_, 'py>,
    name: Borrowed<'_, 'py>,
    value: Option<Borrowed<'_, 'py>>,
) -> Result<()> {
    super::begin()?;
    let value = value.map_or(ptr::null_mut(), |value| value.as_ptr());
    // SAFETY: valid objects; the name is a string; a null value deletes.
    status(unsafe { ffi::PyObject_SetAttr(owner.as_ptr(), name.as_ptr(), value) })?;
    Ok(())
}

/// A special method, looked up on the type and bound; `message` (with one `%s`) if there is none.
pub(super) fn special<'py>(
    owner: Borrowed<'_, 'py>,
    name: &Bound<'py, PyString>,
    message: &CStr,
) -> Result<Object<'py>> {
    // SAFETY: valid objects; null without an exception means that the type lacks it.
    unsafe {
        let found = shim::_PyObject_LookupSpecial(owner.as_ptr(), name.as_ptr());
        if found.is_null() && ffi::PyErr_Occurred().is_null() {
            shim::stator_raise_type_name(
                ffi::PyExc_TypeError,
                message.as_ptr(),
                ffi::Py_TYPE(owner.as_ptr()),
            );
        }
        owned(owner.py(), found)
    }
}

/// Calls without arguments.
pub(super) fn call_no_args<'py>(callable: &Object<'py>) -> Result<Object<'py>> {
    // SAFETY: a valid object.
    unsafe { owned(callable.py(), ffi::PyObject_CallNoArgs(callable.as_ptr())) }
}

/// `BEFORE_WITH`: looks up `__enter__` and `__exit__` on the type and calls the former; returns (bound
/// exit, result of enter).
pub fn before_with<'py>(manager: Borrowed<'_, 'py>) -> Result<(Object<'py>, Object<'py>)> {
    super::begin()?;
    let py = manager.py();
    let no_enter = c"'%.200s' object does not support the context manager protocol";
    let no_exit =
        c"'%.200s' object does not support the context manager protocol (missed __exit__ method)";
    let enter = special(manager, intern!(py, "__enter__"), no_enter)?;
    let exit = special(manager, intern!(py, "__exit__"), no_exit)?;
    let entered = call_no_args(&enter)?;
    Ok((exit, entered))
}

/// Turns a C "found nothing" into `None`, an exception into [`Raised`].
pub(super) fn optional<'py>(
    py: Python<'py>,
    pointer: *mut ffi::PyObject,
) -> Result<Option<Object<'py>>> {
    // SAFETY: null or a new reference.
    match unsafe { owned(py, pointer) } {
        Ok(found) => Ok(Some(found)),
        // SAFETY: no precondition beyond the GIL.
        Err(Raised) if unsafe { ffi::PyErr_Occurred() }.is_null() => Ok(None),
        Err(raised) => Err(raised),
    }
}
