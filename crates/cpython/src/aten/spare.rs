//! Tensors that stand for numbers which are others in each call (`x * rate`).
//!
//! To make one takes as long as the operation. So one is written anew for each number, as long as nobody keeps it: what is
//! kept, for a gradient or by whoever watches operators, isn't used again.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use super::Number;
use super::wrapped::{self, DTYPES, Made};
use crate::heap::tensor;
use crate::heap::torch::Torch;

/// A tensor without dimensions in main memory that stands for a number.
#[derive(Debug)]
pub(super) struct Spare {
    made: Made,
    /// Its number in [`DTYPES`].
    dtype: usize,
    /// Who holds it and its memory while nobody else does.
    held: tensor::Held,
}

/// Those that nobody uses.
static IDLE: Mutex<[Vec<Spare>; DTYPES.len()]> = Mutex::new([Vec::new(), Vec::new()]);

/// So many of each are kept.
const LIMIT: usize = 8;

impl Spare {
    /// One that stands for a number, to be given beside the `at::Tensor` at `other`. `None`: PyTorch would give another one.
    ///
    /// # Safety
    /// A live `at::Tensor` lies there.
    pub(super) unsafe fn take(
        py: Python<'_>,
        torch: &Torch,
        other: u64,
        number: Number,
    ) -> Option<Self> {
        // SAFETY: the caller's promise.
        let dtype = wrapped::index(unsafe { tensor::dtype_in_memory(torch, other)? })?;
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner)[dtype].pop();
        let spare = match idle {
            Some(spare) => spare,
            None => {
                // It isn't among those that are shared: it's another one for each caller.
                let made = wrapped::new(py, dtype)?;
                // SAFETY: its owner is beside it.
                let held = unsafe { tensor::held(torch, made.place)? };
                Self { made, dtype, held }
            }
        };
        let data = spare.held.data();
        // SAFETY: it's nobody else's, and holds a `float32` or a `float64`.
        unsafe {
            match (DTYPES[dtype].1, number) {
                ("float32", Number::Float(value)) => data.cast::<f32>().write(value as f32),
                ("float32", Number::Int(value)) => data.cast::<f32>().write(value as f32),
                ("float32", Number::Bool(value)) => data.cast::<f32>().write(value.into()),
                (_, Number::Float(value)) => data.cast::<f64>().write(value),
                (_, Number::Int(value)) => data.cast::<f64>().write(value as f64),
                (_, Number::Bool(value)) => data.cast::<f64>().write(value.into()),
            }
        }
        Some(spare)
    }

    /// The address of its `at::Tensor`.
    pub(super) fn place(&self) -> u64 {
        self.made.place
    }

    /// Lets others use it. Whether nobody has kept it. The caller has the GIL.
    pub(super) fn give_back(self) -> bool {
        if !self.held.is_held_as_before() {
            return false;
        }
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = &mut idle[self.dtype];
        if idle.len() < LIMIT {
            idle.push(self);
        }
        true
    }
}
