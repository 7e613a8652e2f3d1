//! Where a tensor stands in gradients' graphs, as far as PyTorch asks before it writes in place.

use pyo3::prelude::*;

use super::is_tensor;
use crate::generic::WithoutGc;
use crate::modules::Named;
use crate::object::Borrowed;

/// What decides whether a tensor may be written in place while gradients are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whether nothing made it that gradients go through.
    pub is_leaf: bool,
    /// Of a view, how it was made: PyTorch's `CreationMeta`.
    pub view: Option<u8>,
}

/// Where a tensor stands; `None` if this isn't a tensor. No code of the program's runs.
#[must_use]
pub fn place(tensor: Borrowed<'_, '_>) -> Option<Place> {
    static CREATION: Named = Named::new("torch._C._autograd", "_get_creation_meta");
    if !is_tensor(tensor) {
        return None;
    }
    let py = tensor.py();
    let _uninterrupted = WithoutGc::new(py);
    let is_leaf = tensor.getattr(pyo3::intern!(py, "is_leaf")).ok()?.is_truthy().ok()?;
    let is_view = tensor.call_method0(pyo3::intern!(py, "_is_view")).ok()?.is_truthy().ok()?;
    let view = match is_view {
        true => {
            let made = CREATION.get(py).and_then(|ask| ask.call1((tensor,))).ok()?;
            Some(made.call_method0(pyo3::intern!(py, "__int__")).ok()?.extract().ok()?)
        }
        false => None,
    };
    Some(Place { is_leaf, view })
}
