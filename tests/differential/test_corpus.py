"""Each case of the corpus: plain, recorded, replayed, and after a change.

Compared are results (types, dtypes, strides, bits, aliasing), the arguments and globals after
the call, exceptions, printed text, random state and PyTorch's modes. A case that may become a
graph but runs natively is still right; `test_share_of_replayed_cases` makes it visible.
"""

from __future__ import annotations

import json
import pkgutil
import tempfile
from pathlib import Path

import pytest
import torch

from . import corpus
from .support import api
from .support.case import Case
from .support.driver import compare, corpus_of, fresh_module, run_side

REPLAYED_SHARE = 0.96
"""Of the cases marked `expect="graph"`, how many must be replayed without a native call.

A ratchet: to be raised whenever the list that the test prints gets shorter.
"""

_MODULES = sorted(
    f"{corpus.__name__}.{info.name}" for info in pkgutil.iter_modules(corpus.__path__)
)


def _all_cases() -> dict[tuple[str, str], Case]:
    found = {}
    for module_name in _MODULES:
        with fresh_module(module_name) as module:
            for name, case in corpus_of(module).cases.items():
                found[module_name, name] = case
    return found


_CASES = _all_cases()
_outcomes = Path(tempfile.mkdtemp(prefix="stator-corpus-")) / "outcomes.jsonl"
"""A line per case with what its statistics said. A file, because tests may run in children."""


def _note(kind: str, key: tuple[str, str], why: str | None) -> None:
    with _outcomes.open("a") as file:
        file.write(json.dumps([kind, *key, why]) + "\n")


def _noted(kind: str) -> dict[tuple[str, str], str | None]:
    lines = _outcomes.read_text().splitlines() if _outcomes.exists() else []
    found = [json.loads(line) for line in lines]
    return {(module, name): why for noted, module, name, why in found if noted == kind}


@pytest.fixture(autouse=True)
def _quiet_machine() -> None:
    torch.set_num_threads(1)
    api.reset()


@pytest.mark.parametrize(
    "key", _CASES, ids=[f"{module.rpartition('.')[2]}-{name}" for module, name in _CASES]
)
def test_case(key: tuple[str, str]) -> None:
    case = _CASES[key]
    if case.expect == "graph":
        _note("graph", key, "the comparison failed")
    plain = run_side(*key, compile_it=False)
    compiled = run_side(*key, compile_it=True)
    compare(plain, compiled)
    hits, native = compiled.steady
    if hits is None or native is None:
        return
    reason = api.reason(compiled.target)
    if case.expect == "graph":
        done = hits >= 1 and native == 0
        _note("graph", key, None if done else f"hits={hits} native={native}: {reason}")
    elif case.expect == "native":
        if not ((native or api.breaks(compiled.target)) and reason):
            _note("native", key, f"hits={hits} native={native}: {reason}")


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
def test_share_of_replayed_cases(capsys: pytest.CaptureFixture[str]) -> None:
    graphs = [key for key, case in _CASES.items() if case.expect == "graph"]
    replayed = _noted("graph")
    if any(key not in replayed for key in graphs):
        pytest.skip("only a selection of the cases ran in this process")
    missed = {key: why for key, why in replayed.items() if why is not None}
    share = 1 - len(missed) / len(graphs)
    with capsys.disabled():
        print(f"\nreplayed: {len(graphs) - len(missed)} of {len(graphs)} ({share:.1%})")
        for (module, name), why in missed.items():
            print(f"  not replayed: {module.rpartition('.')[2]}-{name}: {why}")
    assert share >= REPLAYED_SHARE


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
def test_what_cannot_be_traced_says_why() -> None:
    assert not _noted("native"), "expected to run natively with a reason"


def test_the_corpus_is_large() -> None:
    assert len(_CASES) >= 300
