"""Custom operators: one node each where their results' metadata follows from their inputs', else a break."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor

NAMES = itertools.count()
LIBRARY = torch.library.Library("stator_custom", "FRAGMENT")


def name() -> str:
    return f"stator_custom::op{next(NAMES)}"


def packet(qualname: str) -> Any:
    return getattr(torch.ops.stator_custom, qualname.split("::")[1])


def twice(x: Tensor) -> Tensor:
    return x * 2


def like(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def by_annotations() -> Any:
    @torch.library.custom_op(name(), mutates_args=())
    def op(x: Tensor) -> Tensor:
        return x * 2

    op.register_fake(like)
    return op


def by_schema() -> Any:
    op = torch.library.custom_op(name(), twice, mutates_args=(), schema="(Tensor x) -> Tensor")
    op.register_fake(like)
    return op


def with_autograd() -> Any:
    op = by_schema()
    op.register_autograd(lambda ctx, g: g * 5, setup_context=lambda ctx, inputs, output: None)
    return op


def defined() -> Any:
    qualname = name()
    torch.library.define(qualname, "(Tensor x) -> Tensor", lib=LIBRARY)
    torch.library.impl(qualname, "CPU", twice, lib=LIBRARY)
    torch.library.register_fake(qualname, like, lib=LIBRARY)
    return packet(qualname)


def composite() -> Any:
    qualname = name()
    torch.library.define(qualname, "(Tensor x) -> Tensor", lib=LIBRARY)
    torch.library.impl(qualname, "CompositeImplicitAutograd", twice, lib=LIBRARY)
    return packet(qualname)


def overloaded() -> Any:
    qualname = name()
    for overload, second in (("", ""), (".scaled", ", float by")):
        torch.library.define(qualname + overload, f"(Tensor x{second}) -> Tensor", lib=LIBRARY)
        torch.library.impl(qualname + overload, "CPU", lambda x, by=2.0: x * by, lib=LIBRARY)
        torch.library.register_fake(qualname + overload, lambda x, by=2.0: like(x), lib=LIBRARY)
    return packet(qualname)


MAKERS = [by_annotations, by_schema, with_autograd, defined, composite, overloaded]


def spellings(op: Any) -> list[Callable[[Tensor], Any]]:
    if isinstance(op, torch._library.custom_ops.CustomOpDef):
        own = packet(op._qualname)
        return [lambda x: op(x) + 1, *spellings(own)]
    module, attribute = torch.ops.stator_custom, op.__name__
    return [
        lambda x: op(x) + 1,
        lambda x: op.default(x) + 1,
        lambda x: op(x=x) + 1,
        lambda x: getattr(module, attribute)(x) + 1,
        lambda x: [op(part) for part in (x, x[1:])][1] + x.shape[0],
    ]


def check(fn: Callable[..., Any], *calls: tuple[Any, ...], **options: Any) -> Any:
    """Compares each call, recorded and replayed, with plain Python's."""
    compiled = api.compile(fn, **options)
    for args in calls:
        for _ in range(3):
            assert repr(compiled(*args)) == repr(fn(*args))
    return compiled


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "fx"])
def test_each_spelling_is_one_graph(make: Callable[[], Any], backend: str) -> None:
    op = make()
    for fn in spellings(op):
        calls = [(torch.ones(3),), (torch.ones(3) * 4,), (torch.ones(5),), (torch.ones(2, 2),)]
        compiled = check(fn, *calls, fullgraph=True, backend=backend)
        assert api.hits(compiled) != 0


def test_gradients_flow_through_its_own_backward() -> None:
    op = with_autograd()
    for fn in spellings(op):
        compiled = api.compile(fn, fullgraph=True)
        for _ in range(3):
            x = torch.ones(3, requires_grad=True)
            compiled(x).sum().backward()
            expected = torch.ones(3, requires_grad=True)
            fn(expected).sum().backward()
            assert torch.equal(x.grad, expected.grad)  # type: ignore[arg-type]


def test_its_code_runs_at_every_call_and_reads_what_is_there_then() -> None:
    state = {"factor": 2.0, "calls": 0}

    def impl(x: Tensor) -> Tensor:
        state["calls"] += 1
        return x * state["factor"]

    op = torch.library.custom_op(name(), impl, mutates_args=(), schema="(Tensor x) -> Tensor")
    op.register_fake(like)
    compiled = api.compile(lambda x: op(x) + 1, fullgraph=True)
    for factor in (2.0, 3.0, 5.0):
        state["factor"] = factor
        assert compiled(torch.ones(2)).tolist() == [factor + 1] * 2
    assert state["calls"] == 3


def test_arguments_of_other_kinds() -> None:
    schema = "(Tensor[] xs, int n, float f=1.0, *, bool flip=False, str? s=None, Tensor? y=None) -> Tensor[]"

    def impl(
        xs: Any, n: int, f: float = 1.0, *, flip: bool = False, s: Any = None, y: Any = None
    ) -> Any:
        made = [x.repeat(n) * f for x in xs]
        return [x.flip(0) for x in made] if flip else made

    qualname = name()
    torch.library.define(qualname, schema, lib=LIBRARY)
    torch.library.impl(qualname, "CPU", impl, lib=LIBRARY)
    torch.library.register_fake(
        qualname, lambda xs, n, *_, **__: [x.new_empty(x.shape[0] * n) for x in xs], lib=LIBRARY
    )
    op = packet(qualname)

    def fn(x: Tensor, n: int, f: float, flip: bool) -> Any:
        made = op([x, x + 1], n, f, flip=flip, s="s")
        return made, len(made), made[1].shape[0] * 2

    x = torch.arange(3.0)
    check(fn, (x, 2, 1.5, False), (x, 3, 1.5, True), (x, 4, 2.5, True), (x[:2], 5, 2.5, True))


def test_tensors_in_the_place_of_numbers_are_read() -> None:
    qualname = name()
    torch.library.define(qualname, "(Tensor x, int n) -> Tensor", lib=LIBRARY)
    torch.library.impl(qualname, "CPU", lambda x, n: x.repeat(n), lib=LIBRARY)
    torch.library.register_fake(qualname, lambda x, n: x.new_empty(x.shape[0] * n), lib=LIBRARY)
    op = packet(qualname)

    def fn(x: Tensor, n: Tensor) -> Any:
        made = op(x, n)
        return made, made.shape

    check(fn, *((torch.ones(2), torch.tensor(n)) for n in (1, 2, 3)))


def dynamic_by_tag(qualname: str) -> None:
    torch.library.define(
        qualname, "(Tensor x) -> Tensor", lib=LIBRARY, tags=(torch.Tag.dynamic_output_shape,)
    )
    torch.library.register_fake(qualname, like, lib=LIBRARY)


def dynamic_by_fake(qualname: str) -> None:
    torch.library.define(qualname, "(Tensor x) -> Tensor", lib=LIBRARY)

    def fake(x: Tensor) -> Tensor:
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    torch.library.register_fake(qualname, fake, lib=LIBRARY)


def without_fake(qualname: str) -> None:
    torch.library.define(qualname, "(Tensor x) -> Tensor", lib=LIBRARY)


def with_wrong_fake(qualname: str) -> None:
    torch.library.define(qualname, "(Tensor x) -> Tensor", lib=LIBRARY)
    torch.library.register_fake(qualname, lambda x: x.new_empty(7), lib=LIBRARY)


@pytest.mark.parametrize("define", [dynamic_by_tag, dynamic_by_fake, without_fake, with_wrong_fake])
def test_results_that_depend_on_data_are_a_break(define: Callable[[str], None]) -> None:
    qualname = name()
    define(qualname)
    torch.library.impl(qualname, "CPU", lambda x: x[x > 0], lib=LIBRARY)
    op = packet(qualname)

    def fn(x: Tensor) -> Any:
        made = op(x)
        return made.sum() / made.shape[0], made.shape

    calls = [
        torch.tensor(values) for values in ([1.0, 2, 0], [1.0, 0, 0], [1.0, 2, 3], [4.0, 5, 0])
    ]
    check(fn, *((x,) for x in calls))


def test_sizes_that_a_fake_kernel_leaves_open_are_asked() -> None:
    qualname = name()
    torch.library.define(qualname, "(Tensor x) -> (Tensor, Tensor)", lib=LIBRARY)
    torch.library.impl(qualname, "CPU", lambda x: (x[x > 0], x + 1), lib=LIBRARY)

    def fake(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.new_empty(torch.library.get_ctx().new_dynamic_size()), torch.empty_like(x)

    torch.library.register_fake(qualname, fake, lib=LIBRARY)
    op = packet(qualname)

    def fn(x: Tensor) -> Any:
        kept, more = op(x)
        return kept * 2, len(kept) + 1, kept.sum() / kept.shape[0], more, more.shape

    compiled = api.compile(fn)
    for values in ([1.0, 2, 0], [1.0, 0, 0], [1.0, 2, 3], [0.0, 0, 0], [4.0, 5, 0]):
        x = torch.tensor(values)
        assert repr(compiled(x)) == repr(fn(x))
    stats = api._stats(compiled)
    assert stats is not None
    assert (stats.breaks, stats.traces) == (0, 1)


def test_a_warning_of_a_fake_kernel_is_not_the_programs() -> None:
    qualname = name()
    torch.library.define(qualname, "(Tensor x) -> Tensor", lib=LIBRARY)
    torch.library.impl(qualname, "CPU", twice, lib=LIBRARY)

    def fake(x: Tensor) -> Tensor:
        warnings.warn("without data", stacklevel=1)
        return torch.empty_like(x)

    torch.library.register_fake(qualname, fake, lib=LIBRARY)
    op = packet(qualname)
    compiled = api.compile(lambda x: op(x) + 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert not caught


def test_results_that_are_numbers_are_a_break() -> None:
    qualname = name()
    torch.library.define(qualname, "(Tensor x) -> float", lib=LIBRARY)
    torch.library.impl(qualname, "CPU", lambda x: float(x.sum()), lib=LIBRARY)
    op = packet(qualname)
    check(lambda x: x * op(x), (torch.ones(2),), (torch.ones(2) * 3,))


def test_writes_to_arguments() -> None:
    @torch.library.custom_op(name(), mutates_args={"x"})
    def scale(x: Tensor, by: float) -> None:
        x.mul_(by)

    def own(x: Tensor) -> Any:
        y = x + 1
        scale(y, 3.0)
        return y * 2, y._version

    def outside(x: Tensor) -> Any:
        scale(x, 3.0)
        return x + 1

    for backend in ("eager", "aot_eager"):
        check(lambda x: own(x)[0], (torch.ones(2),), (torch.ones(2) * 2,), backend=backend)
        compiled = api.compile(outside, backend=backend)
        one, other = torch.ones(2), torch.ones(2)
        for _ in range(4):
            assert torch.equal(compiled(one), outside(other))
            assert torch.equal(one, other)
            # What AOTAutograd makes of the graph writes twice.
            assert backend != "eager" or one._version == other._version
    check(own, (torch.ones(2),), (torch.ones(2) * 2,))


def test_writes_that_are_not_counted_are_a_break() -> None:
    qualname = name()
    torch.library.define(qualname, "(Tensor(a!) x) -> ()", lib=LIBRARY)
    torch.library.impl(qualname, "CPU", lambda x: None, lib=LIBRARY)
    op = packet(qualname)

    def fn(x: Tensor) -> Tensor:
        op(x)
        return x + 1

    with pytest.raises(Exception, match="without counting the write"):
        api.compile(fn, fullgraph=True)(torch.ones(2))
    check(fn, (torch.ones(2),), (torch.ones(2) * 2,))


def test_handled_errors_after_a_write() -> None:
    @torch.library.custom_op(name(), mutates_args={"x"})
    def scale(x: Tensor) -> None:
        x.mul_(2)

    @torch.library.custom_op(name(), mutates_args=())
    def fails(x: Tensor) -> Tensor:
        if x[0] > 10:
            raise ValueError("too large")
        return x + 1

    fails.register_fake(like)

    def fn(x: Tensor) -> Tensor:
        try:
            scale(x)
            return fails(x)
        except ValueError as error:
            return x - len(str(error))

    compiled = api.compile(fn)
    for start in (1.0, 1.0, 1.0, 30.0, 2.0):
        one, other = torch.full((2,), start), torch.full((2,), start)
        assert torch.equal(compiled(one), fn(other))
        assert torch.equal(one, other)


def test_another_operator_of_the_same_name() -> None:
    qualname = name()
    attribute = qualname.split("::")[1]

    def define(by: float) -> Any:
        library = torch.library.Library("stator_custom", "FRAGMENT")
        torch.library.define(qualname, "(Tensor x) -> Tensor", lib=library)
        torch.library.impl(qualname, "CPU", lambda x: x * by, lib=library)
        torch.library.register_fake(qualname, like, lib=library)
        return library

    module = torch.ops.stator_custom
    compiled = api.compile(lambda x: getattr(module, attribute)(x) + 1)
    for by in (2.0, 3.0, 5.0):
        library = define(by)
        for _ in range(3):
            assert compiled(torch.ones(2)).tolist() == [by + 1] * 2
        library._destroy()


def test_dynamic_sizes() -> None:
    op = by_annotations()

    def fn(x: Tensor, n: int) -> Any:
        y = op(x[:n])
        return y.sum() / y.shape[0], y.reshape(-1, 1).shape

    calls = [(torch.ones(size), n) for size in (6, 7, 9, 6) for n in (2, 3, 5)]
    check(fn, *calls, dynamic=True)


def test_of_compiled_functions_inside() -> None:
    inner = api.compile(lambda x: x * 2 + 1)

    @torch.library.custom_op(name(), mutates_args=())
    def op(x: Tensor) -> Tensor:
        return inner(x)

    op.register_fake(like)
    check(lambda x: op(x) + inner(x), (torch.ones(2),), (torch.ones(3),), fullgraph=True)


def test_higher_order_operators_are_a_break() -> None:
    def fn(x: Tensor) -> Any:
        return torch.cond(x.sum() > 2, lambda x: x + 1, lambda x: x - 1, (x,))

    compiled = api.compile(fn)
    for x in (torch.ones(2), torch.ones(2), torch.ones(3), torch.ones(3)):
        assert torch.equal(compiled(x), x + 1 if x.sum() > 2 else x - 1)
