"""Guards: each kind holds while nothing it speaks of has changed, and fails when it has.

The first part drives the checker directly (`GuardSet`, the testing interface of the native
module); the second goes through `stator.compile`, where a failing guard means a new trace and the
right result.
"""

import collections
import copy
import functools
import gc
import random
import sys
import weakref

import pytest
import torch
from torch import nn

native = pytest.importorskip("stator._stator")
GuardSet = getattr(native, "GuardSet", None)
direct = pytest.mark.skipif(GuardSet is None, reason="built without the testing interface")


# --- the checker by itself -------------------------------------------------------------------


class Guards:
    """A `GuardSet` with short spellings: paths are made by methods, arguments are counted."""

    def __init__(self):
        self.set = GuardSet()
        self.arguments = 0

    def arg(self, name="x"):
        self.arguments += 1
        return self.set.source("local", key=name, index=self.arguments - 1)

    def __getattr__(self, kind):
        def source(parent=None, key=None, index=0, after=None):
            return self.set.source(kind, parent, key, index, after)

        return source

    def attr(self, parent, name):
        return self.item(self.dict(parent), name)

    def guard(self, source, kind, value=None):
        self.set.guard(source, kind, value)
        return self

    def build(self, *wanted):
        self.set.build(list(wanted))
        return self

    def passes(self, *args):
        found = self.set.check(list(args))
        return not isinstance(found, str)

    def why(self, *args):
        found = self.set.check(list(args))
        assert isinstance(found, str), found
        return found

    def objects(self, *args):
        found = self.set.check(list(args))
        assert not isinstance(found, str), found
        return found


def settle(guards, *args):
    """Checks until a snapshot has been taken and used, and says that it has."""
    for _ in range(3):
        assert guards.passes(*args), guards.why(*args)
    fast, walked, snapshots, words, reason = guards.set.report()
    assert reason is None
    return fast


class Box:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Slots:
    __slots__ = ("a", "b")


class Base:
    limit = 3

    def method(self):
        return "base"


class Derived(Base):
    def method(self):
        return super().method()


def function(x, y=2, *, z=3):
    return x + y + z


def closure(value):
    def inner():
        return value

    return inner


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


CASES = list(cases()) if GuardSet is not None else []


@direct
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


def tensor_guards(*tensors):
    guards = Guards()
    sources = [guards.arg(name) for name, _ in zip("abcdefgh", tensors)]
    for source, tensor in zip(sources, tensors):
        guards.guard(source, "tensor", tensor)
    return guards, sources


@direct
def test_tensor_arguments_are_known_by_metadata():
    guards, (a, b) = tensor_guards(torch.zeros(4, 3), torch.zeros(4, 3))
    guards.guard(a, "distinct", [b]).build(a, b)
    for _ in range(5):
        x, y = torch.ones(4, 3), torch.ones(4, 3)
        assert guards.objects(x, y) == [x, y] or True
        assert guards.objects(x, y)[0] is x
    assert guards.set.report()[0] >= 5
    x, y = torch.ones(4, 3), torch.ones(4, 3)
    assert "L['a'] is not L['b']" in guards.why(x, x)
    assert "check_tensor(L['a'], torch.float32" in guards.why(x.double(), y)
    assert not guards.passes(x, y.clone().requires_grad_())
    assert not guards.passes(x, torch.ones(3, 4).t())
    assert not guards.passes(x, torch.ones(4, 2))
    assert not guards.passes(x, y.to("meta"))
    assert not guards.passes(x, nn.Parameter(y))
    assert not guards.passes(x, y.to_sparse())
    assert not guards.passes(x, 3)
    assert not guards.passes(x, None)
    with torch.inference_mode():
        assert not guards.passes(x, torch.ones(4, 3))
    assert not guards.passes(x, torch.ones(4, 3, dtype=torch.complex64).conj())


@direct
def test_argument_aliasing_with_a_parameter():
    box = Box(p=torch.zeros(2), q=torch.zeros(2))
    guards = Guards()
    x, y = guards.arg("box"), guards.arg("t")
    p, q = guards.attr(x, "p"), guards.attr(x, "q")
    for source in (p, q, y):
        guards.guard(source, "tensor", box.p)
    guards.guard(y, "distinct", [p, q]).build(y, p)
    settle(guards, box, torch.zeros(2))
    assert not guards.passes(box, box.q)
    assert guards.passes(box, torch.zeros(2))
    box.q = box.p
    assert not guards.passes(box, torch.zeros(2))


@direct
def test_same_object_on_two_paths():
    box = Box(p=torch.zeros(2))
    guards = Guards()
    x, y = guards.arg("box"), guards.arg("t")
    guards.guard(y, "same", guards.attr(x, "p")).build(y)
    settle(guards, box, box.p)
    assert not guards.passes(box, torch.zeros(2))
    box.p = torch.ones(2)
    assert guards.passes(box, box.p)


@direct
def test_constants_among_arguments():
    guards = Guards()
    x = guards.arg()
    guards.guard(x, "equals", 1000).build()
    settle(guards, 1000)
    assert guards.passes(int("1000"))
    assert not guards.passes(1000.0)
    assert not guards.passes(1001)
    assert "L['x'] == 1000, found 'no'" in guards.why("no")


@direct
def test_a_user_equality_is_never_run():
    class Liar:
        def __eq__(self, other):
            raise AssertionError("ran")

        def __hash__(self):
            return hash("k")

    box = Box(d={"k": 1})
    guards = Guards()
    x = guards.arg()
    guards.guard(guards.item(guards.attr(x, "d"), "k"), "equals", 1).build()
    settle(guards, box)
    box.d = {Liar(): 1}
    assert not guards.passes(box)
    box.d = {"k": Liar()}
    assert not guards.passes(box)


@direct
def test_global_state():
    guards = Guards()
    x = guards.arg()
    guards.guard(guards.global_state(), "global_state").guard(x, "none").build()
    settle(guards, None)
    attention = nn.attention
    changes = [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu"),
        lambda: torch.autocast("cpu", dtype=torch.float16),
        lambda: torch.autograd.set_detect_anomaly(True),
        lambda: torch.autograd.graph.saved_tensors_hooks(abs, abs),
        lambda: torch.autograd.graph.disable_saved_tensors_hooks("no"),
        torch.autograd.forward_ad.dual_level,
        lambda: torch.device("meta"),
        lambda: attention.sdpa_kernel(attention.SDPBackend.MATH),
        lambda: torch._C.DisableTorchFunctionSubclass(),
        lambda: torch.backends.cudnn.flags(benchmark=True),
        lambda: torch.backends.mkldnn.flags(enabled=False),
    ]
    for change in changes:
        with change():
            assert not guards.passes(None), change
        assert guards.passes(None), (change, guards.why(None))
    for change, undo in [
        (
            lambda: torch.use_deterministic_algorithms(True),
            lambda: torch.use_deterministic_algorithms(False),
        ),
        (
            lambda: torch.set_default_dtype(torch.float64),
            lambda: torch.set_default_dtype(torch.float32),
        ),
        (
            lambda: torch.set_autocast_dtype("cpu", torch.float16),
            lambda: torch.set_autocast_dtype("cpu", torch.bfloat16),
        ),
        (
            lambda: torch.set_autocast_cache_enabled(False),
            lambda: torch.set_autocast_cache_enabled(True),
        ),
    ]:
        change()
        assert not guards.passes(None)
        undo()
        assert guards.passes(None)
    torch.func.vmap(lambda t: (guards.why(None), t)[1])(torch.zeros(2))
    torch.set_float32_matmul_precision("high")  # Setting it back leaves other settings behind.
    assert "precision" in guards.why(None)
    torch.set_float32_matmul_precision("highest")
    with torch.no_grad():
        assert "torch.is_grad_enabled() == True, found False" in guards.why(None)


@direct
def test_an_entry_dies_with_what_it_knows_by_identity():
    def local():
        return 1

    guards = Guards()
    x = guards.arg()
    guards.guard(x, "is", local).build()
    settle(guards, local)
    died = weakref.ref(local)
    assert guards.set.is_alive()
    del local
    gc.collect()
    assert died() is None
    assert not guards.set.is_alive()
    assert not guards.passes(None)


@direct
def test_a_snapshot_keeps_no_module_alive():
    module = nn.Linear(2, 3)
    guards = Guards()
    x = guards.arg()
    guards.guard(
        guards.item(guards.item(guards.dict(x), "_parameters"), "weight"), "tensor", module.weight
    )
    guards.build()
    settle(guards, module)
    died = weakref.ref(module), weakref.ref(module.weight)
    del module
    gc.collect()
    assert died[0]() is None and died[1]() is None
    assert guards.set.is_alive()
    assert guards.passes(nn.Linear(2, 3))


@direct
def test_two_objects_share_an_entry_with_a_snapshot_each():
    guards = Guards()
    x = guards.arg()
    guards.guard(guards.attr(x, "n"), "equals", 1).build(x)
    boxes = [Box(n=1) for _ in range(4)]
    for _ in range(5):
        for box in boxes:
            assert guards.objects(box)[0] is box
    fast, walked, snapshots, _, _ = guards.set.report()
    assert (walked, snapshots) == (4, 4) and fast == 16


@direct
def test_an_address_used_again_is_no_proof():
    """A freed object's address comes back with another value."""
    guards = Guards()
    x = guards.arg()
    guards.guard(guards.list(guards.attr(x, "l"), index=0), "equals", 1.5)
    guards.guard(
        guards.attr(guards.list(guards.attr(x, "l"), index=1), "n"), "equals", 10**9
    ).build()
    box = Box(l=[float("1.5"), Box(n=10**9)])
    settle(guards, box)
    for value in range(300):
        box.l[0] = None
        box.l[0] = float(value)
        assert guards.passes(box) is (value == 1.5)
        box.l[0] = float("1.5")
        box.l[1] = None
        box.l[1] = Box(n=10**9 + value)
        assert guards.passes(box) is (value == 0)
        box.l[1] = Box(n=int("1000000000"))
        assert guards.passes(box)


@direct
def test_a_dictionary_that_changes_every_call_stays_fast():
    box = Box(step=0, n=1)
    guards = Guards()
    x = guards.arg()
    guards.guard(guards.attr(x, "n"), "equals", 1).build()
    settle(guards, box)
    walked = guards.set.report()[1]
    for _ in range(50):
        box.step += 1
        assert guards.passes(box)
    assert guards.set.report()[1] == walked


@direct
def test_printed_guards():
    box = Box(l=["Hi"], d={"k": 1}, layers=[])
    guards = Guards()
    x, y = guards.arg("l"), guards.arg("self")
    guards.guard(x, "type", list).guard(x, "length", 1).guard(guards.list(x), "equals", "Hi")
    guards.guard(guards.attr(y, "layers"), "type", list).guard(guards.attr(y, "d"), "absent", "z")
    guards.guard(guards.item(guards.attr(y, "d"), "k"), "equals", 1).build()
    assert guards.set.print_guards() == [
        f"___check_type_id(L['l'], {id(list)})",
        "len(L['l']) == 1",
        f"___check_type_id(L['l'][0], {id(str)})",
        "L['l'][0] == 'Hi'",
        f"___check_type_id(L['self'].layers, {id(list)})",
        "'z' not in L['self'].d",
        f"___check_type_id(L['self'].d['k'], {id(int)})",
        "L['self'].d['k'] == 1",
    ]


# --- a model, and random writes to it ---------------------------------------------------------


def guard_module(guards, source, module, wanted):
    """Guards what a forward pass of a module reads, and more: every slot of every module."""
    guards.guard(source, "type", type(module))
    attributes = guards.dict(source)
    for name, value in module.__dict__.items():
        slot = guards.item(attributes, name)
        if isinstance(value, dict):
            guards.guard(slot, "keys", value)
            for key, item in value.items():
                child = guards.item(slot, key)
                if isinstance(item, nn.Module):
                    guard_module(guards, child, item, wanted)
                elif isinstance(item, torch.Tensor):
                    guards.guard(child, "tensor", item)
                    wanted.append(child)
        elif isinstance(value, (bool, int, float, str, tuple, type(None))):
            guards.guard(slot, "equals", value)


def module_guards(module):
    guards = Guards()
    x = guards.arg("self")
    wanted = []
    guard_module(guards, x, module, wanted)
    guards.build(*wanted)
    return guards


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(2 * width, width)
        self.scale = 0.5


def slots_of(module):
    """Every (owner, key) a write can reach."""
    for child in module.modules():
        yield child.__dict__, "training"
        for name in child._parameters:
            yield child._parameters, name
        for name, value in child.__dict__.items():
            if isinstance(value, (int, float)):
                yield child.__dict__, name


@direct
@pytest.mark.parametrize("seed", range(20))
def test_random_writes(seed):
    """The checker passes exactly when a fresh walk over the recorded values would."""
    pick = random.Random(seed)
    module = nn.Sequential(*(Block(4) for _ in range(3)))
    guards = module_guards(module)
    settle(guards, module)
    original = [(owner, key, owner[key]) for owner, key in slots_of(module)]

    def same(now, then):
        if isinstance(then, torch.Tensor):
            return type(now) is type(then) and (
                (now.dtype, now.shape, now.stride(), now.requires_grad)
                == (torch.float32, shapes[id(then)], strides[id(then)], True)
            )
        return type(now) is type(then) and now == then

    shapes = {id(v): v.shape for _, _, v in original if isinstance(v, torch.Tensor)}
    strides = {id(v): v.stride() for _, _, v in original if isinstance(v, torch.Tensor)}
    for _ in range(200):
        owner, key, value = pick.choice(original)
        action = pick.randrange(6)
        if isinstance(value, torch.Tensor):
            if action == 0:
                owner[key] = nn.Parameter(torch.zeros(shapes[id(value)]))
            elif action == 1:
                owner[key] = torch.zeros(shapes[id(value)])
            elif action == 2:
                owner[key].requires_grad_(pick.random() < 0.5)
            else:
                value.requires_grad_(True)
                owner[key] = value
        elif action < 2:
            owner[key] = copy.copy(value) if action else type(value)(7)
        else:
            owner[key] = value
        expected = all(same(owner[key], value) for owner, key, value in original)
        assert guards.passes(module) is expected
        if pick.random() < 0.3:
            for owner, key, value in original:
                if isinstance(value, torch.Tensor):
                    value.requires_grad_(True)
                owner[key] = value
            assert guards.passes(module)


def random_tree(pick, depth):
    """A tree of boxes, lists, tuples and dicts with constants at its leaves."""
    if depth == 0:
        return pick.choice([1, 2.5, "s", None, True, (1, "a"), 10**12, float("nan")])
    children = [random_tree(pick, depth - 1) for _ in range(pick.randrange(1, 4))]
    kind = pick.randrange(4)
    if kind == 0:
        return Box(**{f"a{number}": child for number, child in enumerate(children)})
    if kind == 1:
        return children
    if kind == 2:
        return (*children, [])
    return {f"k{number}": child for number, child in enumerate(children)}


def is_leaf(tree):
    return tree is None or type(tree) in (int, float, str, bool) or tree == (1, "a")


def children_of(tree):
    """Keys and values of a container's children."""
    if isinstance(tree, Box):
        return list(tree.__dict__.items())
    if isinstance(tree, dict):
        return list(tree.items())
    return [] if is_leaf(tree) else list(enumerate(tree))


def guard_tree(guards, source, tree):
    if is_leaf(tree):
        guards.guard(source, "equals", tree)
        return
    guards.guard(source, "type", type(tree))
    if isinstance(tree, (list, tuple)):
        guards.guard(source, "length", len(tree))
    if isinstance(tree, dict):
        guards.guard(source, "keys", tree)
    for key, child in children_of(tree):
        if isinstance(tree, Box):
            path = guards.attr(source, key)
        elif isinstance(tree, dict):
            path = guards.item(source, key)
        else:
            path = getattr(guards, type(tree).__name__)(source, index=key)
        guard_tree(guards, path, child)


def alike(a, b):
    """What the guards of `guard_tree` say."""
    if type(a) is not type(b):
        return False
    if is_leaf(a) or is_leaf(b):
        return repr(a) == repr(b)
    ours, theirs = children_of(a), children_of(b)
    if not isinstance(b, Box) and [key for key, _ in ours] != [key for key, _ in theirs]:
        return False
    ours = dict(ours)
    return all(key in ours and alike(ours[key], child) for key, child in theirs)


def write_somewhere(pick, tree):
    """Writes to a random place of a tree: the same again, an equal copy, or something else."""
    containers = [tree]
    for container in containers:
        containers += [child for _, child in children_of(container) if not is_leaf(child)]
    container = pick.choice([c for c in containers if not isinstance(c, tuple) and children_of(c)])
    key, child = pick.choice(children_of(container))
    value = pick.choice(
        [lambda: child, lambda: copy.deepcopy(child), lambda: random_tree(pick, 1)]
    )()
    action = pick.randrange(8)
    if isinstance(container, Box):
        if action == 0:
            container.__dict__ = dict(container.__dict__)
        elif action == 1:
            container.extra = pick.random()
        else:
            setattr(container, key, value)
    elif isinstance(container, dict) and action == 0:
        container[key] = container.pop(key)
    elif isinstance(container, list) and action == 0:
        container.append(container.pop(0))
    else:
        container[key] = value


@direct
@pytest.mark.parametrize("seed", range(60))
def test_random_trees(seed):
    """Random writes, with objects freed and made again at the same addresses."""
    pick = random.Random(seed)
    original = Box(tree=random_tree(pick, 4))
    guards = Guards()
    guard_tree(guards, guards.attr(guards.arg(), "tree"), original.tree)
    guards.build()
    subject = Box(tree=copy.deepcopy(original.tree))
    settle(guards, subject)
    for _ in range(300):
        write_somewhere(pick, subject)
        expected = alike(subject.tree, original.tree)
        assert guards.passes(subject) is expected
        if not expected and pick.random() < 0.5:
            subject.tree = copy.deepcopy(original.tree)
            assert guards.passes(subject)


# --- through stator.compile ---------------------------------------------------------------------

stator = pytest.importorskip("stator")
compiles = pytest.mark.skipif(not hasattr(stator, "compile"), reason="no stator.compile yet")

SETTING = 1
CONFIG = {"scale": 2.0, "flags": [1, 2]}


def outside(x):
    return x * SETTING + CONFIG["scale"]


def with_default(x, factor=2, *, offset=1):
    return x * factor + offset


def flag_of(x, box):
    return x + 1 if box.flag else x - 1


def has_extra(x, box):
    return x * 2 if hasattr(box, "extra") else x * 3


def get_missing(x, d):
    return x + d.get("k", 10)


def class_limit(x, box):
    return x + box.limit


def sum_list(x, items):
    for item in items:
        x = x + item
    return x


def over_keys(x, d):
    for number, key in enumerate(d):
        x = x + (number + 1) * len(key)
    return x


def is_same(x, y):
    return x + 1 if x is y else x - y


def by_type(x, value):
    return x + 1 if isinstance(value, bool) else x + 2


def shape_of(x):
    return x + x.shape[0]


def by_dtype(x):
    return x + 1 if x.dtype == torch.float32 else x - 1


def by_grad(x):
    return x + 1 if x.requires_grad else x - 1


def by_grad_mode(x):
    return x + 1 if torch.is_grad_enabled() else x - 1


def in_set(x, names):
    return x + 1 if "a" in names else x - 1


def read_slot(x, slots):
    return x + slots.a


def unset_slot(x, slots):
    return x + 1 if hasattr(slots, "b") else x - 1


def call_closure(x, inner):
    return x + inner()


def call_partial(x, partial):
    return x + partial(1)


class WithProperty:
    def __init__(self):
        self.inner = 1

    @property
    def twice(self):
        return 2 * self.inner


def read_property(x, box):
    return x + box.twice


def call_method(x, box):
    return box.method() + x


class Adder:
    amount = 1

    def method(self):
        return self.amount


def make_slots(**values):
    slots = Slots()
    for name, value in values.items():
        setattr(slots, name, value)
    return slots


def ones():
    return torch.ones(3)


def set_global(name, value):
    return lambda *args: globals().__setitem__(name, value)


#: name, function, arguments, harmless change or None, change that matters (returns new arguments
#: or changes in place), undo or None
COMPILED = [
    (
        "global",
        outside,
        lambda: (ones(),),
        set_global("UNRELATED", 1),
        set_global("SETTING", 5),
        set_global("SETTING", 1),
    ),
    (
        "global dict",
        outside,
        lambda: (ones(),),
        lambda *a: CONFIG.update(noise=1),
        lambda *a: CONFIG.update(scale=3.0),
        lambda *a: CONFIG.update(scale=2.0),
    ),
    (
        "default",
        with_default,
        lambda: (ones(),),
        None,
        lambda *a: setattr(with_default, "__defaults__", (7,)),
        lambda *a: setattr(with_default, "__defaults__", (2,)),
    ),
    (
        "keyword default",
        with_default,
        lambda: (ones(),),
        None,
        lambda *a: with_default.__kwdefaults__.update(offset=7),
        lambda *a: with_default.__kwdefaults__.update(offset=1),
    ),
    (
        "flag",
        flag_of,
        lambda: (ones(), Box(flag=True)),
        lambda x, b: setattr(b, "other", 1),
        lambda x, b: setattr(b, "flag", False),
        None,
    ),
    (
        "flag through __dict__",
        flag_of,
        lambda: (ones(), Box(flag=True)),
        lambda x, b: b.__dict__.update(other=1),
        lambda x, b: b.__dict__.update(flag=False),
        None,
    ),
    (
        "new __dict__",
        flag_of,
        lambda: (ones(), Box(flag=True)),
        None,
        lambda x, b: setattr(b, "__dict__", {"flag": False}),
        None,
    ),
    (
        "hasattr",
        has_extra,
        lambda: (ones(), Box()),
        lambda x, b: setattr(b, "other", 1),
        lambda x, b: setattr(b, "extra", 1),
        None,
    ),
    (
        "dict.get",
        get_missing,
        lambda: (ones(), {"a": 1}),
        lambda x, d: d.update(a=2),
        lambda x, d: d.update(k=3),
        None,
    ),
    (
        "class attribute",
        class_limit,
        lambda: (ones(), Base()),
        None,
        lambda x, b: setattr(Base, "limit", 9),
        lambda *a: setattr(Base, "limit", 3),
    ),
    (
        "shadowed class attribute",
        class_limit,
        lambda: (ones(), Base()),
        None,
        lambda x, b: setattr(b, "limit", 9),
        None,
    ),
    (
        "list element",
        sum_list,
        lambda: (ones(), [1, 2]),
        lambda x, l: l.__setitem__(0, 1),
        lambda x, l: l.__setitem__(0, 5),
        None,
    ),
    ("list length", sum_list, lambda: (ones(), [1, 2]), None, lambda x, l: l.append(5), None),
    (
        "list of tensors",
        sum_list,
        lambda: (ones(), [ones(), ones()]),
        lambda x, l: l.__setitem__(0, torch.zeros(3)),
        lambda x, l: l.__setitem__(0, torch.ones(1)),
        None,
    ),
    (
        "key order",
        over_keys,
        lambda: (ones(), {"a": 1, "bb": 2}),
        None,
        lambda x, d: d.update(a=d.pop("a")),
        None,
    ),
    (
        "ordered dict",
        over_keys,
        lambda: (ones(), collections.OrderedDict(a=1, bb=2)),
        None,
        lambda x, d: d.move_to_end("a"),
        None,
    ),
    ("set", in_set, lambda: (ones(), {"a", "b"}), None, lambda x, s: s.discard("a"), None),
    (
        "slot",
        read_slot,
        lambda: (ones(), make_slots(a=1)),
        lambda x, s: setattr(s, "b", 1),
        lambda x, s: setattr(s, "a", 4),
        None,
    ),
    (
        "unset slot",
        unset_slot,
        lambda: (ones(), make_slots(a=1)),
        lambda x, s: setattr(s, "a", 2),
        lambda x, s: setattr(s, "b", 4),
        None,
    ),
    (
        "closure",
        call_closure,
        lambda: (ones(), closure(1)),
        None,
        lambda x, f: setattr(f.__closure__[0], "cell_contents", 4),
        None,
    ),
    (
        "partial",
        call_partial,
        lambda: (ones(), functools.partial(function, 1, z=4)),
        None,
        lambda x, p: p.keywords.update(z=9),
        None,
    ),
    (
        "property",
        read_property,
        lambda: (ones(), WithProperty()),
        None,
        lambda x, b: setattr(b, "inner", 9),
        None,
    ),
    (
        "class of an instance",
        call_method,
        lambda: (ones(), Adder()),
        None,
        lambda x, b: setattr(b, "__class__", type("Other", (Adder,), {"amount": 4})),
        None,
    ),
    (
        "instance method",
        call_method,
        lambda: (ones(), Adder()),
        None,
        lambda x, b: setattr(b, "method", lambda: 8),
        None,
    ),
    (
        "class method replaced",
        call_method,
        lambda: (ones(), Adder()),
        None,
        lambda x, b: setattr(Adder, "method", lambda self: 8),
        lambda *a: setattr(Adder, "method", Adder_method),
    ),
    (
        "code",
        with_default,
        lambda: (ones(),),
        None,
        lambda *a: setattr(with_default, "__code__", other_code),
        lambda *a: setattr(with_default, "__code__", own_code),
    ),
]
Adder_method = Adder.method


def _other(x, factor=2, *, offset=1):
    return x - factor - offset


own_code, other_code = with_default.__code__, _other.__code__

#: name, function, arguments that share a trace, arguments that need another
ARGUMENTS = [
    ("shape", shape_of, [(torch.ones(3),), (torch.zeros(3),)], (torch.ones(4, 2),)),
    ("dtype", by_dtype, [(torch.ones(3),), (torch.zeros(3),)], (torch.ones(3).double(),)),
    ("requires_grad", by_grad, [(torch.ones(3),)], (torch.ones(3, requires_grad=True),)),
    ("strides", shape_of, [(torch.ones(3, 3),)], (torch.ones(3, 3).t(),)),
    ("aliasing", is_same, [(torch.ones(3), torch.ones(3))], None),
    ("bool is no int", by_type, [(torch.ones(3), True)], (torch.ones(3), 1)),
    ("float bits", lambda x, v: x / v, [(torch.ones(3), 0.0)], (torch.ones(3), -0.0)),
    ("string", lambda x, s: x * len(s), [(torch.ones(3), "Hello")], (torch.ones(3), "Hi")),
    ("none", lambda x, v: x if v is None else x + v, [(torch.ones(3), None)], (torch.ones(3), 2)),
]


def agree(compiled, plain, args):
    got, want = compiled(*args), plain(*args)
    assert torch.equal(got, want) and got.dtype == want.dtype, (got, want)


@compiles
@pytest.mark.parametrize("case", COMPILED, ids=[case[0] for case in COMPILED])
def test_outside_state(case):
    _, plain, make, harmless, change, undo = case
    args = make()
    compiled = stator.compile(plain)
    for _ in range(4):
        agree(compiled, plain, args)
    traces = compiled.stats.traces
    hits = compiled.stats.hits
    assert traces >= 1 and hits >= 1
    if harmless is not None:
        harmless(*args)
        agree(compiled, plain, args)
        assert compiled.stats.traces == traces
    try:
        change(*args)
        agree(compiled, plain, args)
        assert compiled.stats.traces > traces
        agree(compiled, plain, args)
    finally:
        if undo is not None:
            undo(*args)
    agree(compiled, plain, args)


@compiles
@pytest.mark.parametrize("case", ARGUMENTS, ids=[case[0] for case in ARGUMENTS])
def test_arguments(case):
    _, plain, shared, other = case
    compiled = stator.compile(plain)
    for _ in range(3):
        for args in shared:
            agree(compiled, plain, args)
    assert compiled.stats.traces == 1
    if other is None:
        other = (shared[0][0], shared[0][0])
    agree(compiled, plain, other)
    assert compiled.stats.traces == 2
    for args in [*shared, other]:
        agree(compiled, plain, args)
    assert compiled.stats.traces == 2


@compiles
def test_grad_mode_is_an_entry_of_its_own():
    compiled = stator.compile(by_grad_mode)
    for _ in range(3):
        agree(compiled, by_grad_mode, (ones(),))
        with torch.no_grad():
            agree(compiled, by_grad_mode, (ones(),))
    assert compiled.stats.traces == 2


@compiles
def test_modules_of_one_class_share_a_trace():
    def forward(module, x):
        return x @ module.weight if module.training else x

    compiled = stator.compile(forward)
    modules = [nn.Linear(3, 3) for _ in range(5)]
    for _ in range(3):
        for module in modules:
            agree(compiled, forward, (module, ones()))
    assert compiled.stats.traces == 1
    modules[2].eval()
    agree(compiled, forward, (modules[2], ones()))
    assert compiled.stats.traces == 2
    modules[2].weight.requires_grad_(False)
    modules[2].train()
    agree(compiled, forward, (modules[2], ones()))
    assert compiled.stats.traces == 3


@compiles
def test_a_trace_keeps_no_module_alive():
    compiled = stator.compile(lambda module, x: x @ module.weight)
    module = nn.Linear(3, 3)
    for _ in range(3):
        compiled(module, ones())
    died = weakref.ref(module)
    del module
    gc.collect()
    assert died() is None


@compiles
@pytest.mark.parametrize("seed", range(10))
def test_random_writes_compiled_against_plain(seed):
    """DESIGN, rule 8: random writes to every reachable slot between calls."""
    pick = random.Random(seed)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.scale, self.shift, self.use_shift = 2.0, 1, True
            self.table = {"a": 1, "b": 2}
            self.items = [1, 2]
            self.child = Box(n=1, deep=Box(on=False))

        def forward(self, x):
            x = x * self.weight * self.scale
            if self.use_shift:
                x = x + self.shift
            for number, key in enumerate(self.table):
                x = x + number * self.table[key]
            for item in self.items:
                x = x - item
            return -x if self.child.deep.on else x * self.child.n

    model = Model()
    plain = Model.forward
    compiled = stator.compile(plain, recompile_limit=10**6) if seed % 2 else stator.compile(plain)
    writes = [
        lambda: setattr(model, "scale", pick.choice([2.0, 0.5, 2])),
        lambda: setattr(model, "shift", pick.choice([1, True, 3])),
        lambda: setattr(model, "use_shift", pick.random() < 0.5),
        lambda: model.table.update(a=pick.randrange(3)),
        lambda: model.table.update(a=model.table.pop("a")),
        lambda: model.items.__setitem__(0, pick.randrange(2)),
        lambda: model.items.reverse(),
        lambda: setattr(model.child, "n", pick.randrange(1, 3)),
        lambda: setattr(model.child, "deep", Box(on=pick.random() < 0.5)),
        lambda: model.child.deep.__dict__.update(on=pick.random() < 0.5),
        lambda: setattr(model.child, "__dict__", {"n": 1, "deep": Box(on=False)}),
        lambda: setattr(model, "weight", nn.Parameter(torch.rand(3))),
        lambda: setattr(model.weight, "data", torch.rand(3)),
        lambda: model.weight.requires_grad_(pick.random() < 0.5),
        lambda: setattr(model, "unread", pick.random()),
    ]
    for _ in range(120):
        for write in pick.sample(writes, pick.randrange(3)):
            write()
        agree(compiled, plain, (model, ones()))
