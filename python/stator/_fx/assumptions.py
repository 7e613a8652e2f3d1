"""What a shape environment assumes, as trees that the native side compiles.

PyTorch prints the guards of a shape environment as Python expressions over `L['t0']`,
`L['t1'].size()[0]`, ...: the numbers in a graph's inputs. Here they are taken apart: a tuple for
each operation, its name first, down to numbers and to `("size", input, dimension)`,
`("stride", input, dimension)`, `("offset", input)` and `("input", input)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, TypeAlias

__all__ = ["Tree", "assumption"]

Tree: TypeAlias = "int | float | bool | tuple[Any, ...]"

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.USub: "-", ast.Not: "not", ast.And: "and", ast.Or: "or", ast.Eq: "==",
    ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip

_FUNCTIONS = {
    "min": "min", "max": "max", "Min": "min", "Max": "max", "abs": "abs", "float": "float",
    "math.ceil": "ceil", "math.floor": "floor", "math.trunc": "trunc", "math.sqrt": "sqrt",
    "Mod": "%", "PythonMod": "%", "FloorDiv": "//", "CleanDiv": "//", "Eq": "==", "Ne": "!=",
    "Lt": "<", "Le": "<=", "Gt": ">", "Ge": ">=",
}  # fmt: skip


def assumption(printed: str) -> Tree:
    """A guard. What can't be said as a tree fixes the numbers that it speaks of."""
    node = ast.parse(printed, mode="eval").body
    try:
        return _tree(node)
    except ValueError:
        return ("fixed", *_numbers(node))


def _tree(node: ast.expr) -> Tree:
    if (number := _number(node)) is not None:
        return number
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            return (_name(op), _tree(left), _tree(right))
        case ast.UnaryOp(op=op, operand=operand):
            return (_name(op), _tree(operand))
        case ast.BoolOp(op=op, values=values):
            return (_name(op), *map(_tree, values))
        case ast.Compare(left=left, ops=ops, comparators=rest):
            sides = [_tree(side) for side in (left, *rest)]
            links = zip(ops, sides, sides[1:], strict=False)
            return ("and", *((_name(op), before, after) for op, before, after in links))
        case ast.Call(func=function, args=[value]) if ast.unparse(function) == "math.isnan":
            # What isn't equal to itself.
            return ("not", ("==", _tree(value), _tree(value)))
        case ast.Call(func=function, args=args, keywords=[]):
            name = _FUNCTIONS.get(ast.unparse(function))
            if name is not None:
                return (name, *map(_tree, args))
    raise ValueError(ast.unparse(node))


def _name(op: ast.AST) -> str:
    name = _OPERATORS.get(type(op))
    if name is None:
        raise ValueError(op)
    return name


def _number(node: ast.expr) -> Tree | None:
    """A number in an input: `L['t1'].size()[0]` and such."""
    match node:
        case ast.Subscript(value=ast.Name(id="L"), slice=ast.Constant(value=str(name))):
            return ("input", int(name.removeprefix("t")))
        case ast.Subscript(
            value=ast.Call(func=ast.Attribute(value=of, attr="size" | "stride" as method)),
            slice=ast.Constant(value=int(index)),
        ) if (tensor := _number(of)) is not None:
            return (method, tensor[1], index)  # type: ignore[index]
        case ast.Call(func=ast.Attribute(value=of, attr="storage_offset")) if (
            tensor := _number(of)
        ) is not None:
            return ("offset", tensor[1])  # type: ignore[index]
    return None


def _numbers(node: ast.AST) -> Iterator[Tree]:
    found = _number(node) if isinstance(node, ast.expr) else None
    if found is not None:
        yield found
        return
    for child in ast.iter_child_nodes(node):
        yield from _numbers(child)
