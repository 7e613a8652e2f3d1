"""Neural network modules: read from globals or handed in, evaluated, trained, changed."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..support.case import Corpus, ints, t

case = Corpus()


class Mlp(nn.Module):
    """Two layers and an activation."""

    def __init__(self, width: int = 4, bias: bool = True) -> None:
        super().__init__()
        self.up = nn.Linear(width, 8, bias=bias)
        self.down = nn.Linear(8, width)
        self.scale = 1.5

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x))) * self.scale


NET = Mlp()
SEQUENTIAL = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
NORM = nn.BatchNorm1d(4)
DROP = nn.Dropout(0.5)
X = lambda: (t(3, 4),)  # noqa: E731


def _write(module: nn.Module, name: str) -> None:
    with torch.no_grad():
        getattr(module, name).mul_(3)


@case(lambda: (Mlp(), t(3, 4)), again=lambda: (Mlp().double(), t(3, 4, dtype=torch.float64)))
def module_argument(net: nn.Module, x: Tensor) -> Tensor:
    return net(x)


SEEN: list[Any] = []
HOOKED = Mlp()
HOOKED.up.register_full_backward_hook(lambda module, gi, go: SEEN.append(go[0].shape))
HOOKED.down.register_full_backward_pre_hook(lambda module, go: (go[0] * 2,))


@case(lambda: (t(3, 4, grad=True),), expect="any")
def hooks_of_modules(x: Tensor) -> Tensor:
    y = HOOKED(x)
    y.sum().backward()
    return x.grad.clone()  # type: ignore[union-attr]


@case(lambda: (Mlp(), t(3, 4)), again=lambda: (Mlp(bias=False), t(3, 4)), grad=True)
def module_argument_gradients(net: nn.Module, x: Tensor) -> Tensor:
    return net(x).sum()


@case(X, change=lambda: _write(NET.up, "weight"))
def global_module_weights_written(x: Tensor) -> Tensor:
    return NET(x)


@case(X, change=lambda: setattr(NET, "scale", 4.0))
def global_module_attribute(x: Tensor) -> Tensor:
    return NET(x)


@case(X, change=lambda: setattr(NET, "up", nn.Linear(4, 8, bias=False)))
def global_module_child_replaced(x: Tensor) -> Tensor:
    return NET(x)


@case(X, change=lambda: setattr(NET.up, "weight", nn.Parameter(torch.ones(8, 4))))
def global_module_parameter_replaced(x: Tensor) -> Tensor:
    return NET(x)


@case(X, change=lambda: setattr(NET.up.weight, "data", torch.zeros(8, 4)))
def global_module_parameter_data(x: Tensor) -> Tensor:
    return NET(x)


@case(X, change=lambda: NET.requires_grad_(False))
def global_module_frozen(x: Tensor) -> Tensor:
    return NET(x)


@case(X, change=lambda: NET.register_forward_hook(lambda m, a, out: out * 10))
def forward_hook_added(x: Tensor) -> Tensor:
    return NET(x)


@case(X, change=lambda: NET.up.register_forward_pre_hook(lambda m, a: (a[0] * 2,)))
def forward_pre_hook_added(x: Tensor) -> Tensor:
    return NET(x)


@case(X, change=lambda: nn.modules.module.register_module_forward_hook(_global_hook).remove())
def global_hook_added_and_removed(x: Tensor) -> Tensor:
    return NET(x)


def _global_hook(module: nn.Module, args: Any, out: Any) -> Any:
    return out


@case(X, change=lambda: setattr(Mlp, "forward", lambda self, x: self.down(self.up(x))))
def forward_replaced_on_class(x: Tensor) -> Tensor:
    return NET(x)


@case(X, change=lambda: setattr(NET, "forward", lambda x: x * 2))
def forward_replaced_on_instance(x: Tensor) -> Tensor:
    return NET(x)


@case(X, grad=True)
def sequential(x: Tensor) -> Tensor:
    return SEQUENTIAL(x)


@case(X, change=lambda: SEQUENTIAL.append(nn.Tanh()))
def sequential_grows(x: Tensor) -> Tensor:
    return SEQUENTIAL(x)


@case(X, change=lambda: SEQUENTIAL.insert(1, nn.Sigmoid()))
def sequential_inserts(x: Tensor) -> Tensor:
    return SEQUENTIAL(x)


@case(X)
def sequential_access(x: Tensor) -> Tensor:
    for layer in SEQUENTIAL[:2]:
        x = layer(x)
    return SEQUENTIAL[-1](x) * len(SEQUENTIAL)


@case(X, grad=True, change=lambda: NORM.eval())
def batch_norm(x: Tensor) -> Tensor:
    return NORM(x)


@case(lambda: (nn.BatchNorm2d(3).eval(), t(2, 3, 4, 4)))
def batch_norm_eval(norm: nn.Module, x: Tensor) -> Tensor:
    return norm(x)


@case(lambda: (nn.BatchNorm2d(3), t(2, 3, 4, 4)), grad=True)
def batch_norm_train(norm: nn.Module, x: Tensor) -> Tensor:
    return norm(x)


@case(X, change=lambda: DROP.eval())
def dropout_module(x: Tensor) -> Tensor:
    return DROP(x) + DROP(x)


@case(
    lambda: (nn.Conv2d(3, 4, 3, padding="same", padding_mode="reflect"), t(1, 3, 6, 6)), grad=True
)
def convolution(conv: nn.Module, x: Tensor) -> Tensor:
    return conv(x)


@case(lambda: (nn.ConvTranspose1d(2, 3, 2), t(1, 2, 5)))
def transposed_convolution(conv: nn.Module, x: Tensor) -> Tensor:
    return conv(x)


@case(lambda: (nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4), t(3, 4)), grad=True)
def norms(layer: nn.Module, group: nn.Module, rms: nn.Module, x: Tensor) -> Tensor:
    return layer(x) + group(x) + rms(x)


@case(lambda: (nn.Embedding(10, 4, padding_idx=0), ints(3)), grad=True)
def embedding(table: nn.Module, index: Tensor) -> Tensor:
    return table(index)


@case(lambda: (nn.MultiheadAttention(4, 2, batch_first=True), t(2, 3, 4)), grad=True)
def attention(mha: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    return mha(x, x, x)  # type: ignore[no-any-return]


@case(lambda: (nn.LSTM(4, 5, batch_first=True), t(2, 3, 4)), grad=True)
def lstm(net: nn.Module, x: Tensor) -> Any:
    return net(x)


@case(lambda: (nn.GRUCell(4, 5), t(3, 2, 4)), grad=True)
def recurrent_cell(cell: nn.Module, x: Tensor) -> Tensor:
    h = x.new_zeros(2, 5)
    for step in x:
        h = cell(step, h)
    return h


@case(lambda: (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True), t(2, 3, 4)))
def transformer_layer(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x)


class Lists(nn.Module):
    """ModuleList, ModuleDict, ParameterList, ParameterDict."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 2)})
        self.weights = nn.ParameterList([torch.ones(4), torch.zeros(4)])
        self.named = nn.ParameterDict({"w": torch.ones(2)})

    def forward(self, x: Tensor, head: str) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x) * (i + 1)
        for weight in self.weights:
            x = x + weight
        y = self.heads[head](x) * self.named["w"]
        return y + len(self.layers) + ("a" in self.heads)


LISTS = Lists()


@case(lambda: (t(3, 4), "a"), grad=True, again=lambda: (t(3, 4), "b"))
def container_modules(x: Tensor, head: str) -> Tensor:
    return LISTS(x, head)


@case(lambda: (t(3, 4), "a"), change=lambda: LISTS.layers.append(nn.Linear(4, 4)))
def module_list_grows(x: Tensor, head: str) -> Tensor:
    return LISTS(x, head)


class Buffers(nn.Module):
    """Persistent and other buffers, written in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("steps", torch.tensor(0), persistent=False)
        self.mean: Tensor
        self.steps: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            self.steps += 1
        return x - self.mean


BUFFERS = Buffers()


@case(X, change=lambda: BUFFERS.eval())
def buffers_written_in_place(x: Tensor) -> Tensor:
    return BUFFERS(x)


@case(X, change=lambda: BUFFERS.mean.fill_(5))
def buffers_written_outside(x: Tensor) -> Tensor:
    return BUFFERS(x)


class Rebinding(nn.Module):
    """Rebinds a buffer and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(3, 4))
        self.last: Tensor
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.last
        self.last = x
        self.calls += 1
        return y


REBINDING = Rebinding()


@case(X, expect="any")
def module_rebinds_attributes(x: Tensor) -> Tensor:
    return REBINDING(x)


class Tied(nn.Module):
    """Input and output embeddings share their weight."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.table.weight

    def forward(self, index: Tensor) -> Tensor:
        return self.out(self.table(index))


TIED = Tied()


@case(
    lambda: (ints(3),),
    grad=True,
    change=lambda: setattr(TIED.out, "weight", nn.Parameter(torch.ones(10, 4))),
)
def tied_weights(index: Tensor) -> Tensor:
    return TIED(index)


class Positive(nn.Module):
    """A parametrization."""

    def forward(self, w: Tensor) -> Tensor:
        return F.softplus(w)


PARAMETRIZED = nn.Linear(4, 4)
parametrize.register_parametrization(PARAMETRIZED, "weight", Positive())
WEIGHT_NORM = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))


@case(X, grad=True, change=lambda: parametrize.remove_parametrizations(PARAMETRIZED, "weight"))
def parametrized(x: Tensor) -> Tensor:
    return PARAMETRIZED(x)


@case(X, grad=True)
def weight_norm(x: Tensor) -> Tensor:
    return WEIGHT_NORM(x)


HOOKED = nn.Linear(4, 4)
HANDLE = HOOKED.register_forward_hook(lambda m, args, out: out + args[0])
HOOKED.register_forward_pre_hook(lambda m, args, kw: (args, kw), with_kwargs=True)


@case(X, grad=True, change=lambda: HANDLE.remove())
def hooks_present(x: Tensor) -> Tensor:
    return HOOKED(x)


class Nested(nn.Module):
    """A tree of modules with options and keyword arguments."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.norm = nn.LayerNorm(4)
        self.inner = Nested(depth - 1) if depth else nn.Identity()

    def forward(self, x: Tensor, *, residual: bool = True, mask: Tensor | None = None) -> Tensor:
        y = self.inner(self.norm(x))
        if mask is not None:
            y = y.masked_fill(mask, 0.0)
        return x + y if residual else y


NESTED = Nested(4)


@case(X, grad=True)
def nested_modules(x: Tensor) -> Tensor:
    return NESTED(x, residual=False) + NESTED(x, mask=x > 0)


@case(X, change=lambda: NESTED.inner.inner.norm.eval().bias.data.fill_(1.0))
def nested_parameter_written(x: Tensor) -> Tensor:
    return NESTED(x)


@case(X)
def parameters_read(x: Tensor) -> Tensor:
    total = x.sum()
    for name, p in NET.named_parameters():
        total = total + p.sum() * len(name)
    return total + sum(p.numel() for p in NET.parameters()) + NET.up.weight.shape[0]


@case(X)
def children_read(x: Tensor) -> Tensor:
    kinds = [type(m).__name__ for m in NET.modules()]
    return NET.get_submodule("up")(x) + len(kinds) + next(iter(NET.parameters())).ndim


@case(X)
def module_flags(x: Tensor) -> Tensor:
    return x * NET.training + hasattr(NET, "missing") + isinstance(NET.up, nn.Linear)


@case(X, expect="any")
def state_dict_read(x: Tensor) -> Tensor:
    state = NET.state_dict()
    return x + state["up.weight"].sum() + len(state)


@case(X, expect="any")
def module_made_inside(x: Tensor) -> Tensor:
    layer = nn.Linear(4, 4)
    return layer(x)


@case(X, expect="any")
def functional_call(x: Tensor) -> Tensor:
    replaced = {name: p * 2 for name, p in NET.named_parameters()}
    return torch.func.functional_call(NET, replaced, (x,))  # type: ignore[no-any-return]


@case(X, expect="any")
def checkpointed(x: Tensor) -> Tensor:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(NET, x, use_reentrant=False)  # type: ignore[no-any-return]


@case(X, change=lambda: NET.train(not NET.training))
def train_flag_that_nobody_reads(x: Tensor) -> Tensor:
    return NET(x)


@case(X, change=lambda: NET.half().float())
def half_and_back(x: Tensor) -> Tensor:
    return NET(x)


@case(X, expect="any", change=lambda: NET.half())
def half_changes_dtype(x: Tensor) -> Tensor:
    return NET(x.to(NET.up.weight.dtype))


@case(lambda: (Mlp(), Mlp(), t(3, 4)))
def two_modules_of_one_class(a: nn.Module, b: nn.Module, x: Tensor) -> Tensor:
    return a(x) - b(x)


@case(lambda: (lambda m: (m, m, t(3, 4)))(Mlp()), again=lambda: (Mlp(), Mlp(), t(3, 4)))
def same_module_twice(a: nn.Module, b: nn.Module, x: Tensor) -> Tensor:
    return a(x) if a is b else b(x) * 2


@case(lambda: (nn.Linear(4, 4), t(3, 5)), expect="any")
def shape_error_in_module(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x)
