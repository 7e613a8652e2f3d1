//! Side effects: writes to outside objects, replayed at the end.
//!
//! A write is executed at once, as everything is. What a replay has to repeat is the last value of
//! each part that was written: a dictionary's slot, a cell, a member, a class attribute, the elements
//! of a list. From its first write on, a part is no outside read any more, and what the write
//! depended on (a dictionary's keys, a list's elements) is guarded as it was before it.

use pyo3::prelude::*;
use pyo3::types::{PySet, PySlice, PyString};
use rustc_hash::{FxHashMap, FxHashSet};
use stator_cpython::frame::Frame;
use stator_cpython::heap::member::{Member, Read};
use stator_cpython::object::Borrowed;
use stator_guards::{GuardKind, SourceId};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::effects::{
    CELL, CONTENTS, CONTEXT, Effect, KEYS, MethodCall, POSITION, Part,
};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::reads::Use;
use crate::recorder::notes::state::{State, Stop};
use crate::recorder::notes::written::Keys;
use crate::recorder::reads::found::by_value_alone;
use crate::recorder::reads::identity::is_nan;

impl State {
    /// Takes note of a write to a part of an outside object.
    pub fn wrote(
        &mut self,
        object: Borrowed<'_, '_>,
        source: SourceId,
        slot: usize,
        part: impl FnOnce() -> Part,
    ) {
        self.look_enclosed(object.as_ptr() as usize);
        self.overwrote(object, source, slot, part);
    }

    /// As [`State::wrote`]. What code within a node has left in the part may be overwritten.
    fn overwrote(
        &mut self,
        object: Borrowed<'_, '_>,
        source: SourceId,
        slot: usize,
        part: impl FnOnce() -> Part,
    ) {
        let place = self.frames.here();
        if self.written.note((object.as_ptr() as usize, slot), place, self.graph.len()) {
            let part = part();
            if self.program.is_some() {
                self.wrote_in_program(object, &part);
            }
            let object = object.to_owned().unbind();
            self.written.add(Effect { object, source, part, slot, place });
        }
    }

    /// Takes note of a write to an outside dictionary's slot, before it happens, or of its deletion.
    pub fn write_slot(
        &mut self,
        dict: Borrowed<'_, '_>,
        source: SourceId,
        key: Borrowed<'_, '_>,
        deletes: bool,
    ) -> Result<(), Stop> {
        if !matches!(self.kind(key), Kind::Constant | Kind::Tuple) || !heap::is_constant(key) {
            self.know_written_key(dict, key)?;
        }
        if is_nan(key) {
            return Err((Reason::Identity, "a NaN as key".into()));
        }
        if key.is_instance_of::<PySlice>() {
            return Err((Reason::OutsideWrite, "an item of a dictionary under a slice".into()));
        }
        let key = self.key_in(dict, key);
        let held = heap::dict_get(dict, key.as_borrowed());
        if held.is_none() && heap::is_lookup_refused(dict, key.as_borrowed()) {
            return Err(by_value_alone());
        }
        if held.is_none() || deletes {
            self.rekey(dict)?;
        }
        if self.enclosed.is_on() {
            let slot = (dict.as_ptr() as usize, key.as_ptr() as usize);
            self.enclosed.write_entry(slot, held.as_ref().map(Bound::as_borrowed));
        }
        self.objects.intern(key.as_borrowed());
        self.written.add_dict(dict.as_ptr() as usize);
        let slot = key.as_ptr() as usize;
        if deletes {
            self.written.delete_key(&(dict.as_ptr() as usize, slot));
        }
        let is_left = self.enclosed.left().contains(&(dict.as_ptr() as usize, slot));
        if !is_left || self.enclosed.is_on() {
            self.look_enclosed(dict.as_ptr() as usize);
        }
        self.overwrote(dict, source, slot, || Part::Item { key: key.unbind(), moves: false });
        Ok(())
    }

    /// The keys of a dictionary, or their order, are about to change: what it was is read now or never.
    pub(super) fn rekey(&mut self, dict: Borrowed<'_, '_>) -> Result<(), Stop> {
        self.look_enclosed(dict.as_ptr() as usize);
        self.know_keys(dict)?;
        self.written.rekey(dict.as_ptr() as usize, || Keys {
            stored: heap::stored_keys(dict).into_iter().map(Bound::unbind).collect(),
            ordered: heap::is_ordered_dict(dict).then(|| ordered_keys(dict)),
            deleted: FxHashSet::default(),
        });
        Ok(())
    }

    /// A key that is no constant is one that a dictionary knows by identity, and that a replay finds outside.
    fn know_written_key(
        &mut self,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
    ) -> Result<(), Stop> {
        if self.kind(key) == Kind::Tensor {
            self.know_tensor_key(key, heap::dict_get(dict, key).is_some())?;
            if self.key_source(key).is_some() {
                return Ok(());
            }
        }
        if self.know_module_key(key)? || self.know_member_key(key)? {
            return Ok(());
        }
        let detail = format!("an item of a {}", heap::type_name(dict));
        Err((Reason::OutsideWrite, detail))
    }

    /// Where a replay finds the key of a written entry; `None`: it's a constant.
    pub fn key_source(&self, key: Borrowed<'_, '_>) -> Option<SourceId> {
        self.source(key).filter(|_| self.is_identity_guarded(key))
    }

    /// Takes note of a write to a cell of an enclosing function, before it happens.
    pub fn write_cell(&mut self, cell: Borrowed<'_, '_>, source: SourceId) {
        self.wrote(cell, source, CELL, || Part::Cell);
    }

    /// Takes note of a write to a `__slots__` member of an outside object, before it happens.
    pub fn write_member(
        &mut self,
        owner: Borrowed<'_, '_>,
        name: Borrowed<'_, '_>,
        offset: usize,
        deletes: bool,
    ) -> Result<(), Stop> {
        let unknown = || (Reason::UnknownOrigin, heap::type_name(owner));
        let source = self.source(owner).ok_or_else(unknown)?;
        if deletes {
            match Member::new(offset).read(owner) {
                Read::Value(old) => {
                    let old = Some(old.as_borrowed());
                    self.read_member(Use::default(), owner, name, offset, old)?;
                }
                // Nothing is written: this raises, as long as the slot is empty.
                Read::Unset => {
                    return self.read_member(Use::default(), owner, name, offset, None);
                }
                Read::NoMember => {}
            }
        }
        self.objects.intern(name);
        let name = name.to_owned().unbind();
        self.wrote(owner, source, offset, || Part::Member(name));
        Ok(())
    }

    /// Takes note of a write to an attribute of a class, before it happens.
    pub fn write_class_attribute(&mut self, class: Borrowed<'_, '_>, name: Borrowed<'_, '_>) {
        let source = self.anchor(class);
        self.objects.intern(name);
        let slot = name.as_ptr() as usize;
        self.written.add_class((class.as_ptr() as usize, slot));
        let name = name.to_owned().unbind();
        self.wrote(class, source, slot, || Part::ClassAttribute(name));
    }

    /// Takes note of a change of an outside list, before it happens. The list was guarded whole when
    /// it was found.
    pub fn write_elements(&mut self, list: Borrowed<'_, '_>) -> Result<(), Stop> {
        let unknown = || (Reason::UnknownOrigin, format!("a {}", heap::type_name(list)));
        if !heap::is_exact_list(list) {
            // It may have its own way of being written to.
            let detail = format!("the elements of a {}", heap::type_name(list));
            return Err((Reason::OutsideWrite, detail));
        }
        let source = self.source(list).ok_or_else(unknown)?;
        self.wrote(list, source, CONTENTS, || Part::Elements);
        Ok(())
    }

    /// Takes note of a method that changes an outside set or deque, before it does.
    pub fn write_call(&mut self, object: Borrowed<'_, '_>, call: MethodCall) -> Result<(), Stop> {
        let unknown = || (Reason::UnknownOrigin, format!("a {}", heap::type_name(object)));
        let source = self.source(object).ok_or_else(unknown)?;
        if self.program.is_some() {
            if changes_nothing(object, &call) {
                return Ok(());
            }
            let detail = format!("a {} from outside", heap::type_name(object));
            return Err((Reason::Impure, detail));
        }
        self.note_call(object, source, CONTENTS, call);
        Ok(())
    }

    /// Takes note of a method of a part that is called. From here on the instruction can't be broken before.
    pub(in crate::recorder) fn note_call(
        &mut self,
        object: Borrowed<'_, '_>,
        source: SourceId,
        part: usize,
        call: MethodCall,
    ) {
        self.wrote(object, source, part, || Part::Calls(Vec::new()));
        if let Some(calls) = self.written.calls(&(object.as_ptr() as usize, part)) {
            calls.push(call);
            stator_cpython::ops::count();
        }
    }

    /// Takes note of an iterator that is about to be advanced. From here on the instruction can't be broken before.
    pub(super) fn note_advance(&mut self, iterator: Borrowed<'_, '_>, source: SourceId) {
        self.wrote(iterator, source, POSITION, || Part::Advanced(0));
        self.written.advance(&(iterator.as_ptr() as usize, POSITION));
        stator_cpython::ops::count();
    }

    /// The method that was noted last has raised.
    pub fn drop_call(&mut self, object: Borrowed<'_, '_>) -> Result<(), Stop> {
        if let Some(calls) = self.written.calls(&(object.as_ptr() as usize, CONTENTS))
            && let Some(call) = calls.pop()
            && call.method.ends_with("update")
        {
            // It may have come to some of the elements.
            return Err((Reason::OutsideWrite, format!("{} that raised", call.method)));
        }
        Ok(())
    }

    /// The writes in an order, and with the moves, that leave dictionaries in the order they have.
    pub fn take_effects(&mut self, py: Python<'_>) -> Vec<Effect> {
        let (effects, rekeyed) = self.written.take_effects();
        self.in_order(py, effects, &rekeyed)
    }

    /// As [`State::take_effects`], of what was written so far.
    pub fn effects_so_far(&self, py: Python<'_>) -> Vec<Effect> {
        let effects = self.written.effects().iter().map(|effect| effect.clone_ref(py)).collect();
        self.in_order(py, effects, self.written.rekeyed())
    }

    fn in_order(
        &self,
        py: Python<'_>,
        mut effects: Vec<Effect>,
        rekeyed: &FxHashMap<usize, Keys>,
    ) -> Vec<Effect> {
        for effect in &mut effects {
            if let Part::Elements = effect.part
                && let Some(unread) = self.unread.get(&(effect.object.as_ptr() as usize))
            {
                let before = unread.early.unwrap_or_else(|| unread.before.bind(py).len());
                let dropped = unread.dropped;
                effect.part = Part::Added { kept: before - dropped, dropped };
            }
        }
        for (dict, first) in rekeyed {
            order_items(py, &mut effects, *dict, first);
            if let Some(ordered) = &first.ordered {
                effects.extend(moves_to_end(py, &effects, *dict, ordered));
            }
        }
        effects
    }

    /// Guards that a written object isn't another one of which the same part was read or written.
    pub fn guard_written_distinct(&mut self, py: Python<'_>) {
        let mut groups: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        let left = self.enclosed.left().iter().copied();
        for (object, slot) in self.written.parts().chain(self.written.early()).chain(left) {
            groups.entry(slot).or_default().push(object);
        }
        if self.written.any_dict() {
            // Each such write may make a key, where it's another dictionary than the recorded one.
            groups.insert(KEYS, self.written.dicts().collect());
        }
        if self.open_dicts().next().is_some() {
            // Each key may be any number in another call.
            let numbers = self.objects.plain_keys(py);
            let asked = self.reads.slots().filter(|slot| numbers.contains(&slot.1));
            groups.entry(KEYS).or_default().extend(asked.map(|slot| slot.0));
        }
        if !self.context.resets().is_empty() {
            groups.entry(CONTEXT).or_default().extend(self.context.resets());
        }
        if groups.is_empty() {
            return;
        }
        // Nodes read what these hold.
        if let Some(group) = groups.get_mut(&CONTENTS) {
            let asked = self.unread.iter().filter(|(_, unread)| unread.is_asked);
            group.extend(asked.map(|(object, _)| *object));
        }
        for &(object, slot) in self.reads.slots() {
            if let Some(group) = groups.get_mut(&slot) {
                group.push(object);
            }
        }
        let mut distinct: Vec<Vec<SourceId>> = Vec::new();
        for mut objects in groups.into_values() {
            objects.sort_unstable();
            objects.dedup();
            let mut sources: Vec<_> =
                objects.into_iter().filter_map(|object| self.guardable(object)).collect();
            sources.sort_unstable();
            sources.dedup();
            distinct.push(sources);
        }
        distinct.sort_unstable();
        distinct.dedup();
        for sources in distinct {
            if let [first, rest @ ..] = sources.as_slice()
                && !rest.is_empty()
            {
                self.guard(*first, GuardKind::Distinct(rest.into()));
            }
        }
    }

    /// The source of the outside object at an address, unless it's known by identity: such ones are
    /// distinct for good.
    fn guardable(&self, address: usize) -> Option<SourceId> {
        self.source_at(address).filter(|_| !self.is_address_known(address))
    }
}

/// Puts a dictionary's effects in the order of its entries. Entries that keep their place come first
/// in the dictionary and in their old order; behind them stand new ones, and old ones that were
/// deleted in between: those move.
fn order_items(py: Python<'_>, effects: &mut Vec<Effect>, dict: usize, keys: &Keys) {
    let first = &keys.stored;
    let at: Vec<usize> = (0..effects.len())
        .filter(|index| {
            let effect = &effects[*index];
            effect.object.as_ptr() as usize == dict && matches!(effect.part, Part::Item { .. })
        })
        .collect();
    let Some(&some) = at.first() else { return };
    let now = heap::stored_keys(effects[some].object.bind_borrowed(py));
    let same = |left: Borrowed<'_, '_>, right: Borrowed<'_, '_>| heap::same_key(left, right);
    // How many entries, from the front, have kept their place.
    let mut old = first.iter();
    let kept = now
        .iter()
        .take_while(|key| old.any(|old| same(old.bind_borrowed(py), key.as_borrowed())))
        .count();
    let mut ranked: Vec<(usize, Effect)> = Vec::with_capacity(at.len());
    for &index in at.iter().rev() {
        ranked.push((0, effects.remove(index)));
    }
    ranked.reverse();
    for (rank, effect) in &mut ranked {
        let Part::Item { key, moves } = &mut effect.part else { continue };
        let at = now.iter().position(|now| same(now.as_borrowed(), key.bind_borrowed(py)));
        // Deletions first. A new entry has the key that it was made with, of all equal ones.
        *rank = at.map_or(0, |at| at + 1);
        if let Some(at) = at {
            *key = now[at].clone().unbind();
        }
        let was = first.iter().any(|old| same(old.bind_borrowed(py), key.bind_borrowed(py)));
        // Which order the table of an `OrderedDict` has isn't guarded.
        *moves = was
            && match keys.ordered {
                Some(_) => keys.deleted.contains(&effect.slot),
                None => *rank > kept,
            };
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    for (&index, (_, effect)) in at.iter().zip(ranked) {
        effects.insert(index, effect);
    }
}

fn ordered_keys(dict: Borrowed<'_, '_>) -> Vec<Py<PyAny>> {
    heap::dict_items(dict).into_iter().map(|(key, _)| key.unbind()).collect()
}

/// The calls of `move_to_end` that give an `OrderedDict` its own order, where the effects leave another one. `first` is its
/// order before them.
fn moves_to_end(
    py: Python<'_>,
    effects: &[Effect],
    dict: usize,
    first: &[Py<PyAny>],
) -> Option<Effect> {
    let same = |left: &Py<PyAny>, right: &Py<PyAny>| {
        heap::same_key(left.bind_borrowed(py), right.bind_borrowed(py))
    };
    let some = effects.iter().find(|effect| effect.object.as_ptr() as usize == dict)?;
    let now = ordered_keys(some.object.bind_borrowed(py));
    let mut left: Vec<_> = first.iter().collect();
    for effect in effects.iter().filter(|effect| effect.object.as_ptr() as usize == dict) {
        let Part::Item { key, moves } = &effect.part else { continue };
        let at = left.iter().position(|known| same(known, key));
        let is_there = now.iter().any(|known| same(known, key));
        if let Some(at) = at.filter(|_| *moves || !is_there) {
            left.remove(at);
        }
        if is_there && (*moves || at.is_none()) {
            left.push(key);
        }
    }
    let kept = left.iter().zip(&now).take_while(|(left, now)| same(left, now)).count();
    if kept == now.len() {
        return None;
    }
    let moved = |key: &Py<PyAny>| MethodCall {
        method: "move_to_end".into(),
        args: vec![key.clone_ref(py)],
    };
    Some(Effect {
        object: some.object.clone_ref(py),
        source: some.source,
        part: Part::Calls(now[kept..].iter().map(moved).collect()),
        slot: CONTENTS,
        place: some.place,
    })
}

impl Recorder {
    /// Notes a write to an outside dictionary; false: the dictionary is none, or the trace ended.
    pub(in crate::recorder) fn writes_slot(
        &self,
        frame: &Frame<'_>,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
        deletes: bool,
    ) -> bool {
        let noted = self.note(frame, |state| match state.source(dict) {
            Some(source) => state.write_slot(dict, source, key, deletes).map(|()| true),
            None => Ok(false),
        });
        noted == Some(true)
    }
}

/// Whether a method leaves a set as it is: it takes out a text that isn't there, or puts one in that is.
fn changes_nothing(object: Borrowed<'_, '_>, call: &MethodCall) -> bool {
    let [element] = &call.args[..] else { return false };
    let element = element.bind(object.py());
    if !object.is_exact_instance_of::<PySet>() || !element.is_exact_instance_of::<PyString>() {
        return false;
    }
    let is_there = object.contains(element);
    match &*call.method {
        "discard" => is_there.is_ok_and(|is_there| !is_there),
        "add" => is_there.is_ok_and(|is_there| is_there),
        _ => false,
    }
}
