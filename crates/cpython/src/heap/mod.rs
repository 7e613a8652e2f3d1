//! CPython's heap objects as guards and the recorder read them: by concrete slot, without running
//! any Python code.
//!
//! What is returned is owned (one reference count): a borrowed reference into a container isn't
//! safe against the container's next change. Only [`snapshot`] reads without counting, and argues
//! there why it may. Nothing here runs user code; what allocates Python objects (and so may run a
//! garbage collection) says so.

pub mod abc;
pub mod address;
pub mod cached;
pub mod constant;
pub mod container;
pub mod context;
pub mod dict;
pub mod exchange;
pub mod function;
mod getter;
pub mod global_state;
pub mod iterator;
pub mod layout;
pub(crate) mod libraries;
pub mod member;
pub mod mortal;
pub mod set_table;
pub mod snapshot;
pub mod tensor;
pub mod thread_local;
pub mod torch;
pub mod twister;
pub mod types;
pub mod weak;
pub mod witness;
mod words;

use std::cell::Cell;

use pyo3::prelude::*;

thread_local! {
    static INTERRUPTIONS: Cell<u64> = const { Cell::new(0) };
}

/// How often something here has allocated Python objects in this thread, so that a garbage
/// collection (and finalizers) may have run: an instance dictionary was made, PyTorch was
/// calibrated. Who needs an uninterrupted view compares before and after, and starts again.
#[must_use]
pub fn interruptions() -> u64 {
    INTERRUPTIONS.get()
}

fn interrupt() {
    INTERRUPTIONS.set(INTERRUPTIONS.get() + 1);
}

/// Does now what would otherwise happen at first use: finds PyTorch and calibrates. Cheap once
/// done, and when PyTorch hasn't been imported.
pub fn prepare(py: Python<'_>) {
    let none = py.None();
    function::Field::PartialFunc.applies(none.bind_borrowed(py));
    container::prepare(py);
    witness::prepare(py);
    thread_local::prepare(py);
    if torch::get(py).is_some() {
        global_state::read(py);
    }
}

/// A borrowed reference to any Python object.
pub type Any<'a, 'py> = pyo3::Borrowed<'a, 'py, PyAny>;

/// A borrowed reference to a type.
pub type Type<'a, 'py> = pyo3::Borrowed<'a, 'py, pyo3::types::PyType>;
