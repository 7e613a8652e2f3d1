"""Which sizes and numbers become symbols, and what users can say about it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import stator
from stator.errors import MarkError


def traces(compiled: Any) -> int:
    return stator.stats(compiled).traces


def doubled(x: Any) -> Any:
    return x * 2 + x.shape[0]


def check(compiled: Any, function: Any, *arguments: Any) -> None:
    assert torch.equal(compiled(*arguments), function(*arguments))


@pytest.fixture
def log() -> Iterator[list[str]]:
    """The records of the `dynamic` log."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Lines()
    logging.getLogger("stator.dynamic").addHandler(handler)
    stator.set_logs(dynamic=True)
    yield lines
    stator.set_logs(dynamic=False)
    logging.getLogger("stator.dynamic").removeHandler(handler)


def test_static_until_a_size_changes() -> None:
    compiled = stator.compile(doubled)
    for size, expected in [(4, 1), (4, 1), (5, 2), (6, 2), (100, 2)]:
        check(compiled, doubled, torch.ones(size))
        assert traces(compiled) == expected


def test_only_what_has_changed() -> None:
    compiled = stator.compile(doubled)
    for rows, columns in [(4, 3), (5, 3), (6, 3)]:
        check(compiled, doubled, torch.ones(rows, columns))
    assert traces(compiled) == 2
    check(compiled, doubled, torch.ones(6, 4))
    assert traces(compiled) == 3
    check(compiled, doubled, torch.ones(7, 9))
    assert traces(compiled) == 3


@pytest.mark.parametrize("size", [0, 1])
def test_sizes_of_0_and_1_have_traces_of_their_own(size: int) -> None:
    compiled = stator.compile(doubled, dynamic=True)
    for each, expected in [(4, 1), (5, 1), (size, 2), (6, 2), (size, 2)]:
        check(compiled, doubled, torch.ones(each))
        assert traces(compiled) == expected
    assert any("2 <= L['x'].size()[0]" in line for line in compiled.guards()[1])


@pytest.mark.parametrize("number", [0, 1, -1])
def test_plain_integers_may_be_0_and_1(number: int) -> None:
    def scaled(x: Any, n: int) -> Any:
        return x * n

    compiled = stator.compile(scaled)
    for n in (2, 3, number, 5):
        check(compiled, scaled, torch.ones(3), n)
    assert traces(compiled) == 2


def test_equal_sizes_are_one_symbol_until_they_differ() -> None:
    def outer(x: Any, y: Any) -> Any:
        return x[:, None] * y

    compiled = stator.compile(outer, dynamic=True)
    check(compiled, outer, torch.ones(4), torch.ones(4))
    assert "L['y'].size()[0] == L['x'].size()[0]" in compiled.guards()[0]
    check(compiled, outer, torch.ones(5), torch.ones(5))
    assert traces(compiled) == 1
    check(compiled, outer, torch.ones(5), torch.ones(6))
    check(compiled, outer, torch.ones(8), torch.ones(3))
    check(compiled, outer, torch.ones(9), torch.ones(9))
    assert traces(compiled) == 2


def test_dynamic_false_is_static_for_good() -> None:
    compiled = stator.compile(doubled, dynamic=False, recompile_limit=9)
    for size in (4, 5, 6):
        check(compiled, doubled, torch.ones(size))
    assert traces(compiled) == 3


def test_parameters_are_static() -> None:
    model = torch.nn.Linear(4, 3)
    compiled = stator.compile(model, dynamic=True)
    with torch.no_grad():
        check(compiled, model, torch.ones(5, 4))
    guards = [line for line in native(compiled).guards()[0] if "check_tensor" in line]
    assert sum("size=[None, None]" in line for line in guards) == 1
    assert sum("size=[3, 4], stride=[4, 1]" in line for line in guards) == 1


def native(compiled: Any) -> Any:
    from stator._targets import native_of

    return native_of(compiled)


# -- attributes and globals --------------------------------------------------------------------------

STEP = 1


def stepped(x: Any) -> Any:
    return x + STEP


def test_a_global_integer() -> None:
    global STEP
    compiled = stator.compile(stepped)
    for STEP in (1, 2, 3, 40):  # noqa: B007
        check(compiled, stepped, torch.ones(3))
    assert traces(compiled) == 2


class Scale(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.by = 1
        self.rate = 0.5

    def forward(self, x: Any) -> Any:
        return x * self.by + self.by * self.rate


def test_integer_and_float_attributes() -> None:
    model = Scale()
    compiled = stator.compile(model)
    for by in (1, 2, 7, 3):
        model.by, model.rate = by, by / 4
        check(compiled, model, torch.ones(3))
    assert traces(compiled) == 2


def test_an_attribute_that_counts() -> None:
    class Counter(torch.nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls = self.calls + 1
            return x * self.calls

    plain, counted = Counter(), Counter()
    compiled = stator.compile(counted)
    for _ in range(6):
        assert torch.equal(compiled(torch.ones(2)), plain(torch.ones(2)))
        assert counted.calls == plain.calls and type(counted.calls) is int
    assert traces(compiled) <= 3


# -- marks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [stator.mark_dynamic, stator.maybe_mark_dynamic])
def test_a_marked_dimension_is_symbolic_at_once(mark: Any) -> None:
    compiled = stator.compile(doubled)
    for size in (4, 5, 6):
        x = torch.ones(size, 3)
        mark(x, 0)
        check(compiled, doubled, x)
    assert traces(compiled) == 1


def test_pytorchs_own_marks_count() -> None:
    from torch._dynamo import mark_dynamic

    compiled = stator.compile(doubled)
    for size in (4, 5):
        x = torch.ones(size, 3)
        mark_dynamic(x, 0)
        check(compiled, doubled, x)
    assert traces(compiled) == 1


def test_bounds_are_guards() -> None:
    compiled = stator.compile(doubled)
    x = torch.ones(8)
    stator.mark_dynamic(x, 0, min=4, max=16)
    check(compiled, doubled, x)
    guards = compiled.guards()[0]
    assert "4 <= L['x'].size()[0]" in guards and "L['x'].size()[0] <= 16" in guards
    check(compiled, doubled, torch.ones(16))
    assert traces(compiled) == 1
    check(compiled, doubled, torch.ones(17))
    assert traces(compiled) == 2


def test_a_marked_dimension_that_the_program_fixes_is_an_error() -> None:
    def asks(x: Any) -> Any:
        if x.shape[0] == 5:
            return x
        return x + 1

    compiled = stator.compile(asks)
    x = torch.ones(5)
    stator.mark_dynamic(x, 0)
    with pytest.raises(stator.DynamicDimensionError) as raised:
        compiled(x)
    assert raised.value.dimension == "L['x'].size()[0]"
    line = asks.__code__.co_firstlineno + 1
    assert f"test_policies.py:{line} in asks" in raised.value.reason
    assert stator.stats(compiled).entries == 0
    x = torch.ones(5)
    stator.maybe_mark_dynamic(x, 0)
    check(compiled, asks, x)


def test_a_marked_dimension_of_size_1_is_an_error() -> None:
    x = torch.ones(1, 3)
    stator.mark_dynamic(x, 0)
    with pytest.raises(stator.DynamicDimensionError, match="sizes of 0 and 1"):
        stator.compile(doubled)(x)


def test_a_static_dimension_stays_static() -> None:
    compiled = stator.compile(doubled, dynamic=True)
    for size in (4, 5):
        x = torch.ones(size, size)
        stator.mark_static(x, 0)
        check(compiled, doubled, x)
    assert traces(compiled) == 2
    x = torch.ones(4, 4)
    stator.mark_static(x)
    check(stator.compile(doubled, dynamic=True), doubled, x)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: stator.mark_dynamic(3, 0), "takes a tensor, not"),  # type: ignore[arg-type]
        (lambda: stator.mark_dynamic(torch.ones(2), 1), "no dimension 1: the tensor has 1"),
        (lambda: stator.mark_dynamic(torch.ones(2), "0"), "A dimension is a number"),
        (lambda: stator.mark_dynamic(torch.ones(2), 0, min=5, max=4), "at least 5 and at most 4"),
        (lambda: stator.mark_dynamic(torch.ones(2), 0, min=-1), "min is a size, not -1"),
    ],
)
def test_wrong_marks(wrong: Any, says: str) -> None:
    with pytest.raises(MarkError, match=says):
        wrong()


# -- what is left of it in the program ----------------------------------------------------------------


def test_nothing_symbolic_is_left_in_the_users_objects() -> None:
    kept: dict[str, Any] = {}

    def keeps(x: Any, n: int) -> Any:
        kept["n"] = n
        kept["size"] = x.shape
        return n, x.shape[0], x.shape

    compiled = stator.compile(keeps)
    for n in (2, 3, 4):
        number, size, shape = compiled(torch.ones(n, 2), n)
        assert type(number) is type(size) is int and number == size == n
        assert type(shape) is torch.Size and shape == (n, 2)
        assert number is n
        assert type(kept["n"]) is int and kept == {"n": n, "size": torch.Size([n, 2])}
    assert traces(compiled) == 2


def test_a_result_that_holds_itself() -> None:
    def loops(x: Any, n: int) -> Any:
        pair = (x.shape[0], [n + 1])
        found = [n, pair, pair]
        found.append(found)
        return found

    compiled = stator.compile(loops)
    for n in (2, 3, 4):
        number, pair, again, found = result = compiled(torch.ones(n, 2), n)
        assert found is result and again is pair
        assert (number, pair) == (n, (n, [n + 1]))
        assert number is n
    assert traces(compiled) == 2


def test_what_c_code_reads_is_fixed(log: list[str]) -> None:
    def reads(x: Any, n: int) -> Any:
        return x + len(list(range(n)))

    compiled = stator.compile(reads)
    for n in (2, 3, 4):
        check(compiled, reads, torch.ones(2), n)
    assert traces(compiled) == 3
    assert any("s0 == 3" in line and "read by range" in line for line in log), log


@pytest.mark.parametrize("dynamic", [None, True])
def test_symbols_stay_in_frames_around_a_break(dynamic: bool | None) -> None:
    def inner(x: Any) -> Any:
        y = x * 3
        if y.sum() > 0:
            return y + 1
        return y - 1

    def outer(x: Any) -> Any:
        n = x.shape[0]
        m = n * 2
        z = inner(x)
        return z.sum() * n + m + torch.ones(m).sum()

    compiled = stator.compile(outer, dynamic=dynamic)
    # The second side of the branch is met by a replay that has made both frames again.
    for n in (3, 5, 7, 9, 11, 13):
        for sign in (1, -1):
            check(compiled, outer, sign * torch.rand(n, 4))
    # Through the branch and on its other side, and the same with symbols.
    assert stator.stats(compiled).traces == (2 if dynamic else 4)


def test_symbols_go_through_graph_breaks() -> None:
    def breaks(x: Any, n: int) -> Any:
        y = x * n
        stator.graph_break()
        z = y + x.shape[0]
        stator.graph_break()
        return z * n + z.shape[0]

    compiled = stator.compile(breaks)
    for size in (4, 5, 6, 7, 30):
        check(compiled, breaks, torch.ones(size, 2), size)
    stats = stator.stats(compiled)
    assert stats.native == 0
    assert stats.graphs <= 6, "three for the static trace, three for all others"


def test_recompiles_name_the_fact() -> None:
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    def asks(x: Any) -> Any:
        return x if x.shape[0] > 10 else x + 1

    handler = Lines()
    logging.getLogger("stator.recompiles").addHandler(handler)
    stator.set_logs(recompiles=True)
    try:
        compiled = stator.compile(asks, dynamic=True)
        check(compiled, asks, torch.ones(4))
        check(compiled, asks, torch.ones(40))
    finally:
        stator.set_logs(recompiles=False)
        logging.getLogger("stator.recompiles").removeHandler(handler)
    assert "L['x'].size()[0] <= 10" in lines[0] and "found L['x'].size()[0] = 40" in lines[0], lines
