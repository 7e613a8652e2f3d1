"""What a program is given is its own: containers may be returned, written to and left out."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import stator
import stator.federated as fl
from stator.errors import ProgramError, ProgramInputError
from stator.federated.common_libs.structure import Struct
from stator.programs import TensorProgram, TensorSpec

S = TensorSpec(torch.float32, (2,))


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass
class Data:
    a: Any
    b: Any


def returned(m: Any) -> Any:
    return m


def emptied(m: Any) -> Any:
    del m["a"]
    m["c"] = m.pop("b") + 1
    return m


def updated(m: Any) -> Any:
    m.update(a=m["b"], z=m["a"])
    m.setdefault("b", 3)
    return {"m": m, "again": m}


def written(m: Any) -> Any:
    m["a"] = m["a"] + 1
    for key in list(m):
        m[key] = m[key] * 2
    return m


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
@pytest.mark.parametrize("function", [returned, emptied, updated, written])
def test_dictionaries(kind: type[Any], function: Callable[..., Any]) -> None:
    program = TensorProgram.trace(function, (kind(a=S, b=S),))
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    expected = function(kind(a=a, b=b))
    leaves = torch.utils._pytree.tree_leaves(expected)
    for found, leaf in zip(program(a, b), leaves, strict=True):
        assert torch.equal(found, leaf)
    assert (a.tolist(), b.tolist()) == ([1, 2], [3, 4])


@pytest.mark.parametrize(
    "value",
    [[S, S], (S, S), Pair(S, S), Data(S, S), [[S], {"x": (S,)}], Struct([("a", S), (None, S)])],
    ids=lambda value: type(value).__name__,
)
def test_every_container_can_be_returned(value: Any) -> None:
    program = TensorProgram.trace(lambda m: (m, [m]), (value,))
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    assert [each.tolist() for each in program(a, b)] == [[1, 2], [3, 4]] * 2
    again = TensorProgram.from_bytes(program.to_bytes())
    assert again.text == program.text and again.gives == program.gives


def test_lists_and_objects_can_be_written_to() -> None:
    def function(rows: Any, data: Any, *rest: Any, **named: Any) -> Any:
        rows.append(rows[0] + 1)
        data.a = data.b
        named["x"] = rest[0]
        return rows, data, named

    program = TensorProgram.trace(function, ([S], Data(S, S), S), {"y": S})
    tensors = [torch.full((2,), float(number)) for number in range(5)]
    found = [float(each[0]) for each in program(*tensors)]
    assert found == [0, 1, 2, 2, 4, 3]


DEFAULT = {"a": torch.zeros(2)}


def test_what_is_from_outside_stays_so() -> None:
    def function(m: Any, kept: Any = DEFAULT) -> Any:
        kept["a"] = m
        return m

    with pytest.raises(ProgramError, match="outside the program would change"):
        TensorProgram.trace(function, (S,))
    with pytest.raises(
        ProgramError, match=r"outside the program would change: its input `m\['a'\]`"
    ):
        TensorProgram.trace(lambda m: m["a"].add_(1), ({"a": S},))
    assert DEFAULT["a"].tolist() == [0, 0]


def test_functional_call() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    weights = dict(net.named_parameters())
    before = {name: weight.clone() for name, weight in weights.items()}

    def step(m: Any, x: Any, y: Any) -> Any:
        def loss(m: Any) -> Any:
            return ((torch.func.functional_call(net, m, (x,)) - y) ** 2).mean()

        gradients, value = torch.func.grad_and_value(loss)(m)
        return {name: m[name] - 0.1 * gradients[name] for name in m}, value

    specs = {name: TensorSpec(w.dtype, tuple(w.shape)) for name, w in weights.items()}
    rows = TensorSpec(torch.float32, (None, 3)), TensorSpec(torch.float32, (None, 2))
    for kind in (dict, collections.OrderedDict):
        program = TensorProgram.trace(step, (kind(specs), *rows))
        x, y = torch.randn(5, 3), torch.randn(5, 2)
        detached = kind((name, weight.detach()) for name, weight in weights.items())
        expected, value = step(detached, x, y)
        *found, loss = program(*detached.values(), x, y)
        assert torch.equal(loss, value)
        for each, other in zip(found, expected.values(), strict=True):
            torch.testing.assert_close(each, other)
    assert all(torch.equal(weight, before[name]) for name, weight in net.named_parameters())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: collections.OrderedDict(n=x.shape[0], s=x.sum()),
        lambda x: dict(n=x.shape[0], m=x.size(0) * 2),
        lambda x: collections.OrderedDict([("n", x.shape[0]), ("x", x)]),
        lambda x: collections.OrderedDict({"n": x.shape[0] + 1}, k=x.shape[1]),
        lambda x: dict((("n", x.shape[0]),)),
    ],
)
def test_sizes_in_dictionaries(function: Callable[..., Any]) -> None:
    program = TensorProgram.trace(function, (TensorSpec(torch.float32, (None, 3)),))
    compiled = stator.compile(function, dynamic=True)
    for count in (1, 2, 2, 7):
        x = torch.ones(count, 3)
        expected = [torch.as_tensor(each).tolist() for each in function(x).values()]
        assert [each.tolist() for each in program(x)] == expected
        assert str(compiled(x)) == str(function(x))


def test_structs_with_and_without_names() -> None:
    ty = fl.StructType([("a", np.int32), (None, np.int32), ("c", [np.int32, np.int32])])

    @fl.local_computation(ty)
    def whole(s):
        first, second, third = s
        return s, s[0] + s.a, second + s["a"], third[1], len(s)

    assert "struct(" in TensorProgram.trace(lambda s: s, (Struct([("a", S), (None, S)]),)).text
    given = Struct([("a", 1), (None, 2), ("c", [3, 4])])
    for computation in (whole, fl.framework.ConcreteComputation.from_bytes(whole.to_bytes())):
        same, *rest = computation(given)
        assert (same.a, same[1], *same.c) == (1, 2, 3, 4)
        assert rest == [2, 3, 4, 3]

    mixed = fl.local_computation(lambda x, a: x - a)
    assert mixed(5, a=3) == 2
    assert mixed(5, 3) == 2


def test_errors_say_where_and_what() -> None:
    def function(x: Any, i: Any) -> Any:
        taken = x.index_select(0, i)
        return taken

    specs = (TensorSpec(torch.float32, (None,)), TensorSpec(torch.int64, (None,)))
    program = TensorProgram.trace(function, specs)
    with pytest.raises(IndexError) as caught:
        program(torch.ones(2), torch.tensor([3]))
    line = function.__code__.co_firstlineno + 1
    assert caught.value.__notes__ == [
        "In a tensor program: %2 = .index_select(%0, 0, %1)\n"
        f'  File "{__file__}", line {line}, in {function.__qualname__}\n'
        "    taken = x.index_select(0, i)"
    ]
    # No frame of the library's.
    assert caught.value.__traceback__ is not None and caught.value.__traceback__.tb_next is None

    def both(m: Any, y: Any) -> Any:
        return m["x"] + y

    vector = TensorSpec(torch.float32, (None,))
    program = TensorProgram.trace(both, ({"x": vector}, vector))
    with pytest.raises(ProgramInputError) as unlike:
        program(torch.ones(2), torch.ones(3))
    assert str(unlike.value) == (
        "The program is for sizes with m['x'].size(0) == y.size(0), as it was traced; "
        "m['x'].size(0) is 2, y.size(0) is 3.\n"
        f"  declared: (m['x']: float32[?], y: float32[?]) of `both`, {__file__}:"
        f"{both.__code__.co_firstlineno}\n"
        f'  File "{__file__}", line {both.__code__.co_firstlineno + 1}, in {both.__qualname__}\n'
        '    return m["x"] + y'
    )


def test_errors_while_tracing_say_what_was_declared(caplog: pytest.LogCaptureFixture) -> None:
    def function(x: Any, y: Any) -> Any:
        return x @ y

    specs = (TensorSpec(torch.float32, (2, 3)), TensorSpec(torch.float32, (None, 3)))
    with pytest.raises(RuntimeError) as caught:
        TensorProgram.trace(function, specs)
    assert caught.value.__notes__[0].startswith(
        "A tensor program was traced for (x: float32[2, 3], y: float32[?, 3])"
    )
    assert not caplog.records
