//! Names for Python references: owned ([`Object`]) and borrowed ([`Borrowed`]).
//!
//! Both are PyO3's counted types, so that references are counted by the compiler.

use pyo3::ffi;
use pyo3::prelude::*;

use crate::raised::{Raised, Result};

/// An owned reference to any Python object.
pub type Object<'py> = Bound<'py, PyAny>;

/// A borrowed reference to any Python object; `repr(transparent)` over its pointer.
pub type Borrowed<'a, 'py> = pyo3::Borrowed<'a, 'py, PyAny>;

/// How many references there are to an object.
#[must_use]
pub fn references(object: Borrowed<'_, '_>) -> usize {
    // SAFETY: a live object.
    usize::try_from(unsafe { ffi::Py_REFCNT(object.as_ptr()) }).unwrap_or(usize::MAX)
}

/// A new reference returned by CPython: `NULL` means that it set an exception.
///
/// # Safety
/// `pointer` is `NULL` or a new reference that the caller owns.
#[inline(always)]
pub(crate) unsafe fn owned(py: Python<'_>, pointer: *mut ffi::PyObject) -> Result<Object<'_>> {
    // SAFETY: the caller's contract is this function's.
    unsafe { Bound::from_owned_ptr_or_opt(py, pointer) }.ok_or(Raised)
}

/// A borrowed reference returned by CPython, made owned: `NULL` is `None`.
///
/// # Safety
/// `pointer` is `NULL` or a valid reference.
#[inline(always)]
pub(crate) unsafe fn cloned(py: Python<'_>, pointer: *mut ffi::PyObject) -> Option<Object<'_>> {
    // SAFETY: the caller's contract is this function's.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, pointer) }
}

/// The result of a CPython function that returns a negative number with an exception set.
#[inline(always)]
pub(crate) fn status(result: std::ffi::c_int) -> Result<std::ffi::c_int> {
    if result < 0 { Err(Raised) } else { Ok(result) }
}
