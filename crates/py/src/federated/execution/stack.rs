//! Tensors as PyTorch's, and several in one.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::leaf::{Leaf, numpy, rows_in_one};
use super::torch::{Torch, is_torch};
use crate::federated::types::dtypes;

/// How tensors become PyTorch's.
pub struct Convert {
    /// Makes a torch tensor of one of NumPy's, which may be on the same memory.
    tensor: Py<PyAny>,
    /// The tensor apart from the caller's gradients.
    own: Py<PyAny>,
}

impl Convert {
    pub fn new(py: Python<'_>) -> PyResult<Self> {
        let tensor = py.import("stator._local_computations")?.getattr("_tensor")?.unbind();
        let own = py.import("stator.programs")?.getattr("_own")?.unbind();
        Ok(Self { tensor, own })
    }

    /// A torch tensor that is nobody else's object, though its memory may be. Its elements stand one after the
    /// other.
    pub fn own<'py>(&self, py: Python<'py>, leaf: &Leaf) -> PyResult<Bound<'py, PyAny>> {
        if let Some((batch, at)) = leaf.as_row() {
            return batch.row(py, at);
        }
        let object = leaf.bind(py)?;
        if let Some(torch) = Torch::get(py)?
            && is_plain_array(object)?
        {
            return torch.of_array(object);
        }
        let tensor = match is_torch(object)? {
            true => object.clone(),
            false => self.tensor.bind(py).call1((object,))?,
        };
        self.own.bind(py).call1((tensor,))
    }
}

/// Whether it is an array that PyTorch takes as it is: its elements stand one after the other, and may be written
/// to.
fn is_plain_array(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    if !object.is_exact_instance(dtypes::ndarray(py)?) {
        return Ok(false);
    }
    let is_carray = object.getattr(intern!(py, "flags"))?.getattr(intern!(py, "carray"))?;
    if !is_carray.is_truthy()? {
        return Ok(false);
    }
    // What else there is, PyTorch knows by another name, or not at all.
    dtypes::is_native_number(&object.getattr(intern!(py, "dtype"))?)
}

/// The tensors, of the same sizes, in a new one with a first dimension for them; there is one.
pub fn stacked<'py>(
    py: Python<'py>,
    column: &[&Leaf],
    convert: &Convert,
) -> PyResult<Bound<'py, PyAny>> {
    let torch = Torch::get(py)?.expect("a program runs");
    if let Some((batch, clients)) = rows_in_one(column)
        && clients.len() == column.len()
    {
        return batch.rows(py, &clients)?.call_method0("clone");
    }
    let mut arrays = Vec::with_capacity(column.len());
    for leaf in column {
        if leaf.as_row().is_some() || !is_plain_array(leaf.bind(py)?)? {
            break;
        }
        arrays.push(leaf.bind(py)?);
    }
    if arrays.len() == column.len() {
        let shape = arrays[0].getattr(intern!(py, "shape"))?;
        let all =
            numpy(py)?.call_method1(intern!(py, "concatenate"), (PyList::new(py, arrays)?,))?;
        let mut dims = vec![column.len() as u64];
        dims.extend(shape.extract::<Vec<u64>>()?);
        return torch.of_array(&all.call_method1(intern!(py, "reshape"), (dims,))?);
    }
    let tensors = column.iter().map(|leaf| convert.own(py, leaf)).collect::<PyResult<Vec<_>>>()?;
    torch.module(py).call_method1(intern!(py, "stack"), (PyList::new(py, tensors)?,))
}
