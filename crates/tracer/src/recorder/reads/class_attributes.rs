//! Attributes of classes and of `super()` objects.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::types::{self, Slot, SlotName};
use stator_cpython::hook::Suspended;
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, generic, ops};
use stator_guards::{ClassField, GuardKind, Source};

use super::attributes::Found;
use super::descriptors::DESCRIPTOR;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Calls, Ends};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::{Descriptor, Kind};
use crate::recorder::notes::state::{State, Stop};

impl Recorder {
    /// `type.__getattribute__`.
    pub(in crate::recorder) fn class_attr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Found<'py>> {
        let py = frame.py();
        let class = owner.cast::<PyType>().expect("the kind says it is a class").to_owned();
        let meta = class.get_type();
        let text = name.cast::<PyString>().ok();
        let text = text.as_ref().and_then(|name| name.to_str().ok()).unwrap_or("?");
        self.note(frame, |state| {
            if state.origin(owner).is_none() {
                state.anchor(owner);
            }
            Ok(())
        });
        if text == "__doc__" || text == "__module__" {
            self.lookup(frame, &class, name);
        }
        if matches!(
            text,
            "__name__"
                | "__qualname__"
                | "__module__"
                | "__mro__"
                | "__bases__"
                | "__doc__"
                | "__class__"
                | "__base__"
                | "__subclasses__"
                | "mro"
        ) {
            let value = ops::get_attr(owner, name)?;
            self.note(frame, |state| state.read_class_field(owner, text, value.as_borrowed()));
            return Ok(Found::Value(value));
        }
        if types::slot(meta.as_borrowed(), SlotName::GetAttribute) == Slot::Python {
            self.guard_protocol_of(frame, owner, &["__getattribute__"]);
            let own = pyo3::intern!(py, "__getattribute__").as_any().as_borrowed();
            let own = stator_cpython::heap::types::lookup(meta.as_borrowed(), own);
            if own.is_some_and(|own| self.kind(own.as_borrowed()) == Kind::Function) {
                self.stop(frame, Reason::Unsupported, "a metaclass with __getattribute__");
                return ops::get_attr(owner, name).map(Found::Value);
            }
        }
        let on_meta = self.lookup(frame, &meta, name);
        if let Some(found) = &on_meta {
            match self.descriptor(found.as_borrowed()) {
                Descriptor::Property => {
                    return self.property(frame, found.as_borrowed(), owner, name);
                }
                Descriptor::UserData => {
                    return self.user_descriptor(frame, found.as_borrowed(), owner, &meta);
                }
                Descriptor::GetSet | Descriptor::Member => {
                    if text == "__dict__"
                        && let Some(proxy) = self.class_proxy(frame, owner)
                    {
                        return Ok(Found::Value(proxy));
                    }
                    if text == "__annotations__"
                        && let Some(hints) = self.class_annotations(frame, owner, name)
                    {
                        return hints.map(Found::Value);
                    }
                    self.stop(frame, Reason::Unsupported, format!("attribute {text} of a class"));
                    return ops::get_attr(owner, name).map(Found::Value);
                }
                _ => {}
            }
        }
        if let Some(found) = self.lookup_value(frame, &class, name) {
            return self.found_on_class(frame, &class, found, name);
        }
        if let Some(found) = on_meta {
            return match self.descriptor(found.as_borrowed()) {
                Descriptor::Function => self.found_function(frame, found, owner),
                kind @ (Descriptor::StaticMethod | Descriptor::ClassMethod) => {
                    self.bind_on(frame, found.as_borrowed(), kind, &meta).map(Found::Value)
                }
                Descriptor::User => self.user_descriptor(frame, found.as_borrowed(), owner, &meta),
                _ => Ok(Found::Value(found)),
            };
        }
        self.call_getattr(frame, owner, &meta, name)
            .unwrap_or_else(|| ops::get_attr(owner, name).map(Found::Value))
    }

    /// The annotations of a class from outside: an entry of its own dictionary, which is made where it's asked for first.
    /// `None`: they can't be read so.
    fn class_annotations<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let class = owner.cast::<PyType>().ok()?;
        if self.is_stopped() {
            return None;
        }
        if !types::is_heap(class.as_borrowed()) {
            // It has none, for good.
            let found = ops::get_attr(owner, name);
            return found.is_err().then_some(found);
        }
        let hints = owner.getattr(name.cast::<PyString>().ok()?).ok()?;
        let proxy = self.class_proxy(frame, owner)?;
        let own = proxy.get_item(name).ok()?;
        if !own.is(&hints) || !heap::is_exact_dict(own.as_borrowed()) {
            return None;
        }
        Some(self.get_item(frame, proxy.as_borrowed(), name))
    }

    /// What the lookup of an attribute on a class itself has found, as the class gives it.
    fn found_on_class<'py>(
        &self,
        frame: &Frame<'py>,
        class: &Bound<'py, PyType>,
        found: Object<'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Found<'py>> {
        let py = frame.py();
        let owner = class.as_any().as_borrowed();
        self.guard_protocol(frame, found.as_borrowed(), DESCRIPTOR);
        Ok(match self.descriptor(found.as_borrowed()) {
            kind @ (Descriptor::StaticMethod | Descriptor::ClassMethod) => {
                Found::Value(self.bind_on(frame, found.as_borrowed(), kind, class)?)
            }
            Descriptor::User | Descriptor::UserData => {
                let getter = pyo3::intern!(py, "__get__").as_any().as_borrowed();
                let getter = self.lookup(frame, &found.get_type(), getter);
                match getter {
                    Some(getter) if self.kind(getter.as_borrowed()) == Kind::Function => {
                        let none = py.None().into_bound(py);
                        let args = [found.as_borrowed(), none.as_borrowed(), owner];
                        Found::Value(self.call_object(Call::new(
                            frame,
                            getter.as_borrowed(),
                            &args,
                        ))?)
                    }
                    _ => {
                        self.stop(
                            frame,
                            Reason::Unsupported,
                            format!("descriptor {} of a class", heap::text(name)),
                        );
                        Found::Value(ops::get_attr(owner, name)?)
                    }
                }
            }
            Descriptor::Function if heap::is_class_method_descriptor(found.as_borrowed()) => {
                let value = ops::get_attr(owner, name)?;
                self.note(frame, |state| {
                    state.set_fresh(value.as_borrowed());
                    Ok(())
                });
                Found::Value(value)
            }
            _ => Found::Value(found),
        })
    }

    /// `cls[key]`: a metaclass's own `__getitem__`, or a generic alias.
    pub(in crate::recorder) fn class_item<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let py = frame.py();
        let class = owner.cast::<PyType>().expect("the kind says it is a class").to_owned();
        self.note(frame, |state| {
            state.anchor(owner);
            Ok(())
        });
        let own = pyo3::intern!(py, "__getitem__").as_any().as_borrowed();
        if let Some(own) = self.lookup(frame, &class.get_type(), own) {
            if self.kind(own.as_borrowed()) == Kind::Function {
                return self.call_object(Call::new(frame, own.as_borrowed(), &[owner, key]));
            }
            self.stop(frame, Reason::Unsupported, "subscription of a class");
            return ops::get_item(owner, key);
        }
        let name = pyo3::intern!(py, "__class_getitem__").as_any().as_borrowed();
        let found = self.lookup(frame, &class, name);
        match &found {
            Some(found) if is_generic(found) && self.is_plain_parameter(key) => {
                // Such aliases are cached: the same key leads to the same one.
                let alias = self.subscribed(frame, owner, key)?;
                self.note(frame, |state| {
                    state.anchor(alias.as_borrowed());
                    Ok(())
                });
                Ok(alias)
            }
            Some(found)
                if heap::is_class_method_descriptor(found.as_borrowed())
                    && types::is_immutable(class.as_borrowed())
                    && self.is_parameter(key) =>
            {
                let alias = self.subscribed(frame, owner, key)?;
                self.note(frame, |state| {
                    state.set_fresh(alias.as_borrowed());
                    Ok(())
                });
                Ok(alias)
            }
            Some(found)
                if self.descriptor(found.as_borrowed()) == Descriptor::ClassMethod
                    && !is_generic(found) =>
            {
                let found = found.as_borrowed();
                let method = self.bind_on(frame, found, Descriptor::ClassMethod, &class)?;
                self.call_object(Call::new(frame, method.as_borrowed(), &[key]))
            }
            _ => {
                self.stop(frame, Reason::Unsupported, "subscription of a class");
                ops::get_item(owner, key)
            }
        }
    }

    /// What CPython and `typing` make of it, in code of their own.
    fn subscribed<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let _native = Suspended::new(frame.py());
        ops::get_item(owner, key)
    }

    /// Whether a parameter of a generic class is a class or constant, or some of them, such as `int | str`.
    fn is_plain_parameter(&self, key: Borrowed<'_, '_>) -> bool {
        match self.kind(key) {
            Kind::Type | Kind::Constant => true,
            Kind::Tuple => {
                let items = heap::tuple_items(key);
                items.iter().all(|item| self.is_plain_parameter(item.as_borrowed()))
            }
            _ => heap::union_members(key).is_some_and(|members| {
                members.iter().all(|member| self.is_plain_parameter(member.as_borrowed()))
            }),
        }
    }

    /// As [`Self::is_plain_parameter`], or an alias or a union of such: a builtin class's alias only holds them.
    fn is_parameter(&self, key: Borrowed<'_, '_>) -> bool {
        let parts = match self.kind(key) {
            Kind::Tuple => heap::tuple_items(key),
            Kind::Object if heap::is_builtin_alias(key) => {
                let args = key.getattr("__args__");
                args.map_or_else(|_| Vec::new(), |args| heap::tuple_items(args.as_borrowed()))
            }
            _ => match heap::union_members(key) {
                Some(members) => members,
                None => return self.is_plain_parameter(key),
            },
        };
        parts.iter().all(|part| self.is_parameter(part.as_borrowed()))
    }

    /// `super().name`.
    pub(in crate::recorder) fn super_attr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Found<'py>> {
        let Some((after, receiver, start)) = heap::super_parts(owner) else {
            self.stop(frame, Reason::Unsupported, "an unbound super object");
            return ops::get_attr(owner, name).map(Found::Value);
        };
        let found = types::lookup_after(start.as_borrowed(), after.as_any().as_borrowed(), name);
        let Some(found) = found else {
            self.stop(
                frame,
                Reason::Unsupported,
                format!("super().{}, which no class has", heap::text(name)),
            );
            return ops::get_attr(owner, name).map(Found::Value);
        };
        self.note(frame, |state| {
            if state.finds_own_write(&start, name)? {
                let detail = format!("super().{}, read after its write", heap::text(name));
                return Err((Reason::OutsideWrite, detail));
            }
            let parent = state.anchor(start.as_any().as_borrowed());
            let after = state.objects.intern(after.as_any().as_borrowed());
            let id = state.objects.intern(name);
            let text = || heap::text(name).into();
            let source = state.sources.super_lookup(parent, after, id, text);
            state.adopt(source, found.as_borrowed())
        });
        let receiver_is_class = receiver.is(start.as_any());
        Ok(match self.descriptor(found.as_borrowed()) {
            _ if heap::is_class_method_descriptor(found.as_borrowed()) => {
                let class = start.as_any().as_borrowed();
                let method = generic::descriptor_get(found.as_borrowed(), None, class)?;
                self.note(frame, |state| state.register(method.as_borrowed()));
                Found::Value(method)
            }
            Descriptor::Function if receiver_is_class => Found::Value(found),
            Descriptor::Function => {
                let method = heap::bind(found.as_borrowed(), receiver.as_borrowed())?;
                self.note(frame, |state| {
                    state.set_fresh(method.as_borrowed());
                    Ok(())
                });
                Found::Value(method)
            }
            kind @ (Descriptor::StaticMethod | Descriptor::ClassMethod) => {
                Found::Value(self.bind_on(frame, found.as_borrowed(), kind, &start)?)
            }
            Descriptor::Property => {
                self.property(frame, found.as_borrowed(), receiver.as_borrowed(), name)?
            }
            Descriptor::Value => Found::Value(found),
            _ => {
                self.stop(frame, Reason::Unsupported, format!("super().{}", heap::text(name)));
                Found::Value(ops::get_attr(owner, name)?)
            }
        })
    }
}

impl State {
    /// Takes note of what a class says of itself: its names, and where it stands among classes.
    pub(in crate::recorder) fn read_class_field(
        &mut self,
        class: Borrowed<'_, '_>,
        name: &str,
        value: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let settable = class.cast::<PyType>().is_ok_and(|class| !types::is_immutable(class));
        match (ClassField::from_name(name), self.source(class)) {
            (Some(field), Some(parent)) if settable => {
                let source = self.sources.intern(Source::ClassField { parent, field });
                self.adopt(source, value)
            }
            _ => self.register(value),
        }
    }
}

/// Whether this is `typing.Generic.__class_getitem__`.
fn is_generic(found: &Object<'_>) -> bool {
    static GENERIC: Named = Named::new("typing", "Generic");
    GENERIC.get(found.py()).is_ok_and(|generic| {
        let name = pyo3::intern!(found.py(), "__class_getitem__").as_any().as_borrowed();
        generic
            .cast::<PyType>()
            .ok()
            .and_then(|ty| stator_cpython::heap::types::lookup(ty.as_borrowed(), name))
            .is_some_and(|own| own.is(found))
    })
}

impl State {
    /// Whether a lookup of `name` along the resolution order of `ty` finds what this trace wrote.
    /// Fails where it can't be told what it would find at the entry of another call.
    pub fn finds_own_write(
        &mut self,
        ty: &Bound<'_, PyType>,
        name: Borrowed<'_, '_>,
    ) -> std::result::Result<bool, Stop> {
        let written: SmallVec<[usize; 2]> = self
            .written
            .classes()
            .iter()
            .copied()
            .filter(|(_, written)| *written == name.as_ptr() as usize)
            .map(|(class, _)| class)
            .collect();
        if written.is_empty() {
            return Ok(false);
        }
        if written.contains(&(ty.as_ptr() as usize)) {
            return Ok(true);
        }
        let mro = types::mro(ty.as_borrowed());
        let mro = mro.as_ref().map_or_else(Vec::new, |mro| heap::tuple_items(mro.as_borrowed()));
        if !mro.iter().any(|base| written.contains(&(base.as_ptr() as usize))) {
            return Ok(false);
        }
        let has_name = |class: &&Object<'_>| {
            class.cast::<PyType>().is_ok_and(|class| generic::class_value(class, name).is_some())
        };
        let first = mro.iter().position(|class| has_name(&class));
        match first {
            Some(first) if written.contains(&(mro[first].as_ptr() as usize)) => {
                self.guard_lacking(ty, &mro[..first], name)?;
                Ok(true)
            }
            // A class that the trace has written has the name, so none of them stands before this one.
            Some(_) => Ok(false),
            None => {
                let detail =
                    format!("attribute {} of a base class, read after its write", heap::text(name));
                Err((Reason::OutsideWrite, detail))
            }
        }
    }

    /// Guards that those classes, with which the resolution order of a type begins, lack a name.
    fn guard_lacking(
        &mut self,
        ty: &Bound<'_, PyType>,
        classes: &[Object<'_>],
        name: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let slot = (ty.as_ptr() as usize, name.as_ptr() as usize);
        if !self.lookups.first_lacking(slot) {
            return Ok(());
        }
        let parent = self.anchor(ty.as_any().as_borrowed());
        let order = self.sources.intern(Source::ClassField { parent, field: ClassField::Mro });
        if let Some(mro) = types::mro(ty.as_borrowed()) {
            self.adopt(order, mro.as_borrowed())?;
        }
        let key = self.objects.intern(name);
        let text = self.objects.repr(key, name);
        for class in classes {
            let parent = self.anchor(class.as_borrowed());
            let dict = self.sources.intern(Source::Dict(parent));
            self.guard(dict, GuardKind::KeyAbsent { key, text: text.clone() });
        }
        Ok(())
    }
}
