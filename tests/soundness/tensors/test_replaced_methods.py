"""Special methods and metadata of tensors are looked up by nobody: where one isn't PyTorch's, calls run natively."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from ..probe import Probe

BEFORE = {name: vars(Tensor)[name] for name in dir(Tensor) if name in vars(Tensor)}


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    yield
    for name in set(vars(Tensor)) - set(BEFORE):
        delattr(Tensor, name)
    for name, value in BEFORE.items():
        if vars(Tensor)[name] is not value:
            setattr(Tensor, name, value)


def in_place(operator: str) -> Callable[[Tensor], Any]:
    found: dict[str, Any] = {}
    exec(f"def run(x):\n    y = x.clone()\n    y {operator}= 2\n    return y + 1", found)
    return found["run"]  # type: ignore[no-any-return]


PROGRAMS: dict[str, tuple[Callable[[Tensor], Any], Any]] = {
    "__add__": (lambda x: (x + 1) * 2, lambda self, other: self - 7),
    "__rsub__": (lambda x: (1 - x) * 2, lambda self, other: self - 7),
    "__lt__": (lambda x: (x < 2).sum(), lambda self, other: self.sub(7)),
    "__neg__": (lambda x: -x + 1, lambda self: self.sub(7)),
    "__bool__": (lambda x: x + 1 if x.sum() else x + 2, lambda self: False),
    "__len__": (lambda x: x * len(x), lambda self: 5),
    "__iter__": (lambda x: [row + 1 for row in x], lambda self: iter([self.sub(7)])),
    "__float__": (lambda x: x + float(x.sum()), lambda self: 5.0),
    "__int__": (lambda x: x + int(x.sum()), lambda self: 5),
    "__format__": (lambda x: (f"{x.sum()}", x + 1), lambda self, spec: "text"),
    "__getitem__": (lambda x: x[0] + 1, lambda self, place: self.sub(7)),
    "shape": (lambda x: x * x.shape[0], property(lambda self: (9,))),
    "requires_grad": (lambda x: (x.requires_grad, x + 1), property(lambda self: "yes")),
    "dtype": (lambda x: (x.dtype is torch.float32, x + 1), property(lambda self: None)),
    **{
        f"__i{name}__": (in_place(operator), lambda self, other: self.sub(7))
        for name, operator in {
            "add": "+",
            "sub": "-",
            "mul": "*",
            "truediv": "/",
            "floordiv": "//",
            "mod": "%",
            "pow": "**",
        }.items()
    },
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_method_replaced(name: str) -> None:
    program, other = PROGRAMS[name]
    probe = Probe(program)
    x = torch.arange(1.0, 5).view(2, 2)
    probe.right(x)
    probe.steady(x)
    setattr(Tensor, name, other)
    probe.changed(x)
    probe.changed(x + 1)
    if name in BEFORE:
        setattr(Tensor, name, BEFORE[name])
    else:
        delattr(Tensor, name)
    probe.right(x)
    probe.steady(x)


@pytest.mark.parametrize("name", PROGRAMS)
def test_method_replaced_before(name: str) -> None:
    program, other = PROGRAMS[name]
    setattr(Tensor, name, other)
    probe = Probe(program)
    x = torch.arange(1.0, 5).view(2, 2)
    for _ in range(3):
        probe.right(x)
    if not api.PLAIN:
        assert "torch.Tensor's replaced methods" in (api.reason(probe.compiled) or "")


def test_another_attribute_of_tensors_changes_nothing() -> None:
    probe = Probe(lambda x: x + 1)
    x = torch.ones(3)
    probe.right(x)
    probe.steady(x)
    Tensor.describe = lambda self: "a tensor"  # type: ignore[attr-defined]
    probe.steady(x)
    del Tensor.describe  # type: ignore[attr-defined]
    probe.steady(x)


def test_another_representation_is_no_obstacle() -> None:
    probe = Probe(lambda x: x + 1)
    x = torch.ones(3)
    Tensor.__repr__ = lambda self, **options: "a tensor"  # type: ignore[method-assign]
    probe.right(x)
    probe.steady(x)
