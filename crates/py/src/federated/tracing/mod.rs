//! Tracing: calling the user's function with stand-ins, and making a computation of what it did.

mod abstracts;
mod around;
mod awaiting;
mod calls;
pub mod computation;
pub mod contexts;
pub mod convert;
mod coroutine;
pub mod elements;
pub mod infer;
mod intrinsics;
mod polymorphic;
pub mod pycontainer;
pub mod scope;
pub mod signature;
mod spans;
mod structures;
mod trace;
pub mod unpack;
pub mod value;
pub mod wrapper;

use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use stator_federated::{Class, Error};

use super::errors::raise;

/// What `__reduce__` gives: a function, and the two arguments that it makes the object from.
type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyAny>, Bound<'py, PyAny>));

/// Turns the errors of the language into exceptions that say which function is being traced.
pub trait Here<T> {
    /// The value, or the exception for the error.
    fn here(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> Here<T> for stator_federated::Result<T> {
    fn here(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise_here(py, error))
    }
}

/// The exception for an error in the function that is being traced.
pub fn raise_here(py: Python<'_>, error: Error) -> PyErr {
    raise(&match scope::declared(py) {
        Some(what) => error.declared(what),
        None => error,
    })
}

/// An exception of ours that was made without knowing of the function that is being traced, with
/// it.
pub fn declared_here(py: Python<'_>, error: PyErr) -> PyErr {
    const CLASSES: [fn(&PyErr, Python<'_>) -> Option<Class>; 3] = [
        |error, py| error.get_type(py).is(py.get_type::<PyTypeError>()).then_some(Class::Type),
        |error, py| error.get_type(py).is(py.get_type::<PyValueError>()).then_some(Class::Value),
        |error, py| {
            let class = py.get_type::<PyNotImplementedError>();
            error.get_type(py).is(class).then_some(Class::NotImplemented)
        },
    ];
    // One with a traceback comes from Python code.
    if error.traceback(py).is_some() {
        return error;
    }
    let Some(what) = scope::declared(py) else { return error };
    let Some(class) = CLASSES.iter().find_map(|of| of(&error, py)) else { return error };
    let text = error.value(py).to_string();
    if text.contains("\n  declared:") {
        return error;
    }
    let line = format!("\n  declared: {what}");
    let text = match text.find("\n  hint:") {
        Some(at) => format!("{}{line}{}", &text[..at], &text[at..]),
        None => text + &line,
    };
    raise(&Error::new(class, text))
}

/// Adds a class whose objects say their own docstrings, with a getter `_doc`.
fn add_documented<T: pyo3::PyClass>(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<T>()?;
    let class = module.py().get_type::<T>();
    let getter = class.getattr("__dict__")?.get_item("_doc")?;
    // The class's own docstring would hide a getter of this name.
    class.setattr("__doc__", getter)
}

/// Adds what users see of tracing.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    contexts::register(module)?;
    scope::register(module)?;
    value::register(module)?;
    convert::register(module)?;
    infer::register(module)?;
    computation::register(module)?;
    polymorphic::register(module)?;
    wrapper::register(module)?;
    unpack::register(module)?;
    pycontainer::register(module)?;
    structures::register(module)?;
    around::register(module)?;
    spans::register(module)?;
    module.add_function(wrap_pyfunction!(trace::zero_or_one_arg_fn_to_building_block, module)?)?;
    intrinsics::register(module)
}
