"""`__get__` of functions: methods that a program binds by itself, as PyTorch's schedulers do with an optimizer's `step`."""

from __future__ import annotations

from typing import Any

import torch
from differential.support import api
from torch import Tensor


class Owner:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def scale(self, x: Tensor) -> Tensor:
        return x * self.factor


def test_bound_by_hand() -> None:
    owner = Owner(2.0)

    def step(x: Tensor, function: Any) -> tuple[Any, ...]:
        method = function.__get__(owner, Owner)
        again = function.__get__(owner)
        alone = function.__get__(None, Owner)
        return method(x), again(x), alone(owner, x), alone is function, method == again, method

    compiled = api.compile(step, backend="eager")
    x = torch.arange(3.0)

    def other(self: Owner, x: Tensor) -> Tensor:
        return x + self.factor

    def check(function: Any) -> None:
        *plain, method = step(x, function)
        *found, bound = compiled(x, function)
        assert all(
            torch.equal(left, right) if isinstance(left, Tensor) else left == right
            for left, right in zip(plain, found, strict=True)
        )
        assert bound.__self__ is owner and bound.__func__ is function and bound == method

    for _ in range(3):
        check(Owner.scale)
    owner.factor = 3.0
    check(Owner.scale)
    for _ in range(2):
        check(other)
    if not api.PLAIN:
        assert api.breaks(compiled) == 0, api.reason(compiled)
