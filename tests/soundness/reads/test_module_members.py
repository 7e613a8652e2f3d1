"""Parameters, buffers and submodules, which the recorder reads without evaluating `__getattr__`."""

from __future__ import annotations

from types import CodeType
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

import stator

from ..probe import Steps, flip, right_after, two_worlds

X = torch.ones(2, 3)


class Net(nn.Module):
    """One of each."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 3)
        self.weight = nn.Parameter(torch.full((3,), 2.0))
        self.register_buffer("shift", torch.full((3,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.weight + self.shift


@flip
def test_parameter_hides_buffer() -> Steps:
    net = Net()
    yield (lambda x: net(x)), (X,)
    net._parameters["shift"] = nn.Parameter(torch.full((3,), 7.0))
    yield None
    del net._parameters["shift"]
    yield None


@flip
def test_buffer_hides_submodule() -> Steps:
    net = Net()
    yield (lambda x: net.layer(x) if callable(net.layer) else x * net.layer), (X,)
    net._buffers["layer"] = torch.full((3,), 7.0)
    yield None
    del net._buffers["layer"]
    yield None


@flip
def test_container_removed() -> Steps:
    net = Net()
    parameters = net.__dict__["_parameters"]
    yield (lambda x: x * 2 if getattr(net, "weight", None) is None else x * net.weight), (X + 1,)
    net.__dict__["_parameters"] = {}
    net.__dict__["_buffers"]["weight"] = torch.full((3,), 9.0)
    yield None
    net.__dict__["_parameters"] = parameters
    del net.__dict__["_buffers"]["weight"]
    yield None


@flip
def test_missing_member_registered() -> Steps:
    net = Net()

    def fn(x: Tensor) -> Tensor:
        return x * getattr(net, "extra", 3)

    yield fn, (X,)
    net.register_buffer("extra", torch.full((3,), 5.0))
    yield None
    del net.extra
    yield None


@right_after
def test_missing_member_raises() -> Steps:
    net = Net()
    yield (lambda x: x * net.nothing), (X,)
    net.register_buffer("nothing", torch.full((3,), 5.0))
    yield None
    del net.nothing
    yield None


@flip
def test_getattr_replaced() -> Steps:
    net = Net()
    original = nn.Module.__getattr__
    yield (lambda x: x * net.weight), (X,)

    def other(self: nn.Module, name: str) -> Any:
        return original(self, name) * 3 if name == "weight" else original(self, name)

    nn.Module.__getattr__ = other  # type: ignore[method-assign, assignment]
    yield None
    nn.Module.__getattr__ = original  # type: ignore[method-assign]
    yield None


def other_member(self: nn.Module, name: str) -> Any:
    """Takes the place of `nn.Module.__getattr__`'s code."""
    return self._buffers["shift"] if name == "weight" else self.__dict__["_modules"][name]  # type: ignore[attr-defined]


@flip
def test_code_of_getattr_replaced() -> Steps:
    net = Net()
    function: Any = nn.Module.__getattr__
    code: CodeType = function.__code__
    yield (lambda x: x * net.weight), (X,)
    function.__code__ = other_member.__code__
    yield None
    function.__code__ = code
    yield None


@right_after
def test_container_with_its_own_answers() -> Steps:
    class Container(dict):  # type: ignore[type-arg]
        def __contains__(self, key: object) -> bool:
            return key == "shift" or super().__contains__(key)

        def __getitem__(self, key: str) -> Any:
            return torch.full((3,), 4.0) if key == "shift" else super().__getitem__(key)

    net = Net()
    yield (lambda x: net(x)), (X,)
    net.__dict__["_parameters"] = Container(net._parameters)
    yield None
    net.__dict__["_parameters"] = dict(net._parameters)
    yield None


@right_after
def test_class_with_a_dict_of_its_own() -> Steps:
    class Own(Net):
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            return {"_parameters": {"weight": torch.full((3,), 8.0)}}

    plain = Net()
    net = Net()
    yield (lambda x: x * net.weight + plain.weight), (X,)
    net.__class__ = Own
    yield None
    net.__class__ = Net
    yield None


class Deep(nn.Module):
    """Several members of each kind on modules of one class: from the second read on, the class is known."""

    def __init__(self, inner: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.full((3,), 2.0))
        self.register_buffer("shift", torch.full((3,), 0.5))
        self.last = inner

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x) * self.scale + self.shift
        return x if self.last is None else self.last(x)


DEEP = ["first", "scale", "shift", "last"]
DEEPER = {"first": torch.sin, "last": torch.cos, "scale": torch.ones(3), "shift": torch.ones(3)}


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("container", ["", "_parameters", "_buffers", "_modules"])
def test_found_elsewhere(container: str, name: str) -> None:
    """Each member of a module whose class is known is found where it wasn't before."""

    @right_after
    def test_found() -> Steps:
        net = Deep(Deep())
        inner: Any = net.last
        yield (lambda x: net(x)), (X,)
        holder = inner.__dict__[container] if container else inner.__dict__
        known = name in holder
        before = holder.get(name)
        holder[name] = DEEPER[name]
        yield None
        if known:
            holder[name] = before
        else:
            del holder[name]
        yield None

    test_found()


@pytest.mark.parametrize("name", DEEP)
def test_found_on_the_class(name: str) -> None:
    @flip
    def test_found() -> Steps:
        net = Deep(Deep())
        yield (lambda x: net(x)), (X,)
        setattr(Deep, name, property(lambda self: DEEPER[name]))
        yield None
        delattr(Deep, name)
        yield None

    test_found()


@pytest.mark.parametrize("container", ["_parameters", "_buffers", "_modules"])
def test_container_of_a_known_class(container: str) -> None:
    """One that is gone, replaced by another, or by one with its own answers."""

    class Container(dict):  # type: ignore[type-arg]
        def __contains__(self, key: object) -> bool:
            return key in DEEPER

        def __getitem__(self, key: str) -> Any:
            return DEEPER[key]

    @right_after
    def test_changed() -> Steps:
        net = Deep(Deep())
        inner: Any = net.last
        yield (lambda x: net(x)), (X,)
        own = inner.__dict__[container]
        inner.__dict__[container] = dict(own)
        yield None
        inner.__dict__[container] = Container(own)
        yield None
        inner.__dict__[container] = own
        yield None
        if container != "_modules":
            names = ["first", "last"] if container == "_parameters" else ["last"]
            inner.__dict__[container] = {**own, **{name: DEEPER[name] for name in names}}
            yield None

    test_changed()


@two_worlds
def test_members_written_by_the_call() -> Steps:
    net = Deep(Deep())
    inner: Any = net.last
    weight = nn.Parameter(torch.full((3,), 3.0))

    def fn(x: Tensor) -> Tensor:
        x = net(x)
        inner._parameters["scale"] = weight
        x = net(x)
        inner._parameters["scale"] = scale
        inner.__dict__["_buffers"] = {"shift": weight}
        x = net(x)
        inner.__dict__["_buffers"] = buffers
        inner.__dict__["first"] = torch.relu
        x = net(x)
        del inner.__dict__["first"]
        return net(x)

    scale, buffers = inner.scale, inner._buffers
    yield fn, (X,)


@pytest.mark.parametrize("again", [True, False])
def test_member_written_on_what_may_be_the_same(again: bool) -> None:
    two_worlds(lambda: _written_on_another(again))()


def _written_on_another(again: bool) -> Steps:
    net = Deep(Deep())
    weight = nn.Parameter(torch.full((3,), 3.0))

    def fn(a: Any, b: Any, x: Tensor) -> Tensor:
        x = net(x)
        if again:
            x = x * b.shift
        a._parameters["shift"] = weight
        x = x * b.shift
        del a._parameters["shift"]
        return x * b.shift

    yield fn, (net, net.last, X)
    yield net.last, net.last, X
    yield net, net.last, X


@right_after
def test_object_getattribute_finds_no_member() -> Steps:
    net = Deep(Deep())

    def fn(x: Tensor) -> Tensor:
        x = net(x)
        try:
            return x * object.__getattribute__(net, "scale")
        except AttributeError:
            return x

    yield fn, (X,)
    net.__dict__["scale"] = torch.full((3,), 5.0)
    yield None
    del net.__dict__["scale"]
    yield None


@right_after
def test_known_class_gets_getattribute() -> Steps:
    net = Deep(Deep())
    yield (lambda x: net(x)), (X,)

    def read(self: Deep, name: str) -> Any:
        return 7.0 if name == "scale" else nn.Module.__getattribute__(self, name)

    def fallback(self: Deep, name: str) -> Any:
        return DEEPER["scale"] * 3 if name == "scale" else nn.Module.__getattr__(self, name)

    Deep.__getattribute__ = read  # type: ignore[method-assign, assignment]
    yield None
    del Deep.__getattribute__  # type: ignore[misc]
    yield None
    Deep.__getattr__ = fallback  # type: ignore[method-assign, assignment]
    yield None
    del Deep.__getattr__
    yield None


@pytest.mark.skipif(api.PLAIN, reason="asks what is guarded")
def test_absence_of_a_known_class_prints() -> None:
    net = Deep(Deep())
    compiled = stator.compile(lambda x: net(x))
    compiled(X)
    (lines,) = compiled.guards()
    owner = "<lambda>.__closure__[0].cell_contents"
    first = lines.index(f"'last' not in vars({owner})")
    assert lines[first : first + 5] == [
        f"'last' not in vars({owner})",
        f"type({owner}._parameters) is dict",
        f"'last' not in {owner}._parameters",
        f"type({owner}._buffers) is dict",
        f"'last' not in {owner}._buffers",
    ]


@pytest.mark.skipif(api.PLAIN, reason="asks what is recorded")
def test_getattr_is_known(caplog: pytest.LogCaptureFixture) -> None:
    """No frame of it is evaluated: PyTorch's is the one the recorder knows."""
    net = Net()
    stator.set_logs(trace=True)
    try:
        stator.compile(lambda x: x * net.weight)(X)
    finally:
        stator.set_logs()
    lines = [record.getMessage() for record in caplog.records if record.name == "stator.trace"]
    assert sum("LOAD_ATTR weight" in line for line in lines) == 1
    assert not any("CONTAINS_OP" in line for line in lines)


@pytest.mark.skipif(api.PLAIN, reason="asks where traces end")
@pytest.mark.parametrize("mark", ["__stator_disable__", "_torchdynamo_disable"])
def test_marked_getattr_is_called(mark: str) -> None:
    """What a mark says of the function counts, though the recorder could do its work."""
    net = Net()
    function: Any = nn.Module.__getattr__
    function.__dict__[mark] = "not to be traced" if mark.startswith("__") else True
    try:
        compiled = stator.compile(lambda x: x * net.weight)
        for _ in range(3):
            assert torch.equal(compiled(X), X * net.weight)
        assert "SB" in (api.reason(compiled) or "")
    finally:
        del function.__dict__[mark]
