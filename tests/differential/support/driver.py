"""Runs one case plain and compiled, in two fresh copies of its module, and compares."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import pkgutil
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from . import api
from .case import Call, Case, Corpus
from .describe import describe_all, first_difference

PHASES = ("recorded", "replayed", "replayed again", "after the change", "after it again")
CHANGE_BEFORE = 3


@dataclass
class Side:
    """What one side showed: a description per phase, and the callable it called."""

    phases: list[list[str]]
    target: Any
    steady: tuple[int | None, int | None]


def modules_of(package: types.ModuleType) -> list[str]:
    """A package's modules, without those for later versions of CPython: `since_v312_syntax` and the like."""
    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__))
    here = "since_v{}{}".format(*sys.version_info)
    is_known = lambda name: not name.startswith("since_v") or name[: len(here)] <= here
    return [f"{package.__name__}.{name}" for name in names if is_known(name)]


@cache
def _code(module_name: str) -> tuple[Any, Any]:
    spec = importlib.util.find_spec(module_name)
    if spec is None or spec.loader is None:
        raise ImportError(module_name)
    return spec, spec.loader.get_code(module_name)  # type: ignore[attr-defined]


def source_of(module_name: str) -> tuple[str, str]:
    """A corpus module's source, and its file."""
    spec, _ = _code(module_name)
    return spec.loader.get_source(module_name), spec.origin


@contextlib.contextmanager
def fresh_module(
    module_name: str, code: types.CodeType | None = None
) -> Iterator[types.ModuleType]:
    """A new instance of the module, or of `code` in its place: its globals, classes, closures and
    defaults are new."""
    spec, own_code = _code(module_name)
    code = code or own_code
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(module_name)
    sys.modules[module_name] = module
    try:
        torch.manual_seed(1)
        exec(code, module.__dict__)
        yield module
    finally:
        if before is None:
            del sys.modules[module_name]
        else:
            sys.modules[module_name] = before


def corpus_of(module: types.ModuleType) -> Corpus:
    """The cases a corpus module registered."""
    corpus = module.case
    if not isinstance(corpus, Corpus):
        raise TypeError(f"{module.__name__}.case is not a Corpus")
    return corpus


def run_side(
    module_name: str,
    case_name: str,
    compile_it: bool,
    around: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    code: types.CodeType | None = None,
    alter: Callable[[Case], Case] = lambda case: case,
) -> Side:
    """All phases of one case on one side; `around` is entered for each call of a compiled one.
    `code` is run in the module's place, `alter` gives another case in its place."""
    with fresh_module(module_name, code) as module:
        case = alter(corpus_of(module).cases[case_name])
        target = case.target()
        if compile_it:
            target = api.compile(target, **case.options)
        changed = case.change is not None or case.again is not None
        kept = _arguments(case.args, 0) if case.keep else None
        phases = []
        steady: tuple[int | None, int | None] = (None, None)
        for index in range(len(PHASES) if changed else CHANGE_BEFORE):
            if index == CHANGE_BEFORE:
                if case.change is not None:
                    case.change(*(kept.args if kept else ()))
                if case.again is not None:
                    kept = None
            factory = case.again if index >= CHANGE_BEFORE and case.again else case.args
            arguments = kept or _arguments(factory, index)
            with around() if compile_it else contextlib.nullcontext():
                phases.append(_observe(case, module, target, arguments, index))
            if compile_it and index == CHANGE_BEFORE - 1:
                steady = (api.hits(target), api.native(target))
        return Side(phases, target, steady)


def compare(plain: Side, compiled: Side) -> None:
    """Fails with the first phase and line that differ."""
    for phase, expected, found in zip(PHASES, plain.phases, compiled.phases, strict=False):
        difference = first_difference(expected, found)
        if difference is not None:
            note = f"stats.reason: {api.reason(compiled.target)}"
            raise AssertionError(
                f"{phase}: plain (-) and compiled (+) differ\n{difference}\n{note}"
            )


def _arguments(factory: Callable[[], Any], index: int) -> Call:
    torch.manual_seed(100 + index)
    made = factory()
    return made if isinstance(made, Call) else Call(tuple(made), {})


def _observe(
    case: Case, module: types.ModuleType, target: Any, arguments: Call, index: int
) -> list[str]:
    torch.manual_seed(200 + index)
    random.seed(200 + index)
    printed = io.StringIO()
    seen: dict[str, Any] = {}
    with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            seen["result"] = target(*arguments.args, **arguments.kwargs)
        except BaseException as error:
            seen["error"] = error
    state = _global_state()
    _restore_global_state()
    if case.grad and "result" in seen:
        _backward(seen["result"])
    seen["args"] = list(arguments.args)
    seen["kwargs"] = arguments.kwargs
    for name, value in list(vars(module).items()):
        if not name.startswith("__") and not isinstance(value, (types.ModuleType, Corpus)):
            if not (isinstance(value, types.FunctionType) and not vars(value)):
                seen[f"globals.{name}"] = value
    lines = describe_all(seen)
    lines.append(f"printed: {printed.getvalue()!r}")
    # What PyTorch's C++ code warns of in a replay stands at the compiled call.
    places = (module.__file__, __file__)
    lines += [
        f"warned: {item.category.__name__} {item.message!s}"
        for item in caught
        if item.filename in places and not item.category.__module__.startswith("stator")
    ]
    return lines + state


def _global_state() -> list[str]:
    return [
        f"rng: {hash(torch.get_rng_state().numpy().tobytes())} {random.random()!r}",
        f"grad mode: {torch.is_grad_enabled()}",
        f"inference mode: {torch.is_inference_mode_enabled()}",
        f"functions of subclasses: {torch._C._is_torch_function_enabled()}",
        f"functions of modes: {not torch._C._is_torch_function_all_disabled()}",
        f"autocast: {torch.is_autocast_enabled('cpu')} {torch.get_autocast_dtype('cpu')}",
        f"default dtype: {torch.get_default_dtype()}",
        f"deterministic: {torch.are_deterministic_algorithms_enabled()}",
    ]


def _restore_global_state() -> None:
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    if torch.are_deterministic_algorithms_enabled():  # asking is quicker: setting imports much
        torch.use_deterministic_algorithms(False)


def _backward(result: Any) -> None:
    outputs: list[torch.Tensor] = []
    _differentiable(result, outputs)
    if not outputs:
        raise AssertionError("grad=True, but no output requires a gradient")
    weights = [torch.linspace(0.5, 1.5, out.numel()).reshape(out.shape).to(out) for out in outputs]
    torch.autograd.backward(outputs, weights)


def _differentiable(value: Any, into: list[torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        if value.requires_grad and value.grad_fn and all(value is not item for item in into):
            into.append(value)
    elif isinstance(value, dict):
        for item in value.values():
            _differentiable(item, into)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _differentiable(item, into)
    elif hasattr(value, "__dict__"):
        _differentiable(vars(value), into)
