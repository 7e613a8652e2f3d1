"""Cases of the differential corpus, mutated: names, argument kinds, the order of writes and handlers, settings.

A mutant is a case and a list of mutations, each made from a number of its own; so a failing one shrinks by
leaving mutations out. Nothing here knows what a mutant ought to do: plain Python says.
"""

from __future__ import annotations

import ast
import contextlib
import random
import re
import signal
import symtable
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from differential.support import api
from differential.support.case import Call, Case
from differential.support.describe import first_difference
from differential.support.driver import PHASES, run_side, source_of

import stator
from stator import _testing

Key = tuple[str, str]
"""A corpus module and one of its cases."""

# Names that mean something to torch.fx, to Python, to printed graphs, or look like generated ones.
HOSTILE_NAMES = (
    "output placeholder call_function call_method call_module get_attr getattr_1 root graph gm self cls "
    "args kwargs ctx torch_ device inf nan dtype fn forward inputs x_1 x_2 add add_1 mul sub relu size "
    "size_1 item getitem getitem_1 L_x_ l_x_ s0 s1 _ __ _0 __x __compiled_fn_0 resume_in_f stator_ "
    "match case type len sum print id range tuple list dict int str é größe 変数 ℌ long_"
    + "n"
    * 200
).split()

# What a handler around a statement looks like; `%` is the statement.
HANDLERS = (
    ["try:", "    %", "except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):", "    pass"],
    ["try:", "    %", "except Exception as caught_:", "    caught_.args"],
    ["try:", "    %", "finally:", "    len(())"],
    ["try:", "    raise KeyError(1)", "except KeyError:", "    %"],
    ["try:", "    raise KeyError(1)", "except KeyError:", "    pass", "finally:", "    %"],
    ["for once_ in (0,):", "    try:", "        continue", "    finally:", "        %"],
    ["with torch.no_grad():", "    %"],
)  # fmt: skip

# Statements put in before another one; `$` is a local variable.
STATEMENTS = (
    "if isinstance($, torch.Tensor): $.add_(1)",
    "if isinstance($, torch.Tensor): $ = $.detach()",
    "if isinstance($, torch.Tensor): $.t_()",
    "if isinstance($, torch.Tensor): $.unsqueeze_(0)",
    "if isinstance($, torch.Tensor): $.data = $.data * 2",
    "if isinstance($, torch.Tensor): $.grad = None",
    "if isinstance($, torch.Tensor): $[0]",
    "if isinstance($, torch.Tensor) and $.dtype == torch.float32: torch.nn.functional.embedding(torch.tensor([9]), $)",
    "if isinstance($, list): $.append(1)",
    "if isinstance($, dict): $['added'] = 1",
    "if isinstance($, int): $ = $ + 1",
    "if isinstance($, int): $ = torch.tensor($)",
    "print('here')",
    "torch.rand(2)",
)


@dataclass(frozen=True)
class Mutation:
    """One change, of one kind; `seed` decides what exactly."""

    kind: str
    seed: int


@dataclass(frozen=True)
class Mutant:
    """A case, and what is done to it."""

    key: Key
    mutations: tuple[Mutation, ...]


_GRAD_FN = re.compile(r" grad_fn=\w+Backward\w*")
_DATA = re.compile(r" bits=\w+ (\[.*)")
_FLOAT = re.compile(r"-?\d+\.\d+(e[+-]?\d+)?")


def _rounded(data: re.Match[str]) -> str:
    return " " + _FLOAT.sub(lambda number: f"{float(number[0]):.3g}", data[1])


SOURCE = ("rename", "handler", "statement", "swap", "repeat", "drop")
ARGUMENTS = ("argument",)
SETTINGS = ("setting",)
KINDS = SOURCE + ARGUMENTS + SETTINGS


def generate(seed: int, keys: list[Key]) -> Mutant:
    """The mutant of a number."""
    chance = random.Random(seed)
    count = chance.randint(1, 4)
    mutations = (Mutation(chance.choice(KINDS), chance.randrange(1 << 30)) for _ in range(count))
    return Mutant(chance.choice(keys), tuple(mutations))


def check(mutant: Mutant) -> str | None:
    """Runs a mutant plain and compiled; what differs first, or None.

    Raises `ValueError` for one that is no program.
    """
    api.reset()
    torch.set_num_threads(1)
    code = compile(mutated(mutant), source_of(mutant.key[0])[1], "exec", dont_inherit=True)
    alter = _altered(mutant)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with _soon():
                plain = run_side(*mutant.key, compile_it=False, code=code, alter=alter)
        except Exception as error:
            raise ValueError("plain Python can't run it") from error
        with _settings(mutant):
            ours = run_side(*mutant.key, compile_it=True, code=code, alter=alter)
    # AOTAutograd's node for the whole graph stands where plain Python has one for each operation, and what it
    # decomposes operations into rounds otherwise.
    of_aot = _chosen(mutant).get("backend") == "aot_eager"
    for phase, expected, found in zip(PHASES, plain.phases, ours.phases, strict=False):
        if of_aot:
            expected, found = (
                [_DATA.sub(_rounded, _GRAD_FN.sub("", line)) for line in lines]
                for lines in (expected, found)
            )
        difference = first_difference(expected, found)
        if difference is not None and "fork-based multiprocessing" in difference:
            # Its engine's threads are the parent's: a backend's compiler has started them there.
            raise ValueError("PyTorch computes no gradients in this process")
        if difference is not None:
            return f"{phase}: plain (-) and compiled (+) differ\n{difference}\n{api.reason(ours.target)}"
    return None


@contextlib.contextmanager
def _soon() -> Iterator[None]:
    """`TimeoutError` if it isn't done in seconds: a loop that no longer counts goes on for ever in plain Python, too."""
    ends = []

    def give_up(*_: object) -> None:
        ends.append(True)
        raise TimeoutError("it doesn't end")

    before = signal.signal(signal.SIGALRM, give_up)
    # A mutant may take what is raised for its own, and its next call doesn't end, either.
    signal.setitimer(signal.ITIMER_REAL, 4, 4)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if ends:
        raise TimeoutError("it doesn't end")


def shrink(mutant: Mutant, fails: Callable[[Mutant], bool]) -> Mutant:
    """The mutant with as few mutations as still fail."""
    for mutation in mutant.mutations:
        fewer = replace(mutant, mutations=tuple(m for m in mutant.mutations if m != mutation))
        if fails(fewer):
            mutant = fewer
    return mutant


def shown(mutant: Mutant) -> str:
    """What a failure prints of its mutant."""
    function = ast.unparse(_function(mutated(mutant), mutant.key[1]))
    return f"{mutant}\nsettings: {_chosen(mutant)}\n{function}"


def mutated(mutant: Mutant) -> ast.Module:
    """The module of a mutant, with its function changed."""
    source, file = source_of(mutant.key[0])
    tree = ast.parse(source, file)
    function = _function(tree, mutant.key[1])
    for mutation in mutant.mutations:
        if mutation.kind in SOURCE:
            chance = random.Random(mutation.seed)
            _SOURCE_MUTATIONS[mutation.kind](function, chance)
    return ast.fix_missing_locations(tree)


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return statement
    raise ValueError(f"{name} is no function of the module")


# Of the source.


def _locals(function: ast.FunctionDef) -> list[str]:
    """Local variables that no inner function knows of."""
    alone = ast.Module([_undecorated(function)], [])
    table = symtable.symtable(ast.unparse(ast.fix_missing_locations(alone)), "f", "exec")
    [inner] = [child for child in table.get_children() if child.get_name() == function.name]
    free = {name for child in inner.get_children() for name in child.get_identifiers()}
    names = (symbol.get_name() for symbol in inner.get_symbols() if symbol.is_local())
    return sorted(name for name in names if name not in free)


def _undecorated(function: ast.FunctionDef) -> ast.FunctionDef:
    copy = ast.FunctionDef(**{field: getattr(function, field) for field in function._fields})
    copy.decorator_list = []
    return copy


def _used(function: ast.FunctionDef) -> set[str]:
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    return names | {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}


def _rename(function: ast.FunctionDef, chance: random.Random) -> None:
    known = _locals(function)
    given = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    names = [name for name in known if name not in given] or known
    free = [name for name in HOSTILE_NAMES if name not in _used(function)]
    if not names or not free:
        return
    old, new = chance.choice(names), chance.choice(free)
    if any(isinstance(node, (ast.Global, ast.Nonlocal)) for node in ast.walk(function)):
        return
    for statement in function.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node.id == old:
                node.id = new
            elif isinstance(node, ast.ExceptHandler) and node.name == old:
                node.name = new
            elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name == old:
                node.name = new
            elif isinstance(node, ast.MatchMapping) and node.rest == old:
                node.rest = new
    if old in given:
        # Called by its old name still: the first statement gives it the new one.
        function.body.insert(0, ast.parse(f"{new} = {old}").body[0])


def _blocks(function: ast.FunctionDef) -> list[list[ast.stmt]]:
    """All lists of statements, docstrings and inner definitions left alone."""
    found = []
    for node in ast.walk(_undecorated(function)):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                found.append(function.body if node is function else block)
    return found


def _place(function: ast.FunctionDef, chance: random.Random) -> tuple[list[ast.stmt], int]:
    block = chance.choice(_blocks(function))
    return block, chance.randrange(len(block))


def _handler(function: ast.FunctionDef, chance: random.Random) -> None:
    block, index = _place(function, chance)
    if isinstance(block[index], (ast.Global, ast.Nonlocal, ast.ImportFrom)):
        return
    form = chance.choice(HANDLERS)
    [around] = ast.parse("\n".join(line.replace("%", "pass_") for line in form)).body
    statement = block[index]

    class Put(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> ast.stmt:
            here = isinstance(node.value, ast.Name) and node.value.id == "pass_"
            return statement if here else node

    block[index] = ast.copy_location(Put().visit(around), statement)


def _statement(function: ast.FunctionDef, chance: random.Random) -> None:
    block, index = _place(function, chance)
    names = _locals(function)
    text = chance.choice(STATEMENTS)
    if "$" in text and not names:
        return
    made = ast.parse(text.replace("$", chance.choice(names) if names else "")).body
    block[index:index] = [ast.copy_location(statement, block[index]) for statement in made]


def _swap(function: ast.FunctionDef, chance: random.Random) -> None:
    block, index = _place(function, chance)
    if index:
        block[index - 1], block[index] = block[index], block[index - 1]


def _repeat(function: ast.FunctionDef, chance: random.Random) -> None:
    block, index = _place(function, chance)
    if not isinstance(block[index], (ast.Global, ast.Nonlocal)):
        block.insert(index, block[index])


def _drop(function: ast.FunctionDef, chance: random.Random) -> None:
    block, index = _place(function, chance)
    if len(block) > 1:
        del block[index]


_SOURCE_MUTATIONS: dict[str, Callable[[ast.FunctionDef, random.Random], None]] = {
    "rename": _rename,
    "handler": _handler,
    "statement": _statement,
    "swap": _swap,
    "repeat": _repeat,
    "drop": _drop,
}


# Of the arguments.


def _altered(mutant: Mutant) -> Callable[[Case], Case]:
    changes = [mutation.seed for mutation in mutant.mutations if mutation.kind == "argument"]

    def alter(case: Case) -> Case:
        for seed in changes:
            case = replace(case, args=_other(case.args, seed))
            if case.again is not None and seed % 2:
                case = replace(case, again=_other(case.again, seed))
        options = {**case.options, **_options(mutant)}
        # What is changed may have no gradient.
        return replace(case, grad=case.grad and not changes, options=options)

    return alter


def _other(make: Callable[[], Any], seed: int) -> Callable[[], Any]:
    def made() -> Any:
        chance = random.Random(seed)
        given = make()
        if isinstance(given, Call):
            return replace(given, args=_one_changed(given.args, chance))
        return _one_changed(tuple(given), chance)

    return made


def _one_changed(args: tuple[Any, ...], chance: random.Random) -> tuple[Any, ...]:
    if not args:
        return args
    index = chance.randrange(len(args))
    return (*args[:index], _another_kind(args[index], chance), *args[index + 1 :])


def _another_kind(value: Any, chance: random.Random) -> Any:
    if isinstance(value, torch.Tensor):
        kinds: list[Callable[[], Any]] = [
            lambda: value.detach().double() if value.is_floating_point() else value.int(),
            lambda: value.detach().clone().transpose(0, -1) if value.dim() else value,
            lambda: value.detach()[:0] if value.dim() else value,
            lambda: value.detach().bool(),
            lambda: torch.nn.Parameter(value.detach()) if value.is_floating_point() else value,
            lambda: value.detach()[None].expand(1, *value.shape),
            lambda: value.detach().to_sparse(),
            lambda: value.detach().numpy(),
            lambda: value.detach().sum(),
            lambda: value.detach().to("meta"),
        ]
    elif isinstance(value, (bool, int, float)):
        kinds = [
            lambda: torch.tensor(value),
            lambda: bool(value),
            lambda: float(value),
            lambda: value + 1,
            lambda: -value,
            lambda: 0,
            lambda: str(value),
        ]
    elif isinstance(value, (list, tuple)):
        kinds = [
            lambda: type(value)() if type(value) in (list, tuple) else value,
            lambda: tuple(value),
            lambda: list(value),
            lambda: [*value, *value],
            lambda: iter(list(value)),
        ]
    elif isinstance(value, dict):
        kinds = [lambda: {}, lambda: types.MappingProxyType(value), lambda: list(value)]
    else:
        kinds = [lambda: None, lambda: value]
    return chance.choice(kinds)()


# Of the settings.


def _graph_itself(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """The backend that proves an exported graph: it is linted, written as code and run."""
    graph.graph.lint()
    graph.recompile()
    return graph.forward


_SETTINGS: dict[str, tuple[Any, ...]] = {
    "skip_unprofitable": (True,),
    "recompile_limit": (1, 2),
    "break_everywhere": (0, 1),
    "backend": (_graph_itself, "aot_eager"),
    "dynamic": (True, False),
}
_OPTIONS = ("backend", "dynamic")


def _chosen(mutant: Mutant) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for mutation in mutant.mutations:
        if mutation.kind == "setting":
            chance = random.Random(mutation.seed)
            name = chance.choice(list(_SETTINGS))
            chosen[name] = chance.choice(_SETTINGS[name])
    return chosen


def _options(mutant: Mutant) -> dict[str, Any]:
    return {name: value for name, value in _chosen(mutant).items() if name in _OPTIONS}


@contextlib.contextmanager
def _settings(mutant: Mutant) -> Iterator[None]:
    chosen = {name: value for name, value in _chosen(mutant).items() if name not in _OPTIONS}
    with contextlib.ExitStack() as stack:
        if "break_everywhere" in chosen:
            stack.enter_context(_testing.break_everywhere(chosen.pop("break_everywhere")))
        stack.enter_context(stator.config.patch(**chosen))
        yield
