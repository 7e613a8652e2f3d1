//! What is done before each instruction.

use stator_bytecode::Meaning;
use stator_cpython::frame::Frame;
use stator_cpython::opcode::TARGET;
use stator_evaluator::sites::Step;
use stator_faults::{self as faults, Stage};

use super::Recorder;
use crate::recorder::ending::abandoning::changes_handled;

/// So many instructions are recorded before the clock is asked again whether there is time for more.
const UNASKED: u64 = 32;

impl Recorder {
    /// An instruction begins that is recorded.
    #[inline(always)]
    pub(super) fn begin_instruction(&self) {
        self.tally.instruction();
        self.baseline.set(self.executed.get());
        self.links.clear();
    }

    /// As [`Recorder::begin_instruction`] where there may be more to do: recording has stopped, or it ends at
    /// some instructions.
    #[cold]
    #[inline(never)]
    pub(super) fn step_watchfully(&self, frame: &Frame<'_>, opcode: u8, arg: u32) -> Step {
        let step = self.guarded(frame.py(), || self.watch_step(frame, opcode, arg));
        step.unwrap_or(Step::HandOver)
    }

    fn watch_step(&self, frame: &Frame<'_>, opcode: u8, arg: u32) -> Step {
        if !self.is_stopped()
            && let Err(fault) = faults::at(Stage::Step)
        {
            self.fault(frame.py(), fault);
        }
        if self.is_due() && self.session.is_overdue() {
            self.give_in(frame.py());
            self.resume.set(0);
        }
        let mut step = Step::Evaluate;
        if self.is_stopped() {
            let meaning = Meaning::of_number(TARGET, opcode, arg);
            if self.session.fullgraph {
                if changes_handled(frame, meaning) {
                    return Step::Evaluate;
                }
                if self.raises_break(frame) {
                    return Step::Raise;
                }
            }
            if self.settles(frame, meaning) {
                return Step::Evaluate;
            }
            if !self.restart(frame) {
                return Step::HandOver;
            }
            if self.has_symbols() {
                step = Step::Substitute;
            }
        }
        self.begin_instruction();
        let known = if self.has_marks { self.known_break(frame) } else { None };
        let due = || if self.watches_finalizers() { self.due_finalizer(frame) } else { None };
        if let Some(stop) = known.or_else(due) {
            if self.abandon(frame, &stop) {
                return if self.raises_break(frame) { Step::Raise } else { Step::HandOver };
            }
            self.break_before(frame, stop);
            return step;
        }
        if self.trace_log {
            self.log_step(frame, frame.unit(), opcode, arg);
        }
        step
    }

    /// Whether to ask if the recording has taken too long: now and then, and before each trace.
    fn is_due(&self) -> bool {
        self.session.allowance.is_some()
            && (self.is_stopped() || self.tally.counted().is_multiple_of(UNASKED))
    }
}
