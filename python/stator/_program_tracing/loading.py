"""Loaders of data in tensor programs: batches of `torch.utils.data.DataLoader`, `random_split`.

PyTorch reads the order of rows into Python, and stacks single rows. A program takes a batch's rows
at once, by the order as a tensor.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    dataset,
    default_collate,
)
from torch.utils.data.dataloader import _DatasetKind

__all__ = ["OF_SOME_SIZES", "SUBSTITUTES"]


def _iterator(self: Any) -> Any:
    return _iterated(self, _batches)


def _iterator_of_some(self: Any) -> Any:
    return _iterated(self, _batches_of_some)


def _iterated(self: Any, batches_of: Callable[[Any, Any], Iterator[Any]]) -> Any:
    is_mapped = self._dataset_kind == _DatasetKind.Map
    if self.num_workers or not is_mapped or self.batch_sampler is None:
        return _ORIGINAL(self)
    if self.generator is not None:
        # A seed for workers, which PyTorch draws if there are none, too.
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)
    batches = self.batch_sampler
    is_usual = type(batches) is BatchSampler and _is_usual(batches.sampler, self.dataset)
    if is_usual and self.collate_fn is default_collate and _has_rows(self.dataset):
        return batches_of(self.dataset, batches)
    return _collated(self)


def _has_rows(data: Any) -> bool:
    if type(data) is Subset:
        data = data.dataset
    return isinstance(data, torch.Tensor) or type(data) is TensorDataset


def _is_usual(sampler: Any, data: Any) -> bool:
    """Whether which rows it gives is known as one tensor, where it begins."""
    if type(sampler) is RandomSampler:
        many = sampler.num_samples
        if sampler.replacement:
            # PyTorch draws so many at a time, others in between.
            return sampler.data_source is data and (many < _AT_ONCE or sampler.generator is None)
        return sampler.data_source is data and many <= len(data)
    if type(sampler) in (SubsetRandomSampler, WeightedRandomSampler):
        return True
    return type(sampler) is SequentialSampler and sampler.data_source is data


_AT_ONCE = 32


def _batches(data: Any, batches: Any) -> Iterator[Any]:
    count = len(batches.sampler)
    size = batches.batch_size
    order = _drawn(batches.sampler, len(data))
    for start in range(0, count, size):
        if start + size > count:
            _end(batches.sampler, len(data))
            if batches.drop_last:
                return
        places = slice(start, min(start + size, count))
        yield _rows(data, places if order is None else order[places])
    if count % size == 0:
        _end(batches.sampler, len(data))


def _batches_of_some(data: Any, batches: Any) -> Iterator[Any]:
    """The same, where the number of rows varies among those that give as many batches. The last one
    may be whole: only what is drawn at the end, before it or behind, makes a difference."""
    count, size, start = len(batches.sampler), batches.batch_size, 0
    order = _drawn(batches.sampler, len(data))
    if not batches.drop_last and not _draws_at_end(batches.sampler, len(data)):
        while start + size < count:
            yield _rows_between(data, order, start, start + size)
            start += size
        if start < count:
            yield _rows_between(data, order, start, count)
        return
    while start + size <= count:
        yield _rows_between(data, order, start, start + size)
        start += size
    _end(batches.sampler, len(data))
    if start < count and not batches.drop_last:
        yield _rows_between(data, order, start, count)


def _rows_between(data: Any, order: Any, start: Any, stop: Any) -> Any:
    """The rows in some places of an order; `None`: as they stand."""
    if order is not None:
        return _rows(data, order[start:stop])
    if type(data) is Subset:
        return _rows(data, torch.arange(start, stop))
    columns = data.tensors if type(data) is TensorDataset else (data,)
    found = [column[start:stop].clone() for column in columns]
    return found if type(data) is TensorDataset else found[0]


def _drawn(sampler: Any, count: int) -> Any:
    """The places of rows, in order; `None`: as they stand."""
    if type(sampler) is SequentialSampler:
        return None
    generator = sampler.generator
    if type(sampler) is WeightedRandomSampler:
        many = sampler.num_samples
        return torch.multinomial(sampler.weights, many, sampler.replacement, generator=generator)
    if type(sampler) is SubsetRandomSampler:
        order = torch.randperm(len(sampler.indices), generator=generator)
        return _places(sampler.indices)[order]
    if sampler.replacement:
        return torch.randint(count, (sampler.num_samples,), generator=generator)
    return torch.randperm(count, generator=generator)[: sampler.num_samples]


def _end(sampler: Any, count: int) -> None:
    """Draws as PyTorch does when there are no more rows: another order, of which it takes none."""
    if _draws_at_end(sampler, count):
        torch.randperm(count, generator=sampler.generator)


def _draws_at_end(sampler: Any, count: int) -> bool:
    if type(sampler) is not RandomSampler or sampler.replacement or sampler.generator is None:
        return False
    return bool(sampler.num_samples == count)


def _places(indices: Any) -> Any:
    if isinstance(indices, torch.Tensor):
        return indices
    return torch.tensor(list(indices), dtype=torch.int64)


def _rows(data: Any, places: Any) -> Any:
    """Rows in a tensor for each column, as collating gives them."""
    if type(data) is Subset:
        return _rows(data.dataset, _places(data.indices)[places])
    columns = data.tensors if type(data) is TensorDataset else (data,)
    # What is collated is no view.
    found = [column[places].clone() for column in columns]
    return found if type(data) is TensorDataset else found[0]


def _collated(loader: Any) -> Iterator[Any]:
    for places in loader.batch_sampler:
        yield loader.collate_fn([loader.dataset[place] for place in places])


class _Order:
    """An order of rows, as a list is made of one."""

    def __init__(self, order: Any) -> None:
        self.order = order

    def tolist(self) -> Any:
        return self.order


def _order(count: int, generator: Any) -> _Order:
    if generator is torch.default_generator:
        generator = None
    return _Order(torch.randperm(count, generator=generator))


def _with(original: Any, **names: Any) -> Any:
    """A function of its own, with other globals."""
    made = types.FunctionType(
        original.__code__,
        {**original.__globals__, **names},
        original.__name__,
        original.__defaults__,
        original.__closure__,
    )
    made.__kwdefaults__ = original.__kwdefaults__
    return made


def _set_vital(*args: Any) -> bool:
    """Tells PyTorch's statistics that there is a loader: no part of a program."""
    return False


_ORIGINAL = _with(DataLoader._get_iterator)

# Functions, and what is traced in their place.
SUBSTITUTES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (DataLoader._get_iterator, _iterator),
    (getattr(torch, "set_vital"), _set_vital),  # noqa: B009 - stubs lack it
    (dataset.random_split, _with(dataset.random_split, randperm=_order)),
]

OF_SOME_SIZES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (DataLoader._get_iterator, _iterator_of_some)
]
"""The same, where a program is for some numbers of rows alone."""
