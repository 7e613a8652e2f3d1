"""Outputs of every nesting, with sharing between outputs, inputs and globals."""

from __future__ import annotations

import collections
import dataclasses
import functools
import types
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import ModelOutput

from ..support.case import Corpus, one, t, two

case = Corpus()

WEIGHT = torch.ones(3, 4)
SHARED: list[Any] = [1, 2]


class Pair(NamedTuple):
    """A named tuple."""

    left: Any
    right: Any


@dataclasses.dataclass
class Result:
    """A dataclass."""

    loss: Any
    extra: Any = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class OwnOutput(ModelOutput):
    """An output class as models define them."""

    logits: Tensor | None = None
    hidden: tuple[Tensor, ...] | None = None


class Slots:
    """An object without dictionary."""

    __slots__ = ("a", "b")


@case(one)
def nothing(x: Tensor) -> None:
    x.sin()


@case(one)
def constants(x: Tensor) -> tuple[Any, ...]:
    return 1, 2.5, "s", None, True, b"b", 1j, ..., float("nan"), -0.0, (), range(3), slice(1, 2)


@case(one)
def empty_containers(x: Tensor) -> tuple[Any, ...]:
    return [], {}, (), set(), frozenset(), x


@case(two)
def deep_nesting(x: Tensor, y: Tensor) -> Any:
    return {"a": [x + y, (x - y, {"b": (x * y,)})], 3: {"c": [[[x]]]}}


@case(one)
def same_tensor_twice(x: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    y = x * 2
    return y, y, [y]


@case(one)
def input_returned(x: Tensor) -> Tensor:
    return x


@case(one)
def input_returned_in_containers(x: Tensor) -> dict[str, Any]:
    return {"x": x, "again": [x], "view": x[0], "new": x + 1}


@case(one)
def views_of_one_base(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    return y, y[0], y.t(), y.view(-1), y.detach()


@case(one)
def same_list_twice(x: Tensor) -> list[Any]:
    inner = [x]
    return [inner, inner, (inner,)]


@case(one)
def list_that_holds_itself(x: Tensor) -> list[Any]:
    loop: list[Any] = [x]
    loop.append(loop)
    return loop


@case(lambda: ([t(3), 1], {"k": t(3)}))
def argument_containers_returned(items: list[Any], d: dict[str, Any]) -> tuple[Any, ...]:
    return items, d, items[0] + d["k"], {"inner": items}


@case(one, change=lambda: SHARED.append(3))
def global_container_returned(x: Tensor) -> tuple[Any, Tensor]:
    return SHARED, x + len(SHARED)


@case(one, change=lambda: globals().update(WEIGHT=torch.zeros(3, 4)))
def global_tensor_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    return WEIGHT, x + WEIGHT


@case(one)
def named_tuple_result(x: Tensor) -> Pair:
    return Pair(x + 1, Pair([x], None))


@case(one)
def dataclass_result(x: Tensor) -> Result:
    return Result(x.sum(), {"x": x})


@case(one)
def dataclass_changed_after_construction(x: Tensor) -> Result:
    result = Result(x)
    result.loss = x * 2
    result.new = 3  # type: ignore[attr-defined]
    result.extra["k"] = x
    return result


@case(lambda: (t(3, 4, grad=True),), grad=True)
def model_output_result(x: Tensor) -> ModelOutput:
    return OwnOutput(logits=x * 2, hidden=(x + 1, x + 2))


@case(one)
def library_model_output(x: Tensor) -> tuple[Any, Any]:
    out = BaseModelOutput(last_hidden_state=x + 1)
    return out, out[0] + out["last_hidden_state"] + len(out.to_tuple()) + (out.attentions is None)


@case(one)
def objects_with_slots(x: Tensor) -> Slots:
    made = Slots()
    made.b = x + 1
    return made


@case(one)
def special_dicts(x: Tensor) -> tuple[Any, ...]:
    ordered = collections.OrderedDict(b=x, a=1)
    default: collections.defaultdict[str, Any] = collections.defaultdict(list)
    default["k"].append(x)
    return ordered, default, collections.Counter("aab"), collections.deque([x, 1], maxlen=4)


@case(one)
def bounded_deques(x: Tensor) -> Any:
    full: collections.deque[Any] = collections.deque(maxlen=2)
    for step in range(4):
        full.append(x + step)
    full.append(full)
    return full, collections.deque([1, x]), len(full)


@case(one)
def partial_with_keywords(x: Tensor) -> Any:
    scaled = functools.partial(torch.add, x + 1, alpha=2)
    again = functools.partial(scaled, x)
    return scaled.func is torch.add, scaled.args, scaled.keywords, again(), [scaled][0] is scaled


@case(one)
def namespaces(x: Tensor) -> Any:
    space = types.SimpleNamespace(a=x + 1, b=[2])
    space.c = space.b
    return space


@case(one)
def torch_return_types(x: Tensor) -> tuple[Any, ...]:
    return x.max(dim=0), torch.sort(x), x.shape, x.dtype, x.device, torch.linalg.slogdet(x @ x.t())


@case(one)
def numbers_of_shapes(x: Tensor) -> tuple[Any, ...]:
    return x.shape[0], x.numel() / 2, x.size(), x.ndim, x.dim() == 2


@case(one)
def function_result(x: Tensor) -> Any:
    k = 3

    def scaled(v: Tensor, n: int = 2) -> Tensor:
        return v * k * n

    return scaled, x


@case(one)
def closure_over_tensor_result(x: Tensor) -> Any:
    y = x * 2
    return lambda v: v + y


@case(one)
def class_result(x: Tensor) -> Any:
    return Result, type(x), int, torch.relu


@case(one)
def bound_method_result(x: Tensor) -> Any:
    return Result(x).__eq__


@case(lambda: (t(3, grad=True), t(3)), grad=True)
def some_outputs_without_gradient(x: Tensor, y: Tensor) -> tuple[Any, ...]:
    return x * y, y * 2, (x * 2).detach(), x.argmax()


@case(lambda: (t(3, 4, grad=True),), grad=True)
def outputs_that_share_history(x: Tensor) -> list[Tensor]:
    h = x.sin()
    return [h, h * 2, h.sum() + x.mean()]


@case(lambda: (t(4, 4),))
def output_is_written_by_caller_later(x: Tensor) -> tuple[Tensor, Tensor]:
    ones = torch.ones(4)
    ones.add_(1)
    return ones, x + ones


@case(one)
def fresh_containers_each_call(x: Tensor) -> tuple[list[int], Tensor]:
    made = [1, 2]
    made.append(3)
    return made, x


@case(one)
def set_of_tensors(x: Tensor) -> int:
    return len({x, x, x + 1})


@case(one)
def dict_keyed_by_objects(x: Tensor) -> dict[Any, Any]:
    return {torch.float32: x, (1, "a"): 2, None: 3, int: 4}


@case(one)
def exception_result(x: Tensor) -> Any:
    return ValueError("kept", 3), x + 1
