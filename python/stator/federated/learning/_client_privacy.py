"""DP-SGD: clients' steps along gradients with noise, so that not even the server sees their rows.

Abadi et al., Deep Learning with Differential Privacy, 2016 (arXiv 1607.00133), with batches of a
fixed size, chosen without replacement.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from stator._stator import federated as _native
from stator.federated.aggregators._accounting import accounting
from stator.federated.aggregators._factories import expect_count, expect_number, mapped
from stator.federated.aggregators._gaussian import noise
from stator.federated.aggregators._norms import clipped, norm
from stator.federated.learning._models import (
    Model,
    expect_no_statistics,
    expect_real,
    ones_of_rows,
    trainable,
    wide,
)
from stator.programs import TensorProgram, TensorSpec


@_native.hidden
@dataclasses.dataclass(frozen=True)
class DPSGD:
    """Each step of a client is on a batch of its rows that is drawn anew. The gradient of each row
    is clipped, their sum gets Gaussian noise, and is divided by `batch_size`.

    What holds is (epsilon, delta)-differential privacy with respect to one row of a client, which
    might be another one, against whoever sees all that the client sends, the server included; how
    many rows a client has isn't hidden. See `epsilon`.

    clip: what the gradient of a row may be, as a norm. What isn't finite counts as zero.
    noise_multiplier: the noise's standard deviation, in multiples of `clip`.
    batch_size: how many rows a batch has; all of them, where a client has fewer.
    """

    clip: float
    noise_multiplier: float
    batch_size: int

    def __post_init__(self) -> None:
        expect_number(self.clip, "clip", above=0)
        expect_number(self.noise_multiplier, "noise_multiplier", above=0)
        expect_count(self.batch_size, "batch_size", least=1)

    def epsilon(self, *, rows: int, steps: int, delta: float) -> float:
        """What a client with so many rows has spent after so many steps, over all rounds that it
        was in, those included that were taken again. Needs the package `dp-accounting`."""
        expect_count(rows, "rows", least=0)
        expect_count(steps, "steps", least=0)
        expect_number(delta, "delta", above=0, below=1)
        package = accounting()
        if not rows or not steps:
            return 0.0
        # One row in the place of another moves the sum by twice the bound.
        event = package.GaussianDpEvent(self.noise_multiplier / 2)
        if self.batch_size < rows:
            event = package.SampledWithoutReplacementDpEvent(rows, self.batch_size, event)
        accountant = package.rdp.RdpAccountant(
            neighboring_relation=package.NeighboringRelation.REPLACE_ONE
        )
        return float(accountant.compose(event, steps).get_epsilon(delta))

    def gradients(self, model: Model) -> Callable[[Any, Any], Any]:
        """A function for local computations: of weights and a client's rows, it gives the gradients
        of a step, with noise, by the names of the weights."""
        total_of = self._total(model)
        deviation = self.clip * self.noise_multiplier

        def gradients(weights: Any, rows: Any) -> Any:
            total = total_of(weights, *self._batch(rows))
            return mapped(lambda of: (of + noise(of, deviation)) / self.batch_size, total)

        return gradients

    def _total(self, model: Model) -> Callable[[Any, Any, Any], Any]:
        """A function of weights, a batch, and which rows of it are there: the sum of the rows'
        gradients, each clipped."""
        names = list(model.parameters())
        expect_real(model.parameters(), "DP-SGD")
        expect_no_statistics(model, "DP-SGD")

        def of_row(weights: Any, row: Any, is_there: Any) -> Any:
            # A row is given to the model alone, so it moves no other row's gradient.
            own = trainable(weights)
            loss = model.loss_of(own, row)
            found = torch.autograd.grad(loss, list(own.values()), allow_unused=True)
            gradient = {
                name: wide(torch.zeros_like(own[name]) if found[place] is None else found[place])
                for place, name in enumerate(own)
            }
            size = norm(gradient)
            size = torch.where(is_there, size, torch.full_like(size, float("inf")))
            return list(clipped(gradient, size, torch.full_like(size, self.clip)).values())

        def one_by_one(weights: Any, batch: Any, is_there: Any) -> Any:
            total = {name: wide(torch.zeros_like(tensor)) for name, tensor in weights.items()}
            for at in range(self.batch_size):
                row = {name: tensor[at : at + 1] for name, tensor in batch.items()}
                for name, more in zip(names, of_row(weights, row, is_there[at]), strict=True):
                    total[name] = total[name] + more
            return total

        program = TensorProgram.trace(of_row, _specs(model))
        try:
            run = program.of_rows(len(names), self.batch_size)
        except Exception as error:
            _LOG.info("%r runs for one row after the other: %s", program, error)
            return one_by_one

        def at_once(weights: Any, batch: Any, is_there: Any) -> Any:
            columns = [tensor.unsqueeze(1) for tensor in batch.values()]
            given = [tensor.detach() for tensor in weights.values()]
            found = run([*given, *columns, is_there])
            return {name: rows.sum(0) for name, rows in zip(names, found, strict=True)}

        return at_once

    def _batch(self, rows: Any) -> tuple[Any, Any]:
        """Some rows by chance, and which of them are there: the rest is zeros."""
        some = ones_of_rows(rows, torch.float64)
        missing = torch.zeros(self.batch_size, dtype=torch.float64)
        # Rows that are there have lower numbers.
        order = torch.cat([torch.rand_like(some), missing + 2]).argsort()[: self.batch_size]
        present = torch.cat([some, missing])[order] > 0

        def chosen(tensor: Any) -> Any:
            padding = torch.zeros((self.batch_size, *tensor.shape[1:]), dtype=tensor.dtype)
            return torch.cat([tensor, padding])[order]

        return {name: chosen(rows[name]) for name in ("inputs", "labels")}, present


def _specs(model: Model) -> tuple[Any, Any, Any]:
    """The types of the weights, of a row, and of whether it is there."""
    weights = {
        name: TensorSpec(parameter.dtype, tuple(parameter.shape))
        for name, parameter in model.parameters().items()
    }
    row = {
        name: TensorSpec(getattr(torch, np.dtype(of.dtype).name), (1, *of.shape[1:]))
        for name, of in model.rows_type.items()
    }
    return weights, row, TensorSpec(torch.bool, ())


_LOG = logging.getLogger("stator.federated")
