//! Where this PyTorch keeps a tensor's fields: found by looking for the values of probe tensors, whose
//! attributes Python tells. A field is known if there is one place, and only one, at which every probe has
//! its value; then each probe is read whole and compared. What isn't found is absent: readers ask
//! PyTorch's functions.

use std::ffi::c_void;

use pyo3::prelude::*;

use super::handle;
use super::offsets::{INLINE_DIMENSIONS, Offsets};
use crate::heap::torch::{Functions, Torch, is_hidden};
use crate::heap::words;

/// Bytes that are looked at, from the start of each object: at least so many belong to it in every PyTorch
/// since 2.0, counting in what `malloc` rounds up to.
mod window {
    pub const TENSOR: usize = 184;
    pub const AUTOGRAD_META: usize = 176;
    pub const VERSION_COUNTER: usize = 24;
    pub const STORAGE: usize = 72;
}

/// Bytes of `sizes_and_strides_`.
const DIMENSIONS: usize = 8 * (1 + 2 * INLINE_DIMENSIONS);

/// A tensor as Python sees it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Probe<'py> {
    tensor: Bound<'py, PyAny>,
    /// The address of its `TensorImpl`.
    cdata: usize,
    keys: u64,
    sizes: Vec<i64>,
    strides: Vec<i64>,
    offset: i64,
    requires_grad: bool,
    device_index: i32,
    /// `None` for inference tensors.
    version: Option<u32>,
    /// The address of its `StorageImpl`.
    storage: usize,
    memory: usize,
    memory_size: usize,
    /// Whether there is an `AutogradMeta`; `None` where that depends on the version.
    autograd_meta: Option<bool>,
    /// The node of autograd that made it: an object that holds the same pointer as the tensor does.
    grad_fn: Option<Bound<'py, PyAny>>,
}

/// What has to be found before anything of a tensor can be read: PyTorch's functions take a `TensorImpl`, and
/// tell neither its keys nor its storage.
#[derive(Clone, Copy)]
pub(in crate::heap) struct Essential {
    /// The offset of the `TensorImpl*` in a tensor's Python object.
    pub cdata: usize,
    /// `key_set_`.
    pub key_set: usize,
    /// `storage_`.
    pub storage: usize,
    /// `sizes_and_strides_`, whose unused part may hold anything: nothing else is looked for there.
    pub sizes: usize,
}

/// How often other probes are taken where a field seems to lie in two places: one time in a thousand what memory
/// holds by chance agrees with all of them.
const TRIES: usize = 3;

/// Looks for the fields of this PyTorch's tensors.
pub(in crate::heap) fn search(
    py: Python<'_>,
    torch: &Bound<'_, PyAny>,
    known: &Torch,
) -> PyResult<(Option<Essential>, Option<Offsets>)> {
    let module = PyModule::from_code(py, PROBES, c"<stator>", c"_stator_calibration")?;
    let make = module.getattr("probes")?;
    // All are kept, so that the next lie elsewhere.
    let mut tried: Vec<Vec<Probe<'_>>> = Vec::new();
    let mut found = (None, None);
    while tried.len() < TRIES && found.1.is_none() {
        let probes: Vec<Probe<'_>> = make.call1((torch,))?.extract()?;
        found = search_in(&probes, known);
        tried.push(probes);
    }
    Ok(found)
}

fn search_in(probes: &[Probe<'_>], known: &Torch) -> (Option<Essential>, Option<Offsets>) {
    let (Some(essential), Some(functions)) = (essential(probes), &known.functions) else {
        return (None, None);
    };
    if is_hidden() {
        return (Some(essential), None);
    }
    let offsets = find(functions, probes, essential)
        .filter(|offsets| probes.iter().all(|probe| agrees(known, offsets, probe)));
    (Some(essential), offsets)
}

/// The one offset of a word at which all is as it should be.
fn only(window: usize, is_right: impl Fn(usize) -> bool) -> Option<usize> {
    let mut right = (0..window).step_by(8).filter(|offset| is_right(*offset));
    let first = right.next()?;
    right.next().is_none().then_some(first)
}

/// As [`only`] of a pointer in an `AutogradMeta`, which may be a shared one: that has a second word, null
/// when the first is.
fn pointer(is_right: impl Fn(usize) -> bool) -> Option<usize> {
    let is_second = |offset: usize| offset >= 8 && is_right(offset - 8);
    only(window::AUTOGRAD_META, |offset| is_right(offset) && !is_second(offset))
}

/// Whether each probe has the right word at an offset of the object at the address that `base` gives.
fn holds<'py>(
    probes: &[Probe<'py>],
    base: impl Fn(&Probe<'py>) -> Option<usize>,
    offset: usize,
    is_right: impl Fn(&Probe<'py>, u64) -> bool,
) -> bool {
    probes.iter().all(|probe| {
        base(probe).is_none_or(|base| {
            // SAFETY: callers stay within the window of the object.
            is_right(probe, unsafe { words::word(base as *const _, offset) })
        })
    })
}

/// The one offset within a window at which each probe has the right word.
fn field<'py>(
    probes: &[Probe<'py>],
    window: usize,
    base: impl Fn(&Probe<'py>) -> Option<usize>,
    is_right: impl Fn(&Probe<'py>, u64) -> bool,
) -> Option<usize> {
    only(window, |offset| holds(probes, &base, offset, &is_right))
}

/// The bytes of an object.
fn size(object: &Bound<'_, PyAny>) -> usize {
    // SAFETY: a type's size stands still.
    unsafe { (*words::type_of(object.as_ptr())).tp_basicsize as usize }
}

/// The words of an object behind its head.
fn fields(object: &Bound<'_, PyAny>) -> impl Iterator<Item = u64> {
    let words = (16..size(object)).step_by(8);
    // SAFETY: an object has as many bytes as its type says.
    words.map(|offset| unsafe { words::word(object.as_ptr(), offset) })
}

fn essential(probes: &[Probe<'_>]) -> Option<Essential> {
    let object = |probe: &Probe<'_>| Some(probe.tensor.as_ptr() as usize);
    let least = probes.iter().map(|probe| size(&probe.tensor)).min()?;
    let sizes = sizes(probes)?;
    Some(Essential {
        cdata: field(probes, least, object, |probe, word| word as usize == probe.cdata)?,
        sizes,
        key_set: own(probes, sizes, |probe, word| word == probe.keys)?,
        storage: own(probes, sizes, |probe, word| word as usize == probe.storage)?,
    })
}

/// The one offset within a `TensorImpl`, its sizes and strides aside, at which each probe has the right word.
/// What isn't used of those holds anything.
fn own<'py>(
    probes: &[Probe<'py>],
    sizes: usize,
    is_right: impl Fn(&Probe<'py>, u64) -> bool,
) -> Option<usize> {
    let dimensions = sizes..sizes + DIMENSIONS;
    only(window::TENSOR, |offset| {
        !dimensions.contains(&offset) && holds(probes, |probe| Some(probe.cdata), offset, &is_right)
    })
}

fn find(functions: &Functions, probes: &[Probe<'_>], essential: Essential) -> Option<Offsets> {
    let own = |is_right: &dyn Fn(&Probe<'_>, u64) -> bool| own(probes, essential.sizes, is_right);
    let at = |base: usize, offset: usize| {
        // SAFETY: a field of a live `TensorImpl` that was found.
        unsafe { words::word(base as *const _, offset) as usize }
    };
    // A pointer is followed once it is null and not null where it should be.
    let autograd_meta = own(&|probe, word| {
        probe.autograd_meta.is_none_or(|has| has == (word != 0)) && word.is_multiple_of(8)
    })?;
    let meta = |probe: &Probe<'_>| {
        (probe.autograd_meta == Some(true)).then(|| at(probe.cdata, autograd_meta))
    };
    let version_counter = own(&|probe, word| {
        probe.version.is_some() == (word != 0)
            && word.is_multiple_of(8)
            && word as usize != probe.storage
    })?;
    let counter = |probe: &Probe<'_>| probe.version.map(|_| at(probe.cdata, version_counter));
    let storage = |probe: &Probe<'_>| Some(probe.storage);
    Some(Offsets {
        cdata: essential.cdata,
        storage: essential.storage,
        autograd_meta,
        version_counter,
        sizes: essential.sizes,
        storage_offset: own(&|probe, word| word as i64 == probe.offset)?,
        dtype: own(&|probe, word| Some(Offsets::kind_of(word)) == kind(functions, probe))?,
        key_set: essential.key_set,
        requires_grad: field(probes, window::AUTOGRAD_META, meta, |probe, word| {
            (word & 0xff) == u64::from(probe.requires_grad && probe.grad_fn.is_none())
        })?,
        grad_fn: pointer(|offset| {
            holds(probes, meta, offset, |probe, word| match &probe.grad_fn {
                Some(node) => word != 0 && fields(node).any(|field| field == word),
                None => word == 0,
            })
        })?,
        version: field(probes, window::VERSION_COUNTER, counter, |probe, word| {
            Some(word as u32) == probe.version
        })?,
        memory: field(probes, window::STORAGE, storage, |probe, word| {
            word as usize == probe.memory
        })?,
        memory_size: field(probes, window::STORAGE, storage, |probe, word| {
            word as usize == probe.memory_size
        })?,
    })
}

/// Where the count of dimensions lies, with sizes and strides behind it.
fn sizes(probes: &[Probe<'_>]) -> Option<usize> {
    only(window::TENSOR - DIMENSIONS + 8, |offset| {
        let word = |probe: &Probe<'_>, index: usize| {
            // SAFETY: within the window.
            unsafe { words::word(probe.cdata as *const _, offset + 8 * index) as i64 }
        };
        probes.iter().all(|probe| {
            let count = probe.sizes.len();
            word(probe, 0) == count as i64
                && (count > INLINE_DIMENSIONS
                    || (0..count).all(|index| {
                        word(probe, 1 + index) == probe.sizes[index]
                            && word(probe, 1 + INLINE_DIMENSIONS + index) == probe.strides[index]
                    }))
        })
    })
}

/// dtype, device type and device index, as PyTorch's C ABI numbers them.
fn kind(functions: &Functions, probe: &Probe<'_>) -> Option<(i32, i32, i32)> {
    let implementation = probe.cdata as *mut c_void;
    let (mut dtype, mut device) = (0, 0);
    // SAFETY: the handle of a live tensor, and places for the results.
    let failed = unsafe {
        (functions.dtype)(handle(&implementation), &mut dtype)
            | (functions.device_type)(handle(&implementation), &mut device)
    };
    (failed == 0).then_some((dtype, device, probe.device_index))
}

/// Whether a probe that is read whole is what Python sees.
fn agrees(known: &Torch, offsets: &Offsets, probe: &Probe<'_>) -> bool {
    let implementation = probe.cdata as *mut c_void;
    // SAFETY: a live `TensorImpl`. Every field has been found in each probe, the count of dimensions
    // and the pointers among them.
    unsafe {
        let memory = offsets.memory(implementation);
        let seen = offsets.info(known, implementation);
        memory.map(|at| (at.storage, at.start, at.size))
            == Some((probe.storage, probe.memory, probe.memory_size))
            && offsets.dimensions(implementation) == (&probe.sizes[..], &probe.strides[..])
            && seen.requires_grad == probe.requires_grad
            && seen.version == probe.version
            && known.functions.as_ref().is_some_and(|functions| {
                kind(functions, probe) == Some((seen.dtype, seen.device_type, seen.device_index))
                    && (functions.requires_grad)(implementation) == probe.requires_grad
            })
    }
}

/// Tensors that differ in every field. Among them are one whose memory somebody else owns, one with more
/// dimensions than fit, one without elements and one without memory.
const PROBES: &std::ffi::CStr = c"
def probes(torch):
    from torch.utils._python_dispatch import _disable_current_modes
    with torch._C.DisableTorchFunction(), _disable_current_modes(), \
            torch.inference_mode(False), torch.enable_grad():
        make = lambda *size, **kw: torch.empty(size, **{'device': 'cpu', **kw})
        leaf = make(4, 3, dtype=torch.float64).requires_grad_(True)
        off = make(2, dtype=torch.float32).requires_grad_(True).requires_grad_(False)
        moved = make(7, dtype=torch.int32)
        moved.zero_(); moved.zero_()
        own = [
            (make(2, 3, dtype=torch.float32), False), (make(dtype=torch.int64), False), (leaf, True), (off, True),
            (moved, False), (leaf * 2, True), (make(1, 2, 3, 4, 5, dtype=torch.bool), False),
            (make(1, 2, 3, 1, 2, 3, 4, dtype=torch.uint8).transpose(1, 6), None),
            (make(5, 6, dtype=torch.bfloat16, device='meta'), False),
            (make(9, 4, dtype=torch.float16)[3:, 1:].t(), None),
            (torch.nn.Parameter(make(3, 2, dtype=torch.float32)), True), (make(0, 4, dtype=torch.complex64), False),
            (torch.frombuffer(bytearray(24), dtype=torch.int16), None),
        ]
        with torch.inference_mode():
            own += [(make(size, dtype=torch.float32), None) for size in (3, 30, 300)]
        return [{
            'tensor': t, 'cdata': t._cdata, 'keys': torch._C._dispatch_keys(t).raw_repr(), 'sizes': list(t.size()),
            'strides': list(t.stride()), 'offset': t.storage_offset(), 'requires_grad': t.requires_grad,
            'device_index': -1 if t.device.index is None else t.device.index,
            'version': None if t.is_inference() else t._version, 'storage': s._cdata,
            'memory': 0 if t.device.type == 'meta' else s.data_ptr(), 'memory_size': s.nbytes(),
            'autograd_meta': meta, 'grad_fn': t.grad_fn,
        } for t, meta in own for s in [t.untyped_storage()]]
";
