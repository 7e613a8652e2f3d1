"""`python -m stator explain SB002`: what a graph break means, and what to do about it."""

from __future__ import annotations

import argparse
import sys

from stator._explain import UnknownBreakError, explained, listed

# argparse, not typer: one command of one argument is no reason for users to install a package.


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; its exit status is 2 for what it doesn't know."""
    parser = argparse.ArgumentParser(prog="python -m stator", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    explain = commands.add_parser(
        "explain", help="print rows of the table of graph breaks, or the list of them"
    )
    explain.add_argument("id", nargs="*", help="such as SB002; all are listed if none is given")
    asked = parser.parse_args(arguments).id
    try:
        print("\n\n".join(map(explained, asked)) if asked else listed())
    except UnknownBreakError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
