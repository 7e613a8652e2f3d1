"""The mutate-between-calls fuzzer: random writes to reachable slots, compiled against plain.

`STATOR_FUZZ_SEED` starts at a given program, `STATOR_FUZZ_SECONDS` sets the time (30 by default).
A failure prints the seed and a script that shows it with as few statements as were found.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from differential.support import api

from .generate import generate
from .program import Make, Program, Space, check, shrink

SECONDS = float(os.environ.get("STATOR_FUZZ_SECONDS", "30"))
SEED = os.environ.get("STATOR_FUZZ_SEED")


def report(seed: int, program: Program, make: Make | None = None) -> str:
    """What a failing seed shows, with its smallest script."""
    small = shrink(program, *([make] if make else []))
    difference = check(small, *([make] if make else []))
    return (
        f"seed {seed} (repeat with STATOR_FUZZ_SEED={seed})\n{difference}\n"
        f"--- script, to be run with PYTHONPATH=tests ---\n{small.script()}"
    )


@pytest.mark.slow
def test_random_writes_between_calls(tmp_path: Path) -> None:
    first = int(SEED) if SEED is not None else random.SystemRandom().randrange(1_000_000)
    deadline = time.monotonic() + SECONDS
    seed = first
    while time.monotonic() < deadline:
        program = generate(seed)
        if check(program) is not None:
            text = report(seed, program)
            (tmp_path / "failure.txt").write_text(text)
            pytest.fail(text, pytrace=False)
        seed += 1
    print(f"\n{seed - first} programs from seed {first}")
    assert seed > first


@pytest.mark.parametrize("seed", range(40))
def test_fixed_seeds(seed: int) -> None:
    program = generate(seed)
    if check(program) is not None:
        pytest.fail(report(seed, program), pytrace=False)


def test_same_seed_gives_the_same_program() -> None:
    assert all(generate(seed) == generate(seed) for seed in range(20))


def test_programs_mostly_work() -> None:
    """A fuzzer whose functions all raise at once would prove nothing."""
    fine = 0
    for seed in range(100):
        program = generate(seed)
        space = program.space()
        try:
            arguments = [eval(text, space) for text in program.arguments]
            space["fn"](space["torch"].ones(3), *arguments)
        except Exception:
            continue
        fine += 1
    assert fine >= 40


def _blind(program: Program) -> Make:
    """A compiler without guards: its function reads a world that nobody writes to."""

    def make(space: Space) -> Callable[..., Any]:
        return program.space()["fn"]  # type: ignore[no-any-return]

    return make


def test_missing_guards_are_found_and_shrunk() -> None:
    found = []
    for seed in range(30):
        program = generate(seed)
        if any(line.startswith(("global", "g")) for line in program.body):
            continue
        make = _blind(program)
        if check(program, make) is not None:
            found.append((seed, program))
    assert len(found) >= 5
    seed, program = found[0]
    make = _blind(program)
    small = shrink(program, make)
    assert check(small, make) is not None
    assert len(small.writes) <= len(program.writes)
    assert "Program(" in report(seed, program, make)


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
def test_enough_is_replayed() -> None:
    """The fuzzer exercises guards only if most functions become graphs."""
    replayed = 0
    total = 60
    for seed in range(total):
        kept: list[Any] = []

        def make(space: Space, kept: list[Any] = kept) -> Callable[..., Any]:
            compiled = api.compile(space["fn"], recompile_limit=1000)
            kept.append(compiled)
            return compiled  # type: ignore[no-any-return]

        check(generate(seed), make)
        hits = api.hits(kept[0])
        replayed += bool(hits)
    assert replayed >= total * 0.4, f"{replayed} of {total}"
