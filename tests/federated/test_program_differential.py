"""Programs' parts beside those of `federated_language.program`: the same calls, the same results
or classes of exceptions."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime
import inspect
import logging
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import stator.federated as fl
from stator.federated import framework, program
from stator.federated.common_libs import structure

peer = pytest.importorskip("federated_language")
attrs = pytest.importorskip("attrs")


class Pair(NamedTuple):
    x: Any
    y: Any


@attrs.define
class Both:
    x: Any
    y: Any


@dataclasses.dataclass
class Lone:
    x: Any


class Side:
    """One of the two implementations."""

    def __init__(self, language: Any, framework: Any, structure: Any) -> None:
        self.fl = language
        self.program = language.program
        self.framework = framework
        self.Struct = structure.Struct

        class Reference(self.program.MaterializableValueReference):
            def __init__(self, value: Any) -> None:
                self.value = value

            @property
            def type_signature(self) -> Any:
                return language.TensorType(np.int32)

            async def get_value(self) -> Any:
                await asyncio.sleep(0)
                if isinstance(self.value, Exception):
                    raise self.value
                return self.value

            def __repr__(self) -> str:
                return f"Reference({self.value})"

        class Recording(self.program.ReleaseManager):
            def __init__(self) -> None:
                self.calls: list[Any] = []

            async def release(self, value: Any, key: Any) -> None:
                await asyncio.sleep(0)
                self.calls.append((value, key))

        class Failing(self.program.ReleaseManager):
            async def release(self, value: Any, key: Any) -> None:
                raise KeyError(key)

        class Context(framework.AsyncContext):
            """Gives a result, and remembers arguments."""

            def __init__(self, result: Any) -> None:
                self.result = result
                self.arguments: list[Any] = []

            async def invoke(self, comp: Any, arg: Any) -> Any:
                self.arguments.append(arg)
                await asyncio.sleep(0)
                if isinstance(self.result, Exception):
                    raise self.result
                return self.result

        class Computation(language.Computation):
            def __init__(self, type_signature: Any) -> None:
                self._type = type_signature

            @property
            def type_signature(self) -> Any:
                return self._type

            def __call__(self, *args: Any, **kwargs: Any) -> Any:
                raise AssertionError

            def __hash__(self) -> int:
                return 1

        self.Reference = Reference
        self.Recording = Recording
        self.Failing = Failing
        self.Context = Context
        self.Computation = Computation


def sides() -> list[Side]:
    import federated_language.common_libs.structure as theirs

    return [Side(fl, framework, structure), Side(peer, peer.framework, theirs)]


# `fl.program` is found once it is asked for.
assert fl.program is program
OURS, THEIRS = sides()


def outcome(call: Callable[[Side], Any], side: Side) -> tuple[str, str]:
    try:
        found = call(side)
        if inspect.isawaitable(found):
            found = asyncio.run(awaited(found))
    except Exception as error:
        return "raises", type(error).__name__
    return "gives", repr(found)


async def awaited(of: Any) -> Any:
    return await of


def same(call: Callable[[Side], Any]) -> None:
    assert outcome(call, OURS) == outcome(call, THEIRS)


TREES = {
    "lone": 1,
    "none": None,
    "text": "abc",
    "bytes": b"ab",
    "bytearray": bytearray(b"ab"),
    "list": [1, [2, (3,)]],
    "dict": {"b": 1, "a": {"d": [2], "c": 3}},
    "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
    "numbers as keys": {2: 1, 1: 2},
    "keys of two kinds": {1: 2, "a": 3},
    "named tuple": Pair(1, Pair([2], {"a": 3})),
    "attrs": [Both(1, 2), 3],
    "dataclass": [Lone(1)],
    "array": [np.arange(3)],
    "set": [{1}],
    "empty": [[], {}, ()],
    "user list": collections.UserList([1, 2]),
    "deque": collections.deque([1, 2]),
    "proxy": types.MappingProxyType({"b": 1, "a": 2}),
    "nones": [None, {"a": None}],
}


@pytest.mark.parametrize("name", TREES)
def test_structures(name: str) -> None:
    tree = TREES[name]
    same(lambda side: side.program.structure_utils.flatten(tree))
    same(lambda side: side.program.structure_utils.flatten_with_name(tree))
    same(lambda side: side.program.structure_utils.map_structure(lambda leaf: [leaf], tree))
    same(lambda side: side.program.structure_utils.unflatten_as(tree, [7] * 2))
    same(lambda side: side.program.structure_utils.unflatten_as(tree, [7] * 3))
    same(lambda side: side.program.materialize_value(tree))


@pytest.mark.parametrize(
    "trees",
    [
        ([1, 2], [3, 4]),
        ([1, 2], [3]),
        ([1, 2], (3, 4)),
        ([1, 2], {"a": 3, "b": 4}),
        ({"a": 1}, {"b": 1}),
        ({"a": 1, "b": 2}, collections.OrderedDict(b=3, a=4)),
        (1, 2),
        (1, [2]),
        ([1], 2),
        ([[1]], [[2, 3]]),
        ([{"a": 1}], [{"b": 2}]),
        (Pair(1, 2), Pair(3, 4)),
        (Pair(1, 2), (3, 4)),
        (),
    ],
    ids=str,
)
def test_structures_together(trees: tuple[Any, ...]) -> None:
    same(lambda side: side.program.structure_utils.map_structure(lambda *of: sum(of), *trees))


@pytest.mark.parametrize(
    ("shallow", "tree"),
    [
        ([0, 0], [[1, 2], 3]),
        ([0], [[1], [2]]),
        ({"a": 0}, {"a": [1], "b": 2}),
        (0, [1, 2]),
        ([0], 1),
    ]
    + [([0], (1,)), ([0, 0], [1]), ({"a": 0}, {"b": 1}), ({"a": [0]}, {"a": [[2]]})],
)
def test_structures_up_to(shallow: Any, tree: Any) -> None:
    same(lambda side: side.program.structure_utils.map_structure_up_to(shallow, repr, tree))


@pytest.mark.parametrize(
    "tree",
    [
        lambda of: of(3),
        lambda of: {"b": of(1), "a": [of(2), (of(3), "x")]},
        lambda of: Pair(of(1), 2),
        lambda of: [of([of(1)])],
        lambda of: [of(ValueError("no")), of(1)],
        lambda of: [object, None, of(None)],
    ],
)
def test_materializing(tree: Callable[[Any], Any]) -> None:
    same(lambda side: side.program.materialize_value(tree(side.Reference)))


def test_types_of_what_is_at_the_server() -> None:
    def types_of(side: Side) -> list[Any]:
        lang = side.fl
        number = lang.TensorType(np.int32)
        at_server = lang.FederatedType(number, lang.SERVER)
        at_clients = lang.FederatedType(number, lang.CLIENTS)
        return [
            *(number, at_server, at_clients, lang.FederatedType(number, lang.CLIENTS, True)),
            lang.StructType([number, at_server]),
            lang.StructType([("a", at_clients)]),
            lang.StructType([("a", lang.StructType([at_server, at_clients]))]),
            lang.SequenceType(number),
            lang.FederatedType(lang.SequenceType(number), lang.SERVER),
            lang.FunctionType(number, number),
            lang.FunctionType(at_clients, at_server),
            lang.StructType([]),
            lang.PlacementType(),
            *(lang.AbstractType("T"), 3, None, "T"),
        ]

    count = len(types_of(OURS))
    for at in range(count):
        same(lambda side, at=at: side.program.contains_only_server_placed_data(types_of(side)[at]))


def released(side: Side, make: Callable[[Any], Any], values: list[Any]) -> Any:
    target = side.Recording()
    manager = make(target)
    for number, value in enumerate(values):
        asyncio.run(manager.release(value, number))
    return target.calls


@pytest.mark.parametrize("delay", [-1, 0, 1, 2, 9, True, "a"])
def test_delays(delay: Any) -> None:
    same(
        lambda side: released(
            side, lambda to: side.program.DelayedReleaseManager(to, delay), [1, 2, 3, 4]
        )
    )


@pytest.mark.parametrize(
    "period",
    [-1, 0, 1, 2, 3, True, datetime.timedelta(0), datetime.timedelta(-1), datetime.timedelta(1)],
)
def test_periods(period: Any) -> None:
    same(
        lambda side: released(
            side, lambda to: side.program.PeriodicReleaseManager(to, period), [1, 2, 3, 4, 5]
        )
    )


VALUES = [
    {"a": 1, "b": {"c": 2, "d": [3, 4]}},
    [1, [2], (3, 4)],
    ((1,), 2),
    collections.OrderedDict(b=1, a=2),
    {"x": None, "y": [None]},
    Pair(1, [2, 3]),
    [Pair(1, 2), 5],
    {"a": [], "x": 1},
    [],
    1,
    None,
    "text",
    [Lone(1), {1}],
    [Both(1, 2), 3],
    Both(1, [2, 3]),
]
FILTERS: dict[str, Callable[[Any], Any]] = {
    "all": lambda path: True,
    "nothing": lambda path: False,
    "not a": lambda path: path[:1] != ("a",),
    "not the first": lambda path: path[:1] != (0,),
    "not y/0": lambda path: path != ("y", 0),
    "not b/d/0": lambda path: path != ("b", "d", 0),
    "text": lambda path: "yes",
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters(name: str) -> None:
    for value in VALUES:
        same(
            lambda side, value=value: released(
                side, lambda to: side.program.FilteringReleaseManager(to, FILTERS[name]), [value]
            )
        )


def test_filters_that_raise() -> None:
    same(
        lambda side: released(
            side,
            lambda to: side.program.FilteringReleaseManager(to, lambda path: 1 / 0),
            [{"a": 1}],
        )
    )


def test_filters_of_named_tuples() -> None:
    def without_x(side: Side) -> Any:
        return released(
            side,
            lambda to: side.program.FilteringReleaseManager(to, lambda path: path[-1] != "x"),
            [Pair(1, 2)],
        )

    same(without_x)
    assert outcome(without_x, OURS) == ("raises", "NotFilterableError")


def test_filters_of_references_and_what_they_are_asked() -> None:
    def asked(side: Side) -> Any:
        paths: list[Any] = []
        released(
            side,
            lambda to: side.program.FilteringReleaseManager(to, lambda p: paths.append(p) or True),
            [{"a": [1, Pair(2, side.Reference(3))]}, 4],
        )
        return paths

    same(asked)
    same(
        lambda side: released(
            side,
            lambda to: side.program.FilteringReleaseManager(to, lambda path: path == ("a",)),
            [{"a": side.Reference(1), "b": 2}],
        )
    )


def test_groups() -> None:
    def grouped(side: Side) -> Any:
        first, second = side.Recording(), side.Recording()
        asyncio.run(side.program.GroupingReleaseManager([first, second]).release({"a": 1}, "k"))
        return first.calls, second.calls

    same(grouped)
    same(lambda side: side.program.GroupingReleaseManager([]))
    same(
        lambda side: side.program.GroupingReleaseManager(
            [side.Failing(), side.Recording()]
        ).release(1, "k")
    )


def test_memory() -> None:
    def kept(side: Side) -> Any:
        manager = side.program.MemoryReleaseManager()
        for value, key in (
            *((1, 1), ({"a": side.Reference(3)}, "k"), (2, 1), (None, None)),
            ([1, 2], (1, 2)),
        ):
            asyncio.run(manager.release(value, key))
        before = manager.values()
        manager.values().clear()
        manager.remove_all()
        return before, manager.values()

    same(kept)
    same(lambda side: side.program.MemoryReleaseManager().release(1, []))


def test_logging(caplog: pytest.LogCaptureFixture) -> None:
    """The peer's goes through `absl`; ours to the logger of this package, one record each."""
    caplog.set_level(logging.INFO)
    for side in (OURS, THEIRS):
        caplog.clear()
        manager = side.program.LoggingReleaseManager()
        asyncio.run(manager.release({"a": side.Reference(1)}, 3))
        asyncio.run(manager.release(2, None))
        assert "{'a': 1}" in caplog.text and "key" in caplog.text and "2" in caplog.text
        same(lambda side: side.program.LoggingReleaseManager().release(1))
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_latest_states() -> None:
    def latest(versions: Any) -> Callable[[Side], Any]:
        def call(side: Side) -> Any:
            class States(side.program.ProgramStateManager):
                async def get_versions(self) -> Any:
                    return versions

                async def load(self, version: int, structure: Any) -> Any:
                    return "loaded", version, structure

                async def save(self, program_state: Any, version: int) -> None: ...

            return States().load_latest("structure")

        return call

    for versions in (None, [], [0], [1, 5, 3]):
        same(latest(versions))


def test_abstract_classes() -> None:
    for name in program.__all__:
        if inspect.isclass(getattr(program, name)) and inspect.isabstract(getattr(program, name)):
            same(lambda side, name=name: getattr(side.program, name)())


def invoked(
    side: Side, result_type: Any, result: Any, parameter: Any = None, argument: Any = None
) -> Any:
    """What references give, the containers they are in, and what the context was called with."""

    async def run() -> Any:
        context = side.Context(result)
        native = side.program.NativeFederatedContext(context)
        comp = side.Computation(side.fl.FunctionType(parameter, result_type))
        references = native.invoke(comp, argument)
        kinds = side.program.structure_utils.map_structure(
            lambda of: (type(of).__name__, str(of.type_signature)), references
        )
        return kinds, await side.program.materialize_value(references), context.arguments

    return run()


def server(side: Side, of: Any = np.int32) -> Any:
    return side.fl.FederatedType(of, side.fl.SERVER)


RESULTS: dict[str, Callable[[Side], tuple[Any, Any]]] = {
    "server": lambda side: (server(side), 5),
    "unplaced": lambda side: (side.fl.TensorType(np.int32), 5),
    "clients": lambda side: (side.fl.FederatedType(np.int32, side.fl.CLIENTS), [5]),
    "all equal": lambda side: (side.fl.FederatedType(np.int32, side.fl.CLIENTS, True), 5),
    "tuple": lambda side: (side.fl.StructType([server(side)] * 2), (5, 6)),
    "names": lambda side: (
        side.fl.StructType([("b", server(side)), ("a", np.int32)]),
        {"a": 5, "b": 6},
    ),
    "a struct at the server": lambda side: (
        server(side, [("b", np.int32), ("a", (np.int32, np.int32))]),
        {"b": 5, "a": (6, 7)},
    ),
    "dict": lambda side: (side.fl.StructWithPythonType([("b", server(side))], dict), {"b": 1}),
    "list": lambda side: (side.fl.StructWithPythonType([server(side)], list), [5]),
    "python tuple": lambda side: (side.fl.StructWithPythonType([server(side)], tuple), (5,)),
    "named tuple": lambda side: (
        side.fl.StructWithPythonType([("x", server(side)), ("y", server(side))], Pair),
        Pair(1, 2),
    ),
    "attrs": lambda side: (
        side.fl.StructWithPythonType([("x", server(side)), ("y", server(side))], Both),
        Both(1, 2),
    ),
    "empty": lambda side: (side.fl.StructType([]), ()),
    "sequence": lambda side: (side.fl.SequenceType(np.int32), [1, 2]),
    "function": lambda side: (side.fl.FunctionType(None, np.int32), len),
    "an error": lambda side: (server(side), ZeroDivisionError("no")),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(name: str) -> None:
    same(lambda side: invoked(side, *RESULTS[name](side)))


ARGUMENTS: dict[str, Callable[[Side], Any]] = {
    "nothing": lambda side: None,
    "value": lambda side: 3,
    "reference": lambda side: side.Reference(3),
    "list": lambda side: [side.Reference(3), 4],
    "nested": lambda side: {"a": side.Reference(3), "b": [Pair(side.Reference(1), 2)]},
    "struct": lambda side: side.Struct([("a", side.Reference(3)), ("b", [side.Reference(2)])]),
    "unnamed struct": lambda side: side.Struct([(None, side.Reference(3)), (None, 2)]),
    "nested struct": lambda side: side.Struct(
        [("a", side.Struct([(None, side.Reference(2))])), ("b", 1)]
    ),
    "failing": lambda side: [side.Reference(ZeroDivisionError("no"))],
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name: str) -> None:
    same(
        lambda side: invoked(
            side, server(side), 5, side.fl.TensorType(np.int32), ARGUMENTS[name](side)
        )
    )


def test_references_compare_as_the_peer_s() -> None:
    def compared(side: Side) -> Any:
        async def run() -> Any:
            native = side.program.NativeFederatedContext(side.Context({"a": 1, "b": 1}))
            comp = side.Computation(side.fl.FunctionType(None, [("a", np.int32), ("b", np.int32)]))
            one, other = native.invoke(comp, None), native.invoke(comp, None)
            found = [one["a"] == one["a"], one["a"] == other["a"], one["a"] == one["b"]]
            found += [one["a"] == 1, one["a"] != other["a"]]
            await side.program.materialize_value([one, other])
            return found, one["a"].__hash__

        return run()

    same(compared)


def test_outside_of_an_event_loop() -> None:
    def call(side: Side) -> Any:
        comp = side.Computation(side.fl.FunctionType(None, server(side)))
        return side.program.NativeFederatedContext(side.Context(1)).invoke(comp, None)

    assert outcome(call, OURS) == ("raises", "RuntimeError")
    with pytest.warns(RuntimeWarning, match="never awaited"):
        assert outcome(call, THEIRS) == ("raises", "RuntimeError")
        __import__("gc").collect()


def test_the_context_that_is_installed() -> None:
    def checked(side: Side) -> Any:
        stack = side.framework.get_context_stack()
        with stack.install(side.program.NativeFederatedContext(side.Context(1))):
            return side.program.check_in_federated_context()

    same(checked)
    same(lambda side: side.program.check_in_federated_context())


# Where the peer's isn't what it says: there is no need to be like it.


def test_periods_of_less_than_a_second() -> None:
    for side, found in ((OURS, ("gives", "[]")), (THEIRS, ("raises", "ValueError"))):
        period = datetime.timedelta(milliseconds=900)

        def call(side: Side, period: Any = period) -> Any:
            return released(
                side, lambda to: side.program.PeriodicReleaseManager(to, period), [1, 2]
            )

        assert outcome(call, side) == found


def test_filters_of_attrs_and_dictionaries_with_a_default() -> None:
    def left(value: Any) -> Callable[[Side], Any]:
        return lambda side: released(
            side,
            lambda to: side.program.FilteringReleaseManager(to, lambda path: path[-1:] != ("x",)),
            [value],
        )

    # The peer's puts a placeholder there.
    assert outcome(left(Both(1, 2)), OURS) == ("raises", "NotFilterableError")
    assert "object object" in outcome(left(Both(1, 2)), THEIRS)[1]
    # The peer's raises a TypeError of a library's.
    assert outcome(left(Pair(1, Pair(2, 3))), OURS) == ("raises", "NotFilterableError")
    table = collections.defaultdict(int, x=1, y=2)
    assert outcome(left(table), OURS)[1] == "[(defaultdict(<class 'int'>, {'y': 2}), 0)]"
    assert outcome(left(table), THEIRS) == ("raises", "TypeError")


def test_wrong_classes_of_arguments() -> None:
    """The peer takes them, and fails later or with another class."""
    for make in (
        lambda: program.DelayedReleaseManager(program.MemoryReleaseManager(), 1.5),
        lambda: program.PeriodicReleaseManager(program.MemoryReleaseManager(), 1.5),
        lambda: program.GroupingReleaseManager([3]),
        lambda: program.GroupingReleaseManager(3),
        lambda: program.FilteringReleaseManager(3, len),
        lambda: program.FilteringReleaseManager(program.MemoryReleaseManager(), 3),
        lambda: program.NativeFederatedContext(3),
        lambda: program.NativeValueReference(3, fl.TensorType(np.int32)),
    ):
        with pytest.raises(TypeError):
            make()


def test_stopping_to_wait() -> None:
    """The peer's cancels the computation for all that wait."""

    def waited(side: Side) -> Any:
        async def run() -> Any:
            task = asyncio.ensure_future(asyncio.sleep(0.1, 5))
            found = side.program.NativeValueReference(task, side.fl.TensorType(np.int32))
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(found.get_value(), 0.01)
            return "cancelled" if task.cancelled() else await found.get_value()

        return run()

    assert outcome(waited, OURS) == ("gives", "5")
    assert outcome(waited, THEIRS) == ("gives", "'cancelled'")
