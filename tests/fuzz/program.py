"""A generated program: setup, a function, writes; its two runs; and how it shrinks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from differential.support import api
from differential.support.describe import describe_all, first_difference

from .world import PREAMBLE

Space = dict[str, Any]
Make = Callable[[Space], Callable[..., Any]]

_PREAMBLE_CODE = compile(PREAMBLE, "world.py", "exec", dont_inherit=True)
_NO_LIMIT = 100_000


@dataclass(frozen=True)
class Program:
    """Statements, as text."""

    setup: tuple[str, ...]
    body: tuple[str, ...]
    arguments: tuple[str, ...]
    writes: tuple[str, ...]

    def function(self) -> str:
        """The source of the function under test."""
        lines = "".join(f"    {line}\n" for line in "\n".join(self.body).splitlines())
        return f"def fn(x, a=None, b=None):\n{lines}    return x\n"

    def space(self) -> Space:
        """A new world in which `fn` is defined."""
        space: Space = {"__name__": "fuzz_world"}
        exec(_PREAMBLE_CODE, space)
        for statement in self.setup:
            exec(statement, space)
        exec(self.function(), space)
        return space

    def script(self) -> str:
        """A script that shows the failure, to be run with `tests` on the path."""
        return (
            "from fuzz.program import Program, check\n\n"
            f"program = Program(\n    setup={_listed(self.setup)},\n    body={_listed(self.body)},\n"
            f"    arguments={_listed(self.arguments)},\n    writes={_listed(self.writes)},\n)\n"
            "print(program.function())\nprint(check(program))\n"
        )


def _listed(lines: tuple[str, ...]) -> str:
    inner = "".join(f"        {line!r},\n" for line in lines)
    return f"(\n{inner}    )" if lines else "()"


def compiled_function(space: Space) -> Callable[..., Any]:
    """The function of this world, compiled, with no limit on recordings."""
    if api.PLAIN:
        return space["fn"]  # type: ignore[no-any-return]
    return api.compile(space["fn"], recompile_limit=_NO_LIMIT)  # type: ignore[no-any-return]


def compiled_with_symbols(space: Space) -> Callable[..., Any]:
    """As `compiled_function`; ints and sizes from outside are symbols from the first call on."""
    if api.PLAIN:
        return space["fn"]  # type: ignore[no-any-return]
    return api.compile(space["fn"], recompile_limit=_NO_LIMIT, dynamic=True)  # type: ignore[no-any-return]


def check(program: Program, make: Make = compiled_function) -> str | None:
    """Runs the program in two worlds, plain and compiled; what differs first, or None."""
    api.reset()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _check(program, make)
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)


def _check(program: Program, make: Make) -> str | None:
    plain, ours = program.space(), program.space()
    compiled = make(ours)
    for step in range(len(program.writes) + 1):
        if step:
            write = program.writes[step - 1]
            results = [_attempt(write, space) for space in (plain, ours)]
            if results[0] != results[1]:
                return f"write {step} ({write}) ended differently: {results}"
            if results[0] != "done":
                continue
        for repeat in range(3 if step == 0 else 2):
            x = torch.arange(1.0, 4.0) + step + repeat
            expected = _call(program, plain["fn"], plain, x)
            found = _call(program, compiled, ours, x)
            difference = first_difference(expected, found)
            if difference is not None:
                after = program.writes[step - 1] if step else "the setup"
                return f"call {repeat + 1} after {after}:\n{difference}"
    return None


def _attempt(statement: str, space: Space) -> str:
    try:
        exec(statement, space)
    except Exception as error:
        return type(error).__name__
    return "done"


def _call(program: Program, fn: Callable[..., Any], space: Space, x: torch.Tensor) -> list[str]:
    torch.manual_seed(0)
    shown: dict[str, Any] = {}
    try:
        arguments = [eval(text, space) for text in program.arguments]
    except Exception as error:
        return [f"arguments: {type(error).__name__}"]
    try:
        shown["result"] = fn(x.clone(), *arguments)
    except RecursionError:
        # What meets the limit, and so what it says, is a matter of how many frames are C's.
        shown["error"] = RecursionError
    except Exception as error:
        shown["error"] = error
    for name, value in space.items():
        if name[0] == "g" and name[1:].isdigit():
            shown[name] = value
    return describe_all(shown)


def shrink(program: Program, fails: Callable[[Program], bool], attempts: int = 300) -> Program:
    """A smaller program that still fails, by leaving out statements."""
    progress = True
    while progress and attempts > 0:
        progress = False
        for part in ("writes", "body", "setup", "arguments"):
            lines: tuple[str, ...] = getattr(program, part)
            size = max(1, len(lines) // 2)
            while size and attempts > 0:
                for start in range(0, len(lines), size):
                    candidate = replace(program, **{part: lines[:start] + lines[start + size :]})
                    attempts -= 1
                    if fails(candidate):
                        program, lines, progress = candidate, getattr(candidate, part), True
                        break
                else:
                    size //= 2
    return program
