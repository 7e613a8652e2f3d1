//! Python's objects as values of a computation.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyFloat, PyInt, PyString};
use stator_federated::ast::BuildingBlock;
use stator_federated::factory::zip_to_match;
use stator_federated::tracing::Open;
use stator_federated::types::Type;
use stator_federated::{Class, Error};

use super::computation::ConcreteComputation;
use super::elements::{Visit, elements, fold};
use super::polymorphic::PolymorphicComputation;
use super::scope::{FederatedComputationContext, over};
use super::value::Value;
use super::{Here, contexts, declared_here, infer, raise_here};
use crate::federated::blocks::{self, literals};
use crate::federated::errors::raise;
use crate::federated::types::{self, describe, dtypes, placements};

/// How an object is to be made a value.
#[derive(Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// The type that it must fit.
    pub ty: Option<&'a Type>,
    /// The type of the parameter that a polymorphic computation is made for.
    pub hint: Option<&'a Type>,
    /// Whether structs of federated values are zipped where that makes it fit.
    pub zip: bool,
    /// Whether it is what a function gave back: another error class for what is no value.
    pub result: bool,
    /// What it is, for errors: "the argument `arg`".
    pub what: Option<&'a str>,
    /// The function whose argument it is, and where it is declared.
    pub callee: Option<&'a str>,
}

impl Wanted<'_> {
    /// The exception for an error about the object.
    fn wrong(&self, py: Python<'_>, error: Error) -> PyErr {
        raise_here(
            py,
            match self.callee {
                Some(callee) => error.note("callee", callee),
                None => error,
            },
        )
    }
}

/// A value of a computation, before it is a Python object.
#[derive(Clone)]
pub struct Converted {
    /// What it stands for.
    pub block: BuildingBlock,
    /// The innermost function being traced that it belongs to.
    pub scope: Option<Open>,
}

impl Converted {
    fn constant(block: BuildingBlock) -> Self {
        Self { block, scope: None }
    }
}

/// The value that an object is.
pub fn to_value(object: &Bound<'_, PyAny>, wanted: &Wanted<'_>) -> PyResult<Converted> {
    let py = object.py();
    let tracing = contexts::tracing(py);
    let tracing = tracing.as_ref().map(|context| context.get());
    let made = match leaf(object, wanted, tracing, wanted.ty)? {
        Some(made) => made,
        None => nest(object, wanted, tracing)?,
    };
    let Some(ty) = wanted.ty else { return Ok(made) };
    if ty.is_assignable_from(made.block.ty()).here(py)? {
        return Ok(made);
    }
    if wanted.zip
        && let Some(block) = zip_to_match(&made.block, ty).here(py)?
    {
        return Ok(Converted { block, scope: made.scope });
    }
    let what = wanted.what.unwrap_or("the value");
    let error =
        Error::new(Class::NotAssignable, format!("{what} is of another type than asked for"));
    Err(wanted.wrong(py, error.expected(ty).found(made.block.ty())))
}

fn nest(
    object: &Bound<'_, PyAny>,
    wanted: &Wanted<'_>,
    tracing: Option<&FederatedComputationContext>,
) -> PyResult<Converted> {
    let py = object.py();
    fold(
        object,
        wanted.ty.cloned(),
        |object, ty, path| {
            if let Some(made) = leaf(object, wanted, tracing, ty.as_ref())? {
                return Ok(Visit::Leaf(made));
            }
            let is_sequence = ty.as_ref().is_some_and(|ty| ty.as_sequence().is_some());
            let Some(found) = elements(object)?.filter(|_| !is_sequence) else {
                return Err(no_value(object, wanted, &path().to_string()));
            };
            // Fields are typed by position; what doesn't fit is found when the whole is there.
            let of = ty.as_ref().and_then(Type::as_struct);
            if let Some(of) = of
                && found.elements.len() > of.len()
            {
                let what = wanted.what.unwrap_or("the value");
                let path = path();
                let error = Error::new(
                    Class::Index,
                    format!("{what}{path} has {} fields, more than its type", found.elements.len()),
                );
                return Err(wanted.wrong(py, error.expected(ty.as_ref().expect("it has fields"))));
            }
            let known = |at: usize| of.map(|of| of.fields()[at].ty.clone());
            let elements = found.elements.into_iter().enumerate();
            let elements = elements.map(|(at, (name, value))| (name, value, known(at))).collect();
            Ok(Visit::Open(elements, found.container))
        },
        |_, elements, container| {
            let scope = elements.iter().fold(None, |inner, (_, value): &(_, Converted)| {
                Open::inner(inner, value.scope.clone())
            });
            let elements = elements.into_iter().map(|(name, value)| (name, value.block)).collect();
            Ok(Converted { block: BuildingBlock::structure(elements, container).here(py)?, scope })
        },
    )
}

/// The value that an object is by itself; `None` for a container, and for what is no value.
fn leaf(
    object: &Bound<'_, PyAny>,
    wanted: &Wanted<'_>,
    tracing: Option<&FederatedComputationContext>,
    ty: Option<&Type>,
) -> PyResult<Option<Converted>> {
    let py = object.py();
    if let Ok(value) = object.cast::<Value>() {
        let value = value.get();
        used(value.scope(), tracing)?;
        let (block, scope) = (value.block().clone(), value.scope().cloned());
        return Ok(Some(Converted { block, scope }));
    }
    if let Some(block) = blocks::unwrap(object) {
        return Ok(Some(Converted::constant(block)));
    }
    if let Some(placement) = placements::unwrap(object) {
        return Ok(Some(Converted::constant(BuildingBlock::placement(placement))));
    }
    if let Ok(computation) = object.cast::<ConcreteComputation>() {
        return computation_value(computation, tracing).map(Some);
    }
    if let Ok(computation) = object.cast::<PolymorphicComputation>() {
        let Some(hint) = wanted.hint else {
            let class = if wanted.result { Class::NotImplemented } else { Class::Type };
            let error = Error::new(
                class,
                "a computation without declared types can't be made a value here",
            )
            .found(describe(object))
            .hint("declare its types: `federated_computation(fn, types...)`");
            return Err(raise_here(py, error));
        };
        let concrete = PolymorphicComputation::instance(computation, hint, None)?;
        return match concrete.cast::<ConcreteComputation>() {
            Ok(concrete) => computation_value(concrete, tracing).map(Some),
            Err(_) => Err(no_value(&concrete, wanted, "")),
        };
    }
    if is_array(object)? {
        let inferred;
        let ty = match ty {
            Some(ty) if ty.as_tensor().is_none() => {
                let what = wanted.what.unwrap_or("the value");
                let error = Error::new(Class::Value, format!("{what} is an array or number"))
                    .expected(ty)
                    .found(describe(object));
                return Err(wanted.wrong(py, error));
            }
            Some(ty) => ty,
            None => {
                inferred = infer::array_type(object)?;
                &inferred
            }
        };
        let block = literals::literal(object, ty).map_err(|error| declared_here(py, error))?;
        return Ok(Some(Converted::constant(block)));
    }
    Ok(None)
}

/// A computation as a value: its tree.
pub fn computation_value(
    computation: &Bound<'_, ConcreteComputation>,
    tracing: Option<&FederatedComputationContext>,
) -> PyResult<Converted> {
    let computation = computation.get().state()?;
    used(computation.scope.as_ref(), tracing)?;
    Ok(Converted { block: computation.block.clone(), scope: computation.scope.clone() })
}

/// Notes that something of `scope` is used in the function that is being traced.
fn used(scope: Option<&Open>, tracing: Option<&FederatedComputationContext>) -> PyResult<()> {
    let Some(scope) = scope else { return Ok(()) };
    if !scope.is_open() {
        return Err(raise(&over(scope)));
    }
    if let Some(tracing) = tracing
        && !scope.is(tracing.open())
    {
        tracing.uses(scope);
    }
    Ok(())
}

/// Whether an object is a number, a string, or an array of NumPy.
pub fn is_array(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    Ok(object.is_instance_of::<PyBool>()
        || object.is_instance_of::<PyInt>()
        || object.is_instance_of::<PyFloat>()
        || object.is_instance_of::<PyComplex>()
        || object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
        || object.is_instance(dtypes::ndarray(py)?)?
        || object.is_instance(dtypes::generic(py)?)?)
}

fn no_value(object: &Bound<'_, PyAny>, wanted: &Wanted<'_>, path: &str) -> PyErr {
    let what = wanted.what.unwrap_or("the value");
    let class = match wanted.result && !object.is_none() {
        true => Class::NotImplemented,
        false => Class::Type,
    };
    let error = Error::new(class, format!("{what}{path} can't be a value of a computation"))
        .expected("a value, a computation, a number, an array, or a container of such")
        .found(describe(object));
    let error = if object.is_callable() && !object.is_instance_of::<pyo3::types::PyType>() {
        error.hint("decorate the function with `@federated_computation` to use it as a value")
    } else {
        error
    };
    wanted.wrong(object.py(), error)
}

/// The type that an argument named `name` says; none for `None`.
pub fn optional_type(object: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<Option<Type>> {
    match object.filter(|object| !object.is_none()) {
        Some(object) => types::to_type_or_err(object, name).map(Some),
        None => Ok(None),
    }
}

/// The value that `arg` is: a Value, a building block, a placement, a computation, a number or
/// array, or a container of such; it must fit `type_spec`.
///
/// A polymorphic computation is made for a parameter of type `parameter_type_hint`. With
/// `zip_if_needed`, structs of federated values are zipped where that makes them fit.
#[pyfunction(name = "to_value")]
#[pyo3(signature = (arg, type_spec, *, parameter_type_hint=None, zip_if_needed=false))]
fn to_value_function(
    arg: &Bound<'_, PyAny>,
    type_spec: Option<&Bound<'_, PyAny>>,
    parameter_type_hint: Option<&Bound<'_, PyAny>>,
    zip_if_needed: bool,
) -> PyResult<Value> {
    let ty = match type_spec.filter(|object| !object.is_none()) {
        Some(object) => Some(types::expect_type(object, "type_spec")?),
        None => None,
    };
    let hint = optional_type(parameter_type_hint, "parameter_type_hint")?;
    let wanted = Wanted {
        ty: ty.as_ref(),
        hint: hint.as_ref(),
        zip: zip_if_needed,
        what: Some("the argument `arg`"),
        ..Wanted::default()
    };
    let made = to_value(arg, &wanted)?;
    Ok(Value::create(made.block, made.scope))
}

/// Adds `to_value`.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(to_value_function, module)?)
}
