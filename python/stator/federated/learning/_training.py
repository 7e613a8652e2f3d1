"""Training over many rounds: clients are chosen, states are saved, who is killed goes on."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stator._program_tracing.drawing import drawn_from
from stator._stator import federated as _native
from stator.federated._executors import ClientsLostError, RetryableError
from stator.federated.aggregators._factories import expect_count
from stator.federated.learning._checkpoints import (
    CheckpointError,
    read,
    state_of,
    write,
)
from stator.federated.learning._curves import picture_of
from stator.federated.learning._processes import IterativeProcess
from stator.federated.learning._sampling import ClientSampler, Cohort, QuorumError
from stator.federated.learning._terminal import Progress, progress_of


@dataclasses.dataclass(frozen=True)
class Training:
    """What training has come to.

    state: after the last round.
    metrics: of each round, from the first on: numbers by their names, `clients` among them.
    """

    state: Any
    metrics: tuple[Mapping[str, float], ...]


@_native.hidden
def train(
    process: IterativeProcess,
    data: Sequence[Any],
    *,
    rounds: int,
    cohort: Cohort | ClientSampler | None = None,
    evaluate: Callable[[Any], Mapping[str, Any]] | None = None,
    evaluate_every: int = 1,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1,
    attempts: int = 1,
    seed: int | None = None,
    progress: bool | None = None,
    on_round: Callable[[int, Any, Mapping[str, float]], None] | None = None,
    curves: str | os.PathLike[str] | None = None,
) -> Training:
    """Takes rounds until there are as many as `rounds`, and gives the last state.

    data: `data[position]` is what a client has, such as `ClientData`.
    cohort: who takes part in a round; all clients where nothing is said.
    evaluate: given a state's weights, metrics of them (a mapping of names to scalars, to which
        `compute()` is applied where there is one, as torchmetrics' objects have), each
        `evaluate_every` rounds and after the last one.
    checkpoint: a file for the state and the metrics, written whole or not at all each
        `checkpoint_every` rounds and after the last one. If it is there, training goes on from it:
        the numbers are those of training that was never interrupted, at whatever moment it was.
    attempts: how often a round is tried that raises `RetryableError` (`QuorumError` is one), with
        other clients each time. Whatever else a round raises, it raises here. The checkpoint is
        that of the rounds before.
    seed: of what programs draw with PyTorch's generator, such as noise, by a hash: each round has
        its own. Where nothing is said it is 256 bits of the operating system's randomness, kept in
        the checkpoint. For privacy nobody may know or guess it.
    progress: whether progress is shown, on stderr; if it is a terminal, where nothing is said.
    on_round: called after each round with its number, the state and the metrics.
    curves: a file for a picture (SVG) of all metrics over the rounds, written at the end.
    """
    if not isinstance(process, IterativeProcess):
        raise TypeError(
            "`process` is to be an IterativeProcess, such as `build_fed_avg` gives, not "
            f"{process!r}."
        )
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise TypeError(
            "`data` is to be a sequence that has each client's rows at its position, not "
            f"{data!r}: a list has, and `ClientData`."
        )
    if isinstance(data, Mapping):
        raise TypeError(
            "`data` is to be a sequence that has each client's rows at its position, not a "
            "mapping: `list(data.values())` is one."
        )
    expect_count(rounds, "rounds", least=0)
    for name, count in (
        ("evaluate_every", evaluate_every),
        ("checkpoint_every", checkpoint_every),
        ("attempts", attempts),
    ):
        expect_count(count, name, least=1)
    path = None if checkpoint is None else Path(checkpoint)
    run = _Run.begin(process, path, seed)
    choose = _cohort(cohort, data)
    with progress_of(progress, rounds, run.done) as shown:
        while run.done < rounds:
            found = _round(process, data, run, choose, attempts, shown)
            number = run.done + 1
            is_last = number == rounds
            if evaluate is not None and (is_last or number % evaluate_every == 0):
                found |= _measured(evaluate(run.state["weights"]))
            run.metrics.append(found)
            if path is not None and (is_last or number % checkpoint_every == 0):
                run.save(path)
            shown.advance(found)
            if on_round is not None:
                on_round(number, run.state, found)
    if curves is not None:
        Path(curves).write_text(picture_of(run.metrics), encoding="utf-8")
    return Training(run.state, tuple(run.metrics))


@dataclasses.dataclass
class _Run:
    """Training so far."""

    state: Any
    metrics: list[dict[str, float]]
    seed: int

    @classmethod
    def begin(cls, process: IterativeProcess, path: Path | None, seed: int | None) -> _Run:
        """From a checkpoint, if there is one."""
        if path is None or not path.exists():
            seed = (
                secrets.randbits(8 * _SECRET)
                if seed is None
                else expect_count(seed, "seed", least=0)
            )
            with _seeded(seed, _FIRST):
                return cls(process.initialize(), [], seed)
        values, training = read(path)
        try:
            told = json.loads(training or "null")
            metrics, kept = told["metrics"], told["seed"]
        except (KeyError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"{path} holds a state, but nothing of the training that came to it: give "
                "`checkpoint=` a file of its own."
            ) from error
        if seed is not None and seed != kept:
            raise CheckpointError(
                f"{path} is of training with another `seed`: give the same one, or none."
            )
        return cls(state_of(process, values, path), metrics, kept)

    @property
    def done(self) -> int:
        """How many rounds have been taken."""
        return len(self.metrics)

    def save(self, path: Path) -> None:
        write(self.state, json.dumps({"metrics": self.metrics, "seed": self.seed}), path)


_FIRST = -1


def _cohort(given: Cohort | ClientSampler | None, data: Sequence[Any]) -> Cohort | None:
    if given is None:
        return None
    cohort = given if isinstance(given, Cohort) else Cohort(given)
    if cohort.sampler.clients != len(data):
        raise ValueError(
            f"the sampler is for {cohort.sampler.clients} clients, where `data` has {len(data)}."
        )
    return cohort


def _round(
    process: IterativeProcess,
    data: Sequence[Any],
    run: _Run,
    cohort: Cohort | None,
    attempts: int,
    shown: Progress,
) -> dict[str, float]:
    """Takes a round: its metrics."""
    number = run.done
    for attempt in range(attempts):
        try:
            if cohort is None:
                rows = [data[position] for position in range(len(data))]
            else:
                _, rows = cohort.gather(data.__getitem__, number, attempt)
            started = time.perf_counter()
            state, metrics, rows = _taken(process, run, rows, cohort, attempt, shown)
        except RetryableError as error:
            if attempt + 1 == attempts:
                error.add_note(f"in round {number + 1}")
                raise
            shown.tell(f"round {number + 1} is tried again: {error}")
            continue
        except Exception as error:
            error.add_note(f"in round {number + 1}")
            raise
        run.state = state
        shown.measure(len(rows), time.perf_counter() - started)
        return {**_numbers(metrics), "clients": float(len(rows))}
    raise AssertionError("an attempt gives metrics, or raises")


def _taken(
    process: IterativeProcess,
    run: _Run,
    rows: list[Any],
    cohort: Cohort | None,
    attempt: int,
    shown: Progress,
) -> tuple[Any, Any, list[Any]]:
    """A round's state and metrics, and the rows that made it: without those of clients that are
    lost on the way, as long as there are as many as the quorum wants."""
    asked = len(rows)
    while True:
        # Who begins anew without some clients draws anew.
        lost = asked - len(rows)
        try:
            with _seeded(run.seed, run.done, attempt, *([lost] if lost else ())):
                return *process.next(run.state, rows), rows
        except ClientsLostError as error:
            if cohort is None:
                raise
            rows = [of for position, of in enumerate(rows) if position not in error.clients]
            if len(rows) < max(1, cohort.quorum):
                raise QuorumError(run.done, len(rows), cohort.quorum) from error
            shown.tell(f"round {run.done + 1} goes on without {asked - len(rows)} clients: {error}")


_SECRET = 32
"""How many bytes of the operating system's randomness noise follows from."""


def secret_randomness() -> contextlib.AbstractContextManager[None]:
    """In the block, what programs draw with PyTorch's generator follows from 256 bits that the
    operating system draws and nobody sees. For rounds with private aggregators in a loop of one's
    own; `train` does so by itself. Afterwards the generator is where it was.

    PyTorch's generator begins with the same seed in each process, and `torch.manual_seed` and
    `torch.seed` tell 2**32 places apart: noise of that can be guessed.
    """
    return drawn_from(secrets.token_bytes(_SECRET))


def _seeded(*numbers: int) -> contextlib.AbstractContextManager[None]:
    """PyTorch's generator is at a place of its own, and is afterwards where it was."""
    return drawn_from(b"stator.learning.train" + b"".join(b" %d" % number for number in numbers))


def _measured(metrics: Any) -> dict[str, float]:
    """What `evaluate` has given."""
    if not isinstance(metrics, Mapping):
        raise TypeError(
            "`evaluate` is to give metrics by their names, such as {'accuracy': 0.9}, not "
            f"{metrics!r}."
        )
    return _numbers(metrics)


def _numbers(metrics: Any, prefix: str = "") -> dict[str, float]:
    """Metrics as numbers, by their names; those in others by a path."""
    found: dict[str, float] = {}
    for name, value in metrics.items() if isinstance(metrics, Mapping) else ():
        if isinstance(value, Mapping):
            found |= _numbers(value, f"{prefix}{name}/")
            continue
        if callable(getattr(value, "compute", None)):
            value = value.compute()
        if np.ndim(value) == 0:
            found[f"{prefix}{name}"] = float(value)
    return found
