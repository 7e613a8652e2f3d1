"""Objects that are no tensors and take operations over: by `__torch_function__`, and by the operators of their classes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator

from ..worlds import told

Handlers = dict[Any, Callable[..., Any]]


class Diagonal:
    """A matrix that is known by its diagonal."""

    handlers: Handlers = {}

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.values})"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in cls.handlers or not all(issubclass(kind, Diagonal) for kind in types):
            return NotImplemented
        return cls.handlers[func](*args, **(kwargs or {}))


def dense(operand: Any) -> Any:
    return operand.values.diag() if isinstance(operand, Diagonal) else operand


def matmul(left: Any, right: Any) -> Tensor:
    return left.values[:, None] * right if isinstance(left, Diagonal) else left * right.values


def add(input: Any, other: Any, alpha: float = 1) -> Tensor:  # noqa: A002
    return dense(input) + alpha * dense(other)


def stack(parts: Any, dim: int = 0) -> Diagonal:
    return Diagonal(torch.stack([part.values for part in parts], dim))


def asked(diagonal: Diagonal, *args: Any, **named: Any) -> tuple[Tensor, Any, Any]:
    return diagonal.values * 2, args, named


OF_TENSORS = {
    "__add__": add,
    "__iadd__": add,
    "__matmul__": matmul,
    "__mul__": lambda left, right: dense(left) * dense(right),
    "__sub__": lambda left, right: dense(left) - dense(right),
}


def handlers() -> Handlers:
    made: Handlers = {torch.matmul: matmul, torch.add: add, torch.stack: stack, torch.sum: asked}
    made |= {F.softmax: asked, F.layer_norm: asked, torch.Tensor.matmul: matmul}
    made |= {torch.Tensor.add: add, torch.Tensor.mul: OF_TENSORS["__mul__"]}
    made[torch.Tensor.sub] = OF_TENSORS["__sub__"]
    for name, handler in OF_TENSORS.items():
        made[getattr(torch.Tensor, name)] = handler
    return made


CALLS: dict[str, Callable[[Tensor, Diagonal], Any]] = {
    "on the left": lambda x, d: torch.matmul(d, x),
    "on the right": lambda x, d: torch.matmul(x, d),
    "twice": lambda x, d: torch.add(d, d),
    "by name": lambda x, d: torch.add(input=x, other=d, alpha=2),
    "in a list": lambda x, d: torch.stack([d, Diagonal(x[0])]).values,
    "in a tuple": lambda x, d: torch.stack((d, d), dim=1).values,
    "alone": lambda x, d: torch.sum(d, 0, keepdim=True),
    "a function in Python": lambda x, d: F.softmax(d, dim=0),
    "another one": lambda x, d: F.layer_norm(d, (3,)),
    "a method": lambda x, d: x.matmul(d) + x.add(d, alpha=3),
    "operators": lambda x, d: (x @ d, x + d, x * d, x - d),
    "not handled": lambda x, d: torch.relu(d),
    "an operator not handled": lambda x, d: x / d,
    "no tensor operation": lambda x, d: x + len(vars(d)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_torch_function(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = CALLS[name]
    monkeypatch.setattr(Diagonal, "handlers", handlers())
    compiled = stator.compile(lambda x, d: call(x, d))

    def same() -> None:
        x, d = torch.randn(3, 3), Diagonal(torch.randn(3))
        assert told(compiled, x, d) == told(call, x, d)

    for _ in range(3):
        same()
    if "not handled" not in name:
        assert stator.stats(compiled).breaks == 0 and stator.stats(compiled).hits == 2
    # Another function handles it, then none does, then the class says something else, then nothing.
    for key in list(Diagonal.handlers):
        Diagonal.handlers[key] = lambda *args, **named: Diagonal(
            torch.tensor([len(args), len(named)])
        )
    same()
    Diagonal.handlers.clear()
    same()
    constant = classmethod(lambda cls, func, types, args=(), kwargs=None: Diagonal(torch.ones(2)))
    monkeypatch.setattr(Diagonal, "__torch_function__", constant)
    same()
    monkeypatch.delattr(Diagonal, "__torch_function__")
    same()


def test_an_objects_own_torch_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch asks the object, whose own attribute hides the class's."""
    monkeypatch.setattr(Diagonal, "handlers", handlers())
    compiled = stator.compile(lambda x, d: torch.matmul(x, d))
    for own in (False, False, True, False):
        x, d = torch.randn(3, 3), Diagonal(torch.randn(3))
        if own:
            d.__torch_function__ = lambda func, types, args=(), kwargs=None: "own"  # type: ignore[method-assign]
        assert told(compiled, x, d) == told(torch.matmul, x, d)


class Other(Diagonal):
    """Another class, which PyTorch asks first."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return tuple(kind.__name__ for kind in types)


def test_several_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Diagonal, "handlers", handlers())
    compiled = stator.compile(lambda left, right: torch.add(left, right))
    for _ in range(3):
        one, two = Diagonal(torch.randn(3)), Other(torch.randn(3))
        for operands in ((one, two), (two, one), (one, one), (two, torch.ones(3))):
            assert told(compiled, *operands) == told(torch.add, *operands)


def test_a_graph_break_within(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def break_within(left: Any, right: Any) -> Tensor:
        stator.graph_break("looked at")
        seen.append(float(dense(right).sum()))
        return matmul(left, right)

    monkeypatch.setattr(Diagonal, "handlers", {torch.matmul: break_within})
    compiled = stator.compile(lambda x, d: torch.matmul(x + 1, d) * 2)
    for _ in range(3):
        x, d = torch.randn(3, 3), Diagonal(torch.randn(3))
        assert torch.equal(compiled(x, d), torch.matmul(x + 1, d) * 2)  # type: ignore[call-overload]
        assert len(seen) == 2 and seen[0] == seen[1]
        seen.clear()


class Amount:
    """A number with operators of its own."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __mul__(self, other: Any) -> Amount:
        return Amount(self.value * getattr(other, "value", other))

    __rmul__ = __mul__

    def __radd__(self, other: Any) -> Any:
        return other + self.value

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Tensor) and other.dim() == 2 else 5 - other

    def __rmatmul__(self, other: Any) -> Any:
        return other.sum()

    def __lt__(self, other: Any) -> Any:
        return self.value < other

    def __iadd__(self, other: Any) -> Amount:
        self.value = self.value + other
        return self


OPERATORS = [
    operator.mul,
    operator.add,
    operator.sub,
    operator.truediv,
    operator.matmul,
    operator.pow,
    operator.and_,
    operator.lt,
    operator.iadd,
    operator.imul,
]


@pytest.mark.parametrize("place", ["left", "right"])
@pytest.mark.parametrize("of", OPERATORS, ids=lambda of: of.__name__)
def test_operators_of_classes(of: Any, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    symbol = {"iadd": "+=", "imul": "*="}.get(of.__name__)
    if symbol:
        scope: dict[str, Any] = {}
        exec(f"def call(a, b):\n    a {symbol} b\n    return a", scope)
        call = scope["call"]
    else:
        signs = {"mul": "*", "add": "+", "sub": "-", "truediv": "/", "matmul": "@"}
        signs |= {"pow": "**", "and_": "&", "lt": "<"}
        call = eval(f"lambda a, b: a {signs[of.__name__]} b")
    compiled = stator.compile(call)

    def same(x: Tensor) -> None:
        results = []
        for function in (compiled, call):
            operands = (Amount(3.0), x.clone()) if place == "left" else (x.clone(), Amount(3.0))
            try:
                found = function(*operands)
            except TypeError as error:
                found = str(error)
            results.append((repr(getattr(found, "value", found)), vars(operands[place == "right"])))
        assert repr(results[0]) == repr(results[1])

    for _ in range(3):
        same(torch.randn(3))
    same(torch.randn(2, 2))
    for name in ("__mul__", "__rmul__", "__radd__", "__sub__", "__rmatmul__", "__lt__", "__iadd__"):
        monkeypatch.setattr(Amount, name, lambda self, other: other * 7)
    same(torch.randn(3))
    monkeypatch.delattr(Amount, "__rmul__")
    same(torch.randn(3))


def test_operators_of_classes_break_no_graph() -> None:
    def call(x: Tensor, amount: Amount) -> Any:
        return (amount * x).value, (x * amount).value, x + amount, amount - x, amount < x

    compiled = stator.compile(call)
    for value in (1.0, 1.0, 1.0):
        x, amount = torch.randn(3), Amount(value)
        assert repr(compiled(x, amount)) == repr(call(x, amount))
    assert stator.stats(compiled).breaks == 0 and stator.stats(compiled).hits == 2
