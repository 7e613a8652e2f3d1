"""Structures: values in lists, tuples, named tuples and dictionaries, in any depth.

Whatever isn't such a container is a value, of which a structure is the simplest one: `None`, text,
arrays, sets, objects of `attrs` and of `dataclasses`. Empty containers have no values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
#: A value, or a sequence or mapping of structures.
Structure: TypeAlias = T | Sequence["Structure[T]"] | Mapping[str, "Structure[T]"]

#: Where something is in a structure: keys, names of fields, and positions, from outside in.
Path: TypeAlias = tuple[str | int, ...]


def flatten(structure: Structure[T]) -> list[T]:
    """The values of a structure, those of dictionaries in the order of their sorted keys.

    >>> flatten({"b": [1, 2], "a": 3})
    [3, 1, 2]

    Raises `TypeError` if keys of a dictionary can't be sorted.
    """
    return [value for _, value in with_paths(structure)]


def flatten_with_name(structure: Structure[T]) -> list[tuple[str, T]]:
    """The values of a structure, each with its path as a name; a lone value's name is empty.

    >>> flatten_with_name({"b": [1, 2], "a": 3})
    [('a', 3), ('b/0', 1), ('b/1', 2)]
    """
    return [("/".join(map(str, path)), value) for path, value in with_paths(structure)]


def map_structure(
    fn: Callable[..., Any], *structures: Structure[Any], check_types: bool = True
) -> Any:
    """A structure like the first one, of what `fn` makes of the values that structures have at a
    place.

    >>> map_structure(lambda a, b: a + b, {"a": [1, 2]}, {"a": [10, 20]})
    {'a': [11, 22]}

    check_types: whether containers at a place must be of one class.

    Raises `ValueError` if a structure has fewer or more parts than the first one, other keys, or a
    value where that has a container, or if there is none; `TypeError` if it has another container.
    """
    if not structures:
        raise ValueError("`map_structure` takes at least one structure, and is given none.")
    if not callable(fn):
        raise TypeError(f"`fn` is to be a function, not {fn!r}.")
    return _mapped(fn, structures, (), check_types)


def map_structure_up_to(
    shallow_structure: Structure[Any], fn: Callable[..., Any], *structures: Structure[Any]
) -> Any:
    """What `fn` makes of what structures have where another one has its values.

    >>> map_structure_up_to([0, 0], sum, [[1, 2], [3]])
    [3, 3]

    Raises `ValueError` if a structure lacks something that the shallow one has, and `TypeError` if
    it has a value where that has a container.
    """
    if not structures:
        raise ValueError("`map_structure_up_to` takes at least one structure, and is given none.")
    return _mapped_up_to(fn, shallow_structure, structures, ())


def unflatten_as(structure: Structure[Any], flat_sequence: Sequence[Any]) -> Any:
    """A structure like another one, of other values.

    >>> unflatten_as({"b": [0, 0], "a": 0}, [3, 1, 2])
    {'b': [1, 2], 'a': 3}

    Raises `ValueError` if there are more or fewer values than the structure has.
    """
    count = sum(1 for _ in with_paths(structure))
    if count != len(flat_sequence):
        raise ValueError(
            f"the structure has {count} values, where {len(flat_sequence)} are given for them."
        )
    return _filled(structure, iter(flat_sequence))


def with_paths(structure: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The values of a structure, each with its path."""
    found = parts_of(structure)
    if found is None:
        yield path, structure
        return
    for key, part in found:
        yield from with_paths(part, (*path, key))


def parts_of(structure: Any) -> list[tuple[Any, Any]] | None:
    """What is directly in a container, with the keys, names or positions; `None` of a value."""
    if isinstance(structure, Mapping):
        try:
            keys = sorted(structure)
        except TypeError as error:
            raise TypeError(
                f"the keys of a dictionary can't be sorted: {error}\n"
                f"  found:    {', '.join(map(repr, structure))}\n"
                "  hint:     use texts as keys"
            ) from None
        return [(key, structure[key]) for key in keys]
    if is_named_tuple(structure):
        return list(zip(structure._fields, structure, strict=True))
    if is_sequence(structure):
        return list(enumerate(structure))
    return None


def is_named_tuple(value: Any) -> bool:
    """Whether this is a tuple whose fields have names."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def is_sequence(value: Any) -> bool:
    """Whether this is a container of structures by their positions."""
    return isinstance(value, Sequence) and not isinstance(
        value, (str, bytes, bytearray, memoryview)
    )


def rebuilt(container: Any, parts: list[tuple[Any, Any]]) -> Any:
    """A container like another one, of other parts: all that it has, or, unless it is a named
    tuple, fewer."""
    if isinstance(container, Mapping):
        found = dict(parts)
        ordered = {key: found[key] for key in container if key in found}
        if isinstance(container, defaultdict):
            return type(container)(container.default_factory, ordered)
        kind: Any = type(container)
        return ordered if kind is dict else kind(ordered)
    values = [part for _, part in parts]
    if is_named_tuple(container):
        return type(container)(*values)
    return values if type(container) in (list, range) else type(container)(values)


def _filled(structure: Any, values: Iterator[Any]) -> Any:
    parts = parts_of(structure)
    if parts is None:
        return next(values)
    return rebuilt(structure, [(key, _filled(part, values)) for key, part in parts])


def _mapped(
    fn: Callable[..., Any], structures: Sequence[Any], path: Path, check_types: bool
) -> Any:
    first = structures[0]
    found = [parts_of(structure) for structure in structures]
    for other, parts in zip(structures, found, strict=True):
        if (parts is None) != (found[0] is None):
            raise ValueError(
                f"structures differ{_at(path)}: one has a {type(first).__name__}, another one "
                f"a {type(other).__name__}."
            )
        if parts is not None and found[0] is not None:
            if check_types and not _are_alike(first, other):
                raise TypeError(
                    f"structures differ{_at(path)}: one has a {type(first).__name__}, another one "
                    f"a {type(other).__name__}."
                )
            _check_keys(found[0], parts, path)
    if found[0] is None:
        return fn(*structures)
    made = []
    for at, (key, _) in enumerate(found[0]):
        below = [parts[at][1] for parts in found if parts is not None]
        made.append((key, _mapped(fn, below, (*path, key), check_types)))
    return rebuilt(first, made)


def _mapped_up_to(
    fn: Callable[..., Any], shallow: Any, structures: Sequence[Any], path: Path
) -> Any:
    parts = parts_of(shallow)
    if parts is None:
        return fn(*structures)
    found = []
    for other in structures:
        below = parts_of(other)
        if below is None:
            raise TypeError(
                f"structures differ{_at(path)}: one has a {type(shallow).__name__}, another one "
                f"a {type(other).__name__}."
            )
        found.append(dict(below))
        for key, _ in parts:
            if key not in found[-1]:
                raise ValueError(f"structures differ{_at(path)}: one has {key!r}, another one not.")
    return rebuilt(
        shallow,
        [
            (key, _mapped_up_to(fn, part, [of[key] for of in found], (*path, key)))
            for key, part in parts
        ],
    )


def _check_keys(
    parts: Sequence[tuple[Any, Any]], others: Sequence[tuple[Any, Any]], path: Path
) -> None:
    keys, other = [key for key, _ in parts], [key for key, _ in others]
    if len(keys) != len(other):
        raise ValueError(
            f"structures differ{_at(path)}: one has {len(keys)} parts, another one {len(other)}."
        )
    if keys != other:
        raise ValueError(
            f"structures differ{_at(path)}: one has the keys {keys}, another one {other}."
        )


def _are_alike(container: Any, other: Any) -> bool:
    """Whether containers can stand for each other: mappings can, whatever their classes."""
    if isinstance(container, Mapping):
        return isinstance(other, Mapping)
    return type(container) is type(other)


def _at(path: Path) -> str:
    return f" at `{'/'.join(map(str, path))}`" if path else ""
