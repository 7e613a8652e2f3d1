"""PyTorch's modes of a thread: what a backend reads besides the graph and its inputs.

Gradients, autocast, inference mode and the default device belong to a thread. Code that another
thread compiles is for the modes of the call that asked for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import torch

_DEVICES = ("cpu", "cuda", "maia", "xla", "xpu", "mps", "hpu", "ipu", "mtia", "privateuseone")
"""Types of devices that have an autocast dtype."""


@dataclasses.dataclass(frozen=True, slots=True)
class Globals:
    """What compilers read that holds for all threads."""

    dtype: torch.dtype
    threads: int
    precision: str
    is_deterministic: bool
    only_warns: bool

    @classmethod
    def here(cls) -> Globals:
        """Those of this process."""
        return cls(
            dtype=torch.get_default_dtype(),
            threads=torch.get_num_threads(),
            precision=torch.get_float32_matmul_precision(),
            is_deterministic=torch.are_deterministic_algorithms_enabled(),
            only_warns=torch.is_deterministic_algorithms_warn_only_enabled(),
        )

    def set(self) -> None:
        """Gives them to this process."""
        torch.set_default_dtype(self.dtype)
        torch.set_num_threads(self.threads)
        torch.set_float32_matmul_precision(self.precision)
        torch.use_deterministic_algorithms(self.is_deterministic, warn_only=self.only_warns)


@dataclasses.dataclass(frozen=True, slots=True)
class Modes:
    """The modes of a thread at one moment."""

    gradients: bool
    inference: bool
    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    caches_casts: bool
    device: torch.device
    globals: Globals
    """What held for all threads then. It's for another process; here it isn't set."""

    @classmethod
    def here(cls) -> Modes:
        """Those of this thread."""
        return cls(
            gradients=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=tuple(
                (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
                for device in _DEVICES
            ),
            caches_casts=torch.is_autocast_cache_enabled(),
            device=torch.get_default_device(),
            globals=Globals.here(),
        )

    def set(self) -> None:
        """Gives this thread those that a graph may switch."""
        torch._C._set_grad_enabled(self.gradients)
        for device, is_enabled, dtype in self.autocast:
            torch.set_autocast_enabled(device, is_enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self.caches_casts)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Gives this thread all of them for the length of a `with` block."""
        before = Modes.here()
        with contextlib.ExitStack() as stack:
            if self.inference != before.inference:
                stack.enter_context(torch.inference_mode(self.inference))
            if self.device != before.device:
                stack.enter_context(self.device)
            stack.callback(before.set)
            self.set()
            yield
