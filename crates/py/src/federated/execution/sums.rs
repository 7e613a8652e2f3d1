//! Sums of floating-point and complex tensors, of NumPy and PyTorch.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyNotImplementedError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyTuple};
use stator_federated::dtype::Kind;
use stator_federated::execution::Total;
use stator_federated::types::TensorType;
use stator_federated::{Class, Error};

use super::kernels::dims;
use super::leaf::{Leaf, numpy, rows_in_one, scalar_or_array};
use super::numbers::Numbers;
use super::pause::pause;
use super::torch::{self, is_torch, sizes, torch, torch_to_numpy};
use crate::federated::errors::raise;
use crate::federated::types::dtypes;

/// A sum of tensors of which some have been added.
#[derive(Default)]
pub struct Sums {
    /// Of integers.
    pub integers: Option<Leaf>,
    /// Of others, with the first of the tensors.
    numbers: Option<Numerous>,
}

struct Numerous {
    total: Total,
    /// How many numbers a tensor has; a complex number is two in a row.
    count: usize,
    sizes: Vec<u64>,
    /// The device and the element type, where all tensors are PyTorch's.
    like: Option<(Py<PyAny>, Py<PyAny>)>,
}

impl Sums {
    /// Adds tensors of type `ty`, whose elements are floating-point or complex numbers.
    pub fn add(
        &mut self,
        py: Python<'_>,
        leaves: &[&Leaf],
        weights: Option<&[f64]>,
        ty: &TensorType,
    ) -> PyResult<()> {
        let Some(first) = leaves.first() else { return Ok(()) };
        let is_complex = ty.dtype.kind() == Kind::Complex;
        let numbers = match &mut self.numbers {
            Some(numbers) => numbers,
            none => none.insert(Numerous::like(first.bind(py)?, is_complex)?),
        };
        let mut row = Vec::new();
        let mut left = leaves;
        while let Some(leaf) = left.first() {
            pause(py)?;
            let at = leaves.len() - left.len();
            let together = rows_in_one(left);
            if let Some((batch, clients)) = together
                && batch.sizes(py)? == numbers.sizes
            {
                let some = weights.map(|weights| &weights[at..at + clients.len()]);
                if batch.add_to(py, clients.clone(), &mut numbers.total, some)? {
                    left = &left[clients.len()..];
                    continue;
                }
            }
            left = &left[1..];
            if numbers.like.is_some() && !leaf.is_torch(py)? {
                numbers.like = None;
            }
            let weight = weights.map_or(1.0, |weights| weights[at]);
            numbers.add(py, leaf, weight, is_complex, &mut row)?;
        }
        Ok(())
    }

    /// The sum, divided.
    pub fn finish<'py>(
        self,
        py: Python<'py>,
        divided_by: Option<f64>,
        ty: &TensorType,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.numbers(ty)?.round(py, divided_by, ty)
    }

    /// The sum before it is rounded: 64-bit numbers with one dimension more, whose sum is the sum.
    pub fn unrounded<'py>(self, py: Python<'py>, ty: &TensorType) -> PyResult<Bound<'py, PyAny>> {
        self.numbers(ty)?.write(py, ty)
    }

    fn numbers(self, ty: &TensorType) -> PyResult<Numerous> {
        if let Some(numbers) = self.numbers {
            return Ok(numbers);
        }
        let sizes = dims(ty).map_err(|error| raise(&error))?;
        Ok(Numerous::of(sizes, ty.dtype.kind() == Kind::Complex, None))
    }
}

/// The sum of the first of some tensors of integers, and of how many, if these are those of clients in one tensor.
pub fn integers_in_one(
    py: Python<'_>,
    leaves: &[&Leaf],
    ty: &TensorType,
) -> PyResult<Option<(Leaf, usize)>> {
    let Some((batch, clients)) = rows_in_one(leaves).filter(|(_, clients)| clients.len() > 1)
    else {
        return Ok(None);
    };
    let sum = batch.integers(py, &clients, ty)?;
    Ok(sum.map(|sum| (Leaf::new(sum), clients.len())))
}

/// The sum of two that aren't rounded.
pub fn merge<'py>(
    py: Python<'py>,
    left: &Leaf,
    right: &Leaf,
    ty: &TensorType,
) -> PyResult<Bound<'py, PyAny>> {
    let mut sum = Numerous::read(py, left, ty)?;
    let other = Numerous::read(py, right, ty)?;
    if sum.sizes != other.sizes {
        return Err(unlike(&sum.sizes, &other.sizes));
    }
    if other.like.is_none() {
        sum.like = None;
    }
    other.total.into_rows().iter().for_each(|row| sum.total.add(row, 1.0));
    sum.write(py, ty)
}

/// What comes of a sum that isn't rounded.
pub fn round<'py>(
    py: Python<'py>,
    sum: &Leaf,
    divided_by: Option<f64>,
    ty: &TensorType,
) -> PyResult<Bound<'py, PyAny>> {
    Numerous::read(py, sum, ty)?.round(py, divided_by, ty)
}

fn unlike(expected: &[u64], found: &[u64]) -> PyErr {
    let error = Error::new(Class::Value, "tensors of different sizes can't be summed");
    raise(&error.expected(format!("{expected:?}")).found(format!("{found:?}")))
}

/// New memory with these numbers.
fn row_of<'py>(py: Python<'py>, numbers: &[f64]) -> PyResult<Bound<'py, PyAny>> {
    let made = numpy(py)?.call_method1("empty", (numbers.len(), "float64"))?;
    PyBuffer::<f64>::get(&made)?.copy_from_slice(py, numbers)?;
    Ok(made)
}

impl Numerous {
    fn round<'py>(
        self,
        py: Python<'py>,
        divided_by: Option<f64>,
        ty: &TensorType,
    ) -> PyResult<Bound<'py, PyAny>> {
        let is_complex = ty.dtype.kind() == Kind::Complex;
        let Self { total, sizes, like, .. } = self;
        let total = total.finish(divided_by, ty.dtype);
        if like.is_none() && ty.shape.is_scalar() && !is_complex {
            let number = PyFloat::new(py, total[0]);
            return dtypes::to_numpy(py, ty.dtype)?.getattr("type")?.call1((number,));
        }
        let made = row_of(py, &total)?;
        let made = if is_complex { made.call_method1("view", ("complex128",))? } else { made };
        let made = made.call_method1("reshape", (PyTuple::new(py, sizes)?,))?;
        if let Some(torch) = torch(py)?
            && let Some(like) = like
        {
            return torch.call_method1("from_numpy", (made,))?.call_method1("to", like);
        }
        // The memory is new where there was anything to convert; otherwise `made` may have a base.
        let made = made.call_method1("astype", (dtypes::to_numpy(py, ty.dtype)?,))?;
        scalar_or_array(made)
    }

    /// The tensor of a sum that isn't rounded.
    fn write<'py>(self, py: Python<'py>, ty: &TensorType) -> PyResult<Bound<'py, PyAny>> {
        let rows = self.total.into_rows();
        let mut sizes = vec![rows.len() as u64];
        sizes.extend(self.sizes);
        if ty.dtype.kind() == Kind::Complex {
            sizes.push(2);
        }
        let made = row_of(py, &rows.concat())?;
        let made = made.call_method1("reshape", (PyTuple::new(py, sizes)?,))?;
        match torch(py)? {
            Some(torch) if self.like.is_some() => torch.call_method1("from_numpy", (made,)),
            _ => Ok(made),
        }
    }

    /// The sum that isn't rounded, of its tensor.
    fn read(py: Python<'_>, leaf: &Leaf, ty: &TensorType) -> PyResult<Self> {
        let tensor = leaf.bind(py)?;
        let is_complex = ty.dtype.kind() == Kind::Complex;
        let mut sizes = sizes(tensor)?;
        if is_complex {
            sizes.pop();
        }
        sizes.remove(0);
        let like = match torch(py)? {
            Some(torch) if is_torch(tensor)? => {
                let dtype = torch.getattr(ty.dtype.name())?;
                Some((tensor.getattr("device")?.unbind(), dtype.unbind()))
            }
            _ => None,
        };
        let row = PyBuffer::<f64>::get(&wide_row(tensor, false)?)?.to_vec(py)?;
        let mut read = Self::of(sizes, is_complex, like);
        if read.count > 0 {
            let rows = row.chunks(read.count).map(<[f64]>::to_vec);
            read.total = Total::from_rows(rows.collect());
        }
        Ok(read)
    }

    /// Zeros as many as there are in a tensor.
    fn like(tensor: &Bound<'_, PyAny>, is_complex: bool) -> PyResult<Self> {
        let like = match is_torch(tensor)? {
            true => Some((tensor.getattr("device")?.unbind(), tensor.getattr("dtype")?.unbind())),
            false => None,
        };
        Ok(Self::of(sizes(tensor)?, is_complex, like))
    }

    fn of(sizes: Vec<u64>, is_complex: bool, like: Option<(Py<PyAny>, Py<PyAny>)>) -> Self {
        let count = sizes.iter().product::<u64>() as usize * if is_complex { 2 } else { 1 };
        Self { total: Total::new(count), count, sizes, like }
    }

    /// Adds a tensor; `row` is for what has to be converted.
    fn add(
        &mut self,
        py: Python<'_>,
        leaf: &Leaf,
        weight: f64,
        is_complex: bool,
        row: &mut Vec<f64>,
    ) -> PyResult<()> {
        let Self { total, count, sizes, .. } = self;
        if let Some(numbers) = Numbers::of(leaf.bind(py)?)?
            && numbers.len() == *count
        {
            numbers.add_to(total, 1, Some(&[weight]));
            return Ok(());
        }
        if sizes.is_empty() && !is_complex {
            total.add(&[number(py, leaf)?], weight);
            return Ok(());
        }
        let tensor = leaf.bind(py)?;
        let wide = wide_row(tensor, is_complex)?;
        let wide = PyBuffer::<f64>::get(&wide)?;
        if wide.item_count() != *count {
            return Err(unlike(sizes, &torch::sizes(tensor)?));
        }
        row.resize(*count, 0.0);
        wide.copy_to_slice(py, row)?;
        total.add(row, weight);
        Ok(())
    }
}

/// A scalar as a number.
pub fn number(py: Python<'_>, leaf: &Leaf) -> PyResult<f64> {
    if let Some((batch, at)) = leaf.as_row()
        && let Some(number) = batch.number(py, at)?
    {
        return Ok(number);
    }
    leaf.bind(py)?.call_method0(intern!(py, "__float__"))?.extract()
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
