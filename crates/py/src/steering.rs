//! What steers traces from inside the traced program: `stator._steering` is its Python side.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyFunction;
use stator_tracer::compiling;
use stator_tracer::disabled::Disabled;
use stator_tracer::marks::{self, Registered};
use stator_tracer::stance::{self, Stance};

/// Ends the trace here, and does nothing in plain Python.
///
/// `msg` shows up in the `graph_breaks` log. A call of `torch._dynamo.graph_break` does the same.
#[pyfunction]
#[pyo3(signature = (msg = ""))]
fn graph_break(msg: &str) {
    let _ = msg;
}

/// As `torch.compiler.is_compiling`: False, unless `stator.compile` was asked for the path made for tracers.
#[pyfunction]
fn is_compiling() -> bool {
    compiling::is_told()
}

/// Takes the stance of this name and returns the name of the one before.
#[pyfunction]
fn _set_stance(name: &str) -> PyResult<&'static str> {
    let stance = Stance::of_name(name).ok_or_else(|| PyValueError::new_err("no such stance"))?;
    Ok(stance::set(stance).name())
}

/// The names of the stances.
#[pyfunction]
fn _stances() -> Vec<&'static str> {
    Stance::ALL.map(Stance::name).to_vec()
}

/// Registers a callable that can't bear a mark as one node of the graph.
#[pyfunction]
fn _register_in_graph(callable: &Bound<'_, PyAny>) {
    marks::register(callable, Registered::InGraph);
}

/// Registers a callable that can't bear a mark as one whose results are constants.
#[pyfunction]
fn _register_constant(callable: &Bound<'_, PyAny>) {
    marks::register(callable, Registered::Constant);
}

/// Registers a function that is traced in place of another.
#[pyfunction]
fn _register_substitute(
    original: &Bound<'_, PyAny>,
    polyfill: &Bound<'_, PyFunction>,
    folds: bool,
) {
    marks::register(
        original,
        Registered::Substitute { polyfill: polyfill.clone().unbind(), folds },
    );
}

/// Adds the functions to the extension module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Disabled>()?;
    module.add_function(wrap_pyfunction!(graph_break, module)?)?;
    module.add_function(wrap_pyfunction!(is_compiling, module)?)?;
    module.add_function(wrap_pyfunction!(_set_stance, module)?)?;
    module.add_function(wrap_pyfunction!(_stances, module)?)?;
    module.add_function(wrap_pyfunction!(_register_in_graph, module)?)?;
    module.add_function(wrap_pyfunction!(_register_constant, module)?)?;
    module.add_function(wrap_pyfunction!(_register_substitute, module)?)
}
