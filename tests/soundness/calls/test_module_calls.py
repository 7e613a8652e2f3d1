"""Calls of modules: the way to `forward`, which the recorder goes without evaluating all of it."""

from __future__ import annotations

import collections
import sys
import traceback
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

import stator

from ..probe import Steps, flip, right_after, two_worlds

X = torch.ones(2, 3)


class Inner(nn.Module):
    """Called by the others, several times in a trace: from the second module on, stretches are skipped."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor, *, shift: float = 0.0) -> Tensor:
        return x * self.factor + shift


class Net(nn.Module):
    """Three modules of one class."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = Inner(2.0), Inner(3.0), Inner(5.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.three(self.two(self.one(x)), shift=1.0)


HOOKS = {
    "forward": lambda module: module.register_forward_hook(lambda m, args, out: out * 7),
    "forward_pre": lambda module: module.register_forward_pre_hook(lambda m, args: (args[0] + 7,)),
    "backward": lambda module: module.register_full_backward_hook(lambda m, gi, go: (gi[0] * 7,)),
    "backward_pre": lambda module: module.register_full_backward_pre_hook(
        lambda m, go: (go[0] * 7,)
    ),
}


@pytest.mark.parametrize("name", ["one", "two", "three"])
@pytest.mark.parametrize("kind", ["forward", "forward_pre"])
def test_hook(kind: str, name: str) -> None:
    @flip
    def test_hooked() -> Steps:
        net = Net()
        yield (lambda x: net(x)), (X,)
        handle = HOOKS[kind](getattr(net, name))
        yield None
        handle.remove()
        yield None

    test_hooked()


@pytest.mark.parametrize("name", ["two", "three"])
@pytest.mark.parametrize("kind", ["backward", "backward_pre"])
def test_backward_hook(kind: str, name: str) -> None:
    @right_after
    def test_hooked() -> Steps:
        net = Net()

        def fn(x: Tensor) -> Any:
            x = x.clone().requires_grad_()
            out = compiled(x)
            return out, torch.autograd.grad(out.sum(), x)

        compiled = api.compile(lambda x: net(x))
        yield fn, (X,)
        handle = HOOKS[kind](getattr(net, name))
        yield None
        handle.remove()
        yield None

    test_hooked()


@pytest.mark.parametrize("name", ["forward", "_call_impl", "_compiled_call_impl"])
@pytest.mark.parametrize("owner", ["two", "three"])
def test_overridden_on_the_instance(owner: str, name: str) -> None:
    @flip
    def test_overridden() -> Steps:
        net = Net()
        module = getattr(net, owner)
        yield (lambda x: net(x)), (X,)
        module.__dict__[name] = lambda x, shift=0.0: x - 4 + shift
        yield None
        del module.__dict__[name]
        yield None

    test_overridden()


@pytest.mark.parametrize("name", ["forward", "_call_impl", "__call__", "_compiled_call_impl"])
def test_overridden_on_the_class(name: str) -> None:
    @flip
    def test_overridden() -> Steps:
        net = Net()
        yield (lambda x: net(x)), (X,)
        own = Inner.__dict__.get(name)
        setattr(Inner, name, lambda self, x, shift=0.0: x - 4 + shift)
        yield None
        if own is None:
            delattr(Inner, name)
        else:
            setattr(Inner, name, own)
        yield None

    test_overridden()


@flip
def test_class_gets_getattribute() -> Steps:
    net = Net()
    yield (lambda x: net(x)), (X,)

    def read(self: Inner, name: str) -> Any:
        found = nn.Module.__getattribute__(self, name)
        return found * 2 if name == "factor" else found

    Inner.__getattribute__ = read  # type: ignore[method-assign, assignment]
    yield None
    del Inner.__getattribute__  # type: ignore[misc]
    yield None


@flip
def test_class_gets_hooks() -> Steps:
    net = Net()
    yield (lambda x: net(x)), (X,)
    # A data descriptor hides what the instance has.
    Inner._forward_hooks = property(lambda self: {0: lambda m, args, out: out * 7})  # type: ignore[assignment]
    Inner._forward_hooks_with_kwargs = {}  # type: ignore[misc]
    yield None
    del Inner._forward_hooks
    yield None


@flip
def test_hooks_replaced_by_another_dictionary() -> Steps:
    net = Net()
    own = net.two._forward_hooks
    yield (lambda x: net(x)), (X,)
    net.two._forward_hooks = collections.OrderedDict({0: lambda m, args, out: out * 7})
    yield None
    net.two._forward_hooks = own
    yield None


class Truthy(dict):  # type: ignore[type-arg]
    """Empty and true."""

    def __bool__(self) -> bool:
        return True


@right_after
def test_hooks_replaced_by_a_true_one() -> Steps:
    net = Net()
    own = net.three._forward_pre_hooks
    yield (lambda x: net(x)), (X,)
    net.three._forward_pre_hooks = Truthy()  # type: ignore[assignment]
    yield None
    net.three._forward_pre_hooks = own
    yield None


@pytest.mark.parametrize(
    "register",
    [
        nn.modules.module.register_module_forward_hook,
        lambda hook: nn.modules.module.register_module_forward_pre_hook(
            lambda m, args: (args[0] + 7,)
        ),
    ],
    ids=["forward", "forward_pre"],
)
def test_global_hook(register: Any) -> None:
    @flip
    def test_hooked() -> Steps:
        net = Net()
        yield (lambda x: net(x)), (X,)
        handle = register(lambda m, args, out: out * 7)
        yield None
        handle.remove()
        yield None

    test_hooked()


@two_worlds
def test_hook_added_by_the_call() -> Steps:
    net = Net()

    def fn(x: Tensor) -> Tensor:
        x = net.two(net.one(x))
        handle = net.three.register_forward_hook(lambda m, args, out: out * 7)
        x = net.three(x)
        handle.remove()
        return net.three(x) + net.two(x)

    yield fn, (X,)


@two_worlds
def test_hooks_written_by_the_call() -> Steps:
    net = Net()

    def fn(x: Tensor) -> Tensor:
        x = net.two(net.one(x))
        net.three._forward_hooks = collections.OrderedDict({0: lambda m, args, out: out * 7})
        x = net.three(x)
        net.three._forward_hooks = collections.OrderedDict()
        return net.three(x)

    yield fn, (X,)


@two_worlds
def test_forward_written_on_what_may_be_the_same() -> Steps:
    net = Net()

    def fn(a: Inner, b: Inner, x: Tensor) -> Tensor:
        x = b(net(x))
        a.__dict__["forward"] = lambda x: x - 4
        x = b(x)
        del a.__dict__["forward"]
        return b(x)

    yield fn, (net.one, net.two, X)
    yield net.one, net.one, X
    yield net.one, net.two, X


@two_worlds
def test_forward_written_by_the_call() -> Steps:
    net = Net()

    def fn(x: Tensor) -> Tensor:
        x = net.three(net.two(net.one(x)))
        net.two.forward = lambda x: x - 4  # type: ignore[method-assign]
        x = net.two(x)
        del net.two.forward
        return net.two(x)

    yield fn, (X,)


@flip
def test_module_made_by_the_call() -> Steps:
    net = Net()

    def fn(x: Tensor) -> Tensor:
        x = net(x)
        return Inner(11.0)(x) + Inner(13.0)(x)

    yield fn, (X,)
    net.two.register_forward_hook(lambda m, args, out: out * 7)
    yield None


@flip
def test_another_module_of_the_class() -> Steps:
    net = Net()
    own = net.two
    yield (lambda x: net(x)), (X,)
    net.two = Inner(17.0)
    yield None
    net.two = own
    yield None


class Asking(Inner):
    """Leaves the trace in the middle, as data has it."""

    def forward(self, x: Tensor, *, shift: Any = 0.0) -> Tensor:
        if (x + shift).sum() > 40:
            return x - 1
        return super().forward(x, shift=shift)


class Breaking(Inner):
    """Breaks the graph below the frames that hand arguments on."""

    def forward(self, x: Tensor, *rest: Any, **named: Any) -> Tensor:
        stator.graph_break()
        named["own"] = len(rest)
        return x * self.factor + sum(named.values())


@right_after
def test_asking_below() -> Steps:
    net = Net()
    net.two, net.three = Asking(3.0), Asking(5.0)
    yield (lambda x: net(x) + net.three(x, shift=x)), (X,)
    net.one.factor = 50.0
    yield None
    net.one.factor = 2.0
    yield None


@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_breaking_below(name: str) -> None:
    @right_after
    def test_broken() -> Steps:
        net = Net()
        setattr(net, name, Breaking(4.0))
        options = {"shift": 2.0, "x": X}

        def fn(x: Tensor) -> Any:
            x = getattr(net, name)(x, 1, 2, shift=3.0, other=4.0)
            return net(x), getattr(net, name)(**options), options

        yield fn, (X,)
        options["shift"] = 7.0
        yield None

    test_broken()


@right_after
def test_arguments_that_do_not_fit() -> Steps:
    net = Net()

    def fn(x: Tensor) -> Any:
        try:
            return net.two(x, x)
        except TypeError as error:
            return x + 1, str(error)

    yield fn, (X,)
    yield None


@right_after
def test_what_is_handed_on_is_a_copy() -> Steps:
    class Taking(Inner):
        def forward(self, *args: Any, **named: Any) -> Any:
            named.pop("shift", None)
            return args[0] * self.factor, args, named

    net = Net()
    net.two = Taking(3.0)
    named: dict[str, Any] = {"shift": 1.0, "more": X}

    def fn(x: Tensor) -> Any:
        return net.two(x, x + 1, **named), net.two(x), named

    yield fn, (X,)
    named["more"] = 3
    yield None


@right_after
def test_forward_that_is_a_generator() -> Steps:
    class Giving(Inner):
        def forward(self, x: Tensor, *, shift: float = 0.0) -> Any:
            yield x * self.factor
            yield x + shift

    net = Net()
    net.two = Giving(3.0)
    yield (lambda x: [part + 1 for part in net.two(x, shift=2.0)]), (X,)
    net.two.factor = 9.0
    yield None


class Raising(nn.Module):
    """Raises, and says who is there."""

    def __init__(self, raises: bool) -> None:
        super().__init__()
        self.raises = raises

    def forward(self, x: Tensor) -> Tensor:
        if self.raises:
            raise ValueError("no")
        return x + 1


def test_traceback() -> None:
    quiet, loud = Raising(False), Raising(True)

    def fn(x: Tensor) -> Tensor:
        return loud(quiet(quiet(x)))

    def lines(run: Any) -> list[tuple[str, int | None]]:
        with pytest.raises(ValueError, match="no") as caught:
            run(X)
        found = traceback.extract_tb(caught.value.__traceback__)
        return [(frame.name, frame.lineno) for frame in found][1:]

    assert lines(api.compile(fn)) == lines(fn)


def test_frames() -> None:
    seen: list[list[tuple[str, int]]] = []

    class Looking(Inner):
        def forward(self, x: Tensor, *, shift: float = 0.0) -> Tensor:
            frame = sys._getframe()
            names = []
            for _ in range(7):
                names.append((frame.f_code.co_name, frame.f_lineno))
                if frame.f_back is None:
                    break
                frame = frame.f_back
            seen.append(names)
            return x

    net = Net()
    net.three = Looking(1.0)

    def fn(x: Tensor) -> Tensor:
        return net(x)

    fn(X)
    api.compile(fn)(X)
    plain, compiled = seen
    assert compiled[:5] == plain[:5]


@pytest.mark.skipif(api.PLAIN, reason="asks what is guarded")
def test_failure_names_the_hook(caplog: pytest.LogCaptureFixture) -> None:
    net = Net()
    compiled = stator.compile(lambda x: net(x))
    stator.set_logs(recompiles=True)
    try:
        compiled(X)
        handle = net.two.register_forward_hook(lambda m, args, out: out * 7)
        compiled(X)
        handle.remove()
        net.three.forward = lambda x, shift: x  # type: ignore[method-assign]
        compiled(X)
    finally:
        stator.set_logs()
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert "._modules['two']._forward_hooks) == 0  # found 1" in text
    assert "'forward' not in vars(" in text


@pytest.mark.skipif(api.PLAIN, reason="asks what is recorded")
def test_stretches_are_known() -> None:
    """If this fails, PyTorch's way to `forward` has changed: see `functions/module_call.rs`."""
    net = Net()
    compiled = stator.compile(lambda x: net(x))
    compiled(X)
    # One guard for each of the four modules, printed as one line for each fact.
    (guards,) = compiled.guards()
    per_module = {line for line in guards if line.startswith("'forward' not in vars(")}
    assert len(per_module) == 4
    assert not any(
        "_check_type_id" in line and "_hooks" in line for line in guards if "two" in line
    )
