"""Federated learning: processes that train a model over rounds, composed of computations.

    model = learning.Model(net, F.cross_entropy, inputs=images, labels=digits)
    process = learning.build_fed_avg(model, client_optimizer=..., steps=5)
    state = process.initialize()
    state, metrics = process.next(state, clients)

Needs torch.
"""

from __future__ import annotations

from stator.federated.learning import metrics
from stator.federated.learning._checkpoints import CheckpointError, load_state, save_state
from stator.federated.learning._checks import ClientError
from stator.federated.learning._client_privacy import DPSGD
from stator.federated.learning._data import (
    ClientData,
    partition_by_dirichlet,
    partition_by_user,
    partition_evenly,
    rows_of,
)
from stator.federated.learning._evaluation import build_evaluation
from stator.federated.learning._models import Model
from stator.federated.learning._optimizers import ServerOptimizer, adagrad, adam, sgd, yogi
from stator.federated.learning._personalization import build_personalization
from stator.federated.learning._processes import (
    IterativeProcess,
    build_fed_adagrad,
    build_fed_adam,
    build_fed_avg,
    build_fed_prox,
    build_fed_sgd,
    build_fed_yogi,
)
from stator.federated.learning._sampling import (
    ClientSampler,
    ClientUnavailableError,
    Cohort,
    PoissonSampler,
    QuorumError,
    UniformSampler,
)
from stator.federated.learning._scaffold import build_scaffold
from stator.federated.learning._training import Training, secret_randomness, train

__all__ = [
    "DPSGD",
    "CheckpointError",
    "ClientData",
    "ClientError",
    "ClientSampler",
    "ClientUnavailableError",
    "Cohort",
    "IterativeProcess",
    "Model",
    "PoissonSampler",
    "QuorumError",
    "ServerOptimizer",
    "Training",
    "UniformSampler",
    "adagrad",
    "adam",
    "build_evaluation",
    "build_fed_adagrad",
    "build_fed_adam",
    "build_fed_avg",
    "build_fed_prox",
    "build_fed_sgd",
    "build_fed_yogi",
    "build_personalization",
    "build_scaffold",
    "load_state",
    "metrics",
    "partition_by_dirichlet",
    "partition_by_user",
    "partition_evenly",
    "rows_of",
    "save_state",
    "secret_randomness",
    "sgd",
    "train",
    "yogi",
]
