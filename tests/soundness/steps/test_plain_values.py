"""Decimals, dates, spans of time, `io.StringIO` and functions of `statistics`: nodes make them, and nobody looks at what they say."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import io
import logging
import statistics
import sys
import traceback
from collections.abc import Callable
from datetime import date, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor
from torch.torch_version import TorchVersion

import stator

from .results import agree, copied, runs_whole

HELD = SimpleNamespace()


class Zone(datetime.tzinfo):
    """A zone in Python, which counts how often it's asked."""

    asked = 0

    def utcoffset(self, moment: datetime.datetime | None) -> timedelta:
        Zone.asked += 1
        return timedelta(hours=1)

    def dst(self, moment: datetime.datetime | None) -> None:
        return None

    def tzname(self, moment: datetime.datetime | None) -> str:
        return "Z"


def spans(x: Tensor, i: int) -> Any:
    span = HELD.span * 2 + timedelta(minutes=i)
    found = [-span, abs(-span), span / 2, span // timedelta(seconds=7), span / HELD.span]
    found += [span.days, span.seconds, span.total_seconds(), str(span), f"{span}", repr(span)]
    found += ["%s" % (span,), "of {}".format(span), span > HELD.span, span == HELD.span * 2]
    if HELD.span:
        x = x + 1
    return x * span.seconds, found


def dates(x: Tensor, i: int) -> Any:
    day, moment = HELD.day + timedelta(days=i), HELD.moment - timedelta(hours=i)
    found = [day, day.weekday(), day.isoformat(), day.year, day.replace(day=1), day < HELD.day]
    found += [moment.hour, moment.date(), moment.isoformat(), f"{moment:%Y-%m}", moment.timestamp()]
    found += [moment.strftime("%H"), (moment - HELD.moment).total_seconds(), moment == HELD.moment]
    return x * moment.hour + day.month, found


def decimals(x: Tensor, i: int) -> Any:
    price = HELD.price * 3 - Decimal("0.25") + i
    HELD.price += Decimal("0.01")
    found = [price, round(price, 1), round(price), float(price), int(price), str(price), -price]
    found += [price > 3, price == Decimal(3), price.quantize(Decimal("0.1")), price.is_nan()]
    found += [f"{price:.1f}", price**2, price % 2, bool(price), abs(price), price / 7]
    return x * float(price), found


def rooted(x: Tensor, i: int) -> Any:
    HELD.price += 1
    return x, HELD.price.sqrt()


def clocks(x: Tensor, i: int) -> Any:
    start, there = datetime.datetime.now(), datetime.datetime.now(timezone.utc)
    passed = datetime.datetime.now() - start
    near = there.timestamp() - start.timestamp() < 1000
    return x + passed.days, passed < timedelta(minutes=3), date.today() == start.date(), near


def estimated(x: Tensor, i: int) -> Any:
    left = timedelta(seconds=int(abs(x.sum().item()) * 1000) + i)
    HELD.shown = str(left)
    return left, HELD.shown


def kept(x: Tensor, i: int) -> Any:
    HELD.moment = HELD.moment + timedelta(days=1)
    HELD.days.append(HELD.moment.date())
    return x, HELD.days[-1]


def written(x: Tensor, i: int) -> Any:
    own = io.StringIO()
    count = own.write(f"n={i};")
    print("mean", round(x.mean().item(), 3), i, file=own)
    print("done", file=own)
    HELD.log.write(f"{i},")
    with io.StringIO("abc") as other:
        other.write("zz")
        place = other.seek(1)
        rest = other.read()
    return x, own.getvalue(), count, HELD.log.getvalue(), place, rest


def redirected(x: Tensor, i: int) -> Any:
    own = io.StringIO()
    with contextlib.redirect_stdout(own):
        print("mean", x.mean().item() > 0, i)
        print("constant", end=";")
    HELD.shown = own.getvalue()
    return x + 1, HELD.shown


def returned(x: Tensor, i: int) -> Any:
    own = io.StringIO()
    own.write("a" * (i + 1))
    HELD.kept = own
    return x + 1


def measured(x: Tensor, i: int) -> Any:
    numbers = x.tolist()
    HELD.losses.append(x.sum().item())
    found = [statistics.mean(numbers), statistics.stdev(numbers), statistics.median(numbers)]
    found += [statistics.fmean(numbers), statistics.pvariance([n.item() for n in x])]
    return found, statistics.mean(HELD.losses), x * statistics.mean(numbers)


def refused(x: Tensor, i: int) -> Any:
    try:
        return statistics.geometric_mean(x.tolist())
    except statistics.StatisticsError as error:
        return str(error)


def mapped(x: Tensor, i: int) -> Any:
    numbers, others = x.tolist(), x.abs().tolist()
    found: list[Any] = [",".join(map(str, numbers)), list(map("{:.1f}".format, numbers))]
    found += [sum(map(abs, numbers)), list(map(max, numbers, others)), [*map(str, numbers)]]
    found += [max(map(abs, numbers)), " ".join(map(repr, numbers))]
    return found, torch.tensor(list(map(abs, numbers)))


def versioned(x: Tensor, i: int) -> Any:
    found = [HELD.version >= "1.5", HELD.version < (1, 9), HELD.version.split(".")[0]]
    found += [HELD.version[:3], len(HELD.version), f"{HELD.version}", HELD.version + "x"]
    return x * (2 if HELD.version > "2.0" else 3), found


WHOLE = [
    spans,
    dates,
    decimals,
    clocks,
    estimated,
    kept,
    written,
    redirected,
    returned,
    measured,
    refused,
    mapped,
    versioned,
]


def reset() -> None:
    HELD.__dict__.clear()
    HELD.span, HELD.day = timedelta(hours=3), date(2024, 2, 28)
    HELD.moment, HELD.price = datetime.datetime(2024, 2, 29, 5), Decimal("1.10")
    HELD.days, HELD.log, HELD.losses, HELD.kept = [], io.StringIO(), [], None
    HELD.shown, HELD.version, Zone.asked = "", TorchVersion("1.2.3"), 0


def change(i: int) -> None:
    if i == 3:
        HELD.span, HELD.price = timedelta(days=2, seconds=5), Decimal(-7)
        HELD.version = TorchVersion("2.1")
    elif i == 4:
        HELD.moment = datetime.datetime(2023, 1, 1, 7, tzinfo=timezone.utc)
        HELD.day, HELD.log = date(2023, 12, 31), io.StringIO("before")
    elif i == 5:
        HELD.span, HELD.moment = timedelta(0, 1), datetime.datetime(2022, 1, 1)
        HELD.version = TorchVersion("2.1")


def state() -> Any:
    held = {name: copied(value) for name, value in vars(HELD).items()}
    for name in ["log", "kept"]:
        held[name] = held[name].getvalue() if held[name] else None
    return {name: list(value) if isinstance(value, list) else value for name, value in held.items()}


def run(fn: Callable[[Tensor, int], Any], *, is_positive: bool = False) -> list[Any]:
    reset()
    found = []
    for i in range(8):
        change(i)
        x = torch.randn(4, generator=torch.Generator().manual_seed(i))
        if is_positive and i not in (4, 6):
            x = x.abs()
        result = copied(fn(x, [0, 0, 1, 2, 5, 3, 0, 4][i]))
        found.append((result, {**state(), "losses": len(HELD.losses)}))
    return found


@pytest.mark.parametrize("fn", WHOLE, ids=lambda fn: fn.__name__)
def test_calls(fn: Callable[[Tensor, int], Any]) -> None:
    api.reset()
    expected = run(fn, is_positive=fn is refused)
    compiled = api.compile(fn)
    agree(expected, run(compiled, is_positive=fn is refused))
    if fn is redirected and sys.version_info >= (3, 12):
        # The death of a stream that stood in place of another one is noticed there: a graph break.
        return
    runs_whole(compiled, 2)


def outcome(fn: Callable[[], Any]) -> Any:
    """What a call gives or raises, and where."""
    try:
        return fn(), HELD.price
    except Exception as error:
        lines = [entry.name for entry in traceback.extract_tb(error.__traceback__)][1:]
        return type(error), str(error), lines, HELD.price, Zone.asked


@pytest.mark.parametrize("fn", [rooted, decimals, dates, spans], ids=lambda fn: fn.__name__)
def test_errors_and_other_types(fn: Callable[[Tensor, int], Any]) -> None:
    """A replay that raises is undone, and another type is another trace."""
    api.reset()
    values: list[Any] = [Decimal(4), Decimal(-2), Decimal("NaN"), 5.5, Decimal(9), Decimal(-9)]
    moments = [datetime.datetime(2024, 1, 1), datetime.datetime.max]
    moments += [datetime.datetime(2024, 1, 1, tzinfo=Zone()), datetime.datetime.min] * 2

    def calls(call: Callable[[Tensor, int], Any]) -> list[Any]:
        reset()
        found = []
        for price, moment in zip(values, moments, strict=True):
            HELD.price, HELD.moment = price, moment
            HELD.span = 3 if price == 5.5 else timedelta(hours=1)
            found.append(outcome(lambda: copied(call(torch.ones(2), 1))))
        return found

    expected = calls(fn)
    agree(map(repr, expected), map(repr, calls(api.compile(fn))))


def test_closed_text() -> None:
    api.reset()
    compiled = api.compile(written)
    for close in [False, False, True, False]:
        found = []
        for call in [written, compiled]:
            reset()
            if close:
                HELD.log.close()
            found.append(repr(outcome(lambda call=call: call(torch.ones(2), 1))))  # type: ignore[misc]
        assert found[0] == found[1]


def test_a_text_that_records_go_to() -> None:
    """A replay gives records at its end, so what is written behind them breaks the graph."""
    api.reset()
    logger = logging.getLogger("of plain values")
    logger.setLevel(logging.INFO)
    logger.propagate = False

    def told(x: Tensor, i: int) -> Any:
        HELD.log.write(f"{i}-")
        logger.info("told %d", i)
        HELD.log.write("then ")
        return x + 1

    compiled = api.compile(told)
    for i in range(4):
        found = []
        for call in [told, compiled]:
            reset()
            logger.handlers[:] = [logging.StreamHandler(HELD.log)]
            call(torch.ones(2), i)
            found.append(HELD.log.getvalue())
        assert found[0] == found[1]


def test_precision_is_asked_anew() -> None:
    api.reset()

    def third(x: Tensor) -> Any:
        return x, Decimal(1) / HELD.price

    reset()
    compiled = api.compile(third)
    for digits in [28, 28, 5, 9]:
        with decimal.localcontext() as context:
            context.prec = digits
            assert compiled(torch.ones(1))[1] == third(torch.ones(1))[1]


def test_behind_a_break() -> None:
    api.reset()

    def total(x: Tensor, i: int) -> Any:
        span, price = timedelta(seconds=i), Decimal(i)
        stator.graph_break()
        span += timedelta(seconds=2)
        if span > timedelta(seconds=4):
            x = x + 1
        return x, span, str(span), price + 1

    compiled = api.compile(total)
    for i in [0, 0, 1, 4, 2, 5]:
        agree([total(torch.ones(2), i)], [compiled(torch.ones(2), i)])
