"""Warnings and log records: side effects, given again by replays as plain Python gives them."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator import _testing

X = torch.arange(1.0, 4.0)
LOG = logging.getLogger("stator-test-told")
CHILD = LOG.getChild("child")
EVENTS: list[Any] = []
STATE: dict[str, Any] = {"n": 0}


class Keeper(logging.Handler):
    """Keeps records, as most tests' handlers do."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class Looker(logging.Handler):
    """Code of the user's own: it sees what the program works with."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append((record.getMessage(), list(EVENTS), dict(STATE)))


class Changer(logging.Handler):
    """As [`Looker`]; it also changes it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        STATE["n"] += 1
        EVENTS.append(record.getMessage())
        self.records.append(record.getMessage())


CHANGING = {"created", "msecs", "relativeCreated", "thread", "threadName", "process", "taskName"}


def described(record: Any) -> Any:
    if not isinstance(record, logging.LogRecord):
        return record
    fields = {key: value for key, value in vars(record).items() if key not in CHANGING}
    if record.exc_info:
        fields["exc_info"] = record.exc_info[:2]
    return record.getMessage(), {key: repr(value) for key, value in fields.items()}


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    """A logger and warning filters that nobody else has touched."""
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    before = logging.raiseExceptions
    with warnings.catch_warnings():
        yield
    logging.raiseExceptions = before
    logging.disable(logging.NOTSET)
    for logger in (LOG, CHILD):
        logger.handlers.clear()
        logger.filters.clear()
        logger.disabled = False
        logger.propagate = logger is CHILD
    CHILD.setLevel(logging.NOTSET)
    stator.set_logs(side_effects=False)


def fresh() -> None:
    EVENTS.clear()
    STATE.clear()
    STATE["n"] = 0
    globals().pop("__warningregistry__", None)


class Seen:
    """What a few calls of a function give, the steps of `between` in between."""

    def __init__(
        self,
        function: Callable[..., Any],
        handler: Callable[[], Any],
        between: list[Callable[[], Any]],
        action: str | None,
    ) -> None:
        fresh()
        LOG.setLevel(logging.INFO)
        self.all: list[Any] = []
        made = handler()
        LOG.handlers[:] = [made]
        with warnings.catch_warnings(record=True) as given:
            if action is not None:
                warnings.simplefilter(action)  # type: ignore[arg-type]
            for step in [lambda: None, *between]:
                step()
                try:
                    result: Any = function(X).tolist()
                except Exception as error:
                    frames = traceback.extract_tb(error.__traceback__)[1:]
                    result = type(error), str(error), [(f.name, f.lineno) for f in frames]
                told = [(str(w.message), w.category, w.filename, w.lineno) for w in given]
                records = list(map(described, getattr(made, "records", ())))
                stream = getattr(made, "stream", None)
                written = stream.getvalue() if isinstance(stream, io.StringIO) else ""
                self.all.append((result, told, records, written, list(EVENTS), dict(STATE)))
                given.clear()


NOTHING: list[Callable[[], Any]] = [lambda: None, lambda: None]


def agree(
    function: Callable[..., Any],
    handler: Callable[[], Any] = Keeper,
    between: list[Callable[[], Any]] | None = None,
    action: str | None = "always",
    **options: Any,
) -> Any:
    """Compares with plain Python, call by call; the counters."""
    steps = NOTHING if between is None else between
    compiled = stator.compile(function, **options)
    # From one line, because it is on the stack that records show.
    plain, found = (Seen(each, handler, steps, action) for each in (function, compiled))
    for expected, got in zip(plain.all, found.all, strict=True):
        assert expected == got, stator.stats(compiled).reason
    fresh()
    return stator.stats(compiled)


# What is given


def helper(x: Tensor, k: int) -> Tensor:
    warnings.warn("inner", stacklevel=2)
    warnings.warn("outer", DeprecationWarning, 3)
    LOG.info("helper %d", k, stacklevel=2)
    return x + k


def levels(x: Tensor) -> Tensor:
    LOG.debug("unseen %s", x)
    LOG.info("info %s", x.shape[0])
    LOG.warning("warning %s %s", 1, "two")
    LOG.error("error %(a)s", {"a": 1})
    LOG.critical("critical")
    LOG.log(35, "between")
    return x * 2


def in_a_loop(x: Tensor) -> Tensor:
    for i in range(3):
        x = x * 2
        LOG.info("round %d", i)
        warnings.warn(f"round {i}")
    return x


def in_try(x: Tensor) -> Tensor:
    try:
        LOG.info("try")
        warnings.warn("in try")
        raise ValueError("v")
    except ValueError:
        LOG.info("except")
        x = x + 1
    finally:
        warnings.warn("finally")
    return x


def inlined(x: Tensor) -> Tensor:
    return helper(helper(x, 1), 2)


class Module(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        warnings.warn("forward", FutureWarning)
        LOG.info("forward of %s", type(self))
        return x * 3


MODULE = Module()


def in_a_module(x: Tensor) -> Tensor:
    return MODULE(x)  # type: ignore[no-any-return]


def of_a_child(x: Tensor) -> Tensor:
    CHILD.info("child")
    return x + 1


def with_extra(x: Tensor) -> Tensor:
    LOG.info("extra", extra={"k": [1, 2]})
    LOG.info("stack", stack_info=True)
    LOG.info("lists %s %s", [1, (2, "x")], {"a": None})
    return x + 1


def by_an_adapter(x: Tensor) -> Tensor:
    logging.LoggerAdapter(LOG, {"who": "me"}).warning("adapted %s", 1)
    return x + 1


def asks(x: Tensor) -> Tensor:
    if LOG.isEnabledFor(logging.INFO):
        LOG.info("enabled at %d", LOG.getEffectiveLevel())
        x = x + 1
    return x


def explicit(x: Tensor) -> Tensor:
    warnings.warn_explicit("elsewhere", RuntimeWarning, "file.py", 7)
    warnings.warn_explicit("there", UserWarning, "file.py", 8, module="m")
    return x + 1


def nested_functions(x: Tensor) -> Tensor:
    def inner(y: Tensor) -> Tensor:
        LOG.info("inner")
        warnings.warn("inner", stacklevel=2)
        return y * 2

    return inner(x) + inner(x + 1)


def by_a_key(x: Tensor) -> Tensor:
    def key(k: int) -> int:
        LOG.info("key %d", k, stack_info=True)
        return -k

    return x * sorted([1, 2], key=key)[0]


def in_comprehensions(x: Tensor) -> Tensor:
    k = 2
    [LOG.info("item %d of %d", i, k) for i in range(2)]
    list(map(LOG.info, ["mapped", "too"]))
    return x + sum([LOG.isEnabledFor(20) for i in range(k)])


EFFECTS = [
    in_comprehensions,
    levels,
    in_a_loop,
    in_try,
    inlined,
    in_a_module,
    of_a_child,
    with_extra,
    by_an_adapter,
    asks,
    explicit,
    nested_functions,
    by_a_key,
]


@pytest.mark.parametrize("function", EFFECTS)
def test_they_are_effects(function: Callable[[Tensor], Tensor]) -> None:
    stats = agree(function, fullgraph=True)
    assert (stats.graphs, stats.hits, stats.breaks) == (1, 2, 0), stats.reason


@pytest.mark.parametrize("function", EFFECTS)
@pytest.mark.parametrize("handler", [Looker, Changer])
def test_handlers_of_the_users_own(function: Any, handler: Any) -> None:
    """The graph is cut where they are told; that's no error, unless what is behind it is one."""
    agree(function, handler)
    if function not in (in_a_loop, in_try, in_comprehensions):
        agree(function, handler, fullgraph=True)


@pytest.mark.parametrize("function", EFFECTS)
def test_streams(function: Callable[[Tensor], Tensor]) -> None:
    def handler() -> Any:
        made = logging.StreamHandler(io.StringIO())
        made.setFormatter(logging.Formatter("%(funcName)s %(lineno)d %(message)s %(stack_info)s"))
        return made

    stats = agree(function, handler, fullgraph=True)
    assert stats.graphs == 1


@pytest.mark.parametrize("function", EFFECTS)
@pytest.mark.parametrize("action", ["default", "once", "module", "ignore", "always", "error"])
def test_filters(function: Any, action: str) -> None:
    agree(function, action=action)


@pytest.mark.parametrize("function", EFFECTS)
def test_a_break_before_and_behind(function: Callable[[Tensor], Tensor]) -> None:
    def broken(x: Tensor) -> Tensor:
        stator.graph_break()
        y = function(x + 1)
        stator.graph_break()
        return y * 2

    stats = agree(broken)
    assert stats.native == 0, stats.reason


@pytest.mark.parametrize("function", EFFECTS)
def test_a_break_before_every_instruction(function: Callable[[Tensor], Tensor]) -> None:
    with _testing.break_everywhere():
        agree(function)


def within(x: Tensor) -> Tensor:
    stator.graph_break()
    warnings.warn("two levels up", stacklevel=2)
    LOG.info("behind a break", stack_info=True)
    return x + 1


def test_a_frame_that_broke() -> None:
    """What is given behind a break is given from the frames that were made again."""

    def calls(x: Tensor) -> Tensor:
        y = within(x) * 2
        warnings.warn("here")
        return y

    stats = agree(calls)
    assert stats.native == 0 and stats.breaks == 1


# What it depends on


def test_levels_that_change() -> None:
    steps: list[Callable[[], Any]] = [
        lambda: None,
        lambda: LOG.setLevel(logging.ERROR),
        lambda: None,
        lambda: LOG.setLevel(logging.DEBUG),
        lambda: None,
        lambda: LOG.setLevel(logging.INFO),
        lambda: logging.disable(logging.WARNING),
        lambda: logging.disable(logging.NOTSET),
        lambda: setattr(LOG, "disabled", True),
        lambda: setattr(LOG, "disabled", False),
    ]

    def no_tensors(x: Tensor) -> Tensor:
        LOG.debug("debug")
        LOG.info("info")
        LOG.error("error")
        CHILD.info("child")
        return x + 1

    agree(no_tensors, between=steps)
    agree(levels, between=steps[:3])
    agree(asks, between=steps)


def test_other_loggers_do_not_matter() -> None:
    """Each `setLevel` empties the caches of all loggers."""
    other = logging.getLogger("stator-test-other")
    steps = [lambda: other.setLevel(10), lambda: other.setLevel(20), lambda: other.setLevel(30)]
    stats = agree(levels, between=steps)
    assert (stats.traces, stats.hits) == (1, 3)


def test_a_level_set_behind_its_back() -> None:
    """The logger knows it by its cache alone, which other loggers' levels empty."""
    other = logging.getLogger("stator-test-other")
    steps: list[Callable[[], Any]] = [
        lambda: setattr(LOG, "level", logging.ERROR),
        lambda: None,
        lambda: other.setLevel(10),
        lambda: None,
        lambda: setattr(LOG, "level", logging.DEBUG),
    ]
    agree(asks, between=steps)
    agree(in_try, between=steps)


def test_handlers_that_change() -> None:
    def add(handler: logging.Handler) -> Callable[[], None]:
        return lambda: LOG.addHandler(handler)

    stats = agree(levels, between=[add(Looker()), lambda: LOG.handlers.pop(), lambda: None])
    assert stats.traces == 1 and stats.hits == 2
    steps = [add(Changer()), lambda: None, lambda: LOG.handlers.clear()]
    logging.raiseExceptions = False
    agree(in_a_loop, between=steps)


def test_filters_of_loggers() -> None:
    def only(record: logging.LogRecord) -> bool:
        return record.levelno > logging.INFO

    steps = [lambda: LOG.addFilter(only), lambda: None, lambda: LOG.removeFilter(only)]
    agree(levels, between=steps)


def test_filters_that_change() -> None:
    steps: list[Callable[[], Any]] = [
        lambda: None,
        lambda: warnings.simplefilter("ignore"),
        lambda: warnings.simplefilter("error"),
        lambda: warnings.simplefilter("error", DeprecationWarning),
        lambda: warnings.filterwarnings("ignore", "inn"),
        lambda: warnings.filterwarnings("error", "round 1"),
        lambda: warnings.resetwarnings(),
        lambda: warnings.simplefilter("always"),
    ]
    for function in (in_a_loop, inlined, in_try, in_a_module):
        agree(function, between=steps)


def test_an_error_is_the_users() -> None:
    """Its place, its handlers, and what was done before."""

    def fn(x: Tensor) -> Tensor:
        STATE["n"] += 1
        try:
            warnings.warn("to be caught")
        except UserWarning as error:
            EVENTS.append(str(error))
        STATE["n"] += 10
        warnings.warn("not to be caught")
        EVENTS.append("never")
        return x + 1

    steps: list[Callable[[], Any]] = [
        lambda: None,
        lambda: warnings.simplefilter("error"),
        lambda: None,
        lambda: warnings.simplefilter("always"),
    ]
    agree(fn, between=steps)
    agree(fn, action="error")


def test_showwarning_of_the_users_own() -> None:
    def show(message: Any, category: Any, filename: Any, lineno: Any, *rest: Any) -> None:
        EVENTS.append((str(message), category, filename, lineno, dict(STATE)))
        STATE["n"] += 1

    def fn(x: Tensor) -> Tensor:
        STATE["n"] += 1
        warnings.warn("first")
        x = x + STATE["n"]
        warnings.warn("second")
        return x * STATE["n"]

    def install() -> None:
        warnings.showwarning = show

    agree(fn, between=[install, lambda: None, lambda: None])


# Order


def test_order_with_writes() -> None:
    class Appends(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            EVENTS.append(record.getMessage())

    def fn(x: Tensor) -> Tensor:
        EVENTS.append("a")
        LOG.info("b")
        EVENTS.append("c")
        STATE["n"] += 1
        LOG.info("d")
        EVENTS.append("e")
        return x + 1

    for handler in (Appends, Looker, Changer):
        agree(fn, handler, fullgraph=True)


def test_what_a_handler_changes_is_seen() -> None:
    def fn(x: Tensor) -> Tensor:
        before = STATE["n"]
        LOG.info("n is %d", before)
        return x * (STATE["n"] + 1) + before + len(EVENTS)

    agree(fn, Changer, fullgraph=True, between=NOTHING * 2)


def test_kept_in_a_list_that_is_read() -> None:
    handler = Keeper()

    def fn(x: Tensor) -> Tensor:
        LOG.info("one")
        x = x * (len(handler.records) + 1)
        LOG.info("two")
        return x

    def clear() -> Keeper:
        handler.records.clear()
        return handler

    agree(fn, clear)


def test_recorded_warnings_that_are_read() -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        def fn(x: Tensor, given: list[Any]) -> Tensor:
            warnings.warn("counted")
            return x * len(given)

        fn = wrap(fn)
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            return [fn(X, given).tolist() for _ in range(4)]

    assert run(stator.compile) == run(lambda fn: fn)


def test_kept_in_another_list_each_time() -> None:
    """Replayed, as long as it's none that the trace knows."""
    known: list[Any] = []
    keeper = Keeper()

    def fn(x: Tensor) -> Tensor:
        LOG.info("kept")
        return x * (len(known) + 1)

    LOG.handlers[:] = [keeper]
    compiled = stator.compile(fn)
    for _ in range(4):
        keeper.records = []
        assert torch.equal(compiled(X), X) and len(keeper.records) == 1
    assert stator.stats(compiled).hits == 3
    keeper.records = known
    for call in range(1, 4):
        assert torch.equal(compiled(X), X * (call + 1)) and len(known) == call


def test_an_argument_that_changes_behind_it() -> None:
    def fn(x: Tensor) -> Tensor:
        history = [1]
        LOG.info("history %s", history)
        history.append(2)
        LOG.info("history %s", history)
        return x + sum(history)

    agree(fn, between=NOTHING * 2)


def test_an_outside_argument() -> None:
    STATE["log"] = [1]

    def fn(x: Tensor) -> Tensor:
        EVENTS.append(1)
        LOG.info("events %s", EVENTS)
        EVENTS.append(2)
        return x + len(EVENTS)

    agree(fn, between=NOTHING * 2)


def test_sizes_that_are_symbols() -> None:
    def fn(x: Tensor) -> Tensor:
        n = x.shape[0]
        LOG.info("size %d %s %s", n, [n + 1], x.shape)
        warnings.warn(f"size {n}")
        if n > 5:
            LOG.info("large", extra={"size": n * 2})
        return x + n

    keeper = Keeper()
    LOG.handlers[:] = [keeper]
    compiled = stator.compile(fn)
    for size in (3, 4, 5, 6, 7, 8, 4):
        told = []
        for each in (fn, compiled):
            keeper.records = []
            with warnings.catch_warnings(record=True) as given:
                warnings.simplefilter("always")
                assert torch.equal(each(torch.ones(size)), torch.ones(size) + size)
            told.append((list(map(described, keeper.records)), [str(w.message) for w in given]))
        assert told[0] == told[1]


# What breaks the graph


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (LOG.info("tensor %s", x), x + 1)[1],
        lambda x: (LOG.info("sum %s", [x.sum()]), x + 1)[1],
        lambda x: (LOG.info("extra", extra={"t": x}), x + 1)[1],
    ],
)
def test_tensors_in_records(function: Callable[[Tensor], Tensor]) -> None:
    assert agree(function, fullgraph=True).graphs == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (warnings.warn(f"{x}"), x + 1)[1],
        lambda x: (warnings.warn(f"{x.sum().item()}"), x + 1)[1],
    ],
)
def test_tensors_are_breaks(function: Callable[[Tensor], Tensor]) -> None:
    stats = agree(function)
    assert stats.breaks >= 1
    LOG.handlers[:] = [Keeper()]
    with pytest.raises(stator.GraphBreakError) as raised:
        stator.compile(function, fullgraph=True)(X)
    assert raised.value.id == "SB002"


def test_tensors_that_nobody_is_told_of() -> None:
    stats = agree(lambda x: (LOG.debug("tensor %s", x), x + 1)[1], fullgraph=True)
    assert stats.graphs == 1


class Named:
    def __str__(self) -> str:
        EVENTS.append("asked")
        return f"n is {STATE['n']}"


NAMED = Named()


class Category(UserWarning):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        EVENTS.append("made")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (LOG.info("object %s", NAMED), x + 1)[1],
        lambda x: (LOG.info(NAMED), x + 1)[1],
        lambda x: (warnings.warn("w", Category), x + 1)[1],
        lambda x: (warnings.warn(UserWarning("made")), x + 1)[1],
        lambda x: (warnings.warn(Category("made")), x + 1)[1],
    ],
)
def test_code_of_the_users_own(function: Callable[[Tensor], Tensor]) -> None:
    agree(function)


def test_exceptions() -> None:
    def fn(x: Tensor) -> Tensor:
        try:
            raise ValueError("v")
        except ValueError:
            LOG.exception("caught")
        return x + 1

    agree(fn)


def test_calls_that_fail() -> None:
    agree(lambda x: (warnings.warn("w", int), x + 1)[1])  # type: ignore[arg-type]
    agree(lambda x: (LOG.info("m", extra={"message": 1}), x + 1)[1])
    agree(lambda x: (LOG.log("no level", "m"), x + 1)[1])  # type: ignore[arg-type]


# Libraries


def test_functions_of_the_module() -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    keeper = Keeper()
    root.handlers[:] = [keeper]
    root.setLevel(logging.INFO)
    try:

        def fn(x: Tensor) -> Tensor:
            logging.info("of the module")
            logging.debug("unseen")
            logging.log(40, "at %d", 40)
            return x + 1

        compiled = stator.compile(fn, fullgraph=True)
        for call in range(1, 4):
            fn(X)
            compiled(X)
            assert len(keeper.records) == 4 * call
            plain, found = keeper.records[-4:-2], keeper.records[-2:]
            assert [*map(described, plain)] == [*map(described, found)]
        assert stator.stats(compiled).hits == 2
    finally:
        root.handlers[:], _ = before
        root.setLevel(before[1])


@functools.lru_cache(None)
def warn_once(self: logging.Logger, *args: Any) -> None:
    self.warning(*args)


def test_once() -> None:
    """As libraries of models have it."""

    def fn(x: Tensor) -> Tensor:
        warn_once(LOG, "only once")
        return x + 1

    def run(fn: Any) -> list[int]:
        warn_once.cache_clear()
        keeper = Keeper()
        LOG.handlers[:] = [keeper]
        counts = []
        for call in range(6):
            if call == 3:
                warn_once.cache_clear()
            fn(X)
            counts.append(len(keeper.records))
        return counts

    compiled = stator.compile(fn, fullgraph=True)
    assert run(compiled) == run(fn) == [1, 1, 1, 2, 2, 2]
    assert stator.stats(compiled).hits >= 3


# Logs


def test_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    def fn(x: Tensor) -> Tensor:
        STATE["n"] = 1
        LOG.info("hello %d", 1)
        warnings.warn("careful", FutureWarning)
        STATE["m"] = 2
        return x + 1

    fresh()
    LOG.handlers[:] = [Keeper()]
    listed = Keeper()
    log = logging.getLogger("stator.side_effects")
    log.addHandler(listed)
    try:
        stator.set_logs(side_effects=True)
        with warnings.catch_warnings(record=True):
            stator.compile(fn)(X)
    finally:
        log.removeHandler(listed)
    lines = listed.records[0].getMessage().splitlines()
    assert [line.split("  #")[0] for line in lines] == [
        "G['STATE']['n']",
        "logging.getLogger('stator-test-told').log(20, 'hello %d')",
        "warnings.warn('careful', FutureWarning)",
        "G['STATE']['m']",
    ]
    assert 'LOG.info("hello %d", 1)' in lines[1] and "warnings.warn" in lines[2]


def test_standard_error() -> None:
    def fn(x: Tensor) -> Tensor:
        warnings.warn("printed", FutureWarning)
        return x + 1

    def run(fn: Any) -> str:
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()) as printed:
            warnings.simplefilter("always")
            warnings.showwarning = warnings._showwarning_orig  # type: ignore[attr-defined]
            for _ in range(3):
                fn(X)
        return printed.getvalue()

    compiled = stator.compile(fn, fullgraph=True)
    assert run(compiled) == run(fn)
