"""Calls that models make beside their operations: draws of `random`, locks, devices, checks, flags.

Each gives what plain Python gives, recorded and replayed, and once more after what it reads has changed.
"""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

OWN = random.Random(1)
LOCK, RLOCK = threading.Lock(), threading.RLock()


def uniform(x: Tensor) -> Any:
    return x * random.uniform(0, 1) if x.shape[0] > 1 else x


def layerdrop(x: Tensor) -> Any:
    for _ in range(4):
        if random.random() < 0.5:
            x = x + 1
    return (
        x,
        random.randint(0, 9),
        random.choice([1, 2, 3]),
        OWN.gauss(0, 1),
        OWN.sample(range(9), 3),
    )


def locked(x: Tensor) -> Any:
    with LOCK:
        y = x + 1
    with RLOCK, RLOCK:
        return y * 2, LOCK.locked()


def own_lock(x: Tensor) -> Any:
    lock = threading.Lock()
    with lock:
        return x + 1


def device(x: Tensor) -> Any:
    with torch.device("cpu"):
        y = x + torch.arange(3)
    with torch.device("meta"):
        made = torch.empty(2)
        shape, where = made.shape, made.device
    return y, shape, where, torch.zeros(1).device


def checks(x: Tensor) -> Any:
    torch._check(x.shape[0] == 3)
    torch._check(x.dim() > 0, lambda: f"sizes {x.shape}")
    torch._check_with(ValueError, x.shape[0] < 9, lambda: "too long")
    torch._check_index(x.shape[0] > 1)
    torch._check_value(x.is_floating_point(), lambda: "floats")
    torch._check_type(isinstance(x, Tensor))
    torch._check_not_implemented(x.device.type == "cpu")
    return x + 1


def fails(x: Tensor) -> Any:
    torch._check_value(x.shape[0] != 3, lambda: f"{x.shape[0]} rows")
    return x + 1


def handles(x: Tensor) -> Any:
    try:
        torch._check(x.shape[0] != 3, lambda: f"{x.shape[0]} rows")
    except RuntimeError as error:
        return x - 1, str(error)
    return x + 1


def checks_data(x: Tensor) -> Any:
    torch._check_tensor_all(x > 0, lambda: "positive")
    return x + 1


def flags(x: Tensor) -> Any:
    backends = torch.backends
    found = [backends.cudnn.enabled, backends.cudnn.benchmark, backends.cudnn.deterministic]
    found += [backends.cudnn.allow_tf32, backends.mkldnn.enabled, backends.cuda.matmul.allow_tf32]
    found += [backends.mkldnn.is_available(), backends.cuda.flash_sdp_enabled()]
    return x + sum(found), found


class Reads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Any:
        parameters = object.__getattribute__(self, "_parameters")
        return x * parameters["w"], object.__getattribute__(self, "training")


PROGRAMS = [
    uniform,
    layerdrop,
    locked,
    own_lock,
    device,
    checks,
    fails,
    handles,
    checks_data,
    flags,
]


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return repr(fn(*args))
    except Exception as error:
        return type(error), str(error)


@pytest.fixture(autouse=True)
def flags_restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # PyTorch's own test utilities, which other tests import, forbid what users may do.
    known = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(known, "__allow_nonbracketed_mutation_flag", True)
    cudnn = torch.backends.cudnn
    before = cudnn.enabled, cudnn.benchmark
    yield
    cudnn.enabled, cudnn.benchmark = before


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_results(program: Callable[[Tensor], Any], dynamic: bool | None) -> None:
    compiled = api.compile(program, dynamic=dynamic)
    values = [torch.ones(3), torch.ones(3) * 2, torch.ones(3) * -1, torch.ones(4), torch.ones(12)]
    for x in [values[0], *values, *values]:
        results = []
        for fn in (program, compiled):
            random.seed(5)
            OWN.seed(7)
            results.append((outcome(fn, x), random.random(), OWN.random()))
        assert results[0] == results[1]
        assert not LOCK.locked()


def test_draws_go_on() -> None:
    compiled = api.compile(layerdrop)
    random.seed(3)
    OWN.seed(3)
    expected = [repr(layerdrop(torch.ones(2))) for _ in range(12)]
    random.seed(3)
    OWN.seed(3)
    assert [repr(compiled(torch.ones(2))) for _ in range(12)] == expected


def test_flags_change() -> None:
    compiled = api.compile(flags)
    for enabled in (True, True, False, False, True):
        for benchmark in (False, True):
            torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark = enabled, benchmark
            assert repr(compiled(torch.ones(2))) == repr(flags(torch.ones(2)))


def test_plain_reads_of_modules() -> None:
    module = Reads()
    compiled = api.compile(module, fullgraph=True)
    for step in range(4):
        assert repr(compiled(torch.ones(3))) == repr(module(torch.ones(3)))
        if step == 1:
            module.w = torch.nn.Parameter(torch.ones(3) * 5)
            module.eval()


def test_checks_are_traced() -> None:
    for program in (checks, handles):
        compiled = api.compile(program, fullgraph=True, dynamic=True)
        for size in (3, 3, 3):
            assert repr(compiled(torch.ones(size))) == repr(program(torch.ones(size)))
        assert api.hits(compiled) != 0


@pytest.mark.parametrize("program", [locked, device])
def test_an_error_inside_a_block(program: Callable[[Tensor], Any]) -> None:
    def raising(x: Tensor) -> Any:
        try:
            with LOCK, torch.device("cpu"):
                made = torch.arange(3) + torch.linalg.cholesky(x)
        except RuntimeError as error:
            return str(error), LOCK.locked(), torch.zeros(1).device
        return made, program(x)

    compiled = api.compile(raising)
    for x in [torch.eye(3)] * 3 + [-torch.eye(3)] * 3 + [torch.eye(3)]:
        assert outcome(compiled, x) == outcome(raising, x)
        assert not LOCK.locked()


class Held:
    """What a way along attributes leads through."""

    def __init__(self) -> None:
        self.inner = torch.nn.Linear(2, 2)

    def __getattr__(self, name: str) -> Any:
        if name == "virtual":
            return self.inner
        raise AttributeError(name)


HELD = Held()


def along_attributes(x: Tensor) -> Any:
    found = functools.reduce(getattr, "virtual.weight.data".split("."), HELD)
    try:
        functools.reduce(getattr, ("inner", "missing"), HELD)
    except AttributeError as error:
        return x + found.sum(), str(error)


def type_names(x: Tensor) -> Any:
    return x * 2, x.type(), x.long().type() == "torch.LongTensor", x.type(torch.float64)


def moved_module(x: Tensor) -> Any:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    for parameter in net.parameters():
        torch.nn.init.constant_(parameter, 0.5)
    y = net.double().to("cpu")(x.double())
    return y, net.to(torch.float32, non_blocking=True)(x), net[0].weight.dtype


def vital(x: Tensor) -> Any:
    return torch.set_vital("Dataloader", "enabled", "True"), x + 1


@pytest.mark.parametrize("program", [along_attributes, type_names, moved_module, vital])
def test_calls_that_programs_make(program: Callable[[Tensor], Any]) -> None:
    compiled = api.compile(program)
    with stator.config.patch(skip_unprofitable=False):
        for call in range(5):
            if call == 3:
                HELD.inner = torch.nn.Linear(2, 2)
            x = torch.full((2,), float(call), dtype=torch.float64 if call == 4 else torch.float32)
            assert repr(outcome(compiled, x)) == repr(outcome(program, x))
    assert api.breaks(compiled) == 0, api.reason(compiled)
