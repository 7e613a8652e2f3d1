"""`locals()` of functions, and `globals()`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

SETTINGS = {"scale": 2.0, "name": "a"}
KEPT: list[Any] = []


@pytest.fixture(autouse=True)
def replays_whatever_it_costs() -> Iterator[None]:
    with stator.config.patch(skip_unprofitable=False):
        yield


def chosen(x: Tensor, n: int, name: str = "a", *rest: Any, **more: Any) -> Any:
    scale = SETTINGS["scale"]
    y = x * scale
    found = {key: value for key, value in locals().items() if key not in ("y", "rest")}
    return list(found), found["x"] + found["n"], found["name"], found["more"]


def formatted(x: Tensor, n: int, name: str = "a") -> Any:
    size = x.shape[0]
    return "{name} {n} {size}".format(**locals()), x + n


def handed_on(x: Tensor, n: int, name: str = "a") -> Any:
    space = SimpleNamespace(**locals())
    return sorted(vars(space)), space.x * space.n, space.name


def asked_twice(x: Tensor, n: int, name: str = "a") -> Any:
    first = locals()
    before = sorted(first)
    later = x + n
    del name
    second = locals()
    return before, sorted(first), sorted(second), first is second, later


def returned(x: Tensor, n: int, name: str = "a") -> Any:
    y = x * n
    return locals()


def written_to(x: Tensor, n: int, name: str = "a") -> Any:
    names = locals()
    names["n"] = 7
    names["new"] = x + 1
    return n, sorted(names), names["new"], names["n"]


def of_cells(x: Tensor, n: int, name: str = "a") -> Any:
    total = x * n

    def inner(by: int) -> Any:
        own = total * by + len(name)
        return sorted(locals()), locals()["total"] + own

    before = inner(2)
    total = total + 1
    return before, inner(3), "inner" in locals(), "by" in locals()


def kept(x: Tensor, n: int, name: str = "a") -> Any:
    KEPT.append({key: value for key, value in locals().items() if key != "x"})
    return x + 1


def broken_between(x: Tensor, n: int, name: str = "a") -> Any:
    first = locals()
    first["new"] = 3
    print(end="")
    x = x + n
    print(end="")
    second = locals()
    return sorted(first), sorted(second), first is second, x


def broken_behind(x: Tensor, n: int, name: str = "a") -> Any:
    count = len(locals())
    print(end="")
    y = x + count
    print(end="")
    return y, sorted(locals())


PROGRAMS = {
    chosen: True,
    formatted: True,
    handed_on: True,
    asked_twice: True,
    returned: True,
    written_to: True,
    of_cells: True,
    kept: True,
    broken_between: False,
    broken_behind: False,
}


def shown(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    return value


@pytest.mark.parametrize("program", list(PROGRAMS), ids=lambda it: it.__name__)
def test_locals(program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = stator.compile(program)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((torch.ones(3), 2), {}),
        ((torch.ones(3) * 2, 2), {}),
        ((torch.ones(3), 2), {}),
        ((torch.ones(3), 3, "b"), {}),
        ((torch.ones(4), 4, "b"), {}),
        ((torch.ones(4), 5, "b"), {}),
    ]
    for call, (args, kwargs) in enumerate(calls):
        if call == 4:
            monkeypatch.setitem(SETTINGS, "scale", 3.0)
        results = []
        for function in (program, compiled):
            results.append([shown(function(*args, **kwargs)), shown(KEPT)])
            KEPT.clear()
        assert results[0] == results[1], call
    stats = stator.stats(compiled)
    if PROGRAMS[program]:
        assert stats.breaks == 0, stats.reason
        assert stats.hits


def test_a_class_body_has_its_own() -> None:
    def program(x: Tensor) -> Any:
        class Made:
            size = 3
            names = sorted(name for name in locals() if not name.startswith("__"))

        return Made.names, x + Made.size

    compiled = stator.compile(program)
    for _ in range(4):
        assert shown(compiled(torch.ones(2))) == shown(program(torch.ones(2)))


def of_the_module(x: Tensor, n: int) -> Any:
    names = globals()
    y = x * names["SETTINGS"]["scale"] + names.get("ADDED", 0)
    if n == 3:
        globals()["ADDED"] = n
    if n == 5:
        del globals()["ADDED"]
    return y, "ADDED" in names, names is globals(), names["__name__"]


def test_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for function in (of_the_module, stator.compile(of_the_module)):
        monkeypatch.setitem(SETTINGS, "scale", 2.0)
        seen.append([])
        for n in (1, 1, 3, 1, 3, 5, 1, 1):
            if len(seen[-1]) == 6:
                monkeypatch.setitem(SETTINGS, "scale", 3.0)
            seen[-1].append(shown(function(torch.ones(2), n)))
    assert seen[0] == seen[1]
    assert stator.stats(function).breaks == 0
