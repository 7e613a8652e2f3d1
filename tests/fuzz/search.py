"""Tries one seed after the other, for as long as the environment says.

`STATOR_FUZZ_SEED` starts at a given program, or anywhere if it is `random`; `STATOR_FUZZ_SECONDS` sets the
time (15 by default).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

_SECONDS = float(os.environ.get("STATOR_FUZZ_SECONDS", "15"))
_SEED = os.environ.get("STATOR_FUZZ_SEED", "200000")


def search(tmp_path: Path, programs: str, failure: Callable[[int], str | None]) -> None:
    """Fails with the first report that `failure` gives of a seed's program."""
    first = random.SystemRandom().randrange(1_000_000) if _SEED == "random" else int(_SEED)
    deadline = time.monotonic() + _SECONDS
    seed = first
    while time.monotonic() < deadline:
        text = failure(seed)
        if text is not None:
            (tmp_path / "failure.txt").write_text(text)
            pytest.fail(text, pytrace=False)
        seed += 1
    print(f"\n{seed - first} {programs} from seed {first}")
    assert seed > first
