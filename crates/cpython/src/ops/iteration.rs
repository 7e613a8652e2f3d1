//! Iterators, generators' delegation.

use std::ptr;

use pyo3::ffi;

use crate::frame::Frame;
use crate::object::{Borrowed, Object, owned};
use crate::raised::{Raised, Result};

/// What a `SEND` got: `Ok` was yielded, `Err` returned.
pub type Sent<'py> = std::result::Result<Object<'py>, Object<'py>>;

/// `iter(iterable)`.
#[inline]
pub fn get_iter<'py>(iterable: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    super::begin()?;
    // SAFETY: a valid object.
    unsafe { owned(iterable.py(), ffi::PyObject_GetIter(iterable.as_ptr())) }
}

/// The next item; `None` when exhausted (a `StopIteration` is cleared).
#[inline]
pub fn next<'py>(iterator: Borrowed<'_, 'py>) -> Result<Option<Object<'py>>> {
    super::begin()?;
    // SAFETY: `FOR_ITER` only sees what `GET_ITER` returned, which has `tp_iternext`.
    unsafe {
        let class = ffi::Py_TYPE(iterator.as_ptr());
        let Some(function) = (*class).tp_iternext else {
            return Err(Raised::system_error(iterator.py(), c"FOR_ITER without an iterator"));
        };
        match owned(iterator.py(), function(iterator.as_ptr())) {
            Ok(item) => Ok(Some(item)),
            Err(Raised) if ffi::PyErr_Occurred().is_null() => Ok(None),
            Err(Raised) if ffi::PyErr_ExceptionMatches(ffi::PyExc_StopIteration) != 0 => {
                ffi::PyErr_Clear();
                Ok(None)
            }
            Err(raised) => Err(raised),
        }
    }
}

/// Whether an object is a generator.
#[inline]
pub fn is_generator(object: Borrowed<'_, '_>) -> bool {
    // SAFETY: a type check on a valid object.
    unsafe { ffi::PyGen_CheckExact(object.as_ptr()) != 0 }
}

/// Sends a value into an iterator, generator or awaitable.
pub fn send<'py>(receiver: Borrowed<'_, 'py>, value: Borrowed<'_, 'py>) -> Result<Sent<'py>> {
    super::begin()?;
    let mut result = ptr::null_mut();
    // SAFETY: valid objects; a new reference is stored unless the status is an error.
    unsafe {
        let status = ffi::PyIter_Send(receiver.as_ptr(), value.as_ptr(), &raw mut result);
        match status {
            ffi::PySendResult::PYGEN_NEXT => Ok(Ok(owned(receiver.py(), result)?)),
            ffi::PySendResult::PYGEN_RETURN => Ok(Err(owned(receiver.py(), result)?)),
            ffi::PySendResult::PYGEN_ERROR => Err(Raised),
        }
    }
}

/// What `GET_YIELD_FROM_ITER` needs before it iterates: `Ok(true)` if the operand is used as it is
/// (a generator, or a coroutine inside a coroutine).
pub fn get_yield_from_iter(frame: &Frame<'_>, iterable: Borrowed<'_, '_>) -> Result<bool> {
    const COROUTINES: u32 = (ffi::CO_COROUTINE | ffi::CO_ITERABLE_COROUTINE) as u32;
    // SAFETY: type checks on a valid object.
    unsafe {
        if ffi::PyCoro_CheckExact(iterable.as_ptr()) != 0 {
            if frame.code().flags() & COROUTINES == 0 {
                let message = "cannot 'yield from' a coroutine object in a non-coroutine generator";
                let error = pyo3::exceptions::PyTypeError::new_err(message);
                return Err(Raised::set(frame.py(), error));
            }
            return Ok(true);
        }
        Ok(ffi::PyGen_CheckExact(iterable.as_ptr()) != 0)
    }
}
