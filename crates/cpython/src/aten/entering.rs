//! Calling a C++ function that may throw.
//!
//! A C++ exception must not pass through Rust, and Rust can't catch it. So the function is called by a few lines of
//! assembly whose frame has a personality of its own (Itanium C++ ABI, *Exception Handling*, level I): it stops any exception
//! right there, and hands it back.

use std::ffi::c_void;
use std::ptr::NonNull;

/// Words of arguments that go into registers, behind the place of the result.
pub(super) const IN_REGISTERS: usize = 5;

/// Words of arguments that go onto the stack.
pub(super) const ON_STACK: usize = 8;

/// Floating-point arguments.
pub(super) const FLOATS: usize = 4;

/// Arguments as the System V ABI for x86-64 lays them out. A function takes what it knows of, and leaves the rest.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Laid {
    pub words: [u64; IN_REGISTERS + ON_STACK],
    pub floats: [f64; FLOATS],
}

// The words on the stack are a multiple of 16 bytes, so the stack stays aligned.
const _: () = assert!(ON_STACK.is_multiple_of(2));

/// How a function was left: rax and rdx.
#[repr(C)]
struct Left {
    returned: *mut c_void,
    thrown: *mut c_void,
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod known {
    use std::arch::global_asm;
    use std::ffi::c_void;

    use super::{Laid, Left};

    global_asm!(
        ".hidden stator_enter_cpp",
        ".globl stator_enter_cpp",
        ".type stator_enter_cpp,@function",
        "stator_enter_cpp:",
        ".cfi_startproc",
        ".cfi_personality 0x1b, {personality}",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rax, rdi",
        "mov r10, rsi",
        "mov rdi, rdx",
        "push [r10 + 96]",
        "push [r10 + 88]",
        "push [r10 + 80]",
        "push [r10 + 72]",
        "push [r10 + 64]",
        "push [r10 + 56]",
        "push [r10 + 48]",
        "push [r10 + 40]",
        "movsd xmm0, [r10 + 104]",
        "movsd xmm1, [r10 + 112]",
        "movsd xmm2, [r10 + 120]",
        "movsd xmm3, [r10 + 128]",
        "mov rsi, [r10]",
        "mov rdx, [r10 + 8]",
        "mov rcx, [r10 + 16]",
        "mov r8, [r10 + 24]",
        "mov r9, [r10 + 32]",
        "call rax",
        "xor edx, edx",
        // The unwinder goes on here, with the exception in rdx.
        ".hidden stator_left_cpp",
        ".globl stator_left_cpp",
        "stator_left_cpp:",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        ".size stator_enter_cpp, .-stator_enter_cpp",
        personality = sym stop,
    );

    unsafe extern "C" {
        pub(super) fn stator_enter_cpp(
            function: *const c_void,
            arguments: *const Laid,
            first: *mut c_void,
        ) -> Left;
        fn stator_left_cpp();

        fn _Unwind_SetGR(context: *mut c_void, register: i32, value: usize);
        fn _Unwind_SetIP(context: *mut c_void, address: usize);
    }

    /// Stops an exception at `stator_enter_cpp`.
    ///
    /// # Safety
    /// The unwinder calls it.
    unsafe extern "C" fn stop(
        _version: i32,
        actions: i32,
        _class: u64,
        exception: *mut c_void,
        context: *mut c_void,
    ) -> i32 {
        const SEARCHES: i32 = 1;
        const IS_HANDLER: i32 = 4;
        const HANDLER_FOUND: i32 = 6;
        const INSTALL_CONTEXT: i32 = 7;
        const CONTINUE: i32 = 8;
        /// As DWARF numbers registers; one of those that are for this.
        const RDX: i32 = 1;
        if actions & SEARCHES != 0 {
            return HANDLER_FOUND;
        }
        if actions & IS_HANDLER == 0 {
            // The thread is being ended.
            return CONTINUE;
        }
        // SAFETY: the unwinder's own context, and an address within the frame that it stands at.
        unsafe {
            _Unwind_SetGR(context, RDX, exception as usize);
            _Unwind_SetIP(context, stator_left_cpp as *const () as usize);
        }
        INSTALL_CONTEXT
    }
}

/// Elsewhere nothing is called: what would be isn't found ([`super::IS_KNOWN`]).
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod known {
    use std::ffi::c_void;

    use super::{Laid, Left};

    pub(super) unsafe fn stator_enter_cpp(
        _: *const c_void,
        _: *const Laid,
        _: *mut c_void,
    ) -> Left {
        unreachable!("there is nothing to call")
    }
}

/// Calls a C++ function: what it returns in a register, or what it has thrown.
///
/// # Safety
/// The function takes `first` (where it puts a result that isn't returned in registers, or else its first argument) and
/// behind it these arguments.
#[inline]
pub(super) unsafe fn enter(
    function: *const c_void,
    arguments: &Laid,
    first: *mut c_void,
) -> Result<*mut c_void, NonNull<c_void>> {
    // SAFETY: passed on to the caller; no exception comes out of it.
    let left = unsafe { known::stator_enter_cpp(function, arguments, first) };
    NonNull::new(left.thrown).map_or(Ok(left.returned), Err)
}
