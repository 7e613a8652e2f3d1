//! What a generator may ask of data while it runs, as its instructions say.

use stator_bytecode::{Flow, InstrId, Instruction, Meaning, Truth};
use stator_cpython::code::Code;
use stator_cpython::opcode::TARGET;

/// Builtins that give a truth value, and ask no tensor for it.
const ASK_NONE: [&str; 4] = ["isinstance", "issubclass", "callable", "hasattr"];

/// What a generator's code may ask about data, by its instructions alone: an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Questions {
    /// Whether something in it may ask: a comparison, a call, a branch.
    pub asks: bool,
    /// Whether all that it yields are truth values that ask nothing when they are tested.
    pub yields_answers: bool,
}

impl Questions {
    /// Of a code object, by its instructions.
    pub fn of(instructions: &[Instruction], code: &Code<'_>) -> Self {
        let mut found = Self { asks: false, yields_answers: true };
        let begin = instructions.iter().position(|at| at.meaning(TARGET) == Meaning::Begin);
        let mut ways: Vec<usize> = begin.into_iter().collect();
        let mut seen = vec![false; instructions.len()];
        while let Some(at) = ways.pop() {
            let Some(instruction) = instructions.get(at) else { continue };
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            // A value that comes by a jump isn't looked at.
            let is_answer = || gives_answer(&instructions[..at], code);
            match instruction.meaning(TARGET) {
                Meaning::Global { name, with_null: true } => {
                    found.asks |= !asks_none(code, name);
                }
                Meaning::Test(Truth::Not | Truth::Value | Truth::Jump { .. }) => {
                    found.asks |= !is_answer();
                }
                Meaning::Yield => found.yields_answers &= is_answer(),
                Meaning::Attribute { is_method, .. } => found.asks |= is_method,
                Meaning::Nothing
                | Meaning::Begin
                | Meaning::Extend
                | Meaning::Pop
                | Meaning::Copy
                | Meaning::Swap
                | Meaning::Constant(_)
                | Meaning::Local(_)
                | Meaning::SetLocal(_)
                | Meaning::Locals(..)
                | Meaning::SetLocals(..)
                | Meaning::Global { with_null: false, .. }
                | Meaning::Free(_)
                | Meaning::Identity
                | Meaning::Keywords(_)
                | Meaning::Call { .. }
                | Meaning::Jump
                | Meaning::TestNone { .. }
                | Meaning::Next { .. }
                | Meaning::EndLoop
                | Meaning::Tuple { .. }
                | Meaning::Return => {}
                _ => found.asks = true,
            }
            let flow = TARGET.info(instruction.opcode).map_or(Flow::Stop, |info| info.flow);
            if matches!(flow, Flow::Next | Flow::Branch) {
                ways.push(at + 1);
            }
            ways.extend(instruction.target.map(|InstrId(to)| to as usize));
        }
        found
    }
}

/// Whether these instructions end by making a truth value.
fn gives_answer(instructions: &[Instruction], code: &Code<'_>) -> bool {
    let mut before = instructions.iter().rev().map(|at| at.meaning(TARGET));
    match before.find(|meaning| *meaning != Meaning::Nothing) {
        Some(Meaning::Identity | Meaning::Test(Truth::Not | Truth::Value)) => true,
        // What it calls is the callee pushed last: the arguments call nothing else.
        Some(Meaning::Call { .. }) => before
            .find_map(|meaning| match meaning {
                Meaning::Global { name, with_null: true } => Some(asks_none(code, name)),
                Meaning::Call { .. } => Some(false),
                _ => None,
            })
            .unwrap_or(false),
        _ => false,
    }
}

/// Whether a name is that of a builtin that asks no tensor.
fn asks_none(code: &Code<'_>, name: u32) -> bool {
    let name = code.name_at(name as usize);
    name.extract::<&str>().is_ok_and(|name| ASK_NONE.contains(&name))
}
