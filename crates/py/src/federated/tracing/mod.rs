//! Tracing: calling the user's function with stand-ins, and making a computation of what it did.

mod abstracts;
mod around;
mod awaiting;
mod calls;
pub mod computation;
pub mod contexts;
pub mod convert;
pub mod elements;
pub mod infer;
mod intrinsics;
mod polymorphic;
pub mod pycontainer;
pub mod scope;
mod signature;
mod structures;
mod trace;
mod unpack;
pub mod value;
pub mod wrapper;

use pyo3::prelude::*;
use stator_federated::Error;

use super::errors::raise;

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
    module.add_function(wrap_pyfunction!(trace::zero_or_one_arg_fn_to_building_block, module)?)?;
    intrinsics::register(module)
}
