"""The work of many clients: a round of federated averaging beside a plain loop of PyTorch's.

Each client takes some steps of gradient descent on rows of its own, with a classifier of digits.
"""

from __future__ import annotations

import importlib.util
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import stator.federated as fl
from bench.classifier import PIXELS, ROWS, SHAPES, first_model, rows_of_clients, train
from stator.federated.execution import LocalContext

IN_CHUNKS = "in chunks of Ray's, with one worker"
WANTED = {"one after the other": 20, IN_CHUNKS: 10}
"""How many µs a client may cost beside its operations; otherwise 5."""


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


def own_costs(clients: int = 4000, runs: int = 9) -> dict[str, float]:
    """Seconds that a client costs beside the operations of its program: the least of some runs.

    The program is small: a model and a client's rows give a model, a number and how many rows there
    are, whose weighted mean and sums are taken. Where Ray is installed, its chunks are among it."""
    import torch

    torch.set_num_threads(1)
    of_rows = {"x": fl.TensorType(np.float32, [None, 4]), "y": fl.TensorType(np.int64, [None])}
    of_model = {"w": fl.TensorType(np.float32, [4, 2]), "b": fl.TensorType(np.float32, [2])}

    def small(model: Any, rows: Any) -> Any:
        hit = ((rows["x"] @ model["w"] + model["b"]).argmax(-1) == rows["y"]).float()
        return {"w": model["w"] * hit.mean(), "b": model["b"] * 1}, hit.sum(), len(rows["y"])

    local = fl.local_computation(of_model, of_rows)(small)

    def body(model: Any, rows: Any) -> Any:
        made = fl.federated_map(local, (fl.federated_broadcast(model), rows))
        counts = fl.federated_sum(made[2])
        return fl.federated_mean(made[0], made[2]), fl.federated_sum(made[1]), counts

    comp = fl.federated_computation(
        body, fl.FederatedType(of_model, fl.SERVER), fl.FederatedType(of_rows, fl.CLIENTS)
    )
    drawn = np.random.default_rng(0)
    model = {"w": drawn.normal(size=(4, 2)).astype(np.float32), "b": np.zeros(2, np.float32)}

    def rows_of(sizes: int) -> list[Any]:
        return [
            {
                "x": drawn.normal(size=(3 + at % sizes, 4)).astype(np.float32),
                "y": drawn.integers(0, 2, 3 + at % sizes),
            }
            for at in range(clients)
        ]

    def least(run: Callable[[], Any]) -> float:
        return min(_seconds(run) for _ in range(runs)) / clients

    def spent(rows: list[Any], exact: bool) -> float:
        def run() -> Any:
            with fl.framework.get_context_stack().install(LocalContext(threads=1, exact=exact)):
                return comp(model, rows)

        return least(run)

    equal, ragged = rows_of(1), rows_of(2)
    weights = {name: torch.from_numpy(array) for name, array in model.items()}
    tensors = [{name: torch.from_numpy(array) for name, array in row.items()} for row in equal]
    # The operations alone: for each client, and for those of a size among 256 at a time.
    alone = least(lambda: [small(weights, row) for row in tensors])

    def batched(rows: list[Any], sizes: int) -> float:
        parts = [rows[at:256:sizes] for at in range(sizes)]
        many = [
            {name: torch.stack([torch.from_numpy(row[name]) for row in part]) for name in part[0]}
            for part in parts
        ]
        at_once = torch.vmap(small, (None, 0), (0, 0, None))
        return least(
            lambda: [at_once(weights, each) for each in many for _ in range(clients // 256)]
        )

    together = batched(equal, 1)
    found = {
        "one after the other": spent(equal, exact=True) - alone,
        "at once": spent(equal, exact=False) - together,
        "at once, of two sizes in turn": spent(ragged, exact=False) - batched(ragged, 2),
    }
    if importlib.util.find_spec("ray") is not None:
        from stator.federated.ray import RayContext

        with (
            RayContext(workers=1) as context,
            fl.framework.get_context_stack().install(context),
        ):
            found[IN_CHUNKS] = least(lambda: comp(model, equal)) - together
    return found


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def memory(numbers: int = 10_000) -> dict[str, float]:
    """How many bytes the process takes more, at most, in a round of 1,000 and then of 100,000
    clients that each make so many 32-bit numbers."""
    of_values = fl.TensorType(np.float32, [numbers])
    local = fl.local_computation(of_values)(lambda values: values * 2)

    @fl.federated_computation(fl.FederatedType(of_values, fl.CLIENTS))
    def total(values: Any) -> Any:
        return fl.federated_mean(fl.federated_map(local, values))

    value = np.ones(numbers, np.float32)
    found = {}
    for clients in (1_000, 100_000):
        before = _most_memory()
        # They have the same arrays: what is measured is what is made of them.
        assert total([value] * clients)[0] == 2
        found[str(clients)] = _most_memory() - before
    return found


def _most_memory() -> float:
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024
