"""The modes of a call, taken along to a thread and given back."""

from __future__ import annotations

import threading

import pytest
import torch

from stator._fx import modes
from stator._fx.modes import Globals, Modes


def changed(device: str) -> torch.dtype:
    """A dtype that isn't the one that autocast would use."""
    dtype = torch.get_autocast_dtype(device)
    return torch.float16 if dtype is torch.bfloat16 else torch.bfloat16


@pytest.mark.parametrize("device", modes._DEVICES)
def test_autocast_of_each_device_is_taken_along(device: str) -> None:
    before, dtype = Modes.here(), changed(device)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, dtype)
    taken = Modes.here()
    before.set()
    assert Modes.here() == before != taken
    seen: list[object] = []

    def elsewhere() -> None:
        with taken.applied():
            seen.append((torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)))
        seen.append(Modes.here())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [(True, dtype), before]


def test_gradients_inference_and_the_default_device_are_taken_along() -> None:
    before = Modes.here()
    with torch.inference_mode(), torch.device("meta"):
        taken = Modes.here()
    with taken.applied():
        assert torch.is_inference_mode_enabled() and not torch.is_grad_enabled()
        assert torch.ones(1).device.type == "meta"
    assert Modes.here() == before


def test_what_holds_for_all_threads() -> None:
    before = Globals.here()
    other = Globals(torch.float64, before.threads + 1, "medium", True, True)
    try:
        other.set()
        assert Globals.here() == other == Modes.here().globals
    finally:
        before.set()
    assert Globals.here() == before


def test_no_device_is_left_out() -> None:
    """A type of device that autocast knows, and that isn't listed, would lose its dtype."""
    names = (
        *("cpu", "cuda", "hip", "xla", "mkldnn", "vulkan", "metal", "maia", "xpu", "mps"),
        *("hpu", "ve", "lazy", "ipu", "mtia", "privateuseone"),
    )
    known = [name for name in names if is_known(name)]
    assert sorted(known) == sorted(modes._DEVICES)


def is_known(device: str) -> bool:
    try:
        torch.is_autocast_enabled(device)
    except RuntimeError:
        return False
    return True
