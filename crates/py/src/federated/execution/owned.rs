//! Memory that nobody else has.
//!
//! What users get they may write to, and what their functions returned they may go on writing to. So
//! a tensor changes hands only with memory that nobody else knows; otherwise it is copied.

use pyo3::intern;
use pyo3::prelude::*;
use stator_cpython::object::references;
use stator_federated::execution::Value;

use super::leaf::Leaf;
use super::torch::{Torch, is_torch};
use crate::federated::types::dtypes;

/// How many references an object has if we hold the only one.
const OURS: usize = 1;

/// An object with memory of its own: this one, which nobody else may hold, or a copy.
pub fn own<'py>(object: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if is_exclusive(&object)? {
        return Ok(object);
    }
    let py = object.py();
    if object.is_instance(dtypes::ndarray(py)?)? {
        return object.call_method0("copy");
    }
    if is_torch(&object)? {
        return object.call_method0("detach")?.call_method0("clone");
    }
    Ok(object)
}

/// Whether nobody but the holder of this reference can reach the memory of a tensor. Scalars and
/// strings don't change: nobody needs to own them.
pub fn is_exclusive(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    if object.is_instance(dtypes::ndarray(py)?)? {
        return Ok(references(object.as_borrowed()) == OURS
            && object.getattr(intern!(py, "base"))?.is_none()
            && object
                .getattr(intern!(py, "flags"))?
                .getattr(intern!(py, "owndata"))?
                .is_truthy()?);
    }
    if is_torch(object)? {
        return Ok(references(object.as_borrowed()) == OURS && has_own_storage(object)?);
    }
    Ok(true)
}

/// Whether this tensor alone uses its storage, which PyTorch has allocated.
fn has_own_storage(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = tensor.py();
    let torch = Torch::get(py)?.expect("it is one of its tensors");
    // PyTorch may hold it for gradients.
    if tensor.call_method0(intern!(py, "_use_count"))?.extract::<i64>()? != 1 {
        return Ok(false);
    }
    let storage = tensor.call_method0(intern!(py, "untyped_storage"))?;
    // The tensor's reference and that of `storage`. What is made from NumPy's memory can't be resized.
    Ok(!storage.call_method0(intern!(py, "is_shared"))?.is_truthy()?
        && torch.uses(&storage)? == 2
        && storage.call_method0(intern!(py, "resizable"))?.is_truthy()?)
}

/// Makes the tensors of a value its own. Whoever made the value must have let go of it.
pub fn settle(py: Python<'_>, value: Value<Leaf>) -> PyResult<Value<Leaf>> {
    value.map_leaves(&mut |leaf: Leaf| leaf.own(py).map(Leaf::new))
}
