//! Instructions that only put away what the breaking instruction has left on the stack.
//!
//! They are executed before a trace begins: it then finds what a loop gives or a call has returned in
//! fast locals, where a number can be taken for a symbol, rather than on the stack.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stator_cpython::frame::Frame;
use stator_cpython::object::Borrowed;
use stator_cpython::opcode;

/// Whether an instruction is such a one, with this value on top of the stack.
pub fn settles(opcode: u8, top: Option<Borrowed<'_, '_>>) -> bool {
    match opcode {
        opcode::STORE_FAST => true,
        opcode::UNPACK_SEQUENCE => top.is_some_and(|top| top.is_exact_instance_of::<PyTuple>()),
        _ => false,
    }
}

/// Whether the instruction at `unit`, the frame's next one, is such a one.
pub fn settles_next(frame: &Frame<'_>, unit: usize) -> bool {
    let code = frame.code();
    let mut opcodes = code.units()[unit..].iter().map(|unit| opcode::deopt(unit.to_ne_bytes()[0]));
    let opcode = opcodes.find(|opcode| *opcode != opcode::EXTENDED_ARG);
    let top = frame.stack().last().copied().flatten();
    opcode.is_some_and(|opcode| settles(opcode, top))
}
