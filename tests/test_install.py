"""`stator.install()`: `torch.compile` as programs call it, served by Stator."""

from __future__ import annotations

import copy
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from stator import stats
from stator.__main__ import main
from stator._stator import Compiled
from stator.errors import ApiError, OptionError

PYTORCHS = torch.compile
PYTORCHS_RESET = torch.compiler.reset
X = torch.arange(6.0).view(2, 3)


@pytest.fixture
def served() -> Iterator[None]:
    with stator.installed():
        yield
    assert torch.compile is PYTORCHS and torch.compiler.reset is PYTORCHS_RESET


def scaled(x: Tensor) -> Tensor:
    return (x * 2 + 1).relu().sum()


def replays(compiled: Any) -> None:
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            assert torch.equal(compiled(X), scaled(X))
    assert (stats(compiled).traces, stats(compiled).hits) == (1, 2)


@pytest.mark.parametrize(
    "compile_it",
    [
        lambda: torch.compile(scaled, backend="eager"),
        lambda: torch.compile(backend="eager")(scaled),
        lambda: torch.compile(backend="eager", fullgraph=True, dynamic=False)(scaled),
        lambda: torch.compile(scaled, backend="eager", mode="default"),
        lambda: torch.compile(scaled, backend="eager", options={}),
        lambda: torch.compile(scaled, backend="eager", options={"guard_filter_fn": None}),
        lambda: torch.compiler.compile(scaled, backend="eager"),
        lambda: torch.compile(scaled, backend=lambda graph, inputs: graph),
    ],
    ids=range(8),
)
def test_functions(served: None, compile_it: Callable[[], Any]) -> None:
    compiled = compile_it()
    assert isinstance(compiled, Compiled)
    replays(compiled)


def test_modules(served: None) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    compiled = torch.compile(model, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(X), model(X))
    assert compiled._orig_mod is model
    assert stats(compiled).traces == 1


def test_the_method_of_modules(served: None) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    twin = copy.deepcopy(model)
    seen: list[Any] = []
    for each in (model, twin):
        each.register_forward_hook(lambda module, args, output: seen.append(output.shape))
    model.compile(backend="eager", fullgraph=True)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            assert torch.equal(model(X), twin(X))
    assert stats(model).hits == 2
    assert len(seen) == 6
    assert list(model.state_dict()) == list(twin.state_dict())
    # Only the outermost call of a compiled module within another is recorded.
    outer = nn.Sequential(model)
    assert torch.equal(outer(X), twin(X))


def test_options_reach_the_backend(served: None) -> None:
    given: list[Any] = []

    def backend(graph: Any, inputs: Any, **arguments: Any) -> Any:
        given.append(arguments)
        return graph

    options = {"level": 3, "guard_filter_fn": len}
    compiled = torch.compile(scaled, backend=backend, options=options)
    replays(compiled)
    assert given == [{"options": {"level": 3}}]
    assert options == {"level": 3, "guard_filter_fn": len}


def test_reset(served: None) -> None:
    compiled = torch.compile(scaled, backend="eager")
    compiled(X)
    torch.compiler.reset()
    assert stats(compiled).traces == 0


def test_what_turns_compilation_off(served: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch.compile(scaled, disable=True) is scaled
    assert torch.compile(disable=True)(scaled) is scaled
    import torch._dynamo.config as config

    with config.patch(disable=True):
        assert torch.compile(scaled) is scaled


def test_what_is_wrong(served: None) -> None:
    with pytest.raises(OptionError):
        torch.compile(scaled, mode="default", options={"a": 1})
    with pytest.raises(ValueError, match="no backend 'inductr'.*inductor"):
        torch.compile(scaled, backend="inductr")
    with pytest.raises(TypeError, match="cache_size_limit"):
        torch.compile(scaled, cache_size_limit=3)  # type: ignore[call-overload]


def test_ahead_of_time_stays_pytorchs(served: None) -> None:
    compiled = torch.compile(scaled, options={"use_aoti": True})
    assert not isinstance(compiled, Compiled)


def test_installations_nest() -> None:
    stator.install()
    with stator.installed():
        stator.install()
        stator.uninstall()
        assert torch.compile is not PYTORCHS
    assert torch.compile is not PYTORCHS
    taken = torch.compile
    stator.uninstall()
    assert torch.compile is PYTORCHS and torch.compiler.reset is PYTORCHS_RESET
    # Who has taken it gets PyTorch's.
    assert not isinstance(taken(scaled, backend="eager"), Compiled)
    with pytest.raises(ApiError, match=r"stator.install\(\)"):
        stator.uninstall()


def test_a_replacement_of_somebody_elses_stays() -> None:
    try:
        with stator.installed():
            ours = torch.compile

            @functools.wraps(ours)
            def theirs(*args: Any, **kwargs: Any) -> Any:
                return ours(*args, **kwargs)

            torch.compile = theirs  # type: ignore[assignment]
        assert torch.compile is theirs
        assert not isinstance(theirs(scaled, backend="eager"), Compiled)
    finally:
        torch.compile = PYTORCHS  # type: ignore[assignment]


def test_errors_uninstall() -> None:
    with pytest.raises(ZeroDivisionError), stator.installed():
        raise ZeroDivisionError
    assert torch.compile is PYTORCHS


PROGRAM = """
import sys
import torch

@torch.compile(backend="eager")
def double(x):
    return x * 2

double(torch.ones(2))
print(type(double).__name__, sys.argv[1:], __name__, __file__)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "told_program.py"
    path.write_text(PROGRAM)
    return path


def told(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_run(program: Path) -> None:
    expected = f"Compiled ['a', '--flag'] __main__ {program}"
    assert told("-m", "stator", "run", str(program), "a", "--flag") == expected


def test_run_a_module(program: Path) -> None:
    found = told("-m", "stator", "run", "-m", program.stem, "a", PYTHONPATH=str(program.parent))
    assert found == f"Compiled ['a'] __main__ {program}"


def test_the_environment(program: Path) -> None:
    program.write_text("import stator\n" + PROGRAM)
    assert told(str(program), STATOR_INSTALL="1").startswith("Compiled ")
    assert not told(str(program), STATOR_INSTALL="0").startswith("Compiled ")


def test_run_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "no-such-program.py"]) == 2
    assert "no-such-program.py" in capsys.readouterr().err
