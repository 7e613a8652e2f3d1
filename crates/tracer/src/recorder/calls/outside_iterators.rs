//! `map`, `filter` and `itertools.starmap` from outside, and C functions that take all that an iterator from outside gives.
//!
//! `map` and its like hold nothing that changes: the iterators that they go over do. So a step is done here as C code would
//! do it. Each iterator is advanced as if the program did it, and then the function is called. What they go over, and the
//! function, are found as parts of them.
//!
//! A function such as `list` is given a list of all that the iterator gives, if that's known to be little: it asks for
//! all of it before it does anything else, or what is done to the items runs no code of the program's.

use pyo3::exceptions::PyStopIteration;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFrozenSet, PyList, PySet, PyString, PyTuple, PyType};
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::iterator::stepped::{Stepped, accumulation, parts, stepped};
use stator_cpython::heap::iterator::{self, Ahead, Calling};
use stator_cpython::heap::types::is_heap;
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::raised::Raised;
use stator_cpython::{Result, ops};
use stator_evaluator::Role;
use stator_guards::{Gives, GuardKind, Source};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Calls, Ends};
use crate::recorder::notes::call::{Args, Call};
use crate::recorder::notes::effects::POSITION;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::reads::Use;
use crate::recorder::notes::state::{Origin, State, Stop};
use crate::recorder::numbers::lazy_readers::referents;

/// So many items are taken by one instruction at most.
pub(super) const MOST_ITEMS: usize = 24;

/// Those of `itertools` that keep all that they are given before they give anything.
static POOLED: [Named; 4] = [
    Named::new("itertools", "product"),
    Named::new("itertools", "combinations"),
    Named::new("itertools", "combinations_with_replacement"),
    Named::new("itertools", "permutations"),
];

/// Those that look at the items on the way.
static FOLDS: [Named; 3] =
    [Named::new("builtins", "sum"), Named::new("builtins", "min"), Named::new("builtins", "max")];

static SORTED: Named = Named::new("builtins", "sorted");

/// What a function asks of the items that it takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// Nothing before it has all of them.
    First,
    /// It compares, hashes or adds them meanwhile.
    Meanwhile,
}

impl Recorder {
    /// The next item of a `map` or the like from outside; `None` inside: it has ended. `None`: it's something else.
    fn step_calling<'py>(
        &self,
        frame: &Frame<'py>,
        iterator: Borrowed<'_, 'py>,
    ) -> Option<Result<Option<Object<'py>>>> {
        if let Some(item) = self.step_made(frame, iterator) {
            return Some(item);
        }
        let calling = iterator::calling(iterator)?;
        if self.is_stopped() || !may_step(&self.state.borrow(), iterator) {
            return None;
        }
        let parts = self.note(frame, |state| state.adopt_calling(iterator)).flatten()?;
        let (function, inner) = parts.split_first()?;
        Some(match (calling, inner) {
            (Calling::Map, inner) => self.step_map(frame, function, inner),
            (Calling::Filter, [inner]) => self.step_filter(frame, function, inner),
            (Calling::Starmap, [inner]) => self.step_starmap(frame, function, inner),
            _ => return None,
        })
    }

    /// As [`Self::step_calling`], where the end is raised.
    pub(in crate::recorder) fn next_calling<'py>(
        &self,
        frame: &Frame<'py>,
        iterator: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let item = self.step_calling(frame, iterator)?;
        let end = || Raised::set(frame.py(), PyStopIteration::new_err(()));
        Some(item.and_then(|item| item.ok_or_else(end)))
    }

    /// As [`Self::step_calling`]; should the function say that there's no item, there is none.
    pub(super) fn advance_calling<'py>(
        &self,
        frame: &Frame<'py>,
        iterator: Borrowed<'_, 'py>,
    ) -> Option<Result<Option<Object<'py>>>> {
        let item = self.step_calling(frame, iterator)?;
        Some(
            item.or_else(
                |raised| if ops::is_exhausted(frame.py()) { Ok(None) } else { Err(raised) },
            ),
        )
    }

    fn step_map<'py>(
        &self,
        frame: &Frame<'py>,
        function: &Object<'py>,
        inner: &[Object<'py>],
    ) -> Result<Option<Object<'py>>> {
        let mut items: SmallVec<[Object<'py>; 2]> = SmallVec::new();
        for iterator in inner {
            match self.advance(frame, iterator.as_borrowed())? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        let args: SmallVec<[_; 2]> = items.iter().map(Bound::as_borrowed).collect();
        let call = Call::new(frame, function.as_borrowed(), &args);
        self.call_linked(Role::Next, None, call).map(Some)
    }

    fn step_starmap<'py>(
        &self,
        frame: &Frame<'py>,
        function: &Object<'py>,
        inner: &Object<'py>,
    ) -> Result<Option<Object<'py>>> {
        let Some(items) = self.advance(frame, inner.as_borrowed())? else { return Ok(None) };
        let items = if items.is_exact_instance_of::<PyTuple>() {
            items
        } else {
            self.stop(frame, Reason::OutsideIterator, "a starmap over other things than tuples");
            let tuple = frame.py().get_type::<PyTuple>();
            ops::call(tuple.as_any().as_borrowed(), &[items.as_borrowed()], None)?
        };
        let items = heap::tuple_items(items.as_borrowed());
        let args: SmallVec<[_; 2]> = items.iter().map(Bound::as_borrowed).collect();
        let call = Call::new(frame, function.as_borrowed(), &args);
        self.call_linked(Role::Next, None, call).map(Some)
    }

    fn step_filter<'py>(
        &self,
        frame: &Frame<'py>,
        function: &Object<'py>,
        inner: &Object<'py>,
    ) -> Result<Option<Object<'py>>> {
        let asks_itself = function.is_none() || function.is(frame.py().get_type::<PyBool>());
        while let Some(item) = self.advance(frame, inner.as_borrowed())? {
            let answer = if asks_itself {
                item.clone()
            } else {
                self.links.clear();
                let args = [item.as_borrowed()];
                self.call_object(Call::new(frame, function.as_borrowed(), &args))?
            };
            if self.truth_of(frame, answer.as_borrowed())? {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    /// What a call makes that takes all that an iterator from outside gives. `None`: it does something else, or so much
    /// isn't known.
    pub(super) fn call_with_all<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let is_one = |arg: &Borrowed<'_, '_>| {
            iterator::is_one(*arg) && (iterator::is_of_c(*arg) || stepped(*arg).is_some())
        };
        let place = args.iter().take(2).position(is_one)?;
        let iterator = args[place];
        let takes = takes_all(callable, args, place)?;
        if names.is_some() && takes == Takes::Meanwhile {
            return None;
        }
        let is_outside = self.note(frame, |state| Ok(state.is_others_iterator(iterator)));
        if is_outside != Some(true) || !ends_soon(iterator) {
            return None;
        }
        let is_plain = |item: Object<'_>| {
            matches!(self.kind(item.as_borrowed()), Kind::Constant | Kind::Tensor)
        };
        let are_plain = |iterator: Borrowed<'_, 'py>| {
            let mut items = (0..).map_while(|passed| iterator::upcoming(iterator, passed));
            iterator::is_known(iterator) && items.all(is_plain)
        };
        // C code of the table gives nothing that could look at what is taken meanwhile.
        let calls_plainly = |iterator| {
            iterator::calling(iterator) == Some(Calling::Map)
                && self.state.borrow().is_made_over(iterator)
                && referents(iterator).iter().all(|part| {
                    let part = part.as_borrowed();
                    self.functions.class(part).is_some() || are_plain(part)
                })
        };
        // Sums of numbers are numbers.
        let are_plain = match stepped(iterator) {
            _ if calls_plainly(iterator) => true,
            Some(Stepped::Accumulate) => {
                accumulation(iterator).is_some_and(|kept| {
                    kept.function.is_none() && kept.initial.into_iter().all(is_plain)
                }) && parts(iterator).iter().all(|part| are_plain(part.as_borrowed()))
            }
            _ => are_plain(iterator),
        };
        if takes == Takes::Meanwhile && !are_plain {
            return None;
        }
        let all = PyList::empty(frame.py());
        loop {
            match self.advance(frame, iterator) {
                Ok(Some(item)) => {
                    if let Err(error) = all.append(item) {
                        return Some(Err(Raised::set(frame.py(), error)));
                    }
                }
                Ok(None) => break,
                Err(raised) => return Some(Err(raised)),
            }
        }
        let all = all.into_any();
        self.note(frame, |state| {
            state.set_fresh(all.as_borrowed());
            Ok(())
        });
        let mut args: SmallVec<[_; 4]> = args.iter().copied().collect();
        args[place] = all.as_borrowed();
        Some(self.call_object(Call { frame, callable, args: &args, names }))
    }
}

impl Recorder {
    /// A list of all that an iterator gives: see [`Self::call_with_all`].
    pub(in crate::recorder) fn gather<'py>(
        &self,
        frame: &Frame<'py>,
        iterator: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        if self.is_stopped() {
            return None;
        }
        let list = frame.py().get_type::<PyList>().into_any();
        self.call_with_all(Call::new(frame, list.as_borrowed(), &[iterator]))
    }
}

impl State {
    /// The function of a `map` or the like, and the iterators that it goes over, guarded as its parts.
    fn adopt_calling<'py>(
        &mut self,
        iterator: Borrowed<'_, 'py>,
    ) -> std::result::Result<Option<Vec<Object<'py>>>, Stop> {
        if self.is_made_over(iterator) {
            let parts = (0..).map_while(|part| iterator::over(iterator, part));
            return Ok(Some(parts.collect()));
        }
        let Some(source) = self.source(iterator) else { return Ok(None) };
        if self.enclosed.is_on() || self.program.is_some() {
            return Ok(None);
        }
        let parts: Vec<_> = (0..).map_while(|part| iterator::over(iterator, part)).collect();
        let slot = (iterator.as_ptr() as usize, POSITION);
        if !self.reads.has(&slot) {
            self.reads.first(slot);
            let gives = Gives { items: 0, ends: false, parts: parts.len() };
            self.guard(source, GuardKind::Gives(gives));
        }
        for (index, part) in parts.iter().enumerate() {
            let child = self.sources.intern(Source::Iterated { parent: source, index });
            self.adopt_for(Use::default(), child, part.as_borrowed())?;
        }
        Ok(Some(parts))
    }
}

/// Whether all that a `map` or the like goes over can be advanced, as far as is known without advancing it.
fn may_step(state: &State, calling: Borrowed<'_, '_>) -> bool {
    let mut inner = (1..).map_while(|part| iterator::over(calling, part));
    inner.all(|inner| {
        let inner = inner.as_borrowed();
        if iterator::calling(inner).is_some() {
            may_step(state, inner)
        } else if state.is_made_over(inner) {
            // What it goes over was looked at when it was made.
            true
        } else if iterator::is_known(inner) {
            iterator::ahead(inner, 0) != Ahead::Unknown
        } else {
            ops::is_generator(inner) || is_heap(inner.get_type().as_borrowed())
        }
    })
}

/// Whether an iterator gives a few items, and then ends.
fn ends_soon(iterator: Borrowed<'_, '_>) -> bool {
    let ends = |part: &Object<'_>| ends_soon(part.as_borrowed());
    match stepped(iterator) {
        Some(Stepped::Accumulate | Stepped::Pairwise) => return parts(iterator).iter().any(ends),
        Some(Stepped::ZipLongest) => return parts(iterator).iter().all(ends),
        None => {}
    }
    if iterator::calling(iterator).is_none() {
        return (0..=MOST_ITEMS).any(|count| iterator::gives(iterator, count, true));
    }
    let mut parts = (1..).map_while(|part| iterator::over(iterator, part));
    parts.any(|part| ends_soon(part.as_borrowed()))
}

/// How a C function takes what the iterator gives that it's given there, if it takes all of it.
fn takes_all(callable: Borrowed<'_, '_>, args: &[Borrowed<'_, '_>], place: usize) -> Option<Takes> {
    let (py, count) = (callable.py(), args.len());
    let is_one = |of: &[Named]| of.iter().any(|one| one.is(callable));
    if is_one(&POOLED) {
        // What comes before it is asked first: it may be no code.
        let is_plain = |arg: &Borrowed<'_, '_>| {
            heap::is_exact_list(*arg) || heap::is_plain_tuple(*arg) || heap::is_constant(*arg)
        };
        return args[..place].iter().all(is_plain).then_some(Takes::First);
    }
    if place == 1 {
        let joins = py.get_type::<PyString>().getattr(intern!(py, "join"));
        let is_join = joins.is_ok_and(|joins| callable.is(&joins));
        return (is_join && count == 2).then_some(Takes::First);
    }
    if callable.is(py.get_type::<PyList>()) || callable.is(py.get_type::<PyTuple>()) {
        return (count == 1).then_some(Takes::First);
    }
    let holds = callable.is(py.get_type::<PySet>()) || callable.is(py.get_type::<PyFrozenSet>());
    if holds || is_one(&FOLDS) {
        return (count == 1).then_some(Takes::Meanwhile);
    }
    SORTED.is(callable).then_some(Takes::First)
}

impl Recorder {
    /// `dict(zip(names, values))` and `dict.update` likewise, where a generator gives the values: of a list of the pairs, so
    /// that numbers that it reads are only kept. `None`: it's another call, or hashing a key could do more than that.
    pub(super) fn fills_from_pairs<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        // Most calls that are asked about have none.
        let pairs = args.last().copied().filter(|pairs| iterator::is_zip(*pairs))?;
        let dict = frame.py().get_type::<PyDict>();
        let before = match *args {
            [_] if callable.is(&dict) => None,
            [dictionary, _] if is_update(callable, &dict) => Some(dictionary),
            _ => return None,
        };
        if names.is_some() || self.is_stopped() {
            return None;
        }
        let is_own = self.origin(pairs) == Some(Origin::Fresh) && iterator::parts(pairs) == 2;
        let runs = || {
            let values = iterator::over(pairs, 1);
            values.is_some_and(|values| ops::is_generator(values.as_borrowed()))
        };
        if !is_own || !runs() || !self.gives_plain_keys(iterator::over(pairs, 0)?.as_borrowed()) {
            return None;
        }
        let list = frame.py().get_type::<PyList>();
        let all = self.call_object(Call::new(frame, list.as_any().as_borrowed(), &[pairs]));
        Some(all.and_then(|all| {
            let args: Args<'_, 'py> = before.into_iter().chain([all.as_borrowed()]).collect();
            self.call_object(Call { frame, callable, args: &args, names })
        }))
    }

    /// Whether an iterator goes over a container of constants that a dictionary hashes without code of a user's, and that are
    /// the same in each replay.
    fn gives_plain_keys(&self, keys: Borrowed<'_, '_>) -> bool {
        if !iterator::is_known(keys) || iterator::combines(keys) || iterator::wraps(keys) {
            return false;
        }
        let Some(container) = iterator::over(keys, 0) else { return false };
        let container = container.as_borrowed();
        let items: Vec<_> = if heap::is_exact_dict(container) {
            heap::dict_items(container).into_iter().map(|(key, _)| key).collect()
        } else if heap::is_exact_list(container) || heap::is_plain_tuple(container) {
            heap::children(container)
        } else {
            return false;
        };
        items.iter().all(|item| item.is_exact_instance_of::<PyString>())
    }
}

/// Whether a callable is the method of dictionaries by which others are taken over.
fn is_update(callable: Borrowed<'_, '_>, dict: &Bound<'_, PyType>) -> bool {
    heap::is_named(callable, &["update"])
        && dict.getattr("update").is_ok_and(|update| update.is(callable))
}

/// What a call makes a list or a tuple of. If that is a generator, whoever makes what it yields is a Python frame, so C
/// code calls no operation itself.
pub(super) fn collected_by<'a, 'py>(
    callable: Borrowed<'_, 'py>,
    args: &[Borrowed<'a, 'py>],
) -> Option<Borrowed<'a, 'py>> {
    let py = callable.py();
    let keeps = callable.is(py.get_type::<PyTuple>()) || callable.is(py.get_type::<PyList>());
    match args {
        [iterator] if keeps => Some(*iterator),
        _ => None,
    }
}
