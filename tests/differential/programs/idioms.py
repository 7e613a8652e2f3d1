"""Generators, exception groups, scopes, names bound anew, threads, recursion, itertools, bytes, texts."""

from __future__ import annotations

import array
import functools
import itertools
import operator
import queue
import random
import sys
import threading
import traceback
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from ..support.case import Corpus, one, t

case = Corpus()
LOG: list[Any] = []
FACTOR = 2


def _factor(*_: Any) -> None:
    global FACTOR
    FACTOR = 7


def accumulate() -> Any:
    total = 0
    while True:
        got = yield total
        if got is None:
            return "done"
        total = total + got * FACTOR


@case(one, change=_factor)
def generator_send(x: Tensor) -> Any:
    g = accumulate()
    next(g)
    a = g.send(x)
    b = g.send(x + 1)
    try:
        g.send(None)
    except StopIteration as stop:
        return a, b, stop.value


def guarded() -> Any:
    try:
        yield 1
    except KeyError as error:
        yield f"caught {error}"
    finally:
        LOG.append("finally")


def delegate() -> Any:
    result = yield from guarded()
    yield ("result", result)


@case(one)
def generator_throw(x: Tensor) -> Any:
    g = delegate()
    out = [next(g), g.throw(KeyError("k")), next(g)]
    try:
        g.throw(OSError("after"))
    except OSError as error:
        out.append(str(error))
    h = delegate()
    next(h)
    h.close()
    return x + len(out), out


@case(one)
def generator_close_ignored(x: Tensor) -> Any:
    def stubborn() -> Any:
        while True:
            try:
                yield x
            except GeneratorExit:
                yield 5

    g = stubborn()
    next(g)
    try:
        g.close()
    except RuntimeError as error:
        return x + 1, str(error)


@case(one)
def generator_stop_inside(x: Tensor) -> Any:
    def broken() -> Any:
        yield x
        raise StopIteration("mine")

    return list(broken())


__KEPT: list[Any] = []


def forever() -> Any:
    n = 0
    while True:
        n += FACTOR
        yield n


@case(one, change=_factor)
def generator_between_calls(x: Tensor) -> Any:
    if not __KEPT:
        __KEPT.append(forever())
    y = x * next(__KEPT[0])
    return y + next(__KEPT[0])


__CYCLE = itertools.cycle([1.0, 2.0, 3.0])
__COUNT = itertools.count(5, 2)


@case(one)
def outside_cycle(x: Tensor) -> Tensor:
    return x * next(__CYCLE) + next(__COUNT)


def _batches() -> Any:
    return iter([torch.ones(3), torch.zeros(3)])


@case(one)
def cycle_inside(x: Tensor) -> Any:
    c = itertools.cycle((x, x + 1))
    return [next(c) for _ in range(5)], list(itertools.islice(itertools.cycle("ab"), 5))


@case(lambda: (t(2), [3, 1, 2, 2]), again=lambda: (t(2), [1, 1, 1, 5, 5]))
def itertools_all(x: Tensor, v: list[int]) -> Any:
    groups = [(k, len(list(g))) for k, g in itertools.groupby(sorted(v))]
    return (
        x * sum(itertools.accumulate(v)) + len(list(itertools.permutations(v, 2))),
        groups,
        list(itertools.chain.from_iterable([v, v])),
        list(itertools.combinations(v, 2)),
        list(itertools.combinations_with_replacement(v[:2], 2)),
        list(itertools.compress(v, [1, 0, 1])),
        list(itertools.dropwhile(lambda n: n > 1, v)),
        list(itertools.takewhile(lambda n: n > 1, v)),
        list(itertools.filterfalse(lambda n: n > 1, v)),
        list(itertools.starmap(pow, [(2, n) for n in v])),
        [list(i) for i in itertools.tee(v, 2)],
        list(itertools.zip_longest(v, v[1:], fillvalue=0)),
        list(itertools.product(v[:2], repeat=2)),
        list(itertools.pairwise(v)),
        list(itertools.repeat(x.dim(), 2)),
    )


@case(one)
def itertools_tensors(x: Tensor) -> Any:
    a, b = itertools.tee(x.unbind(0))
    running = list(itertools.accumulate(x.unbind(0), torch.maximum))
    pairs = [p - q for p, q in itertools.pairwise(a)]
    return running, pairs, list(itertools.starmap(torch.add, zip(b, x, strict=False)))


@case(one)
def groups_split(x: Tensor) -> Any:
    got = []
    try:
        raise ExceptionGroup(
            "all", [ValueError(1), ExceptionGroup("in", [KeyError("k"), OSError(2)])]
        )
    except* ValueError as group:
        got.append(group.exceptions[0].args)
        x = x + 1
    except* (KeyError, OSError) as group:
        got.append(group.message)
        got.append([type(e).__name__ for e in group.exceptions])
    return x, got


@case(lambda: (t(2), 0), again=lambda: (t(2), 1))
def groups_left(x: Tensor, k: int) -> Any:
    try:
        raise ExceptionGroup("g", [ValueError("v"), [TypeError("t"), KeyError("k")][k]])
    except* ValueError:
        x = x * 2
    except* KeyError as group:
        raise RuntimeError("again") from group
    return x


@case(lambda: (t(3, 4), t(5)))
def groups_of_operations(x: Tensor, y: Tensor) -> Any:
    errors = []
    for f in (lambda: x @ y, lambda: x.view(7), lambda: x + 1, lambda: x[9]):
        try:
            f()
        except Exception as error:
            errors.append(error)
    group = ExceptionGroup("ops", errors)
    match_, rest = group.split(IndexError)
    return len(errors), match_ and len(match_.exceptions), rest and len(rest.exceptions)


@case(one)
def exception_chain(x: Tensor) -> Any:
    try:
        try:
            {}["missing"]
        except KeyError as error:
            error.add_note("noted")
            raise ValueError("outer") from error
    except ValueError as error:
        names = [f.name for f in traceback.extract_tb(error.__traceback__)]
        return x + 1, error.__cause__.__notes__, error.__suppress_context__, names


@case(one)
def exception_finally_return(x: Tensor) -> Any:
    def f() -> Any:
        try:
            raise ValueError
        finally:
            return x * 2

    def g() -> Any:
        for i in range(3):
            try:
                if i == 1:
                    continue
                if i == 2:
                    break
            finally:
                LOG.append(i)
        else:
            LOG.append("else")
        return sys.exc_info()

    return f(), g(), list(LOG)


@case(one)
def raises_behind_work(x: Tensor) -> Any:
    LOG.append(x.dim())
    y = x + 1
    LOG.append("b")
    return helper_raises(y)


def helper_raises(y: Tensor) -> Any:
    z = y * 2
    LOG.append("c")
    raise LookupError("deep", z.dim())


@case(lambda: (t(2), [1, 5, 2, 8]), again=lambda: (t(2), [9, 0]))
def walrus_scopes(x: Tensor, v: list[int]) -> Any:
    i = "outer"
    big = [last := n for n in v if (half := n // 2) > 0]
    nested = [[(i, j) for j in range(i)] for i in range(3)]
    fs = [lambda: i for i in range(2)]
    gs = [lambda i=i: i for i in range(2)]
    while (n := len(v)) > 1:
        v = v[1:]
    return x * last + half + n, i, big, nested, [f() for f in fs], [g() for g in gs]


def make_counter() -> Any:
    n = 0

    def bump(by: int = 1) -> int:
        nonlocal n
        n += by
        return n

    def peek() -> int:
        return n

    return bump, peek


BUMP, PEEK = make_counter()


@case(one, change=lambda: BUMP(100))
def nonlocal_between(x: Tensor) -> Any:
    y = x * BUMP()
    return y + PEEK() + BUMP(2)


def helper(x: Tensor) -> Tensor:
    return x + 1


def _monkey(*_: Any) -> None:
    old = globals()["helper"]
    globals()["helper"] = lambda x: old(x) * 10


@case(one, change=_monkey)
def global_patched(x: Tensor) -> Tensor:
    return helper(helper(x))


@case(one)
def globals_deleted(x: Tensor) -> Any:
    global TEMP
    TEMP = x.dim()
    y = x * TEMP
    del TEMP
    try:
        return TEMP
    except NameError as error:
        return y, str(error)


@case(one)
def deletions(x: Tensor) -> Any:
    a, d = list(range(8)), {"k": 1, "j": 2}
    del a[1:3], a[-1], d["k"]
    del a[::2]
    try:
        del x2
    except UnboundLocalError as error:
        text = str(error)
    y = x * len(a)
    del x
    try:
        x
    except UnboundLocalError:
        return y, a, d, text


def _code(*_: Any) -> None:
    def other(x: Tensor, k: int = 4) -> Tensor:
        return x - k

    helper2.__code__ = other.__code__
    helper2.__defaults__ = (9,)


def helper2(x: Tensor, k: int = 3) -> Tensor:
    return x * k


@case(one, change=_code)
def code_replaced(x: Tensor) -> Tensor:
    return helper2(x) + helper2(x, k=2)


@case(lambda: (t(2), 5), again=lambda: (t(2), 8))
def recursion(x: Tensor, n: int) -> Any:
    def fib(k: int) -> int:
        return k if k < 2 else fib(k - 1) + fib(k - 2)

    def nest(k: int) -> Any:
        return [nest(k - 1), x * k] if k else x

    return x * fib(n), nest(3)


@case(one)
def recursion_too_deep(x: Tensor) -> Any:
    def down(k: int) -> int:
        return down(k + 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200)
    try:
        down(0)
    except RecursionError as error:
        return x + 1, str(error)
    finally:
        sys.setrecursionlimit(limit)


@case(one)
def mutual_recursion(x: Tensor) -> Any:
    def even(n: int) -> bool:
        return n == 0 or odd(n - 1)

    def odd(n: int) -> bool:
        return n != 0 and even(n - 1)

    return x * even(10) + odd(7)


@case(one)
def threads_inside(x: Tensor) -> Any:
    out: dict[int, Tensor] = {}

    def work(i: int) -> None:
        out[i] = x * i

    ts = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for th in ts:
        th.start()
    for th in ts:
        th.join()
    return [out[i] for i in range(3)]


@case(one)
def pool_inside(x: Tensor) -> Any:
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(torch.mul, x, i) for i in range(3)]
        mapped = list(pool.map(lambda k: x + k, range(3)))
    return [f.result() for f in futures], mapped


@case(one)
def queues(x: Tensor) -> Any:
    q: queue.Queue[Any] = queue.Queue()
    for i in range(3):
        q.put(x * i)
    out = []
    while not q.empty():
        out.append(q.get_nowait())
    try:
        q.get(block=False)
    except queue.Empty:
        return out, q.qsize()


LOCAL = threading.local()


@case(one)
def thread_local(x: Tensor) -> Any:
    LOCAL.n = getattr(LOCAL, "n", 0) + 1
    return x * LOCAL.n


@case(lambda: (t(3), 3), again=lambda: (t(3), 2**70))
def big_integers(x: Tensor, n: int) -> Any:
    big = n**20 + (1 << 100)
    return (
        x + big % 1000,
        big,
        big.bit_length(),
        int.from_bytes(big.to_bytes(200, "little"), "little") == big,
        divmod(-big, 7),
        ~n & 0xFF,
        n >> 2,
        hash(big),
        f"{big:,}",
        bool(n) + True - False,
        True & (n > 2),
        (n > 1) * 3,
        isinstance(True + True, bool),
        round(n, -1),
    )


@case(lambda: (t(3), True, 1), again=lambda: (t(3), 1, True))
def bool_or_int(x: Tensor, a: Any, b: Any) -> Any:
    table = {a: "a", b: "b"}
    return (
        x * a,
        x + b,
        table,
        a is True,
        type(a + b).__name__,
        f"{a} {b:d}",
        [a, b].index(1),
        x.new_full((1,), a),
    )


@case(lambda: (t(3), 1.0, 0.0), again=lambda: (t(3), float("nan"), -0.0))
def float_edges(x: Tensor, a: float, z: float) -> Any:
    return (
        x * a,
        a == a,
        [a] == [a],
        a in (1.0, 2.0),
        z == 0,
        str(z),
        max(a, 2.0),
        max(2.0, a),
        min([a, z]),
        a.hex(),
        a.is_integer(),
        sorted([3.0, 1.0]),
        x / (z + 1),
        float("1e400"),
    )


@case(one)
def other_numbers(x: Tensor) -> Any:
    return x * float(Fraction(1, 3) + 1), Decimal("1.10") + 1, Fraction(3, 4).limit_denominator(2)


@case(lambda: (t(3), b"abc"), again=lambda: (t(3), b"zz"))
def byte_things(x: Tensor, b: bytes) -> Any:
    ba = bytearray(b)
    ba.extend(b"12")
    mv = memoryview(ba)
    mv[0] = 65
    total = sum(mv[1:])
    mv.release()
    a = array.array("i", [1, 2, 3])
    a.append(total)
    return (
        x * total + a[-1],
        bytes(ba),
        a.tolist(),
        b.hex(),
        b[::-1],
        b.translate(None, b"a"),
        b"%d" % total,
    )


@case(lambda: (t(6), slice(1, 4)), again=lambda: (t(6), slice(None, None, 2)))
def slices(x: Tensor, s: slice) -> Any:
    lst = list(range(6))
    lst[s] = [0] * len(range(*s.indices(6)))
    return (
        x[s],
        x[..., s],
        lst,
        s.indices(6),
        s == slice(1, 4),
        repr(s),
        "abcdef"[s],
        (s.start, s.step),
    )


@case(lambda: (t(3), 3.14159, 42), again=lambda: (t(3), 2.5e10, -7))
def texts(x: Tensor, f: float, n: int) -> Any:
    return (
        x + len(f"{n}"),
        f"{f:.2f} {f:>12.3e} {f!r} {n:+d} {n:#x} {n:08b} {n:,} {f:%}",
        "%s %5.1f %-4d| %r" % (n, f, n, "q"),
        "{0} {k:{w}} {1[0]}".format(n, [f], k="v", w=n % 5 + 3),
        "{a.dtype} {b}".format(a=x, b=tuple(x.shape)),
        str(n).rjust(5, "*") + "x".join(str(i) for i in range(3)),
        format(n, "^9"),
        f"{x.shape=} {n=!s}",
    )


@case(one)
def texts_of_tensors(x: Tensor) -> Any:
    y = x.abs().sum() * 0 + 2
    return (
        x + 1,
        f"{y:.2f} {y.item():5d}" if y.dtype == torch.int64 else f"{y:.2f}",
        str(y),
        repr(x[:1, :2] * 0),
    )


@case(one)
def operators_as_functions(x: Tensor) -> Any:
    get, attr, call = (
        operator.itemgetter(1, 0),
        operator.attrgetter("shape", "dtype"),
        operator.methodcaller("sum", dim=1),
    )
    a = [1, 2, 3]
    operator.setitem(a, 0, 9)
    operator.delitem(a, slice(0, 1))
    b = operator.iadd(a, [7])
    return (
        get([x, x + 1]),
        attr(x),
        call(x),
        a,
        b is a,
        operator.concat([1], [2]),
        operator.countOf([1, 1], 1),
        operator.indexOf([3, 4], 4),
        operator.matmul(x, x.T),
        operator.index(True),
        operator.length_hint(iter([1, 2])),
        functools.reduce(operator.or_, [{"a": 1}, {"b": 2}]),
        operator.not_([]),
        operator.xor(5, 1),
    )


COUNTS: Counter[str] = Counter()
DEFAULTS: defaultdict[str, list[Any]] = defaultdict(list)
RECENT: deque[Any] = deque(maxlen=3)


def _collections(*_: Any) -> None:
    COUNTS["a"] = 50
    DEFAULTS.clear()
    RECENT.append("mine")


@case(lambda: (t(2), "abca"), again=lambda: (t(2), "zza"), change=_collections)
def collections_changed(x: Tensor, s: str) -> Any:
    COUNTS.update(s)
    COUNTS.subtract("b")
    DEFAULTS[s].append(x.dim())
    RECENT.append(len(s))
    RECENT.rotate(1)
    chain = ChainMap({"k": 1}, {"k": 2, "j": 3})
    return (
        x * COUNTS["a"],
        COUNTS.most_common(1),
        dict(DEFAULTS),
        list(RECENT),
        chain["j"] + chain["k"],
        +COUNTS - Counter("a"),
    )


@case(one)
def counter_total(x: Tensor) -> Any:
    c = Counter(a=1)
    c.update(["b", "a"])
    c["z"] += 2
    od = OrderedDict(c)
    od.move_to_end("a")
    return x * c.total(), list(od), sorted(c.elements()), c & Counter("a"), c | Counter("q")


@case(one)
def random_module(x: Tensor) -> Any:
    items = list(range(6))
    random.shuffle(items)
    r = random.Random(5)
    state = random.getstate()
    a = random.random()
    random.setstate(state)
    b = random.random()
    return (
        x * a,
        a == b,
        items,
        random.sample(items, 3),
        random.choice(items),
        random.choices(items, k=2),
        random.uniform(0, 1),
        r.randint(0, 9),
        random.gauss(0, 1),
    )


@case(one)
def any_all_on_data(x: Tensor) -> Any:
    rows = x.unbind(0)
    a = any(r.sum() > 0 for r in rows)
    b = all(bool((r < 100).all()) for r in rows)
    c = any(torch.isnan(r).any() for r in rows)
    return x * a + b, c


@case(one)
def map_filter_on_data(x: Tensor) -> Any:
    rows = list(x.unbind(0))
    kept = list(filter(lambda r: r.sum() > 0, rows))
    numbers = set(map(int, torch.tensor([1, 2, 2])))
    best = max(rows, key=lambda r: r.sum().item())
    order = sorted(range(3), key=lambda i: x[i, 0].item())
    return kept, numbers, best, order


@case(one)
def star_calls(x: Tensor) -> Any:
    def f(a: Any, /, b: Any, *args: Any, c: Any = 1, **kw: Any) -> Any:
        return a, b, args, c, kw

    first, *mid, last = [*range(3), *"ab"]
    try:
        f(1, c=2)
    except TypeError as error:
        text = str(error).split("()")[-1]
    try:
        f(1, **{"b": 1}, **{"b": 2})
    except TypeError as error:
        text += str(error).split("()")[-1]
    return f(x, *mid, *[last], **{"c": 3, "z": first}), text, {**{"a": 1}, "a": 2}


@case(one)
def mutated_while_iterated(x: Tensor) -> Any:
    d = {"a": 1, "b": 2}
    seen = []
    try:
        for k in d:
            seen.append(k)
            d[k + k] = 0
    except RuntimeError as error:
        seen.append(str(error))
    lst = [1, 2, 3]
    for v in lst:
        if v < 3:
            lst.append(v + 10)
        if len(lst) > 6:
            break
    return x + len(lst), seen, lst


@case(one)
def exec_eval(x: Tensor) -> Any:
    space: dict[str, Any] = {"x": x}
    exec("def f(k):\n    return x * k\ny = f(3)", space)
    return space["y"] + eval("x.dim() + 1"), sorted(k for k in locals() if not k.startswith("_"))


@case(one)
def frames_seen(x: Tensor) -> Any:
    def inner() -> Any:
        frame = sys._getframe(1)
        return (
            frame.f_code.co_name,
            frame.f_lineno - frame.f_code.co_firstlineno,
            sorted(frame.f_locals),
        )

    k = 5
    return x + k, inner()
