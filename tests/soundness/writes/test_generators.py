"""Generators that existed before the call: a trace goes on in their frames, and leaves them where plain Python would."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator


def floats(count: int) -> Iterator[float]:
    return (float(i) for i in range(count))


def counting(log: list[Any]) -> Iterator[int]:
    try:
        for i in range(4):
            log.append(i)
            yield i
    finally:
        log.append("end")


def delegating(a: Tensor) -> Iterator[Any]:
    def inner() -> Iterator[Any]:
        yield a
        yield a * 2
        return 3

    yield (yield from inner())


def failing(a: Tensor) -> Iterator[Any]:
    yield a
    raise ValueError("no more")


def listening(a: Tensor) -> Any:
    heard: list[Any] = []
    while len(heard) < 4:
        heard.append((yield a * len(heard)))
    return heard


def with_a_cell() -> Iterator[Any]:
    total = 0.0

    def add(by: float) -> float:
        nonlocal total
        total += by
        return total

    while True:
        yield add(2.0)


def in_a_handler() -> Iterator[float]:
    try:
        raise ValueError
    except ValueError:
        yield 1.0
        yield 2.0
    yield 3.0


def without_gradients(a: Tensor) -> Iterator[Any]:
    yield a * 2
    with torch.no_grad():
        yield a * 3
        yield a.requires_grad
    yield a * 4


def packed(*numbers: float, **named: float) -> Iterator[float]:
    yield from numbers
    for name in named:
        yield named[name]


def all_of(x: Tensor, items: Any) -> Any:
    for item in items:
        x = x + item
    return x, items


def two_of(x: Tensor, items: Any) -> Any:
    return x * next(items) + next(items, 7)


def handled(x: Tensor, items: Any) -> Any:
    try:
        for item in items:
            x = x + item
    except ValueError as error:
        return x, str(error)
    return x


def spread(x: Tensor, items: Any) -> Any:
    first, *others = items
    return x * first, others


def closed(x: Tensor, items: Any) -> Any:
    x = x * next(items)
    items.close()
    return x, next(items, None)


def sent(x: Tensor, items: Any) -> Any:
    x = x + items.send(None)
    try:
        return x * items.send(5), items.send(6)
    except (AttributeError, StopIteration, TypeError) as error:
        return x, type(error)


def by_c_code(x: Tensor, items: Any) -> Any:
    return [x * place + item for place, item in enumerate(items)], list(items)


def broken(x: Tensor, items: Any) -> Any:
    for item in items:
        x = x + item
        stator.graph_break()
    return x


def decided(x: Tensor, items: Any) -> Any:
    for item in items:
        x = x + item
        if x.sum() > 4:
            return x
    return x * 10


def zipped(x: Tensor, items: Any) -> Any:
    for left, right in items if isinstance(items, zip) else zip(items, floats(2), strict=False):
        x = x * left - right
    return x


MAKERS: dict[str, Callable[[], Any]] = {
    "expression": lambda: floats(3),
    "empty": lambda: floats(0),
    "counting": lambda: counting([]),
    "delegating": lambda: delegating(torch.ones(3)),
    "failing": lambda: failing(torch.ones(3)),
    "listening": lambda: listening(torch.ones(3)),
    "cell": with_a_cell,
    "in_a_handler": in_a_handler,
    "without_gradients": lambda: without_gradients(torch.ones(3, requires_grad=True)),
    "packed": lambda: packed(1.0, 2.0, a=3.0),
    "parameters": lambda: torch.nn.Linear(3, 3).requires_grad_(False).parameters(),
    "zip": lambda: zip(floats(3), floats(4), strict=False),
    "strict_zip": lambda: zip(floats(3), floats(3), strict=True),
}
PROGRAMS = [all_of, two_of, handled, spread, closed, sent, by_c_code, broken, decided, zipped]


def plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return "iterator" if hasattr(value, "__next__") else value


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return plain(fn(*args))
    except Exception as error:
        return type(error), str(error)


def rest(items: Any) -> list[Any]:
    found = []
    while len(found) < 6:
        found.append(outcome(next, items, "end"))
    return found


def agree(compiled: Any, fn: Callable[..., Any], make: Callable[[], Any], passed: int = 0) -> None:
    found = []
    for called in (fn, compiled):
        torch.manual_seed(0)
        items = make()
        for _ in range(passed):
            outcome(next, items, None)
        result = outcome(called, torch.ones(3), items)
        modes = getattr(items, "gi_running", None), torch.is_grad_enabled()
        found.append((result, *modes, rest(items), torch.is_grad_enabled()))
        torch.set_grad_enabled(True)
    assert found[0] == found[1]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("fn", PROGRAMS)
def test_as_plain(fn: Callable[..., Any], name: str) -> None:
    if name == "cell" and fn in (all_of, handled, spread, by_c_code, broken):
        pytest.skip("it never ends")
    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False):
        for passed in (0, 0, 1, 1, 0, 2, 5):
            agree(compiled, fn, MAKERS[name], passed)


def test_others_at_later_calls() -> None:
    for fn in (two_of, all_of, by_c_code):
        compiled = stator.compile(fn)
        with stator.config.patch(skip_unprofitable=False):
            for name in ("expression", "counting", "expression", "delegating", "zip", "counting"):
                if name == "zip" and fn is not all_of:
                    continue
                agree(compiled, fn, MAKERS[name])
            agree(compiled, fn, lambda: iter([1.0, 2.0, 3.0]))
            agree(compiled, fn, MAKERS["expression"])


def test_one_trace_for_all() -> None:
    compiled = stator.compile(all_of)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(4):
            items = floats(3)
            assert compiled(torch.ones(3), items)[1] is items
            assert items.gi_frame is None and next(items, None) is None  # type: ignore[attr-defined]
    stats = stator.stats(compiled)
    assert (stats.traces, stats.breaks, stats.hits) == (1, 0, 3)


def test_what_a_generator_holds_is_guarded() -> None:
    scale, factor = [2.0], 3.0

    def gen(by: float = 5.0) -> Iterator[float]:
        yield scale[0] * by
        yield factor

    def others() -> Iterator[float]:
        yield 8.0
        yield 9.0

    compiled = stator.compile(two_of)
    with stator.config.patch(skip_unprofitable=False):
        agree(compiled, two_of, gen)
        agree(compiled, two_of, gen)
        scale[0] = 4.0
        agree(compiled, two_of, gen)
        factor = 6.0
        agree(compiled, two_of, gen)
        agree(compiled, two_of, lambda: gen(7.0))
        gen.__defaults__ = (1.5,)
        agree(compiled, two_of, gen)
        agree(compiled, two_of, others)
        waiting = [gen(), gen()]
        gen.__code__ = gen.__code__.replace(co_name="renamed")
        agree(compiled, two_of, waiting.pop)
        agree(compiled, two_of, gen)


def test_two_may_be_one() -> None:
    def fn(x: Tensor, left: Any, right: Any) -> Any:
        return x * next(left) - next(right), next(left), next(right)

    def within(items: Any) -> Iterator[float]:
        for item in items:
            yield item * 2

    def one() -> tuple[Any, Any]:
        items = floats(8)
        return items, items

    def one_in_the_other() -> tuple[Any, Any]:
        items = floats(8)
        return within(items), items

    makers = [
        lambda: (floats(8), floats(8)),
        one,
        lambda: (within(floats(8)), floats(8)),
        one_in_the_other,
    ]
    for first in makers:
        compiled = stator.compile(fn)
        with stator.config.patch(skip_unprofitable=False):
            for make in (first, first, *makers):
                found = []
                for called in (fn, compiled):
                    left, right = make()
                    found.append(
                        (outcome(called, torch.ones(3), left, right), rest(left), rest(right))
                    )
                assert found[0] == found[1]


def test_its_end_comes_as_early() -> None:
    """Where the call drops a generator that has begun, its `finally` runs there."""

    def fn(x: Tensor, held: list[Any], log: list[Any]) -> Tensor:
        items = held.pop()
        x = x * next(items)
        del items
        log.append("behind")
        return x

    compiled = stator.compile(fn)
    for skips in (False, True):
        with stator.config.patch(skip_unprofitable=skips):
            for _ in range(3):
                logs: list[list[Any]] = [[], []]
                for called, log in zip((fn, compiled), logs, strict=True):
                    called(torch.ones(3), [counting(log)], log)
                assert logs[0] == logs[1] == [0, "end", "behind"]


def test_it_keeps_nothing_alive() -> None:
    class Held:
        pass

    def of(held: Held) -> Iterator[float]:
        yield 2.0
        del held
        yield 3.0

    compiled = stator.compile(two_of)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(4):
            held = Held()
            items, reference = of(held), weakref.ref(held)
            del held
            assert compiled(torch.ones(1), items).item() == 5
            assert reference() is None
    before = len(gc.get_objects())
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(50):
            compiled(torch.ones(1), of(Held()))
    gc.collect()
    assert len(gc.get_objects()) < before + 40


def test_gradients_are_clipped() -> None:
    def step(x: Tensor, model: torch.nn.Module, parameters: Any) -> Any:
        model(x).sum().backward()
        return torch.nn.utils.clip_grad_norm_(parameters, 0.5)

    compiled = stator.compile(step)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(4):
            found = []
            for called in (step, compiled):
                torch.manual_seed(0)
                model = torch.nn.Linear(3, 2)
                norm = called(torch.ones(2, 3), model, model.parameters())
                found.append((norm.tolist(), [p.grad.tolist() for p in model.parameters()]))
            assert found[0] == found[1]
    assert stator.stats(compiled).breaks == 0
