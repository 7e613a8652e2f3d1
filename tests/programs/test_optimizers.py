"""Optimizers within programs: made, stepped and forgotten in the function that is traced."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from programs.common import I64, check, random, spec

from stator.errors import ProgramError
from stator.programs import TensorProgram

SPECS = (spec(4, 3), spec(2, 3, dtype=torch.float32), spec(None, 4), spec(None, dtype=I64))

OPTIMIZERS: dict[str, tuple[type, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "decay": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.1}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01}),
    "nadam": (torch.optim.NAdam, {"lr": 0.01}),
    "adamax": (torch.optim.Adamax, {"lr": 0.01}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
    "adadelta": (torch.optim.Adadelta, {"lr": 0.1}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    "rprop": (torch.optim.Rprop, {"lr": 0.01}),
    # What these read of tensors is worked on in tensors.
    "radam": (torch.optim.RAdam, {"lr": 0.1, "weight_decay": 0.1}),
    "asgd": (torch.optim.ASGD, {"lr": 0.1, "t0": 2.0, "weight_decay": 0.1}),
    "adafactor": (torch.optim.Adafactor, {"lr": 0.1, "weight_decay": 0.1}),
    "muon": (torch.optim.Muon, {"lr": 0.01}),
}


def training(kind: type, settings: dict[str, Any]) -> Callable[..., Any]:
    def fn(w: Any, v: Any, x: Any, y: Any) -> Any:
        w, v = w.clone().requires_grad_(), v.clone().requires_grad_()
        optimizer = kind([w, v], **settings)
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(x @ w + v.sum(0), y)
            loss.backward()
            optimizer.step()
        return w.detach(), v.detach(), loss.detach()

    return fn


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(name: str) -> None:
    fn = training(*OPTIMIZERS[name])
    program = TensorProgram.trace(fn, SPECS)
    again = TensorProgram.from_bytes(program.to_bytes())
    for size in (3, 5):
        given = random(*SPECS, size=size)
        expected = fn(*given)
        for each in (program, again):
            for found, want in zip(each(*given), expected, strict=True):
                torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)
    # What it was given stays as it was.
    assert all(map(torch.equal, given, random(*SPECS, size=size)))


@pytest.mark.parametrize("name", ["radam", "asgd", "adafactor"])
def test_many_steps_of_those_that_read_numbers(name: str) -> None:
    """`RAdam` takes other steps from the sixth one on, and `ASGD` begins to average."""
    kind, settings = OPTIMIZERS[name]

    def fn(w: Any, bias: Any, x: Any) -> Any:
        leaves = [w.clone().requires_grad_(), bias.clone().requires_grad_()]
        optimizer = kind(leaves, maximize=name == "adafactor", **settings)
        for _ in range(12):
            optimizer.zero_grad()
            torch.tanh(x @ leaves[0] + leaves[1]).square().mean().backward()
            optimizer.step()
        return [leaf.detach() for leaf in leaves]

    specs = (spec(4, 3), spec(3), spec(None, 4))
    program = TensorProgram.trace(fn, specs)
    for size in (2, 5):
        given = random(*specs, size=size)
        for found, want in zip(program(*given), fn(*given), strict=True):
            torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)


RATED = [name for name in OPTIMIZERS if name not in ("muon", "adafactor")]


@pytest.mark.parametrize("where", ["argument", "group", "later"])
@pytest.mark.parametrize("name", RATED)
def test_rates_that_are_tensors(name: str, where: str) -> None:
    kind, settings = OPTIMIZERS[name]
    others = {key: value for key, value in settings.items() if key != "lr"}

    def fn(w: Any, v: Any, x: Any, y: Any, rate: Any) -> Any:
        w, v = w.clone().requires_grad_(), v.clone().requires_grad_()
        if where == "argument":
            optimizer = kind([w, v], lr=rate, **others)
            assert optimizer.param_groups[0]["lr"] is rate
        elif where == "group":
            groups = [{"params": [w], "lr": rate * 2}, {"params": [v]}]
            optimizer = kind(groups, rate, **others)
        else:
            optimizer = kind([w, v], lr=1.0, **others)
            optimizer.param_groups[0]["lr"] = rate
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(x @ w + v.sum(0), y).backward()
            optimizer.step()
        return w.detach(), v.detach()

    specs = (*SPECS, spec())
    program = TensorProgram.trace(fn, specs)
    again = TensorProgram.from_bytes(program.to_bytes())
    for size, rate in ((3, 0.1), (5, 0.02), (3, 0.0)):
        given = [*random(*SPECS, size=size), torch.tensor(rate)]
        expected = fn(*given)
        for each in (program, again):
            for found, want in zip(each(*given), expected, strict=True):
                torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)


# Those that take no betas have the rate and `weight_decay` alone.
DECAYING = (
    *(torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam),
    *(torch.optim.Adamax, torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adadelta),
    torch.optim.ASGD,
)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("kind", DECAYING)
def test_betas_and_decay_that_are_tensors(kind: Any, maximize: bool) -> None:
    has_betas = "betas" in kind.__init__.__code__.co_varnames

    def fn(w: Any, x: Any, rate: Any, first: Any, second: Any, decay: Any) -> Any:
        w = w.clone().requires_grad_()
        settings = {"betas": (first, second)} if has_betas else {}
        optimizer = kind([w], rate, weight_decay=decay, maximize=maximize, **settings)
        for _ in range(3):
            optimizer.zero_grad()
            (torch.tanh(x @ w).square().mean() + w.sin().sum()).backward()
            optimizer.step()
        return w.detach()

    specs = (spec(4, 3), spec(None, 4), *(spec() for _ in range(4)))
    program = TensorProgram.trace(fn, specs)
    again = TensorProgram.from_bytes(program.to_bytes())
    for size, numbers in ((3, (0.05, 0.8, 0.9, 0.3)), (5, (0.1, 0.5, 0.99, 0.0))):
        drawn = random(*specs[:2], size=size)
        expected = fn(*drawn, *numbers)
        for each in (program, again):
            (found,) = each(*drawn, *(torch.tensor(number) for number in numbers))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_betas_and_decay_that_cannot_be() -> None:
    def fn(w: Any, first: Any, decay: Any) -> Any:
        w = w.clone().requires_grad_()
        torch.optim.AdamW([w], betas=(first, first), weight_decay=decay)
        return w.detach()

    program = TensorProgram.trace(fn, (spec(3), spec(), spec()))
    (kept,) = program(torch.ones(3), torch.tensor(0.9), torch.tensor(0.1))
    assert kept.tolist() == [1, 1, 1]
    for first, decay in ((1.0, 0.1), (-0.1, 0.1), (0.9, -0.1)):
        with pytest.raises(RuntimeError, match="out of bounds"):
            program(torch.ones(3), torch.tensor(first), torch.tensor(decay))

    def mixed(w: Any, first: Any) -> Any:
        torch.optim.Adam([w.clone().requires_grad_()], betas=(first, 0.9))

    with pytest.raises(ValueError, match="betas must be either both floats or both Tensors"):
        TensorProgram.trace(mixed, (spec(3), spec()))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_negative_rate_is_an_error_when_it_runs(kind: Any) -> None:
    def fn(w: Any, rate: Any) -> Any:
        w = w.clone().requires_grad_()
        optimizer = kind([w], lr=rate)
        w.sum().backward()
        optimizer.step()
        return w.detach()

    program = TensorProgram.trace(fn, (spec(3), spec()))
    with pytest.raises(ValueError, match="Invalid learning rate"):
        fn(torch.ones(3), torch.tensor(-0.1))
    with pytest.raises(RuntimeError, match="out of bounds") as raised:
        program(torch.ones(3), torch.tensor(-0.1))
    assert "optimizer = kind([w], lr=rate)" in raised.value.__notes__[0]
    with pytest.raises(ValueError, match="Tensor lr must be 1-element"):
        TensorProgram.trace(fn, (spec(3), spec(2)))


def test_numbers_that_are_tensors() -> None:
    """What an operation computes with may be a tensor; what decides sizes may not."""

    def fn(x: Any, by: Any) -> Any:
        return (
            x.add(x, alpha=by),
            torch.sub(x, x.square(), alpha=by),
            torch.addcmul(x, x, x, value=by),
            x.clone().addcdiv_(x, x.square() + 1, value=-by),
        )

    program = TensorProgram.trace(fn, (spec(None, 3), spec()))
    for size, by in ((2, 0.3), (4, -2.0)):
        check(program, fn, *random(spec(None, 3), size=size), torch.tensor(by))
    for decides in (lambda x, by: x.sum(by), lambda x, by: x.repeat(by)):
        with pytest.raises(ProgramError):
            TensorProgram.trace(decides, (spec(3), spec(dtype=I64)))


def test_those_that_decide_by_numbers_are_errors() -> None:
    def fn(w: Any) -> Any:
        leaf = w.clone().requires_grad_()
        optimizer = torch.optim.LBFGS([leaf])

        def closure() -> Any:
            optimizer.zero_grad()
            loss = leaf.square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        return leaf.detach()

    # What it stops at depends on whether TorchDynamo was imported, which disables this step.
    with pytest.raises(ProgramError) as raised:
        TensorProgram.trace(fn, (spec(3),))
    assert "optimizer.step(closure)" in str(raised.value)


def test_inputs_are_not_stepped() -> None:
    def fn(w: Any) -> Any:
        w.requires_grad_()
        optimizer = torch.optim.SGD([w], lr=0.1)
        (w * 2).sum().backward()
        optimizer.step()
        return w.detach()

    with pytest.raises(ProgramError, match="its input `w`"):
        TensorProgram.trace(fn, (spec(3),))


def test_optimizers_of_the_program() -> None:
    class Signs(torch.optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.sub_(parameter.grad.sign(), alpha=group["lr"])

    fn = training(Signs, {"lr": 0.1})
    program = TensorProgram.trace(fn, SPECS)
    given = random(*SPECS)
    for found, want in zip(program(*given), fn(*given), strict=True):
        torch.testing.assert_close(found, want)


FIRST = """
import torch
from stator.programs import TensorProgram, TensorSpec
def fn(w):
    w = w.clone().requires_grad_()
    optimizer = torch.optim.{0}([w], lr=0.1)
    (w * w).sum().backward()
    optimizer.step()
    return w.detach()
program = TensorProgram.trace(fn, (TensorSpec(torch.float32, (3,)),))
assert torch.allclose(program(torch.ones(3))[0], fn(torch.ones(3)))
optimizer = torch.optim.{0}([torch.ones(3, requires_grad=True)], lr=0.1)
calls = []
optimizer.register_step_post_hook(lambda *_: calls.append(1))
optimizer.step()
assert calls == [1]
"""


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_the_first_optimizer_of_a_process(name: str) -> None:
    """PyTorch changes a class where it is first used: that is no change of the program's."""
    subprocess.run([sys.executable, "-c", FIRST.format(name)], check=True)


CLIPS = {
    "norm": lambda of: torch.nn.utils.clip_grad_norm_(of, 0.1),
    "not clipped": lambda of: torch.nn.utils.clip_grad_norm_(of, 100.0),
    "greatest": lambda of: torch.nn.utils.clip_grad_norm_(of, 0.1, norm_type=float("inf")),
    "one by one": lambda of: torch.nn.utils.clip_grad_norm_(of, 0.1, foreach=False),
    "value": lambda of: torch.nn.utils.clip_grad_value_(of, 0.01),
    "of several types": lambda of: torch.nn.utils.get_total_norm([of[0].grad.double(), of[1].grad]),
}


@pytest.mark.parametrize("name", CLIPS)
def test_gradients_are_clipped(name: str) -> None:
    def step(weight: Any, bias: Any, rows: Any) -> Any:
        parameters = [each.detach().clone().requires_grad_() for each in (weight, bias)]
        (rows @ parameters[0] + parameters[1]).pow(2).sum().backward()
        found = CLIPS[name](parameters)
        optimizer = torch.optim.SGD(parameters, lr=0.5)
        optimizer.step()
        gradients = [each.grad for each in parameters]
        return [each.detach() for each in parameters], gradients, [] if found is None else [found]

    specs = (spec(3, 2), spec(2), spec(None, 3))
    check(TensorProgram.trace(step, specs), step, *random(*specs))
