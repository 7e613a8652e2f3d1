"""Code that was made beside the program is compared with the replay before it is used."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from background.slow import LONG, Slow, made
from stator import stats
from stator.errors import BackendError, OptionError

X = torch.arange(6.0).view(2, 3)


def after(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Code that does what the graph does, and then something to its outputs."""

    def make(graph: Any) -> Any:
        return lambda *inputs: change(graph(*inputs))

    return make


def scaled(x: Tensor) -> Tensor:
    return (x * 2 + 1).relu()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda out: (out[0] + 1,), r"output 0 differs in 6 of 6 elements, by up to 1 where"),
        (lambda out: (out[0] * float("nan"),), "output 0 differs in 6 of 6"),
        (lambda out: (out[0].double(),), "dtype of output 0 is torch.float64, and should be"),
        (lambda out: (out[0][:1],), "shape of output 0"),
        (lambda out: (out[0][:1].expand(2, 3),), r"strides of output 0 are \(0, 1\)"),
        (lambda out: (out[0].requires_grad_(),), "requires_grad of output 0 is True"),
    ],
)
def test_code_that_differs(change: Callable[[Any], Any], what: str) -> None:
    compiled, backend = made(scaled, after(change), X)
    with pytest.warns(stator.BackendDiffersWarning, match=what) as given:
        for _ in range(3):
            assert torch.equal(compiled(X), scaled(X))
    assert len(given) == 1 and backend.ran == 1
    assert given[0].filename == __file__ and "begins in scaled" in str(given[0].message)
    assert stats(compiled).tiers == ["differs"]


def test_rounding_is_no_difference() -> None:
    compiled, backend = made(scaled, after(lambda out: (out[0] * (1 + 1e-7),)), X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(X)
    assert stats(compiled).tiers == ["compiled"] and backend.ran == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64, torch.int64])
def test_other_dtypes(dtype: torch.dtype) -> None:
    def doubled(x: Tensor) -> Tensor:
        return x + x

    x = torch.tensor([1, 2, 3]).to(dtype)
    right, _ = made(doubled, after(lambda out: out), x)
    assert torch.equal(right(x), x + x) and stats(right).tiers == ["compiled"]
    wrong, _ = made(doubled, after(lambda out: (out[0] + 1,)), x)
    with pytest.warns(stator.BackendDiffersWarning, match="output 0 differs in 3 of 3 elements"):
        assert torch.equal(wrong(x), x + x)


def test_dtypes_of_eight_bits() -> None:
    def narrowed(x: Tensor) -> Tensor:
        return x.to(torch.float8_e4m3fn)

    x = torch.tensor([1.0, 2.0, 4.0])
    compiled, _ = made(narrowed, after(lambda out: out), x)
    compiled(x)
    assert "differ from the replay's by 0" in str(stats(compiled).why[0])
    wrong, _ = made(narrowed, after(lambda out: ((x * 4).to(out[0].dtype),)), x)
    with pytest.warns(stator.BackendDiffersWarning, match="output 0 differs in 3 of 3 elements"):
        assert torch.equal(wrong(x).float(), x)


def test_infinities_and_nans_are_themselves() -> None:
    x = torch.tensor([float("inf"), float("nan"), -1.0])
    right, _ = made(lambda x: x * 2, after(lambda out: out), x)
    torch.testing.assert_close(right(x), x * 2, rtol=0, atol=0, equal_nan=True)
    assert stats(right).tiers == ["compiled"]


def test_values_are_compared_by_their_size() -> None:
    """A tolerance for values around one says nothing of values that are all much smaller."""
    small = X * 1e-7
    right, _ = made(lambda x: x * 2, after(lambda out: (out[0] * (1 + 1e-7),)), small)
    right(small)
    assert stats(right).tiers == ["compiled"]
    wrong, _ = made(lambda x: x * 2, after(lambda out: (out[0] * 0,)), small)
    with pytest.warns(stator.BackendDiffersWarning, match="output 0 differs in"):
        assert torch.equal(wrong(small), small * 2)


def test_what_cancels_out_may_round() -> None:
    def cancels(x: Tensor) -> Tensor:
        return (x + 1) - 1 - x

    for x in (X, X * 1e-7):
        compiled, _ = made(cancels, after(lambda out: (out[0] + 1e-7,)), x)
        compiled(x)
        assert stats(compiled).tiers == ["compiled"], stats(compiled).why


def test_small_gradients_that_differ() -> None:
    """Those of a mean are as small as the mean is of many."""
    x = X.repeat(1000, 1).requires_grad_()

    def loss(x: Tensor) -> Tensor:
        return x.sin().mean() / 1000

    compiled, _ = made(loss, after(lambda out: (_Wrong.apply(out[0]),)), x)
    with pytest.warns(stator.BackendDiffersWarning, match="the gradient of input 0 differs in"):
        compiled(x)


def test_a_gradient_that_eager_doesnt_compute() -> None:
    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()

    def first(x: Tensor, y: Tensor) -> Tensor:
        return x * y.detach()

    def uses_both(graph: Any) -> Any:
        return lambda x, y: (x * y.detach() + y * 0,)

    compiled, _ = made(first, uses_both, x, y)
    with pytest.warns(stator.BackendDiffersWarning, match=r"input \d is computed by one of th"):
        compiled(x, y).sum().backward()
    assert y.grad is None


def test_gradients_where_buffers_are_written() -> None:
    total = torch.zeros(4)
    weight = torch.ones(4, requires_grad=True)

    def step(x: Tensor) -> Tensor:
        total.add_(x.sum(0))
        return (x * weight).sum()

    for change, tier in ((lambda out: out, "compiled"), (lambda out: (out[0] * 2,), "differs")):
        compiled, _ = made(step, after(change), torch.ones(2, 4))
        total.zero_()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stator.BackendDiffersWarning)
            compiled(torch.ones(2, 4)).backward()
        assert stats(compiled).tiers == [tier] and torch.equal(total, torch.full((4,), 2.0))
        assert torch.equal(weight.grad, torch.full((4,), 2.0))
        weight.grad = None


def test_outputs_that_share_memory() -> None:
    def view(x: Tensor) -> Tensor:
        return x.t()

    compiled, _ = made(view, after(lambda out: (out[0].clone(),)), X)
    with pytest.warns(stator.BackendDiffersWarning, match="output 0 shares memory"):
        assert compiled(X).data_ptr() == X.data_ptr()


class _Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3


def test_gradients_that_differ() -> None:
    x = X.clone().requires_grad_()
    compiled, _ = made(scaled, after(lambda out: (_Wrong.apply(out[0]),)), x)
    with pytest.warns(stator.BackendDiffersWarning, match="the gradient of input 0 differs in"):
        compiled(x).sum().backward()
    expected = X.clone().requires_grad_()
    scaled(expected).sum().backward()
    assert torch.equal(x.grad, expected.grad)


def test_no_hook_runs_and_no_gradient_is_left() -> None:
    x = X.clone().requires_grad_()
    ran: list[int] = []
    x.register_hook(lambda gradient: ran.append(1))
    y = x * 1
    compiled, _ = made(scaled, after(lambda out: out), y)
    result = compiled(y)
    assert stats(compiled).tiers == ["compiled"] and ran == [] and x.grad is None
    result.sum().backward()
    assert ran == [1]


def test_modes_that_the_code_switches_are_put_back() -> None:
    def switches(graph: Any) -> Any:
        def run(*inputs: Any) -> Any:
            torch._C._set_grad_enabled(False)
            return graph(*inputs)

        return run

    compiled, _ = made(scaled, switches, X)
    x = X.clone().requires_grad_()
    assert torch.equal(compiled(X), scaled(X))
    torch._C._set_grad_enabled(True)
    assert compiled(x).requires_grad


def test_a_function_under_no_grad() -> None:
    weight = torch.ones(3, requires_grad=True)

    @torch.no_grad()
    def generates(x: Tensor) -> Tensor:
        return x * weight

    compiled, _ = made(generates, after(lambda out: out), X)
    for _ in range(3):
        found = compiled(X)
        assert torch.equal(found, X) and not found.requires_grad and torch.is_grad_enabled()
    assert stats(compiled).tiers == ["compiled"]


def adds(x: Tensor) -> Tensor:
    return x.add_(1) * 2


def drops(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x, 0.5)


def test_what_is_written_is_compared_on_copies() -> None:
    x, plain = X.clone(), X.clone()
    compiled, backend = made(adds, after(lambda out: out), x)
    found = [compiled(x) for _ in range(3)]
    expected = [adds(plain) for _ in range(4)][1:]
    # Nothing is written twice.
    assert all(map(torch.equal, found, expected)) and torch.equal(x, plain)
    assert x._version == plain._version
    # Once to compare.
    assert backend.ran == 4 and stats(compiled).tiers == ["compiled"]


def test_code_that_writes_otherwise() -> None:
    def writes_more(graph: Any) -> Any:
        def run(x: Tensor) -> Any:
            outputs = graph(x)
            x.add_(1)
            return [value.clone() - 2 for value in outputs]

        return run

    x, plain = X.clone(), X.clone()
    compiled, _ = made(lambda x: x.add_(1).sum() * 2, writes_more, x)
    plain.add_(1)
    with pytest.warns(stator.BackendDiffersWarning, match="input 0, which may be|output 0"):
        for _ in range(2):
            assert torch.equal(compiled(x), plain.add_(1).sum() * 2)
    assert torch.equal(x, plain) and stats(compiled).tiers == ["differs"]

    def writes_alone(graph: Any) -> Any:
        return lambda x: [value.clone() for value in graph(x.clone())]

    compiled, _ = made(lambda x: (x.add_(1) * 0,)[0], writes_alone, x)
    plain.add_(1)
    with pytest.warns(stator.BackendDiffersWarning, match="input 0, which may be written to, dif"):
        compiled(x)
    assert torch.equal(x, plain.add_(1)) and stats(compiled).tiers == ["differs"]


SHARED = torch.zeros(3, 4)
FIRST, SECOND = SHARED[:2], SHARED[1:]


def adds_to_shared(x: Tensor) -> Tensor:
    return FIRST.add_(1).sum() + SECOND.sum() + x.sum()


WEIGHT = torch.ones(3, requires_grad=True) * 2


def adds_for_gradients(x: Tensor) -> Tensor:
    return (x.add_(1) * WEIGHT).sum()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (adds_to_shared, "it writes to its inputs, and these share memory"),
        (adds_for_gradients, "it writes to its inputs, and gradients are computed through these"),
    ],
)
def test_what_isnt_compared(
    function: Callable[[Tensor], Tensor], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    def results() -> list[Any]:
        SHARED.zero_()
        x = X.clone()
        return [*(call(x).detach().clone() for _ in range(3)), x, SHARED.clone()]

    call = function
    expected = results()
    backend = Slow(after(lambda out: out))
    backend.go.set()
    call = stator.compile(function, backend=backend, when="background")
    results()
    assert stator.wait(timeout=LONG)
    ran = backend.ran
    with caplog.at_level(logging.INFO, "stator.background"):
        assert all(map(torch.equal, results(), expected))
    assert backend.ran - ran == 3 and stats(call).tiers == ["compiled"]
    assert f"unchecked, because {why}" in "".join([caplog.text, *map(str, stats(call).why)])


def test_random_numbers_are_drawn_once() -> None:
    torch.manual_seed(0)
    compiled, backend = made(drops, after(lambda out: out), X)
    found = [compiled(X) for _ in range(3)]
    torch.manual_seed(0)
    expected = [drops(X) for _ in range(4)][1:]
    assert all(map(torch.equal, found, expected))
    # Once to compare.
    assert backend.ran == 4 and stats(compiled).tiers == ["compiled"]


def test_other_random_numbers_are_a_difference() -> None:
    def draws_before(graph: Any) -> Any:
        return lambda *inputs: (torch.rand(1), graph(*inputs))[1]

    torch.manual_seed(0)
    compiled, backend = made(drops, draws_before, X)
    with pytest.warns(stator.BackendDiffersWarning, match="output 0 differs"):
        found = [compiled(X) for _ in range(3)]
    torch.manual_seed(0)
    expected = [drops(X) for _ in range(4)][1:]
    assert all(map(torch.equal, found, expected))
    assert backend.ran == 1 and stats(compiled).tiers == ["differs"]


def test_outputs_that_share_memory_with_each_other() -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y, y.t()

    compiled, _ = made(both, after(lambda out: (out[0], out[1].clone())), X)
    with pytest.warns(stator.BackendDiffersWarning, match="output 1 shares memory with other out"):
        y, transposed = compiled(X)
    assert y.data_ptr() == transposed.data_ptr()
    right, _ = made(both, after(lambda out: out), X)
    right(X)
    assert stats(right).tiers == ["compiled"]


# Whether it's compared: `verify`.


def test_verify_off(caplog: pytest.LogCaptureFixture) -> None:
    backend = Slow(after(lambda out: (out[0] + 1,)))
    backend.go.set()
    compiled = stator.compile(scaled, backend=backend, when="background", verify="off")
    compiled(X)
    assert stator.wait(timeout=LONG)
    with caplog.at_level(logging.INFO, "stator.background"):
        assert torch.equal(compiled(X), scaled(X) + 1)
    assert backend.ran == 1 and stats(compiled).tiers == ["compiled"]
    assert stats(compiled).why == ["unchecked, because verify='off' says so"]
    assert "unchecked, because verify='off' says so" in caplog.text


@pytest.mark.parametrize(("verify", "tier"), [("first", "differs"), (None, "compiled")])
def test_verify_first_where_a_call_waits(verify: str | None, tier: str) -> None:
    backend = Slow(after(lambda out: (out[0] + 1,)))
    backend.go.set()
    compiled = stator.compile(scaled, backend=backend, when="second_call", verify=verify)
    compiled(X)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for _ in range(2):
            assert torch.equal(compiled(X), scaled(X) + (verify is None))
    assert stats(compiled).tiers == [tier] and len(given) == (verify == "first")


@pytest.mark.parametrize("settings", [{"verify": "always"}, {"verify": True}, {"tier": "replay"}])
def test_what_verify_and_tier_take(settings: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="takes '.*', or None; not "):
        stator.compile(scaled, **settings)


@stator.allow_in_graph
def opaque(x: Tensor) -> Tensor:
    CALLS.append(1)
    return x + 1


CALLS: list[int] = []


def test_code_of_the_programs_own_isnt_called_twice() -> None:
    CALLS.clear()
    compiled, _ = made(lambda x: opaque(x) * 2, after(lambda out: out), X)
    for _ in range(3):
        assert torch.equal(compiled(X), (X + 1) * 2)
    assert len(CALLS) == 4 and stats(compiled).tiers == ["compiled"]


def test_code_that_fails_when_it_is_compared() -> None:
    def fails(graph: Any) -> Any:
        def run(*inputs: Any) -> Any:
            raise RuntimeError("bad code")

        return run

    compiled, backend = made(scaled, fails, X)
    with pytest.warns(stator.BackendFailedWarning, match="failed when it ran.*") as given:
        for _ in range(3):
            assert torch.equal(compiled(X), scaled(X))
    assert len(given) == 1 and "bad code" in str(given[0].message)
    assert backend.ran == 1 and stats(compiled).tiers == ["failed"]


def test_memory_that_runs_out_when_it_is_compared() -> None:
    left = [1]

    def needs_memory(graph: Any) -> Any:
        def run(*inputs: Any) -> Any:
            if left:
                left.pop()
                raise MemoryError
            return graph(*inputs)

        return run

    compiled, _ = made(scaled, needs_memory, X)
    for _ in range(2):
        assert torch.equal(compiled(X), scaled(X))
    assert stats(compiled).tiers == ["compiled"]


def test_a_call_that_raises_is_the_functions() -> None:
    table = torch.arange(4.0)

    def looks_up(index: Tensor) -> Tensor:
        return table[index] * 2

    index = torch.tensor([1, 2])
    compiled, _ = made(looks_up, after(lambda out: out), index)
    with pytest.raises(IndexError):
        compiled(torch.tensor([1, 9]))
    assert torch.equal(compiled(index), looks_up(index))
    assert stats(compiled).tiers == ["compiled"]


# What the code raises later on, whoever has asked for it.


@pytest.mark.parametrize("when", ["second_call", "background"])
def test_code_that_fails_later(when: str) -> None:
    def fails_late(graph: Any) -> Any:
        calls: list[int] = []

        def run(*inputs: Any) -> Any:
            calls.append(1)
            if len(calls) > 3:
                raise RuntimeError("bad luck")
            return graph(*inputs)

        return run

    backend = Slow(fails_late)
    backend.go.set()
    compiled = stator.compile(scaled, backend=backend, when=when)
    compiled(X)
    assert stator.wait(timeout=LONG)
    with pytest.warns(stator.BackendFailedWarning, match="bad luck") as given:
        for _ in range(8):
            assert torch.equal(compiled(X), scaled(X))
    assert len(given) == 1 and backend.ran == 4
    assert stats(compiled).tiers == ["failed"]
    # One call ended natively, and the replay goes on.
    assert stats(compiled).native == 1


@pytest.mark.parametrize("strict", [False, True])
def test_outputs_that_arent_the_graphs(strict: bool) -> None:
    compiled = stator.compile(scaled, backend=lambda graph, inputs: lambda *inputs: [])
    compiled(X)
    with stator.config.patch(strict=strict):
        if strict:
            with pytest.raises(BackendError, match="gave back a list of 0"):
                compiled(X)
        else:
            with pytest.warns(stator.BackendFailedWarning, match="gave back a list of 0"):
                assert torch.equal(compiled(X), scaled(X))
    assert torch.equal(compiled(X), scaled(X))


def test_code_that_fails_behind_a_graph_break() -> None:
    def broken(x: Tensor) -> Tensor:
        y = x * 2
        stator.graph_break()
        return y + 1

    def fails(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            if any("add" in str(node.target) for node in graph.graph.nodes):
                raise RuntimeError("bad luck")
            return graph(*args)

        return run

    compiled = stator.compile(broken, backend=fails)
    with pytest.warns(stator.BackendFailedWarning, match="bad luck") as given:
        for _ in range(5):
            assert torch.equal(compiled(X), broken(X))
    assert len(given) == 1 and sorted(stats(compiled).tiers) == ["compiled", "failed"]


def test_what_was_written_isnt_written_twice() -> None:
    """The code fails behind a write that nothing has saved: the error is raised."""

    def fails(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            graph(*args)
            raise RuntimeError("bad luck")

        return run

    def adds(x: Tensor) -> None:
        x.add_(1)

    compiled = stator.compile(adds, backend=fails)
    x = torch.zeros(2)
    for _ in range(4):
        try:
            compiled(x)
        except RuntimeError as error:
            assert "bad luck" in str(error)
    # Each call has written once, or was taken back and ran natively.
    assert x.tolist() == [4.0, 4.0]


def test_what_the_function_raises_too_is_its_own() -> None:
    table = torch.arange(4.0)

    def looks_up(index: Tensor) -> Tensor:
        return table[index] * 2

    compiled = stator.compile(looks_up, backend="fx")
    for _ in range(2):
        compiled(torch.tensor([1, 2]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(IndexError):
            compiled(torch.tensor([1, 9]))
    assert stats(compiled).tiers == ["compiled"]
