"""Random programs of many constructs: control flow, generators, matching, managers, scopes, the standard library."""

from __future__ import annotations

import textwrap

from .effects import Effects
from .program import Program, Space

_ERRORS = (
    "AttributeError, KeyError, IndexError, TypeError, NameError, ValueError, StopIteration, "
    "ArithmeticError, RuntimeError"
)
_OBJECTS = ("Metal", "Described", "Mixed", "Block", "Plain", "Dynamic", "Slotted", "Record")


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ")


class Programs(Effects):
    """As its base, with nested statements, and with more kinds of objects."""

    def program(self) -> Program:
        """Setup, function, arguments and writes."""
        setup = [self._setup(f"g{i}") for i in range(self.rng.randint(3, 5))]
        for make in (self._odd, self._odd, self._odd, self._container):
            setup.append(make(f"g{len(setup)}"))
        self.ready = True
        space = Program(tuple(setup), (), (), ()).space()
        body = [self._working(space) for _ in range(self.rng.randint(2, 5))]
        arguments = [self._path() for _ in range(self.rng.randint(0, 2))]
        writes = [self._outer() for _ in range(self.rng.randint(5, 14))]
        return Program(tuple(setup), tuple(body), tuple(arguments), tuple(writes))

    # Setup ----------------------------------------------------------------------------------

    def _odd(self, name: str) -> str:
        """An object of a kind that the other generators don't make."""
        kind = self.rng.choice(
            ["object", "object", "items", "table", "pair", "enum", "key", "call"]
        )
        if kind == "object":
            self.objects.append(name)
            made = self.rng.choice(_OBJECTS)
            n, child = self._leaf(), self.rng.choice([*self.names, self._leaf()])
            text = f"{made}(n={n}, child={child})"
            self.slots += [f"{name}.{a}" for a in ("n", "k", "child", "extra", "level")]
        elif kind == "items":
            self.lists.append(name)
            text = f"Items({self._leaves()})"
        elif kind == "table":
            self.dicts.append(name)
            text = f"Table(a={self._leaf()}, b={self._leaf()})"
        elif kind == "pair":
            text = f"Pair({self._leaf()}, {self.rng.choice([*self.names, '2'])})"
            self.slots += [f"{name}.n", f"{name}.child", f"{name}[0]"]
        elif kind == "enum":
            text = self.rng.choice(["Color.RED", "Color.BLUE"])
        elif kind == "key":
            text = f"Key({self._leaf()})"
            self.slots += [f"{name}.n", f"{name}.name"]
        else:
            self.functions.append(name)
            text = self.rng.choice(
                [
                    f"functools.partial(helper, n={self._leaf()})",
                    "Plain(n=1).run",
                    "counted",
                    "space.run",
                    "operator.neg",
                ]
            )
        self.names.append(name)
        self.slots.append(name)
        return f"{name} = {text}"

    # Statements -----------------------------------------------------------------------------

    def _working(self, space: Space) -> str:
        """A statement that works before the first write, mostly."""
        for _ in range(6):
            text = self._statement(2)
            if self.rng.random() < 0.1:
                return text
            try:
                exec(Program((), (text,), (), ()).function(), space)
                space["fn"](space["torch"].ones(3))
            except Exception:
                continue
            return text
        return "x = x + 1"

    def _block(self, depth: int) -> str:
        count = self.rng.randint(1, 2)
        return "\n".join(self._statement(depth - 1) for _ in range(count))

    def _statement(self, depth: int) -> str:
        roll = self.rng.random()
        if depth == 0 or roll < 0.25:
            return self._simple()
        if roll < 0.45:
            return self._change() if self.rng.random() < 0.5 else self._read()
        return self._compound(depth)

    def _simple(self) -> str:
        path, other, leaf = self._path(), self._path(), self._leaf()
        l, d = self.rng.choice(self.lists or self.names), self.rng.choice(self.dicts or self.names)
        key = self.rng.choice(["'a'", "'b'", "1", "None", "True"])
        return self.rng.choice(
            [
                f"x = use(x, {path})",
                f"x = use(x, {path})",
                f"x = x + ({path} == {other})",
                f"x = x + ({path} is {other})",
                f"if (w := {path}) is not None:\n    x = use(x, w)",
                f"x = x + take(*{l}, **{{'z': 1}})",
                f"x = x + take(k=2, **{d})",
                f"a1, *a2 = {l}\nx = use(use(x, a1), a2)",
                f"x = use(x, [v for v in {l} if not isinstance(v, dict)])",
                f"x = use(x, {{str(k): v for k, v in {d}.items()}})",
                f"x = x + sum(1 for v in {l} if v)",
                f"x = x + len(f'{{len({l})}}-{{x.shape[0]:>3}}-{{{self.rng.randint(0, 9)}!r}}')",
                f"x = use(x, sorted({l}, key=lambda v: len(str(type(v))), reverse=True))",
                f"x = use(x, max({l}, key=id_of, default=2))",
                f"x = use(x, list(itertools.chain({l}, ({leaf},))))",
                f"x = use(x, list(itertools.islice(itertools.cycle({l} or [1]), 4)))",
                f"x = use(x, functools.reduce(lambda p, q: (p, q), {l}, 0))",
                f"x = use(x, list(zip({l}, itertools.count(1))))",
                f"x = use(x, dict(enumerate({l})))",
                f"x = use(x, list(map(type, {l})).__len__())",
                f"x = use(x, [*{l}, *{l}][::-1])",
                f"x = use(x, {{**{d}, 'y': {leaf}}})",
                f"x = use(x, {d} | {{'q': 1}})",
                f"x = use(x, {d}.get({key}, {leaf}))",
                f"x = use(x, {d}[{key}])",
                f"x = use(x, operator.itemgetter({key})({d}))",
                f"x = use(x, operator.attrgetter('n')({self._holder()}))",
                f"x = use(x, collections.Counter(str(v) for v in {l}).most_common(1))",
                f"x = use(x, getattr({self._holder()}, 'n', None))",
                f"x = use(x, replace(Key(2), n={leaf}).n)",
                f"x = x + (Key({leaf}) == Key({self._leaf()}))",
                "x = use(x, variable.get())",
                "x = use(x, space.n)",
                "x = space.run(x)",
                "x = counted(x)",
                "x = x + Metal.rank",
                "x = use(x, Color(2))",
                f"x = x + len({{*{l}}})",
                "del x\nx = torch.ones(3)",
                f"x = use(x, ({path},) * 2)",
                "y = x[1:]\ny.mul_(2)",
                "x.add_(1)",
                "x = x.t() if x.dim() == 2 else x.clone()",
                f"x = use(x, {path} or {other})",
                f"x = use(x, {path} if {other} else {leaf})",
            ]
        )

    def _compound(self, depth: int) -> str:
        inner, after = _indented(self._block(depth)), _indented(self._block(depth))
        path, leaf = self._path(), self._leaf()
        l = self.rng.choice(self.lists or self.names)
        i = f"i{depth}"
        out = self.rng.choice(["break", "continue", "pass", "raise ValueError('v')", "x = x * 2"])
        stops = self.rng.randint(0, 3)
        return self.rng.choice(
            [
                f"try:\n{inner}\nexcept ({_ERRORS}) as error:\n    x = x + len(error.args)\n"
                f"finally:\n{after}",
                f"try:\n{inner}\nexcept ({_ERRORS}):\n{after}\nelse:\n    x = x * 0.5",
                f"for {i} in range(4):\n    try:\n        x = x + {i}\n        if {i} == {stops}:\n"
                f"            {out}\n    finally:\n{_indented(inner)}\nelse:\n{after}",
                f"n{i} = 0\nfor {i} in {l}:\n    x = use(x, {i})\n    n{i} += 1\n    if n{i} > 5:\n        break\n{inner}",
                f"{i} = 0\nwhile {i} < 3:\n    {i} += 1\n    if {i} == {stops}:\n        continue\n{inner}",
                f"with Block({leaf}) as w:\n    x = use(x, w)\n{inner}",
                f"manager = Block()\nmanager.swallows = bool({path})\nwith manager:\n{inner}\n    1 / 0",
                f"with torch.no_grad():\n{inner}",
                f"match {path}:\n    case int(v) | float(v):\n        x = x + v\n    case [first, *_]:\n"
                f"        x = use(x, first)\n    case {{'a': v, **others}}:\n        x = use(x, v) + len(others)\n"
                f"    case Plain(n=v) | Metal(n=v):\n        x = use(x, v)\n    case None:\n{_indented(inner)}\n"
                f"    case _:\n{_indented(after)}",
                f"count = 0\ndef bump(by=1, *more, to=None):\n    nonlocal count, x\n    count += by + len(more)\n"
                f"    x = use(x, {path})\n    return count\nx = x + bump() + bump(2, 3) + bump(to=4)",
                f"log = []\nfor v in delegate({stops}, log):\n    x = x + v\n    if v == 1:\n        break\n"
                f"x = use(x, log)",
                f"log = []\nm = {path}\nfor v in delegate(m % 5 if isinstance(m, int) else {stops}, log):\n"
                f"    x = x + v\nx = use(x, log)",
                f"def upto(m):\n    for {i} in range(m if isinstance(m, int) and m < 9 else {stops}):\n"
                f"        yield {i}\n    yield m\nm, *others = upto({path})\nx = use(x, others) + len(others)",
                "log = []\nmade = numbers(3, log)\nx = x + next(made)\nx = x + made.send(1)\nmade.close()\n"
                "x = use(x, log)",
                f"if {path}:\n{inner}\nelse:\n{after}",
                f"token = variable.set({leaf})\ntry:\n    x = use(x, variable.get())\n{inner}\n"
                f"finally:\n    variable.reset(token)",
                f"class Local(Plain):\n    level = {leaf}\n\n    def run(self, x):\n"
                f"        return super().run(x) + 1\nx = use(x, Local(n=1).n)",
            ]
        )

    # Writes ---------------------------------------------------------------------------------

    def _outer(self) -> str:
        if self.rng.random() < 0.55:
            return self._outer_write()
        holder, leaf, path = self._holder(), self._leaf(), self._path()
        kind = self.rng.choice(_OBJECTS)
        return self.rng.choice(
            [
                f"space.n = {leaf}",
                "space.run = lambda x: x - 2",
                f"variable.set({leaf})",
                f"Meta.factor = {self.rng.randint(1, 5)}",
                "Meta.rank = property(lambda cls: 5)",
                f"Metal.level = {self.rng.randint(0, 9)}",
                f"Metal.rank = {self.rng.randint(0, 9)}",
                "Twice.__get__ = lambda self, i, o: 3",
                "del Twice.__set__",
                f"vars({holder})['extra'] = {leaf}",
                f"{holder}.__dict__ = {{'n': {path}, 'level': 2}}",
                f"{holder}.__class__ = {kind}",
                f"{holder}.child = {path}",
                "del " + holder + ".child",
                "Items.__iter__ = lambda self: iter([1, 2])",
                "Items.__contains__ = lambda self, value: True",
                "Table.__missing__ = lambda self, key: 0",
                "Table.get = lambda self, key, default=None: 11",
                "Key.__eq__ = lambda self, other: True",
                "Block.__exit__ = lambda self, *given: True",
                "Block.__enter__ = lambda self: 8",
                f"Block.__init__.__defaults__ = ({leaf}, 3)",
                "take.__kwdefaults__ = {'k': 3}",
                "take.__kwdefaults__['k'] = 4",
                "counted.calls = 5",
                "counted.__dict__.clear()",
                "numbers = lambda count, log: iter((1, 2))",
                "delegate.__code__ = numbers.__code__",
                "Color._value2member_map_ = {2: Color.RED}",
                "sorted = lambda values, **how: list(values)",
                "use.__defaults__ = (1, 2)",
                "torch.set_default_dtype(torch.float64)",
                "torch.set_default_dtype(torch.float32)",
                f"Described.k = {leaf}",
                "Described.extra = property(lambda self: 4)",
                "Plain.__bool__ = lambda self: False",
                "Plain.__eq__ = lambda self, other: True",
                "Mixed.__getattr__ = lambda self, name: name",
                f"{holder}.n = float('nan')",
            ]
        )


def generate(seed: int) -> Program:
    """The program of this seed."""
    return Programs(seed).program()
