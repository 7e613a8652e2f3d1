//! Instructions to code units: prefixes chosen, jump distances computed, caches emptied.
//!
//! Whether a jump needs `EXTENDED_ARG`s depends on its distance, which depends on the prefixes in
//! between. Widths start at their least and only grow, so the search for them ends.

use crate::error::{Error, Unencodable};
use crate::instruction::{InstrId, Instruction};
use crate::opcode::Opcode;
use crate::table::{Arg, OpInfo};
use crate::version::Version;

/// Assembled code, and where each instruction went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembly {
    /// The bytes, as in `co_code`.
    pub code: Vec<u8>,
    /// For each instruction the unit at which its prefixes, or itself, begin; then the code's end.
    pub offsets: Vec<u32>,
}

/// Assembles a list of instructions. What [`crate::decode`] gave comes back byte by byte.
pub fn assemble(version: Version, instructions: &[Instruction]) -> Result<Assembly, Error> {
    let rows = check(version, instructions)?;
    let mut prefixes: Vec<u8> =
        instructions.iter().zip(&rows).map(|(i, row)| least_prefixes(i, row)).collect();
    let offsets = loop {
        let offsets = lay_out(&rows, &prefixes)?;
        let mut grown = false;
        for (at, instruction) in instructions.iter().enumerate() {
            if let Some(target) = instruction.target {
                let needed = prefixes_for(distance(&offsets, at, target));
                if needed > prefixes[at] {
                    prefixes[at] = needed;
                    grown = true;
                }
            }
        }
        if !grown {
            break offsets;
        }
    };
    let end = offsets.last().copied().unwrap_or(0);
    let mut code = Vec::with_capacity(end as usize * 2);
    for (at, (instruction, row)) in instructions.iter().zip(&rows).enumerate() {
        let arg = match instruction.target {
            Some(target) => distance(&offsets, at, target),
            None => instruction.arg,
        };
        emit(version, &mut code, row, arg, prefixes[at]);
    }
    Ok(Assembly { code, offsets })
}

/// Each instruction's row, once it is known that all of them can be encoded.
fn check(version: Version, instructions: &[Instruction]) -> Result<Vec<&'static OpInfo>, Error> {
    let mut rows = Vec::with_capacity(instructions.len());
    for (at, instruction) in instructions.iter().enumerate() {
        let at = InstrId(at as u32);
        let row = check_one(version, instructions.len(), at, instruction)
            .map_err(|why| Error::Unencodable { at, why })?;
        rows.push(row);
    }
    Ok(rows)
}

fn check_one(
    version: Version,
    count: usize,
    at: InstrId,
    instruction: &Instruction,
) -> Result<&'static OpInfo, Unencodable> {
    let opcode = instruction.opcode;
    let row = version.info(opcode).ok_or(Unencodable::Absent(opcode, version))?;
    if matches!(opcode, Opcode::EXTENDED_ARG | Opcode::CACHE) {
        return Err(Unencodable::Implied(opcode));
    }
    if instruction.prefixes > 3 {
        return Err(Unencodable::Prefixes(instruction.prefixes));
    }
    if row.has_jump() != instruction.target.is_some() {
        return Err(Unencodable::Target);
    }
    if let Some(target) = instruction.target {
        if target.index() >= count {
            return Err(Unencodable::TargetRange(target));
        }
        // A backward jump of distance 0 leads to the next instruction.
        let reachable = match row.arg {
            Arg::JumpForward => target > at,
            _ => target.0 <= at.0 + 1,
        };
        if !reachable {
            return Err(Unencodable::Direction(target));
        }
    }
    Ok(row)
}

fn least_prefixes(instruction: &Instruction, row: &OpInfo) -> u8 {
    let needed = if row.has_jump() { 0 } else { prefixes_for(instruction.arg) };
    needed.max(instruction.prefixes)
}

/// How many prefixes an argument needs.
const fn prefixes_for(arg: u32) -> u8 {
    match arg {
        0..=0xFF => 0,
        0x100..=0xFFFF => 1,
        0x1_0000..=0xFF_FFFF => 2,
        _ => 3,
    }
}

fn lay_out(rows: &[&OpInfo], prefixes: &[u8]) -> Result<Vec<u32>, Error> {
    let mut offsets = Vec::with_capacity(rows.len() + 1);
    let mut unit = 0_u32;
    for (row, prefixes) in rows.iter().zip(prefixes) {
        offsets.push(unit);
        unit += u32::from(*prefixes) + 1 + u32::from(row.caches);
        if unit > i32::MAX as u32 {
            return Err(Error::CodeLength(unit as usize * 2));
        }
    }
    offsets.push(unit);
    Ok(offsets)
}

/// The units between the end of instruction `at` and its target, in either direction.
fn distance(offsets: &[u32], at: usize, target: InstrId) -> u32 {
    offsets[at + 1].abs_diff(offsets[target.index()])
}

fn emit(version: Version, code: &mut Vec<u8>, row: &OpInfo, arg: u32, prefixes: u8) {
    let extended = version.info(Opcode::EXTENDED_ARG).map_or(0, |info| info.number);
    for above in (1..=prefixes).rev() {
        code.extend([extended, (arg >> (8 * above)) as u8]);
    }
    code.extend([row.number, arg as u8]);
    code.resize(code.len() + usize::from(row.caches) * 2, 0);
}
