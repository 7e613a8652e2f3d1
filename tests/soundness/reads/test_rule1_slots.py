"""Rule 1: reads and writes are keyed by slot (owner, key), however they were spelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn

from ..probe import Probe, Steps, flip, right_after


class Thing:
    """An object with one number."""

    def __init__(self) -> None:
        self.n = 2


READS: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda o: o.n,
    "getattr": lambda o: getattr(o, "n"),
    "getattr with default": lambda o: getattr(o, "n", 5),
    "__dict__": lambda o: o.__dict__["n"],
    "__dict__.get": lambda o: o.__dict__.get("n"),
    "vars": lambda o: vars(o)["n"],
    "object.__getattribute__": lambda o: object.__getattribute__(o, "n"),
    "values": lambda o: next(iter(o.__dict__.values())),
    "unpacked": lambda o: dict(**o.__dict__)["n"],
    "hasattr": lambda o: 2 if hasattr(o, "n") and o.n == 2 else 3,
}

WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "attribute": lambda o, v: exec("o.n = v", {"o": o, "v": v}),
    "setattr": lambda o, v: setattr(o, "n", v),
    "__dict__": lambda o, v: o.__dict__.__setitem__("n", v),
    "vars().update": lambda o, v: vars(o).update(n=v),
    "object.__setattr__": lambda o, v: object.__setattr__(o, "n", v),
    "new __dict__": lambda o, v: setattr(o, "__dict__", {"n": v}),
    "delete and set": lambda o, v: (delattr(o, "n"), setattr(o, "n", v)),
    "clear": lambda o, v: (o.__dict__.clear(), o.__dict__.setdefault("n", v)),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("write", WRITES)
def test_every_read_sees_every_write(read: str, write: str) -> None:
    thing = Thing()
    get = READS[read]
    probe = Probe(lambda x: x * get(thing))
    x = torch.ones(3)
    probe.right(x)
    probe.right(x)
    WRITES[write](thing, 3)
    probe.changed(x)
    probe.right(x)
    WRITES[write](thing, 2)
    probe.changed(x)


def _own_write(spelling: str) -> Callable[[Thing, Tensor], Tensor]:
    write = WRITES[spelling]

    def fn(thing: Thing, x: Tensor) -> Tensor:
        before = thing.n
        write(thing, before + 1)
        return x * thing.__dict__["n"] + getattr(thing, "n") + before

    return fn


@pytest.mark.parametrize("spelling", [name for name in WRITES if name != "attribute"])
def test_own_write_is_seen_however_it_is_read(spelling: str) -> None:
    fn = _own_write(spelling)
    compiled = api.compile(fn)
    plain_thing, our_thing = Thing(), Thing()
    x = torch.ones(3)
    for _ in range(4):
        assert torch.equal(compiled(our_thing, x), fn(plain_thing, x))
        assert vars(our_thing) == vars(plain_thing)


@flip
def test_parameter_through_the_private_dict() -> Steps:
    layer = nn.Linear(3, 3)
    weight = layer.weight
    yield (lambda x: x @ layer._parameters["weight"]), (torch.ones(3),)
    layer.weight = nn.Parameter(torch.zeros(3, 3), requires_grad=False)
    yield None
    layer._parameters["weight"] = weight
    yield None


@flip
def test_parameter_replaced_in_the_private_dict() -> Steps:
    layer = nn.Linear(3, 3)
    weight = layer.weight
    yield (lambda x: layer(x)), (torch.ones(3),)
    layer._parameters["weight"] = nn.Parameter(torch.zeros(3, 3), requires_grad=False)
    layer.bias.requires_grad_(False)
    yield None
    layer._parameters["weight"] = weight
    layer.bias.requires_grad_(True)
    yield None


@flip
def test_buffer_moved_to_an_ordinary_attribute() -> Steps:
    layer = nn.Module()
    layer.register_buffer("b", torch.ones(3))
    yield (lambda x: x * 2 if "b" in layer._buffers else x), (torch.ones(3),)
    del layer.b
    object.__setattr__(layer, "b", torch.ones(3))
    yield None
    object.__delattr__(layer, "b")
    layer.register_buffer("b", torch.ones(3))
    yield None


@right_after
def test_class_attribute_through_the_mapping_proxy() -> Steps:
    yield (lambda x: x * Thing.__dict__.get("level", 1)), (torch.ones(3),)
    Thing.level = 4  # type: ignore[attr-defined]
    yield None
    del Thing.level  # type: ignore[attr-defined]
    yield None


@right_after
def test_slots_through_their_descriptor() -> Steps:
    class Slotted:
        __slots__ = ("n",)

    thing = Slotted()
    thing.n = 2
    descriptor = Slotted.n  # type: ignore[attr-defined]
    yield (lambda x: x * descriptor.__get__(thing, Slotted) + thing.n), (torch.ones(3),)
    descriptor.__set__(thing, 5)
    yield None


@right_after
def test_list_items_through_every_spelling() -> Steps:
    items: list[Any] = [1, 2]
    yield (
        (lambda x: x * items[0] + items.__getitem__(1) + list.__getitem__(items, -1)),
        (torch.ones(3),),
    )
    list.__setitem__(items, 1, 7)
    yield None
    items[:1] = [5]
    yield None
    items.insert(0, 9)
    yield None


@right_after
def test_globals_through_every_spelling() -> Steps:
    space = globals()
    space["SPELLED"] = 2
    yield (lambda x: x * SPELLED + globals()["SPELLED"]), (torch.ones(3),)  # type: ignore[name-defined]  # noqa: F821
    space["SPELLED"] = 3
    yield None
    del space["SPELLED"]
    yield None
    space.update(SPELLED=2)
    yield None
