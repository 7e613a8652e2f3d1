"""What `stator.export` gives is a verified program, does what plain Python does, and keeps its state."""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import io
import math
import random
import warnings
from collections import namedtuple

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree

import stator

OUTSIDE = nn.Parameter(torch.arange(4.0))
GLOBAL = torch.arange(4.0)
COUNTED = torch.zeros(1)
KEPT: dict[str, object] = {}
LAYER = nn.Linear(4, 4)
NORM = nn.BatchNorm1d(4)

Pair = namedtuple("Pair", "first second")
pytree._register_namedtuple(Pair, serialized_type_name=f"{__name__}.Pair")


@dataclasses.dataclass
class Registered:
    total: torch.Tensor
    rows: int


torch.export.register_dataclass(Registered, serialized_type_name=f"{__name__}.Registered")


@dataclasses.dataclass
class Unregistered:
    total: torch.Tensor


class Trained(nn.Module):
    """Writes to buffers, its own and those of a layer; reads a tensor that is no buffer."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64), persistent=False)
        self.mask = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0, 0.0])

    def forward(self, x, *, scale=1.0):
        y = self.norm(self.linear(x))
        self.mean.lerp_(y.detach().mean(0), 0.5)
        self.calls += 1
        return {"y": y * self.mask * scale, "mean": self.mean + 0, "parts": [x, (y.sum(), None, 3)]}


class Assigned(nn.Module):
    """Replaces buffers, and returns what they were and are."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))
        self.inner = nn.Module()
        self.inner.register_buffer("last", torch.zeros(3, 4))

    def forward(self, x):
        old, view = self.mean, self.mean[:2]
        self.mean = self.mean * 0.5 + self.linear(x).mean(0)
        self.inner.last = x * 2
        return old, view, self.mean + 1, self.inner.last


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, ids):
        return self.out(self.embedding(ids))


class Nested(nn.Module):
    def forward(self, batch, k):
        first, second = batch["parts"]
        return Pair(first * k, [second - batch["x"], batch["x"]])


def outside(x):
    return (x * OUTSIDE + GLOBAL).relu() @ LAYER.weight


def data_class(x):
    return Registered(x.sum(), x.shape[0])


def without_gradients(x):
    with torch.no_grad():
        y = x * 2
    return y + x


def in_place(x, y):
    x.add_(1)
    return x * y


def dropped(x):
    return nn.functional.dropout(x, 0.5)


def warned(x):
    warnings.warn("once per call", stacklevel=1)
    return x + 1


def sizes(x):
    rows, columns = x.shape
    return x.reshape(rows * columns), rows * 2, columns, tuple(x.shape)


def numbers(x, n, name, flag=True):
    return x * n if flag and name == "times" else x


def same(one, other):
    left, right = pytree.tree_leaves(one), pytree.tree_leaves(other)
    assert pytree.tree_structure(one) == pytree.tree_structure(other)
    for a, b in zip(left, right, strict=True):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert type(a) is type(b) and a == b


def copies(tree):
    return pytree.tree_map_only(torch.Tensor, lambda it: it.detach().clone(), tree)


def state(module):
    return {name: it.clone() for name, it in (*module.named_parameters(), *module.named_buffers())}


def exported(target, args, kwargs=None, dynamic_shapes=None):
    """The program, verified, and once more after saving and loading."""
    program = stator.export(target, args, kwargs, dynamic_shapes=dynamic_shapes)
    assert isinstance(program, torch.export.ExportedProgram)
    program.validate()
    saved = io.BytesIO()
    torch.export.save(program, saved)
    saved.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # The archive's buffers aren't writable.
        return program, torch.export.load(saved)


ROWS = torch.arange(12.0).reshape(3, 4) / 7
CASES = {
    "trained": (Trained, (ROWS,), {"scale": 2.0}),
    "assigned": (Assigned, (ROWS,), {}),
    "tied": (Tied, (torch.tensor([[1, 2], [9, 0]]),), {}),
    "nested": (Nested, ({"x": ROWS, "parts": [ROWS + 1, ROWS * 2]}, 3), {}),
    "outside": (lambda: outside, (ROWS,), {}),
    "data_class": (lambda: data_class, (ROWS,), {}),
    "without_gradients": (lambda: without_gradients, (ROWS,), {}),
    "in_place": (lambda: in_place, (ROWS, ROWS + 1), {}),
    "dropped": (lambda: dropped, (ROWS,), {}),
    "warned": (lambda: warned, (ROWS,), {}),
    "sizes": (lambda: sizes, (ROWS,), {}),
    "numbers": (lambda: numbers, (ROWS, 3, "times"), {"flag": True}),
    "method": (lambda: Nested().forward, ({"x": ROWS, "parts": [ROWS, ROWS]}, 2), {}),
    "partial": (lambda: functools.partial(numbers, n=2, name="times"), (ROWS,), {}),
    "compiled": (lambda: stator.compile(Tied()), (torch.tensor([3]),), {}),
    "identity": (lambda: lambda x: (x, 1.5), (ROWS,), {}),
}


@pytest.mark.filterwarnings("ignore:once per call")
@pytest.mark.parametrize("name", CASES)
def test_programs_do_what_the_function_does(name):
    make, args, kwargs = CASES[name]
    torch.manual_seed(0)
    target = make()
    module = target if isinstance(target, nn.Module) else nn.Module()
    before, given = state(module), copies(args)
    random_state = torch.get_rng_state()
    programs = exported(target, args, kwargs)
    # The first program shares its state with the module.
    plains = [copy.deepcopy(target) if isinstance(target, nn.Module) else target for _ in programs]
    same(state(module), before)
    same(args, given)
    assert torch.equal(torch.get_rng_state(), random_state)
    for program, plain in zip(programs, plains, strict=True):
        run = program.module()
        for changed in (0.0, 0.5):
            # The second call sees what the first one left in buffers.
            args_now = pytree.tree_map_only(
                torch.Tensor, lambda it: it + type(it.flatten()[0].item())(changed), copies(args)
            )
            plain_args, own_args = copies(args_now), copies(args_now)
            torch.manual_seed(1)
            expected = plain(*plain_args, **kwargs)
            torch.manual_seed(1)
            same(run(*own_args, **kwargs), expected)
            same(own_args, plain_args)
        if isinstance(plain, nn.Module):
            buffers = dict(run.named_buffers())
            for buffer, value in plain.named_buffers():
                torch.testing.assert_close(buffers[buffer], value)


def test_state_keeps_its_names():
    program, loaded = exported(Trained(), (ROWS,), {"scale": 2.0})
    for signature in (program.graph_signature, loaded.graph_signature):
        assert set(signature.parameters) == {
            *("linear.weight", "linear.bias", "norm.weight", "norm.bias")
        }
        assert {"mean", "calls", "norm.running_mean"} <= set(signature.buffers)
        assert signature.non_persistent_buffers == ("calls",)
        assert list(signature.lifted_tensor_constants) == ["mask"]
    mutated = program.run_decompositions({}).graph_signature.buffers_to_mutate
    assert {"mean", "calls", "norm.running_var"} <= set(mutated.values())
    assert set(program.state_dict) == set(Trained().state_dict())


def test_nodes_know_lines_and_modules():
    program = stator.export(Trained(), (ROWS,))
    nodes = {node.target: node for node in program.graph.nodes if node.op == "call_function"}
    linear = nodes[torch.ops.aten.linear.default]
    assert "y = self.norm(self.linear(x))" in linear.meta["stack_trace"]
    paths = [path for path, _ in linear.meta["nn_module_stack"].values()]
    assert paths == ["", "linear"]
    kinds = [kind for _, kind in linear.meta["nn_module_stack"].values()]
    assert kinds == [f"{__name__}.Trained", "torch.nn.modules.linear.Linear"]


DYNAMIC = {
    "by name": {"x": {0: Dim("rows")}},
    "by place": ({0: Dim("rows")},),
    "hint": ({0: Dim.DYNAMIC, 1: Dim.STATIC},),
    "automatic": ({0: Dim.AUTO, 1: None},),
}


@pytest.mark.parametrize("shapes", DYNAMIC.values(), ids=DYNAMIC)
def test_sizes_vary(shapes):
    programs = exported(sizes, (ROWS,), dynamic_shapes=shapes)
    for program in programs:
        for rows in (3, 2, 17):
            same(program.module()(torch.ones(rows, 4)), sizes(torch.ones(rows, 4)))
        with pytest.raises(Exception, match="4"):
            program.module()(torch.ones(3, 5))


def by_root(x):
    return x * 2 if math.sqrt(x.shape[0]) > 1.2 else x


def by_rounding(x):
    n = x.shape[0]
    return x * 2 if round(n * 0.75) > 1 and math.ceil(n / 3) >= math.floor(n / 5) else x


@pytest.mark.parametrize("fn", [by_root, by_rounding])
def test_decisions_on_what_is_computed_of_sizes(fn):
    for shapes in ({0: Dim("rows", min=2)}, {0: Dim.AUTO}):
        program = stator.export(fn, (torch.ones(4, 2),), dynamic_shapes=(shapes,))
        for rows in (3, 4, 17):
            same(program.module()(torch.ones(rows, 2)), fn(torch.ones(rows, 2)))


def test_sizes_of_modules_vary_in_containers_and_together():
    batch = Dim("batch")
    shapes = {"batch": {"x": {0: batch}, "parts": [{0: batch}, {0: batch}]}, "k": None}
    program, _ = exported(Nested(), CASES["nested"][1], dynamic_shapes=shapes)
    more = {"x": torch.ones(7, 4), "parts": [torch.ones(7, 4), torch.ones(7, 4)]}
    same(program.module()(more, 3), Nested()(more, 3))


def even(x):
    if x.shape[0] % 2 == 0:
        return x + 1
    return x - 1


def test_decisions_on_sizes_hold_for_all_sizes_or_are_errors():
    rows = Dim("rows")
    with pytest.raises(stator.ExportError, match="rows") as raised:
        stator.export(even, (torch.ones(4, 2),), dynamic_shapes=({0: rows},))
    assert raised.value.stack[-1][2] == "even"
    assert raised.value.__cause__ is not None
    half = Dim("half", min=1)
    program = stator.export(even, (torch.ones(4, 2),), dynamic_shapes=({0: 2 * half},))
    same(program.module()(torch.ones(6, 2)), even(torch.ones(6, 2)))
    with pytest.raises(Exception, match="7|2"):
        program.module()(torch.ones(7, 2))


def test_a_decision_that_fixes_a_size_is_an_error():
    def four(x):
        return x + 1 if x.shape[0] == 4 else x - 1

    with pytest.raises(stator.ExportError, match="is to vary, but the trace is for one size"):
        stator.export(four, (torch.ones(4, 2),), dynamic_shapes=({0: Dim("rows")},))


@pytest.mark.parametrize("shapes", [{"y": {0: Dim("rows")}}, ({0: Dim("rows")}, None)])
def test_shapes_that_do_not_fit_the_arguments(shapes):
    with pytest.raises(stator.ExportError, match="dynamic_shapes doesn't fit the arguments"):
        stator.export(lambda x: x * 2, (ROWS,), dynamic_shapes=shapes)


def data(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


class Flagged:
    """Holds what it is set to as long as somebody computes."""

    value = None


FLAGGED = Flagged()
FLAGGED.value = None


def flagged(x):
    """Leaves everything as it was."""
    if FLAGGED.value is None:
        FLAGGED.value = "busy"
        x = x * 2
        FLAGGED.value = None
    return x


def set_once(x):
    FLAGGED.value = None
    KEPT["mode"] = "on"
    return x * 2


def left_flagged(x):
    if FLAGGED.value is None:
        FLAGGED.value = "busy"
    return x * 2


def written(x):
    KEPT["x"] = x
    return x * 2


def counted(x):
    COUNTED.add_(1)
    return x + COUNTED


def another_modules_buffers(x):
    return NORM(x)


def drawn(x):
    return x * random.random()


def printed(x):
    print(x)
    return x


def unregistered(x):
    return Unregistered(x.sum())


def truth(x):
    return x, bool((x > 0).all())


ERRORS = {
    data: ("SB002", "data", "if x.sum() > 0:"),
    written: ("", "KEPT", 'KEPT["x"] = x'),
    counted: ("", "G['COUNTED'] in place", ""),
    another_modules_buffers: ("", "num_batches_tracked", ""),
    drawn: ("", "random numbers of Python's", ""),
    printed: ("SB001", "print", "print(x)"),
    unregistered: ("", "returns a Unregistered", ""),
    left_flagged: ("", "FLAGGED'].value", 'FLAGGED.value = "busy"'),
    truth: ("SB002", "data", "bool((x > 0).all())"),
}


@pytest.mark.parametrize("function", ERRORS, ids=lambda it: it.__name__)
def test_errors_name_the_line_and_what_to_do(function):
    id, what, line = ERRORS[function]
    KEPT.clear()
    FLAGGED.value = None
    with pytest.raises(stator.ExportError) as raised:
        stator.export(function, (ROWS + 1,))
    error = raised.value
    assert error.id == id and what in str(error) and line in str(error) and error.hint
    if line:
        assert error.stack[-1][2] == function.__name__
    assert str(error).startswith("This function can't be exported: ")


@pytest.mark.parametrize("function", [flagged, set_once])
def test_what_is_put_back_or_set_for_good_is_no_write(function):
    FLAGGED.value = None
    KEPT.clear()
    KEPT["mode"] = "off"
    program = stator.export(function, (ROWS,))
    same(program.module()(ROWS), ROWS * 2)


def test_attributes_of_the_module_are_outside():
    class Counting(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    with pytest.raises(stator.ExportError, match="calls"):
        stator.export(Counting(), (ROWS,))


@pytest.mark.parametrize("value", [lambda x: None, lambda x: x, lambda x: x.sum()])
def test_buffers_are_replaced_by_what_the_graph_computes(value):
    class Replaced(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3, 4))

        def forward(self, x):
            self.mean = value(x)
            return x + 1

    module = Replaced()
    mean = module.mean
    with pytest.raises(stator.ExportError, match="mean"):
        stator.export(module, (ROWS,))
    assert module.mean is mean


def test_exceptions_of_the_function_come_as_they_are():
    def raises(x):
        raise LookupError("its own")

    with pytest.raises(LookupError, match="its own"):
        stator.export(raises, (ROWS,))


def test_arguments_that_are_none():
    with pytest.raises(stator.errors.NotCompilableError, match="takes a callable"):
        stator.export(3, ())
    with pytest.raises(stator.errors.OptionError, match="a tuple of arguments"):
        stator.export(even, ROWS)
    with pytest.raises(stator.ExportError, match="varies"):
        stator.export(numbers, (ROWS, 3, "times"), dynamic_shapes=(None, Dim.DYNAMIC, None))
    with pytest.raises(stator.ExportError, match="isn't written in Python"):
        stator.export(torch.relu, (ROWS,))


def test_one_tensor_twice_is_no_assumption():
    program = stator.export(lambda x, y: x * y, (ROWS, ROWS))
    same(program.module()(ROWS, ROWS + 1), ROWS * (ROWS + 1))
    with pytest.raises(stator.ExportError, match="share no memory"):
        stator.export(in_place, (ROWS.clone(),) * 2)


def test_a_compiled_function_keeps_its_traces():
    compiled = stator.compile(outside)
    compiled(ROWS)
    compiled(ROWS)
    traces = stator.stats(compiled).traces
    stator.export(compiled, (ROWS,))
    same(compiled(ROWS), outside(ROWS))
    assert stator.stats(compiled).traces == traces


def test_garbage_is_no_part_of_a_program(monkeypatch):
    """A generator within `torch.no_grad()` that is collected meanwhile leaves it then."""

    def suspended():
        with torch.no_grad():
            yield

    left = []
    create_node, export = torch.fx.Graph.create_node, torch.export.export

    def collecting(graph, *args, **kwargs):
        if left:
            cycle = [left.pop()]
            cycle.append(cycle)
            del cycle
            [[] for _ in range(1_000)]
        return create_node(graph, *args, **kwargs)

    def exporting(*args, **kwargs):
        with torch.no_grad():
            left.append(suspended())
            next(left[0])
        before = gc.get_threshold()
        gc.set_threshold(1, 1, 1)
        try:
            return export(*args, **kwargs)
        finally:
            gc.set_threshold(*before)

    monkeypatch.setattr(torch.fx.Graph, "create_node", collecting)
    monkeypatch.setattr(torch.export, "export", exporting)
    with torch.enable_grad():
        program = stator.export(Trained(), (ROWS,))
    assert not left
    assert gc.isenabled()
    assert "grad" not in str(program.graph)
