//! Tensors' metadata, read from their C++ objects.

use std::ffi::c_void;
use std::ops::Deref;

use pyo3::prelude::*;

use super::torch::{self, Torch};
use super::{Any, words};
use crate::generic::WithoutGc;

/// Offset of the `TensorImpl*` in a tensor's Python object.
pub(super) const CDATA: usize = 16;

/// Up to this many dimensions are kept inside the `TensorImpl`.
pub(super) const INLINE_DIMENSIONS: usize = 5;

/// Sizes or strides.
#[derive(Clone)]
pub struct Dimensions {
    length: usize,
    inline: [i64; 6],
    spilled: Option<Box<[i64]>>,
}

impl Dimensions {
    fn new(values: &[i64]) -> Self {
        let mut inline = [0; 6];
        let spilled = if values.len() <= inline.len() {
            inline[..values.len()].copy_from_slice(values);
            None
        } else {
            Some(values.into())
        };
        Dimensions { length: values.len(), inline, spilled }
    }
}

impl Deref for Dimensions {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        self.spilled.as_deref().unwrap_or_else(|| &self.inline[..self.length])
    }
}

impl std::fmt::Debug for Dimensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A tensor's metadata, as PyTorch's C ABI numbers it.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// `c10::ScalarType`.
    pub dtype: i32,
    /// `c10::DeviceType`.
    pub device_type: i32,
    /// Device index; -1 where the device has none.
    pub device_index: i32,
    /// `c10::Layout`.
    pub layout: i32,
    /// `requires_grad`.
    pub requires_grad: bool,
    /// The dispatch key set's bits.
    pub key_set: u64,
    /// Sizes.
    pub sizes: Dimensions,
    /// Strides; empty if not [`TensorInfo::is_plain`].
    pub strides: Dimensions,
    /// Storage offset in elements; 0 if not [`TensorInfo::is_plain`].
    pub storage_offset: i64,
    /// `_version`; `None` for inference tensors, or if it can't be read.
    pub version: Option<u32>,
    plain: bool,
}

impl TensorInfo {
    /// Whether sizes and strides are the tensor's own plain fields: not for sparse, nested,
    /// wrapped (functorch) or Python-dispatched (fake, wrapper subclass) tensors.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.plain
    }
}

/// Whether the object is a tensor of any kind. False before PyTorch is imported.
#[inline]
pub fn is_tensor(object: Any<'_, '_>) -> bool {
    torch::get(object.py()).is_some_and(|torch| torch.is_tensor(object.as_ptr()))
}

/// The address of the tensor's C++ object (`t._cdata`).
#[inline]
pub fn impl_address(object: Any<'_, '_>) -> Option<usize> {
    let torch = torch::get(object.py())?;
    if !torch.is_tensor(object.as_ptr()) {
        return None;
    }
    // SAFETY: a tensor's Python object has the pointer there.
    let address = unsafe { words::pointer(object.as_ptr(), CDATA) } as usize;
    (address != 0).then_some(address)
}

/// Whether a tensor is wholly described by its [`TensorInfo`]: nested, sparse, quantized, named and
/// wrapped ones hold more, which no guard compares. `stands_in`: Python code may dispatch it.
#[inline]
#[must_use]
pub fn is_ordinary(object: Any<'_, '_>, stands_in: bool) -> bool {
    let Some(torch) = torch::get(object.py()) else { return false };
    let beyond = key_set(torch, object).map(|keys| keys & !torch.ordinary_keys);
    beyond == Some(0) || stands_in && beyond.is_some_and(|keys| keys & !torch.python_keys == 0)
}

/// A word for what makes a tensor no ordinary one.
#[must_use]
pub fn unusual(object: Any<'_, '_>) -> Option<&'static str> {
    let torch = torch::get(object.py())?;
    let keys = key_set(torch, object)? & !torch.ordinary_keys;
    let known = torch.kinds.iter().find(|(bits, _)| keys & bits != 0);
    (keys != 0).then(|| known.map_or("of an unusual kind", |(_, word)| word))
}

#[inline]
fn key_set(torch: &Torch, object: Any<'_, '_>) -> Option<u64> {
    let implementation = impl_address(object)? as *const c_void;
    match &torch.offsets {
        // SAFETY: the `TensorImpl` of a live tensor; the offsets were verified.
        Some(offsets) => Some(unsafe { Offsets::word(implementation, offsets.key_set) }),
        None => {
            let keys = torch.dispatch_keys.bind(object.py()).call1((object,)).ok()?;
            keys.call_method0("raw_repr").ok()?.extract().ok()
        }
    }
}

/// The metadata of a tensor; `None` if it isn't one, or nothing is known of this PyTorch.
#[inline]
pub fn info(object: Any<'_, '_>) -> Option<TensorInfo> {
    let torch = torch::get(object.py())?;
    let implementation = impl_address(object)? as *mut c_void;
    match &torch.offsets {
        // SAFETY: the `TensorImpl` of a live tensor; the offsets were verified.
        Some(offsets) => unsafe { Some(offsets.info(torch, implementation)) },
        None => info_by_functions(torch, object, implementation),
    }
}

/// The memory a tensor's data lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The address of its storage, which views share.
    pub storage: usize,
    /// Where the storage's memory begins; 0 without memory.
    pub start: usize,
    /// Its size in bytes.
    pub size: usize,
}

/// Offsets in a `StorageImpl`: the address of its memory, and `size_bytes_`.
const STORAGE: [usize; 2] = [16, 48];

/// The memory of a tensor; `None` if it has no storage, or isn't plain.
#[must_use]
pub fn memory(object: Any<'_, '_>) -> Option<Memory> {
    let torch = torch::get(object.py())?;
    let implementation = impl_address(object)? as *mut c_void;
    let Some(offsets) = &torch.offsets else {
        let storage = object.call_method0("untyped_storage").ok()?;
        let word = |object: Bound<'_, PyAny>| object.extract().ok();
        return Some(Memory {
            storage: word(storage.getattr("_cdata").ok()?)?,
            start: word(storage.call_method0("data_ptr").ok()?)?,
            size: word(storage.call_method0("nbytes").ok()?)?,
        });
    };
    // SAFETY: the `TensorImpl` of a live tensor, and its storage if there is one; the offsets were
    // verified. The size of a plain tensor's storage is no symbol.
    unsafe {
        if Offsets::word(implementation, offsets.key_set) & torch.opaque_keys != 0 {
            return None;
        }
        offsets.memory(implementation)
    }
}

/// The gradient of a leaf (which may be `None`); nothing of other tensors: to ask them may give a
/// warning. No code runs: the caller knows the tensor's exact type, and PyTorch's modes.
#[must_use]
pub fn gradient<'py>(tensor: Any<'_, 'py>) -> Option<Bound<'py, PyAny>> {
    if !is_tensor(tensor) {
        return None;
    }
    let py = tensor.py();
    // A gradient that Python has not seen yet gets its object here.
    let _uninterrupted = WithoutGc::new(py);
    let is_leaf = tensor.getattr(pyo3::intern!(py, "is_leaf")).ok()?.is_truthy().ok()?;
    if is_leaf { tensor.getattr(pyo3::intern!(py, "grad")).ok() } else { None }
}

/// One size of a tensor.
#[inline]
pub fn size(object: Any<'_, '_>, index: usize) -> Option<i64> {
    dimension(object, |sizes, _| sizes.get(index).copied(), |info| info.sizes.get(index).copied())
}

/// One stride of a tensor.
#[inline]
pub fn stride(object: Any<'_, '_>, index: usize) -> Option<i64> {
    dimension(
        object,
        |_, strides| strides.get(index).copied(),
        |info| info.strides.get(index).copied(),
    )
}

#[inline(always)]
fn dimension(
    object: Any<'_, '_>,
    direct: impl FnOnce(&[i64], &[i64]) -> Option<i64>,
    slow: impl FnOnce(&TensorInfo) -> Option<i64>,
) -> Option<i64> {
    let torch = torch::get(object.py())?;
    if let Some(offsets) = &torch.offsets {
        let implementation = impl_address(object)? as *const c_void;
        // SAFETY: the `TensorImpl` of a live tensor; the offsets were verified. The key set says
        // whether the fields are the tensor's own.
        unsafe {
            if Offsets::word(implementation, offsets.key_set) & torch.opaque_keys == 0 {
                let (sizes, strides) = offsets.dimensions(implementation);
                return direct(sizes, strides);
            }
        }
    }
    slow(&info(object)?)
}

/// Whether two tensors of bytes in main memory, each in one piece, hold the same; `None` for any
/// others.
///
/// # Errors
/// What PyTorch raises.
pub fn same_bytes(left: Any<'_, '_>, right: Any<'_, '_>) -> PyResult<Option<bool>> {
    let (Some(a), Some(b)) = (byte_count(left), byte_count(right)) else { return Ok(None) };
    if a != b {
        return Ok(Some(false));
    }
    let start = |tensor: Any<'_, '_>| -> PyResult<*const u8> {
        let address: usize =
            tensor.call_method0(pyo3::intern!(tensor.py(), "data_ptr"))?.extract()?;
        Ok(address as *const u8)
    };
    let (left, right) = (start(left)?, start(right)?);
    if a == 0 || left.is_null() || right.is_null() {
        return Ok((a == 0).then_some(true));
    }
    // SAFETY: both tensors are alive, and their first of so many elements of a byte each lies there;
    // nothing runs while they are compared.
    unsafe {
        let (left, right) =
            (std::slice::from_raw_parts(left, a), std::slice::from_raw_parts(right, a));
        Ok(Some(left == right))
    }
}

/// The number of elements of a plain one-dimensional tensor of bytes in main memory, without gaps.
fn byte_count(tensor: Any<'_, '_>) -> Option<usize> {
    /// `c10::ScalarType::Byte` and `c10::DeviceType::CPU`.
    const BYTE: i32 = 0;
    const CPU: i32 = 0;
    let info = info(tensor)?;
    let is_plain =
        info.is_plain() && info.dtype == BYTE && info.device_type == CPU && info.layout == 0;
    match (&info.sizes[..], &info.strides[..]) {
        ([count], [1]) if is_plain => usize::try_from(*count).ok(),
        _ => None,
    }
}

/// What must agree for [`matches`].
#[derive(Clone, Debug)]
pub struct Expected<'a> {
    /// `c10::ScalarType`.
    pub dtype: i32,
    /// `c10::DeviceType`.
    pub device_type: i32,
    /// Device index; -1 where the device has none.
    pub device_index: i32,
    /// `c10::Layout`.
    pub layout: i32,
    /// `requires_grad`.
    pub requires_grad: bool,
    /// The dispatch key set's bits.
    pub key_set: u64,
    /// Sizes; `None` accepts any.
    pub sizes: &'a [Option<i64>],
    /// Strides; `None` accepts any.
    pub strides: &'a [Option<i64>],
}

/// Whether the object is a tensor with this metadata.
#[inline]
pub fn matches(object: Any<'_, '_>, expected: &Expected<'_>) -> bool {
    let Some(torch) = torch::get(object.py()) else {
        return false;
    };
    let Some(implementation) = impl_address(object) else {
        return false;
    };
    if let Some(offsets) = &torch.offsets {
        // SAFETY: the `TensorImpl` of a live tensor; the offsets were verified.
        return unsafe { offsets.matches(torch, implementation as *mut c_void, expected) };
    }
    info(object).is_some_and(|info| {
        info.dtype == expected.dtype
            && info.device_type == expected.device_type
            && info.device_index == expected.device_index
            && info.layout == expected.layout
            && info.requires_grad == expected.requires_grad
            && info.key_set == expected.key_set
            && agree(&info.sizes, expected.sizes)
            && agree(&info.strides, expected.strides)
    })
}

#[inline(always)]
fn agree(values: &[i64], expected: &[Option<i64>]) -> bool {
    values.len() == expected.len()
        && values.iter().zip(expected).all(|(value, want)| want.is_none_or(|want| want == *value))
}

/// Offsets of fields in a `TensorImpl` and an `AutogradMeta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offsets {
    /// `storage_`: a pointer to the storage, or null.
    pub storage: usize,
    /// `autograd_meta_`: null or an `AutogradMeta`.
    pub autograd_meta: usize,
    /// `version_counter_`: null or a counted object with the version at 16.
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
}

/// The layouts known: PyTorch 2.11 (the 16-byte Python object slot), and one with an 8-byte slot.
const LAYOUTS: [Offsets; 2] = [
    Offsets {
        storage: 16,
        autograd_meta: 24,
        version_counter: 40,
        sizes: 64,
        storage_offset: 152,
        dtype: 168,
        key_set: 176,
        requires_grad: 144,
        grad_fn: 48,
    },
    Offsets {
        storage: 16,
        autograd_meta: 24,
        version_counter: 40,
        sizes: 56,
        storage_offset: 144,
        dtype: 160,
        key_set: 168,
        requires_grad: 144,
        grad_fn: 48,
    },
];

impl Offsets {
    /// # Safety
    /// `implementation` is a live `TensorImpl` with these offsets.
    #[inline(always)]
    pub(super) unsafe fn word(implementation: *const c_void, offset: usize) -> u64 {
        // SAFETY: passed on to the caller.
        unsafe { words::word(implementation.cast(), offset) }
    }

    /// Sizes and strides.
    ///
    /// # Safety
    /// As for [`Offsets::word`].
    #[inline(always)]
    unsafe fn dimensions<'a>(&self, implementation: *const c_void) -> (&'a [i64], &'a [i64]) {
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
    unsafe fn memory(&self, implementation: *const c_void) -> Option<Memory> {
        // SAFETY: `storage_` is null or a live `StorageImpl`.
        unsafe {
            let storage = Self::word(implementation, self.storage) as *const c_void;
            (!storage.is_null()).then(|| Memory {
                storage: storage as usize,
                start: Self::word(storage, STORAGE[0]) as usize,
                size: Self::word(storage, STORAGE[1]) as usize,
            })
        }
    }

    /// dtype, device type and device index.
    ///
    /// # Safety
    /// As for [`Offsets::word`].
    #[inline(always)]
    unsafe fn kind(&self, implementation: *const c_void) -> (i32, i32, i32) {
        // SAFETY: passed on to the caller.
        let word = unsafe { Self::word(implementation, self.dtype) };
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
    unsafe fn info(&self, torch: &Torch, implementation: *mut c_void) -> TensorInfo {
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
                version: (!counter.is_null()).then(|| Self::word(counter, 16) as u32),
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
    unsafe fn matches(
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

/// The slow way: PyTorch's C ABI, and a Python function for the key set.
fn info_by_functions(
    torch: &Torch,
    object: Any<'_, '_>,
    implementation: *mut c_void,
) -> Option<TensorInfo> {
    let functions = torch.functions.as_ref()?;
    let key_set = key_set(torch, object)?;
    let plain = key_set & torch.opaque_keys == 0;
    let get = |getter: torch::Getter<i32>| {
        let mut value = 0;
        // SAFETY: the handle of a live tensor and a place for the result.
        (unsafe { getter(handle(&implementation), &mut value) } == 0).then_some(value)
    };
    let (mut dim, mut offset) = (0, 0);
    let (mut sizes, mut strides) = (std::ptr::null(), std::ptr::null());
    // SAFETY: as above; sizes, strides and offset are asked for only where they are plain fields.
    // The pointers are into the tensor and have `dim` elements.
    let (sizes, strides) = unsafe {
        let handle = handle(&implementation);
        if (functions.dim)(handle, &mut dim) != 0
            || (plain
                && ((functions.sizes)(handle, &mut sizes) != 0
                    || (functions.strides)(handle, &mut strides) != 0
                    || (functions.storage_offset)(handle, &mut offset) != 0))
        {
            return None;
        }
        let slice = |pointer: *const i64| {
            if pointer.is_null() || dim == 0 {
                &[]
            } else {
                std::slice::from_raw_parts(pointer, dim as usize)
            }
        };
        (Dimensions::new(slice(sizes)), Dimensions::new(slice(strides)))
    };
    Some(TensorInfo {
        dtype: get(functions.dtype)?,
        device_type: get(functions.device_type)?,
        device_index: get(functions.device_index)?,
        layout: get(functions.layout)?,
        // SAFETY: a live `TensorImpl`.
        requires_grad: unsafe { (functions.requires_grad)(implementation) },
        key_set,
        sizes,
        strides,
        storage_offset: offset,
        version: None,
        plain,
    })
}

/// The C ABI's handle of a tensor is the address of an `at::Tensor`, which is one pointer to the
/// `TensorImpl`. The getters only read through it.
fn handle(implementation: &*mut c_void) -> *mut c_void {
    std::ptr::from_ref(implementation).cast_mut().cast()
}

/// Finds the layout that agrees with Python's view of the probe tensors.
pub(super) fn calibrate(
    py: Python<'_>,
    torch: &Bound<'_, PyAny>,
    known: &Torch,
) -> PyResult<Option<Offsets>> {
    if known.functions.is_none() {
        return Ok(None);
    }
    let source = c"
def probes(torch):
    from torch.utils._python_dispatch import _disable_current_modes
    with torch._C.DisableTorchFunction(), _disable_current_modes(), \
            torch.inference_mode(False), torch.enable_grad():
        make = lambda *size, **kw: torch.empty(size, **{'device': 'cpu', **kw})
        leaf = make(4, 3, dtype=torch.float64).requires_grad_(True)
        off = make(2, dtype=torch.float32).requires_grad_(True).requires_grad_(False)
        moved = make(7, dtype=torch.int32)
        moved.zero_(); moved.zero_()
        tensors = [
            make(2, 3, dtype=torch.float32), make(dtype=torch.int64), leaf, off, moved, leaf * 2,
            make(1, 2, 3, 4, 5, dtype=torch.bool), make(1, 2, 3, 1, 2, 3, 4, dtype=torch.uint8).transpose(1, 6),
            make(5, 6, dtype=torch.bfloat16, device='meta'), make(9, 4, dtype=torch.float16)[3:, 1:].t(),
            torch.nn.Parameter(make(3, 2, dtype=torch.float32)), make(0, 4, dtype=torch.complex64),
        ]
        with torch.inference_mode():
            tensors.append(make(3, dtype=torch.float32))
        return [(
            t, t._cdata, torch._C._dispatch_keys(t).raw_repr(), list(t.size()), list(t.stride()), t.storage_offset(),
            t.requires_grad, -1 if t.device.index is None else t.device.index, -1 if t.is_inference() else t._version,
            [s._cdata, 0 if t.device.type == 'meta' else s.data_ptr(), s.nbytes()],
        ) for t in tensors for s in [t.untyped_storage()]]
";
    let module = PyModule::from_code(py, source, c"<stator>", c"_stator_calibration")?;
    let probes: Vec<Bound<'_, PyAny>> = module.getattr("probes")?.call1((torch,))?.extract()?;
    for offsets in LAYOUTS {
        let mut agrees = !probes.is_empty();
        for probe in &probes {
            agrees = agrees && probe_agrees(known, &offsets, probe)?;
        }
        if agrees {
            return Ok(Some(offsets));
        }
    }
    Ok(None)
}

type Seen<'py> =
    (Bound<'py, PyAny>, usize, u64, Vec<i64>, Vec<i64>, i64, bool, i32, i64, [usize; 3]);

fn probe_agrees(known: &Torch, offsets: &Offsets, probe: &Bound<'_, PyAny>) -> PyResult<bool> {
    let seen: Seen<'_> = probe.extract()?;
    let (tensor, cdata, keys, sizes, strides, offset, requires_grad, index, version, storage) =
        seen;
    // SAFETY: a tensor's Python object is larger than 24 bytes.
    let implementation = unsafe { words::pointer(tensor.as_ptr(), CDATA) } as *mut c_void;
    if implementation as usize != cdata {
        return Ok(false);
    }
    let Some(functions) = &known.functions else {
        return Ok(false);
    };
    let (mut dtype, mut device) = (0, 0);
    // SAFETY: `cdata` is the address of a live `TensorImpl`, at least 184 bytes in every layout.
    // Words are compared one after the other, so that pointers are followed only once the count
    // of dimensions and the key set agree.
    unsafe {
        (functions.dtype)(handle(&implementation), &mut dtype);
        (functions.device_type)(handle(&implementation), &mut device);
        if Offsets::word(implementation, offsets.key_set) != keys
            || Offsets::word(implementation, offsets.sizes) as usize != sizes.len()
            || Offsets::word(implementation, offsets.storage_offset) as i64 != offset
            || Offsets::word(implementation, offsets.storage) as usize != storage[0]
            || offsets.memory(implementation).map(|at| [at.storage, at.start, at.size])
                != Some(storage)
            || offsets.kind(implementation) != (dtype, device, index)
            || offsets.dimensions(implementation) != (&sizes[..], &strides[..])
        {
            return Ok(false);
        }
        let seen = offsets.info(known, implementation);
        Ok(seen.requires_grad == requires_grad
            && seen.requires_grad == (functions.requires_grad)(implementation)
            && seen.version.map_or(-1, i64::from) == version)
    }
}
