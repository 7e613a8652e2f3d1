"""Numbers that tensor programs read from tensors: `t.item()`, `int(t)`, `float(t)`."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest
import torch

import stator.federated as fl
from stator.errors import ProgramError
from stator.federated.execution import LocalContext
from stator.programs import TensorProgram, TensorSpec

X = torch.tensor([0.5, -1.25, 3.0, 2.0, -0.75, 1.5])
NUMBERS = [torch.tensor(number) for number in (3, 0, 1, 6, 7, -1, -2, -7, 2)]


def kept(x: Any, t: Any) -> Any:
    c = t.clone()
    number = c.item()
    c += 1
    return x * number, c


def written(x: Any, t: Any) -> Any:
    y = x.clone()
    y[: int(t)] = 0
    y[int(t) // 8] = 1
    return y


USES = {
    "a slice": lambda x, t: x[: int(t)],
    "slices": lambda x, t: (x[-int(t) :], x[t.item() :], x[int(t) : int(t) + 1], x[: int(t), None]),
    "a stride": lambda x, t: x[:: int(t)],
    "an element": lambda x, t: x[t.item()],
    "sizes": lambda x, t: (torch.arange(int(t)), torch.zeros(int(t)), torch.eye(int(t))),
    "how many": lambda x, t: (x.topk(int(t)).values, x.narrow(0, 0, int(t)).sum()),
    "padded": lambda x, t: torch.nn.functional.pad(x[: int(t)], (0, 6 - int(t))),
    "a shape": lambda x, t: x.reshape(int(t), -1),
    "a quotient": lambda x, t: x * (1 / t.item()) + int(t) // 2 + float(t) % 3,
    "a function": lambda x, t: x * math.sqrt(t.item()) + math.exp(float(t)) + round(t.item() / 7),
    "tensors": lambda x, t: (torch.tensor([int(t), 1]), torch.tensor(t.item()), x.new_full((2,), int(t))),
    "beside tensors": lambda x, t: (x.clamp(max=t.item()), x.masked_fill(x > 0, float(t)), x ** int(t)),
    "extremes": lambda x, t: x * min(int(t), 5) + max(t.item(), 1) + abs(int(t)),
    "its type": lambda x, t: x * (type(t.item()) is int) * isinstance(float(t), float),
    "results": lambda x, t: (t.item(), float(t), {"sum": x.sum().item(), "n": int(t) + 1}),
    "counted": lambda x, t: x[: (x > t).sum().item()],
    "a list": lambda x, t: x * sum(torch.stack([t, t + 1]).tolist()),
    "kept": kept,
    "written": written,
}  # fmt: skip


def leaves(found: Any) -> list[torch.Tensor]:
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, (list, tuple)):
        return [leaf for part in found for leaf in leaves(part)]
    return [torch.as_tensor(found)]


def outcome(fn: Any, *args: Any) -> Any:
    try:
        return leaves(fn(*[arg.clone() for arg in args]))
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("fn", USES.values(), ids=USES)
def test_each_run_reads_its_own(fn: Any) -> None:
    program = TensorProgram.trace(fn, (TensorSpec(torch.float32, (6,)), torch.int64))
    again = TensorProgram.from_bytes(program.to_bytes())
    for number in NUMBERS:
        expected = outcome(fn, X, number)
        for run in (program, again):
            found = outcome(run, X, number)
            if isinstance(expected, type):
                assert found is expected
                continue
            for own, plain in zip(found, expected, strict=True):
                assert own.dtype == plain.dtype
                torch.testing.assert_close(own, plain, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("number", [1.5, -2.25, 0.0, math.inf, math.nan])
def test_floats(number: float) -> None:
    def fn(x: Any, t: Any) -> Any:
        return x * t.item(), x + float(t), float(t) ** 2, int(t) + 1

    program = TensorProgram.trace(fn, (TensorSpec(torch.float32, (6,)), torch.float32))
    expected = outcome(fn, X, torch.tensor(number))
    found = outcome(program, X, torch.tensor(number))
    if isinstance(expected, type):
        assert found is expected
    else:
        assert all(map(torch.equal, found, expected))


REFUSED = {
    "decided by": (lambda x, t: x if int(t) > 2 else -x, "a comparison"),
    "its truth": (lambda x, t: x if t.item() else -x, "a truth value"),
    "a loop": (lambda x, t: [x * at for at in range(int(t))], "read by range"),
    "a text": (lambda x, t: x * len(str(int(t))), "the text of a number"),
    "a key": (lambda x, t: x * {3: 2.0}.get(int(t), 1.0), "an index or key"),
    "as many": (lambda x, t: ([1] * int(t), x), "an operator of containers"),
    "a dimension": (lambda x, t: x.unsqueeze(int(t) - 3), "unsqueeze"),
    "many results": (lambda x, t: x.split(int(t))[0], "split"),
}


@pytest.mark.parametrize(("fn", "why"), REFUSED.values(), ids=REFUSED)
def test_nothing_is_decided_by_one(fn: Any, why: str) -> None:
    with pytest.raises(ProgramError, match=why) as raised:
        TensorProgram.trace(fn, (TensorSpec(torch.float32, (6,)), torch.int64))
    assert f"{__file__}" in str(raised.value)


ROWS = fl.TensorType(np.float32, [None, 2])


def given(sizes: tuple[int, ...]) -> list[Any]:
    torch.manual_seed(0)
    return [torch.randn(size, 2).numpy() for size in sizes]


@pytest.mark.parametrize("sizes", [(4, 4, 4), (3, 5, 4, 5)])
def test_clients_run_at_once_that_read_and_give_numbers(
    sizes: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stator.federated")

    @fl.local_computation(ROWS)
    def told(x):
        loss = x.square().mean()
        count = (x > 0).sum()
        before = count.item()
        count += 5
        assert type(loss.item()) is float
        return {
            "full": torch.full((2,), before) + torch.full((), loss.item()),
            "made": torch.tensor(float(loss)) * 2,
            "loss": loss.item(),
            "scaled": (x * float(loss)).sum(0) + before,
            "n": int(count),
        }

    comp = fl.federated_computation(
        lambda rows: fl.federated_collect(fl.federated_map(told, rows)),
        fl.FederatedType(ROWS, fl.CLIENTS),
    )
    found = []
    for exact in (False, True):
        with fl.framework.get_context_stack().install(LocalContext(threads=1, exact=exact)):
            found.append(comp(given(sizes)))
    for own, plain in zip(*found, strict=True):
        assert own["n"] == plain["n"] and own["loss"].dtype == plain["loss"].dtype
        assert abs(own["loss"] - plain["loss"]) < 1e-6
        for name in ("scaled", "full", "made"):
            assert own[name].dtype == plain[name].dtype
            assert abs(own[name] - plain[name]).max() < 1e-5
    assert not caplog.messages


def test_a_division_by_a_number_that_is_zero_is_a_clients_own_error() -> None:
    @fl.local_computation(ROWS)
    def share(x):
        return x.sum() * (1 / (x > 0).sum().item())

    comp = fl.federated_computation(
        lambda rows: fl.federated_sum(fl.federated_map(share, rows)),
        fl.FederatedType(ROWS, fl.CLIENTS),
    )
    rows = given((4, 4, 4))
    rows[1][:] = -1
    for exact in (False, True):
        with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
            with pytest.raises(ZeroDivisionError) as raised:
                comp(rows)
            assert "at client 1" in raised.value.__notes__


def put(x: Any, t: Any) -> Any:
    y = x.clone()
    y[int(t)] = 5
    y[int(t) - 1, ...] += 1
    return y


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize(
    "use",
    [
        lambda x, t: x[int(t)],
        lambda x, t: x[t.item() - 4],
        lambda x, t: x.repeat(2, 1)[int(t) - 1, int(t)],
        lambda x, t: x[None, int(t)],
        lambda x, t: x[(x > 0)][int(t)],
        put,
    ],
)
def test_places_among_few_elements(use: Any, count: int) -> None:
    """Which number it is isn't known while a program is traced: it may be in any tensor."""
    program = TensorProgram.trace(use, (TensorSpec(torch.float32, (count,)), torch.int64))
    x = torch.arange(1.0, count + 1)
    for number in (0, count - 1, count + 3, -1, 9):
        t = torch.tensor(number)
        try:
            expected = use(x, t)
        except IndexError:
            with pytest.raises(IndexError, match="out of bounds"):
                program(x, t)
        else:
            assert torch.equal(program(x, t)[0], expected)
