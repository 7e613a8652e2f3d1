"""`o.__dict__` of C types, and `json.loads` of a text: what is read is guarded, and what is made is each call's own."""

from __future__ import annotations

import json
import types
from typing import Any

import torch
from torch import Tensor

from ..probe import Steps, flip, right_after, two_worlds

X = torch.ones(3)


@flip
def test_dict_of_a_namespace() -> Steps:
    space = types.SimpleNamespace(scale=2.0, bias=1.0)

    def run(x: Tensor) -> Any:
        return (
            x * space.__dict__["scale"] + vars(space)["bias"],
            sorted(space.__dict__),
            "n" in space.__dict__,
        )

    yield run, (X,)
    space.n = 3
    yield None
    del space.n
    yield None


@two_worlds
def test_dict_of_a_namespace_written() -> Steps:
    space = types.SimpleNamespace(count=0)

    def run(x: Tensor) -> Any:
        space.__dict__["count"] += 1
        space.last = x.sum().item()
        space.__dict__.pop("extra", None)
        return dict(space.__dict__), space.count, x + space.__dict__["last"]

    yield run, (X,)
    space.extra = 1
    yield (X + 1,)
    space.count = 10.5
    yield (X,)


@right_after
def test_dict_of_the_traces_own_namespace() -> Steps:
    def run(x: Tensor, n: int) -> Any:
        space = types.SimpleNamespace(n=n, loss=x.sum().item())
        space.__dict__["more"] = [n]
        return space.__dict__, vars(space) is space.__dict__, space.more, x + space.loss

    yield run, (X, 1)
    yield (X * 2, 1)
    yield (X * 2, 5)


@right_after
def test_json() -> Steps:
    def run(x: Tensor, text: str) -> Any:
        settings = json.loads(text)
        first = settings["scale"]
        settings["seen"] = [x.shape[0]]
        settings["names"].append("c")
        return x * first, settings, json.loads("[1, {}]"), json.loads(text) == settings

    yield run, (X, '{"scale": 2, "names": ["a", {"b": [1.5, null]}]}')
    yield (X, '{"scale": 3.5, "names": []}')
    yield (torch.ones(4), '{"scale": 3.5, "names": []}')
    yield (X, '{"scale": NaN, "names": [true]}')


@right_after
def test_json_of_a_text_of_numbers() -> Steps:
    def run(x: Tensor) -> Any:
        text = json.dumps({"n": x.shape[0], "loss": x.sum().item()})
        return json.loads(text), x + 1

    yield run, (X,)
    yield (X * 2,)
    yield (torch.ones(5),)


@right_after
def test_json_that_is_none() -> Steps:
    def run(x: Tensor, text: Any) -> Any:
        try:
            return json.loads(text), x + 1
        except (json.JSONDecodeError, TypeError) as error:
            return type(error).__name__, str(error), getattr(error, "pos", None), x - 1

    yield run, (X, "{")
    yield (X, "[1]")
    yield (X, b"[2]")
    yield (X, 5)
    yield (X, "[1] 2")


@right_after
def test_json_with_options() -> Steps:
    def run(x: Tensor, text: str) -> Any:
        found = json.loads(text, parse_float=str)
        return found, json.loads(text, object_hook=lambda pairs: sorted(pairs)), x + 1

    yield run, (X, '{"a": 1.5}')
    yield (X, '{"b": [2.5]}')


class Shows:
    """Says itself what its `__dict__` is."""

    def __init__(self) -> None:
        self.shown = {"a": 1}

    __dict__ = property(lambda self: {"a": SHOWN["a"]})  # type: ignore[assignment]


class Gives:
    """Asks Python code for each attribute."""

    def __getattribute__(self, name: str) -> Any:
        return dict(SHOWN) if name == "__dict__" else object.__getattribute__(self, name)


class Slotted:
    __slots__ = ("a",)

    def __getattr__(self, name: str) -> Any:
        if name == "__dict__":
            return dict(SHOWN)
        raise AttributeError(name)


SHOWN = {"a": 1.5}


@right_after
def test_what_python_code_shows() -> Steps:
    objects = [Shows(), Gives(), Slotted()]

    def run(x: Tensor, place: int) -> Any:
        return vars(objects[place])["a"] * x, sorted(vars(objects[place])), objects[place].__dict__

    yield run, (X, 0)
    yield (X, 1)
    yield (X, 2)
    SHOWN["a"] = 2.5
    yield (X, 0)
    yield (X, 1)
    yield (X, 2)
    SHOWN["a"] = 1.5


@right_after
def test_vars_of_many_things() -> Steps:
    def function() -> None: ...

    net, space = torch.nn.Linear(2, 2), types.SimpleNamespace(a=1)
    things: list[Any] = [net, space, function, types, 5, (1,), Shows]

    def run(x: Tensor, place: int) -> Any:
        thing = things[place]
        try:
            return len(vars(thing)), "extra" in vars(thing), "extra" in thing.__dict__, x + 1
        except (TypeError, AttributeError) as error:
            return str(error), x - 1

    yield run, (X, 0)
    for _ in range(2):
        for place in range(len(things)):
            yield (X, place)
        net.extra, space.extra, function.extra = 1, 2, 3  # type: ignore[attr-defined, assignment]
