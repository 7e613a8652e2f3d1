"""Items and attributes that a class of its own reads in its own way: outputs of models, and properties of classes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from ..probe import Probe, Steps, flip

X = torch.arange(3.0)


class Output(OrderedDict[str, Any]):
    """Read by names, and by places."""

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(self[key] for key in self.keys())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return dict(self.items())[key]
        return self.to_tuple()[key]


class Derived(dict[Any, Any]):
    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(str(key))


class Filled(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key)

    def __missing__(self, key: str) -> Any:
        return len(key)


class OfClass(property):
    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self.fget(kind)  # type: ignore[misc]


@pytest.mark.parametrize("key", [0, -1, "a", slice(0, 1)])
def test_an_outside_output_is_read_by_its_own_method(key: Any) -> None:
    api.reset()
    probe = Probe(lambda x, out: (x + 1, out[key]))
    probe.right(X, Output(a=X + 4, b=X + 1))
    probe.steady(X, Output(a=X + 2, b=X + 3))
    assert api.breaks(probe.compiled) in (None, 0)


@pytest.mark.parametrize("key", [2, "c"])
def test_what_isnt_there_raises(key: Any) -> None:
    api.reset()
    probe = Probe(lambda x, out: (x + 1, out[key]))
    for _ in range(3):
        probe.right(X, Output(a=X, b=X + 1))


@flip
def test_the_method_is_guarded() -> Steps:
    class Own(dict[Any, Any]):
        def __getitem__(self, key: Any) -> Any:
            return super().__getitem__(str(key))

    own, before = Own({"1": 2}), Own.__getitem__
    yield lambda x: x + own[1], (X,)
    Own.__getitem__ = lambda self, key: 5  # type: ignore[method-assign]
    yield ()
    Own.__getitem__ = before  # type: ignore[method-assign]


@flip
def test_what_the_method_reads_is_guarded() -> Steps:
    own = Derived({"1": 2})
    yield lambda x: x + own[1], (X,)
    own["1"] = 3
    yield ()
    own["1"] = 2


@flip
def test_a_key_under_which_the_storage_holds_something_else() -> Steps:
    own = Derived({"1": 2})
    yield lambda x: x + own[1], (X,)
    own["1"] = 3
    yield ()
    own["1"] = 2
    own[1] = 7


@flip
def test_missing_keys_are_asked_of_their_method() -> Steps:
    own = Filled(a=2)
    yield lambda x: x + own["abc"], (X,)
    own["abc"] = 9
    yield ()
    del own["abc"]


@flip
def test_getters_of_properties_of_a_class_of_its_own() -> Steps:
    class Config:
        @OfClass
        def size(self) -> Any:
            return self.number  # type: ignore[attr-defined]

        number = 2

    config = Config()
    yield lambda x: x + config.size + Config.size, (X,)
    Config.number = 3
    yield ()
    Config.number = 2


@flip
def test_a_property_that_is_begun_anew() -> Steps:
    class Config:
        @OfClass
        def size(self) -> int:
            return 2

    prop = Config.__dict__["size"]
    before = prop.fget
    config = Config()
    yield lambda x: x + config.size, (X,)
    prop.__init__(lambda kind: 3)
    yield ()
    prop.__init__(before)


def test_a_property_without_a_getter() -> None:
    class Empty(property):
        def __get__(self, owner: Any, kind: Any = None) -> Any:
            return self.fget

    class Config:
        size = Empty()

    config = Config()
    probe = Probe(lambda x: (x + 1, config.size))
    for _ in range(3):
        probe.right(X)


def rows(x: Tensor) -> Any:
    return list(x * 2), tuple(x + 1), list(reversed(x * 3))


def added(x: Tensor) -> Any:
    found = [x[0]]
    found.extend(x * 2)
    return found


@pytest.mark.parametrize("fn", [rows, added])
def test_rows_that_c_code_takes_of_own_tensors(fn: Any) -> None:
    api.reset()
    probe = Probe(fn)
    probe.right(torch.rand(3, 2))
    probe.steady(torch.rand(3, 2))
    for count in (1, 2, 3, 5):
        probe.right(torch.rand(count, 2))
    assert api.breaks(probe.compiled) in (None, 0)


def test_the_length_of_tensors_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    api.reset()
    asked = []
    before = torch.Tensor.__len__

    def counted(self: Tensor) -> int:
        asked.append(1)
        return before(self)

    probe = Probe(lambda x: list(x * 2))
    probe.right(torch.rand(3, 2))
    monkeypatch.setattr(torch.Tensor, "__len__", counted)
    probe.right(torch.rand(3, 2))
    assert len(asked) == 2 or api.PLAIN
