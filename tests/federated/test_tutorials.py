# ruff: noqa: B023, B905, E741
"""Programs as tutorials of federated learning have them, beside plain NumPy and PyTorch."""

from __future__ import annotations

import collections
from typing import Any

import attrs
import numpy as np
import pytest

import stator.federated as fl
from stator.federated import framework as fw

torch = pytest.importorskip("torch")

OD = collections.OrderedDict
T = fl.TensorType
F = fl.FederatedType
C = fl.CLIENTS
S = fl.SERVER
rng = np.random.default_rng(0)


def close(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


MODEL = OD(weights=T(np.float32, [4, 3]), bias=T(np.float32, [3]))


def data(n):
    return (rng.normal(size=(n, 4)).astype(np.float32), rng.integers(0, 3, n))


def zeros():
    return OD(weights=np.zeros((4, 3), np.float32), bias=np.zeros(3, np.float32))


BATCH = OD(x=T(np.float32, [None, 4]), y=T(np.int64, [None]))


def loss(m, x, y):
    return torch.nn.functional.cross_entropy(x @ m["weights"] + m["bias"], y)


def test_fedavg_tutorial() -> None:

    @fl.local_computation(MODEL, BATCH, np.float32)
    def batch_train(initial_model, batch, learning_rate):
        g = torch.func.grad(loss)(initial_model, batch["x"], batch["y"])
        return OD((k, initial_model[k] - learning_rate * g[k]) for k in initial_model)

    LOCAL = fl.SequenceType(BATCH)

    @fl.federated_computation(MODEL, np.float32, LOCAL)
    def local_train(initial_model, learning_rate, all_batches):

        @fl.federated_computation(MODEL, BATCH)
        def batch_fn(model, batch):
            return batch_train(model, batch, learning_rate)

        return fl.sequence_reduce(all_batches, initial_model, batch_fn)

    @fl.federated_computation(F(MODEL, S), F(np.float32, S), F(LOCAL, C))
    def federated_train(model, lr, dat):
        return fl.federated_mean(
            fl.federated_map(
                local_train, [fl.federated_broadcast(model), fl.federated_broadcast(lr), dat]
            )
        )

    cl = [[OD(x=x, y=y) for x, y in [data(5), data(3)]] for _ in range(3)]
    m = zeros()
    lr = np.float32(0.1)
    for _ in range(3):
        m = federated_train(m, lr, cl)
        lr = np.float32(lr * 0.9)
    p = zeros()
    lr = np.float32(0.1)
    for _ in range(3):
        outs = []
        for bs in cl:
            q = {k: torch.tensor(v) for k, v in p.items()}
            for b in bs:
                g = torch.func.grad(loss)(q, torch.tensor(b["x"]), torch.tensor(b["y"]))
                q = {k: q[k] - lr * g[k] for k in q}
            outs.append(q)
        p = {k: np.mean([o[k].numpy() for o in outs], 0) for k in p}
        lr = np.float32(lr * 0.9)
    for k in p:
        close(m[k], p[k])


def test_fedprox_weighted() -> None:

    @fl.local_computation(MODEL, BATCH)
    def work(server, batch):
        m = OD(server)
        for _ in range(3):

            def obj(m):
                return loss(m, batch["x"], batch["y"]) + 0.5 * 0.1 * sum(
                    ((m[k] - server[k]) ** 2).sum() for k in m
                )

            g = torch.func.grad(obj)(m)
            for k in g:
                m[k] = m[k] - 0.2 * g[k]
        delta = OD((k, m[k] - server[k]) for k in m)
        return OD(delta=delta, weight=batch["x"].shape[0])

    @fl.federated_computation(F(MODEL, S), F(BATCH, C))
    def round_(m, b):
        r = fl.federated_map(work, (fl.federated_broadcast(m), b))
        return (fl.federated_mean(r.delta, r.weight), fl.federated_sum(r.weight))

    bs = [OD(x=x, y=y) for x, y in [data(5), data(2), data(7)]]
    d, n = round_(zeros(), bs)
    assert n == 14
    ds = []
    for b in bs:
        s = {k: torch.zeros_like(torch.tensor(v)) for k, v in zeros().items()}
        m = dict(s)
        for _ in range(3):
            g = torch.func.grad(
                lambda m, b=b: (
                    loss(m, torch.tensor(b["x"]), torch.tensor(b["y"]))
                    + 0.05 * sum(((m[k] - s[k]) ** 2).sum() for k in m)
                )
            )(m)
            m = {k: m[k] - 0.2 * g[k] for k in m}
        ds.append(m)
    for k in d:
        close(d[k], np.average([x[k].numpy() for x in ds], 0, weights=[5, 2, 7]))


def test_functional_call_module() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    ps = OD(((k, v.detach().clone()) for k, v in net.named_parameters()))
    TY = OD(((k, T(np.float32, v.shape)) for k, v in ps.items()))

    @fl.local_computation(TY, BATCH)
    def train(params, batch):

        def f(p):
            return torch.nn.functional.cross_entropy(
                torch.func.functional_call(net, p, (batch["x"],)), batch["y"]
            )

        g, l = torch.func.grad_and_value(f)(params)
        return ({k: params[k] - 0.5 * g[k] for k in params}, l)

    @fl.federated_computation(F(TY, S), F(BATCH, C))
    def rnd(p, b):
        q, l = fl.federated_map(train, (fl.federated_broadcast(p), b))
        return (fl.federated_mean(q), fl.federated_mean(l))

    bs = [OD(x=x, y=y) for x, y in [data(5), data(6)]]
    q, l = rnd(OD(((k, v.numpy()) for k, v in ps.items())), bs)
    qs, ls = ([], [])
    for b in bs:
        g, v = torch.func.grad_and_value(
            lambda p, b=b: torch.nn.functional.cross_entropy(
                torch.func.functional_call(net, p, (torch.tensor(b["x"]),)), torch.tensor(b["y"])
            )
        )(ps)
        qs.append({k: ps[k] - 0.5 * g[k] for k in ps})
        ls.append(v)
    for k in ps:
        close(q[k], np.mean([x[k].numpy() for x in qs], 0))
    close(l, np.mean(ls))


def test_analytics_histogram() -> None:

    @fl.local_computation(T(np.int64, [None]))
    def hist(v):
        return torch.nn.functional.one_hot(v, 5).sum(0)

    @fl.federated_computation(F(T(np.int64, [None]), C))
    def h(v):
        return fl.federated_sum(fl.federated_map(hist, v))

    vs = [rng.integers(0, 5, n) for n in (3, 0, 8)]
    close(h(vs), np.bincount(np.concatenate(vs), minlength=5))


def test_heavy_hitters() -> None:
    N = 16

    @fl.local_computation(T(np.int32, [None]))
    def sketch(v):
        t = torch.zeros(2, N, dtype=torch.int32)
        for r, (a, b) in enumerate([(7, 3), (11, 5)]):
            t[r] = t[r].index_add(0, (v.long() * a + b) % N, torch.ones_like(v))
        return t

    @fl.local_computation(T(np.int32, [2, N]), T(np.int64, [4]))
    def estimate(t, q):
        return torch.minimum(t[0][(q * 7 + 3) % N], t[1][(q * 11 + 5) % N])

    @fl.federated_computation(F(T(np.int32, [None]), C), F(T(np.int64, [4]), S))
    def run(v, q):
        t = fl.federated_secure_sum_bitwidth(fl.federated_map(sketch, v), 8)
        return (fl.federated_map(estimate, (t, q)), t)

    vs = [rng.integers(0, 9, n).astype(np.int32) for n in (6, 9, 4)]
    q = np.array([1, 2, 3, 8])
    e, t = run(vs, q)
    a = np.concatenate(vs)
    tt = np.zeros((2, N), np.int32)
    for r, (x, y) in enumerate([(7, 3), (11, 5)]):
        np.add.at(tt[r], (a.astype(int) * x + y) % N, 1)
    close(t, tt)
    close(e, np.minimum(tt[0][(q * 7 + 3) % N], tt[1][(q * 11 + 5) % N]))


def test_dp_mean_clipped() -> None:
    V = T(np.float32, [6])

    @fl.local_computation(V, np.float32)
    def clip(v, c):
        n = torch.linalg.vector_norm(v)
        return (v * torch.clamp(c / n, max=1.0), n <= c)

    @fl.local_computation(V, np.float32, np.int32)
    def noisy(s, std, n):
        return (s + std * torch.zeros_like(s)) / n

    @fl.local_computation(np.bool_)
    def count(b):
        return b.to(torch.int32)

    @fl.federated_computation(F(V, C), F(np.float32, S))
    def dp(v, c):
        clipped, under = fl.federated_map(clip, (v, fl.federated_broadcast(c)))
        n = fl.federated_sum(fl.federated_value(np.int32(1), C))
        return (
            fl.federated_map(
                noisy, (fl.federated_sum(clipped), fl.federated_value(np.float32(1.0), S), n)
            ),
            fl.federated_sum(fl.federated_map(count, under)),
        )

    vs = [rng.normal(size=6).astype(np.float32) * s for s in (0.1, 1, 5, 0.2)]
    m, u = dp(vs, np.float32(1))
    close(m, np.mean([v * min(1, 1 / np.linalg.norm(v)) for v in vs], 0))
    assert u == sum(np.linalg.norm(v) <= 1 for v in vs)


def test_embedding_select() -> None:
    TAB = T(np.float32, [10, 4])

    @fl.local_computation(TAB, np.int32)
    def row(t, k):
        return OD(key=k, row=t[k])

    ROW = OD(key=np.int32, row=T(np.float32, [4]))

    @fl.local_computation(OD(a=T(np.float32, [4])), ROW)
    def add(acc, r):
        return OD(a=acc["a"] + r["row"])

    @fl.federated_computation(fl.SequenceType(ROW))
    def total(rows):
        return fl.sequence_reduce(rows, OD(a=np.zeros(4, np.float32)), add)

    K = 3

    @fl.federated_computation(F(TAB, S), F(T(np.int32, [K]), C))
    def run(t, k):
        rows = fl.federated_select(k, fl.federated_value(np.int32(9), S), t, row)
        return (rows, fl.federated_map(total, rows))

    t = rng.normal(size=(10, 4)).astype(np.float32)
    ks = [np.array(k, np.int32) for k in ([1, 2, 3], [9, 0, 0])]
    rows, tot = run(t, ks)
    for r, a, k in zip(rows, tot, ks):
        for x, kk in zip(r, k):
            assert x["key"] == kk
            close(x["row"], t[kk])
        close(a["a"], t[k].sum(0))


def test_sparse_update_scatter() -> None:
    TAB = T(np.float32, [8, 2])

    @fl.local_computation(TAB, np.int64, T(np.float32, [2]))
    def bump(t, k, d):
        new = t.clone()
        new[k] += d
        return new

    @fl.federated_computation(TAB, OD(k=np.int64, d=T(np.float32, [2])))
    def acc(t, u):
        return bump(t, u.k, u.d)

    @fl.federated_computation(TAB, TAB)
    def merge(a, b):
        return a

    @fl.federated_computation(TAB)
    def rep(a):
        return a

    @fl.federated_computation(F(OD(k=np.int64, d=T(np.float32, [2])), C))
    def run(u):
        return fl.federated_aggregate(u, np.zeros((8, 2), np.float32), acc, merge, rep)

    us = [OD(k=k, d=rng.normal(size=2).astype(np.float32)) for k in (1, 3, 1, -1)]
    w = np.zeros((8, 2), np.float32)
    for u in us:
        w[u["k"]] += u["d"]
    close(run(us), w)


def test_personalisation() -> None:
    CLI = OD(head=T(np.float32, [3]), x=T(np.float32, [None, 4]), y=T(np.float32, [None]))

    @fl.local_computation(T(np.float32, [4, 3]), CLI)
    def step(body, c):

        def f(body, head):
            return ((c["x"] @ body @ head - c["y"]) ** 2).mean()

        gb, gh = torch.func.grad(f, argnums=(0, 1))(body, c["head"])
        c["head"] = c["head"] - 0.1 * gh
        return OD(delta=-0.1 * gb, client=c["head"], loss=f(body, c["head"]))

    @fl.federated_computation(F(T(np.float32, [4, 3]), S), F(CLI, C))
    def run(b, c):
        r = fl.federated_map(step, (fl.federated_broadcast(b), c))
        return OD(body=fl.federated_mean(r.delta), heads=r.client, loss=fl.federated_mean(r.loss))

    b = rng.normal(size=(4, 3)).astype(np.float32)
    cs = [
        OD(
            head=rng.normal(size=3).astype(np.float32),
            x=rng.normal(size=(n, 4)).astype(np.float32),
            y=rng.normal(size=n).astype(np.float32),
        )
        for n in (3, 5)
    ]
    keep = [c["head"].copy() for c in cs]
    r = run(b, cs)
    for c, k, h in zip(cs, keep, r["heads"]):
        close(c["head"], k)
        t = {kk: torch.tensor(v) for kk, v in c.items()}
        _, gh = torch.func.grad(
            lambda b, h, t=t: ((t["x"] @ b @ h - t["y"]) ** 2).mean(), argnums=(0, 1)
        )(torch.tensor(b), t["head"])
        close(h, t["head"] - 0.1 * gh)


@attrs.define
class State:
    model = attrs.field()
    momentum = attrs.field()
    round_num = attrs.field()


def test_server_momentum_attrs() -> None:
    ST = fl.StructWithPythonType(
        [("model", T(np.float32, [3])), ("momentum", T(np.float32, [3])), ("round_num", np.int32)],
        State,
    )

    @fl.local_computation(ST, T(np.float32, [3]))
    def upd(s, d):
        mom = 0.9 * s.momentum + d
        return State(model=s.model + mom, momentum=mom, round_num=s.round_num + 1)

    @fl.local_computation
    def init():
        return State(
            model=torch.zeros(3),
            momentum=torch.zeros(3),
            round_num=torch.tensor(0, dtype=torch.int32),
        )

    @fl.federated_computation
    def start():
        return fl.federated_eval(init, S)

    @fl.federated_computation(F(ST, S), F(T(np.float32, [3]), C))
    def nxt(s, d):
        return fl.federated_map(upd, (s, fl.federated_mean(d)))

    s = start()
    assert isinstance(s, State)
    ds = [np.array([1, 2, 3], np.float32), np.array([3, 2, 1], np.float32)]
    for _ in range(3):
        s = nxt(s, ds)
    m = np.zeros(3)
    v = np.zeros(3)
    for _ in range(3):
        v = 0.9 * v + 2
        m = m + v
    close(s.model, m)
    assert s.round_num == 3


def test_nested_struct_aggregator() -> None:
    ACC = OD(n=np.int64, stats=OD(s=T(np.float64, [2]), sq=[T(np.float64, [2]), np.float64]))

    @fl.local_computation(ACC, T(np.float64, [2]))
    def acc(a, v):
        return OD(
            n=a["n"] + 1,
            stats=OD(
                s=a["stats"]["s"] + v,
                sq=[a["stats"]["sq"][0] + v * v, torch.maximum(a["stats"]["sq"][1], v.max())],
            ),
        )

    @fl.local_computation(ACC, ACC)
    def mer(a, b):
        return OD(
            n=a["n"] + b["n"],
            stats=OD(
                s=a["stats"]["s"] + b["stats"]["s"],
                sq=[
                    a["stats"]["sq"][0] + b["stats"]["sq"][0],
                    torch.maximum(a["stats"]["sq"][1], b["stats"]["sq"][1]),
                ],
            ),
        )

    @fl.local_computation(ACC)
    def rep(a):
        m = a["stats"]["s"] / a["n"]
        return {"mean": m, "var": a["stats"]["sq"][0] / a["n"] - m**2, "max": a["stats"]["sq"][1]}

    @fl.federated_computation(F(T(np.float64, [2]), C))
    def run(v):
        return fl.federated_aggregate(
            v,
            OD(n=np.int64(0), stats=OD(s=np.zeros(2), sq=[np.zeros(2), np.float64(-np.inf)])),
            acc,
            mer,
            rep,
        )

    vs = list(rng.normal(size=(6, 2)))
    r = run(vs)
    close(r["mean"], np.mean(vs, 0))
    close(r["var"], np.var(vs, 0))
    close(r["max"], np.max(vs))


def test_scaffold_controls() -> None:
    V = T(np.float32, [3])

    @fl.local_computation(V, V, OD(c=V, a=T(np.float32, [None, 3]), b=T(np.float32, [None])))
    def w(x, cg, d):
        y = x
        for _ in range(4):
            g = torch.func.grad(lambda y: ((d["a"] @ y - d["b"]) ** 2).mean())(y)
            y = y - 0.05 * (g - d["c"] + cg)
        cn = d["c"] - cg + (x - y) / (4 * 0.05)
        return ((y - x, cn - d["c"]), cn)

    @fl.federated_computation(
        F(V, S), F(V, S), F(OD(c=V, a=T(np.float32, [None, 3]), b=T(np.float32, [None])), C)
    )
    def r(x, cg, d):
        dd, cn = fl.federated_map(w, (fl.federated_broadcast(x), fl.federated_broadcast(cg), d))
        return (fl.federated_mean(dd), cn)

    ds = [
        OD(
            c=np.zeros(3, np.float32),
            a=rng.normal(size=(n, 3)).astype(np.float32),
            b=rng.normal(size=n).astype(np.float32),
        )
        for n in (4, 6)
    ]
    (dx, _), _ = r(np.zeros(3, np.float32), np.zeros(3, np.float32), ds)
    exp = []
    for d in ds:
        y = np.zeros(3)
        for _ in range(4):
            g = 2 * d["a"].T @ (d["a"] @ y - d["b"]) / len(d["b"])
            y = y - 0.05 * g
        exp.append(y)
    close(dx, np.mean(exp, 0), 0.0001)


def test_kmeans() -> None:
    K, D = (3, 2)

    @fl.local_computation(T(np.float32, [K, D]), T(np.float32, [None, D]))
    def assign(c, x):
        a = torch.cdist(x, c).argmin(1)
        h = torch.nn.functional.one_hot(a, K).to(torch.float32)
        return (h.T @ x, h.sum(0))

    @fl.local_computation(T(np.float32, [K, D]), T(np.float32, [K, D]), T(np.float32, [K]))
    def upd(c, s, n):
        return torch.where(n[:, None] > 0, s / n.clamp(min=1)[:, None], c)

    @fl.federated_computation(F(T(np.float32, [K, D]), S), F(T(np.float32, [None, D]), C))
    def r(c, x):
        s, n = fl.federated_map(assign, (fl.federated_broadcast(c), x))
        return fl.federated_map(upd, (c, fl.federated_sum(s), fl.federated_sum(n)))

    xs = [rng.normal(size=(n, D)).astype(np.float32) for n in (5, 9)]
    c = np.array([[0, 0], [1, 1], [-1, -1]], np.float32)
    p = c.copy()
    X = np.concatenate(xs)
    for _ in range(3):
        c = r(c, xs)
        a = ((X[:, None] - p) ** 2).sum(-1).argmin(1)
        p = np.stack([X[a == k].mean(0) if (a == k).any() else p[k] for k in range(K)])
    close(c, p, 0.0001)


def test_quantile_by_bisection() -> None:

    @fl.local_computation(T(np.float32, [None]), np.float32)
    def below(v, t):
        return ((v < t).sum(), v.numel())

    @fl.local_computation(OD(lo=np.float32, hi=np.float32), np.int64, np.int64)
    def half(s, b, n):
        mid = (s["lo"] + s["hi"]) / 2
        big = b * 2 >= n
        s["lo"], s["hi"] = (torch.where(big, s["lo"], mid), torch.where(big, mid, s["hi"]))
        return s

    @fl.local_computation(OD(lo=np.float32, hi=np.float32))
    def mid(s):
        return (s["lo"] + s["hi"]) / 2

    B = OD(lo=np.float32, hi=np.float32)

    @fl.federated_computation(F(B, S), F(T(np.float32, [None]), C))
    def step(s, v):
        b, n = fl.federated_map(below, (v, fl.federated_broadcast(fl.federated_map(mid, s))))
        return fl.federated_map(half, (s, fl.federated_sum(b), fl.federated_sum(n)))

    vs = [rng.normal(size=n).astype(np.float32) for n in (20, 31)]
    s = OD(lo=-4.0, hi=4.0)
    for _ in range(22):
        s = step(s, vs)
    a = np.sort(np.concatenate(vs))
    close(s["lo"], a[len(a) // 2], 0.2)
    assert (a < s["hi"]).sum() * 2 >= len(a)


def test_evaluation_metrics() -> None:

    @fl.local_computation(MODEL, BATCH)
    def ev(m, b):
        lg = b["x"] @ m["weights"] + m["bias"]
        return OD(
            num_examples=b["y"].shape[0],
            correct=(lg.argmax(1) == b["y"]).sum(),
            loss=torch.nn.functional.cross_entropy(lg, b["y"], reduction="sum"),
        )

    @fl.local_computation
    def fin(n, c, l):
        return {"accuracy": c / n, "loss": l / n}

    @fl.federated_computation(F(MODEL, S), F(BATCH, C))
    def run(m, b):
        r = fl.federated_map(ev, (fl.federated_broadcast(m), b))
        t = fl.federated_sum(r)
        return fl.federated_map(fin, fl.federated_zip((t.num_examples, t.correct, t.loss)))

    m = OD(weights=rng.normal(size=(4, 3)).astype(np.float32), bias=np.ones(3, np.float32))
    bs = [OD(x=x, y=y) for x, y in [data(6), data(9)]]
    r = run(m, bs)
    X = np.concatenate([b["x"] for b in bs])
    Y = np.concatenate([b["y"] for b in bs])
    lg = torch.tensor(X @ m["weights"] + m["bias"])
    close(r["accuracy"], (lg.argmax(1).numpy() == Y).mean())
    close(r["loss"], torch.nn.functional.cross_entropy(lg, torch.tensor(Y)))


def test_temperature_over_threshold() -> None:

    @fl.local_computation(fl.TensorType(np.float32), np.float32)
    def over(x, t):
        return (x > t).to(torch.float32)

    @fl.federated_computation(F(np.float32, C), F(np.float32, S))
    def frac(x, t):
        return fl.federated_mean(fl.federated_map(over, [x, fl.federated_broadcast(t)]))

    assert frac([60.0, 70.0, 80.0], 65.0) == np.float32(2 / 3)


def test_sequence_wordcount() -> None:

    @fl.local_computation(np.int64, T(np.int64, [None]))
    def cnt(a, w):
        return a + (w == 3).sum()

    @fl.federated_computation(fl.SequenceType(T(np.int64, [None])))
    def per(ds):
        return fl.sequence_reduce(ds, np.int64(0), cnt)

    @fl.federated_computation(F(fl.SequenceType(T(np.int64, [None])), C))
    def run(d):
        return (
            fl.federated_max(fl.federated_map(per, d)),
            fl.federated_min(fl.federated_map(per, d)),
        )

    ds = [[rng.integers(0, 5, n) for n in ns] for ns in ([3, 4], [], [9])]
    cs = [sum((w == 3).sum() for w in d) for d in ds]
    a, b = run(ds)
    assert (a, b) == (max(cs), min(cs))


def test_compressed_topk() -> None:
    V = T(np.float32, [10])

    @fl.local_computation(V)
    def comp(v):
        _, i = torch.topk(v.abs(), 3)
        return OD(i=i, v=v[i])

    @fl.local_computation(V, OD(i=T(np.int64, [3]), v=T(np.float32, [3])))
    def acc(t, c):
        t = t.clone()
        t.index_add_(0, c["i"], c["v"])
        return t

    merge = fl.local_computation(lambda a, b: a + b, V, V)
    rep = fl.local_computation(lambda a: a, V)

    @fl.federated_computation(F(V, C))
    def run(v):
        return fl.federated_aggregate(
            fl.federated_map(comp, v), np.zeros(10, np.float32), acc, merge, rep
        )

    vs = list(rng.normal(size=(4, 10)).astype(np.float32))
    e = np.zeros(10)
    for v in vs:
        i = np.argsort(-np.abs(v))[:3]
        e[i] += v[i]
    close(run(vs), e)


def test_user_select_by_counter() -> None:
    HIST = OD(table=T(np.float32, [5, 2]), pos=np.int64)

    @fl.local_computation(HIST, T(np.float32, [2]))
    def push(h, v):
        t = h["table"].clone()
        t[h["pos"] % 5] = v
        h["table"] = t
        h["pos"] = h["pos"] + 1
        return h

    @fl.local_computation(HIST)
    def last(h):
        return (h["table"][(h["pos"] - 1) % 5], h["table"][-1], h["table"][h["pos"] - h["pos"] - 1])

    @fl.federated_computation(F(HIST, C), F(T(np.float32, [2]), S))
    def run(h, v):
        n = fl.federated_map(push, (h, fl.federated_broadcast(v)))
        return (n, fl.federated_map(last, n))

    hs = [OD(table=np.zeros((5, 2), np.float32), pos=p) for p in (0, 4, 7)]
    n, l = run(hs, np.array([1, 2], np.float32))
    for h, x, (a, b, c) in zip(hs, n, l):
        assert x["pos"] == h["pos"] + 1
        close(x["table"][h["pos"] % 5], [1, 2])
        close(a, [1, 2])
        close(b, c)


def test_loaded_elsewhere_numpy_functions() -> None:

    @fl.local_computation(T(np.float64, [None]), result=OD(m=np.float64, q=T(np.float64, [3])))
    def stats(v):
        return OD(m=np.median(v), q=np.percentile(v, [25, 50, 75]))

    @fl.local_computation(OD(m=np.float64, q=T(np.float64, [3])))
    def spread(s):
        return s["q"][2] - s["q"][0]

    @fl.federated_computation(F(T(np.float64, [None]), C))
    def run(v):
        s = fl.federated_map(stats, v)
        return (s, fl.federated_mean(fl.federated_map(spread, s)))

    vs = [rng.normal(size=n) for n in (4, 9)]
    s, m = run(vs)
    close(m, np.mean([np.subtract(*np.percentile(v, [75, 25])) for v in vs]))
    two = fw.ConcreteComputation.from_bytes(spread.to_bytes())
    close(two(s[0]), s[0]["q"][2] - s[0]["q"][0])
