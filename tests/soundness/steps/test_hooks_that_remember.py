"""Hooks of the way back that read what the forward pass has written: gradients of samples, statistics of layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .within_nodes import HELD, Program, Programs, changes, gradients, network, nothing

PROGRAMS = Programs()
program, whole = PROGRAMS.program, PROGRAMS.whole


def gone_back(net: nn.Module, watched: Any = None) -> Program:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, nothing, lambda: (gradients(net), watched() if watched else None)


def samples_of(layer: nn.Linear) -> None:
    """Per-sample gradients: inputs are appended to a list of the layer, and popped on the way back."""
    layer.activations = []

    def keep(module: Any, inputs: Any, output: Tensor) -> None:
        module.activations.append(inputs[0].detach())

    def sample(module: Any, grad_input: Any, grad_output: Any) -> None:
        kept = module.activations.pop()
        module.weight.grad_sample = torch.einsum("ni,nj->nij", grad_output[0], kept)

    layer.register_forward_hook(keep)
    layer.register_full_backward_hook(sample)


@whole
def gradients_of_samples() -> Program:
    net = network()
    samples_of(net[0])
    samples_of(net[2])

    def watched() -> Any:
        return [(it.weight.grad_sample.clone(), len(it.activations)) for it in (net[0], net[2])]

    return gone_back(net, watched)


@whole
def private_steps() -> Program:
    """Clips the gradients of samples and adds them, as private training does."""
    net = network()
    layers = (net[0], net[2])
    for layer in layers:
        samples_of(layer)

    def step(x: Tensor) -> Any:
        net.zero_grad()
        net(x).pow(2).sum().backward()
        norms = [layer.weight.grad_sample.flatten(1).norm(dim=1) for layer in layers]
        factor = (1.0 / (torch.stack(norms).norm(dim=0) + 1e-6)).clamp(max=1.0)
        with torch.no_grad():
            for layer in layers:
                layer.weight -= 0.1 * torch.einsum("n,nij->ij", factor, layer.weight.grad_sample)
                layer.weight.grad_sample = None
        return factor

    return step, nothing, lambda: gradients(net)


@whole
def an_attribute_of_the_module() -> Program:
    """The input is kept as an attribute (preconditioners)."""
    net = network()
    net[0].seen = None
    net[0].covariance = torch.zeros(3, 3)

    def keep(module: Any, inputs: Any) -> None:
        module.seen = inputs[0].detach()

    def use(module: Any, grad_input: Any, grad_output: Any) -> None:
        module.covariance.mul_(0.9).add_(module.seen.t() @ module.seen, alpha=0.1)

    net[0].register_forward_pre_hook(keep)
    net[0].register_full_backward_hook(use)
    return gone_back(net, lambda: net[0].covariance.clone())


@whole
def a_dictionary_by_module() -> Program:
    net, kept, sums = network(), {}, {}

    def keep(module: Any, inputs: Any, output: Tensor) -> None:
        kept[module] = output.detach()

    def use(module: Any, grad_input: Any, grad_output: Any) -> None:
        sums[module] = (kept[module] * grad_output[0]).sum()

    for layer in (net[0], net[2]):
        layer.register_forward_hook(keep)
        layer.register_full_backward_hook(use)
    return gone_back(net, lambda: [sums[layer] for layer in (net[0], net[2])])


@whole
def a_hook_of_the_output_with_the_input() -> Program:
    """A tensor hook, set by a forward hook, that has the activation in its closure (attributions)."""
    net, relevance = network(), []

    def keep(module: Any, inputs: Any, output: Tensor) -> None:
        output.register_hook(lambda grad: relevance.append((grad * output.detach()).sum(1)))

    net[0].register_forward_hook(keep)

    def watched() -> Any:
        found = [it.clone() for it in relevance]
        relevance.clear()
        return found

    return gone_back(net, watched)


@whole
def a_post_accumulate_hook_and_a_loss_scale() -> Program:
    net = network()
    net.factor = 1.0

    def use(weight: Tensor) -> None:
        with torch.no_grad():
            weight.sub_(weight.grad, alpha=0.1 * net.factor)
        weight.grad = None

    for weight in net.parameters():
        weight.register_post_accumulate_grad_hook(use)

    def step(x: Tensor) -> Any:
        net.factor = 0.5
        loss = net(x).pow(2).mean()
        loss.backward()
        net.factor = 1.0
        return loss.detach()

    return step, nothing, lambda: [it.detach().clone() for it in net.parameters()]


@whole
def a_stack_of_outputs_and_a_counter() -> Program:
    net = network()
    net.stack, net.count = [], 0

    def keep(module: Any, inputs: Any, output: Tensor) -> None:
        net.stack.append(output.detach().abs().mean())
        net.count += 1

    def use(module: Any, grad_input: Any, grad_output: Any) -> Any:
        scale = net.stack.pop()
        net.count -= 1
        return tuple(None if it is None else it * scale for it in grad_input)

    for layer in (net[1], net[2]):
        layer.register_forward_hook(keep)
        layer.register_full_backward_hook(use)
    return gone_back(net, lambda: (net.count, len(net.stack)))


@whole
def a_log_that_grows_and_a_hook() -> Program:
    """What the log held before isn't looked at by anybody."""
    net, log = network(), []
    net.factor = 1.0
    net[0].weight.register_hook(lambda grad: grad * net.factor)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        log.append(loss.item())
        net.factor = 0.5
        loss.backward()
        log.append(2.0)
        optimizer.step()
        return loss.detach()

    return step, nothing, lambda: (gradients(net), list(log), net.factor)


@program
def a_log_that_the_hook_reads() -> Program:
    net, log = network(), []
    net[0].weight.register_hook(lambda grad: grad * len(log) + log[-1])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        log.append(loss.detach())
        loss.backward()
        log.append(loss.detach() * 2)
        optimizer.step()
        return len(log)

    return step, nothing, lambda: (gradients(net), [it.clone() for it in log])


@program
def new_and_deleted_entries() -> Program:
    """Keys come and go on both sides of the way back, and so does their order."""
    net, held = network(), {"a": 1, "b": 2}

    def use(grad: Tensor) -> Tensor:
        held["hook"] = len(held)
        return grad * len(held) + held["a"]

    net[0].weight.register_hook(use)

    def step(x: Tensor) -> Any:
        net.zero_grad()
        loss = net(x).pow(2).mean()
        held.pop("b", None)
        held["new"] = 3
        held.pop("hook", None)
        loss.backward()
        held["b"] = 4
        return list(held)

    def change(call: int) -> None:
        if call in (3, 6):
            held.clear()
            held.update(a=call, b=2)

    return step, change, lambda: (gradients(net), list(held.items()))


@program
def a_variable_and_a_slot() -> Program:
    """A cell and a member that the step writes, and the hook reads and writes."""
    net, slotted = network(), Slotted()
    count = 0

    def use(grad: Tensor) -> Tensor:
        slotted.factor = slotted.factor * 2
        return grad * count * slotted.factor

    net[0].weight.register_hook(use)

    def step(x: Tensor) -> Any:
        nonlocal count
        net.zero_grad()
        count += 1
        slotted.factor = 0.5
        loss = net(x).pow(2).mean()
        loss.backward()
        return loss.detach()

    return step, nothing, lambda: (gradients(net), count, slotted.factor)


class Slotted:
    __slots__ = ("factor",)


@program
def a_new_list_for_each_step() -> Program:
    net = network()
    net.kept = []
    net[0].weight.register_hook(lambda grad: grad + net.kept.pop().sum())

    def step(x: Tensor) -> Any:
        net.zero_grad()
        net.kept = []
        loss = net(x).pow(2).mean()
        net.kept.append(loss.detach())
        net.kept.append(loss.detach() * 2)
        loss.backward()
        return len(net.kept)

    return step, nothing, lambda: (gradients(net), [it.clone() for it in net.kept])


@program
def what_the_hook_left_is_overwritten() -> Program:
    net = network()
    weight = net[0].weight
    weight.seen = None

    def use(grad: Tensor) -> None:
        weight.seen = grad.norm()
        weight.count = 1

    weight.register_hook(use)

    def step(x: Tensor) -> Any:
        net.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        found = weight.seen * 2
        weight.seen = found if HELD.flag else None
        return found

    def change(call: int) -> None:
        HELD.flag = call in (3, 4)

    return step, change, lambda: (gradients(net), weight.seen, weight.count)


@program
def what_the_hook_left_is_written_in_place() -> Program:
    """And an operation behind it raises for some inputs."""
    net, table = network(), torch.ones(4, 2)
    weight = net[0].weight
    weight.seen = None

    def use(grad: Tensor) -> None:
        weight.seen = grad.norm() + 0

    weight.register_hook(use)

    def step(x: Tensor) -> Any:
        net.zero_grad()
        loss = net(x).pow(2).mean()
        net.count = 1
        loss.backward()
        weight.seen.mul_(2.0)
        try:
            found = table[HELD.run].sum()
        except IndexError:
            found = torch.zeros(())
        return weight.seen + found

    def change(call: int) -> None:
        HELD.run = torch.tensor([0, 9 if call in (3, 5) else 1])

    return step, change, lambda: (gradients(net), weight.seen, net.count)


@program
def decisions_around_early_writes() -> Program:
    net, log = network(), []
    net.count = 0
    net[0].weight.register_hook(lambda grad: grad * net.count)

    def step(x: Tensor) -> Any:
        net.zero_grad()
        if x.sum() > 0:
            net.count += 1
        log.append(net.count)
        loss = net(x).pow(2).mean()
        loss.backward()
        net.count += 1
        if loss > 0.3:
            net.count += 10
        if x.mean() > 0.1:
            log.append("above")
        return loss.detach()

    return step, nothing, lambda: (gradients(net), net.count, list(log))


@program
def what_was_shown_is_written_in_place() -> Program:
    """The hook writes to a tensor of the step's that it has found."""
    net = network()
    net.kept = None
    net[0].weight.register_hook(lambda grad: grad + net.kept.mul_(2.0).sum())

    def step(x: Tensor) -> Any:
        net.zero_grad()
        loss = net(x).pow(2).mean()
        mean = x.mean(0)
        net.kept = mean
        loss.backward()
        return mean * 1

    return step, nothing, lambda: (gradients(net), net.kept)


@program
def written_again_behind() -> Program:
    net, seen = network(), []
    net.factor = 1.0
    net[0].weight.register_hook(lambda grad: seen.append(net.factor))

    def step(x: Tensor) -> Any:
        net.zero_grad()
        net.factor = HELD.factor
        loss = net(x).pow(2).mean()
        loss.backward()
        net.factor += 1.0
        second = net(x).pow(2).sum()
        second.backward()
        net.factor = 0.0
        return loss.detach() + second.detach()

    return step, changes, lambda: (gradients(net), list(seen), net.factor)


@program
def what_was_kept_is_changed_between() -> Program:
    """The list has entries of the last call, and the step changes it between both ways."""
    net = network()
    net.kept, net.found = [], []

    def keep(module: Any, inputs: Any, output: Tensor) -> None:
        net.kept.append(output.detach().sum())

    def use(module: Any, grad_input: Any, grad_output: Any) -> None:
        net.found.append(net.kept[-1] + len(net.kept))

    net[0].register_forward_hook(keep)
    net[0].register_full_backward_hook(use)

    def step(x: Tensor) -> Any:
        net.zero_grad()
        loss = net(x).pow(2).mean()
        net.kept.append(loss.detach() * 2)
        loss.backward()
        return len(net.kept)

    return step, nothing, lambda: ([it.clone() for it in net.found], len(net.kept))


@program
def an_error_on_the_way_back() -> Program:
    """The hook raises: what the forward pass wrote stays."""
    net = network()
    net.kept, calls = [], [0]

    def keep(module: Any, inputs: Any, output: Tensor) -> None:
        net.kept.append(output.detach().sum())

    def use(module: Any, grad_input: Any, grad_output: Any) -> None:
        if calls[0] == 5:
            raise ValueError("no")
        net.kept.pop()

    def change(call: int) -> None:
        calls[0] = call

    net[0].register_forward_hook(keep)
    net[0].register_full_backward_hook(use)
    step, _, watched = gone_back(net, lambda: [it.clone() for it in net.kept])
    return step, change, watched


@whole
def attributes_kept_by_both_ways() -> Program:
    """A map of what the network looked at: one object keeps activations and gradients, and reads both."""
    net = network()

    class Map:
        def __init__(self) -> None:
            self.kept: Any = None
            self.back: Any = None
            self.scale = torch.tensor(2.0)
            net[0].register_forward_hook(self.keep)
            net[0].register_full_backward_hook(self.keep_back)

        def keep(self, module: Any, inputs: Any, output: Tensor) -> None:
            self.kept = output.detach()

        def keep_back(self, module: Any, grad_input: Any, grad_output: Any) -> None:
            self.back = grad_output[0]

        def __call__(self, x: Tensor) -> Tensor:
            net.zero_grad()
            net(x)[:, 0].sum().backward()
            weights = self.back.mean(0)
            return torch.relu(weights * self.kept).sum(-1) * self.scale

    seen = Map()

    def change(call: int) -> None:
        if call == 5:
            seen.scale = torch.tensor(3.0)

    return seen, change, lambda: (gradients(net), seen.kept, seen.back)


@whole
def entries_kept_by_both_ways() -> Program:
    net = network()
    held: dict[str, Any] = {"scale": torch.tensor(2.0)}

    def keep(module: Any, inputs: Any, output: Tensor) -> None:
        held["kept"] = output

    def keep_back(module: Any, grad_input: Any, grad_output: Any) -> None:
        held["back"] = grad_output[0].detach()

    net[0].register_forward_hook(keep)
    net[0].register_full_backward_hook(keep_back)

    def step(x: Tensor) -> Tensor:
        net.zero_grad()
        net(x)[:, 0].sum().backward()
        return (held["back"] * held["kept"]).sum(1).detach() * held["scale"]

    def change(call: int) -> None:
        if call == 5:
            held["scale"] = torch.tensor(3.0)

    return step, change, lambda: (gradients(net), list(held), held["back"])


@whole
def elements_added_on_the_way_back() -> Program:
    """The list grows from call to call: what was put at its end is read."""
    net = network()
    kept: list[Tensor] = []
    net[0].register_full_backward_hook(lambda module, inputs, outputs: kept.append(outputs[0]))
    net[2].register_full_backward_hook(lambda module, inputs, outputs: kept.append(outputs[0] * 2))

    def step(x: Tensor) -> Any:
        net.zero_grad()
        net(x)[:, 0].sum().backward()
        return kept[-1].mean(0), kept[-2].sum(), kept[-1] + 1

    return step, nothing, lambda: (gradients(net), len(kept), kept[-1])


@program
def elements_of_a_list_that_is_emptied() -> Program:
    net = network()
    kept: list[Tensor] = []
    net[0].register_full_backward_hook(lambda module, inputs, outputs: kept.append(outputs[0]))

    def step(x: Tensor) -> Any:
        kept.clear()
        net.zero_grad()
        net(x)[:, 0].sum().backward()
        return kept[0].mean(0), kept[-1].sum(), len(kept)

    return step, nothing, lambda: (gradients(net), len(kept))


@program
def elements_put_in_front() -> Program:
    """The last one is another one each time."""
    net = network()
    kept: list[Tensor] = []
    net[0].register_full_backward_hook(lambda module, inputs, outputs: kept.insert(0, outputs[0]))

    def step(x: Tensor) -> Any:
        net.zero_grad()
        net(x)[:, 0].sum().backward()
        return kept[-1].mean(0), kept[0].sum()

    def change(call: int) -> None:
        if call == 4:
            kept.clear()
        if call == 6:
            kept.append(torch.ones(5, 2, dtype=torch.float64))

    return step, change, lambda: (gradients(net), len(kept))


@program
def entries_counted_behind() -> Program:
    """How many there are is what the hook has left."""
    net = network()
    held: dict[str, Any] = {}

    def keep_back(module: Any, grad_input: Any, grad_output: Any) -> None:
        held[f"back{len(held) % 3}"] = grad_output[0].detach()

    net[0].register_full_backward_hook(keep_back)

    def step(x: Tensor) -> Any:
        net.zero_grad()
        net(x).sum().backward()
        return len(held), sorted(held), held.get("back1"), "back2" in held

    return step, nothing, lambda: gradients(net)


@pytest.mark.parametrize("name", sorted(PROGRAMS.all))
def test_calls_are_plain_ones(name: str) -> None:
    PROGRAMS.check(name)
