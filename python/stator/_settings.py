"""What `stator.compile` was asked for, checked once and kept beside the compiled function."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from stator._backends import resolve_backend
from stator._config import is_recompile_limit, when_number
from stator._stator import Compiled
from stator.errors import OptionError


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The keyword arguments of `stator.compile`, those that reach the native side."""

    backend: str | Callable[..., Any] = "eager"
    when: str | None = None
    verify: str | None = None
    tier: str | None = None
    fullgraph: bool = False
    dynamic: bool | None = None
    mode: str | None = None
    options: Mapping[str, Any] | None = None
    recompile_limit: int | None = None
    is_compiling: bool | None = None

    def __post_init__(self) -> None:
        if self.mode is not None and self.options is not None:
            raise OptionError("stator.compile takes mode or options, not both.")
        if self.recompile_limit is not None and not is_recompile_limit(self.recompile_limit):
            raise OptionError(
                "recompile_limit takes an integer from 1 up, or None for "
                f"stator.config.recompile_limit; not {self.recompile_limit!r}."
            )
        for name, optional in (("fullgraph", False), ("dynamic", True), ("is_compiling", True)):
            value = getattr(self, name)
            if type(value) is not bool and not (optional and value is None):
                expected = "True, False or None" if optional else "True or False"
                raise OptionError(f"{name} takes {expected}, not {value!r}.")

        when_number(self.when)
        for name, known in (("verify", ("first", "off")), ("tier", ("compiled",))):
            value = getattr(self, name)
            if value is not None and value not in known:
                expected = " or ".join(map(repr, known))
                raise OptionError(f"{name} takes {expected}, or None; not {value!r}.")

    def apply(self, fn: Callable[..., Any]) -> Compiled:
        """The Python function `fn`, compiled under these settings."""
        backend = resolve_backend(self.backend, mode=self.mode, options=self.options)
        is_slow = backend is not None and backend.is_slow
        compiled = Compiled(
            fn,
            backend=backend,
            when=when_number(self.when),
            is_slow=is_slow,
            takes_parts=backend is not None and backend.takes_parts,
            compiler="" if backend is None else backend.compiler,
            verifies=None if self.verify is None else self.verify == "first",
            is_timed=is_slow and self.tier is None,
            recompile_limit=self.recompile_limit,
            fullgraph=self.fullgraph,
            dynamic=self.dynamic,
            is_compiling=self.fullgraph if self.is_compiling is None else self.is_compiling,
        )
        compiled.__dict__[_KEY] = self
        return compiled


_KEY = "_stator_settings"


def settings_of(compiled: Compiled) -> Settings:
    """The settings a compiled function was made with."""
    settings = compiled.__dict__[_KEY]
    assert isinstance(settings, Settings)
    return settings
