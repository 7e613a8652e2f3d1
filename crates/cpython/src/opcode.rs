//! Opcode numbers of the CPython this was built for, and what its tables say about them.

use crate::ffi;

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
