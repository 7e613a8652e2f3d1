"""What the operator table says that results' data follows from, on PyTorch's samples."""

from __future__ import annotations

import itertools
import operator
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from soundness.operator_database import Call, calls, copied, more_calls, operator_database
from stator import _stator

ROWS = [
    (name, origin, uniform) for names, origin, uniform in _stator._data_rows() for name in names
]
X, Y = torch.tensor([[1, 0], [3, 1]]), torch.tensor([[0, 1], [1, 1]])
# Operators of Python's, and what the database doesn't list under the name.
OWN: dict[str, list[Call]] = {
    "and": [Call("&", operator.and_, (X, Y), {})],
    "or": [Call("|", operator.or_, (X, Y), {})],
    "xor": [Call("^", operator.xor, (X, Y), {})],
    "not": [Call("~", operator.invert, (X,), {})],
    "invert": [Call("~", operator.invert, (X > 0,), {})],
    "getitem": [Call("[]", operator.getitem, (X, (slice(None), 0)), {})],
    "interpolate": [
        Call("interpolate", torch.nn.functional.interpolate, (torch.rand(1, 1, 4),), {"size": 2})
    ],
    "detach": [Call("detach", Tensor.detach, (X,), {})],
    "cpu": [Call("cpu", Tensor.cpu, (X,), {})],
    "type_as": [Call("type_as", Tensor.type_as, (X, torch.rand(1)), {})],
    "negative": [Call("negative", torch.negative, (X,), {})],
}


def bare(name: str) -> str:
    return name.rpartition(".")[2].removesuffix(" by name")


@pytest.fixture(scope="module")
def samples() -> dict[str, list[Call]]:
    """A few calls for each name."""
    wanted = {name for name, _, _ in ROWS}
    found: dict[str, list[Call]] = defaultdict(list, {key: list(own) for key, own in OWN.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in operator_database():
            names = [op.name, *(alias.name for alias in op.aliases)]
            for name in {bare(name).strip("_") for name in names} & wanted:
                if "masked." not in op.name and "_refs" not in op.name:
                    found[name] += [
                        call for call in itertools.islice(calls(op), 8) if call.name[-1] != "_"
                    ]
        for call in more_calls():
            if (name := bare(call.name).strip("_")) in wanted:
                found[name].append(call)
        for name in wanted - found.keys():
            if hasattr(torch._C._nn, name):
                given = (torch.rand(1, 1, *[4] * int(name[-2])), [2] * int(name[-2]))
                found[name].append(Call(name, getattr(torch._C._nn, name), given, {}))
    return found


def done(call: Call, change: Callable[[tuple[Any, ...]], tuple[Any, ...]] = lambda x: x) -> Any:
    with torch.no_grad():
        result = call.function(*change(copied(call.args)), **copied(call.kwargs))
    return tree_map(lambda it: it.clone() if isinstance(it, Tensor) else it, result)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor):
        return left.shape == right.shape and torch.equal(left.nan_to_num(), right.nan_to_num())
    if isinstance(left, (tuple, list)):
        return all(map(same, left, right))
    return bool(left == right)


def filled(number: int) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Another first argument, of the same sizes."""
    return lambda args: (torch.full_like(args[0], number), *args[1:])


def empty(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (args[0].new_empty(0),)


@pytest.mark.parametrize(("name", "origin", "uniform"), ROWS, ids=[name for name, _, _ in ROWS])
def test_data_follows(samples: dict[str, list[Call]], name: str, origin: str, uniform: str) -> None:
    assert samples[name], "no sample"
    if origin == "Numbers":
        of_numbers = [call for call in samples[name] if not isinstance(call.args[0], Tensor)]
        assert of_numbers, "it is given tensors alone"
    for call in samples[name]:
        torch.manual_seed(0)
        before = done(call)
        torch.manual_seed(1)
        assert same(before, done(call)), call
        if origin == "Arguments":
            assert isinstance(call.args[0], (Tensor, list, tuple, int, float)), call
        kind, _, detail = uniform.rstrip(")").partition("(")
        match kind:
            case "Always":
                assert bool((before == (detail == "true")).all()), call
            case "Filled":
                place = int(detail)
                positional, named = call.args, call.kwargs
                wanted = named.get("fill_value", positional[place:] and positional[place])
                assert bool((before == torch.tensor(wanted).to(before.dtype)).all()), call
            case "Part" | "Bytes":
                for number in (0, 1):
                    result = done(call, filled(number))
                    assert all(
                        bool((part == number).all())
                        for part in (result if isinstance(result, (tuple, list)) else [result])
                    ), call
            case "Neutral":
                assert bool(
                    Call(name, call.function, call.args, {}).function(*empty(call.args))
                ) is (detail == "true")
            case "Unknown":
                pass
            case _:
                raise AssertionError(uniform)


def test_bytes_that_are_read_as_another_type_are_not_uniform() -> None:
    assert not torch.ones(2, dtype=torch.float64).view(torch.float32).all()
