"""Tensors that sizes, strides, type and device don't wholly describe: guarded wholly, or a break.

Every kind is read, taken apart, computed with, handed on and made inside, by a function that has seen
one tensor of that kind twice; then it is given others of other inner facts. What it gives and what it
raises is what plain Python does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor
from torch._subclasses import FakeTensorMode

import stator

nested = torch.nested.nested_tensor


class Wrapper(Tensor):
    """Two tensors that look like one; says nothing of the second."""

    inner: Tensor
    scale: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor, scale: Tensor) -> Wrapper:
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: Tensor, scale: Tensor) -> None:
        self.inner, self.scale = inner, scale

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Wrapper({self.inner}, {self.scale})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def open_(value: Any) -> Any:
            return value.inner * value.scale if isinstance(value, cls) else value

        args, kwargs = torch.utils._pytree.tree_map(open_, (args, kwargs or {}))
        return func(*args, **kwargs)


class Counted(Tensor):
    """Knows its own length better."""

    factor = 1

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        if func is Tensor.size or func is Tensor.numel:
            return [args[0].factor]
        return result


def counted(values: list[float], factor: int) -> Counted:
    made = torch.tensor(values).as_subclass(Counted)
    made.factor = factor
    return made


def sparse(*cells: tuple[int, float], length: int = 3) -> Tensor:
    places, values = zip(*cells, strict=True)
    return torch.sparse_coo_tensor(torch.tensor([places]), torch.tensor(values), (length,))


def matrix(*ones: tuple[int, int]) -> Tensor:
    made = torch.zeros(2, 4)
    for row, column in ones:
        made[row, column] = 1.0
    return made


def quantized(scale: float, zero: int) -> Tensor:
    return torch.quantize_per_tensor(torch.arange(3.0), scale, zero, torch.qint8)


def channels(scale: float, axis: int) -> Tensor:
    scales, zeros = torch.tensor([scale, 0.1]), torch.tensor([0, 1])
    return torch.quantize_per_channel(torch.ones(2, 2), scales, zeros, axis, torch.qint8)


def fake(size: int) -> Tensor:
    with FakeTensorMode(allow_non_fake_inputs=True):
        return torch.ones(size)


RAGGED = [
    [torch.ones(2), torch.ones(3)],
    [torch.ones(4), torch.ones(1), torch.ones(2)],
    [torch.ones(3), torch.ones(2)],
]
CELLS = [[(0, 0), (1, 1)], [(0, 0), (0, 1), (1, 3)], [(1, 2), (1, 3)]]
KINDS: dict[str, Callable[[], list[Tensor]]] = {
    "nested": lambda: [nested(parts) for parts in RAGGED],
    "nested and contiguous": lambda: [nested([torch.ones(2, n), torch.ones(2, 3)]) for n in (2, 4, 3)],
    "jagged": lambda: [nested(parts, layout=torch.jagged) for parts in RAGGED],
    "coo": lambda: [
        sparse((0, 1.0), (2, 2.0)),
        sparse((0, 1.0)),
        sparse((0, 1.0), (0, 2.0), (1, 3.0)),
        sparse((0, 1.0), length=5),
    ],
    "coo coalesced": lambda: [matrix(*cells).to_sparse() for cells in CELLS],
    "coo hybrid": lambda: [matrix(*CELLS[0]).to_sparse(1), matrix(*CELLS[1]).to_sparse(2)],
    "csr": lambda: [matrix(*cells).to_sparse_csr() for cells in CELLS],
    "csc": lambda: [matrix(*cells).to_sparse_csc() for cells in CELLS],
    "bsr": lambda: [matrix(*CELLS[1]).to_sparse_bsr((1, 2)), matrix(*CELLS[1]).to_sparse_bsr((2, 2))],
    "bsc": lambda: [matrix(*CELLS[1]).to_sparse_bsc((1, 2)), matrix(*CELLS[1]).to_sparse_bsc((2, 1))],
    "quantized": lambda: [quantized(0.1, 0), quantized(0.5, 0), quantized(0.1, 3)],
    "quantized by channel": lambda: [channels(0.2, 0), channels(0.3, 0), channels(0.2, 1)],
    "mkldnn": lambda: [torch.ones(2, 2).to_mkldnn(), torch.zeros(2, 2).to_mkldnn(), torch.ones(3, 2).to_mkldnn()],
    "conj": lambda: [
        torch.tensor([1 + 2j, 2j]).conj(),
        torch.tensor([1 + 2j, 3j]),
        torch.tensor([1 + 2j, 3j]).conj(),
    ],
    "neg": lambda: [torch.tensor([1 + 2j]).conj().imag, torch.tensor([1 + 2j]).imag, torch.tensor([3 + 2j]).conj().imag],
    "named": lambda: [torch.ones(2, 3, names=names) for names in (("a", "b"), ("b", "a"), ("a", None))],
    "zeros": lambda: [torch._efficientzerotensor((2,)), torch._efficientzerotensor((3,)), torch.ones(2)],
    "wrapper": lambda: [Wrapper(torch.ones(2), torch.tensor(n)) for n in (1.0, 2.0)] + [Wrapper(torch.ones(3), torch.tensor(1.0))],
    "function": lambda: [counted([1.0, 2.0], 1), counted([1.0, 2.0], 2), counted([3.0, 2.0, 1.0], 7)],
    "meta": lambda: [torch.ones(2, device="meta"), torch.ones(3, device="meta"), torch.ones(2)],
    "fake": lambda: [fake(2), fake(3), fake(2)],
    "zero-dim": lambda: [torch.tensor(1.0), torch.tensor([1.0]), torch.tensor(2.0)],
    "expanded": lambda: [torch.ones(1).expand(3), torch.ones(3), torch.ones(1, 1).expand(1, 4)[0]],
    "overlapping": lambda: [torch.arange(9.0).as_strided((3, 2), (s, 1)) for s in (1, 2, 0)],
    "inference": lambda: [inference(2), torch.ones(2), inference(3)],
}  # fmt: skip
# PyTorch 2.15 has no names of dimensions.
HAS_NAMES = hasattr(Tensor, "rename")
if not HAS_NAMES:
    del KINDS["named"]


def freed(tensor: Tensor) -> Tensor:
    tensor.untyped_storage().resize_(0)
    return tensor


def inference(size: int) -> Tensor:
    with torch.inference_mode():
        return torch.ones(size)


def reads_sizes(x: Tensor) -> Any:
    return x.size(0), x.dim(), x.numel(), x.layout, x.is_nested, x.is_sparse, x.is_quantized


def reads_shape(x: Tensor) -> Any:
    return x.shape, x.ndim, len(x)


def reads_by_function(x: Tensor) -> Any:
    return torch.numel(x), torch.is_conj(x), Tensor.dim(x), torch.is_floating_point(x)


def reads_through_class(x: Tensor) -> Any:
    return Tensor.size(x), Tensor.stride(x)


def takes_apart(x: Tensor) -> Any:
    return [(part + 1, part.shape, part.numel() * 2) for part in x.unbind()]


def iterates(x: Tensor) -> Any:
    return [part.sum() / part.numel() for part in x]


def means_by_count(x: Tensor) -> Any:
    return x.sum() / x.numel()


def computes(x: Tensor) -> Any:
    return x * 2, (x * 2).size(0)


def adds(x: Tensor) -> Any:
    return (x + x).shape, x + x


def fills(x: Tensor) -> Any:
    return torch.zeros_like(x), torch.zeros_like(x).size()


def multiplies(x: Tensor) -> Any:
    return x @ torch.ones(x.shape[-1])


def to_dense(x: Tensor) -> Any:
    dense = x.to_dense()
    return dense.sum() / dense.shape[0], dense.numel()


def dequantizes(x: Tensor) -> Any:
    return x.dequantize() * x.q_scale() if x.is_quantized else x.clone()


def quantity(x: Tensor) -> Any:
    return x.q_zero_point(), x.q_scale(), x.int_repr()


def values(x: Tensor) -> Any:
    return x.coalesce().values(), x.coalesce().indices().shape


def counts(x: Tensor) -> Any:
    return x._nnz(), x.is_coalesced(), x.dense_dim(), x.sparse_dim()


def pads(x: Tensor) -> Any:
    padded = x.to_padded_tensor(0.0)
    return padded, padded.shape


def hands_on(x: Tensor) -> Any:
    return [x, {"x": x}], torch.ones(2) + 1


def branches(x: Tensor) -> Any:
    return torch.ones(2) * 3 if x.shape[0] == 2 else torch.ones(2) * 4


def asks_type(x: Tensor) -> Any:
    return isinstance(x, Tensor), type(x).__name__, torch.is_tensor(x), x is None


def resolves(x: Tensor) -> Any:
    return x.resolve_conj().is_conj(), x.resolve_neg(), x.real


def names(x: Tensor) -> Any:
    return x.names, (x * 2).names


def concatenates(x: Tensor) -> Any:
    joined = torch.cat([x, x])
    return joined, joined.shape


def in_place(x: Tensor) -> Any:
    y = x.clone()
    y.mul_(2)
    return y, y.shape


def strides(x: Tensor) -> Any:
    return x.stride(), x.is_contiguous(), x.reshape(-1).stride()


def attributes(x: Tensor) -> Any:
    return getattr(x, "factor", 0) * 2, getattr(x, "scale", 0)


def reduces(x: Tensor) -> Any:
    return sum([x, x]), max([1, 2], key=lambda n: x.shape[0] * n)


class Holder(torch.nn.Module):
    """Has the tensor as a buffer."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self.register_buffer("held", tensor)

    def forward(self, x: Tensor) -> Any:
        return x + 1, self.held.size(0), self.held * 2


PROGRAMS = [
    reads_sizes, reads_shape, reads_by_function, reads_through_class, takes_apart, iterates, means_by_count,
    computes, adds, fills, multiplies, to_dense, dequantizes, quantity, values, counts, pads, hands_on, branches,
    asks_type, resolves, names, concatenates, in_place, strides, attributes, reduces,
]  # fmt: skip


def seen(value: Any) -> Any:
    """What can be told of a value, tensors by everything that PyTorch says of them."""
    if isinstance(value, (list, tuple)):
        return type(value), [seen(item) for item in value]
    if isinstance(value, dict):
        return [(key, seen(item)) for key, item in value.items()]
    if not isinstance(value, Tensor):
        return type(value), value
    facts = [type(value), str(value.layout), value.dtype, value.is_quantized, value.requires_grad]
    if value.layout in (torch.sparse_coo, torch.strided) and not value.is_nested:
        facts += [value.is_conj(), value.is_neg(), tuple(value.shape)]
    if value.device.type == "meta" or type(value).__name__ == "FakeTensor":
        return facts
    if value.is_nested:
        return facts, [part.tolist() for part in value.unbind()]
    if value.layout == torch.strided and value.untyped_storage().nbytes() == 0:
        return facts
    return facts, repr(value)


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return seen(fn(*args))
    except Exception as error:
        return type(error), str(error)


@pytest.fixture(autouse=True)
def quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("kind", KINDS)
def test_programs_give_what_plain_python_gives(kind: str) -> None:
    for program in PROGRAMS:
        compiled = api.compile(program)
        made = KINDS[kind]()
        for index in [0, 0, 0, *range(1, len(made)), 0]:
            expected, found = outcome(program, made[index]), outcome(compiled, made[index])
            assert found == expected, (kind, program.__name__, index)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("fake", "meta", "zeros")])
def test_buffers_of_modules(kind: str) -> None:
    made = KINDS[kind]()
    plain, module = Holder(made[0]), Holder(made[0])
    compiled = api.compile(module)
    for tensor in [made[0], made[0], *made[1:]]:
        plain.held = module.held = tensor
        assert outcome(compiled, torch.ones(2)) == outcome(plain, torch.ones(2)), kind


def test_tensors_whose_memory_was_taken() -> None:
    # PyTorch itself crashes where it computes with one.
    for program in (reads_sizes, strides, hands_on, asks_type, branches):
        compiled = api.compile(program)
        for x in (freed(torch.ones(2)), freed(torch.ones(2)), torch.ones(2), freed(torch.ones(3))):
            assert outcome(compiled, x) == outcome(program, x)


def makes_coo(i: Tensor, v: Tensor) -> Any:
    made = torch.sparse_coo_tensor(i, v)
    return made.shape, made.to_dense().sum() / made.to_dense().shape[0]


def makes_csr(i: Tensor, v: Tensor) -> Any:
    rows = torch.arange(i.shape[1] + 1)
    made = torch.sparse_csr_tensor(rows, i[0], v)
    return made.shape, made.to_dense()


def makes_by_layout(i: Tensor, v: Tensor) -> Any:
    made = torch.zeros(int(i.shape[1]), 2, layout=torch.sparse_coo)
    return made._nnz(), made.shape, (i * 1.0).to_sparse()._nnz()


def makes_through_to(i: Tensor, v: Tensor) -> Any:
    made = (i * 1.0).to_sparse_csr() if i.dim() == 2 else i
    return made.values().shape, made.crow_indices()


def makes_nested(i: Tensor, v: Tensor) -> Any:
    made = torch.nested.as_nested_tensor([v, i[0] * 1.0])
    return made.size(0), [part.shape for part in made.unbind()], made.to_padded_tensor(0.0)


def makes_nested_from_mask(i: Tensor, v: Tensor) -> Any:
    made = torch._nested_tensor_from_mask((i * 1.0)[..., None], i.cumsum(1) > 0, mask_check=False)
    return [part.shape for part in made.unbind()]


def makes_quantized(i: Tensor, v: Tensor) -> Any:
    made = torch.quantize_per_tensor_dynamic(v, torch.quint8, False)
    return made.q_scale(), made.dequantize()


def makes_named(i: Tensor, v: Tensor) -> Any:
    made = torch.zeros(2, 2, names=("a", "b"))
    return made.names, made.rename(None) + v.sum()


def makes_mkldnn(i: Tensor, v: Tensor) -> Any:
    return v.to_mkldnn().to_dense() * 2


def makes_meta(i: Tensor, v: Tensor) -> Any:
    made = torch.empty(i.shape, device="meta")
    return made.shape, v * made.shape[1]


def makes_conj(i: Tensor, v: Tensor) -> Any:
    made = (v * 1j).conj()
    return made.is_conj(), made.imag.is_neg(), made.imag * 2


MADE = [
    makes_coo, makes_csr, makes_by_layout, makes_through_to, makes_nested, makes_nested_from_mask, makes_quantized,
    makes_mkldnn, makes_meta, makes_conj, *([makes_named] if HAS_NAMES else []),
]  # fmt: skip


@pytest.mark.parametrize("program", MADE)
def test_made_inside(program: Callable[..., Any]) -> None:
    compiled = api.compile(program)
    v = torch.ones(2)
    first = (torch.tensor([[0, 1], [1, 2]]), v)
    others = [
        (torch.tensor([[0, 5], [1, 1]]), v * 2),
        (torch.tensor([[0, 0], [4, 0]]), v * 3),
        first,
    ]
    for args in [first, first, first, *others]:
        for _ in range(2):
            assert outcome(compiled, *args) == outcome(program, *args)


def test_kinds_that_are_wholly_described_are_traced() -> None:
    for kind in ("conj", "neg", "meta", "zero-dim", "expanded", "overlapping"):
        compiled = api.compile(adds, fullgraph=True)
        made = KINDS[kind]()
        for tensor in [made[0], *made, *made]:
            compiled(tensor)
        replayed = api.hits(compiled)
        assert replayed is None or replayed > len(made), kind


def test_the_break_names_the_kind() -> None:
    for kind, word in (("nested", "nested"), ("csr", "sparse"), ("quantized", "quantized")):
        compiled = api.compile(reads_sizes, fullgraph=True)
        if not api.PLAIN:
            with pytest.raises(stator.GraphBreakError, match=rf"size of a Tensor \({word}\)"):
                compiled(KINDS[kind]()[0])
