"""Control flow over shapes, numbers and containers; patterns; truth values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..support.case import Corpus, ints, one, pos, t

case = Corpus()

MODE = "double"
LIMIT = 3


@case(lambda: (t(3), 2), again=lambda: (t(3), -2))
def if_else(x: Tensor, n: int) -> Tensor:
    y = x**2
    if n >= 0:
        return (n + 1) * y
    else:
        return y / n


@case(lambda: (t(3), "b"), again=lambda: (t(3), "z"))
def elif_chain(x: Tensor, kind: str) -> Tensor:
    if kind == "a":
        return x + 1
    elif kind == "b":
        return x * 2
    elif kind in ("c", "d"):
        return x - 3
    return x


@case(one, change=lambda: globals().update(MODE="half"))
def if_on_global(x: Tensor) -> Tensor:
    return x * 2 if MODE == "double" else x / 2


@case(lambda: (t(3, 4),), again=lambda: (t(3, 8),))
def if_on_shape(x: Tensor) -> Tensor:
    return x.sum(0) if x.shape[1] > 4 else x.sum(1)


@case(lambda: (t(3, 4),), again=lambda: (t(3, 4, dtype=torch.float64),))
def if_on_dtype(x: Tensor) -> Tensor:
    return x + 1 if x.dtype == torch.float32 else x - 1


@case(lambda: (t(3, 4),), again=lambda: (t(4),))
def if_on_dim(x: Tensor) -> Tensor:
    if x.dim() == 2 and x.size(0) == 3 and not x.requires_grad:
        return x.t()
    return x.flip(0)


@case(lambda: (t(3), None), again=lambda: (t(3), t(3)))
def if_none(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x * mask


@case(lambda: (t(3), 4))
def for_range(x: Tensor, n: int) -> Tensor:
    for i in range(n):
        x = x + i
    return x


@case(lambda: (t(3), 10))
def for_break_else(x: Tensor, n: int) -> Tensor:
    for i in range(n):
        if i == LIMIT:
            break
        x = x * 1.5
    else:
        x = x - 100
    for i in range(2):
        x = x + i
    else:
        x = x + 0.5
    return x


@case(lambda: (t(3), 6), change=lambda: globals().update(LIMIT=1))
def for_continue(x: Tensor, n: int) -> Tensor:
    for i in range(n):
        if i % 2 or i > LIMIT:
            continue
        x = x + i
    return x


@case(lambda: (t(3), 3))
def while_loop(x: Tensor, n: int) -> Tensor:
    while n:
        x = x * n
        n -= 1
    else:
        x = x + 1
    return x


@case(lambda: (t(3),))
def while_true(x: Tensor) -> Tensor:
    count = 0
    while True:
        count += 1
        if count > 4:
            break
        x = x.sin()
    return x


@case(lambda: (t(3, 2),))
def nested_loops(x: Tensor) -> Tensor:
    total = x.new_zeros(())
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if i == j:
                continue
            total = total + x[i, j]
    return total


@case(lambda: (t(4, 3),))
def iterate_tensor_rows(x: Tensor) -> Tensor:
    total = torch.zeros(3)
    for row in x:
        total = total + row.exp()
    return total


@case(lambda: (t(3), 2, 0), again=lambda: (t(3), 0, 2))
def boolean_operators(x: Tensor, a: int, b: int) -> Tensor:
    return x * (a or 5) + (a and b) + (not b) + (a and 3 or 4)


@case(lambda: (t(3), [], "x"), again=lambda: (t(3), [1], ""))
def truth_of_containers(x: Tensor, items: list[int], s: str) -> Tensor:
    if not items and s:
        return x + 1
    return x - 1


@case(lambda: (t(3), 2))
def short_circuit_effects(x: Tensor, n: int) -> tuple[Tensor, list[str]]:
    calls: list[str] = []

    def yes(name: str) -> bool:
        calls.append(name)
        return True

    def no(name: str) -> bool:
        calls.append(name)
        return False

    if yes("a") and (no("b") or yes("c")) and not no("d") or yes("never"):
        x = x * n
    return x, calls


@case(lambda: (t(3), 3))
def conditional_expressions(x: Tensor, n: int) -> Tensor:
    return (x if n > 5 else -x) if n % 2 else (x * 2 if n else x)


@case(lambda: (t(5),))
def walrus(x: Tensor) -> Tensor:
    if (n := x.shape[0]) > 3:
        x = x * n
    while (n := n - 1) > 2:
        x = x + n
    return x + sum(last := i for i in range(3)) + last


@case(lambda: (t(3), 2))
def assertion_holds(x: Tensor, n: int) -> Tensor:
    assert n == 2, "two is wanted"
    assert x.dim() == 1
    return x


@case(lambda: (t(3), 7), expect="any")
def assertion_fails(x: Tensor, n: int) -> Tensor:
    assert n == 2, f"{n} is not two"
    return x


@case(lambda: (t(3), 2))
def delete_local(x: Tensor, n: int) -> Tensor:
    y = x + n
    del n
    try:
        return y + n
    except UnboundLocalError as error:
        return y + len(error.args)


@case(lambda: (t(3),))
def pass_and_ellipsis(x: Tensor) -> Tensor:
    pass
    ...
    if ...:
        x = x[..., :2]
    return x


@dataclass
class Point:
    x: Any
    y: Any


class Pair:
    __match_args__ = ("left", "right")

    def __init__(self, left: Any, right: Any) -> None:
        self.left = left
        self.right = right


@case(lambda: (t(3), 2), again=lambda: (t(3), "two"))
def match_literals(x: Tensor, value: Any) -> Tensor:
    match value:
        case 0 | 1:
            return x
        case 2:
            return x * 2
        case "two":
            return x + 2
        case True | None:
            return -x
    return x


@case(lambda: (t(3), 1.0))
def match_literal_types(x: Tensor, value: Any) -> Tensor:
    match value:
        case True:
            return x + 100
        case 1:
            return x + 10
        case -0.0:
            return x
    return x


@case(lambda: (t(3), [1, 2, 3]), again=lambda: (t(3), [1]))
def match_sequences(x: Tensor, items: Any) -> Tensor:
    match items:
        case []:
            return x
        case [only]:
            return x * only
        case [first, *rest] if first > 5:
            return x - len(rest)
        case [first, *_, last]:
            return x * first + last
    return x


@case(lambda: (t(3), (1, (2, 3))))
def match_nested(x: Tensor, items: Any) -> Tensor:
    match items:
        case (a, (b, c) as inner):
            return x * a + b - c + len(inner)
        case _:
            return x


@case(
    lambda: (t(3), {"op": "add", "n": 2, "more": 1}),
    again=lambda: (t(3), {"op": "mul", "by": 3}),
)
def match_mappings(x: Tensor, command: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    match command:
        case {"op": "add", "n": n, **rest}:
            return x + n, rest
        case {"op": "mul", "by": by}:
            return x * by, {}
    return x, {}


@case(lambda: (t(3), "point"), again=lambda: (t(3), "pair"))
def match_classes(x: Tensor, which: str) -> Tensor:
    value: Any = Point(x, 2) if which == "point" else Pair(3, x)
    match value:
        case Point(x=Tensor() as inner, y=int(n)):
            return inner * n
        case Pair(int(n), right):
            return right - n
    return x


@case(lambda: (t(3), 3))
def match_builtin_classes(x: Tensor, n: Any) -> Tensor:
    match n:
        case str() | bytes():
            return x
        case bool():
            return -x
        case int(value) | float(value):
            return x * value
    return x


@case(lambda: (t(3), torch.float32), again=lambda: (t(3), torch.float64))
def match_values(x: Tensor, dtype: torch.dtype) -> Tensor:
    match dtype:
        case torch.float32:
            return x + 1
        case torch.float64:
            return x + 2
    return x


@case(lambda: (t(3), {}))
def match_empty_mapping_and_guard(x: Tensor, value: Any) -> Tensor:
    match value:
        case {} if len(value) > 0:
            return x
        case {}:
            return x * 4
    return x


@case(lambda: (t(2, 3), 1))
def early_returns(x: Tensor, n: int) -> Tensor:
    for i in range(10):
        for j in range(10):
            if i * j == 6 and n:
                return x * i + j
    return x


@case(lambda: (t(3), 5))
def int_conversions_of_shape(x: Tensor, n: int) -> Tensor:
    size = int(x.numel() * 1.5)
    return x * max(size, n) + min(size, n) + round(2.567, 1) + divmod(n, 2)[1]


@case(lambda: (pos(3), 2.5))
def float_tests(x: Tensor, v: float) -> Tensor:
    if v != v or v == float("inf"):
        return x
    return x * v if v.is_integer() else x * round(v)


@case(one)
def if_on_tensor(x: Tensor) -> Tensor:
    if (x > 0).any():
        return x * 2
    return x


@case(one)
def while_on_tensor(x: Tensor) -> Tensor:
    while x.abs().max() > 0.5:
        x = x / 2
    return x


@case(lambda: (ints(2, high=3),))
def and_on_tensor(x: Tensor) -> Any:
    return (x.sum() > 1) and x


@case(one)
def assert_on_tensor(x: Tensor) -> Tensor:
    assert (x == x).all(), "no NaN"
    return x + 1


@case(one)
def chained_comparison_of_scalar_tensors(x: Tensor) -> Tensor:
    return x if -1 < x.mean() < 1 else -x


@case(lambda: (ints(4, high=100),), expect="native")
def sorted_scalar_tensors(x: Tensor) -> list[Tensor]:
    return sorted(x)


@case(one)
def max_of_scalar_tensors(x: Tensor) -> Tensor:
    return max(x[0, 0], x[0, 1])


@case(lambda: (ints(2, 2, high=3),), expect="native")
def tensor_in_list(x: Tensor) -> bool:
    return x[0, 0] in [x[0, 1], x[1, 0]]


@case(lambda: (ints(1, high=6)[0], t(4)))
def range_of_tensor(n: Tensor, x: Tensor) -> Tensor:
    for i in range(n):
        x = x + i
    return x


@case(lambda: (ints(1, high=3)[0], [1, 2, 3]))
def list_index_by_tensor(n: Tensor, items: list[int]) -> Tensor:
    return n * items[n]
