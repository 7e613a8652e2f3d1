//! What a trace has written to objects from outside so far, and what it has told (warnings, log records): all that a
//! replay does when its graph has run, in order.
//!
//! Invariants:
//! * a part that was written has one effect; `parts` knows where it stands among them;
//! * `keys` has the key of each part that was ever written, `dicts` each dictionary: nothing leaves them;
//! * `first` is there as soon as there is anything to do.

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::effects::{Effect, Emitted, MethodCall, Part};
use super::sparse::{Sparse, bit};
use super::state::Slot;

/// The keys of a dictionary, in order.
pub struct Keys {
    /// As its table has them.
    pub stored: Vec<Py<PyAny>>,
    /// As an `OrderedDict` gives them.
    pub ordered: Option<Vec<Py<PyAny>>>,
    /// What stands in slots for the keys that were deleted since.
    pub deleted: FxHashSet<usize>,
}

/// The writes of a trace.
#[derive(Default)]
pub struct Written {
    parts: FxHashMap<Slot, usize>,
    /// Bits of the objects whose parts were ever written: most that is asked for is of none of them.
    owners: u64,
    /// The parts that nodes of the graph write.
    early: FxHashSet<Slot>,
    /// The tensors that they write there.
    shown: Vec<Py<PyAny>>,
    keys: FxHashSet<usize>,
    effects: Vec<Effect>,
    classes: Vec<Slot>,
    dicts: Sparse<()>,
    rekeyed: FxHashMap<usize, Keys>,
    emissions: Vec<Emitted>,
    /// The objects that were written to behind the first of these, though they be as before by now.
    behind: FxHashSet<usize>,
    first: Option<usize>,
    count: u64,
}

impl Written {
    /// Whether this trace has written a part.
    pub fn has(&self, slot: &Slot) -> bool {
        self.may_have(slot) && (self.parts.contains_key(slot) || self.early.contains(slot))
    }

    /// Whether a replay writes a part when its graph has run.
    pub fn is_part(&self, slot: &Slot) -> bool {
        self.may_have(slot) && self.parts.contains_key(slot)
    }

    #[inline]
    fn may_have(&self, slot: &Slot) -> bool {
        self.owners & bit(slot.0) != 0
    }

    /// Whether it has written to any object at one of these keys. At another call that object may be one that it
    /// wasn't at this: who reads a key without a slot of its own asks this first.
    pub fn any_at(&self, keys: impl IntoIterator<Item = usize>) -> bool {
        !self.keys.is_empty() && keys.into_iter().any(|key| self.keys.contains(&key))
    }

    /// Whether it has written to any dictionary.
    pub fn any_dict(&self) -> bool {
        !self.dicts.is_empty()
    }

    /// Whether it has written to the dictionary at an address.
    pub fn dict(&self, address: usize) -> bool {
        self.dicts.contains_key(&address)
    }

    /// The addresses of the dictionaries that it has written to.
    pub fn dicts(&self) -> impl Iterator<Item = usize> {
        self.dicts.iter().map(|(address, ())| *address)
    }

    /// The attributes of classes that it has written: class and name.
    pub fn classes(&self) -> &[Slot] {
        &self.classes
    }

    /// The parts that it has written, and a replay writes when its graph has run.
    pub fn parts(&self) -> impl Iterator<Item = Slot> {
        self.parts.keys().copied()
    }

    /// The parts that nodes write.
    pub fn early(&self) -> impl Iterator<Item = Slot> {
        self.early.iter().copied()
    }

    /// The tensors that nodes write to parts: code within later nodes may find them.
    pub fn shown(&self) -> &[Py<PyAny>] {
        &self.shown
    }

    /// A node has written a part as it is now, with these tensors.
    pub fn write_early(&mut self, slot: &Slot, tensors: impl IntoIterator<Item = Py<PyAny>>) {
        self.forget(slot);
        self.rekeyed.remove(&slot.0);
        self.early.insert(*slot);
        self.owners |= bit(slot.0);
        self.shown.extend(tensors);
    }

    /// How often it has written: what was found out is as it was while this is.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many parts it has written.
    pub fn len(&self) -> usize {
        self.effects.len()
    }

    /// Whether a replay has nothing to do behind its graph.
    pub fn is_empty(&self) -> bool {
        self.effects.is_empty() && self.emissions.is_empty()
    }

    /// How many nodes the graph had when the first of it was noted.
    pub fn first(&self) -> Option<usize> {
        self.first
    }

    /// Warnings and log records that were given.
    pub fn emissions(&self) -> &[Emitted] {
        &self.emissions
    }

    /// Whether one of these objects was written to behind a warning or log record.
    pub fn any_behind_emissions(&self, objects: &[usize]) -> bool {
        objects.iter().any(|object| self.behind.contains(object))
    }

    /// Something was written, where the graph has `nodes` nodes; whether the part is one that wasn't
    /// written before, so [`Written::add`] is due.
    pub fn note(&mut self, slot: Slot, place: (u32, u32), nodes: usize) -> bool {
        self.count += 1;
        self.first.get_or_insert(nodes);
        self.keys.insert(slot.1);
        if !self.emissions.is_empty() {
            self.behind.insert(slot.0);
        }
        let known = self.parts.get(&slot).map(|at| &mut self.effects[*at]);
        known.map(|effect| effect.place = place).is_none()
    }

    /// The effect of a part that is written for the first time.
    pub fn add(&mut self, effect: Effect) {
        self.owners |= bit(effect.slot().0);
        self.parts.insert(effect.slot(), self.effects.len());
        self.effects.push(effect);
    }

    /// The part is what it was before this trace wrote it.
    pub fn forget(&mut self, slot: &Slot) {
        let Some(at) = self.parts.remove(slot) else { return };
        self.count += 1;
        if !self.emissions.is_empty() {
            self.behind.insert(slot.0);
        }
        self.effects.remove(at);
        for emitted in self.emissions.iter_mut().filter(|emitted| emitted.after > at) {
            emitted.after -= 1;
        }
        for later in self.parts.values_mut().filter(|later| **later > at) {
            *later -= 1;
        }
    }

    /// The methods that were called on a set or deque, or the hits of a cached function, if any were noted.
    pub fn calls(&mut self, slot: &Slot) -> Option<&mut Vec<MethodCall>> {
        match &mut self.effects[*self.parts.get(slot)?].part {
            Part::Calls(calls) => Some(calls),
            _ => None,
        }
    }

    /// An iterator whose position is among the parts is advanced once more.
    pub fn advance(&mut self, slot: &Slot) {
        if let Some(at) = self.parts.get(slot)
            && let Part::Advanced(times) = &mut self.effects[*at].part
        {
            *times += 1;
        }
    }

    /// A dictionary is written to.
    pub fn add_dict(&mut self, address: usize) {
        self.dicts.insert(address, ());
    }

    /// The keys of a dictionary change, or their order; `keys` says what they were before.
    pub fn rekey(&mut self, address: usize, keys: impl FnOnce() -> Keys) {
        self.rekeyed.entry(address).or_insert_with(keys);
    }

    /// A key of such a dictionary is deleted.
    pub fn delete_key(&mut self, slot: &Slot) {
        if let Some(keys) = self.rekeyed.get_mut(&slot.0) {
            keys.deleted.insert(slot.1);
        }
    }

    /// An attribute of a class is written: class and name.
    pub fn add_class(&mut self, slot: Slot) {
        self.classes.push(slot);
    }

    /// A warning or a log record was given, where the graph has `nodes` nodes.
    pub fn tell(&mut self, emitted: Emitted, nodes: usize) {
        self.first.get_or_insert(nodes);
        self.emissions.push(emitted);
    }

    /// Takes back the effects behind the first so many. What was written stays known.
    pub fn withdraw(&mut self, parts: usize) -> Vec<Effect> {
        let withdrawn = self.effects.split_off(parts.min(self.effects.len()));
        for effect in &withdrawn {
            self.parts.remove(&effect.slot());
        }
        let kept: FxHashSet<usize> = self.effects.iter().map(|effect| effect.slot().0).collect();
        self.rekeyed.retain(|dict, _| kept.contains(dict));
        withdrawn
    }

    /// The effects so far.
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// The dictionaries whose keys have changed so far, with the keys before that.
    pub fn rekeyed(&self) -> &FxHashMap<usize, Keys> {
        &self.rekeyed
    }

    /// The effects, in the order of the first write to each part, and the dictionaries whose keys have changed,
    /// with the keys before that.
    pub fn take_effects(&mut self) -> (Vec<Effect>, FxHashMap<usize, Keys>) {
        (std::mem::take(&mut self.effects), std::mem::take(&mut self.rekeyed))
    }

    /// The warnings and log records.
    pub fn take_emissions(&mut self) -> Vec<Emitted> {
        std::mem::take(&mut self.emissions)
    }

    /// The warnings and log records are still to be given: they were taken for an exit.
    pub fn keep_emissions(&mut self, emissions: Vec<Emitted>) {
        self.emissions = emissions;
    }
}
