"""How Inductor links libraries in the process that Stator starts."""

from __future__ import annotations

import functools
import sys
from typing import Any

from torch._inductor import cpp_builder

# Without the dash: so Inductor keeps its flags.
_NO_EXECUTABLE_STACK = "Wl,-z,noexecstack"


def keep_stacks_data() -> None:
    """Have libraries linked so that loading them doesn't make stacks executable.

    PyTorch's constants are assembled without a word on stacks, which the linker takes for a wish:
    the C library then makes the stack of each thread executable, and refuses to from glibc 2.41 on.
    """
    flags = getattr(cpp_builder, "_get_shared_cflags", None)
    if sys.platform != "linux" or flags is None:
        return

    @functools.wraps(flags)
    def with_data_stacks(*args: Any, **kwargs: Any) -> list[str]:
        found: list[str] = flags(*args, **kwargs)
        return [*found, _NO_EXECUTABLE_STACK] if "shared" in found else found

    cpp_builder._get_shared_cflags = with_data_stacks
