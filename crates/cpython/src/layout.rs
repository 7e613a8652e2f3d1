//! Offsets as the headers have them, and the comparison with the Rust structs that repeat them.

use std::mem::{offset_of, size_of};

use crate::code::layout::CodeObject;
use crate::ffi;
use crate::frame::layout::{CellObject, FunctionObject, InterpreterFrame};
use crate::thread::layout::{CFrame, ThreadState};

macro_rules! layout {
    ($($field:ident => $offset:expr;)*) => {
        /// `stator_layout_t` of `shim/stator.h`.
        #[repr(C)]
        pub(crate) struct Layout {
            $($field: i64,)*
        }

        /// Where a Rust struct and the C headers differ: (name, offset in Rust, offset in C).
        pub fn differences() -> Vec<(&'static str, usize, i64)> {
            // SAFETY: the shim defines this constant with exactly these fields.
            let layout = unsafe { &ffi::stator_layout };
            let pairs = [$((stringify!($field), $offset, layout.$field),)*];
            pairs.into_iter().filter(|&(_, ours, theirs)| ours as i64 != theirs).collect()
        }
    };
}

layout! {
    frame_function => offset_of!(InterpreterFrame, function);
    frame_globals => offset_of!(InterpreterFrame, globals);
    frame_builtins => offset_of!(InterpreterFrame, builtins);
    frame_locals => offset_of!(InterpreterFrame, locals);
    frame_code => offset_of!(InterpreterFrame, code);
    frame_object => offset_of!(InterpreterFrame, frame_object);
    frame_previous => offset_of!(InterpreterFrame, previous);
    frame_instr => offset_of!(InterpreterFrame, instr);
    frame_stacktop => offset_of!(InterpreterFrame, stacktop);
    frame_owner => offset_of!(InterpreterFrame, owner);
    frame_localsplus => offset_of!(InterpreterFrame, localsplus);
    code_consts => offset_of!(CodeObject, consts);
    code_names => offset_of!(CodeObject, names);
    code_exceptiontable => offset_of!(CodeObject, exceptiontable);
    code_flags => offset_of!(CodeObject, flags);
    code_stacksize => offset_of!(CodeObject, stacksize);
    code_firstlineno => offset_of!(CodeObject, firstlineno);
    code_nlocalsplus => offset_of!(CodeObject, nlocalsplus);
    code_nlocals => offset_of!(CodeObject, nlocals);
    code_nfreevars => offset_of!(CodeObject, nfreevars);
    code_localsplusnames => offset_of!(CodeObject, localsplusnames);
    code_localspluskinds => offset_of!(CodeObject, localspluskinds);
    code_filename => offset_of!(CodeObject, filename);
    code_name => offset_of!(CodeObject, name);
    code_qualname => offset_of!(CodeObject, qualname);
    code_firsttraceable => offset_of!(CodeObject, firsttraceable);
    code_units => offset_of!(CodeObject, units);
    thread_interp => offset_of!(ThreadState, interp);
    thread_recursion_remaining => offset_of!(ThreadState, recursion_remaining);
    thread_current => ThreadState::CURRENT;
    thread_tracefunc => offset_of!(ThreadState, tracefunc);
    thread_curexc => offset_of!(ThreadState, raised);
    thread_exc_info => offset_of!(ThreadState, exc_info);
    cframe_size => size_of::<CFrame>();
    cframe_use_tracing => CFrame::USE_TRACING;
    cframe_current_frame => CFrame::CURRENT_FRAME;
    cframe_previous => CFrame::PREVIOUS;
    function_closure => offset_of!(FunctionObject, closure);
    cell_ref => offset_of!(CellObject, contents);
}

/// Panics if a layout differs: nothing may touch a frame then. Called before the hook is installed.
pub fn check() {
    let differences = differences();
    assert!(differences.is_empty(), "CPython's layouts differ from Stator's: {differences:?}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn rust_layouts_equal_the_headers() {
        assert_eq!(super::differences(), []);
    }
}
