"""Writes the opcode tables of `stator-bytecode` from what each CPython says of itself.

    python crates/bytecode/tools/gen_opcodes.py PYTHON3.11 PYTHON3.12 PYTHON3.13 PYTHON3.14
    python crates/bytecode/tools/gen_opcodes.py --check PYTHON...

Each argument is an interpreter. Every one of them is asked (through `--rows`, which this script
runs in it) for its rows: name, number, inline caches, kind of argument, control flow, and the stack
effect, which is *fitted* to `dis.stack_effect` over many arguments, so that none is typed by hand.
Written are `src/opcode.rs` (the names of all versions) and one `src/v3XX.rs` for each version; for the
versions that `instructions.toml` has rows of, also what their instructions mean
(`src/meaning/v3XX.rs`) and the evaluator's dispatch (`crates/evaluator/src/dispatch/v3XX.rs`).
`opcode.rs` needs interpreters of all versions. `--check` writes nothing and fails if a file differs.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
SRC = TOOLS.parent / "src"
DISPATCH = TOOLS.parent.parent / "evaluator" / "src" / "dispatch"

# Not in `co_code`: CPython writes these into running code only, and un-writes them for readers.
HIDDEN = {"RESERVED", "ENTER_EXECUTOR"}
STOPS = {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"}
JUMPS = {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}
PAIRS = {
    "LOAD_FAST_LOAD_FAST",
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW",
    "STORE_FAST_LOAD_FAST",
    "STORE_FAST_STORE_FAST",
}
# Its argument tells tools where the loop's SEND is; control goes to the next instruction.
NO_JUMPS = {"END_ASYNC_FOR"}
# Low bits of the argument that are flags, below the index.
NAME_SHIFT = {
    (3, 11): {"LOAD_GLOBAL": 1},
    (3, 12): {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2},
    (3, 13): {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2},
    (3, 14): {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2},
}
COMPARE_SHIFT = {(3, 11): 0, (3, 12): 4, (3, 13): 5, (3, 14): 5}

SAMPLES = [*range(0, 70), 127, 128, 255, 256, 257, 511, 512, 1000, 65535, 65536, 70000]


def effect_samples(dis, number, has_arg):
    """Stack effects by argument: pairs (not jumping, jumping)."""
    found = {}
    for arg in SAMPLES if has_arg else [None]:
        fall = dis.stack_effect(number, arg, jump=False)
        jump = dis.stack_effect(number, arg, jump=True)
        assert dis.stack_effect(number, arg, jump=None) == max(fall, jump)
        found[arg or 0] = (fall, jump)
    return found


def fit_effect(name, found):
    """The one `Effect` that gives all the samples."""
    branches = set(found.values())
    if len(branches) == 1:
        fall, jump = branches.pop()
        if fall == jump:
            return f"Fixed({fall})"
        return f"Branch {{ fall: {fall}, jump: {jump} }}"
    assert all(fall == jump for fall, jump in branches), name
    values = {arg: fall for arg, (fall, _) in found.items()}
    base = values[0]
    per_arg = values[1] - base
    if all(v == base + per_arg * a for a, v in values.items()):
        return f"Linear {{ base: {base}, per_arg: {per_arg} }}"
    for mask in range(1, 16):
        low = mask & -mask
        per_bit = values[low] - base
        if all(v == base + per_bit * (a & mask).bit_count() for a, v in values.items()):
            return f"Bits {{ base: {base}, mask: {mask}, per_bit: {per_bit} }}"
    if all(v == (a & 0xFF) + (a >> 8) for a, v in values.items()):
        return "UnpackEx"
    for key in range(16):
        rest = values[key + 1]
        if all(v == (values[key] if a == key else rest) for a, v in values.items()):
            return f"Match {{ arg: {key}, equal: {values[key]}, other: {rest} }}"
    raise AssertionError(f"no effect fits {name}: {values}")


def rows():
    """The rows of the interpreter that runs this."""
    import dis
    import opcode

    version = sys.version_info[:2]
    cache_of = opcode._inline_cache_entries
    found = []
    for name, number in sorted(dis.opmap.items(), key=lambda item: item[1]):
        if not 0 <= number < 256 or name in HIDDEN or name.startswith("INSTRUMENTED_"):
            continue
        has_arg = number >= dis.HAVE_ARGUMENT if version < (3, 12) else number in dis.hasarg
        # Arguments are optional where CPython refuses them: take its word, not the list's.
        try:
            dis.stack_effect(number, 0 if has_arg else None)
        except ValueError:
            has_arg = not has_arg
        caches = cache_of.get(name, 0) if isinstance(cache_of, dict) else cache_of[number]
        jumps = number in dis.hasjrel and name not in NO_JUMPS
        assert number not in dis.hasjabs
        if jumps:
            arg = "JumpBackward" if "BACKWARD" in name else "JumpForward"
        elif name in PAIRS:
            arg = "LocalPair"
        elif number in dis.hasconst:
            arg = "Const"
        elif number in dis.hasname:
            arg = f"Name {{ shift: {NAME_SHIFT[version].get(name, 0)} }}"
        elif number in dis.hasfree or name.endswith("_DEREF"):
            arg = "Free"
        elif number in dis.haslocal:
            arg = "Local"
        elif number in dis.hascompare:
            arg = f"Compare {{ shift: {COMPARE_SHIFT[version]} }}"
        else:
            arg = "Number" if has_arg else "Unused"
        flow = "Stop" if name in STOPS else "Jump" if name in JUMPS else "Branch" if jumps else "Next"
        effect = fit_effect(name, effect_samples(dis, number, has_arg))
        found.append([name, number, caches, arg, flow, effect])
    return {"version": version, "rows": found}


HEAD = "// Generated by crates/bytecode/tools/gen_opcodes.py: do not edit.\n"


def version_file(data):
    major, minor = data["version"]
    lines = [
        HEAD,
        f"//! The opcodes of CPython {major}.{minor}.\n",
        "use crate::opcode::Opcode as Op;",
        "use crate::table::{Arg, Effect, Flow, OpInfo, Table, row};\n",
        f"/// Everything known of CPython {major}.{minor}'s opcodes.",
        "pub static TABLE: Table = Table::new(ROWS);\n",
        "/// One row for each opcode, by number.",
        "#[rustfmt::skip]",
        "pub const ROWS: &[OpInfo] = &[",
    ]
    for name, number, caches, arg, flow, effect in data["rows"]:
        lines.append(
            f"    row(Op::{name}, {number}, {caches}, Arg::{arg}, Flow::{flow}, Effect::{effect}),"
        )
    lines.append("];\n")
    return "\n".join(lines)


def opcode_file(versions):
    names = {}
    for data in versions:
        for row in data["rows"]:
            names.setdefault(row[0], []).append((*data["version"], row[1]))
    lines = [
        HEAD,
        "//! The names of all opcodes of all supported versions: one enum, shared by the versions.\n",
        "/// An opcode by its name. The number differs between versions: see [`crate::Version`].",
        "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]",
        "#[repr(u8)]",
        "#[allow(non_camel_case_types)] // As CPython spells them.",
        "#[allow(clippy::upper_case_acronyms)]",
        "#[rustfmt::skip]",
        "pub enum Opcode {",
    ]
    for name, where in sorted(names.items()):
        numbers = ", ".join(f"{number} in {major}.{minor}" for major, minor, number in where)
        lines += [f"    /// {numbers}.", f"    {name},"]
    lines += [
        "}\n",
        "impl Opcode {",
        "    /// All opcodes, sorted by name: `ALL[op as usize] == op`.",
        "    #[rustfmt::skip]",
        f"    pub const ALL: [Opcode; {len(names)}] = [",
        *(f"        Opcode::{name}," for name in sorted(names)),
        "    ];\n",
        "    /// The name, as CPython spells it.",
        "    #[allow(clippy::too_many_lines)] // A line for each opcode.",
        "    #[rustfmt::skip]",
        "    pub const fn name(self) -> &'static str {",
        f"        const NAMES: [&str; {len(names)}] = [",
        *(f'            "{name}",' for name in sorted(names)),
        "        ];",
        "        NAMES[self as usize]",
        "    }",
        "}\n",
    ]
    for data in versions:
        major, minor = data["version"]
        own = {row[0] for row in data["rows"]}
        foreign = sorted(set(names) - own)
        lines += [
            f"/// A pattern: the opcodes that CPython {major}.{minor} doesn't have. It lets a `match` for that",
            "/// version stay exhaustive without a wildcard.",
            "#[macro_export]",
            f"macro_rules! absent_in_v{major}{minor} {{",
            "    () => {",
            *(f"        {'    | ' if i else ''}$crate::Opcode::{name}" for i, name in enumerate(foreign)),
            "    };",
            "}\n",
        ]
    return "\n".join(lines)


def instructions():
    """The versions that `instructions.toml` has rows of, and the rows of all opcodes."""
    table = tomllib.loads((TOOLS / "instructions.toml").read_text())
    rows = table["rows"].items()
    return table["versions"], {name: row if isinstance(row, list) else [row] for name, row in rows}


def instruction_rows(version, names):
    """The one row of each of the opcodes in this version."""
    _, known = instructions()
    found = {}
    for name in names:
        rows = [row for row in known.get(name, []) if version in row.get("versions", [version])]
        if len(rows) != 1 or len(rows[0].keys() & {"handler", "leaves", "turns", "native"}) != 1:
            raise SystemExit(f"instructions.toml has no row, or no clear one, of {name} in {version}")
        found[name] = rows[0]
    return found


def meaning_file(data):
    major, minor = data["version"]
    rows = instruction_rows(f"{major}.{minor}", [row[0] for row in data["rows"]])
    said = {}
    for name, row in rows.items():
        if "means" in row:
            said.setdefault(row["means"], []).append(name)
    arg = "arg" if any("arg" in meaning for meaning in said) else "_arg"
    truth = ", Truth" if any("Truth" in meaning for meaning in said) else ""
    lines = [
        HEAD,
        f"//! What the instructions of CPython {major}.{minor} mean.\n",
        f"use super::{{Meaning{truth}}};" if truth else "use super::Meaning;",
        "use crate::opcode::Opcode as Op;\n",
        "/// What an opcode does with an argument.",
        "#[rustfmt::skip]",
        f"pub(super) const fn meaning(opcode: Op, {arg}: u32) -> Meaning {{",
        "    match opcode {",
    ]
    for meaning, names in said.items():
        opcodes = " | ".join(f"Op::{name}" for name in names)
        lines.append(f"        {opcodes} => Meaning::{meaning},")
    lines += ["        _ => Meaning::Other,", "    }", "}\n"]
    return "\n".join(lines)


def dispatch_file(data):
    major, minor = data["version"]
    rows = instruction_rows(f"{major}.{minor}", [row[0] for row in data["rows"]])
    lines = [
        HEAD,
        f"//! The opcodes of CPython {major}.{minor} and their handlers.\n",
        "use stator_cpython::opcode as op;",
        "use stator_cpython::ops::UnaryOp;\n",
        "use super::Turn;",
        "use crate::{Evaluation, Sites};\n",
        "impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {",
        "    /// Executes one instruction.",
        "    #[inline(always)]",
        "    #[allow(clippy::too_many_lines)] // A line for each opcode.",
        "    #[rustfmt::skip]",
        "    pub(super) fn execute(&mut self, opcode: u8, arg: u32) -> Turn<'py> {",
        "        let index = arg as usize;",
        "        Turn::Done(match opcode {",
    ]
    for name, row in rows.items():
        if "handler" in row:
            lines.append(f"            op::{name} => self.{row['handler']},")
        elif "leaves" in row:
            lines.append(
                f"            op::{name} => return Turn::Left(self.{row['leaves']}),"
            )
        elif "turns" in row:
            lines.append(f"            op::{name} => return self.{row['turns']},")
    lines += ["            // CPython executes these, and what follows in the frame:"]
    for name, row in rows.items():
        if "native" in row:
            lines.append(f"            // {name}: {row['native']}.")
            lines.append(f"            op::{name} => return Turn::Native,")
    lines += ["            // What a tool of CPython's instrumented:"]
    lines += ["            _ => return Turn::Unknown,", "        })", "    }", "}\n"]
    return "\n".join(lines)


def main():
    if sys.argv[1:] == ["--rows"]:
        print(json.dumps(rows()))
        return
    check = sys.argv[1:2] == ["--check"]
    versions = []
    for python in sys.argv[2 if check else 1 :]:
        answer = subprocess.run(
            [python, __file__, "--rows"], check=True, capture_output=True, text=True
        )
        versions.append(json.loads(answer.stdout))
    if not versions:
        raise SystemExit(__doc__)
    evaluated, _ = instructions()
    files = {}
    for data in versions:
        major, minor = data["version"]
        name = f"v{major}{minor}.rs"
        files[SRC / name] = version_file(data)
        if f"{major}.{minor}" in evaluated:
            files[SRC / "meaning" / name] = meaning_file(data)
            files[DISPATCH / name] = dispatch_file(data)
    if len(versions) == len(NAME_SHIFT):
        files[SRC / "opcode.rs"] = opcode_file(versions)
    if check:
        stale = [str(path) for path, text in files.items() if path.read_text() != text]
        if stale:
            raise SystemExit(f"generated files differ: {', '.join(stale)}")
        return
    for path, text in files.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
