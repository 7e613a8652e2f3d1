"""The differential corpus, mutated, compiled against plain.

`STATOR_FUZZ_SEED` and `STATOR_FUZZ_SECONDS` as in `search`; `make fuzz` sets them to ten minutes from anywhere.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from differential.support import api
from differential.test_corpus import _CASES

from .child import in_child
from .mutations import HOSTILE_NAMES, Mutant, Mutation, check, generate, mutated, shown, shrink
from .search import search

pytestmark = pytest.mark.skipif(api.PLAIN, reason="compares with compiled functions")

# Under fullgraph a break is an error, and a mutant may break where its original doesn't.
KEYS = [key for key, case in _CASES.items() if not case.options.get("fullgraph")]


def difference(mutant: Mutant) -> str | None:
    """What a mutant's two sides differ in; None also for what is no program."""
    try:
        return in_child(lambda: check(mutant))
    except ValueError:
        return None


def report(seed: int, mutant: Mutant, found: str) -> str:
    """A failing mutant with as few mutations as fail; what was found first, if it doesn't fail again."""
    small = shrink(mutant, lambda candidate: difference(candidate) is not None)
    again = f"seed {seed} (repeat with STATOR_FUZZ_SEED={seed})"
    return f"{again}\n{difference(small) or found}\n{shown(small)}"


def failure(seed: int) -> str | None:
    """What a failing seed shows; None if the two sides are equal."""
    mutant = generate(seed, KEYS)
    found = difference(mutant)
    return None if found is None else report(seed, mutant, found)


@pytest.mark.slow
def test_random_mutants(tmp_path: Path) -> None:
    search(tmp_path, "mutants", failure)


@pytest.mark.parametrize("seed", range(60))
def test_fixed_mutants(seed: int) -> None:
    text = failure(seed)
    if text is not None:
        pytest.fail(text, pytrace=False)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_names(name: str) -> None:
    assert name.isidentifier()


def test_mutants_are_mostly_programs() -> None:
    """A fuzzer whose programs don't run would prove nothing."""

    def runs(seed: int) -> bool:
        try:
            return in_child(lambda: check(generate(seed, KEYS))) is None
        except ValueError:
            return False

    assert sum(map(runs, range(100, 140))) >= 30


def test_each_kind_changes_something() -> None:
    key = next(key for key in KEYS if key[1] == "if_else")
    plain = ast.unparse(mutated(Mutant(key, ())))
    for kind in ("rename", "handler", "statement", "swap", "repeat", "drop"):
        changed = (
            ast.unparse(mutated(Mutant(key, (Mutation(kind, seed),)))) != plain
            for seed in range(20)
        )
        assert any(changed), kind
