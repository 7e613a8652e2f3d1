"""What breaks a graph, and what goes on behind it: always as in plain Python, on every call."""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import stator
from stator import _testing

X = torch.arange(1.0, 5.0)
CALLS = 3


def outcome(function: Callable[..., Any], *args: Any) -> tuple[Any, str]:
    """What a call returns or raises, and what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = function(*args)
        except Exception as error:
            result = (
                type(error),
                str(error),
                [f.name for f in traceback.extract_tb(error.__traceback__)][1:],
            )
    return result, printed.getvalue()


def same(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor):
        return isinstance(right, Tensor) and torch.equal(left, right)
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


def right(function: Callable[..., Any], *args: Any, calls: int = CALLS) -> Any:
    """Calls a compiled function several times and compares with plain Python; the counters."""
    compiled = stator.compile(function)
    for _ in range(calls):
        expected, found = outcome(function, *args), outcome(compiled, *args)
        assert same(expected[0], found[0]), (expected, found)
        assert expected[1] == found[1]
    return stator.stats(compiled)


def branches(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x * 3


def saves(x: Tensor) -> Tensor:
    file = io.BytesIO()
    y = x + 1
    torch.save(y, file)
    return y * len(file.getvalue())


def asks(x: Tensor) -> Tensor:
    y = x + 1
    breakpoint()
    return y * 2


@stator.disable
def disabled(x: Tensor) -> Tensor:
    return x * 5


BREAKING: dict[str, Callable[[Tensor], Any]] = {
    "print": lambda x: (print("Hi"), x + 1)[1],
    "opaque call": lambda x: (x + 1) * (sys.getsizeof("text") > 0),
    "numpy": lambda x: (x + 1) * float(np.unique((x * 2).numpy()).sum()),
    "save": saves,
    "breakpoint": asks,
    "marked": lambda x: (stator.graph_break(), x + 1)[1],
    "disabled": lambda x: disabled(x + 1) + 1,
}


@pytest.mark.parametrize("name", BREAKING)
def test_breaking_operations(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "breakpointhook", lambda *args: print("asked"))
    stats = right(BREAKING[name], X)
    assert stats.breaks >= 1 and stats.native <= 1, stats.reason


CARRIED_ON: dict[str, Callable[[Tensor], Any]] = {
    "branch": branches,
    "item": lambda x: (x * 2) * x.sum().item(),
    "text": lambda x: (f"{x + 1}", x * 2),
    "float": lambda x: (x + 1) * float(x.sum()),
    "bool": lambda x: x + bool(x[0]),
    "equal": lambda x: x * torch.equal(x, x + 0),
    "int": lambda x: (x + 1) * int(x.sum()),
    "tolist": lambda x: (x + 1) * len((x * 2).tolist()),
    "nonzero": lambda x: x.nonzero() + 1,
    "mask": lambda x: x[x > 2] * 2,
    "unique": lambda x: (x * 2).unique() + 1,
}


@pytest.mark.parametrize("name", CARRIED_ON)
def test_questions_about_data_break_nothing(name: str) -> None:
    stats = right(CARRIED_ON[name], X)
    assert (stats.breaks, stats.native) == (0, 0), stats.reason


def in_a_loop(x: Tensor) -> Tensor:
    for i in range(4):
        x = x * 2 + i
        print(i, x.sum().item())
    return x


def in_try(x: Tensor) -> Tensor:
    try:
        y = x + 1
        print("in")
        raise ValueError("v")
    except ValueError as error:
        print("caught", error)
        y = x * 2
    finally:
        print("finally")
    return y


def raises_behind(x: Tensor) -> Tensor:
    def inner(y: Tensor) -> Tensor:
        print("before")
        return y + torch.ones(7)

    return inner(x + 1)


def in_with(x: Tensor) -> tuple[Tensor, bool]:
    with torch.no_grad():
        y = x * 2
        print(torch.is_grad_enabled())
        y = y + 1
    return y, torch.is_grad_enabled()


def in_user_with(x: Tensor) -> Tensor:
    class Manager:
        def __enter__(self) -> Tensor:
            print("enter")
            return x + 1

        def __exit__(self, *exc: object) -> bool:
            print("exit", exc[0])
            return True

    with Manager() as y:
        print("body")
        raise KeyError("k")
    return y * 2


def in_comprehension(x: Tensor) -> list[Tensor]:
    return [(print(i), x + i)[1] for i in range(3)]


def in_generator(x: Tensor) -> Tensor:
    def pieces() -> Iterator[Tensor]:
        for i in range(3):
            print("piece", i)
            yield x * i

    total = x
    for piece in pieces():
        total = total + piece
    return total


def with_cells(x: Tensor) -> tuple[Tensor, int]:
    count = 0
    y = x

    def step() -> None:
        nonlocal count, y
        count += 1
        print("step", count)
        y = y * 2 + count

    step()
    step()
    return y, count


def on_the_stack(x: Tensor) -> list[Any]:
    return [x + 1, {"a": x * 2, "b": (print("mid"), x - 1)[1]}, f"{print('last')}", *(x, x)]


def in_sort_key(x: Tensor) -> list[int]:
    def key(n: int) -> int:
        print("key", n)
        return -n

    x = x + 1
    found = sorted([1, 3, 2], key=key)
    return [found, x * 2]  # type: ignore[list-item]


def under_a_class(x: Tensor) -> Tensor:
    class Holder:
        def __init__(self, value: Tensor) -> None:
            print("made")
            self.value = value

        @property
        def twice(self) -> Tensor:
            print("read")
            return self.value * 2

        def __add__(self, other: Tensor) -> Tensor:
            print("added")
            return self.value + other

    holder = Holder(x + 1)
    return holder.twice + (holder + x)


def with_keywords(x: Tensor) -> Tensor:
    def scale(y: Tensor, *, by: float, plus: float = 0.0) -> Tensor:
        print("scale", by, plus)
        return y * by + plus

    return scale(x, by=2.0, plus=functools.partial(scale, by=1.0)(x).sum().item())


PLACES = [
    in_a_loop,
    in_try,
    raises_behind,
    in_with,
    in_user_with,
    in_comprehension,
    in_generator,
    with_cells,
    on_the_stack,
    in_sort_key,
    under_a_class,
    with_keywords,
]


@pytest.mark.parametrize("function", PLACES, ids=lambda function: function.__name__)
def test_places(function: Callable[[Tensor], Any]) -> None:
    right(function, X, calls=4)


def test_each_side_of_a_branch_is_traced_when_it_is_taken() -> None:
    compiled = stator.compile(branches)
    for x, graphs in [(X, 1), (X, 1), (-X, 2), (-X, 2), (X, 2)]:
        assert torch.equal(compiled(x), branches(x))
        assert stator.stats(compiled).graphs == graphs


def test_guards_behind_a_break_speak_of_what_is_there() -> None:
    """The call that breaks changes what was read before it, and what is read behind it."""
    state = types.SimpleNamespace(n=1)
    changes = iter(range(2, 100))

    def opaque() -> None:
        state.n = next(changes)

    hidden = stator.disable(opaque)

    def fn(x: Tensor) -> Tensor:
        x = x * state.n
        hidden()
        return x + state.n

    compiled = stator.compile(fn)
    expected = 1
    for n in range(2, 6):
        assert torch.equal(compiled(X), X * expected + n)
        expected = n


def test_a_failing_operation_inside_try() -> None:
    """`cholesky` that was recorded while it succeeded, and fails later, and the other way round."""

    def fn(a: Tensor) -> Tensor:
        try:
            factor = torch.linalg.cholesky(a)
        except torch.linalg.LinAlgError:
            return a - 1
        return factor * 2

    good, bad = torch.eye(3) * 4, -torch.eye(3)
    for order in ([good, good, bad, good, bad], [bad, bad, good, bad, good]):
        compiled = stator.compile(fn)
        for a in order:
            assert torch.equal(compiled(a), fn(a))


def nested(depth: int) -> Callable[[Tensor], Tensor]:
    def inner(x: Tensor) -> Tensor:
        y = x * 2
        names = [sys._getframe().f_code.co_name]
        if depth:
            names.append(sys._getframe(1).f_code.co_name)
            names.append(sys._getframe(depth).f_code.co_name)
        print(names)
        return y + 1

    function = inner
    for level in range(depth):
        exec(
            f"def level{level}(x):\n    z = inner(x + 1)\n    return z * 2\n",
            names := {"inner": function},
        )
        function = names[f"level{level}"]  # type: ignore[assignment]
    return function


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 5])
def test_depth_does_not_add_graphs(depth: int) -> None:
    def plain(x: Tensor) -> Tensor:
        y = x * 2
        print("Hi")
        return y + 1

    function = plain
    for level in range(depth):
        names: dict[str, Any] = {"inner": function}
        exec(f"def level{level}(x):\n    z = inner(x + 1)\n    return z * 2\n", names)
        function = names[f"level{level}"]
    stats = right(function, X)
    assert (stats.graphs, stats.breaks, stats.hits, stats.native) == (2, 1, CALLS - 1, 0)


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 5])
def test_frames_have_their_names(depth: int) -> None:
    stats = right(nested(depth), X)
    assert stats.hits == CALLS - 1


def test_a_module_five_calls_deep() -> None:
    class Leaf(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(3.0))

        def forward(self, x: Tensor) -> Tensor:
            y = x * self.scale
            print("leaf")
            return y + 1

    class Around(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x + 1) * 2  # type: ignore[no-any-return]

    model: torch.nn.Module = Leaf()
    for _ in range(5):
        model = Around(model)
    with torch.no_grad():
        compiled = stator.compile(model)
        for _ in range(CALLS):
            assert same(outcome(model, X), outcome(compiled, X))
    assert stator.stats(compiled).graphs == 2


def test_identity_is_kept_over_a_break() -> None:
    def fn(x: Tensor) -> tuple[Any, ...]:
        one = [x + 1]
        two = {"one": one, "again": one}
        two["self"] = two
        print("break")
        return one is two["one"], one is two["again"], two["self"] is two, one[0]

    right(fn, X)


def test_fullgraph_names_the_first_break() -> None:
    @stator.compile(fullgraph=True)
    def fn(x: Tensor) -> Tensor:
        y = x + 1
        sys.stdout.isatty()
        return y * y.sum().item()

    with pytest.raises(stator.GraphBreakError) as raised:
        fn(X)
    assert raised.value.id == "SB001" and "isatty" in raised.value.explanation


def test_what_is_rebuilt_is_new_for_each_call() -> None:
    def fn(x: Tensor) -> list[Tensor]:
        made = [x]
        builtins.print(end="")
        made.append(x * 2)
        return made

    compiled = stator.compile(fn)
    results = [compiled(X) for _ in range(4)]
    assert all(len(result) == 2 for result in results)
    assert len({id(result) for result in results}) == 4


def test_every_instruction_of_a_model() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    with torch.no_grad():
        for parity in (0, 1):
            compiled = stator.compile(model)
            for _ in range(CALLS):
                with _testing.break_everywhere(parity):
                    assert torch.equal(compiled(X), model(X))
            assert stator.stats(compiled).native == 0


def test_a_long_loop_is_recorded_in_part() -> None:
    """Of one that doesn't end a recording would take all memory."""

    def long_loop(x: Tensor, n: int) -> Tensor:
        for _ in range(n):
            x = x + 1
        return x * 2

    compiled = stator.compile(long_loop)
    for n in (140_000, 140_000, 3):
        assert torch.equal(compiled(torch.zeros(2), n), torch.full((2,), 2.0 * n))
    stats = stator.stats(compiled)
    assert 0 < stats.traces < 8 and stats.breaks > 0, stats
