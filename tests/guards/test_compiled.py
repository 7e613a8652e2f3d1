"""Guards through `stator.compile`: a failing one means a new trace and the right result."""

import collections
import functools
import gc
import random
import weakref

import pytest
import torch
from torch import nn

import stator

from .support import Base, Box, Slots, closure, function

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


def test_grad_mode_is_an_entry_of_its_own():
    compiled = stator.compile(by_grad_mode)
    for _ in range(3):
        agree(compiled, by_grad_mode, (ones(),))
        with torch.no_grad():
            agree(compiled, by_grad_mode, (ones(),))
    assert compiled.stats.traces == 2


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


def test_a_trace_keeps_no_module_alive():
    compiled = stator.compile(lambda module, x: x @ module.weight)
    module = nn.Linear(3, 3)
    for _ in range(3):
        compiled(module, ones())
    died = weakref.ref(module)
    del module
    gc.collect()
    assert died() is None


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
