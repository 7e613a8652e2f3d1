//! Types as Python objects.
//!
//! There is one object for each type as long as it lives, so that `is` says whether two types are
//! equal, as it does in the core.

mod analysis;
mod classes;
pub mod containers;
mod convert;
pub mod dtypes;
pub mod placements;

use std::sync::{LazyLock, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyWeakrefMethods;
use pyo3::types::PyWeakrefReference;
use rustc_hash::FxHashMap;
use stator_federated::types::Type;

pub use super::describe::{describe, index_error, index_key};
pub use classes::{
    AbstractTypeObject, StructTypeObject, StructWithPythonTypeObject, TypeObject, shape_object,
};
pub use convert::{expect_type, to_shape, to_type_or_err};

/// The object of each type that has one, by the address of the type's node. An object takes its
/// entry out when it dies; it holds the type, so no other type gets that address before.
static OBJECTS: LazyLock<Mutex<FxHashMap<usize, Py<PyWeakrefReference>>>> =
    LazyLock::new(Mutex::default);

fn objects() -> std::sync::MutexGuard<'static, FxHashMap<usize, Py<PyWeakrefReference>>> {
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find<'py>(py: Python<'py>, ty: &Type) -> Option<Bound<'py, PyAny>> {
    let reference = objects().get(&ty.address())?.clone_ref(py);
    reference.bind(py).upgrade()
}

/// The object of a type.
pub fn wrap<'py>(py: Python<'py>, ty: &Type) -> PyResult<Bound<'py, PyAny>> {
    if let Some(object) = find(py, ty) {
        return Ok(object);
    }
    let made = classes::make(py, ty)?;
    let reference = PyWeakrefReference::new(&made)?.unbind();
    // Allocating may have collected garbage, which may run any code, this function included.
    if let Some(object) = find(py, ty) {
        return Ok(object);
    }
    let old = objects().insert(ty.address(), reference);
    drop(old);
    Ok(made)
}

/// The type of an object, if it is one of a type.
pub fn unwrap(object: &Bound<'_, PyAny>) -> Option<Type> {
    Some(object.cast::<TypeObject>().ok()?.get().ty().clone())
}

/// Forgets the object of `ty`, which is dying.
fn forget(ty: &Type) {
    Python::try_attach(|py| {
        let mut objects = objects();
        let Some(reference) = objects.get(&ty.address()) else { return };
        // A callback of a weak reference may already have asked for the type again.
        if reference.bind(py).upgrade().is_none() {
            let old = objects.remove(&ty.address());
            drop(objects);
            drop(old);
        }
    });
}

/// Adds what users see of types.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    classes::register(module)?;
    convert::register(module)?;
    analysis::register(module)?;
    placements::register(module)
}
