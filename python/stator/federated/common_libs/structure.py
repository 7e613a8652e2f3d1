"""`Struct`, a container of values with and without names, and functions on nested containers."""

from __future__ import annotations

from stator._stator.federated import (
    Struct,
    flatten,
    from_container,
    has_field,
    iter_elements,
    map_structure,
    name_list,
    name_list_with_nones,
    pack_sequence_as,
    to_elements,
    to_odict,
    to_odict_or_tuple,
    update_struct,
)

__all__ = [
    "Struct",
    "flatten",
    "from_container",
    "has_field",
    "iter_elements",
    "map_structure",
    "name_list",
    "name_list_with_nones",
    "pack_sequence_as",
    "to_elements",
    "to_odict",
    "to_odict_or_tuple",
    "update_struct",
]
