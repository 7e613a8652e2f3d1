"""Operations that the recorder takes as determined by metadata are: over PyTorch's operator database.

Each operation is recorded on a sample, together with the shapes and types of its results as Python
sees them. Then the inputs get other data of the same metadata: what the compiled function says must
be what the plain one says. Operations that FakeTensorMode knows as dependent on data must not be
part of a graph for other backends; with `backend="eager"` the sizes that they give are symbols.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from soundness.operator_database import operator_database

# Every second operator, on few samples; all of them take about 20 minutes (`make test-sweep`).
ALL = os.environ["STATOR_SWEEP"] == "all"
SAMPLES, STEP, SHARDS = (40, 1, 32) if ALL else (3, 2, 4)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    return [value]


def described(op: Callable[..., Any]) -> Callable[..., Any]:
    def fn(args: Any, kwargs: Any) -> Any:
        result = op(*args, **kwargs)
        found = []
        for leaf in leaves(result):
            if isinstance(leaf, Tensor):
                found.append((tuple(leaf.shape), leaf.dtype, leaf.requires_grad))
        return result, found

    return fn


def other_data(value: Any, variant: int) -> Any:
    """The same metadata with other contents, within the range of the old ones."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized:
        return value
    fresh = value.detach().clone(memory_format=torch.preserve_format)
    if fresh.stride() != value.stride():
        return value
    if value.dtype == torch.bool:
        fresh.fill_(False) if variant == 0 else fresh.fill_(True)
    elif not value.dtype.is_floating_point and not value.dtype.is_complex:
        if fresh.numel() and variant:
            low, high = int(fresh.min()), int(fresh.max())
            fresh.copy_(torch.randint(low, high + 1, fresh.shape))
        elif fresh.numel():
            fresh.fill_(int(fresh.min()))
    elif variant == 0:
        fresh.zero_()
    else:
        fresh.copy_(torch.rand_like(fresh) + 0.25)
    return fresh.requires_grad_(value.requires_grad)


def show(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    torch.default_generator.manual_seed(0)
    try:
        _, found = fn(args, kwargs)
    except Exception as error:
        return type(error).__name__
    return found


def depends_on_data(op: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """What FakeTensorMode says."""
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensorMode,
    )

    try:
        with FakeTensorMode() as mode:
            fake = tree_map(
                lambda v: mode.from_tensor(v) if isinstance(v, Tensor) else v, (args, kwargs)
            )
            op(*fake[0], **fake[1])
    except (DataDependentOutputException, DynamicOutputShapeException):
        return True
    except Exception:
        return False
    return False


def variants(op: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    yield op.name, op.op
    if op.method_variant is not None:
        yield f"Tensor.{op.name}", op.method_variant
    if op.inplace_variant is not None:
        yield f"{op.name}_", op.inplace_variant
    packet = getattr(torch.ops.aten, op.aten_name or op.name, None)
    if isinstance(packet, torch._ops.OpOverloadPacket):
        yield f"torch.ops.{packet}", packet


def problems(op: Any) -> Iterator[str]:
    dtypes = [d for d in (torch.float32, torch.int64) if op.supports_dtype(d, "cpu")]
    if not dtypes:
        return
    samples = list(itertools.islice(op.sample_inputs("cpu", dtypes[0]), SAMPLES))
    for name, function in variants(op):
        for sample in samples:
            args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
            if any(
                isinstance(leaf, Tensor) and leaf.requires_grad
                for leaf in tree_flatten((args, kwargs))[0]
            ):
                args, kwargs = tree_map(
                    lambda v: v.detach() if isinstance(v, Tensor) else v, (args, kwargs)
                )
            fn = described(function)
            copy = lambda v: (
                v.clone(memory_format=torch.preserve_format) if isinstance(v, Tensor) else v
            )  # noqa: E731
            expected = show(fn, *tree_map(copy, (args, kwargs)))
            if isinstance(expected, str):
                continue
            compiled = api.compile(fn)
            if show(compiled, *tree_map(copy, (args, kwargs))) != expected:
                yield f"{name}: the first call is wrong"
                continue
            if not api.traces(compiled) or api.breaks(compiled):
                continue
            # An answer is a decision: other data goes another way, which is looked at below.
            answers = isinstance(function(*tree_map(copy, args), **kwargs), bool)
            if not answers and name != f"{op.name}_" and depends_on_data(function, args, kwargs):
                exported = api.compile(fn, backend="fx")
                show(exported, *tree_map(copy, (args, kwargs)))
                if api.traces(exported) and not api.breaks(exported):
                    yield f"{name}: exported, though FakeTensorMode says it depends on data"
                    break
            for variant in range(2 if ALL or function is op.op else 1):
                changed = tree_map(lambda v: other_data(v, variant), (args, kwargs))
                expected = show(fn, *tree_map(copy, changed))
                if (
                    not isinstance(expected, str)
                    and show(compiled, *tree_map(copy, changed)) != expected
                ):
                    yield f"{name}: recorded, but other data gives other metadata"
                    break


@pytest.mark.skipif(api.PLAIN, reason="asks what is recorded")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_operator_database(shard: int) -> None:
    op_db = operator_database()[::STEP]
    found: list[str] = []
    done = 0
    chosen = op_db[shard::SHARDS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in chosen:
            try:
                found += problems(op)
            except Exception as error:
                print(f"skipped {op.name}: {type(error).__name__} {str(error)[:80]}")
                continue
            done += 1
    print(f"{done} of {len(chosen)} operators")
    assert not found, "\n".join(found)
    assert done > len(chosen) // 2
