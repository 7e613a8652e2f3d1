"""Other backends get the parts of a graph between the steps that are Stator's own: decisions, reads of data, texts,
backward passes, what an optimizer does with numbers."""

from __future__ import annotations

import copy
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stator

from .results import copied, same

Program = Callable[[], tuple[Callable[..., Any], list[tuple[Any, ...]]]]

PROGRAMS: dict[str, Program] = {}
# How many parts the traces of a program have together, where all calls are traces without a break.
PARTS: dict[str, int | None] = {}


@pytest.fixture(autouse=True)
def replayed() -> Iterator[None]:
    with stator.config.patch(skip_unprofitable=False):
        yield


class Backend:
    """Runs a graph as it is, and counts."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.asked = 0
        self.called = 0
        self.operations: list[list[str]] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.asked += 1
        self.operations.append([str(node.target) for node in graph.graph.nodes])
        if self.how == "aot_eager":
            from torch._dynamo.backends.registry import lookup_backend

            run = lookup_backend("aot_eager")(graph, inputs)
        elif self.how == "interpreter":
            run = torch.fx.Interpreter(graph).run
        else:
            run = graph.forward

        def code(*given: Any) -> Any:
            self.called += 1
            return run(*given)

        return code


def program(parts: int | None = None) -> Callable[[Program], Program]:
    def add(make: Program) -> Program:
        PROGRAMS[make.__name__] = make
        PARTS[make.__name__] = parts
        return make

    return add


def rows(seed: int, *sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def inputs(count: int = 6) -> list[tuple[Any, ...]]:
    return [(rows(seed, 4, 3),) for seed in range(count)]


def signs(*values: float) -> list[tuple[Any, ...]]:
    return [(torch.full((3,), value),) for value in values]


@program(parts=3)
def decided() -> Any:
    def fn(x: Tensor) -> Tensor:
        y = (x * 2).sin() + x
        if y.sum() > 0:
            return (y * y).exp() + 1
        return (y - 1).cos() * 3

    return fn, signs(1.0, 1.0, 1.0, -1.0, -1.0, -1.0, 1.0, -1.0)


@program(parts=2)
def carried() -> Any:
    def fn(x: Tensor) -> tuple[Tensor, float]:
        y = (x.sin() + 1) * x
        scale = y.sum().item() / 2
        return (y.cos() + 1).relu().sum(), scale + 1

    return fn, signs(1.0, 2.0, 3.0, -1.0)


@program(parts=2)
def given_a_number() -> Any:
    """The operation that is given it is a step of the replay's."""

    def fn(x: Tensor) -> Tensor:
        y = (x.sin() + 1) * x
        z = y * y.sum().item()
        return (z.cos() + 1).relu()

    return fn, signs(1.0, 2.0, 3.0, -1.0)


@program()
def an_integer() -> Any:
    """A size is decided as a whole: what backends make of a part is for that."""

    def fn(x: Tensor, count: Tensor) -> Tensor:
        y = (x.sin() + 1) * x
        n = int(count)
        return ((y[:n] * 2).exp() + 1).sum() + n

    return fn, [
        (rows(seed, 5), torch.tensor(count)) for seed, count in enumerate((2, 2, 2, 3, 3, 1, 2))
    ]


@program(parts=2)
def texts() -> Any:
    def fn(x: Tensor, lines: list[str]) -> Tensor:
        y = (x.sin() + 1) * x
        lines.append(f"mean {y.mean().item():.3f}, {y.sum():.2f}")
        return (y.cos() + 1).relu()

    return fn, [(x, []) for (x,) in signs(1.0, 2.0, 3.0)]


@program()
def loop() -> Any:
    def fn(x: Tensor) -> tuple[Tensor, int]:
        steps = 0
        while x.norm() > 1:
            x = (x * 0.5).sin() * 1.5 - 0.01
            steps += 1
        return x, steps

    return fn, signs(3.0, 3.0, 5.0, 0.1, 2.0, 9.0)


@program()
def iterated() -> Any:
    layers = [torch.full((3,), size) for size in (1.0, -0.5, 2.0)]

    def fn(x: Tensor) -> Tensor:
        for layer in layers:
            x = (x + layer).sin() * 2 + x
            if x.norm() > 3:
                x = x / x.norm()
        return x

    return fn, signs(0.1, 0.1, 1.0, 3.0, -2.0, 0.5, 0.1)


@program()
def writes() -> Any:
    """To an input, to what an earlier part has made, and through a view of it."""

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        x.mul_(2).add_(1).cos_()
        y = x * 3
        if y.sum() > 100:
            return y, x
        y.view(-1)[1:].sub_(x[1:])
        y.sin_().add_(1)
        if y.sum() > 50:
            return x, y
        x.copy_(y * 2 + 1)
        return x, y.sin()

    return fn, signs(1.0, 1.0, 2.0, 3.0)


@program()
def shared_memory() -> Any:
    """What parts are given shares memory in another way than before."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        total = ((x + y) * 2).sin()
        if total.sum() > 1000:
            return total
        x.add_(1).mul_(y).sub_(0.5)
        return x + y + total

    base = rows(0, 6)
    apart = [(base[:3].clone(), base[3:].clone())] * 3
    same_memory = [(it, it) for it in (rows(1, 3), rows(2, 3), rows(3, 3))]
    return fn, [*apart, *same_memory, *apart]


@program()
def modes() -> Any:
    def fn(x: Tensor) -> tuple[Tensor, bool]:
        w = x.clone().requires_grad_()
        with torch.no_grad():
            y = (w * 2).sin() + 1
            if y.sum() > 0:
                y = (y * w).cos() + w
        z = (w * y).sin() + 1
        return z.detach(), z.requires_grad

    return fn, signs(1.0, 1.0, -5.0, 2.0)


@program()
def random_numbers() -> Any:
    def fn(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        y = F.dropout(x, 0.5, True) * 2 + 1
        if y.sum() > 0:
            y = F.dropout(y, 0.5, True).sin() * 2 + torch.rand(3)
        return y

    return fn, signs(1.0, 1.0, 1.0, -4.0)


@program()
def in_order() -> Any:
    """What was written before an exit is, and what stands behind it isn't."""

    def fn(x: Tensor, log: list[Any]) -> Any:
        y = (x.sin() + 1) * x
        log.append("begun")
        if y.sum() > 0:
            log.append(y.sum().item())
            y = (y * 2).exp() + 1
        log.append("ended")
        return y

    return fn, [(x, []) for (x,) in signs(1.0, 1.0, 1.0, -1.0, 2.0, -1.0, -1.0)]


@program()
def caught() -> Any:
    def fn(x: Tensor) -> Any:
        try:
            y = (x.sin() + 1) * x
            if y.sum() < 0:
                raise ValueError(f"negative {y.sum().item():.2f}")
            return (y * 2).exp() + 1
        except ValueError as error:
            return str(error)

    return fn, signs(1.0, 1.0, -0.5, -0.5, -0.5, 1.0)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 1))


def state(net: nn.Module) -> list[Any]:
    found: list[Any] = []
    for parameter in net.parameters():
        found.append(parameter.detach().clone())
        found.append(None if parameter.grad is None else parameter.grad.clone())
    return found


@program()
def gone_back() -> Any:
    net = network()

    def fn(x: Tensor) -> Any:
        net.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        return loss.detach(), state(net)

    return fn, inputs()


@program()
def activated() -> Any:
    """A part with two results, and activations that are told to write to nothing."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), nn.SiLU())

    def fn(x: Tensor) -> Any:
        net.zero_grad()
        left, right = net(x), net(x + 1)
        if x.sum() > 0:
            left = left * 2
        loss = (left.sin() * right.cos()).sum()
        loss.backward()
        return loss.detach(), state(net)

    return fn, inputs()


@program()
def added_up() -> Any:
    """Gradients that are there are added to."""
    net = network()

    def fn(x: Tensor) -> Any:
        net(x).pow(2).mean().backward()
        return state(net)

    return fn, inputs()


@program()
def descent() -> Any:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def fn(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.item(), state(net)

    return fn, inputs()


@program()
def adam() -> Any:
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

    def fn(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss.item(), norm, state(net)

    return fn, inputs()


@program()
def adam_foreach() -> Any:
    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, foreach=True)

    def fn(x: Tensor) -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), state(net)

    return fn, inputs()


@program()
def one_of_two() -> Any:
    """What the loss wasn't computed from gets no gradient, not zeros."""
    torch.manual_seed(0)
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    nn.init.constant_(first.weight, 0.3)
    nn.init.constant_(second.weight, 0.2)

    def fn(x: Tensor) -> Any:
        first.zero_grad()
        second.zero_grad()
        a, b = first(x).sin(), second(x).cos()
        total, other = a.pow(2).mean(), b.pow(2).mean()
        total.backward()
        return other.detach(), state(first), state(second)

    return fn, inputs()


@program()
def in_the_middle() -> Any:
    """Gradients of tensors in the middle are asked for when all has been computed."""
    w = torch.full((3,), 0.5, requires_grad=True)

    def fn(x: Tensor) -> Any:
        h = (x * w).sin() + 1
        k = (h * h).cos() * 2
        loss = k.pow(2).sum() + h.sum()
        (gradient,) = torch.autograd.grad(loss, h, retain_graph=False)
        return gradient, loss.detach()

    return fn, inputs()


@program()
def retained() -> Any:
    w = torch.full((3,), 0.5, requires_grad=True)

    def fn(x: Tensor) -> Any:
        w.grad = None
        h = (x * w).sin() + 1
        loss = ((h * h).cos() * 2).sum()
        h.retain_grad()
        loss.backward()
        return h.grad, w.grad.clone()

    return fn, inputs()


@program()
def twice() -> Any:
    """A graph of gradients that is kept."""
    w = torch.full((3,), 0.5, requires_grad=True)

    def fn(x: Tensor) -> Any:
        w.grad = None
        loss = ((x * w).sin() + 1).pow(3).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return w.grad.clone()

    return fn, inputs()


@program()
def penalty() -> Any:
    """Gradients of gradients."""
    w = torch.full((3,), 0.5, requires_grad=True)

    def fn(x: Tensor) -> Any:
        w.grad = None
        loss = ((x * w).sin() + 1).pow(3).sum()
        (gradient,) = torch.autograd.grad(loss, w, create_graph=True)
        (loss + gradient.pow(2).sum()).backward()
        return w.grad.clone()

    return fn, inputs()


@program()
def generated() -> Any:
    """What is made in a part, and gone back from in another."""
    torch.manual_seed(0)
    maker = nn.Linear(3, 3)
    judge = nn.Linear(3, 1)
    for it in (maker, judge):
        nn.init.constant_(it.weight, 0.25)
    optimizers = [torch.optim.SGD(it.parameters(), lr=0.1) for it in (maker, judge)]

    def fn(x: Tensor) -> Any:
        fake = maker(x).tanh() * 2
        optimizers[1].zero_grad()
        of_judge = F.softplus(judge(fake.detach())).mean() + F.softplus(-judge(x)).mean()
        of_judge.backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        of_maker = F.softplus(-judge(fake)).mean()
        of_maker.backward()
        optimizers[0].step()
        return of_judge.item(), of_maker.item(), state(maker), state(judge)

    return fn, inputs()


def results(make: Program, wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    function, calls = make()
    called = wrap(function)
    memo: dict[int, Any] = {}
    found = []
    for arguments in copy.deepcopy(calls, memo):
        try:
            result = called(*arguments)
        except Exception as error:
            lines = [entry.lineno for entry in traceback.extract_tb(error.__traceback__)[1:]]
            result = type(error).__name__, str(error), lines
        found.append((copied(result), copied(arguments)))
    return found, called


HOW = ["interpreter", "forward", "aot_eager"]


# `retain_grad` breaks the graph, with "eager", too: what AOTAutograd gives before that has no gradients of its own.
ELSEWHERE = {("retained", "aot_eager")}


@pytest.mark.parametrize(
    ("name", "how"),
    [(name, how) for name in PROGRAMS for how in HOW if (name, how) not in ELSEWHERE],
)
def test_calls_give_what_plain_ones_do(name: str, how: str) -> None:
    expected, _ = results(PROGRAMS[name], lambda it: it)
    backend = Backend(how)
    found, compiled = results(PROGRAMS[name], lambda it: stator.compile(it, backend=backend))
    for call, (left, right) in enumerate(zip(expected, found, strict=True)):
        assert close(left, right, how), f"call {call}: {right}, not {left}"
    stats = stator.stats(compiled)
    assert stats.hits, stats.reason
    assert all("decide" not in operation for it in backend.operations for operation in it)
    if (parts := PARTS[name]) is not None:
        assert (stats.breaks, stats.native) == (0, 0), stats.reason
        assert backend.asked == parts


def close(left: Any, right: Any, how: str) -> bool:
    """Bit by bit; what AOTAutograd makes of gradients may add them up in another order."""
    if how != "aot_eager":
        return same(left, right)
    if isinstance(left, Tensor):
        return isinstance(right, Tensor) and torch.allclose(left, right, rtol=1e-5, atol=1e-6)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(
            close(a, b, how) for a, b in zip(left, right, strict=True)
        )
    if isinstance(left, float):
        return left == pytest.approx(right, rel=1e-5, abs=1e-6)
    return same(left, right)


def halves(x: Tensor) -> Tensor:
    y = (x * 2).sin() + 1
    if y.sum() > 0:
        y = (y * y).exp() + 2
    return y


def test_what_a_backend_gets() -> None:
    """At the second call, in the order of the program, each part once; what others read is what a part gives."""
    backend = Backend("forward")
    compiled = stator.compile(halves, backend=backend)
    x = torch.ones(3)
    compiled(x)
    assert (backend.asked, backend.called) == (0, 0)
    compiled(x)
    assert (backend.asked, backend.called) == (2, 2)
    compiled(x)
    assert (backend.asked, backend.called) == (2, 4)
    first, second = backend.operations
    assert first == [
        "l_x_",
        "<built-in function mul>",
        "sin",
        "<built-in function add>",
        "sum",
        "<built-in function gt>",
        "output",
    ]
    assert second == ["y", "<built-in function mul>", "exp", "<built-in function add>", "output"]
    assert stator.stats(compiled).tiers == ["compiled"]


def test_short_runs_are_replayed() -> None:
    backend = Backend("forward")

    def fn(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x.view(3, 1) + 1
        return x

    compiled = stator.compile(fn, backend=backend)
    for value in (1.0, 1.0, 1.0, 2.0):
        x = torch.full((3,), value)
        assert same(compiled(x), fn(x))
    assert backend.asked == 0
    assert (stator.stats(compiled).breaks, stator.stats(compiled).native) == (0, 0)


def test_there_is_no_break_any_more() -> None:
    compiled = stator.compile(halves, backend=Backend("forward"), fullgraph=True)
    for value in (1.0, 1.0, 1.0):
        x = torch.full((3,), value)
        assert same(compiled(x), halves(x))
    assert stator.stats(compiled).breaks == 0


def test_what_a_function_reads_is_guarded() -> None:
    class Settings:
        scale = 2.0

    def fn(x: Tensor) -> Tensor:
        y = (x * Settings.scale).sin() + 1
        if y.sum() > 0:
            y = (y * Settings.scale).exp() + 2
        return y

    compiled = stator.compile(fn, backend=Backend("aot_eager"))
    for scale in (2.0, 2.0, 2.0, 0.5, 0.5, 0.5, 2.0):
        Settings.scale = scale
        assert same(compiled(torch.ones(3)), fn(torch.ones(3)))


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_part_that_cannot_be_compiled(fails_at: int) -> None:
    """It's replayed from then on, and one warning says so; the other part is compiled."""
    asked: list[int] = []

    def odd(graph: Any, inputs: Any) -> Any:
        asked.append(len(inputs))
        if len(asked) == fails_at:
            raise RuntimeError("no compiler here")
        return graph.forward

    def fn(x: Tensor, log: list[float]) -> Tensor:
        x.add_(1)
        y = (x * 2).sin() + 1
        log.append(y.sum().item())
        return (y * y).exp() + 2

    compiled = stator.compile(fn, backend=odd)
    plain, found = (torch.ones(3), []), (torch.ones(3), [])
    with stator.config.patch(strict=False), warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for _ in range(5):
            assert same(fn(*plain), compiled(*found))
            assert same(plain, found)
    assert len(asked) == 2
    told = [it for it in given if issubclass(it.category, stator.BackendFailedWarning)]
    assert len(told) == 1
    assert "odd failed on a graph of" in str(told[0].message)
    assert stator.stats(compiled).breaks == 0
    assert stator.stats(compiled).native == 0


def test_a_part_that_cannot_be_compiled_is_an_error_where_it_is_to_be() -> None:
    def odd(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no compiler here")

    def fn(x: Tensor) -> Tensor:
        x.add_(1)
        if x.sum() > 1e6:
            return x
        return halves(x)

    compiled = stator.compile(fn, backend=odd)
    x = torch.ones(3)
    compiled(x)
    with stator.config.patch(strict=True), pytest.raises(RuntimeError, match="no compiler here"):
        compiled(x)


@pytest.mark.parametrize("wrong", ["raises", "too few", "no tensor"])
def test_code_that_fails(wrong: str) -> None:
    """The call ends as plain Python ends it, and the code isn't used any more."""
    calls: list[int] = []

    def odd(graph: Any, inputs: Any) -> Any:
        def code(*given: Any) -> Any:
            calls.append(1)
            if len(calls) != 4:
                return graph.forward(*given)
            if wrong == "raises":
                raise RuntimeError("the code's own")
            return () if wrong == "too few" else ["text"] * 2

        return code

    def fn(x: Tensor, log: list[float]) -> Tensor:
        y = (x * 2).sin() + 1
        log.append(y.sum().item())
        return (y * y).exp() + 2

    compiled = stator.compile(fn, backend=odd)
    plain, found = (torch.ones(3), []), (torch.ones(3), [])
    with stator.config.patch(strict=False), warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for _ in range(6):
            assert same(fn(*plain), compiled(*found))
            assert same(plain, found)
    told = [str(it.message) for it in given if issubclass(it.category, stator.BackendFailedWarning)]
    assert len(told) == 1
    assert stator.stats(compiled).native == 1


def test_where_nothing_can_be_taken_back_the_codes_error_is_raised() -> None:
    """An optimizer's step was done: the function can't run again."""
    calls: list[int] = []

    def odd(graph: Any, inputs: Any) -> Any:
        def code(*given: Any) -> Any:
            calls.append(1)
            if len(calls) == 4:
                raise RuntimeError("the code's own")
            return graph.forward(*given)

        return code

    def fn(x: Tensor, w: Tensor) -> Tensor:
        w.add_((x * 2).sin())
        if w.sum() > 1e6:
            return w
        return (w * w).exp() + 2

    compiled = stator.compile(fn, backend=odd)
    x, w = torch.ones(3), torch.zeros(3)
    compiled(x, w)
    compiled(x, w)
    before = w.clone()
    with stator.config.patch(strict=False):
        try:
            compiled(x, w)
        except RuntimeError as error:
            assert str(error) == "the code's own"
    # Once, whatever the way.
    assert torch.equal(w, before + (x * 2).sin())


def test_an_exit_in_the_middle_stands_in_the_programs_frames() -> None:
    class Refused(Exception):
        pass

    def check(y: Tensor, log: list[str]) -> None:
        log.append("checked")
        if y.sum() < 0:
            log.append("refused")
            raise Refused(f"{y.sum().item():.1f}")

    def fn(x: Tensor, log: list[str]) -> Tensor:
        y = (x * 2) + x * x.abs()
        check(y, log)
        log.append("passed")
        return (y * y).exp() + 2

    def lines(function: Any, x: Tensor, log: list[str]) -> Any:
        try:
            return copied(function(x, log))
        except Refused as error:
            entries = traceback.extract_tb(error.__traceback__)
            return str(error), [
                (it.name, it.lineno) for it in entries if it.name in ("fn", "check")
            ]

    backend = Backend("forward")
    compiled = stator.compile(fn, backend=backend)
    for value in (1.0, 1.0, -1.0, -1.0, -1.0, 1.0):
        plain: list[str] = []
        found: list[str] = []
        x = torch.full((3,), value)
        assert same(lines(fn, x, plain), lines(compiled, x, found))
        assert plain == found
    assert backend.asked


def test_sizes_that_vary() -> None:
    """Code of the program's own serves all sizes, as of whole graphs; that of PyTorch's compilers is for one call's."""
    backend = Backend("forward")
    for given in (backend, "aot_eager"):
        compiled = stator.compile(halves, backend=given, dynamic=True)
        for size in (3, 3, 5, 7, 5, 2):
            x = torch.linspace(0, 1, size)
            assert same(compiled(x), halves(x))
        assert stator.stats(compiled).breaks == 0
    assert backend.asked == 2


def test_gradients_behind_the_call() -> None:
    """As with whole graphs: what the function gives can be gone back from."""
    for how in HOW:
        compiled = stator.compile(halves, backend=Backend(how))
        for _ in range(3):
            left, right = (torch.ones(3, requires_grad=True) for _ in range(2))
            halves(left).sum().backward()
            compiled(right).sum().backward()
            assert torch.allclose(left.grad, right.grad)  # type: ignore[arg-type]


def test_an_activation_that_writes_to_nothing_is_in_a_part() -> None:
    fn, arguments = PROGRAMS["activated"]()
    backend = Backend("graph")
    compiled = stator.compile(fn, backend=backend)
    for _ in range(3):
        compiled(*arguments[0])
    of_activations = [part for part in backend.operations if any("relu" in it for it in part)]
    assert len(of_activations) == 1 and sum("silu" in it for it in of_activations[0]) == 2


@pytest.mark.slow
def test_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part has a library of its own, or two where gradients are computed through it."""
    # As users have it, with the processor's vector extensions (tests/conftest.py).
    monkeypatch.delenv("TORCHINDUCTOR_VEC_ISA_OK", raising=False)
    made = []

    def wrap(function: Any) -> Any:
        compiled = stator.compile(function, backend="inductor")
        made.append(compiled)

        def call(*arguments: Any) -> Any:
            assert stator.wait(timeout=600)
            return compiled(*arguments)

        return call

    make = PROGRAMS["descent"]
    expected, _ = results(make, lambda it: it)
    found, _ = results(make, wrap)
    for left, right in zip(expected, found, strict=True):
        assert close(left, right, "aot_eager")
    assert "compiled" in stator.stats(made[0]).tiers, stator.stats(made[0]).tiers
