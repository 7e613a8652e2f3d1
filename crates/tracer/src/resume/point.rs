//! Resume points: where traces begin that don't begin at a call, and what is known of each.
//!
//! Behind a graph break frames stand in the middle of their code. A [`Key`] says where they stand
//! and which of their slots hold values; a [`Point`] holds the traces that start there. The values
//! themselves are the roots of those traces' guards, as arguments are at a call: for each frame,
//! outermost first, its function, its bound locals and its stack, then the exception that is being
//! handled, if there is one.

use std::collections::hash_map::Entry as Slot;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use stator_cpython::code::Code;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Thread;
use stator_evaluator::Link;

use crate::breaks::Break;
use crate::check::Resolved;
use crate::entries::Entries;
use crate::entry::Entry;
use crate::lock;
use crate::policy::Policy;

/// A frame that waits, seen from outside.
#[derive(Clone)]
pub struct Waiting<'py> {
    /// The frame.
    pub frame: Frame<'py>,
    /// The unit it goes on at.
    pub next: usize,
    /// How many values of its stack count: the operands of a call it waits for don't.
    pub depth: usize,
    /// What counts as one more value of the stack: what the instruction has made.
    pub held: Option<Object<'py>>,
    /// How the instruction ends that waits for another frame.
    pub link: Option<Link>,
}

/// The frames of a resume point, outermost first.
pub type Chain<'py> = SmallVec<[Waiting<'py>; 4]>;

/// Where one frame stands, and which slots hold values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FrameKey {
    code: usize,
    next: usize,
    /// A bit for each fast local and each value of the stack: whether there is one.
    present: SmallVec<[u64; 2]>,
    /// How many these are.
    slots: usize,
    link: Option<Link>,
}

/// Where the frames of a resume point stand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    frames: SmallVec<[FrameKey; 2]>,
    handles: bool,
}

/// The values of a resume point, in the order of its roots.
pub type Roots<'a, 'py> = SmallVec<[Borrowed<'a, 'py>; 16]>;

impl Key {
    /// The key of frames that stand still; `handled` is the exception being handled, if it isn't
    /// that of the compiled function's caller.
    pub fn of(chain: &[Waiting<'_>], handled: bool) -> Self {
        let frames = chain.iter().map(|waiting| {
            let slots = slots(waiting);
            let mut present = SmallVec::from_elem(0, slots.len().div_ceil(64));
            for (index, slot) in slots.iter().enumerate() {
                if slot.is_some() {
                    present[index / 64] |= 1 << (index % 64);
                }
            }
            FrameKey {
                code: waiting.frame.code().as_ptr() as usize,
                next: waiting.next,
                present,
                slots: slots.len(),
                link: waiting.link,
            }
        });
        Self { frames: frames.collect(), handles: handled }
    }
}

/// Fast locals and stack of a frame, as far as they count.
pub fn slots<'a, 'py>(waiting: &'a Waiting<'py>) -> SmallVec<[Option<Borrowed<'a, 'py>>; 16]> {
    let locals = waiting.frame.code().nlocalsplus();
    let stack = waiting.frame.stack();
    let depth = waiting.depth.min(stack.len());
    let locals = (0..locals).map(|index| waiting.frame.local(index));
    let held = waiting.held.iter().map(|held| Some(held.as_borrowed()));
    locals.chain(stack[..depth].iter().copied()).chain(held).collect()
}

/// The roots of a resume point.
pub fn roots<'a, 'py>(
    chain: &'a [Waiting<'py>],
    handled: Option<&'a Object<'py>>,
) -> Roots<'a, 'py> {
    let mut roots = Roots::new();
    for waiting in chain {
        roots.push(waiting.frame.function());
        roots.extend(slots(waiting).into_iter().flatten());
    }
    roots.extend(handled.map(|handled| handled.as_borrowed()));
    roots
}

/// The exception that this thread handles, if the compiled function's caller doesn't handle it:
/// `at_entry` is the address of the one that it did.
pub fn handled_beyond(py: Python<'_>, at_entry: usize) -> Option<Object<'_>> {
    let handled = Thread::current(py).handled()?;
    (handled.as_ptr() as usize != at_entry).then_some(handled)
}

/// Whether another trace that is for one place in a loop may begin where there are so many. Two others are left, which go
/// on anywhere.
#[must_use]
pub fn takes_particular(traces: usize, limit: usize) -> bool {
    traces + 2 < limit
}

/// What is known of one resume point.
pub struct Point {
    /// Tells it from every other one there has been.
    id: u64,
    entries: Mutex<Entries>,
    /// Whether the program runs natively from here on.
    given_up: AtomicBool,
    /// How often no entry fitted since the point was found to be full; 0: it isn't.
    full: AtomicU32,
    /// The code objects of the key, whose addresses must not be taken by others.
    codes: Vec<Py<PyAny>>,
}

impl Point {
    /// A point without traces, whose frames have these code objects.
    fn new(codes: Vec<Py<PyAny>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            entries: Mutex::default(),
            given_up: AtomicBool::default(),
            full: AtomicU32::default(),
            codes,
        }
    }

    /// As [`Point::find`], behind the break of `before`: what followed it the last time comes first.
    pub fn find_behind<'py>(
        &self,
        py: Python<'py>,
        before: &Entry,
        roots: &[Borrowed<'_, 'py>],
    ) -> Option<(Arc<Entry>, Resolved<'py>)> {
        if let Some(entry) = before.follower(self.id)
            && let Some(resolved) = entry.check_fast(py, roots)
        {
            return Some((entry, resolved));
        }
        let found = self.find(py, roots)?;
        before.is_followed_by(self.id, &found.0);
        Some(found)
    }

    /// The entry whose guards hold for these values.
    pub fn find<'py>(
        &self,
        py: Python<'py>,
        roots: &[Borrowed<'_, 'py>],
    ) -> Option<(Arc<Entry>, Resolved<'py>)> {
        let first = lock(&self.entries).first().cloned()?;
        if let Some(resolved) = first.check_fast(py, roots) {
            return Some((first, resolved));
        }
        let entries = lock(&self.entries).clone();
        let (entry, resolved) = entries.fitting(py, roots).ok()?;
        lock(&self.entries).use_first(entry);
        Some((entry.clone(), resolved))
    }

    /// Whether another trace may start here.
    pub fn takes_more(&self, limit: usize) -> bool {
        if self.given_up.load(Ordering::Relaxed) {
            return false;
        }
        let (dead, takes) = {
            let mut entries = lock(&self.entries);
            (entries.take_dead(), entries.len() < limit)
        };
        drop(dead);
        self.full.store(u32::from(!takes), Ordering::Relaxed);
        takes
    }

    /// Whether a trace may start here that is for one place in a loop.
    pub fn takes_particular(&self, limit: usize) -> bool {
        takes_particular(lock(&self.entries).len(), limit)
    }

    /// Whether the point was full a moment ago: [`Point::takes_more`], asked now and then only.
    pub fn is_full(&self) -> bool {
        match self.full.load(Ordering::Relaxed) {
            0 => false,
            misses => {
                self.full.store(misses % 64 + 1, Ordering::Relaxed);
                misses < 64
            }
        }
    }

    /// Where a trace that starts here breaks, if one does without leaving the frame; see
    /// [`Entry::breaks_at`].
    pub fn breaks_at(&self, depth: usize, code: usize) -> Option<usize> {
        if self.given_up.load(Ordering::Relaxed) {
            return None;
        }
        lock(&self.entries).iter().find_map(|entry| entry.breaks_at(depth, code))
    }

    /// From here on the program runs natively.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Which sizes and numbers another trace from here takes as symbols.
    pub fn policy(&self, py: Python<'_>, dynamic: Option<bool>) -> Policy {
        let entries = lock(&self.entries).clone();
        entries.policy(py, dynamic)
    }

    /// Adds a trace.
    pub fn add(&self, entry: Arc<Entry>) {
        lock(&self.entries).add(entry);
    }
}

/// The instructions before which traces of one compiled function end: found out in the middle of
/// them, when it was too late to break there.
#[derive(Default)]
struct Marks {
    /// By the chain of calls that leads there.
    chains: FxHashMap<u64, Break>,
    /// The innermost instruction of each chain: code object and unit.
    innermost: FxHashSet<(usize, usize)>,
    /// Instructions that run a generator in which data decides: traces have a way out before these.
    around: FxHashSet<u64>,
}

/// The resume points of one compiled function, and what else its traces have learned.
#[derive(Default)]
pub struct Points {
    points: Mutex<FxHashMap<Key, Arc<Point>>>,
    marks: Mutex<Marks>,
    /// Where nothing is done but to go to a break: code object and unit, and the breaking
    /// instruction's unit.
    idle: Mutex<FxHashMap<(usize, usize), usize>>,
}

/// How many resume points a compiled function may have: beyond that it isn't worth it.
const MOST: usize = 1024;

impl Points {
    /// The point with this key.
    pub fn get(&self, key: &Key) -> Option<Arc<Point>> {
        lock(&self.points).get(key).cloned()
    }

    /// The point with this key, made if there is none; `None` where there are too many.
    pub fn get_or_make(&self, key: &Key, chain: &[Waiting<'_>]) -> Option<Arc<Point>> {
        let mut points = lock(&self.points);
        let room = points.len() < MOST;
        match points.entry(key.clone()) {
            Slot::Occupied(known) => Some(known.get().clone()),
            Slot::Vacant(_) if !room => None,
            Slot::Vacant(slot) => {
                let codes =
                    chain.iter().map(|waiting| waiting.frame.code().object().to_owned().unbind());
                Some(slot.insert(Arc::new(Point::new(codes.collect()))).clone())
            }
        }
    }

    /// From `unit` on, the code does nothing but go to the instruction at `last`, which breaks.
    pub fn is_idle(&self, code: &Code<'_>, unit: usize, last: usize) {
        lock(&self.idle).insert((code.as_ptr() as usize, unit), last);
    }

    /// The instruction to which the code goes from `unit` on without doing anything.
    pub fn idle(&self, code: &Code<'_>, unit: usize) -> Option<usize> {
        lock(&self.idle).get(&(code.as_ptr() as usize, unit)).copied()
    }

    /// Every trace that starts at a resume point.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        let points: Vec<_> = lock(&self.points).values().cloned().collect();
        let entries = |point: &Arc<Point>| lock(&point.entries).iter().cloned().collect::<Vec<_>>();
        points.iter().flat_map(entries).collect()
    }

    /// From now on traces end before this instruction.
    pub fn mark_spot(&self, spot: Spot, stop: Break) {
        let mut marks = lock(&self.marks);
        marks.innermost.insert(spot.innermost);
        marks.chains.insert(spot.chain, stop);
    }

    /// As [`Points::mark_spot`]; false: it is marked already.
    pub fn mark_new_spot(&self, spot: Spot, stop: &Break) -> bool {
        let is_new = !lock(&self.marks).chains.contains_key(&spot.chain);
        if is_new {
            self.mark_spot(spot, stop.clone());
        }
        is_new
    }

    /// From now on traces have a way out before this instruction, which runs a generator; false: they do already.
    pub fn go_around(&self, spot: Spot) -> bool {
        lock(&self.marks).around.insert(spot.chain)
    }

    /// Whether traces have a way out before the instruction that `chain` gives the frames to.
    pub fn goes_around<'py>(&self, chain: impl FnOnce() -> Option<Vec<Frame<'py>>>) -> bool {
        let marks = lock(&self.marks);
        if marks.around.is_empty() {
            return false;
        }
        let spot = chain().and_then(|chain| Spot::of(&chain));
        spot.is_some_and(|spot| marks.around.contains(&spot.chain))
    }

    /// How many instructions are marked.
    pub fn mark_count(&self) -> usize {
        lock(&self.marks).chains.len()
    }

    /// Whether any instruction is marked.
    pub fn has_marks(&self) -> bool {
        !lock(&self.marks).innermost.is_empty()
    }

    /// Why the trace ends before this instruction; `chain` gives the frames down to it.
    pub fn marked<'py>(
        &self,
        frame: &Frame<'py>,
        chain: impl FnOnce() -> Option<Vec<Frame<'py>>>,
    ) -> Option<Break> {
        let marks = lock(&self.marks);
        if !marks.innermost.contains(&(frame.code().as_ptr() as usize, frame.unit())) {
            return None;
        }
        let chain = chain()?;
        marks.chains.get(&hash(&chain, frame.unit())).cloned()
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let points = std::mem::take(&mut *lock(&self.points));
        *lock(&self.marks) = Marks::default();
        lock(&self.idle).clear();
        drop(points);
    }

    /// Shows the garbage collector what only this holds.
    ///
    /// # Errors
    /// What `visit` says.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(points) = self.points.try_lock() else { return Ok(()) };
        for point in points.values() {
            point.codes.iter().try_for_each(|code| visit.call(code))?;
            let Ok(entries) = point.entries.try_lock() else { continue };
            entries.traverse(visit)?;
        }
        Ok(())
    }
}

/// An instruction, and the calls that led there.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    innermost: (usize, usize),
    chain: u64,
}

impl Spot {
    /// Where the innermost of these frames stands.
    #[must_use]
    pub fn of(chain: &[Frame<'_>]) -> Option<Self> {
        Self::at(chain, chain.last()?.unit())
    }

    /// The instruction at `unit` of the innermost of these frames, wherever that one stands now.
    #[must_use]
    pub fn at(chain: &[Frame<'_>], unit: usize) -> Option<Self> {
        let innermost = (chain.last()?.code().as_ptr() as usize, unit);
        Some(Self { innermost, chain: hash(chain, unit) })
    }
}

/// Identifies a chain of calls by code objects and instructions, the last one being at `unit`. A
/// collision costs a graph break.
fn hash(chain: &[Frame<'_>], unit: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (index, frame) in chain.iter().enumerate() {
        let unit = if index + 1 == chain.len() { unit } else { frame.unit() };
        (frame.code().as_ptr() as usize, unit).hash(&mut hasher);
    }
    hasher.finish()
}
