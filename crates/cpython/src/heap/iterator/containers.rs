//! What an iterator over a container would give, be it made or not.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFrozenSet, PyList, PyRange, PySet, PyString, PyTuple};

use super::entries::OverDict;
use crate::heap::{Any, container, set_table};

/// How an iterator goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// It gives an item.
    Item,
    /// It ends.
    End,
    /// It would raise, run code, or is of another type.
    Unknown,
}

impl Ahead {
    pub(super) fn gives(gives: bool) -> Self {
        if gives { Self::Item } else { Self::End }
    }
}

#[repr(C)]
pub(super) struct OverSet {
    head: ffi::PyObject,
    /// Null behind the last element.
    set: *mut ffi::PyObject,
    /// How many elements the set had; -1 once it was found to have others.
    used: ffi::Py_ssize_t,
    position: ffi::Py_ssize_t,
    left: ffi::Py_ssize_t,
}

/// How an iterator goes on that is, or would be, made of an object, behind `passed` items.
pub(super) fn ahead(object: Any<'_, '_>, passed: usize) -> Ahead {
    match length(object) {
        Some(length) => Ahead::gives(passed < length),
        None => super::ahead(object, passed),
    }
}

/// The item that it gives behind `passed` others.
pub(super) fn item<'py>(object: Any<'_, 'py>, passed: usize) -> Option<Bound<'py, PyAny>> {
    let length = length(object);
    if length.is_none() {
        return super::upcoming(object, passed);
    }
    if passed >= length? {
        return None;
    }
    if object.is_exact_instance_of::<PyDict>() {
        let mut position = 0;
        return entries(object, &mut position).nth(passed).map(|(_, key, _)| key);
    }
    element_of(object, passed)
        .or_else(|| container::list_item(object, passed))
        .or_else(|| container::tuple_item(object, passed))
        .or_else(|| part_of_text(object, passed))
        .or_else(|| range_item(object, passed))
}

/// The element of a set or frozenset behind `passed` others.
pub(super) fn element_of<'py>(set: Any<'_, 'py>, passed: usize) -> Option<Bound<'py, PyAny>> {
    if is_set(set) { container::set_items(set)?.into_iter().nth(passed) } else { None }
}

/// Whether an object is a set or frozenset.
pub(super) fn is_set(object: Any<'_, '_>) -> bool {
    object.is_exact_instance_of::<PySet>() || object.is_exact_instance_of::<PyFrozenSet>()
}

/// How many items a container of a builtin type has.
fn length(object: Any<'_, '_>) -> Option<usize> {
    if object.is_exact_instance_of::<PyList>() {
        return container::list_length(object);
    }
    if object.is_exact_instance_of::<PyTuple>() {
        return container::tuple_length(object);
    }
    let is_text =
        object.is_exact_instance_of::<PyString>() || object.is_exact_instance_of::<PyBytes>();
    if is_text {
        return text_length(object);
    }
    let is_known = object.is_exact_instance_of::<PyDict>()
        || is_set(object)
        || object.is_exact_instance_of::<PyRange>();
    // One of a range may be too large.
    if is_known { object.len().ok() } else { None }
}

/// How many parts a text has, or one of bytes, of subclasses too.
pub(super) fn text_length(text: Any<'_, '_>) -> Option<usize> {
    // SAFETY: a live object of that layout, as was asked.
    let length = unsafe {
        if ffi::PyUnicode_Check(text.as_ptr()) != 0 {
            ffi::PyUnicode_GetLength(text.as_ptr())
        } else if ffi::PyBytes_Check(text.as_ptr()) != 0 {
            ffi::PyBytes_Size(text.as_ptr())
        } else {
            return None;
        }
    };
    usize::try_from(length).ok()
}

/// A character, or the number of a byte.
pub(super) fn part_of_text<'py>(text: Any<'_, 'py>, place: usize) -> Option<Bound<'py, PyAny>> {
    let py = text.py();
    if place >= text_length(text)? {
        return None;
    }
    if let Ok(bytes) = text.cast::<PyBytes>() {
        return Some(bytes.as_bytes()[place].into_pyobject(py).ok()?.into_any());
    }
    // SAFETY: a text that has such a place; its methods aren't asked.
    unsafe {
        let point = ffi::PyUnicode_ReadChar(text.as_ptr(), ffi::Py_ssize_t::try_from(place).ok()?);
        let made = ffi::PyUnicode_FromOrdinal(i32::try_from(point).ok()?);
        if made.is_null() {
            ffi::PyErr_Clear();
        }
        Bound::from_owned_ptr_or_opt(py, made)
    }
}

fn range_item<'py>(range: Any<'_, 'py>, place: usize) -> Option<Bound<'py, PyAny>> {
    range.is_exact_instance_of::<PyRange>().then(|| range.get_item(place).ok()).flatten()
}

/// The entries of a dictionary from a position on, each with where it stands.
pub(super) fn entries<'a, 'py: 'a>(
    dict: Any<'a, 'py>,
    position: &'a mut ffi::Py_ssize_t,
) -> impl Iterator<Item = (ffi::Py_ssize_t, Bound<'py, PyAny>, Bound<'py, PyAny>)> + 'a {
    let py = dict.py();
    std::iter::from_fn(move || {
        let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a live dictionary, which nobody changes meanwhile; nothing is asked of what it holds.
        unsafe {
            let found =
                ffi::PyDict_Next(dict.as_ptr(), &raw mut *position, &raw mut key, &raw mut value);
            if found == 0 {
                return None;
            }
            let key = Bound::from_borrowed_ptr_or_opt(py, key)?;
            let value = Bound::from_borrowed_ptr_or_opt(py, value)?;
            Some((*position - 1, key, value))
        }
    })
}

/// The entry that an iterator comes to behind `passed` others which goes over a dictionary from its end.
///
/// # Safety
/// A live iterator with a dictionary.
pub(super) unsafe fn entry_backwards<'py>(
    py: Python<'py>,
    over: &OverDict,
    passed: usize,
) -> Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    // SAFETY: the iterator keeps the dictionary alive.
    let dict = unsafe { Bound::from_borrowed_ptr_or_opt(py, over.dict)? };
    let mut position = 0;
    let before = |(place, _, _): &(ffi::Py_ssize_t, _, _)| *place <= over.position;
    let mut left: Vec<_> = entries(dict.as_borrowed(), &mut position).take_while(before).collect();
    let place = left.len().checked_sub(passed + 1)?;
    let (_, key, value) = left.swap_remove(place);
    Some((key, value))
}

/// The set that an iterator goes over; null behind the last element.
///
/// # Safety
/// A live iterator over a set.
pub(super) unsafe fn set_of(at: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the caller says so.
    unsafe { (*at.cast::<OverSet>()).set }
}

/// How an iterator over a set goes on, and the element that it comes to.
pub(super) fn element<'py>(
    iterator: Any<'_, 'py>,
    passed: usize,
) -> (Ahead, Option<Bound<'py, PyAny>>) {
    let py = iterator.py();
    // SAFETY: a live iterator over a set, which it keeps alive until it has ended; no code runs meanwhile.
    unsafe {
        let over = &*iterator.as_ptr().cast::<OverSet>();
        let Some(set) = Bound::from_borrowed_ptr_or_opt(py, over.set) else {
            return (Ahead::End, None);
        };
        let Ok(position) = usize::try_from(over.position) else { return (Ahead::Unknown, None) };
        if ffi::PySet_Size(set.as_ptr()) != over.used {
            return (Ahead::Unknown, None);
        }
        let mut left = set_table::entries(set.as_borrowed())
            .filter(|entry| entry.at >= position && !entry.is_removed());
        let found = left.nth(passed).map(|entry| Bound::from_borrowed_ptr(py, entry.key));
        (Ahead::gives(found.is_some()), found)
    }
}
