"""Files of states: one form, old files, and damage at any place."""

from __future__ import annotations

import asyncio
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from stator.federated import learning, program

from .classifiers import classifier, drawn_clients


def a_process(build: Any = learning.build_fed_adam) -> Any:
    torch.manual_seed(0)
    return build(classifier(nn.Linear(4, 3), 4))


def flat(state: Any, prefix: str = "") -> dict[str, Any]:
    found = {}
    for name, part in state.items():
        if isinstance(part, dict):
            found |= flat(part, f"{prefix}{name}/")
        else:
            found[f"{prefix}{name}"] = np.asarray(part)
    return found


def same(found: Any, expected: Any) -> None:
    one, other = flat(found), flat(expected)
    assert one.keys() == other.keys()
    assert all(one[name].dtype == other[name].dtype for name in one)
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_both_kinds_of_states_are_archives_of_one_form(tmp_path: Path) -> None:
    process, path = a_process(), tmp_path / "state.npz"
    state, _ = process.next(process.initialize(), drawn_clients((3, 4), 0))
    learning.save_state(state, path)
    same(learning.load_state(process, path), state)
    with zipfile.ZipFile(path) as file:
        contents = json.loads(file.read("contents.json"))
        assert contents["format"] == "stator.federated.program"
    # A state of a program isn't taken for one.
    manager: Any = program.FileProgramStateManager(tmp_path)
    asyncio.run(manager.save(state, 1))
    with pytest.raises(learning.CheckpointError, match="it holds no state of learning"):
        learning.load_state(process, tmp_path / "program_state_1.npz")


def test_a_checkpoint_of_training_has_its_state(tmp_path: Path) -> None:
    process, path = a_process(), tmp_path / "training.npz"
    trained = learning.train(process, drawn_clients((3, 4), 0), rounds=2, checkpoint=path)
    same(learning.load_state(process, path), trained.state)


def test_files_of_earlier_versions_are_read(tmp_path: Path) -> None:
    process, path = a_process(), tmp_path / "old.npz"
    data = drawn_clients((3, 4), 0)
    trained = learning.train(process, data, rounds=2, seed=4)
    arrays = flat(trained.state)
    np.savez(path, **arrays)
    same(learning.load_state(process, path), trained.state)
    told = json.dumps({"metrics": list(trained.metrics), "seed": 4}).encode()
    arrays["training: metrics and seed"] = np.frombuffer(told, np.uint8)
    np.savez(path, **arrays)
    more = learning.train(process, data, rounds=3, checkpoint=path)
    assert more.metrics[:2] == trained.metrics
    same(more.state, learning.train(process, data, rounds=3, seed=4).state)


@pytest.mark.parametrize("is_old", [False, True])
def test_damage_is_refused(is_old: bool, tmp_path: Path) -> None:
    process, path = a_process(), tmp_path / "state.npz"
    state = process.initialize()
    learning.save_state(state, path)
    if is_old:
        np.savez(path, **flat(state))
    whole = path.read_bytes()
    refused = 0
    for at in range(0, len(whole), 7):
        for damaged in (
            whole[:at],
            whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :],
            whole[:at] + b"\0" * 40 + whole[at + 40 :],
        ):
            path.write_bytes(damaged)
            try:
                found = learning.load_state(process, path)
            except learning.CheckpointError as error:
                assert str(path) in str(error)
                refused += 1
            else:
                # Times and such, which say nothing of the state.
                same(found, state)
    assert refused > len(whole) / 7
