//! Iterators of C code that look at what they go over: `map(math.sqrt, xs)`, `accumulate(xs)`, `filter(None, xs)`.
//!
//! They look while they are advanced, not when they are made: what they go over may have been given another number by then,
//! and a generator among it may make one. So whoever lets C code advance one fixes the numbers within its reach first, and
//! those that are handed to it meanwhile ([`Recorder::handed_back`]). Containers within its reach are guarded then, too:
//! nobody else sees that it looks into them.

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyFunction, PyModule, PyType};
use rustc_hash::FxHashSet;
use stator_cpython::frame::Frame;
use stator_cpython::heap::iterator::{self, Calling};
use stator_cpython::heap::{tensor, types};
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops;

use super::arithmetic::Seen;
use super::dimensions::Consuming;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Ends, Looks};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::{Kind, is_plain_iterator};
use crate::recorder::notes::state::{Noted, State};

/// So many iterators are looked through, one within the other.
const DEPTH: usize = 8;

/// Those of `itertools` that ask, compare or add what they go over, beside those whose parts are known.
const READ: &[&str] =
    &["accumulate", "compress", "dropwhile", "filterfalse", "groupby", "_grouper", "takewhile"];

/// C code reads what it's handed, as long as this lives.
pub(in crate::recorder) struct Reading<'a> {
    _consuming: Consuming<'a>,
    spelling: Option<Consuming<'a>>,
}

impl<'a> Reading<'a> {
    fn new(consuming: Consuming<'a>) -> Self {
        Self { _consuming: consuming, spelling: None }
    }
}

impl Recorder {
    /// C code is about to advance these, as far as they are such iterators; the numbers that it's handed as long as the
    /// result lives are fixed, too.
    pub(in crate::recorder) fn reads_on(
        &self,
        frame: &Frame<'_>,
        objects: &[Borrowed<'_, '_>],
    ) -> Option<Reading<'_>> {
        let mut reading: Option<Reading<'_>> = None;
        for object in objects {
            if self.is_stopped() || !self.state.borrow_mut().looks_into(*object, 0) {
                continue;
            }
            self.note(frame, |state| state.look_on(*object));
            if self.state.borrow_mut().is_lazy_reader(*object, 0) {
                if reaches_array(*object) {
                    let detail = format!("a {} over NumPy's numbers", heap::type_name(*object));
                    self.stop(frame, Reason::Unsupported, detail);
                }
                self.concrete(frame, &[*object], &format!("read by {}", heap::type_name(*object)));
                let reading = reading.get_or_insert_with(|| Reading::new(self.consuming(frame)));
                if spells(*object, 0) {
                    reading.spelling.get_or_insert_with(|| self.spelling(frame));
                }
            }
        }
        reading
    }

    /// As [`Recorder::reads_on`], where nobody waits for what frames hand to the C code: it runs none.
    pub(in crate::recorder) fn reads_alone(&self, frame: &Frame<'_>, object: Borrowed<'_, '_>) {
        if self.reads_on(frame, &[object]).is_some()
            && self.state.borrow_mut().runs_frames(object, 0)
        {
            let detail = format!("{} over what Python code gives", heap::type_name(object));
            self.stop(frame, Reason::OutsideIterator, detail);
        }
    }
}

impl State {
    /// Whether C code may look at what an object gives while it advances it.
    fn may_look(&mut self, object: Borrowed<'_, '_>) -> bool {
        self.kind_alone(object) == Kind::Iterator
            && !is_plain_iterator(&object.get_type())
            && !ops::is_generator(object)
    }

    /// Guards the containers that C code looks into when it advances such an iterator of the trace's.
    fn look_on(&mut self, iterator: Borrowed<'_, '_>) -> Noted<()> {
        self.adopt_reach(iterator)?;
        if spells(iterator, 0) { self.know_texts(iterator, 0) } else { Ok(()) }
    }

    /// Fails if an iterator goes over something whose text nobody knows.
    fn know_texts(&mut self, iterator: Borrowed<'_, '_>, depth: usize) -> Noted<()> {
        for part in referents(iterator) {
            let part = part.as_borrowed();
            match self.kind_alone(part) {
                Kind::Iterator if depth < DEPTH && !ops::is_generator(part) => {
                    self.know_texts(part, depth + 1)?;
                }
                Kind::List | Kind::Tuple | Kind::Dict => self.know_text(part)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether C code looks into the containers that an iterator gives when it's advanced.
    fn looks_into(&mut self, object: Borrowed<'_, '_>, depth: usize) -> bool {
        if !self.may_look(object) {
            return false;
        }
        let looks = match iterator::calling(object) {
            Some(Calling::Map) => !maps_python(object),
            Some(Calling::Filter | Calling::Starmap) => true,
            None => {
                let name = heap::type_name(object);
                name == "chain" || READ.contains(&&*name)
            }
        };
        looks
            || depth > DEPTH
            || referents(object).iter().any(|part| self.looks_into(part.as_borrowed(), depth + 1))
    }

    /// Whether C code looks at the numbers among the items of an iterator when it's advanced.
    fn is_lazy_reader(&mut self, object: Borrowed<'_, '_>, depth: usize) -> bool {
        if !self.may_look(object) {
            return false;
        }
        let reads = match iterator::calling(object) {
            Some(Calling::Map) => !maps_python(object) && !maps_lengths(object),
            Some(Calling::Filter | Calling::Starmap) => true,
            None => READ.contains(&&*heap::type_name(object)),
        };
        reads
            || depth > DEPTH
            || referents(object)
                .iter()
                .any(|part| self.is_lazy_reader(part.as_borrowed(), depth + 1))
    }

    /// Whether Python frames run where such an iterator is advanced, other than those of its own function.
    fn runs_frames(&mut self, object: Borrowed<'_, '_>, depth: usize) -> bool {
        match self.kind_alone(object) {
            Kind::Object => true,
            Kind::Iterator if ops::is_generator(object) || depth > DEPTH => true,
            Kind::Iterator => {
                referents(object).iter().any(|part| self.runs_frames(part.as_borrowed(), depth + 1))
            }
            _ => false,
        }
    }

    /// Fixes the numbers within the reach of an iterator of C code.
    pub(super) fn fix_within_reach(
        &mut self,
        iterator: Borrowed<'_, '_>,
        why: &str,
        depth: usize,
        seen: &mut Seen,
    ) {
        for part in referents(iterator) {
            let part = part.as_borrowed();
            let is_seen_through = match self.kind_alone(part) {
                Kind::Constant
                | Kind::Tensor
                | Kind::List
                | Kind::Tuple
                | Kind::Dict
                | Kind::Set
                | Kind::FrozenSet
                | Kind::Iterator
                | Kind::Function
                | Kind::Builtin
                | Kind::TorchCallable
                | Kind::Type
                | Kind::Method => true,
                // What Python code of its own gives is fixed when it does.
                Kind::Object => {
                    let ty = part.get_type();
                    let ty = ty.as_borrowed();
                    types::is_heap(ty) && !types::is_immutable(ty) && !types::has_native_state(ty)
                }
                _ => false,
            };
            if is_seen_through {
                self.fix_unseen(part, why, depth + 1, seen);
            } else {
                self.fix_all(part.py(), why);
            }
        }
    }
}

/// Whether an iterator makes texts of what it goes over: `map(str, xs)`.
fn spells(iterator: Borrowed<'_, '_>, depth: usize) -> bool {
    let is_text = |called: Object<'_>| heap::is_named(called.as_borrowed(), &["str"]);
    match iterator::calling(iterator) {
        Some(Calling::Map) if iterator::over(iterator, 0).is_some_and(is_text) => true,
        _ => {
            depth < DEPTH
                && referents(iterator).iter().any(|part| {
                    let part = part.as_borrowed();
                    iterator::is_one(part) && !ops::is_generator(part) && spells(part, depth + 1)
                })
        }
    }
}

/// Whether a `map` calls a Python function, which looks itself.
fn maps_python(map: Borrowed<'_, '_>) -> bool {
    iterator::over(map, 0).is_some_and(|called| called.is_exact_instance_of::<PyFunction>())
}

/// Whether an iterator is `map(len, rows)`: how long a container is doesn't follow from the numbers in it.
pub(super) fn maps_lengths(object: Borrowed<'_, '_>) -> bool {
    let is_len = |called: Object<'_>| heap::is_named(called.as_borrowed(), &["len"]);
    matches!(iterator::calling(object), Some(Calling::Map))
        && iterator::over(object, 0).is_some_and(is_len)
        && !reaches_tensor(object)
}

/// Whether a tensor is among what an object holds or goes over, as far as C code sees, or may be.
pub(in crate::recorder) fn reaches_tensor(object: Borrowed<'_, '_>) -> bool {
    let may_be_one = |part: Borrowed<'_, '_>| {
        tensor::is_tensor(part) || ops::is_generator(part) || is_object(part)
    };
    reaches(object, may_be_one, |_| false)
}

/// The same of NumPy's arrays and numbers. What Python frames give is looked at when they do, and nobody goes over what a
/// function, a class or a module refers to.
fn reaches_array(object: Borrowed<'_, '_>) -> bool {
    let hides = |part: Borrowed<'_, '_>| {
        ops::is_generator(part)
            || is_object(part)
            || part.is_instance_of::<PyFunction>()
            || part.is_instance_of::<PyType>()
            || part.is_instance_of::<PyModule>()
    };
    reaches(object, heap::is_array, hides)
}

/// Whether something is among what an object holds or goes over, as far as C code sees, or lies too deep to be found. Nothing is
/// looked for in what `hides` it.
fn reaches(
    object: Borrowed<'_, '_>,
    is_it: impl Fn(Borrowed<'_, '_>) -> bool,
    hides: impl Fn(Borrowed<'_, '_>) -> bool,
) -> bool {
    let mut parts = vec![object.to_owned()];
    let mut seen = FxHashSet::default();
    for _ in 0..DEPTH {
        if parts.iter().any(|part| is_it(part.as_borrowed())) {
            return true;
        }
        let mut below = Vec::new();
        for part in &parts {
            if seen.insert(part.as_ptr() as usize) && !hides(part.as_borrowed()) {
                let part = part.as_borrowed();
                let held = heap::plain_parts(part);
                let is_leaf = heap::is_constant(part)
                    || heap::is_builtin_type(part)
                    || part.is_instance_of::<PyCFunction>();
                below.extend(if held.is_empty() && !is_leaf { referents(part) } else { held });
            }
        }
        if below.is_empty() {
            return false;
        }
        parts = below;
    }
    true
}

/// Whether an object's class is a program's.
fn is_object(object: Borrowed<'_, '_>) -> bool {
    let ty = object.get_type();
    types::is_heap(ty.as_borrowed()) && !types::is_immutable(ty.as_borrowed())
}

/// What a C object holds, as the garbage collector finds it; of a tuple, in which `zip` and such keep iterators, its items.
pub(in crate::recorder) fn referents<'py>(object: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    static GET_REFERENTS: Named = Named::new("gc", "get_referents");
    let found = GET_REFERENTS.get(object.py()).and_then(|get| get.call1((object,)));
    let found = found.map(|found| heap::list_items(found.as_borrowed())).unwrap_or_default();
    let items = found.into_iter().flat_map(|part| {
        let is_tuple = heap::is_plain_tuple(part.as_borrowed());
        if is_tuple { heap::tuple_items(part.as_borrowed()) } else { vec![part] }
    });
    items.collect()
}
