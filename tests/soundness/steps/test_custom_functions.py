"""Code of the program's own within one node: `torch.autograd.Function`s and hooks, what they read and write, and what
is changed between calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .results import copied, same

# A program: a function of a tensor, what happens before each call, and what else is compared.
Program = tuple[Callable[[Tensor], Any], Callable[[int], None], Callable[[], Any]]

PROGRAMS: dict[str, Callable[[], Program]] = {}
# Those without a break, with a hit from the third call on.
WHOLE: set[str] = set()


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__] = make
    return make


def whole(make: Callable[[], Program]) -> Callable[[], Program]:
    WHOLE.add(make.__name__)
    return program(make)


def rows(seed: int, *sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def nothing(call: int) -> None:
    pass


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def gradients(net: nn.Module) -> list[Tensor | None]:
    return [None if it.grad is None else it.grad.clone() for it in net.parameters()]


def step_of(net: nn.Module, between: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Any]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = between(net(x)).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


SETTINGS = SimpleNamespace(factor=2.0, columns=2, seen=0, log=[])


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
def sizes_of_calls_change() -> Program:
    net = network()
    SETTINGS.factor = 2.0
    step = step_of(net, lambda x: Reads.apply(x)[:, : SETTINGS.columns])
    counts = [5, 5, 4, 3, 7, 5, 2, 1]
    calls: list[int] = []

    def of_other_sizes(x: Tensor) -> Any:
        return step(x)

    def change(call: int) -> None:
        SETTINGS.columns = 2
        calls.append(counts[call % len(counts)])

    del of_other_sizes
    return step, change, list


# Hooks


def clip(grad: Tensor) -> Tensor:
    return grad.clamp(-0.05, 0.05)


@whole
def hooked() -> Program:
    net = network()
    for parameter in net.parameters():
        parameter.register_hook(clip)
    return step_of(net, torch.tanh), nothing, lambda: gradients(net)


@program
def hooks_come_and_go() -> Program:
    net, handles = network(), []

    def change(call: int) -> None:
        if call == 2:
            handles.append(net[0].weight.register_hook(clip))
        if call == 4:
            handles.append(net[0].weight.register_hook(lambda grad: grad * SETTINGS.factor))
        if call == 6:
            handles.pop(0).remove()

    SETTINGS.factor = 3.0
    return step_of(net, torch.tanh), change, lambda: gradients(net)


@program
def hooks_are_replaced() -> Program:
    net = network()
    handle = [net[0].weight.register_hook(clip)]

    def change(call: int) -> None:
        if call >= 3:
            handle.pop().remove()
            handle.append(net[0].weight.register_hook(lambda grad, call=call: grad * call))

    return step_of(net, torch.tanh), change, lambda: gradients(net)


@whole
def hooks_that_note_numbers() -> Program:
    net, norms = network(), {}
    for name, parameter in net.named_parameters():
        parameter.register_hook(lambda grad, name=name: norms.__setitem__(name, grad.norm().item()))
    norms.update(dict.fromkeys(dict(net.named_parameters()), 0.0))
    return step_of(net, torch.tanh), nothing, lambda: (gradients(net), dict(norms))


@program
def notes_are_read_behind() -> Program:
    net, norms = network(), {"first": 0.0}
    net[0].weight.register_hook(lambda grad: norms.__setitem__("first", grad.norm().item()))
    step = step_of(net, torch.tanh)

    def read(x: Tensor) -> Any:
        before = norms["first"]
        return step(x), before, norms["first"], len(norms)

    return read, nothing, lambda: dict(norms)


@program
def notes_are_read_under_another_name() -> Program:
    """At some calls two dictionaries are one."""
    net, norms, table = network(), {"first": 0.0}, {"first": 1.0}
    holder = SimpleNamespace(written=norms, read=table)
    net[0].weight.register_hook(lambda grad: holder.written.__setitem__("first", 5.0))
    step = step_of(net, torch.tanh)

    def read(x: Tensor) -> Any:
        return step(x), x * holder.read["first"]

    def change(call: int) -> None:
        norms["first"], table["first"] = 0.0, 1.0
        holder.read = norms if call in (4, 6) else table
        if call in (4, 6):
            norms["first"] = 1.0

    return read, change, lambda: (dict(norms), dict(table))


@program
def hooks_of_all_kinds() -> Program:
    net, kept = network(), []

    class Keeper:
        def __init__(self) -> None:
            self.scale = 2.0

        def hook(self, grad: Tensor) -> Tensor:
            return grad * self.scale

    keeper = Keeper()
    net[0].weight.register_hook(keeper.hook)
    net[0].bias.register_hook(partial(torch.mul, 2.0))
    net[2].weight.register_hook(kept.append)
    net[2].bias.register_post_accumulate_grad_hook(lambda it: kept.append(it.grad.sum()))

    def change(call: int) -> None:
        keeper.scale = 2.0 if call < 4 else 3.0

    return step_of(net, torch.tanh), change, lambda: (gradients(net), list(kept))


@whole
def methods_as_hooks() -> Program:
    net = network()

    class Keeper:
        def __init__(self) -> None:
            self.scale = 2.0

        def hook(self, grad: Tensor) -> Tensor:
            return grad * self.scale

    keeper = Keeper()
    for parameter in net.parameters():
        parameter.register_hook(keeper.hook)
    return step_of(net, torch.tanh), nothing, lambda: gradients(net)


@program
def a_hook_that_counts() -> Program:
    net, counts = network(), {"n": 0}

    def hook(grad: Tensor) -> None:
        counts["n"] += 1

    for parameter in net.parameters():
        parameter.register_hook(hook)
    return step_of(net, torch.tanh), nothing, lambda: (gradients(net), dict(counts))


@program
def steps_behind_each_gradient() -> Program:
    net = network()
    optimizers = {
        it: torch.optim.SGD([it], lr=0.1, momentum=0.9, foreach=False) for it in net.parameters()
    }

    def hook(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def step(x: Tensor) -> Any:
        loss = net(x).pow(2).mean()
        loss.backward()
        return loss.detach(), [it.grad is None for it in net.parameters()]

    def change(call: int) -> None:
        if call == 4:
            for optimizer in optimizers.values():
                optimizer.param_groups[0]["lr"] = 0.01

    return step, change, lambda: [it.detach().clone() for it in net.parameters()]


@program
def hooks_that_count_elsewhere() -> Program:
    """A cell, an attribute, a set and a list, which are asked behind it."""
    net, holder, seen, listed, count = network(), SimpleNamespace(n=0), set(), [], 0

    def hook(grad: Tensor) -> None:
        nonlocal count
        count += 1
        holder.n += 1
        seen.add(f"call {count}")
        listed.append(count)

    net[0].weight.register_hook(hook)
    step = step_of(net, torch.tanh)

    def asks(x: Tensor) -> Any:
        before = count, holder.n
        step(x)
        return before, count, holder.n, "call 3" in seen, len(listed), listed[-1]

    return asks, nothing, lambda: (count, holder.n, sorted(seen), list(listed))


@program
def hooks_that_count_a_cell() -> Program:
    net, count = network(), 0

    def hook(grad: Tensor) -> None:
        nonlocal count
        count += 1

    net[0].weight.register_hook(hook)
    step = step_of(net, torch.tanh)

    def asks(x: Tensor) -> Any:
        x = x * count
        step(x)
        return x, count

    return asks, nothing, lambda: count


@program
def a_set_that_hooks_fill() -> Program:
    net, seen, calls = network(), {"other"}, [0]

    def hook(grad: Tensor) -> None:
        seen.add("weight")

    net[0].weight.register_hook(hook)
    step = step_of(net, torch.tanh)

    def asks(x: Tensor) -> Any:
        step(x)
        return x * 2 if "weight" in seen else x

    def change(call: int) -> None:
        calls[0] = call
        seen.discard("weight")

    return asks, change, lambda: sorted(seen)


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


@whole
def hooks_of_objects() -> Program:
    net = network()

    class Clip:
        def __init__(self, most: float) -> None:
            self.most = most

        def __call__(self, grad: Tensor) -> Tensor:
            return grad.clamp(-self.most, self.most)

    def scaled(by: float, grad: Tensor, plus: float = 0.0) -> Tensor:
        return grad * by + plus

    net[0].weight.register_hook(Clip(0.05))
    net[0].bias.register_hook(partial(scaled, 2.0, plus=0.1))
    return step_of(net, torch.tanh), nothing, lambda: gradients(net)


@program
def hooks_of_objects_change() -> Program:
    net = network()

    class Clip:
        def __init__(self, most: float) -> None:
            self.most = most

        def __call__(self, grad: Tensor) -> Tensor:
            return grad.clamp(-self.most, self.most)

    clip = Clip(0.05)
    net[0].weight.register_hook(clip)

    def change(call: int) -> None:
        if call == 3:
            clip.most = 0.01
        if call == 5:
            Clip.__call__ = lambda self, grad: grad * 3  # type: ignore[method-assign]

    return step_of(net, torch.tanh), change, lambda: gradients(net)


@program
def a_hook_that_raises() -> Program:
    net = network()

    def hook(grad: Tensor) -> None:
        if SETTINGS.factor > 3:
            raise ValueError("stop")

    net[2].weight.register_hook(hook)

    def change(call: int) -> None:
        SETTINGS.factor = 4.0 if call in (3, 5) else 1.0

    def step(x: Tensor) -> Any:
        for parameter in net.parameters():
            parameter.grad = None
        try:
            net(x).sum().backward()
        except ValueError as error:
            return str(error)
        return "fine"

    return step, change, list


def run(make: Callable[[], Program], wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    torch.manual_seed(0)
    step, change, watched = make()
    wrapped, seen = wrap(step), []
    for call in range(8):
        change(call)
        try:
            result = wrapped(rows(call, 5, 3))
        except Exception as error:
            result = (type(error).__name__, str(error))
        seen.append((copied(result), copied(watched()), torch.is_grad_enabled()))
    return seen, wrapped


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_are_plain_ones(name: str) -> None:
    expected, _ = run(PROGRAMS[name], lambda step: step)
    found, compiled = run(PROGRAMS[name], lambda step: api.compile(step, backend="eager"))
    for call, (left, right) in enumerate(zip(expected, found, strict=True)):
        assert same(left, right), f"call {call}: {right}, not {left}"
    if name in WHOLE and not api.PLAIN:
        assert api.breaks(compiled) == 0, api.reason(compiled)
        assert api.hits(compiled) >= len(expected) - 2, api.reason(compiled)  # type: ignore[operator]
