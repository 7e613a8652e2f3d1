//! How much C stack the current thread has left.
//!
//! A Python call under a frame hook takes C stack, which CPython's recursion limit doesn't count.
//! So the depth is measured: by the address of a local variable.

use std::cell::Cell;

use crate::ffi;

/// What is left of the C stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Enough for another evaluated frame.
    Enough,
    /// Frames should be left to CPython, which needs no C stack for Python calls without a hook.
    Low,
    /// Nothing should be called any more.
    Exhausted,
}

thread_local! {
    /// Addresses below which the stack is low and exhausted; 0 if not measured yet.
    static LIMITS: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// What is left of the current thread's C stack.
#[inline]
pub fn room() -> Room {
    let marker = 0u8;
    let here = &raw const marker as usize;
    let (low, exhausted) = LIMITS.with(|limits| match limits.get() {
        (0, 0) => {
            limits.set(measure());
            limits.get()
        }
        known => known,
    });
    if here > low {
        Room::Enough
    } else if here > exhausted {
        Room::Low
    } else {
        Room::Exhausted
    }
}

#[cold]
fn measure() -> (usize, usize) {
    let (mut lowest, mut size) = (0, 0);
    // SAFETY: the shim fills both; on failure they stay 0, and any address counts as enough room.
    unsafe { ffi::stator_stack_bounds(&raw mut lowest, &raw mut size) };
    (lowest + (size / 4).min(2 << 20) + 1, lowest + (size / 8).min(256 << 10) + 1)
}
