"""Random programs that call what only reads again and again, and write in between: compiled against plain."""

from __future__ import annotations

import random
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import stator

PROGRAMS = 40
"""Of each seed."""

SETUP = """
import types

G = 1
MODULE = types.SimpleNamespace(v=1)

class Part:
    common = 10
    def __init__(self, n):
        self.n, self.items, self.table = n, [n, n + 1], {"a": n, "b": n + 1}
    def get(self): return self.n
    def item(self): return self.items[0]
    def entry(self, key): return self.table[key]
    def shared(self): return self.common
    @property
    def property(self): return self.n

class Settings:
    names = {"alias": "size"}
    def __init__(self):
        self.size, self.other, self.part, self.row, self.text = 3, 4, Part(1), [1, 2], "k"
    def __getattribute__(self, name):
        if name != "names" and name in super().__getattribute__("names"):
            name = super().__getattribute__("names")[name]
        return super().__getattribute__(name)

class Dynamic:
    def __init__(self, values): object.__setattr__(self, "values", values)
    def __getattr__(self, name):
        if name in self.values: return self.values[name]
        raise AttributeError(name)

class Sequence:
    def __init__(self, values): self.values = values
    def __len__(self): return len(self.values)
    def __getitem__(self, index): return self.values[index]
    def __contains__(self, value): return value in self.values

def variable(): return G
def of_module(): return MODULE.v
def of(part): return part.n
def first(part): return part.items[0] if part.items else None
def named(owner, name): return getattr(owner, name)
def has(owner, name): return hasattr(owner, name)
def look(table, key): return table.get(key, None)
def size(part): return len(part.items)
def is_same(left, right): return left is right
def is_part(value): return isinstance(value, Part)
def deep(settings): return settings.part.n
def text(part): return f"{part.n}-{part.items[0]}"
def either(part): return part.items if part.n else part.table

def closure(n):
    def get(): return n
    def put(value):
        nonlocal n
        n = value
    return get, put

settings, part, dynamic, row = Settings(), Part(5), Dynamic({"q": 1}), Sequence([1, 2, 3])
get, put = closure(1)
"""


def parts(text: str) -> list[str]:
    """The statements or expressions of such a text."""
    return [part.strip() for line in text.strip().splitlines() for part in line.split(";")]


READS = parts("""
settings.size; settings.alias; settings.other; settings.part.n; settings.part.get(); settings.text; settings.row[0]
part.get(); part.item(); part.entry("a"); part.shared(); part.property; dynamic.q; len(row); row[0]; 2 in row
variable(); of_module(); of(part); of(settings.part); first(part); named(part, "n"); named(settings, "alias")
has(part, "extra"); look(part.table, "z"); look(part.table, "a"); size(part); is_same(settings.part, part)
is_part(settings.part); is_part(settings.row); deep(settings); get(); len(either(part)); text(part)
len(settings.row); of(fresh); first(fresh); fresh.get(); size(fresh); settings.part.items[-1]
""")

WRITES = parts("""
settings.size += 1; settings.other = settings.other + 1; settings.part.n += 1; settings.part = Part(it)
part.items.append(it); part.items[0] = it + 7; part.table["a"] += 1; part.table["z"] = it; part.table.pop("z", None)
Part.common = Part.common + 1; dynamic.values["q"] = it; row.values = row.values + [it]; row.values.append(2)
G += 1; MODULE.v = MODULE.v + 1; part.n = it; part.extra = it; put(it); setattr(part, "n", it * 2)
settings.row = [it] * (it + 1); settings.row.append(it); settings.__dict__["size"] = it + 3
Settings.names = {"alias": "other"} if it % 2 else {"alias": "size"}; vars(part).update(n=it + 20)
fresh.n += 1; fresh.items[0] = it; fresh = Part(it); settings.part = fresh; fresh = settings.part
settings.part.items = fresh.items; part.items = [it + 1]; del part.items[1:]; settings.text = "k" + str(it % 2)
part, settings.part = settings.part, part; object.__setattr__(settings, "size", it); settings.part.table.clear()
part.table = {"a": it}; x = x * 2; x = x + settings.size; x = x + fresh.n
""")


def program(chance: random.Random) -> str:
    """The source of `run(x, it)`."""

    def body() -> Iterator[str]:
        for _ in range(chance.randint(6, 22)):
            kind, read = chance.random(), chance.choice(READS)
            if kind < 0.35:
                yield f"    found.append({read})"
            elif kind < 0.6:
                yield f"    try: found.append({read})"
                yield "    except (KeyError, IndexError, AttributeError) as error:"
                yield "        found.append(type(error).__name__)"
            elif kind < 0.7:
                yield f"    for _ in range({chance.randint(2, 3)}):"
                yield f"        found.append({read})"
                if chance.random() < 0.5:
                    yield f"        {chance.choice(WRITES)}"
            else:
                yield f"    {chance.choice(WRITES)}"

    lines = ["def run(x, it):", "    global G, part", "    found, fresh = [], Part(2)", *body()]
    return "\n".join([SETUP, *lines, "    return x, found, fresh.n"])


def described(value: Any) -> Any:
    """A value and what it holds, as plain data."""
    if isinstance(value, list | tuple):
        return [described(part) for part in value]
    if isinstance(value, dict):
        return [(key, described(part)) for key, part in value.items()]
    if isinstance(value, types.SimpleNamespace) or type(value).__module__ == "drawn":
        return type(value).__name__, described(vars(value))
    return repr(value)


def play(source: str, compiles: bool) -> list[Any]:
    """What each call gives, and what the program's objects hold behind it."""
    module: dict[str, Any] = {"__name__": "drawn"}
    exec(compile(source, "<drawn>", "exec"), module)
    run = stator.compile(module["run"]) if compiles else module["run"]
    watched = ("settings", "part", "dynamic", "row", "G", "MODULE")
    seen = []
    for it in (1, 1, 2, 2, 1, 3):
        try:
            result = described(run(torch.ones(2) + it, it))
        except Exception as error:
            result = repr(error)
        state = [described(module[name]) for name in watched]
        classes = module["Part"].common, module["Settings"].names, module["get"]()
        seen.append((result, state, classes))
    return seen


@pytest.mark.parametrize("seed", range(10))
def test_random_reads_and_writes(seed: int) -> None:
    with stator.config.patch(strict=True, skip_unprofitable=False):
        for number in range(PROGRAMS):
            source = program(random.Random(f"{seed} {number}"))
            expected = play(source, compiles=False)
            for call, (plain, found) in enumerate(
                zip(expected, play(source, compiles=True), strict=True)
            ):
                assert plain == found, f"call {call} of program {number}\n{source}"
