"""Decisions inside inference mode: a replay that leaves the trace there leaves with the mode as it is."""

import pytest
import torch
from torch import Tensor, nn

import stator
from stator import stats

torch.manual_seed(0)
LINEAR = nn.Linear(3, 3)


@torch.inference_mode()
def sampled(x: Tensor) -> object:
    tokens = []
    for _ in range(6):
        x = LINEAR(x) + x
        if x.sum() > 20:
            break
        tokens.append(x.argmax().item())
    return tokens, x


def block(x: Tensor) -> object:
    with torch.inference_mode():
        y = LINEAR(x)
        if y.sum() > 3:
            y = y + torch.is_inference_mode_enabled()
        z = y * 2
    return y, z, x * 2, torch.is_inference_mode_enabled()


def interrupted(x: Tensor) -> object:
    with torch.inference_mode():
        y = LINEAR(x)
        with torch.inference_mode(False):
            w = x * 3
            if w.sum() > 6:
                w = w + torch.is_inference_mode_enabled()
        if y.sum() > 2:
            y = y - torch.is_inference_mode_enabled()
    return y, w


@torch.inference_mode()
def helper(x: Tensor) -> Tensor:
    return x + 1 if x.max() > 2 else x - 1


def inner(x: Tensor) -> object:
    y = helper(x)
    return y, helper(y * 2).clone(), x * torch.is_inference_mode_enabled()


def raised(x: Tensor) -> object:
    with torch.inference_mode():
        if x.sum() > 5:
            raise ValueError(f"{x.sum().item():.1f}, {torch.is_inference_mode_enabled()}")
        return LINEAR(x)


def caught(x: Tensor) -> object:
    try:
        with torch.inference_mode():
            y = LINEAR(x)
            if y.sum() > 4:
                raise AssertionError(f"too large in {torch.is_inference_mode_enabled()}")
    except AssertionError as error:
        return str(error), torch.is_inference_mode_enabled(), x * 2
    return y


def failing(x: Tensor) -> object:
    """An operation that raises for some data, behind a write."""
    x.add_(1)
    with torch.inference_mode():
        y = torch.zeros(4)
        y[x.long().clamp(-9, 9)] = 1.0
    return y


def numbers(x: Tensor) -> object:
    with torch.inference_mode():
        n = x.abs().sum().item()
        rate = 1 / n if n > 1 else n
        return LINEAR(x) * rate


def while_enabled(x: Tensor) -> object:
    """The trace begins in the mode."""
    return LINEAR(x) if x.sum() > 3 else x - 1


def behind_break(x: Tensor) -> object:
    with torch.inference_mode():
        y = LINEAR(x)
        stator.graph_break()
        y = LINEAR(y)
    return y, x * 2, torch.is_inference_mode_enabled(), torch.is_grad_enabled()


def interrupted_behind_break(x: Tensor) -> object:
    with torch.inference_mode():
        y = LINEAR(x)
        with torch.inference_mode(False):
            w = x * 3
            stator.graph_break()
            w = w + torch.is_inference_mode_enabled()
        if y.sum() > 2:
            y = y - torch.is_inference_mode_enabled()
        z = LINEAR(x)
    return y, w, z, torch.is_grad_enabled()


@torch.inference_mode()
def broken(x: Tensor) -> Tensor:
    y = LINEAR(x)
    stator.graph_break()
    return y * 2 if y.sum() > 2 else y - 1


def outer_of_broken(x: Tensor) -> object:
    y = broken(x)
    return y, LINEAR(x), torch.is_grad_enabled()


def raised_behind_break(x: Tensor) -> object:
    try:
        with torch.inference_mode():
            stator.graph_break()
            y = LINEAR(x)
            if y.sum() > 4:
                raise AssertionError(f"too large in {torch.is_inference_mode_enabled()}")
    except AssertionError as error:
        return str(error), torch.is_inference_mode_enabled(), x * 2
    return y, LINEAR(x)


BEHIND_BREAKS = [behind_break, interrupted_behind_break, outer_of_broken, raised_behind_break]
FUNCTIONS = [sampled, block, interrupted, inner, raised, caught, failing, numbers, while_enabled]
FUNCTIONS += BEHIND_BREAKS
INPUTS = [
    [1.0, 1, 1],
    [3.0, 2, 1],
    [-1.0, 0, 1],
    [9.0, 9, 2],
    [0.0, 0, 0],
    [2.0, 2, 2],
    [float("nan"), 1, 1],
    [1.0, 1, 1],
]


def outcome(function, x: Tensor) -> object:
    try:
        found = function(x)
    except Exception as error:
        found = type(error), str(error), error.__context__
    return described(found), repr(x.tolist()), torch.is_inference_mode_enabled()


def described(found: object) -> object:
    if isinstance(found, Tensor):
        return [repr(value) for value in found.tolist()], found.is_inference(), found.requires_grad
    if isinstance(found, tuple | list):
        return [described(part) for part in found]
    return repr(found)


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_decisions(function, enabled):
    compiled = stator.compile(function, recompile_limit=32)
    with torch.inference_mode(enabled):
        for _ in range(3):
            for values in INPUTS:
                found, plain = (outcome(it, torch.tensor(values)) for it in (compiled, function))
                assert found == plain
    assert stats(compiled).native == 0, stats(compiled).reason


@pytest.mark.parametrize("function", [sampled, block, interrupted, inner, numbers])
def test_no_break(function):
    compiled = stator.compile(function, fullgraph=True)
    for step in range(5):
        compiled(torch.full((3,), 0.5) + step / 1000)
    assert (stats(compiled).traces, stats(compiled).hits) == (1, 4)


@pytest.mark.parametrize("function", BEHIND_BREAKS, ids=lambda function: function.__name__)
def test_modes_around_change(function):
    """What is on behind the block is what was on before it: a replay in another mode leaves the trace there."""
    compiled = stator.compile(function, recompile_limit=32)
    around = [
        lambda: torch.inference_mode(False),
        torch.inference_mode,
        torch.no_grad,
        torch.enable_grad,
        lambda: torch.autograd.grad_mode.set_multithreading_enabled(False),
    ]
    for _ in range(3):
        for mode in around:
            for values in INPUTS[:4]:
                with mode():
                    found, plain = (
                        outcome(it, torch.tensor(values)) for it in (compiled, function)
                    )
                assert found == plain
                assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
    assert stats(compiled).native == 0, stats(compiled).reason


@pytest.mark.parametrize(
    ("function", "breaks"), [(behind_break, 1), (outer_of_broken, 1), (block, 0), (sampled, 0)]
)
def test_behind_a_block_the_trace_goes_on(function, breaks):
    """Its end is a part of the trace, also behind a break or a way out within it."""
    compiled = stator.compile(function)
    for values in 3 * INPUTS:
        compiled(torch.tensor(values))
    assert (stats(compiled).breaks, stats(compiled).native) == (breaks, 0)
    assert stats(compiled).hits >= 2 * len(INPUTS)
