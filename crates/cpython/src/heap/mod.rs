//! CPython's heap objects as guards and the recorder read them: by concrete slot, without running
//! any Python code.
//!
//! What is returned is owned (one reference count): a borrowed reference into a container isn't
//! safe against the container's next change. Only [`snapshot`] reads without counting, and argues
//! there why it may. Nothing here runs user code; what allocates Python objects (and so may run a
//! garbage collection) says so.

pub mod address;
pub mod constant;
pub mod container;
pub mod dict;
pub mod function;
pub mod global_state;
pub mod layout;
pub mod member;
pub mod snapshot;
pub mod tensor;
pub mod torch;
pub mod types;
pub mod weak;
mod words;

use pyo3::prelude::*;

/// A borrowed reference to any Python object.
pub type Any<'a, 'py> = pyo3::Borrowed<'a, 'py, PyAny>;

/// A borrowed reference to a type.
pub type Type<'a, 'py> = pyo3::Borrowed<'a, 'py, pyo3::types::PyType>;
