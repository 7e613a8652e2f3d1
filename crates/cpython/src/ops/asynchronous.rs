//! Awaitables, asynchronous iteration and context managers.

use std::ffi::CStr;

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::intern;
use pyo3::{ffi, prelude::*};

use super::attributes::{call_no_args, special};
use crate::code::Code;
use crate::ffi as shim;
use crate::object::{Borrowed, Object, owned};
use crate::raised::{Raised, Result};

fn async_slots(object: Borrowed<'_, '_>) -> Option<ffi::PyAsyncMethods> {
    // SAFETY: a type's `tp_as_async` is null or points to its slots.
    unsafe {
        let slots = (*ffi::Py_TYPE(object.as_ptr())).tp_as_async;
        if slots.is_null() { None } else { Some((*slots).clone()) }
    }
}

fn wrong_type(message: &CStr, object: Borrowed<'_, '_>) -> Raised {
    // SAFETY: the format takes one C string.
    unsafe {
        let class = ffi::Py_TYPE(object.as_ptr());
        shim::stator_raise_type_name(ffi::PyExc_TypeError, message.as_ptr(), class);
    }
    Raised
}

/// `GET_AITER`: `aiter(object)`.
pub fn get_aiter<'py>(object: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    let Some(getter) = async_slots(object).and_then(|slots| slots.am_aiter) else {
        let message = c"'async for' requires an object with __aiter__ method, got %.100s";
        return Err(wrong_type(message, object));
    };
    // SAFETY: the type's own slot.
    let iterator = unsafe { owned(object.py(), getter(object.as_ptr())) }?;
    if async_slots(iterator.as_borrowed()).and_then(|slots| slots.am_anext).is_none() {
        let message = c"'async for' received an object from __aiter__ that does not implement \
            __anext__: %.100s";
        return Err(wrong_type(message, iterator.as_borrowed()));
    }
    Ok(iterator)
}

/// `GET_ANEXT`: the awaitable of the next item.
pub fn get_anext<'py>(iterator: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    let py = iterator.py();
    let Some(getter) = async_slots(iterator).and_then(|slots| slots.am_anext) else {
        let message = c"'async for' requires an iterator with __anext__ method, got %.100s";
        return Err(wrong_type(message, iterator));
    };
    // SAFETY: the type's own slot; a type check.
    let (item, is_generator) = unsafe {
        let exact = ffi::PyAsyncGen_CheckExact(iterator.as_ptr()) != 0;
        (owned(py, getter(iterator.as_ptr()))?, exact)
    };
    if is_generator {
        return Ok(item);
    }
    awaitable_iter(item.as_borrowed()).map_err(|Raised| {
        let message = c"'async for' received an invalid object from __anext__: %.100s";
        // SAFETY: the format takes one C string.
        unsafe {
            let name = (*ffi::Py_TYPE(item.as_ptr())).tp_name;
            shim::_PyErr_FormatFromCause(ffi::PyExc_TypeError, message.as_ptr(), name);
        }
        Raised
    })
}

/// `GET_AWAITABLE`; `context` is 1 behind `__aenter__`, 2 behind `__aexit__`.
pub fn get_awaitable<'py>(object: Borrowed<'_, 'py>, context: u32) -> Result<Object<'py>> {
    let iterator = awaitable_iter(object).inspect_err(|Raised| {
        let implements = async_slots(object).and_then(|slots| slots.am_await).is_some();
        let message = match context {
            1 => {
                c"'async with' received an object from __aenter__ that does not implement \
                __await__: %.100s"
            }
            2 => {
                c"'async with' received an object from __aexit__ that does not implement \
                __await__: %.100s"
            }
            _ => return,
        };
        if !implements {
            let _: Raised = wrong_type(message, object);
        }
    })?;
    // SAFETY: a type check; then a coroutine.
    let is_awaited = unsafe {
        ffi::PyCoro_CheckExact(iterator.as_ptr()) != 0
            && shim::stator_is_awaiting(iterator.as_ptr()) != 0
    };
    if is_awaited {
        let error = PyRuntimeError::new_err("coroutine is being awaited already");
        return Err(Raised::set(object.py(), error));
    }
    Ok(iterator)
}

/// Whether `object` is a coroutine, or a generator marked as one.
fn is_coroutine(object: Borrowed<'_, '_>) -> bool {
    // SAFETY: type checks; a generator's code is a code object, read through its attribute.
    unsafe {
        if ffi::PyCoro_CheckExact(object.as_ptr()) != 0 {
            return true;
        }
        if ffi::PyGen_CheckExact(object.as_ptr()) == 0 {
            return false;
        }
    }
    object.getattr(intern!(object.py(), "gi_code")).is_ok_and(|code| {
        Code::of(code.as_borrowed())
            .is_some_and(|code| code.flags() & ffi::CO_ITERABLE_COROUTINE as u32 != 0)
    })
}

/// The iterator that an `await` drives.
fn awaitable_iter<'py>(object: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    let py = object.py();
    if is_coroutine(object) {
        return Ok(object.to_owned());
    }
    let Some(getter) = async_slots(object).and_then(|slots| slots.am_await) else {
        return Err(wrong_type(c"object %.100s can't be used in 'await' expression", object));
    };
    // SAFETY: the type's own slot.
    let iterator = unsafe { owned(py, getter(object.as_ptr())) }?;
    if is_coroutine(iterator.as_borrowed()) {
        let error = PyTypeError::new_err("__await__() returned a coroutine");
        return Err(Raised::set(py, error));
    }
    // SAFETY: a check on a valid object.
    if unsafe { ffi::PyIter_Check(iterator.as_ptr()) } == 0 {
        let message = c"__await__() returned non-iterator of type '%.100s'";
        return Err(wrong_type(message, iterator.as_borrowed()));
    }
    Ok(iterator)
}

/// `BEFORE_ASYNC_WITH`: (bound `__aexit__`, result of `__aenter__`).
pub fn before_async_with<'py>(manager: Borrowed<'_, 'py>) -> Result<(Object<'py>, Object<'py>)> {
    let py = manager.py();
    let no_enter = c"'%.200s' object does not support the asynchronous context manager protocol";
    let no_exit = c"'%.200s' object does not support the asynchronous context manager protocol \
        (missed __aexit__ method)";
    let enter = special(manager, intern!(py, "__aenter__"), no_enter)?;
    let exit = special(manager, intern!(py, "__aexit__"), no_exit)?;
    let entered = call_no_args(&enter)?;
    Ok((exit, entered))
}
