//! Elements of a list or deque from outside that a trace finds from its end, without fixing what else it holds.
//!
//! `bank.append(x); torch.stack(bank[-3:])` finds other tensors in each call, and a longer list. What it holds is guarded
//! element by element, each where it stands before the end (`bank[-2]`): so one trace serves the list however long it is by then.
//! Numbers and tuples of numbers among these may be symbols, as in a list that is read whole. A list of numbers alone is asked
//! by nodes ([`histories`](super::histories)).

use pyo3::prelude::*;
use pyo3::types::PyList;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::{Gives, GuardKind, Source, SourceId};

use super::histories::History;
use crate::recorder::Recorder;
use crate::recorder::notes::heap;
use crate::recorder::notes::in_containers::Place;
use crate::recorder::notes::reads::Use;
use crate::recorder::notes::state::{Noted, State};

/// How many elements of a part are guarded one by one. Of a longer one, the list is read whole.
const MOST: usize = 64;

impl Recorder {
    /// The element at an index from the end, of those that were there before the trace.
    pub(super) fn last_item<'py>(
        &self,
        frame: &Frame<'py>,
        history: &History<'py>,
        list: Borrowed<'_, 'py>,
        at: usize,
    ) -> Option<Result<Object<'py>>> {
        self.note(frame, |state| state.adopt_last(history, list, at)).flatten().map(Ok)
    }

    /// The element at an index from the front, of those that were there before the trace.
    pub(super) fn first_item<'py>(
        &self,
        frame: &Frame<'py>,
        history: &History<'py>,
        list: Borrowed<'_, 'py>,
        at: usize,
    ) -> Option<Result<Object<'py>>> {
        self.note(frame, |state| state.adopt_first(history, list, at)).flatten().map(Ok)
    }

    /// A list of a part of it that reaches from the end as far in each call.
    pub(super) fn last_items<'py>(
        &self,
        frame: &Frame<'py>,
        history: &History<'py>,
        list: Borrowed<'_, 'py>,
        places: &[usize],
    ) -> Option<Result<Object<'py>>> {
        let items = self.note(frame, |state| {
            let mut items = Vec::with_capacity(places.len());
            for &place in places {
                let item = match place.checked_sub(history.left_long()) {
                    None => state.adopt_last(history, list, place)?,
                    Some(behind) => history.added.get(behind).cloned(),
                };
                let Some(item) = item else { return Ok(None) };
                items.push(item);
            }
            let part = PyList::new(list.py(), items).ok().map(Bound::into_any);
            if let Some(part) = &part {
                state.set_fresh(part.as_borrowed());
            }
            Ok(part)
        });
        items.flatten().map(Ok)
    }
}

impl<'py> History<'py> {
    /// The places of a slice's elements, if each call's are as far from the end. `None`: they depend on how long the list is.
    pub(super) fn places_from_end(&self, slice: Borrowed<'_, 'py>) -> Option<Vec<usize>> {
        let bound = |name| slice.getattr(name).ok()?.extract::<Option<isize>>().ok();
        let (start, stop) = (bound("start")?, bound("stop")?);
        let step = bound("step")?.unwrap_or(1);
        let long = self.now_long().cast_signed();
        let start = start.filter(|start| *start < 0 && *start >= -long)?;
        let stop = match stop {
            None => 0,
            Some(stop) if stop < 0 && stop >= -long => stop,
            Some(_) => return None,
        };
        if step < 1 || self.most.is_some() {
            return None;
        }
        let places: Vec<usize> = (start..stop)
            .step_by(step.cast_unsigned())
            .map(|place| (place + long).cast_unsigned())
            .collect();
        (places.len() <= MOST).then_some(places)
    }
}

impl State {
    /// An element of those that are left of what the list held, found from its end.
    fn adopt_last<'py>(
        &mut self,
        history: &History<'py>,
        list: Borrowed<'_, 'py>,
        at: usize,
    ) -> Noted<Option<Object<'py>>> {
        let Some(parent) = self.list_asked_of(history) else { return Ok(None) };
        let Some(item) = history.left(at) else { return Ok(None) };
        let index = history.left_long() - at;
        if history.dropped > 0 {
            // It isn't one of those that the trace has taken out.
            let items = index + history.dropped;
            self.guard(parent, GuardKind::Gives(Gives { items, ends: false, parts: 0 }));
        }
        let source = Source::LastItem { parent, index };
        self.adopt_at(list, at, source, &item).map(Some)
    }

    /// An element of those that are left, found from the front.
    fn adopt_first<'py>(
        &mut self,
        history: &History<'py>,
        list: Borrowed<'_, 'py>,
        at: usize,
    ) -> Noted<Option<Object<'py>>> {
        let Some(parent) = self.list_asked_of(history) else { return Ok(None) };
        let Some(item) = history.left(at) else { return Ok(None) };
        let index = history.dropped + at;
        let source = match heap::is_exact_list(list) {
            true => Source::ListItem { parent, index },
            false => Source::DequeItem { parent, index },
        };
        self.adopt_at(list, at, source, &item).map(Some)
    }

    /// What is to be taken for an element that a list holds at a place now.
    fn adopt_at<'py>(
        &mut self,
        list: Borrowed<'_, 'py>,
        at: usize,
        source: Source,
        item: &Object<'py>,
    ) -> Noted<Object<'py>> {
        let source = self.sources.intern(source);
        if !heap::is_exact_list(list) {
            self.adopt_for(Use::default(), source, item.as_borrowed())?;
            return Ok(item.clone());
        }
        if let Some(own) = self.stand_in(list.py(), source) {
            return Ok(own);
        }
        let used = self.moving();
        let Some(own) = self.adopt_symbolic(used, source, item.as_borrowed(), false)? else {
            self.adopt_for(used, source, item.as_borrowed())?;
            return Ok(item.clone());
        };
        // Who looks at the list finds the same there.
        let symbols = self.begin_symbols(list.py());
        symbols.lending.lend(list, Place::Index(at), &own, item.as_borrowed());
        Ok(own)
    }

    /// The source of the list, whose contents matter from now on.
    fn list_asked_of(&mut self, history: &History<'_>) -> Option<SourceId> {
        let source = history.outside()?;
        if let Some(unread) = self.unread.values_mut().find(|unread| unread.source == source) {
            unread.is_asked = true;
        }
        Some(source)
    }
}
