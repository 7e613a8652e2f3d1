"""The state of a program, from which another process goes on."""

from __future__ import annotations

import abc
from typing import Any, Generic, TypeAlias, TypeVar

from stator.federated._abstract import Serializable
from stator.federated.program import structure_utils
from stator.federated.program.value_reference import MaterializableValue

#: What a state consists of: values, references, and what says itself how it is written.
ProgramStateValue: TypeAlias = object | MaterializableValue | Serializable
#: The same, in containers.
ProgramStateStructure = TypeVar(
    "ProgramStateStructure", bound=structure_utils.Structure[ProgramStateValue]
)


class ProgramStateExistsError(Exception):
    """There is a state of this version already.

    version: it.
    path: where the state is.
    """

    def __init__(self, *, version: int, path: str) -> None:
        super().__init__(
            f"there is a program state of version {version} already, at {path}: save a greater "
            "version, or remove that one."
        )
        self.version = version
        self.path = path

    def __reduce__(self) -> Any:
        return _exists_error, (type(self), self.version, self.path)


class ProgramStateNotFoundError(Exception):
    """There is no state of this version.

    version: it.
    """

    def __init__(self, version: int) -> None:
        super().__init__(
            f"there is no program state of version {version}: `get_versions` lists those there are."
        )
        self.version = version

    def __reduce__(self) -> Any:
        return type(self), (self.version,)


class ProgramStateManager(abc.ABC, Generic[ProgramStateStructure]):
    """Keeps states of a program, each with a number, its version: a later one has a greater one.

    state, version = await manager.load_latest(initial_state)
    if state is None:
        state = initial_state
    for round_number in range(version + 1, rounds + 1):
        ...
        await manager.save(state, round_number)
    """

    @abc.abstractmethod
    async def get_versions(self) -> list[int] | None:
        """The versions there are; `None` if there is none."""

    @abc.abstractmethod
    async def load(self, version: int, structure: ProgramStateStructure) -> ProgramStateStructure:
        """The state of a version.

        structure: a state of the same structure, such as the initial one: it says which containers
            the state has, and of which classes what is `Serializable` is.

        Raises `ProgramStateNotFoundError` if there is none.
        """

    async def load_latest(
        self, structure: ProgramStateStructure
    ) -> tuple[ProgramStateStructure | None, int]:
        """The state of the greatest version, and that version; `(None, 0)` if there is none.

        structure: as in `load`.
        """
        versions = await self.get_versions()
        if not versions:
            return None, 0
        latest = max(versions)
        return await self.load(latest, structure), latest

    @abc.abstractmethod
    async def save(self, program_state: ProgramStateStructure, version: int) -> None:
        """Keeps a state. References in it are awaited.

        Raises `ProgramStateExistsError` if there is one of this version.
        """

    async def remove(self, version: int) -> None:
        """Removes the state of a version.

        Raises `ProgramStateNotFoundError` if there is none; `NotImplementedError` if this manager
        can't remove states.
        """
        raise NotImplementedError(f"a {type(self).__name__} removes no states.")

    async def remove_all(self) -> None:
        """Removes all states."""
        for version in await self.get_versions() or ():
            await self.remove(version)


def _exists_error(
    kind: type[ProgramStateExistsError], version: int, path: str
) -> ProgramStateExistsError:
    return kind(version=version, path=path)
