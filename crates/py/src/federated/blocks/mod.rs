//! Building blocks as Python objects.
//!
//! While the object of a block lives, asking for that block again gives the same object: `is` says
//! whether two blocks are one node.

mod analyses;
mod callbacks;
mod classes;
mod data;
mod factory;
pub mod intrinsics;
pub mod literals;
mod passes;
pub mod pickling;
mod symbols;

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use rustc_hash::FxHashMap;
use stator_federated::ast::BuildingBlock;

pub use classes::BlockObject;

/// The object of each block that has one, by the address of the block's node. An object takes its
/// entry out when it dies; it holds the block, so no other block gets that address before.
static OBJECTS: LazyLock<Mutex<FxHashMap<usize, Py<PyWeakrefReference>>>> =
    LazyLock::new(Mutex::default);

fn objects() -> MutexGuard<'static, FxHashMap<usize, Py<PyWeakrefReference>>> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find<'py>(py: Python<'py>, block: &BuildingBlock) -> Option<Bound<'py, PyAny>> {
    let reference = objects().get(&block.address())?.clone_ref(py);
    reference.bind(py).upgrade()
}

/// The object of a block.
pub fn wrap<'py>(py: Python<'py>, block: &BuildingBlock) -> PyResult<Bound<'py, PyAny>> {
    if let Some(object) = find(py, block) {
        return Ok(object);
    }
    let made = classes::make(py, block)?;
    let reference = PyWeakrefReference::new(&made)?.unbind();
    // Allocating may have collected garbage, which may run any code, this function included.
    if let Some(object) = find(py, block) {
        return Ok(object);
    }
    let old = objects().insert(block.address(), reference);
    drop(old);
    Ok(made)
}

/// The block of an object, if it is one of a block.
pub fn unwrap(object: &Bound<'_, PyAny>) -> Option<BuildingBlock> {
    Some(object.cast::<BlockObject>().ok()?.get().block().clone())
}

/// The block that was given for the argument `name`.
pub fn unwrap_or_err(object: &Bound<'_, PyAny>, name: &str) -> PyResult<BuildingBlock> {
    unwrap(object).ok_or_else(|| not_a_block(object, name))
}

fn not_a_block(object: &Bound<'_, PyAny>, name: &str) -> PyErr {
    let found = super::types::describe(object);
    PyTypeError::new_err(format!(
        "`{name}` must be a building block\n  expected: a building block\n  found:    {found}"
    ))
}

/// Forgets the object of `block`, which is dying.
fn forget(block: &BuildingBlock) {
    Python::try_attach(|py| {
        let mut objects = objects();
        let Some(reference) = objects.get(&block.address()) else { return };
        // A callback of a weak reference may already have asked for the block again.
        if reference.bind(py).upgrade().is_none() {
            let old = objects.remove(&block.address());
            drop(objects);
            drop(old);
        }
    });
}

/// Adds what users see of building blocks.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    classes::register(module)?;
    data::register(module)?;
    intrinsics::register(module)?;
    passes::register(module)?;
    analyses::register(module)?;
    symbols::register(module)?;
    pickling::register(module)?;
    factory::register(module)
}
