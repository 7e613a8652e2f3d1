"""What a program says of its functions: a break here, one operation, a constant, a substitute."""

from __future__ import annotations

import binascii
import functools
import gc
import inspect
import logging
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import stator

X = torch.arange(3.0)


@pytest.fixture
def breaks(caplog: pytest.LogCaptureFixture) -> Any:
    """The records of the `graph_breaks` log."""
    stator.set_logs(graph_breaks=True)
    caplog.set_level(logging.INFO, "stator")
    return caplog


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def steady(fn: Callable[..., Any], *args: Any, calls: int = 3, **settings: Any) -> Any:
    """`fn` compiled, which equals plain Python recorded and replayed; one trace serves."""
    compiled = stator.compile(fn, **settings)
    for _ in range(calls):
        same(compiled(*args), fn(*args))
    stats = stator.stats(compiled)
    assert (stats.traces, stats.hits) == (1, calls - 1), stats.reason
    return compiled


# --- graph_break ------------------------------------------------------------------------------------


def broken(x):
    y = x + 1
    stator.graph_break("after the sum")
    return y * 2


def broken_for_torch(x):
    torch._dynamo.graph_break()
    return x * 2


@pytest.mark.parametrize("fn", [broken, broken_for_torch])
def test_graph_break_ends_the_trace(fn: Any, breaks: Any) -> None:
    compiled = stator.compile(fn)
    for _ in range(3):
        same(compiled(X), fn(X))
    report = breaks.messages[0]
    assert "SB017 a graph break that was asked for" in report
    assert ("What: after the sum" in report) == (fn is broken)


def test_graph_break_is_an_error_under_fullgraph() -> None:
    with pytest.raises(stator.GraphBreakError, match="after the sum") as raised:
        stator.compile(broken, fullgraph=True)(X)
    assert raised.value.id == "SB017"
    assert raised.value.stack[-1][2] == "broken"


def test_graph_break_does_nothing_in_plain_python() -> None:
    assert stator.graph_break() is None
    assert stator.graph_break(msg="why") is None
    assert str(inspect.signature(stator.graph_break)) == "(msg='')"


# --- is_compiling -----------------------------------------------------------------------------------


def test_is_compiling_is_what_plain_python_says_unless_asked_otherwise() -> None:
    def fn(x):
        return x * 2 if stator.is_compiling() else x * 3

    for settings, expected in (({}, X * 3), ({"is_compiling": True}, X * 2)):
        compiled = stator.compile(fn, **settings)
        same(compiled(X), expected)
        same(compiled(X), expected)
        assert stator.stats(compiled).hits == 1
    same(fn(X), X * 3)
    assert not stator.is_compiling()


def test_is_compiling_is_false_in_what_is_not_traced() -> None:
    seen = []

    @stator.allow_in_graph
    def node(x):
        seen.append((stator.is_compiling(), torch.compiler.is_compiling()))
        return x + 1

    steady(lambda x: node(x) * 2, X)
    steady(lambda x: node(x) * 2, X, is_compiling=True)
    assert set(seen) == {(False, False)}


# --- allow_in_graph ---------------------------------------------------------------------------------

OFFSET = [1.0]


@stator.allow_in_graph
def by_data(x, scale=1.0, *, bias=None):
    """What no trace follows: it reads the data of a tensor, and a global."""
    y = x * scale + (1.0 if x.sum().item() > 0 else -1.0) + OFFSET[0]
    return y if bias is None else y + bias


@torch.compiler.allow_in_graph
def by_data_for_torch(x):
    return x + x.sum().item()


class Holder:
    """Marked functions, found in every way a class offers."""

    def __init__(self, factor):
        self.factor = factor
        self.plain = by_data

    @stator.allow_in_graph
    def method(self, x):
        return x * self.factor + x.max().item()

    @stator.allow_in_graph
    @staticmethod
    def static(x):
        return x + x.max().item()

    @staticmethod
    @stator.allow_in_graph
    def inner_static(x):
        return x - x.max().item()


HOLDER = Holder(2)
MODULE = types.ModuleType("holds_marked")
MODULE.marked = by_data  # type: ignore[attr-defined]
PARTIAL = functools.partial(by_data, scale=3.0)

CALLS: dict[str, Callable[..., Any]] = {
    "function": lambda x: by_data(x * 2) * 3,
    "keywords": lambda x: by_data(x, 2.0, bias=x + 1),
    "torch": lambda x: by_data_for_torch(x * 2) * 3,
    "module attribute": lambda x: MODULE.marked(x) + 1,
    "instance attribute": lambda x: HOLDER.plain(x) + 1,
    "method": lambda x: HOLDER.method(x + 1) * 2,
    "method of the class": lambda x: Holder.method(HOLDER, x) * 2,
    "static method": lambda x: HOLDER.static(x) + Holder.static(x),
    "static method, marked inside": lambda x: HOLDER.inner_static(x) + Holder.inner_static(x),
    "partial": lambda x: PARTIAL(x) + 1,
    "partial made inside": lambda x: functools.partial(by_data, x)(2.0),
    "unpacked": lambda x: by_data(*(x, 2.0), **{"bias": x}),
}


@pytest.mark.parametrize("how", CALLS)
def test_marked_functions_are_one_node(how: str) -> None:
    compiled = steady(CALLS[how], X)
    # Replays run the function again, with the data and the globals of the moment.
    for x in (-X, X + 1):
        same(compiled(x), CALLS[how](x))
    OFFSET[0] = 5.0
    try:
        same(compiled(X), CALLS[how](X))
    finally:
        OFFSET[0] = 1.0
    assert stator.stats(compiled).traces == 1


def test_without_the_mark_it_is_a_break() -> None:
    def unmarked(x):
        return x * x.sum().tolist()

    compiled = stator.compile(lambda x: unmarked(x) * 3)
    same(compiled(X), unmarked(X) * 3)
    assert "SB002" in str(stator.stats(compiled).reason)


def test_the_receiver_of_a_method_is_read_by_the_replay() -> None:
    def fn(h, x):
        return h.method(x) + 1

    compiled = steady(fn, Holder(2), X)
    other = Holder(5)
    same(compiled(other, X), fn(other, X))
    other.factor = 7
    same(compiled(other, X), fn(other, X))
    assert stator.stats(compiled).traces == 1


def test_an_entry_keeps_no_receiver_alive() -> None:
    compiled = stator.compile(lambda h, x: h.method(x))
    holder = Holder(2)
    for _ in range(2):
        compiled(holder, X)
    watched = weakref.ref(holder)
    del holder
    gc.collect()
    assert watched() is None


def test_methods_of_modules() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        @stator.allow_in_graph
        def gate(self, x):
            return self.linear(x) if x.sum().item() > 0 else x

        def forward(self, x):
            return self.gate(x) + 1

    net = Net()
    compiled = stator.compile(net)
    for x in (X, X, -X, X):
        same(compiled(x), net(x))
    stats = stator.stats(compiled)
    assert (stats.traces, stats.hits) == (1, 3)
    compiled(X).sum().backward()
    assert net.linear.weight.grad is not None
    found = net.linear.weight.grad.clone()
    net.zero_grad()
    net(X).sum().backward()
    same(found, net.linear.weight.grad)


Pair = __import__("collections").namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    "make",
    [
        lambda x, n: (x + n, x * n),
        lambda x, n: [x + n, [x * n, None]],
        lambda x, n: {"a": x + n, 1: (x * n, x - n)},
        lambda x, n: Pair(x + n, x * n),
        lambda x, n: None,
    ],
)
def test_containers_of_tensors(make: Any) -> None:
    @stator.allow_in_graph
    def node(given):
        return make(given["x"], given["n"].max().item())

    def fn(x):
        return node({"x": x, "n": x[1:]}), x

    compiled = steady(fn, X)
    same(compiled(X + 2), fn(X + 2))
    result = compiled(X)[0]
    assert type(result) is type(fn(X)[0])
    if isinstance(result, dict):
        assert list(result) == ["a", 1]


def test_results_of_dictionaries_are_used() -> None:
    @stator.allow_in_graph
    def node(x):
        return {"sum": x + x.max().item(), "parts": [-x, x * 2]}

    def fn(x):
        found = node(x)
        return found["sum"] * found["parts"][1] + len(found)

    compiled = steady(fn, X)
    same(compiled(X + 2), fn(X + 2))


def test_writes_to_an_argument() -> None:
    @stator.allow_in_graph
    def fill(x):
        x.add_(x.max().item())

    def fn(x):
        fill(x)
        return x * 2

    compiled = stator.compile(fn)
    for _ in range(3):
        plain, given = X.clone(), X.clone()
        same(compiled(given), fn(plain))
        same(given, plain)
    assert stator.stats(compiled).hits == 2


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"a": (x,)}])
def test_an_argument_as_result(wrap: Any) -> None:
    """Whether it comes back may depend on data: then the trace ends."""

    @stator.allow_in_graph
    def clipped(x):
        return wrap(x if x.max().item() < 5 else x * 0.1)

    def fn(x):
        y = clipped(x)
        return y, x + 1

    for order in ((X, X, X * 10, X), (X * 10, X * 10, X, X * 10)):
        compiled = stator.compile(fn)
        for x in order:
            same(compiled(x), fn(x))
            assert (next(iter(flat(compiled(x)))) is x) == (x.max() < 5)


def flat(values: Any) -> Iterator[Any]:
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, torch.Tensor):
            yield value
        else:
            yield from flat(value)


def test_a_weight_as_result() -> None:
    layer = nn.Linear(3, 3)

    @stator.allow_in_graph
    def pick(x):
        return layer.bias if x.max().item() < 5 else x

    def fn(x):
        bias = layer.bias
        return pick(x) * 2 + bias

    compiled = stator.compile(fn)
    for x in (X, X, X * 10, X):
        same(compiled(x), fn(x))


def test_effects_before_a_node_end_the_trace() -> None:
    """A replay writes at its end, so the function would see what was there before."""
    space = types.SimpleNamespace()
    box = {"n": 1}

    @stator.allow_in_graph
    def node(x):
        return x * box["n"]

    def fn(x, n):
        box["n"] = n
        return node(x)

    compiled = stator.compile(fn)
    for n in (2, 2, 3, 3):
        same(compiled(X, n), X * n)
    assert "SB004" in str(stator.stats(compiled).reason)
    assert not vars(space)


def test_a_number_as_result_ends_the_trace() -> None:
    @stator.allow_in_graph
    def number(x):
        return x.sum().item()

    compiled = stator.compile(lambda x: x * number(x))
    for x in (X, X, X + 1):
        same(compiled(x), x * x.sum().item())


def test_an_exception_in_a_node() -> None:
    @stator.allow_in_graph
    def positive(x):
        if x.min().item() < 0:
            raise ValueError("negative")
        return x + 1

    def fn(x):
        try:
            return positive(x) * 2
        except ValueError:
            return x

    compiled = stator.compile(fn)
    for x in (X, X, -X - 1, X, -X - 1):
        same(compiled(x), fn(x))


def test_a_mark_is_not_copied_to_wrappers() -> None:
    @functools.wraps(by_data)
    def wrapper(x):
        return by_data(x) * FACTOR

    compiled = steady(lambda x: wrapper(x), X)
    assert "mul" in compiled.graph_code()[0]


FACTOR = 2


def test_closures_are_told_apart() -> None:
    def make(n):
        @stator.allow_in_graph
        def node(x):
            return x * n + x.max().item() * 0

        return node

    compiled = stator.compile(lambda f, x: f(x) + 1)
    for f in (make(2), make(3)):
        for _ in range(2):
            same(compiled(f, X), f(X) + 1)


def test_lists_of_functions_and_c_functions() -> None:
    def one(x):
        return x + x.max().item()

    def two(x):
        return x - x.max().item()

    assert stator.allow_in_graph([one, two]) == [one, two]
    steady(lambda x: one(x) * two(x), X)
    assert stator.allow_in_graph(operator.abs) is operator.abs
    steady(lambda x: operator.abs(x) * 2, X)


def test_a_node_prints_and_exports() -> None:
    graphs = []

    def backend(graph_module, example_inputs):
        graphs.append(graph_module)
        return graph_module.forward

    def fn(x):
        return by_data(x * 2, 3.0)

    compiled = stator.compile(fn, backend=backend)
    for x in (X, X, -X):
        same(compiled(x), fn(x))
    assert "by_data(mul, 3.0)" in compiled.graph_code()[0]
    (graph,) = graphs
    assert by_data in [node.target for node in graph.graph.nodes]

    def method(h, x):
        return h.method(x)

    compiled = stator.compile(method, backend=backend)
    for holder in (HOLDER, HOLDER, Holder(4)):
        same(compiled(holder, X), method(holder, X))
    assert stator.stats(compiled).hits == 2


def test_c_code_that_calls_back() -> None:
    def fn(x):
        return list(map(by_data, (x, x + 1)))

    compiled = stator.compile(fn)
    for x in (X, X, -X):
        same(compiled(x), fn(x))


# --- assume_constant_result -------------------------------------------------------------------------


class Config:
    def __init__(self) -> None:
        self.calls = 0
        self.table = {"scale": 2.0}

    @stator.assume_constant_result
    def scale(self, name):
        self.calls += 1
        return self.table[name]

    @torch.compiler.assume_constant_result
    def scale_for_torch(self, name):
        self.calls += 1
        return self.table[name]


@pytest.mark.parametrize("name", ["scale", "scale_for_torch"])
def test_constant_results_are_asked_for_once(name: str) -> None:
    config = Config()

    def fn(x, key):
        return x * getattr(config, name)(key)

    compiled = stator.compile(fn)
    for _ in range(3):
        same(compiled(X, "scale"), X * 2)
    stats = stator.stats(compiled)
    assert (stats.traces, stats.hits, config.calls) == (1, 2, 1)
    config.table.update(scale=5.0, other=3.0)
    same(compiled(X, "scale"), X * 2)
    same(compiled(X, "other"), X * 3)
    assert stator.stats(compiled).traces == 2, "other arguments, another trace"


@pytest.mark.parametrize(
    ("value", "use"),
    [
        (torch.ones(3), lambda x, v: x + v),
        ([2, torch.ones(3)], lambda x, v: x * v[0] + v[1] * len(v)),
        ((2, 3), lambda x, v: x * v[0] + v[1]),
        ({"a": 2, "b": torch.ones(3)}, lambda x, v: x * v["a"] + v["b"]),
        (HOLDER, lambda x, v: x * v.factor),
        (nn.Linear(3, 3), lambda x, v: v(x)),
        (None, lambda x, v: x if v is None else -x),
        ("name", lambda x, v: x * len(v)),
        (len, lambda x, v: x * v("abc")),
    ],
)
def test_constants_of_every_kind(value: Any, use: Any) -> None:
    @stator.assume_constant_result
    def constant():
        return value

    compiled = steady(lambda x: use(x, constant()), X)
    same(compiled(X + 1), use(X + 1, value))


def test_the_entry_keeps_the_constant() -> None:
    made = []

    @stator.assume_constant_result
    def make():
        made.append(None)
        return torch.ones(3) * 4

    compiled = stator.compile(lambda x: x * make())
    for _ in range(4):
        gc.collect()
        same(compiled(X), X * 4)
    assert len(made) == 1
    assert stator.stats(compiled).hits == 3


def test_the_constant_itself_is_returned() -> None:
    node = Holder(3)

    @stator.assume_constant_result
    def find():
        return node

    compiled = stator.compile(lambda x: (x + 1, find()))
    for _ in range(3):
        assert compiled(X)[1] is node
    assert stator.stats(compiled).hits == 2


def test_a_constant_that_changes_inside_is_noticed() -> None:
    values = [1, 2]

    @stator.assume_constant_result
    def find():
        return values

    compiled = stator.compile(lambda x: x * sum(find()))
    same(compiled(X), X * 3)
    values[0] = 5
    same(compiled(X), X * 7)


def test_constant_of_closures_are_told_apart() -> None:
    def make(n):
        @stator.assume_constant_result
        def constant():
            return n

        return constant

    compiled = stator.compile(lambda f, x: x * f())
    for n in (2, 3):
        f = make(n)
        for _ in range(2):
            same(compiled(f, X), X * n)


# --- substitute_in_graph ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def polyfills() -> None:
    """`binascii.crc_hqx`, of which the function table knows nothing, gets a substitute."""
    compiled = stator.compile(lambda x, data: x * (binascii.crc_hqx(data, 2) % 7))
    compiled(X, b"a")
    assert "SB001" in str(stator.stats(compiled).reason)

    @stator.substitute_in_graph(binascii.crc_hqx, can_constant_fold_through=False)
    def crc_hqx(data, crc, /):
        for byte in data:
            crc ^= byte << 8
            for _ in range(8):
                crc = (crc << 1 ^ 0x1021 * (crc >> 15)) & 0xFFFF
        return crc

    assert crc_hqx(b"text", 2) == binascii.crc_hqx(b"text", 2)


def checked(x, data):
    return x * (binascii.crc_hqx(data, 2) % 7)


def test_substitutes_are_traced(polyfills: None) -> None:
    compiled = steady(checked, X, b"one")
    same(compiled(X, b"two"), X * (binascii.crc_hqx(b"two", 2) % 7))
    same(compiled(X, b"one"), X * (binascii.crc_hqx(b"one", 2) % 7))
    assert stator.stats(compiled).traces == 2
    steady(lambda x: x * (functools.partial(binascii.crc_hqx, b"b")(2) % 7), X)
    steady(lambda x, f: x * (f(b"c", 2) % 7), X, binascii.crc_hqx)


def test_outside_of_traces_the_original_is_called(polyfills: None) -> None:
    assert binascii.crc_hqx(b"123456789", 0) == 0x31C3
    same(checked(X, b"d"), X * (binascii.crc_hqx(b"d", 2) % 7))


def test_substitutes_can_fold() -> None:
    @stator.substitute_in_graph(operator.length_hint, can_constant_fold_through=True)
    def length_hint(obj, default=0, /):
        if obj[0] == 1:
            raise AssertionError("not with constants")
        return len(obj)

    steady(lambda x: x * operator.length_hint((1, 2)), X)
    steady(lambda x: x * operator.length_hint([x.shape, x]), X)


def test_substitutes_of_torch() -> None:
    def fn(x):
        return x * (binascii.b2a_uu(b"abc")[2] % 7)

    compiled = stator.compile(fn, fullgraph=True)
    with pytest.raises(stator.GraphBreakError):
        compiled(X)

    @torch.compiler.substitute_in_graph(binascii.b2a_uu)
    def b2a_uu(data, /, *, backtick=False):
        bits = data[0] << 16 | data[1] << 8 | data[2]
        return bytes([35, *[32 + (bits >> shift & 63) for shift in (18, 12, 6, 0)], 10])

    assert b2a_uu(b"abc") == binascii.b2a_uu(b"abc")
    for _ in range(2):
        assert torch.equal(compiled(X), fn(X))
    assert stator.stats(compiled).hits == 1


def test_signatures_must_agree() -> None:
    with pytest.raises(stator.errors.SubstituteError, match="skip_signature_check"):
        stator.substitute_in_graph(operator.concat)(lambda x: x)
    stator.substitute_in_graph(operator.concat, skip_signature_check=True)(lambda p, q: p + q)
    steady(lambda x: x * len(operator.concat([1], [2, 3])), X)


# --- compiled functions within others ----------------------------------------------------------------

USED = stator.compile(lambda x: x + 1)


class Methods:
    @stator.compile
    def method(self, x):
        return x * self.n

    n = 2


def test_compiled_methods_are_part_of_the_trace() -> None:
    owner = Methods()
    compiled = steady(lambda x: owner.method(x) + Methods.method(owner, x), X)
    owner.n = 3
    same(compiled(X), X * 6)
    Methods.method = stator.compile(lambda self, x: x * 10)
    same(compiled(X), X * 20)


def test_a_compiled_function_is_replaced() -> None:
    compiled = steady(lambda x: USED(x) * 2, X)
    module = sys.modules[__name__]
    before = USED
    module.USED = stator.compile(lambda x: x - 1)  # type: ignore[attr-defined]
    try:
        same(compiled(X), (X - 1) * 2)
    finally:
        module.USED = before  # type: ignore[attr-defined]
    same(compiled(X), (X + 1) * 2)
