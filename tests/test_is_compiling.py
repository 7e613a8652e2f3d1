"""`torch.compiler.is_compiling()` tells what runs: plain code, unless somebody asked for tracers' path."""

from __future__ import annotations

import functools
import itertools
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from stator.errors import OptionError
from stator.programs import TensorProgram, TensorSpec

X = torch.arange(3.0)

ASKED = {"is_compiling": True}
"""The settings that ask for tracers' path and allow graph breaks."""


@pytest.fixture(params=[True, False], ids=["users' floor", "replayed"])
def _floor(request: pytest.FixtureRequest) -> Iterator[None]:
    with stator.config.patch(skip_unprofitable=request.param):
        yield


def questions() -> list[Callable[[], bool]]:
    """All functions of installed libraries that say whether a compiler is at work."""
    import torch._dynamo
    from torch.distributed._functional_collectives import is_torchdynamo_compiling

    found: list[Callable[[], bool]] = [
        stator.is_compiling,
        torch.compiler.is_compiling,
        torch.compiler.is_dynamo_compiling,
        torch.compiler.is_exporting,
        torch._utils.is_compiling,
        torch._dynamo.is_compiling,
        torch._dynamo.external_utils.is_compiling,
        is_torchdynamo_compiling,
    ]
    try:
        from transformers.utils import import_utils
    except ImportError:
        return found
    return [*found, import_utils.is_torchdynamo_compiling, import_utils.is_torchdynamo_exporting]


def name(question: Callable[[], bool]) -> str:
    return f"{question.__module__}.{question.__qualname__}"


@pytest.mark.parametrize("question", questions(), ids=name)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:.*is deprecated")
def test_every_relative(question: Callable[[], bool]) -> None:
    def fn(x: Tensor) -> Tensor:
        return x + 1 if question() else x - 1

    for settings, expected in (
        ({}, X - 1),
        ({"is_compiling": False, "fullgraph": True}, X - 1),
        (ASKED, X + 1),
        ({"fullgraph": True}, X + 1),
    ):
        compiled = stator.compile(fn, **settings)
        for _ in range(3):
            assert torch.equal(compiled(X), expected)
        assert stator.stats(compiled).hits == 2, stator.stats(compiled).reason
    assert question() is False


def test_tensor_programs_take_the_tracers_path() -> None:
    program = TensorProgram.trace(
        lambda x: x + 1 if torch.compiler.is_compiling() and stator.is_compiling() else x - 1,
        (TensorSpec(torch.float32, [3]),),
    )
    (found,) = program(X)
    assert torch.equal(found, X + 1)
    assert not torch.compiler.is_compiling()


def where_am_i() -> tuple[bool, bool]:
    return torch.compiler.is_compiling(), stator.is_compiling()


class Told:
    """What was answered where."""

    def __init__(self) -> None:
        self.answers: list[tuple[bool, bool]] = []

    def note(self, x: Tensor) -> Tensor:
        self.answers.append(where_am_i())
        return x


@pytest.mark.usefixtures("_floor")
@pytest.mark.parametrize("settings", [{}, ASKED], ids=["default", "asked"])
def test_the_same_wherever_code_of_the_call_runs(settings: dict[str, Any]) -> None:
    """Recorded, before and behind breaks, called back by C code, and natively."""
    told = Told()

    def fn(x: Tensor) -> Tensor:
        y = told.note(x * 2)
        stator.graph_break()
        y = told.note(y + 1)
        # C code that calls back: some that Stator knows, and some that it doesn't, which is a break.
        list(map(told.note, [y, y]))
        y.apply_(lambda value: [told.note(x), value + 1][1])
        return told.note(y)

    compiled = stator.compile(fn, **settings)
    for _ in range(4):
        told.answers.clear()
        compiled(X.clone())
        assert set(told.answers) == {(settings == ASKED,) * 2}
        assert len(told.answers) == 8
    assert where_am_i() == (False, False)


@pytest.mark.parametrize("settings", [{}, ASKED], ids=["default", "asked"])
def test_native_calls(settings: dict[str, Any]) -> None:
    """Beyond the recompile limit, and where nothing can be traced."""
    told = Told()

    def varying(x: Tensor, text: str) -> Tensor:
        return told.note(x * len(text))

    def untraceable(x: Tensor, text: str) -> Tensor:
        for _ in itertools.islice(range(9), len(text)):  # nothing can be resumed beside it
            sys.stdout.write("")
            x = told.note(x)
        return x

    for fn in (varying, untraceable):
        compiled = stator.compile(fn, recompile_limit=1, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for text in ("a", "bc", "def", "a"):
                compiled(X, text)
    assert set(told.answers) == {(settings == ASKED,) * 2}


def test_what_is_disabled_is_plain() -> None:
    told = Told()
    disabled = [
        stator.disable(told.note),
        stator.disable(lambda x: told.note(x), recursive=False),
        torch.compiler.disable(lambda x: told.note(x)),
    ]

    def fn(x: Tensor, odd: bool) -> Tensor:
        for function in disabled:
            x = function(x * 2)
        return x if odd else x + 1

    compiled = stator.compile(fn, recompile_limit=1, is_compiling=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for odd in (True, True, False):
            compiled(X, odd)
    assert told.answers == [(False, False)] * 9
    with stator.set_stance("force_eager"):
        compiled(X, True)
    assert told.answers == [(False, False)] * 12


def test_other_threads_are_not_told() -> None:
    seen = []

    def fn(x: Tensor) -> Tensor:
        thread = threading.Thread(target=lambda: seen.append(where_am_i()))
        thread.start()
        thread.join()
        return x + 1 if torch.compiler.is_compiling() else x

    compiled = stator.compile(fn, is_compiling=True)
    for _ in range(3):
        assert torch.equal(compiled(X), X + 1)
    assert seen == [(False, False)] * 3


def test_the_answer_is_part_of_the_key(caplog: pytest.LogCaptureFixture) -> None:
    """One compiled function, called by itself and from native code of a call that asked."""
    inner = stator.compile(lambda value: X + value if torch.compiler.is_compiling() else X - value)
    results: list[Tensor] = []

    def outer(x: Tensor) -> Tensor:
        # C code that Stator doesn't know: what it calls back runs natively.
        return x.apply_(lambda value: [results.append(inner(2.0)), value][1])

    outers = {True: stator.compile(outer, is_compiling=True), False: stator.compile(outer)}
    stator.set_logs(recompiles=True)
    caplog.set_level(logging.INFO, "stator")
    for _ in range(3):
        for asked, compiled in outers.items():
            results.clear()
            compiled(torch.ones(2))
            assert len(results) == 2
            assert all(torch.equal(found, X + 2 if asked else X - 2) for found in results)
            assert torch.equal(inner(2.0), X - 2)
    assert stator.stats(inner).traces == 2
    (text,) = caplog.messages
    assert "- torch.compiler.is_compiling() == True  # found False" in text


def test_a_flag_that_somebody_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.export` sets PyTorch's own flag; a replay looks at it."""
    compiled = stator.compile(lambda x: x + 1 if torch.compiler.is_compiling() else x - 1)
    for _ in range(2):
        for flag in (False, True):
            monkeypatch.setattr(torch.compiler, "_is_compiling_flag", flag)
            assert torch.equal(compiled(X), X + 1 if flag else X - 1)
    assert stator.stats(compiled).traces == 2
    monkeypatch.setattr(torch.compiler, "_is_compiling_flag", False)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert torch.equal(compiled(X), X + 1)


def test_data_that_the_plain_path_reads_is_logged_with_the_question(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stator.set_logs(graph_breaks=True)
    caplog.set_level(logging.INFO, "stator")

    def fn(x: Tensor) -> Tensor:
        y = x * x.sum().tolist()
        if not torch.compiler.is_compiling() and (y.sum() > 0).tolist():
            y = y + 1
        return y

    compiled = stator.compile(fn)
    assert torch.equal(compiled(X), X * 3 + 1)
    first, second = caplog.messages
    assert "SB002" in first and "Note:" not in first
    line = fn.__code__.co_firstlineno + 2
    assert f"{Path(__file__).name}:{line} in {fn.__qualname__}" in second.partition("Note: ")[2]
    assert "is_compiling=True" in second.splitlines()[-1]
    caplog.clear()
    stator.compile(fn, is_compiling=True)(X)
    assert not any("Note:" in text for text in caplog.messages)


def test_settings_are_checked() -> None:
    with pytest.raises(OptionError, match="is_compiling takes True, False or None, not 1"):
        stator.compile(lambda x: x, is_compiling=1)  # type: ignore[call-overload]


# --- results are plain Python's to the bit ------------------------------------------------------------

OPTIMIZERS = {
    "Adadelta": torch.optim.Adadelta,
    "Adagrad": torch.optim.Adagrad,
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
    "Adamax": torch.optim.Adamax,
    "ASGD": torch.optim.ASGD,
    "NAdam": torch.optim.NAdam,
    "RAdam": torch.optim.RAdam,
    "RMSprop": torch.optim.RMSprop,
    "Rprop": torch.optim.Rprop,
    "SGD": functools.partial(torch.optim.SGD, momentum=0.9),
}


@pytest.mark.usefixtures("_floor")
@pytest.mark.parametrize("foreach", [None, True], ids=["default", "foreach"])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_optimizers_step_as_in_plain_python(kind: str, foreach: bool | None) -> None:
    def train(wrap: Callable[[Any], Any]) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = OPTIMIZERS[kind](model.parameters(), foreach=foreach)
        step = wrap(optimizer.step)
        seen = []
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().sum().backward()  # type: ignore[no-untyped-call]
            step()
            seen += [p.detach().clone() for p in model.parameters()]
        for state in optimizer.state_dict()["state"].values():
            seen += [value for value in state.values() if isinstance(value, Tensor)]
        return seen

    plain, ours = train(lambda step: step), train(stator.compile)
    assert len(plain) == len(ours) and all(map(torch.equal, plain, ours))


@pytest.mark.usefixtures("_floor")
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_encoder_with_a_padding_mask(nested: bool) -> None:
    """In plain PyTorch a nested tensor, so places that are padded become zeros."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()
    compiled = stator.compile(model)
    for lengths in ([3, 5], [3, 5], [5, 2], [3, 5]):
        x = torch.randn(2, 5, 8)
        mask = torch.arange(5) >= torch.tensor(lengths)[:, None]
        with torch.no_grad():
            expected = model(x, src_key_padding_mask=mask)
            assert torch.equal(compiled(x, src_key_padding_mask=mask), expected)
        assert bool((expected[mask] == 0).all()) == nested
