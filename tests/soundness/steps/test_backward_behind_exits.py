"""Going back behind a decision about data: what was computed before it belongs to an earlier part of the call.

Reinforcement learning, early rejection, clipped losses, printed losses; and what changes in the part before.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import stator

from .within_nodes import Program, Programs, network, nothing

PROGRAMS = Programs(most_traced=7)
program, whole = PROGRAMS.program, PROGRAMS.whole


def gradients(*nets: nn.Module) -> list[Any]:
    return [(it, it.grad) for net in nets for it in net.parameters()]


class Corridor:
    """An environment: a walk that ends at a wall."""

    def __init__(self) -> None:
        self.place = 0

    def reset(self, start: Tensor) -> Tensor:
        self.place = 0
        self.start = start
        return start

    def step(self, action: int) -> tuple[Tensor, float, bool]:
        self.place += 1 if action else -1
        return self.start + 0.1 * self.place, float(self.place), abs(self.place) >= 3


def play_episode(net: nn.Module, env: Corridor, x: Tensor, length: int) -> Any:
    observation, log_probs, rewards = env.reset(x[0]), [], []
    for _ in range(length):
        policy = Categorical(logits=net(observation))
        action = policy.sample()
        log_probs.append(policy.log_prob(action))
        observation, reward, done = env.step(action.item())
        rewards.append(reward)
        if done:
            break
    return log_probs, rewards


def discounted(rewards: list[float], gamma: float = 0.9) -> Tensor:
    found, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + gamma * total
        found.insert(0, total)
    return torch.tensor(found)


@whole
def reinforce() -> Program:
    net, env = network(), Corridor()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

    def step(x: Tensor) -> Any:
        log_probs, rewards = play_episode(net, env, x, 5)
        returns = discounted(rewards)
        loss = -(torch.stack(log_probs) * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), len(rewards)

    return step, nothing, lambda: gradients(net)


@program
def reinforce_with_zeros_behind() -> Program:
    net, env = network(), Corridor()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

    def step(x: Tensor) -> Any:
        log_probs, rewards = play_episode(net, env, x, 4)
        loss = -sum(p * r for p, r in zip(log_probs, rewards, strict=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, nothing, lambda: gradients(net)


@whole
def actor_critic() -> Program:
    actor, critic, env = network(), network(1), Corridor()
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=0.01)

    def step(x: Tensor) -> Any:
        state = env.reset(x[0])
        total = 0.0
        for _ in range(3):
            policy = Categorical(logits=actor(state))
            value = critic(state).sum()
            action = policy.sample()
            following, reward, done = env.step(int(action))
            total += reward
            with torch.no_grad():
                target = reward + 0.9 * critic(following).sum() * (not done)
            advantage = target - value
            loss = -policy.log_prob(action) * advantage.detach() + advantage.pow(2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state = following
            if done:
                break
        return total

    return step, nothing, lambda: gradients(actor, critic)


@whole
def clipped_policy_updates() -> Program:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Any:
        actions = (x.sum(1) > 0).long()
        with torch.no_grad():
            before = net(x).log_softmax(1).gather(1, actions[:, None])
        losses = []
        for epoch in range(3):
            now = net(x).log_softmax(1).gather(1, actions[:, None])
            ratio = (now - before).exp()
            loss = -torch.min(ratio * x[:, :1], ratio.clamp(0.8, 1.2) * x[:, :1]).mean()
            divergence = (before - now).mean()
            if divergence > 0.02:
                break
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())
        return losses

    return step, nothing, lambda: gradients(net)


def decided(
    between: Callable[[Tensor], Tensor] | None = None, net: nn.Sequential | None = None
) -> tuple[nn.Sequential, Callable[[Tensor], Any]]:
    """A loss that is looked at before it's differentiated."""
    net = net or network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

    def step(x: Tensor) -> Any:
        hidden = net[1](net[0](x))
        if between is not None:
            hidden = between(hidden)
        loss = net[2](hidden).pow(2).mean()
        if loss > 0.3:
            loss = loss * 0.5
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return net, step


@whole
def a_loss_that_decides() -> Program:
    net, step = decided()
    return step, nothing, lambda: gradients(net)


@whole
def a_loss_that_is_rejected() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        loss = F.cross_entropy(net(x), (x[:, 0] > 0).long())
        for it in net.parameters():
            it.grad = None
        if not torch.isfinite(loss) or loss > 1.0:
            return None
        loss.backward()
        return loss.item()

    return step, nothing, lambda: gradients(net)


@whole
def two_losses_of_one_graph() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        hidden = net(x)
        first, second = hidden.pow(2).mean(), hidden.abs().mean()
        if first > second:
            first.backward(retain_graph=True)
        second.backward()
        return [it.grad.norm() for it in net.parameters()]

    return step, nothing, lambda: gradients(net)


@whole
def gradients_are_asked_for() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        loss = net(x).pow(2).mean()
        if loss > 0.3:
            loss = loss + 1
        found = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(net.parameters(), found, strict=True):
                parameter -= 0.05 * gradient
        return loss.detach()

    return step, nothing, lambda: gradients(net)


@program
def a_gradient_penalty_behind_a_decision() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        x = x.clone().requires_grad_()
        score = net(x).sum()
        if score > 0:
            score = score * 2
        (slope,) = torch.autograd.grad(score, x, create_graph=True)
        ((slope.norm(dim=1) - 1).pow(2).mean() + score * 0.1).backward()
        return slope.detach()

    return step, nothing, lambda: gradients(net)


@whole
def gradients_add_up() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        for rows in (x[:2], x[2:]):
            loss = net(rows).pow(2).mean()
            if loss > 0.3:
                loss = loss * 0.5
            loss.backward()
        return [it.grad.sum() for it in net.parameters()]

    def change(call: int) -> None:
        if call % 3 == 2:
            net.zero_grad()

    return step, change, lambda: gradients(net)


@program
def the_data_say_which_net() -> Program:
    """The leaves that are reached are others for one part behind."""
    nets = network(), network(1)

    def step(x: Tensor) -> Any:
        for net in nets:
            net.zero_grad()
        out = nets[0](x) if x.sum() > 0 else nets[1](x)
        out = out.pow(2).mean()
        if out > 1000:
            return None
        out.backward()
        return [it.grad is None for net in nets for it in net.parameters()]

    return step, nothing, lambda: gradients(*nets)


@program
def the_data_say_which_net_and_zeros_come_behind() -> Program:
    nets = network(), network(1)
    optimizer = torch.optim.SGD([*nets[0].parameters(), *nets[1].parameters()], lr=0.1)

    def step(x: Tensor) -> Any:
        hidden = nets[0](x) if x.sum() > 0 else nets[1](x)
        out = hidden.pow(2).mean() if x.mean() < 10 else hidden.sum()
        out.backward()
        optimizer.step()
        optimizer.zero_grad()
        return out.detach()

    return step, nothing, lambda: gradients(*nets)


# What may run on the way back in the part before.

SEEN: list[Any] = []
STATE = {"count": 0, "factor": 1.0}


def with_state(between: Callable[[Tensor], Tensor]) -> Program:
    """The step looks at what code on the way back may have written."""
    SEEN.clear()
    STATE.update(count=0, factor=1.0)
    net = network()
    kinds = [lambda it: it, between]
    chosen = [0]

    def step(x: Tensor) -> Any:
        net.zero_grad()
        hidden = kinds[chosen[0]](net[1](net[0](x)))
        loss = net[2](hidden).pow(2).mean()
        if loss > 1000:
            return None
        STATE["factor"] = loss.item()
        before = STATE["count"]
        loss.backward()
        return STATE["count"] - before, STATE["count"], len(SEEN)

    def change(call: int) -> None:
        chosen[0] = int(call in (2, 3, 5))

    return step, change, lambda: (gradients(net), dict(STATE), list(SEEN))


def counting(gradient: Tensor) -> Tensor:
    STATE["count"] += 1
    return gradient * STATE["factor"]


@program
def a_hook_of_python() -> Program:
    def between(x: Tensor) -> Tensor:
        x.register_hook(counting)
        return x

    return with_state(between)


@program
def a_hook_of_c_code() -> Program:
    def between(x: Tensor) -> Tensor:
        x.register_hook(SEEN.append)
        return x

    return with_state(between)


class Counted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return counting(gradient)


@program
def a_custom_function() -> Program:
    return with_state(Counted.apply)


@program
def a_checkpoint() -> Program:
    def inner(x: Tensor) -> Tensor:
        STATE["count"] += 1
        return torch.tanh(x)

    return with_state(lambda x: checkpoint(inner, x, use_reentrant=False))


@program
def saved_tensors_with_hooks() -> Program:
    def unpack(x: Tensor) -> Tensor:
        STATE["count"] += 1
        return x * STATE["factor"]

    def between(x: Tensor) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):
            return x.exp() * 0.1

    return with_state(between)


@whole
def a_gradient_that_is_retained() -> Program:
    net, kept = network(), []

    def step(x: Tensor) -> Any:
        net.zero_grad()
        hidden = net[1](net[0](x))
        hidden.retain_grad()
        loss = net[2](hidden).pow(2).mean()
        if loss > 0.3:
            loss = loss * 2
        loss.backward()
        kept.append(hidden.grad.sum().item())
        return hidden.grad

    return step, nothing, lambda: (gradients(net), list(kept))


@program
def sparse_gradients() -> Program:
    torch.manual_seed(0)
    tables = [nn.Embedding(6, 3, sparse=sparse) for sparse in (False, True)]
    tables[1].weight = tables[0].weight
    chosen = [0]

    def step(x: Tensor) -> Any:
        weight = tables[0].weight
        weight.grad = None
        rows = tables[chosen[0]](torch.arange(4)).pow(2).sum()
        if x.sum() > 1000:
            return None
        (rows * x.mean()).backward()
        return weight.grad.is_sparse, weight.grad.to_dense().sum()

    def change(call: int) -> None:
        chosen[0] = int(call in (2, 3, 5))

    return step, change, lambda: tables[0].weight.grad


@program
def a_graph_from_before_the_call() -> Program:
    net, held = network(), {}

    def step(x: Tensor) -> Any:
        hidden = held["hidden"]
        (hidden * x.mean()).sum().backward()
        return [it.grad for it in net.parameters()]

    def change(call: int) -> None:
        net.zero_grad()
        x = torch.full((2, 3), 0.1 * call)
        held["hidden"] = net(x) if call < 4 else net[1](net[0](x)) if call < 6 else net(x)

    return step, change, lambda: gradients(net)


@whole
def a_graph_that_is_gone_through_again() -> Program:
    net, held = network(), {}

    def step(x: Tensor) -> Any:
        (held["hidden"] * x.mean()).sum().backward()
        return net[0].weight.grad.sum()

    def change(call: int) -> None:
        if call != 4:
            held["hidden"] = net(torch.full((2, 3), 0.1 * call))

    return step, change, lambda: gradients(net)


@program
def an_error_behind_it() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        net.zero_grad()
        loss = net(x).pow(2).mean()
        if loss > 1000:
            return None
        loss.backward()
        return torch.linalg.cholesky(x[:3, :3] @ x[:3, :3].T * x.sum().sign())

    return step, nothing, lambda: gradients(net)


@pytest.mark.parametrize("floor", [False, True], ids=["every trace", "default"])
@pytest.mark.parametrize("name", PROGRAMS.all)
def test_steps_are_plain_ones(name: str, floor: bool) -> None:
    with stator.config.patch(skip_unprofitable=floor):
        PROGRAMS.check(name, may_be_native=floor)


FIRST_LOOK = """
import stator, torch
stator.config.skip_unprofitable = False
weight, held = torch.ones(3, requires_grad=True), {}

@torch.no_grad()
@stator.compile
def back():
    held["loss"].backward()
    return weight.grad.sum()

for call in range(4):
    weight.grad, held["loss"] = None, (weight * call).sum()
    assert back() == 3 * call
print(stator.stats(back.__wrapped__).breaks)
"""


def test_notes_are_looked_at_for_the_first_time_in_any_mode() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_LOOK], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr
