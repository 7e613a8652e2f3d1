"""Stator turns Python functions over PyTorch tensors into programs, by recording their first call.

```python
import stator

@stator.compile
def mse(x, y):
    return ((x - y) ** 2).sum()
```
"""

from __future__ import annotations

from importlib import metadata

from stator import errors
from stator._backends import list_backends, register_backend
from stator._compile import compile, is_compiling, reset, stats
from stator._config import config
from stator._disable import disable
from stator._logs import LOGS, read_environment, set_logs
from stator._stator import Compiled, Stats
from stator._warnings import LogWarning, RecompileLimitWarning, StatorWarning
from stator.errors import GraphBreakError, StatorError

__all__ = [
    "LOGS",
    "Compiled",
    "GraphBreakError",
    "LogWarning",
    "RecompileLimitWarning",
    "StatorError",
    "StatorWarning",
    "Stats",
    "compile",
    "config",
    "disable",
    "errors",
    "is_compiling",
    "list_backends",
    "register_backend",
    "reset",
    "set_logs",
    "stats",
]

__version__ = metadata.version("stator")

read_environment()
