"""`stator.install()`: Stator serves the calls of `torch.compile` that a program makes.

PyTorch's own callers (`nn.Module.compile`, `torch.compiler.compile`) and frameworks look
`torch.compile` up when they call it, so replacing that one name is enough. Who had taken the
replacement before it was uninstalled gets PyTorch's own from it.

`import stator` works without torch; the functions here import it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stator import _stator
from stator._compile import compile as stator_compile
from stator.errors import ApiError

__all__ = ["install", "installed", "uninstall"]

VARIABLE = "STATOR_INSTALL"

# What PyTorch turns its own compiler off by; read by `torch._dynamo.config`.
_DISABLING = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")

# Options of `torch.compile` that its front end takes away before a backend sees them.
_GUARDS = "guard_filter_fn"
_AHEAD_OF_TIME = "use_aoti"


@dataclasses.dataclass(slots=True)
class _Replaced:
    """A name of PyTorch's that stands for a function of Stator's while it is installed."""

    owner: Any
    name: str
    theirs: Callable[..., Any]
    ours: Callable[..., Any]

    def put(self) -> None:
        setattr(self.owner, self.name, self.ours)

    def take_back(self) -> None:
        # Somebody else may have replaced it meanwhile: theirs stays, and reaches PyTorch's.
        if getattr(self.owner, self.name) is self.ours:
            setattr(self.owner, self.name, self.theirs)


_LOCK = threading.Lock()
# What is replaced, once for each `install` that is yet to be undone.
_installed: list[tuple[_Replaced, ...]] = []


def install() -> None:
    """From here on `torch.compile` is served by Stator, wherever the program calls it.

    So are `nn.Module.compile`, `torch.compiler.compile` and frameworks that call these. Arguments
    stay as they are, `backend="inductor"` by default. `torch.compiler.reset` forgets Stator's
    traces too. What was compiled before isn't touched. Calls nest: each needs its `uninstall`.

    With the environment variable `STATOR_INSTALL=1`, `import stator` installs. For a program that
    doesn't import Stator there is `python -m stator run program.py`.
    """
    import torch

    with _LOCK:
        if _installed:
            _installed.append(())
            return
        compile, reset = torch.compile, torch.compiler.reset
        replaced = (
            _Replaced(torch, "compile", compile, _serving(compile)),
            _Replaced(torch.compiler, "reset", reset, _resetting(reset)),
        )
        _installed.append(replaced)
        for each in replaced:
            each.put()


def uninstall() -> None:
    """Undoes one `install`: behind the last one `torch.compile` is PyTorch's own again.

    What Stator has compiled stays compiled. Raises `ApiError` if nothing is installed.
    """
    with _LOCK:
        if not _installed:
            raise ApiError("stator.uninstall() undoes stator.install(), which wasn't called.")
        for each in _installed.pop():
            each.take_back()


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
        if not _installed or (isinstance(own, dict) and own.pop(_AHEAD_OF_TIME, False)):
            return original(model, **settings, options=options, disable=disable)
        if model is None:
            return functools.partial(torch_compile, **settings, options=options, disable=disable)
        if isinstance(own, dict):
            # It says which guards to leave out where these cost too much.
            own.pop(_GUARDS, None)
        if disable or _is_disabled() or _is_exporting():
            return model
        return stator_compile(model, **settings, options=own or None)

    return torch_compile


def _resetting(original: Callable[[], None]) -> Callable[[], None]:
    @functools.wraps(original)
    def reset() -> None:
        _stator.reset_all()
        # PyTorch's own has nothing to forget before its compiler is imported, which takes seconds.
        if "torch._dynamo" in sys.modules:
            original()

    return reset


def _is_disabled() -> bool:
    config = sys.modules.get("torch._dynamo.config")
    if config is not None:
        return bool(config.disable)
    return any(os.environ.get(name) == "1" for name in _DISABLING)


def _is_exporting() -> bool:
    import torch

    return bool(torch.compiler.is_exporting())
