"""`len()` of objects whose `__len__` is Python code: a size that varies stays one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator


class Rows:
    """A data set, as libraries have them."""

    def __init__(self, x: Any, take_away: int = 0) -> None:
        self.x = x
        self.take_away = take_away

    def __len__(self) -> int:
        return len(self.x) - self.take_away


class Batches:
    def __init__(self, rows: Rows, size: int) -> None:
        self.rows = rows
        self.size = size

    def __len__(self) -> int:
        return (len(self.rows) + self.size - 1) // self.size


class Called:
    def __init__(self, x: Any) -> None:
        self.x = x

    def __len__(self) -> int:
        print("asked")
        return len(self.x)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "a mean": lambda x: x.sum() / len(Rows(x)),
    "as many batches": lambda x: x * len(Batches(Rows(x), 4)),
    "a size": lambda x: torch.ones(len(Rows(x))) + x,
    "fewer": lambda x: x[: len(Rows(x, 2))].sum(),
    "in Python code": lambda x: x * Rows(x).__len__(),
    "compared": lambda x: x * 2 if len(Rows(x)) > 5 else x - 1,
    "read by C code": lambda x: x * sum(range(len(Rows(x)))),
    "counted by C code": lambda x: x * sum(map(len, [Rows(x), Rows(x, 1)])),
    "a text": lambda x: (x, f"{len(Rows(x))} rows"),
    "a truth value": lambda x: x + 1 if Rows(x, 4) else x - 1,
    "behind a break": lambda x: x * len(Called(x)),
    "an index": lambda x: x * [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0][len(Rows(x))],
}


def plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(plain(part) for part in value)
    return value.tolist() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_plain_python(
    name: str, dynamic: bool | None, capsys: pytest.CaptureFixture[str]
) -> None:
    fn = FUNCTIONS[name]
    compiled = stator.compile(fn, dynamic=dynamic)
    with stator.config.patch(skip_unprofitable=False, recompile_limit=20):
        for size in (5, 5, 6, 7, 7, 4, 9, 5):
            x = torch.arange(float(size))
            expected, said = plain(fn(x)), capsys.readouterr().out
            assert plain(compiled(x)) == expected
            assert capsys.readouterr().out == said


@pytest.mark.parametrize("name", ["a mean", "as many batches", "a size", "fewer"])
def test_one_trace_is_for_all_sizes(name: str) -> None:
    compiled = stator.compile(FUNCTIONS[name], dynamic=True, fullgraph=True)
    for size in (5, 6, 9, 12):
        compiled(torch.arange(float(size)))
    assert stator.stats(compiled).traces == 1


def test_a_length_that_may_be_none() -> None:
    """What `len` refuses for other sizes isn't a size that varies."""

    def fn(x: Any) -> Any:
        return x * len(Rows(x, 4))

    compiled = stator.compile(fn, dynamic=True)
    with stator.config.patch(skip_unprofitable=False):
        for size in (6, 5, 6):
            assert plain(compiled(torch.ones(size))) == plain(fn(torch.ones(size)))
        for _ in range(2):
            with pytest.raises(ValueError, match="should return >= 0"):
                compiled(torch.ones(3))


def test_another_method_is_seen() -> None:
    class Counted:
        def __init__(self, x: Any) -> None:
            self.x = x

        def __len__(self) -> int:
            return len(self.x)

    def fn(x: Any) -> Any:
        return x.sum() / len(Counted(x))

    compiled = stator.compile(fn, dynamic=True)
    with stator.config.patch(skip_unprofitable=False):
        for size in (5, 6):
            assert compiled(torch.ones(size)) == 1
        Counted.__len__ = lambda self: 2 * len(self.x)  # type: ignore[method-assign]
        for size in (5, 6):
            assert compiled(torch.ones(size)) == 0.5
