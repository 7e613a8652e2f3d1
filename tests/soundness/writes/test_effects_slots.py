"""Writes to cells, `__slots__` members, class attributes and buffers that existed before the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from differential.support import api
from torch import Tensor, nn

from ..worlds import World, agree

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


def test_member_deleted_that_is_not_there() -> None:
    def fn(x: Tensor, s: Slotted) -> Tensor:
        try:
            del s.unset
        except AttributeError:
            return x - 1
        return x + 1

    def fill(world: World) -> None:
        world.args[0].unset = 1

    agree(_slotted(fn), fill)


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

    def between(world: World) -> None:
        other = type("Other", (world.args[0],), {"total": 4})
        type(world.args[1]).__bases__ = (other,)

    agree(make, override, between)


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


def _scaled(setting: Any) -> Any:
    """A custom function that asks a class."""

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.scale = setting.total
            return x * setting.total

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * ctx.scale + setting.total

    return Scaled


def test_class_attribute_seen_by_code_within_nodes() -> None:
    """`with setting(3):` around a custom function that looks at the setting."""

    def make() -> World:
        setting = _class()
        sub = type("Sub", (setting,), {})
        scaled = _scaled(sub)
        calls: list[int] = []

        def fn(x: Tensor, value: Any) -> Any:
            x = x.detach().requires_grad_()
            before, setting.total = setting.total, value[0]
            y = scaled.apply(x)
            y.sum().backward()
            setting.total = before
            z = scaled.apply(x.detach())
            setting.total = value[0] + 1
            calls.append(len(calls))
            return y.detach(), x.grad, z, scaled.apply(z)

        return World(
            fn, ([3],), lambda: (setting.total, sub.total, len(calls), "total" in vars(sub))
        )

    def change(world: World) -> None:
        world.args[0][0] = 5

    agree(make, change, change)


def test_class_attribute_of_a_subclass_read_behind_a_write_to_the_base() -> None:
    def fn(x: Tensor, base: Any, sub: Any) -> Tensor:
        base.total = 7
        return x * sub.total + base.total

    def make() -> World:
        base = _class()
        sub = type("Sub", (base,), {"total": 5})
        return World(fn, (base, sub), lambda: (base.total, sub.total))

    def change(world: World) -> None:
        world.args[1].total = 3

    def uncover(world: World) -> None:
        del world.args[1].total

    agree(make, change, uncover)


def test_class_attribute_set_through_a_metaclass() -> None:
    class Meta(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            super().__setattr__(name, value + 1)

    def fn(x: Tensor, cls: Any) -> Tensor:
        cls.total = 4
        return x * cls.total

    agree(lambda: World(fn, (Meta("C", (), {"total": 1}),)), replays=False)


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
