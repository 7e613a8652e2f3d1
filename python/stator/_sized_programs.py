"""Local computations that are other programs for other sizes, such as loops over batches of rows.

A program has no loops, and decides nothing by sizes: a function that does is traced anew where a
client comes whose sizes none of its programs is for.
"""

from __future__ import annotations

import logging
import pickle
import re
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from stator._program_tracing import TensorSpec, sizing
from stator._program_tracing.arrays import ArraySpec
from stator._program_tracing.tracing import rebuilt, take_apart
from stator._stator import _trace_for_sizes
from stator.errors import ProgramError, ProgramInputError
from stator.programs import TensorProgram

__all__ = ["Programs", "attempts", "made"]

_TRIED = 37, 60, 523, 840
"""Sizes that those which vary have while it is found out what the function gives, and then twice
as much: so a loader has several batches, and rows can be divided by many numbers."""

_FEW = 3
"""The sizes at which it is looked whether what the function reads is what it was, if it can be
traced for these: a short loop takes less time."""

_LOG = logging.getLogger("stator.federated")


def attempts(specs: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    """Specifications with sizes in the place of those that vary; none where none do."""
    leaves = _leaf_specs(specs, kwargs)
    if all(None not in spec.shape for spec in leaves):
        return []
    return [_with_sizes(specs, kwargs, _all(leaves, size)) for size in _TRIED]


def made(
    function: Any, specs: Any, kwargs: Any, found: TensorProgram, tracing: Any
) -> tuple[Programs, list[TensorSpec]] | None:
    """The programs of a function, of that for the sizes of an attempt, and the types of what they
    give. `None`: it gives more or fewer results for other sizes."""
    leaves = _leaf_specs(specs, kwargs)
    size = next(
        size
        for spec, known in zip(leaves, found.inputs, strict=True)
        for wanted, size in zip(spec.shape, known.shape, strict=True)
        if wanted is None
    )
    assert size is not None
    asked = _Asked(function, specs, kwargs, tracing.is_numpy)
    other, _ = asked.trace(_all(leaves, 2 * size), is_exact=True)
    if other.gives != found.gives or len(other.outputs) != len(found.outputs):
        return None
    outputs = []
    for one, two in zip(found.outputs, other.outputs, strict=True):
        if one.dtype != two.dtype or len(one.shape) != len(two.shape):
            return None
        pairs = zip(one.shape, two.shape, strict=True)
        outputs.append(TensorSpec(one.dtype, tuple([a if a == b else None for a, b in pairs])))
    outside = _Outside(size, found, tracing.outside)
    try:
        few, of_few = asked.trace(_all(leaves, _FEW), is_exact=True)
    except Exception:
        pass
    else:
        outside = _Outside(_FEW, few, of_few.outside, also=outside)
    return Programs(asked, outside, outputs, found), outputs


def others(
    function: Any, specs: Any, kwargs: Any, program: TensorProgram, tracing: Any
) -> Programs | None:
    """The programs of a function whose first one is for all sizes that it was decided for. `None`:
    nothing was decided by sizes."""
    if not _DECIDES.search(program.text):
        return None
    asked = _Asked(function, specs, kwargs, tracing.is_numpy)
    return Programs(asked, _Outside(None, program, tracing.outside), program.outputs)


_DECIDES = re.compile(r"^require ", re.MULTILINE)


class _Asked(NamedTuple):
    """A function that is traced, and the specifications of its arguments."""

    function: Any
    specs: Any
    kwargs: Any
    is_numpy: bool

    def trace(
        self,
        sizes: Sequence[Sequence[int]] | None,
        *,
        is_exact: bool,
        kept: dict[int, torch.Tensor] | None = None,
    ) -> tuple[TensorProgram, Any]:
        """The program for inputs of these sizes (`None`: those of any trace), and the object of its
        trace. `is_exact`: for these alone. `kept`: what is taken in the place of
        tensors from outside, by their addresses."""
        specs, kwargs = self.specs, self.kwargs
        if is_exact and sizes is not None:
            specs, kwargs = _with_sizes(specs, kwargs, sizes)
        if self.is_numpy:
            specs, kwargs = _of_arrays(specs, kwargs)
        with sizing.sized(None if is_exact else sizes, kept or {}):
            program, tracing = _trace_for_sizes(self.function, specs, kwargs, self.is_numpy)
            return program, tracing


class _Outside:
    """What a function read outside of it when it was made a computation, as a program tells it.

    size: that of what varies, in this program. `None`: it's the one for all sizes.
    given: the tensors from outside that are its constants.
    also: another program that says what tensors were.
    """

    def __init__(
        self,
        size: int | None,
        program: TensorProgram,
        given: Sequence[torch.Tensor] = (),
        *,
        also: _Outside | None = None,
    ) -> None:
        self.size = size
        self.program = program
        self._given = [weakref.ref(each) for each in given]
        self._also = also

    def kept(self, asked: _Asked) -> dict[int, torch.Tensor]:
        """Tensors that are still there, as they were: by their addresses. Raises where something
        else is no longer what it was."""
        leaves = _leaf_specs(asked.specs, asked.kwargs)
        sizes = None if self.size is None else _all(leaves, self.size)
        program, tracing = asked.trace(sizes, is_exact=sizes is not None)
        old, new = self.program._constants, program._constants
        is_same = program.text == self.program.text
        kept = {} if self._also is None else self._also.there()
        if is_same:
            before = [each() for each in self._given] or [None for _ in old]
            for was, now, copy, fresh in zip(before, tracing.outside, old, new, strict=True):
                if was is now:
                    kept[id(now)] = copy
                elif not _is_equal(copy, fresh):
                    is_same = False
        if not is_same:
            raise ProgramInputError(
                "The function is traced anew for sizes that it wasn't traced for, and what it "
                "reads outside of it is no longer what it was when it was made a computation."
                f"\n  declared: {program._declared()}"
                "\n  hint:     give what changes as an argument, or make the computation anew"
            )
        return kept

    def there(self) -> dict[int, torch.Tensor]:
        """The tensors that are still there, as they were: by their addresses."""
        pairs = zip(self._given, self.program._constants, strict=True)
        return {id(each): copy for ref, copy in pairs if (each := ref()) is not None}

    def __reduce__(self) -> Any:
        return _Outside, (self.size, self.program)


class Programs:
    """The programs of a function, each for some sizes of what it is given. Any number of threads
    may ask."""

    def __init__(
        self,
        asked: _Asked,
        outside: _Outside,
        outputs: Sequence[TensorSpec],
        first: TensorProgram | None = None,
    ) -> None:
        self._asked = asked
        self._outside = outside
        # That which told what the function gives.
        self.first = outside.program if first is None else first
        self.outputs = outputs
        self._leaves = _leaf_specs(asked.specs, asked.kwargs)
        self._lock = threading.RLock()
        self._found = [outside.program] if outside.size is None else []
        self._by_sizes: dict[tuple[tuple[int, ...], ...], TensorProgram] = {}
        # Whether the function can't be traced but for one size.
        self._is_exact = False
        self._said = _FIRST_SAID
        # The function as it is sent to other processes.
        self._sent: bytes | None = None

    def sizes_of(self, varying: Sequence[int]) -> list[tuple[int, ...]]:
        """The sizes of all inputs, of those of the inputs that vary, one after the other."""
        rest = iter(varying)
        return [
            tuple([next(rest) for _ in spec.shape])
            if None in spec.shape
            else tuple([size for size in spec.shape if size is not None])
            for spec in self._leaves
        ]

    def of(self, sizes: Sequence[tuple[int, ...]]) -> TensorProgram:
        """The program for inputs of these sizes. Raises what tracing it raises."""
        key = tuple(sizes)
        with self._lock:
            if (known := self._by_sizes.get(key)) is not None:
                return known
            found = next((each for each in self._found if _is_for(each, key)), None)
            if found is None:
                found = self._traced(key)
                self._found.append(found)
                self._say()
            self._by_sizes[key] = found
            return found

    def _traced(self, sizes: tuple[tuple[int, ...], ...]) -> TensorProgram:
        self._check(sizes)
        kept = self._outside.kept(self._asked)
        program: TensorProgram | None = None
        if not self._is_exact:
            try:
                program, _ = self._asked.trace(sizes, is_exact=False, kept=kept)
            except ProgramError:
                # What is asked of the sizes can't be said of others.
                self._is_exact = True
        if program is None:
            try:
                program, _ = self._asked.trace(sizes, is_exact=True, kept=kept)
            except ProgramError:
                if self._outside.size is not None:
                    raise
                # It says itself for which sizes it is.
                return self.first
        if not _is_for(program, sizes):
            raise ProgramInputError(
                f"The program isn't for the sizes {sizes} that it was traced with, though nothing "
                f"says why.\n  declared: {program._declared()}"
            )
        self._compare(program)
        return program

    def _check(self, sizes: tuple[tuple[int, ...], ...]) -> None:
        for name, spec, found in zip(self.first._names, self._leaves, sizes, strict=True):
            if len(found) != len(spec.shape) or any(
                wanted not in (None, size) for wanted, size in zip(spec.shape, found, strict=True)
            ):
                shown = TensorSpec(spec.dtype, found)
                raise ProgramInputError(
                    f"`{name}` is of type {shown}, where the program takes {spec}."
                )

    def _compare(self, program: TensorProgram) -> None:
        """Raises if it gives something of another type than the function did at first."""
        pairs = zip(program.outputs, self.outputs, strict=False)
        fits = program.gives == self.first.gives and all(map(_fits, *zip(*pairs, strict=True)))
        if not fits or len(program.outputs) != len(self.outputs):
            found = ", ".join(map(str, program.outputs))
            expected = ", ".join(map(str, self.outputs))
            raise ProgramInputError(
                "For these sizes the function gives something else than it does for others"
                f"\n  expected: {expected}\n  found:    {found}"
                f"\n  declared: {program._declared()}"
            )
        if self.first._is_pure and not program._is_pure:
            raise ProgramInputError(
                "For these sizes the function draws random numbers, and for others it doesn't: "
                f"draw them for all sizes.\n  declared: {program._declared()}"
            )

    def _say(self) -> None:
        if len(self._found) == self._said:
            self._said *= 2
            _LOG.info(
                "%r has been traced for %d numbers of rows so far: each costs a trace once",
                self.first,
                len(self._found),
            )

    def sent(self, of_all: Any, of_first: Any) -> Any:
        """How what runs them is made in another process. Where the function can't be pickled, and
        the first program is for most sizes, it's that one alone."""
        if self._outside.size is not None:
            return of_all, (self,)
        if self._sent is None:
            pickling = sys.modules.get("ray.cloudpickle") or pickle
            try:
                self._sent = pickling.dumps(self._asked)
            except Exception:
                return of_first, (self.first,)
        return _received, (of_all, self._sent, self.first)

    def __reduce__(self) -> Any:
        return Programs, (self._asked, self._outside, self.outputs, self.first)


def _received(of_all: Any, asked: bytes, first: TensorProgram) -> Any:
    """What runs the programs, in another process."""
    return of_all(Programs(pickle.loads(asked), _Outside(None, first), first.outputs))


_FIRST_SAID = 16


def _is_for(program: TensorProgram, sizes: Sequence[tuple[int, ...]]) -> bool:
    fits = all(
        len(spec.shape) == len(found)
        and all(wanted in (None, size) for wanted, size in zip(spec.shape, found, strict=True))
        for spec, found in zip(program.inputs, sizes, strict=True)
    )
    return fits and program._native.failing([list(each) for each in sizes]) is None


def _fits(found: TensorSpec, expected: TensorSpec) -> bool:
    """Whether what is of a type is of another one, too, as far as is known."""
    return (
        found.dtype == expected.dtype
        and len(found.shape) == len(expected.shape)
        and all(
            None in (size, wanted) or size == wanted
            for size, wanted in zip(found.shape, expected.shape, strict=True)
        )
    )


def _is_equal(old: torch.Tensor, new: torch.Tensor) -> bool:
    same = old.dtype == new.dtype and old.shape == new.shape
    return same and torch.allclose(old, new, rtol=0, atol=0, equal_nan=True)


def _is_spec(value: Any) -> bool:
    return isinstance(value, TensorSpec)


def _leaf_specs(specs: Any, kwargs: Any) -> list[TensorSpec]:
    leaves: list[Any] = []
    take_apart((*specs, *kwargs.values()), _is_spec, leaves, "")
    return leaves


def _with_leaves(specs: Any, kwargs: Any, leaves: Iterator[Any]) -> tuple[Any, Any]:
    made = tuple([rebuilt(spec, leaves) for spec in specs])
    return made, {name: rebuilt(spec, leaves) for name, spec in kwargs.items()}


def _with_sizes(specs: Any, kwargs: Any, sizes: Sequence[Sequence[int]]) -> tuple[Any, Any]:
    leaves = zip(_leaf_specs(specs, kwargs), sizes, strict=True)
    return _with_leaves(
        specs, kwargs, iter([TensorSpec(spec.dtype, tuple(found)) for spec, found in leaves])
    )


def _of_arrays(specs: Any, kwargs: Any) -> tuple[Any, Any]:
    leaves = _leaf_specs(specs, kwargs)
    return _with_leaves(specs, kwargs, iter([ArraySpec(of.dtype, of.shape) for of in leaves]))


def _all(leaves: Sequence[TensorSpec], size: int) -> list[tuple[int, ...]]:
    """The sizes of all inputs, where those that vary are this."""
    return [tuple([size if each is None else each for each in spec.shape]) for spec in leaves]
