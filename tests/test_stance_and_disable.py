"""`stator.set_stance` and `stator.disable`: calls that run natively."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import logging
import pickle
import threading
import traceback
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import stator

X = torch.arange(3.0)


@pytest.fixture(autouse=True)
def _default_stance() -> Iterator[None]:
    yield
    stator.set_stance("default")


@pytest.fixture
def breaks(caplog: pytest.LogCaptureFixture) -> Any:
    """The records of the `graph_breaks` log."""
    stator.set_logs(graph_breaks=True)
    caplog.set_level(logging.INFO, "stator")
    return caplog


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


# --- set_stance -------------------------------------------------------------------------------------


def simple(x, n):
    return x * n


def counters(compiled: Any) -> tuple[int, int, int]:
    stats = stator.stats(compiled)
    return stats.traces, stats.hits, stats.native


def test_force_eager() -> None:
    compiled = stator.compile(simple)
    compiled(X, 2)
    with stator.set_stance("force_eager"):
        same(compiled(X, 2), X * 2)
        same(compiled(X, 3), X * 3)
    assert counters(compiled) == (1, 0, 2)
    same(compiled(X, 2), X * 2)
    same(compiled(X, 3), X * 3)
    assert counters(compiled) == (2, 1, 2)


def test_eager_on_recompile() -> None:
    compiled = stator.compile(simple)
    compiled(X, 2)
    with stator.set_stance("eager_on_recompile"):
        for n in (2, 3, 2):
            same(compiled(X, n), X * n)
    assert counters(compiled) == (1, 2, 1)
    compiled(X, 3)
    assert counters(compiled) == (2, 2, 1)


def test_fail_on_recompile() -> None:
    compiled = stator.compile(simple)
    compiled(X, 2)
    with stator.set_stance("fail_on_recompile"):
        same(compiled(X, 2), X * 2)
        with pytest.raises(stator.RecompileError) as raised:
            compiled(X, 3)
    error = raised.value
    first = simple.__code__.co_firstlineno
    place = f"{__file__}:{first + 1}: return x * n"
    assert (error.function, error.file, error.line) == ("simple", __file__, first)
    assert len(error.failures) == 1
    assert error.failures[0].startswith("L['n'] == 2  # found 3, read at ")
    assert error.failures[0].endswith(place.rpartition("/")[2])
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    same(compiled(X, 3), X * 3)
    assert counters(compiled) == (2, 1, 0)


def test_a_stance_as_function_block_and_decorator() -> None:
    compiled = stator.compile(simple)

    def native() -> bool:
        before = stator.stats(compiled).native
        compiled(X, 2)
        return stator.stats(compiled).native == before + 1

    stator.set_stance("force_eager")
    assert native()
    with stator.set_stance("default"):
        assert not native()
        with stator.set_stance("force_eager"):
            assert native()
        assert not native()
    assert native()
    stator.set_stance("default")
    assert not native()

    @stator.set_stance("force_eager")
    def decorated(depth=1):
        assert native()
        if depth:
            decorated(depth - 1)
        assert native()

    assert not native(), "decorating changes nothing"
    for _ in range(2):
        decorated()
        assert not native()
    with pytest.raises(KeyError), stator.set_stance("force_eager"):
        raise KeyError
    assert not native()
    stance = stator.set_stance("force_eager")
    with stance:
        assert native()
    assert not native()
    with stance:
        assert native()
    assert not native()


def test_a_stance_is_the_processs() -> None:
    compiled = stator.compile(simple)
    with stator.set_stance("force_eager"):
        thread = threading.Thread(target=compiled, args=(X, 2))
        thread.start()
        thread.join()
    assert counters(compiled) == (0, 0, 1)


def test_the_stance_of_torch() -> None:
    """As model code sets it: a function, a block, or a decorator."""
    compiled = stator.compile(simple)
    compiled(X, 2)
    with torch.compiler.set_stance("force_eager"):
        same(compiled(X, 2), X * 2)
    assert counters(compiled) == (1, 0, 1)
    same(compiled(X, 2), X * 2)
    assert counters(compiled) == (1, 1, 1)
    with torch.compiler.set_stance("eager_on_recompile"):
        same(compiled(X, 2), X * 2)
        same(compiled(X, 3), X * 3)
    assert counters(compiled) == (1, 2, 2)
    with torch.compiler.set_stance("fail_on_recompile"):
        same(compiled(X, 2), X * 2)
        with pytest.raises(stator.RecompileError):
            compiled(X, 3)
        with stator.set_stance("force_eager"):  # Stator's own goes before
            same(compiled(X, 3), X * 3)
    assert counters(compiled) == (1, 3, 3)

    @torch.compiler.set_stance("force_eager")
    def natively() -> Any:
        return compiled(X, 4)

    same(natively(), X * 4)
    with torch.compiler.set_stance("eager_then_compile"):  # one that Stator doesn't have
        same(compiled(X, 3), X * 3)
    assert counters(compiled) == (2, 3, 4)


def test_a_stance_set_while_recording() -> None:
    inner = stator.compile(simple)

    def fn(x):
        with stator.set_stance("force_eager"):
            return inner(x, 2)

    compiled = stator.compile(fn)
    for _ in range(3):
        same(compiled(X), X * 2)


# --- disable ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("recursive", [True, False])
def test_disable_and_the_compiled_functions_below(recursive: bool) -> None:
    inner = stator.compile(simple)

    @stator.disable(recursive=recursive)
    def middle(x):
        return inner(x, 2) + 1

    outer = stator.compile(lambda x: middle(x) * 2)
    for _ in range(3):
        same(outer(X), (X * 2 + 1) * 2)
        same(middle(X), X * 2 + 1)
    assert counters(inner) == ((0, 0, 6) if recursive else (1, 5, 0))
    inner(X, 2)
    assert stator.stats(inner).traces == 1, "outside of it nothing has changed"


def test_disabled_functions_raise() -> None:
    inner = stator.compile(simple)

    @stator.disable
    def fails(x):
        inner(x, 2)
        raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(KeyError) as raised:
            fails(X)
    names = [entry.name for entry in traceback.extract_tb(raised.value.__traceback__)]
    assert names == ["test_disabled_functions_raise", "fails"], "no frame of Stator's"
    inner(X, 2)
    assert counters(inner) == (1, 0, 2)


class Owner:
    @stator.disable(reason="a method")
    def method(self, x):
        return x + self.n

    n = 1

    @stator.disable
    @classmethod
    def of_class(cls, x):
        return x + cls.n

    @staticmethod
    @stator.disable
    def static(x):
        return x + 2


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: Owner().method(x) * 2,
        lambda x: OWNER.method(x) * 2,
        lambda x: Owner.method(OWNER, x) * 2,
        lambda x: Owner.of_class(x) * 2,
        lambda x: OWNER.static(x) * 2,
        lambda x: functools.partial(OWNER.method, x)() * 2,
        lambda x: list(map(functools.partial(OWNER.static), [x])),
        lambda x: list(map(OWNER.static, [x])),
    ],
)
def test_disabled_methods_end_the_trace(fn: Any, breaks: Any) -> None:
    compiled = stator.compile(fn)
    for _ in range(3):
        same(compiled(X), fn(X))
    assert "SB016" in breaks.messages[0]


OWNER = Owner()


def test_disabled_functions_are_like_functions() -> None:
    disabled = stator.disable(simple)
    assert repr(disabled).startswith("<disabled function simple at 0x")
    assert copy.copy(disabled) is disabled is copy.deepcopy(disabled)
    assert disabled.__name__ == "simple" and disabled.__module__ == __name__
    assert inspect.signature(disabled) == inspect.signature(simple)
    loaded = pickle.loads(pickle.dumps(disabled))
    same(loaded(X, 2), X * 2)
    assert loaded.__wrapped__ is simple
    assert pickle.loads(pickle.dumps(NAMED)) is NAMED
    again = stator.disable(stator.disable(simple, reason="first"), recursive=False)
    assert again.__stator_disable__ == "first"


@stator.disable
def NAMED(x):
    return x


def test_disabled_functions_are_collected() -> None:
    def build() -> weakref.ref[Any]:
        @stator.disable
        def fn(x):
            return holder and x

        holder = [fn]
        return weakref.ref(fn.__wrapped__)

    watched = build()
    gc.collect()
    assert watched() is None


def test_disabled_async_and_generator_functions_stay_functions() -> None:
    @stator.disable
    async def later(x):
        return x

    @stator.disable
    def steps(x):
        yield x

    assert inspect.iscoroutinefunction(later)
    assert inspect.isgeneratorfunction(steps)
    compiled = stator.compile(lambda x: next(steps(x)) + 1)
    for _ in range(2):
        same(compiled(X), X + 1)
