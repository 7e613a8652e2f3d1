//! `inspect.signature`, and what of it is given the callable.
//!
//! Of a bound method these functions look at the function alone. That is known of the standard library's
//! own code; where one of them was replaced, `inspect.signature` is a function like any other.

use pyo3::prelude::*;
use stator_cpython::heap::dict::{self, Lookup};
use stator_cpython::heap::function::{Field, value};
use stator_cpython::heap::types;
use stator_cpython::modules;
use stator_cpython::object::Borrowed;

/// The functions that are given the callable, apart from a class method.
const FUNCTIONS: [&str; 2] = ["signature", "_signature_from_callable"];

/// `inspect.signature` as the standard library has it.
#[derive(Debug)]
pub struct Signatures {
    namespace: Py<PyAny>,
    /// Each function by its name, with its code.
    functions: Vec<(Py<PyAny>, Py<PyAny>, Py<PyAny>)>,
    class: Py<PyAny>,
    parameter: Py<PyAny>,
    /// The name of the class method, what the class has there, and the code of its function.
    method: (Py<PyAny>, Py<PyAny>, Py<PyAny>),
}

impl Signatures {
    /// The functions, if they come from the file of the module.
    ///
    /// # Errors
    /// If the module lacks one of them.
    pub fn find(py: Python<'_>) -> PyResult<Option<Self>> {
        let module = modules::import(py, "inspect")?;
        let file = module.getattr("__file__")?;
        let mut is_own = true;
        let mut code_of = |function: &Bound<'_, PyAny>| -> PyResult<Py<PyAny>> {
            let code = function.getattr("__code__")?;
            is_own &= code.getattr("co_filename")?.eq(&file)?;
            Ok(code.unbind())
        };
        let mut functions = Vec::new();
        for name in FUNCTIONS {
            let function = module.getattr(name)?;
            let code = code_of(&function)?;
            let name = pyo3::types::PyString::intern(py, name).into_any().unbind();
            functions.push((name, function.unbind(), code));
        }
        let class = module.getattr("Signature")?;
        let name = pyo3::types::PyString::intern(py, "from_callable").into_any();
        let method = class.getattr("__dict__")?.get_item(&name)?;
        let code = code_of(&method.getattr("__func__")?)?;
        Ok(is_own.then_some(Self {
            namespace: module.dict().into_any().unbind(),
            functions,
            class: class.unbind(),
            parameter: module.getattr("Parameter")?.unbind(),
            method: (name.unbind(), method.unbind(), code),
        }))
    }

    /// Whether this is `inspect.signature`.
    #[inline]
    #[must_use]
    pub fn is(&self, function: Borrowed<'_, '_>) -> bool {
        self.functions[0].1.is(&*function)
    }

    /// Whether nothing was replaced.
    #[must_use]
    pub fn are_own(&self, py: Python<'_>) -> bool {
        let has_code = |function: Borrowed<'_, '_>, code: &Py<PyAny>| {
            value(function, Field::Code).is_some_and(|found| found.is(code))
        };
        let namespace = self.namespace.bind_borrowed(py);
        let (name, method, code) = &self.method;
        let class = self.class.bind(py).cast::<pyo3::types::PyType>();
        self.functions.iter().all(|(name, function, code)| {
            let found = dict::get(namespace, name.bind_borrowed(py));
            matches!(found, Lookup::Found(found) if found.is(function))
                && has_code(function.bind_borrowed(py), code)
        }) && class.is_ok_and(|class| {
            types::lookup(class.as_borrowed(), name.bind_borrowed(py))
                .is_some_and(|found| found.is(method))
        }) && value(method.bind_borrowed(py), Field::ClassFunc)
            .is_some_and(|function| has_code(function.as_borrowed(), code))
    }

    /// Whether an object is a `Signature`, not an instance of a subclass.
    #[must_use]
    pub fn is_signature(&self, object: Borrowed<'_, '_>) -> bool {
        object.get_type().is(&self.class)
    }

    /// Whether an object is a `Parameter`, not an instance of a subclass.
    #[must_use]
    pub fn is_parameter(&self, object: Borrowed<'_, '_>) -> bool {
        object.get_type().is(&self.parameter)
    }
}
