"""What `AttributeError` and `NameError` say where C code raises them: their text, their fields, the errors themselves."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator

X = torch.arange(1.0, 4.0)
KEPT: list[Any] = []


class Holder:
    """Attributes come and go."""

    level = 2


class Slotted:
    __slots__ = ("there",)


class Dynamic:
    def __getattr__(self, name: str) -> Any:
        return super().__getattribute__(name)  # Raises, as it isn't there.


def text(x: Tensor, o: Any) -> Any:
    try:
        return x * o.late
    except AttributeError as error:
        return x + 1, str(error), f"{error}", error.args


def fields(x: Tensor, o: Any) -> Any:
    try:
        return x * o.late
    except AttributeError as error:
        return x + 1, repr(error), error.name, error.obj is o


def by_getattr(x: Tensor, o: Any) -> Any:
    try:
        return x * getattr(o, "late")  # noqa: B009
    except (KeyError, AttributeError) as error:
        return x + len(str(error)), type(error).__name__


def given_back(x: Tensor, o: Any) -> Any:
    try:
        return x * o.late
    except AttributeError as error:
        return x + 1, error.with_traceback(None)


def kept(x: Tensor, o: Any) -> Any:
    try:
        return x * o.late
    except AttributeError as error:
        KEPT[:] = [str(error)]
    return x + 1


def behind_a_break(x: Tensor, o: Any) -> Any:
    try:
        return x * o.late
    except AttributeError as error:
        address = id(o) > 0
        return x + 1, str(error), error.name, error.obj is o, address


def raised_from(x: Tensor, o: Any) -> Any:
    try:
        try:
            return x * o.late
        except AttributeError as error:
            raise ValueError(f"no {error.name}") from error
    except ValueError as error:
        return x + 1, str(error), str(error.__cause__)


def written(x: Tensor, o: Any) -> Any:
    try:
        o.nowhere = 1
    except AttributeError as error:
        return x + 1, str(error)
    del o.nowhere
    return x * 2


def of_a_made_object(x: Tensor, o: Any) -> Any:
    made = type(o)() if type(o) in (Holder, Slotted) else Holder()
    try:
        return x * made.late
    except AttributeError as error:
        return x + 1, str(error), type(error.obj) is type(made)


class WithProperty:
    @property
    def late(self) -> Any:
        return self.nothing  # type: ignore[attr-defined]


class Naming(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise ValueError("asked")


class Named(metaclass=Naming):
    pass


class Raising:
    def __getattribute__(self, name: str) -> Any:
        if name == "late":
            raise AttributeError("never")
        return super().__getattribute__(name)


def undefined(x: Tensor, o: Any) -> Any:
    try:
        return x * appears_late  # type: ignore[name-defined]
    except NameError as error:
        return x + 1, str(error), error.name


def unbound(x: Tensor, o: Any) -> Any:
    try:
        if isinstance(o, Slotted):
            late = 2
        return x * late
    except UnboundLocalError as error:
        return x + 1, str(error)


def stops(x: Tensor, o: Any) -> Any:
    iterator = iter([o])
    next(iterator)
    try:
        return x * next(iterator)
    except StopIteration as error:
        return x + 1, error.value, str(error)


def stops_given_back(x: Tensor, o: Any) -> Any:
    iterator = iter([o])
    next(iterator)
    try:
        return x * next(iterator)
    except StopIteration as error:
        return x + 1, error.with_traceback(None)


FUNCTIONS = [
    text,
    fields,
    by_getattr,
    given_back,
    kept,
    behind_a_break,
    raised_from,
    written,
    of_a_made_object,
    undefined,
    unbound,
    stops,
    stops_given_back,
]


def shown(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, tuple):
        return [shown(part) for part in value]
    if isinstance(value, BaseException):
        own = {name: getattr(value, name, None) for name in ("args", "name", "value")}
        return (
            type(value),
            own,
            type(getattr(value, "obj", None)),
            value.__context__,
            value.__cause__,
        )
    return value


def outcome(fn: Callable[..., Any], o: Any) -> Any:
    KEPT.clear()
    try:
        return shown(fn(X, o)), list(KEPT)
    except Exception as error:
        return type(error), str(error)


RECEIVERS: dict[str, Callable[[], Any]] = {
    "object": Holder,
    "class": lambda: Holder,
    "slots": Slotted,
    "dynamic": Dynamic,
    "property": WithProperty,
    "named": Named,
    "module": lambda: math,
    "nn.Module": lambda: nn.Linear(3, 3),
    "tensor": lambda: torch.ones(3),
    "none": lambda: None,
    "number": lambda: 3,
    "list": lambda: [1],
}

if sys.version_info < (3, 12):
    # Later ones leave the error of such a method as it is, once the instruction has met it a few times.
    RECEIVERS["raising"] = Raising


@pytest.mark.parametrize("receiver", RECEIVERS)
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_as_plain_python(fn: Callable[..., Any], receiver: str) -> None:
    compiled = stator.compile(fn)
    o = RECEIVERS[receiver]()
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            assert outcome(compiled, o) == outcome(fn, o)
        for other in RECEIVERS.values():
            another = other()
            assert outcome(compiled, another) == outcome(fn, another)
        assert outcome(compiled, o) == outcome(fn, o)


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_after_a_change(fn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine:
        pass

    def check() -> None:
        for _ in range(2):
            assert outcome(compiled, o) == outcome(fn, o)

    compiled, o = stator.compile(fn), Mine()
    with stator.config.patch(skip_unprofitable=False):
        check()
        Mine.__name__ = "Renamed"
        check()
        o.late = 3  # type: ignore[attr-defined]
        check()
        del o.late  # type: ignore[attr-defined]
        check()
        monkeypatch.setitem(globals(), "appears_late", 5)
        check()
        Mine.late = 2  # type: ignore[attr-defined]
        check()
        del Mine.late  # type: ignore[attr-defined]
        Mine.__getattr__ = lambda self, name: 4  # type: ignore[attr-defined]
        check()


@pytest.mark.parametrize(
    "fn", [text, fields, by_getattr, raised_from, of_a_made_object, undefined, unbound, stops]
)
def test_no_break(fn: Callable[..., Any]) -> None:
    compiled, o = stator.compile(fn), Holder()
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            compiled(X, o)
    assert (stator.stats(compiled).breaks, stator.stats(compiled).hits) == (0, 2)


def test_a_module_may_be_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = stator.compile(text)
    with stator.config.patch(skip_unprofitable=False):
        for name in ("math", "other", "math"):
            monkeypatch.setattr(math, "__name__", name)
            assert outcome(compiled, math) == outcome(text, math)
