"""`backward()` and `torch.autograd.grad` in traces: gradients, what reads them, and what stands in their way."""

from __future__ import annotations

import contextlib
import copy
import gc
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn
from torch.nn import functional as F

from .results import agree, same

# What a program is: a function, and the arguments of its calls. Each is made anew, so that the plain and the compiled one
# begin with the same state.
Program = tuple[Callable[..., Any], list[tuple[Any, ...]]]

PROGRAMS: dict[str, Callable[[], Program]] = {}
# Those whose calls are traces without a break; the same from the second call on.
WHOLE: set[str] = set()
LATER: set[str] = set()


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__] = make
    return make


def whole(make: Callable[[], Program]) -> Callable[[], Program]:
    WHOLE.add(make.__name__)
    return program(make)


def from_the_second_call(make: Callable[[], Program]) -> Callable[[], Program]:
    """The first call makes what the others find: an optimizer's state."""
    LATER.add(make.__name__)
    return program(make)


def rows(seed: int, *sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 1))


def inputs(count: int = 8) -> list[tuple[Any, ...]]:
    return [(rows(seed, 5, 3),) for seed in range(count)]


def gradients(net: nn.Module) -> list[Tensor | None]:
    return [None if it.grad is None else it.grad.clone() for it in net.parameters()]


@whole
def descent() -> Program:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, inputs()


@from_the_second_call
def with_momentum() -> Program:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)

    def step(x: Tensor) -> tuple[Any, ...]:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        buffers = [optimizer.state[it]["momentum_buffer"].clone() for it in net.parameters()]
        return loss.detach(), buffers

    return step, inputs()


@program
def reloaded() -> Program:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    saved: list[Any] = []

    def step(x: Tensor, reload: bool) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        if reload:
            optimizer.load_state_dict(saved[0])
        return loss.detach()

    def around(x: Tensor, reload: bool) -> Tensor:
        if not saved:
            saved.append(copy.deepcopy(optimizer.state_dict()))
        return step(x, reload)

    return around, [(rows(at, 5, 3), at == 5) for at in range(8)]


@program
def adam() -> Program:
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, inputs()


@whole
def tensors_as_keys() -> Program:
    net = network()
    names = {it: name for name, it in net.named_parameters()}
    seen = dict.fromkeys(net.parameters(), 0)

    def step(x: Tensor) -> tuple[Any, ...]:
        found = [names[it] for it in net.parameters()]
        known = [it in seen for it in net.parameters()]
        return net(x).detach(), found, known

    return step, inputs()


@program
def tensors_as_missing_keys() -> Program:
    seen: dict[Tensor, int] = {}

    def step(x: Tensor) -> tuple[Any, ...]:
        known = x in seen, seen.get(x)
        seen[x] = len(seen)
        return x * 2, known, len(seen)

    return step, inputs()


@whole
def own_descent() -> Program:
    net = network()

    def step(x: Tensor) -> list[Tensor | None]:
        for parameter in net.parameters():
            parameter.grad = None
        (net(x) ** 2).mean().backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= 0.1 * parameter.grad
        return [it.detach().clone() for it in net.parameters()]

    return step, inputs()


@whole
def clipped() -> Program:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.01)

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return loss.detach(), norm

    return step, inputs()


@whole
def returned() -> Program:
    weight = nn.Parameter(rows(1, 3))

    def step(x: Tensor) -> tuple[Any, ...]:
        weight.grad = None
        (x @ weight).sum().backward()
        gradient = weight.grad
        return gradient, gradient is weight.grad, gradient.requires_grad, gradient.is_leaf

    return step, inputs()


@whole
def leaves_of_its_own() -> Program:
    def step(x: Tensor) -> tuple[Any, ...]:
        x = x.clone().requires_grad_()
        before = x.grad
        y = (x.exp() * x).sum()
        y.backward()
        return before, x.grad, x.grad * 2, y.detach()

    return step, inputs()


@whole
def asked_for() -> Program:
    weight = nn.Parameter(rows(1, 3))
    other = nn.Parameter(rows(2, 3))

    def step(x: Tensor) -> tuple[Any, ...]:
        y = (x @ weight).tanh().sum()
        found = torch.autograd.grad(y, (weight, other), allow_unused=True)
        return found, weight.grad

    return step, inputs()


@whole
def penalty() -> Program:
    net = network()

    def step(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        net.zero_grad()
        ((slope.norm(dim=1) - 1) ** 2).mean().backward()
        return torch.stack([it.grad.sum() for it in net.parameters() if it.grad is not None])

    return step, inputs()


@whole
def unused() -> Program:
    net = network()
    spare = nn.Linear(2, 2)

    def step(x: Tensor) -> int:
        everything = [*net.parameters(), *spare.parameters()]
        for parameter in everything:
            parameter.grad = None
        net(x).sum().backward()
        return sum(parameter.grad is None for parameter in everything)

    return step, inputs()


@whole
def tied() -> Program:
    weight = nn.Parameter(rows(1, 3, 3))

    def step(x: Tensor) -> Tensor:
        weight.grad = None
        (x @ weight @ weight).pow(2).sum().backward()
        return weight.grad.clone()

    return step, inputs()


@whole
def of_inputs() -> Program:
    weight, other = nn.Parameter(rows(1, 3)), nn.Parameter(rows(2, 3))

    def step(x: Tensor) -> tuple[Any, ...]:
        weight.grad = other.grad = None
        (x @ (weight * other)).sum().backward(inputs=[weight])
        return weight.grad.clone(), other.grad

    return step, inputs()


@whole
def accumulated() -> Program:
    net = network()

    def step(x: Tensor) -> list[Tensor | None]:
        net(x).sum().backward()
        return gradients(net)

    return step, inputs()


@whole
def kept_gradients() -> Program:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> list[Tensor | None]:
        optimizer.zero_grad(set_to_none=False)
        net(x).sum().backward()
        optimizer.step()
        return gradients(net)

    return step, inputs()


@whole
def twice() -> Program:
    weight = nn.Parameter(rows(1, 3))

    def step(x: Tensor) -> tuple[Any, ...]:
        weight.grad = None
        y = (x @ weight).pow(2).sum()
        y.backward(retain_graph=True)
        first = weight.grad.clone()
        y.backward()
        return first, weight.grad.clone()

    return step, inputs()


@program
def hidden_state() -> Program:
    weight = nn.Parameter(rows(1, 3, 3))
    hidden = [torch.zeros(5, 3)]

    def step(x: Tensor) -> Tensor:
        weight.grad = None
        hidden[0] = (x + hidden[0]) @ weight
        hidden[0].sum().backward(retain_graph=True)
        return weight.grad.clone()

    return step, inputs()


@program
def freed() -> Program:
    weight = nn.Parameter(rows(1, 3, 3))
    hidden = [torch.zeros(5, 3)]

    def step(x: Tensor) -> Tensor:
        weight.grad = None
        hidden[0] = ((x + hidden[0]) @ weight).tanh()
        hidden[0].sum().backward()
        return weight.grad.clone()

    return step, inputs()


@program
def custom() -> Program:
    seen: list[Any] = []

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            seen.append(len(seen))
            return 3 * x**2 * gradient

    def step(x: Tensor) -> tuple[Any, ...]:
        x = x.clone().requires_grad_()
        Cube.apply(x).sum().backward()
        return x.grad, list(seen)

    return step, inputs()


@program
def hooked_module() -> Program:
    net, seen = network(), []
    net[0].register_full_backward_hook(lambda *given: seen.append(len(seen)))

    def step(x: Tensor) -> tuple[Any, ...]:
        net.zero_grad()
        net(x).sum().backward()
        return gradients(net), list(seen)

    return step, inputs()


@program
def not_a_number() -> Program:
    weight = nn.Parameter(rows(1, 3))

    def step(x: Tensor) -> Tensor:
        weight.grad = None
        (x @ weight).backward()
        return weight.grad

    return step, [(rows(1, 5, 3),), (rows(1, 1, 3),), (rows(2, 5, 3),), (rows(3, 1, 3),)]


@program
def written_in_between() -> Program:
    weight = nn.Parameter(rows(1, 3))

    def step(x: Tensor, write: bool) -> Tensor:
        weight.grad = None
        y = (weight * 2).exp()
        z = (x @ y).sum()
        if write:
            y.add_(1)
        z.backward()
        return weight.grad.clone()

    return step, [(rows(at, 5, 3), at % 3 == 2) for at in range(8)]


@program
def handled_behind() -> Program:
    weight = nn.Parameter(rows(1, 3))
    table = rows(2, 4)

    def step(x: Tensor, at: Tensor) -> tuple[Any, ...]:
        weight.grad = None
        (x @ weight).sum().backward()
        try:
            found = table[at] + weight.grad.sum()
        except IndexError as error:
            return str(error)[:20], weight.grad.clone()
        return found, weight.grad.clone()

    return step, [(rows(at, 5, 3), torch.tensor([0, 9 if at in (4, 6) else 3])) for at in range(8)]


@program
def raised_behind() -> Program:
    weight = nn.Parameter(rows(1, 3))
    table = rows(2, 4)

    def step(x: Tensor, at: Tensor) -> Tensor:
        (x @ weight).sum().backward()
        found = table[at] + weight.grad.sum()
        weight.grad = None
        return found

    return step, [(rows(at, 5, 3), torch.tensor([0, 9 if at in (4, 6) else 3])) for at in range(8)]


@program
def with_a_context_variable() -> Program:
    """PyTorch 2.15 gives its engine a copy of the context."""
    net = network()
    level: ContextVar[float] = ContextVar("level", default=0.0)

    def step(x: Tensor, at: float) -> tuple[Any, ...]:
        level.set(at)
        net.zero_grad()
        net(x).sum().backward()
        return gradients(net), level.get()

    return step, [(*it, float(at // 3)) for at, it in enumerate(inputs())]


@program
def sparse() -> Program:
    torch.manual_seed(0)
    table = nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)

    def step(at: Tensor) -> Tensor:
        optimizer.zero_grad()
        table(at).sum().backward()
        optimizer.step()
        return table.weight.detach().clone()

    return step, [(torch.tensor([seed % 5, 1]),) for seed in range(8)]


@program
def frozen() -> Program:
    net = network()
    calls = [0]

    def step(x: Tensor) -> list[Tensor | None]:
        calls[0] += 1
        net[0].requires_grad_(calls[0] < 5)
        for parameter in net.parameters():
            parameter.grad = None
        net(x).sum().backward()
        return gradients(net)

    return step, inputs()


def state_of(function: Any) -> list[Any]:
    """What the function's variables hold that tensors are in."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    parts: list[Any] = []
    for held in cells:
        for tensor in held.parameters() if isinstance(held, nn.Module) else [held]:
            if isinstance(tensor, Tensor):
                parts += [tensor.detach().clone(), tensor.requires_grad]
                parts.append(copy.deepcopy(tensor.grad) if tensor.is_leaf else None)
    return parts


def run(make: Callable[[], Program], wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    """What each call gives, or raises, and leaves behind."""
    function, calls = make()
    called = wrap(function)
    results = []
    for arguments in calls:
        try:
            result: Any = called(*copy.deepcopy(arguments))
        except Exception as error:
            # PyTorch 2.9's aot_eager says behind the message which node it was.
            said = str(error).partition("\n\nWhile executing ")[0]
            result = type(error).__name__, said
        results.append((result, state_of(function)))
    return copy.deepcopy(results), called


# What PyTorch makes of a graph computes gradients in a way of its own.
ELSEWHERE = {"penalty", "written_in_between"}


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "eager") for name in PROGRAMS),
        *((name, "aot_eager") for name in PROGRAMS if name not in ELSEWHERE),
    ],
)
def test_steps_end_as_plain_ones_do(name: str, backend: str) -> None:
    expected, _ = run(PROGRAMS[name], lambda function: function)
    found, compiled = run(PROGRAMS[name], lambda it: api.compile(it, backend=backend))
    agree(expected, found)
    if backend == "eager" and name in WHOLE and not api.PLAIN:
        assert api.breaks(compiled) == 0, api.reason(compiled)
        assert api.hits(compiled), api.reason(compiled)
    if backend == "eager" and name in LATER and not api.PLAIN:
        assert api.hits(compiled) >= len(expected) - 3, api.reason(compiled)  # type: ignore[operator]


def hook(net: nn.Module, log: list[str]) -> None:
    net[0].weight.register_hook(lambda gradient: log.append("hook") or gradient * 2)  # type: ignore[index]


def hook_behind(net: nn.Module, log: list[str]) -> None:
    net[0].weight.register_post_accumulate_grad_hook(lambda it: log.append("post"))  # type: ignore[index]


def hook_module(net: nn.Module, log: list[str]) -> None:
    net[1].register_full_backward_hook(lambda *given: log.append("module"))  # type: ignore[index]


def freeze(net: nn.Module, log: list[str]) -> None:
    net[0].weight.requires_grad_(False)  # type: ignore[index]


def give_gradient(net: nn.Module, log: list[str]) -> None:
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)


@pytest.mark.parametrize("change", [hook, hook_behind, hook_module, freeze, give_gradient])
def test_what_is_changed_between_calls_shows(change: Callable[..., None]) -> None:
    results = []
    for is_compiled in (False, True):
        net, log, told = network(), [], []

        def step(x: Tensor, net: nn.Module = net, log: list[str] = log) -> tuple[Any, ...]:
            before = len(log)
            net(x).sum().backward()
            found = gradients(net)
            for parameter in net.parameters():
                parameter.grad = None
            return found, len(log) - before

        called = api.compile(step, backend="eager") if is_compiled else step
        for call, arguments in enumerate(inputs()):
            if call == 5:
                change(net, log)
            told.append(called(*arguments))
        results.append((told, list(log)))
    assert same(*results), results


@pytest.mark.parametrize("name", ["descent", "written_in_between", "raised_behind"])
def test_nothing_is_left_for_the_threads_that_go_back(name: str) -> None:
    """PyTorch 2.15 keeps a copy of the context for them, and removes it where an exception passes too."""
    function, calls = PROGRAMS[name]()
    compiled = api.compile(function, backend="eager")
    for arguments in calls:
        with contextlib.suppress(IndexError, RuntimeError):
            compiled(*arguments)
        assert not torch._C._is_key_in_tls("context")


def test_keys_are_these_very_tensors() -> None:
    """Another tensor, another value, one less: each shows in the next call."""
    results = []
    for is_compiled in (False, True):
        tensors = [nn.Parameter(rows(seed, 3)) for seed in range(3)]
        table = {tensors[0]: 1.0, tensors[1]: 2.0}

        def look(
            x: Tensor, key: Tensor, table: dict[Tensor, float] = table
        ) -> tuple[Tensor, bool, float | None]:
            return x * table.get(key, 0.5), key in table, table.get(key)

        called = api.compile(look, backend="eager") if is_compiled else look
        told = [called(rows(1, 3), key) for key in (*tensors, *tensors)]
        table[tensors[2]] = 3.0
        told += [called(rows(1, 3), key) for key in tensors]
        del table[tensors[0]]
        table[tensors[1]] = 4.0
        told += [called(rows(1, 3), key) for key in tensors]
        results.append(told)
    assert same(*results)


def test_keys_are_not_kept_alive() -> None:
    net = network()
    table = {it: it.numel() for it in net.parameters()}

    def look(x: Tensor, net: nn.Module, table: dict[Tensor, int]) -> Tensor:
        return net(x) * sum(table[it] for it in net.parameters())

    compiled = api.compile(look, backend="eager")
    for arguments in inputs(3):
        compiled(*arguments, net, table)
    dead = weakref.ref(net[0].weight)
    del net, table
    gc.collect()
    assert dead() is None


def test_loss_is_that_of_the_library() -> None:
    """A loss function and labels, as most training loops have them."""
    results = []
    for is_compiled in (False, True):
        net = network()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

        def step(
            x: Tensor, net: nn.Module = net, optimizer: torch.optim.Optimizer = optimizer
        ) -> Tensor:
            loss = F.smooth_l1_loss(net(x), x.sum(1, keepdim=True))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            return loss

        called = api.compile(step, backend="eager") if is_compiled else step
        results.append([called(*it).detach() for it in inputs()])
    assert same(*results)
