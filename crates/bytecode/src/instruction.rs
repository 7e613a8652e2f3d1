//! Instructions, and their places in the list that holds them.

use std::fmt;

use crate::meaning::Meaning;
use crate::opcode::Opcode;
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
