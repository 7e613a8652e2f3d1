"""`torch.autograd.Function`s of the program's within one node: what they read and write, what is changed between calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .within_nodes import SETTINGS, Program, Programs, gradients, network, nothing, step_of

PROGRAMS = Programs()
program, whole = PROGRAMS.program, PROGRAMS.whole


class Reads(torch.autograd.Function):
    """It reads what is outside, in both directions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * SETTINGS.factor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * SETTINGS.factor + 0.01 * x


@whole
def reads() -> Program:
    net = network()
    SETTINGS.factor = 2.0
    return step_of(net, Reads.apply), nothing, lambda: gradients(net)


@program
def reads_what_changes() -> Program:
    net = network()

    def change(call: int) -> None:
        SETTINGS.factor = 2.0 if call < 4 else 3.0 + call

    return step_of(net, Reads.apply), change, lambda: gradients(net)


@program
def reads_what_the_trace_writes() -> Program:
    net = network()
    SETTINGS.factor = 1.0

    def between(x: Tensor) -> Tensor:
        SETTINGS.factor += 0.5
        return Reads.apply(x)

    return step_of(net, between), nothing, lambda: (gradients(net), SETTINGS.factor)


@program
def is_written_behind_it() -> Program:
    net = network()
    SETTINGS.factor = 1.0

    def between(x: Tensor) -> Tensor:
        x = Reads.apply(x)
        SETTINGS.factor += 0.5
        return x

    return step_of(net, between), nothing, lambda: (gradients(net), SETTINGS.factor)


class OfItsClass(torch.autograd.Function):
    """Its functions are methods of the class, which they read from."""

    factor = 2.0

    @classmethod
    def forward(cls, ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * cls.factor

    @classmethod
    def backward(cls, ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * cls.factor + 0.01 * x


@whole
def methods_of_the_class() -> Program:
    net = network()
    OfItsClass.factor = 2.0
    return step_of(net, OfItsClass.apply), nothing, lambda: gradients(net)


@program
def methods_of_a_class_that_changes() -> Program:
    net = network()

    def change(call: int) -> None:
        OfItsClass.factor = 2.0 if call < 4 else 3.0 + call
        OfItsClass.backward = classmethod(
            lambda cls, ctx, grad: grad * cls.factor * (1 if call < 6 else 2)
        )

    return step_of(net, OfItsClass.apply), change, lambda: gradients(net)


class Writes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        SETTINGS.seen += 1
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        SETTINGS.seen += 100
        return grad


@program
def writes() -> Program:
    net = network()
    SETTINGS.seen = 0
    return step_of(net, Writes.apply), nothing, lambda: SETTINGS.seen


@program
def reads_what_it_wrote() -> Program:
    net = network()
    SETTINGS.seen = 0

    def between(x: Tensor) -> Tensor:
        before = SETTINGS.seen
        x = Writes.apply(x)
        return x * (SETTINGS.seen - before) + SETTINGS.seen

    return step_of(net, between), nothing, lambda: SETTINGS.seen


@program
def writes_what_it_wrote() -> Program:
    net = network()
    SETTINGS.seen = 0

    def between(x: Tensor) -> Tensor:
        x = Writes.apply(x)
        SETTINGS.seen = 7
        return Writes.apply(x)

    return step_of(net, between), nothing, lambda: SETTINGS.seen


class Columns(torch.autograd.Function):
    """What it reads decides a size."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape = x.shape
        return x[:, : SETTINGS.columns].contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        whole = grad.new_zeros(ctx.shape)
        whole[:, : grad.shape[1]] = grad
        return whole


@program
def sizes_change() -> Program:
    net = network()

    def change(call: int) -> None:
        SETTINGS.columns = 1 if call in (3, 4, 6) else 2

    return step_of(net, lambda x: Columns.apply(x) * torch.ones(SETTINGS.columns)), change, list


class Decides(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.is_positive = bool(x.sum() > 0)
        return x * 2 if ctx.is_positive else x[:1] * 3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2 if ctx.is_positive else grad.expand(5, 2) * 3


@program
def data_decides() -> Program:
    net = network()
    return step_of(net, Decides.apply), nothing, lambda: gradients(net)


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 3


@program
def in_place() -> Program:
    net = network()

    def between(x: Tensor) -> Tensor:
        x = x + 0
        y = InPlace.apply(x)
        return y + x

    return step_of(net, between), nothing, lambda: gradients(net)


class Pair(torch.autograd.Function):
    """Two results, one without a gradient, arguments of other kinds."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, sizes: tuple[int, int], mode: str, none: None
    ) -> tuple[Tensor, Tensor]:
        ctx.mode, ctx.needs = mode, ctx.needs_input_grad
        indices = x.argmax(1)
        ctx.mark_non_differentiable(indices)
        ctx.set_materialize_grads(False)
        return x * sizes[0] if mode == "times" else x + sizes[1], indices

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Any, ...]:
        assert ctx.needs[0]
        assert _ is None
        return (
            (None if grad is None else grad * 2 if ctx.mode == "times" else grad),
            None,
            None,
            None,
        )


@whole
def pair() -> Program:
    net = network()

    def between(x: Tensor) -> Tensor:
        x, indices = Pair.apply(x, (2, 3), "times", None)
        return x + F.one_hot(indices, 2)

    return step_of(net, between), nothing, lambda: gradients(net)


class ByContext(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return x * weight, weight.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, power = ctx.saved_tensors
        return grad * weight, (grad * x).sum(0) + other * power


@whole
def by_context() -> Program:
    net, weight = network(), nn.Parameter(torch.ones(2))
    net.register_parameter("extra", weight)

    def between(x: Tensor) -> Tensor:
        first, second = ByContext.apply(x, weight)
        return first + second

    return step_of(net, between), nothing, lambda: gradients(net)


class Outer(torch.autograd.Function):
    """One within another, and gradients of gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return Reads.apply(x) ** 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 8 * x * grad


@whole
def twice() -> Program:
    net = network()
    SETTINGS.factor = 2.0

    def step(x: Tensor) -> Any:
        x = x.clone().requires_grad_()
        y = Outer.apply(net(x)).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), x)
        return y.detach(), first.detach(), second

    return step, nothing, list


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mask = torch.rand_like(x) < 0.5
        return x * ctx.mask

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * ctx.mask + torch.rand_like(grad)


@whole
def noisy() -> Program:
    net = network()
    return step_of(net, Noisy.apply), nothing, lambda: (gradients(net), torch.get_rng_state())


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        torch._assert(x.shape[0] < 6, "too many")
        return x.exp()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        if SETTINGS.factor > 3:
            raise ValueError("too large")
        return grad * 2


@program
def refuses() -> Program:
    net = network()

    def change(call: int) -> None:
        SETTINGS.factor = 4.0 if call in (4, 5) else 1.0

    def step(x: Tensor) -> Any:
        told = []
        try:
            Refuses.apply(net(x)).sum().backward()
        except ValueError as error:
            told.append(str(error))
        return told

    return step, change, lambda: gradients(net)


@program
def its_code_changes() -> Program:
    net = network()

    class Changing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 2

    def change(call: int) -> None:
        if call == 3:
            Changing.backward = staticmethod(lambda ctx, grad: grad * 5)
        if call == 5:
            Changing.forward = staticmethod(lambda ctx, x: x.sum(1, keepdim=True) * 7)

    return step_of(net, lambda x: Changing.apply(x)), change, lambda: gradients(net)


@program
def a_class_of_each_call() -> Program:
    net = network()

    def between(x: Tensor) -> Tensor:
        class Own(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, it: Tensor) -> Tensor:
                return it * 2

            @staticmethod
            def backward(ctx: Any, grad: Tensor) -> Tensor:
                return grad + x

        return Own.apply(x)

    return step_of(net, between), nothing, lambda: gradients(net)


class WithModule(torch.autograd.Function):
    """An object of the program's is an argument."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: nn.Module, names: Any) -> Tensor:
        ctx.module = module
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = module(ctx.x)
        return ctx.y.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (found,) = torch.autograd.grad(ctx.y, ctx.x, grad)
        return found, None, None


@program
def with_a_module() -> Program:
    net, other = network(), nn.Linear(2, 2)

    def change(call: int) -> None:
        with torch.no_grad():
            other.weight.add_(0.1)

    def between(x: Tensor) -> Tensor:
        return WithModule.apply(x, other, None)

    return step_of(net, between), change, lambda: gradients(net)


@program
def with_a_list() -> Program:
    net, other, given = network(), nn.Linear(2, 2), []

    def between(x: Tensor) -> Tensor:
        return WithModule.apply(x, other, given)

    return step_of(net, between), nothing, lambda: gradients(net)


@whole
def without_gradients() -> Program:
    net = network()
    SETTINGS.factor = 2.0

    def step(x: Tensor) -> Any:
        with torch.no_grad():
            first = Reads.apply(net(x))
        return first, Reads.apply(x) + 1, Pair.apply(x, (1, 2), "plus", None)

    return step, nothing, list


@program
def rows_of_calls_vary() -> Program:
    """More of them at each call, so that their number becomes a symbol."""
    net = network()
    SETTINGS.factor, SETTINGS.columns = 2.0, 2
    step = step_of(net, lambda x: Reads.apply(x[: SETTINGS.columns]))

    def change(call: int) -> None:
        SETTINGS.columns = 2 + call % 3

    return step, change, lambda: gradients(net)


class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any) -> Tensor:
        return torch.full((2,), SETTINGS.factor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        return None


@program
def given_nothing() -> Program:
    net = network()

    def change(call: int) -> None:
        SETTINGS.factor = float(call // 3)

    return step_of(net, lambda x: x + Nothing.apply()), change, list


@pytest.mark.parametrize("name", PROGRAMS.all)
def test_steps_are_plain_ones(name: str) -> None:
    PROGRAMS.check(name)
