//! Tensors of a snapshot: their metadata, each kind of it kept once.
//!
//! A model has hundreds of parameters and few kinds of them. A tensor is three pointers (its Python object, its
//! `TensorImpl`, its `AutogradMeta`) and the number of its kind, so that comparing it reads little besides the
//! tensor's own fields.

use std::collections::HashMap;
use std::ffi::c_void;

use pyo3::ffi;
use rustc_hash::FxBuildHasher;

use crate::heap::tensor::{INLINE_DIMENSIONS, Offsets};
use crate::heap::words;

/// A `TensorImpl` keeps the number of dimensions, their sizes and their strides in this many words.
const DIMENSIONS: usize = 1 + 2 * INLINE_DIMENSIONS;
/// Most parameters have no more dimensions than these.
const NEAR: usize = 2;
const FAR: usize = INLINE_DIMENSIONS - NEAR;
/// Where the strides begin among the words.
const STRIDES: usize = 1 + INLINE_DIMENSIONS;

/// Words of memory, and the bits of them that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Masked<const N: usize> {
    want: [u64; N],
    mask: [u64; N],
}

impl<const N: usize> Masked<N> {
    /// Of all words and masks of a `TensorImpl`'s dimensions those from `first` on.
    fn part(want: &[u64; DIMENSIONS], mask: &[u64; DIMENSIONS], first: usize) -> Self {
        let part = |words: &[u64; DIMENSIONS]| std::array::from_fn(|index| words[first + index]);
        Self { want: part(want), mask: part(mask) }
    }

    /// # Safety
    /// There are `N` words at `base + offset`.
    #[inline(always)]
    unsafe fn difference(&self, base: *const c_void, offset: usize) -> u64 {
        let mut difference = 0;
        for index in 0..N {
            // SAFETY: passed on to the caller.
            let found = unsafe { Offsets::word(base, offset + 8 * index) };
            difference |= (found ^ self.want[index]) & self.mask[index];
        }
        difference
    }
}

/// The dimensions of a tensor. Those that most tensors don't have are a part of their own, because comparing words that
/// count for nothing would be most of the work.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Dimensions {
    /// Their number, then the first sizes.
    sizes: Masked<{ 1 + NEAR }>,
    strides: Masked<NEAR>,
    /// The sizes and strides of further ones.
    far: Option<(Masked<FAR>, Masked<FAR>)>,
}

impl Dimensions {
    /// Of a tensor with `count` dimensions.
    fn new(count: usize, want: &[u64; DIMENSIONS], mask: &[u64; DIMENSIONS]) -> Self {
        let far = |first| Masked::part(want, mask, first + NEAR);
        Self {
            sizes: Masked::part(want, mask, 0),
            strides: Masked::part(want, mask, STRIDES),
            far: (count > NEAR).then(|| (far(1), far(STRIDES))),
        }
    }

    /// # Safety
    /// A tensor's dimensions begin at `base + offset`.
    #[inline(always)]
    unsafe fn difference(&self, base: *const c_void, offset: usize) -> u64 {
        // SAFETY: passed on to the caller.
        unsafe {
            let near = self.sizes.difference(base, offset)
                | self.strides.difference(base, offset + 8 * STRIDES);
            let Some((sizes, strides)) = &self.far else { return near };
            near | sizes.difference(base, offset + 8 * (1 + NEAR))
                | strides.difference(base, offset + 8 * (STRIDES + NEAR))
        }
    }
}

/// What tensors have in common: all that is compared, but the pointers.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Kind {
    /// Static or held, so that its address says which type it is.
    object_type: usize,
    key_set: u64,
    dtype: u64,
    dimensions: Dimensions,
    /// The word of `requires_grad_`; 0 without an `AutogradMeta`.
    requires_grad: u64,
    /// Where `requires_grad_` doesn't decide.
    grad_fn: Option<u64>,
}

/// A tensor and what it must be.
#[derive(Clone, Copy)]
struct Record {
    object: *mut ffi::PyObject,
    implementation: *const c_void,
    autograd_meta: *const c_void,
    kind: u32,
    /// Whether a check that passes gives a reference to it.
    is_wanted: bool,
}

/// The tensors of a snapshot.
#[derive(Default)]
pub(super) struct Tensors {
    /// Where the fields of all of them lie.
    offsets: Option<Offsets>,
    kinds: Vec<Kind>,
    records: Vec<Record>,
}

/// The numbers of kinds, while a snapshot is taken.
#[derive(Default)]
pub(super) struct Kinds(HashMap<Kind, u32, FxBuildHasher>);

impl Tensors {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Records a tensor as it is, except sizes and strides where `dynamic_*` says so; its number. `None` if it has
    /// more dimensions than its `TensorImpl` holds.
    ///
    /// # Safety
    /// A live tensor with these fields, whose type's address says which type it is.
    pub(super) unsafe fn push(
        &mut self,
        kinds: &mut Kinds,
        object: *mut ffi::PyObject,
        offsets: &Offsets,
        dynamic_size: impl Fn(usize) -> bool,
        dynamic_stride: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        // SAFETY: passed on to the caller. A tensor owns its `TensorImpl`, and that its `AutogradMeta`.
        let (record, kind) = unsafe {
            let implementation = words::word(object, offsets.cdata) as *const c_void;
            let count = Offsets::word(implementation, offsets.sizes) as usize;
            if count > INLINE_DIMENSIONS {
                return None;
            }
            let mut mask = [0; DIMENSIONS];
            mask[0] = u64::MAX;
            for index in 0..count {
                mask[1 + index] = if dynamic_size(index) { 0 } else { u64::MAX };
                let stride = STRIDES + index;
                mask[stride] = if dynamic_stride(index) { 0 } else { u64::MAX };
            }
            let want: [u64; DIMENSIONS] = std::array::from_fn(|index| {
                Offsets::word(implementation, offsets.sizes + 8 * index) & mask[index]
            });
            let meta = Offsets::word(implementation, offsets.autograd_meta) as *const c_void;
            let requires_grad =
                if meta.is_null() { 0 } else { Offsets::word(meta, offsets.requires_grad) };
            let decides = meta.is_null() || requires_grad & 0xff != 0;
            let kind = Kind {
                object_type: words::type_of(object) as usize,
                key_set: Offsets::word(implementation, offsets.key_set),
                dtype: Offsets::word(implementation, offsets.dtype),
                dimensions: Dimensions::new(count, &want, &mask),
                requires_grad,
                grad_fn: (!decides).then(|| Offsets::word(meta, offsets.grad_fn)),
            };
            (
                Record { object, implementation, autograd_meta: meta, kind: 0, is_wanted: false },
                kind,
            )
        };
        let next = self.kinds.len() as u32;
        let number = *kinds.0.entry(kind).or_insert_with_key(|kind| {
            self.kinds.push(kind.clone());
            next
        });
        self.offsets = Some(*offsets);
        self.records.push(Record { kind: number, ..record });
        Some(self.records.len() - 1)
    }

    /// Asks for a reference to a tensor from each check that passes; false if that was asked already.
    pub(super) fn want(&mut self, number: usize) -> bool {
        !std::mem::replace(&mut self.records[number].is_wanted, true)
    }

    /// Whether all of them are as they were; then the caller owns a reference to each that is wanted. They are taken
    /// here, where the object is looked at anyway.
    ///
    /// # Safety
    /// The tensors' Python objects are alive.
    #[inline]
    pub(super) unsafe fn agree(&self) -> bool {
        let Some(offsets) = &self.offsets else { return true };
        // SAFETY: passed on to the caller.
        let differs = self.records.iter().position(|record| unsafe {
            let agrees = self.agrees(record, offsets);
            if agrees && record.is_wanted {
                ffi::Py_INCREF(record.object);
            }
            !agrees
        });
        if let Some(first) = differs {
            for record in self.records[..first].iter().filter(|record| record.is_wanted) {
                // SAFETY: the reference taken above.
                unsafe { ffi::Py_DECREF(record.object) };
            }
        }
        differs.is_none()
    }

    /// # Safety
    /// The tensor's Python object is alive.
    #[inline(always)]
    unsafe fn agrees(&self, record: &Record, offsets: &Offsets) -> bool {
        let kind = &self.kinds[record.kind as usize];
        let (implementation, meta) = (record.implementation, record.autograd_meta);
        // SAFETY: a tensor's type says that it owns a `TensorImpl`, whose address is compared before it is
        // read; so is that of its `AutogradMeta`.
        unsafe {
            if words::type_of(record.object) as usize != kind.object_type
                || words::word(record.object, offsets.cdata) != implementation as u64
            {
                return false;
            }
            let difference = (Offsets::word(implementation, offsets.key_set) ^ kind.key_set)
                | (Offsets::word(implementation, offsets.dtype) ^ kind.dtype)
                | (Offsets::word(implementation, offsets.autograd_meta) ^ meta as u64)
                | kind.dimensions.difference(implementation, offsets.sizes);
            if difference != 0 || meta.is_null() {
                return difference == 0;
            }
            let grad_fn = kind.grad_fn;
            Offsets::word(meta, offsets.requires_grad) == kind.requires_grad
                && grad_fn.is_none_or(|want| Offsets::word(meta, offsets.grad_fn) == want)
        }
    }
}
