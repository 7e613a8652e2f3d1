"""Modules whose structure, hooks or parameters change: parametrizations, prune, stateless, state dicts, lists."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune, rnn
from torch.nn.utils.stateless import functional_call as stateless_call

from ..support.case import Corpus, one, t

case = Corpus()
LOG: list[Any] = []

warnings.filterwarnings("ignore", category=FutureWarning)
warnings.filterwarnings("ignore", category=DeprecationWarning)


def net(n: int = 4, m: int = 3) -> nn.Linear:
    return nn.Linear(n, m)


class Symmetric(nn.Module):
    def forward(self, w: Tensor) -> Tensor:
        return w.triu() + w.triu(1).mT

    def right_inverse(self, w: Tensor) -> Tensor:
        return w.triu()


SYM = nn.Linear(4, 4)
parametrize.register_parametrization(SYM, "weight", Symmetric())


def _sym(*_: Any) -> None:
    with torch.no_grad():
        SYM.parametrizations.weight.original.mul_(2)


@case(one, change=_sym)
def parametrized(x: Tensor) -> Any:
    y = SYM(x)
    with parametrize.cached():
        z = SYM(x) + SYM(x)
    return y, z, parametrize.is_parametrized(SYM)


@case(lambda: (t(4, 4),))
def parametrized_assigned(x: Tensor) -> Any:
    m = nn.Linear(4, 4)
    parametrize.register_parametrization(m, "weight", Symmetric())
    m.weight = x
    y = m.weight.clone()
    parametrize.remove_parametrizations(m, "weight")
    return y, m.weight


WN = parametrizations.weight_norm(nn.Linear(4, 3))
SN = parametrizations.spectral_norm(nn.Linear(4, 3))
OLD_WN = nn.utils.weight_norm(nn.Linear(4, 3))
OLD_SN = nn.utils.spectral_norm(nn.Linear(4, 3))


@case(one, change=lambda: SN.eval())
def norms(x: Tensor) -> Any:
    return WN(x), SN(x)


@case(one, change=lambda: nn.utils.remove_weight_norm(OLD_WN))
def old_norms(x: Tensor) -> Any:
    return OLD_WN(x) + OLD_SN(x)


ORTH = parametrizations.orthogonal(nn.Linear(4, 4))


@case(one)
def orthogonal(x: Tensor) -> Any:
    return ORTH(x).sum(), ORTH.weight @ ORTH.weight.mT


PRUNED = nn.Linear(4, 3)
prune.l1_unstructured(PRUNED, "weight", amount=0.5)


@case(one, change=lambda: prune.remove(PRUNED, "weight"))
def pruned(x: Tensor) -> Any:
    return PRUNED(x), prune.is_pruned(PRUNED)


@case(one)
def pruned_inside(x: Tensor) -> Any:
    m = net()
    prune.random_unstructured(m, "weight", amount=2)
    y = m(x)
    return y, (m.weight_mask == 0).sum()


NET = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


def _net(*_: Any) -> None:
    NET[1] = nn.ReLU()


@case(one, change=_net)
def stateless(x: Tensor) -> Any:
    params = {k: v * 2 for k, v in NET.named_parameters()}
    a = torch.func.functional_call(NET, params, (x,))
    b = stateless_call(NET, {"0.bias": torch.zeros(5)}, (x,))
    return a, b, NET(x)


@case(one)
def vector_parameters(x: Tensor) -> Any:
    m = net()
    v = nn.utils.parameters_to_vector(m.parameters())
    nn.utils.vector_to_parameters(v * 2, m.parameters())
    return m(x), v.shape


@case(one)
def clipped(x: Tensor) -> Any:
    m = net()
    m(x).sum().backward()
    a = nn.utils.clip_grad_norm_(m.parameters(), 0.1)
    nn.utils.clip_grad_value_(m.parameters(), 0.01)
    b = nn.utils.get_total_norm([p.grad for p in m.parameters()])
    return a, b, m.weight.grad


@case(one)
def skipped_init(x: Tensor) -> Any:
    m = nn.utils.skip_init(nn.Linear, 4, 2)
    nn.init.constant_(m.weight, 0.5)
    nn.init.zeros_(m.bias)
    return m(x)


@case(one)
def lazily_made(x: Tensor) -> Any:
    m = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    y = m(x)
    return y, type(m[0]).__name__


HOOKED = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
SEEN: list[Any] = []


def _double(module: Any, args: Any, out: Any) -> Any:
    SEEN.append((type(module).__name__, tuple(out.shape)))
    return out * 2


def _pre(module: Any, args: Any) -> Any:
    return (args[0] + 1,)


HANDLES = [HOOKED[0].register_forward_hook(_double), HOOKED[2].register_forward_pre_hook(_pre)]


def _unhook(*_: Any) -> None:
    HANDLES[0].remove()


@case(one, change=_unhook)
def forward_hooks(x: Tensor) -> Any:
    return HOOKED(x)


@case(one)
def hooks_with_kwargs(x: Tensor) -> Any:
    class M(nn.Module):
        def forward(self, x: Tensor, *, k: float = 1.0) -> Tensor:
            return x * k

    m = M()
    m.register_forward_pre_hook(lambda mod, a, kw: (a, {"k": kw.get("k", 1) * 3}), with_kwargs=True)
    h = m.register_forward_hook(
        lambda mod, a, kw, out: (out, kw["k"]), with_kwargs=True, prepend=True
    )
    a = m(x, k=2.0)
    h.remove()
    return a, m(x)


@case(one)
def hook_always_called(x: Tensor) -> Any:
    class M(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("in forward")

    m = M()
    m.register_forward_hook(lambda *a: LOG.append("hook"), always_call=True)
    try:
        m(x)
    except ValueError as error:
        return str(error), list(LOG)


@case(one)
def global_hooks(x: Tensor) -> Any:
    seen: list[str] = []
    h = nn.modules.module.register_module_forward_hook(
        lambda m, i, o: seen.append(type(m).__name__)
    )
    p = nn.modules.module.register_module_forward_pre_hook(lambda m, i: None)
    y = NET(x)
    h.remove()
    p.remove()
    return y, seen, NET(x + 1)


BACK = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
GRADS: list[Any] = []
BACK[1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
BACK[0].register_full_backward_pre_hook(lambda m, go: (go[0] + 1,))
BACK[0].weight.register_hook(lambda g: g * 3)
BACK[0].bias.register_post_accumulate_grad_hook(lambda p: GRADS.append(p.grad.sum().item()))


@case(lambda: (t(3, 4, grad=True),))
def backward_hooks(x: Tensor) -> Any:
    BACK.zero_grad()
    y = BACK(x)
    y.sum().backward()
    return y, BACK[0].weight.grad, BACK[0].bias.grad


@case(lambda: (t(3, grad=True),))
def tensor_hooks(x: Tensor) -> Any:
    y = x * 2
    outs: list[Any] = []
    h = y.register_hook(lambda g: outs.append(g) or g * 5)
    y.register_hook(lambda g: g + 1)
    z = y.sum()
    z.backward(retain_graph=True)
    h.remove()
    z.backward()
    return x.grad, outs


@case(lambda: (t(3, grad=True),))
def node_hooks(x: Tensor) -> Any:
    y = (x * 2).exp()
    y.grad_fn.register_hook(lambda gi, go: (gi[0] * 3,))
    y.grad_fn.register_prehook(lambda go: (go[0] + 1,))
    y.sum().backward()
    return x.grad, y.grad_fn.name()


@case(lambda: (t(3, grad=True), t(3, grad=True)))
def multi_grad_hooks(x: Tensor, y: Tensor) -> Any:
    n = []
    torch.autograd.graph.register_multi_grad_hook((x, y), lambda g: n.append(len(g)))
    (x * y).sum().backward()
    return x.grad, n


LISTED = nn.Module()
LISTED.items = nn.ParameterList([nn.Parameter(torch.ones(4)), nn.Parameter(torch.full((4,), 2.0))])
LISTED.table = nn.ParameterDict({"a": nn.Parameter(torch.ones(4))})
LISTED.mods = nn.ModuleDict({"lin": nn.Linear(4, 4), "act": nn.ReLU()})


def _grow(*_: Any) -> None:
    LISTED.items.append(nn.Parameter(torch.full((4,), 5.0)))
    LISTED.table["b"] = nn.Parameter(torch.full((4,), 7.0))
    LISTED.mods["act"] = nn.Tanh()
    del LISTED.mods["lin"]


@case(one, change=_grow)
def parameter_containers(x: Tensor) -> Any:
    for p in LISTED.items:
        x = x * p
    for k, p in LISTED.table.items():
        x = x + p * len(k)
    for k in LISTED.mods:
        x = LISTED.mods[k](x)
    return x, len(LISTED.items), list(LISTED.mods), "b" in LISTED.table


BN = nn.BatchNorm1d(4)


@case(one, change=lambda: BN.eval())
def state_dict_roundtrip(x: Tensor) -> Any:
    state = copy.deepcopy(BN.state_dict())
    y = BN(x)
    moved = BN.state_dict()["running_mean"].clone()
    BN.load_state_dict(state)
    return y, moved, BN.running_mean.clone(), BN.num_batches_tracked


@case(one)
def strict_loading(x: Tensor) -> Any:
    m = net()
    res = m.load_state_dict({"weight": torch.ones(3, 4), "extra": x}, strict=False)
    try:
        m.load_state_dict({"weight": torch.ones(1, 1)})
    except RuntimeError as error:
        return m(x).shape, res, str(error).splitlines()[0]


@case(one)
def assigned_state(x: Tensor) -> Any:
    m = net()
    w = torch.ones(3, 4)
    m.load_state_dict({"weight": w, "bias": torch.zeros(3)}, assign=True)
    w.mul_(2)
    return m(x), m.weight.data_ptr() == w.data_ptr()


@case(one)
def moved_and_cast(x: Tensor) -> Any:
    m = nn.Sequential(net(), nn.Linear(3, 2)).double()
    y = m(x.double())
    m.float().requires_grad_(False).eval()
    m.apply(lambda s: LOG.append(type(s).__name__))
    return y, m(x), m[0].weight.requires_grad, m.training, [n for n, _ in m.named_modules()]


@case(one)
def module_surgery(x: Tensor) -> Any:
    m = nn.Sequential(OrderedDict(a=net(4, 4), b=nn.ReLU()))
    m.add_module("c", net(4, 2))
    m.insert(1, nn.Dropout(0.0))
    y = m(x)
    del m[0]
    m.a2 = nn.Identity()
    m.register_buffer("buf", torch.ones(1), persistent=False)
    m.register_parameter("none", None)
    return y, m(x), list(m.state_dict()), repr(m), m.get_submodule("c").out_features, m.none


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.calls = 0
        self.cache: dict[Any, Any] = {}
        self.last: Any = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.steps += 1
        key = (x.shape, x.dtype)
        if key not in self.cache:
            self.cache[key] = torch.full_like(x, self.calls)
        self.last = x.detach()
        return self.lin(x) + self.cache[key] * self.steps


@case(lambda: (t(2, 4),), build=True, again=lambda: (t(3, 4),))
def counting_module() -> Any:
    return Counting()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(5, 4, max_norm=1.0)
        self.out = nn.Linear(4, 5, bias=False)
        self.out.weight = self.emb.weight

    def __getattr__(self, name: str) -> Any:
        if name == "virtual":
            return 3.0
        return super().__getattr__(name)

    def forward(self, i: Tensor) -> Tensor:
        return self.out(self.emb(i)) * self.virtual


@case(lambda: (torch.randint(0, 5, (3,)),), build=True)
def tied_weights() -> Any:
    return Tied()


LSTM = nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True)


@case(
    lambda: (t(3, 5, 4), torch.tensor([5, 3, 2])),
    again=lambda: (t(3, 5, 4), torch.tensor([4, 4, 1])),
)
def packed(x: Tensor, lengths: Tensor) -> Any:
    p = rnn.pack_padded_sequence(x, lengths, batch_first=True)
    out, (h, c) = LSTM(p)
    y, n = rnn.pad_packed_sequence(out, batch_first=True)
    return y, n, h, c


@case(lambda: ([t(2, 3), t(4, 3)],))
def sequences(xs: list[Tensor]) -> Any:
    p = rnn.pad_sequence(xs, batch_first=True, padding_value=-1.0)
    q = rnn.pack_sequence(xs, enforce_sorted=False)
    u = rnn.unpad_sequence(p, torch.tensor([2, 4]), batch_first=True)
    return p, q.batch_sizes, q.sorted_indices, u


class Cellular(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 4)
        self.h: Tensor | None = None

    def forward(self, xs: Tensor) -> Tensor:
        outs = []
        for x in xs:
            self.h = self.cell(x, self.h)
            outs.append(self.h)
        self.h = self.h.detach()
        return torch.stack(outs)


@case(lambda: (t(3, 2, 4),), build=True, again=lambda: (t(5, 2, 4),))
def stateful_cell() -> Any:
    return Cellular()


MHA = nn.MultiheadAttention(4, 2, dropout=0.0, batch_first=True)


@case(lambda: (t(2, 3, 4),), change=lambda: MHA.eval())
def attention(x: Tensor) -> Any:
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    a, w = MHA(x, x, x, attn_mask=mask)
    b, none = MHA(
        x, x, x, need_weights=False, key_padding_mask=torch.tensor([[False, False, True]] * 2)
    )
    return a, w, b, none


@case(lambda: (t(2, 3, 4),))
def sdpa_kernels(x: Tensor) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = x[:, None]
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        a = F.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel(SDPBackend.MATH):
        b = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    return a, b


@case(one)
def module_in_class_attribute(x: Tensor) -> Any:
    class M(nn.Module):
        shared = nn.Linear(4, 4)
        scale: float = 2.0

        @property
        def doubled(self) -> float:
            return self.scale * 2

        def forward(self, x: Tensor) -> Tensor:
            return self.shared(x) * self.doubled

    torch.manual_seed(0)
    m = M()
    try:
        m.missing
    except AttributeError as error:
        return m(x), str(error), "shared" in dict(m.named_children())


@case(one)
def traced_by_fx(x: Tensor) -> Any:
    class M(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([*x.unbind(0)]) + x.size(0)

    class Count(torch.fx.Interpreter):
        ran = 0

        def run_node(self, n: Any) -> Any:
            type(self).ran += 1
            return super().run_node(n)

    gm = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    return gm(x), Count(gm).run(x), [n.op for n in gm.graph.nodes]
