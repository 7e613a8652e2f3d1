//! `locals()` of a function: a dictionary of what its names stand for.
//!
//! It's made by CPython itself, of the frame's own slots, and is an object of the trace's own. Before CPython 3.13 a frame
//! has one such dictionary, which each call brings up to date. So a frame that has one from before the trace isn't asked, and
//! one whose dictionary somebody keeps isn't made again behind a graph break (`ending/outcome.rs`).

use pyo3::prelude::*;
use stator_cpython::Result;
use stator_cpython::frame::Owner;
use stator_cpython::object::Object;

use crate::breaks::Reason;
use crate::frames::anatomy::asks_locals;
use crate::functions::Model;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::Origin;

impl Recorder {
    /// A call of `locals()` or `globals()`.
    pub(super) fn read_names<'py>(&self, model: Model, call: Call<'_, 'py>) -> Result<Object<'py>> {
        match model {
            Model::Globals => Ok(self.namespace_of(call.frame)),
            _ => self.read_locals(call),
        }
    }

    /// A call of `locals()`.
    fn read_locals<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let frame = call.frame;
        let code = frame.code();
        let is_own = frame.locals().is_none_or(|dict| self.origin(dict) == Some(Origin::Fresh));
        // What nobody reads is known of such code alone.
        if !is_own || frame.owner() != Owner::Thread || !asks_locals(&code) {
            self.stop(frame, Reason::OpaqueCall, "locals");
            return call.natively();
        }
        let mut stand_ins = Vec::new();
        for slot in code.nlocals()..code.nlocalsplus() {
            let Some(cell) = frame.local(slot) else { continue };
            if heap::type_name(cell) == "cell"
                && let Some(held) = self.cell(frame, cell)
            {
                stand_ins.push((code.local_name(slot), held));
            }
        }
        let dict = call.natively()?;
        for (name, held) in stand_ins {
            dict.set_item(name, held).expect("a new dictionary takes names");
        }
        self.note(frame, |state| {
            state.set_fresh(dict.as_borrowed());
            Ok(())
        });
        Ok(dict)
    }
}
