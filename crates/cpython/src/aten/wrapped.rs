//! Tensors that stand for numbers.
//!
//! Of `x + 1` PyTorch makes a tensor of 1 that doesn't count when the result's dtype is found (a *wrapped number*). No function
//! of its library makes one, but a multiplication keeps the one it was given for its gradient.
//!
//! It is an `int64` or a `float64`. Beside a `float32` tensor in main memory the operator makes a `float32` tensor of it
//! each time, which takes as long as the operation. So it's given one of the dtype that it would convert to, converted in
//! the same way once.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use rustc_hash::FxHashMap;

use super::Number;
use crate::heap::tensor;
use crate::heap::torch::{self, Torch};
use crate::modules;
use crate::object::Borrowed;
use crate::thread::Thread;

/// A number that is given for a tensor.
pub(super) struct Wrapped {
    number: Number,
    made: Made,
    /// The same as each of [`DTYPES`], once it was needed; `None`: there is none, or none is needed.
    converted: [PyOnceLock<Option<Made>>; DTYPES.len()],
}

/// What numbers are converted to: `float32` and `float64`, as `c10::ScalarType`. Kernels for smaller ones take the
/// number as it is.
pub(super) const DTYPES: [(i32, &str); 2] = [(6, "float32"), (7, "float64")];

/// A tensor that stands for a number.
#[derive(Debug)]
pub(super) struct Made {
    tensor: Py<PyAny>,
    /// The address of its `at::Tensor`.
    pub place: u64,
}

/// The number in [`DTYPES`] of a `c10::ScalarType`.
#[inline]
pub(super) fn index(dtype: i32) -> Option<usize> {
    DTYPES.iter().position(|(known, _)| *known == dtype)
}

/// A new tensor of the dtype with this number in [`DTYPES`], which stands for some number.
pub(super) fn new(py: Python<'_>, dtype: usize) -> Option<Made> {
    // A whole number is converted to either.
    kept(py, make(py, Number::Int(2), Some(DTYPES[dtype].1)).ok()??)
}

/// `None`: it's no ordinary tensor, because it was made within a transform of `torch.func`.
fn kept(py: Python<'_>, made: Bound<'_, PyAny>) -> Option<Made> {
    let torch = torch::get(py)?;
    let place = torch.handle(made.as_borrowed())? as u64;
    // SAFETY: the tensor's own.
    unsafe { tensor::dtype_in_memory(torch, place)? };
    Some(Made { tensor: made.unbind(), place })
}

impl fmt::Debug for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

impl Wrapped {
    /// `None` if PyTorch hands no such tensor out.
    pub(super) fn new(py: Python<'_>, number: Number) -> Option<Self> {
        let made = tensor(py, number, None)?;
        Some(Self { number, made, converted: Default::default() })
    }

    /// The address of the tensor that PyTorch makes of it.
    pub(super) fn place(&self) -> u64 {
        self.made.place
    }

    /// The address of the tensor to give beside the `at::Tensor` at `other`, if it's another one.
    ///
    /// # Safety
    /// A live `at::Tensor` lies there.
    #[inline]
    pub(super) unsafe fn place_beside(
        &self,
        py: Python<'_>,
        torch: &Torch,
        other: u64,
    ) -> Option<u64> {
        // SAFETY: the caller's promise.
        let dtype = unsafe { tensor::dtype_in_memory(torch, other)? };
        let index = index(dtype)?;
        let make = || tensor(py, self.number, Some(DTYPES[index].1));
        self.converted[index].get_or_init(py, make).as_ref().map(|made| made.place)
    }
}

/// Those that there are, by tag and bits of the number, and by what it was converted to.
type Known = FxHashMap<(u64, u64, Option<&'static str>), Py<PyAny>>;

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// So many are kept.
const LIMIT: usize = 1024;

/// The tensor that stands for a number, converted to a dtype if one is given.
fn tensor(py: Python<'_>, number: Number, dtype: Option<&'static str>) -> Option<Made> {
    let (tag, bits) = number.parts();
    let key = (tag, bits, dtype);
    let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = lock().as_ref().and_then(|known| Some(known.get(&key)?.clone_ref(py)));
    if let Some(known) = known {
        return kept(py, known.into_bound(py));
    }
    if !torch::get(py)?.reads_tensors() {
        // None would be kept.
        return None;
    }
    let made = kept(py, make(py, number, dtype).ok().flatten()?)?;
    let mut known = lock();
    let known = known.get_or_insert_default();
    // Another thread may have been quicker. Nothing is dropped here: that may wait for the GIL.
    if known.len() < LIMIT && !known.contains_key(&key) {
        known.insert(key, made.tensor.clone_ref(py));
    }
    Some(made)
}

fn make<'py>(
    py: Python<'py>,
    number: Number,
    dtype: Option<&str>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !Thread::current(py).has_room() {
        return Ok(None);
    }
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || {
        PyModule::from_code(py, SOURCE, c"<stator>", c"_stator_wrapped").map(Bound::unbind)
    })?;
    let module = module.bind(py);
    let torch = modules::import(py, "torch")?;
    let object = number.to_object(py)?;
    let Some(dtype) = dtype else {
        let made = module.call_method1("wrapped", (torch, object))?;
        let is_it = !made.is_none() && is_number(made.as_borrowed(), number);
        return Ok(is_it.then_some(made));
    };
    let made = module.call_method1("converted", (&torch, &object, dtype))?;
    if made.is_none() {
        return Ok(None);
    }
    let (made, number, other): (Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>) =
        made.extract()?;
    let is_marked =
        tensor::mark_as_number(number.as_borrowed(), other.as_borrowed(), made.as_borrowed());
    let is_number = is_marked && module.call_method1("is_number", (torch, &made))?.is_truthy()?;
    Ok(is_number.then_some(made))
}

/// Whether a tensor holds a number, as PyTorch makes one of it. It's read where it lies: PyTorch's ways to read are seen.
fn is_number(made: Borrowed<'_, '_>, number: Number) -> bool {
    let held = || {
        let torch = torch::get(made.py())?;
        let place = torch.handle(made)? as u64;
        // SAFETY: the tensor's own, which holds one element of its dtype.
        unsafe {
            let data = tensor::held(torch, place)?.data();
            // c10::ScalarType: int64, float64, bool.
            Some(match (tensor::dtype_in_memory(torch, place)?, number) {
                (4, Number::Int(value)) => data.cast::<i64>().read() == value,
                (7, Number::Float(value)) => data.cast::<u64>().read() == value.to_bits(),
                (11, Number::Bool(value)) => (data.cast::<u8>().read() != 0) == value,
                _ => false,
            })
        }
    };
    held().unwrap_or(false)
}

/// Tensors for numbers are made apart from the modes that the program is in.
const SOURCE: &std::ffi::CStr = c"
import contextlib


@contextlib.contextmanager
def apart(torch):
    from torch.utils._python_dispatch import _disable_current_modes
    saves = contextlib.nullcontext()
    if torch._C._autograd._saved_tensors_hooks_is_enabled():
        saves = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.inference_mode(False), \
            torch.enable_grad(), torch.autocast('cpu', enabled=False), saves:
        yield


def is_number(torch, tensor):
    'Whether dtypes are decided without it.'
    with apart(torch):
        one = torch.ones((), dtype=torch.float16, device='cpu')
        return tensor.ndim == 0 and torch.result_type(one, tensor) == torch.float16


def wrapped(torch, number):
    'What PyTorch makes of the number; `None`: it decides dtypes.'
    with apart(torch):
        leaf = torch.ones((), dtype=torch.float16, device='cpu', requires_grad=True)
        made = (leaf * number).grad_fn._saved_other
        return made if is_number(torch, made) else None


def converted(torch, number, dtype):
    'The number as another dtype, what PyTorch makes of it, and the same without the mark of a number.'
    made = wrapped(torch, number)
    if made is None or made.dtype == getattr(torch, dtype):
        return None
    with apart(torch):
        other = torch.empty((), dtype=made.dtype, device='cpu').copy_(made)
        return made.to(getattr(torch, dtype)), made, other
";
