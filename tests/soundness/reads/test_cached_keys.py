"""`functools.lru_cache` with keys of several parts: tuples, sizes, names, and objects that came out of a cache.

Patterns of axes (`einops`) are read once and kept by such functions: the recipe that one gives is the key of the next.
"""

from __future__ import annotations

import enum
import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import stator

CALLS: list[Any] = []


class Recipe:
    """Equal to itself alone."""

    def __init__(self, pattern: str, names: tuple[str, ...]) -> None:
        self.order = [pattern.index(letter) for letter in sorted(pattern)]
        self.names = names


@functools.lru_cache(256)
def recipe_of(pattern: str, *, names: tuple[str, ...]) -> Recipe:
    CALLS.append((pattern, names))
    return Recipe(pattern, names)


@functools.lru_cache(1024)
def cooked(recipe: Recipe, shape: tuple[int, ...], lengths: tuple[tuple[str, int], ...]) -> Any:
    CALLS.append((shape, lengths))
    return [shape[at] for at in recipe.order], dict(lengths)


def arranged(x: Tensor, pattern: str, **lengths: int) -> Tensor:
    recipe = recipe_of(pattern, names=tuple(lengths))
    shape, known = cooked(recipe, x.shape, tuple(lengths.items()))
    return x.permute(recipe.order).reshape(shape) * sum(known.values(), 1) + len(recipe.names)


def forget() -> None:
    recipe_of.cache_clear()
    cooked.cache_clear()
    CALLS.clear()


def play(call: Callable[..., Tensor]) -> list[Any]:
    forget()
    played: list[Any] = []
    for pattern, lengths in [
        *[("bca", {"h": 2}), ("bca", {"h": 2}), ("bca", {"h": 3}), ("cab", {}), ("cab", {})],
        *[("bca", {"h": 2, "w": 2}), ("bca", {"h": 2})],
    ]:
        for size in (2, 2, 5):
            x = torch.arange(size * 12.0).reshape(size, 3, 4)
            played.append((call(x, pattern, **lengths).tolist(), list(CALLS)))
    return played


def test_keys_of_several_parts() -> None:
    compiled = stator.compile(arranged, recompile_limit=99)
    expected = play(arranged)
    assert play(compiled) == expected
    assert stator.stats(compiled).breaks == 0, stator.stats(compiled).reason
    # The caches have been cleared in between: the recipes are others.
    assert play(compiled) == expected
    assert play(compiled) == expected


def test_a_pattern_read_once_is_one_trace() -> None:
    forget()
    compiled = stator.compile(arranged)
    x = torch.ones(2, 3, 4)
    for _ in range(5):
        compiled(x, "bca", h=2)
    stats = stator.stats(compiled)
    assert (stats.traces, stats.hits, stats.breaks) == (1, 4, 0), stats.reason


class Settings:
    def __init__(self, scale: int) -> None:
        self.scale = scale


@functools.cache
def settings_of(name: str) -> Settings:
    return Settings(len(name))


@functools.cache
def scale_of(settings: Settings) -> int:
    return settings.scale


def test_a_class_that_is_given_its_own_equality() -> None:
    def scaled(x: Tensor, name: str) -> Tensor:
        return x * scale_of(settings_of(name))

    compiled = stator.compile(scaled)
    x = torch.ones(2)
    for _ in range(3):
        assert torch.equal(compiled(x, "abc"), x * 3)
    try:
        # All settings are one from now on, and the cache has that of the first.
        Settings.__eq__ = lambda self, other: True  # type: ignore[method-assign, assignment]
        Settings.__hash__ = lambda self: 1  # type: ignore[method-assign, assignment]
        scale_of.cache_clear()
        for name in ("ab", "abc", "abcd", "abc"):
            assert torch.equal(compiled(x, name), x * 2)
    finally:
        del Settings.__eq__, Settings.__hash__
        scale_of.cache_clear()
        settings_of.cache_clear()


def test_what_a_program_hands_in_is_not_kept_alive() -> None:
    """The cache is the program's to clear."""

    @stator.compile
    def scaled(x: Tensor, settings: Settings) -> Tensor:
        return x * scale_of(settings)

    settings = Settings(3)
    x = torch.ones(2)
    for _ in range(3):
        assert torch.equal(scaled(x, settings), x * 3)
    alive = weakref.ref(settings)
    scale_of.cache_clear()
    del settings
    gc.collect()
    assert alive() is None


class Kinds:
    class Wide(Settings):
        width = 3

    class Same(type):
        """Classes that are all equal."""

        def __eq__(cls, other: object) -> bool:
            return True

        def __hash__(cls) -> int:
            return 1


@functools.lru_cache
def width_of(lineage: tuple[type, ...], least: int) -> int:
    CALLS.append(lineage)
    return max([least, *(getattr(cls, "width", 0) for cls in lineage)])


@functools.lru_cache
def width_of_class(cls: type) -> int:
    return getattr(cls, "width", 1)


def by_class(x: Tensor, cls: type) -> Tensor:
    return x * width_of(cls.__mro__, 2) + width_of_class(cls)


def test_classes() -> None:
    local = type("Local", (Kinds.Wide,), {"width": 7})
    equal = Kinds.Same("Equal", (), {"width": 5})
    also_equal = Kinds.Same("AlsoEqual", (), {"width": 6})
    compiled = stator.compile(by_class)
    x = torch.ones(2)

    def play(call: Callable[..., Tensor]) -> list[Any]:
        width_of.cache_clear()
        width_of_class.cache_clear()
        CALLS.clear()
        played = [
            call(x, cls).tolist()
            for cls in (Kinds.Wide, Kinds.Wide, dict, Kinds.Wide, local, equal, also_equal, dict)
        ]
        return [*played, list(CALLS), width_of.cache_info(), width_of_class.cache_info()]

    for _ in range(3):
        assert play(compiled) == play(by_class)


def test_a_class_is_a_key() -> None:
    width_of.cache_clear()
    width_of_class.cache_clear()
    compiled = stator.compile(by_class)
    for _ in range(5):
        compiled(torch.ones(2), Kinds.Wide)
    stats = stator.stats(compiled)
    assert (stats.traces, stats.hits, stats.breaks) == (1, 4, 0), stats.reason


def test_a_class_that_no_module_has_is_not_kept_alive() -> None:
    local = type("Local", (), {"width": 7})
    compiled = stator.compile(by_class)
    for _ in range(3):
        compiled(torch.ones(2), local)
    alive = weakref.ref(local)
    del local
    width_of.cache_clear()
    width_of_class.cache_clear()
    CALLS.clear()
    gc.collect()
    assert alive() is None


class Mode(enum.Enum):
    NARROW = 1
    WIDE = 2


class Masked(torch.nn.Module):
    def __init__(self, scale: int) -> None:
        super().__init__()
        self.scale = scale

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def mask(self, size: int, device: torch.device, mode: Mode = Mode.NARROW) -> Tensor:
        CALLS.append((self.scale, size, mode))
        return torch.ones(size, device=device).cumsum(0) * (self.scale + mode.value)

    def forward(self, x: Tensor, mode: Mode) -> Tensor:
        return x * self.mask(x.shape[-1], x.device, mode=mode) + self.mask(2, x.device).sum()


@functools.lru_cache
def number_of(function: Callable[..., Any], parts: tuple[Any, ...]) -> int:
    CALLS.append((function, parts))
    return len(function.__name__) + len(parts)


def of_parts(x: Tensor, function: Callable[..., Any], owner: Any) -> Tensor:
    return x * number_of(function, (Mode.WIDE, (owner, 2), torch.relu))


def shifted(x: Tensor) -> Tensor:
    return x + 1


def test_methods_are_cached_by_their_modules() -> None:
    def play(first: Any, second: Any) -> list[Any]:
        Masked.mask.cache_clear()
        CALLS.clear()
        played: list[Any] = []
        for turn, (module, size, mode) in enumerate(
            [
                *[(first, 3, Mode.NARROW), (first, 3, Mode.NARROW), (first, 3, Mode.WIDE)],
                *[(second, 3, Mode.NARROW), (first, 3, Mode.NARROW), (second, 3, Mode.WIDE)],
                *[(first, 4, Mode.NARROW), (first, 3, Mode.NARROW), (first, 3, Mode.NARROW)],
                *[(first, 3, Mode.NARROW), (first, 3, Mode.NARROW), (first, 3, Mode.NARROW)],
            ]
        ):
            if turn == 8:
                # The cache keeps what it has.
                module.scale = 7
            if turn == 10:
                Masked.mask.cache_clear()
            played.append(module(torch.ones(size), mode).tolist())
            played.append(Masked.mask.cache_info())
        first.scale = 2
        return [*played, *CALLS]

    plain = play(Masked(2), Masked(3))
    for dynamic in (False, None):
        first, second = Masked(2), Masked(3)
        compiled = [stator.compile(module, dynamic=dynamic) for module in (first, second)]
        with stator.config.patch(skip_unprofitable=False):
            for _ in range(3):
                assert play(*compiled) == plain


def test_functions_and_nested_tuples_are_parts_of_keys() -> None:
    def play(call: Callable[..., Tensor]) -> list[Any]:
        number_of.cache_clear()
        CALLS.clear()
        owner, other = Settings(1), Settings(2)
        played = [
            call(torch.ones(2), function, one).tolist()
            for one in (owner, owner, other, owner, Settings(3), Settings(3))
            for function in (shifted, torch.sin, len, shifted)
        ]
        return [*played, len(CALLS), number_of.cache_info()]

    compiled = stator.compile(of_parts, recompile_limit=30)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            assert play(compiled) == play(of_parts)


def test_methods_break_no_graph() -> None:
    module, owner = Masked(2), Settings(1)
    compiled, with_parts = stator.compile(module), stator.compile(of_parts)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(4):
            compiled(torch.ones(3), Mode.WIDE)
            with_parts(torch.ones(3), shifted, owner)
    for stats in (stator.stats(compiled), stator.stats(with_parts)):
        assert (stats.traces, stats.hits, stats.breaks) == (1, 3, 0), stats.reason


def test_parts_of_keys_are_not_kept_alive() -> None:
    """The cache is the program's to clear."""
    module, owner = Masked(2), Settings(1)
    compiled, with_parts = stator.compile(module), stator.compile(of_parts)
    with stator.config.patch(skip_unprofitable=False):
        for _ in range(3):
            compiled(torch.ones(3), Mode.WIDE)
            with_parts(torch.ones(3), shifted, owner)
    alive = weakref.ref(module), weakref.ref(owner)
    Masked.mask.cache_clear()
    number_of.cache_clear()
    CALLS.clear()
    del module, compiled, owner
    gc.collect()
    assert [one() for one in alive] == [None, None]
