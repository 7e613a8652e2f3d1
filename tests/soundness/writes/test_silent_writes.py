"""Writes that versions don't count: what the table calls silent is what PyTorch doesn't count.

Every operator of PyTorch that writes to an argument, by its schema, is run on made-up arguments;
those that can't be run so are run by hand. A tensor that changed while its version didn't was written
silently, and the table has to say so: a failed replay is undone by what it says.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from stator import _stator


def tensors_in(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list):
            yield from tensors_in(value)


def writes_silently(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> bool:
    given = list(tensors_in([*args, *kwargs.values()]))
    before = [(tensor, tensor.clone(), tensor._version) for tensor in given]
    function(*args, **kwargs)

    def is_same(left: Tensor, right: Tensor) -> bool:
        return left.shape == right.shape and torch.equal(left.nan_to_num(), right.nan_to_num())

    return any(
        tensor._version == version and not is_same(tensor, old) for tensor, old, version in before
    )


def made_up(kind: str, name: str, variant: int) -> Any:
    is_index = name.startswith("ind") or name == "source_index"
    matrix = torch.zeros(4, dtype=torch.long) if is_index else torch.rand(4, 4)
    return {
        "Tensor": matrix if variant < 2 or is_index else torch.rand(4),
        "Optional[Tensor]": torch.rand(4),
        "List[Tensor]": [torch.rand(4, 4)],
        "List[Optional[Tensor]]": [torch.zeros(4, dtype=torch.long)],
        "bool": variant == 1,
        "List[int]": [4, 4],
        "str": "mean",
        "List[float]": [0.5],
        "List[number]": [0.5],
        **dict.fromkeys(("number", "float", "Optional[float]", "Optional[number]"), 0.5),
        **dict.fromkeys(("int", "Optional[int]"), 1),
    }.get(kind)


def arguments(schema: Any, variant: int) -> tuple[list[Any], dict[str, Any]]:
    args, kwargs = [], {}
    for argument in schema.arguments:
        value = made_up(str(argument.type), argument.name, variant)
        has_default = argument.has_default_value()
        if has_default and (value is None or variant == 3):
            value = argument.default_value
        if not argument.kwarg_only:
            args.append(value)
        elif argument.is_out or not has_default:
            kwargs[argument.name] = value
    return args, kwargs


def writing_operators() -> Iterator[tuple[str, Any]]:
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        known = _stator._operation("torch.ops.aten", packet)
        if not name.startswith("aten::") or known in (None, "ReadsData", "Never"):
            continue
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
        aliases = [argument.alias_info for argument in operator._schema.arguments]
        if any(alias is not None and alias.is_write for alias in aliases):
            yield packet, operator


def test_operators_that_write_silently_are_in_the_table() -> None:
    found, run = set(), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for packet, operator in writing_operators():
            for variant in range(4):
                torch.manual_seed(variant)
                args, kwargs = arguments(operator._schema, variant)
                try:
                    silent = writes_silently(operator, args, kwargs)
                except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
                    continue
                run += 1
                if silent:
                    found.add(packet)
    assert run > 1000
    missing = {name for name in found if not _stator._writes_silently(f"torch.ops.aten.{name}")}
    assert not missing
    assert {"_fused_sgd_", "kron", "native_batch_norm", "rrelu_with_noise"} <= found


def vector() -> Tensor:
    return torch.rand(3)


def one() -> Tensor:
    return torch.tensor(1.0)


SGD = dict(
    weight_decay=0.0,
    momentum=0.9,
    lr=0.1,
    dampening=0.0,
    nesterov=False,
    maximize=False,
    is_first_step=False,
)
ADAM = dict(lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8, amsgrad=True, maximize=False)
ADAGRAD = dict(lr=0.1, lr_decay=0.0, weight_decay=0.0, eps=1e-8, maximize=False)


def by_hand() -> dict[str, tuple[Callable[..., Any], list[Any], dict[str, Any]]]:
    image, running = torch.rand(2, 3, 4, 4), (vector(), vector())
    observed = [torch.ones(1, dtype=torch.long)] * 2
    return {
        "torch._fused_sgd_": (torch._fused_sgd_, [[vector()] for _ in range(3)], SGD),
        **{
            f"torch.{name}": (
                getattr(torch, name),
                [*([vector()] for _ in range(5)), [one()]],
                ADAM,
            )
            for name in ("_fused_adam_", "_fused_adamw_")
        },
        "torch._fused_adagrad_": (
            torch._fused_adagrad_,
            [*([vector()] for _ in range(3)), [one()]],
            ADAGRAD,
        ),
        "torch._amp_foreach_non_finite_check_and_unscale_": (
            torch._amp_foreach_non_finite_check_and_unscale_,
            [[vector()], torch.tensor(0.0), torch.tensor(2.0)],
            {},
        ),
        "torch._amp_update_scale_": (
            torch._amp_update_scale_,
            [torch.tensor(2.0), torch.tensor(1, dtype=torch.int32), torch.tensor(0.0), 2.0, 0.5, 2],
            {},
        ),
        "torch.nn.functional.batch_norm": (
            functional.batch_norm,
            [image, *running],
            {"training": True},
        ),
        "torch._batch_norm_impl_index": (
            torch._batch_norm_impl_index,
            [image, None, None, *running, True, 0.1, 1e-5, False],
            {},
        ),
        "torch.fused_moving_avg_obs_fake_quant": (
            torch.fused_moving_avg_obs_fake_quant,
            [
                torch.rand(3, 3),
                *observed,
                torch.rand(1),
                torch.rand(1) + 2,
                torch.rand(1),
                torch.zeros(1, dtype=torch.int),
                0.1,
                0,
                255,
                -1,
            ],
            {},
        ),
        "torch._C._nn.rrelu_with_noise": (
            torch._C._nn.rrelu_with_noise,
            [vector() - 0.5, vector(), 0.1, 0.3, True],
            {},
        ),
    }


@pytest.mark.parametrize("name", by_hand())
def test_silent_by_hand(name: str) -> None:
    assert writes_silently(*by_hand()[name])
    assert _stator._writes_silently(name)


def test_writes_that_are_counted_are_not_called_silent() -> None:
    weight = torch.rand(3, 3) * 10
    embed = functional.embedding
    assert not writes_silently(embed, [torch.tensor([0, 1]), weight], {"max_norm": 0.1})
    for name in ("torch.nn.functional.embedding", "torch.add_", "add_", "torch._foreach_add_"):
        assert not _stator._writes_silently(name)
