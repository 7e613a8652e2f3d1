"""`pickle.dumps` of plain data, in which numbers vary from call to call: what C code would write, to the byte."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

STATE = SimpleNamespace(step=0, name="first", names=["a", "b"], other="x")
Program = Callable[[Tensor, dict[str, Any]], Any]


def record(x: Tensor, kept: dict[str, Any]) -> Tensor:
    loss = x.square().sum()
    STATE.step += 1
    kept["blob"] = pickle.dumps({"step": STATE.step, "loss": loss.item(), "name": STATE.name})
    return loss


def values(x: Tensor, kept: dict[str, Any]) -> Tensor:
    kept["all"] = pickle.dumps(
        [x.tolist(), (x.sum().item(), None, True), {}, [], {"a": {"b": 1.5}}]
    )
    kept["one"] = pickle.dumps(x.sum().item())
    kept["many"] = pickle.dumps(list(range(20)) + [x.mean().item()])
    return x


def protocols(x: Tensor, kept: dict[str, Any]) -> Tensor:
    data = {"mean": x.mean().item(), "sizes": list(x.shape)}
    kept["two"] = pickle.dumps(data, 2)
    kept["four"] = pickle.dumps(data, protocol=4)
    return x


def constants(x: Tensor, kept: dict[str, Any]) -> Tensor:
    kept["settings"] = pickle.dumps({"name": STATE.name, "lr": 0.1})
    return x * 2


def returned(x: Tensor, kept: dict[str, Any]) -> Any:
    blob = pickle.dumps({"mean": x.mean().item()})
    kept.setdefault("blobs", []).append(blob)
    return x + 1, blob


WHOLE = [record, values, protocols, constants, returned]


def loaded(x: Tensor, kept: dict[str, Any]) -> Any:
    blob = pickle.dumps({"mean": x.mean().item()})
    return pickle.loads(blob), len(blob), blob[:4], blob == b"", hash(blob)


def met_twice(x: Tensor, kept: dict[str, Any]) -> Any:
    inner = [x.sum().item()]
    kept["shared"] = pickle.dumps({"a": inner, "b": inner})
    kept["texts"] = pickle.dumps([STATE.name, STATE.other, x.mean().item()])
    kept["outside"] = pickle.dumps({"names": STATE.names, "mean": x.mean().item()})
    kept["spelt"] = pickle.dumps([f"{x.mean().item():.3f}", f"{STATE.step}"])
    return x


def refused(x: Tensor, kept: dict[str, Any]) -> Any:
    kept["keys"] = pickle.dumps({1: x.sum().item()})
    try:
        return pickle.dumps({"f": lambda: x.sum().item()})
    except (pickle.PicklingError, AttributeError) as error:
        return type(error).__name__


def deep(x: Tensor, kept: dict[str, Any]) -> Any:
    data: Any = [x.sum().item()]
    for _ in range(12):
        data = [data]
    kept["deep"] = pickle.dumps(data)
    kept["tensor"] = len(pickle.dumps({"weight": x}))
    return x


def changes(call: int) -> None:
    STATE.name = "first" if call < 4 else "second"
    # Equal, and one object only in some calls.
    STATE.other = STATE.name if call in (2, 3) else "".join(["fir", "st"])
    STATE.names = ["a", "b"] if call < 5 else ["a", "a"]


def run(program: Program, step: Program) -> list[Any]:
    torch.manual_seed(0)
    STATE.step, found = 0, []
    kept: dict[str, Any] = {}
    for call in range(8):
        changes(call)
        result = step(torch.randn(2, 3), kept)
        found.append((str(result), {key: str(value) for key, value in kept.items()}))
    return found


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize(
    "program", [*WHOLE, loaded, met_twice, refused, deep], ids=lambda it: it.__name__
)
def test_pickles_are_plain_pythons(program: Program, skip: bool) -> None:
    compiled = stator.compile(program)
    with stator.config.patch(skip_unprofitable=skip):
        assert run(program, compiled) == run(program, program)
    stats = stator.stats(compiled)
    if program in WHOLE and not skip:
        assert (stats.breaks, stats.native) == (0, 0), stats.reason
        assert stats.hits >= 4
