//! Constants: objects that are immutable all the way down and whose equality is C code.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyComplex, PyFloat, PyInt, PyString, PyType};

use super::{Any, container, layout, torch, types, words};

/// Nesting deeper than this isn't taken for a constant.
const DEPTH: usize = 32;

/// The exact types that constants can have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Compared by pointer only: `None`, `...`, `NotImplemented`, booleans, `torch.dtype`, ....
    Singleton,
    /// Compared by CPython's own comparison: `str`, `int`, `bytes`, `torch.device`.
    Compared,
    /// Compared bit by bit.
    Float,
    Complex,
    Tuple,
    FrozenSet,
    Slice,
    Range,
}

fn kind(object: Any<'_, '_>) -> Option<Kind> {
    let ty = types::address_of(object);
    let is = |builtin: *mut ffi::PyTypeObject| ty == builtin as usize;
    if is(&raw mut ffi::PyUnicode_Type)
        || is(&raw mut ffi::PyLong_Type)
        || is(&raw mut ffi::PyBytes_Type)
    {
        return Some(Kind::Compared);
    }
    if is(&raw mut ffi::PyBool_Type) || object.is_none() || is(&raw mut ffi::PyEllipsis_Type) {
        return Some(Kind::Singleton);
    }
    if is(&raw mut ffi::PyFloat_Type) {
        return Some(Kind::Float);
    }
    if is(&raw mut ffi::PyTuple_Type) {
        return Some(Kind::Tuple);
    }
    if is(&raw mut ffi::PyFrozenSet_Type) {
        return Some(Kind::FrozenSet);
    }
    if is(&raw mut ffi::PySlice_Type) {
        return Some(Kind::Slice);
    }
    if is(&raw mut ffi::PyRange_Type) {
        return Some(Kind::Range);
    }
    if is(&raw mut ffi::PyComplex_Type) {
        return Some(Kind::Complex);
    }
    // SAFETY: the address of a singleton.
    if object.as_ptr() == unsafe { ffi::Py_NotImplemented() } {
        return Some(Kind::Singleton);
    }
    match torch::constant_type(object.py(), ty)? {
        torch::ConstantType::Singleton => Some(Kind::Singleton),
        torch::ConstantType::Device => Some(Kind::Compared),
        torch::ConstantType::Size => Some(Kind::Tuple),
    }
}

/// Whether the object is a constant: of an exact builtin immutable type (or `torch.dtype`,
/// `torch.device`, `torch.Size` and the like), and so are its elements.
#[inline]
#[must_use]
pub fn is_constant(object: Any<'_, '_>) -> bool {
    if types::address_of(object) == &raw mut ffi::PyUnicode_Type as usize {
        return true;
    }
    constant_within(object, DEPTH)
}

fn constant_within(object: Any<'_, '_>, depth: usize) -> bool {
    let Some(kind) = kind(object) else {
        return false;
    };
    let is_constant = |element: Bound<'_, PyAny>| constant_within(element.as_borrowed(), depth - 1);
    match kind {
        Kind::Singleton | Kind::Compared | Kind::Float | Kind::Complex => true,
        _ if depth == 0 => false,
        // The usual ones, without a list of what is in them.
        Kind::Tuple => tuple_items(object).all(is_constant),
        Kind::Slice => fields(object, layout::SLICE).into_iter().all(is_constant),
        _ => elements(object, kind).into_iter().all(is_constant),
    }
}

fn tuple_items<'py>(tuple: Any<'_, 'py>) -> impl Iterator<Item = Bound<'py, PyAny>> {
    let length = container::tuple_length(tuple).unwrap_or(0);
    (0..length).filter_map(move |index| container::tuple_item(tuple, index))
}

/// What a slice or a range was made of. The caller has asked for the exact type.
fn fields<'py>(object: Any<'_, 'py>, offsets: [usize; 3]) -> [Bound<'py, PyAny>; 3] {
    // SAFETY: a slice or range by its exact type: three object pointers, never null.
    offsets.map(|offset| unsafe {
        Bound::from_borrowed_ptr(object.py(), words::pointer(object.as_ptr(), offset))
    })
}

/// The elements of a compound constant, in order.
fn elements<'py>(object: Any<'_, 'py>, kind: Kind) -> Vec<Bound<'py, PyAny>> {
    match kind {
        Kind::Tuple => tuple_items(object).collect(),
        Kind::FrozenSet => container::set_items(object).unwrap_or_default(),
        Kind::Slice => fields(object, layout::SLICE).into(),
        Kind::Range => fields(object, layout::RANGE).into(),
        Kind::Singleton | Kind::Compared | Kind::Float | Kind::Complex => Vec::new(),
    }
}

/// Whether two objects are constants of the same exact type and value: floats bit by bit, tuples,
/// frozensets, slices and ranges element by element, in iteration order.
#[inline]
#[must_use]
pub fn equal(a: Any<'_, '_>, b: Any<'_, '_>) -> bool {
    if types::address_of(a) != types::address_of(b) {
        return false;
    }
    equal_within(a, b, DEPTH)
}

fn equal_within(a: Any<'_, '_>, b: Any<'_, '_>, depth: usize) -> bool {
    if types::address_of(a) != types::address_of(b) {
        return false;
    }
    let Some(kind) = kind(a) else { return false };
    if a.is(&*b) {
        return constant_within(a, depth);
    }
    match kind {
        Kind::Singleton => false,
        Kind::Compared => compared_equal(a, b),
        // SAFETY: exact floats.
        Kind::Float => unsafe {
            let bits = |object: Any<'_, '_>| ffi::PyFloat_AS_DOUBLE(object.as_ptr()).to_bits();
            bits(a) == bits(b)
        },
        // SAFETY: exact complex numbers; the conversion of those runs no user code.
        Kind::Complex => unsafe {
            let bits = |object: Any<'_, '_>| {
                let value = ffi::PyComplex_AsCComplex(object.as_ptr());
                (value.real.to_bits(), value.imag.to_bits())
            };
            bits(a) == bits(b)
        },
        Kind::Tuple | Kind::FrozenSet | Kind::Slice | Kind::Range => {
            let (left, right) = (elements(a, kind), elements(b, kind));
            depth > 0
                && left.len() == right.len()
                && left
                    .iter()
                    .zip(&right)
                    .all(|(a, b)| equal_within(a.as_borrowed(), b.as_borrowed(), depth - 1))
        }
    }
}

/// The plain value of a number, a text or bytes of a class of its own; `None`: it's no such object. No code of the class
/// runs.
#[must_use]
pub fn plain<'py>(object: Any<'_, 'py>) -> Option<Bound<'py, PyAny>> {
    let (base, method) = base_of(object)?;
    if object.get_type().is(&base) {
        return None;
    }
    base.call_method1(method, (object,)).ok().filter(|value| value.get_type().is(&base))
}

/// The builtin type of such an object's value, and the method of it that gives the plain value.
pub fn base_of<'py>(object: Any<'_, 'py>) -> Option<(Bound<'py, PyType>, &'static str)> {
    let py = object.py();
    if object.is_instance_of::<PyInt>() {
        Some((py.get_type::<PyInt>(), "__pos__"))
    } else if object.is_instance_of::<PyFloat>() {
        Some((py.get_type::<PyFloat>(), "__pos__"))
    } else if object.is_instance_of::<PyComplex>() {
        Some((py.get_type::<PyComplex>(), "__pos__"))
    } else if object.is_instance_of::<PyString>() {
        Some((py.get_type::<PyString>(), "__str__"))
    } else if object.is_instance_of::<PyBytes>() {
        Some((py.get_type::<PyBytes>(), "__bytes__"))
    } else {
        None
    }
}

/// Equality as dictionaries mean it (`1 == True == 1.0`), of a stored key with a constant. `None`
/// if the stored key isn't a constant, nor [one to every dictionary](types::is_valued): its type may define equality.
pub fn keys_equal(stored: Any<'_, '_>, key: Any<'_, '_>) -> Option<bool> {
    if stored.is(&*key) {
        return Some(true);
    }
    if !is_constant(stored) && !types::is_valued(stored) {
        return None;
    }
    Some(compared_equal(stored, key))
}

/// Whether two constants are equal, as `==` says, or objects that are [such to every dictionary](types::is_valued).
pub(super) fn compared_equal(a: Any<'_, '_>, b: Any<'_, '_>) -> bool {
    // SAFETY: both compare as constants do, by C code of CPython (or of `torch.device`).
    unsafe {
        let result = ffi::PyObject_RichCompareBool(a.as_ptr(), b.as_ptr(), ffi::Py_EQ);
        if result < 0 {
            ffi::PyErr_Clear();
        }
        result == 1
    }
}
