"""`json.dumps` of plain data, in which numbers were read from tensors: what C code would write, to the letter."""

from __future__ import annotations

import json
import json.encoder
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import stator

CONFIG: dict[str, Any] = {"lr": 0.1, "names": ("a", "ü"), "none": None, "deep": {"x": [True, 1]}}
STEPS = {"step": 0}


class Level(int):
    pass


def record(x: Tensor, logs: list[Any]) -> Tensor:
    loss = x.square().sum()
    STEPS["step"] += 1
    logs.append(json.dumps({"loss": loss.item(), "step": STEPS["step"], "sizes": list(x.shape)}))
    return loss


def values(x: Tensor, logs: list[Any]) -> Tensor:
    logs.append(json.dumps(x.tolist()))
    logs.append(json.dumps((x.sum().item(), [], {}, (), 'é\n"', {"a": [[]]})))
    logs.append(json.dumps(x.sum().item()) + json.dumps("text") + json.dumps(None))
    return x


def settings(x: Tensor, logs: list[Any]) -> Tensor:
    told = {"b": x.sum().item(), "a": "ü", "c": {"z": 1, "y": (x > 0).sum().item()}}
    logs.append(json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    logs.append(json.JSONEncoder(sort_keys=True).encode(told))
    return x


def outside(x: Tensor, logs: list[Any]) -> Tensor:
    logs.append(json.dumps(CONFIG))
    return x * CONFIG["lr"]


def rounded(x: Tensor, logs: list[Any]) -> Tensor:
    logs.append(json.dumps({"mean": round(x.mean().item(), 3), "random": random.random()}))
    return x


def indented(x: Tensor, logs: list[Any]) -> Tensor:
    told = {"b": [1, {"z": x.sum().item()}, []], "a": {}, "c": ()}
    logs.append(json.dumps(told, indent=1))
    logs.append(json.dumps(told, indent="\t", sort_keys=True, separators=(";", "=")))
    logs.append(json.dumps(CONFIG, indent=-2) + json.dumps(told, indent=0))
    return x


WHOLE = [record, values, settings, outside, rounded, indented]


def by_true(x: Tensor, logs: list[Any]) -> Tensor:
    logs.append(json.dumps({"a": [x.sum().item()]}, indent=True))
    return x


def keys(x: Tensor, logs: list[Any]) -> Tensor:
    logs.append(json.dumps({1: "a", None: "b", 2.5: x.sum().item(), False: 0}))
    return x


def refused(x: Tensor, logs: list[Any]) -> Tensor:
    logs.append(json.dumps({"a": x.sum().item(), "b": x}))
    return x


def without_nan(x: Tensor, logs: list[Any]) -> Tensor:
    logs.append(json.dumps([x.sum().item()], allow_nan=False))
    return x


def circular(x: Tensor, logs: list[Any]) -> Tensor:
    found: list[Any] = [x.sum().item()]
    found.append(found)
    logs.append(json.dumps(found))
    return x


def by_default(x: Tensor, logs: list[Any]) -> Tensor:
    logs.append(json.dumps({"a": x}, default=lambda it: it.tolist()))
    return x


def subclasses(x: Tensor, logs: list[Any]) -> Tensor:
    logs.append(json.dumps([Level(3), np.float64(0.5), x.sum().item()]))
    return x


OTHERS = [by_true, keys, refused, without_nan, circular, by_default, subclasses]
INPUTS = [
    [1.0, 2.0, 3.0],
    [0.1, 1e22, -3.0],
    [2.0, 1.0, 1e-7],
    [float("nan"), 1.0, 2.0],
    [float("inf"), 1.0, 2.0],
    [-float("inf"), 1.0, 0.0],
    [-0.0, 0.0, 0.0],
    [3.0, 2.0, 1.0],
]


def outcomes(fn: Callable[..., Any]) -> list[str]:
    STEPS["step"] = 0
    CONFIG.update(lr=0.1, extra=1)
    random.seed(2)
    found = []
    for call, given in enumerate(INPUTS * 2):
        logs: list[Any] = []
        if call == 7:
            CONFIG["lr"] = 0.2
            del CONFIG["extra"]
        try:
            found.append(repr((fn(torch.tensor(given), logs), logs)))
        except Exception as error:
            found.append(repr((error, logs)))
    return found


@pytest.mark.parametrize("is_hidden", [False, True])
@pytest.mark.parametrize("fn", [*WHOLE, *OTHERS])
def test_texts_are_plain_ones(fn: Callable[..., Any], is_hidden: bool) -> None:
    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=is_hidden, strict=True):
        assert outcomes(compiled) == outcomes(fn)
    if fn in WHOLE and not is_hidden:
        told = stator.stats(compiled)
        assert (told.breaks, told.native) == (0, 0), told
        assert told.hits >= 10


def test_what_json_uses_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(x: Tensor) -> tuple[Tensor, str]:
        return x + 1, json.dumps({"a": x.sum().item()})

    x = torch.ones(3)
    compiled = stator.compile(fn)
    with stator.config.patch(skip_unprofitable=False, strict=True):
        for _ in range(3):
            assert compiled(x)[1] == '{"a": 3.0}'
        with monkeypatch.context() as patch:
            patch.setattr(json.encoder, "c_make_encoder", None)
            patch.setattr(json.encoder, "_make_iterencode", lambda *args: lambda o, level: ["?"])
            assert compiled(x)[1] == fn(x)[1] == "?"
        with monkeypatch.context() as patch:
            patch.setattr(json.JSONEncoder, "iterencode", lambda self, o, _one_shot: ["!"])
            assert compiled(x)[1] == fn(x)[1] == "!"
        with monkeypatch.context() as patch:
            patch.setattr(json.JSONEncoder, "item_separator", ";")
            patch.setattr(json.JSONEncoder, "key_separator", "=")
            assert compiled(x)[1] == fn(x)[1] == '{"a"=3.0}'
        assert compiled(x)[1] == '{"a": 3.0}'
