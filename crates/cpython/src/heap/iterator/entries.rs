//! Iterators over dictionaries: what is left to them, in the order of the table or in that which an `OrderedDict` keeps.

use std::ffi::c_int;

use pyo3::ffi;
use pyo3::prelude::*;

use super::Ahead;
use crate::heap::{Any, dict, layout, types, words};

unsafe extern "C" {
    static mut PyODictIter_Type: ffi::PyTypeObject;
}

#[repr(C)]
pub(super) struct OverDict {
    head: ffi::PyObject,
    /// Null behind the last entry.
    pub(super) dict: *mut ffi::PyObject,
    /// How many entries the dictionary had; -1 once it was found to have others.
    pub(super) used: ffi::Py_ssize_t,
    pub(super) position: ffi::Py_ssize_t,
    result: *mut ffi::PyObject,
    pub(super) left: ffi::Py_ssize_t,
}

/// Those of an `OrderedDict`, its views, and `reversed` of them.
#[repr(C)]
struct OverOrdered {
    head: ffi::PyObject,
    /// The flags below.
    kind: c_int,
    /// Null behind the last entry.
    dict: *mut ffi::PyObject,
    /// How many entries the dictionary had; -1 once it was found to have others.
    used: ffi::Py_ssize_t,
    /// How often its order had changed.
    state: usize,
    /// The key that comes next; null behind the last.
    current: *mut ffi::PyObject,
    result: *mut ffi::PyObject,
}

const GOES_BACK: c_int = 1;
const GIVES_KEYS: c_int = 2;
const GIVES_VALUES: c_int = 4;

/// What an iterator over an `OrderedDict` gives of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Keys.
    Keys,
    /// Values.
    Values,
    /// Both.
    Entries,
}

/// Whether an iterator goes over an `OrderedDict`, or over one of its own views.
pub(super) fn is_over_ordered(iterator: Any<'_, '_>) -> bool {
    types::address_of(iterator) == &raw mut PyODictIter_Type as usize
}

/// The dictionary that an iterator goes over; null behind the last entry.
///
/// # Safety
/// A live iterator over an `OrderedDict`.
pub(super) unsafe fn dict_of(at: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the caller says so.
    unsafe { (*at.cast::<OverOrdered>()).dict }
}

/// What an iterator over an `OrderedDict` shows, of which dictionary, and how many entries it has passed. `None`: it's
/// none, has ended, goes from the end, or would raise.
#[must_use]
pub fn over_ordered<'py>(iterator: Any<'_, 'py>) -> Option<(Shown, Bound<'py, PyAny>, usize)> {
    let shown = shown(iterator)?;
    let left = keys_left(iterator)?;
    let dict = super::over(iterator, 0)?;
    let passed = dict::length(dict.as_borrowed())?.checked_sub(left.len())?;
    Some((shown, dict, passed))
}

/// What an iterator that goes from the beginning gives.
pub(super) fn shown(iterator: Any<'_, '_>) -> Option<Shown> {
    if !is_over_ordered(iterator) {
        return None;
    }
    // SAFETY: a live iterator of that exact type.
    let kind = unsafe { (*iterator.as_ptr().cast::<OverOrdered>()).kind };
    match kind {
        GIVES_KEYS => Some(Shown::Keys),
        GIVES_VALUES => Some(Shown::Values),
        _ if kind & GOES_BACK != 0 => None,
        _ => Some(Shown::Entries),
    }
}

/// The keys that are left to an iterator that goes from the beginning; `None`: it has ended, or would raise.
pub(super) fn keys_left<'py>(iterator: Any<'_, 'py>) -> Option<Vec<Bound<'py, PyAny>>> {
    shown(iterator)?;
    let py = iterator.py();
    // SAFETY: a live iterator of that exact type, which keeps its dictionary and the next key alive. The offsets of the
    // dictionary's fields are literals that hold where its size does, as `is_ordered_dict` asks.
    unsafe {
        let over = &*iterator.as_ptr().cast::<OverOrdered>();
        let dict = Bound::from_borrowed_ptr_or_opt(py, over.dict)?;
        if !dict::is_ordered_dict(dict.as_borrowed()) {
            return None;
        }
        let state = words::word(over.dict, layout::ODICT_STATE);
        if state != over.state as u64 || ffi::PyDict_Size(over.dict) != over.used {
            return None;
        }
        let mut keys = dict::keys(dict.as_borrowed())?;
        let passed = if over.current.is_null() {
            keys.len()
        } else {
            keys.iter().position(|key| key.as_ptr() == over.current)?
        };
        Some(keys.split_off(passed))
    }
}

/// How an iterator over an `OrderedDict` goes on.
pub(super) fn ordered_ahead(iterator: Any<'_, '_>, passed: usize) -> Ahead {
    // SAFETY: a live iterator of that exact type.
    if unsafe { dict_of(iterator.as_ptr()).is_null() } {
        return Ahead::End;
    }
    let Some(keys) = keys_left(iterator) else { return Ahead::Unknown };
    match keys.get(passed) {
        None => Ahead::End,
        Some(key) if value_of(iterator, key).is_some() => Ahead::Item,
        Some(_) => Ahead::Unknown,
    }
}

/// The entry that an iterator over an `OrderedDict` comes to behind `passed` others; `None`: it ends before, or asks the key
/// for more than is known here.
pub(super) fn ordered_entry<'py>(
    iterator: Any<'_, 'py>,
    passed: usize,
) -> Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let mut keys = keys_left(iterator)?;
    let key = (passed < keys.len()).then(|| keys.swap_remove(passed))?;
    value_of(iterator, &key).map(|value| (key, value))
}

fn value_of<'py>(iterator: Any<'_, 'py>, key: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let dict = super::over(iterator, 0)?;
    match dict::get(dict.as_borrowed(), key.as_borrowed()) {
        dict::Lookup::Found(value) => Some(value),
        dict::Lookup::Absent | dict::Lookup::Refused => None,
    }
}

/// Whether an iterator of `dict`'s own goes over an `OrderedDict`, in the order of the table (`dict.items(d)`): entries are
/// read in the other one.
pub(super) fn is_out_of_order(over: &OverDict) -> bool {
    // SAFETY: the type of a dictionary that the iterator keeps alive, or none.
    !over.dict.is_null() && unsafe { dict::is_of_ordered_type(over.dict) }
}

/// How many entries are left to an iterator over a dictionary; `None`: it will raise, or has ended.
///
/// # Safety
/// `over` is a live iterator.
pub(super) unsafe fn entries_left(over: &OverDict) -> Option<usize> {
    if over.dict.is_null() || is_out_of_order(over) {
        return None;
    }
    let mut position = over.position;
    let mut left = 0;
    // SAFETY: a dictionary that the iterator keeps alive; nothing is asked of what it holds.
    unsafe {
        if ffi::PyDict_Size(over.dict) != over.used {
            return None;
        }
        while ffi::PyDict_Next(
            over.dict,
            &raw mut position,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        ) != 0
        {
            left += 1;
        }
    }
    (left as ffi::Py_ssize_t == over.left).then_some(left)
}

/// The entry that an iterator over a dictionary comes to behind `passed` others.
///
/// # Safety
/// A live iterator with a dictionary.
pub(super) unsafe fn entry(
    over: &OverDict,
    passed: usize,
) -> Option<(*mut ffi::PyObject, *mut ffi::PyObject)> {
    let (mut position, mut key, mut value) =
        (over.position, std::ptr::null_mut(), std::ptr::null_mut());
    for _ in 0..=passed {
        // SAFETY: the iterator keeps the dictionary alive; nothing is asked of what it holds.
        let found =
            unsafe { ffi::PyDict_Next(over.dict, &raw mut position, &raw mut key, &raw mut value) };
        if found == 0 {
            return None;
        }
    }
    Some((key, value))
}
