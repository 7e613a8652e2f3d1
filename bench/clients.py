"""The work of many clients: a round of federated averaging beside a plain loop of PyTorch's.

Each client takes some steps of gradient descent on rows of its own, with a classifier of digits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import stator.federated as fl
from bench.classifier import PIXELS, ROWS, SHAPES, first_model, rows_of_clients, train
from stator.federated.execution import LocalContext


def a_round() -> Any:
    """The federated computation: the mean of the clients' models."""
    of_model = fl.StructWithPythonType(
        [(name, fl.TensorType(np.float32, shape)) for name, shape in SHAPES.items()], dict
    )
    of_rows = fl.StructWithPythonType(
        [
            ("images", fl.TensorType(np.float32, [ROWS, PIXELS])),
            ("labels", fl.TensorType(np.int64, [ROWS])),
        ],
        dict,
    )
    local = fl.local_computation(of_model, of_rows)(train)

    def body(model: Any, rows: Any) -> Any:
        return fl.federated_mean(fl.federated_map(local, (fl.federated_broadcast(model), rows)))

    return fl.federated_computation(
        body, fl.FederatedType(of_model, fl.SERVER), fl.FederatedType(of_rows, fl.CLIENTS)
    )


def measure(clients: int = 1000, runs: int = 5) -> dict[str, float]:
    """Seconds for each client: the medians of runs that take turns, in one thread."""
    import torch

    torch.set_num_threads(1)
    model, rows = first_model(), rows_of_clients(clients)
    comp = a_round()

    def loop() -> Any:
        start = {name: torch.from_numpy(array) for name, array in model.items()}
        total = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in SHAPES.items()}
        for row in rows:
            made = train(start, {name: torch.from_numpy(array) for name, array in row.items()})
            for name, tensor in made.items():
                total[name] += tensor
        return {name: tensor / clients for name, tensor in total.items()}

    def in_context(exact: bool) -> Callable[[], Any]:
        def run() -> Any:
            context = LocalContext(threads=1, exact=exact)
            with fl.framework.get_context_stack().install(context):
                return comp(model, rows)

        return run

    systems = {"loop": loop, "exact": in_context(True), "at_once": in_context(False)}
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    results = {}
    for _ in range(runs + 1):
        for name, run in systems.items():
            start = time.perf_counter()
            results[name] = run()
            seconds[name].append((time.perf_counter() - start) / clients)
    for name, result in results.items():
        for key, expected in results["loop"].items():
            close = np.allclose(result[key], expected, rtol=1e-4, atol=1e-6)
            assert close, f"{name}: {key} differs"
    return {name: float(np.median(each[1:])) for name, each in seconds.items()}
