"""Graphs with symbols for backends: they run for every admitted size, without another trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator


def mixed(x: Any, n: int, rate: float) -> Any:
    y = x.view(-1, 2) * n
    return y.sum(0) * rate + x.shape[0], y.relu(), n + 1


def arguments(size: int) -> tuple[Any, ...]:
    return torch.arange(size * 4.0).reshape(size, 4), size - 3, size / 4


@pytest.mark.parametrize("backend", ["fx", "aot_eager"])
def test_serves_every_admitted_size(backend: str) -> None:
    compiled = stator.compile(mixed, backend=backend)
    for size in (4, 6, 8, 5, 12, 2, 7):
        expected, found = mixed(*arguments(size)), compiled(*arguments(size))
        torch.testing.assert_close(found[:2], expected[:2])
        assert found[2] == expected[2]
    assert stator.stats(compiled).traces == 2


def ends(x: Any) -> Any:
    return x.unfold(0, x.shape[0] - 2, 1).sum(0)


def counting(name: str) -> tuple[Any, list[int]]:
    """One of PyTorch's backends by another name, and how often it has compiled."""
    from torch._dynamo.backends.registry import lookup_backend

    calls: list[int] = []

    def backend(module: Any, inputs: Any) -> Any:
        calls.append(1)
        return lookup_backend(name)(module, inputs)

    return backend, calls


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts what aot_eager compiles."""
    from stator import _backends

    backend, calls = counting("aot_eager")
    found = _backends._find
    replaced = {"aot_eager": ("aot_eager", backend, True)}
    monkeypatch.setattr(_backends, "_find", lambda name: replaced.get(name) or found(name))
    return calls


def test_what_a_backend_assumes_are_guards_of_its_code(compilations: list[int]) -> None:
    """A program that AOTAutograd specialises: its code is compiled again, nothing is traced."""
    compiled = stator.compile(ends, backend="aot_eager", dynamic=True)
    for count, size in enumerate((4, 5, 9), 1):
        for _ in range(2):
            x = torch.arange(float(size))
            torch.testing.assert_close(compiled(x), ends(x))
        assert len(compilations) == count, "one for each size"
    stats = stator.stats(compiled)
    assert (stats.traces, stats.native) == (1, 0)


def test_assumptions_print_with_the_entrys_guards() -> None:
    compiled = stator.compile(ends, backend="aot_eager", dynamic=True)
    for size in (4, 5, 9):
        compiled(torch.arange(float(size)))
    [guards] = compiled.guards()
    added = [line for line in guards if line.endswith("# aot_eager")]
    assert sorted(added) == [
        "L['x'].size()[0] == 5  # aot_eager",
        "L['x'].size()[0] == 9  # aot_eager",
    ]


def test_assumptions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    stator.set_logs(dynamic=True, guards=True)
    try:
        compiled = stator.compile(ends, backend="aot_eager", dynamic=True)
        for size in (4, 5):
            compiled(torch.arange(float(size)))
    finally:
        stator.set_logs()
    lines = [record.getMessage() for record in caplog.records]
    assert "eval s0 == 5 [guard added] by aot_eager" in lines
    assert "L['x'].size()[0] == 5  # aot_eager" in lines


def test_what_the_entry_knows_is_no_assumption(compilations: list[int]) -> None:
    def rows(x: Any, y: Any) -> Any:
        return x.view(-1, 4).t() @ y * (x.numel() // 3)

    compiled = stator.compile(rows, backend="aot_eager", dynamic=True)
    for size in (4, 6, 9, 4):
        x, y = torch.arange(size * 4.0), torch.ones(size, size)
        torch.testing.assert_close(compiled(x, y), rows(x, y))
    assert len(compilations) == 1
    assert not [line for line in compiled.guards()[0] if "# aot_eager" in line]


def test_a_backend_that_fixes_everything_is_given_up(compilations: list[int]) -> None:
    """Freely varying sizes cost neither traces nor compilations without end."""
    compiled = stator.compile(ends, backend="aot_eager", dynamic=True)
    for size in range(4, 30):
        x = torch.arange(float(size))
        torch.testing.assert_close(compiled(x), ends(x))
    assert len(compilations) == 16
    stats = stator.stats(compiled)
    assert (stats.traces, stats.native) == (1, 0)


def test_floats_are_read_as_they_are(compilations: list[int]) -> None:
    def scaled(x: Any, rate: float) -> Any:
        return x * rate

    compiled = stator.compile(scaled, backend="aot_eager", dynamic=True)
    for size, rate in [(4, 0.5), (5, 0.5), (6, 0.5), (6, -0.0), (7, -0.0), (7, 0.0), (8, 0.5)]:
        x = torch.ones(size)
        found = compiled(x, rate)
        assert torch.equal(found, x * rate) and torch.equal(found.signbit(), (x * rate).signbit())
    assert len(compilations) == 1
    assert stator.stats(compiled).traces == 1


@pytest.mark.parametrize(
    ("printed", "tree"),
    [
        ("L['t0'] == 4", ("and", ("==", ("input", 0), 4))),
        ("2 <= L['t1'].size()[0]", ("and", ("<=", 2, ("size", 1, 0)))),
        (
            "0 <= L['t0'] <= L['t1'].stride()[1]",
            ("and", ("<=", 0, ("input", 0)), ("<=", ("input", 0), ("stride", 1, 1))),
        ),
        (
            "(L['t0'] // 4) != L['t0'] % 3 or not L['t1'].storage_offset() > 1",
            (
                "or",
                ("and", ("!=", ("//", ("input", 0), 4), ("%", ("input", 0), 3))),
                ("not", ("and", (">", ("offset", 1), 1))),
            ),
        ),
        ("unknown(L['t0'], L['t1'].size()[2]) == 1", ("fixed", ("input", 0), ("size", 1, 2))),
    ],
)
def test_guards_of_a_shape_environment_as_trees(printed: str, tree: Any) -> None:
    from stator._fx.assumptions import assumption

    assert assumption(printed) == tree


def test_a_callable_gets_numbers_as_inputs() -> None:
    seen: list[Any] = []

    def backend(graph: torch.fx.GraphModule, example_inputs: Any) -> Any:
        kinds = [node.type for node in graph.graph.nodes if node.op == "placeholder"]
        seen.append((kinds, [type(example) for example in example_inputs]))
        return graph.forward

    def scaled(x: Any, n: int, rate: float) -> Any:
        return x * n * rate

    compiled = stator.compile(scaled, backend=backend, dynamic=True)
    for size in (4, 5):
        x = torch.ones(size)
        assert torch.equal(compiled(x, size, size / 2), scaled(x, size, size / 2))
    [(kinds, types)] = seen
    assert kinds == [torch.SymInt, torch.Tensor, torch.SymInt, torch.SymFloat]
    assert types == [int, torch.Tensor, int, float]


def scaled(x: Any, rate: float) -> Any:
    return (x * rate).sum() if rate > 0.5 else x.long() + rate


def added_scaled(x: Any, rate: float) -> Any:
    return torch.add(x, x, alpha=rate)


def test_floats_vary_freely(compilations: list[int]) -> None:
    """The first call is for its float, the second for all others."""
    compiled = stator.compile(scaled, backend="aot_eager")
    for step in range(8):
        x, rate = torch.ones(3), 0.6 + step / 8
        found, expected = compiled(x, rate), scaled(x, rate)
        torch.testing.assert_close(found, expected)
        assert found.dtype == expected.dtype
    assert stator.stats(compiled).traces == 2
    assert len(compilations) == 1, "nothing replayed the first trace"
    for rate in (0.25, 0.125, float("inf"), float("nan"), -0.0):
        found, expected = compiled(x, rate), scaled(x, rate)
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert found.dtype == expected.dtype


def test_a_float_that_a_backend_fixes_is_a_constant_of_its_code() -> None:
    compiled = stator.compile(added_scaled, backend="aot_eager")
    for step in range(6):
        x, rate = torch.ones(3), step / 8
        torch.testing.assert_close(compiled(x, rate), added_scaled(x, rate))
    assert stator.stats(compiled).traces == 2


def test_gradients_with_floats_that_vary(compilations: list[int]) -> None:
    compiled = stator.compile(lambda x, rate: (x * rate).sin(), backend="aot_eager")
    for step in range(5):
        x, rate = torch.ones(3, requires_grad=True), 0.6 + step / 8
        compiled(x, rate).sum().backward()
        torch.testing.assert_close(x.grad, torch.cos(torch.full((3,), rate)) * rate)
    assert len(compilations) == 1
