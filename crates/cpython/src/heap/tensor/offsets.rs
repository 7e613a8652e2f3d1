//! Reading a tensor's fields where they lie: what the rest of `tensor` asks once the offsets are found.

use std::ffi::c_void;

use super::{Dimensions, Expected, Memory, TensorInfo, agree, handle};
use crate::heap::torch::Torch;
use crate::heap::words;

/// Up to this many dimensions are kept inside the `TensorImpl`.
pub(in crate::heap) const INLINE_DIMENSIONS: usize = 5;

/// Offsets of fields in a `TensorImpl`, and in what it owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::heap) struct Offsets {
    /// In a tensor's Python object: the `TensorImpl*`.
    pub cdata: usize,
    /// `storage_`: a pointer to the storage, or null.
    pub storage: usize,
    /// `autograd_meta_`: null or an `AutogradMeta`.
    pub autograd_meta: usize,
    /// `version_counter_`: null or a counted object.
    pub version_counter: usize,
    /// `sizes_and_strides_`: number of dimensions, then 5 sizes and 5 strides, or a pointer to them.
    pub sizes: usize,
    /// `storage_offset_`.
    pub storage_offset: usize,
    /// `data_type_`, then `device_opt_` and bit fields: one word.
    pub dtype: usize,
    /// `key_set_`.
    pub key_set: usize,
    /// `requires_grad_` of the `AutogradMeta`: a byte, the first of its word.
    pub requires_grad: usize,
    /// `grad_fn_` of the `AutogradMeta`.
    pub grad_fn: usize,
    /// The version, in what `version_counter_` points to: half a word.
    pub version: usize,
    /// The address of its memory, in a `StorageImpl`.
    pub memory: usize,
    /// `size_bytes_` of a `StorageImpl`.
    pub memory_size: usize,
}

impl Offsets {
    /// # Safety
    /// `implementation` is a live `TensorImpl` with these offsets.
    #[inline(always)]
    pub(in crate::heap) unsafe fn word(implementation: *const c_void, offset: usize) -> u64 {
        // SAFETY: passed on to the caller.
        unsafe { words::word(implementation.cast(), offset) }
    }

    /// Sizes and strides.
    ///
    /// # Safety
    /// As for [`Offsets::word`].
    #[inline(always)]
    pub(super) unsafe fn dimensions<'a>(
        &self,
        implementation: *const c_void,
    ) -> (&'a [i64], &'a [i64]) {
        // SAFETY: `SizesAndStrides`: the count, then inline arrays of 5, or a pointer to arrays of
        // the count. The slices are used before anything can change them.
        unsafe {
            let count = Self::word(implementation, self.sizes) as usize;
            let inline = implementation.cast::<u8>().add(self.sizes + 8).cast::<i64>();
            if count <= INLINE_DIMENSIONS {
                let strides = inline.add(INLINE_DIMENSIONS);
                return (
                    std::slice::from_raw_parts(inline, count),
                    std::slice::from_raw_parts(strides, count),
                );
            }
            let outside = inline.cast::<*const i64>().read();
            (
                std::slice::from_raw_parts(outside, count),
                std::slice::from_raw_parts(outside.add(count), count),
            )
        }
    }

    /// # Safety
    /// As for [`Offsets::word`].
    pub(super) unsafe fn memory(&self, implementation: *const c_void) -> Option<Memory> {
        // SAFETY: `storage_` is null or a live `StorageImpl`.
        unsafe {
            let storage = Self::word(implementation, self.storage) as *const c_void;
            (!storage.is_null()).then(|| Memory {
                storage: storage as usize,
                start: Self::word(storage, self.memory) as usize,
                size: Self::word(storage, self.memory_size) as usize,
            })
        }
    }

    /// dtype, device type and device index.
    ///
    /// # Safety
    /// As for [`Offsets::word`].
    #[inline(always)]
    pub(super) unsafe fn kind(&self, implementation: *const c_void) -> (i32, i32, i32) {
        // SAFETY: passed on to the caller.
        Self::kind_of(unsafe { Self::word(implementation, self.dtype) })
    }

    /// What the word at [`Offsets::dtype`] says.
    #[inline(always)]
    pub(super) fn kind_of(word: u64) -> (i32, i32, i32) {
        (
            (word & 0xffff) as i32,
            i32::from((word >> 16) as u8 as i8),
            i32::from((word >> 24) as u8 as i8),
        )
    }

    /// # Safety
    /// As for [`Offsets::word`].
    #[inline(always)]
    unsafe fn requires_grad(&self, implementation: *const c_void) -> bool {
        // SAFETY: `autograd_meta_` is null or a live `AutogradMeta`, which the tensor owns.
        unsafe {
            let meta = Self::word(implementation, self.autograd_meta) as *const c_void;
            !meta.is_null()
                && (Self::word(meta, self.requires_grad) & 0xff != 0
                    || Self::word(meta, self.grad_fn) != 0)
        }
    }

    /// # Safety
    /// As for [`Offsets::word`].
    pub(super) unsafe fn info(&self, torch: &Torch, implementation: *mut c_void) -> TensorInfo {
        // SAFETY: passed on to the caller; the version counter is null or live.
        unsafe {
            let key_set = Self::word(implementation, self.key_set);
            let plain = key_set & torch.opaque_keys == 0;
            let (dtype, device_type, device_index) = self.kind(implementation);
            let (sizes, strides) = self.dimensions(implementation);
            let counter = Self::word(implementation, self.version_counter) as *const c_void;
            TensorInfo {
                dtype,
                device_type,
                device_index,
                layout: self.layout(torch, implementation, key_set),
                requires_grad: self.requires_grad(implementation),
                key_set,
                sizes: Dimensions::new(sizes),
                strides: Dimensions::new(if plain { strides } else { &[] }),
                storage_offset: if plain {
                    Self::word(implementation, self.storage_offset) as i64
                } else {
                    0
                },
                version: (!counter.is_null()).then(|| Self::word(counter, self.version) as u32),
                plain,
            }
        }
    }

    /// Tensors without keys of other layouts are strided; the others are asked.
    ///
    /// # Safety
    /// As for [`Offsets::word`].
    #[inline(always)]
    unsafe fn layout(&self, torch: &Torch, implementation: *mut c_void, key_set: u64) -> i32 {
        if key_set & torch.sparse_keys == 0 {
            return 0;
        }
        let mut layout = -1;
        if let Some(functions) = &torch.functions {
            // SAFETY: the handle of a live tensor and a place for the result.
            unsafe { (functions.layout)(handle(&implementation), &mut layout) };
        }
        layout
    }

    /// # Safety
    /// As for [`Offsets::word`].
    #[inline]
    pub(super) unsafe fn matches(
        &self,
        torch: &Torch,
        implementation: *mut c_void,
        expected: &Expected<'_>,
    ) -> bool {
        // SAFETY: passed on to the caller.
        unsafe {
            let key_set = Self::word(implementation, self.key_set);
            let (sizes, strides) = self.dimensions(implementation);
            key_set == expected.key_set
                && self.kind(implementation)
                    == (expected.dtype, expected.device_type, expected.device_index)
                && agree(sizes, expected.sizes)
                && (key_set & torch.opaque_keys != 0 || agree(strides, expected.strides))
                && self.requires_grad(implementation) == expected.requires_grad
                && self.layout(torch, implementation, key_set) == expected.layout
        }
    }
}
