"""The table of operations, compared with what the installed PyTorch says, and closed by default."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from soundness.pinned import is_pinned
from stator import _stator

ROOT = Path(__file__).resolve().parents[3]
ROWS = _stator._rows("operations")
# Owners that are searched for names; rows without an owner speak of all of them.
NAMESPACES = {
    "torch._C._VariableFunctions": torch._C._VariableFunctions,
    "torch._C._linalg": torch._C._linalg,
    "torch._C._fft": torch._C._fft,
    "torch._C._special": torch._C._special,
    "torch._C._nn": torch._C._nn,
    "torch.Tensor": Tensor,
}
# They end the trace whatever they're given.
BREAKS = {None, "Never", "ReadsData", "Sized"}
# They end the trace where what they're given doesn't say how large the result is.
CONDITIONAL = ("AtLeast", "IfGiven", "Counts", "EagerIf", "Indexing")


def tags_of(name: str) -> set[str]:
    """The tags of all overloads of an operator."""
    packet = getattr(torch.ops.aten, name, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return set()
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    return {tag.name for overload in overloads for tag in overload.tags}


def found_in(owner: str) -> Iterator[tuple[str, Any]]:
    for name in dir(NAMESPACES[owner]):
        value = getattr(NAMESPACES[owner], name)
        if callable(value) and not isinstance(value, type):
            yield name, value


@pytest.mark.parametrize(
    "script",
    [
        "gen_operators.py",
        pytest.param(
            "gen_direct.py",
            marks=[
                pytest.mark.skipif(not is_pinned(), reason="another PyTorch has other functions"),
                pytest.mark.skipif(shutil.which("nm") is None, reason="needs binutils"),
            ],
        ),
    ],
)
def test_facts_are_what_pytorch_says(script: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / script, "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not is_pinned(), reason="rows may name what another PyTorch lacks")
def test_every_name_resolves() -> None:
    lost = []
    for owner, names, _, _ in ROWS:
        for name in names:
            if owner:
                place: Any = torch
                for part in owner.split(".")[1:]:
                    place = getattr(place, part)
                found = hasattr(place, name)
            else:
                places = [*NAMESPACES.values(), torch.ops.aten]
                found = any(hasattr(place, name) for place in places)
            if not found:
                lost.append(f"{owner}: {name}")
    assert not lost, f"PyTorch {torch.__version__} has no {', '.join(lost)}"


def place_of(owner: str) -> Any:
    """What a row's owner names, if it is or can be imported."""
    module, _, path = owner.partition(":")
    try:
        place: Any = importlib.import_module(module)
    except ImportError:
        parent, _, name = module.rpartition(".")
        place = getattr(importlib.import_module(parent), name)
    for part in path.split(".") if path else ():
        place = getattr(place, part)
    return place


CAME_WITH_313 = {
    *(f"datetime:{kind}: __replace__" for kind in ("date", "datetime", "time")),
    "types:CodeType: __replace__",
    "posix: _path_splitroot_ex",
}


@pytest.mark.skipif(not is_pinned(), reason="rows may name what another PyTorch lacks")
@pytest.mark.parametrize("table", ["state", "python"])
def test_every_name_of_state_and_of_python_resolves(table: str) -> None:
    lost = set()
    for owner, names, _, _ in _stator._rows(table):
        if owner.startswith("transformers"):
            continue  # only asked if the program has loaded it
        places = [place_of(owner)] if owner else [Tensor, torch]
        for name in names:
            if name != "*" and not any(hasattr(place, name) for place in places):
                lost.add(f"{owner}: {name}")
    # It came with 2.15.
    later = {"torch._C: _remove_obj_from_tls"} if table == "state" else set()
    if table == "python" and sys.version_info < (3, 13):
        later = CAME_WITH_313
    assert lost == later


@pytest.mark.parametrize("table", ["operations", "state", "python"])
def test_no_name_has_two_rows(table: str) -> None:
    seen: set[tuple[str, str]] = set()
    for owner, names, _, _ in _stator._rows(table):
        for name in names:
            assert (owner, name) not in seen, f"{owner}: {name}"
            seen.add((owner, name))


@pytest.mark.parametrize("owner", [*NAMESPACES, "torch.ops.aten"])
def test_tags_agree(owner: str) -> None:
    names = (name for name, _ in found_in(owner)) if owner in NAMESPACES else dir(torch.ops.aten)
    for name in names:
        tags, determined = tags_of(name), _stator._operation(owner, name)
        if "data_dependent_output" in tags:
            assert determined in {*BREAKS, "Answer"}, f"{owner}.{name} reads data"
        if "dynamic_output_shape" in tags and determined not in BREAKS:
            assert determined.startswith(CONDITIONAL), f"{owner}.{name}: a shape depends on data"


def test_rows_of_functions_agree_with_the_operators_of_their_names() -> None:
    for owner, names, determined, _ in ROWS:
        for name in names:
            tags = tags_of(name) & {"dynamic_output_shape", "data_dependent_output"}
            if tags == {"data_dependent_output"} and determined == "Answer":
                continue
            if tags and determined not in BREAKS:
                assert determined.startswith(CONDITIONAL), f"{owner}: {name} has the tags {tags}"


def test_private_names_need_a_row() -> None:
    listed = {name for owner, names, _, _ in ROWS for name in names if not owner}
    for owner in NAMESPACES:
        for name, _ in found_in(owner):
            if name.startswith("_") and name not in listed:
                assert _stator._operation(owner, name) is None, f"{owner}.{name}"


def test_what_is_recorded_gives_tensors_alone() -> None:
    """By the rule: rows are asked by their tests."""
    listed = {name for _, names, _, _ in ROWS for name in names}
    for owner in (*NAMESPACES, "torch.ops.aten"):
        for name in dir(NAMESPACES.get(owner, torch.ops.aten)):
            if name in listed or _stator._operation(owner, name) is None:
                continue
            packet = getattr(torch.ops.aten, name, None)
            if packet is None:  # known from another PyTorch: it fails as any call of it
                assert not is_pinned(), name
                continue
            for overload in packet.overloads():
                schema = getattr(packet, overload)._schema
                qualified = f"{schema.name}.{overload}".removesuffix(".default")
                if not torch._C._dispatch_has_kernel(qualified):
                    continue
                for result in schema.returns:
                    assert "Tensor" in str(result.type), f"{qualified} gives {result.type}"


# Functions that PyTorch lists as overridable, of which nothing is known: quantised and sparse tensors,
# libraries for some devices, names of dimensions, and what makes no tensor. They break.
UNKNOWN = frozenset(
    """
    __dlpack_device__ _clear_non_serializable_cached_data _coalesced_ _dimI _dimV _indices
    _is_view _nested_tensor_size _nested_tensor_storage_offsets _nested_tensor_strides _nnz
    _sparse_mask_projection _to_dense _update_names _values align_as batch_norm_backward_elemt
    batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats
    batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats ccol_indices
    ccol_indices_copy choose_qparams_optimized col_indices col_indices_copy crow_indices
    crow_indices_copy dequantize dsmm fbgemm_linear_fp16_weight
    fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight
    fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight
    fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix hsmm hspmm index indices
    indices_copy int_repr ipu miopen_convolution miopen_convolution_add_relu
    miopen_convolution_relu miopen_convolution_transpose miopen_depthwise_convolution mtia
    native_norm q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale
    q_zero_point qscheme quantized_batch_norm quantized_gru_cell quantized_lstm_cell
    quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d quantized_rnn_relu_cell
    quantized_rnn_tanh_cell row_indices row_indices_copy saddmm slice_inverse smm
    sspaddmm storage_type values values_copy xpu
    """.split()
)
# What later versions add to them.
LATER = frozenset("const_data_ptr linalg_matrix_sqrth linalg_polar linear_cross_entropy".split())


def test_every_overridable_function_is_known_or_listed() -> None:
    unknown = set()
    for functions in torch.overrides.get_overridable_functions().values():
        for function in functions:
            name = getattr(function, "__name__", "__get__")
            if name in ("__get__", "__set__", "__delete__") or isinstance(function, type):
                continue
            if isinstance(function, types.FunctionType) and name.lstrip("_").startswith("sym_"):
                continue  # over numbers: followed like a program's own
            if isinstance(function, types.FunctionType) and function.__module__ == "torch.foreach":
                continue  # so are these, which came with 2.15
            if _stator._known(function) is None:
                unknown.add(name)
    if is_pinned():
        assert unknown == UNKNOWN
    assert unknown <= UNKNOWN | LATER


def programs() -> dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]]:
    """Programs whose results' shapes depend on data, and arguments of equal metadata."""
    functional = torch.nn.functional
    few = torch.tensor([1.0, 1.0, 1.0, 0.0])
    many = torch.tensor([1.0, 2.0, 3.0, 4.0])
    low, high = torch.tensor([0, 1, 1]), torch.tensor([0, 1, 5])
    values = torch.ones(3)
    at = torch.tensor([[0, 1, 1], [1, 2, 2]]), torch.tensor([[0, 1, 5], [1, 1, 2]])
    rows = torch.tensor([0, 2, 3])
    aten = torch.ops.aten
    one = [(few,), (many,)]
    classes = [(low,), (high,)]
    return {
        "one_hot -1": (lambda y: functional.one_hot(y, -1), classes),
        "one_hot by keyword": (lambda y: functional.one_hot(y, num_classes=-1), classes),
        "one_hot without": (lambda y: functional.one_hot(y), classes),
        "one_hot of a tensor": (lambda y: functional.one_hot(y, y.max() + 1), classes),
        "one_hot of a tensor by keyword": (
            lambda y: functional.one_hot(num_classes=y.max() + 1, input=y),
            classes,
        ),
        "aten.one_hot": (lambda y: aten.one_hot(y, -1), classes),
        "where": (lambda x: torch.where(x > 0)[0], one),
        "where by keyword": (lambda x: torch.where(condition=x > 0)[0], one),
        "aten.where": (lambda x: aten.where(x > 0)[0], one),
        "sparse_coo_tensor": (
            lambda i, v: torch.sparse_coo_tensor(i, v).to_dense(),
            [(at[0], values), (at[1], values)],
        ),
        "sparse_coo_tensor by keyword": (
            lambda i, v: torch.sparse_coo_tensor(values=v, indices=i).to_dense(),
            [(at[0], values), (at[1], values)],
        ),
        "sparse_csr_tensor": (
            lambda c, v: torch.sparse_csr_tensor(rows, c, v).to_dense(),
            [(low, values), (torch.tensor([0, 5, 5]), values)],
        ),
        "sparse_compressed_tensor": (
            lambda c, v: torch.sparse_compressed_tensor(
                rows, c, v, layout=torch.sparse_csr
            ).to_dense(),
            [(low, values), (torch.tensor([0, 5, 5]), values)],
        ),
        "_unique": (lambda x: torch._unique(x)[0], one),
        "_unique2": (lambda x: torch._unique2(x)[0], one),
        "_VF.unique_dim": (lambda x: torch._VF.unique_dim(x.view(4, 1), 0)[0], one),
        "aten.nonzero": (lambda x: aten.nonzero(x), one),
        "aten.nonzero.default": (lambda x: aten.nonzero.default(x), one),
        "aten._unique2": (lambda x: aten._unique2(x)[0], one),
        "aten.masked_select": (lambda x: aten.masked_select(x, x > 0), one),
        "aten.index of a mask": (lambda x: aten.index(x, [x > 0]), one),
        "aten.index.Tensor of a mask": (lambda x: aten.index.Tensor(x, [x > 0]), one),
        "aten.repeat_interleave": (lambda x: aten.repeat_interleave(x, x.long()), one),
        "aten.item": (lambda x: torch.zeros(3) + aten.item(x[1]), one),
        "aten._local_scalar_dense": (lambda x: x * aten._local_scalar_dense(x[3]), one),
    }


PROGRAMS = programs()
# The trace goes on behind them: a replay asks their results how large they are.
FOLLOWED = {
    *("one_hot -1", "one_hot by keyword", "one_hot without", "aten.one_hot", "where"),
    *("where by keyword", "aten.where", "_VF.unique_dim", "aten.nonzero", "aten.nonzero.default"),
    *("aten.masked_select", "aten.repeat_interleave"),
    *("one_hot of a tensor", "one_hot of a tensor by keyword"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_depends_on_data_breaks_or_is_followed(name: str) -> None:
    function, arguments = PROGRAMS[name]

    def described(*args: Any) -> Any:
        result = function(*args)
        return result, result.shape, result.sum() / result.shape[0]

    compiled = api.compile(described)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for given in (*arguments, *arguments):
            expected, shape, mean = described(*given)
            found, found_shape, found_mean = compiled(*given)
            assert torch.equal(found, expected) and found_shape == shape
            assert torch.equal(found_mean, mean)
    if not api.PLAIN:
        breaks = api.breaks(compiled)
        assert (breaks == 0) == (name in FOLLOWED), (
            "recorded as if its shape followed from metadata"
        )


GIVEN = {
    "one_hot": lambda y: torch.nn.functional.one_hot(y, 6),
    "one_hot by keyword": lambda y: torch.nn.functional.one_hot(y, num_classes=6),
    "where of three": lambda y: torch.where(y > 0, y, 0),
    "where by keyword": lambda y: torch.where(condition=y > 0, input=y, other=-y),
    "_softmax": lambda y: torch._softmax(y.float(), 0, False),
    "aten._to_copy": lambda y: torch.ops.aten._to_copy(y, dtype=torch.float32),
    "aten.add.Tensor": lambda y: torch.ops.aten.add.Tensor(y, y),
    "aten.index of integers": lambda y: torch.ops.aten.index(y, [y.clamp(max=2)]),
}


@pytest.mark.skipif(api.PLAIN, reason="asks what is recorded")
@pytest.mark.parametrize("name", GIVEN)
def test_what_says_its_shape_is_recorded(name: str) -> None:
    function = GIVEN[name]
    compiled = api.compile(function)
    for y in (torch.tensor([0, 1, 1]), torch.tensor([0, 1, 5])):
        assert torch.equal(compiled(y), function(y))
    assert not api.breaks(compiled) and api.traces(compiled) == 1
