"""What training loops do around their tensors: clocks, flags that are summed, schedules by milestones, properties, rows."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

from .results import agree, copied

# A program: a function of a tensor, and what happens before each call.
Program = tuple[Callable[[Tensor], Any], Callable[[int], None]]

PROGRAMS: dict[str, Callable[[], Program]] = {}
# How many traces the calls may have, without a break.
TRACES: dict[str, int] = {}


def program(traces: int | None) -> Callable[[Callable[[], Program]], Callable[[], Program]]:
    def add(make: Callable[[], Program]) -> Callable[[], Program]:
        PROGRAMS[make.__name__] = make
        if traces is not None:
            TRACES[make.__name__] = traces
        return make

    return add


def nothing(call: int) -> None:
    pass


@program(2)
def flags_are_summed() -> Program:
    flags = {"first": torch.zeros(()), "second": torch.zeros(())}

    def step(x: Tensor) -> Any:
        if not sum(flag.item() for flag in flags.values()):
            x = x * 2
        return x + sum(flag.item() for flag in flags.values())

    def change(call: int) -> None:
        flags["second"].fill_(float(call in (3, 5)))

    return step, change


@program(None)
def more_flags_come() -> Program:
    flags = [torch.ones(())]

    def step(x: Tensor) -> Any:
        return x * sum(flag.item() for flag in flags), max(flag.item() for flag in flags)

    def change(call: int) -> None:
        if call > 2:
            flags.append(torch.tensor(float(call)))

    return step, change


@program(1)
def numbers_are_kept() -> Program:
    def step(x: Tensor) -> Any:
        kept = tuple(row.sum().item() for row in x)
        return kept, list(row.mean().item() for row in x), sum(kept)  # noqa: C400

    return step, nothing


@program(1)
def tensors_are_written_as_they_are_summed() -> Program:
    def step(x: Tensor) -> Any:
        total = torch.zeros(2)
        return sum(total.add_(row[:2]) for row in x), total

    return step, nothing


@program(None)
def numbers_then_tensors() -> Program:
    def step(x: Tensor) -> Any:
        total = torch.zeros(())
        return sum(x.sum().item() if at < 2 else total.add_(x.mean()) for at in range(4)), total

    return step, nothing


@program(None)
def a_generator_that_raises() -> Program:
    def checked(x: Tensor) -> Any:
        for at, row in enumerate(x):
            if at == 2:
                raise ValueError("row")
            yield row.sum().item()

    def step(x: Tensor) -> Any:
        try:
            return sum(checked(x))
        except ValueError as error:
            return x * 2, str(error)

    return step, nothing


@program(None)
def a_generator_that_decides() -> Program:
    def step(x: Tensor) -> Any:
        return x * sum(row.sum().item() for row in x if row.sum() > 0)

    return step, nothing


@program(5)
def milestones() -> Program:
    schedule, state = [2, 5], SimpleNamespace(epoch=0)

    def step(x: Tensor) -> Any:
        state.epoch += 1
        return x * 0.1 ** bisect.bisect_right(schedule, state.epoch), bisect.bisect_left(
            schedule, state.epoch
        )

    return step, nothing


@program(None)
def milestones_change() -> Program:
    schedule, state = [2, 5], SimpleNamespace(epoch=0)

    def step(x: Tensor) -> Any:
        state.epoch += 1
        return x * bisect.bisect(schedule, state.epoch)

    def change(call: int) -> None:
        if call == 6:
            schedule[1] = 50
        if call == 7:
            schedule.insert(0, 1)

    return step, change


@program(None)
def a_loss_finds_its_place() -> Program:
    bounds = [-1.0, 0.0, 1.5]

    def step(x: Tensor) -> Any:
        return x + bisect.bisect(bounds, x.sum().item())

    return step, nothing


class Dependent(property):
    """A property of a class of its own."""

    kind = "dependent"


class Doubling(property):
    """One that binds in another way."""

    def __get__(self, owner: Any, of: Any = None) -> Any:
        return 2 * super().__get__(owner, of)


class Holder:
    def __init__(self) -> None:
        self.own = 3.0

    @Dependent
    def scale(self) -> float:
        return self.own

    @scale.setter
    def scale(self, value: float) -> None:
        self.own = value + 1

    @Doubling
    def twice(self) -> float:
        return self.own


@program(None)
def properties() -> Program:
    holder = Holder()

    def step(x: Tensor) -> Any:
        holder.scale = 2.0
        return x * holder.scale, x * holder.twice, isinstance(Holder.__dict__["scale"], property)

    def set_own(self: Holder, value: float) -> None:
        self.own = value - 1

    def change(call: int) -> None:
        if call == 4:
            Holder.scale = Dependent(lambda self: self.own * 10, set_own)  # type: ignore[assignment]
        if call == 6:
            Holder.scale = property(lambda self: self.own + 0.5, set_own)  # type: ignore[assignment]

    return step, change


@program(1)
def a_property_is_made() -> Program:
    def step(x: Tensor) -> Any:
        made = Dependent(lambda self: 3)
        return x * made.fget(None), made.kind, isinstance(made, property)

    return step, nothing


@program(None)
def rows_in_step() -> Program:
    weights = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def step(x: Tensor) -> Any:
        pairs = zip(weights, [1, 2, 3], strict=False)
        total = sum(torch.exp(-w) * n for w, n in pairs)
        return total.detach(), [at for at, _ in enumerate(x)], torch.stack(list(x))

    def change(call: int) -> None:
        with torch.no_grad():
            weights.mul_(1.1)

    return step, change


@lru_cache(maxsize=1)
def found_once() -> int:
    return 2


EMPTY: set[str] = set()


@program(2)
def an_empty_set_and_a_cache() -> Program:
    """Both are known by what stands for nothing."""

    def step(x: Tensor) -> Any:
        return x * found_once() + len(EMPTY)

    def change(call: int) -> None:
        EMPTY.clear()
        if call > 4:
            EMPTY.add("full")

    return step, change


def run(make: Callable[[], Program], wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    step, change = make()
    wrapped, seen = wrap(step), []
    for call in range(8):
        change(call)
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(call))
        seen.append(copied(wrapped(x)))
    return seen, wrapped


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_are_plain_ones(name: str) -> None:
    before = dict(vars(Holder))
    try:
        expected, _ = run(PROGRAMS[name], lambda step: step)
        for attribute in ("scale", "twice"):
            setattr(Holder, attribute, before[attribute])
        found, compiled = run(PROGRAMS[name], lambda step: api.compile(step, backend="eager"))
    finally:
        for attribute in ("scale", "twice"):
            setattr(Holder, attribute, before[attribute])
    agree(expected, found)
    if name in TRACES and not api.PLAIN:
        assert api.breaks(compiled) == 0, api.reason(compiled)
        assert api.traces(compiled) <= TRACES[name]


@pytest.mark.parametrize("name", ["time_ns", "perf_counter_ns", "monotonic_ns"])
def test_clocks_of_whole_numbers(name: str) -> None:
    clock = getattr(time, name)
    spent: list[int] = []

    def step(x: Tensor) -> Any:
        began = clock()
        x = x @ x.T
        took = clock() - began
        spent.append(took)
        return x.sum() * 0 + took, f"{took / 1e6:.6f} ms", clock() // 1_000_000_000

    compiled = api.compile(step, backend="eager")
    for _ in range(4):
        number, text, second = compiled(torch.ones(50, 50))
        assert number == torch.tensor(float(spent[-1]))
        assert text == f"{spent[-1] / 1e6:.6f} ms"
        assert 0 <= clock() // 1_000_000_000 - second <= 1
    assert all(took > 0 for took in spent)
    assert len(set(spent)) > 1
    if not api.PLAIN:
        assert (api.breaks(compiled), api.traces(compiled)) == (0, 1), api.reason(compiled)


def test_clocks_are_looked_at_in_each_call() -> None:
    spent: list[float] = []

    def step(x: Tensor) -> str:
        began = time.perf_counter()
        x = x @ x.T
        took = time.perf_counter() - began
        spent.append(took)
        return f"{took * 1000:.6f} ms"

    compiled = api.compile(step, backend="eager")
    texts = [compiled(torch.ones(50, 50)) for _ in range(4)]
    assert texts == [f"{took * 1000:.6f} ms" for took in spent]
    assert all(took > 0 for took in spent)
    assert len(set(spent)) > 1
    if not api.PLAIN:
        assert (api.traces(compiled), api.breaks(compiled)) == (1, 0)


def test_a_clock_that_is_replaced_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(x: Tensor) -> Any:
        return x * 2, time.time() > 100.0, time.time()

    compiled = api.compile(step, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2))[1] is True
    monkeypatch.setattr(time, "time", lambda: 7.0)
    for _ in range(2):
        assert compiled(torch.ones(2))[1:] == (False, 7.0)


def test_a_clock_decides() -> None:
    until = [time.monotonic() + 1000]

    def step(x: Tensor) -> Tensor:
        return x * 2 if time.monotonic() < until[0] else x * 3

    compiled = api.compile(step, backend="eager")
    for call in range(6):
        until[0] = 0.0 if call in (2, 5) else time.monotonic() + 1000
        assert torch.equal(compiled(torch.ones(2)), step(torch.ones(2)))
