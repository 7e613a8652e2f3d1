"""CUDA graphs: what is called while one is captured goes into it, as plain Python's calls do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn
from torch.nn import functional as F

WARM_UP = 4

Program = Callable[[nn.Module, Tensor], Tensor]


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


def world() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(5)
    model = nn.Linear(4, 2).cuda()
    return model, torch.arange(12.0).reshape(3, 4).cuda()


def outcome(
    program: Program, wrap: Callable[[Program], Program], warm_up: int, on_default: bool
) -> list[Tensor]:
    """Captures a call and replays the graph with other data."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        program(*world())  # kernels are loaded and libraries set up outside of a capture
    torch.cuda.synchronize()
    (model, x), fn = world(), wrap(program)
    with torch.cuda.stream(torch.cuda.default_stream() if on_default else side):
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
    weight = model.get_parameter("weight").detach().cpu()
    return [*found, weight, torch.cuda.get_rng_state(), torch.get_rng_state()]


@pytest.mark.parametrize("where", ["on the default stream", "on another stream"])
@pytest.mark.parametrize("warm_up", [0, WARM_UP])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_captured(fn: Program, warm_up: int, where: str, cuda: str) -> None:
    on_default = where == "on the default stream"
    expected = outcome(fn, lambda fn: fn, warm_up, on_default)
    found = outcome(fn, api.compile, warm_up, on_default)
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


ENDED = """
import sys, torch

def waits(x):
    return x * (2 if (x + 1).sum().item() > 0 else 3)

fn, x = waits, torch.ones(3, device="cuda")
if sys.argv[1] == "compiled":
    import stator
    stator.config.skip_unprofitable = False
    fn = stator.compile(waits)
fn(x), fn(x)
torch.cuda.synchronize()
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        fn(x)
except RuntimeError as error:
    while error is not None:
        print(type(error).__name__, str(error).splitlines()[0])
        error = error.__context__
"""


def test_what_ends_a_capture(cuda: str) -> None:
    """An operation that a graph can't hold raises plain Python's errors. CUDA is no good behind that."""
    said = []
    for kind in ("plain", "plain" if api.PLAIN else "compiled"):
        command = [sys.executable, "-c", ENDED, kind]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and done.stdout, done.stderr
        said.append(done.stdout)
    assert said[0] == said[1]


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
