"""No name that a program chooses meets another one in a graph: neither those of `torch.fx`'s own rows and
generated code, nor Python's, nor those that the graph makes itself."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import stator
from stator._fx import graphs

ROWS = ["output", "placeholder", "get_attr", "call_function", "call_method", "getattr", "getitem"]
GENERATED = ["self", "wrap", "root", "forward", "_rf", "_rf_mul", "_constant_0", "_constant_1"]
GENERATED += ["torch", "device", "inf", "nan", "NoneType", "pytree", "fx_pytree", "operator"]
NUMBERED = ["mul", "mul_1", "add_1", "output_1", "output_2", "x_1", "l_x_", "l_x__1", "l_self_"]
NUMBERED += ["x_18446744073709551615", "x_99999999999999999999999", "x_007"]
DUNDERS = ["_", "__", "__1", "__x__", "__name__", "__class__", "__self__", "__debug", "_Names__x"]
UNICODE = ["é", "é2", "ﬁ", "变量", "ª", "x\u0301", "À"]
CASES = ["MyVar", "myVar", "ALL_CAPS", "match", "case", "type", "print", "sum", "list"]
CHOSEN = [*ROWS, *GENERATED, *NUMBERED, *DUNDERS, *UNICODE, *CASES]

variables = st.one_of(
    st.sampled_from(CHOSEN),
    st.sampled_from([name for name in dir(builtins) if name.isidentifier()]),
    st.from_regex(r"[a-z_](_?[0-9a-z_])?(_[0-9]{1,2})?", fullmatch=True),
).filter(lambda name: not keyword.iskeyword(name) and name != "__debug__")
keys = st.one_of(variables, st.sampled_from(keyword.kwlist), st.text(max_size=3))

PROGRAM = """
def f({first}, {second}):
    def inner({first}):
        {a} = {first} * 2
        {b} = {a} + 1
        return {b}
    {c} = inner({first})
    {a} = {c} * {second}
    {a} = {a} + {c}
    {b} = inner({a}).sigmoid()
    {b} += {a}
    {d}, {e} = {b}.max(dim=0)
    return {a}, {b}, {d}, {e}.float() + {a}
"""


def compiled(names: list[str]):
    text = PROGRAM.format(
        **dict(zip(("first", "second", "a", "b", "c", "d", "e"), names, strict=True))
    )
    scope: dict = {}
    exec(compile(text, "names.py", "exec"), scope)
    return scope["f"]


def same(found, expected) -> None:
    assert type(found) is type(expected) and len(found) == len(expected)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


class Linted:
    """A backend that checks its graph, and runs the code that torch.fx has generated."""

    def __call__(self, module, inputs):
        module.graph.lint()
        self.names = [node.name for node in module.graph.nodes if node.op != "get_attr"]
        self.code = module.code
        return module.forward


def printed_names(code: str) -> list[str]:
    """The names that a printed graph gives, in order."""
    head, *lines = code.splitlines()
    names = re.findall(r"(\w+): torch\.", head)
    for line in lines:
        if found := re.match(r"    (?:.*;  )?(\w+) = ", line.split("#")[0]):
            names.append(found[1])
    return names


def agrees(function, *args) -> None:
    """All backends that take a graph give what plain Python gives; the printed graph names as it does."""
    expected = function(*args)
    linted = Linted()
    for backend in ("eager", linted, "fx"):
        fast = stator.compile(function, backend=backend)
        same(fast(*args), expected)
        same(fast(*args), expected)
        assert stator.stats(fast).hits == 1
    # An operation in place has a name in print only where its result is used.
    printed = printed_names(fast.graph_code()[0])
    own = [name for name in linted.names[:-1] if not name.startswith("iadd")]
    assert [name for name in printed if not name.startswith("iadd")] == own
    assert len(set(linted.names)) == len(linted.names)


@given(
    st.lists(variables, min_size=7, max_size=7).filter(
        lambda names: (
            unicodedata.normalize("NFKC", names[0]) != unicodedata.normalize("NFKC", names[1])
        )
    )
)
@example(["x", "y", "output", "output_1", "getattr", "self", "_constant_0"])
@example(["self", "output", "mul", "mul_1", "mul_2", "add", "mul"])
@example(["x", "y", "x_18446744073709551615", "x_1", "x", "x_18446744073709551615", "y"])
@settings(max_examples=60, deadline=None)
def test_variables(names):
    x, y = torch.arange(6.0).reshape(2, 3), torch.ones(3)
    agrees(compiled(names), x, y)


@given(st.lists(keys, min_size=3, max_size=3, unique=True))
@example(["output", "class", "l_d_output_"])
@settings(max_examples=30, deadline=None)
def test_keys_and_attributes(names):
    first, second, third = names
    linear = torch.nn.Linear(3, 3)
    linear.__dict__["odd"] = {second: torch.full((3,), 2.0)}

    def f(d):
        output = d[first] * d[second] + linear.odd[second]
        return output, linear(output) * d[third]

    agrees(f, {name: torch.full((3,), float(at)) for at, name in enumerate(names)})


@given(keys, keys)
@example("class", "output")
@example("ﬁ", "fi")
@settings(max_examples=30, deadline=None)
def test_keywords(first, second):
    @stator.allow_in_graph
    def leaf(**given):
        return sum(value * 2 for value in given.values())

    def f(x):
        output = x + 1
        return (leaf(**{first: output, second: x}),)

    agrees(f, torch.ones(3))


NASTY = ["x", "self", "output", "getattr", "_constant_0", "_rf", "mul_1"]


def test_a_compiler_of_pytorch():
    function = compiled(NASTY)
    args = torch.arange(6.0).reshape(2, 3), torch.ones(3)
    fast = stator.compile(function, backend="aot_eager")
    fast(*args)
    for found, expected in zip(fast(*args), function(*args), strict=True):
        torch.testing.assert_close(found, expected)
    assert stator.stats(fast).hits == 1


def test_objects_without_a_source_form_beside_variables_named_like_them():
    generator = torch.Generator()

    def f(x):
        _constant_0 = x * 2
        noise = torch.rand(3, generator=generator)
        _constant_1 = noise + _constant_0
        self = _constant_1 + torch.rand(3, generator=generator)
        return _constant_0, _constant_1, self

    linted = Linted()
    fast = stator.compile(f, backend=linted)
    for _ in range(2):
        generator.manual_seed(0)
        expected = f(torch.ones(3))
        generator.manual_seed(0)
        same(fast(torch.ones(3)), expected)
    assert linted.names == [
        "l_x_", "constant_0", "noise", "constant_1", "rand_1", "self_1", "output"
    ]  # fmt: skip


def test_every_name_that_torch_fx_reserves_is_known():
    """One that `torch.fx` doesn't let pass would get another name there than in the printed graph."""
    for name in torch.fx.graph._illegal_names:
        if keyword.iskeyword(name) or not name.isascii() or name == "_":
            continue
        scope = {}
        source = f"def f(x):\n    {name} = x * 2\n    return ({name} + 1,)\n"
        if name == "__debug__":
            continue
        exec(source, scope)
        linted = Linted()
        fast = stator.compile(scope["f"], backend=linted)
        fast(torch.ones(2))
        fast(torch.ones(2))
        assert linted.names[1] == f"{name}_1", name
        assert linted.names[:-1] == printed_names(fast.graph_code()[0])


def test_builtins_added_by_the_program_rename_a_node_only():
    """Interactive Python and gettext add `_`; what torch.fx makes of a variable of that name is all right."""
    reserved = torch.fx.graph._illegal_names
    reserved["added"] = object()
    try:
        rows = [
            ("placeholder", "l_x_", "L['x']", (), {}, None, ()),
            ("call_function", "added", torch.neg, (graphs.Reference("l_x_"),), {}, None, ()),
            ("call_function", "added_1", torch.abs, (graphs.Reference("added"),), {}, None, ()),
            ("output", "output", "output", ((graphs.Reference("added_1"),),), {}, None, ()),
        ]
        module = graphs.graph_module(rows, [torch.ones(2)])
    finally:
        del reserved["added"]
    module.graph.lint()
    assert torch.equal(module(torch.ones(2))[0], torch.ones(2))
