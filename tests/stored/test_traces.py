"""Traces that are kept and found again: equal to plain Python, and unused where anything has changed."""

from __future__ import annotations

import copy
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator._stator import _adopt_trace, _stored_traces
from stored import programs
from stored.alike import same


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("STATOR_CACHE", str(tmp_path / "cache"))
    with stator.config.patch(strict=True, skip_unprofitable=False):
        yield tmp_path / "cache" / "traces"


def recorded(function: Callable[..., Any], *args: Any) -> Any:
    programs.SHARED.calls = 0
    compiled = stator.compile(function)
    compiled(*args)
    return compiled


@pytest.mark.parametrize("function", programs.FUNCTIONS, ids=lambda it: it.__name__)
def test_a_trace_that_was_kept_is_replayed_at_the_first_call(function: Any) -> None:
    x = torch.linspace(-1, 1, 16).reshape(4, 4) if function is programs.pooled else torch.ones(4)
    saved = stator.save_traces(recorded(function, x))
    assert (saved.count, saved.left_out) == (1, ())
    again = stator.compile(function)
    assert stator.load_traces(again).count == 1
    for value in (x, x * 3):
        torch.manual_seed(1)
        programs.SHARED.calls = 0
        expected = function(value)
        torch.manual_seed(1)
        programs.SHARED.calls = 0
        assert same(again(value), expected)
    assert stator.stats(again).hits == 2
    assert stator.stats(again).traces == 1


def test_a_module() -> None:
    torch.manual_seed(0)
    net = programs.Net()
    x = torch.randn(3, 4)
    before = recorded(copy.deepcopy(net), x)
    before(x)  # `steps` is a symbol from now on.
    assert stator.save_traces(before).count == 2
    plain, compiled = copy.deepcopy(net), stator.compile(net)
    assert stator.load_traces(compiled).count == 2
    for step in range(3):
        torch.manual_seed(step)
        expected = plain(x * step)
        torch.manual_seed(step)
        found = compiled(x * step)
        assert same(found, expected)
        found.sum().backward()
        expected.sum().backward()
    assert (net.steps, stator.stats(compiled).hits) == (3, 3)
    assert same(dict(net.named_buffers()), dict(plain.named_buffers()))
    assert same([it.grad for it in net.parameters()], [it.grad for it in plain.parameters()])


def test_sizes_that_vary() -> None:
    compiled = recorded(programs.plain, torch.ones(3))
    compiled(torch.ones(5))
    assert stator.save_traces(compiled).count == 2
    again = stator.compile(programs.plain)
    assert stator.load_traces(again).count == 2
    for size in (3, 5, 7):
        assert same(again(torch.ones(size)), programs.plain(torch.ones(size)))
    assert stator.stats(again).hits == 3


def test_guards_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(4)
    assert stator.save_traces(recorded(programs.globals_read, x)).count == 1
    again = stator.compile(programs.globals_read)
    monkeypatch.setattr(programs, "SCALE", 5.0)
    assert stator.load_traces(again).count == 1
    assert same(again(x), programs.globals_read(x))
    assert (stator.stats(again).hits, stator.stats(again).traces) == (0, 2)
    assert same(again(x.double()), programs.globals_read(x.double()))


def edits() -> dict[str, tuple[str, str]]:
    """In the text of `programs`: what each edit replaces, by what."""
    return {
        "code": ("return x * by + plus", "return x * by - plus"),
        "constant": ("helper(helper(x, 3.0)", "helper(helper(x, 4.0)"),
        "default": ("by: float = 2.0", "by: float = 7.0"),
        "keyword": ("plus: int = 1", "plus: int = 9"),
        "decorator": ("function(*args) + 1", "function(*args) + 2"),
        "decorated": ("return x.sin()", "return x.cos()"),
        "method": ("return x * self.factor", "return x + self.factor"),
        "class attribute": ("factor = 3", "factor = 4"),
        "base class": ("class Scaled:", "class Scaled(dict):"),
        "new method": (
            "    def apply(",
            "    def __getattr__(self, name):\n        return 1\n\n    def apply(",
        ),
        "enum": ('TWICE = "twice"', 'TWICE = "other"'),
        "global": ("SCALE = 2.0", "SCALE = 2.5"),
        "pattern": ('re.compile("a+")', 're.compile("b+")'),
        "getter": ("itemgetter(-1)", "itemgetter(0)"),
        "bound method": ('frozenset(["a", "b"])', 'frozenset(["b"])'),
        "nothing": ("SCALE = 2.0", "SCALE = 2.0"),
    }


PROCESS = """
import importlib, sys, torch, stator
sys.path.insert(0, sys.argv[1])
stator.config.skip_unprofitable = False
for number in range(int(sys.argv[3])):
    edited = importlib.import_module(f"edited_{number}")
    for function in (*edited.FUNCTIONS, *edited.OF_C):
        x = torch.linspace(-1, 1, 16).reshape(4, 4) if function is edited.pooled else torch.ones(4)
        compiled = stator.compile(function)
        if sys.argv[2] == "keep":
            compiled(x)
            count = stator.save_traces(compiled).count
            assert count == 1 or function in edited.OF_C, function
            continue
        stator.load_traces(compiled)
        torch.manual_seed(0)
        found = compiled(x)
        hits = stator.stats(compiled).hits
        torch.manual_seed(0)
        print(number, function.__name__, hits, str(found) == str(function(x)))
"""


def run(folder: Path, what: str) -> Iterator[tuple[str, str, int, bool]]:
    """For each edit and function how many calls a process has replayed, and whether they were right."""
    named = list(edits())
    command = [sys.executable, "-W", "ignore", "-c", PROCESS, str(folder), what, str(len(named))]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, check=False)
    assert ran.returncode == 0, ran.stderr
    for line in ran.stdout.splitlines():
        number, function, hits, equal = line.split()
        yield named[int(number)], function, int(hits), equal == "True"


def test_another_process_uses_no_trace_of_what_was_edited(tmp_path: Path) -> None:
    text = Path(programs.__file__).read_text()
    files = [tmp_path / f"edited_{number}.py" for number in range(len(edits()))]
    for file in files:
        file.write_text(text)
    assert not [*run(tmp_path, "keep")]
    for file, (before, after) in zip(files, edits().values(), strict=True):
        assert before in text
        file.write_text(text.replace(before, after))
    unused: dict[str, set[str]] = {name: set() for name in edits()}
    for name, function, hits, equal in run(tmp_path, "use"):
        assert equal, (name, function)
        if not hits:
            unused[name].add(function)
    assert unused["nothing"] <= {function.__name__ for function in programs.OF_C}
    for name in ("code", "constant", "default", "keyword", "decorator", "decorated"):
        assert "calls" in unused[name], name
    for name in ("method", "class attribute", "base class", "new method"):
        assert "writes" in unused[name], name
    assert "enums" in unused["enum"]
    assert "globals_read" in unused["global"]
    # What an edit doesn't touch is used, unless it stands on other lines since.
    assert {name for name, functions in unused.items() if "plain" in functions} == {"new method"}


def broken(x: Tensor) -> Tensor:
    stator.graph_break()
    return x + 1


def decides(x: Tensor) -> Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def ordered(x: Tensor) -> list[str]:
    return [*{"a", "b", str(x.dim())}]


def ordered_constant(x: Tensor) -> list[str]:
    return [name * x.dim() for name in {"a", "b"}]


def hashed(x: Tensor) -> Tensor:
    return x + hash("text") % 2


def draws(x: Tensor) -> Tensor:
    return x * random.random()


@stator.assume_constant_result
def constant() -> int:
    return 3


def folded(x: Tensor) -> Tensor:
    return x + constant()


LOCAL = (lambda y: y + 1,)


def unnamed(x: Tensor) -> Tensor:
    return LOCAL[0](x)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (broken, "ends at a graph break"),
        (decides, "data decides"),
        (ordered, "in an order that each process has"),
        (ordered_constant, "in an order that each process has"),
        (hashed, "asks for a hash"),
        (draws, "draws random numbers"),
        (folded, "a function's result as a constant"),
        (unnamed, "has no name by which it is found"),
    ],
    ids=lambda it: getattr(it, "__name__", ""),
)
def test_what_isnt_kept(function: Any, reason: str) -> None:
    found = stator.save_traces(recorded(function, torch.ones(3)))
    assert found.count == 0
    assert reason in found.left_out[0]


def test_a_file_that_isnt_what_was_written(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    x = torch.ones(4)
    compiled = recorded(programs.plain, x)
    assert stator.save_traces(compiled).count == 1
    (file,) = (path for path in folder.iterdir() if path.name != "secret")
    content = file.read_bytes()
    for wrong in (b"", content[:40], content[:-1], content[:50] + b"x" + content[51:]):
        file.write_bytes(wrong)
        again = stator.compile(programs.plain)
        assert stator.load_traces(again).count == 0
        assert "isn't used, and is made again" in caplog.text
        assert same(again(x), programs.plain(x))
        caplog.clear()
    assert stator.save_traces(compiled).count == 1
    assert stator.load_traces(stator.compile(programs.plain)).count == 1


def test_nothing_is_kept_where_the_cache_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_CACHE", "off")
    compiled = recorded(programs.plain, torch.ones(4))
    assert stator.save_traces(compiled) == stator.KeptTraces(0, ("STATOR_CACHE is off.",))
    assert stator.load_traces(compiled).count == 0


def test_functions_are_told_apart() -> None:
    x = torch.ones(4)
    compiled = recorded(programs.plain, x)
    assert stator.save_traces(compiled, "one").count == 1
    for other, name in (
        (stator.compile(programs.plain), "another"),
        (stator.compile(programs.plain, dynamic=True), "one"),
        (stator.compile(programs.types), "one"),
    ):
        assert stator.load_traces(other, name).count == 0
    assert stator.load_traces(stator.compile(programs.plain), "one").count == 1


def test_a_function_has_no_more_traces_than_it_may() -> None:
    compiled = recorded(programs.plain, torch.ones(4))
    compiled(torch.ones(4, dtype=torch.float64))
    assert stator.save_traces(compiled).count == 2
    found = stator.load_traces(stator.compile(programs.plain, recompile_limit=1))
    assert (found.count, len(found.left_out)) == (1, 1)


def test_what_isnt_compiled() -> None:
    for function in (stator.save_traces, stator.load_traces):
        with pytest.raises(stator.errors.NotCompilableError, match="takes what stator.compile ret"):
            function(programs.plain)


def test_bytes_that_are_no_trace() -> None:
    compiled = recorded(programs.calls, torch.ones(4))
    ((stored, _),) = _stored_traces(compiled)
    assert stored is not None
    data = bytes(stored["data"])
    numbers = random.Random(0)
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(numbers.choice((1, 1, 3))):
            changed[numbers.randrange(len(changed))] = numbers.randrange(256)
        del changed[numbers.choice((len(changed), len(changed) // 2)) :]
        target = stator.compile(programs.calls)
        try:
            _adopt_trace(target, {**stored, "data": bytes(changed)})
        except ValueError:
            continue
    with pytest.raises(ValueError, match="this is no stored trace"):
        _adopt_trace(stator.compile(programs.calls), {**stored, "data": b""})
    with pytest.raises(ValueError, match="has version"):
        _adopt_trace(stator.compile(programs.calls), {**stored, "data": b"\x7f" + data[1:]})
