//! What a Python function says of itself: its parameters, its name, and where it is.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyFunction, PyString, PyTuple, PyType};
use stator_federated::tracing::packing::From;
use stator_federated::tracing::parameters::{Kind, Parameter, bind};
use stator_federated::types::Type;
use stator_federated::{Class, Error, Name};

use super::infer::infer_type;
use crate::federated::errors::raise;
use crate::federated::types::describe;

/// A function's parameters.
pub struct Signature {
    /// In order.
    pub parameters: Vec<Parameter>,
    /// The default of each, if it has one.
    defaults: Vec<Option<Py<PyAny>>>,
}

impl Signature {
    /// The parameters of a callable.
    pub fn of(function: &Bound<'_, PyAny>) -> PyResult<Self> {
        match function.cast_exact::<PyFunction>() {
            Ok(plain) if !wraps(function)? => Self::of_plain(plain),
            _ => Self::inspected(function),
        }
    }

    /// Reads them off the code of a function: what `inspect` does, without its frames and time.
    fn of_plain(function: &Bound<'_, PyFunction>) -> PyResult<Self> {
        let code = function.getattr("__code__")?;
        let number = |name: &str| code.getattr(name)?.extract::<usize>();
        let names: Vec<String> = code.getattr("co_varnames")?.extract()?;
        let (positional, only) = (number("co_argcount")?, number("co_posonlyargcount")?);
        let (keyword_only, flags) = (number("co_kwonlyargcount")?, number("co_flags")?);
        const VARARGS: usize = 0x04;
        const KEYWORDS: usize = 0x08;

        let defaults = function.getattr("__defaults__")?;
        let defaults: Vec<Bound<'_, PyAny>> = match defaults.cast::<PyTuple>() {
            Ok(defaults) => defaults.iter().collect(),
            Err(_) => Vec::new(),
        };
        let by_name = function.getattr("__kwdefaults__")?;
        let mut made = Self { parameters: Vec::new(), defaults: Vec::new() };
        for (at, name) in names.iter().take(positional).enumerate() {
            let kind = if at < only { Kind::PositionalOnly } else { Kind::Ordinary };
            let from_end = positional - at;
            let default =
                (from_end <= defaults.len()).then(|| &defaults[defaults.len() - from_end]);
            made.push(name, kind, default.cloned());
        }
        let mut next = positional + keyword_only;
        if flags & VARARGS != 0 {
            made.push(&names[next], Kind::Varargs, None);
            next += 1;
        }
        for name in &names[positional..positional + keyword_only] {
            let default = match by_name.cast::<PyDict>() {
                Ok(by_name) => by_name.get_item(name)?,
                Err(_) => None,
            };
            made.push(name, Kind::KeywordOnly, default);
        }
        if flags & KEYWORDS != 0 {
            made.push(&names[next], Kind::Keywords, None);
        }
        Ok(made)
    }

    /// Asks `inspect`.
    fn inspected(function: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = function.py();
        static SIGNATURE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let inspect = SIGNATURE.import(py, "inspect", "signature")?;
        let Ok(signature) = inspect.call1((function,)) else {
            // The error of `inspect` would show its own frames.
            return Err(PyTypeError::new_err(format!(
                "the parameters of the function can't be found out\n  expected: a Python function\n  \
                 found:    {}",
                describe(function)
            )));
        };
        let parameters = signature.getattr("parameters")?.call_method0("values")?;
        let empty = signature.getattr("empty")?;
        let mut made = Self { parameters: Vec::new(), defaults: Vec::new() };
        for parameter in parameters.try_iter()? {
            let parameter = parameter?;
            let kind = match parameter.getattr("kind")?.extract::<u8>()? {
                0 => Kind::PositionalOnly,
                1 => Kind::Ordinary,
                2 => Kind::Varargs,
                3 => Kind::KeywordOnly,
                _ => Kind::Keywords,
            };
            let default = parameter.getattr("default")?;
            let default = (!default.is(&empty)).then_some(default);
            made.push(parameter.getattr("name")?.cast::<PyString>()?.to_str()?, kind, default);
        }
        Ok(made)
    }

    fn push(&mut self, name: &str, kind: Kind, default: Option<Bound<'_, PyAny>>) {
        self.parameters.push(Parameter { name: name.into(), kind, default: default.is_some() });
        self.defaults.push(default.map(Bound::unbind));
    }

    /// The same parameters, where a default may be replaced by anything.
    #[must_use]
    pub fn with_any_default(mut self) -> Self {
        self.defaults.iter_mut().for_each(|default| *default = None);
        self
    }

    /// The names of the parameters.
    pub fn names(&self) -> Vec<Name> {
        self.parameters.iter().map(|parameter| parameter.name.clone()).collect()
    }

    /// Whether values of these types can be passed, where a default is replaced by something of
    /// its own type.
    pub fn takes(
        &self,
        py: Python<'_>,
        positional: &[Type],
        keywords: &[(&str, Type)],
    ) -> PyResult<bool> {
        let names: Vec<&str> = keywords.iter().map(|(name, _)| *name).collect();
        let Some(bound) = bind(&self.parameters, positional.len(), &names) else {
            return Ok(false);
        };
        for (default, from) in self.defaults.iter().zip(bound) {
            let (Some(default), Some(from)) = (default, from) else { continue };
            let given = match from {
                From::Position(at) => &positional[at],
                From::Keyword(at) => &keywords[at].1,
            };
            if let Some(ty) = infer_type(default.bind(py))?
                && !given.is_assignable_from(&ty).map_err(|error| raise(&error))?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether a function says that it stands for another one.
fn wraps(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(function.hasattr("__wrapped__")? || function.hasattr("__signature__")?)
}

/// The name of a function, if it has one.
pub fn name(function: &Bound<'_, PyAny>) -> Option<String> {
    let name = function.getattr_opt("__name__").ok()??;
    name.extract().ok()
}

/// Names a function and the place where it is, for errors.
pub fn declared(function: &Bound<'_, PyAny>) -> Name {
    let name = name(function).or_else(|| {
        let class: Bound<'_, PyType> = function.get_type();
        Some(class.name().ok()?.to_string())
    });
    let name = name.unwrap_or_else(|| "function".to_owned());
    match place(function) {
        Some((file, line)) => format!("`{name}`, {file}:{line}").into(),
        None => format!("`{name}`").into(),
    }
}

/// The file and line of a function: of what it wraps, of a method's function, of `__call__`.
fn place(function: &Bound<'_, PyAny>) -> Option<(String, u64)> {
    let mut next = function.clone();
    // As deep as wrappers are in practice.
    for _ in 0..64 {
        let inner = next.getattr_opt("__wrapped__").ok()?;
        let Some(inner) = inner else { break };
        next = inner;
    }
    for _ in 0..64 {
        if let Some(code) = next.getattr_opt("__code__").ok()? {
            let file = code.getattr("co_filename").ok()?.extract().ok()?;
            return Some((file, code.getattr("co_firstlineno").ok()?.extract().ok()?));
        }
        next = if let Some(inner) = next.getattr_opt("func").ok()? {
            inner
        } else {
            next.get_type().getattr_opt("__call__").ok()??
        };
    }
    None
}

/// The error of a function's parameters.
pub fn parameter_error(function: &Bound<'_, PyAny>, error: Error) -> PyErr {
    raise(&error.declared(declared(function)))
}

/// A function that was expected where there is something else.
pub fn not_a_function(object: &Bound<'_, PyAny>) -> PyErr {
    let error = Error::new(Class::Type, "this can't be made a computation");
    raise(&error.expected("a function").found(describe(object)))
}
