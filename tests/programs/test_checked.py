"""What PyTorch checks by reading tensors: programs check it when they run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from programs.common import I64, spec
from torch import distributions, nn

from stator.errors import ProgramError
from stator.programs import TensorProgram


def of_normals(x: Any, scale: Any) -> Any:
    normal = distributions.Normal(x, scale)
    usual = distributions.Normal(torch.zeros(3), torch.ones(3))
    return normal.log_prob(x + 1), distributions.kl_divergence(normal, usual), normal.entropy()


def of_others(x: Any, scale: Any) -> Any:
    shares = x.softmax(-1)
    return (
        distributions.Categorical(logits=x).entropy(),
        distributions.Bernoulli(logits=x).log_prob(torch.ones_like(x)),
        distributions.Dirichlet(scale).log_prob(shares),
        distributions.Gamma(scale, scale).log_prob(shares),
        distributions.Independent(distributions.Laplace(x, scale), 1).log_prob(x * 2),
    )


@pytest.fixture(autouse=True)
def _arguments_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """TorchDynamo switches that off for its process, which other tests may have called."""
    monkeypatch.setattr(distributions.Distribution, "_validate_args", True)


@pytest.mark.parametrize("fn", [of_normals, of_others])
def test_distributions(fn: Any) -> None:
    program = TensorProgram.trace(fn, (spec(None, 3), spec(3)))
    again = TensorProgram.from_bytes(program.to_bytes())
    for size in (4, 2, 7):
        x, scale = torch.randn(size, 3), torch.rand(3) + 0.1
        for run in (program, again):
            for found, want in zip(run(x, scale), fn(x, scale), strict=True):
                torch.testing.assert_close(found, want, rtol=0, atol=0)
        with pytest.raises(ValueError):
            fn(x, -scale)
        with pytest.raises(RuntimeError, match="out of bounds") as raised:
            program(x, -scale)
        assert "distributions." in raised.value.__notes__[0]


def test_draws_are_those_of_the_same_seed() -> None:
    def sample(x: Any, scale: Any) -> Any:
        return distributions.Normal(x, scale).rsample()

    program = TensorProgram.trace(sample, (spec(None, 3), spec(3)))
    x, scale = torch.randn(4, 3), torch.rand(3) + 0.1
    torch.manual_seed(3)
    (found,) = program(x, scale)
    torch.manual_seed(3)
    assert torch.equal(found, sample(x, scale))


DRAWN = {
    "laplace": lambda x, scale: distributions.Laplace(x, scale).rsample(),
    "laplace_of_numbers": lambda x, scale: distributions.Laplace(0.0, 2.0).sample(scale.shape),
    "exponential": lambda x, scale: distributions.Exponential(scale).sample((2,)),
    "cauchy": lambda x, scale: distributions.Cauchy(x, scale).sample(),
    "weibull": lambda x, scale: distributions.Weibull(scale, scale).sample(),
    "pareto": lambda x, scale: distributions.Pareto(scale, scale).sample(),
    "multinomial": lambda x, scale: distributions.Multinomial(4, logits=x).sample(),
    "gamma": lambda x, scale: distributions.Gamma(scale, scale + 1).rsample((2,)),
    "chi2": lambda x, scale: distributions.Chi2(scale * 9).sample(),
    "beta": lambda x, scale: distributions.Beta(scale, x.abs() + 1).sample(),
    "dirichlet": lambda x, scale: distributions.Dirichlet(x.abs() + scale).rsample(),
    "students": lambda x, scale: distributions.StudentT(scale + 2, x).rsample(),
    "inverse_gamma": lambda x, scale: distributions.InverseGamma(scale + 2, scale).sample(),
    "negative_binomial": lambda x, scale: distributions.NegativeBinomial(3.0, scale).sample(),
    "geometric": lambda x, scale: distributions.Geometric(scale).sample(),
    "normal_of_many": lambda x, scale: distributions.MultivariateNormal(
        x[0], torch.diag(scale)
    ).rsample(),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_distributions_draw(name: str) -> None:
    draw = DRAWN[name]
    program = TensorProgram.trace(draw, (spec(None, 3), spec(3)))
    again = TensorProgram.from_bytes(program.to_bytes())
    for size in (4, 2):
        x, scale = torch.randn(size, 3), torch.rand(3) * 0.8 + 0.1
        for run in (program, again):
            torch.manual_seed(size)
            (found,) = run(x, scale)
            torch.manual_seed(size)
            assert torch.equal(found, draw(x, scale))


GRADIENTS = {
    "gamma": lambda x, scale: distributions.Gamma(scale, 1.0).rsample((4,)).sum(),
    "beta": lambda x, scale: distributions.Beta(scale, 2.0).rsample((4,)).square().sum(),
    "dirichlet": lambda x, scale: (distributions.Dirichlet(scale).rsample((4,)) * x).sum(),
    "students": lambda x, scale: distributions.StudentT(scale + 2).rsample((4,)).sin().sum(),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_what_is_drawn(name: str) -> None:
    def gradient(x: Any, scale: Any) -> Any:
        scale = scale.detach().requires_grad_()
        return torch.autograd.grad(GRADIENTS[name](x, scale), scale)[0]

    program = TensorProgram.trace(gradient, (spec(4, 3), spec(3)))
    x, scale = torch.randn(4, 3), torch.rand(3) + 0.5
    torch.manual_seed(5)
    (found,) = program(x, scale)
    torch.manual_seed(5)
    torch.testing.assert_close(found, gradient(x, scale))


LOSSES = {
    "mean": lambda x, scale: nn.functional.gaussian_nll_loss(x, x * 2, scale.expand(x.shape)),
    "of_number": lambda x, scale: nn.functional.gaussian_nll_loss(x, x * 2, 0.5, reduction="sum"),
    "of_rows": lambda x, scale: nn.functional.gaussian_nll_loss(
        x, x + scale, x.square().sum(1), full=True, reduction="none"
    ),
    "of_columns": lambda x, scale: nn.functional.gaussian_nll_loss(x, x + 1, scale[None] * 0),
    "module": lambda x, scale: nn.GaussianNLLLoss(eps=0.3)(x, x + 1, scale.expand(x.shape)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_variances(name: str) -> None:
    def loss(x: Any, scale: Any) -> Any:
        scale = scale.detach().requires_grad_()
        found = LOSSES[name](x, scale)
        return found, torch.autograd.grad(found.sum(), scale, allow_unused=True)[0]

    function = LOSSES[name] if name in ("of_number", "of_rows") else loss
    program = TensorProgram.trace(function, (spec(None, 3), spec(3)))
    x, scale = torch.randn(4, 3), torch.rand(3)
    expected = function(x, scale)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for found, want in zip(program(x, scale), expected, strict=True):
        torch.testing.assert_close(found, want)
    if name == "mean":
        with pytest.raises(RuntimeError, match="out of bounds"):
            program(x, -scale)


def test_checks_of_draws() -> None:
    def of_shares(x: Any, scale: Any) -> Any:
        return distributions.Geometric(scale).mean

    def of_matrices(x: Any, scale: Any) -> Any:
        return distributions.MultivariateNormal(x[0], torch.diag(scale) + scale).mean

    for fn, wrong in ((of_shares, [0.0, 0.5, 1.0]), (of_matrices, [-1.0, 2.0, 1.0])):
        program = TensorProgram.trace(fn, (spec(None, 3), spec(3)))
        given = torch.randn(2, 3), torch.tensor(wrong)
        with pytest.raises(ValueError):
            fn(*given)
        with pytest.raises(RuntimeError, match="out of bounds"):
            program(*given)


def test_new_tensors_of_a_tensors_type() -> None:
    def made(x: Any) -> Any:
        return x.new(2, 3).zero_(), x.new(x.shape).fill_(2), x.new(), x.new(torch.Size([])).zero_()

    program = TensorProgram.trace(made, (spec(None, 3),))
    x = torch.randn(4, 3)
    for found, want in zip(program(x), made(x), strict=True):
        assert found.dtype == want.dtype and torch.equal(found, want)
    with pytest.raises(ProgramError, match="torch.tensor"):
        TensorProgram.trace(lambda x: x.new([1.0, 2.0]), (spec(3),))


def test_bins_are_counted() -> None:
    def counts(values: Any, weights: Any) -> Any:
        return (
            torch.bincount(values, minlength=5),
            values.bincount(minlength=5),
            torch.bincount(values, weights, 5),
            torch.bincount(values, weights.double(), minlength=5),
            torch.bincount(values, values, minlength=5),
        )

    program = TensorProgram.trace(counts, (spec(None, dtype=I64), spec(None)))
    for size in (1, 2, 7):
        values, weights = torch.randint(0, 5, (size,)), torch.randn(size)
        for found, want in zip(program(values, weights), counts(values, weights), strict=True):
            torch.testing.assert_close(found, want)
    assert program(torch.zeros(0, dtype=I64), torch.zeros(0))[0].tolist() == [0] * 5
    # More bins than were said have no place.
    for wrong in (5, -1):
        with pytest.raises((IndexError, RuntimeError)):
            program(torch.tensor([wrong]), torch.ones(1))


def test_as_many_bins_as_the_data_says_are_an_error() -> None:
    with pytest.raises(ProgramError, match="depends on tensor data"):
        TensorProgram.trace(lambda x: torch.bincount(x), (spec(None, dtype=I64),))
