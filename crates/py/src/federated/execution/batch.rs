//! The tensors of several clients in one.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;

use stator_federated::dtype::DType;
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
    /// Those of these clients, read last.
    block: Mutex<Option<(Range<usize>, Numbers)>>,
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
        let bytes = found[1..].iter().product::<u64>() * ty.dtype.size() as u64;
        let at_a_time = match ty.dtype {
            DType::Float32 | DType::Float64 => (BLOCK / bytes.max(1)).max(1) as usize,
            _ => 0,
        };
        let tensor = || tensor.clone().unbind();
        let block = Mutex::default;
        Ok(is_of.then(|| Self { tensor: tensor(), clients, at_a_time, block: block() }))
    }

    /// The tensor of one client, on the same memory.
    pub fn row<'py>(&self, py: Python<'py>, at: usize) -> PyResult<Bound<'py, PyAny>> {
        self.tensor.bind(py).call_method1(intern!(py, "select"), (0, at))
    }

    /// The tensors of some clients, one after the other.
    pub fn rows<'py>(&self, py: Python<'py>, range: &Range<usize>) -> PyResult<Bound<'py, PyAny>> {
        self.tensor.bind(py).call_method1(intern!(py, "narrow"), (0, range.start, range.len()))
    }

    /// Does something with the numbers of one client, if they are in memory as floating-point ones: they stand in this
    /// range of what it's given. Those of some clients are read at a time.
    pub fn with_numbers<R>(
        &self,
        py: Python<'_>,
        at: usize,
        look: impl FnOnce(&Numbers, Range<usize>) -> R,
    ) -> PyResult<Option<R>> {
        if self.at_a_time == 0 {
            return Ok(None);
        }
        let mut block = std::mem::take(&mut *self.block());
        let clients = match &block {
            Some((clients, _)) if clients.contains(&at) => clients.clone(),
            _ => {
                let clients = at..self.clients.min(at + self.at_a_time);
                block = Numbers::of(&self.rows(py, &clients)?)?.map(|read| (clients.clone(), read));
                clients
            }
        };
        let Some((_, numbers)) = &block else { return Ok(None) };
        let each = numbers.len() / clients.len();
        let first = (at - clients.start) * each;
        let found = look(numbers, first..first + each);
        *self.block() = block;
        Ok(Some(found))
    }

    fn block(&self) -> MutexGuard<'_, Option<(Range<usize>, Numbers)>> {
        self.block.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
