"""Transforms of `torch.func`: what `vmap`, `grad` and their like give is called by one node.

What their functions read is changed between calls, what they hold is written afterwards, and what they leave as it was
is read behind.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.functional import hessian as full_hessian
from torch.autograd.functional import hvp, jacobian
from torch.autograd.functional import vjp as backwards
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)

import stator

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

PROGRAMS = Programs(most_traced=3)
program, whole = PROGRAMS.program, PROGRAMS.whole


class Pair(NamedTuple):
    weight: Tensor
    bias: Tensor


def weights(net: nn.Module) -> list[Tensor]:
    return [it.detach().clone() for it in net.parameters()]


@whole
def rows_with_what_is_read() -> Program:
    return lambda x: vmap(lambda row: row * HELD.factor + row.sum())(x) + 1, changes, list


@whole
def operations_of_pytorch() -> Program:
    """Functions in C, which nobody has to look into."""

    def step(x: Tensor) -> Any:
        out, tangent = jvp(torch.sin, (x,), (x * HELD.factor,))
        scaled, back = vjp(torch.exp, x)
        each = vmap(torch.dot)(x, x), vmap(torch.matmul, in_dims=(0, None))(x, x.T)
        return out, tangent, scaled, back(x)[0], each, grad(torch.sum)(x), jacrev(torch.sigmoid)(x)

    return step, changes, list


@program
def an_operation_in_place() -> Program:
    def step(x: Tensor) -> Any:
        mine = x + HELD.factor
        return vmap(torch.Tensor.add_)(mine, x), vmap(torch.relu_)(mine - 1), mine

    return step, changes, list


@whole
def a_transform_from_outside() -> Program:
    def of(row: Tensor, scale: Tensor) -> Tensor:
        return (row * scale * HELD.factor).sum()

    transform = vmap(grad(of), in_dims=(0, None))
    return lambda x: transform(x, x.mean(0)) * 2, changes, list


@program
def a_transform_that_is_replaced() -> Program:
    held = {"by": vmap(lambda row: row.sum())}

    def change(call: int) -> None:
        if call == 4:
            held["by"] = vmap(lambda row: row.sum() * 2)
        if call == 6:
            held["by"] = vmap(lambda row: row * 2, in_dims=1, out_dims=1)

    return lambda x: held["by"](x), change, list


@program
def a_variable_of_a_transform_is_written() -> Program:
    dims = [0]

    def step(x: Tensor) -> Tensor:
        return vmap(lambda row: row.cumsum(0), in_dims=dims[0])(x)

    def change(call: int) -> None:
        dims[0] = int(call in (3, 4, 6))

    return step, change, list


@whole
def samples_clipped() -> Program:
    net = network()

    def loss_of(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(functional_call(net, params, (x,)), y)

    of_samples = vmap(grad(loss_of), in_dims=(None, 0, 0))

    def step(x: Tensor) -> Any:
        params = {name: it.detach() for name, it in net.named_parameters()}
        found = of_samples(params, x, x[:, :2])
        norms = torch.stack([it.flatten(1).norm(dim=1) for it in found.values()]).norm(dim=0)
        factor = (1.0 / (norms + 1e-6)).clamp(max=1.0)
        with torch.no_grad():
            for name, it in net.named_parameters():
                it -= 0.1 * torch.einsum("b,b...->...", factor, found[name])
        return norms, net(x)

    return step, nothing, lambda: weights(net)


@program
def a_network_is_changed_between() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        params = dict(net.named_parameters())
        return vmap(lambda row: functional_call(net, params, (row,)).sum())(x).detach()

    def change(call: int) -> None:
        if call == 3:
            net[1] = nn.ReLU()
        if call == 5:
            net[0].forward = lambda x: x[..., :1].expand(*x.shape[:-1], 4)

    return step, change, lambda: weights(net)


@whole
def inner_and_outer_steps() -> Program:
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

    def loss_of(params: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(net, params, (x,)).pow(2).mean()

    def adapted(params: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
        found = grad(loss_of)(params, x)
        return {name: params[name] - 0.1 * found[name] for name in params}

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        params = dict(net.named_parameters())
        loss = loss_of(adapted(params, x), x + 1)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, nothing, lambda: gradients(net)


@whole
def an_ensemble() -> Program:
    nets = [network(seed) for seed in range(3)]
    stacked, buffers = torch.func.stack_module_state(nets)
    params = {name: it.detach().requires_grad_() for name, it in stacked.items()}
    base = nets[0]

    def call(params: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(base, (params, buffers), (x,))

    def step(x: Tensor) -> Any:
        for it in params.values():
            it.grad = None
        out = vmap(call, in_dims=(0, 0, None))(params, buffers, x)
        out.pow(2).mean().backward()
        with torch.no_grad():
            for it in params.values():
                it -= 0.1 * it.grad
        return out.detach().std(0)

    return step, nothing, lambda: [it.detach().clone() for it in params.values()]


@whole
def gradients_and_values() -> Program:
    held = {"weight": torch.ones(3), "bias": torch.zeros(())}

    def loss_of(params: dict[str, Tensor], x: Tensor) -> Any:
        out = x @ params["weight"] + params["bias"]
        return out.pow(2).mean(), {"out": out, "mean": out.mean()}

    def step(x: Tensor) -> Any:
        found, (loss, more) = grad_and_value(loss_of, has_aux=True)(held, x)
        for name, it in found.items():
            held[name] = held[name] - 0.1 * it
        return loss, more["out"], more["mean"].item()

    return step, nothing, lambda: dict(held)


@whole
def jacobians() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        back = vmap(jacrev(net))(x)
        ahead = vmap(jacfwd(lambda row: torch.sin(net(row)) * HELD.factor))(x)
        return ends(net, back.pow(2).mean() + ahead.pow(2).mean())

    return step, changes, lambda: gradients(net)


@whole
def curvature() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        of = hessian(lambda row: net(row).pow(2).sum())
        value, tangent = jvp(lambda it: net(it).sum(), (x,), (torch.ones_like(x),))
        return of(x[0]), value.detach(), tangent.detach()

    return step, nothing, list


@whole
def by_argument_numbers() -> Program:
    def of(x: Tensor, y: Tensor, *, scale: float) -> Tensor:
        return (x * y).sum() * scale

    def step(x: Tensor) -> Any:
        return grad(of, argnums=(0, 1))(x, x + 1, scale=HELD.factor), grad(of, 1)(x, x, scale=2.0)

    return step, changes, list


@whole
def partial_functions_and_methods() -> Program:
    net = network()

    class Model:
        scale = 1.0

        def loss(self, row: Tensor) -> Tensor:
            return (net(row) * self.scale).sum()

    model = Model()

    def scaled(factor: float, row: Tensor) -> Tensor:
        return row * factor

    def change(call: int) -> None:
        model.scale = 1.0 if call < 4 else 0.5

    def step(x: Tensor) -> Any:
        return vmap(grad(model.loss))(x), vmap(partial(scaled, 3.0))(x)

    return step, change, list


@whole
def trees_of_arguments() -> Program:
    def of(pair: Pair, many: list[Tensor], named: OrderedDict[str, Tensor], row: Tensor) -> Any:
        out = row * pair.weight + pair.bias + many[0] * named["by"]
        return {"out": out, "parts": [out.sum(), (many[1],)]}

    def step(x: Tensor) -> Any:
        pair = Pair(x[0], x.mean())
        named = OrderedDict(by=x.sum())
        return vmap(of, in_dims=(None, None, None, 0))(pair, [x[1], x[2]], named, x)

    return step, nothing, list


@program
def an_outside_tree_changes() -> Program:
    held: dict[str, Any] = {"weight": torch.ones(3), "many": [torch.zeros(3)]}

    def of(tree: dict[str, Any], row: Tensor) -> Tensor:
        out = row * tree["weight"]
        for it in tree["many"]:
            out = out + it
        return out

    def change(call: int) -> None:
        if call == 3:
            held["many"].append(torch.full((3,), 2.0))
        if call == 5:
            held["weight"] = torch.full((3,), 4.0)
        if call == 6:
            held["weight"] = torch.full((1,), 4.0, dtype=torch.float64)

    return lambda x: vmap(of, in_dims=(None, 0))(held, x), change, list


@whole
def random_numbers_of_rows() -> Program:
    def step(x: Tensor) -> Any:
        noisy = vmap(lambda row: row + torch.randn_like(row), randomness="different")(x)
        return noisy, vmap(lambda row: F.dropout(row, 0.5), randomness="same")(x)

    return step, nothing, list


@program
def numbers_of_pythons_within() -> Program:
    random.seed(0)

    def step(x: Tensor) -> Any:
        return vmap(lambda row: row * random.random())(x), random.random()

    return step, nothing, list


@whole
def numbers_of_pythons_before() -> Program:
    random.seed(0)

    def step(x: Tensor) -> Any:
        scale = random.uniform(0.5, 1.5)
        found = vmap(grad(lambda row: (row * scale).pow(2).sum()))(x)
        return found, random.random() < 2, scale

    return step, nothing, list


@program
def what_a_function_writes() -> Program:
    seen: list[int] = []
    counts = {"calls": 0}

    def of(row: Tensor) -> Tensor:
        counts["calls"] += 1
        seen.append(row.dim())
        return row.sum()

    def step(x: Tensor) -> Any:
        return vmap(of)(x), counts["calls"]

    return step, nothing, lambda: [list(seen), dict(counts)]


@program
def a_variable_is_written_behind() -> Program:
    def step(x: Tensor) -> Any:
        factor = 2.0
        transform = vmap(lambda row: row * factor)
        first = transform(x)
        factor = 3.0
        return first, transform(x), factor

    return step, nothing, list


@program
def a_dictionary_is_written_behind() -> Program:
    def step(x: Tensor) -> Any:
        named = {"by": x.mean()}
        first = vmap(lambda row: row * named["by"])(x)
        second = vmap(lambda named, row: row * named["by"], in_dims=(None, 0))(named, x)
        named["by"] = x.sum()
        return first, second, vmap(lambda row: row * named["by"])(x)

    return step, nothing, list


@program
def data_decides_within() -> Program:
    def of(row: Tensor) -> Tensor:
        loss = row.pow(2).sum()
        return loss * 2 if loss > 12 else loss

    return lambda x: grad(of)(x) + 1, nothing, list


@program
def a_number_is_read_within() -> Program:
    def step(x: Tensor) -> Any:
        found, loss = grad_and_value(lambda it: it.pow(2).sum() * x.mean().item())(x)
        return found, loss.item()

    return step, nothing, list


@program
def a_function_gives_what_it_is_given() -> Program:
    def step(x: Tensor) -> Any:
        hidden = x * 2
        found, same = grad(lambda it: (it.sum(), hidden), has_aux=True)(x)
        same.mul_(2)
        every = vmap(lambda row: row)(hidden)
        every.add_(1)
        return found, hidden, same is hidden, every

    return step, nothing, list


@program
def a_function_writes_to_a_tensor() -> Program:
    total = torch.zeros(3)

    def of(x: Tensor) -> Tensor:
        with torch.no_grad():
            total.add_(1.0)
        return (x * total).sum()

    def step(x: Tensor) -> Any:
        try:
            return grad(of)(x), total.clone()
        except RuntimeError as error:
            return str(error)

    return step, nothing, lambda: total.clone()


@program
def a_function_that_raises() -> Program:
    def of(row: Tensor) -> Tensor:
        if HELD.flag:
            raise ValueError("stop")
        return row.sum()

    def step(x: Tensor) -> Any:
        try:
            return vmap(of)(x)
        except ValueError as error:
            return str(error)

    def change(call: int) -> None:
        HELD.flag = call in (3, 5)

    return step, change, list


@program
def other_sizes() -> Program:
    count, offset = [5], torch.arange(5.0)

    def step(x: Tensor) -> Any:
        x = x[: count[0]]
        some = offset[: count[0]]
        each = vmap(lambda column: (column * some).sum() + column.shape[0], in_dims=1)(x)
        return each, vmap(lambda row: row * some)(x.new_ones(2, 1)), grad(lambda it: it.sum())(x)

    def change(call: int) -> None:
        count[0] = 5 - call % 3

    return step, change, list


@program
def sizes_of_data() -> Program:
    def step(x: Tensor) -> Any:
        kept = x[x[:, 0] > 0]
        return vmap(lambda row: row.sum())(kept) if len(kept) else kept.sum(), len(kept)

    return step, nothing, list


@program
def transforms_within_transforms() -> Program:
    def of(row: Tensor) -> Tensor:
        return grad(lambda it: (it**3).sum() * HELD.factor)(row).sum()

    return lambda x: vmap(grad(of))(x), changes, list


@program
def a_function_of_its_own_gradient() -> Program:
    class Doubled(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 3

    return lambda x: vmap(grad(lambda row: Doubled.apply(row).sum()))(x), nothing, list


@program
def what_pulls_back() -> Program:
    def step(x: Tensor) -> Any:
        out, back = torch.func.vjp(lambda it: it.sin() * HELD.factor, x)
        return out, back(torch.ones_like(x))

    return step, changes, list


@program
def without_gradients() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        with torch.no_grad():
            found = vmap(grad(lambda row: net(row).sum()))(x)
        return found, torch.is_grad_enabled(), found.requires_grad

    return step, nothing, list


@program
def norms_that_write_statistics() -> Program:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))

    def loss_of(params: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(net, params, (x,)).pow(2).mean()

    def step(x: Tensor) -> Any:
        params = {name: it.detach() for name, it in net.named_parameters()}
        try:
            return grad(loss_of)(params, x)
        except RuntimeError as error:
            return str(error)

    return step, nothing, lambda: [it.clone() for it in net.buffers()]


@whole
def in_pieces() -> Program:
    def step(x: Tensor) -> Any:
        pieces = vmap(lambda row: row.cumsum(0), chunk_size=2)(x)
        return pieces, jacrev(lambda it: it[0] ** 2, chunk_size=1)(x)

    return step, nothing, list


@program
def rows_are_written() -> Program:
    held = torch.zeros(5, 3)

    def step(x: Tensor) -> Any:
        hidden = x * 2
        return vmap(lambda row: row.add_(1))(hidden), vmap(lambda row: row.mul_(2))(held), hidden

    def change(call: int) -> None:
        held.fill_(float(call))

    return step, change, lambda: held.clone()


@program
def numbers_among_the_results() -> Program:
    def of(x: Tensor) -> Any:
        loss = x.pow(2).sum()
        return loss, {"factor": HELD.factor, "loss": loss}

    return lambda x: grad(of, has_aux=True)(x), changes, list


@program
def modes_of_a_module() -> Program:
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))

    def change(call: int) -> None:
        net.train(call not in (2, 5))

    return lambda x: vmap(net, randomness="different")(x).detach(), change, list


@program
def a_dictionary_that_is_put_back() -> Program:
    held: dict[str, Any] = {"by": torch.ones(3), "count": 0}

    def of(row: Tensor) -> Tensor:
        before = held["by"]
        held["by"] = row * 2
        out = (row * held["by"]).sum()
        held["by"] = before
        held["count"] = 0
        return out

    def step(x: Tensor) -> Any:
        found = grad(lambda it: of(it[0]))(x)
        again = found * held["by"] + held["count"]
        held["by"] = held["by"] + 1
        return found, again

    def change(call: int) -> None:
        held["count"] = 0 if call < 4 else call
        if call == 5:
            held["by"] = torch.full((3,), 4.0)

    return step, change, lambda: [held["by"].clone(), held["count"]]


@program
def an_object_is_put_where_it_stood() -> Program:
    first, second = torch.ones(3), torch.full((3,), 2.0)
    held = {"by": first, "other": first}

    def of(row: Tensor) -> Tensor:
        held["by"] = held["other"]
        return (row * held["by"]).sum()

    def change(call: int) -> None:
        held["by"] = second if call in (3, 5) else first
        held["other"] = second if call in (5, 6) else first

    def step(x: Tensor) -> Any:
        return grad(lambda it: of(it[0]))(x), held["by"] * 2, held["by"] is first

    return step, change, list


@whole
def pulled_back() -> Program:
    matrix = torch.arange(12.0).view(4, 3) / 10

    def step(x: Tensor) -> Any:
        out, pull = vjp(lambda row: (matrix @ row).tanh() * HELD.factor, x[0])
        (once,) = pull(torch.ones(4))
        return out, once, pull(out * x.mean())[0] + once

    return step, changes, list


@whole
def pulled_back_to_parameters() -> Program:
    net = network()

    def loss_of(params: dict[str, Tensor], x: Tensor) -> Any:
        out = functional_call(net, params, (x,))
        return out.square().mean(), {"out": out}

    def step(x: Tensor) -> Any:
        params = {name: it.detach() for name, it in net.named_parameters()}
        loss, pull, more = vjp(lambda it: loss_of(it, x), params, has_aux=True)
        (found,) = pull(torch.ones_like(loss))
        with torch.no_grad():
            for name, it in net.named_parameters():
                it -= 0.1 * found[name]
        return loss, more["out"]

    return step, nothing, lambda: weights(net)


@whole
def pulled_back_in_rows() -> Program:
    def step(x: Tensor) -> Any:
        out, pull = vjp(lambda it: (it * HELD.factor).sin().sum(0), x)
        (rows,) = vmap(pull)(torch.eye(3))
        return out, rows, vmap(lambda row: vjp(lambda it: it.sin(), row)[1](row)[0])(x)

    return step, changes, list


@whole
def pulled_back_twice_over() -> Program:
    def step(x: Tensor) -> Any:
        return vjp(grad(lambda row: (row**3).sum() * HELD.factor), x[0])[1](x[1])[0]

    return step, changes, list


@program
def pulled_back_later() -> Program:
    held: dict[str, Any] = {}

    def step(x: Tensor) -> Any:
        before = held["pull"](x[0])[0] if "pull" in held else None
        out, held["pull"] = vjp(lambda row: row.square() * HELD.factor, x[1])
        return out, before, held["pull"](torch.ones(3))[0]

    return step, changes, lambda: [held["pull"](torch.ones(3))[0] if held else None]


@program
def pulled_back_by_the_caller() -> Program:
    kept: list[Any] = []

    def step(x: Tensor) -> Any:
        out, pull = vjp(lambda row: row.square() * HELD.factor, x[1])
        kept.append(pull)
        return out

    return step, changes, lambda: [it(torch.ones(3))[0] for it in kept[-1:]]


@program
def pulled_back_with_history() -> Program:
    net = network()

    def step(x: Tensor) -> Any:
        begins(net)
        out, pull = vjp(lambda it: net(it), x)
        pulled = pull(out)[0]
        loss = out.square().sum() + pulled.square().sum()
        return ends(net, loss)

    return step, nothing, lambda: [gradients(net), weights(net)]


@program
def pulled_back_from_something_else() -> Program:
    def step(x: Tensor) -> Any:
        out, pull = vjp(lambda row: (row.square(), row.sum()), x[0])
        try:
            pull(torch.ones(3))
        except RuntimeError as error:
            return str(error)
        return out

    return step, nothing, list


@whole
def derivatives_of_autograd() -> Program:
    matrix = torch.arange(12.0).view(4, 3) / 10

    def of(row: Tensor) -> Tensor:
        return (matrix @ row).tanh() * HELD.factor

    def step(x: Tensor) -> Any:
        rows = [x[0], x[1]]
        return (
            jacobian(of, rows[0]),
            jacobian(lambda a, b: (a * b, a + HELD.factor), tuple(rows)),
            hvp(lambda row: of(row).pow(3).sum(), rows[0], rows[1])[1],
            backwards(of, rows[0], torch.ones(4))[1],
            full_hessian(lambda row: of(row).sum(), rows[1]),
        )

    return step, changes, list


@pytest.mark.parametrize("name", PROGRAMS.all)
def test_transforms(name: str) -> None:
    HELD.factor, HELD.flag = 2.0, False
    PROGRAMS.check(name)


@pytest.mark.parametrize("name", PROGRAMS.all)
def test_transforms_with_default_settings(name: str) -> None:
    HELD.factor, HELD.flag = 2.0, False
    with stator.config.patch(skip_unprofitable=True):
        PROGRAMS.check(name, may_be_native=True)
