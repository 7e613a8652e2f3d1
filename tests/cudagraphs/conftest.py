"""Puts the stand-in there."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stator

_TESTS = str(Path(__file__).resolve().parent.parent)
if _TESTS not in sys.path:
    sys.path.insert(0, _TESTS)

from stator._cudagraphs.device import using  # noqa: E402

from .stand_in import StandIn  # noqa: E402


@pytest.fixture
def device() -> Iterator[StandIn]:
    stator.reset()
    made = StandIn()
    with using(made), stator.config.patch(strict=False):
        yield made
    stator.reset()
