"""The layers of ARCHITECTURE.md: who may use whom, where imports stand, how long a file may be."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import rust_modules

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "stator"

# What each crate may depend on, among the crates of the workspace.
CRATES = {
    "stator-bytecode": set(),
    "stator-federated": set(),
    "stator-graph": set(),
    "stator-guards": set(),
    "stator-operators": {"stator-bytecode", "stator-shapes"},
    "stator-shapes": set(),
    "stator-cpython": {"stator-bytecode"},
    "stator-faults": {"stator-cpython"},
    "stator-evaluator": {"stator-bytecode", "stator-cpython", "stator-faults"},
    "stator-tracer": {
        "stator-bytecode",
        "stator-cpython",
        "stator-evaluator",
        "stator-faults",
        "stator-graph",
        "stator-guards",
        "stator-operators",
        "stator-shapes",
    },
    "stator-py": {
        "stator-bytecode",
        "stator-cpython",
        "stator-evaluator",
        "stator-faults",
        "stator-federated",
        "stator-graph",
        "stator-guards",
        "stator-operators",
        "stator-shapes",
        "stator-tracer",
    },
}
# Modules of a crate that reach each other, by path or by methods that one adds to another's types: debts. A list may only
# get shorter.
CIRCLES = {
    # The layer over the interpreter: objects and code look at each other, as they do in CPython.
    "cpython": [
        {
            *("code", "ffi", "frame", "generator", "generic", "heap", "hook", "layout", "opcode"),
            *("ops", "thread"),
        }
    ],
    # One type, `Context`, whose methods are grouped by what they decide.
    "shapes": [
        {
            *("assume", "condition", "context", "decide", "divide", "facts", "float", "integer"),
            *("knowledge", "poly"),
        }
    ],
}
# The rooms of the tracer, from above to below, and the modules in each: a module may use those of its room and of rooms
# below.
TRACER = {
    "programs": "program",
    "calls": "compiled",
    "breaks": "drive",
    "recording": "recorder",
    "points": "resume",
    "entries": "entries entry codes declined jobs assumptions undo",
    "standing": "frames",
    "the trace": "stored trace",
    "parts": "callers effects recipe emission symbolic constant_data known_ranges replay draws locks held inference past",
    "knowing": "functions program_rules compiling disabled within",
    "weighing": "profit gauge pace budget floor clock parking",
    "state": "check accelerator rollback writes raises handlers sharing looks policy",
    "telling": "stance marks config breaks logs locate listeners list_handlers bind memory",
}
# The rooms of the recorder, from below to above.
RECORDER = ("notes", "numbers", "reads", "effects", "ending", "operations", "calls")
# The files beside the rooms that these may use; the others are the ways in, above all rooms.
GROUND = {"contained", "links", "mod", "mode", "places"}
# The types that the rooms share: each room adds methods to them.
SHARED = {"Finish", "Recorder", "State", "Symbols"}
# What a room asks of rooms above it (`notes/above.rs`): each interface, the room that implements it, and the methods.
# An attribute, an item, a number or an operator may be a function of the program's: Python's protocols call, and calls
# read. What is looked at may be a container that nobody has read. And whoever can't go on ends the trace.
ASKED = {
    "Looks": ("reads", "adopt_deep adopt_reach know_text read_unread"),
    "Texts": ("reads", "has_text_of_pytorch"),
    "Changes": ("effects", "advance_outside is_own_iterator missing_item"),
    "Ends": ("ending", "goes_on_in plain_left stop"),
    "Decides": ("ending", "decided is_called_around with_way_around"),
    "Arguments": ("operations", "graph_arg take_left"),
    "Operations": ("operations", "operation"),
    "ArrayValues": (
        "operations",
        "attribute_of_array item_of_array know_arrays method_of_array rows_of_array "
        "set_item_of_array with_plain_numbers with_plain_places",
    ),
    "SparseValues": ("operations", "attribute_of_sparse method_of_sparse"),
    "PlainValues": (
        "operations",
        "attribute_of_value is_value scalar_of_value text_of_value truth_of_value value_operator",
    ),
    "Calls": ("calls", "call_object call_python guard_callback"),
    "Protocols": (
        "calls",
        "overridden python_binary python_compare python_contains python_iter python_next python_truth "
        "python_unary",
    ),
    "Conversions": ("calls", "python_converted python_format python_length python_text"),
    "HashedKeys": ("calls", "entry_by_hash item_by_hash"),
}
RECORDER_ROOMS = ROOT / "crates" / "tracer" / "src" / "recorder"
# Names that are methods of Python's objects, too.
PYTHON_METHODS = {"get_item", "is_instance", "same", "set_item"}
# These build and test without an interpreter.
PURE = (
    "stator-bytecode",
    "stator-federated",
    "stator-graph",
    "stator-guards",
    "stator-operators",
    "stator-shapes",
)
INTERPRETER = {"pyo3", "pyo3-ffi", "pyo3-build-config"}

# The rooms of the Python package, from above to below, and what is in each: modules and folders. What users, pickles and
# printed graphs name has to be found by the name it has, so modules with such names don't move into folders.
PYTHON = {
    "command line": "__main__ _explain",
    "testing": "_testing",
    "programs": "_local_computations _sized_programs _array_code programs _program_tracing _export _exporting",
    "compiling": "_install _storing _compile _module _ran _targets _settings _rehearsal",
    "backends": "_backends _background _progress _fx _cudagraphs _fakes",
    "storing": "_stored _kept",
    "steering": "_steering _disable _dynamic",
    "telling": "_logs _config _warnings",
    "errors": "_internal _blame errors _suggest _interpreter _collection",
}
# What each Python module may import from the package, itself and `_stator` (the native module,
# below all of them) aside. A module is below those that import it, so there is no cycle.
MODULES = {
    "_interpreter": set(),
    "_collection": set(),
    "errors": set(),
    "_suggest": set(),
    "_blame": {"errors"},
    "_warnings": {"errors"},
    "_internal": {"errors"},
    "_config": {"_blame", "_suggest", "errors"},
    "_logs": {"_blame", "_suggest", "_warnings", "errors"},
    "_fakes": set(),
    "_fx": set(),
    "_fx.graphs": {"_fx", "errors"},
    "_fx.metadata": {"_fakes", "_fx.graphs"},
    "_fx.assumptions": set(),
    "_fx.computed": {"_fx.assumptions"},
    "_fx.symbolic": {"_fakes", "_fx.assumptions", "_fx.computed", "_fx.graphs", "_internal"},
    "_fx.custom_operators": {"_fakes"},
    "_fx.linking": set(),
    "_fx.modes": set(),
    "_fx.comparison": {"_fx.laid", "_fx.modes", "_fx.tied"},
    "_fx.laid": set(),
    "_fx.callables": set(),
    "_fx.libraries": {"_fx.assumptions", "_fx.graphs", "errors"},
    "_fx.aliases": {"_fakes", "_fx.graphs", "_fx.libraries"},
    "_fx.sent": {"_fx.graphs"},
    "_fx.tied": {"_fx.graphs", "_fx.libraries", "_fx.modes"},
    "_fx.ahead": {"_fakes", "_fx.libraries", "_fx.symbolic", "errors"},
    "_fx.training": {"_fakes", "_fx.libraries", "_fx.tied", "errors"},
    "_fx.store": {"_fx.callables"},
    "_kept": set(),
    "_stored": set(),
    "_stored.digests": set(),
    "_stored.objects": {"_stored.digests"},
    "_stored.files": {"_kept", "_stored", "_stored.digests", "_stored.objects"},
    "_storing": {"_blame", "_settings", "_stored", "_stored.files", "_targets"},
    "_fx.process": {
        *("_fx.aliases", "_fx.graphs", "_fx.libraries", "_fx.modes", "_fx.sent"),
        *("_fx.store", "_fx.tied"),
        "_background",
        "_kept",
        "errors",
    },
    "_fx.compiler": {
        *("_fx.ahead", "_fx.aliases", "_fx.libraries", "_fx.linking", "_fx.process"),
        *("_fx.sent", "_fx.tied", "_fx.training"),
    },
    "_fx.beside": {
        *("_fx.callables", "_fx.computed", "_fx.graphs", "_fx.libraries", "_fx.modes"),
        *("_fakes", "_fx.process"),
        "errors",
    },
    "_cudagraphs": set(),
    "_cudagraphs.device": {"_collection"},
    "_cudagraphs.watching": set(),
    "_cudagraphs.places": set(),
    "_cudagraphs.results": {"_cudagraphs.places", "_cudagraphs.watching"},
    "_cudagraphs.training": {
        *("_cudagraphs.device", "_cudagraphs.places", "_cudagraphs.results"),
        "_cudagraphs.watching",
    },
    "_cudagraphs.captures": {
        *("_cudagraphs.device", "_cudagraphs.places", "_cudagraphs.results"),
        *("_cudagraphs.training", "_cudagraphs.watching"),
    },
    "_cudagraphs.backend": {
        *("_config", "_cudagraphs.captures", "_fx.graphs", "_logs", "_warnings"),
    },
    "_background": {"errors"},
    "_progress": set(),
    "_backends": {
        *(
            "_background",
            "_blame",
            "_config",
            "_cudagraphs.backend",
            "_fx.beside",
            "_fx.process",
            "_kept",
            "_fx.graphs",
            "_fx.metadata",
            "_fx.symbolic",
            "_internal",
            "_progress",
            "_suggest",
            "_warnings",
        ),
        "errors",
    },
    "_settings": {"_backends", "_config", "errors"},
    "_disable": {"_blame", "_suggest", "errors"},
    "_dynamic": {"_blame", "_suggest", "errors"},
    "_steering": {"_blame", "_suggest", "errors"},
    "_targets": {"_logs", "_module", "_settings", "_suggest", "errors"},
    "_module": {"_ran", "_settings", "_targets", "_warnings"},
    "_compile": {"_background", "_blame", "_settings", "_suggest", "_targets", "errors"},
    "_install": {"_compile", "errors"},
    "_testing": {"errors"},
    "_explain": {"_suggest"},
    "__main__": {"_explain", "_install"},
    "_ran": set(),
    "_rehearsal": set(),
    "_program_tracing": {"_suggest", "errors"},
    "_program_tracing.casting": set(),
    "_program_tracing.table": {"_program_tracing.casting"},
    "_program_tracing.drawing": set(),
    "_program_tracing.each_draws": {"_program_tracing.table"},
    "_program_tracing.batching": {
        *("_program_tracing.casting", "_program_tracing.each_draws", "_program_tracing.unrolled"),
        *("_program_tracing.padding", "_program_tracing.padding_numbers"),
        *("_program_tracing.padding_pairs", "_program_tracing.padding_rules"),
        "_program_tracing.padding_draws",
    },
    "_program_tracing.unrolled": set(),
    "_program_tracing.padding": {
        "_program_tracing.padding_numbers",
        "_program_tracing.padding_views",
    },
    "_program_tracing.padding_numbers": set(),
    "_program_tracing.padding_order": {
        *("_program_tracing.padding", "_program_tracing.padding_numbers"),
    },
    "_program_tracing.padding_draws": {
        *("_program_tracing.each_draws", "_program_tracing.padding"),
        "_program_tracing.padding_numbers",
    },
    "_program_tracing.padding_layers": {
        *("_program_tracing.padding", "_program_tracing.padding_numbers"),
    },
    "_program_tracing.padding_pairs": {
        *("_program_tracing.padding", "_program_tracing.padding_numbers"),
    },
    "_program_tracing.padding_puts": {
        *("_program_tracing.padding", "_program_tracing.padding_numbers"),
        "_program_tracing.padding_shapes",
    },
    "_program_tracing.padding_views": {"_program_tracing.padding_numbers"},
    "_program_tracing.padding_chosen": {
        *("_program_tracing.padding", "_program_tracing.padding_numbers"),
    },
    "_program_tracing.padding_shapes": {
        *("_program_tracing.padding", "_program_tracing.padding_chosen"),
        "_program_tracing.padding_numbers",
    },
    "_program_tracing.padding_windows": {
        *("_program_tracing.padding", "_program_tracing.padding_numbers"),
    },
    "_program_tracing.padding_rules": {
        *("_program_tracing.padding", "_program_tracing.padding_layers"),
        *("_program_tracing.padding_order", "_program_tracing.padding_pairs"),
        "_program_tracing.padding_puts",
        *("_program_tracing.padding_shapes", "_program_tracing.padding_windows"),
    },
    "_program_tracing.known": set(),
    "_program_tracing.arrays": {
        *("_program_tracing", "_program_tracing.checked", "_program_tracing.indexing"),
        "_program_tracing.known",
    },
    "_program_tracing.numpy_functions": {"_program_tracing", "_program_tracing.arrays"},
    "_program_tracing.numpy_selected": {
        *("_program_tracing", "_program_tracing.arrays", "_program_tracing.checked"),
        *("_program_tracing.numpy_functions", "_program_tracing.numpy_series"),
    },
    "_program_tracing.numpy_series": {
        *("_program_tracing", "_program_tracing.arrays", "_program_tracing.numpy_functions"),
        "_program_tracing.numpy_shapes",
    },
    "_program_tracing.numpy_shapes": {
        *("_program_tracing", "_program_tracing.arrays", "_program_tracing.numpy_functions"),
    },
    "_program_tracing.numpy_ufuncs": {
        *("_program_tracing", "_program_tracing.arrays", "_program_tracing.numpy_functions"),
    },
    "_program_tracing.numpy_choices": {
        *("_program_tracing", "_program_tracing.arrays", "_program_tracing.checked"),
        *("_program_tracing.numpy_functions", "_program_tracing.numpy_selected"),
        "_program_tracing.numpy_shapes",
    },
    "_program_tracing.numpy_random": {"_program_tracing.arrays"},
    "_program_tracing.numpy_scalars": set(),
    "_program_tracing.numpy_tensors": {"_program_tracing.arrays"},
    "_program_tracing.autograd": {"_program_tracing.custom_gradients"},
    "_program_tracing.cumulative": set(),
    "_program_tracing.custom_gradients": set(),
    "_program_tracing.flattening": {
        *("_program_tracing", "_program_tracing.batching", "_program_tracing.casting"),
        "_program_tracing.table",
    },
    "_program_tracing.checked": set(),
    "_program_tracing.copies": set(),
    "_program_tracing.data_sized": set(),
    "_program_tracing.decomposed": {"_program_tracing.checked"},
    "_program_tracing.grouping": set(),
    "_program_tracing.indexing": set(),
    "_program_tracing.loading": set(),
    "_program_tracing.packed": {"errors"},
    "_program_tracing.sizing": set(),
    "_program_tracing.recurrent": {"_program_tracing.packed"},
    "_program_tracing.stepping": {"_program_tracing.checked"},
    "_program_tracing.transforms": {"_program_tracing.autograd"},
    "_program_tracing.tracing": {
        *("_program_tracing", "_program_tracing.arrays", "_program_tracing.autograd"),
        *("_program_tracing.casting", "_program_tracing.checked", "_program_tracing.copies"),
        *("_program_tracing.custom_gradients", "_program_tracing.data_sized"),
        *("_program_tracing.cumulative", "_program_tracing.loading"),
        *("_program_tracing.decomposed", "_program_tracing.grouping"),
        *("_program_tracing.indexing", "_program_tracing.numpy_random"),
        *("_program_tracing.numpy_choices", "_program_tracing.numpy_ufuncs"),
        *("_program_tracing.numpy_scalars", "_program_tracing.numpy_tensors"),
        *("_program_tracing.packed", "_program_tracing.recurrent", "_program_tracing.stepping"),
        *("_program_tracing.sizing", "_program_tracing.table", "_program_tracing.transforms"),
        *("_fakes", "_suggest", "errors"),
    },
    "programs": {
        *("_program_tracing.batching", "_program_tracing.casting", "_program_tracing.flattening"),
        *("_program_tracing", "_program_tracing.padding_numbers", "_program_tracing.table"),
        *("_program_tracing.tracing", "_blame", "_suggest", "errors"),
    },
    "_export": {"_blame", "_exporting.programs"},
    "_exporting": set(),
    "_exporting.recording": {
        *("_backends", "_dynamic", "_settings", "_targets", "errors"),
    },
    "_exporting.programs": {"_collection", "_exporting.recording", "_suggest", "errors"},
    "_local_computations": {
        *("_program_tracing", "_program_tracing.arrays", "_program_tracing.tracing"),
        *("_array_code", "_program_tracing.batching", "_program_tracing.padding"),
        *("_program_tracing.padding_numbers", "_sized_programs", "_suggest", "programs"),
    },
    "_sized_programs": {
        *("_program_tracing", "_program_tracing.arrays", "_program_tracing.sizing"),
        *("_program_tracing.tracing", "errors", "programs"),
    },
    "_array_code": {"_program_tracing.arrays", "errors", "programs"},
}
NATIVE = "_stator"

# Imports inside functions, each with its reason; all others stand at the top of their file.
LATE_IMPORTS = {
    ("_targets.py", "stator._module"): "needs torch, and Stator can be imported without it",
    ("_backends.py", "stator._cudagraphs.backend"): "needs torch",
    (
        "_backends.py",
        "stator._kept",
    ): "milliseconds to import, for each program that imports Stator",
    ("_backends.py", "shutil"): "milliseconds to import, for each program that imports Stator",
    ("_suggest.py", "difflib"): "milliseconds to import, for errors alone",
    ("_backends.py", "stator._fx.beside"): "needs torch; seconds to import",
    ("_backends.py", "stator._fx.process"): "needs torch",
    ("_storing.py", "stator._stored.files"): "needs torch",
    ("_backends.py", "stator._fx.graphs"): "needs torch",
    ("_backends.py", "stator._fx.symbolic"): "needs torch",
    ("_backends.py", "stator._fx.metadata"): "needs torch",
    ("_export.py", "stator._exporting.programs"): "needs torch",
    ("_install.py", "torch"): "Stator can be imported without it",
    ("_dynamic.py", "torch"): "Stator can be imported without it",
    ("_local_computations.py", "ml_dtypes"): "brings types that few need",
    ("_accounting.py", "dp_accounting"): "brings what few need",
    ("_archive.py", "ml_dtypes"): "brings types that few need",
    ("_models.py", "ml_dtypes"): "brings types that few need",
    ("_tensorboard_release_manager.py", "torch.utils.tensorboard"): "may be missing",
    ("_terminal.py", "rich.console"): "may be missing",
    ("_terminal.py", "rich.progress"): "may be missing",
    ("_backends.py", "torch._dynamo.backends.registry"): "needs torch; seconds to import",
    ("_backends.py", "torch._inductor"): "needs torch; seconds to import",
    ("_backends.py", "torch._subclasses.fake_tensor"): "needs torch",
    (
        "framework.py",
        "stator.federated._execution_contexts",
    ): "it needs asyncio, which takes longer than all else",
}

MAX_LINES = 800
# Longer files, each with its reason.
LONG_FILES: dict[str, str] = {}
# The first line of a generated file says so; its length is its generator's business.
GENERATED = "generated"


@pytest.fixture(scope="module")
def crates() -> dict[str, set[str]]:
    """The crates of the workspace, with all that each depends on (tests' needs aside)."""
    done = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version=1", "--offline"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        package["name"]: {d["name"] for d in package["dependencies"] if d["kind"] != "dev"}
        for package in json.loads(done.stdout)["packages"]
    }


def test_crates_depend_on_crates_below(crates: dict[str, set[str]]) -> None:
    assert crates.keys() == CRATES.keys()
    for name, dependencies in crates.items():
        wrong = dependencies & crates.keys() - CRATES[name]
        assert not wrong, f"{name} may not depend on {', '.join(sorted(wrong))}"


def test_pure_crates_need_no_interpreter(crates: dict[str, set[str]]) -> None:
    for name in PURE:
        assert not crates[name] & INTERPRETER, name


# Rust's own tests in a file, and the first lines of blocks that its documentation would run.
RUST_TEST = re.compile(r"#\[(test|cfg\(test\))\]|\bproptest!")
FENCE = re.compile(r"^\s*//[/!]\s*```(.*)$", re.MULTILINE)
NOT_RUST = {"text", "python"}


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "crates").iterdir()))
def test_crates_that_are_not_built_for_tests_have_none(name: str) -> None:
    """`test = false` and `doctest = false` spare builds; a test written there would never run."""
    library = tomllib.loads((ROOT / "crates" / name / "Cargo.toml").read_text()).get("lib", {})
    for path in sorted((ROOT / "crates" / name / "src").rglob("*.rs")):
        code = path.read_text()
        if not library.get("test", True):
            assert not RUST_TEST.search(code), path
        if not library.get("doctest", True):
            # Every other fence ends a block.
            assert set(FENCE.findall(code)[::2]) <= NOT_RUST, path


def test_modules_of_a_crate_use_modules_below() -> None:
    for crate in sorted((ROOT / "crates").iterdir()):
        found = rust_modules.circles(rust_modules.edges(crate))
        for circle in found:
            known = [debt for debt in CIRCLES.get(crate.name, []) if circle <= debt]
            assert known, f"a circle in {crate.name}: {', '.join(sorted(circle))}"
        gone = [debt for debt in CIRCLES.get(crate.name, []) if debt not in found]
        assert not gone, f"smaller by now, or open: {crate.name}, {[sorted(debt) for debt in gone]}"


def test_rooms_of_the_tracer_use_rooms_below() -> None:
    edges = rust_modules.edges(ROOT / "crates" / "tracer")
    floor = {module: level for level, room in enumerate(TRACER.values()) for module in room.split()}
    assert floor.keys() == edges.keys(), "say in TRACER in which room each module is"
    up = {
        (module, used) for module in edges for used in edges[module] if floor[used] < floor[module]
    }
    assert not up
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert all(f"| {room} |" in text for room in TRACER), "the map shows other rooms"


def test_rooms_of_the_recorder_use_rooms_below() -> None:
    assert {path.name for path in RECORDER_ROOMS.iterdir() if path.is_dir()} == set(RECORDER)
    used = rust_modules.room_edges(RECORDER_ROOMS, SHARED, RECORDER)
    for (room, other), names in used.items():
        up = names - PYTHON_METHODS if RECORDER.index(room) < RECORDER.index(other) else set()
        assert not up, f"{room} is below {other}, and uses {', '.join(sorted(up))}"


def test_rooms_of_the_recorder_use_no_way_in() -> None:
    assert rust_modules.used_files(RECORDER_ROOMS, SHARED, RECORDER) == GROUND


def test_rooms_of_the_recorder_ask_rooms_above_only_by_the_interfaces_that_are_listed() -> None:
    code = rust_modules.without_tests(RECORDER_ROOMS / "notes" / "above.rs")
    listed = {name: set(methods.split()) for name, (_, methods) in ASKED.items()}
    assert rust_modules.interfaces(code) == listed
    implemented = rust_modules.implementations(RECORDER_ROOMS, SHARED, RECORDER)
    assert {name: {room} for name, (room, _) in ASKED.items()} == implemented


def imports(tree: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """The modules that a file imports, by full name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            for name in dict.fromkeys(f"{module}.{alias.name}" for alias in node.names):
                yield name if is_module(name) else module, node


def is_module(name: str) -> bool:
    """Whether a module of the package has this full name."""
    path = PACKAGE.parent / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """The Python files of the package."""
    for path in sorted(PACKAGE.glob("**/*.py")):
        yield path, ast.parse(path.read_text())


def edges() -> dict[str, set[str]]:
    """What each module of the package imports of it, `_stator`, the root and `federated` aside."""
    found = {}
    for path, tree in modules():
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        if module and parts[0] != "federated":
            used = {
                name.removeprefix("stator.")
                for name, _ in imports(tree)
                if name.startswith("stator.")
            }
            found[module] = {name for name in used if name.split(".")[0] != NATIVE}
    return found


def test_python_modules_import_modules_below() -> None:
    found = edges()
    assert found.keys() == MODULES.keys(), "say in MODULES what each module may import"
    for module, used in found.items():
        wrong = used - MODULES[module]
        assert not wrong, f"{module} may not import {', '.join(sorted(wrong))}"


def test_rooms_of_the_python_package_use_rooms_below() -> None:
    floor = {name: level for level, room in enumerate(PYTHON.values()) for name in room.split()}
    found = edges()
    assert floor.keys() == {module.split(".")[0] for module in found}, "say in PYTHON where it is"
    for module, used in found.items():
        level = floor[module.split(".")[0]]
        up = [name for name in used if floor.get(name.split(".")[0], -1) < level]
        assert not up, f"{module} is below {', '.join(sorted(up))}"
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for room, names in PYTHON.items():
        shown = ", ".join(f"`{name}`" for name in names.split())
        assert f"| {room} | {shown} |" in text, f"the map shows another room {room}"


def test_the_federated_package_is_names_of_the_native_module() -> None:
    for path, tree in modules():
        if "federated" not in path.parts:
            continue
        used = {name.split(".")[1] for name, _ in imports(tree) if name.startswith("stator.")}
        # Learning is for those who have torch, and uses what users of it may. It draws as programs do.
        public = {"errors", "programs", "_program_tracing"} if "learning" in path.parts else set()
        wrong = used - {NATIVE, "federated"} - public
        assert not wrong, f"{path.name} may not import {', '.join(sorted(wrong))}"


def test_the_allowed_imports_have_no_cycle() -> None:
    late = {(path.removesuffix(".py"), name.removeprefix("stator.")) for path, name in LATE_IMPORTS}
    below: set[str] = set()
    left = dict(MODULES)
    while left:
        ready = {
            name
            for name, uses in left.items()
            if all(used in below or (name, used) in late for used in uses)
        }
        assert ready, f"a cycle among {sorted(left)}"
        below |= ready
        left = {name: uses for name, uses in left.items() if name not in ready}


def test_imports_stand_at_the_top() -> None:
    found = set()
    for path, tree in modules():
        top = set(ast.walk(ast.Module([n for n in tree.body if _is_top_level(n)], [])))
        for name, node in imports(tree):
            if node not in top:
                found.add((path.name, name))
    assert found <= LATE_IMPORTS.keys(), "move to the top of the file, or give a reason"
    present = {path.name for path, _ in modules()}
    assert {key for key in LATE_IMPORTS if key[0] in present} <= found, "no longer needed"


def _is_top_level(node: ast.stmt) -> bool:
    """Imports, and the `if TYPE_CHECKING:` or `try:` around them."""
    return isinstance(node, ast.Import | ast.ImportFrom | ast.If | ast.Try)


def sources() -> Iterator[Path]:
    """Every file that people write and read as code."""
    for folder in ("crates", "python", "tests", "tools", "examples", "bench"):
        for pattern in ("*.rs", "*.py", "*.pyi", "*.c", "*.h"):
            yield from sorted((ROOT / folder).rglob(pattern))


def test_files_are_rooms_one_can_survey() -> None:
    long = {}
    for path in sources():
        lines = path.read_text().splitlines()
        if len(lines) > MAX_LINES and GENERATED not in lines[0].lower():
            long[path.relative_to(ROOT).as_posix()] = len(lines)
    assert long.keys() <= LONG_FILES.keys(), f"find a seam, or give a reason: {long}"
    assert LONG_FILES.keys() <= long.keys(), "no longer so long: take it off the list"
