//! The elements of tensors in memory: of those whose numbers are of 32 or 64 bits, one after the other.

use pyo3::buffer::PyBuffer;
use pyo3::intern;
use pyo3::prelude::*;
use stator_federated::dtype::DType;
use stator_federated::execution::Total;

use super::torch::Torch;
use crate::federated::types::dtypes;

/// Floating-point numbers in a row: a copy.
pub enum Numbers {
    Single(Vec<f32>),
    Double(Vec<f64>),
}

impl Numbers {
    /// Those of a tensor: NumPy's or PyTorch's. `None`: they aren't there in this way.
    pub fn of(tensor: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = tensor.py();
        if tensor.is_exact_instance(dtypes::ndarray(py)?) {
            let found = tensor.getattr(intern!(py, "dtype"))?;
            return Ok([DType::Float32, DType::Float64]
                .into_iter()
                .find(|&dtype| dtypes::to_numpy(py, dtype).is_ok_and(|of| found.is(&of)))
                .and_then(|dtype| Self::of_array(tensor, dtype)));
        }
        let Some(torch) = Torch::get(py)?.filter(|torch| torch.is_plain(tensor)) else {
            return Ok(None);
        };
        let Some(dtype @ (DType::Float32 | DType::Float64)) = torch.dtype(tensor)? else {
            return Ok(None);
        };
        // One on another device, or that is negated where it is read, has no such array.
        Ok(tensor
            .call_method0(intern!(py, "numpy"))
            .ok()
            .and_then(|array| Self::of_array(&array, dtype)))
    }

    fn of_array(array: &Bound<'_, PyAny>, dtype: DType) -> Option<Self> {
        let py = array.py();
        Some(match dtype {
            DType::Float32 => Self::Single(PyBuffer::get(array).ok()?.to_vec(py).ok()?),
            _ => Self::Double(PyBuffer::get(array).ok()?.to_vec(py).ok()?),
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Single(row) => row.len(),
            Self::Double(row) => row.len(),
        }
    }

    /// Adds them: `rows` rows that stand one after the other, each times its weight.
    pub fn add_to(&self, total: &mut Total, rows: usize, weights: Option<&[f64]>) {
        match self {
            Self::Single(numbers) => {
                total.add_singles(rows, weights, |range| numbers[range].iter().copied());
            }
            Self::Double(numbers) => {
                for (at, row) in numbers.chunks((numbers.len() / rows).max(1)).enumerate() {
                    total.add(row, weights.map_or(1.0, |weights| weights[at]));
                }
            }
        }
    }

    /// One of them.
    pub fn number(&self, at: usize) -> f64 {
        match self {
            Self::Single(row) => f64::from(row[at]),
            Self::Double(row) => row[at],
        }
    }
}
