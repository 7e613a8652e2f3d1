//! Where a node comes from, in the form of Python's tracebacks.

use std::fmt::Write;

use crate::ids::StackId;
use crate::stack::{Locate, StackTable, shown_locations};

/// The frames of a stack, outermost first, as `traceback.format_list` prints them. This is the form
/// of `node.meta["stack_trace"]` in `torch.fx`. Empty where no place is known.
pub fn stack_trace(stacks: &StackTable, innermost: StackId, locate: &dyn Locate) -> String {
    let mut out = String::new();
    for place in shown_locations(stacks, innermost, locate).iter().rev() {
        let (file, line, function) = (&place.file, place.line, &place.function);
        writeln!(out, "  File \"{file}\", line {line}, in {function}")
            .expect("writing to a string");
        if !place.code.is_empty() {
            writeln!(out, "    {}", place.code).expect("writing to a string");
        }
    }
    out
}
