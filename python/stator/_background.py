"""The thread that compiles graphs beside the program, and its queue.

A job (`crates/tracer/src/jobs.rs`) belongs to the graph that it is for. The queue only refers to
it, so what a program drops isn't compiled. The thread takes one job after the other, the largest
graph first, once the program has recorded nothing for a while, and ends when there are none. Calls
take over what it has made; nothing of the program's runs here but the backend.

`stator.wait`, the end of the process and a fork reach it too.
"""

from __future__ import annotations

import atexit
import contextlib
import numbers
import operator
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stator import _stator
from stator._stator import Job
from stator.errors import ApiError, BackendError

__all__ = ["at_end", "ended", "left", "submit", "wait"]

QUIET = 0.1
"""Seconds without a new job before one is begun: until then the program may still be warming up,
and what it has just recorded may be of no use."""

GRACE = 2.0
"""Seconds that the end of the process waits for the thread at most."""

_UNDER_WAY = ("waiting", "compiling")


class _Stopped(BaseException):
    """The process ends, and with it what the thread is at."""


class _Queue:
    """What is to be compiled, and who does that."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.jobs: list[tuple[int, weakref.ref[Job]]] = []
        """The jobs, and how many operations each is for."""
        self.current: Job | None = None
        self.thread: threading.Thread | None = None
        self.ends: list[Callable[[], Any]] = []
        """What the thread calls when there are no more jobs."""
        self.last = 0.0
        self.waiting = 0
        self.is_closed = False

    def add(self, job: Job, operations: int) -> None:
        with self.changed:
            self.jobs.append((operations, weakref.ref(job)))
            self.last = time.monotonic()
            if self.thread is None:
                thread = threading.Thread(
                    target=_work, args=(self,), name="stator-background", daemon=True
                )
                thread.start()
                self.thread = thread
            # The thread isn't woken: it looks by itself, once it has been quiet.

    def next(self) -> Job | None:
        """The next job, when it may begin. None: there is none, and the thread ends."""
        with self.changed:
            while True:
                self.current = None
                self.jobs = [known for known in self.jobs if _is_wanted(known[1]())]
                if not self.jobs or self.is_closed:
                    self.thread = None
                    self.changed.notify_all()
                    return None
                noise = QUIET - (time.monotonic() - self.last)
                if noise <= 0 or self.waiting:
                    # Where a graph is cut, that is the part in which the time goes.
                    largest = max(self.jobs, key=operator.itemgetter(0))
                    self.jobs.remove(largest)
                    self.current = largest[1]()
                    if self.current is not None:
                        return self.current
                else:
                    self.changed.wait(noise)

    def under_way(self) -> list[Job]:
        """All jobs that haven't ended."""
        jobs = [self.current, *(known() for _, known in self.jobs)]
        return [job for job in jobs if job is not None and job.stand in _UNDER_WAY]

    def cancel(self) -> None:
        for job in self.under_way():
            job.cancel()
        self.jobs.clear()


_queue = _Queue()


def _is_wanted(job: Job | None) -> bool:
    return job is not None and job.stand == "waiting"


def submit(task: Callable[[], Any], operations: int = 0) -> Job | None:
    """Has `task` called by the thread, some time; it is for a graph of so many operations. None:
    the process ends. Raises BackendError where no thread can be started."""
    if _queue.is_closed or not _register():
        return None
    job = Job(task)
    try:
        _queue.add(job, operations)
    except RuntimeError as error:
        job.cancel()
        raise BackendError(
            f"No thread can be started to compile in: {error}. With "
            "when='second_call' a call waits while its own thread compiles"
        ) from error
    return job


def at_end(call: Callable[[], Any]) -> bool:
    """Has the thread, which this is, call something when there are no more jobs. False: it's
    another thread."""
    if threading.current_thread() is not _queue.thread:
        return False
    if call not in _queue.ends:
        _queue.ends.append(call)
    return True


def left() -> int:
    """How many graphs wait to be compiled."""
    return sum(job.stand == "waiting" for job in _queue.under_way())


def ended(made: Any) -> Job:
    """A job that is done already."""
    job = Job(lambda: made)
    job.start()
    job.finish(made)
    return job


def wait(jobs: Callable[[], Sequence[Job]] | None, timeout: float | None) -> bool:
    """Waits until all of these have ended, or all there are; whether they have."""
    queue = _queue
    if threading.current_thread() is queue.thread:
        raise ApiError("A backend can't wait for what is compiled: it is what compiles.")
    # Asked here, since nothing looks at it where nothing is under way.
    if timeout is not None and not (isinstance(timeout, numbers.Real) and timeout == timeout):
        raise ApiError(f"timeout={timeout!r}: a number of seconds is expected, or None.")
    with _hurried(queue), queue.changed:

        def have_ended() -> bool:
            left = queue.under_way() if jobs is None else jobs()
            return all(job.stand not in _UNDER_WAY for job in left)

        return queue.changed.wait_for(have_ended, timeout)


@contextlib.contextmanager
def _hurried(queue: _Queue) -> Iterator[None]:
    """Somebody waits: there is no need to be quiet."""
    with queue.changed:
        queue.waiting += 1
    try:
        with queue.changed:
            _stator._hurry(True)
            queue.changed.notify_all()
        yield
    finally:
        with queue.changed:
            queue.waiting -= 1
            _stator._hurry(queue.waiting > 0)


def _work(queue: _Queue) -> None:
    """What the thread does."""
    ends: list[Callable[[], Any]] = []
    queue.ends = ends
    with contextlib.suppress(_Stopped):
        try:
            while (job := queue.next()) is not None:
                _do(queue, job)
                del job
                with queue.changed:
                    queue.changed.notify_all()
        finally:
            # There may be another thread by now.
            for end in ends:
                end()


def _do(queue: _Queue, job: Job) -> None:
    task = job.start()
    if task is None:
        return
    try:
        job.finish(_stator._compile_beside(task))
    except _Stopped:
        job.cancel()
        raise
    except BaseException as error:
        # A task returns errors. What is left is what a program ends with.
        job.finish(error.with_traceback(None))


_registered = False


def _register() -> bool:
    """Sees to the end of the process and to forks, from the first job on. False: it ends."""
    global _registered
    if not _registered:
        # Before the interpreter waits for threads that the backend may have started.
        register: Callable[..., Any] = getattr(threading, "_register_atexit", atexit.register)
        try:
            register(_close)
        except RuntimeError:
            return False
        os.register_at_fork(after_in_child=_forget)
        _registered = True
    return True


def _forget() -> None:
    """This is a forked process. The thread isn't in it: what waits is begun anew."""
    global _queue
    _queue.cancel()
    _queue = _Queue()
    _stator._forget_other_threads()


def _close() -> None:
    """The process ends. What is compiled is of no use any more: it is stopped."""
    queue = _queue
    with queue.changed:
        queue.is_closed = True
        queue.cancel()
        queue.changed.notify_all()
        thread = queue.thread
    if thread is None:
        return
    _stator._hurry(True)
    end = time.monotonic() + GRACE
    while thread.is_alive() and time.monotonic() < end:
        # A thread that ends between starting a process and waiting for it leaves it to others: it's
        # looked for before that.
        children = _children("self", thread.native_id)
        if thread.ident is not None:
            _stator._raise_in(thread.ident, _Stopped)
        for child in children:
            _end(child)
        thread.join(0.05)


def _end(process: int) -> None:
    """Ends a process and those that it waits for."""
    for child in _children(process, process):
        _end(child)
    with contextlib.suppress(OSError):
        os.kill(process, signal.SIGTERM)


def _children(process: int | str, thread: int | None) -> list[int]:
    """The processes that a thread has started; none where the system doesn't tell."""
    try:
        with open(f"/proc/{process}/task/{thread}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []
