//! Puts an object into a container in the place of one that equals it and has its type, a builtin one: neither hashes nor
//! the order change.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyRange, PySlice};

use super::{Any, container, dict, layout, set_table, words};

/// Exchanges the pointer at `offset` of what begins at `start`.
///
/// # Safety
/// There is a pointer to an object at this place, which holds a reference of its own.
unsafe fn exchange(start: *mut ffi::PyObject, offset: usize, new: Bound<'_, PyAny>) {
    // SAFETY: as the function asks. The place takes over the new reference; the old one is dropped behind that, and an
    // object of a builtin type without members runs no code as it dies.
    unsafe {
        let place = start.byte_add(offset).cast::<*mut ffi::PyObject>();
        let old = place.replace(new.into_ptr());
        ffi::Py_DECREF(old);
    }
}

/// A key of a dictionary.
pub fn key(dict: Any<'_, '_>, old: Any<'_, '_>, new: Bound<'_, PyAny>) {
    if !dict::is_dict(dict) {
        return;
    }
    // SAFETY: layout of `PyDictObject` and its keys object. A general table is this dictionary's alone; its entries are
    // hash, key and value.
    unsafe {
        let keys = (*dict.as_ptr().cast::<ffi::PyDictObject>()).ma_keys.cast::<layout::DictKeys>();
        if (*keys).kind != 0 {
            return;
        }
        let entries = keys.add(1).cast::<ffi::PyObject>().byte_add(1 << (*keys).log2_index_bytes);
        for index in 0..(*keys).entries as usize {
            let offset = 24 * index + 8;
            if words::pointer(entries, offset) == old.as_ptr() {
                return exchange(entries, offset, new);
            }
        }
    }
}

/// An element of a set.
pub fn element(set: Any<'_, '_>, old: Any<'_, '_>, new: Bound<'_, PyAny>) {
    if !container::is_set(set) {
        return;
    }
    // SAFETY: a set, which no code changes meanwhile; its table holds a reference to each key.
    unsafe {
        let found = set_table::entries(set).find(|entry| entry.key == old.as_ptr());
        if let Some(entry) = found {
            let table = words::pointer(set.as_ptr(), layout::SET_TABLE);
            exchange(table, entry.at * set_table::ENTRY, new);
        }
    }
}

/// Where a slice or range has its bounds and its step; nowhere of other objects.
fn fields(of: Any<'_, '_>) -> &'static [usize] {
    if of.is_exact_instance_of::<PySlice>() {
        &layout::SLICE
    } else if of.is_exact_instance_of::<PyRange>() {
        &layout::RANGE
    } else {
        &[]
    }
}

/// A bound of a slice or range, or its step.
pub fn bound(of: Any<'_, '_>, old: Any<'_, '_>, new: &Bound<'_, PyAny>) {
    for &offset in fields(of) {
        // SAFETY: a slice or range, whose fields are never null.
        unsafe {
            if words::pointer(of.as_ptr(), offset) == old.as_ptr() {
                exchange(of.as_ptr(), offset, new.clone());
            }
        }
    }
}

/// The bounds and the step of a slice or range; none of other objects.
#[must_use]
pub fn bounds<'py>(of: Any<'_, 'py>) -> Vec<Bound<'py, PyAny>> {
    // SAFETY: as in [`bound`].
    let field = |offset: &usize| unsafe {
        Bound::from_borrowed_ptr(of.py(), words::pointer(of.as_ptr(), *offset))
    };
    fields(of).iter().map(field).collect()
}
