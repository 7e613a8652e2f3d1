"""The names of compiled libraries in the user's folder, which the next start of a program finds.

A library is stored under a digest of all that its compiler was given, and of what it depends on
besides: the versions, the processor, the compiler's environment. So none can be out of date.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import io
import os
import pickle
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.fx

from stator._fx.callables import FOLDER, is_pytorchs
from stator._stator import __version__

_FORMAT = b"2"


def key_of(order: object, module: torch.fx.GraphModule) -> str | None:
    """The name of what a compiler makes of a graph; None: it depends on more than can be told.

    order: all that the compiler is given, the graph among it; what pickle can write.
    """
    if not all(map(_is_told, module.graph.nodes)):
        return None
    made = hashlib.blake2b(_FORMAT, digest_size=20)
    written = io.BytesIO()
    _Writer(written).dump(order)
    for part in (written.getvalue(), *_surroundings()):
        made.update(len(part).to_bytes(8, "little"))
        made.update(part)
    return made.hexdigest()


class _Writer(pickle.Pickler):
    """Writes equal things equally. PyTorch writes of a tensor where it lies, too."""

    def reducer_override(self, value: Any) -> Any:
        if not _is_data(value):
            return NotImplemented
        dense = value.contiguous()
        data = ctypes.string_at(dense.data_ptr(), dense.nbytes)
        facts = (value.dtype, tuple(value.shape), value.stride(), value.is_conj(), value.is_neg())
        return tuple, ((data, *facts),)


def _is_data(value: object) -> bool:
    """Whether this is a tensor that says all in its numbers, dtype, sizes and strides."""
    return (
        type(value) is torch.Tensor
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not value.requires_grad
        and not value.is_quantized
    )


def _is_told(node: torch.fx.Node) -> bool:
    """Whether the name of what a node calls says what it does, given PyTorch's version."""
    if node.op == "get_attr":
        return _is_data(getattr(node.graph.owning_module, str(node.target)))
    if node.op != "call_function":
        return True
    return is_pytorchs(node.target)


_COMPILERS = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CPATH", "LIBRARY_PATH")


def _surroundings() -> Iterator[bytes]:
    """What compiled code depends on besides the order."""
    yield _of_this_process()
    for name in sorted(os.environ):
        if name in _COMPILERS or name.startswith(("TORCH", "CPLUS_", "OMP_")):
            yield f"{name}={os.environ[name]}".encode()


@functools.cache
def _of_this_process() -> bytes:
    libraries = sorted((FOLDER / "lib").glob("*torch*"))
    parts = [
        __version__,
        *(path.read_text() for path in sorted(Path(__file__).parent.glob("*.py"))),
        torch.__version__,
        str(torch.version.git_version),
        *(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in libraries),
        sys.version,
        platform.platform(),
        *_processor(),
    ]
    return "\n".join(parts).encode()


def _processor() -> Iterator[str]:
    """What compilers ask of the processor: a home may be that of several machines."""
    yield platform.machine()
    yield str(torch.backends.cpu.get_cpu_capability())
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if not line.strip():
                return
            if line.startswith(("model name", "flags", "Features", "CPU ")):
                yield line
