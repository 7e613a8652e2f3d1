//! Questions about types, as functions.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stator_federated::Error;
use stator_federated::types::{Facts, Type};

use super::{describe, expect_type, placements, to_type_or_err, unwrap, wrap};
use crate::federated::errors::{IntoPython, raise};

/// The types in a type, one after another.
#[pyclass(module = "stator._stator.federated", frozen)]
struct TypeIterator {
    /// The last type is the next one.
    rest: Mutex<Vec<Type>>,
}

#[pymethods]
impl TypeIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ty) = rest.pop() else { return Ok(None) };
        rest.extend(ty.children().rev().cloned());
        drop(rest);
        wrap(py, &ty).map(Some)
    }
}

/// The type and all types in it: a type before those in it, a parameter before its result.
#[pyfunction]
fn preorder_types(type_signature: &Bound<'_, PyAny>) -> PyResult<TypeIterator> {
    let ty = expect_type(type_signature, "type_signature")?;
    Ok(TypeIterator { rest: Mutex::new(vec![ty]) })
}

fn holds(predicate: &Bound<'_, PyAny>, ty: &Type) -> PyResult<bool> {
    predicate.call1((wrap(predicate.py(), ty)?,))?.is_truthy()
}

/// How many of the types in a type, itself included, the predicate holds for. It is asked once
/// about each; one that occurs more often counts more often.
#[pyfunction]
fn type_count(type_signature: &Bound<'_, PyAny>, predicate: &Bound<'_, PyAny>) -> PyResult<u64> {
    expect_type(type_signature, "type_signature")?.count(|ty| holds(predicate, ty))
}

/// Whether the predicate holds for some type in a type, itself included.
#[pyfunction]
fn type_contains(
    type_signature: &Bound<'_, PyAny>,
    predicate: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    for ty in expect_type(type_signature, "type_signature")?.distinct() {
        if holds(predicate, &ty)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the predicate holds for every type in a type, itself included.
#[pyfunction]
fn type_contains_only(
    type_signature: &Bound<'_, PyAny>,
    predicate: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    for ty in expect_type(type_signature, "type_signature")?.distinct() {
        if !holds(predicate, &ty)? {
            return Ok(false);
        }
    }
    Ok(true)
}

macro_rules! questions {
    ($($(#[doc = $doc:literal])* $name:ident $argument:ident $method:expr;)*) => {
        $(
            $(#[doc = $doc])*
            #[pyfunction]
            fn $name($argument: &Bound<'_, PyAny>) -> PyResult<bool> {
                let ty = expect_type($argument, stringify!($argument))?;
                Ok(($method)(&ty))
            }
        )*

        fn register_questions(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_function(wrap_pyfunction!($name, module)?)?;)*
            Ok(())
        }
    };
}

questions! {
    /// Whether a federated type is in a type, or it is one.
    contains_federated_types type_signature |ty: &Type| ty.facts().any(Facts::FEDERATED);
    /// Whether a tensor type is in a type, or it is one.
    contains_tensor_types type_signature |ty: &Type| ty.facts().any(Facts::TENSOR);
    /// Whether a type is of a tensor, or of nested structs of tensors.
    is_structure_of_tensors type_spec Type::is_structure_of_tensors;
    /// The same for tensors of floating-point numbers, here or placed. bfloat16 doesn't count.
    is_structure_of_floats type_spec Type::is_structure_of_floats;
    /// The same for tensors of integers, here or placed.
    is_structure_of_integers type_spec Type::is_structure_of_integers;
    /// Whether an operation on tensors may be applied to values of a type, field by field.
    is_generic_op_compatible_type type_spec Type::is_generic_op_compatible;
    /// Whether values of a type have a mean.
    is_average_compatible type_spec Type::is_average_compatible;
    /// Whether values of a type have a minimum and a maximum.
    is_min_max_compatible type_spec Type::is_min_max_compatible;
}

/// Raises `TypeError` unless `is_structure_of_integers`.
#[pyfunction]
fn check_is_structure_of_integers(type_spec: &Bound<'_, PyAny>) -> PyResult<()> {
    expect_type(type_spec, "type_spec")?.check_is_structure_of_integers().py()
}

/// Raises `SumIncompatibleError` unless values of a type can be summed.
#[pyfunction]
#[pyo3(signature = (type_spec, type_spec_context=None))]
fn check_is_sum_compatible(
    type_spec: &Bound<'_, PyAny>,
    type_spec_context: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let ty = expect_type(type_spec, "type_spec")?;
    let around = type_spec_context.and_then(unwrap);
    ty.check_is_sum_compatible()
        .map_err(|error| match around {
            Some(around) => error.note("in", around),
            None => error,
        })
        .py()
}

/// Whether a type is of one integer, or of integers in the structs that `shape_type` is built of.
#[pyfunction]
fn is_single_integer_or_matches_structure(
    type_sig: &Bound<'_, PyAny>,
    shape_type: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let ty = expect_type(type_sig, "type_sig")?;
    let shape = expect_type(shape_type, "shape_type")?;
    Ok(ty.is_single_integer_or_matches_structure(&shape))
}

/// Raises `TypeError` unless a type is federated and has what is given of it.
#[pyfunction]
#[pyo3(signature = (type_spec, member=None, placement=None, all_equal=None))]
fn check_federated_type(
    type_spec: &Bound<'_, PyAny>,
    member: Option<&Bound<'_, PyAny>>,
    placement: Option<&Bound<'_, PyAny>>,
    all_equal: Option<bool>,
) -> PyResult<()> {
    let ty = to_type_or_err(type_spec, "type_spec")?;
    let member = member.map(|member| to_type_or_err(member, "member")).transpose()?;
    let placement =
        placement.map(|placement| placements::expect(placement, "placement")).transpose()?;
    ty.check_federated(member.as_ref(), placement, all_equal).py()
}

/// Raises a `TypeError` unless a type is what a template with labels says.
#[pyfunction]
fn check_concrete_instance_of(
    concrete_type: &Bound<'_, PyAny>,
    generic_type: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let concrete = expect_type(concrete_type, "concrete_type")?;
    concrete.check_concrete_instance_of(&expect_type(generic_type, "generic_type")?).py()
}

/// What goes wrong while a type is transformed.
enum Failure {
    Ours(Error),
    Python(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

/// A type with `transform_fn` of each type in it, those below first. The function takes a type and
/// returns a pair: the type for it, and whether that is another one. It is asked once about each.
#[pyfunction]
fn transform_type_postorder<'py>(
    type_signature: &Bound<'py, PyAny>,
    transform_fn: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, bool)> {
    let py = type_signature.py();
    let change = |ty: Type| -> PyResult<(Type, bool)> {
        let result = transform_fn.call1((wrap(py, &ty)?,))?;
        let bad = || {
            PyTypeError::new_err(format!(
                "`transform_fn` must return a pair: a type, and whether it is another one\n  \
                 found:    {}",
                describe(&result)
            ))
        };
        let pair = result.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2).ok_or_else(bad)?;
        let new = unwrap(&pair.get_item(0)?).ok_or_else(bad)?;
        Ok((new, pair.get_item(1)?.is_truthy()?))
    };
    let ty = expect_type(type_signature, "type_signature")?;
    let done = ty.transform_postorder(|ty| change(ty).map_err(Failure::Python));
    let (new, changed) = done.map_err(|failure| match failure {
        Failure::Ours(error) => raise(&error),
        Failure::Python(error) => error,
    })?;
    Ok((wrap(py, &new)?, changed))
}

/// A type with its member in place of each federated type.
#[pyfunction]
fn strip_placement<'py>(type_signature: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let ty = expect_type(type_signature, "type_signature")?;
    wrap(type_signature.py(), &ty.strip_placement())
}

/// The type `(T -> T)`.
#[pyfunction]
fn unary_op<'py>(type_spec: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let ty = to_type_or_err(type_spec, "type_spec")?;
    wrap(type_spec.py(), &Type::function(Some(ty.clone()), ty))
}

/// The type `(<T,T> -> T)`.
#[pyfunction]
fn binary_op<'py>(type_spec: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let ty = to_type_or_err(type_spec, "type_spec")?;
    let pair = Type::unnamed([ty.clone(), ty.clone()]);
    wrap(type_spec.py(), &Type::function(Some(pair), ty))
}

/// The type `(<R,T> -> R)`.
#[pyfunction]
fn reduction_op<'py>(
    result_type_spec: &Bound<'py, PyAny>,
    element_type_spec: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let result = to_type_or_err(result_type_spec, "result_type_spec")?;
    let element = to_type_or_err(element_type_spec, "element_type_spec")?;
    let pair = Type::unnamed([result.clone(), element]);
    wrap(result_type_spec.py(), &Type::function(Some(pair), result))
}

/// Adds the functions.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    register_questions(module)?;
    module.add_function(wrap_pyfunction!(preorder_types, module)?)?;
    module.add_function(wrap_pyfunction!(type_count, module)?)?;
    module.add_function(wrap_pyfunction!(type_contains, module)?)?;
    module.add_function(wrap_pyfunction!(type_contains_only, module)?)?;
    module.add_function(wrap_pyfunction!(check_is_structure_of_integers, module)?)?;
    module.add_function(wrap_pyfunction!(check_is_sum_compatible, module)?)?;
    module.add_function(wrap_pyfunction!(is_single_integer_or_matches_structure, module)?)?;
    module.add_function(wrap_pyfunction!(check_federated_type, module)?)?;
    module.add_function(wrap_pyfunction!(check_concrete_instance_of, module)?)?;
    module.add_function(wrap_pyfunction!(transform_type_postorder, module)?)?;
    module.add_function(wrap_pyfunction!(strip_placement, module)?)?;
    module.add_function(wrap_pyfunction!(unary_op, module)?)?;
    module.add_function(wrap_pyfunction!(binary_op, module)?)?;
    module.add_function(wrap_pyfunction!(reduction_op, module)?)
}
