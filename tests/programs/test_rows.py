"""Recurrent modules with other weights, and programs for many rows at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from stator._program_tracing.batching import NotBatchableError
from stator.errors import ProgramInputError
from stator.programs import TensorProgram, TensorSpec


def specs(module: nn.Module) -> dict[str, TensorSpec]:
    return {
        name: TensorSpec(each.dtype, tuple(each.shape)) for name, each in module.named_parameters()
    }


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize("is_lent", [False, True])
def test_recurrent_modules_have_the_weights_that_they_are_given(kind: Any, is_lent: bool) -> None:
    torch.manual_seed(0)
    module = kind(3, 4, num_layers=2, batch_first=True)

    def outputs(weights: Any, rows: Any) -> Any:
        if not is_lent:
            return module(rows)[0]
        return torch.func.functional_call(module, dict(weights), (rows,))[0]

    rows = TensorSpec(torch.float32, (None, 5, 3))
    program = TensorProgram.trace(outputs, (specs(module), rows))
    # The module has its own weights again, and nothing of the trace.
    kept = module._flat_weights, list(module.parameters())
    assert all(one is own for one, own in zip(*kept, strict=True))
    other = {name: torch.randn_like(each) for name, each in module.named_parameters()}
    given = torch.randn(2, 5, 3)
    expected = outputs(other, given)
    read = TensorProgram.from_bytes(program.to_bytes())
    for run in (program, program, read):
        torch.testing.assert_close(run(*other.values(), given)[0], expected.detach())
    with torch.no_grad():
        next(module.parameters()).add_(1)
    changed = TensorProgram.trace(outputs, (specs(module), rows))
    torch.testing.assert_close(changed(*other.values(), given)[0], outputs(other, given).detach())


def of_row(weights: Any, row: Any, label: Any) -> Any:
    leaf = weights.detach().clone().requires_grad_()
    loss = F.cross_entropy(F.layer_norm(torch.tanh(row @ leaf), (3,)), label)
    return torch.autograd.grad(loss, leaf)[0] * SCALE, loss.detach()


SCALE = torch.tensor([1.0, 2.0, 3.0])


def test_what_a_program_gives_for_rows_is_what_it_gives_for_each() -> None:
    torch.manual_seed(0)
    row = TensorSpec(torch.float32, (1, 4)), TensorSpec(torch.int64, (1,))
    weights = TensorSpec(torch.float32, (4, 3))
    single = TensorProgram.trace(of_row, (weights, *row))
    sizes = []
    for count in (1, 3, 40):
        together = single.of_rows(shared=1, count=count)
        many = [TensorSpec(spec.dtype, (count, *spec.shape)) for spec in row]
        program = TensorProgram.trace(
            lambda w, rows, labels: together([w, rows, labels]), (weights, *many)
        )
        given = torch.randn(4, 3), torch.randn(count, 1, 4), torch.randint(0, 3, (count, 1))
        for run in (program, program, TensorProgram.from_bytes(program.to_bytes())):
            gradients, losses = run(*given)
            for at in range(count):
                gradient, loss = single(given[0], given[1][at], given[2][at])
                torch.testing.assert_close(gradients[at], gradient)
                torch.testing.assert_close(losses[at], loss)
        sizes.append(len(program.text.splitlines()))
    assert len(set(sizes)) == 1


def test_attention_for_rows() -> None:
    """Its fastest kind is one operation, whose gradient programs don't have."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

    def gradients(weights: Any, row: Any) -> Any:
        own = {name: each.detach().clone().requires_grad_() for name, each in weights.items()}
        loss = torch.func.functional_call(layer, own, (row,)).square().sum()
        return list(torch.autograd.grad(loss, list(own.values())))

    row = TensorSpec(torch.float32, (1, 3, 4))
    single = TensorProgram.trace(gradients, (specs(layer), row))
    together = single.of_rows(shared=len(specs(layer)), count=3)
    weights = [each.detach() for each in layer.parameters()]
    given = torch.randn(3, 1, 3, 4)
    types = [TensorSpec(each.dtype, tuple(each.shape)) for each in (*weights, given)]
    program = TensorProgram.trace(lambda *tensors: together(tensors), types)
    for run in (program, TensorProgram.from_bytes(program.to_bytes())):
        found = run(*weights, given)
        for at in range(3):
            for all_rows, want in zip(found, single(*weights, given[at]), strict=True):
                torch.testing.assert_close(all_rows[at], want, rtol=1e-4, atol=1e-5)


def test_what_is_drawn_is_drawn_for_each_row() -> None:
    row = TensorSpec(torch.float32, (4,))
    together = TensorProgram.trace(lambda x: F.dropout(x), (row,)).of_rows(shared=0, count=50)
    program = TensorProgram.trace(lambda x: together([x])[0], (TensorSpec(torch.float32, (50, 4)),))
    (found,) = program(torch.ones(50, 4))
    assert len({tuple(each) for each in found.tolist()}) > 5


def test_what_vmap_does_not_know_is_an_error() -> None:
    row = TensorSpec(torch.float32, (5, 3))
    for module, told in (
        (nn.GRU(3, 4, num_layers=8), "a recurrent network of 40 steps"),
        (nn.LSTM(3, 4, proj_size=2), "with projections"),
        (nn.RNN(3, 4, num_layers=2, dropout=0.5), "with dropout between its layers"),
    ):
        program = TensorProgram.trace(lambda x, module=module: module(x)[0], (row,))
        with pytest.raises(NotBatchableError, match=told):
            program.of_rows(shared=0, count=2)
    varying = TensorProgram.trace(lambda x: x + 1, (TensorSpec(torch.float32, (None, 3)),))
    with pytest.raises(NotBatchableError, match="aren't known"):
        varying.of_rows(shared=0, count=2)


def test_other_rows_are_errors() -> None:
    row = TensorSpec(torch.float32, (4,))
    program = TensorProgram.trace(lambda w, x: w * x, (row, row))
    for shared, count, told in ((3, 2, "`shared` is to be 0 to 2"), (1, 0, "`count` is to be 1")):
        with pytest.raises(ValueError, match=told):
            program.of_rows(shared, count)
    together = program.of_rows(shared=1, count=3)
    with pytest.raises(ProgramInputError, match="takes 2 tensors, not 1"):
        together([torch.ones(4)])
    with pytest.raises(ProgramInputError, match=r"`x` is of type .*2, 4.*takes .*3, 4"):
        together([torch.ones(4), torch.ones(2, 4)])
