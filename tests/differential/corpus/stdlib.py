"""The standard library that model code uses."""

from __future__ import annotations

import base64
import binascii
import bisect
import collections
import contextvars
import copy
import dataclasses
import enum
import functools
import heapq
import inspect
import itertools
import math
import operator
import pathlib
import re
import struct
import sys
import types
import typing
import unicodedata
import zlib
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..support.case import Corpus, one, t, two

case = Corpus()

LEVEL: contextvars.ContextVar[int] = contextvars.ContextVar("level", default=2)


def _affine(x: Tensor, a: float, b: float = 0.0) -> Tensor:
    return x * a + b


HALF = functools.partial(_affine, a=0.5)


def _new_partial() -> None:
    globals()["HALF"] = functools.partial(_affine, a=0.5, b=3.0)


@case(one, change=_new_partial)
def partial_global(x: Tensor) -> Tensor:
    return HALF(x) + HALF(x, b=1.0)


@case(one)
def partial_inside(x: Tensor) -> Tensor:
    inner = functools.partial(_affine, x, b=4)
    outer = functools.partial(inner, 3)
    return outer() + inner(a=2) + outer.func(x, 1) + len(inner.args) + len(inner.keywords)


@case(one)
def reduce_over_tensors(x: Tensor) -> Tensor:
    return functools.reduce(lambda a, b: a * b, [x, x + 1, x + 2]) + functools.reduce(
        operator.add, [1, 2, 3], 0
    )


@functools.lru_cache(maxsize=None)
def _table(n: int) -> tuple[int, ...]:
    return tuple(range(n))


@case(lambda: (t(3), 4), again=lambda: (t(3), 6))
def cached_function(x: Tensor, n: int) -> Tensor:
    return x * sum(_table(n)) + len(_table(n))


@case(one)
def cached_inside(x: Tensor) -> Tensor:
    calls: list[int] = []

    @functools.cache
    def slow(n: int) -> int:
        calls.append(n)
        return n * 10

    return x * (slow(1) + slow(2) + slow(1)) + len(calls)


class Lazy:
    """A cached property."""

    def __init__(self, x: Any) -> None:
        self.x = x
        self.computed = 0

    @functools.cached_property
    def value(self) -> Any:
        self.computed += 1
        return self.x * 2

    @functools.partialmethod
    def nothing(self) -> None: ...

    @functools.singledispatchmethod
    def kind(self, item: Any) -> int:
        return 1

    @kind.register
    def _(self, item: str) -> int:
        return 2


@case(one)
def cached_property(x: Tensor) -> Tensor:
    lazy = Lazy(x)
    return lazy.value + lazy.value + lazy.computed


@functools.singledispatch
def _size(item: Any) -> int:
    return 1


@_size.register
def _(item: list) -> int:  # type: ignore[type-arg]
    return 10 + len(item)


@_size.register(Tensor)
def _(item: Tensor) -> int:
    return 100


@case(one)
def singledispatch(x: Tensor) -> Tensor:
    return x * _size([1]) + _size(2) + _size(x) + Lazy(1).kind("s") + Lazy(1).kind(2)


@functools.total_ordering
class Rank:
    """Ordered by one field."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rank) and self.n == other.n

    def __lt__(self, other: Rank) -> bool:
        return self.n < other.n


@case(one)
def total_ordering(x: Tensor) -> Tensor:
    return (
        x * max(Rank(3), Rank(5), Rank(1)).n
        + (Rank(1) >= Rank(1))
        + sorted([Rank(2), Rank(1)])[0].n
    )


@case(one)
def wraps_keeps_the_signature(x: Tensor) -> Tensor:
    @functools.wraps(_affine)
    def wrapper(*args: Any, **kwargs: Any) -> Tensor:
        return _affine(*args, **kwargs)

    names = list(inspect.signature(wrapper).parameters)
    return wrapper(x, 2.0) + len(names) + ("b" in names)


@case(one)
def signature_bind(x: Tensor) -> Tensor:
    signature = inspect.signature(_affine)
    bound = signature.bind(x, 3.0)
    bound.apply_defaults()
    return _affine(*bound.args, **bound.kwargs) + len(bound.arguments)


@case(one)
def itertools_basics(x: Tensor) -> Tensor:
    total = sum(itertools.chain([1, 2], (3,)))
    total += len(list(itertools.product("ab", repeat=2)))
    total += sum(a * b for a, b in itertools.combinations([1, 2, 3], 2))
    total += sum(itertools.accumulate([1, 2, 3]))
    total += sum(itertools.islice(itertools.count(5, 2), 3))
    total += sum(itertools.takewhile(lambda v: v < 3, itertools.cycle([1, 2, 3])))
    return x * total


@case(two)
def itertools_over_tensors(x: Tensor, y: Tensor) -> Tensor:
    total = x
    for a, b in itertools.pairwise([x, y, x + y]):
        total = total + a * b
    for key, group in itertools.groupby([(1, x), (1, y), (2, x)], key=lambda p: p[0]):
        total = total + key * sum(g for _, g in group)
    for item in itertools.chain.from_iterable([[x], [y]]):
        total = total - item
    return total + sum(itertools.starmap(lambda a, k: a * k, [(x, 2), (y, 3)]))


@case(one)
def operator_module(x: Tensor) -> Tensor:
    get = operator.itemgetter(1, 0)
    size = operator.attrgetter("ndim")
    flat = operator.methodcaller("sum", 0)
    a, b = get([1, 5])
    return operator.mul(x, a) + operator.sub(b, size(x)) + flat(x) + operator.index(True)


@case(one)
def operator_in_place(x: Tensor) -> Tensor:
    y = x.clone()
    y = operator.iadd(y, 2)
    items = [1, 2]
    operator.setitem(items, 0, 9)
    return operator.matmul(y, x.t()) + operator.getitem(items, 0) + operator.contains(items, 2)


@case(one)
def math_module(x: Tensor) -> Tensor:
    k = math.sqrt(16) + math.floor(2.7) + math.prod([2, 3]) + math.gcd(12, 18) + math.pi
    return x * k + math.isnan(math.nan) + math.copysign(1, -0.0) + math.ceil(x.shape[0] / 2)


@case(two)
def map_filter_zip(x: Tensor, y: Tensor) -> Tensor:
    doubled = list(map(lambda v: v * 2, [x, y]))
    kept = list(filter(lambda n: n > 1, [1, 2, 3]))
    total = sum(a * n for a, n in zip(doubled, kept, strict=True))
    return total + sum(map(operator.add, [1, 2], [3, 4])) + len(list(filter(None, [0, 1, ""])))


@case(one)
def sorted_and_friends(x: Tensor) -> Tensor:
    words = ["ccc", "a", "bb"]
    order = sorted(words, key=len, reverse=True)
    words.sort(key=lambda w: (-len(w), w))
    best = max(words, key=len), min([4, 2, 9]), max(3, 7), min([], default=5)
    return x * order.index("bb") + words.index("a") + sum(map(len, best[:1])) + sum(best[1:])


@case(one)
def sort_tensors_by_a_key(x: Tensor) -> list[Tensor]:
    pairs = [(2, x), (1, x * 2)]
    return [v for _, v in sorted(pairs, key=lambda p: p[0])]


@case(two)
def sum_any_all_enumerate(x: Tensor, y: Tensor) -> Tensor:
    total = sum([x, y], start=x)
    for i, item in enumerate([x, y], start=1):
        total = total + item * i
    return total + any([0, "", 3]) + all([]) + len(list(reversed([1, 2]))) + abs(-3) + pow(2, 3)


@case(one)
def ordered_dict(x: Tensor) -> tuple[Tensor, list[str]]:
    d: OrderedDict[str, Any] = OrderedDict(a=1, b=x)
    d["c"] = 3
    d.move_to_end("a")
    first = d.popitem(last=False)
    return first[1] * d["c"], list(d)


@case(lambda: (t(3), OrderedDict(a=1, b=2)), again=lambda: (t(3), OrderedDict(b=2, a=1)))
def ordered_dict_argument(x: Tensor, d: OrderedDict[str, int]) -> Tensor:
    for i, (_, v) in enumerate(d.items()):
        x = x + i * v
    return x


@case(one)
def default_dict(x: Tensor) -> Tensor:
    d: defaultdict[str, list[Tensor]] = defaultdict(list)
    d["a"].append(x)
    d["a"].append(x * 2)
    counts: defaultdict[str, int] = defaultdict(int)
    for c in "aab":
        counts[c] += 1
    return torch.stack(d["a"]).sum(0) * counts["a"] + len(d["new"]) + len(d)


@case(one)
def counter_and_chain_map(x: Tensor) -> Tensor:
    counts = Counter("hello")
    counts.update("ll")
    both = ChainMap({"a": 1}, {"a": 2, "b": 3})
    return x * counts["l"] + counts.most_common(1)[0][1] + both["a"] + both["b"] + counts["none"]


@case(one)
def double_ended_queue(x: Tensor) -> Tensor:
    q: deque[Any] = deque([x], maxlen=3)
    q.append(x * 2)
    q.appendleft(x * 3)
    q.append(x * 4)
    q.rotate(1)
    return q.popleft() + q.pop() * len(q) + q[0]


Pair = namedtuple("Pair", ["left", "right"], defaults=[3])


class Triple(NamedTuple):
    """A typed one with a method."""

    a: Any
    b: Any
    c: Any = 1

    def total(self) -> Any:
        return self.a + self.b + self.c


@case(one)
def named_tuples(x: Tensor) -> tuple[Pair, Triple]:
    pair = Pair(x)
    triple = Triple(x, b=pair.right)._replace(c=7)
    left, right = pair
    assert left is pair[0] and Pair._fields == ("left", "right") and triple._asdict()["c"] == 7
    return Pair(triple.total(), right), triple


@case(lambda: (Pair(t(3), 4),), again=lambda: (Pair(t(3), 5),))
def named_tuple_argument(pair: Pair) -> Tensor:
    return pair.left * pair.right


class Color(enum.Enum):
    """Members with values."""

    RED = 1
    BLUE = 2

    @property
    def weight(self) -> int:
        return self.value * 10


class Flags(enum.IntFlag):
    """Combinable members."""

    A = 1
    B = 2
    C = 4


class Mode(str, enum.Enum):
    """String members."""

    FAST = "fast"
    SLOW = "slow"


@case(lambda: (t(3), Color.RED), again=lambda: (t(3), Color.BLUE))
def enum_argument(x: Tensor, color: Color) -> Tensor:
    if color is Color.RED:
        return x + color.weight
    return x * color.value + len(color.name)


@case(lambda: (t(3), Mode.FAST, Flags.A | Flags.C))
def enum_flavours(x: Tensor, mode: Mode, flags: Flags) -> Tensor:
    score = (mode == "fast") + (Flags.A in flags) + (Flags.B in flags) + Color(2).value
    return x * score + len(Color) + Color["RED"].value + len(list(Mode)) + (flags & 4)


@dataclasses.dataclass
class Config:
    """Mutable, with factories."""

    size: int = 2
    scale: float = 1.5
    layers: list[int] = dataclasses.field(default_factory=lambda: [1, 2])
    total: int = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.total = sum(self.layers)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Frozen:
    """Immutable, slotted, ordered."""

    n: int
    name: str = "f"


@case(lambda: (t(3), Config()), again=lambda: (t(3), Config(layers=[5])))
def dataclass_argument(x: Tensor, config: Config) -> Tensor:
    return x * config.size + config.total + config.layers[-1]


@case(one)
def dataclass_functions(x: Tensor) -> Tensor:
    config = dataclasses.replace(Config(), size=5)
    names = [f.name for f in dataclasses.fields(config)]
    return x * config.size + len(names) + dataclasses.asdict(config)["total"] + (config == Config())


@case(lambda: (t(3), Frozen(n=3)), again=lambda: (t(3), Frozen(n=4)))
def frozen_dataclass(x: Tensor, frozen: Frozen) -> Tensor:
    try:
        frozen.n = 5  # type: ignore[misc]
    except dataclasses.FrozenInstanceError:
        x = x + 1
    bigger = dataclasses.replace(frozen, n=9)
    return x * frozen.n + (frozen < bigger) + hash(frozen == bigger) + dataclasses.is_dataclass(x)


@case(one, change=lambda: LEVEL.set(5))
def context_variable(x: Tensor) -> Tensor:
    return x * LEVEL.get()


@case(one)
def context_variable_set_inside(x: Tensor) -> Tensor:
    token = LEVEL.set(7)
    y = x * LEVEL.get()
    LEVEL.reset(token)
    return y + LEVEL.get()


@case(lambda: (t(3), {"a": [1, 2]}))
def shallow_copies(x: Tensor, d: dict[str, list[int]]) -> Tensor:
    c = copy.copy(d)
    c["b"] = [3]
    config = copy.copy(Config())
    config.size = 9
    return x * len(c) + len(d) + config.size + (c["a"] is d["a"]) + len(copy.copy([1, 2]))


@case(lambda: (t(3), {"a": [1, 2]}), expect="any")
def deep_copy(x: Tensor, d: dict[str, list[int]]) -> Tensor:
    c = copy.deepcopy(d)
    c["a"].append(3)
    return copy.deepcopy(x) * len(c["a"]) + len(d["a"])


@case(one)
def simple_namespace(x: Tensor) -> Tensor:
    space = types.SimpleNamespace(a=1, b=x)
    space.c = 3
    view = types.MappingProxyType({"k": 4})
    return space.b * space.c + view["k"] + space.a


@case(lambda: (t(3), types.SimpleNamespace(k=2)), again=lambda: (t(3), types.SimpleNamespace(k=3)))
def namespace_argument(x: Tensor, space: types.SimpleNamespace) -> Tensor:
    return x * space.k


@case(lambda: (t(3), (1, 2)))
def abstract_collections(x: Tensor, items: Any) -> Tensor:
    score = isinstance(items, Sequence) + isinstance({}, Mapping) + isinstance(3, typing.Hashable)
    return x * score + isinstance(len, collections.abc.Callable) + isinstance(x, Sequence)


@case(one)
def typing_at_run_time(x: Tensor) -> Tensor:
    kind = typing.cast(int, 3) + typing.cast(list[int | Tensor], 1)
    origin = typing.get_origin(list[int])
    return x * kind + (origin is list) + len(typing.get_args(dict[str, int]))


@case(one)
def getattr_with_defaults(x: Tensor) -> Tensor:
    a = getattr(x, "no_such", 3)
    b = getattr(torch, "float99", torch.float32)
    return (x * a).to(b) + hasattr(x, "cos") + hasattr(x, "kos") + hasattr(math, "tau")


@case(one, expect="any")
def identity_number(x: Tensor) -> tuple[Tensor, bool]:
    return x + 1, id(x) == id(x)


@case(one)
def builtin_conversions(x: Tensor) -> Tensor:
    score = int("12") + float("1.5") + len(str(3.25)) + ord("a") + len(hex(255)) + len(bin(5))
    score += (
        bool([0]) + len(bytes(3)) + tuple("ab").index("b") + len(set([1, 1])) + len(list("abc"))
    )
    return x * score + round(3.14159, 2) + divmod(17, 5)[0] + sum(range(4)) + len(chr(97))


@case(two)
def operator_identity_and_sequences(x: Tensor, y: Tensor) -> Any:
    items = operator.concat([1], [2])
    items = operator.iconcat(items, [3])
    operator.delitem(items, 0)
    z = operator.itruediv(x + 1, 2)
    z = operator.ipow(z, 2)
    z = operator.ifloordiv(z, 0.5)
    z = operator.imod(z, 3)
    facts = operator.is_(x, x), operator.is_not(x, y), operator.is_(None, None)
    counts = operator.countOf([1, 1, 2], 1), operator.indexOf([1, 2], 2), operator.rshift(8, 1)
    return (
        items,
        z,
        facts,
        counts,
        operator.pos(x),
        operator.abs(-y),
        operator.call(torch.add, x, y),
    )


HEAP = [5, 1, 4]


@case(one, change=lambda: HEAP.append(-3))
def heaps(x: Tensor) -> Any:
    heap = list(HEAP)
    heapq.heapify(heap)
    heapq.heappush(heap, 2)
    least = heapq.heappop(heap)
    pairs = [(3, "c"), (1, "a")]
    heapq.heapify(pairs)
    return (
        x * least,
        heap,
        heapq.heappushpop(heap, 0),
        heapq.nsmallest(2, heap),
        heapq.heappop(pairs),
    )


@case(one)
def heap_from_outside(x: Tensor) -> Any:
    heapq.heappush(HEAP, 0)
    return x + heapq.heappop(HEAP), len(HEAP)


@case(one)
def bisection(x: Tensor) -> Any:
    return (
        x * bisect.bisect([1, 3, 5], 3),
        bisect.bisect_left([1, 3, 5], 3),
        bisect.bisect_right("abc", "b"),
    )


LAYER = re.compile(r"layer(\d+)")


def _new_pattern() -> None:
    globals()["LAYER"] = re.compile(r"l(ay)er(\d)")


@case(one, change=_new_pattern)
def patterns(x: Tensor) -> Any:
    return (
        LAYER.sub("l", "layer12.x"),
        LAYER.findall("layer1 layer2"),
        LAYER.split("a layer3 b"),
        x + 1,
    )


@case(one)
def pattern_with_a_function(x: Tensor) -> Any:
    return LAYER.sub(lambda found: found.group(1) * 2, "a layer12"), x + 1


class Ordered:
    """Hashed and compared by its own methods."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return self.number % 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ordered) and other.number == self.number


@case(one)
def keys_with_methods(x: Tensor) -> Any:
    table = {Ordered(1): x, Ordered(3): x + 1}
    table[Ordered(1)] = x * 2
    return table[Ordered(3)] + table.get(Ordered(1), x), Ordered(5) in table, len(table)


@case(lambda: (t(3), Name.WIDE), again=lambda: (t(3), Name.NARROW))
def text_of_a_member(x: Tensor, name: Any) -> Any:
    return f"{name}", str(name), format(name, ">8"), x + 1


class Name(str, enum.Enum):
    """Members that are text."""

    WIDE = "wide"
    NARROW = "narrow"


HEADER = ["<hq", 3]


def _new_header() -> None:
    HEADER[:] = ["<3h", 5]


@case(one, change=_new_header)
def packed_sizes(x: Tensor) -> Any:
    layout, value = HEADER
    values = [value, -value, 1][: len(layout.replace("3h", "hhh")) - 1]
    return x * struct.calcsize(layout), struct.pack(layout, *values)


RECORD = [b"\x03\x00\x01"]


def _new_record() -> None:
    RECORD[0] = b"\x05\x00\x02"


@case(one, change=_new_record)
def unpacked_numbers(x: Tensor) -> Any:
    first, second = struct.unpack("<hb", RECORD[0])
    return x * first, second


@case(one, change=_new_record)
def texts_of_bytes(x: Tensor) -> Any:
    text = base64.b64encode(RECORD[0])
    return x * len(text), text, base64.b64decode(text), binascii.hexlify(RECORD[0], "-")


@case(one, change=_new_record)
def checksums(x: Tensor) -> Any:
    return x * (zlib.crc32(RECORD[0]) % 7), zlib.adler32(RECORD[0], 5)


FOLDERS = ["runs", "first"]


def _new_folders() -> None:
    FOLDERS[:] = ["runs", "sec" + "ond"]


@case(one, change=_new_folders)
def names_of_files(x: Tensor) -> Any:
    path = pathlib.PurePosixPath(*FOLDERS) / f"{x.shape[0]:03d}.pt"
    name = sys.intern("".join(FOLDERS))
    return x * len(path.parts), str(path), path.suffix, path.parent.name, name


LETTERS = ["e\u0301", "5"]


def _new_letters() -> None:
    LETTERS[:] = ["A\u0308b", "\u00bd"]


@case(one, change=_new_letters)
def characters(x: Tensor) -> Any:
    text, digit = LETTERS
    composed = unicodedata.normalize("NFC", text)
    kinds = [unicodedata.category(letter) for letter in text]
    value = unicodedata.numeric(digit)
    return x * value, composed, kinds, unicodedata.name(digit), unicodedata.decimal(digit, None)


@case(lambda: (t(3), bytearray(b"\x03\x00\x01")), again=lambda: (t(3), bytearray(b"\x04\x00\x01")))
def unpacked_bytes_that_may_change(x: Tensor, record: bytearray) -> Any:
    first, _ = struct.unpack("<hb", record)
    record[0] += 1
    return x * first, binascii.crc32(record), struct.unpack("<hb", record)


@case(one)
def unpacked_bytes_that_do_not_fit(x: Tensor) -> Any:
    try:
        return x, struct.unpack("<h", b"\x01"), binascii.unhexlify(b"abc")
    except struct.error as error:
        return x + 1, str(error)


@case(lambda: (t(3), 6), again=lambda: (t(3), -6))
def inverted(x: Tensor, n: int) -> Any:
    return x * operator.inv(n), operator.inv(x > 0)


@case(one)
def packed_values_that_do_not_fit(x: Tensor) -> Any:
    try:
        return x, struct.pack("<b", 300)
    except struct.error as error:
        return x + 1, str(error)
