"""States and arrays in files: what they may hold, damage, and being killed while they are written."""

from __future__ import annotations

import asyncio
import collections
import io
import os
import pickle
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import stator.federated as fl
from stator.federated import program
from stator.federated.program import structure_utils


class State(NamedTuple):
    weights: Any
    round_number: int


class Counter(fl.Serializable):
    def __init__(self, count: int = 0) -> None:
        self.count = count

    @classmethod
    def from_bytes(cls, data: bytes) -> Counter:
        return cls(int(data))

    def to_bytes(self) -> bytes:
        return str(self.count).encode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counter) and self.count == other.count


class Later(program.MaterializableValueReference):
    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def type_signature(self) -> Any:
        return fl.TensorType(np.int32)

    async def get_value(self) -> Any:
        await asyncio.sleep(0)
        return self.value


def run(of: Any) -> Any:
    return asyncio.run(of)


def equal(found: Any, expected: Any) -> None:
    """The same to the bit, and of the same classes."""
    one, other = (
        structure_utils.flatten_with_name(found),
        structure_utils.flatten_with_name(expected),
    )
    assert [name for name, _ in one] == [name for name, _ in other]
    for (_, left), (_, right) in zip(one, other, strict=True):
        assert type(left) is type(right)
        if isinstance(left, (np.ndarray, np.generic)):
            assert left.dtype == right.dtype and left.shape == right.shape
            if left.dtype.hasobject:
                assert left.tolist() == right.tolist()
            elif left.dtype.fields is not None:
                # What is between fields is nobody's.
                assert all(np.array_equal(left[name], right[name]) for name in left.dtype.fields)
            else:
                assert left.tobytes() == right.tobytes()
        elif isinstance(left, float):
            assert left.hex() == right.hex()
        else:
            assert left == right


EVERYTHING = {
    "numbers": [True, 0, -(10**30), 1.5, 0.1, float("inf"), float("-inf"), -0.0, 1 + 2j],
    "nan": float("nan"),
    "texts": ["", "abc", "ü\n\0", "\ud800", b"", b"\0\xff"],
    "none": None,
    "scalars": (np.float32(0.1), np.int8(-1), np.bool_(True), np.complex64(1j), np.str_("ü")),
    "arrays": State(np.arange(6, dtype=np.int16).reshape(2, 3), 4),
    "shapes": [np.zeros((0, 3)), np.array(2.5), np.ones((2, 1, 0, 4), np.uint8)],
    "orders": [np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(10)[::3]],
    "bytes": np.arange(3, dtype=">i4"),
    "fixed": np.array([b"a", b"bcd"]),
    "wide": np.array(["ü", "abc"]),
    "objects": np.array([[b"\0\xff", b""], [b"c", "ü"]], dtype=object),
    "time": np.array(["2026-01-01"], "datetime64[ns]"),
    "records": np.array([(1, 2.5)], [("a", np.int32), ("b", np.float64)]),
    "aligned": np.zeros(2, np.dtype([("a", "u1"), ("b", "f8", (2, 2))], align=True)),
    "record": np.array([(1, "x")], [("a", ">i8"), ("b", "U3")])[0],
    "own": [Counter(7), {"deep": Counter(8)}],
    "ordered": collections.OrderedDict(b=1, a=2),
    "integers as keys": {2: "b", 1: "a"},
}


def blank(structure: Any) -> Any:
    """The same structure, of other values."""
    return structure_utils.map_structure(
        lambda leaf: Counter() if isinstance(leaf, Counter) else 0, structure
    )


def test_what_is_saved_comes_back_as_it_was(tmp_path: Path) -> None:
    manager = program.FileProgramStateManager(tmp_path)
    run(manager.save(EVERYTHING, 1))
    found = run(manager.load(1, blank(EVERYTHING)))
    equal(found, EVERYTHING)
    assert type(found["arrays"]) is State and type(found["ordered"]) is collections.OrderedDict
    assert list(found["ordered"]) == ["b", "a"]
    # What was loaded can be written to.
    found["arrays"].weights[0, 0] = 9


def test_what_is_released_comes_back_in_plain_containers(tmp_path: Path) -> None:
    manager = program.ArrayFileReleaseManager(tmp_path)
    run(manager.release({"w": (np.arange(3), {"b": Later(2.5)}), "state": State(1, [2])}, 12))
    found = run(manager.get_value(12))
    equal(found, {"w": [np.arange(3), {"b": 2.5}], "state": {"weights": 1, "round_number": [2]}})
    for lone in (np.arange(3), 4, None, "text", b"bytes", {}):
        run(manager.release(lone, "a/b ü"))
        equal(run(manager.get_value("a/b ü")), lone)
    assert sorted(os.listdir(tmp_path)) == ["release_12.npz", "release_a%2Fb%20%C3%BC.npz"]
    with np.load(tmp_path / "release_12.npz") as file:
        assert any(
            np.array_equal(file[name], np.arange(3))
            for name in file.files
            if name != "contents.json"
        )
    with pytest.raises(program.ReleasedValueNotFoundError, match="13"):
        run(manager.get_value(13))
    run(manager.remove(12))
    with pytest.raises(program.ReleasedValueNotFoundError):
        run(manager.remove(12))
    with pytest.raises(TypeError, match="key"):
        run(manager.release(1, 2.5))


def test_bfloat16(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    manager = program.FileProgramStateManager(tmp_path)
    state = [np.arange(5).astype(ml_dtypes.bfloat16), ml_dtypes.bfloat16(1.5)]
    state += [np.ones((2, 0), ml_dtypes.float8_e4m3fn)]
    run(manager.save(state, 0))
    equal(run(manager.load(0, [0, 0, 0])), state)


def test_records_that_would_not_come_back_are_refused(tmp_path: Path) -> None:
    manager = program.FileProgramStateManager(tmp_path)
    kinds = [np.dtype("V4"), np.dtype([("\u4e2d", "i4")])]
    kinds += [np.dtype([(f"a_field_with_a_long_name_{number}", "f4") for number in range(500)])]
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kinds += [np.dtype([("a", ml_dtypes.bfloat16)])]
    for kind in kinds:
        with pytest.raises(TypeError, match="`state`"):
            run(manager.save({"state": np.zeros(2, kind)}, 1))
    assert os.listdir(tmp_path) == []


def test_references_are_awaited(tmp_path: Path) -> None:
    manager = program.FileProgramStateManager(tmp_path)
    run(manager.save(State([Later(np.int32(3)), Later(2)], 1), 1))
    equal(run(manager.load(1, State([0, 0], 0))), State([np.int32(3), 2], 1))


class Strange:
    pass


@pytest.mark.parametrize(
    "value",
    [
        Strange(),
        {1, 2},
        object(),
        len,
        np.array([None]),
        np.array([1, "a"], object),
        np.ma.masked_array([1], [True]),
        bytearray(b"a"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_files_have_no_place_for(tmp_path: Path, value: Any) -> None:
    for manager in (
        program.FileProgramStateManager(tmp_path),
        program.ArrayFileReleaseManager(tmp_path),
    ):
        write = getattr(manager, "save", None) or manager.release
        with pytest.raises(TypeError, match="`here/0`"):
            run(write({"here": [value]}, 1))
    with pytest.raises(TypeError, match="key"):
        run(program.FileProgramStateManager(tmp_path).save({(1, 2): 3}, 1))
    assert os.listdir(tmp_path) == []


def test_versions(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "states"
    manager = program.FileProgramStateManager(root, prefix="p0_", keep_total=0)
    assert run(manager.get_versions()) is None
    assert run(manager.load_latest(0)) == (None, 0)
    for version in (10, 2, np.int64(7)):
        run(manager.save(int(version), version))
    assert run(manager.get_versions()) == [2, 7, 10]
    assert run(manager.load_latest(0)) == (10, 10)
    assert run(manager.load(2, 0)) == 2
    # Whoever comes later finds them.
    assert run(program.FileProgramStateManager(root, prefix="p0_").load_latest(0)) == (10, 10)
    for call, version in ((manager.load, 3), (manager.remove, 3)):
        with pytest.raises(program.ProgramStateNotFoundError, match="3") as caught:
            run(call(version, *([0] if call == manager.load else [])))
        assert caught.value.version == 3
    with pytest.raises(program.ProgramStateExistsError, match="p0_7") as exists:
        run(manager.save(0, 7))
    assert exists.value.version == 7 and exists.value.path == str(root / "p0_7.npz")
    run(manager.remove(10))
    assert run(manager.load_latest(0)) == (7, 7)
    # What isn't its own stays.
    (root / "p0_x.npz").write_text("")
    (root / "p0_01.npz").write_text("")
    run(manager.remove_all())
    assert sorted(os.listdir(root)) == ["p0_01.npz", "p0_x.npz"]
    assert run(manager.get_versions()) is None


def test_two_saves_of_one_version_leave_one(tmp_path: Path) -> None:
    manager = program.FileProgramStateManager(tmp_path)

    async def both() -> list[Any]:
        return await asyncio.gather(
            *(manager.save(number, 1) for number in range(4)), return_exceptions=True
        )

    found = run(both())
    assert found.count(None) == 1
    assert sum(isinstance(each, program.ProgramStateExistsError) for each in found) == 3
    assert run(manager.load(1, 0)) == found.index(None)
    assert os.listdir(tmp_path) == ["program_state_1.npz"]


@pytest.mark.parametrize(
    ("total", "first", "every", "kept"),
    [
        (5, True, 1, [1, 9, 10, 11, 12]),
        (5, False, 1, [8, 9, 10, 11, 12]),
        (0, True, 1, list(range(1, 13))),
        (-1, False, 5, [5, 10, 12]),
        (0, True, 5, [1, 5, 10, 12]),
        (3, True, 5, [1, 10, 12]),
        (2, False, 4, [8, 12]),
        (1, True, 1, [1, 12]),
        (1, False, 1, [12]),
    ],
)
def test_what_is_kept(tmp_path: Path, total: int, first: bool, every: int, kept: list[int]) -> None:
    manager = program.FileProgramStateManager(
        tmp_path, keep_total=total, keep_first=first, keep_every_k=every
    )
    for version in range(1, 13):
        run(manager.save(version, version))
        assert run(manager.load_latest(0)) == (version, version)
    assert run(manager.get_versions()) == kept


def test_another_structure(tmp_path: Path) -> None:
    manager = program.FileProgramStateManager(tmp_path)
    run(manager.save({"weights": [1, 2], "counter": Counter(3)}, 1))
    for structure, named in (
        ({"weights": [0], "counter": Counter()}, "weights/1"),
        ({"weights": [0, 0, 0], "counter": Counter()}, "weights/2"),
        ({"bias": [0, 0], "counter": Counter()}, "bias/0"),
        (0, "a lone value"),
        ({"weights": [0, 0], "counter": 0}, "counter"),
    ):
        with pytest.raises(program.StructureMismatchError, match=named) as caught:
            run(manager.load(1, structure))
        assert "program_state_1.npz" in str(caught.value)


def test_wrong_arguments(tmp_path: Path) -> None:
    for kind in (program.FileProgramStateManager, program.ArrayFileReleaseManager):
        with pytest.raises(ValueError, match="root_dir"):
            kind("")
        with pytest.raises(ValueError, match="prefix"):
            kind(tmp_path, prefix="a/b")
    with pytest.raises(ValueError, match="keep_every_k"):
        program.FileProgramStateManager(tmp_path, keep_every_k=0)
    manager = program.FileProgramStateManager(tmp_path)
    for version, error in ((-1, ValueError), (1.5, TypeError), ("1", TypeError), (True, TypeError)):
        with pytest.raises(error, match="version"):
            run(manager.save(0, version))


# Damage.


class Evil:
    def __reduce__(self) -> Any:
        return exec, ("import sys; sys.code_of_a_file_ran = True",)


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, data in members.items():
            made.writestr(name.replace("_json", ".json").replace("_npy", ".npy"), data)
    return file.getvalue()


def pickled_array() -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.array([Evil()], object), allow_pickle=True)
    return file.getvalue()


def listed(*values: str, of: str = "program state", version: int = 1) -> bytes:
    return (
        f'{{"format": "stator.federated.program", "version": {version}, "of": "{of}", '
        f'"values": [{", ".join(values)}]}}'
    ).encode()


FOREIGN = {
    "empty": b"",
    "text": b"hello",
    "pickle": pickle.dumps({"weights": 1}),
    "zip": archive(a=b"b"),
    "released": archive(contents_json=listed(of="released value")),
    "another version": archive(contents_json=listed(version=2)),
    "no list": archive(contents_json=b"[1, 2]"),
    "no JSON": archive(contents_json=b"{"),
    "deep JSON": archive(contents_json=b"[" * 100_000),
    "no member": archive(contents_json=listed('{"path": [], "kind": "array", "member": "0.npy"}')),
    "an unknown kind": archive(contents_json=listed('{"path": [], "kind": "code"}')),
    "a wrong value": archive(contents_json=listed('{"path": [], "kind": "bool", "value": 3}')),
    "a wrong path": archive(contents_json=listed('{"path": [[1]], "kind": "none"}')),
    "a pickle inside": archive(
        **{"contents_json": listed('{"path": [], "kind": "array", "member": "0.npy"}')},
        **{"0_npy": pickled_array()},
    ),
    "huge": archive(
        **{"contents_json": listed('{"path": [], "kind": "array", "member": "0.npy"}')},
        **{
            "0_npy": b"\x93NUMPY\x01\x00F\x00{'descr': '<f8', 'fortran_order': False, "
            b"'shape': (1000000000000,), }\n"
        },
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files(tmp_path: Path, name: str) -> None:
    manager = program.FileProgramStateManager(tmp_path)
    run(manager.save(0, 3))
    path = tmp_path / "program_state_4.npz"
    path.write_bytes(FOREIGN[name])
    with pytest.raises(program.CorruptedFileError) as caught:
        run(manager.load_latest(0))
    text = str(caught.value)
    assert str(path) in text and "manager.remove(4)" in text and "version 3" in text
    assert caught.value.path == str(path)
    # As the message says.
    run(manager.remove(4))
    assert run(manager.load_latest(0)) == (0, 3)
    assert not hasattr(sys, "code_of_a_file_ran")


def test_every_damaged_byte_is_noticed_or_does_not_matter(tmp_path: Path) -> None:
    manager = program.FileProgramStateManager(tmp_path)
    state = {"a": np.arange(4), "b": 1.5, "c": [b"text", None]}
    run(manager.save(state, 1))
    path = tmp_path / "program_state_1.npz"
    data = path.read_bytes()
    noticed = 0
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        try:
            equal(manager._load(1, blank(state)), state)
        except program.CorruptedFileError:
            noticed += 1
    assert noticed > len(data) / 2
    for end in range(len(data)):
        path.write_bytes(data[:end])
        with pytest.raises(program.CorruptedFileError):
            manager._load(1, blank(state))


def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    manager = program.FileProgramStateManager(tmp_path)
    (tmp_path / "program_state_1.npz").mkdir()
    with pytest.raises(IsADirectoryError):
        run(manager.load(1, 0))


# Being killed.

SAVES = """
import asyncio, sys
import numpy as np
from stator.federated import program

async def main():
    manager = program.FileProgramStateManager(sys.argv[1], keep_total=4)
    csv = program.CSVFileReleaseManager(sys.argv[1] + "/metrics.csv")
    whole = program.CSVFileReleaseManager(sys.argv[1] + "/whole.csv", program.CSVSaveMode.WRITE)
    state, version = await manager.load_latest({"n": 0, "array": 0})
    version += 1
    while True:
        state = {"n": version, "array": np.full(20_000, version)}
        row = {"n": version, "text": "a\\n" * 50}
        await csv.release(row, version)
        await whole.release(row, version)
        await manager.save(state, version)
        print(version, flush=True)
        version += 1

asyncio.run(main())
"""


def test_who_is_killed_while_it_saves_goes_on(tmp_path: Path) -> None:
    done = 0
    pauses = np.random.default_rng(5).uniform(0, 0.02, 6)
    for pause in pauses:
        command = [sys.executable, "-c", SAVES, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                if int(line) >= done + 5:
                    break
            time.sleep(pause)
            running.send_signal(signal.SIGKILL)
            printed = running.stdout.read().split()
        manager = program.FileProgramStateManager(tmp_path)
        versions = run(manager.get_versions())
        assert versions[0] == 1 and versions[-1] >= max([done + 5, *map(int, printed)])
        for version in versions:
            found = run(manager.load(version, {"n": 0, "array": 0}))
            assert found["n"] == version and (found["array"] == version).all()
        done = versions[-1]
        for name in ("metrics.csv", "whole.csv"):
            table = program.CSVFileReleaseManager(tmp_path / name)
            rows = table._read()
            assert [int(row["key"]) for row in rows] == list(range(1, len(rows) + 1))
            assert len(rows) in (done, done + 1) or name == "metrics.csv"
            assert all(row["n"] == row["key"] and row["text"] == "a\n" * 50 for row in rows)
    # What the killed ones left is removed by whoever goes on.
    (tmp_path / f".program_state_{done + 1}.npz.unfinished-0123").write_text("")
    (tmp_path / ".program_state_99999999.npz.unfinished-0123").write_text("")
    run(
        program.FileProgramStateManager(tmp_path, keep_total=4).save({"n": 0, "array": 0}, done + 1)
    )
    assert [n for n in os.listdir(tmp_path) if n.startswith(".program")] == [
        ".program_state_99999999.npz.unfinished-0123"
    ]


def test_files_can_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        run(program.FileProgramStateManager(tmp_path).save(0, 1))
    finally:
        os.umask(before)
    assert (tmp_path / "program_state_1.npz").stat().st_mode & 0o777 == 0o644


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: Any) -> None:
        raise PermissionError("no links")

    monkeypatch.setattr(os, "link", link)
    manager = program.FileProgramStateManager(tmp_path)
    run(manager.save(1, 1))
    with pytest.raises(program.ProgramStateExistsError):
        manager._save(program._archive.Archive(2, "program state"), 1)
    assert run(manager.load(1, 0)) == 1 and os.listdir(tmp_path) == ["program_state_1.npz"]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(28, "No space left on device")

    manager = program.ArrayFileReleaseManager(tmp_path)
    run(manager.release(1, 1))
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="space"):
        run(manager.release(2, 1))
    monkeypatch.undo()
    assert run(manager.get_value(1)) == 1 and os.listdir(tmp_path) == ["release_1.npz"]
