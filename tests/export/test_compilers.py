"""What else takes the programs that `stator.export` gives."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import nn
from torch.export import Dim

import stator


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4 * 6 * 6, 3)

    def forward(self, x):
        hidden = self.features(x).flatten(1)
        return {"logits": self.head(hidden), "norm": hidden.norm(dim=1)}


@pytest.fixture
def module():
    torch.manual_seed(0)
    return Classifier().eval()


@pytest.fixture
def program(module):
    return stator.export(
        module, (torch.ones(2, 1, 8, 8),), dynamic_shapes={"x": {0: Dim("batch", max=64)}}
    )


def test_aotinductor_compiles_them(module, program, tmp_path):
    if not shutil.which("g++"):
        pytest.skip("AOTInductor needs a C++ compiler")
    path = torch._inductor.aoti_compile_and_package(
        program, package_path=str(tmp_path / "classifier.pt2")
    )
    try:
        run = torch._inductor.aoti_load_package(path)
    except RuntimeError as error:
        if "executable stack" in str(error):
            pytest.skip("PyTorch's own library asks for executable stacks: glibc 2.41 refuses")
        raise
    for batch in (2, 5):
        x = torch.randn(batch, 1, 8, 8)
        torch.testing.assert_close(run(x), module(x))


def test_onnx_takes_them(program, tmp_path):
    pytest.importorskip("onnxscript", reason="torch.onnx.export(dynamo=True) needs onnxscript")
    torch.onnx.export(program, dynamo=True).save(str(tmp_path / "classifier.onnx"))


def test_decompositions_and_unflattening_take_them(module, program):
    x = torch.randn(3, 1, 8, 8)
    torch.testing.assert_close(program.run_decompositions().module()(x), module(x))
    torch.testing.assert_close(torch.export.unflatten(program)(x), module(x))


def test_torch_compile_takes_them(module, program):
    x = torch.randn(3, 1, 8, 8)
    with torch.no_grad():
        compiled = stator.compile(program.module(), backend="aot_eager")
        for _ in range(2):
            torch.testing.assert_close(compiled(x), module(x))
