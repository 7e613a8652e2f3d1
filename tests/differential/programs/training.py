"""Transforms, custom functions and operators, checkpoints, training with optimizers, averages and schedules."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

from ..support.case import Corpus, t

case = Corpus()
LOG: list[Any] = []
POWER = 2


def _power(*_: Any) -> None:
    global POWER
    POWER = 3


def cube(x: Tensor) -> Tensor:
    return (x**POWER).sum()


@case(lambda: (t(3),), change=_power)
def func_grads(x: Tensor) -> Any:
    g = grad(cube)(x)
    h, v = grad_and_value(lambda v: cube(v) * 2)(x)
    return g, h, v, hessian(cube)(x), jacrev(lambda v: v * v)(x), jacfwd(torch.sin)(x)


@case(lambda: (t(3, 4), t(4)), change=_power)
def func_vmap(x: Tensor, w: Tensor) -> Any:
    a = vmap(torch.dot, in_dims=(0, None))(x, w)
    b = vmap(lambda r: (r**POWER).sum())(x)
    c = vmap(vmap(lambda v: v * 2))(x)
    d = vmap(grad(cube))(x)
    e = vmap(lambda r: torch.rand(2) + r.sum(), randomness="different")(x).shape
    return a, b, c, d, e


@case(lambda: (t(3), t(3)))
def func_jvp(x: Tensor, v: Tensor) -> Any:
    out, tangent = jvp(torch.sin, (x,), (v,))
    y, back = vjp(lambda a: a * a, x)
    z, lin = linearize(torch.exp, x)
    return out, tangent, y, back(v), lin(v), z


MODEL = nn.Linear(3, 2)


@case(lambda: (t(4, 3), t(4, 2)))
def func_per_sample(x: Tensor, y: Tensor) -> Any:
    params = {k: v.detach() for k, v in MODEL.named_parameters()}

    def loss(p: Any, a: Tensor, b: Tensor) -> Tensor:
        return F.mse_loss(functional_call(MODEL, p, (a[None],)), b[None])

    return vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)


@case(lambda: (t(4, 3),))
def func_ensemble(x: Tensor) -> Any:
    torch.manual_seed(0)
    nets = [nn.Linear(3, 2) for _ in range(3)]
    params, buffers = stack_module_state(nets)
    base = copy.deepcopy(nets[0]).to("meta")

    def run(p: Any, b: Any, x: Tensor) -> Tensor:
        return functional_call(base, (p, b), (x,))

    return vmap(run, in_dims=(0, 0, None))(params, buffers, x)


class Clip(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, lo: float) -> Tensor:
        return x.clamp(min=lo)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, lo = inputs
        ctx.save_for_backward(x)
        ctx.lo = lo

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        LOG.append("backward")
        return g * (x > ctx.lo) * POWER, None


@case(lambda: (t(4, grad=True), 0.0), change=_power, again=lambda: (t(4, grad=True), 0.5))
def function_setup_context(x: Tensor, lo: float) -> Any:
    y = Clip.apply(x, lo)
    (g,) = torch.autograd.grad(y.sum(), x)
    return y, g, vmap(lambda r: Clip.apply(r, 0.0))(x.detach()[None])


class Manual(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor | None, k: int) -> Any:
        ctx.mark_non_differentiable(idx := x.argmax())
        ctx.set_materialize_grads(False)
        ctx.k = k
        ctx.needs = ctx.needs_input_grad
        return x * k, idx

    @staticmethod
    def backward(ctx: Any, g: Any, gi: Any) -> Any:
        LOG.append((ctx.needs, gi is None))
        return (None if g is None else g * ctx.k), None, None

    @staticmethod
    def jvp(ctx: Any, gx: Any, *_: Any) -> Any:
        return gx * ctx.k, None


@case(lambda: (t(4, grad=True), 3), again=lambda: (t(4, grad=True), 5))
def function_manual(x: Tensor, k: int) -> Any:
    y, i = Manual.apply(x, None, k)
    y.sum().backward()
    return y, i, x.grad


class Inplace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2


@case(lambda: (t(4, grad=True),))
def function_dirty(x: Tensor) -> Any:
    y = x * 1
    z = Inplace.apply(y)
    z.sum().backward()
    return x.grad, z is y, y._version


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 3 * ctx.saved_tensors[0] ** 2


@case(lambda: (t(4, grad=True),))
def function_once(x: Tensor) -> Any:
    (g,) = torch.autograd.grad(Twice.apply(x).sum(), x, create_graph=True)
    try:
        g.sum().backward()
    except RuntimeError as error:
        return g.detach(), str(error)[:40]


LIB = torch.library.Library("uncommon_ops", "FRAGMENT")
for _line in ("scale(Tensor x, float k) -> Tensor", "bump_(Tensor(a!) x) -> ()"):
    try:
        LIB.define(_line)
    except RuntimeError:
        pass
try:
    LIB.impl("scale", lambda x, k: x * k, "CompositeExplicitAutograd")
    LIB.impl(
        "bump_",
        lambda x: x.add_(1) and None if False else (x.add_(1), None)[1],
        "CompositeExplicitAutograd",
    )
    torch.library.register_fake("uncommon_ops::scale", lambda x, k: torch.empty_like(x), lib=LIB)
    torch.library.register_fake("uncommon_ops::bump_", lambda x: None, lib=LIB)
except RuntimeError:
    pass


@case(lambda: (t(4), 2.0), again=lambda: (t(4), 3.5))
def library_operators(x: Tensor, k: float) -> Any:
    y = torch.ops.uncommon_ops.scale(x, k)
    torch.ops.uncommon_ops.bump_(x)
    return y, x, torch.ops.uncommon_ops.scale.default(y, k=0.5)


@case(lambda: (t(3, 4, grad=True),))
def checkpoints(x: Tensor) -> Any:
    seq = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Dropout(0.5))
    a = checkpoint(seq, x, use_reentrant=False)
    b = checkpoint_sequential(seq, 2, x, use_reentrant=False)
    (a.sum() + b.sum()).backward()
    return a, b, x.grad, seq[0].weight.grad


@case(lambda: (t(3, 4, grad=True),))
def checkpoint_reentrant(x: Tensor) -> Any:
    def f(v: Tensor) -> Tensor:
        LOG.append("f")
        return torch.tanh(v) * 2

    y = checkpoint(f, x, use_reentrant=True)
    y.sum().backward()
    return y, x.grad, len(LOG)


@case(lambda: (t(3, 4, grad=True),))
def anomaly(x: Tensor) -> Any:
    with torch.autograd.set_detect_anomaly(True):
        y = (x * 2).sum()
        y.backward()
    try:
        with warnings.catch_warnings(), torch.autograd.detect_anomaly(check_nan=True):
            warnings.simplefilter("ignore")
            torch.sqrt(x * 0 - 1).sum().backward()
    except RuntimeError as error:
        return x.grad, str(error)[:30]


def fit(optimizer: Any, model: nn.Module, x: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


@case(lambda: (t(4, 3),))
def schedulers(x: Tensor) -> Any:
    torch.manual_seed(0)
    m = nn.Linear(3, 2)
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    a = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 4)
    b = torch.optim.lr_scheduler.SequentialLR(
        opt,
        [
            torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=2),
            torch.optim.lr_scheduler.ExponentialLR(opt, 0.9),
        ],
        milestones=[2],
    )
    rates = []
    for _ in range(3):
        fit(opt, m, x)
        a.step()
        b.step()
        rates.append(opt.param_groups[0]["lr"])
    return m.weight, rates, a.get_last_lr()


TRAINED = nn.Linear(3, 2)
OPT = torch.optim.Adam(TRAINED.parameters(), lr=0.1)
SCHED = torch.optim.lr_scheduler.StepLR(OPT, 2, 0.5)
PLATEAU = torch.optim.lr_scheduler.ReduceLROnPlateau(OPT, patience=0)


def _group(*_: Any) -> None:
    OPT.param_groups[0]["lr"] = 0.5
    OPT.param_groups[0]["weight_decay"] = 0.1
    TRAINED.bias.requires_grad_(False)


@case(lambda: (t(4, 3),), change=_group)
def trained_outside(x: Tensor) -> Any:
    loss = fit(OPT, TRAINED, x)
    SCHED.step()
    PLATEAU.step(loss)
    return (
        loss,
        TRAINED.weight.clone(),
        SCHED.get_last_lr(),
        OPT.state_dict()["param_groups"][0]["lr"],
    )


QUAD = nn.Parameter(torch.tensor([3.0, -2.0]))
LBFGS = torch.optim.LBFGS([QUAD], max_iter=4, line_search_fn="strong_wolfe")


@case(lambda: (t(2),))
def lbfgs(x: Tensor) -> Any:
    def closure() -> Tensor:
        LBFGS.zero_grad()
        loss = ((QUAD - x) ** 2).sum() + (QUAD**4).sum()
        loss.backward()
        return loss

    return LBFGS.step(closure), QUAD.detach().clone()


@case(lambda: (t(4, 3),))
def optimizers_inside(x: Tensor) -> Any:
    out = []
    for cls in (
        torch.optim.RMSprop,
        torch.optim.Adagrad,
        torch.optim.Rprop,
        torch.optim.Adamax,
        torch.optim.ASGD,
    ):
        m = nn.Linear(3, 2)
        with torch.no_grad():
            m.weight.fill_(0.5)
            m.bias.zero_()
        opt = cls(m.parameters(), lr=0.01)
        fit(opt, m, x)
        state = copy.deepcopy(opt.state_dict())
        fit(opt, m, x)
        opt.load_state_dict(state)
        out.append(fit(opt, m, x))
    return out


AVG_SRC = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
AVG = AveragedModel(AVG_SRC, multi_avg_fn=get_ema_multi_avg_fn(0.9))
SWA = AveragedModel(AVG_SRC, use_buffers=True)


@case(lambda: (t(4, 3),))
def averages(x: Tensor) -> Any:
    y = AVG_SRC(x)
    AVG.update_parameters(AVG_SRC)
    SWA.update_parameters(AVG_SRC)
    return y, AVG(x), SWA.n_averaged, AVG.module[0].weight.clone()


@case(lambda: (t(4, 3),))
def batch_norm_updated(x: Tensor) -> Any:
    update_bn([x, x + 1], AVG_SRC)
    return AVG_SRC[1].running_mean.clone(), AVG_SRC[1].momentum


SCALED = nn.Linear(3, 2)
SCALED_OPT = torch.optim.SGD(SCALED.parameters(), lr=0.1)
SCALER = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)


@case(lambda: (t(4, 3),), change=lambda: SCALED.weight.data.fill_(float("inf")))
def scaled(x: Tensor) -> Any:
    SCALED_OPT.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = SCALED(x)
        loss = out.float().pow(2).mean()
    SCALER.scale(loss).backward()
    SCALER.unscale_(SCALED_OPT)
    norm = nn.utils.clip_grad_norm_(SCALED.parameters(), 1.0)
    SCALER.step(SCALED_OPT)
    SCALER.update()
    return out, norm, SCALER.get_scale()


class Squares(Dataset):
    def __len__(self) -> int:
        return 5

    def __getitem__(self, i: int) -> Any:
        return torch.full((2,), float(i * i)), {"i": i, "name": f"n{i}"}


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        yield from (torch.full((2,), float(i)) for i in range(5))


@case(lambda: (t(2),))
def loaders(x: Tensor) -> Any:
    out = []
    for batch, info in DataLoader(Squares(), batch_size=2, collate_fn=None):
        out.append((batch @ x, info))
    for batch in DataLoader(Stream(), batch_size=2, drop_last=True):
        out.append(batch + x)
    a, b = random_split(Squares(), [3, 2], generator=torch.Generator().manual_seed(1))
    return out, list(a.indices), len(b), Subset(Squares(), [1, 3])[1][0]


@case(lambda: (t(6, 2),))
def samplers(x: Tensor) -> Any:
    ds = TensorDataset(x, torch.arange(6))
    g = torch.Generator().manual_seed(0)
    a = [i for b in BatchSampler(RandomSampler(ds, generator=g), 4, False) for i in b]
    w = list(WeightedRandomSampler([0.1, 0.9, 1.0], 4, generator=g))
    b = [y.sum() for _, y in DataLoader(ds, batch_size=4, shuffle=True, generator=g)]
    c = [
        y
        for _, y in DataLoader(
            ds, batch_size=4, sampler=RandomSampler(ds, num_samples=3, generator=g)
        )
    ]
    return a, w, b, c


@case(
    lambda: (t(4, 3), torch.tensor([0, 1, 2, 1])),
    again=lambda: (t(4, 3), torch.tensor([0, 0, -100, 2])),
)
def losses(x: Tensor, y: Tensor) -> Any:
    return (
        F.cross_entropy(x, y, label_smoothing=0.1, weight=torch.tensor([1.0, 2.0, 0.5])),
        F.nll_loss(x.log_softmax(1), y, reduction="none"),
        F.one_hot(y.clamp(min=0), 3),
        F.multi_margin_loss(x, y.clamp(min=0)),
        F.kl_div(x.log_softmax(1), x.softmax(1), reduction="batchmean"),
        F.huber_loss(x, x.roll(1)),
        F.cosine_embedding_loss(x, x.roll(1), torch.ones(4)),
        F.gumbel_softmax(x, hard=True).sum(),
        F.ctc_loss(
            x.log_softmax(1)[:, None], torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2])
        ),
    )


@case(lambda: (t(3, 2),))
def distributions(x: Tensor) -> Any:
    d = torch.distributions.Normal(x, 1.0)
    c = torch.distributions.Categorical(logits=x)
    s = c.sample()
    m = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    try:
        torch.distributions.Normal(x, -1.0)
    except ValueError as error:
        text = str(error)[:40]
    return (
        d.rsample(),
        d.log_prob(x),
        s,
        c.log_prob(s),
        c.entropy(),
        m.sample(),
        torch.distributions.kl_divergence(d, d),
        text,
    )


@case(lambda: (t(5, 5),))
def linear_algebra(x: Tensor) -> Any:
    a = x @ x.T + 5 * torch.eye(5)
    l, info = torch.linalg.cholesky_ex(a)
    try:
        torch.linalg.cholesky(a - 100 * torch.eye(5))
    except torch.linalg.LinAlgError as error:
        text = str(error)[:20]
    try:
        torch.linalg.inv(torch.zeros(2, 2))
    except RuntimeError:
        text += "!"
    return (
        l,
        info,
        torch.linalg.solve(a, x),
        torch.linalg.eigvalsh(a),
        text,
        torch.linalg.svd(x).S,
        torch.linalg.matrix_rank(a),
    )


@case(lambda: (t(4, 3), t(4, 2)))
def two_optimizers(x: Tensor, y: Tensor) -> Any:
    torch.manual_seed(1)
    g, d = nn.Linear(3, 2), nn.Linear(2, 1)
    og, od = torch.optim.AdamW(g.parameters()), torch.optim.NAdam(d.parameters())
    for _ in range(2):
        od.zero_grad()
        (d(y).mean() - d(g(x).detach()).mean()).backward()
        od.step()
        for p in d.parameters():
            p.requires_grad = False
        og.zero_grad()
        d(g(x)).mean().backward()
        og.step()
        for p in d.parameters():
            p.requires_grad_(True)
    return g.weight, d.weight, d.weight.grad


@case(lambda: (t(4, 3),))
def accumulated(x: Tensor) -> Any:
    torch.manual_seed(2)
    m = nn.Linear(3, 1)
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    best, patience, history = float("inf"), 0, []
    for epoch in range(4):
        total = 0.0
        for i, row in enumerate(x.split(1)):
            loss = m(row).abs().sum() / 2
            loss.backward()
            total += loss.item()
            if (i + 1) % 2 == 0:
                opt.step()
                opt.zero_grad(set_to_none=False)
        history.append(round(total, 4))
        if total < best:
            best, patience = total, 0
        elif (patience := patience + 1) > 1:
            break
    return m.weight, history, epoch


@case(lambda: (t(3, 4),))
def profiled(x: Tensor) -> Any:
    with torch.profiler.record_function("label"):
        y = x + 1
    with torch.autograd.profiler.profile() as prof:
        z = y * 2
    return z, any(e.name == "aten::mul" for e in prof.function_events)


@case(lambda: (t(3, 4),))
def control_operators(x: Tensor) -> Any:
    a = torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,))
    return a, torch.vmap(lambda r: torch.where(r > 0, r, -r))(x)


@case(lambda: (t(3, 4, grad=True),))
def jacobians(x: Tensor) -> Any:
    f = torch.autograd.functional
    return (
        f.jacobian(lambda v: v.sum(0), x),
        f.hvp(lambda v: (v**3).sum(), x, torch.ones(3, 4))[1],
        torch.autograd.gradcheck(lambda v: v * 2, (x.double(),)),
    )


@case(lambda: (t(3),))
def forward_mode(x: Tensor) -> Any:
    import torch.autograd.forward_ad as fwAD

    with fwAD.dual_level():
        d = fwAD.make_dual(x, torch.ones(3))
        y = fwAD.unpack_dual(d.sin() * 2)
    return y.primal, y.tangent
