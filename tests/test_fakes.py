"""What fake tensors leave behind: a forked child can go backwards where its parent has traced a gradient."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import torch
from stator.programs import TensorProgram, TensorSpec

def gradient(x):
    return torch.func.grad(lambda x: (x * x).sum())(x)

def leaf(x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad((x * x).sum(), x)[0]

for fn in (gradient, leaf):
    traced = TensorProgram.trace(fn, [TensorSpec(torch.float32, (3,))])
    assert traced(torch.ones(3))[0].tolist() == [2, 2, 2]
"""
BACKEND = """
import torch
import stator

weight = torch.ones(3, requires_grad=True)
compiled = stator.compile(lambda x: (x * weight).sin().sum(), backend="aot_eager", when="first_call")
for _ in range(3):
    compiled(torch.ones(3)).backward()
assert stator.stats(compiled).hits
"""
CHILD = """
import os
child = os.fork()
if child == 0:
    torch.ones(3, requires_grad=True).sum().backward()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


@pytest.mark.parametrize("program", [PROGRAM, BACKEND], ids=["program", "backend"])
def test_a_forked_child_goes_backwards(program: str) -> None:
    script = program + "torch.ones(3, requires_grad=True).sum().backward()\n" + CHILD
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
