"""Functions that are no program for all sizes: loops over rows, batches, decisions by their number.
Results are plain Python's, whoever comes with how many rows."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import (
    DataLoader,
    RandomSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

import stator.federated as fl
from stator._sized_programs import Programs
from stator._stator import federated as native
from stator.errors import AmbiguousArraysError, ProgramError, ProgramInputError
from stator.federated.execution import LocalContext

ROWS = OrderedDict(
    x=fl.TensorType(np.float32, [None, 3]),
    y=fl.TensorType(np.int64, [None]),
)
SIZES = [5, 9, 12, 1, 8, 5, 3, 11, 16, 9]
torch.manual_seed(0)
NET = nn.Linear(3, 2)


def clients(sizes: list[int]) -> list[Any]:
    drawn = np.random.default_rng(3)
    return [
        OrderedDict(x=drawn.normal(size=(size, 3)).astype(np.float32), y=drawn.integers(0, 2, size))
        for size in sizes
    ]


def trained(rows: Any, **how: Any) -> Any:
    """Two epochs of a module's copy, as they are written everywhere."""
    net = copy.deepcopy(NET)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(TensorDataset(rows["x"], rows["y"]), **how)
    total = 0.0
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(y)
    return net.weight.detach(), total / len(loader.dataset), len(loader)  # type: ignore[arg-type]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(4)


def in_steps(rows: Any) -> Any:
    found = torch.zeros(3)
    for at in range(0, len(rows["x"]), 4):
        found = found * 0.5 + rows["x"][at : at + 4].mean(0)
    return found


def row_by_row(rows: Any) -> Any:
    found = torch.zeros(3)
    for row in rows["x"]:
        found = 0.9 * found + row
    return found


def beside_a_matrix_of_its_own(rows: Any) -> Any:
    turned = torch.eye(3) + 1
    found = torch.eye(3)[0] + rows["x"].sum(0)
    for row in rows["x"]:
        found = 0.9 * found + turned @ row
    return found


def in_pieces(rows: Any) -> Any:
    return torch.stack([piece.sum(0) for piece in torch.split(rows["x"], 4)]).amax(0)


def of_parts(rows: Any) -> Any:
    data = TensorDataset(rows["x"])
    first = Subset(data, range(0, len(data), 2))
    return sum(batch.sum(0) for (batch,) in DataLoader(first, batch_size=2))


def of_split(rows: Any) -> Any:
    held = random_split(TensorDataset(rows["x"]), [0.5, 0.5], generator=seeded())[0]
    found = torch.zeros(3)
    for (batch,) in DataLoader(held, batch_size=3):
        found = found + batch.mean(0)
    return found


def of_sampler(rows: Any) -> Any:
    sampler = RandomSampler(rows["x"], generator=seeded())
    return [batch for batch in DataLoader(rows["x"], 4, sampler=sampler)][0].sum(0)


def of_weights(rows: Any) -> Any:
    sampler = WeightedRandomSampler(rows["y"] + 1.0, 6, generator=seeded())  # type: ignore[arg-type]
    return sum(batch.sum(0) for batch in DataLoader(rows["x"], 4, sampler=sampler))


def decided(rows: Any) -> Any:
    if len(rows["x"]) < 4:
        return torch.zeros(3), 0
    return rows["x"].mean(0), len(rows["x"])


def of_arrays(rows: Any) -> Any:
    found = np.zeros(3)
    for at in range(0, len(rows["y"]), 4):
        x, y = rows["x"][at : at + 4], rows["y"][at : at + 4]
        found = found - 0.1 * x.T @ (x @ found - y) / len(y)
    return found


def in_pairs(rows: Any) -> Any:
    """Whose number of rows is even."""
    found = torch.zeros(6)
    for pair in rows["x"].reshape(-1, 6):
        found = found * 0.5 + pair
    return found


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "batches": lambda rows: trained(rows, batch_size=4),
    "whole batches": lambda rows: (
        in_steps(rows) + trained(rows, batch_size=4, drop_last=True)[0][0]
    ),
    "shuffled": lambda rows: trained(rows, batch_size=4, shuffle=True, generator=seeded()),
    "steps": in_steps,
    "rows": row_by_row,
    "rows beside a matrix": beside_a_matrix_of_its_own,
    "pieces": in_pieces,
    "parts": of_parts,
    "split": of_split,
    "sampler": of_sampler,
    "weights": of_weights,
    "decided": decided,
}


def result(value: Any) -> list[Any]:
    parts = value if isinstance(value, (tuple, list)) else [value]
    return [np.asarray(part.detach() if hasattr(part, "detach") else part) for part in parts]


def same(found: Any, expected: Any) -> None:
    for one, two in zip(result(found), result(expected), strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-5, atol=2e-6)


def as_tensors(rows: Any) -> Any:
    return OrderedDict((name, torch.tensor(array)) for name, array in rows.items())


def at_clients(fn: Callable[[Any], Any], **how: Any) -> Any:
    local = fl.local_computation(ROWS, **how)(fn)
    of_clients = fl.FederatedType(ROWS, fl.CLIENTS)
    return fl.federated_computation(lambda rows: fl.federated_map(local, rows), of_clients)


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sizes for which programs are traced."""
    found: list[Any] = []
    trace = Programs._traced

    def noted(self: Programs, sizes: Any) -> Any:
        found.append(sizes[0][0])
        return trace(self, sizes)

    monkeypatch.setattr(Programs, "_traced", noted)
    return found


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_those_of_plain_python(name: str, exact: bool) -> None:
    fn = FUNCTIONS[name]
    sizes = [size for size in SIZES if size > 1] if name == "parts" else SIZES
    comp = at_clients(fn)
    with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
        for _ in range(2):
            given = clients(sizes)
            for found, rows in zip(comp(given), given, strict=True):
                same(found, fn(as_tensors(rows)))


def test_rows_that_are_divided() -> None:
    given = clients([2, 6, 4, 6])
    for found, rows in zip(at_clients(in_pairs)(given), given, strict=True):
        same(found, in_pairs(as_tensors(rows)))


@pytest.mark.parametrize("exact", [False, True])
def test_numpy_code(exact: bool) -> None:
    comp = at_clients(of_arrays)
    with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
        for _ in range(2):
            given = clients(SIZES)
            for found, rows in zip(comp(given), given, strict=True):
                same(found, of_arrays(rows))


@pytest.mark.usefixtures("few_clients_run_alone")
def test_few_clients_run_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    from stator.programs import TensorProgram

    at_once: list[int] = []
    together = TensorProgram._run_together

    def noted(self: Any, count: int, *args: Any, **kwargs: Any) -> Any:
        at_once.append(count)
        return together(self, count, *args, **kwargs)

    monkeypatch.setattr(TensorProgram, "_run_together", noted)
    comp = at_clients(lambda rows: rows["x"].mean(0))
    for sizes, expected in (([5] * 7, []), ([5] * 8, [8]), ([5, 6] * 5, []), ([5, 6] * 6, [12])):
        at_once.clear()
        for found, rows in zip(comp(clients(sizes)), clients(sizes), strict=True):
            same(found, rows["x"].mean(0))
        assert at_once == expected


def test_there_is_one_program_for_as_many_batches(traced: list[Any]) -> None:
    comp = at_clients(lambda rows: trained(rows, batch_size=4))
    comp(clients([5, 7, 6, 8, 3, 2, 7]))
    assert len(traced) == 2  # five to eight rows, up to four
    comp(clients([6, 8, 1, 3, 4]))
    assert len(traced) == 2
    comp(clients([9]))
    assert len(traced) == 3
    # Where what is drawn at the end comes before the last batch, or behind it.
    comp = at_clients(lambda rows: trained(rows, batch_size=4, shuffle=True, generator=seeded()))
    traced.clear()
    comp(clients([5, 7, 8]))
    assert len(traced) == 2


def test_no_rows(traced: list[Any]) -> None:
    for fn in (in_steps, row_by_row, decided):
        given = clients([0, 3])
        for found, rows in zip(at_clients(fn)(given), given, strict=True):
            same(found, fn(as_tensors(rows)))


def test_what_is_drawn_is_each_clients_own() -> None:
    comp = at_clients(lambda rows: trained(rows, batch_size=4, shuffle=True))
    found = []
    for exact in (False, True):
        with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
            torch.manual_seed(7)
            found.append(comp(clients(SIZES)))
    for one, two in zip(*found, strict=True):
        same(one, two)
    torch.manual_seed(8)
    assert (comp(clients(SIZES))[2][0] != found[0][2][0]).any()


def test_tensors_from_outside_are_those_of_the_definition() -> None:
    scale = torch.ones(3)

    def scaled(rows: Any) -> Any:
        found = torch.zeros(3)
        for row in rows["x"]:
            found = found + row * scale
        return found

    comp = at_clients(scaled)
    given = clients([3, 4])
    expected = [scaled(as_tensors(rows)) for rows in given]
    same(comp(given[:1])[0], expected[0])
    scale.mul_(5)
    same(comp(given)[1], expected[1])


FACTOR = 2.0


def test_other_things_from_outside_may_not_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(rows: Any) -> Any:
        found = torch.zeros(3)
        for row in rows["x"]:
            found = found + row * FACTOR
        return found

    comp = at_clients(scaled)
    given = clients([3, 4])
    same(comp(given[:1])[0], scaled(as_tensors(given[0])))
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    comp(given[:1])
    with pytest.raises(ProgramInputError, match="no longer what it was") as raised:
        comp(given)
    assert "at client 1" in raised.value.__notes__


def test_errors_of_the_function_come_with_its_line() -> None:
    def refuses(rows: Any) -> Any:
        if len(rows["x"]) < 4:
            raise ValueError("too few rows")
        return rows["x"].sum(0)

    comp = at_clients(refuses)
    assert len(comp(clients([5, 6]))) == 2
    with pytest.raises(ValueError, match="too few rows") as raised:
        comp(clients([5, 3]))
    assert raised.traceback[-1].name == "refuses"
    assert "at client 1" in raised.value.__notes__


class Pairs(torch.utils.data.Dataset[Any]):
    """A data set of the user's own: a loader asks it for one row at a time."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows["x"])

    def __getitem__(self, at: int) -> Any:
        return self.rows["x"][at], self.rows["y"][at]


@pytest.mark.parametrize("exact", [False, True])
def test_rows_of_a_users_data_set_in_another_order(exact: bool) -> None:
    def fn(rows: Any) -> Any:
        found = torch.zeros(3)
        for x, y in DataLoader(Pairs(rows), batch_size=4, shuffle=True, generator=seeded()):
            found = 0.5 * found + (x * y[:, None]).sum(0)
        return found

    comp = at_clients(fn)
    with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
        given = clients([6, 1, 2, 9, 1])
        for found, rows in zip(comp(given), given, strict=True):
            same(found, fn(as_tensors(rows)))


def test_errors_within_a_loop_are_those_of_known_sizes() -> None:
    def wrong(rows: Any) -> Any:
        found = torch.zeros(2)
        for (batch,) in DataLoader(TensorDataset(rows["x"]), batch_size=8):
            found = found + (batch @ torch.ones(5, 2)).sum(0)  # here
        return found

    with pytest.raises(RuntimeError, match=r"\[8, 3\] X \[5, 2\]") as raised:
        at_clients(wrong)
    assert raised.traceback[-1].name == "wrong"
    assert "# here" in str(raised.traceback[-1].statement)
    assert "traced for some" in raised.value.__notes__[-1]

    def prints(rows: Any) -> Any:
        for row in rows["x"]:
            print(row)
        return rows["x"].sum(0)

    with pytest.raises(ProgramError, match="print"):
        at_clients(prints)


def test_what_gives_something_else_for_other_sizes() -> None:
    with pytest.raises(ProgramError, match="SB022") as lists:
        at_clients(lambda rows: [row for row in rows["x"]])
    assert "`torch.stack`" in lists.value.__notes__[0]

    def decides(rows: Any) -> Any:
        return rows["x"].sum(0) if len(rows["x"]) > 4 else rows["x"].sum()

    comp = at_clients(decides)
    assert comp(clients([5]))[0].shape == (3,)
    with pytest.raises(ProgramInputError, match="something else than it does for others"):
        comp(clients([3]))


def test_sizes_of_results_may_follow() -> None:
    local = fl.local_computation(ROWS)(lambda rows: torch.stack([row * 2 for row in rows["x"]]))
    assert str(local.type_signature.result) == "float32[?,3]"
    given = clients([4])[0]
    same(local(given), given["x"] * 2)


def test_what_could_be_code_of_two_kinds_is_said() -> None:
    def spread(x: Any) -> Any:
        found = 0.0
        for at in range(len(x) - 2):
            found = found + x[at : at + 3].std()
        return found

    column = fl.TensorType(np.float64, [None])
    with pytest.raises(AmbiguousArraysError):
        fl.local_computation(column)(spread)
    given = np.arange(6.0)
    for arrays, of in (("numpy", given), ("torch", torch.tensor(given))):
        local = fl.local_computation(column, arrays=arrays)(spread)
        assert local(given) == pytest.approx(float(spread(of)))


def test_messages() -> None:
    loop = fl.local_computation(ROWS)(row_by_row)
    with pytest.raises(TypeError, match="another program for other numbers of rows"):
        loop.to_bytes()
    read = fl.framework.ConcreteComputation.from_bytes(
        fl.local_computation(ROWS)(decided).to_bytes()
    )
    few, many = clients([2, 6])
    same(read(many), decided(as_tensors(many)))
    with pytest.raises(ProgramInputError):
        read(few)


@pytest.mark.parametrize("fn", [row_by_row, decided])
def test_in_other_processes(fn: Any) -> None:
    """As workers of Ray's get it."""
    local = fl.local_computation(ROWS)(fn)
    ((name, arguments),) = native.calls_with_functions(local)
    assert name == "callable_computation"
    again = pickle.loads(pickle.dumps(arguments[0]))
    for rows in clients([2, 6]):
        same(again(as_tensors(rows)), fn(as_tensors(rows)))
