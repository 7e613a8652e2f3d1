"""Releasing to a log."""

from __future__ import annotations

import logging
from typing import Any

from stator._stator import federated as _native
from stator.federated.program.release_manager import Key, ReleasableStructure, ReleaseManager
from stator.federated.program.value_reference import materialize_value


@_native.hidden
class LoggingReleaseManager(ReleaseManager[ReleasableStructure, Key]):
    """Logs what is released, by Python's `logging`.

    logger: where to; `logging.getLogger("stator.federated")` if nothing is said.
    level: at which level; `logging.basicConfig(level=logging.INFO)` shows the usual one.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._logger = logging.getLogger("stator.federated") if logger is None else logger
        self._level = level

    async def release(self, value: ReleasableStructure, key: Key | None) -> None:
        """Logs a value, and the key if there is one."""
        found: Any = await materialize_value(value)  # type: ignore[arg-type]
        if key is None:
            self._logger.log(self._level, "Released %s", found)
        else:
            self._logger.log(self._level, "Released for key %s: %s", key, found)
