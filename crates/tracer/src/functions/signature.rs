//! `inspect.signature`, and what it consists of for a Python function or a bound method of one.
//!
//! What these functions read of the callable is known of the standard library's own code; where one of them was
//! replaced, `inspect.signature` is a function like any other.

use pyo3::prelude::*;
use stator_cpython::heap::dict::{self, Lookup};
use stator_cpython::heap::function::{Field, value};
use stator_cpython::heap::types;
use stator_cpython::modules;
use stator_cpython::object::Borrowed;

/// The functions of the module that are called, apart from methods.
const FUNCTIONS: [&str; 7] = [
    "signature",
    "_signature_from_callable",
    "unwrap",
    "isfunction",
    "_signature_from_function",
    "get_annotations",
    "_signature_bound_method",
];

/// A function that is traced for `inspect.signature`: it reads all that the answer is made of, the
/// functions that make it among them, and then asks itself.
const READER: &std::ffi::CStr = c"
from inspect import signature as known

def signature(of):
    known.__code__
    names = known.__globals__
    names['_signature_from_callable'].__code__
    names['unwrap'].__code__
    names['isfunction'].__code__
    names['_signature_from_function'].__code__
    names['get_annotations'].__code__
    names['_signature_bound_method'].__code__
    result = names['Signature']
    result.from_callable.__code__
    result.__init__.__code__
    result.replace.__code__
    result._parameter_cls.__init__.__code__
    names['_empty']
    names['_POSITIONAL_ONLY']
    names['_POSITIONAL_OR_KEYWORD']
    names['_VAR_POSITIONAL']
    names['_KEYWORD_ONLY']
    names['_VAR_KEYWORD']
    function = getattr(of, '__func__', of)
    hasattr(function, '__wrapped__')
    hasattr(function, '__signature__')
    hasattr(function, '_partialmethod')
    hasattr(function, '__text_signature__')
    function.__code__
    defaults = function.__defaults__
    if defaults:
        [*defaults]
    defaults = function.__kwdefaults__
    if defaults:
        {**defaults}
    annotations = function.__annotations__
    if annotations:
        {**annotations}
    return known(of)
";

/// `inspect.signature` as the standard library has it.
#[derive(Debug)]
pub struct Signatures {
    namespace: Py<PyAny>,
    /// Each function by its name, with its code.
    functions: Vec<(Py<PyAny>, Py<PyAny>, Py<PyAny>)>,
    class: Py<PyAny>,
    parameter: Py<PyAny>,
    /// What is traced for it, and its code.
    reader: (Py<PyAny>, Py<PyAny>),
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
        let reader = PyModule::from_code(py, READER, c"<stator>", c"_stator_signature")?
            .getattr("signature")?;
        let reader_code = reader.getattr("__code__")?;
        Ok(is_own.then_some(Self {
            namespace: module.dict().into_any().unbind(),
            functions,
            class: class.unbind(),
            parameter: module.getattr("Parameter")?.unbind(),
            reader: (reader.unbind(), reader_code.unbind()),
            method: (name.unbind(), method.unbind(), code),
        }))
    }

    /// Whether this is `inspect.signature`.
    #[inline]
    #[must_use]
    pub fn is(&self, function: Borrowed<'_, '_>) -> bool {
        self.functions[0].1.is(&*function)
    }

    /// What is traced for a signature that the trace hasn't read yet.
    #[must_use]
    pub fn reader<'a, 'py>(&'a self, py: Python<'py>) -> Borrowed<'a, 'py> {
        self.reader.0.bind_borrowed(py)
    }

    /// Whether this is the code of [`Signatures::reader`].
    #[must_use]
    pub fn is_reader(&self, code: Borrowed<'_, '_>) -> bool {
        self.reader.1.is(&*code)
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
