"""Settings of the process: `stator.config`.

One object, one line per setting. Unknown names and values of a wrong type are errors at the
assignment, not surprises later.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from stator import _stator
from stator._blame import blames_caller
from stator._suggest import suggest
from stator.errors import ConfigError, OptionError


@dataclasses.dataclass(slots=True)
class Config:
    """The settings, with their defaults.

    A change holds for every later call, also of functions that were compiled before.
    """

    recompile_limit: int = 8
    """How many traces one function keeps. Beyond it the function runs natively, with one warning.
    `stator.compile(recompile_limit=...)` overrides it for one function."""

    min_graph_ops: int = 0
    """Traces whose graph has fewer operations run natively. Doesn't apply under `fullgraph=True`,
    or while a log shows graphs. A trace without any operation, between two graph breaks, always
    runs natively. The default is 0, because the number of operations doesn't say whether a replay
    pays: one module does, twenty slices in a row don't. `skip_unprofitable` knows the
    difference."""

    skip_unprofitable: bool = True
    """Calls whose replay is estimated to gain nothing over CPython run natively, once their guards
    are checked: what is behind graph breaks is part of the estimate, and now and then a call is
    replayed to see whether that has changed. Doesn't apply under `fullgraph=True`, with other
    backends than `"eager"`, or while a log shows graphs or bytecode. The rule, and what it was
    measured on, is in `docs/graph_breaks.md`."""

    strict: bool = False
    """Errors of Stator's own are raised, as `stator.errors.InternalError`. By default such a call
    ends as plain Python ends it, its function runs natively from then on, and an
    `InternalErrorWarning` says what to report."""

    when: str | None = None
    """When backends are asked for a graph's code, where `stator.compile(when=...)` doesn't say it:
    as there. None: beside the program those that compile for long, at the second call others."""

    @blames_caller
    def __setattr__(self, name: str, value: Any) -> None:
        _check(name, value)
        if (apply := _APPLIED.get(name)) is not None:
            apply(value)
        object.__setattr__(self, name, value)

    @blames_caller
    def __getattr__(self, name: str) -> NoReturn:
        _fail_unknown(name)

    @blames_caller
    def patch(self, **settings: Any) -> contextlib.AbstractContextManager[None]:
        """Changes settings inside a `with` block."""
        for name, value in settings.items():
            _check(name, value)
        return _patched(self, settings)


def _check(name: str, value: Any) -> None:
    """Raises if a setting can't be this."""
    if name not in _NAMES:
        _fail_unknown(name)
    takes: str | None = None
    if name == "when":
        try:
            when_number(value)
        except OptionError as error:
            raise ConfigError(f"stator.config.{error}") from None
    elif name == "min_graph_ops":
        if type(value) is not int or not 0 <= value < 2**63:
            takes = "an integer from 0 up"
    elif name == "recompile_limit":
        if not is_recompile_limit(value):
            takes = "an integer from 1 up"
    elif type(value) is not bool:
        takes = "True or False"
    if takes is not None:
        raise ConfigError(f"stator.config.{name} takes {takes}, not {value!r}.")


_APPLIED: dict[str, Callable[[Any], None]] = {
    "when": lambda value: _stator._set_when(when_number(value)),
    "min_graph_ops": _stator._set_min_graph_ops,
    "skip_unprofitable": _stator._set_skip_unprofitable,
    "strict": _stator._set_strict,
}
"""What the native side has to know."""


@contextlib.contextmanager
def _patched(config: Config, settings: dict[str, Any]) -> Iterator[None]:
    saved = {name: getattr(config, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(config, name, value)
        yield
    finally:
        for name, value in saved.items():
            setattr(config, name, value)


def is_recompile_limit(value: object) -> bool:
    """Whether `value` can bound the number of traces: an integer, at least one."""
    return type(value) is int and value >= 1


def when_number(when: object) -> int | None:
    """The call at which a backend is asked for code, from 1 up; 0 for beside the program; None for
    what the backend's kind says."""
    if when is None:
        return None
    text = when if isinstance(when, str) else ""
    if text in _WHEN:
        return _WHEN[text]
    number = text.removeprefix("call:")
    if number == text or not number.isascii() or not number.isdecimal():
        names = ", ".join(map(repr, _WHEN))
        raise OptionError(f"when takes {names} or 'call:N', not {when!r}.")
    if not 1 <= int(number) < 2**31:
        raise OptionError(f"when counts calls from 1 up, so {when!r} is none.")
    return int(number)


_WHEN = {"background": 0, "first_call": 1, "second_call": 2}

_DYNAMOS = {
    "cache_size_limit": "recompile_limit, how many traces one function keeps",
    "accumulated_cache_size_limit": "recompile_limit, how many traces one function keeps",
    "suppress_errors": "strict, which is False unless errors are to be raised",
    "assume_static_by_default": "stator.compile(dynamic=...)",
    "automatic_dynamic_shapes": "stator.compile(dynamic=...)",
    "capture_scalar_outputs": 'no setting: backend="eager" goes on behind numbers that are read',
    "verbose": "stator.set_logs",
}
"""Settings of `torch._dynamo.config` that people know, and what stands for them here."""


def _fail_unknown(name: str) -> NoReturn:
    if name in _DYNAMOS:
        raise ConfigError(
            f"stator.config has no setting {name!r}. What stands for that of torch._dynamo.config "
            f"is {_DYNAMOS[name]}."
        )
    raise ConfigError(f"stator.config has no setting {name!r}. {suggest(name, _NAMES)}")


_NAMES = tuple(field.name for field in dataclasses.fields(Config))

config = Config()
