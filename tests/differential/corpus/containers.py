"""Lists, tuples, dicts, sets, strings: building, reading, changing, unpacking."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..support.case import Corpus, one, t, two

case = Corpus()

CONFIG: dict[str, Any] = {"scale": 2, "layers": [1, 2, 3], "nested": {"deep": (4, 5)}}
NUMBERS = [1, 2, 3]
TENSORS = [torch.ones(3), torch.zeros(3)]
NAMES = {"a", "b"}


@case(lambda: (t(3), [1, 2, 3]), again=lambda: (t(3), [1, 2, 4]))
def list_argument(x: Tensor, items: list[int]) -> Tensor:
    return x * items[0] + items[-1]


@case(lambda: ([t(3), t(3)],), again=lambda: ([t(3), t(3), t(3)],))
def list_of_tensors(items: list[Tensor]) -> Tensor:
    total = items[0]
    for item in items[1:]:
        total = total + item
    return total * len(items)


@case(lambda: ((t(3), (t(3), [t(3)])),))
def nested_tuple_argument(items: Any) -> Tensor:
    a, (b, [c]) = items
    return a + b * c


@case(lambda: ({"x": t(3), "y": t(3)},), again=lambda: ({"y": t(3), "x": t(3)},))
def dict_argument(d: dict[str, Tensor]) -> Tensor:
    return torch.cat([d[k] * i for i, k in enumerate(d)])


@case(lambda: (t(3), {"n": 1}), again=lambda: (t(3), {"n": 1, "extra": 5}))
def dict_get_missing(x: Tensor, d: dict[str, int]) -> Tensor:
    return x + d.get("extra", 0) + d.get("n", 0) + ("extra" in d)


@case(lambda: (t(3),), change=lambda: CONFIG["nested"].update(deep=(4, 6)))
def nested_global_config(x: Tensor) -> Tensor:
    return x * CONFIG["nested"]["deep"][1] + CONFIG["scale"]


@case(lambda: (t(3),), change=lambda: CONFIG["layers"].append(9))
def global_list_grows(x: Tensor) -> Tensor:
    for n in CONFIG["layers"]:
        x = x + n
    return x


@case(lambda: (t(3),), change=lambda: NUMBERS.reverse())
def global_list_reorders(x: Tensor) -> Tensor:
    return x * NUMBERS[0]


@case(lambda: (t(3),), change=lambda: CONFIG.pop("scale"))
def global_key_disappears(x: Tensor) -> Tensor:
    return x * CONFIG["scale"] if "scale" in CONFIG else x


@case(lambda: (t(3),), change=lambda: NAMES.discard("b"))
def global_set_membership(x: Tensor) -> Tensor:
    return x + 1 if "b" in NAMES else x - 1


@case(lambda: (t(3),), change=lambda: TENSORS.__setitem__(1, torch.full((3,), 7.0)))
def global_list_of_tensors(x: Tensor) -> Tensor:
    return x + TENSORS[1]


@case(lambda: (t(3),), change=lambda: TENSORS.__setitem__(1, TENSORS[0]))
def global_list_becomes_aliased(x: Tensor) -> Tensor:
    return x + 1 if TENSORS[0] is TENSORS[1] else x - 1


@case(one)
def list_methods(x: Tensor) -> Tensor:
    items = [3, 1, 2]
    items.append(5)
    items.extend((4, 1))
    items.insert(0, 9)
    items.remove(1)
    last = items.pop()
    first = items.pop(0)
    items.sort()
    items.reverse()
    copied = items.copy()
    copied.clear()
    return x * items[0] + last - first + items.index(2) + items.count(5) + len(copied)


@case(one)
def list_item_assignment(x: Tensor) -> Tensor:
    items = [x, x, x, x]
    items[0] = x * 2
    items[1:3] = [x + 1]
    items[-1] += 3
    del items[0]
    return torch.stack(items)


@case(one)
def slices_of_lists(x: Tensor) -> Tensor:
    items = list(range(10))
    part = items[2:8:2] + items[::-1][:2] + items[-3:]
    items[::3] = [0] * 4
    return x * sum(part) + sum(items)


@case(one)
def slice_objects(x: Tensor) -> Tensor:
    where = slice(1, None, 2)
    return x[:, where] * (where.start + len(range(10)[where])) + where.indices(8)[1]


@case(lambda: (t(4, 5),))
def tensor_basic_indexing(x: Tensor) -> tuple[Tensor, ...]:
    return x[0], x[1, 2], x[:, 1], x[1:3, ::2], x[..., -1], x[None, 0], x[-1][-2]


@case(lambda: (t(4, 5),))
def tensor_index_by_list_and_tensor(x: Tensor) -> tuple[Tensor, ...]:
    return x[[0, 2]], x[torch.tensor([1, 3])], x[:, torch.tensor([0, 1])], x[[0, 1], [2, 3]]


@case(lambda: (t(4, 5),))
def tensor_item_assignment(x: Tensor) -> Tensor:
    y = x.clone()
    y[0] = 1
    y[1, 2] = x[0, 0]
    y[:, -1] = torch.zeros(4)
    y[2:, ::2] += 5
    y[..., 1] *= 2
    return y


@case(lambda: (t(4, 5),))
def tensor_item_assignment_to_argument(x: Tensor) -> Tensor:
    x[0] = 0
    x[:, 1] += 1
    return x.sum()


@case(lambda: (t(4),), expect="any")
def boolean_index_read(x: Tensor) -> Tensor:
    return x[x > 0]


@case(lambda: (t(4),))
def boolean_index_write(x: Tensor) -> Tensor:
    y = x.clone()
    y[y < 0] = 0
    return y


@case(two)
def tuple_methods(x: Tensor, y: Tensor) -> Tensor:
    pair = (x, y) + (1,) * 2
    return pair[0] * pair[2:].count(1) + (1, 2, 3).index(3) + len(pair) - y


@case(one)
def dict_methods(x: Tensor) -> tuple[Tensor, list[str]]:
    d: dict[str, Any] = {"a": 1}
    d["b"] = 2
    d.update(c=3, **{"d": 4})
    d.setdefault("e", x)
    d.setdefault("a", 100)
    popped = d.pop("b") + d.pop("zzz", 7)
    last = d.popitem()
    del d["c"]
    merged = {**d, "f": 6}
    return x * popped + last[1] + merged["f"], [*merged]


@case(one)
def dict_views(x: Tensor) -> Tensor:
    d = {"a": 1, "b": 2, "c": 3}
    keys = d.keys() & {"a", "b"}
    items = sorted(d.items(), key=lambda pair: -pair[1])
    return x * sum(d.values()) + len(keys) + items[0][1] + (("a", 1) in d.items())


@case(one)
def dict_iteration_orders(x: Tensor) -> tuple[Tensor, list[str]]:
    d = {"b": 1, "a": 2}
    d["c"] = 3
    del d["b"]
    d["b"] = 4
    order = list(d) + list(reversed(d))
    return x * d["b"], order


@case(one)
def dict_of_many_key_types(x: Tensor) -> Tensor:
    d = {1: "a", "1": "b", (1, 2): "c", None: "d", 2.5: "e", torch.float32: "f", int: "g"}
    return x * len(d) + ord(d[(1, 2)]) + ord(d[torch.float32]) + ord(d[int]) + (d[True] == "a")


@case(one)
def dict_keyed_by_tensor(x: Tensor) -> Tensor:
    d = {x: 2}
    return x * d[x] + (x in d)


@case(one)
def dict_from_pairs(x: Tensor) -> Tensor:
    d = dict(zip("abc", range(3), strict=True))
    e = dict.fromkeys("xy", 5)
    return x * d["c"] + e["x"] + len(dict([("k", 1)], z=2))


@case(one)
def missing_key_is_caught(x: Tensor) -> Tensor:
    try:
        CONFIG["absent"]
    except KeyError as error:
        return x + len(error.args[0])
    return x


@case(lambda: (t(3),), change=lambda: CONFIG.update(late=10))
def missing_key_appears(x: Tensor) -> Tensor:
    try:
        return x * CONFIG["late"]
    except KeyError:
        return x


@case(one)
def set_methods(x: Tensor) -> Tensor:
    s = {1, 2}
    s.add(3)
    s.update([4, 5])
    s.discard(9)
    s.remove(1)
    other = frozenset((4, 5))
    return x * len(s) + sum(s) + s.issuperset(other) + len(s.difference(other)) + min(s)


@case(one)
def list_comprehensions(x: Tensor) -> Tensor:
    parts = [x * i for i in range(4) if i % 2]
    grid = [[i * j for j in range(3)] for i in range(3)]
    flat = [v for row in grid for v in row if v]
    return sum(parts) + sum(flat)  # type: ignore[return-value]


@case(one)
def dict_and_set_comprehensions(x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    d = {f"k{i}": x * i for i in range(3)}
    s = {len(k) for k in d}
    inverse = {v: k for k, v in {"a": 1, "b": 2}.items()}
    return x * len(s) + len(inverse[2]), d


@case(one)
def generator_expressions(x: Tensor) -> Tensor:
    total = sum(x * i for i in range(3))
    return total + max(i * i for i in range(-3, 3)) + any(i > 2 for i in range(4))


@case(one)
def comprehension_with_closure(x: Tensor) -> list[Tensor]:
    k = 3
    return [(lambda v: v * k + i)(x) for i in range(2)]


@case(one)
def comprehension_with_walrus(x: Tensor) -> Tensor:
    found = [y for i in range(5) if (y := i * i) > 3]
    return x * sum(found) + y


@case(lambda: (t(3), [(1, "a"), (2, "b")]))
def unpack_in_loop(x: Tensor, pairs: list[tuple[int, str]]) -> Tensor:
    for i, (n, s) in enumerate(pairs):
        x = x + n * i + len(s)
    for n, *rest in [(1, 2, 3), (4,)]:
        x = x + n + len(rest)
    return x


@case(lambda: (t(3), t(3)))
def star_in_displays(x: Tensor, y: Tensor) -> tuple[Any, ...]:
    items = [*[1, 2], *(3,), x]
    both = (*items, y)
    named = {**{"a": 1}, "b": y}
    return len(both), *both[3:], {*"ab"} == {"a", "b"}, named


@case(lambda: (t(4),))
def unpack_tensor(x: Tensor) -> Tensor:
    a, b, c, d = x
    first, *rest = x.split(1)
    return a * b + c - d + first + len(rest)


@case(lambda: (t(2, 3, 4),))
def unpack_shape(x: Tensor) -> Tensor:
    b, *rest = x.shape
    n, m = rest
    return x.reshape(b * n, m).view(b, -1) * b + x.size()[-1]


@case(lambda: (t(3),), expect="any")
def wrong_number_to_unpack(x: Tensor) -> Tensor:
    a, b = x, x, x  # type: ignore[misc]
    return a + b


@case(lambda: (t(3), "a,b;c"))
def string_methods(x: Tensor, s: str) -> Tensor:
    parts = s.replace(";", ",").split(",")
    joined = "-".join(p.upper() for p in parts)
    return x * len(parts) + joined.find("C") + s.startswith("a") + len(joined.strip("A"))


@case(lambda: (t(3), "name", 7))
def formatted_strings(x: Tensor, s: str, n: int) -> tuple[Tensor, str]:
    text = f"{s!r}:{n:>5}:{n / 3:.2f}:{n=}:{s:*^{n + 3}}" + "%d-%s" % (n, s)
    return x * len(text), text + "{0}{k}".format(1, k=s)


@case(lambda: (t(3, 4),))
def formatted_shapes(x: Tensor) -> tuple[Tensor, str]:
    return x, f"{tuple(x.shape)} {x.dtype} {x.device} {x.ndim:03d} {x.shape}"


@case(lambda: (t(3), b"abc"))
def bytes_methods(x: Tensor, data: bytes) -> Tensor:
    view = bytearray(data)
    view[0] = 1
    return x * data[1] + len(view) + view[0] + len(data.hex())


class Ring:
    """A container of its own."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Ring(self.items[index])
        return self.items[index % len(self.items)]

    def __setitem__(self, index: int, value: Any) -> None:
        self.items[index % len(self.items)] = value

    def __delitem__(self, index: int) -> None:
        del self.items[index]

    def __contains__(self, item: Any) -> bool:
        return any(item is mine for mine in self.items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __reversed__(self) -> Iterator[Any]:
        return iter(self.items[::-1])

    def __missing__(self, key: Any) -> Any:
        return key


@case(two)
def user_container(x: Tensor, y: Tensor) -> Tensor:
    ring = Ring([x, y, 3])
    ring[4] = y * 2
    del ring[2]
    total = ring[2] + ring[3] + (x in ring) + len(ring)
    for item in ring:
        total = total + item
    first, second = ring[0:2]
    return total + first - second + next(reversed(ring))


class Defaults(dict[str, Any]):
    """A dict subclass with `__missing__`."""

    def __missing__(self, key: str) -> int:
        return len(key)


@case(lambda: (t(3), Defaults(a=1)), again=lambda: (t(3), Defaults(a=1, four=100)))
def dict_subclass(x: Tensor, d: Defaults) -> Tensor:
    return x * d["a"] + d["four"] + len(d)


class Stack(list[Any]):
    """A list subclass with a method."""

    def top(self) -> Any:
        return self[-1]


@case(lambda: (Stack([t(3), t(3)]),))
def list_subclass(stack: Stack) -> Tensor:
    return stack.top() * len(stack) + stack[0]


@case(one)
def old_style_iteration(x: Tensor) -> Tensor:
    class Squares:
        def __getitem__(self, i: int) -> int:
            if i > 3:
                raise IndexError(i)
            return i * i

    return x * sum(Squares()) + (4 in Squares()) + list(Squares())[2]  # type: ignore[call-overload]


@case(lambda: (t(3), [[1], [2]]))
def shared_inner_list(x: Tensor, grid: list[list[int]]) -> Tensor:
    row = [0]
    both = [row, row]
    both[0].append(5)
    return x * len(both[1]) + grid[0][0]


@case(lambda: (t(3), [1, 2], [1, 2]))
def equal_but_distinct_lists(x: Tensor, a: list[int], b: list[int]) -> Tensor:
    return x + (a == b) + (a is b) * 10


@case(one)
def starred_names(x: Tensor) -> Any:
    first, *rest = [x, x + 1, x * 2]
    *most, last = (1, 2, 3)
    left, *none, right = "ab"
    (a, *b), c = range(3), x.shape
    rest.append(last)
    return first, rest, most, left, none, right, a, b, c


@case(lambda: (t(3), [1, 2, 3]), again=lambda: (t(3), [1, 2, 3, 4]))
def starred_names_of_an_argument(x: Tensor, items: list[int]) -> Any:
    first, *rest = items
    for a, *others in [(1, 2, 3), (4,)]:
        rest = rest + others + [a]
    return x * first, rest
