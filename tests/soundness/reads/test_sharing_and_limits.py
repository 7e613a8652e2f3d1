"""Entries shared by like modules, entries that die, counters, the recompile limit, `reset`."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

X = torch.ones(2, 3)
needs_stats = pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")


class Net(nn.Module):
    """A small tree with plain attributes."""

    def __init__(self, width: int = 3, scale: float = 2.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)])
        self.norm = nn.LayerNorm(width)
        self.scale = scale
        self.config = {"act": "relu"}

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = getattr(torch, self.config["act"])(layer(x)) * self.scale
        return self.norm(x)


def call(net: nn.Module, x: Tensor) -> Tensor:
    return net(x)


def test_like_modules_share_an_entry() -> None:
    compiled = api.compile(call)
    nets = [Net() for _ in range(5)]
    for _ in range(3):
        for net in nets:
            assert torch.equal(compiled(net, X), net(X))
    if not api.PLAIN:
        assert api.traces(compiled) == 1
        assert api.native(compiled) == 0


def test_blocks_of_one_model_share_an_entry() -> None:
    block = api.compile(lambda block, x: block(x))
    model = nn.ModuleList([Net() for _ in range(6)])
    x = X
    expected = X
    for one in model:
        x = block(one, x)
        expected = one(expected)
    assert torch.equal(x, expected)
    if not api.PLAIN:
        # The first block is called with a leaf, the others with tensors that have a history.
        assert api.traces(block) <= 2


def test_compiled_method_is_shared_by_instances() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).tanh()

    plain = Block.forward
    Block.forward = api.compile(Block.forward)  # type: ignore[method-assign]
    blocks = [Block() for _ in range(4)]
    for _ in range(2):
        for block in blocks:
            assert torch.equal(block(X), plain(block, X))
    if not api.PLAIN:
        assert api.traces(Block.forward) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda: Net(scale=3.0),
        lambda: Net().eval(),
        lambda: Net().requires_grad_(False),
        lambda: setattr_(Net(), "config", {"act": "tanh"}),
        lambda: setattr_(Net(), "norm", nn.Identity()),
        lambda: hooked(Net()),
    ],
    ids=["number", "training", "requires_grad", "dict", "child", "hook"],
)
def test_unlike_modules_do_not_share(other: Any) -> None:
    compiled = api.compile(call)
    first, second = Net(), other()
    for _ in range(3):
        for net in (first, second):
            assert torch.equal(compiled(net, X), net(X))
            assert compiled(net, X).requires_grad == net(X).requires_grad


def setattr_(net: nn.Module, name: str, value: Any) -> nn.Module:
    setattr(net, name, value)
    return net


def hooked(net: nn.Module) -> nn.Module:
    net.register_forward_hook(lambda m, args, out: out * 2)
    return net


def test_module_that_counts() -> None:
    """`self.n += 1`: the state after the recorded call isn't the state its guards speak of."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n = 0
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.n += 1
            return self.layer(x)

    torch.manual_seed(0)
    plain = Counting()
    torch.manual_seed(0)
    ours = Counting()
    compiled = api.compile(ours)
    for step in range(12):
        assert torch.equal(compiled(X), plain(X))
        assert ours.n == plain.n == step + 1


@pytest.mark.parametrize("reads", [True, False])
def test_counter_reset_in_between(reads: bool) -> None:
    class State:
        n = 0

    def fn(state: State, x: Tensor) -> Tensor:
        state.n += 1
        return x * state.n if reads else x * 2

    plain, ours = State(), State()
    compiled = api.compile(fn)
    for step in range(15):
        if step % 4 == 3:
            plain.n = ours.n = 0
        assert torch.equal(compiled(ours, X), fn(plain, X))
        assert ours.n == plain.n


def test_module_dies() -> None:
    """Entries never keep the user's modules or tensors alive."""
    compiled = api.compile(call)
    net = Net()
    for _ in range(3):
        compiled(net, X)
    watched = weakref.ref(net)
    weight = weakref.ref(net.layers[0].weight)
    del net
    gc.collect()
    assert watched() is None
    assert weight() is None
    other = Net()
    assert torch.equal(compiled(other, X), other(X))


def test_arguments_and_results_die() -> None:
    compiled = api.compile(lambda x, d: {"y": x * d["k"][0], "list": [x + 1]})
    x, k = torch.ones(3), torch.ones(3)
    result: Any = None
    for _ in range(3):
        result = compiled(x, {"k": [k]})
    watched = [weakref.ref(t) for t in (x, k, result["y"], result["list"][0])]
    del x, k, result
    gc.collect()
    assert [ref() for ref in watched] == [None] * 4


def test_closure_and_globals_die_with_the_compiled_function() -> None:
    class Big:
        n = 2

    def build() -> tuple[Any, weakref.ref[Any]]:
        big = Big()
        return api.compile(lambda x: x * big.n), weakref.ref(big)

    compiled, watched = build()
    compiled(X)
    compiled(X)
    assert watched() is not None
    del compiled
    gc.collect()
    assert watched() is None


def test_wrapped_module_dies() -> None:
    net = Net()
    compiled = api.compile(net)
    compiled(X)
    compiled(X)
    watched = weakref.ref(net)
    del net, compiled
    gc.collect()
    assert watched() is None


def test_object_replaced_at_the_same_address() -> None:
    class Holder:
        def __init__(self, n: int) -> None:
            self.n = n

    holder: Any = Holder(0)
    space = {"holder": holder}
    compiled = api.compile(lambda x: x * space["holder"].n)
    for n in range(30):
        space["holder"] = None  # type: ignore[assignment]
        del holder
        holder = Holder(n % 3)
        space["holder"] = holder
        assert torch.equal(compiled(X), X * (n % 3))


def test_many_short_lived_modules() -> None:
    compiled = api.compile(call)
    for n in range(40):
        net = Net(scale=float(n % 2))
        assert torch.equal(compiled(net, X), net(X))
        del net
        if n % 10 == 0:
            gc.collect()


@needs_stats
def test_recompile_limit() -> None:
    """After the limit: native, right, and one warning that says how to raise it."""
    compiled = api.compile(lambda x, s: x * len(s), recompile_limit=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            for n in range(8):
                assert torch.equal(compiled(X, "a" * n), X * n)
    assert api.traces(compiled) == 3
    assert api.native(compiled) > 0
    ours = [str(item.message) for item in caught if "recompile_limit" in str(item.message)]
    assert len(ours) == 1, [str(item.message) for item in caught]


@needs_stats
def test_entries_before_the_limit_still_serve() -> None:
    compiled = api.compile(lambda x, s: x * len(s), recompile_limit=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for s in ("a", "bb", "ccc", "dddd"):
            compiled(X, s)
        before = api.hits(compiled)
        assert torch.equal(compiled(X, "bb"), X * 2)
    after = api.hits(compiled)
    assert before is not None and after is not None
    assert after >= before


@needs_stats
def test_what_came_once_gives_its_place() -> None:
    """The first steps of a training hold no place for good; no more places are given away than there are."""
    compiled = api.compile(lambda x, s: x * len(s), recompile_limit=3)

    def call(s: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.equal(compiled(X, s), X * len(s))

    for s in ("a", "bb", "ccc"):
        call(s)
    for _ in range(40):
        call("ccc")
    for _ in range(3):
        call("dddd")
        call("eeeee")
    assert (api.traces(compiled), api.native(compiled)) == (5, 0)
    for n in range(6):
        call("f" * (6 + n))
        for _ in range(40):
            call("ccc")
    assert (api.traces(compiled), api.native(compiled)) == (5, 6)


@needs_stats
def test_as_many_give_their_places_as_there_are() -> None:
    compiled = api.compile(lambda x, s: x * len(s), recompile_limit=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(9):
            for _ in range(40):
                compiled(X, "a")
            assert torch.equal(compiled(X, "b" * (n + 2)), X * (n + 2))
    assert (api.traces(compiled), api.native(compiled)) == (6, 4)


@needs_stats
def test_default_limit_is_eight() -> None:
    compiled = api.compile(lambda x, s: x * len(s))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(12):
            compiled(X, "a" * n)
    assert api.traces(compiled) == 8


@needs_stats
def test_reset_forgets() -> None:
    compiled = api.compile(lambda x: x * 2)
    compiled(X)
    compiled(X)
    before = api.traces(compiled)
    api.reset()
    assert torch.equal(compiled(X), X * 2)
    after = api.traces(compiled)
    assert before is not None and after is not None
    assert after in (1, before + 1)


@needs_stats
def test_statistics_add_up() -> None:
    compiled = api.compile(lambda x: x * 2)
    for _ in range(5):
        compiled(X)
    stats = compiled.stats
    assert (stats.traces, stats.hits, stats.native, stats.reason) == (1, 4, 0, None)
    assert len(compiled.graph_code()) == len(compiled.guards()) == 1


@needs_stats
def test_two_compiled_objects_of_one_function_are_apart() -> None:
    def fn(x: Tensor) -> Tensor:
        return x * 2

    one, two = api.compile(fn), api.compile(fn)
    one(X)
    one(X)
    assert api.traces(one) == 1
    assert api.traces(two) == 0
    assert torch.equal(two(X), X * 2)
