"""Training with the library as users of other systems do it, beside plain PyTorch."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

import stator.federated as fl
from stator.federated import aggregators, execution, learning, program
from stator.federated import framework as fw
from tests.federated.plain import OD, C, S, T, at, close, f32, i32, i64, mean, numbers, rows


def test_lora() -> None:
    """LoRA: adapters are trained, the rest of the module stands still."""
    torch.manual_seed(0)

    class LoRA(nn.Module):
        def __init__(self, base, rank=2):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
            self.b = nn.Parameter(torch.zeros(base.out_features, rank))

        def forward(self, x):
            return self.base(x) + (x @ self.a.T) @ self.b.T

    net = nn.Sequential(LoRA(nn.Linear(4, 8)), nn.SiLU(), LoRA(nn.Linear(8, 3)))
    model = learning.Model(net, F.cross_entropy, inputs=T(f32, [None, 4]), labels=T(i64, [None]))
    process = learning.build_fed_avg(
        model, client_optimizer=lambda p: torch.optim.AdamW(p, lr=0.01), steps=3
    )
    state = process.initialize()
    assert set(state["weights"]) == {"0.a", "0.b", "2.a", "2.b"}
    data = [rows(i, 6 + i) for i in range(3)]
    named = [{"inputs": x, "labels": y} for x, y in data]
    server = copy.deepcopy(net)
    for _ in range(2):
        state, _m = process.next(state, named)
        done = []
        for x, y in data:
            own = copy.deepcopy(server)
            opt = torch.optim.AdamW([p for p in own.parameters() if p.requires_grad], lr=0.01)
            for _ in range(3):
                opt.zero_grad()
                F.cross_entropy(own(torch.tensor(x)), torch.tensor(y)).backward()
                opt.step()
            done.append(
                OD((k, v.detach().numpy()) for k, v in own.named_parameters() if v.requires_grad)
            )
        merged = mean(done, [len(y) for _, y in data])
        with torch.no_grad():
            for k, v in server.named_parameters():
                if v.requires_grad:
                    v.copy_(torch.tensor(merged[k]))
        close(state["weights"], merged, 2e-4)


def test_language_model() -> None:
    """A recurrent network over padded texts: next-word prediction, perplexity at the clients."""
    torch.manual_seed(0)

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(11, 6, padding_idx=0)
            self.rnn = nn.LSTM(6, 7, batch_first=True)
            self.out = nn.Linear(7, 11)

        def forward(self, tokens):
            h, _ = self.rnn(self.emb(tokens))
            return self.out(h)

    net = LM()

    def loss(scores, tokens):
        return F.cross_entropy(
            scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0
        )

    model = learning.Model(net, loss, inputs=T(i64, [None, 5]), labels=T(i64, [None, 5]))
    process = learning.build_fed_avg(
        model,
        client_optimizer=lambda p: torch.optim.SGD(p, lr=0.5, nesterov=True, momentum=0.9),
        steps=2,
    )
    r = np.random.default_rng(0)
    texts = []
    for i in range(3):
        t = r.integers(1, 11, (4, 5))
        t[:, 3:] *= r.integers(0, 2, (4, 1))
        texts.append(t)
    state, metrics = process.next(process.initialize(), [{"inputs": t, "labels": t} for t in texts])
    done = []
    for t in texts:
        own = copy.deepcopy(net)
        opt = torch.optim.SGD(own.parameters(), lr=0.5, nesterov=True, momentum=0.9)
        for _ in range(2):
            opt.zero_grad()
            loss(own(torch.tensor(t)), torch.tensor(t)).backward()
            opt.step()
        done.append(numbers(own))
    close(state["weights"], mean(done), 1e-4)


def test_cnn_and_ema() -> None:
    """A convolutional classifier with group normalisation and weight averaging (EMA) at the server."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )

    def step(state, weights, update):
        new = {k: weights[k] - update[k] for k in weights}
        ema = OD((f"ema.{k}", 0.5 * state[f"ema.{k}"] + 0.5 * new[k]) for k in weights)
        return ema, OD(new)

    optimizer = learning.ServerOptimizer(
        lambda w: OD((f"ema.{k}", v.clone()) for k, v in w.items()), step
    )
    model = learning.Model(
        net, F.cross_entropy, inputs=T(f32, [None, 1, 8, 8]), labels=T(i64, [None])
    )
    process = learning.build_fed_avg(model, server_optimizer=optimizer, steps=2)
    r = np.random.default_rng(0)
    data = [(r.normal(size=(n, 1, 8, 8)).astype(f32), r.integers(0, 10, n)) for n in (4, 6, 4)]
    state = process.initialize()
    server, ema = copy.deepcopy(net), numbers(net)
    for _ in range(2):
        state, _m = process.next(state, [{"inputs": x, "labels": y} for x, y in data])
        done = []
        for x, y in data:
            own = copy.deepcopy(server)
            opt = torch.optim.SGD(own.parameters(), lr=0.1)
            for _ in range(2):
                opt.zero_grad()
                F.cross_entropy(own(torch.tensor(x)), torch.tensor(y)).backward()
                opt.step()
            done.append(numbers(own))
        merged = mean(done, [4, 6, 4])
        server.load_state_dict({k: torch.tensor(v) for k, v in merged.items()})
        ema = OD((k, 0.5 * ema[k] + 0.5 * merged[k]) for k in ema)
        close(state["weights"], merged, 2e-4)
        close(OD((k, state["optimizer"][f"ema.{k}"]) for k in ema), ema, 2e-4)


def test_sign_votes() -> None:
    """An aggregation factory of one's own: sign votes, with the library's process."""

    class SignFactory(aggregators.AggregationFactory):
        def create(self, value_type, weight_type=None):
            value_type = fl.to_type(value_type)
            sign = fl.local_computation(value_type)(
                lambda v: OD((k, torch.sign(t).to(torch.int32)) for k, t in v.items())
            )
            SIGNS = sign.type_signature.result
            vote = fl.local_computation(SIGNS)(
                lambda v: OD((k, 0.01 * torch.sign(t).to(torch.float32)) for k, t in v.items())
            )
            init = fl.federated_computation(lambda: fl.federated_value(0, S))
            inc = fl.local_computation(i32)(lambda n: n + 1)

            @fl.federated_computation(at(S, i32), at(C, value_type))
            def step(state, value):
                total = fl.federated_sum(fl.federated_map(sign, value))
                return OD(
                    state=fl.federated_map(inc, state),
                    result=fl.federated_map(vote, total),
                    measurements=fl.federated_map(inc, state),
                )

            return aggregators.AggregationProcess(init, step, False)

    torch.manual_seed(2)
    net = nn.Linear(4, 3)
    model = learning.Model(net, F.cross_entropy, inputs=T(f32, [None, 4]), labels=T(i64, [None]))
    process = learning.build_fed_avg(model, model_aggregator=SignFactory())
    data = [rows(i, 6) for i in range(5)]
    state, metrics = process.next(
        process.initialize(), [{"inputs": x, "labels": y} for x, y in data]
    )
    w = {k: torch.tensor(v) for k, v in numbers(net).items()}
    grads = [
        torch.func.grad(
            lambda w: F.cross_entropy(
                torch.func.functional_call(net, w, torch.tensor(x)), torch.tensor(y)
            )
        )(w)
        for x, y in data
    ]
    close(
        state["weights"],
        OD((k, w[k] - 0.01 * torch.sign(sum(torch.sign(g[k]) for g in grads))) for k in w),
    )


@pytest.mark.parametrize("kind", ["pandas", "loader", "memmap", "lists"])
def test_sources(kind: str, tmp_path: Path) -> None:
    """Data out of pandas, by user; out of a DataLoader; out of NumPy files: the same training."""
    x, y = rows(0, 40)
    user = np.repeat([f"u{i}" for i in range(5)], 8)
    order = np.random.default_rng(3).permutation(40)
    if kind == "pandas":
        pd = pytest.importorskip("pandas")
        table = pd.DataFrame(
            {**{f"f{i}": x[order, i] for i in range(4)}, "label": y[order], "user": user[order]}
        )
        clients = [
            {"inputs": g[[f"f{i}" for i in range(4)]].to_numpy(), "labels": g["label"].to_numpy()}
            for _, g in table.groupby("user", sort=True)
        ]
    elif kind == "loader":
        ds = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y))
        clients = []
        for i in range(5):
            loader = torch.utils.data.DataLoader(
                torch.utils.data.Subset(ds, range(8 * i, 8 * i + 8)), batch_size=3
            )
            inputs, labels = learning.rows_of(loader)
            clients.append({"inputs": inputs, "labels": labels})
    elif kind == "memmap":
        np.save(tmp_path / "x.npy", x)
        m = np.load(tmp_path / "x.npy", mmap_mode="r")
        clients = [
            {"inputs": m[8 * i : 8 * i + 8], "labels": y[8 * i : 8 * i + 8]} for i in range(5)
        ]
    else:
        clients = [
            {"inputs": x[8 * i : 8 * i + 8].tolist(), "labels": y[8 * i : 8 * i + 8].tolist()}
            for i in range(5)
        ]
    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    model = learning.Model(net, F.cross_entropy, inputs=T(f32, [None, 4]), labels=T(i64, [None]))
    process = learning.build_fed_avg(model)
    state, _ = process.next(process.initialize(), clients)
    w = torch.tensor(numbers(net)["weight"]), torch.tensor(numbers(net)["bias"])
    done = []
    for i in range(5):
        g = torch.func.grad(
            lambda w: F.cross_entropy(
                torch.tensor(x[8 * i : 8 * i + 8]) @ w[0].T + w[1],
                torch.tensor(y[8 * i : 8 * i + 8]),
            )
        )(w)
        done.append(OD(weight=w[0] - 0.1 * g[0], bias=w[1] - 0.1 * g[1]))
    close(state["weights"], mean(done))


def test_resumed_schedule(tmp_path: Path) -> None:
    """A program that is stopped and goes on, whose server's rate follows its round."""
    W = T(f32, [4, 3])
    STATE = OD(w=W, m=W, round=i32, rate=f32)
    init = fl.federated_computation(
        lambda: fl.federated_eval(
            fl.local_computation(
                lambda: OD(
                    w=torch.zeros(4, 3),
                    m=torch.zeros(4, 3),
                    round=torch.zeros((), dtype=torch.int32),
                    rate=torch.tensor(1.0),
                )
            ),
            S,
        )
    )
    client = fl.local_computation(W, T(f32, [6, 4]), T(i64, [6]))(
        lambda w, x, y: torch.func.grad(lambda w: F.cross_entropy(x @ w, y))(w)
    )

    def server(s, g):
        m = 0.9 * s["m"] + g
        rate = torch.where(s["round"] % 2 == 1, s["rate"] * 0.5, s["rate"])
        return OD(w=s["w"] - rate * m, m=m, round=s["round"] + 1, rate=rate)

    at_server = fl.local_computation(STATE, W)(server)

    @fl.federated_computation(at(S, STATE), at(C, (T(f32, [6, 4]), T(i64, [6]))))
    def step(state, d):
        g = fl.federated_mean(
            fl.federated_map(client, (fl.federated_broadcast(state["w"]), d[0], d[1]))
        )
        return fl.federated_map(at_server, (state, g))

    data = [rows(i, 6) for i in range(3)]

    async def go(rounds, folder):
        manager = program.FileProgramStateManager(folder)
        state, version = await manager.load_latest(await program.materialize_value(init()))
        if state is None:
            state, version = init(), 0
        for number in range(version + 1, rounds + 1):
            state = step(state, data)
            await manager.save(state, number)
        return await program.materialize_value(state)

    context = program.NativeFederatedContext(execution.LocalContext())
    with fw.get_context_stack().install(context):
        asyncio.run(go(2, tmp_path / "a"))
        resumed = asyncio.run(go(5, tmp_path / "a"))
        straight = asyncio.run(go(5, tmp_path / "b"))
    for k in straight:
        assert np.array_equal(resumed[k], straight[k]), k
    p = OD(w=torch.zeros(4, 3), m=torch.zeros(4, 3), round=torch.tensor(0), rate=torch.tensor(1.0))
    for _ in range(5):
        g = (
            sum(
                torch.func.grad(lambda w: F.cross_entropy(torch.tensor(x) @ w, torch.tensor(y)))(
                    p["w"]
                )
                for x, y in data
            )
            / 3
        )
        p = server(p, g)
    close(straight["w"], p["w"])


class _Tagger(nn.Module):
    """Texts of different lengths, packed."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(12, 4, padding_idx=0)
        self.steps = nn.LSTM(4, 5, batch_first=True, bidirectional=True)
        self.last = nn.Linear(10, 3)

    def forward(self, words: Any) -> Any:
        lengths = (words != 0).sum(1)
        packed = nn.utils.rnn.pack_padded_sequence(
            self.words(words), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        output, (ends, _) = self.steps(packed)
        padded, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True, total_length=6)
        return self.last(torch.cat([ends[0], ends[1]], 1)) + padded.amax(1)[:, :3]


@pytest.mark.parametrize("exact", [False, True])
def test_packed_texts(exact: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A recurrent network on packed sequences, for many clients at once."""
    caplog.set_level("INFO", "stator.federated")
    torch.manual_seed(0)
    net = _Tagger()
    model = learning.Model(net, F.cross_entropy, inputs=T(i64, [None, 6]), labels=T(i64, [None]))
    process = learning.build_fed_avg(model, steps=2)
    r = np.random.default_rng(0)
    data = []
    for count in (3, 4, 3, 3):
        words = r.integers(1, 12, (count, 6))
        words[np.arange(6) >= r.integers(1, 7, (count, 1))] = 0
        data.append((words, r.integers(0, 3, count)))
    with fw.get_context_stack().install(execution.LocalContext(exact=exact)):
        state, _ = process.next(
            process.initialize(), [{"inputs": words, "labels": labels} for words, labels in data]
        )
    # Clients with as many texts run at once: how a text is packed has no rule for padding.
    assert all("for clients with as many rows" in record.msg for record in caplog.records)
    done = []
    for words, labels in data:
        own = copy.deepcopy(net)
        opt = torch.optim.SGD(own.parameters(), lr=0.1)
        for _ in range(2):
            opt.zero_grad()
            F.cross_entropy(own(torch.tensor(words)), torch.tensor(labels)).backward()
            opt.step()
        done.append(numbers(own))
    close(state["weights"], mean(done, [len(labels) for _, labels in data]), 1e-4)
