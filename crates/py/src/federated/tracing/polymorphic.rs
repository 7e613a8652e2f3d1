//! Computations of functions whose parameters have no types yet.

use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::FxHashMap;
use stator_federated::types::{Field, Type};
use stator_federated::{Class, Error, Name};

use super::wrapper::Wrapper;
use super::{Reduced, calls, infer, raise_here, signature, unpack};
use crate::federated::errors::raise;
use crate::federated::types;

/// A computation that is made anew for each type of arguments.
#[pyclass(module = "stator.federated.framework", weakref)]
pub struct PolymorphicComputation {
    /// Gone when the collector took the object apart.
    factory: Option<Factory>,
    infer_type: Option<Py<PyAny>>,
    made: FxHashMap<(Type, Option<bool>), Py<PyAny>>,
}

/// What makes the computation for a type.
pub enum Factory {
    /// A decorator's function.
    Wrapper {
        /// The decorator.
        wrapper: Wrapper,
        /// The decorated function.
        function: Py<PyAny>,
    },
    /// `factory(type, unpack)`
    Python(Py<PyAny>),
}

impl Factory {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Wrapper { wrapper, function } => {
                Self::Wrapper { wrapper: wrapper.clone_ref(py), function: function.clone_ref(py) }
            }
            Self::Python(factory) => Self::Python(factory.clone_ref(py)),
        }
    }

    fn function<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        match self {
            Self::Wrapper { function, .. } => function.bind(py),
            Self::Python(factory) => factory.bind(py),
        }
    }
}

impl PolymorphicComputation {
    /// A computation that `factory` makes.
    pub fn create(
        py: Python<'_>,
        factory: Factory,
        infer_type: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, Self { factory: Some(factory), infer_type, made: FxHashMap::default() })
    }

    /// The computation for arguments of type `ty`.
    pub fn instance<'py>(
        slf: &Bound<'py, Self>,
        ty: &Type,
        unpack: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let key = (ty.clone(), unpack);
        // Not borrowed while user code runs: it may call the same computation.
        let factory = {
            let of = slf.borrow();
            if let Some(made) = of.made.get(&key) {
                return Ok(made.bind(py).clone());
            }
            let factory = of.factory.as_ref().map(|factory| factory.clone_ref(py));
            factory.ok_or_else(|| PyValueError::new_err("the computation was taken apart"))?
        };
        let made = match &factory {
            Factory::Wrapper { wrapper, function } => {
                wrapper.make(function.bind(py), Some(ty), unpack)?
            }
            Factory::Python(factory) => factory.bind(py).call1((types::wrap(py, ty)?, unpack))?,
        };
        let of = types::unwrap(&made.getattr("type_signature")?);
        let parameter = of.as_ref().and_then(|of| of.as_function()?.parameter.clone());
        if parameter.as_ref() != Some(ty) {
            let error = Error::new(Class::Type, "a computation of another parameter was made")
                .expected(ty)
                .found(parameter.map_or_else(|| "no parameter".to_owned(), |ty| ty.to_string()))
                .declared(signature::declared(factory.function(py)));
            return Err(raise(&error));
        }
        let old = slf.borrow_mut().made.insert(key, made.clone().unbind());
        drop(old);
        Ok(made)
    }
}

#[pymethods]
impl PolymorphicComputation {
    #[new]
    fn new(concrete_function_factory: Py<PyAny>, infer_type_fn: Option<Py<PyAny>>) -> Self {
        let factory = Some(Factory::Python(concrete_function_factory));
        Self { factory, infer_type: infer_type_fn, made: FxHashMap::default() }
    }

    /// The computation for an argument of type `arg_type`; `unpack` says whether its fields are
    /// the function's arguments.
    #[pyo3(signature = (arg_type, unpack=None))]
    fn fn_for_argument_type<'py>(
        slf: &Bound<'py, Self>,
        arg_type: &Bound<'py, PyAny>,
        unpack: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ty = types::to_type_or_err(arg_type, "arg_type")?;
        Self::instance(slf, &ty, unpack)
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let infer = slf.borrow().infer_type.as_ref().map(|infer| infer.clone_ref(py));
        let own = |value: &Bound<'py, PyAny>, what: &str| -> PyResult<Type> {
            infer::infer_type(value)?.ok_or_else(|| {
                let error = Error::new(Class::Type, format!("the argument {what} is None"));
                raise_here(py, error.expected("a value with a type").found("None"))
            })
        };
        let positional: Vec<_> = args.iter().collect();
        let keywords = calls::keywords(kwargs)?;
        let mut fields = Vec::with_capacity(positional.len() + keywords.len());
        match infer {
            None => {
                for (at, value) in positional.iter().enumerate() {
                    fields.push(Field { name: None, ty: own(value, &at.to_string())? });
                }
                for (name, value) in &keywords {
                    let ty = own(value, &format!("`{name}`"))?;
                    fields.push(Field { name: Some(Name::from(name.to_string())), ty });
                }
            }
            Some(infer) => {
                let kwargs = kwargs.cloned().unwrap_or_else(|| PyDict::new(py));
                for object in [args.as_any(), kwargs.as_any()] {
                    let ty = infer.bind(py).call1((object,))?;
                    let ty = types::expect_type(&ty, "the result of `infer_type_fn`")?;
                    let Some(of) = ty.as_struct() else {
                        return Err(PyValueError::new_err(format!(
                            "`infer_type_fn` must give a struct type for arguments\n  found:    {ty}"
                        )));
                    };
                    fields.extend(of.fields().iter().cloned());
                }
            }
        }
        let ty = Type::structure(fields, None).map_err(|error| raise_here(py, error))?;
        let concrete = Self::instance(slf, &ty, Some(true))?;
        concrete.call1((unpack::in_order(py, &positional, &keywords)?,))
    }

    #[getter]
    fn _doc(slf: &Bound<'_, Self>) -> PyResult<Option<Py<PyAny>>> {
        let py = slf.py();
        let function = match &slf.borrow().factory {
            Some(Factory::Wrapper { function, .. }) => function.clone_ref(py),
            _ => return Ok(None),
        };
        Ok(function.bind(py).getattr_opt("__doc__")?.map(Bound::unbind))
    }

    /// By its name, as functions are pickled: what it is made from is Python code.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let py = slf.py();
        let factory = slf.borrow().factory.as_ref().map(|factory| factory.clone_ref(py));
        let Some(factory) = factory else {
            return Err(PyValueError::new_err("the computation was taken apart"));
        };
        let function = factory.function(py);
        let mut place = "no name".to_owned();
        let names = (function.getattr_opt("__module__")?, function.getattr_opt("__qualname__")?);
        if let (Some(module), Some(name)) = names {
            if find_by_name(&module, &name).is_ok_and(|found| found.is(slf)) {
                let find = py.import("stator._stator")?.getattr("federated")?;
                return Ok((find.getattr("_find_by_name")?, (module, name)));
            }
            place = format!("{module}.{name}");
        }
        let what = "a polymorphic computation is pickled by its name, and isn't found there";
        let error = Error::new(Class::Type, what)
            .expected("a name of a module that stands for the computation")
            .found(place)
            .declared(signature::declared(function))
            .hint(
                "`fn_for_argument_type` gives the computation for one type, which can be pickled",
            );
        Err(raise(&error))
    }

    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let py = slf.py();
        let factory = slf.borrow().factory.as_ref().map(|factory| factory.clone_ref(py));
        match factory {
            Some(factory) => {
                format!("<PolymorphicComputation {}>", signature::declared(factory.function(py)))
            }
            None => "<PolymorphicComputation>".to_owned(),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.factory {
            Some(Factory::Wrapper { wrapper, function }) => {
                if let Wrapper::Python(wrapper) = wrapper {
                    visit.call(wrapper)?;
                }
                visit.call(function)?;
            }
            Some(Factory::Python(factory)) => visit.call(factory)?,
            None => {}
        }
        visit.call(&self.infer_type)?;
        self.made.values().try_for_each(|made| visit.call(made))
    }

    fn __clear__(&mut self) {
        self.factory = None;
        self.infer_type = None;
        self.made.clear();
    }
}

/// The object that a name in a module stands for.
fn find_by_name<'py>(
    module: &Bound<'py, PyAny>,
    name: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = module.py();
    let (module, name): (String, String) = (module.extract()?, name.extract()?);
    let module = py.import(&*module)?.into_any();
    name.split('.').try_fold(module, |owner, part| owner.getattr(part))
}

/// The object that a name in a module stands for: what `pickle` calls.
#[pyfunction]
fn _find_by_name<'py>(
    module: &Bound<'py, PyAny>,
    name: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    find_by_name(module, name)
}

/// Adds the class.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_find_by_name, module)?)?;
    super::add_documented::<PolymorphicComputation>(module)
}
