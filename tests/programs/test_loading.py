"""Loaders of data and splits of it, within programs, beside PyTorch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from programs.common import spec
from torch.utils.data import (
    DataLoader,
    Dataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

from stator.errors import ProgramError
from stator.programs import TensorProgram


class Rows(Dataset[Any]):
    def __init__(self, x: Any) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, at: int) -> Any:
        return {"x": self.x[at], "at": at}


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def columns(x: Any) -> TensorDataset:
    return TensorDataset(x, x[:, 0])


def of_subset(x: Any) -> Any:
    return [batch for (batch,) in DataLoader(Subset(TensorDataset(x), [1, 3, 6]), batch_size=2)]


def of_split(x: Any) -> Any:
    parts = random_split(TensorDataset(x), [0.7, 0.3], generator=seeded())
    first = [batch for (batch,) in DataLoader(parts[0], batch_size=4)]
    return first, [parts[1][at][0] for at in range(len(parts[1]))], len(parts[0])


def epochs(x: Any, size: int, **how: Any) -> Any:
    """Two, and what is drawn after each batch and after them: as many numbers are drawn."""
    generator = seeded()
    loader = DataLoader(TensorDataset(x), size, shuffle=True, generator=generator, **how)
    found = []
    for _ in range(2):
        for (batch,) in loader:
            found += [batch, torch.rand(1, generator=generator)]
    return found, torch.rand(2, generator=generator)


def of_sampler(x: Any) -> Any:
    generator = seeded()
    sampler = RandomSampler(x, generator=generator)
    found = [batch for _ in range(2) for batch in DataLoader(x, 4, sampler=sampler)]
    return found, torch.rand(2, generator=generator)


def of_samplers(x: Any) -> Any:
    """Each kind, and what is drawn after it."""
    generator = seeded()
    samplers: list[Any] = [
        WeightedRandomSampler(x[:, 0].abs() + 0.1, 5, generator=generator),
        WeightedRandomSampler([1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 1.0, 1.0], 8, False, generator),
        SubsetRandomSampler([1, 6, 3], generator=generator),
        RandomSampler(x, replacement=True, num_samples=11, generator=generator),
        RandomSampler(x, num_samples=5, generator=generator),
    ]
    found = []
    for sampler in samplers:
        found += [list(DataLoader(x, 3, sampler=sampler)), torch.rand(2, generator=generator)]
    return found


def trained(x: Any) -> Any:
    w = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    for _ in range(2):
        for at, (rows, labels) in enumerate(DataLoader(columns(x), batch_size=3)):
            optimizer.zero_grad()
            ((rows @ w - labels) ** 2).mean().backward()
            optimizer.step()
    return w.detach(), at


def written(x: Any) -> Any:
    """Batches are copies."""
    rows = x.clone()
    return [batch.mul_(2) for batch in DataLoader(rows, batch_size=3)], rows


CASES = {
    "columns": lambda x: [list(batch) for batch in DataLoader(columns(x), batch_size=3)],
    "a tensor": lambda x: list(DataLoader(x, batch_size=3, drop_last=True)),
    "a subset": of_subset,
    "a split": of_split,
    "epochs": lambda x: epochs(x, 3),
    "epochs of whole batches": lambda x: epochs(x, 4),
    "epochs without the last": lambda x: epochs(x, 3, drop_last=True),
    "a sampler": of_sampler,
    "samplers": of_samplers,
    "some of it": lambda x: next(iter(DataLoader(x, batch_size=3))),
    "its length": lambda x: (x + len(DataLoader(x, batch_size=3)),),
    "batches by number": lambda x: list(DataLoader(x, batch_sampler=[[0, 1], [5, 2]])),
    "own collating": lambda x: list(DataLoader(x, 4, collate_fn=lambda rows: sum(rows))),
    "an own dataset": lambda x: [b["x"] * b["at"].sum() for b in DataLoader(Rows(x), 4)],
    "two at once": lambda x: [a - b for a, b in zip(DataLoader(x, 4), DataLoader(x + 1, 4))],
    "training": trained,
    "writing": written,
}


def leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    return [torch.as_tensor(value)]


@pytest.mark.parametrize("name", CASES)
def test_batches_are_those_of_pytorch(name: str) -> None:
    function = CASES[name]
    program = TensorProgram.trace(function, (spec(8, 4),))
    for x in (torch.randn(8, 4), torch.arange(32.0).reshape(8, 4)):
        expected = leaves(function(x))
        for run in (program, TensorProgram.from_bytes(program.to_bytes())):
            found = list(run(x))
            assert len(found) == len(expected)
            for output, want in zip(found, expected, strict=True):
                torch.testing.assert_close(output, want)


def test_an_order_of_its_own_has_each_row_once() -> None:
    def order(x: Any) -> Any:
        first, second = [torch.cat(list(DataLoader(x, 3, shuffle=True))) for _ in range(2)]
        parts = random_split(TensorDataset(x), [5, 3])
        return first, second, torch.cat([rows for part in parts for (rows,) in DataLoader(part, 3)])

    program = TensorProgram.trace(order, (spec(8),))
    x = torch.arange(8.0)
    torch.manual_seed(0)
    drawn = [*program(x), *program(x)]
    for found in drawn:
        assert sorted(found.tolist()) == x.tolist()
    assert len({tuple(found.tolist()) for found in drawn}) == 6


def test_what_has_no_program_is_said_at_the_users_line() -> None:
    def replaced(x: Any) -> Any:
        sampler = RandomSampler(x, replacement=True, num_samples=40, generator=seeded())
        return list(DataLoader(x, 4, sampler=sampler))

    def by_size(x: Any) -> Any:
        return list(DataLoader(x, 4))

    rows = torch.randn(8, 4)
    program = TensorProgram.trace(replaced, (spec(8, 4),))
    assert all(map(torch.equal, program(rows), replaced(rows)))
    with pytest.raises(ProgramError, match="size that varies is needed") as raised:
        TensorProgram.trace(by_size, (spec(None, 4),))
    assert "in test_what_has_no_program_is_said_at_the_users_line.<locals>.by_size" in str(
        raised.value
    )
    assert "_program_tracing" not in str(raised.value)
    assert "a loader has as many batches as there are rows" in str(raised.value)
    for shuffled in (True, False):
        with pytest.raises(ProgramError, match="declare how many there are"):
            TensorProgram.trace(
                lambda x: list(DataLoader(x, len(x), shuffle=shuffled)),  # noqa: B023
                (spec(None, 4),),
            )
