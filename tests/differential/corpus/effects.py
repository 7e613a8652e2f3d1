"""What can't be traced, and writes to outside state: right results and right effects, each call."""

from __future__ import annotations

import io
import logging
import os
import random
import sys
import tempfile
import time
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from ..support.case import Corpus, one, t

case = Corpus()

COUNT = 0
HISTORY: list[Any] = []
CACHE: dict[str, Any] = {}
SEEN: set[int] = set()


class Holder:
    """An object to write to."""

    total = 0

    def __init__(self) -> None:
        self.n = 0
        self.log: list[Any] = []

    def step(self, x: Tensor) -> Tensor:
        self.n += 1
        return x * self.n


HOLDER = Holder()


@case(one, expect="native")
def print_text(x: Tensor) -> Tensor:
    y = x + 2
    print("Hi")
    return y + x


@case(one)
def print_tensor(x: Tensor) -> Tensor:
    print("x =", x.sum())
    return x


@case(one)
def item(x: Tensor) -> Tensor:
    return x * x.sum().item()


@case(one)
def tolist(x: Tensor) -> list[Any]:
    return [sum(row) for row in x.tolist()]


@case(one, expect="native")
def float_of_tensor(x: Tensor) -> Tensor:
    return x + float(x.mean()) + int(x.abs().sum()) + bool(x[0, 0] > 0) + complex(x[0, 0]).real


@case(one)
def format_tensor(x: Tensor) -> str:
    return f"{x.sum():.3f} {x[0, 0]}"


@case(one)
def repr_of_tensor(x: Tensor) -> str:
    return repr(x) + str(x.t())


@case(one)
def allclose(x: Tensor) -> bool:
    return torch.allclose(x, x.abs(), atol=3.5)


@case(one, expect="any")
def numpy_array(x: Tensor) -> Any:
    return float(x.numpy().sum())


@case(one, expect="any")
def write_global(x: Tensor) -> Tensor:
    global COUNT
    COUNT += 1
    return x * COUNT


@case(one, expect="any")
def write_global_without_reading(x: Tensor) -> Tensor:
    global COUNT
    COUNT = 5
    return x + 1


@case(one, expect="any")
def write_global_tensor(x: Tensor) -> Tensor:
    CACHE["last"] = x * 2
    return x + 1


@case(one, expect="any")
def append_to_global(x: Tensor) -> Tensor:
    HISTORY.append(x.shape[0])
    return x + len(HISTORY)


@case(one, expect="any")
def append_tensor_to_global(x: Tensor) -> Tensor:
    HISTORY.append(x * 2)
    return x + 1


@case(one, expect="any")
def fill_cache_once(x: Tensor) -> Tensor:
    if "table" not in CACHE:
        CACHE["table"] = torch.arange(4.0)
    return x + CACHE["table"]


@case(one, expect="any")
def add_to_global_set(x: Tensor) -> Tensor:
    SEEN.add(len(SEEN))
    return x * len(SEEN)


@case(one, expect="any")
def delete_global(x: Tensor) -> Tensor:
    globals()["TEMPORARY"] = 3
    y = x * TEMPORARY  # type: ignore[name-defined] # noqa: F821
    del globals()["TEMPORARY"]
    return y


@case(one, expect="any")
def write_attribute_of_global(x: Tensor) -> Tensor:
    HOLDER.n += 1
    HOLDER.last = x.shape  # type: ignore[attr-defined]
    return x * HOLDER.n


@case(one, expect="any")
def method_counts(x: Tensor) -> Tensor:
    return HOLDER.step(x) + HOLDER.step(x)


@case(one, expect="any")
def write_class_attribute(x: Tensor) -> Tensor:
    Holder.total += 1
    return x * Holder.total


@case(lambda: (t(3), Holder()), expect="any")
def write_attribute_of_argument(x: Tensor, h: Holder) -> Tensor:
    h.n += 1
    h.result = x * 2  # type: ignore[attr-defined]
    return x + h.n


@case(lambda: (t(3), Holder()), keep=True, expect="any", change=lambda x, h: setattr(h, "n", 100))
def write_attribute_of_kept_argument(x: Tensor, h: Holder) -> Tensor:
    h.n += 1
    return x * h.n


@case(lambda: (t(3), Holder()), expect="any")
def write_then_read_attribute(x: Tensor, h: Holder) -> Tensor:
    h.n = 5
    y = x * h.n
    h.n = 6
    return y + h.n


@case(lambda: (t(3), Holder()), expect="any")
def delete_attribute_of_argument(x: Tensor, h: Holder) -> Tensor:
    del h.n
    h.log.append("deleted")
    return x + hasattr(h, "n")


@case(lambda: (t(3), [1]), expect="any")
def append_to_argument(x: Tensor, items: list[Any]) -> Tensor:
    items.append(x * 2)
    items.append(len(items))
    return x + items[-1]


@case(lambda: (t(3), [1]), keep=True, expect="any", change=lambda x, items: items.clear())
def append_to_kept_argument(x: Tensor, items: list[Any]) -> Tensor:
    items.append(len(items))
    return x * len(items)


@case(lambda: (t(3), [3, 1, 2]), expect="any")
def sort_argument(x: Tensor, items: list[int]) -> Tensor:
    items.sort()
    items[0] = 10
    del items[1]
    return x * items[0] + items[1]


@case(lambda: (t(3), {"a": 1}), expect="any")
def write_items_of_argument(x: Tensor, d: dict[str, Any]) -> Tensor:
    d["b"] = x + 1
    d["a"] += 1
    d.pop("zzz", None)
    return x * d["a"]


@case(lambda: (t(3), {"a": 1, "b": 2}), expect="any")
def pop_from_argument(x: Tensor, d: dict[str, Any]) -> Tensor:
    return x * d.pop("a") + len(d)


@case(lambda: (t(3), {1, 2}), expect="any")
def change_set_argument(x: Tensor, s: set[int]) -> Tensor:
    s.add(3)
    s.discard(1)
    return x + len(s)


@case(lambda: (t(3), [t(3)]), expect="any")
def in_place_add_to_list_element(x: Tensor, items: list[Tensor]) -> Tensor:
    items[0] += 1
    items[0] = items[0] * 2
    return x + items[0]


@case(lambda: (t(3), bytearray(b"abc")), expect="any")
def write_bytearray(x: Tensor, data: bytearray) -> Tensor:
    data[0] += 1
    return x + data[0]


@case(lambda: (t(3), nn.Linear(3, 3)), expect="any")
def change_module_argument(x: Tensor, layer: nn.Linear) -> Tensor:
    layer.eval()
    layer.extra = 3
    layer.weight.requires_grad_(False)
    return layer(x)


@case(lambda: (t(3), nn.Linear(3, 3)), expect="any")
def optimise_inside(x: Tensor, layer: nn.Linear) -> Tensor:
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    loss = layer(x).square().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


@case(lambda: (t(3, 3), nn.Linear(3, 3)), expect="any")
def write_weights_under_no_grad(x: Tensor, layer: nn.Linear) -> Tensor:
    with torch.no_grad():
        layer.weight.mul_(0.5)
        layer.weight.data.add_(x)
    return layer(x)


@case(one, expect="any")
def write_file(x: Tensor) -> tuple[Tensor, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "note.txt")
        with open(path, "w") as file:
            file.write("note")
        with open(path) as file:
            return x + 1, file.read()


@case(one, expect="any")
def in_memory_file(x: Tensor) -> tuple[Tensor, str]:
    file = io.StringIO()
    file.write("a")
    print("b", file=file, end="")
    return x + len(file.getvalue()), file.getvalue()


# The corpus is run with a text in its place, which is a step.
@case(one, expect="any")
def write_to_stdout(x: Tensor) -> Tensor:
    sys.stdout.write("text\n")
    return x + 1


@case(one, expect="any")
def python_random(x: Tensor) -> Tensor:
    return x * random.random() + random.randint(1, 5)


@case(one, expect="any")
def wall_clock(x: Tensor) -> tuple[Tensor, bool]:
    return x + 1, time.time() > 0


@case(one, expect="any")
def environment(x: Tensor) -> Tensor:
    os.environ["STATOR_CASE"] = "3"
    return x * int(os.environ["STATOR_CASE"]) + ("NO_SUCH_VARIABLE" in os.environ)


@case(one, expect="any")
def warn(x: Tensor) -> Tensor:
    warnings.warn("careful", UserWarning, stacklevel=1)
    return x + 1


@case(one, expect="any")
def log_message(x: Tensor) -> Tensor:
    logging.getLogger("corpus").debug("shape %s", tuple(x.shape))
    return x + 1


@case(one, expect="any")
def pickled(x: Tensor) -> Tensor:
    import pickle

    return pickle.loads(pickle.dumps(x)) + 1  # type: ignore[no-any-return]


@case(one, expect="any")
def import_inside(x: Tensor) -> Tensor:
    import math
    from collections import OrderedDict as Ordered

    return x * math.tau + len(Ordered(a=1))


@case(one, expect="any")
def frames_and_stack(x: Tensor) -> tuple[Tensor, str]:
    frame = sys._getframe()
    return x + 1, frame.f_code.co_name


@case(one, expect="any")
def effects_before_an_exception(x: Tensor) -> Tensor:
    HISTORY.append("before")
    y = x.add_(1)
    if HISTORY:
        raise RuntimeError("after the effect")
    return y


@case(one, expect="any")
def effects_in_handlers(x: Tensor) -> Tensor:
    try:
        HISTORY.append("try")
        raise ValueError
    except ValueError:
        HISTORY.append("except")
    finally:
        HISTORY.append("finally")
    return x * len(HISTORY)


@case(one, expect="any")
def order_of_tensor_and_list_effects(x: Tensor) -> Tensor:
    HISTORY.append(x.clone())
    x.mul_(2)
    HISTORY.append(x.clone())
    HISTORY.append(x)
    x.add_(1)
    return x


@case(one, expect="any")
def default_dtype_switch(x: Tensor) -> Tensor:
    torch.set_default_dtype(torch.float64)
    return x + torch.zeros(4)


@case(one, expect="any")
def vmap_and_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = torch.func.vmap(lambda row: row.sum())(x)
    return rows, torch.func.grad(lambda v: (v**2).sum())(x)


class Subclass(Tensor):
    """A tensor subclass without its own dispatch."""


class Loud(Tensor):
    """A tensor subclass that overrides the functions."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        HISTORY.append(getattr(func, "__name__", "?"))
        return result


@case(lambda: (t(3).as_subclass(Subclass),), expect="any")
def tensor_subclass(x: Tensor) -> Tensor:
    return x * 2 + 1


@case(lambda: (t(3).as_subclass(Loud),), expect="any")
def tensor_subclass_with_override(x: Tensor) -> Tensor:
    return x * 2 + 1
