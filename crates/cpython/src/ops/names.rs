//! Global, builtin and local names; cells.

use std::ffi::CStr;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::ffi as shim;
use crate::frame::Frame;
use crate::frame::layout::CellObject;
use crate::object::{Borrowed, Object, cloned, owned, status};
use crate::raised::{Raised, Result};

const NAME_ERROR: &CStr = c"name '%.200s' is not defined";
const UNBOUND_LOCAL: &CStr =
    c"cannot access local variable '%s' where it is not associated with a value";
const UNBOUND_FREE: &CStr = c"cannot access free variable '%s' where it is not associated with a \
      value in enclosing scope";

fn raise_name_error(exc: *mut PyObject, message: &CStr, name: Borrowed<'_, '_>) -> Raised {
    // SAFETY: an exception type, a format with one `%s`, a string.
    unsafe { shim::stator_raise_name_error(exc, message.as_ptr(), name.as_ptr()) };
    Raised
}

fn undefined(name: Borrowed<'_, '_>) -> Raised {
    // SAFETY: a static object.
    raise_name_error(unsafe { ffi::PyExc_NameError }, NAME_ERROR, name)
}

/// Raises `UnboundLocalError` for fast local `index`.
#[cold]
pub fn raise_unbound_local(frame: &Frame<'_>, index: usize) -> Raised {
    // SAFETY: a static object.
    let exc = unsafe { ffi::PyExc_UnboundLocalError };
    raise_name_error(exc, UNBOUND_LOCAL, frame.code().local_name(index))
}

/// Raises the error for the empty cell at fast local `index`: `UnboundLocalError` for a cell of this
/// function, `NameError` for one of an enclosing function.
#[cold]
pub fn raise_unbound_cell(frame: &Frame<'_>, index: usize) -> Raised {
    if index < frame.code().first_free() {
        return raise_unbound_local(frame, index);
    }
    // SAFETY: a static object.
    let exc = unsafe { ffi::PyExc_NameError };
    raise_name_error(exc, UNBOUND_FREE, frame.code().local_name(index))
}

/// Looks a name up in an exact dict.
#[inline]
fn dict_get<'py>(
    py: Python<'py>,
    dict: *mut PyObject,
    name: Borrowed<'_, 'py>,
) -> Result<Option<Object<'py>>> {
    // SAFETY: a dict and a valid key; the result is borrowed.
    unsafe {
        match cloned(py, ffi::PyDict_GetItemWithError(dict, name.as_ptr())) {
            Some(value) => Ok(Some(value)),
            None if ffi::PyErr_Occurred().is_null() => Ok(None),
            None => Err(Raised),
        }
    }
}

/// Looks a name up in any mapping; a missing one (`KeyError`) is `None`.
#[inline]
fn mapping_get<'py>(
    mapping: Borrowed<'_, 'py>,
    name: Borrowed<'_, 'py>,
) -> Result<Option<Object<'py>>> {
    let py = mapping.py();
    // SAFETY: valid objects.
    unsafe {
        if ffi::PyDict_CheckExact(mapping.as_ptr()) != 0 {
            return dict_get(py, mapping.as_ptr(), name);
        }
        match owned(py, ffi::PyObject_GetItem(mapping.as_ptr(), name.as_ptr())) {
            Ok(value) => Ok(Some(value)),
            Err(Raised) if ffi::PyErr_ExceptionMatches(ffi::PyExc_KeyError) != 0 => {
                ffi::PyErr_Clear();
                Ok(None)
            }
            Err(raised) => Err(raised),
        }
    }
}

/// `LOAD_GLOBAL`: globals, then builtins; raises `NameError`.
pub fn load_global<'py>(frame: &Frame<'py>, name: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    if let Some(value) = mapping_get(frame.globals(), name)? {
        return Ok(value);
    }
    mapping_get(frame.builtins(), name)?.ok_or_else(|| undefined(name))
}

/// `LOAD_NAME`: locals mapping, globals, builtins.
pub fn load_name<'py>(frame: &Frame<'py>, name: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    let Some(locals) = frame.locals() else {
        return Err(no_locals(c"no locals when loading %R", name));
    };
    if let Some(value) = mapping_get(locals, name)? {
        return Ok(value);
    }
    // The globals are a dict, or a subclass whose `__getitem__` this opcode ignores.
    if let Some(value) = dict_get(frame.py(), frame.globals().as_ptr(), name)? {
        return Ok(value);
    }
    mapping_get(frame.builtins(), name)?.ok_or_else(|| undefined(name))
}

/// `LOAD_CLASSDEREF`'s first half: the name of fast local `index` in the locals mapping.
#[cfg(not(Py_3_12))]
pub fn load_from_locals<'py>(frame: &Frame<'py>, index: usize) -> Result<Option<Object<'py>>> {
    match frame.locals() {
        Some(locals) => mapping_get(locals, frame.code().local_name(index)),
        None => Ok(None),
    }
}

/// `LOAD_LOCALS`: the locals mapping.
#[cfg(Py_3_12)]
pub fn load_locals<'py>(frame: &Frame<'py>) -> Result<Object<'py>> {
    match frame.locals() {
        Some(locals) => Ok(locals.to_owned()),
        None => Err(Raised::system_error(frame.py(), c"no locals")),
    }
}

/// A name in a mapping, which a class's body or one that names types asks before anything else.
#[cfg(Py_3_12)]
pub fn load_from<'py>(
    mapping: Borrowed<'_, 'py>,
    name: Borrowed<'_, 'py>,
) -> Result<Option<Object<'py>>> {
    mapping_get(mapping, name)
}

/// `LOAD_FROM_DICT_OR_GLOBALS`: a mapping, then globals, then builtins.
#[cfg(Py_3_12)]
pub fn load_from_or_globals<'py>(
    frame: &Frame<'py>,
    mapping: Borrowed<'_, 'py>,
    name: Borrowed<'_, 'py>,
) -> Result<Object<'py>> {
    if let Some(value) = mapping_get(mapping, name)? {
        return Ok(value);
    }
    if let Some(value) = dict_get(frame.py(), frame.globals().as_ptr(), name)? {
        return Ok(value);
    }
    mapping_get(frame.builtins(), name)?.ok_or_else(|| undefined(name))
}

#[cold]
fn no_locals(message: &CStr, name: Borrowed<'_, '_>) -> Raised {
    // SAFETY: the format takes one object.
    unsafe { ffi::PyErr_Format(ffi::PyExc_SystemError, message.as_ptr(), name.as_ptr()) };
    Raised
}

/// `STORE_NAME`, or `DELETE_NAME` if `value` is `None`.
pub fn store_name<'py>(
    frame: &Frame<'py>,
    name: Borrowed<'_, 'py>,
    value: Option<Borrowed<'_, 'py>>,
) -> Result<()> {
    super::begin()?;
    // SAFETY: valid objects.
    unsafe {
        match (frame.locals(), value) {
            (Some(locals), Some(value)) => {
                let (locals, name, value) = (locals.as_ptr(), name.as_ptr(), value.as_ptr());
                if ffi::PyDict_CheckExact(locals) != 0 {
                    status(ffi::PyDict_SetItem(locals, name, value))?;
                } else {
                    status(ffi::PyObject_SetItem(locals, name, value))?;
                }
                Ok(())
            }
            (Some(locals), None) => {
                status(ffi::PyObject_DelItem(locals.as_ptr(), name.as_ptr()))
                    .map_err(|Raised| undefined(name))?;
                Ok(())
            }
            (None, Some(_)) => Err(no_locals(c"no locals found when storing %R", name)),
            (None, None) => Err(no_locals(c"no locals when deleting %R", name)),
        }
    }
}

/// `STORE_GLOBAL`, or `DELETE_GLOBAL` if `value` is `None`.
pub fn store_global<'py>(
    frame: &Frame<'py>,
    name: Borrowed<'_, 'py>,
    value: Option<Borrowed<'_, 'py>>,
) -> Result<()> {
    super::begin()?;
    let globals = frame.globals().as_ptr();
    // SAFETY: the globals are a dict; valid objects.
    unsafe {
        if let Some(value) = value {
            status(ffi::PyDict_SetItem(globals, name.as_ptr(), value.as_ptr()))?;
        } else if ffi::PyDict_DelItem(globals, name.as_ptr()) != 0 {
            if ffi::PyErr_ExceptionMatches(ffi::PyExc_KeyError) != 0 {
                return Err(undefined(name));
            }
            return Err(Raised);
        }
        Ok(())
    }
}

/// Contents of a cell; `None` if it is empty.
#[inline]
pub fn load_cell<'py>(cell: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    // SAFETY: the compiler only names slots that hold cells.
    unsafe { cloned(cell.py(), (*cell.as_ptr().cast::<CellObject>()).contents) }
}

/// Sets or empties a cell.
#[inline]
pub fn store_cell<'py>(cell: Borrowed<'_, 'py>, value: Option<Object<'py>>) {
    super::count();
    let new = value.map_or(std::ptr::null_mut(), Bound::into_ptr);
    // SAFETY: the compiler only names slots that hold cells; the references are exchanged before the
    // old one is released.
    let old = unsafe {
        let contents = &raw mut (*cell.as_ptr().cast::<CellObject>()).contents;
        Bound::from_owned_ptr_or_opt(cell.py(), contents.replace(new))
    };
    drop(old);
}

/// `MAKE_CELL`: a new cell with the given contents.
pub fn make_cell<'py>(py: Python<'py>, contents: Option<Borrowed<'_, 'py>>) -> Result<Object<'py>> {
    let contents = contents.map_or(std::ptr::null_mut(), |contents| contents.as_ptr());
    // SAFETY: null or a valid object.
    unsafe { owned(py, ffi::PyCell_New(contents)) }
}
