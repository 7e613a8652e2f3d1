//! Numbers that are found outside and taken as symbols: in frames as the trace begins, and in containers.

use pyo3::prelude::*;
use pyo3::types::PyString;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::{GuardKind, Source, SourceId};

use crate::recorder::notes::heap;
use crate::recorder::notes::in_containers::Place;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::reads::Use;
use crate::recorder::notes::state::{Origin, Slot, State, Stop};

impl State {
    /// As [`State::adopt`] of a value that a fast local of the frame holds, or a place on its stack, which
    /// is counted behind the locals: a number that is to be a symbol gets an object of its own there.
    pub fn adopt_root(
        &mut self,
        used: Use,
        source: SourceId,
        value: Borrowed<'_, '_>,
        local: Option<usize>,
    ) -> Result<Option<Py<PyAny>>, Stop> {
        let own = if self.takes_number(source, value, true) {
            self.adopt_number(source, value, local.is_none())
        } else if local.is_some()
            && let Some(copy) = self.adopt_tuple(used, source, value, false)?
        {
            copy
        } else {
            return self.adopt_for(used, source, value).map(|()| None);
        };
        let own = own.unbind();
        if let Some(local) = local {
            let own = own.clone_ref(value.py());
            self.symbols.as_mut().expect("just adopted").substitutes.push((local, own));
        }
        Ok(Some(own))
    }

    /// As [`State::adopt_root`] behind a graph break, where what was symbolic before it has an object of
    /// its own already. Elsewhere a number can't be exchanged: it's a constant.
    pub fn adopt_root_behind_break(
        &mut self,
        used: Use,
        source: SourceId,
        value: Borrowed<'_, '_>,
        local: Option<usize>,
    ) -> Result<Option<Py<PyAny>>, Stop> {
        if self.policy.carries(value) && self.takes_number(source, value, true) {
            return Ok(Some(self.adopt_number(source, value, true).unbind()));
        }
        match local {
            Some(_) => self.adopt_root(used, source, value, local),
            None => self.adopt_for(used, source, value).map(|()| None),
        }
    }

    /// As [`State::adopt_root_behind_break`] of a value on a frame's stack. `slot` says where it lies, if
    /// the frame is the one that goes on: there a number is exchanged as in a local.
    pub fn adopt_stacked(
        &mut self,
        used: Use,
        source: SourceId,
        value: Borrowed<'_, '_>,
        slot: Option<usize>,
    ) -> Result<Option<Py<PyAny>>, Stop> {
        if slot.is_some() && !self.policy.carries(value) && self.takes_number(source, value, true) {
            return self.adopt_root(used, source, value, slot);
        }
        self.adopt_root_behind_break(used, source, value, None)
    }

    /// As [`State::adopt_root_behind_break`] of a local of a frame that waits for the innermost one.
    pub fn adopt_waiting_local(
        &mut self,
        used: Use,
        source: SourceId,
        value: Borrowed<'_, '_>,
    ) -> Result<Option<Py<PyAny>>, Stop> {
        if self.takes_number(source, value, true) {
            let keeps = self.policy.carries(value);
            return Ok(Some(self.adopt_number(source, value, keeps).unbind()));
        }
        self.adopt_for(used, source, value).map(|()| None)
    }

    /// What a read of a dictionary's slot gives: the stand-in of a number that is a symbol.
    pub fn read_slot_value<'py>(
        &mut self,
        dict: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
        value: Borrowed<'_, 'py>,
    ) -> Result<Option<Object<'py>>, Stop> {
        let used = self.moving();
        self.read_slot(used, dict, key, Some(value), true)?;
        let key = self.key_in(dict, key);
        let slot = (dict.as_ptr() as usize, key.as_ptr() as usize);
        Ok(self.slot_stand_in(value.py(), slot))
    }

    /// What stands for the number that a slot held, unless this trace wrote it.
    pub fn slot_stand_in<'py>(&self, py: Python<'py>, slot: Slot) -> Option<Object<'py>> {
        let source = self.symbols.as_ref()?.slot_source(slot)?;
        if self.written.has(&slot) { None } else { self.stand_in(py, source) }
    }

    /// As [`State::adopt`] of what a slot holds, for who reads it by that.
    pub fn adopt_slot(
        &mut self,
        used: Use,
        slot: Slot,
        source: SourceId,
        value: Borrowed<'_, '_>,
    ) -> Result<(), Stop> {
        if self.adopt_symbolic(used, source, value, false)?.is_none() {
            return self.adopt_for(used, source, value);
        }
        self.symbols.as_mut().expect("just adopted").add_slot_source(slot, source);
        Ok(())
    }

    /// A number that is to be a symbol, or a tuple with such: what stands for it. `None`: it wasn't adopted.
    pub(in crate::recorder) fn adopt_symbolic<'py>(
        &mut self,
        used: Use,
        source: SourceId,
        value: Borrowed<'_, 'py>,
        is_root: bool,
    ) -> Result<Option<Object<'py>>, Stop> {
        if used.moves && self.takes_number(source, value, is_root) {
            return Ok(Some(self.adopt_number(source, value, false)));
        }
        self.adopt_tuple(used, source, value, is_root)
    }

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
        let is_plain = self.kind_alone(list) == Kind::List && heap::is_exact_list(list);
        let own = if is_plain { self.adopt_symbolic(used, source, item, false)? } else { None };
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

    /// As [`State::adopt`] of a tuple, if it holds numbers that are to be symbols: another tuple with
    /// numbers of their own, which stands for it. `None`: it wasn't adopted.
    pub fn adopt_tuple<'py>(
        &mut self,
        used: Use,
        source: SourceId,
        tuple: Borrowed<'_, 'py>,
        is_root: bool,
    ) -> Result<Option<Object<'py>>, Stop> {
        if !used.moves {
            return Ok(None);
        }
        if let Some(known) = self.source(tuple) {
            // What stands for it elsewhere does so here, whatever is known of this place.
            let Some(copy) = self.copy_at(tuple.py(), known) else { return Ok(None) };
            if self.first_seen(source) {
                self.guard(source, GuardKind::SameAs(known));
                self.begin_symbols(tuple.py()).copies.insert(source, copy.clone().unbind());
            }
            return Ok(Some(copy));
        }
        if !self.holds_symbols(source, tuple, is_root) {
            return Ok(None);
        }
        self.objects.adopt(tuple, source);
        self.guard_type(source, tuple);
        let items = heap::tuple_items(tuple);
        self.guard(source, GuardKind::Length(items.len()));
        let mut own = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let child = self.sources.intern(Source::TupleItem { parent: source, index });
            let borrowed = item.as_borrowed();
            let taken = self.adopt_symbolic(used, child, borrowed, is_root)?;
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

    /// The tuple that stands for the one that was found at a source.
    fn copy_at<'py>(&self, py: Python<'py>, source: SourceId) -> Option<Object<'py>> {
        Some(self.symbols.as_ref()?.copies.get(&source)?.bind(py).clone())
    }

    /// A tuple for which another one stands is found at a place where that can't be put: its numbers are what they are.
    pub(super) fn fix_copied(&mut self, tuple: Borrowed<'_, '_>, known: SourceId) {
        if let Some(copy) = self.copy_at(tuple.py(), known)
            && !copy.is(&*tuple)
        {
            self.fix(copy.as_borrowed(), "in a tuple that is found in two places");
        }
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
