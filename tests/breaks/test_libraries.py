"""Libraries that compute with NumPy, and functions that write and read files: a call of one is one break."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import stator

metrics = pytest.importorskip("sklearn.metrics")
preprocessing = pytest.importorskip("sklearn.preprocessing")
stats = pytest.importorskip("scipy.stats")

Program = Callable[[Tensor], Any]


def scored(x: Tensor) -> Any:
    found, wanted = (x > 0).long().numpy(), np.array([0, 1, 1, 0])
    return float(metrics.accuracy_score(wanted, found)), x * 2


def ranked(x: Tensor) -> Any:
    return float(stats.rankdata((x * 2).numpy())[0]), x + 1


def scaled(x: Tensor) -> Any:
    scaler = preprocessing.StandardScaler()
    scaler.fit(x.numpy()[:, None])
    return torch.from_numpy(scaler.transform(x.numpy()[:, None])) * 2, float(scaler.mean_[0])


def raising(x: Tensor) -> Any:
    y = x * 2
    try:
        metrics.accuracy_score([0, 1], y.numpy())
    except ValueError as error:
        return str(error), y
    return y


def called_back(x: Tensor) -> Any:
    parts = [part.numpy() for part in x.split(2)]
    return [float(value) for value in map(metrics.mean_squared_error, parts, parts[::-1])], x + 1


def saved(x: Tensor) -> Any:
    file = io.BytesIO()
    torch.save({"x": x * 2, "n": 3}, file)
    file.seek(0)
    return torch.load(file)["x"] + 1


# How many breaks each meets in a call, beside those of what it does with the arrays.
PROGRAMS: dict[Program, int] = {scored: 1, ranked: 1, scaled: 2, raising: 1, called_back: 2}


def same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor):
        return torch.equal(left, right)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@pytest.mark.parametrize("floor", [False, True], ids=["every trace", "default"])
@pytest.mark.parametrize("program", [*PROGRAMS, saved], ids=lambda program: program.__name__)
def test_equal_plain_python(program: Program, floor: bool) -> None:
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=floor):
        for call in range(8):
            x = torch.randn(4, generator=torch.Generator().manual_seed(call))
            assert same(compiled(x), program(x)), call


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_one_break_a_call(program: Program) -> None:
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(4):
            compiled(torch.randn(4, generator=torch.Generator().manual_seed(call)))
    found = stator.stats(compiled)
    # Some are met in the first two calls, with numbers as constants and as symbols.
    assert 0 < found.breaks <= 4 * PROGRAMS[program], found


def test_what_is_said() -> None:
    with pytest.raises(stator.GraphBreakError, match="accuracy_score"):
        stator.compile(scored, fullgraph=True)(torch.ones(4))


def test_a_function_itself() -> None:
    """What is compiled is traced, wherever it stands."""
    compiled = stator.compile(metrics.mean_squared_error)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(3):
            left, right = np.arange(3.0), np.ones(3) * call
            assert compiled(left, right) == metrics.mean_squared_error(left, right)
