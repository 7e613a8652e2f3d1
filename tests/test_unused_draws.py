"""Random numbers that nobody uses: code of other backends leaves the generator where plain Python does.

AOTAutograd and Inductor leave out operations whose results nobody takes, those that draw too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator

WEIGHT = torch.linspace(0.1, 1, 6)


def made(x: Tensor) -> Tensor:
    torch.rand(2)
    torch.randn_like(x)
    torch.randint(3, (2,))
    torch.randperm(5)
    return x + 1


def of_weights(x: Tensor) -> Tensor:
    torch.bernoulli(WEIGHT)
    torch.multinomial(WEIGHT, 2)
    torch.normal(WEIGHT, 1.0)
    return x * 2


def dropped(x: Tensor) -> Tensor:
    F.dropout(x, 0.5)
    F.alpha_dropout(x, 0.5) * 3
    return x.sin()


def filled(x: Tensor) -> Tensor:
    noise = torch.empty(3)
    noise[1:].uniform_()
    noise.normal_()
    return x.cos()


def used_in_part(x: Tensor) -> Tensor:
    noise = torch.rand(3)
    (torch.rand(3) + noise).exp()
    scaled = x.clone()
    scaled[:2].normal_()
    return scaled * noise.sum()


def written(x: Tensor) -> Tensor:
    x.data[1:].uniform_()
    return x * 2


def in_parts(x: Tensor) -> Tensor:
    torch.rand(2)
    y = x + 1
    stator.graph_break()
    torch.rand(3)
    return y * 2


def decided(x: Tensor) -> Tensor:
    torch.rand(2)
    if x.sum() > 100:
        return x
    torch.rand(1)
    return x - 1


PROGRAMS = [made, of_weights, dropped, filled, used_in_part, written, in_parts, decided]


def play(program: Callable[[Tensor], Tensor], asks: bool) -> list[Any]:
    torch.manual_seed(4)
    played: list[Any] = []
    for _ in range(4):
        x = torch.ones(6)
        result = program(x.requires_grad_() if asks else x)
        if asks:
            result.sum().backward()
        played.append((result.tolist(), x.tolist(), None if x.grad is None else x.grad.tolist()))
        played.append(torch.rand(1).item())
    return played


@pytest.mark.parametrize("asks", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_generator_is_where_plain_python_leaves_it(
    program: Callable[[Tensor], Tensor], backend: str, asks: bool
) -> None:
    if asks and program is written:
        pytest.skip("it writes to the input's data, of which nothing is asked")
    compiled = stator.compile(program, backend=backend)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(2):
            assert play(compiled, asks) == play(program, asks)
    assert stator.stats(compiled).native == 0, stator.stats(compiled).reason


def test_what_is_used_is_no_further_result() -> None:
    counts: list[int] = []

    def counting(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        counts.append(len(module.graph.output_node().args[0]))  # type: ignore[arg-type]
        return module

    def used(x: Tensor) -> Tensor:
        return F.dropout(x, 0.5) + torch.rand(6)

    compiled = stator.compile(used, backend=counting)
    for _ in range(3):
        compiled(torch.ones(6))
    assert counts == [1]
