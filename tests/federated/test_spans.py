"""Spans: what providers are told, and in which order."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from stator.federated import framework as fw


class Recorder(fw.TracingProvider):
    """Yields a number for each span, and keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.count = 0

    def span(self, scope, sub_scope, nonce, parent, args, kwargs, options):
        assert isinstance(nonce, int)
        self.count += 1
        own = self.count
        self.events.append(("begin", own, scope, sub_scope, parent, args, kwargs, options))
        result = yield own
        self.events.append(("end", own, type(result).__name__))

    @contextlib.contextmanager
    def _ready(self, parent: Any) -> Iterator[None]:
        self.events.append(("rpc", parent))
        yield

    def wrap_rpc(self, parent_span_yield: Any) -> Any:
        return self._ready(parent_span_yield)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    fw.set_tracing_providers([made])
    yield made
    fw.set_tracing_providers([])


def test_span(recorder: Recorder) -> None:
    with fw.span("a", "b", x=1):
        with fw.span("c", "d"):
            pass
        with fw.wrap_rpc_in_trace_context():
            pass
    assert recorder.events == [
        ("begin", 1, "a", "b", None, None, None, {"x": 1}),
        ("begin", 2, "c", "d", 1, None, None, {}),
        ("end", 2, "TracedSpan"),
        ("rpc", 1),
        ("end", 1, "TracedSpan"),
    ]


def test_span_with_an_error(recorder: Recorder) -> None:
    with pytest.raises(ValueError), fw.span("a", "b"):
        raise ValueError
    assert recorder.events[-1] == ("end", 1, "TracedFunctionThrew")


def test_traced_function(recorder: Recorder) -> None:
    class C:
        @fw.trace
        def m(self, x):
            return x + 1

        @fw.trace(flag=True)
        def fails(self):
            raise ValueError("own")

    c = C()
    assert c.m(1) == 2
    assert recorder.events == [
        ("begin", 1, "C", "m", None, (c, 1), {}, {}),
        ("end", 1, "TracedFunctionReturned"),
    ]
    with pytest.raises(ValueError, match="own") as caught:
        c.fails()
    assert recorder.events[-1] == ("end", 2, "TracedFunctionThrew")
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names == ["test_traced_function", "fails"]


def test_traced_async_function(recorder: Recorder) -> None:
    @fw.trace
    async def inner(x):
        await asyncio.sleep(0)
        return x

    @fw.trace
    async def outer():
        return await asyncio.gather(inner(1), inner(2))

    assert asyncio.run(outer()) == [1, 2]
    begun = [event for event in recorder.events if event[0] == "begin"]
    assert [event[3:6] for event in begun] == [
        ("outer", None, ()),
        ("inner", 1, (1,)),
        ("inner", 1, (2,)),
    ]
    assert recorder.events[-1] == ("end", 1, "TracedFunctionReturned")


def test_coroutine_in_the_current_span(recorder: Recorder) -> None:
    async def work():
        with fw.span("in", "side"):
            await asyncio.sleep(0)

    with fw.span("a", "b"):
        coroutine = fw.wrap_coroutine_in_current_trace_context(work())
    asyncio.run(coroutine)
    assert recorder.events[2][:5] == ("begin", 2, "in", "side", 1)


def test_task_factory(recorder: Recorder) -> None:
    async def work():
        with fw.span("in", "side"):
            pass

    async def main():
        asyncio.get_running_loop().set_task_factory(fw.propagate_trace_context_task_factory)
        with fw.span("a", "b"):
            task = asyncio.get_running_loop().create_task(work())
        await task

    asyncio.run(main())
    assert recorder.events[2][:5] == ("begin", 2, "in", "side", 1)


def test_without_providers() -> None:
    with fw.span("a", "b"):
        assert fw.trace(lambda x: x)(1) == 1
