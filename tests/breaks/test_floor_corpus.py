"""The differential corpus as users run it: what gains nothing by a replay runs natively, now and then tried."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from differential.support import api
from differential.support.driver import compare, run_side
from differential.test_corpus import _CASES as CASES

import stator

pytestmark = pytest.mark.skipif(api.PLAIN, reason="looks at compiled functions")

KEYS = [key for key, case in CASES.items() if not case.options.get("fullgraph")]
IDS = [f"{module.rpartition('.')[2]}-{name}" for module, name in KEYS]


@pytest.mark.parametrize("key", KEYS, ids=IDS)
def test_with_the_floor(key: tuple[str, str]) -> None:
    torch.set_num_threads(1)
    api.reset()
    plain = run_side(*key, compile_it=False)
    floor = partial(stator.config.patch, skip_unprofitable=True)
    compare(plain, run_side(*key, compile_it=True, around=floor))
