"""Writes to what existed before the call: recorded, replayed, and after what was read has changed."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

from .worlds import Step, World, agree, guard_lines

# Cells of enclosing functions


def _cells(body: Callable[..., Callable[..., Any]], *initial: Any) -> Callable[[], World]:
    """A world whose function is the first that `body` returns; the others look at its cells."""

    def make() -> World:
        made = body(*initial)
        fn, look, *_ = made
        return World(fn, state=look)

    return make


def test_cell_written() -> None:
    def body() -> Any:
        last = None

        def fn(x: Tensor) -> Tensor:
            nonlocal last
            last = x * 2
            return x + 1

        return fn, lambda: last

    agree(_cells(body))


def test_cell_read_before_and_after_its_write() -> None:
    def body() -> Any:
        last = 5

        def fn(x: Tensor) -> Tensor:
            nonlocal last
            before = last
            last = 7
            y = x * before + last
            last = before
            return y + last

        def change() -> None:
            nonlocal last
            last = 6

        return fn, lambda: last, change

    compiled = agree(_cells(body))
    if not api.PLAIN:
        assert compiled.stats.traces == 1


def test_cell_that_counts() -> None:
    def body() -> Any:
        count = 0

        def fn(x: Tensor) -> Tensor:
            nonlocal count
            count += 1
            return x * count

        return fn, lambda: count

    agree(_cells(body), replays=False)


def test_cell_emptied_and_filled() -> None:
    def body() -> Any:
        held: Any = 1

        def fn(x: Tensor) -> Tensor:
            nonlocal held
            del held
            try:
                y = x * held
            except NameError:
                y = x * 3
            held = x
            return y

        def look() -> Any:
            return held

        return fn, look

    agree(_cells(body))


def test_cell_left_empty() -> None:
    def body() -> Any:
        held: Any = 1

        def fn(x: Tensor) -> Tensor:
            nonlocal held
            del held
            return x + 1

        def look() -> Any:
            try:
                return held
            except NameError:
                return "empty"

        def fill() -> None:
            nonlocal held
            held = 1

        return fn, look, fill

    # Deleting what is empty raises.
    agree(_cells(body), replays=False)


def test_cell_written_by_an_inner_function() -> None:
    def body() -> Any:
        last: Any = None

        def fn(x: Tensor) -> Tensor:
            def keep(value: Any) -> None:
                nonlocal last
                last = value

            keep(x + 1)
            y = last * 2
            keep([y, x])
            return y

        return fn, lambda: last

    agree(_cells(body))


def test_cells_of_functions_made_for_each_call() -> None:
    def pair(shared: bool) -> tuple[Callable[[Any], None], Callable[[], Any]]:
        cell: Any = 1

        def write(value: Any) -> None:
            nonlocal cell
            cell = value

        def read() -> Any:
            return cell

        if shared:
            return write, read

        def other() -> Callable[[], Any]:
            cell = 1

            def read() -> Any:
                return cell

            return read

        return write, other()

    def fn(x: Tensor, write: Any, read: Any) -> Tensor:
        write(5)
        return x * read()

    def reader(value: int) -> Callable[[], int]:
        cell = value

        def read() -> int:
            return cell

        return read

    for order in [(True, False), (False, True)]:
        compiled = api.compile(fn)
        for shared in order * 2:
            for _ in range(2):
                x = torch.ones(3)
                assert torch.equal(compiled(x, *pair(shared)), fn(x, *pair(shared)))

    def two(x: Tensor, first: Any, second: Any) -> Tensor:
        return x * first() + second()

    compiled = api.compile(two)
    one = reader(3)
    x = torch.ones(3)
    # One cell in two functions at first, then two cells.
    assert torch.equal(compiled(x, one, one), two(x, one, one))
    for _ in range(2):
        assert torch.equal(compiled(x, one, reader(4)), two(x, one, reader(4)))


# `__slots__` members


class Slotted:
    """Three members, no dictionary."""

    __slots__ = ("last", "level", "unset")

    def __init__(self) -> None:
        self.last: Any = None
        self.level = 2


def _slotted(fn: Callable[..., Any], count: int = 1) -> Callable[[], World]:
    return lambda: World(fn, tuple(Slotted() for _ in range(count)))


def test_member_written() -> None:
    def fn(x: Tensor, s: Slotted) -> Tensor:
        s.last = x * 2
        return s.last + 1

    agree(_slotted(fn))


def test_member_read_before_and_after_its_write() -> None:
    def fn(x: Tensor, s: Slotted) -> Tensor:
        before = s.level
        s.level = 7
        y = x * before + s.level
        s.level = before
        return y

    def change(world: World) -> None:
        world.args[0].level = 9

    agree(_slotted(fn), change)


def test_member_made_and_deleted() -> None:
    def fn(x: Tensor, s: Slotted) -> Tensor:
        made = not hasattr(s, "unset")
        s.unset = 3
        y = x * s.unset
        del s.unset
        return y + made + hasattr(s, "unset")

    def fill(world: World) -> None:
        world.args[0].unset = 1

    agree(_slotted(fn), fill)


def test_member_deleted_twice_raises() -> None:
    def fn(x: Tensor, s: Slotted) -> Tensor:
        del s.level
        return x + 1

    agree(_slotted(fn), replays=False)


def test_members_of_one_object_or_two() -> None:
    def fn(x: Tensor, a: Slotted, b: Slotted) -> Tensor:
        a.level = 5
        return x * b.level

    def alias(world: World) -> None:
        world.args = (world.args[0], world.args[0])

    def split(world: World) -> None:
        world.args = (world.args[0], Slotted())

    agree(_slotted(fn, 2), alias, split)


def test_members_written_in_turn() -> None:
    def fn(x: Tensor, a: Slotted, b: Slotted) -> Tensor:
        a.last = 1
        b.last = 2
        a.last = 3
        return x + 1

    def alias(world: World) -> None:
        world.args = (world.args[0], world.args[0])

    agree(_slotted(fn, 2), alias)


# Class attributes


def _class() -> Any:
    class Counter:
        total = 0
        last: Any = None

        def bump(self, x: Tensor) -> Tensor:
            type(self).total = 5
            return x * self.total

    return Counter


def test_class_attribute_written() -> None:
    def fn(x: Tensor, cls: Any) -> Tensor:
        cls.last = x * 2
        return cls.last + 1

    def make() -> World:
        cls = _class()
        return World(fn, (cls,), lambda: (cls.last, cls.total))

    agree(make)


def test_class_attribute_read_before_and_after_its_write() -> None:
    def fn(x: Tensor, cls: Any, obj: Any) -> Tensor:
        before = cls.total
        cls.total = 7
        y = x * before + cls.total + obj.total
        cls.total = before
        return y

    def make() -> World:
        cls = _class()
        return World(fn, (cls, cls()), lambda: cls.total)

    def change(world: World) -> None:
        world.args[0].total = 4

    def hide(world: World) -> None:
        world.args[1].total = 100

    agree(make, change, hide)


def test_class_attribute_seen_by_methods() -> None:
    def fn(x: Tensor, obj: Any) -> Tensor:
        return obj.bump(x)

    def make() -> World:
        cls = _class()
        return World(fn, (cls(),), lambda: cls.total)

    def change(world: World) -> None:
        type(world.args[0]).total = 9

    agree(make, change)


def test_class_attribute_of_a_base_read_on_a_subclass() -> None:
    def fn(x: Tensor, base: Any, obj: Any) -> Tensor:
        base.total = 7
        return x * obj.total

    def make() -> World:
        base = _class()
        sub = type("Sub", (base,), {})
        return World(fn, (base, sub()), lambda: (base.total, sub.total))

    def override(world: World) -> None:
        type(world.args[1]).total = 3

    agree(make, override, replays=False)


def test_class_attribute_of_a_subclass_hides_the_base() -> None:
    def fn(x: Tensor, sub: Any, base: Any) -> Tensor:
        sub.total = base.total + 2
        return x * sub.total + base.total

    def make() -> World:
        base = _class()
        sub = type("Sub", (base,), {})
        return World(fn, (sub, base), lambda: (base.total, sub.total, "total" in vars(sub)))

    def change(world: World) -> None:
        world.args[1].total = 3

    agree(make, change)


def test_class_attribute_set_through_a_metaclass() -> None:
    class Meta(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            super().__setattr__(name, value + 1)

    def fn(x: Tensor, cls: Any) -> Tensor:
        cls.total = 4
        return x * cls.total

    agree(lambda: World(fn, (Meta("C", (), {"total": 1}),)), replays=False)


# Lists


class Lists:
    """Lists to write to."""

    def __init__(self) -> None:
        self.items: list[Any] = [3, 1, 2]
        self.tensors: list[Any] = [torch.ones(3), torch.zeros(3)]
        self.other: list[Any] = [3, 1, 2]


def append(x: Tensor, s: Lists) -> Tensor:
    n = len(s.items)
    s.items.append(5)
    return x * s.items[-1] + n + len(s.items)


def extend(x: Tensor, s: Lists) -> Tensor:
    s.items.extend(value * 2 for value in (1, 2))
    s.items += [7]
    return x * sum(s.items)


def insert(x: Tensor, s: Lists) -> Tensor:
    s.items.insert(1, 9)
    return x * s.items[1] + s.items[2]


def pop(x: Tensor, s: Lists) -> Tensor:
    if len(s.items) < 2:
        s.items[:] = [4, 5, 6, 7]
    return x * s.items.pop() + s.items.pop(0)


def remove(x: Tensor, s: Lists) -> Tensor:
    if 1 in s.items:
        s.items.remove(1)
    return x * len(s.items)


def clear(x: Tensor, s: Lists) -> Tensor:
    n = len(s.items)
    s.items.clear()
    return x * n + len(s.items)


def reverse_and_sort(x: Tensor, s: Lists) -> Tensor:
    s.items.reverse()
    first = s.items[0]
    s.items.sort(key=lambda value: -value)
    return x * first + s.items[0]


def set_item(x: Tensor, s: Lists) -> Tensor:
    before = s.items[0]
    s.items[0] = 8
    s.items[-1] = s.items[0]
    return x * before + s.items[2]


def set_slice(x: Tensor, s: Lists) -> Tensor:
    s.items[1:] = [6, 6, 6]
    s.items[::2] = (1, 1)
    return x * sum(s.items)


def delete_item(x: Tensor, s: Lists) -> Tensor:
    s.items.append(0)
    del s.items[0]
    del s.items[1:]
    return x * s.items[0]


def repeat(x: Tensor, s: Lists) -> Tensor:
    s.items *= 2
    del s.items[3:]
    return x * len(s.items)


def keep_tensors(x: Tensor, s: Lists) -> Tensor:
    old = s.tensors[0]
    s.tensors[0] = x * 2
    s.tensors[1] = old
    return s.tensors[0] + s.tensors[1]


def keep_containers(x: Tensor, s: Lists) -> Tensor:
    made = [x + 1, {"x": x}]
    s.items[:] = [made, made, s.tensors, s.items]
    return x + 1


def swap(x: Tensor, s: Lists) -> Tensor:
    s.items[0], s.items[1] = s.items[1], s.items[0]
    return x * s.items[0]


def through_an_alias(x: Tensor, s: Lists) -> Tensor:
    alias = s.items
    alias[0] = 9
    s.kept = alias  # type: ignore[attr-defined]
    return x * s.items[0]


def raise_and_catch(x: Tensor, s: Lists) -> Tensor:
    s.items.clear()
    try:
        s.items.pop()
    except IndexError:
        return x * 3
    return x


def two_names(x: Tensor, s: Lists) -> Tensor:
    s.items[0] = 4
    return x * s.other[0]


def two_names_in_turn(x: Tensor, s: Lists) -> Tensor:
    s.items[0] = 4
    s.other[0] = 5
    s.items[0] = 6
    return x + 1


LISTS = [
    append,
    extend,
    insert,
    pop,
    remove,
    clear,
    reverse_and_sort,
    set_item,
    set_slice,
    delete_item,
    repeat,
    keep_tensors,
    keep_containers,
    swap,
    through_an_alias,
    raise_and_catch,
    two_names,
    two_names_in_turn,
]


def _refill(world: World) -> None:
    world.args[0].items[:] = [3, 1, 2]


def _refill_otherwise(world: World) -> None:
    world.args[0].items[:] = [2, 9, 1, 4]


def _alias(world: World) -> None:
    world.args[0].other = world.args[0].items


@pytest.mark.parametrize("fn", LISTS, ids=lambda fn: fn.__name__)
def test_list_written(fn: Callable[..., Any]) -> None:
    refill: Step = _refill
    steps = (refill, _refill_otherwise, _refill, _alias, _refill, _refill)
    compiled = agree(lambda: World(fn, (Lists(),)), *steps, replays=False, again=1)
    if not api.PLAIN:
        assert compiled.stats.native == 0, compiled.stats.reason
        assert compiled.stats.hits >= 1


def test_list_keeps_its_identity() -> None:
    def fn(x: Tensor, values: list[Any]) -> Tensor:
        values[:] = [x, 1]
        return x + 1

    values: list[Any] = [0]
    compiled = api.compile(fn)
    for _ in range(3):
        x = torch.ones(3)
        compiled(x, values)
        assert values[0] is x
        assert values[1] == 1


# Containers that are only added to


class Logs:
    """What functions add to without looking."""

    def __init__(self) -> None:
        self.log: list[Any] = [1]
        self.log2: list[Any] = [1]
        self.names: set[Any] = {"a"}
        self.queue: collections.deque[Any] = collections.deque([1, 2], maxlen=3)
        self.many: dict[str, list[Any]] = {"k": []}
        self.last: Any = None


def append_attribute(x: Tensor, s: Logs) -> Tensor:
    s.log.append(x.shape[0])
    s.log.append(x * 2)
    return x + 1


def append_in_a_loop(x: Tensor, s: Logs) -> Tensor:
    for i in range(3):
        s.log.append([i, x])
    return x + 1


def append_to_an_alias(x: Tensor, s: Logs) -> Tensor:
    log = s.log
    s.many["k"].append(log)
    s.many["k"].extend((x, x))
    return x + 1


def append_what_was_read(x: Tensor, s: Logs) -> Tensor:
    s.many["k"].append(s.last)
    s.last = x
    return x + 1


def extend_by_a_generator(x: Tensor, s: Logs) -> Tensor:
    s.log.extend(x * i for i in range(2))
    return x + 1


def add_names(x: Tensor, s: Logs) -> Tensor:
    s.names.add("b")
    s.names.discard("a")
    s.names.update(["c", 3], {"d"})
    return x + 1


def fill_queue(x: Tensor, s: Logs) -> Tensor:
    s.queue.append(x)
    s.queue.appendleft(3)
    s.queue.extend([4, x])
    s.queue.extendleft((5,))
    return x + 1


BLIND = [
    append_attribute,
    append_in_a_loop,
    append_to_an_alias,
    append_what_was_read,
    extend_by_a_generator,
    add_names,
    fill_queue,
]


def _shrink(world: World) -> None:
    s = world.args[0]
    s.log[:] = [torch.zeros(2), "other"]
    s.names.clear()
    s.names |= {"z", (1, 2)}
    s.queue.clear()
    s.many["k"].clear()


@pytest.mark.parametrize("fn", BLIND, ids=lambda fn: fn.__name__)
def test_added_without_looking(fn: Callable[..., Any]) -> None:
    compiled = agree(lambda: World(fn, (Logs(),)), _shrink)
    # What the containers hold makes no difference; what `append_what_was_read` reads does.
    if not api.PLAIN:
        traces = {append_what_was_read: 2, append_to_an_alias: 3}
        assert compiled.stats.traces <= traces.get(fn, 1), guard_lines(compiled)


def look_behind(x: Tensor, s: Logs) -> Tensor:
    s.log.append(5)
    return x * len(s.log)


def look_before(x: Tensor, s: Logs) -> Tensor:
    n = len(s.log)
    s.log.append(5)
    return x * n


def look_through_the_dictionary(x: Tensor, s: Logs) -> Tensor:
    s.log.append(5)
    held = [value for value in vars(s).values() if type(value) is list]
    return x * len(held[0])


def look_in_an_argument(x: Tensor, s: Logs) -> Tensor:
    s.log.append(len(s.log))
    return x * s.log[-1]


def look_by_unpacking(x: Tensor, s: Logs) -> Tensor:
    s.log.append(5)
    first, *rest = s.log
    return x * first + len(rest)


def look_by_matching(x: Tensor, s: Logs) -> Tensor:
    s.log.append(5)
    match s.log:
        case [_, _]:
            return x * 2
        case [_, _, _]:
            return x * 3
    return x


def look_by_comparing(x: Tensor, s: Logs) -> Tensor:
    s.log.append(5)
    return x * (2 if (s.log, 1) == ([1, 5], 1) else 3)


def look_at_another(x: Tensor, s: Logs) -> Tensor:
    s.log.append(5)
    return x * len(s.log2)


def add_in_turn(x: Tensor, s: Logs) -> Tensor:
    s.log.append(5)
    s.log2.append(6)
    s.log.append(7)
    return x + 1


def give_it_back(x: Tensor, s: Logs) -> Any:
    s.log.append(x)
    return s.log, [s.log]


def extend_by_itself(x: Tensor, s: Logs) -> Any:
    s.log.append(6)
    s.log.extend(s.log)
    return x + 1


def look_at_names(x: Tensor, s: Logs) -> Tensor:
    s.names.add("b")
    return x * len(s.names) + ("a" in s.names)


def change_names(x: Tensor, s: Logs) -> Any:
    s.names |= {"b", "q"}
    s.names -= {"a"}
    s.names ^= {"q", "r"}
    if "r" in s.names:
        s.names.remove("r")
    s.names &= {"b", "a", "z"}
    return x * len(s.names), list(s.names)


def take_of_queue(x: Tensor, s: Logs) -> Any:
    s.queue.append(6)
    first = s.queue.popleft()
    last = s.queue.pop()
    s.queue += [7, 8]
    s.queue.rotate(1)
    s.queue.reverse()
    s.queue[0] = 9
    del s.queue[1]
    return x * len(s.queue), first, last, s.queue.maxlen, list(s.queue), 9 in s.queue


def tensors_in_queue(x: Tensor, s: Logs) -> Any:
    s.queue.append(x * 2)
    s.queue.append(x * 3)
    return s.queue[-1] + s.queue[-2]


LOOKING = [
    look_behind,
    look_before,
    look_through_the_dictionary,
    look_in_an_argument,
    look_by_unpacking,
    look_by_matching,
    look_by_comparing,
    look_at_another,
    add_in_turn,
    give_it_back,
    extend_by_itself,
    look_at_names,
    change_names,
    take_of_queue,
    tensors_in_queue,
]


def _again(world: World) -> None:
    s = world.args[0]
    s.log[:] = [1]
    s.names.clear()
    s.names.add("a")
    s.queue.clear()
    s.queue.extend([1, 2])


def _longer(world: World) -> None:
    s = world.args[0]
    s.log[:] = [2, 3]
    s.names.clear()
    s.names.update(["b", "y"])
    s.queue.clear()
    s.queue.extend([3])


def _unbounded(world: World) -> None:
    _again(world)
    world.args[0].queue = collections.deque([1, 2])


def _same_logs(world: World) -> None:
    _again(world)
    world.args[0].log2 = world.args[0].log


@pytest.mark.parametrize("fn", LOOKING, ids=lambda fn: fn.__name__)
def test_added_and_looked_at(fn: Callable[..., Any]) -> None:
    steps = (_again, _longer, _again, _unbounded, _same_logs, _again, _again)
    compiled = agree(lambda: World(fn, (Logs(),)), *steps, replays=False, again=1)
    if not api.PLAIN:
        assert compiled.stats.native == 0, compiled.stats.reason
        assert compiled.stats.hits >= 1


def test_arguments_that_are_only_added_to() -> None:
    def fn(x: Tensor, log: list[Any], seen: set[Any]) -> Tensor:
        log.append(x)
        seen.add("s")
        log.append(2)
        return x + 1

    def alias(world: World) -> None:
        world.args = ([], {"t"})

    compiled = agree(lambda: World(fn, ([1], set())), alias)
    if not api.PLAIN:
        assert compiled.stats.traces == 1


def test_an_argument_that_is_also_returned() -> None:
    def fn(x: Tensor, log: list[Any]) -> Any:
        log.append(x)
        return log[0]

    agree(lambda: World(fn, ([torch.ones(2)],)), replays=False)


# Dictionaries: order, and entries under equal keys


def test_entry_deleted_and_made_again_moves() -> None:
    def fn(x: Tensor, d: dict[str, Any]) -> Tensor:
        d["a"] = 1
        d["b"] = 2
        del d["a"]
        d["a"] = 3
        return x * d["a"]

    agree(lambda: World(fn, ({"a": 0, "z": 0},), None), replays=False, again=4)
    agree(lambda: World(fn, ({},), None), replays=False, again=4)


def test_keys_that_are_equal() -> None:
    def fn(x: Tensor, d: dict[Any, Any]) -> Tensor:
        d[1000] = [1]
        d[500 + int(len(d) > 0) * 500].append(2)
        d[True] = 5
        return x * d[1.0] + len(d[1000])

    agree(lambda: World(fn, ({},), None), replays=False, again=4)


def test_dictionaries_written_in_turn() -> None:
    def fn(x: Tensor, a: dict[str, Any], b: dict[str, Any]) -> Tensor:
        a["k"] = 1
        b["k"] = 2
        a["k"] = 3
        return x + 1

    def alias(world: World) -> None:
        world.args = (world.args[0], world.args[0])

    agree(lambda: World(fn, ({"k": 0}, {"k": 0})), alias)


def test_length_behind_the_write_of_a_key() -> None:
    def fn(x: Tensor, d: dict[str, Any]) -> Tensor:
        d["new"] = 1
        return x * len(d)

    def other(world: World) -> None:
        del world.args[0]["new"]
        world.args[0]["other"] = 1

    agree(lambda: World(fn, ({"k": 0, "new": 0},)), other, replays=False)


def test_keys_counted_behind_a_write() -> None:
    def fn(x: Tensor, a: dict[str, Any], b: dict[str, Any]) -> Tensor:
        a["new"] = 1
        return x * len(b)

    def empty(world: World) -> None:
        for arg in world.args:
            arg.pop("new", None)

    def alias(world: World) -> None:
        world.args = (world.args[0], world.args[0])
        empty(world)

    agree(lambda: World(fn, ({"k": 0}, {"k": 0})), empty, alias, empty, replays=False)


# Modules


class Buffered(nn.Module):
    """Buffers and parameters that its forward replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(3))
        self.weight = nn.Parameter(torch.ones(3))
        self.state: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.state = self.state * 0.5 + x.detach()
        return x * self.weight + self.state


def test_module_replaces_its_buffer() -> None:
    def make() -> World:
        module = Buffered()
        return World(lambda x, m: m(x), (module,), lambda: dict(module.state_dict()))

    def change(world: World) -> None:
        world.args[0].state = torch.ones(3) * 4

    def narrow(world: World) -> None:
        world.args[0].state = torch.ones(1)

    agree(make, change, narrow)


def test_replaced_values_die_in_order() -> None:
    class Noisy:
        def __init__(self, name: str, log: list[str]) -> None:
            self.name, self.log = name, log

        def __del__(self) -> None:
            self.log.append(self.name)

    class Holder:
        def __init__(self) -> None:
            self.log: list[str] = []
            self.a: Any = None
            self.b: Any = None

        def fill(self) -> None:
            self.a = Noisy("a", self.log)
            self.b = Noisy("b", self.log)

    def fn(x: Tensor, h: Holder) -> Tensor:
        h.b = 1
        h.a = 2
        return x + 1

    def fill(world: World) -> None:
        world.args[0].fill()

    agree(lambda: World(fn, (Holder(),)), fill, fill, again=1)
