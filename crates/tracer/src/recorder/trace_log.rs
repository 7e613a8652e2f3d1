//! The `trace` log: each instruction before it is recorded, with its argument as `dis` shows it and
//! the variable kinds on the stack.
//!
//! ```text
//! TRACE LOAD_GLOBAL y [TorchFn(any), Tensor()]
//! ```

use pyo3::prelude::*;
use pyo3::types::PyCode;
use stator_bytecode::{Arg, Opcode};
use stator_cpython::frame::Frame;
use stator_cpython::hook::Suspended;
use stator_cpython::object::Borrowed;
use stator_cpython::opcode::TARGET;
use stator_cpython::ops::{BinaryOp, CompareOp};

use super::Recorder;
use crate::functions::Class;
use crate::logs::Log;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;

impl Recorder {
    /// Writes the record of one instruction.
    #[cold]
    pub(super) fn log_step(&self, frame: &Frame<'_>, unit: usize, opcode: u8, arg: u32) {
        // The `NULL`s that calls push are no variables.
        let stack: Vec<_> =
            frame.stack().iter().flatten().map(|value| self.variable(*value)).collect();
        let line =
            format!("TRACE {} [{}]", instruction(frame, unit, opcode, arg), stack.join(", "));
        // What `logging` runs isn't part of the call.
        let _native = Suspended::new(frame.py());
        Log::Trace.emit(frame.py(), &line);
    }

    /// The kind of an object, with what tells it from others of its kind.
    fn variable(&self, object: Borrowed<'_, '_>) -> String {
        let kind = self.state.borrow_mut().kind_alone(object);
        let of_table = self.functions.class(object);
        if let Some(Class::Operation(_)) = of_table {
            return format!("TorchFn({})", heap::name_of(object));
        }
        let detail = match kind {
            Kind::Tensor => String::new(),
            Kind::Constant if object.is_none() => "None".into(),
            Kind::Constant => format!("{}: {}", heap::type_name(object), heap::short_repr(object)),
            Kind::List => heap::list_items(object).len().to_string(),
            Kind::Tuple => heap::tuple_items(object).len().to_string(),
            Kind::Dict => heap::dict_length(object).to_string(),
            Kind::Function | Kind::Builtin | Kind::Type | Kind::Module => heap::name_of(object),
            Kind::Method => heap::name_of(heap::method_parts(object).0.as_borrowed()),
            _ => heap::type_name(object),
        };
        format!("{kind:?}({detail})")
    }
}

/// Opcode and argument.
fn instruction(frame: &Frame<'_>, unit: usize, opcode: u8, arg: u32) -> String {
    let Some(opcode) = TARGET.opcode(opcode) else { return format!("<{opcode}> {arg}") };
    let name = opcode.name();
    let Some(info) = TARGET.info(opcode) else { return format!("{name} {arg}") };
    let (code, index) = (frame.code(), arg as usize);
    let next = unit + 1 + usize::from(info.caches);
    let argument = match info.arg {
        Arg::Unused => return name.to_owned(),
        Arg::Number if opcode == Opcode::BINARY_OP => {
            BinaryOp::from_arg(arg).map_or_else(|| arg.to_string(), |op| op.symbol().into())
        }
        Arg::Number => arg.to_string(),
        Arg::Const => constant(code.const_at(index)),
        Arg::Name { shift } => heap::text(code.name_at(index >> shift)),
        Arg::Local | Arg::Free => heap::text(code.local_name(index)),
        Arg::LocalPair => format!(
            "{}, {}",
            heap::text(code.local_name(index >> 4)),
            heap::text(code.local_name(index & 15))
        ),
        Arg::Compare { shift } => {
            let op = CompareOp::from_arg(arg >> shift);
            op.map_or_else(|| arg.to_string(), |op| op.symbol().into())
        }
        Arg::JumpForward => format!("to {}", 2 * (next + index)),
        Arg::JumpBackward => format!("to {}", 2 * (next - index.min(next))),
    };
    format!("{name} {argument}")
}

/// A constant of a code object; what is no plain value by its kind.
fn constant(object: Borrowed<'_, '_>) -> String {
    match object.cast_exact::<PyCode>() {
        Ok(_) => "<code object>".into(),
        Err(_) => heap::short_repr(object),
    }
}
