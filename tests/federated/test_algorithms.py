"""Algorithms of the literature, written by hand as computations, beside plain PyTorch."""

from __future__ import annotations

import collections
import dataclasses
import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

import stator.federated as fl
from tests.federated.plain import (
    OD,
    C,
    S,
    T,
    at,
    close,
    f32,
    i32,
    i64,
    mean,
    numbers,
    rows,
    type_of,
)


def test_fedbn() -> None:
    """FedBN: normalisation layers stay at the clients."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False), nn.ReLU(), nn.Linear(6, 3)
    )
    params = numbers(net)
    shared = OD((k, v) for k, v in params.items() if not k.startswith("1."))
    own = OD((k, v) for k, v in params.items() if k.startswith("1."))
    of = lambda d: fl.StructWithPythonType([(k, T(f32, list(v.shape))) for k, v in d.items()], OD)

    def work(shared, own, x, y):
        p = {k: v.clone().requires_grad_() for k, v in {**shared, **own}.items()}
        opt = torch.optim.SGD(list(p.values()), lr=0.1, momentum=0.9)
        for _ in range(3):
            opt.zero_grad()
            F.cross_entropy(torch.func.functional_call(net, p, (x,)), y).backward()
            opt.step()
        return (
            OD((k, p[k].detach()) for k in shared),
            OD((k, p[k].detach()) for k in own),
        )

    local = fl.local_computation(of(shared), of(own), T(f32, [None, 4]), T(i64, [None]))(work)

    @fl.federated_computation(
        at(S, of(shared)), at(C, of(own)), at(C, (T(f32, [None, 4]), T(i64, [None])))
    )
    def round_(model, bn, data):
        made = fl.federated_map(local, (fl.federated_broadcast(model), bn, data[0], data[1]))
        return fl.federated_mean(made[0]), made[1]

    data = [rows(i, 5 + i) for i in range(4)]
    bn = [own] * 4
    plain_model, plain_bn, model = shared, bn, shared
    for _ in range(2):
        model, bn = round_(model, bn, data)
        done = [
            work(
                {k: torch.tensor(np.asarray(v, f32)) for k, v in plain_model.items()},
                {k: torch.tensor(np.asarray(v, f32)) for k, v in b.items()},
                torch.tensor(x),
                torch.tensor(y),
            )
            for b, (x, y) in zip(plain_bn, data)
        ]
        plain_model = mean([d[0] for d in done])
        plain_bn = [d[1] for d in done]
        close(model, plain_model)
        close(list(bn), plain_bn)


def test_fedper_heads() -> None:
    """FedPer: the head stays at the client; the body is a module of its own."""
    torch.manual_seed(1)
    body, head = nn.Sequential(nn.Linear(4, 5), nn.Tanh()), nn.Linear(5, 3)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = body, head

        def forward(self, x):
            return self.head(self.body(x))

    net = Net()

    @dataclasses.dataclass
    class Personal:
        body: Any
        head: Any

    B, H = type_of(body), type_of(head)

    def train(b, h, x, y):
        lent = {f"body.{k}": v.detach().clone().requires_grad_() for k, v in b.items()}
        lent |= {f"head.{k}": v.detach().clone().requires_grad_() for k, v in h.items()}
        opt = torch.optim.AdamW(lent.values(), lr=1e-2, weight_decay=0.1)
        for epoch in range(2):
            for xs, ys in zip(x.split(4), y.split(4)):
                loss = F.cross_entropy(
                    torch.func.functional_call(net, lent, xs), ys, label_smoothing=0.1
                )
                grads = torch.autograd.grad(loss, list(lent.values()))
                for p, g in zip(lent.values(), grads):
                    p.grad = g
                opt.step()
                opt.zero_grad(set_to_none=True)
        return Personal(
            OD((k, lent[f"body.{k}"].detach()) for k in b),
            OD((k, lent[f"head.{k}"].detach()) for k in h),
        )

    local = fl.local_computation(B, H, T(f32, [8, 4]), T(i64, [8]))(train)

    @fl.federated_computation(at(S, B), at(C, H), at(C, T(f32, [8, 4])), at(C, T(i64, [8])))
    def fedper(b, h, x, y):
        out = fl.federated_map(local, (fl.federated_broadcast(b), h, x, y))
        return fl.federated_mean(out.body), out.head

    data = [rows(i, 8) for i in range(5)]
    b, hs = fedper(numbers(body), [numbers(head)] * 5, [d[0] for d in data], [d[1] for d in data])
    done = [
        train(
            {k: torch.tensor(v) for k, v in numbers(body).items()},
            {k: torch.tensor(v) for k, v in numbers(head).items()},
            torch.tensor(x),
            torch.tensor(y),
        )
        for x, y in data
    ]
    close(b, mean([d.body for d in done]), 1e-4)
    close(list(hs), [d.head for d in done], 1e-4)


def test_ditto() -> None:
    """Ditto: a personal model near the global one."""
    W = T(f32, [4, 3])

    def grad(w, x, y):
        return torch.func.grad(lambda w: F.cross_entropy(x @ w, y))(w)

    def train(g, v, x, y, lam):
        w = g
        for _ in range(2):
            w = w - 0.3 * grad(w, x, y)
        for _ in range(2):
            v = v - 0.3 * (grad(v, x, y) + lam * (v - g))
        return {"update": w - g, "personal": v, "weight": torch.tensor(float(x.shape[0]))}

    local = fl.local_computation(W, W, T(f32, [None, 4]), T(i64, [None]), f32)(train)
    apply = fl.local_computation(W, W)(lambda g, u: g + u)

    @fl.federated_computation(
        at(S, W), at(C, W), at(C, OD(x=T(f32, [None, 4]), y=T(i64, [None]))), at(S, f32)
    )
    def step(g, v, d, lam):
        made = fl.federated_map(
            local, (fl.federated_broadcast(g), v, d.x, d.y, fl.federated_broadcast(lam))
        )
        return fl.federated_map(
            apply, (g, fl.federated_mean(made.update, made.weight))
        ), made.personal

    data = [rows(i, n) for i, n in enumerate([3, 7, 3, 5])]
    g, vs = np.zeros((4, 3), f32), [np.zeros((4, 3), f32)] * 4
    pg, pvs = torch.zeros(4, 3), [torch.zeros(4, 3)] * 4
    for _ in range(3):
        g, vs = step(g, vs, [{"x": x, "y": y} for x, y in data], 0.5)
        done = [
            train(pg, v, torch.tensor(x), torch.tensor(y), torch.tensor(0.5))
            for v, (x, y) in zip(pvs, data)
        ]
        total = sum(d["weight"] for d in done)
        pg, pvs = (
            pg + sum(d["update"] * d["weight"] for d in done) / total,
            [d["personal"] for d in done],
        )
        close(g, pg)
        close(list(vs), pvs)


def test_fedadam_with_schedule() -> None:
    """FedOpt: Adam of PyTorch at the server, its state carried in the round's, a schedule of warm-up and cosine."""
    W = T(f32, [4, 3])
    STATE = OD(w=W, m=W, v=W, round=i32)
    total = 10

    def lr_at(r):
        r = r.to(torch.float32)
        warm = (r + 1) / 3
        cosine = 0.5 * (1 + torch.cos(math.pi * (r - 3) / (total - 3)))
        return 0.1 * torch.where(r < 3, warm, cosine)

    def server(s, delta):
        t = s["round"] + 1
        m = 0.9 * s["m"] + 0.1 * delta
        v = 0.99 * s["v"] + 0.01 * delta.square()
        hat_m, hat_v = m / (1 - 0.9**t), v / (1 - 0.99**t)
        return OD(w=s["w"] - lr_at(s["round"]) * hat_m / (hat_v.sqrt() + 1e-3), m=m, v=v, round=t)

    def client(w, x, y):
        new = w
        for _ in range(2):
            new = new - 0.2 * torch.func.grad(lambda w: F.cross_entropy(x @ w, y))(new)
        return w - new

    local = fl.local_computation(W, T(f32, [6, 4]), T(i64, [6]))(client)
    at_server = fl.local_computation(STATE, W)(server)

    @fl.federated_computation(at(S, STATE), at(C, OD(x=T(f32, [6, 4]), y=T(i64, [6]))))
    def next_round(state, data):
        delta = fl.federated_mean(
            fl.federated_map(local, (fl.federated_broadcast(state.w), data.x, data.y))
        )
        return fl.federated_map(at_server, (state, delta))

    z = np.zeros((4, 3), f32)
    state = OD(w=z, m=z, v=z, round=0)
    p = OD((k, torch.tensor(v)) for k, v in state.items())
    data = [rows(i, 6) for i in range(3)]
    for _ in range(6):
        state = next_round(state, [OD(x=x, y=y) for x, y in data])
        delta = sum(client(p["w"], torch.tensor(x), torch.tensor(y)) for x, y in data) / 3
        p = server(p, delta)
        close(state, p, 1e-4)
    assert state["round"] == 6


def test_fednova() -> None:
    """FedNova: clients take different numbers of steps; their updates are normalised by them."""
    W = T(f32, [4, 3])
    MOST = 5

    def client(w, x, y, tau):
        new, buf = w, torch.zeros_like(w)
        for k in range(MOST):
            g = torch.func.grad(lambda w: F.cross_entropy(x @ w, y))(new)
            more = k < tau
            buf = torch.where(more, 0.9 * buf + g, buf)
            new = torch.where(more, new - 0.1 * buf, new)
        steps = torch.clamp(tau, max=MOST).to(torch.float32)
        a = (steps - 0.9 * (1 - 0.9**steps) / 0.1) / 0.1
        return OD(direction=(w - new) / a, a=a, n=torch.tensor(x.size(0), dtype=torch.float32))

    local = fl.local_computation(W, T(f32, [None, 4]), T(i64, [None]), i32)(client)
    combine = fl.local_computation(W, W, f32)(lambda w, d, tau: w - tau * d)

    @fl.federated_computation(at(S, W), at(C, OD(x=T(f32, [None, 4]), y=T(i64, [None]), tau=i32)))
    def nova(w, d):
        made = fl.federated_map(local, (fl.federated_broadcast(w), d.x, d.y, d.tau))
        direction = fl.federated_mean(made.direction, made.n)
        tau = fl.federated_mean(made.a, made.n)
        return fl.federated_map(combine, (w, direction, tau))

    data = [(*rows(i, n), t) for i, (n, t) in enumerate([(5, 1), (8, 5), (5, 3), (5, 2)])]
    w = np.zeros((4, 3), f32)
    p = torch.zeros(4, 3)
    for _ in range(2):
        w = nova(w, [OD(x=x, y=y, tau=t) for x, y, t in data])
        done = [
            client(p, torch.tensor(x), torch.tensor(y), torch.tensor(t, dtype=torch.int32))
            for x, y, t in data
        ]
        n = sum(d["n"] for d in done)
        p = (
            p
            - sum(d["a"] * d["n"] for d in done)
            / n
            * sum(d["direction"] * d["n"] for d in done)
            / n
        )
        close(w, p)


def test_qfedavg() -> None:
    """q-FedAvg: clients with greater losses count more."""
    net = nn.Linear(4, 3)
    P = type_of(net)
    q, L = 2.0, 10.0

    def client(params, x, y):
        loss0 = F.cross_entropy(torch.func.functional_call(net, params, (x,)), y)
        mine = {k: v.clone().requires_grad_(True) for k, v in params.items()}
        opt = torch.optim.SGD(mine.values(), lr=1 / L)
        sched = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.5)
        for _ in range(2):
            opt.zero_grad()
            F.cross_entropy(torch.func.functional_call(net, mine, (x,)), y).backward()
            torch.nn.utils.clip_grad_norm_(mine.values(), 1.0)
            opt.step()
            sched.step()
        delta = {k: L * (params[k] - mine[k].detach()) for k in params}
        norm = sum((d**2).sum() for d in delta.values())
        weight = (loss0 + 1e-10).pow(q)
        return OD((k, weight * d) for k, d in delta.items()), q * (loss0 + 1e-10).pow(
            q - 1
        ) * norm + L * weight

    local = fl.local_computation(P, T(f32, [6, 4]), T(i64, [6]))(client)

    @fl.local_computation(P, P, f32)
    def update(w, d, h):
        return OD((k, w[k] - d[k] / h) for k in w)

    @fl.federated_computation(at(S, P), at(C, OD(x=T(f32, [6, 4]), y=T(i64, [6]))))
    def qffl(w, d):
        deltas, h = fl.federated_map(local, (fl.federated_broadcast(w), d.x, d.y))
        return fl.federated_map(update, (w, fl.federated_sum(deltas), fl.federated_sum(h)))

    data = [rows(i, 6) for i in range(4)]
    w = numbers(net)
    p = {k: torch.tensor(v) for k, v in w.items()}
    for _ in range(2):
        w = qffl(w, [OD(x=x, y=y) for x, y in data])
        done = [client(p, torch.tensor(x), torch.tensor(y)) for x, y in data]
        h = sum(d[1] for d in done)
        p = {k: p[k] - sum(d[0][k] for d in done) / h for k in p}
        close(w, OD(p), 1e-4)


def test_feddyn() -> None:
    """FedDyn: clients remember a gradient, the server a correction."""
    W = T(f32, [4, 3])
    alpha = 0.1

    class Server(collections.namedtuple("Server", "theta h")):
        pass

    SERVER_T = fl.to_type(Server(W, W))

    def client(theta, lam, x, y):
        w = theta.clone()
        for _ in range(3):
            g = torch.func.grad(
                lambda w: (
                    F.cross_entropy(x @ w, y)
                    - (lam * w).sum()
                    + alpha / 2 * (w - theta).square().sum()
                )
            )(w)
            w -= 0.2 * g
        return w, lam - alpha * (w - theta)

    def server(s, mean_w):
        h = s.h - alpha * (mean_w - s.theta)
        return Server(mean_w - h / alpha, h)

    local = fl.local_computation(W, W, T(f32, [None, 4]), T(i64, [None]))(client)
    at_server = fl.local_computation(SERVER_T, W)(server)

    @fl.federated_computation(at(S, SERVER_T), at(C, W), at(C, (T(f32, [None, 4]), T(i64, [None]))))
    def dyn(s, lam, d):
        w, lam = fl.federated_map(local, (fl.federated_broadcast(s.theta), lam, d[0], d[1]))
        return fl.federated_map(at_server, (s, fl.federated_mean(w))), lam

    z = np.zeros((4, 3), f32)
    data = [rows(i, 5) for i in range(3)]
    s, lams = Server(z, z), [z] * 3
    p, plams = Server(torch.tensor(z), torch.tensor(z)), [torch.tensor(z)] * 3
    for _ in range(3):
        s, lams = dyn(s, lams, data)
        assert type(s) is Server
        done = [
            client(p.theta, l, torch.tensor(x), torch.tensor(y)) for l, (x, y) in zip(plams, data)
        ]
        p, plams = server(p, sum(d[0] for d in done) / 3), [d[1] for d in done]
        close(list(s), list(p))
        close(list(lams), plams)


def test_clusters_of_models() -> None:
    """IFCA: several models, each client trains the one that suits it."""
    K = 3
    W = T(f32, [K, 4, 3])

    def client(ws, x, y):
        losses = torch.stack([F.cross_entropy(x @ w, y) for w in ws])
        best = losses.argmin()
        w = ws[best]
        for _ in range(2):
            w = w - 0.3 * torch.func.grad(lambda w: F.cross_entropy(x @ w, y))(w)
        chosen = F.one_hot(best, K).to(w.dtype)
        return chosen[:, None, None] * (w - ws[best]), chosen

    local = fl.local_computation(W, T(f32, [5, 4]), T(i64, [5]))(client)
    update = fl.local_computation(W, W, T(f32, [K]))(
        lambda ws, d, n: ws + d / torch.clamp_min(n, 1.0)[:, None, None]
    )

    @fl.federated_computation(at(S, W), at(C, OD(x=T(f32, [5, 4]), y=T(i64, [5]))))
    def ifca(ws, d):
        delta, chosen = fl.federated_map(local, (fl.federated_broadcast(ws), d.x, d.y))
        n = fl.federated_sum(chosen)
        return fl.federated_map(update, (ws, fl.federated_sum(delta), n)), n

    data = [rows(i, 5) for i in range(6)]
    ws = np.random.default_rng(0).normal(size=(K, 4, 3)).astype(f32)
    p = torch.tensor(ws)
    for _ in range(3):
        ws, n = ifca(ws, [OD(x=x, y=y) for x, y in data])
        done = [client(p, torch.tensor(x), torch.tensor(y)) for x, y in data]
        pn = sum(d[1] for d in done)
        p = p + sum(d[0] for d in done) / pn.clamp_min(1)[:, None, None]
        close(ws, p)
        close(n, pn)


def test_maml() -> None:
    """MAML: the gradient through an inner step."""
    net = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 3))
    P = type_of(net)

    def loss(p, x, y):
        return F.cross_entropy(torch.func.functional_call(net, p, (x,)), y)

    def meta(p, x, y):
        support, query = (x[:4], y[:4]), (x[4:], y[4:])

        def outer(p):
            g = torch.func.grad(loss)(p, *support)
            return loss({k: p[k] - 0.1 * g[k] for k in p}, *query)

        g, value = torch.func.grad_and_value(outer)(p)
        return OD(g), value

    local = fl.local_computation(P, T(f32, [8, 4]), T(i64, [8]))(meta)
    update = fl.local_computation(P, P)(lambda p, g: OD((k, p[k] - 0.5 * g[k]) for k in p))

    @fl.federated_computation(at(S, P), at(C, OD(x=T(f32, [8, 4]), y=T(i64, [8]))))
    def maml(p, d):
        g, value = fl.federated_map(local, (fl.federated_broadcast(p), d.x, d.y))
        return fl.federated_map(update, (p, fl.federated_mean(g))), fl.federated_mean(value)

    data = [rows(i, 8) for i in range(4)]
    w = numbers(net)
    p = {k: torch.tensor(v) for k, v in w.items()}
    for _ in range(2):
        w, value = maml(w, [OD(x=x, y=y) for x, y in data])
        done = [meta(p, torch.tensor(x), torch.tensor(y)) for x, y in data]
        p = {k: p[k] - 0.5 * sum(d[0][k] for d in done) / 4 for k in p}
        close(w, OD(p), 1e-4)
        close(value, sum(d[1] for d in done) / 4)


def test_distillation() -> None:
    """Distillation: clients send logits of public inputs, the server trains on their mean."""
    student = nn.Linear(4, 3)
    P = type_of(student)
    public = torch.tensor(rows(99, 10)[0])

    @fl.local_computation(T(f32, [4, 3]))
    def logits(w):
        return F.log_softmax(public @ w / 2, dim=-1)

    def distil(p, target):
        p = {k: v.clone().requires_grad_() for k, v in p.items()}
        opt = torch.optim.Adam(p.values(), lr=0.05)
        for _ in range(4):
            opt.zero_grad()
            out = F.log_softmax(torch.func.functional_call(student, p, (public,)), -1)
            F.kl_div(out, target, log_target=True, reduction="batchmean").backward()
            opt.step()
        return OD((k, v.detach()) for k, v in p.items())

    train = fl.local_computation(P, T(f32, [10, 3]))(distil)

    @fl.federated_computation(at(S, P), at(C, T(f32, [4, 3])))
    def fedmd(p, models):
        return fl.federated_map(train, (p, fl.federated_mean(fl.federated_map(logits, models))))

    models = [np.random.default_rng(i).normal(size=(4, 3)).astype(f32) for i in range(5)]
    got = fedmd(numbers(student), models)
    target = sum(F.log_softmax(public @ torch.tensor(w) / 2, dim=-1) for w in models) / 5
    close(got, distil({k: torch.tensor(v) for k, v in numbers(student).items()}, target), 1e-4)


def test_matrix_factorisation() -> None:
    """Matrix factorisation: items at the server, users' vectors at home, rows of items chosen by key."""
    ITEMS, D = 12, 4

    def client(u, seen, ratings):
        for _ in range(3):
            gu = torch.func.grad(lambda u: ((seen @ u - ratings) ** 2).mean())(u)
            u = u - 0.1 * gu
        gi = torch.func.grad(lambda i: ((i @ u - ratings) ** 2).mean())(seen)
        return u, gi

    select = fl.local_computation(T(f32, [ITEMS, D]), i32)(lambda rows, k: rows[k])
    local = fl.local_computation(T(f32, [D]), T(f32, [3, D]), T(f32, [3]))(client)
    stack = fl.local_computation(
        lambda s: np.stack(list(s)).astype(f32), fl.SequenceType(T(f32, [D])), result=T(f32, [3, D])
    )
    scatter = fl.local_computation(T(i32, [3]), T(f32, [3, D]))(
        lambda keys, g: torch.zeros(ITEMS, D).index_put((keys.long(),), g, accumulate=True)
    )
    step = fl.local_computation(T(f32, [ITEMS, D]), T(f32, [ITEMS, D]))(lambda t, g: t - 0.1 * g)
    most = fl.local_computation(lambda: torch.tensor(ITEMS, dtype=torch.int32))

    @fl.federated_computation(
        at(S, T(f32, [ITEMS, D])),
        at(C, T(f32, [D])),
        at(C, OD(keys=T(i32, [3]), ratings=T(f32, [3]))),
    )
    def round_(table, users, d):
        got = fl.federated_select(d.keys, fl.federated_eval(most, S), table, select)
        users, g = fl.federated_map(local, (users, fl.federated_map(stack, got), d.ratings))
        return fl.federated_map(
            step, (table, fl.federated_sum(fl.federated_map(scatter, (d.keys, g))))
        ), users

    r = np.random.default_rng(0)
    table, users = (
        r.normal(size=(ITEMS, D)).astype(f32),
        [r.normal(size=D).astype(f32) for _ in range(5)],
    )
    data = [
        OD(
            keys=r.choice(ITEMS, 3, replace=i % 2 == 0).astype(i32),
            ratings=r.normal(size=3).astype(f32),
        )
        for i in range(5)
    ]
    p, pu = torch.tensor(table), [torch.tensor(u) for u in users]
    for _ in range(2):
        table, users = round_(table, users, data)
        total = torch.zeros(ITEMS, D)
        new = []
        for u, d in zip(pu, data):
            k = torch.tensor(d["keys"]).long()
            u, g = client(u, p[k], torch.tensor(d["ratings"]))
            new.append(u)
            total.index_put_((k,), g, accumulate=True)
        p, pu = p - 0.1 * total, new
        close(table, p)
        close(list(users), pu)
