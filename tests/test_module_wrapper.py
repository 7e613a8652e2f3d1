"""A compiled `nn.Module` behaves as the module it wraps, in everything but how a call is run."""

from __future__ import annotations

import copy
import gc
import inspect
import io
import logging
import pickle
import subprocess
import sys
import types
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, Self

import pytest
import torch
from torch import nn

import stator
from stator import _ran
from stator._module import _FLUENT, CompiledModule


class Net(nn.Module):
    """A module with parameters, buffers, children and ordinary attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("offset", torch.ones(3))
        self.scale = 2

    def forward(self, x, *, shift=0):
        """Runs the net."""
        return self.drop(self.norm(self.linear(x))) * self.scale + self.offset + shift

    @property
    def width(self):
        return self.linear.in_features

    def double_scale(self):
        self.scale *= 2
        return self.scale

    @classmethod
    def create(cls):
        return cls()


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def wrapped(net: Net) -> Any:
    return stator.compile(net)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(4, 3)


def calls(wrapped: Any) -> int:
    stats = stator.stats(wrapped)
    return stats.traces + stats.hits + stats.native


def test_calls_are_compiled(net: Net, wrapped: Any, x: torch.Tensor) -> None:
    for _ in range(3):
        assert torch.equal(wrapped(x, shift=1), net(x, shift=1))
    assert calls(wrapped) == 3
    assert torch.equal(wrapped.__call__(x), net(x))
    assert calls(wrapped) == 4


def test_it_is_a_module_of_its_class(net: Net, wrapped: Any) -> None:
    assert isinstance(wrapped, nn.Module)
    assert isinstance(wrapped, Net)
    assert isinstance(wrapped, CompiledModule)
    assert not isinstance(net, CompiledModule)
    assert wrapped.__class__ is Net
    assert wrapped.__wrapped__ is net
    assert callable(wrapped)


def test_what_describes_it(net: Net, wrapped: Any) -> None:
    assert repr(wrapped) == repr(net)
    assert str(wrapped) == str(net)
    assert dir(wrapped) == dir(net)
    assert wrapped.__doc__ == net.__doc__
    assert inspect.signature(wrapped) == inspect.signature(net)
    assert inspect.signature(wrapped.forward) == inspect.signature(net.forward)


def test_attributes_are_read_from_the_module(net: Net, wrapped: Any) -> None:
    assert wrapped.linear is net.linear
    assert wrapped.scale == 2
    assert wrapped.width == 3
    assert wrapped.training is False
    assert vars(wrapped) is vars(net)
    assert isinstance(wrapped.create(), Net)
    net.later = 3
    assert wrapped.later == 3
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'missing'"):
        wrapped.missing  # noqa: B018


def test_attributes_are_written_to_the_module(net: Net, wrapped: Any, x: torch.Tensor) -> None:
    wrapped.scale = 5
    assert net.scale == 5
    assert torch.equal(wrapped(x), net(x))
    assert wrapped.double_scale() == 10 == net.scale
    wrapped.linear = nn.Linear(3, 3)
    assert net.linear is wrapped.linear
    assert torch.equal(wrapped(x), net(x))
    wrapped.extra = nn.Parameter(torch.ones(1))
    assert "extra" in dict(net.named_parameters())
    del wrapped.extra
    assert not hasattr(net, "extra")
    wrapped.offset = torch.zeros(3)
    assert torch.equal(net.offset, torch.zeros(3))
    assert torch.equal(wrapped(x), net(x))


def test_state_has_no_prefixes(net: Net, wrapped: Any) -> None:
    assert list(wrapped.state_dict()) == list(net.state_dict())
    assert [n for n, _ in wrapped.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert [n for n, _ in wrapped.named_buffers()] == [n for n, _ in net.named_buffers()]
    assert [n for n, _ in wrapped.named_modules()] == [n for n, _ in net.named_modules()]
    assert [n for n, _ in wrapped.named_children()] == [n for n, _ in net.named_children()]
    assert all(a is b for a, b in zip(wrapped.parameters(), net.parameters(), strict=True))


def test_state_can_be_loaded(net: Net, wrapped: Any, x: torch.Tensor) -> None:
    other = Net().eval()
    wrapped.load_state_dict(other.state_dict())
    assert torch.equal(wrapped(x), other(x))
    assert torch.equal(net(x), other(x))


def test_as_a_child_it_adds_no_prefix_either(net: Net, wrapped: Any, x: torch.Tensor) -> None:
    parent = nn.Sequential(wrapped, nn.ReLU())
    plain = nn.Sequential(net, nn.ReLU())
    assert list(parent.state_dict()) == list(plain.state_dict())
    assert [n for n, _ in parent.named_parameters()] == [n for n, _ in plain.named_parameters()]
    assert torch.equal(parent(x), plain(x))
    assert calls(wrapped) == 1
    parent.train()
    assert net.training
    parent.double()
    assert net.linear.weight.dtype is torch.float64
    parent.load_state_dict(plain.state_dict())
    twin = copy.deepcopy(parent)
    assert isinstance(twin[0], CompiledModule)


def test_train_and_eval(net: Net, wrapped: Any, x: torch.Tensor) -> None:
    assert wrapped.train() is wrapped
    assert net.training
    assert net.drop.training
    torch.manual_seed(1)
    expected = copy.deepcopy(net)(x)
    torch.manual_seed(1)
    assert torch.equal(wrapped(x), expected)
    assert wrapped.eval() is wrapped
    assert not net.drop.training
    assert torch.equal(wrapped(x), net(x))


def test_methods_that_return_the_module_return_the_wrapper(net: Net, wrapped: Any) -> None:
    assert wrapped.to(torch.float64) is wrapped
    assert net.linear.weight.dtype is torch.float64
    assert wrapped.float().half().bfloat16().double().cpu() is wrapped
    assert wrapped.requires_grad_(False) is wrapped
    assert not net.linear.weight.requires_grad
    assert wrapped.type(torch.float32) is wrapped


def test_the_list_of_such_methods_is_complete() -> None:
    methods = {name: m for name, m in vars(nn.Module).items() if inspect.isfunction(m)}
    annotated = {name for name, m in methods.items() if m.__annotations__.get("return") is Self}
    assert set(_FLUENT) == annotated | {"to"}  # `to` is annotated in its overloads.


def test_apply(net: Net, wrapped: Any) -> None:
    seen = []
    assert wrapped.apply(seen.append) is wrapped
    assert seen == [net.linear, net.norm, net.drop, net]


def test_hooks(net: Net, wrapped: Any, x: torch.Tensor) -> None:
    plain = net(x)
    handle = wrapped.register_forward_hook(lambda module, args, output: output + 1)
    assert torch.equal(wrapped(x), plain + 1)
    assert torch.equal(net(x), plain + 1)
    handle.remove()
    assert torch.equal(wrapped(x), plain)
    before = wrapped.register_forward_pre_hook(lambda module, args: (args[0] * 0,))
    assert torch.equal(wrapped(x), net(x))
    before.remove()
    assert torch.equal(wrapped(x), plain)


def test_forward_can_be_replaced(net: Net, wrapped: Any, x: torch.Tensor) -> None:
    wrapped(x)
    wrapped.forward = lambda x: x + 1
    assert torch.equal(wrapped(x), x + 1)
    del wrapped.forward
    assert torch.equal(wrapped(x), net(x))


def test_gradients(net: Net, wrapped: Any, x: torch.Tensor) -> None:
    twin = copy.deepcopy(net)
    for _ in range(2):
        wrapped(x).sum().backward()
        twin(x).sum().backward()
    for ours, theirs in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
    wrapped.zero_grad()
    assert all(parameter.grad is None for parameter in net.parameters())


def test_deep_copies_are_compiled_and_apart(net: Net, wrapped: Any, x: torch.Tensor) -> None:
    twin = copy.deepcopy(wrapped)
    assert isinstance(twin, CompiledModule)
    assert twin.__wrapped__ is not net
    assert torch.equal(twin(x), wrapped(x))
    twin.scale = 7
    assert net.scale == 2
    assert not torch.equal(twin(x), wrapped(x))
    shared = copy.deepcopy([wrapped, wrapped, net])
    assert shared[0] is shared[1]
    assert shared[0].__wrapped__ is shared[2]


def test_shallow_copies_share(net: Net, wrapped: Any, x: torch.Tensor) -> None:
    twin = copy.copy(wrapped)
    assert isinstance(twin, CompiledModule)
    assert twin.linear is net.linear
    assert torch.equal(twin(x), wrapped(x))


def test_pickling(wrapped: Any, x: torch.Tensor) -> None:
    loaded = pickle.loads(pickle.dumps(wrapped))
    assert isinstance(loaded, CompiledModule)
    assert torch.equal(loaded(x), wrapped(x))
    assert calls(loaded) == 1


def test_torch_save(wrapped: Any, x: torch.Tensor) -> None:
    file = io.BytesIO()
    torch.save(wrapped, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), wrapped(x))


class Container(nn.Module):
    """A module with special methods, which Python looks up on the class."""

    def __init__(self) -> None:
        super().__init__()
        self.items = [1, 2, 3]
        self.entered = False

    def forward(self, x):
        return x * len(self)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]

    def __setitem__(self, index, value):
        self.items[index] = value

    def __delitem__(self, index):
        del self.items[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self.items)

    def __contains__(self, item) -> bool:
        return item in self.items

    def __enter__(self):
        self.entered = True
        return self

    def __exit__(self, *exception) -> None:
        self.entered = False

    def __eq__(self, other) -> bool:
        return isinstance(other, Container) and self.items == other.items

    def __repr__(self) -> str:
        return f"Container({self.items})"

    __hash__ = None


def test_special_methods(x: torch.Tensor) -> None:
    container = Container()
    wrapped: Any = stator.compile(container)
    assert len(wrapped) == 3
    assert wrapped[1] == 2
    wrapped[1] = 5
    del wrapped[0]
    assert list(wrapped) == container.items == [5, 3]
    assert 5 in wrapped
    with wrapped as entered:
        assert entered is wrapped
        assert container.entered
    assert wrapped == container
    assert repr(wrapped) == "Container([5, 3])"
    with pytest.raises(TypeError):
        hash(wrapped)
    assert torch.equal(wrapped(x), x * 2)


def test_a_module_without_special_methods_has_none(wrapped: Any) -> None:
    assert bool(wrapped)
    assert wrapped == wrapped  # noqa: PLR0124
    assert isinstance(hash(wrapped), int)
    for wrong in (lambda: len(wrapped), lambda: wrapped[0], lambda: iter(wrapped)):
        with pytest.raises(TypeError):
            wrong()


def test_compiling_again(net: Net, wrapped: Any, x: torch.Tensor) -> None:
    assert stator.compile(wrapped) is wrapped
    other = stator.compile(wrapped, recompile_limit=2)
    assert other is not wrapped
    assert other.__wrapped__ is net
    assert torch.equal(other(x), wrapped(x))


def test_modules_of_torch(x: torch.Tensor) -> None:
    layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    wrapped: Any = stator.compile(layers)
    assert len(wrapped) == 2
    assert wrapped[0] is layers[0]
    assert torch.equal(wrapped(x), layers(x))
    wrapped.append(nn.Linear(3, 1))
    assert torch.equal(wrapped(x), layers(x))
    assert wrapped(x).shape == (4, 1)


def test_optimizers_train_it(net: Net, wrapped: Any, x: torch.Tensor) -> None:
    twin = copy.deepcopy(net).train()
    wrapped.train()
    for model in (wrapped, twin):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            torch.manual_seed(step)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    for name, value in twin.state_dict().items():
        assert torch.equal(net.state_dict()[name], value), name


def test_the_module_dies_with_the_wrapper(x: torch.Tensor) -> None:
    net = Net()
    wrapped: Any = stator.compile(net)
    wrapped(x)
    alive = weakref.ref(net)
    del net, wrapped
    gc.collect()
    assert alive() is None


class Picky(nn.Module):
    def forward(self, x: torch.Tensor, text: str) -> torch.Tensor:
        return x + len(text)


def test_reports_name_the_users_forward(x: torch.Tensor, caplog: pytest.LogCaptureFixture) -> None:
    compiled: Any = stator.compile(Picky(), recompile_limit=2)
    stator.set_logs(recompiles=True)
    try:
        with (
            caplog.at_level(logging.INFO, "stator"),
            pytest.warns(stator.RecompileLimitWarning) as caught,
        ):
            for text in ("a", "bb", "ccc", "dddd"):
                torch.testing.assert_close(compiled(x, text), x + len(text))
    finally:
        stator.set_logs(all=False)
    (warning,) = caught
    line = Picky.forward.__code__.co_firstlineno
    assert (warning.filename, warning.lineno) == (__file__, line)
    (head, *_) = caplog.messages[0].splitlines()
    assert head.startswith("Recompiling function Picky.forward in ")
    assert head.endswith(f"test_module_wrapper.py:{line}")


def through(net: Any) -> Any:
    """Reads, writes and calls it, as accelerate's hooks do, which hold the wrapper."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        net.seen = x
        if hasattr(net, "seen"):
            del net.seen
        y = net.forward(x, shift=net.scale) * len(net.linear.weight)
        return net(y) + net.linear(y)

    return fn


def test_a_trace_goes_through_a_wrapper(net: Net, wrapped: Any, x: torch.Tensor) -> None:
    compiled, plain = stator.compile(through(wrapped)), through(net)
    for scale in (2, 2, 3, 3, 2):
        net.scale = scale
        assert torch.equal(compiled(x), plain(x))
        assert not hasattr(net, "seen")
    stats = stator.stats(compiled)
    assert (stats.breaks, stats.traces, stats.hits) == (0, 2, 3), stats.reason


NEVER_CALLED = """
import torch, stator
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
    def forward(self, x):
        return self.linear(x).relu()
    def generate(self, x):
        for _ in range(10):
            x = self(x)
        return x

X = torch.ones(1, 2)
net = Net()
compiled = stator.compile(net)
"""

USES = {
    "compiled.generate(X)": "Net.forward, Net.generate",
    "[compiled.forward(X) for _ in range(10)]": "Net.forward",
    "[compiled._orig_mod(X) for _ in range(10)]": "Net.forward",
    "net.forward = compiled.forward; [net(X) for _ in range(10)]": "Net.forward",
    "again = stator.compile(net); again(X); net.generate(X)": "Net.forward, Net.generate",
    # Nothing to tell of.
    "": "",
    "compiled.eval(); compiled.state_dict(); net(X)": "",
    "compiled(X); compiled.generate(X)": "",
    "compiled(X); stator.reset(); compiled.generate(X)": "",
    "other = stator.compile(lambda x: compiled(x)); other(X); other(X); net.generate(X)": "",
    "del compiled; net.generate(X); compiled = stator.compile(net); net(X)": "",
}


@pytest.mark.parametrize("use", USES)
def test_who_never_calls_it_is_told(use: str) -> None:
    """Once, when it dies; not if nothing has run without it."""
    names: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        exec(NEVER_CALLED + use, names)
        names.clear()
        gc.collect()
    texts = [str(one.message) for one in told if one.category is stator.NeverCalledWarning]
    assert len(texts) == bool(USES[use])
    assert not texts or f"but {USES[use]} ran as plain Python" in texts[0]


def test_who_never_calls_it_is_told_at_the_end() -> None:
    """By the process that compiled it alone."""
    use = "import os; child = os.fork(); child and os.waitpid(child, 0); net.generate(X)"
    told = subprocess.run(
        [sys.executable, "-c", NEVER_CALLED + use], capture_output=True, text=True, check=True
    )
    assert told.stderr.count("NeverCalledWarning") == 1, told.stderr
    assert "a compiled Net was never called, but Net.forward" in told.stderr


class Monitoring:
    """`sys.monitoring` as CPython 3.12 has it, as far as it is used; `call` calls as that would see it."""

    class events:
        PY_START = 1

    def __init__(self, *taken: int) -> None:
        self.tools: dict[int, str] = dict.fromkeys(taken, "another")
        self.callback: Any = None
        self.watched: dict[int, int] = {}
        self.told = 0

    def get_tool(self, tool: int) -> str | None:
        return self.tools.get(tool)

    def use_tool_id(self, tool: int, name: str) -> None:
        assert tool not in self.tools
        self.tools[tool] = name

    def register_callback(self, tool: int, event: int, callback: Any) -> None:
        assert self.tools[tool] == "stator" and event == self.events.PY_START
        self.callback = callback

    def set_local_events(self, tool: int, code: Any, events: int) -> None:
        assert self.tools[tool] == "stator"
        self.watched[id(code)] = events

    def call(self, function: Any, times: int) -> None:
        for _ in range(times):
            if self.watched.get(id(function.__code__)):
                self.told += 1
                self.callback(function.__code__, 0)


def test_calls_are_counted_where_monitoring_tells_of_them() -> None:
    def make() -> Any:
        return lambda: None

    one, other, third = (types.FunctionType(make().__code__.replace(), {}) for _ in range(3))
    monitoring = Monitoring(3)
    monitor = _ran.Monitor(monitoring)
    watched = _ran.Monitored(monitor, [one.__code__, other.__code__])
    monitoring.call(one, 100)
    monitoring.call(other, 7)
    monitoring.call(third, 100)
    assert watched.has_run(one.__code__) and not watched.has_run(other.__code__)
    assert not watched.has_run(third.__code__)  # of equal code, which isn't watched
    assert monitoring.told == 8 + 7
    # What has run before counts as not run.
    later = _ran.Monitored(monitor, [one.__code__, other.__code__])
    monitoring.call(one, 10)
    monitoring.call(other, 10)
    assert not later.has_run(one.__code__) and later.has_run(other.__code__)
    with pytest.raises(RuntimeError, match="is free"):
        _ran.Monitor(Monitoring(3, 4))
