"""Stator turns Python functions over PyTorch tensors into programs, by recording their first call.

```python
import stator

@stator.compile
def mse(x, y):
    return ((x - y) ** 2).sum()
```
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stator import _interpreter as _interpreter
from stator import errors
from stator._backends import list_backends, register_backend
from stator._compile import compile, reset, stats, wait
from stator._config import config
from stator._disable import disable
from stator._dynamic import mark_dynamic, mark_static, maybe_mark_dynamic
from stator._export import export
from stator._install import install, installed, uninstall
from stator._install import read_environment as _install_if_asked
from stator._logs import LOGS, read_environment, set_logs
from stator._stator import Compiled, Stats, graph_break, is_compiling
from stator._stator import __version__ as __version__
from stator._steering import (
    allow_in_graph,
    assume_constant_result,
    set_stance,
    substitute_in_graph,
)
from stator._stored import KeptTraces
from stator._storing import load_traces, save_traces
from stator._warnings import (
    BackendDiffersWarning,
    BackendFailedWarning,
    InternalErrorWarning,
    LogWarning,
    NeverCalledWarning,
    RecompileLimitWarning,
    StatorWarning,
    UnknownTorchWarning,
)
from stator.errors import (
    DynamicDimensionError,
    ExportError,
    GraphBreakError,
    RecompileError,
    StatorError,
)

if TYPE_CHECKING:
    from stator import federated

__all__ = [
    "LOGS",
    "BackendDiffersWarning",
    "BackendFailedWarning",
    "Compiled",
    "DynamicDimensionError",
    "ExportError",
    "GraphBreakError",
    "InternalErrorWarning",
    "KeptTraces",
    "LogWarning",
    "NeverCalledWarning",
    "RecompileError",
    "RecompileLimitWarning",
    "StatorError",
    "StatorWarning",
    "Stats",
    "UnknownTorchWarning",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "config",
    "disable",
    "errors",
    "export",
    "federated",
    "graph_break",
    "install",
    "installed",
    "is_compiling",
    "list_backends",
    "load_traces",
    "mark_dynamic",
    "mark_static",
    "maybe_mark_dynamic",
    "register_backend",
    "reset",
    "save_traces",
    "set_logs",
    "set_stance",
    "stats",
    "substitute_in_graph",
    "uninstall",
    "wait",
]


read_environment()
_install_if_asked()


def __getattr__(name: str) -> Any:
    # It needs NumPy, which the rest of Stator doesn't.
    if name == "federated":
        return importlib.import_module("stator.federated")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
