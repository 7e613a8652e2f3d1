"""Programs that fail on Stator and on `federated_language`, each taking the package `fl`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .programs import add_up, clients, f32, framework, i32, i64, server

FAILING: dict[str, Callable[[Any], Any]] = {}


def failing(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    assert function.__name__ not in FAILING
    FAILING[function.__name__] = function
    return function


def _fails(name, make, *types):
    def fails(fl):
        given = [ty(fl) if callable(ty) and not isinstance(ty, type) else ty for ty in types]
        return fl.federated_computation(
            functools.partial(make, fl) if "fl" in make.__code__.co_varnames[:1] else make, *given
        )

    assert name not in FAILING
    FAILING[name] = fails


_fails("returns_none", lambda x: None, i32)
_fails("returns_object", lambda x: object(), i32)
_fails("returns_none_inside", lambda x: (x, None), i32)
_fails("default", lambda x=1: x, i32)
_fails("varargs", lambda *x: 1, i32)
_fails("keywords", lambda **x: 1, i32)
_fails("keyword_only", lambda *, x: x, i32)
_fails("too_many_types", lambda x, y: x, i32, i32, i32)
_fails("type_for_no_parameter", lambda: 1, i32)
_fails("wrong_names", lambda x, y: x, lambda fl: fl.StructType([("x", i32), ("z", i32)]))
_fails("mixed_names", lambda x, y: x, lambda fl: fl.StructType([("x", i32), i32]))
_fails("no_struct_for_two", lambda x, y: x, i32)
_fails("no_type", lambda x: x, 5)
_fails("no_such_field", lambda x: x.q, lambda fl: fl.StructType([("a", i32)]))
_fails("no_such_key", lambda x: x["q"], lambda fl: fl.StructType([("a", i32)]))
_fails("index_too_large", lambda x: x[3], lambda fl: fl.StructType([("a", i32)]))
_fails("index_negative", lambda x: x[-1], lambda fl: fl.StructType([("a", i32)]))
_fails("empty_slice", lambda x: x[1:1], lambda fl: fl.StructType([("a", i32)]))
_fails("field_of_number", lambda x: x.a, i32)
_fails("index_of_number", lambda x: x[0], i32)
_fails("length_of_number", lambda x: len(x), i32)
_fails("iterated_number", lambda x: list(x), i32)
_fails("truth", lambda x: 1 if x else 2, i32)
_fails("sum_of_values", lambda x: x + 1, i32)
_fails("called_number", lambda x: x(1), i32)
_fails("wrong_argument", lambda f, x: f(f), lambda fl: fl.FunctionType(i32, i32), i32)
_fails("missing_argument", lambda f: f(), lambda fl: fl.FunctionType(i32, i32))
_fails("superfluous_argument", lambda f: f(1), lambda fl: fl.FunctionType(None, i32))
_fails("federated_index_too_large", lambda x: x[3], lambda fl: clients(fl, (i32, i32)))
_fails("federated_no_such_field", lambda x: x.q, lambda fl: clients(fl, (i32, i32)))
_fails("sum_at_server", lambda fl, x: fl.federated_sum(x), lambda fl: server(fl, i32))
_fails("sum_of_number", lambda fl, x: fl.federated_sum(x), i32)
_fails("sum_of_bools", lambda fl, x: fl.federated_sum(x), lambda fl: clients(fl, np.bool_))
_fails("sum_of_strings", lambda fl, x: fl.federated_sum(x), lambda fl: clients(fl, np.str_))
_fails(
    "sum_of_unknown_shape", lambda fl, x: fl.federated_sum(x), lambda fl: clients(fl, (i32, [None]))
)
_fails(
    "sum_of_sequence",
    lambda fl, x: fl.federated_sum(x),
    lambda fl: clients(fl, fl.SequenceType(i32)),
)
_fails("mean_of_ints", lambda fl, x: fl.federated_mean(x), lambda fl: clients(fl, i32))
_fails("mean_at_server", lambda fl, x: fl.federated_mean(x), lambda fl: server(fl, f32))
_fails(
    "mean_weight_array", lambda fl, x: fl.federated_mean(x, x), lambda fl: clients(fl, (f32, [2]))
)
_fails(
    "mean_weight_complex",
    lambda fl, x: fl.federated_mean(x, x),
    lambda fl: clients(fl, np.complex64),
)
_fails("min_of_bools", lambda fl, x: fl.federated_min(x), lambda fl: clients(fl, np.bool_))
_fails("max_of_complex", lambda fl, x: fl.federated_max(x), lambda fl: clients(fl, np.complex64))
_fails("broadcast_of_clients", lambda fl, x: fl.federated_broadcast(x), lambda fl: clients(fl, i32))
_fails(
    "broadcast_not_equal",
    lambda fl, x: fl.federated_broadcast(x),
    lambda fl: server(fl, i32, False),
)
_fails(
    "value_of_federated",
    lambda fl, x: fl.federated_value([x], fl.SERVER),
    lambda fl: clients(fl, i32),
)
_fails("value_nowhere", lambda fl, x: fl.federated_value(x, None), i32)
_fails("zip_of_number", lambda fl, x: fl.federated_zip(x), i32)
_fails("zip_of_numbers", lambda fl, x: fl.federated_zip([x]), i32)
_fails("zip_of_nothing", lambda fl, x: fl.federated_zip([]), i32)
_fails(
    "zip_of_two_placements",
    lambda fl, x, y: fl.federated_zip([x, y]),
    lambda fl: clients(fl, i32),
    lambda fl: server(fl, i32),
)
_fails(
    "map_of_number",
    lambda fl, f, x: fl.federated_map(f, x),
    lambda fl: fl.FunctionType(i32, i32),
    i32,
)
_fails("map_no_function", lambda fl, f, x: fl.federated_map(f, x), i32, lambda fl: clients(fl, i32))
_fails(
    "map_no_parameter",
    lambda fl, f, x: fl.federated_map(f, x),
    lambda fl: fl.FunctionType(None, i32),
    lambda fl: clients(fl, i32),
)
_fails(
    "map_wrong_type",
    lambda fl, f, x: fl.federated_map(f, x),
    lambda fl: fl.FunctionType(f32, i32),
    lambda fl: clients(fl, i32),
)
_fails(
    "map_python_function",
    lambda fl, x: fl.federated_map(lambda y: y, x),
    lambda fl: clients(fl, i32),
)
_fails(
    "map_server_not_equal",
    lambda fl, f, x: fl.federated_map(f, x),
    lambda fl: fl.FunctionType(i32, i32),
    lambda fl: server(fl, i32, False),
)
_fails(
    "eval_with_parameter",
    lambda fl, f: fl.federated_eval(f, fl.CLIENTS),
    lambda fl: fl.FunctionType(i32, i32),
)
_fails("eval_no_function", lambda fl, f: fl.federated_eval(f, fl.CLIENTS), i32)
_fails(
    "secure_sum_of_floats", lambda fl, x: fl.federated_secure_sum(x, 1), lambda fl: clients(fl, f32)
)
_fails(
    "secure_sum_wrong_bound",
    lambda fl, x: fl.federated_secure_sum(x, [1]),
    lambda fl: clients(fl, (i32, i32)),
)
_fails(
    "secure_sum_float_bound",
    lambda fl, x: fl.federated_secure_sum(x, 1.5),
    lambda fl: clients(fl, i32),
)
_fails(
    "bitwidth_wrong_bound",
    lambda fl, x: fl.federated_secure_sum_bitwidth(x, {"a": 1}),
    lambda fl: clients(fl, (i32,)),
)
_fails(
    "select_wrong_keys",
    lambda fl, k, m, s, f: fl.federated_select(k, m, s, f),
    lambda fl: clients(fl, i32),
    lambda fl: server(fl, i32),
    lambda fl: server(fl, f32),
    lambda fl: fl.FunctionType((f32, i32), f32),
)
_fails(
    "select_unknown_keys",
    lambda fl, k, m, s, f: fl.federated_select(k, m, s, f),
    lambda fl: clients(fl, (i32, [None])),
    lambda fl: server(fl, i32),
    lambda fl: server(fl, f32),
    lambda fl: fl.FunctionType((f32, i32), f32),
)
_fails(
    "select_wrong_max",
    lambda fl, k, m, s, f: fl.federated_select(k, m, s, f),
    lambda fl: clients(fl, (i32, [2])),
    lambda fl: server(fl, i64),
    lambda fl: server(fl, f32),
    lambda fl: fl.FunctionType((f32, i32), f32),
)
_fails(
    "select_wrong_place",
    lambda fl, k, m, s, f: fl.federated_secure_select(k, m, s, f),
    lambda fl: clients(fl, (i32, [2])),
    lambda fl: server(fl, i32),
    lambda fl: clients(fl, f32),
    lambda fl: fl.FunctionType((f32, i32), f32),
)
_fails(
    "select_wrong_function",
    lambda fl, k, m, s, f: fl.federated_select(k, m, s, f),
    lambda fl: clients(fl, (i32, [2])),
    lambda fl: server(fl, i32),
    lambda fl: server(fl, f32),
    lambda fl: fl.FunctionType((i32, i32), f32),
)
_fails(
    "sequence_map_of_number",
    lambda fl, f, x: fl.sequence_map(f, x),
    lambda fl: fl.FunctionType(i32, i32),
    i32,
)
_fails(
    "sequence_map_no_function",
    lambda fl, f, x: fl.sequence_map(f, x),
    i32,
    lambda fl: fl.SequenceType(i32),
)
_fails("sequence_sum_of_number", lambda fl, x: fl.sequence_sum(x), i32)
_fails("sequence_sum_at_clients", lambda fl, x: fl.sequence_sum(x), lambda fl: clients(fl, i32))
_fails(
    "sequence_sum_of_bools", lambda fl, x: fl.sequence_sum(x), lambda fl: fl.SequenceType(np.bool_)
)
_fails(
    "sequence_reduce_of_number",
    lambda fl, x, f: fl.sequence_reduce(x, x, f),
    i32,
    lambda fl: fl.FunctionType((i32, i32), i32),
)


@failing
def aggregate_wrong_zero(fl):
    accumulate = add_up(fl)
    merge = fl.federated_computation(lambda a, b: a, i64, i64)
    report = fl.federated_computation(lambda a: a, i64)
    return fl.federated_computation(
        lambda v: fl.federated_aggregate(v, 1.5, accumulate, merge, report), clients(fl, i32)
    )


@failing
def aggregate_wrong_merge(fl):
    accumulate = add_up(fl)
    merge = fl.federated_computation(lambda a, b: a, i64, i32)
    report = fl.federated_computation(lambda a: a, i64)
    return fl.federated_computation(
        lambda v: fl.federated_aggregate(v, np.int64(0), accumulate, merge, report),
        clients(fl, i32),
    )


@failing
def aggregate_no_function(fl):
    return fl.federated_computation(
        lambda v: fl.federated_aggregate(v, np.int64(0), 1, 2, 3), clients(fl, i32)
    )


@failing
def called_without_context(fl):
    fw = framework(fl)
    stack = fw.get_context_stack()
    f = fl.federated_computation(lambda x: x, i32)
    with stack.install(fw.RuntimeErrorContext()):
        return f(1)


@failing
def operation_without_context(fl):
    fw = framework(fl)
    with fw.get_context_stack().install(fw.RuntimeErrorContext()):
        return fl.federated_value(1, fl.SERVER)


@failing
def polymorphic_as_value(fl):
    return fl.to_value(fl.federated_computation(lambda x: x), None)


@failing
def none_as_value(fl):
    return fl.to_value(None, None)


@failing
def wrong_type_of_value(fl):
    return fl.to_value((1, 2), fl.to_type((i32, f32)))


@failing
def value_of_other_type(fl):
    return fl.to_value((1,), fl.to_type((i32, i32)))


@failing
def value_with_more_fields(fl):
    return fl.to_value((1, 2), fl.to_type((i32,)))


@failing
def number_for_a_struct(fl):
    return fl.to_value(1, fl.to_type((i32,)))


@failing
def too_large_number(fl):
    return fl.to_value(300, fl.to_type(np.int8))


def _call_fails(name, make_and_call):
    FAILING[name] = make_and_call


_call_fails("call_without_argument", lambda fl: fl.federated_computation(lambda x: x, i32)())
_call_fails("call_with_argument", lambda fl: fl.federated_computation(lambda: 1)(1))
_call_fails("call_with_two", lambda fl: fl.federated_computation(lambda x: x, i32)(1, 2))
_call_fails(
    "call_twice_named", lambda fl: fl.federated_computation(lambda x, y: x, i32, i32)(1, x=2)
)
_call_fails("call_missing", lambda fl: fl.federated_computation(lambda x, y: x, i32, i32)(x=2))
_call_fails(
    "call_unknown", lambda fl: fl.federated_computation(lambda x, y: x, i32, i32)(1, 2, z=2)
)
