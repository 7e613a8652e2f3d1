"""Where a program's results go, and what stands between: filters, groups, periods, delays."""

from __future__ import annotations

import abc
import asyncio
import copy
import datetime
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from stator._stator import federated as _native
from stator.federated.program import structure_utils
from stator.federated.program.value_reference import MaterializableValue

#: What can be released: a value, a reference, or any other object.
ReleasableValue: TypeAlias = object | MaterializableValue
#: The same, in containers.
ReleasableStructure = TypeVar(
    "ReleasableStructure", bound=structure_utils.Structure[ReleasableValue]
)
#: What a released value is found by.
Key = TypeVar("Key")


class NotFilterableError(Exception):
    """A filter would leave a named tuple, or an object of `attrs`, without some of its fields."""


class ReleasedValueNotFoundError(Exception):
    """No value was released for a key.

    key: it.
    """

    def __init__(self, key: object) -> None:
        super().__init__(f"no value was released for the key {key!r}.")
        self.key = key

    def __reduce__(self) -> Any:
        return type(self), (self.key,)


class ReleaseManager(abc.ABC, Generic[ReleasableStructure, Key]):
    """Takes what a program releases to those who run it.

    Derive from it for places of your own:

        class Printing(ReleaseManager):
            async def release(self, value, key):
                print(key, await materialize_value(value))
    """

    @abc.abstractmethod
    async def release(self, value: ReleasableStructure, key: Key) -> None:
        """Takes a value, in which there may be references.

        key: what it is found by, such as the number of a round.
        """


@_native.hidden
class FilteringReleaseManager(ReleaseManager[ReleasableStructure, Key]):
    """Releases the part of a value that a function asks for.

    release_manager: releases it.
    filter_fn: whether a value at a path is released; a path is the keys, the names of fields and
        the positions that lead to it, from outside in: `("train", "loss")`. Of a value without
        containers it is empty.

        manager = FilteringReleaseManager(manager, lambda path: path[0] == "loss")

    Containers of which nothing is left are left out, and nothing is released if that's all.
    """

    def __init__(
        self,
        release_manager: ReleaseManager[ReleasableStructure, Key],
        filter_fn: Callable[[structure_utils.Path], bool],
    ) -> None:
        _check_manager(release_manager)
        if not callable(filter_fn):
            raise TypeError(f"`filter_fn` is to be a function of a path, not {filter_fn!r}.")
        self._manager = release_manager
        self._filter = filter_fn

    async def release(self, value: ReleasableStructure, key: Key) -> None:
        """Releases what is left of a value. Raises `NotFilterableError` if that would be a named
        tuple, or an object of `attrs`, without some of its fields."""
        left = _filtered(value, (), self._filter)
        if left is not _NOTHING:
            await self._manager.release(left, key)


@_native.hidden
class GroupingReleaseManager(ReleaseManager[ReleasableStructure, Key]):
    """Releases a value to several release managers, at the same time.

    release_managers: at least one; `ValueError` otherwise.
    """

    def __init__(
        self, release_managers: Sequence[ReleaseManager[ReleasableStructure, Key]]
    ) -> None:
        if not isinstance(release_managers, Sequence):
            raise TypeError(
                f"`release_managers` is to be a list of release managers, not {release_managers!r}."
            )
        if not release_managers:
            raise ValueError("`release_managers` is to have at least one release manager.")
        for manager in release_managers:
            _check_manager(manager)
        self._managers = tuple(release_managers)

    async def release(self, value: ReleasableStructure, key: Key) -> None:
        """Releases a value to all. If some of them raise, the others have it all the same; the
        first one's exception is raised, with notes of the others."""
        found = await asyncio.gather(
            *(manager.release(value, key) for manager in self._managers), return_exceptions=True
        )
        raised = [error for error in found if isinstance(error, BaseException)]
        if raised:
            for other in raised[1:]:
                # Several may have awaited one reference.
                if other is not raised[0]:
                    raised[0].add_note(
                        f"Another release manager of the group raised {type(other).__name__}: "
                        f"{other}"
                    )
            raise raised[0]


@_native.hidden
class PeriodicReleaseManager(ReleaseManager[ReleasableStructure, Key]):
    """Releases now and then what it is given.

    release_manager: releases it.
    periodicity: each how manieth value; or a `datetime.timedelta`, of which at least so much has
        passed since the last release, or since this was made. `ValueError` unless it is above 0.
    """

    def __init__(
        self,
        release_manager: ReleaseManager[ReleasableStructure, Key],
        periodicity: int | datetime.timedelta,
    ) -> None:
        _check_manager(release_manager)
        self._manager = release_manager
        self._count = 0
        self._last = time.monotonic()
        self._every = self._seconds = None
        if isinstance(periodicity, datetime.timedelta):
            self._seconds = periodicity.total_seconds()
            if self._seconds <= 0:
                raise ValueError(f"`periodicity` is to be more than no time, not {periodicity}.")
        else:
            self._every = _positive(periodicity, "periodicity")

    async def release(self, value: ReleasableStructure, key: Key) -> None:
        """Releases a value if it is time for one."""
        if self._is_due():
            await self._manager.release(value, key)

    def _is_due(self) -> bool:
        self._count += 1
        if self._seconds is None:
            assert self._every is not None
            return self._count % self._every == 0
        now = time.monotonic()
        if now < self._last + self._seconds:
            return False
        self._last = now
        return True


@_native.hidden
class DelayedReleaseManager(ReleaseManager[ReleasableStructure, Key]):
    """Leaves out the first values.

    release_manager: releases the others.
    delay: which value is the first to be released: 1 for all. `ValueError` unless it is above 0.
    """

    def __init__(
        self, release_manager: ReleaseManager[ReleasableStructure, Key], delay: int
    ) -> None:
        _check_manager(release_manager)
        self._manager = release_manager
        self._delay = _positive(delay, "delay")
        self._count = 0

    async def release(self, value: ReleasableStructure, key: Key) -> None:
        """Releases a value unless it is too early."""
        self._count += 1
        if self._count >= self._delay:
            await self._manager.release(value, key)


def _check_manager(found: Any) -> None:
    if not callable(getattr(found, "release", None)):
        raise TypeError(f"a release manager is needed, not {found!r}.")


def _positive(value: Any, argument: str) -> int:
    try:
        found = operator.index(value)
    except TypeError:
        raise TypeError(f"`{argument}` is to be an integer, not {value!r}.") from None
    if found < 1:
        raise ValueError(f"`{argument}` is to be 1 or more, not {found}.")
    return found


_NOTHING = object()


def _filtered(value: Any, path: structure_utils.Path, wanted: Callable[..., bool]) -> Any:
    """What is left of a structure, or `_NOTHING`."""
    attributes = _attributes(value)
    if attributes is not None:
        parts = [(name, getattr(value, name)) for name in attributes]
    else:
        found = structure_utils.parts_of(value)
        if found is None:
            return value if wanted(path) else _NOTHING
        parts = found
    made = [(key, _filtered(part, (*path, key), wanted)) for key, part in parts]
    left = [(key, part) for key, part in made if part is not _NOTHING]
    if not left:
        return _NOTHING
    missing = [key for key, part in made if part is _NOTHING]
    if missing and (attributes is not None or structure_utils.is_named_tuple(value)):
        names = ", ".join(f"`{'/'.join(map(str, (*path, name)))}`" for name in missing)
        raise NotFilterableError(
            f"a {type(value).__name__} can't be without some of its fields\n"
            f"  expected: all of {', '.join(map(str, (key for key, _ in parts)))}, or none\n"
            f"  found:    a filter that leaves out {names}\n"
            "  hint:     use a dictionary, or filter all of the fields"
        )
    if attributes is None:
        return structure_utils.rebuilt(value, left)
    changed = copy.copy(value)
    for name, part in left:
        object.__setattr__(changed, name, part)
    return changed


def _attributes(value: Any) -> list[str] | None:
    """The names of the fields of an object of `attrs`; `None` of another one."""
    fields = getattr(type(value), "__attrs_attrs__", None)
    if fields is None or isinstance(value, Mapping):
        return None
    return [field.name for field in fields]
