"""Reduced demo models: recorded and replayed against eager, bit for bit."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from differential.support.describe import describe, first_difference
from torch import Tensor, nn

from .build import MODELS, built, inputs

TRAINED = [name for name, model in MODELS.items() if model.trains]
CALLS = 4


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    api.reset()
    yield
    torch.set_num_threads(before)


def _call(target: Callable[..., Any], given: dict[str, Any]) -> Any:
    rest = dict(given)
    return target(rest.pop("x"), **rest) if "x" in rest else target(**rest)


def _state(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def _assert_same(expected: Any, found: Any) -> None:
    difference = first_difference(describe(expected), describe(found))
    assert difference is None, difference


def _loss(result: Any) -> Tensor:
    logits = result if isinstance(result, Tensor) else result.logits
    return (logits * torch.linspace(-1, 1, logits.numel()).reshape(logits.shape)).sum()


ONE_GRAPH: dict[str, Any] = {} if api.PLAIN else {"is_compiling": True}
"""Plain Python reads the data of attention masks; the path that transformers keeps for tracers doesn't."""


def _assert_replayed(compiled: Any, calls: int) -> None:
    if api.PLAIN:
        return
    assert api.native(compiled) == 0, api.reason(compiled)
    assert api.traces(compiled) == 1
    assert api.hits(compiled) == calls - 1


@pytest.mark.parametrize("name", MODELS)
def test_evaluation(name: str) -> None:
    """Equal outputs (class, fields, bits) for every call; weights and buffers stay as they are."""
    net = built(name)
    before = _state(net)
    compiled = api.compile(net, **ONE_GRAPH)
    with torch.no_grad():
        for seed in range(CALLS):
            given = inputs(name, seed)
            _assert_same(_call(net, given), _call(compiled, given))
    _assert_replayed(compiled, CALLS)
    _assert_same(before, _state(net))


@pytest.mark.parametrize("name", MODELS)
def test_default_settings(name: str) -> None:
    """The path that plain Python takes, with its graph breaks."""
    net = built(name)
    compiled = api.compile(net)
    with torch.no_grad():
        for seed in range(CALLS):
            given = inputs(name, seed)
            _assert_same(_call(net, given), _call(compiled, given))
    if not api.PLAIN:
        assert api.native(compiled) == 0, api.reason(compiled)


@pytest.mark.parametrize("name", MODELS)
def test_forward_method(name: str) -> None:
    """`model.forward = stator.compile(model.forward)`, as Hugging Face's `generate` needs it."""
    plain, net = built(name), built(name)
    compiled = api.compile(net.forward, **ONE_GRAPH)
    net.forward = compiled
    with torch.no_grad():
        for seed in range(CALLS):
            given = inputs(name, seed)
            _assert_same(_call(plain, given), _call(net, given))
    _assert_replayed(compiled, CALLS)


@pytest.mark.parametrize("name", ["gpt2", "bert", "resnet18"])
def test_function_over_a_global_model(name: str) -> None:
    net = built(name)
    compiled = api.compile(lambda given: _call(net, given), **ONE_GRAPH)
    with torch.no_grad():
        for seed in range(3):
            given = inputs(name, seed)
            _assert_same(_call(net, given), compiled(given))
    _assert_replayed(compiled, 3)


@pytest.mark.parametrize("name", MODELS)
def test_other_batch_size(name: str) -> None:
    net = built(name)
    compiled = api.compile(net, **ONE_GRAPH)
    with torch.no_grad():
        for rows in (2, 1, 2, 1):
            given = {
                key: value[:rows] if isinstance(value, Tensor) else value
                for key, value in inputs(name, rows).items()
            }
            _assert_same(_call(net, given), _call(compiled, given))
    if not api.PLAIN:
        assert api.native(compiled) == 0, api.reason(compiled)


@pytest.mark.parametrize("name", TRAINED)
def test_training_gradients(name: str) -> None:
    """Gradients and BatchNorm buffers after each of three steps with updates in between."""
    plain, ours = built(name).train(), built(name).train()
    compiled = api.compile(ours, **ONE_GRAPH)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.01) for net in (plain, ours)]
    for step in range(3):
        given = inputs(name, step)
        results = []
        for target, optimizer in zip((plain, compiled), optimizers, strict=True):
            torch.manual_seed(50 + step)
            optimizer.zero_grad()
            result = _call(target, given)
            _loss(result).backward()  # type: ignore[no-untyped-call]
            results.append(result)
        _assert_same(results[0], results[1])
        for (key, expected), found in zip(plain.named_parameters(), ours.parameters(), strict=True):
            assert (expected.grad is None) == (found.grad is None), key
            if expected.grad is not None and found.grad is not None:
                assert torch.equal(expected.grad, found.grad), f"step {step}: {key}"
        for (key, expected), found in zip(plain.named_buffers(), ours.buffers(), strict=True):
            assert torch.equal(expected, found), f"step {step}: {key}"
        for optimizer in optimizers:
            optimizer.step()
    _assert_replayed(compiled, 3)
    _assert_same(_state(plain), _state(ours))


def test_dropout_under_equal_seeds() -> None:
    plain, ours = built("bert").train(), built("bert").train()
    compiled = api.compile(ours)
    for step in range(3):
        given = inputs("bert", step)
        torch.manual_seed(70 + step)
        expected = plain(**given)
        after = torch.rand(3)
        torch.manual_seed(70 + step)
        found = compiled(**given)
        assert torch.equal(torch.rand(3), after), "the replay drew another amount of numbers"
        _assert_same(expected, found)


def test_train_and_eval_alternate() -> None:
    plain, ours = built("resnet18"), built("resnet18")
    compiled = api.compile(ours)
    for step in range(6):
        training = step % 2 == 0
        plain.train(training)
        ours.train(training)
        given = inputs("resnet18", step)
        with torch.no_grad():
            _assert_same(plain(given["x"]), compiled(given["x"]))
    _assert_same(_state(plain), _state(ours))
    if not api.PLAIN:
        assert api.traces(compiled) == 2


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_weights_changed_between_calls(name: str) -> None:
    net = built(name)
    compiled = api.compile(net)
    given = inputs(name, 0)
    with torch.no_grad():
        for step in range(4):
            _assert_same(net(**given), compiled(**given))
            for parameter in net.parameters():
                parameter.mul_(1.0 - 0.1 * step)
        for parameter in net.parameters():
            parameter.data = parameter.data.clone()
        _assert_same(net(**given), compiled(**given))
        net.double()
        _assert_same(net(**given), compiled(**given))


def test_wrapper_passes_everything_through() -> None:
    net = built("resnet18")
    compiled = api.compile(net)
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert [name for name, _ in compiled.named_parameters()] == [
        name for name, _ in net.named_parameters()
    ]
    compiled.train()
    assert net.training
    compiled.eval()
    assert not net.training
    x = inputs("resnet18", 0)["x"]
    with torch.no_grad():
        expected = net(x)
        compiled(x)
        for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
            assert torch.equal(other(x), expected)
            assert torch.equal(other(x), expected)
        handle = compiled.register_forward_hook(lambda module, args, out: out * 2)
        assert torch.equal(compiled(x), expected * 2)
        handle.remove()
        assert torch.equal(compiled(x), expected)
        compiled.to(torch.float64)
        assert compiled(x.double()).dtype is torch.float64


@pytest.mark.slow
def test_generation() -> None:
    """Greedy decoding through the compiled forward."""
    net = built("gpt2")
    given = inputs("gpt2", 3)
    given.pop("use_cache")
    options: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    with torch.no_grad():
        expected = net.generate(**given, **options)  # type: ignore[operator]
        net.forward = api.compile(net.forward)
        found = net.generate(**given, **options)  # type: ignore[operator]
    assert torch.equal(expected, found)
