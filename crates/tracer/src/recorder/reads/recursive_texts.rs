//! `__repr__` of dataclasses, and of what `reprlib.recursive_repr` decorates: its wrapper keeps a set of the objects whose
//! text is being made, so that one that holds itself is shown as `...`.
//!
//! The set was empty before, which is guarded, and is empty again behind the call. So what the wrapper does with it shows
//! nowhere else, and the addresses and the thread's number that it holds meanwhile are no values of the trace. A break in
//! what the wrapper calls is a break at whoever called the wrapper: its frame is never made again.

use stator_cpython::frame::Frame;
use stator_cpython::object::Borrowed;
use stator_cpython::{Result, ops};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Looks;
use crate::recorder::notes::effects::RUNNING;
use crate::recorder::notes::heap;

impl Recorder {
    /// Whether the text of an object is being made already: `key in repr_running`.
    pub(in crate::recorder) fn is_text_made<'py>(
        &self,
        frame: &Frame<'py>,
        running: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<bool> {
        self.state.borrow_mut().repeated.see();
        let is_empty = heap::set_items(running).is_empty();
        self.note(frame, |state| {
            if !state.reads.first((running.as_ptr() as usize, RUNNING)) {
                return Ok(());
            }
            if is_empty {
                return state.adopt_deep(running);
            }
            Err((Reason::Identity, "the objects whose text is being made".into()))
        });
        ops::contains(running, key)
    }
}
