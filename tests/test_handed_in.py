"""Things that programs hand in, and what libraries do with what `stator.compile` returned."""

from __future__ import annotations

import copy
import functools
import inspect
import io
import pickle
import types
from typing import Any

import pytest
import torch
from torch import nn

import stator

X = torch.ones(2, 3)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, scale: float = 2.0, *, shift: float = 0.0) -> torch.Tensor:
        return self.linear(x).relu() * scale + shift


def net() -> Net:
    torch.manual_seed(0)
    return Net()


# -- scripted and traced modules (finding 09) --------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("make", ["trace", "script", "freeze"])
def test_scripted_modules(make: str) -> None:
    plain = net().eval()
    if make == "trace":
        scripted: Any = torch.jit.trace(plain, (X,))
    else:
        scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval())
    if make == "freeze":
        scripted = torch.jit.freeze(scripted)
    expected = scripted(X)
    compiled = stator.compile(scripted)
    assert compiled is scripted
    for _ in range(3):
        assert torch.equal(compiled(X), expected)
    with pytest.raises(stator.GraphBreakError, match="is compiled by torch.jit"):
        stator.compile(scripted, fullgraph=True)

    def around(x: torch.Tensor) -> torch.Tensor:
        return scripted(x + 1) * 2

    fast = stator.compile(around)
    for _ in range(3):
        assert torch.equal(fast(X), around(X))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_functions() -> None:
    def plain(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    scripted = torch.jit.script(plain)
    assert torch.equal(stator.compile(scripted)(X), plain(X))
    fast = stator.compile(lambda x: scripted(x) + 1)
    for _ in range(3):
        assert torch.equal(fast(X), plain(X) + 1)


# -- torch.fx (finding 10) ---------------------------------------------------------------------------


def test_symbolic_trace_of_a_compiled_module() -> None:
    plain = net()
    expected = torch.fx.symbolic_trace(plain)
    found = torch.fx.symbolic_trace(stator.compile(plain))
    assert found.code == expected.code
    assert torch.equal(found(X), plain(X)) and torch.equal(
        found(X, 3.0, shift=1.0), plain(X, 3.0, shift=1.0)
    )
    assert found.state_dict().keys() == plain.state_dict().keys()


def test_symbolic_trace_of_a_compiled_module_within_another() -> None:
    outer = nn.Sequential(stator.compile(net()), nn.ReLU())
    assert torch.equal(torch.fx.symbolic_trace(outer)(X), outer(X))


def test_forward_of_the_class() -> None:
    plain = net()
    compiled = stator.compile(plain)
    assert inspect.signature(type(compiled).forward) == inspect.signature(Net.forward)
    assert torch.equal(type(compiled).forward(compiled, X, 3.0), plain(X, 3.0))


# -- functions' attributes (finding 11) --------------------------------------------------------------


def test_what_describes_a_function() -> None:
    offset = 1

    def plain(x: torch.Tensor, k: int = 1, *rest: int, flag: bool = False) -> torch.Tensor:
        return x * k + offset

    compiled: Any = stator.compile(plain)
    for name in (
        "__code__",
        "__defaults__",
        "__kwdefaults__",
        "__globals__",
        "__closure__",
        "__name__",
    ):
        assert getattr(compiled, name) is getattr(plain, name) or getattr(
            compiled, name
        ) == getattr(plain, name)
    assert inspect.getfullargspec(compiled) == inspect.getfullargspec(plain)
    assert inspect.signature(compiled) == inspect.signature(plain)
    assert inspect.getsource(compiled) == inspect.getsource(plain)
    assert not inspect.isfunction(compiled)  # who takes functions apart gets the wrapped one
    assert inspect.isfunction(inspect.unwrap(compiled))
    method = types.MethodType(compiled, X)
    assert method.__code__ is plain.__code__  # type: ignore[attr-defined]


def test_new_defaults_and_code() -> None:
    def plain(x: torch.Tensor, k: int = 1) -> torch.Tensor:
        return x * k

    def other(x: torch.Tensor, k: int = 1) -> torch.Tensor:
        return x - k

    compiled: Any = stator.compile(plain)
    for _ in range(2):
        assert torch.equal(compiled(X), X)
    compiled.__defaults__ = (3,)
    for _ in range(2):
        assert torch.equal(compiled(X), X * 3)
    compiled.__code__ = other.__code__
    for _ in range(2):
        assert torch.equal(compiled(X), X - 3)


# -- `__getattr__` that is written in C (finding 18) -------------------------------------------------


class Table(dict):  # type: ignore[type-arg]
    __getattr__ = dict.__getitem__


class Lenient(dict):  # type: ignore[type-arg]
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__  # type: ignore[assignment]


class Partial:
    __getattr__ = functools.partial(lambda name: len(name))


class Static:
    __getattr__ = staticmethod(len)  # type: ignore[arg-type]


def outcome(function: Any, *args: Any) -> Any:
    try:
        return function(*args).tolist()
    except Exception as error:
        return type(error), str(error)


def test_getattr_that_is_a_c_function() -> None:
    def reads(x: torch.Tensor, table: Any) -> torch.Tensor:
        return x * table.a

    def misses(x: torch.Tensor, table: Any) -> torch.Tensor:
        return x * (table.missing or 3)

    def handles(x: torch.Tensor, table: Any) -> torch.Tensor:
        try:
            return x * table.missing
        except KeyError:
            return x - 1

    def defaults(x: torch.Tensor, table: Any) -> torch.Tensor:
        return x * getattr(table, "missing", 5) if hasattr(table, "a") else x

    for make in (Table, Lenient):
        for program in (reads, misses, handles, defaults):
            table = make(a=4)
            fast = stator.compile(program)
            for value in (4, 4, 5, 5):
                table["a"] = value
                assert outcome(fast, X, table) == outcome(program, X, table), (make, program, value)
            table["missing"] = 7
            assert outcome(fast, X, table) == outcome(program, X, table), (make, program)
    for odd in (Partial(), Static()):
        fast = stator.compile(reads)
        for _ in range(3):
            assert outcome(fast, X, odd) == outcome(reads, X, odd)


@pytest.mark.parametrize(
    "whose", ["an object's", "a metaclass's", "a module class's", "a module's"]
)
def test_getattr_that_reads_from_elsewhere(whose: str) -> None:
    """What it looks at isn't guarded, so it's asked anew at each call."""
    table = {"a": 2}
    hook = {"__getattr__": table.get}
    owner: Any = types.ModuleType("owner")
    if whose == "an object's":
        owner = type("Class", (), hook)()
    elif whose == "a metaclass's":
        owner = type("Meta", (type,), hook)("Class", (), {})
    elif whose == "a module class's":
        owner = type("Module", (types.ModuleType,), hook)("owner")
    else:
        owner.__getattr__ = table.get

    def reads(x: torch.Tensor) -> torch.Tensor:
        return x * owner.a

    fast = stator.compile(reads)
    for value in (2, 2, 3, 3):
        table["a"] = value
        assert outcome(fast, X) == outcome(reads, X) == (X * value).tolist()


# -- accelerate's and Lightning's ways ---------------------------------------------------------------


class ConvertOutputs:
    """As accelerate's `ConvertOutputsToFp32`: a callable object around `forward`."""

    def __init__(self, forward: Any) -> None:
        self.model_forward = forward
        functools.update_wrapper(self, forward)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.model_forward(*args, **kwargs).float()


def around_forward(model: Any) -> None:
    """What accelerate does to a model under mixed precision."""
    model._original_forward = model.forward
    function = model.forward.__func__ if hasattr(model.forward, "__func__") else model.forward
    autocast = torch.autocast("cpu", torch.bfloat16)(function)
    model.forward = types.MethodType(autocast, model)
    converted = ConvertOutputs(model.forward.__func__)

    @functools.wraps(model.forward.__func__)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return converted(*args, **kwargs)

    forward.__wrapped__ = model.forward.__func__
    model.forward = types.MethodType(forward, model)


def unwrapped(model: Any) -> Any:
    """What accelerate does to get the model back."""
    model = getattr(model, "_orig_mod", model)
    forward = model.forward
    original = model.__dict__.pop("_original_forward", None)
    if original is not None:
        while hasattr(forward, "__wrapped__"):
            forward = forward.__wrapped__
            if forward == original:
                break
        model.forward = types.MethodType(forward, model)
    return model


@pytest.mark.parametrize("first", ["compile", "wrap"])
def test_forward_wrapped_as_accelerate_does(first: str) -> None:
    plain, own = net(), net()
    around_forward(plain)
    if first == "wrap":
        around_forward(own)
    compiled: Any = stator.compile(own)
    if first == "compile":
        compiled(X)
        around_forward(compiled)
    for _ in range(3):
        found, expected = compiled(X), plain(X)
        assert found.dtype is torch.float32 and torch.equal(found, expected)
    bare = unwrapped(compiled)
    assert bare is own and torch.equal(bare(X), net()(X)) and torch.equal(compiled(X), net()(X))


def test_forward_replaced_by_a_compiled_one() -> None:
    model: Any = net()
    expected = model(X)
    model.forward = stator.compile(model.forward)
    for _ in range(3):
        assert torch.equal(model(X), expected)
    assert stator.stats(model).traces == 1 and stator.stats(model).hits == 2
    assert stator.stats(model.forward).hits == 2
    with pytest.raises(stator.errors.NotCompilableError):
        stator.stats(net())


def test_a_wrapper_is_known_by_the_name_of_torch_compile() -> None:
    model = net()
    compiled: Any = stator.compile(model)
    assert compiled._orig_mod is model and compiled.state_dict().keys() == model.state_dict().keys()
    assert not hasattr(model, "_orig_mod")


def test_copies_and_pickles() -> None:
    model = net()
    compiled: Any = stator.compile(model)
    expected = compiled(X)
    for other in (
        copy.deepcopy(compiled),
        pickle.loads(pickle.dumps(compiled)),
        copy.copy(compiled),
    ):
        assert other is not compiled and isinstance(other, Net)
        for _ in range(2):
            assert torch.equal(other(X), expected)
        assert stator.stats(other).hits == 1
    buffer = io.BytesIO()
    torch.save(compiled.state_dict(), buffer)
    buffer.seek(0)
    fresh = Net()
    fresh.load_state_dict(torch.load(buffer))
    assert torch.equal(fresh(X), expected)
