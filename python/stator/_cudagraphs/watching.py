"""What a run of operations does, seen by PyTorch's dispatcher while it's executed once."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Watch", "memory_of"]

_Tag = torch.Tag

_READ = "it reads data ({})"
_TAGS = {
    _Tag.data_dependent_output: _READ,
    _Tag.dynamic_output_shape: "data decides sizes in it ({})",
    _Tag.cudagraph_unsafe: "PyTorch says that a CUDA graph can't hold an operation of it ({})",
    _Tag.maybe_aliasing_or_mutating: "it isn't known what an operation of it writes ({})",
}
"""What PyTorch says of operations that a graph can't hold."""

_WAITS = frozenset({"_linalg_check_errors", "_ctc_loss", "_cudnn_ctc_loss", "segment_reduce"})
"""Operations that wait for the device, or read a tensor of the CPU, and PyTorch doesn't say so."""

_INDEXES = frozenset({"index", "index_put", "index_put_", "_unsafe_index", "_unsafe_index_put"})
"""Operations of which data decides sizes only where masks are among the indices."""

_REACHES = ("as_strided", "set_", "resize", "_resize")
"""Operations whose names begin so find memory that isn't part of the tensor they are given."""

_STATISTICS = frozenset({"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"})
"""Operations that write to their fourth and fifth argument if the sixth is true."""

_UNTOLD = frozenset({"batch_norm_update_stats", "rrelu_with_noise", "_fused_dropout"})
_UNTOLD_START = ("batch_norm_gather_stats", "_cudnn_init_dropout_state")
"""Operations that write what their schema doesn't tell of."""


def memory_of(tensor: Tensor) -> int:
    """Names the memory of a tensor; views of one have the same."""
    return int(tensor.untyped_storage()._cdata)


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it's open, operations are executed and looked at."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.why: str | None = None
        """Why a graph can't hold it, the first reason."""
        self.fixed: set[int] = set()
        """The memory that has to be the inputs' own: what is written, and what is reached by
        other ways than a view's."""
        self.draws = False
        """Whether it draws random numbers."""
        self._device = inputs[0].device
        self._inputs = {id(tensor) for tensor in inputs}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if _is_made_of_others(func, self._device.type):
            # In inference mode these come here, too.
            with self:
                return func._op_dk(_COMPOSITE, *args, **kwargs)
        self._look(func, args, kwargs)
        result = func(*args, **kwargs)
        if not any(tensor.device == self._device for tensor in _tensors((args, kwargs))):
            # Attention gives numbers on the CPU beside its results, which nobody asks for.
            for tensor in _tensors(result):
                self._look_at(func, tensor)
        return result

    def say(self, why: str) -> None:
        """A graph can't hold it."""
        self.why = self.why or why

    def _say(self, text: str, func: Any) -> None:
        self.say(text.format(str(func).removesuffix(".default")))

    def _look(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = func._schema.name.split("::")[1]
        given = list(_tensors((args, kwargs)))
        for tensor in given:
            self._look_at(func, tensor)
        if func.namespace not in ("aten", "prims", "prim"):
            self._say("it calls an operation that isn't PyTorch's own ({})", func)
        for tag in func.tags:
            if tag is _Tag.dynamic_output_shape and name in _INDEXES:
                if any(it.dtype in (torch.bool, torch.uint8) for it in _tensors(args[1])):
                    self._say(_TAGS[tag], func)
            elif tag in _TAGS:
                self._say(_TAGS[tag], func)
        self.draws |= _Tag.nondeterministic_seeded in func.tags
        if _Tag.inplace_view in func.tags and any(id(it) in self._inputs for it in given):
            self._say("it changes what an input is like ({})", func)
        if any(isinstance(it, torch.Generator) for it in (*args, *kwargs.values())):
            self._say("it draws from a generator of the program's ({})", func)
        if name in _WAITS:
            self._say(_READ, func)
        if name in _UNTOLD or name.startswith(_UNTOLD_START):
            self._say("it isn't known what an operation of it writes ({})", func)
        if name.startswith(_REACHES):
            self._fix(given)
        if name in _STATISTICS and args[5]:
            self._fix(_tensors(args[3:5]))
        for argument, value in _arguments(func._schema, args, kwargs):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._fix(_tensors(value))

    def _fix(self, tensors: Iterable[Tensor]) -> None:
        self.fixed.update(map(memory_of, tensors))

    def _look_at(self, func: Any, tensor: Tensor) -> None:
        if tensor.device != self._device:
            self._say(f"it has tensors on {tensor.device} and on {self._device} ({{}})", func)
        elif tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
            self._say("it has a tensor that is no plain one ({})", func)


_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


@functools.cache
def _is_made_of_others(func: Any, kind: str) -> bool:
    """Whether an operation calls others, and has no code of its own for a kind of device."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(func.name(), "CompositeImplicitAutograd") and not has_kernel(
        func.name(), kind.upper()
    )


def _arguments(
    schema: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> Iterator[tuple[Any, Any]]:
    """The arguments of a call, with what the schema says of them."""
    for at, argument in enumerate(schema.arguments):
        if at < len(args) and not argument.kwarg_only:
            yield argument, args[at]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
