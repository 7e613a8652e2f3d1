"""What does the work of clients: an object in a process of its own, on any machine."""

from __future__ import annotations

import importlib
import random
import traceback
from collections import OrderedDict
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import ray
from ray import cloudpickle

from stator._stator import __version__
from stator._stator import federated as _native

#: How many computations a worker keeps, those that it had last.
_COMPUTATIONS = 32


class UnsendableError(TypeError):
    """A Python function in a computation can't be sent to workers."""


class ClientFailedError(RuntimeError):
    """The work of a client failed with an exception that can't be sent back. The text is that
    exception's."""


class Unsendable:
    """In the place of a function that can't be sent: the server may use it, clients can't."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise UnsendableError(self._message)


#: What comes of some clients' work: `("made", values)`; `("failed", exception, its text)`; or
#: `("lost", text)` where what the work needs wasn't there any more.
Outcome: TypeAlias = tuple[Any, ...]


class Worker:
    """Does the work of some clients after that of others."""

    # Ray puts something of its own around each method: the others are another class's.
    def __init__(self) -> None:
        self._known = _Known()

    def ready(self, in_torch: bool) -> str:
        """The version of what runs here, once it does.

        in_torch: whether PyTorch is to be there too, which takes seconds.
        """
        if in_torch:
            importlib.import_module("torch")
        return __version__

    def work(
        self,
        program: tuple[str, list[Any]],
        stage: int,
        broadcast: tuple[str, list[Any]],
        given: list[Any],
        clients: tuple[int, int],
        exact: bool,
        seed: tuple[int, bool],
        key: bytes | None,
    ) -> Outcome:
        """The work of some clients in one stage of a computation.

        program: the name of the computation's bytes, and where they are.
        broadcast: the name of what all clients are sent, and where it is.
        given: what these clients have of their own.
        clients: the number of the first one, and how many they are.
        seed: for the generators of random numbers, and whether PyTorch's is one: what Python
            functions draw.
        key: what the random numbers of programs come from, if they draw any.
        """
        try:
            computation = self._known.computation(*program)
            received = self._known.received(*broadcast)
        except ray.exceptions.RayError as error:
            return "lost", f"{type(error).__name__}: {error}"
        except Exception as error:
            return _failure(error)
        try:
            _seed(*seed)
            made = computation.work(stage, received, given, clients, exact=exact, key=key)
        except Exception as error:
            return _failure(error)
        return "made", made


class _Known:
    """What a worker has been sent."""

    def __init__(self) -> None:
        self._computations: OrderedDict[str, Any] = OrderedDict()
        self._broadcast: tuple[str, Any] = "", None

    def computation(self, name: str, where: list[Any]) -> Any:
        """The computation whose bytes have this name, in parts."""
        found = self._computations.get(name)
        if found is None:
            data = ray.get(where[0])
            try:
                calls = cloudpickle.loads(data)
            except Exception as error:
                raise UnsendableError(
                    f"a worker can't read the computation: {type(error).__name__}: {error}\n"
                    "  expected: Python functions of modules that workers can import\n"
                    '  hint:     `options={"runtime_env": ...}` says what workers have'
                ) from error
            found = _native.split_computation(_native._block_from_calls(calls))
            self._computations[name] = found
            if len(self._computations) > _COMPUTATIONS:
                self._computations.popitem(last=False)
        self._computations.move_to_end(name)
        return found

    def received(self, name: str, where: list[Any]) -> Any:
        """What all clients are sent."""
        if self._broadcast[0] != name:
            # The one before isn't needed any more: its memory is free before this one comes.
            self._broadcast = "", None
            self._broadcast = name, _native.received(ray.get(where[0]))
        return self._broadcast[1]


def _seed(seed: int, in_torch: bool) -> None:
    """What is drawn depends on the clients, not on the worker: those that are run again draw the
    same."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if in_torch:
        importlib.import_module("torch").manual_seed(seed % 2**63)


def _failure(error: Exception) -> Outcome:
    text = "".join(traceback.format_exception(type(error), error, _users(error.__traceback__)))
    try:
        sent = cloudpickle.dumps(error)
        cloudpickle.loads(sent)
    except Exception:
        # It holds what can't leave the process, or its class can't make it again.
        told = ClientFailedError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", ()):
            told.add_note(note)
        sent = cloudpickle.dumps(told)
    return "failed", sent, text


def _users(found: TracebackType | None) -> TracebackType | None:
    """The part of a traceback below this file."""
    while found is not None and found.tb_frame.f_code.co_filename == __file__:
        found = found.tb_next
    return found
