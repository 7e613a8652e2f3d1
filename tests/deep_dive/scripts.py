"""The deep dive's examples, with `stator` for `torch`'s names.

`import stator` takes the empty line below `import torch`, so that line numbers are the text's.
"""

from __future__ import annotations

import sys

MSE = """\
import torch
import stator
@stator.compile
def mse(x, y):
    z = (x - y) ** 2
    return z.sum()

x = torch.randn(200)
y = torch.randn(200)
mse(x, y)
"""

MSE_GRAPH = """\
def forward(l_x_: torch.Tensor, l_y_: torch.Tensor):
    # File: example.py:5, code: z = (x - y) ** 2
    sub = l_x_ - l_y_
    z = sub ** 2
    # File: example.py:6, code: return z.sum()
    sum_1 = z.sum()
    return (sum_1,)
"""

BRANCH = """\
import torch
import stator
@stator.compile
def fn(x, n):
    y = x ** 2
    if n >= 0:
        return (n + 1) * y
    else:
        return y / n

x = torch.randn(200)
"""

BRANCH_GRAPH = """\
def forward(l_x_: torch.Tensor):
    # File: example.py:5, code: y = x ** 2
    y = l_x_ ** 2
    # File: example.py:7, code: return (n + 1) * y
    mul = 3 * y
    return (mul,)
"""

OTHER_BRANCH_GRAPH = """\
def forward(l_x_: torch.Tensor):
    # File: example.py:5, code: y = x ** 2
    y = l_x_ ** 2
    # File: example.py:9, code: return y / n
    truediv = y / -2
    return (truediv,)
"""

HELLO = """\
import torch
import stator
@stator.compile
def fn(a, b):
    return a * len(b)

fn(torch.arange(10), "Hello")
"""

HELLO_GUARDS = """\
___check_type_id(L['b'], ID)
L['b'] == 'Hello'
"""

HELLO_GRAPHS = [
    """\
def forward(l_a_: torch.Tensor):
    # File: script.py:5, code: return a * len(b)
    mul = l_a_ * 5
    return (mul,)
""",
    """\
def forward(l_a_: torch.Tensor):
    # File: script.py:5, code: return a * len(b)
    mul = l_a_ * 2
    return (mul,)
""",
]

HELLO_RECOMPILES = """\
Recompiling function fn in script.py:3
triggered by the following guard failure(s):
     - L['b'] == 'Hello'  # found 'Hi', read at script.py:5: return a * len(b)
"""

FIRST_USES = """\
import torch
import stator
@stator.compile
def fn(a, n, cell):
    a = a + 1
    later = lambda: cell
    return a * n + later()

fn(torch.arange(10), 3, 2)
"""

ITEM = """\
import torch
import stator
@stator.compile
def fn(x, l):
    return x * len(l[0])

fn(torch.randn(8), ["Hi", "Hello"])
"""

ITEM_GUARDS = """\
___check_type_id(L['l'], ID)
len(L['l']) == 2
___check_type_id(L['l'][0], ID)
L['l'][0] == 'Hi'
___check_type_id(L['l'][1], ID)
L['l'][1] == 'Hello'
"""

SIZES = """\
import torch
import stator
@stator.compile
def fn(a, b):
    return a.shape[0] * a * b

fn(torch.randn(4, 3), torch.randn(4, 3))
"""

SIZES_GRAPH_LINES = """\
mul = 4 * l_a_
mul_1 = mul * l_b_
return (mul_1,)
"""

SIZES_GUARDS = (
    "check_tensor(L['a'], torch.float32, device=None, requires_grad=False, "
    "size=[4, 3], stride=[3, 1])\n"
    "check_tensor(L['b'], torch.float32, device=None, requires_grad=False, "
    "size=[4, 3], stride=[3, 1])\n"
)

TRACED = """\
import torch
import stator
@stator.compile
def fn(x, n):
    return torch.any(y) if n is None else x.add(n[0])
y = torch.ones(2)

fn(torch.ones(2), None)
fn(torch.ones(2), [3])
"""

_TRACED_311 = """\
TRACE RESUME 0 []
TRACE LOAD_FAST n []
TRACE POP_JUMP_FORWARD_IF_NOT_NONE to 56 [Constant(None)]
TRACE LOAD_GLOBAL torch []
TRACE LOAD_ATTR any [Module(torch)]
TRACE LOAD_GLOBAL y [TorchFn(any)]
TRACE PRECALL 1 [TorchFn(any), Tensor()]
TRACE CALL 1 [TorchFn(any), Tensor()]
TRACE JUMP_FORWARD to 108 [Tensor()]
TRACE RETURN_VALUE [Tensor()]
TRACE RESUME 0 []
TRACE LOAD_FAST n []
TRACE POP_JUMP_FORWARD_IF_NOT_NONE to 56 [List(1)]
TRACE LOAD_FAST x []
TRACE LOAD_METHOD add [Tensor()]
TRACE LOAD_FAST n [TorchFn(add), Tensor()]
TRACE LOAD_CONST 0 [TorchFn(add), Tensor(), List(1)]
TRACE BINARY_SUBSCR [TorchFn(add), Tensor(), List(1), Constant(int: 0)]
TRACE PRECALL 1 [TorchFn(add), Tensor(), Constant(int: 3)]
TRACE CALL 1 [TorchFn(add), Tensor(), Constant(int: 3)]
TRACE RETURN_VALUE [Tensor()]
"""

_TRACED_312 = """\
TRACE RESUME 0 []
TRACE LOAD_FAST n []
TRACE POP_JUMP_IF_NOT_NONE to 56 [Constant(None)]
TRACE LOAD_GLOBAL torch []
TRACE LOAD_ATTR any [Module(torch)]
TRACE LOAD_GLOBAL y [TorchFn(any)]
TRACE CALL 1 [TorchFn(any), Tensor()]
TRACE RETURN_VALUE [Tensor()]
TRACE RESUME 0 []
TRACE LOAD_FAST n []
TRACE POP_JUMP_IF_NOT_NONE to 56 [List(1)]
TRACE LOAD_FAST x []
TRACE LOAD_ATTR add [Tensor()]
TRACE LOAD_FAST n [TorchFn(add), Tensor()]
TRACE LOAD_CONST 0 [TorchFn(add), Tensor(), List(1)]
TRACE BINARY_SUBSCR [TorchFn(add), Tensor(), List(1), Constant(int: 0)]
TRACE CALL 1 [TorchFn(add), Tensor(), Constant(int: 3)]
TRACE RETURN_VALUE [Tensor()]
"""

# Since 3.13 the `NULL` of a call is pushed behind what is called.
_TRACED_313 = _TRACED_312.replace("to 56", "to 60").replace(
    "TRACE LOAD_GLOBAL y", "TRACE PUSH_NULL [TorchFn(any)]\nTRACE LOAD_GLOBAL y"
)

TRACED_LINES = (
    _TRACED_311
    if sys.version_info < (3, 12)
    else _TRACED_312
    if sys.version_info < (3, 13)
    else _TRACED_313
)

WRITES = """\
import torch
import stator
@stator.compile
def fn(x, d, log, seen):
    d["n"] = 1
    d.pop("old", None)
    log.append(x)
    log.append(x)
    seen.add("s")
    return x + 1

fn(torch.ones(2), {"old": 1}, [], set())
"""

WRITES_LINES = """\
del L['d']['old']  # script.py:6: d.pop("old", None)
L['d']['n']  # script.py:5: d["n"] = 1
L['log'].extend(2 elements)  # script.py:8: log.append(x)
L['seen'].add()  # script.py:9: seen.add("s")
"""
