"""Operations that return an argument itself for some numbers, with the numbers as symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator

DROPOUTS: dict[str, Callable[..., Tensor]] = {
    "F.dropout": lambda x, p: F.dropout(x, p, True),
    "torch.dropout": lambda x, p: torch.dropout(x, p, True),
    "keyword": lambda x, p: F.dropout(x, p=p),
    "alpha": lambda x, p: F.alpha_dropout(x, p, True),
    "1d": lambda x, p: F.dropout1d(x, p, True),
    "2d": lambda x, p: F.dropout2d(x, p, True),
    "feature": lambda x, p: torch.feature_dropout(x, p, True),
    "feature alpha": lambda x, p: F.feature_alpha_dropout(x, p, True),
    "in place": lambda x, p: F.dropout(x * 1, p, True, inplace=True),
}


def seeded(fn: Callable[..., Any], *args: Any) -> Any:
    torch.manual_seed(0)
    return fn(*args)


@pytest.mark.parametrize("name", DROPOUTS)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("ps", [(0.0, 0.5, 1.0), (0.5, 0.25, 0.0, 0.75), (0.25, 1.0, 0.0), (1, 0)])
def test_dropout_with_a_schedule(name: str, dynamic: bool | None, ps: tuple[float, ...]) -> None:
    dropout = DROPOUTS[name]

    def fn(x: Tensor, p: float) -> tuple[Tensor, bool]:
        y = dropout(x, p)
        return y, y is x

    compiled = stator.compile(fn, dynamic=dynamic, recompile_limit=64)
    for shape in [(4, 4, 4), (5, 4, 4), (3, 4, 4)]:
        x = torch.randn(shape)
        for p in ps * 2:
            expected, found = seeded(fn, x, p), seeded(compiled, x, p)
            assert torch.equal(found[0], expected[0])
            assert found[1] == expected[1]
            assert (found[0] is x) == (expected[0] is x)
    assert stator.stats(compiled).native == 0


def test_a_schedule_away_from_zero_keeps_its_trace() -> None:
    compiled = stator.compile(lambda x, p: F.dropout(x, p) * 2)
    x = torch.ones(64)
    for step in range(1, 20):
        p = step / 20
        expected = seeded(lambda x, p: F.dropout(x, p) * 2, x, p)
        assert torch.equal(seeded(compiled, x, p), expected)
    assert stator.stats(compiled).traces == 2


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_sum_to_the_size_that_is_there(dynamic: bool | None) -> None:
    def fn(x: Tensor, rows: int) -> tuple[Tensor, bool]:
        y = x.sum_to_size(rows, 4)
        return y * 2, y is x

    compiled = stator.compile(fn, dynamic=dynamic, recompile_limit=64)
    for n, rows in [(4, 4), (5, 5), (6, 1), (7, 7), (8, 1), (8, 8)] * 2:
        x = torch.randn(n, 4)
        expected, found = fn(x, rows), compiled(x, rows)
        assert torch.equal(found[0], expected[0])
        assert found[1] == expected[1]


def _bounds(values: Tensor, places: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    torch.max(x, 0, out=(values, places))
    return values, places


# Operations that give back some of several tensors, or write to them: by what is known of those already.
SEVERAL: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "_foreach_add_": lambda v, w: torch._foreach_add_([w, v], 1.0),
    "_foreach_mul_ of two lists": lambda v, w: torch._foreach_mul_((v, w), [w.sum(), w.sum()]),
    "_foreach_copy_": lambda v, w: torch._foreach_copy_([v], [v * 2]),
    "_foreach_zero_": lambda v, w: torch._foreach_zero_([v]),
    "out": lambda v, w: _bounds(v[0] * 1, torch.zeros(v.shape[1], dtype=torch.int64), v),
    "out, given": lambda v, w: torch.sort(
        v * 1, 1, out=(v, torch.zeros(v.shape, dtype=torch.int64))
    ),
    "atleast_2d": lambda v, w: torch.atleast_2d(v, w),
    "broadcast_tensors": lambda v, w: torch.broadcast_tensors(v, w[:, None]),
    "clip_grad_norm_": lambda v, w: torch.nn.utils.clip_grad_norm_([v], 1.0),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", SEVERAL)
def test_what_several_give_back_keeps_its_sizes(name: str, dynamic: bool | None) -> None:
    def fn(y: Tensor, w: Tensor) -> tuple[Any, ...]:
        v = y.transpose(0, 1)
        given = SEVERAL[name](v, w)
        again = [value is v for value in given] if isinstance(given, (list, tuple)) else []
        return torch.ones(v.shape), torch.zeros(v.shape[1]), v.sum(), v * 2, again

    compiled = stator.compile(fn, dynamic=dynamic)
    with stator.config.patch(strict=True, skip_unprofitable=False):
        for rows in (3, 3, 5, 6, 1, 3):
            y, w = torch.randn(rows, 4), torch.ones(4)
            expected, found = fn(y.clone(), w.clone()), compiled(y.clone(), w.clone())
            for plain, ours in zip(expected, found, strict=True):
                assert torch.equal(plain, ours) if isinstance(plain, Tensor) else plain == ours
