//! Writes that nodes make: before code of the program's own runs within a node, a replay writes what the trace has written
//! up to there, so that such code finds it. All else is written when the graph has run.
//!
//! A part is written early if its value is the same in each replay, or a tensor or number of the graph, or an object from
//! outside; and an object, if all of its written parts are. What a node has written can't be taken back: it counts as
//! code of the program's own, as the node does before which it stands.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::{container, dict};
use stator_cpython::object::{Borrowed, Object};
use stator_graph::{Arg, Value};

use super::enclosing::tensors_in;
use crate::breaks::Reason;
use crate::effects::Early;
use crate::raises::EARLY;
use crate::recorder::notes::above::Arguments;
use crate::recorder::notes::effects::{Effect, Last, Part};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, Origin, State};

/// Of longer lists the elements aren't written by a node.
const MOST: usize = 64;

impl State {
    /// Code of the program's own is about to run within a node.
    pub fn write_early(&mut self, frame: &Frame<'_>) -> Noted<()> {
        let is_plain = self.written.emissions().is_empty() && self.claims.locks.is_empty();
        if self.written.effects().is_empty()
            || !is_plain
            || self.enclosed.is_on()
            || self.program.is_some()
        {
            return Ok(());
        }
        let py = frame.py();
        let effects = self.effects_so_far(py);
        let address = |effect: &Effect| effect.object.as_ptr() as usize;
        let mut left = FxHashSet::default();
        for effect in &effects {
            if !self.may_be_early(py, effect) {
                left.insert(address(effect));
            }
        }
        for effect in effects.iter().filter(|effect| !left.contains(&address(effect))) {
            let values = match effect.last(py) {
                Last::Value(value) => vec![value],
                Last::Elements(items) => items,
                _ => Vec::new(),
            };
            self.write_part(frame, effect)?;
            let mut tensors = Vec::new();
            values.iter().for_each(|value| tensors_in(self, value.as_borrowed(), &mut tensors));
            let tensors = tensors.into_iter().map(Bound::unbind);
            self.written.write_early(&effect.slot(), tensors);
        }
        Ok(())
    }

    fn may_be_early(&mut self, py: Python<'_>, effect: &Effect) -> bool {
        let object = effect.object.bind_borrowed(py);
        let address = object.as_ptr() as usize;
        match &effect.part {
            Part::Item { key, .. } => {
                let rekeyed = self.written.rekeyed().get(&address);
                let is_ordered = rekeyed.is_some_and(|keys| keys.ordered.is_some());
                let key = key.bind_borrowed(py);
                let is_known = heap::is_constant(key) && !self.has_open_key(object, key)
                    || self.key_source(key).is_some();
                // A new entry has the key that it was made with.
                let is_other = rekeyed.is_some() && dict::valued_key(object, key).is_some();
                if is_ordered || !is_known || is_other {
                    return false;
                }
            }
            Part::Cell | Part::Member(_) | Part::ClassAttribute(_) | Part::Elements => {}
            Part::Added { dropped, .. } => {
                let is_asked = self.unread.get(&address).is_none_or(|unread| unread.is_asked);
                if *dropped > 0 || is_asked {
                    return false;
                }
            }
            _ => return false,
        }
        match effect.last(py) {
            Last::Value(value) => self.may_show(value.as_borrowed()),
            Last::Nothing => true,
            Last::Elements(items) => {
                items.len() <= MOST && items.iter().all(|item| self.may_show(item.as_borrowed()))
            }
            _ => false,
        }
    }

    /// Whether a node can be given an object that nothing changes afterwards but code that everybody sees.
    fn may_show(&mut self, value: Borrowed<'_, '_>) -> bool {
        if self.number(value).is_some() || self.given.node(value).is_some() {
            return true;
        }
        let address = value.as_ptr() as usize;
        if self.unread.contains_key(&address) || self.enclosed.hides(address) {
            return false;
        }
        match self.kind_alone(value) {
            Kind::Tensor => match self.origin(value) {
                Some(Origin::Node(node)) => !self.graph.is_withdrawn(node),
                Some(Origin::Source(_)) => true,
                _ => false,
            },
            Kind::Constant => self.text_node(value).is_none() && !self.holds_number(value),
            Kind::Tuple if heap::is_plain_tuple(value) => {
                heap::tuple_items(value).iter().all(|item| self.may_show(item.as_borrowed()))
            }
            _ => self.source(value).is_some(),
        }
    }

    /// As [`State::give`] of what is written. Others may hold it, too, and so may another part, or the result: a tuple is one
    /// object, the one from outside, or one that a node makes in each replay.
    fn show(&mut self, value: Borrowed<'_, '_>, frame: &Frame<'_>) -> Noted<Arg> {
        let is_tuple = self.kind(value) == Kind::Tuple && heap::is_plain_tuple(value);
        match self.origin(value) {
            _ if !is_tuple || self.given.node(value).is_some() => self.give(value, frame),
            Some(Origin::Source(source)) => Ok(Arg::Node(self.object_node(source))),
            Some(Origin::Fresh) if value.is_exact_instance_of::<PyTuple>() => {
                let items = self.show_all(&heap::tuple_items(value), frame)?;
                let items = self.graph.list(&items);
                let class = value.get_type();
                let node = self.made_by(class.as_any().as_borrowed(), "tuple", &[items], frame);
                self.given.add(value, node);
                Ok(Arg::Node(node))
            }
            // Out of a code object's constants.
            None if heap::is_constant(value) && !self.holds_new_nan(value) => {
                Ok(Arg::Object(self.graph_object(value, || heap::short_repr(value))))
            }
            _ => self.give(value, frame),
        }
    }

    fn show_all(&mut self, values: &[Object<'_>], frame: &Frame<'_>) -> Noted<SmallVec<[Arg; 8]>> {
        values.iter().map(|value| self.show(value.as_borrowed(), frame)).collect()
    }

    /// A key as a node is given it: a constant, or an object that is found outside.
    pub(super) fn key_arg(&mut self, key: Borrowed<'_, '_>) -> Noted<Arg> {
        match self.key_source(key) {
            Some(source) if self.kind_alone(key) == Kind::Object => {
                Ok(Arg::Node(self.object_node(source)))
            }
            _ => self.graph_arg(key),
        }
    }

    /// The node that writes a part as it is now.
    fn write_part(&mut self, frame: &Frame<'_>, effect: &Effect) -> Noted<()> {
        let py = frame.py();
        let address = effect.object.as_ptr() as usize;
        let (part, key) = match &effect.part {
            Part::Item { key, moves } => {
                let part = if *moves { Early::MovedItem } else { Early::Item };
                (part, self.key_arg(key.bind_borrowed(py))?)
            }
            Part::Cell => (Early::Cell, Arg::NONE),
            Part::Member(name) => (Early::Member, self.graph_arg(name.bind_borrowed(py))?),
            Part::ClassAttribute(name) => {
                (Early::ClassAttribute, self.graph_arg(name.bind_borrowed(py))?)
            }
            Part::Elements => (Early::Elements, Arg::NONE),
            _ => (Early::Added, Arg::NONE),
        };
        let object = Arg::Node(self.object_node(effect.source));
        let name = self.graph.str(part.name());
        let mut args: SmallVec<[Arg; 4]> = SmallVec::from_slice(&[object, name, key]);
        match effect.last(py) {
            Last::Value(value) => args.push(self.show(value.as_borrowed(), frame)?),
            Last::Elements(items) => {
                let items = self.show_all(&items, frame)?;
                args.push(self.graph.list(&items));
            }
            _ => {}
        }
        let write =
            Early::function(py).map_err(|error| (Reason::Unsupported, error.to_string()))?;
        self.seen_target(write.as_borrowed(), EARLY.into());
        let node = self.called(frame, write.as_borrowed(), EARLY.into(), &args);
        self.graph.set_value(node, Value::Nothing);
        if part == Early::Added
            && let Some(unread) = self.unread.get_mut(&address)
        {
            unread.early = container::list_length(effect.object.bind_borrowed(py));
        }
        Ok(())
    }
}
