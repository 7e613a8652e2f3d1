"""Texts that a table has at a number that was read from a tensor: found by a node, whichever it is."""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

SIZE = 8


class Tables:
    """Made anew for plain Python and for each compiled function: some programs write to them."""

    def __init__(self) -> None:
        self.labels = [f"label {place}" for place in range(SIZE)]
        self.pair = tuple(f"item {place}" for place in range(SIZE))
        self.names = {place: f"name {place}" for place in range(SIZE)}
        self.numbered = {place + 3: f"number {place}" for place in reversed(range(SIZE))}
        self.letters = "abcdefgh"
        self.config = SimpleNamespace(id2label={place: f"class {place}" for place in range(SIZE)})
        self.gaps = ["", *self.labels[1:]]
        self.odd = {False: "no", True: "yes", 2: "two", 2.5: "more"}
        self.filled = collections.defaultdict(lambda: "none", {0: "zero", 1: "one"})
        self.large = [f"token {place}" for place in range(5000)]
        self.seen: list[Any] = []


Program = Callable[[Tensor, Tables], Any]


def place(x: Tensor) -> int:
    return int(x.argmax().item())


def by_list(x: Tensor, tables: Tables) -> Any:
    return tables.labels[x.argmax().item()]


def by_tuple(x: Tensor, tables: Tables) -> Any:
    return x + 1, tables.pair[int(x.argmax())]


def by_dictionary(x: Tensor, tables: Tables) -> Any:
    best = x.argmax().item()
    return {
        "label": tables.names[best],
        "other": tables.numbered[best + 3],
        "score": x.max().item(),
    }


def by_text(x: Tensor, tables: Tables) -> Any:
    return [tables.letters[i] for i in x.topk(3).indices.tolist()]


def from_behind(x: Tensor, tables: Tables) -> Any:
    return tables.labels[place(x) - SIZE], tables.pair[-1 - place(x)], tables.letters[~place(x)]


def of_config(x: Tensor, tables: Tables) -> Any:
    scores, places = x.softmax(-1).topk(2)
    return [
        {"label": tables.config.id2label[i], "score": score}
        for score, i in zip(scores.tolist(), places.tolist(), strict=True)
    ]


def told(x: Tensor, tables: Tables) -> Any:
    label = tables.labels[place(x)]
    tables.seen.append(f"{label:>12}: {x.max().item():.2f}")
    tables.seen.append(label)
    text = "<"
    for i in x.topk(2).indices.tolist():
        text += tables.letters[i]
    tables.seen.append((text + ">", label.upper(), "-".join([label, "x"])))
    return x * 2


def is_itself(x: Tensor, tables: Tables) -> Any:
    label = tables.labels[place(x)]
    return label is tables.labels[place(x)], label is tables.labels[0]


WHOLE: list[Program] = [
    by_list, by_tuple, by_dictionary, by_text, from_behind, of_config, told,
]  # fmt: skip


def compared(x: Tensor, tables: Tables) -> Any:
    label = tables.labels[place(x)]
    if label == "label 3" or label.endswith("5"):
        return x + 1, label
    return x - 1, len(label), sorted([label, "label 2"])


def as_key(x: Tensor, tables: Tables) -> Any:
    return {tables.labels[place(x)]: 1.0, tables.letters[place(x)]: x.max().item()}


def empty(x: Tensor, tables: Tables) -> Any:
    return tables.gaps[place(x)]


def odd(x: Tensor, tables: Tables) -> Any:
    return tables.odd[place(x) % 3]


def missing(x: Tensor, tables: Tables) -> Any:
    return tables.filled[place(x)], len(tables.filled)


def large(x: Tensor, tables: Tables) -> Any:
    return tables.large[place(x) * 600]


def written_before(x: Tensor, tables: Tables) -> Any:
    tables.labels[2] = "written"
    tables.names[1] = "written, too"
    return tables.labels[place(x)], tables.names[place(x)]


def written_behind(x: Tensor, tables: Tables) -> Any:
    label, name = tables.labels[place(x)], tables.names[place(x)]
    tables.labels.reverse()
    tables.names[place(x)] = "written"
    return label, name, tables.labels[place(x)], tables.names[place(x)]


def made_here(x: Tensor, tables: Tables) -> Any:
    rows = ["a", "b", *tables.labels[2:]]
    return rows[place(x)], {i: row for i, row in enumerate(rows)}[place(x)]


def kept(x: Tensor, tables: Tables) -> Any:
    tables.config.last = tables.pair[place(x)]
    tables.config.all = [*getattr(tables.config, "all", [])[-3:], tables.names[place(x)]]
    return x.sum()


def behind_a_break(x: Tensor, tables: Tables) -> Any:
    label = tables.labels[place(x)]
    sys._getframe().f_lineno
    return label, label is tables.labels[place(x)], label + "!"


def beyond(x: Tensor, tables: Tables) -> Any:
    return tables.pair[place(x) + 3]


def before_the_first(x: Tensor, tables: Tables) -> Any:
    return tables.numbered[place(x)]


RIGHT: list[Program] = [
    *WHOLE, is_itself, compared, as_key, empty, odd, missing, large, written_before, written_behind, made_here, kept,
    behind_a_break, beyond, before_the_first,
]  # fmt: skip


def change(tables: Tables, call: int) -> None:
    """What happens between two calls: other texts, another size, another kind."""
    if call == 10:
        tables.labels[3] = "new"
        tables.names[2] = "new"
        tables.config.id2label[1] = "new"
        tables.letters = "ABCDEFGHI"
    elif call == 14:
        tables.labels.extend(["more", "most"])
        tables.pair = ("other", *tables.pair)
        del tables.numbered[3]
        tables.config.id2label = dict.fromkeys(range(SIZE), "same")
    elif call == 18:
        tables.labels[1] = 5  # type: ignore[call-overload]
        tables.names = collections.defaultdict(str, tables.names)


def known(tables: Tables, result: Any) -> list[int]:
    """Where the objects of a result stand in the tables."""
    parts = result if isinstance(result, tuple | list) else [result]
    table = [*tables.labels, *tables.pair, *tables.names.values()]
    return [next((i for i, one in enumerate(table) if one is part), -1) for part in parts]


def outcomes(function: Program, calls: int, changes: bool) -> list[Any]:
    tables, found = Tables(), []
    for call in range(calls):
        if changes:
            change(tables, call)
        x = torch.randn(SIZE, generator=torch.Generator().manual_seed(call))
        try:
            result = function(x, tables)
        except (IndexError, KeyError, TypeError) as error:
            result = (type(error), str(error))
        held = [
            tables.seen,
            tables.config,
            list(tables.filled.items()),
            tables.labels,
            tables.names,
        ]
        found.append((repr(result), known(tables, result), repr(held)))
    return found


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("program", RIGHT, ids=lambda it: it.__name__)
def test_texts_are_plain_pythons(program: Program, every: bool) -> None:
    with stator.config.patch(skip_unprofitable=not every):
        assert outcomes(stator.compile(program), 24, changes=True) == outcomes(
            program, 24, changes=True
        )


@pytest.mark.parametrize("program", WHOLE, ids=lambda it: it.__name__)
def test_one_trace_finds_all(program: Program) -> None:
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        assert outcomes(compiled, 24, changes=False) == outcomes(program, 24, changes=False)
    stats = stator.stats(compiled)
    assert (stats.traces, stats.breaks) == (1, 0)


def test_other_backends_are_given_the_parts_around() -> None:
    compiled = stator.compile(by_list, backend="aot_eager")
    with stator.config.patch(skip_unprofitable=False):
        assert outcomes(compiled, 12, changes=True) == outcomes(by_list, 12, changes=True)
