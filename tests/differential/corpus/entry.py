"""What can be compiled: functions of every kind, methods, partials, objects, modules."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..support import api
from ..support.case import Corpus, call, one, t

case = Corpus()


class Scaler:
    """Methods of every kind."""

    factor = 3

    def __init__(self, k: float) -> None:
        self.k = k

    def method(self, x: Tensor) -> Tensor:
        return x * self.k

    @classmethod
    def class_method(cls, x: Tensor) -> Tensor:
        return x * cls.factor

    @staticmethod
    def static_method(x: Tensor) -> Tensor:
        return x + 1

    def __call__(self, x: Tensor) -> Tensor:
        return x - self.k


SCALER = Scaler(2.0)
TANH = nn.Sequential(nn.Linear(4, 4), nn.Tanh())


@case(one, build=True, change=lambda: setattr(SCALER, "k", 5.0))
def bound_method() -> Any:
    return SCALER.method


@case(lambda: (Scaler(2.0), t(3)), build=True, again=lambda: (Scaler(3.0), t(3)))
def unbound_method() -> Any:
    return Scaler.method


@case(one, build=True, change=lambda: setattr(Scaler, "factor", 4))
def class_method() -> Any:
    return Scaler.class_method


@case(one, build=True)
def static_method() -> Any:
    return Scaler.static_method


@case(one, build=True, change=lambda: setattr(SCALER, "k", -1.0))
def callable_object() -> Any:
    return SCALER


@case(one, build=True)
def a_lambda() -> Any:
    return lambda x: x * 2 + 1


@case(one, build=True)
def a_partial() -> Any:
    return functools.partial(lambda x, n, *, k: x * n + k, n=3, k=4)


@case(lambda: (3, t(3)), build=True)
def partial_of_method() -> Any:
    return functools.partial(lambda self, n, x: x * n + self.k, SCALER)


@case(one, build=True)
def wrapped_function() -> Any:
    @functools.wraps(torch.relu)
    def inner(x: Tensor) -> Tensor:
        return torch.relu(x)

    return inner


@case(lambda: (t(3, 4),), build=True, grad=True)
def a_module() -> Any:
    return TANH


class Kwargs(nn.Module):
    """A module with keyword arguments."""

    def forward(self, x: Tensor, *, scale: float = 1.0, **rest: Any) -> Tensor:
        return x * scale + len(rest)


@case(lambda: call(t(3), scale=2.0, z=1), build=True, again=lambda: call(t(3)))
def module_with_keywords() -> Any:
    return Kwargs()


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())


@case(lambda: (t(3, 4),), build=True)
def forward_of_module() -> Any:
    return _net().forward


@case(one, expect="any")
def generator_function(x: Tensor) -> Iterator[Tensor]:
    yield x
    yield x + 1


async def _coroutine(x: Tensor) -> Tensor:
    await asyncio.sleep(0)
    return x * 2


@case(one, build=True, expect="any")
def inside_event_loop() -> Any:
    def run(x: Tensor) -> Tensor:
        return asyncio.run(_coroutine(x))

    return run


@case(one, build=True, expect="any")
def builtin_function() -> Any:
    return torch.relu


@case(lambda: ((t(3), t(3)), {"k": t(3)}))
def structured_arguments(pair: tuple[Tensor, Tensor], d: dict[str, Tensor]) -> Tensor:
    return pair[0] * pair[1] + d["k"]


@case(lambda: ())
def no_arguments() -> Tensor:
    return torch.ones(3) * 2


@case(lambda: (2, 3))
def no_tensors(a: int, b: int) -> int:
    return a * b


@case(one, build=True)
def compiled_inside_compiled() -> Callable[[Tensor], Tensor]:
    inner = api.compile(lambda v: v * 3)

    def outer(x: Tensor) -> Tensor:
        return inner(x) + 1

    return outer


@case(one, build=True)
def compiled_twice() -> Callable[[Tensor], Tensor]:
    return api.compile(lambda v: v.sin() + 2)  # type: ignore[no-any-return]


@case(one, build=True)
def backend_callable() -> Callable[[Tensor], Tensor]:
    return lambda x: x.cos() * 2


@case(one, options={"recompile_limit": 1}, again=lambda: (t(5, 4),))
def recompile_limit_of_one(x: Tensor) -> Tensor:
    return x * x.shape[0]
