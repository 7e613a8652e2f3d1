"""An operation that raises in a replay behind writes leaves by an exit: frames, traceback, effects and handlers are
plain Python's, and nothing is executed twice."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn
from torch.nn import functional as F

import stator

GOOD = torch.tensor([0, 1])
BAD = torch.tensor([0, 9])

total = 0


class World:
    def __init__(self) -> None:
        self.n = 0
        self.log: list[Any] = []
        self.seen: dict[str, Any] = {}
        self.steps = torch.zeros(3)
        self.table = torch.arange(8.0).view(4, 2)
        self.param = nn.Parameter(torch.ones(3))
        self.renormed = nn.Embedding(4, 3, max_norm=1.0)
        self.renormed.weight.data.copy_(torch.arange(12.0).view(4, 3))
        self.norm = nn.BatchNorm1d(2)
        self.large = torch.zeros(1 << 21)
        self.sgd = torch.optim.SGD([self.param], lr=0.5)
        self.calls: list[int] = []

    def state(self) -> Any:
        tensors = [
            self.steps,
            self.param,
            self.renormed.weight,
            self.large[:4],
            self.norm.running_mean,
        ]
        grad = self.param.grad
        shown = [(t.tolist(), tuple(t.shape), t._version) for t in tensors]  # type: ignore[union-attr]
        return (
            self.n,
            list(self.log),
            dict(self.seen),
            shown,
            None if grad is None else grad.tolist(),
            list(self.calls),
            total,
            torch.is_grad_enabled(),
        )


def described(error: BaseException | None) -> Any:
    if error is None:
        return None
    frames = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name != "outcome":
            names = [name for name in frame.f_locals if not name.startswith("@")]
            frames.append((frame.f_code.co_filename, frame.f_code.co_qualname, line, sorted(names)))
    notes = getattr(error, "__notes__", None)
    chained = (described(error.__cause__), described(error.__context__))
    return type(error), str(error), frames, notes, error.__suppress_context__, chained


def outcome(fn: Callable[..., Any], w: World, index: Tensor) -> Any:
    try:
        result = fn(w, index)
        return result.tolist() if isinstance(result, Tensor) else result
    except BaseException as error:
        return described(error)


def play(fn: Callable[..., Any], world: World) -> list[Any]:
    found = []
    for index in (GOOD, GOOD, BAD, GOOD, BAD, BAD, GOOD):
        found.append((outcome(fn, world, index), world.state()))
    return found


def inner(w: World, index: Tensor) -> Tensor:
    w.log.append("in")
    double = w.steps * 2
    rows = w.table[index]
    w.log.append("out")
    return rows.sum() + double.sum()


def unhandled(w: World, index: Tensor) -> Tensor:
    w.n += 1
    w.steps.add_(1)
    w.seen["n"] = w.n
    return inner(w, index) * 2


def handled(w: World, index: Tensor) -> Any:
    global total
    total += 1
    w.steps.add_(1)
    try:
        return inner(w, index)
    except IndexError as error:
        w.log.append(str(error))
        return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def with_finally(w: World, index: Tensor) -> Tensor:
    w.steps.add_(1)
    try:
        return F.embedding(index, w.table).sum()
    finally:
        w.log.append(w.steps.sum() > 0)
        w.steps.mul_(2)


@contextlib.contextmanager
def noting(w: World) -> Iterator[None]:
    try:
        yield
    except IndexError as error:
        error.add_note("noted")
        w.log.append("left")
        raise


def in_a_manager(w: World, index: Tensor) -> Tensor:
    w.steps.add_(1)
    with noting(w), torch.no_grad():
        return w.table[index].sum() + w.param.sum()


def again(w: World, index: Tensor) -> Tensor:
    w.steps.add_(1)
    try:
        return inner(w, index)
    except IndexError as error:
        w.n += 1
        raise ValueError("another") from error


def in_a_loop(w: World, index: Tensor) -> Tensor:
    result = torch.zeros(())
    for at in (GOOD, index, GOOD + 1):
        w.steps.add_(1)
        try:
            result = result + w.table[at].sum()
            w.log.append("right")
        except IndexError:
            w.log.append("wrong")
            continue
    return result + w.steps.sum()


def behind_metadata(w: World, index: Tensor) -> Tensor:
    w.steps.unsqueeze_(0)
    w.steps.squeeze_()
    w.param.data = w.param.data + 1
    w.param.grad = w.steps.clone()
    return w.table[index].sum()


def behind_a_step(w: World, index: Tensor) -> Tensor:
    w.sgd.zero_grad()
    (w.param * w.param).sum().backward()
    w.sgd.step()
    return w.renormed(index).sum() + w.param.sum()


def renorms(w: World, index: Tensor) -> Tensor:
    """It has renormed the first rows when it raises."""
    return w.renormed(index).sum()


def behind_large(w: World, index: Tensor) -> Tensor:
    w.large.add_(1)
    return w.table[index].sum()


def statistics(w: World, index: Tensor) -> Tensor:
    y = w.norm(w.table)
    return y[index].sum()


def twice(w: World, index: Tensor) -> Any:
    """The second handler is met in the first one's call."""
    w.steps.add_(1)
    try:
        try:
            return inner(w, index)
        except KeyError:
            return "no"
        finally:
            w.n += 10
    except IndexError as error:
        return str(error), w.steps.tolist()


def from_a_method(w: World, index: Tensor) -> Tensor:
    class Reader:
        def __init__(self, table: Tensor) -> None:
            self.table = table

        def __getitem__(self, at: Tensor) -> Tensor:
            w.log.append("read")
            return self.table[at]

        @property
        def first(self) -> Tensor:
            return self.table[index]

    w.steps.add_(1)
    reader = Reader(w.table)
    return reader[index].sum() + reader.first.sum()


def by_keyword(w: World, index: Tensor) -> Tensor:
    w.steps.add_(1)
    parts = {"rows": [torch.index_select(input=w.table, dim=0, index=index), *[w.steps]]}
    return parts["rows"][0].sum()


def stores(w: World, index: Tensor) -> Tensor:
    w.steps.add_(1)
    x = torch.zeros(3)
    x[index] = 1.0
    x[index] += w.steps[0]
    return x


def divides(w: World, index: Tensor) -> Tensor:
    w.steps.add_(1)
    return 6 // torch.where(index == 9, 0, 2) + w.n


def reads(w: World, index: Tensor) -> Tensor:
    w.n += 1
    return F.embedding(index, w.table).sum() + w.table[index].sum()


def checks(w: World, index: Tensor) -> Tensor:
    w.steps.add_(1)
    torch._check_tensor_all(index < 4, lambda: f"at {w.n}")  # type: ignore[attr-defined]
    w.n += 1
    return w.table[index].sum()


PROGRAMS = [
    checks,
    reads,
    unhandled,
    handled,
    with_finally,
    in_a_manager,
    again,
    in_a_loop,
    behind_metadata,
    behind_a_step,
    renorms,
    behind_large,
    statistics,
    twice,
    from_a_method,
    by_keyword,
    stores,
    divides,
]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_as_in_plain_python(fn: Callable[..., Any]) -> None:
    global total
    total = 0
    expected = play(fn, World())
    total = 0
    compiled = api.compile(fn)
    assert play(compiled, World()) == expected
    if not api.PLAIN:
        assert "SB025" not in (stator.stats(compiled).reason or "")
        assert api.hits(compiled) >= 2


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_while_an_exception_is_handled(fn: Callable[..., Any]) -> None:
    """The caller's exception is the context of what is raised."""
    compiled = api.compile(fn)

    def called(call: Callable[..., Any]) -> Callable[..., Any]:
        def within(w: World, index: Tensor) -> Any:
            try:
                raise KeyError("outer")
            except KeyError:
                return call(w, index)

        return within

    global total
    total = 0
    expected = play(called(fn), World())
    total = 0
    assert play(called(compiled), World()) == expected


def test_nothing_is_called_twice() -> None:
    """A function of the program's own that has run, and one that raises."""

    def fn(w: World, index: Tensor) -> Tensor:
        w.n += 1
        y = counted(w.steps)
        return w.table[index].sum() + y.sum()

    def raising(w: World, index: Tensor) -> Any:
        w.n += 1
        try:
            return refusing(w.table, index)
        except ValueError as error:
            return str(error), w.n

    calls: list[str] = []

    def counted(x: Tensor) -> Tensor:
        calls.append("counted")
        return x + 1

    def refusing(table: Tensor, index: Tensor) -> Tensor:
        calls.append("refusing")
        if index.max() > 3:
            raise ValueError("refused")
        return table[index]

    stator.allow_in_graph(counted)
    stator.allow_in_graph(refusing)
    for program, hits in ((fn, 6), (raising, 6)):
        calls.clear()
        expected, plain = play(program, World()), list(calls)
        calls.clear()
        compiled = api.compile(program)
        assert play(compiled, World()) == expected
        assert calls == plain
        assert api.PLAIN or api.hits(compiled) >= hits - 2


def test_behind_a_break() -> None:
    def fn(w: World, index: Tensor) -> Any:
        w.steps.add_(1)
        w.log.append(len(repr(w.steps)))
        w.steps.add_(1)
        try:
            return inner(w, index)
        except IndexError as error:
            return str(error)

    assert play(api.compile(fn), World()) == play(fn, World())


def test_no_copies() -> None:
    world, compiled = World(), api.compile(behind_large)
    for _ in range(2):
        compiled(world, GOOD)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
        compiled(world, GOOD)
    assert not [event for event in profiler.key_averages() if event.key == "aten::clone"]


@pytest.mark.skipif(api.PLAIN, reason="looks at graphs")
@pytest.mark.parametrize(
    ("fn", "count"), [(reads, 0), (unhandled, 1), (behind_a_step, 1), (in_a_loop, 2)]
)
def test_how_many_exits(fn: Callable[..., Any], count: int) -> None:
    """None where nothing is written, and none for an index that an earlier operation has looked at."""
    compiled = stator.compile(fn)
    compiled(World(), GOOD)
    assert sum(code.count("catch(") for code in compiled.graph_code()) == count


def test_other_threads() -> None:
    compiled = api.compile(handled)
    worlds, failures = [World() for _ in range(4)], []

    def run(w: World) -> None:
        for at in range(40):
            found = outcome(compiled, w, BAD if at % 3 == 2 else GOOD)
            if isinstance(found, list) != (at % 3 == 2):
                failures.append(found)

    threads = [threading.Thread(target=run, args=(w,)) for w in worlds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert [w.steps.tolist() for w in worlds] == [[40.0] * 3] * 4


def test_signals_leave_at_exits() -> None:
    """Each arrives once, and finds the program where it may stand: writes to objects and to tensors agree."""

    class Hit(Exception):
        pass

    def hit(*_: object) -> None:
        raise Hit

    def fn(w: World, x: Tensor, index: Tensor) -> Tensor:
        w.n += 1
        w.steps.add_(1)
        for _ in range(20):
            x = (x @ x).tanh()
        first = w.table[index].sum()
        w.log.append("first")
        w.steps.add_(1)
        for _ in range(20):
            x = (x @ x).tanh()
        return w.table[index + 1].sum() + first + x.sum()

    compiled, x = api.compile(fn), torch.full((120, 120), 1e-3)
    for _ in range(3):
        compiled(World(), x, GOOD)
    before = signal.signal(signal.SIGUSR1, hit)
    hits = 0
    try:
        for wait in range(40):
            world = World()
            timer = threading.Timer(wait * 2e-4, os.kill, (os.getpid(), signal.SIGUSR1))
            try:
                timer.start()
                compiled(world, x, GOOD)
                timer.join()
            except Hit:
                hits += 1
            timer.join()
            steps = world.steps[0].item()
            assert (world.n, world.log, steps) in [
                (0, [], 0),
                (1, [], 0),
                (1, [], 1),
                (1, ["first"], 1),
                (1, ["first"], 2),
            ]
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert hits == 40
