"""Random numbers: those that plain Python draws, and the generators' states behind each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .compare import SEED, World, differs, same


def x_of(device: str) -> Tensor:
    return torch.arange(12.0).reshape(3, 4).to(device)


def dropout(x: Tensor) -> Any:
    return F.dropout(x + 1, 0.5), F.dropout(x, 0.3, training=False), F.alpha_dropout(x, 0.2, True)


def rand(x: Tensor) -> Any:
    made = torch.rand(3, device=x.device), torch.randn(2, 2, device=x.device)
    return made, torch.rand_like(x) + x, torch.randint(0, 9, (4,), device=x.device)


def in_place(x: Tensor) -> Any:
    y = x.clone()
    return y.normal_(), y.clone().uniform_(-1, 1), torch.bernoulli(torch.full_like(x, 0.5))


def picks(x: Tensor) -> Any:
    return torch.randperm(7, device=x.device), torch.multinomial(x + 1, 2)


def seeds(x: Tensor) -> Any:
    """The same numbers at each call, and a call behind it draws what follows."""
    torch.manual_seed(3)
    y = torch.rand(3, device=x.device)
    torch.manual_seed(3)
    return y, x + torch.rand_like(x)


@pytest.mark.parametrize("fn", [dropout, rand, in_place, picks, seeds])
def test_default_generator(fn: Callable[..., Any], device: str) -> None:
    def make() -> World:
        return {"fn": fn, "args": [x_of(device)]}

    same(make, lambda world: torch.manual_seed(SEED + 1), lambda world: torch.manual_seed(SEED))


def own(x: Tensor, generator: torch.Generator) -> Any:
    return torch.rand(3, device=x.device, generator=generator), x.clone().normal_(
        generator=generator
    )


def own_seeded(x: Tensor, generator: torch.Generator) -> Any:
    generator.manual_seed(11)
    return torch.rand(3, device=x.device, generator=generator) + x[0, :3]


def own_put_back(x: Tensor, generator: torch.Generator) -> Any:
    state = generator.get_state()
    y = torch.rand(3, device=x.device, generator=generator)
    generator.set_state(state)
    return y, torch.rand(3, device=x.device, generator=generator)


def own_made(x: Tensor, generator: torch.Generator) -> Any:
    made = torch.Generator(device=x.device).manual_seed(5)
    return torch.rand(2, device=x.device, generator=made), x * 2, made


@pytest.mark.parametrize("fn", [own, own_seeded, own_put_back, own_made])
def test_generator_of_the_users(fn: Callable[..., Any], device: str) -> None:
    def make() -> World:
        generator = torch.Generator(device=device).manual_seed(9)
        return {"fn": fn, "args": [x_of(device), generator], "generator": generator}

    def seeds_it(world: World) -> None:
        world["generator"].manual_seed(2)

    def replaces_it(world: World) -> None:
        world["generator"] = world["args"][1] = torch.Generator(device=device).manual_seed(1)

    same(make, seeds_it, replaces_it, replays=None)


def test_change_shows(device: str) -> None:
    differs(lambda: {"fn": dropout, "args": [x_of(device)]}, lambda world: torch.manual_seed(1))


def test_a_fork(device: str) -> None:
    def fn(x: Tensor) -> Any:
        before = torch.rand(2, device=x.device)
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
            torch.manual_seed(4)
            inside = torch.rand(2, device=x.device)
        return before, inside, torch.rand(2, device=x.device) + x[0, :2]

    same(lambda: {"fn": fn, "args": [x_of(device)]}, replays=None)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(4, 16), nn.Dropout(0.4)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.linear(x).relu()).sum()


def test_training_and_evaluation(device: str) -> None:
    def make() -> World:
        torch.manual_seed(SEED)
        model = Net().to(device)
        return {"fn": lambda x: model(x), "args": [x_of(device)], "model": model}

    def evaluates(world: World) -> None:
        world["model"].eval()

    differs(make, evaluates)
    same(make, evaluates, lambda world: world["model"].train())


def test_checkpoint(device: str) -> None:
    """Activation checkpointing draws the same numbers again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    def make() -> World:
        torch.manual_seed(SEED)
        model = Net().to(device)

        def fn(x: Tensor) -> Any:
            loss = checkpoint(model, x * 2, use_reentrant=False)
            loss.backward()
            return loss.detach()

        return {"fn": fn, "args": [x_of(device)], "model": model}

    same(make, lambda world: torch.manual_seed(8), replays=None)


def test_a_replay_that_raises(device: str) -> None:
    """What it had drawn is drawn again when the call runs natively."""

    def fn(x: Tensor, m: Tensor) -> Any:
        y = torch.rand(3, device=x.device) + F.dropout(x)[0, :3]
        try:
            return y + torch.linalg.cholesky(m).sum()
        except RuntimeError:
            return y

    good = torch.eye(2, device=device)

    def make() -> World:
        return {"fn": fn, "args": [x_of(device), good]}

    def spoil(world: World) -> None:
        world["args"][1] = -good

    def mend(world: World) -> None:
        world["args"][1] = good

    same(make, spoil, mend)


def test_states_of_cuda(cuda: str) -> None:
    """The functions of `torch.cuda` that seed, read and write states."""

    def fn(x: Tensor) -> Any:
        torch.cuda.manual_seed(5)
        first = torch.rand(2, device=cuda)
        state = torch.cuda.get_rng_state()
        second = torch.rand(2, device=cuda)
        torch.cuda.set_rng_state(state)
        return first, second, torch.rand(2, device=cuda), torch.cuda.initial_seed()

    def seeded_outside(x: Tensor) -> Any:
        return F.dropout(x), torch.rand(3, device=cuda), torch.rand(3)

    same(lambda: {"fn": fn, "args": [x_of(cuda)]}, replays=None)
    same(
        lambda: {"fn": seeded_outside, "args": [x_of(cuda)]},
        lambda world: torch.cuda.manual_seed(1),
        lambda world: torch.cuda.manual_seed_all(2),
    )


def test_of_two_devices(two_devices: int) -> None:
    def fn(x: Tensor) -> Any:
        made = [torch.rand(2, device=f"cuda:{index}") for index in (1, 0, 1)]
        return made, torch.rand(2, device="cuda")

    same(
        lambda: {"fn": fn, "args": [x_of("cuda:1")]},
        lambda world: torch.cuda.manual_seed(1),
        lambda world: torch.cuda.set_device(1),
        lambda world: torch.cuda.manual_seed(7),
    )
