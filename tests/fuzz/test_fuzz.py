"""The mutate-between-calls fuzzer: random writes to reachable slots, compiled against plain.

`STATOR_FUZZ_SEED` and `STATOR_FUZZ_SECONDS` as in `search`. The suite starts at a fixed program, so that its result can be
repeated.
A failure prints the seed and a script that shows it with as few statements as were found.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from differential.support import api

from stator import _testing

from .child import check_in_child, in_child
from .effects import generate as generate_writes
from .generate import generate as generate_reads
from .program import Make, Program, Space, check, compiled_function, compiled_with_symbols, shrink
from .programs import generate as generate_programs
from .search import search


def report(seed: int, program: Program, make: Make = compiled_function) -> str:
    """What a failing seed shows, with its smallest script."""

    def fails(candidate: Program) -> bool:
        try:
            return check_in_child(candidate, make) is not None
        except ValueError:
            return False  # the setup doesn't run without what was left out

    small = shrink(program, fails)
    return (
        f"seed {seed} (repeat with STATOR_FUZZ_SEED={seed})\n{check_in_child(small, make)}\n"
        f"{small.function()}\n"
        f"--- script, to be run with PYTHONPATH=tests ---\n{small.script()}"
    )


Generate = Callable[[int], Program]
GENERATORS = pytest.mark.parametrize(
    "generate",
    [generate_reads, generate_writes, generate_programs],
    ids=["reads", "writes", "programs"],
)


def _make(seed: int) -> Make:
    return compiled_with_symbols if seed % 2 else compiled_function


@pytest.mark.slow
@GENERATORS
def test_random_writes_between_calls(generate: Generate, tmp_path: Path) -> None:
    def failure(seed: int) -> str | None:
        program, make = generate(seed), _make(seed)
        return None if check_in_child(program, make) is None else report(seed, program, make)

    search(tmp_path, "programs", failure)


@GENERATORS
@pytest.mark.parametrize("seed", range(40))
def test_fixed_seeds(generate: Generate, seed: int) -> None:
    program, make = generate(seed), _make(seed)
    if check_in_child(program, make) is not None:
        pytest.fail(report(seed, program, make), pytrace=False)


@pytest.mark.skipif(api.PLAIN, reason="asks for breaks of traces")
@GENERATORS
@pytest.mark.parametrize("seed", range(500, 520))
def test_fixed_seeds_with_breaks_everywhere(generate: Generate, seed: int) -> None:
    program = generate(seed)
    for parity in (0, 1):
        with _testing.break_everywhere(parity):
            if check_in_child(program) is not None:
                pytest.fail(report(seed, program), pytrace=False)


@GENERATORS
def test_same_seed_gives_the_same_program(generate: Generate) -> None:
    assert all(generate(seed) == generate(seed) for seed in range(20))


@GENERATORS
def test_programs_mostly_work(generate: Generate) -> None:
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
        program = generate_reads(seed)
        if any(line.startswith(("global", "g")) for line in program.body):
            continue
        make = _blind(program)
        if check(program, make) is not None:
            found.append((seed, program))
    assert len(found) >= 5
    seed, program = found[0]
    text = report(seed, program, _blind(program))
    assert "Program(" in text
    assert text.count("\n") < program.script().count("\n")


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
@GENERATORS
def test_enough_is_replayed(generate: Generate) -> None:
    """The fuzzer exercises guards only if most functions become graphs."""

    def hits_of(seed: int) -> str | None:
        kept: list[Any] = []

        def make(space: Space) -> Callable[..., Any]:
            kept.append(compiled_function(space))
            return kept[0]  # type: ignore[no-any-return]

        check(generate(seed), make)
        return f"{api.hits(kept[0])}"

    total = 60
    answers = [in_child(lambda seed=seed: hits_of(seed)) for seed in range(total)]  # type: ignore[misc]
    replayed = [answer for answer in answers if answer and answer.isdigit() and answer != "0"]
    # Functions that write what they read are recorded for each state.
    share = 0.4 if generate is generate_reads else 0.3
    assert len(replayed) >= total * share, f"{len(replayed)} of {total}"
