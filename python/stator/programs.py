"""Tensor programs: functions over PyTorch tensors as graphs that stand on their own.

    program = TensorProgram.trace(fn, (TensorSpec(torch.float32, (None, 64)),))
    program(torch.ones(3, 64))
    TensorProgram.from_bytes(program.to_bytes())

Needs torch.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from stator import _stator
from stator._blame import blames_caller
from stator._program_tracing import TensorSpec
from stator._program_tracing.batching import (
    LINKED,
    NotBatchableError,
    TooFewRowsError,
    run_together,
)
from stator._program_tracing.casting import SWITCHES, without_autocast
from stator._program_tracing.flattening import flattened
from stator._program_tracing.padding_numbers import NotPaddedError, Share
from stator._program_tracing.table import is_quiet, resolve
from stator._program_tracing.tracing import Tracing, described
from stator._suggest import describe
from stator.errors import ProgramInputError

__all__ = ["Structure", "TensorProgram", "TensorSpec"]


# Operations that may write to what they are given, in a program's text.
_WRITES = re.compile(
    r"(?<!requires_grad_)(?<!detach_)(?<=[a-z0-9]_)\(|operator\.i[a-z]|(?:set|del)item|__set__|__i[a-z]"
    r"|_\.[A-Za-z]\w*\(|\bout=|inplace|_norm\("
)


Origins: TypeAlias = tuple[tuple[str, ...], str, list[tuple[int, list[tuple[str, int, str]]]]]
"""What a program's inputs are called, what was traced, and the frames of each operation."""


@dataclasses.dataclass(frozen=True, slots=True)
class Structure:
    """What a function takes or returns: containers around tensors.

    `kind` is `"arguments"` (positional ones, then named ones), `"tuple"`, `"list"`, `"dict"`,
    `"ordered_dict"` or `"named_tuple"`, whose type's name is `type_name`. Each field is a name, or
    `None`, and a structure, or `None` for a tensor.
    """

    kind: str
    type_name: str | None
    fields: tuple[tuple[str | None, Structure | None], ...]


class TensorProgram(_stator.Runs):
    """A graph of tensor operations with everything it needs: it can be sent elsewhere and run.

    Made by `trace`, or read by `from_bytes`. It can be used from several threads.
    """

    __slots__ = (
        "__weakref__",
        "_constants",
        "_copies",
        "_linked",
        "_names",
        "_native",
        "_origin",
        "_owns",
        "_pads",
        "_types",
    )

    def __init__(
        self,
        native: _stator.Program,
        constants: Sequence[torch.Tensor],
        *,
        traced: bool = False,
        names: Sequence[str] | None = None,
        origin: str = "",
    ) -> None:
        objects = [LINKED.get(name) or resolve(name) for name in native.names()]
        self._native = native
        self._constants = tuple(constants)
        self._linked = native.link(objects, list(self._constants))
        self._types = tuple(_spec(*each) for each in native.inputs)
        # For messages: how the inputs are called, and what was traced.
        self._names = tuple(names or [f"input {index}" for index in range(len(self._types))])
        self._origin = origin
        # What was traced here doesn't write to its inputs; what was read may do anything to them.
        self._copies = not traced and _WRITES.search(native.text) is not None
        # Whether each client has what it makes for itself, where it runs for many at once; `None`
        # before the first time.
        self._owns: bool | None = None
        # Whether clients with other numbers of rows may run together, once that was asked.
        self._pads: bool | None = None

    trace = staticmethod(_stator._trace_program)
    """`TensorProgram.trace(fn, specs=(), kwargs=None)`: the program of a function.

    specs, kwargs: for each argument a `TensorSpec`, an element type (which stands for a scalar), or
        containers of these, as the function expects them.

    The function is executed once, on tensors of these types that have no data. Tensors from outside
    become constants with the values that they have now, and so do numbers. What the function would
    change outside, and decisions that depend on data or on unknown sizes, raise
    `stator.errors.ProgramError` with the line that did. Exceptions of the function's own come as
    they are.
    """

    @classmethod
    @blames_caller
    def from_bytes(cls, data: bytes) -> TensorProgram:
        """Reads what `to_bytes` wrote. Runs nothing; what is no program is a `ValueError`."""
        if not isinstance(data, bytes):
            raise TypeError(f"TensorProgram.from_bytes takes bytes, not {describe(data)}.")
        native, elements = _stator.Program.unpack(data)
        constants = [
            _tensor(_spec(dtype, sizes), data, requires_grad)
            for (dtype, sizes, requires_grad), data in zip(native.constants, elements, strict=True)
        ]
        return cls(native, constants)

    def to_bytes(self) -> bytes:
        """The text form and the constants, for `from_bytes` in any process."""
        return self._native.pack([_elements(constant) for constant in self._constants])

    @property
    def text(self) -> str:
        """The program as text: a line for each node. Equal programs have equal texts."""
        return self._native.text

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The types of the tensors it takes, flat."""
        return self._types

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The types of the tensors it gives, flat. `None` is a size that follows from others."""
        return tuple(_spec(*each) for each in self._native.outputs)

    @property
    def constants(self) -> tuple[torch.Tensor, ...]:
        """Copies of the tensors from outside that it holds."""
        return tuple(constant.detach().clone() for constant in self._constants)

    @property
    def takes(self) -> Structure:
        """The structure of the function's arguments around its inputs."""
        structure = _structure(self._native.takes)
        assert structure is not None
        return structure

    @property
    def gives(self) -> Structure | None:
        """The structure of the function's result around its outputs; `None` for a single tensor."""
        return _structure(self._native.gives)

    @property
    def _is_pure(self) -> bool:
        """Whether it surely draws no random numbers: then it makes no difference when it runs."""
        return is_quiet(self._native.text, self._native.names())

    @property
    def _may_be_padded(self) -> bool:
        """Whether clients with different numbers of rows may run together, as far as its types
        tell."""
        if self._pads is None:
            varying = [spec.shape for spec in self._types if None in spec.shape]
            in_one = all(shape.count(None) == 1 for shape in varying)
            gives_rows = any(None in sizes for _, sizes in self._native.outputs)
            self._pads = bool(varying) and in_one and not gives_rows
        return self._pads

    @property
    def _with_rows(self) -> list[tuple[int, int]]:
        """The inputs that have rows, and in which dimension."""
        shapes = enumerate(spec.shape for spec in self._types)
        return [(at, shape.index(None)) for at, shape in shapes if None in shape]

    @property
    def _switches(self) -> bool:
        """Whether it switches autocast, so that it leaves that as it was only if nothing raises."""
        return any(f"torch.{name}" in self._native.names() for name in SWITCHES)

    def _run(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Runs it on tensors of the types `inputs`, and returns those of `outputs`.

        They have no place in a gradient's graph, and share no memory with the inputs.
        """
        given = self._checked(tensors)
        with torch.inference_mode(False), torch.enable_grad(), without_autocast():
            results = self._linked.run(given)
        return self._finished(results, given)

    def _finished(
        self, results: Sequence[Any], given: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """The outputs, of what the operations gave for these inputs."""
        shared = {_memory(tensor) for tensor in (*given, *self._constants)}
        outputs = []
        for result, (dtype, sizes) in zip(results, self._native.outputs, strict=True):
            if isinstance(result, torch.Tensor):
                output = result.detach()
                outputs.append(output.clone() if _memory(output) in shared else output)
            else:
                outputs.append(torch.tensor(result, dtype=getattr(torch, dtype)))
            if not _is_of(outputs[-1], _spec(dtype, sizes)):
                raise RuntimeError(
                    f"Output {len(outputs) - 1} of a tensor program is of type "
                    f"{_type_of(outputs[-1])}, where its text says {_spec(dtype, sizes)}."
                )
            shared.add(_memory(outputs[-1]))
        return outputs

    def _run_together(
        self,
        count: int,
        columns: Sequence[torch.Tensor],
        states: list[torch.Tensor] | None = None,
        lengths: Sequence[Sequence[int]] | None = None,
    ) -> list[torch.Tensor]:
        """What it gives for inputs with a first dimension of clients, with such a dimension. It may
        write to the inputs. `states`: where PyTorch's generator is for each client. `lengths`: how
        many rows each client has, where they differ, for each of the inputs that vary, which are
        padded.

        Raises where it can't be run for all at once, and where it fails for one of them.
        """
        if lengths is not None:
            if lengths and not self._may_be_padded:
                raise NotPaddedError("clients of different sizes: its types don't allow it")
            self._check_sizes(columns, lengths)
        self._checked(tuple(column[0] for column in columns))

        def run(tensors: tuple[torch.Tensor, ...]) -> list[Any]:
            # Numbers come of sizes, which all of these clients have in common, or of their rows.
            results = self._linked.run(tensors)
            return [
                result
                if isinstance(result, (torch.Tensor, Share))
                else torch.tensor(result, dtype=getattr(torch, dtype))
                for result, (dtype, _) in zip(results, self._native.outputs, strict=True)
            ]

        with torch.inference_mode(False):
            own = [column.clone() if column.is_inference() else column for column in columns]
            results = self._in_batch(run, own, count, states, lengths)
        outputs = []
        for result, (dtype, sizes) in zip(results, self._native.outputs, strict=True):
            output = result.detach()
            if not sizes:
                # A number, such as that of the rows, may be given as another type.
                output = output.to(getattr(torch, dtype))
            if not _is_of(output[0], _spec(dtype, sizes)):
                raise NotBatchableError("what it gives for all at once is of another type")
            outputs.append(output.contiguous())
        return outputs

    def _check_sizes(
        self, columns: Sequence[torch.Tensor], lengths: Sequence[Sequence[int]]
    ) -> None:
        """Raises if the program isn't for the sizes that some client has without the padding."""
        for own in set(zip(*lengths, strict=True)):
            sizes = [[*column.shape[1:]] for column in columns]
            for (at, dim), count in zip(self._with_rows, own, strict=True):
                sizes[at][dim] = count
            if self._native.failing(sizes) is not None:
                raise TooFewRowsError("the program isn't for the sizes that some clients have")

    def _in_batch(
        self,
        run: Callable[[tuple[torch.Tensor, ...]], list[torch.Tensor]],
        columns: list[torch.Tensor],
        count: int,
        states: list[torch.Tensor] | None,
        lengths: Sequence[Sequence[int]] | None = None,
    ) -> list[Any]:
        """What `run` gives, with a first dimension of clients. What the program makes is all
        clients' where it is the same for all of them, as long as it doesn't write to that."""
        how: dict[str, Any] = {}
        if lengths is not None:
            differentiates = "torch.autograd.grad" in self._native.names()
            how = {
                "lengths": lengths,
                "with_rows": self._with_rows,
                "differentiates": differentiates,
            }
        if not self._owns:
            given = [column.clone() for column in columns] if self._copies else columns
            try:
                found = run_together(run, given, count, states=states and [*states], **how)
            except Exception:
                text = self._native.text
                if self._owns is False or not (_WRITES.search(text) or "requires_grad" in text):
                    raise
            else:
                self._owns = False
                return found
        results = run_together(run, columns, count, states=states, owns=True, **how)
        self._owns = True
        return results

    def of_rows(
        self, shared: int, count: int
    ) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
        """What it gives for each of `count` rows, with a first dimension of rows: a function of its
        tensors that can be traced, in which there are as many operations however many rows there
        are. The first `shared` tensors are the same for all rows; the others have a first dimension
        of rows. What it draws it draws for each row.

        Raises where that can't be done: `torch.vmap` has to know its operations. The function
        raises `ProgramInputError` for other tensors.
        """
        if not 0 <= shared <= len(self._types):
            raise ValueError(f"`shared` is to be 0 to {len(self._types)}, not {shared!r}.")
        if count < 1:
            raise ValueError(f"`count` is to be 1 or more, not {count!r}.")
        if "torch.Generator" in self._native.names():
            # Each row would draw what the others do.
            raise NotBatchableError("it has a random generator of its own")
        run = flattened(self._linked.run, self._types, shared, count, self._is_pure)
        rows = [TensorSpec(spec.dtype, (count, *spec.shape)) for spec in self._types[shared:]]
        types = [*self._types[:shared], *rows]

        def of_all(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            self._expect(tensors, types)
            return run(tensors)

        return of_all

    def __repr__(self) -> str:
        inputs = ", ".join(str(spec) for spec in self.inputs)
        outputs = ", ".join(str(spec) for spec in self.outputs)
        return f"<tensor program ({inputs}) -> ({outputs})>"

    def __reduce__(self) -> Any:
        return _unpickled, (self.to_bytes(), self._origins)

    @property
    def _origins(self) -> Origins:
        """What messages say beyond the bytes: what inputs are called, what was traced, and where in
        it each operation was."""
        return self._names, self._origin, self._native.places()

    def _remember(self, origins: Origins) -> None:
        """Says so of a program that came as bytes."""
        self._names, self._origin, places = origins
        self._native.remember(places)

    def _declared(self) -> str:
        inputs = zip(self._names, self._types, strict=True)
        text = ", ".join(f"{name}: {spec}" for name, spec in inputs)
        return f"({text})" + (f" of {self._origin}" if self._origin else "")

    def _expect(self, tensors: Sequence[Any], types: Sequence[TensorSpec]) -> None:
        """Raises `ProgramInputError` if tensors aren't of these types."""
        if len(tensors) != len(types):
            raise ProgramInputError(f"The program takes {len(types)} tensors, not {len(tensors)}.")
        for name, tensor, spec in zip(self._names, tensors, types, strict=True):
            _check(name, tensor, spec)

    def _checked(self, tensors: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
        """The inputs as the program takes them."""
        self._expect(tensors, self._types)
        default = torch.get_default_dtype()
        if default != getattr(torch, self._native.default_dtype):
            raise ProgramInputError(
                f"The program was traced with torch.{self._native.default_dtype} as the default "
                f"element type. It is {default} now."
            )
        failing = self._native.failing([list(tensor.shape) for tensor in tensors])
        if failing is not None:
            condition, sizes, stack = failing
            names = self._names
            condition = re.sub(r"%(\d+)", lambda found: names[int(found[1])], condition)
            found = ", ".join(
                f"{names[index]}.size({dim}) is {tensors[index].shape[dim]}" for index, dim in sizes
            )
            raise ProgramInputError(
                f"The program is for sizes with {condition}, as it was traced; {found}."
                f"\n  declared: {self._declared()}{described(stack)}"
            )
        with torch.inference_mode(False):
            own = [_own(tensor) for tensor in tensors]
            return tuple([tensor.clone() for tensor in own] if self._copies else own)


def _check(name: str, tensor: Any, spec: TensorSpec) -> None:
    name = name[0].upper() + name[1:] if name.startswith("input ") else f"`{name}`"
    if not isinstance(tensor, torch.Tensor):
        raise ProgramInputError(f"{name} is {describe(tensor)}, not a tensor.")
    if not _is_of(tensor, spec):
        raise ProgramInputError(
            f"{name} is of type {_type_of(tensor)}, where the program takes {spec}."
        )


def _is_of(tensor: torch.Tensor, spec: TensorSpec) -> bool:
    return (
        tensor.dtype == spec.dtype
        and len(tensor.shape) == len(spec.shape)
        and all(
            size is None or size == found
            for size, found in zip(spec.shape, tensor.shape, strict=True)
        )
    )


def _type_of(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(tensor.dtype, tuple(tensor.shape))


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor apart from the caller's gradients. What the program does to it stays there."""
    if tensor.is_inference():
        return tensor.clone()
    return tensor.detach().contiguous()


def _memory(tensor: torch.Tensor) -> int:
    # Tensors without elements have no memory: nobody shares it.
    return tensor.untyped_storage().data_ptr() or id(tensor)


def made(
    native: _stator.Program, constants: Sequence[torch.Tensor], tracing: Tracing
) -> TensorProgram:
    """The program that was traced; for the native side."""
    copies = []
    tracing.outside = tuple(constants)
    for given in constants:
        constant = tracing.kept.get(id(given), given)
        copy = constant.detach().contiguous().clone(memory_format=torch.contiguous_format)
        copies.append(copy.requires_grad_(constant.requires_grad))
    return TensorProgram(native, copies, traced=True, names=tracing.names, origin=tracing.origin)


def _unpickled(data: bytes, origins: Origins) -> TensorProgram:
    """What `pickle` calls."""
    program = TensorProgram.from_bytes(data)
    program._remember(origins)
    return program


def _spec(dtype: str, sizes: Sequence[int | None]) -> TensorSpec:
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"this PyTorch has no element type {dtype}")
    return TensorSpec(found, tuple(sizes))


def _structure(tree: Any) -> Structure | None:
    if tree is None:
        return None
    kind, type_name, fields = tree
    return Structure(kind, type_name, tuple((name, _structure(field)) for name, field in fields))


def _elements(tensor: torch.Tensor) -> bytes:
    """The elements of a tensor, little-endian."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if flat.numel() == 0:
        return b""
    return flat.view(torch.uint8).numpy().tobytes()


def _tensor(spec: TensorSpec, data: bytes, requires_grad: bool) -> torch.Tensor:
    sizes = [size for size in spec.shape if size is not None]
    if not data:
        return torch.empty(sizes, dtype=spec.dtype).requires_grad_(requires_grad)
    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return flat.view(spec.dtype).reshape(sizes).requires_grad_(requires_grad)


if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("tensor programs need a little-endian machine")
