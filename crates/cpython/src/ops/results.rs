//! What builtin functions do with the results of special methods, where somebody else has called
//! those: the checks, conversions and messages of `len`, `float`, `str`, `hash` and such.
//!
//! A result of the very type that is asked for is handed on. Of another one it depends, and a warning
//! may be given: [`is_plain`] tells the two apart before anything is done.

use pyo3::exceptions::{PyDeprecationWarning, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyString};
use pyo3::{PyTypeInfo, ffi};

use super::special::short_type_name;
use crate::object::{Borrowed, Object, owned};
use crate::raised::{Raised, Result};

/// What a special method's result becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conversion {
    /// `__len__`'s, in `len`.
    Length,
    /// `__float__`'s, in `float`.
    Float,
    /// `__index__`'s, in `float`.
    FloatOfIndex,
    /// `__int__`'s, in `int`.
    Int,
    /// `__index__`'s, in `int` and `operator.index`.
    Index,
    /// `__str__`'s, in `str`; `__repr__`'s, where `__str__` is the default one.
    Str,
    /// `__repr__`'s, in `repr`.
    Repr,
    /// `__format__`'s, in `format`.
    Format,
    /// `__hash__`'s, in `hash`.
    Hash,
}

impl Conversion {
    /// Whether nothing but a value of the builtin type comes of a result: no warning, no other method.
    #[must_use]
    pub fn is_plain(self, result: Borrowed<'_, '_>) -> bool {
        match self {
            Self::Length | Self::FloatOfIndex | Self::Int | Self::Index | Self::Hash => {
                result.is_exact_instance_of::<PyInt>()
            }
            Self::Float => result.is_exact_instance_of::<PyFloat>(),
            Self::Str | Self::Repr | Self::Format => result.is_instance_of::<PyString>(),
        }
    }

    /// Converts the result of a method of `object`.
    ///
    /// # Errors
    /// What the builtin function raises for such a result, a warning that is an error included.
    pub fn apply<'py>(self, object: Borrowed<'_, 'py>, result: Object<'py>) -> Result<Object<'py>> {
        match self {
            Self::Length => {
                let length = super::checked_length(result.as_borrowed())?;
                let length = length.into_pyobject(object.py());
                length.map(Bound::into_any).map_err(|error| match error {})
            }
            Self::Float => to_float(object, result),
            Self::FloatOfIndex => {
                let index = to_int("__index__", result)?;
                // SAFETY: an integer; -1.0 may come with an exception.
                let value = unsafe { ffi::PyLong_AsDouble(index.as_ptr()) };
                new_float(object.py(), value)
            }
            Self::Int => to_int("__int__", result),
            Self::Index => to_int("__index__", result),
            Self::Str => to_text("__str__ returned non-string (type ", ")", result),
            Self::Repr => to_text("__repr__ returned non-string (type ", ")", result),
            Self::Format => to_text("__format__ must return a str, not ", "", result),
            Self::Hash => to_hash(result),
        }
    }
}

fn refuse(py: Python<'_>, message: String) -> Raised {
    Raised::set(py, PyTypeError::new_err(message))
}

/// Warns of a result whose type derives from the one that is asked for.
fn deprecate(py: Python<'_>, what: &str, ty: &str) -> Result<()> {
    let message = format!(
        "{what}.  The ability to return an instance of a strict subclass of {ty} is deprecated, and may \
         be removed in a future version of Python."
    );
    let message = std::ffi::CString::new(message).unwrap_or_default();
    let category = PyDeprecationWarning::type_object(py);
    PyErr::warn(py, category.as_any(), &message, 1).map_err(|error| Raised::set(py, error))
}

fn to_float<'py>(object: Borrowed<'_, 'py>, result: Object<'py>) -> Result<Object<'py>> {
    if result.is_exact_instance_of::<PyFloat>() {
        return Ok(result);
    }
    let py = object.py();
    let (owner, ty) = (short_type_name(object, 50), short_type_name(result.as_borrowed(), 50));
    let what = format!("{owner}.__float__ returned non-float (type {ty})");
    if !result.is_instance_of::<PyFloat>() {
        return Err(refuse(py, what));
    }
    deprecate(py, &what, "float")?;
    // SAFETY: an instance of `float`, whose value is read as it is.
    let value = unsafe { ffi::PyFloat_AS_DOUBLE(result.as_ptr()) };
    new_float(py, value)
}

/// A float, unless an exception is set.
fn new_float(py: Python<'_>, value: f64) -> Result<Object<'_>> {
    // SAFETY: no precondition.
    if value == -1.0 && !unsafe { ffi::PyErr_Occurred() }.is_null() {
        return Err(Raised);
    }
    Ok(PyFloat::new(py, value).into_any())
}

fn to_int<'py>(method: &str, result: Object<'py>) -> Result<Object<'py>> {
    if result.is_exact_instance_of::<PyInt>() {
        return Ok(result);
    }
    let py = result.py();
    let ty = short_type_name(result.as_borrowed(), 200);
    let what = format!("{method} returned non-int (type {ty})");
    if !result.is_instance_of::<PyInt>() {
        return Err(refuse(py, what));
    }
    deprecate(py, &what, "int")?;
    // SAFETY: an instance of `int`, of which this makes an exact copy without asking its class.
    unsafe { owned(py, ffi::PyNumber_Index(result.as_ptr())) }
}

fn to_text<'py>(before: &str, behind: &str, result: Object<'py>) -> Result<Object<'py>> {
    if result.is_instance_of::<PyString>() {
        return Ok(result);
    }
    let ty = short_type_name(result.as_borrowed(), 200);
    Err(refuse(result.py(), format!("{before}{ty}{behind}")))
}

fn to_hash(result: Object<'_>) -> Result<Object<'_>> {
    let py = result.py();
    if !result.is_instance_of::<PyInt>() {
        return Err(refuse(py, "__hash__ method should return an integer".into()));
    }
    // SAFETY: an instance of `int`, whose own hash is asked for where its value is no machine word.
    let hash = unsafe {
        let mut hash = ffi::PyLong_AsSsize_t(result.as_ptr());
        if hash == -1 && !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
            let of_int = (*PyInt::type_object_raw(py)).tp_hash;
            hash = of_int.map_or(0, |of_int| of_int(result.as_ptr()));
        }
        if hash == -1 { -2 } else { hash }
    };
    let hash = hash.into_pyobject(py);
    hash.map(Bound::into_any).map_err(|error| match error {})
}
