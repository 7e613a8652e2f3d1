"""Global variables that a call reads again and again: whoever writes one in between is seen."""

from __future__ import annotations

import builtins
import gc
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import stator

X = torch.ones(2)


def module_with(source: str, **names: Any) -> types.ModuleType:
    """Functions whose globals are nobody else's."""
    module = types.ModuleType("repeated")
    module.__dict__.update(names)
    exec(source, module.__dict__)
    return module


def agrees(module: types.ModuleType, *changes: Callable[[], object]) -> None:
    """The call gives what plain Python gives, recorded, replayed, and after each of the changes."""
    compiled = stator.compile(module.run, backend="eager")
    state = {name: value for name, value in vars(module).items() if name != "__builtins__"}

    def plain() -> Any:
        before = {name: value for name, value in vars(module).items() if name != "__builtins__"}
        result = module.run(X)
        after = {name: value for name, value in vars(module).items() if name != "__builtins__"}
        for name in after.keys() - before.keys():
            delattr(module, name)
        vars(module).update(before)
        return result, {
            name: value for name, value in after.items() if name in state or name == "n"
        }

    def check() -> None:
        expected, after = plain()
        result = compiled(X)
        assert torch.equal(result, expected)
        assert {name: getattr(module, name) for name in after} == after

    check()
    check()
    for change in changes:
        change()
        check()
        check()


def test_read_in_a_loop() -> None:
    module = module_with("def run(x):\n    for _ in range(4): x = x * n + n\n    return x", n=2)
    agrees(module, lambda: setattr(module, "n", 3), lambda: setattr(module, "n", 2.5))


def test_written_between_reads() -> None:
    source = """
def run(x):
    global n
    for _ in range(4):
        x = x * n + n
        n += 1
        x = x - n * n
    return x
"""
    module = module_with(source, n=2)
    agrees(module, lambda: setattr(module, "n", 7))


def test_written_by_another_function_between_reads() -> None:
    source = """
def step():
    global n
    n = n * 2
def run(x):
    for _ in range(3):
        x = x * n + n
        step()
        x = x + n + n
    return x
"""
    module = module_with(source, n=2)
    agrees(module, lambda: setattr(module, "n", 5))


def test_written_through_the_namespace() -> None:
    source = """
def run(x):
    for i in range(3):
        x = x * n + n + n
        globals()["n"] = i
    return x
"""
    module = module_with(source, n=2)
    agrees(module, lambda: setattr(module, "n", 5))


def test_builtin_shadowed_between_reads() -> None:
    source = """
def run(x):
    global abs
    x = x + abs(-1) + abs(-2) + abs(-3)
    abs = twice
    x = x * abs(2) * abs(3) * abs(4)
    del abs
    return x + abs(-4) + abs(-5)
def twice(n): return n * 2
"""
    module = module_with(source)
    agrees(module)


def test_builtin_that_changes() -> None:
    module = module_with("def run(x): return x + helper(1) + helper(2) + helper(3)")
    vars(builtins)["helper"] = lambda n: n + 1
    try:
        agrees(module, lambda: vars(builtins).__setitem__("helper", lambda n: n * 10))
    finally:
        del vars(builtins)["helper"]


def test_same_name_in_two_namespaces() -> None:
    other = module_with("def f(x): return x * n + n * n", n=5)
    source = "def run(x):\n    for _ in range(3): x = f(x) + n + n\n    return x"
    module = module_with(source, n=2, f=other.f)
    agrees(module, lambda: setattr(other, "n", 6), lambda: setattr(module, "n", 3))


def test_what_the_call_puts_there_dies_in_time() -> None:
    """A value that the call has written and read goes when the call replaces it."""
    source = """
class Node: pass
def run(x):
    global n
    n = Node()
    n.scale = 2
    for _ in range(4): x = x * n.scale
    told.append(ref(n))
    n = None
    return x
"""
    for compiles in (False, True):
        told: list[Any] = []
        module = module_with(source, told=told, ref=weakref.ref, n=None)
        run = stator.compile(module.run, backend="eager") if compiles else module.run
        for _ in range(2):
            assert torch.equal(run(X), X * 16)
        gc.collect()
        assert [reference() for reference in told] == [None, None]


@pytest.fixture
def model() -> Iterator[torch.nn.Module]:
    block = lambda: torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Dropout(0.0)
    )  # noqa: E731
    yield torch.nn.Sequential(*(block() for _ in range(30)))


def test_second_trace_of_a_code_says_the_same(model: torch.nn.Module) -> None:
    """The tables of the second trace have their size from the first: nothing else may differ."""
    x = torch.ones(3, 4)
    said = []
    for _ in range(2):
        stator.reset()
        compiled = stator.compile(model.forward, backend="eager")
        assert torch.equal(compiled(x), model(x))
        assert torch.equal(compiled(x), model(x))
        said.append((compiled.guards(), compiled.graph_code(), stator.stats(compiled).graph_nodes))
    assert said[0] == said[1]
