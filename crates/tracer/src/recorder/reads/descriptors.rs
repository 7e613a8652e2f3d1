//! Descriptors: how an attribute found on a class binds to its instances, and what C code's give.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use stator_cpython::frame::Frame;
use stator_cpython::generic::{self, DescriptorType};
use stator_cpython::heap::thread_local;
use stator_cpython::heap::types::{self, Slot, SlotName};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Raised, Result};
use stator_guards::{FunctionField, GuardKind, Source};

use super::attributes::Found;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::{Descriptor, Kind};
use crate::recorder::notes::state::{State, Stop};
use crate::within;

/// What makes a class attribute a descriptor.
pub(in crate::recorder) const DESCRIPTOR: &[&str] = &["__get__", "__set__", "__delete__"];

impl Recorder {
    /// Binds a static or class method found on a class.
    pub(in crate::recorder) fn bind_on<'py>(
        &self,
        frame: &Frame<'_>,
        found: Borrowed<'_, 'py>,
        kind: Descriptor,
        ty: &Bound<'py, PyType>,
    ) -> Result<Object<'py>> {
        let inner = heap::wrapped_function(found);
        self.note(frame, |state| {
            if state.origin(inner.as_borrowed()).is_none() {
                state.anchor(inner.as_borrowed());
            }
            state.anchor(ty.as_any().as_borrowed());
            Ok(())
        });
        if kind == Descriptor::StaticMethod {
            return Ok(inner);
        }
        let class = ty.as_any().as_borrowed();
        match self.descriptor(inner.as_borrowed()) {
            // Bound by the class method itself.
            Descriptor::Function if !heap::is_method_descriptor(inner.as_borrowed()) => {}
            Descriptor::User if is_cached_function(inner.as_borrowed()) => {}
            Descriptor::Value => {}
            // Some versions ask it to bind itself to the class: `classmethod(property(...))`.
            _ => {
                let what = heap::type_name(inner.as_borrowed());
                self.stop(frame, Reason::Unsupported, format!("a class method around a {what}"));
                return generic::descriptor_get(found, None, class);
            }
        }
        self.bound(frame, inner.as_borrowed(), class)
    }

    /// A function that a lookup found on the owner's type. A class method of a C type is bound at once, because
    /// its first argument is the class.
    pub(in crate::recorder) fn found_function<'py>(
        &self,
        frame: &Frame<'_>,
        found: Object<'py>,
        owner: Borrowed<'_, 'py>,
    ) -> Result<Found<'py>> {
        if heap::is_class_method_descriptor(found.as_borrowed()) {
            let class = owner.get_type();
            self.note(frame, |state| {
                state.anchor(class.as_any().as_borrowed());
                Ok(())
            });
            return self.bound(frame, found.as_borrowed(), owner).map(Found::Value);
        }
        Ok(Found::Function(found))
    }

    /// A method, made by this trace. Descriptors of C types make methods of types of their own.
    pub(in crate::recorder) fn bound<'py>(
        &self,
        frame: &Frame<'_>,
        function: Borrowed<'_, 'py>,
        receiver: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        if !heap::is_method_descriptor(function) {
            return Ok(self.python_method(frame, function, receiver));
        }
        let method = heap::bind(function, receiver)?;
        self.note(frame, |state| {
            state.set_fresh(method.as_borrowed());
            Ok(())
        });
        Ok(method)
    }

    /// A method of a Python function, made by this trace.
    pub(in crate::recorder) fn python_method<'py>(
        &self,
        frame: &Frame<'_>,
        function: Borrowed<'_, 'py>,
        receiver: Borrowed<'_, 'py>,
    ) -> Object<'py> {
        let method = heap::bind_method(function, receiver);
        self.note(frame, |state| {
            state.set_fresh(method.as_borrowed());
            Ok(())
        });
        method
    }

    /// How a class attribute binds, guarded. Objects of immutable types bind in the same way for good.
    pub(in crate::recorder) fn binding(
        &self,
        frame: &Frame<'_>,
        ty: &Bound<'_, PyType>,
        name: Borrowed<'_, '_>,
        found: Borrowed<'_, '_>,
    ) -> Descriptor {
        let (class, key) = (ty.as_ptr() as usize, name.as_ptr() as usize);
        let address = found.as_ptr() as usize;
        if let Some(binding) = self.state.borrow().recent_binding(class, key, address) {
            return binding;
        }
        self.guard_protocol(frame, found, DESCRIPTOR);
        let binding = self.descriptor(found);
        if stator_cpython::heap::types::is_immutable(found.get_type().as_borrowed()) {
            self.state.borrow_mut().remember_binding(class, key, address, binding);
        }
        binding
    }

    pub(in crate::recorder) fn descriptor(&self, object: Borrowed<'_, '_>) -> Descriptor {
        if heap::is_tuple_getter(object) {
            return Descriptor::TupleGetter;
        }
        match self.kind(object) {
            Kind::Function => Descriptor::Function,
            Kind::Builtin if heap::is_method_descriptor(object) => Descriptor::Function,
            Kind::Descriptor => match heap::descriptor_kind(object) {
                Descriptor::Member if heap::is_field_of_items(object) => Descriptor::TupleGetter,
                kind => kind,
            },
            // Compiled and disabled functions bind as functions do.
            Kind::Object if within::is_function_like(object) => Descriptor::Function,
            // Methods of NumPy's generators.
            Kind::Object if self.functions.class(object).is_some() => Descriptor::Function,
            Kind::Object | Kind::Type | Kind::Opaque | Kind::Partial | Kind::Singleton => {
                let ty = object.get_type();
                let of = |slot| stator_cpython::heap::types::slot(ty.as_borrowed(), slot);
                match (of(SlotName::DescriptorGet), of(SlotName::DescriptorSet)) {
                    (Slot::Empty, _) => Descriptor::Value,
                    // A property of a class of its own, which binds as others do.
                    (Slot::Native, Slot::Native) if heap::property_getter(object).is_some() => {
                        Descriptor::Property
                    }
                    (_, Slot::Empty) => Descriptor::User,
                    _ => Descriptor::UserData,
                }
            }
            _ => Descriptor::Value,
        }
    }

    /// Guards that a property of a class of its own is this very one, and binds as it does. Others are found by identity.
    pub(in crate::recorder) fn know_property(&self, frame: &Frame<'_>, property: Borrowed<'_, '_>) {
        if self.kind(property) == Kind::Object {
            self.guard_protocol(frame, property, DESCRIPTOR);
            self.note(frame, |state| state.know_for_good(property));
        }
    }

    pub(in crate::recorder) fn property<'py>(
        &self,
        frame: &Frame<'py>,
        property: Borrowed<'_, 'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Found<'py>> {
        self.know_property(frame, property);
        let Some(getter) = heap::property_getter(property) else {
            return generic::generic_get_attr(owner, name).map(Found::Value);
        };
        self.note(frame, |state| {
            if state.origin(getter.as_borrowed()).is_none() {
                state.anchor(getter.as_borrowed());
            }
            Ok(())
        });
        let role = self.getter(&owner.get_type());
        self.call_linked(role, None, Call::new(frame, getter.as_borrowed(), &[owner]))
            .map(Found::Value)
    }

    /// A `__slots__` member.
    pub(in crate::recorder) fn member<'py>(
        &self,
        frame: &Frame<'py>,
        descriptor: Borrowed<'_, 'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Found<'py>> {
        if let Some(dict) = self.dict_by_name(frame, owner, name) {
            return Ok(Found::Value(dict));
        }
        let offset = stator_cpython::heap::member::readable_offset_of(descriptor, owner);
        let outside = self.state.borrow().source(owner).is_some();
        let value =
            generic::generic_get_attr(owner, name).map_err(|raised| raised.take(frame.py()));
        let raise = |error| Raised::set(frame.py(), error);
        let (true, Some(offset)) = (outside, offset) else {
            let value = value.map_err(raise);
            if offset.is_none() && outside {
                return self.c_field(frame, owner, name, value);
            }
            if let Ok(value) = &value
                && self.kind(owner) == Kind::Partial
            {
                // The parts of one that this trace made are its own as well.
                self.note(frame, |state| state.register(value.as_borrowed()));
            }
            return value.map(Found::Value);
        };
        let own = self.note(frame, |state| {
            let value = value.as_ref().ok().map(|value| value.as_borrowed());
            let used = state.moving();
            state.read_member(used, owner, name, offset, value)?;
            Ok(state.slot_stand_in(frame.py(), (owner.as_ptr() as usize, offset)))
        });
        own.flatten().map_or(value, Ok).map(Found::Value).map_err(raise)
    }

    /// `o.__dict__`, where it's a field of a C type as that of a `SimpleNamespace`, or a computed attribute. Of a
    /// `threading.local` it's this thread's.
    pub(in crate::recorder) fn dict_by_name<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        // Names are interned: those of instructions by the compiler, others by who calls this.
        if !name.is(pyo3::intern!(frame.py(), "__dict__")) {
            return None;
        }
        let dict = self.note(frame, |state| {
            let of_thread = |state: &mut State| {
                let dict = thread_local::dict_of(owner)?.into_any();
                state.know_instance_dict(owner, dict.as_borrowed());
                Some(dict)
            };
            Ok(state.instance_dict(owner).or_else(|| of_thread(state)))
        });
        dict.flatten()
    }

    /// `vars(o)`: whatever `o.__dict__` is. Where that is for Python code to say, the trace ends.
    pub(in crate::recorder) fn dict_of<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let name = pyo3::intern!(frame.py(), "__dict__").as_any().as_borrowed();
        let ty = owner.get_type();
        let found = self.lookup(frame, &ty, name);
        let is_in_c = types::slot(ty.as_borrowed(), SlotName::GetAttribute) != Slot::Python || {
            let hook = pyo3::intern!(frame.py(), "__getattribute__").as_any().as_borrowed();
            let hook = self.lookup(frame, &ty, hook);
            hook.is_none_or(|hook| self.kind(hook.as_borrowed()) != Kind::Function)
        };
        let is_field = found.is_some_and(|found| {
            let kind = self.descriptor(found.as_borrowed());
            matches!(kind, Descriptor::GetSet | Descriptor::Member)
        });
        let dict = self.dict_by_name(frame, owner, name).filter(|_| is_in_c && is_field);
        if dict.is_none() {
            let detail = format!("vars() of a {}", heap::type_name(owner));
            self.stop(frame, Reason::Unsupported, detail);
        }
        dict
    }

    /// A field or computed attribute of a C type on an outside object.
    fn c_field<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
        value: Result<Object<'py>>,
    ) -> Result<Found<'py>> {
        let value = value?;
        let text = name.cast::<PyString>();
        let text = text.as_ref().ok().and_then(|name| name.to_str().ok()).unwrap_or("?");
        self.note(frame, |state| state.adopt_field(owner, text, value.as_borrowed()));
        Ok(Found::Value(value))
    }

    /// A `getset` descriptor of a C type.
    pub(in crate::recorder) fn get_set<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Found<'py>> {
        if let Some(dict) = self.dict_by_name(frame, owner, name) {
            return Ok(Found::Value(dict));
        }
        if name.is(pyo3::intern!(frame.py(), "__class__")) {
            let ty = owner.get_type();
            self.note(frame, |state| {
                state.anchor(ty.as_any().as_borrowed());
                Ok(())
            });
            return Ok(Found::Value(ty.into_any()));
        }
        let value = generic::generic_get_attr(owner, name);
        if self.is_fresh(owner) {
            return self.note_native(frame, owner, name, value?);
        }
        self.c_field(frame, owner, name, value)
    }

    /// `type.__dict__["__mro__"].__get__(cls)`: the attribute that a C descriptor reads. `None`: the call is another one.
    pub(in crate::recorder) fn got_by_descriptor<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names, .. } = call;
        let ([descriptor, owner] | [descriptor, owner, _], None) = (args, names) else {
            return None;
        };
        if !is_slot_getter(callable) || owner.is_none() {
            return None;
        }
        // `set = object.__setattr__.__get__(x)`.
        if heap::is_method_descriptor(*descriptor) && args.len() == 2 {
            self.note(frame, |state| state.know_for_good(*descriptor));
            return Some(self.bound(frame, *descriptor, *owner));
        }
        if !is_c_field(*descriptor) {
            return None;
        }
        let class = descriptor.getattr(pyo3::intern!(frame.py(), "__objclass__")).ok()?;
        if !generic::is_subtype(&owner.get_type(), class.cast::<PyType>().ok()?) {
            // It raises, because of the owner's type alone.
            self.note(frame, |state| {
                if let Some(source) = state.source(*owner) {
                    state.guard_type(source, *owner);
                }
                Ok(())
            });
            return Some(call.natively());
        }
        let name = descriptor.getattr(pyo3::intern!(frame.py(), "__name__")).ok()?;
        let name = generic::interned(name.cast_exact::<PyString>().ok()?).into_any();
        let found = self.lookup(frame, &owner.get_type(), name.as_borrowed())?;
        found.is(descriptor).then(|| self.get_attr(frame, *owner, name.as_borrowed()))
    }

    /// A descriptor of a user's class: its `__get__`.
    pub(in crate::recorder) fn user_descriptor<'py>(
        &self,
        frame: &Frame<'py>,
        descriptor: Borrowed<'_, 'py>,
        owner: Borrowed<'_, 'py>,
        ty: &Bound<'py, PyType>,
    ) -> Result<Found<'py>> {
        let class = descriptor.get_type();
        let name = pyo3::intern!(frame.py(), "__get__").as_any().as_borrowed();
        let getter = self.lookup(frame, &class, name);
        match getter {
            Some(getter) if self.kind(getter.as_borrowed()) == Kind::Function => {
                let args = [descriptor, owner, ty.as_any().as_borrowed()];
                let role = self.getter(ty);
                self.call_linked(role, None, Call::new(frame, getter.as_borrowed(), &args))
                    .map(Found::Value)
            }
            // Its `__get__` binds it as a method.
            _ if is_cached_function(descriptor) => {
                self.bound(frame, descriptor, owner).map(Found::Value)
            }
            _ => {
                self.stop(
                    frame,
                    Reason::Unsupported,
                    format!("a descriptor of type {}", heap::type_name(descriptor)),
                );
                generic::descriptor_get(descriptor, Some(owner), ty.as_any().as_borrowed())
                    .map(Found::Value)
            }
        }
    }
}

/// Fields of a `ParamSpec` of C code's that say the same for good. Its default is evaluated late, and may be a list.
const LASTING: &[&str] = &["args", "kwargs", "__name__"];

/// Whether this is a descriptor of a field of a C type, computed or not: what it reads can't be changed.
fn is_c_field(object: Borrowed<'_, '_>) -> bool {
    let field = generic::descriptor_type(object);
    matches!(field, Some(DescriptorType::GetSet | DescriptorType::Member))
}

/// Whether this is `__get__` of a C type, which takes the descriptor as its first argument.
fn is_slot_getter(callable: Borrowed<'_, '_>) -> bool {
    generic::descriptor_type(callable) == Some(DescriptorType::Method)
        && generic::method_name(callable) == Some("__get__")
}

/// Whether this is what `functools.lru_cache` makes of a function.
fn is_cached_function(object: Borrowed<'_, '_>) -> bool {
    heap::type_name(object) == "_lru_cache_wrapper"
}

impl State {
    /// Whether the receiver of a bound C method is known for good, or vouched for.
    pub fn is_settled_receiver(&mut self, receiver: Borrowed<'_, '_>) -> bool {
        match self.kind(receiver) {
            Kind::Constant | Kind::Type | Kind::Module | Kind::Function | Kind::Singleton => true,
            _ => {
                self.origin(receiver).is_some()
                    || heap::is_constant(receiver)
                    || is_c_field(receiver)
                    || heap::is_method_descriptor(receiver)
            }
        }
    }

    /// A field of a C object: functions' parts have sources; what belongs to an object known by
    /// identity, or to an immutable one, is a constant of the trace.
    fn adopt_field(
        &mut self,
        owner: Borrowed<'_, '_>,
        name: &str,
        value: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        if self.kind(owner) == Kind::Singleton && heap::is_generator(owner) {
            // It moves on with each draw, and who holds a part of it can move it.
            return Err((
                Reason::Unsupported,
                format!("field {name} of a {}", heap::type_name(owner)),
            ));
        }
        let is_specification = heap::type_name(owner) == "ParamSpec";
        if self.kind(owner) == Kind::Singleton && is_specification && !LASTING.contains(&name) {
            return Err((Reason::Unsupported, format!("field {name} of a ParamSpec")));
        }
        let Some(source) = self.source(owner) else { return self.register(value) };
        if name == "maxlen" && heap::is_deque(owner) {
            return self.read_max_length(owner);
        }
        let field = match (self.kind(owner), name) {
            (Kind::Function, "__code__") => Some(Source::Code(source)),
            (Kind::Function, "__defaults__") => Some(Source::Defaults(source)),
            (Kind::Function, "__kwdefaults__") => Some(Source::KwDefaults(source)),
            (Kind::Function, "__globals__") => Some(Source::Globals(source)),
            (Kind::Builtin, "__self__") if self.is_own_method(owner) => {
                Some(Source::MethodSelf(source))
            }
            (Kind::Method, "__self__") => Some(Source::MethodSelf(source)),
            (Kind::Method, "__func__") => Some(Source::MethodFunc(source)),
            (Kind::Partial, "func") => Some(Source::PartialFunc(source)),
            (Kind::Partial, "args") => Some(Source::PartialArgs(source)),
            (Kind::Partial, "keywords") => Some(Source::PartialKeywords(source)),
            // A property of a class of its own; without a getter its field is empty.
            (Kind::Object, "fget") if heap::property_getter(owner).is_some() => {
                Some(Source::PropertyGet(source))
            }
            (Kind::Function, name) => FunctionField::from_name(name)
                .map(|field| Source::FunctionField { parent: source, field }),
            _ => None,
        };
        if value.is_none() {
            let absent = match (self.kind(owner), name) {
                (Kind::Function, "__defaults__") => Some(GuardKind::NoDefaults),
                (Kind::Function, "__kwdefaults__") => Some(GuardKind::NoKwDefaults),
                // Closures can't be assigned.
                (Kind::Function, "__closure__") => return Ok(()),
                _ => None,
            };
            if let Some(guard) = absent {
                self.guard(source, guard);
                return Ok(());
            }
        }
        if let Some(field) = field {
            let source = self.sources.intern(field);
            return self.adopt(source, value);
        }
        match self.kind(owner) {
            // A method that was bound outside is known by identity; what it's bound to has no source.
            Kind::Builtin if name == "__self__" && !self.is_settled_receiver(value) => {
                Err((Reason::UnknownOrigin, "what a method is bound to".into()))
            }
            Kind::Function
            | Kind::Builtin
            | Kind::Code
            | Kind::Singleton
            | Kind::Descriptor
            | Kind::Type => self.register(value),
            _ => {
                Err((Reason::Unsupported, format!("field {name} of a {}", heap::type_name(owner))))
            }
        }
    }
}
