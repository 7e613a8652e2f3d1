"""Every kind of write before an operation that raises, with every kind of handler around that: recorded and
replayed, all ends as in plain Python."""

from __future__ import annotations

import collections
import contextlib
import random
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn
from torch.nn import functional as F

GOOD = torch.tensor([0, 1])
BAD = torch.tensor([0, 9])
TABLE = torch.arange(8.0).view(4, 2)

counter = 0


class Slots:
    __slots__ = ("n",)


class World:
    """What a function may write to: made anew for the plain function and the compiled one."""

    def __init__(self, adam: dict[str, Any] | None = None) -> None:
        torch.manual_seed(0)
        random.seed(0)
        self.param = nn.Parameter(torch.ones(3))
        self.param.grad = torch.ones(3)
        self.fresh = nn.Parameter(torch.ones(3))
        self.flat = torch.ones(3)
        self.other = torch.full((3,), 5.0)
        self.matrix = torch.arange(6.0).view(2, 3)
        self.base = torch.arange(6.0)
        self.view = self.base[2:5]
        self.inner = torch.ones(3, requires_grad=True) * 2
        self.norm = nn.BatchNorm1d(2)
        self.renormed = nn.Embedding(4, 3, max_norm=1.0)
        self.moments = [torch.zeros(3), torch.zeros(3), torch.ones(())]
        self.sgd = torch.optim.SGD([self.param, self.fresh], lr=0.1, momentum=0.9)
        self.adam: torch.optim.Optimizer | None = None
        if adam is not None:
            kind = getattr(torch.optim, adam.get("kind", "Adam"))
            options = {key: value for key, value in adam.items() if key != "kind"}
            self.adam = kind([self.param, self.fresh], lr=0.1, **options)
        self.list: list[int] = []
        self.dict: dict[str, int] = {}
        self.set = {0}
        self.deque = collections.deque([0])
        self.slots = Slots()
        self.slots.n = 0
        self.cell = 0
        self.cls = type("Cls", (), {"n": 0})
        self.generator = torch.Generator()
        self.generator.manual_seed(3)
        self.emitted: list[str] = []
        self.optimizer_list: list[Any] = []

    def tensors(self) -> dict[str, Tensor]:
        found = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        found |= {f"moments.{i}": value for i, value in enumerate(self.moments)}
        found |= {
            f"norm.{name}": value for name, value in self.norm.state_dict(keep_vars=True).items()
        }
        found["renormed"] = self.renormed.weight
        for optimizer in (self.sgd, self.adam):
            states = [] if optimizer is None else optimizer.state.values()
            for i, state in enumerate(states):
                name = f"{type(optimizer).__name__}.{i}"
                found |= {f"{name}.{k}": v for k, v in state.items() if isinstance(v, Tensor)}
        return found

    def seen(self) -> dict[str, Any]:
        shown: dict[str, Any] = {name: _tensor(value) for name, value in self.tensors().items()}
        shown |= {
            "list": self.list,
            "dict": self.dict,
            "set": sorted(self.set),
            "deque": list(self.deque),
        }
        shown |= {"slots": self.slots.n, "cell": self.cell, "class": self.cls.n, "global": counter}  # type: ignore[attr-defined]
        shown |= {
            "emitted": list(self.emitted),
            "generator": self.generator.get_state().sum().item(),
        }
        return shown


def _tensor(value: Tensor) -> tuple[Any, ...]:
    grad = (
        None if not value.is_leaf or value.grad is None else (value.grad.tolist(), value.grad.shape)
    )
    return (
        type(value).__name__,
        value.tolist(),
        tuple(value.shape),
        value.stride(),
        value.storage_offset(),
        value.untyped_storage().nbytes(),
        value.dtype,
        value.requires_grad,
        value.is_leaf,
        type(value.grad_fn).__name__,
        grad,
    )


def _global(w: World) -> None:
    global counter
    counter += 1


def _append(w: World) -> None:
    w.list.append(1)


def _with_cell(w: World) -> None:
    n = w.cell

    def add() -> None:
        nonlocal n
        n += 1

    add()
    w.cell = n


def _fused(w: World) -> None:
    torch._fused_sgd_(
        [w.flat],
        [torch.ones(3)],
        [w.other],
        weight_decay=0.0,
        momentum=0.9,
        lr=0.1,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    )


def _fused_adam(w: World) -> None:
    m, v, step = w.moments
    torch._fused_adamw_(
        [w.flat],
        [torch.ones(3)],
        [m],
        [v],
        [],
        [step],
        lr=0.1,
        beta1=0.9,
        beta2=0.99,
        weight_decay=0.1,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )


def _no_grad_step(w: World) -> None:
    with torch.no_grad():
        w.param -= 0.1 * w.param.grad


def _warn(w: World) -> None:
    warnings.warn("told", stacklevel=1)


def _switch(w: World) -> None:
    torch.set_grad_enabled(False)
    w.cell += 1
    w.flat += w.param * 2
    torch.set_grad_enabled(True)


def _autocast(w: World) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        w.flat.copy_((w.matrix @ w.matrix.t()).sum().expand(3))


def _foreach(w: World) -> None:
    torch._foreach_add_([w.flat, w.other], 1.0)
    torch._foreach_mul_([w.flat, w.other], [2.0, 3.0])


def _swap(w: World) -> None:
    w.flat, w.other = w.other, w.flat


def _accumulate(w: World) -> None:
    w.param.grad += 1


def _accumulate_or_set(w: World) -> None:
    w.fresh.grad = w.flat.clone() if w.fresh.grad is None else w.fresh.grad + w.flat


def _into_graph(w: World) -> None:
    w.flat += w.param


def _detach(w: World) -> None:
    w.inner.detach_()


def _backward(w: World) -> None:
    (w.param * w.flat).sum().backward()


# Each way in which Adam writes its parameters and their state; `capturable` asks for a GPU.
ADAM = {
    "": {},
    ", foreach": {"foreach": True},
    ", fused": {"fused": True},
    ", amsgrad": {"amsgrad": True, "weight_decay": 0.1, "maximize": True},
    ", foreach amsgrad": {"foreach": True, "amsgrad": True, "weight_decay": 0.1},
    "W, fused": {"kind": "AdamW", "fused": True, "amsgrad": True},
    "W, no foreach": {"kind": "AdamW", "foreach": False, "weight_decay": 0.1},
}

WRITES: dict[str, Callable[[World], Any]] = {
    # Values.
    "add_": lambda w: w.flat.add_(1),
    "iadd": lambda w: w.view.__iadd__(1),
    "view of it": lambda w: w.matrix[0].add_(1),
    "slice": lambda w: w.matrix[:, 1:].mul_(2),
    "transposed": lambda w: w.matrix.t()[0].mul_(2),
    "detached": lambda w: w.param.detach().add_(1),
    "through data": lambda w: w.param.data.add_(1),
    "data of a view": lambda w: w.matrix[1].data.add_(1),
    "copy_": lambda w: w.flat.copy_(w.other),
    "setitem": lambda w: w.matrix.__setitem__((0, 1), 5),
    "setitem by tensor": lambda w: w.flat.__setitem__(torch.tensor([0, 2]), 7),
    "index_put_": lambda w: w.flat.index_put_(
        (torch.tensor([1]),), torch.tensor(3.0), accumulate=True
    ),
    "index_add_": lambda w: w.flat.index_add_(0, torch.tensor([1, 1]), torch.ones(2)),
    "scatter_": lambda w: w.flat.scatter_(0, torch.tensor([1]), torch.ones(1) * 4),
    "masked_fill_": lambda w: w.flat.masked_fill_(w.flat > 0, 3),
    "out": lambda w: torch.add(w.flat, 1, out=w.other),
    "zero_": lambda w: w.flat.zero_(),
    "lerp_": lambda w: w.flat.lerp_(w.other, 0.5),
    "uniform_": lambda w: w.flat.uniform_(),
    "relu in place": lambda w: F.relu(w.flat, inplace=True),
    "no_grad step": _no_grad_step,
    "foreach": _foreach,
    "fused": _fused,
    "fused adam": _fused_adam,
    "running statistics": lambda w: w.norm(torch.tensor([[1.0, 2.0], [3.0, 5.0]])),
    "F.batch_norm": lambda w: F.batch_norm(w.matrix, w.flat, w.other, training=True),
    "statistics in views": lambda w: F.batch_norm(w.matrix, w.base[:3], w.base[3:], training=True),
    "max_norm": lambda w: w.renormed(torch.tensor([1, 2])),
    "in a gradient's graph": lambda w: w.inner.mul_(2),
    "into a gradient's graph": _into_graph,
    "view into a gradient's graph": lambda w: w.view.add_(w.param),
    # Attributes and metadata.
    "data": lambda w: setattr(w.param, "data", w.param.data.clamp(-0.5, 0.5)),
    "data of another": lambda w: setattr(w.flat, "data", w.other),
    "data twice": lambda w: (setattr(w.flat, "data", w.flat * 2), w.flat.add_(1)),
    "grad": lambda w: setattr(w.param, "grad", w.param.grad * 0.5),
    "grad None": lambda w: setattr(w.param, "grad", None),
    "grad deleted": lambda w: delattr(w.param, "grad"),
    "grad accumulated": _accumulate,
    "grad set or accumulated": _accumulate_or_set,
    "zero_grad": lambda w: w.sgd.zero_grad(),
    "zero_grad to zeros": lambda w: w.sgd.zero_grad(set_to_none=False),
    "backward": _backward,
    "t_": lambda w: w.matrix.t_(),
    "unsqueeze_": lambda w: w.flat.unsqueeze_(0),
    "squeeze_": lambda w: w.flat.unsqueeze_(0).squeeze_(0).unsqueeze_(1).squeeze_(),
    "transpose_": lambda w: w.matrix.transpose_(0, 1),
    "swapaxes_": lambda w: w.matrix.swapaxes_(0, 1),
    "swapdims_": lambda w: w.matrix.swapdims_(0, 1),
    "as_strided_": lambda w: w.base.as_strided_((2, 2), (1, 2)),
    "resize_": lambda w: w.flat.resize_(w.flat.shape[0] + 1).fill_(2),
    "set_": lambda w: w.flat.set_(w.other),
    "requires_grad_": lambda w: w.flat.requires_grad_(not w.flat.requires_grad),
    "requires_grad": lambda w: setattr(w.flat, "requires_grad", True),
    "detach_": _detach,
    # Optimizers.
    "SGD": lambda w: w.sgd.step(),
    **{f"Adam{options}": lambda w: w.adam.step() for options in ADAM},
    # Python objects.
    "attribute": lambda w: setattr(w, "cell", w.cell + 1),
    "swap": _swap,
    "global": _global,
    "append": _append,
    "dict": lambda w: w.dict.__setitem__("a", w.dict.get("a", 0) + 1),
    "set": lambda w: w.set.add(len(w.set)),
    "deque": lambda w: w.deque.append(len(w.deque)),
    "cell": _with_cell,
    "slot": lambda w: setattr(w.slots, "n", w.slots.n + 1),
    "class attribute": lambda w: setattr(w.cls, "n", w.cls.n + 1),  # type: ignore[attr-defined]
    "buffer": lambda w: setattr(w.norm, "running_mean", w.norm.running_mean + 1),
    "print": lambda w: print("told"),
    "warning": _warn,
    # The rest of the world.
    "random numbers": lambda w: w.list.append(0) or torch.rand(2),
    "generator": lambda w: torch.rand(2, generator=w.generator),
    "dropout": lambda w: F.dropout(w.flat, 0.5),
    "grad mode": _switch,
    "autocast": _autocast,
}


def no_handler(write: Callable[[World], Any]) -> Callable[[World, Tensor], Any]:
    def fn(w: World, i: Tensor) -> Any:
        write(w)
        w.list.append(10)
        result = TABLE[i].sum()
        w.list.append(20)
        return result

    return fn


def handled(write: Callable[[World], Any]) -> Callable[[World, Tensor], Any]:
    def fn(w: World, i: Tensor) -> Any:
        write(w)
        try:
            w.list.append(10)
            return TABLE[i].sum()
        except IndexError as error:
            w.list.append(30)
            return str(error), w.flat * 2, w.matrix.shape, w.param.grad

    return fn


def with_finally(write: Callable[[World], Any]) -> Callable[[World, Tensor], Any]:
    def fn(w: World, i: Tensor) -> Any:
        write(w)
        try:
            return TABLE[i].sum()
        finally:
            w.list.append(40)
            w.base.mul_(2)

    return fn


def suppressed(write: Callable[[World], Any]) -> Callable[[World, Tensor], Any]:
    def fn(w: World, i: Tensor) -> Any:
        write(w)
        result = w.other + 1
        with contextlib.suppress(IndexError):
            result = TABLE[i].sum() + result
            w.list.append(10)
        return result * 2

    return fn


def nested(write: Callable[[World], Any]) -> Callable[[World, Tensor], Any]:
    def inner(w: World, i: Tensor) -> Any:
        write(w)
        return TABLE[i].sum()

    def fn(w: World, i: Tensor) -> Any:
        try:
            return inner(w, i)
        except IndexError:
            try:
                write(w)
                return inner(w, i)
            except IndexError as error:
                return len(error.args), w.flat * 3

    return fn


def raised_again(write: Callable[[World], Any]) -> Callable[[World, Tensor], Any]:
    def inner(w: World, i: Tensor) -> Any:
        w.list.append(1)
        return F.embedding(i, TABLE).sum()

    def fn(w: World, i: Tensor) -> Any:
        write(w)
        try:
            return inner(w, i)
        except IndexError as error:
            error.add_note("mine")
            raise ValueError("another") from error

    return fn


HANDLERS = [no_handler, handled, with_finally, suppressed, nested, raised_again]


@contextlib.contextmanager
def _told(emitted: list[str]) -> Iterator[None]:
    import builtins

    real = builtins.print
    builtins.print = lambda *args: emitted.append(str(args))
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        emitted.extend(str(warning.message) for warning in caught)
    finally:
        builtins.print = real


def _described(error: BaseException) -> tuple[Any, ...]:
    frames = [
        (f.name, f.lineno)
        for f in traceback.extract_tb(error.__traceback__)
        if f.filename == __file__
    ]
    causes = [cause and _described(cause) for cause in (error.__cause__, error.__context__)]
    return type(error).__name__, error.args, getattr(error, "__notes__", None), frames[1:], causes


def _value(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _tensor(value)
    return tuple(map(_value, value)) if isinstance(value, tuple) else value


def run(fn: Callable[..., Any], w: World, i: Tensor) -> dict[str, Any]:
    """What one call shows: its result or exception, and all that it may have written."""
    with _told(w.emitted):
        try:
            result: Any = ("result", _value(fn(w, i)))
        except Exception as error:
            result = _described(error)
    modes = (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_default_dtype())
    return {
        "result": result,
        "modes": modes,
        "random": torch.get_rng_state().sum().item(),
    } | w.seen()


# Replayed, then recorded while it raises. Each call in a world of its own is a replay of one trace; in one
# world each finds what those before it have left.
ORDERS = {"own": (GOOD, GOOD, BAD, BAD, GOOD), "one": (BAD, GOOD, GOOD, BAD)}


def differences(
    make: Callable[[], Callable[..., Any]], order: str, adam: dict[str, Any] | None
) -> list[str]:
    """Where plain and compiled calls differ, of the first call that differs."""
    global counter
    both = []
    for wrap in (lambda fn: fn, lambda fn: api.compile(fn, recompile_limit=64)):
        fn, seen, counter, w = wrap(make()), [], 0, World(adam)
        for i in ORDERS[order]:
            w = World(adam) if order == "own" else w
            seen.append(run(fn, w, i))
        both.append(seen)
    for number, (plain, compiled) in enumerate(zip(*both, strict=True)):
        if plain != compiled:
            names = [name for name in plain | compiled if plain.get(name) != compiled.get(name)]
            return [
                f"call {number}, {it}: plain {plain.get(it)}, compiled {compiled.get(it)}"
                for it in names
            ]
    return []


@pytest.mark.parametrize("write", WRITES)
def test_write_and_handler(write: str) -> None:
    found = []
    for handler in HANDLERS:
        for order in ORDERS:
            api.reset()
            adam = ADAM.get(write.removeprefix("Adam")) if write.startswith("Adam") else None
            differs = differences(lambda h=handler: h(WRITES[write]), order, adam)  # type: ignore[misc]
            if differs:
                found.append(f"{handler.__name__}, {order}: {differs[:4]}")
    assert not found, "\n".join(found)
