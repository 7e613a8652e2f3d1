"""Operators over tensors, numbers and user objects."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..support.case import Corpus, ints, one, pos, t, two

case = Corpus()

SCALE = 2.5


@case(two)
def add_sub_mul(x: Tensor, y: Tensor) -> Tensor:
    return x + y - x * y


@case(two)
def true_division(x: Tensor, y: Tensor) -> Tensor:
    return x / y


@case(lambda: (ints(5, low=1), ints(5, low=1)))
def floor_division_and_modulo(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x // y, x % y


@case(lambda: (pos(3, 4), 3))
def power(x: Tensor, n: int) -> Tensor:
    return x**n + x**0.5 + x**-1


@case(lambda: (pos(3),))
def reflected_power(x: Tensor) -> Tensor:
    return 2**x


@case(one)
def reflected_arithmetic(x: Tensor) -> Tensor:
    return 3 + (2 - (4.0 * x)) + (1 / x)


@case(lambda: (ints(6, low=1),))
def reflected_integers(x: Tensor) -> tuple[Tensor, ...]:
    return 17 // x, 17 % x, 5 & x, 5 | x, 5 ^ x, 1 << x


@case(lambda: (ints(6), ints(6, high=4)))
def bit_operators(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x & y, x | y, x ^ y, ~x, x << y, x >> y


@case(one)
def unary(x: Tensor) -> tuple[Tensor, ...]:
    return -x, +x, abs(x), ~(x > 0)


@case(lambda: (t(3, 4), t(4, 5)), grad=False)
def matmul_operator(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


@case(lambda: (t(3, 4, grad=True), t(4, 5, grad=True)), grad=True)
def matmul_gradient(x: Tensor, y: Tensor) -> Tensor:
    return (x @ y).relu()


@case(two)
def comparisons(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x < y, x <= y, x > y, x >= y, x == y, x != y


@case(one)
def comparisons_with_numbers(x: Tensor) -> tuple[Tensor, ...]:
    return x < 0, 0 < x, x == 1, x != 0.5, -1 <= x


@case(one)
def compare_with_other_kinds(x: Tensor) -> tuple[bool, bool]:
    return x == None, x != "text"  # noqa: E711


@case(lambda: (t(3), 5))
def chained_comparison(x: Tensor, n: int) -> Tensor:
    return x + 1 if 0 < n <= 5 != 6 else x - 1


@case(lambda: (t(3), 5), again=lambda: (t(3), 9))
def chained_comparison_stops_early(x: Tensor, n: int) -> Tensor:
    seen: list[str] = []

    def note(value: int) -> int:
        seen.append(str(value))
        return value

    if note(1) < note(n) < note(7) < note(100):
        return x * len(seen)
    return x - len(seen)


@case(one)
def in_place_on_local(x: Tensor) -> Tensor:
    y = x.clone()
    y += 1
    y *= 2
    y -= x
    y /= 3
    y **= 2
    return y


@case(one)
def in_place_on_argument(x: Tensor) -> Tensor:
    x += 1
    x.mul_(2)
    return x


@case(lambda: (ints(5), ints(5)))
def in_place_integers(x: Tensor, y: Tensor) -> Tensor:
    z = x.clone()
    z &= 7
    z |= y
    z ^= 3
    z <<= 1
    z >>= 1
    z //= 2
    z %= 3
    return z


@case(lambda: (t(3, 3),))
def in_place_matmul(x: Tensor) -> Tensor:
    x @= torch.eye(3)
    return x


@case(lambda: (t(4), [1, 2, 3]))
def in_place_list(x: Tensor, items: list[int]) -> Tensor:
    mine = list(items)
    mine += [4]
    mine *= 2
    return x * sum(mine)


@case(lambda: (t(4), 7, 2))
def integer_arithmetic(x: Tensor, a: int, b: int) -> Tensor:
    return x * (a + b) - (a // b) + a % b + a**b - (a << b) + (a >> 1) + (a & b) + (a | b) + (a ^ b)


@case(lambda: (t(4), 0.3, 7.0), again=lambda: (t(4), 0.3, -0.0))
def float_arithmetic(x: Tensor, a: float, b: float) -> Tensor:
    return x * (a + b) - (b // 2) + (b % 2) + (a * b) + (-b) + abs(a)


@case(lambda: (t(4), True))
def boolean_arithmetic(x: Tensor, flag: bool) -> Tensor:
    return x * (flag + 1) + (not flag) + (flag & True) + (flag | False) + (flag ^ True)


@case(lambda: (t(4), 1 + 2j))
def complex_arithmetic(x: Tensor, z: complex) -> Tensor:
    return x * z + z.conjugate() - abs(z) + z.real


@case(lambda: (t(4), "ab"))
def string_operators(x: Tensor, s: str) -> Tensor:
    text = s + "c" * 2
    return x * len(text) + (s in text) + (text > s) + ("%s!" % s == "ab!")


@case(lambda: (t(4), [3, 1]))
def sequence_operators(x: Tensor, items: list[int]) -> Tensor:
    both = items + [2] * 3
    return (
        x * len(both) + (2 in both) + (5 not in both) + (both > items) + (both == [3, 1, 2, 2, 2])
    )


@case(lambda: (t(4), {1, 2, 3}, {3, 4}))
def set_operators(x: Tensor, a: set[int], b: set[int]) -> Tensor:
    return x * len(a | b) + len(a & b) + len(a - b) + len(a ^ b) + (a > b) + ({1} <= a)


@case(lambda: (t(4), {"a": 1}, {"b": 2}))
def dict_union(x: Tensor, a: dict[str, int], b: dict[str, int]) -> Tensor:
    merged = a | b
    merged |= {"c": 3}
    return x * sum(merged.values())


@case(lambda: (t(4), None))
def identity_operators(x: Tensor, y: Any) -> Tensor:
    return x + (y is None) + (x is not y) + (x is x)


@case(one, change=lambda: globals().update(SCALE=-1.0))
def global_operand(x: Tensor) -> Tensor:
    return x * SCALE


class Money:
    """Implements the arithmetic protocol, both ways."""

    def __init__(self, amount: Any) -> None:
        self.amount = amount

    def __add__(self, other: Any) -> Money:
        if not isinstance(other, Money):
            return NotImplemented
        return Money(self.amount + other.amount)

    def __radd__(self, other: Any) -> Money:
        return Money(self.amount + other)

    def __iadd__(self, other: Any) -> Money:
        self.amount = self.amount + other
        return self

    def __mul__(self, factor: Any) -> Money:
        return Money(self.amount * factor)

    __rmul__ = __mul__

    def __matmul__(self, other: Money) -> Any:
        return self.amount @ other.amount

    def __neg__(self) -> Money:
        return Money(-self.amount)

    def __invert__(self) -> Money:
        return Money(self.amount.flip(0))

    def __divmod__(self, other: int) -> tuple[str, int]:
        return "divmod", other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and self.amount is other.amount

    def __hash__(self) -> int:
        return 7

    def __lt__(self, other: Money) -> Any:
        return self.amount < other.amount

    def __bool__(self) -> bool:
        return self.amount.dim() == 1

    def __len__(self) -> int:
        return 3

    def __contains__(self, item: object) -> bool:
        return item == "gold"

    def __index__(self) -> int:
        return 2

    def __int__(self) -> int:
        return 20

    def __float__(self) -> float:
        return 0.25

    def __abs__(self) -> Money:
        return Money(self.amount.abs())

    def __getitem__(self, key: Any) -> Any:
        return self.amount[key]

    def __call__(self, factor: float) -> Any:
        return self.amount * factor


@case(lambda: (t(4), t(4)))
def user_addition(x: Tensor, y: Tensor) -> Tensor:
    return (Money(x) + Money(y)).amount


@case(lambda: (t(4),))
def user_reflected_addition(x: Tensor) -> Tensor:
    return (5 + Money(x)).amount + (3 * Money(x)).amount


@case(lambda: (t(4),))
def user_in_place_addition(x: Tensor) -> Tensor:
    money = Money(x)
    same = money
    money += 2
    return same.amount


@case(lambda: (t(4),))
def user_unary(x: Tensor) -> Tensor:
    return (-Money(x)).amount + (~Money(x)).amount + abs(Money(x)).amount


@case(lambda: (t(4), t(4)))
def user_matmul_and_call(x: Tensor, y: Tensor) -> Tensor:
    return Money(x) @ Money(y) + Money(x)(2.0)


@case(lambda: (t(4), t(4)))
def user_comparisons(x: Tensor, y: Tensor) -> Tensor:
    a, b = Money(x), Money(y)
    return x + (a == b) + (a == a) + (a != b) + (a < b) + (a > b)


@case(lambda: (t(4),))
def user_truth_and_len(x: Tensor) -> Tensor:
    money = Money(x)
    return x * len(money) if money and not Money(x[None]) else x


@case(lambda: (t(4),))
def user_conversions(x: Tensor) -> Tensor:
    money = Money(x)
    return x * int(money) + float(money) + [1, 2, 3][money] + divmod(money, 5)[1]


@case(lambda: (t(4),))
def user_contains_and_getitem(x: Tensor) -> Tensor:
    money = Money(x)
    return money[1:] * ("gold" in money) + ("iron" not in money)


@case(lambda: (t(4),), expect="any")
def missing_operator_raises(x: Tensor) -> Any:
    return Money(x) - Money(x)


@case(lambda: (t(4),))
def not_implemented_falls_back(x: Tensor) -> Tensor:
    try:
        Money(x) + 3
    except TypeError as error:
        return x + len(str(error))
    return x


@case(lambda: (t(4), 3), again=lambda: (t(4), 3.0))
def same_operator_other_type(x: Tensor, n: float) -> tuple[Tensor, Any]:
    return x * n, n / 2


@case(lambda: (ints(4), 2), again=lambda: (ints(4), True))
def integer_then_boolean(x: Tensor, n: int) -> tuple[Tensor, str]:
    return x + n, type(n).__name__


@case(lambda: (t(4), t(4)))
def where_the_same_operand_twice(x: Tensor, y: Tensor) -> Tensor:
    return (x + x) * (y * y) - (x - x)


@case(lambda: (t(2, 3), t(3)))
def broadcasting(x: Tensor, y: Tensor) -> Tensor:
    return x * y + y[:1] - x[:, :1]


@case(lambda: (t(4), t(4, dtype=torch.float64), ints(4)))
def type_promotion(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
    return x + y, x * z, z / 2, z + 1.5, (x > 0) + z
