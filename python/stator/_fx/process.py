"""A graph compiled by Inductor in a process of its own, ahead of time.

What comes back is a library: the program never runs a line of Inductor's Python code, neither while
it is compiled nor when it runs. The process gets the graph as a `torch.fx` module, what its inputs
are like, and the settings of this process; it ends with this one. The library is stored for the
next start (`stator._fx.store`).
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.fx
from torch._subclasses import FakeTensorMode

from stator._fx.modes import Modes
from stator._fx.store import key_of, store
from stator.errors import BackendError

_PROGRAM = "from stator._fx.process import main; main()"
_WITHOUT = ("STATOR_INSTALL", "STATOR_LOGS")
_PARENT_DIES = 1
"""`PR_SET_PDEATHSIG`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """What the process is to do."""

    module: torch.fx.GraphModule
    looks: Sequence[torch.Tensor]
    modes: Modes
    settings: dict[str, Any]
    inductor: dict[str, Any] | None
    """Its settings; None: nobody has imported them, so nobody has changed them."""
    dtype: torch.dtype
    threads: int
    precision: str
    is_deterministic: bool
    parent: int
    answer: str


class AheadOfTimeError(BackendError):
    """Inductor can't compile a graph ahead of time. It may be able to compile it as usual."""


def compile_in_process(
    module: torch.fx.GraphModule,
    looks: Sequence[torch.Tensor],
    modes: Modes,
    settings: dict[str, Any],
) -> Callable[..., Any]:
    """The code of a graph. Waits for the process, without the interpreter's lock.

    Raises AheadOfTimeError with what Inductor has raised there, BackendError if the process dies.
    """
    order = Order(
        module=module,
        looks=looks,
        modes=modes,
        settings=settings,
        inductor=None,
        dtype=torch.get_default_dtype(),
        threads=torch.get_num_threads(),
        precision=torch.get_float32_matmul_precision(),
        is_deterministic=torch.are_deterministic_algorithms_enabled(),
        parent=0,
        answer="",
    )
    stored = store()
    key = key_of(order, module) if stored is not None else None
    if stored is None or key is None:
        return _load(_library(order))
    code = stored.find(key, _load)
    if code is None:
        library = _library(order)
        stored.keep(key, library)
        code = _load(library)
    return code


def _library(order: Order) -> str:
    """The path of what Inductor makes in a process."""
    inductor = sys.modules.get("torch._inductor.config")
    with tempfile.TemporaryDirectory(prefix="stator-") as folder:
        answer = Path(folder) / "answer.json"
        order = dataclasses.replace(
            order,
            inductor=None if inductor is None else inductor.save_config_portable(),
            parent=os.getpid(),
            answer=str(answer),
        )
        environment = {key: value for key, value in os.environ.items() if key not in _WITHOUT}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            input=pickle.dumps(order),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            check=False,
        )
        if not answer.exists():
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise BackendError(f"Inductor's process has ended early: {''.join(last)}")
        found = json.loads(answer.read_text())
    if "error" in found:
        raise AheadOfTimeError(f"Inductor can't compile it ahead of time: {found['error']}")
    return str(found["library"])


def _load(library: str) -> Callable[..., Any]:
    runner = torch._C._aoti.AOTIModelContainerRunnerCpu(library, 1)

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        return runner.run(list(inputs))

    return run


def main() -> None:
    """What the process does."""
    order: Order = pickle.load(sys.stdin.buffer)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DIES, signal.SIGTERM)
        if os.getppid() != order.parent:
            return
    os.nice(5)
    try:
        found = {"library": _compile(order)}
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    written = Path(order.answer + ".new")
    written.write_text(json.dumps(found))
    written.rename(order.answer)


def _compile(order: Order) -> str:
    from torch._inductor import config as inductor
    from torch._inductor.compile_fx import compile_fx_aot

    torch.set_default_dtype(order.dtype)
    torch.set_num_threads(order.threads)
    torch.set_float32_matmul_precision(order.precision)
    torch.use_deterministic_algorithms(order.is_deterministic)
    if order.inductor is not None:
        inductor.load_config(order.inductor)
    inputs: list[Any] = [torch.empty_like(look, device="cpu") for look in order.looks]
    modes = dataclasses.replace(order.modes, inference=False)
    with modes.applied():
        _check_outputs(order.module, inputs)
        library = compile_fx_aot(order.module, inputs, **order.settings)
    assert isinstance(library, str)
    return library


def _check_outputs(module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> None:
    """Compiled code gives new memory where the graph gives that of an input."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [mode.from_tensor(value) for value in inputs]
        given = {value.untyped_storage()._cdata for value in fakes}
        for output in module(*fakes):
            if isinstance(output, torch.Tensor) and output.untyped_storage()._cdata in given:
                raise BackendError("a result shares memory with an input")
