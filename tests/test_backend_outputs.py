"""A backend whose code returns something else than the graph's outputs: an error that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.errors import BackendError

Code = Callable[..., Any]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (lambda x: (), "a tuple of 0"),
        (lambda x: (x, x), "a tuple of 2 .Tensor, Tensor"),
        (lambda x: None, "a NoneType"),
        (lambda x: x * 2, "a Tensor"),
        (lambda x: 3, "a int"),
        (lambda x: (3,), "a tuple of 1 .int"),
        (lambda x: [None], "a list of 1 .NoneType"),
    ],
)
def test_wrong_outputs(code: Code, found: str) -> None:
    def careless(module: torch.fx.GraphModule, inputs: list[Any]) -> Code:
        return code

    compiled = stator.compile(lambda x: x * 2, backend=careless)
    compiled(torch.ones(2))
    for _ in range(2):
        with pytest.raises(BackendError, match=f"careless returned gave back {found}"):
            compiled(torch.ones(2))


@pytest.mark.parametrize("container", [tuple, list])
def test_right_outputs(container: Callable[[Any], Any]) -> None:
    compiled = stator.compile(
        lambda x: (x * 2, x + 1), backend=lambda module, inputs: lambda x: container((x * 2, x + 1))
    )
    for value in 1.0, 2.0, 3.0:
        x = torch.full((2,), value)
        assert all(map(torch.equal, compiled(x), (x * 2, x + 1)))


def test_handled_errors_of_a_module_are_not_reported(capfd: pytest.CaptureFixture[str]) -> None:
    """`GraphModule.__call__` prints where its code raises, though the program handles it."""

    def picked(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        try:
            return x[index] * 2
        except IndexError:
            return x.sum()

    calls = []

    def watched(module: torch.fx.GraphModule, inputs: list[Any]) -> Code:
        module.register_forward_hook(lambda *call: calls.append(len(call)))
        return module

    compiled = stator.compile(picked, backend=watched)
    x = torch.arange(3.0)
    for index in 0, 1, 2, 5, 1, -7:
        given = torch.tensor(index)
        assert torch.equal(compiled(x, given), picked(x, given))
    assert capfd.readouterr().err == ""
    assert set(calls) == {3}  # Hooks of the module still run.


def test_code_is_for_inputs_that_lie_as_they_did() -> None:
    """A library reads memory as it lay when it was made: other strides have a trace of their own."""

    def reads_memory(module: torch.fx.GraphModule, examples: Any) -> Any:
        # Of what varies these are symbols: strides that follow from sizes are left out here.
        laid = [
            tuple(int(stride) for stride in each.stride()) if isinstance(each, torch.Tensor) else ()
            for each in examples
        ]

        def run(*inputs: Any) -> Any:
            read = [
                each.as_strided(each.size(), strides) if strides else each
                for each, strides in zip(inputs, laid, strict=True)
            ]
            return module(*read)

        return run

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return (x * 2 + 1).sum(1)

    def columns(rows: int, step: int) -> torch.Tensor:
        return torch.arange(rows * 5.0 * step).view(rows, 5 * step)[:, ::step]

    compiled = stator.compile(doubled, backend=reads_memory)
    square = torch.arange(25.0).view(5, 5)
    calls = [square, square.t(), square, square.t(), columns(5, 2), columns(5, 3), square.t()]
    calls += [columns(rows, step) for step in (2, 3, 4) for rows in (6, 7, 8)]
    for _ in range(2):
        for x in calls:
            assert torch.equal(compiled(x), doubled(x))
    assert stator.stats(compiled).breaks == 0
