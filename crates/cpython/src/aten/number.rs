//! Numbers of the arithmetic (`c10::Scalar`).

use pyo3::IntoPyObjectExt;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::object::Object;

/// A `Scalar` that Python makes of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An `int`.
    Int(i64),
    /// A `bool`.
    Bool(bool),
    /// A `float`.
    Float(f64),
}

impl Number {
    /// The number that an exact `int`, `bool` or `float` is; `None` of others, and of those that don't fit.
    #[inline]
    #[must_use]
    pub fn of(object: Borrowed<'_, '_, PyAny>) -> Option<Self> {
        let pointer = object.as_ptr();
        // SAFETY: a live object under the GIL; an exact float has a value.
        unsafe {
            if ffi::PyFloat_CheckExact(pointer) != 0 {
                return Some(Self::Float(ffi::PyFloat_AS_DOUBLE(pointer)));
            }
            if ffi::PyBool_Check(pointer) != 0 {
                return Some(Self::Bool(pointer == ffi::Py_True()));
            }
        }
        int(object).map(Self::Int)
    }

    /// Its `Tag`, and the bits of its value.
    pub(super) fn parts(self) -> (u64, u64) {
        match self {
            Self::Float(value) => (FLOAT, value.to_bits()),
            Self::Int(value) => (INT, value as u64),
            Self::Bool(value) => (BOOL, u64::from(value)),
        }
    }

    /// The number of these parts; `None`: it's of another kind.
    pub(super) fn from_parts(tag: u64, bits: u64) -> Option<Self> {
        // The tag is an `int`, the value of a `bool` a byte.
        Some(match tag & 0xffff_ffff {
            FLOAT => Self::Float(f64::from_bits(bits)),
            INT => Self::Int(bits as i64),
            BOOL => Self::Bool(bits & 0xff != 0),
            _ => return None,
        })
    }

    /// As an object of Python's.
    ///
    /// # Errors
    /// If there is no memory.
    pub(super) fn to_object(self, py: Python<'_>) -> PyResult<Object<'_>> {
        match self {
            Self::Float(value) => value.into_bound_py_any(py),
            Self::Int(value) => value.into_bound_py_any(py),
            Self::Bool(value) => value.into_bound_py_any(py),
        }
    }
}

// Tags of a `c10::Scalar`.
const FLOAT: u64 = 0;
const INT: u64 = 1;
const BOOL: u64 = 4;

/// The value of an exact `int` that fits.
#[inline]
pub(super) fn int(object: Borrowed<'_, '_, PyAny>) -> Option<i64> {
    // SAFETY: a live object under the GIL; no error is left behind.
    unsafe {
        if ffi::PyLong_CheckExact(object.as_ptr()) == 0 {
            return None;
        }
        let mut overflow = 0;
        let value = ffi::PyLong_AsLongLongAndOverflow(object.as_ptr(), &mut overflow);
        (overflow == 0).then_some(value)
    }
}
