"""Least squares, weights that are normalised, and activations that are computed again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from programs.common import check, random, spec
from torch import nn
from torch.utils.checkpoint import checkpoint

from stator.errors import ProgramError
from stator.programs import TensorProgram


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("columns", [None, 2])
def test_least_squares(driver: str | None, columns: int | None) -> None:
    def fn(a: Any, b: Any) -> Any:
        found = torch.linalg.lstsq(a, b, driver=driver)
        assert found.solution is found[0]
        return found[0], found.rank, found.singular_values

    specs = (spec(None, 3), spec(None) if columns is None else spec(None, columns))
    if columns is None:
        # PyTorch takes a vector where it is the only one.
        def of_vector(a: Any, b: Any) -> Any:
            return fn(a, b.unsqueeze(-1))

        function: Any = of_vector
    else:
        function = fn
    program = TensorProgram.trace(function, specs)
    again = TensorProgram.from_bytes(program.to_bytes())
    # How many singular values there are says which of the sizes is less.
    for size in (5, 8) if driver in ("gelsd", "gelss") else (5, 3, 8):
        given = random(*specs, size=size)
        for run in (program, again):
            for found, want in zip(run(*given), function(*given), strict=True):
                torch.testing.assert_close(found, want, rtol=1e-3, atol=1e-4)
    assert all(map(torch.equal, given, random(*specs, size=size)))


def test_least_squares_of_batches_and_their_gradient() -> None:
    def fn(a: Any, b: Any) -> Any:
        a = a.clone().requires_grad_()
        solution = torch.linalg.lstsq(a, b).solution
        return solution.detach(), torch.autograd.grad(solution.square().sum(), a)[0]

    specs = (spec(2, 5, 3, dtype=torch.float64), spec(2, 5, dtype=torch.float64))
    program = TensorProgram.trace(fn, specs)
    given = random(*specs)
    for found, want in zip(program(*given), fn(*given), strict=True):
        torch.testing.assert_close(found, want)


def test_residuals_have_no_size() -> None:
    with pytest.raises(ProgramError, match=r"the residuals of `torch\.linalg\.lstsq`"):
        TensorProgram.trace(
            lambda a, b: torch.linalg.lstsq(a, b).residuals, (spec(5, 3), spec(5, 1))
        )
    with pytest.raises(RuntimeError, match="should be one of"):
        TensorProgram.trace(
            lambda a, b: torch.linalg.lstsq(a, b, driver="qr"), (spec(5, 3), spec(5, 1))
        )


@pytest.mark.parametrize("dim", [0, 1])
def test_normalised_weights(dim: int) -> None:
    torch.manual_seed(0)
    net = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4), dim=dim)
    start = {name: each.detach().clone() for name, each in net.named_parameters()}

    def fn(x: Any) -> Any:
        own = {name: each.clone().requires_grad_() for name, each in start.items()}
        loss = torch.func.functional_call(net, own, (x,)).square().mean()
        return loss.detach(), *torch.autograd.grad(loss, list(own.values()))

    program = TensorProgram.trace(fn, (spec(None, 3),))
    for size in (2, 5):
        (x,) = random(spec(None, 3), size=size)
        for found, want in zip(program(x), fn(x), strict=True):
            torch.testing.assert_close(found, want)


def block(x: Any, w: Any, scale: float = 1.0) -> Any:
    return torch.tanh(x @ w) * scale


def test_activations_are_computed_once() -> None:
    def fn(x: Any, w: Any) -> Any:
        w = w.clone().requires_grad_()
        hidden = checkpoint(block, x, w, use_reentrant=False, scale=2.0)
        hidden = checkpoint(lambda h: F.relu(h), hidden, use_reentrant=False)
        return hidden.detach(), torch.autograd.grad(hidden.sum(), w)[0]

    program = TensorProgram.trace(fn, (spec(None, 3), spec(3, 3)))
    for size in (2, 5):
        check(program, fn, *random(spec(None, 3), spec(3, 3), size=size))
    assert program.text.count("torch.tanh") == 1


@pytest.mark.parametrize("settings", [{}, {"use_reentrant": True}])
def test_gradients_that_would_be_left_out(settings: Any) -> None:
    with pytest.raises(ProgramError, match="without `use_reentrant=False`"):
        TensorProgram.trace(
            lambda x, w: checkpoint(block, x, w, **settings), (spec(2, 3), spec(3, 3))
        )


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("layers", [0, 2])
def test_transformers_that_are_evaluated(layers: int, padded: bool) -> None:
    torch.manual_seed(0)
    module: nn.Module = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    if layers:
        module = nn.TransformerEncoder(module, layers, enable_nested_tensor=False)
    module.eval()

    def encoded(x: Any, mask: Any) -> Any:
        return module(x, src_key_padding_mask=mask if padded else None)

    specs = (spec(None, 5, 8), spec(None, 5, dtype=torch.bool))
    program = TensorProgram.trace(encoded, specs)
    x = torch.randn(3, 5, 8)
    mask = torch.arange(5) >= torch.tensor([5, 3, 4])[:, None]
    with torch.no_grad():
        expected = encoded(x, mask)
    (found,) = program(x, mask)
    if padded:
        # What the fast path gives for padding is its own affair.
        found, expected = found[~mask], expected[~mask]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
