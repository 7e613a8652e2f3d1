//! What can be wrong with the bytes of a code object, or with an edited one.
//!
//! Malformed input ends in one of these, never in a panic. Units are two-byte code units counted
//! from the start of the code; positions of tables are bytes.

use std::fmt;

use crate::instruction::InstrId;
use crate::opcode::Opcode;
use crate::version::Version;

/// Why bytes couldn't be decoded, or instructions couldn't be assembled or analysed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The code isn't a whole number of units, or has more than 2^31 of them.
    CodeLength(usize),
    /// A number that names no opcode in this version.
    UnknownOpcode {
        /// Where.
        unit: u32,
        /// The number found.
        number: u8,
    },
    /// An inline cache where an instruction should start.
    StrayCache {
        /// Where.
        unit: u32,
    },
    /// An inline cache that is missing or isn't empty.
    BadCache {
        /// Where.
        unit: u32,
    },
    /// An `EXTENDED_ARG` that no instruction follows, or the fourth before one instruction.
    BadPrefix {
        /// Where.
        unit: u32,
    },
    /// A jump to outside the code, or into the middle of an instruction.
    JumpTarget {
        /// The jumping instruction's first unit.
        unit: u32,
        /// The unit it jumps to.
        target: i64,
    },
    /// An instruction of the assembler's input can't be encoded.
    Unencodable {
        /// Which.
        at: InstrId,
        /// Why not.
        why: Unencodable,
    },
    /// A table of exceptions or lines ends within an entry.
    Truncated {
        /// The byte at which more was expected.
        at: usize,
    },
    /// A table entry's first byte isn't marked as one, or another byte is.
    EntryMark {
        /// Which byte.
        at: usize,
    },
    /// A number in a table is too large.
    NumberTooLarge {
        /// The entry's first byte when decoding, the entry's index when encoding.
        at: usize,
    },
    /// A range of a table doesn't fall on instructions.
    RangeBoundary {
        /// The unit or instruction that doesn't.
        at: u32,
    },
    /// The location table covers fewer or more units than the code has.
    LocationCount {
        /// What the code has.
        expected: usize,
        /// What the table covers.
        found: usize,
    },
    /// The stack would be popped below its bottom, or a depth doesn't fit.
    StackDepth {
        /// The instruction that does so.
        at: InstrId,
        /// The depth after it.
        depth: i64,
    },
    /// Two ways lead to an instruction with different stack depths.
    DepthMismatch {
        /// The instruction.
        at: InstrId,
        /// The depth found first.
        first: u32,
        /// The depth found later.
        second: u32,
    },
    /// Control runs past the last instruction.
    FallsOff {
        /// The last instruction, if there is one.
        at: InstrId,
    },
    /// A line of the text form that can't be read.
    Text {
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

/// Why an instruction can't be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unencodable {
    /// The version has no such opcode.
    Absent(Opcode, Version),
    /// `EXTENDED_ARG` and `CACHE` are made by the assembler.
    Implied(Opcode),
    /// A jump without a target, or a target for another opcode.
    Target,
    /// The target is no instruction.
    TargetRange(InstrId),
    /// The target lies on the wrong side of the jump.
    Direction(InstrId),
    /// More than three prefixes asked for.
    Prefixes(u8),
}

impl fmt::Display for Unencodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unencodable::Absent(opcode, version) => {
                write!(f, "CPython {version} has no {opcode}")
            }
            Unencodable::Implied(opcode) => write!(f, "{opcode} is made by the assembler"),
            Unencodable::Target => f.write_str("jumps, and only jumps, have a target"),
            Unencodable::TargetRange(target) => write!(f, "there is no {target} to jump to"),
            Unencodable::Direction(target) => {
                write!(f, "{target} isn't in the direction of the jump")
            }
            Unencodable::Prefixes(count) => write!(f, "{count} prefixes, at most 3 fit"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::CodeLength(len) => write!(f, "{len} bytes can't be code"),
            Error::UnknownOpcode { unit, number } => {
                write!(f, "unit {unit}: {number} is no opcode")
            }
            Error::StrayCache { unit } => write!(f, "unit {unit}: a cache without an instruction"),
            Error::BadCache { unit } => write!(f, "unit {unit}: expected an empty cache"),
            Error::BadPrefix { unit } => {
                write!(f, "unit {unit}: EXTENDED_ARG with nothing to extend")
            }
            Error::JumpTarget { unit, target } => {
                write!(f, "unit {unit}: no instruction starts at the jump's target {target}")
            }
            Error::Unencodable { at, why } => write!(f, "{at}: {why}"),
            Error::Truncated { at } => write!(f, "byte {at}: the table ends within an entry"),
            Error::EntryMark { at } => write!(f, "byte {at}: wrong mark for an entry's byte"),
            Error::NumberTooLarge { at } => write!(f, "entry at {at}: a number is too large"),
            Error::RangeBoundary { at } => write!(f, "{at} is no boundary between instructions"),
            Error::LocationCount { expected, found } => {
                write!(f, "locations for {found} units, the code has {expected}")
            }
            Error::StackDepth { at, depth } => write!(f, "{at}: leaves a stack depth of {depth}"),
            Error::DepthMismatch { at, first, second } => {
                write!(f, "{at}: reached with stack depths {first} and {second}")
            }
            Error::FallsOff { at } => write!(f, "{at}: control runs past the end"),
            Error::Text { line, why } => write!(f, "line {line}: {why}"),
        }
    }
}

impl std::error::Error for Error {}
