//! The functions of the module `copy` that make deep copies.
//!
//! What they do with addresses is known: these are keys of the memo, which remembers copies for as
//! long as one call of `copy.deepcopy` lasts, and nobody else sees it.

use pyo3::prelude::*;
use stator_cpython::modules;
use stator_cpython::object::Borrowed;

/// Those that are given the memo.
const FUNCTIONS: [&str; 7] = [
    "deepcopy",
    "_deepcopy_atomic",
    "_deepcopy_list",
    "_deepcopy_tuple",
    "_deepcopy_dict",
    "_reconstruct",
    "_keep_alive",
];

/// The standard library's functions, with their code.
#[derive(Debug)]
pub struct Copying {
    functions: Vec<(Py<PyAny>, Py<PyAny>)>,
}

impl Copying {
    /// The functions, if they come from the file of the module.
    ///
    /// # Errors
    /// If the module lacks one of them.
    pub fn find(py: Python<'_>) -> PyResult<Option<Self>> {
        let module = modules::import(py, "copy")?;
        let file = module.getattr("__file__")?;
        let mut functions = Vec::new();
        for name in FUNCTIONS {
            let function = module.getattr(name)?;
            let Some(code) = function.getattr_opt("__code__")? else { return Ok(None) };
            if !code.getattr("co_filename")?.eq(&file)? {
                return Ok(None);
            }
            functions.push((function.unbind(), code.unbind()));
        }
        Ok(Some(Self { functions }))
    }

    /// Whether this is the code of one of them.
    #[must_use]
    pub fn has_code(&self, code: Borrowed<'_, '_>) -> bool {
        self.functions.iter().any(|(_, known)| known.is(&*code))
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn has(&self, function: Borrowed<'_, '_>) -> bool {
        self.functions.iter().any(|(known, _)| known.is(&*function))
    }
}
