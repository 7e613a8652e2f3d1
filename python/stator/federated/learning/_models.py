"""Models: a module of PyTorch's with a loss, and the types of what clients have."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import stator.federated as fl
from stator._stator import federated as _native
from stator.federated.learning._statistics import written_buffers

Weights = OrderedDict[str, Any]


@_native.hidden
@dataclasses.dataclass(frozen=True)
class Model:
    """What is trained.

    module: its parameters are what clients and server exchange, those that need gradients when a
        process is built, and the statistics that it keeps while it trains, if it is in training
        mode now: buffers of floats that its `forward` writes to, such as batch normalisation's
        running means. The rest of it are constants. It is called with the rows' inputs.
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
    # The buffers that training writes to: those that are exchanged, and the others.
    _kept: tuple[str, ...] = dataclasses.field(init=False, repr=False, compare=False)
    _counted: tuple[str, ...] = dataclasses.field(init=False, repr=False, compare=False)
    # Other names of tensors, in other modules.
    _tied: tuple[tuple[str, str], ...] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A module under `torch.compile` or `stator.compile`: programs are traced from what it was.
        object.__setattr__(self, "module", getattr(self.module, "_orig_mod", self.module))
        if not isinstance(self.module, torch.nn.Module):
            raise TypeError(
                f"`module` is to be an nn.Module, not {_named(self.module)}{_to_make(self.module)}."
            )
        if not callable(self.loss) or isinstance(self.loss, type):
            raise TypeError(
                "`loss` is to be a function of outputs and labels, not "
                f"{_named(self.loss)}{_to_make(self.loss)}."
            )
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
        written = written_buffers(self.module, self.inputs)
        buffers = [pair for pair in self.module.named_buffers() if pair[0] in written]
        kept = tuple(name for name, buffer in buffers if buffer.is_floating_point())
        object.__setattr__(self, "_kept", kept)
        counted = tuple(name for name, _ in buffers if name not in kept)
        object.__setattr__(self, "_counted", counted)
        object.__setattr__(self, "_tied", tuple(_tied(self.module)))

    def parameters(self) -> OrderedDict[str, torch.nn.Parameter]:
        """The parameters that are trained."""
        named = self.module.named_parameters()
        return OrderedDict((name, each) for name, each in named if each.requires_grad)

    def statistics(self) -> OrderedDict[str, torch.Tensor]:
        """The buffers that clients and server exchange as they do the parameters."""
        return OrderedDict((name, self.module.get_buffer(name)) for name in self._kept)

    def exchanged(self) -> OrderedDict[str, torch.Tensor]:
        """The parameters that are trained, and the statistics: what the weights of a state are."""
        return OrderedDict([*self.parameters().items(), *self.statistics().items()])

    @property
    def weights_type(self) -> Any:
        """The type of the weights: a struct of tensors by their names."""
        return fl.StructWithPythonType(
            [
                (name, fl.TensorType(_numpy_type(tensor), list(tensor.shape)))
                for name, tensor in self.exchanged().items()
            ],
            OrderedDict,
        )

    @property
    def update_type(self) -> Any:
        """The type of what clients send, and of what the server makes of it: that of the
        weights, with 32 bits where they have 16."""
        return fl.StructWithPythonType(
            [
                (name, fl.TensorType(_numpy_type(wide(tensor)), list(tensor.shape)))
                for name, tensor in self.exchanged().items()
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
        """The weights as they are now, as NumPy's arrays."""
        return OrderedDict(
            (name, _to_numpy(tensor.detach().cpu())) for name, tensor in self.exchanged().items()
        )

    def constants(self) -> Weights:
        """The same within a local computation."""
        return OrderedDict(
            (name, tensor.detach().clone()) for name, tensor in self.exchanged().items()
        )

    def assign(self, weights: Weights) -> None:
        """Gives the module the weights of a state."""
        own = self.exchanged()
        wrong = [
            *(f"no {name!r}" for name in own if name not in weights),
            *(f"{name!r}, which the module lacks" for name in weights if name not in own),
        ]
        if wrong:
            raise ValueError(f"these aren't the module's weights: they have {', '.join(wrong)}.")
        for name, tensor in own.items():
            if np.shape(weights[name]) != tuple(tensor.shape):
                raise ValueError(
                    f"the weights {name!r} are of shape {list(np.shape(weights[name]))}, where the "
                    f"module's are of {list(tensor.shape)}."
                )
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(_from_numpy(np.ascontiguousarray(weights[name])))

    def counters(self) -> dict[str, torch.Tensor]:
        """The other buffers that training writes to, as they are; within a local computation."""
        return {name: self.module.get_buffer(name).clone() for name in self._counted}

    def applied(self, weights: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function of the module and arguments gives while the module has these weights, to
        whose statistics it may write; within a local computation."""
        given = {f"module.{name}": tensor for name, tensor in weights.items()}
        for name, tensor in self.counters().items():
            given.setdefault(f"module.{name}", tensor)
        for name, other in self._tied:
            if f"module.{name}" in given:
                given[f"module.{other}"] = given[f"module.{name}"]
        # PyTorch's own way to tie tensors leaves a module that occurs twice with the given ones.
        return torch.func.functional_call(
            self._holder, given, (function, *arguments), tie_weights=False
        )

    def outputs(self, weights: Any, inputs: Any) -> Any:
        """What the module gives with these weights; within a local computation."""
        own = {name: weights[name].clone() for name in self._kept}
        return self.applied({**weights, **own}, _outputs, inputs)

    def loss_of(self, weights: Any, rows: Any) -> Any:
        """The loss of these weights, whose parameters need gradients and whose statistics are
        brought up to date; within a local computation."""
        loss = self.applied(weights, _loss, self.loss, rows["inputs"], rows["labels"])
        if not isinstance(loss, torch.Tensor):
            kind = type(loss).__qualname__
            raise TypeError(f"{_where(self.loss)} gives a {kind}, not a scalar tensor.")
        if any(not isinstance(size, int) or size != 1 for size in loss.shape):
            raise TypeError(
                f"{_where(self.loss)} gives a tensor with {loss.dim()} dimensions, not a scalar: "
                "the mean over the rows."
            )
        if not loss.requires_grad and any(tensor.requires_grad for tensor in weights.values()):
            raise TypeError(
                f"{_where(self.loss)} doesn't depend on the weights: something takes its argument "
                "out of the gradients' graph, such as `detach()` or `torch.no_grad()`."
            )
        return loss

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


def _tied(module: torch.nn.Module) -> Iterator[tuple[str, str]]:
    """The first name of each tensor that several modules have, and each other one."""
    first: dict[int, str] = {}
    # Each module is met once, by its first name.
    for prefix, each in module.named_modules():
        for name, tensor in itertools.chain(
            each.named_parameters(prefix, recurse=False, remove_duplicate=False),
            each.named_buffers(prefix, recurse=False, remove_duplicate=False),
        ):
            known = first.setdefault(id(tensor), name)
            if known != name:
                yield known, name


def _where(loss: Any) -> str:
    """A loss function, and where it is written."""
    name = getattr(loss, "__qualname__", type(loss).__qualname__)
    code = getattr(loss, "__code__", None)
    place = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
    return f"the loss `{name}`{place}"


def expect_model(model: Any) -> None:
    """Raises if an argument is no model."""
    if not isinstance(model, Model):
        raise TypeError(f"`model` is to be a learning.Model, not {type(model).__qualname__}.")


def expect_no_statistics(model: Model, what: str) -> None:
    """Raises if a model keeps statistics of its rows, which something can't have."""
    for name in model.statistics():
        raise TypeError(
            f"{what} is for models without statistics of their rows: `{name}` is one. Use "
            "`nn.GroupNorm` in the place of batch normalisation, or call the module's `eval()` "
            "before the Model is made, which leaves the statistics as they are."
        )


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


def expect_real(weights: Any, what: str) -> None:
    """Raises if one of the weights, by their names, is complex, which something can't have."""
    for name, tensor in weights.items():
        if tensor.dtype.is_complex:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise TypeError(
                f"{what} is for real weights: `{name}` is {kind}. Give the module the real and the "
                "imaginary part as parameters (`torch.view_as_complex` joins them)."
            )


def wide(tensor: Any) -> Any:
    """The tensor as sums take it: with 32 bits where it has 16, so that rounding is once, at the
    end."""
    return tensor.to(torch.float32) if tensor.dtype in _HALVES else tensor


_HALVES = (torch.float16, torch.bfloat16)


def all_wide(weights: Any) -> Any:
    """The same of tensors by their names."""
    return OrderedDict((name, wide(tensor)) for name, tensor in weights.items())


def rounded(found: Any, like: Any) -> Any:
    """Tensors with the element types of others, where those have 16 bits."""
    return OrderedDict(
        (name, found[name].to(tensor.dtype) if tensor.dtype in _HALVES else found[name])
        for name, tensor in like.items()
    )


def updated(weights: Any, parameters: Any, count: Any) -> Any:
    """What a client sends: what its weights are reduced by, if it has rows."""
    return OrderedDict(
        (name, if_any(count, wide(tensor) - wide(parameters[name].detach())))
        for name, tensor in weights.items()
    )


def _numpy_type(parameter: torch.Tensor) -> Any:
    name = str(parameter.dtype).removeprefix("torch.")
    return _bfloat16() if name == "bfloat16" else np.dtype(name)


def _bfloat16() -> Any:
    """NumPy's type, which another package brings."""
    try:
        import ml_dtypes
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "weights of bfloat16 are arrays of a type that ml_dtypes has: `pip install ml_dtypes`"
        ) from error
    return np.dtype(ml_dtypes.bfloat16)


def _to_numpy(tensor: torch.Tensor) -> Any:
    """A copy as an array."""
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().copy().view(_bfloat16())
    return tensor.numpy().copy()


def _from_numpy(array: Any) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def count_rows(rows: Any) -> Any:
    """The number of rows, as a weight. Fails where inputs and labels aren't as many."""
    return ones_of_rows(rows, torch.float32).sum()


def ones_of_rows(rows: Any, dtype: torch.dtype) -> Any:
    """A one for each row."""
    ones = [torch.ones_like(_first(rows[name]), dtype=dtype) for name in ("inputs", "labels")]
    # What is stacked is as long.
    return torch.stack(ones)[0]


def _first(tensor: Any) -> Any:
    """A number of each row."""
    return tensor if tensor.dim() == 1 else tensor.flatten(1)[:, 0]


def if_any(count: Any, value: Any) -> Any:
    """The value where there are rows, otherwise zero."""
    return torch.where(count > 0, value, torch.zeros_like(value))


def _named(value: Any) -> str:
    """What something is called in messages."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _to_make(value: Any) -> str:
    return ": one is to be made of it" if isinstance(value, type) else ""
