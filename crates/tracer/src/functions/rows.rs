//! The rows of builtins and of the standard library, as objects.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::PyType;
use stator_cpython::modules;
use stator_operators::{PYTHON, rows_for};

use super::{Class, Functions, Traits, key};

/// Adds the rows to the table.
pub fn add(py: Python<'_>, functions: &mut Functions) -> PyResult<()> {
    let running = py.version_info();
    let version = (running.major.into(), running.minor.into());
    for row in rows_for(PYTHON, version) {
        let (module, path) =
            row.owner.split_once(':').map_or((row.owner, None), |(a, b)| (a, Some(b)));
        let mut owner = modules::import(py, module)?.into_any();
        if let Some(path) = path {
            owner = owner.getattr(path)?;
        }
        if row.names == "*" {
            for name in owner.dir()?.iter() {
                let name: String = name.extract()?;
                let found = owner.getattr(name.as_str())?;
                let special = matches!(
                    name.as_str(),
                    "__class__"
                        | "__doc__"
                        | "__new__"
                        | "__init__"
                        | "__init_subclass__"
                        | "__subclasshook__"
                        | "__dir__"
                        | "__reduce__"
                        | "__reduce_ex__"
                        | "__setattr__"
                        | "__delattr__"
                        | "__getattribute__"
                        | "__hash__"
                        | "__sizeof__"
                        | "__loader__"
                        | "__spec__"
                );
                if found.is_callable() && !special {
                    functions.insert_new(&found, Class::of_row(row));
                }
            }
            continue;
        }
        for name in row.names() {
            if let Some(found) = owner.getattr_opt(name)? {
                functions.insert_row(&found, row);
            }
        }
    }
    for (_, value) in modules::import(py, "builtins")?.dict().iter() {
        if value.cast::<PyType>().is_ok_and(|ty| is_exception(ty)) {
            functions.insert_new(&value, Class::Constructor);
            if keeps_arguments_alone(&value) {
                functions.traits.insert(key(value.as_borrowed()), Traits::MOVES);
            }
            // As those of `BaseException`, which have rows.
            for name in ["__new__", "__init__"] {
                let of_all = PYTHON.iter().find(|row| {
                    row.owner == "builtins:BaseException" && row.names().any(|found| found == name)
                });
                if let Some(row) = of_all {
                    functions.insert_row(&value.getattr(name)?, row);
                }
            }
        }
    }
    Ok(())
}

/// Whether exceptions of a class hold their arguments and nothing else: nobody looks at these as one is made.
fn keeps_arguments_alone(class: &Bound<'_, PyAny>) -> bool {
    let size =
        |class: &Bound<'_, PyAny>| class.getattr("__basicsize__").and_then(|it| it.extract());
    let plain: PyResult<usize> = size(class.py().get_type::<PyBaseException>().as_any());
    matches!((size(class), plain), (Ok(own), Ok(plain)) if own == plain)
}

fn is_exception(ty: &Bound<'_, PyType>) -> bool {
    ty.is_subclass_of::<PyBaseException>().unwrap_or(false)
}
