"""Warnings that operations give: in a replay they name the program's line, and are filtered by its module."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from differential.support import api
from torch import Tensor, nn

import stator


def resized(x: Tensor) -> Any:
    out = torch.empty(1)
    torch.cat([x, x], out=out)
    return out + 1


def sizes_differ(x: Tensor) -> Any:
    return F.mse_loss(x, x.unsqueeze(0))


def no_dimension(x: Tensor) -> Any:
    y = x * 2
    return F.softmax(y) + F.log_softmax(y)


def array(x: Tensor) -> Any:
    return torch.from_numpy(np.array(x) * 2) + 1


class Block(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.l1_loss(x, x.unsqueeze(0))


BLOCKS = nn.Sequential(nn.Identity(), Block(), Block())


def within_modules(x: Tensor) -> Any:
    losses = [block(x) for block in BLOCKS]
    return sum(loss.sum() for loss in losses)


def nested(x: Tensor) -> Any:
    def inner(y: Tensor) -> Tensor:
        return (lambda z: F.softmin(z))(y) + F.mse_loss(y, y.unsqueeze(0))

    return inner(x) + inner(x + 1)


def generated(x: Tensor) -> Any:
    return [loss for loss in (F.mse_loss(x * i, x.unsqueeze(0)) for i in range(2))]


def behind_a_decision(x: Tensor) -> Any:
    y = F.softmin(x)
    if x.sum() > 3:
        return F.softmin(y)
    return F.softmin(y + 1), y


NET = nn.Linear(3, 3)
NET.register_full_backward_hook(lambda module, given, got: None)


def of_pytorchs_own_hook(x: Tensor) -> Any:
    # No input asks for a gradient: PyTorch's hook warns.
    NET.zero_grad()
    NET(x).sum().backward()
    return NET.weight.grad


CASES = [
    *(resized, sizes_differ, no_dimension, array, within_modules, nested, generated),
    *(behind_a_decision, of_pytorchs_own_hook),
]
Seen = list[tuple[str, int, str, str]]


def seen(fn: Callable[..., Any], calls: int, action: Any = "always") -> Seen:
    found: Seen = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        for i in range(calls):
            fn(torch.full((3,), float(i % 3)))
    for warning in caught:
        found.append(
            (warning.filename, warning.lineno, warning.category.__name__, str(warning.message))
        )
    return found


@pytest.mark.parametrize("action", ["always", "default", "module", "once"])
@pytest.mark.parametrize("fn", CASES)
def test_they_name_the_line(fn: Callable[..., Any], action: str) -> None:
    compiled = api.compile(fn)
    forget()
    expected = seen(fn, 6, action)
    forget()
    with stator.config.patch(skip_unprofitable=False):
        found = seen(compiled, 6, action)
    assert expected and found == expected
    assert api.PLAIN or stator.stats(compiled).hits > 2


def test_filters_find_the_module() -> None:
    compiled = stator.compile(within_modules)
    with stator.config.patch(skip_unprofitable=False):
        for module, count in ((__name__, 0), ("somewhere.else", 6)):
            for fn in (within_modules, compiled):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    warnings.filterwarnings("ignore", module=module)
                    for _ in range(3):
                        fn(torch.ones(3))
                assert len(caught) == count


@pytest.mark.parametrize("fn", [resized, nested, within_modules, array])
def test_a_warning_that_is_an_error(fn: Callable[..., Any]) -> None:
    compiled = stator.compile(fn)
    x = torch.ones(3)
    with stator.config.patch(skip_unprofitable=False):
        seen(compiled, 4)
        places = []
        for each in (fn, compiled):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    each(x)
                except Warning as error:
                    lines = traceback.extract_tb(error.__traceback__)
                    places.append(
                        (str(error), [(line.filename, line.lineno) for line in lines[1:]])
                    )
                else:
                    places.append(("none", []))
        assert places[0] == places[1]
        # And again as before.
        forget()
        expected = seen(fn, 2)
        forget()
        assert seen(compiled, 2) == expected


KEPT: list[tuple[Any, Any]] = []


def callers(frame: Any) -> list[tuple[str, int]]:
    found = []
    while frame is not None and frame.f_code.co_name != "test_frames_that_are_kept":
        found.append((frame.f_code.co_qualname, frame.f_lineno))
        frame = frame.f_back
    return found


def keep_frame(*args: Any, **kwargs: Any) -> None:
    KEPT.append((sys._getframe(), callers(sys._getframe())))


def test_frames_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = stator.compile(within_modules)
    found = []
    with stator.config.patch(skip_unprofitable=False):
        seen(compiled, 3)
        for fn in (within_modules, compiled):
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                monkeypatch.setattr(warnings, "showwarning", keep_frame)
                for _ in range(3):
                    fn(torch.ones(3))
            # What called them is known when they are no longer running, too; lines have gone on.
            seen(compiled, 2)
            later = [[name for name, _ in callers(frame)] for frame, _ in KEPT]
            found.append(([then for _, then in KEPT], later))
            KEPT.clear()
            gc.collect()
    then, later = found[0]
    assert len(later) == 6 and len(later[0]) > 5
    assert found[1] == (then, later)


def test_replays_within_replays_and_beside_them() -> None:
    depth = threading.local()

    def hook(gradient: Tensor) -> Tensor:
        if getattr(depth, "value", 0) < 2:
            depth.value = getattr(depth, "value", 0) + 1
            with torch.enable_grad():
                compiled(torch.ones(3))
            depth.value -= 1
        return gradient

    def step(x: Tensor) -> Any:
        y = (x * 2).requires_grad_()
        y.register_hook(hook)
        F.mse_loss(y, x.unsqueeze(0)).backward()
        return y.grad, F.softmin(x)

    compiled = step
    plain = seen(step, 4)
    compiled = stator.compile(step)
    with stator.config.patch(skip_unprofitable=False):
        assert seen(compiled, 4) == plain
    compiled = stator.compile(nested)
    failures = []

    def work() -> None:
        for _ in range(50):
            if not torch.equal(compiled(torch.ones(3)), nested(torch.ones(3))):
                failures.append("differs")

    with stator.config.patch(skip_unprofitable=False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def forget() -> None:
    """What was warned of is warned of again."""
    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType):
            vars(module).pop("__warningregistry__", None)
