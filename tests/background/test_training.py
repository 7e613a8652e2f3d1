"""Graphs through which gradients are computed, compiled beside the program: two libraries, tied.

Most tests run the two graphs in Python where a library would run: only what is around is tried.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
import json
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

import stator
from background.slow import LONG
from stator import stats
from stator._fx import beside, compiler, process, sent, training
from stator._fx.aliases import take_views
from stator._fx.libraries import HopelessError, Libraries, look, seen_of
from stator._fx.modes import Modes
from stator._fx.tied import Pair, code_of_pair
from stator.errors import BackendError

PATIENT = 600
"""Seconds that a real compilation may take on a busy machine."""


class Library:
    """Runs a graph as a library does, and takes for granted what a library does."""

    made: list[Library] = []

    def __init__(self, module: torch.fx.GraphModule, examples: Any) -> None:
        self.module = module
        self.looks = [(value.shape, value.stride(), value.dtype) for value in examples]
        self.ran = 0

    def run(self, inputs: list[Tensor]) -> list[Tensor]:
        self.ran += 1
        assert [(value.shape, value.stride(), value.dtype) for value in inputs] == self.looks
        with torch.no_grad():
            return [value.clone() for value in self.module(*inputs)]


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Library, Library]]:
    """Instead of a process, the two graphs; those that were made."""
    pairs: list[tuple[Library, Library]] = []
    # The first thread that enters it owns what PyTorch uses ever after.
    with FakeTensorMode():
        pass

    def answers(
        module: Any, looks: Any, sizes: Any, modes: Modes, *others: Any, **said: Any
    ) -> Any:
        *_, is_training = others
        assert is_training
        libraries: list[Library] = []

        def compile(graph: Any, examples: Any, **settings: Any) -> str:
            libraries.append(Library(graph, examples))
            return str(len(libraries) - 1)

        monkeypatch.setattr(training, "compile_fx_aot", compile)
        with modes.applied(), torch._inductor.config.patch(fallback_random=True):
            pair = training.compile_pair(copy.deepcopy(module), looks, {})
        assert pair is not None
        # As it comes from the process.
        pair = Pair(**json.loads(json.dumps(dataclasses.asdict(pair))))
        pairs.append((libraries[0], libraries[1]))
        return code_of_pair(pair, libraries, module, modes, looks, sizes)

    monkeypatch.setattr(beside, "compile_in_process", answers)
    return pairs


def leaf(*shape: int, start: float = -1) -> Tensor:
    numbers = torch.linspace(start, 1, torch.Size(shape).numel())
    return numbers.view(shape).clone().requires_grad_()


def gradients(outputs: Any, inputs: list[Tensor]) -> list[Tensor | None]:
    """Gradients for tangents that differ, some of them not dense."""
    roots = [value for value in outputs if value.requires_grad]
    tangents = []
    for root in roots:
        numbers = torch.linspace(0, 1, root.numel()).view(root.shape[::-1])
        tangents.append(numbers.permute([*reversed(range(root.dim()))]))
    wanted = [value for value in inputs if value.requires_grad]
    return list(torch.autograd.grad(roots, wanted, tangents, allow_unused=True))


def linear(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    h = F.gelu(F.linear(x, w, b))
    return h, F.layer_norm(h, (h.shape[-1],)).sum(1), (h.detach() > 0)


def views(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    left, right = (x @ w.t()).chunk(2, dim=1)
    return (left.T @ right * b[:2].exp()[0], w.view(-1).sin().sum())


def partly(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        mask = (x > 0).float()
    return x * mask, (w * 2).sum(), x.detach() * 3


def unused(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return (x * b[0] + 1, x.exp())


def drops(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return (F.dropout(F.linear(x, w, b), 0.5), F.dropout(x, 0.25).sum())


@pytest.mark.parametrize("function", [linear, views, partly, unused, drops])
@pytest.mark.parametrize("wants", [(True, True, True), (False, True, True), (True, False, False)])
def test_results_and_gradients(
    function: Callable[..., tuple[Tensor, ...]], wants: tuple[bool, ...], in_python: Any
) -> None:
    inputs = [leaf(5, 6), leaf(4, 6), leaf(4)]
    for value, does in zip(inputs, wants, strict=True):
        value.requires_grad_(does)
    compiled = stator.compile(function, backend="inductor")
    for call in range(4):
        torch.manual_seed(call)
        found = compiled(*inputs)
        state = torch.get_rng_state()
        torch.manual_seed(call)
        expected = function(*inputs)
        torch.testing.assert_close(found, expected)
        assert torch.equal(state, torch.get_rng_state())
        assert [value.requires_grad for value in found] == [
            value.requires_grad for value in expected
        ]
        if any(value.requires_grad for value in expected):
            torch.testing.assert_close(gradients(found, inputs), gradients(expected, inputs))
        assert stator.wait(timeout=LONG)
    assert stats(compiled).tiers == ["compiled"], stats(compiled).why
    assert "differ from the replay's" in str(stats(compiled).why[0])
    [(forward, backward)] = in_python
    # One run more compares.
    assert forward.ran == 4 and backward.ran == 4


def weighted(x: Tensor, w: Tensor, b: Tensor, rate: float) -> tuple[Tensor, ...]:
    h = F.linear(x, w, b)
    blended = h.sin() * rate + h.cos() * (1 - rate)
    return blended, ((h + b * rate) ** 2).mean() / rate, F.leaky_relu(x * rate, rate)


def addressed(x: Tensor, w: Tensor, b: Tensor, rate: float) -> tuple[Tensor, ...]:
    """What autograd computes of a number is saved where eager saves that number."""
    return (torch.addcdiv(x, w.sum(0), x.exp() + 2, value=rate), F.softplus(b * 4, beta=rate))


@pytest.mark.parametrize("function", [weighted, addressed])
def test_floats(function: Callable[..., tuple[Tensor, ...]], in_python: Any) -> None:
    """One code serves all: no call waits for a loss that is weighted otherwise in each step."""
    inputs = [leaf(5, 6), leaf(4, 6), leaf(4)]
    compiled = stator.compile(function, backend="inductor", tier="compiled")
    for rate in (0.5, 0.25, 0.125, -3.5, 1e-3, 0.75, 40.0, 0.3):
        found, expected = compiled(*inputs, rate), function(*inputs, rate)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(gradients(found, inputs), gradients(expected, inputs))
        slopes = [
            torch.autograd.grad(call(*inputs, rate)[0].sum(), inputs[:1], create_graph=True)[0]
            for call in (compiled, function)
        ]
        torch.testing.assert_close(*(gradients([slope], inputs[:2]) for slope in slopes))
        assert stator.wait(timeout=LONG)
    assert stats(compiled).breaks == 0
    # That for the first number isn't asked for again.
    assert set(stats(compiled).tiers) == {"compiled", "made"}, stats(compiled).why
    assert len(in_python) == 2 and in_python[1][0].ran >= 6


def swapped(function: Callable[..., Any], *inputs: Tensor) -> Any:
    """The function, by code."""
    compiled = stator.compile(function, backend="inductor")
    compiled(*inputs)
    assert stator.wait(timeout=LONG)
    compiled(*inputs)
    assert stats(compiled).tiers == ["compiled"], stats(compiled).why
    return compiled


@pytest.mark.parametrize("function", [linear, drops])
def test_gradients_of_gradients(function: Callable[..., Any], in_python: Any) -> None:
    inputs = [leaf(5, 6), leaf(4, 6), leaf(4)]
    compiled = swapped(function, *inputs)

    def penalty(call: Callable[..., Any]) -> list[Tensor | None]:
        torch.manual_seed(3)
        first, *_ = call(*inputs)
        [slope] = torch.autograd.grad(first.square().sum(), inputs[:1], create_graph=True)
        torch.rand(1)
        state = torch.get_rng_state()
        found = torch.autograd.grad(slope.square().sum(), inputs, allow_unused=True)
        assert torch.equal(state, torch.get_rng_state())
        return list(found)

    torch.testing.assert_close(penalty(compiled), penalty(function))


def test_gradients_of_gradients_of_what_was_written(in_python: Any) -> None:
    inputs = [leaf(5, 6), leaf(4, 6), leaf(4)]
    compiled = swapped(linear, *inputs)
    first, *_ = compiled(*inputs)
    with torch.no_grad():
        inputs[2].add_(1)
    with pytest.raises(RuntimeError, match="written to before|modified by an inplace operation"):
        torch.autograd.grad(first.sum(), inputs[:1], create_graph=True)


def test_what_is_saved_must_stay_as_it_is(in_python: Any) -> None:
    x, w = leaf(5, 6), leaf(4, 6)
    compiled = swapped(lambda x, w: (x @ w.t()).sin(), x, w)
    result = compiled(x, w)
    with torch.no_grad():
        # It is saved as a view of it.
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()
    assert x.grad is None


def test_what_isnt_saved_may_be_written(in_python: Any) -> None:
    def adds(x: Tensor, w: Tensor) -> Tensor:
        return (x + w) * 2

    x, w = leaf(6), leaf(6)
    compiled = swapped(adds, x, w)
    result = compiled(x, w)
    with torch.no_grad():
        w.add_(1)
    result.sum().backward()
    assert torch.equal(x.grad, torch.full((6,), 2.0)) and torch.equal(w.grad, x.grad)


def test_gradients_that_differ_arent_used(in_python: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Library, inputs: list[Tensor]) -> list[Tensor]:
        outputs = right(self, inputs)
        is_backward = self is in_python[0][1]
        return [value * 2 for value in outputs] if is_backward else outputs

    right = Library.run
    monkeypatch.setattr(Library, "run", wrong)
    x, w = leaf(5, 6), leaf(4, 6)
    compiled = stator.compile(lambda x, w: (x @ w.t()).sin(), backend="inductor")
    compiled(x, w)
    assert stator.wait(timeout=LONG)
    with pytest.warns(stator.BackendDiffersWarning, match="the gradient of input 0 differs"):
        found = compiled(x, w)
    found.sum().backward()
    [expected] = torch.autograd.grad((x @ w.t()).sin().sum(), [x])
    torch.testing.assert_close(x.grad, expected)
    assert stats(compiled).tiers == ["differs"]


def heads(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    h = (x * 2).tanh()
    return h @ w.t(), h.sum(0) * b[0], (w.detach() * b.sum()).sum()


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 2)])
def test_inputs_of_other_outputs_get_no_gradients(used: tuple[int, ...], in_python: Any) -> None:
    """An optimizer decays a weight whose gradient is zero, and leaves one without alone."""
    inputs = [leaf(5, 6), leaf(4, 6), leaf(4)]
    compiled = swapped(heads, *inputs)
    for create_graph in (False, True):
        found, expected = (
            torch.autograd.grad(
                sum(call(*inputs)[at].sum() for at in used),
                inputs,
                allow_unused=True,
                create_graph=create_graph,
            )
            for call in (compiled, heads)
        )
        assert [value is None for value in found] == [value is None for value in expected]
        torch.testing.assert_close(found, expected)


def test_gradients_of_outputs_that_nobody_uses_spoil_none(in_python: Any) -> None:
    def roots(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (x * y).sin(), x.sqrt()

    inputs = [torch.zeros(3, requires_grad=True), leaf(3)]
    compiled = swapped(roots, *(torch.ones(3, requires_grad=True) for _ in range(2)))
    for used in ((0,), (1,), (0, 1)):
        found, expected = (
            torch.autograd.grad(
                sum(call(*inputs)[at].sum() for at in used), inputs, allow_unused=True
            )
            for call in (compiled, roots)
        )
        torch.testing.assert_close(found, expected, equal_nan=True)
    assert len(in_python) == 1
    # What the graph was given must still be what it was.
    first, _ = compiled(*inputs)
    with torch.no_grad():
        inputs[1].add_(1)
    with pytest.raises(RuntimeError, match="written to before|modified by an inplace operation"):
        first.sum().backward()


def test_inputs_arent_kept_behind_the_gradients(in_python: Any) -> None:
    w = leaf(4, 6)
    compiled = swapped(lambda x, w: (x @ w.t()).sin().sum(), torch.ones(5, 6), w)
    for keeps in (False, True):
        x = torch.ones(5, 6)
        known = weakref.ref(x)
        result = compiled(x, w)
        result.backward(retain_graph=keeps)
        del x
        gc.collect()
        assert (known() is not None) == keeps
        if keeps:
            [slope] = torch.autograd.grad(result, [w], create_graph=True)
            assert torch.equal(slope, w.grad / 2) and slope.requires_grad
    assert in_python[0][0].ran == 4


def normalizes() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Sigmoid())


class Counts(nn.Module):
    """Writes integers, reads what it writes, and keeps a mean without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 4)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        self.steps += 1
        self.mean.lerp_(y.detach().mean(0), 0.25)
        return (y - self.mean) / self.steps


@pytest.mark.parametrize("make", [normalizes, Counts])
@pytest.mark.parametrize("dynamic", [None, True])
def test_buffers_that_are_written(
    make: Callable[[], nn.Module], dynamic: bool | None, in_python: Any
) -> None:
    torch.manual_seed(0)
    made = make()
    model, plain = copy.deepcopy(made), copy.deepcopy(made)
    compiled = stator.compile(model, backend="inductor", dynamic=dynamic)
    with warnings.catch_warnings():
        warnings.simplefilter("error", stator.StatorWarning)
        for call in range(5):
            x = torch.randn(7, 6)
            x.requires_grad_(call > 3)
            for each, network in ((compiled, model), (plain, plain)):
                network.zero_grad()
                each(x).square().sum().backward()
            wanted = [value.grad for value in plain.parameters()]
            torch.testing.assert_close([value.grad for value in model.parameters()], wanted)
            torch.testing.assert_close(list(model.buffers()), list(plain.buffers()))
            versions = [value._version for value in model.buffers()]
            assert versions == [value._version for value in plain.buffers()]
            assert stator.wait(timeout=LONG)
    assert stats(compiled).tiers[-1] == "compiled", stats(compiled).why
    assert "differ from the replay's" in str(stats(compiled).why[-1])
    assert in_python[0][0].ran > 2


def test_a_write_that_pytorch_doesnt_count(in_python: Any) -> None:
    """Eager's BatchNorm saves its running statistics, and may write to them all the same."""
    model = normalizes()
    x = torch.linspace(-1, 1, 30).view(5, 6)
    model.eval()
    compiled = swapped(model.train(), x)
    # Of another size: the replay serves, and saves them.
    replayed = compiled(torch.cat([x, x]))
    compiled(x).sum().backward()
    replayed.sum().backward()
    assert stats(compiled).tiers.count("compiled") == 1
    assert stator.wait(timeout=LONG)


def test_gradients_of_gradients_where_buffers_are_written(in_python: Any) -> None:
    model = Counts()
    x = leaf(5, 6)
    compiled = swapped(model, x)
    plain = copy.deepcopy(model)

    def penalty(call: Callable[..., Any]) -> list[Tensor]:
        [slope] = torch.autograd.grad(call(x).exp().sum(), [x], create_graph=True)
        return list(torch.autograd.grad(slope.square().sum(), [x, *model.parameters()]))

    compared = [penalty(compiled), list(model.buffers())]
    model.load_state_dict(plain.state_dict())
    torch.testing.assert_close(compared, [penalty(model), list(model.buffers())])


def test_sizes_that_vary(in_python: Any) -> None:
    """Code for each size that the graph meets; the replay serves until it is there."""

    def scaled(x: Tensor, w: Tensor, n: int) -> Tensor:
        return (x @ w.t()).tanh() * n / x.shape[0]

    w = leaf(4, 6)
    compiled = stator.compile(scaled, backend="inductor", dynamic=True)
    for rows, n in [(5, 3), (5, 3), (7, 3), (7, 3), (5, 9), (5, 9), (7, 3), (5, 3)]:
        x = leaf(rows, 6)
        found, expected = compiled(x, w, n), scaled(x, w, n)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(gradients([found], [x, w]), gradients([expected], [x, w]))
        assert stator.wait(timeout=LONG)
    assert stats(compiled).tiers == ["compiled"], stats(compiled).why
    # Each was compared once, and has served twice or once.
    assert [forward.ran for forward, _ in in_python] == [3, 3, 2]


def test_operators_that_fake_kernels_know_nothing_of() -> None:
    """What an LSTM saves for its gradients has no size for PyTorch's compilers."""
    found: list[tuple[Any, Any]] = []

    def take(module: Any, inputs: Any) -> Any:
        found.append((module, [look(seen_of(value)) for value in inputs]))
        return module.forward

    model = nn.LSTM(3, 4)
    stator.compile(model, backend=take, when="first_call")(torch.ones(5, 2, 3))
    ((module, looks),) = found
    with pytest.raises(HopelessError, match="can't compute gradients through aten.mk"):
        training.compile_pair(copy.deepcopy(module), looks, {})
    assert compiler._hopeless(HopelessError("no")) == "no"


def test_views_of_inputs_are_no_results_of_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients go through them as in eager, also where they are the only ones."""
    made: list[Library] = []

    def answers(order: process.Order, packed: bytes, key: str | None) -> Any:
        def compile(graph: Any, examples: Any, **settings: Any) -> str:
            made.append(Library(graph, examples))
            return "none"

        monkeypatch.setattr(training, "compile_fx_aot", compile)
        module = sent.unpack(packed)
        views = take_views(module, order.looks)
        with order.modes.applied():
            pair = training.compile_pair(module, order.looks, {})
        assert pair is not None
        pair = dataclasses.replace(pair, views=views)
        return pair, Libraries(pair, made[-2:])

    def function(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return w.t(), (x @ w.t()).tanh(), x[1:], x.detach().view(-1), x.exp()

    with FakeTensorMode():
        pass
    monkeypatch.setattr(process, "_stored_or_made", answers)
    compiled = stator.compile(function, backend="inductor")
    for _ in range(4):
        (x, w), (y, v) = ([leaf(5, 3), leaf(4, 3)] for _ in range(2))
        for used in (slice(None), slice(1), slice(1, 2), slice(2, 3)):
            expected, found = function(x, w), compiled(y, v)
            torch.testing.assert_close(found, expected)
            assert [it.requires_grad for it in found] == [it.requires_grad for it in expected]
            assert found[0].data_ptr() == v.data_ptr() and found[0]._is_view()
            assert found[3].data_ptr() == y.data_ptr()
            torch.testing.assert_close(
                gradients(found[used], [y, v]), gradients(expected[used], [x, w])
            )
        assert stator.wait(timeout=LONG)
    assert stats(compiled).tiers == ["compiled"], stats(compiled).why
    assert len(made) == 2


class Tagger(nn.Module):
    """What stands before an LSTM and behind it is worth compiling."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2)
        self.head = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))

    def forward(self, x: Tensor) -> Tensor:
        scaled = ((x - x.mean()) / x.std()).tanh()
        return F.log_softmax(self.head(self.lstm(scaled)[0]), -1)


def test_what_inductor_refuses_is_a_step_between_parts(
    in_python: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = Tagger()
    compiled = stator.compile(model, backend="inductor")
    weights = list(model.parameters())
    asked: list[Any] = []

    def compile_ahead(module: Any, looks: Any, *others: Any, **said: Any) -> Any:
        asked.append(module)
        return module.forward

    trained = beside.compile_in_process

    def either(*order: Any, **said: Any) -> Any:
        return (trained if order[6] else compile_ahead)(*order, **said)

    monkeypatch.setattr(beside, "compile_in_process", either)
    for call in range(6):
        x = torch.randn(5, 2, 3)
        found, expected = compiled(x), model(x)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(gradients([found], weights), gradients([expected], weights))
        assert call == 0 or stator.wait(timeout=LONG)
    assert stats(compiled).tiers == ["compiled"], stats(compiled).why
    # Before it no gradient is computed.
    assert (len(asked), len(in_python)) == (1, 1)


def test_one_number_type_that_pytorchs_compilers_know() -> None:
    """`aot_eager` has what stands around it."""
    weight, bias = torch.randn(2, 8, 8), torch.randn(8)
    ends = torch.tensor([2, 4], dtype=torch.int32)

    def experts(x: Tensor) -> Tensor:
        x = (x * 2 + bias).relu()
        return (torch._grouped_mm(x, weight, offs=ends) + bias).tanh().exp()

    with torch.no_grad():
        try:
            experts(torch.randn(4, 8))
        except RuntimeError:
            pytest.skip("this PyTorch has no such kernel")
        compiled = stator.compile(experts, backend="aot_eager")
        for _ in range(4):
            x = torch.randn(4, 8)
            torch.testing.assert_close(compiled(x), experts(x))
    assert stats(compiled).tiers == ["compiled"], stats(compiled).why


def test_a_module_with_an_optimizer(in_python: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))
    plain = copy.deepcopy(model)
    compiled = stator.compile(model, backend="inductor")
    with warnings.catch_warnings():
        warnings.simplefilter("error", stator.StatorWarning)
        for call in range(5):
            losses = []
            for each, network in ((compiled, model), (plain, plain)):
                torch.manual_seed(call)
                optimizer = torch.optim.SGD(network.parameters(), 0.1)
                loss = each(torch.randn(4, 6)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss)
            torch.testing.assert_close(*losses)
            assert stator.wait(timeout=LONG)
    torch.testing.assert_close(list(model.parameters()), list(plain.parameters()))
    assert stats(compiled).tiers == ["compiled"]


def test_a_cache_that_is_made_of_nothing(in_python: Any) -> None:
    """Inductor decomposes `cat` with one empty tensor into a copy, which has other strides."""

    def step(x: Tensor, w: Tensor) -> tuple[float, Tensor]:
        keys = (x @ w).view(2, 3, 2, 4).transpose(1, 2)
        keys = torch.cat([torch.tensor([]), keys], dim=-2)
        loss = F.cross_entropy((keys @ keys.mT).flatten(0, 2), torch.zeros(12, dtype=torch.long))
        loss.backward()
        return loss.item(), keys

    x, w, own = leaf(2, 3, 8), leaf(8, 8), leaf(8, 8)
    compiled = stator.compile(step, backend="inductor")
    with warnings.catch_warnings():
        warnings.simplefilter("error", stator.StatorWarning)
        for _ in range(6):
            (loss, keys), (expected, others) = compiled(x, own), step(x, w)
            assert loss == pytest.approx(expected)
            assert keys.stride() == others.stride() and keys.is_contiguous()
            torch.testing.assert_close(keys, others)
            torch.testing.assert_close(own.grad, w.grad)
            assert stator.wait(timeout=LONG)
    assert "compiled" in stats(compiled).tiers
    assert in_python[-1][0].ran > 2


def aliases(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    return y, y.view(-1)


def is_its_input(x: Tensor) -> tuple[Tensor, ...]:
    return x * 2, x


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (aliases, "gradients are computed through it, and results share memory"),
        (is_its_input, "gradients are computed through it, and results share memory"),
    ],
)
def test_what_waits(
    function: Callable[..., Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "compile_fx_aot", lambda *args, **settings: "library")
    module = torch.fx.symbolic_trace(function)
    with pytest.raises(BackendError, match=why):
        training.compile_pair(module, [leaf(2, 3).to("meta")], {})


def test_no_result_asks_for_gradients() -> None:
    module = torch.fx.symbolic_trace(lambda x: ((x * 2).detach(),))
    look = leaf(2, 3).detach().to("meta").requires_grad_()
    assert training.compile_pair(module, [look], {}) is None


def test_libraries_of_inductors(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A real compilation."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("STATOR_CACHE", str(tmp_path / "store"))
    options = {"aot_inductor.compile_wrapper_opt_level": "O0"}
    inputs = [leaf(5, 6), leaf(4, 6), leaf(4)]

    def mixed(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, ...]:
        h = F.batch_norm(F.linear(x, w, b), mean, var, training=True)
        h = F.dropout(F.gelu(h), 0.5)
        return h, h.sum(0), b.exp()

    for _ in range(2):  # The second one finds what the first one has stored.
        compiled = stator.compile(mixed, backend="inductor", options=options)
        statistics = [torch.zeros(4), torch.ones(4)]
        others = [value.clone() for value in statistics]
        for call in range(4):
            torch.manual_seed(call)
            found = compiled(*inputs, *statistics)
            torch.manual_seed(call)
            expected = mixed(*inputs, *others)
            torch.testing.assert_close((found, statistics), (expected, others))
            torch.testing.assert_close(gradients(found, inputs), gradients(expected, inputs))
            assert stator.wait(timeout=PATIENT)
        assert stats(compiled).tiers == ["compiled"], stats(compiled).why
