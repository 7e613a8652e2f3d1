"""Running a tensor program for many clients at once.

The program's operations run by the rules of `torch.vmap`, with the clients as the batch. A gradient
is taken of the tensors beneath. What one client's loss is computed from is no other client's, so
the gradient of all losses together holds each client's own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function
from torch.utils.weak import WeakIdKeyDictionary

from stator._program_tracing.casting import without_autocast
from stator._program_tracing.each_draws import MOST, drawn, is_drawing, is_made
from stator._program_tracing.padding import memory_of, name_of, tensors_in
from stator._program_tracing.padding_draws import drawn_for_rows
from stator._program_tracing.padding_numbers import LINKED as NUMBERS
from stator._program_tracing.padding_numbers import NotPaddedError, Share
from stator._program_tracing.padding_pairs import LINKED as PAIRS
from stator._program_tracing.padding_rules import Padding
from stator._program_tracing.unrolled import RECURRENT, NotUnrolledError

__all__ = ["LINKED", "NotBatchableError", "TooFewRowsError", "run_together"]

# Its types lack some of what it has.
_functorch: Any = torch._C._functorch


class NotBatchableError(Exception):
    """The program has to run for one client after the other; the text says why."""


class TooFewRowsError(Exception):
    """Some clients can't run with those that have more rows, or fewer: they lack a row that the
    program takes. What is wrong with that is said where they run by themselves."""


def run_together(
    run: Callable[[tuple[torch.Tensor, ...]], Sequence[Any]],
    columns: Sequence[torch.Tensor],
    count: int,
    *,
    draws: bool = False,
    states: list[torch.Tensor] | None = None,
    owns: bool = False,
    lengths: Sequence[Sequence[int]] | None = None,
    with_rows: Sequence[tuple[int, int]] = (),
    differentiates: bool = False,
) -> list[Any]:
    """What `run` gives, with a first dimension of clients.

    columns: for each input, the clients' tensors in one, with a first dimension of clients, apart
        from everybody's gradients.
    draws: whether it may draw random numbers, of each client's own.
    states: where PyTorch's generator is for each client, which draws what it would alone.
    owns: whether each client has what the program makes, for itself, where that is the same for all
        of them: then it may be written to.
    lengths: how many rows each client has, where they differ, for each of the inputs `with_rows`,
        which are padded: these say which input, and in which dimension.
    differentiates: whether it takes gradients.

    Raises `NotBatchableError` where the program can't be run in this way, `TooFewRowsError` where
    these clients can't, and whatever it raises.
    """

    is_conditional = False

    def batched(*tensors: torch.Tensor) -> tuple[Any, ...]:
        level = _functorch.maybe_get_level(tensors[0])
        if lengths is None:
            with _Gradients(count, states, level, owns):
                return tuple(run(tensors))
        given, counts = tensors[: len(columns)], tensors[len(columns) :]
        with_length = [
            (given[at], dim, known[tuple(own)])
            for (at, dim), own in zip(with_rows, lengths, strict=True)
        ]
        most = [max(own) for own in known]
        padding = Padding(counts, most, with_length, differentiates)
        with _Gradients(count, states, level, owns, padding):
            found = run(given)
        padding.use(found)
        if any(padding.dims(result) for result in found):
            raise NotPaddedError("clients of different sizes: it gives rows")
        outputs = [result.own if isinstance(result, Share) else result for result in found]
        if differentiates and padding.finite_unless:
            are_finite = torch.stack([torch.isfinite(each).all() for each in outputs]).all()
            padding.holds(torch.stack(padding.finite_unless).all() | are_finite)
        if padding.conditions:
            nonlocal is_conditional
            is_conditional = True
            outputs.append(torch.stack(padding.conditions).all())
        return tuple(outputs)

    # Inputs whose lengths are the same for all of these clients have one length.
    known: dict[tuple[int, ...], int] = {}
    for own in lengths or ():
        known.setdefault(tuple(own), len(known))
    everything = [*columns, *map(torch.tensor, known)]
    with torch.enable_grad(), without_autocast(), _silence():
        randomness = "different" if draws else "error"
        found = list(torch.vmap(batched, randomness=randomness)(*everything))
    if is_conditional and not found.pop().all():
        raise TooFewRowsError("some clients lack rows that the program takes")
    return found


_LOCK = threading.Lock()
_silent = 0


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Nobody has asked for `vmap`: nobody hears of operations that it does one by one, as long as
    any thread is in here. PyTorch has one setting for all threads."""
    global _silent
    with _LOCK:
        _silent += 1
        _functorch._set_vmap_fallback_warning_enabled(False)
    try:
        yield
    finally:
        with _LOCK:
            _silent -= 1
            _functorch._set_vmap_fallback_warning_enabled(_silent == 0)


_ATTRIBUTE: Any = torch.Tensor.requires_grad
_SET_REQUIRES_GRAD = _ATTRIBUTE.__set__

_APART: dict[Any, Callable[..., torch.Tensor]] = {
    torch.Tensor.addcdiv_: torch.addcdiv,
    torch.Tensor.addcmul_: torch.addcmul,
    torch.Tensor.lerp_: torch.lerp,
}
"""What is done in place, and how it is done apart: `vmap` does the first for one by one only."""

_FACTORS: dict[Any, str] = {
    getattr(owner, name + end): factor
    for name, factor in (
        *(("add", "alpha"), ("sub", "alpha"), ("addcdiv", "value"), ("addcmul", "value")),
    )
    for owner, end in ((torch, ""), (torch.Tensor, ""), (torch.Tensor, "_"))
}
"""What multiplies by a number, and the number's name. A tensor that is given for it is read: each
client has its own, so the product is taken beforehand."""


def _embedding(
    input: torch.Tensor,
    weight: torch.Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> torch.Tensor:
    """The rows of a table. `vmap` forgets what is said of gradients: here the row for padding has
    none because it is apart."""
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise NotBatchableError("it has an embedding that scales rows or gradients, or is sparse")
    if padding_idx is not None:
        is_padding = torch.arange(weight.shape[0]) == padding_idx % weight.shape[0]
        weight = torch.where(is_padding.unsqueeze(1), weight.detach(), weight)
    return torch.nn.functional.embedding(input, weight)


def _column_stack(tensors: Sequence[torch.Tensor], *, out: Any = None) -> torch.Tensor:
    """Columns beside each other: `vmap` has no rule for the operation itself."""
    if out is not None:
        raise NotBatchableError("it puts columns into a tensor that is there")
    columns = [each if each.dim() > 1 else each.reshape(-1, 1) for each in tensors]
    return torch.cat(columns, dim=1)


_READ: dict[Any, str] = {
    getattr(torch.Tensor, name): name for name in ("item", "__float__", "__int__")
}


def _number(kind: str, tensor: torch.Tensor) -> torch.Tensor:
    """What a program reads of a tensor: each client's own, as wide as Python has it."""
    is_float = kind == "__float__" or (kind == "item" and tensor.dtype.is_floating_point)
    if tensor.dtype.is_floating_point and not is_float:
        raise NotBatchableError("it reads an integer of a float")
    kept = torch.float64 if is_float else torch.int64
    return tensor.detach().reshape(()).to(kept, copy=True)


_TENSORS = frozenset({torch.tensor, torch.as_tensor, torch.scalar_tensor, torch.full})
"""What makes a tensor of a number."""


def _tensor_of(
    func: Any, number: torch.Tensor, sizes: Sequence[int], *, dtype: Any = None, **how: Any
) -> torch.Tensor:
    if how:
        raise NotBatchableError("it makes a tensor of a number that it reads in another form")
    # `scalar_tensor` has the default element type.
    is_whole = not number.is_floating_point() and func is not torch.scalar_tensor
    usual = torch.int64 if is_whole else torch.get_default_dtype()
    return number.to(dtype or usual, copy=True).expand(tuple(sizes)).clone()


_OF_NUMBERS = frozenset({"add", "radd", "sub", "rsub", "mul", "rmul", "neg"})
"""What is done with numbers alone, and raises for none of them."""

_QUOTIENTS = frozenset({"truediv", "div"})
"""The same where the divisor is known."""


def _normalize(
    input: torch.Tensor,
    p: float = 2.0,
    dim: int = 1,
    eps: float = 1e-12,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Vectors of length one. What is to be put into a tensor is made before."""
    found = torch.nn.functional.normalize(input, p, dim, eps)
    return found if out is None else out.copy_(found)


def _vdot(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """A product of vectors: `vmap` has no rule for the operation itself."""
    return (left.conj() * right).sum()


def _set_item(input: torch.Tensor, key: Any, value: Any) -> None:
    """What is written where a mask says so: `vmap` has no rule for places that data decide."""
    mask, *rest = key if isinstance(key, tuple) else (key,)
    is_one = not isinstance(value, torch.Tensor) or value.dim() == 0
    if not is_one or not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool:
        input[key] = value
        return
    if any(each is not None and type(each) not in (int, slice) for each in rest):
        input[key] = value
        return
    written = input[(*[slice(None)] * mask.dim(), *rest)]
    beside = [1] * (written.dim() - mask.dim())
    if mask.shape != input.shape[: mask.dim()]:
        raise IndexError(
            f"The shape of the mask {[*mask.shape]} does not match the shape of the indexed tensor "
            f"{[*input.shape]}"
        )
    written.masked_fill_(mask.reshape([*mask.shape, *beside]), value)


_COMPOSED: dict[Any, Callable[..., Any]] = {
    torch.Tensor.__setitem__: _set_item,
    torch.nn.functional.normalize: _normalize,
    torch.vdot: _vdot,
    torch.nn.functional.embedding: _embedding,
    torch.column_stack: _column_stack,
}
"""What consists of other operations here, as `vmap` lacks rules for it, or forgets something."""


def _parameter(data: torch.Tensor, requires_grad: bool = True) -> Any:
    """`torch.nn.Parameter` as a function: who watches operations is told of its calls."""
    if has_torch_function((data,)):
        return handle_torch_function(_parameter, (data,), data, requires_grad)
    return torch.nn.Parameter(data, requires_grad)


LINKED: dict[str, Any] = {"torch.nn.Parameter": _parameter, **NUMBERS, **PAIRS}
"""What programs call in the place of what their texts name."""


class _Gradients(TorchFunctionMode):
    """Takes gradients of the tensors beneath those that operations see."""

    def __init__(
        self,
        count: int,
        states: list[torch.Tensor] | None,
        level: int,
        owns: bool,
        padding: Padding | None = None,
    ) -> None:
        super().__init__()
        self._owns = owns
        self._padding = padding
        self._count = count
        self._states = states
        self._level = level
        # Numbers that were read of tensors.
        self._numbers: Any = WeakIdKeyDictionary()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._padding is None:
            found = self._called(func, args, kwargs)
        elif self._draws_rows(func, args, kwargs):
            states: Any = self._states
            found = drawn_for_rows(self._padding, func, args, kwargs, states, self._level)
        else:
            found = self._padding.called(func, args, kwargs, self._called)
        return self._own(found, (args, kwargs)) if self._owns else found

    def _draws_rows(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether what a call draws depends on how many rows there are."""
        return (
            self._states is not None
            and self._padding is not None
            and not is_made(func)
            and self._padding.is_met((args, kwargs))
            and is_drawing(func, args, kwargs)
        )

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is torch.Tensor.requires_grad_ or func == _SET_REQUIRES_GRAD:
            return self._require(*args, **kwargs)
        if func is _parameter:
            return self._require(args[0].detach(), *args[1:], **kwargs)
        if func is torch.autograd.grad:
            return self._gradients(*args, **kwargs)
        if (kind := _READ.get(func)) is not None and _functorch.is_batchedtensor(args[0]):
            self._numbers[read := _number(kind, args[0])] = True
            return read
        if self._numbers and func in _TENSORS:
            number = args[1] if func is torch.full and len(args) > 1 else args[0]
            if isinstance(number, torch.Tensor) and number in self._numbers:
                sizes = args[0] if func is torch.full else ()
                return _tensor_of(func, number, sizes, **kwargs)
        if self._numbers and self._is_of_numbers(func, args, kwargs):
            if name_of(func) in _QUOTIENTS:
                args = (args[0].double(), *args[1:])
            self._numbers[read := func(*args, **kwargs)] = True
            return read
        if (composed := _COMPOSED.get(func)) is not None:
            return composed(*args, **kwargs)
        if (unrolled := RECURRENT.get(func)) is not None:
            try:
                return unrolled(*args, **kwargs, count=self._count)
            except NotUnrolledError as error:
                raise NotBatchableError(str(error)) from error
        if self._states is not None and is_drawing(func, args, kwargs):
            found = drawn(func, args, kwargs, self._states, self._level)
            if found is NotImplemented:
                raise NotBatchableError("it draws into a tensor that isn't each client's own")
            return found
        factor = _FACTORS.get(func)
        number = None if factor is None else kwargs.get(factor)
        if isinstance(number, torch.Tensor) and len(args) > 1:
            kwargs = {name: value for name, value in kwargs.items() if name != factor}
            args = (args[0], args[1] * number, *args[2:])
        if isinstance(out := kwargs.get("out"), torch.Tensor):
            # `vmap` has no rules for what is written to another tensor.
            made = func(*args, **{name: each for name, each in kwargs.items() if name != "out"})
            if not isinstance(made, torch.Tensor) or made.shape != out.shape:
                raise NotBatchableError("what it writes to a tensor has another size")
            return out.copy_(made)
        if (apart := _APART.get(func)) is not None:
            return args[0].copy_(apart(*args, **kwargs))
        return func(*args, **kwargs)

    def _is_of_numbers(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether something is computed with numbers that were read, and no tensor. They stand for
        Python's beside tensors; otherwise Python's arithmetic is another one, and may raise."""
        given = list(tensors_in((args, kwargs)))
        if not given or not all(tensor in self._numbers for tensor in given):
            return False
        name = name_of(func)
        is_wider = name.endswith("mul") and not any(each.is_floating_point() for each in given)
        divisor = args[1] if name in _QUOTIENTS and len(args) == 2 else None
        is_known = (name in _OF_NUMBERS and not is_wider) or (
            type(divisor) in (int, float) and divisor != 0
        )
        if not is_known:
            raise NotBatchableError("it computes with a number that it reads of a tensor")
        return True

    def _own(self, found: Any, given: Any) -> Any:
        """What an operation gave, which every client has for itself if it is new."""
        if isinstance(found, (tuple, list)) and type(found) in (tuple, list):
            return type(found)(self._own(part, given) for part in found)
        if (
            not isinstance(found, torch.Tensor)
            or _functorch.is_batchedtensor(found)
            or found.nbytes * self._count > MOST
            or memory_of(found) in {memory_of(tensor) for tensor in tensors_in(given)}
        ):
            return found
        all_own = found.unsqueeze(0).repeat(self._count, *[1] * found.dim())
        own = _functorch._add_batch_dim(all_own, 0, self._level)
        if self._padding is not None:
            self._padding.follow(found, own)
        return own

    def _require(self, tensor: torch.Tensor, requires_grad: bool = True) -> torch.Tensor:
        beneath, before = _beneath(tensor), _functorch.get_inplace_requires_grad_allowed()
        # PyTorch forbids it within transformations, where it would be done to what operations see.
        _functorch.set_inplace_requires_grad_allowed(True)
        try:
            beneath.requires_grad_(requires_grad)
        finally:
            _functorch.set_inplace_requires_grad_allowed(before)
        return tensor

    def _gradients(
        self,
        outputs: Any,
        inputs: Any,
        grad_outputs: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        only_inputs: bool = True,
        allow_unused: bool | None = None,
        is_grads_batched: bool = False,
        materialize_grads: bool = False,
    ) -> tuple[Any, ...]:
        if is_grads_batched:
            return self._of_many(
                outputs,
                inputs,
                grad_outputs,
                create_graph=create_graph,
                allow_unused=allow_unused,
                materialize_grads=materialize_grads,
            )
        outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
        inputs = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
        level = _functorch.maybe_get_level(outputs[0])
        given: list[Any] = [None] * len(outputs)
        if isinstance(grad_outputs, torch.Tensor):
            given = [grad_outputs]
        elif grad_outputs is not None:
            given = list(grad_outputs)
        roots = [self._with_clients(output) for output in outputs]
        starts = []
        for output, root, start in zip(outputs, roots, given, strict=True):
            if start is None and output.numel() != 1:
                raise NotBatchableError("it takes the gradient of something else than a number")
            starts.append(torch.ones_like(root) if start is None else self._with_clients(start))
        leaves = [_beneath(tensor) for tensor in inputs]
        gradients = torch.autograd.grad(
            roots,
            leaves,
            starts,
            retain_graph,
            create_graph,
            only_inputs,
            allow_unused,
            False,
            materialize_grads,
        )
        return tuple(
            gradient
            if gradient is None
            else _functorch._add_batch_dim(gradient, _functorch.maybe_get_bdim(tensor), level)
            for gradient, tensor in zip(gradients, inputs, strict=True)
        )

    def _of_many(self, outputs: Any, inputs: Any, grad_outputs: Any, **how: Any) -> tuple[Any, ...]:
        """The gradients for each of many starts, which have a first dimension for that: one after
        the other, as PyTorch does it by `vmap` itself."""
        starts = [grad_outputs] if isinstance(grad_outputs, torch.Tensor) else list(grad_outputs)
        found = [
            self._gradients(
                outputs, inputs, [start.select(0, at) for start in starts], retain_graph=True, **how
            )
            for at in range(starts[0].shape[0])
        ]
        if not found:
            raise NotBatchableError("it takes gradients in an empty batch")
        return tuple(
            None if column[0] is None else torch.stack(column)
            for column in zip(*found, strict=True)
        )

    def _with_clients(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor beneath, with the clients first."""
        if not _functorch.is_batchedtensor(tensor):
            return tensor.expand(self._count, *tensor.shape)
        return _beneath(tensor).movedim(_functorch.maybe_get_bdim(tensor), 0)


def _beneath(tensor: torch.Tensor) -> torch.Tensor:
    if not _functorch.is_batchedtensor(tensor):
        raise NotBatchableError("it takes a gradient for a tensor that is the same for all clients")
    beneath: torch.Tensor = _functorch.get_unwrapped(tensor)
    return beneath
