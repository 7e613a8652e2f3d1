//! Tensors' metadata, read from their C++ objects.

mod offsets;
mod place;
mod search;
mod writes;

use std::ffi::c_void;
use std::ops::Deref;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

pub(super) use self::offsets::{INLINE_DIMENSIONS, Offsets};
pub use self::place::{Place, place};
pub(super) use self::search::{Essential, search};
pub use self::writes::writes_plainly;
use super::torch::{self, Torch};
use super::{Any, words};
use crate::generic::WithoutGc;
use crate::modules;

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
    let address = unsafe { words::pointer(object.as_ptr(), torch.essential?.cdata) } as usize;
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

/// Whether a tensor stands for another one within a transform of `torch.func`, and is ordinary but for that.
#[must_use]
pub fn is_transformed(object: Any<'_, '_>) -> bool {
    let Some(torch) = torch::get(object.py()) else { return false };
    key_set(torch, object).is_some_and(|keys| {
        let beyond = keys & !torch.ordinary_keys;
        beyond != 0 && beyond & !torch.wrapper_keys == 0
    })
}

/// Whether a tensor of PyTorch's own class is sparse, of coordinates or of compressed rows or columns, and ordinary but for that.
#[must_use]
pub fn is_sparse(object: Any<'_, '_>) -> bool {
    let Some(torch) = torch::get(object.py()) else { return false };
    torch.is_own_tensor(object.as_ptr())
        && key_set(torch, object).is_some_and(|keys| {
            let beyond = keys & !torch.ordinary_keys;
            beyond != 0 && beyond & !torch.matrix_keys == 0
        })
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
    // SAFETY: the `TensorImpl` of a live tensor, whose key set was found there.
    Some(unsafe { Offsets::word(implementation, torch.essential?.key_set) })
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

/// The memory of a tensor; `None` if it has no storage, or isn't plain.
#[must_use]
pub fn memory(object: Any<'_, '_>) -> Option<Memory> {
    let torch = torch::get(object.py())?;
    let implementation = impl_address(object)? as *mut c_void;
    let Some(offsets) = &torch.offsets else {
        return memory_by_functions(torch, object, implementation);
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

/// As [`gradient`], of a tensor that isn't a leaf as well, if it was asked to retain its own.
#[must_use]
pub fn retained_gradient<'py>(tensor: Any<'_, 'py>) -> Option<Bound<'py, PyAny>> {
    if !is_tensor(tensor) {
        return None;
    }
    let py = tensor.py();
    let _uninterrupted = WithoutGc::new(py);
    let retains = tensor.getattr(pyo3::intern!(py, "retains_grad")).ok()?.is_truthy().ok()?;
    if retains { tensor.getattr(pyo3::intern!(py, "grad")).ok() } else { gradient(tensor) }
}

static HOOKS: PyOnceLock<Option<[usize; 2]>> = PyOnceLock::new();

/// Looks for the dictionaries of tensors' hooks; whether they were found. This runs code of PyTorch's.
pub fn find_hooks(py: Python<'_>) -> bool {
    let find = || {
        let (gradient, accumulated) = ("_backward_hooks", "_post_accumulate_grad_hooks");
        Some([hook_slot(py, gradient)?, hook_slot(py, accumulated)?])
    };
    HOOKS.get_or_init(py, find).is_some()
}

/// Where the Python objects of tensors keep the dictionaries of their hooks: offsets. `None`: nobody has
/// [looked](find_hooks), or this PyTorch keeps them elsewhere.
pub(super) fn hook_slots(py: Python<'_>) -> Option<[usize; 2]> {
    *HOOKS.get(py)?
}

/// Whether a tensor has hooks on its gradient, or behind its accumulation; `None`: nobody knows.
pub fn has_hooks(object: Any<'_, '_>) -> Option<bool> {
    let slots = hook_slots(object.py()).filter(|_| is_tensor(object))?;
    // SAFETY: a tensor's object has these fields.
    Some(slots.iter().any(|slot| unsafe { words::word(object.as_ptr(), *slot) } != 0))
}

/// Whether an object is a tensor that keeps a dictionary of hooks at this offset.
pub(super) fn has_hooks_at(object: Any<'_, '_>, offset: usize) -> bool {
    is_tensor(object) && hook_slots(object.py()).is_some_and(|slots| slots.contains(&offset))
}

/// The dictionaries of a tensor's hooks, each with its name and where the tensor's object keeps it; none if nobody knows.
pub fn hooks<'py>(
    object: Any<'_, 'py>,
) -> Vec<(Bound<'py, PyString>, usize, Option<Bound<'py, PyAny>>)> {
    let py = object.py();
    let Some(slots) = hook_slots(py).filter(|_| is_tensor(object)) else { return Vec::new() };
    let names = [
        pyo3::intern!(py, "_backward_hooks").clone(),
        pyo3::intern!(py, "_post_accumulate_grad_hooks").clone(),
    ];
    let of = |slot: usize| {
        // SAFETY: a tensor's object has this field, which is null or a reference to a dictionary.
        unsafe {
            let word = words::word(object.as_ptr(), slot) as *mut pyo3::ffi::PyObject;
            Bound::from_borrowed_ptr_or_opt(py, word)
        }
    };
    names.into_iter().zip(slots).map(|(name, slot)| (name, slot, of(slot))).collect()
}

/// The offset at which a tensor holds the dictionary that is put into this attribute, and none before.
fn hook_slot(py: Python<'_>, name: &str) -> Option<usize> {
    let torch = modules::import(py, "torch").ok()?;
    let kwargs = PyDict::new(py);
    kwargs.set_item("requires_grad", true).ok()?;
    let tensor = torch.call_method("empty", (0,), Some(&kwargs)).ok()?;
    let size: usize = tensor.get_type().getattr("__basicsize__").ok()?.extract().ok()?;
    let hooks = PyDict::new(py);
    // SAFETY: all these words lie within the object, as its type says how large it is.
    let word = |offset| unsafe { words::word(tensor.as_ptr(), offset) };
    let all = || (16..size / 8 * 8).step_by(8);
    let empty: Vec<usize> = all().filter(|offset| word(*offset) == 0).collect();
    tensor.setattr(name, &hooks).ok()?;
    empty.into_iter().find(|offset| word(*offset) == hooks.as_ptr() as u64)
}

static NODE_HOOKS: PyOnceLock<Option<Vec<usize>>> = PyOnceLock::new();

/// The least size of what PyTorch's notes begin with, in bytes.
const NODE: usize = 264;

/// So many bytes are looked at for hooks, of a note that is larger: it holds five saved tensors.
const SEARCHED: usize = 512;

/// Where a Python object for one of PyTorch's notes has its address.
const NODE_ADDRESS: usize = 16;

/// Looks for the hooks of PyTorch's notes of operations; whether they were found. This runs code of PyTorch's.
pub fn find_node_hooks(py: Python<'_>) -> bool {
    NODE_HOOKS.get_or_init(py, || node_hooks(py).ok().flatten()).is_some()
}

/// Whether one of PyTorch's notes of operations (`grad_fn`) has hooks, or has had some; `None`: nobody knows.
pub fn has_node_hooks(function: Any<'_, '_>) -> Option<bool> {
    let offsets = node_hook_offsets(function.py())?;
    let node = node_address(function)? as *const _;
    // SAFETY: a live note; every note has these words, as they hold hooks of any.
    Some(offsets.iter().any(|offset| unsafe { words::word(node, offset * 8) } != 0))
}

/// Which words of a note say that it has hooks, if they were found.
fn node_hook_offsets(py: Python<'_>) -> Option<&[usize]> {
    NODE_HOOKS.get(py)?.as_deref()
}

/// The address of a note of PyTorch's; `None`: it's no object of PyTorch's for one.
fn node_address(function: Any<'_, '_>) -> Option<usize> {
    let ty = function.get_type();
    let size: usize =
        ty.getattr(pyo3::intern!(function.py(), "__basicsize__")).ok()?.extract().ok()?;
    // It counts its owners itself from PyTorch 2.15 on; before, a second pointer says where that is done.
    if size != NODE_ADDRESS + 16 && size != NODE_ADDRESS + 8 {
        return None;
    }
    // SAFETY: the object's size says that it is a pointer shared with C++ behind the head.
    let node = unsafe { words::pointer(function.as_ptr(), NODE_ADDRESS) } as *const u64;
    (!node.is_null() && node.is_aligned()).then_some(node as usize)
}

/// Which words of a note are 0 as long as nobody has set a hook, of each of the four kinds.
fn node_hooks<'py>(py: Python<'py>) -> PyResult<Option<Vec<usize>>> {
    let torch = modules::import(py, "torch")?;
    let kwargs = PyDict::new(py);
    kwargs.set_item("requires_grad", true)?;
    kwargs.set_item("device", "cpu")?;
    // Whatever modes the program is in: without them operations leave notes.
    let apart = |function: Bound<'py, PyAny>| {
        let function = torch.call_method1("inference_mode", (false,))?.call1((function,))?;
        torch.call_method0("enable_grad")?.call1((function,))
    };
    let leaf = apart(torch.getattr("ones")?)?.call((2,), Some(&kwargs))?;
    let words = |function: &Bound<'py, PyAny>| -> Option<[u64; SEARCHED / 8]> {
        let node = node_address(function.as_borrowed())? as *const u64;
        // SAFETY: it's larger than that.
        unsafe { Some(std::array::from_fn(|index| node.add(index).read())) }
    };
    let hook = torch.getattr("neg")?;
    let mut found = Vec::new();
    for (is_tensors, name) in [
        (true, "register_hook"),
        (true, "retain_grad"),
        (false, "register_prehook"),
        (false, "register_hook"),
    ] {
        let tensor = apart(torch.getattr("layer_norm")?)?.call1((&leaf, (2,), &leaf, &leaf))?;
        let function = tensor.getattr("grad_fn")?;
        if function.get_type().name()? != "NativeLayerNormBackward0" {
            return Ok(None);
        }
        let Some(before) = words(&function) else { return Ok(None) };
        match name {
            "retain_grad" => tensor.call_method0(name)?,
            _ if is_tensors => tensor.call_method1(name, (&hook,))?,
            _ => function.call_method1(name, (&hook,))?,
        };
        let Some(after) = words(&function) else { return Ok(None) };
        let set: Vec<usize> =
            (0..SEARCHED / 8).filter(|index| before[*index] == 0 && after[*index] != 0).collect();
        if set.is_empty() {
            return Ok(None);
        }
        found.extend(set);
    }
    found.sort_unstable();
    found.dedup();
    Ok(Some(found))
}

/// One size of a tensor.
#[inline]
pub fn size(object: Any<'_, '_>, index: usize) -> Option<i64> {
    dimension(object, |sizes, _| sizes.get(index).copied(), |info| info.sizes.get(index).copied())
}

/// What can be said of all sizes of the tensor whose `at::Tensor` lies at `place`, if they lie where those of a plain one do.
///
/// # Safety
/// A live `at::Tensor` lies there.
#[inline]
pub(crate) unsafe fn of_sizes_at<R>(
    torch: &Torch,
    place: u64,
    look: impl FnOnce(&[i64]) -> Option<R>,
) -> Option<R> {
    let offsets = torch.offsets.as_ref()?;
    // SAFETY: the caller's promise; as in `dimension`.
    unsafe {
        let implementation = *(place as *const *const c_void);
        if Offsets::word(implementation, offsets.key_set) & torch.opaque_keys != 0 {
            return None;
        }
        look(offsets.dimensions(implementation).0)
    }
}

/// Whether a tensor is none that Python code dispatches.
///
/// # Safety
/// It's a live `TensorImpl`.
#[inline]
pub(crate) unsafe fn is_plain_at(torch: &Torch, implementation: *const c_void) -> bool {
    // SAFETY: the caller's promise.
    let keys = |offset| unsafe { Offsets::word(implementation, offset) };
    torch.essential.is_some_and(|essential| keys(essential.key_set) & torch.python_keys == 0)
}

/// The dtype (`c10::ScalarType`) of the tensor whose `at::Tensor` lies at `place`, if it's an ordinary one in main memory.
///
/// # Safety
/// A live `at::Tensor` lies there.
#[inline]
pub(crate) unsafe fn dtype_in_memory(torch: &Torch, place: u64) -> Option<i32> {
    let offsets = torch.offsets.as_ref()?;
    // SAFETY: the caller's promise; the offsets were verified.
    unsafe {
        let implementation = *(place as *const *const c_void);
        let (dtype, device, _) = offsets.kind(implementation);
        let keys = Offsets::word(implementation, offsets.key_set);
        (device == 0 && keys & !torch.ordinary_keys == 0).then_some(dtype)
    }
}

/// Who holds a tensor and its memory.
#[derive(Debug)]
pub(crate) struct Held {
    /// The `TensorImpl` and the `StorageImpl`, and how many references there are to each.
    counted: [(*const u64, u64); 2],
    data: *mut c_void,
}

// SAFETY: the addresses of a tensor's parts, which whoever has it keeps.
unsafe impl Send for Held {}

/// Who holds the tensor whose `at::Tensor` lies at `place`; `None`: it can't be told, or it's no plain one with memory.
///
/// # Safety
/// A live `at::Tensor` lies there, for as long as the answer is used.
pub(crate) unsafe fn held(torch: &Torch, place: u64) -> Option<Held> {
    /// C++'s counted objects keep the counts behind the address of their virtual functions.
    const COUNTS: usize = 1;
    let offsets = torch.offsets.as_ref()?;
    // SAFETY: the caller's promise; the offsets were verified.
    unsafe {
        let implementation = *(place as *const *const c_void);
        let memory = offsets.memory(implementation)?;
        let counted = [implementation.cast::<u64>(), memory.storage as *const u64].map(|object| {
            let counts = object.add(COUNTS);
            (counts, counts.read())
        });
        (memory.start != 0).then_some(Held { counted, data: memory.start as *mut c_void })
    }
}

impl Held {
    /// Where the memory begins.
    pub(crate) fn data(&self) -> *mut c_void {
        self.data
    }

    /// Whether there are as many references as when it was asked first.
    pub(crate) fn is_held_as_before(&self) -> bool {
        // SAFETY: both are alive, as was promised.
        self.counted.iter().all(|(counts, before)| unsafe { counts.read_volatile() } == *before)
    }
}

/// Whether the tensor whose `at::Tensor` lies at `place` holds real numbers of up to 64 bits, wherever they are.
///
/// # Safety
/// A live `at::Tensor` lies there.
#[inline]
pub(crate) unsafe fn holds_number_at(torch: &Torch, place: u64) -> bool {
    /// `uint8` to `int64`, `float16` to `float64`, `bool`, `bfloat16` as `c10::ScalarType`.
    const NUMBERS: u32 = 0b1000_1000_1111_1111;
    torch.offsets.as_ref().is_some_and(|offsets| {
        // SAFETY: the caller's promise; the offsets were verified.
        let (dtype, ..) = unsafe { offsets.kind(*(place as *const *const c_void)) };
        u32::try_from(dtype).is_ok_and(|dtype| NUMBERS.checked_shr(dtype).unwrap_or(0) & 1 != 0)
    })
}

/// Makes `tensor` stand for a number as `number` does and `other` doesn't, which else are the same: a flag beside the
/// dtype says so. Whether it was found.
#[must_use]
pub(crate) fn mark_as_number(number: Any<'_, '_>, other: Any<'_, '_>, tensor: Any<'_, '_>) -> bool {
    let mark = || {
        let torch = torch::get(tensor.py())?;
        let offsets = torch.offsets.as_ref()?;
        let word = |object| {
            let implementation = impl_address(object)? as *mut c_void;
            // SAFETY: within the `TensorImpl` of a live tensor.
            Some(unsafe { implementation.cast::<u8>().add(offsets.dtype).cast::<u64>() })
        };
        let (number, other, tensor) = (word(number)?, word(other)?, word(tensor)?);
        // SAFETY: as above; who calls has just made the tensor, which nobody else knows.
        unsafe {
            let flag = number.read_unaligned() & !other.read_unaligned();
            let only = number.read_unaligned() ^ other.read_unaligned();
            if flag != only || flag.count_ones() != 1 {
                return None;
            }
            tensor.write_unaligned(tensor.read_unaligned() | flag);
        }
        Some(())
    };
    mark().is_some()
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

/// The slow way: PyTorch's C ABI, and a Python function for the key set.
fn info_by_functions(
    torch: &Torch,
    object: Any<'_, '_>,
    implementation: *mut c_void,
) -> Option<TensorInfo> {
    let functions = torch.functions.as_ref()?;
    let key_set = key_set(torch, object)?;
    if key_set & torch.python_keys != 0 {
        // Fake tensors and their like: what the functions ask is answered by Python code there.
        return None;
    }
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

/// As [`memory`], by PyTorch's C ABI.
fn memory_by_functions(
    torch: &Torch,
    object: Any<'_, '_>,
    implementation: *mut c_void,
) -> Option<Memory> {
    let functions = torch.functions.as_ref()?;
    let info = info_by_functions(torch, object, implementation)?;
    if !info.is_plain() {
        return None;
    }
    let (mut first, mut size) = (std::ptr::null(), 0);
    // SAFETY: the handle of a live tensor with plain memory, and places for the results; a known dtype; a
    // field that was found.
    let (storage, element) = unsafe {
        let handle = handle(&implementation);
        if (functions.data_ptr)(handle, &mut first) != 0
            || (functions.storage_size)(handle, &mut size) != 0
        {
            return None;
        }
        (
            Offsets::word(implementation, torch.essential?.storage) as usize,
            (functions.element_size)(info.dtype),
        )
    };
    let before = usize::try_from(info.storage_offset).ok()? * element;
    let start = if first.is_null() { 0 } else { (first as usize).checked_sub(before)? };
    (storage != 0).then_some(Memory { storage, start, size: usize::try_from(size).ok()? })
}

/// The C ABI's handle of a tensor is the address of an `at::Tensor`, which is one pointer to the
/// `TensorImpl`. The getters only read through it.
fn handle(implementation: &*mut c_void) -> *mut c_void {
    std::ptr::from_ref(implementation).cast_mut().cast()
}
