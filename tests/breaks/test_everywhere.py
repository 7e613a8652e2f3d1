"""The differential corpus with graph breaks at instruction boundaries, compared with plain Python.

`break_everywhere` ends a trace before every second instruction, so that with both parities each
instruction is one to break at and one to begin behind. `break_at` ends it once, before one
instruction: that says which boundaries can be rebuilt. The suite tries some boundaries of each
function, `STATOR_ALL_BOUNDARIES=1` all of them (half an hour). Of the parities it tries one for each function, the
other one the next day; `STATOR_SWEEP` chooses, and `make test-sweep` tries both.
"""

from __future__ import annotations

import collections
import json
import os
import tempfile
from functools import partial
from pathlib import Path

import pytest
import torch
from differential.support import api
from differential.support.driver import compare, run_side
from differential.test_corpus import _CASES as CASES

from stator import _testing

pytestmark = pytest.mark.skipif(api.PLAIN, reason="asks for breaks of traces")

CONTINUED_SHARE = 0.90
"""Of the boundaries, how many must yield a continuation rather than run natively."""

ALL = os.environ.get("STATOR_ALL_BOUNDARIES") == "1"
STRIDE = 1 if ALL else 17
MOST = 400
"""Boundaries of one function that are tried at most."""

BREAKABLE = [key for key, case in CASES.items() if not case.options.get("fullgraph")]
IDS = [f"{module.rpartition('.')[2]}-{name}" for module, name in BREAKABLE]
_outcomes = Path(tempfile.mkdtemp(prefix="stator-boundaries-")) / "outcomes.jsonl"
"""A line per boundary. A file, because tests may run in children."""


@pytest.fixture(autouse=True)
def _quiet_machine() -> None:
    torch.set_num_threads(1)
    api.reset()


SWEEP = os.environ["STATOR_SWEEP"]
EVERYWHERE = [
    pytest.param(key, parity, id=f"{name}-{parity}")
    for number, (key, name) in enumerate(zip(BREAKABLE, IDS, strict=True))
    for parity in (0, 1)
    if SWEEP == "all" or (number + int(SWEEP)) % 2 == parity
]


@pytest.mark.parametrize(("key", "parity"), EVERYWHERE)
def test_breaks_everywhere(key: tuple[str, str], parity: int) -> None:
    plain = run_side(*key, compile_it=False)
    compiled = run_side(
        *key, compile_it=True, around=partial(_testing.break_everywhere, parity=parity)
    )
    compare(plain, compiled)


@pytest.mark.parametrize("key", BREAKABLE, ids=IDS)
def test_one_break(key: tuple[str, str]) -> None:
    plain = run_side(*key, compile_it=False)
    first = 1 + IDS.index(f"{key[0].rpartition('.')[2]}-{key[1]}") % STRIDE
    with _outcomes.open("a") as outcomes:
        for number in range(first, MOST, STRIDE):
            before = _testing.breaks_asked()
            compiled = run_side(*key, compile_it=True, around=partial(_testing.break_at, number))
            compare(plain, compiled)
            if _testing.breaks_asked() == before:
                if number > first + 2 * STRIDE:
                    break
                continue
            hits = compiled.steady[0]
            if hits is not None:
                # The first call may have found breaks too late, for the second to record in time.
                why = None if hits else api.reason(compiled.target)
                outcomes.write(json.dumps([*key, number, why]) + "\n")


def test_share_of_boundaries_that_continue(capsys: pytest.CaptureFixture[str]) -> None:
    """Printed by reason: those behind which no trace can begin."""
    lines = _outcomes.read_text().splitlines() if _outcomes.exists() else []
    found = [json.loads(line) for line in lines]
    if len({tuple(line[:2]) for line in found}) < len(BREAKABLE) // 2:
        pytest.skip("only a selection of the cases ran in this process")
    native = collections.Counter(why.partition(" (at ")[0] for *_, why in found if why)
    share = 1 - native.total() / len(found)
    with capsys.disabled():
        print(f"\nboundaries with a continuation: {share:.1%} of {len(found)}")
        for why, count in native.most_common():
            print(f"  {count:4} {why}")
    assert share >= CONTINUED_SHARE
