"""Programs compared with plain Python, at sizes that were and weren't there when they were traced."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from programs.common import F32, I64, check, random, spec
from torch import nn

from stator.programs import TensorProgram, TensorSpec

WEIGHT = torch.linspace(-1, 1, 12).reshape(4, 3)
SCALE = 2.5
MODEL = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.LayerNorm(5), nn.Linear(5, 3))


class Point(NamedTuple):
    x: Any
    y: Any


def product(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ WEIGHT) * SCALE + 1


def module(x: torch.Tensor) -> torch.Tensor:
    return MODEL(x)


def sizes(x: torch.Tensor) -> Any:
    n = x.shape[0]
    return x.sum() / n, n * 2 + 1, x.reshape(n * 2, 2), x.new_zeros(n, 7)


def views(x: torch.Tensor) -> Any:
    return x.T, x[:, 1:3], x.reshape(-1), x[0], x.t().contiguous()


def created(x: torch.Tensor) -> Any:
    return torch.arange(x.shape[0]), torch.ones(2, 3), torch.zeros_like(x), torch.eye(3)


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.add_(1)
    y[0] = 5
    y[:, 1] *= 2
    y += x
    return y


def numbers(x: torch.Tensor) -> Any:
    return x.sum(), 3, 2.5, True, math.pi, x.shape[0], x.dim()


def structures(x: torch.Tensor) -> Any:
    return {
        "a": [x, (x + 1,)],
        "b": collections.OrderedDict(z=x * 2, y=x * 3),
        "p": Point(x - 1, {"n": x.sum()}),
        "e": [],
    }


def passed_on(x: torch.Tensor) -> Any:
    return x, x, WEIGHT, x.view(-1)


def masked(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, x.new_full((), -7.0)).masked_fill(x > 1, float("inf"))


def loops(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(())
    for i in range(3):
        for part in (x, x + i):
            total = total + part.sum() * i
    return total


def split(x: torch.Tensor) -> Any:
    return x.chunk(2, dim=1), torch.cat([x, x]), torch.stack([x, -x])


def helper(x: torch.Tensor) -> torch.Tensor:
    return sum(torch.unbind(x, 1))


def with_closure() -> Callable[..., Any]:
    inner = torch.full((4,), 3.0)

    def closure(x: torch.Tensor) -> torch.Tensor:
        return x + inner

    return closure


def softmax(x: torch.Tensor) -> torch.Tensor:
    return F.log_softmax(x, dim=-1).exp().mean(0)


def no_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return x * 2


def convolved(x: torch.Tensor) -> torch.Tensor:
    images = x.reshape(-1, 1, 2, 2)
    return F.conv2d(images, torch.ones(2, 1, 2, 2)).flatten(1)


def half(x: torch.Tensor) -> Any:
    return x.to(torch.float16), x.double(), x.bool(), x.to(torch.int32)


def reduced(x: torch.Tensor) -> Any:
    return x.max(dim=1), x.argmax(1), x.sort(dim=1).values, x.std(1), x.mean(0, keepdim=True)


FUNCTIONS = [
    product, module, sizes, views, created, in_place, numbers, structures, passed_on, masked, loops,
    split, helper, softmax, no_grad, convolved, half, reduced, with_closure(),
]  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("rows", [None, 3])
def test_result(fn: Callable[..., Any], rows: int | None) -> None:
    program = TensorProgram.trace(fn, (spec(rows, 4),))
    for size in (3, 1, 8):
        if rows is None or rows == size:
            check(program, fn, *random(spec(rows, 4), size=size))


def test_no_rows() -> None:
    for fn in (product, module, in_place, masked, softmax):
        program = TensorProgram.trace(fn, (spec(None, 4),))
        if fn is in_place:
            with pytest.raises(ValueError, match=r"0 < x\.size\(0\)"):
                program(torch.ones(0, 4))
            continue
        check(program, fn, torch.ones(0, 4))


def test_several_unknown_sizes() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
        return a @ b, c.sum(), torch.cat([c, c])

    specs = (spec(None, None), spec(None, None), spec(None))
    program = TensorProgram.trace(fn, specs)
    assert [ty.shape for ty in program.outputs] == [(None, None), (), (None,)]
    check(program, fn, torch.randn(2, 3), torch.randn(3, 5), torch.randn(7))
    check(program, fn, torch.randn(1, 1), torch.randn(1, 1), torch.randn(0))
    with pytest.raises(ValueError, match=r"a\.size\(1\)"):
        program(torch.randn(2, 3), torch.randn(4, 5), torch.randn(7))


def test_sizes_that_decide() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 1 else x

    program = TensorProgram.trace(fn, (spec(None),))
    check(program, fn, torch.ones(2))
    with pytest.raises(ValueError, match=r"x\.size\(0\) is 1"):
        program(torch.ones(1))


def test_scalars_and_types() -> None:
    def fn(x: torch.Tensor, n: torch.Tensor, b: torch.Tensor) -> Any:
        return x * n, x.to(torch.float64) + 1, torch.where(b, x, -x), n + 1

    program = TensorProgram.trace(fn, (torch.float32, I64, TensorSpec(torch.bool)))
    check(program, fn, torch.tensor(2.0), torch.tensor(3), torch.tensor(False))


def test_arguments_in_containers() -> None:
    def fn(weights: Any, *data: Any, scale: Any = None) -> Any:
        out = weights["w"] * scale
        for part in data:
            out = out + part.x - part.y[0]
        return out

    point = Point(spec(2), [spec(2)])
    program = TensorProgram.trace(
        fn, (collections.OrderedDict(w=spec(2)), point, point), {"scale": F32}
    )
    given = [torch.full((2,), float(i)) for i in range(5)]
    w, a, b, c, d = given
    scale = torch.tensor(3.0)
    expected = fn({"w": w}, Point(a, [b]), Point(c, [d]), scale=scale)
    assert torch.equal(program(*given, scale)[0], expected)
    assert program.takes.kind == "arguments"
    assert [name for name, _ in program.takes.fields] == [None, None, None, "scale"]
    assert program.gives is None


def test_methods_and_callable_objects() -> None:
    class Scaler:
        def __init__(self) -> None:
            self.by = torch.tensor(3.0)

        def scaled(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.by

        __call__ = scaled

    scaler = Scaler()
    for fn in (scaler.scaled, scaler, MODEL, nn.Linear(4, 4)):
        program = TensorProgram.trace(fn, (spec(None, 4),))
        check(program, fn, torch.randn(2, 4))


def test_random_operations_run_anew() -> None:
    def fn(x: torch.Tensor) -> Any:
        return x + torch.rand(3), F.dropout(x, 0.5, training=True)

    state = torch.get_rng_state()
    program = TensorProgram.trace(fn, (spec(3),))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    first = program(torch.ones(3))
    torch.manual_seed(1)
    expected = fn(torch.ones(3))
    assert all(torch.equal(a, b) for a, b in zip(first, expected, strict=True))


def test_values_at_trace_time() -> None:
    weight = torch.ones(2)
    settings = {"scale": 2}

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * weight * settings["scale"]

    program = TensorProgram.trace(fn, (spec(2),))
    weight.fill_(100)
    settings["scale"] = 100
    assert program(torch.ones(2))[0].tolist() == [2, 2]
    (constant,) = program.constants
    constant.zero_()
    assert program(torch.ones(2))[0].tolist() == [2, 2]


def test_outputs_are_the_callers_own() -> None:
    program = TensorProgram.trace(passed_on, (spec(None, 4),))
    x = torch.ones(2, 4)
    for output in program(x):
        output.zero_()
    assert x.sum() == 8
    check(program, passed_on, x)


def test_inputs_of_any_kind() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1) * 2

    program = TensorProgram.trace(fn, (spec(None, 4),))
    leaf = torch.randn(3, 4, requires_grad=True)
    with torch.inference_mode():
        inference = torch.randn(3, 4)
    for x in (torch.randn(4, 3).T, leaf, leaf * 2, inference, nn.Parameter(leaf.detach())):
        assert torch.equal(program(x)[0], fn(x.detach()))
    assert leaf.grad is None
    with torch.no_grad():
        check(program, fn, leaf.detach())
    with torch.inference_mode():
        assert torch.equal(program(inference)[0], fn(inference))
