"""Objects that the tests of this folder read and change."""

from __future__ import annotations

import torch

X = torch.ones(3)


class Node:
    def __init__(self, n: int) -> None:
        self.n = n


class Equal:
    """Equality and hash by a mutable value, found by C code."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and self.n == other.n

    def __hash__(self) -> int:
        return hash(self.n)
