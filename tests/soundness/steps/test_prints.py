"""`print` of what differs from call to call is a step of a trace: it prints at its place, once, and what it raises is raised."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from stator import stats

from .results import copied, same

LOG = logging.getLogger("stator-test-prints")


@pytest.fixture(autouse=True)
def replayed() -> Iterator[None]:
    handler = logging.StreamHandler(sys.stdout)
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    with stator.config.patch(skip_unprofitable=False):
        yield
    LOG.removeHandler(handler)
    torch.set_printoptions(profile="default")


def formatted(x: Tensor, found: list[Any]) -> Any:
    total = x.sum().item()
    print(f"total {total:.3f}", end=" | ")
    print("mean", x.mean().item(), sep="=", flush=True)
    return x * total


def whole_tensors(x: Tensor, found: list[Any]) -> Any:
    y = x * 2
    print("before", y)
    y.add_(1)
    print(y, y[:1], y.sum(), sep="\n")
    return y


def of_all_kinds(x: Tensor, found: list[Any]) -> Any:
    n = x.argmax().item()
    print(
        n, n + 0.5, n > 1, [n, 2], (n, "a", None), x.shape, x.dtype, x.device, None, True, sep=";"
    )
    return x + n


def in_a_loop(x: Tensor, found: list[Any]) -> Any:
    for i in range(8):
        x = x * 0.5
        print(f"{i}: {x.norm():.4f}")
        if x.norm() < 1:
            print("small at", i, x.max().item())
            return x
    return x - 1


def between_writes(x: Tensor, found: list[Any]) -> Any:
    found.append(x.sum().item())
    print("one", found[-1])
    x.add_(1)
    if x.sum() > 9:
        found.append("large")
        print("two", x.sum().item())
        x.mul_(2)
    print("three", x.sum().item())
    found.append(len(found))
    return x


def raises_behind(x: Tensor, found: list[Any]) -> Any:
    print("before", x.sum().item())
    y = torch.zeros(5)
    x.add_(1)
    y[x.long().clamp(-9, 9)] = 1.0
    print("behind", y.sum().item())
    return y


def handles(x: Tensor, found: list[Any]) -> Any:
    try:
        print("before", x.sum().item())
        y = torch.zeros(5)[x.long().clamp(-9, 9)]
    except IndexError as error:
        found.append(str(error))
        print("handled", x.mean().item())
        y = x
    finally:
        print("at last", x.max().item())
    return y + 1


def logged_behind(x: Tensor, found: list[Any]) -> Any:
    print("first", x.sum().item())
    LOG.info("second %.3f", x.mean().item())
    return x + 1


def logged_before(x: Tensor, found: list[Any]) -> Any:
    LOG.info("first %.3f", x.mean().item())
    print("second", x.sum().item())
    return x + 1


def redirected(x: Tensor, found: list[Any]) -> Any:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print("within", x.sum().item())
    print("without", x.mean().item())
    found.append(out.getvalue())
    return x + 1


def to_stderr(x: Tensor, found: list[Any]) -> Any:
    print("err", x.sum().item(), file=sys.stderr)
    print("out", x.mean().item(), file=None)
    return x + 1


def printed_otherwise(x: Tensor, found: list[Any]) -> Any:
    y = x / 3
    with torch._tensor_str.printoptions(precision=2):
        print("short", y)
    print("long", y)
    return y


class Meter:
    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, value: float) -> None:
        self.total += value
        self.count += 1

    def show(self, step: int) -> None:
        print(f"[{step:03d}] mean {self.total / self.count:.5f}")


METER = Meter()


def metered(x: Tensor, found: list[Any]) -> Any:
    METER.update(x.mean().item())
    METER.show(METER.count)
    return x * 2


def a_line_of_each(rows: Tensor) -> Iterator[str]:
    for row in rows:
        print("row", row.sum().item())
        yield f"{row.max().item():.2f}"


def in_a_generator(x: Tensor, found: list[Any]) -> Any:
    print(",".join(a_line_of_each(x.reshape(2, 2))))
    return x + 1


def under_modes(x: Tensor, found: list[Any]) -> Any:
    with torch.no_grad():
        print("no grad", x.sum().item(), torch.is_grad_enabled())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        print((x.reshape(2, 2) @ x.reshape(2, 2)).dtype, x.mean().item())
    return x + 1


PROGRAMS = [
    formatted,
    whole_tensors,
    of_all_kinds,
    in_a_loop,
    between_writes,
    raises_behind,
    handles,
    logged_behind,
    logged_before,
    redirected,
    to_stderr,
    printed_otherwise,
    metered,
    in_a_generator,
    under_modes,
]
# What comes behind a log record, goes elsewhere, is printed otherwise, or stands in a generator that C code advances.
APART = (logged_before, redirected, printed_otherwise, in_a_generator)
WHOLE = [program for program in PROGRAMS if program not in APART]


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return copied(call())
    except Exception as error:
        lines = [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        return type(error).__name__, str(error), [line for line in lines if line[0] in NAMES]


NAMES = {program.__name__ for program in PROGRAMS} | {"into", "to_ascii"}


def calls(function: Callable[..., Any], capfd: Any) -> list[Any]:
    torch.manual_seed(3)
    METER.__init__()  # type: ignore[misc]
    seen = []
    for scale in (1.0, 3.0, -2.0, 1.0, 6.0, 3.0, 0.5, -2.0):
        x, found = torch.randn(4) * scale, []
        made = outcome(lambda x=x, found=found: function(x, found))
        sys.stdout.flush()
        seen.append((made, copied(x), found, *capfd.readouterr()))
    return seen


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_each_call_prints_what_plain_python_prints(
    program: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    expected = calls(program, capfd)
    compiled = stator.compile(program)
    assert all(map(same, calls(compiled, capfd), expected))
    assert all(map(same, calls(compiled, capfd), expected))
    assert all(row[3] for row in expected)


@pytest.mark.parametrize("program", WHOLE, ids=lambda program: program.__name__)
def test_it_is_no_break(program: Callable[..., Any], capfd: pytest.CaptureFixture[str]) -> None:
    compiled = stator.compile(program, fullgraph=True)
    expected = calls(program, capfd)
    assert all(map(same, calls(compiled, capfd), expected))
    assert stats(compiled).hits > 0


def test_a_training_step_that_prints_is_one_trace(capfd: pytest.CaptureFixture[str]) -> None:
    def make() -> Callable[..., Any]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(i: int, x: Tensor) -> float:
            optimizer.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            print(f"step {i}: loss {loss.item():.6f}, norm {norm:.4f}")
            return loss.item()

        return step

    def run(step: Callable[..., Any]) -> Any:
        generator = torch.Generator().manual_seed(1)
        losses = [step(i, torch.randn(6, 4, generator=generator)) for i in range(8)]
        return losses, capfd.readouterr().out

    compiled = stator.compile(make())
    assert run(compiled) == run(make())
    assert not stats(compiled).breaks
    assert stats(compiled).hits >= 4


class Watching(io.StringIO):
    """A stream of the program's own: it looks at what the function writes."""

    def __init__(self, watched: list[Any]) -> None:
        super().__init__()
        self.watched, self.seen = watched, []

    def write(self, text: str) -> int:
        self.seen.append((text, list(self.watched)))
        self.watched.append("told")
        return super().write(text)


def test_a_stream_with_code_of_its_own_sees_what_it_would_see(monkeypatch: Any) -> None:
    def telling(x: Tensor, found: list[Any]) -> Tensor:
        found.append("begun")
        print("sum", x.sum().item())
        found.append("ended")
        return x + len(found)

    def run(function: Callable[..., Any], call: int) -> Any:
        found: list[Any] = []
        plain, watching = io.StringIO(), Watching(found)
        monkeypatch.setattr(sys, "stdout", watching if call in (3, 5) else plain)
        made = function(torch.arange(3.0) + call, found)
        return made.tolist(), found, plain.getvalue(), watching.getvalue(), watching.seen

    compiled = stator.compile(telling)
    for call in range(8):
        assert run(compiled, call) == run(telling, call)
    assert stats(compiled).hits > 0


def test_a_method_set_on_a_stream_is_called(monkeypatch: Any) -> None:
    def telling(x: Tensor) -> Tensor:
        print("sum", x.sum().item())
        return x + 1

    compiled = stator.compile(telling)
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stdout", stream)
    for _ in range(4):
        compiled(torch.ones(3))
    seen: list[str] = []
    stream.write = lambda text: seen.append(text) or len(text)  # type: ignore[method-assign,func-returns-value]
    compiled(torch.ones(3))
    assert "".join(seen) == "sum 3.0\n"


def to_ascii(x: Tensor, found: list[Any]) -> Any:
    found.append(x.sum().item())
    x.add_(1)
    print("\u00e9" if x.sum() > 9 else "e", x.sum().item())
    found.append("behind")
    return x


def into(x: Tensor, found: list[Any]) -> Any:
    try:
        x.add_(1)
        print("\u00e9" if x.sum() > 9 else "e", x.sum().item())
    except UnicodeEncodeError as error:
        found.append(error.reason)
        return x * 0
    return x


@pytest.mark.parametrize("program", [to_ascii, into], ids=lambda program: program.__name__)
def test_what_a_stream_raises_leaves_where_it_is_raised(
    program: Callable[..., Any], monkeypatch: Any
) -> None:
    def run(function: Callable[..., Any]) -> list[Any]:
        seen = []
        for value, encoding in (
            (1.0, "utf-8"),
            (5.0, "utf-8"),
            (1.0, "ascii"),
            (5.0, "ascii"),
            (1.0, "utf-8"),
            (5.0, "ascii"),
            (5.0, "utf-8"),
        ):
            raw = io.BytesIO()
            stream = io.TextIOWrapper(raw, encoding)
            monkeypatch.setattr(sys, "stdout", stream)
            x, found = torch.full((3,), value), []
            made = outcome(lambda x=x, found=found: function(x, found))
            stream.flush()
            seen.append((made, copied(x), found, raw.getvalue().decode()))
        return seen

    compiled = stator.compile(program)
    for _ in range(3):
        assert all(map(same, run(compiled), run(program)))
    assert stats(compiled).hits > 0


def test_a_closed_stream_is_an_error_of_each_call(monkeypatch: Any) -> None:
    def telling(x: Tensor, found: list[Any]) -> Tensor:
        found.append(1)
        print("sum", x.sum().item())
        found.append(2)
        return x + 1

    compiled = stator.compile(telling)
    for closed in (False, False, True, True, False, True):
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stdout", stream)
        if closed:
            stream.close()
        found: list[int] = []
        if closed:
            with pytest.raises(ValueError, match="closed file"):
                compiled(torch.ones(3), found)
        else:
            compiled(torch.ones(3), found)
            assert stream.getvalue() == "sum 3.0\n"
        assert found == ([1] if closed else [1, 2])


def test_constants_break_the_graph(capfd: pytest.CaptureFixture[str]) -> None:
    def says(x: Tensor) -> Tensor:
        y = x + 1
        print("Hi")
        return y * 2

    compiled = stator.compile(says)
    for _ in range(4):
        assert compiled(torch.ones(2)).tolist() == [4, 4]
        assert capfd.readouterr().out == "Hi\n"
    assert stats(compiled).breaks


def test_constants_are_printed_where_data_was_read(capfd: pytest.CaptureFixture[str]) -> None:
    def says(x: Tensor) -> Tensor:
        print("begins")
        best = x.max().item()
        print("-" * 8)
        if best > 1:
            print("large")
            return x - best
        print("small")
        return x + 1

    compiled = stator.compile(says)
    for value in (0.0, 2.0, 0.5, 3.0, 0.0, 2.0):
        x = torch.full((2,), value)
        expected, lines = says(x), capfd.readouterr().out
        assert same(compiled(x), expected)
        assert capfd.readouterr().out == lines
    # It's the first line alone.
    assert stats(compiled).breaks == 1


def test_another_print_is_the_programs(capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    def says(x: Tensor) -> Tensor:
        print("sum", x.sum().item())
        return x + 1

    seen: list[Any] = []
    compiled = stator.compile(says)
    for call in range(6):
        if call == 3:
            monkeypatch.setitem(says.__globals__, "print", lambda *args: seen.append(args))
        compiled(torch.full((2,), float(call)))
    assert capfd.readouterr().out == "sum 0.0\nsum 2.0\nsum 4.0\n"
    assert seen == [("sum", 6.0), ("sum", 8.0), ("sum", 10.0)]


class InPython:
    """A stream as notebooks have it."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def write(self, text: str) -> int:
        self.told.append(text)
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_an_error_names_the_stream(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = stator.compile(formatted, fullgraph=True)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    compiled(torch.ones(2), [])
    monkeypatch.setattr(sys, name, InPython())
    stator.reset()
    with pytest.raises(stator.GraphBreakError) as raised:
        compiled(torch.ones(2), [])
    assert f"print, while sys.{name} is written in Python: a InPython" in str(raised.value)


def test_a_stream_in_python_is_told_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = stator.compile(formatted)
    for value in (1.0, 2.0, 3.0, 4.0):
        x = torch.full((3,), value)
        told = []
        for function in (formatted, compiled):
            stream = InPython()
            monkeypatch.setattr(sys, "stdout", stream)
            function(x, [])
            told.append("".join(stream.told))
        assert told[0] == told[1]


class Loud(io.StringIO):
    def write(self, text: str) -> int:
        return super().write(text.upper())


def test_streams_that_are_written_to(tmp_path: Path) -> None:
    """`sys.stdout.write`, as progress bars call it: on a stream in C it's a step."""

    def fn(x: Tensor, i: int) -> Any:
        written = sys.stdout.write(f"\r{i}: {x.sum().item():.2f}")
        sys.stdout.flush()
        kept = sys.stdout.write("done\n")
        return x * written, written, kept

    def run(call: Callable[..., Any], path: Path) -> list[Any]:
        found = []
        with path.open("w", encoding="utf-8") as file:
            for i in [0, 1, 2, 20, 300, 4, 5, 6]:
                stream: Any = Loud() if i == 4 else io.StringIO() if i == 5 else file
                with contextlib.redirect_stdout(stream):
                    found.append(repr(call(torch.full((2,), i / 3), i)))
                found.append(stream.getvalue() if i in (4, 5) else path.read_text())
            file.close()
            with contextlib.redirect_stdout(file), pytest.raises(ValueError, match="closed"):
                call(torch.ones(2), 1)
        return found

    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False):
        assert run(compiled, tmp_path / "compiled") == run(fn, tmp_path / "plain")
    assert stats(compiled).hits >= 3, stats(compiled).reason
