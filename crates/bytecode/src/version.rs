//! The CPython versions whose bytecode is known.

use std::fmt;

use crate::opcode::Opcode;
use crate::table::{OpInfo, Table};
use crate::{v311, v312, v313, v314};

/// A CPython minor version: what decides opcode numbers, caches and stack effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// CPython 3.11.
    V311,
    /// CPython 3.12.
    V312,
    /// CPython 3.13.
    V313,
    /// CPython 3.14.
    V314,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Version; 4] = [Version::V311, Version::V312, Version::V313, Version::V314];

    /// The version with these numbers (`sys.version_info[:2]`), if its bytecode is known.
    pub const fn from_numbers(major: u8, minor: u8) -> Option<Version> {
        match (major, minor) {
            (3, 11) => Some(Version::V311),
            (3, 12) => Some(Version::V312),
            (3, 13) => Some(Version::V313),
            (3, 14) => Some(Version::V314),
            _ => None,
        }
    }

    /// The version's opcodes.
    pub const fn table(self) -> &'static Table {
        match self {
            Version::V311 => &v311::TABLE,
            Version::V312 => &v312::TABLE,
            Version::V313 => &v313::TABLE,
            Version::V314 => &v314::TABLE,
        }
    }

    /// Whether the `NULL` that tells a call that there is no receiver lies above the callable; else below it.
    pub const fn null_is_above(self) -> bool {
        match self {
            Version::V311 | Version::V312 => false,
            Version::V313 | Version::V314 => true,
        }
    }

    /// The opcode with this number.
    pub const fn opcode(self, number: u8) -> Option<Opcode> {
        self.table().opcode(number)
    }

    /// What is known of the opcode, if this version has it.
    pub const fn info(self, opcode: Opcode) -> Option<&'static OpInfo> {
        self.table().info(opcode)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V311 => "3.11",
            Version::V312 => "3.12",
            Version::V313 => "3.13",
            Version::V314 => "3.14",
        })
    }
}
