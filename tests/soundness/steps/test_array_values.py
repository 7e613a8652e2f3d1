"""NumPy's arrays and scalars as values: calls give what plain ones give, and leave arrays as plain ones do."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from differential.support import api
from torch import Tensor

import stator

from .results import copied, same

TABLE = np.linspace(0.0, 1.0, 32)
COUNTS = np.zeros((4, 4), dtype=np.int64)
ROW = np.arange(6, dtype=np.float32)
SCALE = np.float64(0.5)
BEST: dict[str, Any] = {"loss": np.inf, "step": 0}


def constants(x: Tensor, i: int) -> Any:
    return x * np.sqrt(16) + np.log(2.0), np.floor(7 / 2), int(np.ceil(np.log2(9)))


def numbers(x: Tensor, i: int) -> Any:
    loss = x.sum().item()
    return np.exp(loss), np.log(abs(loss) + 1), np.clip(loss, 0.0, 2.0), np.float32(loss) * 2


def mixed(x: Tensor, i: int) -> Any:
    loss = np.float64(x.sum().item())
    return loss / 3, 2 * loss, loss**2, -loss, abs(loss), round(loss, 2), loss + np.float32(0.1)


def scheduled(x: Tensor, i: int) -> Any:
    return x * TABLE[i], TABLE[i] * 2


def decided(x: Tensor, i: int) -> Any:
    loss = np.mean([x.sum().item(), 1.0])
    if loss > 2.5:
        x = x + 1
    if np.isnan(loss):
        x = x * 0
    return x * loss


def best(x: Tensor, i: int) -> Any:
    loss = np.float64(x.sum().item()) + (i % 3)
    if loss < BEST["loss"]:
        BEST["loss"] = loss
        BEST["step"] = i
    return BEST["loss"]


def counted(x: Tensor, i: int) -> Any:
    for t, p in zip(x.long(), (x * 2).long() % 4, strict=True):
        COUNTS[t % 4, p] += 1
    return COUNTS.sum()


def counted_at_once(x: Tensor, i: int) -> Any:
    rows = x.long().numpy() % 4
    np.add.at(COUNTS, (rows, rows[::-1]), 1)
    return float(COUNTS.diagonal().sum() / max(int(COUNTS.sum()), 1))


def scattered(x: Tensor, i: int) -> Any:
    """As models of speech choose what they mask."""
    np.random.seed(i)
    spans = np.array([np.random.choice(np.arange(5), 2, replace=False) for _ in range(3)])
    spans = np.broadcast_to(spans[:, :, None], (3, 2, 2)).reshape(3, 4) + np.arange(4) % 2
    mask = np.zeros((3, 6), dtype=bool)
    np.put_along_axis(mask, spans, 1, -1)
    np.put_along_axis(COUNTS[:3], spans[:, :1] % 4, i, axis=1) if i % 2 else np.put(
        COUNTS, i % 9, i
    )
    return torch.from_numpy(mask), x[torch.tensor(mask[:, 0])].sum(), COUNTS.sum()


def put(x: Tensor, i: int) -> Any:
    array = (x * i).numpy().copy()
    np.putmask(array, array > 1.5, array * 2)
    np.place(array, array == 0, [1.0, 2.0])
    np.copyto(ROW[:3], array)
    np.fill_diagonal(COUNTS, i)
    np.put(ROW, [-1, 0], x[0].item())
    return array, ROW[::2].max(), COUNTS.trace()


def put_by_names(x: Tensor, i: int) -> Any:
    tensor = torch.arange(4) * i
    place = np.array([i % 4])
    np.put_along_axis(indices=place, arr=tensor.numpy(), values=9, axis=0)
    np.copyto(ROW, 1.0, where=ROW > 3)
    if tensor[1] > 3:
        return x + 1
    return x, tensor


def put_beyond(x: Tensor, i: int) -> Any:
    x = x + 1
    BEST["step"] += 1
    try:
        np.put(ROW, i, x[0].item())
    except IndexError as error:
        return str(error), BEST["step"]
    try:
        np.put_along_axis(COUNTS, np.zeros(3, dtype=int), 1, 0)
    except ValueError as error:
        return str(error), ROW.sum()


def written(x: Tensor, i: int) -> Any:
    ROW[i % 6] = x[0].item()
    ROW[2:4] += 1
    own = np.zeros(3)
    own[1] = i
    own *= 2
    return own, ROW.mean(), ROW[::2].max(), torch.from_numpy(ROW) + 0


def written_through(x: Tensor, i: int) -> Any:
    tensor = torch.from_numpy(ROW)
    tensor.add_(1)
    ROW[0] = 7
    return tensor + x.sum(), ROW.sum()


def of_tensor(x: Tensor, i: int) -> Any:
    array = (x * 2).numpy()
    total = 0.0
    for item in array:
        total += item
    first, *rest = array
    return total, first, rest, array.shape, len(array), array.T, array.astype(np.int64)


def shared(x: Tensor, i: int) -> Any:
    tensor = torch.arange(4)
    array = tensor.numpy()
    array[1] = i
    if tensor[1] > 3:
        return x + 1
    return x, tensor


def made_of_tensors(x: Tensor, i: int) -> Any:
    squares, doubles = np.array(x * x), np.array(x, dtype=np.float64)
    squares[0] = i
    return squares + TABLE[: len(x)], doubles.sum(), torch.from_numpy(np.stack([squares, squares]))


def made_of_others(x: Tensor, i: int) -> Any:
    shared = np.asarray(x)
    shared[1] = i
    refused = []
    for tensor in (x.clone().requires_grad_(), x.to(torch.bfloat16)):
        try:
            np.array(tensor)
        except (RuntimeError, TypeError) as error:
            refused.append(str(error))
    return x, shared, refused, np.array([x.sum(), 2.0]), np.asarray([3, 4])


def joined(x: Tensor, i: int) -> Any:
    parts = [(x + k).numpy() for k in range(3)]
    whole = np.concatenate(parts)
    return np.stack(parts).mean(axis=0), whole.argmax(), whole.reshape(3, -1).std(), np.array(parts)


def built(x: Tensor, i: int) -> Any:
    a, b = x[0].item(), x[1].item()
    state = np.array([a, b, a - b, 0.5 * i])
    return state, torch.from_numpy(state.astype(np.float32)) * 2, torch.tensor(state)


def physics(x: Tensor, i: int) -> Any:
    a, b = np.array([x[0].item(), 0.5])
    return math.sin(a) + math.cos(b) * a, np.sin(a) * 2, bool(abs(a) > 1.5), a > b


def sized(x: Tensor, i: int) -> Any:
    n = np.int64(i % 3 + 1)
    return torch.zeros(n, 2), x[:n], torch.full((int(n),), np.float32(0.5)), list(range(n))


def boxed(x: Tensor, i: int) -> Any:
    lam = np.sqrt(1.0 - 1 / (i % 4 + 2))
    width = int(3 * lam)
    low, high = np.clip(1 - width // 2, 0, 3), np.clip(1 + width // 2, 0, 3)
    x = x.clone()
    x[low:high] = 0
    return x, high - low


def two_truths(x: Tensor, i: int) -> Any:
    """`np.True_` is one object, whichever comparison gives it."""
    loss = np.float64(x.sum().item())
    is_large, is_late = loss > 4, loss + i > 9
    found = bool(is_large or is_late), is_large, is_late, is_large & is_late, not is_late
    return (*found, x + 1) if is_large else (*found, x)


def refused_types(x: Tensor, i: int) -> Any:
    found = []
    for index in (np.float64(1), np.float32(0)):
        for ask in (lambda k: [1, 2][k], range, lambda k: x[k], lambda k: torch.zeros(k)):
            try:
                found.append(ask(index))
            except (TypeError, IndexError) as error:
                found.append(str(error))
    return found


def spread(x: Tensor, i: int) -> Any:
    array = (x * i).numpy()
    found: list[Any] = []
    found.extend(array)
    return found, list(array), np.array(found), [a * b for a, b in zip(array, x, strict=True)]


def drawn_below(x: Tensor, i: int) -> Any:
    np.random.seed(3)
    places = np.random.randint(0, i % 7 + 1, size=4)
    try:
        last = np.random.randint(i % 5, 4)
    except ValueError as error:
        return places, str(error)
    return places, last, np.power(0.97, max(0, i - 4)), np.minimum(1.0, (i + 1) / 8)


def given(x: Tensor, i: int) -> Any:
    rate = SCALE * (1 + np.cos(np.pi * i / 20))
    y = x.clone()
    y.add_(x, alpha=-rate)
    return y * rate, rate * x, rate < x, torch.tensor(np.float32(rate)), x + rate


def integers(x: Tensor, i: int) -> Any:
    small = np.array([1, 2, 3], dtype=np.uint8)
    n = int(x[0].item()) + 250
    try:
        return small + n
    except OverflowError as error:
        return str(error)


def places(x: Tensor, i: int) -> Any:
    names = ["a", "b", "c"]
    place = np.argmax((x * (1 if i % 2 else -1)).numpy())
    return names[place], x[place]


def refused(x: Tensor, i: int) -> Any:
    x = x + 1
    BEST["step"] += 1
    try:
        return ROW[int(x[0].item()) + i]
    except IndexError as error:
        return str(error), BEST["step"]


def silent(x: Tensor, i: int) -> Any:
    with np.errstate(all="raise"):
        try:
            return np.float64(1.0) / (x[0].item() - 2)
        except FloatingPointError as error:
            return str(error)


def warned(x: Tensor, i: int) -> Any:
    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        value = np.log(np.float64(x[0].item() - 2))
    return str(value), len(met)


def masked(x: Tensor, i: int) -> Any:
    array = x.numpy().copy()
    array[array > 1.5] = 0
    return array, array[array > 0.5]


def spelt(x: Tensor, i: int) -> Any:
    acc = np.mean([x[0].item(), 1.0])
    return f"{acc:.3f}", "%.2f" % acc, "{:.1f}".format(acc), str(acc), f"{np.float32(acc)}"


def listed(x: Tensor, i: int) -> Any:
    array = (x * i).numpy()
    rows = np.array([array, array + 1])
    worst = max(array.tolist())
    if rows.tolist()[1][0] > 6:
        x = x + 1
    total = sum(ROW.tolist()) + sum(COUNTS.diagonal().tolist())
    empty = np.zeros((2, 0)).tolist(), np.array(2).tolist(), np.float32(i).tolist()
    return (
        x,
        worst,
        total,
        COUNTS.tolist(),
        rows.T.tolist(),
        empty,
        [f"{v:.1f}" for v in array.tolist()],
    )


def listed_otherwise(x: Tensor, i: int) -> Any:
    truths = (x.numpy() > 1).tolist()
    wide = np.array([i, 2**63], dtype=np.uint64).tolist()
    return truths, wide, np.arange(100).tolist()[i], TABLE.tolist()[-1], np.array(["a"]).tolist()


def extremes(x: Tensor, i: int) -> Any:
    count = (x * i).long().numpy().sum()
    precision = COUNTS[0, 0] / max(count, 1)
    best = max(np.float64(x[0].item()), 1.5, count), min(1, ROW.max(), 2.5)
    return precision, best, type(best[0]).__name__, max(ROW[0], ROW[1], key=lambda v: -v), x + 1


def extremes_of_others(x: Tensor, i: int) -> Any:
    nan = np.float64("nan")
    found: list[Any] = [max(nan, 1.0), max(1.0, nan), min(np.int64(3), i), max(np.True_, 0)]
    try:
        found.append(max(np.array([1, 2]), 1))
    except ValueError as error:
        found.append(str(error))
    return found, max(np.float32(i), x[0]), min(np.int8(i), True), x + 1


def keyed(x: Tensor, i: int) -> Any:
    counts: dict[Any, int] = {}
    for item in (x * 2).long().numpy():
        counts[item] = counts.get(item, 0) + 1
    return [(int(key), count) for key, count in counts.items()]


ALL = (
    *(constants, numbers, mixed, scheduled, decided, best, counted, counted_at_once, written),
    *(written_through, of_tensor, shared, joined, built, physics, sized, boxed, given, integers),
    *(places, refused, silent, warned, masked, spelt, keyed, two_truths, refused_types, spread),
    *(drawn_below, made_of_tensors, made_of_others, scattered, put, put_by_names, put_beyond),
    *(listed, listed_otherwise, extremes, extremes_of_others),
)
WHOLE = (
    *(constants, numbers, mixed, scheduled, decided, counted, counted_at_once, written, built),
    *(joined, physics, boxed, given, of_tensor, two_truths, made_of_tensors),
    *(scattered, put, listed),
)


def as_told(result: Any) -> Any:
    if isinstance(result, (np.ndarray, np.generic)):
        return [type(result).__name__, str(result.dtype), result.tolist()]
    if isinstance(result, (list, tuple)):
        return type(result)(map(as_told, result))
    return copied(result)


def begin() -> None:
    global ROW, TABLE, SCALE
    COUNTS[:] = 0
    ROW = np.arange(6, dtype=np.float32)
    TABLE = np.linspace(0.0, 1.0, 32)
    SCALE = np.float64(0.5)
    BEST.update(loss=np.inf, step=0)


def change(i: int) -> None:
    """What stands outside is another array, of another type, or holds something else."""
    global ROW, TABLE, SCALE
    if i == 5:
        TABLE = TABLE[::-1]
        ROW = ROW.astype(np.float64)
        SCALE = np.float32(0.25)
    if i == 9:
        TABLE *= 2
        ROW = np.arange(8, dtype=np.float32)
        SCALE = 1
    if i == 12:
        COUNTS[0, 0] = 9
        BEST["loss"] = 100.0


def play(fn: Callable[..., Any], calls: int = 16) -> list[Any]:
    begin()
    seen = []
    for i in range(calls):
        x = torch.tensor([1.0, 2.0, 0.5]) * (1 + i % 3)
        result = fn(x, i)
        seen.append([as_told(result), as_told([COUNTS, ROW, TABLE, *BEST.values()])])
        change(i)
    return seen


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", ALL)
def test_calls_are_plain_ones(fn: Callable[..., Any], backend: str) -> None:
    compiled = api.compile(fn, backend=backend)
    for call, (expected, found) in enumerate(zip(play(fn), play(compiled), strict=True)):
        assert same(expected, found), f"call {call}: {expected} {found}"


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
@pytest.mark.parametrize("fn", WHOLE)
def test_they_are_whole(fn: Callable[..., Any]) -> None:
    with stator.config.patch(skip_unprofitable=False):
        compiled = stator.compile(fn, backend="eager")
        play(compiled)
    stats = stator.stats(compiled)
    assert stats.breaks == 0 and stats.hits > 0 and stats.native == 0
