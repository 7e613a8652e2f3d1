//! Leaving an inference mode that was on before the trace: behind a break, behind a way out.
//!
//! What is on behind it, only its handle knows. So a node leaves it and says whether that is what was on when it was recorded;
//! where something else is, the replay leaves the trace before the program does so. The program then leaves it once more,
//! which does nothing: a handle goes back once.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use stator_cpython::hook::Suspended;
use stator_cpython::modules;
use stator_cpython::object::{Borrowed, Object};

/// The node's name: an operation that raises for nothing.
pub const LEAVE: &str = "torch.exit_inference_mode";

/// What an inference mode decides.
const FACTS: [&str; 4] = [
    "is_inference_mode_enabled",
    "is_grad_enabled",
    "_is_fwd_grad_enabled",
    "_is_multithreading_enabled",
];

/// What is on: a bit for each of [`FACTS`].
fn facts(c: &Bound<'_, PyAny>) -> PyResult<u8> {
    FACTS.iter().enumerate().try_fold(0, |bits, (at, name)| {
        let is_on: bool = c.getattr(*name)?.call0()?.extract()?;
        Ok(bits | u8::from(is_on) << at)
    })
}

/// Leaves the mode of a handle; what is on behind it. `None`: it's no handle, and nothing was done.
///
/// # Errors
/// Whatever PyTorch raises.
pub fn leave(handle: Borrowed<'_, '_>) -> PyResult<Option<u8>> {
    let py = handle.py();
    let c = modules::import(py, "torch._C")?;
    if !handle.get_type().is(&c.getattr("_InferenceMode")?) {
        return Ok(None);
    }
    let _native = Suspended::new(py);
    handle.call_method1(pyo3::intern!(py, "__exit__"), (py.None(), py.None(), py.None()))?;
    facts(&c).map(Some)
}

/// Leaves the mode of a handle; whether that is on behind it which was on when it was recorded.
#[pyfunction]
fn leaves(handle: &Bound<'_, PyAny>, recorded: u8) -> PyResult<bool> {
    Ok(leave(handle.as_borrowed())? == Some(recorded))
}

/// The node's function.
///
/// # Errors
/// If there is no memory for it.
pub fn function(py: Python<'_>) -> PyResult<Object<'_>> {
    static MADE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = || wrap_pyfunction!(leaves, py).map(|function| function.into_any().unbind());
    MADE.get_or_try_init(py, make).map(|function| function.bind(py).clone())
}
