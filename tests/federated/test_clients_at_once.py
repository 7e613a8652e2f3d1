"""Tensor programs run for many clients at once: results are those of one client after the other."""

from __future__ import annotations

import copy
import logging
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional as F

import stator.federated as fl
from stator._local_computations import _AT_ONCE
from stator.federated.execution import LocalContext
from stator.programs import TensorProgram

MODEL = OrderedDict(w=fl.TensorType(np.float32, [3, 2]), b=fl.TensorType(np.float32, [2]))
ROWS = OrderedDict(x=fl.TensorType(np.float32, [None, 3]), y=fl.TensorType(np.int64, [None]))


def loss_of(w: Any, b: Any, rows: Any) -> Any:
    return F.cross_entropy(torch.tanh(rows["x"] @ w + b), rows["y"])


def by_grad(model, rows):
    w, b = model["w"], model["b"]
    for _ in range(3):
        w, b = w.detach().requires_grad_(), b.detach().requires_grad_()
        loss = loss_of(w, b, rows)
        dw, db = torch.autograd.grad(loss, [w, b])
        w, b = w - 0.1 * dw, b - 0.1 * db
    return {"w": w.detach(), "b": b.detach(), "loss": loss.detach()}


def by_backward(model, rows):
    w, b = (model[name].detach() for name in ("w", "b"))
    w.requires_grad = True
    b.requires_grad_()
    loss_of(w, b, rows).backward()
    return w.grad, b.grad


def by_transformation(model, rows):
    return torch.func.grad(lambda model: loss_of(model["w"], model["b"], rows))(model)


def by_an_optimizer(model, rows):
    parameters = [model[name].clone().requires_grad_() for name in ("w", "b")]
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(*parameters, rows).backward()
        optimizer.step()
    return tuple(tensor.detach() for tensor in parameters)


def twice(model, rows):
    w = model["w"].detach().requires_grad_()
    (first,) = torch.autograd.grad(loss_of(w, model["b"], rows), w, create_graph=True)
    (second,) = torch.autograd.grad(first.pow(2).sum(), w)
    return second


def of_many_outputs(model, rows):
    w = model["w"].detach().requires_grad_()
    scores = rows["x"] @ w
    (gradient,) = torch.autograd.grad(scores, w, torch.ones_like(scores) * model["b"])
    return gradient


def without_gradients(model, rows):
    scores = rows["x"] @ model["w"] + model["b"]
    hits = (scores.argmax(1) == rows["y"]).sum()
    return hits, torch.ones_like(rows["y"]).sum(), scores.sort(0).values


def of_itself_only(model, rows):
    """Nothing of it depends on the client's rows."""
    return model["w"] * 2, torch.zeros(2)


def writes(model, rows):
    scores = rows["x"] @ model["w"]
    scores += model["b"]
    scores[0] = 0
    return scores.relu_()


def by_a_rate(kind: Any) -> Any:
    def stepped(model, rows):
        rate = model["b"].square().mean() * 0.1
        parameters = [model[name].clone().requires_grad_() for name in ("w", "b")]
        optimizer = kind(parameters, lr=rate)
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(*parameters, rows).backward()
            optimizer.step()
        return tuple(tensor.detach() for tensor in parameters)

    return stepped


def of_numbers(model, rows):
    """Each client's own number is one that operations multiply by."""
    number = rows["x"].mean()
    w = model["w"].sub(model["w"].square(), alpha=number)
    return torch.add(w, w, alpha=number), w.addcmul(w, w, value=number)


def writes_to_what_all_have(model, rows):
    total = torch.zeros(2)
    total += (rows["x"] @ model["w"]).sum(0)
    return total


def writes_by_places(model, rows):
    """Sums by label, in ways of which each writes to what the program has made."""
    counts = torch.zeros(2, dtype=torch.int64).scatter_add_(0, rows["y"], rows["y"] + 1)
    sums = torch.zeros(2, 3)
    sums.index_put_((rows["y"],), rows["x"], accumulate=True)
    view = sums[0]
    view += rows["x"][0]
    kept = torch.arange(6.0).reshape(2, 3).clone()
    kept[1] = rows["x"].mean(0)
    return counts, sums, kept, torch.arange(3.0)


def puts_columns_together(model, rows):
    score = rows["x"] @ model["w"]
    columns = torch.column_stack((rows["y"], score, score[:, 0], torch.ones_like(score[:, 1])))
    alone = torch.column_stack([model["b"], torch.tensor([1.0, 2.0])])
    return columns, columns.T @ columns, alone


def draws_into_what_all_have(model, rows):
    return torch.arange(2.0).uniform_() + (rows["x"] @ model["w"]).sum(0)


ATTENTION = torch.nn.MultiheadAttention(3, 1, dropout=0.5)


def draws_beside_nothing(model, rows):
    """An operation that draws gives a tensor, and nothing for the weights that nobody wants."""
    found, _ = ATTENTION(rows["x"], rows["x"], rows["x"], need_weights=False)
    return found @ model["w"]


NET = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def trains_a_copy(model, rows):
    """Steps of a copy of a module, which has the same weights and statistics at each client first."""
    net = copy.deepcopy(NET)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(net(torch.cat([rows["x"], rows["x"] + 1])), rows["y"].repeat(2)).backward()
        optimizer.step()
    return {name: tensor.detach() for name, tensor in net.state_dict().items()}


def writes_to_another_tensor(model, rows):
    """As `AdamW(..., amsgrad=True)` does from its second step on."""
    weights = model["w"].clone().requires_grad_()
    optimizer = torch.optim.AdamW([weights], lr=0.1, amsgrad=True)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(rows["x"] @ weights, rows["y"]).backward()
        optimizer.step()
    made = torch.zeros(2)
    torch.mul(model["b"], rows["x"].sum(), out=made)
    return weights.detach(), made


TOGETHER = (
    writes_to_another_tensor,
    *(writes_to_what_all_have, writes_by_places, draws_into_what_all_have, trains_a_copy),
    puts_columns_together,
    draws_beside_nothing,
    *(by_grad, by_backward, by_transformation, twice, of_many_outputs, without_gradients),
    *(of_itself_only, writes, by_an_optimizer, by_a_rate(torch.optim.SGD)),
    *(by_a_rate(torch.optim.Adam), of_numbers),
)

OUTSIDE = torch.tensor([1.0, 2.0], requires_grad=True)


def of_the_same_for_all(model, rows):
    (gradient,) = torch.autograd.grad((rows["x"] @ model["w"] * OUTSIDE).sum(), OUTSIDE)
    return gradient


ALONE = (of_the_same_for_all,)


def computation(fn: Callable[..., Any]) -> Any:
    local = fl.local_computation(MODEL, ROWS)(fn)

    @fl.federated_computation(
        fl.FederatedType(MODEL, fl.SERVER), fl.FederatedType(ROWS, fl.CLIENTS)
    )
    def mapped(model, rows):
        return fl.federated_map(local, (fl.federated_broadcast(model), rows))

    return mapped


def model() -> Any:
    drawn = np.random.default_rng(3)
    return {
        "w": drawn.normal(size=(3, 2)).astype(np.float32),
        "b": drawn.normal(size=2).astype(np.float32),
    }


def rows(clients: int, sizes: tuple[int, ...] = (4,)) -> list[Any]:
    drawn = np.random.default_rng(4)
    return [
        {
            "x": drawn.normal(size=(size, 3)).astype(np.float32),
            "y": drawn.integers(0, 2, size),
        }
        for size in (sizes[client % len(sizes)] for client in range(clients))
    ]


def run(comp: Any, *args: Any, **settings: Any) -> Any:
    with fl.framework.get_context_stack().install(LocalContext(**settings)):
        return comp(*args)


def same(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            same(*pair, tolerance)
        return
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For how many clients programs were run at once, each time."""
    counts: list[int] = []
    plain = TensorProgram._run_together

    def noted(self: Any, count: int, *given: Any) -> Any:
        made = plain(self, count, *given)
        counts.append(count)
        return made

    monkeypatch.setattr(TensorProgram, "_run_together", noted)
    return counts


@pytest.mark.parametrize("fn", TOGETHER)
@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_those_of_one_after_the_other(
    fn: Any, threads: int, counted: list[int]
) -> None:
    comp = computation(fn)
    for clients in (2, 7, _AT_ONCE + 3):
        torch.manual_seed(1)
        expected = run(comp, model(), rows(clients), threads=threads, exact=True)
        assert not counted
        # The first time they are compared, the second time not.
        for _ in range(2):
            torch.manual_seed(1)
            same(run(comp, model(), rows(clients), threads=threads), expected)
        assert sum(counted) == 2 * clients
        counted.clear()


@pytest.mark.parametrize("fn", TOGETHER)
def test_clients_with_as_many_rows_run_together(fn: Any, counted: list[int]) -> None:
    comp = computation(fn)
    given = rows(20, (4, 6, 4, 9, 1))
    torch.manual_seed(1)
    expected = run(comp, model(), given, exact=True)
    torch.manual_seed(1)
    same(run(comp, model(), given, threads=1), expected)
    assert sorted(counted) == [4, 4, 4, 8]


@pytest.mark.parametrize("fn", ALONE)
def test_others_run_one_after_the_other(
    fn: Any, counted: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    comp = computation(fn)
    with caplog.at_level(logging.INFO, "stator.federated"):
        for _ in range(5):
            torch.manual_seed(1)
            expected = run(comp, model(), rows(5), threads=1, exact=True)
            state = torch.get_rng_state()
            torch.manual_seed(1)
            same(run(comp, model(), rows(5), threads=1), expected, 0)
            assert torch.equal(torch.get_rng_state(), state)
    assert not counted
    told = [record.getMessage() for record in caplog.records]
    # It isn't tried for ever.
    assert 1 <= len(told) <= 3
    assert all("runs for one client after the other: " in text for text in told)


def with_numbers(model, rows):
    """As clients of other systems do it: how many rows there are is a number."""
    scores = rows["x"] @ model["w"]
    return {"w": model["w"] * scores.mean()}, len(rows["y"]), rows["x"].shape[0] / 2, True


@pytest.mark.parametrize("threads", [1, 2])
def test_numbers_that_come_of_sizes(threads: int, counted: list[int]) -> None:
    comp = computation(with_numbers)
    given = rows(20, (4, 6, 4, 9, 1))
    expected = run(comp, model(), given, exact=True)
    for _ in range(2):
        same(run(comp, model(), given, threads=threads), expected)
    assert sum(counted) == 2 * 20


def test_numbers_of_one_client_are_those_of_the_program() -> None:
    def counted(x: Any) -> Any:
        rows = x.shape[0]
        return rows, True, rows / 2, {"sum": x.sum(), "more": rows * 3}

    of = fl.TensorType(np.float32, [None])
    comp = fl.federated_computation(
        lambda x: fl.federated_map(fl.local_computation(of)(counted), x),
        fl.FederatedType(of, fl.CLIENTS),
    )
    for exact in (True, False):
        with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
            found = comp([np.ones(size, np.float32) for size in (5, 2, 5)])
        for (rows, is_more, half, told), size in zip(found, (5, 2, 5), strict=True):
            assert rows == size and rows.dtype == np.int64
            assert is_more and is_more.dtype == np.bool_
            assert half == size / 2 and half.dtype == np.float32
            assert told["sum"] == size and told["more"] == 3 * size


def test_means_of_clients_of_different_sizes(counted: list[int]) -> None:
    """Sums are the same to the bit in whichever order clients of different sizes are added."""
    local = fl.local_computation(MODEL, ROWS)(with_numbers)

    def body(model: Any, rows: Any) -> Any:
        made = fl.federated_map(local, (fl.federated_broadcast(model), rows))
        weights, number, half = made[0], made[1], made[2]
        return (
            fl.federated_mean(weights, number),
            fl.federated_mean(weights, half),
            fl.federated_mean(weights),
            fl.federated_sum(number),
            fl.federated_sum(half),
        )

    comp = fl.federated_computation(
        body, fl.FederatedType(MODEL, fl.SERVER), fl.FederatedType(ROWS, fl.CLIENTS)
    )
    sizes = (4, 6, 4, 9, 1, 6)
    given = rows(2 * _AT_ONCE + 5, sizes)
    found = run(comp, model(), given, threads=1)
    assert found[3] == sum(len(each["y"]) for each in given)
    assert found[4] == found[3] / 2
    same(found, run(comp, model(), given, exact=True))
    # Each client's own results, added up by hand.
    each = run(computation(with_numbers), model(), given, threads=1)
    own = np.stack([made[0]["w"].astype(np.float64) for made in each])
    numbers = np.array([float(made[1]) for made in each])
    for at, weights in ((0, numbers), (1, numbers / 2), (2, np.ones(len(each)))):
        exact = (own * weights[:, None, None]).sum(0) / weights.sum()
        np.testing.assert_allclose(found[at]["w"], exact, rtol=1e-6)
    for threads in (2, 5):
        same(run(comp, model(), given, threads=threads), found, 0)


def test_the_number_of_threads_makes_no_difference() -> None:
    comp = computation(by_grad)
    given = rows(2 * _AT_ONCE + 5)
    first = run(comp, model(), given, threads=1)
    for threads in (2, 5):
        same(run(comp, model(), given, threads=threads), first, 0)


def test_what_is_wrong_with_a_client_is_said_of_that_client() -> None:
    comp = computation(by_grad)
    given = rows(9)
    run(comp, model(), given)
    given[6]["y"] = given[6]["y"] + 7
    for threads in (1, 2):
        with pytest.raises(Exception, match="out of bounds") as raised:
            run(comp, model(), given, threads=threads)
        assert raised.value.__notes__[-1] == "at client 6"
    same(run(comp, model(), rows(9)), run(comp, model(), rows(9), exact=True))


def test_what_is_not_a_number_stays_that() -> None:
    comp = computation(by_grad)
    given = rows(5)
    given[2]["x"][0, 0] = np.nan
    same(run(comp, model(), given), run(comp, model(), given, exact=True))


def test_results_share_no_memory() -> None:
    found = run(computation(by_grad), model(), rows(4))
    before = found[1]["w"].copy()
    found[0]["w"][:] = 7
    assert (found[1]["w"] == before).all()
    shared = run(computation(of_itself_only), model(), rows(4))
    shared[0][0][:] = 7
    assert not (shared[1][0] == 7).any()


def test_arguments_are_not_written_to() -> None:
    given, weights = rows(4), model()
    run(computation(writes), weights, given)
    assert all((now["x"] == then["x"]).all() for now, then in zip(given, rows(4), strict=True))
    assert (weights["w"] == model()["w"]).all()


def test_a_program_that_was_read(counted: list[int]) -> None:
    comp = computation(by_grad)
    read = fl.framework.ConcreteComputation.from_bytes(comp.to_bytes())
    same(run(read, model(), rows(6)), run(comp, model(), rows(6), exact=True))
    assert counted == [6]


def test_code_that_gives_something_else_at_once_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain = TensorProgram._run_together

    def off(self: Any, *given: Any) -> Any:
        return [tensor + 1 for tensor in plain(self, *given)]

    monkeypatch.setattr(TensorProgram, "_run_together", off)
    comp = computation(by_grad)
    with caplog.at_level(logging.INFO, "stator.federated"):
        for _ in range(2):
            same(run(comp, model(), rows(6)), run(comp, model(), rows(6), exact=True), 0)
    assert len(caplog.records) == 1
    assert "at once it gives something else" in caplog.text


def test_a_context_says_whether_it_is_exact() -> None:
    context = LocalContext(3, threads=2, exact=True)
    assert repr(context) == "LocalContext(3, threads=2, exact=True)"
    again = pickle.loads(pickle.dumps(context))
    assert (again.clients, again.threads, again.exact) == (3, 2, True)
    assert not LocalContext().exact


def as_array(values: Any) -> Any:
    values = values.detach().numpy() if isinstance(values, torch.Tensor) else values
    return np.array(values, np.float32, order="C")


def read_only(array: Any) -> Any:
    array.setflags(write=False)
    return array


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[::-1],
        lambda x: np.asfortranarray(x),
        lambda x: read_only(x.copy()),
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: torch.from_numpy(x.copy()),
        lambda x: torch.from_numpy(x.copy()).requires_grad_(),
        lambda x: torch.from_numpy(x.T.copy()).T,
        lambda x: x.tolist(),
        lambda x: x.astype(">f4"),
        # Its element type is another object.
        lambda x: pickle.loads(pickle.dumps(x)),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_arguments_of_any_kind_and_layout(change: Any, exact: bool) -> None:
    comp = computation(by_grad)
    plain, given = rows(6), rows(6)
    for of, other in zip(plain, given, strict=True):
        of["x"] = as_array(change(of["x"].copy()))
        other["x"] = change(other["x"])
    # Some clients' arguments are as before: they stand in one tensor with the others.
    given[2]["x"] = plain[2]["x"]
    same(run(comp, model(), given, exact=exact, threads=1), run(comp, model(), plain, exact=True))


def in_16_bits(model, rows):
    w = model["w"].clone().requires_grad_()
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(w, model["b"], rows)
        (gradient,) = torch.autograd.grad(loss, w)
        with torch.no_grad():
            w -= gradient
    return w.detach()


@pytest.mark.parametrize("threads", [1, 2])
def test_clients_switch_autocast(threads: int) -> None:
    comp = computation(in_16_bits)
    plain = [in_16_bits(tensors(model()), tensors(of)) for of in rows(6)]
    expected = run(comp, model(), rows(6), exact=True, threads=threads)
    for found, want in zip(expected, plain, strict=True):
        assert np.array_equal(found, want.numpy())
    same(run(comp, model(), rows(6), threads=threads), expected, 2e-2)
    wrong = rows(6)
    wrong[3]["y"] = wrong[3]["y"] + 7
    for exact in (True, False):
        with pytest.raises(IndexError, match="out of bounds") as raised:
            run(comp, model(), wrong, exact=exact, threads=threads)
        assert raised.value.__notes__[-1] == "at client 3"
        assert not torch.is_autocast_enabled("cpu")


def tensors(of: Any) -> Any:
    return {name: torch.from_numpy(np.array(each)) for name, each in of.items()}


def half() -> Any:
    return torch.autocast("cpu", dtype=torch.float16)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad, half])
@pytest.mark.parametrize("exact", [True, False])
def test_the_callers_modes_make_no_difference(mode: Any, exact: bool) -> None:
    for fn in (by_grad, by_backward, writes):
        comp = computation(fn)
        expected = run(comp, model(), rows(6), exact=True)
        for threads in (1, 2):
            with mode():
                same(run(comp, model(), rows(6), exact=exact, threads=threads), expected)


def test_sequences_of_clients_are_stacked(counted: list[int]) -> None:
    of_row = fl.TensorType(np.float32, [3])
    local = fl.local_computation(fl.SequenceType(of_row), of_row)(
        lambda stacked, by: (stacked * by).sum(0)
    )

    @fl.federated_computation(
        fl.FederatedType(fl.SequenceType(of_row), fl.CLIENTS), fl.FederatedType(of_row, fl.CLIENTS)
    )
    def mapped(values, by):
        return fl.federated_map(local, (values, by))

    drawn = np.random.default_rng(5)
    given = [list(drawn.normal(size=(2 + at % 2, 3)).astype(np.float32)) for at in range(6)]
    by = list(drawn.normal(size=(6, 3)).astype(np.float32))
    found = run(mapped, given, by, threads=1)
    assert sorted(counted) == [3, 3]
    same(found, run(mapped, given, by, exact=True))
    expected = [(np.stack(row) * times).sum(0) for row, times in zip(given, by, strict=True)]
    same(found, expected)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("shape", [[], [2, 3]])
def test_integers_wrap_around_as_one_after_the_other(dtype: Any, shape: list[int]) -> None:
    of = fl.TensorType(dtype, shape)
    local = fl.local_computation(of)(lambda number: number * 3)

    @fl.federated_computation(fl.FederatedType(of, fl.CLIENTS))
    def total(numbers: Any) -> Any:
        return fl.federated_sum(fl.federated_map(local, numbers))

    ends = np.iinfo(dtype)
    drawn = np.random.default_rng(0).integers(ends.min, ends.max, (300, *shape), dtype)
    numbers = [np.asarray(number, dtype)[()] for number in drawn]
    with np.errstate(over="ignore"):
        expected = (drawn * dtype(3)).sum(0, dtype=dtype)
    for exact in (True, False):
        with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
            found = total(numbers)
        assert found.dtype == dtype
        assert np.array_equal(found, expected)


def test_fields_of_dictionaries_are_found_in_any_order() -> None:
    comp = computation(by_grad)
    given = rows(4)
    expected = run(comp, model(), given)
    turned = [OrderedDict(reversed(list(of.items()))) for of in given]
    plain = [{name: of[name] for name in ("y", "x")} for of in given]
    same(run(comp, model(), turned), expected)
    same(run(comp, model(), plain), expected)
    with pytest.raises(TypeError, match="a field 'y', no field 'z', for <x=") as raised:
        run(comp, model(), [{"x": of["x"], "z": of["y"]} for of in given])
    assert "found:    the fields 'x', 'z'" in str(raised.value)
    with pytest.raises(TypeError, match="the name of a field must be a str"):
        run(comp, model(), [{"x": of["x"], 1: of["y"]} for of in given])
