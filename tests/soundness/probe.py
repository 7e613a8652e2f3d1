"""Calls a function plain and compiled, compares, and asks the statistics what happened."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from differential.support import api
from differential.support.describe import describe_all, first_difference

Steps = Generator[Any, None, None]


def observe(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """The description of the result or exception of one call."""
    try:
        return describe_all({"result": fn(*args, **kwargs), "args": args, "kwargs": kwargs})
    except Exception as error:
        return describe_all({"error": error})


class Probe:
    """One function without side effects, with its compiled form beside it."""

    def __init__(self, fn: Callable[..., Any], **options: Any) -> None:
        self.fn = fn
        self.compiled = api.compile(fn, **options)
        self.last: list[str] = []

    def right(self, *args: Any, **kwargs: Any) -> list[str]:
        """The compiled call shows what the plain one shows."""
        expected = observe(self.fn, args, kwargs)
        found = observe(self.compiled, args, kwargs)
        difference = first_difference(expected, found)
        assert difference is None, f"{difference}\nreason: {api.reason(self.compiled)}"
        self.last = expected
        return expected

    def steady(self, *args: Any, **kwargs: Any) -> None:
        """Right, and answered by a replay."""
        if api.PLAIN:
            self.right(*args, **kwargs)
            return
        traces, hits = api.traces(self.compiled), api.hits(self.compiled)
        self.right(*args, **kwargs)
        assert api.traces(self.compiled) == traces, f"retraced: {self.compiled.guards()}"
        assert api.hits(self.compiled) > hits, f"not replayed: {api.reason(self.compiled)}"  # type: ignore[operator]

    def retraced(self, *args: Any, **kwargs: Any) -> None:
        """Right, other than before, and recorded anew."""
        traces = api.traces(self.compiled)
        self.changed(*args, **kwargs)
        if traces is not None:
            assert api.traces(self.compiled) > traces, "a guard is missing"  # type: ignore[operator]

    def changed(self, *args: Any, **kwargs: Any) -> None:
        """Right, and other than before."""
        before = self.last
        assert self.right(*args, **kwargs) != before, "the test changes nothing that shows"


def flip(make: Callable[[], Steps]) -> Callable[[], None]:
    """Makes a test of a generator that changes what a function read, and changes it back.

    The first yield gives `(fn, args)`. After the code behind it ran, the function must be recorded
    anew and be right; after the code behind the second yield, the first entry must hold again.
    A later yield may give other arguments.
    """

    def test() -> None:
        api.reset()
        steps = make()
        fn, args = next(steps)
        probe = Probe(fn)
        probe.right(*args)
        probe.steady(*args)
        args = next(steps) or args
        probe.retraced(*args)
        probe.steady(*args)
        try:
            args = next(steps) or args
        except StopIteration:
            return
        probe.steady(*args)
        probe.steady(*args)

    return _named_as(test, make)


def right_after(make: Callable[[], Steps]) -> Callable[[], None]:
    """As `flip`, where running natively is allowed: only results are compared, at every step."""

    def test() -> None:
        api.reset()
        steps = make()
        fn, args = next(steps)
        probe = Probe(fn)
        for _ in range(3):
            probe.right(*args)
        for given in steps:
            args = given or args
            for _ in range(3):
                probe.right(*args)

    return _named_as(test, make)


def two_worlds(make: Callable[[], Steps]) -> Callable[[], None]:
    """As `right_after` for functions that write: the plain and the compiled one have each their own objects."""

    def run(wrap: Callable[[Any], Any]) -> list[list[str]]:
        api.reset()
        steps = make()
        fn, args = next(steps)
        fn = wrap(fn)
        seen = [observe(fn, args, {}) for _ in range(3)]
        for given in steps:
            args = given or args
            seen += [observe(fn, args, {}) for _ in range(3)]
        return seen

    def test() -> None:
        assert run(api.compile) == run(lambda fn: fn)

    return _named_as(test, make)


def same(make: Callable[[], Steps]) -> Callable[[], None]:
    """Makes a test of a generator whose every step must leave the recorded entry valid."""

    def test() -> None:
        api.reset()
        steps = make()
        fn, args = next(steps)
        probe = Probe(fn)
        probe.right(*args)
        probe.steady(*args)
        for given in steps:
            args = given or args
            probe.steady(*args)
            probe.steady(*args)

    return _named_as(test, make)


def _named_as(test: Callable[[], None], make: Callable[..., Any]) -> Callable[[], None]:
    test.__name__ = make.__name__
    test.__doc__ = make.__doc__
    test.__module__ = make.__module__
    return test
