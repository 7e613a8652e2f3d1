"""PyTorch's own backends on whole models: forward, and training steps, beside eager."""

from __future__ import annotations

import copy
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from differential.support import api
from torch import Tensor, nn


class Perceptron(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


class Convolution(nn.Module):
    """With batch normalisation, whose buffers a training step writes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


class Language(nn.Module):
    """A small GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.GPT2Config(
            n_layer=2,
            n_head=2,
            n_embd=32,
            vocab_size=100,
            n_positions=32,
            bos_token_id=0,
            eos_token_id=0,
            attn_pdrop=0.0,
            embd_pdrop=0.0,
            resid_pdrop=0.0,
        )
        self.model = transformers.GPT2LMHeadModel(config)

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids, use_cache=False).logits


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "perceptron": (Perceptron, lambda: torch.randn(5, 8)),
    "convolution": (Convolution, lambda: torch.randn(2, 3, 8, 8)),
    "language": (Language, lambda: torch.randint(0, 100, (2, 8))),
}


def _gradient_step(model: nn.Module, run: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """Loss, gradients and buffers of a step, which is then taken."""
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    optimizer.zero_grad()
    loss = run(x).pow(2).mean()
    loss.backward()
    seen = [loss.detach()]
    seen += [p.grad.clone() for p in model.parameters() if p.grad is not None]
    seen += [buffer.clone() for buffer in model.buffers()]
    optimizer.step()
    return seen


def _check(name: str, backend: str) -> None:
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model = make()
    twin = copy.deepcopy(model)
    compiled = api.compile(model, backend=backend, is_compiling=True)
    model.eval(), twin.eval()
    with torch.no_grad():
        for _ in range(3):
            x = inputs()
            torch.testing.assert_close(compiled(x), twin(x), rtol=1e-4, atol=1e-5)
    model.train(), twin.train()
    for _ in range(3):
        x = inputs()
        found, expected = _gradient_step(model, compiled, x), _gradient_step(twin, twin, x)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    if not api.PLAIN:
        hits: Any = api.hits(compiled)
        assert hits >= 4
        assert api.native(compiled) == 0


@pytest.mark.parametrize("name", MODELS)
def test_aot_eager(name: str) -> None:
    _check(name, "aot_eager")


def _compiler_works(folder: Path) -> bool:
    """Whether there is a C++ compiler, with OpenMP, that makes what a process can load."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return False
    source = folder / "probe.cpp"
    source.write_text("#include <vector>\n#include <omp.h>\nint main() { return 0; }\n")
    command = [compiler, "-fopenmp", "-shared", "-fPIC", str(source), "-o", str(folder / "probe")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_inductor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not _compiler_works(tmp_path):
        pytest.skip("no C++ compiler that works")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    _check("perceptron", "inductor")
