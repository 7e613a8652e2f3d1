"""Calls of special methods and builtins that one seldom writes: what is given back is what plain Python gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api

X = torch.ones(2)


class Table(dict[str, Any]):
    """A dictionary."""


class Meta(type):
    """A class whose truth and length are code of the user's."""

    size = 1

    def __len__(cls) -> int:
        return cls.size


class Sized(metaclass=Meta):
    """It has a length."""


def ended(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except TypeError as error:
        # Called by its descriptor, a method names that class.
        return type(error), str(error).rpartition(".")[2]


@pytest.mark.parametrize("method", ["__getitem__", "__contains__", "get"])
@pytest.mark.parametrize("keys", [(), ("a",), ("a", "b"), ("a", "b", "c")])
def test_keys_of_another_number(method: str, keys: tuple[str, ...]) -> None:
    def program(table: Table) -> Any:
        return ended(getattr(table, method), *keys), X + 1

    compiled = api.compile(program)
    for value in (1, 1, 2, 3):
        assert compiled(Table(a=value))[0] == program(Table(a=value))[0]


@pytest.mark.parametrize("value", ["ab", 3, 1.5, b"ab", 2j, True, range(3), None])
def test_new_of_a_constant(value: Any) -> None:
    """`__new__` is found on the class, and isn't bound."""

    def program(value: Any) -> Any:
        return value.__new__, ended(value.__new__, type(value)), value.__hash__(), X + 1

    compiled = api.compile(program)
    for _ in range(3):
        assert compiled(value)[:3] == program(value)[:3]


def test_dictionary_of_a_class() -> None:
    class Plain:
        number = 1

    def program(owner: Any) -> Any:
        return type(vars(owner)), vars(owner).get("number"), X + 1

    compiled = api.compile(program)
    for number in (1, 1, 2, 3):
        Plain.number = number
        for owner in (Plain, int, Plain()):
            assert compiled(owner)[:2] == program(owner)[:2]


def test_truth_of_a_class() -> None:
    def program(owner: Any) -> Any:
        return bool(owner), not owner, "yes" if owner else "no", X + 1

    compiled = api.compile(program)
    for size in (1, 1, 0, 0, 2):
        Meta.size = size
        for owner in (Sized, int):
            assert compiled(owner)[:3] == program(owner)[:3]


def test_words_of_divmod() -> None:
    """A division by zero: `divmod` of floats words it otherwise than `//`."""

    def program(a: float, b: float) -> Any:
        try:
            return divmod(a, b), X + 1
        except ZeroDivisionError as error:
            return str(error), X

    compiled = api.compile(program)
    pairs = [(7, 2), (7, 3), (8, 0), (9, 0), (1.5, 0.5), (2.5, 0.25), (2.5, 0.0), (1.5, 0), (-7, 2)]
    for a, b in pairs + pairs[::-1]:
        assert repr(compiled(a, b)[0]) == repr(program(a, b)[0])
