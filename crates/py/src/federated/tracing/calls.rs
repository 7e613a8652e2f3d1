//! Calls of computations and of function values.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use stator_federated::ast::BuildingBlock;
use stator_federated::tracing::packing::{self, From, Packing};
use stator_federated::types::Type;
use stator_federated::{Class, Error, Name};

use super::computation::ConcreteComputation;
use super::convert::{Converted, Wanted, computation_value, to_value};
use super::scope::bind;
use super::value::Value;
use super::{Here, contexts, raise_here};
use crate::federated::structure::Struct;

/// The one argument that the arguments of a call are for a parameter, if there is one. Errors say
/// where the function was `declared`.
pub fn pack<'py>(
    py: Python<'py>,
    parameter: Option<&Type>,
    args: &[Bound<'py, PyAny>],
    kwargs: &[(Bound<'py, PyString>, Bound<'py, PyAny>)],
) -> stator_federated::Result<PyResult<Option<Bound<'py, PyAny>>>> {
    let names: Vec<String> = kwargs.iter().map(|(name, _)| name.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Ok(Ok(match packing::pack(parameter, args.len(), &names)? {
        Packing::Nothing => None,
        Packing::Whole => Some(args[0].clone()),
        Packing::Fields(fields) => {
            let structure = parameter.and_then(Type::as_struct).expect("it was packed for one");
            match packed(
                py,
                structure.fields().iter().map(|field| &field.name),
                &fields,
                args,
                kwargs,
            ) {
                Ok(made) => Some(made.into_any()),
                Err(error) => return Ok(Err(error)),
            }
        }
    }))
}

/// A Struct of arguments.
pub fn packed<'a, 'py>(
    py: Python<'py>,
    names: impl Iterator<Item = &'a Option<Name>>,
    fields: &[From],
    args: &[Bound<'py, PyAny>],
    kwargs: &[(Bound<'py, PyString>, Bound<'py, PyAny>)],
) -> PyResult<Bound<'py, Struct>> {
    let value = |from: &From| match from {
        From::Position(at) => args[*at].clone().unbind(),
        From::Keyword(at) => kwargs[*at].1.clone().unbind(),
    };
    let elements = names.zip(fields).map(|(name, from)| (name.clone(), value(from)));
    Struct::create(py, elements.collect())
}

/// The keyword arguments of a call, in order.
pub fn keywords<'py>(
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Vec<(Bound<'py, PyString>, Bound<'py, PyAny>)>> {
    let Some(kwargs) = kwargs else { return Ok(Vec::new()) };
    kwargs.iter().map(|(name, value)| Ok((name.cast_into::<PyString>()?, value))).collect()
}

/// `value(*args, **kwargs)`: a call, bound to a name.
pub fn call_value<'py>(
    value: &Bound<'py, Value>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, Value>> {
    let py = value.py();
    let ty = value.get().ty();
    let Some(of) = ty.as_function() else {
        let error = Error::new(Class::Syntax, "only a value of a function type can be called");
        return Err(raise_here(py, error.expected("a function").found(ty)));
    };
    let function = to_value(value.as_any(), &Wanted::default())?;
    let args: Vec<_> = args.iter().collect();
    let kwargs = keywords(kwargs)?;
    let argument = match args.is_empty() && kwargs.is_empty() {
        true => None,
        false => pack(py, of.parameter.as_ref(), &args, &kwargs).here(py)??,
    };
    if argument.is_none()
        && let Some(parameter) = &of.parameter
    {
        let error = Error::new(Class::Type, "the function needs an argument");
        return Err(raise_here(py, error.expected(parameter).found("no argument")));
    }
    invoke(py, function, argument.as_ref(), None)
}

/// Traces a call of a computation.
pub fn invoke_computation<'py>(
    computation: &Bound<'py, ConcreteComputation>,
    argument: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, Value>> {
    let py = computation.py();
    let tracing = contexts::tracing(py);
    let function = computation_value(computation, tracing.as_ref().map(|context| context.get()))?;
    let what = computation.get().state()?.declared.clone();
    invoke(py, function, argument, what.as_deref())
}

/// Traces a call of a function: the call, bound to a name. `what` is the function, for errors.
pub fn invoke<'py>(
    py: Python<'py>,
    function: Converted,
    argument: Option<&Bound<'py, PyAny>>,
    what: Option<&str>,
) -> PyResult<Bound<'py, Value>> {
    let ty = function.block.ty().clone();
    let Some(of) = ty.as_function() else {
        let error = Error::new(Class::Value, "only a function can be called");
        return Err(raise_here(py, error.expected("a function").found(&ty)));
    };
    let argument = match (argument, &of.parameter) {
        (Some(argument), Some(parameter)) => {
            // The function's name; where it is declared is a line of its own.
            let name = what.map(|what| what.split(',').next().unwrap_or(what));
            let named = name.map(|name| format!("the argument of {name}"));
            let wanted = Wanted {
                ty: Some(parameter),
                zip: true,
                what: named.as_deref().or(Some("the argument")),
                callee: what,
                ..Wanted::default()
            };
            Some(to_value(argument, &wanted)?.block)
        }
        (None, None) => None,
        (Some(_), None) => {
            let error = Error::new(Class::Value, "the function takes no argument");
            return Err(raise_here(py, error.expected("no argument").found(&ty)));
        }
        (None, Some(parameter)) => {
            let error = Error::new(Class::Value, "the function needs an argument");
            return Err(raise_here(py, error.expected(parameter).found("no argument")));
        }
    };
    let call = BuildingBlock::call(function.block, argument).here(py)?;
    Bound::new(py, bind(py, call, "a call")?)
}
