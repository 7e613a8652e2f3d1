//! Tensors as PyTorch's, and several in one.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::leaf::{Leaf, numpy, rows_in_one};
use super::torch::{Torch, is_torch, sizes};
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
    is_number(object)
}

/// Whether an array's elements are numbers that PyTorch knows by the same name.
fn is_number(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    dtypes::is_native_number(&array.getattr(intern!(array.py(), "dtype"))?)
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
    // However their elements stand, those of the new one stand one after the other.
    if column.iter().all(|leaf| leaf.is_array()) && is_number(column[0].bind(py)?)? {
        let arrays = column.iter().map(|leaf| leaf.bind(py)).collect::<PyResult<Vec<_>>>()?;
        let mut dims = vec![column.len() as u64];
        dims.extend(sizes(arrays[0])?);
        let all =
            numpy(py)?.call_method1(intern!(py, "concatenate"), (PyList::new(py, arrays)?,))?;
        return torch.of_array(&all.call_method1(intern!(py, "reshape"), (dims,))?);
    }
    let tensors = column.iter().map(|leaf| convert.own(py, leaf)).collect::<PyResult<Vec<_>>>()?;
    torch.module(py).call_method1(intern!(py, "stack"), (PyList::new(py, tensors)?,))
}
