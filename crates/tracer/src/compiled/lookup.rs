//! What there is for a call: the signature it is bound by, and the entry that fits.

use std::cell::OnceCell;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::SmallVec;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::object::Borrowed;
use stator_cpython::thread::Unwatched;
use stator_faults::{self as faults, Stage};

use super::Compiled;
use super::reports::{break_report, location, name};
use crate::bind::Signature;
use crate::breaks::{Break, Place, Reason};
use crate::check::Resolved;
use crate::entries::{Entries, Failures};
use crate::entry::Entry;
use crate::lock;
use crate::logs::Log;
use crate::marks;

/// What a call needs first: the signature, and the entry that was used last.
type Prepared = (Arc<Signature>, Option<Arc<Entry>>);

/// What there is for a call.
pub(super) enum Found<'e, 'py> {
    /// An entry that fits.
    Entry(Arc<Entry>, Resolved<'py>),
    /// None does.
    Missing(Failures<'e>),
    /// It is to run natively.
    Native,
    /// The arguments don't fit the function.
    Unfit,
}

impl Compiled {
    /// What there is for a call. Nothing of the user's runs.
    pub(super) fn look_up<'e, 'py>(
        this: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        entries: &'e OnceCell<Entries>,
    ) -> PyResult<Found<'e, 'py>> {
        let (py, own) = (this.py(), this.get());
        faults::at(Stage::Lookup)?;
        let Some((signature, first)) = own.prepare(this)? else { return Ok(Found::Native) };
        let function = own.function.bind(py);
        let Some(locals) = signature.bind(function.as_any(), args, kwargs) else {
            return Ok(Found::Unfit);
        };
        let locals: SmallVec<[Borrowed<'_, 'py>; 8]> =
            locals.iter().map(|local| local.as_borrowed()).collect();
        if let Some(entry) = first
            && let Some(resolved) = entry.check_fast(py, &locals)
        {
            return Ok(Found::Entry(entry, resolved));
        }
        let entries = entries.get_or_init(|| lock(&own.state).entries.clone());
        Ok(match entries.fitting(py, &locals) {
            Ok((entry, resolved)) => {
                lock(&own.state).entries.use_first(entry);
                Found::Entry(entry.clone(), resolved)
            }
            Err(failures) => Found::Missing(failures),
        })
    }

    /// The signature, and the entry to try first; `None`: the call is to run natively.
    fn prepare(&self, this: &Bound<'_, Self>) -> PyResult<Option<Prepared>> {
        let function = self.function.bind(this.py()).as_any().as_borrowed();
        let code = value(function, Field::Code).map_or(0, |code| code.as_ptr() as usize);
        {
            let state = lock(&self.state);
            if let Some(signature) = &state.signature
                && signature.code == code
            {
                let first = state.entries.first().cloned();
                return Ok((!state.given_up).then(|| (signature.clone(), first)));
            }
        }
        // The first call, or one after the function's code was replaced.
        let Some(signature) = Signature::of(&function).map(Arc::new) else { return Ok(None) };
        let stop = if signature.is_suspendable {
            Some((Reason::Suspendable, name(this)))
        } else {
            marks::disabled(function).map(|why| (Reason::Disabled, why))
        };
        let outdated = {
            let mut state = lock(&self.state);
            // Another thread may have come here, too, or have recorded meanwhile: its traces are as good.
            let is_replaced = state.signature.as_ref().is_some_and(|known| known.code != code);
            // Under `fullgraph` each call has to meet the reason anew.
            let remembered = stop.is_none() || !self.fullgraph;
            state.signature = remembered.then(|| signature.clone());
            state.given_up = false;
            (state.failures, state.pause) = (0, 0);
            is_replaced.then(|| std::mem::take(&mut state.entries))
        };
        if outdated.is_some() {
            self.points.clear();
        }
        drop(outdated);
        let Some((reason, detail)) = stop else { return Ok(Some((signature, None))) };
        let (file, line) = location(this);
        let stack = vec![Place { file, line, function: name(this) }];
        Self::give_up(this, &Break { reason, detail, stack }).map(|()| None)
    }

    /// A debugger, a profiler or a measurement of coverage looks on: it is to see the user's code. The log is
    /// told once.
    #[cold]
    pub(super) fn tell_watched(this: &Bound<'_, Self>) {
        let (py, own) = (this.py(), this.get());
        let (file, line) = location(this);
        let stack = vec![Place { file, line, function: name(this) }];
        let stop = Break { stack, ..Break::new(Reason::Watched) };
        let told = {
            let mut state = lock(&own.state);
            state.reason = Some(stop.to_string());
            std::mem::replace(&mut state.told_watched, true)
        };
        if !told && Log::GraphBreaks.is_on() {
            let _unwatched = Unwatched::new(py);
            Log::GraphBreaks.emit(py, &break_report(this, &stop, "runs natively:"));
        }
    }
}
