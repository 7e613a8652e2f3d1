"""`copy.deepcopy` of modules of PyTorch's: one trace, equal to plain Python's also after what was copied has changed."""

from __future__ import annotations

import copy
import subprocess
import sys
import textwrap
from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from differential.support import api
from torch import Tensor, nn

import stator


class Config:
    """Plain data that a module holds."""

    def __init__(self) -> None:
        self.scale, self.sizes = 0.5, [3, 4]


class Net(nn.Module):
    """Has what modules have: parameters (one of them twice), buffers, submodules, plain attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(3, 4)
        self.second.weight = self.first.weight
        self.norm, self.act = nn.BatchNorm1d(4), nn.Softmax(dim=-1)
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.config, self.activation = Config(), F.relu

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        found = self.activation(self.first(x) + self.second(x)) * self.config.scale
        return self.act(self.norm(found)) + self.seen


@pytest.fixture(autouse=True)
def as_pytorch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first `torch.compile` of a process on, its compiler has a function of its own in this place. Then objects
    are copied one by one."""
    found = nn.Module.__setstate__
    if found.__module__.startswith("torch._dynamo"):
        (cell,) = found.__closure__ or ()
        monkeypatch.setattr(nn.Module, "__setstate__", cell.cell_contents)


def net(make: Callable[[], nn.Module] = Net) -> nn.Module:
    torch.manual_seed(0)
    return make()


def told(module: nn.Module) -> Any:
    """What can be compared of a module, its parts and what they share."""
    parts = [
        (name, type(it).__name__, it.training, sorted(vars(it)))
        for name, it in module.named_modules()
    ]
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers()]
    tensors = [
        (name, type(it), it.requires_grad, it.grad is None, it.tolist()) for name, it in named
    ]
    first = {id(it): index for index, (_, it) in reversed(list(enumerate(named)))}
    hooks = [len(it._forward_hooks) for it in module.modules()]
    return parts, tensors, [first[id(it)] for _, it in named], hooks


def copied(module: nn.Module, x: Tensor) -> Any:
    """The copy lives on, and neither sees what is done with the other."""
    mine = copy.deepcopy(module)
    with torch.no_grad():
        for it in module.parameters():
            it.add_(0.25)
    return mine(x), module(x), mine


def moved(module: nn.Module, x: Tensor) -> Any:
    """A step of the copy's own, as in meta-learning."""
    fast = copy.deepcopy(module)
    optimizer = torch.optim.SGD(fast.parameters(), lr=0.1)
    for _ in range(2):
        loss = fast(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.detach(), fast(x).detach(), fast


def frozen(module: nn.Module, x: Tensor) -> Any:
    mine = copy.deepcopy(module).eval().requires_grad_(False)
    return mine(x), module(x), mine


def played(
    fn: Callable[[nn.Module, Tensor], Any],
    make: Callable[[], nn.Module],
    change: Callable[[nn.Module], Any],
    wrap: Callable[[Any], Any],
) -> tuple[list[Any], Any]:
    """Recorded, replayed twice, and called twice after a change."""
    module, wrapped, seen = net(make), wrap(fn), []
    undo = None
    try:
        for call in range(5):
            if call == 3:
                undo = change(module)
            first, second, mine = wrapped(module, torch.full((2, 3), call * 0.5 - 1))
            seen.append((first.tolist(), second.tolist(), told(mine), told(module)))
    finally:
        if callable(undo):
            undo()
    return seen, wrapped


def patched(holder: Any, name: str, value: Any) -> Callable[[], None]:
    before = vars(holder).get(name)
    setattr(holder, name, value)
    if before is None:
        return lambda: delattr(holder, name)
    return lambda: setattr(holder, name, before)


def forgets(self: nn.Module, state: dict[str, Any]) -> None:
    self.__dict__.update(state, training=False)


def own_copy(self: nn.Module, memo: dict[int, Any]) -> nn.Module:
    return self


def other_parameter(it: nn.Module) -> None:
    it.first.weight = nn.Parameter(torch.ones(4, 3))  # type: ignore[union-attr]


def evaluates(it: nn.Module) -> None:
    it.eval()


def gives_code(it: nn.Module) -> Callable[[], None]:
    """The method stays, its code is another."""
    method, before = nn.Module.__setstate__, nn.Module.__setstate__.__code__
    method.__code__ = forgets.__code__
    return lambda: setattr(method, "__code__", before)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda it: None,
    "data": lambda it: it.first.weight.data.fill_(0.5),
    "parameter": other_parameter,
    "training": evaluates,
    "training_of_part": lambda it: evaluates(it.norm),
    "frozen": lambda it: setattr(it.first.bias, "requires_grad", False),
    "part": lambda it: setattr(it, "act", nn.Softmax(dim=0)),
    "attribute_of_part": lambda it: setattr(it.act, "dim", 0),
    "config": lambda it: setattr(it.config, "scale", 2.0),
    "config_list": lambda it: it.config.sizes.append(5),
    "function": lambda it: setattr(it, "activation", F.silu),
    "new_attribute": lambda it: setattr(it, "extra", 3),
    "new_buffer": lambda it: it.register_buffer("extra", torch.ones(2)),
    "hook": lambda it: it.norm.register_forward_hook(lambda module, args, out: out * 2) and None,
    "untied": lambda it: setattr(it.second, "weight", nn.Parameter(it.first.weight.detach() + 0)),
    "setstate": lambda it: patched(Net, "__setstate__", forgets),
    "setstate_of_all": lambda it: patched(nn.Module, "__setstate__", forgets),
    "code_of_setstate": gives_code,
    "own_copier": lambda it: patched(nn.Softmax, "__deepcopy__", own_copy),
    "own_copier_of_one": lambda it: setattr(it.act, "__deepcopy__", MethodType(own_copy, it.act)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("fn", [copied, moved, frozen])
def test_copies_are_plain_ones(fn: Callable[[nn.Module, Tensor], Any], change: str) -> None:
    expected, _ = played(fn, Net, CHANGES[change], lambda it: it)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        found, compiled = played(fn, Net, CHANGES[change], api.compile)
    assert found == expected
    if change == "nothing" and not api.PLAIN:
        stats = stator.stats(compiled)
        assert (stats.breaks, stats.native) == (0, 0) and stats.hits >= 3


def convolutional() -> nn.Module:
    layers = [nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 3, padding=1, padding_mode="circular")]
    return nn.Sequential(*layers, nn.BatchNorm1d(2), nn.GELU(), nn.Flatten(), nn.Dropout(0.5))


class Attending(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x[:, None].repeat(1, 1, 2)[..., :4])
        return found


MODULES: dict[str, Callable[[], nn.Module]] = {
    "sequential": lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)),
    "convolutional": convolutional,
    "listed": lambda: nn.Sequential(nn.ModuleList([nn.Linear(3, 3)])[0], nn.LayerNorm(3)),
    "encoder": lambda: Attending(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)),
    "encoder_gelu": lambda: Attending(nn.TransformerEncoderLayer(4, 2, 8, activation=nn.GELU())),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_of_torch_are_copied_in_one_trace(name: str) -> None:
    make = MODULES[name]
    expected, _ = played(copied, make, evaluates, lambda it: it)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        found, compiled = played(copied, make, evaluates, api.compile)
    assert found == expected
    if not api.PLAIN:
        assert (stator.stats(compiled).breaks, stator.stats(compiled).traces) == (0, 2)


class Counting(nn.Linear):
    """Says itself how its state is set."""

    copies = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        type(self).copies += 1
        super().__setstate__(state)


class Remembering(nn.Linear):
    """Says itself what its state is."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "training": not self.training}


class Reading(nn.Linear):
    """Has members of its own, whatever they are called."""

    def __getattr__(self, name: str) -> Any:
        return 3 if name == "three" else super().__getattr__(name)


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "counting": lambda: Counting(3, 4),
    "remembering": lambda: Remembering(3, 4),
    "reading": lambda: Reading(3, 4),
    "within": lambda: nn.Sequential(nn.Linear(3, 3), Counting(3, 4)),
    "parametrized": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_modules_that_copy_themselves(name: str) -> None:
    Counting.copies = 0
    expected, _ = played(copied, OTHERS[name], evaluates, lambda it: it)
    copies, Counting.copies = Counting.copies, 0
    with stator.config.patch(skip_unprofitable=False, strict=True):
        found, _ = played(copied, OTHERS[name], evaluates, api.compile)
    assert (found, Counting.copies) == (expected, copies)


def test_a_method_that_was_replaced_before_stator_is_used() -> None:
    """The function in its place is the program's own."""
    program = """
        import copy, torch, stator
        from torch import nn

        def counts(self, state):
            counted.append(len(state))
            self.__dict__.update(state)

        counted = []
        nn.Module.__setstate__ = counts
        module = nn.Linear(2, 2)
        compiled = stator.compile(lambda it, x: copy.deepcopy(it)(x))
        for call in range(4):
            assert torch.equal(compiled(module, torch.ones(2)), module(torch.ones(2)))
            assert len(counted) == call + 1, counted
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


class Renamed(Net):
    """Makes its state itself."""

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "renamed": True}


def shallow(module: nn.Module, x: Tensor) -> Any:
    """The copy has the same parts, and attributes of its own."""
    mine = copy.copy(module)
    mine.more = 3
    mine.config = None
    parts = mine.first is module.first, mine._modules is module._modules
    return parts, hasattr(module, "more"), sorted(vars(mine)), mine.first(x)


@pytest.mark.parametrize("make", [Net, Renamed])
def test_copies_that_share(make: Callable[[], nn.Module]) -> None:
    module = net(make)
    compiled = api.compile(shallow, backend="eager")
    with stator.config.patch(skip_unprofitable=False):
        for call in range(6):
            x = torch.full((2, 3), float(call))
            if call == 3:
                module.seen_since = [call]
            if call == 4:
                module.first = nn.Linear(3, 4)
            assert repr(compiled(module, x)) == repr(shallow(module, x))
    if make is Net:
        assert stator.stats(compiled).breaks == 0, stator.stats(compiled).reason
