//! The table of callables, as Python sees it: for tensor programs, and for tests.

use pyo3::prelude::*;
use stator_operators::{programs, torch};
use stator_tracer::known;

/// The rows of PyTorch's operations: owners, names, when the result is determined, traits.
#[pyfunction]
fn _operations() -> Vec<(&'static str, Vec<&'static str>, String, Vec<&'static str>)> {
    let rows = torch::OPERATIONS.iter();
    rows.map(|row| {
        let determined = format!("{:?}", row.determined);
        (row.owner, row.names().collect(), determined, row.traits.names().collect())
    })
    .collect()
}

/// What an operation's result depends on; `None`: it's unknown. An owner is a module's whole name,
/// `"torch.Tensor"` or `"torch.ops.aten"`.
#[pyfunction]
fn _operation(owner: &str, name: &str) -> Option<String> {
    torch::operation(owner, name).map(|determined| format!("{determined:?}"))
}

/// What the table of this process says of a callable; `None`: it's unknown.
#[pyfunction]
fn _known(callable: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    known(callable)
}

/// Whether an operation, as it prints, writes to arguments without counting the write.
#[pyfunction]
fn _writes_silently(printed: &str) -> bool {
    torch::writes_silently(printed)
}

/// Whether an operation of this name, which the table knows, may stand in a tensor program.
#[pyfunction]
fn _is_allowed_in_programs(name: &str) -> bool {
    programs::is_allowed(name)
}

/// The names of functions of `torch` that make tensors.
#[pyfunction]
fn _program_factories() -> Vec<&'static str> {
    programs::FACTORIES.split_whitespace().collect()
}

/// Adds the functions to a module.
///
/// # Errors
/// What adding to a module raises.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_operations, module)?)?;
    module.add_function(wrap_pyfunction!(_operation, module)?)?;
    module.add_function(wrap_pyfunction!(_known, module)?)?;
    module.add_function(wrap_pyfunction!(_writes_silently, module)?)?;
    module.add_function(wrap_pyfunction!(_is_allowed_in_programs, module)?)?;
    module.add_function(wrap_pyfunction!(_program_factories, module)?)
}
