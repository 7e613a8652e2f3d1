"""The context that has clients' work done by workers on many machines."""

from __future__ import annotations

import hashlib
import itertools
import logging
import math
import sys
import threading
from collections import OrderedDict
from types import TracebackType
from typing import Any

import ray
from ray import cloudpickle

from stator._stator import __version__
from stator._stator import federated as _native
from stator.federated._abstract import SyncContext
from stator.federated._executors import RetryableError
from stator.federated.ray._cluster import Cluster
from stator.federated.ray._dispatch import Job, Workers
from stator.federated.ray._worker import Unsendable

_LOG = logging.getLogger("stator.federated")

#: How many clients run at once, and how often so many are in a chunk at most.
_CHUNK, _TIMES = 256, 4

#: How many chunks a worker has at least before they get larger: all workers end at about one time.
_CHUNKS = 4

#: How many bytes what clients of a chunk have and make may take, as far as that can be told before.
_BYTES = 1 << 28

#: How many computations are remembered in parts, those that were called last.
_COMPUTATIONS = 64


@_native.hidden
class RayContext(_native.HiddenInvoke, SyncContext):
    """Runs computations with the work of clients on the machines of a Ray cluster.

    The result is that of `LocalContext`. What clients do goes to workers in chunks of clients;
    what is made of all of them is made of each chunk first, and merged here. What can't be divided
    like that runs in this process: `logging.getLogger("stator.federated")` says why at INFO.

    clients: how many clients there are, where arguments don't say.
    address: of the cluster to join, unless this process is in one. Where nothing is said, it is
        one on this machine, which ends with the context.
    workers: how many processes do clients' work; as many as the cluster has processors.
    exact: whether a tensor program runs for one client after the other, as in `LocalContext`.
    chunk: how many clients a worker does at a time. Where nothing is said 256, up to 1,024 where
        there are many for each worker, and so few that each has some and that they fit into its
        memory.
    attempts: how often a chunk is tried, where a worker or what it needs is lost.
    timeout: after how many seconds a chunk is given to another worker; never, if None.
    options: of workers, as `ray.remote` takes them: `num_gpus`, `resources`, `runtime_env`.
    """

    def __init__(
        self,
        clients: int | None = None,
        *,
        address: str | None = None,
        workers: int | None = None,
        exact: bool = False,
        chunk: int | None = None,
        attempts: int = 3,
        timeout: float | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("workers", workers), ("chunk", chunk), ("attempts", attempts)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise TypeError(f"`{name}` must be an integer, not {value!r}")
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be 1 or more, not {value}")
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
            raise ValueError(f"`timeout` must be a number of seconds above 0, not {timeout!r}")
        self._local = _native.LocalContext(clients, exact=exact)
        self._chunk = chunk
        self._attempts = attempts
        self._timeout = timeout
        self._computations: OrderedDict[int, _Computation] = OrderedDict()
        self._calls = itertools.count()
        self._lock = threading.Lock()
        self._workers: Workers | None = None
        self._cluster = Cluster.join(address, workers)
        try:
            count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
            self._workers = Workers(count, {"num_cpus": 1, **(options or {})}, __version__)
        except BaseException:
            self._cluster.leave()
            raise

    def __enter__(self) -> RayContext:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers, and the cluster if contexts have begun it and this is the last one."""
        workers, self._workers = self._workers, None
        if workers is not None:
            # Another cluster, or another process, has no workers to end.
            if self._cluster.lost() is None:
                workers.close()
            self._cluster.leave()

    def __repr__(self) -> str:
        state = "closed" if self._workers is None else f"workers={len(self._workers)}"
        return f"RayContext({self._local.clients}, {state})"

    def _invoke(self, comp: Any, arg: Any) -> Any:
        if self._workers is None:
            raise RuntimeError("this RayContext is closed\n  hint:     make another one")
        lost = self._cluster.lost()
        if lost is not None:
            raise RuntimeError(f"this RayContext {lost}\n  hint:     make another one")
        found = self._computation(comp)
        split = found.split
        if isinstance(split, str):
            _LOG.info("%s runs in this process: %s", _name(comp), split)
            return self._local.invoke(comp, arg)
        run = split.start(
            arg,
            clients=self._local.clients,
            threads=self._local.threads,
            exact=self._local.exact,
        )
        stages = range(split.stages)
        if not run.clients and any(split.has_clients(stage) for stage in stages):
            # It says that nobody knows how many clients there are, or does nothing for none.
            return self._local.invoke(comp, arg)
        call = next(self._calls)
        try:
            for stage in stages:
                run.begin(stage)
                if split.has_clients(stage):
                    self._stage(found, run, stage, call)
                    run.end(stage)
        finally:
            run.close()
        return run.result()

    def _computation(self, comp: Any) -> _Computation:
        with self._lock:
            found = self._computations.get(id(comp))
            if found is None:
                found = self._computations[id(comp)] = _Computation(comp)
                if len(self._computations) > _COMPUTATIONS:
                    self._computations.popitem(last=False)
            self._computations.move_to_end(id(comp))
            return found

    def _stage(self, found: _Computation, run: Any, stage: int, call: int) -> None:
        """Has workers do the clients' part of a stage."""
        assert self._workers is not None
        clients: int = run.clients
        sent, size = run.broadcast(stage)
        size += run.bytes_of_one(stage)
        chunk = self._chunk or _chunk(clients, len(self._workers), size)
        torch = sys.modules.get("torch")
        seed = 0 if torch is None else torch.initial_seed()
        key = run.key
        program = found.stored()
        broadcast = _Stored(sent, f"{call} {stage}")

        def members(number: int) -> range:
            first = number * chunk
            return range(first, min(first + chunk, clients))

        def submit(worker: Any, number: int) -> Any:
            own = members(number)
            return worker.work.remote(
                (program.name, [program.reference]),
                stage,
                (broadcast.name, [broadcast.reference]),
                run.given(stage, own.start, own.stop),
                (own.start, len(own)),
                self._local.exact,
                (_mixed(seed, call, stage, own.start), torch is not None),
                key,
            )

        def renew() -> None:
            program.store()
            broadcast.store()

        job = Job(
            math.ceil(clients / chunk),
            submit,
            lambda made: run.merge(stage, made),
            renew,
            members,
            self._attempts,
            self._timeout,
        )
        self._workers.run(job)


class _Computation:
    """A computation that was called: in parts, and as workers get it."""

    def __init__(self, comp: Any) -> None:
        # It lives as long as its number is known.
        self._comp = comp
        self.split: Any = _native.split_computation(comp)
        self._stored: _Stored | None = None
        self._has_functions = True

    def stored(self) -> _Stored:
        """As workers get it."""
        # Python functions may have changed since the last time.
        if self._stored is None or self._has_functions:
            row = _native.calls_with_functions(self._comp)
            # Programs of a function are of what it was when it was made a computation.
            self._has_functions = any(
                name == "callable_computation" and not hasattr(arguments[0], "has_variants")
                for name, arguments in row
            )
            data = _dumps(row)
            name = hashlib.sha256(data).hexdigest()
            if self._stored is None or self._stored.name != name:
                self._stored = _Stored(data, name)
        return self._stored


def _chunk(clients: int, workers: int, size: int) -> int:
    """How many clients are in a chunk. `size`: how many bytes one has and makes."""
    times = clients // (_CHUNK * _CHUNKS * workers)
    many = _CHUNK * max(1, min(_TIMES, times))
    return min(many, math.ceil(clients / workers), max(1, _BYTES // max(1, size)))


class _Stored:
    """Something in the cluster's store."""

    def __init__(self, value: Any, name: str) -> None:
        self._value = value
        self.name = name
        self.store()

    def store(self) -> None:
        """Stores it, again if it was lost.

        Raises `RetryableError` if there is no place for it.
        """
        try:
            self.reference = ray.put(self._value)
        except ray.exceptions.RayError as error:
            raise RetryableError(f"the cluster can't store what clients need: {error}") from error


def _dumps(row: list[Any]) -> bytes:
    """The bytes of a row of calls; functions that can't be sent are replaced."""
    try:
        return bytes(cloudpickle.dumps(row))
    except Exception:
        sendable = []
        for name, arguments in row:
            if name == "callable_computation":
                arguments = (_sendable(arguments[0], arguments[3]), *arguments[1:])
            sendable.append((name, arguments))
        return bytes(cloudpickle.dumps(sendable))


def _sendable(function: Any, declared: str | None) -> Any:
    try:
        cloudpickle.dumps(function)
    except Exception as error:
        name = declared or f"`{getattr(function, '__qualname__', function)}`"
        return Unsendable(
            f"{name} can't be sent to workers: {error}\n"
            "  expected: a function that uses only what `pickle` can write\n"
            "  hint:     make such things inside of the function, or pass their content"
        )
    return function


def _mixed(*numbers: int) -> int:
    """A seed of several numbers."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:8], "little")


def _name(comp: Any) -> str:
    return str(getattr(comp, "__name__", None) or comp.type_signature)
