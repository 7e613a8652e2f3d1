"""Operations that look at data to refuse it or to warn, though their results' sizes are known without."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor
from torch.nn import functional as F

Run = Callable[[Tensor], Any]

FINE: dict[str, Run] = {
    "cov": lambda x: torch.cov(x.t()) * 2,
    "cov, weights": lambda x: x.t().cov(correction=0, aweights=x[:, 0].abs() + 1),
    "corrcoef": lambda x: torch.corrcoef(x.t()) + 1,
    "combinations": lambda x: torch.combinations(x[:, 0], r=2).sum(1),
    "with replacement": lambda x: torch.combinations(x[:, 0], 3, with_replacement=True).sum(),
    "lstsq": lambda x: torch.linalg.lstsq(x.double(), x.double()[:, :1]).solution.shape,
    "gaussian_nll_loss": lambda x: F.gaussian_nll_loss(x, x * 2, x.abs() + 0.1),
    "module": lambda x: torch.nn.GaussianNLLLoss(full=True)(x, x * 2, x.abs() + 0.1),
    "segment_reduce": lambda x: torch.segment_reduce(
        x, "sum", lengths=torch.tensor([1, x.shape[0] - 1]), axis=0
    ),
    "nonzero_static": lambda x: torch.nonzero_static(x > 0, size=4, fill_value=-1) * 2,
    "new": lambda x: (
        x.new(2, 3).fill_(1.0) + x.new([1.0, 2.0, 3.0]) + x.new(torch.Size([3])).zero_()
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_it_is_replayed(name: str) -> None:
    run = FINE[name]
    compiled = api.compile(run)
    torch.manual_seed(0)
    for rows in (4, 4, 4, 5, 5, 4):
        x = torch.randn(rows, 3)
        expected, found = run(x), compiled(x)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert api.breaks(compiled) in (0, None)
    assert api.PLAIN or api.hits(compiled) > 0  # type: ignore[operator]


REFUSED: dict[str, tuple[Run, Run]] = {
    "cov": (lambda x: torch.cov(x.t(), aweights=x[:, 0]), lambda x: x.abs()),
    "gaussian_nll_loss": (lambda x: F.gaussian_nll_loss(x, x, x), lambda x: x.abs()),
    "segment_reduce": (
        lambda x: torch.segment_reduce(x, "sum", lengths=x[0].long(), axis=0),
        lambda x: torch.tensor([[1.0, 2.0, 0.0]] * 3),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses_in_a_replay(name: str) -> None:
    run, fine = REFUSED[name]

    def step(x: Tensor, seen: list[int]) -> Any:
        seen.append(1)
        try:
            return run(x), len(seen)
        except (RuntimeError, ValueError) as error:
            seen.append(2)
            return str(error)

    compiled = api.compile(step)
    good, bad = fine(torch.randn(3, 3)), -torch.ones(3, 3)
    ours: list[int] = []
    theirs: list[int] = []
    for x in (good, good, bad, good, bad, good):
        expected, found = step(x, theirs), compiled(x, ours)
        assert repr(found) == repr(expected)
        assert ours == theirs


def test_it_warns_in_a_replay() -> None:
    compiled = api.compile(lambda x: torch.cov(x, correction=3))
    for columns in (5, 5, 3, 3, 3, 5):
        x = torch.randn(2, columns)
        told = []
        for run in (compiled, lambda x: torch.cov(x, correction=3)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                run(x)
            told.append([str(warning.message)[:40] for warning in caught])
        assert told[0] == told[1]


@pytest.mark.parametrize("driver", ["gelsy", "gelsd", "gelss"])
def test_a_driver_that_leaves_residuals(driver: str) -> None:
    def run(x: Tensor) -> Any:
        found = torch.linalg.lstsq(x, x[:, :1] * 2, driver=driver)
        return found.residuals.shape, found.rank

    compiled = api.compile(run)
    full, singular = torch.randn(4, 2).double(), torch.ones(4, 2).double()
    for x in (full, full, singular, full, singular, singular):
        assert repr(compiled(x)) == repr(run(x))


def test_new_shares_what_it_is_given() -> None:
    def run(x: Tensor, y: Tensor) -> Any:
        z = x.new(y)
        z.add_(1)
        return z * 2

    compiled = api.compile(run)
    for _ in range(4):
        ours, theirs = torch.ones(2), torch.ones(2)
        x = torch.zeros(1)
        assert torch.equal(compiled(x, ours), run(x, theirs))
        assert torch.equal(ours, theirs)
