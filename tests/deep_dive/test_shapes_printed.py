"""Rows A5 and A14 to A18: the deep dive's chapter on symbolic shapes and what its examples print.

As in `test_printed`; the deep dive writes `def forward(self, ...)` in this chapter and
`def forward(...)` in the first one, for the same graphs.
"""

from __future__ import annotations

from pathlib import Path

from . import scripts
from .test_printed import assert_in_order, graphs, needs_stator, run

SHAPES = """\
import torch
import stator
@stator.compile
def fn(a, b):
    return a.shape[0] * a * b

fn(torch.randn(4, 3), torch.randn(4, 3))
fn(torch.randn(8, 3), torch.randn(8, 3))
"""

SHAPES_GRAPHS = [
    """\
def forward(l_a_: torch.Tensor, l_b_: torch.Tensor):
    # File: script.py:5, code: return a.shape[0] * a * b
    mul = 4 * l_a_
    mul_1 = mul * l_b_
    return (mul_1,)
""",
    """\
def forward(s0: torch.SymInt, l_a_: torch.Tensor, l_b_: torch.Tensor):
    # File: script.py:5, code: return a.shape[0] * a * b
    size = l_a_.size()
    getitem = size[0]
    mul = getitem * l_a_
    mul_1 = mul * l_b_
    return (mul_1,)
""",
]

SHAPES_SIZES = """\
TRACED GRAPH TENSOR SIZES
===== fn =====
l_a_: (s0, 3)
l_a_ (concrete): (8, 3)
l_b_: (s0, 3)
l_b_ (concrete): (8, 3)
mul: (s0, 3)
mul (concrete): (8, 3)
mul_1: (s0, 3)
mul_1 (concrete): (8, 3)
"""

SHAPES_GUARDS = """\
check_tensor(L['a'], torch.float32, device=None, requires_grad=False, size=[4, 3], stride=[3, 1])
check_tensor(L['b'], torch.float32, device=None, requires_grad=False, size=[4, 3], stride=[3, 1])
check_tensor(L['a'], torch.float32, device=None, requires_grad=False, size=[None, 3], stride=[3, 1])
check_tensor(L['b'], torch.float32, device=None, requires_grad=False, size=[None, 3], stride=[3, 1])
L['b'].size()[0] == L['a'].size()[0]
2 <= L['a'].size()[0]
"""

DYNAMIC = """\
import torch
import stator
@stator.compile(dynamic=True)
def fn(a):
    if a.shape[0] * 2 < 16:
        return a
    else:
        return a + 1

fn(torch.randn(8))
"""

INTEGER_GRAPHS = [
    """\
def forward(l_x_: torch.Tensor, l_n_: torch.SymInt):
    # File: example.py:5, code: y = x ** 2
    y = l_x_ ** 2
    # File: example.py:7, code: return (n + 1) * y
    add = l_n_ + 1
    mul = add * y
    return (mul,)
""",
    """\
def forward(l_x_: torch.Tensor, l_n_: torch.SymInt):
    # File: example.py:5, code: y = x ** 2
    y = l_x_ ** 2
    # File: example.py:9, code: return y / n
    truediv = y / l_n_
    return (truediv,)
""",
]


@needs_stator
def test_an_integer_that_changed_is_symbolic(tmp_path: Path) -> None:
    """A5: three graphs, and none for the fourth call."""
    calls = "fn(x, 2)\nfn(x, 3)\nfn(x, -2)\nfn(x, 4)\n"
    lines = run(tmp_path, "example.py", scripts.BRANCH + calls, "graph_code")
    assert graphs(lines) == [scripts.BRANCH_GRAPH, *INTEGER_GRAPHS]


@needs_stator
def test_sizes_are_static_until_one_changes(tmp_path: Path) -> None:
    """A14."""
    lines = run(tmp_path, "script.py", SHAPES, "graph_code")
    assert graphs(lines) == SHAPES_GRAPHS


@needs_stator
def test_sizes_print_with_their_symbols(tmp_path: Path) -> None:
    """A14."""
    lines = run(tmp_path, "script.py", SHAPES, "graph_sizes")
    assert SHAPES_SIZES in "\n".join(lines) + "\n"


@needs_stator
def test_guards_accept_any_size(tmp_path: Path) -> None:
    """A14, A16 and A17: any size of at least 2, the same for both."""
    assert_in_order(SHAPES_GUARDS, run(tmp_path, "script.py", SHAPES, "guards"))


@needs_stator
def test_a_branch_adds_a_guard(tmp_path: Path) -> None:
    """A18."""
    lines = run(tmp_path, "script.py", DYNAMIC, "dynamic")
    assert "eval 2*s0 >= 16 [guard added] at script.py:5 in fn" in lines
    guards = run(tmp_path, "script.py", DYNAMIC, "guards")
    assert_in_order("2*L['a'].size()[0] >= 16\n", guards)
