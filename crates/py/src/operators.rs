//! The table of callables, as Python sees it: for tensor programs, and for tests.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use stator_operators::{
    Class, PYTHON, STATE, data_rows, fits, programs, rows_for, torch, torch_version,
};
use stator_tracer::known;

/// A row: owner, names, class, traits.
type Shown = (&'static str, Vec<&'static str>, String, Vec<&'static str>);

/// The rows of a table: of `"operations"` of PyTorch, where the class is when the result is determined; of
/// PyTorch's `"state"`; of `"python"`. Those for other versions are left out.
#[pyfunction]
fn _rows(py: Python<'_>, table: &str) -> PyResult<Vec<Shown>> {
    let running = py.version_info();
    let (rows, version) = match table {
        "operations" => (torch::OPERATIONS, torch_version()),
        "state" => (STATE, torch_version()),
        "python" => (PYTHON, (running.major.into(), running.minor.into())),
        _ => return Err(PyValueError::new_err("no such table")),
    };
    let shown = rows_for(rows, version).map(|row| {
        let class = match row.class {
            Class::Operation(determined) => format!("{determined:?}"),
            class => format!("{class:?}"),
        };
        (row.owner, row.names().collect(), class, row.traits.names().collect())
    });
    Ok(shown.collect())
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

/// What the data of operations' results follows from: names, the origin, and when they are uniform.
#[pyfunction]
fn _data_rows() -> Vec<(Vec<&'static str>, String, String)> {
    let shown = |(names, data): (_, stator_operators::Data)| {
        (names, format!("{:?}", data.origin), format!("{:?}", data.uniform))
    };
    data_rows().map(shown).collect()
}

/// Whether each number of one type can be one of another, without an error.
#[pyfunction]
fn _fits(from: &str, to: &str) -> bool {
    fits(from, to)
}

/// Whether an operation, as it prints, writes to arguments without counting the write.
#[pyfunction]
fn _writes_silently(printed: &str) -> bool {
    torch::writes_silently(printed)
}

/// Whether an operation of this name writes to nothing and gives new memory, because the schema of its operator says so.
#[pyfunction]
fn _gives_new_memory(name: &str) -> bool {
    torch::gives_new_memory(name)
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
    module.add_function(wrap_pyfunction!(_rows, module)?)?;
    module.add_function(wrap_pyfunction!(_operation, module)?)?;
    module.add_function(wrap_pyfunction!(_known, module)?)?;
    module.add_function(wrap_pyfunction!(_data_rows, module)?)?;
    module.add_function(wrap_pyfunction!(_fits, module)?)?;
    module.add_function(wrap_pyfunction!(_writes_silently, module)?)?;
    module.add_function(wrap_pyfunction!(_gives_new_memory, module)?)?;
    module.add_function(wrap_pyfunction!(_is_allowed_in_programs, module)?)?;
    module.add_function(wrap_pyfunction!(_program_factories, module)?)
}
