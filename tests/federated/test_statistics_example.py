"""The example of federated statistics, which needs neither PyTorch nor scikit-learn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from examples import federated_statistics

ROOT = Path(__file__).resolve().parent.parent.parent

WITHOUT_TORCH = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "sklearn", "scipy"):
            raise AssertionError(f"{name} is imported")

sys.meta_path.insert(0, Refused())
from examples import federated_statistics
federated_statistics.run(2)
"""


@pytest.mark.parametrize("clients", [1, 7])
def test_statistics(clients: int, capsys: pytest.CaptureFixture[str]) -> None:
    found, expected = federated_statistics.run(clients)
    assert found == pytest.approx(expected, rel=1e-7)
    assert found["quantile 0.05"] < found["quantile 0.5"] < found["quantile 0.95"]
    printed = capsys.readouterr().out
    assert "federated_weighted_mean" in printed
    assert f"{clients} clients with" in printed


def test_a_quantile_that_many_readings_share() -> None:
    assert federated_statistics.quantile(0.5, [np.full(5, 2.0), np.full(3, 2.0)]) == (2.0, 0)
    around_zero = [np.array([-1.0, 0.0, 0.0]), np.array([0.0, 1.0])]
    assert federated_statistics.quantile(0.5, around_zero)[0] == pytest.approx(0, abs=1e-9)


def test_statistics_without_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "2 clients with" in done.stdout
