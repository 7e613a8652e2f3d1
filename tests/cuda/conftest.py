"""Makes the sibling test packages importable, and gives the tests their devices.

What needs no function of CUDA's own also runs on the CPU: without a GPU these tests are a dry run.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

_TESTS = str(Path(__file__).resolve().parent.parent)
if _TESTS not in sys.path:
    sys.path.insert(0, _TESTS)

from differential.support import api  # noqa: E402
from differential.support.forked import pytest_runtest_protocol  # noqa: E402, F401

HAS_CUDA = torch.cuda.is_available()
NEEDS_CUDA = pytest.mark.skipif(not HAS_CUDA, reason="no CUDA device (docs/gpu.md)")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=NEEDS_CUDA)])
def device(request: pytest.FixtureRequest) -> str:
    """Where a test's tensors are."""
    return str(request.param)


@pytest.fixture(params=["meta", pytest.param("cuda", marks=NEEDS_CUDA)])
def away(request: pytest.FixtureRequest) -> str:
    """A device other than the CPU, where tensors are moved to."""
    return str(request.param)


@pytest.fixture(params=[pytest.param("cuda", marks=NEEDS_CUDA)])
def cuda(request: pytest.FixtureRequest) -> str:
    """CUDA, for what nothing stands in for."""
    return str(request.param)


@pytest.fixture(params=[pytest.param(2, marks=NEEDS_CUDA)])
def two_devices(request: pytest.FixtureRequest) -> Iterator[int]:
    """The number of CUDA devices: two or more. The selected one is put back."""
    if torch.cuda.device_count() < request.param:
        pytest.skip("one CUDA device (docs/gpu.md)")
    with torch.cuda.device(torch.cuda.current_device()):
        yield torch.cuda.device_count()


@pytest.fixture(autouse=True)
def _from_the_start() -> Iterator[None]:
    api.reset()
    yield
    if HAS_CUDA:
        torch.cuda.synchronize()
