"""Guards on containers, attributes, classes and methods: both ways."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections import OrderedDict, deque, namedtuple
from typing import Any

import torch
from torch import Tensor

from ..probe import Steps, flip, right_after, same

X = torch.ones(3)
T = torch.ones(3)


class A:
    """A class whose pieces are replaced below."""

    k = 2

    def __init__(self) -> None:
        self.n = 3

    def run(self, x: Tensor) -> Tensor:
        return x * self.n + self.k


@flip
def test_list_length() -> Steps:
    items = [1, 2]
    yield (lambda x: x * len(items)), (X,)
    items.append(3)
    yield None
    items.pop()
    yield None


@flip
def test_list_order() -> Steps:
    items = [1, 2]
    yield (lambda x: x * items[0]), (X,)
    items.reverse()
    yield None
    items.reverse()
    yield None


@flip
def test_list_element_type() -> Steps:
    items: list[Any] = [1, 2]
    yield (lambda x: (x, items[0] + 1)), (X,)
    items[0] = 1.0
    yield None
    items[0] = 1
    yield None


@flip
def test_list_becomes_tuple() -> Steps:
    holder: dict[str, Any] = {"items": [1, 2]}
    yield (lambda x: (x, type(holder["items"]).__name__)), (X,)
    holder["items"] = (1, 2)
    yield None
    holder["items"] = [1, 2]
    yield None


@flip
def test_nested_list() -> Steps:
    items = [[1], [[2], 3]]
    yield (lambda x: x * items[1][0][0]), (X,)  # type: ignore[index]
    items[1][0][0] = 5  # type: ignore[index]
    yield None
    items[1][0][0] = 2  # type: ignore[index]
    yield None


@flip
def test_dict_value() -> Steps:
    d = {"a": {"b": 2}}
    yield (lambda x: x * d["a"]["b"]), (X,)
    d["a"]["b"] = 3
    yield None
    d["a"] = {"b": 2}
    yield None


@flip
def test_dict_items() -> Steps:
    d = {"a": 2, "b": 1}
    yield (lambda x: (x * sum(d.values()), list(d.items()))), (X,)
    d["b"] = 7
    yield None
    d["b"] = 1
    yield None


@flip
def test_ordered_dict_moves() -> Steps:
    d = OrderedDict(a=2, b=1)
    yield (lambda x: (x, list(d))), (X,)
    d.move_to_end("a")
    yield None
    d.move_to_end("b")
    yield None


@right_after
def test_deque() -> Steps:
    q = deque([1, 2, 3], maxlen=3)
    yield (lambda x: x * q[0] + len(q) + sum(q)), (X,)
    q.append(9)
    yield None
    q.rotate()
    yield None


@right_after
def test_bytearray_and_memoryview() -> Steps:
    data = bytearray(b"abc")
    yield (lambda x: x * data[0] + len(data)), (X,)
    data[0] = 1
    yield None
    data.extend(b"z")
    yield None


@flip
def test_tensor_in_a_list_replaced_by_another_shape() -> Steps:
    items = [torch.ones(3)]
    first = items[0]
    yield (lambda x: (x.sum() + items[0]).shape), (X,)
    items[0] = torch.ones(5)
    yield None
    items[0] = first
    yield None


@same
def test_tensor_in_a_list_replaced_by_its_like() -> Steps:
    items = [torch.ones(3)]
    yield (lambda x: x + items[0]), (X,)
    items[0] = torch.full((3,), 5.0)
    yield None
    items[0].add_(1)
    yield None


@flip
def test_attribute_value() -> Steps:
    a = A()
    yield (lambda x: a.run(x)), (X,)
    a.n = 4
    yield None
    a.n = 3
    yield None


@flip
def test_class_attribute() -> Steps:
    a = A()
    yield (lambda x: a.run(x)), (X,)
    A.k = 9
    yield None
    A.k = 2
    yield None


@flip
def test_method_replaced_on_class() -> Steps:
    a = A()
    original = A.run
    yield (lambda x: a.run(x)), (X,)
    A.run = lambda self, x: x - self.n  # type: ignore[method-assign, assignment]
    yield None
    A.run = original  # type: ignore[method-assign]
    yield None


@flip
def test_method_replaced_on_base() -> Steps:
    class Base:
        def run(self, x: Tensor) -> Tensor:
            return x * 2

    class Child(Base):
        def run(self, x: Tensor) -> Tensor:
            return super().run(x) + 1

    c = Child()
    original = Base.run
    yield (lambda x: c.run(x)), (X,)
    Base.run = lambda self, x: x * 5  # type: ignore[method-assign, assignment]
    yield None
    Base.run = original  # type: ignore[method-assign]
    yield None


@flip
def test_class_assigned() -> Steps:
    class B(A):
        k = 20

    a = A()
    yield (lambda x: a.run(x)), (X,)
    a.__class__ = B
    yield None
    a.__class__ = A
    yield None


@flip
def test_bases_assigned() -> Steps:
    class One:
        k = 1

    class Two:
        k = 2

    class Child(One):
        pass

    c = Child()
    yield (lambda x: x * c.k), (X,)
    Child.__bases__ = (Two,)
    yield None
    Child.__bases__ = (One,)
    yield None


@flip
def test_dict_of_instance_replaced() -> Steps:
    a = A()
    before = a.__dict__
    yield (lambda x: a.run(x)), (X,)
    a.__dict__ = {"n": 8}
    yield None
    a.__dict__ = before
    yield None


@flip
def test_property_replaced() -> Steps:
    class P:
        @property
        def v(self) -> int:
            return 2

    p = P()
    original = P.v
    yield (lambda x: x * p.v), (X,)
    P.v = property(lambda self: 3)  # type: ignore[assignment, method-assign]
    yield None
    P.v = original  # type: ignore[method-assign]
    yield None


@flip
def test_metaclass_attribute() -> Steps:
    class Meta(type):
        level = 2

    class M(metaclass=Meta):
        pass

    yield (lambda x: x * M.level), (X,)
    Meta.level = 3
    yield None
    Meta.level = 2
    yield None


@flip
def test_special_method_replaced() -> Steps:
    class S:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> int:
            return i

    s = S()
    original = S.__len__
    yield (lambda x: x * len(s) + s[1]), (X,)
    S.__len__ = lambda self: 7  # type: ignore[method-assign, assignment]
    yield None
    S.__len__ = original  # type: ignore[method-assign]
    yield None


@flip
def test_slot_value() -> Steps:
    class S:
        __slots__ = ("n",)

    s = S()
    s.n = 2
    yield (lambda x: x * s.n), (X,)
    s.n = 3
    yield None
    s.n = 2
    yield None


@flip
def test_dataclass_field() -> Steps:
    @dataclasses.dataclass
    class D:
        n: int = 2

    d = D()
    yield (lambda x: x * d.n), (X,)
    d.n = 3
    yield None
    d.n = 2
    yield None


@flip
def test_named_tuple() -> Steps:
    pair = namedtuple("pair", "a b")
    held = [pair(1, 2)]
    yield (lambda x: x * held[0].b), (X,)
    held[0] = pair(1, 3)
    yield None
    held[0] = pair(1, 2)
    yield None


@flip
def test_enum_member() -> Steps:
    class Color(enum.Enum):
        RED = 1
        BLUE = 2

    held = [Color.RED]
    yield (lambda x: x * held[0].value), (X,)
    held[0] = Color.BLUE
    yield None
    held[0] = Color.RED
    yield None


@flip
def test_python_module_attribute() -> Steps:
    module = types.ModuleType("made")
    module.K = 2  # type: ignore[attr-defined]
    yield (lambda x: x * module.K), (X,)
    module.K = 3  # type: ignore[attr-defined]
    yield None
    module.K = 2  # type: ignore[attr-defined]
    yield None


@flip
def test_function_of_a_patched_library_module() -> Steps:
    original = torch.relu
    yield (lambda x: torch.relu(x) + 1), (X,)
    torch.relu = lambda x: x * 50
    yield None
    torch.relu = original
    yield None


@flip
def test_other_object_of_other_class() -> Steps:
    class B:
        n = 3

        def run(self, x: Tensor) -> Tensor:
            return x - 1

    a: Any = A()
    held = [a]
    yield (lambda x: held[0].run(x)), (X,)
    held[0] = B()
    yield None
    held[0] = a
    yield None


@right_after
def test_equal_object_of_same_class() -> Steps:
    held = [A()]
    yield (lambda x: held[0].run(x)), (X,)
    held[0] = A()
    yield None
    held[0].n = 10
    yield None


@flip
def test_simple_namespace() -> Steps:
    space = types.SimpleNamespace(a=1)
    yield (lambda x: x * space.a), (X,)
    space.a = 2
    yield None
    space.a = 1
    yield None


@right_after
def test_mapping_proxy() -> Steps:
    d = {"a": 1}
    view = types.MappingProxyType(d)
    yield (lambda x: x * view["a"]), (X,)
    d["a"] = 2
    yield None
    d["a"] = 1
    yield None


@flip
def test_same_list_twice() -> Steps:
    one: list[int] = [1]
    held = [one, one]

    def fn(x: Tensor) -> Tensor:
        return x * 2 if held[0] is held[1] else x

    yield fn, (X,)
    held[1] = [1]
    yield None
    held[1] = one
    yield None


@flip
def test_same_object_in_two_attributes() -> Steps:
    a, b = A(), A()
    a.left = a.right = b  # type: ignore[attr-defined]
    yield (lambda x: x * 2 if a.left is a.right else x), (X,)  # type: ignore[attr-defined]
    a.right = A()  # type: ignore[attr-defined]
    yield None
    a.right = b  # type: ignore[attr-defined]
    yield None


@flip
def test_same_tensor_for_two_arguments() -> Steps:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = x + 0
        w = z if x is y else y + 0
        w.add_(1)
        return z, w

    a, b = torch.ones(3), torch.ones(3)
    yield fn, (a, a)
    yield a, b
    yield b, b


@right_after
def test_write_seen_through_the_other_argument() -> Steps:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x.mul_(2)
        seen = x * 1, y * 1
        x.div_(2)
        return seen

    a, b = torch.ones(3), torch.ones(3)
    yield fn, (a, b)
    yield b, b
    yield a, b


@right_after
def test_overlapping_views() -> Steps:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x.add_(1)
        seen = x * 1, y * 1
        x.sub_(1)
        return seen

    base = torch.zeros(6)
    yield fn, (base[:3], torch.zeros(3))
    yield base[:3], base[1:4]
    yield base[:3], base[:3]


@flip
def test_global_tensor_is_also_the_argument() -> Steps:
    def fn(x: Tensor) -> Tensor:
        return x * 2 if x is T else x * 3

    yield fn, (T,)
    yield (torch.ones(3),)
    yield (T,)


@same
def test_counter_beside_what_is_read() -> Steps:
    a = A()
    a.steps = 0  # type: ignore[attr-defined]
    yield (lambda x: a.run(x)), (X,)
    for _ in range(10):
        a.steps += 1  # type: ignore[attr-defined]
        yield None


@same
def test_values_written_again() -> Steps:
    a = A()
    d = {"a": 1}
    items = [1, 2]
    yield (lambda x: a.run(x) * d["a"] + items[1]), (X,)
    a.n = 3
    A.k = 2
    d["a"] = 1
    items[1] = 2
    yield None


@same
def test_unrelated_class_attribute() -> Steps:
    a = A()
    yield (lambda x: a.run(x)), (X,)
    A.unrelated = 5  # type: ignore[attr-defined]
    yield None
    del A.unrelated  # type: ignore[attr-defined]
    yield None


@same
def test_fresh_containers_of_equal_content() -> Steps:
    def fn(x: Tensor, items: Any, d: Any) -> Tensor:
        return x * items[0] + d["a"][1]

    yield fn, (X, [1, 2], {"a": (1, 2)})
    yield X, [1, 2], {"a": (1, 2)}
    yield torch.zeros(3), [1, 2], {"a": (1, 2)}
