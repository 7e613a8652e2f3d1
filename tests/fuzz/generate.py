"""Random programs: an object graph, a function that reads it, and writes to every slot."""

from __future__ import annotations

import random
import re

from .program import Program, Space

_ATTRIBUTES = ("n", "k", "child", "items", "extra", "level")
_KEYS = ("'a'", "'b'", "'c'", "1", "None")
_CLASSES = ("Plain", "Child", "Other", "Record", "Slotted", "Dynamic")


class Generator:
    """Makes one program from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.ready = False
        self.names: list[str] = []
        self.objects: list[str] = []
        self.lists: list[str] = []
        self.dicts: list[str] = []
        self.modules: list[str] = []
        self.tensors: list[str] = []
        self.functions: list[str] = []
        self.slots: list[str] = []

    def program(self) -> Program:
        """Setup, function, arguments and writes."""
        setup = [self._setup(f"g{i}") for i in range(self.rng.randint(4, 9))]
        self.ready = True
        space = Program(tuple(setup), (), (), ()).space()
        body = [self._working_read(space) for _ in range(self.rng.randint(2, 6))]
        if self.rng.random() < 0.25:
            effect = self._effect()
            # A `global` statement has to come before every use of its name.
            where = 0 if effect.startswith("global") else self.rng.randrange(len(body) + 1)
            body.insert(where, effect)
        arguments = [self._path() for _ in range(self.rng.randint(0, 2))]
        writes: list[str] = []
        for _ in range(self.rng.randint(5, 20)):
            writes.append(self._write())
            root = re.match(r"g(\d+)", writes[-1])
            if root and self.rng.random() < 0.3:
                writes.append(setup[int(root[1])])
        return Program(tuple(setup), tuple(body), tuple(arguments), tuple(writes))

    # Values ---------------------------------------------------------------------------------

    def _leaf(self) -> str:
        return self.rng.choice(
            [
                str(self.rng.randint(-3, 5)),
                self.rng.choice(["0.0", "-0.0", "1.0", "2.5", "float('nan')", "float('inf')"]),
                self.rng.choice(["True", "False", "None"]),
                self.rng.choice(["''", "'s'", "'text'", "b'b'"]),
                self.rng.choice(["1", "True", "1.0"]),
            ]
        )

    def _tensor(self) -> str:
        return self.rng.choice(
            [
                f"torch.full((3,), {self.rng.randint(1, 4)}.0)",
                "torch.ones(2, 3)",
                "torch.ones(3, 2).t()",
                "torch.arange(4)",
                "torch.ones(3, dtype=torch.float64)",
                "torch.ones(3, requires_grad=True)",
                "nn.Parameter(torch.ones(3))",
                "torch.arange(6.0)[::2]",
                "torch.tensor(2.0)",
                "torch.zeros(0)",
            ]
        )

    def _value(self, depth: int = 2) -> str:
        roll = self.rng.random()
        if depth == 0 or roll < 0.4:
            return self._leaf()
        inner = [self._value(depth - 1) for _ in range(self.rng.randint(0, 3))]
        if roll < 0.5:
            return f"[{', '.join(inner)}]"
        if roll < 0.57:
            return f"({', '.join(inner)}{',' if inner else ''})"
        if roll < 0.67:
            keys = self.rng.sample(_KEYS, len(inner))
            return "{" + ", ".join(f"{k}: {v}" for k, v in zip(keys, inner, strict=True)) + "}"
        if roll < 0.75:
            return self._tensor()
        if roll < 0.85 and self.names:
            return self._path() if self.ready else self.rng.choice(self.names)
        return self._object(depth)

    def _object(self, depth: int = 2) -> str:
        n, child = self._leaf(), self._value(depth - 1)
        kind = self.rng.choice(_CLASSES)
        if kind == "Slotted":
            return f"Slotted({n}, {child})"
        if kind == "Record":
            return f"Record({n}, [{self._leaf()}, {self._leaf()}], {child})"
        if kind == "Other":
            return "Other()"
        return f"{kind}(n={n}, child={child})"

    def _module(self) -> str:
        seed = self.rng.randint(0, 3)
        kind = self.rng.choice(
            [
                "Net()",
                "Net(1.5)",
                "nn.Linear(3, 3)",
                "nn.ReLU()",
                "nn.LayerNorm(3)",
                "nn.Identity()",
            ]
        )
        return f"seeded({seed}, lambda: {kind})"

    # Setup ----------------------------------------------------------------------------------

    def _setup(self, name: str) -> str:
        kind = self.rng.choice(
            ["leaf", "list", "dict", "object", "object", "module", "tensor", "function", "alias"]
        )
        if kind == "alias" and not self.names:
            kind = "leaf"
        if kind == "leaf":
            text = self._leaf()
        elif kind == "list":
            text = "[" + ", ".join(self._value() for _ in range(self.rng.randint(0, 3))) + "]"
            self.lists.append(name)
            self.slots += [f"{name}[0]", f"{name}[-1]", f"{name}[1]"]
        elif kind == "dict":
            keys = self.rng.sample(_KEYS, self.rng.randint(0, 4))
            text = "{" + ", ".join(f"{k}: {self._value()}" for k in keys) + "}"
            self.dicts.append(name)
            self.slots += [f"{name}[{k}]" for k in _KEYS]
        elif kind == "object":
            text = self._object()
            self.objects.append(name)
            self.slots += [f"{name}.{a}" for a in _ATTRIBUTES]
        elif kind == "module":
            text = self._module()
            self.modules.append(name)
            self.slots += [f"{name}.{a}" for a in ("scale", "first", "weight", "bias", "extra")]
        elif kind == "tensor":
            text = self._tensor()
            self.tensors.append(name)
        elif kind == "function":
            text = self.rng.choice(["helper", f"closure({self._value()})", "lambda x: x * 2"])
            self.functions.append(name)
        else:
            text = self.rng.choice(self.names)
        self.names.append(name)
        self.slots.append(name)
        return f"{name} = {text}"

    def _path(self) -> str:
        return self.rng.choice(self.slots if self.rng.random() < 0.6 else self.names)

    def _holder(self) -> str:
        return self.rng.choice(self.objects + self.modules or self.names)

    # Reads ----------------------------------------------------------------------------------

    def _working_read(self, space: Space) -> str:
        """A read that works before the first write, nearly always."""
        for _ in range(5):
            read = self._read()
            if self.rng.random() < 0.05:
                return read
            try:
                exec(Program((), (read,), (), ()).function(), space)
                space["fn"](space["torch"].ones(3))
            except Exception:
                continue
            return read
        return "x = x + 1"

    def _read(self) -> str:
        path, holder = self._path(), self._holder()
        name, key = self.rng.choice(_ATTRIBUTES), self.rng.choice(_KEYS)
        table = self.rng.choice(self.dicts or self.names)
        items = self.rng.choice(self.lists or self.names)
        call = self.rng.choice(self.functions + self.modules or self.names)
        safe = "except (AttributeError, KeyError, IndexError, TypeError, NameError):\n    x = x - 1"
        return self.rng.choice(
            [
                f"x = use(x, {path})",
                f"x = use(x, {path})",
                f"try:\n    x = use(x, {path})\n{safe}",
                f"try:\n    x = use(x, {path}) * 2\n{safe}",
                f"x = use(x, getattr({holder}, {name!r}, 3))",
                f"if hasattr({holder}, {name!r}):\n    x = x + 1.5",
                f"try:\n    x = use(x, vars({holder}).get({name!r}, 'd'))\n{safe}",
                f"x = use(x, {table}.get({key}))",
                f"x = x + ({key} in {table})",
                f"x = x + len({items})",
                f"for v in {items}:\n    x = use(x, v)",
                f"for k, v in {table}.items():\n    x = use(x + len(str(k)), v)",
                f"x = x * 2 if {path} is {self._path()} else x",
                f"x = x + len(type({path}).__name__)",
                f"x = use(x, type({holder}).level)",
                f"x = {holder}.run(x)",
                f"x = {call}(x)",
                "x = helper(x)",
                "x = use(use(x, a), b)",
                "x = x * 3 if a is b else x",
                f"x = use(x, [v for v in {items} if v is not None])",
                f"x = use(x, sorted(str(k) for k in {table}))",
                f"x = x + 1 if {path} else x - 1",
                f"x = x + ({path} == {self._leaf()})",
                f"y = x * 2\nx = use(y, {path}) + x",
                f"with torch.no_grad():\n    x = use(x, {path})",
            ]
        )

    def _effect(self) -> str:
        holder, items = self._holder(), self.rng.choice(self.lists or self.names)
        table = self.rng.choice(self.dicts or self.names)
        return self.rng.choice(
            [
                f"{holder}.n = x.shape[0]",
                f"{holder}.k = getattr({holder}, 'k', 0) + 1",
                f"{items}.append(1)",
                f"{table}['b'] = 4",
                f"{table}['c'] = x * 2",
                f"{table}.pop('a', None)",
                f"global {self.names[0]}\n{self.names[0]} = 7",
                f"globals()[{self.names[0]!r}] = x.shape[0]",
            ]
        )

    # Writes ---------------------------------------------------------------------------------

    def _write(self) -> str:
        path, holder, value = self._path(), self._holder(), self._value()
        roll = self.rng.random()
        if roll < 0.35:
            return f"{path} = {value}"
        if roll < 0.42:
            return f"del {path}"
        if roll < 0.5:
            return f"{path} = {self._path()}"
        if roll < 0.58:
            return f"{holder}.{self.rng.choice(_ATTRIBUTES)} = {value}"
        if roll < 0.66:
            return self._write_container(value)
        if roll < 0.74:
            return self._write_class(holder)
        if roll < 0.84:
            return self._write_module()
        if roll < 0.92:
            return self._write_tensor()
        return self._write_world(value)

    def _write_container(self, value: str) -> str:
        items = self.rng.choice(self.lists or self.names)
        table = self.rng.choice(self.dicts or self.names)
        key = self.rng.choice(_KEYS)
        return self.rng.choice(
            [
                f"{items}.append({value})",
                f"{items}.pop()",
                f"{items}.reverse()",
                f"{items}.insert(0, {value})",
                f"{items}.clear()",
                f"{items}[:] = list({items})",
                f"{items} = tuple({items})",
                f"{items} = list({items})",
                f"{table}[{key}] = {table}.pop({key})",
                f"{table}.pop({key}, None)",
                f"{table}.clear()",
                f"{table} = dict({table})",
                f"{table}.update({{{key}: {value}}})",
                f"{table} = dict(reversed({table}.items()))",
            ]
        )

    def _write_class(self, holder: str) -> str:
        kind, leaf = self.rng.choice(_CLASSES), self._leaf()
        return self.rng.choice(
            [
                f"{kind}.level = {leaf}",
                f"del {kind}.level",
                f"{kind}.extra = {leaf}",
                f"{kind}.n = property(lambda self: {leaf})",
                "Plain.run = lambda self, x: x * 4",
                f"{holder}.run = lambda x: x + {self.rng.randint(1, 9)}",
                f"{holder}.__class__ = {kind}",
                f"{holder}.__dict__ = {{'n': {leaf}}}",
                f"{holder}.__dict__.clear()",
                f"vars({holder})['n'] = {leaf}",
                f"object.__setattr__({holder}, 'child', {leaf})",
                f"Plain.__getattr__ = lambda self, name: {self.rng.randint(1, 9)}",
                "Child.__bases__ = (Other,)",
            ]
        )

    def _write_module(self) -> str:
        module = self.rng.choice(self.modules or self.names)
        return self.rng.choice(
            [
                f"{module}.train()",
                f"{module}.eval()",
                f"{module}.requires_grad_({self.rng.choice(['True', 'False'])})",
                f"{module}.double()",
                f"{module}.float()",
                f"{module}.scale = {self._leaf()}",
                f"{module}.first = seeded(5, lambda: nn.Linear(3, 3, bias=False))",
                f"{module}.first.weight.data = torch.ones(3, 3)",
                f"{module}.weight.data = torch.ones(3, 3)",
                f"{module}.bias = None",
                f"{module}.first._parameters['bias'] = None",
                f"{module}.blocks.append(nn.ReLU())",
                f"{module}.blocks[0] = nn.Sigmoid()",
                f"add_hook({module})",
                f"{module}.shift = torch.zeros(3)",
                f"{module}.shift.add_(1)",
                f"{module}.forward = lambda x: x * 7",
                f"{module}.first.weight = {module}.blocks[1].weight",
                f"{module} = {self._module()}",
            ]
        )

    def _write_tensor(self) -> str:
        tensor = self.rng.choice(self.tensors or self.slots)
        return self.rng.choice(
            [
                f"{tensor}.data.add_(1)",
                f"{tensor}.requires_grad_(True)",
                f"{tensor}.requires_grad_(False)",
                f"{tensor}.data = torch.ones(5)",
                f"{tensor} = {tensor}.clone()",
                f"{tensor} = {self._tensor()}",
                f"{tensor} = {tensor}.detach()",
                f"{tensor}.t_()",
            ]
        )

    def _write_world(self, value: str) -> str:
        call = self.rng.choice(self.functions or self.names)
        return self.rng.choice(
            [
                f"{call}.write({value})",
                f"{call}.__defaults__ = (4,)",
                "helper.__defaults__ = (3,)",
                "helper.__kwdefaults__ = {'k': 6}",
                "helper.__code__ = other_helper.__code__",
                "helper = other_helper",
                "len = lambda v: 3",
                "del len",
                f"fn.__defaults__ = ({self._leaf()}, None)",
                "torch.set_grad_enabled(False)",
                "torch.set_grad_enabled(True)",
                f"unrelated = {value}",
                "use.calls = 1",
            ]
        )


def generate(seed: int) -> Program:
    """The program of this seed."""
    return Generator(seed).program()
