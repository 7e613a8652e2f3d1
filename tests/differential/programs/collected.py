"""Python's own collections, iterators and random numbers beside tensors, classes made on the way, unpacking of odd things."""

from __future__ import annotations

import abc
import bisect
import collections
import contextlib
import dataclasses
import enum
import functools
import heapq
import itertools
import operator
import random
import types
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import Any, Iterator, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..support.case import Corpus, one, t

case = Corpus()
SCALES = [1.0, 2.0, 3.0]


def _scales(*_: Any) -> None:
    SCALES[1] = 7.0
    SCALES.append(4.0)


@case(one)
def random_crops(x: Tensor) -> Any:
    top, left = random.randint(0, 1), random.randrange(2)
    x = x[top : top + 2, left : left + 2]
    if random.random() > 0.5:
        x = x.flip(1)
    return x * random.uniform(0.8, 1.2) + random.gauss(0, 0.1)


@case(one, change=_scales)
def random_choices(x: Tensor) -> Any:
    scale = random.choice(SCALES)
    many = random.choices(SCALES, weights=[i + 1 for i in range(len(SCALES))], k=2)
    some = random.sample(SCALES, 2)
    return x * scale + sum(many), some


ORDER = list(range(5))


@case(one)
def shuffled_outside(x: Tensor) -> Any:
    random.shuffle(ORDER)
    return x * ORDER[0], list(ORDER)


@case(one)
def seeded_block(x: Tensor) -> Any:
    state = random.getstate()
    random.seed(7)
    a = random.random()
    random.setstate(state)
    b = random.random()
    return x * a + b


RNG = random.Random(3)
NP_RNG = np.random.default_rng(5)


def _reseed(*_: Any) -> None:
    RNG.seed(11)


@case(one, change=_reseed)
def own_generators(x: Tensor) -> Any:
    keep = [i for i in range(4) if RNG.random() < 0.7] or [0]
    order = NP_RNG.permutation(3)
    noise = torch.from_numpy(NP_RNG.normal(size=4)).float()
    return x[:, keep].sum(), x[order.tolist()] + noise


@case(one)
def numpy_state(x: Tensor) -> Any:
    np.random.seed(3)
    state = np.random.get_state()
    a = np.random.uniform(-1, 1, size=3)
    np.random.set_state(state)
    b = np.random.uniform(-1, 1, size=3)
    idx = np.random.choice(3, 2, replace=False)
    order = np.arange(4)
    np.random.shuffle(order)
    return x * float(a[0]) + float(b[1]), x[torch.from_numpy(idx)], order.tolist()


@case(lambda: (t(6, 2), t(6, 2)))
def mixed_up(x: Tensor, y: Tensor) -> Any:
    lam = random.betavariate(1.0, 1.0)
    index = torch.randperm(x.size(0))
    mixed = lam * x + (1 - lam) * x[index]
    return mixed, lam * y + (1 - lam) * y[index]


@case(one, change=_scales)
def cycled(x: Tensor) -> Any:
    scales = itertools.cycle(SCALES)
    rows = [r * next(scales) for r in x]
    head = list(itertools.islice(itertools.cycle(SCALES), 5))
    steps = list(itertools.accumulate(SCALES))
    products = list(itertools.accumulate(SCALES, operator.mul, initial=1.0))
    return torch.stack(rows), head, steps, products


@case(one, change=_scales)
def paired(x: Tensor) -> Any:
    diffs = [b - a for a, b in itertools.pairwise(x.unbind(0))]
    a, b = itertools.tee(SCALES)
    next(b, None)
    gaps = [q - p for p, q in zip(a, b, strict=False)]
    groups = {k: list(g) for k, g in itertools.groupby(SCALES, key=lambda v: v > 2)}
    return torch.stack(diffs), gaps, groups, list(itertools.chain.from_iterable([SCALES, [0.0]]))


@case(one, change=_scales)
def filtered(x: Tensor) -> Any:
    big = list(itertools.takewhile(lambda v: v < 3, SCALES))
    rest = list(itertools.dropwhile(lambda v: v < 3, SCALES))
    off = list(itertools.filterfalse(lambda v: v % 2, SCALES))
    picked = list(itertools.compress(SCALES, [1, 0, 1]))
    star = list(itertools.starmap(operator.mul, zip(SCALES, SCALES, strict=True)))
    grid = list(itertools.product([1, 2], "ab"))
    combos = list(itertools.combinations(range(3), 2))
    long = list(itertools.zip_longest(SCALES, "ab", fillvalue=None))
    return x * len(combos) + sum(star), big, rest, off, picked, grid, long


def _chunks(it: Any, n: int) -> Iterator[list[Any]]:
    it = iter(it)
    while chunk := list(itertools.islice(it, n)):
        yield chunk


@case(one)
def chunked(x: Tensor) -> Any:
    return [torch.stack(c).mean(0) for c in _chunks(x.unbind(0), 2)]


BATCHES = itertools.cycle([1.0, 2.0, 3.0])
COUNTED = itertools.count(5)


@case(one)
def endless_outside(x: Tensor) -> Any:
    return x * next(BATCHES) + next(COUNTED), [n for _, n in zip(range(2), COUNTED, strict=False)]


def _lazies() -> Any:
    squares = (n * n for n in range(9))
    return t(3), map(len, ["a", "bb"]), filter(None, [0, 3, 4]), iter("abc"), squares, iter({7})


@case(_lazies)
def lazies_outside(x: Tensor, words: Any, some: Any, letters: Any, squares: Any, held: Any) -> Any:
    y = x * next(words) + next(some) + next(squares) + next(held)
    return y, next(letters), sum(squares), dict(zip(letters, words, strict=False)), next(held, None)


@case(one)
def loops_with_prints(x: Tensor) -> Any:
    out = []
    for c in "ab":
        print("letter", c)
        out.append(x * ord(c))
    for v in {3}:
        print("of a set", v)
        out.append(x + v)
    for n in map(abs, [-1, 2]):
        print("absolute", n)
        out.append(x - n)
    return out


def _grown(*_: Any) -> None:
    COUNTS.update("zzz")


COUNTS: Counter[str] = Counter("abracadabra")


@case(lambda: (t(3), "banana"), change=_grown, again=lambda: (t(3), "kiwi"))
def counters(x: Tensor, word: str) -> Any:
    COUNTS.update(word)
    local = Counter(word)
    local.subtract("a")
    both = local + Counter("b")
    return x * COUNTS["a"], local.most_common(2), both, COUNTS.most_common(1), sum(local.values())


SETTINGS = ChainMap({"lr": 0.5}, {"lr": 0.1, "wd": 2.0})


def _settings(*_: Any) -> None:
    SETTINGS.maps[1]["wd"] = 5.0
    SETTINGS["lr"] = 0.25


@case(one, change=_settings)
def chained_settings(x: Tensor) -> Any:
    child = SETTINGS.new_child({"wd": 1.0})
    child["extra"] = 3
    missing = SETTINGS.get("nope", -1)
    return x * SETTINGS["lr"] + SETTINGS["wd"] + child["wd"], sorted(child), missing, "lr" in child


RECENT: deque[Any] = deque([1.0], maxlen=3)


@case(one)
def bounded(x: Tensor) -> Any:
    RECENT.append(x.mean().item())
    RECENT.rotate(1)
    local = deque([1, 2, 3], maxlen=2)
    local.extendleft([9, 8])
    full = len(RECENT) == RECENT.maxlen
    return x * full, list(local), local.index(9), len(RECENT)


CACHE: OrderedDict[str, Tensor] = OrderedDict()


@case(lambda: (t(2), "a"), again=lambda: (t(2), "b"))
def least_recent(x: Tensor, key: str) -> Any:
    if key in CACHE:
        CACHE.move_to_end(key)
        hit = True
    else:
        CACHE[key] = x.clone()
        hit = False
    CACHE[f"{key}{len(CACHE)}"] = x * 2
    if len(CACHE) > 2:
        CACHE.popitem(last=False)
    return CACHE.get(key, x).sum(), hit, list(CACHE)


HEAP: list[tuple[float, int]] = []


@case(one)
def best_of(x: Tensor) -> Any:
    for i, row in enumerate(x):
        heapq.heappush(HEAP, (row.sum().item(), i))
        if len(HEAP) > 4:
            heapq.heappop(HEAP)
    nums = [5, 1, 4]
    heapq.heapify(nums)
    least = heapq.heappushpop(nums, 3)
    merged = list(heapq.merge([1, 4], [2, 3]))
    return heapq.nlargest(2, HEAP), heapq.nsmallest(1, nums), least, merged, x * nums[0]


BOUNDS = [0.0, 1.0, 2.0]


def _bounds(*_: Any) -> None:
    BOUNDS[1] = 0.1


@case(lambda: (t(3), 1.5), change=_bounds, again=lambda: (t(3), 0.5))
def bucketed(x: Tensor, v: float) -> Any:
    i = bisect.bisect_left(BOUNDS, v)
    j = bisect.bisect_right([1, 2, 2, 3], 2)
    mine = [1, 5]
    bisect.insort(mine, 3)
    return x * i + j, mine, bisect.bisect(BOUNDS, x.abs().sum().item()) <= 3


@functools.singledispatch
def doubled(v: Any) -> Any:
    return v


@doubled.register
def _(v: int) -> Any:
    return v * 2


@doubled.register(torch.Tensor)
def _(v: Tensor) -> Any:
    return v * 2


@doubled.register(list)
def _(v: list[Any]) -> Any:
    return [doubled(i) for i in v]


def _register(*_: Any) -> None:
    doubled.register(str, lambda v: v + v)


@case(lambda: (t(3),), change=_register)
def dispatched(x: Tensor) -> Any:
    return doubled(x), doubled([1, x, "s"]), doubled("s"), doubled(2.5)


class Tag:
    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def __enter__(self) -> str:
        self.log.append(f"in {self.name}")
        return self.name

    def __exit__(self, *args: Any) -> bool:
        self.log.append(f"out {self.name}")
        return False


TAGGED: list[str] = []


@case(lambda: (t(3), True), again=lambda: (t(3), False))
def stacked_contexts(x: Tensor, both: bool) -> Any:
    with contextlib.ExitStack() as stack:
        stack.enter_context(Tag(TAGGED, "a"))
        if both:
            stack.enter_context(torch.no_grad())
        stack.callback(TAGGED.append, "called")
        y = x * 2
    with contextlib.suppress(KeyError, IndexError):
        y = y + [1][3]
    with contextlib.nullcontext(5) as five:
        y = y * five
    with contextlib.suppress(ZeroDivisionError):
        y = y + 1 / 0
    return y, y.requires_grad, len(TAGGED)


@case(one)
def classes_inside(x: Tensor) -> Any:
    class Scale(nn.Module):
        def __init__(self, k: float) -> None:
            super().__init__()
            self.k = nn.Parameter(torch.tensor(k))

        def forward(self, v: Tensor) -> Tensor:
            return v * self.k

    class Double(Scale):
        def forward(self, v: Tensor) -> Tensor:
            return super().forward(v) * 2

    return Double(3.0)(x), Double.__name__, issubclass(Double, Scale)


@case(one)
def made_types(x: Tensor) -> Any:
    Pair = namedtuple("Pair", "first second")
    Row = dataclasses.make_dataclass("Row", [("a", float), ("b", int, 3)])
    Bag = type("Bag", (), {"total": lambda self: self.v.sum(), "v": x})
    p, r = Pair(x, 2), Row(1.5)
    return p.first * p.second + r.a * r.b, Bag().total(), p._fields, r


class Out(NamedTuple):
    loss: Tensor
    extra: int = 1


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


@case(one)
def tuples_and_enums(x: Tensor) -> Any:
    out = Out(x.sum())._replace(extra=Level.HIGH)
    loss, extra = out
    return loss * extra, out._asdict(), Level(1), [l.name for l in Level], Level["HIGH"] > 2


@case(one)
def unpacked(x: Tensor) -> Any:
    first, *rest = x
    a, (b, *c) = 1, "xyz"
    d, e = {"k": 1, "l": 2}
    *f, g = (i * i for i in range(4))
    h = [*x.unbind(0), *range(2), *{"m": 1}, *map(str, [1])]
    i = {**{"a": 1}, **dict(b=2)}
    j = [*x.shape]
    k = (*x[0], 1)
    return first, rest, b, c, d, e, f, g, h, i, j, k


PROXY = types.MappingProxyType({"a": 2.0, "b": 3.0})


class Bag:
    def __init__(self, items: list[float]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[float]:
        return iter(self.items)

    def keys(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.items))]

    def __getitem__(self, k: str) -> float:
        return self.items[int(k[1:])]


BAG = Bag([1.0, 2.0])


def _bag(*_: Any) -> None:
    BAG.items.append(5.0)


@case(one, change=_bag)
def odd_iterables(x: Tensor) -> Any:
    total = sum([*BAG]) + sum([*PROXY.values()])
    a, *more = BAG
    merged = {**BAG, **PROXY}
    return x * total + a, more, merged, [*PROXY], dict(PROXY)


class Sequence:
    def __getitem__(self, i: int) -> float:
        if i >= len(SCALES):
            raise IndexError(i)
        return SCALES[i]


@case(one, change=_scales)
def old_iteration(x: Tensor) -> Any:
    seq = Sequence()
    return x * sum(seq), [*seq], list(reversed([*enumerate(seq)])), 2.0 in seq


@case(one)
def raising_builtins(x: Tensor) -> Any:
    found = []
    for act in (
        lambda: int("x"),
        lambda: [][1],
        lambda: {}["k"],
        lambda: next(iter(())),
        lambda: max([]),
        lambda: x.nope,
        lambda: x @ torch.ones(3),
        lambda: list(zip([1], [1, 2], strict=True)),
        lambda: "a" + 1,
        lambda: len(5),
        lambda: x.view(5, 5),
    ):
        try:
            act()
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return x + len(found), found


class Registry(abc.ABC):
    known: dict[str, type] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Registry.known[cls.__name__] = cls

    @abc.abstractmethod
    def apply(self, x: Tensor) -> Tensor: ...


class Twice(Registry):
    def apply(self, x: Tensor) -> Tensor:
        return x * 2


def _another(*_: Any) -> None:
    class Minus(Registry):
        def apply(self, x: Tensor) -> Tensor:
            return -x


@case(one, change=_another)
def registered_classes(x: Tensor) -> Any:
    for name, cls in Registry.known.items():
        x = cls().apply(x)
    return x, list(Registry.known)


TABLE: defaultdict[str, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))


@case(lambda: (t(3), "train"), again=lambda: (t(3), "test"))
def nested_defaults(x: Tensor, split: str) -> Any:
    for i, v in enumerate(x.tolist()):
        TABLE[split][i % 2].append(v)
    return {k: {i: len(v) for i, v in d.items()} for k, d in TABLE.items()}


@case(lambda: (t(6, 2), torch.tensor([0, 1, 0, 2, 1, 0])))
def grouped_rows(x: Tensor, y: Tensor) -> Any:
    groups = defaultdict(list)
    for row, label in zip(x, y.tolist(), strict=True):
        groups[label].append(row)
    means = {k: torch.stack(v).mean(0) for k, v in sorted(groups.items())}
    biggest = max(groups, key=lambda k: len(groups[k]))
    return means, biggest, Counter(y.tolist()).most_common(1)


@case(one)
def reduced(x: Tensor) -> Any:
    total = functools.reduce(torch.add, x.unbind(0))
    compose = functools.reduce(lambda f, g: lambda v: g(f(v)), [torch.sin, F.relu, torch.neg])
    part = functools.partial(torch.clamp, min=-0.5, max=0.5)
    got = operator.itemgetter(0, 2)(list(x))
    return total, compose(x), part(x), got, operator.attrgetter("shape")(x)


@case(one)
def user_containers(x: Tensor) -> Any:
    class Stack(collections.UserList):
        def push(self, v: Any) -> None:
            self.append(v)

    s = Stack()
    s.push(x)
    s.push(x * 2)
    d = collections.UserDict(a=1)
    d["b"] = x.shape[0]
    return torch.stack(s.data).sum(), len(s), dict(d)
