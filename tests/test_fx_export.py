"""Descriptions of graphs become GraphModules, and backends get them.

The descriptions are written by hand here, in the form of crates/tracer/src/replay/export.rs (whose
own tests check that form).
"""

import operator
import subprocess
import sys

import pytest
import torch

from stator import _backends
from stator._fx.graphs import Reference as R
from stator._fx.graphs import graph_module
from stator.errors import BackendError, InternalError, OptionError

TRACE = '  File "example.py", line 5, in mse\n    z = (x - y) ** 2\n'

MSE = [
    ("placeholder", "l_x_", "L['x']", (), {}, None, ()),
    ("placeholder", "l_y_", "L['y']", (), {}, None, ()),
    ("call_function", "sub", operator.sub, (R("l_x_"), R("l_y_")), {}, TRACE, ()),
    ("call_function", "z", operator.pow, (R("sub"), 2), {}, TRACE, ()),
    ("call_method", "sum_1", "sum", (R("z"),), {"dim": -1}, None, ()),
    ("output", "output", "output", ((R("sum_1"),),), {}, None, ()),
]


def mse(x, y):
    return (((x - y) ** 2).sum(dim=-1),)


@pytest.fixture
def inputs():
    return [torch.arange(6.0).reshape(2, 3), torch.ones(2, 3, requires_grad=True)]


def test_graph_module(inputs):
    gm = graph_module(MSE, inputs)
    assert torch.equal(gm(*inputs)[0], mse(*inputs)[0])
    assert [node.name for node in gm.graph.nodes] == [row[1] for row in MSE]
    nodes = {node.name: node for node in gm.graph.nodes}
    assert nodes["l_x_"].target == "l_x_"
    assert nodes["l_x_"].meta["example_value"] is inputs[0]
    assert nodes["sub"].target is operator.sub
    assert nodes["sub"].meta["stack_trace"] == TRACE
    assert "stack_trace" not in nodes["sum_1"].meta
    assert "def forward(self, l_x_ : torch.Tensor, l_y_ : torch.Tensor)" in gm.code
    listing = gm.print_readable(print_output=False)
    assert "# File: example.py:5 in mse, code: z = (x - y) ** 2" in listing
    assert "z = sub ** 2" in listing


def test_nested_arguments_and_objects_without_a_source_form(inputs):
    generator = torch.Generator()
    index = (slice(None, R("n"), None), ..., None)
    rows = [
        ("placeholder", "l_x_", "L['x']", (), {}, None, ()),
        ("placeholder", "n", "L['n']", (), {}, None, ()),
        ("call_function", "cat", torch.cat, ([R("l_x_"), R("l_x_")],), {"dim": 0}, None, ()),
        ("call_function", "getitem", operator.getitem, (R("cat"), index), {}, None, ()),
        (
            "call_function",
            "rand",
            torch.rand,
            (2,),
            {"generator": generator, "dtype": torch.float64},
            None,
            (),
        ),
        ("call_function", "rand_1", torch.rand, (2,), {"generator": generator}, None, ()),
        ("call_function", "getattr_1", getattr, (R("cat"), "T"), {}, None, ()),
        (
            "output",
            "output",
            "output",
            ((R("getitem"), R("rand"), [R("getattr_1")], R("rand_1")),),
            {},
            None,
            (),
        ),
    ]
    gm = graph_module(rows, [inputs[0], 3])
    generator.manual_seed(0)
    part, rand, (transposed,), _ = gm(inputs[0], 3)
    cat = torch.cat([inputs[0], inputs[0]])
    assert torch.equal(part, cat[:3, ..., None])
    assert torch.equal(transposed, cat.T)
    assert torch.equal(rand, torch.rand(2, generator=generator.manual_seed(0), dtype=torch.float64))
    names = [node.target for node in gm.graph.nodes if node.op == "get_attr"]
    assert set(names) == {"_constant_0"}


def test_wrong_number_of_inputs(inputs):
    with pytest.raises(InternalError, match="no input is left for the graph's placeholder l_y_"):
        graph_module(MSE, inputs[:1])
    with pytest.raises(InternalError, match="1 inputs more"):
        graph_module(MSE, [*inputs, inputs[0]])


@pytest.mark.parametrize("backend", ["fx", "aot_eager", lambda gm, inputs: gm.forward])
def test_backends_run_the_graph(backend, inputs):
    compiled = _backends.resolve_backend(backend)(MSE, inputs)
    x, y = inputs[0] * 3, inputs[1]
    (result,) = compiled(x, y)
    assert torch.equal(result, mse(x, y)[0])
    (grad,) = torch.autograd.grad(result.sum(), y)
    assert torch.equal(grad, torch.autograd.grad(mse(x, y)[0].sum(), y)[0])


def test_backends_see_inputs_and_arguments(inputs):
    seen = []

    @_backends.register_backend(name="spy")
    def backend(gm, example_inputs, **arguments):
        seen.append((type(gm), example_inputs, arguments))
        return gm.forward

    _backends.resolve_backend("spy", mode="fast", options={"a-b": 1})(MSE, inputs)
    _backends.resolve_backend(backend, mode="default")(MSE, inputs)
    assert issubclass(seen[0][0], torch.fx.GraphModule)
    assert seen[0][1] is inputs
    assert seen[0][2] == {"mode": "fast", "options": {"a-b": 1}}
    assert seen[1][2] == {}


def test_inductor_gets_settings():
    assert _backends._arguments("inductor", None, {"max-autotune": True}) == {
        "config_patches": {"max_autotune": True}
    }
    autotune = _backends._arguments("inductor", "max-autotune-no-cudagraphs", None)
    assert autotune["config_patches"]["max_autotune"] is True
    with pytest.raises(OptionError, match="Did you mean 'max-autotune'"):
        _backends.resolve_backend("inductor", mode="max-autotun")


def test_eager_is_the_replay():
    assert _backends.resolve_backend("eager") is None
    assert _backends.resolve_backend("eager", mode="default") is None
    with pytest.raises(OptionError, match="no mode, no options"):
        _backends.resolve_backend("eager", mode="max-autotune")


def test_names():
    def mine(gm, example_inputs):
        return gm

    assert _backends.register_backend(mine) is mine
    assert _backends.register_backend(mine) is mine
    names = _backends.list_backends()
    assert names[:3] == ["eager", "fx", "mine"]
    assert {"inductor", "aot_eager"} <= set(names)
    assert len(set(names)) == len(names)


def test_errors_of_users():
    with pytest.raises(BackendError, match=r"no backend 'inductr'\. Did you mean 'inductor'\?"):
        _backends.resolve_backend("inductr")
    with pytest.raises(BackendError, match="A backend is a name or a callable, not 3"):
        _backends.resolve_backend(3)
    with pytest.raises(BackendError, match="A backend is a callable, not 3"):
        _backends.register_backend(3)
    with pytest.raises(BackendError, match="already"):
        _backends.register_backend(lambda gm, inputs: gm, name="eager")
    with pytest.raises(BackendError, match="no name of its own"):
        _backends.register_backend(type("", (), {"__call__": lambda *_: None})())
    with pytest.raises(BackendError, match="The backend test_errors_of_users.* returned None"):
        _backends.resolve_backend(lambda gm, inputs: None)(MSE, [torch.ones(1), torch.ones(1)])


def test_no_torch_is_imported_for_the_default():
    code = "import sys, stator._backends as b; b.resolve_backend('eager'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
