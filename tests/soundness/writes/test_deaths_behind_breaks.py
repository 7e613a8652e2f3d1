"""Objects that die behind a graph break: finalizers, weak references and generators tell as early as in plain Python."""

from __future__ import annotations

import collections
import contextlib
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator

Log = list[Any]


class Told:
    """Says when it dies."""

    def __init__(self, log: Log, n: int) -> None:
        self.log, self.n = log, n

    def __del__(self) -> None:
        self.log.append("dead")

    def scale(self, x: Tensor) -> Tensor:
        return x * self.n


class Plain:
    told: Any = None


POOL: list[Plain] = []


@stator.disable
def cut(log: Log) -> None:
    log.append("break")


def below_a_list(x: Tensor, log: Log, n: int) -> Tensor:
    held = [Told(log, n)]
    cut(log)
    y = x * held[0].n
    held = []
    log.append("behind")
    return y


def below_an_instance(x: Tensor, log: Log, n: int) -> Tensor:
    held: Any = Plain()
    held.told = Told(log, n)
    cut(log)
    held = None
    log.append("behind")
    return x * n


def below_a_tuple(x: Tensor, log: Log, n: int) -> Tensor:
    held: Any = (Told(log, n), n)
    cut(log)
    x = x * held[0].n
    held = held[1]
    log.append("behind")
    cut(log)
    return x * held


def below_a_method(x: Tensor, log: Log, n: int) -> Tensor:
    method: Any = Told(log, n).scale
    cut(log)
    x = method(x)
    method = None
    log.append("behind")
    cut(log)
    return x


def below_an_exception(x: Tensor, log: Log, n: int) -> Tensor:
    try:
        cut(log)
        raise ValueError(Told(log, n))
    except ValueError:
        cut(log)
        x = x + n
    log.append("behind")
    cut(log)
    return x


def takes(x: Tensor, log: Log, told: Any, n: int) -> Tensor:
    cut(log)
    x = x * told.n
    told = None
    log.append("behind")
    return x + n


def argument(x: Tensor, log: Log, n: int) -> Tensor:
    return takes(x, log, Told(log, n), n)


def raises(log: Log, n: int) -> None:
    told = Told(log, n)
    cut(log)
    raise KeyError(told.n)


def below_a_frame_that_raised(x: Tensor, log: Log, n: int) -> Tensor:
    try:
        raises(log, n)
    except KeyError:
        cut(log)
        x = x + n
    log.append("behind")
    cut(log)
    return x


def popped(x: Tensor, log: Log, n: int) -> Tensor:
    plain = POOL.pop()
    reference = weakref.ref(plain)
    x = x + n
    del plain
    log.append(reference() is None)
    return x


def from_outside(x: Tensor, log: Log, n: int) -> Tensor:
    held = kept(log, n)
    n = held[0][0].n
    held.pop()
    log.append("behind")
    return x + n


@stator.disable
def kept(log: Log, n: int) -> list[list[Told]]:
    return [[Told(log, n)]]


def referred_to(x: Tensor, log: Log, n: int) -> Tensor:
    plain = Plain()
    reference = weakref.ref(plain)
    log.append(reference() is plain)
    cut(log)
    del plain
    log.append(reference() is None)
    return x * n


def tensor_referred_to(x: Tensor, log: Log, n: int) -> Tensor:
    y = x + n
    reference = weakref.ref(y)
    z = y * 2
    del y
    log.append(reference() is None)
    return z


def key_of_a_weak_dictionary(x: Tensor, log: Log, n: int) -> Tensor:
    plain = Plain()
    table: weakref.WeakKeyDictionary[Plain, int] = weakref.WeakKeyDictionary()
    table[plain] = n
    cut(log)
    log.append(len(table))
    del plain
    log.append(len(table))
    return x * n


def value_of_a_weak_dictionary(x: Tensor, log: Log, n: int) -> Tensor:
    plain = Plain()
    table: weakref.WeakValueDictionary[int, Plain] = weakref.WeakValueDictionary()
    table[n] = plain
    log.append(len(table))
    cut(log)
    del plain
    log.append(len(table))
    return x * n


def finalized(x: Tensor, log: Log, n: int) -> Tensor:
    plain = Plain()
    weakref.finalize(plain, log.append, "final")
    cut(log)
    del plain
    log.append("behind")
    return x * n


def steps(x: Tensor, log: Log) -> Iterator[Tensor]:
    try:
        yield x + 1
        yield x
    finally:
        log.append("finally")


def generator(x: Tensor, log: Log, n: int) -> Tensor:
    stepped = steps(x, log)
    x = next(stepped)
    cut(log)
    x = x + n
    del stepped
    log.append("behind")
    return x


def generator_in_a_list(x: Tensor, log: Log, n: int) -> Tensor:
    stepped = steps(x, log)
    cut(log)
    x = next(stepped)
    held = [stepped]
    held.pop()
    del stepped
    log.append("behind")
    return x * n


def refer(table: dict[str, Any], log: Log, **given: Any) -> None:
    for key, item in given.items():
        table[key] = weakref.ref(item)
        cut(log)


def handed_on(x: Tensor, log: Log, n: int) -> Tensor:
    told = Told(log, n)
    table: dict[str, Any] = {}
    refer(table, log, told=told)
    y = x * told.n
    del told
    log.append(table["told"]() is None)
    return y


@contextlib.contextmanager
def managed(log: Log, *held: Any) -> Iterator[list[Any]]:
    mine = [Told(log, 1)]
    try:
        yield [*held, 1]
    finally:
        log.append(f"left {len(mine)}")


def manager(x: Tensor, log: Log, n: int) -> Tensor:
    with managed(log):
        cut(log)
        x = x * n
    log.append("behind")
    x = x + 1
    log.append("at the end")
    return x


def manager_that_gives(x: Tensor, log: Log, n: int) -> Tensor:
    with managed(log, Told(log, n)) as given:
        cut(log)
        x = x * given[0].n
    log.append("behind")
    del given
    log.append("at the end")
    return x


def manager_in_a_loop(x: Tensor, log: Log, n: int) -> Tensor:
    with managed(log):
        for _ in range(n):
            with managed(log):
                x = x * 2
                if x.sum() > 8:
                    break
        log.append("inside")
    log.append("behind")
    return x


def managers_of_a_stack(x: Tensor, log: Log, n: int) -> Tensor:
    with contextlib.ExitStack() as stack:
        stack.enter_context(managed(log))
        stack.callback(log.append, "called")
        cut(log)
        x = x * n
    log.append("behind")
    return x


def times(x: Tensor, log: Log, n: int) -> Tensor:
    cut(log)
    return x * n


def method_that_waits(x: Tensor, log: Log, n: int) -> Tensor:
    x = getattr(Told(log, n), "scale")(times(x, log, n))  # noqa: B009
    log.append("behind")
    return x + 1


def function_that_waits(x: Tensor, log: Log, n: int) -> Tensor:
    def made() -> Any:
        told = Told(log, n)
        return types.MethodType(lambda self, y: y * self.told + told.n, Holder())

    class Holder:
        told = n

    x = made()(times(x, log, n))
    log.append("behind")
    return x + 1


def method_that_is_left(x: Tensor, log: Log, n: int) -> Tensor:
    method: Any = Told(log, n).scale
    cut(log)
    x = x + 1
    del method
    log.append("behind")
    return x


CASES: list[Callable[[Tensor, Log, int], Tensor]] = [
    manager,
    manager_that_gives,
    manager_in_a_loop,
    managers_of_a_stack,
    method_that_waits,
    function_that_waits,
    method_that_is_left,
    below_a_list,
    below_an_instance,
    below_a_tuple,
    below_a_method,
    below_an_exception,
    below_a_frame_that_raised,
    popped,
    from_outside,
    referred_to,
    tensor_referred_to,
    key_of_a_weak_dictionary,
    value_of_a_weak_dictionary,
    finalized,
    generator,
    generator_in_a_list,
    handed_on,
]


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("fn", CASES)
def test_it_dies_as_early(fn: Callable[[Tensor, Log, int], Tensor], skips: bool) -> None:
    def run(called: Callable[[Tensor, Log, int], Tensor], n: int) -> tuple[Log, list[float]]:
        log: Log = []
        POOL.append(Plain())
        result = called(torch.ones(3), log, n)
        return log, result.tolist()

    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=skips):
        for call, n in enumerate([2, 2, 2, 2, 3, 3, 2]):
            assert run(compiled, n) == run(fn, n), call


def test_an_argument_that_the_callee_drops() -> None:
    """While a call is recorded it lives until the callee returns: the caller's stack holds it."""
    compiled = stator.compile(argument)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(4):
            log: Log = []
            compiled(torch.ones(3), log, 2)
            early = ["break", "dead", "behind"]
            assert log == (early if call else ["break", "behind", "dead"])


class Scale(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def forward(self, x: Tensor) -> Tensor:
        return x * self.n


def below_a_pool(x: Tensor, log: Log, pool: list[Scale]) -> Tensor:
    held: Any = pool.pop()
    cut(log)
    y = held(x)
    held = None
    log.append("behind")
    cut(log)
    return y + 1


@pytest.mark.parametrize("is_told", [False, True])
def test_modules_that_torch_dynamo_lists(caplog: pytest.LogCaptureFixture, is_told: bool) -> None:
    """Its weak references to all modules that are made end no trace. The program's own do."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))

    def play(fn: Callable[..., Any]) -> Log:
        log: Log = []
        references = []
        for n in range(6):
            pool = [Scale(n)]
            if is_told:
                references.append(weakref.ref(pool[0], lambda _: log.append("dead")))
            log.append(fn(torch.arange(3.0) + n, log, pool).tolist())
        return log

    plain = play(below_a_pool)
    stator.set_logs(graph_breaks=True)
    try:
        with stator.config.patch(skip_unprofitable=False):
            assert play(stator.compile(below_a_pool)) == plain
    finally:
        stator.set_logs(graph_breaks=False)
    assert (plain.index("dead") < plain.index("behind")) if is_told else "dead" not in plain
    assert "stator.disable" in caplog.text
    assert ("the last reference to an object is gone" in caplog.text) == is_told


@pytest.mark.parametrize("forced", [False, True])
def test_what_a_container_lets_go_of(forced: bool) -> None:
    """The last owner of an object is a container from outside: who refers to it weakly sees it die there."""

    def program(x: Tensor, key: int, state: Any) -> Any:
        found = state.cache.get(key)
        if found is None:
            found = state.cache[key] = Plain()
            found.told = x * key
            state.latest.append(found)
        if key == 4:
            state.latest.popleft()
        return found.told + x, len(state.cache), sorted(state.cache)

    seen = []
    settings = {"skip_unprofitable": False} if forced else {}
    for function in (program, stator.compile(program)):
        state = types.SimpleNamespace(
            cache=weakref.WeakValueDictionary(), latest=collections.deque(maxlen=2)
        )
        seen.append([])
        with stator.config.patch(**settings):
            for key in (1, 2, 1, 3, 1, 2, 2, 3, 4, 3, 1, 2):
                y, *rest = function(torch.ones(2), key, state)
                seen[-1].append((y.tolist(), *rest))
    assert seen[0] == seen[1]


class Owner:
    def __init__(self) -> None:
        self.one = Plain()
        self.rows = [Plain(), Plain()]
        self.table = {"a": Plain(), "b": Plain()}
        self.kinds = {Plain()}
        self.latest = collections.deque([Plain(), Plain()], maxlen=2)
        held = [self.one, self.rows[0], self.table["a"], *self.kinds, self.latest[0]]
        self.references = [weakref.ref(it) for it in held]

    def alive(self) -> list[bool]:
        return [reference() is not None for reference in self.references]


def attribute(owner: Owner) -> None:
    owner.one = None


def item(owner: Owner) -> None:
    del owner.rows[0]


def rows(owner: Owner) -> None:
    owner.rows = [row for row in owner.rows if row is not owner.references[1]()]


def entry(owner: Owner) -> None:
    owner.table.pop("a")


def entries(owner: Owner) -> None:
    owner.table.update(a=1)


def elements(owner: Owner) -> None:
    owner.kinds.clear()


def first(owner: Owner) -> None:
    owner.latest.append(3)


@pytest.mark.parametrize("drop", [attribute, item, rows, entry, entries, elements, first])
def test_weak_references_to_what_is_dropped(drop: Callable[[Owner], None]) -> None:
    def program(x: Tensor, owner: Owner) -> Any:
        before = owner.alive()
        drop(owner)
        return x + len(before), before, owner.alive()

    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(4):
            expected, found = program(torch.ones(2), Owner()), compiled(torch.ones(2), Owner())
            assert expected[1:] == found[1:]
            assert expected[2].count(False) == 1
