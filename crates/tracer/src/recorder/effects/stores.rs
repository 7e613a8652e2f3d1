//! Writes of attributes: fresh objects take any, those of outside ones become side effects.

use pyo3::prelude::*;
use pyo3::types::PyType;
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::thread_local;
use stator_cpython::heap::types::{self, Slot, SlotName};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, generic, ops};
use stator_evaluator::Role;

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Ends, Operations};
use crate::recorder::notes::call::{Args, Call};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::{Descriptor, Kind};
use crate::recorder::notes::state::{Origin, State};

impl Recorder {
    /// `STORE_ATTR` and `DELETE_ATTR`.
    pub(in crate::recorder) fn set_attr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        if self.is_stopped() {
            return ops::set_attr(owner, name, value);
        }
        let py = frame.py();
        let ty = owner.get_type();
        let (hook, arity) = match value {
            Some(_) => (pyo3::intern!(py, "__setattr__"), 3),
            None => (pyo3::intern!(py, "__delattr__"), 2),
        };
        let setter = self.lookup(frame, &ty, hook.as_any().as_borrowed());
        if let Some(setter) = setter
            && self.kind(setter.as_borrowed()) == Kind::Function
        {
            let none = py.None().into_bound(py);
            let args = [owner, name, value.unwrap_or(none.as_borrowed())];
            let (role, args) = (Role::Setter, &args[..arity]);
            return self
                .call_linked(role, None, Call::new(frame, setter.as_borrowed(), args))
                .map(drop);
        }
        if self.kind(owner) == Kind::Type {
            return self.set_class_attr(frame, owner, name, value);
        }
        if self.kind(owner) == Kind::Tensor {
            return self.set_tensor_attr(frame, owner, name, value);
        }
        if types::slot(ty.as_borrowed(), SlotName::SetAttribute) == Slot::Native {
            // C code of its own decides where the value goes.
            let is_known = self.is_fresh(owner)
                || self.writes_thread_local(frame, owner, name, value.is_none());
            if !is_known {
                let (name, ty) = (heap::text(name), heap::type_name(owner));
                self.stop(frame, Reason::OutsideWrite, format!("attribute {name} of a {ty}"));
            }
            return ops::set_attr(owner, name, value);
        }
        self.generic_set_attr(frame, owner, name, value)
    }

    /// Notes a write to an attribute of a `threading.local`, which is one of a dictionary of this thread.
    fn writes_thread_local(
        &self,
        frame: &Frame<'_>,
        owner: Borrowed<'_, '_>,
        name: Borrowed<'_, '_>,
        deletes: bool,
    ) -> bool {
        let text = heap::text(name);
        let is_own = text.starts_with("__") && text.ends_with("__");
        let Some(dict) = thread_local::dict_of(owner).filter(|_| !is_own) else { return false };
        let dict = dict.as_any().as_borrowed();
        let known = self.note(frame, |state| {
            state.know_instance_dict(owner, dict);
            Ok(())
        });
        known.is_some() && self.writes_slot(frame, dict, name, deletes)
    }

    /// `type.__setattr__`.
    fn set_class_attr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        let class = owner.cast::<PyType>().expect("the kind says it is a class").to_owned();
        let on_meta = self.lookup(frame, &class.get_type(), name);
        let meta_sets = on_meta.is_some_and(|found| {
            use Descriptor as D;
            let kind = self.descriptor(found.as_borrowed());
            matches!(kind, D::Property | D::UserData | D::Member | D::GetSet)
        });
        let text = heap::text(name);
        // Special methods are read by slots, where nobody sees who wrote them. What a deletion
        // uncovers in a base class was not read.
        let special = text.starts_with("__");
        let immutable = stator_cpython::heap::types::is_immutable(class.as_borrowed());
        if meta_sets || special || immutable || value.is_none() {
            let text = format!("attribute {text} of a class");
            self.stop(frame, Reason::OutsideWrite, text);
        }
        self.note(frame, |state| {
            state.write_class_attribute(owner, name);
            Ok(())
        });
        ops::set_attr(owner, name, value)
    }

    /// `object.__setattr__` on a fresh object.
    pub(in crate::recorder) fn generic_set_attr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        let py = frame.py();
        let ty = owner.get_type();
        if let Some(descriptor) = self.lookup(frame, &ty, name) {
            match self.descriptor(descriptor.as_borrowed()) {
                Descriptor::Property => {
                    self.know_property(frame, descriptor.as_borrowed());
                    let setter = match value {
                        Some(_) => heap::property_setter(descriptor.as_borrowed()),
                        None => heap::property_deleter(descriptor.as_borrowed()),
                    };
                    // Without one this raises.
                    let Some(setter) = setter else {
                        return generic::generic_set_attr(owner, name, value);
                    };
                    self.vouch(frame, setter.as_borrowed());
                    let mut args: Args<'_, 'py> = SmallVec::from_slice(&[owner]);
                    args.extend(value);
                    let role = Role::Setter;
                    return self
                        .call_linked(role, None, Call::new(frame, setter.as_borrowed(), &args))
                        .map(drop);
                }
                Descriptor::UserData => {
                    let hook = match value {
                        Some(_) => pyo3::intern!(py, "__set__"),
                        None => pyo3::intern!(py, "__delete__"),
                    };
                    let hook = hook.as_any().as_borrowed();
                    let setter = self.lookup(frame, &descriptor.get_type(), hook);
                    if let Some(setter) = setter
                        && self.kind(setter.as_borrowed()) == Kind::Function
                    {
                        let mut args: Args<'_, 'py> =
                            SmallVec::from_slice(&[descriptor.as_borrowed(), owner]);
                        args.extend(value);
                        let role = Role::Setter;
                        return self
                            .call_linked(role, None, Call::new(frame, setter.as_borrowed(), &args))
                            .map(drop);
                    }
                    self.stop(frame, Reason::Unsupported, "a write through a descriptor");
                }
                Descriptor::Member if !self.is_fresh(owner) => {
                    match stator_cpython::heap::member::offset_of(descriptor.as_borrowed()) {
                        Some(offset) => {
                            self.note(frame, |state| {
                                state.write_member(owner, name, offset, value.is_none())
                            });
                        }
                        None => self.refuse_slot(frame, owner, name),
                    }
                    return generic::generic_set_attr(owner, name, value);
                }
                Descriptor::GetSet if !self.is_fresh(owner) => self.refuse_slot(frame, owner, name),
                _ => {}
            }
        }
        let is_own = || self.is_fresh(owner) || self.state.borrow().is_own_random(owner);
        if !is_own() && !self.is_stopped() {
            let dict = self.note(frame, |state| Ok(state.instance_dict(owner))).flatten();
            let noted = dict.is_some_and(|dict| {
                self.writes_slot(frame, dict.as_borrowed(), name, value.is_none())
            });
            if !noted {
                let text =
                    format!("attribute {} of a {}", heap::text(name), heap::type_name(owner));
                self.stop(frame, Reason::OutsideWrite, text);
            }
        }
        if self.origin(owner) == Some(Origin::Fresh) {
            self.note(frame, |state| state.write_own(owner));
        }
        generic::generic_set_attr(owner, name, value)
    }

    fn refuse_slot(&self, frame: &Frame<'_>, owner: Borrowed<'_, '_>, name: Borrowed<'_, '_>) {
        let text = format!("slot {} of a {}", heap::text(name), heap::type_name(owner));
        self.stop(frame, Reason::OutsideWrite, text);
    }

    /// `STORE_DEREF` and `DELETE_DEREF`.
    pub(in crate::recorder) fn set_cell<'py>(
        &self,
        frame: &Frame<'py>,
        cell: Borrowed<'_, 'py>,
        value: Option<Object<'py>>,
    ) {
        self.note(frame, |state| {
            if state.origin(cell) == Some(Origin::Fresh) {
                return state.write_own(cell);
            }
            let source = state.cell_source(frame, cell)?;
            state.write_cell(cell, source);
            Ok(())
        });
        ops::store_cell(cell, value);
    }

    /// Whether a tensor that is given the data of another one has the sizes that it is known by: those that are symbols
    /// have to be the same ones.
    fn keeps_sizes(&self, owner: Borrowed<'_, '_>, value: Borrowed<'_, '_>) -> bool {
        if !self.has_symbols() {
            return true;
        }
        let mut state = self.state.borrow_mut();
        // The sizes of an outside tensor are known once it's an input.
        [owner, value].into_iter().all(|tensor| state.graph_arg(tensor).is_ok())
            && state.symbolic_sizes(owner) == state.symbolic_sizes(value)
    }

    /// `STORE_ATTR` and `DELETE_ATTR` of a tensor.
    pub(in crate::recorder) fn set_tensor_attr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        let py = frame.py();
        let text = heap::text(name);
        let Some(descriptor) = self.lookup(frame, &owner.get_type(), name) else {
            // What a program adds of its own.
            return self.generic_set_attr(frame, owner, name, value);
        };
        if text == "grad"
            && let Some(set) = self.set_gradient(frame, owner, name, value)
        {
            return set;
        }
        let setter = match (&*text, value) {
            ("requires_grad" | "data" | "grad", Some(_)) => "__set__",
            ("grad", None) => "__delete__",
            _ => "",
        };
        // Other data may have other sizes than those that were taken for symbols.
        let known = text != "data" || value.is_some_and(|value| self.keeps_sizes(owner, value));
        let setter = descriptor.getattr(setter).ok().filter(|_| known);
        let Some(setter) = setter else {
            let text = format!("attribute {text} of a {}", heap::type_name(owner));
            self.stop(frame, Reason::OutsideWrite, text);
            return ops::set_attr(owner, name, value);
        };
        let target = |state: &mut State| {
            let printed =
                format!("torch.Tensor.{text}.{}", heap::callable_name(setter.as_borrowed()));
            state.function_target(setter.as_borrowed(), printed)
        };
        let mut args = vec![owner];
        args.extend(value);
        self.operation(frame, target, &args, None, || {
            ops::set_attr(owner, name, value).map(|()| py.None().into_bound(py))
        })
        .map(|_| {
            if &*text == "grad" {
                self.note(frame, |state| {
                    state.wrote_gradient(owner);
                    Ok(())
                });
            }
        })
    }
}
