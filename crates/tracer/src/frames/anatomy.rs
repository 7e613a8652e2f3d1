//! What breaking and resuming need to know of a code object.

use std::cell::OnceCell;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stator_bytecode::{InstrId, Instruction, Liveness, Meaning, decode};
use stator_cpython::code::Code;
use stator_cpython::opcode::{self, TARGET};

use super::questions::Questions;

/// A decoded code object.
pub struct Anatomy {
    live: Liveness,
    /// Whether it may ask for `locals()`.
    asks_locals: bool,
    questions: OnceCell<Questions>,
    /// Keeps the address from being taken by another.
    _code: Py<PyAny>,
}

impl Anatomy {
    /// Decodes; `None` if the code isn't the compiler's.
    pub fn of(code: &Code<'_>) -> Option<Self> {
        // Caches stay zero, whatever the interpreter has put there.
        let mut bytes = vec![0; 2 * code.units().len()];
        let mut at = 0;
        while let Some(unit) = code.units().get(at) {
            let [number, arg] = unit.to_le_bytes();
            let number = opcode::deopt(number);
            bytes[2 * at..2 * at + 2].copy_from_slice(&[number, arg]);
            at += 1 + opcode::caches(number);
        }
        let instructions = decode(TARGET, &bytes).ok()?;
        let table = code.exception_table();
        let live = Liveness::of(TARGET, instructions, table, code.nlocalsplus()).ok()?;
        let questions = OnceCell::new();
        let asks_locals = asks_locals(code);
        Some(Self { live, asks_locals, questions, _code: code.object().to_owned().unbind() })
    }

    /// What the code, which is this one's, may ask when it is run as a generator's. Attributes are taken to be plain.
    pub fn questions(&self, code: &Code<'_>) -> Questions {
        *self.questions.get_or_init(|| Questions::of(self.instructions(), code))
    }

    fn instructions(&self) -> &[Instruction] {
        self.live.instructions()
    }

    fn at(&self, unit: usize) -> Option<(usize, &Instruction)> {
        let unit = u32::try_from(unit).ok()?;
        let InstrId(index) = stator_bytecode::instruction_covering(self.instructions(), unit)?;
        self.instructions().get(index as usize).map(|found| (index as usize, found))
    }

    /// Where evaluation has to start so that the instruction at `unit` is executed, and the unit
    /// that this instruction itself begins at: `CALL` needs the `KW_NAMES` in front of it.
    pub fn start(&self, unit: usize) -> Option<(usize, usize)> {
        let (index, instruction) = self.at(unit)?;
        let last = instruction.offset as usize;
        let before = |distance: usize| {
            index.checked_sub(distance).and_then(|index| self.instructions().get(index))
        };
        let names = match instruction.meaning(TARGET) {
            Meaning::Nothing => before(1),
            Meaning::Call { .. } => match before(1) {
                Some(found) if found.meaning(TARGET) == Meaning::Nothing => before(2),
                found => found,
            },
            _ => None,
        };
        let names = names.filter(|found| is_names(found));
        Some((names.map_or(last, |names| names.offset as usize), last))
    }

    /// Whether a frame can stand before the instruction at `unit` and be resumed behind it: the
    /// effect of `KW_NAMES` is no part of a frame.
    pub fn is_boundary(&self, unit: usize) -> bool {
        self.start(unit).is_some_and(|(start, itself)| start == itself)
            && !self.at(unit).is_some_and(|(_, found)| is_names(found))
    }

    /// Whether the code goes from `unit` to a `FOR_ITER` at `last` and does nothing on the way.
    pub fn is_idle(&self, unit: usize, last: usize) -> bool {
        const LONGEST: usize = 8;
        let Some((mut at, _)) = self.at(unit) else { return false };
        for _ in 0..LONGEST {
            let Some(instruction) = self.instructions().get(at) else { return false };
            if instruction.offset as usize == last {
                return matches!(instruction.meaning(TARGET), Meaning::Next { .. });
            }
            at = match instruction.meaning(TARGET) {
                Meaning::Nothing | Meaning::Pop | Meaning::SetLocal(_) | Meaning::SetLocals(..) => {
                    at + 1
                }
                Meaning::Jump => {
                    let Some(InstrId(target)) = instruction.target else { return false };
                    target as usize
                }
                _ => return false,
            };
        }
        false
    }

    /// Whether the instruction at `unit` stands in a loop.
    pub fn is_in_loop(&self, unit: usize) -> bool {
        let Some((at, _)) = self.at(unit) else { return false };
        self.instructions().iter().enumerate().any(|(index, instruction)| {
            instruction.target.is_some_and(|InstrId(to)| (to as usize..=index).contains(&at))
        })
    }

    /// The unit behind the instruction at `unit`.
    pub fn next(&self, unit: usize) -> Option<usize> {
        self.at(unit).map(|(_, instruction)| instruction.end() as usize)
    }

    /// The unit of the opcode itself, behind its `EXTENDED_ARG`s.
    pub fn opcode_unit(&self, unit: usize) -> Option<usize> {
        self.at(unit).map(|(_, instruction)| instruction.opcode_unit() as usize)
    }

    /// What the instruction at `unit` does.
    pub fn meaning(&self, unit: usize) -> Option<Meaning> {
        self.at(unit).map(|(_, instruction)| instruction.meaning(TARGET))
    }

    /// The constant that names the last arguments of the `CALL` at `unit`.
    pub fn names(&self, unit: usize) -> Option<u32> {
        let (start, last) = self.start(unit)?;
        match self.meaning(start)? {
            Meaning::Keywords(constant) if start != last => Some(constant),
            _ => None,
        }
    }

    /// Whether a fast local may still be read when evaluation goes on at `unit`.
    pub fn is_live_before(&self, unit: usize, local: usize) -> bool {
        self.asks_locals || self.live.is_live_before(unit, local)
    }

    /// Whether a fast local may still be read once the instruction at `unit` is done.
    pub fn is_live_behind(&self, unit: usize, local: usize) -> bool {
        self.asks_locals || self.live.is_live_behind(unit, local)
    }
}

/// Whether a function may ask for all its variables: its code names `locals`.
pub fn asks_locals(code: &Code<'_>) -> bool {
    let names = code.names();
    // Names of code objects are interned.
    let locals = pyo3::intern!(names.py(), "locals");
    names.cast::<PyTuple>().is_ok_and(|names| names.iter_borrowed().any(|name| name.is(locals)))
}

/// Whether an instruction names the last arguments of the call behind it.
fn is_names(instruction: &Instruction) -> bool {
    matches!(instruction.meaning(TARGET), Meaning::Keywords(_))
}
