//! `inspect.signature` of a Python function or a bound method of one. Models ask for it (what does a layer's
//! `forward` take?), and following it takes dozens of frames.
//!
//! What it reads is known. So a small function that reads the same is traced in its place, and then it runs
//! natively; what it makes is the trace's own, as if it had been followed. While the trace writes
//! nothing outside, a further call for the same function comes to the same and reads nothing again.

use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::heap::dict::{self, Lookup, Peek};
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;
use stator_cpython::{Raised, Result, ops};

use crate::recorder::Recorder;
use crate::recorder::notes::above::Calls;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::calls::Asked;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State};

impl Recorder {
    /// Calls `inspect.signature`.
    pub(in crate::recorder) fn call_signature<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        let asked = match (args, names) {
            ([of], None) => self.asked(*of),
            _ => None,
        };
        let Some(asked) = asked else { return self.call_python(call) };
        if let Some(found) = self.repeat_signature(frame, callable, args[0], asked) {
            return Ok(found);
        }
        let py = frame.py();
        let known = self.functions.signatures();
        match known.map(|known| (known.is_reader(frame.code().object()), known.reader(py))) {
            Some((false, reader)) => {
                self.vouch(frame, reader);
                self.call_function(call.of(reader))
            }
            _ => self.call_python(call),
        }
    }

    /// What is asked for, if it is a function from outside whose signature no user code has a say in.
    fn asked(&self, of: Borrowed<'_, '_>) -> Option<Asked> {
        // Marks, and tests that break everywhere, speak of single instructions.
        if self.is_stopped() || self.has_marks || self.trace_log || self.meets_symbols() {
            return None;
        }
        let py = of.py();
        let (function, is_method) = match self.kind(of) {
            Kind::Function => (of.to_owned(), false),
            Kind::Method => (heap::method_parts(of).0, true),
            _ => return None,
        };
        let function = function.as_borrowed();
        if self.kind(function) != Kind::Function
            || self.origin(of).is_none()
            || self.state.borrow().source(function).is_none()
            || !self.functions.signatures()?.are_own(py)
        {
            return None;
        }
        let given = [
            pyo3::intern!(py, "__wrapped__"),
            pyo3::intern!(py, "__signature__"),
            pyo3::intern!(py, "_partialmethod"),
        ];
        let lacks = |dict: Object<'_>| {
            given.iter().all(|name| {
                let name = name.as_any().as_borrowed();
                matches!(dict::get(dict.as_borrowed(), name), Lookup::Absent)
            })
        };
        match dict::peek_instance_dict(function) {
            Peek::NotYet => {}
            Peek::Dict(dict) if lacks(dict.clone()) => {}
            Peek::Dict(_) | Peek::NoPlace => return None,
        }
        Some((function.as_ptr() as usize, is_method))
    }

    /// A signature of which this trace has read everything, made natively.
    fn repeat_signature<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        of: Borrowed<'_, 'py>,
        asked: Asked,
    ) -> Option<Object<'py>> {
        let py = frame.py();
        {
            let mut state = self.state.borrow_mut();
            let writes = state.written.count();
            if self.functions.signatures()?.is_reader(frame.code().object()) {
                state.signatures.know(asked, writes);
            } else if !state.signatures.knows(asked, writes) {
                return None;
            }
        }
        let (found, parts) = {
            let _native = Suspended::new(py);
            let _deferred = Deferred::new(py);
            let found = Raised::unless(py, ops::call(callable, &[of], None))?;
            let parts = self.parts_of(&found).ok().flatten()?;
            (found, parts)
        };
        let is_known = self.note(frame, |state| Ok(state.know_signature(&found, &parts)));
        is_known?.then_some(found)
    }

    /// What a signature consists of.
    fn parts_of<'py>(&self, signature: &Object<'py>) -> PyResult<Option<Parts<'py>>> {
        let py = signature.py();
        let Some(known) = self.functions.signatures() else { return Ok(None) };
        if !known.is_signature(signature.as_borrowed()) {
            return Ok(None);
        }
        let mapping = signature.getattr(pyo3::intern!(py, "_parameters"))?;
        let mut parts = Parts {
            leaves: vec![signature.getattr(pyo3::intern!(py, "_return_annotation"))?],
            parameters: Vec::new(),
            mapping,
        };
        for parameter in parts.mapping.call_method0(pyo3::intern!(py, "values"))?.try_iter()? {
            let parameter = parameter?;
            if !known.is_parameter(parameter.as_borrowed()) {
                return Ok(None);
            }
            for name in ["_name", "_kind", "_default", "_annotation"] {
                parts.leaves.push(parameter.getattr(name)?);
            }
            parts.parameters.push(parameter);
        }
        Ok(Some(parts))
    }
}

/// The parts of a signature.
struct Parts<'py> {
    mapping: Object<'py>,
    parameters: Vec<Object<'py>>,
    /// Names, kinds, defaults and annotations.
    leaves: Vec<Object<'py>>,
}

impl State {
    /// Says that a signature and its own parts were made by this trace; false: what it refers to isn't
    /// known.
    fn know_signature(&mut self, signature: &Object<'_>, parts: &Parts<'_>) -> bool {
        let is_outside = |state: &Self, object: &Object<'_>| {
            matches!(state.origin(object.as_borrowed()), Some(Origin::Source(_)))
        };
        let known = parts.leaves.iter().all(|leaf| {
            self.kind_alone(leaf.as_borrowed()) == Kind::Constant || is_outside(self, leaf)
        });
        let own = [signature, &parts.mapping].into_iter().chain(&parts.parameters);
        if !known || own.clone().any(|part| is_outside(self, part)) {
            return false;
        }
        own.for_each(|part| self.set_fresh(part.as_borrowed()));
        true
    }
}
