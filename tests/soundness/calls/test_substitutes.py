"""`re.sub` with a function: it is called for each match as C code calls it, and what it reads is guarded."""

from __future__ import annotations

import re
import string
import sys
import time
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from ..probe import Steps, flip, right_after, two_worlds

HELD: dict[str, Any] = {"mark": "x", "count": 0, "pattern": re.compile(r"(?P<n>\d+)|(?P<w>[a-z])")}
X = torch.ones(2)


def mark(found: re.Match[str]) -> str:
    return f"<{found.group()}{HELD['mark']}>"


class Marker:
    def __init__(self) -> None:
        self.sign = "+"

    def put(self, found: re.Match[str]) -> str | None:
        return None if found["n"] is None else self.sign + found["n"]


MARKER = Marker()


@flip
def what_the_function_reads() -> Steps:
    HELD["mark"] = "x"
    yield (lambda x: (re.sub(r"\d", mark, "a1b22c"), x + 1)), (X,)
    HELD["mark"] = "y"
    yield
    HELD["mark"] = "x"


@flip
def a_method() -> Steps:
    MARKER.sign = "+"
    yield (lambda x: (HELD["pattern"].sub(MARKER.put, "12 ab 3"), x + 1)), (X,)
    MARKER.sign = "-"
    yield
    MARKER.sign = "+"


@flip
def the_pattern() -> Steps:
    HELD["pattern"] = re.compile(r"\d+")
    yield (lambda x: (HELD["pattern"].sub(lambda m: m[0] * 2, "12 ab 3"), x + 1)), (X,)
    HELD["pattern"] = re.compile(r"[a-z]")
    yield


@flip
def the_text() -> Steps:
    HELD["text"] = "a1b2"
    yield (lambda x: (re.subn(r"[ab]", lambda m: m[0].upper(), HELD["text"]), x + 1)), (X,)
    HELD["text"] = "b1"
    yield
    HELD["text"] = "a1b2"


@right_after
def templates() -> Steps:
    template = string.Template("$name has ${n} rows, $$")
    fn = lambda x, name: (template.substitute(name=name, n=x.shape[0]), x + 1)  # noqa: E731
    yield fn, (X, "a")
    yield X, "b"
    yield torch.ones(5), "b"
    yield torch.ones(6), "b"


def emptied(x: Tensor, text: str) -> Any:
    """Empty matches, counts, nothing to replace, matches side by side."""
    found = [re.sub(p, lambda m: f"[{m[0]}]", text) for p in (r"", r"x*", r"\b|b", r"zz")]
    found += [re.sub(r"\w", lambda m: m[0] * 2, text, count) for count in (1, 2)]
    return found, re.sub(r"\w", lambda m: None, text), x + 1


def raising(x: Tensor, text: str) -> Any:
    seen = []

    def convert(found: re.Match[str]) -> Any:
        seen.append(found.start())
        if found[0] == "b":
            raise KeyError(found.span())
        return 3 if found[0] == "c" else found[0]

    try:
        return re.sub(r"\w", convert, text), seen, x + 1
    except (KeyError, TypeError) as error:
        return str(error), seen, x + 1


def of_numbers(x: Tensor, text: str) -> Any:
    return re.sub(r"[ab]", lambda m: f"{m[0]}={x.sum().item():.2f}", text), x + 1


def matches_kept(x: Tensor, text: str) -> Any:
    kept: list[re.Match[str]] = []
    made = re.sub(r"\w", lambda m: kept.append(m) or m[0], text)  # type: ignore[func-returns-value]
    return made, [m.span() for m in kept], x + 1


@pytest.mark.parametrize("fn", [emptied, raising, of_numbers, matches_kept])
def test_like_plain(fn: Any) -> None:
    api.reset()
    compiled = api.compile(fn)
    for number, text in enumerate(["abc", "abc", "aac", "", "xx b", "acc"] * 2):
        x = torch.full((2,), float(number))
        assert repr(fn(x, text)) == repr(compiled(x, text))
    # On CPython 3.13 `re.sub` looks up what it was given in a dictionary, with a default of its own.
    if fn in (emptied, of_numbers) and sys.version_info < (3, 13):
        assert not api.breaks(compiled)


@two_worlds
def what_the_function_writes() -> Steps:
    held: dict[str, Any] = {"seen": [], "count": 0}

    def count(found: re.Match[str]) -> str:
        held["count"] += 1
        held["seen"].append(found.group())
        return str(held["count"])

    def step(x: Tensor, text: str) -> Any:
        return re.sub(r"[a-c]", count, text), x + held["count"], held["seen"][-1]

    yield step, (X, "a b")
    yield X, "abc"
    held["count"] = 10
    yield X, "abc"


@two_worlds
def a_break_in_the_function() -> Steps:
    """The call is done once, with what it writes."""
    seen: list[str] = []

    def count(found: re.Match[str]) -> str:
        seen.append(found.group())
        time.sleep(0)
        seen.append("behind")
        return found.group().upper()

    def step(x: Tensor, text: str) -> Any:
        before = len(seen)
        made = re.sub(r"[a-c]", count, text)
        return made, x + 1, seen[before:]

    yield step, (X, "a b")
    yield X, "abc"


@two_worlds
def groups_in_the_replacement() -> Steps:
    """It's read by Python code of the library's."""

    def step(x: Tensor, text: str) -> Any:
        swapped = re.sub(r"(\w)(\d)", r"\2\1", text)
        counted = re.subn(r"(?P<n>a)", r"<\g<n>>", text, count=1)
        return swapped, counted, HELD["pattern"].sub(r"[\g<0>]", text), x + 1

    yield step, (X, "a1 b2")
    yield X, "aa3"


test_what_the_function_reads = what_the_function_reads
test_a_method = a_method
test_the_pattern = the_pattern
test_the_text = the_text
test_templates = templates
test_a_break_in_the_function = a_break_in_the_function
test_what_the_function_writes = what_the_function_writes
test_groups_in_the_replacement = groups_in_the_replacement
