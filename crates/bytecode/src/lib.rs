//! CPython code objects decoded and assembled: instructions, exception tables, line tables.
//!
//! Nothing here touches Python: code objects come in as byte slices and leave as bytes. Opcodes are
//! one enum for all CPython versions ([`Opcode`]); what differs between versions (numbers, caches,
//! stack effects) is a row of that version's table ([`Version::info`]).
//!
//! ```
//! use stator_bytecode::{Instruction, Opcode, Version, assemble, decode};
//!
//! // RESUME 0; LOAD_CONST 0; RETURN_VALUE
//! let code = [151, 0, 100, 0, 83, 0];
//! let mut instructions = decode(Version::V311, &code)?;
//! assert_eq!(instructions[1].opcode, Opcode::LOAD_CONST);
//!
//! instructions[1] = Instruction::new(Version::V311, Opcode::LOAD_CONST, 300).unwrap();
//! let longer = assemble(Version::V311, &instructions)?;
//! assert_eq!(longer.code, [151, 0, 144, 1, 100, 44, 83, 0]);
//! # Ok::<(), stator_bytecode::Error>(())
//! ```
#![forbid(unsafe_code)]

mod assemble;
mod code;
mod decode;
mod depth;
mod error;
pub mod exception_table;
mod instruction;
pub mod line_table;
mod live;
mod meaning;
mod opcode;
mod operators;
mod table;
mod text;
mod v311;
mod v312;
mod v313;
mod v314;
mod version;

pub use assemble::{Assembly, assemble};
pub use code::{Assembled, Code, Parts, Region};
pub use decode::decode;
pub use depth::{Depths, depths, max_depth};
pub use error::{Error, Unencodable};
pub use exception_table::{Handler, find_handler};
pub use instruction::{InstrId, Instruction, instruction_covering};
pub use line_table::{Location, line_of, location_of};
pub use live::Liveness;
pub use meaning::{Meaning, Truth};
pub use opcode::Opcode;
pub use operators::{BinaryOp, CompareOp, UnaryOp};
pub use table::{Arg, Effect, Flow, OpInfo, Table};
pub use version::Version;

/// Decodes code and assembles it again: the identity on what CPython's compiler makes.
pub fn roundtrip(version: Version, code: &[u8]) -> Result<Vec<u8>, Error> {
    Ok(assemble(version, &decode(version, code)?)?.code)
}

/// Decodes an exception table and encodes it again.
pub fn roundtrip_exception_table(table: &[u8]) -> Result<Vec<u8>, Error> {
    exception_table::encode(&exception_table::decode(table)?)
}

/// Decodes a location table and encodes it again.
pub fn roundtrip_line_table(table: &[u8], first_line: i32) -> Result<Vec<u8>, Error> {
    line_table::encode(&line_table::decode(table, first_line)?, first_line)
}

/// The stack effect of an opcode by number, as `dis.stack_effect` gives it. `jump: None` asks for
/// the larger of both ways; `None` comes back for a number that names no opcode.
pub fn stack_effect(version: Version, opcode: u8, arg: u32, jump: Option<bool>) -> Option<i32> {
    version.info(version.opcode(opcode)?)?.effect.of(arg, jump)
}

/// The guide's examples, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/bytecode.md")]
mod guide {}
