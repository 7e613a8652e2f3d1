"""Stator: the same round in each of its contexts."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import stator.federated as fl
from bench import classifier, clients
from bench.classifier import Arrays
from stator.federated import learning
from stator.federated.execution import LocalContext

Rounds = Iterator[tuple[float, Arrays]]


def in_context(context: Any, model: Arrays, rows: list[Arrays], rounds: int) -> Rounds:
    """Rounds of the computation that users write by hand."""
    comp = clients.a_round()
    with fl.framework.get_context_stack().install(context):
        for _ in range(rounds):
            begin = time.perf_counter()
            model = comp(model, rows)
            yield time.perf_counter() - begin, model


def local(threads: int | None = None, exact: bool = False) -> Callable[..., Rounds]:
    """In this process."""

    def run(model: Arrays, rows: list[Arrays], rounds: int) -> Rounds:
        yield from in_context(LocalContext(threads=threads, exact=exact), model, rows, rounds)

    return run


def on_ray(exact: bool = False) -> Callable[..., Rounds]:
    """By a worker for each processor."""

    def run(model: Arrays, rows: list[Arrays], rounds: int) -> Rounds:
        # Whoever has no Ray imports the other contexts all the same.
        from stator.federated.ray import RayContext

        logging.disable(logging.WARNING)
        with RayContext(workers=os.cpu_count(), exact=exact) as context:
            yield from in_context(context, model, rows, rounds)

    return run


def averaging(model: Arrays, rows: list[Arrays], rounds: int) -> Rounds:
    """By the library's process, which also tells the loss."""
    described = learning.Model(
        classifier.as_module(model),
        torch.nn.functional.cross_entropy,
        inputs=fl.TensorType(np.float32, [None, classifier.PIXELS]),
        labels=fl.TensorType(np.int64, [None]),
    )
    process = learning.build_fed_avg(
        described,
        client_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=classifier.RATE),
        steps=classifier.STEPS,
    )
    named = [{"inputs": row["images"], "labels": row["labels"]} for row in rows]
    with fl.framework.get_context_stack().install(LocalContext(threads=1)):
        state = process.initialize()
        for _ in range(rounds):
            begin = time.perf_counter()
            state, _ = process.next(state, named)
            yield time.perf_counter() - begin, classifier.of_state(state["weights"])
