"""A replay that raises ends as plain Python would: modes and generators as they were, then natively."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

GOOD = torch.eye(2) * 2
BAD = -torch.eye(2)


def _outcome(fn: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    """What a call leaves behind: result or error, its frames, grad mode, autocast, random numbers."""
    torch.manual_seed(0)
    try:
        result: Any = ("result", fn(*args).tolist())
    except Exception as error:
        frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)[1:]]
        result = (type(error).__name__, str(error), frames)
    return (
        result,
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.rand(1).item(),
        [arg.tolist() for arg in args if isinstance(arg, Tensor)],
    )


def _check(
    fn: Callable[..., Any], good: tuple[Any, ...], bad: tuple[Any, ...], leaves: bool = False
) -> Any:
    """`leaves`: a replay that raises leaves by an exit, and doesn't run natively from its start."""

    def copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(arg.clone() if isinstance(arg, Tensor) else arg for arg in args)

    compiled = api.compile(fn)
    for args in (good, good, bad, bad, good):
        assert _outcome(compiled, *copies(args)) == _outcome(fn, *copies(args))
    assert api.PLAIN or (api.traces(compiled), api.hits(compiled)) == (1, 4 if leaves else 2)
    return compiled


def test_outside_a_try() -> None:
    _check(lambda x: torch.linalg.cholesky(x) + 1, (GOOD,), (BAD,))


def test_inside_a_try() -> None:
    def fn(x: Tensor) -> Tensor:
        try:
            return torch.linalg.cholesky(x) + 1
        except RuntimeError:
            return x * 3
        finally:
            x = x + 1

    _check(fn, (GOOD,), (BAD,))


def test_in_a_nested_function() -> None:
    def helper(x: Tensor) -> Tensor:
        return torch.linalg.cholesky(x)

    _check(lambda x: helper(x + 0) * 2, (GOOD,), (BAD,))


def test_index_out_of_range() -> None:
    table = torch.ones(3)
    _check(lambda i: table[i] * 2, (torch.tensor([1, 2]),), (torch.tensor([1, 7]),))


def test_embedding_out_of_range() -> None:
    table = torch.ones(3, 2)
    fn = torch.nn.functional.embedding
    _check(lambda i: fn(i, table), (torch.tensor([1, 2]),), (torch.tensor([1, 7]),))


def test_dropout_before() -> None:
    def fn(x: Tensor) -> Tensor:
        noise = torch.nn.functional.dropout(torch.ones(3), 0.5) + torch.rand(3)
        try:
            return torch.linalg.cholesky(x).sum() + noise
        except RuntimeError:
            return noise

    _check(fn, (GOOD,), (BAD,))


def test_generator_before() -> None:
    generator = torch.Generator()

    def fn(x: Tensor) -> Tensor:
        noise = torch.rand(3, generator=generator)
        try:
            return torch.linalg.cholesky(x).sum() + noise
        except RuntimeError:
            return noise

    compiled = api.compile(fn)
    for x in (GOOD, GOOD, BAD):
        generator.manual_seed(1)
        expected = fn(x)
        generator.manual_seed(1)
        assert torch.equal(compiled(x), expected)


def test_no_grad_around() -> None:
    def fn(x: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.linalg.cholesky(x)

    _check(fn, (GOOD,), (BAD,))


def test_enable_grad_around() -> None:
    def fn(x: Tensor) -> Tensor:
        with torch.enable_grad():
            return torch.linalg.cholesky(x)

    with torch.no_grad():
        _check(fn, (GOOD,), (BAD,))


def test_autocast_around() -> None:
    def fn(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            return torch.linalg.cholesky(x) + y

    _check(fn, (GOOD,), (BAD,))


def test_write_after() -> None:
    """The write that didn't happen yet is no obstacle."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        z = torch.linalg.cholesky(x)
        y.add_(1)
        return z + y

    _check(fn, (GOOD, torch.ones(2)), (BAD, torch.ones(2)))


def test_write_to_a_temporary_before() -> None:
    def fn(x: Tensor) -> Tensor:
        y = torch.ones(2)
        y.add_(1)
        return torch.linalg.cholesky(x) + y

    _check(fn, (GOOD,), (BAD,))


def test_attribute_before() -> None:
    class State:
        n = 0

    def make() -> tuple[State, Callable[[Tensor], Tensor]]:
        state = State()

        def fn(x: Tensor) -> Tensor:
            state.n = 5
            return torch.linalg.cholesky(x) + state.n

        return state, fn

    state, fn = make()
    compiled = api.compile(fn)
    compiled(GOOD)
    state.n = 0
    compiled(GOOD)
    assert state.n == 5
    state.n = 0
    with pytest.raises(RuntimeError):
        compiled(BAD)
    assert state.n == 5


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "in place": lambda y: y.add_(1),
    "view": lambda y: y[0].add_(1),
    "data": lambda y: y.data.add_(1),
    "detached": lambda y: y.detach().add_(1),
    "item": lambda y: y.__setitem__(0, 5),
}


@pytest.mark.parametrize("name", WRITES)
def test_write_before(name: str) -> None:
    """The write stays, and the error is raised in frames that are made again: written once, in the function's own."""
    write = WRITES[name]

    def fn(x: Tensor, y: Tensor) -> Tensor:
        write(y)
        return torch.linalg.cholesky(x) + y

    _check(fn, (GOOD, torch.ones(2)), (BAD, torch.ones(2)), leaves=True)


def test_batch_norm_before() -> None:
    mean, var = torch.zeros(2), torch.ones(2)

    def fn(x: Tensor) -> Tensor:
        y = torch.nn.functional.batch_norm(x, mean, var, training=True)
        return torch.linalg.cholesky(x) + y

    compiled = api.compile(fn)
    for x in (GOOD, GOOD):
        compiled(x)
    mean.zero_(), var.fill_(1)
    with pytest.raises(RuntimeError):
        compiled(BAD)
    found = mean.clone()
    mean.zero_(), var.fill_(1)
    with pytest.raises(RuntimeError):
        fn(BAD)
    assert torch.equal(found, mean)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("by_name", [True, False])
def test_batch_norm_in_a_try(training: bool, by_name: bool) -> None:
    """In training it writes statistics, so that the error leaves by an exit; in evaluation it only reads them."""

    def fn(x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        norm = torch.nn.functional.batch_norm
        try:
            if by_name:
                y = norm(x, mean, var, training=training)
            else:
                y = norm(x, mean, var, None, None, training)
            return torch.linalg.cholesky(x) + y
        except RuntimeError:
            return x + mean

    statistics = (torch.zeros(2), torch.ones(2))
    _check(fn, (GOOD, *statistics), (BAD, *statistics), leaves=training)


def test_memory_that_overlaps() -> None:
    """An operation in place that is given its own memory raises before it writes: what the function did before is done."""

    def run(way: Callable[[Any], Any]) -> list[Any]:
        whole = torch.arange(6.0).view(2, 3)
        row, other, rate = whole[0], torch.ones(2, 3), {"rate": 1.0}

        def step(x: Tensor) -> Tensor:
            rate["rate"] *= 0.5
            x.add_(row)
            return x

        found, call = [], way(step)
        for x in (other, other, whole, whole, other, whole):
            try:
                found.append((call(x).tolist(), rate["rate"]))
            except RuntimeError as error:
                found.append((str(error), rate["rate"], whole.tolist()))
        return found

    with stator.config.patch(skip_unprofitable=False):
        assert run(api.compile) == run(lambda fn: fn)


@pytest.mark.parametrize("graph", ["replay", "interpreted"])
def test_memory_that_overlaps_with_a_backend(graph: str) -> None:
    """A graph module runs operations one after the other: where no count of writes has changed, none has written."""

    def step(x: Tensor, row: Tensor) -> Tensor:
        y = x * 2
        y[0] = 3
        x.copy_(row)
        return y + x

    backend = "eager" if graph == "replay" else lambda module, inputs: module.forward
    compiled = stator.compile(step, backend=backend)
    with stator.config.patch(skip_unprofitable=False):
        for is_shared in (False, False, True, True, False, True):
            found = []
            for function in (step, compiled):
                whole = torch.arange(4.0)
                args = (whole[:3], whole[1:]) if is_shared else (whole[:3], torch.ones(3))
                found.append(_outcome(function, *args))
            assert found[0] == found[1]
            assert isinstance(found[0][0][1], str) == is_shared


def test_a_write_before_the_one_that_raises_with_a_backend() -> None:
    """What a graph module has written before isn't taken back: the error tells of the graph."""

    def step(x: Tensor, row: Tensor, other: Tensor) -> Tensor:
        other.data.add_(1)
        x.copy_(row)
        return x + other

    compiled = stator.compile(step, backend=lambda module, inputs: module.forward)
    with stator.config.patch(skip_unprofitable=False):
        for is_shared in (False, False, True, True):
            found = []
            for function in (step, compiled):
                whole, other = torch.arange(4.0), torch.zeros(3)
                args = (whole[:3], whole[1:]) if is_shared else (whole[:3], torch.ones(3))
                try:
                    function(*args, other)
                except RuntimeError as error:
                    found.append(str(error))
                found.append((whole.tolist(), other.tolist()))
            assert found[: len(found) // 2] == found[len(found) // 2 :]
