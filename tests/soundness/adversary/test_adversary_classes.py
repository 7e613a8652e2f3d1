"""Classes, descriptors and functions that change between calls."""

from __future__ import annotations

import inspect
import types
from typing import Any

from torch import Tensor

from ..objects import X
from ..probe import Steps, right_after, two_worlds


@right_after
def test_class_is_assigned() -> Steps:
    class A:
        n = 1

    class B:
        n = 2

    a = A()
    yield (lambda x: x * a.n), (X,)
    a.__class__ = B  # type: ignore[assignment]
    yield None


@two_worlds
def test_class_is_assigned_inside() -> Steps:
    class A:
        n = 1

    class B:
        n = 2

    a = A()

    def fn(x: Tensor) -> Tensor:
        before = a.n
        a.__class__ = B  # type: ignore[assignment]
        return x * before + a.n * 10

    yield fn, (X,)
    a.__class__ = A
    yield None


@two_worlds
def test_class_attribute_written_inside() -> Steps:
    class A:
        n = 1

    def fn(x: Tensor) -> Tensor:
        A.n += 1
        return x * A.n

    yield fn, (X,)
    A.n = 10
    yield None


@two_worlds
def test_slot_written_inside() -> Steps:
    class A:
        __slots__ = ("n",)

    a = A()
    a.n = 1

    def fn(x: Tensor) -> Tensor:
        a.n += 1
        return x * a.n

    yield fn, (X,)
    a.n = 10
    yield None


@right_after
def test_super_sees_a_new_method() -> Steps:
    class Base:
        def f(self) -> int:
            return 1

    class Middle(Base):
        pass

    class Last(Middle):
        def f(self) -> int:
            return super().f() * 10

    last = Last()
    yield (lambda x: x * last.f()), (X,)
    Middle.f = lambda self: 2  # type: ignore[method-assign]
    yield None


@right_after
def test_super_of_missing_attribute() -> Steps:
    class Base:
        pass

    class Last(Base):
        def f(self) -> int:
            return getattr(super(), "n", 5)

    last = Last()
    yield (lambda x: x * last.f()), (X,)
    Base.n = 2  # type: ignore[attr-defined]
    yield None


@right_after
def test_bases_change() -> Steps:
    class A:
        n = 1

    class B:
        n = 2

    class C(A):
        pass

    c = C()
    yield (lambda x: x * c.n + len(C.__mro__) + (C.__bases__[0] is A)), (X,)
    C.__bases__ = (B,)
    yield None


@right_after
def test_data_descriptor_appears() -> Steps:
    class A:
        def __init__(self) -> None:
            self.n = 1

    a = A()
    yield (lambda x: x * a.n), (X,)
    A.n = property(lambda self: 7)  # type: ignore[assignment]
    yield None


@right_after
def test_set_appears_on_a_descriptor() -> Steps:
    class D:
        def __get__(self, instance: Any, owner: Any) -> int:
            return 7

    class A:
        n = D()

    a = A()
    a.__dict__["n"] = 1
    yield (lambda x: x * a.n), (X,)
    D.__set__ = lambda self, instance, value: None  # type: ignore[attr-defined]
    yield None


@right_after
def test_get_appears_on_a_class_value() -> Steps:
    class D:
        n = 5

    class A:
        d = D()

    a = A()

    def fn(x: Tensor) -> Tensor:
        d = a.d
        return x * (d if isinstance(d, int) else d.n)

    yield fn, (X,)
    D.__get__ = lambda self, instance, owner: 9  # type: ignore[attr-defined]
    yield None


@right_after
def test_getattr_appears() -> Steps:
    class A:
        pass

    a = A()
    yield (lambda x: x * getattr(a, "n", 3)), (X,)
    A.__getattr__ = lambda self, name: 5  # type: ignore[attr-defined]
    yield None


@right_after
def test_getattribute_appears() -> Steps:
    class A:
        n = 1

    a = A()
    yield (lambda x: x * a.n), (X,)
    A.__getattribute__ = lambda self, name: 5  # type: ignore[method-assign,assignment]
    yield None


@right_after
def test_call_replaced() -> Steps:
    class A:
        def __call__(self, x: Tensor) -> Tensor:
            return x

    a = A()
    yield (lambda x: a(x)), (X,)
    A.__call__ = lambda self, x: -x  # type: ignore[method-assign]
    yield None


@right_after
def test_new_and_init_replaced() -> Steps:
    class A:
        def __init__(self, n: int) -> None:
            self.n = n

    def init(self: Any, n: int) -> None:
        self.n = n * 2

    yield (lambda x: x * A(3).n), (X,)
    A.__init__ = init  # type: ignore[method-assign]
    yield None


@right_after
def test_metaclass_call() -> Steps:
    class Meta(type):
        pass

    class A(metaclass=Meta):
        n = 1

    yield (lambda x: x * A().n), (X,)
    Meta.__call__ = lambda cls: types.SimpleNamespace(n=4)  # type: ignore[assignment,method-assign]
    yield None


@right_after
def test_code_of_a_helper_is_replaced() -> Steps:
    def helper(x: Tensor) -> Tensor:
        return x + 1

    def other(x: Tensor) -> Tensor:
        return x + 2

    yield (lambda x: helper(x)), (X,)
    helper.__code__ = other.__code__
    yield None


@right_after
def test_code_of_a_method_through_c() -> Steps:
    def helper(n: int) -> int:
        return n + 1

    def other(n: int) -> int:
        return n + 2

    yield (lambda x: x * sum(map(helper, [1, 2]))), (X,)
    helper.__code__ = other.__code__
    yield None


@right_after
def test_closure_cell_changes() -> Steps:
    n = 1

    def change(value: int) -> None:
        nonlocal n
        n = value

    yield (lambda x: x * n), (X,)
    change(2)
    yield None


@right_after
def test_same_code_other_closure() -> Steps:
    def make(n: int) -> Any:
        return lambda x: x * n

    yield (lambda x, f: f(x)), (X, make(2))
    yield X, make(3)
    yield X, make(3)


@right_after
def test_same_code_other_defaults() -> Steps:
    def make(k: int) -> Any:
        def inner(x: Tensor, n: int = k) -> Tensor:
            return x * n + (0 if k else 0)

        return inner

    yield (lambda x, f: f(x)), (X, make(2))
    yield X, make(3)


@right_after
def test_function_attributes() -> Steps:
    def helper() -> None: ...

    helper.n = 1  # type: ignore[attr-defined]
    yield (lambda x: x * helper.n), (X,)  # type: ignore[attr-defined]
    helper.n = 2  # type: ignore[attr-defined]
    yield None


@right_after
def test_function_fields() -> Steps:
    def helper(a: int, b: int = 2, *, c: int = 3) -> None: ...

    def fn(x: Tensor) -> Tensor:
        c = (helper.__kwdefaults__ or {"c": 0})["c"]
        return x * len(helper.__name__) + len(helper.__defaults__ or ()) + c

    yield fn, (X,)
    helper.__name__ = "longer_name"
    yield None
    helper.__defaults__ = (1, 2)
    yield None
    helper.__defaults__ = None
    yield None
    helper.__kwdefaults__["c"] = 9
    yield None
    helper.__kwdefaults__ = None  # type: ignore[assignment]
    yield None


@right_after
def test_function_doc_and_annotations() -> Steps:
    def helper(a: int) -> None:
        """Text."""

    def fn(x: Tensor) -> Tensor:
        return x * len(helper.__doc__ or "") + len(helper.__annotations__)

    yield fn, (X,)
    helper.__doc__ = "Longer text."
    yield None
    helper.__annotations__["b"] = int
    yield None


@right_after
def test_class_name() -> Steps:
    class A:
        """Text."""

    yield (lambda x: x * len(A.__name__) + len(A.__qualname__) + len(A.__doc__ or "")), (X,)
    A.__doc__ = None
    yield None


@right_after
def test_signature() -> Steps:
    def helper(a: int, b: int = 2) -> None: ...

    yield (lambda x: x * len(inspect.signature(helper).parameters)), (X,)
    helper.__code__ = (lambda a, b, c: None).__code__
    yield None


@right_after
def test_wrapped_appears() -> Steps:
    def helper(a: int, b: int = 2) -> None: ...

    yield (lambda x: x * len(inspect.signature(helper).parameters)), (X,)
    helper.__wrapped__ = lambda a: None  # type: ignore[attr-defined]
    yield None
