//! What CPython does with the result of a special method, where somebody else has called it: checks
//! of the result, and the methods that it asks next.

use std::ffi::CStr;

use pyo3::exceptions::{PyStopIteration, PyTypeError, PyValueError};
use pyo3::types::{PyBool, PyString};
use pyo3::{ffi, intern, prelude::*};

use super::operators::{BinaryOp, CompareOp};
use crate::ffi as shim;
use crate::generic;
use crate::heap::types;
use crate::object::{Borrowed, Object, owned};
use crate::raised::{Raised, Result};

/// Which methods of an operator have been asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    /// The left operand's method for augmented assignment.
    InPlace,
    /// The left operand's method.
    Left,
    /// All that there are: `NotImplemented` becomes an error.
    Both,
    /// All that there are: `NotImplemented` is a result.
    Only,
}

/// Whether an object is `NotImplemented`.
#[inline]
pub fn is_not_implemented(object: &Object<'_>) -> bool {
    // SAFETY: a static object.
    object.as_ptr() == unsafe { ffi::Py_NotImplemented() }
}

/// The name that error messages give a type, no longer than that.
pub(super) fn short_type_name(object: Borrowed<'_, '_>, most: usize) -> String {
    // SAFETY: a live object; a type's name is a C string that lives as long as the type.
    let name = unsafe { CStr::from_ptr((*ffi::Py_TYPE(object.as_ptr())).tp_name) };
    name.to_string_lossy().chars().take(most).collect()
}

fn type_name(object: Borrowed<'_, '_>) -> String {
    short_type_name(object, 100)
}

fn type_of(object: Borrowed<'_, '_>) -> *mut ffi::PyTypeObject {
    // SAFETY: a live object.
    unsafe { ffi::Py_TYPE(object.as_ptr()) }
}

/// The function in a slot of numbers.
#[derive(Clone, Copy)]
enum NumberSlot {
    Binary(ffi::binaryfunc),
    /// `**`, whose third operand is `None` where it is written as an operator.
    Ternary(ffi::ternaryfunc),
}

impl NumberSlot {
    fn address(self) -> usize {
        match self {
            Self::Binary(slot) => slot as usize,
            Self::Ternary(slot) => slot as usize,
        }
    }

    fn call<'py>(self, left: Borrowed<'_, 'py>, right: Borrowed<'_, 'py>) -> Result<Object<'py>> {
        let (py, left, right) = (left.py(), left.as_ptr(), right.as_ptr());
        // SAFETY: slots take objects, any of which may be the slot's own.
        unsafe {
            match self {
                Self::Binary(slot) => owned(py, slot(left, right)),
                Self::Ternary(slot) => owned(py, slot(left, right, ffi::Py_None())),
            }
        }
    }
}

/// The slot that an operator calls, not the one of its augmented assignment.
fn number_slot(op: BinaryOp, object: Borrowed<'_, '_>) -> Option<NumberSlot> {
    use BinaryOp as B;
    // SAFETY: a live type's table of number slots, if it has one.
    let slots = unsafe { (*type_of(object)).tp_as_number.as_ref() }?;
    let slot = match op {
        B::Add | B::InPlaceAdd => slots.nb_add,
        B::And | B::InPlaceAnd => slots.nb_and,
        B::FloorDivide | B::InPlaceFloorDivide => slots.nb_floor_divide,
        B::Lshift | B::InPlaceLshift => slots.nb_lshift,
        B::MatrixMultiply | B::InPlaceMatrixMultiply => slots.nb_matrix_multiply,
        B::Multiply | B::InPlaceMultiply => slots.nb_multiply,
        B::Remainder | B::InPlaceRemainder => slots.nb_remainder,
        B::Or | B::InPlaceOr => slots.nb_or,
        B::Rshift | B::InPlaceRshift => slots.nb_rshift,
        B::Subtract | B::InPlaceSubtract => slots.nb_subtract,
        B::TrueDivide | B::InPlaceTrueDivide => slots.nb_true_divide,
        B::Xor | B::InPlaceXor => slots.nb_xor,
        B::Power | B::InPlacePower => return slots.nb_power.map(NumberSlot::Ternary),
    };
    slot.map(NumberSlot::Binary)
}

/// The name of the method that the right operand is asked for.
fn reflected(op: BinaryOp) -> &'static str {
    use BinaryOp as B;
    match op {
        B::Add | B::InPlaceAdd => "__radd__",
        B::And | B::InPlaceAnd => "__rand__",
        B::FloorDivide | B::InPlaceFloorDivide => "__rfloordiv__",
        B::Lshift | B::InPlaceLshift => "__rlshift__",
        B::MatrixMultiply | B::InPlaceMatrixMultiply => "__rmatmul__",
        B::Multiply | B::InPlaceMultiply => "__rmul__",
        B::Remainder | B::InPlaceRemainder => "__rmod__",
        B::Or | B::InPlaceOr => "__ror__",
        B::Power | B::InPlacePower => "__rpow__",
        B::Rshift | B::InPlaceRshift => "__rrshift__",
        B::Subtract | B::InPlaceSubtract => "__rsub__",
        B::TrueDivide | B::InPlaceTrueDivide => "__rtruediv__",
        B::Xor | B::InPlaceXor => "__rxor__",
    }
}

/// Whether an operand has methods of sequences (`+` that concatenates, `*` that repeats), which are
/// asked behind those of numbers; [`binary_rest`] doesn't ask them.
#[must_use]
pub fn is_sequence_operand(object: Borrowed<'_, '_>) -> bool {
    // SAFETY: a live type's table of sequence slots, if it has one.
    let slots = unsafe { (*type_of(object)).tp_as_sequence.as_ref() };
    slots.is_some_and(|slots| slots.sq_concat.is_some() || slots.sq_repeat.is_some())
}

/// Whether CPython asks the right operand before the left one: its class derives from the other's.
#[must_use]
pub fn asks_right_first(left: Borrowed<'_, '_>, right: Borrowed<'_, '_>) -> bool {
    let (left, right) = (type_of(left), type_of(right));
    // SAFETY: live types.
    left != right && unsafe { ffi::PyType_IsSubtype(right, left) } != 0
}

/// A binary operator whose first method has returned `NotImplemented`: the others, or the error.
/// Neither operand has methods of sequences.
///
/// # Errors
/// What the methods raise; `TypeError` if none takes the operands.
pub fn binary_rest<'py>(
    op: BinaryOp,
    asked: Asked,
    left: Borrowed<'_, 'py>,
    right: Borrowed<'_, 'py>,
) -> Result<Object<'py>> {
    super::count();
    let py = left.py();
    let (of_left, of_right) = (number_slot(op, left), number_slot(op, right));
    let same_type = type_of(left) == type_of(right);
    let same_slot = of_left.map(NumberSlot::address) == of_right.map(NumberSlot::address);
    let mut asks: [Option<NumberSlot>; 2] = [None, None];
    match asked {
        Asked::Both | Asked::Only => {}
        // One slot function serves both operands: it would begin with the left one again.
        Asked::Left if same_slot => {
            if !same_type && let Some(result) = ask_reflected(op, left, right)? {
                return Ok(result);
            }
        }
        Asked::Left => asks = [of_right, None],
        Asked::InPlace => {
            let of_right = of_right.filter(|_| !same_type && !same_slot);
            asks = if asks_right_first(left, right) {
                [of_right, of_left]
            } else {
                [of_left, of_right]
            };
        }
    }
    for slot in asks.into_iter().flatten() {
        let result = slot.call(left, right)?;
        if !is_not_implemented(&result) {
            return Ok(result);
        }
    }
    let symbol = match op {
        BinaryOp::Power => "** or pow()",
        _ => op.symbol(),
    };
    let (left, right) = (type_name(left), type_name(right));
    let message = format!("unsupported operand type(s) for {symbol}: '{left}' and '{right}'");
    Err(Raised::set(py, PyTypeError::new_err(message)))
}

/// The right operand's reflected method; `None`: it has none, or refuses.
fn ask_reflected<'py>(
    op: BinaryOp,
    left: Borrowed<'_, 'py>,
    right: Borrowed<'_, 'py>,
) -> Result<Option<Object<'py>>> {
    let py = left.py();
    let name = PyString::intern(py, reflected(op));
    // SAFETY: valid objects; null without an exception means that the type lacks it.
    let method = unsafe {
        let found = shim::_PyObject_LookupSpecial(right.as_ptr(), name.as_ptr());
        if found.is_null() && ffi::PyErr_Occurred().is_null() {
            return Ok(None);
        }
        owned(py, found)?
    };
    let result = super::call(method.as_borrowed(), &[left], None)?;
    Ok((!is_not_implemented(&result)).then_some(result))
}

/// A comparison whose first method has returned `NotImplemented`: the other, the default, or the
/// error.
///
/// # Errors
/// What the method raises; `TypeError` if there is no order.
pub fn compare_rest<'py>(
    op: CompareOp,
    asked: Asked,
    left: Borrowed<'_, 'py>,
    right: Borrowed<'_, 'py>,
) -> Result<Object<'py>> {
    super::count();
    let py = left.py();
    if asked == Asked::Left {
        // SAFETY: a live type's slot, called with an object of it.
        let result = unsafe {
            match (*type_of(right)).tp_richcompare {
                Some(slot) => {
                    Some(owned(py, slot(right.as_ptr(), left.as_ptr(), op.reflected() as i32))?)
                }
                None => None,
            }
        };
        if let Some(result) = result.filter(|result| !is_not_implemented(result)) {
            return Ok(result);
        }
    }
    let same = left.as_ptr() == right.as_ptr();
    let value = match op {
        CompareOp::Eq => same,
        CompareOp::Ne => !same,
        _ => {
            let (symbol, left, right) = (op.symbol(), type_name(left), type_name(right));
            let message =
                format!("'{symbol}' not supported between instances of '{left}' and '{right}'");
            return Err(Raised::set(py, PyTypeError::new_err(message)));
        }
    };
    Ok(PyBool::new(py, value).to_owned().into_any())
}

/// `__getattr__`, as the set `AttributeError` asks for it; `None`, and the error stays: there is none.
pub fn getattr_hook<'py>(
    owner: Borrowed<'_, 'py>,
    name: Borrowed<'_, 'py>,
) -> Option<Result<Object<'py>>> {
    let py = owner.py();
    let hook_name = intern!(py, "__getattr__");
    let ty = owner.get_type();
    // A lookup takes an exception that is set for one of its own, and drops it.
    let asked = PyErr::take(py);
    if types::lookup(ty.as_borrowed(), hook_name.as_any().as_borrowed()).is_none() {
        if let Some(asked) = asked {
            asked.restore(py);
        }
        return None;
    }
    drop(asked);
    let message = c"'%.200s' object has no attribute '__getattr__'";
    let hook = super::attributes::special(owner, hook_name, message);
    Some(hook.and_then(|hook| super::call(hook.as_borrowed(), &[name], None)))
}

/// What `__iter__` returned: it must be an iterator.
///
/// # Errors
/// `TypeError` if it isn't.
pub fn checked_iterator(iterator: Object<'_>) -> Result<Object<'_>> {
    // SAFETY: a live object.
    if unsafe { ffi::PyIter_Check(iterator.as_ptr()) } != 0 {
        return Ok(iterator);
    }
    let name = type_name(iterator.as_borrowed());
    let message = format!("iter() returned non-iterator of type '{name}'");
    Err(Raised::set(iterator.py(), PyTypeError::new_err(message)))
}

/// Whether the set exception ends an iteration; if so, it is cleared.
pub fn is_exhausted(py: Python<'_>) -> bool {
    let ends = generic::exception_matches::<PyStopIteration>(py);
    if ends {
        generic::clear_exception(py);
    }
    ends
}

/// What `__bool__` returned: it must be `True` or `False`.
///
/// # Errors
/// `TypeError` if it isn't.
pub fn checked_bool(value: Borrowed<'_, '_>) -> Result<bool> {
    match value.cast::<PyBool>() {
        Ok(value) => Ok(value.is_true()),
        Err(_) => {
            let name = type_name(value);
            let message = format!("__bool__ should return bool, returned {name}");
            Err(Raised::set(value.py(), PyTypeError::new_err(message)))
        }
    }
}

/// What `__len__` returned.
///
/// # Errors
/// As `len` fails.
pub fn checked_length(value: Borrowed<'_, '_>) -> Result<usize> {
    let py = value.py();
    // SAFETY: valid objects; the exception type is static.
    let length = unsafe {
        let index = owned(py, ffi::PyNumber_Index(value.as_ptr()))?;
        let length = ffi::PyNumber_AsSsize_t(index.as_ptr(), ffi::PyExc_OverflowError);
        if length == -1 && !ffi::PyErr_Occurred().is_null() {
            let is_negative = index.lt(0).unwrap_or(false);
            if !is_negative {
                return Err(Raised);
            }
            generic::clear_exception(py);
        }
        length
    };
    usize::try_from(length)
        .map_err(|_| Raised::set(py, PyValueError::new_err("__len__() should return >= 0")))
}
