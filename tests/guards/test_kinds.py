"""Each kind of guard and source: changes that keep it, and changes that break it."""

import collections
import functools
import random
import sys
import weakref

import pytest
import torch
from torch import nn

from stator import _stator as native

from .support import Base, Box, Derived, Guards, Hashing, Slots, closure, function, settle


class OwnInt(int):
    """Its special methods aren't asked."""

    def __int__(self):
        raise AssertionError

    __eq__ = __index__ = __int__  # type: ignore[assignment]
    __hash__ = int.__hash__


class OwnFloat(float):
    """As above."""

    def __float__(self):
        raise AssertionError

    __eq__ = __pos__ = __float__  # type: ignore[assignment]
    __hash__ = float.__hash__


class OwnText(str):
    """As above."""

    def __str__(self):
        raise AssertionError

    __eq__ = __repr__ = __str__  # type: ignore[assignment]
    __hash__ = str.__hash__


class OwnBytes(bytes):
    """As above."""

    def __bytes__(self):
        raise AssertionError


class OwnComplex(complex):
    """As above."""

    def __complex__(self):
        raise AssertionError


OWN_VALUES = [
    (OwnInt, 10**20, 10**20 + int(), 10**20 + 1),
    (OwnFloat, 0.0, float("0"), -0.0),
    (OwnText, "text", "te" + str("xt"), "tex"),
    (OwnBytes, b"text", b"te" + bytes(b"xt"), b"tex"),
    (OwnComplex, 1 + 2j, complex(1, 2), 1 - 2j),
]


def cases():
    """(name, make guards for an object, the object, change it, whether the change must fail)."""
    yield (
        "attribute",
        Box(n=1),
        lambda g, x: g.guard(g.attr(x, "n"), "equals", 1),
        [
            (lambda o: setattr(o, "n", 2), False),
            (lambda o: setattr(o, "n", True), False),
            (lambda o: setattr(o, "n", 1.0), False),
            (lambda o: setattr(o, "n", 1), True),
            (lambda o: setattr(o, "other", 5), True),
            (lambda o: o.__dict__.update(n=7), False),
            (lambda o: object.__setattr__(o, "n", 1), True),
            (lambda o: setattr(o, "__dict__", {"n": 1}), True),
            (lambda o: setattr(o, "__dict__", {"n": 3}), False),
            (lambda o: delattr(o, "n"), False),
        ],
    )
    yield (
        "float bits",
        Box(n=0.0),
        lambda g, x: g.guard(g.attr(x, "n"), "equals", 0.0),
        [
            (lambda o: setattr(o, "n", -0.0), False),
            (lambda o: setattr(o, "n", float("0")), True),
        ],
    )
    nan = float("nan")
    yield (
        "nan",
        Box(n=nan),
        lambda g, x: g.guard(g.attr(x, "n"), "equals", nan),
        [
            (lambda o: setattr(o, "n", float("nan")), True),
            (lambda o: setattr(o, "n", 1.5), False),
        ],
    )
    for own, value, same, other in OWN_VALUES:
        yield (
            f"value of a class of its own: {own.__name__}",
            Box(n=own(value)),
            lambda g, x, value=value: g.guard(g.attr(x, "n"), "value", value),
            [
                (lambda o, own=own, same=same: setattr(o, "n", own(same)), True),
                (lambda o: setattr(o.n, "mark", 1), True),
                (lambda o, own=own, other=other: setattr(o, "n", own(other)), False),
                (lambda o, own=own, same=same: setattr(o, "n", own(same)), True),
                (lambda o, value=value: setattr(o, "n", value), False),
                (lambda o: setattr(o, "n", None), False),
            ],
        )
    yield (
        "constant tuple",
        Box(n=(1, ("a", 2.0))),
        (lambda g, x: g.guard(g.attr(x, "n"), "equals", (1, ("a", 2.0)))),
        [
            (lambda o: setattr(o, "n", (1, ("a", 2.0 + int()))), True),
            (lambda o: setattr(o, "n", (1, ("a", 2))), False),
            (lambda o: setattr(o, "n", (1, ["a", 2.0])), False),
        ],
    )
    yield (
        "type",
        Box(n=Base()),
        lambda g, x: g.guard(g.attr(x, "n"), "type", Base),
        [
            (lambda o: setattr(o, "n", Base()), True),
            (lambda o: setattr(o.n, "__class__", Derived), False),
            (lambda o: setattr(o, "n", Derived()), False),
        ],
    )
    yield (
        "none",
        Box(n=None),
        lambda g, x: g.guard(g.attr(x, "n"), "none"),
        [
            (lambda o: setattr(o, "n", 0), False),
        ],
    )
    yield (
        "not none",
        Box(n=3),
        lambda g, x: g.guard(g.attr(x, "n"), "not_none"),
        [
            (lambda o: setattr(o, "n", object()), True),
            (lambda o: setattr(o, "n", None), False),
        ],
    )
    yield (
        "identity",
        Box(n=function),
        lambda g, x: g.guard(g.attr(x, "n"), "is", function),
        [
            (lambda o: setattr(o, "n", closure(1)), False),
            (lambda o: setattr(o, "n", function), True),
        ],
    )
    yield (
        "absent key",
        Box(d={"a": 1}),
        lambda g, x: g.guard(g.attr(x, "d"), "absent", "k"),
        [
            (lambda o: o.d.update(b=1), True),
            (lambda o: o.d.update(k=None), False),
            (lambda o: o.d.pop("k", None), True),
            (lambda o: setattr(o, "d", {"k": 1}), False),
        ],
    )
    yield (
        "absent hash",
        Box(d={"a": 1, 5: 2}),
        lambda g, x: g.guard(g.attr(x, "d"), "hash_absent", 7),
        [
            (lambda o: o.d.update(b=1), True),
            (lambda o: o.d.update({7.0: None}), False),
            (lambda o: o.d.pop(7), True),
            (lambda o: o.d.update({Hashing(7): None}), False),
            (lambda o: o.d.clear(), True),
            (lambda o: setattr(o, "d", {(): 1}), True),
        ],
    )
    yield (
        "value of a hash",
        Box(d={"a": 1, 7: 2}),
        lambda g, x: g.guard(g.hashed(g.attr(x, "d"), index=7), "equals", 2),
        [
            (lambda o: o.d.update(b=1), True),
            (lambda o: o.d.update({7: 3}), False),
            (lambda o: o.d.update({7: 2}), True),
            # Which of two is compared first isn't known.
            (lambda o: o.d.update({Hashing(7): 2}), False),
            (lambda o: o.d.pop(7), True),
            (lambda o: o.d.clear(), False),
        ],
    )
    yield (
        "key of a hash",
        Box(d={7: 2}),
        lambda g, x: g.guard(g.hashed_key(g.attr(x, "d"), index=7), "type", int),
        [
            (lambda o: o.d.update(b=1), True),
            (lambda o: setattr(o, "d", {7.0: 2}), False),
            (lambda o: setattr(o, "d", {7: 4}), True),
            (lambda o: o.d.clear(), False),
        ],
    )
    yield (
        "absent within",
        Box(d={"first": {"a": 1}, "second": {}}),
        lambda g, x: g.guard(g.attr(x, "d"), "absent_within", ("k", ["first", "second"])),
        [
            (lambda o: o.d["first"].update(b=1), True),
            (lambda o: o.d["first"].update(k=1), False),
            (lambda o: o.d["first"].pop("k"), True),
            (lambda o: o.d["second"].update(k=None), False),
            (lambda o: o.d["second"].clear(), True),
            (lambda o: o.d.update(k=1), False),
            (lambda o: o.d.pop("k"), True),
            (lambda o: o.d.update(first=collections.OrderedDict()), False),
            (lambda o: o.d.update(first={}), True),
            (lambda o: o.d.update(second=[]), False),
            (lambda o: o.d.update(second={1: 2}), True),
            (lambda o: o.d.pop("first"), False),
            (lambda o: o.d.update(first={}), True),
            (lambda o: setattr(o, "d", {"first": {}, "second": {"k": 1}}), False),
            (lambda o: setattr(o, "d", {"second": {}, "first": {}}), True),
        ],
    )
    yield (
        "absent attribute",
        Box(a=1),
        lambda g, x: g.guard(g.dict(x), "absent", "k"),
        [
            (lambda o: setattr(o, "b", 1), True),
            (lambda o: setattr(o, "k", 1), False),
        ],
    )
    yield (
        "key order",
        Box(d={"a": 1, "b": 2}),
        (lambda g, x: g.guard(g.attr(x, "d"), "keys", {"a": 0, "b": 0})),
        [
            (lambda o: o.d.update(a=5), True),
            (lambda o: o.d.update(a=o.d.pop("a")), False),
            (lambda o: o.d.update(b=o.d.pop("b")), True),
            (lambda o: o.d.update(c=1), False),
            (lambda o: o.d.pop("c", None), True),
        ],
    )
    yield (
        "ordered dict",
        Box(d=collections.OrderedDict(a=1, b=2)),
        (lambda g, x: g.guard(g.attr(x, "d"), "keys", {"a": 0, "b": 0})),
        [
            (lambda o: o.d.move_to_end("b"), True),
            (lambda o: o.d.move_to_end("a"), False),
            (lambda o: o.d.move_to_end("b"), True),
            (lambda o: o.d.move_to_end("b", last=False), False),
        ],
    )
    yield (
        "dict length",
        Box(d={1: 2}),
        lambda g, x: g.guard(g.attr(x, "d"), "dict_length", 1),
        [
            (lambda o: o.d.update({1: 3}), True),
            (lambda o: o.d.update({2: 3}), False),
        ],
    )
    yield (
        "int and tuple keys",
        Box(d={1: "one", (1, "a"): "t", None: 0}),
        (
            lambda g, x: g.guard(g.item(g.attr(x, "d"), 1), "equals", "one").guard(
                g.item(g.attr(x, "d"), (1, "a")), "equals", "t"
            )
        ),
        [
            (lambda o: o.d.update({5: 5}), True),
            (lambda o: o.d.update({True: "one"}), True),
            (lambda o: o.d.update({(1, "a"): "u"}), False),
            (lambda o: o.d.update({(1, "a"): "t"}), True),
            (lambda o: o.d.update({1: "two"}), False),
        ],
    )
    yield (
        "list",
        Box(l=["Hi", "Hello"]),
        (
            lambda g, x: (
                g.guard(g.attr(x, "l"), "type", list)
                .guard(g.attr(x, "l"), "length", 2)
                .guard(g.list(g.attr(x, "l"), index=0), "equals", "Hi")
                .guard(g.list(g.attr(x, "l"), index=1), "equals", "Hello")
            )
        ),
        [
            (lambda o: setattr(o, "l", ["Hi", "Hello"]), True),
            (lambda o: o.l.append(1), False),
            (lambda o: o.l.pop(), True),
            (lambda o: o.l.reverse(), False),
            (lambda o: o.l.reverse(), True),
            (lambda o: o.l.__setitem__(0, "H" + "i"[:]), True),
            (lambda o: o.l.__setitem__(0, "Ho"), False),
            (lambda o: setattr(o, "l", ("Hi", "Hello")), False),
        ],
    )
    yield (
        "tuple of boxes",
        Box(t=(Box(n=1), Box(n=2))),
        (
            lambda g, x: g.guard(g.attr(x, "t"), "length", 2).guard(
                g.attr(g.tuple(g.attr(x, "t"), index=1), "n"), "equals", 2
            )
        ),
        [
            (lambda o: setattr(o.t[0], "n", 9), True),
            (lambda o: setattr(o.t[1], "n", 9), False),
            (lambda o: setattr(o, "t", (None, Box(n=2))), True),
            (lambda o: setattr(o, "t", (Box(n=2),)), False),
        ],
    )
    slots = Slots()
    slots.a = 1
    offset = getattr(native, "member_offset", lambda _: 0)
    yield (
        "slots",
        slots,
        (
            lambda g, x: g.guard(g.slot(x, "a", index=offset(Slots.a)), "equals", 1).guard(
                x, "unset", offset(Slots.b)
            )
        ),
        [
            (lambda o: setattr(o, "a", 2), False),
            (lambda o: setattr(o, "a", 1), True),
            (lambda o: setattr(o, "b", 1), False),
            (lambda o: delattr(o, "b"), True),
            (lambda o: delattr(o, "a"), False),
        ],
    )
    yield (
        "no dictionary",
        Box(n=slots),
        lambda g, x: g.guard(g.attr(x, "n"), "no_dict"),
        [
            (lambda o: setattr(o, "n", Slots()), True),
            (lambda o: setattr(o, "n", Box()), False),
        ],
    )

    def fresh(base):
        return type("Fresh", (base,), {"limit": 5})

    cls = fresh(Base)
    yield (
        "class attribute",
        cls(),
        (
            lambda g, x: (
                g.guard(x, "type", cls)
                .guard(g.lookup(g.type(x), "limit"), "equals", 5)
                .guard(g.dict(x), "absent", "limit")
            )
        ),
        [
            (lambda o: setattr(cls, "unrelated", 1), True),
            (lambda o: setattr(cls, "limit", 6), False),
            (lambda o: setattr(cls, "limit", 5), True),
            (lambda o: delattr(cls, "limit"), False),
            (lambda o: setattr(cls, "limit", 5), True),
            (lambda o: setattr(o, "limit", 5), False),
        ],
    )
    base = fresh(Base)
    derived = type("Derived", (base,), {})
    yield (
        "inherited",
        derived(),
        (
            lambda g, x: (
                g.guard(g.lookup(g.type(x), "limit"), "equals", 5)
                .guard(g.super(g.type(x), "limit", after=derived), "equals", 5)
                .guard(g.type(x), "lookup_absent", "other")
            )
        ),
        [
            (lambda o: setattr(Base, "noise", 1), True),
            (lambda o: setattr(base, "limit", 7), False),
            (lambda o: setattr(base, "limit", 5), True),
            (lambda o: setattr(derived, "limit", 5), True),
            (lambda o: setattr(Base, "other", 5), False),
            (lambda o: delattr(Base, "other"), True),
        ],
    )

    def f(x, y=2, *, z=3):
        return x

    def f2(x, y=4, *, z=3):
        return -x

    code = f.__code__
    yield (
        "function",
        f,
        (
            lambda g, x: (
                g.guard(g.code(x), "is", code)
                .guard(g.tuple(g.defaults(x), index=0), "equals", 2)
                .guard(g.item(g.kwdefaults(x), "z"), "equals", 3)
                .guard(g.item(g.globals(x), "random"), "is", random)
            )
        ),
        [
            (lambda o: o.__kwdefaults__.update(z=4), False),
            (lambda o: o.__kwdefaults__.update(z=3), True),
            (lambda o: setattr(o, "__defaults__", (5,)), False),
            (lambda o: setattr(o, "__defaults__", (2,)), True),
            (lambda o: setattr(o, "__code__", f2.__code__), False),
            (lambda o: setattr(o, "__code__", code), True),
            (lambda o: globals().update(noise=random.random()), True),
            (lambda o: globals().update(random=None), False),
            (lambda o: globals().update(random=sys.modules["random"]), True),
        ],
    )
    inner = closure(5)
    yield (
        "closure",
        inner,
        lambda g, x: g.guard(g.contents(g.cell(x)), "equals", 5),
        [
            (lambda o: setattr(o.__closure__[0], "cell_contents", 6), False),
            (lambda o: setattr(o.__closure__[0], "cell_contents", 5), True),
            (lambda o: delattr(o.__closure__[0], "cell_contents"), False),
        ],
    )
    empty = closure(5)
    del empty.__closure__[0].cell_contents
    yield (
        "empty cell",
        empty,
        lambda g, x: g.guard(g.cell(x), "cell_empty"),
        [
            (lambda o: setattr(o.__closure__[0], "cell_contents", 5), False),
        ],
    )
    base_object = Base()
    yield (
        "bound method",
        Box(m=base_object.method),
        (
            lambda g, x: g.guard(g.method_func(g.attr(x, "m")), "is", Base.method).guard(
                g.method_self(g.attr(x, "m")), "is", base_object
            )
        ),
        [
            (lambda o: setattr(o, "m", base_object.method), True),
            (lambda o: setattr(o, "m", Base().method), False),
        ],
    )
    queue = collections.deque([1])
    yield (
        "bound C method",
        Box(m=queue.append),
        (
            lambda g, x: g.guard(g.attr(x, "m"), "method_of", queue.append).guard(
                g.method_self(g.attr(x, "m")), "is", queue
            )
        ),
        [
            (lambda o: setattr(o, "m", queue.append), True),
            (lambda o: setattr(o, "m", queue.appendleft), False),
            (lambda o: setattr(o, "m", collections.deque([1]).append), False),
            (lambda o: setattr(o, "m", queue.__len__), False),
            (lambda o: setattr(o, "m", collections.deque.append), False),
        ],
    )
    yield (
        "bound slot",
        Box(m=queue.__len__),
        (
            lambda g, x: g.guard(g.attr(x, "m"), "method_of", queue.__len__).guard(
                g.method_self(g.attr(x, "m")), "is", queue
            )
        ),
        [
            (lambda o: setattr(o, "m", queue.__len__), True),
            (lambda o: setattr(o, "m", queue.__iter__), False),
            (lambda o: setattr(o, "m", collections.deque([1]).__len__), False),
            (lambda o: setattr(o, "m", queue.append), False),
        ],
    )
    yield (
        "partial",
        Box(p=functools.partial(function, 1, z=4)),
        (
            lambda g, x: (
                g.guard(g.partial_func(g.attr(x, "p")), "is", function)
                .guard(g.tuple(g.partial_args(g.attr(x, "p")), index=0), "equals", 1)
                .guard(g.item(g.partial_keywords(g.attr(x, "p")), "z"), "equals", 4)
            )
        ),
        [
            (lambda o: o.p.keywords.update(y=1), True),
            (lambda o: o.p.keywords.update(z=5), False),
            (lambda o: setattr(o, "p", functools.partial(function, 1, z=4)), True),
        ],
    )
    get, replace = lambda self: 1, lambda self: 2
    holder = type("Holder", (), {"p": property(get), "s": staticmethod(get)})
    yield (
        "property and staticmethod",
        holder(),
        (
            lambda g, x: g.guard(g.fget(g.lookup(g.type(x), "p")), "is", get).guard(
                g.static_func(g.lookup(g.type(x), "s")), "is", get
            )
        ),
        [
            (lambda o: setattr(holder, "p", property(get)), True),
            (lambda o: setattr(holder, "s", staticmethod(replace)), False),
            (lambda o: setattr(holder, "s", staticmethod(get)), True),
            (lambda o: setattr(holder, "p", property(replace)), False),
        ],
    )
    things = [Box(), Box()]
    yield (
        "what a weak reference refers to",
        Box(r=weakref.ref(things[0])),
        lambda g, x: g.guard(g.referent(g.attr(x, "r")), "is", things[0]),
        [
            (lambda o: setattr(o, "r", weakref.ref(things[0], print)), True),
            (lambda o: setattr(o, "r", weakref.ref(things[1])), False),
            (lambda o: setattr(o, "r", weakref.ref(things[0])), True),
            (lambda o: setattr(o, "r", weakref.ref(Box())), False),
        ],
    )
    yield (
        "set",
        Box(s={"a", "b"}),
        lambda g, x: g.guard(g.attr(x, "s"), "set", {"a", "b"}),
        [
            (lambda o: o.s.add("c"), False),
            (lambda o: o.s.discard("c"), None),
            (lambda o: o.s.discard("a"), False),
        ],
    )
    yield (
        "element of a set",
        Box(s={"a", Box}),
        lambda g, x: (
            g.guard(g.attr(x, "s"), "holds", "a")
            .guard(g.attr(x, "s"), "holds", Box)
            .guard(g.attr(x, "s"), "lacks", 1)
        ),
        [
            (lambda o: o.s.update(["c", int]), True),
            (lambda o: o.s.add(True), False),
            (lambda o: o.s.discard(1), True),
            (lambda o: o.s.discard(Box), False),
        ],
    )
    yield (
        "module",
        Box(),
        lambda g, x: g.guard(g.module(key="random"), "is", random),
        [
            (lambda o: sys.modules.update(noise=random), True),
            (lambda o: sys.modules.pop("noise"), True),
            (lambda o: sys.modules.update(random=sys), False),
            (lambda o: sys.modules.update(random=random), True),
        ],
    )
    parameter = nn.Parameter(torch.zeros(2, 3))
    yield (
        "parameter",
        Box(p=parameter),
        lambda g, x: g.guard(g.attr(x, "p"), "tensor", parameter),
        [
            (lambda o: o.p.data.add_(1), True),
            (lambda o: setattr(o, "p", nn.Parameter(torch.ones(2, 3))), True),
            (lambda o: o.p.requires_grad_(False), False),
            (lambda o: o.p.requires_grad_(True), True),
            (lambda o: setattr(o.p, "data", torch.zeros(3, 2)), False),
            (lambda o: setattr(o.p, "data", torch.zeros(3, 2).t()), False),
            (lambda o: setattr(o.p, "data", torch.zeros(2, 3)), True),
            (lambda o: setattr(o.p, "data", torch.zeros(2, 3).half()), False),
            (lambda o: setattr(o.p, "data", torch.zeros(2, 3)), True),
            (lambda o: setattr(o.p, "grad", torch.zeros(2, 3)), True),
            (lambda o: setattr(o, "p", torch.zeros(2, 3).requires_grad_()), False),
        ],
    )
    wide = torch.zeros(1, 2, 1, 2, 1, 2, 3)
    yield (
        "seven dimensions",
        Box(p=wide),
        lambda g, x: g.guard(g.attr(x, "p"), "tensor", wide),
        [
            (lambda o: o.p.add_(1), True),
            (lambda o: o.p.transpose_(1, 6), False),
            (lambda o: o.p.transpose_(1, 6), True),
        ],
    )


CASES = list(cases())


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_each_kind_holds_and_fails(case):
    _, subject, make, changes = case
    guards = Guards()
    x = guards.arg()
    make(guards, x)
    guards.build(x)
    fast = settle(guards, subject)
    assert fast >= 1
    for number, (change, holds) in enumerate(changes):
        change(subject)
        if holds is not None:
            assert guards.passes(subject) is holds, (number, guards.set.print_guards())
            assert guards.passes(subject) is holds, (number, "again")
