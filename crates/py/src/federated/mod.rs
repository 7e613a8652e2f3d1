//! `stator.federated`: the federated language's objects, and calls of the user's functions.
//!
//! Everything that calls Python code of the user, or that the user calls, is native: a traceback
//! shows the user's frames and no others.

#![allow(clippy::new_ret_no_self, reason = "there is one object for equal types, blocks, ...")]

pub mod arrays;
pub mod blocks;
mod build;
pub mod describe;
pub mod errors;
mod execution;
mod local;
mod nest;
pub mod structure;
pub mod tracing;
pub mod types;
pub mod wire;

use pyo3::prelude::*;

/// Adds the module `_stator.federated`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let federated = PyModule::new(module.py(), "stator._stator.federated")?;
    errors::register(&federated)?;
    structure::register(&federated)?;
    types::register(&federated)?;
    nest::register(&federated)?;
    blocks::register(&federated)?;
    arrays::register(&federated)?;
    tracing::register(&federated)?;
    execution::register(&federated)?;
    local::register(&federated)?;
    // So that `from stator._stator.federated import ...` finds it.
    let modules = module.py().import("sys")?.getattr("modules")?;
    modules.set_item("stator._stator.federated", &federated)?;
    module.add("federated", federated)
}
