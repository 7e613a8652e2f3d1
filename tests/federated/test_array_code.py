"""Which arrays code is written for that calls their methods alone: it says so, or it makes no
difference, or it's an error."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import stator.federated as fl
from stator.errors import AmbiguousArraysError, ProgramError

f32, i32 = np.float32, np.int32
FLOATS, INTEGERS = fl.TensorType(f32, [None, 4]), fl.TensorType(i32, [None, 4])
X = np.arange(12, dtype=f32).reshape(3, 4) ** 1.5
N = (np.arange(12, dtype=i32).reshape(3, 4) * 5) % 7


def largest(x: Any) -> Any:
    values, places = x[:, :2].T.max(1)
    return values + places


def in_place(x: Any) -> Any:
    own = x * -1
    own.sort()
    return own[:, 0]


DIFFERENT: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "std": (lambda x: (x - x.mean(0)) / x.std(0), X),
    "var": (lambda x: x.var(), X),
    "chosen std": (lambda x: x[x > 2].std(), X),
    "max": (lambda x: x.max(1), X),
    "max taken apart": (largest, X),
    "repeat": (lambda x: x[0].repeat(2), X),
    "sort": (in_place, X),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_to_be_said(name: str) -> None:
    function, x = DIFFERENT[name]
    ty = fl.TensorType(x.dtype.type, x.shape)
    with pytest.raises(AmbiguousArraysError, match='arrays="numpy"') as raised:
        fl.local_computation(ty)(function)
    error = raised.value
    assert isinstance(error, ProgramError)
    assert error.stack[0][0] == __file__
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    found = fl.local_computation(ty, arrays="torch")(function)(x)
    expected = function(torch.tensor(x))
    if isinstance(expected, tuple):
        found, expected = [*found.values()], [*expected]
        assert [each.tolist() for each in found] == [each.tolist() for each in expected]
    else:
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5)
    if name != "max taken apart":
        found = fl.local_computation(ty, arrays="numpy")(function)(x)
        np.testing.assert_allclose(found, function(x), rtol=1e-5)


def deviation(x: Any) -> Any:
    shifted = x + 1
    return shifted.std()


def test_the_error_names_the_line() -> None:
    with pytest.raises(AmbiguousArraysError) as raised:
        fl.local_computation(FLOATS)(deviation)
    line = deviation.__code__.co_firstlineno + 2
    assert raised.value.stack == ((__file__, line, "deviation"),)
    assert "divides by one less" in raised.value.why


def test_what_makes_no_difference_needs_nothing() -> None:
    for function in (
        lambda x: (x - x.mean(0)).sum(1).argmax(),
        lambda x: x.clip(0, 1) @ x.T,
        lambda x: x.reshape(-1).cumsum(0)[1:] * 0.5,
        lambda x: (x * x).sum() / len(x),
        lambda x: x[x > 2].mean(),
        lambda x: abs(x).max() - x.min(),
    ):
        found = fl.local_computation(FLOATS)(function)(X)
        np.testing.assert_allclose(found, function(X), rtol=1e-5)
    # `float64` in NumPy: that's rounding.
    half = fl.local_computation(INTEGERS)(lambda x: x / 2)
    assert half.type_signature.result.dtype == f32
    half = fl.local_computation(INTEGERS, arrays="numpy")(lambda x: x / 2)
    assert half.type_signature.result.dtype == np.float64


def of_numpy(x: Any) -> Any:
    return x.std() * np.pi


def of_torch(x: Any) -> Any:
    return x.std() * torch.pi


def calls_numpy(x: Any) -> Any:
    return of_numpy(x) + 1


def imports_numpy(x: Any) -> Any:
    import numpy

    return x.std() * numpy.e


def of_array(x: np.ndarray) -> Any:
    return x.std()


def of_tensor(x: torch.Tensor) -> Any:
    return x.std()


class Scaled:
    def __call__(self, x: np.ndarray) -> Any:
        return x.std() * 2

    def method(self, x: torch.Tensor) -> Any:
        return x.std() * 3


def closed() -> Any:
    weights = torch.ones(4)
    return lambda x: (x * 1).std() + (x @ weights).sum() * 0


@pytest.mark.parametrize(
    ("function", "arrays"),
    [
        (of_numpy, np.array),
        (of_torch, torch.tensor),
        (calls_numpy, np.array),
        (imports_numpy, np.array),
        (of_array, np.array),
        (of_tensor, torch.tensor),
        (functools.partial(of_array), np.array),
        (Scaled(), np.array),
        (Scaled().method, torch.tensor),
        (closed(), torch.tensor),
    ],
)
def test_a_function_says_what_it_is(function: Any, arrays: Any) -> None:
    found = fl.local_computation(FLOATS)(function)(X)
    np.testing.assert_allclose(found, float(function(arrays(X))), rtol=1e-5)


def test_a_module_without_numpy_says_it() -> None:
    alone = {"__builtins__": __builtins__, "torch": torch, "__name__": "alone"}
    function = FunctionType(deviation.__code__, alone, "deviation")
    found = fl.local_computation(FLOATS)(function)(X)
    np.testing.assert_allclose(found, torch.tensor(X + 1).std().numpy(), rtol=1e-6)


def test_what_pytorch_refuses_is_numpy_code() -> None:
    local = fl.local_computation(FLOATS)(lambda x: x.std(axis=0, ddof=2))
    np.testing.assert_allclose(local(X), X.std(axis=0, ddof=2), rtol=1e-5)
    local = fl.local_computation(INTEGERS)(lambda x: x.mean(axis=1))
    np.testing.assert_allclose(local(N), N.mean(axis=1))


def test_what_programs_refuse_of_pytorch_may_be_either() -> None:
    with pytest.raises(ProgramError) as raised:
        fl.local_computation(FLOATS)(lambda x: x.sum() / x.size)
    assert 'arrays="numpy"' in "".join(raised.value.__notes__)
    local = fl.local_computation(FLOATS, arrays="numpy")(lambda x: x.sum() / x.size)
    np.testing.assert_allclose(local(X), X.mean(), rtol=1e-6)


def test_arrays_are_one_of_two() -> None:
    with pytest.raises(ValueError, match="not 'jax'"):
        fl.local_computation(FLOATS, arrays="jax")
    with pytest.raises(TypeError, match="not 3"):
        fl.local_computation(FLOATS, arrays=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="NumPy's arrays"):
        fl.local_computation(FLOATS, arrays="torch", result=f32)
    assert fl.local_computation(FLOATS, arrays="numpy", result=f32)(deviation)(X) == (X + 1).std()
    with pytest.raises(TypeError, match="has no arrays of these elements"):
        import ml_dtypes

        fl.local_computation(fl.TensorType(ml_dtypes.bfloat16, [3]), arrays="numpy")(deviation)
    with pytest.raises(AttributeError):
        fl.local_computation(FLOATS, arrays="numpy")(lambda x: x.softmax(0))
    with pytest.raises(ProgramError):
        fl.local_computation(FLOATS, arrays="torch")(lambda x: np.sqrt(x))


def test_code_without_arguments() -> None:
    for decorator in (fl.local_computation, fl.local_computation(arrays="numpy")):
        assert decorator(lambda: np.zeros(3) + 1)().tolist() == [1, 1, 1]
    assert fl.local_computation(arrays="torch")(lambda: torch.ones(2))().tolist() == [1, 1]


def test_polymorphic_code() -> None:
    local = fl.local_computation(arrays="numpy")(deviation)
    assert local(X[0]) == pytest.approx((X[0] + 1).std(), rel=1e-6)


def test_views_by_sizes_are_of_pytorchs_code() -> None:
    """NumPy's `view` reads elements as those of another type."""

    def spread(x: Any) -> Any:
        return x.view(-1, 2).std(0) + x.view((2, -1)).amax(1)

    assert fl.local_computation(FLOATS)(spread)(X[:2]) == pytest.approx(
        spread(torch.tensor(X[:2])).numpy()
    )
    with pytest.raises(AttributeError):
        fl.local_computation(FLOATS, arrays="numpy")(lambda x: x.view(np.int32))
