//! Calls of the language's operations, made from blocks. Nothing is bound to a name.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyList, PySlice, PyString, PyTuple, PyType};
use stator_federated::ast::{BuildingBlock, Key};
use stator_federated::{Class, Name, Result, factory, intrinsics};

use super::classes::expected;
use super::{unwrap_or_err, wrap};
use crate::federated::errors::IntoPython;
use crate::federated::types::{containers, describe, expect_type, placements, to_type_or_err};

/// The object of a call whose operation may have the type that it was given.
fn checked(py: Python<'_>, made: Result<BuildingBlock>) -> PyResult<Bound<'_, PyAny>> {
    let made = made.py()?;
    if let Some(call) = made.as_call()
        && let Some(uri) = call.function.as_intrinsic()
    {
        intrinsics::check(uri, call.function.ty()).py()?;
    }
    wrap(py, &made)
}

macro_rules! calls {
    ($($name:ident $made:ident ($first:ident $(, $argument:ident)*) $doc:literal;)*) => {
        $(
            #[doc = $doc]
            #[pyfunction]
            fn $name<'py>(
                $first: &Bound<'py, PyAny>,
                $($argument: &Bound<'py, PyAny>,)*
            ) -> PyResult<Bound<'py, PyAny>> {
                let py = $first.py();
                checked(py, factory::$made(
                    unwrap_or_err($first, stringify!($first))?,
                    $(unwrap_or_err($argument, stringify!($argument))?,)*
                ))
            }
        )*

        fn register_calls(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_function(wrap_pyfunction!($name, module)?)?;)*
            Ok(())
        }
    };
}

calls! {
    create_federated_aggregate federated_aggregate(value, zero, accumulate, merge, report)
        "`federated_aggregate(<value,zero,accumulate,merge,report>)`.";
    create_federated_apply federated_apply(r#fn, arg) "`federated_apply(<fn,arg>)`.";
    create_federated_broadcast federated_broadcast(value) "`federated_broadcast(value)`.";
    create_federated_collect federated_collect(value) "`federated_collect(value)`.";
    create_federated_map federated_map(r#fn, arg) "`federated_map(<fn,arg>)`.";
    create_federated_map_all_equal federated_map_all_equal(r#fn, arg)
        "`federated_map_all_equal(<fn,arg>)`.";
    create_federated_map_or_apply federated_map_or_apply(r#fn, arg)
        "Whichever kind of map fits the type of `arg`.";
    create_federated_max federated_max(value) "`federated_max(value)`.";
    create_federated_min federated_min(value) "`federated_min(value)`.";
    create_federated_sum federated_sum(value) "`federated_sum(value)`.";
    create_federated_secure_sum federated_secure_sum(value, max_input)
        "`federated_secure_sum(<value,max_input>)`.";
    create_federated_secure_sum_bitwidth federated_secure_sum_bitwidth(value, bitwidth)
        "`federated_secure_sum_bitwidth(<value,bitwidth>)`.";
    create_federated_unzip federated_unzip(value)
        "A federated struct as a struct of federated values.";
    create_federated_zip federated_zip(value) "A struct of federated values as a federated struct.";
    create_sequence_map sequence_map(r#fn, arg) "`sequence_map(<fn,arg>)`.";
    create_sequence_reduce sequence_reduce(value, zero, op) "`sequence_reduce(<value,zero,op>)`.";
    create_sequence_sum sequence_sum(value) "`sequence_sum(value)`.";
}

/// `federated_mean(value)`, or `federated_weighted_mean(<value,weight>)`.
#[pyfunction]
#[pyo3(signature = (value, weight=None))]
fn create_federated_mean<'py>(
    value: &Bound<'py, PyAny>,
    weight: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let block = unwrap_or_err(value, "value")?;
    let weight = weight.map(|weight| unwrap_or_err(weight, "weight")).transpose()?;
    checked(value.py(), factory::federated_mean(block, weight))
}

/// `federated_select(...)` or `federated_secure_select(...)`.
#[pyfunction]
fn create_federated_select<'py>(
    client_keys: &Bound<'py, PyAny>,
    max_key: &Bound<'py, PyAny>,
    server_val: &Bound<'py, PyAny>,
    select_fn: &Bound<'py, PyAny>,
    secure: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let made = factory::federated_select(
        unwrap_or_err(client_keys, "client_keys")?,
        unwrap_or_err(max_key, "max_key")?,
        unwrap_or_err(server_val, "server_val")?,
        unwrap_or_err(select_fn, "select_fn")?,
        secure,
    );
    checked(client_keys.py(), made)
}

/// `federated_eval_at_clients(fn)` or `federated_eval_at_server(fn)`.
#[pyfunction]
fn create_federated_eval<'py>(
    r#fn: &Bound<'py, PyAny>,
    placement: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let function = unwrap_or_err(r#fn, "fn")?;
    let at = placements::expect(placement, "placement")?;
    checked(placement.py(), factory::federated_eval(function, at))
}

/// `federated_value_at_clients(value)` or `federated_value_at_server(value)`.
#[pyfunction]
fn create_federated_value<'py>(
    value: &Bound<'py, PyAny>,
    placement: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let block = unwrap_or_err(value, "value")?;
    let at = placements::expect(placement, "placement")?;
    checked(value.py(), factory::federated_value(block, at))
}

/// `(id_arg -> id_arg)`.
#[pyfunction]
fn create_identity<'py>(type_signature: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let ty = to_type_or_err(type_signature, "type_signature")?;
    wrap(type_signature.py(), &factory::identity(ty))
}

/// `(x -> <p=x[0],x[1]>)(comp)`: a struct under other names.
#[pyfunction]
#[pyo3(signature = (comp, names, container_type=None))]
fn create_named_tuple<'py>(
    comp: &Bound<'py, PyAny>,
    names: &Bound<'py, PyAny>,
    container_type: Option<&Bound<'py, PyType>>,
) -> PyResult<Bound<'py, PyAny>> {
    let block = unwrap_or_err(comp, "comp")?;
    let mut given: Vec<Option<Name>> = Vec::new();
    for name in names.try_iter()? {
        let name = name?;
        given.push(match name.cast::<PyString>() {
            Ok(name) => Some(name.to_str()?.into()),
            Err(_) if name.is_none() => None,
            Err(_) => return Err(expected("names", "strings, or None for no name", &name)),
        });
    }
    let container = container_type.map(|class| containers::from_class(class)).transpose()?;
    wrap(comp.py(), &factory::named_tuple(block, given, container).py()?)
}

fn name_key(name: &Bound<'_, PyAny>) -> PyResult<Key> {
    match name.cast::<PyString>() {
        Ok(name) => Ok(Key::Name(name.to_str()?.into())),
        Err(_) => Err(expected("name", "a string", name)),
    }
}

fn index_key(index: &Bound<'_, PyAny>) -> PyResult<Key> {
    if !index.is_instance_of::<PyInt>() || index.is_instance_of::<PyBool>() {
        return Err(expected("index", "an integer", index));
    }
    index.extract().map(Key::Index).map_err(|_| {
        PyValueError::new_err(format!(
            "there is no such field\n  expected: a position, from 0\n  found:    {}",
            describe(index)
        ))
    })
}

/// The fields that a slice says of the member of a federated struct.
fn slice_indices(value: &BuildingBlock, slice: &Bound<'_, PySlice>) -> PyResult<Vec<usize>> {
    let member = value.ty().as_federated().map(|of| &of.member);
    let Some(structure) = member.and_then(|member| member.as_struct()) else {
        return Err(PyTypeError::new_err(format!(
            "`value` has no fields\n  expected: a federated struct\n  found:    {}",
            value.ty()
        )));
    };
    let range = slice.indices(structure.len() as isize)?;
    let at = (0..range.slicelength as isize).map(|step| range.start + step * range.step);
    Ok(at.map(|at| at as usize).collect())
}

/// The federated field of a federated struct with this name.
#[pyfunction]
fn create_federated_getattr_call<'py>(
    arg: &Bound<'py, PyAny>,
    name: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let block = unwrap_or_err(arg, "arg")?;
    wrap(arg.py(), &factory::federated_field(block, &name_key(name)?).py()?)
}

/// The federated field of a federated struct at this position, or those of a slice.
#[pyfunction]
fn create_federated_getitem_call<'py>(
    arg: &Bound<'py, PyAny>,
    idx: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let block = unwrap_or_err(arg, "arg")?;
    let made = match idx.cast::<PySlice>() {
        Ok(slice) => {
            let indices = slice_indices(&block, slice)?;
            factory::federated_fields(block, &indices)
        }
        Err(_) => factory::federated_field(block, &index_key(idx)?),
    };
    wrap(arg.py(), &made.py()?)
}

/// `(x -> x.a)`: selects the field with this name from the member of a federated struct.
#[pyfunction]
fn create_federated_getattr_comp<'py>(
    comp: &Bound<'py, PyAny>,
    name: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let block = unwrap_or_err(comp, "comp")?;
    wrap(comp.py(), &factory::member_field_function(&block, &name_key(name)?).py()?)
}

/// `(x -> x[0])`: selects the field at this position, or those of a slice, from the member of a
/// federated struct.
#[pyfunction]
fn create_federated_getitem_comp<'py>(
    comp: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let block = unwrap_or_err(comp, "comp")?;
    let made = match key.cast::<PySlice>() {
        Ok(slice) => factory::member_fields_function(&block, &slice_indices(&block, slice)?),
        Err(_) => factory::member_field_function(&block, &index_key(key)?),
    };
    wrap(comp.py(), &made.py()?)
}

/// A key, or a tuple of keys, from the result of a lambda down.
fn path(object: &Bound<'_, PyAny>) -> PyResult<Vec<Key>> {
    let key = |key: &Bound<'_, PyAny>| {
        if key.is_instance_of::<PyString>() {
            name_key(key)
        } else if key.is_instance_of::<PyInt>() && !key.is_instance_of::<PyBool>() {
            index_key(key)
        } else {
            Err(expected("paths", "a name, a position, or a tuple of such", key))
        }
    };
    match object.cast::<PyTuple>() {
        Ok(keys) => keys.iter().map(|of| key(&of)).collect(),
        Err(_) => Ok(vec![key(object)?]),
    }
}

/// A lambda with one part of its result as result, or with a struct of several: `paths` is a name
/// or position, a tuple of such, or a list of these.
#[pyfunction]
fn select_output_from_lambda<'py>(
    comp: &Bound<'py, PyAny>,
    paths: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let lambda = unwrap_or_err(comp, "comp")?;
    let made = match paths.cast::<PyList>() {
        Ok(paths) => {
            let paths: PyResult<Vec<_>> = paths.iter().map(|of| path(&of)).collect();
            factory::select_outputs(&lambda, &paths?)
        }
        Err(_) => factory::select_output(&lambda, &path(paths)?),
    };
    wrap(comp.py(), &made.py()?)
}

/// The value, with structs of federated values zipped where `target_type` has federated structs;
/// `None` if it can't be made to fit.
#[pyfunction]
#[pyo3(signature = (*, comp_to_zip, target_type))]
fn zip_to_match_type<'py>(
    comp_to_zip: &Bound<'py, PyAny>,
    target_type: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let block = unwrap_or_err(comp_to_zip, "comp_to_zip")?;
    let target = expect_type(target_type, "target_type")?;
    let made = match factory::zip_to_match(&block, &target) {
        Err(error) if error.class() == Class::Value => None,
        made => made.py()?,
    };
    made.map(|made| wrap(comp_to_zip.py(), &made)).transpose()
}

/// Adds the functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    register_calls(module)?;
    module.add_function(wrap_pyfunction!(create_federated_mean, module)?)?;
    module.add_function(wrap_pyfunction!(create_federated_select, module)?)?;
    module.add_function(wrap_pyfunction!(create_federated_eval, module)?)?;
    module.add_function(wrap_pyfunction!(create_federated_value, module)?)?;
    module.add_function(wrap_pyfunction!(create_identity, module)?)?;
    module.add_function(wrap_pyfunction!(create_named_tuple, module)?)?;
    module.add_function(wrap_pyfunction!(create_federated_getattr_call, module)?)?;
    module.add_function(wrap_pyfunction!(create_federated_getitem_call, module)?)?;
    module.add_function(wrap_pyfunction!(create_federated_getattr_comp, module)?)?;
    module.add_function(wrap_pyfunction!(create_federated_getitem_comp, module)?)?;
    module.add_function(wrap_pyfunction!(select_output_from_lambda, module)?)?;
    module.add_function(wrap_pyfunction!(zip_to_match_type, module)?)
}
