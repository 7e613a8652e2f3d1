"""Inductor beside the program: real compilations, of small functions."""

from __future__ import annotations

import gc
import json
import logging
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor

import stator
from background.slow import LONG, no_compiler, stand_in
from stator import _background, stats
from stator._fx import ahead, beside, process, sent
from stator._fx.graphs import Code
from stator._fx.libraries import HopelessError, Made
from stator._fx.tied import Pair
from stator.errors import BackendError

X = torch.linspace(-1, 1, 24).view(6, 4)
WEIGHT = torch.linspace(-2, 2, 16).view(4, 4)
PATIENT = 600
"""Seconds that a real compilation may take on a busy machine."""
QUICK = {"aot_inductor.compile_wrapper_opt_level": "O0"}
"""The least that the C++ compiler can do."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    yield


def test_a_process_compiles_and_a_library_serves() -> None:
    layer = torch.nn.Linear(4, 4)
    call = type(layer).__call__

    @stator.compile(backend="inductor", options=QUICK)
    @torch.no_grad()
    def score(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.nn.functional.gelu(layer(x) @ WEIGHT)
        return y.t(), y.sum(0)

    state = torch.get_rng_state()
    expected = score(X)
    assert stats(score).tiers in (["waiting"], ["compiling"])
    while not stator.wait(timeout=0.2):
        # PyTorch's tracer, in this process, would stand in the way of modules.
        assert type(layer).__call__ is call
        score(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            found = score(X)
            torch.testing.assert_close(found, expected)
            assert [each.stride() for each in found] == [each.stride() for each in expected]
    assert stats(score).tiers == ["compiled"]
    assert torch.equal(torch.get_rng_state(), state)


def wants_executable_stacks(library: bytes) -> bool:
    """What a 64-bit library of Linux says of stacks, in its headers of segments."""
    (first,) = struct.unpack_from("<Q", library, 32)
    size, count = struct.unpack_from("<HH", library, 54)
    segments = [struct.unpack_from("<II", library, first + size * each) for each in range(count)]
    (flags,) = [flags for kind, flags in segments if kind == 0x6474E551]
    return bool(flags & 1)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems write it elsewhere")
def test_a_library_leaves_stacks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one doesn't, glibc 2.41 and later don't load it."""
    bundle, found = process._bundle, []

    def seen(made: Made | Pair, path: str) -> None:
        found.extend(wants_executable_stacks(Path(each).read_bytes()) for each in made.libraries)
        bundle(made, path)

    monkeypatch.setattr(process, "_bundle", seen)
    score = stator.compile(lambda x: (x * 2).sin() + 1, backend="inductor", options=QUICK)
    expected = score(X)
    assert stator.wait(timeout=PATIENT)
    assert found == [False]
    for _ in range(3):
        torch.testing.assert_close(score(X), expected)
    assert stats(score).tiers == ["compiled"], stats(score).why


def test_operators_that_a_library_calls_by_name() -> None:
    """Inductor's library has no function of PyTorch's for this one: PyTorch looks it up."""
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    encode = stator.compile(layer, backend="inductor", options=QUICK, tier="compiled")
    with torch.no_grad():
        expected = layer(X[None])
        for _ in range(3):
            torch.testing.assert_close(encode(X[None]), expected)
            assert stator.wait(timeout=PATIENT)
    assert stats(encode).tiers == ["compiled"], stats(encode).why


START = """
import sys
import torch
import stator

torch.manual_seed(0)
layer = torch.nn.Linear(4, 4)
x = torch.linspace(-1, 1, 24).view(6, 4)

@stator.compile(backend="inductor")
@torch.no_grad()
def score(x):
    return torch.nn.functional.gelu(layer(x) @ torch.ones(4, 4))

expected = score(x)
assert stator.wait(timeout=300)
torch.testing.assert_close(score(x), expected)
assert stator.stats(score).tiers == ["compiled"], stator.stats(score).tiers
"""


def test_the_next_start_finds_the_library(tmp_path: Path) -> None:
    def start(program: str, **environment: str) -> None:
        store = {"STATOR_CACHE": str(tmp_path / "store")}
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env={**os.environ, **store, **environment},
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""

    start(START)
    # The first one's files, a compiler and Inductor itself aren't there any more.
    shutil.rmtree(tmp_path / "inductor")
    found = f"{START}\nassert 'torch._inductor' not in sys.modules"
    start(found, PATH="/nowhere")
    library = next(path for path in (tmp_path / "store").iterdir() if path.name != "secret")
    # Without a store it would have to be compiled: there is no compiler.
    with pytest.raises(AssertionError, match="needs a C\\+\\+ compiler"):
        start(START, PATH="/nowhere", STATOR_CACHE="off")
    assert library.stat().st_size > 1000


class Never:
    """Stands for the process: nothing is compiled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        monkeypatch.setattr(process._Compiler, "takes", self.takes)
        program = "print('Traceback\\nKilled: no memory', file=__import__('sys').stderr); exit(1)"
        monkeypatch.setattr(process, "_PROGRAM", program)

    def takes(self, order: bytes) -> bool:
        self.asked += 1
        return False


def test_a_process_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    never = Never(monkeypatch)
    compiled = stator.compile(lambda x: x * 3, backend="inductor")
    compiled(X)
    assert stator.wait(timeout=LONG)
    with pytest.warns(stator.BackendFailedWarning, match="ended early: Killed: no memory"):
        assert torch.equal(compiled(X), X * 3)
    assert torch.equal(compiled(X), X * 3)
    assert stats(compiled).tiers == ["failed"] and never.asked == 1


def writes(x: Tensor) -> Tensor:
    return (BESIDE.add_(1) + x * 2) * FROM_THERE


MEMORY = torch.zeros(5)
BESIDE, FROM_THERE = MEMORY[:4], MEMORY[1:]


def conjugates(x: Tensor) -> Tensor:
    return (x * CONJUGATE).real.sum()


CONJUGATE = torch.ones(4, dtype=torch.complex64).conj()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (writes, "it writes to its inputs, and these share memory"),
        (conjugates, "not all of its inputs are plain tensors"),
    ],
)
def test_what_cant_go_to_a_process(
    function: Any, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    never, asked = Never(monkeypatch), stand_in(monkeypatch)
    # By default the second call waits, and it is said why.
    caplog.set_level(logging.INFO, "stator.background")
    compiled = stator.compile(function, backend="inductor")
    for count in (0, 1, 1):
        before = MEMORY.clone()
        found = compiled(X.abs())
        MEMORY.copy_(before)
        torch.testing.assert_close(found, function(X.abs()))
        assert len(asked) == count
        if count == 0:
            assert stats(compiled).tiers == ["replay"]
            assert f"its next call waits for code, because {why}" in str(stats(compiled).why[0])
            assert f"isn't compiled beside the program: {why}. So the next call" in caplog.text
    assert stats(compiled).tiers == ["compiled"]
    assert f"a call has waited for it, because {why}" in str(stats(compiled).why[0])
    # Who has asked for the background is told.
    told = stator.compile(function, backend="inductor", when="background")
    with pytest.warns(stator.BackendFailedWarning, match=f"beside the program: {why}"):
        for _ in range(3):
            before = MEMORY.clone()
            found = told(X.abs())
            MEMORY.copy_(before)
            torch.testing.assert_close(found, function(X.abs()))
    assert stats(told).tiers == ["failed"] and len(asked) == 1 and never.asked == 0


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (-3, "a number among its inputs is negative or a truth value"),
        (True, "a number among its inputs is negative or a truth value"),
        (2.0, None),
        (X.to("meta"), "not all of its inputs are plain tensors of the CPU"),
        (CONJUGATE, "not all of its inputs are plain tensors"),
        (X[:1].expand(6, 4), None),
        (X[:, 1:3], None),
        (X.to_sparse(), "not all of its inputs are plain tensors of the CPU"),
        (torch.nn.Buffer(X), None),
        (0, None),
        (1, None),
        (2, None),
    ],
)
def test_inputs_of_a_library(value: Any, why: str | None) -> None:
    assert beside.unsuitable("inductor", [], [X, value], False, {}) == why


def test_settings_that_hold_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process would do without it, and what is stored wouldn't tell it from other code."""
    never, asked = Never(monkeypatch), stand_in(monkeypatch)
    why = "Inductor's settings hold code of the program's own"
    for options, changed in (({"post_grad_custom_pre_pass": print}, None), ({}, print)):
        with inductor.patch(post_grad_custom_post_pass=changed):
            compiled = stator.compile(lambda x: x * 3, backend="inductor", options=options)
            for _ in range(3):
                assert torch.equal(compiled(X), X * 3)
        assert why in str(stats(compiled).why[0]) and len(asked) == 1 and not never.asked
        asked.clear()
    plain = {"max_autotune": True, "cpp.simdlen": 8, "cpu_backend": ["cpp", ("a", None)]}
    with inductor.patch(epilogue_fusion=False):
        assert beside.unsuitable("inductor", [], [X], False, {"config_patches": plain}) is None


class Expired(Exception):
    pass


def test_a_call_that_waits_gets_what_a_signal_handler_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(graph: Any) -> Any:
        if len(asked) == 1:
            signal.raise_signal(signal.SIGUSR1)
        return graph

    def expire(number: int, frame: Any) -> None:
        raise Expired

    asked = stand_in(monkeypatch, interrupted)
    before = signal.signal(signal.SIGUSR1, expire)
    try:
        compiled = stator.compile(conjugates, backend="inductor")
        compiled(X)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(Expired):
                compiled(X)
            assert torch.equal(compiled(X), conjugates(X))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert stats(compiled).tiers == ["compiled"] and len(asked) == 2


def test_pytorchs_other_backends_arent_called_in_a_thread() -> None:
    compiled = stator.compile(lambda x: x * 3, backend="aot_eager", when="background")
    with pytest.warns(stator.BackendFailedWarning, match="change the process while they trace"):
        for _ in range(2):
            assert torch.equal(compiled(X), X * 3)


def test_inputs_arent_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_background, "QUIET", 1e6)
    compiled = stator.compile(lambda x: x * 3, backend="inductor")
    x = torch.randn(3)
    known = weakref.ref(x)
    compiled(x)
    assert stats(compiled).tiers == ["waiting"]
    del x
    gc.collect()
    assert known() is None


def refusing(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The process finds that it can't compile a graph ahead of time; what it was asked for."""
    orders: list[Any] = []

    def takes(self: process._Compiler, order: bytes) -> bool:
        orders.append(pickle.loads(order))
        Path(orders[-1].answer).write_text(json.dumps({"error": "a result shares memory"}))
        return True

    monkeypatch.setattr(process._Compiler, "takes", takes)
    monkeypatch.setattr(process, "_PROGRAM", "import sys; sys.stdin.buffer.read()")
    return orders


def test_one_process_takes_all_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as there are any, and the environment is the same. Then it ends."""
    orders, started = refusing(monkeypatch), []
    begin = process._Compiler.__init__

    def counted(self: process._Compiler, environment: dict[str, str]) -> None:
        started.append(self)
        begin(self, environment)

    monkeypatch.setattr(process._Compiler, "__init__", counted)
    functions: list[Any] = [lambda x: x * 2, lambda x: x + 2, lambda x: x - 2]
    compiled = [stator.compile(it, backend="inductor", when="background") for it in functions]
    for number, each in enumerate(compiled):
        monkeypatch.setattr(_background, "QUIET", 1e6 if number < 2 else 0)
        each(X)
        if number == 1:
            assert stator.wait(timeout=LONG)
            monkeypatch.setenv("CXX", "another")
    assert stator.wait(timeout=LONG)
    assert len(orders) == 3 and 1 < len(started) < 3
    end = time.monotonic() + LONG
    while any(compiler._process.returncode is None for compiler in started):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_process_that_dies_of_what_it_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process has done for other graphs is no reason to fail on this one."""
    orders: list[bytes] = []

    def takes(self: process._Compiler, order: bytes) -> bool:
        orders.append(order)
        if self.filled == 1:
            self._process.kill()
            return False
        Path(pickle.loads(order).answer).write_text(json.dumps({"error": "a result is none"}))
        self.filled += 1
        return True

    monkeypatch.setattr(process._Compiler, "takes", takes)
    monkeypatch.setattr(process, "_PROGRAM", "import sys; sys.stdin.buffer.read()")
    monkeypatch.setattr(_background, "QUIET", 1e6)
    functions: list[Any] = [lambda x: x * 2, lambda x: x + 2]
    compiled = [stator.compile(it, backend="inductor", when="background") for it in functions]
    for each in compiled:
        each(X)
    assert stator.wait(timeout=LONG)
    assert len(orders) == 3 and orders[1] == orders[2]
    for each in compiled:
        with pytest.warns(stator.BackendFailedWarning, match="a result is none"):
            each(X)


def test_what_holds_for_all_threads_is_that_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = refusing(monkeypatch)
    monkeypatch.setattr(_background, "QUIET", 1e6)
    compiled = stator.compile(lambda x: x + torch.ones(6, 4), backend="inductor", when="background")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        compiled(X)
    finally:
        torch.set_default_dtype(before)
    assert stator.wait(timeout=LONG)
    assert [order.modes.globals.dtype for order in orders] == [torch.float64]


def test_the_call_that_waits_instead_is_told_of_what_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = stand_in(monkeypatch, no_compiler)
    refusing(monkeypatch)
    compiled = stator.compile(lambda x: x * 3, backend="inductor")
    compiled(X)
    assert stator.wait(timeout=LONG)
    with pytest.warns(stator.BackendFailedWarning, match="RuntimeError: no compiler here") as given:
        for _ in range(3):
            assert torch.equal(compiled(X), X * 3)
    assert len(given) == 1 and "failed on a graph" in str(given[0].message)
    assert stats(compiled).tiers == ["failed"] and len(asked) == 1


def test_what_cant_be_compiled_ahead_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library would give a copy of what the graph gives a view of."""
    asked, orders = stand_in(monkeypatch), refusing(monkeypatch)

    def view(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.t(), x * 2

    compiled = stator.compile(view, backend="inductor")
    for call in range(4):
        transposed, doubled = compiled(X)
        assert transposed.data_ptr() == X.data_ptr() and torch.equal(doubled, X * 2)
        assert stator.wait(timeout=LONG) and len(asked) == (call > 0)
    assert stats(compiled).tiers == ["compiled"]
    why = "a call has waited for it, because Inductor can't compile it ahead of time: a result shar"
    assert why in str(stats(compiled).why[0])
    told = stator.compile(view, backend="inductor", when="background")
    told(X)
    assert stator.wait(timeout=LONG)
    with pytest.warns(stator.BackendFailedWarning, match="a result shares memory"):
        told(X)
    # What the process itself finds out.
    order = orders[0]
    with pytest.raises(BackendError, match="a result shares memory with an input"):
        ahead.compile_ahead(sent.unpack(order.module), order.looks, order.sizes, {})


def resizes(x: Tensor) -> Tensor:
    x.unsqueeze_(0)
    return x * 2


def halves(x: Tensor) -> tuple[Tensor, float]:
    return x * 2, x.shape[0] / 2


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (resizes, "it changes what an input of it is like"),
        (halves, "a result is neither a tensor nor a size"),
    ],
)
def test_what_a_library_would_do_otherwise(function: Any, why: str) -> None:
    module = torch.fx.symbolic_trace(function)
    with pytest.raises(BackendError, match=why):
        ahead._effects(module, [X.clone()])


def refused(x: Tensor) -> tuple[Tensor]:
    return (torch._grouped_mm(x, x.unsqueeze(0), offs=torch.tensor([2], dtype=torch.int32)),)


def test_what_no_compiler_of_pytorch_takes() -> None:
    """It isn't tried again in a call that waits."""
    module = torch.fx.symbolic_trace(refused)
    with pytest.raises(HopelessError, match="PyTorch's compilers refuse an operation"):
        ahead._effects(module, [torch.ones(16, 16)])


def test_which_inputs_are_written() -> None:
    def function(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor]:
        z[0].add_(x[0])
        return (y + x,)

    module = torch.fx.symbolic_trace(function)
    assert ahead._effects(module, [X.clone(), X.clone(), X.clone()]) == ([2], [])


def mixes(x: Tensor, factor: int, weight: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.relu(x) * factor
    weight.add_(1)
    return torch.nn.functional.dropout(y, 0.5) @ weight, y.sum(0) + x.shape[0]


@stator.disable
def note(count: int) -> None:
    assert type(count) is int


def counts(x: Tensor) -> Tensor:
    y, count = torch.relu(x) * 2, x.shape[0] * 3
    note(count)
    return y + count


def test_integers_among_results() -> None:
    """What a graph break needs of sizes that vary: the code gives it, and no call waits."""
    compiled = stator.compile(counts, backend="inductor", dynamic=True, options=QUICK)
    for rows in (6, 9, 6):
        x = torch.linspace(-1, 1, rows * 4).view(rows, 4)
        torch.testing.assert_close(compiled(x), counts(x))
    assert stator.wait(timeout=PATIENT)
    for rows in (6, 9, 100):
        x = torch.linspace(-1, 1, rows * 4).view(rows, 4)
        torch.testing.assert_close(compiled(x), counts(x))
    assert "failed" not in stats(compiled).tiers and stats(compiled).breaks
    assert "has waited" not in str(stats(compiled).why)


def test_symbols_writes_and_random_numbers(caplog: pytest.LogCaptureFixture) -> None:
    compiled = stator.compile(mixes, backend="inductor", dynamic=True, options=QUICK)

    def check(rows: int, factor: int) -> None:
        x = torch.linspace(-1, 1, rows * 4).view(rows, 4)
        weight, plain = WEIGHT.clone(), WEIGHT.clone()
        torch.manual_seed(rows)
        found = compiled(x, factor, weight)
        state = torch.get_rng_state()
        torch.manual_seed(rows)
        expected = mixes(x, factor, plain)
        torch.testing.assert_close(found, expected)
        assert torch.equal(weight, plain) and weight._version == plain._version
        assert torch.equal(state, torch.get_rng_state())

    check(6, 7)
    assert stator.wait(timeout=PATIENT)
    with caplog.at_level(logging.INFO, "stator.background"):
        # The code is taken over by a call with other sizes than it was asked for.
        for rows, factor in [(9, 2), (6, 7), (100, 3), (3, 50_000)]:
            check(rows, factor)
    assert stats(compiled).tiers == ["compiled"] and stats(compiled).traces == 1
    assert [text for text in caplog.messages if text.startswith("from call 2 on the code of")]
    assert any("# inductor" in guard for guard in compiled.guards()[0])


def test_a_part_whose_sizes_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing guards the sizes of what the middle of a trace gives: the code does, for one compilation."""

    def steps(x: Tensor, log: list[float]) -> Tensor:
        y = (x @ WEIGHT).tanh() * 2
        log.append(y.sum().item())
        return (y.softmax(-1) + x[:1]).exp()

    orders: list[process.Order] = []
    ask = process._ask

    def counted(order: process.Order, folder: Path) -> Made | Pair:
        orders.append(order)
        return ask(order, folder)

    monkeypatch.setattr(process, "_ask", counted)
    compiled = stator.compile(
        steps, backend="inductor", options=QUICK, dynamic=True, tier="compiled"
    )
    logs: tuple[list[float], list[float]] = ([], [])
    with warnings.catch_warnings():
        warnings.simplefilter("error", stator.StatorWarning)
        for size in (6, 6, 6, 5, 4, 3, 2, 6, 5, 4):
            x = X[:size] * size
            torch.testing.assert_close(compiled(x, logs[0]), steps(x, logs[1]))
            assert stator.wait(timeout=PATIENT)
    torch.testing.assert_close(*logs)
    assert stats(compiled).tiers == ["compiled"] and stats(compiled).traces == 1
    assert len(orders) == 2
    codes = [guard for guard in compiled.guards()[0] if "# inductor" in guard]
    assert codes and all("given[" in guard for guard in codes)


def test_assumptions_hold_for_what_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that takes code over may not be one that it serves."""
    asked: list[list[Any]] = []

    def rows(inputs: Any) -> int:
        return next(value.shape[0] for value in inputs if isinstance(value, Tensor))

    def answers(module: Any, looks: Any, *others: Any, **said: Any) -> Any:
        asked.append(list(looks))

        def run(*inputs: Any) -> Any:
            assert rows(inputs) == rows(looks)
            return module(*inputs)

        # In terms that nothing is known of: it fixes the numbers that it speaks of.
        at = [isinstance(value, Tensor) for value in looks].index(True)
        return Code(run, "inductor", [("unknown", ("size", at, 0))], looks)

    monkeypatch.setattr(beside, "compile_in_process", answers)
    compiled = stator.compile(lambda x: x * 2 + x.shape[0], backend="inductor", dynamic=True)
    compiled(X)
    assert stator.wait(timeout=LONG)
    for size in (3, 6, 3, 6):
        x = X[:size]
        assert torch.equal(compiled(x), x * 2 + size)
        assert stator.wait(timeout=LONG)
    assert list(map(rows, asked)) == [6, 3]
    assert stats(compiled).tiers == ["compiled"] and stats(compiled).traces == 1


# How a graph gets there.


def made_of_numbers(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    zeros = torch.zeros(n, x.shape[1])
    zeros[0] = 1
    rows = torch.arange(n, dtype=x.dtype)[:, None]
    return (x[:n] * rows + zeros).softmax(0).view(-1), torch.full((n + 3,), 1.0 / n)


def test_a_graph_is_sent_as_it_is() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def keeps(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    compiled = stator.compile(made_of_numbers, backend=keeps, dynamic=True)
    attribute = stator.compile(lambda x: x.mT * 2, backend=keeps)
    for _ in range(2):
        compiled(X, 5)
        attribute(X)
    assert len(graphs) == 2
    with_constant = torch.fx.symbolic_trace(lambda x: torch.nn.functional.gelu(x) + 1)
    with_constant.constant = WEIGHT
    with with_constant.graph.inserting_before():
        constant = with_constant.graph.get_attr("constant")
    with with_constant.graph.inserting_before(with_constant.graph.output_node()):
        last = with_constant.graph.output_node().args[0]
        product = with_constant.graph.call_function(torch.ops.aten.mm.default, (last, constant))
    with_constant.graph.output_node().args = (product,)
    with_constant.recompile()
    for graph in (*graphs, with_constant):
        again = sent.unpack(sent.pack(graph))
        assert again.code == graph.code
        again.graph.lint()
    assert torch.equal(sent.unpack(sent.pack(with_constant))(X), with_constant(X))


def test_what_cant_be_sent_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    never, asked = Never(monkeypatch), stand_in(monkeypatch)
    generator = torch.Generator()

    def draws(x: Tensor) -> Tensor:
        return x + torch.rand(4, generator=generator)

    compiled = stator.compile(draws, backend="inductor")
    for call in range(4):
        generator.manual_seed(call)
        found = compiled(X)
        generator.manual_seed(call)
        assert torch.equal(found, draws(X))
        assert stator.wait(timeout=LONG)
    assert stats(compiled).tiers == ["compiled"] and len(asked) == 1 and never.asked == 0


# What is missing, and who is in the way.


def test_no_compiler_is_said_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BackendError, match=r"needs a C\+\+ compiler \(g\+\+ or clang\+\+ on"):
        stator.compile(lambda x: x * 3, backend="inductor")


PROGRAM = """
import sys, warnings
import torch, stator

warnings.simplefilter("error", stator.StatorWarning)
options = {"aot_inductor.compile_wrapper_opt_level": "O0"}

@stator.compile(backend="inductor", options=options)
def scaled(x):
    return (x * 2 + 1).relu().sum(0)

x = torch.linspace(-1, 1, 12).view(3, 4)
expected = (x * 2 + 1).relu().sum(0)
scaled(x)
print("asked", flush=True)
assert stator.wait(timeout=600)
for _ in range(3):
    torch.testing.assert_close(scaled(x), expected)
assert stator.stats(scaled).tiers == ["compiled"], stator.stats(scaled).why
"""


def test_two_programs_that_compile_the_same() -> None:
    both = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for program in both:
        _, errors = program.communicate(timeout=600)
        assert program.returncode == 0, errors
