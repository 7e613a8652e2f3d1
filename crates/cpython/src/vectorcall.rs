//! Calls and operators on borrowed references: what replaying a graph does all day.
//!
//! Nothing here allocates or looks a name up. PyO3's own calls take owned tuples or fixed numbers
//! of arguments; a replay has a slice of borrowed pointers and a ready tuple of keyword names.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::object::{Borrowed, Object};

/// Calls `callable`. The last arguments are those of `keywords`, as in a vectorcall.
///
/// # Errors
/// What the callable raises.
///
/// # Panics
/// If there are more keywords than arguments.
#[inline]
pub fn call<'py>(
    callable: Borrowed<'_, 'py>,
    args: &[Borrowed<'_, 'py>],
    keywords: Option<&Bound<'py, PyTuple>>,
) -> PyResult<Object<'py>> {
    let positional = positional_count(args, keywords);
    let names = keywords.map_or(std::ptr::null_mut(), Bound::as_ptr);
    // SAFETY: `Borrowed` is `repr(transparent)` over a non-null object pointer, so the slice is an
    // array of live object pointers; `positional` plus the length of `names` is its length; the
    // names are a tuple (of strings: that is checked by the callee); the GIL is held ('py). The
    // result is a new reference or null with an error set.
    unsafe {
        let args = args.as_ptr().cast::<*mut ffi::PyObject>();
        let result = ffi::PyObject_Vectorcall(callable.as_ptr(), args, positional, names);
        Bound::from_owned_ptr_or_err(callable.py(), result)
    }
}

/// Calls the method `name` of the first argument with the others, without making a bound method.
///
/// # Errors
/// What the method raises, or `AttributeError`.
///
/// # Panics
/// If there is no positional argument.
#[inline]
pub fn call_method<'py>(
    name: &Bound<'py, PyString>,
    args: &[Borrowed<'_, 'py>],
    keywords: Option<&Bound<'py, PyTuple>>,
) -> PyResult<Object<'py>> {
    let positional = positional_count(args, keywords);
    assert!(positional > 0, "a method call needs an object");
    let names = keywords.map_or(std::ptr::null_mut(), Bound::as_ptr);
    // SAFETY: as in `call`; the first element, whose method is looked up, exists.
    unsafe {
        let args = args.as_ptr().cast::<*mut ffi::PyObject>();
        let result = ffi::PyObject_VectorcallMethod(name.as_ptr(), args, positional, names);
        Bound::from_owned_ptr_or_err(name.py(), result)
    }
}

#[inline]
fn positional_count(args: &[Borrowed<'_, '_>], keywords: Option<&Bound<'_, PyTuple>>) -> usize {
    let named = keywords.map_or(0, |names| names.len());
    args.len().checked_sub(named).expect("each keyword names one of the last arguments")
}

type Unary = unsafe fn(*mut ffi::PyObject) -> *mut ffi::PyObject;
type Binary = unsafe fn(*mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;

/// An operator with one operand, as a function of the C API.
#[derive(Clone, Copy, Debug)]
pub struct UnaryFunction(Unary);

/// An operator with two operands, as a function of the C API.
#[derive(Clone, Copy, Debug)]
pub struct BinaryFunction(Binary);

impl UnaryFunction {
    /// The operator with this name in Python's `operator` module.
    pub fn by_name(name: &str) -> Option<Self> {
        UNARY.iter().find(|(known, _)| *known == name).map(|&(_, function)| Self(function))
    }

    /// Applies it.
    ///
    /// # Errors
    /// What the operand's type raises.
    #[inline]
    pub fn call<'py>(self, operand: Borrowed<'_, 'py>) -> PyResult<Object<'py>> {
        // SAFETY: all functions of the table take a live object under the GIL and return a new
        // reference, or null with an error set.
        unsafe { Bound::from_owned_ptr_or_err(operand.py(), self.0(operand.as_ptr())) }
    }
}

impl BinaryFunction {
    /// The operator with this name in Python's `operator` module.
    pub fn by_name(name: &str) -> Option<Self> {
        BINARY.iter().find(|(known, _)| *known == name).map(|&(_, function)| Self(function))
    }

    /// Applies it.
    ///
    /// # Errors
    /// What the operands' types raise.
    #[inline]
    pub fn call<'py>(
        self,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> PyResult<Object<'py>> {
        // SAFETY: all functions of the table take live objects under the GIL and return a new
        // reference, or null with an error set.
        unsafe { Bound::from_owned_ptr_or_err(left.py(), self.0(left.as_ptr(), right.as_ptr())) }
    }
}

/// Wraps a C function, so that calls of different shapes share one pointer type.
macro_rules! wrapped {
    (|$($operand:ident),*| $call:expr) => {{
        unsafe fn wrapper($($operand: *mut ffi::PyObject),*) -> *mut ffi::PyObject {
            // SAFETY: the caller hands in live objects and holds the GIL.
            unsafe { $call }
        }
        wrapper
    }};
}

const UNARY: &[(&str, Unary)] = &[
    ("neg", wrapped!(|a| ffi::PyNumber_Negative(a))),
    ("pos", wrapped!(|a| ffi::PyNumber_Positive(a))),
    ("invert", wrapped!(|a| ffi::PyNumber_Invert(a))),
];

const BINARY: &[(&str, Binary)] = &[
    ("add", wrapped!(|a, b| ffi::PyNumber_Add(a, b))),
    ("sub", wrapped!(|a, b| ffi::PyNumber_Subtract(a, b))),
    ("mul", wrapped!(|a, b| ffi::PyNumber_Multiply(a, b))),
    ("floordiv", wrapped!(|a, b| ffi::PyNumber_FloorDivide(a, b))),
    ("truediv", wrapped!(|a, b| ffi::PyNumber_TrueDivide(a, b))),
    ("mod", wrapped!(|a, b| ffi::PyNumber_Remainder(a, b))),
    ("pow", wrapped!(|a, b| ffi::PyNumber_Power(a, b, ffi::Py_None()))),
    ("lshift", wrapped!(|a, b| ffi::PyNumber_Lshift(a, b))),
    ("rshift", wrapped!(|a, b| ffi::PyNumber_Rshift(a, b))),
    ("and_", wrapped!(|a, b| ffi::PyNumber_And(a, b))),
    ("or_", wrapped!(|a, b| ffi::PyNumber_Or(a, b))),
    ("xor", wrapped!(|a, b| ffi::PyNumber_Xor(a, b))),
    ("matmul", wrapped!(|a, b| ffi::PyNumber_MatrixMultiply(a, b))),
    ("getitem", wrapped!(|a, b| ffi::PyObject_GetItem(a, b))),
    ("eq", wrapped!(|a, b| ffi::PyObject_RichCompare(a, b, ffi::Py_EQ))),
    ("ne", wrapped!(|a, b| ffi::PyObject_RichCompare(a, b, ffi::Py_NE))),
    ("lt", wrapped!(|a, b| ffi::PyObject_RichCompare(a, b, ffi::Py_LT))),
    ("gt", wrapped!(|a, b| ffi::PyObject_RichCompare(a, b, ffi::Py_GT))),
    ("le", wrapped!(|a, b| ffi::PyObject_RichCompare(a, b, ffi::Py_LE))),
    ("ge", wrapped!(|a, b| ffi::PyObject_RichCompare(a, b, ffi::Py_GE))),
    ("iadd", wrapped!(|a, b| ffi::PyNumber_InPlaceAdd(a, b))),
    ("isub", wrapped!(|a, b| ffi::PyNumber_InPlaceSubtract(a, b))),
    ("imul", wrapped!(|a, b| ffi::PyNumber_InPlaceMultiply(a, b))),
    ("ifloordiv", wrapped!(|a, b| ffi::PyNumber_InPlaceFloorDivide(a, b))),
    ("itruediv", wrapped!(|a, b| ffi::PyNumber_InPlaceTrueDivide(a, b))),
    ("imod", wrapped!(|a, b| ffi::PyNumber_InPlaceRemainder(a, b))),
    ("ipow", wrapped!(|a, b| ffi::PyNumber_InPlacePower(a, b, ffi::Py_None()))),
    ("ilshift", wrapped!(|a, b| ffi::PyNumber_InPlaceLshift(a, b))),
    ("irshift", wrapped!(|a, b| ffi::PyNumber_InPlaceRshift(a, b))),
    ("iand", wrapped!(|a, b| ffi::PyNumber_InPlaceAnd(a, b))),
    ("ior", wrapped!(|a, b| ffi::PyNumber_InPlaceOr(a, b))),
    ("ixor", wrapped!(|a, b| ffi::PyNumber_InPlaceXor(a, b))),
    ("imatmul", wrapped!(|a, b| ffi::PyNumber_InPlaceMatrixMultiply(a, b))),
];

/// The instance dictionary of an object, made if need be, without running any lookup hook.
///
/// # Errors
/// `AttributeError` if objects of its type have none.
pub fn instance_dict<'py>(object: Borrowed<'_, 'py>) -> PyResult<Bound<'py, PyDict>> {
    // SAFETY: a live object under the GIL; the context argument is unused by CPython and may be
    // null; the result is a new reference, or null with an error set.
    let dict = unsafe {
        let dict = ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(object.py(), dict)?
    };
    Ok(dict.cast_into::<PyDict>()?)
}
