//! Decisions: a trace goes on behind a question about data, for the answer that it has in this call.
//!
//! `if x.sum() > 0:` asks for the truth of a tensor. The answer becomes a node of the graph, and a decision behind
//! it: a replay that finds the other answer leaves the trace there, and its frames stand before the instruction as
//! they do at a graph break. What was executed up to there has happened, and nothing behind it has.
//!
//! An operation that may raise leaves in the same way, where going back to the start wouldn't do ([`super::risks`]).
//!
//! So each decision has an [`Exit`]: what the trace's end would be, had it ended before the instruction. The
//! nodes that its recipes need are arguments of the decision, which keeps them alive until then.
//!
//! An operation on numbers may ask several times, and each number again: `lr / (1 - beta ** step)` for all parameters. Where
//! a replay has done nothing since the last exit but read numbers and compute with them, a question leaves by that one: plain Python
//! does the same again from there. What a program writes to objects in between it hasn't done at that exit, so it's written then.
//!
//! C code can't be left in the middle: `any(...)` over a generator, `sorted(key=...)`. So before its instruction an exit is made, and all that
//! is asked while it runs leaves by that one ([`Around`]), as long as replays do nothing meanwhile that can't be done again.

use pyo3::prelude::*;
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::hook::Suspended;
use stator_cpython::object::Object;
use stator_cpython::thread::Deferred;
use stator_cpython::{Result, ops};
use stator_graph::{Arg, Graph, NodeId, NodeKind, StackId, Target, Value};

use super::outcome::{End, Finish, Made, Standing};
use crate::breaks::Reason;
use crate::raises::NodeCall;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Decides, Ends};
use crate::recorder::notes::copies::Memo;
use crate::recorder::notes::exits::{Around, Asks, Last};
use crate::recorder::notes::state::{State, Stop};
use crate::resume::point::handled_beyond;
use crate::trace::Exit;
use crate::writes;

/// A question that so few nodes lead to is asked of what came in.
const NEAR: usize = 16;

/// So many such questions of the same input aren't counted: a loop that data ends may write to it.
const ALIKE: u32 = 8;

/// So many operations of a trace have a way out for what they raise, at most.
const CAUGHT: usize = 256;

/// What a trace keeps for its exits has so many parts at most.
const PARTS: usize = 1 << 20;

/// A way out that is about to be one.
pub(in crate::recorder) struct Prepared {
    /// One of its own; `None`: a decision leaves as an earlier one does.
    exit: Option<Exit>,
    /// The nodes that the exit needs, or the earlier decision.
    outputs: SmallVec<[Arg; 8]>,
    asked: Arg,
}

impl Decides for Recorder {
    fn decided<'py>(
        &self,
        frame: &Frame<'py>,
        asks: Asks,
        asked: impl FnOnce(&mut State) -> std::result::Result<Arg, Stop>,
        native: impl FnOnce() -> Result<bool>,
    ) -> Option<Result<bool>> {
        let asks = self.asks_more(asks);
        let is_around = self.is_within_around();
        let prepared = if is_around {
            self.prepare_around(frame, asked)
        } else {
            self.prepare(frame, asks, asked)
        };
        let Prepared { exit, outputs, asked } = prepared?;
        let answer = match native() {
            Ok(answer) => answer,
            Err(raised) => {
                self.stop(frame, Reason::OperationRaised, "a question about data");
                return Some(Err(raised));
            }
        };
        // To ask changes nothing: the instruction is as before, for who asks more.
        if !is_around {
            self.baseline.set(ops::executed());
        }
        self.note(frame, |state| {
            let stack = state.place(frame);
            let args: SmallVec<[Arg; 8]> =
                [asked, Arg::bool(answer)].into_iter().chain(outputs).collect();
            let node = state.graph.call(Target::Decide, &args, stack);
            state.graph.set_value(node, Value::Nothing);
            state.exits.outputs += args.len();
            // What leaves as an earlier one does counts as one with it.
            let is_counted =
                asks == Asks::Program && !(is_around && exit.is_none()) && !state.is_near(asked);
            state.exits.questions += usize::from(is_counted);
            let nodes = state.graph.len();
            if let Some(around) = state.exits.around.as_mut().filter(|_| is_around) {
                if let Some(exit) = exit {
                    state.exits.made.push(exit);
                    around.outputs = [Arg::Node(node)].into_iter().collect();
                }
                return Ok(());
            }
            match exit {
                Some(exit) => {
                    state.exits.made.push(exit);
                    let instruction = self.tally.counted();
                    state.exits.last = Some(Last { decision: node, instruction, nodes });
                }
                None => state.exits.last.as_mut().expect("it leaves as this one").nodes = nodes,
            }
            Ok(())
        });
        Some(Ok(answer))
    }

    fn is_called_around(&self, frame: &Frame<'_>) -> bool {
        let Ok(mut state) = self.state.try_borrow_mut() else { return false };
        let Some(caller) = state.exits.around.as_ref().map(|around| around.frame) else {
            return false;
        };
        let active = state.frames.active();
        let waits = |id: usize| id == caller || self.collecting.borrow().contains(&id);
        ops::executed() == self.baseline.get()
            && self.consumer.get() == caller
            && active.last().is_some_and(|active| active.id == frame.id() && active.id != caller)
            && active.windows(2).all(|pair| pair[1].is_direct || waits(pair[0].id))
            && state.can_leave_around()
    }

    fn with_way_around<T>(&self, frame: &Frame<'_>, run: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.is_within_around() {
            return run();
        }
        let before = self.state.try_borrow().ok().map(|state| state.exits.lengths());
        let prepared = self.prepare(frame, Asks::Program, |_| Ok(Arg::NONE));
        let is_ready = match (prepared, before, self.state.try_borrow_mut()) {
            (Some(Prepared { exit: exit @ Some(_), outputs, .. }), Some(before), Ok(mut state)) => {
                let nodes = state.graph.len();
                let frame = frame.id();
                state.exits.around = Some(Around { frame, exit, outputs, nodes, before });
                true
            }
            _ => false,
        };
        let result = run();
        if is_ready {
            self.behind(frame, || {
                if let Ok(mut state) = self.state.try_borrow_mut() {
                    state.exits.end_around();
                }
            });
        }
        result
    }
}

impl Recorder {
    /// Who asks: where an instruction has asked before (`sorted(numbers)`, `n in (1, 2, 3)`) what it asks further is an
    /// operation's question, and leaves as that one.
    fn asks_more(&self, asks: Asks) -> Asks {
        let asked = |state: &State| state.exits.last.as_ref().map(|last| last.instruction);
        let last = self.state.try_borrow().ok().and_then(|state| asked(&state));
        let is_same = last == Some(self.tally.counted());
        if asks == Asks::Program && is_same { Asks::Operation } else { asks }
    }

    fn is_within_around(&self) -> bool {
        self.state.try_borrow().is_ok_and(|state| state.exits.around.is_some())
    }

    /// As [`Recorder::prepare`], of what is asked while such C code runs.
    fn prepare_around(
        &self,
        frame: &Frame<'_>,
        asked: impl FnOnce(&mut State) -> std::result::Result<Arg, Stop>,
    ) -> Option<Prepared> {
        if self.stopped.get() {
            return None;
        }
        let can_leave =
            |state: &mut State| state.may_decide(Asks::Operation) && state.can_leave_around();
        if !can_leave(&mut *self.state.try_borrow_mut().ok()?) {
            return None;
        }
        let asked = self.note(frame, asked)?;
        let mut state = self.state.try_borrow_mut().ok()?;
        if !can_leave(&mut state) {
            return None;
        }
        let around = state.exits.around.as_mut()?;
        let (exit, outputs) = (around.exit.take(), around.outputs.clone());
        if let (None, [Arg::Node(decision)]) = (&exit, &outputs[..]) {
            // Others read what it needs from it.
            let decision = *decision;
            state.graph.set_value(decision, Value::Unknown);
        }
        Some(Prepared { exit, outputs, asked })
    }

    /// The way out for what an operation may raise, the current instruction's.
    pub(in crate::recorder) fn catch(&self, frame: &Frame<'_>) -> Option<Prepared> {
        self.prepare(frame, Asks::Nobody, |_| Ok(Arg::NONE))
    }

    /// As [`Recorder::catch`], while C code runs that has a way out: the one before it, if nobody leaves by that so far.
    pub(in crate::recorder) fn catch_around(&self) -> Option<Prepared> {
        let mut state = self.state.try_borrow_mut().ok()?;
        if self.stopped.get() || !state.may_decide(Asks::Nobody) || !state.can_leave_around() {
            return None;
        }
        let around = state.exits.around.as_mut()?;
        let exit = Some(around.exit.take()?);
        Some(Prepared { exit, outputs: around.outputs.clone(), asked: Arg::NONE })
    }

    /// Makes a way out before the current instruction, which is yet to be executed; `None`: there is none.
    fn prepare(
        &self,
        frame: &Frame<'_>,
        asks: Asks,
        asked: impl FnOnce(&mut State) -> std::result::Result<Arg, Stop>,
    ) -> Option<Prepared> {
        let py = frame.py();
        // Of what code of other backends raises it isn't known which operation has.
        let may_leave = match asks {
            Asks::Nobody => self.session.is_replayed(),
            Asks::Program | Asks::Operation => self.session.takes_steps(),
        };
        if self.stopped.get() || !may_leave || !self.is_untouched(frame) {
            return None;
        }
        if asks == Asks::Operation {
            let last = self.state.try_borrow_mut().ok()?.last_exit();
            if let Some(last) = last {
                let asked = self.note(frame, asked)?;
                let outputs = [Arg::Node(last)].into_iter().collect();
                return Some(Prepared { exit: None, outputs, asked });
            }
        }
        let frames = self.standing(frame).ok()?;
        let handled = handled_beyond(py, self.handled_at_entry);
        let _deferred = Deferred::new(py);
        let _native = Suspended::new(py);
        let mut state = self.state.try_borrow_mut().ok()?;
        if !state.may_decide(asks) {
            return None;
        }
        // Nothing of the program's runs while recipes are made; what does isn't recorded.
        self.stopped.set(true);
        let made = self.guarded(py, || {
            state.frames.locate(frame);
            let asked = asked(&mut state)?;
            let (exit, outputs) = state.exit(py, &frames, handled.as_ref())?;
            Ok::<_, Stop>(Prepared { exit: Some(exit), outputs, asked })
        });
        self.stopped.set(made.is_none());
        made?.ok()
    }
}

impl State {
    /// The last decision with an exit, if plain Python can do again from there what a replay has done since.
    fn last_exit(&mut self) -> Option<NodeId> {
        if !self.may_decide(Asks::Operation) {
            return None;
        }
        let length = self.graph.len();
        let last = self.exits.last.as_mut()?;
        let is_repeatable = |at: usize| {
            let id = NodeId::new(at);
            let node = self.graph.node(id);
            matches!(node.value, Value::Float | Value::Integer) && is_idle(&self.graph, id)
                || matches!(node.kind, NodeKind::Placeholder { .. })
        };
        if !(last.nodes..length).all(is_repeatable) {
            self.exits.last = None;
            return None;
        }
        let decision = last.decision;
        // Others read what it needs from it.
        self.graph.set_value(decision, Value::Unknown);
        Some(decision)
    }

    /// Whether plain Python can do again what a replay has done since it would have left by the way around C code.
    fn can_leave_around(&mut self) -> bool {
        if self.enclosed.is_on() {
            return false;
        }
        let length = self.graph.len();
        let Some(around) = self.exits.around.as_mut() else { return false };
        let is_repeatable = (around.nodes..length).all(|at| is_idle(&self.graph, NodeId::new(at)));
        if is_repeatable {
            around.nodes = length;
        }
        is_repeatable
    }

    /// Whether few nodes lead to what is asked, from an input of which little was asked so far.
    fn is_near(&mut self, asked: Arg) -> bool {
        let mut found: SmallVec<[NodeId; 2 * NEAR]> = SmallVec::new();
        self.graph.visit_nodes(asked, &mut |node| found.push(node));
        let mut at = 0;
        while let Some(&node) = found.get(at) {
            self.graph.visit_inputs(node, &mut |input| {
                if found.len() <= NEAR && !found.contains(&input) {
                    found.push(input);
                }
            });
            if found.len() > NEAR {
                return false;
            }
            at += 1;
        }
        let is_input =
            |node: &NodeId| matches!(self.graph.node(*node).kind, NodeKind::Placeholder { .. });
        found.retain(|node| is_input(node));
        let near = &mut self.exits.near;
        let mut is_near = false;
        for input in found {
            let asked = near.entry(input).or_insert(0);
            *asked += 1;
            is_near |= *asked <= ALIKE;
        }
        is_near
    }

    /// Whether a replay could leave the trace here: nothing is begun that it would have to end.
    fn may_decide(&self, asks: Asks) -> bool {
        let has_room = match asks {
            Asks::Program => !self.exits.is_full(),
            Asks::Operation => true,
            Asks::Nobody => self.exits.caught < CAUGHT,
        };
        has_room
            && self.exits.recipes.len() + self.exits.outputs < PARTS
            && !self.claims.is_in_block()
            && matches!(self.memo, Memo::None)
            && self.failure.is_none()
            && !self.has_refused()
    }

    /// The operation that was appended last has a way out for what it raises.
    pub(in crate::recorder) fn add_catch(&mut self, prepared: Prepared, stack: Option<StackId>) {
        let node = self.graph.call(Target::Catch, &prepared.outputs, stack);
        self.graph.set_value(node, Value::Nothing);
        self.exits.outputs += prepared.outputs.len();
        self.exits.caught += 1;
        self.exits.made.extend(prepared.exit);
    }

    /// What the trace's end would be if it ended here.
    fn exit(
        &mut self,
        py: Python<'_>,
        frames: &[Standing<'_>],
        handled: Option<&Object<'_>>,
    ) -> Made<(Exit, SmallVec<[Arg; 8]>)> {
        if let Some((_, detail)) = self.doubtful_emission(py) {
            return Err((Reason::Told, detail.into()));
        }
        self.given.check(py)?;
        let effects = self.effects_so_far(py);
        let left = self.roots.left().into();
        let recipes = std::mem::take(&mut self.exits.recipes);
        let mut finish = Finish { recipes, is_exit: true, ..Finish::new(self) };
        let made = finish.ending(End::Break(frames), handled).and_then(|mut ending| {
            let (stores, targets) = finish.effects(py, &effects)?;
            finish.raised_beside(&mut ending);
            let ending_last = finish.ending_last(&ending, &targets);
            Ok((ending, ending_last, stores, finish.emissions(py)?))
        });
        let Finish { state, recipes, outputs, kept, .. } = finish;
        state.kept = kept;
        state.exits.recipes = recipes;
        let (ending, ending_last, effects, emissions) = made?;
        if let Some(stop) = state.failure.take() {
            // What was asked for here is asked by the exit alone.
            if let Some(symbols) = state.symbols.as_mut() {
                symbols.refused_at = None;
            }
            return Err(stop);
        }
        let draws = self.claims.draws.as_ref().map_or(0, |(_, draws)| draws.made.len());
        let exit = Exit { ending, ending_last, effects, emissions, left, draws };
        Ok((exit, outputs.nodes().iter().copied().collect()))
    }
}

/// Whether nobody can tell that a node was executed twice. No operator writes to a number, and no method that reads one from
/// a tensor writes to that.
fn is_idle(graph: &Graph, id: NodeId) -> bool {
    let Some(call) = NodeCall::of(graph, id) else { return true };
    let is_number = matches!(graph.node(id).value, Value::Float | Value::Integer);
    let reads = |name: &str| matches!(name, "__int__" | "__float__");
    match call.target {
        Target::Operator(_) if is_number => true,
        Target::Method { .. } if is_number && reads(call.operation()) => true,
        Target::Function { .. } if call.is_of_numbers() => true,
        _ => writes::is_idle(call),
    }
}
