"""The byte and text forms: read in another process, and never more than data."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.common import I64, random, spec
from torch import nn

from stator import _stator
from stator._program_tracing.table import name_of, resolve
from stator.errors import ProgramInputError
from stator.programs import TensorProgram, TensorSpec

ROOT = Path(__file__).resolve().parents[2]
MODEL = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
TABLES = {
    dtype: torch.arange(6).reshape(2, 3).to(dtype)
    for dtype in (
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64,
        torch.bool, torch.complex64, torch.uint8,
    )
}  # fmt: skip


def step(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Any:
    def loss(w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(MODEL(x) @ w, y)

    return {"w": w - 0.1 * torch.func.grad(loss)(w), "rows": x.shape[0]}


SPECS = (spec(3, 3), spec(None, 4), spec(None, dtype=I64))


@pytest.fixture(scope="module")
def program() -> TensorProgram:
    return TensorProgram.trace(step, SPECS)


CHILD = """
import sys, torch
from stator.programs import TensorProgram
program = TensorProgram.from_bytes(open(sys.argv[1], "rb").read())
torch.save(program(*torch.load(sys.argv[2])), sys.argv[3])
print(program.text, end="")
print(program)
"""


def test_another_process(program: TensorProgram, tmp_path: Path) -> None:
    tensors = list(random(*SPECS))
    paths = [str(tmp_path / name) for name in ("program", "inputs", "outputs")]
    Path(paths[0]).write_bytes(program.to_bytes())
    torch.save(tensors, paths[1])
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *paths],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "python")},
    )
    assert done.stdout == program.text + repr(program) + "\n"
    for ours, theirs in zip(program(*tensors), torch.load(paths[2]), strict=True):
        assert torch.equal(ours, theirs)


def test_text(golden: Any, program: TensorProgram) -> None:
    golden("tensor_program", program.text)


def test_same_function_same_bytes(program: TensorProgram) -> None:
    assert TensorProgram.trace(step, SPECS).to_bytes() == program.to_bytes()


@pytest.mark.parametrize("dtype", TABLES, ids=str)
def test_constants(dtype: torch.dtype) -> None:
    table, empty = TABLES[dtype], TABLES[dtype][:0]

    def fn(x: torch.Tensor) -> Any:
        return table.T, empty, table[1], x

    program = TensorProgram.trace(fn, (spec(2),))
    again = TensorProgram.from_bytes(program.to_bytes())
    for output, expected in zip(again(torch.ones(2)), fn(torch.ones(2)), strict=True):
        assert output.dtype == expected.dtype
        assert torch.equal(output, expected)


def test_pickles_and_copies(program: TensorProgram) -> None:
    for again in (pickle.loads(pickle.dumps(program)), copy.deepcopy(program)):
        assert again.text == program.text


def test_no_bytes(program: TensorProgram) -> None:
    data = program.to_bytes()
    cases = {
        b"": "no tensor program",
        b"\x80\x04.": "no tensor program",
        data[:8] + b"\x02" + data[9:]: "version 2",
        data[:-1]: "end too early",
        data + b"\0": "behind the last constant",
        data.replace(b"torch.nn.functional.linear", b"torch.nn.functional.linear".upper()): "names",
    }
    for wrong, message in cases.items():
        with pytest.raises(ValueError, match=message) as met:
            TensorProgram.from_bytes(wrong)
        assert [entry.name for entry in met.traceback] == ["test_no_bytes"]
    with pytest.raises(TypeError, match="takes bytes"):
        TensorProgram.from_bytes("text")  # type: ignore[arg-type]


def linked(line: str) -> TensorProgram:
    text = (
        "stator.program 1\ndefault_dtype float32\n%0 = input float32[2]\n"
        f"%1 = {line}\ntakes arguments(*)\ngives *\nreturn %1: float32[2]\n"
    )
    return TensorProgram(_stator.Program.parse(text), [])


FORBIDDEN = [
    "os.system('true')",
    "builtins.eval('1')",
    "builtins.getattr(%0, 'x')",
    "builtins.__import__('os')",
    "torch.load('file')",
    "torch.from_file('/etc/passwd', size=1)",
    "torch.compile(%0)",
    "torch.hub.load('a', 'b')",
    "torch.os.system('true')",
    "torch.serialization.load('x')",
    "torch.nn.functional.torch.load('x')",
    "torch.ops.aten.from_file('/etc/passwd')",
    "torch.ops.aten.set_(%0)",
    "torch.ops.aten._to_copy(%0)",
    "torch.ops.prim.Print(%0)",
    "torch.ops.load_library('x')",
    "torch.ops.aten.__class__(%0)",
    "torch.ops.aten.add.__call__(%0, %0)",
    "torch._C._jit_set_profiling_mode(True)",
    "torch.overrides.get_overridable_functions()",
    "torch.relu(os.path)",
    "torch.relu(torch.device('floppy'))",
    ".numpy(%0)",
    ".apply_(%0, %0)",
    ".share_memory_(%0)",
    ".__class__(%0)",
    ".__reduce_ex__(%0, 4)",
    ".__getattribute__(%0, 'data')",
    ".register_hook(%0, %0)",
    ".set_(%0)",
    ".data_ptr(%0)",
    ".tolist(%0)",
    ".nonsense(%0)",
]


@pytest.mark.parametrize("line", FORBIDDEN)
def test_names_that_programs_may_not_use(line: str) -> None:
    with pytest.raises(
        ValueError, match=r"programs may not use|unknown device|unexpected|expected"
    ):
        linked(line)


def test_methods_are_those_of_tensors() -> None:
    program = linked(".add('{0.__class__}', %0)")
    with pytest.raises(TypeError):
        program(torch.ones(2))


@pytest.mark.parametrize(
    "line",
    [
        ".add_(%0, 1)",
        "operator.iadd(%0, 1)",
        ".__iadd__(%0, 1)",
        "torch.add(%0, 1, out=%0)",
        "torch.relu_(%0)",
        "torch.nn.functional.relu(%0, inplace=True)",
        "torch.ops.aten.add_.Tensor(%0, %0)",
    ],
)
def test_a_strangers_program_writes_to_copies(line: str) -> None:
    x = torch.full((2,), -1.0)
    linked(line)(x)
    assert x.tolist() == [-1, -1]


def test_a_strangers_program_that_lies() -> None:
    for line in (".double(%0)", "torch.ones(3)", ".size(%0, 0)"):
        with pytest.raises(RuntimeError, match="where its text says float32"):
            linked(line)(torch.ones(2))


def test_aten_operators() -> None:
    assert linked("torch.ops.aten.add.Tensor(%0, %0)")(torch.ones(2))[0].tolist() == [2, 2]

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.mul.Tensor(x, x)

    program = TensorProgram.trace(fn, (spec(2),))
    assert "torch.ops.aten.mul.Tensor(%0, %0)" in program.text


def test_every_name_is_its_objects() -> None:
    from stator._program_tracing.table import _PRIVATE, _table

    private = {"torch._C._set_grad_enabled", *(f"torch.{name}" for name in _PRIVATE)}
    by_name, by_object = _table()
    assert len(by_name) > 1000
    for found, name in by_object.items():
        assert resolve(name) == found
        assert name_of(found) == name
    for name, found in by_name.items():
        if not callable(found):
            continue
        parts = name.split(".")
        assert not parts[-1].startswith("_") or parts[-1].endswith("__") or name in private, name


def test_errors_name_the_line_of_the_program() -> None:
    program = linked(".view(%0, 3)")
    with pytest.raises(RuntimeError) as met:
        program(torch.ones(2))
    assert met.value.__notes__ == ["In a tensor program: %1 = .view(%0, 3)"]


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_changed_bytes(program: TensorProgram, data: st.DataObject) -> None:
    """Whatever is changed: a program, or a `ValueError`."""
    packed = bytearray(program.to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(packed) - 1))
        end = at + data.draw(st.integers(0, 6))
        packed[at:end] = data.draw(st.binary(max_size=6))
    try:
        again = TensorProgram.from_bytes(bytes(packed))
    except ValueError:
        return
    assert _stator.Program.parse(again.text).text == again.text


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    for head in (b"", b"\x93STATOR\n", b"\x93STATOR\n\x01\0\0\0"):
        with pytest.raises(ValueError):
            TensorProgram.from_bytes(head + data)


def test_specs_print(program: TensorProgram) -> None:
    assert repr(program) == (
        "<tensor program (float32[3, 3], float32[?, 4], int64[?]) -> (float32[3, 3], int64[])>"
    )
    assert str(TensorSpec(torch.bool)) == "bool[]"


def test_pickles_know_the_users_lines() -> None:
    """Bytes say what is computed; messages of what was pickled say whose code that is, too."""

    def scored(rows, labels):
        doubled = rows * 2
        return torch.nn.functional.nll_loss(doubled, labels)

    specs = (TensorSpec(torch.float32, (None, 3)), TensorSpec(torch.int64, (None,)))
    program = TensorProgram.trace(scored, specs)
    once = pickle.loads(pickle.dumps(program))
    rows = torch.zeros(2, 3)
    for again in (program, once, pickle.loads(pickle.dumps(once)), copy.deepcopy(once)):
        with pytest.raises(IndexError) as failed:
            again(rows, torch.tensor([0, 7]))
        [note] = failed.value.__notes__
        assert "doubled, labels" in note
        assert "in test_pickles_know_the_users_lines.<locals>.scored" in note
        with pytest.raises(ProgramInputError, match=r"rows\.size\(0\) == labels\.size\(0\)") as odd:
            again(rows, torch.zeros(3, dtype=torch.int64))
        assert "scored`" in str(odd.value)
    assert once.to_bytes() == program.to_bytes()
