//! Sums of floating-point and complex tensors, of NumPy and PyTorch.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyTuple};
use stator_federated::dtype::Kind;
use stator_federated::execution::{Sum, Total};
use stator_federated::types::TensorType;
use stator_federated::{Class, Error};

use super::kernels::dims;
use super::leaf::{Leaf, is_torch, numpy, scalar_or_array, torch, torch_to_numpy};
use super::pause::pause;
use crate::federated::errors::raise;
use crate::federated::types::dtypes;

/// The sum of tensors of type `ty`, whose elements are floating-point or complex numbers.
pub fn sum<'py>(
    py: Python<'py>,
    leaves: &[&Leaf],
    how: Sum<'_>,
    ty: &TensorType,
) -> PyResult<Bound<'py, PyAny>> {
    let weight = |at: usize| how.weights.map_or(1.0, |weights| weights[at]);
    let mut in_torch = !leaves.is_empty();
    for leaf in leaves {
        in_torch = in_torch && is_torch(leaf.bind(py))?;
    }
    if ty.shape.is_scalar() && ty.dtype.kind() == Kind::Float && !in_torch {
        let mut total = Total::new(1);
        for (at, leaf) in leaves.iter().enumerate() {
            pause(py)?;
            let number: f64 = leaf.bind(py).call_method0("__float__")?.extract()?;
            total.add(&[number], weight(at));
        }
        let number = PyFloat::new(py, total.finish(how.divided_by, ty.dtype)[0]);
        return dtypes::to_numpy(py, ty.dtype)?.getattr("type")?.call1((number,));
    }
    let sizes: Vec<u64> = match leaves.first() {
        Some(first) => first.bind(py).getattr("shape")?.extract()?,
        None => dims(ty).map_err(|error| raise(&error))?,
    };
    // A complex number is two numbers in a row.
    let is_complex = ty.dtype.kind() == Kind::Complex;
    let count = sizes.iter().product::<u64>() as usize * if is_complex { 2 } else { 1 };
    let mut total = Total::new(count);
    let mut numbers = vec![0.0; count];
    for (at, leaf) in leaves.iter().enumerate() {
        pause(py)?;
        let row = wide_row(leaf.bind(py), is_complex)?;
        let row = PyBuffer::<f64>::get(&row)?;
        if row.item_count() != count {
            let error = Error::new(Class::Value, "tensors of different sizes can't be summed");
            let found: Vec<u64> = leaf.bind(py).getattr("shape")?.extract()?;
            return Err(raise(&error.expected(format!("{sizes:?}")).found(format!("{found:?}"))));
        }
        row.copy_to_slice(py, &mut numbers)?;
        total.add(&numbers, weight(at));
    }
    let total = total.finish(how.divided_by, ty.dtype);
    let made = numpy(py)?.call_method1("empty", (count, "float64"))?;
    PyBuffer::<f64>::get(&made)?.copy_from_slice(py, &total)?;
    let made = if is_complex { made.call_method1("view", ("complex128",))? } else { made };
    let made = made.call_method1("reshape", (PyTuple::new(py, sizes)?,))?;
    if let Some(torch) = torch(py)?
        && in_torch
    {
        let like = leaves[0].bind(py);
        let made = torch.call_method1("from_numpy", (made,))?;
        return made.call_method1("to", (like.getattr("device")?, like.getattr("dtype")?));
    }
    // The memory is new where there was anything to convert; otherwise `made` may have a base.
    let made = made.call_method1("astype", (dtypes::to_numpy(py, ty.dtype)?,))?;
    scalar_or_array(made)
}

/// The elements of a tensor in a row of 64-bit numbers.
fn wide_row<'py>(tensor: &Bound<'py, PyAny>, is_complex: bool) -> PyResult<Bound<'py, PyAny>> {
    let py = tensor.py();
    let array = if is_torch(tensor)? {
        let torch = torch(py)?.expect("it is one of its tensors");
        let wide = torch.getattr(if is_complex { "complex128" } else { "float64" })?;
        let tensor = tensor.call_method0("detach")?.call_method1("to", (wide,))?;
        torch_to_numpy(&tensor)?.ok_or_else(|| PyNotImplementedError::new_err("no such tensor"))?
    } else {
        tensor.clone()
    };
    let wide = if is_complex { "complex128" } else { "float64" };
    let array = numpy(py)?.call_method1("ascontiguousarray", (array, wide))?;
    let row = array.call_method1("reshape", (-1,))?;
    if is_complex { row.call_method1("view", ("float64",)) } else { Ok(row) }
}
