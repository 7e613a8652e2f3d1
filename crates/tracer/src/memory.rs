//! Memory that the operating system maps before the first trace needs it.
//!
//! The first touch of a page costs as much as recording an operation, and a trace of a few hundred operations touches
//! some 400 pages for the first time: its own tables, and what PyTorch takes between them. The recorder's code is some
//! 100 pages more.

use std::hint::black_box;
use std::sync::OnceLock;

/// How much is mapped, in bytes.
const MAPPED: usize = 6 << 20;
/// In pieces into which a trace's largest tables fit: what is free between smaller ones doesn't serve them.
const PIECE: usize = 960 << 10;
/// More than any table of a trace takes. The C library has the system map such a block for it alone, and from when one was
/// given back on it takes blocks of that size from its heap, where pages have been touched.
const LARGE: usize = 1 << 20;

/// How much of the stack a first trace goes down, in bytes: the evaluator calls itself for each frame.
const STACK: usize = 512 << 10;

/// Touches memory and gives it back to the allocator, once in a process. An allocator that hands free memory
/// back to the operating system at once gains nothing by it.
pub fn warm_up() {
    /// Memory at the heap's end is handed back: this stays behind the pieces.
    static END: OnceLock<Vec<u8>> = OnceLock::new();
    END.get_or_init(|| {
        drop(black_box(Vec::<u8>::with_capacity(LARGE)));
        // Zeros would be mapped without being touched.
        let mut pieces: Vec<Vec<u8>> = (0..MAPPED / PIECE).map(|_| vec![1; PIECE]).collect();
        black_box(&pieces);
        stator_cpython::own_code::map();
        if stator_cpython::stack::room().is_some_and(|room| room > 2 * STACK) {
            touch_stack();
        }
        // The last piece lies at the end. A new block of so few bytes may be one that was free before.
        let mut end = pieces.pop().unwrap_or_default();
        end.truncate(64);
        end.shrink_to_fit();
        end
    });
}

#[inline(never)]
fn touch_stack() {
    black_box([1_u8; STACK]);
}
