"""Who does which clients' work, and who does it again where a worker or an object is lost."""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import ray
from ray import cloudpickle

from stator.federated._executors import ClientsLostError, RetryableError
from stator.federated.ray._cluster import AUTHENTICATION
from stator.federated.ray._worker import Outcome, Worker

_LOG = logging.getLogger("stator.federated")

#: How many chunks a worker has: while it does one, the next is on its way.
_DEPTH = 2

#: For how many chunks of each worker what they made may wait for an earlier one.
_AHEAD = 4

#: How many seconds workers have to start, where none is there.
_START = 120.0

#: How often each worker is started while none starts.
_STARTS = 3

#: What is raised where the cluster's store has lost something, or has no place for it.
_STORE = (
    ray.exceptions.ObjectLostError,
    ray.exceptions.ObjectStoreFullError,
    ray.exceptions.OutOfDiskError,
)


class RemoteTracebackError(Exception):
    """The traceback of an exception where it was raised: in another process."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclasses.dataclass
class Job:
    """Chunks of clients, and what becomes of them.

    count: how many there are.
    submit: has a worker begin one; what tells its outcome.
    take: gets what they made, one after the other in their order.
    renew: provides again what workers found to be lost.
    clients: which clients are in a chunk.
    attempts: how often one is tried at most.
    timeout: after how many seconds a chunk is done elsewhere; never, if None.
    """

    count: int
    submit: Callable[[Any, int], Any]
    take: Callable[[Any], None]
    renew: Callable[[], None]
    clients: Callable[[int], range]
    attempts: int
    timeout: float | None

    def name(self, chunk: int) -> str:
        """What a chunk is, for messages."""
        clients = self.clients(chunk)
        return f"the work of clients {clients.start} to {clients.stop - 1}"


class _Process:
    """A worker, as it is seen from here."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        # What tells that it has started; None when it has.
        self.starting: Any = handle.ready.remote("torch" in sys.modules)
        # The chunks that it has, by what tells their outcome. It does the first one.
        self.chunks: dict[Any, int] = {}
        # When it began that.
        self.since = 0.0

    def end(self) -> None:
        # One that never ran can't be ended, which is an error for Ray.
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(self.handle)


class Workers:
    """Workers; those that are lost are replaced."""

    def __init__(self, count: int, options: dict[str, Any], version: str) -> None:
        self._class: Any = ray.remote(**options)(Worker)
        self._version = version
        self._processes = [_Process(self._class.remote()) for _ in range(count)]
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._processes)

    def close(self) -> None:
        """Ends them."""
        for process in self._processes:
            process.end()
        self._processes = []

    def run(self, job: Job) -> None:
        """Has all chunks done, and those of one job after those of another.

        Raises what the work of a client raised: of the first client whose work failed. Raises
        `RetryableError` where a chunk can't be done.
        """
        with self._lock:
            run = _Run(job, self._processes, self._class, self._version)
            try:
                run.run()
            except BaseException as error:
                # Nobody waits for what they do, which may be something that never ends.
                if not isinstance(error, Exception):
                    run.abandon()
                raise
            finally:
                for process in self._processes:
                    process.chunks = {}


class _Run:
    """One job."""

    def __init__(self, job: Job, processes: list[_Process], of_class: Any, version: str) -> None:
        self._job = job
        self._processes = processes
        self._class = of_class
        self._version = version
        # Chunks that nobody has, the first one first.
        self._waiting = list(range(job.count))
        self._tried = [0] * job.count
        # Chunks of which one has ended its worker, nobody knows which: each is done alone.
        self._suspected: set[int] = set()
        # What chunks made for which an earlier one isn't done.
        self._made: dict[int, Any] = {}
        self._next = 0
        # No chunk from this one on is needed: its failure is known.
        self._end = job.count
        self._failure: Exception | None = None
        self._none_since = time.monotonic()
        # How many have ended since one has started.
        self._ended = 0

    def run(self) -> None:
        while self._next < self._end:
            self._submit()
            self._wait()
            while self._next in self._made:
                self._job.take(self._made.pop(self._next))
                self._next += 1
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Ends the workers that do something."""
        for process in self._processes:
            if process.chunks:
                self._replace(process)

    def _submit(self) -> None:
        limit = min(self._end, self._next + _AHEAD * len(self._processes))
        for depth in range(_DEPTH):
            for process in self._processes:
                if process.starting is not None or len(process.chunks) != depth:
                    continue
                if not self._waiting or self._waiting[0] >= limit:
                    return
                if depth and not self._suspected.isdisjoint(
                    (self._waiting[0], *process.chunks.values())
                ):
                    continue
                chunk = heapq.heappop(self._waiting)
                try:
                    outcome = self._job.submit(process.handle, chunk)
                except ray.exceptions.RayError as error:
                    # The store is full, for example.
                    raise ClientsLostError(
                        f"{self._job.name(chunk)} can't be sent to a worker: {_text(error)}",
                        self._job.clients(chunk),
                    ) from error
                if not process.chunks:
                    process.since = time.monotonic()
                process.chunks[outcome] = chunk

    def _wait(self) -> None:
        """Waits until something has happened, and does what follows from it."""
        by_reference = {process.starting: process for process in self._processes}
        by_reference.pop(None, None)
        if all(process.starting is not None for process in self._processes):
            if time.monotonic() - self._none_since > _START:
                raise RetryableError(
                    f"no worker has started in {_START:.0f} s: the cluster has no processor free\n"
                    "  hint:     `ray.available_resources()` says what it has"
                )
        else:
            self._none_since = time.monotonic()
        for process in self._processes:
            by_reference.update(dict.fromkeys(process.chunks, process))
        timeout = 1.0 if self._job.timeout is None else min(1.0, self._job.timeout / 4)
        done, _ = ray.wait(list(by_reference), num_returns=1, timeout=timeout)
        for reference in done:
            process = by_reference[reference]
            if reference is process.starting:
                self._started(process)
            else:
                self._done(process, reference)
        self._look_for_slow_ones()

    def _started(self, process: _Process) -> None:
        try:
            found = ray.get(process.starting)
        except ray.exceptions.RayError as error:
            self._ended += 1
            none = all(process.starting is not None for process in self._processes)
            if none and self._ended >= _STARTS * len(self._processes):
                raise RetryableError(_unstarted(error)) from error
            self._replace(process)
            return
        self._ended = 0
        if found != self._version:
            raise RuntimeError(
                "a machine of the cluster has another version of Stator\n"
                f"  expected: {self._version}\n  found:    {found}"
            )
        process.starting = None

    def _done(self, process: _Process, reference: Any) -> None:
        try:
            outcome = ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            # Not the work: what it was given, or gave, couldn't be read, or not stored.
            if not isinstance(error.cause, _STORE):
                raise
            self._again(process.chunks.pop(reference), _text(error.cause))
            return
        except _STORE as error:
            self._again(process.chunks.pop(reference), _text(error))
            return
        except ray.exceptions.RayError as error:
            self._lost(process, _text(error))
            return
        process.since = time.monotonic()
        self._take(process.chunks.pop(reference), outcome)

    def _take(self, chunk: int, outcome: Outcome) -> None:
        if outcome[0] == "made":
            self._made[chunk] = outcome[1]
        elif outcome[0] == "lost":
            self._job.renew()
            self._again(chunk, outcome[1])
        elif chunk < self._end:
            failure: Exception = cloudpickle.loads(outcome[1])
            failure.__cause__ = RemoteTracebackError(outcome[2])
            self._end, self._failure = chunk, failure

    def _look_for_slow_ones(self) -> None:
        timeout = self._job.timeout
        if timeout is None:
            return
        for process in self._processes:
            if process.chunks and time.monotonic() - process.since > timeout:
                self._lost(process, f"it took more than {timeout:g} s")

    def _lost(self, process: _Process, why: str) -> None:
        """Replaces a worker, and has its chunks done by others."""
        references = list(process.chunks)
        ended, _ = ray.wait(references, num_returns=len(references), timeout=0)
        for reference in ended:
            try:
                outcome = ray.get(reference)
            except ray.exceptions.RayError:
                continue
            self._take(process.chunks.pop(reference), outcome)
        self._replace(process)
        # It did the first one, most likely: but that one may have ended, and what tells so be lost.
        if len(process.chunks) > 1:
            self._suspected.update(process.chunks.values())
        for at, chunk in enumerate(process.chunks.values()):
            self._again(chunk, why, counts=at == 0)

    def _again(self, chunk: int, why: str, *, counts: bool = True) -> None:
        self._tried[chunk] += counts
        if self._tried[chunk] >= self._job.attempts and chunk < self._end:
            raise ClientsLostError(
                f"{self._job.name(chunk)} couldn't be done in {self._job.attempts} attempts: "
                f"{why}\n"
                "  hint:     nothing of this call counts; it may be called again",
                self._job.clients(chunk),
            )
        _LOG.info("%s is done again: %s", self._job.name(chunk), why)
        heapq.heappush(self._waiting, chunk)

    def _replace(self, process: _Process) -> None:
        process.end()
        fresh = _Process(self._class.remote())
        self._processes[self._processes.index(process)] = fresh


def _unstarted(error: Exception) -> str:
    """The message that no worker starts, and why."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"no worker starts: {type(error).__name__}: {said[-1] if said else ''}"
    died = isinstance(error, ray.exceptions.ActorDiedError)
    if died and os.environ.get(AUTHENTICATION) == "token":
        text += (
            f'\n  hint:     `{AUTHENTICATION}` is "token" here, as `ray.init()` sets it;\n'
            "            unset it, in a new process, for a cluster without tokens"
        )
    return text


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
