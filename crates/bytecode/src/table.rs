//! What a row of an opcode table says, and the lookups made from the rows at compile time.
//!
//! Every row of a version's file is data; decoding, assembling, printing, stack depths and tests
//! derive from it. A row is reached by opcode or by number without a search.

use std::fmt;

use crate::opcode::Opcode;

/// What an instruction's argument means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// Ignored.
    Unused,
    /// A count, a flag set or a selector: the opcode's own affair.
    Number,
    /// An index into `co_consts`.
    Const,
    /// An index into `co_names` above `shift` bits of flags.
    Name {
        /// How many low bits are flags.
        shift: u8,
    },
    /// An index into the frame's fast locals.
    Local,
    /// Two indices into the fast locals: the high and the low four bits.
    LocalPair,
    /// An index of a cell or free variable, counted in the frame's fast locals.
    Free,
    /// A comparison operator above `shift` bits of flags.
    Compare {
        /// How many low bits are flags.
        shift: u8,
    },
    /// A distance forwards in code units, from the end of this instruction's caches.
    JumpForward,
    /// A distance backwards in code units, from the end of this instruction's caches.
    JumpBackward,
}

/// Where control goes after an instruction that doesn't raise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// To the jump target or to the next instruction.
    Branch,
    /// To the jump target.
    Jump,
    /// Out of the frame or to an exception handler.
    Stop,
}

/// How an instruction changes the stack's depth, as a function of its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Always the same.
    Fixed(i8),
    /// Depends on whether the jump is taken.
    Branch {
        /// When control goes to the next instruction.
        fall: i8,
        /// When control goes to the target.
        jump: i8,
    },
    /// `base + per_arg * arg`.
    Linear {
        /// The effect with argument 0.
        base: i8,
        /// What each unit of the argument adds.
        per_arg: i8,
    },
    /// `base + per_bit * (number of bits set in arg & mask)`.
    Bits {
        /// The effect with none of the bits.
        base: i8,
        /// The bits that count.
        mask: u8,
        /// What each of them adds.
        per_bit: i8,
    },
    /// One effect for one argument, another for all others.
    Match {
        /// The argument that differs.
        arg: u8,
        /// Its effect.
        equal: i8,
        /// The effect of all others.
        other: i8,
    },
    /// `UNPACK_EX`: the values before the star (low byte) plus those after it (the rest).
    UnpackEx,
}

impl Effect {
    /// The effect for an argument. `jump` says whether the jump is taken; `None` asks for the
    /// larger effect. `None` comes back where the result doesn't fit.
    pub fn of(self, arg: u32, jump: Option<bool>) -> Option<i32> {
        let wide = match self {
            Effect::Fixed(effect) => i64::from(effect),
            Effect::Branch { fall, jump: taken } => i64::from(match jump {
                Some(true) => taken,
                Some(false) => fall,
                None => taken.max(fall),
            }),
            Effect::Linear { base, per_arg } => {
                i64::from(base) + i64::from(per_arg) * i64::from(arg)
            }
            Effect::Bits { base, mask, per_bit } => {
                let bits = (arg & u32::from(mask)).count_ones();
                i64::from(base) + i64::from(per_bit) * i64::from(bits)
            }
            Effect::Match { arg: key, equal, other } => {
                i64::from(if arg == u32::from(key) { equal } else { other })
            }
            Effect::UnpackEx => i64::from(arg & 0xFF) + i64::from(arg >> 8),
        };
        i32::try_from(wide).ok()
    }
}

/// A row: one opcode of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpInfo {
    /// The opcode.
    pub opcode: Opcode,
    /// Its number in this version.
    pub number: u8,
    /// How many code units of inline cache follow it.
    pub caches: u8,
    /// What its argument means.
    pub arg: Arg,
    /// Where control goes after it.
    pub flow: Flow,
    /// How it changes the stack's depth.
    pub effect: Effect,
}

impl OpInfo {
    /// Whether the argument holds one or two indices of fast locals.
    pub const fn has_local(&self) -> bool {
        matches!(self.arg, Arg::Local | Arg::LocalPair)
    }

    /// The fast locals that an argument names, cells and free variables included.
    pub const fn locals(&self, arg: u32) -> [Option<u32>; 2] {
        match self.arg {
            Arg::Local | Arg::Free => [Some(arg), None],
            Arg::LocalPair => [Some(arg >> 4), Some(arg & 15)],
            _ => [None, None],
        }
    }

    /// Whether the argument indexes a cell or free variable.
    pub const fn has_free(&self) -> bool {
        matches!(self.arg, Arg::Free)
    }

    /// Whether the argument is a distance to jump.
    pub const fn has_jump(&self) -> bool {
        matches!(self.arg, Arg::JumpForward | Arg::JumpBackward)
    }
}

/// Builds a row: the one-line form used by the version files.
pub(crate) const fn row(
    opcode: Opcode,
    number: u8,
    caches: u8,
    arg: Arg,
    flow: Flow,
    effect: Effect,
) -> OpInfo {
    OpInfo { opcode, number, caches, arg, flow, effect }
}

/// A version's opcodes, by number and by name.
pub struct Table {
    by_number: [Option<Opcode>; 256],
    by_opcode: [Option<OpInfo>; Opcode::ALL.len()],
}

impl Table {
    /// Indexes the rows. Fails to compile if two rows share a number or an opcode.
    pub(crate) const fn new(rows: &[OpInfo]) -> Table {
        let mut table = Table { by_number: [None; 256], by_opcode: [None; Opcode::ALL.len()] };
        let mut at = 0;
        while at < rows.len() {
            let row = rows[at];
            assert!(table.by_number[row.number as usize].is_none(), "number given twice");
            assert!(table.by_opcode[row.opcode as usize].is_none(), "opcode given twice");
            table.by_number[row.number as usize] = Some(row.opcode);
            table.by_opcode[row.opcode as usize] = Some(row);
            at += 1;
        }
        table
    }

    /// The opcode with this number.
    #[inline]
    pub const fn opcode(&self, number: u8) -> Option<Opcode> {
        self.by_number[number as usize]
    }

    /// The opcode's row.
    #[inline]
    pub const fn info(&self, opcode: Opcode) -> Option<&OpInfo> {
        self.by_opcode[opcode as usize].as_ref()
    }

    /// All rows, sorted by name.
    pub fn rows(&self) -> impl Iterator<Item = &OpInfo> {
        self.by_opcode.iter().flatten()
    }
}

impl Opcode {
    /// The opcode with this name.
    pub fn from_name(name: &str) -> Option<Opcode> {
        let at = Opcode::ALL.binary_search_by(|opcode| opcode.name().cmp(name)).ok()?;
        Some(Opcode::ALL[at])
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::Version;

    #[test]
    fn an_optional_opcode_is_one_byte() {
        assert_eq!(size_of::<Option<Opcode>>(), 1);
    }

    #[test]
    fn names_and_numbers_lead_back() {
        for (at, &opcode) in Opcode::ALL.iter().enumerate() {
            assert_eq!(opcode as usize, at);
            assert_eq!(Opcode::from_name(opcode.name()), Some(opcode));
            assert!(Version::ALL.iter().any(|v| v.info(opcode).is_some()), "{opcode} is nowhere");
        }
        assert_eq!(Opcode::from_name("LOAD_NOTHING"), None);
        for version in Version::ALL {
            for info in version.table().rows() {
                assert_eq!(version.opcode(info.number), Some(info.opcode));
                assert_eq!(info.has_jump(), matches!(info.flow, Flow::Branch | Flow::Jump));
            }
        }
    }

    #[test]
    fn the_foreign_pattern_is_the_complement() {
        for &opcode in &Opcode::ALL {
            let foreign = |version: Version| version.info(opcode).is_none();
            assert_eq!(foreign(Version::V311), matches!(opcode, crate::absent_in_v311!()));
            assert_eq!(foreign(Version::V312), matches!(opcode, crate::absent_in_v312!()));
            assert_eq!(foreign(Version::V313), matches!(opcode, crate::absent_in_v313!()));
            assert_eq!(foreign(Version::V314), matches!(opcode, crate::absent_in_v314!()));
        }
    }

    #[test]
    fn effects_that_do_not_fit_are_none() {
        assert_eq!(Effect::Linear { base: 1, per_arg: -2 }.of(u32::MAX, None), None);
        assert_eq!(Effect::Linear { base: 1, per_arg: -2 }.of(3, None), Some(-5));
        assert_eq!(Effect::UnpackEx.of(0x0203, None), Some(5));
        assert_eq!(Effect::Branch { fall: 1, jump: -1 }.of(0, None), Some(1));
    }
}
