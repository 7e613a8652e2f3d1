//! Functions and instances that the trace has made and nodes are given: hooks of tensors, what is checkpointed.
//!
//! A replay makes such an object by nodes of its own, before the node that is given it, and its cells, lists and
//! dictionaries with it. From there on all that speaks of them, recipes too, means what these nodes gave.
//!
//! A replay makes them as they were when they were given. So the trace may not change what they hold afterwards: it
//! ends where it's seen that it did. Code within a node may, as a replay runs it again; then nobody else may look.

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use stator_cpython::heap::dict::{self, Peek};
use stator_cpython::heap::function::{Field, value};
use stator_cpython::object::{Borrowed, Object};
use stator_graph::{NodeId, Value};
use stator_guards::SourceId;

use super::heap;
use super::state::{Noted, State};
use crate::breaks::Reason;

/// What the trace has made by nodes, and keeps alive: nothing else comes to its address.
#[derive(Default)]
pub struct Given {
    nodes: FxHashMap<usize, NodeId>,
    kept: Vec<Held>,
    /// Those that are being made: none holds itself.
    begun: FxHashSet<usize>,
}

/// One of them, and what it held when it was given.
struct Held {
    object: Py<PyAny>,
    contents: Vec<Py<PyAny>>,
    /// Whether it's an instance of a class of the program's.
    is_instance: bool,
}

impl Held {
    fn of(object: Borrowed<'_, '_>, is_instance: bool) -> Self {
        let mut held =
            Self { object: object.to_owned().unbind(), contents: Vec::new(), is_instance };
        held.contents = held.contents_now(object.py()).into_iter().map(Bound::unbind).collect();
        held
    }

    fn contents_now<'py>(&self, py: Python<'py>) -> Vec<Object<'py>> {
        let object = self.object.bind_borrowed(py);
        if self.is_instance { instance_contents(object) } else { contents(object) }
    }

    fn is_as_given(&self, py: Python<'_>) -> bool {
        let now = self.contents_now(py);
        now.len() == self.contents.len()
            && now.iter().zip(&self.contents).all(|(now, before)| before.is(now))
    }
}

/// What of a function may be changed, its attributes aside.
const FUNCTION: [Field; 7] = [
    Field::Code,
    Field::Defaults,
    Field::KwDefaults,
    Field::Qualname,
    Field::Doc,
    Field::Module,
    Field::Annotations,
];

/// What an object holds and may be changed.
fn contents<'py>(object: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    if value(object, Field::Code).is_some() {
        let mut found: Vec<_> = FUNCTION.iter().filter_map(|field| value(object, *field)).collect();
        if let Peek::Dict(dict) = dict::peek_instance_dict(object) {
            found.extend(heap::plain_parts(dict.as_borrowed()));
        }
        return found;
    }
    if value(object, Field::PartialFunc).is_some() {
        let (function, args, keywords) = heap::partial_parts(object);
        let mut found = vec![function, args];
        found.extend(heap::plain_parts(keywords.as_borrowed()));
        return found;
    }
    match value(object, Field::CellContents) {
        Some(held) => vec![held],
        None => heap::plain_parts(object),
    }
}

/// What an instance holds, and its class.
fn instance_contents<'py>(object: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    let mut found = vec![object.get_type().into_any()];
    if let Peek::Dict(dict) = dict::peek_instance_dict(object) {
        found.push(dict.clone());
        found.extend(heap::plain_parts(dict.as_borrowed()));
    }
    found.extend(heap::slot_values(object).into_iter().flat_map(|(slot, value)| [slot, value]));
    found
}

impl Given {
    /// What such objects held when they were given.
    pub fn held<'a, 'py>(&'a self, py: Python<'py>) -> impl Iterator<Item = Object<'py>> + 'a
    where
        'py: 'a,
    {
        self.kept.iter().flat_map(|held| &held.contents).map(move |held| held.bind(py).clone())
    }

    /// The objects.
    pub fn objects<'a, 'py>(&'a self, py: Python<'py>) -> impl Iterator<Item = Object<'py>> + 'a
    where
        'py: 'a,
    {
        self.kept.iter().map(move |held| held.object.bind(py).clone())
    }

    /// An object is about to be made; false: it is being made already, and holds itself.
    pub fn begin(&mut self, address: usize) -> bool {
        self.begun.insert(address)
    }

    /// It is made, or can't be.
    pub fn end(&mut self, address: usize) {
        self.begun.remove(&address);
    }

    /// The node that makes an object.
    #[inline]
    pub fn node(&self, object: Borrowed<'_, '_>) -> Option<NodeId> {
        if self.nodes.is_empty() {
            return None;
        }
        self.nodes.get(&(object.as_ptr() as usize)).copied()
    }

    /// A node makes an object, which is kept.
    pub fn add(&mut self, object: Borrowed<'_, '_>, node: NodeId) {
        self.nodes.insert(object.as_ptr() as usize, node);
        self.kept.push(Held::of(object, false));
    }

    /// A node makes an instance of a class of the program's, which others fill.
    pub fn add_instance(&mut self, object: Borrowed<'_, '_>, node: NodeId) {
        self.nodes.insert(object.as_ptr() as usize, node);
        self.kept.push(Held::of(object, true));
    }

    /// A call hands over an object from outside as it is; its address, unless that is known already.
    pub fn lend(&mut self, object: Borrowed<'_, '_>, node: NodeId) -> Option<usize> {
        let address = object.as_ptr() as usize;
        if self.nodes.contains_key(&address) {
            return None;
        }
        self.nodes.insert(address, node);
        Some(address)
    }

    /// The call has ended for which these were [lent](Given::lend).
    pub fn take_back(&mut self, lent: &[usize]) {
        lent.iter().for_each(|address| _ = self.nodes.remove(address));
    }

    /// Fails if anything holds something else than when it was given.
    pub fn check(&self, py: Python<'_>) -> Noted<()> {
        match self.kept.iter().find(|held| !held.is_as_given(py)) {
            Some(held) => {
                let what = heap::type_name(held.object.bind_borrowed(py));
                Err((Reason::OutsideWrite, format!("a write to a {what} that a node was given")))
            }
            None => Ok(()),
        }
    }

    /// Code within a node has ended: the addresses of what it has changed, which is known as it is now.
    pub fn changed(&mut self, py: Python<'_>) -> Vec<usize> {
        let mut changed = Vec::new();
        for held in &mut self.kept {
            if !held.is_as_given(py) {
                *held = Held::of(held.object.bind_borrowed(py), held.is_instance);
                changed.push(held.object.as_ptr() as usize);
            }
        }
        changed
    }

    /// Nodes from this one on are withdrawn.
    pub fn withdraw(&mut self, from: usize) {
        self.nodes.retain(|_, node| node.index() < from);
        let nodes = &self.nodes;
        self.kept.retain(|held| nodes.contains_key(&(held.object.as_ptr() as usize)));
    }
}

impl State {
    /// The node of an outside object that a node is given as it is.
    pub fn object_node(&mut self, source: SourceId) -> NodeId {
        if let Some(node) = self.inputs.node(source) {
            return node;
        }
        let node = self.graph.unnamed_placeholder(Value::Unknown);
        self.inputs.add(source, node);
        node
    }

    /// A cell, list, dictionary or instance of the trace's own is about to be written.
    pub fn write_own(&mut self, object: Borrowed<'_, '_>) -> Noted<()> {
        self.look_enclosed(object.as_ptr() as usize);
        if self.enclosed.is_on() || self.given.node(object).is_none() {
            return Ok(());
        }
        let what = heap::type_name(object);
        Err((Reason::OutsideWrite, format!("a write to a {what} that a node was given")))
    }
}
