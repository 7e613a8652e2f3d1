"""`from ..name import` within a function: what it names depends on the package, on what is loaded, and on its members."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from differential.support import api

FILES = {
    "house/__init__.py": "number = 1",
    "house/other.py": "k = 2",
    "house/room/__init__.py": "",
    "house/room/other.py": "k = 20",
    "house/room/shelf.py": "k = 7",
    "house/room/program.py": """
def program(x):
    from . import shelf
    from .. import number, other
    from ..other import k
    from .shelf import k as own
    return x * k + own, shelf.k, number, other.k
""",
}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("house.other", "house.room.other", "house.room.shelf"):
        importlib.import_module(name)
    yield importlib.import_module("house.room.program")
    for name in [name for name in sys.modules if name.split(".")[0] == "house"]:
        del sys.modules[name]


def ended(function: Any) -> Any:
    try:
        return repr(function(torch.ones(2)))
    except ImportError as error:
        return type(error), str(error)


def test_what_was_read_changes(program: Any) -> None:
    compiled = api.compile(program.program)
    house, other = sys.modules["house"], sys.modules["house.other"]

    def agree() -> None:
        for _ in range(2):
            assert ended(compiled) == ended(program.program)

    agree()
    assert api.breaks(compiled) in (0, None)
    sys.modules["house.room.shelf"].k = 9  # type: ignore[attr-defined]
    agree()
    other.k = 4  # type: ignore[attr-defined]
    agree()
    house.number = 3  # type: ignore[attr-defined]
    agree()
    house.other = types.SimpleNamespace(k=5)  # type: ignore[attr-defined]
    agree()
    stand_in = types.ModuleType("house.other")
    stand_in.k = 50  # type: ignore[attr-defined]
    sys.modules["house.other"] = stand_in
    agree()
    sys.modules["house.other"] = other
    agree()


@pytest.mark.filterwarnings("ignore::ImportWarning")
def test_another_package(program: Any) -> None:
    compiled = api.compile(program.program)
    for package in ("house.room", "house.room", "house", "house.room", "nowhere", "", "house.room"):
        program.__package__ = package
        assert ended(compiled) == ended(program.program)
    del program.__package__
    for _ in range(2):
        assert ended(compiled) == ended(program.program)


def test_no_longer_loaded(program: Any) -> None:
    """It's loaded once more, which runs its code."""
    compiled = api.compile(program.program)
    for _ in range(2):
        assert ended(compiled) == ended(program.program)
    sys.modules.pop("house.other").k = 100  # type: ignore[attr-defined]
    Path(sys.modules["house"].__path__[0], "other.py").write_text("k = 3333")
    importlib.invalidate_caches()
    assert "3340" in ended(compiled)  # 3,333 and the shelf's 7
    assert ended(compiled) == ended(program.program)
