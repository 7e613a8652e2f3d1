"""`torch.autograd.Function`s where no gradient is computed: `forward` is recorded like any function where it does nothing
else, and is one node where it does. With other backends it is a part of their graphs, or a step between these."""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from differential.support import api
from torch import Tensor, nn
from torch.nn import functional as F

import stator

from .results import copied, same
from .within_nodes import CALLS, SETTINGS, Program, Programs, network, nothing, run

PROGRAMS = Programs()
program, whole = PROGRAMS.program, PROGRAMS.whole
# Those whose graphs hold the operations of `forward`, for all backends.
FOLLOWED: set[str] = set()


@pytest.fixture(autouse=True)
def replayed() -> Iterator[None]:
    with stator.config.patch(skip_unprofitable=False):
        yield


def followed(make: Callable[[], Program]) -> Callable[[], Program]:
    FOLLOWED.add(make.__name__)
    return whole(make)


def of(between: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """A call in evaluation."""
    net = network()

    @torch.no_grad()
    def step(x: Tensor) -> Any:
        return between(net(x))

    return step


class Scaled(torch.autograd.Function):
    """As Bloom's GELU: what it keeps is for gradients alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float = 2.0) -> Tensor:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return torch.tanh(x * ctx.scale) * SETTINGS.factor + 1

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


@followed
def scaled() -> Program:
    SETTINGS.factor = 2.0
    return of(Scaled.apply), nothing, lambda: None


@program
def reads_what_changes() -> Program:
    def change(call: int) -> None:
        SETTINGS.factor = 2.0 if call < 4 else 3.0 + call

    return of(Scaled.apply), change, lambda: None


@program
def is_given_what_changes() -> Program:
    given = {"scale": 1.0}

    def change(call: int) -> None:
        given["scale"] = 1.0 if call < 4 else 2.0

    return of(lambda x: Scaled.apply(x, given["scale"])), change, lambda: None


def replaced(**changes: Callable[[type], None]) -> None:
    """Programs in which a function that a class consists of becomes another one."""

    def program_of(name: str, alter: Callable[[type], None]) -> None:
        def make() -> Program:
            class Own(torch.autograd.Function):
                @staticmethod
                def forward(x: Tensor, scale: float = 2.0) -> Tensor:
                    return (x * scale).sin() + 1

                @staticmethod
                def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                    ctx.save_for_backward(output)

                @staticmethod
                def backward(ctx: Any, grad: Tensor) -> Any:
                    return grad, None

            SETTINGS.seen = 0

            def change(call: int) -> None:
                if call == 4:
                    alter(Own)

            return of(lambda x: Own.apply(x, 2.0) * 2), change, lambda: SETTINGS.seen

        make.__name__ = name
        program(make)

    for name, alter in changes.items():
        program_of(name, alter)


def other_forward(x: Tensor, scale: float = 3.0) -> Tensor:
    return (x * scale).cos() - 1


def seen_setup(ctx: Any, inputs: Any, output: Any) -> None:
    SETTINGS.seen += 1


replaced(
    its_forward=lambda cls: setattr(cls, "forward", staticmethod(other_forward)),
    the_code_of_its_forward=lambda cls: setattr(cls.forward, "__code__", other_forward.__code__),
    its_setup=lambda cls: setattr(cls, "setup_context", staticmethod(seen_setup)),
    the_code_of_its_setup=lambda cls: setattr(cls.setup_context, "__code__", seen_setup.__code__),
    its_apply=lambda cls: setattr(cls, "apply", staticmethod(other_forward)),
)


class GivesItsInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@program
def gives_its_input() -> Program:
    def between(x: Tensor) -> Any:
        y = GivesItsInput.apply(x)
        y.add_(1)
        return y is x, y._is_view(), x, y

    return of(between), nothing, lambda: None


class GivesAView(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.t(), (x + 1)[:, 0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0].t()


@program
def gives_views() -> Program:
    def between(x: Tensor) -> Any:
        left, right = GivesAView.apply(x)
        left.mul_(2)
        return x, left, right, left._is_view(), right._is_view()

    return of(between), nothing, lambda: None


class Writes(torch.autograd.Function):
    """It says so, and gives what it has written."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2).add_(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


@program
def writes_its_input() -> Program:
    kept = torch.ones(4)

    def between(x: Tensor) -> Any:
        y = Writes.apply(kept)
        return x + y.sum(), y is kept, kept._version

    return of(between), nothing, lambda: kept


class SaysItWrites(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x + 1

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@program
def says_that_it_writes() -> Program:
    kept = torch.ones(4)

    def between(x: Tensor) -> Any:
        return SaysItWrites.apply(kept), kept._version

    return of(between), nothing, lambda: kept


class WritesItsOwn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y.add_(x).mul_(2)
        y[:, 0] = 1
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@whole
def writes_what_it_has_made() -> Program:
    return of(WritesItsOwn.apply), nothing, lambda: None


class Counts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        SETTINGS.seen += 1
        SETTINGS.log.append(SETTINGS.seen)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@program
def writes_outside() -> Program:
    SETTINGS.seen, SETTINGS.log = 0, []
    return of(Counts.apply), nothing, lambda: (SETTINGS.seen, list(SETTINGS.log))


@program
def what_it_reads_is_written_before() -> Program:
    SETTINGS.factor = 1.0

    def between(x: Tensor) -> Tensor:
        SETTINGS.factor += 0.5
        x = Scaled.apply(x)
        SETTINGS.factor += 0.25
        return x

    return of(between), nothing, lambda: SETTINGS.factor


class KeepsItsContext(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        SETTINGS.context = ctx
        ctx.scale = 3.0
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@program
def keeps_its_context() -> Program:
    def between(x: Tensor) -> Tensor:
        return KeepsItsContext.apply(x) * 3

    return of(between), nothing, lambda: SETTINGS.context.scale


class ComputesWithGradients(torch.autograd.Function):
    """What it gives asks for gradients, until PyTorch cuts it off."""

    weight = nn.Parameter(torch.full((2,), 3.0))

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        with torch.enable_grad():
            return x * ComputesWithGradients.weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@program
def computes_with_gradients() -> Program:
    def between(x: Tensor) -> Any:
        y = ComputesWithGradients.apply(x)
        return y, y.requires_grad, y.grad_fn is None

    return of(between), nothing, lambda: None


class GivesAnothers(torch.autograd.Function):
    held = torch.ones(2)

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return GivesAnothers.held, x + 1

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[1]


@program
def gives_what_is_outside() -> Program:
    def between(x: Tensor) -> Any:
        held, y = GivesAnothers.apply(x)
        return held is GivesAnothers.held, held + y

    def change(call: int) -> None:
        GivesAnothers.held = torch.full((2,), float(call // 3))

    return of(between), change, lambda: None


class GivesSeveral(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: tuple[int, int]) -> Any:
        y = x.exp() * sizes[0]
        return y, None, y, x - sizes[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0], None


@followed
def gives_several() -> Program:
    def between(x: Tensor) -> Any:
        results = GivesSeveral.apply(x, (2, 3))
        first, nothing, second, last = results
        return type(results) is tuple, nothing is None, first is second, first + last, results

    return of(between), nothing, lambda: None


class Nested(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return Scaled.apply(Scaled.apply(x, 0.5) + 1) * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@followed
def one_in_another() -> Program:
    SETTINGS.factor = 2.0
    return of(Nested.apply), nothing, lambda: None


class NestedThatCounts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return Counts.apply(x + 1) * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@program
def one_that_writes_in_another() -> Program:
    SETTINGS.seen, SETTINGS.log = 0, []
    return of(NestedThatCounts.apply), nothing, lambda: (SETTINGS.seen, list(SETTINGS.log))


class CountsInATensor(torch.autograd.Function):
    calls = torch.zeros(())

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        CountsInATensor.calls.add_(1)
        return x * CountsInATensor.calls

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@program
def counts_in_a_tensor() -> Program:
    CountsInATensor.calls = torch.zeros(())

    def between(x: Tensor) -> Any:
        return CountsInATensor.apply(x) * 2

    return of(between), nothing, lambda: CountsInATensor.calls


class TellsAll(torch.autograd.Function):
    """By each of the ways that Python has."""

    way: Callable[[Tensor], Any]

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        TellsAll.way(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@functools.cache
def doubled(number: int) -> int:
    return number * 2


@functools.lru_cache(maxsize=2)
def tripled(number: int) -> int:
    return number * 3


def warns(x: Tensor) -> None:
    warnings.warn(f"of {x.dim()} dimensions", stacklevel=2)


def checkpointed(x: Tensor) -> None:
    SETTINGS.log.append(torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False))


NUMBERS: dict[str, Any] = {}

WAYS: dict[str, Callable[[Tensor], Any]] = {
    "a_list": lambda x: SETTINGS.log.append(x + 1),
    "a_dictionary": lambda x: NUMBERS.update(last=x.sum()),
    "an_iterator": lambda x: SETTINGS.log.append(next(SETTINGS.numbers)),
    "a_cache": lambda x: doubled(x.dim()),
    "a_cache_that_is_full": lambda x: (tripled(x.dim()), tripled(3), tripled(4)),
    "a_warning": warns,
    "a_checkpoint": checkpointed,
    "a_random_number": lambda x: SETTINGS.log.append(random.random()),
    "an_attribute_of_a_tensor": lambda x: setattr(x, "mark", 1),
}


def told(name: str) -> None:
    def make() -> Program:
        SETTINGS.log, SETTINGS.numbers, SETTINGS.seen = [], iter(range(100)), 0
        TellsAll.way = staticmethod(WAYS[name])
        random.seed(0)
        NUMBERS.clear()
        doubled.cache_clear()
        tripled.cache_clear()

        def step(x: Tensor) -> Any:
            with torch.no_grad():
                y = TellsAll.apply(x)
                return y * 2, getattr(x, "mark", 0)

        def watched() -> Any:
            caches = [tuple(it.cache_info()) for it in (doubled, tripled)]
            return copied(SETTINGS.log), dict(NUMBERS), caches, next(SETTINGS.numbers)

        return step, nothing, watched

    make.__name__ = f"tells_{name}"
    program(make)


for way in WAYS:
    told(way)


class Draws(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5) + torch.rand_like(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@whole
def draws() -> Program:
    return of(Draws.apply), nothing, lambda: None


class Decides(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x - 1

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@program
def decides_on_data() -> Program:
    return of(Decides.apply), nothing, lambda: None


class Reads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * x.sum().item()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@program
def reads_data() -> Program:
    return of(Reads.apply), nothing, lambda: None


class Looks(torch.autograd.Function):
    """It raises for what is in its inputs."""

    table = torch.arange(12.0).view(4, 3)

    @staticmethod
    def forward(ctx: Any, index: Tensor) -> Tensor:
        return Looks.table[index] * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        return None


@program
def raises_for_what_is_there() -> Program:
    index, steps = torch.tensor([0, 1]), torch.zeros(())

    def change(call: int) -> None:
        index[1] = 9 if call in (3, 6) else 2

    def between(x: Tensor) -> Any:
        steps.add_(1)
        try:
            return Looks.apply(index).sum() + x.sum()
        except IndexError as error:
            return str(error)

    return of(between), change, lambda: steps


class Asks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        return x * 2 if ctx.needs_input_grad[1] else x * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


@program
def asks_who_wants_gradients() -> Program:
    weight = nn.Parameter(torch.full((2,), 3.0))

    def change(call: int) -> None:
        weight.requires_grad_(call < 4)

    return of(lambda x: Asks.apply(x, weight)), change, lambda: None


@program
def with_gradients_now_and_then() -> Program:
    net = network()
    SETTINGS.factor = 2.0
    grads = {"are_on": False}

    def step(x: Tensor) -> Any:
        with torch.set_grad_enabled(grads["are_on"]):
            y = Scaled.apply(net(x), 0.5)
        if y.requires_grad:
            net.zero_grad()
            y.sum().backward()
            return y.detach(), net[0].weight.grad
        return y

    def change(call: int) -> None:
        grads["are_on"] = call in (2, 3, 6)

    return step, change, lambda: None


@program
def under_inference_mode() -> Program:
    net = network()
    SETTINGS.factor = 2.0

    @torch.inference_mode()
    def step(x: Tensor) -> Any:
        y = Scaled.apply(net(x))
        return y.is_inference(), y.clone()

    return step, nothing, lambda: None


@program
def of_what_asks_for_no_gradient() -> Program:
    """Gradients are on, and nobody asks for one."""
    SETTINGS.factor = 2.0

    def step(x: Tensor) -> Any:
        y = Scaled.apply(x)
        return y.requires_grad, y

    return step, nothing, lambda: None


class Sized(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape = x.shape
        return x.reshape(-1, 2).cumsum(0).view(ctx.shape) / x.shape[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@program
def sizes_that_vary() -> Program:
    rows = {"count": 5}

    def change(call: int) -> None:
        rows["count"] = (5, 5, 4, 3, 5, 2, 4, 3)[call]

    return of(lambda x: Sized.apply(x[: rows["count"]].contiguous())), change, lambda: None


class Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        for row in range(x.shape[0]):
            y = y + x[row] * (row + 1)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@followed
def a_loop() -> Program:
    return of(Whole.apply), nothing, lambda: None


@pytest.mark.parametrize("name", PROGRAMS.all)
def test_calls_give_what_plain_ones_do(name: str) -> None:
    PROGRAMS.check(name)


BACKENDS = ["fx", "aot_eager"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS.all)
def test_other_backends(name: str, backend: str) -> None:
    graphs: list[str] = []

    def seen(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph.code)
        if backend == "fx":
            return graph.forward
        from torch._dynamo.backends.registry import lookup_backend

        return lookup_backend(backend)(graph, inputs)

    if api.PLAIN:
        pytest.skip("nothing is compiled")
    expected, _ = run(PROGRAMS.all[name], lambda step: step)
    found, compiled = run(PROGRAMS.all[name], lambda step: stator.compile(step, backend=seen))
    for call, (left, right) in enumerate(zip(expected, found, strict=True)):
        assert near(left, right), f"call {call}: {right}, not {left}"
    if name in PROGRAMS.are_whole:
        stats = stator.stats(compiled)
        assert (stats.breaks, stats.native) == (0, 0), stats.reason
    if name in FOLLOWED:
        assert len(graphs) == 1
        assert "apply" not in graphs[0]


def near(left: Any, right: Any) -> bool:
    """Equal, but for what compilers round otherwise."""
    if isinstance(left, Tensor) and isinstance(right, Tensor) and left.is_floating_point():
        return left.shape == right.shape and torch.allclose(left, right, rtol=1e-5, atol=1e-6)
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(near, left, right))
    return same(left, right)


@pytest.mark.parametrize("backend", BACKENDS)
def test_training_goes_through_a_step_between_parts(backend: str) -> None:
    """The backend gets what stands before it and behind it; gradients go back through all of it."""
    net, last = network(), nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1), nn.Sigmoid())
    SETTINGS.factor = 2.0

    def forward(x: Tensor) -> Tensor:
        return last(Scaled.apply(net(x), 0.5)).sum()

    def gradients(function: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
        given = [*net.parameters(), *last.parameters()]
        loss = function(x)
        return [loss.detach(), *torch.autograd.grad(loss, given)]

    compiled = stator.compile(forward, backend=backend)
    for call in range(CALLS):
        if call == 4:
            SETTINGS.factor = 3.0
        x = torch.randn(5, 3)
        torch.testing.assert_close(gradients(compiled, x), gradients(forward, x))
    stats = stator.stats(compiled)
    assert (stats.breaks, stats.native) == (0, 0), stats.reason
    assert "compiled" in stats.tiers


def test_going_back_within_the_function_is_a_break() -> None:
    net = network()
    SETTINGS.factor = 2.0

    def step(x: Tensor) -> list[Tensor]:
        net.zero_grad()
        Scaled.apply(net(x), 0.5).sum().backward()
        return [it.grad for it in net.parameters()]

    compiled = stator.compile(step, backend="fx")
    for _ in range(CALLS):
        x = torch.randn(5, 3)
        torch.testing.assert_close(compiled(x), [it.clone() for it in step(x)])
    assert "run_backward" in (stator.stats(compiled).reason or "")


def test_an_export_holds_its_operations() -> None:
    SETTINGS.factor = 2.0
    net = network()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor) -> Tensor:
            return Scaled.apply(self.net(x))

    x = torch.randn(5, 3)
    with torch.no_grad():
        exported = stator.export(Model(), (x,))
        torch.testing.assert_close(exported.module()(x), Model()(x))
