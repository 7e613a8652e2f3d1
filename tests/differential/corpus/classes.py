"""User classes: attributes, descriptors, construction, inheritance, special methods."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from ..support.case import Corpus, call, one, t

case = Corpus()
V = TypeVar("V")


class Plain:
    """Attributes on the class and on the instance."""

    shared = 2
    table: ClassVar[dict[str, int]] = {"a": 1}

    def __init__(self, weight: Any, bias: float = 1.0) -> None:
        self.weight = weight
        self.bias = bias

    def apply(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias

    @property
    def doubled(self) -> Any:
        return self.weight * 2

    @doubled.setter
    def doubled(self, value: Any) -> None:
        self.weight = value / 2

    @doubled.deleter
    def doubled(self) -> None:
        self.weight = 0.0

    @staticmethod
    def helper(x: Tensor, n: int = 3) -> Tensor:
        return x * n

    @classmethod
    def make(cls, weight: Any) -> Plain:
        return cls(weight, bias=cls.shared)


class Child(Plain):
    """Overrides a method and calls the base's."""

    shared = 5

    def apply(self, x: Tensor) -> Tensor:
        return super().apply(x) - 1

    @classmethod
    def make(cls, weight: Any) -> Plain:
        made = super().make(weight)
        made.extra = 1  # type: ignore[attr-defined]
        return made


SETTINGS = Plain(3.0)


def _new_method() -> None:
    Plain.apply = lambda self, x: x - self.weight  # type: ignore[assignment]


@case(lambda: (t(3), Plain(2.0)), again=lambda: (t(3), Plain(4.0)))
def object_argument(x: Tensor, p: Plain) -> Tensor:
    return p.apply(x)


@case(lambda: (t(3), Plain(2.0)), again=lambda: (t(3), Child(2.0)))
def object_of_another_class(x: Tensor, p: Plain) -> Tensor:
    return p.apply(x) + p.shared


@case(one, change=lambda: setattr(SETTINGS, "weight", 10.0))
def attribute_of_global(x: Tensor) -> Tensor:
    return x * SETTINGS.weight


@case(one, change=lambda: setattr(Plain, "shared", 50))
def class_attribute_of_global(x: Tensor) -> Tensor:
    return x * SETTINGS.shared


@case(one, change=lambda: setattr(SETTINGS, "shared", 7))
def instance_starts_to_hide_class(x: Tensor) -> Tensor:
    return x * SETTINGS.shared


@case(one, change=_new_method)
def method_replaced_on_class(x: Tensor) -> Tensor:
    return SETTINGS.apply(x)


@case(one, change=lambda: setattr(SETTINGS, "apply", lambda x: x * 100))
def method_replaced_on_instance(x: Tensor) -> Tensor:
    return SETTINGS.apply(x)


@case(one, change=lambda: setattr(SETTINGS, "__class__", Child))
def class_assigned(x: Tensor) -> Tensor:
    return SETTINGS.apply(x)


@case(one, change=lambda: setattr(SETTINGS, "__dict__", {"weight": -1.0, "bias": 3.0}))
def dict_replaced(x: Tensor) -> Tensor:
    return SETTINGS.apply(x)


@case(one, change=lambda: delattr(SETTINGS, "bias"))
def attribute_deleted(x: Tensor) -> Tensor:
    return x * getattr(SETTINGS, "bias", 9.0)


@case(one, change=lambda: setattr(SETTINGS, "late", 4.0))
def attribute_appears(x: Tensor) -> Tensor:
    return x * SETTINGS.late if hasattr(SETTINGS, "late") else x


@case(one, change=lambda: setattr(Plain, "doubled", property(lambda self: 100.0)))
def property_replaced(x: Tensor) -> Tensor:
    return x * SETTINGS.doubled


@case(one, change=lambda: Plain.table.update(a=8))
def class_level_dict(x: Tensor) -> Tensor:
    return x * SETTINGS.table["a"]


@case(one)
def construct_and_use(x: Tensor) -> Tensor:
    p = Plain(x, bias=2.0)
    q = Child.make(x)
    return p.apply(x) + q.apply(x) + Plain.helper(x) + p.helper(x, 2)


@case(one)
def property_get_set_delete(x: Tensor) -> Tensor:
    p = Plain(x)
    before = p.doubled
    p.doubled = x * 6
    middle = p.weight
    del p.doubled
    return before + middle + p.weight


@case(one)
def attributes_by_name(x: Tensor) -> tuple[Tensor, dict[str, Any]]:
    p = Plain(1.0)
    setattr(p, "weight", x)  # noqa: B010
    setattr(p, "n" + "ew", 3)
    delattr(p, "bias")
    p.__dict__["direct"] = 4
    vars(p)["other"] = 5
    return getattr(p, "weight") * p.direct, p.__dict__  # type: ignore[attr-defined] # noqa: B009


@case(one)
def augmented_attribute(x: Tensor) -> Tensor:
    p = Plain(x)
    p.weight += 1
    p.bias *= 3
    return p.weight * p.bias


@case(one)
def bound_methods(x: Tensor) -> Tensor:
    p = Plain(2.0)
    method = p.apply
    return method(x) + Plain.apply(p, x) + method.__func__(p, x) + (method.__self__ is p)


class Cell:
    """A data descriptor with a name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        return self if obj is None else getattr(obj, self.name) * 2

    def __set__(self, obj: Any, value: Any) -> None:
        setattr(obj, self.name, value + 1)

    def __delete__(self, obj: Any) -> None:
        setattr(obj, self.name, 0)


class Lazy:
    """A non-data descriptor that caches on the instance."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, obj: Any, owner: type) -> Any:
        obj.__dict__[self.name] = value = self.fn(obj)
        return value


class Described:
    """Uses both descriptors."""

    cell = Cell()

    def __init__(self, x: Any) -> None:
        self.x = x
        self.cell = x

    @Lazy
    def cached(self) -> Any:
        return self.x * 3


@case(one)
def descriptors(x: Tensor) -> Tensor:
    d = Described(x)
    first = d.cell + d.cached
    d.cell = first
    second = d.cell + d.cached
    del d.cell
    return first + second + d.cell + len(d.__dict__) + (Described.cell.name == "_cell")


class Fallback:
    """Answers for attributes that don't exist."""

    def __init__(self) -> None:
        self.real = 1

    def __getattr__(self, name: str) -> int:
        if name.startswith("n"):
            return int(name[1:])
        raise AttributeError(name)


FALLBACK = Fallback()


@case(one, change=lambda: setattr(FALLBACK, "n5", 100))
def getattr_hook(x: Tensor) -> Tensor:
    return x * FALLBACK.n5 + FALLBACK.real + getattr(FALLBACK, "zzz", 2) + hasattr(FALLBACK, "q")


class Watched:
    """Intercepts every attribute access."""

    def __init__(self, x: Any) -> None:
        self.x = x
        self.count = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "twice":
            return object.__getattribute__(self, "x") * 2
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name != "count":
            super().__setattr__("last", name)

    def __delattr__(self, name: str) -> None:
        super().__setattr__("last", "-" + name)
        super().__delattr__(name)


@case(one)
def attribute_hooks(x: Tensor) -> tuple[Tensor, str]:
    w = Watched(x)
    y = w.twice
    w.y = y
    del w.y
    return y + w.x, w.last


class Slotted:
    """No instance dictionary."""

    __slots__ = ("left", "right")

    def __init__(self, left: Any, right: Any = 2) -> None:
        self.left = left
        self.right = right


class SlottedChild(Slotted):
    """Slots and a dictionary."""

    def __init__(self, left: Any) -> None:
        super().__init__(left)
        self.more = 3


SLOTTED = Slotted(4.0)


@case(one, change=lambda: setattr(SLOTTED, "left", -4.0))
def slot_of_global(x: Tensor) -> Tensor:
    return x * SLOTTED.left + SLOTTED.right


@case(one, change=lambda: delattr(SLOTTED, "right"))
def slot_deleted(x: Tensor) -> Tensor:
    return x * getattr(SLOTTED, "right", 77)


@case(one)
def slots_inside(x: Tensor) -> Tensor:
    s = SlottedChild(x)
    s.left = s.left * 2
    try:
        Slotted(1).other = 2  # type: ignore[attr-defined]
    except AttributeError:
        s.right += 1
    return s.left + s.right + s.more + hasattr(s, "__dict__") + hasattr(SLOTTED, "__dict__")


class Single:
    """`__new__` returns one object per key."""

    pool: ClassVar[dict[str, Any]] = {}

    def __new__(cls, key: str) -> Any:
        made = super().__new__(cls)
        made.key = key
        return made

    def __init__(self, key: str) -> None:
        self.size = len(key)


class NotAnInstance:
    """`__new__` returns something else, so `__init__` isn't run."""

    def __new__(cls, x: Any) -> Any:
        return (x, 1)

    def __init__(self, x: Any) -> None:
        raise AssertionError("not reached")


@case(one)
def new_and_init(x: Tensor) -> Tensor:
    a, b = NotAnInstance(x)  # type: ignore[misc]
    single = Single("four")
    return a * b + single.size + len(single.key)


class Meta(type):
    """Counts, converts and calls."""

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any], **kw: Any) -> Meta:
        space["tag"] = name.lower() + kw.get("suffix", "")
        return super().__new__(mcs, name, bases, space)

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any], **kw: Any) -> None:
        super().__init__(name, bases, space)

    def __call__(cls, *args: Any) -> Any:
        made = super().__call__(*args)
        made.called = len(args)
        return made

    def __getitem__(cls, n: int) -> int:
        return n * 2

    def __len__(cls) -> int:
        return 4

    def __instancecheck__(cls, other: object) -> bool:
        return other == 3 or super().__instancecheck__(other)

    @property
    def level(cls) -> int:
        return 6


class Made(metaclass=Meta, suffix="!"):
    """Built by the metaclass."""

    called: int
    tag: str

    def __init__(self, x: Any) -> None:
        self.x = x


@case(one)
def metaclass(x: Tensor) -> Tensor:
    made = Made(x)
    score = made.called + len(made.tag) + Made[5] + len(Made) + Made.level + isinstance(3, Made)
    return made.x * score


@case(one)
def class_made_inside(x: Tensor) -> Tensor:
    n = 3

    class Local(Plain):
        factor = n * 2

        def apply(self, v: Tensor) -> Tensor:
            return super().apply(v) * self.factor + n

    made = type("Dynamic", (Local,), {"factor": 2, "own": lambda self: 1})
    return Local(x).apply(x) + made(x).apply(x) + made(1).own()


class Left:
    """Diamond, left."""

    def who(self, x: Tensor) -> Tensor:
        return x + 1


class Root(Left):
    """Diamond, top."""

    def who(self, x: Tensor) -> Tensor:
        return super().who(x) * 2


class SideA(Root):
    """Diamond, first side."""

    def who(self, x: Tensor) -> Tensor:
        return super().who(x) - 3


class SideB(Root):
    """Diamond, second side."""

    def who(self, x: Tensor) -> Tensor:
        return super().who(x) * 5


class Diamond(SideA, SideB):
    """Diamond, bottom."""

    def who(self, x: Tensor) -> Tensor:
        return super().who(x) + super(SideA, self).who(x) + Left.who(self, x)


@case(one)
def method_resolution_order(x: Tensor) -> Tensor:
    return Diamond().who(x) * len(Diamond.__mro__) + isinstance(Diamond(), SideB)


@case(one)
def init_subclass(x: Tensor) -> Tensor:
    class Base:
        kinds: ClassVar[list[str]] = []

        def __init_subclass__(cls, *, rank: int = 0, **kw: Any) -> None:
            super().__init_subclass__(**kw)
            Base.kinds.append(cls.__name__)
            cls.rank = rank  # type: ignore[attr-defined]

    class One(Base, rank=3):
        pass

    return x * One.rank + len(Base.kinds)  # type: ignore[attr-defined]


class Shape(abc.ABC):
    """An abstract class."""

    @abc.abstractmethod
    def area(self, x: Tensor) -> Tensor: ...


class Square(Shape):
    """Its implementation."""

    def area(self, x: Tensor) -> Tensor:
        return x * x


@runtime_checkable
class HasArea(Protocol):
    """A protocol that can be asked for."""

    def area(self, x: Tensor) -> Tensor: ...


@case(one)
def abstract_classes_and_protocols(x: Tensor) -> Tensor:
    try:
        Shape()  # type: ignore[abstract]
    except TypeError:
        x = x + 1
    return Square().area(x) + isinstance(Square(), HasArea) + issubclass(Square, Shape)


class Box(Generic[V]):
    """A generic class."""

    def __init__(self, item: V) -> None:
        self.item = item


@case(one)
def generic_class(x: Tensor) -> Tensor:
    return Box[Tensor](x).item + Box(2).item


class Callable2:
    """Instances can be called, with every kind of argument."""

    def __init__(self, k: int) -> None:
        self.k = k

    def __call__(self, x: Tensor, *args: int, by: int = 1, **kw: int) -> Tensor:
        return x * self.k * by + len(args) + len(kw)


CALLED = Callable2(2)


@case(one, change=lambda: setattr(CALLED, "k", 5))
def callable_object(x: Tensor) -> Tensor:
    return CALLED(x, 1, 2, by=3, z=4) + callable(CALLED) + callable(x.shape)


@case(one)
def type_questions(x: Tensor) -> Tensor:
    p = Child(1.0)
    score = (type(p) is Child) + isinstance(p, Plain) + isinstance(p, (int, Plain))
    score += issubclass(Child, Plain) + (type(p).__name__ == "Child") + isinstance(1, int | str)
    return x * score + (p.__class__ is Child) + (type(x) is Tensor) + isinstance(x, torch.Tensor)


@case(one)
def own_repr_and_format(x: Tensor) -> tuple[Tensor, str]:
    class Named:
        def __repr__(self) -> str:
            return "Named!"

        def __str__(self) -> str:
            return "named"

        def __format__(self, spec: str) -> str:
            return f"<{spec}>"

    n = Named()
    return x + len(repr(n)), f"{n} {n!r} {n!s} {n:abc}"


@case(one)
def hash_and_eq_in_dict(x: Tensor) -> Tensor:
    class Key:
        def __init__(self, k: int) -> None:
            self.k = k

        def __hash__(self) -> int:
            return self.k % 2

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Key) and self.k == other.k

    d = {Key(1): 10, Key(3): 30, Key(2): 20}
    return x * d[Key(3)] + (Key(5) in d) + len({Key(1), Key(1)})


@dataclass
class Options:
    """Passed as an argument and read."""

    scale: float = 1.0
    name: str = "o"
    child: Any = None


@case(
    lambda: call(t(3), Options(2.0, child=Options(3.0))),
    again=lambda: call(t(3), Options(2.0, child=Options(4.0))),
)
def nested_object_attributes(x: Tensor, options: Options) -> Tensor:
    return x * options.scale + options.child.scale + len(options.child.name)


def _kept() -> tuple[Tensor, Options]:
    return t(3), Options(2.0, child=[1, 2])


@case(_kept, keep=True, change=lambda x, o: setattr(o, "scale", -2.0))
def same_object_changes_attribute(x: Tensor, options: Options) -> Tensor:
    return x * options.scale


@case(_kept, keep=True, change=lambda x, o: o.child.append(5))
def same_object_changes_list(x: Tensor, options: Options) -> Tensor:
    return x * sum(options.child)


@case(_kept, keep=True, change=lambda x, o: setattr(o, "scale", 2))
def same_object_changes_type(x: Tensor, options: Options) -> tuple[Tensor, str]:
    return x * options.scale, type(options.scale).__name__


@case(lambda: (t(3), Options(1.0)), again=lambda: (t(3), Options(-0.0)))
def sign_of_zero(x: Tensor, options: Options) -> Tensor:
    return x * 0.0 + torch.full((3,), options.scale * 0.0)
