"""Random tensor programs: views, writes in place, data read, gradients, random numbers, modules, optimizers, and
Python's own objects beside them.

A program is a function of two float tensors, one of integers and a number, and of a world `s` that it reads and
writes. It is grown one statement at a time in a live run of it, so most statements work at the first call; later
calls bring other sizes, types, layouts and aliases, and may fail where plain Python fails.
"""

from __future__ import annotations

import contextlib
import io
import random
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from differential.support import api
from differential.support.describe import describe_all, first_difference

import stator

from .rows import AROUND, BLOCKS, CALLS, NUMBERS, OUTSIDE, PREAMBLE, TESTS, VALUES, WRITES

Space = dict[str, Any]
Call = tuple[str, str, str]
"""A write from outside, or nothing; arguments; the context manager around the call, or nothing."""


def _rows(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


_VALUES, _NUMBERS, _WRITES, _TESTS = map(_rows, (VALUES, NUMBERS, WRITES, TESTS))


@dataclass(frozen=True)
class TensorProgram:
    """Statements of the function, what it returns, and its calls."""

    body: tuple[str, ...]
    result: str
    calls: tuple[Call, ...]

    def function(self) -> str:
        """The source of the function under test."""
        body = textwrap.indent("\n".join(self.body), "    ")
        return f"def fn(x, y, i, n, s):\n{body}\n    return {self.result}\n"

    def space(self) -> Space:
        """A new world."""
        space: Space = {"__name__": "fuzz_world"}
        exec(_PREAMBLE, space)
        exec(compile(self.function(), "fn.py", "exec", dont_inherit=True), space)
        space["s"] = space["world"]()
        return space

    def script(self, options: Space) -> str:
        """A script that shows the failure, to be run with `tests` on the path."""
        body = "".join(f"        {line!r},\n" for line in self.body)
        calls = "".join(f"        {call!r},\n" for call in self.calls)
        return (
            "from fuzz.tensors import TensorProgram, check\n\n"
            f"program = TensorProgram(\n    (\n{body}    ),\n    {self.result!r},\n    (\n{calls}    ),\n)\n"
            "print(program.function())\nprint(check(program, {options!r}))\n"
        )


_PREAMBLE = compile(PREAMBLE, "world.py", "exec", dont_inherit=True)


class Generator:
    """Makes one program from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.scope: Space = {}
        self.made = 0

    def program(self) -> TensorProgram:
        """Statements that work in a live run, mostly, and calls."""
        self._start()
        body: list[str] = []
        for _ in range(self.rng.randint(2, 9)):
            statement = self._working()
            if statement is not None:
                body.append(statement)
        names = self._named(lambda value: isinstance(value, torch.Tensor))
        chosen = self.rng.sample(names, min(len(names), self.rng.randint(1, 4)))
        result = "[" + ", ".join([*chosen, *self.rng.sample(["n", "s.count", "x"], 1)]) + "]"
        return TensorProgram(tuple(body), result, tuple(self._calls()))

    def _start(self) -> None:
        scope: Space = {"__name__": "fuzz_world"}
        exec(_PREAMBLE, scope)
        scope["s"] = scope["world"]()
        torch.manual_seed(1)
        scope.update(x=torch.randn(3, 4), y=torch.randn(3, 4), i=torch.arange(3), n=2)
        self.scope = scope

    def _calls(self) -> list[Call]:
        calls = []
        usual = self.rng.choice(CALLS[:3])
        for index in range(self.rng.randint(5, 10)):
            plain = index < 3 or self.rng.random() < 0.4
            text = usual if plain else self.rng.choice(CALLS)
            rows = 3 if index < 3 else self.rng.choice((3, 3, 5, 2, 1, 0, 7))
            outside = "" if plain or self.rng.random() < 0.6 else self.rng.choice(OUTSIDE)
            number = 2 if index < 3 else self.rng.choice((2, 2, 3, 0, 1, -1, True, 2.5))
            around = "" if index < 3 or self.rng.random() < 0.75 else self.rng.choice(AROUND)
            calls.append((outside, text.format(r=rows, n=number), around))
        return calls

    def _named(self, fits: Callable[[Any], bool]) -> list[str]:
        return [
            name
            for name, value in self.scope.items()
            if (name in ("x", "y", "i") or (name[0] == "v" and name[1:].isdigit())) and fits(value)
        ]

    def _tensors(self, fits: Callable[[torch.Tensor], bool]) -> list[str]:
        return self._named(
            lambda value: isinstance(value, torch.Tensor) and value.numel() < 500 and fits(value)
        )

    def _filled(self, template: str) -> str:
        anything = self._tensors(lambda value: True) or ["y"]
        floats = self._tensors(lambda value: value.dtype.is_floating_point) or ["y"]
        whole = self._tensors(
            lambda value: value.dtype in (torch.int64, torch.int32) and value.numel() > 0
        ) or ["i"]
        number = ""
        if "{n}" in template:
            number = self.rng.choice(
                ["2", "n", "n", "0.5", self._filled(self.rng.choice(_NUMBERS))]
            )
        test = self._filled(self.rng.choice(_TESTS)) if "{c}" in template else ""
        recent = self.rng.random() < 0.5
        t, f = self.rng.choice(anything), self.rng.choice(floats)
        return template.format(
            t=anything[-1] if recent else t,
            u=self.rng.choice(anything),
            f=floats[-1] if recent else f,
            g=self.rng.choice(floats),
            i=self.rng.choice(whole),
            n=number,
            c=test,
        )

    def _simple(self) -> str:
        roll = self.rng.random()
        if roll < 0.55:
            value = self._filled(self.rng.choice(_VALUES))
            if self.rng.random() < 0.2:
                return f"{self.rng.choice(('x', 'y'))} = {value}"
            self.made += 1
            return f"v{self.made} = {value}"
        if roll < 0.62:
            return f"n = {self._filled(self.rng.choice(_NUMBERS))}"
        return self._filled(self.rng.choice(_WRITES))

    def _statement(self) -> str:
        if self.rng.random() < 0.78:
            return self._simple()
        lines = []
        for line in self._filled(self.rng.choice(BLOCKS)).splitlines():
            if line.endswith("%"):
                indent = line.replace("%", "    ")
                lines += [indent + self._inner() for _ in range(self.rng.randint(1, 2))]
            else:
                lines.append(line)
        return "\n".join(lines)

    def _inner(self) -> str:
        """A statement of a block. Names that a block makes are there only if it ran; it writes to those that are."""
        name, equals, value = (text := self._simple()).partition(" = ")
        if equals and name[0] == "v":
            return f"{self.rng.choice(('x', 'y'))} = {value}"
        return text

    def _working(self) -> str | None:
        """A statement that works in the live run, with few exceptions."""
        for _ in range(8):
            statement, before = self._statement(), dict(self.scope)
            try:
                exec(compile(statement, "attempt.py", "exec", dont_inherit=True), self.scope)
            except SyntaxError:  # It returns, if it's right: it is reached by some calls only.
                if is_body(statement):
                    return statement
                # Before CPython 3.12 an f-string can't have a text in it that is quoted as it is.
                continue
            except Exception:
                self.scope.clear()
                self.scope.update(before)
                if self.rng.random() > 0.03:
                    continue
            return statement
        return None


def is_body(statement: str) -> bool:
    """Whether it's a statement of a function."""
    try:
        compile(f"def fn():\n{textwrap.indent(statement, '    ')}", "attempt.py", "exec")
    except SyntaxError:
        return False
    return True


def generate(seed: int) -> TensorProgram:
    """The program of this seed."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Generator(seed).program()
        finally:
            torch.set_grad_enabled(True)


def check(
    program: TensorProgram, options: Space, skips: bool = False, seen: list[Any] | None = None
) -> str | None:
    """Runs the program in two worlds, plain and compiled; what differs first, or None.

    `skips` lets functions run natively that don't gain from a replay, as by default. `seen` gets the compiled
    function, and how many calls failed.
    """
    api.reset()
    torch.set_num_threads(1)
    with warnings.catch_warnings(), stator.config.patch(strict=True, skip_unprofitable=skips):
        warnings.simplefilter("ignore")
        plain, ours = program.space(), program.space()
        compiled = api.compile(ours["fn"], recompile_limit=100_000, **options)
        failed = 0
        for index, call in enumerate(program.calls):
            expected = _call(index, call, plain["fn"], plain)
            failed += expected[0].startswith("error")
            difference = first_difference(expected, _call(index, call, compiled, ours))
            if difference is not None:
                return f"call {index}, {call}:\n{difference}"
    if seen is not None:
        seen += [compiled, failed]
    return None


def _call(index: int, call: Call, fn: Callable[..., Any], space: Space) -> list[str]:
    write, arguments, around = call
    shown: Space = {}
    torch.manual_seed(100 + index)
    try:
        exec(write, space)
        given = eval(f"({arguments},)", space)
        context = eval(around or "contextlib.nullcontext()", space)
    except Exception as error:
        return [f"before: {type(error).__name__}"]
    torch.manual_seed(index)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed, context:
            shown["result"] = fn(*given, space["s"])
    except Exception as error:
        shown["error"] = error
    finally:
        shown.update(
            arguments=given,
            world=space["s"],
            printed=printed.getvalue(),
            drawn=torch.get_rng_state(),
            modes=[torch.is_grad_enabled(), torch.is_inference_mode_enabled()],
        )
        lines = describe_all(shown)
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
    if index % 2:
        lines += _gradients(shown.get("result", ()), given, space)
    return lines


def _gradients(result: Any, given: tuple[Any, ...], space: Space) -> list[str]:
    """What a step backwards from outside gives through the history that the call left."""
    shown: Space = {}
    try:
        losses = [value.float().sum() for value in result if getattr(value, "requires_grad", False)]
        if losses:
            torch.stack(losses).sum().backward()
    except Exception as error:
        shown["error"] = error
    shown.update(arguments=given, world=space["s"])
    return describe_all(shown)


def shrink(program: TensorProgram, fails: Callable[[TensorProgram], bool]) -> TensorProgram:
    """A smaller program that still fails, by leaving out statements and calls."""
    progress = True
    while progress:
        progress = False
        for part in ("calls", "body"):
            lines = getattr(program, part)
            for at in reversed(range(len(lines))):
                candidate = replace(program, **{part: lines[:at] + lines[at + 1 :]})
                if fails(candidate):
                    program, lines, progress = candidate, getattr(candidate, part), True
    return program
