"""What a graph can't hold is replayed, and the reason is told."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from stator import stats
from stator._cudagraphs import captures
from stator.errors import OptionError

from .stand_in import StandIn
from .test_captures import CALLS, chain, compiled, fresh

LIBRARY = torch.library.Library("stator_graphs", "DEF")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")


def check(fn: Callable[..., Any], *args: Any, gradients: bool = False) -> str | None:
    """Calls it plain and compiled, on the same arguments; why it isn't captured."""
    ours = compiled(fn)
    with torch.set_grad_enabled(gradients):
        for _ in range(CALLS):
            state = torch.get_rng_state()
            expected = fn(*args)
            torch.set_rng_state(state)
            torch.testing.assert_close(ours(*args), expected, rtol=0, atol=0)
    assert stats(ours).tiers == ["replay"] and stats(ours).hits >= CALLS - 2
    return stats(ours).why[0]


def test_where_there_is_no_cuda() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is")
    stator.reset()
    assert check(chain, fresh(3), fresh(3)) == "it has a tensor on cpu"


def test_short_runs(device: StandIn) -> None:
    why = check(lambda x: x.sin() + 1, fresh(3))
    assert why == "it has no three operations in a row that take tensors and give tensors"
    assert device.captures == 0


def test_results_without_gradients(device: StandIn) -> None:
    linear = nn.Linear(3, 3)
    why = check(lambda x: (linear(x).sin() * 2).argmax(0), fresh(3, 3), gradients=True)
    assert why == "gradients are recorded in it, and no result of it has any"


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda x: torch.linalg.inv(torch.eye(3) + (x * 2).sin() + 1), "it reads data"),
        (lambda x: ((x * 2).sin() + 1).exp().nonzero() * 2, None),
        (lambda x: torch.where((x * 2).sin() + 1 > 1)[0] * 2, None),
        (lambda x: ((x * 2).sin() + 1)[x > 0] * 2, None),
        (lambda x: torch.masked.mean((x * 2).sin() + 1, mask=x > 0), None),
        (lambda x: ((x * 2).sin() + 1).view(torch.int32), None),
        (lambda x: (torch.complex(x, x) * 2 + 1).conj(), "conjugated"),
        (lambda x: (x.sin() * 2 + 1).to_sparse(), None),
    ],
)
def test_operations(device: StandIn, fn: Any, why: str | None) -> None:
    ours = compiled(fn)
    with torch.no_grad():
        for _ in range(CALLS):
            x = torch.rand(3)
            mine, plain = ours(x), fn(x)
            if plain.layout is torch.sparse_coo:
                mine, plain = mine.to_dense(), plain.to_dense()
            assert torch.equal(mine, plain)
    if why is not None:
        assert stats(ours).tiers == ["replay"] and why in (stats(ours).why[0] or "")
        assert device.captures == 0 or "conjugated" in why


def test_numbers_of_another_type(device: StandIn) -> None:
    """A view of an input as numbers of another type is the input's memory."""
    why = check(lambda x: (x.view(torch.int32), x.sin().exp() * 2), torch.rand(3))
    assert why == "a result of it is an input's memory, as numbers of another type"


@pytest.mark.parametrize("view", [lambda x: x.conj(), lambda x: x.conj().imag])
def test_conjugated_inputs(device: StandIn, view: Any) -> None:
    why = check(lambda x: ((x * 2).sin() + 1).exp(), view(torch.rand(3) + 1j * torch.rand(3)))
    assert why == "an input of it is a conjugated or negated view"


def test_operations_of_others(device: StandIn) -> None:
    def calls(x: Tensor) -> Any:
        return (torch.ops.stator_graphs.twice(x.sin() * 2 + 1) + 1).exp() * 2

    ours = compiled(calls)
    for _ in range(CALLS):
        x = fresh(3)
        assert torch.equal(ours(x), calls(x))
    # It's a step of the replay.
    assert stats(ours).tiers == ["compiled"] and device.captures >= 1


def test_generators(device: StandIn) -> None:
    source = torch.Generator()

    def draws(x: Tensor) -> Tensor:
        return (x.sin() * 2 + torch.rand(3, generator=source)).exp()

    ours, x = compiled(draws), fresh(3)
    for _ in range(CALLS):
        state = source.get_state()
        expected = draws(x)
        source.set_state(state)
        assert torch.equal(ours(x), expected)
    assert stats(ours).tiers == ["replay"] and device.captures == 0


def test_statistics_of_batches(device: StandIn) -> None:
    """They are written, and no schema says so."""
    norms = [nn.BatchNorm1d(3), nn.BatchNorm1d(3)]

    def runs(norm: nn.Module) -> Any:
        return lambda x: (norm(x.sin() * 2).exp() + 1) * 2

    mine, plain = compiled(runs(norms[0])), runs(norms[1])
    with torch.no_grad():
        for _ in range(CALLS):
            x = fresh(4, 3)
            assert torch.equal(mine(x), plain(x))
            for own, other in zip(norms[0].buffers(), norms[1].buffers(), strict=True):
                assert torch.equal(own, other)
    norms[0].running_mean = norms[0].running_mean.clone()
    with torch.no_grad():
        for _ in range(CALLS):
            x = fresh(4, 3)
            assert torch.equal(mine(x), plain(x))
            assert torch.equal(norms[0].running_mean, norms[1].running_mean)
    assert device.captures >= 1


def test_memory_outside_of_a_view(device: StandIn) -> None:
    def reaches(x: Tensor) -> Tensor:
        return (x.as_strided((2, 3), (3, 1), 0) * 2).sin() + 1

    ours = compiled(reaches)
    for _ in range(CALLS):
        x = fresh(2, 3)[1]
        assert torch.equal(ours(x), reaches(x))
    assert stats(ours).tiers == ["replay"] and device.captures == 0
    for _ in range(CALLS):
        assert torch.equal(ours(x), reaches(x))
        x.add_(1)
    assert stats(ours).tiers == ["compiled"]


def test_while_the_program_captures(device: StandIn) -> None:
    ours, x = compiled(chain), fresh(3)
    for at in range(12):
        device.capturing = at % 3 == 2
        assert torch.equal(ours(x, x), chain(x, x))
        assert stats(ours).tiers == (["replay"] if at < 1 or device.capturing else ["compiled"])
    assert stats(ours).why == ["the program captures a graph of its own"]


def test_streams_of_others(device: StandIn) -> None:
    device.lasting = False
    assert check(chain, fresh(3), fresh(3)) == "the selected stream was made outside of PyTorch"


def test_a_capture_that_fails(device: StandIn) -> None:
    device.error = RuntimeError("operation not permitted when stream is capturing")
    total, plain = fresh(3), torch.empty(3)
    plain.copy_(total)

    def adds(x: Tensor, total: Tensor) -> Tensor:
        total.add_(x.sin() * 2)
        return (total * 2).exp()

    ours = compiled(adds)
    with pytest.warns(
        stator.BackendFailedWarning, match="couldn't be captured as a CUDA graph"
    ) as given:
        for _ in range(CALLS):
            x = fresh(3)
            before = total._version
            assert torch.equal(ours(x, total), adds(x, plain)) and torch.equal(total, plain)
            assert total._version == before + 1
    assert len(given) == 1 and given[0].filename == __file__
    assert stats(ours).tiers == ["replay"]
    assert stats(ours).why == [
        "it couldn't be captured: RuntimeError: operation not permitted when stream is capturing"
    ]


def test_a_capture_that_fails_strictly(device: StandIn) -> None:
    device.error = RuntimeError("no")
    ours, x = compiled(chain), fresh(3)
    ours(x, x), ours(x, x)
    with stator.config.patch(strict=True), pytest.raises(RuntimeError, match="^no$"):
        ours(x, x)


def test_an_interrupted_capture(device: StandIn) -> None:
    ours, x = compiled(chain), fresh(3)
    ours(x, x), ours(x, x)
    device.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        ours(x, x)
    device.error = None
    for _ in range(CALLS):
        assert torch.equal(ours(x, x), chain(x, x))


def test_no_memory_for_results(device: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, x = compiled(chain), fresh(3)
    for _ in range(CALLS):
        ours(x, x)

    def room(self: Any) -> Any:
        raise torch.OutOfMemoryError("none")

    with monkeypatch.context() as patch:
        patch.setattr("stator._cudagraphs.results.Results.room", room)
        assert torch.equal(ours(x, x), chain(x, x))
        assert stats(ours).why == ["there was no memory for its results"]
    assert torch.equal(ours(x, x), chain(x, x)) and stats(ours).tiers == ["compiled"]


def test_another_thread_in_the_graph(device: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, x = compiled(chain), fresh(3)
    with torch.no_grad():
        for _ in range(CALLS):
            ours(x, x)
    entered, left = threading.Event(), threading.Event()
    launch = captures._Capture.launch

    def slow(self: Any, inputs: Any) -> Any:
        entered.set()
        assert left.wait(60)
        return launch(self, inputs)

    monkeypatch.setattr(captures._Capture, "launch", slow)
    found: list[Tensor] = []

    def work() -> None:
        with torch.no_grad():
            found.append(ours(x, x))

    thread = threading.Thread(target=work)
    with torch.no_grad():
        thread.start()
        assert entered.wait(60)
        assert torch.equal(ours(x, x), chain(x, x))
        assert stats(ours).why == ["another thread is in the graph"]
        left.set()
        thread.join()
    assert torch.equal(found[0], chain(x, x))


def test_it_is_told(device: StandIn, caplog: pytest.LogCaptureFixture) -> None:
    stator.set_logs(graph=True)
    try:
        with caplog.at_level(logging.INFO):
            ours, x = compiled(chain), fresh(3)
            for _ in range(CALLS):
                ours(x, fresh(3))
    finally:
        stator.set_logs(graph=False)
    for name in ("stator.background", "stator.graph"):
        said = [
            it.getMessage()
            for it in caplog.records
            if it.name == name and "CUDA" in it.getMessage()
        ]
        (text,) = said
        assert text.startswith("CUDA graphs: a run of 4 operations that begins in chain (")
        assert text.endswith(") is captured: 1 inputs are used where they are, 1 are copied")


def test_options() -> None:
    with pytest.raises(OptionError, match="no mode, no options"):
        compiled(chain, options={"trees": True})
    assert (
        "cudagraphs" in stator.list_backends() and stator.list_backends().count("cudagraphs") == 1
    )


def test_a_backend_of_the_programs_own() -> None:
    """A name that is registered hides Stator's."""

    def mine(graph: Any, inputs: Any) -> Any:
        return graph

    from stator import _backends

    stator.register_backend(mine, name="cudagraphs")
    try:
        ours = compiled(chain)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(3):
                x = fresh(3)
                assert torch.equal(ours(x, x), chain(x, x))
        assert stats(ours).tiers == ["compiled"]
    finally:
        del _backends._registered["cudagraphs"]
