"""`warnings.catch_warnings()` within a trace: nodes say which warnings are shown, at their places."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from differential.support import api
from torch import Tensor

import stator

from .results import agree, copied, runs_whole


def noisy(x: Tensor) -> Tensor:
    """PyTorch warns of a dimension that wasn't said."""
    return F.softmax(x)


def quiet(x: Tensor, i: int) -> Any:
    first = noisy(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = noisy(x)
    return x + first


def by_message(x: Tensor, i: int) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Implicit", category=UserWarning)
        x = noisy(x)
    return noisy(x)


def at_once(x: Tensor, i: int) -> Any:
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return noisy(x)


def nested(x: Tensor, i: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with warnings.catch_warnings():
            warnings.resetwarnings()
            first = noisy(x)
        return first + noisy(x)


def decided(x: Tensor, i: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = noisy(x)
        if x[0, 0] > 0.3:
            return noisy(x) + 1
        x = noisy(x) * 2
    return noisy(x)


def indexed(x: Tensor, i: int) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = noisy(x)[torch.tensor(i)]
    except IndexError as error:
        return str(error), len(warnings.filters)
    return noisy(x)


def repeated(x: Tensor, i: int) -> Any:
    for turn in range(3):
        with warnings.catch_warnings():
            if turn == 1:
                warnings.simplefilter("ignore")
            x = noisy(x)
    return x


WHOLE = [quiet, by_message, at_once, nested, decided, repeated]


def broken(x: Tensor, i: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = noisy(x)
        stator.graph_break()
        x = noisy(x)
    return noisy(x)


def kept(x: Tensor, i: int) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = noisy(x)
    return x, [str(one.message) for one in caught]


def given(x: Tensor, i: int) -> Any:
    warnings.warn("first", stacklevel=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("within", stacklevel=1)
    warnings.warn("first", stacklevel=1)
    return x * 2


def looked_at(x: Tensor, i: int) -> Any:
    before = len(warnings.filters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        within = warnings.filters[0][0]
    return x * (len(warnings.filters) - before + 1), within


def raised(x: Tensor, i: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error" if i == 1 else "ignore")
        return noisy(x)


def outside(x: Tensor, i: int) -> Any:
    if i:
        warnings.simplefilter("ignore")
    return noisy(x)


class Quiet(warnings.catch_warnings):  # type: ignore[type-arg]
    def __enter__(self) -> Any:
        result = super().__enter__()
        warnings.simplefilter("ignore")
        return result


def of_subclass(x: Tensor, i: int) -> Any:
    with Quiet():
        x = noisy(x)
    return noisy(x)


FUNCTIONS = [*WHOLE, indexed, broken, kept, given, looked_at, raised, outside, of_subclass]


def run(fn: Callable[[Tensor, int], Any]) -> list[Any]:
    found = []
    for call, i in enumerate([0, 0, 1, 3, 0, 9, 1, 0]):
        x = torch.randn(4, 4, generator=torch.Generator().manual_seed(call))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default" if call == 4 else "always")
            before = len(warnings.filters)
            result: Any = None
            try:
                result = copied(fn(x, i))
            except UserWarning as error:
                result = str(error)
            said = [(str(one.message), one.lineno, one.filename) for one in caught]
            found.append((result, said, len(warnings.filters) - before))
    return found


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_calls(fn: Callable[[Tensor, int], Any]) -> None:
    api.reset()
    expected = run(fn)
    compiled = api.compile(fn)
    agree(expected, run(compiled))
    if fn in WHOLE:
        runs_whole(compiled, 3)
