//! Raising, matching, exception groups.

use std::ptr;

use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyTypeError};
use pyo3::ffi::{self, PyObject};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::attributes::call_no_args;
use crate::ffi as shim;
#[cfg(Py_3_12)]
use crate::frame::Frame;
use crate::generic;
use crate::object::{Borrowed, Object, owned, status};
use crate::raised::{Raised, Result};
use crate::thread::Thread;

/// How a `raise` statement ended; an exception is set either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raise {
    /// A new exception: the frame is to be added to its traceback.
    New,
    /// The exception being handled, raised again as it is.
    Again,
}

fn type_error(py: Python<'_>, message: &'static str) -> Raised {
    Raised::set(py, PyTypeError::new_err(message))
}

fn is_exception_class(object: Borrowed<'_, '_>) -> bool {
    // SAFETY: a check on a valid object.
    unsafe { ffi::PyExceptionClass_Check(object.as_ptr()) != 0 }
}

fn is_exception(object: Borrowed<'_, '_>) -> bool {
    // SAFETY: a check on a valid object.
    unsafe { ffi::PyExceptionInstance_Check(object.as_ptr()) != 0 }
}

/// What a `StopIteration` carries; `None` for every other exception.
#[cfg(Py_3_12)]
pub fn stop_iteration_value<'py>(exception: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    // SAFETY: a static class.
    let class = unsafe { ffi::PyExc_StopIteration };
    if !matches_static(exception, class) {
        return None;
    }
    // SAFETY: an instance of the class, or of a subclass, begins with these fields.
    unsafe {
        let fields = exception.as_ptr().cast::<ffi::PyStopIterationObject>();
        let value = crate::object::cloned(exception.py(), (*fields).value);
        Some(value.unwrap_or_else(|| exception.py().None().into_bound(exception.py())))
    }
}

#[cfg(Py_3_12)]
fn matches_static(exception: Borrowed<'_, '_>, class: *mut PyObject) -> bool {
    // SAFETY: an exception, and a static class.
    unsafe { ffi::PyErr_GivenExceptionMatches(exception.as_ptr(), class) != 0 }
}

/// The `RuntimeError` that an exception becomes as it leaves the body of a generator, if it is one that the
/// generator itself ends by (PEP 479).
///
/// # Errors
/// `MemoryError`.
#[cfg(Py_3_12)]
pub fn stop_iteration_error<'py>(
    frame: &Frame<'py>,
    exception: Borrowed<'_, 'py>,
) -> Result<Option<Object<'py>>> {
    let flags = frame.code().flags();
    let is_async = flags & ffi::CO_ASYNC_GENERATOR as u32 != 0;
    // SAFETY: static classes.
    let (iteration, asynchronous) =
        unsafe { (ffi::PyExc_StopIteration, ffi::PyExc_StopAsyncIteration) };
    let message = if matches_static(exception, iteration) {
        match () {
            () if is_async => "async generator raised StopIteration",
            () if flags & ffi::CO_COROUTINE as u32 != 0 => "coroutine raised StopIteration",
            () => "generator raised StopIteration",
        }
    } else if is_async && matches_static(exception, asynchronous) {
        "async generator raised StopAsyncIteration"
    } else {
        return Ok(None);
    };
    let error = PyRuntimeError::new_err(message).into_value(frame.py()).into_bound(frame.py());
    // SAFETY: two exceptions; each call takes a reference of its own.
    unsafe {
        ffi::PyException_SetCause(error.as_ptr(), exception.to_owned().into_ptr());
        ffi::PyException_SetContext(error.as_ptr(), exception.to_owned().into_ptr());
    }
    Ok(Some(error.into_any()))
}

/// What `owner.name` has raised, as `PyObject_GetAttr` passes it on: an `AttributeError` says of what it speaks, whoever
/// raised it.
pub fn lacks(owner: Borrowed<'_, '_>, name: Borrowed<'_, '_>, raised: Raised) -> Raised {
    let py = owner.py();
    if !generic::exception_matches::<PyAttributeError>(py) {
        return raised;
    }
    let thread = Thread::current(py);
    let exception = thread.take_exception();
    let (name_field, owner_field) = (intern!(py, "name"), intern!(py, "obj"));
    // A class of the program's may have attributes of these names.
    let class = py.get_type::<PyAttributeError>().into_any();
    let is_own = exception.is_exact_instance(&class);
    let is_empty = |field: &Bound<'_, PyString>| {
        let value = if is_own {
            exception.getattr(field)
        } else {
            class.getattr(field).and_then(|field| field.call_method1("__get__", (&exception,)))
        };
        value.is_ok_and(|value| value.is_none())
    };
    if is_empty(name_field) && is_empty(owner_field) {
        let set = exception.setattr(name_field, name);
        let set = set.and_then(|()| exception.setattr(owner_field, owner));
        if let Err(error) = set {
            return Raised::set(py, error);
        }
    }
    thread.restore_exception(exception)
}

/// `raise`, `raise exception`, `raise exception from cause`.
pub fn raise<'py>(
    py: Python<'py>,
    exception: Option<Object<'py>>,
    cause: Option<Object<'py>>,
) -> Raise {
    let Some(exception) = exception else {
        return raise_again(py);
    };
    // The exception is set, whatever went wrong.
    let _: Result<()> = raise_new(py, exception, cause);
    Raise::New
}

fn raise_again(py: Python<'_>) -> Raise {
    let thread = Thread::current(py);
    match thread.handled() {
        Some(exception) => {
            let _: Raised = thread.restore_exception(exception);
            Raise::Again
        }
        None => {
            let error = PyRuntimeError::new_err("No active exception to reraise");
            let _: Raised = Raised::set(py, error);
            Raise::New
        }
    }
}

/// Whether it is checked what the class of a cause gives when it is called.
const CHECKS_CAUSES: bool = cfg!(Py_3_13);

/// What an exception class gives when it is called, if that is an exception.
fn instance_of<'py>(class: &Object<'py>) -> Result<Object<'py>> {
    let value = call_no_args(class)?;
    if is_exception(value.as_borrowed()) {
        return Ok(value);
    }
    let message = c"calling %R should have returned an instance of BaseException, not %R";
    // SAFETY: the format takes two objects.
    unsafe {
        let ty: *mut PyObject = ffi::Py_TYPE(value.as_ptr()).cast();
        ffi::PyErr_Format(ffi::PyExc_TypeError, message.as_ptr(), class.as_ptr(), ty);
    }
    Err(Raised)
}

fn raise_new<'py>(
    py: Python<'py>,
    exception: Object<'py>,
    cause: Option<Object<'py>>,
) -> Result<()> {
    let (class, value) = if is_exception_class(exception.as_borrowed()) {
        let value = instance_of(&exception)?;
        (exception, value)
    } else if is_exception(exception.as_borrowed()) {
        (exception.get_type().into_any(), exception)
    } else {
        drop(exception);
        return Err(type_error(py, "exceptions must derive from BaseException"));
    };

    if let Some(cause) = cause {
        let fixed = if is_exception_class(cause.as_borrowed()) {
            let made = if CHECKS_CAUSES { instance_of(&cause) } else { call_no_args(&cause) };
            made?.into_ptr()
        } else if is_exception(cause.as_borrowed()) {
            cause.into_ptr()
        } else if cause.is_none() {
            ptr::null_mut()
        } else {
            return Err(type_error(py, "exception causes must derive from BaseException"));
        };
        // SAFETY: steals the reference, or null for no cause.
        unsafe { ffi::PyException_SetCause(value.as_ptr(), fixed) };
    }
    // SAFETY: valid objects.
    unsafe { ffi::PyErr_SetObject(class.as_ptr(), value.as_ptr()) };
    Ok(())
}

/// Checks what stands behind `except`.
pub fn check_except_type(classes: Borrowed<'_, '_>) -> Result<()> {
    const MESSAGE: &str = "catching classes that do not inherit from BaseException is not allowed";
    if all_classes(classes, |class| Ok(is_exception_class(class)))? {
        Ok(())
    } else {
        Err(type_error(classes.py(), MESSAGE))
    }
}

/// Checks what stands behind `except*`.
pub fn check_except_star_type(classes: Borrowed<'_, '_>) -> Result<()> {
    const MESSAGE: &str =
        "catching ExceptionGroup with except* is not allowed. Use except instead.";
    check_except_type(classes)?;
    let is_no_group = |class: Borrowed<'_, '_>| {
        // SAFETY: valid objects.
        let found =
            unsafe { ffi::PyObject_IsSubclass(class.as_ptr(), shim::PyExc_BaseExceptionGroup) };
        Ok(status(found)? == 0)
    };
    if all_classes(classes, is_no_group)? { Ok(()) } else { Err(type_error(classes.py(), MESSAGE)) }
}

/// Whether `accepts` holds for a class, or for all classes of a tuple.
fn all_classes<'py>(
    classes: Borrowed<'_, 'py>,
    accepts: impl Fn(Borrowed<'_, 'py>) -> Result<bool>,
) -> Result<bool> {
    // SAFETY: items of a tuple, within its length; no code runs that could change it.
    unsafe {
        if ffi::PyTuple_Check(classes.as_ptr()) == 0 {
            return accepts(classes);
        }
        for index in 0..ffi::PyTuple_GET_SIZE(classes.as_ptr()) {
            let class = ffi::PyTuple_GET_ITEM(classes.as_ptr(), index);
            if !accepts(pyo3::Borrowed::from_ptr(classes.py(), class))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether an exception is an instance of a class or of one in a tuple.
pub fn matches_exception(exception: Borrowed<'_, '_>, classes: Borrowed<'_, '_>) -> bool {
    // SAFETY: valid objects.
    unsafe { ffi::PyErr_GivenExceptionMatches(exception.as_ptr(), classes.as_ptr()) != 0 }
}

/// `END_ASYNC_FOR`: whether an exception ends the loop.
pub fn is_stop_async_iteration(exception: Borrowed<'_, '_>) -> bool {
    // SAFETY: valid objects.
    unsafe {
        let class = ffi::PyExc_StopAsyncIteration;
        ffi::PyErr_GivenExceptionMatches(exception.as_ptr(), class) != 0
    }
}

/// `CHECK_EG_MATCH`: (what an `except*` takes, what it leaves); each may be `None`.
pub fn match_group<'py>(
    exception: Borrowed<'_, 'py>,
    classes: Borrowed<'_, 'py>,
) -> Result<(Object<'py>, Object<'py>)> {
    let py = exception.py();
    let (mut matched, mut rest) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: valid objects; both references are stored on success.
    unsafe {
        status(shim::stator_match_group(
            exception.as_ptr(),
            classes.as_ptr(),
            &raw mut matched,
            &raw mut rest,
        ))?;
        Ok((owned(py, matched)?, owned(py, rest)?))
    }
}

/// `PREP_RERAISE_STAR`: what remains to be raised behind all `except*` clauses, or `None`.
pub fn prepare_reraise_star<'py>(
    original: Borrowed<'_, 'py>,
    raised: Borrowed<'_, 'py>,
) -> Result<Object<'py>> {
    // SAFETY: an exception and a list of exceptions and `None`s, as the compiler makes them.
    unsafe {
        let result = shim::stator_prepare_reraise_star(original.as_ptr(), raised.as_ptr());
        owned(original.py(), result)
    }
}

/// An exception's traceback, or `None`.
pub fn traceback_of<'py>(exception: Borrowed<'_, 'py>) -> Object<'py> {
    let py = exception.py();
    // SAFETY: an exception instance; a new reference or null without an exception.
    let found = unsafe { owned(py, ffi::PyException_GetTraceback(exception.as_ptr())) };
    found.unwrap_or_else(|Raised| py.None().into_bound(py))
}
