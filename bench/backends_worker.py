"""One system on one model: the latency of each call from the first on, as JSON on the last line.

`python -m bench.backends_worker SYSTEM MODEL BEHIND MOST`: it ends `BEHIND` seconds after the code
is there that serves from then on, at the latest after `MOST`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

LOOK = 0.1
"""Seconds between two looks at the tier."""

UNSETTLED = {"replay", "waiting", "compiling", "made"}


def main() -> None:
    """The command line."""
    system, name, behind, most = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    with tempfile.TemporaryDirectory(prefix="stator-bench-") as folder:
        # Nobody finds what another one has compiled.
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=folder, STATOR_CACHE="off")
        print(json.dumps(measure(system, name, behind, most)))


def measure(system: str, name: str, behind: float, most: float) -> dict[str, Any]:
    """What `bench.backends` makes a row of."""
    import torch

    from bench.backends import MODELS
    from examples.models import tensors_of

    model, inputs = MODELS[name].make()
    call, tiers = compiled(system, model)
    with torch.no_grad():
        expected = tensors_of(model(**inputs))
        starts, seconds = [], []
        ready = 0.0 if system == "eager" else None
        looked = begin = time.perf_counter()
        while True:
            start = time.perf_counter()
            output = call(**inputs)
            end = time.perf_counter()
            starts.append(round(start - begin, 6))
            seconds.append(round(end - start, 7))
            if ready is None and end - looked > LOOK:
                looked = end
                if tiers().isdisjoint(UNSETTLED):
                    ready = end - begin
            if end - begin > (most if ready is None else min(ready + behind, most)):
                break
        found = tensors_of(output)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    return {"starts": starts, "seconds": seconds, "ready": ready, "tiers": sorted(tiers())}


def compiled(system: str, model: Any) -> tuple[Callable[..., Any], Callable[[], set[str]]]:
    """What is called, and the words of what runs its graphs."""
    import torch

    import stator

    if system == "eager":
        return model, lambda: {"eager"}
    if system == "torch":
        # Its first call waits for the code.
        return torch.compile(model), lambda: {"compiled"}
    call = stator.compile(model, backend="inductor")
    return call, lambda: set(stator.stats(call).tiers)


if __name__ == "__main__":
    main()
