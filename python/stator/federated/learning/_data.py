"""Data of many clients: rows of arrays, shared out among them.

What rows come from is known by what it can do, so nothing of pandas or `datasets` is imported here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stator._stator import federated as _native
from stator.federated.aggregators._factories import expect_count, expect_number


@_native.hidden
class ClientData(Sequence[OrderedDict[str, Any]]):
    """The rows of clients: `data[position]` is what a client has, a dictionary of `inputs` and
    `labels`, as the rounds of a process take it.

    inputs, labels: the rows of all clients: arrays, tensors, or what `rows_of` makes of something.
    parts: for each client, which rows are its own: by a `partition_*` function.
    """

    def __init__(self, inputs: Any, labels: Any, parts: Mapping[Any, Any] | Sequence[Any]) -> None:
        self._inputs, self._labels = _array(inputs), _array(labels)
        count = len(self._labels)
        if len(self._inputs) != count:
            raise ValueError(
                f"`inputs` has {len(self._inputs)} rows, where `labels` has {count}: one label for "
                "each row."
            )
        named = parts if isinstance(parts, Mapping) else dict(enumerate(parts))
        self._ids: tuple[Any, ...] = tuple(named)
        self._parts = [np.asarray(part, np.int64).reshape(-1) for part in named.values()]
        for client, part in zip(self._ids, self._parts, strict=True):
            for row in part[(part < 0) | (part >= count)]:
                raise ValueError(
                    f"client {client!r} has row {row} of `parts`, where there are {count} rows."
                )

    @property
    def ids(self) -> tuple[Any, ...]:
        """What clients are called, in the order of their positions."""
        return self._ids

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return [self[at] for at in range(*position.indices(len(self)))]
        part = self._parts[position]
        return OrderedDict(inputs=self._inputs[part], labels=self._labels[part])

    def __iter__(self) -> Iterator[OrderedDict[str, Any]]:
        return (self[position] for position in range(len(self)))

    def rows(self) -> list[int]:
        """How many rows each client has."""
        return [part.size for part in self._parts]

    def __repr__(self) -> str:
        return f"<data of {len(self)} clients, {sum(self.rows())} rows>"


@_native.hidden
def partition_evenly(rows: int, clients: int, *, seed: int = 0) -> list[Any]:
    """Shares rows out at random, to each client as many (or one more)."""
    expect_count(rows, "rows", least=1)
    expect_count(clients, "clients", least=1)
    order = np.random.default_rng(seed).permutation(rows)
    return list(np.array_split(order, clients))


@_native.hidden
def partition_by_dirichlet(
    labels: Any, clients: int, alpha: float, *, seed: int = 0, least_rows: int = 1
) -> list[Any]:
    """Shares rows out so that clients have different labels: for each label, the clients' shares of
    its rows are drawn from a Dirichlet distribution. Hsu et al., Measuring the Effects of
    Non-Identical Data Distribution for Federated Visual Classification, 2019 (arXiv 1909.06335).

    alpha: the distribution's concentration: the less, the more clients differ.
    least_rows: each client has at least as many rows; it is drawn again until that is so.
    """
    expect_count(clients, "clients", least=1)
    expect_number(alpha, "alpha", above=0)
    expect_count(least_rows, "least_rows", least=0)
    labels = _array(labels).reshape(-1)
    if least_rows * clients > labels.size:
        raise ValueError(
            f"{clients} clients can't have {least_rows} rows each: there are {labels.size} rows."
        )
    drawn = np.random.default_rng(seed)
    for _ in range(_DRAWS):
        parts: list[list[Any]] = [[] for _ in range(clients)]
        for label in np.unique(labels):
            rows = drawn.permutation(np.flatnonzero(labels == label))
            shares = drawn.dirichlet(np.full(clients, float(alpha)))
            ends = np.round(np.cumsum(shares)[:-1] * rows.size).astype(np.int64)
            for part, found in zip(parts, np.split(rows, ends), strict=True):
                part.append(found)
        made = [np.concatenate(part) for part in parts]
        if min(part.size for part in made) >= least_rows:
            return made
    raise ValueError(
        f"in {_DRAWS} draws there was always a client with fewer than {least_rows} rows: take "
        "fewer clients, a greater `alpha`, or a smaller `least_rows`."
    )


@_native.hidden
def partition_by_user(users: Iterable[Hashable]) -> dict[Any, Any]:
    """Gives each user its own rows: users by row, such as a column of a table. Clients are in the
    order in which their first rows are."""
    parts: dict[Any, list[int]] = {}
    values = users if isinstance(users, (list, tuple)) else _array(users).reshape(-1).tolist()
    for row, user in enumerate(values):
        parts.setdefault(user, []).append(row)
    return {user: np.asarray(rows, np.int64) for user, rows in parts.items()}


_DRAWS = 100


@_native.hidden
def rows_of(
    source: Any, *, inputs: Any = "inputs", labels: str | None = "labels"
) -> tuple[Any, Any]:
    """The inputs and the labels of all rows, as arrays.

    source: a table with columns (a `pandas.DataFrame`, a dataset of Hugging Face's `datasets`, a
        mapping of names to arrays), a pair of inputs and labels, or something that gives such
        pairs: batch by batch (a `DataLoader` of PyTorch's), or row by row (its `Dataset`s).
    inputs, labels: the names of the columns, where there are some; several names of inputs are
        stacked as the last dimension.
    """
    columns = _columns(source)
    if columns is not None:
        return _named(source, columns, inputs, labels)
    if isinstance(source, (tuple, list)) and len(source) == 2:
        return _array(source[0]), _array(source[1])
    if hasattr(source, "__iter__") and hasattr(source, "batch_size"):
        return _joined([_pair(batch, inputs, labels) for batch in source], np.concatenate)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        rows = [_pair(source[at], inputs, labels) for at in range(len(source))]
        return _joined(rows, np.stack)
    if hasattr(source, "__iter__") and not isinstance(source, (str, bytes)):
        # Rows that come one after the other, such as those of a dataset that is read as a stream.
        return _joined([_pair(row, inputs, labels) for row in source], np.stack)
    raise TypeError(
        "`source` is to be a table, a pair of inputs and labels, a DataLoader or a Dataset, not "
        f"{type(source).__name__}."
    )


def _wanted(inputs: Any, labels: str | None) -> list[Any]:
    """The names of the columns that are asked for."""
    names = [inputs] if isinstance(inputs, str) else list(inputs)
    return [*names, *([] if labels is None else [labels])]


def _named(source: Any, columns: list[Any], inputs: Any, labels: str | None) -> tuple[Any, Any]:
    """The inputs and the labels of a table, a batch or a row, by their names."""
    _expect_columns(source, columns, _wanted(inputs, labels))
    if isinstance(inputs, str):
        found = _array(source[inputs])
    else:
        found = np.stack([_array(source[name]) for name in inputs], axis=-1)
    return found, None if labels is None else _array(source[labels])


def _expect_columns(source: Any, columns: list[Any], wanted: list[Any]) -> None:
    """Raises if a table hasn't each of these columns once."""
    missing = [name for name in wanted if name not in columns]
    if missing:
        hint = "`inputs=` and `labels=` name columns"
        if isinstance(source, Mapping):
            tables = [name for name in source if _columns(source[name]) is not None]
            if tables:
                hint = f"it is a mapping of tables: give one of them, such as that of {tables[0]!r}"
        raise ValueError(
            f"there is no column {', '.join(map(repr, missing))}\n  found:    "
            f"{', '.join(map(repr, columns))}\n  hint:     {hint}"
        )
    if several := [name for name in wanted if columns.count(name) > 1]:
        raise ValueError(
            f"there are several columns {', '.join(map(repr, several))}: name each one once, as "
            "`inputs=` and `labels=` say which they are."
        )


def _joined(
    pairs: list[tuple[Any, Any]], join: Callable[[list[Any]], Any]
) -> tuple[Any, Any | None]:
    """The inputs and the labels of rows or batches."""
    if not pairs:
        raise ValueError("`source` has no rows.")
    labels = [labels for _, labels in pairs]
    try:
        inputs = join([inputs for inputs, _ in pairs])
        return inputs, None if labels[0] is None else join(labels)
    except ValueError as error:
        raise ValueError(f"rows are of different sizes: {error}") from error


def _columns(source: Any) -> list[Any] | None:
    """The names of a table's columns."""
    if isinstance(source, Mapping):
        return list(source)
    for name in ("column_names", "columns"):
        found = getattr(source, name, None)
        # What is a stream is read row by row: its columns aren't there as a whole.
        is_stream = hasattr(source, "__iter__") and not hasattr(source, "__len__")
        has_columns = hasattr(source, "__getitem__") and not is_stream
        if found is not None and not callable(found) and has_columns:
            return list(found)
    return None


def _pair(item: Any, inputs: Any, labels: str | None) -> tuple[Any, Any]:
    """The inputs and the labels of a row or batch: by their names, where it has names."""
    if isinstance(item, Mapping):
        if len(item) != 2 or any(name in item for name in _wanted(inputs, labels)):
            return _named(item, list(item), inputs, labels)
        item = tuple(item.values())
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        raise TypeError(f"a row or batch is to be a pair of inputs and labels, not {item!r}.")
    return _array(item[0]), _array(item[1])


def _array(values: Any) -> Any:
    """An array of what may be a tensor, a column or a list."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    elif hasattr(values, "to_numpy"):
        values = values.to_numpy()
    array = np.asarray(values)
    if array.dtype == object and array.size:
        try:
            return np.stack([_array(value) for value in array])
        except ValueError as error:
            raise ValueError(f"rows are of different sizes: {error}") from error
    return array
