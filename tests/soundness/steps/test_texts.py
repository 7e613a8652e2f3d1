"""Texts of numbers that are read from tensors: carried like the numbers, made anew by each replay."""

import functools
import json
import logging
import operator
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator import stats

LOG = logging.getLogger("tests.soundness.texts")


def step(x):
    return (x * x).sum()


class Record:
    pass


def f_string(x, logs, metrics):
    for i in range(2):
        loss = step(x + i)
        logs.append(f"step {i}: {loss.item():.4f}")
    return loss


def f_string_plain(x, logs, metrics):
    metrics["loss"] = f"{step(x).item()}"
    return x + 1


def conversions(x, logs, metrics):
    n = step(x).item()
    logs.append(
        (f"{n!r}", f"{n!s:>12}", f"{n:10.2f}|{n:e}", str(n), repr(n), format(n), format(n, ".1f"))
    )
    return x + 1


def percent(x, logs, metrics):
    n = step(x).item()
    logs.append("loss %.3f" % n)
    logs.append("%s %5.1f%% of %d" % (n, n, 3))
    return x + 1


def formatted(x, logs, metrics):
    n = step(x).item()
    logs.append("{}".format(n))
    logs.append("{0:.2f} {name!r:>9} {{}} {1}".format(n, "a", name=n))
    return x + 1


def joined(x, logs, metrics):
    parts = [f"{value:.2f}" for value in (x * 2).tolist()]
    logs.append(", ".join(parts))
    line = "values"
    for part in parts:
        line += " " + part
    logs.append(line)
    return x + 1


def postfix(x, logs, metrics):
    """What progress bars keep."""
    metrics.update(
        {
            key: f"{value:.3g}"
            for key, value in {"loss": step(x).item(), "mean": x.mean().item()}.items()
        }
    )
    logs.append(str(step(x).item()))
    return metrics["loss"]


def rounded(x, logs, metrics):
    n = step(x).item()
    logs.append(round(n, 2))
    metrics["loss"] = f"{round(n / 3, 1)}"
    return x * round(n, 1), round(n, 20)


def integers(x, logs, metrics):
    count = (x > 0).sum().item()
    logs.append(f"{count}")
    logs.append("%d of %3i %x" % (count, count, count))
    metrics["count"] = str(count)
    return f"{count:03d}"


def behind_a_decision(x, logs, metrics):
    loss = step(x)
    logs.append(f"{loss.item():.2f}")
    if loss > 20:
        logs.append(f"large: {loss.item()}")
        return x * 2
    return x + 1


def kept_over_a_decision(x, logs, metrics):
    loss = step(x)
    text = f"{loss.item():.2f}"
    y = x * 2 if x.sum() > 2 else x - 1
    logs.append(text + "!")
    return y, text


def as_attribute(x, logs, metrics):
    record = Record()
    record.text = f"{step(x).item()}"
    return record.text, x + 1


def one_character(x, logs, metrics):
    count = int((x > 0).sum())
    metrics["5"] = "3"
    return str(count), "3", x + 1


CARRIED = [
    f_string,
    f_string_plain,
    conversions,
    percent,
    formatted,
    joined,
    postfix,
    rounded,
    integers,
    behind_a_decision,
    kept_over_a_decision,
    as_attribute,
    one_character,
]


def compared(text):
    return 1 if text == "14.00" else 2


def read_compared(x, logs, metrics):
    return x * compared(f"{step(x).item():.2f}")


def read_as_key(x, logs, metrics):
    metrics[f"{step(x).item():.0f}"] = 1
    return x + 1


def read_by_length(x, logs, metrics):
    return x * len(f"{step(x).item():.3f}")


def read_by_slice(x, logs, metrics):
    text = str(step(x).item())
    return x + 1, text[0], text[1:], text[-1:]


def read_by_methods(x, logs, metrics):
    text = f"{step(x).item():.3f}"
    return x + 1, text.rstrip("0"), text.upper(), text.split("."), text.startswith("1"), "4" in text


def read_by_hash(x, logs, metrics):
    return {f"{step(x).item():.0f}", "14"}


def read_as_number(x, logs, metrics):
    return x * float(f"{step(x).item():.1f}") * int("%d" % (x > 0).sum().item())


def read_by_iteration(x, logs, metrics):
    return [char for char in f"{step(x).item():.1f}"], x + 1


def read_as_format(x, logs, metrics):
    n = (x > 0).sum().item()
    return f"{1.23456:.{n}f}", "%*d" % (n, 5), "{:{}}".format(7, n), chr(n) + "%c" % n + f"{n:c}"


def read_as_attribute(x, logs, metrics):
    return x + getattr(torch, f"float{32 if (x > 0).sum().item() else 16}").itemsize


def read_by_operation(x, logs, metrics):
    return torch.einsum("i,i->" + "i"[: (x > 0).sum().item() - 3], x, x)


def read_by_identity(x, logs, metrics):
    text = f"{step(x).item():.1f}"
    return x + 1, text is logs, text is (text + ""), text == text


def read_by_integers(x, logs, metrics):
    try:
        return "%d" % (x.sum() / (x.sum() - 6)).item(), x
    except (OverflowError, ValueError) as error:
        return str(error), x


def read_by_repetition(x, logs, metrics):
    return f"{step(x).item():.1f}" * 2, "-" * (x > 0).sum().item()


def read_in_containers(x, logs, metrics):
    n = step(x).item()
    return f"{[n]}", str({"a": n}), repr((n, 1)), "%s" % [n], "{}".format([n])


def raised(x, logs, metrics):
    if x.sum() > 7:
        raise ValueError(f"the loss is {step(x).item():.2f}")
    return x + 1


READ = [
    value for name, value in list(globals().items()) if name.startswith("read_") or name == "raised"
]
INPUTS = [
    [1.0, 2, 3],
    [2.0, 1, 3],
    [1.0, 2, 4],
    [-1.0, 2, 0],
    [1.0, 2, 3],
    [float("nan"), 1, 2],
    [float("inf"), 1, 9],
    [3.0, 2, 1],
]


def outcome(function, x, logs, metrics):
    try:
        return repr(function(x, logs, metrics))
    except Exception as error:
        return repr(error)


@pytest.mark.parametrize("function", CARRIED + READ, ids=lambda function: function.__name__)
def test_texts(function):
    compiled = stator.compile(function)
    plain, found = ([], {}), ([], {})
    for _ in range(2):
        for values in INPUTS:
            x = torch.tensor(values)
            assert outcome(compiled, x, *found) == outcome(function, x, *plain)
            assert repr(found) == repr(plain)
    if function in CARRIED:
        told = stats(compiled)
        assert told.breaks == 0, told
        assert told.traces <= 4, told


@pytest.mark.parametrize(
    "function", [f_string, f_string_plain, conversions, percent, formatted, postfix, integers]
)
def test_one_trace_for_all_texts(function):
    compiled = stator.compile(function)
    for value in range(1, 12):
        compiled(torch.full((3,), float(value)), [], {})
    assert (stats(compiled).traces, stats(compiled).hits) == (1, 10)


def test_log_records(caplog):
    def train(x):
        for i in range(2):
            loss = step(x + i)
            LOG.info("step %d: loss %.3f", i, loss.item())
            LOG.info(f"{loss.item():.2f}")
        return loss

    compiled = stator.compile(train)
    with caplog.at_level(logging.INFO, logger=LOG.name):
        for value in (1.0, 2, 3, 4):
            caplog.clear()
            train(torch.full((3,), value))
            plain = [(record.getMessage(), record.args, record.lineno) for record in caplog.records]
            caplog.clear()
            compiled(torch.full((3,), value))
            found = [(record.getMessage(), record.args, record.lineno) for record in caplog.records]
            assert found == plain
    # The first record of a logger fills its cache.
    assert (stats(compiled).traces, stats(compiled).breaks) == (2, 0)


def test_warnings_are_read():
    """Whether a warning is given depends on its text."""

    def warn(x):
        warnings.warn(f"loss {step(x).item():.1f}", stacklevel=2)
        return x + 1

    compiled = stator.compile(warn)
    for value in (1.0, 2, 3, 1):
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            compiled(torch.full((3,), value))
        assert [str(it.message) for it in given] == [f"loss {value * value * 3:.1f}"]


def dicts(**named: Any) -> Any:
    return sorted(named)


@functools.lru_cache(maxsize=8)
def cached(text: str) -> int:
    return len(text)


class Text(str):
    pass


def matched(text: str) -> int:
    match text:
        case "14.0":
            return 1
        case _:
            return 2


CONSUMERS: list[Callable[[str], Any]] = [
    lambda t: (t == "14.0", t != "14.0", "14.0" == t, t < "2", "2" >= t),
    lambda t: (t in ("14.0", "2"), t in ["14.0"], t in {"14.0": 1}, t in {"14.0"}, "4" in t),
    lambda t: (len(t), t.__len__(), operator.length_hint(t), bool(t), not t),
    lambda t: 1 if t else 2,
    lambda t: t and 1,
    lambda t: (t.upper(), t.strip("0"), t.encode(), t.zfill(9), t.replace("4", "x"), t.split(".")),
    lambda t: "x14.0y".replace(t, "z"),
    lambda t: (max(t, "14.0"), min(t, "3"), sorted([t, "14.0", "3"])),
    lambda t: (list(t), tuple(t), sorted(set(t)), [*t], dict.fromkeys(t)),
    lambda t: (lambda a, b, *rest: (a, b, rest))(*t),
    lambda t: [index for index, _ in enumerate(t)],
    lambda t: (t[0], t[-1], t[1:3], t[::2], t[: len(t) - 1]),
    lambda t: (t * 2, t + "x", "x" + t, t.join("ab"), "".join(t), "-".join([t, t])),
    lambda t: (
        f"{t:>9}",
        f"{t!r}",
        f"{t!a}",
        "%s" % t,
        "%r" % (t,),
        "{}".format(t),
        str(t),
        repr(t),
        format(t, "<9"),
    ),
    lambda t: (f"{1.5:{t}}" if len(t) == 4 and t < "14.1" else None,),
    lambda t: (t % (), t.format(1)),
    lambda t: (int(float(t)) if t not in ("nan", "inf") else t, hash(t) == hash("14.0"), ord(t[0])),
    lambda t: dicts(**{"a" + t: 1}),
    lambda t: (getattr(torch, "x" + t, 1), hasattr(torch, t), setattr(Text("a"), "b" + t, 1)),
    lambda t: (cached(t), Text(t), type("A" + t, (), {}).__name__),
    lambda t: matched(t),
    lambda t: (t is t, t is "14.0"[:4], id(t) == id(t), isinstance(t, str), type(t)),
    lambda t: ({t: 1}, {t}, frozenset([t]), {"a": t}["a"], [t].index(t), [t].count("14.0")),
    lambda t: (
        operator.eq(t, "14.0"),
        operator.add(t, "x"),
        operator.mod("%s", t),
        operator.contains(t, "1"),
    ),
    lambda t: (re.sub(r"\d", "d", t), json.dumps({"a": t}), t.partition("."), t.isdigit()),
    lambda t: ([t] == ["14.0"], (t, 1) < ("2", 1), {"a": t} == {"a": "14.0"}),
    lambda t: (t.__add__("x"), str.__add__(t, "x"), str.join(t, ["a", "b"]), str.upper(t)),
    lambda t: (
        functools.reduce(operator.add, [t, t]),
        sum([[t], [t]], []),
        "".join(s for s in [t, "x"]),
    ),
    lambda t: (t if any([t]) else 0, all([t]), [s for s in (t, "3") if s > "2"], next(iter(t))),
]


@pytest.mark.parametrize(
    "spell",
    [lambda n: f"{n:.1f}", lambda n: str(int(n)) if n == n and n < 1e9 else "?"],
    ids=["float", "integer"],
)
@pytest.mark.parametrize("consume", CONSUMERS, ids=map(str, range(len(CONSUMERS))))
def test_who_looks_into_a_text(
    consume: Callable[[str], Any], spell: Callable[[float], str]
) -> None:
    def function(x: Tensor, logs: list[Any], metrics: dict[str, Any]) -> Any:
        return consume(spell(step(x).item())), x + 1

    compiled = stator.compile(function)
    for _ in range(2):
        for values in INPUTS:
            x = torch.tensor(values)
            found, plain = outcome(compiled, x, [], {}), outcome(function, x, [], {})
            assert addresses(found) == addresses(plain)


def addresses(text: str) -> str:
    return re.sub("0x[0-9a-f]+", "0x", text)
