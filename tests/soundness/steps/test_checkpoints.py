"""What is checkpointed: functions and modules that one node runs, and runs again when it goes back.

What they read is changed between calls, what they hold is written afterwards, and what they write is read behind.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from .within_nodes import (
    HELD,
    Program,
    Programs,
    begins,
    changes,
    ends,
    gradients,
    network,
    nothing,
)

PROGRAMS = Programs()
program, whole = PROGRAMS.program, PROGRAMS.whole


@whole
def checkpointed_lambdas() -> Program:
    net = network()

    def step(x: Tensor) -> Tensor:
        begins(net)
        for layer in (net[0], net[2]):
            x = checkpoint(lambda h, layer=layer: torch.tanh(layer(h)), x, use_reentrant=False)
        return ends(net, x.pow(2).mean())

    return step, nothing, lambda: gradients(net)


@whole
def checkpointed_modules() -> Program:
    net = network()

    def step(x: Tensor) -> Tensor:
        begins(net)
        hidden = checkpoint(net[0], x, use_reentrant=False)
        return ends(net, checkpoint(net[2], net[1](hidden), use_reentrant=False).pow(2).mean())

    return step, nothing, lambda: gradients(net)


@whole
def a_checkpoint_that_is_warm() -> Program:
    """CPython calls classes in a shorter way once their calls are warm, here before anything is recorded."""
    net = network()

    def step(x: Tensor) -> Tensor:
        begins(net)
        hidden = checkpoint(lambda h: torch.tanh(net[0](h)) * HELD.count, x, use_reentrant=False)
        return ends(net, net[2](hidden).pow(2).mean())

    def change(call: int) -> None:
        HELD.count = 1 if call < 4 else 2

    change(0)
    for call in range(20):
        step(torch.full((5, 3), float(call)))
    return step, change, lambda: gradients(net)


@program
def a_checkpoint_reads_what_changes() -> Program:
    net = network()

    def run(h: Tensor) -> Tensor:
        return torch.tanh(net[0](h)) * HELD.factor

    def step(x: Tensor) -> Tensor:
        begins(net)
        return ends(net, net[2](checkpoint(run, x, use_reentrant=False)).pow(2).mean())

    return step, changes, lambda: gradients(net)


@whole
def checkpointed_dropout() -> Program:
    net = network()
    drop = nn.Dropout(0.5)

    def step(x: Tensor) -> Tensor:
        begins(net)
        hidden = checkpoint(lambda h: drop(net[0](h)), x, use_reentrant=False)
        return ends(net, net[2](hidden).pow(2).mean())

    return step, nothing, lambda: (gradients(net), torch.get_rng_state())


@whole
def checkpointed_the_old_way() -> Program:
    net = network()

    def custom(layer: nn.Module) -> Any:
        def forward(*inputs: Tensor) -> Tensor:
            return torch.tanh(layer(inputs[0]))

        return forward

    def step(x: Tensor) -> Tensor:
        begins(net)
        hidden = checkpoint(custom(net[0]), x.requires_grad_(), use_reentrant=True)
        return ends(net, net[2](hidden).pow(2).mean())

    return step, nothing, lambda: gradients(net)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * HELD.factor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return grad * HELD.factor + 0 * x


def of_custom_functions(use_reentrant: bool) -> Program:
    net = network()

    def step(x: Tensor) -> Tensor:
        begins(net)
        x = x.requires_grad_()
        hidden = checkpoint(
            lambda h: Doubled.apply(torch.tanh(net[0](h))), x, use_reentrant=use_reentrant
        )
        return ends(net, net[2](Doubled.apply(hidden)).pow(2).mean())

    return step, changes, lambda: gradients(net)


@program
def custom_functions_in_a_checkpoint() -> Program:
    return of_custom_functions(False)


@program
def custom_functions_in_an_old_checkpoint() -> Program:
    return of_custom_functions(True)


@program
def hooks_in_a_checkpoint() -> Program:
    net, kept = network(), []
    net[0].register_full_backward_hook(lambda module, gi, go: kept.append(go[0].norm()))

    def run(h: Tensor) -> Tensor:
        out = net[0](h)
        out.register_hook(lambda grad: grad * 2)
        return torch.tanh(out)

    def step(x: Tensor) -> Tensor:
        begins(net)
        return ends(net, net[2](checkpoint(run, x, use_reentrant=False)).pow(2).mean())

    return step, nothing, lambda: (gradients(net), list(kept))


@program
def statistics_in_a_checkpoint() -> Program:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))

    def step(x: Tensor) -> Tensor:
        begins(net)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = checkpoint(net, x, use_reentrant=False)
        return ends(net, out.float().pow(2).mean())

    return step, nothing, lambda: (gradients(net), [it.clone() for it in net.buffers()])


@whole
def a_checkpointed_sequence() -> Program:
    net = network()

    def step(x: Tensor) -> Tensor:
        begins(net)
        out = checkpoint_sequential(net, 2, x.requires_grad_(), use_reentrant=False)
        return ends(net, out.pow(2).mean())

    return step, nothing, lambda: gradients(net)


@program
def a_checkpoint_within_another() -> Program:
    net = network()

    def inner(h: Tensor) -> Tensor:
        return torch.tanh(net[0](h))

    def outer(h: Tensor) -> Tensor:
        return net[2](checkpoint(inner, h, use_reentrant=False) * 2)

    def step(x: Tensor) -> Tensor:
        begins(net)
        return ends(net, checkpoint(outer, x, use_reentrant=False).pow(2).mean())

    return step, nothing, lambda: gradients(net)


@program
def a_checkpoint_counts() -> Program:
    net, counts = network(), {"n": 0}

    def run(h: Tensor) -> Tensor:
        counts["n"] += 1
        return torch.tanh(net[0](h))

    def step(x: Tensor) -> Any:
        begins(net)
        before = counts["n"]
        loss = ends(net, net[2](checkpoint(run, x, use_reentrant=False)).pow(2).mean())
        return loss, before, counts["n"]

    return step, nothing, lambda: (gradients(net), dict(counts))


@program
def a_checkpoint_that_writes_in_place() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        seen = torch.zeros(4)

        def run(h: Tensor) -> Tensor:
            out = torch.tanh(net[0](h))
            with torch.no_grad():
                seen.add_(out.mean(0))
            return out

        hidden = checkpoint(run, x, use_reentrant=False)
        return ends(net, net[2](hidden).pow(2).mean()), seen * 2

    return step, nothing, lambda: gradients(net)


@program
def a_checkpoint_that_branches() -> Program:
    net = network()

    def run(h: Tensor) -> Tensor:
        out = net[0](h)
        return torch.tanh(out) if out.sum() > 0 else torch.relu(out)

    def step(x: Tensor) -> Tensor:
        begins(net)
        return ends(net, net[2](checkpoint(run, x, use_reentrant=False)).pow(2).mean())

    return step, nothing, lambda: gradients(net)


@program
def a_checkpoint_that_selects() -> Program:
    """Data says how many rows it gives."""
    net = network()

    def run(h: Tensor) -> Tensor:
        out = torch.tanh(net[0](h))
        return out[h.sum(1) > 0]

    def step(x: Tensor) -> Any:
        begins(net)
        hidden = checkpoint(run, x, use_reentrant=False)
        return ends(net, net[2](hidden).pow(2).sum()), hidden.shape[0]

    return step, nothing, lambda: gradients(net)


@program
def a_checkpoint_that_raises() -> Program:
    net = network()

    def run(h: Tensor) -> Tensor:
        if HELD.flag:
            raise ValueError("stop")
        return torch.tanh(net[0](h))

    def step(x: Tensor) -> Any:
        begins(net)
        try:
            return ends(net, net[2](checkpoint(run, x, use_reentrant=False)).pow(2).mean())
        except ValueError as error:
            return str(error)

    def change(call: int) -> None:
        HELD.flag = call in (3, 5)

    return step, change, lambda: gradients(net)


@program
def a_checkpoint_with_other_sizes() -> Program:
    net, count = network(), [5]

    def step(x: Tensor) -> Any:
        begins(net)
        x = x[: count[0]]
        hidden = checkpoint(lambda h: torch.tanh(net[0](h)), x, use_reentrant=False)
        hidden.register_hook(lambda grad: grad * 2)
        return ends(net, net[2](hidden).pow(2).sum()), hidden.shape[0]

    def change(call: int) -> None:
        count[0] = 5 - call % 3

    return step, change, lambda: gradients(net)


@program
def checkpoints_are_given_much() -> Program:
    net = network()

    def run(h: Tensor, pair: Any, many: list[Any], *, scale: float, named: dict[str, Any]) -> Any:
        out = torch.tanh(net[0](h)) * scale + pair[0] + many[0]
        return out, None, out.detach() * named["by"]

    def step(x: Tensor) -> Any:
        begins(net)
        more = x.mean()
        hidden, none, other = checkpoint(
            run,
            x,
            (more, 3),
            [more * 2, None],
            scale=HELD.factor,
            named={"by": more},
            use_reentrant=False,
            preserve_rng_state=False,
        )
        return ends(net, net[2](hidden).pow(2).mean()), none, other

    return step, changes, lambda: gradients(net)


@program
def a_checkpoint_without_gradients() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        with torch.no_grad():
            return checkpoint(lambda h: net[0](h) * HELD.factor, x, use_reentrant=False)

    return step, changes, list


@program
def a_checkpoint_gives_what_it_is_given() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        hidden = net[0](x)
        same = checkpoint(lambda h: h, hidden, use_reentrant=False)
        same.mul_(2)
        return ends(net, net[2](net[1](hidden)).pow(2).mean()), same is hidden

    return step, nothing, lambda: gradients(net)


@program
def a_checkpointed_module_is_replaced() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        hidden = checkpoint(net[0], x, use_reentrant=False)
        return ends(net, net[2](net[1](hidden)).pow(2).mean())

    def change(call: int) -> None:
        if call == 3:
            torch.manual_seed(5)
            net[0] = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        if call == 6:
            net[0].forward = lambda x: x[:, :1].expand(-1, 4) * net[0][0].weight[0, 0]

    return step, change, lambda: gradients(net)


@program
def a_variable_that_is_written_between_checkpoints() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        for layer in (net[0], net[2]):
            x = checkpoint(
                lambda h: torch.tanh(layer(h[:, : layer.in_features])), x, use_reentrant=True
            )
        return x

    def called(x: Tensor) -> Any:
        return step(x.requires_grad_()).detach()

    return called, nothing, list


@program
def a_checkpoint_under_a_name_that_changes() -> Program:
    net = network()
    HELD.run = lambda h: torch.tanh(net[0](h))

    def step(x: Tensor) -> Any:
        begins(net)
        return ends(net, net[2](checkpoint(HELD.run, x, use_reentrant=False)).pow(2).mean())

    def change(call: int) -> None:
        if call == 4:
            HELD.run = lambda h: torch.relu(net[0](h))

    return step, change, lambda: gradients(net)


@program
def a_region_that_reads_what_the_step_has_written() -> Program:
    net = network()

    def run(h: Tensor) -> Tensor:
        return torch.tanh(net[0](h)) * HELD.count

    def step(x: Tensor) -> Any:
        begins(net)
        HELD.count += 1
        loss = ends(net, net[2](checkpoint(run, x, use_reentrant=False)).pow(2).mean())
        return loss, HELD.count

    def change(call: int) -> None:
        HELD.count = call % 3

    return step, change, lambda: gradients(net)


@program
def a_variable_is_written_before_it_goes_back() -> Program:
    """The second run of the region sees another value, as in plain Python."""
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        HELD.count = 2
        hidden = checkpoint(lambda h: torch.tanh(net[0](h)) * HELD.factor, x, use_reentrant=False)
        out = net[2](hidden).pow(2).mean()
        HELD.factor += 1
        loss = ends(net, out)
        HELD.factor -= 1
        return loss

    return step, changes, lambda: gradients(net)


@whole
def a_tensor_that_comes_back_as_it_was_given() -> Program:
    """As transformers' layers hand on the bias of their positions."""
    net = network()

    def layer(h: Tensor, bias: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
        if bias is None:
            bias = h.mean(0) * HELD.factor
        return torch.tanh(net[0](h[:, :3] * scale + bias[0])), bias

    def step(x: Tensor) -> Any:
        begins(net)
        bias, seen = None, []
        for scale in (1.0, 2.0, 0.5):
            x, found = checkpoint(layer, x, bias, scale, use_reentrant=False)
            seen.append(found is bias)
            bias = found
        return ends(net, net[2](x).pow(2).mean() + bias.sum()), seen

    return step, changes, lambda: gradients(net)


@program
def arguments_that_come_back() -> Program:
    net = network()

    def run(h: Tensor, mask: Tensor, kept: list[Tensor]) -> Any:
        return {"h": torch.tanh(net[0](h)) * mask, "mask": mask, "kept": kept[0].contiguous()}

    def step(x: Tensor) -> Any:
        begins(net)
        mask = (x[:, :1] > 0).float()
        kept = [x.t()[:2].t(), x]
        out = checkpoint(run, x, mask, kept, use_reentrant=False)
        same = out["mask"] is mask, out["kept"] is kept[0]
        loss = ends(net, net[2](out["h"]).pow(2).mean())
        out["mask"] += 1
        return loss, same, mask, out["kept"].stride()

    return step, nothing, lambda: gradients(net)


@program
def an_argument_that_is_written_and_comes_back() -> Program:
    net = network()

    def run(h: Tensor, total: Tensor) -> Any:
        total += h.detach().sum()
        return torch.tanh(net[0](h)), total

    def step(x: Tensor) -> Any:
        begins(net)
        total = torch.zeros(())
        hidden, found = checkpoint(run, x, total, use_reentrant=True)
        before = found * 1
        found += 1
        return ends(net, net[2](hidden).pow(2).mean()), before, total, found is total

    def called(x: Tensor) -> Any:
        return step(x.requires_grad_())

    return called, nothing, lambda: gradients(net)


@pytest.mark.parametrize("columns", [1, 3])
def test_what_comes_back_with_sizes_that_vary(columns: int) -> None:
    """`contiguous()` gives the tensor itself or a copy, by its sizes."""
    api.reset()

    def run(h: Tensor, other: Tensor) -> Any:
        return torch.tanh(h), other.contiguous()

    def step(x: Tensor) -> Any:
        other = (x * 2).t()
        hidden, found = checkpoint(run, x, other, use_reentrant=False)
        found += 1
        return hidden, other * 1, found is other

    compiled = api.compile(step, dynamic=True)
    for rows in (1, 4, 3, 1, 5):
        x = torch.arange(1.0 * rows * columns).view(rows, columns)
        assert str(compiled(x)) == str(step(x))


@pytest.mark.parametrize("name", PROGRAMS.all)
def test_steps_are_plain_ones(name: str) -> None:
    HELD.factor, HELD.flag = 2.0, False
    PROGRAMS.check(name)
