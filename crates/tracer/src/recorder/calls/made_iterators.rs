//! Iterators that the trace makes over iterators from outside: `enumerate(it)`, `zip(it, xs)`, `map(f, it)`, `islice(it, n)`,
//! `accumulate(it)`, `pairwise(it)`, `zip_longest(it, xs)`. And `accumulate` over numbers that the trace carries: each sum is
//! one that it computes.
//!
//! Nobody but this file knows them: to all others they are objects of unknown origin, so whoever would take items out of
//! one otherwise ends the trace. A step is done as C code would do it. The iterators from outside are advanced as if the
//! program did it, and what the made one counts is counted.

use std::ops::Range;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyTuple};
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::iterator::stepped::{self, Accumulation, Stepped};
use stator_cpython::heap::iterator::{self, Combining};
use stator_cpython::hook::Suspended;
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::BinaryOp;
use stator_cpython::raised::Raised;

use super::outside_iterators::MOST_ITEMS;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Calls;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, State};

impl Recorder {
    /// Makes an iterator over some of which one is from outside; `None`: it's another call, or can't be followed.
    pub(super) fn make_over<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let (making, places) = made_of(callable, call.positional().len())?;
        let given = args.get(places.clone())?;
        let numbers = args.get(places.end..)?;
        // What `accumulate` begins with, and what `zip_longest` gives in the place of others, is handed on.
        let hands_on = matches!(making, Making::Accumulate | Making::Longest);
        let is_named = names.is_some() && !hands_on && making != Making::Zip;
        if is_named || self.is_stopped() || !self.session.takes_steps() {
            return None;
        }
        let may_follow = self.note(frame, |state| {
            let has_others = given.iter().any(|arg| state.is_others_iterator(*arg));
            let is_plain = !state.enclosed.is_on() && state.program.is_none();
            let steps_over = match making {
                Making::Accumulate => given.iter().any(|arg| state.lists_numbers(*arg)),
                // C code would look at them: `map(str, losses)`.
                Making::Map => {
                    matches!(state.kind(args[0]), Kind::Builtin | Kind::Type)
                        && given.iter().any(|arg| state.lists_floats_read(*arg))
                }
                _ => false,
            };
            let is_asked = has_others || steps_over;
            let are_fine = hands_on || numbers.iter().all(|arg| state.kind(*arg) == Kind::Constant);
            let may_follow = given.iter().all(|arg| state.may_go_over(*arg));
            Ok(is_asked && is_plain && are_fine && may_follow)
        });
        if may_follow != Some(true) {
            return None;
        }
        if !hands_on {
            self.concrete(frame, numbers, "where an iterator begins or ends");
        }
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
        let inner = iterator::all_over(made);
        Some(match iterator::combining(made)? {
            Combining::Zip { is_strict } => self.step_zip(frame, &inner, is_strict),
            Combining::Enumerate => self.step_enumerate(frame, made, inner.first()?),
            Combining::Slice => match inner.first() {
                Some(inner) => self.step_slice(frame, made, inner),
                None => Ok(None),
            },
            Combining::Stepped(Stepped::Accumulate) => {
                self.step_accumulate(frame, made, inner.first()?)
            }
            Combining::Stepped(Stepped::Pairwise) => match inner.first() {
                Some(inner) => self.step_pairwise(frame, made, inner),
                None => Ok(None),
            },
            Combining::Stepped(Stepped::ZipLongest) => self.step_longest(frame, made),
        })
    }

    fn step_zip<'py>(
        &self,
        frame: &Frame<'py>,
        inner: &[Object<'py>],
        is_strict: bool,
    ) -> Result<Option<Object<'py>>> {
        let mut items: SmallVec<[Object<'py>; 4]> = SmallVec::new();
        for (place, iterator) in inner.iter().enumerate() {
            match self.advance(frame, iterator.as_borrowed())? {
                Some(item) => items.push(item),
                None if !is_strict => return Ok(None),
                None if place > 0 => return Err(of_other_length(frame, place, "shorter")),
                None => {
                    for (place, iterator) in inner.iter().enumerate().skip(1) {
                        if self.advance(frame, iterator.as_borrowed())?.is_some() {
                            return Err(of_other_length(frame, place, "longer"));
                        }
                    }
                    return Ok(None);
                }
            }
        }
        self.tuple_of(frame, &items).map(Some)
    }

    fn step_accumulate<'py>(
        &self,
        frame: &Frame<'py>,
        made: Borrowed<'_, 'py>,
        inner: &Object<'py>,
    ) -> Result<Option<Object<'py>>> {
        let initial = stepped::accumulation(made).and_then(|kept| kept.initial);
        let total = match initial {
            Some(initial) => initial,
            None => {
                let Some(item) = self.advance(frame, inner.as_borrowed())? else { return Ok(None) };
                match stepped::accumulation(made) {
                    Some(Accumulation { total: Some(total), function, .. }) => {
                        self.accumulated(frame, function.as_ref(), &total, &item)?
                    }
                    _ => item,
                }
            }
        };
        stepped::set_total(made, total.clone());
        Ok(Some(total))
    }

    fn accumulated<'py>(
        &self,
        frame: &Frame<'py>,
        function: Option<&Object<'py>>,
        total: &Object<'py>,
        item: &Object<'py>,
    ) -> Result<Object<'py>> {
        let args = [total.as_borrowed(), item.as_borrowed()];
        match function {
            Some(function) => {
                self.links.clear();
                self.call_object(Call::new(frame, function.as_borrowed(), &args))
            }
            None => self.binary_op(frame, BinaryOp::Add, args[0], args[1]),
        }
    }

    fn step_pairwise<'py>(
        &self,
        frame: &Frame<'py>,
        made: Borrowed<'_, 'py>,
        inner: &Object<'py>,
    ) -> Result<Option<Object<'py>>> {
        let take = || {
            let item = self.advance(frame, inner.as_borrowed());
            stepped::set_before(made, item.as_ref().ok().and_then(Clone::clone));
            item
        };
        let first = match stepped::before(made) {
            Some(before) => Some(before),
            None => take()?,
        };
        let Some(first) = first else { return Ok(None) };
        let Some(second) = take()? else { return Ok(None) };
        self.tuple_of(frame, &[first, second]).map(Some)
    }

    fn step_longest<'py>(
        &self,
        frame: &Frame<'py>,
        made: Borrowed<'_, 'py>,
    ) -> Result<Option<Object<'py>>> {
        if !stepped::is_active(made) {
            return Ok(None);
        }
        let Some(fill) = stepped::fill(made) else { return Ok(None) };
        let mut items: SmallVec<[Object<'py>; 4]> = SmallVec::new();
        for place in 0.. {
            let Some(iterator) = stepped::slot(made, place) else { break };
            let Some(iterator) = iterator else {
                items.push(fill.clone());
                continue;
            };
            match self.advance(frame, iterator.as_borrowed()) {
                Ok(Some(item)) => items.push(item),
                Ok(None) if stepped::end_slot(made, place) => items.push(fill.clone()),
                Ok(None) => return Ok(None),
                Err(raised) => {
                    stepped::end_all(made);
                    return Err(raised);
                }
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

    /// Whether a short list or tuple holds a number that the trace carries.
    fn lists_numbers(&mut self, iterable: Borrowed<'_, '_>) -> bool {
        let items = match self.kind(iterable) {
            Kind::List if heap::is_exact_list(iterable) => heap::list_items(iterable),
            Kind::Tuple if heap::is_plain_tuple(iterable) => heap::tuple_items(iterable),
            _ => return false,
        };
        items.len() <= MOST_ITEMS
            && items.iter().any(|item| self.number(item.as_borrowed()).is_some())
    }

    /// Whether a short list or tuple holds a float that was read.
    fn lists_floats_read(&mut self, iterable: Borrowed<'_, '_>) -> bool {
        self.lists_numbers(iterable)
            && heap::children(iterable).iter().any(|item| {
                item.is_exact_instance_of::<PyFloat>() && self.holds_read(item.as_borrowed())
            })
    }

    /// Keeps such an iterator, and knows what C code has made for it.
    fn keep_made_over(&mut self, made: Borrowed<'_, '_>, args: &[Borrowed<'_, '_>]) -> Noted<()> {
        if iterator::combining(made).is_none() && iterator::calling(made).is_none() {
            return Err((Reason::OutsideIterator, heap::type_name(made)));
        }
        for part in iterator::all_over(made) {
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

/// What C code makes of iterables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Making {
    Zip,
    Accumulate,
    Longest,
    Map,
    Other,
}

/// What a call with so many unnamed arguments makes, and where the iterables stand among them; what is behind them isn't
/// iterated. `None`: it's something else.
fn made_of(callable: Borrowed<'_, '_>, count: usize) -> Option<(Making, Range<usize>)> {
    static FIRST: [Named; 3] = [
        Named::new("builtins", "enumerate"),
        Named::new("itertools", "islice"),
        Named::new("itertools", "pairwise"),
    ];
    static SECOND: [Named; 2] =
        [Named::new("builtins", "filter"), Named::new("itertools", "starmap")];
    static MAP: Named = Named::new("builtins", "map");
    static ZIP: Named = Named::new("builtins", "zip");
    static ACCUMULATE: Named = Named::new("itertools", "accumulate");
    static LONGEST: Named = Named::new("itertools", "zip_longest");
    let is_one = |of: &[Named]| of.iter().any(|one| one.is(callable));
    let (making, places) = if is_one(&FIRST) {
        (Making::Other, 0..1)
    } else if ZIP.is(callable) {
        (Making::Zip, 0..count)
    } else if MAP.is(callable) {
        (Making::Map, 1..count)
    } else if is_one(&SECOND) {
        (Making::Other, 1..2)
    } else if ACCUMULATE.is(callable) {
        (Making::Accumulate, 0..1)
    } else if LONGEST.is(callable) {
        (Making::Longest, 0..count)
    } else {
        return None;
    };
    (places.end <= count && !places.is_empty()).then_some((making, places))
}

/// What a strict `zip` raises where the iterator at a place is shorter or longer than those before it.
fn of_other_length(frame: &Frame<'_>, place: usize, length: &str) -> Raised {
    let others = if place == 1 { " 1".to_owned() } else { format!("s 1-{place}") };
    let message = format!("zip() argument {} is {length} than argument{others}", place + 1);
    Raised::set(frame.py(), PyValueError::new_err(message))
}
