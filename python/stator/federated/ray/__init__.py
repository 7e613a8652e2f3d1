"""Running computations on many machines: `pip install stator[ray]`."""

from __future__ import annotations

try:
    import ray as _ray  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "ray":
        raise
    raise ModuleNotFoundError(
        "`stator.federated.ray` needs Ray, which isn't installed\n"
        "  hint:     pip install 'stator[ray]'",
        name="ray",
    ) from None

from stator.federated._executors import ClientsLostError, RetryableError
from stator.federated.ray._context import RayContext
from stator.federated.ray._worker import ClientFailedError, UnsendableError

__all__ = [
    "ClientFailedError",
    "ClientsLostError",
    "RayContext",
    "RetryableError",
    "UnsendableError",
]
