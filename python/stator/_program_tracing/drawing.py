"""Random numbers of clients: what a client draws depends on the call and on the client, and neither
on who else takes part nor on how clients' work is done.

Programs draw from PyTorch's generator. For each client it is set to a place of that client's own,
which follows from a key of the call's, the number of the map and that of the client. The key
follows from where the generator was, so a seed (`torch.manual_seed`) decides all of it. After the
call the generator has moved on by one number, however much was drawn.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

__all__ = ["Draws", "drawn_from"]

# Its types lack some of what it has.
_cuda: Any = torch.cuda

_LOCK = threading.RLock()
"""Held while the generator is at a client's place."""

_WORDS = 624
"""How many words of 32 bits are the state of PyTorch's generator (a Mersenne twister)."""

_FIRST = 3
"""Which one of the 64-bit words of the state as PyTorch writes it is the first of them."""


def _has_known_layout() -> bool:
    """Whether PyTorch writes states as it did when this was written."""
    state = torch.Generator().manual_seed(19650218).get_state()
    if state.numel() % 8 or state.numel() < 8 * (_FIRST + _WORDS):
        return False
    words = [19650218]
    for at in range(1, _WORDS):
        words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + at) % 2**32)
    return bool(state.numpy().view(np.int64)[_FIRST : _FIRST + _WORDS].tolist() == words)


class _Places:
    """States of PyTorch's generator, by seeds of any length. `manual_seed` tells 2**32 apart, which
    is too few for noise that nobody may guess."""

    def __init__(self) -> None:
        self._fresh = torch.Generator().manual_seed(0).get_state() if _has_known_layout() else None

    def state(self, seed: bytes) -> torch.Tensor:
        if self._fresh is None:
            number = int.from_bytes(hashlib.sha256(seed).digest()[:8], "little")
            return torch.Generator().manual_seed(number).get_state()
        made = self._fresh.clone()
        words = np.frombuffer(hashlib.shake_256(seed).digest(4 * _WORDS), "<u4")
        view = made.numpy().view(np.int64)
        view[_FIRST : _FIRST + _WORDS] = words
        # What `initial_seed` tells.
        view[0] = int(words[0]) << 31 ^ int(words[1])
        return made


_places = _Places()


def _set_place(seed: bytes) -> None:
    """Sets PyTorch's generators to the place of a seed."""
    number = int.from_bytes(hashlib.sha256(seed).digest()[:8], "little") >> 1
    if _cuda.is_initialized():
        _cuda.manual_seed_all(number)
    torch.default_generator.set_state(_places.state(seed))


@contextlib.contextmanager
def drawn_from(seed: bytes) -> Iterator[None]:
    """What is drawn in the block follows from a seed of any length. PyTorch's generators are
    afterwards where they were."""
    before = _where()
    _set_place(seed)
    try:
        yield
    finally:
        _put_back(before)


def _where() -> tuple[torch.Tensor, list[torch.Tensor] | None]:
    """Where PyTorch's generators are."""
    on_gpus = _cuda.get_rng_state_all() if _cuda.is_initialized() else None
    return torch.default_generator.get_state(), on_gpus


def _put_back(where: tuple[torch.Tensor, list[torch.Tensor] | None]) -> None:
    state, on_gpus = where
    torch.default_generator.set_state(state)
    if on_gpus is not None:
        _cuda.set_rng_state_all(on_gpus)


class Draws:
    """What the clients of one call draw.

    key: what it follows from; where PyTorch's generator is, if nothing is said.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key
        self._began = torch.default_generator.get_state() if key is None else None
        self._before: Any = None

    @property
    def key(self) -> bytes:
        """What the numbers follow from. Neither numbers nor a place of the generator's tell it."""
        if self._key is None:
            assert self._began is not None
            self._key = hashlib.blake2b(self._began.numpy().tobytes(), digest_size=32).digest()
        return self._key

    def _seed(self, place: int, client: int) -> bytes:
        return self.key + b"%d %d" % (place, client)

    def state(self, place: int, client: int) -> torch.Tensor:
        """Where the generator is for a client, in the map of this number."""
        return _places.state(self._seed(place, client))

    def become(self, place: int, client: int) -> None:
        """What is drawn from here on is drawn by this client."""
        _set_place(self._seed(place, client))

    def enter(self) -> None:
        """Clients begin to draw. Those of calls in other threads wait: there is one generator."""
        _LOCK.acquire()
        self._before = _where()

    def leave(self) -> None:
        """Others draw again, what they would have drawn."""
        before, self._before = self._before, None
        _put_back(before)
        _LOCK.release()

    def end(self) -> None:
        """The call is over. If its clients drew, the next call's draw other numbers."""
        if self._key is not None and self._began is not None:
            torch.empty((), dtype=torch.int64).random_()
