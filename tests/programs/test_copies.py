"""Copies of modules and of what holds tensors, within programs."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from programs.common import I64, spec
from torch import nn
from torch.nn.utils.parametrizations import orthogonal, spectral_norm

from stator.errors import ProgramError
from stator.programs import TensorProgram, TensorSpec


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.names = ["first", "second", {"out": (1, None)}]
        self.out = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        for name in self.names[:2]:
            x = torch.tanh(getattr(self, name)(x))
        return self.out(x)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.LSTM(4, 3, num_layers=2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.steps(x[:, None])[0][:, 0]


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.out = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.out(self.layer(x[:, None])[:, 0])


MODULES = {
    "perceptron": lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)),
    "statistics": lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)),
    "all_batches": lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=None)),
    "spectral": lambda: nn.Sequential(spectral_norm(nn.Linear(4, 8)), nn.Linear(8, 3)),
    "orthogonal": lambda: nn.Sequential(orthogonal(nn.Linear(4, 4)), nn.Linear(4, 3)),
    "tied": Tied,
    "recurrent": Recurrent,
    "attending": Attending,
}


@pytest.mark.parametrize("name", MODULES)
def test_a_copy_is_loaded_and_trained(name: str) -> None:
    """As clients of other systems do it: the module stands for its structure alone."""
    torch.manual_seed(0)
    module = MODULES[name]()
    before = {key: each.clone() for key, each in module.state_dict().items()}

    def fit(weights: Any, x: Any, y: Any) -> Any:
        own = copy.deepcopy(module)
        own.load_state_dict(weights)
        own.train()
        optimizer = torch.optim.SGD(own.parameters(), lr=0.1, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(own(x), y).backward()
            optimizer.step()
        return OrderedDict(own.state_dict())

    types = OrderedDict((key, TensorSpec(of.dtype, tuple(of.shape))) for key, of in before.items())
    program = TensorProgram.trace(fit, (types, spec(None, 4), spec(None, dtype=I64)))
    again = TensorProgram.from_bytes(program.to_bytes())
    for size in (5, 3):
        other = MODULES[name]().state_dict()
        x, y = torch.randn(size, 4), torch.randint(0, 3, (size,))
        expected = fit(other, x, y)
        for run in (program, again, program):
            found = run(*other.values(), x, y)
            for output, want in zip(found, expected.values(), strict=True):
                torch.testing.assert_close(output, want, rtol=1e-4, atol=1e-5)
    # The module is as it was, and what it has are its own tensors.
    for key, each in module.state_dict().items():
        assert torch.equal(each, before[key])
    assert all(type(each) is nn.Parameter for each in module.parameters())


def test_copies_of_what_the_program_has_made() -> None:
    """As FedProx has it: weights as they came, beside those that are trained."""
    module = Tied()

    def fit(x: Any) -> Any:
        own = copy.deepcopy(module)
        first = copy.deepcopy(own)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            pairs = zip(own.parameters(), first.parameters(), strict=True)
            near = sum(((a - b.detach()) ** 2).sum() for a, b in pairs)
            (own(x).square().mean() + near).backward()
            optimizer.step()
        with torch.no_grad():
            own.out.bias.add_(1)
        # What is tied in one is tied in the copy of its copy.
        assert first.first.weight is first.second.weight is not own.first.weight
        return own(x).detach(), first(x).detach(), copy.deepcopy(nn.ReLU())(x)

    program = TensorProgram.trace(fit, (spec(None, 4),))
    x = torch.randn(5, 4)
    for found, expected in zip(program(x), fit(x), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_copy_of_the_weights_as_they_are() -> None:
    module = nn.Linear(4, 3)

    def predict(x: Any) -> Any:
        own = copy.deepcopy(module)
        with torch.no_grad():
            own.bias.zero_()
        return own(x)

    program = TensorProgram.trace(predict, (spec(None, 4),))
    x = torch.randn(2, 4)
    torch.testing.assert_close(program(x)[0], predict(x).detach())
    assert module.bias.abs().sum() > 0


def test_a_copy_where_torch_dynamo_was_called_before() -> None:
    """It exchanges a method of `nn.Module`."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert nn.Module.__setstate__.__module__.startswith("torch._dynamo")
    test_a_copy_is_loaded_and_trained("perceptron")


def test_containers_are_copied_with_what_they_share() -> None:
    def fn(weights: Any) -> Any:
        kept = [weights["w"], {"b": weights["b"]}]
        both = copy.deepcopy({"first": kept, "second": kept, "name": ("x", 2)})
        assert both["first"] is both["second"] and both["first"] is not kept
        both["first"][0].add_(1)
        return both["second"][0], both["second"][1]["b"], weights["w"]

    program = TensorProgram.trace(fn, ({"w": spec(2), "b": spec(1)},))
    found = program(torch.zeros(2), torch.ones(1))
    assert [each.tolist() for each in found] == [[1, 1], [1], [0, 0]]


def test_a_class_of_ones_own_ways_is_an_error() -> None:
    class Counting(nn.Linear):
        def __getstate__(self) -> Any:
            return {**self.__dict__, "copied": True}

    module = Counting(4, 3)
    with pytest.raises(ProgramError, match="a copy that a class makes"):
        TensorProgram.trace(lambda x: copy.deepcopy(module)(x), (spec(None, 4),))


def test_tensors_with_a_history_are_not_copied() -> None:
    def fn(w: Any) -> Any:
        return copy.deepcopy(w.requires_grad_() * 2)

    with pytest.raises(RuntimeError, match="graph leaves"):
        TensorProgram.trace(fn, (spec(2),))
    with pytest.raises(RuntimeError, match="graph leaves"):
        fn(torch.ones(2))
