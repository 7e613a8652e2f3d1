"""Federated linear regression: `python -m examples.federated_linear_regression`.

Each client sums up its own rows of scikit-learn's diabetes data; the sums are added up over the
clients, and the server solves for the coefficients. They are those of one regression over all rows
together. The work is NumPy code. What is said of the model after that is a mean over the clients,
weighted by their numbers of rows.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression

import stator.federated as fl

FEATURES = 10
#: The coefficients, then the intercept.
MODEL = fl.TensorType(np.float64, [FEATURES + 1])
ROWS = {
    "features": fl.TensorType(np.float64, [None, FEATURES]),
    "targets": fl.TensorType(np.float64, [None]),
}
MOMENTS = {
    "squares": fl.TensorType(np.float64, [FEATURES + 1, FEATURES + 1]),
    "products": fl.TensorType(np.float64, [FEATURES + 1]),
}
CLIENTS_ROWS = fl.FederatedType(ROWS, fl.CLIENTS)


def with_ones(features: np.ndarray) -> np.ndarray:
    """The features with a column for the intercept."""
    return np.column_stack([features, np.ones(len(features))])


@fl.local_computation(ROWS, result=MOMENTS)
def moments(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a regression needs of some rows."""
    x = with_ones(rows["features"])
    return {"squares": x.T @ x, "products": x.T @ rows["targets"]}


@fl.local_computation(MOMENTS, result=MODEL)
def solve(sums: dict[str, np.ndarray]) -> np.ndarray:
    """The model that fits the rows with these sums."""
    return np.linalg.solve(sums["squares"], sums["products"])


@fl.federated_computation(CLIENTS_ROWS)
def fit(rows):
    """The model that fits the rows of all clients."""
    sums = fl.federated_sum(fl.federated_map(moments, rows))
    return fl.federated_map(solve, sums)


@fl.local_computation(MODEL, ROWS, result=(np.float64, np.float64))
def squared_error(model: np.ndarray, rows: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """The mean squared error over some rows, and their number."""
    error = with_ones(rows["features"]) @ model - rows["targets"]
    return np.mean(error**2), float(len(error))


@fl.federated_computation(fl.FederatedType(MODEL, fl.SERVER), CLIENTS_ROWS)
def evaluate(model, rows):
    """The mean squared error over the rows of all clients."""
    sent = fl.federated_broadcast(model)
    errors = fl.federated_map(squared_error, (sent, rows))
    return fl.federated_mean(errors[0], weight=errors[1])


def split(clients: int) -> list[dict[str, np.ndarray]]:
    """The data at clients with different numbers of rows."""
    data = load_diabetes()
    order = np.random.default_rng(0).permutation(len(data.target))
    # The first client has about half as many rows as the last.
    shares = np.linspace(1, 2, clients)
    ends = np.cumsum(shares / shares.sum() * len(order)).astype(int)[:-1]
    return [
        {"features": data.data[rows], "targets": data.target[rows]}
        for rows in np.split(order, ends)
    ]


def run(clients: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Fits and prints; gives the model and that of all rows together."""
    rows = split(clients)
    print(fit.to_building_block().formatted_representation())
    model = fit(rows)
    data = load_diabetes()
    pooled = LinearRegression().fit(data.data, data.target)
    expected = np.append(pooled.coef_, pooled.intercept_)
    print(f"{clients} clients with {[len(of['targets']) for of in rows]} rows")
    for name, ours, theirs in zip([*data.feature_names, "intercept"], model, expected, strict=True):
        print(f"{name:>10} {ours:12.5f}   pooled {theirs:12.5f}")
    print(f"greatest difference {np.abs(model - expected).max():.2e}")
    print(f"mean squared error  {evaluate(model, rows):.3f}")
    return model, expected


def main() -> None:
    """Runs it with what the command line says."""
    parser = argparse.ArgumentParser(description="Federated linear regression.")
    parser.add_argument("--clients", type=int, default=8)
    model, expected = run(parser.parse_args().clients)
    if not np.allclose(model, expected, rtol=0, atol=1e-3):
        raise SystemExit("the coefficients differ from those of the pooled data")


if __name__ == "__main__":
    main()
