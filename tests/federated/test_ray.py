"""Computations on a cluster of two nodes: results, and what happens when something is lost."""

from __future__ import annotations

import builtins
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stator.federated as fl
from stator.federated.execution import LocalContext

pytest.importorskip("ray", reason="Ray isn't installed")
pytest.importorskip("torch")

import ray
import torch
from ray.cluster_utils import Cluster
from torch import nn

from stator.federated import learning
from stator.federated.ray import ClientsLostError, RayContext, RetryableError, UnsendableError
from stator.federated.ray._context import _chunk

from .classifiers import classifier, drawn_clients
from .test_parts import bits, drawn

INTS = fl.FederatedType(np.int32, fl.CLIENTS)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Two processors each: one for the context that tests share, one for those of their own.
    node = {"num_cpus": 2, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    cluster.add_node(**node)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def context(cluster: Any) -> Iterator[RayContext]:
    with RayContext(address=cluster.address, workers=2, chunk=3) as context:
        yield context


def in_a_process(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_loops_and_decisions_by_the_number_of_rows(context: RayContext) -> None:
    """Workers trace them anew for what they meet."""
    rows = fl.TensorType(np.float32, [None, 2])

    @fl.local_computation(rows)
    def smoothed(x: Any) -> Any:
        found = torch.zeros(2)
        for row in x:
            found = 0.5 * found + row
        return found

    @fl.local_computation(rows)
    def decided(x: Any) -> Any:
        return x.mean(0) if len(x) > 2 else torch.zeros(2)

    @fl.federated_computation(fl.FederatedType(rows, fl.CLIENTS))
    def both(given: Any) -> Any:
        return (
            fl.federated_collect(fl.federated_map(smoothed, given)),
            fl.federated_collect(fl.federated_map(decided, given)),
        )

    given = [np.full((count, 2), count, np.float32) for count in (1, 4, 2, 3, 4, 0, 1)]
    local = LocalContext(exact=True)
    with fl.framework.get_context_stack().install(local):
        expected = both(given)
    for _ in range(2):
        with fl.framework.get_context_stack().install(context):
            for found, wanted in zip(both(given), expected, strict=True):
                np.testing.assert_allclose(np.stack(found), np.stack(wanted), rtol=1e-6)


def mapping(function: Any) -> Any:
    """A sum of what a Python function gives for what clients hold."""
    work = fl.local_computation(np.int32, result=np.int32)(function)

    @fl.federated_computation(INTS)
    def mapped(values):
        return fl.federated_sum(fl.federated_map(work, values))

    return mapped


def test_results_are_those_of_the_local_context(context: RayContext) -> None:
    kind = fl.FederatedType(fl.TensorType(np.float32, [3]), fl.CLIENTS)

    @fl.federated_computation(kind, fl.FederatedType(np.float32, fl.CLIENTS))
    def made(values, weights):
        return (
            fl.federated_sum(values),
            fl.federated_mean(values, weight=weights),
            fl.federated_max(values),
            fl.federated_collect(weights),
        )

    arguments = drawn(np.float32), [np.float32(at / 3) for at in range(23)]
    expected = made(*arguments)
    with fl.framework.get_context_stack().install(context):
        assert bits(made(*arguments)) == bits(expected)
        # The second time workers know it.
        assert bits(made(*arguments)) == bits(expected)


def test_it_says_where_clients_work(context: RayContext) -> None:
    here = os.getpid()
    pids = context.invoke(mapping(lambda x: np.int32(os.getpid() != here)), list(range(20)))
    assert pids == 20


@pytest.mark.parametrize(("workers", "chunk"), [(1, 2), (2, 5)])
def test_training_agrees_to_the_bit(cluster: Any, workers: int, chunk: int) -> None:
    process, clients = training()
    state = process.initialize()
    with fl.framework.get_context_stack().install(LocalContext(exact=True)):
        expected = process.run(state, [clients] * 2)
    with RayContext(workers=workers, chunk=chunk, exact=True) as context:
        with fl.framework.get_context_stack().install(context):
            found = process.run(state, [clients] * 2)
    assert bits(found) == bits(expected)


def training() -> Any:
    """A process, and the rows of eleven clients, of which one has none."""
    torch.manual_seed(0)
    process = learning.build_fed_avg(classifier(nn.Linear(4, 3), 4), steps=2)
    return process, drawn_clients((3, 5, 5, 0, 5, 2, 5, 5, 1, 5, 5), 0)


def test_chunks_are_larger_where_there_are_many() -> None:
    sizes = {10: (2, 5), 600: (1, 256), 2047: (1, 256), 2048: (1, 512), 4000: (1, 768)}
    sizes |= {100_000: (1, 1024), 9000: (4, 512), 1000: (8, 125)}
    for clients, (workers, expected) in sizes.items():
        assert _chunk(clients, workers, 100) == expected
    # What clients have is to fit into memory.
    assert _chunk(100_000, 1, 1 << 22) == 64
    assert _chunk(100_000, 1, 1 << 40) == 1


def test_clients_at_once_agree_up_to_rounding(context: RayContext) -> None:
    process, clients = training()
    state = process.initialize()
    expected, _ = process.next(state, clients)
    with fl.framework.get_context_stack().install(context):
        found, _ = process.next(state, clients)
    for name, weights in expected["weights"].items():
        np.testing.assert_allclose(found["weights"][name], weights, rtol=1e-5, atol=1e-6)


def test_a_round_that_is_wrong_names_the_client(context: RayContext) -> None:
    process, clients = training()
    clients[4]["inputs"][0, 0] = np.nan
    state = process.initialize()
    messages = []
    for installed in (LocalContext(), context):
        with fl.framework.get_context_stack().install(installed):
            with pytest.raises(learning.ClientError) as caught:
                process.next(state, clients)
        messages.append((str(caught.value), caught.value.client))
    assert messages[0] == messages[1]
    assert messages[0][1] == 4


def test_a_failure_names_the_first_client_and_the_line(context: RayContext) -> None:
    def fail(x):
        if x in (7, 13):
            raise ValueError(f"no {x}")  # here
        time.sleep(0.01 * (x < 7))
        return x

    with pytest.raises(ValueError, match="no 7") as caught:
        context.invoke(mapping(fail), list(range(20)))
    assert caught.value.__notes__ == ["at client 7"]
    assert f'{__file__}", line' in str(caught.value.__cause__)
    assert "# here" in str(caught.value.__cause__)
    # The workers go on.
    assert context.invoke(mapping(lambda x: x), list(range(20))) == 190


def test_exceptions_that_cannot_travel_are_told(context: RayContext) -> None:
    class TwoArgumentsError(Exception):
        def __init__(self, text: str, code: int) -> None:
            super().__init__(text)

    def fail(x):
        raise TwoArgumentsError("wrong", 3)

    with pytest.raises(RuntimeError, match="TwoArgumentsError: wrong") as caught:
        context.invoke(mapping(fail), [1])
    assert caught.value.__notes__ == ["at client 0"]


def test_functions_that_cannot_travel_are_named(context: RayContext) -> None:
    lock = threading.Lock()

    def locked(x):
        with lock:
            return x

    with pytest.raises(UnsendableError) as caught:
        context.invoke(mapping(locked), [1, 2])
    lines = str(caught.value).splitlines()
    assert "`locked`" in lines[0] and "cannot pickle '_thread.lock' object" in lines[0]
    assert lines[2].startswith("  hint:")
    # The server's own functions needn't travel.
    at_server = fl.local_computation(np.int32, result=np.int32)(locked)

    @fl.federated_computation(INTS)
    def total(values):
        return fl.federated_map(at_server, fl.federated_sum(values))

    assert context.invoke(total, [1, 2]) == 3


def test_functions_that_workers_cannot_import_are_told(context: RayContext) -> None:
    with pytest.raises(UnsendableError, match="a worker can't read the computation: ModuleNot"):
        context.invoke(mapping(bits), [1, 2])


def test_functions_are_sent_again_when_they_change(context: RayContext) -> None:
    added = [1]
    computation = mapping(lambda x: np.int32(x + added[0]))
    assert context.invoke(computation, [1, 2]) == 5
    added[0] = 10
    assert context.invoke(computation, [1, 2]) == 23


def test_a_worker_that_dies_is_replaced(
    context: RayContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "stator.federated")

    def die_once(x):
        if x == 10 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    computation = mapping(die_once)
    assert context.invoke(computation, list(range(20))) == 190
    assert (tmp_path / "died").exists()
    assert "the work of clients 9 to 11 is done again: ActorDiedError" in caplog.text
    # The new one was sent what it hadn't got.
    assert context.invoke(computation, list(range(20))) == 190
    time.sleep(0.5)
    assert type(builtins.print).__name__ == "builtin_function_or_method"


def test_an_interrupt_ends_what_workers_do(context: RayContext, tmp_path: Path) -> None:
    def hang(x):
        (tmp_path / "begun").touch()
        time.sleep(600)
        return x

    def interrupt() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    # What a shell runs in the background ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        context.invoke(mapping(hang), [1, 2, 3])
    thread.join()
    signal.signal(signal.SIGINT, before)
    assert context.invoke(mapping(lambda x: x), [1, 2, 3]) == 6


def test_lost_objects_are_stored_again(context: RayContext) -> None:
    computation = mapping(lambda x: x)
    assert context.invoke(computation, list(range(20))) == 190
    # Workers that don't know the computation look for it where it was.
    assert context._workers is not None
    for process in context._workers._processes:
        ray.kill(process.handle)

    # It is lost with the process that has put it there.
    class Owner:
        def put(self) -> list[Any]:
            return [ray.put(b"lost")]

    owner: Any = ray.remote(num_cpus=0)(Owner).remote()
    (lost,) = ray.get(owner.put.remote())
    ray.kill(owner)
    stored = context._computations[id(computation)]._stored
    assert stored is not None
    stored.reference = lost
    assert context.invoke(computation, list(range(20))) == 190
    assert stored.reference != lost


def test_what_cannot_be_done_can_be_tried_again(cluster: Any, tmp_path: Path) -> None:
    def die(x):
        if x == 4 and not (tmp_path / "well").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    computation = mapping(die)
    with RayContext(workers=1, chunk=3, attempts=2) as context:
        with pytest.raises(RetryableError) as caught:
            context.invoke(computation, list(range(8)))
        assert str(caught.value).startswith(
            "the work of clients 3 to 5 couldn't be done in 2 attempts: "
        )
        (tmp_path / "well").touch()
        assert context.invoke(computation, list(range(8))) == 28


def test_clients_that_are_lost_are_named(cluster: Any) -> None:
    lethal = fl.local_computation(np.int32, result=np.int32)(
        lambda x: os.kill(os.getpid(), signal.SIGKILL) if x == 3 else x
    )
    count = fl.federated_computation(
        lambda values: fl.federated_sum(fl.federated_map(lethal, values)), INTS
    )
    # A chunk for each worker: the reply of one before may be lost with the worker.
    with RayContext(workers=2, chunk=4, attempts=1) as context:
        with pytest.raises(ClientsLostError) as caught:
            context.invoke(count, list(range(8)))
    assert caught.value.clients == range(4)


def test_what_is_larger_than_the_store_goes_to_disk(context: RayContext) -> None:
    made = large(40_000_000)
    with fl.framework.get_context_stack().install(context):
        assert made(np.full(40_000_000, 2, np.float32), [1.0, 2.0]) == 7


def large(size: int) -> Any:
    """A sum of numbers, to each of which something large from the server is added."""
    row = fl.TensorType(np.float32, [size])
    add = fl.local_computation(row, np.float32, result=np.float32)(
        lambda weights, x: np.float32(weights[-1] + x)
    )

    @fl.federated_computation(
        fl.FederatedType(row, fl.SERVER), fl.FederatedType(np.float32, fl.CLIENTS)
    )
    def added(weights, values):
        sent = fl.federated_broadcast(weights)
        return fl.federated_sum(fl.federated_map(add, (sent, values)))

    return added


def test_a_full_store_is_an_error_that_may_be_tried_again() -> None:
    """There is no place on disk either: what is broadcast, what clients have, what workers make."""
    program = """
        import os
        import numpy as np, ray
        import stator.federated as fl
        from stator.federated.ray import ClientsLostError, RayContext, RetryableError

        settings = {"local_fs_capacity_threshold": 0.0, "object_store_full_delay_ms": 10}
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        ray.init(
            address="local", num_cpus=1, object_store_memory=80 << 20, include_dashboard=False,
            log_to_driver=False, _system_config=settings,
        )
        size = 25_000_000
        row = fl.TensorType(np.float32, [size])
        last = fl.local_computation(row, result=np.float32)(lambda x: x[-1])
        make = fl.local_computation(np.float32, result=row)(lambda x: np.full(size, x, np.float32))
        of_clients = lambda of: fl.FederatedType(of, fl.CLIENTS)

        @fl.federated_computation(fl.FederatedType(row, fl.SERVER), of_clients(np.float32))
        def broadcast(weights, values):
            sent = fl.federated_map(last, fl.federated_broadcast(weights))
            return fl.federated_sum(sent), fl.federated_sum(values)

        @fl.federated_computation(of_clients(row))
        def given(values):
            return fl.federated_sum(fl.federated_map(last, values))

        @fl.federated_computation(of_clients(np.float32))
        def made(values):
            return fl.federated_sum(fl.federated_map(make, values))

        @fl.federated_computation(of_clients(np.float32))
        def small(values):
            return fl.federated_sum(values)

        whole = np.ones(size, np.float32)
        with RayContext(workers=1, attempts=2) as context:
            fl.framework.set_default_context(context)
            for call in (
                lambda: broadcast(whole, [1.0]), lambda: given([whole]), lambda: made([1.0])
            ):
                try:
                    call()
                except RetryableError as error:
                    print(type(error).__name__, "isk is full" in str(error))
                print(small([1.0, 2.0]))
    """
    done = in_a_process(program)
    assert done.stdout.splitlines() == [
        *("RetryableError True", "3.0"),
        *("ClientsLostError True", "3.0"),
        *("ClientsLostError True", "3.0"),
    ], done.stderr


def test_slow_clients_are_done_elsewhere(cluster: Any, tmp_path: Path) -> None:
    def hang_once(x):
        if x == 4 and not (tmp_path / "hung").exists():
            (tmp_path / "hung").touch()
            time.sleep(600)
        return x

    with RayContext(workers=2, chunk=2, timeout=4.0) as context:
        assert context.invoke(mapping(hang_once), list(range(8))) == 28
    assert (tmp_path / "hung").exists()


def test_a_node_that_is_lost(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1, resources={"lost": 1}, object_store_memory=100 << 20)
    cluster.wait_for_nodes()

    def wait(x):
        (tmp_path / f"begun {x}").touch()
        while x == 0 and not (tmp_path / "lost").exists():
            time.sleep(0.01)
        return x

    def lose() -> None:
        while not (tmp_path / "begun 0").exists():
            time.sleep(0.01)
        cluster.remove_node(node, allow_graceful=False)
        (tmp_path / "lost").touch()

    # The worker needs what the node has. Another node with that comes later.
    options = {"resources": {"lost": 0.001}}
    with RayContext(workers=1, chunk=2, attempts=5, options=options) as context:
        assert context.invoke(mapping(lambda x: x), [1, 2]) == 3
        spare = cluster.add_node(num_cpus=1, resources={"lost": 1}, object_store_memory=100 << 20)
        thread = threading.Thread(target=lose)
        thread.start()
        assert context.invoke(mapping(wait), list(range(6))) == 15
        thread.join()
    cluster.remove_node(spare)


def test_random_numbers_are_the_clients_own(cluster: Any) -> None:
    row = fl.TensorType(np.float32, [4])

    @fl.local_computation(row)
    def noise(x):
        return x + torch.randn(4)

    @fl.federated_computation(fl.FederatedType(row, fl.CLIENTS))
    def noised(values):
        return fl.federated_map(noise, values)

    values = [np.zeros(4, np.float32)] * 6
    found = []
    for make in (
        lambda: contextlib.nullcontext(LocalContext()),
        lambda: contextlib.nullcontext(LocalContext(exact=True)),
        lambda: RayContext(workers=1, chunk=2),
        lambda: RayContext(workers=2, chunk=4, exact=True),
    ):
        torch.manual_seed(6)
        with make() as context:
            first, second = context.invoke(noised, values), context.invoke(noised, values)
        found.append(bits([first, second, torch.rand(3).numpy()]))
        rows = {row.tobytes() for row in (*first, *second)}
        assert len(rows) == 12
    # A client draws the same, wherever its work is done, and so do others behind it.
    assert found == found[:1] * 4


def test_clients_of_later_stages_draw_as_they_do_here(cluster: Any) -> None:
    row = fl.TensorType(np.float32, [4])
    noise = fl.local_computation(row, row)(lambda x, mean: x - mean + torch.randn(4))
    more = fl.local_computation(row)(lambda x: x + torch.rand(4))

    @fl.federated_computation(fl.FederatedType(row, fl.CLIENTS))
    def staged(values):
        first = fl.federated_map(more, values)
        mean = fl.federated_broadcast(fl.federated_mean(first))
        second = fl.federated_map(noise, (values, mean))
        # It needs nothing of the server's, so its clients are done with in the first stage.
        third = fl.federated_map(more, values)
        at_server = fl.federated_map(more, fl.federated_mean(second))
        return first, second, third, at_server

    values = [np.full(4, at, np.float32) for at in range(5)]
    found = []
    for make in (
        lambda: contextlib.nullcontext(LocalContext(exact=True)),
        lambda: RayContext(workers=2, chunk=2, exact=True),
    ):
        torch.manual_seed(2)
        with make() as context:
            found.append(bits([*context.invoke(staged, values)]))
    assert found[0] == found[1]


def test_what_is_not_split_runs_here(context: RayContext, caplog: pytest.LogCaptureFixture) -> None:
    @fl.federated_computation(fl.FunctionType(np.int32, np.int32), np.int32)
    def applied(function, x):
        return function(x)

    double = fl.local_computation(lambda x: x * 2, np.int32)
    with caplog.at_level("INFO", "stator.federated"):
        with fl.framework.get_context_stack().install(context):
            assert applied(double, 4) == 8
    assert "runs in this process: its argument has functions" in caplog.text


def test_settings_are_checked_and_a_closed_context_says_so(cluster: Any) -> None:
    for wrong, said in (
        ({"workers": "2"}, "`workers` must be an integer, not '2'"),
        ({"chunk": 2.5}, "`chunk` must be an integer, not 2.5"),
        ({"timeout": -1}, "`timeout` must be a number of seconds above 0, not -1"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            RayContext(**wrong)
    with pytest.raises(ValueError, match="`chunk` must be 1 or more, not 0"):
        RayContext(chunk=0)
    context = RayContext(workers=1)
    context.close()
    context.close()
    assert repr(context) == "RayContext(None, closed)"
    with pytest.raises(RuntimeError, match="this RayContext is closed"):
        context.invoke(mapping(lambda x: x), [1])


def test_a_cluster_of_its_own() -> None:
    """It begins and ends with the context, says nothing, and leaves no process behind."""
    program = """
        import os, pathlib, sys
        import numpy as np
        import stator.federated as fl

        assert "ray" not in sys.modules
        from stator.federated.ray import RayContext

        @fl.federated_computation(fl.FederatedType(np.float32, fl.CLIENTS))
        def mean(values):
            return fl.federated_mean(values)

        with RayContext(workers=1) as context:
            fl.framework.set_default_context(context)
            print(mean([1.0, 2.0, 6.0]))
            assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        children = [path.read_text() for path in pathlib.Path("/proc/self/task").glob("*/children")]
        assert not any(children), children
    """
    done = in_a_process(program)
    assert (done.stdout, done.stderr, done.returncode) == ("3.0\n", "", 0)


def test_without_ray_it_says_what_is_needed() -> None:
    program = """
        import sys
        sys.modules["ray"] = None
        import stator.federated
        try:
            import stator.federated.ray
        except ModuleNotFoundError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    assert "`stator.federated.ray` needs Ray" in done.stdout
    assert "pip install 'stator[ray]'" in done.stdout


def test_bad_rows_are_said_of_their_client(context: RayContext) -> None:
    def longer(rows: Any) -> None:
        rows["labels"] = np.append(rows["labels"], 0)

    def wide(rows: Any) -> None:
        rows["inputs"] = rows["inputs"].astype(np.float64)

    def beyond(rows: Any) -> None:
        rows["labels"] = rows["labels"] + 7

    def unknown(rows: Any) -> None:
        rows["inputs"][0, 0] = np.nan

    process = learning.build_fed_avg(classifier(nn.Linear(4, 3), 4))
    with fl.framework.get_context_stack().install(context):
        state = process.initialize()
        before = {name: array.copy() for name, array in state["weights"].items()}
        for wrong in (longer, wide, beyond, unknown):
            rows = drawn_clients((6, 3, 5, 4, 6), 0)
            wrong(rows[3])
            with pytest.raises((ValueError, TypeError, IndexError)) as raised:
                process.next(state, rows)
            said = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", ())])
            assert "client 3" in said, said
            np.testing.assert_equal(dict(state["weights"]), before)


def test_lines_of_programs_are_the_users(context: RayContext) -> None:
    of = fl.to_type({"x": fl.TensorType(np.float32, [2, 3]), "y": np.int64})

    @fl.local_computation(of)
    def loss(rows: Any) -> Any:
        return nn.functional.nll_loss(rows["x"], rows["y"].expand(2))

    @fl.federated_computation(fl.FederatedType(of, fl.CLIENTS))
    def total(rows: Any) -> Any:
        return fl.federated_sum(fl.federated_map(loss, rows))

    clients = [{"x": np.zeros((2, 3), np.float32), "y": np.int64(at)} for at in (0, 1, 2, 3)]
    with fl.framework.get_context_stack().install(context):
        with pytest.raises(IndexError, match="out of bounds") as failed:
            total(clients)
    [note, client] = failed.value.__notes__
    assert note.startswith("In a tensor program: ")
    assert f'File "{__file__}", line {loss_line()}, in ' in note
    assert client == "at client 3"


def loss_line() -> int:
    lines = Path(__file__).read_text().splitlines()
    return 1 + next(at for at, line in enumerate(lines) if "nll_loss(rows" in line)
