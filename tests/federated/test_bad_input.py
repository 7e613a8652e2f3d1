"""What users give by mistake: it is an error that says whose it is and where, and the state is as it
was; or it is right."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

import stator.federated as fl
from stator.errors import ProgramError
from stator.federated import aggregators, learning
from stator.federated.learning import metrics

from .classifiers import classifier, drawn_clients

SIZES = (6, 3, 5)

ANY: Any = learning
"""What users call without a type checker."""


def module(width: int = 5) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3))


def model(width: int = 5) -> learning.Model:
    return classifier(module(width), 4)


def clients() -> list[Any]:
    return drawn_clients(SIZES, 0)


PRIVACY = learning.DPSGD(clip=1.0, noise_multiplier=1.0, batch_size=2)
BUILDERS: dict[str, Callable[[learning.Model], Any]] = {
    "fed_avg": learning.build_fed_avg,
    "fed_prox": lambda of: learning.build_fed_prox(of, proximal_strength=0.1),
    "fed_sgd": learning.build_fed_sgd,
    "fed_adam": learning.build_fed_adam,
    "fed_yogi": learning.build_fed_yogi,
    "fed_adagrad": learning.build_fed_adagrad,
    "scaffold": lambda of: learning.build_scaffold(of, clients=4),
    "dp_sgd": lambda of: learning.build_fed_avg(of, client_privacy=PRIVACY),
    "median": lambda of: learning.build_fed_avg(of, model_aggregator=aggregators.MedianFactory()),
    "krum": lambda of: learning.build_fed_avg(of, model_aggregator=aggregators.KrumFactory(0)),
    "clipped": lambda of: learning.build_fed_avg(
        of, model_aggregator=aggregators.clipping_factory(1.0, aggregators.MeanFactory())
    ),
    "private": lambda of: learning.build_fed_avg(
        of,
        model_aggregator=aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
            noise_multiplier=1.0, clients_per_round=3, clip=1.0, delta=None
        ),
    ),
}


@functools.cache
def process_of(builder: str) -> Any:
    return BUILDERS[builder](model())


def numbered(builder: str, rows: list[Any]) -> list[Any]:
    if builder != "scaffold":
        return rows
    return [{**of, "client": number} for number, of in enumerate(rows)]


def wide_rows(rows: list[Any]) -> None:
    rows[1]["inputs"] = rows[1]["inputs"].astype(np.float64)


def words(rows: list[Any]) -> None:
    rows[1]["labels"] = np.array(["a", "b", "c"])


def fractions(rows: list[Any]) -> None:
    rows[1]["labels"] = rows[1]["labels"].astype(np.float32)


def another_width(rows: list[Any]) -> None:
    rows[1]["inputs"] = rows[1]["inputs"][:, :3]


def ragged(rows: list[Any]) -> None:
    rows[1]["inputs"] = [[1.0, 2.0, 3.0, 4.0], [1.0, 2.0], [0.0, 0.0, 0.0, 0.0]]


def fewer_labels(rows: list[Any]) -> None:
    rows[1]["labels"] = rows[1]["labels"][:-1]


def a_field_less(rows: list[Any]) -> None:
    del rows[1]["labels"]


def another_field(rows: list[Any]) -> None:
    rows[1]["weight"] = 1.0


def nothing_at_all(rows: list[Any]) -> None:
    rows[1] = None


def labels_beyond(rows: list[Any]) -> None:
    rows[1]["labels"] = rows[1]["labels"] + 7


# What is wrong with client 1, and what is said of it.
WRONG_ROWS = {
    wide_rows: "float64",
    words: "",
    fractions: "float32",
    another_width: r"float32\[3,3\]",
    ragged: "",
    fewer_labels: "",
    a_field_less: "labels",
    another_field: "other fields",
    nothing_at_all: "",
    labels_beyond: "",
}


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("wrong", WRONG_ROWS)
def test_rows_of_one_client(builder: str, wrong: Any) -> None:
    process = process_of(builder)
    state = process.initialize()
    before = copy.deepcopy(state)
    rows = numbered(builder, clients())
    wrong(rows)
    with pytest.raises((ValueError, TypeError, IndexError, RuntimeError)) as raised:
        process.next(state, rows)
    said = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", ())])
    assert re.search(r"client 1\b", said), said
    assert re.search(WRONG_ROWS[wrong], said), said
    np.testing.assert_equal(state, before)
    following, _ = process.next(state, numbered(builder, clients()))
    assert following["round"] == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda of: {"inputs": of["inputs"]}, "a field 'labels', for"),
        (lambda of: {**of, "weight": 1.0, "id": 2}, "no field 'weight', no field 'id', for"),
        (lambda of: {"inputs": of["inputs"], "label": of["labels"]}, "a field 'labels', no field"),
        (lambda of: {}, "a field 'inputs', a field 'labels', for"),
    ],
)
def test_fields_that_are_named_otherwise(change: Any, said: str) -> None:
    process = process_of("fed_avg")
    rows = clients()
    rows[1] = change(rows[1])
    with pytest.raises(TypeError, match="`rows` at client 1 has other fields") as raised:
        process.next(process.initialize(), rows)
    assert f"expected: {said}" in str(raised.value)
    found = ", ".join(f"'{name}'" for name in rows[1])
    assert str(raised.value).endswith(found or "no fields")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda of: torch.from_numpy(of).to_sparse(), "of the layout torch.sparse_coo"),
        (lambda of: torch.from_numpy(of).to("meta"), "without data, on the device meta"),
    ],
)
def test_tensors_that_have_no_elements_in_a_row(change: Any, said: str) -> None:
    process = process_of("fed_avg")
    rows = clients()
    rows[2]["inputs"] = change(rows[2]["inputs"])
    with pytest.raises(TypeError, match=r"`rows`\['inputs'\] at client 2 doesn't fit") as raised:
        process.next(process.initialize(), rows)
    assert f"found:    a torch tensor {said}" in str(raised.value)


@pytest.mark.parametrize(
    ("module_or_loss", "said"),
    [
        ((nn.Linear, F.cross_entropy), "`module` is to be an nn.Module, not the class Linear"),
        ((module(), nn.CrossEntropyLoss), "outputs and labels, not the class CrossEntropyLoss"),
        ((module(), None), "`loss` is to be a function of outputs and labels, not NoneType"),
    ],
)
def test_classes_where_their_objects_are_meant(module_or_loss: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        learning.Model(
            *module_or_loss,
            inputs=fl.TensorType(np.float32, [None, 4]),
            labels=fl.TensorType(np.int64, [None]),
        )


def test_weights_of_another_module() -> None:
    of = model()
    before = copy.deepcopy(of.weights())
    weights = of.weights()
    weights["0.bias"] = weights["0.bias"][:-1]
    with pytest.raises(ValueError, match=r"'0\.bias' are of shape \[4\], .* of \[5\]"):
        of.assign(weights)
    del weights["0.bias"]
    weights["head"] = np.ones(3, np.float32)
    with pytest.raises(ValueError, match=r"have no '0\.bias', 'head', which the module lacks"):
        of.assign(weights)
    np.testing.assert_equal(of.weights(), before)


def test_clients_in_a_mapping_and_folders_that_are_not_there(tmp_path: Path) -> None:
    process = process_of("fed_avg")
    with pytest.raises(TypeError, match=r"`list\(data.values\(\)\)` is one"):
        ANY.train(process, {"a": clients()[0]}, rounds=1)
    with pytest.raises(FileNotFoundError, match="no such folder for the file: '.*state.npz'"):
        learning.save_state(process.initialize(), tmp_path / "none" / "state.npz")


def test_an_optimizer_that_computes_the_loss_by_itself() -> None:
    with pytest.raises(TypeError, match="gives an LBFGS, whose steps compute the loss"):
        learning.build_fed_avg(model(), client_optimizer=torch.optim.LBFGS)


def test_masked_elements_are_no_numbers() -> None:
    kind = fl.TensorType(np.float32, [2])
    total = fl.federated_computation(
        lambda rows: fl.federated_sum(rows), fl.FederatedType(kind, fl.CLIENTS)
    )
    row = np.ma.masked_array(np.ones(2, np.float32), [False, True])
    with pytest.raises(TypeError) as met:
        total([np.ones(2, np.float32), row])
    assert str(met.value) == (
        "the argument at client 1 doesn't fit its type\n  expected: float32[2]\n"
        "  found:    a masked array of type float32[2]\n"
        "  hint:     `.filled(value)` says what masked elements are"
    )
    assert total([np.ones(2, np.float32), row.filled(0)]).tolist() == [2, 1]


def test_a_round_of_training_is_named() -> None:
    process = process_of("fed_avg")

    class Wider:
        """The sensors of one client are changed in the third round."""

        def __init__(self) -> None:
            self.asked = 0

        def __len__(self) -> int:
            return 3

        def __getitem__(self, position: int) -> Any:
            self.asked += 1
            of = clients()[position]
            if self.asked == 8:
                of["inputs"] = np.concatenate([of["inputs"]] * 2, 1)
            return of

    done: list[Any] = []
    data: Any = Wider()
    with pytest.raises(TypeError, match=r"`rows`\['inputs'\] at client 1 doesn't fit") as raised:
        learning.train(process, data, rounds=4, on_round=lambda *of: done.append(of))
    assert raised.value.__notes__ == ["in round 3"] and len(done) == 2


def test_processes_whose_states_change_their_type() -> None:
    of = fl.TensorType(np.float32, [3])
    at_server, at_clients = fl.FederatedType(of, fl.SERVER), fl.FederatedType(of, fl.CLIENTS)

    @fl.federated_computation
    def initialize() -> Any:
        return fl.federated_value(np.zeros(3, np.float32), fl.SERVER)

    longer = fl.local_computation(of)(lambda state: torch.cat([state, state[:1]]))

    @fl.federated_computation(at_server, at_clients)
    def grows(state: Any, rows: Any) -> Any:
        return fl.federated_map(longer, state), fl.federated_sum(rows)

    @fl.federated_computation(at_server, at_clients)
    def stays(state: Any, rows: Any) -> Any:
        return state, fl.federated_sum(rows)

    @fl.federated_computation(fl.FederatedType(np.int32, fl.SERVER), at_clients)
    def other(state: Any, rows: Any) -> Any:
        return state, fl.federated_sum(rows)

    learning.IterativeProcess(initialize, stays)
    for wrong, does, found in ((grows, "gives", "float32[4]"), (other, "takes", "int32")):
        with pytest.raises(TypeError, match=f"`next` {does} a state of another type") as raised:
            learning.IterativeProcess(initialize, wrong)
        assert str(raised.value).endswith(
            f"\n  expected: float32[3]@SERVER\n  found:    {found}@SERVER"
        )


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e38])
def test_rows_that_are_not_numbers(builder: str, number: float) -> None:
    process = process_of(builder)
    state = process.initialize()
    before = copy.deepcopy(state)
    rows = numbered(builder, clients())
    rows[1]["inputs"][0, 0] = number
    try:
        following, _ = process.next(state, rows)
    except learning.ClientError as error:
        assert error.client == 1
    else:
        # A robust aggregator, or a bound, has put up with it.
        assert all(np.isfinite(of).all() for of in following["weights"].values())
    np.testing.assert_equal(state, before)


@pytest.mark.parametrize("builder", BUILDERS)
def test_a_client_without_rows(builder: str) -> None:
    process = process_of(builder)
    state = process.initialize()
    before = copy.deepcopy(state)
    rows = numbered(builder, drawn_clients((6, 0, 5, 4), 0))
    try:
        following, _ = process.next(state, rows)
    except learning.ClientError as error:
        assert error.client == 1 and "client 1 has no rows" in str(error)
    else:
        assert all(np.isfinite(of).all() for of in following["weights"].values())
    np.testing.assert_equal(state, before)


@pytest.mark.parametrize("builder", BUILDERS)
def test_no_clients(builder: str) -> None:
    process = process_of(builder)
    state = process.initialize()
    try:
        following, _ = process.next(state, [])
    except learning.ClientError as error:
        assert "the round has" in str(error)
    else:
        assert all(np.isfinite(of).all() for of in following["weights"].values())


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("wrong", ["width", "missing", "dtype", "process"])
def test_states_of_something_else(builder: str, wrong: str) -> None:
    process = process_of(builder)
    state = copy.deepcopy(process.initialize())
    if wrong == "width":
        state = BUILDERS[builder](model(6)).initialize()
    elif wrong == "missing":
        del state["weights"]["0.bias"]
    elif wrong == "dtype":
        state["weights"]["0.bias"] = state["weights"]["0.bias"].astype(np.float64)
    else:
        other = learning.build_fed_avg(model(), server_optimizer=learning.sgd(1.0, 0.9))
        state = other.initialize()
    with pytest.raises((TypeError, ValueError)) as raised:
        process.next(state, numbered(builder, clients()))
    assert "`state`" in str(raised.value), raised.value


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text", "folder"])
def test_damaged_checkpoints(damage: str, tmp_path: Path) -> None:
    process = learning.build_fed_avg(model())
    path = tmp_path / "training.npz"
    learning.train(process, clients(), rounds=2, checkpoint=path, seed=1)
    whole = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    elif damage == "flipped":
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :])
    else:
        path.write_bytes({"cut": whole[:-30], "empty": b"", "text": b"weights"}[damage])
    with pytest.raises((learning.CheckpointError, IsADirectoryError)) as raised:
        learning.train(process, clients(), rounds=4, checkpoint=path, seed=1)
    assert str(path) in str(raised.value)


def test_a_checkpoint_of_another_model(tmp_path: Path) -> None:
    path = tmp_path / "training.npz"
    learning.train(learning.build_fed_avg(model()), clients(), rounds=1, checkpoint=path)
    with pytest.raises(learning.CheckpointError, match=r"0\.weight"):
        learning.train(learning.build_fed_avg(model(6)), clients(), rounds=2, checkpoint=path)


def raising(outputs: Any, labels: Any) -> Any:
    raise RuntimeError("out of luck")


def of_numpy(outputs: Any, labels: Any) -> Any:
    return F.cross_entropy(outputs, labels) * float(outputs.detach().numpy().sum())


def of_rows(outputs: Any, labels: Any) -> Any:
    return F.cross_entropy(outputs, labels, reduction="none")


def of_nothing(outputs: Any, labels: Any) -> Any:
    return None


def without_gradient(outputs: Any, labels: Any) -> Any:
    return F.cross_entropy(outputs.detach(), labels)


LOSSES = [raising, of_numpy, of_rows, of_nothing, without_gradient]


@pytest.mark.parametrize(
    ("builder", "loss"),
    # What gives the loss of each row gives one number for a row alone, as DP-SGD takes them.
    [
        (builder, loss)
        for builder in ("fed_avg", "scaffold", "dp_sgd")
        for loss in LOSSES
        if builder != "dp_sgd" or loss is not of_rows
    ],
)
def test_losses_that_are_none(builder: str, loss: Any) -> None:
    of = learning.Model(
        module(),
        loss,
        inputs=fl.TensorType(np.float32, [None, 4]),
        labels=fl.TensorType(np.int64, [None]),
    )
    with pytest.raises((RuntimeError, TypeError, ProgramError)) as raised:
        BUILDERS[builder](of)
    if loss is raising:
        # The user's own error, with the user's frames.
        assert raised.traceback[-1].name == "raising"
    else:
        assert loss.__name__ in str(raised.value) and "test_bad_input.py" in str(raised.value)


@pytest.mark.parametrize(
    ("measured", "what"),
    [
        ({"accuracy": 3}, "accuracy"),
        ({"accuracy": lambda outputs, labels: bool(outputs.sum().item())}, "a truth value"),
        ({"accuracy": metrics.Mean(lambda outputs, labels: outputs)}, "accuracy"),
        ({"accuracy": lambda outputs, labels: None}, "accuracy"),
        ({3: lambda outputs, labels: outputs.mean()}, "3"),
    ],
)
def test_metrics_that_are_none(measured: Any, what: str) -> None:
    with pytest.raises((TypeError, ValueError, ProgramError), match=what):
        learning.build_evaluation(model(), measured)


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda: ANY.build_fed_avg(model(), steps=0), "`steps`"),
        (lambda: ANY.build_fed_avg(model(), steps=1.5), "`steps`"),
        (lambda: ANY.build_fed_avg(model(), steps="2"), "`steps`"),
        (lambda: ANY.build_fed_avg(model(), client_optimizer=list), "`client_optimizer`"),
        (lambda: ANY.build_fed_avg(model(), client_optimizer=0.1), "`client_optimizer`"),
        (lambda: ANY.build_fed_avg(model(), server_optimizer=0.1), "`server_optimizer`"),
        (
            lambda: ANY.build_fed_avg(model(), server_optimizer=learning.sgd),
            "`server_optimizer`",
        ),
        (lambda: ANY.build_fed_avg(model(), model_aggregator="mean"), "`model_aggregator`"),
        (lambda: ANY.build_fed_avg(module()), "`model`"),
        (lambda: ANY.build_scaffold(module(), clients=2), "`model`"),
        (lambda: ANY.build_evaluation(module()), "`model`"),
        (lambda: ANY.build_fed_prox(model(), proximal_strength=-1.0), "`proximal_strength`"),
        (lambda: ANY.build_fed_prox(model(), proximal_strength="1"), "`proximal_strength`"),
        (
            lambda: ANY.build_fed_prox(model(), proximal_strength=float("nan")),
            "`proximal_strength`",
        ),
        (lambda: ANY.build_fed_adam(model(), learning_rate="fast"), "learning_rate"),
        (lambda: ANY.build_scaffold(model(), clients=0), "`clients`"),
    ],
)
def test_arguments_of_builders(build: Any, what: str) -> None:
    with pytest.raises((TypeError, ValueError), match=what):
        build()
