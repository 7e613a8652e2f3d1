//! Opcode numbers of the CPython this was built for, and what its tables say about them.

use stator_bytecode::Version;

use crate::ffi;

/// The version of CPython that this was built for.
pub const TARGET: Version = match () {
    () if cfg!(Py_3_13) => Version::V313,
    () if cfg!(Py_3_12) => Version::V312,
    () => Version::V311,
};

/// Whether the `NULL` that tells a call that there is no receiver lies above the callable; else below it.
pub const NULL_IS_ABOVE: bool = TARGET.null_is_above();

include!(concat!(env!("OUT_DIR"), "/opcode.rs"));

/// The general form of an opcode that may have been specialised in place.
#[inline(always)]
pub fn deopt(opcode: u8) -> u8 {
    // SAFETY: the shim's table is CPython's `_PyOpcode_Deopt`, which has 256 entries.
    unsafe { *ffi::stator_deopt.add(usize::from(opcode)) }
}

/// Inline cache entries (code units) behind an instruction, by its general opcode.
#[inline(always)]
pub fn caches(opcode: u8) -> usize {
    // SAFETY: the shim's table is CPython's `_PyOpcode_Caches`, which has 256 entries.
    usize::from(unsafe { *ffi::stator_caches.add(usize::from(opcode)) })
}
