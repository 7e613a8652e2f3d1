//! Code units to instructions: `EXTENDED_ARG` folded, caches counted, jumps resolved.
//!
//! Invariants of what [`decode`] returns: instructions lie in code order and cover every unit; each
//! [`Instruction::target`] is set exactly for jumps and is an index into the same list; neither
//! `EXTENDED_ARG` nor `CACHE` occurs as an instruction of its own.

use crate::error::Error;
use crate::instruction::{Instruction, instruction_at};
use crate::opcode::Opcode;
use crate::table::{Arg, OpInfo};
use crate::version::Version;

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
