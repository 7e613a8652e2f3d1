//! Building and filling lists, sets, dicts, strings and slices.

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::ffi as shim;
use crate::object::{Borrowed, Object, owned, status};
use crate::raised::{Raised, Result};

/// A set of items, added in order.
pub fn build_set<'py>(py: Python<'py>, items: &[Borrowed<'_, 'py>]) -> Result<Object<'py>> {
    // SAFETY: a new set; valid items.
    unsafe {
        let set = owned(py, ffi::PySet_New(ptr::null_mut()))?;
        for item in items {
            status(ffi::PySet_Add(set.as_ptr(), item.as_ptr()))?;
        }
        Ok(set)
    }
}

/// A dict of alternating keys and values.
pub fn build_map<'py>(py: Python<'py>, items: &[Borrowed<'_, 'py>]) -> Result<Object<'py>> {
    // SAFETY: a new dict; valid items.
    unsafe {
        let dict = owned(py, shim::_PyDict_NewPresized((items.len() / 2) as isize))?;
        for pair in items.chunks_exact(2) {
            status(ffi::PyDict_SetItem(dict.as_ptr(), pair[0].as_ptr(), pair[1].as_ptr()))?;
        }
        Ok(dict)
    }
}

/// A dict of a tuple of keys and as many values.
pub fn build_const_key_map<'py>(
    keys: Borrowed<'_, 'py>,
    values: &[Borrowed<'_, 'py>],
) -> Result<Object<'py>> {
    let py = keys.py();
    // SAFETY: the tuple's type and length are checked; valid items.
    unsafe {
        if ffi::PyTuple_CheckExact(keys.as_ptr()) == 0
            || ffi::PyTuple_GET_SIZE(keys.as_ptr()) as usize != values.len()
        {
            return Err(Raised::system_error(py, c"bad BUILD_CONST_KEY_MAP keys argument"));
        }
        let dict = owned(py, shim::_PyDict_NewPresized(values.len() as isize))?;
        for (index, value) in values.iter().enumerate() {
            let key = ffi::PyTuple_GET_ITEM(keys.as_ptr(), index as isize);
            status(ffi::PyDict_SetItem(dict.as_ptr(), key, value.as_ptr()))?;
        }
        Ok(dict)
    }
}

/// The pieces of an f-string, joined.
pub fn build_string<'py>(py: Python<'py>, pieces: &[Borrowed<'_, 'py>]) -> Result<Object<'py>> {
    // SAFETY: `Borrowed` is a transparent pointer; the pieces are strings.
    unsafe {
        let empty = owned(py, ffi::PyUnicode_New(0, 0))?;
        let items = pieces.as_ptr().cast();
        owned(py, shim::_PyUnicode_JoinArray(empty.as_ptr(), items, pieces.len() as isize))
    }
}

/// `slice(start, stop, step)`.
pub fn build_slice<'py>(
    start: Borrowed<'_, 'py>,
    stop: Borrowed<'_, 'py>,
    step: Option<Borrowed<'_, 'py>>,
) -> Result<Object<'py>> {
    let step = step.map_or(ptr::null_mut(), |step| step.as_ptr());
    // SAFETY: valid objects, or null for no step.
    unsafe { owned(start.py(), ffi::PySlice_New(start.as_ptr(), stop.as_ptr(), step)) }
}

/// Appends to an exact list.
pub fn list_append(list: Borrowed<'_, '_>, item: Borrowed<'_, '_>) -> Result<()> {
    super::begin()?;
    // SAFETY: the compiler gives a list.
    status(unsafe { ffi::PyList_Append(list.as_ptr(), item.as_ptr()) })?;
    Ok(())
}

/// Extends an exact list by a starred value.
pub fn list_extend(list: Borrowed<'_, '_>, iterable: Borrowed<'_, '_>) -> Result<()> {
    super::begin()?;
    // SAFETY: the compiler gives a list.
    unsafe {
        match owned(list.py(), shim::_PyList_Extend(list.as_ptr(), iterable.as_ptr())) {
            Ok(_none) => Ok(()),
            Err(raised) => {
                let class = ffi::Py_TYPE(iterable.as_ptr());
                if ffi::PyErr_ExceptionMatches(ffi::PyExc_TypeError) != 0
                    && (*class).tp_iter.is_none()
                    && ffi::PySequence_Check(iterable.as_ptr()) == 0
                {
                    ffi::PyErr_Clear();
                    let message = c"Value after * must be an iterable, not %.200s";
                    let exc = ffi::PyExc_TypeError;
                    shim::stator_raise_type_name(exc, message.as_ptr(), class);
                }
                Err(raised)
            }
        }
    }
}

/// The tuple of a list's items.
pub fn list_to_tuple<'py>(list: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    // SAFETY: the compiler gives a list.
    unsafe { owned(list.py(), ffi::PyList_AsTuple(list.as_ptr())) }
}

/// Adds to a set.
pub fn set_add(set: Borrowed<'_, '_>, item: Borrowed<'_, '_>) -> Result<()> {
    super::begin()?;
    // SAFETY: the compiler gives a set.
    status(unsafe { ffi::PySet_Add(set.as_ptr(), item.as_ptr()) })?;
    Ok(())
}

/// Adds all items of an iterable to a set.
pub fn set_update(set: Borrowed<'_, '_>, iterable: Borrowed<'_, '_>) -> Result<()> {
    super::begin()?;
    // SAFETY: the compiler gives a set.
    status(unsafe { shim::_PySet_Update(set.as_ptr(), iterable.as_ptr()) })?;
    Ok(())
}

/// Sets a dict's item (`MAP_ADD`).
pub fn map_add(
    dict: Borrowed<'_, '_>,
    key: Borrowed<'_, '_>,
    value: Borrowed<'_, '_>,
) -> Result<()> {
    super::begin()?;
    // SAFETY: the compiler gives a dict.
    status(unsafe { ffi::PyDict_SetItem(dict.as_ptr(), key.as_ptr(), value.as_ptr()) })?;
    Ok(())
}

/// Updates a dict by a mapping (`{**mapping}`).
pub fn dict_update(dict: Borrowed<'_, '_>, mapping: Borrowed<'_, '_>) -> Result<()> {
    super::begin()?;
    // SAFETY: the compiler gives a dict.
    unsafe {
        if ffi::PyDict_Update(dict.as_ptr(), mapping.as_ptr()) < 0 {
            if ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) != 0 {
                let message = c"'%.200s' object is not a mapping";
                let class = ffi::Py_TYPE(mapping.as_ptr());
                shim::stator_raise_type_name(ffi::PyExc_TypeError, message.as_ptr(), class);
            }
            return Err(Raised);
        }
    }
    Ok(())
}
