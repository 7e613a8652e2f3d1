"""Run CPython's own tests with and without Stator's frame evaluator, and compare.

    python tools/test_cpython.py [--fast] [--no-count] [test ...]

Each test runs in a subprocess of its own, twice. The exit status is 1 if a test behaves differently
under the evaluator and ``docs/evaluator.md`` doesn't list it, with a reason, in its table of
differences.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

TESTS = """
test_grammar test_generators test_generator_stop test_coroutines test_asyncgen test_exceptions
test_raise test_with test_contextlib test_scope test_class test_descr test_super test_property
test_decorators test_dataclasses test_enum test_functools test_itertools test_iter test_listcomps
test_dictcomps test_setcomps test_genexps test_unpack test_unpack_ex test_extcall
test_keywordonlyarg test_positional_only_arg test_call test_compare test_augassign test_fstring
test_string test_dict test_list test_set test_tuple test_slice test_range test_int test_float
test_complex test_bool test_opcodes test_patma test_sys_settrace test_traceback test_inspect
test_typing test_collections test_copy test_pickle test_json test_re test_argparse test_logging
test_unittest test_threading test_gc test_weakref test_exception_group test_except_star test_frame
test_code test_dis test_compile test_peepholer test_yield_from test_named_expressions
""".split()  # noqa: SIM905

# A third of them: those that look hardest at frames, exceptions and generators.
FAST = """
test_grammar test_generators test_coroutines test_asyncgen test_exceptions test_raise test_with
test_contextlib test_scope test_super test_iter test_listcomps test_unpack test_unpack_ex
test_extcall test_keywordonlyarg test_call test_opcodes test_patma test_sys_settrace
test_traceback test_except_star test_frame test_yield_from
""".split()  # noqa: SIM905

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "evaluator.md"
TIMEOUT = 1200

# A shell ignores interrupts for what runs in its background, and test_threading would wait for one.
INTERRUPTIBLE = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
EVALUATED = (
    INTERRUPTIBLE
    + """
import stator._testing as testing
testing._native.hand_over_every({every})
testing.start_evaluating_everything(count={count})
sys.argv = ["test", *sys.argv[1:]]
from test.libregrtest.main import main
try:
    main()
finally:
    testing.stop_evaluating_everything()
    print("evaluated %d frames, %d instructions" % testing._native.counts())
"""
)
PLAIN = (
    INTERRUPTIBLE
    + """
import stator._testing
sys.argv = ["test", *sys.argv[1:]]
from test.libregrtest.main import main
main()
"""
)


@dataclass(frozen=True)
class Outcome:
    """How one run of one test ended."""

    status: str
    count: int
    failures: frozenset[str]
    seconds: float
    evaluated: int
    output: str

    def summary(self) -> str:
        """A few words for the table."""
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"{self.status}, {self.count} run{failed} ({self.seconds:.0f} s)"


def run(test: str, script: str) -> Outcome:
    """Run one test in a fresh interpreter."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stator-test-") as directory:
        command = [sys.executable, "-X", "faulthandler", "-c", script, "-v", test]
        try:
            process = subprocess.run(
                command,
                cwd=directory,
                env={**os.environ, "TMPDIR": directory, "PYTHONHASHSEED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT,
            )
        except subprocess.TimeoutExpired as error:
            output = (error.stdout or b"").decode(errors="replace")
            return Outcome("timeout", 0, frozenset(), time.monotonic() - started, 0, output)
    seconds = time.monotonic() - started
    output = process.stdout.decode(errors="replace")
    failures = re.findall(r"^(?:FAIL|ERROR): (\S+ \(.*?\)|\S+)", output, re.MULTILINE)
    if process.returncode < 0:
        status = f"signal {-process.returncode}"
    elif process.returncode == 0:
        status = "ok"
    else:
        status = "failed"
    count = sum(map(int, re.findall(r"^Ran (\d+) tests?", output, re.MULTILINE)))
    if count == 0 and status in ("ok", "failed") and "doctest" not in output:
        status = "nothing"
    match = re.search(r"^evaluated \d+ frames, (\d+) instructions", output, re.MULTILINE)
    instructions = int(match[1]) if match else 0
    return Outcome(status, count, frozenset(failures), seconds, instructions, output)


def documented() -> dict[str, set[str]]:
    """Differences that the document explains: rows `| test | failing methods | reason |`."""
    known: dict[str, set[str]] = {}
    if not DOCUMENT.exists():
        return known
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 3 and re.fullmatch(r"`test_\w+`", cells[0]):
            methods = known.setdefault(cells[0].strip("`"), set())
            methods.update(re.findall(r"`(\w+)`", cells[1]))
    return known


def verdict(test: str, plain: Outcome, evaluated: Outcome, known: dict[str, set[str]]) -> str:
    """`same`, `known difference` or `DIFFERENT`."""
    if plain.status == "nothing" or evaluated.status == "nothing":
        return "DIFFERENT"
    if (plain.status, plain.count, plain.failures) == (
        evaluated.status,
        evaluated.count,
        evaluated.failures,
    ):
        return "same"
    if evaluated.status == "failed":
        new = {failure.split()[0] for failure in evaluated.failures - plain.failures}
        if new and new <= known.get(test, set()):
            return "known difference"
    return "DIFFERENT"


def exists(test: str) -> bool:
    """Whether this CPython has the test."""
    package = importlib.util.find_spec("test")  # Distributions may keep it elsewhere.
    folders = [Path(folder) for folder in (package and package.submodule_search_locations) or ()]
    return any((folder / f"{test}.py").exists() or (folder / test).is_dir() for folder in folders)


def main() -> int:
    """Run the tests that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", nargs="*", help="names; all of the list by default")
    parser.add_argument("--fast", action="store_true", help="run a third of the list")
    parser.add_argument("--no-count", action="store_true", help="evaluate without a step site")
    parser.add_argument(
        "--hand-over-every",
        type=int,
        default=0,
        metavar="N",
        help="give the running frame to CPython at every Nth instruction",
    )
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time")
    parser.add_argument("--verbose", action="store_true", help="print the output of differences")
    options = parser.parse_args()

    tests = options.tests or (FAST if options.fast else TESTS)
    known = documented()
    script = EVALUATED.format(count=not options.no_count, every=options.hand_over_every)
    different = []
    instructions = 0
    print(f"{'test':28} {'plain':34} {'evaluated':34} verdict", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        present = [test for test in tests if exists(test)]
        runs = [(test, pool.submit(run, test, PLAIN), pool.submit(run, test, script))
                for test in present]  # fmt: skip
        for test, first, second in runs:
            plain, evaluated = first.result(), second.result()
            instructions += evaluated.evaluated
            word = verdict(test, plain, evaluated, known)
            print(f"{test:28} {plain.summary():34} {evaluated.summary():34} {word}", flush=True)
            if word == "DIFFERENT":
                different.append(test)
            if word != "same":
                for failure in sorted(evaluated.failures ^ plain.failures):
                    print(f"    {failure}")
                if options.verbose:
                    print(evaluated.output)
    for test in tests:
        if test not in present:
            print(f"{test:28} not in this CPython")
    print(f"{len(present)} tests, {instructions:,} instructions evaluated")
    if different:
        print("different:", *different)
    if not present:
        print("Nothing was compared: this CPython comes without its own tests")
    return 1 if different or not present else 0


if __name__ == "__main__":
    sys.exit(main())
