//! Rows for PyTorch: the operations of `stator_operators::torch` as objects, and its state.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use stator_cpython::modules;
use stator_cpython::object::Borrowed;
use stator_operators::{STATE, found_torch, rows_for, torch as operators, torch_version};

use super::{Class, Determined, Functions, Operation};
use crate::breaks::Reason;

/// Owners of operations that are written in Python: each has a row of its own.
const IN_PYTHON: &[&str] = &["torch", "torch.functional", "torch.nn.functional"];

/// Adds the rows to the table.
pub fn add(torch: &Bound<'_, PyModule>, functions: &mut Functions) -> PyResult<()> {
    let py = torch.py();
    let tensor = torch.getattr("Tensor")?;
    found_torch(&torch.getattr("__version__")?.str()?.to_string_lossy());
    for path in IN_PYTHON {
        let owner = resolve(py, path)?;
        let rows = rows_for(operators::OPERATIONS, torch_version());
        for row in rows.filter(|row| row.owner == *path) {
            for name in row.names() {
                if let Some(function) = own(&owner, name)? {
                    add_operation(functions, &function, path, (path, name), false)?;
                }
            }
        }
    }
    for (path, prefix) in operators::NAMESPACES {
        let owner = resolve(py, path)?;
        for name in owner.dir()?.iter() {
            let name: String = name.extract()?;
            let function = owner.getattr(name.as_str())?;
            add_operation(functions, &function, prefix, (path, &name), false)?;
        }
    }
    for name in tensor.dir()?.iter() {
        let name: String = name.extract()?;
        let method = tensor.getattr(name.as_str())?;
        add_operation(functions, &method, "", ("torch.Tensor", &name), true)?;
    }
    for row in rows_for(STATE, torch_version()) {
        let owners = match row.owner {
            "" => vec![tensor.clone(), torch.clone().into_any()],
            owner => {
                let (module, class) = owner.split_once(':').unwrap_or((owner, ""));
                let found = match (loaded(py, module)?, class) {
                    (Some(module), "") => Some(module),
                    (Some(module), class) => module.getattr_opt(class)?,
                    (None, _) => None,
                };
                found.into_iter().collect()
            }
        };
        for name in row.names() {
            for owner in &owners {
                if let Some(function) = own(owner, name)? {
                    functions.insert_row(&function, row);
                }
            }
        }
    }
    for name in ["Parameter", "Buffer"] {
        let class = torch.getattr("nn")?.getattr(name)?;
        let operation = Operation {
            name: format!("torch.nn.{name}").into(),
            is_method: false,
            determined: Determined::EagerOnly,
        };
        functions.insert(&class, Class::Operation(operation));
    }
    functions.insert(&tensor, Class::Untraceable(Reason::Unsupported));
    functions.insert(&tensor.getattr("__hash__")?, Class::Untraceable(Reason::Identity));
    Ok(())
}

/// What a class or a module has by a name. A module isn't asked to make what it hasn't: PyTorch's warns of old names.
fn own<'py>(owner: &Bound<'py, PyAny>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    match owner.cast_exact::<PyModule>() {
        Ok(module) => module.dict().get_item(name),
        Err(_) => owner.getattr_opt(name),
    }
}

/// Adds a function if it's known as an operation. `known` is whose it is, and how it's called there.
fn add_operation(
    functions: &mut Functions,
    function: &Bound<'_, PyAny>,
    prefix: &str,
    known: (&str, &str),
    is_method: bool,
) -> PyResult<()> {
    let Some(determined) = operators::operation(known.0, known.1) else { return Ok(()) };
    if !function.is_callable() || function.is_instance_of::<PyType>() {
        return Ok(());
    }
    let Some(name) = function.getattr_opt("__name__")? else { return Ok(()) };
    let name = name.extract::<String>()?;
    let name = if is_method { name } else { format!("{prefix}.{name}") };
    let operation = Operation { name: name.into(), is_method, determined };
    functions.insert_new(function, Class::Operation(operation));
    Ok(())
}

/// A module if it is loaded: the table must not import what the user's program doesn't.
fn loaded<'py>(py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    let modules = modules::import(py, "sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    modules.get_item(name)
}

fn resolve<'py>(py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyAny>> {
    let mut parts = path.split('.');
    let mut object = modules::import(py, parts.next().unwrap_or("torch"))?.into_any();
    for part in parts {
        object = object.getattr(part)?;
    }
    Ok(object)
}

/// An operator of `torch.ops.aten`, or one of its overloads: an operation if the table knows the
/// operator. Custom operators may do anything.
pub fn aten_operation(callable: Borrowed<'_, '_>) -> Option<Operation> {
    let class = callable.get_type().fully_qualified_name().ok()?;
    if !class.to_string_lossy().starts_with("torch._ops.OpOverload") {
        return None;
    }
    let name = callable.str().ok()?.to_string();
    let packet = name.strip_prefix("aten.")?.split('.').next()?;
    let determined = operators::operation(operators::ATEN, packet)?;
    Some(Operation { name: format!("torch.ops.{name}").into(), is_method: false, determined })
}
