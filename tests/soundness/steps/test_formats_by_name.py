"""`"...".format(**self.__dict__)` of a meter that holds tensors with one element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from .results import agree, copied, runs_whole


class Meter:
    """As training scripts of PyTorch's examples have it."""

    def __init__(self, name: str, fmt: str = ":f") -> None:
        self.name, self.fmt, self.rows = name, fmt, torch.zeros(3)
        self.val: Any = 0
        self.sum: Any = 0
        self.avg: Any = 0
        self.count = 0

    def update(self, val: Any, n: int = 1) -> None:
        self.val = val
        self.sum = self.sum + val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self) -> str:
        text = "{name} {val" + self.fmt + "} ({avg" + self.fmt + "})"
        return text.format(**self.__dict__)


def metered(x: Tensor) -> Any:
    loss, top = Meter("Loss", ":.4e"), Meter("Acc@1", ":6.2f")
    for row in x:
        loss.update(row.sum().item(), 2)
        top.update(row.mean())
    return [str(loss), str(top)], x * 2


def printed(x: Tensor) -> Any:
    top = Meter("Acc@1", ":6.2f")
    top.update(x.mean())
    print("\t".join(["Epoch", str(top)]))
    return x + 1


def mixed(x: Tensor) -> Any:
    named = {"a": x.max(), "b": x.shape, "c": "z", "rows": x[0]}
    return "{} {a:.2f} {b} {c:>5}".format(x.sum(), **named), x + 1


def of_rows(x: Tensor) -> Any:
    return "{a} {b}".format(a=x[0], b=x.sum()), x + 1


def of_parts(x: Tensor) -> Any:
    return "{a.shape} {b[0]:.1f}".format(a=x, b=[x.sum().item()]), x + 1


def refused(x: Tensor) -> Any:
    try:
        return "{a:.2f}".format(a=x[0]), x
    except TypeError as error:
        return str(error), x


FUNCTIONS: list[Callable[[Tensor], Any]] = [metered, printed, mixed, of_rows, of_parts, refused]
WHOLE = {metered, printed, mixed}


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_calls(fn: Callable[[Tensor], Any], capsys: pytest.CaptureFixture[str]) -> None:
    api.reset()
    inputs = [torch.arange(6.0).view(2, 3) * scale for scale in (1.0, 2.0, 0.5, -3.0, 1.0)]
    expected = [copied(fn(x)) for x in inputs]
    told = capsys.readouterr().out
    compiled = api.compile(fn)
    found = [copied(compiled(x)) for x in inputs]
    assert capsys.readouterr().out == told
    agree(expected, found)
    if fn in WHOLE:
        runs_whole(compiled, 3)
