"""A training step with what breaks most tracers' graphs: backward, the optimizer, a report.

`python -m examples.breaks` trains plain and compiled, compares, and shows the graphs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import stator

STEPS = 31
REPORT_EVERY = 10


@dataclasses.dataclass
class Trained:
    """What came of a training run."""

    losses: list[float]
    parameters: list[Tensor]
    stats: stator.Stats | None
    graphs: list[str]


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, report: bool
) -> Tensor:
    """One step; every now and then it says how far it has come."""
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    if report:
        print(f"loss {loss.item():.4f}")
    return loss


def training(compile: Callable[[Any], Any] | None) -> Trained:
    """Trains a small classifier from the same weights on the same data each time."""
    torch.manual_seed(0)
    layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    function = compile(step) if compile else step
    losses = []
    for number in range(STEPS):
        x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
        loss = function(model, optimizer, x, y, number % REPORT_EVERY == 0)
        losses.append(loss.item())
    parameters = [parameter.detach() for parameter in model.parameters()]
    if compile is None:
        return Trained(losses, parameters, None, [])
    return Trained(losses, parameters, stator.stats(function), function.graph_code())


def main() -> int:
    """The exit status says whether both runs agree."""
    plain = training(None)
    compiled = training(stator.compile)
    equal = plain.losses == compiled.losses and all(
        map(torch.equal, plain.parameters, compiled.parameters)
    )
    stats = compiled.stats
    assert stats is not None
    graphs = [graph for graph in compiled.graphs if "# File" in graph]
    print(graphs[0])
    verdict = "equal to the bit" if equal else "DIFFERENT"
    print(
        f"A training step with backward, optimizer and print: {STEPS} steps, {stats.hits} replayed,"
        f" {stats.traces} traces, {stats.breaks} graph breaks (one graph is shown), {verdict}."
    )
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
