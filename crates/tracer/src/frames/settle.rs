//! Instructions that only put away what the breaking instruction has left on the stack.
//!
//! They are executed before a trace begins: it then finds what a loop gives or a call has returned in
//! fast locals, where a number can be taken for a symbol, rather than on the stack. Jumps by a truth value
//! that is there count, too: CPython 3.13 asks for it in one instruction and jumps in the next, so the ways out of
//! a loop would begin at as many places as there are jumps, instead of where they meet. So do jumps that nothing
//! is asked for: CPython 3.12 and later go back to a loop's body by one of its own behind the loop's last question,
//! where 3.11 jumps by the question itself.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};
use stator_bytecode::{Meaning, Truth};
use stator_cpython::frame::Frame;
use stator_cpython::object::Borrowed;

/// Whether an instruction is such a one, with this value on top of the stack.
pub fn settles(meaning: Meaning, top: Option<Borrowed<'_, '_>>) -> bool {
    match meaning {
        Meaning::SetLocal(_) | Meaning::SetLocals(..) | Meaning::Jump => true,
        Meaning::Test(Truth::Jump { .. }) => {
            top.is_some_and(|top| top.is_exact_instance_of::<PyBool>())
        }
        Meaning::Unpack => top.is_some_and(|top| top.is_exact_instance_of::<PyTuple>()),
        _ => false,
    }
}

/// Whether the instruction at `unit`, the frame's next one, is such a one.
pub fn settles_next(frame: &Frame<'_>, unit: usize) -> bool {
    let code = frame.code();
    let mut meanings = (unit..).map_while(|unit| code.unit(unit).map(|unit| unit.meaning()));
    let meaning = meanings.find(|meaning| *meaning != Meaning::Extend);
    let top = frame.stack().last().copied().flatten();
    meaning.is_some_and(|meaning| settles(meaning, top))
}
