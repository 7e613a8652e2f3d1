"""What programs written by hand are compared with: the same in NumPy and PyTorch alone."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import torch

import stator.federated as fl

OD = collections.OrderedDict
T = fl.TensorType
f32, i32, i64 = np.float32, np.int32, np.int64


def at(placement, of):
    return fl.FederatedType(of, placement)


S, C = fl.SERVER, fl.CLIENTS


def close(a: Any, b: Any, tolerance: float = 2e-5) -> None:
    if isinstance(b, dict):
        assert list(a) == list(b)
        for key in b:
            close(a[key], b[key], tolerance)
        return
    if isinstance(b, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            close(x, y, tolerance)
        return
    if isinstance(b, torch.Tensor):
        b = b.detach().numpy()
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def rows(seed, n, width=4, classes=3):
    r = np.random.default_rng(seed)
    return r.normal(size=(n, width)).astype(f32), r.integers(0, classes, n)


def type_of(module):
    return fl.StructWithPythonType(
        [(k, T(f32, list(v.shape))) for k, v in module.named_parameters()], OD
    )


def numbers(module):
    return OD((k, v.detach().numpy().copy()) for k, v in module.named_parameters())


def mean(dicts, weights=None):
    weights = [1.0] * len(dicts) if weights is None else weights
    return OD(
        (
            k,
            sum(float(w) * np.asarray(d[k], np.float64) for d, w in zip(dicts, weights))
            / float(sum(weights)),
        )
        for k in dicts[0]
    )
