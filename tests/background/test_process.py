"""What is compiled beside the program when the process ends or is forked."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

START = """
import os, sys, threading, time
import torch
import stator

begun, go = threading.Event(), threading.Event()

def slow(graph, inputs):
    begun.set()
    WAIT
    return graph

@stator.compile(backend=slow, when="background")
def scaled(x):
    return (x * 2 + 1).relu().sum()

x = torch.arange(6.0)
expected = (x * 2 + 1).relu().sum()
scaled(x)
assert begun.wait(60)
"""


HAS_CHILDREN = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="the system tells no children"
)


def runs(process: int) -> bool:
    """Whether it does; one that nobody has asked for its result doesn't."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def run(wait: str, rest: str) -> str:
    program = START.replace("WAIT", wait) + textwrap.dedent(rest)
    done = subprocess.run(
        # CPython 3.12 and later warn of each fork of a process with threads.
        [sys.executable, "-W", "ignore::DeprecationWarning:__main__", "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "STATOR_LOGS": ""},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    "wait",
    [
        "go.wait()",  # C code that gives nothing back
        "while True: pass",
        "time.sleep(1000)",
        "while True:\n        try: time.sleep(0.01)\n        except Exception: pass",
    ],
)
def test_the_process_ends(wait: str) -> None:
    assert run(wait, "print('end')") == "end\n"


def test_the_process_ends_with_an_error() -> None:
    program = START.replace("WAIT", "go.wait()") + "raise SystemExit(7)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=100)
    assert done.returncode == 7


@HAS_CHILDREN
def test_no_compiler_is_left() -> None:
    wait = "import subprocess; subprocess.run(['sleep', '987654'])"
    rest = """
        from stator import _background
        while not _background._children("self", _background._queue.thread.native_id):
            time.sleep(0.01)
        print(_background._children("self", _background._queue.thread.native_id)[0])
    """
    child = int(run(wait, rest))
    for _ in range(600):
        if not runs(child):
            return
        time.sleep(0.1)
    raise AssertionError("it goes on")


def test_a_first_call_while_the_process_ends() -> None:
    program = """
        import atexit
        import torch, stator

        scaled = stator.compile(lambda x: x * 3, backend=lambda graph, inputs: graph, when="background")
        atexit.register(lambda: print([scaled(torch.ones(1)).item() for _ in range(3)]))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("[3.0, 3.0, 3.0]\n", "")


@HAS_CHILDREN
def test_an_interrupt_at_the_terminal_is_for_the_program() -> None:
    program = """
        import os, signal, time
        import torch, stator
        from stator import _background

        # A shell's background jobs ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        scaled = stator.compile(lambda x: x * 3, backend="inductor")
        scaled(torch.ones(3))
        thread = _background._queue.thread.native_id

        def compilers():
            # Others ask what the compiler is, or are yet to be what they will be: copies of this program.
            found = []
            for child in _background._children("self", thread):
                try:
                    with open(f"/proc/{child}/cmdline") as line:
                        found += [child] * ("_fx." + "compiler" in line.read())
                except OSError:
                    pass
            return found

        while not (children := compilers()):
            time.sleep(0.01)
        try:
            # What a terminal does: all processes of the group get it.
            os.killpg(0, signal.SIGINT)
            time.sleep(10)
        except KeyboardInterrupt:
            pass
        time.sleep(1)
        print(children == compilers())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "STATOR_CACHE": "off"},
        start_new_session=True,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_what_compiles_ends_with_a_program_that_is_killed() -> None:
    compiler = """
        import os, subprocess, sys, threading
        from stator._fx import compiler
        threading.Thread(target=compiler._end_with, args=(os.getppid(),)).start()
        child = subprocess.Popen(["sleep", "987654"])
        print(os.getpid(), child.pid, flush=True)
        child.wait()
    """
    program = f"""
        import subprocess, sys
        subprocess.run([sys.executable, "-c", {textwrap.dedent(compiler)!r}], process_group=0)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    both = list(map(int, started.stdout.readline().split()))
    assert all(map(runs, both))
    started.kill()
    started.wait()
    for _ in range(300):
        if not any(map(runs, both)):
            return
        time.sleep(0.1)
    raise AssertionError("they go on")


@pytest.mark.parametrize("where", ["outside", "within a call"])
def test_a_fork(where: str) -> None:
    rest = """
        def child():
            # What the other process compiles is nothing here; it's begun anew.
            for _ in range(3):
                assert torch.equal(scaled(x), expected)
            go.set()
            assert stator.wait(timeout=60)
            assert torch.equal(scaled(x), expected)
            assert stator.stats(scaled).tiers == ["compiled"], stator.stats(scaled).tiers
            print("child", flush=True)
            os._exit(0)

        @stator.compile
        def forks(x):
            return os.fork()

        pid = forks(x) if WITHIN else os.fork()
        if pid == 0:
            child()
        _, status = os.waitpid(pid, 0)
        assert status == 0, status
        assert stator.stats(scaled).tiers == ["compiling"]
        go.set()
        assert stator.wait(timeout=60)
        assert torch.equal(scaled(x), expected)
        assert stator.stats(scaled).tiers == ["compiled"]
        print("parent")
    """.replace("WITHIN", str(where == "within a call"))
    assert run("go.wait()", rest) == "child\nparent\n"


def test_the_folder_of_caches_is_known_without_a_compiler() -> None:
    """Who imports one beside the program, while that does too, leaves both with half a module."""
    program = """
        import sys
        from stator._fx.process import cache_folder
        folder = cache_folder()
        assert not [name for name in sys.modules if name.startswith("torch._inductor")]
        from torch._inductor.runtime.cache_dir_utils import default_cache_dir
        assert folder == default_cache_dir(), (folder, default_cache_dir())
    """
    environment = {k: v for k, v in os.environ.items() if k != "TORCHINDUCTOR_CACHE_DIR"}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    subprocess.run(command, env=environment, timeout=120, check=True)


def test_garbage_is_collected_before_calls_wait_for_it() -> None:
    program = """
    import gc
    import stator

    gc.set_threshold(0)  # nothing is collected by itself
    collected = []
    gc.callbacks.append(lambda phase, info: collected.append((phase, info["generation"])))
    full = lambda: collected.count(("start", 2))
    slow = lambda graph, inputs: graph
    stator.compile(lambda x: x, backend=slow)
    print(full())
    stator.register_backend(slow, name="slow", slow=True)
    for turn in range(2):
        before = full()
        stator.compile(lambda x: x, backend="slow")
        print(full() - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout.split() == ["0", "1", "0"], done.stderr
