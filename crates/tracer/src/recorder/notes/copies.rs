//! The memo of a copy that is made in steps, and the frames of `copy.deepcopy` that hold it.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use stator_cpython::frame::Frame;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::object::{Borrowed, Object};

use crate::recorder::Recorder;

/// The memo of a copy that is made in steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memo {
    /// None is.
    #[default]
    None,
    /// It is yet to be made.
    Awaited,
    /// It has this address.
    At(usize),
}

impl Memo {
    /// Whether it is this object.
    pub fn is(self, object: Borrowed<'_, '_>) -> bool {
        self == Self::At(object.as_ptr() as usize)
    }
}

impl Recorder {
    pub(in crate::recorder) fn exchange_memo(&self, memo: Memo) -> Memo {
        let state = self.state.try_borrow_mut();
        state.map_or(Memo::None, |mut state| std::mem::replace(&mut state.memo, memo))
    }

    /// Whether `id()` is asked for a key of the memo.
    pub(in crate::recorder) fn keys_memo(&self, frame: &Frame<'_>) -> bool {
        let known = self.state.try_borrow().map_or(Memo::None, |state| state.memo);
        if known == Memo::None || !self.copies(frame) {
            return false;
        }
        let Some(memo) = memo_of(frame) else { return false };
        // CPython 3.13 asks before it has made one.
        (known == Memo::Awaited && memo.is_none()) || self.knows_memo(memo.as_borrowed())
    }

    /// Whether an object is the memo of the copy that is being made; the first that there is becomes it.
    pub(in crate::recorder) fn knows_memo(&self, memo: Borrowed<'_, '_>) -> bool {
        let known = self.state.try_borrow().map_or(Memo::None, |state| state.memo);
        if known == Memo::Awaited && memo.is_exact_instance_of::<PyDict>() {
            self.exchange_memo(Memo::At(memo.as_ptr() as usize));
            return true;
        }
        known.is(memo)
    }

    /// Whether a frame is one of `copy.deepcopy`'s.
    pub(in crate::recorder) fn copies(&self, frame: &Frame<'_>) -> bool {
        let code = frame.code();
        self.functions.copying().is_some_and(|known| known.has_code(code.object()))
    }

    /// Where in `chain` frames of `copy.deepcopy` begin.
    pub(in crate::recorder) fn copying_begins(&self, chain: &[Frame<'_>]) -> Option<usize> {
        chain.iter().position(|frame| self.copies(frame))
    }
}

/// The memo in a frame of `copy.deepcopy`: its second argument.
pub(in crate::recorder) fn memo_of<'py>(frame: &Frame<'py>) -> Option<Object<'py>> {
    let memo = frame.local(1)?;
    // Closures share it.
    if Field::CellContents.applies(memo) {
        value(memo, Field::CellContents)
    } else {
        Some(memo.to_owned())
    }
}
