//! Attributes: CPython's lookup, step by step, so that each slot it reads can be guarded.

use pyo3::prelude::*;
use pyo3::types::{PySlice, PyString, PyType};
use stator_cpython::frame::Frame;
use stator_cpython::heap::dict::{Peek, peek_instance_dict};
use stator_cpython::heap::thread_local;
use stator_cpython::heap::types::{self, Slot, SlotName};
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{self, Method};
use stator_cpython::{Raised, Result, generic};
use stator_evaluator::Role;
use stator_guards::GuardKind;

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{ArrayValues, Calls, Ends, PlainValues, SparseValues};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::{Descriptor, Kind};
use crate::recorder::notes::members::Reads;
use crate::recorder::notes::reads::Use;
use crate::recorder::notes::state::{Origin, State, Stop};

/// What an attribute lookup came to.
pub(in crate::recorder) enum Found<'py> {
    /// The value.
    Value(Object<'py>),
    /// A function found on the type, to be called with the owner first.
    Function(Object<'py>),
}

/// Where a lookup along a type's method resolution order found what it did.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::recorder) enum LookedUp {
    /// Outside, or nothing.
    Outside,
    /// This trace wrote it.
    Written,
}

impl Recorder {
    /// `_PyType_Lookup`, guarded.
    pub(in crate::recorder) fn lookup<'py>(
        &self,
        frame: &Frame<'_>,
        ty: &Bound<'py, PyType>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        self.lookup_for(frame, ty, name, Use::default())
    }

    /// As [`Self::lookup`], for who only moves what was found: a number that varies from call to call (a counter of a
    /// class) is a symbol.
    pub(in crate::recorder) fn lookup_value<'py>(
        &self,
        frame: &Frame<'_>,
        ty: &Bound<'py, PyType>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let used = self.state.try_borrow().map_or_else(|_| Use::default(), |state| state.moving());
        self.lookup_for(frame, ty, name, used)
    }

    fn lookup_for<'py>(
        &self,
        frame: &Frame<'_>,
        ty: &Bound<'py, PyType>,
        name: Borrowed<'_, 'py>,
        used: Use,
    ) -> Option<Object<'py>> {
        let found = stator_cpython::heap::types::lookup(ty.as_borrowed(), name);
        let address = found.as_ref().map_or(0, |found| found.as_ptr() as usize);
        if self.is_stopped()
            || self.is_recent_lookup(ty.as_ptr() as usize, name.as_ptr() as usize, address)
        {
            return found;
        }
        let own = self.note(frame, |state| {
            let value = found.as_ref().map(|found| found.as_borrowed());
            if state.guard_lookup(ty, name, value, used)? == LookedUp::Written {
                return Ok(None);
            }
            let slot = (ty.as_ptr() as usize, name.as_ptr() as usize);
            let own = state.slot_stand_in(ty.py(), slot);
            if own.is_none() {
                state.remember_lookup(ty.as_any().as_borrowed(), name, value);
            }
            Ok(own)
        });
        own.flatten().or(found)
    }

    fn is_recent_lookup(&self, ty: usize, name: usize, found: usize) -> bool {
        self.state.try_borrow().is_ok_and(|state| state.is_recent_lookup(ty, name, found))
    }

    /// `LOAD_ATTR`.
    pub(in crate::recorder) fn get_attr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        if self.is_stopped() {
            return ops::get_attr(owner, name);
        }
        if let Some(own) = self.own_array(frame, owner) {
            return self.get_attr(frame, own?.as_borrowed(), name);
        }
        match self.find_attr(frame, owner, name)? {
            Found::Value(value) => Ok(value),
            Found::Function(function) => self.bound(frame, function.as_borrowed(), owner),
        }
    }

    /// `LOAD_METHOD`.
    pub(in crate::recorder) fn get_method<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Method<'py>> {
        if self.is_stopped() {
            return ops::get_method(owner, name);
        }
        if let Some(own) = self.own_array(frame, owner) {
            return Ok(Method::Attribute(self.get_attr(frame, own?.as_borrowed(), name)?));
        }
        if let Some(method) = self.blind_method(owner, name) {
            return Ok(Method::Function(method));
        }
        if let Some(method) = self.method_of_text(owner, name) {
            return Ok(Method::Function(method));
        }
        Ok(match self.find_attr(frame, owner, name)? {
            Found::Value(value) => Method::Attribute(value),
            Found::Function(function) => Method::Function(function),
        })
    }

    fn find_attr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Found<'py>> {
        self.find(frame, owner, name).map_err(|raised| ops::lacks(owner, name, raised))
    }

    fn find<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Found<'py>> {
        let kind = self.kind(owner);
        match kind {
            Kind::Constant => {
                // Of which class it is, all of its values say alike.
                let is_class = heap::is_number(owner) && heap::text(name) == "__class__";
                // A bound of a slice is the number that it was made of.
                let is_bound = owner.is_exact_instance_of::<PySlice>()
                    && matches!(&*heap::text(name), "start" | "stop" | "step");
                if !is_class && !is_bound && !lacks(owner, name) {
                    self.concrete(frame, &[owner], "an attribute of a number");
                }
                self.native_attr(frame, owner, name)
            }
            Kind::Tensor => self.tensor_attr(frame, owner, name),
            Kind::Type => self.class_attr(frame, owner, name),
            Kind::Super => self.super_attr(frame, owner, name),
            // What isn't a method's own is its function's, and so is what it says of itself. What is called then has
            // the function as `self`, not the method (`module.cached.cache_info()`).
            Kind::Method if self.knows_parts(owner) && is_of_function(owner, name) => self
                .get_attr(frame, heap::method_parts(owner).0.as_borrowed(), name)
                .map(Found::Value),
            Kind::TorchCallable => {
                let _native = Suspended::new(frame.py());
                self.read_natively(frame, owner, name)
            }
            Kind::Opaque if let Some(value) = self.attribute_of_array(frame, owner, name) => {
                value.map(Found::Value)
            }
            Kind::Opaque if let Some(method) = self.method_of_array(owner, name) => {
                Ok(Found::Function(method))
            }
            Kind::Opaque if let Some(value) = self.attribute_of_sparse(owner, name) => {
                value.map(Found::Value)
            }
            Kind::Opaque if let Some(method) = self.method_of_sparse(owner, name) => {
                Ok(Found::Function(method))
            }
            Kind::Opaque => {
                self.stop(
                    frame,
                    Reason::Unsupported,
                    format!("attribute {} of a {}", heap::text(name), heap::type_name(owner)),
                );
                ops::get_attr(owner, name).map(Found::Value)
            }
            Kind::Module if self.state.borrow().is_filtered(owner, name) => {
                self.stop(frame, Reason::Unsupported, "which warnings are shown");
                ops::get_attr(owner, name).map(Found::Value)
            }
            Kind::Object if let Some(value) = self.attribute_of_value(frame, owner, name) => {
                value.map(Found::Value)
            }
            _ => self.instance_attr(frame, owner, name),
        }
    }

    /// An attribute that C code computes from the object's immutable or fresh state.
    fn native_attr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Found<'py>> {
        let ty = owner.get_type();
        if let Some(found) = stator_cpython::heap::types::lookup(ty.as_borrowed(), name)
            && self.kind(found.as_borrowed()) == Kind::Builtin
            // `__new__` is one that isn't bound.
            && types::slot(found.get_type().as_borrowed(), SlotName::DescriptorGet) != Slot::Empty
        {
            return self.found_function(frame, found, owner);
        }
        self.read_natively(frame, owner, name)
    }

    /// An attribute that is a constant, or known by what its owner is.
    fn read_natively<'py>(
        &self,
        frame: &Frame<'_>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Found<'py>> {
        let value = ops::get_attr(owner, name)?;
        self.note_native(frame, owner, name, value)
    }

    pub(in crate::recorder) fn note_native<'py>(
        &self,
        frame: &Frame<'_>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
        value: Object<'py>,
    ) -> Result<Found<'py>> {
        self.note(frame, |state| {
            let dict = state.source(owner).and_then(|_| state.instance_dict(owner));
            match dict {
                // Where PyTorch keeps what it has found: another one stands there once it's defined again.
                Some(dict)
                    if heap::dict_get(dict.as_borrowed(), name)
                        .is_some_and(|kept| kept.is(&value)) =>
                {
                    state.read_dict_slot(dict.as_borrowed(), name, Some(value.as_borrowed()))
                }
                _ => state.register(value.as_borrowed()),
            }
        });
        Ok(Found::Value(value))
    }

    /// An attribute of an instance, by `object.__getattribute__`'s rules or the user's own.
    fn instance_attr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Found<'py>> {
        let py = frame.py();
        let ty = owner.get_type();
        if let Some(reads) = self.known_reads(&ty) {
            return self.generic_attr(frame, owner, &ty, name, reads);
        }
        match stator_cpython::heap::types::slot(ty.as_borrowed(), SlotName::GetAttribute) {
            Slot::Default => {
                // A class that gets a `__getattribute__` of its own later answers otherwise.
                self.guard_protocol(frame, owner, &["__getattribute__"]);
                self.remember_reads(&ty, Reads::Plainly);
                self.generic_attr(frame, owner, &ty, name, Reads::Plainly)
            }
            Slot::Python => {
                let getter = pyo3::intern!(py, "__getattribute__").as_any().as_borrowed();
                let getter = self.lookup(frame, &ty, getter);
                let custom =
                    getter.filter(|getter| self.kind(getter.as_borrowed()) == Kind::Function);
                match custom {
                    Some(getter) => {
                        let role = self.getter(&ty);
                        let args = [owner, name];
                        let found = self
                            .call_linked(role, None, Call::new(frame, getter.as_borrowed(), &args))
                            .map(Found::Value);
                        self.or_getattr(frame, found, owner, &ty, name)
                    }
                    None => {
                        self.remember_reads(&ty, Reads::Plainly);
                        self.generic_attr(frame, owner, &ty, name, Reads::Plainly)
                    }
                }
            }
            _ if self.kind(owner) == Kind::Module => {
                self.generic_attr(frame, owner, &ty, name, Reads::Plainly)
            }
            _ => {
                if self.is_fresh(owner) || heap::union_members(owner).is_some() {
                    return self.native_attr(frame, owner, name);
                }
                if let Some(found) = self.thread_local_attr(frame, owner, name) {
                    return found;
                }
                let detail =
                    format!("attribute {} of a {}", heap::text(name), heap::type_name(owner));
                self.stop(frame, Reason::Unsupported, detail);
                ops::get_attr(owner, name).map(Found::Value)
            }
        }
    }

    /// An attribute of a `threading.local`: what this thread has set it to. Others are the object's own.
    fn thread_local_attr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Result<Found<'py>>> {
        let text = heap::text(name);
        if text == "__dict__" && thread_local::is_thread_local(owner) {
            return self.dict_by_name(frame, owner, name).map(|dict| Ok(Found::Value(dict)));
        }
        let is_own = text.starts_with("__") && text.ends_with("__");
        let dict = thread_local::dict_of(owner).filter(|_| !is_own)?;
        let dict = dict.as_any().as_borrowed();
        let value = heap::dict_get(dict, name);
        let found = self.note_instance_value(frame, owner, dict, name, value);
        // Raises with the object's own message.
        Some(found.map_or_else(|| ops::get_attr(owner, name), Ok).map(Found::Value))
    }

    /// Whether a bound method's function and receiver are known: the trace made it, or found it outside with both.
    fn knows_parts(&self, method: Borrowed<'_, '_>) -> bool {
        let function = heap::method_parts(method).0;
        self.is_fresh(method) || {
            let state = self.state.borrow();
            state.source(method).is_some() && state.origin(function.as_borrowed()).is_some()
        }
    }

    pub(in crate::recorder) fn is_fresh(&self, object: Borrowed<'_, '_>) -> bool {
        matches!(self.origin(object), Some(Origin::Fresh | Origin::Node(_)))
    }

    /// `__getattr__` where the ordinary lookup raised `AttributeError`.
    pub(in crate::recorder) fn or_getattr<'py>(
        &self,
        frame: &Frame<'py>,
        found: Result<Found<'py>>,
        owner: Borrowed<'_, 'py>,
        ty: &Bound<'py, PyType>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Found<'py>> {
        let py = frame.py();
        let Err(raised) = found else { return found };
        let error = raised.take(py);
        if !error.is_instance_of::<pyo3::exceptions::PyAttributeError>(py) {
            return Err(Raised::set(py, error));
        }
        let fallback = pyo3::intern!(py, "__getattr__").as_any().as_borrowed();
        let Some(fallback) = self.lookup(frame, ty, fallback) else {
            return Err(Raised::set(py, error));
        };
        if self.kind(fallback.as_borrowed()) == Kind::Function {
            let role = Role::Getter { next: false };
            let args = [owner, name];
            return self
                .call_linked(role, None, Call::new(frame, fallback.as_borrowed(), &args))
                .map(Found::Value);
        }
        self.stop(frame, Reason::OpaqueCall, heap::type_name(owner));
        ops::get_attr(owner, name).map(Found::Value)
    }

    /// `PyObject_GenericGetAttr`, then `__getattr__`.
    pub(in crate::recorder) fn generic_attr_value<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let ty = owner.get_type();
        match self.plain_attr(frame, owner, &ty, name, Reads::Plainly)? {
            Some(Found::Value(value)) => Ok(value),
            Some(Found::Function(function)) => self.bound(frame, function.as_borrowed(), owner),
            None => generic::generic_get_attr(owner, name),
        }
    }

    fn generic_attr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        ty: &Bound<'py, PyType>,
        name: Borrowed<'_, 'py>,
        reads: Reads,
    ) -> Result<Found<'py>> {
        match self.plain_attr(frame, owner, ty, name, reads) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => {
                if self.kind(owner) == Kind::Module {
                    return self.module_getattr(frame, owner, ty, name);
                }
                self.call_getattr(frame, owner, ty, name)
                    .unwrap_or_else(|| generic::generic_get_attr(owner, name).map(Found::Value))
            }
            Err(raised) => self.or_getattr(frame, Err(raised), owner, ty, name),
        }
    }

    /// `__getattr__` of the owner's type, if it has one. It may be no Python function:
    /// `class Config(dict): __getattr__ = dict.__getitem__`.
    pub(in crate::recorder) fn call_getattr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        ty: &Bound<'py, PyType>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Result<Found<'py>>> {
        let hook = pyo3::intern!(frame.py(), "__getattr__").as_any().as_borrowed();
        let hook = self.lookup(frame, ty, hook)?;
        let hook = hook.as_borrowed();
        let value = if self.kind(hook) == Kind::Function {
            match self.module_member(frame, hook, owner, ty, name) {
                Some(member) => Ok(member),
                None => {
                    let role = Role::Getter { next: false };
                    self.call_linked(role, None, Call::new(frame, hook, &[owner, name]))
                }
            }
        } else if heap::is_method_descriptor(hook) && !heap::is_class_method_descriptor(hook) {
            // Such a descriptor bound to the owner is itself with the owner as first argument.
            self.call_object(Call::new(frame, hook, &[owner, name]))
        } else {
            self.stop(frame, Reason::OpaqueCall, heap::type_name(owner));
            ops::get_attr(owner, name)
        };
        Some(value.map(Found::Value))
    }

    /// A module's `__getattr__` (PEP 562), or that of a module subclass.
    fn module_getattr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        ty: &Bound<'py, PyType>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Found<'py>> {
        if let Some(found) = self.call_getattr(frame, owner, ty, name) {
            return found;
        }
        let hook = pyo3::intern!(frame.py(), "__getattr__").as_any().as_borrowed();
        if let Some(fallback) = self.instance_value(frame, owner, hook) {
            if self.kind(fallback.as_borrowed()) == Kind::Function {
                let role = Role::Getter { next: false };
                return self
                    .call_linked(role, None, Call::new(frame, fallback.as_borrowed(), &[name]))
                    .map(Found::Value);
            }
            self.stop(frame, Reason::OpaqueCall, "a module's `__getattr__`");
            return ops::get_attr(owner, name).map(Found::Value);
        }
        // Raises with the module's own message: from 3.13 on, code in Python says where the module's file lies.
        let _native = Suspended::new(frame.py());
        ops::get_attr(owner, name).map(Found::Value)
    }

    /// Reads a key of the instance dictionary, guarded.
    pub(in crate::recorder) fn instance_value<'py>(
        &self,
        frame: &Frame<'_>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if self.has_no_dict_yet(frame, owner) {
            return None;
        }
        let dict = heap::instance_dict(owner)?;
        let value = heap::dict_get(dict.as_borrowed(), name);
        self.note_instance_value(frame, owner, dict.as_borrowed(), name, value)
    }

    /// Whether an object that tells when it's pickled has no instance dictionary so far, which is guarded: a read
    /// doesn't make one.
    fn has_no_dict_yet(&self, frame: &Frame<'_>, owner: Borrowed<'_, '_>) -> bool {
        let has_none =
            heap::tells_of_dict(owner) && matches!(peek_instance_dict(owner), Peek::NotYet);
        if has_none {
            self.note(frame, |state| {
                if let Some(source) = state.source(owner) {
                    state.guard(source, GuardKind::NoInstanceDict);
                }
                Ok(())
            });
        }
        has_none
    }

    /// Takes note of what the instance dictionary holds at a key, or what stands for it.
    fn note_instance_value<'py>(
        &self,
        frame: &Frame<'_>,
        owner: Borrowed<'_, 'py>,
        dict: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
        value: Option<Object<'py>>,
    ) -> Option<Object<'py>> {
        let own = self.note(frame, |state| {
            state.know_instance_dict(owner, dict);
            if !state.policy.is_static()
                && let Some(value) = &value
            {
                return state.read_slot_value(dict, name, value.as_borrowed());
            }
            let value = value.as_ref().map(|value| value.as_borrowed());
            state.read_dict_slot(dict, name, value).map(|()| None)
        });
        own.flatten().or(value)
    }

    /// The generic lookup without `__getattr__`, except for members; `None`: not found.
    fn plain_attr<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        ty: &Bound<'py, PyType>,
        name: Borrowed<'_, 'py>,
        reads: Reads,
    ) -> Result<Option<Found<'py>>> {
        let on_type = self.lookup_value(frame, ty, name);
        let mut bind = None;
        if let Some(descriptor) = &on_type {
            match self.binding(frame, ty, name, descriptor.as_borrowed()) {
                Descriptor::Property => {
                    return self.property(frame, descriptor.as_borrowed(), owner, name).map(Some);
                }
                Descriptor::Member => {
                    return self.member(frame, descriptor.as_borrowed(), owner, name).map(Some);
                }
                Descriptor::GetSet => return self.get_set(frame, owner, name).map(Some),
                Descriptor::TupleGetter => {
                    // The tuple is guarded as a whole.
                    let value = generic::generic_get_attr(owner, name)?;
                    return self.note_native(frame, owner, name, value).map(Some);
                }
                Descriptor::UserData => {
                    return self
                        .user_descriptor(frame, descriptor.as_borrowed(), owner, ty)
                        .map(Some);
                }
                kind => bind = Some(kind),
            }
        }
        if !self.has_no_dict_yet(frame, owner)
            && let Some(dict) = heap::instance_dict(owner)
        {
            let dict = dict.as_borrowed();
            let value = heap::dict_get(dict, name);
            if reads == Reads::Members
                && on_type.is_none()
                && value.is_none()
                && let Some(member) = self.known_member(frame, owner, dict, name)
            {
                return Ok(Some(Found::Value(member)));
            }
            if let Some(value) = self.note_instance_value(frame, owner, dict, name, value) {
                return Ok(Some(Found::Value(value)));
            }
        }
        let (Some(found), Some(kind)) = (on_type, bind) else { return Ok(None) };
        Ok(Some(match kind {
            Descriptor::Function => self.found_function(frame, found, owner)?,
            Descriptor::Value => Found::Value(found),
            Descriptor::User => self.user_descriptor(frame, found.as_borrowed(), owner, ty)?,
            _ => Found::Value(self.bind_on(frame, found.as_borrowed(), kind, ty)?),
        }))
    }
}

impl State {
    /// Guards what a lookup along a type's method resolution order found, unless this trace wrote it.
    pub(in crate::recorder) fn guard_lookup(
        &mut self,
        ty: &Bound<'_, PyType>,
        name: Borrowed<'_, '_>,
        found: Option<Borrowed<'_, '_>>,
        used: Use,
    ) -> std::result::Result<LookedUp, Stop> {
        if stator_cpython::heap::types::is_immutable(ty.as_borrowed()) {
            if let Some(found) = found
                && self.origin(found).is_none()
                && self.kind(found) != Kind::Constant
            {
                self.anchor(found);
            }
            return Ok(LookedUp::Outside);
        }
        if !self.written.classes().is_empty() && self.finds_own_write(ty, name)? {
            return Ok(LookedUp::Written);
        }
        let slot = (ty.as_ptr() as usize, name.as_ptr() as usize);
        if !self.lookups.first(slot) {
            if !used.moves {
                self.fix_slot(ty.py(), slot);
            }
            return Ok(LookedUp::Outside);
        }
        let parent = self.anchor(ty.as_any().as_borrowed());
        let id = self.objects.intern(name);
        match found {
            Some(found) => {
                let Self { sources, objects, .. } = self;
                let source = sources.type_lookup(parent, id, || objects.name(id, name));
                if self.kind_alone(found) == Kind::Constant {
                    self.adopt_slot(used, slot, source, found)?;
                } else {
                    self.adopt(source, found)?;
                }
            }
            None => {
                let text = self.objects.name(id, name);
                self.guard(parent, GuardKind::LookupAbsent { name: id, text });
            }
        }
        Ok(LookedUp::Outside)
    }

    /// Reads a `__slots__` member: guards it if its owner is from outside and this trace did not
    /// write it.
    pub fn read_member(
        &mut self,
        used: Use,
        owner: Borrowed<'_, '_>,
        name: Borrowed<'_, '_>,
        offset: usize,
        value: Option<Borrowed<'_, '_>>,
    ) -> std::result::Result<(), Stop> {
        let Some(source) = self.source(owner) else { return Ok(()) };
        let slot = (owner.as_ptr() as usize, offset);
        if self.has_written(&slot) {
            // It holds what the trace put there.
            return Ok(());
        }
        if !self.reads.first(slot) {
            if !used.moves {
                self.fix_slot(owner.py(), slot);
            }
            return Ok(());
        }
        let id = self.objects.intern(name);
        let text = self.objects.name(id, name);
        match value {
            Some(value) => {
                let member = self.sources.slot(source, offset, || text);
                self.adopt_slot(used, slot, member, value)
            }
            None => {
                self.guard(source, GuardKind::SlotUnset { offset, name: text });
                Ok(())
            }
        }
    }
}

/// Whether an object is a number of a builtin type, which has no attribute of this name whatever its value.
fn lacks(object: Borrowed<'_, '_>, name: Borrowed<'_, '_>) -> bool {
    heap::is_number(object)
        && name
            .cast_exact::<PyString>()
            .is_ok_and(|name| object.get_type().hasattr(&*name).is_ok_and(|has| !has))
}

/// Whether a bound method asks its function for an attribute (`method_getattro` and `__doc__` of CPython's `classobject.c`).
fn is_of_function(method: Borrowed<'_, '_>, name: Borrowed<'_, '_>) -> bool {
    types::lookup(method.get_type().as_borrowed(), name).is_none() || heap::text(name) == "__doc__"
}
