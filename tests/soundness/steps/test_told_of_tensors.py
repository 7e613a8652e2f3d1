"""What tensors say of themselves that no guard can: how often they were written, where their memory is, whether they have a node."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

from .results import agree

HELD: dict[str, Any] = {"t": torch.zeros(3), "w": nn.Parameter(torch.ones(3)), "seen": {}}


def versions(x: Tensor, i: int) -> Any:
    t = HELD["t"]
    before = t._version
    t.add_(x[0])
    y = x * 2
    y[0] = i
    return t._version - before, y._version, t._version, x._version > 0


def versions_of_views(x: Tensor, i: int) -> Any:
    y = x.clone()
    v = y[1:]
    before = v._version
    y.mul_(2)
    v.neg_()
    return before, v._version, y._version, y.detach()._version, [v._version] * 2


def version_decides(x: Tensor, i: int) -> Any:
    if HELD["t"]._version != HELD["seen"].get("t"):
        HELD["seen"]["t"] = HELD["t"]._version
        return x * 2
    return x + 1


def same_memory(x: Tensor, i: int) -> Any:
    y = x.view(-1)
    return x.data_ptr() == y.data_ptr(), y[1:].data_ptr() - x.data_ptr(), x.clone().data_ptr() == 0


def tied(x: Tensor, i: int) -> Any:
    seen: set[int] = set()
    shared = [HELD["w"], HELD["w"].detach(), HELD["t"]]
    for it in shared:
        seen.add(it.data_ptr())
    return len(seen), HELD["t"].data_ptr() == shared[1].data_ptr()


def other_data(x: Tensor, i: int) -> Any:
    w, t = HELD["w"], HELD["t"]
    before = w.data_ptr(), t.data_ptr()
    w.data = w.data * 2
    t.set_(x.clone()) if i % 2 else t.swap_tensors(x) if hasattr(t, "swap_tensors") else None
    moved = w.data_ptr() != before[0], w.data_ptr() == w.detach().data_ptr()
    held = w.data.data_ptr() == w.data_ptr(), t.data_ptr() == before[1]
    return moved, held, w._version, t._version


def of_gradients(x: Tensor, i: int) -> Any:
    w = HELD["w"]
    if w.requires_grad:
        (w * x).sum().backward()
        first = w.grad._version
        w.grad.mul_(0.5)
        return first, w.grad._version, w.grad.data_ptr() != w.data_ptr(), w._version
    return w._version


def nodes(x: Tensor, i: int) -> Any:
    y = x * HELD["w"]
    z = y.detach()
    found = [y.grad_fn is not None, z.grad_fn is None, (x + 1).grad_fn is None]
    if y.grad_fn is None:
        return found, x
    node = y.grad_fn
    return found, y.detach(), 1 if y.grad_fn else 0, type(node).__name__


def in_inference(x: Tensor, i: int) -> Any:
    with torch.inference_mode():
        y = x + 1
        try:
            return y._version
        except RuntimeError as error:
            return str(error)


PROGRAMS = [
    other_data,
    of_gradients,
    versions,
    versions_of_views,
    version_decides,
    same_memory,
    tied,
    nodes,
    in_inference,
]
WHOLE = [versions, versions_of_views, version_decides, same_memory]


def change(i: int) -> None:
    if i == 3:
        HELD["t"].mul_(2)
    if i == 5:
        HELD["t"] = torch.zeros(3)
    if i == 6:
        HELD["w"].requires_grad_(False)
    if i == 7:
        HELD["t"] = HELD["w"].detach()


def run(fn: Any) -> list[Any]:
    HELD.update(t=torch.zeros(3), w=nn.Parameter(torch.ones(3)), seen={})
    found = []
    for i in range(9):
        change(i)
        x = torch.full((3 if i != 4 else 5,), float(i))
        found.append(fn(x[:3] if fn is nodes else x, i) if i != 4 else fn(x[:3].clone(), i))
    return found


@pytest.mark.parametrize("program", PROGRAMS)
def test_like_plain(program: Any) -> None:
    api.reset()
    expected = run(program)
    compiled = api.compile(program, backend="eager")
    found = run(compiled)
    agree(expected, found)
    if program in WHOLE:
        assert not api.breaks(compiled), api.reason(compiled)


def test_with_another_backend() -> None:
    api.reset()
    assert run(same_memory) == run(api.compile(same_memory, backend="aot_eager"))
