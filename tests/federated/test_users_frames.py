"""Errors in learning: tracebacks and notes have the user's frames, and nobody else's."""

from __future__ import annotations

import copy
import enum
import functools
import inspect
import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stator.federated as fl

pytest.importorskip("torch")

import torch
from torch import nn

from stator.errors import ProgramError
from stator.federated import aggregators, execution, framework, learning, program
from stator.programs import TensorProgram, TensorSpec

from .classifiers import classifier, drawn_clients


class Net(nn.Module):
    """A model with something wrong in its `forward`."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.wrong = wrong

    def forward(self, x: Any) -> Any:
        if self.wrong == "sizes":
            return self.linear(x[:, :2])
        if self.wrong == "data" and x.sum() > 0:
            return self.linear(x * 2)
        if self.wrong == "raises":
            raise KeyError("mine")
        if self.wrong == "reads":
            open(__file__).close()
        return self.linear(x)


def frames_of(error: BaseException) -> list[str]:
    """The functions in a traceback; those of PyTorch's modules as `torch`."""
    of_torch = str(Path(torch.__file__).parent)
    frames = [each for each in traceback.extract_tb(error.__traceback__)][1:]
    for each in frames:
        assert each.filename == __file__ or each.filename.startswith(of_torch), each
    return [each.name if each.filename == __file__ else "torch" for each in frames]


def said(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


BUILDERS: list[Callable[[learning.Model], Any]] = [
    learning.build_fed_avg,
    learning.build_fed_sgd,
    learning.build_fed_adam,
    learning.build_evaluation,
    lambda model: learning.build_fed_prox(model, proximal_strength=0.1),
    lambda model: learning.build_personalization(model, steps=1),
    lambda model: learning.build_scaffold(model, clients=3),
]


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        ("sizes", RuntimeError, r"\[\?, 2\]"),
        ("data", ProgramError, "x.sum"),
        ("raises", KeyError, "mine"),
        ("reads", ProgramError, "open"),
    ],
)
def test_what_a_model_does_is_said_of_it(build: Any, wrong: str, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text) as failed:
        build(classifier(Net(wrong), 4))
    found = frames_of(failed.value)
    in_model = found.index("forward")
    assert found[:in_model] in ([], ["<lambda>"])
    if wrong == "sizes":
        found = [name for name in found if name in ("forward", "<lambda>")]
    assert found[-1] == "forward"
    told = said(failed.value)
    assert "_processes.py" not in told
    assert "module.py" not in told
    assert "`result=`" not in told


def test_what_a_round_does_is_said_of_the_client() -> None:
    process = learning.build_fed_avg(classifier(Net(""), 4))
    state = process.initialize()
    rows = drawn_clients((6, 3), 0)
    rows[1]["labels"] = rows[1]["labels"] + 7
    for run in (process.next, lambda state, rows: process.run(state, [rows])):
        with pytest.raises(IndexError, match="out of bounds") as failed:
            run(state, rows)
        assert set(frames_of(failed.value)) <= {"<lambda>"}
        [note, client] = failed.value.__notes__
        # All of it is the library's and PyTorch's: there is no line of the user's.
        assert note.startswith("In a tensor program: ")
        assert "\n" not in note
        assert client == "at client 1"


@pytest.mark.parametrize(
    "call",
    [
        lambda: learning.build_fed_avg(3),
        lambda: learning.build_fed_avg(classifier(Net(""), 4), client_optimizer=3),
        lambda: learning.Model(3, 3, 3, 3),
        lambda: learning.UniformSampler(3, 4),
        lambda: learning.adam(learning_rate=-1),
        lambda: learning.yogi(beta2=1.0),
        lambda: learning.adagrad(tau=float("nan")),
        lambda: learning.sgd(momentum=float("inf")),
        lambda: learning.train(3, 3, rounds=1),
        lambda: learning.load_state(3, "nowhere"),
        lambda: aggregators.MeanFactory(3),
        lambda: aggregators.MeanFactory().create(3),
        lambda: aggregators.TrimmedMeanFactory(0.7),
        lambda: aggregators.clipping_factory(-1.0, aggregators.MeanFactory()),
        lambda: aggregators.DifferentiallyPrivateFactory.gaussian_fixed(-1, 1, 1, 1),
    ],
)
def test_what_is_given_is_said_where_it_is_given(call: Callable[[], Any]) -> None:
    with pytest.raises(Exception, match=r"\w") as failed:
        call()
    assert frames_of(failed.value) == ["<lambda>"]


def test_functions_are_what_they_were() -> None:
    build = learning.build_fed_avg
    assert build.__name__ == "build_fed_avg"
    assert build.__doc__.startswith("Federated averaging")
    assert pickle.loads(pickle.dumps(build)) is copy.deepcopy(build) is build
    assert "build_fed_avg" in repr(build)
    model = classifier(Net(""), 4)
    again = pickle.loads(pickle.dumps(learning.UniformSampler(4, 2)))
    assert again == learning.UniformSampler(4, 2)
    assert learning.IterativeProcess.run.__get__(None, learning.IterativeProcess).__name__ == "run"
    assert model.rows_type == classifier(Net(""), 4).rows_type


def product(x: Any, y: Any) -> Any:
    return x @ y


def within_a_block(x: Any, y: Any) -> Any:
    with torch.no_grad():
        return product(x, y)


def within_finally(x: Any, y: Any) -> Any:
    try:
        return product(x, y)
    finally:
        x = y


def said_otherwise(x: Any, y: Any) -> Any:
    try:
        return product(x, y)
    except RuntimeError as error:
        raise ValueError("these don't fit") from error


def swallowed(x: Any, y: Any) -> Any:
    try:
        return product(x, y)
    except RuntimeError:
        return x


def tried_again(x: Any, y: Any) -> Any:
    for size in (4, 3, 2):
        try:
            return product(x[:, :size], y)
        except RuntimeError:
            continue
    return x


SPECS = (TensorSpec(torch.float32, (3, 4)), TensorSpec(torch.float32, (2, 4)))


@pytest.mark.parametrize("function", [product, within_a_block, within_finally])
def test_what_an_operation_raises_is_the_users(function: Any) -> None:
    with pytest.raises(RuntimeError, match=r"\[3, 4\]") as failed:
        TensorProgram.trace(function, SPECS)
    assert not isinstance(failed.value, ProgramError)
    assert frames_of(failed.value)[-1] == "product"


def test_what_a_handler_raises_is_the_users() -> None:
    with pytest.raises(ValueError, match="don't fit") as failed:
        TensorProgram.trace(said_otherwise, SPECS)
    assert isinstance(failed.value.__cause__, RuntimeError)


@pytest.mark.parametrize("function", [swallowed, tried_again])
def test_what_a_handler_catches_is_refused_with_its_reason(function: Any) -> None:
    with pytest.raises(ProgramError, match=r"raised an exception: .*\[3, ") as failed:
        TensorProgram.trace(function, SPECS)
    assert failed.value.id == "SB007"
    assert "product" in str(failed.value)
    # The next trace knows nothing of it.
    fits = (SPECS[0], TensorSpec(torch.float32, (4, 2)))
    traced = TensorProgram.trace(function, fits)
    x, y = torch.ones(3, 4), torch.ones(4, 2)
    assert torch.equal(traced(x, y)[0], function(x, y))


def test_local_computations_of_users_name_their_lines() -> None:
    net = nn.Sequential(nn.Linear(4, 3))
    of = fl.to_type(
        {"x": fl.TensorType(np.float32, [None, 4]), "y": fl.TensorType(np.int64, [None])}
    )

    @fl.local_computation(of)
    def loss(rows: Any) -> Any:
        given = dict(net.named_parameters())
        out = torch.func.functional_call(net, given, (rows["x"],))
        return nn.functional.cross_entropy(out, rows["y"])

    with pytest.raises(IndexError) as failed:
        loss({"x": np.ones((2, 4), np.float32), "y": np.array([0, 9])})
    told = said(failed.value)
    assert 'nn.functional.cross_entropy(out, rows["y"])' in told
    assert "torch/nn" not in told


def test_code_without_a_file_is_the_users() -> None:
    """What was typed in, or given with `python -c`, is in no file."""
    namespace: dict[str, Any] = {}
    code = (
        "from torch import nn\n"
        "class Typed(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear = nn.Linear(4, 3)\n"
        "    def forward(self, x):\n"
        "        raise KeyError('typed')\n"
    )
    for name in ("<string>", "<stdin>"):
        exec(compile(code, name, "exec"), namespace)
        with pytest.raises(KeyError, match="typed") as failed:
            learning.build_fed_avg(classifier(namespace["Typed"](), 4))
        frames = traceback.extract_tb(failed.value.__traceback__)
        assert [each.filename for each in frames] == [__file__, name]
        assert frames[-1].name == "forward"


PACKAGES: list[Any] = [fl, framework, execution, aggregators, learning, learning.metrics, program]


def public_calls() -> Iterator[Any]:
    """Calls of all that users call, with what is nothing for it in the place of one argument."""
    nothing, seen = object(), set()
    for package in PACKAGES:
        for name in package.__all__:
            called: Any = getattr(package, name)
            is_error = isinstance(called, type) and issubclass(called, (BaseException, enum.Enum))
            is_type = type(called).__module__ == "typing" or getattr(called, "_is_protocol", False)
            # What takes anything, and keeps it for all.
            is_kept = name.startswith(("set_", "register_"))
            if not callable(called) or is_error or is_type or is_kept or id(called) in seen:
                continue
            seen.add(id(called))
            try:
                taken = inspect.signature(called).parameters.values()
            except (TypeError, ValueError):
                taken = {}.values()
            needed = {
                each.name: nothing
                for each in taken
                if each.default is each.empty
                and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
            }
            wrong = [{**needed, each.name: nothing} for each in taken if each.name in needed][:1]
            wrong += [{**needed, each.name: nothing} for each in taken if each.name not in needed]
            for number, given in enumerate([{"no_such_argument": nothing}, *wrong]):
                call = functools.partial(called, **given)
                yield pytest.param(call, id=f"{package.__name__}.{name}-{number}")


@pytest.mark.parametrize("call", list(public_calls()))
def test_errors_of_arguments_end_in_the_users_frame(call: Callable[[], Any]) -> None:
    try:
        made = call()
    except Exception as error:
        assert frames_of(error) == []
    else:
        if inspect.iscoroutine(made):
            made.close()
