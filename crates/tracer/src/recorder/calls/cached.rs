//! `functools.lru_cache`: a hit is a read of the cache, guarded by function and key.
//!
//! A miss runs the function natively, as a part of C code that this call alone has: what it leaves
//! in the cache is what a replay must find there, so the guard speaks of the state behind it. If
//! the cache was cleared since, the guard fails and the next trace fills it again.
//!
//! A hit is counted, and moves the result to the end of those that a bounded cache may drop. So a replay, which finds
//! all its results in the caches, calls the functions again behind its graph.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString, PyTuple};
use stator_cpython::Result;
use stator_cpython::heap::cached::{self, keyword_mark};
use stator_cpython::heap::function::{Field, value};
use stator_cpython::object::{Borrowed, Object};
use stator_guards::Source;

use crate::breaks::Reason;
use crate::effects::HIT;
use crate::listeners;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Ends, Looks};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::effects::{HITS, MethodCall};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{State, Stop};
use crate::recorder::reads::keys::leaves_equality_to_tuples;

impl Recorder {
    /// Calls a cached function.
    pub(in crate::recorder) fn cached_call<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        // Its key is made of their values, and a miss runs natively.
        self.concrete(frame, args, "the key of a cache");
        self.guard_key(frame, args);
        let key = self.note(frame, |state| state.cache_key(call));
        let result = {
            let _native = stator_cpython::hook::Suspended::new(frame.py());
            call.natively()
        };
        if result.is_err() {
            // Nothing was kept: the next call runs the function again.
            self.stop(frame, Reason::OpaqueCall, "a cached function that raised");
        }
        let result = result?;
        if let Some(key) = key {
            self.note(frame, |state| {
                state.adopt_cached(callable, key.as_borrowed(), result.as_borrowed())?;
                state.note_hit(call)
            });
        }
        Ok(result)
    }
}

impl State {
    /// The key that `functools.lru_cache` makes of arguments; the last ones have names.
    fn cache_key<'py>(&mut self, call: Call<'_, 'py>) -> std::result::Result<Object<'py>, Stop> {
        let Call { callable: function, args, names, .. } = call;
        let names = names.map(heap::tuple_items).unwrap_or_default();
        let py = function.py();
        let refuse = || (Reason::OpaqueCall, "a cached function of objects".to_string());
        let is_typed = cached::is_typed(&function);
        if let ([only], [], false) = (args, &names[..], is_typed)
            && (only.is_exact_instance_of::<PyInt>() || only.is_exact_instance_of::<PyString>())
        {
            return Ok((*only).to_owned());
        }
        let (positional, named) = args.split_at(args.len() - names.len());
        let mut parts = positional.to_vec();
        if !names.is_empty() {
            parts.push(keyword_mark(py).ok_or_else(refuse)?);
            let pairs = names.iter().zip(named);
            parts.extend(pairs.flat_map(|(name, value)| [name.as_borrowed(), *value]));
        }
        let types: Vec<_> = args.iter().map(|arg| arg.get_type().into_any()).collect();
        if is_typed {
            parts.extend(types.iter().map(Bound::as_borrowed));
        }
        let key = PyTuple::new(py, parts).map_err(|_| refuse())?.into_any();
        for arg in args {
            if self.is_known_part(*arg)? {
                continue;
            }
            if !listeners::is_logger(*arg) {
                return Err(refuse());
            }
            // What gives a message once. To the first call others may listen.
            let is_known = stored_key(function, key.as_borrowed()).is_some();
            if !is_known && listeners::of_logger(*arg).is_none() {
                return Err((Reason::Told, "a log record that is given once".into()));
            }
        }
        Ok(key)
    }

    /// Whether a cache finds a part of a key without code of the program's, as is guarded: by its value, if it's a constant, as the
    /// object that it is, or as a tuple of such.
    fn is_known_part(&mut self, part: Borrowed<'_, '_>) -> std::result::Result<bool, Stop> {
        if self.kind(part) != Kind::Tuple || !leaves_equality_to_tuples(&part.get_type()) {
            let is_constant = self.kind(part) == Kind::Constant && heap::is_constant(part);
            return Ok(is_constant || self.is_key_by_identity(part)?);
        }
        self.adopt_deep(part)?;
        self.know_key_class(part)?;
        for item in heap::tuple_items(part) {
            if !self.is_known_part(item.as_borrowed())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives the result the source it has in the cache.
    fn adopt_cached(
        &mut self,
        function: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
        result: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let unknown =
            || (Reason::OpaqueCall, "a cached function whose cache can't be read".to_string());
        let source = self.source(function).ok_or_else(unknown)?;
        let cache = value(function, Field::Cache).ok_or_else(unknown)?;
        let stored = if heap::is_constant(key) {
            key.to_owned()
        } else {
            let stored = stored_key(function, key).ok_or_else(unknown)?;
            self.know_tuples(stored.as_borrowed())?;
            stored
        };
        let key = stored.as_borrowed();
        let found = heap::dict_get(cache.as_borrowed(), key).ok_or_else(unknown)?;
        let source = self.sources.intern(Source::Cache(source));
        let id = self.objects.intern(key);
        let text = || self.objects.repr(id, key);
        let mut source = self.sources.dict_item(source, id, text);
        let mut held = found;
        if let Some(linked) = value(held.as_borrowed(), Field::CachedResult) {
            source = self.sources.intern(Source::CachedResult(source));
            held = linked;
        }
        if !held.is(result) {
            return Err(unknown());
        }
        self.adopt(source, result)
    }

    /// Guards how the tuples in a key of the cache are hashed and compared.
    fn know_tuples(&mut self, key: Borrowed<'_, '_>) -> std::result::Result<(), Stop> {
        if self.kind(key) != Kind::Tuple {
            return Ok(());
        }
        self.know_key_class(key)?;
        heap::tuple_items(key).iter().try_for_each(|part| self.know_tuples(part.as_borrowed()))
    }

    /// Takes note of the call that a replay makes in the place of this one.
    fn note_hit(&mut self, call: Call<'_, '_>) -> std::result::Result<(), Stop> {
        let Call { callable: function, args, names, .. } = call;
        let py = function.py();
        let is_bounded = is_bounded(function);
        // Code within a node makes its calls itself; where the last use doesn't matter, their order doesn't either.
        if self.enclosed.is_on() && !is_bounded {
            self.enclosed.unnoted += 1;
            return Ok(());
        }
        if self.program.is_some() {
            return Ok(());
        }
        let refuse = |_| (Reason::OpaqueCall, "a cached function of objects".to_string());
        let unknown = || (Reason::UnknownOrigin, "a cached function".to_string());
        let source = self.source(function).ok_or_else(unknown)?;
        let names = names.map(heap::tuple_items).unwrap_or_default();
        let (positional, named) = args.split_at(args.len() - names.len());
        let mut given = vec![PyTuple::new(py, positional).map_err(refuse)?.into_any()];
        if !names.is_empty() {
            let by_name = PyDict::new(py);
            for (name, value) in names.iter().zip(named) {
                by_name.set_item(name, *value).map_err(refuse)?;
            }
            given.push(by_name.into_any());
        }
        given.iter().for_each(|container| self.set_fresh(container.as_borrowed()));
        let args = given.into_iter().map(Bound::unbind).collect();
        self.note_call(function, source, HITS, MethodCall { method: HIT.into(), args });
        Ok(())
    }
}

/// Whether a cached function drops results.
fn is_bounded(function: Borrowed<'_, '_>) -> bool {
    let cache = value(function, Field::Cache);
    let mut items = cache.iter().flat_map(|cache| heap::dict_items(cache.as_borrowed()));
    items.next().is_none_or(|(_, found)| value(found.as_borrowed(), Field::CachedResult).is_some())
}

/// The key in a function's cache that is made of the same objects, or of equal constants.
fn stored_key<'py>(function: Borrowed<'_, 'py>, key: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    let cache = value(function, Field::Cache)?;
    let items = heap::tuple_items(key);
    let is_same =
        |stored: &Object<'py>| are_equal(&heap::tuple_items(stored.as_borrowed()), &items);
    let keys = heap::dict_items(cache.as_borrowed()).into_iter().map(|(stored, _)| stored);
    keys.filter(|stored| stored.is_exact_instance_of::<PyTuple>()).find(is_same)
}

/// Whether parts of two keys are equal, one by one.
fn are_equal(left: &[Object<'_>], right: &[Object<'_>]) -> bool {
    let is_tuple = |part: Borrowed<'_, '_>| {
        part.is_instance_of::<PyTuple>() && leaves_equality_to_tuples(&part.get_type())
    };
    let equal = |(left, right): (&Object<'_>, &Object<'_>)| {
        let (left, right) = (left.as_borrowed(), right.as_borrowed());
        heap::equal_keys(left, right)
            || is_tuple(left)
                && is_tuple(right)
                && are_equal(&heap::tuple_items(left), &heap::tuple_items(right))
    };
    left.len() == right.len() && left.iter().zip(right).all(equal)
}
