"""`stator.compile` on every kind of object, the other names of the package, and their errors."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import inspect
import logging
import math
import pickle
import re
import subprocess
import sys
import traceback
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator import _targets, _warnings

X = torch.ones(3)


def add(x, y=2, *rest, scale=1, **named):
    """Adds."""
    return x + y * scale


@stator.compile
def decorated(x):
    return x * 2


class Scale:
    """A class with every kind of method."""

    def __init__(self, factor):
        self.factor = factor

    @stator.compile
    def method(self, x):
        return x * self.factor

    @stator.compile(recompile_limit=3)
    def method_with_arguments(self, x):
        return x * self.factor

    @stator.compile
    @staticmethod
    def outside_static(x):
        return x + 1

    @staticmethod
    @stator.compile
    def inside_static(x):
        return x + 1

    @stator.compile
    @classmethod
    def outside_class(cls, x):
        return x, cls

    @classmethod
    @stator.compile
    def inside_class(cls, x):
        return x, cls

    @property
    @stator.compile
    def doubled(self):
        return X * self.factor * 2

    def __call__(self, x):
        """Scales."""
        return x * self.factor


class Child(Scale):
    def method(self, x):
        return super().method(x) + 1


def same(actual: Any, expected: Any) -> None:
    """Equality that works on tensors."""
    assert torch.equal(torch.as_tensor(actual), torch.as_tensor(expected))


def calls(compiled: object) -> int:
    """How many calls went through the compiled function."""
    stats = stator.stats(compiled)
    return stats.traces + stats.hits + stats.native


def test_function_keeps_what_describes_it() -> None:
    compiled = stator.compile(add)
    assert compiled.__name__ == "add"
    assert compiled.__qualname__ == "add"
    assert compiled.__module__ == __name__
    assert compiled.__doc__ == "Adds."
    assert compiled.__wrapped__ is add
    assert inspect.signature(compiled) == inspect.signature(add)
    assert inspect.unwrap(compiled) is add
    assert callable(compiled)


def test_arguments_arrive_as_they_were_passed() -> None:
    compiled = stator.compile(add)
    for _ in range(2):
        same(compiled(X), X + 2)
        same(compiled(X, 3), X + 3)
        same(compiled(x=X, y=3, scale=2), X + 6)
        same(compiled(X, 3, 4, scale=2, other=1), X + 6)
    assert calls(compiled) == 8


def test_nothing_happens_before_the_first_call() -> None:
    compiled = stator.compile(add)
    assert calls(compiled) == 0
    compiled(X)
    assert stator.stats(compiled).traces == 1


def test_decorator_forms() -> None:
    @stator.compile
    def plain(x):
        return x + 1

    @stator.compile()
    def empty(x):
        return x + 1

    @stator.compile(fullgraph=True, dynamic=False, recompile_limit=2)
    def with_arguments(x):
        return x + 1

    for compiled in (plain, empty, with_arguments):
        same(compiled(X), X + 1)
        assert calls(compiled) == 1


def test_lambda() -> None:
    compiled = stator.compile(lambda x: x + 1)
    same(compiled(X), X + 1)
    assert compiled.__name__ == "<lambda>"


def test_methods_in_class_bodies() -> None:
    scale = Scale(3)
    for _ in range(2):
        same(scale.method(X), X * 3)
        same(Scale.method(scale, X), X * 3)
        same(scale.method_with_arguments(X), X * 3)
        same(scale.outside_static(X), X + 1)
        same(Scale.outside_static(X), X + 1)
        same(scale.inside_static(X), X + 1)
        assert scale.outside_class(X)[1] is Scale
        assert Child.outside_class(X)[1] is Child
        assert Child(1).inside_class(X)[1] is Child
        same(scale.doubled, X * 6)
        same(Child(2).method(X), X * 2 + 1)
    assert scale.method.__self__ is scale
    assert inspect.signature(scale.method) == inspect.signature(lambda x: x)
    assert inspect.ismethod(scale.method)


def test_bound_method_stays_one() -> None:
    scale = Scale(3)
    compiled = stator.compile(scale.__call__)
    assert inspect.ismethod(compiled)
    assert compiled.__self__ is scale
    assert compiled.__name__ == "__call__"
    same(compiled(X), X * 3)
    assert calls(compiled) == 1


def test_callable_object() -> None:
    scale = Scale(3)
    compiled = stator.compile(scale)
    same(compiled(X), X * 3)
    scale.factor = 4
    same(compiled(X), X * 4)
    assert calls(compiled) == 2
    assert compiled.__doc__ == "Scales."
    assert inspect.signature(compiled) == inspect.signature(scale)


def test_callable_object_with_static_call() -> None:
    class Static:
        @staticmethod
        def __call__(x):
            return x + 1

    class OfClass:
        @classmethod
        def __call__(cls, x):
            return x + 1, cls

    same(stator.compile(Static())(X), X + 1)
    assert stator.compile(OfClass())(X)[1] is OfClass


def test_callable_object_whose_call_is_compiled_already() -> None:
    class Ready:
        @stator.compile
        def __call__(self, x):
            return x + 1

    ready = Ready()
    assert stator.compile(ready) is ready
    same(ready(X), X + 1)
    assert calls(ready) == 1


def test_partial() -> None:
    original = functools.partial(add, y=5)
    compiled = stator.compile(original)
    assert isinstance(compiled, functools.partial)
    assert compiled.__wrapped__ is original
    assert inspect.signature(compiled) == inspect.signature(original)
    same(compiled(X), X + 5)
    same(compiled(X, y=1), X + 1)
    assert calls(compiled) == 2
    nested = stator.compile(functools.partial(Scale(3).__call__, X))
    same(nested(), X * 3)


def test_compiling_twice_is_compiling_once() -> None:
    scale = Scale(3)
    for target in (add, scale, functools.partial(add, y=5)):
        compiled = stator.compile(target)
        again = stator.compile(compiled)
        again(X)
        assert calls(compiled) == 1
    compiled = stator.compile(add)
    assert stator.compile(compiled) is compiled
    assert stator.compile(compiled, backend="eager") is compiled


def test_compiling_again_with_other_settings() -> None:
    compiled = stator.compile(add)
    other = stator.compile(compiled, recompile_limit=2)
    assert other is not compiled
    assert other.__wrapped__ is add
    assert stator.compile(other, recompile_limit=2) is other


def test_disable_argument_returns_the_target() -> None:
    assert stator.compile(add, disable=True) is add
    assert stator.compile(disable=True)(add) is add


async def coroutine(x):
    return x + 1


async def async_generator(x):
    yield x + 1


def generator(x):
    yield x + 1


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (generator, "a generator function"),
        (coroutine, "an async function"),
        (async_generator, "an async generator function"),
    ],
)
def test_suspending_functions_run_natively(
    function: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    stator.set_logs(graph_breaks=True)
    with caplog.at_level(logging.INFO, "stator"):
        assert stator.compile(function) is function
    name = function.__name__
    assert caplog.messages == [
        f"SB013 a generator or coroutine function\n  What: {name} is {kind}, so it runs natively"
    ]
    with pytest.raises(stator.GraphBreakError) as raised:
        stator.compile(function, fullgraph=True)
    assert raised.value.id == "SB013"


def test_async_function_still_is_one() -> None:
    compiled = stator.compile(coroutine)
    assert inspect.iscoroutinefunction(compiled)
    same(asyncio.run(compiled(X)), X + 1)


@pytest.mark.parametrize("function", [len, math.sqrt, torch.add, X.add, str.upper, [].append])
def test_callables_written_in_c_are_returned(function: Any) -> None:
    assert stator.compile(function) is function


def test_the_rows_of_the_break_table_are_those_of_the_native_side() -> None:
    table = (Path(__file__).parent.parent / "crates/tracer/src/breaks.rs").read_text()
    for id, what in (_targets._UNSUPPORTED, _targets._SUSPENDABLE):
        assert f'"{id}" "{what}"' in table


def test_stats_say_what_they_are() -> None:
    compiled = stator.compile(add)
    compiled(X)
    stats = stator.stats(compiled)
    names = [name for name in dir(stats) if not name.startswith("_")]
    shown = repr(stats)
    assert shown.startswith("Stats(traces=1, hits=0, ") and shown.endswith(")")
    assert all(f"{name}={getattr(stats, name)!r}" in shown for name in names)


def test_stats_of_what_is_not_compiled() -> None:
    with pytest.raises(stator.errors.NotCompilableError):
        stator.stats(add)
    with pytest.raises(stator.errors.NotCompilableError):
        stator.stats(3)


def test_reset_forgets_every_trace() -> None:
    one, two = stator.compile(add), stator.compile(lambda x: x)
    one(X)
    two(X)
    stator.reset()
    assert calls(one) == calls(two) == 0
    same(one(X), X + 2)
    assert stator.stats(one).traces == 1


def test_is_compiling_is_false_outside() -> None:
    assert stator.is_compiling() is False


def test_backends_are_listed_by_name() -> None:
    names = stator.list_backends()
    assert "eager" in names
    assert all(isinstance(name, str) for name in names)


def test_pickling() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    elsewhere = stator.compile(add, recompile_limit=3)
    loaded = pickle.loads(pickle.dumps(elsewhere))
    assert loaded.__wrapped__ is add
    same(loaded(X), X + 2)
    partial = pickle.loads(pickle.dumps(stator.compile(functools.partial(add, y=5))))
    same(partial(X), X + 5)


def test_copies_are_the_function_itself() -> None:
    compiled = stator.compile(add)
    assert copy.copy(compiled) is compiled
    assert copy.deepcopy([compiled])[0] is compiled


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        return self.inner(x)


def test_forward_replaced_by_its_compiled_self() -> None:
    model = Linear()
    expected = model(X)
    model.forward = stator.compile(model.forward)
    same(model(X), expected)
    assert calls(model.forward) == 1
    assert list(inspect.signature(model.forward).parameters) == ["x"]

    twin = copy.deepcopy(model)
    assert twin.forward.__self__ is twin
    with torch.no_grad():
        twin.inner.weight.zero_()
    assert not torch.equal(twin(X), model(X))
    same(model(X), expected)

    loaded = pickle.loads(pickle.dumps(model))
    assert loaded.forward.__self__ is loaded
    same(loaded(X), expected)


@pytest.mark.parametrize("recursive", [True, False])
def test_disable_leaves_the_function_as_it_is(recursive: bool) -> None:
    disabled = stator.disable(add, recursive, reason="it is slow")
    assert disabled is not add
    assert disabled.__wrapped__ is add
    assert not hasattr(add, "__stator_disable__")
    assert disabled.__name__ == "add"
    assert inspect.signature(disabled) == inspect.signature(add)
    same(disabled(X, scale=3), X + 6)


def test_disable_forms() -> None:
    class Owner:
        @stator.disable
        def method(self, x):
            return x + 1

        @stator.disable(reason="why not")
        @classmethod
        def of_class(cls, x):
            return x, cls

    same(Owner().method(X), X + 1)
    assert Owner.of_class(X)[1] is Owner
    assert isinstance(stator.disable(Owner().method), types.MethodType)
    assert stator.disable(stator.compile(add)).__wrapped__ is add


def test_disable_keeps_closures_and_keyword_defaults() -> None:
    offset = 4

    @stator.disable
    def inner(x, *, twice=False):
        return x + offset * (1 + twice)

    same(inner(X), X + 4)
    same(inner(X, twice=True), X + 8)


def test_config_patch_restores() -> None:
    before = stator.config.recompile_limit
    with stator.config.patch(recompile_limit=2):
        assert stator.config.recompile_limit == 2
    assert stator.config.recompile_limit == before == 8


def test_recompile_limit_warning_names_the_users_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _warnings.recompile_limit("fn", "script.py", 3, 8, "L['b'] == 'Hello'")
    (warning,) = caught
    assert warning.category is stator.RecompileLimitWarning
    assert (warning.filename, warning.lineno) == ("script.py", 3)
    assert str(warning.message) == (
        "fn was traced 8 times, which is its recompile_limit; other inputs run natively from now "
        "on. The last failing guard: L['b'] == 'Hello'. See every one with STATOR_LOGS=recompiles. "
        "If so many traces are meant, raise the limit: stator.compile(..., recompile_limit=16) or "
        "stator.config.recompile_limit = 16."
    )


def test_wrong_arguments_get_the_functions_own_error() -> None:
    def needs_one(x):
        return x

    for wrong in ((), (1, 2)):
        with pytest.raises(TypeError) as plain:
            needs_one(*wrong)
        with pytest.raises(TypeError) as compiled:
            stator.compile(needs_one)(*wrong)
        assert str(compiled.value) == str(plain.value)


def _assign(name: str, value: Any) -> None:
    setattr(stator.config, name, value)


def _fail_on_recompile() -> None:
    with stator.set_stance("fail_on_recompile"):
        stator.compile(add)(X)


def _prints(x: Any) -> Any:
    print(x)
    return x


# What a user can get wrong, each with the message it gets: tests/golden/errors.txt.
MISTAKES = {
    "compile(3)": lambda: stator.compile(3),
    "compile('inductor')": lambda: stator.compile("inductor"),
    "compile(Scale)": lambda: stator.compile(Scale),
    "compile(property)": lambda: stator.compile(property(add)),
    "compile(add, mode=..., options=...)": lambda: stator.compile(add, mode="m", options={"o": 1}),
    "compile(add, recompile_limit=0)": lambda: stator.compile(add, recompile_limit=0),
    "compile(add, fullgraph=1)": lambda: stator.compile(add, fullgraph=1),
    "compile(add, when='never')": lambda: stator.compile(add, when="never"),
    "compile(add, verify='last')": lambda: stator.compile(add, verify="last"),
    "compile(add, tier='replay')": lambda: stator.compile(add, tier="replay"),
    "compile(add, dynamic='yes')": lambda: stator.compile(add, dynamic="yes"),
    "compile(generator, fullgraph=True)": lambda: stator.compile(generator, fullgraph=True),
    "disable(3)": lambda: stator.disable(3),
    "export(print)": lambda: stator.export(_prints, (1,)),
    "export(3)": lambda: stator.export(3, ()),
    "export(add, 3)": lambda: stator.export(add, 3),
    "allow_in_graph(3)": lambda: stator.allow_in_graph(3),
    "set_stance('eager')": lambda: stator.set_stance("eager"),
    "substitute_in_graph(3)": lambda: stator.substitute_in_graph(3),
    "substitute_in_graph(len)(3)": lambda: stator.substitute_in_graph(len)(3),
    "substitute_in_graph(len)(add)": lambda: stator.substitute_in_graph(len)(add),
    "compile(add)(X)": lambda: _fail_on_recompile(),
    "stats(print)": lambda: stator.stats(print),
    "config.recompile_limti = 3": lambda: _assign("recompile_limti", 3),
    "config.recompile_limti": lambda: stator.config.recompile_limti,
    "config.recompile_limit = 'many'": lambda: _assign("recompile_limit", "many"),
    "config.skip_unprofitable = 1": lambda: _assign("skip_unprofitable", 1),
    "set_logs(gards=True)": lambda: stator.set_logs(gards=True),
    "set_logs(guards='loud')": lambda: stator.set_logs(guards="loud"),
}


def test_messages(golden: Any) -> None:
    lines = []
    for title, mistake in MISTAKES.items():
        with pytest.raises(stator.StatorError) as raised:
            mistake()
        lines += [f"stator.{title}", f"{type(raised.value).__name__}: {raised.value}", ""]
    text = "\n".join(lines).replace(__file__, "test_api.py")
    golden("errors", re.sub(r"line \d+", "line N", text))


# Public functions given something that is nothing for them; what they are may be Python's own error.
UNFIT = {
    "allow_in_graph": lambda: stator.allow_in_graph(3),
    "assume_constant_result": lambda: stator.assume_constant_result(3),
    "compile": lambda: stator.compile(add, bakend="fx"),
    "disable": lambda: stator.disable(3),
    "export": lambda: stator.export(add, (1,), dynamic=True),
    "graph_break": lambda: stator.graph_break(3),
    "install": lambda: stator.install(3),
    "installed": lambda: stator.installed(3),
    "is_compiling": lambda: stator.is_compiling(3),
    "list_backends": lambda: stator.list_backends(3),
    "load_traces": lambda: stator.load_traces(3),
    "mark_dynamic": lambda: stator.mark_dynamic(3, 0),
    "mark_static": lambda: stator.mark_static(3),
    "maybe_mark_dynamic": lambda: stator.maybe_mark_dynamic(3, 0),
    "register_backend": lambda: stator.register_backend(3),
    "reset": lambda: stator.reset(3),
    "save_traces": lambda: stator.save_traces(3),
    "set_logs": lambda: stator.set_logs(guards=3),
    "set_stance": lambda: stator.set_stance("eager"),
    "stats": lambda: stator.stats(3),
    "substitute_in_graph": lambda: stator.substitute_in_graph(3),
    "uninstall": lambda: stator.uninstall(3),
    "wait": lambda: stator.wait(3),
    "config": lambda: stator.config.patch(strict=3),
    "compile()()": lambda: stator.compile(backend="indctor")(add),
}


def test_every_public_function_is_given_what_is_nothing_for_it() -> None:
    functions = {name for name in stator.__all__ if name.islower()} - {"errors", "federated"}
    assert functions | {"compile()()"} == set(UNFIT)


@pytest.mark.parametrize("title", [*MISTAKES, *UNFIT])
def test_errors_end_in_the_users_frame(title: str) -> None:
    mistake = {**MISTAKES, **UNFIT}[title]
    with pytest.raises(Exception) as raised:
        mistake()
    files = {frame.filename for frame in traceback.extract_tb(raised.value.__traceback__)}
    assert files - {contextlib.__file__} == {__file__}


def test_every_error_class_has_a_message_in_the_tests(golden: Any) -> None:
    shown = {type(error) for error in map(_error_of, MISTAKES.values())}
    tested_elsewhere = {
        stator.StatorError,
        stator.errors.AmbiguousArraysError,  # in tests/federated
        stator.errors.ApiError,
        stator.errors.BackendError,  # with the backends
        stator.DynamicDimensionError,  # in tests/dynamic
        stator.errors.MarkError,
        stator.errors.InternalError,
        stator.errors.ProgramError,  # in tests/programs
        stator.errors.ProgramInputError,
        stator.errors.SpecError,
    }
    assert shown | tested_elsewhere == {
        getattr(stator.errors, name) for name in stator.errors.__all__
    }


def _error_of(mistake: Any) -> Exception:
    with pytest.raises(stator.StatorError) as raised:
        mistake()
    return raised.value


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (stator.errors.BackendError, ValueError),
        (stator.errors.ConfigError, AttributeError),
        (stator.errors.LogError, ValueError),
        (stator.errors.NotCompilableError, TypeError),
        (stator.errors.OptionError, ValueError),
    ],
)
def test_api_errors_are_the_builtin_ones_too(error: type, builtin: type) -> None:
    assert issubclass(error, stator.errors.ApiError)
    assert issubclass(error, builtin)


def test_graph_break_error_shows_the_users_stack(tmp_path: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text("def fn(x):\n    return x.tolist()\n")
    error = stator.GraphBreakError(
        "tensor_data",
        "x.tolist() reads the data of a tensor.",
        "Move it behind the compiled function.",
        [(str(script), 2, "fn")],
        "A guard can't speak of it.",
    )
    assert str(error) == (
        "This function can't be one graph: x.tolist() reads the data of a tensor.\n"
        f'  File "{script}", line 2, in fn\n'
        "    return x.tolist()\n"
        "Why: A guard can't speak of it.\n"
        "Hint: Move it behind the compiled function.\n"
        "(graph break 'tensor_data', see python -m stator explain tensor_data; only with fullgraph=True is it an error)"
    )
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_internal_error_says_what_to_report() -> None:
    text = str(stator.errors.InternalError("a node without a user"))
    assert text.startswith("Stator has a bug: a node without a user\n")
    assert f"stator {stator.__version__}" in text
    assert f"torch {torch.__version__}" in text
    assert "disable=True" in text


def test_all_names_exist() -> None:
    assert len(set(stator.__all__)) == len(stator.__all__)
    for name in stator.__all__:
        assert getattr(stator, name).__doc__, name


def test_import_without_torch() -> None:
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import stator\n"
        "assert stator.compile(lambda x: x + 1)(1) == 2\n"
        "assert not [name for name in sys.modules if name.startswith('torch.')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_import_brings_nothing_that_only_errors_and_caches_need() -> None:
    """Of the standard library: together these take as long as all else that Stator imports."""
    late = (
        "difflib",
        "hashlib",
        "hmac",
        "secrets",
        "shutil",
        "tempfile",
        "urllib.parse",
        "asyncio",
    )
    program = (
        "import sys\n"
        "import numpy\n"
        "before = set(sys.modules)\n"
        "import stator, stator.federated\n"
        f"found = (set(sys.modules) - before) & set({late!r})\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_compile_reads_pytorchs_state_for_the_first_call() -> None:
    program = (
        "import torch, stator\n"
        "reads = []\n"
        "engine = torch._C._get_qengine\n"
        "torch._C._get_qengine = lambda: reads.append(1) or engine()\n"
        "fast = stator.compile(lambda x: x + 1)\n"
        "assert reads\n"
        "reads.clear()\n"
        "with torch.no_grad():\n"
        "    fast(torch.ones(2))\n"
        "fast(torch.ones(2))\n"
        "assert not reads\n"
        "assert stator.stats(fast).traces == 2\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
