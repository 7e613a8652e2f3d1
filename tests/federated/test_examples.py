"""The examples of federated computations, on less data and in fewer rounds than `make` runs them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("torch")

import torch

from examples import (
    federated_analytics,
    federated_averaging,
    federated_learning,
    federated_linear_regression,
)


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
    # Rounding alone lies between the loop and FedAvg.
    assert accuracies.pop("loop") == pytest.approx(accuracies["FedAvg"], abs=0.01)
    assert accuracies.keys() == {"FedAvg", "FedProx", "FedAdam", "SCAFFOLD"}
    assert min(accuracies.values()) > 0.6
    # Noise for eight clients leaves little.
    assert 0 <= private <= 1
    assert "FedAdam   10 rounds of 8 clients" in capsys.readouterr().out


def test_a_transformer_learns(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        assert federated_learning.run_transformer(clients=6, rounds=12) > 0.6
    finally:
        torch.set_num_threads(threads)
    assert "attention 12 rounds of 6 clients" in capsys.readouterr().out


def test_analytics(capsys: pytest.CaptureFixture[str]) -> None:
    histogram, found, texts = federated_analytics.run(count=60, least=12)
    words = [word for own in texts for word in own]
    assert histogram.tolist() == [sum(len(word) == size for word in words) for size in range(1, 9)]
    counts = {word: sum(word in own for own in texts) for word in set(words)}
    assert found == {word: number for word, number in counts.items() if number >= 12}
    assert {"the", "and"} <= found.keys() and len(found) < len(counts)
    assert "words that at least 12 clients have" in capsys.readouterr().out


def test_learning_on_two_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray", reason="Ray isn't installed")
    threads = torch.get_num_threads()
    try:
        assert federated_learning.run_on_two_nodes(clients=12, rounds=2)
    finally:
        torch.set_num_threads(threads)
    assert "two nodes, a worker killed" in capsys.readouterr().out
