"""Calls that are made again with the same arguments: what may have changed in between is seen."""

from __future__ import annotations

import collections
import contextvars
import random
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from soundness.worlds import World, agree


class Settings:
    """As configurations of transformers: each attribute is read by code of the class's own."""

    names = {"alias": "size"}

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattribute__(self, name: str) -> Any:
        if name != "names" and name in super().__getattribute__("names"):
            name = super().__getattribute__("names")[name]
        return super().__getattribute__(name)


def settings() -> Settings:
    return Settings(size=2, scale=1.5, kind="plain", on=True, table={"a": 1}, part=Part())


class Part:
    def __init__(self) -> None:
        self.bias = 3


def test_read_again_and_again() -> None:
    def make() -> World:
        given = settings()

        def run(x: Tensor) -> Tensor:
            for _ in range(3):
                if given.on and given.kind == "plain":
                    x = x * given.scale + given.alias + given.part.bias
            return x.repeat(given.size)

        return World(run, state=lambda: vars(given)), given

    def world() -> World:
        made, given = make()
        made.given = given
        return made

    agree(
        world,
        lambda it: setattr(it.given, "size", 3),
        lambda it: setattr(it.given, "kind", "other"),
        lambda it: setattr(it.given.part, "bias", 4),
        lambda it: setattr(it.given, "kind", "plain"),
        lambda it: setattr(Settings, "names", {"alias": "scale"}),
        lambda it: setattr(Settings, "names", {"alias": "size"}),
    )


Run = Callable[[Tensor, Any], Any]


def between(write: Callable[[Settings], object]) -> Run:
    """The same call before and behind a write."""

    def run(x: Tensor, given: Settings) -> Any:
        before = given.alias, given.scale, dict(given.table), given.part.bias
        x = x * given.alias + given.part.bias
        write(given)
        behind = given.alias, given.scale, dict(given.table), given.part.bias
        return x * given.alias + given.part.bias, before, behind

    return run


WRITES = {
    "attribute": lambda it: setattr(it, "size", it.size + 1),
    "another_attribute": lambda it: setattr(it, "scale", it.scale + 1),
    "dictionary": lambda it: it.table.update(a=it.table["a"] + 1),
    "attribute_of_a_part": lambda it: setattr(it.part, "bias", it.part.bias + 1),
    "instance_dictionary": lambda it: vars(it).update(size=5 - it.size),
    "a_new_part": lambda it: setattr(it, "part", Part()),
    "class_attribute": lambda it: setattr(Part, "other", 1),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_written_in_between(write: Callable[[Settings], object]) -> None:
    def make() -> World:
        given = settings()
        return World(between(write), (given,), lambda: (vars(given), vars(given.part)))

    agree(make, replays=False)


def test_a_new_object_written_and_then_changed() -> None:
    """The first write is to something outside, the second to something of the call's own."""

    def run(x: Tensor, given: Settings) -> Any:
        part = Part()
        given.part = part
        first = given.part.bias, bias_of(given)
        part.bias = 7
        return x * given.part.bias, first, given.part.bias, bias_of(given)

    def bias_of(given: Settings) -> Any:
        return given.part.bias

    def make() -> World:
        given = settings()
        return World(run, (given,), lambda: vars(given.part))

    agree(make, replays=False)


COUNT = 0


class Counting:
    """Reading changes something."""

    def __init__(self) -> None:
        self.reads = 0
        self.log: list[str] = []
        self.seen = collections.deque([0], maxlen=4)

    def attribute(self) -> str:
        object.__setattr__(self, "reads", self.reads + 1)
        return "kind"

    def listed(self) -> str:
        self.log.append("read")
        return "kind"

    def counted(self) -> str:
        global COUNT
        COUNT += 1
        return "kind"

    def rotated(self) -> int:
        self.seen.append(self.seen[-1] + 1)
        return self.seen[-1]

    def printed(self) -> str:
        print("read", len(self.log))
        return "kind"

    def warned(self) -> str:
        warnings.warn(f"read {self.reads}", stacklevel=2)
        return "kind"

    def made(self) -> list[int]:
        return [1]

    def built(self) -> str:
        return f"{self.reads}-kind-{len(self.log)}"

    def big(self) -> int:
        return self.reads + 1234567

    def drawn(self) -> float:
        return random.random()

    def gradients(self) -> bool:
        return torch.is_grad_enabled()


@pytest.mark.parametrize("name", [name for name in vars(Counting) if not name.startswith("_")])
def test_calls_that_do_more_than_read(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    def run(x: Tensor, it: Counting) -> Any:
        read = getattr(it, name)
        found = [read(), read()]
        with torch.no_grad():
            found += [read(), read()]
        same = found[0] is found[1]
        texts = [str(one) for one in found]
        return (
            x * len(texts),
            texts,
            same or name in ("gradients", "rotated"),
            it.reads,
            len(it.log),
        )

    def make() -> World:
        global COUNT
        COUNT = 0
        random.seed(3)
        it = Counting()
        return World(run, (it,), lambda: vars(it))

    outcomes = []
    for compiles in (False, True):
        world = make()
        call = api.compile(world.fn) if compiles else world.fn
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            results = [call(torch.ones(2) + turn, *world.args) for turn in range(4)]
        told = [str(one.message) for one in given]
        outcomes.append(
            ([str(one) for one in results], str(world.state()), COUNT, told, capsys.readouterr())
        )
    assert outcomes[0] == outcomes[1]


def test_what_a_tensor_looks_like() -> None:
    class Holder:
        def __init__(self) -> None:
            self.value = torch.zeros(2, 3)

        def rows(self) -> int:
            return self.value.shape[0]

        def is_wide(self) -> bool:
            return self.value.dim() > 1

    def run(x: Tensor, it: Holder) -> Any:
        first = it.rows(), it.is_wide()
        it.value.t_()
        second = it.rows(), it.is_wide()
        return x * second[0], first, second

    def make() -> World:
        it = Holder()
        return World(run, (it,), lambda: it.value)

    agree(make, replays=False)


def test_variables_of_others() -> None:
    def make() -> World:
        n = 0
        module = types.ModuleType("others")
        module.__dict__["level"] = 1
        variable = contextvars.ContextVar("variable", default="none")
        local = threading.local()
        local.value = "here"

        def get() -> int:
            return n

        def level() -> Any:
            return module.level  # type: ignore[attr-defined]

        def context() -> Any:
            return variable.get()

        def here() -> Any:
            return local.value

        def run(x: Tensor) -> Any:
            nonlocal n
            n = 1 - n
            first = get(), level(), context(), here()
            n = n + 2
            module.level = 2 if module.level == 1 else 1  # type: ignore[attr-defined]
            variable.set("some" if variable.get() == "none" else "none")
            local.value = "there" if local.value == "here" else "here"
            second = get(), level(), context(), here()
            n = n - 2
            return x * first[0] + second[0], first, second

        return World(run, state=lambda: (n, module.level))

    agree(make, replays=False)


def test_code_of_the_programs_own_within_a_node() -> None:
    given = settings()

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            given.size = given.size + 1
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * 2

    def run(x: Tensor, it: Settings) -> Any:
        first = it.size, it.alias
        x = Twice.apply(x)
        return x * it.size, first, it.alias

    compiled = api.compile(run)
    for call in (run, compiled):
        vars(given)["size"] = 2
        found = [call(torch.ones(2) + turn, given) for turn in range(4)]
        assert [one[1:] for one in found] == [((n, n), n + 1) for n in (2, 3, 4, 5)]
        assert [float(one[0][0]) for one in found] == [6, 16, 30, 48]


def test_arguments_of_the_calls_own() -> None:
    """Objects at one address, one after the other."""

    def size(of: Any) -> Any:
        return of.bias

    def run(x: Tensor) -> Any:
        found = []
        for value in range(4):
            part = Part()
            part.bias = value
            found.append(size(part))
            del part
        return x * found[-1], found

    agree(lambda: World(run))


def test_failing_calls_fail_again() -> None:
    def run(x: Tensor, given: Settings) -> Any:
        found = []
        for name in ("size", "none", "size", "none"):
            try:
                found.append(getattr(given, name))
            except AttributeError as error:
                found.append(type(error).__name__)
        return x * 2, found

    agree(lambda: World(run, (settings(),)))
