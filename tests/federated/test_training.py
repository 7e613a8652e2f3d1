"""Training over rounds: who takes part, where rows come from, checkpoints, and being killed."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import stator.federated as fl
from stator.federated import aggregators, learning, program
from stator.federated._executors import ClientsLostError
from stator.federated.execution import LocalContext
from stator.federated.framework import RetryableError
from stator.federated.learning._checkpoints import read

REPOSITORY = Path(__file__).resolve().parents[2]


def a_model() -> learning.Model:
    torch.manual_seed(5)
    return learning.Model(
        nn.Linear(2, 2),
        nn.functional.cross_entropy,
        inputs=fl.TensorType(np.float32, [None, 2]),
        labels=fl.TensorType(np.int64, [None]),
    )


def a_process(factory: Any = None) -> learning.IterativeProcess:
    return learning.build_fed_avg(a_model(), model_aggregator=factory)


def some_data(clients: int = 12) -> learning.ClientData:
    inputs = np.random.default_rng(2).normal(size=(120, 2)).astype(np.float32)
    labels = (inputs[:, 0] > inputs[:, 1]).astype(np.int64)
    return learning.ClientData(inputs, labels, learning.partition_evenly(120, clients))


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, list):
        for each, wanted in zip(found, expected, strict=True):
            same(each, wanted)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            same(found[name], expected[name])
    else:
        np.testing.assert_array_equal(found, expected)


# Who takes part.


def test_a_sampler_chooses_the_same_for_the_same_round() -> None:
    for sampler in (
        learning.UniformSampler(50, 7, seed=3),
        learning.PoissonSampler(50, 0.2, seed=3),
    ):
        chosen = [sampler.sample(number) for number in range(20)]
        assert chosen == [sampler.sample(number) for number in range(20)]
        assert len({tuple(each) for each in chosen}) == 20
        assert sampler.sample(0) != sampler.sample(0, attempt=1)
        for each in chosen:
            assert len(set(each)) == len(each)
            assert all(0 <= position < 50 for position in each)
    counts = [len(learning.PoissonSampler(1000, 0.1).sample(number)) for number in range(50)]
    assert 80 < np.mean(counts) < 120
    assert all(len(learning.UniformSampler(9, 9).sample(number)) == 9 for number in range(5))
    seen = np.bincount(
        [at for number in range(2000) for at in learning.UniformSampler(10, 3).sample(number)]
    )
    assert seen.min() > 500 and seen.max() < 700


def test_the_first_that_report_count() -> None:
    sampler = learning.UniformSampler(30, 10)
    cohort = learning.Cohort(sampler, report_goal=6, quorum=3)
    loaded: list[int] = []

    def load(position: int) -> int:
        loaded.append(position)
        if position == sampler.sample(4)[1]:
            raise learning.ClientUnavailableError
        return position * 10

    positions, rows = cohort.gather(load, 4)
    asked = sampler.sample(4)
    assert positions == [asked[0], *asked[2:7]]
    assert rows == [position * 10 for position in positions]
    # The others aren't asked for anything.
    assert loaded == asked[:7]


def test_the_first_that_report_are_those_that_take_least() -> None:
    sampler = learning.UniformSampler(30, 10, seed=2)
    asked = sampler.sample(4)
    seconds = {position: (at * 7) % 10 + 0.5 for at, position in enumerate(asked)}

    def latency(position: int, round_number: int) -> float:
        assert round_number == 4
        return seconds[position]

    cohort = learning.Cohort(sampler, report_goal=4, latency=latency)
    positions, _ = cohort.gather(lambda position: position, 4)
    fastest = sorted(asked, key=seconds.__getitem__)
    # In the order in which they were asked, so that it makes no difference who was how fast.
    assert positions == [each for each in asked if each in fastest[:4]]
    gone = {fastest[0], fastest[2]}

    def load(position: int) -> int:
        if position in gone:
            raise learning.ClientUnavailableError
        return position

    positions, _ = cohort.gather(load, 4)
    assert set(positions) == {fastest[1], *fastest[3:6]}

    late = learning.Cohort(sampler, quorum=3, latency=latency, deadline=2.5)
    positions, _ = late.gather(lambda position: position, 4)
    assert {seconds[each] for each in positions} == {0.5, 1.5, 2.5}
    with pytest.raises(learning.QuorumError, match="has 2 clients that report"):
        dataclasses.replace(late, deadline=2.0).gather(lambda position: position, 4)
    never = learning.Cohort(sampler, latency=lambda position, _: float("inf"))
    with pytest.raises(learning.QuorumError, match="has 0 clients"):
        never.gather(lambda position: position, 4)
    for wrong in (-1.0, float("nan"), None, True):
        bad = learning.Cohort(sampler, latency=lambda *_, wrong=wrong: wrong)  # type: ignore[misc]
        with pytest.raises(ValueError, match=r"`latency` is to give seconds, 0 or more, not"):
            bad.gather(lambda position: position, 4)


def test_training_waits_until_the_deadline() -> None:
    process, data = a_process(), some_data()
    slow = {1, 4}
    cohort = learning.Cohort(
        learning.UniformSampler(12, 8, seed=1),
        latency=lambda position, round_number: 9.0 if position in slow else 1.0,
        deadline=5.0,
    )
    trained = learning.train(process, data, rounds=3, cohort=cohort, seed=1)
    for number, metrics in enumerate(trained.metrics):
        asked = set(cohort.sampler.sample(number))
        assert metrics["clients"] == len(asked - slow)


class Losing(fl.framework.SyncContext):
    """Loses clients of the rounds that come."""

    def __init__(self, *lost: range) -> None:
        super().__init__()
        self.lost = list(lost)
        self.local = LocalContext()

    def invoke(self, comp: Any, arg: Any) -> Any:
        if arg is not None and self.lost:
            raise ClientsLostError("they are gone", self.lost.pop(0))
        return self.local.invoke(comp, arg)


def test_a_round_goes_on_without_clients_that_are_lost() -> None:
    process, data = a_process(), some_data()
    cohort = learning.Cohort(learning.UniformSampler(12, 8), quorum=5)
    losing = Losing(range(2, 4), range(5, 6))
    with fl.framework.get_context_stack().install(losing):
        found = learning.train(process, data, rounds=1, cohort=cohort)
    _, rows = cohort.gather(data.__getitem__, 0)
    # The second time clients are counted without those of the first.
    left = [of for at, of in enumerate(rows) if at not in (2, 3, 7)]
    expected, _ = process.next(process.initialize(), left)
    same(found.state, expected)
    assert found.metrics[0]["clients"] == 5
    # What is too few isn't a round, but may be tried again, with others.
    for attempts in (1, 2):
        with fl.framework.get_context_stack().install(Losing(range(4))):
            if attempts == 2:
                again = learning.train(process, data, rounds=1, cohort=cohort, attempts=2)
                assert again.metrics[0]["clients"] == 8
                continue
            with pytest.raises(learning.QuorumError) as raised:
                learning.train(process, data, rounds=1, cohort=cohort)
    assert (raised.value.reported, raised.value.quorum) == (4, 5)
    assert isinstance(raised.value.__cause__, ClientsLostError)
    # Without a cohort nobody has said that fewer would do.
    with fl.framework.get_context_stack().install(Losing(range(1))):
        with pytest.raises(ClientsLostError, match="they are gone"):
            learning.train(process, data, rounds=1)


def test_dropout_is_that_of_the_round() -> None:
    cohort = learning.Cohort(learning.UniformSampler(500, 200), dropout=0.3)
    counts = [len(cohort.gather(lambda at: at, number)[0]) for number in range(20)]
    assert counts == [len(cohort.gather(lambda at: at, number)[0]) for number in range(20)]
    assert 120 < np.mean(counts) < 160 and len(set(counts)) > 1


def test_too_few_clients_are_no_round() -> None:
    process, data = a_process(), some_data()

    class Few(learning.ClientData):
        def __getitem__(self, position: Any) -> Any:
            if position not in (3, 4):
                raise learning.ClientUnavailableError
            return super().__getitem__(position)

    few = Few(data._inputs, data._labels, data._parts)
    cohort = learning.Cohort(learning.UniformSampler(12, 8), quorum=3)
    state = process.initialize()
    with pytest.raises(learning.QuorumError) as raised:
        learning.train(process, few, rounds=2, cohort=cohort)
    assert isinstance(raised.value, RetryableError)
    assert (raised.value.round_number, raised.value.quorum) == (0, 3)
    assert str(raised.value).startswith(f"a round has {raised.value.reported} clients that report")
    same(state, process.initialize())
    with pytest.raises(learning.QuorumError):
        learning.train(process, few, rounds=2, cohort=cohort, attempts=3)


class Chooser(learning.ClientSampler):
    """Chooses what it is told."""

    clients = 3

    def __init__(self, chosen: Any) -> None:
        self.chosen = chosen

    def sample(self, round_number: int, attempt: int = 0) -> Any:
        return self.chosen


@pytest.mark.parametrize(
    ("chosen", "error", "text"),
    [
        ([0, 3], ValueError, "a client that isn't there.*\n.*0 to 2\n  found:    3"),
        ([0, -1], ValueError, "a client that isn't there"),
        ([1, 0, 1], ValueError, "a client more than once.*\n.*\n  found:    1 again"),
        (["0"], TypeError, "no position of a client.*\n.*\n  found:    '0'"),
        ([True], TypeError, "no position of a client"),
        (None, TypeError, "no positions of clients"),
    ],
)
def test_what_a_sampler_chooses_is_looked_at(chosen: Any, error: Any, text: str) -> None:
    data = some_data(3)
    with pytest.raises(error, match="`sample` of Chooser gives") as met:
        learning.train(a_process(), data, rounds=1, cohort=Chooser(chosen))
    assert re.search(text, str(met.value)) and met.value.__notes__ == ["in round 1"]
    of = a_process().next.type_signature.parameter[1]
    source = program.ClientDataSource(data, of, sampler=Chooser(chosen))
    with pytest.raises(error, match="`sample` of Chooser gives"):
        source.iterator().select()
    right = program.ClientDataSource(data, of, sampler=Chooser(np.array([2, 0])))
    same(right.iterator().select(), [data[2], data[0]])


def test_an_evaluation_gives_metrics_by_names() -> None:
    with pytest.raises(
        TypeError, match=r"`evaluate` is to give metrics by their names, .* not 0.5"
    ):
        learning.train(a_process(), some_data(), rounds=1, evaluate=lambda _: 0.5)


def test_a_round_is_tried_again_with_others(capsys: pytest.CaptureFixture[str]) -> None:
    process, data = a_process(), some_data()
    sampler = learning.UniformSampler(12, 6)
    gone = set(sampler.sample(0)) - set(sampler.sample(0, 1))

    class Gone(learning.ClientData):
        def __getitem__(self, position: Any) -> Any:
            if position in gone:
                raise learning.ClientUnavailableError
            return super().__getitem__(position)

    cohort = learning.Cohort(sampler, quorum=6)
    data = Gone(data._inputs, data._labels, data._parts)
    found = learning.train(process, data, rounds=1, cohort=cohort, attempts=2, progress=True)
    assert found.metrics[0]["clients"] == 6
    assert "is tried again" in capsys.readouterr().err
    with pytest.raises(learning.QuorumError) as met:
        learning.train(process, data, rounds=1, cohort=cohort, attempts=1)
    assert met.value.__notes__ == ["in round 1"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: learning.UniformSampler(3, 4), "more than `population`"),
        (lambda: learning.PoissonSampler(3, 1.5), "`probability`"),
        (
            lambda: learning.Cohort(learning.UniformSampler(9, 4), report_goal=2, quorum=3),
            "`quorum`",
        ),
        (lambda: learning.Cohort(3), "`sampler`"),  # type: ignore[arg-type]
        (
            lambda: learning.Cohort(learning.UniformSampler(9, 4), deadline=3.0),
            r"`latency` says.*RayContext\(timeout",
        ),
        (
            lambda: learning.Cohort(
                learning.UniformSampler(9, 4), latency=lambda *_: 1.0, deadline=0.0
            ),
            "`deadline`",
        ),
        (
            lambda: learning.Cohort(learning.UniformSampler(9, 4), latency=3.0),  # type: ignore[arg-type]
            "`latency` is to be a function",
        ),
        (
            lambda: learning.train(
                a_process(), some_data(), rounds=1, cohort=learning.UniformSampler(9, 4)
            ),
            "9 clients",
        ),
        (lambda: learning.train(a_process(), some_data(), rounds=-1), "`rounds`"),
        (lambda: learning.train(learning.Model, some_data(), rounds=1), "`process` is to be"),  # type: ignore[arg-type]
        (
            lambda: learning.train(a_process(), iter(some_data()), rounds=1),  # type: ignore[arg-type]
            "`data` is to be a sequence",
        ),
    ],
)
def test_mistakes_are_said(make: Any, text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        make()


# Where rows come from.


def test_partitions_share_all_rows_out() -> None:
    labels = np.random.default_rng(0).integers(0, 5, 300)
    even = learning.partition_evenly(300, 7)
    skewed = learning.partition_by_dirichlet(labels, 7, 0.3, least_rows=5)
    users = learning.partition_by_user([f"user {at % 4}" for at in range(300)])
    for parts in (even, skewed, list(users.values())):
        assert sorted(np.concatenate(parts).tolist()) == list(range(300))
    assert {part.size for part in even} == {42, 43}
    assert min(part.size for part in skewed) >= 5
    assert list(users) == ["user 0", "user 1", "user 2", "user 3"]

    def difference(parts: Any) -> float:
        shares = [np.bincount(labels[part], minlength=5) / part.size for part in parts]
        return float(np.std(shares, axis=0).mean())

    alike = learning.partition_by_dirichlet(labels, 7, 1000.0)
    assert difference(alike) < difference(skewed) / 2
    again = learning.partition_by_dirichlet(labels, 7, 0.3, least_rows=5)
    assert all((one == other).all() for one, other in zip(skewed, again, strict=True))
    with pytest.raises(ValueError, match="can't have 50 rows each"):
        learning.partition_by_dirichlet(labels, 7, 0.3, least_rows=50)


class Table:
    """What `pandas.DataFrame` and Hugging Face's datasets have in common with nothing of theirs."""

    def __init__(self, columns: dict[str, Any], names: str) -> None:
        self._columns = columns
        setattr(self, names, list(columns))

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]


INPUTS = np.arange(12, dtype=np.float32).reshape(6, 2)
LABELS = np.arange(6) % 2


class Pairs:
    def __len__(self) -> int:
        return 6

    def __getitem__(self, at: int) -> Any:
        if at >= 6:
            raise IndexError
        return torch.from_numpy(INPUTS[at]), int(LABELS[at])


@pytest.mark.parametrize(
    "source",
    [
        (INPUTS, LABELS),
        (torch.from_numpy(INPUTS), torch.from_numpy(LABELS)),
        {"inputs": INPUTS.tolist(), "labels": LABELS.tolist()},
        Table({"inputs": INPUTS, "labels": LABELS}, "columns"),
        Table({"inputs": list(INPUTS), "labels": list(LABELS)}, "column_names"),
        Pairs(),
        torch.utils.data.TensorDataset(torch.from_numpy(INPUTS), torch.from_numpy(LABELS)),
        torch.utils.data.DataLoader(Pairs(), batch_size=4),  # type: ignore[arg-type]
    ],
)
def test_rows_come_from_what_has_them(source: Any) -> None:
    inputs, labels = learning.rows_of(source)
    np.testing.assert_array_equal(inputs, INPUTS)
    np.testing.assert_array_equal(labels, LABELS)


class Stream:
    """Rows by names, one after the other, of which nobody knows how many there are."""

    column_names = ("labels", "inputs")

    def __getitem__(self, name: str) -> Any:
        raise AssertionError("columns aren't there as a whole")

    def __iter__(self) -> Any:
        # What a row has first makes no difference.
        return iter([{"labels": of, "inputs": row} for row, of in zip(INPUTS, LABELS, strict=True)])


def test_rows_that_come_one_after_the_other() -> None:
    for source in (Stream(), iter(zip(INPUTS, LABELS, strict=True))):
        inputs, labels = learning.rows_of(source)
        np.testing.assert_array_equal(inputs, INPUTS)
        np.testing.assert_array_equal(labels, LABELS)
    with pytest.raises(ValueError, match="there is no column 'y'\n  found:    'labels', 'inputs'"):
        learning.rows_of(Stream(), labels="y")
    with pytest.raises(ValueError, match="rows are of different sizes"):
        learning.rows_of([([1.0], 0), ([1.0, 2.0], 1), ([1.0], 0)])
    with pytest.raises(ValueError, match="a mapping of tables: give one of them, such as that of"):
        learning.rows_of({"train": {"inputs": INPUTS, "labels": LABELS}})


def test_tables_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": INPUTS[:, 0], "b": INPUTS[:, 1], "y": LABELS})
    kinds = {"y": "Int64", "a": "Float32", "b": "Float32"}
    shuffled = table.set_index(np.arange(6)[::-1])
    for each in (table, table.astype(kinds), table.astype({"y": "category"}), shuffled):
        inputs, labels = learning.rows_of(each, inputs=["a", "b"], labels="y")
        np.testing.assert_array_equal(inputs, INPUTS)
        np.testing.assert_array_equal(labels, LABELS)
        assert inputs.dtype == np.float32 and labels.dtype == np.int64
    inputs, _ = learning.rows_of(pandas.DataFrame({"inputs": list(INPUTS), "labels": LABELS}))
    np.testing.assert_array_equal(inputs, INPUTS)
    data = learning.ClientData(table[["a", "b"]], table["y"], [[0, 1], [5]])
    np.testing.assert_array_equal(data[1]["inputs"], INPUTS[[5]])
    users = learning.partition_by_user(pandas.Series(["ann", "bob"] * 3))
    assert users["bob"].tolist() == [1, 3, 5]
    twice = pandas.concat([table, table], axis=1)
    with pytest.raises(ValueError, match="there are several columns 'a', 'b', 'y'"):
        learning.rows_of(twice, inputs=["a", "b"], labels="y")


def test_datasets_of_hugging_face() -> None:
    datasets = pytest.importorskip("datasets")
    source = datasets.Dataset.from_dict({"inputs": INPUTS.tolist(), "labels": LABELS.tolist()})
    backwards = source.select(range(5, -1, -1))
    formats = [source.with_format(of) for of in ("numpy", "torch", "pandas", "arrow")]
    for each in (
        source,
        *formats,
        backwards.select(range(5, -1, -1)),
        source.to_iterable_dataset(),
    ):
        inputs, labels = learning.rows_of(each)
        np.testing.assert_array_equal(inputs, INPUTS)
        np.testing.assert_array_equal(labels, LABELS)
    with pytest.raises(ValueError, match="a mapping of tables: give one of them, such as that of"):
        learning.rows_of(datasets.DatasetDict(train=source))
    skewed = learning.partition_by_dirichlet(source["labels"], 2, 1.0)
    assert sorted(np.concatenate(skewed).tolist()) == list(range(6))


def test_columns_are_named() -> None:
    table = {"a": INPUTS[:, 0], "b": INPUTS[:, 1], "y": LABELS}
    inputs, labels = learning.rows_of(table, inputs=["a", "b"], labels="y")
    np.testing.assert_array_equal(inputs, INPUTS)
    np.testing.assert_array_equal(labels, LABELS)
    with pytest.raises(ValueError, match="there is no column 'inputs', 'labels'"):
        learning.rows_of(table)
    with pytest.raises(TypeError, match="not int"):
        learning.rows_of(3)


def test_clients_have_rows_of_their_own() -> None:
    data = learning.ClientData(INPUTS, LABELS, {"ann": [0, 2], "bob": [5], "eve": []})
    assert data.ids == ("ann", "bob", "eve")
    assert data.rows() == [2, 1, 0] and len(data) == 3
    np.testing.assert_array_equal(data[0]["inputs"], INPUTS[[0, 2]])
    data[0]["inputs"][:] = 9
    np.testing.assert_array_equal(data[0]["inputs"], INPUTS[[0, 2]])
    assert data[2]["labels"].shape == (0,)
    assert repr(data) == "<data of 3 clients, 3 rows>"
    with pytest.raises(ValueError, match="client 'bob' has row 6"):
        learning.ClientData(INPUTS, LABELS, {"ann": [0], "bob": [6]})
    with pytest.raises(ValueError, match="6 rows, where `labels` has 5"):
        learning.ClientData(INPUTS, LABELS[:5], [])


# Rounds, and going on.


def test_training_is_rounds_of_the_process() -> None:
    process, data = a_process(), some_data()
    found = learning.train(process, data, rounds=4)
    state, metrics = process.run(process.initialize(), [list(data)] * 4)
    same(found.state, state)
    assert [each["loss"] for each in found.metrics] == [float(each["loss"]) for each in metrics]
    assert [each["clients"] for each in found.metrics] == [12.0] * 4


class Accuracy:
    """As torchmetrics' objects: what it is comes from `compute`."""

    def __init__(self, value: float) -> None:
        self.value = value

    def compute(self) -> torch.Tensor:
        return torch.tensor(self.value)


def test_weights_are_evaluated() -> None:
    told: list[Any] = []
    found = learning.train(
        a_process(),
        some_data(),
        rounds=5,
        evaluate=lambda weights: {"size": weights["bias"].size, "accuracy": Accuracy(0.5)},
        evaluate_every=2,
        on_round=lambda number, state, metrics: told.append((number, int(state["round"]), metrics)),
    )
    assert ["accuracy" in each for each in found.metrics] == [False, True, False, True, True]
    assert found.metrics[1]["size"] == 2.0 and found.metrics[1]["accuracy"] == 0.5
    assert [each[:2] for each in told] == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]


def private() -> Any:
    return aggregators.DifferentiallyPrivateFactory.gaussian_fixed(1.0, 4, 1.0, delta=None)


def test_all_of_a_seed_says_what_noise_is_drawn() -> None:
    """PyTorch's generator alone tells apart what the lowest 32 bits do."""
    process, data = a_process(private()), some_data()
    seeds = (8, 8 + 2**32, 8 + 2**64, 8 + 2**200)
    states = [learning.train(process, data, rounds=1, seed=seed).state for seed in seeds]
    noised = [state["aggregator"]["noised_sum"]["bias"].tobytes() for state in states]
    assert len(set(noised)) == len(seeds)
    for seed, state in zip(seeds, states, strict=True):
        same(learning.train(process, data, rounds=1, seed=seed).state, state)


def test_a_seed_that_is_not_said_has_256_bits(tmp_path: Path) -> None:
    path = tmp_path / "training.npz"
    learning.train(a_process(), some_data(), rounds=1, checkpoint=path)
    _, told = read(path)
    kept = json.loads(told or "")["seed"]
    assert 2**200 < kept < 2**256
    same(
        learning.train(a_process(), some_data(), rounds=2, checkpoint=path).state,
        learning.train(a_process(), some_data(), rounds=2, seed=kept).state,
    )


def test_rounds_of_ones_own_draw_in_secret() -> None:
    process, data = a_process(private()), list(some_data())
    state = process.initialize()

    def noised() -> bytes:
        torch.manual_seed(3)
        before = torch.get_rng_state()
        with learning.secret_randomness():
            found, _ = process.next(state, data)
        assert torch.equal(torch.get_rng_state(), before)
        return found["aggregator"]["noised_sum"]["bias"].tobytes()

    assert noised() != noised()
    with pytest.raises(KeyError), learning.secret_randomness():
        torch.rand(3)
        raise KeyError
    assert torch.equal(torch.get_rng_state(), torch.manual_seed(3).get_state())


@pytest.mark.parametrize("factory", [None, private()])
def test_going_on_gives_the_same_numbers(factory: Any, tmp_path: Path) -> None:
    process, data = a_process(factory), some_data()
    cohort = learning.Cohort(learning.PoissonSampler(12, 0.4, seed=1), quorum=1)
    whole = learning.train(process, data, rounds=6, cohort=cohort, seed=8)
    path = tmp_path / "training.npz"
    for rounds in (2, 3, 6):
        torch.manual_seed(rounds)
        before = torch.get_rng_state()
        found = learning.train(process, data, rounds=rounds, cohort=cohort, seed=8, checkpoint=path)
        assert torch.equal(torch.get_rng_state(), before)
        assert len(found.metrics) == rounds
    same(found.state, whole.state)
    assert found.metrics == whole.metrics
    # It is known which training it was.
    same(learning.train(process, data, rounds=6, checkpoint=path).state, whole.state)
    with pytest.raises(learning.CheckpointError, match="another `seed`"):
        learning.train(process, data, rounds=7, seed=9, checkpoint=path)
    with pytest.raises(learning.CheckpointError, match="another process"):
        learning.train(
            a_process(aggregators.MedianFactory() if factory else private()),
            data,
            rounds=7,
            checkpoint=path,
        )


def test_a_state_alone_is_no_training(tmp_path: Path) -> None:
    process, path = a_process(), tmp_path / "state.npz"
    learning.save_state(process.initialize(), path)
    with pytest.raises(learning.CheckpointError, match="a file of its own"):
        learning.train(process, some_data(), rounds=1, checkpoint=path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(learning.CheckpointError, match="damaged"):
        learning.train(process, some_data(), rounds=1, checkpoint=path)


KILLED = """
import sys
sys.path.insert(0, sys.argv[2])
from tests.federated.test_training import a_process, private, some_data
from stator.federated import learning
cohort = learning.Cohort(learning.UniformSampler(12, 5, seed=1))
learning.train(
    a_process(private()), some_data(), rounds=100_000, cohort=cohort, seed=3, checkpoint=sys.argv[1],
    on_round=lambda number, state, metrics: print(number, flush=True),
)
"""


def test_who_is_killed_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "training.npz"
    done = 0
    for _ in range(2):
        command = [sys.executable, "-c", KILLED, str(path), str(REPOSITORY)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                if int(line) >= done + 3:
                    break
            time.sleep(0.01)
            running.send_signal(signal.SIGKILL)
            running.stdout.read()
        assert running.wait() == -signal.SIGKILL
        process, data = a_process(private()), some_data()
        cohort = learning.Cohort(learning.UniformSampler(12, 5, seed=1))
        found = learning.train(process, data, rounds=0, cohort=cohort, checkpoint=path)
        assert len(found.metrics) >= done + 3
        done = len(found.metrics)
        whole = learning.train(process, data, rounds=done, cohort=cohort, seed=3)
        same(found.state, whole.state)
        assert found.metrics == whole.metrics


def test_progress_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    learning.train(a_process(), some_data(), rounds=2)
    assert not capsys.readouterr().err
    learning.train(a_process(), some_data(), rounds=2, progress=True)
    told = capsys.readouterr().err
    assert "loss " in told and "clients/s" in told and "2/2" in told
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    learning.train(a_process(), some_data(), rounds=2, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("round 2/2  loss ")


def test_what_privacy_has_cost_is_told_in_each_round(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dp_accounting")
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    factory = aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
        noise_multiplier=2.0, clients_per_round=12, clip=1.0, delta=1e-3
    )
    found = learning.train(a_process(factory), some_data(), rounds=2, progress=True)
    spent = found.metrics[-1]["aggregator/epsilon"]
    assert f"epsilon {spent:.3g}  " in capsys.readouterr().err.splitlines()[-1]


def test_curves_are_a_picture_of_all_metrics(tmp_path: Path) -> None:
    path = tmp_path / "curves.svg"
    measured = iter([{"a<b": 1.0}, {"a<b": float("nan")}, {"a<b": 3.0}])
    found = learning.train(
        a_process(), some_data(), rounds=3, evaluate=lambda _: next(measured), curves=path
    )
    drawn = xml.etree.ElementTree.parse(path).getroot()
    plots = {
        plot.find("{*}text").text: [
            tuple(map(float, point.split(",")))
            for point in plot.find("{*}polyline").get("points").split()
        ]
        for plot in drawn.iter("{http://www.w3.org/2000/svg}g")
    }
    assert plots.keys() == found.metrics[0].keys()
    # Greater numbers are higher, which is nearer to zero; what is no number isn't there.
    (left, low), (right, high) = plots["a<b"]
    assert left < right and low > high
    losses = [each["loss"] for each in found.metrics]
    assert (
        np.argsort([-height for _, height in plots["loss"]]).tolist() == np.argsort(losses).tolist()
    )
    assert len({x for x, _ in plots["loss"]}) == 3


def test_metrics_in_metrics_have_paths() -> None:
    factory = aggregators.clipping_factory(1.0, aggregators.MeanFactory())
    found = learning.train(a_process(factory), some_data(), rounds=1)
    assert found.metrics[0]["aggregator/clipping_norm"] == 1.0


def test_scaffold_knows_clients_by_their_numbers() -> None:
    process = learning.build_scaffold(a_model(), clients=12)
    data = [OrderedDict(of, client=number) for number, of in enumerate(some_data())]
    found = learning.train(process, data, rounds=3, cohort=learning.UniformSampler(12, 4))
    assert found.metrics[2]["loss"] < found.metrics[0]["loss"]
