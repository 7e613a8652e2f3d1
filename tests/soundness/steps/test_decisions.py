"""Decisions on data in the middle of traces: the way taken, the other way, and what was done before them."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import math
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

import stator

from .results import agree, same

# What a program is: a function of a tensor and a list that it may write to.
Body = Callable[[Tensor, list[Any]], Any]
PROGRAMS: dict[str, Callable[[], Body]] = {}
# Those of which every trace goes on to the end of the call.
WHOLE: set[str] = set()


def program(make: Callable[[], Body]) -> Callable[[], Body]:
    PROGRAMS[make.__name__] = make
    return make


def whole(make: Callable[[], Body]) -> Callable[[], Body]:
    WHOLE.add(make.__name__)
    return program(make)


def inputs() -> list[Tensor]:
    """Of either sign, large and small, and some for the second time."""
    values = [1.0, 2.0, -1.0, 3.0, -4.0, 0.5, -0.25, 5.0, 0.0, -6.0, 1.0, 8.0, -1.0, 0.125]
    return [torch.tensor([value, value / 2, value * 3]) for value in values]


@whole
def branch() -> Body:
    def step(x: Tensor, log: list[Any]) -> Tensor:
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    return step


@whole
def effects_around() -> Body:
    holder = types.SimpleNamespace(count=0, last=None)

    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        holder.count += 1
        log.append("before")
        y = x.exp()
        if (y > 1).all():
            log.append("large")
            holder.last = "large"
        elif (y > 0.5).any():
            log.append("middle")
            holder.count += 10
        else:
            log.append("small")
        log.append(holder.count)
        return y, holder.count, holder.last

    return step


@whole
def writes_in_place() -> Body:
    state = torch.zeros(3)

    def step(x: Tensor, log: list[Any]) -> Tensor:
        state.add_(x)
        if state.sum() > 4:
            state.mul_(0.5)
        if state.sum() < -4:
            state.zero_()
        x.add_(1)
        return state.clone()

    return step


@whole
def loop() -> Body:
    def step(x: Tensor, log: list[Any]) -> tuple[Tensor, int]:
        count = 0
        while x.abs().max() > 0.3:
            x = x * 0.5
            count += 1
        return x, count

    return step


@program
def early_return_in_loop() -> Body:
    def step(x: Tensor, log: list[Any]) -> tuple[Tensor, int]:
        for index in range(6):
            x = x + 0.75
            log.append(index)
            if x.min() > 2:
                return x, index
        return x, -1

    return step


@whole
def in_callee() -> Body:
    def sign(x: Tensor) -> str:
        if x.sum() > 0:
            return "positive"
        return "other"

    def outer(x: Tensor, factor: float) -> tuple[str, Tensor]:
        y = x * factor
        return sign(y), y

    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        first = outer(x, 2.0)
        second = outer(-x, 3.0)
        log.extend([first[0], second[0]])
        return first, second

    return step


@whole
def modes() -> Body:
    weight = torch.ones(3, requires_grad=True)

    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        with torch.no_grad():
            y = x * weight
            if y.sum() > 0:
                y = y * 2
            log.append(torch.is_grad_enabled())
        z = y * weight
        log.append(torch.is_grad_enabled())
        return z.detach(), z.requires_grad

    return step


@whole
def conditions() -> Body:
    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        both = bool(x.sum() > 0) and not x[0] > 2
        either = x[0] > 1 or x[1] < -1
        chosen = x if x.mean() > 0.1 else -x
        assert (chosen.abs() >= 0).all()
        return both, bool(either), chosen

    return step


@program
def comprehension() -> Body:
    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        parts = [part for part in x if part > 0]
        log.append(len(parts))
        return all(part > 0 for part in x), any(part > 2 for part in x), len(parts)

    return step


@program
def generator() -> Body:
    def positives(x: Tensor) -> Iterator[Tensor]:
        for part in x:
            if part > 0:
                yield part * 2

    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        total = torch.zeros(())
        for part in positives(x):
            total = total + part
        return total, x

    return step


@program
def handled() -> Body:
    def step(x: Tensor, log: list[Any]) -> Tensor:
        try:
            if x.sum() > 0:
                raise ValueError("positive")
            x = x * 2
        except ValueError as error:
            log.append(str(error))
            if x.sum() > 5:
                x = x * 3
        finally:
            log.append("finally")
        return x

    return step


@program
def raising() -> Body:
    def check(x: Tensor) -> None:
        if x.sum() > 3:
            raise ArithmeticError("too large")

    def step(x: Tensor, log: list[Any]) -> Tensor:
        log.append("begun")
        try:
            check(x * 1)
        except ArithmeticError as error:
            frames = traceback.extract_tb(error.__traceback__)
            log.append([(frame.name, frame.line) for frame in frames])
        return x + 1

    return step


@whole
def attributes_of_modules() -> Body:
    net = nn.Linear(3, 1)
    with torch.no_grad():
        net.weight.fill_(0.5)
        net.bias.zero_()
    net.calls = 0  # type: ignore[assignment]

    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        net.calls += 1  # type: ignore[operator]
        y = net(x)
        if y > 1:
            net.calls += 100  # type: ignore[operator]
        return y.detach(), net.calls

    return step


@program
def containers() -> Body:
    table: dict[str, Any] = {"seen": 0}
    kept: list[Any] = []

    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        mine = {"x": x, "parts": [x * 2]}
        table["seen"] += 1
        kept.append(table["seen"])
        if x.sum() > 0:
            mine["parts"].append(x * 3)
            table["positive"] = table["seen"]
        elif "positive" in table:
            del table["positive"]
        mine["parts"].append(mine)
        return len(mine["parts"]), mine["parts"][:-1], dict(table), list(kept)

    return step


@program
def context_variables() -> Body:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        token = variable.set(variable.get() + 1)
        if x.sum() > 0:
            variable.reset(token)
        if x.sum() < -5:
            variable.set(7)
        return x * 2, variable.get()

    return step


@program
def locks() -> Body:
    lock = threading.Lock()

    def step(x: Tensor, log: list[Any]) -> Tensor:
        if x.sum() > 0:
            log.append("positive")
        with lock:
            x = x + 1
            if x.sum() > 6:
                x = x * 2
        if x[0] > 3:
            log.append("large")
        log.append(lock.locked())
        return x

    return step


@program
def records() -> Body:
    logger = logging.getLogger("decisions")

    def step(x: Tensor, log: list[Any]) -> Tensor:
        if x.sum() > 0:
            logger.warning("positive")
        logger.warning("asked")
        if x.sum() > 5:
            logger.warning("large")
        return x * 2

    return step


@program
def random_numbers() -> Body:
    def step(x: Tensor, log: list[Any]) -> Tensor:
        torch.manual_seed(0)
        y = torch.rand(3)
        if x.sum() > 0:
            y = y + torch.rand(3)
        return y + torch.rand(3)

    return step


@whole
def closures() -> Body:
    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        count = 0

        def add(amount: int) -> None:
            nonlocal count
            count += amount

        add(1)
        if x.sum() > 0:
            add(10)
        double = lambda: x * (2 + count)  # noqa: E731
        if x[0] > 1:
            add(100)
        return double(), count

    return step


@whole
def views() -> Body:
    def step(x: Tensor, log: list[Any]) -> tuple[Tensor, Tensor]:
        base = x.clone()
        first = base[:2]
        if first.sum() > 0:
            first.mul_(3)
        rest = base[1:]
        if rest[0] < 1:
            rest.add_(1)
        return base, first

    return step


@program
def large_tensors_asked() -> Body:
    def step(x: Tensor, log: list[Any]) -> Any:
        try:
            if x > 0:
                return "never"
        except RuntimeError as error:
            return str(error)
        return None

    return step


# --- numbers ------------------------------------------------------------------------------------------------------


@whole
def numbers_carried() -> Body:
    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        total = x.sum().item()
        mean = total / 3
        log.append(total)
        scaled = x * mean + (2 - total)
        return scaled, total, mean, -total, abs(total), [total, (mean,)]

    return step


@whole
def integers_carried() -> Body:
    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        count = int((x > 0).sum())
        most = x.argmax().item()
        log.append(count)
        return x * count, count + 1, most * 2 - count, float(count), count / 4, count & 1

    return step


@whole
def numbers_compared() -> Body:
    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        total = x.sum().item()
        if total > 3:
            log.append("large")
        elif total == 0 or not total:
            log.append("zero")
        best = max(total, 0.5)
        return x * best, best, total if total else None

    return step


@whole
def moments() -> Body:
    step_of = torch.zeros(())
    average = torch.zeros(3)

    def step(x: Tensor, log: list[Any]) -> Tensor:
        nonlocal step_of
        step_of += 1
        number = step_of.item()
        average.lerp_(x, 0.1)
        first = 1 - 0.9**number
        second = (1 - 0.999**number) ** 0.5
        return average.div(first) / second

    return step


@program
def numbers_as_sizes() -> Body:
    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        count = int((x > 0).sum())
        made = torch.zeros(count + 1)
        total = 0
        for index in range(count):
            total += index
        return made, total, x[:count], x[count - 1], [1] * count

    return step


@program
def numbers_as_keys() -> Body:
    table = {0: "none", 3: "all"}

    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        count = (x > 0).sum().item()
        names = ["a", "b", "c", "d"]
        return table.get(count), names[count], count in table, [x] * count, str(count)

    return step


@program
def numbers_in_texts() -> Body:
    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        total = x.sum().item()
        text = f"{total:.3f}"
        log.append(text)
        return text, "%s" % total, repr(total), f"{total!r:>10}", len(text)  # noqa: UP031

    return step


@program
def numbers_asked_otherwise() -> Body:
    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        total = x.sum().item()
        return (
            total.is_integer(),
            isinstance(total, float),
            hash(total),
            round(total, 1),
            int(total),
            sorted([total, 1.0, -1.0]),
            sum([total, total]),
            divmod(total, 2),
            total is total,
            complex(total),
        )

    return step


@program
def numbers_that_raise() -> Body:
    def step(x: Tensor, log: list[Any]) -> Any:
        total = x.sum().item()
        log.append("begun")
        try:
            return x / 2, 1 / total, total**-1, total**0.5, 2**total, 7 % total
        except ZeroDivisionError as error:
            return str(error)

    return step


@program
def numbers_asked_by_c_code() -> Body:
    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        parts = x.unbind()
        log.extend(map(float, parts))
        largest = max(parts, key=float), min(parts, key=lambda part: part.item())
        return largest, sorted(parts, key=float), [*map(torch.Tensor.item, parts)], sum(parts, 0.5)

    return step


@whole
def numbers_asked_by_math() -> Body:
    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        total = (x[0] / x[1]).item()
        if math.isnan(total) or not math.isfinite(1 / (x[0].abs() + 1).item()):
            log.append("stop")
        return math.isinf(total), x * 2

    return step


@whole
def numbers_of_bools() -> Body:
    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        flag = (x.sum() > 0).item()
        return flag, x * flag, "yes" if flag else "no"

    return step


@whole
def attributes_hold_numbers() -> Body:
    holder = types.SimpleNamespace(loss=0.0, best=1e9)

    def step(x: Tensor, log: list[Any]) -> tuple[Any, ...]:
        holder.loss = x.pow(2).mean().item()
        if holder.loss < holder.best:
            holder.best = holder.loss
        return holder.loss, holder.best

    return step


def run(make: Callable[[], Body], how: Callable[[Body], Body]) -> tuple[list[Any], Body]:
    body = how(make())
    told: list[Any] = []
    log: list[Any] = []
    for x in inputs():
        given = x.clone()
        try:
            told.append((body(given, log), given, list(log)))
        except Exception as error:
            told.append((type(error), str(error), list(log)))
    return told, body


@whole
def answers() -> Body:
    def step(x: Tensor, log: list[Any]) -> Any:
        log.append((1.0 in x, True in x, x[0] in x, 2 not in x.long()))
        found = torch.equal(x, x.abs()), torch.ops.aten.equal(x, x * 1.0), x[1].is_nonzero()
        if torch.allclose(x, x.round(), rtol=0.0, atol=0.3):
            return x + 1, found
        return x - 1, found, torch.is_nonzero(x.sum())

    return step


@program
def answers_that_raise() -> Body:
    def step(x: Tensor, log: list[Any]) -> Any:
        for ask in (x.is_nonzero, lambda: "a" in x, lambda: torch.allclose(x, x.double())):
            try:
                log.append(ask())
            except RuntimeError as raised:
                log.append(str(raised)[:20])
        return x * 2

    return step


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    """What the program has logged; graphs that a backend is given are recorded for PyTorch's tools."""
    records = [record for record in caplog.records if record.name != "torch.__trace"]
    return [(record.message, record.lineno) for record in records]


@pytest.mark.parametrize("backend", ["eager", "fx"])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_both_ways_are_those_of_plain_python(
    name: str, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected, _ = run(PROGRAMS[name], lambda body: body)
    records = told(caplog)
    caplog.clear()
    found, compiled = run(PROGRAMS[name], lambda body: api.compile(body, backend=backend))
    agree(expected, found)
    assert told(caplog) == records
    if backend == "eager" and name in WHOLE and not api.PLAIN:
        assert api.breaks(compiled) == 0, api.reason(compiled)
        assert api.hits(compiled), api.reason(compiled)


def test_tracebacks_behind_an_exit_are_plain() -> None:
    def check(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum() > 0:
            return y
        raise ValueError(f"{y.sum() <= 0}")

    def step(x: Tensor) -> Tensor:
        return check(x + 0) + 1

    compiled = api.compile(step, backend="eager")
    told: list[list[Any]] = [[], []]
    for index, called in enumerate((step, compiled)):
        for x in inputs():
            with contextlib.suppress(ValueError):
                called(x)
                continue
            try:
                called(x)
            except ValueError as error:
                frames = traceback.extract_tb(error.__traceback__)[1:]
                told[index].append([(it.name, it.lineno, str(error)) for it in frames])
    plain, found = told
    assert plain
    # The compiled function's own frame stands where the plain one's does.
    assert [it[-1] for it in found] == [it[-1] for it in plain]
    assert [it[-2:] for it in found] == [it[-2:] for it in plain]


def test_a_decision_that_flips_each_call_makes_few_traces() -> None:
    def step(x: Tensor) -> Tensor:
        for _ in range(4):
            x = x * 2 if x.sum() > 0 else x * 3
            x = -x + 0.01
        return x

    compiled = api.compile(step, backend="eager")
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        x = torch.randn(3, generator=generator)
        assert same(step(x), compiled(x))
    if not api.PLAIN:
        assert api.traces(compiled) < 64


def test_threads_leave_by_their_own_exits() -> None:
    def step(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        if y[0] > 4:
            y = y * 2
        return y

    compiled = api.compile(step, backend="eager")
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(30):
            for x in inputs():
                found = compiled(x)
                if not same(found, step(x)):
                    wrong.append((x, found))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_fullgraph_takes_both_ways() -> None:
    def step(x: Tensor) -> Tensor:
        total = x.sum().item()
        if x.sum() > 0:
            return x * total
        return x - total

    compiled = api.compile(step, backend="eager", fullgraph=True)
    for x in inputs():
        assert same(step(x), compiled(x))


@pytest.mark.skipif(api.PLAIN, reason="nothing is refused in plain mode")
def test_a_break_behind_an_exit_is_an_error_under_fullgraph() -> None:
    def step(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x * x.sum().tolist()

    compiled = api.compile(step, backend="eager", fullgraph=True)
    assert same(compiled(torch.ones(2)), torch.ones(2) * 2)
    with pytest.raises(stator.GraphBreakError):
        compiled(-torch.ones(2))
    assert same(compiled(torch.ones(2)), torch.ones(2) * 2)
