"""Tensor programs as local computations: federated types as types of tensors, and back.

The native side imports this module where the first local computation is traced or read: it needs
torch.
"""

from __future__ import annotations

import collections
import logging
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from stator import _array_code, _sized_programs
from stator._program_tracing import arrays
from stator._program_tracing.batching import TooFewRowsError
from stator._program_tracing.padding import padded
from stator._program_tracing.padding_numbers import NotPaddedError, TooManyPairsError
from stator._program_tracing.tracing import Tracing, rebuilt, take_apart
from stator._stator import federated as _federated
from stator._suggest import describe
from stator.programs import Origins, Structure, TensorProgram, TensorSpec


def specs(parameter: Any, spread: bool, declared: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The specifications of a function's arguments; `spread`: the fields of its parameter."""
    if parameter is None:
        return (), {}
    if not spread:
        return (_spec(parameter, parameter, declared),), {}
    fields = [(name, _spec(ty, parameter, declared)) for name, ty in parameter.items()]
    positional = tuple(spec for name, spec in fields if name is None)
    return positional, {name: spec for name, spec in fields if name is not None}


def _spec(ty: Any, whole: Any, declared: str) -> Any:
    """The specification of what is of a type."""
    if isinstance(ty, _federated.TensorType):
        dtype = getattr(torch, np.dtype(ty.dtype).name, None)
        if ty.shape is None:
            raise TypeError(_wrong("a tensor whose number of dimensions is known", ty, declared))
        if not isinstance(dtype, torch.dtype):
            raise TypeError(_wrong("an element type that PyTorch has", ty, declared))
        return TensorSpec(dtype, tuple(ty.shape))
    if isinstance(ty, _federated.StructType):
        names = [name for name, _ in ty.items()]
        inner = [_spec(field, whole, declared) for _, field in ty.items()]
        return _container(ty.python_container, names, inner)
    if isinstance(ty, _federated.SequenceType):
        return _elements(ty.element, ty, declared)
    raise TypeError(_wrong("tensors, structs and sequences of tensors", ty, declared))


def as_arrays(specs: Any, kwargs: Any) -> tuple[Any, Any] | None:
    """The specifications of a function that is NumPy code; `None` if NumPy has no such elements."""
    leaves: list[Any] = []
    take_apart((specs, kwargs), lambda value: isinstance(value, TensorSpec), leaves, "")
    if not all(arrays.is_known(spec.dtype) for spec in leaves):
        return None
    of_arrays = iter([arrays.ArraySpec(spec.dtype, spec.shape) for spec in leaves])
    found: tuple[Any, Any] = rebuilt((specs, kwargs), of_arrays)
    return found


is_numpy = arrays.was_noted
meant, is_torch = _array_code.meant, _array_code.is_torch
fails_as_torch, chosen = _array_code.fails_as_torch, _array_code.chosen
attempts = _sized_programs.attempts


def no_arrays(declared: str) -> Exception:
    """What is raised where NumPy has no arrays of a parameter's elements."""
    return TypeError(
        "NumPy code has no arrays of these elements\n"
        "  expected: element types of NumPy's own\n  found:    others in the parameter's type\n"
        f'  declared: {declared}\n  hint:     `arrays="torch"` is for code of PyTorch\'s'
    )


def _elements(ty: Any, whole: Any, declared: str) -> Any:
    """The specification of a sequence's elements: stacked, in containers as an element has them."""
    if isinstance(ty, _federated.TensorType) and ty.shape is not None and None not in ty.shape:
        spec = _spec(ty, whole, declared)
        return TensorSpec(spec.dtype, (None, *spec.shape))
    if isinstance(ty, _federated.StructType):
        names = [name for name, _ in ty.items()]
        inner = [_elements(field, whole, declared) for _, field in ty.items()]
        return _container(ty.python_container, names, inner)
    raise TypeError(_wrong("a sequence of tensors whose sizes are known", whole, declared))


def _wrong(expected: str, found: Any, declared: str) -> str:
    return (
        "PyTorch code can't be traced for a parameter of this type\n"
        f"  expected: {expected}\n  found:    {found}\n  declared: {declared}\n"
        "  hint:     with `result=` the function is called as it is, whatever it is written with"
    )


def _container(kind: Any, names: list[str | None], inner: list[Any]) -> Any:
    """Containers as an executor makes them."""
    named = bool(names) and all(name is not None for name in names)
    if kind is None and not named and any(name is not None for name in names):
        return _federated.Struct(list(zip(names, inner, strict=True)))
    if kind is list:
        return inner
    if kind is dict or kind is collections.OrderedDict:
        return kind(zip(names, inner, strict=True))
    if kind is None or kind is tuple:
        return collections.OrderedDict(zip(names, inner, strict=True)) if named else tuple(inner)
    if issubclass(kind, tuple):
        return kind(*inner)
    if issubclass(kind, dict):
        return collections.OrderedDict(zip(names, inner, strict=True))
    return kind(**{str(name): item for name, item in zip(names, inner, strict=True)})


def finished(
    function: Any, specs: Any, kwargs: Any, program: TensorProgram, tracing: Tracing
) -> tuple[Any, _Runner, bytes]:
    """The result's type, what runs the program, and its bytes. `function`: what may be traced anew
    for sizes that the program isn't for."""
    types = iter([_tensor_type(spec) for spec in program.outputs])
    result = _federated.to_type(rebuilt(tracing.result, types))
    programs = None
    if function is not None:
        programs = _sized_programs.others(function, specs, kwargs, program, tracing)
    runner = _Runner(program) if programs is None else _RunnerBySizes(programs)
    return result, runner, program.to_bytes()


def by_sizes(
    function: Any, specs: Any, kwargs: Any, program: TensorProgram, tracing: Tracing
) -> tuple[Any, _RunnerBySizes] | None:
    """The result's type, and what runs the programs of a function, each for some sizes. `None`:
    there are none."""
    found = _sized_programs.made(function, specs, kwargs, program, tracing)
    if found is None:
        return None
    programs, outputs = found
    types = iter([_tensor_type(spec) for spec in outputs])
    result = _federated.to_type(rebuilt(tracing.result, types))
    return result, _RunnerBySizes(programs)


def _tensor_type(spec: TensorSpec) -> Any:
    name = str(spec.dtype).removeprefix("torch.")
    try:
        dtype = np.dtype(name)
    except TypeError:
        # NumPy knows it once somebody has imported what brings it.
        import ml_dtypes

        dtype = np.dtype(getattr(ml_dtypes, name))
    return _federated.TensorType(dtype, list(spec.shape))


class _Runner:
    """Runs a program on values as executors have them."""

    def __init__(self, program: TensorProgram, *, is_variant: bool = False) -> None:
        self._program = program
        # Whether it is for some of the sizes that its types allow.
        self._is_variant = is_variant
        # How often it couldn't be run for several clients at once; and whether that is right.
        self._failures = 0
        self._is_right: bool | None = None
        # The sizes for which that was looked at.
        self._compared: set[Any] = set()
        # Whether clients with different numbers of rows may run together; and for which inputs that
        # have as many rows as others it was seen that they give what each gives alone.
        self.pads = True
        self._padded_right: set[tuple[Any, ...]] = set()
        # Whether data choose rows, so that clients with as many are padded, too.
        self._chooses = False
        # How often some lacked rows that others have.
        self._lacks = 0
        self._few: int | None = None
        # As many rows, and more, aren't padded: their pairs take much memory.
        self.too_many_rows: int | None = None

    @property
    def few(self) -> int:
        """How many rows are so few that padding costs less than operations do: clients with fewer
        run with those that have so many."""
        if self._few is None:
            few = _FEW_BYTES // max(sum(map(_bytes_of_a_row, self._program.inputs)), 1)
            self._few = min(1 << max(few.bit_length() - 1, 0), _FEW_ROWS)
        return self._few

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors = [_tensor(leaf) for leaf in _leaves((args, kwargs))]
        return _nested(self._program.gives, iter(self._program(*tensors)))

    def origins(self) -> Origins:
        """Where it's from, for messages in other processes."""
        return self._program._origins

    def remember(self, origins: Origins) -> None:
        """Says where it's from, in another process than that which traced it."""
        self._program._remember(origins)

    has_variants = False
    """Whether it has a program for each of some sizes: `variant` gives what runs that."""

    def flat(self, parameter: Any, result: Any) -> Flat | None:
        """How it is run on the tensors in a value of type `parameter`, one after the other, to give
        those of one of type `result`. `None`: it has to be called."""
        program = self._program
        inputs = _in_order(
            parameter, program.inputs, is_argument=True, is_any_size=self._is_variant
        )
        outputs = _in_order(result, program.outputs, is_any_size=self._is_variant)
        if inputs is None or outputs is None or not _are_fields(result, program.gives):
            return None
        return Flat(
            run=program._linked.run,
            apart=program._run,
            check=program._checked,
            varies=[None in sizes for sizes in inputs],
            rows_at=[sizes.index(None) if None in sizes else 0 for sizes in inputs],
            has_rows=program._may_be_padded
            and all(
                (None in sizes) == (None in spec.shape)
                for sizes, spec in zip(inputs, program.inputs, strict=True)
            ),
            copies=program._copies,
            marks=_MARKS.search(program.text) is not None,
            is_pure=program._is_pure,
            default_dtype=getattr(torch, program._native.default_dtype),
            switches=program._switches,
            most_bytes=_BYTES,
            least_at_once=(_LEAST, _LEAST_PADDED),
            has_variants=self.has_variants,
        )

    def finished(self, results: list[Any], given: Sequence[torch.Tensor]) -> Any:
        """What it gives, of what its operations gave for tensors."""
        return _nested(self._program.gives, iter(self._program._finished(results, given)))

    @property
    def clients_at_once(self) -> int:
        """For how many clients executors run it at once. It doesn't depend on the machine."""
        is_given_up = self._is_right is False or self._failures >= _ATTEMPTS
        return 1 if is_given_up or not self._program.inputs else _AT_ONCE

    def together(
        self,
        count: int,
        columns: list[torch.Tensor],
        states: list[torch.Tensor] | None,
        lengths: list[list[int]] | None = None,
    ) -> list[torch.Tensor] | None:
        """What it gives for tensors with a first dimension of clients, with such a dimension.
        `None`: it is to be run for one after the other.

        states: where PyTorch's generator is for each client, if it may draw.
        lengths: how many rows each client has, where they differ, for each of the inputs that vary:
            these are lists of the clients' tensors then.
        """
        if lengths is not None:
            return self._padded(count, columns, states, lengths)
        if self._chooses:
            return self._chosen(count, columns, states)
        # Draws depend on how tensors lie in memory, which may depend on sizes.
        sizes = tuple(column.shape[1:] for column in columns)
        is_new = self._is_right is None or (states is not None and sizes not in self._compared)
        try:
            # The program may write to what it is given.
            first = [column[0].clone() for column in columns] if is_new else []
            made = self._program._run_together(count, columns, states and [*states])
            if is_new:
                if states is not None:
                    torch.default_generator.set_state(states[0])
                alone = self._program(*first)
                self._is_right = _are_close([output[0] for output in made], alone)
                self._compared.add(sizes)
        except Exception as error:
            if self.pads and _BY_DATA.search(str(error)):
                self._chooses = True
                return self._chosen(count, columns, states)
            self.failed(error)
            return None
        if not self._is_right:
            _LOG.info(
                "%r runs for one client after the other: at once it gives something else",
                self._program,
            )
            return None
        return made

    def _chosen(
        self, count: int, columns: list[torch.Tensor], states: list[torch.Tensor] | None
    ) -> list[torch.Tensor] | None:
        """The same where data choose rows: what they choose is padded."""
        lengths = [[columns[at].shape[dim + 1]] * count for at, dim in self._program._with_rows]
        if any(own[0] == 0 for own in lengths):
            # There is nothing to choose.
            return None
        made = self._padded(count, columns, states, lengths) if self.pads else None
        if made is None:
            self._failures += 1
        return made

    def _padded(
        self,
        count: int,
        columns: list[Any],
        states: list[torch.Tensor] | None,
        lengths: list[list[int]],
    ) -> list[torch.Tensor] | None:
        """The same for clients with different numbers of rows. `None`: they are to run with those
        that have as many."""
        try:
            together = self._program._run_together
            dims = [dim for _, dim in self._program._with_rows]
            given = padded(columns, lengths, dims)
            made = together(count, given, states and [*states], lengths)
            # Inputs that have as many rows as each other are taken for such.
            which: tuple[Any, ...] = tuple(map(lengths.index, lengths))
            if states is not None:
                # Draws depend on how tensors lie in memory, which may depend on sizes.
                which = (which, *((min(own), max(own)) for own in lengths))
            if which not in self._padded_right:
                # The most padding, of each input, and the least.
                each = [*zip(*lengths, strict=True)] or [()]
                least = [own.index(min(own)) for own in lengths]
                for client in {each.index(max(each)), *least}:
                    if states is not None:
                        torch.default_generator.set_state(states[client])
                    alone = self._program(*(column[client].clone() for column in columns))
                    if not _are_close([output[client] for output in made], alone):
                        raise NotPaddedError("at once they give something else")
                self._padded_right.add(which)
        except TooManyPairsError as error:
            most = max(map(max, lengths))
            if self.too_many_rows is None or most < self.too_many_rows:
                self.too_many_rows = most
            # Those that have fewer may run with others that have about as many.
            self._few = 1
            _LOG.info(
                "%r runs at once for clients with %d rows alone: %s", self._program, most, error
            )
            return None
        except TooFewRowsError as error:
            if self.few > 1:
                # Those that have about as many may.
                self._few = 1
                return None
            self._lacks += 1
            self.pads = self._lacks < _ATTEMPTS
            _LOG.info("%r runs once for clients with as many rows alone: %s", self._program, error)
            return None
        except Exception as error:
            self.pads = False
            _LOG.info(
                "%r runs at once for clients with as many rows alone: %s", self._program, error
            )
            return None
        return made

    def failed(self, error: Exception) -> None:
        """It couldn't be run for several clients. For one alone it tells what is wrong; or nothing
        is."""
        self._failures += 1
        _LOG.info("%r runs for one client after the other: %s", self._program, error)


class Flat(NamedTuple):
    """How a program is run on tensors alone."""

    run: Any
    """Its operations: given a tuple of tensors, they give a list."""
    apart: Any
    """The same with PyTorch set as the program expects it; given tensors."""
    check: Any
    """Raises if a tuple of tensors doesn't fit."""
    varies: list[bool]
    """For each input, whether its sizes differ between values of the type."""
    rows_at: list[int]
    """In which dimension, the first one that does."""
    has_rows: bool
    """Whether that is the number of rows in all of these, and clients may be padded."""
    copies: bool
    """Whether it may write to its inputs."""
    marks: bool
    """Whether it may set something of them, such as that they need gradients."""
    is_pure: bool
    """Whether it surely draws no random numbers, so that it makes no difference when it runs."""
    default_dtype: torch.dtype
    switches: bool
    """Whether it switches autocast."""
    most_bytes: int
    """How large the inputs of several clients may be together."""
    least_at_once: tuple[int, int]
    """How few clients it runs at once, if they have as many rows, and if some are padded."""
    has_variants: bool
    """Whether there are other programs, for other sizes."""


class _RunnerBySizes(_Runner):
    """Runs the program of a function that is for the sizes of what there is."""

    has_variants = True

    def __init__(self, programs: _sized_programs.Programs) -> None:
        super().__init__(programs.first, is_variant=True)
        self._programs = programs
        self._variants: dict[int, _Runner] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors = [_tensor(leaf) for leaf in _leaves((args, kwargs))]
        program = self._programs.of([tuple(tensor.shape) for tensor in tensors])
        return _nested(program.gives, iter(program(*tensors)))

    def variant(self, varying: Sequence[int]) -> _Runner:
        """What runs the program for inputs of these sizes: those of the inputs that vary."""
        program = self._programs.of(self._programs.sizes_of(varying))
        return self._variants.setdefault(id(program), _Runner(program, is_variant=True))

    def __reduce__(self) -> Any:
        return self._programs.sent(_RunnerBySizes, _Runner)


# What sets something of a tensor, in a program's text.
_MARKS = re.compile(r"requires_grad|detach_\(|backward|retain_grad|__set__|grad_fn|\.grad\b|hook")


def _in_order(
    of: Any,
    specs: Sequence[TensorSpec],
    *,
    is_argument: bool = False,
    is_any_size: bool = False,
) -> list[tuple[int | None, ...]] | None:
    """The sizes of the tensors in a value of a type, which are those of a program in this order;
    `None` where they aren't."""
    if of is None:
        return None if specs else []
    names = [name for name, _ in of.items()] if isinstance(of, _federated.StructType) else []
    if is_argument and sorted(names, key=lambda name: name is not None) != names:
        # Positional arguments come first.
        return None
    found = _tensor_types(of)
    if found is None or len(found) != len(specs):
        return None
    for (dtype, sizes), spec in zip(found, specs, strict=True):
        if dtype != spec.dtype or len(sizes) != len(spec.shape):
            return None
        # What the type leaves open the program has to leave open too.
        if not is_any_size and any(
            wanted not in (None, size) for size, wanted in zip(sizes, spec.shape, strict=True)
        ):
            return None
    return [sizes for _, sizes in found]


def _tensor_types(of: Any) -> list[tuple[Any, tuple[int | None, ...]]] | None:
    """The element types and sizes of the tensors in a value of a type, as `_leaves` finds them."""
    if isinstance(of, _federated.TensorType):
        if of.shape is None:
            return None
        return [(getattr(torch, np.dtype(of.dtype).name, None), tuple(of.shape))]
    if isinstance(of, _federated.SequenceType):
        found = _tensor_types(of.element)
        return None if found is None else [(dtype, (None, *sizes)) for dtype, sizes in found]
    if not isinstance(of, _federated.StructType) or not _keeps_order(of):
        return None
    parts = [_tensor_types(field) for _, field in of.items()]
    known = [part for part in parts if part is not None]
    return [each for part in known for each in part] if len(known) == len(parts) else None


def _keeps_order(of: Any) -> bool:
    """Whether what is in a struct's container stands in the order of the struct's fields."""
    kind, names = of.python_container, [name for name, _ in of.items()]
    if kind in (None, tuple, list, dict, collections.OrderedDict):
        return True
    if issubclass(kind, tuple):
        return list(getattr(kind, "_fields", ())) == names
    if hasattr(kind, "__attrs_attrs__"):
        return [attribute.name for attribute in kind.__attrs_attrs__] == names
    return list(getattr(kind, "__dataclass_fields__", ())) == names


def _are_fields(of: Any, structure: Structure | None) -> bool:
    """Whether what a program gives has its fields where the type has them."""
    if structure is None:
        return isinstance(of, _federated.TensorType)
    if not isinstance(of, _federated.StructType) or len(of) != len(structure.fields):
        return False
    return all(
        wanted in (None, name) and _are_fields(field, inner)
        for (name, field), (wanted, inner) in zip(of.items(), structure.fields, strict=True)
    )


_LOG = logging.getLogger("stator.federated")

_AT_ONCE = 256
"""For how many clients a program runs at once, at most."""

_BYTES = 16 << 20
"""How large their inputs may be together."""

_LEAST, _LEAST_PADDED = 8, 12
"""Fewer clients than so many, with as many rows, or padded, are quicker one after the other: each
operation costs what ten cost alone."""

_FEW_ROWS, _FEW_BYTES = 64, 8 << 10
"""How many rows a client may have, and how large, so that more of them cost little beside the
operations."""

_LOOKED_UP = 128
"""How many bytes an integer stands for that is one of several in a row: it's looked up in a table,
as words of texts are."""


def _bytes_of_a_row(spec: TensorSpec) -> int:
    """How large a row of an input is, if it has rows."""
    if None not in spec.shape:
        return 0
    numbers = math.prod(size or 1 for size in spec.shape)
    is_looked_up = not spec.dtype.is_floating_point and numbers > 1
    return numbers * (_LOOKED_UP if is_looked_up else spec.dtype.itemsize)


_ATTEMPTS = 3

_BY_DATA = re.compile(r"dynamic shape|vmap over calling \.item\(\)")
"""What PyTorch says of operations that give as many rows as data say, for all clients at once."""


def _are_close(found: Sequence[torch.Tensor], expected: Any) -> bool:
    """Whether outputs differ by rounding only."""
    expected = (expected,) if isinstance(expected, torch.Tensor) else tuple(expected)
    largest = max([_largest(tensor) for tensor in expected], default=0.0)
    return all(_is_close(*pair, largest) for pair in zip(found, expected, strict=True))


def _is_close(found: torch.Tensor, expected: torch.Tensor, largest: float) -> bool:
    """`largest`: the greatest number of all outputs. What is rounding beside that is an output that
    would be zero without rounding: the gradient of a bias that batch normalisation takes out."""
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        return torch.equal(found, expected)
    eps = torch.finfo(expected.dtype).eps
    tolerance = max(eps**0.5 * _largest(expected), min(8 * eps * largest, eps))
    return torch.allclose(found, expected, rtol=0, atol=tolerance, equal_nan=True)


def _largest(tensor: torch.Tensor) -> float:
    is_number = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    if not is_number or not tensor.numel():
        return 0.0
    return float(tensor.abs().nan_to_num(0, 0, 0).max().item())


def load(data: bytes) -> _Runner:
    """What runs a program that was read."""
    return _Runner(TensorProgram.from_bytes(data))


def _leaves(value: Any) -> Iterator[Any]:
    """The tensors in containers, in the order of their type's fields."""
    if isinstance(value, _ListIterator):
        yield from _stacked(list(value))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, _federated.Struct):
        for item in value:
            yield from _leaves(item)
    elif hasattr(type(value), "__dataclass_fields__"):
        for name in type(value).__dataclass_fields__:
            yield from _leaves(getattr(value, name))
    elif hasattr(type(value), "__attrs_attrs__"):
        for attribute in type(value).__attrs_attrs__:
            yield from _leaves(getattr(value, attribute.name))
    else:
        yield value


_ListIterator: type[Iterator[Any]] = type(iter([]))


def _stacked(elements: list[Any]) -> Iterator[torch.Tensor]:
    """The tensors of a sequence's elements, those of all elements in one."""
    if not elements:
        raise ValueError(
            "a sequence without elements is given to PyTorch code, which gets elements stacked\n"
            "  expected: at least one element\n"
            "  hint:     what is collected has an element for each client: there is to be one"
        )
    for column in zip(*(_leaves(element) for element in elements), strict=True):
        yield torch.stack([_tensor(leaf) for leaf in column])


def _tensor(leaf: Any) -> torch.Tensor:
    """A tensor of a leaf: it may share memory, because programs don't write to their inputs."""
    if isinstance(leaf, torch.Tensor):
        return leaf
    array = np.asarray(leaf)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"A tensor program takes numbers, not {describe(leaf)}.")
    if not array.flags.writeable or not array.dtype.isnative or any(s < 0 for s in array.strides):
        array = array.astype(array.dtype.newbyteorder("="), copy=True)
    return torch.from_numpy(array)


def _nested(structure: Structure | None, leaves: Iterator[torch.Tensor]) -> Any:
    """The result around its tensors. Who converts it takes the names from here."""
    if structure is None:
        return next(leaves)
    inner = [(name, _nested(field, leaves)) for name, field in structure.fields]
    if structure.kind == "struct":
        return _federated.Struct(inner)
    if any(name is not None for name, _ in inner):
        return collections.OrderedDict(inner)
    return tuple(item for _, item in inner)
