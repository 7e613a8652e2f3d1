"""Computations in parts give what the whole gives, to the bit, whatever the parts are."""

from __future__ import annotations

import collections
import itertools
import pickle
from typing import Any

import numpy as np
import pytest

import stator.federated as fl
from stator._stator import federated as native
from stator.federated.execution import LocalContext

FLOATS = fl.FederatedType(fl.TensorType(np.float32, [3]), fl.CLIENTS)


def in_parts(
    comp: Any, arg: Any, chunk: int, clients: int | None = None, *, exact: bool = True
) -> Any:
    """What a computation gives whose clients work in parts of so many, each of which knows only what
    was pickled for it."""
    split = native.split_computation(comp)
    assert not isinstance(split, str), split
    run = split.start(arg, clients=clients, threads=1, exact=exact)
    for stage in range(split.stages):
        run.begin(stage)
        if not split.has_clients(stage):
            continue
        sent = pickle.dumps(run.broadcast(stage)[0])
        for first in range(0, run.clients, chunk):
            count = min(chunk, run.clients - first)
            given = pickle.loads(pickle.dumps(run.given(stage, first, first + count)))
            # Functions stay what they are: this is the same process.
            again = native.split_computation(
                native._block_from_calls(native.calls_with_functions(comp))
            )
            received = native.received(pickle.loads(sent))
            made = again.work(stage, received, given, (first, count), exact=exact, key=run.key)
            run.merge(stage, pickle.loads(pickle.dumps(made)))
        run.end(stage)
    run.close()
    return run.result()


def locally(comp: Any, arg: Any, clients: int | None = None) -> Any:
    return LocalContext(clients, exact=True).invoke(comp, arg)


def bits(value: Any) -> Any:
    """Something that is equal only if all is, types and bits too."""
    if isinstance(value, dict):
        return type(value), [(name, bits(item)) for name, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [bits(item) for item in value]
    if isinstance(value, bytes):
        return value
    array = np.asarray(value)
    return type(value), array.dtype, array.shape, array.tobytes()


def same(comp: Any, arg: Any, clients: int | None = None) -> None:
    expected = bits(locally(comp, arg, clients))
    for chunk in (1, 2, 3, 7, 100):
        assert bits(in_parts(comp, arg, chunk, clients)) == expected, chunk


def drawn(dtype: Any, clients: int = 23, shape: tuple[int, ...] = (3,), spread: int = 60) -> Any:
    """Numbers of very different sizes, which lose much where they are added one by one."""
    draw = np.random.default_rng(0)
    rows = []
    for _ in range(clients):
        scale = 2.0 ** draw.integers(-spread, spread, shape)
        rows.append((draw.normal(size=shape) * scale).astype(dtype))
    return rows


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_sums_and_means_agree_to_the_bit(dtype: Any, shape: tuple[int, ...]) -> None:
    kind = fl.FederatedType(fl.TensorType(dtype, shape), fl.CLIENTS)
    spread = 6 if dtype is np.float16 else 60
    values = drawn(dtype, shape=shape, spread=spread)
    if np.dtype(dtype).kind == "c":
        values = [(value * (1 + 2j)).astype(dtype) for value in values]
    weights = [np.float32(2.0**at / 3) for at in range(len(values))]

    @fl.federated_computation(kind, fl.FederatedType(np.float32, fl.CLIENTS))
    def made(values, weights):
        return (
            fl.federated_sum(values),
            fl.federated_mean(values),
            fl.federated_mean(values, weight=weights),
        )

    same(made, fl.framework.pack_args_into_struct([values, weights], {}))


def test_clients_draw_what_they_draw_in_the_whole() -> None:
    torch = pytest.importorskip("torch")
    kind = fl.TensorType(np.float32, [3])
    noised = fl.local_computation(kind, kind)(lambda x, mean: x - mean + torch.randn(3))
    moved = fl.local_computation(kind)(lambda x: x + torch.rand(3))
    doubled = fl.local_computation(kind)(lambda x: x * 2)

    @fl.federated_computation(FLOATS)
    def made(values):
        at_server = fl.federated_map(moved, fl.federated_sum(fl.federated_map(doubled, values)))
        first = fl.federated_map(moved, values)
        mean = fl.federated_broadcast(fl.federated_mean(first))
        second = fl.federated_map(noised, (values, mean))
        # It needs nothing of the server's, so it is done in the first part.
        third = fl.federated_map(moved, values)
        return at_server, first, second, third, fl.federated_map(moved, fl.federated_sum(third))

    values = drawn(np.float32, clients=9, spread=3)
    torch.manual_seed(3)
    expected = bits(locally(made, values)), torch.rand(2).tolist()
    assert len({row[1:] for row in expected[0][1][1][1]}) == 9
    for chunk in (1, 2, 100):
        torch.manual_seed(3)
        assert (bits(in_parts(made, values, chunk)), torch.rand(2).tolist()) == expected, chunk


def test_what_runs_at_once_is_divided_alike() -> None:
    pytest.importorskip("torch")
    rows = fl.TensorType(np.float32, [None, 4])
    fitted = fl.local_computation(fl.TensorType(np.float32, [4]), rows)(
        lambda w, x: (w - 0.1 * (x @ w).tanh() @ x, len(x), x.sum(0))
    )

    @fl.federated_computation(
        fl.FederatedType(fl.TensorType(np.float32, [4]), fl.SERVER),
        fl.FederatedType(rows, fl.CLIENTS),
    )
    def made(w, values):
        found = fl.federated_map(fitted, (fl.federated_broadcast(w), values))
        sums = fl.federated_mean(found[0], found[1]), fl.federated_sum(found[2])
        return *sums, fl.federated_collect(found[0])

    draw = np.random.default_rng(2)
    sizes = itertools.cycle([3, 5, 3])
    values = [draw.normal(size=(next(sizes), 4)).astype(np.float32) for _ in range(1100)]
    given = fl.framework.pack_args_into_struct([np.ones(4, np.float32), values], {})
    expected = bits(LocalContext(threads=1).invoke(made, given))
    for chunk in (256, 512, 1024, 2048):
        assert bits(in_parts(made, given, chunk, exact=False)) == expected, chunk


def test_other_operations_agree() -> None:
    kind = fl.FederatedType(np.int32, fl.CLIENTS)

    @fl.local_computation(np.int32)
    def double(x):
        return x * 2

    @fl.federated_computation(kind, fl.FederatedType(np.int32, fl.SERVER))
    def made(values, offset):
        doubled = fl.federated_map(double, values)
        return collections.OrderedDict(
            least=fl.federated_min(doubled),
            most=fl.federated_max(values),
            all=fl.federated_collect(doubled),
            sum=fl.federated_sum(fl.federated_zip((values, fl.federated_broadcast(offset)))),
            secure=fl.federated_secure_sum_bitwidth(values, 8),
            doubled=doubled,
            values=values,
        )

    same(made, fl.framework.pack_args_into_struct([list(range(11)), 5], {}))


def test_aggregates_are_merged() -> None:
    kind = fl.FederatedType(np.float64, fl.CLIENTS)
    pair = fl.to_type((np.float64, np.int32))
    torch = pytest.importorskip("torch")

    @fl.local_computation(pair, np.float64)
    def accumulate(so_far, value):
        return so_far[0] + value, so_far[1] + torch.ones((), dtype=torch.int32)

    @fl.local_computation(pair, pair)
    def merge(a, b):
        return a[0] + b[0], a[1] + b[1]

    @fl.local_computation(pair)
    def report(pair):
        return pair[0] / pair[1]

    @fl.federated_computation(kind)
    def mean(values):
        zero = fl.to_value((np.float64(0), np.int32(0)), pair)
        return fl.federated_aggregate(values, zero, accumulate, merge, report)

    values = [float(x) for x in range(11)]
    for chunk in (1, 2, 3, 7, 100):
        assert in_parts(mean, values, chunk) == locally(mean, values) == 5.0


def test_a_later_stage_uses_what_clients_had() -> None:
    @fl.local_computation(np.float32)
    def square(x):
        return x * x

    @fl.local_computation(np.float32, np.float32)
    def less(x, mean):
        return x - mean

    @fl.federated_computation(fl.FederatedType(np.float32, fl.CLIENTS))
    def variance(values):
        squares = fl.federated_map(square, values)
        mean = fl.federated_broadcast(fl.federated_mean(squares))
        rest = fl.federated_map(less, (squares, mean))
        return fl.federated_mean(fl.federated_map(square, rest)), rest

    assert native.split_computation(variance).stages == 3
    same(variance, [float(x) for x in range(9)])


def test_ragged_values_strings_and_sequences_travel() -> None:
    row = fl.TensorType(np.float32, [None])
    kind = fl.FederatedType((row, np.str_, fl.SequenceType(np.int64)), fl.CLIENTS)

    @fl.federated_computation(kind.member)
    def taken(x):
        return x[0], x[1], fl.sequence_sum(x[2]), x[2]

    @fl.federated_computation(kind)
    def keep(values):
        return fl.federated_map(taken, values)

    values = [
        (np.arange(size, dtype=np.float32), f"text {size}".encode(), list(range(size)))
        for size in (3, 0, 2, 2)
    ]
    same(keep, values)


def test_tensors_of_pytorch_stay_its_own() -> None:
    torch = pytest.importorskip("torch")
    seen = []

    def note(x):
        seen.append(type(x))
        return x

    noted = fl.local_computation(
        fl.TensorType(np.float32, [3]), result=fl.TensorType(np.float32, [3])
    )(note)

    @fl.federated_computation(FLOATS)
    def total(values):
        return fl.federated_map(noted, fl.federated_sum(fl.federated_map(noted, values)))

    values = [torch.arange(3.0) + at for at in range(4)]
    expected = locally(total, values)
    kinds, seen[:] = seen[:], []
    assert bits(in_parts(total, values, 2)) == bits(expected)
    assert seen == kinds and set(seen) == {torch.Tensor}


def test_clients_are_told_by_their_number_among_all() -> None:
    @fl.federated_computation(fl.FederatedType(np.int32, fl.CLIENTS))
    def secure(values):
        return fl.federated_secure_sum_bitwidth(values, 2)

    def fail(x):
        if x == 8:
            raise ValueError("eight")
        return x

    failing = fl.local_computation(np.int32, result=np.int32)(fail)

    @fl.federated_computation(fl.FederatedType(np.int32, fl.CLIENTS))
    def mapped(values):
        return fl.federated_sum(fl.federated_map(failing, values))

    for comp, values in ((secure, [1, 2, 3, 1, 2, 8]), (mapped, [1, 2, 3, 4, 8, 8])):
        errors = []
        for run in (locally, lambda comp, values: in_parts(comp, values, 2)):
            with pytest.raises(ValueError) as caught:
                run(comp, values)
            errors.append((str(caught.value), getattr(caught.value, "__notes__", None)))
        assert errors[0] == errors[1]


def test_what_cannot_be_split_says_why() -> None:
    @fl.federated_computation(fl.FunctionType(np.int32, np.int32), np.int32)
    def applied(function, x):
        return function(x)

    assert native.split_computation(applied) == "its argument has functions"


def test_results_belong_to_the_caller() -> None:
    @fl.federated_computation(FLOATS.member)
    def identity(x):
        return x

    @fl.federated_computation(FLOATS)
    def keep(values):
        return values, fl.federated_map(identity, values)

    values = [np.zeros(3, np.float32) for _ in range(3)]
    kept, mapped = in_parts(keep, values, 2)
    for array in (*kept, *mapped):
        array += 1
    assert not any(value.any() for value in values)
