//! Graph breaks: a trace ends before an instruction, CPython's semantics execute it, and the next
//! trace begins behind it, in place.
//!
//! While the instruction runs the recorder is stopped: its sites do what CPython does and take no
//! notes. At the next instruction of the frame that broke, [`Recorder::restart`] begins anew, with
//! everything that is alive as roots.
//!
//! Most reasons to break are found before anything was done. Where something was (a C function
//! called back what can't be followed, an operation raised), a trace can't end *before* the
//! instruction any more: this one is dropped, and the instruction is marked, so that the next call
//! breaks in time. See `docs/graph_breaks.md`.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::SmallVec;
use stator_bytecode::Meaning;
use stator_cpython::Result as Raising;
use stator_cpython::frame::Frame;
use stator_cpython::generic::WithoutGc;
use stator_cpython::heap::container::exchange_tuple_item;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;
use stator_evaluator::Link;
use stator_faults as faults;
use stator_faults::{Fault, Stage};
use stator_guards::{Guard, GuardKind, Source};

use super::outcome::{End, Finish, Standing};
use crate::breaks::{Break, Reason, internal};
use crate::check::{foreign_mode, read_global_state};
use crate::entry::Entry;
use crate::frames::settle::settles;
use crate::logs::Log;
use crate::policy::Policy;
use crate::recorder::links::Linked;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::call::{Args, Call};
use crate::recorder::notes::capacity::Room;
use crate::recorder::notes::frames::{ActiveFrame, Caller};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::reads::Use;
use crate::recorder::notes::state::{State, Stop};
use crate::recorder::reads::items::runs_frames;
use crate::recorder::reads::only_added::{adds_to_receiver, only_adds_to};
use crate::recorder::{Recorder, place};
use crate::resume::point::{Chain, Key, Spot, Waiting, handled_beyond, roots, slots};
use crate::resume::testing::Breaks;
use crate::{accelerator, config, rollback};

/// A baseline that no count equals: something was executed.
pub(in crate::recorder) const EXECUTED: u64 = u64::MAX;

/// What begins behind a break.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// The notes of a trace.
    Trace,
    /// Nothing: from here on the call isn't recorded.
    Nothing,
    /// What is known well enough: CPython evaluates the frame to its end.
    Known,
}

impl Ends for Recorder {
    fn goes_on_in(&self, frame: &Frame<'_>, generator: &Object<'_>) {
        self.note_generator(frame, generator);
    }

    fn plain_left<'py>(&self, held: Borrowed<'_, 'py>) -> Option<Object<'py>> {
        let left_with = self.left_with.try_borrow().ok()?;
        left_with.plain_of(held).map(|plain| plain.bind(held.py()).clone())
    }

    fn stop(&self, frame: &Frame<'_>, reason: Reason, detail: impl Into<String>) {
        if self.stopped.replace(true) {
            return;
        }
        let detail = detail.into();
        if reason == Reason::Internal {
            self.fault(frame.py(), Fault::new(detail));
            return;
        }
        self.guarded(frame.py(), || {
            let stop = Break { reason, detail, stack: self.stack(frame) };
            if self.abandon(frame, &stop) {
                return;
            }
            if self.is_untouched(frame) {
                self.break_before(frame, stop);
            } else {
                self.mark(frame, stop);
            }
        });
    }
}

/// A tuple of the trace's own, where a frame at a break has it, and what it stands for.
enum HeldCopy<'py> {
    Local(Frame<'py>, usize, Object<'py>),
    /// At this place in the arguments of an exception.
    Argument(Object<'py>, usize, Object<'py>),
}

impl Recorder {
    /// Ends the trace before the current instruction, which is yet to be executed.
    pub(in crate::recorder) fn break_before(&self, frame: &Frame<'_>, stop: Break) {
        let _deferred = Deferred::new(frame.py());
        self.stopped.set(true);
        let has_asked_enough = self.state.try_borrow().is_ok_and(|state| state.exits.is_full());
        self.behind_exit.set(has_asked_enough);
        let ended = if self.watching.get() {
            if let Ok(frames) = self.standing(frame) {
                self.carry_symbols(&frames);
            }
            Ok(())
        } else {
            self.standing(frame).and_then(|frames| {
                self.carry_symbols(&frames);
                let copies = self.copies_held(&frames);
                self.end_with(frame.py(), End::Break(&frames))?;
                self.put_back(copies);
                self.note_idle(&frames);
                Ok(())
            })
        };
        let keeps_notes = self.watching.get() || ended.is_err();
        self.resume.set(if ended.is_ok() { frame.id() } else { 0 });
        let stop = match ended {
            Ok(()) => stop,
            Err((Reason::Internal, detail)) => {
                self.fault(frame.py(), Fault::new(detail));
                return;
            }
            Err((reason, detail)) => {
                let detail = format!("{stop}; behind it a trace can't begin: {detail}");
                let stop = Break { reason, detail, ..stop };
                let avoids = self.avoid_generator(frame.py(), &stop)
                    || self.avoid_exception(frame, &stop)
                    || self.avoid_raising(&stop)
                    || self.avoid_reading(&stop)
                    || self.give_way(frame, &stop);
                if !avoids {
                    self.fail(&stop);
                }
                stop
            }
        };
        self.session.broke(stop);
        if keeps_notes {
            self.let_go(frame.py());
        }
        // The instruction may take long.
        drop(self.gc.take());
    }

    /// Drops the notes, and with them what only they keep alive.
    fn let_go(&self, py: Python<'_>) {
        drop(self.take_notes(py));
    }

    /// Takes the notes out. The frames stay: they are still being evaluated.
    fn take_notes(&self, py: Python<'_>) -> PyResult<State> {
        let empty = State::new(py, &Room::NONE)?;
        let notes = self.state.replace(empty);
        self.state.borrow_mut().frames.stay(&notes.frames);
        Ok(notes)
    }

    /// Keeps what is symbolic in frames that stand at a graph break.
    fn carry_symbols(&self, standing: &[Standing<'_>]) {
        if self.state.borrow().has_numbers_of_its_own() {
            let chain: Chain<'_> =
                standing.iter().map(|standing| standing.waiting.clone()).collect();
            let values = roots(&chain, None);
            let carried = self.state.borrow_mut().symbolic_among(&values);
            if let Some(standing) = standing.first() {
                let py = standing.waiting.frame.py();
                let mut left_with = self.left_with.borrow_mut();
                left_with.forget_dead(py);
                left_with.add_plain(py, &carried);
            }
            *self.carried.borrow_mut() = carried;
        }
    }

    /// The tuples of the trace's own in locals of frames that stand at a graph break, or in the arguments of exceptions there,
    /// and those that they stand for.
    fn copies_held<'py>(&self, standing: &[Standing<'py>]) -> Vec<HeldCopy<'py>> {
        let state = self.state.borrow();
        let mut found = Vec::new();
        if !state.has_symbols() {
            return found;
        }
        let plain = |held: &Object<'py>| {
            let is_tuple = held.is_instance_of::<PyTuple>();
            let plain = is_tuple.then(|| state.plain(held)).flatten();
            plain.filter(|plain| !plain.is(held))
        };
        let mut look_into = |held: Borrowed<'_, 'py>| {
            let args = heap::exception_args(held);
            for (at, item) in
                args.iter().flat_map(|args| heap::tuple_items(args.as_borrowed())).enumerate()
            {
                if let (Some(args), Some(plain)) = (&args, plain(&item)) {
                    found.push(HeldCopy::Argument(args.clone(), at, plain));
                }
            }
        };
        let frames = || standing.iter().map(|standing| standing.waiting.frame);
        for frame in frames() {
            let locals = (0..frame.code().nlocalsplus()).filter_map(|slot| frame.local(slot));
            locals.for_each(&mut look_into);
            frame.stack().iter().flatten().for_each(|held| look_into(*held));
        }
        for frame in frames() {
            for slot in 0..frame.code().nlocalsplus() {
                if let Some(plain) = frame.local(slot).and_then(|held| plain(&held.to_owned())) {
                    found.push(HeldCopy::Local(frame, slot, plain));
                }
            }
        }
        found
    }

    /// What else holds such a tuple has the one from outside: for `is` they are to be one. The next trace makes copies of its
    /// own. C code may have borrowed this one.
    fn put_back(&self, copies: Vec<HeldCopy<'_>>) {
        for copy in copies {
            match copy {
                HeldCopy::Local(frame, slot, plain) => {
                    let copy = frame.exchange_local(slot, plain);
                    self.exchanged.borrow_mut().extend(copy.map(Bound::unbind));
                }
                HeldCopy::Argument(args, at, plain) => {
                    let copy = heap::tuple_items(args.as_borrowed()).swap_remove(at);
                    self.exchanged.borrow_mut().push(copy.unbind());
                    exchange_tuple_item(args.as_borrowed(), at, plain);
                }
            }
        }
    }

    /// Ends the trace before a call, and makes it: what is called may keep its arguments, so it gets the objects that plain
    /// Python has for numbers.
    pub(in crate::recorder) fn breaking_call<'py>(
        &self,
        reason: Reason,
        detail: impl Into<String>,
        call: Call<'_, 'py>,
    ) -> Raising<Object<'py>> {
        self.stop(call.frame, reason, detail);
        self.call_of_plain(call)
    }

    /// Makes a call before which the trace may have ended, with the objects that plain Python has for numbers.
    pub(in crate::recorder) fn call_of_plain<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Raising<Object<'py>> {
        let given: Vec<Option<Object<'py>>> =
            call.args.iter().map(|arg| self.plain_left(*arg)).collect();
        let pairs = call.args.iter().zip(&given);
        let args: Args<'_, 'py> =
            pairs.map(|(arg, given)| given.as_ref().map_or(*arg, |it| it.as_borrowed())).collect();
        Call { args: &args, ..call }.natively()
    }

    /// Behind a loop's body there is often nothing but the way to its `FOR_ITER`.
    fn note_idle(&self, frames: &[Standing<'_>]) {
        let Some(Standing { waiting, last, anatomy, .. }) = frames.last() else { return };
        let (frame, begin) = self.began.get();
        if frame == waiting.frame.id() && anatomy.is_idle(begin, *last) {
            self.session.points.is_idle(&waiting.frame.code(), begin, *last);
        }
    }

    /// What is alive in a special method may be impossible to rebuild (a half-made instance), and so is
    /// the memo of `copy.deepcopy`: the next trace ends before the instruction that calls it. False: no
    /// such call is waited for.
    fn give_way(&self, frame: &Frame<'_>, stop: &Break) -> bool {
        let Some(mut chain) = self.frames_to(frame) else { return false };
        chain.pop();
        let is_special = |frame: &Frame<'_>| {
            let linked = self.anatomy(&frame.code()).and_then(|code| self.links.of(frame, &code));
            linked.is_some_and(|linked| linked.link != Link::Push || linked.held.is_some())
        };
        let copies = self.copying_begins(&chain).and_then(|begin| begin.checked_sub(1));
        let special = chain.iter().position(is_special);
        let Some(outermost) = special.into_iter().chain(copies).min() else { return false };
        chain.truncate(outermost + 1);
        if let Some(spot) = Spot::of(&chain) {
            self.session.points.mark_spot(spot, stop.clone());
        }
        if self.point.borrow().is_none() {
            self.session.retry(stop.clone());
        }
        true
    }

    /// No trace that begins where this one began can be replayed.
    pub(in crate::recorder) fn fail(&self, stop: &Break) {
        if self.session.is_tried_again() {
            return;
        }
        match &*self.point.borrow() {
            Some(point) => point.give_up(),
            None => self.session.fail(stop.clone()),
        }
    }

    /// The instruction was begun: drops the trace, and marks the instruction for the next one.
    fn mark(&self, frame: &Frame<'_>, stop: Break) {
        self.resume.set(0);
        if let Some(chain) = self.markable(frame)
            && let Some(spot) = Spot::of(&chain)
        {
            self.resume.set(chain.last().map_or(0, Frame::id));
            let runs_generator = |frame: &Frame<'_>| {
                frame.stack().last().copied().flatten().is_some_and(runs_frames)
            };
            let is_question = self.wants_way_around.take() || stop.reason == Reason::DataRead;
            let may_go_around = is_question
                && self.session.takes_steps()
                && chain.last().is_some_and(runs_generator);
            if !may_go_around || !self.session.points.go_around(spot) {
                self.session.points.mark_spot(spot, stop.clone());
            }
        }
        if self.resume.get() == 0 {
            self.fail(&stop);
        } else if self.point.borrow().is_none() {
            self.session.retry(stop.clone());
        }
        self.session.broke(stop);
    }

    /// Where the frames stand.
    pub(in crate::recorder) fn standing<'py>(
        &self,
        frame: &Frame<'py>,
    ) -> Result<SmallVec<[Standing<'py>; 4]>, (Reason, String)> {
        let refuse = |what: &str| (Reason::Instruction, what.to_string());
        let frames = self.frames_to(frame).ok_or_else(|| refuse("frames that aren't traced"))?;
        let mut all = SmallVec::new();
        for (index, frame) in frames.iter().enumerate() {
            let unit = frame.unit();
            let anatomy = self.anatomy(&frame.code()).ok_or_else(|| refuse("unknown bytecode"))?;
            let depth = frame.stack().len();
            let position = if index + 1 == frames.len() {
                anatomy.start(unit).map(|(start, last)| (start, last, None))
            } else {
                anatomy
                    .next(unit)
                    .zip(self.links.of(frame, &anatomy))
                    .map(|(next, linked)| (next, next, Some(linked)))
            };
            let (next, last, linked) = position.ok_or_else(|| refuse("an inlined call"))?;
            let current = if linked.is_some() { unit } else { next };
            let (link, taken, held) = match linked {
                Some(Linked { link, taken, held }) => (Some(link), taken, held),
                None => (None, 0, None),
            };
            let depth = depth.checked_sub(taken).ok_or_else(|| refuse("an inlined call"))?;
            let waiting = Waiting { frame: *frame, next, depth, held, link };
            all.push(Standing { waiting, current, last, anatomy });
        }
        Ok(all)
    }

    /// What the program does from here on, another call won't do: the notes are dropped, and nobody is to
    /// blame.
    #[cold]
    pub(in crate::recorder) fn give_in(&self, py: Python<'_>) {
        if self.stopped.replace(true) {
            return;
        }
        let raised = PyErr::take(py);
        self.resume.set(0);
        self.guarded(py, || self.let_go(py));
        drop(self.gc.take());
        if let Some(raised) = raised {
            raised.restore(py);
        }
    }

    /// Turns the notes into an entry.
    pub(in crate::recorder) fn end_with(
        &self,
        py: Python<'_>,
        end: End<'_, '_>,
    ) -> Result<(), (Reason, String)> {
        let _deferred = Deferred::new(py);
        faults::at(Stage::Finish).map_err(|fault| internal(&fault))?;
        let mut state =
            self.take_notes(py).map_err(|error| (Reason::Unsupported, error.to_string()))?;
        if let Some(mark) = state.symbols.as_ref().and_then(|symbols| symbols.broken_mark()) {
            self.session.broke_mark(mark);
        }
        self.check_emissions(py, &state)?;
        self.check_blocks(&state)?;
        state.given.check(py)?;
        if state.has_refused() {
            self.check_refused(&mut state, &end)?;
        }
        let handled = handled_beyond(py, self.handled_at_entry);
        let spots: Vec<_> = state.written.emissions().iter().map(|emitted| emitted.spot).collect();
        let asked = state.claims.asked;
        if self.point.borrow().is_none() {
            Room::remember(self.root, &state);
        }
        let traced =
            Finish::run(state, py, end, handled.as_ref(), &mut self.exchanged.borrow_mut());
        if let Err((Reason::Told, detail)) = &traced {
            self.mark_emissions(&spots, detail);
        }
        let mut traced = traced?;
        let withs = self.plain_withs.borrow();
        traced.work = self.tally.take();
        traced.plain_withs =
            withs.iter().map(|(code, unit)| (code.as_ptr() as usize, *unit)).collect();
        drop(withs);
        let selected = self.selected.take();
        if let Some(kind) = accelerator::guard(py, &traced.graph, selected.as_ref(), asked)
            .map_err(|detail| (Reason::Unsupported, detail))?
        {
            let source = traced.sources.intern(Source::GlobalState);
            traced.guards.push(Guard { source, kind, location: None });
        }
        if config::is_strict() {
            traced.verify().map_err(|wrong| internal(&Fault::new(wrong)))?;
        }
        let before = self.generators.take();
        let generators = || -> PyResult<_> {
            let mut found = rollback::started(py, &before)?;
            found.extend(rollback::advanced(py, before)?);
            found.extend(rollback::explicit(py, &traced.graph_objects)?);
            Ok(found)
        };
        faults::at(Stage::Guards).map_err(|fault| internal(&fault))?;
        let entry = generators().and_then(|found| {
            traced.generators = found;
            Entry::new(py, traced)
        });
        let entry = entry.map_err(|error| (Reason::Unsupported, error.to_string()))?;
        match &*self.point.borrow() {
            Some(point) => point.add(entry.clone()),
            None => self.session.traced(entry.clone()),
        }
        self.session.replays(entry.estimate());
        self.session.made(entry);
        Ok(())
    }

    /// Whether the trace that is about to begin had better begin behind the next instruction.
    pub(in crate::recorder) fn settles(&self, frame: &Frame<'_>, meaning: Meaning) -> bool {
        let top = frame.stack().last().copied().flatten();
        self.resume.get() == frame.id() && settles(meaning, top)
    }

    /// Whether recording goes on with the next instruction of a frame that broke.
    pub(in crate::recorder) fn restart(&self, frame: &Frame<'_>) -> bool {
        let _deferred = Deferred::new(frame.py());
        if self.resume.get() != frame.id() {
            return false;
        }
        if self.session.is_too_long() {
            self.resume.set(0);
            return false;
        }
        let begun = self.try_restart(frame).unwrap_or(Begun::Nothing);
        match begun {
            Begun::Trace => {}
            Begun::Nothing => self.resume.set(0),
            // Its caller may go a new way.
            Begun::Known => self.resume.set(self.caller_of(frame)),
        }
        begun == Begun::Trace
    }

    /// The id of the frame that waits for this one; 0: none does.
    fn caller_of(&self, frame: &Frame<'_>) -> usize {
        let state = self.state.borrow();
        let mut around = state.frames.active().iter().rev().map(|active| active.id);
        around.find(|id| *id != frame.id()).unwrap_or(0)
    }

    fn try_restart(&self, frame: &Frame<'_>) -> Option<Begun> {
        let py = frame.py();
        let handled = handled_beyond(py, self.handled_at_entry);
        let standing = self.standing(frame).ok()?;
        let chain: Chain<'_> = standing.iter().map(|standing| standing.waiting.clone()).collect();
        let key = Key::of(&chain, handled.is_some());
        let global = read_global_state(py).ok()?;
        if foreign_mode(&global).is_some() {
            return Some(Begun::Nothing);
        }
        let point = self.session.points.get_or_make(&key, &chain)?;
        let values = roots(&chain, handled.as_ref());
        let known = point.find(py, &values);
        let is_known = known.is_some();
        match known {
            Some((entry, _)) if !self.session.watches(&entry) => return Some(Begun::Known),
            Some((entry, _)) => self.session.replays(entry.estimate()),
            None if !point.takes_more(self.session.limit) => return Some(Begun::Nothing),
            None => {}
        }
        self.tally.take();
        self.watching.set(is_known);
        *self.point.borrow_mut() = Some(point.clone());
        *self.gc.borrow_mut() = Some(WithoutGc::new(py));
        let mut carried = self.carried.take();
        carried.add_plain(py, &self.left_with.borrow());
        let policy = if is_known {
            Policy::default().carrying(carried.without_symbols())
        } else {
            point.policy(py, self.session.dynamic).carrying(carried)
        };
        let mut state = State::new(py, &Room::SMALL).ok()?;
        state.policy = policy.for_compiler(!self.session.is_eager);
        state.roots.place = Log::Bytecode.is_on().then(|| place(frame));
        let source = state.sources.intern(Source::GlobalState);
        state.guard(source, GuardKind::GlobalState(global));
        take_roots(&mut state, &standing, handled.as_ref()).ok()?;
        let old = self.state.replace(state);
        self.suspended.borrow_mut().clear();
        self.raised.borrow_mut().clear();
        self.numbers_read.borrow_mut().clear();
        if !is_known {
            *self.generators.borrow_mut() = rollback::generators(py).ok()??;
            *self.selected.borrow_mut() = accelerator::selected_at_entry(py).ok()?;
        }
        drop(old);
        let begin = standing.last().map_or(0, |innermost| innermost.waiting.next);
        self.began.set((frame.id(), begin));
        self.takes_iterators.set(self.behind_exit.take());
        self.stopped.set(false);
        Some(Begun::Trace)
    }

    /// A frame has left. If it had stopped, recording may go on in its caller.
    pub fn left(&self, frame: &Frame<'_>) {
        let mut state = self.state.borrow_mut();
        let around = state.frames.leave(frame);
        state.roots.forget(frame, around);
        self.links.forget(frame);
        if self.is_stopped() && self.resume.get() == frame.id() {
            self.resume.set(state.frames.innermost().map_or(0, |active| active.id));
        }
    }

    /// Why the trace has to end before this instruction, if it's known from an earlier call.
    #[cold]
    pub(in crate::recorder) fn known_break(&self, frame: &Frame<'_>) -> Option<Break> {
        let is_direct =
            || self.state.borrow().frames.active().iter().all(|active| active.is_direct);
        let points = &self.session.points;
        let marked =
            points.marked(frame, || if is_direct() { self.frames_to(frame) } else { None });
        marked.or_else(|| self.asked_break(frame).filter(|_| is_direct()))
    }

    /// A break that a test asks for, wherever one is possible.
    fn asked_break(&self, frame: &Frame<'_>) -> Option<Break> {
        if self.asked == Breaks::None {
            return None;
        }
        let number = self.steps.get() + 1;
        self.steps.set(number);
        let is_boundary = self.anatomy(&frame.code())?.is_boundary(frame.unit());
        let applies = is_boundary && self.asked.applies(number);
        applies.then(|| Break {
            reason: Reason::Asked,
            detail: String::new(),
            stack: self.stack(frame),
        })
    }
}

/// Makes everything that is alive an outside object: a root. What can't be read any more gets
/// no guards.
fn take_roots(
    state: &mut State,
    chain: &[Standing<'_>],
    handled: Option<&Object<'_>>,
) -> Result<(), Stop> {
    let innermost = chain.len() - 1;
    state.roots.begin_in(chain.len());
    let mut index = 0;
    let mut exceptions: SmallVec<[Object<'_>; 2]> = handled.cloned().into_iter().collect();
    for (at, standing) in chain.iter().enumerate() {
        let frame = &standing.waiting.frame;
        let parent = (at > 0).then(|| state.place(&chain[at - 1].waiting.frame)).flatten();
        let code = frame.code();
        let id = state.frames.number(frame);
        let caller = Caller::Known(parent);
        state.frames.enter(ActiveFrame {
            id: frame.id(),
            code: id,
            caller,
            is_direct: true,
            module: None,
        });
        state.frames.locate(frame);
        let prefix = if at == innermost { String::new() } else { prefix(&chain[..=at]) };
        let mut root = |state: &mut State, name: String| {
            let source = state.sources.local(index, || name.into());
            index += 1;
            source
        };
        let function = root(state, format!("{prefix}___function"));
        state.adopt(function, frame.function())?;
        if at == innermost {
            state.sources.set_entry(function);
        }
        let locals = code.nlocalsplus();
        let values = slots(&standing.waiting);
        for (slot, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let name = if slot < locals {
                format!("{prefix}{}", heap::text(code.local_name(slot)))
            } else {
                format!("{prefix}___stack{}", slot - locals)
            };
            let source = root(state, name);
            let is_read = if slot < locals {
                state.roots.hold((frame.id(), slot), source, *value);
                standing.is_live(slot)
            } else {
                state.roots.hold_on_stack(*value);
                true
            };
            if !is_read {
                continue;
            }
            if value.is_instance_of::<PyBaseException>() {
                exceptions.push((*value).to_owned());
            }
            let only_adds = match slot.checked_sub(locals) {
                None => {
                    let is_growing =
                        state.kind_alone(*value) == Kind::List || heap::is_deque(*value);
                    is_growing && (only_adds_to(frame, slot) || state.may_be_read_later(*value))
                }
                Some(place) => place > 0 && adds_to_receiver(values[slot - 1]),
            };
            // A copy that holds symbols would keep what its original holds.
            if state.watch_root(*value) {
                let used = Use { only_adds, ..Use::default() };
                if state.adopt_for(used, source, *value).is_err() {
                    state.carry(source, *value);
                }
                continue;
            }
            let used = Use { only_adds, ..state.moving() };
            let adopted = if at < innermost && slot < locals {
                state.adopt_waiting_local(used, source, *value)
            } else if slot < locals {
                state.adopt_root_behind_break(used, source, *value, Some(slot))
            } else {
                let depth = standing.waiting.depth.min(frame.stack().len());
                let is_stacked = at == innermost && slot - locals < depth;
                state.adopt_stacked(used, source, *value, is_stacked.then_some(slot))
            };
            match adopted {
                Ok(Some(own)) if slot < locals => {
                    if at < innermost {
                        // The table of objects keeps the old one.
                        frame.exchange_local(slot, own.bind(frame.py()).clone());
                    }
                    state.roots.hold((frame.id(), slot), source, own.bind_borrowed(frame.py()));
                }
                Ok(_) => {}
                Err(_) => state.carry(source, *value),
            }
        }
    }
    if let Some(handled) = handled {
        let source = state.sources.local(index, || "___handled".into());
        state.watch_root(handled.as_borrowed());
        state.carry(source, handled.as_borrowed());
    }
    state.watch_exceptions(&exceptions);
    Ok(())
}

/// What stands before the names of the last frame's variables: its code's name, with a number where
/// others around it have that name too (modules in modules, recursion).
fn prefix(chain: &[Standing<'_>]) -> String {
    let name = |standing: &Standing<'_>| heap::text(standing.waiting.frame.code().name());
    let Some((last, around)) = chain.split_last() else { return String::new() };
    let own = name(last);
    match around.iter().filter(|standing| name(standing) == own).count() {
        0 => format!("{own}."),
        others => format!("{own}#{}.", others + 1),
    }
}
