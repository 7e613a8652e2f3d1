//! The one argument of a computation as the arguments of the function that it is made from.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use stator_federated::tracing::{fields, packing, parameters};
use stator_federated::types::Type;
use stator_federated::{Class, Error, Name};

use super::convert::optional_type;
use super::pycontainer::type_to_py_container;
use super::signature::{Signature, declared, parameter_error};
use super::value::Value;
use super::{Here, calls};
use crate::federated::errors::raise;
use crate::federated::structure::Struct;
use crate::federated::types::{self, describe};

/// Whether the argument is passed field by field.
///
/// `unpack` says it; otherwise the argument is passed whole where the function takes one, and
/// field by field where that is the only way.
pub fn needs_unpacking(
    function: &Bound<'_, PyAny>,
    parameter: &Type,
    unpack: Option<bool>,
) -> PyResult<bool> {
    is_spread(function, &Signature::of(function)?, parameter, unpack)
}

/// The same for a function whose parameters are known.
pub fn is_spread(
    function: &Bound<'_, PyAny>,
    signature: &Signature,
    parameter: &Type,
    unpack: Option<bool>,
) -> PyResult<bool> {
    let py = function.py();
    let whole = signature.takes(py, std::slice::from_ref(parameter), &[])?;
    let spread = match parameter.as_struct().filter(|of| packing::is_argument_struct(of)) {
        Some(of) => {
            let named = |field: &stator_federated::types::Field| field.name.is_some();
            let count = of.fields().iter().take_while(|field| !named(field)).count();
            let positional: Vec<_> =
                of.fields()[..count].iter().map(|field| field.ty.clone()).collect();
            let keywords: Vec<_> = of.fields()[count..]
                .iter()
                .map(|field| (field.name.as_deref().unwrap_or(""), field.ty.clone()))
                .collect();
            signature.takes(py, &positional, &keywords)?
        }
        None => false,
    };
    let wrong = |what: &str| {
        let error = Error::new(Class::Type, format!("the function can't take {what}"));
        parameter_error(function, error.expected(shown(signature)).found(parameter))
    };
    match unpack {
        Some(false) if !whole => Err(wrong("its argument as a whole")),
        Some(true) if !spread => Err(wrong("the fields of its argument as arguments")),
        None if !whole && !spread => {
            Err(wrong("its argument, neither as a whole nor field by field"))
        }
        Some(unpack) => Ok(unpack),
        None => Ok(!whole),
    }
}

/// The parameters, as they stand in a `def`.
fn shown(signature: &Signature) -> String {
    let parameter = |parameter: &parameters::Parameter| {
        let stars = match parameter.kind {
            parameters::Kind::Varargs => "*",
            parameters::Kind::Keywords => "**",
            _ => "",
        };
        format!("{stars}{}{}", parameter.name, if parameter.default { "=..." } else { "" })
    };
    let names: Vec<_> = signature.parameters.iter().map(parameter).collect();
    format!("({})", names.join(", "))
}

/// Checks that a function takes no argument.
pub fn check_takes_nothing(function: &Bound<'_, PyAny>) -> PyResult<()> {
    let signature = Signature::of(function)?;
    if signature.takes(function.py(), &[], &[])? {
        return Ok(());
    }
    let error = Error::new(Class::Type, "the function of a computation without parameter has some");
    Err(parameter_error(function, error.expected("()").found(shown(&signature))))
}

/// The arguments of a function.
pub struct Arguments<'py> {
    args: Vec<Bound<'py, PyAny>>,
    kwargs: Option<Bound<'py, PyDict>>,
}

impl<'py> Arguments<'py> {
    /// Calls the function with them.
    pub fn call(self, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let Self { args, kwargs } = self;
        function.call(PyTuple::new(function.py(), args)?, kwargs.as_ref())
    }
}

/// The arguments of `function` that its computation's argument is.
pub fn unpack<'py>(
    function: &Bound<'py, PyAny>,
    parameter: &Type,
    argument: &Bound<'py, PyAny>,
    unpack: Option<bool>,
) -> PyResult<Arguments<'py>> {
    let py = function.py();
    if !needs_unpacking(function, parameter, unpack)? {
        let argument = match (argument.cast::<Struct>(), parameter.as_struct()) {
            (Ok(_), Some(of)) if of.container().is_some() => {
                type_to_py_container(argument, parameter)?
            }
            _ => argument.clone(),
        };
        return Ok(Arguments { args: vec![argument], kwargs: None });
    }
    let of = parameter.as_struct().expect("only structs are unpacked");
    let mut args = Vec::new();
    let kwargs = PyDict::new(py);
    for (at, field) in of.fields().iter().enumerate() {
        let value = match &field.name {
            Some(name) => field_named(argument, name)?,
            None => field_at(argument, at)?,
        };
        let contained = field.ty.as_struct().is_some_and(|of| of.container().is_some());
        let value = match value.cast::<Struct>() {
            Ok(_) if contained || field.name.is_none() => type_to_py_container(&value, &field.ty)?,
            _ => value,
        };
        match &field.name {
            Some(name) => kwargs.set_item(&**name, value)?,
            None => args.push(value),
        }
    }
    Ok(Arguments { args, kwargs: (!kwargs.is_empty()).then_some(kwargs) })
}

fn field_named<'py>(argument: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    match argument.cast::<Value>() {
        Ok(value) => field_of(value, |block| fields::by_name(block, name)),
        Err(_) => argument.get_item(name),
    }
}

fn field_at<'py>(argument: &Bound<'py, PyAny>, at: usize) -> PyResult<Bound<'py, PyAny>> {
    match argument.cast::<Value>() {
        Ok(value) => field_of(value, |block| fields::by_index(block, at as i64)),
        Err(_) => argument.get_item(at),
    }
}

fn field_of<'py>(
    value: &Bound<'py, Value>,
    select: impl FnOnce(
        &stator_federated::ast::BuildingBlock,
    ) -> stator_federated::Result<stator_federated::ast::BuildingBlock>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    let block = select(value.get().block()).here(py)?;
    Ok(Bound::new(py, Value::create(block, value.get().scope().cloned()))?.into_any())
}

/// The positional arguments and the keywords that the fields of a struct, its type or a value of
/// it are.
#[pyfunction]
fn unpack_args_from_struct<'py>(
    struct_with_args: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyDict>)> {
    let py = struct_with_args.py();
    let fields: Vec<(Option<Name>, Bound<'py, PyAny>)> =
        if let Ok(of) = struct_with_args.cast::<Struct>() {
            let element =
                |(name, value): &(Option<Name>, Py<PyAny>)| (name.clone(), value.bind(py).clone());
            of.get().elements().iter().map(element).collect()
        } else {
            let (ty, is_value) = match struct_with_args.cast::<Value>() {
                Ok(value) => (value.get().ty().clone(), true),
                Err(_) => (types::to_type_or_err(struct_with_args, "struct_with_args")?, false),
            };
            let Some(of) = ty.as_struct() else { return Err(no_arguments(struct_with_args)) };
            let field = |(at, field): (usize, &stator_federated::types::Field)| {
                let value = match is_value {
                    true => field_at(struct_with_args, at)?,
                    false => types::wrap(py, &field.ty)?,
                };
                Ok((field.name.clone(), value))
            };
            of.fields().iter().enumerate().map(field).collect::<PyResult<_>>()?
        };
    if !packing::names_come_last(fields.iter().map(|(name, _)| name.as_ref())) {
        return Err(no_arguments(struct_with_args));
    }
    let (args, kwargs) = (PyList::empty(py), PyDict::new(py));
    for (name, value) in fields {
        match name {
            Some(name) => kwargs.set_item(&*name, value)?,
            None => args.append(value)?,
        }
    }
    Ok((args, kwargs))
}

fn no_arguments(object: &Bound<'_, PyAny>) -> PyErr {
    let error = Error::new(Class::Type, "this struct isn't one of arguments")
        .expected("a struct in which unnamed fields come before named ones")
        .found(describe(object));
    raise(&error)
}

type Keywords<'py> = Vec<(Bound<'py, pyo3::types::PyString>, Bound<'py, PyAny>)>;

fn sequence_and_mapping<'py>(
    args: &Bound<'py, PyAny>,
    kwargs: &Bound<'py, PyAny>,
) -> PyResult<(Vec<Bound<'py, PyAny>>, Keywords<'py>)> {
    let args = args.try_iter()?.collect::<PyResult<_>>()?;
    let kwargs = PyDict::from_sequence(&kwargs.call_method0("items")?)?;
    Ok((args, calls::keywords(Some(&kwargs))?))
}

/// A Struct of positional arguments and keywords: in the order of the fields of `type_spec`, or
/// as they are given.
#[pyfunction]
#[pyo3(signature = (args, kwargs, type_spec=None))]
fn pack_args_into_struct<'py>(
    args: &Bound<'py, PyAny>,
    kwargs: &Bound<'py, PyAny>,
    type_spec: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, Struct>> {
    let py = args.py();
    let (args, kwargs) = sequence_and_mapping(args, kwargs)?;
    let ty = optional_type(type_spec, "type_spec")?;
    let Some(ty) = ty else {
        return in_order(py, &args, &kwargs);
    };
    let Some(of) = ty.as_struct() else {
        return Err(PyTypeError::new_err(format!(
            "several arguments can only be packed into a struct\n  expected: a struct type\n  \
             found:    {ty}"
        )));
    };
    let names: Vec<String> = kwargs.iter().map(|(name, _)| name.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let fields = packing::pack_fields(of, &ty, args.len(), &names).here(py)?;
    calls::packed(py, of.fields().iter().map(|field| &field.name), &fields, &args, &kwargs)
}

/// A Struct of arguments, as they are given.
pub fn in_order<'py>(
    py: Python<'py>,
    args: &[Bound<'py, PyAny>],
    kwargs: &Keywords<'py>,
) -> PyResult<Bound<'py, Struct>> {
    let unnamed = args.iter().map(|value| (None, value.clone().unbind()));
    let named = kwargs
        .iter()
        .map(|(name, value)| (Some(Name::from(name.to_string())), value.clone().unbind()));
    Struct::create(py, unnamed.chain(named).collect())
}

/// The one argument that arguments are for a parameter of type `parameter_type`.
#[pyfunction]
fn pack_args<'py>(
    parameter_type: Option<&Bound<'py, PyAny>>,
    args: &Bound<'py, PyAny>,
    kwargs: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = args.py();
    let (args, kwargs) = sequence_and_mapping(args, kwargs)?;
    let ty = optional_type(parameter_type, "parameter_type")?;
    calls::pack(py, ty.as_ref(), &args, &kwargs).here(py)?
}

/// The positional arguments and the keywords of `fn` that `arg`, of type `parameter_type`, is.
#[pyfunction]
#[pyo3(signature = (r#fn, parameter_type, arg, unpack=None))]
fn unpack_arg<'py>(
    r#fn: &Bound<'py, PyAny>,
    parameter_type: Option<&Bound<'py, PyAny>>,
    arg: &Bound<'py, PyAny>,
    unpack: Option<bool>,
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyDict>)> {
    let py = arg.py();
    let Some(ty) = optional_type(parameter_type, "parameter_type")? else {
        return Ok((PyList::empty(py), PyDict::new(py)));
    };
    let Arguments { args, kwargs } = self::unpack(r#fn, &ty, arg, unpack)?;
    Ok((PyList::new(py, args)?, kwargs.unwrap_or_else(|| PyDict::new(py))))
}

/// A function of no or one argument, which calls another one with the fields of the argument, or
/// with the whole.
#[pyclass(module = "stator.federated.framework", frozen, weakref)]
pub struct ZeroOrOneArgument {
    function: Py<PyAny>,
    parameter: Option<Type>,
    unpack: Option<bool>,
}

#[pymethods]
impl ZeroOrOneArgument {
    #[pyo3(signature = (*args))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let function = self.function.bind(py);
        match (&self.parameter, args.len()) {
            (None, 0) => function.call0(),
            (Some(parameter), 1) => {
                unpack(function, parameter, &args.get_item(0)?, self.unpack)?.call(function)
            }
            (parameter, given) => Err(PyTypeError::new_err(format!(
                "{} takes {} but {given} were given",
                declared(function),
                if parameter.is_some() { "1 argument" } else { "no arguments" },
            ))),
        }
    }

    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> Py<PyAny> {
        self.function.clone_ref(py)
    }
}

/// A function of no or one argument that does what `fn` does: of none if `parameter_type` is
/// None; otherwise `fn` gets the argument's fields, or the whole, as `unpack` says, or as `fn`
/// takes it.
#[pyfunction]
#[pyo3(signature = (r#fn, parameter_type=None, unpack=None))]
fn wrap_as_zero_or_one_arg_callable(
    r#fn: &Bound<'_, PyAny>,
    parameter_type: Option<&Bound<'_, PyAny>>,
    unpack: Option<bool>,
) -> PyResult<ZeroOrOneArgument> {
    let parameter = optional_type(parameter_type, "parameter_type")?;
    if parameter.is_none() {
        check_takes_nothing(r#fn)?;
    }
    Ok(ZeroOrOneArgument { function: r#fn.clone().unbind(), parameter, unpack })
}

/// Adds what users see of packing and unpacking.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(unpack_args_from_struct, module)?)?;
    module.add_function(wrap_pyfunction!(pack_args_into_struct, module)?)?;
    module.add_function(wrap_pyfunction!(pack_args, module)?)?;
    module.add_function(wrap_pyfunction!(unpack_arg, module)?)?;
    module.add_function(wrap_pyfunction!(wrap_as_zero_or_one_arg_callable, module)?)
}
