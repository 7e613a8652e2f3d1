//! Methods that change a container: free on what this trace made, effects on what is from outside.

use pyo3::prelude::*;
use pyo3::types::PyList;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::BinaryOp;
use stator_cpython::{Result, ops};
use stator_operators::only_adds;

use super::Recorder;
use super::dictionaries::MethodArgs;
use super::effects::{CONTENTS, Call};
use super::identity::is_nan;
use super::kinds::Kind;
use super::look as heap;
use super::state::{Origin, State, Stop};
use super::tensors::holds_tensor;
use crate::breaks::Reason;
use crate::functions::Traits;

impl Recorder {
    /// A method that changes its receiver.
    pub(super) fn container_write<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        receiver: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
        names: Option<Borrowed<'_, 'py>>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        let name = heap::callable_name(callable);
        let given = self.note(frame, |state| state.given_value(&name, receiver, args)).flatten();
        self.note(frame, |state| {
            match state.kind_alone(receiver) {
                Kind::Set | Kind::Dict => args.iter().for_each(|arg| state.note_hashed(*arg)),
                _ if matches!(&*name, "remove" | "index" | "count") || is_heap_function(&name) => {
                    args.iter().chain([&receiver]).for_each(|arg| state.note_equated(*arg));
                }
                _ => {}
            }
            args.iter().try_for_each(|arg| {
                if state.kind(*arg) == Kind::Iterator && state.source(*arg).is_some() {
                    return Err((Reason::OutsideIterator, heap::type_name(*arg)));
                }
                let moves = matches!(
                    &*name,
                    "append" | "appendleft" | "insert" | "setdefault" | "__setitem__"
                );
                if moves { Ok(()) } else { state.adopt_deep(*arg) }
            })?;
            if numbers_of(&name, state.kind_alone(receiver))
                .is_some_and(|place| args.get(place).is_some_and(|arg| holds_tensor(state, *arg)))
            {
                return Err((
                    Reason::DataRead,
                    format!("a tensor as a number that {name} is given"),
                ));
            }
            let compares = matches!(&*name, "remove" | "index" | "sort") || is_heap_function(&name);
            let tensors = |state: &mut State, object| compares && holds_tensor(state, object);
            if tensors(state, receiver) || args.iter().any(|arg| tensors(state, *arg)) {
                return Err((Reason::DataRead, format!("{name} of a list of tensors")));
            }
            if state.origin(receiver) == Some(Origin::Fresh) {
                return Ok(());
            }
            if state.kind_alone(receiver) == Kind::Dict {
                return state.write_dict(&name, receiver, MethodArgs { args, names });
            }
            state.write_container(&name, receiver, args)
        });
        self.guard_compared(frame, &name, receiver, args);
        let set = self.state.borrow_mut().kind_alone(receiver) == Kind::Set;
        if set && name == "pop" {
            // Which element it takes depends on those it took before, too.
            self.note(frame, |state| state.check_order(receiver));
        }
        for arg in args {
            if !set {
                self.note(frame, |state| state.check_order(*arg));
            }
            self.guard_callback(frame, *arg);
        }
        // Methods that only move references call no operation.
        let plain = self.functions.traits(callable).has(Traits::QUIET);
        let result = if plain { native() } else { self.with_mode(frame, native) };
        let result = self.unless_raised(frame, receiver, result)?;
        if let Some(given) = given {
            return Ok(given);
        }
        self.note(frame, |state| state.register(result.as_borrowed()));
        Ok(result)
    }

    /// Guards how the elements that a method compares do that.
    fn guard_compared<'py>(
        &self,
        frame: &Frame<'py>,
        name: &str,
        receiver: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
    ) {
        let names: &[&'static str] = match name {
            "remove" => &["__eq__"],
            "sort" => &["__lt__", "__gt__"],
            name if is_heap_function(name) => &["__lt__"],
            _ => return,
        };
        for item in heap::list_items(receiver) {
            self.guard_protocol(frame, item.as_borrowed(), names);
        }
        for arg in args {
            self.guard_protocol(frame, *arg, names);
        }
    }

    /// `deque[i] = x` and `del deque[i]` of an outside deque.
    pub(super) fn set_deque_item<'py>(
        &self,
        frame: &Frame<'py>,
        deque: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        self.note(frame, |state| {
            if !heap::is_constant(key) {
                return Err((Reason::OutsideWrite, "an item of a deque".into()));
            }
            match value {
                Some(value) => state.write_deque("__setitem__", deque, &[key, value]),
                None => state.write_deque("__delitem__", deque, &[key]),
            }
        });
        self.unless_raised(frame, deque, ops::set_item(deque, key, value))
    }

    /// A method of a set or deque that raised has changed nothing: a replay doesn't call it.
    fn unless_raised<T>(
        &self,
        frame: &Frame<'_>,
        receiver: Borrowed<'_, '_>,
        result: Result<T>,
    ) -> Result<T> {
        if result.is_err() {
            self.note(frame, |state| state.drop_call(receiver));
        }
        result
    }

    /// `list[i] = x`, `list[i:j] = xs` and `del list[i]` of an outside list.
    pub(super) fn set_list_item<'py>(
        &self,
        frame: &Frame<'py>,
        list: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        let slice = key.is_instance_of::<pyo3::types::PySlice>();
        self.note(frame, |state| {
            if !heap::is_constant(key) {
                return Err((Reason::OutsideWrite, "an item of a list".into()));
            }
            state.write_elements(list)
        });
        match value {
            Some(iterable) if slice => {
                if self.kind(iterable) == Kind::Tensor {
                    self.stop(frame, Reason::Unsupported, "a slice of a list set to a tensor");
                }
                self.take_elements(frame, iterable);
                self.with_mode(frame, || ops::set_item(list, key, value))
            }
            _ => ops::set_item(list, key, value),
        }
    }
}

/// Methods of `collections.deque` that change it.
const DEQUE_METHODS: &[&str] = &[
    "append",
    "appendleft",
    "extend",
    "extendleft",
    "clear",
    "pop",
    "popleft",
    "rotate",
    "reverse",
    "insert",
    "__setitem__",
    "__delitem__",
];

/// The place of the argument that a method of containers takes as a number or a truth value; those of
/// dictionaries are keys.
fn numbers_of(name: &str, receiver: Kind) -> Option<usize> {
    match (name, receiver) {
        (_, Kind::Set) => None,
        ("move_to_end", _) => Some(1),
        (_, Kind::Dict) => None,
        ("insert" | "pop" | "rotate" | "__setitem__" | "__delitem__", _) => Some(0),
        _ => None,
    }
}

/// Whether a function that changes a list is one of `heapq`, which compare its elements.
fn is_heap_function(name: &str) -> bool {
    name.starts_with("heap")
}

pub fn refuse(what: &str, container: Borrowed<'_, '_>) -> Stop {
    (Reason::OutsideWrite, format!("{what} of a {}", heap::type_name(container)))
}

impl State {
    /// Takes note of a method that changes an outside container, before it does.
    fn write_container(
        &mut self,
        name: &str,
        receiver: Borrowed<'_, '_>,
        args: &[Borrowed<'_, '_>],
    ) -> std::result::Result<(), Stop> {
        if !self.is_blind(receiver, name) {
            // What it does depends on the contents.
            self.kind(receiver);
        }
        match self.kind_alone(receiver) {
            Kind::List => self.write_elements(receiver),
            Kind::Set => self.write_set(name, receiver, args),
            Kind::Object if heap::is_deque(receiver) => self.write_deque(name, receiver, args),
            _ => Err(refuse(name, receiver)),
        }
    }

    fn write_set(
        &mut self,
        name: &str,
        set: Borrowed<'_, '_>,
        args: &[Borrowed<'_, '_>],
    ) -> std::result::Result<(), Stop> {
        let call = match (name, args) {
            ("add" | "discard" | "remove", [element]) => {
                self.check_element(*element)?;
                Call { method: name.into(), args: vec![(*element).to_owned().unbind()] }
            }
            ("clear", []) => Call { method: name.into(), args: Vec::new() },
            (
                "update"
                | "difference_update"
                | "intersection_update"
                | "symmetric_difference_update",
                _,
            ) => {
                let copies = args.iter().map(|arg| self.copy_elements(*arg));
                Call { method: name.into(), args: copies.collect::<std::result::Result<_, _>>()? }
            }
            _ => return Err(refuse(name, set)),
        };
        for item in heap::set_items(set) {
            self.check_element(item.as_borrowed())?;
        }
        self.write_call(set, call)
    }

    fn write_deque(
        &mut self,
        name: &str,
        deque: Borrowed<'_, '_>,
        args: &[Borrowed<'_, '_>],
    ) -> std::result::Result<(), Stop> {
        if !DEQUE_METHODS.contains(&name) {
            return Err(refuse(name, deque));
        }
        let address = deque.as_ptr() as usize;
        let blind = only_adds(Some("collections:deque"), name);
        if !blind {
            self.read_deque(deque)?;
        } else if !self.read_slots.contains(&(address, CONTENTS)) && self.source(deque).is_some() {
            // What it held before, should somebody look later.
            let source = self.source(deque).expect("asked before");
            if !self.unread.contains_key(&address) {
                self.leave_unread(source, deque);
            }
        }
        let args = match (name, args) {
            ("extend" | "extendleft", [iterable]) => vec![self.copy_elements(*iterable)?],
            _ => args.iter().map(|arg| (*arg).to_owned().unbind()).collect(),
        };
        self.write_call(deque, Call { method: name.into(), args })
    }

    /// Fails for what a set can't hold without running code of its own.
    fn check_element(&mut self, element: Borrowed<'_, '_>) -> std::result::Result<(), Stop> {
        match self.kind(element) {
            // A new one is another element.
            Kind::Constant if is_nan(element) => {
                Err((Reason::Identity, "a set that holds a NaN".into()))
            }
            Kind::Constant
            | Kind::Type
            | Kind::Singleton
            | Kind::Function
            | Kind::Builtin
            | Kind::Module
            | Kind::TorchCallable => Ok(()),
            Kind::Tuple => heap::tuple_items(element)
                .iter()
                .try_for_each(|item| self.check_element(item.as_borrowed())),
            _ => {
                let detail = format!("a set that holds a {}", heap::type_name(element));
                Err((Reason::OutsideWrite, detail))
            }
        }
    }

    /// A list of what an iterable holds now.
    fn copy_elements(
        &mut self,
        iterable: Borrowed<'_, '_>,
    ) -> std::result::Result<Py<PyAny>, Stop> {
        let items = match self.kind(iterable) {
            Kind::Tuple => heap::tuple_items(iterable),
            Kind::List if heap::is_exact_list(iterable) => heap::elements(iterable),
            Kind::Set | Kind::FrozenSet => heap::elements(iterable),
            Kind::Dict => heap::dict_items(iterable).into_iter().map(|(key, _)| key).collect(),
            _ => {
                let detail = format!("the elements of a {}", heap::type_name(iterable));
                return Err((Reason::OutsideWrite, detail));
            }
        };
        let copy = PyList::new(iterable.py(), items);
        let copy = copy.map_err(|_| (Reason::OutsideWrite, "a list".to_string()))?;
        self.set_fresh(copy.as_any().as_borrowed());
        Ok(copy.into_any().unbind())
    }

    /// Takes note of an in-place operator on a container, before it changes it.
    pub fn write_in_place(
        &mut self,
        op: BinaryOp,
        left: Borrowed<'_, '_>,
        right: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let kind = self.kind(left);
        if kind == Kind::List {
            self.check_order(right)?;
        }
        if self.origin(left) == Some(Origin::Fresh) {
            return Ok(());
        }
        match (kind, op) {
            (Kind::List, BinaryOp::InPlaceAdd | BinaryOp::InPlaceMultiply) => {
                self.write_elements(left)
            }
            (Kind::Object, BinaryOp::InPlaceAdd) => self.write_deque("extend", left, &[right]),
            (Kind::Set, _) => {
                let name = match op {
                    BinaryOp::InPlaceOr => "update",
                    BinaryOp::InPlaceAnd => "intersection_update",
                    BinaryOp::InPlaceSubtract => "difference_update",
                    BinaryOp::InPlaceXor => "symmetric_difference_update",
                    _ => return Err(refuse(op.symbol(), left)),
                };
                if !matches!(self.kind(right), Kind::Set | Kind::FrozenSet) {
                    // Other operands raise, or answer themselves.
                    return Err(refuse(op.symbol(), left));
                }
                self.write_set(name, left, &[right])
            }
            (Kind::Dict, _) => self.merge_dict(op, left, right),
            _ => Err(refuse(op.symbol(), left)),
        }
    }
}
