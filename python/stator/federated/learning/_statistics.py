"""Which buffers a module writes to while it trains: running means of batch normalisation, say."""

from __future__ import annotations

import copy
import logging
from typing import Any

import numpy as np
import torch
from torch.nn.modules.batchnorm import _NormBase

_LOG = logging.getLogger("stator.federated")

_SIZE = 8
"""Of a dimension that isn't known, where a module is tried."""


def written_buffers(module: torch.nn.Module, inputs: Any) -> set[str]:
    """The names of the buffers that a training step writes to.

    inputs: the type of what the module is called with. A copy of it is tried on two rows of random
        numbers if it has buffers that aren't normalisations'.
    """
    known, others = set(), set()
    for prefix, each in module.named_modules():
        names = {
            f"{prefix}.{name}" if prefix else name for name, _ in each.named_buffers("", False)
        }
        if not isinstance(each, _NormBase):
            others |= names
        elif each.training and each.track_running_stats:
            known |= names
    if not others or not module.training:
        return known
    try:
        return known | (_written(module, inputs) & others)
    except Exception as error:
        # If it can't be trained either, that is said where it is traced.
        _LOG.info("which buffers %s writes to isn't known: %s", type(module).__name__, error)
        return known


def _written(module: torch.nn.Module, inputs: Any) -> set[str]:
    tried = copy.deepcopy(module)
    buffers = dict(tried.named_buffers(remove_duplicate=False))
    # Not all operations that write count it in the version.
    before = {name: (each._version, each.clone()) for name, each in buffers.items()}
    with torch.random.fork_rng(), torch.no_grad():
        tried(_rows(inputs).to(next(tried.parameters()).device))
    after = dict(tried.named_buffers(remove_duplicate=False))

    def is_written(name: str) -> bool:
        version, value = before[name]
        found = after.get(name)
        return (
            found is not buffers[name]
            or found._version != version
            or not torch.equal(found.nan_to_num(), value.nan_to_num())
        )

    return {name for name in before if is_written(name)}


def _rows(inputs: Any) -> torch.Tensor:
    """Two rows: random numbers, or zeros where they may be places in a table."""
    sizes = [_SIZE if size is None else size for size in inputs.shape]
    sizes[0] = 2
    dtype = getattr(torch, np.dtype(inputs.dtype).name)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(sizes, dtype=dtype)
    return torch.zeros(sizes, dtype=dtype)
