"""Federated statistics: `python -m examples.federated_statistics`.

Clients have readings of a sensor, each its own number of them. Means, the standard deviation, the
extremes and quantiles are those of all readings together, though no reading leaves its client: for
a quantile, the server asks in rounds how many readings lie below each of some values, and narrows
them down. The work is NumPy code, and PyTorch isn't needed.
"""

from __future__ import annotations

import argparse

import numpy as np

import stator.federated as fl

BINS = 64
READINGS = fl.TensorType(np.float64, [None])
EDGES = fl.TensorType(np.float64, [BINS])
COUNTS = fl.TensorType(np.int64, [BINS])
CLIENTS_READINGS = fl.FederatedType(READINGS, fl.CLIENTS)

Readings = list[np.ndarray]


@fl.local_computation(READINGS, result=(np.float64, np.float64))
def mean_and_count(readings: np.ndarray) -> tuple[float, float]:
    """The mean of a client's readings, and how many there are."""
    return float(np.mean(readings)), float(len(readings))


@fl.local_computation(np.float64, READINGS, result=(np.float64, np.float64))
def spread_and_count(mean: float, readings: np.ndarray) -> tuple[float, float]:
    """How far a client's readings are from a mean, and how many there are."""
    return float(np.mean((readings - mean) ** 2)), float(len(readings))


@fl.local_computation(READINGS, result=(np.float64, np.float64))
def ends(readings: np.ndarray) -> tuple[float, float]:
    """The least and the greatest of a client's readings."""
    return float(np.min(readings)), float(np.max(readings))


@fl.local_computation(EDGES, READINGS, result=COUNTS)
def counts_up_to(edges: np.ndarray, readings: np.ndarray) -> np.ndarray:
    """How many of a client's readings are at most each of some values."""
    return np.searchsorted(np.sort(readings), edges, side="right").astype(np.int64)


@fl.federated_computation(CLIENTS_READINGS)
def moments(readings):
    """The mean and the variance of all readings."""
    means = fl.federated_map(mean_and_count, readings)
    mean = fl.federated_mean(means[0], weight=means[1])
    spreads = fl.federated_map(spread_and_count, (fl.federated_broadcast(mean), readings))
    return mean, fl.federated_mean(spreads[0], weight=spreads[1])


@fl.federated_computation(CLIENTS_READINGS)
def extremes(readings):
    """The least and the greatest of all readings."""
    of_each = fl.federated_map(ends, readings)
    return fl.federated_min(of_each[0]), fl.federated_max(of_each[1])


@fl.federated_computation(fl.FederatedType(EDGES, fl.SERVER), CLIENTS_READINGS)
def cumulative(edges, readings):
    """How many of all readings are at most each of some values."""
    return fl.federated_sum(
        fl.federated_map(counts_up_to, (fl.federated_broadcast(edges), readings))
    )


def quantile(share: float, readings: Readings) -> tuple[float, int]:
    """The least value that `share` of all readings don't exceed, and the rounds it took."""
    low, high = map(float, extremes(readings))
    wanted = max(1, int(np.ceil(share * sum(map(len, readings)))))
    rounds, tolerance = 0, 1e-9 * max(abs(low), abs(high))
    while high - low > tolerance:
        # Enough readings are at most `high`; too few are at most `low`, unless it is the least.
        edges = np.linspace(low, high, BINS)
        counts = cumulative(edges, readings)
        rounds += 1
        enough = int(np.argmax(counts >= wanted))
        low, high = float(edges[max(0, enough - 1)]), float(edges[enough])
    return high, rounds


def simulate(clients: int) -> Readings:
    """Temperatures at places that differ in their number, their mean and their spread."""
    random = np.random.default_rng(0)
    return [
        random.normal(15 + 5 * random.standard_normal(), 1 + random.random(), 40 + 15 * client)
        for client in range(clients)
    ]


def run(clients: int = 10) -> tuple[dict[str, float], dict[str, float]]:
    """Prints what comes out; gives it, and the same of all readings in one place."""
    readings = simulate(clients)
    print(moments.to_building_block().formatted_representation())
    mean, variance = moments(readings)
    low, high = extremes(readings)
    found = {"mean": mean, "deviation": np.sqrt(variance), "least": low, "greatest": high}
    pooled = np.concatenate(readings)
    expected = {
        "mean": pooled.mean(),
        "deviation": pooled.std(),
        "least": pooled.min(),
        "greatest": pooled.max(),
    }
    for share in (0.05, 0.5, 0.95):
        name = f"quantile {share}"
        found[name], rounds = quantile(share, readings)
        expected[name] = np.quantile(pooled, share, method="inverted_cdf")
        print(f"{name} took {rounds} rounds of {BINS} counts")
    print(f"{clients} clients with {[len(of) for of in readings]} readings")
    for name, value in found.items():
        print(f"{name:>14} {value:12.7f}   pooled {expected[name]:12.7f}")
    return (
        {name: float(value) for name, value in found.items()},
        {name: float(value) for name, value in expected.items()},
    )


def main() -> None:
    """Runs it with what the command line says."""
    parser = argparse.ArgumentParser(description="Federated statistics.")
    parser.add_argument("--clients", type=int, default=10)
    found, expected = run(parser.parse_args().clients)
    if not np.allclose(list(found.values()), list(expected.values()), rtol=1e-7, atol=0):
        raise SystemExit("the statistics differ from those of the pooled readings")


if __name__ == "__main__":
    main()
