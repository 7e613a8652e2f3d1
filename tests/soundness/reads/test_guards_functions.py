"""Guards on globals, builtins, closures, defaults, code and function identity: both ways."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from ..probe import Probe, Steps, flip, right_after, same

X = torch.ones(3)
K = 2
STEP = 0
TABLE = [torch.sin, torch.cos]


def helper(x: Tensor, n: int = 2, *, k: int = 1) -> Tensor:
    return x * n + k


@flip
def test_global_value() -> Steps:
    yield (lambda x: x * K), (X,)
    globals()["K"] = 3
    yield None
    globals()["K"] = 2
    yield None


@flip
def test_global_function_replaced() -> Steps:
    original = helper
    yield (lambda x: helper(x)), (X,)
    globals()["helper"] = lambda x: x - 1
    yield None
    globals()["helper"] = original
    yield None


@flip
def test_default_changed() -> Steps:
    yield (lambda x: helper(x)), (X,)
    helper.__defaults__ = (5,)
    yield None
    helper.__defaults__ = (2,)
    yield None


@flip
def test_keyword_default_changed_in_place() -> Steps:
    yield (lambda x: helper(x)), (X,)
    helper.__kwdefaults__["k"] = 8
    yield None
    helper.__kwdefaults__["k"] = 1
    yield None


@flip
def test_keyword_defaults_replaced() -> Steps:
    yield (lambda x: helper(x)), (X,)
    helper.__kwdefaults__ = {"k": 9}
    yield None
    helper.__kwdefaults__ = {"k": 1}
    yield None


@flip
def test_default_removed() -> Steps:
    def fn(x: Tensor) -> Tensor:
        try:
            return helper(x)
        except TypeError:
            return x

    yield fn, (X,)
    helper.__defaults__ = None
    yield None
    helper.__defaults__ = (2,)
    yield None


@flip
def test_mutable_default() -> Steps:
    weights = [1, 2]

    def weighted(x: Tensor, w: list[int] = weights) -> Tensor:
        return x * sum(w)

    yield (lambda x: weighted(x)), (X,)
    weights.append(3)
    yield None
    weights.pop()
    yield None


@flip
def test_code_replaced() -> Steps:
    def inner(x: Tensor) -> Tensor:
        return x * 2

    original = inner.__code__
    yield (lambda x: inner(x)), (X,)
    inner.__code__ = (lambda x: x * 3).__code__
    yield None
    inner.__code__ = original
    yield None


@right_after
def test_own_default_changed() -> Steps:
    def fn(x: Tensor, n: int = 2) -> Tensor:
        return x * n

    yield fn, (X,)
    fn.__defaults__ = (3,)
    yield None


@right_after
def test_own_code_replaced() -> Steps:
    def fn(x: Tensor) -> Tensor:
        return x * 2

    yield fn, (X,)
    fn.__code__ = (lambda x: x * 3).__code__
    yield None


@flip
def test_closure_cell() -> Steps:
    n = 2

    def fn(x: Tensor) -> Tensor:
        return x * n

    yield fn, (X,)
    n = 3
    yield None
    n = 2
    yield None


@flip
def test_closure_cell_of_callee() -> Steps:
    n = 2

    def inner(x: Tensor) -> Tensor:
        return x * n

    yield (lambda x: inner(x)), (X,)
    n = 3
    yield None
    n = 2
    yield None


@right_after
def test_empty_closure_cell() -> Steps:
    n = 2

    def fn(x: Tensor) -> Tensor:
        try:
            return x * n
        except NameError:
            return -x

    yield fn, (X,)
    del n
    yield None
    n = 4
    yield None


@flip
def test_builtin_replaced() -> Steps:
    original = builtins.divmod
    space: dict[str, Any] = {}
    exec("def fn(x):\n    return x * divmod(7, 2)[0]\n", space)
    yield space["fn"], (X,)
    builtins.divmod = lambda a, b: (50, 0)  # type: ignore[assignment]
    try:
        yield None
    finally:
        builtins.divmod = original
    yield None


@flip
def test_function_in_a_list() -> Steps:
    yield (lambda x: TABLE[0](x)), (X,)
    TABLE.reverse()
    yield None
    TABLE.reverse()
    yield None


@flip
def test_function_attribute() -> Steps:
    def inner(x: Tensor) -> Tensor:
        return x * inner.k  # type: ignore[attr-defined]

    inner.k = 2  # type: ignore[attr-defined]
    yield (lambda x: inner(x)), (X,)
    inner.k = 3  # type: ignore[attr-defined]
    yield None
    inner.k = 2  # type: ignore[attr-defined]
    yield None


@flip
def test_partial_replaced() -> Steps:
    first = functools.partial(helper, n=3)
    held: list[Callable[..., Tensor]] = [first]
    yield (lambda x: held[0](x)), (X,)
    held[0] = functools.partial(helper, n=4)
    yield None
    held[0] = first
    yield None


@right_after
def test_closures_of_one_code() -> Steps:
    def made(n: int) -> Callable[[Tensor], Tensor]:
        return lambda x: x * n

    yield (lambda x, f: f(x)), (X, made(2))
    yield X, made(3)
    yield X, made(2)


@right_after
def test_bound_methods_of_two_objects() -> Steps:
    class A:
        def __init__(self, n: int) -> None:
            self.n = n

        def run(self, x: Tensor) -> Tensor:
            return x * self.n

    yield (lambda x, f: f(x)), (X, A(2).run)
    yield X, A(3).run


@right_after
def test_singledispatch_learns_a_type() -> Steps:
    @functools.singledispatch
    def size(item: Any) -> int:
        return 1

    yield (lambda x: x * size(3)), (X,)
    size.register(int, lambda item: 50)
    yield None


@same
def test_global_counter_is_rebound() -> Steps:
    yield (lambda x: x * K), (X,)
    for step in range(20):
        globals()["STEP"] = step
        yield None


@same
def test_globals_appear_and_disappear() -> Steps:
    yield (lambda x: helper(x * K)), (X,)
    globals()["NEW_NAME"] = 1
    yield None
    del globals()["NEW_NAME"]
    yield None


@same
def test_many_globals_make_the_dict_grow() -> Steps:
    space: dict[str, Any] = {"K": 2}
    exec("def fn(x):\n    return x * K\n", space)
    yield space["fn"], (X,)
    for i in range(200):
        space[f"name_{i}"] = i
    yield None
    for i in range(200):
        del space[f"name_{i}"]
    yield None


def test_training_loop_stays_on_the_fast_path() -> None:
    """Globals and attributes are rebound in every iteration; the step isn't recorded again."""
    space: dict[str, Any] = {"torch": torch, "step": 0, "loss": None, "lr": 0.1}
    exec(
        "w = torch.ones(3, requires_grad=True)\n"
        "def forward(x):\n    return ((x * w) ** 2).sum() * lr\n",
        space,
    )
    compiled = api.compile(space["forward"])
    x = torch.arange(3.0)
    for step in range(30):
        space["step"] = step
        space["loss"] = compiled(x)
        expected = space["forward"](x)
        assert torch.equal(space["loss"], expected)
        space["loss"].backward()
        with torch.no_grad():
            space["w"] -= 0.01 * space["w"].grad
        space["w"].grad = None
    if not api.PLAIN:
        assert api.traces(compiled) == 1
        assert api.native(compiled) == 0


def test_changed_argument_kinds_keep_their_entries() -> None:
    probe = Probe(lambda x, n: x * n)
    for n in (2, 2.0, True):
        probe.right(X, n)
    for n in (2, 2.0, True):
        probe.steady(X, n)


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
def test_guards_name_their_sources() -> None:
    class Config:
        scale = 2

    config = Config()
    config.scale = 3

    def fn(x: Tensor, items: list[int]) -> Tensor:
        return x * items[0] * K * config.scale

    compiled = api.compile(fn)
    compiled(X, [1, 2])
    text = "\n".join(compiled.guards()[0])
    for expected in ("L['x']", "L['items']", "G['K'] == 2", "check_tensor(L['x'], torch.float32"):
        assert expected in text, text
