"""Somebody else's tests under Stator: a pytest plugin that compiles each test function, and calls
it several times. In a library's folder, with this checkout on PYTHONPATH:

    python -m pytest -p tools.compiled_tests tests
    python -m pytest -p tools.compiled_tests --plain tests      # the same calls in plain Python

What passes plain and fails compiled is a fault of Stator's, unless the test asks how it is called
(it counts frames, say). Random generators begin anew before each call. Behind the run stands how
many tests passed, and how many of them had no graph break.
"""

from __future__ import annotations

import functools
import inspect
import random
import unittest
from collections.abc import Callable, Iterable
from typing import Any

import numpy
import pytest
import torch

import stator

BROKEN: dict[str, int] = {}
"""Graph breaks of each test that has passed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stator")
    group.addoption("--plain", action="store_true", help="compile nothing")
    group.addoption("--calls", type=int, default=3, help="how often each test is called")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    plain, calls = config.getoption("--plain"), config.getoption("--calls")
    done: set[tuple[type, str]] = set()
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if not issubclass(item.cls or object, unittest.TestCase):
            item.obj = called_again(item.obj, item.nodeid, plain, calls)
            continue
        # Each test of such a class has an instance of its own, which asks the class.
        item._obj = None  # type: ignore[attr-defined]
        assert item.cls is not None
        name = item.originalname
        function = inspect.getattr_static(item.cls, name)
        if (item.cls, name) not in done and inspect.isfunction(function):
            done.add((item.cls, name))
            setattr(item.cls, name, called_again(function, item.nodeid, plain, calls))


def called_again(
    function: Callable[..., Any], name: str, plain: bool, calls: int
) -> Callable[..., Any]:
    """A test function that is compiled, unless it is to stay plain, and called so often."""
    compiled = function if plain else stator.compile(function)

    @functools.wraps(function)
    def again(*args: Any, **kwargs: Any) -> Any:
        result = None
        for _ in range(calls):
            torch.manual_seed(0)
            random.seed(0)
            numpy.random.seed(0)
            result = compiled(*args, **kwargs)
        BROKEN[name] = 0 if plain else stator.stats(compiled).breaks
        return result

    return again


def pytest_terminal_summary(terminalreporter: Any) -> None:
    passed: Iterable[Any] = terminalreporter.stats.get("passed", [])
    names = [report.nodeid for report in passed if report.nodeid in BROKEN]
    whole = sum(BROKEN[name] == 0 for name in names)
    terminalreporter.write_line(f"{len(names)} tests passed each call, {whole} without graph break")
