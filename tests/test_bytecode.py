"""`stator-bytecode` against the interpreter: round trips over the standard library, stack effects."""

import dis
import subprocess
import sys
import sysconfig
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from stator import _stator

STDLIB = Path(sysconfig.get_paths()["stdlib"])
GENERATOR = Path(__file__).parent.parent / "crates" / "bytecode" / "tools" / "gen_opcodes.py"

# One test a package (and one for the modules at the top), so that a failure says where.
PACKAGES = ["."] + sorted(
    path.name
    for path in STDLIB.iterdir()
    if path.is_dir()
    and path.name not in {"site-packages", "__pycache__"}
    and any(path.rglob("*.py"))
)

# CPython writes these into running code only, never into `co_code`.
HIDDEN = {"RESERVED", "ENTER_EXECUTOR"}
OPCODES = {
    name: number
    for name, number in dis.opmap.items()
    if number < 256 and name not in HIDDEN and not name.startswith("INSTRUMENTED_")
}
ARGS = [*range(0, 300), 511, 512, 1023, 4096, 65535, 65536, 65537, 1 << 20]


def nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from nested_codes(constant)


def package_codes(package: str) -> Iterator[types.CodeType]:
    """Every code object of a package's files; files that don't compile (test data) are skipped."""
    folder = STDLIB / package
    for path in sorted(folder.glob("*.py") if package == "." else folder.rglob("*.py")):
        if not path.is_file():  # A distribution's link to what isn't installed.
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        yield from nested_codes(module)


def check_code(code: types.CodeType) -> None:
    where = f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"
    assert _stator._bytecode_roundtrip(code.co_code) == code.co_code, where
    table = code.co_exceptiontable
    assert _stator._bytecode_exception_table_roundtrip(table) == table, where
    lines = code.co_linetable
    assert _stator._bytecode_line_table_roundtrip(lines, code.co_firstlineno) == lines, where
    assert _stator._bytecode_max_depth(code.co_code, table) <= code.co_stacksize, where


@pytest.mark.parametrize("package", PACKAGES)
def test_standard_library(package: str) -> None:
    for code in package_codes(package):
        check_code(code)


def test_wide_arguments() -> None:
    """More than 65536 constants and a jump over all of them: two EXTENDED_ARGs before many."""
    lines = [f"    x = {number}.5" for number in range(70_000)]
    source = "def f(c, x=0):\n  while c:\n" + "\n".join(lines) + "\n  return x\n"
    for code in nested_codes(compile(source, "<wide>", "exec")):
        check_code(code)


def test_the_depth_is_close_to_the_stack_size() -> None:
    """A depth of 0 would pass the bound: a plain function's depth is what the compiler says."""

    def plain(a, b):
        return [a, b, (a, b, [a, *b, {a: b}])]

    code = plain.__code__
    assert _stator._bytecode_max_depth(code.co_code, code.co_exceptiontable) == code.co_stacksize


@pytest.mark.parametrize("jump", [True, False, None])
@pytest.mark.parametrize("name", OPCODES)
def test_stack_effect(name: str, jump: bool | None) -> None:
    number = OPCODES[name]
    try:
        dis.stack_effect(number, 0)
        args = ARGS
    except ValueError:  # It takes no argument, and refuses to be given one.
        assert _stator._bytecode_stack_effect(number, 0, jump) == dis.stack_effect(
            number, jump=jump
        )
        return
    for arg in args:
        found = _stator._bytecode_stack_effect(number, arg, jump)
        assert found == dis.stack_effect(number, arg, jump=jump), (name, arg)


def test_unknown_opcodes_have_no_effect() -> None:
    for number in set(range(256)) - set(OPCODES.values()):
        assert _stator._bytecode_stack_effect(number, 0, None) is None


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (b"\x00", "can't be code"),
        (bytes([dis.opmap["EXTENDED_ARG"], 1]), "nothing to extend"),
        (bytes([0, 0]), "a cache without an instruction"),
        (bytes([dis.opmap["BINARY_SUBSCR"], 0]), "expected an empty cache"),
        (bytes([dis.opmap["JUMP_FORWARD"], 9]), "no instruction starts"),
        (bytes([255, 0]), "is no opcode"),
    ],
)
def test_malformed_code_is_refused(code: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _stator._bytecode_roundtrip(code)


def test_malformed_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="within an entry"):
        _stator._bytecode_exception_table_roundtrip(b"\x84\x06")
    with pytest.raises(ValueError, match="wrong mark"):
        _stator._bytecode_line_table_roundtrip(b"\x08\x00", 1)


def test_the_generated_table_is_up_to_date() -> None:
    check = [sys.executable, str(GENERATOR), "--check", sys.executable]
    subprocess.run(check, check=True)
