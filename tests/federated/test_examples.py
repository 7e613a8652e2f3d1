"""The examples of federated computations, on less data and in fewer rounds than `make` runs them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("torch")

import torch

from examples import federated_averaging, federated_learning, federated_linear_regression


@pytest.mark.parametrize("clients", [1, 5])
def test_linear_regression(clients: int, capsys: pytest.CaptureFixture[str]) -> None:
    model, pooled = federated_linear_regression.run(clients)
    np.testing.assert_allclose(model, pooled, rtol=0, atol=1e-3)
    printed = capsys.readouterr().out
    assert "fc_fit_symbol_1=federated_sum(fc_fit_symbol_0)" in printed
    assert f"{clients} clients with" in printed


def test_averaging(capsys: pytest.CaptureFixture[str]) -> None:
    # Also that another process reads the computation and gets the same.
    accuracy = federated_averaging.run(clients=4, rounds=6)
    assert accuracy > 0.85
    printed = capsys.readouterr().out
    assert "fc_train_round_symbol_0=federated_broadcast(train_round_arg[0])" in printed
    assert printed.count("round ") >= 6
    assert "another process read the round" in printed


def test_learning(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        accuracies = federated_learning.run(clients=8, rounds=10)
    finally:
        torch.set_num_threads(threads)
    # One of ten digits is guessed.
    private = accuracies.pop("DP-FedAvg")
    assert accuracies.keys() == {"FedAvg", "FedProx", "FedAdam", "SCAFFOLD"}
    assert min(accuracies.values()) > 0.6
    # Noise for eight clients leaves little.
    assert 0 <= private <= 1
    assert "FedAdam   10 rounds of 8 clients" in capsys.readouterr().out


def test_learning_on_two_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray", reason="Ray isn't installed")
    threads = torch.get_num_threads()
    try:
        assert federated_learning.run_on_two_nodes(clients=12, rounds=2)
    finally:
        torch.set_num_threads(threads)
    assert "two nodes, a worker killed" in capsys.readouterr().out
