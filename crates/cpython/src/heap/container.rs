//! Lists, tuples and sets, read by their storage: subclasses' overrides aren't asked.

use pyo3::ffi;
use pyo3::prelude::*;

use super::{Any, layout, words};

/// Length of a list's storage; `None` if it isn't a list.
#[inline]
pub fn list_length(list: Any<'_, '_>) -> Option<usize> {
    // SAFETY: a live object; the flag says it has a list's layout.
    unsafe {
        words::has_flag(list.as_ptr(), ffi::Py_TPFLAGS_LIST_SUBCLASS)
            .then(|| words::word(list.as_ptr(), layout::SIZE) as usize)
    }
}

/// An element of a list.
#[inline]
pub fn list_item<'py>(list: Any<'_, 'py>, index: usize) -> Option<Bound<'py, PyAny>> {
    if index >= list_length(list)? {
        return None;
    }
    // SAFETY: a list with more than `index` elements, each non-null.
    unsafe {
        let items = words::pointer(list.as_ptr(), layout::LIST_ITEMS);
        let item = words::pointer(items, index * size_of::<usize>());
        Bound::from_borrowed_ptr_or_opt(list.py(), item)
    }
}

/// Length of a tuple; `None` if it isn't a tuple.
#[inline]
pub fn tuple_length(tuple: Any<'_, '_>) -> Option<usize> {
    // SAFETY: a live object; the flag says it has a tuple's layout.
    unsafe {
        words::has_flag(tuple.as_ptr(), ffi::Py_TPFLAGS_TUPLE_SUBCLASS)
            .then(|| words::word(tuple.as_ptr(), layout::SIZE) as usize)
    }
}

/// An element of a tuple.
#[inline]
pub fn tuple_item<'py>(tuple: Any<'_, 'py>, index: usize) -> Option<Bound<'py, PyAny>> {
    if index >= tuple_length(tuple)? {
        return None;
    }
    // SAFETY: a tuple with more than `index` elements; one still being filled has nulls.
    unsafe {
        let item = words::pointer(tuple.as_ptr(), layout::TUPLE_ITEMS + index * size_of::<usize>());
        Bound::from_borrowed_ptr_or_opt(tuple.py(), item)
    }
}

/// Whether the object is a set or frozenset, or an instance of a subclass.
#[inline]
pub fn is_set(object: Any<'_, '_>) -> bool {
    // SAFETY: macros over the type's chain of bases; no Python code runs.
    unsafe { ffi::PyAnySet_Check(object.as_ptr()) != 0 }
}

/// The elements of a set in iteration order; `None` if it isn't a set.
pub fn set_items<'py>(set: Any<'_, 'py>) -> Option<Vec<Bound<'py, PyAny>>> {
    if !is_set(set) {
        return None;
    }
    // SAFETY: a set's table has `mask + 1` pairs (key, hash); a key is null where the pair is
    // unused, and the dummy (hash -1) where an element was removed. No code runs meanwhile.
    unsafe {
        let mask = words::word(set.as_ptr(), layout::SET_MASK) as usize;
        let table = words::pointer(set.as_ptr(), layout::SET_TABLE);
        let mut items = Vec::with_capacity(words::word(set.as_ptr(), layout::SET_USED) as usize);
        for index in 0..=mask {
            let key = words::pointer(table, index * 16);
            if !key.is_null() && words::word(table, index * 16 + 8) as i64 != -1 {
                items.push(Bound::from_borrowed_ptr(set.py(), key));
            }
        }
        Some(items)
    }
}
