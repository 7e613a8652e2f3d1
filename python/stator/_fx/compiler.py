"""What Inductor's process does: it takes orders, and answers each with libraries or says why not.

The program has no use for this, and it takes seconds to import.
"""

from __future__ import annotations

import copy
import dataclasses
import errno
import gc
import json
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch._inductor import config as inductor

from stator._fx.ahead import compile_ahead
from stator._fx.aliases import take_views
from stator._fx.libraries import HopelessError, Made, NothingToCompileError
from stator._fx.linking import keep_stacks_data
from stator._fx.process import DONE, WORD, Order, unwritable
from stator._fx.sent import unpack
from stator._fx.tied import Pair
from stator._fx.training import compile_pair

_LOOK = 0.5
"""Seconds between two looks whether the program is still there."""


def main() -> None:
    """What the process does: it takes orders until the program wants no more."""
    parent, done = map(int, sys.argv[1:])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    keep_stacks_data()
    settings = inductor.shallow_copy_dict()
    while head := sys.stdin.buffer.read(WORD):
        order: Order = pickle.loads(sys.stdin.buffer.read(int.from_bytes(head, "little")))
        # What the last one has changed.
        inductor.load_config(settings)
        _fill(order)
        os.write(done, DONE)
        del order
        gc.collect()


def _fill(order: Order) -> None:
    found: dict[str, Any]
    try:
        made = _compile(order)
        found = {"pair" if isinstance(made, Pair) else "made": dataclasses.asdict(made)}
    except NothingToCompileError as error:
        found = {"nothing": str(error)}
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"}
        if (hopeless := _hopeless(error)) is not None:
            found = {"hopeless": hopeless}
    written = Path(order.answer + ".new")
    written.write_text(json.dumps(found))
    written.rename(order.answer)


def _end_with(parent: int) -> None:
    """Ends this process and the compilers that it has started, once the program is gone."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _compile(order: Order) -> Made | Pair:
    order.modes.globals.set()
    inductor.load_config(order.changed)
    # The same random numbers as the replay's.
    inductor.fallback_random = True
    # The pool of processes is for kernels of GPUs.
    inductor.compile_threads = 1
    assert isinstance(order.module, bytes)
    module = unpack(order.module)
    modes = dataclasses.replace(order.modes, inference=False)
    with modes.applied():
        views = take_views(module, order.looks)
        made: Made | Pair | None = None
        if order.is_training:
            made = compile_pair(copy.deepcopy(module), order.looks, order.settings)
        if made is None:
            made = compile_ahead(
                module,
                order.looks,
                order.sizes,
                order.settings,
                are_sizes_guarded=order.are_sizes_guarded,
            )
        return dataclasses.replace(made, views=views)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_UNWRITABLE = (*_FULL, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST)


def _hopeless(error: BaseException) -> str | None:
    """Why Inductor would fail in a call, too: mostly what it misses of the system. None: it may
    not."""
    text = str(error)
    if isinstance(error, HopelessError):
        return text
    if any(type(each).__name__ == "InvalidCxxCompiler" for each in _chain(error)):
        return "Inductor finds no C++ compiler that works: install g++, or name one in CXX"
    for number in _UNWRITABLE:
        is_raised = any(
            isinstance(each, OSError) and each.errno == number for each in _chain(error)
        )
        # Compilers and linkers only print it.
        if is_raised or (number in _FULL and os.strerror(number) in text):
            return unwritable(number)
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those behind it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
