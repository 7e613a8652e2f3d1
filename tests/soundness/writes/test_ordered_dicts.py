"""An `OrderedDict` has two orders: its own, and that of the table, which `dict`'s methods show."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

Table = collections.OrderedDict[Any, Any]
X = torch.ones(2)


def to_end(x: Tensor, d: Table) -> Any:
    d.move_to_end("a")
    return x * d["b"], list(d)


def to_front(x: Tensor, d: Table) -> Any:
    d.move_to_end("c", last=False)
    return x * d["b"]


def both_ways(x: Tensor, d: Table) -> Any:
    d.move_to_end("b")
    d.move_to_end("a", last=False)
    d["c"] = 5
    return x, list(d.items())


def made_again(x: Tensor, d: Table) -> Any:
    d["a"] = d.pop("a") + 1
    return x * d["a"], list(d)


def made_again_and_moved(x: Tensor, d: Table) -> Any:
    d["a"] = d.pop("a")
    d["b"] = d.pop("b")
    d.move_to_end("a")
    d.move_to_end("c", last=False)
    return x, list(d)


def added_and_moved(x: Tensor, d: Table) -> Any:
    n = len(d)
    d[n] = x.shape[0]
    d[n + 1] = n
    d.move_to_end(n)
    d.move_to_end("b", last=False)
    return x, list(d)


def recently_used(x: Tensor, d: Table) -> Any:
    d["new"] = x.shape[0]
    d.move_to_end("new")
    if len(d) > 3:
        d.popitem(last=False)
    return x, list(d)


def shown_by_dict(x: Tensor, d: Table) -> Any:
    d.move_to_end("a")
    return x, list(dict.items(d)), list(dict.__iter__(d)), list(dict.values(d)), len(d)


def written_by_dict(x: Tensor, d: Table) -> Any:
    dict.__setitem__(d, "a", 7)
    return x * d["a"], list(d), dict.__len__(d)


PROGRAMS = [
    to_end,
    to_front,
    both_ways,
    made_again,
    made_again_and_moved,
    added_and_moved,
    recently_used,
    shown_by_dict,
    written_by_dict,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_orders(program: Callable[..., Any]) -> None:
    plain: Table = collections.OrderedDict(a=1, b=2, c=3)
    ours = plain.copy()
    compiled = api.compile(program)
    for at in range(8):
        assert str(compiled(X, ours)) == str(program(X, plain)), at
        assert list(ours.items()) == list(plain.items()), at
        assert list(dict.items(ours)) == list(dict.items(plain)), at
        if at == 4:
            for table in (plain, ours):
                table["b"] = table.pop("b", 4)
                table.move_to_end(next(reversed(table)), last=False)


def test_order_of_the_table_alone_changes() -> None:
    plain: Table = collections.OrderedDict(a=1, b=2)
    ours = plain.copy()

    def program(x: Tensor, d: Table) -> Any:
        return x, list(dict.items(d)), list(d)

    compiled = api.compile(program)
    for at in range(6):
        assert str(compiled(X, ours)) == str(program(X, plain)), at
        if at == 2:
            for table in (plain, ours):
                table["a"] = table.pop("a")
                table.move_to_end("b")


def test_a_move_is_replayed() -> None:
    table: Table = collections.OrderedDict(a=1, b=2, c=3)
    compiled = api.compile(to_front, fullgraph=True)
    for _ in range(4):
        compiled(X, table)
    assert list(table) == ["c", "a", "b"] and list(dict.keys(table)) == ["a", "b", "c"]
    if not api.PLAIN:
        assert compiled.stats.hits >= 2
