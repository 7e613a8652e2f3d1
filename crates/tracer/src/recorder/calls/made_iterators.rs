//! Iterators that the trace makes over iterators from outside: `enumerate(it)`, `zip(it, xs)`, `map(f, it)`, `islice(it, n)`.
//!
//! Nobody but this file knows them: to all others they are objects of unknown origin, so whoever would take items out of
//! one otherwise ends the trace. A step is done as C code would do it. The iterators from outside are advanced as if the
//! program did it, and what the made one counts is counted.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::iterator::{self, Combining};
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, modules};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, State};

impl Recorder {
    /// Makes an iterator over some of which one is from outside; `None`: it's another call, or can't be followed.
    pub(super) fn make_over<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let places = iterables(callable, args.len())?;
        let given = args.get(places.clone())?;
        let numbers = args.get(places.end..)?;
        if names.is_some() || self.is_stopped() || !self.session.takes_steps() {
            return None;
        }
        let may_follow = self.note(frame, |state| {
            let has_others = given.iter().any(|arg| state.is_others_iterator(*arg));
            let is_plain = !state.enclosed.is_on() && state.program.is_none();
            let are_constant = numbers.iter().all(|arg| state.kind(*arg) == Kind::Constant);
            let may_follow = given.iter().all(|arg| state.may_go_over(*arg));
            Ok(has_others && is_plain && are_constant && may_follow)
        });
        if may_follow != Some(true) {
            return None;
        }
        self.concrete(frame, numbers, "where an iterator begins or ends");
        self.note(frame, |state| {
            given.iter().try_for_each(|arg| {
                if state.is_others_iterator(*arg) { Ok(()) } else { state.adopt_whole(*arg, true) }
            })
        })?;
        let made = {
            let _native = Suspended::new(frame.py());
            call.natively()
        };
        Some(made.inspect(|made| {
            self.note(frame, |state| state.keep_made_over(made.as_borrowed(), args));
        }))
    }

    /// The next item of such an iterator; `None` inside: it has ended. `None`: it's none.
    pub(super) fn step_made<'py>(
        &self,
        frame: &Frame<'py>,
        made: Borrowed<'_, 'py>,
    ) -> Option<Result<Option<Object<'py>>>> {
        if self.is_stopped() || !self.state.borrow().is_made_over(made) {
            return None;
        }
        let inner: SmallVec<[_; 4]> = (0..).map_while(|part| iterator::over(made, part)).collect();
        Some(match iterator::combining(made)? {
            Combining::Zip => self.step_zip(frame, &inner),
            Combining::Enumerate => self.step_enumerate(frame, made, inner.first()?),
            Combining::Slice => match inner.first() {
                Some(inner) => self.step_slice(frame, made, inner),
                None => Ok(None),
            },
        })
    }

    fn step_zip<'py>(
        &self,
        frame: &Frame<'py>,
        inner: &[Object<'py>],
    ) -> Result<Option<Object<'py>>> {
        let mut items: SmallVec<[Object<'py>; 4]> = SmallVec::new();
        for iterator in inner {
            match self.advance(frame, iterator.as_borrowed())? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        self.tuple_of(frame, &items).map(Some)
    }

    fn step_enumerate<'py>(
        &self,
        frame: &Frame<'py>,
        made: Borrowed<'_, 'py>,
        inner: &Object<'py>,
    ) -> Result<Option<Object<'py>>> {
        let Some(item) = self.advance(frame, inner.as_borrowed())? else { return Ok(None) };
        let number = iterator::count_up(made).into_pyobject(frame.py());
        let Ok(number) = number;
        self.tuple_of(frame, &[number.into_any(), item]).map(Some)
    }

    fn step_slice<'py>(
        &self,
        frame: &Frame<'py>,
        made: Borrowed<'_, 'py>,
        inner: &Object<'py>,
    ) -> Result<Option<Object<'py>>> {
        while iterator::slice_passes(made) {
            match self.advance(frame, inner.as_borrowed()) {
                Ok(Some(item)) if iterator::slice_taken(made) => return Ok(Some(item)),
                Ok(Some(_)) => {}
                ended => {
                    iterator::end_slice(made);
                    return ended;
                }
            }
        }
        iterator::end_slice(made);
        Ok(None)
    }

    fn tuple_of<'py>(&self, frame: &Frame<'py>, items: &[Object<'py>]) -> Result<Object<'py>> {
        let py = frame.py();
        let tuple = PyTuple::new(py, items)
            .map_err(|error| stator_cpython::Raised::set(py, error))?
            .into_any();
        self.note(frame, |state| {
            state.set_fresh(tuple.as_borrowed());
            Ok(())
        });
        Ok(tuple)
    }
}

impl State {
    /// Whether a step over this runs no Python code: builtin containers, what goes over them, and such iterators.
    fn may_go_over(&mut self, iterable: Borrowed<'_, '_>) -> bool {
        if self.is_made_over(iterable) {
            return iterator::combining(iterable).is_some();
        }
        match self.kind(iterable) {
            Kind::List => heap::is_exact_list(iterable),
            Kind::Tuple => heap::is_plain_tuple(iterable),
            Kind::Constant => !iterable.is_none(),
            Kind::Iterator => iterator::is_known(iterable) && self.origin(iterable).is_some(),
            _ => false,
        }
    }

    /// Keeps such an iterator, and knows what C code has made for it.
    fn keep_made_over(&mut self, made: Borrowed<'_, '_>, args: &[Borrowed<'_, '_>]) -> Noted<()> {
        if iterator::combining(made).is_none() && iterator::calling(made).is_none() {
            return Err((Reason::OutsideIterator, heap::type_name(made)));
        }
        for part in (0..).map_while(|part| iterator::over(made, part)) {
            let part = part.as_borrowed();
            if !args.iter().any(|arg| arg.is(&*part)) {
                self.set_fresh(part);
            }
        }
        self.objects.forget_origin(made);
        self.made_over.insert(made.as_ptr() as usize, made.to_owned().unbind());
        Ok(())
    }
}

/// Where the iterables stand among so many arguments of which C code makes such an iterator; numbers are behind them.
/// `None`: it's something else.
fn iterables(callable: Borrowed<'_, '_>, count: usize) -> Option<Range<usize>> {
    let is = |module: &str, name: &str| {
        let found = modules::import(callable.py(), module).and_then(|module| module.getattr(name));
        found.is_ok_and(|found| callable.is(&found))
    };
    let of = |module: &str, names: &[&str]| names.iter().any(|name| is(module, name));
    let places = if of("builtins", &["enumerate"]) || of("itertools", &["islice"]) {
        0..1
    } else if of("builtins", &["zip"]) {
        0..count
    } else if of("builtins", &["map"]) {
        1..count
    } else if of("builtins", &["filter"]) || of("itertools", &["starmap"]) {
        1..2
    } else {
        return None;
    };
    (places.end <= count && !places.is_empty()).then_some(places)
}
