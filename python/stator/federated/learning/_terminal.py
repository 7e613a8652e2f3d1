"""Progress of training on a terminal: rounds, loss, clients a second, and how long it still takes.

It is drawn by `rich` where that is installed, and told in lines where it isn't.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol


class Progress(Protocol):
    """What is shown of rounds."""

    def __enter__(self) -> Progress: ...

    def __exit__(self, *_: object) -> None: ...

    def measure(self, clients: int, seconds: float) -> None:
        """A round of so many clients has taken so long."""

    def advance(self, metrics: Mapping[str, float]) -> None:
        """A round is over."""

    def tell(self, text: str) -> None:
        """Something else is to be said."""


def progress_of(wanted: bool | None, rounds: int, done: int) -> Progress:
    """What shows progress; nothing, unless it is wanted or stderr is a terminal."""
    if sys.stderr is None or not (sys.stderr.isatty() if wanted is None else wanted):
        return _Silent()
    try:
        import rich.console
        import rich.progress
    except ImportError:
        return _Lines(rounds, done)
    return _Bar(rich.progress, rich.console.Console(stderr=True), rounds, done)


class _Silent:
    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def measure(self, clients: int, seconds: float) -> None:
        pass

    def advance(self, metrics: Mapping[str, float]) -> None:
        pass

    def tell(self, text: str) -> None:
        pass


class _Lines(_Silent):
    """A line for each round, at most one a second, and one for the last."""

    def __init__(self, rounds: int, done: int) -> None:
        self._rounds, self._done = rounds, done
        self._rate = 0.0
        self._told = 0.0

    def measure(self, clients: int, seconds: float) -> None:
        self._rate = clients / max(seconds, 1e-9)

    def advance(self, metrics: Mapping[str, float]) -> None:
        self._done += 1
        now = time.monotonic()
        if self._done == self._rounds or now - self._told >= 1:
            self._told = now
            self.tell(f"round {self._done}/{self._rounds}  {_said(metrics, self._rate)}")

    def tell(self, text: str) -> None:
        print(text, file=sys.stderr)


class _Bar(_Silent):
    """A bar that `rich` draws."""

    def __init__(self, rich_progress: Any, console: Any, rounds: int, done: int) -> None:
        columns = (
            rich_progress.TextColumn("round"),
            rich_progress.MofNCompleteColumn(),
            rich_progress.BarColumn(),
            rich_progress.TextColumn("{task.fields[said]}"),
            rich_progress.TimeRemainingColumn(),
        )
        self._bar = rich_progress.Progress(*columns, console=console)
        self._task = self._bar.add_task("", total=rounds, completed=done, said="")
        self._rate = 0.0

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def measure(self, clients: int, seconds: float) -> None:
        self._rate = clients / max(seconds, 1e-9)

    def advance(self, metrics: Mapping[str, float]) -> None:
        self._bar.update(self._task, advance=1, said=_said(metrics, self._rate))

    def tell(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)


def _said(metrics: Mapping[str, float], rate: float) -> str:
    loss = f"loss {metrics['loss']:.4f}  " if "loss" in metrics else ""
    spent = "".join(
        f"epsilon {value:.3g}  "
        for name, value in metrics.items()
        if name.rpartition("/")[2] == "epsilon"
    )
    return f"{loss}{spent}{rate:,.0f} clients/s"
