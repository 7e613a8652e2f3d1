"""A replay that wrote to its inputs and then raises under a `try` ends as plain Python would."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

GOOD = torch.eye(2) * 2
BAD = -torch.eye(2)


def _seen(fn: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    try:
        result: Any = fn(*args).tolist()
    except Exception as error:
        result = (type(error).__name__, str(error))
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    return result, [(t.tolist(), t._version, t.requires_grad, t.is_leaf) for t in tensors]


def _check(fn: Callable[..., Any], make: Callable[[], Tensor], **options: Any) -> Any:
    """Recorded, replayed, raising twice, and replayed again: each as plain Python."""
    compiled = api.compile(fn, **options)
    for x in (GOOD, GOOD, BAD, BAD, GOOD):
        assert _seen(compiled, x, make()) == _seen(fn, x, make())
    assert api.PLAIN or api.hits(compiled) >= 2
    return compiled


def ones() -> Tensor:
    return torch.ones(2)


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "in place": lambda y: y.add_(1),
    "view": lambda y: y[0].add_(1),
    "data": lambda y: y.data.add_(1),
    "detached": lambda y: y.detach().add_(1),
    "item": lambda y: y.__setitem__(0, 5),
    "out": lambda y: torch.add(y, 1, out=y),
}


@pytest.mark.parametrize("name", WRITES)
def test_write_before(name: str) -> None:
    write = WRITES[name]

    def fn(x: Tensor, y: Tensor) -> Tensor:
        write(y)
        try:
            return torch.linalg.cholesky(x) + y
        except RuntimeError:
            return y * 3

    _check(fn, ones)


def test_finally() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        y.add_(1)
        try:
            return torch.linalg.cholesky(x) + y
        finally:
            y.mul_(2)

    _check(fn, ones)


def test_handler_in_a_caller() -> None:
    def inner(x: Tensor, y: Tensor) -> Tensor:
        y.add_(1)
        with torch.no_grad():
            return torch.linalg.cholesky(x) + y

    def fn(x: Tensor, y: Tensor) -> Tensor:
        try:
            return inner(x, y)
        except RuntimeError:
            return y * 3

    _check(fn, ones)


@contextlib.contextmanager
def swallow() -> Iterator[None]:
    try:
        yield
    except RuntimeError:
        pass


class Swallow:
    """A manager that swallows."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> bool:
        return True


@pytest.mark.parametrize("manager", [Swallow, swallow])
def test_manager_that_swallows(manager: Callable[[], Any]) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        y.add_(1)
        with manager(), torch.no_grad():
            y = y + torch.linalg.cholesky(x)
        return y

    _check(fn, ones)


def test_error_in_a_handler() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        y.add_(1)
        try:
            try:
                raise ValueError
            except ValueError:
                return torch.linalg.cholesky(x) + y
        except RuntimeError:
            return y * 3

    _check(fn, ones)


def test_batch_norm_before() -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(2)

        def fn(x: Tensor) -> Tensor:
            y = norm(x)
            try:
                return torch.linalg.cholesky(x) + y
            except RuntimeError:
                return y * 3

        fn = wrap(fn)
        seen = []
        for x in (GOOD, GOOD, BAD, GOOD):
            seen.append([fn(x).tolist(), [buffer.tolist() for buffer in norm.buffers()]])
        return seen

    assert run(api.compile) == run(lambda fn: fn)


def test_attribute_and_write_before() -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        class State:
            n = 0

        state = State()

        def fn(x: Tensor, y: Tensor) -> Tensor:
            y.add_(1)
            state.n = 7
            try:
                return torch.linalg.cholesky(x) + y
            except RuntimeError:
                state.n = 9
                return y * 3

        fn = wrap(fn)
        seen = []
        for x in (GOOD, GOOD, BAD, GOOD):
            y = ones()
            seen.append([fn(x, y).tolist(), state.n, y.tolist()])
            state.n = 0
        return seen

    assert run(api.compile) == run(lambda fn: fn)


def test_gradient_of_an_input_that_is_put_back() -> None:
    """The input was no part of a gradient's graph, became one, and isn't one again."""
    w = torch.ones(2, requires_grad=True)

    def fn(x: Tensor, y: Tensor) -> Tensor:
        y += w
        try:
            return torch.linalg.cholesky(x) + y
        except RuntimeError:
            return y * 3

    _check(fn, ones)


def test_own_frames_without_a_handler() -> None:
    """What was written is taken back, and the function raises in its own frames."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        y.add_(1)
        with torch.no_grad():
            return torch.linalg.cholesky(x) + y

    compiled = _check(fn, ones)
    with pytest.raises(RuntimeError) as raised:
        compiled(BAD, ones())
    assert not hasattr(raised.value, "__notes__")
    assert raised.traceback[-1].name == "fn"


@pytest.mark.parametrize("backend", ["fx", "aot_eager"])
def test_other_backends(backend: str) -> None:
    table = torch.ones(3)

    def fn(i: Tensor, y: Tensor) -> Tensor:
        y.add_(1)
        try:
            return table[i] + y
        except IndexError:
            return y * 3

    compiled = api.compile(fn, backend=backend)
    for last in (1, 2, 7, 8, 0):
        y, z, i = ones(), ones(), torch.tensor([0, last])
        # A backend may count writes otherwise.
        assert torch.equal(compiled(i, y), fn(i, z))
        assert torch.equal(y, z)


def test_the_error_of_a_backend() -> None:
    """Nothing handles it: it is the backend's, and no call of the function hides it."""

    def backend(gm: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        def fails(*args: Any) -> Any:
            raise KeyError("mine")

        return fails

    compiled = api.compile(lambda x: x + 1, backend=backend)
    compiled(GOOD)
    if not api.PLAIN:
        with pytest.raises(KeyError, match="mine"):
            compiled(GOOD)
