"""`torch._check*` of tensors are nodes; `with torch.device("cpu")` costs a replay nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from differential.support import api
from torch import Tensor

import stator


def outcome(fn: Callable[..., Any], x: Tensor) -> tuple[Any, Tensor, int, str]:
    own = x.clone()
    try:
        result: Any = fn(own)
    except Exception as error:
        result = (type(error), str(error))
    depth = torch._C._len_torch_function_stack()
    return result, own, depth, str(torch.get_default_device())


def same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor):
        return isinstance(right, Tensor) and torch.equal(left, right)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def check(x: Tensor) -> Tensor:
    torch._check_tensor_all(x > 0)
    return x + 1


def check_with(x: Tensor) -> Tensor:
    torch._check_tensor_all_with(ValueError, x > 0, lambda: f"not positive: {x.min():.1f}")
    return x + 1


def by_name(x: Tensor) -> Tensor:
    torch._check_tensor_all(message=lambda: "no", cond=x > 0)
    return x * 2


def behind_a_write(x: Tensor) -> Tensor:
    x.mul_(2)
    torch._check_tensor_all(x > 0, lambda: "no")
    return x.add_(1)


def handled(x: Tensor) -> Any:
    try:
        torch._check_tensor_all_with(IndexError, x > 0, lambda: "no")
    except IndexError as error:
        return x - 1, str(error)
    return x, ""


def checks_of_numbers(x: Tensor) -> Tensor:
    torch._check(x.shape[0] == 3)
    torch._check_value(x.dim() == 1, lambda: "one dimension")
    torch._check_with(TypeError, x.dtype == torch.float32, lambda: "floats")
    return x + 1


CHECKS = [check, check_with, by_name, behind_a_write, handled, checks_of_numbers]
GOOD, BAD = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, -2.0, 3.0])


@pytest.mark.parametrize("fn", CHECKS, ids=lambda fn: fn.__name__)
def test_checks_are_part_of_the_graph(fn: Callable[..., Any]) -> None:
    compiled = api.compile(fn, fullgraph=True)
    for x in (GOOD, GOOD, BAD, GOOD, BAD, GOOD + 1):
        assert same(outcome(compiled, x), outcome(fn, x))
    if not api.PLAIN:
        assert api.hits(compiled) >= 3 and api.traces(compiled) == 1


@pytest.mark.parametrize("fn", CHECKS, ids=lambda fn: fn.__name__)
def test_checks_that_fail_first(fn: Callable[..., Any]) -> None:
    compiled = api.compile(fn)
    for x in (BAD, GOOD, GOOD, BAD, torch.ones(2), torch.ones(3, 1), GOOD.double(), GOOD):
        assert same(outcome(compiled, x), outcome(fn, x))


def wrong(x: Tensor) -> Any:
    torch._check_tensor_all(x)
    return x


def no_tensor(x: Tensor) -> Any:
    torch._check_tensor_all(x.shape[0] > 1)
    return x


@pytest.mark.parametrize("fn", [wrong, no_tensor], ids=lambda fn: fn.__name__)
def test_wrong_conditions(fn: Callable[..., Any]) -> None:
    compiled = api.compile(fn)
    for _ in range(3):
        assert same(outcome(compiled, GOOD), outcome(fn, GOOD))


@pytest.mark.parametrize("fn", [check, checks_of_numbers], ids=lambda fn: fn.__name__)
def test_checks_for_another_backend(fn: Callable[..., Any]) -> None:
    compiled = api.compile(fn, backend="fx")
    for x in (GOOD, GOOD, BAD, GOOD):
        assert same(outcome(compiled, x), outcome(fn, x))


CPU = torch.device("cpu")


def made(x: Tensor) -> Tensor:
    with torch.device("cpu"):
        return x + torch.arange(3) + torch.full((3,), 2.0)


def nested(x: Tensor) -> Tensor:
    with CPU as device:
        y = F.gelu(x) + torch.zeros(3, device=device)
        with torch.device("cpu"):
            y = y + F.softmax(torch.ones(3), 0)
        y = y + F.dropout(torch.ones(3), 0.0)
    return y * torch.ones(3)


def asked(x: Tensor) -> Any:
    with torch.device("cpu"):
        default = torch.get_default_device()
    return x, str(default)


class Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.attention = torch.nn.MultiheadAttention(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        with x.device:
            y = self.linear(x)[None]
            return y + self.attention(y, y, y)[0] * torch.linspace(0, 1, 3)


def raised(x: Tensor) -> Tensor:
    try:
        with torch.device("cpu"):
            y = x + torch.ones(3)
            if x.shape[0] != 3:
                raise ValueError("three")
            return y
    except ValueError:
        return x


def raised_by_an_operation(x: Tensor) -> Tensor:
    with torch.device("cpu"):
        torch._check_tensor_all(x > 0, lambda: "positive")
        return x + torch.ones(3)


@pytest.mark.parametrize(
    "fn",
    [made, nested, Module(), raised, raised_by_an_operation],
    ids=lambda fn: getattr(fn, "__name__", "Module"),
)
def test_the_cpu_is_where_tensors_are_made(fn: Callable[..., Any]) -> None:
    compiled = api.compile(fn, fullgraph=True)
    for x in (GOOD, GOOD, BAD, GOOD, BAD):
        assert same(outcome(compiled, x), outcome(fn, x))
    if not api.PLAIN:
        assert api.hits(compiled) >= 2


def broken(x: Tensor) -> Any:
    with torch.device("cpu"):
        x = x + torch.arange(3)
        depth = torch._C._len_torch_function_stack()
        stator.graph_break()
        x = x * torch.ones(3)
    return x, depth


def of_no_data(x: Tensor) -> Any:
    with torch.device("meta"):
        y = torch.arange(3)
    return x + y.shape[0], y.device.type, y.shape


def within_another(x: Tensor) -> Any:
    with torch.device("meta"), torch.device("cpu"):
        y = torch.arange(3)
    return x + y, y.device.type


@pytest.mark.parametrize(
    "fn", [broken, asked, of_no_data, within_another], ids=lambda fn: fn.__name__
)
def test_blocks_that_break(fn: Callable[..., Any]) -> None:
    compiled = api.compile(fn)
    for _ in range(5):
        assert same(outcome(compiled, GOOD), outcome(fn, GOOD))


def test_another_default_device_at_another_call() -> None:
    def fn(x: Tensor) -> Any:
        with torch.device("cpu"):
            y = torch.arange(3)
        return x + 1, y.device.type, torch.zeros(2).device.type

    compiled = api.compile(fn)
    for default in (None, None, "meta", None, "cpu", "meta", None):
        torch.set_default_device(default)
        try:
            assert same(outcome(compiled, GOOD), outcome(fn, GOOD))
        finally:
            torch.set_default_device(None)


def test_the_question_whether_pytorch_exports(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.onnx._internal.exporter import _flags
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

    def fn(x: Tensor) -> Tensor:
        return x * 2 if torch.onnx.is_in_onnx_export() else x + 1

    compiled = api.compile(fn)
    for exports, flag in ((0, 0), (0, 0), (1, 0), (1, 0), (0, 0), (0, 1), (0, 1), (1, 1), (0, 0)):
        monkeypatch.setattr(GLOBALS, "in_onnx_export", bool(exports))
        monkeypatch.setattr(_flags, "_is_onnx_exporting", bool(flag))
        assert torch.equal(compiled(GOOD), fn(GOOD))
