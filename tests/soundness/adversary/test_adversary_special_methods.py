"""A user's special methods, found by C code."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from ..objects import Equal, Node, X
from ..probe import Probe, Steps, right_after, two_worlds


@right_after
def test_eq_in_list_membership() -> Steps:
    items = [Equal(1), Equal(2)]
    yield (lambda x: x if Equal(2) in items else -x), (X,)
    items[1].n = 5
    yield None


@right_after
def test_eq_in_tuple_comparison() -> Steps:
    item = Equal(1)
    yield (lambda x: x if (1, item) == (1, Equal(1)) else -x), (X,)
    item.n = 5
    yield None


@right_after
def test_eq_patched_between_calls() -> Steps:
    class A:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    a, b = A(), A()
    yield (lambda x: x if (a,) == (b,) else -x), (X,)
    A.__eq__ = lambda self, other: False  # type: ignore[method-assign]
    yield None


@right_after
def test_eq_appears() -> Steps:
    class A:
        pass

    a, b = A(), A()
    yield (lambda x: x if a == b or [a] == [b] else -x), (X,)
    A.__eq__ = lambda self, other: True  # type: ignore[method-assign,assignment]
    yield None


@right_after
def test_hash_and_eq_in_dict() -> Steps:
    key = Equal(1)
    table = {key: 3}
    yield (lambda x: x * table.get(Equal(1), 7)), (X,)
    key.n = 5
    yield None


@right_after
def test_hash_and_eq_in_fresh_dict() -> Steps:
    key = Equal(1)

    def fn(x: Tensor) -> Tensor:
        return x * {key: 3}.get(Equal(1), 7)

    yield fn, (X,)
    key.n = 5
    yield None


@right_after
def test_eq_in_fresh_set() -> Steps:
    key = Equal(1)
    yield (lambda x: x * len({key, Equal(1), Equal(2)})), (X,)
    key.n = 2
    yield None
    key.n = 3
    yield None


@right_after
def test_lt_in_sorted() -> Steps:
    class Rank:
        def __init__(self, n: int) -> None:
            self.n = n

        def __lt__(self, other: Rank) -> bool:
            return self.n < other.n

    ranks = [Rank(2), Rank(1), Rank(3)]
    yield (lambda x: x * sorted(ranks)[0].n + min(ranks).n * 10), (X,)
    ranks[0].n = 0
    yield None
    Rank.__lt__ = lambda self, other: self.n > other.n  # type: ignore[method-assign]
    yield None


@right_after
def test_sort_key_reads() -> Steps:
    weight = {"a": 1, "b": 2}
    yield (
        (
            lambda x: (
                x * len(sorted("ab", key=weight.get)[0] + "z") + (min("ab", key=weight.get) == "a")
            )
        ),
        (X,),
    )
    weight["a"] = 5
    yield None


@right_after
def test_bool_and_len() -> Steps:
    class A:
        def __len__(self) -> int:
            return 0

    a = A()
    yield (lambda x: x if a else -x), (X,)
    A.__bool__ = lambda self: True  # type: ignore[attr-defined]
    yield None


@right_after
def test_bool_in_any() -> Steps:
    class A:
        def __init__(self, n: int) -> None:
            self.n = n

        def __bool__(self) -> bool:
            return self.n > 0

    items = [A(0), A(0)]
    yield (lambda x: x if any(items) else -x), (X,)
    items[1].n = 1
    yield None


@right_after
def test_bool_appears_on_an_element_of_a_tuple() -> Steps:
    class A:
        pass

    items = (A(), A())
    yield (lambda x: x if all(items) else -x), (X,)
    A.__bool__ = lambda self: False  # type: ignore[attr-defined]
    yield None


@right_after
def test_index_and_float() -> Steps:
    class Size:
        def __init__(self, n: int) -> None:
            self.n = n

        def __index__(self) -> int:
            return self.n

        def __float__(self) -> float:
            return self.n * 1.5

    size = Size(1)

    def fn(x: Tensor) -> Tensor:
        return x * [1, 2, 3][size] + float(size) + sum(range(size)) + int(size)

    yield fn, (X,)
    size.n = 2
    yield None
    Size.__float__ = lambda self: 9.0  # type: ignore[method-assign]
    yield None


@right_after
def test_iter_and_getitem() -> Steps:
    class Items:
        def __init__(self) -> None:
            self.values = [1, 2]

        def __getitem__(self, index: int) -> int:
            return self.values[index]

    items = Items()
    yield (lambda x: x * sum(items)), (X,)  # type: ignore[call-overload]
    items.values.append(3)
    yield None
    Items.__iter__ = lambda self: iter([5])  # type: ignore[attr-defined]
    yield None


@right_after
def test_contains_appears() -> Steps:
    class Items:
        def __iter__(self) -> Any:
            return iter([1, 2])

    items = Items()
    yield (lambda x: x if 3 in items else -x), (X,)
    Items.__contains__ = lambda self, item: True  # type: ignore[attr-defined]
    yield None


@right_after
def test_format_of_instance() -> Steps:
    class A:
        def __init__(self) -> None:
            self.n = 1

        def __format__(self, spec: str) -> str:
            return "x" * self.n

    a = A()
    yield (lambda x: x * len(f"{a}")), (X,)
    a.n = 4
    yield None


@right_after
def test_str_join_of_instances() -> Steps:
    class A:
        def __init__(self) -> None:
            self.n = 1

        def __str__(self) -> str:
            return "x" * self.n

    a = A()
    yield (lambda x: x * len("{} {}".format(a, 1)) + len("%s" % a) + len(str([str(a)]))), (X,)
    a.n = 4
    yield None


@right_after
def test_text_of_container_of_instances() -> Steps:
    class A:
        def __init__(self) -> None:
            self.n = 1

        def __repr__(self) -> str:
            return "x" * self.n

    a = A()
    yield (lambda x: x * len(str([a]))), (X,)
    a.n = 4
    yield None


@right_after
def test_instance_check_of_metaclass() -> Steps:
    class Meta(type):
        answer = True

        def __instancecheck__(cls, instance: object) -> bool:
            return cls.answer

    class A(metaclass=Meta):
        pass

    yield (lambda x, o: x if isinstance(o, A) else -x), (X, 3)
    Meta.answer = False
    yield None


@right_after
def test_abstract_class_registers() -> Steps:
    class Base(metaclass=__import__("abc").ABCMeta):
        pass

    class Other:
        pass

    yield (lambda x, o: x if isinstance(o, Base) else -x), (X, Other())
    Base.register(Other)
    yield X, Other()


@right_after
def test_subclass_hook() -> Steps:
    class Base(metaclass=__import__("abc").ABCMeta):
        @classmethod
        def __subclasshook__(cls, other: type) -> bool:
            return hasattr(other, "quack")

    class Duck:
        pass

    yield (lambda x, o: x if isinstance(o, Base) else -x), (X, Duck())


@right_after
def test_runtime_protocol() -> Steps:
    from typing import Protocol, runtime_checkable

    @runtime_checkable
    class Sized(Protocol):
        size: int

    node = Node(1)
    yield (lambda x: x if isinstance(node, Sized) else -x), (X,)
    node.size = 3  # type: ignore[attr-defined]
    yield None


@right_after
def test_class_property_lies() -> Steps:
    class A:
        def __init__(self) -> None:
            self.kind: Any = int

        @property
        def __class__(self) -> Any:  # type: ignore[override]
            return self.kind

    a = A()
    yield (lambda x: x if isinstance(a, int) else -x), (X,)
    a.kind = str
    yield None


class Behind:
    """Hides what it has behind a `__getattribute__` of its own, as wrappers and proxies do."""

    __slots__ = ("__dict__", "inner")

    def __init__(self, inner: Any) -> None:
        object.__setattr__(self, "inner", inner)

    def __getattribute__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "inner"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "inner"), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(object.__getattribute__(self, "inner"), name)

    @property
    def doubled(self) -> Any:
        return object.__getattribute__(self, "inner").n * 2


PAST = ["inner", "__class__", "__dict__", "__doc__", "doubled", "__len__", "missing"]


@pytest.mark.parametrize("name", PAST)
def test_past_a_getattribute(name: str) -> None:
    """`object.__getattribute__` finds what the object itself has: slots, C attributes, properties."""
    behind = Behind(Node(3))

    def fn(x: Tensor) -> Any:
        try:
            found = object.__getattribute__(behind, name)
        except AttributeError as error:
            return x + 1, str(error)
        return x + 1, type(found).__name__, found is behind.n

    probe = Probe(fn)
    probe.right(X)
    probe.right(X)
    object.__setattr__(behind, "inner", Node(4))
    probe.right(X)


@two_worlds
def test_writes_past_a_getattribute() -> Steps:
    behind = Behind(Node(3))

    def fn(x: Tensor) -> Any:
        behind.n = behind.n + 1
        behind.seen = x
        del behind.seen
        return x * behind.n, hasattr(behind, "seen")

    yield fn, (X,)
    object.__setattr__(behind, "inner", Node(40))
    yield None


@right_after
def test_what_is_called_stands_in_a_slot() -> Steps:
    """Python calls what a slot named `__call__` holds."""

    class Called:
        __slots__ = ("__call__",)

    called = Called()
    called.__call__ = lambda x: x * 2  # type: ignore[method-assign]
    yield (lambda x: called(x) + 1), (X,)
    called.__call__ = lambda x: x * 3  # type: ignore[method-assign]
    yield None
    del called.__call__
    yield None
