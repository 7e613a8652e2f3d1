"""What `torch.func` makes of functions, within programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from programs.common import frames, random, spec, tensors

from stator.errors import ProgramError
from stator.programs import TensorProgram

SPECS = (spec(4), spec(4), spec(5, 4), spec(5))


def residuals(w: Any, x: Any, y: Any) -> Any:
    return torch.tanh(x @ w) - y


def loss(w: Any, x: Any, y: Any) -> Any:
    return residuals(w, x, y).square().mean()


def jvp(w, v, x, y):
    return torch.func.jvp(lambda w: loss(w, x, y), (w,), (v,))


def jvp_of_several(w, v, x, y):
    def two(p, bias):
        return {"a": x @ p["w"] + bias, "b": p["w"].sum() * bias}, torch.ones(2)

    return torch.func.jvp(two, ({"w": w}, y), ({"w": v}, 2 * y), has_aux=True)


def jvp_of_what_does_not_depend(w, v, x, y):
    return torch.func.jvp(lambda w: (y * 2, (w > 0).sum()), (w,), (v,))


def vjp(w, v, x, y):
    value, back = torch.func.vjp(residuals, w, x, y)
    return value, back(y), back(value)


def vjp_with_aux(w, v, x, y):
    value, back, aux = torch.func.vjp(lambda w: (x @ w, w + 1), w, has_aux=True)
    return value, back(y), aux


def linearized(w, v, x, y):
    value, forth = torch.func.linearize(lambda w: residuals(w, x, y), w)
    return value, forth(v), forth(2 * v)


def jacobian(w, v, x, y):
    return torch.func.jacrev(residuals)(w, x, y)


def jacobian_forwards(w, v, x, y):
    return torch.func.jacfwd(residuals, argnums=(0, 2))(w, x, y)


def jacobian_of_several(w, v, x, y):
    def several(p):
        scores = p["x"] @ p["w"]
        return {"first": scores, "twice": (scores, p["w"].sum())}

    return torch.func.jacrev(several)({"w": w, "x": x})


def hessian(w, v, x, y):
    return torch.func.hessian(loss)(w, x, y)


def newton(w, v, x, y):
    for _ in range(3):
        curvature = torch.func.hessian(loss)(w, x, y) + torch.eye(4)
        w = w - torch.linalg.solve(curvature, torch.func.grad(loss)(w, x, y))
    return w


def hessian_times_vector(w, v, x, y):
    return torch.func.jvp(lambda w: torch.func.grad(loss)(w, x, y), (w,), (v,))


def gradient_of_jvp(w, v, x, y):
    def moved(v):
        return torch.func.jvp(lambda w: loss(w, x, y), (w,), (v,))[1] * v.square().sum()

    return torch.func.grad(moved)(v)


def gradient_of_vjp(w, v, x, y):
    def moved(w):
        _, back = torch.func.vjp(lambda w: residuals(w, x, y), w)
        return (back(y)[0] * v).sum()

    return torch.func.grad(moved)(w)


def rows(w, v, x, y):
    return torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(w, x, y)


def rows_of_containers(w, v, x, y):
    def one(given, b):
        return {"scaled": given["x"] * b, "sums": (given["x"].sum(), given["w"][0] + b)}

    dims = ({"x": 0, "w": None}, 0)
    return torch.func.vmap(one, in_dims=dims, out_dims={"scaled": 1, "sums": 0})(
        {"x": x, "w": w}, y
    )


def rows_in_rows(w, v, x, y):
    return torch.vmap(lambda a: torch.vmap(lambda b: a * b, in_dims=0)(w), in_dims=1)(x)


TRANSFORMED: tuple[Callable[..., Any], ...] = (
    *(jvp, jvp_of_several, jvp_of_what_does_not_depend, vjp, vjp_with_aux, linearized, jacobian),
    *(jacobian_forwards, jacobian_of_several, hessian, newton, hessian_times_vector),
    *(gradient_of_jvp, gradient_of_vjp, rows, rows_of_containers, rows_in_rows),
)


@pytest.mark.parametrize("fn", TRANSFORMED)
def test_results_are_plain_pythons(fn: Any) -> None:
    program = TensorProgram.trace(fn, SPECS)
    again = TensorProgram.from_bytes(program.to_bytes())
    for size in (1, 2):
        given = random(*SPECS, size=size)
        expected = tensors(fn(*given))
        for each in (program, again, program):
            found = each(*given)
            assert len(found) == len(expected)
            for output, want in zip(found, expected, strict=True):
                torch.testing.assert_close(output, want, rtol=1e-4, atol=1e-5)
                assert not output.requires_grad


@pytest.mark.parametrize("fn", [jvp, vjp, hessian, hessian_times_vector])
def test_sizes_may_vary(fn: Any) -> None:
    program = TensorProgram.trace(fn, (spec(4), spec(4), spec(None, 4), spec(None)))
    for size in (1, 3, 6):
        given = random(spec(4), spec(4), spec(size, 4), spec(size))
        for output, want in zip(program(*given), tensors(fn(*given)), strict=True):
            torch.testing.assert_close(output, want, rtol=1e-4, atol=1e-5)


def test_rows_whose_number_varies_are_an_error() -> None:
    def of_rows(w: Any, x: Any, y: Any) -> Any:
        return torch.vmap(torch.func.grad(loss), (None, 0, 0))(w, x, y)

    def of_all(w: Any, x: Any, y: Any) -> Any:
        return torch.func.jacrev(residuals)(w, x, y)

    for fn, line in ((of_rows, "torch.vmap(torch.func.grad(loss)"), (of_all, "torch.func.jacrev")):
        with pytest.raises(ProgramError, match="the value of a size that varies") as raised:
            TensorProgram.trace(fn, (spec(4), spec(None, 4), spec(None)))
        assert frames(raised.value)[-1][0] == fn.__name__
        assert line in str(raised.value)


def test_the_same_numbers_for_all_rows_are_an_error() -> None:
    def of_rows(x: Any) -> Any:
        return torch.vmap(lambda row: row + torch.rand(4), randomness="same")(x)

    with pytest.raises(ProgramError, match="`vmap` with `randomness='same'`"):
        TensorProgram.trace(of_rows, (spec(3, 4),))


def test_numbers_are_drawn_for_each_row() -> None:
    def of_rows(x: Any) -> Any:
        return torch.vmap(lambda row: F.dropout(row), randomness="different")(x)

    (found,) = TensorProgram.trace(of_rows, (spec(40, 4),))(torch.ones(40, 4))
    assert len({tuple(row) for row in found.tolist()}) > 5


def dropped(row: Any) -> Any:
    return F.dropout(row)


def drawn(row: Any) -> Any:
    return row + torch.randn(4, generator=torch.Generator().manual_seed(1))


def within(row: Any) -> Any:
    """The innermost one says whether numbers may be drawn."""
    return torch.vmap(lambda of: of + torch.rand(()), randomness="error")(row)


def behind(row: Any) -> Any:
    torch.vmap(torch.sin, randomness="different")(row)
    return row + torch.rand(4)


@pytest.mark.parametrize("fn", [dropped, drawn, within, behind, torch.poisson])
@pytest.mark.parametrize("outer", ["error", "different"])
def test_rows_that_may_draw_nothing(fn: Any, outer: str) -> None:
    def of_rows(x: Any) -> Any:
        return torch.vmap(fn, randomness=outer)(x)

    words = "called random operation while in randomness error mode"
    if outer == "different" and fn is not within:
        TensorProgram.trace(of_rows, (spec(3, 4),))
        return
    for _ in range(2):
        with pytest.raises(RuntimeError, match=words) as raised:
            TensorProgram.trace(of_rows, (spec(3, 4),))
        assert ("of_rows", "return torch.vmap(fn, randomness=outer)(x)") in frames(raised.value)
    if fn is not within:
        with pytest.raises(RuntimeError, match=words):
            of_rows(torch.ones(3, 4))

    # The next program isn't in it.
    TensorProgram.trace(lambda x: x + torch.rand(4), (spec(3, 4),))


def test_a_randomness_that_there_is_not() -> None:
    with pytest.raises(RuntimeError, match="Only allowed values for randomness are"):
        TensorProgram.trace(lambda x: torch.vmap(torch.sin, randomness="some")(x), (spec(3, 4),))


@pytest.mark.parametrize(
    ("fn", "error"),
    [
        (lambda x: torch.func.jvp(torch.sin, x, x), "Expected primals to be a tuple"),
        (lambda x: torch.func.jvp(torch.sin, (x,), (x, x)), "the same python structure"),
        (lambda x: torch.func.vjp(lambda x: 2, x), "Expected only Tensors"),
        (lambda x: torch.func.vjp(torch.sin, x)[1]((x, x)), "1 tensors as cotangents"),
        (lambda x: torch.func.vjp(torch.sin, x, has_aux=True), "should be a tuple"),
    ],
)
def test_what_pytorch_refuses(fn: Any, error: str) -> None:
    with pytest.raises(RuntimeError, match=error):
        TensorProgram.trace(fn, (spec(3),))
    with pytest.raises(RuntimeError):
        fn(torch.ones(3))


@pytest.mark.parametrize(
    ("fn", "error"),
    [
        (lambda x: torch.vmap(torch.sin, in_dims=None)(x), "no dimension to map over"),
        (lambda x: torch.vmap(torch.add)(x, x[:2]), "the same size in the mapped dimension"),
        (lambda x: torch.vmap(torch.add, in_dims=(0,))(x, x), "in_dims is for 1 inputs"),
        (lambda x: torch.vmap(lambda x: 2)(x), "must only return Tensors"),
        (lambda x: torch.vmap(torch.add)(x, 2), "the input is of type"),
    ],
)
def test_rows_that_pytorch_refuses(fn: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        TensorProgram.trace(fn, (spec(3),))
    with pytest.raises(ValueError):
        fn(torch.ones(3))
