"""What can't be a program: an error at the user's line, no frame of Stator's, nothing changed."""

from __future__ import annotations

import collections
import contextvars
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from programs.common import F32, PACKAGE, frames, spec
from torch import nn

import stator
from stator.errors import GraphBreakError, ProgramError, SpecError
from stator.programs import TensorProgram, TensorSpec

COUNT = 0
LOG: list[Any] = []
TABLE: dict[str, Any] = {"a": 1, "b": 2}
SEEN: set[int] = set()
QUEUE: collections.deque[Any] = collections.deque()
VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE", default=0)
OUTSIDE = torch.zeros(4)
PARAMETER = nn.Parameter(torch.zeros(4))
NORM = nn.BatchNorm1d(4)
VIEW = OUTSIDE[1:]


class Holder:
    shared = 0
    __slots__ = ("slot",)

    def __init__(self) -> None:
        self.slot = 0


class Plain:
    def __init__(self) -> None:
        self.n = 0


HOLDER, PLAIN = Holder(), Plain()


def write_global(x: Any) -> Any:
    global COUNT
    COUNT = 1  # here
    return x


def write_list(x: Any) -> Any:
    LOG.append(1)  # here
    return x


def write_item(x: Any) -> Any:
    TABLE["c"] = 3  # here
    return x


def delete_item(x: Any) -> Any:
    del TABLE["a"]  # here
    return x


def write_set(x: Any) -> Any:
    SEEN.add(3)  # here
    return x


def write_deque(x: Any) -> Any:
    QUEUE.append(3)  # here
    return x


def write_attribute(x: Any) -> Any:
    PLAIN.n += 1  # here
    return x


def write_slot(x: Any) -> Any:
    HOLDER.slot = 1  # here
    return x


def write_class(x: Any) -> Any:
    Holder.shared = 1  # here
    return x


def write_context(x: Any) -> Any:
    VARIABLE.set(3)  # here
    return x


def write_input(x: Any) -> Any:
    x.add_(1)  # here
    return x


def write_view_of_input(x: Any) -> Any:
    row = x.view(-1)[1:]
    row += 1  # here
    return x


def write_item_of_input(x: Any) -> Any:
    x[0] = 1  # here
    return x


def write_data_of_input(x: Any) -> Any:
    x.data.zero_()  # here
    return x


def write_tensor(x: Any) -> Any:
    OUTSIDE.add_(x[0])  # here
    return x


def write_view(x: Any) -> Any:
    VIEW[0] = 1  # here
    return x


def write_new_view(x: Any) -> Any:
    part = OUTSIDE[1:]
    part.mul_(2)  # here
    return x


def write_out(x: Any) -> Any:
    torch.add(x[0], 1, out=OUTSIDE)  # here
    return x


def write_statistics(x: Any) -> Any:
    return NORM(x)  # here


def write_requires_grad(x: Any) -> Any:
    PARAMETER.requires_grad_(False)  # here
    return x


def set_requires_grad(x: Any) -> Any:
    PARAMETER.requires_grad = False  # here
    return x


def set_data(x: Any) -> Any:
    PARAMETER.data = torch.ones(4)  # here
    return x


def set_gradient(x: Any) -> Any:
    PARAMETER.grad = torch.ones(4)  # here
    return x


def prints(x: Any) -> Any:
    print("traced")  # here
    return x


def branches(x: Any) -> Any:
    if x.sum() > 0:  # here
        return x
    return -x


def reads(x: Any) -> Any:
    return x * len(str(x[0, 0].item()))  # here


def to_numpy(x: Any) -> Any:
    return torch.from_numpy(np.asarray(x))  # here


def masks(x: Any) -> Any:
    return x[x > 0].split(2)[0]  # here


def counts(x: Any) -> Any:
    return [i * 2 for i in range(x.shape[0])]  # here


def iterates(x: Any) -> Any:
    total = 0
    for row in x:  # here
        total = total + row
    return total


def compares(x: Any) -> Any:
    return x if x.shape[0] == 5040 else -x  # here


def breaks(x: Any) -> Any:
    stator.graph_break("here")  # here
    return x


def seeds(x: Any) -> Any:
    torch.manual_seed(0)  # here
    return x


def deeper(x: Any) -> Any:
    return branches(x) + 1


EFFECTS = [
    write_global, write_list, write_item, delete_item, write_set, write_deque, write_attribute,
    write_slot, write_class, write_context, write_input, write_view_of_input, write_item_of_input,
    write_data_of_input, write_tensor, write_view, write_new_view, write_out, write_statistics,
    write_requires_grad, set_requires_grad, set_data, set_gradient,
]  # fmt: skip
BREAKS = [
    prints, branches, reads, to_numpy, masks, counts, iterates, compares, breaks, seeds,
]  # fmt: skip


def state() -> Any:
    return (
        COUNT, list(LOG), list(TABLE.items()), set(SEEN), list(QUEUE), PLAIN.n, HOLDER.slot,
        Holder.shared, VARIABLE.get(), OUTSIDE.tolist(), VIEW.tolist(), OUTSIDE._version,
        PARAMETER.requires_grad, PARAMETER.tolist(), PARAMETER.grad, PARAMETER.is_leaf,
        OUTSIDE.grad_fn, VIEW.grad_fn,
        [(name, value.tolist()) for name, value in NORM.state_dict().items()],
    )  # fmt: skip


@pytest.mark.parametrize("fn", [*EFFECTS, *BREAKS], ids=lambda fn: fn.__name__)
def test_error(fn: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    before = state()
    with pytest.raises(ProgramError) as met:
        TensorProgram.trace(fn, (spec(None, 4),))
    error = met.value
    assert state() == before
    assert capsys.readouterr().out == ""
    assert isinstance(error, GraphBreakError)
    assert (error.id in ("SB004", "SB021")) is (fn in EFFECTS)
    # The line of the user's, in the text and (but for what is found at the end) in the traceback.
    assert "# here" in str(error), str(error)
    assert "only with fullgraph" not in str(error)
    own = [name for name, _ in frames(error)]
    assert own[0] == "test_error"
    assert not any(
        "stator" in frame.filename for frame in traceback.extract_tb(error.__traceback__)
    )
    with pytest.raises(ProgramError):
        TensorProgram.trace(fn, (spec(None, 4),))


def returns_text(x: Any) -> Any:
    return {"a": "text"}


def test_messages(golden: Any) -> None:
    lines = []
    shown = [
        write_global, write_attribute, write_input, write_tensor, write_statistics, set_gradient,
        prints, branches, counts, compares, masks, returns_text,
    ]  # fmt: skip
    for fn in shown:
        with pytest.raises(ProgramError) as met:
            TensorProgram.trace(fn, (spec(None, 4),))
        lines += [f"{fn.__name__}:", f"ProgramError: {met.value}", ""]
    text = "\n".join(lines)
    for folder, short in ((PACKAGE, "torch"), (str(Path(__file__).parent), "tests")):
        text = text.replace(folder, short)
    golden("program_errors", re.sub(r"line \d+|:\d+ in", "line N", text))


def test_stack_of_an_error() -> None:
    with pytest.raises(ProgramError) as met:
        TensorProgram.trace(deeper, (spec(3),))
    assert [function for _, _, function in met.value.stack] == ["deeper", "branches"]
    assert [name for name, _ in frames(met.value)] == [
        "test_stack_of_an_error",
        "deeper",
        "branches",
    ]


def test_what_is_put_back_is_no_effect() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        old, PLAIN.n = PLAIN.n, 5
        y = x * PLAIN.n
        PLAIN.n = old
        return y

    program = TensorProgram.trace(fn, (spec(2),))
    assert program(torch.ones(2))[0].tolist() == [5, 5]
    assert PLAIN.n == 0


def test_caught_errors() -> None:
    """A function can't hide that it was ended."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            print(x)
        except BaseException:
            pass
        return x

    with pytest.raises(ProgramError, match="print"):
        TensorProgram.trace(fn, (spec(2),))


def test_exceptions_of_the_function() -> None:
    def inner(x: torch.Tensor) -> Any:
        raise KeyError("own")

    def fn(x: torch.Tensor) -> Any:
        PLAIN.n = 7
        return inner(x)

    with pytest.raises(KeyError, match="own") as met:
        TensorProgram.trace(fn, (spec(2),))
    assert [name for name, _ in frames(met.value)] == [
        "test_exceptions_of_the_function", "fn", "inner",
    ]  # fmt: skip
    assert PLAIN.n == 0


def test_exceptions_of_operations() -> None:
    def fn(x: torch.Tensor) -> Any:
        return x @ torch.ones(3, 3)

    with pytest.raises(RuntimeError) as met:
        TensorProgram.trace(fn, (spec(None, 4),))
    assert [name for name, _ in frames(met.value)] == ["test_exceptions_of_operations", "fn"]
    assert "[?, 4] X [3, 3]" in str(met.value)
    assert met.value.__notes__ == ["A tensor program was traced for (x: float32[?, 4])."]


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda x: x + torch.zeros(9, 4), r"to \[\?, 4\]"),
        (lambda x: x.expand(3, 4), r"existing size \(\?\)"),
        (lambda x: torch.zeros(7).view(x.shape[0], -1, 4), r"\[\?, -1, 4\]"),
        (lambda x: x.flatten() @ torch.ones(7), r"4\*\?"),
        (lambda x: torch.cat([x, x[:1]]) + torch.zeros(9, 4), r"\[\?\+1, 4\]"),
    ],
)
def test_sizes_in_exceptions_are_as_they_were_declared(use: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text) as met:
        TensorProgram.trace(use, (spec(None, 4),))
    assert "5040" not in "".join([str(met.value), *met.value.__notes__])


def test_sizes_in_exceptions_of_the_users_own() -> None:
    def fn(x: torch.Tensor) -> Any:
        raise ValueError(f"shape {tuple(x.shape)}")

    with pytest.raises(ValueError, match=r"\(5040, 4\)") as met:
        TensorProgram.trace(fn, (spec(None, 4),))
    assert "5040 stands for" in met.value.__notes__[0]
    # A size that is known may be the same.
    with pytest.raises(RuntimeError, match="5040"):
        TensorProgram.trace(lambda x, y: x @ y, (spec(None, 4), spec(5040, 3)))


def test_exceptions_in_a_differentiated_function() -> None:
    def loss(w: torch.Tensor) -> Any:
        raise ZeroDivisionError

    def fn(x: torch.Tensor) -> Any:
        return torch.func.grad(loss)(x)

    with pytest.raises(ZeroDivisionError) as met:
        TensorProgram.trace(fn, (spec(2),))
    assert [name for name, _ in frames(met.value)] == [
        "test_exceptions_in_a_differentiated_function", "fn", "loss",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "result", [None, "text", [1, {2: 3}], {"a": object()}, np.ones(2), 1 + 2j, {1, 2}]
)
def test_results_that_are_no_tensors(result: Any) -> None:
    def fn(x: torch.Tensor) -> Any:
        return result

    with pytest.raises(ProgramError, match="what the function returns") as met:
        TensorProgram.trace(fn, (spec(2),))
    assert met.value.stack[0][2].endswith("fn")
    assert len(frames(met.value)) == 1


def test_a_result_that_is_no_tensor_is_told_where_it_is_returned() -> None:
    def once(x: torch.Tensor) -> Any:
        y = x * 2
        return {"x": y, "who": object()}

    def twice(x: torch.Tensor, way: Any = None) -> Any:
        if way is None:
            return {"x": x, "who": object()}
        return x

    first = once.__code__.co_firstlineno
    for function, line in ((once, first + 2), (twice, twice.__code__.co_firstlineno)):
        with pytest.raises(ProgramError, match=r"result\['who'\] is an object") as met:
            TensorProgram.trace(function, (spec(2),))
        assert met.value.stack[0][1] == line


def test_wrong_specifications() -> None:
    def fn(*x: Any) -> Any:
        return x

    cases: list[tuple[Any, Any, str]] = [
        (3, (spec(2),), "takes a function, not 3"),
        (fn, spec(2), "takes a tuple"),
        (fn, (3,), r"argument 0 is 3 \(type int\)"),
        (fn, ({"a": [None]},), r"argument 0\['a'\]\[0\] is None"),
        (fn, ({1: spec(2)},), "as a key"),
    ]
    for function, specs, message in cases:
        with pytest.raises(SpecError, match=message) as met:
            TensorProgram.trace(function, specs)
        assert len(frames(met.value)) == 1
    for dtype, shape in ((F32, (-1,)), (F32, ("n",)), (F32, 3), ("float32", ())):
        with pytest.raises(SpecError):
            TensorSpec(dtype, shape)  # type: ignore[arg-type]


def test_arguments_that_dont_fit() -> None:
    def fn(x: Any, y: Any) -> Any:
        return x

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        TensorProgram.trace(fn, (spec(2),))


def test_foreign_modes() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    with TorchDispatchMode(), pytest.raises(ProgramError, match="SB011"):
        TensorProgram.trace(branches, (spec(2),))


def test_within_a_compiled_function() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.relu(x)

    @stator.compile
    def outer(x: torch.Tensor) -> Any:
        return TensorProgram.trace(fn, (spec(2),))(x)[0]

    for _ in range(2):
        assert outer(torch.ones(2)).tolist() == [1, 1]
