"""Functions wrapped before, after and around: what they get and give, and who is on the stack."""

from __future__ import annotations

import functools
import inspect
import sys
import traceback
from typing import Any

import numpy as np
import pytest

import stator.federated as fl
from stator.federated import framework as fw


def callers() -> list[str]:
    """The functions on the stack, from the caller's caller up to the test."""
    frame, names = sys._getframe(1), []
    while frame is not None:
        names.append(frame.f_code.co_name)
        if names[-1].startswith("test_"):
            return names
        frame = frame.f_back
    raise AssertionError("the test is not on the stack")


def test_before() -> None:
    def change(x: int, y: int = 0) -> fw.Arguments:
        return fw.Arguments(x + 1, y=y)

    @fw.before(change)
    def f(x: int, y: int) -> Any:
        return x, y, callers()

    assert f(1, y=5) == (2, 5, ["f", "test_before"])


def test_before_with_one_argument_or_none() -> None:
    assert fw.before(lambda x: x * 10)(lambda x: x)(4) == 40
    assert fw.before(lambda *args, **kwargs: None)(lambda x, y: (x, y))(4, y=5) == (4, 5)


def test_after() -> None:
    @fw.after(lambda result: [*result, "after"])
    def f(x: int) -> list[Any]:
        return [x, *callers()]

    assert f(1) == [1, "f", "test_after", "after"]


def test_around() -> None:
    seen = []

    @fw.around
    def change(x: int):
        seen.append(("before", x))
        result = yield fw.Arguments(x + 1)
        seen.append(("after", result))
        yield result * 2
        seen.append("end")

    @change
    def f(x: int) -> int:
        assert callers() == ["f", "test_around"]
        seen.append(("in", x))
        return x + 10

    assert f(1) == 24
    assert seen == [("before", 1), ("in", 2), ("after", 12), "end"]


def test_around_keeps_what_it_does_not_change() -> None:
    @fw.around
    def nothing(*args: Any, **kwargs: Any):
        yield

    assert nothing(lambda x, y: (x, y))(1, y=2) == (1, 2)


def test_around_in_a_context() -> None:
    stack = fw.get_context_stack()
    before = stack.current

    @fw.around
    def inside(*args: Any):
        with stack.install("mine"):
            yield

    assert inside(lambda: stack.current)() == "mine"
    assert stack.current is before

    @inside
    def fails() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    assert stack.current is before


def test_traceback_has_the_users_frames_only() -> None:
    @fw.around
    def passing(*args: Any):
        try:
            yield
        finally:
            pass

    def f() -> None:
        raise ValueError("own")

    wrapped = passing(fw.before(lambda: None)(fw.after(lambda x: x)(fw.with_context(object)(f))))
    with pytest.raises(ValueError, match="own") as caught:
        wrapped()
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names == ["test_traceback_has_the_users_frames_only", "f"]


def test_an_error_that_the_wrapper_replaces() -> None:
    @fw.around
    def translating():
        try:
            yield
        except KeyError as error:
            raise ValueError("translated") from error

    def f() -> None:
        raise KeyError

    with pytest.raises(ValueError, match="translated") as caught:
        translating(f)()
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_error_that_the_wrapper_handles() -> None:
    @fw.around
    def handling():
        try:
            yield
        except KeyError:
            yield "instead"

    def f() -> None:
        raise KeyError

    assert handling(f)() == "instead"


def test_an_error_that_the_wrapper_only_catches() -> None:
    """Without another result the function has none, so its error stays."""

    @fw.around
    def catching():
        try:
            yield
        except KeyError:
            pass

    def f() -> None:
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        catching(f)()


def test_stop_iteration_passes() -> None:
    @fw.around
    def nothing():
        yield

    def f() -> None:
        raise StopIteration("own")

    with pytest.raises(StopIteration, match="own"):
        nothing(f)()


def test_wrong_generators() -> None:
    @fw.around
    def never():
        if False:
            yield

    @fw.around
    def thrice():
        yield
        yield
        yield

    with pytest.raises(RuntimeError, match="ended before its `yield`"):
        never(lambda: 1)()
    with pytest.raises(RuntimeError, match="more than two"):
        thrice(lambda: 1)()


def test_the_generator_ends_when_the_result_is_wrong() -> None:
    """What is left early is closed."""
    ended = []

    @fw.around
    def thrice():
        try:
            yield
            yield
            yield
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError):
        thrice(lambda: 1)()
    assert ended == [True]


def test_methods() -> None:
    class C:
        @fw.before(lambda self, x: fw.Arguments(self, x + 1))
        def m(self, x: int) -> Any:
            return self, x

    c = C()
    assert c.m(1) == (c, 2)
    assert C.m(c, 1) == (c, 2)


def test_looks_like_the_function() -> None:
    @fw.around
    def nothing(*args: Any):
        yield

    @nothing
    def f(a, b=1):
        """What f does."""

    assert f.__name__ == "f"
    assert f.__doc__ == "What f does."
    assert f.__module__ == __name__
    assert str(inspect.signature(f)) == "(a, b=1)"


def test_wrapped_functions_become_computations() -> None:
    @fw.around
    def nothing(*args: Any, **kwargs: Any):
        yield

    @fl.federated_computation(np.int32, np.int32)
    @nothing
    def pick(a, b):
        return b

    assert str(pick.to_building_block()) == "(pick_arg -> pick_arg[1])"


def test_the_function_that_is_traced_is_called_from_the_decorator() -> None:
    found = []

    def body(x: Any) -> Any:
        found.append(callers())
        return x

    fl.federated_computation(body, np.int32)
    polymorphic = fl.federated_computation(body)
    fl.federated_computation(lambda x: polymorphic(x), np.int32)
    functools.partial(fl.federated_computation, body)(np.float32)
    name = "test_the_function_that_is_traced_is_called_from_the_decorator"
    assert found == [["body", name], ["body", "<lambda>", name], ["body", name]]
