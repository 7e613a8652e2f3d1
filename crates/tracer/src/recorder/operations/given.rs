//! What nodes are given that run code of the program's own: functions that the trace has made are made by nodes (`notes::given`).

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::dict::{self, Peek};
use stator_cpython::heap::tensor::{Memory, memory};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops;
use stator_graph::{Arg, NodeId, Operator, Target, Value};
use stator_guards::SourceId;

use crate::breaks::Reason;
use crate::raises::{MADE, SIZE};
use crate::recorder::notes::above::Arguments;
use crate::recorder::notes::call::library;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, Origin, State};
use crate::recorder::notes::type_hints;

/// What a function has that its constructor is given neither.
const TOLD: [&str; 3] = ["__qualname__", "__doc__", "__module__"];

impl State {
    /// An object as a node is given it that runs code: functions of the trace's own are made by nodes.
    pub fn give(&mut self, object: Borrowed<'_, '_>, frame: &Frame<'_>) -> Noted<Arg> {
        if let Some(node) = self.given.node(object) {
            return Ok(Arg::Node(node));
        }
        if self.number(object).is_some() {
            return self.graph_arg(object);
        }
        match self.kind(object) {
            Kind::Tuple if heap::is_plain_tuple(object) => {
                let items = self.give_all(&heap::tuple_items(object), frame)?;
                let items = self.graph.tuple(&items);
                if object.is_exact_instance_of::<PyTuple>() {
                    return Ok(items);
                }
                // A `torch.Size` is asked for more than its elements.
                let class = object.get_type();
                let node = self.made_by(class.as_any().as_borrowed(), SIZE, &[items], frame);
                self.given.add(object, node);
                Ok(Arg::Node(node))
            }
            Kind::Tensor
            | Kind::Constant
            | Kind::Type
            | Kind::Singleton
            | Kind::Module
            | Kind::Slice
            | Kind::TorchCallable => self.graph_arg(object),
            Kind::Builtin if !self.is_own_method(object) => self.graph_arg(object),
            // What a transform has given.
            Kind::Function if let Some(Origin::Handle(node)) = self.origin(object) => {
                Ok(Arg::Node(node))
            }
            kind => match self.outside(object, kind, frame) {
                Some(source) => {
                    let node = self.object_node(source);
                    let is_container = matches!(kind, Kind::Tuple | Kind::List | Kind::Dict);
                    if is_container && !heap::is_exact_container(object) {
                        // It's more than its elements.
                        self.given.add(object, node);
                    }
                    Ok(Arg::Node(node))
                }
                // Equal ones are as good: annotations of a function of the trace's.
                None if type_hints::is_hint(object) => {
                    Ok(Arg::Object(self.graph_object(object, || "hint".into())))
                }
                None => self.give_own(object, frame),
            },
        }
    }

    /// The source of what it's given from outside.
    fn outside(
        &mut self,
        object: Borrowed<'_, '_>,
        kind: Kind,
        frame: &Frame<'_>,
    ) -> Option<SourceId> {
        match self.origin(object) {
            Some(Origin::Source(source)) => Some(source),
            // A variable of a function around this one that nobody has read.
            None if kind == Kind::Cell => self.cell_source(frame, object).ok(),
            _ => None,
        }
    }

    /// As [`State::give`] of several objects.
    pub fn give_all(
        &mut self,
        objects: &[Object<'_>],
        frame: &Frame<'_>,
    ) -> Noted<SmallVec<[Arg; 8]>> {
        objects.iter().map(|object| self.give(object.as_borrowed(), frame)).collect()
    }

    /// What code within a node has put into lists, dictionaries and cells that it was given, the trace takes out by
    /// nodes, where it can: nobody may look at the others.
    pub fn take_out(&mut self, frame: &Frame<'_>) -> Noted<()> {
        if self.enclosed.is_on() || self.has_symbols() {
            return Ok(());
        }
        let kept = self.given.objects(frame.py());
        let has_changed = |object: &Object<'_>| self.enclosed.has_changed(object.as_ptr() as usize);
        let changed: Vec<_> = kept.filter(has_changed).collect();
        for object in &changed {
            if self.take_parts(object.as_borrowed(), frame)? {
                self.enclosed.show(object.as_ptr() as usize);
            }
        }
        Ok(())
    }

    fn take_parts(&mut self, object: Borrowed<'_, '_>, frame: &Frame<'_>) -> Noted<bool> {
        let Some(node) = self.given.node(object) else { return Ok(false) };
        let mut parts = Vec::new();
        let item = Target::Operator(Operator::GetItem);
        match self.kind_alone(object) {
            Kind::List => {
                for (index, value) in (0..).zip(heap::list_items(object)) {
                    parts.push((item, Some(Arg::int(index)), value));
                }
            }
            Kind::Dict => {
                for (key, value) in heap::dict_items(object) {
                    if !heap::is_constant(key.as_borrowed()) {
                        return Ok(false);
                    }
                    parts.push((item, Some(self.graph_arg(key.as_borrowed())?), value));
                }
            }
            Kind::Cell => {
                let name = self.graph.intern("cell_contents");
                let held = ops::load_cell(object);
                parts.extend(held.map(|value| (Target::GetAttr { name }, None, value)));
            }
            _ => return Ok(false),
        }
        if !parts.iter().all(|(.., value)| self.may_take(value.as_borrowed())) {
            return Ok(false);
        }
        for (target, key, value) in parts {
            if self.kind_alone(value.as_borrowed()) == Kind::Tensor
                && !self.is_of_trace(value.as_borrowed())
            {
                let args: SmallVec<[Arg; 2]> = [Arg::Node(node)].into_iter().chain(key).collect();
                let stack = self.place(frame);
                let taken = self.graph.call(target, &args, stack);
                self.bind_result(taken, value.as_borrowed(), &[])?;
            }
        }
        Ok(true)
    }

    /// Reads an entry of an outside dictionary that code within a node has left there; false: it can't be read by a node.
    pub(super) fn take_entry(
        &mut self,
        dict: Borrowed<'_, '_>,
        source: SourceId,
        key: Borrowed<'_, '_>,
        value: Borrowed<'_, '_>,
    ) -> Noted<bool> {
        let slot = (dict.as_ptr() as usize, key.as_ptr() as usize);
        let is_left = self.enclosed.left().contains(&slot);
        if !is_left || self.enclosed.is_on() || self.has_symbols() || !heap::is_exact_dict(dict) {
            return Ok(false);
        }
        let is_known = heap::is_constant(key) || self.key_source(key).is_some();
        if !is_known || !self.may_take(value) {
            return Ok(false);
        }
        if self.kind_alone(value) == Kind::Tensor && !self.is_of_trace(value) {
            let args = [Arg::Node(self.object_node(source)), self.key_arg(key)?];
            let taken = self.graph.call(Target::Operator(Operator::GetItem), &args, None);
            self.bind_result(taken, value, &[])?;
        }
        Ok(true)
    }

    /// Reads an element of an outside list that code within a node has put there; false: it can't be read by a node. Where
    /// that has only added to the list, places are counted from the end.
    pub(super) fn take_element(
        &mut self,
        list: Borrowed<'_, '_>,
        source: SourceId,
        index: i64,
        value: Borrowed<'_, '_>,
    ) -> Noted<bool> {
        let address = list.as_ptr() as usize;
        let is_whole = self.enclosed.lists.get(&address).copied();
        let is_open = is_whole.is_some_and(|is_whole| is_whole || index < 0)
            && !self.enclosed.is_on()
            && !self.enclosed.has_changed(address)
            && !self.has_symbols();
        if !is_open || self.kind_alone(value) != Kind::Tensor || self.shares_input(value) {
            return Ok(false);
        }
        match self.origin(value) {
            Some(Origin::Node(node)) if self.graph.is_withdrawn(node) => {
                let args = [Arg::Node(self.object_node(source)), Arg::int(index)];
                let taken = self.graph.call(Target::Operator(Operator::GetItem), &args, None);
                self.bind_result(taken, value, &[])?;
                Ok(true)
            }
            // It was read before.
            Some(Origin::Node(_)) => Ok(true),
            _ => Ok(false),
        }
    }

    /// Whether the trace knows an object by itself.
    fn is_of_trace(&self, object: Borrowed<'_, '_>) -> bool {
        match self.origin(object) {
            Some(Origin::Node(node)) => !self.graph.is_withdrawn(node),
            Some(Origin::Source(_)) => true,
            _ => self.given.node(object).is_some(),
        }
    }

    /// Whether an object is the same in each replay, or a tensor. A number may have been read from one.
    fn may_take(&mut self, object: Borrowed<'_, '_>) -> bool {
        match self.kind_alone(object) {
            Kind::Tensor => self.is_of_trace(object) || !self.shares_input(object),
            Kind::Constant => object.is_none(),
            _ => self.is_of_trace(object) && !self.enclosed.hides(object.as_ptr() as usize),
        }
    }

    /// Whether a tensor has the memory of an input: who writes to it writes to that. Without an answer it may.
    fn shares_input(&self, tensor: Borrowed<'_, '_>) -> bool {
        let py = tensor.py();
        let Some(own) = memory(tensor) else { return true };
        let is_shared = |other: Option<Memory>| other.is_none_or(|other| other.start == own.start);
        let mut inputs = self.inputs.tensors().iter();
        own.start != 0 && inputs.any(|input| is_shared(memory(input.tensor.bind_borrowed(py))))
    }

    /// The node of a call that makes an object of the trace's own.
    pub fn made_by(
        &mut self,
        function: Borrowed<'_, '_>,
        name: &str,
        args: &[Arg],
        frame: &Frame<'_>,
    ) -> NodeId {
        self.called(frame, function, format!("{MADE}{name}"), args)
    }

    fn give_own<'py>(&mut self, object: Borrowed<'_, 'py>, frame: &Frame<'_>) -> Noted<Arg> {
        let address = object.as_ptr() as usize;
        if !self.given.begin(address) {
            return Err((Reason::Unsupported, "a function that holds itself".into()));
        }
        let made = self.make(object, frame);
        self.given.end(address);
        let node = made?;
        if self.origin(object).is_none() {
            self.set_fresh(object);
        }
        if self.given.node(object).is_none() {
            self.given.add(object, node);
        }
        Ok(Arg::Node(node))
    }

    fn make<'py>(&mut self, object: Borrowed<'_, 'py>, frame: &Frame<'_>) -> Noted<NodeId> {
        // All but instances are of the very classes that make them.
        let class = object.get_type();
        let class = class.as_any().as_borrowed();
        let refuse = || {
            let what = heap::type_name(object);
            Err((Reason::Machinery, format!("a call of code within a node, given a {what}")))
        };
        let kind = self.kind(object);
        let is_own = self.origin(object) == Some(Origin::Fresh)
            || self.origin(object).is_none() && kind == Kind::Dict;
        if !is_own {
            return refuse();
        }
        match kind {
            Kind::Function => self.make_function(object, frame),
            Kind::Cell => {
                let held: Vec<_> = ops::load_cell(object).into_iter().collect();
                let args = self.give_all(&held, frame)?;
                Ok(self.made_by(class, "cell", &args, frame))
            }
            Kind::List if heap::is_exact_list(object) => {
                let items = self.give_all(&heap::list_items(object), frame)?;
                let items = self.graph.list(&items);
                Ok(self.made_by(class, "list", &[items], frame))
            }
            Kind::Dict if heap::is_exact_dict(object) => {
                let mut keys = heap::dict_items(object).into_iter().map(|(key, _)| key);
                if !keys.all(|key| heap::is_constant(key.as_borrowed())) {
                    return refuse();
                }
                let items = self.give_items(object, frame)?;
                Ok(self.made_by(class, "dict", &[items], frame))
            }
            Kind::Method => {
                let (function, receiver) = heap::method_parts(object);
                let args = self.give_all(&[function, receiver], frame)?;
                Ok(self.made_by(class, "method", &args, frame))
            }
            Kind::Partial => {
                let (function, given, keywords) = heap::partial_parts(object);
                let mut args = SmallVec::<[Arg; 8]>::new();
                args.push(self.give(function.as_borrowed(), frame)?);
                args.extend(self.give_all(&heap::tuple_items(given.as_borrowed()), frame)?);
                let mut names = Vec::new();
                for (name, value) in heap::dict_items(keywords.as_borrowed()) {
                    names.push(self.graph.intern(&heap::text(name.as_borrowed())));
                    args.push(self.give(value.as_borrowed(), frame)?);
                }
                // It may be of a class of the program's.
                let class = library(object.py(), "functools", "partial")?;
                let target = self.function_target(class.as_borrowed(), format!("{MADE}partial"));
                let stack = self.place(frame);
                Ok(self.graph.call_with_keywords(target, &args, &names, stack))
            }
            _ => self.make_instance(object, kind, frame)?.map_or_else(refuse, Ok),
        }
    }

    fn make_function<'py>(
        &mut self,
        function: Borrowed<'_, 'py>,
        frame: &Frame<'_>,
    ) -> Noted<NodeId> {
        let refuse = |what: &str| {
            let name = heap::name_of(function);
            (Reason::Machinery, format!("{name}, a function with {what}, given to a node"))
        };
        let globals = heap::function_globals(function);
        let globals = globals.filter(|it| self.source(it.as_borrowed()).is_some());
        let globals = globals.ok_or_else(|| refuse("unknown globals"))?;
        let code = heap::function_code(function).ok_or_else(|| refuse("no code"))?;
        let part = |name: &str| function.getattr(name).map_err(|_| refuse("unknown parts"));
        let (name, closure) = (part("__name__")?, part("__closure__")?);
        let defaults = heap::function_defaults(function);
        let code_arg = Arg::Object(self.graph_object(code.as_borrowed(), || "code".into()));
        let mut args: SmallVec<[Arg; 8]> = SmallVec::from_slice(&[code_arg]);
        args.push(self.give(globals.as_borrowed(), frame)?);
        args.push(self.graph_arg(name.as_borrowed())?);
        args.push(match defaults {
            Some(defaults) => {
                let items = self.give_all(&heap::tuple_items(defaults.as_borrowed()), frame)?;
                self.graph.tuple(&items)
            }
            None => Arg::NONE,
        });
        if let Ok(closure) = closure.cast::<PyTuple>() {
            let items = self.give_all(&heap::tuple_items(closure.as_any().as_borrowed()), frame)?;
            args.push(self.graph.tuple(&items));
        }
        let class = function.get_type();
        let node = self.made_by(class.as_any().as_borrowed(), "function", &args, frame);
        let none = function.py().None().into_bound(function.py());
        let plain = class.call1((&code, &globals, &name, &none, &closure));
        self.make_attributes(function, &plain.map_err(|_| refuse("unknown parts"))?, node, frame)?;
        Ok(node)
    }

    /// What is set in a function when it's there. `plain`: one of the same code, in which nothing is.
    fn make_attributes<'py>(
        &mut self,
        function: Borrowed<'_, 'py>,
        plain: &Object<'py>,
        node: NodeId,
        frame: &Frame<'_>,
    ) -> Noted<()> {
        let py = function.py();
        let setattr = library(py, "builtins", "setattr")?;
        let set = |state: &mut Self, name: &str, value: Arg| {
            let args = [Arg::Node(node), state.graph.str(name), value];
            let set = state.made_by(setattr.as_borrowed(), "setattr", &args, frame);
            state.graph.set_value(set, Value::Nothing);
        };
        for name in TOLD {
            let told = |of: Borrowed<'_, 'py>| {
                let unknown = |_| (Reason::Machinery, format!("{name} of a function"));
                of.getattr(name).map_err(unknown)
            };
            let own = told(function)?;
            if !own.eq(told(plain.as_borrowed())?).unwrap_or(false) {
                let value = self.give(own.as_borrowed(), frame)?;
                set(self, name, value);
            }
        }
        let mut found = Vec::new();
        if let Some(keywords) = heap::function_kwdefaults(function) {
            found.push(("__kwdefaults__", keywords));
        }
        if let Ok(hints) = function.getattr("__annotations__")
            && !heap::dict_items(hints.as_borrowed()).is_empty()
        {
            found.push(("__annotations__", hints));
        }
        for (name, dict) in found {
            let items = self.give_items(dict.as_borrowed(), frame)?;
            set(self, name, items);
        }
        let Peek::Dict(own) = dict::peek_instance_dict(function) else { return Ok(()) };
        for (name, value) in heap::dict_items(own.as_borrowed()) {
            if !name.is_exact_instance_of::<PyString>() {
                return Err((
                    Reason::Machinery,
                    "an attribute of a function, by another name".into(),
                ));
            }
            let value = self.give(value.as_borrowed(), frame)?;
            set(self, &heap::text(name.as_borrowed()), value);
        }
        Ok(())
    }

    /// A dictionary whose values are given.
    pub(super) fn give_items(&mut self, dict: Borrowed<'_, '_>, frame: &Frame<'_>) -> Noted<Arg> {
        let mut items = SmallVec::<[(Arg, Arg); 4]>::new();
        for (key, value) in heap::dict_items(dict) {
            let key = self.graph_arg(key.as_borrowed())?;
            items.push((key, self.give(value.as_borrowed(), frame)?));
        }
        Ok(self.graph.dict(&items))
    }
}
