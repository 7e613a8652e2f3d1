//! Code units to instructions: `EXTENDED_ARG` folded, caches counted, jumps resolved.
//!
//! Invariants of what [`decode`] returns: instructions lie in code order and cover every unit; each
//! [`Instruction::target`] is set exactly for jumps and is an index into the same list; neither
//! `EXTENDED_ARG` nor `CACHE` occurs as an instruction of its own.

use std::fmt;

use crate::error::Error;
use crate::meaning::Meaning;
use crate::opcode::Opcode;
use crate::table::{Arg, OpInfo};
use crate::version::Version;

/// An instruction by its place in the list that holds it. Prints as `i7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstrId(pub u32);

impl InstrId {
    /// The place as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for InstrId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "i{}", self.0)
    }
}

/// One instruction with its prefixes and caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The unit at which its prefixes, or itself, began when it was decoded. Stale after an edit.
    pub offset: u32,
    /// The opcode.
    pub opcode: Opcode,
    /// The whole argument. A jump's is only what was decoded: the assembler goes by `target`.
    pub arg: u32,
    /// Where a jump leads; `None` for all other instructions.
    pub target: Option<InstrId>,
    /// How many `EXTENDED_ARG`s it had: the assembler never writes fewer.
    pub prefixes: u8,
    /// How many units of inline cache follow it.
    pub caches: u8,
}

impl Instruction {
    /// What it does.
    pub const fn meaning(&self, version: Version) -> Meaning {
        Meaning::of(version, self.opcode, self.arg)
    }

    /// An instruction that doesn't jump. `None` if the version lacks the opcode.
    pub fn new(version: Version, opcode: Opcode, arg: u32) -> Option<Instruction> {
        let info = version.info(opcode)?;
        (!info.has_jump()).then_some(Instruction {
            offset: 0,
            opcode,
            arg,
            target: None,
            prefixes: 0,
            caches: info.caches,
        })
    }

    /// A jump. `None` if the version lacks the opcode or it doesn't jump.
    pub fn jump(version: Version, opcode: Opcode, target: InstrId) -> Option<Instruction> {
        let info = version.info(opcode)?;
        info.has_jump().then_some(Instruction {
            offset: 0,
            opcode,
            arg: 0,
            target: Some(target),
            prefixes: 0,
            caches: info.caches,
        })
    }

    /// The unit of the opcode itself, behind the prefixes: what a frame's instruction pointer
    /// names while the instruction runs. Stale after an edit.
    pub const fn opcode_unit(&self) -> u32 {
        self.offset + self.prefixes as u32
    }

    /// The unit behind prefixes, opcode and caches. Stale after an edit.
    pub const fn end(&self) -> u32 {
        self.opcode_unit() + 1 + self.caches as u32
    }
}

/// Decodes `co_code`: the bytes of a code object with empty caches.
pub fn decode(version: Version, code: &[u8]) -> Result<Vec<Instruction>, Error> {
    if !code.len().is_multiple_of(2) || code.len() / 2 > i32::MAX as usize {
        return Err(Error::CodeLength(code.len()));
    }
    let mut instructions = Vec::with_capacity(code.len() / 4);
    let mut unit = 0;
    while unit < code.len() / 2 {
        let instruction = decode_one(version, code, unit as u32)?;
        unit = instruction.end() as usize;
        instructions.push(instruction);
    }
    resolve_jumps(version, &mut instructions)?;
    Ok(instructions)
}

/// The opcode's row and the argument byte of one unit.
fn read_unit(version: Version, code: &[u8], unit: u32) -> Result<(&'static OpInfo, u8), Error> {
    let at = unit as usize * 2;
    let number = code[at];
    let info = version.opcode(number).and_then(|opcode| version.info(opcode));
    Ok((info.ok_or(Error::UnknownOpcode { unit, number })?, code[at + 1]))
}

fn decode_one(version: Version, code: &[u8], offset: u32) -> Result<Instruction, Error> {
    let units = (code.len() / 2) as u32;
    let mut arg = 0;
    let mut unit = offset;
    let info = loop {
        let (info, low) = read_unit(version, code, unit)?;
        arg = arg << 8 | u32::from(low);
        match info.opcode {
            Opcode::EXTENDED_ARG if unit - offset == 3 || unit + 1 == units => {
                return Err(Error::BadPrefix { unit });
            }
            Opcode::EXTENDED_ARG => unit += 1,
            Opcode::CACHE => return Err(Error::StrayCache { unit }),
            _ => break info,
        }
    };
    for cache in unit + 1..=unit + u32::from(info.caches) {
        let at = cache as usize * 2;
        if code.get(at..at + 2) != Some(&[0, 0]) {
            return Err(Error::BadCache { unit: cache });
        }
    }
    let prefixes = (unit - offset) as u8;
    Ok(Instruction {
        offset,
        opcode: info.opcode,
        arg,
        target: None,
        prefixes,
        caches: info.caches,
    })
}

fn resolve_jumps(version: Version, instructions: &mut [Instruction]) -> Result<(), Error> {
    for at in 0..instructions.len() {
        let jump = instructions[at];
        let distance = match version.info(jump.opcode).map(|info| info.arg) {
            Some(Arg::JumpForward) => i64::from(jump.arg),
            Some(Arg::JumpBackward) => -i64::from(jump.arg),
            _ => continue,
        };
        let target = i64::from(jump.end()) + distance;
        let found = instruction_at(instructions, target);
        let found = found.ok_or(Error::JumpTarget { unit: jump.offset, target })?;
        instructions[at].target = Some(found);
    }
    Ok(())
}

/// The instruction that starts at this unit (with its first prefix).
pub(crate) fn instruction_at(instructions: &[Instruction], unit: i64) -> Option<InstrId> {
    let at = instructions.binary_search_by(|i| i64::from(i.offset).cmp(&unit)).ok()?;
    Some(InstrId(at as u32))
}

/// The instruction that this unit belongs to, be it a prefix, the opcode or a cache.
///
/// The list must be as it was decoded.
pub fn instruction_covering(instructions: &[Instruction], unit: u32) -> Option<InstrId> {
    let after = instructions.partition_point(|i| i.offset <= unit);
    let found = after.checked_sub(1)?;
    (unit < instructions[found].end()).then_some(InstrId(found as u32))
}
