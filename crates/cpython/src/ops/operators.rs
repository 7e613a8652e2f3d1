//! Operators, items, truth, formatting.

use std::ptr;

use pyo3::ffi::{self, PyObject};

pub use stator_bytecode::{BinaryOp, CompareOp, UnaryOp};

use crate::object::{Borrowed, Object, owned, status};
use crate::raised::{Raised, Result};

/// Whether `sum` keeps what each addition of floats rounds away, and adds that at the end.
pub const SUM_COMPENSATES: bool = cfg!(Py_3_12);

type BinaryFunction = unsafe extern "C" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;

unsafe extern "C" fn power(left: *mut PyObject, right: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller gives valid objects.
    unsafe { ffi::PyNumber_Power(left, right, ffi::Py_None()) }
}

unsafe extern "C" fn in_place_power(left: *mut PyObject, right: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller gives valid objects.
    unsafe { ffi::PyNumber_InPlacePower(left, right, ffi::Py_None()) }
}

/// What computes each binary operator, by `BINARY_OP`'s argument.
static FUNCTIONS: [BinaryFunction; 26] = [
    ffi::PyNumber_Add,
    ffi::PyNumber_And,
    ffi::PyNumber_FloorDivide,
    ffi::PyNumber_Lshift,
    ffi::PyNumber_MatrixMultiply,
    ffi::PyNumber_Multiply,
    ffi::PyNumber_Remainder,
    ffi::PyNumber_Or,
    power,
    ffi::PyNumber_Rshift,
    ffi::PyNumber_Subtract,
    ffi::PyNumber_TrueDivide,
    ffi::PyNumber_Xor,
    ffi::PyNumber_InPlaceAdd,
    ffi::PyNumber_InPlaceAnd,
    ffi::PyNumber_InPlaceFloorDivide,
    ffi::PyNumber_InPlaceLshift,
    ffi::PyNumber_InPlaceMatrixMultiply,
    ffi::PyNumber_InPlaceMultiply,
    ffi::PyNumber_InPlaceRemainder,
    ffi::PyNumber_InPlaceOr,
    in_place_power,
    ffi::PyNumber_InPlaceRshift,
    ffi::PyNumber_InPlaceSubtract,
    ffi::PyNumber_InPlaceTrueDivide,
    ffi::PyNumber_InPlaceXor,
];

/// A unary operation.
#[inline]
pub fn unary<'py>(op: UnaryOp, operand: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    super::begin()?;
    let function = match op {
        UnaryOp::Positive => ffi::PyNumber_Positive,
        UnaryOp::Negative => ffi::PyNumber_Negative,
        UnaryOp::Invert => ffi::PyNumber_Invert,
    };
    // SAFETY: a valid object.
    unsafe { owned(operand.py(), function(operand.as_ptr())) }
}

/// A binary operation, in-place forms included.
#[inline]
pub fn binary<'py>(
    op: BinaryOp,
    left: Borrowed<'_, 'py>,
    right: Borrowed<'_, 'py>,
) -> Result<Object<'py>> {
    super::begin()?;
    // SAFETY: valid objects.
    unsafe { owned(left.py(), FUNCTIONS[op as usize](left.as_ptr(), right.as_ptr())) }
}

/// A comparison; its result needn't be a `bool`.
#[inline]
pub fn compare<'py>(
    op: CompareOp,
    left: Borrowed<'_, 'py>,
    right: Borrowed<'_, 'py>,
) -> Result<Object<'py>> {
    super::begin()?;
    // SAFETY: valid objects, and a comparison that the C API knows.
    unsafe {
        let result = ffi::PyObject_RichCompare(left.as_ptr(), right.as_ptr(), op as i32);
        owned(left.py(), result)
    }
}

/// `item in container`.
#[inline]
pub fn contains(container: Borrowed<'_, '_>, item: Borrowed<'_, '_>) -> Result<bool> {
    super::begin()?;
    // SAFETY: valid objects.
    let found = unsafe { ffi::PySequence_Contains(container.as_ptr(), item.as_ptr()) };
    Ok(status(found)? != 0)
}

/// The truth value of `True`, `False` and `None`, which nothing is asked for.
#[inline(always)]
pub fn plain_truth(operand: Borrowed<'_, '_>) -> Option<bool> {
    // SAFETY: static objects.
    let [yes, no, none] = unsafe { [ffi::Py_True(), ffi::Py_False(), ffi::Py_None()] };
    match operand.as_ptr() {
        found if found == yes => Some(true),
        found if found == no || found == none => Some(false),
        _ => None,
    }
}

/// The truth value.
#[inline]
pub fn truth(operand: Borrowed<'_, '_>) -> Result<bool> {
    super::begin()?;
    // SAFETY: a valid object.
    Ok(status(unsafe { ffi::PyObject_IsTrue(operand.as_ptr()) })? != 0)
}

/// `owner[key]`.
#[inline]
pub fn get_item<'py>(owner: Borrowed<'_, 'py>, key: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    super::begin()?;
    // SAFETY: valid objects.
    unsafe { owned(owner.py(), ffi::PyObject_GetItem(owner.as_ptr(), key.as_ptr())) }
}

/// `owner[key] = value`, or `del owner[key]`.
#[inline]
pub fn set_item<'py>(
    owner: Borrowed<'_, 'py>,
    key: Borrowed<'_, 'py>,
    value: Option<Borrowed<'_, 'py>>,
) -> Result<()> {
    super::begin()?;
    // SAFETY: valid objects.
    status(unsafe {
        match value {
            Some(value) => ffi::PyObject_SetItem(owner.as_ptr(), key.as_ptr(), value.as_ptr()),
            None => ffi::PyObject_DelItem(owner.as_ptr(), key.as_ptr()),
        }
    })?;
    Ok(())
}

fn converted<'py>(value: Borrowed<'_, 'py>, conversion: u32) -> Result<Object<'py>> {
    let py = value.py();
    // SAFETY: a valid object.
    unsafe {
        match conversion {
            0 => Ok(value.to_owned()),
            1 => owned(py, ffi::PyObject_Str(value.as_ptr())),
            2 => owned(py, ffi::PyObject_Repr(value.as_ptr())),
            3 => owned(py, ffi::PyObject_ASCII(value.as_ptr())),
            _ => Err(Raised::system_error(py, c"unexpected conversion flag")),
        }
    }
}

/// `CONVERT_VALUE`: what [`format`] begins with.
pub fn convert<'py>(value: Borrowed<'_, 'py>, conversion: u32) -> Result<Object<'py>> {
    super::begin()?;
    converted(value, conversion)
}

/// `FORMAT_VALUE`: `conversion` is 0 (none), 1 (str), 2 (repr) or 3 (ascii).
pub fn format<'py>(
    value: Borrowed<'_, 'py>,
    conversion: u32,
    spec: Option<Borrowed<'_, 'py>>,
) -> Result<Object<'py>> {
    super::begin()?;
    let py = value.py();
    let converted = converted(value, conversion)?;
    // SAFETY: valid objects; the specification is a string, or null for none.
    unsafe {
        if spec.is_none() && ffi::PyUnicode_CheckExact(converted.as_ptr()) != 0 {
            return Ok(converted);
        }
        let spec = spec.map_or(ptr::null_mut(), |spec| spec.as_ptr());
        owned(py, ffi::PyObject_Format(converted.as_ptr(), spec))
    }
}
