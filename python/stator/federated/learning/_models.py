"""Models: a module of PyTorch's with a loss, and the types of what clients have."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import stator.federated as fl

Weights = OrderedDict[str, Any]


@dataclasses.dataclass(frozen=True)
class Model:
    """What is trained.

    module: its parameters are what clients and server exchange. It is called with the rows' inputs.
    loss: a function of outputs and labels that gives a scalar, the mean over the rows.
    inputs, labels: the types of a client's tensors, as `fl.TensorType(np.float32, [None, 64])`. The
        first dimension is that of the rows; `None` where clients have different numbers of them.
    """

    module: torch.nn.Module
    loss: Callable[[Any, Any], Any]
    inputs: Any
    labels: Any

    def __post_init__(self) -> None:
        if not isinstance(self.module, torch.nn.Module):
            raise TypeError(f"`module` is to be an nn.Module, not {type(self.module).__name__}.")
        if not any(True for _ in self.module.parameters()):
            raise ValueError(f"{type(self.module).__name__} has no parameters to train.")
        for name, of in (("inputs", self.inputs), ("labels", self.labels)):
            if not isinstance(of, fl.TensorType) or not of.shape:
                raise TypeError(
                    f"`{name}` is to be a TensorType with a dimension for the rows, not {of}."
                )

    @property
    def weights_type(self) -> Any:
        """The type of the parameters: a struct of tensors by their names."""
        return fl.StructWithPythonType(
            [
                (name, fl.TensorType(_numpy_type(parameter), list(parameter.shape)))
                for name, parameter in self.module.named_parameters()
            ],
            OrderedDict,
        )

    @property
    def rows_type(self) -> Any:
        """The type of what a client has: a struct of `inputs` and `labels`."""
        return fl.StructWithPythonType(
            [("inputs", self.inputs), ("labels", self.labels)], OrderedDict
        )

    def weights(self) -> Weights:
        """The parameters as they are now, as NumPy's arrays."""
        return OrderedDict(
            (name, parameter.detach().cpu().numpy().copy())
            for name, parameter in self.module.named_parameters()
        )

    def assign(self, weights: Weights) -> None:
        """Gives the module the parameters of a state."""
        with torch.no_grad():
            for name, parameter in self.module.named_parameters():
                parameter.copy_(torch.from_numpy(np.ascontiguousarray(weights[name])))

    def outputs(self, weights: Any, inputs: Any) -> Any:
        """What the module gives with these parameters; within a local computation."""
        return torch.func.functional_call(self.module, dict(weights), (inputs,))


def _numpy_type(parameter: torch.Tensor) -> Any:
    return np.dtype(str(parameter.dtype).removeprefix("torch."))
