"""Threads: each has its own selected device, streams and modes; entries are for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from differential.support import api
from torch import Tensor
from torch.nn import functional as F

CALLS = 40


def run(*bodies: Callable[[], None]) -> None:
    """Each in a thread of its own, from one moment on; the first error is raised."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(bodies))

    def guarded(body: Callable[[], None]) -> None:
        try:
            start.wait(30)
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread hangs"
    for error in errors:
        raise error


def program(x: Tensor) -> Any:
    y = F.gelu(x @ x.t()) + torch.ones(x.shape[0], device=x.device)
    return y.sum(), y * 2


def checks(compiled: Any, x: Tensor, context: Callable[[], Any]) -> Callable[[], None]:
    def body() -> None:
        with context():
            for call in range(CALLS):
                given = x + call
                found, expected = compiled(given), program(given)
                for ours, plain in zip(found, expected, strict=True):
                    assert torch.equal(ours, plain) and ours.dtype == plain.dtype
                    assert ours.device == plain.device

    return body


def streams(device: str) -> list[Callable[[], AbstractContextManager[Any]]]:
    lib = getattr(torch, device)
    made = [lib.Stream(), lib.Stream()]
    return [lambda: lib.stream(made[0]), lambda: lib.stream(made[1])]


def test_streams(device: str) -> None:
    compiled = api.compile(program)
    x = (torch.arange(64.0).reshape(8, 8) / 64).to(device)
    if device == "cuda":
        torch.cuda.synchronize()
    first, second = streams(device)
    run(*(checks(compiled, x, context) for context in (first, second, nullcontext)))
    assert api.PLAIN or api.hits(compiled) > CALLS


def test_modes(device: str) -> None:
    """Autocast and gradients are on in one thread and off in the other."""
    compiled = api.compile(program)
    x = (torch.arange(64.0).reshape(8, 8) / 64).to(device)
    if device == "cuda":
        torch.cuda.synchronize()
    run(
        checks(compiled, x, lambda: torch.autocast(device, dtype=torch.bfloat16)),
        checks(compiled, x, torch.no_grad),
        checks(compiled, x, torch.inference_mode),
    )
    assert api.PLAIN or api.hits(compiled) > CALLS


def test_selected_devices(two_devices: int) -> None:
    def made(x: Tensor) -> Any:
        return x.cuda() * 2, torch.ones(3, device="cuda"), torch.cuda.current_device()

    compiled = api.compile(made)

    def body(index: int) -> Callable[[], None]:
        def checks() -> None:
            torch.cuda.set_device(index)
            for _ in range(CALLS):
                found, expected = compiled(torch.ones(3)), made(torch.ones(3))
                assert [ours.device for ours in found[:2]] == [it.device for it in expected[:2]]
                assert found[2] == expected[2] == index
                assert torch.equal(found[0], expected[0])

        return checks

    run(body(0), body(1), body(0))
