//! The hooks of others (TorchDynamo's), which evaluate what isn't Stator's.
//!
//! Who installs a hook notes the one that was there, passes frames on to it, and puts it back at the
//! end. Where two do so, in any order and on several threads, what they noted may form a cycle:
//! TorchDynamo's hook passes frames to Stator's, which passes them to TorchDynamo's. So Stator's hook
//! passes a frame on once to each hook that it has found below itself, and then evaluates it as
//! CPython does. That it is the same frame again, or another one made in its place, is known by who
//! waits for it: while a frame that was passed on runs, others wait for that frame.
//!
//! All of it is guarded by the GIL.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

use pyo3::prelude::*;

use crate::ffi::EvalFrame;
use crate::heap::dict::{self, Lookup};

/// How many hooks of others are kept: there is hardly ever more than one.
const LIMIT: usize = 4;

/// The hooks found below Stator's, as pointers, the nearest first; null behind the last one.
static BELOW: [AtomicPtr<()>; LIMIT] = [const { AtomicPtr::new(ptr::null_mut()) }; LIMIT];

/// Whether one of them was seen above Stator's since that was put back last.
static CROSSED: AtomicBool = AtomicBool::new(false);

/// No frame's address.
const NOBODY: usize = usize::MAX;

thread_local! {
    /// The frame that waits for the one that is being passed on, and to how many hooks it was passed.
    static PASSING: Cell<(usize, usize)> = const { Cell::new((NOBODY, 0)) };
}

fn hook_at(index: usize) -> Option<EvalFrame> {
    let pointer = BELOW.get(index)?.load(Relaxed);
    // SAFETY: the pointer is null or was stored from an `EvalFrame`; `Option<fn>` is nullable.
    unsafe { std::mem::transmute::<*mut (), Option<EvalFrame>>(pointer) }
}

/// Whether there is none.
#[inline]
pub(super) fn is_empty() -> bool {
    BELOW[0].load(Relaxed).is_null()
}

/// Notes that a hook of others was seen above Stator's.
pub(super) fn cross() {
    CROSSED.store(true, Relaxed);
}

/// Whether one was, since this was asked last.
pub(super) fn was_crossed() -> bool {
    CROSSED.swap(false, Relaxed)
}

/// Forgets all of them.
pub(super) fn clear() {
    for place in &BELOW {
        place.store(ptr::null_mut(), Relaxed);
    }
}

/// Forgets a hook: it stands above Stator's.
pub(super) fn remove(hook: EvalFrame) {
    let others: Vec<_> = (0..LIMIT).map_while(hook_at).filter(|&o| !is_same(o, hook)).collect();
    set(&others);
}

/// Notes a hook that Stator's has been put above.
pub(super) fn push(hook: EvalFrame) {
    let others = (0..LIMIT).map_while(hook_at).filter(|&other| !is_same(other, hook));
    let all: Vec<_> = std::iter::once(hook).chain(others).collect();
    set(&all);
}

/// Takes the nearest one: it is put back.
pub(super) fn pop() -> Option<EvalFrame> {
    let first = hook_at(0);
    first.into_iter().for_each(remove);
    first
}

/// Lets TorchDynamo take its hook out, if no thread needs it any more: it doesn't where Stator's stands
/// above the hook and is the one that it would put back.
#[cold]
pub(super) fn settle(py: Python<'_>) {
    // An evaluator that is turned off may be leaving with an exception.
    let raised = PyErr::take(py);
    let touch = || -> Option<()> {
        let modules = dict::modules(py)?;
        let name = pyo3::intern!(py, "torch._C._dynamo.eval_frame").as_any();
        let Lookup::Found(module) = dict::get(modules.as_borrowed(), name.as_borrowed()) else {
            return None;
        };
        let callback = module.getattr(pyo3::intern!(py, "get_eval_frame_callback")).ok()?;
        if !callback.call0().ok()?.is_none() {
            return None; // This thread needs it.
        }
        let set = module.getattr(pyo3::intern!(py, "set_eval_frame")).ok()?;
        set.call1((false,)).ok()?;
        set.call1((py.None(),)).ok().map(drop)
    };
    touch();
    if let Some(raised) = raised {
        raised.restore(py);
    }
}

fn set(hooks: &[EvalFrame]) {
    for (index, place) in BELOW.iter().enumerate() {
        place.store(hooks.get(index).map_or(ptr::null_mut(), |hook| *hook as *mut ()), Relaxed);
    }
}

/// Whether two are one hook. A function of another library has one address.
pub(super) fn is_same(one: EvalFrame, other: EvalFrame) -> bool {
    ptr::fn_addr_eq(one, other)
}

/// While it lives, a frame that isn't Stator's is being passed on.
pub(super) struct Passing {
    before: (usize, usize),
    round: usize,
}

impl Passing {
    /// `caller` is the address of the frame that waits.
    pub(super) fn new(caller: usize) -> Self {
        let before = PASSING.get();
        let round = if before.0 == caller { before.1 + 1 } else { 0 };
        PASSING.set((caller, round));
        Passing { before, round }
    }

    /// Whether the frame comes here for the first time.
    pub(super) fn is_first(&self) -> bool {
        self.round == 0
    }

    /// Whom it is passed to; `None`: to CPython.
    pub(super) fn next(&self) -> Option<EvalFrame> {
        hook_at(self.round)
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        PASSING.set(self.before);
    }
}
