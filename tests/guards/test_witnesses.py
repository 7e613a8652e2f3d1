"""Changes of every kind between checks, against a checker that looks at everything: no change is missed.

From CPython 3.12 on nobody looks at dictionaries before CPython tells of a change, so each way to change one
must be told. With STATOR_WITNESS_WRITES=1000000 as many changes are made as `make fuzz` makes.
"""

from __future__ import annotations

import collections
import gc
import os
import random
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable
from typing import Any

import pytest

from stator import _stator

from .support import Box, Guards, settle

WRITES = int(os.environ.get("STATOR_WITNESS_WRITES", "40000"))
WATCHES = sys.version_info >= (3, 12)
NAMES = ("a", "b", "c", "d")


class World:
    """Objects of each kind that guards speak of, and what they were at first."""

    def __init__(self) -> None:
        class Base:
            limit = 3

            def method(self) -> str:
                return "base"

        class Derived(Base):
            pass

        class Plain:
            def __init__(self, **attributes: Any) -> None:
                for name, value in attributes.items():
                    setattr(self, name, value)

        class Other(Plain):
            pass

        class Table(dict):  # type: ignore[type-arg]
            pass

        def function(x: Any, y: int = 2, *, z: int = 3) -> Any:
            return x, y, z

        def another(x: Any, y: int = 2, *, z: int = 3) -> Any:
            return z, y, x

        self.base, self.derived, self.plain, self.other = Base, Derived, Plain, Other
        # Of one class, so that they share the keys of their dictionaries.
        self.objects = [Plain(a=1, b=2, c=3) for _ in range(6)]
        self.tables: list[Any] = [
            {"a": 1, "b": 2},
            {},
            collections.OrderedDict(a=1, b=2),
            collections.OrderedDict(),
            Table(a=1),
            {1: "a", (1, 2): "b"},
        ]
        self.module = types.ModuleType("witnessed")
        self.module.__dict__.update(a=1, b=2)
        self.function, self.another = function, another
        self.instance = Derived()
        self.root = Box(
            objects=list(self.objects),
            tables=list(self.tables),
            module=self.module,
            function=function,
            instance=self.instance,
        )
        self.at_first = self._copies()

    def guards(self) -> Guards:
        guards = Guards()
        root = guards.arg("root")
        objects = guards.attr(root, "objects")
        guards.guard(objects, "length", len(self.objects))
        for index, instance in enumerate(self.objects):
            slot = guards.list(objects, index=index)
            guards.guard(slot, "type", self.plain)
            attributes = guards.dict(slot)
            for name in NAMES[: 1 + index % 3]:
                guards.guard(guards.item(attributes, name), "equals", getattr(instance, name))
            guards.guard(attributes, "absent", "z")
            if index == 5:
                guards.guard(attributes, "keys", vars(instance))
        tables = guards.attr(root, "tables")
        for index, table in enumerate(self.tables):
            slot = guards.list(tables, index=index)
            guards.guard(slot, "type", type(table))
            if index % 2:
                guards.guard(
                    slot, "keys" if index == 5 else "dict_length", table if index == 5 else 0
                )
            elif index == 2:
                guards.guard(slot, "keys", table)
            for name in table:
                guards.guard(guards.item(slot, name), "equals", table[name])
            guards.guard(slot, "absent", "z")
        module = guards.dict(guards.attr(root, "module"))
        guards.guard(guards.item(module, "a"), "equals", 1)
        guards.guard(module, "absent", "z")
        function = guards.attr(root, "function")
        guards.guard(function, "is", self.function)
        guards.guard(guards.code(function), "is", self.function.__code__)
        guards.guard(guards.tuple(guards.defaults(function), index=0), "equals", 2)
        guards.guard(guards.item(guards.kwdefaults(function), "z"), "equals", 3)
        instance = guards.attr(root, "instance")
        guards.guard(instance, "type", self.derived)
        kind = guards.type(instance)
        guards.guard(guards.lookup(kind, "limit"), "equals", 3)
        guards.guard(guards.super(kind, key="method", after=self.derived), "is", self.base.method)
        guards.guard(kind, "lookup_absent", "z")
        return guards.build()

    def _copies(self) -> dict[str, Any]:
        return {
            "objects": [dict(vars(instance)) for instance in self.objects],
            "tables": [list(table.items()) for table in self.tables],
            "module": dict(vars(self.module)),
            "method": self.base.method,
        }

    def put_back(self, pick: random.Random) -> None:
        """As at first, by one way or another."""
        first = self.at_first
        self.root.objects, self.root.tables = list(self.objects), list(self.tables)
        self.root.module, self.root.function = self.module, self.function
        self.root.instance = self.instance
        for instance, attributes in zip(self.objects, first["objects"], strict=True):
            instance.__class__ = self.plain
            if pick.random() < 0.3:
                instance.__dict__ = dict(attributes)
            elif repr(vars(instance)) != repr(attributes):
                vars(instance).clear()
                for name, value in attributes.items():
                    setattr(instance, name, value)
        for table, entries in zip(self.tables, first["tables"], strict=True):
            if repr(list(table.items())) != repr(entries):
                table.clear()
                table.update(entries)
        if repr(vars(self.module)) != repr(first["module"]):
            vars(self.module).clear()
            vars(self.module).update(first["module"])
        self.function.__code__ = CODE
        self.function.__defaults__, self.function.__kwdefaults__ = (2,), {"z": 3}
        for kind in (self.base, self.derived):
            for name in ("limit", "method", "z"):
                if name in vars(kind):
                    delattr(kind, name)
        self.base.limit, self.base.method = 3, first["method"]
        self.instance.__class__ = self.derived

    def change(self, pick: random.Random) -> None:
        """One change, or several."""
        pick.choice(CHANGES)(self, pick)


CODE = World().function.__code__
Change = Callable[[World, random.Random], None]
CHANGES: list[Change] = []


def change(make: Change) -> Change:
    CHANGES.append(make)
    return make


def name_of(pick: random.Random) -> str:
    return pick.choice([*NAMES, "z", "other", f"n{pick.randrange(40)}"])


def value_of(pick: random.Random) -> Any:
    return pick.choice([1, 2, 3, 1.0, True, None, "text", [], pick.random()])


@change
def attribute(world: World, pick: random.Random) -> None:
    instance, name = pick.choice(world.objects), name_of(pick)
    setter = pick.choice([setattr, object.__setattr__, lambda o, n, v: vars(o).__setitem__(n, v)])
    setter(instance, name, value_of(pick))


@change
def attributes_in_code(world: World, pick: random.Random) -> None:
    # Instructions that CPython specializes.
    first, second = pick.choice(world.objects), pick.choice(world.objects)
    value = value_of(pick)
    for instance in (first, second):
        instance.a = value
        instance.b = 2
        if pick.random() < 0.1:
            instance.z = 1
            del instance.z


@change
def attribute_deleted(world: World, pick: random.Random) -> None:
    instance = pick.choice(world.objects)
    if vars(instance):
        name = pick.choice(list(vars(instance)))
        pick.choice([delattr, object.__delattr__, lambda o, n: vars(o).pop(n)])(instance, name)


@change
def attributes_replaced(world: World, pick: random.Random) -> None:
    instance = pick.choice(world.objects)
    kept = instance.__dict__
    instance.__dict__ = {name: value_of(pick) for name in NAMES}
    if pick.random() < 0.5:
        instance.__dict__ = kept


@change
def class_replaced(world: World, pick: random.Random) -> None:
    pick.choice(world.objects).__class__ = pick.choice([world.plain, world.other])


@change
def entries_of_attributes(world: World, pick: random.Random) -> None:
    mutate(vars(pick.choice(world.objects)), pick)


@change
def entries_of_tables(world: World, pick: random.Random) -> None:
    mutate(pick.choice(world.tables), pick)


@change
def entries_of_module(world: World, pick: random.Random) -> None:
    if pick.random() < 0.5:
        mutate(vars(world.module), pick)
    else:
        setattr(world.module, name_of(pick), value_of(pick))


def mutate(table: Any, pick: random.Random) -> None:
    """One of the ways to change a dictionary."""
    name, value = name_of(pick), value_of(pick)
    ways: list[Callable[[], Any]] = [
        lambda: table.__setitem__(name, value),
        lambda: table.update({name: value}),
        lambda: table.update([(name, value)], b=value),
        lambda: table.setdefault(name, value),
        lambda: table.__ior__({name: value}),
        lambda: table.pop(name, None),
        lambda: table.popitem() if table else None,
        lambda: table.__delitem__(next(iter(table))) if table else None,
        lambda: table.clear(),
        lambda: table.update({f"n{number}": number for number in range(30)}),
        lambda: table.__setitem__("a", table.pop("a", 1)),
        lambda: table.__setitem__("b", value),
        lambda: exec("a = 1; b = 2", {}, table) if type(table) is dict else None,
        lambda: exec("global q; q = 1", table) if type(table) is dict else None,
    ]
    if not isinstance(table, collections.OrderedDict):
        ways.append(lambda: dict.__setitem__(table, name, value))
    elif table:
        ways.append(lambda: table.move_to_end(next(iter(table)), last=pick.random() < 0.5))
        ways.append(lambda: table.popitem(last=False))
    pick.choice(ways)()


@change
def elsewhere(world: World, pick: random.Random) -> None:
    # Objects die, and others get their addresses.
    which = pick.randrange(3)
    if which == 0:
        index = pick.randrange(len(world.root.objects))
        world.root.objects[index] = world.plain(a=pick.choice([1, 2]), b=2, c=3)
    elif which == 1:
        index = pick.randrange(len(world.root.tables))
        world.root.tables[index] = type(world.root.tables[index])(world.root.tables[index])
    else:
        world.root.objects.append(world.root.objects.pop())


@change
def function_parts(world: World, pick: random.Random) -> None:
    function = world.function
    ways: list[Callable[[], Any]] = [
        lambda: setattr(function, "__code__", pick.choice([CODE, world.another.__code__])),
        lambda: setattr(function, "__defaults__", pick.choice([(2,), (5,)])),
        lambda: setattr(function, "__kwdefaults__", {"z": pick.choice([3, 4])}),
        lambda: function.__kwdefaults__.update(z=pick.choice([3, 4])),
        lambda: setattr(world.root, "function", pick.choice([function, world.another])),
    ]
    pick.choice(ways)()


@change
def classes(world: World, pick: random.Random) -> None:
    kind = pick.choice([world.base, world.derived])
    ways: list[Callable[[], Any]] = [
        lambda: setattr(kind, "limit", pick.choice([3, 4])),
        lambda: setattr(kind, pick.choice(["z", "unrelated"]), 1),
        lambda: setattr(world.base, "method", pick.choice([world.at_first["method"], len])),
        lambda: delattr(kind, "limit") if "limit" in vars(kind) else None,
        lambda: setattr(world.instance, "__class__", pick.choice([world.base, world.derived])),
    ]
    pick.choice(ways)()


@pytest.mark.parametrize("seed", range(4))
def test_no_change_is_missed(seed: int) -> None:
    pick = random.Random(seed)
    writes, missed, quiet, rounds, fast = 0, 0, 0, 0, 0
    while writes < WRITES // 4:
        # CPython 3.13 gives a class a thousand versions in its life: then nobody trusts it any more.
        world = World()
        guards = world.guards()
        settle(guards, world.root)
        until = writes + 2000
        while writes < until:
            world.put_back(pick)
            # Checks until what is as it was is trusted.
            for _ in range(3):
                assert guards.passes(world.root), guards.why(world.root)
            watched, asked = guards.set.watched()
            rounds += 1
            quiet += watched > asked
            for _ in range(pick.randint(1, 6)):
                world.change(pick)
                writes += 1
                missed += guards.passes(world.root) and not guards.set.walks([world.root])
        fast += guards.set.report()[0]
    assert missed == 0
    assert fast > rounds
    if WATCHES:
        assert quiet > rounds * 0.9


@pytest.mark.skipif(sys.version_info < (3, 13), reason="CPython gives out versions without end")
def test_a_class_that_has_used_up_its_versions() -> None:
    """What is guarded of it is looked at each time, and no change is missed."""
    world = World()
    guards = world.guards()
    settle(guards, world.root)
    for number in range(3000):
        world.base.limit = number
        guards.passes(world.root)
    world.base.limit = 3
    for _ in range(3):
        assert guards.passes(world.root), guards.why(world.root)
        world.base.limit = 4
        assert not guards.passes(world.root)
        world.base.limit = 3
    assert guards.passes(world.root)


@pytest.mark.skipif(not WATCHES, reason="CPython tells of no changes")
def test_a_dictionary_is_trusted_at_the_second_check() -> None:
    world = World()
    guards = world.guards()
    assert guards.passes(world.root)
    total, asked = guards.set.watched()
    assert asked == total > 10
    assert guards.passes(world.root)
    assert guards.set.watched() == (total, 0)
    world.objects[0].unrelated = 1
    assert guards.passes(world.root)
    assert guards.set.watched() == (total, 1)
    assert guards.passes(world.root)
    assert guards.set.watched() == (total, 0)


@pytest.mark.skipif(not WATCHES, reason="CPython tells of no changes")
def test_a_dictionary_that_changes_all_the_time_is_let_go() -> None:
    world = World()
    guards = world.guards()
    settle(guards, world.root)
    total, _ = guards.set.watched()
    for number in range(30):
        world.objects[0].unrelated = number
        assert guards.passes(world.root)
    assert guards.set.watched() == (total, 1)
    assert guards.passes(world.root)
    assert guards.set.watched() == (total, 1)
    world.objects[0].a = 7
    assert not guards.passes(world.root)
    world.objects[0].a = 1
    # Once it's calm it is trusted again.
    for _ in range(70):
        assert guards.passes(world.root)
    assert guards.set.watched() == (total, 0)
    world.objects[0].a = 7
    assert not guards.passes(world.root)


@pytest.mark.skipif(not WATCHES, reason="CPython tells of no changes")
def test_a_dead_dictionary_is_not_trusted() -> None:
    holder = Box(table={"a": 1})
    guards = Guards()
    slot = guards.attr(guards.arg(), "table")
    guards.guard(slot, "type", dict).guard(guards.item(slot, "a"), "equals", 1).build()
    settle(guards, holder)
    for value in range(2, 40):
        address = id(holder.table)
        del holder.table
        gc.collect()
        holder.table = {"a": value}
        assert not guards.passes(holder)
        holder.table = {"a": 1}
        settle(guards, holder)
        del address


@pytest.mark.skipif(not WATCHES, reason="CPython tells of no changes")
@pytest.mark.parametrize(
    "prelude",
    [
        "",
        # Others have all identifiers: versions are compared, or contents.
        """
        from ctypes import CFUNCTYPE, c_int, py_object, c_void_p, pythonapi
        callback = CFUNCTYPE(c_int, c_int, c_void_p, c_void_p, c_void_p)(lambda *_: 0)
        try:
            while True:
                pythonapi.PyDict_AddWatcher(callback)
        except RuntimeError:
            pass
        """,
        # As when a process ends: the identifier is given back.
        "ending = True",
    ],
    ids=["alone", "no identifier left", "at the end"],
)
def test_guards_hold_with_and_without_a_watcher(prelude: str) -> None:
    body = """
    import atexit, os, sys
    sys.path.insert(0, "tests")
    from guards.support import Box, Guards

    holder = Box(n=1, table={"a": 1})
    guards = Guards()
    argument = guards.arg()
    guards.guard(guards.attr(argument, "n"), "equals", 1)
    slot = guards.attr(argument, "table")
    guards.guard(slot, "type", dict).guard(guards.item(slot, "a"), "equals", 1)

    def look():
        for _ in range(4):
            assert guards.passes(holder)
        for value in (2, 1, 3, 1):
            holder.n = value
            assert guards.passes(holder) is (value == 1)
            holder.n, holder.table["a"] = 1, value
            assert guards.passes(holder) is (value == 1)
            holder.table["a"] = 1
        print("right", guards.set.watched()[0])

    if globals().get("ending"):
        atexit.register(look)  # Runs behind what is registered later.
    guards.build()
    look()
    if hasattr(os, "fork") and not globals().get("ending"):
        child = os.fork()
        if child == 0:
            look()
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    script = textwrap.dedent(prelude) + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["right", "right"], (done.stdout, done.stderr)
    is_watching = "identifier" not in prelude and "pythonapi" not in prelude
    assert (lines[0] != "right 0") is is_watching
    assert _stator is not None
