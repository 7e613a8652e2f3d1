"""Which top-level modules of a crate use which: by path, and by methods that one adds to another's types."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

Edges = dict[str, set[str]]

# Test code may use what it likes.
TESTS = re.compile(r"#\[cfg\(test\)\]\s*mod \w+ \{")
PATH = re.compile(r"\bcrate::(\w+|\{)")
REEXPORT = re.compile(r"^pub(?:\(\w+\))? use (\w+)::(?:\{([^}]*)\}|(?:\w+::)*(\w+));", re.MULTILINE)
TYPE = re.compile(r"\b(?:struct|enum|union) (\w+)")
IMPL = re.compile(
    r"^impl(?:<[^{]*?>)? (?:\w+::)*(\w+)(?:<[^{]*>)?(?: where[^{]*)? \{", re.MULTILINE
)
METHOD = re.compile(r"^    pub[^\n]*?\bfn (\w+)", re.MULTILINE)


def without_tests(path: Path) -> str:
    """A file's code, without comments and tests."""
    return TESTS.split(re.sub(r"//.*", "", path.read_text()))[0]


def sources(crate: Path) -> Iterator[tuple[str, str]]:
    """The top-level module and the code of each file, without comments and tests."""
    for path in sorted((crate / "src").rglob("*.rs")):
        parts = path.relative_to(crate / "src").parts
        if "tests.rs" in parts or "tests" in parts:
            continue
        yield parts[0].removesuffix(".rs"), without_tests(path)


def group(code: str, start: int) -> set[str]:
    """The first names of the paths in a braced list."""
    names, depth = set(), 0
    for part in re.finditer(r"[{},]|\w+(?:::)?", code[start:]):
        text = part.group()
        if text == "{":
            depth += 1
        elif text == "}":
            depth -= 1
            if depth == 0:
                break
        elif depth == 1 and text != "," and re.search(r"[{,]\s*$", code[: start + part.start()]):
            names.add(text.removesuffix("::"))
    return names


def edges(crate: Path) -> Edges:
    """What each top-level module of a crate uses of the others."""
    files = list(sources(crate))
    modules = {module for module, _ in files} - {"lib"}
    root = "".join(code for module, code in files if module == "lib")
    home = {}
    for module, listed, single in REEXPORT.findall(root):
        for name in re.findall(r"\w+", listed) or [single]:
            home[name] = module
    used: Edges = {module: set() for module in modules}
    for module, code in files:
        if module == "lib":
            continue
        for path in PATH.finditer(code):
            names = group(code, path.end() - 1) if path[1] == "{" else {path[1]}
            used[module] |= {home.get(name, name) for name in names}
    for module, others in added_methods(files).items():
        if module in used:
            used[module] |= others
    return {module: (others & modules) - {module} for module, others in used.items()}


def methods(code: str) -> Iterator[tuple[str, str]]:
    """The methods that a file gives to types, each with the type's name."""
    for found in IMPL.finditer(code):
        body = code[found.end() : code.find("\n}", found.end())]
        for method in METHOD.findall(body):
            yield found[1], method


def added_methods(files: list[tuple[str, str]]) -> Edges:
    """The modules whose methods a module calls on a type that is defined elsewhere."""
    types: dict[str, set[str]] = defaultdict(set)
    for module, code in files:
        for name in TYPE.findall(code):
            types[name].add(module)
    owners: dict[str, set[str]] = defaultdict(set)
    added: dict[str, set[str]] = defaultdict(set)
    for module, code in files:
        for name, method in methods(code):
            owners[method].add(module)
            if types[name] and module not in types[name]:
                added[method].add(module)
    used: Edges = defaultdict(set)
    for module, code in files:
        for method in set(re.findall(r"\.(\w+)\(", code)):
            # A name that several modules give to methods says nothing.
            if len(owners[method]) == 1:
                used[module] |= added[method]
    return used


def room_edges(
    folder: Path, types: set[str], order: Sequence[str]
) -> dict[tuple[str, str], set[str]]:
    """Of a module with rooms, in this order from below: which functions and types of other rooms each
    room uses, by path, and which methods that these add to the types that all rooms share."""
    base = "crate::" + "::".join(folder.relative_to(folder.parents[1] / "src").parts)
    files = [
        (room, without_tests(path))
        for room in order
        for path in sorted((folder / room).rglob("*.rs"))
    ]
    owners: dict[str, set[str]] = defaultdict(set)
    others: dict[str, set[str]] = defaultdict(set)
    for room, code in files:
        for name, method in methods(code):
            (owners if name in types else others)[method].add(room)
    used: dict[tuple[str, str], set[str]] = defaultdict(set)
    for room, code in files:
        reach = set(order[: order.index(room) + 1])
        for path in re.finditer(rf"\b{base}::(\w+)::\w+::(\w+|\{{)", code):
            listed = path[2] == "{"
            used[room, path[1]] |= group(code, path.end() - 1) if listed else {path[2]}
        for method in set(re.findall(r"(?:\.|\b(?:Self|Recorder|State)::)(\w+)\(", code)):
            # A name that this room gives to methods, too, says nothing, nor does one that another type's method has.
            if owners[method] and room not in owners[method] and not others[method] & reach:
                used[room, min(owners[method], key=order.index)].add(method)
    return {pair: names - {"self"} for pair, names in used.items() if pair[0] != pair[1]}


def used_files(folder: Path, types: set[str], rooms: Sequence[str]) -> set[str]:
    """The files at the top of a module that its rooms use, by path or by methods that these add to the shared types."""
    base = "crate::" + "::".join(folder.relative_to(folder.parents[1] / "src").parts)
    code = {
        path: without_tests(path)
        for room in rooms
        for path in sorted((folder / room).rglob("*.rs"))
    }
    owned = {method for text in code.values() for _, method in methods(text)}
    used = set()
    for path in sorted(folder.glob("*.rs")):
        added = {name for of, name in methods(without_tests(path)) if of in types} - owned
        named = rf"\b{base}::{path.stem}\b|(?:\.|\b(?:Self|Recorder|State)::)(?:{'|'.join(added) or '-'})\("
        if any(re.search(named, text) for text in code.values()):
            used.add(path.stem)
    return used


def interfaces(code: str) -> dict[str, set[str]]:
    """The methods of each trait that a file declares."""
    found = {}
    for trait in re.finditer(r"^pub[^\n]*\btrait (\w+) \{", code, re.MULTILINE):
        body = code[trait.end() : code.find("\n}", trait.end())]
        found[trait[1]] = set(re.findall(r"^    fn (\w+)", body, re.MULTILINE))
    return found


def implementations(folder: Path, types: set[str], rooms: Sequence[str]) -> dict[str, set[str]]:
    """The traits that the rooms of a module implement for the types that all share, with the rooms that do."""
    found: dict[str, set[str]] = defaultdict(set)
    names = "|".join(sorted(types))
    for room in rooms:
        for path in sorted((folder / room).rglob("*.rs")):
            for trait in re.findall(
                rf"^impl (\w+) for (?:{names}) \{{", without_tests(path), re.MULTILINE
            ):
                found[trait].add(room)
    return dict(found)


def circles(used: Edges) -> list[set[str]]:
    """The modules that reach each other."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            new = used[todo.pop()] - seen
            seen |= new
            todo += new
        return seen

    beyond = {module: reached(module) for module in used}
    found: list[set[str]] = []
    for module in sorted(used):
        circle = {other for other in beyond[module] if module in beyond[other]}
        if circle and circle not in found:
            found.append(circle)
    return found
