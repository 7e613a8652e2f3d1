//! What is known of operations' parameters, looked up in the installed PyTorch when a tensor first stands
//! where a number might.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use stator_cpython::hook::Suspended;
use stator_cpython::modules;
use stator_cpython::object::Borrowed;
use stator_cpython::thread::Deferred;
use stator_operators::Schemas;
use stator_operators::torch::last_part;

use super::parameters::Parameters;

/// C functions without a schema that make a tensor of what they're given, and read the items of lists.
const LITERALS: &[&str] = &["tensor", "as_tensor", "asarray", "new_tensor"];

/// Methods of Python that PyTorch makes operators of: `__add__`, `pow`.
const OPERATORS: &[&str] = &["pow", "pow_"];

/// How an operation takes tensors where numbers might stand.
#[derive(Clone, Debug)]
pub enum Reading {
    /// As data, always.
    Data,
    /// As data; items of lists as numbers of the arithmetic.
    Literal,
    /// As its schemas say.
    Schemas(Arc<Schemas>),
    /// It is a Python function with these parameters.
    Parameters(Arc<Parameters>),
}

#[derive(Default)]
struct Known {
    /// Of C functions, by the names that operations have.
    operators: FxHashMap<Box<str>, Reading>,
    /// Of Python functions, by their addresses: the table of functions keeps them alive.
    functions: FxHashMap<usize, Reading>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

fn known<T>(look: impl FnOnce(&mut Known) -> T) -> T {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    look(known.get_or_insert_default())
}

impl Reading {
    /// Of an operation that is a C function or an operator of `torch.ops`.
    pub fn of_operator(py: Python<'_>, operation: &str) -> Reading {
        if let Some(found) = known(|known| known.operators.get(operation).cloned()) {
            return found;
        }
        let (namespace, name) = operator_name(operation);
        let reading = if is_operator(name) {
            Reading::Data
        } else if namespace == "aten" && LITERALS.contains(&name) {
            Reading::Literal
        } else {
            let _native = Suspended::new(py);
            let _deferred = Deferred::new(py);
            let printed = schemas(py, namespace, name).unwrap_or_default();
            let schemas = Schemas::parse(name, printed.iter().map(String::as_str));
            Reading::Schemas(Arc::new(schemas))
        };
        known(|known| known.operators.insert(operation.into(), reading.clone()));
        reading
    }

    /// Of an operation that is a Python function.
    pub fn of_function(function: Borrowed<'_, '_>, operation: &str) -> Reading {
        let key = function.as_ptr() as usize;
        if let Some(found) = known(|known| known.functions.get(&key).cloned()) {
            return found;
        }
        let (_, name) = operator_name(operation);
        let reading = if is_operator(name) {
            Reading::Data
        } else {
            let _native = Suspended::new(function.py());
            let _deferred = Deferred::new(function.py());
            match Parameters::of(function) {
                Some(parameters) => Reading::Parameters(Arc::new(parameters)),
                None => Reading::Schemas(Arc::default()),
            }
        };
        known(|known| known.functions.insert(key, reading.clone()));
        reading
    }
}

fn is_operator(name: &str) -> bool {
    (name.starts_with("__") && name.ends_with("__")) || OPERATORS.contains(&name)
}

/// The namespace and the name of an operation's operator: of `torch.ops.aten.sum.dim_IntList`, `aten` and
/// `sum`; of `torch.nn.functional.pad`, `aten` and `pad`.
fn operator_name(operation: &str) -> (&str, &str) {
    if let Some(path) = operation.strip_prefix("torch.ops.") {
        let mut parts = path.split('.');
        return (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    }
    ("aten", last_part(operation))
}

fn schemas(py: Python<'_>, namespace: &str, name: &str) -> PyResult<Vec<String>> {
    let native = modules::import(py, "torch._C")?;
    let found =
        native.call_method1("_jit_get_schemas_for_operator", (format!("{namespace}::{name}"),))?;
    found.try_iter()?.map(|schema| Ok(schema?.str()?.to_string())).collect()
}
