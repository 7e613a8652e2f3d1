"""Objects of C types: their state is read by C code, where no attribute lookup shows it."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import fractions
import operator
import re
import types
from typing import Any

from torch import Tensor

from ..objects import Node, X
from ..probe import Steps, right_after


@right_after
def test_datetime_compared() -> Steps:
    day = datetime.datetime(2020, 1, 1)
    yield (lambda x, d: x if d == day else -x), (X, datetime.datetime(2020, 1, 1))
    yield X, datetime.datetime(2021, 1, 1)


@right_after
def test_date_field() -> Steps:
    yield (lambda x, d: x * d.year), (X, datetime.datetime(2020, 1, 1))
    yield X, datetime.datetime(2021, 1, 1)


@right_after
def test_timedelta_arithmetic() -> Steps:
    delta = datetime.timedelta
    yield (lambda x, d: x * (d + d).total_seconds()), (X, delta(seconds=2))
    yield X, delta(seconds=3)


@right_after
def test_deque_length() -> Steps:
    queue = collections.deque([1])
    yield (lambda x: x * len(queue)), (X,)
    queue.append(2)
    yield None


@right_after
def test_deque_truth() -> Steps:
    queue: Any = collections.deque()
    yield (lambda x: x if queue else -x), (X,)
    queue.append(2)
    yield None


@right_after
def test_deque_elements() -> Steps:
    queue = collections.deque([1, 2])
    yield (lambda x: x * sum(queue)), (X,)
    queue[0] = 5
    yield None


@right_after
def test_deque_item() -> Steps:
    queue = collections.deque([1, 2])
    yield (lambda x: x * queue[0]), (X,)
    queue[0] = 5
    yield None


@right_after
def test_deque_contains() -> Steps:
    queue = collections.deque([1, 2])
    yield (lambda x: x if 5 in queue else -x), (X,)
    queue[0] = 5
    yield None


@right_after
def test_deque_compared() -> Steps:
    queue = collections.deque([1, 2])
    yield (lambda x: x if queue == collections.deque([1, 2]) else -x), (X,)
    queue[0] = 5
    yield None


@right_after
def test_deque_unpacked() -> Steps:
    queue = collections.deque([1, 2])

    def fn(x: Tensor) -> Tensor:
        a, b = queue
        return x * a + b

    yield fn, (X,)
    queue[0] = 5
    yield None


@right_after
def test_deque_starred() -> Steps:
    queue = collections.deque([1, 2])
    yield (lambda x: x * max(*queue)), (X,)
    queue[0] = 5
    yield None


@right_after
def test_deque_extends_a_list() -> Steps:
    queue = collections.deque([1, 2])

    def fn(x: Tensor) -> Tensor:
        values: list[int] = []
        values.extend(queue)
        values += queue
        return x * sum(values)

    yield fn, (X,)
    queue[0] = 5
    yield None


@right_after
def test_array_item() -> Steps:
    numbers = array.array("d", [1.0, 2.0])
    yield (lambda x: x * numbers[0]), (X,)
    numbers[0] = 3.0
    yield None


@right_after
def test_array_sum() -> Steps:
    numbers = array.array("d", [1.0, 2.0])
    yield (lambda x: x * sum(numbers)), (X,)
    numbers[0] = 3.0
    yield None


@right_after
def test_bytearray_item() -> Steps:
    numbers = bytearray(b"\x01\x02")
    yield (lambda x: x * numbers[0]), (X,)
    numbers[0] = 3
    yield None


@right_after
def test_decimal_arithmetic() -> Steps:
    yield (lambda x, d: x * float(d + 1)), (X, decimal.Decimal(1))
    yield X, decimal.Decimal(2)


@right_after
def test_decimal_truth() -> Steps:
    yield (lambda x, d: x if d else -x), (X, decimal.Decimal(1))
    yield X, decimal.Decimal(0)


@right_after
def test_decimal_int() -> Steps:
    yield (lambda x, d: x * int(d)), (X, decimal.Decimal(1))
    yield X, decimal.Decimal(4)


@right_after
def test_decimal_formatted() -> Steps:
    yield (lambda x, d: x * len(f"{d}")), (X, decimal.Decimal(1))
    yield X, decimal.Decimal(400)


@right_after
def test_fraction() -> Steps:
    yield (lambda x, d: x * float(d * 2)), (X, fractions.Fraction(1, 2))
    yield X, fractions.Fraction(1, 3)


@right_after
def test_pattern() -> Steps:
    yield (lambda x, p: x if p.match("abc") else -x), (X, re.compile("a"))
    yield X, re.compile("b")


@right_after
def test_pattern_compared() -> Steps:
    wanted = re.compile("a")
    yield (lambda x, p: x if p == wanted else -x), (X, re.compile("a"))
    yield X, re.compile("b")


@right_after
def test_slice_of_objects() -> Steps:
    yield (lambda x, s: x[s]), (X, slice(0, 2))
    yield X, slice(1, 3)


@right_after
def test_simple_namespace() -> Steps:
    space = types.SimpleNamespace(n=2)
    yield (lambda x: x * space.n), (X,)
    space.n = 3
    yield None


@right_after
def test_simple_namespace_compared() -> Steps:
    space = types.SimpleNamespace(n=2)
    yield (lambda x: x if space == types.SimpleNamespace(n=2) else -x), (X,)
    space.n = 3
    yield None


@right_after
def test_mapping_proxy() -> Steps:
    table = {"a": 1}
    proxy = types.MappingProxyType(table)
    yield (lambda x: x * proxy["a"]), (X,)
    table["a"] = 3
    yield None


@right_after
def test_mapping_proxy_length() -> Steps:
    table = {"a": 1}
    proxy = types.MappingProxyType(table)
    yield (lambda x: x * len(proxy) if proxy else x), (X,)
    table["b"] = 3
    yield None


@right_after
def test_mapping_proxy_made_inside() -> Steps:
    table = {"a": 1}

    def fn(x: Tensor) -> Tensor:
        proxy = types.MappingProxyType(table)
        return x * proxy["a"] * len(proxy) * sum(proxy.values()) + ("b" in proxy)

    yield fn, (X,)
    table["a"] = 3
    yield None
    table["b"] = 4
    yield None


@right_after
def test_class_dictionary() -> Steps:
    class A:
        n = 1

    yield (lambda x: x * A.__dict__["n"]), (X,)
    A.n = 2
    yield None


@right_after
def test_views_from_outside() -> Steps:
    table = {"a": 1}
    keys, values = table.keys(), table.values()

    def fn(x: Tensor) -> Tensor:
        return x * len(keys) * sum(values) + (keys == {"a"}) + bool(keys)

    yield fn, (X,)
    table["b"] = 4
    yield None


@right_after
def test_view_operators() -> Steps:
    table = {"a": 1}
    keys = table.keys()
    yield (lambda x: x * len(keys & {"a", "b"})), (X,)
    table["b"] = 4
    yield None


@right_after
def test_method_getters_from_outside() -> Steps:
    get = operator.itemgetter(0)
    name = operator.attrgetter("n")
    values, node = [1, 2], Node(3)
    yield (lambda x: x * get(values) * name(node)), (X,)
    values[0] = 5
    yield None
    node.n = 7
    yield None


@right_after
def test_bound_builtin_of_outside_list() -> Steps:
    values = [1, 2]
    count, index = values.count, values.__getitem__
    yield (lambda x: x * count(1) * index(0)), (X,)
    values[0] = 5
    yield None


@right_after
def test_bound_get_of_outside_dict() -> Steps:
    table = {"a": 1}
    get = table.get
    yield (lambda x: x * get("a", 0) + get("b", 9)), (X,)
    table["b"] = 2
    yield None
    table["a"] = 2
    yield None


@right_after
def test_deque_methods() -> Steps:
    queue = collections.deque([1, 2])
    yield (lambda x: x * queue.count(1) + queue.index(2)), (X,)
    queue.appendleft(1)
    yield None


@right_after
def test_deque_copied() -> Steps:
    queue = collections.deque([1, 2])
    yield (lambda x: x * sum(list(queue.copy()))), (X,)
    queue.appendleft(1)
    yield None


@right_after
def test_dict_subclasses() -> Steps:
    counter = collections.Counter("aab")
    ordered = collections.OrderedDict(a=1, b=2)
    chain = collections.ChainMap({"a": 1}, {"b": 2})

    def fn(x: Tensor) -> Tensor:
        return (
            x * counter["a"] + counter["zz"] + list(ordered.values())[0] + chain["b"] + len(chain)
        )

    yield fn, (X,)
    counter["a"] = 7
    yield None
    counter["zz"] = 3
    yield None
    ordered.move_to_end("a")
    yield None
    chain["b"] = 10
    yield None


@right_after
def test_default_dict() -> Steps:
    table: Any = collections.defaultdict(lambda: 3, a=1)
    yield (lambda x: x * table["a"] + table.get("b", 5)), (X,)
    table["b"] = 2
    yield None
