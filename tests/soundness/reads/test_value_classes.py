"""Numbers, texts and bytes of classes of their own, from outside: their values, their attributes, and what their classes say."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

from ..probe import Probe
from ..worlds import told

X = torch.arange(1.0, 4.0)


class Milliseconds(float):
    unit = "ms"


class Width(int):
    pass


class Tag(str):
    @property
    def kind(self) -> str:
        return self.split(":")[0]


class Raw(bytes):
    pass


class Phase(complex):
    pass


def values() -> SimpleNamespace:
    return SimpleNamespace(
        time=Milliseconds(1.5), width=Width(2), tag=Tag("a:b"), raw=Raw(b"xy"), phase=Phase(1, 2)
    )


def others(box: SimpleNamespace) -> None:
    box.time, box.width, box.tag = Milliseconds(2.5), Width(3), Tag("cc:d")
    box.raw, box.phase = Raw(b"zzz"), Phase(0, 1)


USES: dict[str, Callable[[Tensor, Any], Any]] = {
    "operators": lambda x, b: (b.time + 1, 2 * b.time, -b.width, 7 % b.width, b.time + b.width),
    "comparisons": lambda x, b: (b.time > 1, b.time == 1.5, 1 < b.width <= 2, b.tag == "a:b"),
    "members": lambda x, b: (b.tag in ["a:b"], b.width in (2, 5), not b.width, max(b.width, 1)),
    "texts": lambda x, b: (f"{b.time:.2f} {b.width:03d} {b.tag!r}", str(b.tag), repr(b.width)),
    "percent": lambda x, b: ("%s %d %.2f" % (b.tag, b.width, b.time), "{}".format(b.tag)),
    "methods of texts": lambda x, b: (b.tag.upper(), b.tag.kind, b.tag[0], b.tag + "!", len(b.tag)),
    "given to texts": lambda x, b: ("a:bc".removeprefix(b.tag), "a:bc".startswith(b.tag)),
    "parted": lambda x, b: (b.tag.partition("q"), "xa:by".partition(b.tag)),
    "numbers": lambda x, b: (int(b.width), float(b.time), round(b.time), math.sqrt(b.time)),
    "methods of numbers": lambda x, b: (b.width.bit_length(), b.time.is_integer(), bin(b.width)),
    "bytes": lambda x, b: (b.raw.hex(), b.raw + b"q", bytes(b.raw), b.raw[0]),
    "complex numbers": lambda x, b: (b.phase * 2, abs(b.phase), complex(b.phase)),
    "ranges": lambda x, b: [x * k for k in range(b.width)],
    "tensors": lambda x, b: (x * b.time, b.time * x, x + b.width, x > b.time, x - b.width),
    "arguments": lambda x, b: (
        x.repeat(b.width),
        torch.full((b.width,), b.time),
        x.clamp(min=b.time),
    ),
    "attributes": lambda x, b: (x * len(b.time.unit), vars(b.tag)),
    "classes": lambda x, b: (type(b.width), isinstance(b.tag, str), type(b.tag).__name__),
}


@pytest.mark.parametrize("use", USES)
def test_a_value_changes(use: str) -> None:
    box = values()
    probe = Probe(lambda x: (x * 2, USES[use](x, box)))
    probe.right(X)
    probe.steady(X)
    others(box)
    probe.right(X)
    probe.steady(X)
    # Other objects with the same values.
    others(box)
    probe.steady(X)
    box.time, box.width, box.tag, box.raw, box.phase = 2.5, 3, "c:d", b"q", 3 + 1j
    if use not in ("attributes", "methods of texts"):
        probe.right(X)
        probe.right(X)


@pytest.mark.parametrize(
    "use", ["operators", "comparisons", "texts", "numbers", "tensors", "arguments"]
)
def test_no_break(use: str) -> None:
    box = values()
    compiled = api.compile(lambda x: (x * 2, USES[use](x, box)))
    compiled(X)
    compiled(X)
    assert api.breaks(compiled) in (0, None)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("__add__", lambda self, other: 100.0),
        ("__rmul__", lambda self, other: 100.0),
        ("__mul__", lambda self, other: 100.0),
        ("__format__", lambda self, spec: "formatted"),
        ("__str__", lambda self: "spelled"),
        ("__float__", lambda self: 100.0),
        ("__round__", lambda self: 100),
        ("__eq__", lambda self, other: True),
        ("__gt__", lambda self, other: False),
        ("__bool__", lambda self: False),
    ],
)
def test_a_class_gets_a_method(name: str, method: Any) -> None:
    class Own(float):
        pass

    box = SimpleNamespace(value=Own(1.5))

    def fn(x: Tensor) -> Any:
        value = box.value
        rounded = 2 * value, round(value), float(value), math.sqrt(value), bool(value)
        return (
            x * value,
            value * x,
            value + 1,
            f"{value}",
            str(value),
            value == 2,
            value > 1,
            rounded,
        )

    probe = Probe(fn)
    probe.right(X)
    probe.steady(X)
    setattr(Own, name, method)
    probe.changed(X)
    probe.right(X)
    delattr(Own, name)
    probe.changed(X)


def test_a_class_with_a_text_of_its_own() -> None:
    """The text is the class's, the value is C code's to take."""

    class Seconds(float):
        def __repr__(self) -> str:
            return f"{float(self):g}s"

    box = SimpleNamespace(step=Seconds(0.5))
    probe = Probe(lambda x: (x * box.step, math.sqrt(box.step), f"{box.step!r}", str(box.step)))
    probe.right(X)
    probe.steady(X)
    assert api.breaks(probe.compiled) in (0, None)
    box.step = Seconds(0.25)
    probe.changed(X)
    Seconds.__repr__ = lambda self: "seconds"  # type: ignore[method-assign]
    probe.changed(X)


def test_attributes_are_written() -> None:
    box = values()

    def fn(x: Tensor, mark: str) -> Any:
        box.tag.seen = getattr(box.tag, "seen", "") + mark
        return x * len(box.tag), box.tag.seen

    compiled = api.compile(fn)
    told = []
    for call in (compiled, compiled, fn, compiled):
        told.append(call(X, "m")[1])
    assert told == ["m", "mm", "mmm", "mmmm"]


SIGNS = {
    **{"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%"},
    **{"pow": "**", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"},
    "matmul": "@",
}


@pytest.mark.parametrize("base", [int, float, str])
@pytest.mark.parametrize("kind", ["", "r", "i"])
@pytest.mark.parametrize("name", SIGNS)
def test_a_class_with_one_operator_of_its_own(name: str, kind: str, base: type) -> None:
    """Beside numbers and tensors, on either side, in place too; errors name the class."""
    own = type("Own", (base,), {f"__{kind}{name}__": lambda self, other: 100})
    value = own("a%s" if base is str else "3")
    sign = SIGNS[name]
    for left, right in (("o", "2"), ("5", "o"), ("x", "o"), ("o", "x")):
        scope: dict[str, Any] = {}
        body = f"    return {left} {sign} {right}, x + 1"
        if kind == "i" and left == "o":
            body = f"    o {sign}= {right}\n    return o, x + 1"
        exec(f"def function(x, o):\n{body}", scope)
        function = scope["function"]
        compiled = api.compile(function)
        for number in range(3):
            found, expected = (told(call, X + number, value) for call in (compiled, function))
            assert found == expected
