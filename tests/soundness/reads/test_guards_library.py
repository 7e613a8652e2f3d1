"""Objects of the standard library that a function makes and uses."""

from __future__ import annotations

import collections
import operator
from typing import Any

import torch
from torch import Tensor

from ..probe import Steps, flip

X = torch.ones(3)


class Holder:
    """Attributes to read."""

    def __init__(self) -> None:
        self.n = 2
        self.inner: Any = None

    def scaled(self, x: Tensor, by: int) -> Tensor:
        return x * self.n * by


@flip
def test_itemgetter() -> Steps:
    d = {"a": 2, "b": 3}

    def fn(x: Tensor) -> Any:
        first, second = operator.itemgetter("a", "b")(d)
        return x * first + second + operator.itemgetter("a")(d)

    yield fn, (X,)
    d["a"] = 5
    yield None
    d["a"] = 2
    yield None


@flip
def test_attrgetter() -> Steps:
    h = Holder()
    h.inner = Holder()
    yield (lambda x: x * operator.attrgetter("inner.n")(h)), (X,)
    h.inner.n = 5
    yield None
    h.inner.n = 2
    yield None


@flip
def test_methodcaller() -> Steps:
    h = Holder()
    yield (lambda x: operator.methodcaller("scaled", x, 3)(h)), (X,)
    h.n = 5
    yield None
    h.n = 2
    yield None


@flip
def test_counter() -> Steps:
    words = ["a", "b", "a"]

    def fn(x: Tensor) -> Any:
        counts = collections.Counter(words)
        return x * counts["a"] + len(counts), dict(counts), counts.most_common(1)

    yield fn, (X,)
    words.append("a")
    yield None
    words.pop()
    yield None
