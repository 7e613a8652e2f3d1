# ruff: noqa: B023, B905
"""Statistics as practitioners compute them over clients of different sizes, beside plain loops: all
of a program's clients run at once."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import stator.federated as fl
from stator.federated.execution import LocalContext

torch = pytest.importorskip("torch")

T, F, C, S = fl.TensorType, fl.FederatedType, fl.CLIENTS, fl.SERVER
f32, f64, i64 = np.float32, np.float64, np.int64


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    return [np.asarray(value)]


@pytest.fixture
def compare(caplog: pytest.LogCaptureFixture) -> Any:
    """Looks whether what runs at once gives what a plain loop gives, and nothing ran apart."""

    def compared(run: Any, expected: Any, tolerance: float = 1e-3) -> None:
        caplog.set_level(logging.INFO, "stator.federated")
        for exact in (False, True):
            with fl.framework.get_context_stack().install(LocalContext(exact=exact)):
                found = leaves(run())
            for left, right in zip(found, leaves(expected), strict=True):
                np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)
        assert not caplog.messages

    return compared


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3013)


def test_cox_regression_by_strata(rng: np.random.Generator, compare: Any) -> None:
    """Each client is a stratum: the partial likelihood by sums over times in order."""
    weights = T(f32, [3])
    rows = OrderedDict(x=T(f32, [None, 3]), t=T(f32, [None]), e=T(f32, [None]))

    @fl.local_computation(weights, rows)
    def parts(w, b):
        order = torch.argsort(b["t"], descending=True)
        x, e = b["x"][order], b["e"][order]

        def loss(w):
            risk = x @ w
            return -((risk - torch.logcumsumexp(risk, 0)) * e).sum()

        return OrderedDict(g=torch.func.grad(loss)(w), h=torch.func.hessian(loss)(w))

    @fl.local_computation(weights, OrderedDict(g=weights, h=T(f32, [3, 3])))
    def newton(w, s):
        return w - torch.linalg.solve(s["h"] + 0.1 * torch.eye(3), s["g"])

    @fl.federated_computation(F(weights, S), F(rows, C))
    def step(w, b):
        found = fl.federated_map(parts, (fl.federated_broadcast(w), b))
        return fl.federated_map(newton, (w, fl.federated_sum(found)))

    given = [
        OrderedDict(
            x=rng.normal(size=(many, 3)).astype(f32),
            t=rng.exponential(size=many).astype(f32),
            e=(rng.random(many) > 0.3).astype(f32),
        )
        for many in (5, 7, 6, 12, 9)
    ]

    def run() -> Any:
        w = np.zeros(3, f32)
        for _ in range(3):
            w = step(w, given)
        return w

    w = np.zeros(3)
    for _ in range(3):
        g, h = np.zeros(3), 0.1 * np.eye(3)
        for b in given:
            for at in np.flatnonzero(b["e"]):
                x = b["x"][b["t"] >= b["t"][at]].astype(f64)
                p = np.exp(x @ w)
                p /= p.sum()
                g -= b["x"][at] - p @ x
                h += (x * p[:, None]).T @ x - np.outer(p @ x, p @ x)
        w = w - np.linalg.solve(h, g)
    compare(run, w, 2e-3)


def test_inducing_points(rng: np.random.Generator, compare: Any) -> None:
    """A Gaussian process: sums over kernels at the clients, the median of their squared errors."""
    points = torch.linspace(-2, 2, 4)[:, None]
    rows = OrderedDict(x=T(f32, [None, 1]), y=T(f32, [None]))

    def kernel(a, b):
        return torch.exp(-0.5 * torch.cdist(a, b) ** 2)

    @fl.local_computation(rows)
    def parts(b):
        k = kernel(points, b["x"])
        return OrderedDict(a=k @ k.T, b=torch.addmv(torch.zeros(4), k, b["y"]))

    @fl.local_computation(OrderedDict(a=T(f32, [4, 4]), b=T(f32, [4])))
    def solved(s):
        prior = kernel(points, points) + 1e-4 * torch.eye(4)
        return torch.linalg.solve(0.04 * prior + s["a"], s["b"])

    @fl.local_computation(T(f32, [4]), rows)
    def error(c, b):
        return ((kernel(b["x"], points) @ c - b["y"]) ** 2).quantile(0.5)

    @fl.federated_computation(F(rows, C))
    def fit(b):
        c = fl.federated_map(solved, fl.federated_sum(fl.federated_map(parts, b)))
        errors = fl.federated_map(error, (fl.federated_broadcast(c), b))
        return c, fl.federated_mean(errors)

    given = []
    for many in (6, 8, 5, 12, 9):
        x = rng.normal(size=(many, 1)).astype(f32)
        given.append(OrderedDict(x=x, y=np.sin(x[:, 0]).astype(f32)))

    def plain(a: Any, b: Any) -> Any:
        return np.exp(-0.5 * (a[:, None] - b) ** 2)

    z = np.linspace(-2, 2, 4)
    a, b = 0.04 * (plain(z, z) + 1e-4 * np.eye(4)), 0.0
    for each in given:
        k = plain(z, each["x"][:, 0].astype(f64))
        a, b = a + k @ k.T, b + k @ each["y"]
    c = np.linalg.solve(a, b)
    off = [np.median((plain(each["x"][:, 0], z) @ c - each["y"]) ** 2) for each in given]
    compare(lambda: fit(given), (c, np.mean(off)), 5e-3)


def test_loads_by_hour_numpy(rng: np.random.Generator, compare: Any) -> None:
    """Loads by hour, and how well four fifths of a series tell the rest."""
    rows = OrderedDict(h=T(i64, [None]), load=T(f64, [None]))

    @fl.local_computation(rows)
    def parts(b):
        hours = np.bincount(b["h"] % 24, weights=b["load"], minlength=24)
        cut = int(0.8 * len(b["load"]))
        past, rest = b["load"][:cut], b["load"][cut:]
        return OrderedDict(
            hours=hours,
            off=np.abs(rest - past.mean()).mean(),
            change=np.abs(np.diff(b["load"])).sum() / (len(b["load"]) - 1),
            high=np.percentile(b["load"], 95),
        )

    @fl.federated_computation(F(rows, C))
    def told(b):
        found = fl.federated_map(parts, b)
        beside = fl.federated_zip((found.off, found.change, found.high))
        return fl.federated_sum(found.hours), fl.federated_mean(beside)

    given = [
        OrderedDict(h=np.arange(many), load=rng.gamma(2, 1, many)) for many in (50, 33, 60, 40)
    ]
    hours, beside = np.zeros(24), []
    for b in given:
        np.add.at(hours, b["h"] % 24, b["load"])
        cut = int(0.8 * len(b["load"]))
        off = np.abs(b["load"][cut:] - b["load"][:cut].mean()).mean()
        beside.append((off, np.abs(np.diff(b["load"])).mean(), np.percentile(b["load"], 95)))
    compare(lambda: told(given), (hours, tuple(np.mean(beside, axis=0))), 1e-9)


def test_trips_between_zones_numpy(rng: np.random.Generator, compare: Any) -> None:
    """Trips from zone to zone, their lengths, and who goes where in the hours that count."""
    rows = OrderedDict(lat=T(f64, [None]), lon=T(f64, [None]), zone=T(i64, [None]))

    @fl.local_computation(rows)
    def parts(b):
        trips = np.zeros((4, 4))
        np.add.at(trips, (b["zone"][:-1], b["zone"][1:]), 1)
        lat, lon = np.radians(b["lat"]), np.radians(b["lon"])
        half = np.sin(np.diff(lat) / 2) ** 2
        half = half + np.cos(lat[:-1]) * np.cos(lat[1:]) * np.sin(np.diff(lon) / 2) ** 2
        north = b["zone"][b["lat"] > 48]
        return OrderedDict(
            trips=trips,
            length=2 * 6371 * np.arcsin(np.sqrt(half)).sum(),
            north=np.bincount(north, minlength=4),
            last=b["zone"][-1],
        )

    @fl.federated_computation(F(rows, C))
    def told(b):
        return fl.federated_sum(fl.federated_map(parts, b))

    given = [
        OrderedDict(
            lat=48 + rng.normal(size=many) / 10,
            lon=2 + rng.normal(size=many) / 10,
            zone=rng.integers(0, 4, many),
        )
        for many in (8, 15, 6, 12, 11)
    ]
    trips, length, north, last = np.zeros((4, 4)), 0.0, np.zeros(4), 0
    for b in given:
        for a, c in zip(b["zone"], b["zone"][1:]):
            trips[a, c] += 1
        lat, lon = np.radians(b["lat"]), np.radians(b["lon"])
        half = np.sin(np.diff(lat) / 2) ** 2
        half += np.cos(lat[:-1]) * np.cos(lat[1:]) * np.sin(np.diff(lon) / 2) ** 2
        length += (2 * 6371 * np.arcsin(np.sqrt(half))).sum()
        north += np.bincount(b["zone"][b["lat"] > 48], minlength=4)
        last += b["zone"][-1]
    compare(lambda: told(given), (trips, length, north, last), 1e-9)
