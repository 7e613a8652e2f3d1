"""What PyTorch has to know of a graph: the modules that other backends get, and their sizes.

`graphs` makes a `torch.fx.GraphModule` of a recorded graph, `symbolic` compiles one with sizes that
vary, `assumptions` reads what its code assumes of them, `custom_operators` asks what a call of an
operator gives. They need torch, but for `assumptions`, and of the package `errors` alone.

What stands in this file is named in graphs, printed and pickled ones: there it has to be found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def _call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return function(*args, **kwargs)
