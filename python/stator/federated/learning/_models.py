"""Models: a module of PyTorch's with a loss, and the types of what clients have."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import stator.federated as fl

Weights = OrderedDict[str, Any]


@dataclasses.dataclass(frozen=True)
class Model:
    """What is trained.

    module: its parameters are what clients and server exchange, those that need gradients when a
        process is built. The others are constants. It is called with the rows' inputs.
    loss: a function of outputs and labels that gives a scalar, the mean over the rows. It may read
        the module's parameters, which then are those that it is the loss of.
    inputs, labels: the types of a client's tensors, as `fl.TensorType(np.float32, [None, 64])`. The
        first dimension is that of the rows; `None` where clients have different numbers of them.
    """

    module: torch.nn.Module
    loss: Callable[[Any, Any], Any]
    inputs: Any
    labels: Any
    _holder: _Holder = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.module, torch.nn.Module):
            raise TypeError(f"`module` is to be an nn.Module, not {type(self.module).__name__}.")
        if not self.parameters():
            raise ValueError(
                f"{type(self.module).__name__} has no parameters to train, that need gradients."
            )
        for name, of in (("inputs", self.inputs), ("labels", self.labels)):
            if not isinstance(of, fl.TensorType) or not of.shape:
                raise TypeError(
                    f"`{name}` is to be a TensorType with a dimension for the rows, not {of}."
                )
        object.__setattr__(self, "_holder", _Holder(self.module))

    def parameters(self) -> OrderedDict[str, torch.nn.Parameter]:
        """The parameters that are trained."""
        named = self.module.named_parameters()
        return OrderedDict((name, each) for name, each in named if each.requires_grad)

    @property
    def weights_type(self) -> Any:
        """The type of the parameters: a struct of tensors by their names."""
        return fl.StructWithPythonType(
            [
                (name, fl.TensorType(_numpy_type(parameter), list(parameter.shape)))
                for name, parameter in self.parameters().items()
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
            for name, parameter in self.parameters().items()
        )

    def constants(self) -> Weights:
        """The same within a local computation."""
        return OrderedDict(
            (name, parameter.detach().clone()) for name, parameter in self.parameters().items()
        )

    def assign(self, weights: Weights) -> None:
        """Gives the module the parameters of a state."""
        with torch.no_grad():
            for name, parameter in self.parameters().items():
                parameter.copy_(torch.from_numpy(np.ascontiguousarray(weights[name])))

    def applied(self, weights: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function of the module and arguments gives while the module has these parameters;
        within a local computation."""
        given = {f"module.{name}": tensor for name, tensor in weights.items()}
        return torch.func.functional_call(self._holder, given, (function, *arguments))

    def outputs(self, weights: Any, inputs: Any) -> Any:
        """What the module gives with these parameters; within a local computation."""
        return self.applied(weights, _outputs, inputs)

    def loss_of(self, weights: Any, rows: Any) -> Any:
        """The loss of these parameters; within a local computation."""
        return self.applied(weights, _loss, self.loss, rows["inputs"], rows["labels"])

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """The module behaves as in evaluation: what is dropped by chance in training isn't."""
        training = {module: module.training for module in self.module.modules()}
        self.module.eval()
        try:
            yield
        finally:
            for module, mode in training.items():
                module.training = mode


def _outputs(module: Any, inputs: Any) -> Any:
    return module(inputs)


def _loss(module: Any, loss: Callable[..., Any], inputs: Any, labels: Any) -> Any:
    return loss(module(inputs), labels)


class _Holder(torch.nn.Module):
    """Has a function read a module."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(self.module, *arguments)


def trainable(weights: Any) -> dict[str, Any]:
    """Tensors of their own of which gradients can be taken."""
    return {name: tensor.detach().clone().requires_grad_() for name, tensor in weights.items()}


def _numpy_type(parameter: torch.Tensor) -> Any:
    return np.dtype(str(parameter.dtype).removeprefix("torch."))


def count_rows(rows: Any) -> Any:
    """The number of rows, as a weight."""
    return torch.ones_like(rows["inputs"].flatten(1)[:, 0], dtype=torch.float32).sum()


def if_any(count: Any, value: Any) -> Any:
    """The value where there are rows, otherwise zero."""
    return torch.where(count > 0, value, torch.zeros_like(value))
