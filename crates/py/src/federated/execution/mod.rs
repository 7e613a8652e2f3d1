//! Running computations: the context in which calling one just works, and the interfaces for
//! executors that others write.

mod arguments;
mod batch;
mod cardinalities;
mod context;
pub mod hidden;
mod kernels;
mod leaf;
mod numbers;
mod owned;
mod padding;
mod parts;
mod pause;
pub mod payload;
mod program;
mod results;
mod stack;
mod sums;
mod threads;
mod torch;
mod travel;

pub use context::computation;
use pyo3::prelude::*;

/// Adds what users see of execution.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    cardinalities::register(module)?;
    hidden::register(module)?;
    parts::register(module)?;
    payload::register(module)?;
    context::register(module)
}
