"""What traced programs become, compared with `federated_language`: trees, types, bytes, errors."""

from __future__ import annotations

from typing import Any

import pytest

import stator.federated

from . import failures, programs

peer = pytest.importorskip("federated_language")


def shown(result: Any, fl: Any) -> Any:
    """Everything that can be seen of a result."""
    framework = programs.framework(fl)
    if isinstance(result, framework.ConcreteComputation):
        block = result.to_building_block()
        message = result.to_proto()
        serialize = getattr(message, "SerializeToString", None)
        types: list[str] = []
        left = [block]
        while left:
            node = left.pop()
            types.append(f"{type(node).__name__}: {node.type_signature!r}")
            left.extend(node.children())
        return {
            "type": repr(result.type_signature),
            "compact": block.compact_representation(),
            "formatted": block.formatted_representation(),
            "types": types,
            "bytes": serialize(deterministic=True) if serialize else message,
        }
    return result


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_same_tree(name: str) -> None:
    program = programs.PROGRAMS[name]
    ours = shown(program(stator.federated), stator.federated)
    assert ours == shown(program(peer), peer)


# Where the class of an error is another one on purpose: ours is derived from theirs, or says more.
OTHER_CLASS = {
    # Ours is a TypeNotAssignableError, which is a TypeError.
    "wrong_argument": ("TypeNotAssignableError", "TypeError"),
}


def raised(program: Any, fl: Any) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        program(fl)
    return caught.type.__name__


@pytest.mark.parametrize("name", failures.FAILING)
def test_same_error_class(name: str) -> None:
    program = failures.FAILING[name]
    found = raised(program, stator.federated), raised(program, peer)
    if name in OTHER_CLASS:
        assert found == OTHER_CLASS[name]
    else:
        assert found[0] == found[1]
