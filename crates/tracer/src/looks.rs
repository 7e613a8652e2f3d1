//! What tensors look like: all that a backend may have taken for constant in code for others.
//!
//! What a trace is given is guarded. What its middle gives isn't: there it is looked at where code is used for it.
//! Where the code says itself which sizes it is for, the rest is.

use smallvec::SmallVec;
use stator_cpython::heap::tensor::{self, TensorInfo};
use stator_cpython::object::Borrowed;

/// The looks of some objects; nothing of those that are no tensors.
#[derive(Debug)]
pub struct Looks(Box<[Option<Look>]>);

#[derive(Debug, PartialEq, Eq)]
struct Look {
    dtype: i32,
    device: (i32, i32),
    layout: i32,
    requires_grad: bool,
    key_set: u64,
    offset: i64,
    rank: usize,
    /// Sizes and strides; nothing if any do.
    dims: Option<SmallVec<[i64; 8]>>,
}

impl Look {
    fn of(info: &TensorInfo, is_fixed: bool) -> Self {
        let dims = || info.sizes.iter().chain(info.strides.iter()).copied().collect();
        Self {
            dtype: info.dtype,
            device: (info.device_type, info.device_index),
            layout: info.layout,
            requires_grad: info.requires_grad,
            key_set: info.key_set,
            offset: info.storage_offset,
            rank: info.sizes.len(),
            dims: is_fixed.then(dims),
        }
    }
}

impl Looks {
    /// What these look like; `is_fixed`: also their sizes and strides, which nobody else looks at.
    #[must_use]
    pub fn of(objects: &[Borrowed<'_, '_>], is_fixed: bool) -> Self {
        let look =
            |object: &Borrowed<'_, '_>| tensor::info(*object).map(|info| Look::of(&info, is_fixed));
        Self(objects.iter().map(look).collect())
    }

    /// Whether sizes and strides are among them.
    #[must_use]
    pub fn are_fixed(&self) -> bool {
        self.0.iter().flatten().all(|look| look.dims.is_some())
    }

    /// Whether these look the same.
    #[must_use]
    pub fn hold(&self, objects: &[Borrowed<'_, '_>]) -> bool {
        let same = |(look, object): (&Option<Look>, &Borrowed<'_, '_>)| {
            let is_fixed = look.as_ref().is_some_and(|look| look.dims.is_some());
            tensor::info(*object).map(|info| Look::of(&info, is_fixed)) == *look
        };
        self.0.len() == objects.len() && self.0.iter().zip(objects).all(same)
    }
}
