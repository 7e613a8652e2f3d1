"""Literals are printed as NumPy prints their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stator.federated as sf
from stator._stator import federated as native

ml_dtypes = pytest.importorskip("ml_dtypes")


def check(value: Any) -> None:
    dtype = np.asarray(value).dtype.type
    if dtype in (np.object_, np.bytes_):
        dtype = np.str_
    literal = native.Literal(value, sf.TensorType(dtype, np.shape(value)))
    assert str(literal) == str(value), repr(value)


def test_every_float16() -> None:
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    for half in halves:
        check(half)
    for at in range(0, 65536, 512):
        check(halves[at : at + 512])


def test_scalars() -> None:
    rng = np.random.default_rng(1)
    for _ in range(3000):
        check(np.frombuffer(rng.bytes(4), np.float32)[0])
        check(np.frombuffer(rng.bytes(8), np.float64)[0])
        check(np.frombuffer(rng.bytes(8), np.complex64)[0])
        check(np.frombuffer(rng.bytes(2), ml_dtypes.bfloat16)[0])
        check(np.float32(10 ** rng.uniform(-8, 10)))
        check(np.float64(10 ** rng.uniform(-8, 18)))
        check(np.complex128(complex(round(rng.normal(), 2), round(rng.normal() * 1000, 1))))
    for value in (True, False, 0, -7, b"hi", b"it's", b"\"q'\n\t\\\x00\xff", b""):
        check(value)


def arrays(rng: np.random.Generator, shape: tuple[int, ...]) -> list[Any]:
    """Arrays of all kinds that are printed in different ways."""
    normal = rng.normal(size=shape)
    scale = 10 ** rng.uniform(-6, 7)
    broken = normal.copy().reshape(-1)
    broken[rng.integers(0, broken.size, 3)] = [np.inf, -np.inf, np.nan]
    integers = rng.choice(
        [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
    )
    size = int(np.prod(shape))
    strings = np.empty(size, object)
    strings[:] = [rng.bytes(int(rng.integers(0, 6))) for _ in range(size)]
    return [
        (normal * scale).astype(integers),
        normal < 0,
        normal,
        normal.astype(np.float32) * np.float32(scale),
        (normal * scale).astype(np.float16),
        np.round(normal * 10 ** rng.integers(0, 6), rng.integers(0, 5)),
        np.round(normal * 1000) / rng.choice([2, 8, 512, 1024]),
        broken.reshape(shape),
        broken.reshape(shape).astype(np.complex64) * (1 + 2j),
        normal + 1j * rng.normal(size=shape) * scale,
        np.round(normal * 9).astype(np.complex64),
        normal.astype(ml_dtypes.bfloat16),
        np.frombuffer(rng.bytes(8 * size), np.float64).reshape(shape),
        strings.reshape(shape),
    ]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_arrays() -> None:
    rng = np.random.default_rng(2)
    for _ in range(60):
        rank = int(rng.integers(1, 5))
        shape = tuple(int(n) for n in rng.integers(1, [3000, 60, 14, 8][rank - 1], rank))
        for array in arrays(rng, shape):
            check(array)
    for array in (np.zeros((0,)), np.zeros((3, 0), np.int32), np.zeros((1001,), bool)):
        check(array)
