# ruff: noqa: B023, B905, E731, E741
"""Programs as practitioners write them, beside plain NumPy and PyTorch."""

from __future__ import annotations

import asyncio
import collections
import copy
import pathlib
import tempfile
import typing
from typing import Any

import attrs
import numpy as np
import pytest

import stator.federated as fl
from stator.federated import framework as fw

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from stator.federated import aggregators, execution, learning, program  # noqa: E402

T, F, C, S = fl.TensorType, fl.FederatedType, fl.CLIENTS, fl.SERVER
OrderedDict = collections.OrderedDict
f32 = np.float32


@pytest.fixture
def rng() -> np.random.Generator:
    """Each program's own, so that none depends on who ran before."""
    return np.random.default_rng(0)


def close(found: Any, expected: Any, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(
        np.asarray(found), np.asarray(expected), rtol=tolerance, atol=tolerance
    )


def test_mime_lite(rng: np.random.Generator) -> None:
    """Server's momentum is broadcast, clients step with it and don't change it."""
    W = T(f32, [3])
    B = OrderedDict(x=T(f32, [None, 3]), y=T(f32, [None]))
    St = OrderedDict(w=W, m=W)

    def grad(w, x, y):
        return torch.func.grad(lambda w: ((x @ w - y) ** 2).mean())(w)

    @fl.local_computation(St, B)
    def client(st, b):
        w = st["w"]
        for _ in range(4):
            w = w - 0.1 * (0.1 * grad(w, b["x"], b["y"]) + 0.9 * st["m"])
        return OrderedDict(delta=w - st["w"], full=grad(st["w"], b["x"], b["y"]), n=b["x"].shape[0])

    @fl.local_computation(St, W, W)
    def server(st, d, g):
        return OrderedDict(w=st["w"] + d, m=0.9 * st["m"] + 0.1 * g)

    @fl.federated_computation(F(St, S), F(B, C))
    def round_of(st, b):
        r = fl.federated_map(client, (fl.federated_broadcast(st), b))
        return fl.federated_map(
            server, (st, fl.federated_mean(r.delta, r.n), fl.federated_mean(r.full, r.n))
        )

    given = [
        OrderedDict(x=rng.normal(size=(k, 3)).astype(f32), y=rng.normal(size=k).astype(f32))
        for k in (5, 7, 5)
    ]
    st = OrderedDict(w=np.zeros(3, f32), m=np.zeros(3, f32))
    w = np.zeros(3)
    m = np.zeros(3)
    for _ in range(3):
        st = round_of(st, given)
        ds = []
        gs = []
        ns = []
        for b in given:
            g = lambda w: 2 * b["x"].T @ (b["x"] @ w - b["y"]) / len(b["y"])
            v = w.copy()
            for _ in range(4):
                v = v - 0.1 * (0.1 * g(v) + 0.9 * m)
            ds.append(v - w)
            gs.append(g(w))
            ns.append(len(b["y"]))
        w, m = w + np.average(ds, 0, ns), 0.9 * m + 0.1 * np.average(gs, 0, ns)
    close(st["w"], w)
    close(st["m"], m)


def test_newton_secure(rng: np.random.Generator) -> None:
    """Logistic regression by Newton's method: Hessians and gradients as integers, summed securely."""
    H = T(f32, [3, 3])
    G = T(f32, [3])
    B = OrderedDict(x=T(f32, [None, 3]), y=T(f32, [None]))
    scale = 2.0**12

    @fl.local_computation(G, B)
    def parts(w, b):
        def loss(w):
            return nn.functional.binary_cross_entropy_with_logits(
                b["x"] @ w, b["y"], reduction="sum"
            )

        h = torch.func.hessian(loss)(w)
        g = torch.func.grad(loss)(w)
        q = lambda t: (t * scale).round().to(torch.int64) + 2**20
        return OrderedDict(h=q(h), g=q(g))

    @fl.local_computation(G, OrderedDict(h=T(np.int64, [3, 3]), g=T(np.int64, [3])), np.int64)
    def step(w, q, n):
        h = (q["h"] - n * 2**20).float() / scale
        g = (q["g"] - n * 2**20).float() / scale
        return w - torch.linalg.solve(h + 0.1 * torch.eye(3), g)

    @fl.federated_computation(F(G, S), F(B, C))
    def round_of(w, b):
        p = fl.federated_map(parts, (fl.federated_broadcast(w), b))
        s = fl.federated_secure_sum_bitwidth(p, 22)
        n = fl.federated_sum(fl.federated_value(np.int64(1), C))
        return fl.federated_map(step, (w, s, n))

    given = [
        OrderedDict(x=rng.normal(size=(k, 3)).astype(f32), y=(rng.random(k) > 0.5).astype(f32))
        for k in (9, 6)
    ]
    w = np.zeros(3, f32)
    p = np.zeros(3)
    for _ in range(3):
        w = round_of(w, given)
        h = 0.1 * np.eye(3)
        g = 0
        for b in given:
            s = 1 / (1 + np.exp(-b["x"] @ p))
            g = g + b["x"].T @ (s - b["y"])
            h = h + (b["x"] * (s * (1 - s))[:, None]).T @ b["x"]
        p = p - np.linalg.solve(h, g)
    close(w, p, 2e-2)


def test_welford_attrs(rng: np.random.Generator) -> None:
    """Mean and variance over clients by Welford's merge, in an attrs class."""

    @attrs.define
    class Acc:
        n: object
        mean: object
        m2: object

    A = fl.StructWithPythonType([("n", f32), ("mean", f32), ("m2", f32)], Acc)

    @fl.local_computation(A, f32)
    def accumulate(a, x):
        n = a.n + 1
        d = x - a.mean
        mean = a.mean + d / n
        return Acc(n, mean, a.m2 + d * (x - mean))

    @fl.local_computation(A, A)
    def merge(a, b):
        n = a.n + b.n
        d = b.mean - a.mean
        return Acc(n, a.mean + d * b.n / n, a.m2 + b.m2 + d * d * a.n * b.n / n)

    @fl.local_computation(A)
    def report(a):
        return OrderedDict(mean=a.mean, std=torch.sqrt(a.m2 / (a.n - 1)))

    @fl.federated_computation(F(f32, C))
    def stats(x):
        return fl.federated_aggregate(x, Acc(f32(0), f32(0), f32(0)), accumulate, merge, report)

    v = rng.normal(5, 2, size=40).astype(f32)
    r = stats(list(v))
    close(r["mean"], v.mean())
    close(r["std"], v.std(ddof=1))


def test_randomized_response() -> None:
    """Local differential privacy: a client's bit is told truly with probability p."""

    @fl.local_computation(np.bool_)
    def respond(bit):
        coin = torch.rand(2)
        return torch.where(coin[0] < 0.75, bit, coin[1] < 0.5).to(torch.int64)

    @fl.local_computation(np.int64, np.int64)
    def unbias(s, n):
        return (s / n - 0.25 * 0.5) / 0.75

    @fl.federated_computation(F(np.bool_, C))
    def share(b):
        r = fl.federated_map(respond, b)
        n = fl.federated_sum(fl.federated_value(np.int64(1), C))
        return fl.federated_map(unbias, (fl.federated_sum(r), n))

    bits = [np.bool_(i % 4 == 0) for i in range(2000)]
    torch.manual_seed(3)
    a = share(bits)
    torch.manual_seed(3)
    b = share(bits)
    assert a == b and abs(a - 0.25) < 0.05, a


def test_quantised_updates(rng: np.random.Generator) -> None:
    """FedPAQ: updates rounded at random to a grid, sent as uint8 with a scale."""
    W = T(f32, [8])

    @fl.local_computation(W)
    def pack(d):
        lo, hi = d.min(), d.max()
        u = (d - lo) / (hi - lo) * 255
        r = torch.floor(u + torch.rand(8))
        return OrderedDict(q=r.clamp(0, 255).to(torch.uint8), lo=lo, hi=hi)

    @fl.local_computation(OrderedDict(q=T(np.uint8, [8]), lo=f32, hi=f32))
    def unpack(p):
        return p["lo"] + p["q"].float() / 255 * (p["hi"] - p["lo"])

    @fl.federated_computation(F(W, C))
    def mean(d):
        return fl.federated_mean(fl.federated_map(unpack, fl.federated_map(pack, d)))

    ds = [rng.normal(size=8).astype(f32) for _ in range(64)]
    torch.manual_seed(0)
    close(mean(ds), np.mean(ds, 0), 5e-3)


def test_auc_by_thresholds(rng: np.random.Generator) -> None:
    """AUC from histograms of scores: a metric with a finalizer."""
    net = nn.Linear(2, 1)
    model = learning.Model(
        net,
        lambda o, y: nn.functional.binary_cross_entropy_with_logits(o[:, 0], y.float()),
        inputs=T(f32, [None, 2]),
        labels=T(np.int64, [None]),
    )
    edges = torch.linspace(0, 1, 21)

    def measure(o, y):
        p = torch.sigmoid(o[:, 0])
        at = torch.bucketize(p, edges[1:-1])
        pos = torch.zeros(20).index_add(0, at, y.float())
        neg = torch.zeros(20).index_add(0, at, 1 - y.float())
        return {"pos": pos, "neg": neg}

    def fin(t):
        below = torch.cumsum(t["neg"], 0) - t["neg"]
        return (t["pos"] * (below + t["neg"] / 2)).sum() / (t["pos"].sum() * t["neg"].sum())

    ev = learning.build_evaluation(model, {"auc": learning.metrics.SumThenFinalize(measure, fin)})
    xs = rng.normal(size=(50, 2)).astype(f32)
    ys = (xs[:, 0] > 0).astype(np.int64)
    given = [{"inputs": xs[i::3], "labels": ys[i::3]} for i in range(3)]
    w = model.weights()
    r = ev(w, given)
    with torch.no_grad():
        e = fin(measure(net(torch.tensor(xs)), torch.tensor(ys)))
    close(r["auc"], e)


def test_prototypes(rng: np.random.Generator) -> None:
    """FedProto: means of each class's features, weighted by counts; classes that a client lacks count none."""
    B = OrderedDict(x=T(f32, [None, 4]), y=T(np.int64, [None]))

    @fl.local_computation(B)
    def protos(b):
        sums = []
        counts = []
        for k in range(3):
            m = b["y"] == k
            sums.append(b["x"][m].sum(0))
            counts.append(m.sum())
        return OrderedDict(s=torch.stack(sums), n=torch.stack(counts))

    @fl.local_computation(OrderedDict(s=T(f32, [3, 4]), n=T(np.int64, [3])))
    def fin(t):
        return t["s"] / t["n"].clamp(min=1)[:, None]

    @fl.federated_computation(F(B, C))
    def round_of(b):
        return fl.federated_map(fin, fl.federated_sum(fl.federated_map(protos, b)))

    given = [
        OrderedDict(x=rng.normal(size=(k, 4)).astype(f32), y=rng.integers(0, 3, k)) for k in (5, 8)
    ]
    x = np.concatenate([c["x"] for c in given])
    y = np.concatenate([c["y"] for c in given])
    close(round_of(given), np.stack([x[y == k].mean(0) for k in range(3)]))


def test_windows_of_events() -> None:
    """Sequences of events, mapped and reduced, dropped outside a window."""
    E = OrderedDict(t=np.int64, v=f32)

    @fl.local_computation(E)
    def keep(e):
        return torch.where((e["t"] >= 10) & (e["t"] < 20), e["v"], torch.zeros(()))

    @fl.local_computation(f32, f32)
    def add(a, b):
        return a + b

    @fl.federated_computation(F(fl.SequenceType(E), C))
    def total(es):
        per = fl.sequence_map(keep, es)
        return fl.federated_mean(
            fl.sequence_reduce(per, fl.federated_value(f32(0), C), add)
        ), fl.federated_max(fl.sequence_sum(per))

    given = [[OrderedDict(t=t, v=f32(t) / 2) for t in range(s, s + 12)] for s in (0, 5, 12)]
    per = [sum(float(e["v"]) for e in c if 10 <= e["t"] < 20) for c in given]
    m, x = total(given)
    close(m, np.mean(per))
    close(x, max(per))


def test_own_aggregator(rng: np.random.Generator) -> None:
    """An aggregator of one's own, stateful: server momentum; in build_fed_avg."""

    class Momentum(aggregators.AggregationFactory):
        def create(self, value_type, weight_type=None):
            known = [(n, list(t.shape)) for n, t in value_type.items()]

            @fl.federated_computation
            def initialize():
                @fl.local_computation
                def zero():
                    return OrderedDict((n, torch.zeros(sizes)) for n, sizes in known)

                return fl.federated_eval(zero, S)

            st = initialize.type_signature.result.member

            @fl.local_computation(st, value_type)
            def step(m, v):
                return OrderedDict((k, 0.5 * m[k] + v[k]) for k in m)

            @fl.federated_computation(F(st, S), F(value_type, C), F(weight_type or f32, C))
            def nxt(s, v, w):
                new = fl.federated_map(step, (s, fl.federated_mean(v, w)))
                return OrderedDict(
                    state=new, result=new, measurements=fl.federated_value(OrderedDict(), S)
                )

            return aggregators.AggregationProcess(initialize, nxt, is_weighted=True)

    net = nn.Linear(2, 1)
    torch.manual_seed(0)
    nn.init.normal_(net.weight)
    model = learning.Model(
        net, nn.functional.mse_loss, inputs=T(f32, [None, 2]), labels=T(f32, [None, 1])
    )
    p = learning.build_fed_avg(
        model,
        client_optimizer=lambda q: torch.optim.SGD(q, lr=0.1),
        steps=2,
        model_aggregator=Momentum(),
    )
    given = [
        {
            "inputs": rng.normal(size=(k, 2)).astype(f32),
            "labels": rng.normal(size=(k, 1)).astype(f32),
        }
        for k in (4, 6)
    ]
    s = p.initialize()
    w = np.concatenate([net.weight.detach().numpy().ravel(), net.bias.detach().numpy()])
    mom = 0
    for _ in range(3):
        s, _ = p.next(s, given)
        ds = []
        for c in given:
            v = w.copy().astype(float)
            X = np.c_[c["inputs"], np.ones(len(c["inputs"]))]
            for _ in range(2):
                v -= 0.1 * 2 * X.T @ (X @ v - c["labels"].ravel()) / len(X)
            ds.append(v - w)
        mom = 0.5 * mom + np.average(ds, 0, [4, 6])
        w = w + mom
    close(np.concatenate([s["weights"]["weight"].ravel(), s["weights"]["bias"]]), w, 1e-3)


def test_resume_named_tuple_state() -> None:
    """A program whose state is a named tuple of an own class; killed between release and save, resumed."""

    class St(typing.NamedTuple):
        w: object
        round: object

    W = T(f32, [2])
    ST = fl.StructWithPythonType([("w", W), ("round", np.int64)], St)

    @fl.local_computation(ST, W)
    def upd(s, g):
        return St(s.w + g, s.round + 1)

    @fl.federated_computation(F(ST, S), F(W, C))
    def round_of(s, v):
        return fl.federated_map(upd, (s, fl.federated_mean(v))), fl.federated_max(v)

    data = [[np.full(2, i * j, f32) for j in range(1, 4)] for i in range(1, 6)]

    async def train(states, csv, stop):
        s, v = await states.load_latest(St(np.zeros(2, f32), np.int64(0)))
        s = s or St(np.zeros(2, f32), np.int64(0))
        for r in range(v + 1, 6):
            s, m = round_of(s, data[r - 1])
            await csv.release({"max": m}, r)
            if r == stop:
                raise InterruptedError
            await states.save(s, r)
        return await program.materialize_value(s)

    with tempfile.TemporaryDirectory() as d:
        d = pathlib.Path(d)
        ctx = program.NativeFederatedContext(execution.LocalContext())
        with fw.get_context_stack().install(ctx):
            mk = lambda: (
                program.FileProgramStateManager(d / "s"),
                program.CSVFileReleaseManager(d / "m.csv"),
            )
            try:
                asyncio.run(train(*mk(), 3))
                assert 0
            except InterruptedError:
                pass
            s = asyncio.run(train(*mk(), 0))
        assert type(s) is St and s.round == 5, s
        close(s.w, np.full(2, sum(2 * i for i in range(1, 6))))
        assert len((d / "m.csv").read_text().splitlines()) == 6


def test_many_rates_at_once(rng: np.random.Generator) -> None:
    """Clients try several learning rates by vmap; the server picks the best."""
    B = OrderedDict(x=T(f32, [4, 2]), y=T(f32, [4]))
    W = T(f32, [2])
    R = T(f32, [3])

    def loss(w, b):
        return ((b["x"] @ w - b["y"]) ** 2).mean()

    @fl.local_computation(W, R, B)
    def tryall(w, rates, b):
        g = torch.func.grad(loss)(w, b)
        ws = torch.vmap(lambda r: w - r * g)(rates)
        return OrderedDict(losses=torch.vmap(lambda v: loss(v, b))(ws), ws=ws)

    @fl.local_computation(OrderedDict(losses=T(f32, [3]), ws=T(f32, [3, 2])))
    def best(m):
        return m["ws"][m["losses"].argmin()]

    @fl.federated_computation(F(W, S), F(R, S), F(B, C))
    def round_of(w, r, b):
        return fl.federated_map(
            best,
            fl.federated_mean(
                fl.federated_map(tryall, (fl.federated_broadcast(w), fl.federated_broadcast(r), b))
            ),
        )

    given = [
        OrderedDict(x=rng.normal(size=(4, 2)).astype(f32), y=rng.normal(size=4).astype(f32))
        for _ in range(3)
    ]
    w = np.ones(2)
    r = np.array([0.01, 0.1, 1.0])
    L = []
    Ws = []
    for b in given:
        g = 2 * b["x"].T @ (b["x"] @ w - b["y"]) / 4
        ws = w - r[:, None] * g
        Ws.append(ws)
        L.append([((b["x"] @ v - b["y"]) ** 2).mean() for v in ws])
    close(round_of(w.astype(f32), r.astype(f32), given), np.mean(Ws, 0)[np.argmin(np.mean(L, 0))])


def test_tagger_with_padding(rng: np.random.Generator) -> None:
    """A recurrent tagger on padded sentences: the loss is over tokens that are no padding, by a mask."""
    torch.manual_seed(1)

    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.e = nn.Embedding(9, 4, padding_idx=0)
            s.r = nn.GRU(4, 5, batch_first=True)
            s.o = nn.Linear(5, 3)

        def forward(s, x):
            return s.o(s.r(s.e(x))[0])

    net = Net()

    def loss(o, y):
        m = y >= 0
        return nn.functional.cross_entropy(o[m], y[m])

    model = learning.Model(net, loss, inputs=T(np.int64, [None, 6]), labels=T(np.int64, [None, 6]))
    p = learning.build_fed_avg(
        model, client_optimizer=lambda q: torch.optim.SGD(q, lr=0.3), steps=2
    )

    def client(k):
        x = rng.integers(1, 9, (k, 6))
        y = x % 3
        n = rng.integers(2, 7, k)
        pad = np.arange(6)[None] >= n[:, None]
        return {"inputs": np.where(pad, 0, x), "labels": np.where(pad, -1, y)}

    given = [client(4), client(6)]
    s = p.initialize()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    s, _ = p.next(s, given)
    ws = []
    for c in given:
        net.load_state_dict(before)
        o = torch.optim.SGD(net.parameters(), lr=0.3)
        for _ in range(2):
            o.zero_grad()
            l = loss(net(torch.tensor(c["inputs"])), torch.tensor(c["labels"]))
            l.backward()
            o.step()
        ws.append({k: v.detach().numpy().copy() for k, v in net.named_parameters()})
    for k in ws[0]:
        close(s["weights"][k], np.average([w[k] for w in ws], 0, [4, 6]))


def test_gan_rounds(rng: np.random.Generator) -> None:
    """A federated GAN: clients train the discriminator on drawn noise, the server the generator."""
    Gt = OrderedDict(w=T(f32, [2, 2]), b=T(f32, [2]))
    Dt = OrderedDict(w=T(f32, [2]), b=f32)
    X = T(f32, [None, 2])

    def gen(g, z):
        return z @ g["w"] + g["b"]

    def dis(d, x):
        return x @ d["w"] + d["b"]

    bce = nn.functional.binary_cross_entropy_with_logits

    @fl.local_computation(Gt, Dt, X)
    def client(g, d, x):
        def loss(d):
            z = torch.randn(8, 2)
            real = dis(d, x)
            fake = dis(d, gen(g, z))
            return bce(real, torch.ones_like(real)) + bce(fake, torch.zeros_like(fake))

        gr, l = torch.func.grad_and_value(loss)(d)
        return OrderedDict(d=OrderedDict((k, d[k] - 0.1 * gr[k]) for k in d), loss=l)

    @fl.local_computation(Gt, Dt)
    def server(g, d):
        def loss(g):
            f = dis(d, gen(g, torch.randn(16, 2)))
            return bce(f, torch.ones_like(f))

        gr = torch.func.grad(loss)(g)
        return OrderedDict((k, g[k] - 0.1 * gr[k]) for k in g)

    @fl.federated_computation(F(Gt, S), F(Dt, S), F(X, C))
    def round_of(g, d, x):
        r = fl.federated_map(client, (fl.federated_broadcast(g), fl.federated_broadcast(d), x))
        d2 = fl.federated_mean(r.d)
        return fl.federated_map(server, (g, d2)), d2, fl.federated_mean(r.loss)

    g = OrderedDict(w=np.eye(2, dtype=f32), b=np.zeros(2, f32))
    d = OrderedDict(w=np.zeros(2, f32), b=f32(0))
    given = [rng.normal(3, 1, (k, 2)).astype(f32) for k in (5, 5, 7)]

    def run(ctx):
        torch.manual_seed(5)
        a, b = g, d
        with fw.get_context_stack().install(ctx):
            for _ in range(5):
                a, b, l = round_of(a, b, given)
        return a, b, l

    one = run(execution.LocalContext(exact=True, threads=1))
    two = run(execution.LocalContext())
    for k in one[0]:
        close(one[0][k], two[0][k])
    assert np.isfinite(one[2])


def test_secure_histogram_select(rng: np.random.Generator) -> None:
    """Rows of a table that clients ask for by federated_secure_select, and a secure histogram of what they did."""
    K = T(np.int32, [2])
    TB = T(f32, [5, 3])

    @fl.local_computation(TB, np.int32)
    def row(t, k):
        return t[k]

    @fl.local_computation(K, fl.SequenceType(T(f32, [3])))
    def use(k, rows):
        return OrderedDict(h=torch.bincount(k.long(), minlength=5), s=rows.sum((0, 1)))

    @fl.local_computation
    def maxkey():
        return torch.tensor(5, dtype=torch.int32)

    @fl.federated_computation(F(TB, S), F(K, C))
    def round_of(t, k):
        rows = fl.federated_secure_select(k, fl.federated_eval(maxkey, S), t, row)
        u = fl.federated_map(use, (k, rows))
        return fl.federated_secure_sum(u.h, 2), fl.federated_mean(u.s)

    t = rng.normal(size=(5, 3)).astype(f32)
    ks = [np.array(p, np.int32) for p in ([0, 1], [1, 1], [4, 2])]
    h, m = round_of(t, ks)
    close(h, np.bincount(np.concatenate(ks), minlength=5))
    close(m, np.mean([t[k].sum() for k in ks]))


def test_hierarchical_means(rng: np.random.Generator) -> None:
    """Groups of clients: a mean for each group by scattering, empty groups keep the server's."""
    W = T(f32, [2])

    @fl.local_computation(OrderedDict(g=np.int64, w=W))
    def spread(c):
        o = torch.nn.functional.one_hot(c["g"], 4).float()
        return OrderedDict(s=o[:, None] * c["w"], n=o)

    @fl.local_computation(T(f32, [4, 2]), OrderedDict(s=T(f32, [4, 2]), n=T(f32, [4])))
    def fin(old, t):
        new = old.clone()
        has = t["n"] > 0
        new[has] = t["s"][has] / t["n"][has][:, None]
        return new

    @fl.federated_computation(F(T(f32, [4, 2]), S), F(OrderedDict(g=np.int64, w=W), C))
    def round_of(o, c):
        return fl.federated_map(fin, (o, fl.federated_sum(fl.federated_map(spread, c))))

    given = [OrderedDict(g=np.int64(g), w=rng.normal(size=2).astype(f32)) for g in (0, 2, 2, 0, 3)]
    old = np.full((4, 2), 9, f32)
    e = old.copy()
    for k in range(4):
        ws = [c["w"] for c in given if c["g"] == k]
        if ws:
            e[k] = np.mean(ws, 0)
    close(round_of(old, given), e)


def test_outlier_trim_numpy(rng: np.random.Generator) -> None:
    """NumPy clients: winsorised features, a sketch by searchsorted, medians of what is left."""

    @fl.local_computation(T(f32, [None]))
    def sketch(x):
        lo, hi = np.percentile(x, [5, 95])
        y = np.clip(x, lo, hi)
        z = x[(x >= lo) & (x <= hi)]
        return {
            "hist": np.bincount(np.searchsorted(np.array([-1.0, 0.0, 1.0]), y), minlength=4),
            "mean": z.mean(),
            "n": len(z),
        }

    @fl.federated_computation(F(T(f32, [None]), C))
    def round_of(x):
        r = fl.federated_map(sketch, x)
        return fl.federated_sum(r.hist), fl.federated_mean(r["mean"], r.n)

    given = [rng.normal(size=k).astype(f32) for k in (20, 30, 20)]
    H = 0
    M = []
    N = []
    for x in given:
        lo, hi = np.percentile(x, [5, 95])
        z = x[(x >= lo) & (x <= hi)]
        H = H + np.bincount(np.searchsorted([-1, 0, 1], np.clip(x, lo, hi)), minlength=4)
        M.append(z.mean())
        N.append(len(z))
    h, m = round_of(given)
    close(h, H)
    close(m, np.average(M, weights=N))


def test_fedrep_alternating(rng: np.random.Generator) -> None:
    """FedRep: each client's head is kept at the client side of the program (returned to it), the body averaged."""
    Bd = T(f32, [3, 2])
    Hd = T(f32, [2])
    B = OrderedDict(x=T(f32, [None, 3]), y=T(f32, [None]))

    @fl.local_computation(Bd, Hd, B)
    def client(body, head, b):
        loss = lambda body, head: ((b["x"] @ body @ head - b["y"]) ** 2).mean()
        for _ in range(3):
            head = head - 0.01 * torch.func.grad(loss, argnums=1)(body, head)
        for _ in range(2):
            body = body - 0.01 * torch.func.grad(loss, argnums=0)(body, head)
        return OrderedDict(body=body, head=head)

    @fl.federated_computation(F(Bd, S), F(Hd, C), F(B, C))
    def round_of(bd, h, b):
        r = fl.federated_map(client, (fl.federated_broadcast(bd), h, b))
        return fl.federated_mean(r.body), fl.federated_collect(r.head)

    given = [
        OrderedDict(x=rng.normal(size=(k, 3)).astype(f32), y=rng.normal(size=k).astype(f32))
        for k in (5, 5, 6)
    ]
    bd = rng.normal(size=(3, 2)).astype(f32)
    hs = [np.ones(2, f32)] * 3
    pb, ph = bd.astype(float), [np.ones(2)] * 3
    for _ in range(2):
        bd, hs = round_of(bd, list(hs), given)
        bs = []
        nh = []
        for h, b in zip(ph, given):
            v = pb.copy()
            n = len(b["y"])
            for _ in range(3):
                h = h - 0.01 * 2 * (b["x"] @ v).T @ (b["x"] @ v @ h - b["y"]) / n
            for _ in range(2):
                v = v - 0.01 * 2 * b["x"].T @ np.outer(b["x"] @ v @ h - b["y"], h) / n
            bs.append(v)
            nh.append(h)
        pb, ph = np.mean(bs, 0), nh
    close(bd, pb, 1e-3)
    close(np.stack(hs), np.stack(ph), 1e-3)


def test_fedper_with_loaders(rng: np.random.Generator) -> None:
    """FedPer as written for PyTorch alone: loaders, statistics of all batches, weights kept for a proximal term."""
    from torch.utils.data import DataLoader, TensorDataset, random_split

    body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=None), nn.ReLU())
    kinds = {torch.float32: f32, torch.int64: np.int64}
    W = OrderedDict((k, T(kinds[v.dtype], list(v.shape))) for k, v in body.state_dict().items())
    Hd = T(f32, [6, 2])
    B = OrderedDict(x=T(f32, [10, 4]), y=T(np.int64, [10]), head=Hd)

    def train(w, b):
        own = copy.deepcopy(body)
        own.load_state_dict(w)
        first = copy.deepcopy(own)
        head = b["head"].clone().requires_grad_()
        optimizer = torch.optim.SGD([*own.parameters(), head], lr=0.1)
        seeded = torch.Generator().manual_seed(4)
        rows, held = random_split(TensorDataset(b["x"], b["y"]), [8, 2], generator=seeded)
        for _ in range(2):
            for x, y in DataLoader(rows, batch_size=3, shuffle=True, generator=seeded):
                optimizer.zero_grad()
                pairs = zip(own.parameters(), first.parameters())
                near = sum(((a - b.detach()) ** 2).sum() for a, b in pairs)
                (nn.functional.cross_entropy(own(x) @ head, y) + 0.1 * near).backward()
                optimizer.step()
        own.eval()
        ((x, y),) = DataLoader(held, batch_size=2)
        return OrderedDict(own.state_dict()), head.detach(), (own(x) @ head).detach()

    client = fl.local_computation(W, B)(train)

    @fl.federated_computation(F(W, S), F(B, C))
    def round_of(w, b):
        made = fl.federated_map(client, (fl.federated_broadcast(w), b))
        return fl.federated_mean(made[0]["0.weight"]), made

    w = OrderedDict((k, v.numpy().copy()) for k, v in body.state_dict().items())
    given = [
        OrderedDict(
            x=rng.normal(size=(10, 4)).astype(f32),
            y=rng.integers(0, 2, 10),
            head=rng.normal(size=(6, 2)).astype(f32),
        )
        for _ in range(4)
    ]
    expected = []
    for b in given:
        own = OrderedDict((k, torch.as_tensor(v.copy())) for k, v in w.items())
        expected.append(train(own, {k: torch.from_numpy(v) for k, v in b.items()}))
    for exact in (False, True):
        with fl.framework.get_context_stack().install(execution.LocalContext(exact=exact)):
            mean, found = round_of(w, given)
        close(mean, np.mean([state["0.weight"].numpy() for state, _, _ in expected], 0))
        for (state, head, held), (want, other, scores) in zip(found, expected):
            for name, value in want.items():
                close(state[name], value)
            close(head, other)
            close(held, scores)
