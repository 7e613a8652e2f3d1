"""The recording that the first `stator.compile` of a process makes for itself: it leaves no trace.

Each test is a process of its own, as there is one rehearsal in each: a child of one that has only
loaded PyTorch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

PRELUDE = """
import contextlib, gc, os, signal, sys, threading, time, warnings, weakref
import torch
import stator
from stator import _testing

def f(x):
    return torch.relu(x) + 1

def outcome():
    return _testing._native.rehearsal()
"""

# It reads what the process looks like to others.
SHARED = """
def looks():
    functional, nn = torch.nn.functional, torch.nn
    return {
        "random": torch.get_rng_state().tolist(),
        "device": torch.get_default_device(),
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "running": len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else 0,
        "started": torch.cuda.is_initialized(),
        "collects": (gc.isenabled(), gc.get_threshold(), len(gc.callbacks)),
        "watched": (sys.gettrace(), sys.getprofile(), threading.gettrace()),
        "warnings": list(warnings.filters),
        "modules": len(torch.nn.Module.__subclasses__()),
        "weak": [weakref.getweakrefcount(it) for it in (
            functional.embedding, functional.dropout, functional.silu, nn.Module.__call__,
            nn.Module._call_impl, nn.Module.__getattr__, nn.Embedding.forward, nn.SiLU.forward,
            nn.Embedding, nn.SiLU, nn.Dropout, torch, functional,
        )],
        "handlers": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)],
    }
"""


SERVER = """
import json, os, sys, tempfile, traceback

for line in sys.stdin:
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            code = 1
            try:
                exec(compile(json.loads(line), "test", "exec"), globals())
                code = 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(code)
        status = os.waitpid(child, 0)[1]
        said.seek(0)
        print(json.dumps([status, said.read()]), flush=True)
"""


@pytest.fixture(scope="module")
def fresh() -> Iterator[subprocess.Popen[str]]:
    """A process that has compiled nothing, and has a child of its own for each program."""
    command = [sys.executable, "-c", PRELUDE + SERVER]
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def run(fresh: subprocess.Popen[str]) -> Callable[[str], str]:
    """Runs a program behind the prelude, and says what it printed. What it asserts must hold."""

    def run(source: str) -> str:
        assert fresh.stdin is not None and fresh.stdout is not None
        print(json.dumps(source), file=fresh.stdin, flush=True)
        status, said = json.loads(fresh.stdout.readline())
        assert status == 0, said
        return said

    return run


def test_the_first_compile_records_all_of_it_once(run: Callable[[str], str]) -> None:
    run("""
assert outcome() == "none"
compiled = stator.compile(f)
assert outcome() == "recorded"
again = stator.compile(lambda x: x * 2)
assert outcome() == "recorded"
""")


def test_it_changes_nothing_that_others_see(run: Callable[[str], str]) -> None:
    said = run(
        SHARED
        + """
before = looks()
compiled = stator.compile(f)
after = looks()
assert outcome() == "recorded"
assert before == after, {name: (before[name], after[name]) for name in before if before[name] != after[name]}
x = torch.randn(4)
assert torch.equal(compiled(x), f(x)) and torch.equal(compiled(x), f(x))
stats = stator.stats(compiled)
assert stats.traces == 1 and stats.hits + stats.native == 1, stats
"""
    )
    assert said == ""


def test_it_leaves_no_garbage(run: Callable[[str], str]) -> None:
    run("""
gc.collect()
gc.disable()
stator.compile(f)  # Dead at once: what is left is of the rehearsal.
del f
assert outcome() == "recorded"
gc.set_debug(gc.DEBUG_SAVEALL)
gc.collect()
of_it = [it for it in gc.garbage if "_rehearsal" in str(getattr(type(it), "__module__", "")) or isinstance(it, torch.Tensor)]
assert of_it == [], of_it
assert not any(type(it).__module__ == "stator._rehearsal" or isinstance(it, torch.Tensor) for it in gc.get_objects())
""")


@pytest.mark.parametrize(
    "state",
    [
        "torch.set_default_dtype(torch.float64)",
        "torch.set_grad_enabled(False)",
        "torch.use_deterministic_algorithms(True)",
        "torch.autograd.set_detect_anomaly(True)",
        "warnings.simplefilter('error')",
        "stator.config.strict = True",
        "gc.disable()",
        "torch.manual_seed(3)",
        "torch.compiler.set_stance('force_eager')",
    ],
)
def test_it_obeys_no_setting_and_changes_none(run: Callable[[str], str], state: str) -> None:
    run(
        SHARED
        + f"""
{state}
before = looks()
stator.compile(f)
assert before == looks()
assert outcome() == "recorded", outcome()
"""
    )


@pytest.mark.parametrize(
    "watch",
    [
        "torch.nn.modules.module.register_module_forward_hook(heard)",
        "torch.nn.modules.module.register_module_forward_pre_hook(heard)",
        "torch.nn.modules.module.register_module_parameter_registration_hook(heard)",
        "torch.nn.modules.module.register_module_module_registration_hook(heard)",
        "torch.nn.modules.module.register_module_buffer_registration_hook(heard)",
        "sys.settrace(heard)",
        "sys.setprofile(heard)",
        "torch.set_default_device('cpu')",
        "stack.enter_context(FunctionMode())",
        "stack.enter_context(DispatchMode())",
        "stack.enter_context(torch.inference_mode())",
        "stack.enter_context(torch.autocast('cpu'))",
        "stack.enter_context(torch.profiler.profile())",
        "torch.nn.SiLU.forward = heard",
        "torch.nn.functional.dropout = heard",
        "stator.set_logs(trace=True)",
        "stator._stator._break_everywhere(0)",
    ],
)
def test_it_is_left_out_where_somebody_would_hear_of_it(
    run: Callable[[str], str], watch: str
) -> None:
    run(
        """
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

calls = []

def heard(*args, **kwargs):
    calls.append(args)

class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        calls.append(function)
        return function(*args, **(kwargs or {}))

class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        calls.append(function)
        return function(*args, **(kwargs or {}))

stack = contextlib.ExitStack()
with stack:
"""
        + f"    {watch}\n"
        + """
    calls.clear()
    stator.compile(f)
    sys.settrace(None)
    sys.setprofile(None)
    heard_of = [it for it in calls if "_rehearsal" in str(it)]
assert heard_of == [], heard_of
assert outcome() == "left out", outcome()
"""
    )


def test_no_error_of_its_own_leaves(run: Callable[[str], str]) -> None:
    said = run("""
from stator import _rehearsal

def fails():
    raise RuntimeError("the program")

stator.config.strict = True
_rehearsal.program = fails
compiled = stator.compile(f)
assert outcome() == "failed"
assert torch.equal(compiled(torch.ones(2)), f(torch.ones(2)))
""")
    assert said == ""


@pytest.mark.parametrize("body", ["raise ValueError(x)", "print(end='')", "return x.tolist()"])
def test_a_program_that_breaks_or_raises_is_let_go_of(run: Callable[[str], str], body: str) -> None:
    said = run(f"""
from stator import _rehearsal

def program(x):
    x = x + 1
    {body}

stator.config.strict = True
_rehearsal.program = lambda: (program, (torch.ones(2),), {{}})
compiled = stator.compile(f, fullgraph=True)
assert outcome() in ("broken", "recorded"), outcome()
assert torch.equal(compiled(torch.ones(2)), f(torch.ones(2)))
""")
    assert said == ""


def test_who_ends_the_program_ends_it(run: Callable[[str], str]) -> None:
    run("""
from stator import _rehearsal

def ends():
    raise SystemExit(7)

_rehearsal.program = ends
try:
    stator.compile(f)
except SystemExit as ended:
    assert ended.code == 7
else:
    raise AssertionError
assert stator.compile(f)(torch.ones(2)).tolist() == [2, 2]
""")


def test_a_signal_waits_for_its_end(run: Callable[[str], str]) -> None:
    run("""
from stator import _rehearsal

heard = []
signal.signal(signal.SIGALRM, lambda *_: heard.append(outcome()))
program = _rehearsal.program

def slow():
    signal.raise_signal(signal.SIGALRM)
    assert heard == []
    return program()

_rehearsal.program = slow
stator.compile(f)
assert heard == ["recorded"], (heard, outcome())
""")


def test_it_loads_no_module_but_its_own(run: Callable[[str], str]) -> None:
    compiles = "stator.compile(f); print(outcome(), *sorted(sys.modules))"
    without = run(f"sys.modules['stator._rehearsal'] = None; {compiles}").split()
    loaded = run(compiles).split()
    assert (without[0], loaded[0]) == ("failed", "recorded")
    assert loaded[1:] == without[1:]


def test_without_torch_there_is_none() -> None:
    source = """
import sys
sys.modules["torch"] = None
import stator
from stator import _testing

compiled = stator.compile(lambda x: x + 1)
assert compiled(1) == compiled(1) == 2
assert _testing._native.rehearsal() == "none"
assert "stator._rehearsal" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", source], cwd=ROOT, check=True, timeout=300)


def test_threads_compile_at_once(run: Callable[[str], str]) -> None:
    run("""
barrier, results = threading.Barrier(8), []

def work(number):
    barrier.wait()
    compiled = stator.compile(lambda x: x * number)
    stator.reset()
    results.append(compiled(torch.ones(2)).tolist() == [number, number])

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert results == [True] * 8
assert outcome() == "recorded"
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_children_of_a_process_go_on(run: Callable[[str], str]) -> None:
    run("""
compiled = stator.compile(f)
child = os.fork()
if child == 0:
    x = torch.randn(3)
    fits = torch.equal(compiled(x), f(x)) and torch.equal(stator.compile(f)(x), f(x))
    os._exit(0 if fits and outcome() == "recorded" else 1)
assert os.waitpid(child, 0)[1] == 0
""")


def test_a_call_within_a_recorded_one_leaves_it_out(run: Callable[[str], str]) -> None:
    run("""
def outer(x):
    return stator.compile(f)(x) * 2

compiled = stator.compile(outer)
assert outcome() == "recorded"
stator.reset()
x = torch.ones(2)
assert compiled(x).tolist() == compiled(x).tolist() == outer(x).tolist()
""")


def test_it_is_cheap(run: Callable[[str], str]) -> None:
    run("""
from stator import _rehearsal

begun = time.perf_counter()
function, args, kwargs = _rehearsal.program()
took = []
for _ in range(5):
    start = time.perf_counter()
    _rehearsal.program()
    function(*args, **kwargs)
    took.append(time.perf_counter() - start)
# Ten times as long is what a recording may take, in code that isn't optimised.
assert min(took) < 0.002, took
""")
