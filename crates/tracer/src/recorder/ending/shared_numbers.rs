//! What a recorded call leaves behind holds the objects that CPython has for numbers, not those of the trace.
//!
//! A symbolic number is an object that nobody else has. A replay hands out plain numbers, and so must the call that is
//! recorded: `is` between two small ints is true in Python, and an argument that was kept somewhere is found there as
//! itself. Frames that stand at a break go on holding theirs: the next trace knows its symbols by them. C code that is at
//! work there may have borrowed what is taken out here, so all of that lives until the recording is over.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple, PyType};
use stator_cpython::heap::container::{
    deque_items, exchange_tuple_item, is_deque, is_set, set_items,
};
use stator_cpython::heap::dict::{self, Peek};
use stator_cpython::heap::exchange;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{generic, ops};

use super::outcome::Finish;
use crate::recorder::notes::effects::{Effect, Part};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::State;

impl State {
    /// The object that the program would find where it finds a number, or a tuple, of the trace's own. `None`: it's no
    /// such object, or CPython would make one here, too.
    fn shared<'py>(&self, object: Borrowed<'_, 'py>) -> Option<Object<'py>> {
        if self.stands_for(object) != object.as_ptr() as usize {
            self.plain(&object.to_owned()).filter(|plain| !plain.is(object))
        } else if self.has_own_object(object) {
            generic::shared_int(object)
        } else {
            None
        }
    }
}

impl Finish<'_> {
    /// As [`State::shared`] of what is about to be taken out of where it is. What stands in two places stays one object.
    fn shared<'py>(&mut self, held: Borrowed<'_, 'py>) -> Option<Object<'py>> {
        let address = held.as_ptr() as usize;
        if let Some(shared) = self.exchanged_for.get(&address) {
            return Some(shared.bind(held.py()).clone());
        }
        let shared = self.state.shared(held)?;
        self.exchanged.push(held.to_owned().unbind());
        self.exchanged_for.insert(address, shared.clone().unbind());
        Some(shared)
    }

    /// Exchanges numbers of the trace's own in what it wrote and in what it made.
    pub(in crate::recorder) fn share_numbers(&mut self, py: Python<'_>, effects: &[Effect]) {
        if !self.state.has_symbols() {
            return;
        }
        for effect in effects {
            self.share_in_part(py, effect);
        }
        for object in std::mem::take(&mut self.visited) {
            self.share_within(object.bind_borrowed(py));
        }
    }

    fn share_in_part(&mut self, py: Python<'_>, effect: &Effect) {
        let object = effect.object.bind_borrowed(py);
        match &effect.part {
            Part::Item { key, .. } => {
                let key = key.bind_borrowed(py);
                self.share_at(object, key);
                if generic::small_int(key).is_some() || key.is_instance_of::<PyTuple>() {
                    self.share_keys(object);
                }
            }
            Part::Cell => self.share_in_cell(object),
            Part::Member(name) => {
                let held = heap::slot_values(object).into_iter().find(|(descriptor, _)| {
                    descriptor.getattr("__name__").is_ok_and(|known| known.is(name.bind(py)))
                });
                if let Some((descriptor, value)) = held {
                    self.share_in_slot(object, &descriptor, &value);
                }
            }
            Part::ClassAttribute(name) => {
                let Ok(class) = object.cast::<PyType>() else { return };
                let name = name.bind_borrowed(py);
                let held = generic::class_value(&class, name);
                if let Some(plain) = held.and_then(|held| self.shared(held.as_borrowed())) {
                    let _ = generic::set_class_attr(&class, name, plain.as_borrowed());
                }
            }
            Part::Elements | Part::Added { .. } => self.share_in_list(object),
            Part::Calls(_) if is_deque(object) => self.share_in_deque(object),
            Part::Calls(_) => self.share_in_set(object),
            _ => {}
        }
    }

    /// As it is stored: no code of the user's runs.
    fn share_within(&mut self, object: Borrowed<'_, '_>) {
        if object.is_instance_of::<PyList>() {
            self.share_in_list(object);
        } else if dict::is_dict(object) {
            for (key, value) in dict::items(object).unwrap_or_default() {
                if self.state.shared(value.as_borrowed()).is_some() {
                    self.share_at(object, key.as_borrowed());
                }
            }
            self.share_keys(object);
        } else if is_set(object) {
            self.share_in_set(object);
        } else if self.state.kind_alone(object) == Kind::Cell {
            self.share_in_cell(object);
        } else if is_deque(object) {
            self.share_in_deque(object);
        } else if object.is_instance_of::<PyTuple>() {
            for (index, item) in heap::tuple_items(object).iter().enumerate() {
                if let Some(plain) = self.shared(item.as_borrowed()) {
                    exchange_tuple_item(object, index, plain);
                }
            }
        }
        for held in exchange::bounds(object) {
            if let Some(plain) = self.shared(held.as_borrowed()) {
                exchange::bound(object, held.as_borrowed(), &plain);
            }
        }
        if object.is_instance_of::<PyType>() {
            return;
        }
        for (descriptor, value) in heap::slot_values(object) {
            self.share_in_slot(object, &descriptor, &value);
        }
        if let Peek::Dict(attributes) = dict::peek_instance_dict(object) {
            self.share_within(attributes.as_borrowed());
        }
    }

    fn share_in_slot(&mut self, object: Borrowed<'_, '_>, member: &Object<'_>, held: &Object<'_>) {
        if let Some(plain) = self.shared(held.as_borrowed()) {
            let _ = member.call_method1("__set__", (object, plain));
        }
    }

    /// The value at a key that needs nobody's `__hash__`.
    fn share_at(&mut self, dict: Borrowed<'_, '_>, key: Borrowed<'_, '_>) {
        if key.is_exact_instance_of::<PyString>() || heap::is_constant(key) {
            let held = heap::dict_get(dict, key);
            if let Some(plain) = held.and_then(|held| self.shared(held.as_borrowed())) {
                let _ = dict::set_item(dict, key, Some(plain.as_borrowed()));
            }
        }
    }

    fn share_keys(&mut self, dict: Borrowed<'_, '_>) {
        for key in dict::stored_keys(dict) {
            if let Some(plain) = self.shared(key.as_borrowed()) {
                exchange::key(dict, key.as_borrowed(), plain);
            } else if key.is_instance_of::<PyTuple>() {
                self.share_within(key.as_borrowed());
            }
        }
    }

    fn share_in_set(&mut self, set: Borrowed<'_, '_>) {
        for element in set_items(set).unwrap_or_default() {
            if let Some(plain) = self.shared(element.as_borrowed()) {
                exchange::element(set, element.as_borrowed(), plain);
            }
        }
    }

    fn share_in_cell(&mut self, cell: Borrowed<'_, '_>) {
        let held = ops::load_cell(cell);
        if let Some(plain) = held.and_then(|held| self.shared(held.as_borrowed())) {
            ops::store_cell(cell, Some(plain));
        }
    }

    fn share_in_list(&mut self, list: Borrowed<'_, '_>) {
        let Ok(elements) = list.cast::<PyList>() else { return };
        for (index, item) in heap::list_items(list).iter().enumerate() {
            if let Some(plain) = self.shared(item.as_borrowed()) {
                let _ = elements.set_item(index, plain);
            }
        }
    }

    fn share_in_deque(&mut self, deque: Borrowed<'_, '_>) {
        for (index, item) in deque_items(deque).unwrap_or_default().iter().enumerate() {
            if let Some(plain) = self.shared(item.as_borrowed()) {
                let _ = deque.set_item(index, plain);
            }
        }
    }
}
