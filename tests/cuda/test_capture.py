"""CUDA graphs: what is called while one is captured goes into it, as plain Python's calls do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn
from torch.nn import functional as F

WARM_UP = 4


def straight(model: nn.Module, x: Tensor) -> Tensor:
    return F.gelu(model(x)) * 2


def makes(model: nn.Module, x: Tensor) -> Tensor:
    return model(x) + torch.ones(2, device=x.device) + torch.arange(2, device=x.device)


def writes(model: nn.Module, x: Tensor) -> Tensor:
    y = model(x)
    with torch.no_grad():
        model.weight.mul_(0.5)
    return y


def under_autocast(model: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
        return model(x)


def draws(model: nn.Module, x: Tensor) -> Tensor:
    return F.dropout(model(x), 0.5) + torch.rand(2, device=x.device)


def asks(model: nn.Module, x: Tensor) -> Tensor:
    return model(x) * (2 if torch.cuda.is_current_stream_capturing() else 3)


def breaks(model: nn.Module, x: Tensor) -> Tensor:
    y = model(x)
    print(end="")
    return y * 2


PROGRAMS = [straight, makes, writes, under_autocast, draws, asks, breaks]


def outcome(fn: Callable[..., Any], warm_up: int, stream: torch.cuda.Stream | None) -> list[Any]:
    """Captures a call and replays the graph with other data."""
    torch.cuda.manual_seed(5)
    torch.manual_seed(5)
    model = nn.Linear(4, 2).cuda()
    x = torch.arange(12.0).reshape(3, 4).cuda()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(x)  # libraries are set up outside of a capture
    with torch.cuda.stream(side if stream is None else stream):
        for _ in range(warm_up):
            fn(model, x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = fn(model, x)
    found = []
    for factor in (1, 2, 3):
        x.copy_(torch.arange(12.0).reshape(3, 4) * factor)
        graph.replay()
        torch.cuda.synchronize()
        found.append(result.detach().cpu().clone())
    # Behind it, calls are as they were before it.
    found += [fn(model, x).detach().cpu() for _ in range(3)]
    found += [model.weight.detach().cpu(), torch.cuda.get_rng_state(), torch.get_rng_state()]
    return found


@pytest.mark.parametrize("where", ["on the default stream", "on another stream"])
@pytest.mark.parametrize("warm_up", [0, WARM_UP])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_captured(fn: Callable[..., Any], warm_up: int, where: str, cuda: str) -> None:
    stream = torch.cuda.default_stream() if where == "on the default stream" else None
    expected = outcome(fn, warm_up, stream)
    found = outcome(api.compile(fn), warm_up, stream)
    assert len(expected) == len(found)
    for at, (plain, ours) in enumerate(zip(expected, found, strict=True)):
        assert torch.equal(plain, ours), f"result {at}"


def test_replayed_into_a_graph(cuda: str) -> None:
    """A trace recorded on a stream like the capture's is replayed in the capture."""
    compiled = api.compile(straight)
    model, x = nn.Linear(4, 2).cuda(), torch.ones(3, 4, device=cuda)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            compiled(model, x)
    torch.cuda.synchronize()
    before = api.hits(compiled)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        compiled(model, x)
    assert api.PLAIN or api.hits(compiled) == before + 1  # type: ignore[operator]


def test_what_ends_a_capture(cuda: str) -> None:
    """An operation that a graph can't hold raises plain Python's error, and the next call is right."""

    def waits(x: Tensor) -> Any:
        return x * (2 if (x + 1).sum().item() > 0 else 3)

    x = torch.ones(3, device=cuda)
    errors = []
    for fn in (waits, api.compile(waits)):
        fn(x), fn(x)
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                fn(x)
        except RuntimeError as error:
            errors.append(type(error))
        torch.cuda.synchronize()
        assert torch.equal(fn(x), x * 2)
    assert len(errors) == 2 and errors[0] is errors[1]


def test_a_training_step(cuda: str) -> None:
    """A whole step of a capturable optimizer, captured: weights are plain Python's."""

    def weights(wrap: Callable[[Any], Any]) -> list[Tensor]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()
        optim = torch.optim.Adam(model.parameters(), 1e-2, capturable=True)
        x = torch.ones(3, 4, device=cuda)

        @wrap
        def step() -> None:
            loss = model(x).pow(2).mean()
            loss.backward()
            optim.step()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                optim.zero_grad(set_to_none=True)
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optim.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            step()
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        return [parameter.detach().cpu() for parameter in model.parameters()]

    for plain, ours in zip(weights(lambda fn: fn), weights(api.compile), strict=True):
        assert torch.equal(plain, ours)
