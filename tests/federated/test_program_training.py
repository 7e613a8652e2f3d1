"""A whole federated program: killed and gone on with, and on a cluster."""

from __future__ import annotations

import asyncio
import csv
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from stator.federated import framework, learning, program
from stator.federated.execution import LocalContext

from . import training_program

REPOSITORY = Path(__file__).resolve().parents[2]


def same(found: Any, expected: Any) -> None:
    one, other = (
        program.structure_utils.flatten_with_name(of) for of in (found.training, expected.training)
    )
    assert [name for name, _ in one] == [name for name, _ in other]
    for (name, left), (_, right) in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right, name)
    assert found.iterator.to_bytes() == expected.iterator.to_bytes()


def rows(directory: Path) -> list[dict[str, str]]:
    with open(directory / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def several_at_once(context: Any, alone: Any) -> None:
    """Rounds of different clients at the same time, beside the same one after the other."""
    process, data = training_program.a_process(), training_program.some_data()
    state = process.initialize()
    groups = [list(data)[at : at + 4] for at in range(8)]
    with framework.get_context_stack().install(alone):
        expected = [process.next(state, rows) for rows in groups]

    async def main() -> Any:
        return await program.materialize_value([process.next(state, rows) for rows in groups])

    with framework.get_context_stack().install(program.NativeFederatedContext(context)):
        found = asyncio.run(main())
    for (left, told), (right, metrics) in zip(found, expected, strict=True):
        assert told == metrics
        for (name, one), (_, other) in zip(
            program.structure_utils.flatten_with_name(left),
            program.structure_utils.flatten_with_name(right),
            strict=True,
        ):
            np.testing.assert_array_equal(one, other, name)


@pytest.mark.slow
@pytest.mark.usefixtures("few_clients_run_alone")  # as in the process that is killed
def test_who_is_killed_goes_on_with_the_same_numbers(tmp_path: Path) -> None:
    whole, metrics, version = training_program.run(tmp_path / "whole", 12, LocalContext())
    assert version == 0 and list(metrics) == list(range(1, 13))
    assert metrics[12]["loss"] < metrics[1]["loss"]
    killed = tmp_path / "killed"
    for until in (3, 7):
        command = [sys.executable, "-m", "tests.federated.training_program", str(killed), "12"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
        ) as running:
            assert running.stdout is not None
            for line in running.stdout:
                if int(line) >= until:
                    break
            running.send_signal(signal.SIGKILL)
    found, since, version = training_program.run(killed, 12, LocalContext())
    assert 7 <= version < 12 and list(since) == list(range(version + 1, 13))
    same(found, whole)
    assert since[12] == metrics[12]
    assert rows(killed) == rows(tmp_path / "whole")
    assert [row["key"] for row in rows(killed)] == [str(number) for number in range(1, 13)]
    assert [np.float32(row["loss"]) for row in rows(killed)] == [
        metrics[number]["loss"] for number in range(1, 13)
    ]
    # It is done: nothing is taken again.
    again, none, version = training_program.run(killed, 12, LocalContext())
    assert version == 12 and none == {}
    same(again, whole)


def test_numbers_are_those_of_rounds_that_are_called_directly(tmp_path: Path) -> None:
    found, metrics, _ = training_program.run(tmp_path, 4, LocalContext())
    process = training_program.a_process()
    kind = process.next.type_signature.parameter[1]
    iterator = program.ClientDataSource(training_program.some_data(), kind, seed=7).iterator()
    state = process.initialize()
    for number in range(1, 5):
        state, expected = process.next(state, iterator.select(5))
        assert metrics[number] == expected
    same(found, training_program.State(state, iterator))


def test_rounds_look_for_what_is_not_finite() -> None:
    process, data = training_program.a_process(), list(training_program.some_data())
    data[1]["inputs"][0] = np.nan

    async def main() -> None:
        state, metrics = process.next(process.initialize(), data)
        with pytest.raises(learning.ClientError, match="`inputs` hold NaN") as caught:
            await metrics["loss"].get_value()
        assert caught.value.client == 1
        with pytest.raises(learning.ClientError):
            await program.materialize_value(state)
        with pytest.raises(learning.ClientError, match="no clients"):
            process.next(process.initialize(), [])

    with framework.get_context_stack().install(program.NativeFederatedContext(LocalContext())):
        asyncio.run(main())


@pytest.mark.slow
def test_the_same_program_on_a_cluster(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray isn't installed")
    from stator.federated.ray import RayContext

    expected, metrics, _ = training_program.run(tmp_path / "here", 3, LocalContext(exact=True))
    with RayContext(workers=2, exact=True) as context:
        found, told, _ = training_program.run(tmp_path / "cluster", 3, context)
        several_at_once(context, LocalContext(exact=True))
    same(found, expected)
    assert told == metrics and rows(tmp_path / "cluster") == rows(tmp_path / "here")


def test_rounds_at_the_same_time() -> None:
    for _ in range(5):
        several_at_once(LocalContext(), LocalContext())
