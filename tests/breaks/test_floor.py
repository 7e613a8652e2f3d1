"""`stator.config.skip_unprofitable`: what gains nothing runs natively, what may gain something is tried."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from stator import _testing

CALLS = 20
X = torch.arange(4.0)


@pytest.fixture(autouse=True)
def _floor() -> Iterator[None]:
    # The estimate decides alone.
    with stator.config.patch(skip_unprofitable=True), _testing.spans(replay=0, native=0):
        yield


@stator.disable
def note(*what: object) -> None:
    """Breaks the graph."""


def operators(x: Tensor) -> Tensor:
    for _ in range(10):
        x = x * 0.5 + 1
        note()
    return x


def one(x: Tensor) -> Tensor:
    return x + 1


MODEL = nn.Sequential(*(nn.ReLU() for _ in range(12)))


def modules(x: Tensor) -> Tensor:
    x = MODEL(x) + 1
    note()
    return MODEL(x)


# What runs natively, and what doesn't.


def call(function: Callable[..., Any], *args: Any, times: int = 2) -> stator.Stats:
    for _ in range(times):
        function(*args)
    return stator.stats(function)


@pytest.mark.parametrize("function", [operators, one])
def test_operators_in_place_run_natively(function: Callable[[Tensor], Tensor]) -> None:
    compiled = stator.compile(function)
    stats = call(compiled, X)
    assert (stats.hits, stats.native) == (0, 1)
    assert stats.reason is not None and stats.reason.startswith("a replay saves ")
    assert torch.equal(compiled(X), function(X))


def test_modules_are_replayed() -> None:
    stats = call(stator.compile(modules), X, times=CALLS)
    assert (stats.hits, stats.native, stats.breaks) == (CALLS - 1, 0, 1)


def test_python_between_the_operations_is_counted() -> None:
    def function(x: Tensor, names: list[str]) -> Tensor:
        seen: dict[str, int] = {}
        for index, name in enumerate(names):
            seen[name.upper()] = seen.get(name, index) + len(name)
        return x + sum(seen.values())

    stats = call(stator.compile(function), X, ["some", "names", "of", "things"] * 8)
    assert (stats.hits, stats.native) == (1, 0)


def test_trials_are_rarer_and_rarer() -> None:
    compiled = stator.compile(operators)
    replayed = []
    for number in range(40):
        before = stator.stats(compiled).hits
        compiled(X)
        if stator.stats(compiled).hits > before:
            replayed.append(number)
    assert replayed == [2, 5, 10, 19, 36]


def test_without_breaks_there_are_no_trials() -> None:
    stats = call(stator.compile(one), X, times=50)
    assert (stats.hits, stats.native) == (0, 49)


# Nothing but the speed changes.


class Refused(Exception):
    pass


class Counter:
    def __init__(self) -> None:
        self.calls = 0
        self.seen: list[int] = []


def counts(x: Tensor, counter: Counter, fail: bool) -> Tensor:
    counter.calls += 1
    x = x + 1
    note()
    counter.seen.append(len(counter.seen))
    try:
        if fail:
            inner(x, counter)
    except Refused as refused:
        note(refused)
        if len(counter.seen) % 2:
            raise
    return x * 2


def inner(x: Tensor, counter: Counter) -> Tensor:
    y = x - 1
    note()
    raise Refused(len(counter.seen), y.tolist())


def ends(function: Callable[..., Any], *args: Any) -> object:
    """The result, or the exception with its traceback from the user's function on."""
    try:
        return function(*args).tolist()
    except Refused as refused:
        entries = traceback.extract_tb(refused.__traceback__)[1:]
        return refused.args, [(entry.name, entry.lineno, entry.line) for entry in entries]


@pytest.mark.parametrize("failing", [(), (0,), (3,), (5, 6), tuple(range(1, CALLS))], ids=str)
def test_results_effects_exceptions_and_tracebacks(failing: tuple[int, ...]) -> None:
    compiled = stator.compile(counts)
    counters = Counter(), Counter()
    for number in range(CALLS):
        x, fail = X + number, number in failing
        plain, own = (
            ends(function, x, counter, fail)
            for function, counter in zip((counts, compiled), counters, strict=True)
        )
        assert own == plain, number
        assert vars(counters[1]) == vars(counters[0])
    assert stator.stats(compiled).native > 0


def test_a_call_that_raises_says_nothing() -> None:
    def function(x: Tensor) -> Tensor:
        x = x + 1
        note()
        raise Refused

    compiled = stator.compile(function)
    for _ in range(CALLS):
        with pytest.raises(Refused):
            compiled(X)
    assert stator.stats(compiled).native == 0


# The way changes.


@stator.disable
def is_positive(x: Tensor) -> bool:
    return bool(x.sum() > 0)


def data_dependent(x: Tensor) -> Tensor:
    x = x + 1
    if is_positive(x):
        return MODEL(x) * 2
    return x


def decides(x: Tensor) -> Tensor:
    """As `data_dependent`, without a graph break."""
    x = x + 1
    if x.sum() > 0:
        return MODEL(x) * 2
    return x


@pytest.mark.parametrize(("function", "graphs"), [(data_dependent, 3), (decides, 2)])
@pytest.mark.parametrize("changes_at", [1, 2, 3, 7, 30])
def test_a_branch_that_is_taken_later_gets_its_graph(
    changes_at: int, function: Callable[[Tensor], Tensor], graphs: int
) -> None:
    compiled = stator.compile(function)
    for number in range(changes_at + 60):
        x = X + 1 if number >= changes_at else -X - 2
        assert torch.equal(compiled(x), function(x))
    before = stator.stats(compiled)
    assert before.graphs == graphs
    after = call(compiled, X + 1, times=10)
    assert after.hits == before.hits + 10 and after.native == before.native


@pytest.mark.parametrize("function", [data_dependent, decides])
@pytest.mark.parametrize("period", [2, 3, 4, 5, 8])
def test_a_branch_that_is_taken_now_and_then_gets_its_graph(
    period: int, function: Callable[[Tensor], Tensor]
) -> None:
    compiled = stator.compile(function)
    for number in range(100 * period):
        x = X + 1 if number % period == 1 else -X - 2
        assert torch.equal(compiled(x), function(x))
    before = stator.stats(compiled)
    assert call(compiled, X + 1, times=10).hits == before.hits + 10


def test_what_has_paid_is_not_taken_back() -> None:
    compiled = stator.compile(data_dependent)
    call(compiled, X + 1)
    stats = call(compiled, -X - 2, times=CALLS)
    assert (stats.native, stats.graphs) == (0, 3)


def test_what_a_break_gives_may_lead_elsewhere() -> None:
    steps = iter([0] * 12 + [1] * 100)

    @stator.disable
    def step() -> int:
        return next(steps)

    def function(x: Tensor) -> Tensor:
        x = x + 1
        return MODEL(x) if step() else x

    compiled = stator.compile(function)
    stats = call(compiled, X, times=60)
    assert stats.hits > 25
    assert torch.equal(compiled(X), X + 1)


def test_other_arguments_are_another_trace() -> None:
    def function(x: Tensor, deep: bool) -> Tensor:
        return MODEL(x) if deep else x + 1

    compiled = stator.compile(function)
    call(compiled, X, False, times=3)
    stats = call(compiled, X, True, times=3)
    assert (stats.entries, stats.native, stats.hits) == (2, 2, 2)
    stats = call(compiled, X[:2], False, times=3)
    assert (stats.native, stats.hits) == (4, 2)
    assert torch.equal(compiled(X, True), MODEL(X))


def test_a_break_that_was_met_too_late_is_traced_first() -> None:
    def key(value: float) -> float:
        note()
        return -value

    def function(x: Tensor) -> Tensor:
        x = x + 1
        note()
        names = sorted([1.0, 2.0], key=key)
        return MODEL(x) + names[0]

    compiled = stator.compile(function)
    stats = call(compiled, X, times=5)
    assert stats.native <= 1 and stats.hits >= 3
    assert torch.equal(compiled(X), function(X))


# Where it doesn't apply.


def test_programs_that_ask_whether_they_are_compiled() -> None:
    told = []

    def function(x: Tensor) -> Tensor:
        told.append(stator.is_compiling())
        return x[:1]

    stats = call(stator.compile(function, is_compiling=True), X, times=5)
    assert stats.native == 0 and told == [True] * 5
    told.clear()
    # Plain Python would say the same, so it may run.
    stats = call(stator.compile(function), X, times=5)
    assert stats.native == 4 and told == [False] * 5


def test_constants_that_the_user_vouches_for() -> None:
    values = [1, 2, 3, 4, 5]

    @stator.assume_constant_result
    def value() -> int:
        return values.pop(0)

    compiled = stator.compile(lambda x: x + value())
    for _ in range(5):
        assert torch.equal(compiled(X), X + 1)


def test_off() -> None:
    with stator.config.patch(skip_unprofitable=False):
        compiled = stator.compile(operators)
        stats = call(compiled, X, times=5)
        assert (stats.hits, stats.native) == (4, 0)
    # What was recorded without it isn't estimated afterwards.
    assert call(compiled, X).native == 0


def test_switched_off_later() -> None:
    compiled = stator.compile(one)
    call(compiled, X, times=5)
    with stator.config.patch(skip_unprofitable=False):
        stats = call(compiled, X, times=5)
    assert (stats.hits, stats.native) == (5, 4)
    assert call(compiled, X).native == 6


def test_other_backends() -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        return graph.forward

    stats = call(stator.compile(operators, backend=backend), X, times=5)
    assert (stats.hits, stats.native) == (4, 0)


def test_fullgraph() -> None:
    stats = call(stator.compile(one, fullgraph=True), X, times=5)
    assert (stats.hits, stats.native) == (4, 0)


@pytest.mark.parametrize("log", ["graph_code", "graph", "graph_sizes", "bytecode"])
def test_logs_of_graphs(log: str) -> None:
    compiled = stator.compile(operators)
    call(compiled, X, times=2)
    stator.set_logs(**{log: True})
    stats = call(compiled, X, times=5)
    assert (stats.hits, stats.native) == (5, 1)
    stator.set_logs(**{log: False})
    assert call(compiled, X, times=1).hits == 6  # A trial: the second call after the first.


def test_breaks_that_a_test_asks_for() -> None:
    compiled = stator.compile(one)
    with _testing.break_everywhere(0):
        assert call(compiled, X, times=5).native == 0


@pytest.mark.parametrize("stance", ["eager_on_recompile", "fail_on_recompile"])
def test_stances(stance: str) -> None:
    compiled = stator.compile(data_dependent)
    call(compiled, -X - 2, times=2)
    with stator.set_stance(stance):
        for number in range(CALLS):
            x = X + 1 if number % 2 else -X - 2
            assert torch.equal(compiled(x), data_dependent(x))
        if stance == "fail_on_recompile":
            with pytest.raises(stator.errors.RecompileError):
                compiled(X[:2])
    assert stator.stats(compiled).graphs == 2
    assert call(compiled, X + 1, times=600).graphs == 3


# The rest.


def test_the_log_says_why_once(caplog: pytest.LogCaptureFixture) -> None:
    stator.set_logs(graph_breaks=True)
    compiled = stator.compile(data_dependent)
    with caplog.at_level("DEBUG"):
        call(compiled, -X - 2, times=12)
        native = [text for text in caplog.messages if text.startswith("runs natively:")]
        caplog.clear()
        call(compiled, X + 1, times=30)
        replayed = [text for text in caplog.messages if text.startswith("is replayed again:")]
    (line,) = native
    head, why, hint = line.split("\n")
    assert head.startswith("runs natively: data_dependent (") and "test_floor.py:" in head
    assert why.startswith("  Why: a replay saves 0.") and "1 graph break)" in why
    assert hint == "  Hint: stator.config.skip_unprofitable = False has it replayed"
    (line,) = replayed
    assert line.split("\n")[1].startswith("  Why: a replay saves ")


def test_recursion() -> None:
    def function(x: Tensor, depth: int) -> Tensor:
        x = x + depth
        note()
        return compiled(x, depth - 1) if depth else x

    compiled = stator.compile(function)
    for _ in range(CALLS):
        assert torch.equal(compiled(X, 3), X + 6)


def test_compiled_functions_below_have_their_own() -> None:
    below = stator.compile(modules)

    def function(x: Tensor) -> Tensor:
        note()
        return below(x + 1)

    outer = stator.compile(function)
    for _ in range(CALLS):
        assert torch.equal(outer(X), modules(X + 1))


def test_threads() -> None:
    compiled = stator.compile(data_dependent)
    wrong: list[Tensor] = []

    def work(sign: int) -> None:
        for number in range(200):
            x = (X + 1) * (1 if number % 7 == sign else -1)
            if not torch.equal(compiled(x), data_dependent(x)):
                wrong.append(x)

    threads = [threading.Thread(target=work, args=(sign,)) for sign in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert call(compiled, X + 1, times=600).graphs == 3


def test_reset_forgets() -> None:
    compiled = stator.compile(one)
    call(compiled, X, times=3)
    stator.reset()
    assert (stator.stats(compiled).native, call(compiled, X, times=1).traces) == (0, 1)


def test_the_setting_takes_truth_values() -> None:
    with pytest.raises(stator.errors.ConfigError, match="takes True or False, not 1"):
        stator.config.skip_unprofitable = 1  # type: ignore[assignment]
