"""Sums over rounds with the noise of a binary tree.

Kairouz et al., Practical and Private (Deep) Learning without Sampling or Shuffling, 2021 (arXiv
2103.00039). The rounds are the leaves of a tree. The sum of all rounds so far is that of a few
complete nodes, one for each bit of their number, and each node has noise of its own. So the noise
of such a sum grows with the logarithm of the number of rounds.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any

import numpy as np
import torch

import stator.federated as fl
from stator.federated.aggregators._accounting import Budget
from stator.federated.aggregators._factories import mapped
from stator.federated.aggregators._gaussian import beginning, clipping, noise, zeros


@dataclasses.dataclass(frozen=True)
class Tree:
    """Values clipped to `clip`; a node's noise is `noise_multiplier * clip`.

    tree_rounds: how many rounds a tree has. The next one begins a new tree.
    participations: in how many rounds of a tree a client is at most.
    budget: of one node, with one value of a client in it.
    """

    noise_multiplier: float
    clients: float
    clip: float
    tree_rounds: int
    participations: int
    budget: Budget

    @property
    def levels(self) -> int:
        """How many levels of nodes a tree has."""
        return self.tree_rounds.bit_length()

    def sensitivities(self) -> list[int]:
        """The square of what a client moves all nodes of the lowest levels by, by the number of
        levels: in a node of a level are at most so many of its values, and in all of its nodes at
        most `participations`."""
        found = [0]
        for levels in range(1, self.levels + 1):
            rounds = min((1 << levels) - 1, self.tree_rounds)
            values = min(self.participations, rounds)
            found.append(values * sum(min(values, 1 << level) for level in range(levels)))
        return found

    def rounds(self, value_type: Any) -> tuple[Any, Any]:
        """The computation of the first state, and the function of a round."""
        deviation = self.noise_multiplier * self.clip

        def released(total: Any, nodes: Any, number: Any, releases: Any) -> Any:
            leaf = number % self.tree_rounds + 1
            # The round completes one node, in the place of all those of lower levels.
            sizes, lowest = self._sizes(), leaf & -leaf
            completed, kept = sizes == lowest, (sizes > lowest) & (leaf & sizes > 0)

            def fresh(node: Any) -> Any:
                return noise(node[0], deviation)

            def placed(node: Any, drawn: Any) -> Any:
                return _where(completed, drawn, _where(kept, node, torch.zeros_like(node)))

            def noised(tensor: Any, node: Any, drawn: Any) -> Any:
                replaced = _where(sizes < lowest, node, torch.zeros_like(node)).sum(0)
                return tensor + (drawn - replaced)

            drawn = mapped(fresh, nodes)
            found = mapped(noised, total, nodes, drawn)
            state = OrderedDict(
                releases=releases + 1,
                round=number + 1,
                nodes=mapped(placed, nodes, drawn),
                noised_sum=found,
            )
            return state, mapped(lambda tensor: tensor / self.clients, found)

        def spent(number: Any, releases: Any) -> Any:
            table = torch.tensor(self.sensitivities(), dtype=torch.float64)
            whole, leaf = number // self.tree_rounds, number % self.tree_rounds
            nodes = whole * table[-1] + table[(self._sizes() <= leaf).sum()]
            # A round that was taken again has drawn one more node.
            most = float(min(self.participations, 1 << (self.levels - 1)))
            again = (releases - number).to(torch.float64) * most**2
            return self.budget.spent(nodes + again)

        of_nodes = _stacked(value_type, self.levels)
        bound = clipping(value_type, self.clip)
        release = fl.local_computation(value_type, of_nodes, np.int32, np.int32)(released)
        spend = fl.local_computation(np.int32, np.int32)(spent)

        def following(state: Any, value: Any) -> Any:
            total = fl.federated_sum(fl.federated_map(bound, value))
            given = (total, state.nodes, state.round, state.releases)
            found = fl.federated_map(release, given)
            told = fl.federated_map(spend, (found[0].round, found[0].releases))
            return found[0], found[1], told

        first = zeros(release.type_signature.result[0])
        return beginning(lambda: mapped(torch.clone, first)), following

    def _sizes(self) -> Any:
        """How many rounds a node has, by levels."""
        return torch.tensor([1 << level for level in range(self.levels)], dtype=torch.int32)


def _where(levels: Any, one: Any, other: Any) -> Any:
    """One of two tensors in some of the levels, the other in the rest."""
    return torch.where(levels.reshape(-1, *(1 for _ in other.shape[1:])), one, other)


def _stacked(of: Any, levels: int) -> Any:
    """The type of so many values of a type."""
    if not isinstance(of, fl.StructType):
        return fl.TensorType(of.dtype, [levels, *of.shape])
    parts = [(name, _stacked(field, levels)) for name, field in of.items()]
    container = getattr(of, "python_container", None)
    return fl.StructType(parts) if container is None else fl.StructWithPythonType(parts, container)
