//! `federated_computation`, and other decorators of its form.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use stator_federated::tracing::parameters;
use stator_federated::types::Type;
use stator_federated::{Class, Error};

use super::polymorphic::{Factory, PolymorphicComputation};
use super::signature::{Signature, name, not_a_function, parameter_error};
use super::trace::computation;
use crate::federated::errors::{IntoPython, raise};
use crate::federated::types;

/// A decorator that makes computations of functions: `@wrapper`, `@wrapper()`,
/// `@wrapper(types...)`, `wrapper(fn, types...)`.
///
/// A function with parameters but without given types becomes a polymorphic computation, which is
/// made anew for each type of arguments.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
pub struct ComputationWrapper {
    wrapper: Wrapper,
    to_type: Option<Py<PyAny>>,
    infer_type: Option<Py<PyAny>>,
    doc: Option<&'static str>,
}

/// What makes a computation of a function.
pub enum Wrapper {
    /// Tracing.
    Federated,
    /// `wrapper_fn(fn, parameter_type, unpack=..., name=...)`
    Python(Py<PyAny>),
    /// A function of ours, and what the user has said beside the parameter's types.
    Native(Make, Said),
}

/// What users may say of a function that becomes a computation.
#[derive(Clone, Default)]
pub struct Said {
    /// The result's type.
    pub result: Option<Type>,
    /// Which arrays the function is written for.
    pub arrays: Option<Arrays>,
}

/// What code over arrays is written for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Arrays {
    NumPy,
    Torch,
}

/// Makes a computation of a function, for a parameter, unpacked or not, by what is said of it.
pub type Make = for<'py> fn(
    &Bound<'py, PyAny>,
    Option<&Type>,
    Option<bool>,
    &Said,
) -> PyResult<Bound<'py, PyAny>>;

impl Wrapper {
    /// A computation of a function.
    pub fn make<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        parameter: Option<&Type>,
        unpack: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = function.py();
        let name = name(function);
        match self {
            Self::Federated => {
                Ok(computation(function, parameter, unpack, name.as_deref())?.into_any())
            }
            Self::Native(make, said) => make(function, parameter, unpack, said),
            Self::Python(wrapper) => {
                let parameter = parameter.map(|ty| types::wrap(py, ty)).transpose()?;
                let kwargs = PyDict::new(py);
                kwargs.set_item("unpack", unpack)?;
                kwargs.set_item("name", name)?;
                wrapper.bind(py).call((function, parameter), Some(&kwargs))
            }
        }
    }

    /// The same, with references of its own.
    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Federated => Self::Federated,
            Self::Python(wrapper) => Self::Python(wrapper.clone_ref(py)),
            Self::Native(make, said) => Self::Native(*make, said.clone()),
        }
    }
}

const DOC: &str = "Makes a federated computation of a function.

The function is called once, with stand-ins for its arguments, and what it does with them becomes
the computation. Its parameters' types are given behind it or as the decorator's arguments:

    @federated_computation(FederatedType(np.int32, CLIENTS))
    def total(values):
        return federated_sum(values)

Without types the computation is polymorphic: it is made anew for each type of arguments.";

#[pymethods]
impl ComputationWrapper {
    #[new]
    #[pyo3(signature = (wrapper_fn, to_type_fn=None, infer_type_fn=None))]
    fn new(
        wrapper_fn: Py<PyAny>,
        to_type_fn: Option<Py<PyAny>>,
        infer_type_fn: Option<Py<PyAny>>,
    ) -> Self {
        let wrapper = Wrapper::Python(wrapper_fn);
        Self { wrapper, to_type: to_type_fn, infer_type: infer_type_fn, doc: None }
    }

    #[getter]
    fn _doc(&self) -> Option<&'static str> {
        self.doc
    }

    #[pyo3(signature = (*args))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if let Ok(first) = args.get_item(0)
            && is_function(&first)?
        {
            let types = slf.get().types(&args.get_slice(1, args.len()))?;
            return slf.get().wrap(&first, &types);
        }
        let types = slf.get().types(args)?;
        Ok(Bound::new(py, Decorator { wrapper: slf.clone().unbind(), types })?.into_any())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Wrapper::Python(wrapper) = &self.wrapper {
            visit.call(wrapper)?;
        }
        visit.call(&self.to_type)?;
        visit.call(&self.infer_type)
    }

    fn __repr__(&self) -> &'static str {
        match self.wrapper {
            Wrapper::Federated => "<federated_computation>",
            Wrapper::Python(_) | Wrapper::Native(..) => "<ComputationWrapper>",
        }
    }
}

/// Whether an object is what a computation is made from, and not a type: classes are NumPy's.
fn is_function(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(object.is_callable() && !object.is_instance_of::<PyType>())
}

impl ComputationWrapper {
    /// One that a function of ours does the work of.
    pub fn native(make: Make, said: Said) -> Self {
        Self { wrapper: Wrapper::Native(make, said), to_type: None, infer_type: None, doc: None }
    }

    /// The types that were given.
    fn types(&self, objects: &Bound<'_, PyTuple>) -> PyResult<Vec<Option<Type>>> {
        let py = objects.py();
        let one = |(at, object): (usize, Bound<'_, PyAny>)| {
            if object.is_none() {
                return Ok(None);
            }
            let made;
            let object = match &self.to_type {
                Some(to_type) => {
                    made = to_type.bind(py).call1((object,))?;
                    &made
                }
                None => &object,
            };
            types::to_type_or_err(object, &format!("types[{at}]")).map(Some)
        };
        objects.iter().enumerate().map(one).collect()
    }

    /// A computation of a function, polymorphic if it has parameters and no types are given.
    fn wrap<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        given: &[Option<Type>],
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = function.py();
        let signature = Signature::of(function)?;
        let wrong = |error| parameter_error(function, error);
        let has_defaults = signature.parameters.iter().any(|parameter| parameter.default);
        let names = match self.wrapper {
            Wrapper::Native(..) if has_defaults => {
                parameters::typed(&signature.parameters, given).map_err(wrong)?
            }
            _ => {
                parameters::check_ordinary(&signature.parameters).map_err(wrong)?;
                signature.names()
            }
        };
        let made = if given.is_empty() && !names.is_empty() {
            let factory = Factory::Wrapper {
                wrapper: self.wrapper.clone_ref(py),
                function: function.clone().unbind(),
            };
            let infer = self.infer_type.as_ref().map(|infer| infer.clone_ref(py));
            PolymorphicComputation::create(py, factory, infer)?.into_any()
        } else {
            let parameter = parameters::type_of(&names, given).map_err(wrong)?;
            // A function whose other parameters have defaults takes one argument in any case.
            let unpack = (has_defaults && parameter.is_some()).then_some(names.len() > 1);
            let made = self.wrapper.make(function, parameter.as_ref(), unpack)?;
            if let Wrapper::Python(_) = self.wrapper {
                check_parameter(&made, parameter.as_ref())?;
            }
            made
        };
        if let Wrapper::Python(_) = self.wrapper {
            // Where the result takes one.
            let doc = function.getattr_opt("__doc__")?;
            let _ = made.setattr("__doc__", doc);
        }
        Ok(made)
    }
}

/// Checks that a user's wrapper made a computation of the parameter that was asked for.
fn check_parameter(made: &Bound<'_, PyAny>, parameter: Option<&Type>) -> PyResult<()> {
    let ty = made.getattr("type_signature")?;
    let Some(of) = types::unwrap(&ty) else { return Ok(()) };
    let Some(found) = of.as_function().and_then(|of| of.parameter.clone()) else { return Ok(()) };
    let same = match parameter {
        Some(parameter) => found.is_equivalent_to(parameter).py()?,
        None => false,
    };
    if same {
        return Ok(());
    }
    let error = Error::new(Class::Type, "the wrapper made a computation of another parameter");
    Err(raise(&match parameter {
        Some(parameter) => error.expected(parameter).found(found),
        None => error.expected("no parameter").found(found),
    }))
}

/// What `@wrapper(types...)` puts over a function.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
struct Decorator {
    wrapper: Py<ComputationWrapper>,
    types: Vec<Option<Type>>,
}

#[pymethods]
impl Decorator {
    fn __call__<'py>(&self, r#fn: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if !is_function(r#fn)? {
            return Err(not_a_function(r#fn));
        }
        self.wrapper.get().wrap(r#fn, &self.types)
    }
}

/// Adds the class and `federated_computation`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let federated = ComputationWrapper {
        wrapper: Wrapper::Federated,
        to_type: None,
        infer_type: None,
        doc: Some(DOC),
    };
    module.add("federated_computation", Bound::new(module.py(), federated)?)?;
    module.add_class::<Decorator>()?;
    super::add_documented::<ComputationWrapper>(module)
}
