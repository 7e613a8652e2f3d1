"""Programs that are run on Stator and on `federated_language`, to be compared.

Each takes the package `fl` and gives a computation, a value or something printable.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

PROGRAMS: dict[str, Callable[[Any], Any]] = {}


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    assert function.__name__ not in PROGRAMS
    PROGRAMS[function.__name__] = function
    return function


i32, i64, f32, f64 = np.int32, np.int64, np.float32, np.float64


def clients(fl, member, all_equal=None):
    return fl.FederatedType(member, fl.CLIENTS, all_equal)


def server(fl, member, all_equal=None):
    return fl.FederatedType(member, fl.SERVER, all_equal)


Point = collections.namedtuple("Point", "x y")


def add_up(fl):
    """`int64, int32 -> int64`, with names."""

    @fl.federated_computation(i64, i32)
    def accumulate(total, value):
        return total

    return accumulate


# Forms of the decorator, and parameters.


@program
def one_parameter(fl):
    @fl.federated_computation(i32)
    def f(x):
        return x

    return f


@program
def no_parameter(fl):
    @fl.federated_computation
    def f():
        return 10

    return f


@program
def no_parameter_called(fl):
    @fl.federated_computation()
    def f():
        return 10

    return f


@program
def no_parameter_none(fl):
    return fl.federated_computation(lambda: 1, None)


@program
def several_parameters(fl):
    @fl.federated_computation(i32, np.bool_)
    def f(a, b):
        return b

    return f


@program
def one_parameter_several_types(fl):
    return fl.federated_computation(lambda x: x, i32, np.bool_)


@program
def struct_for_several_parameters(fl):
    return fl.federated_computation(lambda a, b: (b, a), (i32, np.bool_))


@program
def named_struct_for_several_parameters(fl):
    return fl.federated_computation(lambda a, b: (a, b), [("b", i32), ("a", np.bool_)])


@program
def dict_parameter(fl):
    return fl.federated_computation(lambda x: x["a"], {"a": i32, "b": (f32, [2, None])})


@program
def namedtuple_parameter(fl):
    return fl.federated_computation(lambda p: p.y, Point(i32, np.bool_))


@program
def partial_function(fl):
    return fl.federated_computation(functools.partial(lambda x, y: (x, y), 1), i32)


@program
def bound_method(fl):
    class C:
        def m(self, x):
            return x

    return fl.federated_computation(C().m, i32)


@program
def callable_object(fl):
    class C:
        def __call__(self, x):
            return x

    return fl.federated_computation(C(), i32)


@program
def function_parameter(fl):
    @fl.federated_computation(fl.FunctionType(i32, i32), i32)
    def twice(f, x):
        return f(f(x))

    return twice


# Results.


def _result(name, make):
    @program
    def result(fl):
        return fl.federated_computation(make, i32)

    PROGRAMS[f"result_{name}"] = PROGRAMS.pop("result")


_result("list", lambda x: [x, x])
_result("tuple", lambda x: (x,))
_result("empty_tuple", lambda x: ())
_result("dict", lambda x: {"a": x, "b": {"c": x}})
_result("ordered", lambda x: collections.OrderedDict(b=x, a=x))
_result("namedtuple", lambda x: Point(x, x))
_result("pairs", lambda x: [("a", x), ("b", x)])
_result("constants", lambda x: [1, 2.5, True, "s", b"b", 2**40, 1j])
_result("numpy_scalar", lambda x: np.float32(2.5))
_result("numpy_array", lambda x: np.array([[1, 2], [3, 4]], np.int16))
_result("function", lambda x: x)


# Fields.


@program
def fields_by_name_and_position(fl):
    @fl.federated_computation([("a", i32), (None, f32), ("b", [("c", np.bool_)])])
    def f(s):
        return s.a, s[1], s["b"].c, s.b[0], s["a"]

    return f


@program
def slices(fl):
    return fl.federated_computation(lambda s: (s[1:], s[::2], s[::-1]), (i32, f32, np.bool_))


@program
def iteration(fl):
    return fl.federated_computation(lambda s: [len(s), *s], [("a", i32), ("b", f32)])


@program
def unpacking(fl):
    @fl.federated_computation((i32, f32))
    def f(s):
        a, b = s
        return b, a

    return f


@program
def fields_at_clients(fl):
    @fl.federated_computation(clients(fl, [("a", i32), (None, f32)]))
    def f(s):
        return s.a, s[1], s["a"], s[0:2], s[::-1], len(s), list(s)

    return f


@program
def fields_at_clients_all_equal(fl):
    @fl.federated_computation(clients(fl, [("a", i32), ("b", f32)], True))
    def f(s):
        return s.a, s[1], s[0:1]

    return f


@program
def fields_at_server(fl):
    @fl.federated_computation(server(fl, {"a": i32, "b": {"c": f32}}))
    def f(s):
        return s.a, s.b.c, s[0:2]

    return f


@program
def fields_of_a_made_struct(fl):
    @fl.federated_computation(i32, f32)
    def f(a, b):
        s = fl.to_value({"p": a, "q": (b, a)}, None)
        return s.p, s.q[0], s["q"], s[1:]

    return f


@program
def names_of_a_value(fl):
    names = []

    @fl.federated_computation([("b", i32), ("a", f32)])
    def f(s):
        names.append(sorted(dir(s)))
        names.append(str(s) + repr(s))
        return s

    return names


# Calls.


@program
def nested_names(fl):
    def n():
        @fl.federated_computation(i32)
        def n(x):
            @fl.federated_computation(i32)
            def n(x):
                @fl.federated_computation(i32)
                def n(x):
                    return x

                return n(x)

            return n(x)

        return n

    return n()


@program
def closure(fl):
    @fl.federated_computation(i32)
    def outer(x):
        @fl.federated_computation
        def inner():
            return x

        return inner()

    return outer


@program
def returned_function(fl):
    return fl.federated_computation(lambda x: fl.federated_computation(lambda: x), i32)


@program
def unused_call(fl):
    f = fl.federated_computation(lambda: 2)

    @fl.federated_computation(i32)
    def u(x):
        f()
        return 3

    return u


@program
def calls_of_several_arguments(fl):
    pick = fl.federated_computation(lambda a, b: a, i32, i32)

    @fl.federated_computation(i32, i32)
    def f(x, y):
        return [
            pick(x, y),
            pick(x, b=y),
            pick(b=x, a=y),
            pick([x, y]),
            pick({"a": x, "b": y}),
        ]

    return f


@program
def calls_of_function_values(fl):
    names = fl.FunctionType([("a", i32), ("b", i32)], i32)
    pair = fl.FunctionType((i32, i32), i32)
    nothing = fl.FunctionType(None, i32)

    @fl.federated_computation(names, pair, nothing, i32)
    def f(names, pair, nothing, x):
        return names(a=x, b=x), names(x, x), pair(x, x), nothing(), pair((x, x))

    return f


@program
def zipped_argument(fl):
    inner = fl.federated_computation(lambda y: y, clients(fl, [("a", i32), (None, i32)]))
    outer = fl.StructType([("a", clients(fl, i32)), clients(fl, i32)])
    return fl.federated_computation(lambda x: inner(x), outer)


@program
def constants_as_arguments(fl):
    inner = fl.federated_computation(lambda a, b: b, i64, (f64, [2]))
    return fl.federated_computation(lambda: inner(3, np.array([1.0, 2.0])))


# Polymorphic computations.


@program
def polymorphic(fl):
    p = fl.federated_computation(lambda x, y: y)

    @fl.federated_computation(i32, f32)
    def f(a, b):
        return p(a, b), p(b, a), p(x=a, y=[b]), p(y=a, x=(b,)), p(a, y=1)

    return f


@program
def polymorphic_instances(fl):
    p = fl.federated_computation(lambda x: x)
    one, other = p.fn_for_argument_type(fl.to_type(i32)), p.fn_for_argument_type(fl.to_type(f32))
    whole = p.fn_for_argument_type(fl.StructType([i32]))
    parts = p.fn_for_argument_type(fl.StructType([i32]), unpack=True)
    types = [str(c.type_signature) for c in (one, other, whole, parts)]
    same = p.fn_for_argument_type(fl.to_type(i32)) is one
    return types, same, str(parts.to_building_block())


@program
def polymorphic_cache(fl):
    made = []

    @fl.federated_computation
    def p(a, b):
        made.append(None)
        return a

    @fl.federated_computation(i32)
    def f(x):
        p(x, [1])
        p(x, [2])
        p(x, (1,))
        p(a=x, b=1)
        p(b=1, a=x)
        return x

    return len(made)


@program
def polymorphic_mapped(fl):
    p = fl.federated_computation(lambda x: x)
    return fl.federated_computation(lambda v: fl.federated_map(p, v), clients(fl, i32))


# The operations.


@program
def map_at_clients(fl):
    inc = fl.federated_computation(lambda x: (x, x), i32)
    return fl.federated_computation(lambda v: fl.federated_map(inc, v), clients(fl, i32))


@program
def map_all_equal_at_clients(fl):
    inc = fl.federated_computation(lambda x: (x, x), i32)
    return fl.federated_computation(lambda v: fl.federated_map(inc, v), clients(fl, i32, True))


@program
def map_at_server(fl):
    inc = fl.federated_computation(lambda x: (x, x), i32)
    return fl.federated_computation(lambda v: fl.federated_map(inc, v), server(fl, i32))


@program
def map_over_zipped(fl):
    add = fl.federated_computation(lambda a, b: a, i32, f32)

    @fl.federated_computation(clients(fl, i32), clients(fl, f32, True))
    def f(a, b):
        return fl.federated_map(add, (a, b)), fl.federated_map(add, [a, b])

    return f


@program
def map_over_named_zipped(fl):
    add = fl.federated_computation(lambda a, b: a, i32, f32)

    @fl.federated_computation(clients(fl, i32), clients(fl, f32))
    def f(a, b):
        return fl.federated_map(add, {"a": a, "b": b})

    return f


@program
def sums(fl):
    @fl.federated_computation(clients(fl, i32), clients(fl, (f32, [2, 3]), True))
    def f(a, b):
        return fl.federated_sum(a), fl.federated_sum(b), fl.federated_sum((a, b))

    return f


@program
def means(fl):
    @fl.federated_computation(clients(fl, [("w", f32), ("b", (f64, [None]))]), clients(fl, i32))
    def f(v, w):
        return fl.federated_mean(v), fl.federated_mean(v, w), fl.federated_mean(v, weight=w)

    return f


@program
def least_and_greatest(fl):
    @fl.federated_computation(clients(fl, (i32, f32)))
    def f(v):
        return fl.federated_min(v), fl.federated_max(v)

    return f


@program
def aggregate(fl):
    accumulate = add_up(fl)
    merge = fl.federated_computation(lambda a, b: a, i64, i64)
    report = fl.federated_computation(lambda a: (a, a), i64)

    @fl.federated_computation(clients(fl, i32))
    def f(v):
        zero = np.int64(0)
        return fl.federated_aggregate(v, zero, accumulate, merge, report)

    return f


@program
def aggregate_unnamed(fl):
    accumulate = fl.federated_computation(lambda x: x[0], fl.StructType([i64, i32]))
    merge = fl.federated_computation(lambda x: x[1], (i64, i64))
    report = fl.federated_computation(lambda a: a, i64)

    @fl.federated_computation(clients(fl, i32, True))
    def f(v):
        return fl.federated_aggregate(v, np.int64(0), accumulate, merge, report)

    return f


@program
def aggregate_polymorphic(fl):
    accumulate = fl.federated_computation(lambda x: x[0])
    merge = fl.federated_computation(lambda x: x[1])
    report = fl.federated_computation(lambda a: a)

    @fl.federated_computation(clients(fl, i32))
    def f(v):
        return fl.federated_aggregate(v, np.int64(0), accumulate, merge, report)

    return f


@program
def broadcast(fl):
    return fl.federated_computation(lambda v: fl.federated_broadcast(v), server(fl, [("a", i32)]))


@program
def broadcast_zipped(fl):
    @fl.federated_computation(server(fl, i32), server(fl, f32))
    def f(a, b):
        return fl.federated_broadcast([a, b])

    return f


@program
def evaluate(fl):
    one = fl.federated_computation(lambda: {"a": 1})

    @fl.federated_computation
    def f():
        return fl.federated_eval(one, fl.CLIENTS), fl.federated_eval(one, fl.SERVER)

    return f


@program
def values(fl):
    @fl.federated_computation
    def f():
        a = fl.federated_value(1, fl.CLIENTS)
        b = fl.federated_value([1.5, {"a": np.array([1, 2])}], fl.SERVER)
        return a, b

    return f


@program
def zips(fl):
    @fl.federated_computation(clients(fl, i32), clients(fl, f32, True))
    def f(a, b):
        return [
            fl.federated_zip([a, b]),
            fl.federated_zip({"p": a, "q": b}),
            fl.federated_zip((a, [b, (a,)])),
            fl.federated_zip([a]),
            fl.federated_zip([b, b]),
        ]

    return f


@program
def zips_at_server(fl):
    @fl.federated_computation(server(fl, i32), server(fl, f32))
    def f(a, b):
        return fl.federated_zip([a, b]), fl.federated_zip({"p": a, "q": [b]})

    return f


@program
def zip_of_a_parameter(fl):
    ty = fl.StructType([("a", clients(fl, i32)), ("b", clients(fl, f32))])
    return fl.federated_computation(lambda x: fl.federated_zip(x), ty)


@program
def secure_sums(fl):
    @fl.federated_computation(clients(fl, i32), clients(fl, [("a", i32), ("b", (i64, [2]))]))
    def f(a, b):
        return [
            fl.federated_secure_sum(a, 100),
            fl.federated_secure_sum(b, 100),
            fl.federated_secure_sum(b, {"a": 1, "b": 2}),
            fl.federated_secure_sum_bitwidth(a, 8),
            fl.federated_secure_sum_bitwidth(b, 8),
            fl.federated_secure_sum_bitwidth(b, {"a": 8, "b": np.int64(16)}),
        ]

    return f


@program
def selects(fl):
    named = fl.federated_computation(lambda state, key: state.b, [("a", i32), ("b", f32)], i32)
    unnamed = fl.federated_computation(
        lambda x: x[0], fl.StructType([fl.StructType([("a", i32), ("b", f32)]), i32])
    )
    polymorphic = fl.federated_computation(lambda x: x[1])
    state = fl.StructType([("a", i32), ("b", f32)])

    @fl.federated_computation(clients(fl, (i32, [3])), server(fl, i32), server(fl, state))
    def f(keys, max_key, state):
        return [
            fl.federated_select(keys, max_key, state, named),
            fl.federated_select(keys, max_key, state, unnamed),
            fl.federated_select(keys, max_key, state, polymorphic),
            fl.federated_secure_select(keys, max_key, state, named),
        ]

    return f


@program
def select_of_zipped(fl):
    pick = fl.federated_computation(lambda x: x[0][0])

    @fl.federated_computation(clients(fl, (i32, [3])), server(fl, i32), server(fl, f32))
    def f(keys, max_key, a):
        return fl.federated_select(keys, max_key, [a, a], pick)

    return f


@program
def sequences(fl):
    pair = fl.federated_computation(lambda x: (x, x), i32)

    @fl.federated_computation(fl.SequenceType(i32))
    def f(s):
        total = fl.sequence_reduce(s, np.int64(0), add_up(fl))
        return fl.sequence_map(pair, s), fl.sequence_sum(s), total

    return f


@program
def sequences_at_clients(fl):
    pair = fl.federated_computation(lambda x: (x, x), i32)

    @fl.federated_computation(clients(fl, fl.SequenceType(i32)))
    def f(s):
        return fl.sequence_map(pair, s), fl.sequence_sum(s)

    return f


@program
def sequences_at_server(fl):
    pair = fl.federated_computation(lambda x: (x, x), i32)

    @fl.federated_computation(server(fl, fl.SequenceType(i32)))
    def f(s):
        zero = fl.federated_value(np.int64(0), fl.SERVER)
        total = fl.sequence_reduce(s, zero, add_up(fl))
        return fl.sequence_map(pair, s), fl.sequence_sum(s), total

    return f


@program
def averaging(fl):
    """Several operations one after another."""
    model = fl.StructType([("w", (f32, [3])), ("b", f32)])
    train = fl.federated_computation(lambda m, d: m, model, fl.SequenceType(f32))
    count = fl.federated_computation(lambda d: 1.0, fl.SequenceType(f32))

    @fl.federated_computation(server(fl, model), clients(fl, fl.SequenceType(f32)))
    def step(state, data):
        there = fl.federated_broadcast(state)
        trained = fl.federated_map(train, (there, data))
        weight = fl.federated_map(count, data)
        return fl.federated_mean(trained, weight), fl.federated_sum(weight)

    return step


# Conversions.


@program
def infer_types(fl):
    infer = framework(fl).infer_type
    objects = [
        1,
        2**40,
        True,
        1.5,
        2j,
        "a",
        b"a",
        np.int8(1),
        np.zeros((2, 3), np.float16),
        [1, 2.0],
        (1,),
        {"a": 1},
        collections.OrderedDict(a=1),
        Point(1, 2.0),
        [],
        (),
        [("a", 1)],
        [("a", 1), ("b", 2)],
        [("a", 1), 2],
        None,
    ]
    return [repr(infer(x)) for x in objects]


@program
def values_of_declared_types(fl):
    to = fl.to_type
    return [
        str(fl.to_value(x, ty))
        for x, ty in [
            (1, to(i64)),
            (1.5, to(f64)),
            ((1, 2), to((i32, i32))),
            ({"a": 1}, to([("a", i32)])),
            (np.array([1, 2]), fl.TensorType(i64, [None])),
            (fl.CLIENTS, None),
        ]
    ]


@program
def structures_of_types(fl):
    make, to = framework(fl).structure_with_type, fl.to_type
    shapes = [
        to(i32),
        to((i32, [i32])),
        to({"a": i32, "b": (i32,)}),
        to(Point(i32, f32)),
        fl.StructType([i32, f32]),
        fl.StructType([("a", i32)]),
    ]
    return [repr(make(str, ty)) for ty in shapes]


@program
def packed_arguments(fl):
    pack, unpack = framework(fl).pack_args_into_struct, framework(fl).unpack_args_from_struct
    ty = [(None, i32), ("a", i32), ("b", i32)]
    return [
        str(pack([1], {"b": 3, "a": 2}, ty)),
        str(pack([1, 2], {"b": 3}, ty)),
        str(pack([1], {"b": 3, "a": 2})),
        str(unpack(pack([1], {"b": 3, "a": 2}))),
        str(unpack(fl.StructType(ty))),
    ]


@program
def unpacked_arguments(fl):
    unpack, wrap = framework(fl).unpack_arg, framework(fl).wrap_as_zero_or_one_arg_callable
    ty = fl.to_type({"a": i32, "b": i32})
    struct = framework(fl).pack_args_into_struct([], {"a": 1, "b": 2})
    whole, parts = (lambda x: ("whole", x)), (lambda a, b: ("parts", a, b))
    either = lambda a, b=None: ("either", a, b)  # noqa: E731
    return [
        unpack(whole, ty, struct),
        unpack(parts, ty, struct),
        wrap(parts, ty)(struct),
        wrap(whole, ty)(struct),
        wrap(lambda: 1)(),
        wrap(either, ty, True)(struct),
        wrap(either, ty)(struct),
        wrap(lambda *a, **k: (a, k), ty)(struct),
    ]


@program
def python_containers(fl):
    convert = framework(fl).type_to_py_container
    pack = framework(fl).pack_args_into_struct
    both, named = pack([1, 2], {}), pack([], {"x": 1, "y": 2})
    to = fl.to_type
    return [
        repr(convert(both, to([i32, i32]))),
        repr(convert(both, to((i32, i32)))),
        repr(convert(both, fl.StructType([i32, i32]))),
        repr(convert(named, to(Point(i32, i32)))),
        repr(convert(named, fl.StructType([("x", i32), ("y", i32)]))),
        repr(convert([both], clients(fl, (i32, i32)))),
        repr(convert([both], fl.SequenceType((i32, i32)))),
        repr(convert(5, to(i32))),
        repr(convert(both, server(fl, (i32, i32)))),
    ]


def framework(fl):
    return __import__(f"{fl.__name__}.framework", fromlist=["framework"])
