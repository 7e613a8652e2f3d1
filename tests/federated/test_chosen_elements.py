"""What data choose, in PyTorch code of local computations: masks as indices, places, elements that
are told apart. The programs do what PyTorch does, for as many as there are in each run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stator.federated as fl
from stator.errors import ProgramError

from .leaves import in_pairs

torch = pytest.importorskip("torch")

f32 = np.float32
ROWS = fl.TensorType(f32, [None, 3])
LABELS = fl.TensorType(np.int64, [None])


def reductions(x: Any, y: Any) -> Any:
    mask = x > 0
    chosen = x[mask]
    return chosen.sum(), chosen.mean(), chosen.std(), chosen.var(), chosen.norm(), chosen.median()


def rows(x: Any, y: Any) -> Any:
    known = y >= 0
    return x[known].sum(0), x[y == 1].mean(0), x[known].T @ x[known]


def counts(x: Any, y: Any) -> Any:
    chosen = x[x > 0]
    return len(chosen), chosen.numel(), chosen.shape[0], chosen.sum() / len(chosen)


def losses(x: Any, y: Any) -> Any:
    known = y >= 0
    right = (x[known].argmax(1) == y[known]).float()
    return torch.nn.functional.cross_entropy(x[known], y[known]), right.mean(), right.sum()


def gradients(x: Any, y: Any) -> Any:
    weights = torch.ones(3, 3, requires_grad=True)
    known = y >= 0
    loss = torch.nn.functional.cross_entropy((x @ weights)[known], y[known])
    (gradient,) = torch.autograd.grad(loss, weights)
    return weights.detach() - 0.1 * gradient


def places(x: Any, y: Any) -> Any:
    (at,) = torch.where(y >= 0)
    pairs = (x > 0).nonzero()
    left, right = (x > 0).nonzero(as_tuple=True)
    return at.sum(), x[at].sum(0), pairs.sum(0), x[left, right].sum(), torch.argwhere(y > 0).sum()


def selected(x: Any, y: Any) -> Any:
    return torch.masked_select(x, x > 0).sum(), torch.masked_select(x, (y > 0)[:, None]).sum()


def told_apart(x: Any, y: Any) -> Any:
    each, counts = torch.unique(y, return_counts=True)
    _, back = torch.unique(y, return_inverse=True)
    return each.numel(), (each * counts).sum(), back, torch.unique_consecutive(y).sum()


def columns(x: Any, y: Any) -> Any:
    return x[:, x.mean(0) > 0].sum(1), x[:, torch.tensor([True, False, True])].sum(0).mean()


def written(x: Any, y: Any) -> Any:
    own = x.clone()
    own[own < 0] *= 0.5
    own[y == 1] = torch.tensor([1.0, 2.0, 3.0])
    own[own > 1] = own[own > 1] * 2
    own[:, own[0] > 0] += 1
    return own


def a_mask_that_is_written_to(x: Any, y: Any) -> Any:
    mask = y >= 0
    first = x[mask].sum()
    mask[0] = False
    second = x[mask]
    return first, second.sum(), (second * second).sum()


def in_order(x: Any, y: Any) -> Any:
    chosen = x[x > 0]
    ordered = chosen.sort().values
    both = torch.cat([chosen, x[x <= 0]])
    return ordered.cumsum(0).sum(), both.sum(), torch.log(chosen).sum(), (chosen > 1).any()


def as_sizes(x: Any, y: Any) -> Any:
    chosen = x[y >= 0]
    noise = torch.ones(len(chosen), 3)
    return (chosen * noise).sum(), torch.zeros_like(chosen).sum(), chosen.new_full((2,), 1.0)


def of_shares(x: Any, y: Any) -> Any:
    low, high = torch.quantile(x, 0.1), torch.quantile(x, 0.9)
    return x[(x >= low) & (x <= high)].sum(), torch.nanquantile(x, torch.tensor([0.2, 0.7]), dim=1)


def a_result(x: Any, y: Any) -> Any:
    """A result may have as many elements as data say."""
    return x[y >= 0], y[y >= 0] * 2


CASES = [
    *(reductions, rows, counts, losses, gradients, places, selected, told_apart, columns, written),
    *(a_mask_that_is_written_to, in_order, as_sizes, of_shares, a_result),
]


def given(seed: int, count: int, *, none: bool = False) -> tuple[Any, Any]:
    drawn = np.random.default_rng(seed)
    x = drawn.normal(size=(count, 3)).astype(f32)
    y = np.full(count, -1) if none else drawn.integers(-1, 3, count)
    return (-np.abs(x) if none else x), y


def same(found: Any, expected: Any) -> None:
    for each, wanted in in_pairs(found, expected):
        assert np.asarray(each).shape == np.asarray(wanted).shape
        np.testing.assert_allclose(each, np.asarray(wanted), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", CASES)
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_it_gives_what_pytorch_gives(function: Callable[..., Any]) -> None:
    local = fl.local_computation(ROWS, LABELS)(function)
    again = fl.framework.ConcreteComputation.from_bytes(local.to_bytes())
    # Few are chosen, many, other ones, one of one row.
    values = [given(seed, count) for seed, count in enumerate((5, 9, 5, 2, 1))]
    if function not in (reductions, gradients, losses):
        values.append(given(9, 4, none=True))
    wanted = [function(*map(torch.tensor, value)) for value in values]
    for value, expected in zip(values, wanted, strict=True):
        for run in (local, again):
            same(run(*value), expected)

    if function is a_result:
        return

    @fl.federated_computation(fl.FederatedType([ROWS, LABELS], fl.CLIENTS))
    def of_clients(value: Any) -> Any:
        return fl.federated_map(local, value)

    for _ in range(2):
        for found, expected in zip(of_clients(values), wanted, strict=True):
            same(found, expected)


def test_results_say_what_is_known_of_their_sizes() -> None:
    local = fl.local_computation(ROWS, LABELS)(a_result)
    assert str(local.type_signature.result) == "<float32[?,3],int64[?]>"
    summed = fl.local_computation(ROWS, LABELS)(rows)
    assert str(summed.type_signature.result) == "<float32[3],float32[3],float32[3,3]>"


def decides(x: Any) -> Any:
    chosen = x[x > 0]
    return chosen.sum() if len(chosen) > 2 else x.sum()


def goes_over(x: Any) -> Any:
    return sum(element * 2 for element in x[x > 0])


def splits(x: Any) -> Any:
    return x[x > 0].split(2)[0]


def squeezes(x: Any) -> Any:
    return x[x > 0].squeeze()


def repeats(x: Any) -> Any:
    return torch.stack([x.sum()] * len(x[x > 0]))


@pytest.mark.parametrize("function", [decides, goes_over, splits, squeezes, repeats])
def test_a_program_that_numbers_of_elements_would_change_is_refused(
    function: Callable[..., Any],
) -> None:
    with pytest.raises(ProgramError) as raised:
        fl.local_computation(ROWS)(function)
    assert f"in {function.__name__}" in str(raised.value)


def test_masks_of_other_sizes_are_refused_where_they_are_used() -> None:
    @fl.local_computation(fl.TensorType(f32, [4]), fl.TensorType(np.bool_, [4]))
    def fine(x: Any, mask: Any) -> Any:
        return x[mask].sum()

    assert fine(np.ones(4, f32), np.array([True, False, True, True])) == 3

    with pytest.raises(IndexError, match="shape of the mask"):

        @fl.local_computation(fl.TensorType(f32, [4]), fl.TensorType(np.bool_, [3]))
        def wrong(x: Any, mask: Any) -> Any:
            return x[mask].sum()


def test_sizes_that_differ_are_an_error_when_the_program_runs() -> None:
    @fl.local_computation(ROWS)
    def product(x: Any) -> Any:
        return (x[x > 0] * x[x < 0]).sum()

    assert product(np.array([[1, -2, 0]], f32)) == -2
    with pytest.raises(RuntimeError, match="must match the size"):
        product(np.array([[1, 2, -1], [3, -2, 0]], f32))


def test_pytorch_code_keeps_pytorchs_meaning() -> None:
    """With NumPy's, deviations and medians would be others."""

    def spread(x: Any) -> Any:
        chosen = x[x > -9]
        return chosen.std(), chosen.median()

    x = np.array([[1, 2, 3], [4, 5, 6.5]], f32)
    local = fl.local_computation(ROWS, arrays="torch")(spread)
    same(local(x), spread(torch.tensor(x)))
