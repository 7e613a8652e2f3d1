//! `stator.federated`: the federated language's objects, and calls of the user's functions.
//!
//! Everything that calls Python code of the user, or that the user calls, is native: a traceback
//! shows the user's frames and no others.

mod errors;

use pyo3::prelude::*;

/// Adds the module `_stator.federated`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let federated = PyModule::new(module.py(), "federated")?;
    errors::register(&federated)?;
    module.add_submodule(&federated)
}
