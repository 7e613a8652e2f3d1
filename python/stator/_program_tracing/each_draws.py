"""Operations that draw random numbers, for many clients at once: one client after the other, each
from where PyTorch's generator is for it. So each draws what it would draw alone.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack

from stator._program_tracing.table import draws_nothing, name_of

__all__ = [
    "MOST",
    "drawn",
    "drawn_each",
    "is_drawing",
    "is_each_clients",
    "is_made",
    "tensor_of",
    "values_of",
    "writes_to",
]

_functorch: Any = torch._C._functorch

_MADE = frozenset(
    getattr(owner, begin + name + end)
    for name in ("empty", "zeros", "ones", "full")
    for owner, begin, end in (*((torch, "", ""), (torch, "", "_like"), (torch.Tensor, "new_", "")),)
)
"""What makes tensors that somebody may draw into: each client has one of its own."""

MOST = 1 << 24
"""How many bytes what each client has for itself may take: otherwise one is all clients'."""

_SHARES = ("dropout_p", "p")
"""Parameters that say how much is dropped; with 0 nothing is drawn."""

_SWITCHES = ("training", "train")
"""Parameters that say whether something is drawn at all."""


@functools.cache
def _may_draw(func: Any) -> bool:
    name = name_of(func)
    return name is not None and not draws_nothing(name)


@functools.cache
def _parameters(func: Any) -> inspect.Signature | None:
    """A function's parameters, if it is written in Python or known."""
    if func is torch.nn.functional.scaled_dot_product_attention:
        return inspect.signature(_attention)
    if func is torch.dropout:
        return inspect.signature(_dropout)
    try:
        return inspect.signature(func)
    except (TypeError, ValueError):
        return None


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, **how: Any
) -> None:
    """The parameters of PyTorch's function, as far as they matter."""


def _dropout(input: Any, p: float, train: bool) -> None:
    """The same of the native function."""


def _draws_now(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a function that may draw does so for these arguments."""
    signature = _parameters(func)
    if signature is None:
        return True
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return True
    bound.apply_defaults()
    given = bound.arguments
    if any(given.get(name, True) is False for name in _SWITCHES):
        return False
    return not any(given.get(name, 1.0) == 0.0 for name in _SHARES if name in given)


def is_made(func: Any) -> bool:
    """Whether a function makes tensors that somebody may draw into."""
    return func in _MADE


def is_drawing(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call has to be made for one client after the other."""
    if func in _MADE:
        return True
    return _may_draw(func) and _draws_now(func, args, kwargs)


def drawn(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    states: list[torch.Tensor],
    level: int,
) -> Any:
    """What a call gives, for all clients; `states` move on.

    `NotImplemented`: it would write to a tensor that all clients have.
    """
    count = len(states)
    if func in _MADE:
        with temporarily_pop_interpreter_stack():
            given, named = _of_client((args, kwargs), 0, {})
            made = func(*given, **named)
            if made.nbytes * count > MOST:
                return made
            all_made = made.unsqueeze(0).repeat(count, *[1] * made.dim())
        return _functorch._add_batch_dim(all_made, 0, level)
    generator = kwargs.get("generator")
    is_own = _has_clients((args, kwargs))
    if generator is not None and not is_own:
        # The program has made and seeded it: it gives each client the same numbers.
        with temporarily_pop_interpreter_stack():
            return func(*args, **kwargs)
    writes = writes_to(func, args, kwargs)
    if writes and not _functorch.is_batchedtensor(args[0]):
        return NotImplemented
    if generator is not None:
        states, source = [generator.get_state()] * count, generator
    else:
        source = torch.default_generator
    made = []
    with temporarily_pop_interpreter_stack():
        for at in range(count):
            source.set_state(states[at])
            given, named = _of_client((args, kwargs), at, {})
            made.append(func(*given, **named))
            states[at] = source.get_state()
        if not writes:
            made = _columns(made)
    if writes:
        return args[0]
    return _of_clients(made, level)


def drawn_each(
    func: Callable[..., Any],
    of_client: Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]],
    of_all: Callable[[list[Any]], Any],
    states: list[torch.Tensor],
    level: int,
) -> Any:
    """The same, where each client's arguments are others: what `of_client` says. `of_all` makes one
    tensor, or none, of what they give."""
    made = []
    with temporarily_pop_interpreter_stack():
        for at, state in enumerate(states):
            torch.default_generator.set_state(state)
            given, named = of_client(at)
            made.append(func(*given, **named))
            states[at] = torch.default_generator.get_state()
        found = of_all(made)
    return None if found is None else _functorch._add_batch_dim(found, 0, level)


def _of_clients(made: Any, level: int) -> Any:
    """What a call gave, of columns."""
    if isinstance(made, torch.Tensor):
        return _functorch._add_batch_dim(made, 0, level)
    return tuple(_of_clients(part, level) for part in made) if isinstance(made, list) else made


def writes_to(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call writes to its first argument, which it gives back."""
    name = getattr(func, "__name__", "")
    if name.endswith("_") and not name.endswith("__"):
        return True
    signature = _parameters(func)
    if signature is None or "inplace" not in signature.parameters:
        return False
    return bool(signature.bind(*args, **kwargs).arguments.get("inplace", False))


def _has_clients(value: Any) -> bool:
    """Whether there is a tensor in containers that each client has one of."""
    if isinstance(value, (tuple, list)):
        return any(_has_clients(item) for item in value)
    if isinstance(value, dict):
        return any(_has_clients(item) for item in value.values())
    return isinstance(value, torch.Tensor) and bool(_functorch.is_batchedtensor(value))


def _of_client(value: Any, at: int, known: dict[int, torch.Tensor]) -> Any:
    """What is in containers, with a client's tensors in the place of all clients'. `known`: those
    that were found, because one that occurs twice is one."""
    if isinstance(value, tuple):
        return tuple(_of_client(item, at, known) for item in value)
    if isinstance(value, list):
        return [_of_client(item, at, known) for item in value]
    if isinstance(value, dict):
        return {name: _of_client(item, at, known) for name, item in value.items()}
    if not isinstance(value, torch.Tensor) or not _functorch.is_batchedtensor(value):
        return value
    if id(value) not in known:
        known[id(value)] = tensor_of(value, at)
    return known[id(value)]


def values_of(number: torch.Tensor, count: int) -> list[int]:
    """The integers of all clients, of one in a tensor."""
    if not _functorch.is_batchedtensor(number):
        return [int(number)] * count
    beneath: list[int] = _functorch.get_unwrapped(number).reshape(-1).tolist()
    return beneath


def is_each_clients(value: torch.Tensor) -> bool:
    """Whether each client has a tensor of its own."""
    return bool(_functorch.is_batchedtensor(value))


def tensor_of(value: torch.Tensor, at: int) -> torch.Tensor:
    """A client's tensor."""
    if not _functorch.is_batchedtensor(value):
        return value
    beneath: torch.Tensor = _functorch.get_unwrapped(value)
    return beneath.select(_functorch.maybe_get_bdim(value), at)


def _columns(made: list[Any]) -> Any:
    """What clients' calls gave, that of all clients in one."""
    if isinstance(made[0], (tuple, list)):
        return [_columns(list(column)) for column in zip(*made, strict=True)]
    return torch.stack(made) if isinstance(made[0], torch.Tensor) else made[0]
