"""Containers written while they are read, generators, exceptions; context variables, weak references, random numbers."""

from __future__ import annotations

import contextvars
import random
import weakref
from typing import Any

import torch
from differential.support import api
from torch import Tensor

from ..objects import Node, X
from ..probe import Steps, right_after, two_worlds

# --- iteration and mutation --------------------------------------------------------------------------


@right_after
def test_list_mutated_while_iterated() -> Steps:
    def fn(x: Tensor) -> Tensor:
        items = [1, 2, 3]
        for item in items:
            x = x * item + 1
            if len(items) < 6:
                items.append(item + 1)
        return x

    yield fn, (X,)


@two_worlds
def test_outside_list_written_while_iterated() -> Steps:
    items = [1, 2, 3]

    def fn(x: Tensor) -> Tensor:
        for index, item in enumerate(items):
            x = x * item
            items[index] = item + 1
        return x

    yield fn, (X,)


@two_worlds
def test_outside_dict_written_while_iterated() -> Steps:
    table = {"a": 1, "b": 2}

    def fn(x: Tensor) -> Tensor:
        for key, value in table.items():
            x = x * value
            table[key] = value + 1
        return x

    yield fn, (X,)
    table["a"] = 10
    yield None


@two_worlds
def test_outside_dict_grows_while_iterated() -> Steps:
    table = {"a": 1, "b": 2}

    def fn(x: Tensor) -> Tensor:
        try:
            for value in table.values():
                x = x * value
                table["c"] = 3
        except RuntimeError:
            return -x
        return x

    yield fn, (X,)
    del table["c"]
    yield None


@two_worlds
def test_read_after_write_through_another_name() -> Steps:
    node = Node(1)

    def fn(x: Tensor, a: Any, b: Any) -> Tensor:
        before = b.n
        a.n = before + 5
        return x * b.n

    yield fn, (X, node, node)
    yield X, node, Node(3)
    yield X, Node(3), Node(4)


@two_worlds
def test_write_then_read_of_another_object() -> Steps:
    def fn(x: Tensor, a: Any, b: Any) -> Tensor:
        a.n = 5
        return x * b.n

    yield fn, (X, Node(1), Node(2))
    node = Node(1)
    yield X, node, node
    yield X, Node(1), Node(2)


@two_worlds
def test_write_then_read_through_vars() -> Steps:
    def fn(x: Tensor, a: Any, d: Any) -> Tensor:
        a.n = 5
        return x * d["n"]

    node = Node(1)
    yield fn, (X, node, {"n": 2})
    yield X, node, vars(node)


@two_worlds
def test_own_write_is_overwritten_by_c_code() -> Steps:
    node = Node(1)

    def fn(x: Tensor) -> Tensor:
        node.n = 4
        vars(node).update(n=6)
        return x * node.n

    yield fn, (X,)
    node.n = 1
    yield None


@right_after
def test_generator_outlives_the_call() -> Steps:
    def numbers(x: Tensor) -> Any:
        for i in range(3):
            yield x * i

    def fn(x: Tensor) -> Tensor:
        generator = numbers(x)
        total = next(generator)
        return total + next(generator)

    yield fn, (X,)


@right_after
def test_generator_returned() -> Steps:
    def fn(x: Tensor) -> Any:
        return list(x * i for i in range(3))

    yield fn, (X,)


@right_after
def test_generator_from_outside() -> Steps:
    def numbers() -> Any:
        i = 0
        while True:
            i += 1
            yield i

    generator = numbers()
    plain = numbers()
    source = [generator]

    def fn(x: Tensor) -> Tensor:
        return x * (next(source[0]) > 0)

    yield fn, (X,)
    source[0] = plain
    yield None


@right_after
def test_exception_caught_around_an_operation() -> Steps:
    def fn(x: Tensor, n: int) -> Tensor:
        try:
            y = x.view(n, -1)
        except RuntimeError:
            y = -x
        return y + 1

    yield fn, (X, 2)
    yield X, 3
    yield X, 1


@right_after
def test_exception_holds_a_value() -> Steps:
    node = Node(4)

    def fn(x: Tensor) -> Tensor:
        try:
            raise ValueError(node.n)
        except ValueError as error:
            return x * error.args[0]

    yield fn, (X,)
    node.n = 6
    yield None


# --- context variables, weak references, random numbers ----------------------------------------------


VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE", default=1)


@right_after
def test_context_variable() -> Steps:
    yield (lambda x: x * VARIABLE.get()), (X,)
    token = VARIABLE.set(5)
    yield None
    VARIABLE.reset(token)
    yield None


@right_after
def test_context_variable_set_inside() -> Steps:
    def fn(x: Tensor) -> Tensor:
        token = VARIABLE.set(9)
        try:
            return x * VARIABLE.get()
        finally:
            VARIABLE.reset(token)

    yield fn, (X,)


@right_after
def test_weak_proxy() -> Steps:
    node = Node(1)
    proxy = weakref.proxy(node)
    yield (lambda x: x * proxy.n), (X,)
    node.n = 5
    yield None


@right_after
def test_weak_method() -> Steps:
    class A:
        n = 1

        def f(self) -> int:
            return self.n

    a = A()
    method = weakref.WeakMethod(a.f)
    yield (lambda x: x * method()()), (X,)  # type: ignore[misc]
    a.n = 3
    yield None


def test_python_random() -> None:
    def fn(x: Tensor) -> Tensor:
        return x * random.random() + random.randint(0, 100)

    compiled = api.compile(fn)
    for seed in range(4):
        random.seed(seed)
        expected = fn(X)
        random.seed(seed)
        assert torch.equal(compiled(X), expected)


def test_torch_random() -> None:
    def fn(x: Tensor) -> Tensor:
        y = torch.nn.functional.dropout(x, 0.5) + torch.rand(3)
        return y + torch.randn_like(x) + torch.bernoulli(x * 0.5)

    compiled = api.compile(fn)
    for seed in range(4):
        torch.manual_seed(seed)
        expected = fn(X)
        after = torch.rand(1)
        torch.manual_seed(seed)
        assert torch.equal(compiled(X), expected)
        assert torch.equal(torch.rand(1), after)


def test_seed_inside() -> None:
    def fn(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return x + torch.rand(3)

    compiled = api.compile(fn)
    for _ in range(3):
        assert torch.equal(compiled(X), fn(X))


def test_generator_argument() -> None:
    def fn(x: Tensor, g: torch.Generator) -> Tensor:
        return x + torch.rand(3, generator=g)

    compiled = api.compile(fn)
    one, two = torch.Generator(), torch.Generator()
    for _ in range(2):
        for generator in (one, two):
            generator.manual_seed(5)
            expected = fn(X, generator)
            generator.manual_seed(5)
            assert torch.equal(compiled(X, generator), expected)
