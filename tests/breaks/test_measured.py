"""What the estimate can't know is measured: replays that lose aren't made, and recording has a budget."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from stator import _testing

X = torch.arange(4.0)
MODEL = nn.Sequential(*(nn.ReLU() for _ in range(12)))
WARM, FIRST, LATER, NEXT, DISTANCE = 20, "rrrrnnnn" * 3, "rrrrnnnn", 32, 256
"""Replays before the first look, calls of the first look and of later ones, calls between the first two."""
TAKES = 3
"""So many recordings of a function aren't counted."""


@pytest.fixture(autouse=True)
def _floor() -> Iterator[None]:
    with stator.config.patch(skip_unprofitable=True):
        yield


@stator.disable
def note(*what: object) -> None:
    """Breaks the graph."""


def modules(x: Tensor) -> Tensor:
    x = MODEL(x) + 1
    note()
    return MODEL(x)


def calls(function: Any, count: int, *args: Any) -> str:
    """Which of so many calls were replayed (`r`), ran natively (`n`) or were recorded (`.`)."""
    ways = []
    for _ in range(count):
        before = stator.stats(function)
        assert torch.equal(function(*args), modules(X))
        after = stator.stats(function)
        ways.append(
            "r" if after.hits > before.hits else "n" if after.native > before.native else "."
        )
    return "".join(ways)


def test_what_loses_runs_natively(caplog: pytest.LogCaptureFixture) -> None:
    compiled = stator.compile(modules)
    stator.set_logs(graph_breaks=True)
    try:
        with caplog.at_level(logging.DEBUG), _testing.spans(replay=50_000, native=9_000):
            ways = calls(compiled, 2 + WARM + len(FIRST) + 100, X)
    finally:
        stator.set_logs(graph_breaks=False)
    assert ways == "." + "r" * (WARM + 1) + FIRST + "n" * 100
    reason = stator.stats(compiled).reason
    assert reason == "measured: a replay takes 50.0 µs, plain Python 8.1 µs"
    assert reason in caplog.text and "runs natively: modules" in caplog.text


def test_what_gains_is_replayed() -> None:
    compiled = stator.compile(modules)
    with _testing.spans(replay=5_000, native=9_000):
        ways = calls(compiled, 2 + WARM + len(FIRST) + 100, X)
    later = "r" * (NEXT + 1) + LATER + "r" * 2 * NEXT
    assert ways == "." + "r" * (WARM + 1) + FIRST + later[:100]
    assert not (stator.stats(compiled).reason or "").startswith("measured:")


def test_what_has_lost_is_looked_at_again() -> None:
    compiled = stator.compile(modules)
    with _testing.spans(replay=10_000, native=9_000):
        calls(compiled, 2 + WARM + len(FIRST), X)
        assert calls(compiled, DISTANCE - 1, X) == "n" * (DISTANCE - 1)
    with _testing.spans(replay=5_000, native=9_000):
        ways = calls(compiled, 100, X)
    # A short look, a long one that decides, and soon one more.
    looks = 2 * len(LATER) + len(FIRST)
    assert ways.count("n") <= 2 + looks // 2 and ways.endswith("r" * 20)


def test_nothing_is_measured_where_nothing_may_be_skipped() -> None:
    with stator.config.patch(skip_unprofitable=False), _testing.spans(replay=50_000, native=9_000):
        assert calls(stator.compile(modules), 100, X) == "." + "r" * 99


@stator.assume_constant_result
def vouched() -> int:
    return 1


def test_what_is_vouched_for_is_always_replayed() -> None:
    @stator.compile
    def steered(x: Tensor) -> Tensor:
        return modules(x) * vouched()

    with _testing.spans(replay=50_000, native=9_000):
        assert calls(steered, 100, X) == "." + "r" * 99


def test_recording_has_a_budget() -> None:
    @stator.compile(recompile_limit=1000)
    def function(x: Tensor, name: str) -> Tensor:
        note(name)
        return MODEL(x) * len(name)

    with _testing.spans(replay=5_000, native=9_000, recording=3_000_000):
        for number in range(200):
            name = f"{number:04}"
            assert torch.equal(function(X, name), MODEL(X) * 4)
        stats = stator.stats(function)
        # The first takes, and as many as fit into five milliseconds.
        assert stats.hits == 0 and stats.native == 200 - TAKES - 1
        assert stats.reason is not None and stats.reason.startswith(
            "recording has cost 3.0 ms beyond"
        )
        # What there is serves, and once it has been found to gain more is recorded.
        for _ in range(80):
            assert torch.equal(function(X, "0000"), MODEL(X) * 4)
        assert stator.stats(function).hits > 10
        for number in range(40):
            function(X, f"again {number:04}")
        assert stator.stats(function).traces > stats.traces


def test_recording_behind_breaks_has_one_too() -> None:
    names: list[str] = [""]

    @stator.compile(recompile_limit=1000)
    def function(x: Tensor) -> Tensor:
        x = MODEL(x)
        note()
        return MODEL(x) * len(names[0])

    with _testing.spans(replay=5_000, native=5_000, recording=3_000_000):
        for number in range(100):
            names[0] = f"{number:04}"
            assert torch.equal(function(X), MODEL(MODEL(X)) * 4)
    stats = stator.stats(function)
    # The call's beginning, then the first takes and one more behind the break.
    assert stats.traces <= 3 + TAKES + 1 and stats.reason is not None


def test_what_the_first_call_makes_is_found_by_the_second() -> None:
    """However long the first call was recorded, in a process in which nothing else had run."""
    state: dict[str, Tensor] = {}

    @stator.compile
    def function(x: Tensor) -> Tensor:
        if not state:
            for name in ("weight", "bias"):
                note(name)
                state[name] = torch.ones(4)
        return MODEL(MODEL(x) * state["weight"] + state["bias"])

    with _testing.spans(replay=5_000, native=9_000, recording=90_000_000):
        for _ in range(10):
            assert torch.equal(function(X), X + 1)
    stats = stator.stats(function)
    assert stats.native == 0 and stats.hits == 8


def test_late_recordings_wait_until_plain_calls_outweigh_them() -> None:
    @stator.compile(recompile_limit=1000)
    def function(x: Tensor, name: str) -> Tensor:
        note(name)
        return MODEL(x) * len(name)

    def recorded(calls: int, name: str) -> int:
        before = stator.stats(function).traces
        for _ in range(calls):
            assert torch.equal(function(X, name), MODEL(X) * 4)
        return stator.stats(function).traces - before

    with _testing.spans(replay=9_000, native=9_000, recording=90_000):
        for take in range(TAKES + 1):
            assert recorded(1, f"000{take}") > 0
        recorded(70, "0000")
        # A recording costs as much as nine calls.
        assert recorded(2000, "0008") == 0
        assert recorded(600, "0008") > 0
        assert recorded(2000, "0009") == 0


def test_slow_calls_do_not_wait_for_many_quick_ones() -> None:
    @stator.compile
    def function(x: Tensor, name: str) -> Tensor:
        return MODEL(x) * len(name) if name == "slow" else x

    with _testing.spans(replay=1000, native=1000, recording=1_000_000):
        for _ in range(100):
            function(X, "quick")
    with _testing.spans(replay=5_000_000, native=5_000_000, recording=1_000_000):
        for _ in range(100):
            assert torch.equal(function(X, "slow"), MODEL(X) * 4)
    assert stator.stats(function).traces == 2


def test_calls_that_raise_are_measured_too() -> None:
    @stator.compile
    def function(x: Tensor, raises: list[bool]) -> Tensor:
        x = modules(x)
        note()
        if raises[0]:
            raise ValueError("as asked for")
        return x

    raises = [False]
    function(X, raises)
    raises[0] = True
    with _testing.spans(replay=50_000, native=9_000, recording=1_000_000):
        for _ in range(200):
            with pytest.raises(ValueError, match="as asked for"):
                function(X, raises)
    assert stator.stats(function).native > 150


def test_where_one_trace_loses_others_are_doubted() -> None:
    @stator.compile
    def function(x: Tensor, name: str) -> Tensor:
        return modules(x) * len(name)

    with _testing.spans(replay=50_000, native=9_000):
        for _ in range(2 + WARM + len(FIRST)):
            function(X, "first")
        function(X, "second")
        hits = stator.stats(function).hits
        for _ in range(100):
            assert torch.equal(function(X, "second"), modules(X) * 6)
        assert stator.stats(function).hits == hits


@pytest.mark.parametrize("recording", [400_000, 2_000_000, 4_000_000, 40_000_000])
@pytest.mark.parametrize("native", [10_000, 1_000_000, 10_000_000])
def test_recordings_beyond_the_first_keep_within_three_calls_or_five_milliseconds(
    native: int, recording: int
) -> None:
    """Of programs that go a new way at each call, at its beginning, behind a break, or in a loop."""
    ways = {"name": 0}
    limit = max(5_000_000, 3 * native)

    def at_the_beginning(x: Tensor, number: int) -> Tensor:
        return MODEL(x) * len(str(ways["name"]))

    def behind_a_break(x: Tensor, number: int) -> Tensor:
        x = MODEL(x)
        note()
        return MODEL(x) * len(str(ways["name"]))

    def in_a_loop(x: Tensor, number: int) -> Tensor:
        for _ in range(3):
            note()
            x = MODEL(x) * (1 if ways["name"] < 0 else 2)
        return x

    for program in (at_the_beginning, behind_a_break, in_a_loop):
        compiled = stator.compile(program, recompile_limit=1000)
        takes = 0
        with _testing.spans(replay=native, native=native, recording=recording):
            for number in range(60):
                ways["name"] = 10 ** (number % 18) + number
                before = stator.stats(compiled).traces
                assert torch.equal(compiled(X, number), program(X, number))
                takes += stator.stats(compiled).traces > before
        assert takes > 0
        # The first ones are free. Each of the others costs what it takes beyond a plain call.
        costs = (takes - TAKES) * (recording - min(native, recording // 3))
        assert costs <= limit


@pytest.mark.parametrize("is_long", [False, True])
def test_recordings_that_take_longer_than_is_left_are_abandoned(is_long: bool) -> None:
    """Each thing that a recording executes takes some time. Whatever was done by then is done once."""
    layers, done = [1], [0]

    def at_the_beginning(x: Tensor, number: int) -> Tensor:
        for _ in range(layers[0]):
            x = x * 0.5 + len(str(number))
            done[0] += 1
        return x

    def behind_a_break(x: Tensor, number: int) -> Tensor:
        note(number)
        return at_the_beginning(x, number)

    def in_a_handler(x: Tensor, number: int) -> Tensor:
        with torch.no_grad():
            try:
                raise ValueError(number)
            except ValueError:
                return at_the_beginning(x, number)

    def in_a_generator(x: Tensor, number: int) -> Tensor:
        return next(at_the_beginning(x, number) for _ in range(2))

    for program in (at_the_beginning, behind_a_break, in_a_handler, in_a_generator):
        compiled = stator.compile(program, recompile_limit=1000)
        later = 0
        with _testing.spans(replay=10_000, native=10_000, step=1000):
            for number in range(8):
                # Long ones don't fit into five milliseconds.
                is_first = number < TAKES
                layers[0] = 1 if is_first else (3000 if is_long else 20) + number
                done[0] = 0
                before = stator.stats(compiled).traces
                result = compiled(X, number)
                assert done[0] == layers[0] and torch.equal(result, program(X, number))
                later += 0 if is_first else stator.stats(compiled).traces - before
        # What comes before a break is a trace of its own.
        assert (later <= 1) == is_long, program.__name__


def test_a_call_at_rest_is_right() -> None:
    @stator.compile
    def function(x: Tensor, state: list[int]) -> Tensor:
        state[0] += 1
        return x + state[0]

    with _testing.spans(replay=1, native=1):
        state = [0]
        for number in range(200):
            assert torch.equal(function(X, state), X + number + 1)
        assert torch.equal(function(X.double(), [7]), X.double() + 8)
        with stator.config.patch(skip_unprofitable=False):
            hits = stator.stats(function).hits
            for _ in range(3):
                assert torch.equal(function(X, [3]), X + 4)
            assert stator.stats(function).hits > hits
    assert state == [200]


def resting(function: Any, *args: Any) -> None:
    """Has a function rest: its calls are passed on without any of Stator's code."""
    with _testing.spans(replay=1, native=1):
        for _ in range(200):
            function(*args)
    assert stator.stats(function).native > 150


def test_calls_at_rest_are_passed_on_as_they_are() -> None:
    seen: list[Any] = []

    class Holder:
        @stator.compile
        def method(self, x: Tensor, *args: int, scale: int = 2, **options: int) -> Tensor:
            """Says what it was given."""
            seen.append((args, scale, options))
            if x.sum() < 0:
                raise ValueError("negative")
            return x * scale

    holder = Holder()
    resting(holder.method, X)
    method: Any = holder.method
    assert torch.equal(method(X, 1, 2, scale=3, other=4), X * 3)
    assert seen[-1] == ((1, 2), 3, {"other": 4})
    assert torch.equal(method(*[X, 5], **{"scale": 6}), X * 6) and seen[-1] == ((5,), 6, {})
    assert torch.equal(Holder.method(holder, x=X), X * 2)
    with pytest.raises(ValueError, match="negative"):
        method(-X)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        method()
    calls = stator.stats(method).native
    method(X)
    assert stator.stats(method).native == calls + 1


def test_calls_at_rest_see_what_has_changed() -> None:
    @stator.compile
    def function(x: Tensor, answers: list[bool]) -> Tensor:
        answers.append(torch.compiler.is_compiling())
        return x if x.sum() > 0 else -x

    @stator.compile(is_compiling=True)
    def caller(x: Tensor, answers: list[bool]) -> Tensor:
        note()
        return function(x, answers)

    plain = [False] * 200
    answers: list[bool] = []
    resting(function, X, answers)
    assert answers == plain
    caller(X, answers), caller(X, answers), function(X, answers), caller(X, answers)
    assert answers[200:] == [True, True, False, True]

    resting(function, X, answers)
    watched: list[str] = []
    sys.setprofile(lambda frame, event, arg: watched.append(frame.f_code.co_name))
    function(X, answers)
    sys.setprofile(None)
    assert "function" in watched
    assert str(stator.stats(function).reason).startswith("SB026")

    for stance in (stator.set_stance, torch.compiler.set_stance):
        resting(function, X, answers)
        with stance("fail_on_recompile"), pytest.raises(Exception, match="recompile"):
            function(X.double(), [])
        assert torch.equal(function(X, answers), X)
    resting(function, X, answers)
    with stator.config.patch(skip_unprofitable=False):
        hits = stator.stats(function).hits
        assert torch.equal(function(X, [True]), X)
        assert torch.equal(function(X, [True]), X)
    assert stator.stats(function).hits > hits


def test_calls_between_failed_recordings_rest() -> None:
    seen: list[float] = []

    class Kept:
        def __hash__(self) -> int:
            return 7

        def __eq__(self, other: object) -> bool:
            return self is other

    @stator.compile
    def function(x: Tensor) -> Tensor:
        # A set whose elements have an equality of their own can't be made again.
        held = {Kept(), Kept()}
        seen.append(x.sum().tolist())
        return x * (len(held) - 1)

    resting(function, X)
    assert stator.stats(function).traces == 0 and stator.stats(function).native >= 200
    before = len(seen)
    for number in range(200):
        assert torch.equal(function(X + number), X + number)
    assert seen[before:] == [float((X + number).sum()) for number in range(200)]
