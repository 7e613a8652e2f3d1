"""Random programs whose functions write: to attributes, classes, cells and containers of every kind."""

from __future__ import annotations

import re
from collections.abc import Callable

from .generate import Generator
from .program import Program

_SAFE = (
    "except (AttributeError, KeyError, IndexError, TypeError, NameError, ValueError):\n"
    "    x = x - 1"
)


class Effects(Generator):
    """As its base, with several writes in each function and more containers to write to."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sets: list[str] = []
        self.queues: list[str] = []
        self.ordered: list[str] = []

    def program(self) -> Program:
        """Setup, function, arguments and writes."""
        setup = [self._setup(f"g{i}") for i in range(self.rng.randint(3, 6))]
        setup += [self._container(f"g{len(setup) + i}") for i in range(self.rng.randint(1, 4))]
        self.ready = True
        space = Program(tuple(setup), (), (), ()).space()
        body = [self._working_read(space) for _ in range(self.rng.randint(0, 3))]
        for _ in range(self.rng.randint(1, 5)):
            body.insert(self.rng.randrange(len(body) + 1), self._change())
        arguments = [self._path() for _ in range(self.rng.randint(0, 2))]
        writes = []
        for _ in range(self.rng.randint(4, 12)):
            writes.append(self._outer_write())
            root = re.match(r"g(\d+)", writes[-1])
            if root and self.rng.random() < 0.4:
                writes.append(setup[int(root[1])])
        return Program(tuple(setup), tuple(body), tuple(arguments), tuple(writes))

    def _container(self, name: str) -> str:
        kind = self.rng.choice(["set", "deque", "OrderedDict", "list", "closure", "alias"])
        if kind == "set":
            self.sets.append(name)
            text = f"set({self._leaves(self._element)})"
        elif kind == "deque":
            self.queues.append(name)
            length = self.rng.choice(["None", "2", "3"])
            text = f"collections.deque({self._leaves()}, maxlen={length})"
        elif kind == "OrderedDict":
            self.ordered.append(name)
            self.dicts.append(name)
            text = "collections.OrderedDict(a=1, b=2)"
        elif kind == "closure":
            self.functions.append(name)
            text = f"closure({self._leaf()})"
        elif kind == "alias":
            text = self.rng.choice(self.names)
        else:
            self.lists.append(name)
            text = self._leaves()
        self.names.append(name)
        return f"{name} = {text}"

    def _leaves(self, leaf: Callable[[], str] | None = None) -> str:
        leaf = leaf or self._leaf
        return "[" + ", ".join(leaf() for _ in range(self.rng.randint(0, 4))) + "]"

    def _new(self) -> str:
        """A value that a function writes."""
        return self.rng.choice(
            [self._leaf(), "x", "x * 2", "[x, 1]", "{'k': x}", "Plain(n=x)", self._path(), "(x, 2)"]
        )

    def _change(self) -> str:
        roll = self.rng.random()
        if roll < 0.3:
            text = self._change_list()
        elif roll < 0.5:
            text = self._change_dict()
        elif roll < 0.62:
            text = self._change_set()
        elif roll < 0.74:
            text = self._change_queue()
        else:
            text = self._change_object()
        if self.rng.random() < 0.7:
            inner = "\n".join(f"    {line}" for line in text.splitlines())
            return f"try:\n{inner}\n{_SAFE}"
        return text

    def _change_list(self) -> str:
        l, new, i = self.rng.choice(self.lists or self.names), self._new(), self.rng.randint(-2, 2)
        return self.rng.choice(
            [
                f"{l}.append({new})",
                f"{l}.append({new})",
                f"{l}.append({new})\n{l}.append({self._new()})",
                f"{l}.append({new})\nx = x + len({l})",
                f"for i in range(2):\n    {l}.append(i)",
                f"{l}.extend([{new}, 3])",
                f"{l}.extend({self.rng.choice(self.lists or self.names)}[:2])",
                f"{l}.__iadd__([{new}])",
                f"{l}.insert({i}, {new})",
                f"x = use(x, {l}.pop())",
                f"x = use(x, {l}.pop({i}))",
                f"{l}.remove({self._leaf()})",
                f"{l}.clear()",
                f"{l}.reverse()",
                f"{l}.sort(key=id_of)",
                f"{l}[{i}] = {new}",
                f"{l}[{i}:] = [{new}]",
                f"del {l}[{i}]",
                f"del {l}[:{i}]",
                f"{l}[:] = {self.rng.choice(self.lists or self.names)}",
                f"y = {l}\ny.append(y)\nx = use(x, len({l}))\ny.pop()",
            ]
        )

    def _change_dict(self) -> str:
        d, new = self.rng.choice(self.dicts or self.names), self._new()
        key, other = self.rng.choice(["'a'", "'b'", "1", "None", "True", "('t', 1)"]), "'a'"
        o = self.rng.choice(self.ordered or self.dicts or self.names)
        return self.rng.choice(
            [
                f"{d}[{key}] = {new}",
                f"{d}[{key}] = {new}\n{d}[{other}] = 1",
                f"del {d}[{key}]",
                f"{d}.pop({key}, None)\n{d}[{key}] = {new}",
                f"x = use(x, {d}.pop({key}))",
                f"x = use(x, {d}.popitem())",
                f"x = use(x, {d}.setdefault({key}, {new}))",
                f"{d}.setdefault({key}, []).append({new})",
                f"{d}.update({{{key}: {new}, 'z': 1}})",
                f"{d}.update(a={new})",
                f"{d}.clear()",
                f"{d}[{key}] = {new}\nx = x + len({d})",
                f"{d}[{key}] = {new}\nx = use(x, list({d}))",
                f"{o}.move_to_end({key})",
                f"{o}.move_to_end({key}, last=False)",
                f"x = use(x, {o}.popitem(last=False))",
            ]
        )

    def _element(self) -> str:
        """Of a set: where a NaN stands in it depends on its address."""
        leaf = self._leaf()
        while "nan" in leaf:
            leaf = self._leaf()
        return leaf

    def _change_set(self) -> str:
        s, leaf = self.rng.choice(self.sets or self.names), self._element()
        return self.rng.choice(
            [
                f"{s}.add({leaf})",
                f"{s}.discard({leaf})",
                f"{s}.add({leaf})\nx = x + len({s})",
                f"{s}.update([{leaf}, 4])",
                f"{s}.remove({leaf})",
                f"{s}.clear()",
                f"{s}.difference_update({{{leaf}}})",
                f"{s}.__ior__({{{leaf}, 9}})",
                f"x = x + ({leaf} in {s})",
                f"x = use(x, sorted(str(v) for v in {s}))",
            ]
        )

    def _change_queue(self) -> str:
        q, new = self.rng.choice(self.queues or self.names), self._new()
        return self.rng.choice(
            [
                f"{q}.append({new})",
                f"{q}.appendleft({new})",
                f"{q}.append({new})\nx = use(x, {q}[0])",
                f"{q}.extend([{new}, 1])",
                f"x = use(x, {q}.popleft())",
                f"x = use(x, {q}.pop())",
                f"{q}.rotate(1)",
                f"{q}.reverse()",
                f"{q}[0] = {new}",
                f"del {q}[-1]",
                f"{q}.clear()",
                f"x = x + len({q})",
                f"for v in {q}:\n    x = use(x, v)",
            ]
        )

    def _change_object(self) -> str:
        holder, new = self._holder(), self._new()
        name = self.rng.choice(("n", "k", "child", "items", "extra"))
        call = self.rng.choice(self.functions or self.names)
        return self.rng.choice(
            [
                f"{holder}.{name} = {new}",
                f"{holder}.{name} = {new}\nx = use(x, {holder}.{name})",
                f"before = {holder}.{name}\n{holder}.{name} = {new}\nx = use(x, before)",
                f"del {holder}.{name}",
                f"{holder}.{name}.append({new})",
                f"Plain.level = {self._leaf()}",
                f"Other.level = {self._leaf()}\nx = use(x, Other().level)",
                f"type({holder}).level = {self.rng.randint(0, 3)}\nx = use(x, {holder}.level)",
                f"{call}.write({new})",
                f"{call}.write({self._leaf()})\nx = {call}(x)",
                f"vars({holder})[{name!r}] = {new}",
                f"globals()['made'] = {new}",
            ]
        )

    def _outer_write(self) -> str:
        if self.rng.random() < 0.5:
            return self._write()
        write = self.rng.choice(
            [self._change_list, self._change_dict, self._change_set, self._change_queue]
        )()
        return f"x = torch.ones(3)\n{write}"


def generate(seed: int) -> Program:
    """The program of this seed."""
    return Effects(seed).program()
