//! Element types, shapes and arrays for users: what fits where, and their messages.
//!
//! The message of an array or a shape is `bytes`, that of an element type its number.

pub mod dtypes;
mod messages;
mod shapes;

use pyo3::prelude::*;

/// Adds the functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    dtypes::register(module)?;
    shapes::register(module)?;
    messages::register(module)
}
