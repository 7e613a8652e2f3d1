"""Graphs that backends get say of their nodes and inputs what TorchDynamo's say."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._guards import CompileContext, CompileId, TracingContext
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import stator
from stator._fx.metadata import add_metadata

SCALE = torch.full((4,), 2.0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x):
        hidden = self.linear(x)
        return self.norm(hidden.relu() * self.scale) + x


class Stacked(nn.Module):
    """Blocks in a list, one called twice, a tensor that is no buffer, a global tensor."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(4), Block(4)])
        self.head = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.plain = torch.ones(4)

    def forward(self, x, y):
        for block in self.blocks:
            x = block(x)
        x = self.blocks[0](x) + y * self.plain
        return torch.softmax(self.head(x) * SCALE, -1)


class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
        self.classify = nn.Linear(2 * 4 * 4, 3)

    def forward(self, x):
        return self.classify(self.features(x).flatten(1))


class Attended(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("mask", torch.ones(5, 5).tril() == 0, persistent=False)

    def forward(self, ids):
        hidden = self.embedding(ids)
        scores = self.query(hidden) @ self.key(hidden).transpose(-1, -2)
        weights = scores.masked_fill(self.mask, float("-inf")).softmax(-1)
        return nn.functional.gelu(weights @ hidden)


def bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=50,
    )
    return transformers.BertModel(config)


def llama():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=32,
        vocab_size=50,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config)


IDS = torch.arange(10).reshape(2, 5)
MODELS = {
    "stacked": (Stacked, (torch.ones(3, 4), torch.ones(3, 4))),
    "convolved": (Convolved, (torch.ones(2, 1, 6, 6),)),
    "attended": (Attended, (IDS,)),
    "bert": (bert, (IDS,)),
    "llama": (llama, (IDS,)),
}


class Seen:
    """A backend that keeps the graphs it is asked for."""

    def __init__(self):
        self.graphs = []
        self.ids = []

    def __call__(self, graph, inputs):
        self.graphs.append(graph)
        self.ids.append(CompileContext.current_compile_id())
        return graph.forward


def by_both(module, args):
    """The graphs of TorchDynamo and of Stator."""
    own, theirs = Seen(), Seen()
    # It marks the tensors themselves, and Stator would believe the marks.
    compiled = stator.compile(module, backend=own, fullgraph=True, is_compiling=True)
    compiled(*args)
    compiled(*args)
    torch._dynamo.reset()
    torch.compile(module, backend=theirs, fullgraph=True, dynamic=False)(*args)
    [own_graph], [their_graph] = own.graphs, theirs.graphs
    return their_graph, own_graph


def plain(source):
    """A source's path without the name of the root, in one spelling."""
    source = re.sub(r"\._(?:modules|parameters|buffers)\[(['\"])([^'\"\]]+)\1\]", r".\2", source)
    source = re.sub(r"\[(['\"])?(\w+)(['\"])?\]", r".\2", source)
    return re.sub(r"^L\.(?:args\.0|\w+)\.?", "", source)


def static(graph):
    placeholders = graph.graph.find_nodes(op="placeholder")
    return {
        plain(node._dynamo_source.name)
        for node in placeholders
        if node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
    }


def operations(graph):
    """The operations with where they are: user's line, modules, and what called them."""
    found = []
    for node in graph.graph.nodes:
        if node.op not in ("call_function", "call_method"):
            continue
        lines = re.findall(r'  File "(.*)", line (\d+), in', node.meta["stack_trace"])
        stack = node.meta.get("nn_module_stack", {})
        modules = [(plain(path), kind) for path, kind in stack.values()]
        [(_, source)] = node.meta["source_fn_stack"]
        called = getattr(source, "__name__", source)
        target = getattr(node.target, "__name__", node.target)
        found.append((target, lines[-1], modules, called))
    return found


@pytest.mark.parametrize("name", ["stacked", "convolved", "attended"])
def test_each_node_says_what_torchdynamos_says(name):
    make, args = MODELS[name]
    theirs, own = by_both(make().eval(), args)
    assert operations(own) == operations(theirs)
    assert static(own) == static(theirs)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_nodes_of_models_say_what_torchdynamos_say(name):
    """Sizes are read by nodes of their own here and there, so lines are compared, and what is on them."""
    make, args = MODELS[name]
    theirs, own = by_both(make().eval(), args)
    both = set()
    for graph in (theirs, own):
        both.add(frozenset((line, str(modules)) for _, line, modules, _ in operations(graph)))
    first, second = both if len(both) == 2 else (*both, *both)
    assert len(first & second) >= 0.9 * max(len(first), len(second)), first ^ second
    assert static(own) == static(theirs) != set()


def static_indices(compile, module, args):
    found = []

    def compiler(graph, inputs):
        found.append(list(TracingContext.get().fw_metadata.static_input_indices))
        return make_boxed_func(graph.forward)

    with torch.no_grad():
        compiled = compile(module, aot_autograd(fw_compiler=compiler))
        for _ in range(2):
            compiled(*args)
    [indices] = found
    return indices


def test_compilers_know_which_inputs_stay():
    module, args = Stacked(), MODELS["stacked"][1]
    own = static_indices(lambda it, by: stator.compile(it, backend=by), module, args)
    # Two arguments and a global tensor may be others at the next call.
    inputs = len(list(module.parameters())) + len(list(module.buffers())) + 1 + 3
    assert len(own) == inputs - 3
    torch._dynamo.reset()
    theirs = static_indices(lambda it, by: torch.compile(it, backend=by), Stacked(), args)
    assert len(own) == len(theirs)


def test_inductor_knows_which_inputs_stay():
    """Those it doesn't copy where it records CUDA graphs."""
    found = []

    def inner(graph, inputs, **settings):
        found.append(sorted(settings["static_input_idxs"]))
        return compile_fx_inner(graph, inputs, **settings)

    def backend(graph, inputs):
        return compile_fx(graph, inputs, inner_compile=inner)

    # The second graph is the first one's, to PyTorch's caches.
    with torch.no_grad(), torch._inductor.config.patch(force_disable_caches=True):
        own = stator.compile(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), backend=backend)
        for _ in range(2):
            own(torch.ones(2, 4))
        torch._dynamo.reset()
        torch.compile(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), backend=backend)(torch.ones(2, 4))
    own_static, their_static = found
    assert len(own_static) == len(their_static) == 2


def test_tensors_are_not_marked():
    module = Block(4)
    seen = Seen()
    compiled = stator.compile(module, backend=seen)
    compiled(torch.ones(2, 4))
    compiled(torch.ones(2, 4))
    assert static(seen.graphs[0]) == {
        "linear.weight",
        "linear.bias",
        "norm.weight",
        "norm.bias",
        "scale",
    }
    assert not any("_dynamo_static_input_type" in vars(it) for it in module.parameters())


@pytest.mark.parametrize(("guard", "kind"), [(False, "unguarded"), (True, "guarded")])
def test_static_addresses_are_passed_on(guard, kind):
    marked = torch.ones(3)
    torch._dynamo.mark_static_address(marked, guard=guard)
    seen = Seen()
    compiled = stator.compile(lambda x, y: x * y, backend=seen)
    for _ in range(2):
        compiled(marked, torch.ones(3))
    first, second = seen.graphs[0].graph.find_nodes(op="placeholder")
    assert first.meta["tensor_dict"] == {"_dynamo_static_input_type": kind}
    assert second.meta["tensor_dict"] == {}


def test_compilations_have_ids():
    def cut(x):
        x = x * 2
        print(end="")
        return x + 1

    seen = Seen()
    compiled = stator.compile(cut, backend=seen)
    for _ in range(3):
        compiled(torch.ones(2))
    compiled(torch.ones(3))
    compiled(torch.ones(3))
    assert len(seen.graphs) >= 2 and None not in seen.ids
    assert len(set(seen.ids)) == len(seen.ids)
    assert len({it.frame_id for it in seen.ids}) == 1
    assert [graph.meta["dynamo_compile_id"] for graph in seen.graphs] == seen.ids
    assert CompileContext.current_compile_id() is None
    other = Seen()
    another = stator.compile(lambda x: x - 1, backend=other)
    for _ in range(2):
        another(torch.ones(2))
    assert other.ids[0].frame_id != seen.ids[0].frame_id


def test_sources_are_withheld_where_shared_memory_would_need_a_guard():
    """AOTAutograd leaves a guard on the overlap to who has named sources, and else guards sizes itself."""
    memory = torch.zeros(8)
    row = ("placeholder", "x", "L['x']", (), {}, None, ())
    rows = [row, ("placeholder", "y", "L['y']", (), {}, None, ())]

    def is_told(inputs):
        graph = torch.fx.GraphModule(nn.Module(), torch.fx.Graph())
        for name in ("x", "y"):
            graph.graph.placeholder(name)
        add_metadata(graph, rows, inputs, CompileId(frame_id=0, frame_compile_id=0))
        return "dynamo_compile_id" in graph.meta

    views, others = [memory[:4], memory[4:]], [memory[:4], torch.zeros(4)]
    for tensors, told in ((views, False), (others, True)):
        mode = FakeTensorMode(shape_env=ShapeEnv())
        assert is_told(tensors)
        assert is_told([mode.from_tensor(it) for it in tensors]) is told


def test_classes_are_not_kept_alive():
    import gc
    import weakref

    def compiled_once():
        class Local(nn.Module):
            def forward(self, x):
                return x * 2

        module = Local()

        def call(x):
            return module(x)

        seen = Seen()
        compiled = stator.compile(call, backend=seen)
        for _ in range(2):
            compiled(torch.ones(2))
        [(path, kind)] = [*seen.graphs[0].graph.nodes][1].meta["nn_module_stack"].values()
        assert kind is Local and path.endswith("cell_contents")
        return compiled, weakref.ref(Local)

    compiled, kind = compiled_once()
    del compiled
    gc.collect()
    assert kind() is None
