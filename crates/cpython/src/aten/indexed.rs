//! Indexing a tensor by one thing (`x[:, 1:]`, `x[..., 0]`, `x[None]`): which dimension it is, and where one operator does it.
//!
//! PyTorch's function for `x[index]` goes through the index and calls an operator for each thing in it that isn't a whole
//! dimension. A slice that is one is left out there; how long a dimension is, only the tensor says.

use crate::heap::tensor;
use crate::heap::torch::Torch;

/// What a tensor is indexed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A whole number.
    Place(i64),
    /// A slice that begins here, and ends there or at the end of the dimension; `is_dense`: with all that is between.
    Slice {
        /// Its first place.
        start: i64,
        /// The place behind its last one.
        stop: i64,
        /// Whether its step is 1.
        is_dense: bool,
    },
    /// `None`: a dimension more.
    New,
}

/// Indexing by one thing, with whole dimensions beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indexed {
    /// The thing.
    pub by: By,
    /// How many dimensions stand before it, or behind it if an ellipsis is before.
    pub beside: usize,
    /// Whether an ellipsis is before it.
    pub from_end: bool,
    /// How many dimensions the index speaks of.
    pub speaks_of: usize,
}

impl Indexed {
    /// The dimension. `None`: it raises, or does something else, or can't be told.
    ///
    /// # Safety
    /// It's the address of an `at::Tensor` that is kept.
    #[inline]
    pub(super) unsafe fn dimension(&self, torch: &Torch, tensor: u64) -> Option<i64> {
        let look = |sizes: &[i64]| {
            if sizes.len() < self.speaks_of {
                return None;
            }
            let count = sizes.len() + usize::from(self.by == By::New);
            let at = if self.from_end { count.checked_sub(self.beside + 1)? } else { self.beside };
            let does = match self.by {
                By::Place(place) => {
                    let size = *sizes.get(at)?;
                    (-size..size).contains(&place)
                }
                By::Slice { start, stop, is_dense } => {
                    let is_whole = start == 0 && is_dense && *sizes.get(at)? <= stop;
                    !is_whole
                }
                By::New => at < count,
            };
            does.then_some(at as i64)
        };
        // SAFETY: passed on to the caller.
        unsafe { tensor::of_sizes_at(torch, tensor, look) }
    }
}
