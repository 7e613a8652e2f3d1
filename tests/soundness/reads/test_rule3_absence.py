"""Rule 3: absence is a read; guards on dicts and sets include iteration order."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import Tensor, nn

from ..probe import Steps, flip, right_after, same


class Holder:
    """Attributes come and go."""

    level = 2


X = torch.ones(3)


@flip
def test_hasattr_was_false() -> Steps:
    h = Holder()
    yield (lambda x: x * 10 if hasattr(h, "extra") else x), (X,)
    h.extra = 1  # type: ignore[attr-defined]
    yield None
    del h.extra  # type: ignore[attr-defined]
    yield None


@flip
def test_getattr_used_its_default() -> Steps:
    h = Holder()
    yield (lambda x: x * getattr(h, "extra", 3)), (X,)
    h.extra = 7  # type: ignore[attr-defined]
    yield None
    del h.extra  # type: ignore[attr-defined]
    yield None


@flip
def test_dict_get_missed() -> Steps:
    d: dict[str, int] = {"a": 1}
    yield (lambda x: x * d.get("b", 5) + d["a"]), (X,)
    d["b"] = 9
    yield None
    del d["b"]
    yield None


@flip
def test_in_was_false() -> Steps:
    d: dict[Any, int] = {"a": 1}
    yield (lambda x: x + ("b" in d)), (X,)
    d["b"] = 0
    yield None
    d.pop("b")
    yield None


@flip
def test_key_error_was_caught() -> Steps:
    d: dict[str, int] = {}

    def fn(x: Tensor) -> Tensor:
        try:
            return x * d["k"]
        except KeyError:
            return x

    yield fn, (X,)
    d["k"] = 4
    yield None
    d.clear()
    yield None


@flip
def test_attribute_error_was_caught() -> Steps:
    h = Holder()

    def fn(x: Tensor) -> Tensor:
        try:
            return x * h.late  # type: ignore[attr-defined, no-any-return]
        except AttributeError:
            return x

    yield fn, (X,)
    h.late = 4  # type: ignore[attr-defined]
    yield None
    del h.late  # type: ignore[attr-defined]
    yield None


@flip
def test_instance_begins_to_hide_the_class() -> Steps:
    h = Holder()
    yield (lambda x: x * h.level), (X,)
    h.level = 5
    yield None
    del h.level
    yield None


@flip
def test_subclass_begins_to_hide_the_base() -> Steps:
    class Child(Holder):
        pass

    h = Child()
    yield (lambda x: x * h.level), (X,)
    Child.level = 8
    yield None
    del Child.level
    yield None


@flip
def test_instance_begins_to_hide_a_method() -> Steps:
    class Plain:
        def run(self, x: Tensor) -> Tensor:
            return x * 2

    p = Plain()
    yield (lambda x: p.run(x)), (X,)
    p.run = lambda x: x - 1  # type: ignore[method-assign]
    yield None
    del p.run
    yield None


@flip
def test_class_gains_getattr() -> Steps:
    class Plain:
        pass

    p = Plain()
    yield (lambda x: x * getattr(p, "anything", 3)), (X,)
    Plain.__getattr__ = lambda self, name: 11  # type: ignore[attr-defined]
    yield None
    del Plain.__getattr__  # type: ignore[attr-defined]
    yield None


@flip
def test_class_gains_a_data_descriptor() -> Steps:
    class Plain:
        pass

    p = Plain()
    p.n = 2  # type: ignore[attr-defined]
    yield (lambda x: x * p.n), (X,)  # type: ignore[attr-defined]
    Plain.n = property(lambda self: 100)  # type: ignore[attr-defined]
    yield None
    del Plain.n  # type: ignore[attr-defined]
    yield None


@flip
def test_getattr_hook_answered_until_the_slot_exists() -> Steps:
    class Dynamic:
        def __getattr__(self, name: str) -> int:
            return len(name)

    d = Dynamic()
    yield (lambda x: x * d.four), (X,)
    d.four = 40
    yield None
    del d.four
    yield None


@flip
def test_global_hides_a_builtin() -> Steps:
    space: dict[str, Any] = {}
    exec("def fn(x):\n    return x * len((1, 2))\n", space)
    yield space["fn"], (X,)
    space["len"] = lambda items: 50
    yield None
    del space["len"]
    yield None


@flip
def test_global_was_missing() -> Steps:
    space: dict[str, Any] = {}
    source = "def fn(x):\n    try:\n        return x * K\n    except NameError:\n        return x\n"
    exec(source, space)
    yield space["fn"], (X,)
    space["K"] = 5
    yield None
    del space["K"]
    yield None


@flip
def test_builtin_appears() -> Steps:
    import builtins

    source = "def fn(x):\n    try:\n        return x * STATOR_K\n    except NameError:\n        return x\n"
    space: dict[str, Any] = {}
    exec(source, space)
    yield space["fn"], (X,)
    builtins.STATOR_K = 5  # type: ignore[attr-defined]
    yield None
    del builtins.STATOR_K  # type: ignore[attr-defined]
    yield None


@flip
def test_dict_order() -> Steps:
    d = {"a": 2, "b": 3}

    def fn(x: Tensor) -> Tensor:
        for value in d.values():
            x = x * value + 1
        return x

    yield fn, (X,)
    d["a"] = d.pop("a")
    yield None
    d["b"] = d.pop("b")
    yield None


@flip
def test_dict_with_one_key_more() -> Steps:
    d = {"a": 2}
    yield (lambda x: x * len(d)), (X,)
    d["b"] = 3
    yield None
    del d["b"]
    yield None


@flip
def test_dict_with_one_key_renamed() -> Steps:
    d: dict[str, int] = {"a": 2}
    yield (lambda x: x * sum(len(k) for k in d)), (X,)
    d["longer"] = d.pop("a")
    yield None
    d["a"] = d.pop("longer")
    yield None


@flip
def test_dict_keys_of_another_type() -> Steps:
    d: dict[Any, int] = {1: 2}
    yield (lambda x: (x, [type(k).__name__ for k in d])), (X,)
    d.clear()
    d[True] = 2
    yield None
    d.clear()
    d[1] = 2
    yield None


@right_after
def test_set_contents_and_order() -> Steps:
    s = {1, 9}

    def fn(x: Tensor) -> Tensor:
        for value in s:
            x = x * value + 1
        return x

    yield fn, (X,)
    s.add(5)
    yield None
    s.discard(9)
    yield None
    # Equal sets may iterate differently: 8 and 0 collide in a small table.
    s.clear()
    s.update([0, 8])
    yield None
    s.clear()
    s.update([8, 0])
    yield None


@flip
def test_set_membership() -> Steps:
    s = {"a"}
    yield (lambda x: x + ("b" in s)), (X,)
    s.add("b")
    yield None
    s.remove("b")
    yield None


@flip
def test_empty_list_was_iterated() -> Steps:
    items: list[int] = []

    def fn(x: Tensor) -> Tensor:
        for item in items:
            x = x + item
        return x

    yield fn, (X,)
    items.append(3)
    yield None
    items.clear()
    yield None


@flip
def test_falsy_container() -> Steps:
    d: dict[str, int] = {}
    yield (lambda x: x if d else -x), (X,)
    d["k"] = 1
    yield None
    d.clear()
    yield None


@flip
def test_default_of_index_error() -> Steps:
    items = [1]

    def fn(x: Tensor) -> Tensor:
        try:
            return x * items[1]
        except IndexError:
            return x

    yield fn, (X,)
    items.append(6)
    yield None
    items.pop()
    yield None


@flip
def test_no_hooks_were_there() -> Steps:
    layer = nn.Linear(3, 3)
    yield (lambda x: layer(x)), (X,)
    handle = layer.register_forward_hook(lambda module, args, out: out * 2)
    yield None
    handle.remove()
    yield None


@flip
def test_module_attribute_was_absent() -> Steps:
    layer = nn.Identity()
    yield (lambda x: x * 3 if hasattr(layer, "adapter") else x), (X,)
    layer.adapter = nn.Identity()
    yield None
    del layer.adapter
    yield None


@flip
def test_python_module_attribute_was_absent() -> Steps:
    module = types.ModuleType("made")
    yield (lambda x: x * getattr(module, "K", 2)), (X,)
    module.K = 3  # type: ignore[attr-defined]
    yield None
    del module.K  # type: ignore[attr-defined]
    yield None


@flip
def test_absent_slot() -> Steps:
    class Slotted:
        __slots__ = ("n",)

    s = Slotted()
    yield (lambda x: x * getattr(s, "n", 4)), (X,)
    s.n = 6
    yield None
    del s.n
    yield None


@same
def test_unrelated_keys_do_not_matter() -> Steps:
    d = {"a": 2}
    h = Holder()
    yield (lambda x: x * d["a"] * h.level), (X,)
    d["other"] = 1
    h.other = 1  # type: ignore[attr-defined]
    yield None
    del d["other"], h.other  # type: ignore[attr-defined]
    yield None
