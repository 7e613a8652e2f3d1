"""Programs over sizes and numbers, each with the most traces that twenty different inputs may take.

Each is a function and a maker of arguments from a number; `traces` counts those of `dynamic=None`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Maker = Callable[[int], tuple[Any, ...]]


@dataclasses.dataclass(frozen=True)
class Program:
    """A function, how its arguments are made, and the most traces that it may take."""

    function: Callable[..., Any]
    arguments: Maker
    traces: int = 2

    @property
    def name(self) -> str:
        return self.function.__name__


PROGRAMS: list[Program] = []


def program(
    arguments: Maker, traces: int = 2
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append(Program(function, arguments, traces))
        return function

    return add


def ones(*size: int) -> torch.Tensor:
    return torch.arange(math.prod(size), dtype=torch.float32).reshape(size) / 7


def a_number(n: int) -> tuple[Any, ...]:
    return ones(3), n


def a_matrix(n: int) -> tuple[Any, ...]:
    return (ones(n, 4),)


# -- numbers ---------------------------------------------------------------------------------------


@program(a_number)
def added(x, n):
    return x + n


@program(a_number)
def arithmetic(x, n):
    return x * (2 * n + 1) - n // 2 + n % 5 + (-n) ** 2


@program(a_number)
def divided(x, n):
    return x / n + n / 3


@program(a_number)
def branches(x, n):
    return x + n if n > 1 else x - n


@program(a_number, traces=3)
def both_branches(x, n):
    return x + n if n < 10 else x - n


@program(a_number)
def returned(x, n):
    return x.sum(), n, n + 1, [n * 2, (n, -n)], {"n": n}


@program(a_number)
def smallest(x, n):
    return x * min(n, 100) + max(n, 1) + abs(-n)


@program(a_number)
def smallest_of_some(x, n):
    return x * min(n, 100, 3 * n) + max((n, 1, 7 - n, 2)), max(True, n, 2)


@program(a_number)
def of_type(x, n):
    return x + n if isinstance(n, int) and not isinstance(n, bool) else x


@program(a_number)
def through_calls(x, n):
    def scale(value, *, by):
        return value * by

    return functools.partial(scale, by=n)(x)


@program(a_number)
def in_containers(x, n):
    numbers = [n, n + 1]
    numbers.append(n + 2)
    first, *rest = numbers
    return x + first + rest[-1] + (n, 3)[0]


@program(a_number)
def in_attributes(x, n):
    class Box:
        pass

    box = Box()
    box.n = n
    box.n += 1
    return x * box.n


@program(a_number)
def in_closures(x, n):
    def inner():
        return x + n

    return inner()


@program(a_number)
def compared(x, n):
    return x if 0 < n <= 1000 and n != -3 else x + 1


@program(a_number)
def truth(x, n):
    return x + 1 if n else x


@program(a_number)
def as_float(x, n):
    return x * float(n) + math.sqrt(n) + int(n / 2) + math.ceil(n / 3) + math.floor(n / 3)


@program(lambda n: (ones(3), n / 4))
def a_float(x, rate):
    return x * rate + (rate + 1) / 2


@program(a_number)
def by_operator(x, n):
    return x + operator.mul(n, 2) + operator.index(n)


@program(a_number)
def unread_text(x, n):
    message = f"{n} of {x.shape}: " + repr(n)
    return x + n if x is not None else message


@program(a_number)
def low_bits(x, n):
    return x + (n & 3) + (n | 1) * 2 + (n ^ 1) * 3 + (n & -4) + (n << 2) + (n >> 1) + (~n)


@program(a_number)
def powers(x, n):
    return x + n**2 + pow(n, 3) + n**-1 + n**0.5 + math.sqrt(n)


@program(a_number)
def quotients(x, n):
    quotient, rest = divmod(n, 3)
    return x + quotient - rest + round(n) + n * (n > 1) + (n == None)  # noqa: E711


@program(a_number)
def truth_values(x, n):
    return x + bool(n) + operator.truth(n + 1) if math.isfinite(n) and not math.isnan(n) else x


@program(lambda n: (ones(3), n), traces=22)
def read_text(x, n):
    return x + len(f"{n}") + int(str(n))


@program(lambda n: (ones(3), n), traces=22)
def attribute_by_text(x, n):
    class Box:
        n4 = n5 = 1

    return x + getattr(Box, f"n{n}", 0)


@program(lambda n: (ones(3), n), traces=22)
def as_text(x, n):
    return x, f"{n} of them", str(n + 1)


@program(lambda n: (ones(3), n), traces=22)
def as_key(x, n):
    return x * {n: 2}.get(n, 3)


@program(lambda n: (ones(n, 2), 5), traces=22)
def equal_keys(x, n):
    return x + len({n, x.shape[0]}) + len({n: 1, x.shape[0]: 2}) + len({*[n, x.shape[0]]})


@program(lambda n: (ones(3), n % 3), traces=4)
def as_index(x, n):
    return x + [1, 2, 3][n]


@program(lambda n: (ones(3), n % 3), traces=4)
def a_loop(x, n):
    for i in range(n):
        x = x + i
    return x


# -- sizes -----------------------------------------------------------------------------------------


@program(a_matrix)
def pointwise(x):
    return (x + 1) * x.sin()


@program(a_matrix)
def a_size(x):
    return x * x.shape[0] + x.size(0) + x.size()[1] + len(x)


@program(a_matrix)
def counted(x):
    return x / x.numel()


@program(a_matrix)
def viewed(x):
    return x.view(x.shape[0] * 2, 2).reshape(-1, 4).flatten()


@program(a_matrix)
def unpacked(x):
    rows, columns = x.shape
    return x.view(rows, 2, columns // 2).transpose(1, 2).contiguous()


@program(a_matrix)
def starred(x):
    return x.view(*x.shape[:-1], 2, 2).expand(x.size(0), 2, 2)


@program(lambda n: (ones(n, 4), ones(n, 4)))
def two(x, y):
    return x + y


@program(lambda n: (ones(n, 4), ones(n + 1, 4)), traces=3)
def joined(x, y):
    return torch.cat([x, y]).sum(0)


@program(lambda n: (ones(n, 4), ones(4, n)), traces=3)
def multiplied(x, y):
    return x @ y, y @ x, F.linear(x, y.t()[:4, :4])


@program(a_matrix)
def made(x):
    return torch.zeros(x.shape[0], 2) + torch.arange(x.size(0)).unsqueeze(-1)


@program(a_matrix)
def sliced(x):
    return x[1:], x[: x.shape[0] - 1], x[:, 1:3], x[None, :, 0]


@program(a_matrix)
def reduced(x):
    return x.sum(), x.mean(0), x.amax(-1, keepdim=True), x.softmax(-1)


@program(a_matrix, traces=3)
def asked(x):
    return x if x.shape[0] * 2 < 16 else x + 1


@program(a_matrix)
def checked(x):
    assert x.shape[1] == 4
    if x.size() != (x.shape[0], 4):
        raise ValueError(f"{x.shape}")
    return x + 1


@program(lambda n: (ones(2, n, 8),))
def attended(x):
    batch, length, width = x.shape
    heads = x.view(batch, length, 2, width // 2).transpose(1, 2)
    out = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    return out.transpose(1, 2).reshape(batch, length, width)


@program(lambda n: (ones(n, 3, 8, 8), ones(4, 3, 3, 3)))
def convolved(x, weight):
    return F.max_pool2d(F.relu(F.conv2d(x, weight, padding=1)), 2)


@program(lambda n: (torch.arange(n) % 5, ones(5, 4)))
def embedded(ids, table):
    return F.layer_norm(F.embedding(ids, table), (4,))


@program(a_matrix)
def masked(x):
    length = x.shape[0]
    mask = torch.full((length, length), float("-inf")).triu(1)
    return mask + torch.ones(length, length)


@program(a_matrix)
def changed_in_place(x):
    y = x + 1
    before, rows = y.numel(), y.shape[0]
    y.unsqueeze_(0)
    y.transpose_(0, 1)
    return x * rows + before, y * y.shape[0] + y.shape[1]


@program(lambda n: (ones(n, 4), n))
def written(x, n):
    y = x.clone()
    y[: n - 1] = n
    y += n
    y[n - 1, 1] = x.shape[0]
    return y


@program(lambda n: ([ones(n), ones(n + 1)], {"n": n}))
def in_given_containers(tensors, given):
    return torch.cat(tensors) * given["n"]


@program(lambda n: (ones(2, n, 3),))
def by_einsum(x):
    return torch.einsum("bij,bkj->bik", x, x).reshape(-1, x.size(1)).sum(0)


@program(lambda n: (ones(n, 2, 6),))
def chunks(x):
    first, second = x.chunk(2, dim=-1)
    parts = x.split([2, 4], dim=-1)
    stacked = torch.stack([first, second], dim=1)
    return stacked.permute(1, 0, 2, 3).flatten(1, 2), parts[1].unsqueeze(0).squeeze(0)


# -- functions of numbers --------------------------------------------------------------------------


@program(a_number)
def symbolic_functions(x, n):
    larger = torch.sym_max(n, 3) + torch.sym_min(n, 100) + torch.sym_sum([n, n + 1])
    chosen = torch.sym_ite(n > 0, n, 3) + torch.sym_int(n / 2)
    return x * larger + chosen + torch.sym_float(n)


@program(a_matrix)
def negated(x):
    return x + 1 if torch.sym_not(x.shape[0] > 1000) else x


@program(lambda n: (ones(3), abs(n) + 2))
def logarithms(x, n):
    return x * math.log(n) + math.log2(n + 1) + math.log10(n) * math.exp(1 / n)


@program(lambda n: (ones(3), n))
def waves(x, n):
    return x * math.cos(math.pi * n / 50) + math.sin(n) - math.tanh(n / 7)


@program(lambda n: (ones(3), abs(n) + 2))
def logarithm_in_a_condition(x, n):
    return x + math.ceil(math.log2(n)) if math.log(n) < 100 else x


@program(lambda n: (ones(3), n + 0.25))
def rounded(x, f):
    return x * round(f * 1.5) + math.pow(f, 2) + math.pow(2, f)


@program(a_matrix)
def as_another_type(x):
    return x.view(torch.int32) + x.view(torch.int64).shape[1] + x.view(torch.int16).sum()


@program(a_matrix)
def size_of_its_own(x):
    return x.new_ones(torch.Size([x.shape[0], 2])) * torch.Size((x.shape[0], 3)).numel()


@program(a_matrix)
def repeated_rows(x):
    return x.repeat_interleave(2, dim=0) + torch.repeat_interleave(x, repeats=2, dim=0)


@program(a_number)
def without_the_attribute(x, n):
    return x * n if not hasattr(n, "shape") else x


@program(a_matrix)
def searched_sizes(x):
    return x + 1 if 1 in x.shape or x.shape[0] in (1, 0, 7777) else x


@program(lambda n: (ones(n, 100), n))
def sorted_sizes(x, n):
    smallest, *others = sorted(x.shape)
    return x[:smallest] * sum(sorted([n + 3, n, n + 1])[1:]) + others[0]


@program(lambda n: (ones(n, 4), n))
def counted_bytes(x, n):
    return x + x.nbytes // n


@program(a_matrix)
def padded_sequences(x):
    return torch.nn.utils.rnn.pad_sequence([x, x[:-1]], batch_first=True)
