"""Releasing to CSV files and to TensorBoard."""

from __future__ import annotations

import asyncio
import csv
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stator.federated import program

MODES = list(program.CSVSaveMode)


def run(of: Any) -> Any:
    return asyncio.run(of)


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file, strict=True))


@pytest.fixture(params=MODES, ids=str)
def mode(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_rows_are_read_back_by_the_csv_module(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "deep" / "metrics.csv"
    manager = program.CSVFileReleaseManager(path, mode)
    assert not path.exists()
    run(
        manager.release(
            {"loss": 0.1, "train": {"n": np.int64(3), "w": np.array([[1, 2], [3, 4]])}}, 1
        )
    )
    run(manager.release({"loss": np.float32(0.1), "train": {"n": 'a,"b"\n;', "w": b"ab\xff"}}, 2))
    run(manager.release({"loss": None, "train": {"n": True, "w": np.array(["x"])}}, np.int64(3)))
    found = rows(path)
    assert found == [
        {"key": "1", "loss": "0.1", "train/n": "3", "train/w": "[[1, 2], [3, 4]]"},
        {"key": "2", "loss": "0.10000000149011612", "train/n": 'a,"b"\n;', "train/w": "ab\\xff"},
        {"key": "3", "loss": "None", "train/n": "True", "train/w": "['x']"},
    ]
    assert float(found[1]["loss"]) == np.float32(0.1)


def test_columns_may_come_later_and_be_left_out(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "metrics.csv"
    manager = program.CSVFileReleaseManager(path, mode, key_fieldname="round")
    run(manager.release({"a": 1}, 1))
    run(manager.release({"b": 2, "a": 3}, 2))
    run(manager.release({"b": 4}, 3))
    run(manager.release(5, 4))
    run(manager.release([], 5))
    assert rows(path) == [
        {"round": "1", "a": "1", "b": "", "value": ""},
        {"round": "2", "a": "3", "b": "2", "value": ""},
        {"round": "3", "a": "", "b": "4", "value": ""},
        {"round": "4", "a": "", "b": "", "value": "5"},
        {"round": "5", "a": "", "b": "", "value": ""},
    ]


def test_who_goes_on_takes_rows_again(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "metrics.csv"
    first = program.CSVFileReleaseManager(path, mode)
    for key in (1, 2, 3, 4):
        run(first.release({"loss": key}, key))
    other = program.CSVFileReleaseManager(path, mode)
    run(other.release({"loss": 30, "new": 1}, 3))
    assert [(row["key"], row["loss"], row["new"]) for row in rows(path)] == [
        ("1", "1", ""),
        ("2", "2", ""),
        ("3", "30", "1"),
    ]
    run(other.release({"loss": 50}, 5))
    # The first one sees that the file isn't as it left it.
    run(first.release({"loss": 60}, 6))
    assert [row["key"] for row in rows(path)] == ["1", "2", "3", "5", "6"]
    assert rows(path)[-1] == {"key": "6", "loss": "60", "new": ""}
    path.unlink()
    run(first.release({"loss": 7}, 7))
    assert rows(path) == [{"key": "7", "loss": "7"}]


def test_a_part_of_a_row_is_left_out(
    tmp_path: Path, mode: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metrics.csv"
    for number in range(3):
        manager = program.CSVFileReleaseManager(path, mode)
        run(manager.release({"loss": 1.25, "text": 'two\n"lines"\n', "last": 12345}, number))
    data = path.read_bytes()
    start = data.rindex(b"2,12345")
    assert data[start - 1 : start] == b"\n"
    for end in range(start, len(data)):
        path.write_bytes(data[:end])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            manager = program.CSVFileReleaseManager(path, mode)
        assert ("part of a row" in caplog.text) == (end > start)
        run(manager.release({"loss": 2.5, "text": "x", "last": 1}, 2))
        assert [(row["key"], row["last"]) for row in rows(path)] == [
            ("0", "12345"),
            ("1", "12345"),
            ("2", "1"),
        ]
    # A line of names needs no end.
    path.write_text("key,loss")
    run(program.CSVFileReleaseManager(path, mode).release({"loss": 1}, 1))
    assert rows(path) == [{"key": "1", "loss": "1"}]


@pytest.mark.parametrize("value", [run, len, object(), object, (each for each in ())])
def test_what_is_no_value(tmp_path: Path, mode: Any, value: Any) -> None:
    path = tmp_path / "metrics.csv"
    manager = program.CSVFileReleaseManager(path, mode)
    run(manager.release({"loss": 1, "train": {"rate": 2}}, 1))
    before = path.read_bytes()
    with pytest.raises(TypeError, match="'train/rate'"):
        run(manager.release({"loss": 1, "train": {"rate": value}}, 2))
    assert path.read_bytes() == before
    run(manager.release({"loss": 2, "train": {"rate": 3}}, 2))
    assert len(rows(path)) == 2


def test_appending_leaves_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    manager = program.CSVFileReleaseManager(path)
    run(manager.release({"a": 1}, 1))
    number = path.stat().st_ino
    for key in range(2, 5):
        run(manager.release({"a": 1}, key))
    # So it does for who begins with the file.
    run(program.CSVFileReleaseManager(path).release({"a": 1}, 5))
    assert path.stat().st_ino == number and len(rows(path)) == 5
    run(program.CSVFileReleaseManager(path, program.CSVSaveMode.WRITE).release({"a": 1}, 6))
    assert path.stat().st_ino != number and len(rows(path)) == 6


def test_releases_keep_their_order(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "metrics.csv"
    manager = program.CSVFileReleaseManager(path, mode)

    class Slow(program.MaterializableValueReference):
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        @property
        def type_signature(self) -> Any:
            raise NotImplementedError

        async def get_value(self) -> Any:
            await asyncio.sleep(self.seconds)
            return self.seconds

    async def all_at_once(first: int) -> None:
        await asyncio.gather(
            *(manager.release(Slow(0.02 / (key + 1)), first + key) for key in range(4))
        )

    # In one event loop, and in another one.
    run(all_at_once(0))
    run(all_at_once(4))
    assert [int(row["key"]) for row in rows(path)] == list(range(8))


def test_foreign_tables(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("round,loss\n1,2\n")
    with pytest.raises(program.CSVKeyFieldnameNotFoundError, match="'round', 'loss'") as caught:
        program.CSVFileReleaseManager(path, mode)
    assert caught.value.path == str(path) and "key_fieldname" in str(caught.value)
    for data, why in (
        (b"key,loss\nx,2\n", "row 1"),
        (b"key,loss\n1,2\n3\n", "row 2"),
        (b"key,loss\n1,2,3\n", "row 1"),
        (b"key,key\n", "same name"),
        (b"\xff\xfe\0", "utf-8"),
        (b'key,loss\n"1"x,2\n', "expected after"),
        (b'"key,loss', "unexpected end"),
    ):
        path.write_bytes(data)
        with pytest.raises(program.CorruptedFileError, match=why) as damaged:
            program.CSVFileReleaseManager(path, mode)
        assert str(path) in str(damaged.value) and "take another file" in str(damaged.value)
        assert path.read_bytes() == data


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="file_path"):
        program.CSVFileReleaseManager("")
    with pytest.raises(ValueError, match="key_fieldname"):
        program.CSVFileReleaseManager(tmp_path / "a.csv", key_fieldname="")
    with pytest.raises(ValueError, match="append"):
        program.CSVFileReleaseManager(tmp_path / "a.csv", "appendix")
    manager = program.CSVFileReleaseManager(tmp_path / "a.csv", "write")
    for key in ("1", 1.0, None, True):
        with pytest.raises(TypeError, match="key"):
            run(manager.release(1, key))
    with pytest.raises(ValueError, match="'key'"):
        run(manager.release({"key": 1}, 1))
    assert os.listdir(tmp_path) == []


# TensorBoard.


def test_tensorboard_that_is_not_installed() -> None:
    script = (
        "import sys\n"
        "sys.modules[sys.argv[1]] = None\n"
        "from stator.federated import program\n"
        "try: program.TensorBoardReleaseManager('summaries')\n"
        "except program.TensorBoardNotFoundError as error: print(isinstance(error, ImportError), error)\n"
    )
    for name in ("torch", "tensorboard"):
        done = subprocess.run(
            [sys.executable, "-c", script, name], check=True, capture_output=True, text=True
        )
        assert done.stdout.startswith("True") and "pip install torch tensorboard" in done.stdout
        assert name in done.stdout


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tensorboard", reason="TensorBoard isn't installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    manager = program.TensorBoardReleaseManager(tmp_path / "summaries")
    for key in (1, 2):
        value = {"loss": np.float32(key / 4), "flag": True, "empty": np.zeros(0)}
        run(manager.release({**value, "w": np.arange(4), "text": "hello"}, key))
        run(manager.release(key, key))
    for value in ({"a": 1, "b": object()}, 1j, np.array([b"a"], object)):
        with pytest.raises(TypeError, match="TensorBoard"):
            run(manager.release(value, 3))
    with pytest.raises(TypeError, match="key"):
        run(manager.release(1, "a"))
    manager.close()
    found = EventAccumulator(str(tmp_path / "summaries"), {"histograms": 0})
    found.Reload()
    assert [(each.step, each.value) for each in found.Scalars("loss")] == [(1, 0.25), (2, 0.5)]
    assert [(each.step, each.value) for each in found.Scalars("value")] == [(1, 1), (2, 2)]
    assert found.Tags()["scalars"] == ["flag", "loss", "value"]
    assert [each.histogram_value.num for each in found.Histograms("w")] == [4, 4]
    with pytest.raises(ValueError, match="summary_dir"):
        program.TensorBoardReleaseManager("")
