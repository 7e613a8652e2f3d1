"""What all tests of federated computations have in common."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture(autouse=True)
def two_clients_run_at_once(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests have few clients, which are quicker one after the other."""
    if "few_clients_run_alone" in request.fixturenames:
        return
    if importlib.util.find_spec("torch") is None:
        return
    from stator import _local_computations

    monkeypatch.setattr(_local_computations, "_LEAST", 2)
    monkeypatch.setattr(_local_computations, "_LEAST_PADDED", 2)
    # Nor have they many rows, which would be the same number with the padding.
    monkeypatch.setattr(_local_computations, "_FEW_BYTES", 0)


@pytest.fixture
def few_clients_run_alone() -> None:
    """Clients run as they do for users."""
