"""PyTorch's operator database, and the numbers in its sample inputs.

What the database lacks stands in `MORE`: calls of operators that other operators are made of, and of functions that
it doesn't list.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import itertools
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

SAMPLES = 40


def operator_database() -> Any:
    """PyTorch's `op_db`, whose module wants `expecttest` for something that isn't used here."""
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stub
    from torch.testing._internal.common_methods_invocations import op_db

    # Its import forbids assignments to flags of `torch.backends` from then on.
    torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True
    return op_db


class Call(NamedTuple):
    """A call of an operator, as its sample inputs have it."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Slot(NamedTuple):
    """A number among the arguments of a call: the steps that lead to it, from `(args, kwargs)`."""

    path: tuple[Any, ...]
    number: Any


def calls(op: Any) -> Iterator[Call]:
    """The operator's sample inputs, for each way to call it."""
    dtype = torch.float32
    if not op.supports_dtype(dtype, "cpu"):
        supported = op.supported_dtypes("cpu")
        if not supported:
            return
        dtype = torch.int64 if torch.int64 in supported else sorted(supported, key=str)[0]
    for sample in itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES):
        args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
        call = Call(op.name, op.op, args, kwargs)
        yield call
        if named := by_name(call):
            yield named
        if op.method_variant is not None:
            yield Call(f"Tensor.{op.name}", op.method_variant, args, kwargs)
        if op.inplace_variant is not None:
            yield Call(f"{op.name}_", op.inplace_variant, args, kwargs)


def by_name(call: Call) -> Call | None:
    """The same call with all arguments behind the first given by name, if the operator says what theirs are."""
    if len(call.args) < 2:
        return None
    for names in parameters(call):
        given = dict(zip(names[1:], call.args[1:], strict=False))
        if len(given) < len(call.args) - 1 or given.keys() & call.kwargs.keys():
            continue
        named = Call(f"{call.name} by name", call.function, call.args[:1], given | call.kwargs)
        with contextlib.suppress(Exception):
            call.function(*copied(named.args), **copied(named.kwargs))
            return named
    return None


def parameters(call: Call) -> Iterator[list[str]]:
    """What the parameters of an operator might be called: by its schemas, or by its signature."""
    name = getattr(call.function, "__name__", "").rpartition(".")[2]
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}") if name else ():
        yield [argument.name for argument in schema.arguments]
    with contextlib.suppress(ValueError, TypeError):
        yield list(inspect.signature(call.function).parameters)


def more_calls() -> Iterator[Call]:
    """Calls of what the database doesn't list."""
    for function, *given in MORE:
        kwargs = given.pop() if given and isinstance(given[-1], dict) else {}
        yield Call(getattr(function, "__qualname__", str(function)), function, tuple(given), kwargs)


def square(*sizes: int) -> Tensor:
    torch.manual_seed(0)
    return torch.rand(sizes)


NN = torch._C._nn
ATEN = torch.ops.aten
QUANTIZED = torch.quantize_per_tensor(torch.arange(8.0).reshape(1, 2, 4), 0.5, 0, torch.quint8)

MORE: list[tuple[Any, ...]] = [
    *((window, 5) for window in (torch.bartlett_window, torch.blackman_window, torch.hann_window)),
    *((window, 5) for window in (torch.hamming_window, torch.kaiser_window)),
    (torch.signal.windows.hann, 5),
    (torch.signal.windows.cosine, 5),
    (torch.fft.fftfreq, 5, 0.5),
    (torch.fft.rfftfreq, 5, 0.5),
    (torch.rand, 2, 3),
    (torch.rand, (2, 3)),
    (torch.randn, {"size": (2, 3)}),
    (torch.randperm, 4),
    (torch.randint, 5, (2, 3)),
    (torch.randint, 2, 5, (2,)),
    (torch.randint_like, square(3), 5),
    (torch.range, 0, 4, 1),
    (torch.tril_indices, 3, 3, 1),
    (torch.triu_indices, 3, 3, 1),
    (torch.vander, square(3), 2),
    (torch.full, (2, 3), 1.5),
    (torch.full_like, square(3), 1.5),
    (torch.empty_strided, (2, 3), (3, 1)),
    (torch.scalar_tensor, 3.0),
    (torch.tensor, [1, 2]),
    (torch.as_tensor, [1.0, 2.0]),
    (torch.moveaxis, square(2, 3), 0, 1),
    (torch.moveaxis, square(2, 3, 4), (0, 1), (1, 0)),
    (torch.swapaxes, square(2, 3), 0, 1),
    (torch.swapdims, square(2, 3), 0, 1),
    (torch.concat, [square(2, 3), square(2, 3)], 1),
    (torch.concatenate, [square(2, 3), square(2, 3)], {"axis": 1}),
    (torch.unsafe_split, square(6), 2),
    (torch.unsafe_split_with_sizes, square(6), [2, 4]),
    (torch.split_copy, square(6), 2),
    (torch.slice_copy, square(6), 0, 1, 4, 2),
    (torch.select_copy, square(3, 3), 0, 1),
    (torch.tensordot, square(3, 3), square(3, 3), 1),
    (torch.tensordot, square(3, 3), square(3, 3), ([0], [1])),
    (torch.unflatten, square(2, 6), 1, (2, 3)),
    (torch.unravel_index, torch.tensor([3, 4]), (2, 4)),
    (torch.cdist, square(2, 3), square(2, 3), 2.0),
    (torch.norm, square(2, 3), 2, 1),
    (torch.norm_except_dim, square(2, 3), 2, 0),
    (torch.nuclear_norm, square(2, 3, 3), (1, 2)),
    (torch.frobenius_norm, square(2, 3), (1,)),
    (torch.istft, torch.stft(torch.ones(32), 8, return_complex=True), 8, {"length": 20}),
    (torch.stft, square(32), 8, 4, 8, {"return_complex": True}),
    (torch.polygamma, 1, square(3)),
    (torch.special.multigammaln, square(3) + 3, 2),
    (torch.special.polygamma, 1, square(3)),
    (torch.fake_quantize_per_tensor_affine, square(3), 0.1, 0, 0, 255),
    (torch.quantize_per_tensor, square(3), 0.1, 0, torch.quint8),
    (torch.quantized_max_pool1d, QUANTIZED, [2]),
    (torch.native_channel_shuffle, square(1, 4, 2), 2),
    (torch.native_group_norm, square(1, 4, 2), None, None, 1, 4, 2, 2, 1e-5),
    (torch.convolution, square(1, 2, 5), square(2, 2, 1), None, [1], [0], [1], False, [0], 1),
    (
        torch.lstm,
        square(2, 1, 3),
        [torch.zeros(1, 1, 2)] * 2,
        [square(8, 3), square(8, 2)],
        False,
        1,
        0.0,
        False,
        False,
        False,
    ),
    (torch.constant_pad_nd, square(2, 3), [0, 1], 0.5),
    (torch.group_norm, square(1, 4, 2), 2),
    (torch.pixel_shuffle, square(1, 4, 2, 2), 2),
    (torch.diag_embed, square(3), 1, 0, 1),
    (torch.segment_reduce, square(4), "sum", {"lengths": torch.tensor([2, 2]), "axis": 0}),
    (torch.combinations, square(4), 2),
    (torch.bincount, torch.tensor([1, 2]), {"minlength": 4}),
    (torch.bucketize, square(4), square(3)),
    (torch.lobpcg, torch.eye(9) * torch.arange(1.0, 10.0), 1, None, None, 2),
    (torch.pca_lowrank, square(4, 4), 2, True, 1),
    (torch.svd_lowrank, square(4, 4), 2, 1),
    (torch.sparse_coo_tensor, torch.tensor([[0, 1]]), square(2), (3,)),
    (NN.reflection_pad1d, square(1, 5), [1, 1]),
    (NN.replication_pad2d, square(1, 5, 5), [1, 1, 0, 1]),
    (NN.upsample_nearest2d, square(1, 1, 4, 4), [2, 3]),
    (NN.upsample_bilinear2d, square(1, 1, 4, 4), [2, 3], True),
    (NN.upsample_nearest1d, square(1, 1, 4), [2]),
    (NN.im2col, square(1, 1, 6, 6), [2, 2], [1, 1], [0, 0], [1, 1]),
    (NN.col2im, square(1, 4, 25), [6, 6], [2, 2], [1, 1], [0, 0], [1, 1]),
    (NN.thnn_conv2d, square(1, 1, 5, 5), square(1, 1, 2, 2), [2, 2], None, [1, 1], [0, 0]),
    (NN.max_pool2d_with_indices, square(1, 4, 4), [2, 2], [1, 1]),
    (F.fold, square(1, 4, 25), (6, 6), (2, 2)),
    (F.upsample, square(1, 1, 4), 6),
    (F.interpolate, square(1, 1, 4), {"scale_factor": 2.0}),
    (F.interpolate, square(1, 1, 4), {"scale_factor": 2.0, "recompute_scale_factor": True}),
    (F.interpolate, square(1, 1, 4), {"size": [6]}),
    (F.pad, square(1, 2, 3), (1, 2), "circular"),
    (F.max_unpool1d, *F.max_pool1d(square(1, 1, 4), 2, return_indices=True), 2),
    (F.fractional_max_pool2d, square(1, 1, 5, 5), 2, (3, 3)),
    (F.fractional_max_pool2d, square(1, 1, 5, 5), 2, {"output_ratio": (0.5, 0.5)}),
    (F.gumbel_softmax, square(2, 3), 0.5, False, 1e-10, 1),
    (F.lp_pool1d, square(1, 1, 6), 2.0, 2, 1),
    (F.affine_grid, square(1, 2, 3), [1, 1, 4, 4]),
    (Tensor.resize_, square(4), 2, 2),
    (Tensor.random_, square(4), 1, 5),
    (Tensor.new_full, square(4), (2, 3), 1.5),
    (Tensor.new_empty_strided, square(4), (2, 3), (3, 1)),
    (Tensor.new_zeros, square(4), 2, 3),
    (Tensor.expand, square(1, 3), 2, 3),
    (Tensor.repeat, square(1, 3), 2, 3),
    (Tensor.permute, square(1, 3), 1, 0),
    (Tensor.view, square(2, 6), 4, 3),
    (Tensor.reshape, square(2, 6), 4, 3),
    (Tensor.flip, square(2, 6), 0, 1),
    (Tensor.size, square(2, 6), 1),
    (Tensor.stride, square(2, 6), 1),
    (Tensor.split, square(6), 2, 0),
    (Tensor.unflatten, square(6), 0, (2, 3)),
    (Tensor.put_, square(6), torch.tensor([1]), square(1), False),
    (Tensor.fill_diagonal_, square(3, 3), 2.0, True),
    (Tensor.geometric_, square(3), 0.5),
    (Tensor.normal_, square(3), 0.0, 1.0),
    (Tensor.bernoulli_, square(3), 0.5),
    (Tensor.cauchy_, square(3), 0.0, 1.0),
    (Tensor.__getitem__, square(4, 3), (slice(0, 2, 1), 1)),
    (Tensor.__getitem__, square(4, 3), (..., [0, 1])),
    (Tensor.index_put_, square(4), (torch.tensor([1]),), torch.tensor(2.0), True),
    (Tensor.sum_to_size, square(2, 3), 1, 3),
    (Tensor.narrow, square(6), 0, 1, 3),
    (Tensor.unsqueeze, square(6), 1),
    (ATEN.constant_pad_nd, square(2, 3), [0, 1]),
    (ATEN.split.Tensor, square(6), 2),
    (ATEN.sum.dim_IntList, square(2, 3), [1], True),
    (ATEN.slice.Tensor, square(6), 0, 1, 4, 2),
    (ATEN.arange.start_step, 0, 6, 2),
    (ATEN.full, [2, 3], 1.5),
    (ATEN.upsample_nearest1d.vec, square(1, 1, 4), None, [2.0]),
    (ATEN.avg_pool2d, square(1, 4, 4), [2, 2], [1, 1]),
    (ATEN.cumsum, square(2, 3), 1),
    (ATEN.topk, square(2, 3), 2, 1),
    (ATEN.tensor_split.sections, square(6), 3),
    (ATEN.expand, square(1, 3), [2, 3]),
]


def slots(value: Any, path: tuple[Any, ...] = ()) -> Iterator[Slot]:
    """The numbers in an argument, those in containers and slices too."""
    match value:
        case bool() | int() | float():
            yield Slot(path, value)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from slots(item, (*path, index))
        case dict():
            for key, item in value.items():
                yield from slots(item, (*path, key))
        case slice():
            for part in ("start", "stop", "step"):
                yield from slots(getattr(value, part), (*path, part))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with something else at a path. A `torch.Size` becomes a tuple."""
    if not path:
        return new
    step, rest = path[0], path[1:]
    match value:
        case list():
            return [replaced(v, rest, new) if i == step else v for i, v in enumerate(value)]
        case tuple():
            items = [replaced(v, rest, new) if i == step else v for i, v in enumerate(value)]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        case dict():
            return {k: replaced(v, rest, new) if k == step else v for k, v in value.items()}
        case slice():
            parts = {part: getattr(value, part) for part in ("start", "stop", "step")}
            parts[step] = replaced(parts[step], rest, new)
            return slice(parts["start"], parts["stop"], parts["step"])
    raise TypeError(type(value))


def copied(value: Any) -> Any:
    """The same arguments in other tensors."""
    match value:
        case Tensor():
            return value.detach().clone().requires_grad_(value.requires_grad and value.is_leaf)
        case list():
            return [copied(item) for item in value]
        case tuple() if type(value) is tuple:
            return tuple(copied(item) for item in value)
        case dict():
            return {key: copied(item) for key, item in value.items()}
        case slice():
            return slice(copied(value.start), copied(value.stop), copied(value.step))
    return value
