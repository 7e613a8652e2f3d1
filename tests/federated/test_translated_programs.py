"""Programs as users of other systems write them, translated, beside plain NumPy and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional as F

import stator.federated as fl
from tests.federated.plain import OD, C, S, T, at, close, f32, i32, i64, rows


def test_numpy_client() -> None:
    """Flower's NumPyClient: lists of arrays, a config, a number of examples, metrics."""

    class NumPyClient:
        def fit(self, parameters, config, x, y):
            w, b = parameters
            w, b = w.copy(), b.copy()
            for _ in range(int(config["epochs"])):
                p = 1 / (1 + np.exp(-(x @ w + b)))
                w -= config["lr"] * (x.T @ (p - y)) / len(y)
                b -= config["lr"] * (p - y).mean()
            loss = -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))
            return [w.astype(f32), np.float32(b)], np.int32(len(y)), {"loss": np.float32(loss)}

    client = NumPyClient()
    P = fl.to_type([T(f32, [4]), f32])
    CONFIG = fl.to_type(OD(epochs=i32, lr=f32))
    fit = fl.local_computation(
        lambda parameters, config, x, y: client.fit(parameters, config, x, y),
        P,
        CONFIG,
        T(f32, [None, 4]),
        T(f32, [None]),
        result=(P, i32, OD(loss=f32)),
    )

    @fl.federated_computation(at(S, P), at(S, CONFIG), at(C, (T(f32, [None, 4]), T(f32, [None]))))
    def fit_round(parameters, config, data):
        res = fl.federated_map(
            fit,
            (fl.federated_broadcast(parameters), fl.federated_broadcast(config), data[0], data[1]),
        )
        return fl.federated_mean(res[0], res[1]), fl.federated_mean(res[2], res[1])

    data = [rows(i, n, classes=2) for i, n in enumerate([6, 9, 12])]
    data = [(x, y.astype(f32)) for x, y in data]
    params, config = [np.zeros(4, f32), f32(0)], {"epochs": 3, "lr": 0.5}
    got, metrics = fit_round(params, config, data)
    done = [
        client.fit([params[0], np.asarray(params[1])], {"epochs": 3, "lr": f32(0.5)}, x, y)
        for x, y in data
    ]
    n = sum(int(d[1]) for d in done)
    assert isinstance(got, list)
    close(got[0], sum(d[0][0] * int(d[1]) for d in done) / n)
    close(got[1], sum(d[0][1] * int(d[1]) for d in done) / n)
    close(metrics["loss"], sum(d[2]["loss"] * int(d[1]) for d in done) / n)


def test_templates() -> None:
    """TFF's templates: initialise, next with a result and metrics in attrs; sums of nested structs with zip."""
    import attrs

    @attrs.define
    class ServerState:
        model: Any
        rounds: Any

    @attrs.define
    class Output:
        state: Any
        metrics: Any

    W = fl.to_type(OD(w=T(f32, [4]), b=f32))
    STATE = fl.to_type(ServerState(W, i32))

    @fl.local_computation
    def init_fn():
        return ServerState(
            OD(w=torch.zeros(4), b=torch.zeros(())), torch.tensor(0, dtype=torch.int32)
        )

    @fl.federated_computation
    def initialize():
        return fl.federated_eval(init_fn, S)

    def client_update(model, x, y):
        err = x @ model["w"] + model["b"] - y
        return OD(w=x.T @ err / len(y), b=err.mean()), OD(
            sse=(err**2).sum(), n=torch.ones_like(y).sum()
        )

    client = fl.local_computation(W, T(f32, [None, 4]), T(f32, [None]))(client_update)

    @fl.local_computation(STATE, W)
    def server_update(state, g):
        return ServerState(
            OD((k, state.model[k] - 0.1 * g[k]) for k in state.model), state.rounds + 1
        )

    @fl.local_computation(OD(sse=f32, n=f32))
    def finalize(m):
        return OD(mse=m["sse"] / m["n"], n=m["n"])

    @fl.federated_computation(
        at(S, STATE),
        at(C, fl.StructWithPythonType([("x", T(f32, [None, 4])), ("y", T(f32, [None]))], dict)),
    )
    def next_fn(state, data):
        model = fl.federated_broadcast(state.model)
        both = fl.federated_zip(OD(model=model, data=data))
        made = fl.federated_map(client, (both.model, both.data.x, both.data.y))
        weight = made[1].n
        g = fl.federated_mean(made[0], weight)
        return Output(
            fl.federated_map(server_update, (state, g)),
            fl.federated_map(finalize, fl.federated_sum(made[1])),
        )

    state = initialize()
    r = np.random.default_rng(0)
    data = [
        {"x": r.normal(size=(n, 4)).astype(f32), "y": r.normal(size=n).astype(f32)}
        for n in (3, 5, 5)
    ]
    p = OD(w=torch.zeros(4), b=torch.zeros(()))
    for _ in range(3):
        out = next_fn(state, data)
        state = out.state
        assert isinstance(out, Output) and isinstance(state, ServerState)
        done = [client_update(p, torch.tensor(d["x"]), torch.tensor(d["y"])) for d in data]
        n = sum(d[1]["n"] for d in done)
        close(out.metrics["mse"], sum(d[1]["sse"] for d in done) / n)
        p = OD((k, p[k] - 0.1 * sum(d[0][k] * d[1]["n"] for d in done) / n) for k in p)
        close(state.model, p)


def test_custom_aggregate_by_hand() -> None:
    """Custom aggregator by hand: clipped mean with federated_aggregate, a struct accumulator."""
    V = OD(a=T(f32, [3]), b=T(f32, [2, 2]))
    ACC = OD(total=V, count=i32, clipped=i32, worst=f32)

    def accumulate(acc, value):
        norm = torch.sqrt(sum(t.pow(2).sum() for t in value.values()))
        scale = torch.clamp(1.0 / norm, max=1.0)
        return OD(
            total=OD((k, acc["total"][k] + scale * value[k]) for k in value),
            count=acc["count"] + 1,
            clipped=acc["clipped"] + (norm > 1).to(torch.int32),
            worst=torch.maximum(acc["worst"], norm),
        )

    acc_fn = fl.local_computation(ACC, V)(accumulate)
    merge = fl.local_computation(ACC, ACC)(
        lambda p, q: OD(
            total=OD((k, p["total"][k] + q["total"][k]) for k in p["total"]),
            count=p["count"] + q["count"],
            clipped=p["clipped"] + q["clipped"],
            worst=torch.maximum(p["worst"], q["worst"]),
        )
    )
    report = fl.local_computation(ACC)(
        lambda a: ({k: t / a["count"] for k, t in a["total"].items()}, a["clipped"], a["worst"])
    )

    ZERO = fl.local_computation(
        lambda: OD(
            total=OD(a=torch.zeros(3), b=torch.zeros(2, 2)),
            count=torch.tensor(0, dtype=torch.int32),
            clipped=torch.tensor(0, dtype=torch.int32),
            worst=torch.tensor(0.0),
        )
    )

    @fl.federated_computation(at(C, V))
    def clipped_mean(values):
        return fl.federated_aggregate(values, ZERO(), acc_fn, merge, report)

    r = np.random.default_rng(3)
    values = [
        OD(a=r.normal(size=3).astype(f32) * i, b=r.normal(size=(2, 2)).astype(f32) * i)
        for i in (0.1, 0.3, 2)
    ]
    got, clipped, worst = clipped_mean(values)
    norms = [float(np.sqrt(sum((v**2).sum() for v in d.values()))) for d in values]
    want = {k: sum(d[k] * min(1, 1 / n) for d, n in zip(values, norms)) / 3 for k in "ab"}
    close(dict(got), want)
    assert clipped == sum(n > 1 for n in norms)
    close(worst, max(norms))


def test_tree_by_hand() -> None:
    """DP-FTRL with a binary tree held by hand: the noise is handed in, so that sums can be compared."""
    LEVELS = 4
    STATE = OD(round=i32, nodes=T(f32, [LEVELS, 3]), total=T(f32, [3]))

    def add(state, value, fresh):
        r = state["round"] + 1
        bits = (r >> torch.arange(LEVELS, dtype=torch.int32)) & 1
        before = (state["round"] >> torch.arange(LEVELS, dtype=torch.int32)) & 1
        turned = bits.bool() & ~before.bool()  # the node that this round completes
        kept = (bits & before).bool()
        nodes = torch.where(
            turned[:, None],
            fresh[None],
            torch.where(kept[:, None], state["nodes"], torch.zeros(())),
        )
        total = state["total"] + value
        return OD(round=r, nodes=nodes, total=total), total + nodes.sum(0)

    step = fl.local_computation(STATE, T(f32, [3]), T(f32, [3]))(add)

    @fl.federated_computation(at(S, STATE), at(C, T(f32, [3])), at(S, T(f32, [3])))
    def release(state, values, noise):
        return fl.federated_map(step, (state, fl.federated_sum(values), noise))

    r = np.random.default_rng(0)
    state = OD(round=0, nodes=np.zeros((LEVELS, 3), f32), total=np.zeros(3, f32))
    plain = OD(
        (k, torch.tensor(v, dtype=torch.int32) if k == "round" else torch.tensor(v))
        for k, v in state.items()
    )
    for _ in range(9):
        values, noise = r.normal(size=(4, 3)).astype(f32), r.normal(size=3).astype(f32)
        state, released = release(state, list(values), noise)
        plain, expected = add(plain, torch.tensor(values.sum(0)), torch.tensor(noise))
        close(released, expected)
    assert state["round"] == 9


def test_krum_by_hand() -> None:
    """Krum by hand on collected updates, in PyTorch at the server through a sequence."""

    def krum(updates):
        u = np.stack(list(updates))
        d = ((u[:, None] - u[None]) ** 2).sum(-1)
        score = np.sort(d, 1)[:, 1:4].sum(1)
        return u[score.argmin()]

    at_server = fl.local_computation(krum, fl.SequenceType(T(f32, [3])), result=T(f32, [3]))

    @fl.federated_computation(at(C, T(f32, [3])))
    def robust(updates):
        return fl.federated_map(at_server, fl.federated_collect(updates))

    r = np.random.default_rng(0)
    values = [r.normal(size=3).astype(f32) for _ in range(6)] + [np.full(3, 1e6, f32)]
    close(robust(values), krum(values))


def test_pairwise_masks() -> None:
    """Masks that cancel: what a server of secure sums sees wraps at 32 bits."""
    N = 4
    encode = fl.local_computation(T(f32, [3]), T(i32, [3]))(
        lambda v, mask: torch.round(v * 2**16).to(torch.int32) + mask
    )
    decode = fl.local_computation(T(i32, [3]))(lambda s: s.to(torch.float32) / 2**16)

    @fl.federated_computation(at(C, T(f32, [3])), at(C, T(i32, [3])))
    def total(values, masks):
        return fl.federated_map(decode, fl.federated_sum(fl.federated_map(encode, (values, masks))))

    r = np.random.default_rng(0)
    masks = np.zeros((N, 3), np.int64)
    for i in range(N):
        for j in range(i + 1, N):
            m = r.integers(-(2**31), 2**31, 3)
            masks[i] += m
            masks[j] -= m
    values = r.normal(size=(N, 3)).astype(f32)
    got = total(list(values), list(masks.astype(i32)))
    close(got, np.round(values * 2**16).sum(0) / 2**16, 1e-6)


def test_metrics_over_clients() -> None:
    """Client-side metrics: percentiles over clients, the worst clients, a histogram of accuracies."""
    W = T(f32, [4, 3])
    accuracy = fl.local_computation(W, T(f32, [None, 4]), T(i64, [None]))(
        lambda w, x, y: ((x @ w).argmax(-1) == y).float().mean()
    )

    def summary(values):
        values = np.sort(np.asarray(list(values), f32))
        return np.percentile(values, [10, 50, 90]).astype(f32), values[:2].mean(dtype=f32)

    at_server = fl.local_computation(summary, fl.SequenceType(f32), result=(T(f32, [3]), f32))

    @fl.federated_computation(at(S, W), at(C, (T(f32, [None, 4]), T(i64, [None]))))
    def evaluate(w, data):
        acc = fl.federated_map(accuracy, (fl.federated_broadcast(w), data[0], data[1]))
        return (
            fl.federated_map(at_server, fl.federated_collect(acc)),
            fl.federated_min(acc),
            fl.federated_max(acc),
        )

    w = np.random.default_rng(0).normal(size=(4, 3)).astype(f32)
    data = [rows(i, 10 + i) for i in range(7)]
    (quantiles, worst), low, high = evaluate(w, data)
    accs = np.sort([np.mean(((x @ w).argmax(-1) == y)) for x, y in data])
    close(quantiles, np.percentile(accs, [10, 50, 90]))
    close(worst, accs[:2].mean())
    close([low, high], [accs[0], accs[-1]])


def test_hyperloglog() -> None:
    """Federated analytics: distinct values by a HyperLogLog sketch, merged by maximum."""
    buckets = 64

    def sketch(values):
        h = values * 2654435761 + 12345
        h = (h ^ (h >> 16)) * 0x45D9F3B
        h = h ^ (h >> 16)
        bucket = torch.remainder(h, buckets)
        rest = (torch.div(h, buckets, rounding_mode="floor")) & 0xFFFFFF
        rank = 24 - torch.floor(torch.log2(rest.double() + 1)).to(torch.int64)
        return torch.zeros(buckets, dtype=torch.int64).scatter_reduce(0, bucket, rank, "amax")

    def estimate(s):
        alpha = 0.709
        e = alpha * buckets**2 / torch.pow(2.0, -s.to(torch.float64)).sum()
        empty = (s == 0).sum()
        return torch.where(
            (e < 160) & (empty > 0), buckets * torch.log(buckets / empty.clamp(min=1).double()), e
        )

    local, at_server = (
        fl.local_computation(T(i64, [None]))(sketch),
        fl.local_computation(T(i64, [buckets]))(estimate),
    )

    @fl.federated_computation(at(C, T(i64, [None])))
    def distinct(values):
        return fl.federated_map(at_server, fl.federated_max(fl.federated_map(local, values)))

    r = np.random.default_rng(5)
    data = [r.integers(0, 900, n) for n in (50, 50, 80, 200)]
    got = distinct(data)
    want = estimate(torch.stack([sketch(torch.tensor(d)) for d in data]).amax(0))
    close(got, want)
    assert abs(got - len(set(np.concatenate(data)))) < 120


def test_count_min() -> None:
    """Count-min sketch and a heavy-hitter query from several hashes."""
    a = torch.tensor([[31], [131], [1313]])
    width = 50

    def sketch(words):
        place = (words[None] * a + 7) % 10007 % width
        flat = (place + torch.arange(3)[:, None] * width).flatten()
        return torch.bincount(flat, minlength=3 * width).reshape(3, width)

    def masked(words):  # a size that data can't decide
        place = (words[None] * a + 7) % 10007 % width
        return F.one_hot(place, width).sum(1)

    query = fl.local_computation(T(i64, [3, width]), T(i64, [None]))(
        lambda table, words: table.gather(1, (words[None] * a + 7) % 10007 % width).amin(0)
    )
    local = fl.local_computation(T(i64, [None]))(masked)

    @fl.federated_computation(at(C, T(i64, [None])), at(S, T(i64, [None])))
    def counts(words, asked):
        return fl.federated_map(query, (fl.federated_sum(fl.federated_map(local, words)), asked))

    r = np.random.default_rng(6)
    data = [np.minimum(r.zipf(1.5, n), 400) for n in (40, 60, 80)]
    got = counts(data, [1, 2, 3, 17])
    table = sum(sketch(torch.tensor(d)) for d in data)
    want = table.gather(1, (torch.tensor([[1, 2, 3, 17]]) * a + 7) % 10007 % width).amin(0)
    assert got.tolist() == want.tolist()


def test_pca() -> None:
    """Federated PCA: sums of products, eigenvectors at the server."""
    moments = fl.local_computation(T(f32, [None, 5]))(
        lambda x: OD(
            n=torch.tensor(x.shape[0]), sum=x.double().sum(0), outer=x.double().T @ x.double()
        )
    )

    def decompose(m):
        mu = m["sum"] / m["n"]
        cov = m["outer"] / m["n"] - torch.outer(mu, mu)
        values, vectors = torch.linalg.eigh(cov)
        return values.flip(0)[:2], vectors.flip(1)[:, :2].abs()

    @fl.federated_computation(at(C, T(f32, [None, 5])))
    def pca(x):
        total = fl.federated_sum(fl.federated_map(moments, x))
        return fl.federated_map(
            fl.local_computation(OD(n=i64, sum=T(np.float64, [5]), outer=T(np.float64, [5, 5])))(
                decompose
            ),
            total,
        )

    r = np.random.default_rng(8)
    data = [(r.normal(size=(n, 5)) * [5, 3, 1, 0.5, 0.1]).astype(f32) for n in (20, 31, 44)]
    values, vectors = pca(data)
    cov = np.cov(np.concatenate(data).astype(float).T, bias=True)
    w, v = np.linalg.eigh(cov)
    close(values, w[::-1][:2])
    close(vectors, np.abs(v[:, ::-1][:, :2]))


def test_mixture_of_gaussians() -> None:
    """Expectation maximisation of a mixture of Gaussians."""
    K, D = 3, 2
    MIX = OD(pi=T(f32, [K]), mu=T(f32, [K, D]), var=T(f32, [K, D]))

    def expectation(m, x):
        log = -0.5 * (
            ((x[:, None] - m["mu"]) ** 2 / m["var"]) + torch.log(2 * torch.pi * m["var"])
        ).sum(-1)
        log = log + m["pi"].log()
        norm = torch.logsumexp(log, 1, keepdim=True)
        r = (log - norm).exp()
        return OD(
            n=r.sum(0),
            x=torch.einsum("nk,nd->kd", r, x),
            xx=torch.einsum("nk,nd->kd", r, x * x),
            ll=norm.sum(),
        )

    def maximisation(s):
        n = s["n"][:, None]
        mu = s["x"] / n
        return OD(pi=s["n"] / s["n"].sum(), mu=mu, var=(s["xx"] / n - mu**2).clamp_min(1e-3)), s[
            "ll"
        ]

    SUMS = OD(n=T(f32, [K]), x=T(f32, [K, D]), xx=T(f32, [K, D]), ll=f32)
    e = fl.local_computation(MIX, T(f32, [None, D]))(expectation)
    m = fl.local_computation(SUMS)(maximisation)

    @fl.federated_computation(at(S, MIX), at(C, T(f32, [None, D])))
    def iteration(mix, x):
        return fl.federated_map(
            m, fl.federated_sum(fl.federated_map(e, (fl.federated_broadcast(mix), x)))
        )

    r = np.random.default_rng(1)
    data = [
        (r.normal(size=(n, D)) + 3 * r.integers(-1, 2, (n, 1))).astype(f32)
        for n in (30, 20, 30, 45)
    ]
    mix = OD(
        pi=np.full(K, 1 / K, f32), mu=r.normal(size=(K, D)).astype(f32), var=np.ones((K, D), f32)
    )
    plain = OD((k, torch.tensor(v)) for k, v in mix.items())
    for _ in range(5):
        mix, ll = iteration(mix, data)
        sums = [expectation(plain, torch.tensor(x)) for x in data]
        plain, expected = maximisation(OD((k, sum(s[k] for s in sums)) for k in sums[0]))
        close(mix, plain, 1e-3)
        close(ll, expected, 1e-3)


def test_boosting_histogram() -> None:
    """Gradient boosting: histograms of gradients, the best split at the server."""
    BINS, FEATURES = 8, 3
    edges = torch.linspace(-2, 2, BINS - 1)

    def histogram(x, y, score):
        p = torch.sigmoid(score)
        g, h = p - y, p * (1 - p)
        bin_ = torch.bucketize(x, edges)  # rows, features
        place = bin_ + torch.arange(FEATURES) * BINS
        hist = torch.zeros(BINS * FEATURES, 2)
        both = torch.stack([g, h], -1)[:, None].expand(-1, FEATURES, -1).reshape(-1, 2)
        return hist.index_add(0, place.reshape(-1), both).reshape(FEATURES, BINS, 2)

    def best(hist):
        left = hist.cumsum(1)
        whole = left[:, -1:]
        right = whole - left
        gain = (
            left[..., 0] ** 2 / (left[..., 1] + 1) + right[..., 0] ** 2 / (right[..., 1] + 1)
        ).flatten()
        at_ = gain.argmax()
        return at_ // BINS, at_ % BINS, gain.max()

    X = OD(x=T(f32, [None, FEATURES]), y=T(f32, [None]), score=T(f32, [None]))
    local = fl.local_computation(T(f32, [None, FEATURES]), T(f32, [None]), T(f32, [None]))(
        histogram
    )
    split = fl.local_computation(T(f32, [FEATURES, BINS, 2]))(best)

    @fl.federated_computation(at(C, X))
    def grow(d):
        return fl.federated_map(
            split, fl.federated_sum(fl.federated_map(local, (d.x, d.y, d.score)))
        )

    r = np.random.default_rng(2)
    data = []
    for n in (12, 15, 12):
        x = r.normal(size=(n, FEATURES)).astype(f32)
        data.append(OD(x=x, y=(x[:, 1] > 0.3).astype(f32), score=np.zeros(n, f32)))
    feature, cut, gain = grow(data)
    total = sum(histogram(*(torch.tensor(v) for v in d.values())) for d in data)
    want = best(total)
    assert (feature, cut) == (int(want[0]), int(want[1])) and feature == 1
    close(gain, want[2])


def test_seeded_noise_by_hand() -> None:
    """Data augmentation and dropout by a client's own seed: counter-based draws written by hand."""

    def noise(seed, n):
        c = torch.arange(n, dtype=torch.int64) + seed * 1000003
        c = (c ^ (c >> 13)) * 1274126177 % 2147483647
        return (c % 10000).to(torch.float32) / 10000 - 0.5

    def client(w, seed):
        return (w + noise(seed, 4)).clamp(-1, 1)

    local = fl.local_computation(T(f32, [4]), i64)(client)

    @fl.federated_computation(at(S, T(f32, [4])), at(C, i64))
    def noisy(w, seeds):
        return fl.federated_mean(fl.federated_map(local, (fl.federated_broadcast(w), seeds)))

    w = np.arange(4, dtype=f32) / 4
    close(
        noisy(w, list(range(6))),
        sum(client(torch.tensor(w), torch.tensor(s)) for s in range(6)) / 6,
    )
