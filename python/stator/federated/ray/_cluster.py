"""The cluster that contexts of this process use: joined, or begun and ended again."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading

import ray

from stator.federated.ray._reach import takes_no_token

#: What Ray reads the way of authentication from. A cluster that it begins switches tokens on there.
AUTHENTICATION = "RAY_AUTH_MODE"

_LOCK = threading.RLock()


class Cluster:
    """A cluster as this process uses it: from `ray.init()` to `ray.shutdown()`.

    One that contexts have begun or joined is left with the last of them.
    """

    _current: Cluster | None = None

    def __init__(self, *, owned: bool, authentication: str | None) -> None:
        self._process = os.getpid()
        self._session = _session()
        self._owned = owned
        self._authentication = authentication
        self._users = 0

    @classmethod
    def join(cls, address: str | None, processors: int | None) -> Cluster:
        """The cluster that this process has joined, or else the one at an address, or a new one."""
        with _LOCK:
            # Where a worker dies Ray would put a function of its own in the place of `print`.
            os.environ.setdefault("RAY_TQDM_PATCH_PRINT", "0")
            authentication = os.environ.get(AUTHENTICATION)
            owned = not ray.is_initialized()
            if owned:
                if address is not None and takes_no_token(address) and authentication == "token":
                    # As a cluster of this process's own has left it, which has ended.
                    _forget_authentication()
                _init(address, processors)
            elif address is not None:
                _check_joined(address)
            if cls._current is None or cls._current.lost() is not None:
                cls._current = cls(owned=owned, authentication=authentication)
            cls._current._users += 1
            return cls._current

    def lost(self) -> str | None:
        """Why it can't be used any more, if so."""
        if self._process != os.getpid():
            return "was made before this process was forked, and Ray doesn't outlast that"
        if not ray.is_initialized():
            return "has lost its cluster: `ray.shutdown()` was called"
        if self._session != _session():
            return "has lost its cluster: this process has joined another one since"
        return None

    def leave(self) -> None:
        """One user less."""
        with _LOCK:
            self._users -= 1
            if self._users or not self._owned or self.lost() is not None:
                return
            ray.shutdown()
            if self._authentication is None:
                _forget_authentication()
            elif os.environ.get(AUTHENTICATION) != self._authentication:
                os.environ[AUTHENTICATION] = self._authentication
                _read_again()


def _session() -> tuple[str, str]:
    """What tells this stay in a cluster from stays in others, and from later ones in it."""
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()


def _init(address: str | None, processors: int | None) -> None:
    # Nothing is told to anybody, nor printed.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        ray.init(
            address=address or "local",
            num_cpus=processors if address is None else None,
            include_dashboard=False if address is None else None,
            log_to_driver=False,
            configure_logging=False,
        )
    finally:
        logger.setLevel(level)


def _check_joined(address: str) -> None:
    """Raises if the cluster that this process has joined isn't the one at an address."""
    joined = ray.get_runtime_context().gcs_address
    if address == "auto" or "://" in address or _is_same(address, joined):
        return
    raise RuntimeError(
        f"this process has joined another Ray cluster already\n  expected: {address}\n"
        f"  found:    {joined}\n"
        "  hint:     call `ray.shutdown()` before, or leave `address=` out to use that one"
    )


def _is_same(address: str, joined: str) -> bool:
    host, _, port = joined.rpartition(":")
    own = {ray.util.get_node_ip_address(), "127.0.0.1"}
    if address == "local":
        return bool(_numbers(host) & own)
    wanted, _, wanted_port = address.rpartition(":")
    if wanted_port != port:
        return False
    numbers, known = _numbers(wanted), _numbers(host)
    # Loopback is another name of this machine.
    return wanted == host or bool(numbers & known) or bool(numbers & own and known & own)


def _numbers(host: str) -> set[str]:
    """The numbers that a name stands for."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), None)
    except OSError:
        return {host}
    return {str(each[4][0]) for each in found}


def _forget_authentication() -> None:
    """Takes back that a cluster that Ray has begun wants tokens of this process.

    Ray leaves that switched on. A cluster without tokens that is joined afterwards can't ask this
    process whether its actors are still needed, and ends each of them.
    """
    os.environ.pop(AUTHENTICATION, None)
    _read_again()


def _read_again() -> None:
    # Ray keeps what it has read, and has no public names for that.
    with contextlib.suppress(AttributeError):
        ray._raylet.Config.initialize("")
        ray._raylet.AuthenticationTokenLoader.instance().reset_cache()
