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

/// A sum of tensors that isn't rounded yet.
struct Unrounded {
    total: Total,
    /// The tensors' sizes.
    sizes: Vec<u64>,
    /// Whether all are PyTorch's.
    in_torch: bool,
}

/// The sum of tensors of type `ty`, whose elements are floating-point or complex numbers.
pub fn sum<'py>(
    py: Python<'py>,
    leaves: &[&Leaf],
    how: Sum<'_>,
    ty: &TensorType,
) -> PyResult<Bound<'py, PyAny>> {
    let sum = unrounded(py, leaves, how.weights, ty)?;
    let made = rounded(py, sum, how.divided_by, ty)?;
    if is_torch(&made)? {
        // Where they are.
        return made.call_method1("to", (leaves[0].bind(py).getattr("device")?,));
    }
    Ok(made)
}

/// The sum before it is rounded: 64-bit numbers with one dimension more, whose sum is the sum.
pub fn partial<'py>(
    py: Python<'py>,
    leaves: &[&Leaf],
    weights: Option<&[f64]>,
    ty: &TensorType,
) -> PyResult<Bound<'py, PyAny>> {
    write(py, unrounded(py, leaves, weights, ty)?, ty)
}

/// The sum of two that aren't rounded.
pub fn merge<'py>(
    py: Python<'py>,
    left: &Leaf,
    right: &Leaf,
    ty: &TensorType,
) -> PyResult<Bound<'py, PyAny>> {
    let mut sum = read(py, left, ty)?;
    let other = read(py, right, ty)?;
    if sum.sizes != other.sizes {
        return Err(unlike(&sum.sizes, &other.sizes));
    }
    sum.in_torch &= other.in_torch;
    other.total.into_rows().iter().for_each(|row| sum.total.add(row, 1.0));
    write(py, sum, ty)
}

/// What comes of a sum that isn't rounded.
pub fn round<'py>(
    py: Python<'py>,
    sum: &Leaf,
    divided_by: Option<f64>,
    ty: &TensorType,
) -> PyResult<Bound<'py, PyAny>> {
    rounded(py, read(py, sum, ty)?, divided_by, ty)
}

fn unrounded(
    py: Python<'_>,
    leaves: &[&Leaf],
    weights: Option<&[f64]>,
    ty: &TensorType,
) -> PyResult<Unrounded> {
    let weight = |at: usize| weights.map_or(1.0, |weights| weights[at]);
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
        return Ok(Unrounded { total, sizes: Vec::new(), in_torch });
    }
    let sizes: Vec<u64> = match leaves.first() {
        Some(first) => first.bind(py).getattr("shape")?.extract()?,
        None => dims(ty).map_err(|error| raise(&error))?,
    };
    let count = numbers(&sizes, ty);
    let mut total = Total::new(count);
    let mut numbers = vec![0.0; count];
    for (at, leaf) in leaves.iter().enumerate() {
        pause(py)?;
        let row = wide_row(leaf.bind(py), ty.dtype.kind() == Kind::Complex)?;
        let row = PyBuffer::<f64>::get(&row)?;
        if row.item_count() != count {
            return Err(unlike(&sizes, &leaf.bind(py).getattr("shape")?.extract::<Vec<u64>>()?));
        }
        row.copy_to_slice(py, &mut numbers)?;
        total.add(&numbers, weight(at));
    }
    Ok(Unrounded { total, sizes, in_torch })
}

fn unlike(expected: &[u64], found: &[u64]) -> PyErr {
    let error = Error::new(Class::Value, "tensors of different sizes can't be summed");
    raise(&error.expected(format!("{expected:?}")).found(format!("{found:?}")))
}

/// How many 64-bit numbers a tensor has: a complex number is two in a row.
fn numbers(sizes: &[u64], ty: &TensorType) -> usize {
    sizes.iter().product::<u64>() as usize * if ty.dtype.kind() == Kind::Complex { 2 } else { 1 }
}

fn rounded<'py>(
    py: Python<'py>,
    sum: Unrounded,
    divided_by: Option<f64>,
    ty: &TensorType,
) -> PyResult<Bound<'py, PyAny>> {
    let total = sum.total.finish(divided_by, ty.dtype);
    let is_complex = ty.dtype.kind() == Kind::Complex;
    if sum.sizes.is_empty() && !is_complex && !sum.in_torch {
        let number = PyFloat::new(py, total[0]);
        return dtypes::to_numpy(py, ty.dtype)?.getattr("type")?.call1((number,));
    }
    let made = row_of(py, &total)?;
    let made = if is_complex { made.call_method1("view", ("complex128",))? } else { made };
    let made = made.call_method1("reshape", (PyTuple::new(py, sum.sizes)?,))?;
    if let Some(torch) = torch(py)?
        && sum.in_torch
    {
        let made = torch.call_method1("from_numpy", (made,))?;
        return made.call_method1("to", (torch.getattr(ty.dtype.name())?,));
    }
    // The memory is new where there was anything to convert; otherwise `made` may have a base.
    let made = made.call_method1("astype", (dtypes::to_numpy(py, ty.dtype)?,))?;
    scalar_or_array(made)
}

/// New memory with these numbers.
fn row_of<'py>(py: Python<'py>, numbers: &[f64]) -> PyResult<Bound<'py, PyAny>> {
    let made = numpy(py)?.call_method1("empty", (numbers.len(), "float64"))?;
    PyBuffer::<f64>::get(&made)?.copy_from_slice(py, numbers)?;
    Ok(made)
}

/// The tensor of a sum that isn't rounded.
fn write<'py>(py: Python<'py>, sum: Unrounded, ty: &TensorType) -> PyResult<Bound<'py, PyAny>> {
    let rows = sum.total.into_rows();
    let mut sizes = vec![rows.len() as u64];
    sizes.extend(sum.sizes);
    if ty.dtype.kind() == Kind::Complex {
        sizes.push(2);
    }
    let made = row_of(py, &rows.concat())?.call_method1("reshape", (PyTuple::new(py, sizes)?,))?;
    match torch(py)? {
        Some(torch) if sum.in_torch => torch.call_method1("from_numpy", (made,)),
        _ => Ok(made),
    }
}

/// The sum that isn't rounded, of its tensor.
fn read(py: Python<'_>, leaf: &Leaf, ty: &TensorType) -> PyResult<Unrounded> {
    let leaf = leaf.bind(py);
    let mut sizes: Vec<u64> = leaf.getattr("shape")?.extract()?;
    if ty.dtype.kind() == Kind::Complex {
        sizes.pop();
    }
    sizes.remove(0);
    let row = PyBuffer::<f64>::get(&wide_row(leaf, false)?)?.to_vec(py)?;
    let count = numbers(&sizes, ty);
    let total = match count {
        0 => Total::new(0),
        _ => Total::from_rows(row.chunks(count).map(<[f64]>::to_vec).collect()),
    };
    Ok(Unrounded { total, sizes, in_torch: is_torch(leaf)? })
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
