//! What compiles graphs, mostly beside the program: `stator._background` is its Python side.

use pyo3::prelude::*;
use pyo3::types::PyType;
use stator_cpython::thread::asynchronous::raise_in;
use stator_tracer::declined::Declined;
use stator_tracer::jobs::Job;
use stator_tracer::parking;

/// Calls what compiles a graph, on a thread that waits at its frames while a compiled call runs.
#[pyfunction]
fn _compile_beside<'py>(task: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    parking::compile(task)
}

/// Somebody waits for the compiling thread, or does so no more.
#[pyfunction]
fn _hurry(does: bool) {
    parking::hurry(does);
}

/// How often the compiling thread has waited for compiled calls.
#[pyfunction]
fn _parked() -> usize {
    parking::parked()
}

/// This is a forked process, which has one thread.
#[pyfunction]
fn _forget_other_threads(py: Python<'_>) {
    parking::forget_others(py);
}

/// Has a thread raise an exception at its next instruction.
#[pyfunction]
fn _raise_in(ident: u64, class: &Bound<'_, PyType>) {
    raise_in(ident, class);
}

/// Adds the functions to the extension module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Job>()?;
    module.add_class::<Declined>()?;
    module.add_function(wrap_pyfunction!(_compile_beside, module)?)?;
    module.add_function(wrap_pyfunction!(_hurry, module)?)?;
    module.add_function(wrap_pyfunction!(_parked, module)?)?;
    module.add_function(wrap_pyfunction!(_forget_other_threads, module)?)?;
    module.add_function(wrap_pyfunction!(_raise_in, module)?)
}
