"""Which arrays code is written for that calls nothing but their methods: PyTorch's or NumPy's.

`x.std()` isn't the same of a tensor and of an array: a function that could be written for either,
and gives something else for the other, has to say which is meant.
"""

from __future__ import annotations

import dis
import functools
import inspect
import re
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from stator.errors import AmbiguousArraysError, GraphBreakError, ProgramInputError
from stator.programs import TensorProgram

TORCH, NUMPY = "torch", "numpy"


def meant(function: Any) -> str | None:
    """What a function says of itself: by what its parameters are annotated with, by what it names,
    and so do the functions that it calls. A module that has PyTorch and not NumPy says it, too; one
    that has NumPy doesn't, as types of PyTorch code are NumPy's."""
    code = _function_of(function)
    if code is None:
        return TORCH if isinstance(function, torch.nn.Module) else None
    if _is_own(code):
        # Aggregators and learning algorithms.
        return TORCH
    annotated = _annotated(code)
    if annotated is not None:
        return annotated
    named = set(_named(code, set()))
    if named:
        return TORCH if TORCH in named else NUMPY
    in_module = {_library_of(value) for value in [*code.__globals__.values()]}
    return TORCH if TORCH in in_module and NUMPY not in in_module else None


def _function_of(function: Any) -> types.FunctionType | None:
    """The Python function that a callable is, or calls."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if isinstance(function, types.FunctionType):
        return function
    called = inspect.getattr_static(type(function), "__call__", None)
    is_own = isinstance(called, types.FunctionType) and _library_of(type(function)) is None
    return called if is_own else None


_TORCH_WORDS = re.compile(r"\b(torch|Tensor)\b")
_NUMPY_WORDS = re.compile(r"\b(np|numpy|ndarray|NDArray|ArrayLike)\b")


def _annotated(function: types.FunctionType) -> str | None:
    """What the annotations of parameters say."""
    found = set()
    for name, annotation in function.__annotations__.items():
        if name == "return":
            continue
        text = annotation if isinstance(annotation, str) else ""
        library = _library_of(annotation) or _library_of(getattr(annotation, "__origin__", None))
        if library == TORCH or _TORCH_WORDS.search(text):
            found.add(TORCH)
        elif library == NUMPY or _NUMPY_WORDS.search(text):
            found.add(NUMPY)
    return found.pop() if len(found) == 1 else None


def _named(function: types.FunctionType, seen: set[Any]) -> Iterator[str]:
    """The libraries that a function names, or one that it calls by name."""
    if function in seen:
        return
    seen.add(function)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    inner = dict(cells)
    for kind, name in _names_in(function.__code__):
        if kind == "import":
            imported = name.partition(".")[0]
            if imported in (TORCH, NUMPY):
                yield imported
            continue
        value = function.__globals__.get(name)
        if kind == "free" and name in inner:
            try:
                value = inner[name].cell_contents
            except ValueError:
                continue
        library = _library_of(value)
        if library is not None:
            yield library
        elif (called := _function_of(value)) is not None and not _is_own(called):
            yield from _named(called, seen)


def _is_own(function: types.FunctionType) -> bool:
    return function.__module__ is not None and function.__module__.partition(".")[0] == "stator"


def _names_in(code: types.CodeType) -> Iterator[tuple[str, str]]:
    """The names that code reads from outside, or imports, that of functions in it as well."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield "global", instruction.argval
        elif instruction.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF"):
            yield "free", instruction.argval
        elif instruction.opname == "IMPORT_NAME":
            yield "import", instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _library_of(value: Any) -> str | None:
    """The library that a module, class, function or object is of."""
    if isinstance(value, types.ModuleType):
        name: Any = value.__name__
    elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        name = value.__module__ or type(getattr(value, "__self__", None)).__module__
    elif isinstance(value, (torch.Tensor, torch.nn.Module, torch.dtype)):
        return TORCH
    else:
        name = type(value).__module__
    library = name.partition(".")[0] if isinstance(name, str) else ""
    return library if library in (TORCH, NUMPY) else None


def is_torch(meaning: str | None, program: TensorProgram) -> bool:
    """Whether a function that was traced as PyTorch code surely is that: it says so, or calls
    functions of PyTorch's."""
    if meaning is not None:
        return meaning == TORCH
    return not program.inputs or any(map(_is_function, program._native.names()))


def _is_function(name: str) -> bool:
    """Whether what a program names is a function of PyTorch's, and no method."""
    is_torch = name.startswith("torch.") and not name.startswith(_METHOD)
    return is_torch and not isinstance(
        getattr(torch, name.removeprefix("torch."), None), torch.dtype
    )


_METHOD = "torch.Tensor."


def fails_as_torch(meaning: str | None, error: BaseException) -> bool:
    """Whether a function is NumPy code because it can't be PyTorch code: PyTorch itself refuses it.
    What tensor programs refuse, PyTorch may do."""
    if meaning is not None:
        return meaning == NUMPY
    return not isinstance(error, GraphBreakError)


def chosen(
    function: Any,
    meaning: str | None,
    as_torch: tuple[TensorProgram, Any],
    as_numpy: tuple[TensorProgram, Any] | BaseException,
    declared: str,
) -> tuple[TensorProgram, Any]:
    """What a function is that was traced as PyTorch code, and as NumPy code or what that raised."""
    if isinstance(as_numpy, BaseException):
        if not _may_be_numpy(as_numpy):
            return as_torch
        if meaning == NUMPY:
            raise as_numpy
        if isinstance(as_numpy, GraphBreakError) and not _differing(as_torch[0]):
            # Arrays of programs can't do all that others can, and nothing in it is known to differ.
            return as_torch
        difference: str | None = f"as NumPy code it can't be traced: {as_numpy}"
    elif meaning == NUMPY:
        return as_numpy
    else:
        difference = _difference(as_torch, as_numpy)
        if difference is None:
            return as_torch
    names = _differing(as_torch[0])
    raise AmbiguousArraysError(
        "as NumPy code it gives something else than as PyTorch code, and nothing in it says which "
        f"it is ({difference})",
        'say it by `local_computation(..., arrays="numpy")` or `arrays="torch"`. A function that '
        "names `np` or `torch`, or has parameters annotated with arrays of theirs, says it as well",
        [_place(function, names, declared)],
        "; ".join(DIFFERENT[name] for name in DIFFERENT if name in names),
    )


def _may_be_numpy(error: BaseException) -> bool:
    """Whether what NumPy code may do was refused: arrays of programs lack some of it."""
    if isinstance(error, AttributeError):
        return error.name is not None and hasattr(np.ndarray, error.name)
    if isinstance(error, GraphBreakError):
        # What returns nothing, as it sorts in place, is no function of a program's.
        return error.id != "SB023"
    return isinstance(error, NotImplementedError)


DIFFERENT = {
    "std": "PyTorch's `std` divides by one less than there are elements, NumPy's by their number",
    "var": "PyTorch's `var` divides by one less than there are elements, NumPy's by their number",
    "sort": "PyTorch's `sort` gives values and places, NumPy's sorts the array and gives nothing",
    "max": "PyTorch's `max` of a dimension gives values and places, NumPy's values",
    "min": "PyTorch's `min` of a dimension gives values and places, NumPy's values",
    "repeat": "PyTorch's `repeat` repeats the tensor, NumPy's each element",
    "nonzero": "PyTorch's `nonzero` gives a tensor of places, NumPy's an array for each dimension",
    "transpose": "PyTorch's `transpose` swaps two dimensions, NumPy's takes the order of all",
    "truediv": "quotients of integers are `float32` in PyTorch, `float64` in NumPy",
}
"""What is known to differ. Whether it does for a function is found out by computing that."""

_ALWAYS = frozenset({"std", "var", "repeat"})
"""What differs whatever it is given, so that nothing has to be computed. What elements a function
chooses by number may be none of those that are tried."""


def _differing(program: TensorProgram) -> set[str]:
    """What in it is known to differ."""
    methods = {name.removeprefix(_METHOD) for name in program._native.names()}
    return {name for name in DIFFERENT if name in methods or f"operator.{name}(" in program.text}


def _place(function: Any, names: set[str], declared: str) -> tuple[str, int, str]:
    """Where one of these methods is called that differ, or where the function begins."""
    found = _function_of(function)
    if found is None:
        return declared, 0, getattr(function, "__name__", type(function).__name__)
    code = found.__code__
    for instruction in dis.get_instructions(code):
        position = instruction.positions
        if position is None or position.lineno is None:
            continue
        is_called = instruction.opname in ("LOAD_METHOD", "LOAD_ATTR")
        if is_called and instruction.argval in names:
            return code.co_filename, position.lineno, code.co_qualname
    return code.co_filename, code.co_firstlineno, code.co_qualname


def _difference(
    as_torch: tuple[TensorProgram, Any], as_numpy: tuple[TensorProgram, Any]
) -> str | None:
    """In what two programs of one function differ by more than rounding."""
    left, right = as_torch[0], as_numpy[0]
    if left.text == right.text:
        return None
    pairs = zip(left.outputs, right.outputs, strict=False)
    if differing := _differing(left) & _ALWAYS:
        return f"`{'`, `'.join(sorted(differing))}`"
    if left.gives != right.gives or not all(_are_alike(a.dtype, b.dtype) for a, b in pairs):
        return f"{_given(right)} beside {_given(left)}"
    has_run = False
    for least, most in ((0, 1), (1, 8), (-4, 4)):
        for size in _SIZES:
            given = _sample(left, size, least, most)
            results = [_run(program, given) for program in (left, right)]
            if any(isinstance(result, ProgramInputError) for result in results):
                continue
            failed = [isinstance(result, Exception) for result in results]
            if all(failed):
                break
            if any(failed):
                return "a result beside an error" if failed[0] else "an error beside a result"
            has_run = True
            for found, expected in zip(results[1], results[0], strict=True):
                if not _is_close(found, expected):
                    return f"{_shown(found)} beside {_shown(expected)}"
            break
    return "it failed on all that was tried" if not has_run and _differing(left) else None


def _are_alike(left: torch.dtype, right: torch.dtype) -> bool:
    """Whether element types are the same, or numbers of one are those of the other, rounded."""
    return left == right or {left, right} in _ROUNDED


_ROUNDED = ({torch.float32, torch.float64}, {torch.complex64, torch.complex128})

_SIZES = (3, 4, 2, 6, 12, 1)
"""What sizes that vary are tried with: the first one that the programs take."""


def _sample(program: TensorProgram, size: int, least: int, most: int) -> list[torch.Tensor]:
    """Inputs of a program, always the same."""
    random = torch.Generator().manual_seed(size)
    made = []
    for spec in program.inputs:
        sizes = [size if each is None else each for each in spec.shape]
        if spec.dtype.is_floating_point or spec.dtype.is_complex:
            values = torch.randn(sizes, generator=random, dtype=torch.float64)
        else:
            is_signed = spec.dtype.is_signed and spec.dtype is not torch.bool
            values = torch.randint(
                least if is_signed else max(least, 0), most, sizes, generator=random
            )
        made.append(values.to(spec.dtype))
    return made


def _run(program: TensorProgram, given: list[torch.Tensor]) -> Any:
    """What it gives, or raises."""
    try:
        return program._run(*[tensor.clone() for tensor in given])
    except Exception as error:
        return error


def _is_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    if found.shape != expected.shape:
        return False
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        return torch.equal(found, expected)
    coarse = max(torch.finfo(found.dtype).eps, torch.finfo(expected.dtype).eps)
    found = found.to(expected.dtype)
    return torch.allclose(found, expected, rtol=coarse**0.5, atol=coarse**0.5, equal_nan=True)


def _given(program: TensorProgram) -> str:
    """What a program gives, for messages."""
    return f"({', '.join(map(str, program.outputs))})"


def _shown(value: torch.Tensor) -> str:
    return str(value.tolist()) if value.numel() < 5 else f"other elements {list(value.shape)}"
