//! Tensors that stand for numbers.
//!
//! Of `x + 1` PyTorch makes a tensor of 1 that doesn't count when the result's dtype is found (a *wrapped number*). No function
//! of its library makes one, but a multiplication keeps the one it was given for its gradient.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use rustc_hash::FxHashMap;

use super::Number;
use crate::modules;

/// Those that there are, by tag and bits of the number.
type Made = FxHashMap<(u64, u64), Py<PyAny>>;

static MADE: Mutex<Option<Made>> = Mutex::new(None);

/// So many are kept.
const LIMIT: usize = 1024;

/// The tensor that stands for a number; `None` if PyTorch hands none out.
pub(super) fn tensor(py: Python<'_>, number: Number) -> Option<Bound<'_, PyAny>> {
    let key = number.parts();
    let made = || MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let known = made().as_ref().and_then(|made| Some(made.get(&key)?.clone_ref(py)));
    if let Some(known) = known {
        return Some(known.into_bound(py));
    }
    let tensor = make(py, number).ok().flatten()?;
    let mut made = made();
    let made = made.get_or_insert_default();
    // Another thread may have been quicker. Nothing is dropped here: that may wait for the GIL.
    if made.len() < LIMIT && !made.contains_key(&key) {
        made.insert(key, tensor.clone().unbind());
    }
    Some(tensor)
}

fn make(py: Python<'_>, number: Number) -> PyResult<Option<Bound<'_, PyAny>>> {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.get_or_try_init(py, || {
        let module = PyModule::from_code(py, SOURCE, c"<stator>", c"_stator_wrapped")?;
        PyResult::Ok(module.getattr("wrapped")?.unbind())
    })?;
    let torch = modules::import(py, "torch")?;
    let made = match number {
        Number::Int(value) => make.bind(py).call1((torch, value)),
        Number::Bool(value) => make.bind(py).call1((torch, value)),
        Number::Float(value) => make.bind(py).call1((torch, value)),
    }?;
    Ok((!made.is_none()).then_some(made))
}

/// The tensor doesn't decide dtypes, or isn't taken.
const SOURCE: &std::ffi::CStr = c"
def wrapped(torch, number):
    from torch.utils._python_dispatch import _disable_current_modes
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.inference_mode(False), \\
            torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t), \\
            torch.autocast('cpu', enabled=False):
        leaf = torch.ones((), dtype=torch.float16, device='cpu', requires_grad=True)
        made = (leaf * number).grad_fn._saved_other
        one = torch.ones((), dtype=torch.float16, device='cpu')
        half = torch.float16
        fits = made.ndim == 0 and made.item() == number and torch.result_type(one, made) == half
        return made if fits or number != number else None
";
