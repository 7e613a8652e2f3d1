"""What the native side needs of PyTorch to trace a tensor program: inputs without data, a watch
over what operations write, structures taken apart. `crates/tracer/src/program/mod.rs` says how.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import dis
import linecache
import logging
import os
import re
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

from stator._fakes import fake_mode
from stator._program_tracing import (
    TensorSpec,
    arrays,
    autograd,
    casting,
    checked,
    copies,
    cumulative,
    custom_gradients,
    data_sized,
    decomposed,
    grouping,
    indexing,
    loading,
    numpy_choices,
    numpy_random,
    numpy_scalars,
    numpy_tensors,
    numpy_ufuncs,
    packed,
    recurrent,
    sizing,
    stepping,
    table,
    transforms,
)
from stator._stator import federated as _federated
from stator._suggest import describe
from stator.errors import ProgramError, SpecError

__all__ = ["Tracing"]

UNKNOWN = 5040
"""The size that inputs have, while a program is traced, in dimensions whose size is unknown. It is
divisible by many numbers, because programs split their inputs."""

_DYNAMIC = "_dynamo_dynamic_indices"  # as `stator._dynamic` marks
_FOLDER = str(Path(__file__).parent)
_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
_LIBRARY = f"{_PACKAGE}federated{os.sep}"
_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_LOADERS = (str(Path(_FOLDER, "loading.py")), str(Path(torch.__file__).parent / "utils" / "data"))
_OWN_FILES = tuple(
    str(Path(_FOLDER, name))
    for name in (
        *("__init__.py", "arrays.py", "autograd.py", "casting.py", "checked.py", "copies.py"),
        *(
            "cumulative.py",
            "custom_gradients.py",
            "data_sized.py",
            "decomposed.py",
            "flattening.py",
            "grouping.py",
            "indexing.py",
            "loading.py",
            "numpy_choices.py",
            "numpy_functions.py",
            "numpy_random.py",
            "numpy_scalars.py",
            "numpy_selected.py",
            "numpy_series.py",
            "numpy_shapes.py",
            "numpy_tensors.py",
            "numpy_ufuncs.py",
        ),
        *("packed.py", "recurrent.py"),
        *("stepping.py", "tracing.py", "transforms.py"),
    )
)

Tree = tuple[str, str | None, list[tuple[str | None, Any]]] | None
"""A structure: kind, a type's name, fields. `None` is a leaf."""


def take_apart(value: Any, is_leaf: Callable[[Any], bool], leaves: list[Any], where: str) -> Tree:
    """The structure of `value`; what it holds goes to `leaves`."""
    if is_leaf(value):
        leaves.append(value)
        return None

    def fields(pairs: Any, named: bool) -> list[tuple[str | None, Any]]:
        found = []
        for key, item in pairs:
            if named and type(key) is not str:
                raise SpecError(f"{where} has a dictionary with {describe(key)} as a key.")
            inner = f"{where}[{key!r}]"
            name = key if named else None
            found.append((name, take_apart(item, is_leaf, leaves, inner)))
        return found

    if type(value) is list:
        return "list", None, fields(enumerate(value), named=False)
    if type(value) is tuple:
        return "tuple", None, fields(enumerate(value), named=False)
    names = getattr(type(value), "_fields", None)
    if type(value).__module__ == "torch.return_types":
        names = type(value).__match_args__
    if isinstance(value, tuple) and names is not None:
        pairs = list(zip(names, value, strict=True))
        return "named_tuple", type(value).__qualname__, fields(pairs, named=True)
    if type(value) is collections.OrderedDict:
        return "ordered_dict", None, fields(value.items(), named=True)
    if type(value) is dict:
        return "dict", None, fields(value.items(), named=True)
    if isinstance(value, _federated.Struct):
        found = []
        for at, (name, item) in enumerate(_federated.iter_elements(value)):
            key = at if name is None else name
            found.append((name, take_apart(item, is_leaf, leaves, f"{where}[{key!r}]")))
        return "struct", None, found
    if (attributes := _attribute_names(value)) is not None:
        pairs = [(name, getattr(value, name)) for name in attributes]
        return "named_tuple", type(value).__qualname__, fields(pairs, named=True)
    raise SpecError(f"{where} is {describe(value)}.")


def _attribute_names(value: Any) -> list[str] | None:
    """The fields of a data class's or attrs class's object."""
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    attributes = getattr(type(value), "__attrs_attrs__", None)
    return None if attributes is None else [attribute.name for attribute in attributes]


def rebuilt(value: Any, leaves: Iterator[Any]) -> Any:
    """The containers of `value` anew, around other leaves."""
    if _is_spec(value) or _is_result(value):
        return next(leaves)
    if type(value) is list:
        return [rebuilt(item, leaves) for item in value]
    if type(value) is tuple:
        return tuple([rebuilt(item, leaves) for item in value])
    if isinstance(value, tuple):
        items = [rebuilt(item, leaves) for item in value]
        if type(value).__module__ == "torch.return_types":
            names: Any = type(value)
            return collections.OrderedDict(zip(names.__match_args__, items, strict=True))
        return type(value)(*items)
    if isinstance(value, _federated.Struct):
        fields = list(_federated.iter_elements(value))
        return _federated.Struct([(name, rebuilt(item, leaves)) for name, item in fields])
    if isinstance(value, dict):
        return type(value)((key, rebuilt(item, leaves)) for key, item in value.items())
    attributes = _attribute_names(value) or []
    return type(value)(**{name: rebuilt(getattr(value, name), leaves) for name in attributes})


class _Outside:
    """A tensor of the user's, as it was."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self._version = None if tensor.is_inference() else tensor._version
        self._had_history = tensor.grad_fn is not None
        self._requires_grad = tensor.requires_grad

    def put_back(self) -> None:
        tensor = self._tensor
        if not self._had_history and tensor.grad_fn is not None:
            tensor.detach_().requires_grad_(self._requires_grad)
        if self._version is not None and tensor._version != self._version:
            torch._C._autograd._unsafe_set_version_counter((tensor,), (self._version,))


class _Watch(TorchDispatchMode):
    """Sees every operation, and takes note of those that write to what isn't the program's own."""

    def __init__(
        self,
        mode: Any,
        inputs: Sequence[Any],
        names: Sequence[str],
        writes: list[str],
        copies: indexing.Copies,
        computing: list[bool],
        raised: list[Exception],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._raised = raised
        self._names = names
        self._computing = computing
        self._copies = copies
        self._mode = mode
        self._writes = writes
        # The inputs are alive as long as the watch is, so their memory's addresses are their own.
        self._inputs = {_memory(value): index for index, value in enumerate(inputs)}
        self._outside: dict[int, Any] = {}
        self._found: dict[int, _Outside] = {}
        self._known = arrays.known()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if (refused := transforms.refused_draw(func)) is not None:
            self._raised.append(refused)
            raise refused
        for value in (*args, *kwargs.values()):
            self._note_outside(value)
        written = _written(func, args, kwargs)
        for value in written:
            self._check(value)
        problem = self._copies.check(func, (*args, *kwargs.values()), written)
        if problem is not None:
            self._writes.append(problem)
        if func is _NUMBER and self._computing:
            return self._number(*args)
        if "generator" in kwargs:
            # Nothing is drawn here, and not every operation without data takes one.
            kwargs = {**kwargs, "generator": None}
        self._known.forget(written)
        try:
            found = func(*args, **kwargs)
            self._known.note(func, args, kwargs, found)
            return found
        except DynamicOutputShapeException:
            given = data_sized.GIVEN.get(func)
            made = None if given is None else given(UNKNOWN, *args, **kwargs)
            if made is None:
                raise
            return made

    def _number(self, tensor: Any) -> Any:
        """The number of a tensor that an operation computes with: the operation reads it again in
        the program, and what it gives here has no data."""
        try:
            return _NUMBER(tensor)
        except DataDependentOutputException:
            if tensor.dtype.is_complex:
                return 1 + 0j
            if tensor.dtype is torch.bool:
                return True
            return 1.0 if tensor.dtype.is_floating_point else 1

    def _note_outside(self, value: Any) -> None:
        """What tensors without data share memory with the user's."""
        if isinstance(value, (list, tuple)):
            for item in value:
                self._note_outside(item)
        elif isinstance(value, FakeTensor) or id(value) in self._found:
            return
        elif isinstance(value, torch.Tensor):
            fake = self._mode.from_tensor(value, static_shapes=True)
            self._outside[_memory(fake)] = fake
            self._found[id(value)] = _Outside(value)

    def put_back(self) -> None:
        """A write to a view of a user's tensor writes no data, but PyTorch counts it."""
        for outside in self._found.values():
            outside.put_back()

    def _check(self, value: Any) -> None:
        if isinstance(value, (list, tuple)):
            for item in value:
                self._check(item)
        elif isinstance(value, torch.Tensor):
            if not isinstance(value, FakeTensor) or _memory(value) in self._outside:
                self._writes.append("a tensor from outside")
            elif _memory(value) in self._inputs:
                self._writes.append(f"its input `{self._names[self._inputs[_memory(value)]]}`")


def _memory(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _written(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments that an operation writes to."""
    schema = func._schema
    if not schema.is_mutable:
        # Old schemas don't say that statistics are written.
        if func._overloadpacket in _STATISTICS and len(args) > 5 and args[5]:
            return list(args[3:5])
        return []
    found = []
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            if index < len(args):
                found.append(args[index])
            elif argument.name in kwargs:
                found.append(kwargs[argument.name])
    return found


_STATISTICS = {
    torch.ops.aten.native_batch_norm,
    torch.ops.aten.cudnn_batch_norm,
    torch.ops.aten.miopen_batch_norm,
}


def _weak_callbacks() -> list[types.CodeType]:
    """What weak dictionaries run when a tensor dies."""
    tables: list[Any] = [
        weakref.WeakValueDictionary(),
        weakref.WeakKeyDictionary(),
        weakref.WeakSet(),
        WeakIdKeyDictionary(),
        WeakTensorKeyDictionary(),
    ]
    callbacks = [getattr(each, "_remove", None) for each in tables]
    return [each.__code__ for each in callbacks if isinstance(each, types.FunctionType)]


_NUMBER = torch.ops.aten._local_scalar_dense.default


_NODES = {**autograd.NODES, **recurrent.NODES}


def _name_of(value: Any) -> str | None:
    """The name in a text that stands for an object."""
    for name, node in _NODES.items():
        if value is node:
            return name
    return table.name_of(value)


class Tracing:
    """One trace of a program. The attributes are those that the native side asks for."""

    nodes = _NODES
    silent = [
        *(*arrays.SILENT, *autograd.SILENT, *casting.SILENT, *decomposed.SILENT, *indexing.SILENT),
        *(
            *copies.SILENT,
            *custom_gradients.SILENT,
            *numpy_choices.SILENT,
            *numpy_random.SILENT,
            *packed.SILENT,
            *transforms.SILENT,
        ),
    ]
    substitutes = [
        *(*autograd.SUBSTITUTES, *casting.SUBSTITUTES, *checked.SUBSTITUTES, *copies.SUBSTITUTES),
        *(*cumulative.SUBSTITUTES, *custom_gradients.SUBSTITUTES, *decomposed.SUBSTITUTES),
        *grouping.SUBSTITUTES,
        *(*loading.SUBSTITUTES, *packed.SUBSTITUTES, *recurrent.SUBSTITUTES),
        *(*stepping.SUBSTITUTES, *transforms.SUBSTITUTES),
    ]
    of_arrays = numpy_tensors.OF_ARRAYS
    of_numbers = numpy_scalars.OF_NUMBERS
    of_rows = numpy_scalars.OF_ROWS
    stand_in = FakeTensor
    arrays = arrays.Array, arrays.array
    views = [_federated.Struct]
    get_item = staticmethod(indexing.get_item)
    set_item = staticmethod(indexing.set_item)
    weak_callbacks = _weak_callbacks()
    name = staticmethod(_name_of)
    method = staticmethod(table.is_method)

    def __init__(self, function: Any, specs: Any, kwargs: Any, is_numpy: bool) -> None:
        if not callable(function):
            raise SpecError(f"TensorProgram.trace takes a function, not {describe(function)}.")
        specs = () if specs is None else specs
        kwargs = {} if kwargs is None else kwargs
        if type(specs) not in (tuple, list):
            raise SpecError(
                "TensorProgram.trace takes a tuple with a specification for each argument, not "
                f"{describe(specs)}."
            )
        if type(kwargs) is not dict:
            raise SpecError(f"kwargs is a dictionary, not {describe(kwargs)}.")
        self.callee = function
        self.is_numpy = is_numpy
        self.writes: list[str] = []
        # Holds something while an operation may compute with the number of a tensor.
        self.computing: list[bool] = []
        # What operations have raised that doesn't depend on data.
        self._raised: list[Exception] = []
        self.default_dtype = _dtype_name(torch.get_default_dtype())
        found: list[Any] = []
        fields = [
            (name, take_apart(spec, _is_spec, found, f"The specification of {where}"))
            for name, spec, where in (
                *((None, spec, f"argument {index}") for index, spec in enumerate(specs)),
                *((name, spec, f"argument {name!r}") for name, spec in kwargs.items()),
            )
        ]
        self.takes: Tree = ("arguments", None, fields)
        leaves = [spec if isinstance(spec, TensorSpec) else TensorSpec(spec) for spec in found]
        self.types = [(_dtype_name(spec.dtype), list(spec.shape)) for spec in leaves]
        self._mode = fake_mode(allow_non_fake_inputs=True)
        sizes = sizing.sizes() or [
            [UNKNOWN if size is None else size for size in spec.shape] for spec in leaves
        ]
        self.inputs = [self._input(*each) for each in zip(leaves, sizes, strict=True)]
        # Whether it's for these sizes, and others like them alone.
        self.is_sized = sizing.sizes() is not None
        if self.is_sized:
            self.substitutes = [*self.substitutes, *loading.OF_SOME_SIZES]
        # Tensors from outside, and what is taken in their place: by address.
        self.outside: tuple[torch.Tensor, ...] = ()
        self.kept = sizing.kept()
        arrays.begin()
        if is_numpy:
            if not leaves or any(isinstance(leaf, arrays.ArraySpec) for leaf in leaves):
                self.of_numbers = self.of_rows = []
            self.substitutes = [
                *(*self.substitutes, *numpy_choices.SUBSTITUTES),
                *(*numpy_ufuncs.SUBSTITUTES, *numpy_random.SUBSTITUTES),
                *numpy_tensors.SUBSTITUTES,
            ]
        rest = iter([_given(*each) for each in zip(leaves, self.inputs, strict=True)])
        self.args = tuple([rebuilt(spec, rest) for spec in specs])
        self.kwargs = {name: rebuilt(spec, rest) for name, spec in kwargs.items()}
        self.containers = [
            container
            for value in (*self.args, *self.kwargs.values())
            for container in _containers(value)
        ]
        self.names = _names(function, specs, kwargs)
        self.declared = ", ".join(
            f"{name}: {spec}" for name, spec in zip(self.names, leaves, strict=True)
        )
        code = getattr(function, "__code__", None)
        self.origin = ""
        if code is not None:
            self.origin = f"`{code.co_name}`, {code.co_filename}:{code.co_firstlineno}"
        self.result: Any = None
        self.function = function
        if not isinstance(function, types.FunctionType):
            self.function = _calling(function)
        self._states = contextlib.ExitStack()

    def _input(self, spec: TensorSpec, sizes: Sequence[int]) -> Any:
        with self._mode:
            tensor = torch.empty(sizes, dtype=spec.dtype)
        unknown = {index for index, size in enumerate(spec.shape) if size is None}
        if unknown:
            setattr(tensor, _DYNAMIC, unknown)
        return tensor

    def enter(self) -> None:
        """From here on operations run without data."""
        _prepare_optimizers(torch.optim.Optimizer)
        self._copies = indexing.Copies()
        self._states.callback(indexing.end, indexing.begin(self._copies))
        self._states.callback(transforms.end, transforms.begin())
        self._states.callback(custom_gradients.end, custom_gradients.begin())
        self._states.callback(casting.end, casting.begin())
        self._states.callback(setattr, _QUIET, "depth", getattr(_QUIET, "depth", 0))
        _QUIET.depth = getattr(_QUIET, "depth", 0) + 1
        watch = _Watch(
            self._mode,
            self.inputs,
            self.names,
            self.writes,
            self._copies,
            self.computing,
            self._raised,
        )
        self._states.callback(watch.put_back)
        for state in (
            torch.inference_mode(False),
            torch.enable_grad(),
            casting.without_autocast(),
            self._mode,
            watch,
        ):
            self._states.enter_context(state)

    def leave(self) -> None:
        arrays.end()
        self._states.close()

    def flatten(self, result: Any) -> tuple[list[Any], Tree]:
        """The tensors and numbers in a result, and their structure."""
        leaves: list[Any] = []
        self.result = result
        try:
            tree = take_apart(result, _is_result, leaves, "The result")
            leaves = [leaf.tensor if isinstance(leaf, arrays.Array) else leaf for leaf in leaves]
            problem = self._copies.check_result(leaves)
            if problem is not None:
                raise SpecError(f"In the function {problem}.")
            return leaves, tree
        except SpecError as error:
            code = getattr(self.callee, "__code__", None)
            stack = [] if code is None else [_returning(code)]
            raise self.error(
                "SB023",
                f"what the function returns. {error}",
                "return tensors and numbers, in tuples, lists, dictionaries and named tuples",
                stack,
            ) from None

    def error(
        self,
        id: str,
        explanation: str,
        hint: str,
        stack: Sequence[tuple[str, int, str]],
        why: str = "",
    ) -> Exception:
        if id == "SB007" and self._raised:
            return self._raised[-1]
        places = shown(stack)
        hint = hint.replace("compiled function", "traced function")
        if hint.startswith("nothing needs to be done"):
            # A program has nothing that runs as in plain Python.
            hint = "write it with operations of PyTorch, or move it out of the traced function"
        if id == "SB022" and any(file.startswith(_LOADERS) for file, _, _ in stack):
            hint = (
                "a loader has as many batches as there are rows: declare how many there are, or "
                "take steps on all rows at once"
            )
        return ProgramError(id, explanation, hint, places, why)

    def clean(self, error: BaseException, trace: Any) -> Any:
        """A traceback with the user's frames alone."""
        kept = []
        while trace is not None:
            code = trace.tb_frame.f_code
            if code is _Watch.__torch_dispatch__.__code__:
                break  # below it is PyTorch's work on tensors without data
            if code.co_filename not in _OWN_FILES:
                kept.append(trace)
            trace = trace.tb_next
        for outer, inner in zip(kept, [*kept[1:], None], strict=False):
            outer.tb_next = inner
        if not isinstance(error, ProgramError):
            unknown = ""
            if self._says_unknown(error):
                if kept and _raises(kept[-1]):
                    unknown = f"; {UNKNOWN} stands for the sizes that are unknown"
                else:
                    error.args = (_declared_sizes(str(error)), *error.args[1:])
            error.add_note(f"A tensor program was traced for ({self.declared}){unknown}.")
        return kept[0] if kept else None

    def _says_unknown(self, error: BaseException) -> bool:
        """Whether an error's text has what stands for a size that is unknown."""
        known = {size for _, sizes in self.types for size in sizes}
        text = error.args[0] if error.args else None
        return (
            None in known
            and UNKNOWN not in known
            and text == str(error)
            and _declared_sizes(text) != text
        )

    def asks_for_data(
        self, error: BaseException, trace: Any
    ) -> tuple[bool, str, list[tuple[str, int, str]]] | None:
        """For an operation that needs the data of tensors that have none: whether its result's
        shape depends on it, the operation, and the user's frames."""
        if not isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
            return None
        stack = []
        while trace is not None:
            code = trace.tb_frame.f_code
            stack.append((code.co_filename, trace.tb_lineno, code.co_qualname))
            trace = trace.tb_next
        return isinstance(error, DynamicOutputShapeException), f"by {error.func}", stack


def _raises(trace: Any) -> bool:
    """Whether a frame's own code has raised what it ended with."""
    code = trace.tb_frame.f_code.co_code
    return bool(code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"])


def _declared_sizes(text: str) -> str:
    """A text with `?` for what stands for a size that is unknown, as types are printed."""

    def shown(number: re.Match[str]) -> str:
        size = int(number[0])
        if size == UNKNOWN:
            return "?"
        if size % UNKNOWN == 0 and size:
            return f"{size // UNKNOWN}*?"
        return f"?{size - UNKNOWN:+}" if abs(size - UNKNOWN) <= _BESIDE else number[0]

    return _NUMBERS.sub(shown, text)


_NUMBERS = re.compile(r"(?<![\w.])\d{4,}(?![\w.]\d|\w)")
_BESIDE = 9
"""How much more or less than a size that is unknown a number is taken to be computed of it."""


def _prepare_optimizers(kind: Any) -> None:
    """Does to the classes of optimizers what PyTorch does to each where it is first used: otherwise
    something outside of the program would change."""
    for each in kind.__subclasses__():
        if not hasattr(each.step, "hooked"):
            each._patch_step_function(each.__new__(each))
        _prepare_optimizers(each)


def shown(stack: Sequence[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
    """The frames of an operation that users see: their own, and where PyTorch's code below them is.
    All of PyTorch's where nothing else is traced; none of what a library of ours has it do."""
    users = [place for place in stack if not place[0].startswith((_PACKAGE, _TORCH))]
    if not users:
        is_ours = any(place[0].startswith(_LIBRARY) for place in stack)
        return [] if is_ours else [place for place in stack if place[0] not in _OWN_FILES]
    return [*users, *(place for place in stack[-1:] if place[0].startswith(_TORCH))]


def described(stack: Sequence[tuple[str, int, str]]) -> str:
    """Where an operation of a program was recorded, as lines of a note."""
    lines = []
    for file, line, function in shown(stack):
        lines.append(f'\n  File "{file}", line {line}, in {function}')
        if source := linecache.getline(file, line).strip():
            lines.append(f"\n    {source}")
    return "".join(lines)


class _Quiet(logging.Filter):
    """Keeps PyTorch from logging what is raised anyway, in threads that trace a program."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(_QUIET, "depth", 0)


_QUIET = threading.local()
logging.getLogger("torch._subclasses.fake_tensor").addFilter(_Quiet())


def _containers(value: Any) -> Iterator[Any]:
    """The containers in an argument, itself included."""
    if isinstance(value, torch.Tensor):
        return
    yield value
    if isinstance(value, arrays.Array):
        return
    if isinstance(value, dict):
        items: Any = value.values()
    elif isinstance(value, (list, tuple, _federated.Struct)):
        items = value
    else:
        items = [getattr(value, name) for name in _attribute_names(value) or []]
    for item in items:
        yield from _containers(item)


def _names(function: Any, specs: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """How the inputs are called in messages: by their parameters, where these are known."""
    code = getattr(function, "__code__", None)
    known = () if code is None else code.co_varnames[: code.co_argcount]
    found: list[str] = []
    for index, spec in enumerate(specs):
        found += _paths(spec, known[index] if index < len(known) else f"argument {index}")
    for name, spec in kwargs.items():
        found += _paths(spec, name)
    return found


def _paths(value: Any, where: str) -> list[str]:
    if _is_spec(value):
        return [where]
    if isinstance(value, dict):
        pairs: Any = [(f"[{key!r}]", item) for key, item in value.items()]
    elif isinstance(value, _federated.Struct):
        fields = enumerate(_federated.iter_elements(value))
        pairs = [(f"[{at}]" if name is None else f".{name}", item) for at, (name, item) in fields]
    elif isinstance(value, (list, tuple)):
        named = getattr(type(value), "_fields", None)
        parts = [f"[{at}]" for at in range(len(value))]
        parts = parts if named is None else [f".{name}" for name in named]
        pairs = zip(parts, value, strict=True)
    else:
        names = _attribute_names(value) or []
        pairs = [(f".{name}", getattr(value, name)) for name in names]
    return [path for part, item in pairs for path in _paths(item, where + part)]


def _declared(code: types.CodeType) -> tuple[str, int, str]:
    return code.co_filename, code.co_firstlineno, code.co_qualname


def _returning(code: types.CodeType) -> tuple[str, int, str]:
    """Where a function returns; where it's declared, if it does so in several places."""
    lines = {
        each.positions.lineno
        for each in dis.get_instructions(code)
        if each.opname.startswith("RETURN_") and each.opname != "RETURN_GENERATOR"
        if each.positions is not None and each.positions.lineno is not None
    }
    file, first, name = _declared(code)
    return file, lines.pop() if len(lines) == 1 else first, name


def _calling(callee: Any) -> types.FunctionType:
    """A function that calls any other callable."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return callee(*args, **kwargs)

    return call  # type: ignore[return-value]


def _is_spec(value: Any) -> bool:
    return isinstance(value, (TensorSpec, torch.dtype))


def _is_result(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, arrays.Array)) or type(value) in (bool, int, float)


def _given(spec: TensorSpec, tensor: Any) -> Any:
    """What the function is given for an input."""
    return arrays.Array(tensor) if isinstance(spec, arrays.ArraySpec) else tensor


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
