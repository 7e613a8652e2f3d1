"""Local computations: PyTorch code as tensor programs in federated computations, and other functions
as they are.
"""

from __future__ import annotations

import collections
import functools
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from stator import federated as ff
from stator.errors import ProgramError
from stator.federated import framework

ROOT = Path(__file__).resolve().parents[2]
X = ff.TensorType(np.float32, [None, 4])
Y = ff.TensorType(np.int64, [None])
W = ff.TensorType(np.float32, [4, 3])
ROW = ff.TensorType(np.float32, [3])


def test_types() -> None:
    @ff.local_computation(X)
    def mean(x: Any) -> Any:
        """The mean of the rows."""
        return x.mean(0)

    assert str(mean.type_signature) == "(float32[?,4] -> float32[4])"
    assert mean.to_building_block().compact_representation() == "comp#mean"

    @ff.local_computation(X, Y)
    def both(x: Any, y: Any) -> Any:
        return collections.OrderedDict(a=x * 2, b=[y, (x.sum(), 3)])

    assert str(both.type_signature) == (
        "(<x=float32[?,4],y=int64[?]> -> <a=float32[?,4],b=<int64[?],<float32,int64>>>)"
    )

    @ff.local_computation
    def nothing() -> Any:
        return torch.zeros(2), True, 1.5

    assert str(nothing.type_signature) == "( -> <float32[2],bool,float32>)"


class Pair(NamedTuple):
    a: Any
    b: Any


def test_containers_are_remembered() -> None:
    @ff.local_computation(Pair(X, {"n": Y}))
    def fn(pair: Any) -> Any:
        assert type(pair) is Pair
        assert type(pair.b) is dict
        return Pair(pair.a + 1, [pair.b["n"]])

    result = fn.type_signature.result
    assert result.python_container is Pair
    assert result.b.python_container is list
    value = fn(Pair(np.ones((2, 4), np.float32), {"n": np.arange(2)}))
    assert type(value) is Pair
    assert value.a.tolist() == [[2] * 4] * 2
    assert value.b[0].tolist() == [0, 1]


def test_calls() -> None:
    @ff.local_computation(X)
    def fn(x: Any) -> Any:
        return x.sum(0), x.shape[0]

    for rows in (1, 2, 5):
        x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
        for given in (x, torch.from_numpy(x), x.tolist(), np.asfortranarray(x)):
            total, count = fn(given)
            assert total.tolist() == x.sum(0).tolist()
            assert count == rows
    x.flags.writeable = False
    assert fn(x[::-1])[0].tolist() == x.sum(0).tolist()
    with pytest.raises(TypeError):
        fn(np.ones((2, 3), np.float32))


@pytest.mark.parametrize(
    "dtype",
    [np.float32, np.float64, np.float16, np.int8, np.int64, np.uint8, np.bool_, np.complex64],
)
def test_element_types(dtype: Any) -> None:
    @ff.local_computation(ff.TensorType(dtype, [2]), ff.TensorType(dtype))
    def fn(x: Any, y: Any) -> Any:
        return y, x

    x = np.array([1, 0], dtype)
    y, again = fn(x, dtype(1))
    assert again.dtype == x.dtype
    assert again.tolist() == x.tolist()
    assert type(y) is dtype


def test_polymorphic() -> None:
    @ff.local_computation
    def double(x: Any) -> Any:
        return x * 2

    assert double(np.float32(3)) == 6
    assert double(np.ones(3, np.float32)).tolist() == [2, 2, 2]
    assert double.fn_for_argument_type(X).type_signature.result == X


def test_defaults_are_constants() -> None:
    """Where no type is given for a parameter, its default is what it has."""

    def scaled(x: Any, rate: float = 0.5, *, power: int = 2, shift: Any = torch.ones(3)) -> Any:
        return rate * x**power + shift

    x = np.array([1, 2, 3], np.float32)
    comp = ff.local_computation(ROW)(scaled)
    assert str(comp.type_signature) == "(float32[3] -> float32[3])"
    there = ff.framework.ConcreteComputation.from_bytes(comp.to_bytes())
    assert comp(x).tolist() == there(x).tolist() == [1.5, 3, 5.5]
    given = ff.local_computation(ROW, np.float32)(scaled)
    assert str(given.type_signature) == "(<x=float32[3],rate=float32> -> float32[3])"
    assert given(x, np.float32(2)).tolist() == [3, 9, 19]
    partly = ff.local_computation(ROW)(functools.partial(scaled, rate=1.0, power=1))
    assert partly(x).tolist() == [2, 3, 4]
    whole = ff.local_computation(ff.StructType([("a", ROW), ("b", ROW)]))
    assert whole(lambda m, k=2: m["a"] * k + m["b"])(
        collections.OrderedDict(a=x, b=x)
    ).tolist() == [3, 6, 9]
    fields = ff.local_computation(collections.OrderedDict(a=ROW, b=ROW))(
        lambda a, b, k=2: a * k + b
    )
    assert fields(x, x).tolist() == [3, 6, 9]
    assert ff.local_computation(lambda count=3: torch.ones(count))().tolist() == [1, 1, 1]
    natively = ff.local_computation(ROW, result=np.float32)(lambda x, k=3: np.float32(x.sum() * k))
    assert natively(x) == 18
    polymorphic = ff.local_computation(lambda x, k=2: x * k)
    assert polymorphic(x).tolist() == [2, 4, 6]
    assert polymorphic(x, np.float32(3)).tolist() == [3, 6, 9]

    @ff.federated_computation(ff.FederatedType(ROW, ff.CLIENTS))
    def total(rows: Any) -> Any:
        return ff.federated_sum(ff.federated_map(comp, rows))

    assert total([x, x]).tolist() == [3, 6, 11]


def test_defaults_that_are_no_constants() -> None:
    for fn, types, text in (
        (lambda a, b, c=1: a, (ROW,), "expected: a struct of 2 fields"),
        (lambda a, c=1: a, (ROW, ROW, ROW), "expected: 2 types for `a`, `c`"),
        (lambda *a, c=1: a, (ROW,), "a variable number of parameters"),
        (lambda a, *, b, c=1: a, (ROW,), "a keyword-only parameter"),
    ):
        with pytest.raises(TypeError, match=text):
            ff.local_computation(*types)(fn)
    with pytest.raises(TypeError, match="a parameter with a default"):
        ff.federated_computation(lambda a, c=1: a, ROW)


def test_in_federated_computations() -> None:
    @ff.local_computation(W, X, Y)
    def train(w: Any, x: Any, y: Any) -> Any:
        for _ in range(3):
            w = w - 0.1 * torch.func.grad(lambda w: F.cross_entropy(x @ w, y))(w)
        return w

    @ff.federated_computation(
        ff.FederatedType(W, ff.SERVER),
        ff.FederatedType(X, ff.CLIENTS),
        ff.FederatedType(Y, ff.CLIENTS),
    )
    def one_round(w: Any, x: Any, y: Any) -> Any:
        trained = ff.federated_map(train, (ff.federated_broadcast(w), x, y))
        return ff.federated_mean(trained)

    generator = np.random.default_rng(0)
    sizes = (3, 5, 1, 8)
    w = generator.normal(size=(4, 3)).astype(np.float32)
    x = [generator.normal(size=(n, 4)).astype(np.float32) for n in sizes]
    y = [generator.integers(0, 3, n) for n in sizes]
    found = one_round(w, x, y)
    expected = [
        plain_training(*(torch.from_numpy(each) for each in given))
        for given in zip([w] * 4, x, y, strict=True)
    ]
    np.testing.assert_allclose(found, torch.stack(expected).mean(0).numpy(), rtol=1e-5)


def plain_training(w: Any, x: Any, y: Any) -> Any:
    for _ in range(3):
        w = w.detach().requires_grad_()
        F.cross_entropy(x @ w, y).backward()
        w = w.detach() - 0.1 * w.grad
    return w


CHILD = """
import sys, numpy as np
from stator import federated as ff
from stator.federated import framework
assert "torch" not in sys.modules
comp = framework.ConcreteComputation.from_bytes(sys.stdin.buffer.read())
print(comp.type_signature)
assert "torch" not in sys.modules
print(comp([np.ones((2, 4), np.float32), np.zeros((1, 4), np.float32)]).tolist())
"""


def test_another_process() -> None:
    scale = torch.full((4,), 2.0)

    @ff.local_computation(X)
    def fn(x: Any) -> Any:
        return (x * scale).sum(0)

    @ff.federated_computation(ff.FederatedType(X, ff.CLIENTS))
    def total(x: Any) -> Any:
        return ff.federated_sum(ff.federated_map(fn, x))

    data = total.to_bytes()
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=data,
        capture_output=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / "python")},
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == (
        "({float32[?,4]}@CLIENTS -> float32[4]@SERVER)\n[4.0, 4.0, 4.0, 4.0]\n"
    )
    again = framework.ConcreteComputation.from_bytes(data)
    assert again.to_bytes() == data
    assert again == total


def test_a_stranger_reads_it_as_a_compiled_computation() -> None:
    peer = pytest.importorskip("federated_language")
    from federated_language.proto import computation_pb2

    @ff.local_computation(X)
    def fn(x: Any) -> Any:
        return x + 1

    message = computation_pb2.Computation.FromString(fn.to_bytes())
    assert message.WhichOneof("computation") == "xla"
    assert message.xla.hlo_module.type_url == "type.googleapis.com/stator.TensorProgram"
    block = peer.framework.CompiledComputation.from_proto(message)
    assert block.type_signature.compact_representation() == "(float32[?,4] -> float32[?,4])"
    assert message.SerializeToString() == fn.to_bytes()


def test_numpy_functions() -> None:
    calls = []

    @ff.local_computation(X, result=ff.TensorType(np.float32, [4]))
    def mean(x: Any) -> Any:
        calls.append(type(x))
        return np.mean(x, axis=0)

    assert calls == []
    assert str(mean.type_signature) == "(float32[?,4] -> float32[4])"
    assert mean(np.ones((3, 4), np.float32)).tolist() == [1, 1, 1, 1]
    assert calls == [np.ndarray]

    @ff.federated_computation(ff.FederatedType(X, ff.CLIENTS))
    def total(x: Any) -> Any:
        return ff.federated_mean(ff.federated_map(mean, x))

    assert total([np.ones((1, 4), np.float32), np.zeros((2, 4), np.float32)])[0] == 0.5
    with pytest.raises(TypeError) as met:
        total.to_bytes()
    assert "a Python function can't be serialized" in str(met.value)
    assert f"`mean`, {__file__}" in str(met.value)

    together = ff.local_computation(lambda a, b: a + b, np.int32, np.int32, result=np.int32)
    assert together(2, 3) == 5


def test_a_wrong_declared_result() -> None:
    @ff.local_computation(np.int32, result=np.float32)
    def fn(x: Any) -> Any:
        return "text"

    with pytest.raises(TypeError, match="the result of `fn`"):
        fn(1)


def names(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_what_cant_be_traced() -> None:
    def fn(x: Any) -> Any:
        return np.loadtxt(x)  # here

    with pytest.raises(ProgramError) as met:
        ff.local_computation(fn, X)
    assert "# here" in str(met.value)
    assert any("With `result=`" in note for note in met.value.__notes__)
    assert names(met.value)[:2] == ["test_what_cant_be_traced", "fn"]
    assert not any("stator" in frame.filename for frame in traceback.extract_tb(met.tb))


def test_errors_of_the_function() -> None:
    def fn(x: Any) -> Any:
        raise KeyError("own")

    with pytest.raises(KeyError) as met:
        ff.local_computation(X)(fn)
    assert names(met.value) == ["test_errors_of_the_function", "fn"]


def test_types_that_pytorch_has_not() -> None:
    for ty in (
        np.str_,
        ff.SequenceType(ff.TensorType(np.int32, [None])),
        ff.TensorType(np.int32, None),
    ):
        with pytest.raises(TypeError, match="can't be traced for a parameter of this type") as met:
            ff.local_computation(lambda x: x, ty)
        assert names(met.value) == ["test_types_that_pytorch_has_not"]


def test_results_that_are_nothing() -> None:
    with pytest.raises(ProgramError, match="what the function returns"):
        ff.local_computation(lambda x: None, X)


WITHOUT_TORCH = """
import sys
import numpy as np
import stator.federated as ff
sys.modules["torch"] = None
fn = ff.local_computation(lambda x: x + 1, np.int32, result=np.int32)
assert fn(1) == 2
try:
    ff.local_computation(lambda x: x, np.int32)
except NotImplementedError as error:
    print(error)
"""


def test_without_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / "python")},
    )
    assert done.returncode == 0, done.stderr
    assert "PyTorch isn't installed" in done.stdout
    assert "result=" in done.stdout
