"""The backend that a compiled function asks for graphs of its runs of operations."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch

from stator import _logs
from stator._config import config
from stator._cudagraphs.captures import Graphed, Pools
from stator._fx.graphs import without_report
from stator._stator import Declined
from stator._warnings import capture_failed, error_text, place_of

__all__ = ["Backend"]

_log = logging.getLogger("stator.background")


class Backend:
    """Makes code of runs of operations: the graphs of one compiled function, in one pool."""

    def __init__(self) -> None:
        self._pools = Pools()

    def __call__(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        nodes = list(module.graph.nodes)
        for node in nodes:
            # They would keep tensors of the program's alive.
            node.meta.pop("example_value", None)
        for node in nodes:
            if node.op == "get_attr" and _holds(getattr(module, node.target)):
                return Declined("a tensor or a generator is a constant of it", is_final=True)
        operations = [node for node in nodes if node.op not in ("placeholder", "output")]
        traces = (node.meta.get("stack_trace") for node in operations)
        trace = next((trace for trace in traces if trace), None)
        words = f"a run of {len(operations)} operations that begins in {place_of(trace)[2]}"

        def failed(error: Exception) -> str:
            if config.strict:
                raise error
            capture_failed(error, len(operations), trace)
            return error_text(error).splitlines()[0]

        def told(what: str) -> None:
            text = f"CUDA graphs: {words} {what}"
            _log.info(text)
            if _logs.is_enabled("graph"):
                _logs.emit("graph", text)

        return Graphed(without_report(module), self._pools, failed, told)


def _holds(value: object) -> bool:
    return isinstance(value, torch.Tensor | torch.Generator)
