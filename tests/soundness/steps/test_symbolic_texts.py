"""Texts of numbers that are symbols: no trace for each number, whatever the text is made of and kept in."""

import logging

import pytest
import torch

import stator
from stator import stats

from .test_texts import CONSUMERS, addresses

LOG = logging.getLogger("tests.soundness.symbolic_texts")


class Record:
    pass


def f_string(x, i, rate, logs):
    logs.append(f"step {i}, rate {rate:.3g}: {x.sum().item():.4f}")
    return x + 1


def without_data(x, i, rate, logs):
    logs.append(f"step {i:03d}")
    logs.append(f"rate {rate!r:>12}|{rate:e}")
    return x * rate


def alone(x, i, rate, logs):
    return f"{i}", str(i), repr(rate), format(rate, ".2f"), x + 1


def percent(x, i, rate, logs):
    logs.append("step %d of %3i: %.3f %s" % (i, 7, rate, i))
    return x + 1


def formatted(x, i, rate, logs):
    logs.append("{1} {0:.2f} {name!r:>9} {{}}".format(rate, i, name=i))
    return x + 1


def computed(x, i, rate, logs):
    logs.append(f"{i + 1}/{i * 2 + x.shape[0]} {rate / 3:.5f} {100.0 * i / 7:.1f}%")
    return x + i


def sizes(x, i, rate, logs):
    return f"{x.shape[0]} of {x.numel()}", x + 1


def joined(x, i, rate, logs):
    parts = [f"step {i}", f"rate {rate}"]
    line = ", ".join(parts)
    parts.append("later")
    logs.append(line + "!")
    logs.append(", ".join(parts))
    return x + 1


def in_an_object(x, i, rate, logs):
    record = Record()
    record.name = f"step {i}"
    return record.name, {"name": str(i), "rate": [f"{rate}"]}, x + 1


def one_object(x, i, rate, logs):
    text = f"step {i}"
    pair = [text, text]
    return pair, pair[0] is pair[1], x + 1


def over_a_decision(x, i, rate, logs):
    text = f"step {i}"
    y = x * 2 if x.sum() > 4 else x - 1
    logs.append(text + ".")
    return y


def over_a_break(x, i, rate, logs):
    text = f"step {i}"
    stator.graph_break()
    logs.append(text)
    return x + i


def unread(x, i, rate, logs):
    assert x.dim() == 1, f"step {i} with {rate}"
    return x + i


def nobody_raises(x, i, rate, logs):
    if i < 0:
        raise ValueError(f"step {i}")
    return x + i


def progress_bar(x, i, rate, logs):
    full = int(20 * (i + 1) / 10)
    bar = "=" * full + ">" + (10 + i) * "."
    logs.append(f"\r[{bar:<30}] {i + 1}/10 - {bar * 2}")
    return x + 1


def once_or_more(x, i, rate, logs):
    """As often as not, the text is the one that is repeated, or padded."""
    text = f"{i + 1}" * (i + 1)
    logs.append(text.rjust(3) + text.zfill(2) + text.strip() + text.center(5, "*"))
    return text, text.ljust(2), x + 1


def by_steady_methods(x, i, rate, logs):
    text = f" Step {i} at {rate:e} "
    logs.append(text.upper() + text.lower() + text.title() + text.capitalize())
    logs.append(text.lstrip() + text.rstrip("+0 ") + text.replace("Step", "step").replace("1", ""))
    return text.strip(), x + 1


def of_generators(x, i, rate, logs):
    told = {"step": i + 0.5, "rate": rate, "loss": x.sum().item()}
    logs.append(" | ".join(f"{name}: {value:.4f}" for name, value in told.items()))
    logs.append("".join(str(number) for number in (i, i + 1)))
    return x + 1


KEPT = [
    f_string,
    without_data,
    alone,
    percent,
    formatted,
    computed,
    sizes,
    joined,
    in_an_object,
    one_object,
    over_a_decision,
    over_a_break,
    unread,
    nobody_raises,
    progress_bar,
    once_or_more,
    by_steady_methods,
    of_generators,
]


def compared(x, i, rate, logs):
    return x + (1 if f"step {i}" == "step 3" else 2)


def as_key(x, i, rate, logs):
    table = {f"layer.{i}": x * i}
    return table[f"layer.{i}"], list(table)


def as_attribute(x, i, rate, logs):
    record = Record()
    setattr(record, f"value_{i}", x)
    return getattr(record, f"value_{i}") + 1, list(vars(record))


def as_argument(x, i, rate, logs):
    return torch.einsum("i,i->" + "i" * (i % 2), x, x)


def by_methods(x, i, rate, logs):
    text = f"step {i}"
    return text.split(), text.upper(), len(text), text[-1], text * 2, int(text[5:]) * x, "3" in text


def fixed_behind_it(x, i, rate, logs):
    text = f"step {i}"
    if i == 3:
        return text, x
    return text + "?", x + 1


def raised(x, i, rate, logs):
    if i > 3:
        raise ValueError(f"step {i} with {rate}")
    return x + 1


def of_containers(x, i, rate, logs):
    return f"{[i]}", str({"a": i}), repr((rate, 1)), "%s" % [i], "{}".format([i]), x + 1


def empty_or_not(x, i, rate, logs):
    text = "ab" * (i % 3)
    return ("none" if not text else text), text * 2, [0] * (i % 3), x + 1


def repeated_reads(x, i, rate, logs):
    count = int(x.max().item()) - 4
    bar = "#" * count
    return f"[{bar:<4}]", bar.upper() or "none", x + 1


def wrong_pads(x, i, rate, logs):
    return f"{i}".center(5, "ab" if i == 4 else "*"), x


def joined_numbers(x, i, rate, logs):
    return ", ".join(f"{n}" if n < 6 else n for n in (i, i + 1)), x


def of_raising_generators(x, i, rate, logs):
    return "/".join(f"{6 / (5 - n):.1f}" for n in (i, i + 1)), x


def of_widths(x, i, rate, logs):
    return f"{rate:.{i}f}", "%*d" % (i + 1, 5), "{:{}}".format(7, i + 1), chr(i + 65), x + 1


READ = [
    compared,
    as_key,
    as_attribute,
    as_argument,
    by_methods,
    fixed_behind_it,
    raised,
    of_containers,
    empty_or_not,
    repeated_reads,
    wrong_pads,
    joined_numbers,
    of_raising_generators,
    of_widths,
]


def outcome(function, *args):
    try:
        return repr(function(*args))
    except Exception as error:
        return repr(error)


@pytest.mark.parametrize("function", KEPT + READ, ids=lambda function: function.__name__)
def test_texts(function):
    compiled = stator.compile(function, recompile_limit=64)
    plain, found = [], []
    for turn in range(2):
        for i in range(9):
            x = torch.arange(3.0) + i
            args = (x, i, 0.1 / (i + 1) + turn)
            assert outcome(compiled, *args, found) == outcome(function, *args, plain)
            assert found == plain
    if function in KEPT:
        told = stats(compiled)
        assert told.entries <= 4, told.entries
        assert told.native == 0, told.reason


@pytest.mark.parametrize("consume", CONSUMERS, ids=map(str, range(len(CONSUMERS))))
@pytest.mark.parametrize("spell", [str, "{:.1f}".format, lambda n: f"{n}"], ids=["str", "f", "fs"])
def test_who_looks_into_a_text(consume, spell):
    def function(x, i):
        return consume(spell(i)), x + 1

    compiled = stator.compile(function, recompile_limit=64)
    for _ in range(2):
        for i in [*range(1, 9), 14, 14.0, 2.5, 7.25]:
            found, plain = outcome(compiled, torch.ones(3), i), outcome(function, torch.ones(3), i)
            assert addresses(found) == addresses(plain)


def test_one_object():
    compiled = stator.compile(one_object)
    for i in range(6):
        pair, _, _ = compiled(torch.ones(3), i, 0.5, [])
        assert pair[0] is pair[1]


@pytest.mark.parametrize("function", KEPT, ids=lambda function: function.__name__)
def test_other_types(function):
    compiled = stator.compile(function, recompile_limit=64)
    plain, found = [], []
    for i, rate in [
        (1, 0.1),
        (2, 0.2),
        (3, 1),
        (4.5, 2),
        (True, False),
        (5, float("nan")),
        (1, -0.0),
    ]:
        args = (torch.ones(3), i, rate)
        assert outcome(compiled, *args, found) == outcome(function, *args, plain)
        assert found == plain


@pytest.mark.parametrize("function", [without_data, alone, percent, joined, computed])
def test_other_backends_fix_the_numbers(function):
    compiled = stator.compile(function, backend=lambda graph, inputs: graph)
    for i in range(4):
        plain, found = [], []
        args = (torch.ones(3), i, 0.5 * i)
        assert outcome(compiled, *args, found) == outcome(function, *args, plain)
        assert found == plain


def padded(x, i, rate, log):
    return (
        f"{i!r:>4}|{i!s:5}|{rate!s:>4}",
        "{!s:>4}".format(i),
        "{:>4}".format(str(i)),
        "%4s" % str(i),
    )


def shortened(x, i, rate, log):
    return f"{i!r:.3}|{rate!s:.4}", "{:.2}".format(str(i)), "%.2s" % i


@pytest.mark.parametrize("function", [padded, shortened])
def test_texts_that_a_format_leaves_as_they_are(function):
    """A number as wide as its field is the text that the format gets; another one is padded or cut."""
    compiled = stator.compile(function)
    for i in (1, 10**18, 2, 0, -7, 12345, 10**18, 12):
        for rate in (0.5, i * 1.0):
            args = (torch.ones(3), i, rate, None)
            assert compiled(*args) == function(*args)


def test_log_records(caplog):
    def train(x, i):
        LOG.info(f"step {i}: {x.sum().item():.2f}")
        LOG.info("step %d", i)
        return x + 1

    compiled = stator.compile(train)
    with caplog.at_level(logging.INFO, logger=LOG.name):
        for i in range(8):
            caplog.clear()
            train(torch.ones(3), i)
            plain = [record.getMessage() for record in caplog.records]
            caplog.clear()
            compiled(torch.ones(3), i)
            assert [record.getMessage() for record in caplog.records] == plain
    # The first record of a logger fills its cache, and the second integer makes it a symbol.
    assert stats(compiled).traces <= 3
    assert stats(compiled).breaks == 0
