//! Structural pattern matching (PEP 634).

use std::ffi::c_ulong;

use pyo3::intern;
use pyo3::{ffi, prelude::*};

use super::attributes::{get_attr, get_method};
use super::{Method, call};
use crate::ffi as shim;
use crate::object::{Borrowed, Object, owned, status};
use crate::raised::{Raised, Result};

/// `Py_TPFLAGS_SEQUENCE`.
const SEQUENCE: c_ulong = 1 << 5;
/// `Py_TPFLAGS_MAPPING`.
const MAPPING: c_ulong = 1 << 6;
/// `_Py_TPFLAGS_MATCH_SELF`.
const MATCH_SELF: c_ulong = 1 << 22;

fn has_flag(object: Borrowed<'_, '_>, flag: c_ulong) -> bool {
    // SAFETY: flags of a valid object's type.
    unsafe { (*ffi::Py_TYPE(object.as_ptr())).tp_flags & flag != 0 }
}

/// `MATCH_SEQUENCE`.
pub fn is_sequence(subject: Borrowed<'_, '_>) -> bool {
    has_flag(subject, SEQUENCE)
}

/// `MATCH_MAPPING`.
pub fn is_mapping(subject: Borrowed<'_, '_>) -> bool {
    has_flag(subject, MAPPING)
}

/// `GET_LEN`: the length as an `int`.
pub fn get_len<'py>(subject: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    // SAFETY: a valid object.
    unsafe {
        let length = ffi::PyObject_Size(subject.as_ptr());
        if length < 0 {
            return Err(Raised);
        }
        owned(subject.py(), ffi::PyLong_FromSsize_t(length))
    }
}

/// Adds to a set; false if it was there.
fn add_new(set: &Object<'_>, item: Borrowed<'_, '_>) -> Result<bool> {
    // SAFETY: a set and a valid object.
    unsafe {
        if status(ffi::PySet_Contains(set.as_ptr(), item.as_ptr()))? != 0 {
            return Ok(false);
        }
        status(ffi::PySet_Add(set.as_ptr(), item.as_ptr()))?;
        Ok(true)
    }
}

fn new_set(py: Python<'_>) -> Result<Object<'_>> {
    // SAFETY: null makes an empty set.
    unsafe { owned(py, ffi::PySet_New(std::ptr::null_mut())) }
}

fn items<'a, 'py>(tuple: Borrowed<'a, 'py>) -> impl Iterator<Item = Borrowed<'a, 'py>> {
    // SAFETY: a tuple.
    let length = unsafe { ffi::PyTuple_GET_SIZE(tuple.as_ptr()) };
    (0..length).map(move |index| {
        // SAFETY: an index within the tuple, which keeps the item.
        unsafe {
            let item = ffi::PyTuple_GET_ITEM(tuple.as_ptr(), index);
            pyo3::Borrowed::from_ptr(tuple.py(), item)
        }
    })
}

fn new_tuple<'py>(py: Python<'py>, values: Vec<Object<'py>>) -> Result<Object<'py>> {
    // SAFETY: a new tuple whose items are set once each.
    unsafe {
        let tuple = owned(py, ffi::PyTuple_New(values.len() as isize))?;
        for (index, value) in values.into_iter().enumerate() {
            ffi::PyTuple_SET_ITEM(tuple.as_ptr(), index as isize, value.into_ptr());
        }
        Ok(tuple)
    }
}

/// `MATCH_KEYS`: the tuple of values of a tuple of keys; `None` if one is missing.
pub fn match_keys<'py>(
    subject: Borrowed<'_, 'py>,
    keys: Borrowed<'_, 'py>,
) -> Result<Option<Object<'py>>> {
    super::begin()?;
    let py = subject.py();
    if items(keys).next().is_none() {
        return new_tuple(py, Vec::new()).map(Some);
    }
    // `get` with a default creates no key in a `defaultdict`.
    let get = get_method(subject, intern!(py, "get").as_any().as_borrowed())?;
    let seen = new_set(py)?;
    // SAFETY: `object()`.
    let dummy =
        unsafe { owned(py, ffi::PyObject_CallNoArgs((&raw mut ffi::PyBaseObject_Type).cast()))? };
    let mut values = Vec::new();
    for key in items(keys) {
        if !add_new(&seen, key)? {
            let message = c"mapping pattern checks duplicate key (%R)";
            // SAFETY: the format takes one object.
            unsafe { ffi::PyErr_Format(ffi::PyExc_ValueError, message.as_ptr(), key.as_ptr()) };
            return Err(Raised);
        }
        let value = match &get {
            Method::Function(get) => {
                call(get.as_borrowed(), &[subject, key, dummy.as_borrowed()], None)?
            }
            Method::Attribute(get) => call(get.as_borrowed(), &[key, dummy.as_borrowed()], None)?,
        };
        if value.is(&dummy) {
            return Ok(None);
        }
        values.push(value);
    }
    new_tuple(py, values).map(Some)
}

/// `MATCH_CLASS`: the tuple of attributes for `count` positional and the named sub-patterns; `None` if
/// the subject doesn't match.
pub fn match_class<'py>(
    subject: Borrowed<'_, 'py>,
    class: Borrowed<'_, 'py>,
    count: usize,
    names: Borrowed<'_, 'py>,
) -> Result<Option<Object<'py>>> {
    super::begin()?;
    let py = subject.py();
    // SAFETY: valid objects.
    unsafe {
        if ffi::PyType_Check(class.as_ptr()) == 0 {
            let message = c"called match pattern must be a type";
            ffi::PyErr_SetString(ffi::PyExc_TypeError, message.as_ptr());
            return Err(Raised);
        }
        if status(ffi::PyObject_IsInstance(subject.as_ptr(), class.as_ptr()))? == 0 {
            return Ok(None);
        }
    }
    let seen = new_set(py)?;
    let mut values = Vec::new();
    if count > 0 && !match_positional(subject, class, count, &seen, &mut values)? {
        return Ok(None);
    }
    for name in items(names) {
        match match_attribute(subject, class, name, &seen)? {
            Some(value) => values.push(value),
            None => return Ok(None),
        }
    }
    new_tuple(py, values).map(Some)
}

/// Whether the one positional sub-pattern of a class without `__match_args__` is the subject itself.
#[must_use]
pub fn matches_itself(class: &Bound<'_, pyo3::types::PyType>) -> bool {
    // SAFETY: flags of a valid type.
    unsafe { (*class.as_type_ptr()).tp_flags & MATCH_SELF != 0 }
}

/// The positional sub-patterns, by the class's `__match_args__`.
fn match_positional<'py>(
    subject: Borrowed<'_, 'py>,
    class: Borrowed<'_, 'py>,
    count: usize,
    seen: &Object<'py>,
    values: &mut Vec<Object<'py>>,
) -> Result<bool> {
    let py = subject.py();
    let class_type: *mut ffi::PyTypeObject = class.as_ptr().cast();
    let match_args = match get_attr(class, intern!(py, "__match_args__").as_any().as_borrowed()) {
        Ok(found) => Some(found),
        // SAFETY: no precondition beyond the GIL.
        Err(Raised) if unsafe { ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) } != 0 => {
            Raised.clear(py);
            None
        }
        Err(raised) => return Err(raised),
    };
    // SAFETY: valid objects; the formats take the arguments given.
    unsafe {
        let allowed = match &match_args {
            Some(args) if ffi::PyTuple_CheckExact(args.as_ptr()) == 0 => {
                let message = c"%s.__match_args__ must be a tuple (got %s)";
                let found = (*ffi::Py_TYPE(args.as_ptr())).tp_name;
                let exc = ffi::PyExc_TypeError;
                ffi::PyErr_Format(exc, message.as_ptr(), (*class_type).tp_name, found);
                return Err(Raised);
            }
            Some(args) => ffi::PyTuple_GET_SIZE(args.as_ptr()) as usize,
            None => usize::from((*class_type).tp_flags & MATCH_SELF != 0),
        };
        if allowed < count {
            let message = c"%s() accepts %zd positional sub-pattern%s (%zd given)";
            let plural = if allowed == 1 { c"" } else { c"s" };
            ffi::PyErr_Format(
                ffi::PyExc_TypeError,
                message.as_ptr(),
                (*class_type).tp_name,
                allowed,
                plural.as_ptr(),
                count,
            );
            return Err(Raised);
        }
    }
    let Some(match_args) = match_args else {
        values.push(subject.to_owned());
        return Ok(true);
    };
    for name in items(match_args.as_borrowed()).take(count) {
        // SAFETY: a check on a valid object; the format takes one C string.
        unsafe {
            if ffi::PyUnicode_CheckExact(name.as_ptr()) == 0 {
                let message = c"__match_args__ elements must be strings (got %s)";
                let found = ffi::Py_TYPE(name.as_ptr());
                shim::stator_raise_type_name(ffi::PyExc_TypeError, message.as_ptr(), found);
                return Err(Raised);
            }
        }
        match match_attribute(subject, class, name, seen)? {
            Some(value) => values.push(value),
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// An attribute of the subject; `None` if it lacks it, an error if it was matched before.
fn match_attribute<'py>(
    subject: Borrowed<'_, 'py>,
    class: Borrowed<'_, 'py>,
    name: Borrowed<'_, 'py>,
    seen: &Object<'py>,
) -> Result<Option<Object<'py>>> {
    if !add_new(seen, name)? {
        let message = c"%s() got multiple sub-patterns for attribute %R";
        // SAFETY: the class is a type; the format takes a C string and an object.
        unsafe {
            let class_name = (*class.as_ptr().cast::<ffi::PyTypeObject>()).tp_name;
            let exc = ffi::PyExc_TypeError;
            ffi::PyErr_Format(exc, message.as_ptr(), class_name, name.as_ptr());
        }
        return Err(Raised);
    }
    match get_attr(subject, name) {
        Ok(value) => Ok(Some(value)),
        // SAFETY: no precondition beyond the GIL.
        Err(Raised) if unsafe { ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) } != 0 => {
            Raised.clear(subject.py());
            Ok(None)
        }
        Err(raised) => Err(raised),
    }
}
