//! Numbers that outside containers hold, taken as symbols.
//!
//! A symbolic number is an object of its own, so who takes it out of a container must find that object
//! there. Lists and dictionaries hold it while the trace goes on, and get back what they held. A tuple
//! may be a constant of anybody's code: another tuple stands for it.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use stator_cpython::object::{Borrowed, Object};
use stator_guards::{GuardKind, Source, SourceId};

use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State, Stop};
use crate::recorder::reads::found::Use;

/// What outside containers hold for the time of a trace.
#[derive(Default)]
pub struct Lending(Vec<Lent>);

struct Lent {
    container: Py<PyAny>,
    place: Place,
    own: Py<PyAny>,
    plain: Py<PyAny>,
}

/// Where a container holds it.
enum Place {
    Index(usize),
    Key(Py<PyAny>),
}

impl Lending {
    /// Puts `own` where the container holds `plain`.
    fn lend(
        &mut self,
        container: Borrowed<'_, '_>,
        place: Place,
        own: &Object<'_>,
        plain: Borrowed<'_, '_>,
    ) {
        let lent = Lent {
            container: container.to_owned().unbind(),
            place,
            own: own.clone().unbind(),
            plain: plain.to_owned().unbind(),
        };
        match (container.cast::<PyList>(), &lent.place) {
            (Ok(list), Place::Index(index)) => drop(list.set_item(*index, own)),
            _ => lent.exchange(container.py(), &lent.plain, &lent.own),
        }
        self.0.push(lent);
    }

    fn holds(&self, container: Borrowed<'_, '_>, key: Borrowed<'_, '_>) -> bool {
        self.0.iter().any(|lent| {
            let is_there = |place: &Place| matches!(place, Place::Key(known) if known.is(key));
            lent.container.is(container) && is_there(&lent.place)
        })
    }
}

impl Lent {
    /// Replaces an element by another, wherever it is by now; a dictionary's where it was.
    fn exchange(&self, py: Python<'_>, from: &Py<PyAny>, to: &Py<PyAny>) {
        let container = self.container.bind(py);
        if let (Ok(dict), Place::Key(key)) = (container.cast::<PyDict>(), &self.place) {
            let held = heap::dict_get(dict.as_any().as_borrowed(), key.bind_borrowed(py));
            if held.is_some_and(|held| held.is(from)) {
                // The key is a string that is there: nothing is compared by user code, and no order changes.
                let _ = dict.set_item(key, to);
            }
        } else if let Ok(list) = container.cast::<PyList>() {
            for (index, item) in heap::list_items(list.as_any().as_borrowed()).iter().enumerate() {
                if item.is(from) {
                    let _ = list.set_item(index, to);
                }
            }
        }
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        Python::attach(|py| {
            for lent in self.0.drain(..) {
                lent.exchange(py, &lent.own, &lent.plain);
            }
        });
    }
}

impl State {
    /// As [`State::adopt`] of a list's element: a number that is to be a symbol, or a tuple with such, is
    /// exchanged.
    pub fn adopt_element(
        &mut self,
        used: Use,
        list: Borrowed<'_, '_>,
        index: usize,
        source: SourceId,
        item: Borrowed<'_, '_>,
    ) -> Result<(), Stop> {
        let own =
            if !used.moves || self.kind_alone(list) != Kind::List || !heap::is_exact_list(list) {
                None
            } else if self.takes_number(source, item, false) {
                Some(self.adopt_number(source, item, false))
            } else {
                self.adopt_tuple(used, source, item, false)?
            };
        let Some(own) = own else { return self.adopt_for(used, source, item) };
        self.begin_symbols(list.py()).lending.lend(list, Place::Index(index), &own, item);
        Ok(())
    }

    /// As [`State::read_dict_slot`] of a dictionary that is read whole.
    pub fn adopt_value(
        &mut self,
        used: Use,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
        value: Borrowed<'_, '_>,
    ) -> Result<(), Stop> {
        // Nothing is put into other dictionaries: C code finds the numbers themselves there.
        if !used.moves
            || !heap::is_exact_dict(dict)
            || !self.takes_stand_ins(dict)
            || !key.is_exact_instance_of::<PyString>()
        {
            return self.read_slot(used, dict, key, Some(value), false);
        }
        if let Some(own) = self.read_slot_value(dict, key, value)?
            && !own.is(value)
        {
            let key = self.objects.canonical(key);
            let symbols = self.begin_symbols(dict.py());
            symbols.lending.lend(dict, Place::Key(key.unbind()), &own, value);
        }
        Ok(())
    }

    /// Whether a dictionary's slot holds the stand-in itself.
    pub fn is_lent(&self, dict: Borrowed<'_, '_>, key: Borrowed<'_, '_>) -> bool {
        self.symbols.as_ref().is_some_and(|symbols| symbols.lending.holds(dict, key))
    }

    /// As [`State::adopt`] of a tuple, if it holds numbers that are to be symbols: another tuple with
    /// numbers of their own, which stands for it. `None`: it wasn't adopted.
    pub fn adopt_tuple<'py>(
        &mut self,
        used: Use,
        source: SourceId,
        tuple: Borrowed<'_, 'py>,
        is_root: bool,
    ) -> Result<Option<Object<'py>>, Stop> {
        if !used.moves || !self.holds_symbols(source, tuple, is_root) {
            return Ok(None);
        }
        if let Some(known) = self.source(tuple) {
            let symbols = self.symbols.as_ref();
            let copy = symbols.and_then(|symbols| symbols.copies.get(&known));
            let copy = copy.map(|copy| copy.bind(tuple.py()).clone());
            if copy.is_some() {
                self.adopt_for(used, source, tuple)?;
            }
            return Ok(copy);
        }
        self.objects.adopt(tuple, source);
        self.guard_type(source, tuple);
        let items = heap::tuple_items(tuple);
        self.guard(source, GuardKind::Length(items.len()));
        let mut own = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let child = self.sources.intern(Source::TupleItem { parent: source, index });
            let borrowed = item.as_borrowed();
            let taken = if self.takes_number(child, borrowed, is_root) {
                Some(self.adopt_number(child, borrowed, false))
            } else {
                self.adopt_tuple(used, child, borrowed, is_root)?
            };
            if taken.is_none() {
                self.adopt_for(used, child, borrowed)?;
            }
            own.push(taken.unwrap_or_else(|| item.clone()));
        }
        let copy = heap::tuple_like(tuple, own)
            .ok_or_else(|| (crate::breaks::Reason::Unsupported, heap::type_name(tuple)))?;
        self.objects.adopt(copy.as_borrowed(), source);
        let symbols = self.begin_symbols(tuple.py());
        symbols.copies.insert(source, copy.clone().unbind());
        let original = tuple.to_owned().unbind();
        symbols.originals.insert(copy.as_ptr() as usize, original);
        Ok(Some(copy))
    }

    /// Whether a tuple, or one within it, holds a number that is to be a symbol.
    fn holds_symbols(&mut self, source: SourceId, tuple: Borrowed<'_, '_>, is_root: bool) -> bool {
        let is_plain = heap::is_plain_tuple(tuple) || heap::is_named_tuple(tuple);
        let is_fresh = self.origin(tuple) == Some(Origin::Fresh);
        if !is_plain || is_fresh && !self.roots.is_variadic(source) {
            return false;
        }
        heap::tuple_items(tuple).iter().enumerate().any(|(index, item)| {
            let child = self.sources.intern(Source::TupleItem { parent: source, index });
            self.takes_number(child, item.as_borrowed(), is_root)
                || self.holds_symbols(child, item.as_borrowed(), is_root)
        })
    }
}
