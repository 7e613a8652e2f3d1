//! The operations of the language as functions.

use pyo3::exceptions::PyDeprecationWarning;
use pyo3::prelude::*;
use stator_federated::ast::BuildingBlock;
use stator_federated::placement::Placement;
use stator_federated::tracing::intrinsics::{self, SequenceMap};
use stator_federated::types::Type;

use super::convert::{Wanted, to_value};
use super::scope::bind;
use super::value::Value;
use super::{Here, declared_here};
use crate::federated::types::placements;

/// The block of an argument of an operation.
fn argument(
    operation: &str,
    name: &str,
    object: &Bound<'_, PyAny>,
    hint: Option<&Type>,
) -> PyResult<BuildingBlock> {
    let what = format!("{operation}: the argument `{name}`");
    let wanted = Wanted { what: Some(&what), hint, ..Wanted::default() };
    Ok(to_value(object, &wanted)?.block)
}

/// The value of a call of an operation, which is given a name.
fn bound(
    py: Python<'_>,
    operation: &str,
    call: stator_federated::Result<BuildingBlock>,
) -> PyResult<Value> {
    bind(py, call.here(py)?, operation)
}

/// Aggregates `value`, which is at the clients, to one value at the server: each client's is
/// taken in with `accumulate(accumulator, value)`, beginning with `zero`; accumulators are brought
/// together with `merge(a, b)`, and the last one becomes the result with `report(accumulator)`.
#[pyfunction]
fn federated_aggregate(
    py: Python<'_>,
    value: &Bound<'_, PyAny>,
    zero: &Bound<'_, PyAny>,
    accumulate: &Bound<'_, PyAny>,
    merge: &Bound<'_, PyAny>,
    report: &Bound<'_, PyAny>,
) -> PyResult<Value> {
    const NAME: &str = "federated_aggregate";
    let value = argument(NAME, "value", value, None)?;
    let value = intrinsics::federated(NAME, "value", value, Some(Placement::Clients)).here(py)?;
    let zero = argument(NAME, "zero", zero, None)?;
    let hint = intrinsics::accumulate_hint(&value, &zero);
    let accumulate = argument(NAME, "accumulate", accumulate, Some(&hint))?;
    let hint = intrinsics::merge_hint(&accumulate).here(py)?;
    let merge = argument(NAME, "merge", merge, Some(&hint))?;
    let hint = intrinsics::function(NAME, "merge", &merge).here(py)?.result.clone();
    let report = argument(NAME, "report", report, Some(&hint))?;
    bound(py, NAME, intrinsics::aggregate(value, zero, accumulate, merge, report))
}

/// The value that is at the server, at each client.
#[pyfunction]
fn federated_broadcast(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let value = argument("federated_broadcast", "value", value, None)?;
    bound(py, "federated_broadcast", intrinsics::broadcast(value))
}

/// What `fn`, a computation without parameter, gives at each place of `placement`.
#[pyfunction]
#[pyo3(signature = (r#fn, placement))]
fn federated_eval(
    py: Python<'_>,
    r#fn: &Bound<'_, PyAny>,
    placement: &Bound<'_, PyAny>,
) -> PyResult<Value> {
    let fn_ = argument("federated_eval", "fn", r#fn, None)?;
    let placement =
        placements::expect(placement, "placement").map_err(|error| declared_here(py, error))?;
    bound(py, "federated_eval", intrinsics::eval(fn_, placement))
}

/// What `fn` gives for `arg`, at each place where `arg` is.
#[pyfunction]
#[pyo3(signature = (r#fn, arg))]
fn federated_map(
    py: Python<'_>,
    r#fn: &Bound<'_, PyAny>,
    arg: &Bound<'_, PyAny>,
) -> PyResult<Value> {
    let (fn_, arg) = mapping(py, "federated_map", r#fn, arg, None)?;
    bound(py, "federated_map", intrinsics::map(fn_, arg))
}

/// What `fn` gives for `arg`, which is the same at all clients, as is the result.
#[pyfunction]
#[pyo3(signature = (r#fn, arg))]
fn federated_map_all_equal(
    py: Python<'_>,
    r#fn: &Bound<'_, PyAny>,
    arg: &Bound<'_, PyAny>,
) -> PyResult<Value> {
    const NAME: &str = "federated_map_all_equal";
    let (fn_, arg) = mapping(py, NAME, r#fn, arg, Some(Placement::Clients))?;
    bound(py, NAME, intrinsics::map_all_equal(fn_, arg))
}

/// A function, and a federated value to map it over.
fn mapping(
    py: Python<'_>,
    operation: &str,
    fn_: &Bound<'_, PyAny>,
    arg: &Bound<'_, PyAny>,
    placement: Option<Placement>,
) -> PyResult<(BuildingBlock, BuildingBlock)> {
    let arg = argument(operation, "arg", arg, None)?;
    let arg = intrinsics::federated(operation, "arg", arg, placement).here(py)?;
    let member = &arg.ty().as_federated().expect("it was made federated").member;
    let fn_ = argument(operation, "fn", fn_, Some(member))?;
    Ok((fn_, arg))
}

/// The greatest of the clients' values, at the server.
#[pyfunction]
fn federated_max(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let value = argument("federated_max", "value", value, None)?;
    bound(py, "federated_max", intrinsics::max(value))
}

/// The mean of the clients' values, at the server; weighted by the clients' `weight`s.
#[pyfunction]
#[pyo3(signature = (value, weight=None))]
fn federated_mean(
    py: Python<'_>,
    value: &Bound<'_, PyAny>,
    weight: Option<&Bound<'_, PyAny>>,
) -> PyResult<Value> {
    let value = argument("federated_mean", "value", value, None)?;
    let weight = weight.filter(|weight| !weight.is_none());
    let weight =
        weight.map(|weight| argument("federated_mean", "weight", weight, None)).transpose()?;
    bound(py, "federated_mean", intrinsics::mean(value, weight))
}

/// The least of the clients' values, at the server.
#[pyfunction]
fn federated_min(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let value = argument("federated_min", "value", value, None)?;
    bound(py, "federated_min", intrinsics::min(value))
}

/// The sequence of the clients' values, at the server, in the order of the clients: as much memory as
/// all of them take.
#[pyfunction]
fn federated_collect(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let value = argument("federated_collect", "value", value, None)?;
    bound(py, "federated_collect", intrinsics::collect(value))
}

/// The sum of the clients' values, at the server.
#[pyfunction]
fn federated_sum(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let value = argument("federated_sum", "value", value, None)?;
    bound(py, "federated_sum", intrinsics::sum(value))
}

/// The sum of the clients' integers, each at most `max_input`, at the server, which sees nothing
/// but the sum.
#[pyfunction]
fn federated_secure_sum(
    py: Python<'_>,
    value: &Bound<'_, PyAny>,
    max_input: &Bound<'_, PyAny>,
) -> PyResult<Value> {
    const NAME: &str = "federated_secure_sum";
    let (value, bound_) = bounded(py, NAME, "max_input", value, max_input)?;
    bound(py, NAME, intrinsics::secure_sum(value, bound_))
}

/// The sum of the clients' integers, each of at most `bitwidth` bits, at the server, which sees
/// nothing but the sum.
#[pyfunction]
fn federated_secure_sum_bitwidth(
    py: Python<'_>,
    value: &Bound<'_, PyAny>,
    bitwidth: &Bound<'_, PyAny>,
) -> PyResult<Value> {
    const NAME: &str = "federated_secure_sum_bitwidth";
    let (value, bound_) = bounded(py, NAME, "bitwidth", value, bitwidth)?;
    bound(py, NAME, intrinsics::secure_sum_bitwidth(value, bound_))
}

/// A value to sum and its bound, which is spread over structs.
fn bounded(
    py: Python<'_>,
    operation: &str,
    name: &str,
    value: &Bound<'_, PyAny>,
    bound: &Bound<'_, PyAny>,
) -> PyResult<(BuildingBlock, BuildingBlock)> {
    let value = argument(operation, "value", value, None)?;
    let bound = argument(operation, name, bound, None)?;
    let (value, spread) = intrinsics::bound(operation, name, value, &bound).here(py)?;
    if !spread {
        return Ok((value, bound));
    }
    let member = &value.ty().as_federated().expect("it was made federated").member;
    let bound = intrinsics::spread_bound(&bound, member).here(py)?;
    Ok((value, bound))
}

/// For each client the slices that its `client_keys` choose: a sequence of
/// `select_fn(server_val, key)`.
#[pyfunction]
fn federated_select(
    py: Python<'_>,
    client_keys: &Bound<'_, PyAny>,
    max_key: &Bound<'_, PyAny>,
    server_val: &Bound<'_, PyAny>,
    select_fn: &Bound<'_, PyAny>,
) -> PyResult<Value> {
    select(py, client_keys, max_key, server_val, select_fn, false)
}

/// As `federated_select`, where the server doesn't see which keys a client chooses.
#[pyfunction]
fn federated_secure_select(
    py: Python<'_>,
    client_keys: &Bound<'_, PyAny>,
    max_key: &Bound<'_, PyAny>,
    server_val: &Bound<'_, PyAny>,
    select_fn: &Bound<'_, PyAny>,
) -> PyResult<Value> {
    select(py, client_keys, max_key, server_val, select_fn, true)
}

fn select(
    py: Python<'_>,
    client_keys: &Bound<'_, PyAny>,
    max_key: &Bound<'_, PyAny>,
    server_val: &Bound<'_, PyAny>,
    select_fn: &Bound<'_, PyAny>,
    secure: bool,
) -> PyResult<Value> {
    let name = if secure { "federated_secure_select" } else { "federated_select" };
    let keys = argument(name, "client_keys", client_keys, None)?;
    let max_key = argument(name, "max_key", max_key, None)?;
    let value = argument(name, "server_val", server_val, None)?;
    let (value, hint) = intrinsics::select_hint(&keys, &max_key, value, secure).here(py)?;
    let select_fn = argument(name, "select_fn", select_fn, Some(&hint))?;
    bound(py, name, intrinsics::select(keys, max_key, value, select_fn, &hint, secure))
}

/// `value` at each place of `placement`.
#[pyfunction]
fn federated_value(
    py: Python<'_>,
    value: &Bound<'_, PyAny>,
    placement: &Bound<'_, PyAny>,
) -> PyResult<Value> {
    if value.cast::<Value>().is_ok() {
        let category = py.get_type::<PyDeprecationWarning>();
        let message =
            c"`federated_value` is for Python's constants: `federated_eval(fn, placement)` \
                        places what a computation gives";
        PyErr::warn(py, &category, message, 1)?;
    }
    let value = argument("federated_value", "value", value, None)?;
    let placement =
        placements::expect(placement, "placement").map_err(|error| declared_here(py, error))?;
    bound(py, "federated_value", intrinsics::value(value, placement))
}

/// One federated struct from a struct of federated values of one placement.
#[pyfunction]
fn federated_zip(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let value = argument("federated_zip", "value", value, None)?;
    bound(py, "federated_zip", intrinsics::zip(value))
}

/// What `fn` gives for each element of a sequence, or of the sequences at a placement.
#[pyfunction]
#[pyo3(signature = (r#fn, arg))]
fn sequence_map(
    py: Python<'_>,
    r#fn: &Bound<'_, PyAny>,
    arg: &Bound<'_, PyAny>,
) -> PyResult<Value> {
    const NAME: &str = "sequence_map";
    let arg = argument(NAME, "arg", arg, None)?;
    let element = intrinsics::element_hint(&arg).cloned();
    let fn_ = argument(NAME, "fn", r#fn, element.as_ref())?;
    match intrinsics::sequence_map(fn_, arg).here(py)? {
        SequenceMap::Here(call) => bind(py, call, NAME),
        SequenceMap::Mapped { function, arg } => {
            let function = bind(py, function, NAME)?;
            bound(py, NAME, intrinsics::map(function.block().clone(), arg))
        }
    }
}

/// What the elements of a sequence, or of the sequences at a placement, come to: `zero` and the
/// first one give `op(zero, element)`, with which the next is taken.
#[pyfunction]
fn sequence_reduce(
    py: Python<'_>,
    value: &Bound<'_, PyAny>,
    zero: &Bound<'_, PyAny>,
    op: &Bound<'_, PyAny>,
) -> PyResult<Value> {
    const NAME: &str = "sequence_reduce";
    let value = argument(NAME, "value", value, None)?;
    let zero = argument(NAME, "zero", zero, None)?;
    let hint = intrinsics::reduce_hint(&value, &zero);
    let op = argument(NAME, "op", op, hint.as_ref())?;
    bound(py, NAME, intrinsics::sequence_reduce(value, zero, op))
}

/// The sum of the elements of a sequence, or of the sequences at a placement.
#[pyfunction]
fn sequence_sum(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    let value = argument("sequence_sum", "value", value, None)?;
    bound(py, "sequence_sum", intrinsics::sequence_sum(value))
}

/// `value`, or the zip of it, which must be at `placement`, if one is given; `label` names it in
/// errors.
#[pyfunction]
#[pyo3(signature = (value, placement=None, label=None))]
fn ensure_federated_value(
    py: Python<'_>,
    value: &Bound<'_, PyAny>,
    placement: Option<&Bound<'_, PyAny>>,
    label: Option<&str>,
) -> PyResult<Value> {
    let placement = placement.filter(|placement| !placement.is_none());
    let placement =
        placement.map(|placement| placements::expect(placement, "placement")).transpose()?;
    let made = to_value(value, &Wanted::default())?;
    let name = label.unwrap_or("value");
    let block = intrinsics::federated("ensure_federated_value", name, made.block, placement);
    Ok(Value::create(block.here(py)?, made.scope))
}

/// A function value of a struct as one that takes the fields one after another.
#[pyfunction]
#[pyo3(signature = (r#fn))]
fn get_curried(py: Python<'_>, r#fn: &Bound<'_, PyAny>) -> PyResult<Value> {
    let made = to_value(r#fn, &Wanted::default())?;
    Ok(Value::create(stator_federated::factory::curried(made.block).here(py)?, made.scope))
}

/// Adds the operations.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(federated_aggregate, module)?)?;
    module.add_function(wrap_pyfunction!(federated_broadcast, module)?)?;
    module.add_function(wrap_pyfunction!(federated_collect, module)?)?;
    module.add_function(wrap_pyfunction!(federated_eval, module)?)?;
    module.add_function(wrap_pyfunction!(federated_map, module)?)?;
    module.add_function(wrap_pyfunction!(federated_map_all_equal, module)?)?;
    module.add_function(wrap_pyfunction!(federated_max, module)?)?;
    module.add_function(wrap_pyfunction!(federated_mean, module)?)?;
    module.add_function(wrap_pyfunction!(federated_min, module)?)?;
    module.add_function(wrap_pyfunction!(federated_sum, module)?)?;
    module.add_function(wrap_pyfunction!(federated_secure_sum, module)?)?;
    module.add_function(wrap_pyfunction!(federated_secure_sum_bitwidth, module)?)?;
    module.add_function(wrap_pyfunction!(federated_select, module)?)?;
    module.add_function(wrap_pyfunction!(federated_secure_select, module)?)?;
    module.add_function(wrap_pyfunction!(federated_value, module)?)?;
    module.add_function(wrap_pyfunction!(federated_zip, module)?)?;
    module.add_function(wrap_pyfunction!(ensure_federated_value, module)?)?;
    module.add_function(wrap_pyfunction!(get_curried, module)?)?;
    module.add_function(wrap_pyfunction!(sequence_map, module)?)?;
    module.add_function(wrap_pyfunction!(sequence_reduce, module)?)?;
    module.add_function(wrap_pyfunction!(sequence_sum, module)?)
}
