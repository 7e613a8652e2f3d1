"""Programs of all kinds: plain, recorded, replayed, and after a change, with default settings and where every trace is replayed."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch

import stator

from . import programs
from .support import api
from .support.driver import compare, corpus_of, fresh_module, modules_of, run_side

_MODULES = modules_of(programs)


def _keys() -> list[tuple[str, str]]:
    keys = []
    for module_name in _MODULES:
        with fresh_module(module_name) as module:
            keys += [(module_name, name) for name in corpus_of(module).cases]
    return keys


_KEYS = _keys()


@pytest.fixture(autouse=True)
def _quiet_machine() -> Iterator[None]:
    torch.set_num_threads(1)
    api.reset()
    yield
    if sys.version_info >= (3, 12):
        for tool in filter(sys.monitoring.get_tool, range(6)):
            sys.monitoring.set_events(tool, 0)
            sys.monitoring.free_tool_id(tool)


@pytest.mark.parametrize(
    "key", _KEYS, ids=[f"{module.rpartition('.')[2]}-{name}" for module, name in _KEYS]
)
def test_program(key: tuple[str, str]) -> None:
    plain = run_side(*key, compile_it=False)
    compare(plain, run_side(*key, compile_it=True))
    if not api.PLAIN:
        with stator.config.patch(skip_unprofitable=False):
            compare(plain, run_side(*key, compile_it=True))


def test_the_programs_are_many() -> None:
    assert len(_KEYS) >= 200
