"""Descriptors, metaclasses, dataclasses, patterns, special methods, typing, weak references, copies."""

from __future__ import annotations

import abc
import copy
import dataclasses
import enum
import functools
import gc
import operator
import pickle
import typing
import weakref
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypedDict, TypeVar

import torch
from torch import Tensor, nn

from ..support.case import Corpus, one, t, two

case = Corpus()
LOG: list[Any] = []


class Typed:
    def __set_name__(self, owner: type, name: str) -> None:
        self.name = f"_{name}"
        owner.fields = [*getattr(owner, "fields", ()), name]

    def __get__(self, obj: Any, kind: Any = None) -> Any:
        if obj is None:
            return self
        LOG.append(("get", self.name))
        return obj.__dict__.get(self.name, 0)

    def __set__(self, obj: Any, value: Any) -> None:
        LOG.append(("set", self.name))
        obj.__dict__[self.name] = value

    def __delete__(self, obj: Any) -> None:
        del obj.__dict__[self.name]


class Record:
    a = Typed()
    b = Typed()

    def __init_subclass__(cls, scale: float = 1.0, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        cls.scale = scale

    scale = 1.0


class Doubled(Record, scale=2.0):
    pass


REC = Doubled()


def _touch(*_: Any) -> None:
    REC.b = 4
    Doubled.scale = 3.0


@case(one, change=_touch)
def descriptors(x: Tensor) -> Any:
    REC.a = x.dim()
    y = x * REC.a + REC.b * type(REC).scale
    del REC.a
    return y, REC.a, Doubled.fields


@case(one)
def class_made_inside(x: Tensor) -> Any:
    class Here(Record, scale=3.0):
        c = Typed()

        def run(self) -> Tensor:
            self.c = 5
            return x * self.c * self.scale

    return Here().run(), Here.fields, Here.__mro__[1].__name__


class Registry(type):
    known: ClassVar[dict[str, type]] = {}

    def __new__(mcs, name: str, bases: Any, ns: dict[str, Any], **kw: Any) -> Any:
        cls = super().__new__(mcs, name, bases, ns)
        mcs.known[name] = cls
        return cls

    def __call__(cls, *args: Any) -> Any:
        obj = super().__call__(*args)
        obj.tagged = len(args)
        return obj

    def __len__(cls) -> int:
        return len(cls.known)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("auto_"):
            return int(name[5:])
        raise AttributeError(name)

    def __contains__(cls, item: Any) -> bool:
        return isinstance(item, cls)

    def __instancecheck__(cls, item: Any) -> bool:
        return hasattr(item, "tagged")


class Base(metaclass=Registry):
    def __init__(self, v: Any) -> None:
        self.v = v


class Derived(Base):
    pass


@case(one)
def metaclasses(x: Tensor) -> Any:
    d = Derived(x)
    made = Registry("Made", (Base,), {"z": 4})(2)
    return (
        d.v * d.tagged + Derived.auto_7 + made.z,
        isinstance(x, Base),
        d in Base,
        len(Base),
        sorted(Registry.known),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: Any
    n: int = 2
    tags: list[str] = dataclasses.field(default_factory=list, compare=False)


@case(one)
def frozen_slots(x: Tensor) -> Any:
    a = Frozen(x)
    b = dataclasses.replace(a, n=5)
    a.tags.append("mine")
    try:
        a.n = 3
    except dataclasses.FrozenInstanceError as error:
        b.tags.append(str(error))
    return a.x * a.n + b.n, a.tags, b.tags, dataclasses.astuple(dataclasses.replace(b, x=None))


@dataclasses.dataclass(order=True, kw_only=True)
class Ordered:
    rank: int
    data: Any = dataclasses.field(compare=False, default=None, repr=False)
    extra: dataclasses.InitVar[int] = 0

    def __post_init__(self, extra: int) -> None:
        self.rank += extra


FIRST = Ordered(rank=1)


def _rank(*_: Any) -> None:
    FIRST.rank = 50


@case(one, change=_rank)
def ordered_dataclasses(x: Tensor) -> Any:
    items = [Ordered(rank=3, data=x), Ordered(rank=1, extra=9), FIRST]
    best = min(items)
    items.sort()
    return x * best.rank, [repr(i) for i in items], max(items).rank, dataclasses.asdict(best)


class Shape(NamedTuple):
    h: int
    w: int = 4

    @property
    def area(self) -> int:
        return self.h * self.w


@dataclasses.dataclass
class Pt:
    x: Any
    y: Any


@case(
    lambda: (t(2), Pt(1, [2, 3]), {"k": (1, 2), "z": 9}),
    again=lambda: (t(2), Shape(2, 3), {"k": {"n": 1.5}}),
)
def patterns(x: Tensor, a: Any, b: Any) -> Any:
    match a:
        case Pt(x=1, y=[first, *rest]):
            y = x + first + len(rest)
        case Shape(h, w) if h < w:
            y = x * a.area
        case _:
            y = x
    match b:
        case {"k": (1, n), **others}:
            y = y * n + len(others)
        case {"k": {"n": float() | int() as f}}:
            y = y * f
        case {"k": None}:
            y = -y
    match y.shape:
        case [n]:
            y = y + n
        case (n, m):
            y = y + m
    return y


@case(lambda: (t(2), "a"), again=lambda: (t(2), 3))
def pattern_values(x: Tensor, v: Any) -> Any:
    match v, x.dim():
        case ("a" | "b" as letter, 1):
            return x + 1, letter
        case (int(n), d) if n > d:
            return x * n, d
        case (bool() | None, _):
            return x
    return None


class Proxy:
    """Answers to all names; writes go elsewhere."""

    def __init__(self, store: dict[str, Any]) -> None:
        object.__setattr__(self, "_store", store)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._store[name]
        except KeyError:
            raise AttributeError(f"no {name}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._store[name] = value

    def __delattr__(self, name: str) -> None:
        del self._store[name]

    def __dir__(self) -> list[str]:
        return sorted(self._store)


STORE: dict[str, Any] = {"a": 2}
PROXY = Proxy(STORE)


def _store(*_: Any) -> None:
    STORE["a"] = 9
    STORE["c"] = 1


@case(one, change=_store)
def attribute_proxies(x: Tensor) -> Any:
    PROXY.n = getattr(PROXY, "n", 0) + 1
    y = x * PROXY.a + PROXY.n
    if hasattr(PROXY, "c"):
        y = y + PROXY.c
        del PROXY.c
    return y, dir(PROXY)


class Spy:
    def __init__(self) -> None:
        self.reads = 0
        self.factor = 3

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name != "reads":
            d = object.__getattribute__(self, "__dict__")
            d["reads"] += 1
        return object.__getattribute__(self, name)


SPY = Spy()


def _spy(*_: Any) -> None:
    SPY.factor = 11


@case(one, change=_spy)
def counted_reads(x: Tensor) -> Any:
    return x * SPY.factor + SPY.factor, SPY.reads


@functools.total_ordering
class Version:
    def __init__(self, *parts: int) -> None:
        self.parts = parts

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Version) and self.parts == other.parts

    def __lt__(self, other: Any) -> bool:
        return self.parts < other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __index__(self) -> int:
        return self.parts[0]


@case(one)
def total_order(x: Tensor) -> Any:
    a, b = Version(1, 2), Version(1, 10)
    table = {a: 1, b: 2, Version(1, 2): 3}
    return x * (a <= b) + (b >= a) + table[Version(1, 2)] + [5, 6, 7][a], sorted([b, a])[0].parts


@functools.singledispatch
def size_of(item: Any) -> int:
    return 0


@size_of.register
def _(item: Tensor) -> int:
    return item.numel()


@size_of.register(list)
@size_of.register(tuple)
def _sized(item: Any) -> int:
    return sum(size_of(i) for i in item)


def _register(*_: Any) -> None:
    size_of.register(str, lambda s: len(s) * 100)


@case(one, change=_register)
def single_dispatch(x: Tensor) -> Any:
    return x * size_of([x, (x, 1), "ab"])


class Cell:
    def __init__(self) -> None:
        self.calls = 0

    @functools.cached_property
    def expensive(self) -> int:
        self.calls += 1
        return 6

    def scale(self, x: Tensor, by: float, *, plus: float = 0) -> Tensor:
        return x * by + plus

    half = functools.partialmethod(scale, 0.5, plus=1)


CELL = Cell()


def _forget(*_: Any) -> None:
    vars(CELL).pop("expensive", None)


@case(one, change=_forget)
def cached_and_partial(x: Tensor) -> Any:
    return CELL.half(x) * CELL.expensive, CELL.calls


class HasForward(Protocol):
    def forward(self, x: Tensor) -> Tensor: ...


RuntimeForward = typing.runtime_checkable(HasForward)
T = TypeVar("T")


class Box(Generic[T]):
    def __init__(self, item: T) -> None:
        self.item = item

    def map(self, f: Any) -> Box[Any]:
        return Box(f(self.item))


class Options(TypedDict, total=False):
    scale: float


@case(one)
def typing_things(x: Tensor) -> Any:
    net = nn.Identity()
    box = Box[Tensor](x).map(lambda v: v * 2)
    opts = Options(scale=2.0)
    cast = typing.cast(int, 3)
    hints = typing.get_type_hints(Shape)
    return (
        box.item * opts["scale"] + cast,
        isinstance(net, RuntimeForward),
        Shape(2)._replace(w=1).area,
        Shape._fields,
        list(hints),
        Shape(1)._asdict(),
    )


class Node:
    def __init__(self, name: str) -> None:
        self.name = name

    def __del__(self) -> None:
        LOG.append(f"del {self.name}")


@case(one)
def weak_references(x: Tensor) -> Any:
    a = Node("a")
    r = weakref.ref(a, lambda _: LOG.append("gone"))
    table = weakref.WeakValueDictionary(a=a)
    alive = r() is a, len(table)
    del a
    return x + 1, alive, r(), len(table)


@case(one)
def finalizers(x: Tensor) -> Any:
    a = Node("b")
    f = weakref.finalize(a, LOG.append, "finalized")
    y = x + f.alive
    a = None
    y = y * 2
    LOG.append("end")
    return y, f.alive


KEPT = {"node": Node("kept")}


@case(one)
def outside_finalizer(x: Tensor) -> Any:
    LOG.append("start")
    KEPT["node"] = Node("next")
    y = x + len(LOG) % 2
    LOG.append("end")
    return y


WEAK_KEYS: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


@case(one)
def weak_keys(x: Tensor) -> Any:
    key = Node("key")
    WEAK_KEYS[key] = 4
    y = x * WEAK_KEYS[key]
    n = len(WEAK_KEYS)
    del key
    return y, n, len(WEAK_KEYS)


@case(one)
def copies(x: Tensor) -> Any:
    a = Pt(x, [1, {"k": x}])
    b, c = copy.copy(a), copy.deepcopy(a)
    c.y[0] = 5
    c.x.add_(1)
    return a, b, c, b.y is a.y, c.y[1]["k"] is c.x


@case(one)
def pickled(x: Tensor) -> Any:
    p = pickle.loads(pickle.dumps(Shape(3, 4)))
    q = pickle.loads(pickle.dumps({"p": p, "d": Pt(1, 2)}))
    return x * q["p"].area + q["d"].y, q


class Custom:
    def __init__(self, v: Any) -> None:
        self.v = v

    def __copy__(self) -> Custom:
        LOG.append("copied")
        return Custom(self.v)

    def __deepcopy__(self, memo: Any) -> Custom:
        LOG.append("deep")
        return Custom(copy.deepcopy(self.v, memo))

    def __reduce__(self) -> Any:
        return Custom, (self.v,)


@case(one)
def custom_copies(x: Tensor) -> Any:
    a = Custom([x])
    return copy.copy(a).v is a.v, copy.deepcopy(a).v[0] is x, copy.deepcopy([a, a])


class Color(enum.Flag):
    R = enum.auto()
    G = enum.auto()
    B = enum.auto()
    RG = R | G


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10

    @property
    def double(self) -> int:
        return self * 2

    @classmethod
    def _missing_(cls, value: Any) -> Level:
        return cls.HIGH


@case(lambda: (t(2), Color.RG, 1), again=lambda: (t(2), Color.B | Color.R, 7))
def flags(x: Tensor, c: Color, n: int) -> Any:
    level = Level(n)
    y = x * level + (Color.R in c) + len([f for f in Color if f & c])
    return y, ~c, c ^ Color.G, level.double, level.name, Color["G"].value, repr(c)


class Mod7(int):
    def __new__(cls, v: int) -> Mod7:
        return super().__new__(cls, v % 7)

    def __add__(self, other: Any) -> Mod7:
        return Mod7(int(self) + int(other))

    __radd__ = __add__

    def __repr__(self) -> str:
        return f"m{int(self)}"


@case(lambda: (t(2), Mod7(5)), again=lambda: (t(2), Mod7(6)))
def int_subclass(x: Tensor, m: Mod7) -> Any:
    n = m + 9
    return x * n + m, sum([m, n, 3]), f"{n!r} {n:03d}", [m] * 2, x.new_zeros(m), type(-n).__name__


class Vec:
    def __init__(self, *v: Any) -> None:
        self.v = v

    def __matmul__(self, o: Any) -> Any:
        return sum(a * b for a, b in zip(self.v, o.v, strict=True))

    def __rmul__(self, k: Any) -> Vec:
        return Vec(*(k * a for a in self.v))

    def __neg__(self) -> Vec:
        return Vec(*map(operator.neg, self.v))

    def __iadd__(self, o: Any) -> Vec:
        self.v = tuple(map(operator.add, self.v, o.v))
        return self

    def __getitem__(self, i: Any) -> Any:
        return Vec(*self.v[i]) if isinstance(i, slice) else self.v[i]

    def __len__(self) -> int:
        return len(self.v)

    def __bool__(self) -> bool:
        return any(v is not None for v in self.v)

    def __call__(self, f: Any) -> Any:
        return [f(v) for v in self.v]

    def __contains__(self, k: Any) -> bool:
        return any(k is v for v in self.v)

    def __reversed__(self) -> Any:
        return iter(self.v[::-1])

    def __format__(self, spec: str) -> str:
        return f"V{len(self)}{spec}"

    def __divmod__(self, k: int) -> Any:
        return len(self) // k, len(self) % k

    def __round__(self, n: int = 0) -> str:
        return f"r{n}"


@case(two)
def special_methods(x: Tensor, y: Tensor) -> Any:
    v = Vec(x, y)
    w = 2 * -v
    w += v
    return (
        v @ w,
        len(v[:1]),
        bool(v),
        v(lambda a: a + 1),
        x in v,
        [*reversed(v)][0] is y,
        f"{v:>3}",
        divmod(v, 2),
        round(v, 3),
        [a for a in v][1] is y,
    )


class Both:
    def __init__(self, n: int) -> None:
        self.n = n

    def __radd__(self, o: Any) -> Any:
        return NotImplemented if isinstance(o, str) else o + self.n

    def __eq__(self, o: Any) -> Any:
        return NotImplemented

    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return f"tf {func.__name__}"


@case(one)
def reflected(x: Tensor) -> Any:
    b = Both(3)
    try:
        "s" + b
    except TypeError as error:
        text = str(error)
    return 4 + b, b == b, b != 1, text, torch.add(x, b), x * b


class Abstract(abc.ABC):
    @abc.abstractmethod
    def run(self) -> None: ...

    @classmethod
    def __subclasshook__(cls, c: type) -> Any:
        return hasattr(c, "quack") or NotImplemented


@case(one)
def abstract(x: Tensor) -> Any:
    class Duck:
        quack = 1

    try:
        Abstract()
    except TypeError as error:
        text = str(error)
    return x + isinstance(Duck(), Abstract) + issubclass(int, Abstract), text


class Slotted:
    __slots__ = ("__weakref__", "a", "b")

    def __init__(self, a: Any) -> None:
        self.a = a


SLOTTED = Slotted(2)


def _slot(*_: Any) -> None:
    SLOTTED.b = 5


@case(one, change=_slot)
def slots_unset(x: Tensor) -> Any:
    try:
        b = SLOTTED.b
    except AttributeError:
        b = -1
    SLOTTED.a += 1
    if hasattr(SLOTTED, "b"):
        del SLOTTED.b
    return x * SLOTTED.a + b


class Meta2(type):
    @property
    def shown(cls) -> str:
        return cls.__name__.lower()

    def __iter__(cls) -> Any:
        return iter(cls.items)

    def __getitem__(cls, i: Any) -> Any:
        return cls.items[i]


class Items(metaclass=Meta2):
    items: ClassVar[list[int]] = [1, 2, 3]


def _items(*_: Any) -> None:
    Items.items = [5, 6]


@case(one, change=_items)
def class_protocols(x: Tensor) -> Any:
    return x * sum(Items) + Items[0], Items.shown, [*Items]


class Dyn:
    kind = "dyn"


def _patch(*_: Any) -> None:
    Dyn.extra = property(lambda self: 8)
    Dyn.__len__ = lambda self: 3


DYN = Dyn()


@case(one, change=_patch)
def patched_class(x: Tensor) -> Any:
    y = x + getattr(DYN, "extra", 1)
    try:
        y = y * len(DYN)
    except TypeError as error:
        return y, str(error)
    return y, bool(DYN)


@case(one)
def class_reassigned(x: Tensor) -> Any:
    a = Pt(x, 1)
    a.__class__ = type("Other", (Pt,), {"run": lambda self: self.x * 3})
    return a.run(), type(a).__name__, isinstance(a, Pt)


@case(one)
def garbage(x: Tensor) -> Any:
    a = Node("cycle")
    a.me = a
    del a
    n = gc.collect() > 0
    return x + n, list(LOG)
