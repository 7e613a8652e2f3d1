//! `inspect.getattr_static`, by which `isinstance` asks protocols and `inspect.signature` asks classes: from CPython 3.12 on it keeps
//! what it has found out of a class in a cache, under weak references to classes. A Python function without a cache is traced in
//! the place of the one that has it.

use pyo3::prelude::*;
use stator_bytecode::Version;
use stator_cpython::modules;
use stator_cpython::opcode::TARGET;

use super::Functions;
use super::python::KnownFunction;

/// What is traced in its place: what hides the dictionary that instances of a class have.
const SOURCE: &std::ffi::CStr = c"
from types import GetSetDescriptorType

def shadowed(klass):
    for entry in classes_of(klass):
        own = dictionary_of(entry)
        if '__dict__' in own:
            found = own['__dict__']
            is_plain = type(found) is GetSetDescriptorType and found.__name__ == '__dict__'
            if not is_plain or found.__objclass__ is not entry:
                return found
    return nothing
";

/// Adds it to the table.
///
/// # Errors
/// If something isn't where Python has it.
pub(super) fn add(py: Python<'_>, functions: &mut Functions) -> PyResult<()> {
    if TARGET < Version::V312 {
        return Ok(());
    }
    let inspect = modules::import(py, "inspect")?;
    let Some(function) = inspect.getattr_opt("_shadowed_dict")? else { return Ok(()) };
    let Some(code) = function.getattr_opt("__code__")? else { return Ok(()) };
    if !code.getattr("co_filename")?.eq(inspect.getattr("__file__")?)? {
        return Ok(());
    }
    let instead = PyModule::from_code(py, SOURCE, c"<stator>", c"_stator_inspect")?;
    let parts = [
        ("classes_of", "_static_getmro"),
        ("dictionary_of", "_get_dunder_dict_of_class"),
        ("nothing", "_sentinel"),
    ];
    for (own, name) in parts {
        let Some(found) = inspect.getattr_opt(name)? else { return Ok(()) };
        instead.setattr(own, found)?;
    }
    let known = KnownFunction::new(&function, &code).replaced_by(instead.getattr("shadowed")?);
    functions.replace(known);
    Ok(())
}
