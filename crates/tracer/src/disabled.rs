//! `stator.disable`: a function that runs natively, with all that it calls.

use std::cell::Cell;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyTuple};
use stator_cpython::generic::{self, WithoutGc};
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};

use crate::compiling::Answering;

thread_local! {
    /// How many disabled functions this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Whether a disabled function is running: compiled functions run natively then.
#[inline]
#[must_use]
pub fn is_in_disabled() -> bool {
    DEPTH.get() != 0
}

/// A function that is never traced, and neither are compiled functions that it calls.
///
/// An object rather than a wrapper in Python, so that no frame of Stator's is on the user's stack.
/// What describes the function stands in the instance's dictionary, as `functools.wraps` puts it there.
#[pyclass(dict, weakref, frozen, module = "stator._stator")]
pub struct Disabled {
    function: Py<PyFunction>,
    #[pyo3(get, name = "_reason")]
    reason: String,
}

/// While it lives, this thread is in a disabled function.
struct Inside {
    _answering: Answering,
}

impl Inside {
    fn new() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self { _answering: Answering::new(false) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

#[pymethods]
impl Disabled {
    #[new]
    fn new<'py>(function: &Bound<'py, PyFunction>, reason: String) -> PyResult<Bound<'py, Self>> {
        let py = function.py();
        let this = Self { function: function.clone().unbind(), reason };
        let this = {
            // As for `Compiled`: the collector mustn't see it half made.
            let _gc = WithoutGc::new(py);
            Bound::new(py, this)?
        };
        modules::import(py, "functools")?.call_method1("update_wrapper", (&this, function))?;
        Ok(this)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let name = slf.getattr("__qualname__").map_or_else(|_| "?".into(), |name| name.to_string());
        format!("<disabled function {name} at {:#x}>", slf.as_ptr() as usize)
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Object<'py>> {
        let _inside = Inside::new();
        self.function.bind(args.py()).call(args, kwargs)
    }

    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        instance: &Bound<'py, PyAny>,
        _owner: Option<&Bound<'py, PyAny>>,
    ) -> Object<'py> {
        if instance.is_none() {
            return slf.clone().into_any();
        }
        generic::bind_method(slf.as_any().as_borrowed(), instance.as_borrowed())
    }

    fn __copy__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf.clone()
    }
}

/// Why an object isn't to be traced, if it is a disabled function.
#[must_use]
pub fn reason(object: Borrowed<'_, '_>) -> Option<String> {
    object.cast::<Disabled>().ok().map(|disabled| disabled.get().reason.clone())
}
