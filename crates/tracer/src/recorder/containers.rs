//! Methods that change a container: free on what this trace made, effects on what is from outside.

use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::BinaryOp;
use stator_cpython::{Result, ops};

use super::Recorder;
use super::kinds::Kind;
use super::look as heap;
use super::state::{Origin, State, Stop};
use super::tensors::holds_tensor;
use crate::breaks::Reason;

impl Recorder {
    /// A method that changes its receiver.
    pub(super) fn container_write<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        receiver: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        let name = heap::callable_name(callable);
        self.note(frame, |state| {
            args.iter().try_for_each(|arg| {
                if state.kind(*arg) == Kind::Iterator && state.source(*arg).is_some() {
                    return Err((Reason::OutsideIterator, heap::type_name(*arg)));
                }
                let moves = matches!(&*name, "append" | "appendleft" | "insert");
                if moves { Ok(()) } else { state.adopt_deep(*arg) }
            })?;
            if matches!(&*name, "remove" | "index" | "sort") && holds_tensor(state, receiver) {
                return Err((Reason::DataRead, format!("{name} of a list of tensors")));
            }
            if state.origin(receiver) == Some(Origin::Fresh) {
                return Ok(());
            }
            state.write_container(&name, receiver)
        });
        self.guard_compared(frame, &name, receiver, args);
        let set = matches!(self.kind(receiver), Kind::Set);
        if set && name == "pop" {
            self.note(frame, |state| state.check_order(receiver));
        }
        for arg in args {
            if !set {
                self.note(frame, |state| state.check_order(*arg));
            }
            self.guard_callback(frame, *arg);
        }
        // Methods that only move references call no operation.
        let plain = matches!(
            &*name,
            "append"
                | "appendleft"
                | "insert"
                | "pop"
                | "popleft"
                | "popitem"
                | "setdefault"
                | "clear"
                | "add"
                | "move_to_end"
        );
        let result = if plain { native()? } else { self.with_mode(frame, native)? };
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
            _ => return,
        };
        for item in heap::list_items(receiver) {
            self.guard_protocol(frame, item.as_borrowed(), names);
        }
        for arg in args {
            self.guard_protocol(frame, *arg, names);
        }
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

impl State {
    /// Takes note of a method that changes an outside container, before it does.
    fn write_container(
        &mut self,
        name: &str,
        receiver: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        match self.kind(receiver) {
            Kind::List => self.write_elements(receiver),
            _ => {
                let detail = format!("{name} of a {}", heap::type_name(receiver));
                Err((Reason::OutsideWrite, detail))
            }
        }
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
            _ => {
                let detail = format!("{} on a {}", op.symbol(), heap::type_name(left));
                Err((Reason::OutsideWrite, detail))
            }
        }
    }
}
