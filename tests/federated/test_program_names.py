"""`stator.federated.program` has the names of `federated_language.program`, of the same kinds."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types
import typing
from typing import Any

import pytest

from stator.federated import program

peer = pytest.importorskip("federated_language").program

NAMES = [name for name in dir(peer) if not name.startswith("_")]
MODULES = [name for name in NAMES if isinstance(getattr(peer, name), types.ModuleType)]
CLASSES = [name for name in NAMES if inspect.isclass(getattr(peer, name))]

# What the peer hasn't.
OURS = {
    *("ArrayFileReleaseManager", "CSVFileReleaseManager", "CSVKeyFieldnameNotFoundError"),
    *("CSVSaveMode", "ClientDataSource", "ClientDataSourceIterator", "CorruptedFileError"),
    *("FileProgramStateManager", "StructureMismatchError", "TensorBoardNotFoundError"),
    "TensorBoardReleaseManager",
}


def kind(of: Any) -> str:
    if isinstance(of, types.ModuleType):
        return "module"
    if inspect.isclass(of):
        return "abstract class" if inspect.isabstract(of) else "class"
    if isinstance(of, typing.TypeVar):
        return "type variable"
    if typing.get_origin(of) in (typing.Union, types.UnionType):
        return "union"
    return "coroutine function" if inspect.iscoroutinefunction(of) else type(of).__name__


def test_the_names_are_the_peer_s_and_those_that_are_listed() -> None:
    assert len(NAMES) > 40
    assert set(NAMES) | OURS == set(program.__all__)
    assert program.__all__ == sorted(program.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_of_the_same_kind(name: str) -> None:
    assert kind(getattr(program, name)) == kind(getattr(peer, name))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_has_what_the_peer_s_has_of_its_own(name: str) -> None:
    theirs, ours = getattr(peer, name), getattr(program, name)
    own = [
        each
        for each, value in vars(theirs).items()
        if not each.startswith("_") and getattr(value, "__module__", None) == theirs.__name__
    ]
    assert [each for each in own if not hasattr(ours, each)] == []


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_the_same_methods_with_the_same_arguments(name: str) -> None:
    theirs, ours = getattr(peer, name), getattr(program, name)
    assert getattr(ours, "__abstractmethods__", set()) == getattr(
        theirs, "__abstractmethods__", set()
    )
    bases = {base.__name__ for base in theirs.__mro__}
    assert bases <= {base.__name__ for base in ours.__mro__}
    for method, function in vars(theirs).items():
        if method.startswith("_") and method != "__init__":
            continue
        found = inspect.getattr_static(ours, method)
        assert isinstance(found, property) == isinstance(function, property)
        if not inspect.isfunction(function):
            continue
        assert inspect.iscoroutinefunction(found) == inspect.iscoroutinefunction(function)
        wanted = inspect.signature(function).parameters
        have = inspect.signature(found).parameters
        for parameter in wanted.values():
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                assert have[parameter.name].kind == parameter.kind
                assert have[parameter.name].default == parameter.default
        assert all(
            each.default is not each.empty for each in have.values() if each.name not in wanted
        )


@pytest.mark.parametrize("name", sorted(OURS))
def test_what_the_peer_has_not_is_documented(name: str) -> None:
    assert len(getattr(program, name).__doc__) > 40


def test_it_imports_without_torch_and_ray_and_is_found_from_the_package() -> None:
    script = (
        "import sys\n"
        "for name in ('torch', 'ray', 'tensorboard', 'ml_dtypes'): sys.modules[name] = None\n"
        "import stator.federated as fl\n"
        "assert 'stator.federated.program' not in sys.modules\n"
        "fl.program.NativeFederatedContext(fl.execution.LocalContext())\n"
        "from stator.federated import program\n"
        "assert program is fl.program\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_errors_can_be_sent_to_other_processes() -> None:
    import pickle

    for error in (
        program.ProgramStateExistsError(version=3, path="/p"),
        program.ProgramStateNotFoundError(3),
        program.ReleasedValueNotFoundError("k"),
        program.CorruptedFileError("/p", "why", "hint."),
        program.CSVKeyFieldnameNotFoundError("/p", "key", ["a"]),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error)
