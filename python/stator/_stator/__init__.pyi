"""The native module. `crates/py` implements it; this file is its contract with the Python side."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, Self, TypeVar

_T = TypeVar("_T")

__version__: str

class Stats:
    """Counters of one compiled function."""

    @property
    def traces(self) -> int: ...
    @property
    def hits(self) -> int: ...
    @property
    def native(self) -> int:
        """Calls that ran natively."""
    @property
    def entries(self) -> int:
        """Traces that begin at the call itself."""
    @property
    def breaks(self) -> int:
        """Graph breaks that were met while recording."""
    @property
    def graphs(self) -> int:
        """Traces in the cache, those that begin behind graph breaks included."""
    @property
    def reason(self) -> str | None:
        """Why a recorded call broke, or the last native one ran natively."""
    @property
    def tiers(self) -> list[str]:
        """What runs each graph: `"replay"` (no backend was asked, or it has left the graph, or its
        last call, to the replay), or what became of code that a backend was asked for,
        `"waiting"`, `"compiling"`, `"made"` (the next call takes it over), `"compiled"`,
        `"failed"`, `"differs"`, `"slower"`, `"cancelled"`; but for `"compiled"` the graph is
        replayed."""
    @property
    def why(self) -> list[str | None]:
        """For each graph what is known of why: how far the code's results differ, what was measured
        of it, what it has raised, why it isn't captured."""
    @property
    def graph_nodes(self) -> int: ...
    @property
    def guards(self) -> int: ...

class Compiled:
    """A function that is traced at its first call and replayed afterwards.

    A descriptor, so that it works as a method. `fn` is always a Python function: `stator._targets`
    takes bound methods, partials, objects and modules apart first. What describes it
    (`__name__`, `__wrapped__`, ...) stands in the instance's `__dict__`, where it can be set.
    Pickling is `stator._targets`' business; a deep copy is the object itself, as for functions.
    """

    __wrapped__: Callable[..., Any]
    __name__: str
    __qualname__: str
    __module__: str
    __doc__: str | None
    __dict__: dict[str, Any]

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        backend: Callable[..., Any] | None,
        when: int | None,
        is_slow: bool,
        verifies: bool | None,
        is_timed: bool,
        recompile_limit: int | None,
        fullgraph: bool,
        dynamic: bool | None,
        is_compiling: bool,
        takes_parts: bool = False,
        compiler: str = "",
    ) -> None:
        """`backend=None` replays from Rust. Otherwise it's a `stator._backends.Prepared`:
        `backend(description, example_inputs)` returns the callable that replaces the replay, or a
        `stator._fx.Code` for the inputs that its assumptions admit; it is asked for lazily.
        `when`: the call at which that is, 0 for beside the program, None for what `stator.config`
        or `is_slow` says.
        `verifies`: whether its code is compared with the replay first; None: code that was made
        beside the program is. `is_timed`: it is used only if it is quicker than the replay.
        `takes_parts`: it's given parts of graphs alone, operations on tensors that give tensors.
        `compiler`: "torch" if it is PyTorch's, "inductor" if it is Inductor: there are operations
        that these refuse, which stay with the replay.
        `recompile_limit=None` reads `stator._config.config` at each miss."""
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Any: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, memo: dict[int, Any], /) -> Self: ...
    @property
    def stats(self) -> Stats: ...
    @property
    def _was_called(self) -> bool:
        """Whether anybody has ever called it, also within another one's trace."""
    def reset(self) -> None:
        """Drops every trace of this function and sets its counters to zero."""
    def _jobs(self) -> list[Job]:
        """What is compiled beside the program of its graphs."""
    def graph_code(self) -> list[str]:
        """The graph of each entry, printed as code."""
    def guards(self) -> list[list[str]]:
        """The guards of each entry, as the `guards` log prints them."""
    def _keep_whole(self) -> None:
        """From now on all of a graph is for the backend: a decision on data breaks it."""
    def _beyond_graph(self) -> list[list[tuple[str, str, tuple[str, int, str] | None]]]:
        """What each entry does and relies on that its graph doesn't say: `"write"` to an object
        outside, `"set"` if that is of the same constant each time, `"told"` of a warning or log
        record, `"drawn"` numbers, a `"fact"` about sizes, what was `"decided"` of them; what it
        is, and file, line and function of the place."""
    def counts(self) -> list[list[int]]:
        """What was counted to estimate each trace's replay: instructions, frames, modules, members
        and C calls of Python; operations; frames that stand at the break it ends with."""

class Declined:
    """What a backend, or its code, gives where a part of a graph is to be replayed, in this call or
    in all (`is_final`)."""

    why: str
    is_final: bool
    def __init__(self, why: str, *, is_final: bool = False) -> None: ...

class Job:
    """A graph that is compiled beside the program; `stator._background` does that."""

    def __init__(self, task: Callable[[], Any], /) -> None: ...
    def start(self) -> Callable[[], Any] | None: ...
    def finish(self, made: Any, /) -> None: ...
    def cancel(self) -> None: ...
    @property
    def stand(self) -> str:
        """`"waiting"`, `"compiling"`, `"made"` or `"cancelled"`."""

def _compile_beside(task: Callable[[], _T], /) -> _T:
    """Calls `task`, on a thread that waits at its frames while a compiled call runs."""

def _hurry(does: bool, /) -> None:
    """Somebody waits for that thread, or does so no more."""

def _parked() -> int:
    """How often it has waited for compiled calls."""

def _forget_other_threads() -> None:
    """This is a forked process, which has one thread."""

def _raise_in(ident: int, exception: type[BaseException], /) -> None:
    """Has a thread raise an exception at its next instruction."""

def _set_when(number: int | None, /) -> None: ...
def _set_log_mask(mask: int) -> None:
    """Bit i turns on the i-th name of `stator._logs.LOGS`; bit 16 + i asks it for more detail."""

def graph_break(msg: str = "") -> None:
    """Ends the trace here, and does nothing in plain Python.

    `msg` shows up in the `graph_breaks` log. A call of `torch._dynamo.graph_break` does the same.
    """

def is_compiling() -> bool:
    """As `torch.compiler.is_compiling`: False, unless `stator.compile` was asked for the path made
    for tracers (`is_compiling=True`, `fullgraph=True`, tensor programs)."""

class Disabled:
    """A function that is never traced, and neither are compiled functions that it calls."""

    __wrapped__: Callable[..., Any]
    __name__: str
    __qualname__: str
    __module__: str
    __doc__: str | None
    __dict__: dict[str, Any]

    def __init__(self, function: Callable[..., Any], reason: str, /) -> None: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Any: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, memo: dict[int, Any], /) -> Self: ...
    @property
    def _reason(self) -> str: ...

# The native side of `stator._steering`.

def _set_stance(name: str, /) -> str:
    """Takes the stance of this name and returns the name of the one before."""

def _stances() -> list[str]: ...
def _register_in_graph(callable: Callable[..., Any], /) -> None: ...
def _register_constant(callable: Callable[..., Any], /) -> None: ...
def _register_substitute(
    original: Callable[..., Any], polyfill: Callable[..., Any], folds: bool, /
) -> None: ...
def reset_all() -> None:
    """`Compiled.reset` on every compiled function of the process."""

# Tensor programs: `stator.programs` is their Python side.

class Program:
    """A tensor program as data: nothing in it has been resolved."""

    @staticmethod
    def parse(text: str, /) -> Program:
        """Reads the text form. What is none is a `ValueError`."""
    @staticmethod
    def unpack(bytes: bytes, /) -> tuple[Program, list[bytes]]:
        """Reads the byte form: the program, and the elements of each constant."""
    def pack(self, constants: list[bytes], /) -> bytes: ...
    @property
    def text(self) -> str: ...
    @property
    def default_dtype(self) -> str: ...
    @property
    def inputs(self) -> list[tuple[str, list[int | None]]]: ...
    @property
    def outputs(self) -> list[tuple[str, list[int | None]]]: ...
    @property
    def constants(self) -> list[tuple[str, list[int | None], bool]]:
        """Types, and whether gradients may be asked for them."""
    @property
    def takes(self) -> Any:
        """Kind, a type's name or `None`, a list of names (or `None`) and the same of what is
        within; `None` for a tensor."""
    @property
    def gives(self) -> Any: ...
    def names(self) -> list[str]:
        """The names that it mentions."""
    def places(self) -> list[tuple[int, list[tuple[str, int, str]]]]:
        """For each node: file, line and function of the frames that it was recorded in."""
    def remember(self, places: list[tuple[int, list[tuple[str, int, str]]]], /) -> None:
        """Says so of a program that came as bytes."""
    def failing(
        self, sizes: list[list[int]], /
    ) -> tuple[str, list[tuple[int, int]], list[tuple[str, int, str]]] | None:
        """The first condition that these sizes don't meet, and the inputs and dimensions in it."""
    def link(self, objects: list[object], constants: list[Any], /) -> LinkedProgram:
        """Makes it run: with what its names stand for, in their order, and its constants."""

class Runs:
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def __call__(self, *tensors: Any) -> Any: ...

class LinkedProgram:
    """A tensor program that runs."""

    def run(self, inputs: tuple[Any, ...], /) -> list[Any]: ...

def _trace_program(function: Callable[..., Any], specs: Any = None, kwargs: Any = None) -> Any:
    """`stator.programs.TensorProgram.trace`."""

def _trace_for_sizes(
    function: Callable[..., Any], specs: Any, kwargs: Any, is_numpy: bool
) -> tuple[Any, Any]:
    """A program, and the object of its trace."""

# For tests alone.

testing: ModuleType
"""The exact evaluator on its own; `stator._testing` wraps it."""

def _break_everywhere(parity: int) -> None: ...
def _break_at(number: int) -> None: ...
def _breaks_asked() -> int: ...
def _while_signals_come(function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> _T:
    """Calls a function of others within one of Stator's own: signal handlers run meanwhile."""

def _set_min_graph_ops(operations: int) -> None: ...
def _set_skip_unprofitable(skips: bool) -> None: ...
def _set_strict(strict: bool) -> None: ...
def _inject(stage: str, number: int, panics: bool, always: bool, signal: int) -> None: ...
def _inject_nothing() -> int: ...
def _stages() -> list[str]: ...
def _set_accelerator(name: str | None = None, module: object = None) -> None: ...
def _breaks() -> list[list[str]]:
    """The table of break reasons: id, what, why and hint of each."""

def _breaks_page() -> str:
    """The table of break reasons as the page `docs/breaks.md`."""

def _rows(table: str, /) -> list[tuple[str, list[str], str, list[str]]]:
    """The rows of `"operations"`, `"state"` or `"python"`: owner, names, class, traits.

    No owner: wherever PyTorch has the name. An operation's class is when its result is determined.
    """

def _operation(owner: str, name: str, /) -> str | None:
    """When an operation's result is determined by metadata. None: the operation is unknown."""

def _data_rows() -> list[tuple[list[str], str, str]]: ...
def _fits(number: str, element: str, /) -> bool: ...
def _known(callable: Any, /) -> str | None:
    """What the table of functions says of a callable. None: it's unknown."""

def _writes_silently(printed: str, /) -> bool:
    """Whether an operation, as it prints, writes to arguments without counting that."""

def _gives_new_memory(name: str, /) -> bool:
    """Whether an operation writes to nothing and gives new memory, by its operator's schema."""

def _is_allowed_in_programs(name: str, /) -> bool: ...
def _program_factories() -> list[str]: ...
def _bytecode_roundtrip(code: bytes) -> bytes: ...
def _bytecode_exception_table_roundtrip(table: bytes) -> bytes: ...
def _bytecode_line_table_roundtrip(table: bytes, first_line: int) -> bytes: ...
def _bytecode_stack_effect(opcode: int, arg: int, jump: bool | None = None) -> int | None: ...
def _bytecode_max_depth(code: bytes, exception_table: bytes) -> int: ...

_TRACE_VERSION: int

def _stored_traces(compiled: Compiled) -> list[tuple[dict[str, Any] | None, str | None]]: ...
def _adopt_trace(compiled: Compiled, stored: dict[str, Any]) -> bool: ...
