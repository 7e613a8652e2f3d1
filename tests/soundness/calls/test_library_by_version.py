"""What the standard library does by other means in later versions: as plain Python does it, and in one graph."""

from __future__ import annotations

import collections
import copy
import datetime
import functools
import inspect
import os
import pathlib
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

import pytest
import torch
from torch import Tensor

import stator

P = ParamSpec("P")
R = TypeVar("R")


@runtime_checkable
class Scaled(Protocol):
    scale: float


@runtime_checkable
class Moving(Protocol):
    def move(self) -> None: ...


class Base:
    def __init__(self, width: int = 3) -> None:
        self.width = width


class Slotted(Base):
    __slots__ = ("scale",)


class Hidden(Base):
    """Instances have dictionaries that nobody finds by their name."""

    __dict__ = {}  # type: ignore[assignment]  # noqa: RUF012


LIBRARY = types.ModuleType("library")
TEXTS = ["layer.10.weight"]
PATHS = ["a//b/../c.pt"]
LAYERS = [{"lr": 0.1, "steps": 3}, {"decay": 0.5, "steps": 4}]
DAYS = [datetime.date(2024, 1, 2), datetime.datetime(2024, 1, 2, 3), datetime.time(4)]
FACTORS = [2]
OBJECTS: list[Any] = [Base(), Slotted(), Hidden()]
CLASSES: list[type] = [int, type]


@pytest.fixture(autouse=True)
def replays_whatever_it_costs() -> Iterator[None]:
    with stator.config.patch(skip_unprofitable=False):
        yield


def lacking_names(x: Tensor) -> Any:
    found = hasattr(LIBRARY, "fast"), getattr(LIBRARY, "fast", 3), getattr(torch, "no_such", None)
    try:
        way = LIBRARY.fast
    except AttributeError:
        way = 5
    return x * way, found


def substituted(x: Tensor) -> Any:
    text = TEXTS[0]
    larger = re.sub(r"\d+", lambda match: str(int(match[0]) + 1), text)
    marked = re.sub(r"(\d+)", r"<\1>", text), re.subn("e", "", text), re.sub("e", "", text, count=1)
    return x + len(larger), larger, marked, re.split(r"\.", text), re.split(r"\.", text, maxsplit=1)


def normal_paths(x: Tensor) -> Any:
    path = pathlib.PurePath(PATHS[0])
    parts = path.parts, path.suffix, str(path / "d"), path.with_suffix(".bin").name
    return x + len(path.parts), parts, os.path.normpath(PATHS[0]), os.path.split(PATHS[0])


def layered(x: Tensor) -> Any:
    settings = collections.ChainMap(*LAYERS)
    merged = dict(settings)
    for factor in settings.values():
        x = x * factor
    return x, list(settings), merged, len(settings), settings.new_child({"lr": 2})["lr"]


def logged(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return wrapper


def annotated(x: Tensor) -> Any:
    @logged
    def scaled(y: Tensor, by: int = 2) -> Tensor:
        return y * by * FACTORS[0]

    return scaled(x, by=3), scaled.__name__


def marked(x: Tensor) -> Any:
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> int:
        return len(args) + len(kwargs) + FACTORS[0]

    return x + wrapper(1, 2, a=3), sorted(wrapper.__annotations__)


def named_anew(x: Tensor) -> Any:
    def scaled(y: Tensor) -> Any:
        return y * FACTORS[0]

    code = scaled.__code__
    scaled.__code__ = code.replace(co_name="other")
    return scaled(x), scaled.__code__.co_name, code.co_name, scaled.__code__ == code


def named_and_given_out(x: Tensor) -> Any:
    by = FACTORS[0]

    def scaled(y: Tensor) -> Any:
        return y * by

    scaled.__code__ = scaled.__code__.replace(co_name="other")
    return x * by, scaled


def replaced_days(x: Tensor) -> Any:
    if sys.version_info >= (3, 13):
        found = [copy.replace(day) for day in DAYS], copy.replace(DAYS[0], year=2000)
    else:
        found = [day.replace() for day in DAYS], DAYS[0].replace(year=2000)
    return x, found


def asked_by_protocols(x: Tensor) -> Any:
    found = [isinstance(thing, Scaled) for thing in OBJECTS]
    moving = [isinstance(thing, Moving) for thing in (*OBJECTS, x, 3)]
    return x * (2 if found[0] else 3), found, moving


def asked_by_signatures(x: Tensor) -> Any:
    names = [list(inspect.signature(kind).parameters) for kind in (Base, Slotted, torch.nn.Linear)]
    return x * len(names[0]), names


def asked_statically(x: Tensor) -> Any:
    names = ("width", "scale", "move", "__dict__")
    found = [inspect.getattr_static(OBJECTS[2], name, None) is None for name in names]
    return x * FACTORS[0], found, inspect.getattr_static(OBJECTS[0], "width")


def of_builtin_classes(x: Tensor) -> Any:
    kind, other = CLASSES
    found = "__mro__" in other.__dict__, "__add__" in kind.__dict__, "gone" in vars(kind)
    return x * sum(found), found, vars(kind)["__new__"].__name__


def change() -> None:
    OBJECTS[0].scale = OBJECTS[1].scale = 2.0
    OBJECTS[0].width = 5
    Slotted.move = lambda self: None  # type: ignore[attr-defined]
    CLASSES[:] = [dict, int]
    LIBRARY.fast = 7
    TEXTS[0], PATHS[0] = "block.2.0.bias", "//root/./e.tar.gz"
    LAYERS[1]["last"] = 2.0
    DAYS[:] = [day.replace(**{unit: 1}) for day, unit in zip(DAYS, ["month", "hour", "minute"])]
    FACTORS[0] = 4


def put_back() -> None:
    OBJECTS[:] = [Base(), Slotted(), Hidden()]
    CLASSES[:] = [int, type]
    if hasattr(Slotted, "move"):
        del Slotted.move
    vars(LIBRARY).pop("fast", None)
    TEXTS[0], PATHS[0] = "layer.10.weight", "a//b/../c.pt"
    LAYERS[1].pop("last", None)
    DAYS[:] = [datetime.date(2024, 1, 2), datetime.datetime(2024, 1, 2, 3), datetime.time(4)]
    FACTORS[0] = 2


def shown(value: Any) -> Any:
    if isinstance(value, types.FunctionType):
        return value.__name__, value.__code__.co_name, value(torch.ones(2)).tolist()
    if isinstance(value, tuple):
        return tuple(map(shown, value))
    return value.tolist() if isinstance(value, Tensor) else value


PROGRAMS = [
    lacking_names,
    substituted,
    normal_paths,
    layered,
    annotated,
    marked,
    named_anew,
    named_and_given_out,
    replaced_days,
    asked_by_protocols,
    asked_by_signatures,
    asked_statically,
    of_builtin_classes,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_equals_plain_python(program: Callable[..., Any]) -> None:
    compiled = stator.compile(program)
    for alter in (put_back, change, put_back):
        alter()
        for _ in range(3):
            assert shown(compiled(torch.ones(2))) == shown(program(torch.ones(2)))
    stats = stator.stats(compiled)
    assert stats.breaks == 0, stats.reason
    assert stats.traces <= 3 and stats.hits >= 6


def test_a_default_of_parameters_is_not_taken_for_good() -> None:
    """It may be a list, and be evaluated late."""
    if sys.version_info < (3, 13):
        pytest.skip("parameters have no defaults")
    default = [int]
    parameters = ParamSpec("parameters", default=default)

    def program(x: Tensor) -> Any:
        return x + len(parameters.__default__), parameters.__name__, parameters.has_default()

    compiled = stator.compile(program)
    for _ in range(3):
        assert shown(compiled(torch.ones(2))) == shown(program(torch.ones(2)))
    default.append(str)
    assert shown(compiled(torch.ones(2))) == shown(program(torch.ones(2)))


FIRST = """
import torch
import stator

net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
compiled = stator.compile(lambda x: net(x))
compiled(torch.ones(4, 3))
print(stator.stats(compiled).breaks, stator.stats(compiled).reason)
"""


def test_what_the_library_lacks_here_is_asked_without_a_break() -> None:
    """In the first call of a process: a module's own error asks its spec for the file, from 3.13 on."""
    command = [sys.executable, "-c", FIRST]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "0 None"


def test_a_first_call_warns_of_nothing() -> None:
    """PyTorch makes some old names anew each time that it is asked for them, and warns."""
    command = [sys.executable, "-W", "error::UserWarning", "-c", FIRST]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
