"""What a graph computes of floats alone is plain Python's to the last bit, whatever compiles the graph."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator._fx import symbolic


def added_from_an_end(x: Tensor, a: float, b: float, n: int) -> Any:
    return x * (a + b + 0.3 + a)


def lost_digits(x: Tensor, a: float, b: float, n: int) -> Any:
    total = a + b
    added = total - a
    return x + (a - (total - added) + (b - added))


def products(x: Tensor, a: float, b: float, n: int) -> Any:
    return x * (a * b * 0.1 * a), x / (a / b / 3.0)


def with_integers(x: Tensor, a: float, b: float, n: int) -> Any:
    return x * (a * n * 0.1 + n / 7), x + (n + a + n)


def functions(x: Tensor, a: float, b: float, n: int) -> Any:
    rate = 0.5 * (1 + math.cos(math.pi * a / 10))
    return x * (math.sqrt(a) * math.exp(-b / 1000) * rate) + abs(-a - b) ** 0.5


def corrections(x: Tensor, a: float, b: float, n: int) -> Any:
    first, second = 1 - 0.9**a, 1 - 0.999**a
    step = b / first
    return x.addcdiv(x, (x.abs().sqrt() / math.sqrt(second)).add(1e-8), value=-step)


def decided(x: Tensor, a: float, b: float, n: int) -> Any:
    scale = a + b - a
    return (x * scale if scale > 100 else x + scale), scale * 3, float(n) + a


def fixed(x: Tensor, a: float, b: float, n: int) -> Any:
    return torch.add(x, x, alpha=a + b + 0.3), x.clamp(min=a - b - 0.1)


CASES = [
    *(added_from_an_end, lost_digits, products, with_integers, functions, corrections),
    *(decided, fixed),
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp_partition"])
@pytest.mark.parametrize("fn", CASES)
def test_they_are_plain_ones(fn: Callable[..., Any], backend: str) -> None:
    compiled = stator.compile(fn, backend=backend, when="second_call")
    chosen = random.Random(3)
    with stator.config.patch(skip_unprofitable=False):
        for i in range(25):
            a, b = chosen.uniform(1, 10), chosen.uniform(1, 1000) / 3
            x = torch.linspace(-1, 1, 5 + i % 2, dtype=torch.float64)
            expected, found = fn(x, a, b, 3 + i % 4), compiled(x, a, b, 3 + i % 4)
            if isinstance(expected, Tensor):
                expected, found = (expected,), (found,)
            for one, other in zip(expected, found, strict=True):
                same = torch.equal(one, other) if isinstance(one, Tensor) else one == other
                assert same, f"call {i}"


def test_the_compiled_code_serves_other_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    compile_once = symbolic._compile

    def counted(*args: Any) -> Any:
        made.append(args[-1])
        return compile_once(*args)

    monkeypatch.setattr(symbolic, "_compile", counted)
    compiled = stator.compile(added_from_an_end, backend="aot_eager", when="second_call")
    x = torch.ones(3)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for i in range(12):
            compiled(x, 1.5 + i / 3, 7.1 - i / 5, 3)
    # The first trace has the first call's floats as constants.
    assert made[-1] is symbolic._Floats.SYMBOLS and len(made) <= 3
    assert "compiled" in stator.stats(compiled).tiers
