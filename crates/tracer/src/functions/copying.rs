//! The functions of the module `copy` that make deep copies, and the methods by which PyTorch's modules take part.
//!
//! What they do with addresses is known: these are keys of the memo, which remembers copies for as
//! long as one call of `copy.deepcopy` lasts, and nobody else sees it.

use pyo3::prelude::*;
use stator_cpython::modules;
use stator_cpython::object::Borrowed;

use super::KnownFunction;

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

/// How `torch.nn` makes the state of a module of its own, and sets that of a copy: the class, the method, and what the
/// method sets where an old checkpoint lacks it.
const OF_MODULES: &[(&str, &str, &[&str])] = &[
    ("Module", "__getstate__", &[]),
    ("Module", "__setstate__", &[]),
    ("Conv1d", "__setstate__", &["padding_mode"]),
    ("MultiheadAttention", "__setstate__", &["_qkv_same_embed_dim"]),
    ("TransformerEncoderLayer", "__setstate__", &["activation"]),
    ("TransformerDecoderLayer", "__setstate__", &["activation"]),
    ("Softmin", "__setstate__", &["dim"]),
    ("Softmax", "__setstate__", &["dim"]),
    ("LogSoftmax", "__setstate__", &["dim"]),
    ("AvgPool3d", "__setstate__", &["padding", "ceil_mode", "count_include_pad"]),
];

/// The methods by which modules of `torch.nn` are copied: the copy gets the dictionary of the module, and nothing else if
/// the names are all there.
#[derive(Debug)]
pub struct ModuleCopying {
    methods: Vec<(KnownFunction, &'static [&'static str])>,
    /// What each module has from its beginning.
    names: Vec<String>,
}

impl ModuleCopying {
    /// The methods that come from the files of PyTorch's modules.
    ///
    /// # Errors
    /// If PyTorch lacks one of the classes.
    pub fn find(torch: &Bound<'_, PyModule>) -> PyResult<Self> {
        let py = torch.py();
        let nn = torch.getattr("nn")?;
        let mut methods = Vec::new();
        for (class, name, set) in OF_MODULES {
            let Some(function) = nn.getattr(class)?.getattr_opt(name)? else { continue };
            let Some(code) = function.getattr_opt("__code__")? else { continue };
            let module = function.getattr("__module__")?.extract::<String>()?;
            // What stands in a method's place may be anybody's.
            if !module.starts_with("torch.nn.") {
                continue;
            }
            let file = modules::import(py, &module)?.getattr("__file__")?;
            if code.getattr("co_filename")?.eq(&file)? {
                methods.push((KnownFunction::new(&function, &code), *set));
            }
        }
        let names = nn.getattr("Module")?.call0()?.getattr("__dict__")?;
        let names = names.try_iter()?.map(|name| name?.extract::<String>());
        Ok(Self { methods, names: names.collect::<PyResult<_>>()? })
    }

    /// Whether this is one of the methods, and all that it asks for is there.
    pub fn has(&self, method: Borrowed<'_, '_>, is_there: impl Fn(&str) -> bool) -> bool {
        let known = self.methods.iter().find(|(known, _)| known.is(method));
        known.is_some_and(|(_, set)| {
            set.iter().copied().chain(self.names.iter().map(String::as_str)).all(is_there)
        })
    }
}
