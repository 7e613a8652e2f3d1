//! Instances of the program's classes that the trace has made, as nodes are given them: made empty and filled by a second
//! node, so that they may hold themselves. No code of the class's runs.

use pyo3::prelude::*;
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::set_table::Table;
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};
use stator_graph::{Arg, NodeId, Value};

use crate::breaks::Reason;
use crate::recipe::{Storage, instances};
use crate::recorder::notes::above::Arguments;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, State};

impl State {
    /// The node that makes an object of a class that isn't the builtin one of its kind, or a set; `None`: it can't be made
    /// by a node.
    pub(super) fn make_instance(
        &mut self,
        object: Borrowed<'_, '_>,
        kind: Kind,
        frame: &Frame<'_>,
    ) -> Noted<Option<NodeId>> {
        let ty = object.get_type();
        let class = ty.as_any().as_borrowed();
        // A class that the trace has made is another one in each call.
        let is_known = types::is_immutable(ty.as_borrowed()) || self.source(class).is_some();
        if !is_known || types::has_finalizer(ty.as_borrowed()) {
            return Ok(None);
        }
        let refused = |error: PyErr| (Reason::Machinery, error.to_string());
        match kind {
            Kind::Set if is_laid_out_anew(object) => {
                let items = self.give_all(&heap::set_items(object), frame)?;
                let items = self.graph.list(&items);
                Ok(Some(self.made_by(class, "set", &[items], frame)))
            }
            Kind::Tuple => {
                let Some(new) = instances::tuple_new(&ty).map_err(refused)? else {
                    return Ok(None);
                };
                let has_attributes = heap::instance_dict(object)
                    .is_some_and(|dict| heap::dict_length(dict.as_borrowed()) > 0);
                if has_attributes {
                    return Ok(None);
                }
                let own = self.graph_arg(class)?;
                let items = self.give_all(&heap::tuple_items(object), frame)?;
                let items = self.graph.tuple(&items);
                Ok(Some(self.made_by(new.as_borrowed(), "tuple", &[own, items], frame)))
            }
            Kind::Dict if Storage::OrderedDict.is_of(ty.as_any().as_borrowed()) => {
                // It has an order beside that of its table.
                let items = heap::dict_items(object);
                if items.len() > 1
                    || !items.iter().all(|(key, _)| heap::is_constant(key.as_borrowed()))
                {
                    return Ok(None);
                }
                let items = self.give_items(object, frame)?;
                Ok(Some(self.made_by(class, "dict", &[items], frame)))
            }
            Kind::Object => {
                let Some(new) = instances::new(&ty).map_err(refused)? else { return Ok(None) };
                let node = match new {
                    instances::New::Class => self.made_by(class, "instance", &[], frame),
                    instances::New::Function(new) => {
                        let own = self.graph_arg(class)?;
                        self.made_by(new.as_borrowed(), "instance", &[own], frame)
                    }
                };
                // Its dictionary is there from here on; it may hold itself.
                let dict = heap::instance_dict(object);
                self.given.add_instance(object, node);
                let filled = self.fill_instance(object, dict, node, frame);
                if !matches!(filled, Ok(true)) {
                    // Nobody may take what is half made for it.
                    self.given.withdraw(node.index());
                }
                filled.map(|is_filled| is_filled.then_some(node))
            }
            _ => Ok(None),
        }
    }

    /// Gives an instance what it holds, by a node; false: that can't be given. The node gives the instance's dictionary.
    fn fill_instance<'py>(
        &mut self,
        object: Borrowed<'_, 'py>,
        dict: Option<Object<'py>>,
        node: NodeId,
        frame: &Frame<'_>,
    ) -> Noted<bool> {
        let mut args: SmallVec<[Arg; 8]> = SmallVec::from_slice(&[Arg::Node(node)]);
        args.push(match &dict {
            Some(dict) => {
                let mut items = heap::dict_items(dict.as_borrowed()).into_iter();
                if !items.all(|(key, _)| heap::is_constant(key.as_borrowed())) {
                    return Ok(false);
                }
                self.give_items(dict.as_borrowed(), frame)?
            }
            None => Arg::NONE,
        });
        for (slot, value) in heap::slot_values(object) {
            let slot = Arg::Object(self.graph_object(slot.as_borrowed(), || "slot".into()));
            let value = self.give(value.as_borrowed(), frame)?;
            args.push(self.graph.tuple(&[slot, value]));
        }
        let fill = instances::fill(object.py());
        let fill = fill.map_err(|error| (Reason::Machinery, error.to_string()))?;
        let filled = self.made_by(fill.as_borrowed(), "fill", &args, frame);
        match dict {
            Some(dict) => {
                let dict = dict.as_borrowed();
                if self.origin(dict).is_none() {
                    self.set_fresh(dict);
                }
                self.given.add(dict, filled);
            }
            None => self.graph.set_value(filled, Value::Nothing),
        }
        Ok(true)
    }
}

/// Whether a set that is made of the elements of this one is laid out like it.
fn is_laid_out_anew(set: Borrowed<'_, '_>) -> bool {
    heap::set_items(set).iter().all(|item| heap::is_constant(item.as_borrowed()))
        && Table::of(set).is_ok_and(|table| table.is_none())
}
