"""Contexts that begin, join, leave and lose clusters, one after the other and at the same time."""

from __future__ import annotations

import pytest

pytest.importorskip("ray", reason="Ray isn't installed")

from .test_ray import in_a_process

BEGUN = """
    import os
    import subprocess
    import sys
    import threading

    # Ray may end the process with a fault after the last line.
    sys.stdout.reconfigure(line_buffering=True)

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import numpy as np
    import ray
    import stator.federated as fl
    from stator.federated.ray import RayContext

    @fl.federated_computation(fl.FederatedType(np.float32, fl.CLIENTS))
    def mean(values):
        return fl.federated_mean(values)

    def said(context):
        try:
            return context.invoke(mean, [1.0, 2.0, 6.0])
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def own_cluster():
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
"""


def printed(program: str) -> list[str]:
    done = in_a_process(BEGUN + program)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


def test_clusters_of_its_own_and_others_take_turns() -> None:
    program = """
    node = '''
    import sys
    from ray.cluster_utils import Cluster
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "object_store_memory": 100 << 20, "include_dashboard": False},
    )
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()
    '''
    import textwrap
    other = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(node)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    address = other.stdout.readline().strip()
    for _ in range(2):
        with RayContext(workers=1) as context:
            print(said(context))
        with RayContext(address=address, workers=1) as context:
            print(said(context))
        print("RAY_AUTH_MODE" in os.environ, ray.is_initialized())
    own_cluster()
    ray.shutdown()
    with RayContext(address=address, workers=1) as context:
        print(said(context), os.environ.get("RAY_AUTH_MODE"))
    print(os.environ["RAY_AUTH_MODE"])
    other.stdin.close()
    other.wait()
    """
    lines = printed(program)
    assert lines[:6] == ["3.0", "3.0", "False False"] * 2
    # The other cluster wants no token, as the one that the user has begun did. That stays as Ray
    # leaves it.
    assert lines[6:] == ["3.0 None", "token"]


def test_an_address_without_a_cluster_is_told_at_once() -> None:
    program = """
    import http.server
    import time
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    begun = time.monotonic()
    for address in (f"127.0.0.1:{server.server_port}", "127.0.0.1:1", "ray://localhost:1"):
        try:
            RayContext(address=address, workers=1)
        except ConnectionError as error:
            print(str(error).replace(str(server.server_port), "PORT"))
    print(time.monotonic() - begun < 10, ray.is_initialized())
    """
    expected = "  expected: that of a cluster's head node, as `ray start --head` prints it"
    hint = (
        "  hint:     without `address=` there is a cluster on this machine, while the context lives"
    )
    told = "no Ray cluster answers at this address: "
    assert printed(program) == [
        f"{told}what is there doesn't speak its language",
        expected,
        "  found:    127.0.0.1:PORT",
        hint,
        f"{told}[Errno 111] Connection refused",
        expected,
        "  found:    127.0.0.1:1",
        hint,
        f"{told}[Errno 111] Connection refused",
        expected,
        "  found:    ray://localhost:1",
        hint,
        "True False",
    ]


def test_a_context_that_has_lost_its_cluster_says_so_and_ends_nothing() -> None:
    program = """
    context = RayContext(workers=1)
    print(said(context))
    ray.shutdown()
    print(said(context), ray.is_initialized())
    own_cluster()
    print(said(context))
    context.close()
    print(ray.is_initialized())
    with RayContext(workers=1) as context:
        print(said(context))
        # As a process sees it that was forked since: forking itself isn't safe with Ray's threads.
        context._cluster._process += 1
        print(said(context))
        context._cluster._process -= 1
        print(said(context))
    print(ray.is_initialized())
    """
    hint = "  hint:     make another one"
    assert printed(program) == [
        "3.0",
        "RuntimeError: this RayContext has lost its cluster: `ray.shutdown()` was called",
        f"{hint} False",
        "RuntimeError: this RayContext has lost its cluster: this process has joined another one since",
        hint,
        "True",
        "3.0",
        "RuntimeError: this RayContext was made before this process was forked, and Ray doesn't "
        "outlast that",
        hint,
        "3.0",
        "True",
    ]


def test_an_address_of_another_cluster_than_the_joined_one_is_an_error() -> None:
    program = """
    own_cluster()
    joined = ray.get_runtime_context().gcs_address
    port = joined.rpartition(":")[2]
    for address in (joined, f"localhost:{port}", f"127.0.0.1:{port}", "auto", "local"):
        with RayContext(address=address, workers=1) as context:
            print(said(context), ray.is_initialized())
    for address in ("192.0.2.1:6379", f"192.0.2.1:{port}", "localhost:1"):
        try:
            RayContext(address=address, workers=1)
        except RuntimeError as error:
            print(str(error).replace(joined, "JOINED").replace(port, "PORT"))
    print(ray.is_initialized())
    """
    lines = printed(program)
    assert lines[:5] == ["3.0 True"] * 5
    hint = "  hint:     call `ray.shutdown()` before, or leave `address=` out to use that one"
    for at, address in enumerate(("192.0.2.1:6379", "192.0.2.1:PORT", "localhost:1")):
        assert lines[5 + 4 * at : 9 + 4 * at] == [
            "this process has joined another Ray cluster already",
            f"  expected: {address}",
            "  found:    JOINED",
            hint,
        ]
    assert lines[17:] == ["True"]


def test_the_last_context_ends_the_cluster() -> None:
    program = """
    first = RayContext(workers=2)
    second = RayContext(workers=1)
    print(said(first))
    first.close()
    print(said(second), ray.is_initialized())
    second.close()
    print(ray.is_initialized())

    def in_a_thread():
        with RayContext(workers=1) as context:
            print(said(context))

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    print(ray.is_initialized())
    try:
        with RayContext(workers=1):
            raise KeyError("mine")
    except KeyError:
        print(ray.is_initialized())
    try:
        RayContext(workers=1, options={"num_cpus": -1})
    except ValueError as error:
        print(error, ray.is_initialized())
    """
    assert printed(program) == [
        "3.0",
        "3.0 True",
        "False",
        "3.0",
        "False",
        "False",
        "The quantity of resource num_cpus cannot be negative False",
    ]


def test_workers_that_cannot_start_say_why() -> None:
    program = """
    options = {"runtime_env": {"conda": "there is none"}}
    with RayContext(workers=1, options=options) as context:
        print(said(context))
    """
    [line] = printed(program)
    assert line.startswith("RetryableError: no worker starts: RuntimeEnvSetupError: "), line
