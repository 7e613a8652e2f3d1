"""`copy.deepcopy` of what is from outside: what was copied is guarded, and the copy is the call's own."""

from __future__ import annotations

import copy
import copyreg
import dataclasses
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from .probe import Steps, flip, right_after

X = torch.ones(3)


@dataclasses.dataclass
class Settings:
    """Copied with its list."""

    scale: int = 2
    sizes: list[int] = dataclasses.field(default_factory=lambda: [1, 2])


class Linked:
    """Holds itself and a list twice."""

    def __init__(self) -> None:
        self.me = self
        self.left = self.right = [1]


@flip
def test_containers() -> Steps:
    config: dict[str, Any] = {"a": [1, 2], "b": {"c": (3, [4])}}

    def fn(x: Tensor) -> Any:
        mine = copy.deepcopy(config)
        mine["a"].append(5)
        mine["b"]["c"][1].clear()
        return x * len(mine["a"]) * mine["b"]["c"][0], mine, config

    yield fn, (X,)
    config["b"]["c"][1].append(6)
    yield None
    config["b"]["c"][1].pop()
    yield None


@flip
def test_objects() -> Steps:
    settings = Settings()

    def fn(x: Tensor) -> Any:
        mine = copy.deepcopy(settings)
        mine.sizes.append(3)
        mine.scale += 1
        return x * mine.scale * len(mine.sizes), mine, settings.sizes

    yield fn, (X,)
    settings.sizes[0] = 9
    yield None
    settings.sizes[0] = 1
    yield None


@flip
def test_as_dict() -> Steps:
    settings = Settings()
    yield (lambda x: (x + 1, dataclasses.asdict(settings))), (X,)
    settings.scale = 3
    yield None
    settings.scale = 2
    yield None


def test_sharing() -> None:
    linked = Linked()

    def fn(x: Tensor) -> Any:
        mine = copy.deepcopy(linked)
        return x + 1, mine

    compiled = api.compile(fn)
    for _ in range(3):
        _, mine = compiled(X)
        assert mine is not linked and mine.me is mine
        assert mine.left is mine.right is not linked.left
    assert api.PLAIN or api.hits(compiled) == 2


@right_after
def test_the_class_learns_to_copy() -> Steps:
    settings = Settings()
    yield (lambda x: x * copy.deepcopy(settings).scale), (X,)
    Settings.__deepcopy__ = lambda self, memo: Settings(7)  # type: ignore[attr-defined]
    try:
        yield None
    finally:
        del Settings.__deepcopy__  # type: ignore[attr-defined]
    yield None
    Settings.__getstate__ = lambda self: {"scale": 8}  # type: ignore[attr-defined,method-assign,assignment]
    try:
        yield None
    finally:
        del Settings.__getstate__
    yield None
    copyreg.pickle(Settings, lambda self: (Settings, (9,)))
    try:
        yield None
    finally:
        del copyreg.dispatch_table[Settings]
    yield None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_tensors(backend: str) -> None:
    def fn(x: Tensor) -> Any:
        y = copy.deepcopy(x)
        y.add_(1)
        return y * 2

    compiled = api.compile(fn, backend=backend)
    for step in range(4):
        x = torch.ones(3) * step
        assert torch.equal(compiled(x), fn(x))
        assert torch.equal(x, torch.ones(3) * step)


@right_after
def test_a_tensor_with_attributes() -> Steps:
    t = torch.ones(3)
    yield (lambda x: (x * copy.deepcopy(t), getattr(copy.deepcopy(t), "tag", None))), (X,)
    t.tag = [1]  # type: ignore[attr-defined]
    yield None
