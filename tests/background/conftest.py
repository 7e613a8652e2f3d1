"""Nothing that a test has compiled beside the program goes on behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import stator


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    with stator.config.patch(strict=False, skip_unprofitable=False):
        yield
    stator.reset()
    assert stator.wait(timeout=60)
