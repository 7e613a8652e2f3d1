//! PyTorch as an optional dependency: its libraries' functions, found at first use, and the
//! offsets of its tensors' fields, found by what Python code sees.
//!
//! Functions come from the libraries that `import torch` has loaded ([`super::libraries`]); offsets are looked for in probe tensors, whose attributes Python
//! tells. What isn't found or doesn't agree is absent, and readers take a slower way.

use crate::modules;
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::libraries::{self, Library};
use super::{global_state, tensor, types, words};
use crate::object::Borrowed;

/// What is known of the PyTorch in this process.
pub struct Torch {
    /// `torch._C.TensorBase`, the root of all tensor types.
    tensor_base: Py<PyAny>,
    /// Addresses of `torch.Tensor` and `torch.nn.Parameter`.
    pub(super) exact: [usize; 2],
    constants: [(Py<PyAny>, ConstantType); 6],
    /// Functions of the C++ libraries; all or none.
    pub(super) functions: Option<Functions>,
    /// What nothing of a tensor can be read without.
    pub(super) essential: Option<tensor::Essential>,
    /// Offsets in a tensor, if they could be found.
    pub(super) offsets: Option<tensor::Offsets>,
    /// Key set bits that only layouts without plain strides have.
    pub(super) sparse_keys: u64,
    /// Key set bits that only sparse tensors have, of coordinates or compressed.
    pub(super) matrix_keys: u64,
    /// Key set bits of tensors whose metadata isn't in their plain fields.
    pub(super) opaque_keys: u64,
    /// Key set bits of tensors that are wholly described by dtype, device, key set, sizes and strides.
    pub(super) ordinary_keys: u64,
    /// Key set bits of tensors that Python code dispatches.
    pub(super) python_keys: u64,
    /// Key set bits of the tensors by which `torch.func` stands for others.
    pub(super) wrapper_keys: u64,
    /// Further kinds of tensors: the bits that only they have, and a word for them.
    pub(super) kinds: Vec<(u64, &'static str)>,
}

/// How constants of a PyTorch type compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstantType {
    /// One object per value: `torch.dtype`, `torch.layout`, `torch.memory_format`.
    Singleton,
    /// `torch.device`: compared by its own C function.
    Device,
    /// `torch.Size`: a tuple of integers.
    Size,
}

/// An AOTInductor getter: takes a tensor handle (the address of an `at::Tensor`) and a place for the result, returns 0 if all right.
pub(super) type Getter<T> = unsafe extern "C" fn(*mut c_void, *mut T) -> i32;

/// Functions of libtorch_cpu and libc10. All only read, and none throws on a defined tensor with
/// plain strides.
pub(super) struct Functions {
    pub requires_grad: unsafe extern "C" fn(*const c_void) -> bool,
    pub dtype: Getter<i32>,
    pub device_type: Getter<i32>,
    pub device_index: Getter<i32>,
    pub layout: Getter<i32>,
    pub dim: Getter<i64>,
    pub sizes: Getter<*const i64>,
    pub strides: Getter<*const i64>,
    pub storage_offset: Getter<i64>,
    /// Where the elements begin, the storage offset counted in; and the storage's size in bytes.
    pub data_ptr: Getter<*const c_void>,
    pub storage_size: Getter<i64>,
    pub element_size: unsafe extern "C" fn(i32) -> usize,
}

static TORCH: OnceLock<Torch> = OnceLock::new();

/// Whether a test wants PyTorch's insides not to be found.
static HIDDEN: AtomicBool = AtomicBool::new(false);

/// From now on nothing of PyTorch's insides is found, in a process that hasn't looked yet: for tests of
/// the slower ways.
pub fn hide() {
    HIDDEN.store(true, Ordering::Relaxed);
}

pub(super) fn is_hidden() -> bool {
    HIDDEN.load(Ordering::Relaxed)
}

/// What is known of PyTorch, once it has been imported.
#[inline]
pub fn get(py: Python<'_>) -> Option<&'static Torch> {
    match TORCH.get() {
        Some(torch) => Some(torch),
        None => start(py),
    }
}

/// What of this PyTorch isn't read where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfound {
    /// Tensors can't be told from other objects, or nothing of them be read.
    Tensors,
    /// Functions are asked for tensors' metadata.
    Fields,
    /// Python is asked for the state of the process and the thread.
    State,
}

impl Unfound {
    /// A word for reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Unfound::Tensors => "tensors",
            Unfound::Fields => "the fields of tensors",
            Unfound::State => "PyTorch's settings",
        }
    }
}

/// What wasn't found. Nothing before PyTorch is imported.
#[must_use]
pub fn unfound(py: Python<'_>) -> Vec<Unfound> {
    let Some(torch) = get(py) else {
        if STARTED.load(Ordering::Relaxed) >= RUNNING {
            // Another thread is about to find it.
            return Vec::new();
        }
        let is_imported = modules::import(py, "sys")
            .and_then(|sys| sys.getattr("modules")?.contains("torch.nn"))
            .unwrap_or(false);
        return if is_imported { vec![Unfound::Tensors] } else { Vec::new() };
    };
    let mut unfound = Vec::new();
    if torch.essential.is_none() {
        unfound.push(Unfound::Tensors);
    } else if torch.offsets.is_none() {
        unfound.push(Unfound::Fields);
    }
    if !global_state::is_found(py) {
        unfound.push(Unfound::State);
    }
    unfound
}

/// The offsets that another search finds, in words; `None` if it finds none. For tests.
#[must_use]
pub fn search_again(py: Python<'_>) -> Option<String> {
    let torch = modules::import(py, "torch").ok()?;
    let (_, offsets) = tensor::search(py, &torch, get(py)?).ok()?;
    offsets.map(|offsets| format!("{offsets:?}"))
}

/// How often it was looked for. It isn't entered again from inside, nor tried for ever.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// Added while it is.
const RUNNING: u32 = 1 << 16;

#[cold]
fn start(py: Python<'_>) -> Option<&'static Torch> {
    const ATTEMPTS: u32 = 3;
    let modules = modules::import(py, "sys").ok()?.getattr("modules").ok()?;
    let started = STARTED.load(Ordering::Relaxed);
    if started >= ATTEMPTS || !modules.contains("torch.nn").ok()? {
        return None;
    }
    STARTED.store(started + 1 + RUNNING, Ordering::Relaxed);
    super::interrupt();
    let torch = Torch::new(py, &modules.get_item("torch").ok()?);
    STARTED.store(started + 1, Ordering::Relaxed);
    let torch = torch.ok()?;
    Some(TORCH.get_or_init(|| torch))
}

/// How constants of the type at this address compare, if it is a type of PyTorch's.
#[inline]
pub fn constant_type(py: Python<'_>, ty: usize) -> Option<ConstantType> {
    let torch = get(py)?;
    torch.constants.iter().find(|(known, _)| known.as_ptr() as usize == ty).map(|(_, kind)| *kind)
}

impl Torch {
    /// Whether anything of a tensor is read where it lies.
    pub(crate) fn reads_tensors(&self) -> bool {
        self.essential.is_some()
    }

    /// The versions of `torch.Tensor` and `torch.nn.Parameter`: others once anything of them is changed. `None` if one
    /// has none.
    pub(crate) fn versions(&self, py: Python<'_>) -> Option<[u32; 2]> {
        let version = |ty: Bound<'_, PyType>| {
            types::assign_version(ty.as_borrowed()).then(|| types::version_tag(ty.as_borrowed()))
        };
        let [tensor, parameter] = self.types(py)?;
        Some([version(tensor)?, version(parameter)?])
    }

    /// The version of `torch.nn.Parameter`: another once anything of it or of `torch.Tensor` is changed.
    #[inline]
    pub(crate) fn version(&self, py: Python<'_>) -> Option<u32> {
        // SAFETY: the type is kept alive by PyTorch.
        match unsafe { words::type_version(self.exact[1] as *const ffi::PyTypeObject) } {
            0 => self.versions(py).map(|[_, parameter]| parameter),
            version => Some(version),
        }
    }

    /// `torch.Tensor` and `torch.nn.Parameter`.
    #[must_use]
    pub fn types<'py>(&self, py: Python<'py>) -> Option<[Bound<'py, PyType>; 2]> {
        let ty = |address: usize| {
            // SAFETY: the types are kept alive by PyTorch.
            let ty = unsafe { Bound::from_borrowed_ptr(py, address as *mut ffi::PyObject) };
            ty.cast_into::<PyType>().ok()
        };
        Some([ty(self.exact[0])?, ty(self.exact[1])?])
    }

    /// Whether both types still have these versions.
    #[inline]
    pub(crate) fn has_versions(&self, versions: [u32; 2]) -> bool {
        self.exact.iter().zip(versions).all(|(address, version)| {
            // SAFETY: the types are kept alive by PyTorch.
            unsafe { words::type_version(*address as *const ffi::PyTypeObject) == version }
        })
    }

    /// Where the Python object of a plain `torch.Tensor` or `torch.nn.Parameter` keeps its `at::Tensor`, which is a pointer
    /// to the `TensorImpl`.
    #[inline]
    pub(crate) fn handle(&self, object: Borrowed<'_, '_>) -> Option<*const u64> {
        // SAFETY: a live object.
        let ty = unsafe { words::type_of(object.as_ptr()) } as usize;
        if !self.exact.contains(&ty) {
            return None;
        }
        let offset = self.essential?.cdata;
        // SAFETY: a tensor's object has the pointer there.
        unsafe {
            let place = object.as_ptr().cast::<u8>().add(offset).cast::<u64>().cast_const();
            (place.read() != 0).then_some(place)
        }
    }

    fn new(py: Python<'_>, torch: &Bound<'_, PyAny>) -> PyResult<Self> {
        libraries::open(torch)?;
        let c = torch.getattr("_C")?;
        let ty = |name| PyResult::Ok(torch.getattr(name)?.unbind());
        let keys = |names: &[&str]| {
            let mut bits = 0;
            for name in names {
                let key = c.getattr("_parse_dispatch_key")?.call1((*name,))?;
                if key.is_none() {
                    // Other versions have no such tensors.
                    continue;
                }
                let set = c.getattr("DispatchKeySet")?.call1((key,))?;
                bits |= set.call_method0("raw_repr")?.extract::<u64>()?;
            }
            PyResult::Ok(bits)
        };
        let dense = keys(&["CPU"])?;
        let ordinary = keys(ORDINARY)?;
        let mut kinds = Vec::new();
        for (name, word) in UNUSUAL {
            kinds.push((keys(&[*name])? & !ordinary, *word));
        }
        let mut this = Torch {
            tensor_base: c.getattr("TensorBase")?.unbind(),
            exact: [
                torch.getattr("Tensor")?.as_ptr() as usize,
                torch.getattr("nn")?.getattr("Parameter")?.as_ptr() as usize,
            ],
            constants: [
                (ty("dtype")?, ConstantType::Singleton),
                (ty("device")?, ConstantType::Device),
                (ty("Size")?, ConstantType::Size),
                (ty("layout")?, ConstantType::Singleton),
                (ty("memory_format")?, ConstantType::Singleton),
                (ty("qscheme")?, ConstantType::Singleton),
            ],
            functions: Functions::find(),
            essential: None,
            offsets: None,
            sparse_keys: keys(&["SparseCPU", "SparseCsrCPU", "MkldnnCPU"])? & !dense,
            matrix_keys: keys(&["SparseCPU", "SparseCsrCPU"])? & !ordinary,
            opaque_keys: keys(&[
                "Python",
                "SparseCPU",
                "SparseCsrCPU",
                "MkldnnCPU",
                "NestedTensorCPU",
                "FuncTorchBatched",
                "FuncTorchGradWrapper",
                "Functionalize",
            ])? & !dense,
            ordinary_keys: ordinary,
            python_keys: keys(&["Python", "PythonTLSSnapshot"])?,
            wrapper_keys: keys(&["FuncTorchBatched", "FuncTorchGradWrapper"])?,
            kinds,
        };
        (this.essential, this.offsets) = tensor::search(py, torch, &this).unwrap_or_default();
        Ok(this)
    }

    /// Whether the object is of the class `torch.Tensor` itself.
    pub(super) fn is_own_tensor(&self, object: *mut ffi::PyObject) -> bool {
        // SAFETY: callers pass live objects.
        unsafe { words::type_of(object) as usize == self.exact[0] }
    }

    /// Whether the object is a tensor of any kind.
    #[inline]
    pub(super) fn is_tensor(&self, object: *mut ffi::PyObject) -> bool {
        // SAFETY: callers pass live objects; walking the chain of bases runs no Python code.
        unsafe {
            let ty = words::type_of(object);
            if self.exact.contains(&(ty as usize)) {
                return true;
            }
            words::flags(ty) & BUILTIN_SUBCLASS == 0
                && ffi::PyType_IsSubtype(ty, self.tensor_base.as_ptr().cast()) != 0
        }
    }
}

/// The dispatch keys whose tensors have nothing that dtype, device, sizes, strides and the key set itself
/// don't tell: dense memory of a device, autograd, autocast, lazy conjugation and negation. A key that
/// isn't here may stand for anything: sizes of its own, scales, names, another tensor within.
const ORDINARY: &[&str] = &[
    "CPU",
    "CUDA",
    "XPU",
    "MPS",
    "Meta",
    "AutogradCPU",
    "AutogradCUDA",
    "AutogradXPU",
    "AutogradMPS",
    "AutogradMeta",
    "AutogradOther",
    "ADInplaceOrView",
    "AutocastCPU",
    "AutocastCUDA",
    "AutocastXPU",
    "AutocastMPS",
    "Conjugate",
    "Negative",
];

/// Words for tensors of other keys, for reports; the first that fits is taken.
const UNUSUAL: &[(&str, &str)] = &[
    ("Python", "dispatched by Python code"),
    ("NestedTensorCPU", "nested"),
    ("SparseCPU", "sparse"),
    ("SparseCsrCPU", "sparse"),
    ("QuantizedCPU", "quantized"),
    ("MkldnnCPU", "mkldnn"),
    ("Named", "with named dimensions"),
    ("ZeroTensor", "of zeros without memory"),
    ("FuncTorchBatched", "batched by torch.func"),
    ("FuncTorchGradWrapper", "wrapped by torch.func"),
    ("Functionalize", "functional"),
];

/// The flags of subclasses of builtin types, which tensors never are.
const BUILTIN_SUBCLASS: u64 = 0xff << 24;

impl Functions {
    fn find() -> Option<Self> {
        // SAFETY: the names are those of the C ABI in `torch/csrc/inductor/aoti_torch/c/shim.h`,
        // whose getters have this signature (the size of an element takes a dtype), and of `TensorImpl::requires_grad() const`, whose
        // only argument is `this`.
        unsafe {
            Some(Functions {
                requires_grad: Library::C10.function(c"_ZNK3c1010TensorImpl13requires_gradEv")?,
                dtype: getter(c"aoti_torch_get_dtype")?,
                device_type: getter(c"aoti_torch_get_device_type")?,
                device_index: getter(c"aoti_torch_get_device_index")?,
                layout: getter(c"aoti_torch_get_layout")?,
                dim: getter(c"aoti_torch_get_dim")?,
                sizes: getter(c"aoti_torch_get_sizes")?,
                strides: getter(c"aoti_torch_get_strides")?,
                storage_offset: getter(c"aoti_torch_get_storage_offset")?,
                data_ptr: getter(c"aoti_torch_get_data_ptr")?,
                storage_size: getter(c"aoti_torch_get_storage_size")?,
                element_size: Library::Cpu.function(c"aoti_torch_dtype_element_size")?,
            })
        }
    }
}

/// # Safety
/// The function of this name in libtorch_cpu is a `Getter<T>`.
unsafe fn getter<T>(name: &CStr) -> Option<Getter<T>> {
    // SAFETY: passed on to the caller.
    unsafe { Library::Cpu.function(name) }
}
