//! Where the evaluated frames stand: what the rooms ask before they go on, or end the trace.

use std::rc::Rc;

use stator_cpython::code::Code;
use stator_cpython::frame::Frame;
use stator_cpython::ops;

use super::{Recorder, place};
use crate::breaks::Place;
use crate::frames::anatomy::Anatomy;
use crate::resume::point::Spot;

impl Recorder {
    /// The user's frames, outermost first.
    pub(in crate::recorder) fn stack(&self, frame: &Frame<'_>) -> Vec<Place> {
        let mut stack: Vec<_> = std::iter::successors(Some(*frame), Frame::previous)
            .take(64)
            .map(|frame| (frame.code().as_ptr() as usize, place(&frame)))
            .collect();
        if let Some(root) = stack.iter().position(|(code, _)| *code == self.root) {
            stack.truncate(root + 1);
        }
        stack.into_iter().rev().map(|(_, place)| place).collect()
    }

    /// Whether the instruction that `frame` stands at has done nothing yet, and the frames around
    /// it only wait for a call to return.
    pub(in crate::recorder) fn is_untouched(&self, frame: &Frame<'_>) -> bool {
        ops::executed() == self.baseline.get() && self.are_linked(frame)
    }

    /// Whether `frame` is the innermost one, and those around it only wait for it.
    pub(in crate::recorder) fn are_linked(&self, frame: &Frame<'_>) -> bool {
        self.state.try_borrow().is_ok_and(|state| {
            state.frames.innermost().is_some_and(|active| active.id == frame.id())
                && state.frames.active().iter().all(|active| active.is_direct)
        })
    }

    /// The frames being evaluated, outermost first, down to `frame`.
    pub(in crate::recorder) fn frames_to<'py>(
        &self,
        frame: &Frame<'py>,
    ) -> Option<Vec<Frame<'py>>> {
        let state = self.state.try_borrow().ok()?;
        let mut found = Vec::with_capacity(state.frames.active().len());
        let mut callers = std::iter::successors(Some(*frame), Frame::previous);
        for active in state.frames.active().iter().rev() {
            found.push(callers.find(|caller| caller.id() == active.id)?);
        }
        found.reverse();
        Some(found)
    }

    /// What is known of a code object's instructions.
    pub(in crate::recorder) fn anatomy(&self, code: &Code<'_>) -> Option<Rc<Anatomy>> {
        self.session.anatomy(code)
    }

    /// The frames down to the one whose instruction a trace could have ended before.
    pub(in crate::recorder) fn markable<'py>(&self, frame: &Frame<'py>) -> Option<Vec<Frame<'py>>> {
        let mut chain = self.frames_to(frame)?;
        let state = self.state.borrow();
        let indirect = state.frames.active().iter().position(|active| !active.is_direct);
        chain.truncate(indirect.unwrap_or(chain.len()));
        while chain.last().is_some_and(|frame| !frame.is_complete()) {
            chain.pop();
        }
        Some(chain)
    }

    /// Where these frames stand.
    pub(in crate::recorder) fn markable_spot(&self, frame: &Frame<'_>) -> Option<Spot> {
        Spot::of(&self.markable(frame)?)
    }
}
