"""Random tensor programs, compiled against plain.

`STATOR_FUZZ_SEED` and `STATOR_FUZZ_SECONDS` as in `search`; `make fuzz` sets them to ten minutes from anywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from differential.support import api

from .child import in_child
from .search import search
from .tensors import TensorProgram, check, generate, shrink

pytestmark = pytest.mark.skipif(api.PLAIN, reason="compares with compiled functions")


def _options(seed: int) -> dict[str, Any]:
    return {"dynamic": (None, True, False)[seed % 3]}


def difference(program: TensorProgram, seed: int) -> str | None:
    """What the two sides of a program differ in; None also for what is no program."""
    try:
        return in_child(lambda: check(program, _options(seed), skips=seed % 4 == 0))
    except ValueError:
        return None


def report(seed: int, program: TensorProgram, found: str) -> str:
    """What a failing seed shows, with its smallest script."""
    small = shrink(program, lambda candidate: difference(candidate, seed) is not None)
    return (
        f"seed {seed} (repeat with STATOR_FUZZ_SEED={seed})\n{difference(small, seed) or found}\n"
        f"{small.function()}\n"
        f"--- script, to be run with PYTHONPATH=tests ---\n{small.script(_options(seed))}"
    )


def failure(seed: int) -> str | None:
    """What a failing seed shows; None if the two sides are equal."""
    program = generate(seed)
    found = difference(program, seed)
    return None if found is None else report(seed, program, found)


@pytest.mark.slow
def test_random_tensor_programs(tmp_path: Path) -> None:
    search(tmp_path, "tensor programs", failure)


@pytest.mark.parametrize("seed", range(60))
def test_fixed_seeds(seed: int) -> None:
    text = failure(seed)
    if text is not None:
        pytest.fail(text, pytrace=False)


def test_same_seed_gives_the_same_program() -> None:
    assert all(generate(seed) == generate(seed) for seed in range(20))


def test_enough_is_replayed() -> None:
    """The fuzzer exercises replays only if most functions become graphs, and most calls don't fail."""

    def counted(seed: int) -> list[int]:
        program, seen = generate(seed), list[Any]()

        def run() -> str:
            check(program, _options(seed), seen=seen)
            return f"{api.hits(seen[0])} {seen[1]} {len(program.calls)}"

        return [int(count) for count in (in_child(run) or "0 0 0").split()]

    hits, failed, calls = zip(*map(counted, range(200, 240)), strict=True)
    assert sum(1 for hit in hits if hit > 1) >= len(hits) / 2
    assert sum(failed) < sum(calls) / 3
