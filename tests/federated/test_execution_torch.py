"""PyTorch's tensors as values: clients may hold them, and functions may give them back."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import stator.federated as fl
from stator._stator import federated as native
from stator.federated.execution import LocalContext

torch = pytest.importorskip("torch")

ROW = fl.TensorType(np.float32, [2])
CLIENTS = fl.FederatedType(ROW, fl.CLIENTS)


def rows(*values: float) -> list[Any]:
    return [torch.full((2,), float(value)) for value in values]


def test_tensors_are_combined() -> None:
    @fl.federated_computation(CLIENTS, fl.FederatedType(np.int64, fl.CLIENTS))
    def combined(values, weights):
        return {
            "sum": fl.federated_sum(values),
            "mean": fl.federated_mean(values),
            "weighted": fl.federated_mean(values, weights),
            "min": fl.federated_min(values),
            "max": fl.federated_max(values),
            "secure": fl.federated_secure_sum(weights, 10),
        }

    expected = {"sum": 6, "mean": 3, "weighted": 3.5, "min": 2, "max": 4, "secure": 4}
    weights = [torch.tensor(1), torch.tensor(3)]
    for values in (
        rows(2, 4),
        [torch.full((2,), 2.0), np.full(2, 4, np.float32)],
        [np.full(2, 2, np.float32), torch.full((2,), 4.0, requires_grad=True)],
    ):
        found = combined(values, weights)
        for name, value in expected.items():
            # What comes back is NumPy's.
            assert isinstance(found[name], np.ndarray | np.generic)
            np.testing.assert_array_equal(found[name], value)
            assert found[name].dtype == (np.int64 if name == "secure" else np.float32)


def mapping(function: Any, result: Any) -> Any:
    block = native.callable_computation(function, fl.FunctionType(ROW, result), name="f")
    work = fl.framework.ConcreteComputation.from_building_block(block)

    @fl.federated_computation(CLIENTS)
    def mapped(values):
        return fl.federated_map(work, values)

    return mapped


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("gradients", [True, False])
def test_threads_have_the_callers_gradient_mode(threads: int, gradients: bool) -> None:
    mapped = mapping(lambda row: torch.tensor(torch.is_grad_enabled()), np.bool_)
    with (
        fl.framework.get_context_stack().install(LocalContext(threads=threads)),
        torch.set_grad_enabled(gradients),
    ):
        assert mapped(rows(1, 2, 3)) == [gradients] * 3
        assert torch.is_grad_enabled() == gradients


def test_types_are_checked() -> None:
    mapped = mapping(lambda row: row, ROW)
    with pytest.raises(TypeError) as caught:
        mapped([torch.ones(2, dtype=torch.float64)])
    assert str(caught.value) == (
        "the argument at client 0 doesn't fit its type\n"
        "  expected: float32[2]\n"
        "  found:    a torch tensor of type float64[2]\n"
        "  hint:     `.to(torch.float32)` converts the elements"
    )
    with pytest.raises(TypeError, match=r"found:    a torch tensor of type float32\[3\]"):
        mapped([torch.ones(3)])


def test_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    of = fl.FederatedType(fl.TensorType(ml_dtypes.bfloat16, [2]), fl.CLIENTS)

    @fl.federated_computation(of)
    def total(values):
        return fl.federated_sum(values)

    values = [torch.full((2,), 1.5, dtype=torch.bfloat16), np.full(2, 2, ml_dtypes.bfloat16)]
    for found in (total(values), total(values[:1] * 2 + values[1:])):
        assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(total(values).astype(np.float32), 3.5)


def test_nothing_imports_torch() -> None:
    import subprocess

    program = """
import sys
import numpy as np
import stator.federated as fl

@fl.federated_computation(fl.FederatedType(np.int32, fl.CLIENTS))
def total(values):
    return fl.federated_sum(values)

assert total([1, 2, 3]) == 6
assert not {"torch", "asyncio"} & set(sys.modules), "imported"
"""
    subprocess.run([sys.executable, "-c", program], check=True)
