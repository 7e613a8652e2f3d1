"""Attributes of a `threading.local`: each thread has its own, and what a trace read of them is guarded."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

X = torch.arange(3.0)


def in_thread(call: Callable[[], Any]) -> Any:
    """What a call gives in a thread of its own."""
    given: list[Any] = []
    thread = threading.Thread(target=lambda: given.append(call()))
    thread.start()
    thread.join()
    return given[0]


def reader(local: Any) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        return x * getattr(local, "scale", 1.0) + 1

    return function


def test_the_type_is_the_interpreters_own() -> None:
    assert threading.local is _thread._local


def test_recorded_replayed_and_changed() -> None:
    local = threading.local()
    local.scale = 2.0
    compiled = api.compile(reader(local))
    for scale in (2.0, 2.0, 3.0, 3.0, None, None, 2.0):
        if scale is None:
            vars(local).clear()
        else:
            local.scale = scale
        assert torch.equal(compiled(X), reader(local)(X))
    assert api.breaks(compiled) in (0, None)


def test_an_attribute_that_comes() -> None:
    local = threading.local()
    compiled = api.compile(reader(local), dynamic=False)
    assert [compiled(X).tolist() for _ in range(3)] == [(X + 1).tolist()] * 3
    local.other = 5.0
    assert torch.equal(compiled(X), X + 1)
    local.scale = 7.0
    assert torch.equal(compiled(X), X * 7 + 1)
    del local.scale
    assert torch.equal(compiled(X), X + 1)
    if not api.PLAIN:
        assert (api.traces(compiled), api.hits(compiled), api.breaks(compiled)) == (2, 4, 0)


def test_a_missing_one_raises() -> None:
    local = threading.local()

    def function(x: Tensor) -> Any:
        try:
            return x * local.scale
        except AttributeError as error:
            return x - 1, str(error)

    compiled = api.compile(function)
    for _ in range(3):
        found, expected = compiled(X), function(X)
        assert torch.equal(found[0], expected[0]) and found[1] == expected[1]
    local.scale = 2.0
    assert torch.equal(compiled(X), X * 2)


def test_each_thread_has_its_own() -> None:
    local = threading.local()
    local.scale = 2.0
    compiled = api.compile(reader(local))

    def elsewhere() -> list[Tensor]:
        first = [compiled(X), compiled(X)]
        local.scale = 5.0
        return [*first, compiled(X), compiled(X)]

    for _ in range(3):
        assert torch.equal(compiled(X), X * 2 + 1)
        found = in_thread(elsewhere)
        assert [tensor.tolist() for tensor in found] == [
            (X * scale + 1).tolist() for scale in (1.0, 1.0, 5.0, 5.0)
        ]
    assert torch.equal(compiled(X), X * 2 + 1)


def test_threads_in_turns() -> None:
    """Threads that hold different values and call in turns: a snapshot of one says nothing of the other."""
    local = threading.local()
    compiled = api.compile(reader(local), dynamic=False)
    barrier = threading.Barrier(2, timeout=60)
    wrong: list[float] = []

    def run(scale: float) -> None:
        local.scale = scale
        for turn in range(40):
            barrier.wait()
            if turn % 2 == int(scale) % 2:
                if not torch.equal(compiled(X), X * scale + 1):
                    wrong.append(scale)

    threads = [threading.Thread(target=run, args=(scale,)) for scale in (2.0, 3.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    if not api.PLAIN:
        assert api.traces(compiled) == 2 and (api.hits(compiled) or 0) >= 36


def test_writes_are_a_break() -> None:
    local = threading.local()
    local.count = 0

    def function(x: Tensor) -> Tensor:
        y = x + local.count
        local.count += 1
        return y * local.count

    compiled = api.compile(function)
    for count in range(5):
        assert torch.equal(compiled(X), (X + count) * (count + 1))
    assert local.count == 5


class WithInit(threading.local):
    """A thread's first look runs its `__init__`."""

    def __init__(self, scale: float) -> None:
        self.scale = scale


@pytest.mark.parametrize("name", ["__class__", "__doc__"])
def test_its_own_attributes(name: str) -> None:
    local = threading.local()
    compiled = api.compile(lambda x: (x + 1, getattr(local, name)))
    for _ in range(2):
        assert torch.equal(compiled(X)[0], X + 1) and compiled(X)[1] is getattr(local, name)


def test_subclasses_run_their_init() -> None:
    local = WithInit(3.0)
    compiled = api.compile(reader(local))
    for _ in range(3):
        assert torch.equal(compiled(X), X * 3 + 1)
        assert torch.equal(in_thread(lambda: compiled(X)), X * 3 + 1)
    local.scale = 4.0
    assert torch.equal(compiled(X), X * 4 + 1)
    assert torch.equal(in_thread(lambda: compiled(X)), X * 3 + 1)


def test_written() -> None:
    """Each thread's own attributes are written, in a replay too."""

    def make() -> tuple[Any, Callable[[Tensor], Any]]:
        local = threading.local()

        def step(x: Tensor) -> Any:
            local.count = getattr(local, "count", 0) + 1
            local.last = x.sum().item()
            if hasattr(local, "extra"):
                del local.extra
            return x * local.count, local.last, sorted(vars(local))

        return local, step

    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        local, step = make()
        step = wrap(step)

        def call(x: Tensor) -> Any:
            result, *rest = step(x)
            return result.tolist(), rest, dict(vars(local))

        found = [call(X + place) for place in range(3)]
        local.extra = 1
        found += [call(X), call(X)]
        found += [in_thread(lambda: [call(X), call(X + 1)]) for _ in range(2)]
        local.count = 10.5
        found += [call(X), call(X)]
        del local.last
        return [*found, call(X)]

    assert run(api.compile) == run(lambda fn: fn)


def test_deleted_where_it_is_not() -> None:
    local = threading.local()

    def step(x: Tensor) -> Any:
        try:
            del local.gone
        except AttributeError as error:
            return type(error).__name__, x + 1
        return "gone", x

    compiled = api.compile(step)
    for here in (True, False, False, True, True):
        if here:
            local.gone = 1
        found = compiled(X)
        assert found[0] == ("gone" if here else "AttributeError")
        assert not hasattr(local, "gone")


def test_which_thread_it_is() -> None:
    counts: dict[int, int] = {}

    def counted(x: Tensor) -> Any:
        here = threading.get_ident()
        counts[here] = counts.get(here, 0) + 1
        return x * counts[here], threading.current_thread() is threading.main_thread()

    def run(call: Callable[[Tensor], Any]) -> list[Any]:
        counts.clear()
        found = [repr(call(X)) for _ in range(5)]
        found.append(in_thread(lambda: repr(call(X))))
        return [*found, repr(call(X)), sorted(counts.values())]

    api.reset()
    compiled = api.compile(counted)
    assert run(compiled) == run(counted)
    assert api.breaks(compiled) in (0, None), api.reason(compiled)


def test_read_as_a_dictionary() -> None:
    local = threading.local()
    programs: list[Callable[[Tensor], Any]] = [
        lambda x: (sorted(vars(local)), x + 1),
        lambda x: (dict(local.__dict__), x + 1),
        lambda x: ("w" in vars(local), x + 1),
        lambda x: (vars(local).get("w"), x + 1),
        lambda x: (len(vars(local)), x + 1),
        lambda x: ([*vars(local).items()], x + 1),
    ]
    for program in programs:
        vars(local).clear()
        api.reset()
        compiled = api.compile(program)
        for call in range(7):
            if call == 3:
                local.w = 1
            if call == 5:
                local.w = 2.5
            assert compiled(X)[0] == program(X)[0]
        assert in_thread(lambda: compiled(X)[0]) == in_thread(lambda: program(X)[0])  # noqa: B023
        assert "__dict__" not in (api.reason(compiled) or "")
