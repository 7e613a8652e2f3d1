//! Calls of weak references.

use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, ops};
use stator_guards::{GuardKind, Source};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::Origin;

impl Recorder {
    /// `ref()` of an outside weak reference: what it refers to is guarded by identity. The reference itself may be another
    /// one: an entry that kept it would have it call back where the program has dropped it.
    pub(super) fn call_weakref<'py>(
        &self,
        frame: &Frame<'py>,
        reference: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        self.release_referent(frame, reference);
        let referent = ops::call(reference, &[], None)?;
        self.note(frame, |state| {
            if state.origin(reference) == Some(Origin::Fresh) {
                return Ok(());
            }
            let unknown = || (Reason::UnknownOrigin, "what a weak reference refers to".to_string());
            let source = state.source(reference).ok_or_else(unknown)?;
            let at = state.sources.intern(Source::Referent(source));
            state.guard_type(source, reference);
            if referent.is_none() {
                state.guard(at, GuardKind::IsNone);
                return Ok(());
            }
            let id = state.object(referent.as_borrowed());
            state.guard(at, GuardKind::Is(id));
            match state.source(referent.as_borrowed()) {
                Some(source) => state.guard(source, GuardKind::Is(id)),
                None if state.origin(referent.as_borrowed()).is_some() => return Err(unknown()),
                // A reference refers to one object all its life.
                None => {
                    let name = || heap::type_name(referent.as_borrowed()).into();
                    let source = state.sources.anchor(id, name);
                    state.adopt(source, referent.as_borrowed())?;
                }
            }
            Ok(())
        });
        Ok(referent)
    }
}
