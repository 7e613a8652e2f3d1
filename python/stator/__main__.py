"""`python -m stator explain SB002`: what a graph break means, and what to do about it.
`python -m stator run program.py`: a program whose calls of `torch.compile` Stator serves."""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from stator._explain import UnknownBreakError, explained, listed
from stator._install import install

# argparse, not typer: two commands of few arguments are no reason for users to install a package.


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; its exit status is 2 for what it doesn't know."""
    parser = argparse.ArgumentParser(prog="python -m stator", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    explain = commands.add_parser(
        "explain", help="print rows of the table of graph breaks, or the list of them"
    )
    explain.add_argument("id", nargs="*", help="such as SB002; all are listed if none is given")
    explain.set_defaults(command=_explain)
    run = commands.add_parser(
        "run", help="run a program, or a module with -m, whose torch.compile Stator serves"
    )
    run.add_argument("-m", action="store_true", dest="is_module", help="run a module")
    run.add_argument("program")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="what the program is given")
    run.set_defaults(command=_run)
    given = parser.parse_args(arguments)
    return int(given.command(given))


def _explain(given: argparse.Namespace) -> int:
    try:
        print("\n\n".join(map(explained, given.id)) if given.id else listed())
    except UnknownBreakError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _run(given: argparse.Namespace) -> int:
    """As `python program.py arguments` or `python -m program arguments`."""
    if not given.is_module and not os.path.exists(given.program):
        print(f"There is no file {given.program!r}.", file=sys.stderr)
        return 2
    install()
    sys.argv = [given.program, *given.arguments]
    if given.is_module:
        runpy.run_module(given.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(given.program))
        runpy.run_path(given.program, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
