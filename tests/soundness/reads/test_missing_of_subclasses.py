"""Keys that subclasses of `dict` lack, as configurations with attributes are asked for them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor

from ..probe import Steps, flip, right_after


class Options(dict[str, Any]):
    """A dictionary whose keys are attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Ordered(OrderedDict[str, Any]):
    """The same of an ordered one."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


X = torch.arange(3.0)


def _asking(options: Any) -> Any:
    def fn(x: Tensor) -> Any:
        y = x * getattr(options, "gain", 2.0)
        if hasattr(options, "bias"):
            y = y + options.bias
        return y, "gain" in options

    return fn


def _keys(make: Any) -> Steps:
    options = make(other=1)
    yield _asking(options), (X,)
    options["bias"] = 3.0
    yield None
    del options["bias"]
    yield None


@flip
def test_attributes() -> Steps:
    """A key that is there later."""
    return _keys(Options)


@flip
def test_ordered() -> Steps:
    """The same of an `OrderedDict`."""
    return _keys(Ordered)


@right_after
def test_missing_later() -> Steps:
    """The class gets a `__missing__`, and loses it."""

    class Late(dict[str, Any]):
        pass

    options = Late(a=1.0)

    def fn(x: Tensor) -> Any:
        try:
            return x * options["b"]
        except KeyError as error:
            return x, error.args

    yield fn, (X,)
    Late.__missing__ = lambda self, key: 5.0  # type: ignore[attr-defined]
    yield None
    del Late.__missing__  # type: ignore[attr-defined]
    yield None
    Late.__getitem__ = lambda self, key: 7.0  # type: ignore[method-assign, assignment]
    yield None
    del Late.__getitem__
    options["b"] = 2.0
    yield None


@right_after
def test_error_that_leaves() -> Steps:
    """Nobody handles it."""
    options = Options(a=1.0)

    def fn(x: Tensor) -> Any:
        return x * options["a"] + options["b"]

    yield fn, (X,)
    options["b"] = 2.0
    yield None
    del options["a"]
    yield None
