"""`stator.install()`: Stator serves the calls of `torch.compile` that a program makes.

PyTorch's own callers (`nn.Module.compile`, `torch.compiler.compile`) and frameworks look
`torch.compile` up when they call it, so replacing that one name is enough. Who had taken the
replacement before it was uninstalled gets PyTorch's own from it.

`import stator` works without torch; the functions here import it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stator import _stator
from stator._compile import compile
from stator.errors import ApiError

__all__ = ["install", "installed", "uninstall"]

VARIABLE = "STATOR_INSTALL"

# What PyTorch turns its own compiler off by; read by `torch._dynamo.config`.
_DISABLING = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")

# Options of `torch.compile` that its front end takes away before a backend sees them.
_GUARDS = "guard_filter_fn"
_AHEAD_OF_TIME = "use_aoti"


class _Installation:
    """How often `install` was called, and what stood in its place before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.compile: Callable[..., Any] | None = None
        self.reset: Callable[..., Any] | None = None


_INSTALLATION = _Installation()


def install() -> None:
    """From here on `torch.compile` is served by Stator, wherever the program calls it.

    So are `nn.Module.compile`, `torch.compiler.compile` and frameworks that call these. Arguments
    stay as they are, `backend="inductor"` by default. `torch.compiler.reset` forgets Stator's
    traces too. What was compiled before isn't touched. Calls nest: each needs its `uninstall`.

    With the environment variable `STATOR_INSTALL=1`, `import stator` installs. For a program that
    doesn't import Stator there is `python -m stator run program.py`.
    """
    import torch

    with _INSTALLATION.lock:
        _INSTALLATION.count += 1
        if _INSTALLATION.count > 1:
            return
        _INSTALLATION.compile = torch.compile
        _INSTALLATION.reset = torch.compiler.reset
        torch.compile = _serving(torch.compile)
        torch.compiler.reset = _resetting(torch.compiler.reset)


def uninstall() -> None:
    """Undoes one `install`: behind the last one `torch.compile` is PyTorch's own again.

    What Stator has compiled stays compiled. Raises `ApiError` if nothing is installed.
    """
    import torch

    with _INSTALLATION.lock:
        if _INSTALLATION.count == 0:
            raise ApiError("stator.uninstall() undoes stator.install(), which wasn't called.")
        _INSTALLATION.count -= 1
        if _INSTALLATION.count:
            return
        # Somebody else may have replaced them meanwhile: theirs stay, and reach PyTorch's.
        if _is_ours(torch.compile):
            torch.compile = _INSTALLATION.compile  # type: ignore[assignment]
        if _is_ours(torch.compiler.reset):
            torch.compiler.reset = _INSTALLATION.reset  # type: ignore[assignment]


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """`stator.install()` for the length of a `with` block."""
    install()
    try:
        yield
    finally:
        uninstall()


def read_environment() -> None:
    """Installs if `STATOR_INSTALL=1` says so."""
    if os.environ.get(VARIABLE) == "1":
        install()


def _is_ours(function: Any) -> bool:
    return getattr(function, "__module__", None) == "torch" and hasattr(function, "_stator_serves")


def _serving(original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in the place of `torch.compile`; the signature is that one's."""

    @functools.wraps(original)
    def torch_compile(
        model: Any = None,
        *,
        fullgraph: bool = False,
        dynamic: bool | None = None,
        backend: str | Callable[..., Any] = "inductor",
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
        disable: bool = False,
    ) -> Any:
        own = dict(options) if isinstance(options, Mapping) else options
        settings: dict[str, Any] = {
            "fullgraph": fullgraph,
            "dynamic": dynamic,
            "backend": backend,
            "mode": mode,
        }
        if not _INSTALLATION.count or (isinstance(own, dict) and own.pop(_AHEAD_OF_TIME, False)):
            return original(model, **settings, options=options, disable=disable)
        if model is None:
            return functools.partial(torch_compile, **settings, options=options, disable=disable)
        if isinstance(own, dict):
            # It says which guards to leave out where these cost too much.
            own.pop(_GUARDS, None)
        if disable or _is_disabled() or _is_exporting():
            return model
        return compile(model, **settings, options=own or None)

    torch_compile._stator_serves = True  # type: ignore[attr-defined]
    return torch_compile


def _resetting(original: Callable[[], None]) -> Callable[[], None]:
    @functools.wraps(original)
    def reset() -> None:
        _stator.reset_all()
        # PyTorch's own has nothing to forget before its compiler is imported, which takes seconds.
        if "torch._dynamo" in sys.modules:
            original()

    reset.__module__ = "torch"
    reset._stator_serves = True  # type: ignore[attr-defined]
    return reset


def _is_disabled() -> bool:
    config = sys.modules.get("torch._dynamo.config")
    if config is not None:
        return bool(config.disable)
    return any(os.environ.get(name) == "1" for name in _DISABLING)


def _is_exporting() -> bool:
    import torch

    return bool(torch.compiler.is_exporting())
