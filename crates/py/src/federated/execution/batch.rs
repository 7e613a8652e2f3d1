//! The tensors of several clients in one.

use std::ops::Range;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use stator_federated::dtype::{DType, Kind};
use stator_federated::execution::Total;
use stator_federated::types::{Shape, TensorType};

use super::numbers::Numbers;
use super::torch::{Torch, sizes};

/// How many bytes of numbers are read at a time, about: they stay near the processor.
const BLOCK: u64 = 64 << 10;

/// A torch tensor whose first dimension is that of clients. Its elements stand one after the other, and nobody
/// writes to it.
pub struct Batch {
    tensor: Py<PyAny>,
    clients: usize,
    /// The numbers of how many clients are read at a time; 0, if they aren't read in this way.
    at_a_time: usize,
    /// Whether each client has one number, that isn't complex.
    is_one_each: bool,
    /// All of them, then: read when one is asked for.
    scalars: PyOnceLock<Option<Numbers>>,
}

impl Batch {
    /// Those in a tensor, if they are of this type.
    pub fn of(
        tensor: &Bound<'_, PyAny>,
        ty: &TensorType,
        clients: usize,
    ) -> PyResult<Option<Self>> {
        let Some(torch) = Torch::get(tensor.py())?.filter(|torch| torch.is_plain(tensor)) else {
            return Ok(None);
        };
        let found = sizes(tensor)?;
        let Some((&count, each)) = found.split_first() else { return Ok(None) };
        let each = Shape::new(each.iter().copied().map(Some).collect::<Vec<_>>());
        let is_of = torch.dtype(tensor)? == Some(ty.dtype)
            && ty.shape.is_assignable_from(&each)
            && count == clients as u64;
        let numbers = found[1..].iter().product::<u64>();
        let is_one_each = numbers == 1 && ty.dtype.kind() != Kind::Complex;
        let bytes = numbers * ty.dtype.size() as u64;
        let at_a_time = match ty.dtype {
            DType::Float32 | DType::Float64 => (BLOCK / bytes.max(1)).max(1) as usize,
            _ => 0,
        };
        let tensor = tensor.clone().unbind();
        let scalars = PyOnceLock::new();
        Ok(is_of.then_some(Self { tensor, clients, at_a_time, is_one_each, scalars }))
    }

    /// The tensor of one client, on the same memory.
    pub fn row<'py>(&self, py: Python<'py>, at: usize) -> PyResult<Bound<'py, PyAny>> {
        self.tensor.bind(py).call_method1(intern!(py, "select"), (0, at))
    }

    /// The sizes of a client's tensor.
    pub fn sizes(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        Ok(sizes(self.tensor.bind(py))?.split_off(1))
    }

    /// The tensors of some clients, one after the other.
    pub fn rows<'py>(&self, py: Python<'py>, range: &Range<usize>) -> PyResult<Bound<'py, PyAny>> {
        self.tensor.bind(py).call_method1(intern!(py, "narrow"), (0, range.start, range.len()))
    }

    /// Adds the tensors of some clients, each times its weight, to the sums of as many numbers as a tensor has. False:
    /// they aren't in memory as floating-point numbers, and none was added.
    pub fn add_to(
        &self,
        py: Python<'_>,
        clients: Range<usize>,
        total: &mut Total,
        weights: Option<&[f64]>,
    ) -> PyResult<bool> {
        if self.at_a_time == 0 {
            return Ok(false);
        }
        for first in clients.clone().step_by(self.at_a_time) {
            let some = first..clients.end.min(first + self.at_a_time);
            let Some(numbers) = Numbers::of(&self.rows(py, &some)?)? else { return Ok(false) };
            let weights =
                weights.map(|of| &of[some.start - clients.start..some.end - clients.start]);
            numbers.add_to(total, some.len(), weights);
        }
        Ok(true)
    }

    /// The sum of the tensors of some clients, if they are of integers that PyTorch adds up: it wraps around, as adding
    /// one after the other does.
    pub fn integers<'py>(
        &self,
        py: Python<'py>,
        clients: &Range<usize>,
        ty: &TensorType,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 | DType::UInt8) = ty.dtype
        else {
            return Ok(None);
        };
        let named = PyDict::new(py);
        named
            .set_item(intern!(py, "dtype"), self.tensor.bind(py).getattr(intern!(py, "dtype"))?)?;
        let rows = self.rows(py, clients)?;
        rows.call_method(intern!(py, "sum"), (0,), Some(&named)).map(Some)
    }

    /// The number that a client has, if each has one, and they are in memory.
    pub fn number(&self, py: Python<'_>, at: usize) -> PyResult<Option<f64>> {
        if !self.is_one_each {
            return Ok(None);
        }
        let read = || {
            let tensor = self.tensor.bind(py);
            match self.at_a_time {
                0 => Numbers::of(&tensor.call_method0(intern!(py, "double"))?),
                _ => Numbers::of(tensor),
            }
        };
        let numbers = self.scalars.get_or_try_init(py, read)?.as_ref();
        Ok(numbers.filter(|all| all.len() == self.clients).map(|all| all.number(at)))
    }
}
