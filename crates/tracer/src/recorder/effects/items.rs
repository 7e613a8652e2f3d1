//! Items that are set and deleted: `STORE_SUBSCR` and `DELETE_SUBSCR`.

use pyo3::prelude::*;
use pyo3::types::PySlice;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, ops};
use stator_evaluator::Role;
use stator_graph::{Operator, Target};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{ArrayValues, Changes, Ends, Operations};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State};
use crate::recorder::reads::tensor_items::store_depends_on_data;

impl Changes for Recorder {
    fn missing_item<'py>(
        &self,
        frame: &Frame<'py>,
        dict: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        self.fill_missing(frame, dict, key)
    }

    fn is_own_iterator(&self, frame: &Frame<'_>, iterator: Borrowed<'_, '_>) -> bool {
        self.may_advance(frame, iterator)
    }

    fn advance_outside<'py>(
        &self,
        frame: &Frame<'py>,
        iterator: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        self.take_over(frame, iterator)
    }
}

impl Recorder {
    /// `STORE_SUBSCR` and `DELETE_SUBSCR`.
    pub(in crate::recorder) fn set_item<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        if self.is_stopped() {
            return ops::set_item(owner, key, value);
        }
        if value.is_none()
            && let Some(done) = self.delete_first(frame, owner, key)
        {
            return done;
        }
        let kind = self.kind(owner);
        if let (Kind::Opaque, Some(value)) = (kind, value)
            && let Some(done) = self.set_item_of_array(frame, owner, key, value)
        {
            return done;
        }
        if matches!(kind, Kind::Tensor | Kind::List)
            && let Some(key) = self.with_plain_places(frame, key)
        {
            return self.set_item(frame, owner, key.as_borrowed(), value);
        }
        if kind == Kind::Tensor
            && let Some(plain) = value.and_then(|value| self.with_plain_numbers(frame, value))
        {
            return self.set_item(frame, owner, key, Some(plain.as_borrowed()));
        }
        let method = match kind {
            Kind::Tensor => None,
            _ => self.python_set_item(frame, owner, value.is_some()),
        };
        if kind == Kind::Tensor
            && let Some(place) = self.place_of_member(key)
        {
            return self.set_item(frame, owner, place.as_borrowed(), value);
        }
        // A method in Python looks at the key itself.
        let looks_itself = kind == Kind::Tensor || kind == Kind::Object && method.is_some();
        if !looks_itself && !self.keeps_key(frame, owner, key) {
            self.concrete(frame, &[key], "an index or key");
            self.guard_key(frame, &[key]);
        }
        if let (Kind::Tensor, Some(value)) = (kind, value) {
            if let Some(function) = self.item_by_number(frame.py(), key, true) {
                self.vouch(frame, function.as_borrowed());
                let args = [owner, key, value];
                let (role, function) = (Role::SetItem, function.as_borrowed());
                return self.call_linked(role, None, Call::new(frame, function, &args)).map(drop);
            }
            self.know_arrays(frame, &[key, value]);
            let problem = || store_depends_on_data(&mut self.state.borrow_mut(), key);
            let problem = if self.index_takes_read(frame, key, problem) {
                None
            } else {
                self.problem_of(frame, &[key], problem)
            };
            if let Some((reason, detail)) = problem {
                if let Some(key) = self.settled_bounds(frame, key) {
                    return self.set_item(frame, owner, key.as_borrowed(), Some(value));
                }
                self.stop(frame, reason, detail);
            }
            let target = |_: &mut State| Target::Operator(Operator::SetItem);
            let py = frame.py();
            let there = self.index_without_data(key);
            let execute = || {
                let done = ops::set_item(owner, there.as_borrowed(), Some(value));
                done.map(|()| py.None().into_bound(py))
            };
            return self.operation(frame, target, &[owner, key, value], None, execute).map(drop);
        }
        if let Some(method) = method {
            let none = frame.py().None().into_bound(frame.py());
            let args = [owner, key, value.unwrap_or(none.as_borrowed())];
            let arity = if value.is_some() { 3 } else { 2 };
            let (role, args) = (Role::SetItem, &args[..arity]);
            return self
                .call_linked(role, None, Call::new(frame, method.as_borrowed(), args))
                .map(drop);
        }
        if let Some(key) = self.place_by_tensor(frame, self.kind(owner), key) {
            return self.set_item(frame, owner, key.as_borrowed(), value);
        }
        if (kind == Kind::List || heap::is_deque(owner))
            && let Some(place) = self.place_of_member(key)
        {
            return self.set_item(frame, owner, place.as_borrowed(), value);
        }
        if self.asks_bounds(frame, self.kind(owner), key) {
            return ops::set_item(owner, key, value);
        }
        let taken = value.filter(|_| key.is_instance_of::<PySlice>());
        let _reading = taken.map(|taken| self.reads_on(frame, &[taken]));
        if self.origin(owner) == Some(Origin::Fresh) {
            self.note(frame, |state| {
                state.write_own(owner)?;
                state.note_hashed(key);
                Ok(())
            });
            return ops::set_item(owner, key, value);
        }
        if self.kind(owner) == Kind::List {
            return self.set_list_item(frame, owner, key, value);
        }
        if heap::is_deque(owner) {
            return self.set_deque_item(frame, owner, key, value);
        }
        let known = self.note(frame, |state| {
            Ok(state.is_writable_dict(owner) && heap::stores_in_order(owner, value.is_none()))
        });
        if known != Some(true) || !self.writes_slot(frame, owner, key, value.is_none()) {
            self.stop(
                frame,
                Reason::OutsideWrite,
                format!("an item of a {}", heap::type_name(owner)),
            );
        }
        ops::set_item(owner, key, value)
    }

    /// A class's own `__setitem__` or `__delitem__`, if it's Python.
    fn python_set_item<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        sets: bool,
    ) -> Option<Object<'py>> {
        let py = frame.py();
        let name =
            if sets { pyo3::intern!(py, "__setitem__") } else { pyo3::intern!(py, "__delitem__") };
        self.special_of_any(frame, owner, name)
    }
}
