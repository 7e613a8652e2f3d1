"""Replays call PyTorch's operators without Python's functions for them: all that shows must be the same.

Each call of PyTorch's operator database that is known to end in one operator is made both ways: results
to the bit with strides, types and aliases, what autograd and dispatch modes see of it, gradients,
warnings and errors.
"""

from __future__ import annotations

import copy
import itertools
import operator
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from differential.support import api
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import stator
from soundness.operator_database import calls, more_calls, operator_database
from stator import _testing

ALL = os.environ["STATOR_SWEEP"] == "all"
SAMPLES, STEP, SHARDS = (40, 1, 8) if ALL else (4, 2, 4)

directly: Callable[..., tuple[Any] | None] = _testing._native.call_directly


class Seen(TorchDispatchMode):
    """The operators that are dispatched, with what is no tensor among their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = tree_map(lambda leaf: "tensor" if isinstance(leaf, Tensor) else repr(leaf), args)
        self.calls.append((str(function), given, sorted(kwargs or {})))
        return function(*args, **(kwargs or {}))


def copied(value: Any, requires_grad: bool) -> Any:
    """Tensors of their own, with the same strides."""

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return copy.copy(leaf)
        if leaf.is_nested or leaf.layout is not torch.strided:
            return leaf
        made = leaf.detach().clone(memory_format=torch.preserve_format)
        if requires_grad and (made.is_floating_point() or made.is_complex()):
            made = made.requires_grad_()
        return made

    return tree_map(one, value)


def history(result: Any) -> Any:
    """The notes of autograd on the way back, by name."""
    names, left = [], [leaf.grad_fn for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
    while left and len(names) < 20:
        node = left.pop()
        names.append(None if node is None else node.name())
        left += [] if node is None else [following for following, _ in node.next_functions]
    return names


def memory(tensor: Tensor) -> int:
    """Where a tensor's storage lies; 0: it has none that can be told."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


def described(leaf: Any, tensors: list[Tensor]) -> Any:
    """All that can be seen of a value, and which of these tensors it is or shares memory with."""
    if not isinstance(leaf, Tensor):
        return repr(leaf)
    same = [at for at, tensor in enumerate(tensors) if tensor is leaf]
    place = memory(leaf)
    shared = [at for at, tensor in enumerate(tensors) if place and memory(tensor) == place]
    is_strided = leaf.layout is torch.strided
    kind = (type(leaf), leaf.dtype, leaf.shape, leaf.stride() if is_strided else None)
    data = leaf.detach()
    try:
        bits: Any = data.resolve_conj().resolve_neg().numpy().tobytes()
    except (RuntimeError, TypeError):
        bits = repr(data)
    return (*kind, leaf.requires_grad, leaf._version, same, shared, bits)


def outcome(call: Callable[[], Any], given: Any, is_watched: bool = True) -> Any:
    """All that shows of a call. Where nobody watches what is dispatched, less is done for it."""
    torch.manual_seed(0)
    tensors = [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
    seen = Seen()
    with warnings.catch_warnings(record=True) as told, seen if is_watched else nullcontext():
        warnings.simplefilter("always")
        try:
            result = call()
        except Exception as error:
            return type(error), str(error), seen.calls, [str(one.message) for one in told]
    shown = [described(leaf, tensors) for leaf in tree_leaves(result)]
    written = [described(tensor, tensors) for tensor in tensors]
    gradients: Any = None
    if isinstance(result, Tensor) and result.requires_grad and not result.is_complex():
        try:
            result.sum().backward()
        except RuntimeError as error:
            gradients = str(error)
        else:
            gradients = [described(one.grad, []) for one in tensors if one.is_leaf]
    messages = [str(one.message) for one in told]
    return shown, written, history(result), gradients, seen.calls, messages, torch.rand(1).item()


def sampled(shard: int) -> Iterator[Any]:
    everything = itertools.islice(operator_database(), shard, None, SHARDS * STEP)
    for op in everything:
        listed = calls(op)
        while True:
            try:
                call = next(listed)
            except StopIteration:
                break
            except Exception:  # The database can't make a sample here.
                break
            yield call
    if shard == 0:
        yield from more_calls()


@pytest.mark.parametrize("shard", range(SHARDS))
def test_the_operator_database(shard: int) -> None:
    differing, direct = [], 0
    counted: dict[str, int] = {}
    for name, function, args, kwargs in sampled(shard):
        counted[name] = counted.get(name, 0) + 1
        if counted[name] > SAMPLES or not callable(function):
            continue
        for requires_grad in (False, True):
            given = [copied((args, kwargs), requires_grad) for _ in range(3)]
            try:
                probe = directly(function, *given[2])
            except Exception:
                probe = ()
            if probe is None:
                break
            direct += 1
            found = []
            for way, (its_args, its_kwargs) in zip((False, True), given, strict=False):

                def call(
                    way: bool = way, its_args: Any = its_args, its_kwargs: Any = its_kwargs
                ) -> Any:
                    if not way:
                        return function(*its_args, **its_kwargs)
                    made = directly(function, its_args, its_kwargs)
                    assert made is not None, "it is no call of one operator any more"
                    return made[0]

                found.append(outcome(call, (its_args, its_kwargs)))
            if found[0] != found[1]:
                differing.append((name, requires_grad, tuple(str(one)[:400] for one in found)))
    assert not differing, (len(differing), differing[:5])
    assert direct > 50


OPERATORS = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.mod, operator.pow),
    *(operator.eq, operator.ne, operator.lt, operator.gt, operator.le, operator.ge),
    *(operator.and_, operator.or_, operator.xor, operator.floordiv, operator.matmul),
    *(operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow),
]
LEFT: list[Callable[[], Tensor]] = [
    lambda: torch.tensor([1.5, -2.0, 3.0]),
    lambda: torch.tensor([1.5, -2.0, 3.0], requires_grad=True) * 1,
    lambda: torch.tensor([1, -2, 3]),
    lambda: torch.tensor([True, False, True]),
    lambda: torch.tensor([1, 2, 3], dtype=torch.uint8),
    lambda: torch.tensor([1.0, 2.0, 4.0], dtype=torch.bfloat16),
    lambda: torch.tensor(2.5),
    lambda: torch.tensor([0.1, 1e38], dtype=torch.float64),
    lambda: torch.tensor([0.1 + 2j]),
    lambda: torch.nn.Parameter(torch.tensor([1.5, -2.0, 3.0])),
]
RIGHT = [2, 2.5, 0.1, True, -1, 0, 1e300, 2**24 + 1, 2**53 + 1, 2**70, 1j, float("nan"), *LEFT]


@pytest.mark.parametrize("function", OPERATORS)
def test_operators(function: Callable[[Any, Any], Any]) -> None:
    """What types and numbers an operator is given decides what it is, and what it gives."""
    for left, right in itertools.product(LEFT, RIGHT):
        if callable(right):
            compiled = api.compile(lambda x, y: function(x, y))
        else:
            compiled = api.compile(lambda x, y, number=right: function(x, number))
        with stator.config.patch(skip_unprofitable=False):
            for _ in range(3):
                found = []
                for way in (function, compiled):
                    for is_watched in (True, False):
                        given = (left(), right() if callable(right) else right)
                        found.append(outcome(partial(way, *given), given, is_watched))
                assert found[:2] == found[2:], (function, left(), right)


@pytest.mark.parametrize("function", OPERATORS)
def test_operators_of_a_number(function: Callable[[Any, Any], Any]) -> None:
    """What a tensor does with a number in front of it: `1 / x` is no division."""
    for number, right in itertools.product((2, 0.1, True, -1), LEFT):
        compiled = api.compile(lambda x, number=number: function(number, x))
        with stator.config.patch(skip_unprofitable=False):
            for _ in range(3):
                found = []
                for way in (lambda x, number=number: function(number, x), compiled):
                    for is_watched in (True, False):
                        x = right()
                        found.append(outcome(partial(way, x), (x,), is_watched))
                assert found[:2] == found[2:], (function, number, right())


def functions() -> list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], bool]]:
    """Functions of `torch.nn.functional` that are written in Python, and whether they're one operator."""
    x, w, b = torch.rand(2, 3, 4) - 0.5, torch.rand(4), torch.rand(4)
    table, places = torch.rand(5, 4), torch.tensor([[1, 4], [0, 2]])
    found: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], bool]] = [
        (F.layer_norm, (x, (4,)), {}, True),
        (F.layer_norm, (x, [3, 4], None, None, 1e-3), {}, True),
        (F.layer_norm, (x, (4,), w, b, 1e-12), {}, True),
        (F.layer_norm, (x,), {"normalized_shape": (4,), "bias": b, "weight": w}, True),
        (F.layer_norm, (x, (3,), w), {}, True),  # It raises.
        (F.rms_norm, (x, (4,), w), {}, True),
        (F.rms_norm, (x, (4,)), {"eps": 1e-3}, True),
        (F.embedding, (places, table), {}, True),
        (F.embedding, (places, table, 2), {"sparse": False}, True),
        (F.embedding, (places, table, -1), {}, False),
        (F.embedding, (places, table), {"max_norm": 0.5}, False),
        (F.embedding, (places + 3, table), {}, True),  # It raises.
    ]
    for function in (F.relu, F.relu6, F.selu, F.silu, F.hardswish, F.mish):
        found += [
            (function, (x,), {}, True),
            (function, (), {"input": x}, True),
            (function, (x, False), {}, True),
            (function, (x,), {"inplace": False}, True),
            (function, (x * 1,), {"inplace": True}, False),
        ]
    for function in (F.softmax, F.log_softmax):
        found += [
            (function, (x, -1), {}, True),
            (function, (x,), {"dim": 1}, True),
            (function, (x, 7), {}, True),  # It raises.
            (function, (x, 1), {"dtype": torch.float64}, False),
            (function, (x,), {}, False),
        ]
    q, k, v = (torch.rand(2, 2, 3, 4) for _ in range(3))
    mask = torch.tensor([[True, False, True]] * 3)
    attention = F.scaled_dot_product_attention
    found += [
        (attention, (q, k, v), {}, True),
        (attention, (q, k, v, mask), {}, True),
        (attention, (q, k, v), {"attn_mask": mask, "scale": 0.3}, True),
        (attention, (q, k, v), {"is_causal": True, "dropout_p": 0.0, "scale": None}, True),
        (attention, (q, k[:, :1], v[:, :1]), {"enable_gqa": True, "scale": 2}, True),
        (attention, (q, k[:, :1], v[:, :1]), {"enable_gqa": False}, True),
    ]
    return found


@pytest.mark.parametrize("number", range(len(functions())))
def test_functions(number: int) -> None:
    """What a function in Python ends in, if it does nothing else."""
    function, args, kwargs, is_direct = functions()[number]
    try:
        made = directly(function, *copied((args, kwargs), False))
    except (RuntimeError, IndexError):
        made = ()
    assert (made is not None) == is_direct
    compiled = api.compile(lambda args, kwargs: function(*args, **kwargs))
    with stator.config.patch(skip_unprofitable=False):
        for requires_grad, is_watched in itertools.product((False, True), repeat=2):
            found = []
            for way in (function, directly if is_direct else function, compiled, compiled):
                given = copied((args, kwargs), requires_grad)
                if way is compiled:
                    call = partial(compiled, *given)
                elif way is function:
                    call = partial(function, *given[0], **given[1])
                else:
                    call = lambda given=given: directly(function, *given)[0]  # type: ignore[index]
                found.append(outcome(call, given, is_watched))
            assert found[0] == found[1] == found[2] == found[3]


def test_a_function_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the program's under the name of PyTorch's does what it does."""

    def relu(input: Tensor, inplace: bool = False) -> Tensor:
        return input * 3

    monkeypatch.setattr(F, "relu", relu)
    assert directly(relu, (torch.ones(2),), {}) is None
    compiled = api.compile(lambda x: F.relu(x) + 1)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            assert compiled(torch.ones(2))[0] == 4


READ: list[Callable[[], Tensor]] = [
    *(partial(torch.tensor, 1, dtype=dtype) for dtype in (torch.uint8, torch.int8, torch.int16)),
    *(partial(torch.tensor, -7, dtype=dtype) for dtype in (torch.int32, torch.int64)),
    *(partial(torch.tensor, 2.5, dtype=dtype) for dtype in (torch.float16, torch.bfloat16)),
    *(partial(torch.tensor, 0.1, dtype=dtype) for dtype in (torch.float32, torch.float64)),
    *(partial(torch.tensor, value) for value in (True, False, 2**62, 0, -0.0, float("nan"))),
    *(partial(torch.tensor, value, dtype=torch.uint64) for value in (3, 2**63 + 5)),
    partial(torch.tensor, 1 + 2j),
    partial(torch.tensor, [[3.0]], requires_grad=True),
    partial(torch.tensor, [1.0, 2.0]),
    partial(torch.empty, 0),
    lambda: torch.ones(3).to_sparse(),
    lambda: torch.nn.Parameter(torch.tensor(1.5)),
]


@pytest.mark.parametrize("number", range(len(READ)))
def test_reads(number: int) -> None:
    """Truth values and numbers: their types, signs, and errors."""
    ways: list[Callable[[Tensor], Any]] = [lambda x: (bool(x), x + 1), lambda x: (x.item(), x + 1)]
    compiled = [api.compile(way) for way in ways]
    for function, its, is_watched in itertools.product(
        (Tensor.__bool__, Tensor.item, Tensor.is_nonzero), (0, 1), (False, True)
    ):
        given = [(READ[number](),) for _ in range(2)]
        plain = outcome(partial(function, *given[0]), given[0], is_watched)

        def read(given: Any = given[1], function: Any = function) -> Any:
            made = directly(function, given, {})
            return function(*given) if made is None else made[0]

        assert outcome(read, given[1], is_watched) == plain
        with stator.config.patch(skip_unprofitable=False):
            x, y = READ[number](), READ[number]()
            expected = outcome(partial(ways[its], x), (x,), is_watched)
            assert outcome(partial(compiled[its], y), (y,), is_watched) == expected


BASES: list[Callable[[], Tensor]] = [
    lambda: torch.arange(60.0).view(3, 4, 5),
    lambda: torch.arange(60.0).view(5, 4, 3).permute(2, 1, 0).requires_grad_(),
    lambda: torch.arange(12.0, requires_grad=True).view(3, 4) * 1,
    lambda: torch.arange(4).bool(),
    lambda: torch.tensor(2.5),
    lambda: torch.ones(0, 3),
    lambda: torch.ones(2, 3, dtype=torch.complex64).conj(),
    lambda: torch.ones(3, 4).to_sparse(),
    lambda: torch.nn.Parameter(torch.ones(3, 2)),
]
THINGS: list[Any] = [
    *(0, 1, -1, 2, -3, 7, -7, True, None, ..., slice(None), slice(1, None), slice(None, 2)),
    *(slice(None, -1), slice(-2, None), slice(0, 4), slice(0, 3, 2), slice(2, 1), slice(0, 99)),
    *(slice(None, None, 2), slice(None, None, -1), slice(-99, 99), [0, 1], 1.5, slice(1.5, None)),
    slice(None, 2**40),
]
INDICES = [
    *THINGS,
    (),
    *((thing,) for thing in THINGS),
    *itertools.product(THINGS[:6] + THINGS[8:13] + THINGS[15:17], [..., slice(None), None, 0]),
    *itertools.product([..., slice(None), None, 0], THINGS[:6] + THINGS[8:13] + THINGS[15:17]),
    *((..., thing, slice(None)) for thing in THINGS),
    *((slice(None), thing, ...) for thing in THINGS),
    *((slice(None), slice(None), thing) for thing in THINGS),
    (slice(None),) * 4,
    (..., slice(None), ...),
    (slice(None), slice(None), slice(None), 0),
]


@pytest.mark.parametrize("base", range(len(BASES)))
def test_indices(base: int) -> None:
    """What is indexed by one thing is one operator, which no other thing is taken for."""
    differing, direct = [], 0
    for index in INDICES:
        given = [(BASES[base](), index) for _ in range(2)]
        plain = outcome(lambda given=given: operator.getitem(*given[0]), given[0])
        try:
            made = directly(operator.getitem, (BASES[base](), index), {})
        except Exception as error:
            differing.append((index, plain, error))
            continue
        if made is not None:
            direct += 1
            found = outcome(
                lambda given=given: directly(operator.getitem, given[1], {})[0], given[1]
            )  # type: ignore[index]
            if found != plain:
                differing.append((index, plain, found))
    assert not differing, (len(differing), differing[:3])
    assert direct > 10 or base in (4, 7), direct


@pytest.mark.parametrize("base", range(len(BASES)))
def test_indices_of_traces(base: int) -> None:
    """The same in replays, of tensors that are as large as at first or larger."""
    for index in INDICES[::3]:
        compiled = api.compile(lambda x, index=index: x[index])
        with stator.config.patch(skip_unprofitable=False):
            for size in (0, 0, 1, 2, 0):
                found = []
                for way in (lambda x, index=index: x[index], compiled):
                    x = BASES[base]()
                    given = (
                        x
                        if x.layout is not torch.strided
                        else torch.cat([x] * (size + 1))
                        if x.dim()
                        else x,
                    )
                    found.append(outcome(lambda way=way, given=given: way(*given), given))
                assert found[0] == found[1], (index, size)


@pytest.mark.parametrize(
    ("name", "fn"),
    [
        ("__add__", lambda x: x + 1),
        ("__mul__", lambda x: x * x),
        ("__gt__", lambda x: x > 0),
        ("__neg__", lambda x: -x),
    ],
)
def test_operators_that_are_replaced(
    name: str, fn: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The type of tensors says what an operator does, and may be changed."""
    compiled, x = api.compile(fn), torch.ones(3)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            assert torch.equal(compiled(x), fn(x))
        with monkeypatch.context() as changed:
            changed.setattr(Tensor, name, lambda *_: torch.full((3,), 7.0))
            assert fn(x)[0] == 7
            assert torch.equal(compiled(x), fn(x))
        assert torch.equal(compiled(x), fn(x))


class Doubling(TorchFunctionMode):
    """Doubles what operators give."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*args, **(kwargs or {})) * 2


def test_modes_see_calls() -> None:
    x = torch.ones(3)
    plain, seen = directly(torch.add, (x, x), {}), None
    with Doubling():
        seen = directly(torch.add, (x, x), {})
    assert plain is not None and plain[0][0] == 2
    assert seen is None, "a mode has to see it in Python"
    assert directly(torch.add, (x.as_subclass(torch.nn.Buffer), x), {}) is None


def test_warnings_that_are_errors() -> None:
    x = torch.ones(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning) as plain:
            x.std(0, correction=1)
        with pytest.raises(UserWarning) as direct:
            directly(Tensor.std, (x, 0), {"correction": 1})
    assert str(plain.value) == str(direct.value)
    made = directly(torch.neg, (x,), {})
    assert made is not None and made[0] == -1


def test_errors_in_handlers() -> None:
    """An operator that raises is handled where it stands, and the next one works."""

    def pick(x: Tensor, index: Tensor) -> Tensor:
        try:
            return x.index_select(0, index) * 2
        except IndexError as error:
            return x.sum() - len(str(error))

    compiled, x = api.compile(pick), torch.arange(4.0)
    with stator.config.patch(skip_unprofitable=False):
        for index in (0, 1, 9, 2, 9, 3):
            given = torch.tensor([index])
            assert torch.equal(compiled(x, given), pick(x, given))


def test_other_threads_get_their_turn() -> None:
    """Operators release the GIL, as Python's functions for them do."""

    def long(x: Tensor) -> Tensor:
        for _ in range(3000):
            x = x + 1
        return x

    compiled, x = api.compile(long), torch.zeros(2)
    ended, turns = threading.Event(), [0]

    def other() -> None:
        while not ended.is_set():
            turns[0] += 1

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=other)
    try:
        with stator.config.patch(skip_unprofitable=False):
            for _ in range(2):
                compiled(x)
            sys.setswitchinterval(1e-5)
            thread.start()
            seen = set()
            for _ in range(50):
                compiled(x)
                seen.add(turns[0])
            assert len(seen) > 1
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)


TABLE = torch.arange(20.0).view(5, 4)
# What each of these functions looks up, where a program may have put something else.
LOOKED_UP: dict[str, tuple[Any, Callable[[Tensor], Tensor]]] = {
    "embedding": (torch, lambda x: F.embedding((x > 0).long(), TABLE)),
    "layer_norm": (torch, lambda x: F.layer_norm(x, (4,))),
    "rms_norm": (torch, lambda x: F.rms_norm(x, (4,))),
    "relu": (torch, lambda x: torch.nn.ReLU()(x)),
    "selu": (torch, F.selu),
    "hardswish": (torch._C._nn, F.hardswish),
    "mish": (torch._C._nn, F.mish),
    "relu6": (torch._C._nn, F.relu6),
    "silu": (torch._C._nn, F.silu),
}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_what_a_function_calls_is_replaced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, fn = LOOKED_UP[name]
    x = torch.linspace(-2, 2, 12).view(3, 4)
    before, compiled, late = fn(x), stator.compile(fn), stator.compile(fn)
    with monkeypatch.context() as patch:
        for _ in range(3):
            assert torch.equal(compiled(x), before)
        for value in (7.0, 8.0):
            patch.setattr(owner, name, lambda *given, value=value: torch.full((3, 4), value))
            for _ in range(3):
                assert torch.equal(compiled(x), torch.full((3, 4), value))
                assert torch.equal(late(x), torch.full((3, 4), value))
    for _ in range(3):
        assert torch.equal(compiled(x), before)
        assert torch.equal(late(x), before)
    assert stator.stats(compiled).hits >= 6
