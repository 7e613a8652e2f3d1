//! What is found outside: each object is guarded by what it is, where it was found.
//!
//! A list is guarded with its elements, an object by its type; functions, classes and modules are guarded to be the
//! very ones. Slots of dictionaries are guarded one by one, as they are read.

use pyo3::prelude::*;
use pyo3::types::PyString;
use stator_cpython::code::Code;
use stator_cpython::frame::Frame;
use stator_cpython::generic;
use stator_cpython::heap::{container, mortal, twister};
use stator_cpython::object::{Borrowed, Object};
use stator_guards::{GuardKind, ObjectId, Source, SourceId, Text};

use super::identity::is_nan;
use super::keys::is_module;
use super::only_added::holds_noticed;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Looks};
use crate::recorder::notes::effects::KEYS;
use crate::recorder::notes::heap;
use crate::recorder::notes::inputs::tensor_guard;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::objects::{Adopted, Mark, canonical_key};
use crate::recorder::notes::reads::Use;
use crate::recorder::notes::state::{Origin, State, Stop};

/// `CO_NESTED`.
const NESTED: u32 = 0x10;

impl State {
    /// Takes note of an outside object found at `source`: guards what a replay depends on (value,
    /// type, identity, structure) and gives it its origin.
    pub fn adopt(&mut self, source: SourceId, object: Borrowed<'_, '_>) -> Result<(), Stop> {
        self.adopt_for(Use::default(), source, object)
    }

    /// As [`State::adopt`], for a use that is known.
    pub fn adopt_for(
        &mut self,
        used: Use,
        source: SourceId,
        object: Borrowed<'_, '_>,
    ) -> Result<(), Stop> {
        if !self.first_seen(source) {
            return Ok(());
        }
        let adopted = self.adopt_new(used, source, object);
        if adopted.is_err() {
            // It isn't guarded, not wholly at least: nobody vouches for it.
            self.objects.forget_origin(object);
        }
        adopted
    }

    fn adopt_new(
        &mut self,
        used: Use,
        source: SourceId,
        object: Borrowed<'_, '_>,
    ) -> Result<(), Stop> {
        let kind = self.kind_alone(object);
        if kind == Kind::Constant {
            return self.adopt_constant(source, object);
        }
        // Outside objects stay alive (and with them their addresses) while the trace goes on. A node's
        // or a fresh object's entry is that of one that has died since: this one is from outside.
        let id = match self.objects.adopt(object, source) {
            Adopted::New(id) => id,
            Adopted::Before(known) => {
                self.guard(source, GuardKind::SameAs(known));
                if kind == Kind::Tuple {
                    self.fix_copied(object, known);
                }
                // What it is found in now may be its last owner.
                if kind == Kind::Object && !self.mortal.all().is_empty() {
                    let id = self.objects.intern(object);
                    if self.mortal.all().contains(&id) {
                        self.watch_within(id, source);
                    }
                }
                if !self.unread.is_empty() && !self.is_found_as_set(used, object) {
                    self.read_unread(object);
                }
                return Ok(());
            }
            Adopted::Identical(id) => {
                self.guard(source, GuardKind::Is(id));
                return Ok(());
            }
        };
        match kind {
            Kind::Constant => {}
            Kind::Tensor => {
                let Some(mut guard) = tensor_guard(self, object) else {
                    return Err((Reason::Unsupported, format!("a {}", heap::type_name(object))));
                };
                self.loosen(source, object, &mut guard);
                self.guard(source, GuardKind::Tensor(guard.into()));
            }
            Kind::Function if self.is_per_call_function(source, object) => {
                self.guard_type(source, object);
                self.guard_function_parts(source, object);
            }
            Kind::Builtin if let Some((receiver, descriptor)) = self.bound_anew(object) => {
                self.guard_type(source, object);
                let descriptor = descriptor.as_borrowed();
                let made_from = generic::made_from(descriptor).unwrap_or(0);
                let name = heap::name_of(descriptor).into();
                self.guard(source, GuardKind::MethodOf { made_from, name });
                self.adopt_part(used, Source::MethodSelf(source), &receiver)?;
            }
            Kind::Function
            | Kind::Builtin
            | Kind::Type
            | Kind::Module
            | Kind::Singleton
            | Kind::TorchCallable
            | Kind::Code
            | Kind::Descriptor => {
                self.objects.mark(object, Mark::ByIdentity);
                self.guard(source, GuardKind::Is(id));
            }
            Kind::List => {
                self.guard_type(source, object);
                if heap::is_exact_list(object) && self.is_left_unread(used, source, object) {
                    self.leave_unread(source, object, used);
                } else {
                    self.read_elements(used, source, object, &heap::list_items(object))?;
                }
            }
            Kind::Tuple => {
                self.guard_type(source, object);
                let items = heap::tuple_items(object);
                self.guard(source, GuardKind::Length(items.len()));
                for (index, item) in items.iter().enumerate() {
                    self.adopt_part(used, Source::TupleItem { parent: source, index }, item)?;
                }
            }
            Kind::Object => {
                self.guard_type(source, object);
                // Modules are in dictionaries of PyTorch's and of the program's, and seldom die within a call.
                if mortal::is_noticed_soon(object) && !is_module(object) {
                    self.watch_within(id, source);
                } else {
                    self.watch_finalizer(object, id, source);
                }
            }
            Kind::Dict | Kind::Cell => self.guard_type(source, object),
            Kind::Set | Kind::FrozenSet => {
                self.guard_type(source, object);
                if self.is_found_as_set(used, object) && !holds_noticed(object) {
                    self.leave_unread(source, object, Use::default());
                } else {
                    self.read_elements(used, source, object, &heap::set_items(object))?;
                }
            }
            Kind::Method => {
                self.guard_type(source, object);
                let (function, receiver) = heap::method_parts(object);
                self.adopt_part(used, Source::MethodFunc(source), &function)?;
                self.adopt_part(used, Source::MethodSelf(source), &receiver)?;
            }
            Kind::Partial => {
                self.guard_type(source, object);
                let (function, args, keywords) = heap::partial_parts(object);
                self.adopt_part(used, Source::PartialFunc(source), &function)?;
                self.adopt_part(used, Source::PartialArgs(source), &args)?;
                self.adopt_part(used, Source::PartialKeywords(source), &keywords)?;
                self.adopt_dict_for(used, keywords.as_borrowed())?;
            }
            Kind::Iterator | Kind::Super | Kind::Slice | Kind::Opaque => {
                // Harmless while it is only passed around; each use is a break of its own.
                self.guard_type(source, object);
                self.watch_finalizer(object, id, source);
            }
        }
        Ok(())
    }

    /// Whether what a list holds may stay unguarded until somebody looks: it's found by who adds to it, or its length
    /// was another one in two traces.
    fn is_left_unread(&self, used: Use, source: SourceId, list: Borrowed<'_, '_>) -> bool {
        let changes = |length| self.policy.takes_length(length, || self.sources.print(source));
        self.is_found_to_change(used) || container::list_length(list).is_some_and(changes)
    }

    /// A number, a text or the like: guarded by its value.
    fn adopt_constant(&mut self, source: SourceId, object: Borrowed<'_, '_>) -> Result<(), Stop> {
        if !heap::is_constant(object) {
            return Err((Reason::Unsupported, format!("a {} of objects", heap::type_name(object))));
        }
        if let Some(number) = self.number(object) {
            // The same object at another source: a replay may find another number there.
            self.specialise(object.py(), number, "found in two places");
        }
        let guard = self.constant_guard(object);
        self.guard(source, guard);
        if let Source::Local { .. } = self.sources.get(source) {
            self.objects.intern(object);
            let known = self.roots.first_with(object, source);
            if known != source && !heap::is_shared_constant(object) {
                // Recipes take one for the other, and `is` tells them apart.
                self.guard(source, GuardKind::SameAs(known));
            }
        }
        Ok(())
    }

    /// Receiver and descriptor of a bound C method whose receiver isn't there for good: each call may bind it
    /// anew. Others (`random.random`) are known by identity.
    fn bound_anew<'py>(&mut self, method: Borrowed<'_, 'py>) -> Option<(Object<'py>, Object<'py>)> {
        let (receiver, descriptor) = heap::bound_parts(method)?;
        // A slot's descriptor of another type may die, and another object have its address.
        let is_told = generic::method_def(method).is_some()
            || generic::is_fixed_method(descriptor.as_borrowed());
        if !is_told {
            return None;
        }
        let is_lasting = match self.kind(receiver.as_borrowed()) {
            Kind::Type
            | Kind::Module
            | Kind::Function
            | Kind::Builtin
            | Kind::Singleton
            | Kind::TorchCallable
            | Kind::Code
            | Kind::Descriptor
            | Kind::Opaque => true,
            _ => twister::is_known(receiver.as_borrowed()),
        };
        (!is_lasting).then_some((receiver, descriptor))
    }

    /// Adopts what an object holds at a source of its own.
    fn adopt_part(&mut self, used: Use, source: Source, part: &Object<'_>) -> Result<(), Stop> {
        let source = self.sources.intern(source);
        self.adopt_for(used, source, part.as_borrowed())
    }

    /// Guards what makes a function that each call makes anew the same: its code and its globals.
    pub(in crate::recorder) fn guard_function_parts(
        &mut self,
        source: SourceId,
        function: Borrowed<'_, '_>,
    ) {
        let code = heap::function_code(function).expect("a function has code");
        let code_source = self.sources.intern(Source::Code(source));
        let code = self.objects.intern(code.as_borrowed());
        self.guard(code_source, GuardKind::Is(code));
        let globals = heap::function_globals(function).expect("a function has globals");
        let globals_source = self.sources.intern(Source::Globals(source));
        let globals = self.objects.intern(globals.as_borrowed());
        self.guard(globals_source, GuardKind::Is(globals));
    }

    /// Whether a function is likely made anew for each call: found below an argument, with a closure; in a frame behind
    /// a break or in a generator's, by a function around it (a comprehension, too); or in a `map`. Such a function is
    /// guarded by its code and parts, any other by its identity.
    fn is_per_call_function(&self, source: SourceId, object: Borrowed<'_, '_>) -> bool {
        match self.sources.get(source) {
            // That of a `map`, which is one for a call itself.
            Source::Iterated { .. } => return true,
            Source::GeneratorSlot { .. } if is_nested(object) => return true,
            Source::Local { .. } if self.roots.are_behind_break() && is_nested(object) => {
                return true;
            }
            _ => {}
        }
        heap::has_closure(object) && {
            let mut at = source;
            loop {
                match self.sources.get(at) {
                    Source::Local { .. } => return true,
                    other => match other.parent() {
                        Some(parent) => at = parent,
                        None => return false,
                    },
                }
            }
        }
    }

    fn constant_guard(&mut self, object: Borrowed<'_, '_>) -> GuardKind {
        if object.is_none() {
            GuardKind::IsNone
        } else {
            GuardKind::Equals(self.objects.intern(object))
        }
    }

    /// Reads a slot of a dictionary: guards it if the dictionary is from outside and this trace did
    /// not write the slot. `value` is what the slot holds now, and what who reads it gets.
    pub fn read_dict_slot(
        &mut self,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
        value: Option<Borrowed<'_, '_>>,
    ) -> Result<(), Stop> {
        self.read_slot(Use::default(), dict, key, value, false)
    }

    /// As [`State::read_dict_slot`]. `stands_in`: who reads it takes what stands for a number, or only asks
    /// whether there is a value.
    pub fn read_slot(
        &mut self,
        used: Use,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
        value: Option<Borrowed<'_, '_>>,
        stands_in: bool,
    ) -> Result<(), Stop> {
        let Some(parent) = self.source(dict) else { return Ok(()) };
        if !key.is_exact_instance_of::<PyString>() {
            self.know_equality(dict, key)?;
        }
        let key = self.key_in(dict, key);
        let slot = (dict.as_ptr() as usize, key.as_ptr() as usize);
        if self.enclosed.hides(slot.0)
            && let Some(value) = value
            && !self.written.is_part(&slot)
            && self.take_left(dict, parent, key.as_borrowed(), value)?
        {
            return Ok(());
        }
        if self.has_written_entry(dict, &slot) {
            // It holds what the trace put there.
            return Ok(());
        }
        if !self.reads.first(slot) {
            if !stands_in && !self.is_lent(dict, key.as_borrowed()) {
                self.fix_slot(dict.py(), slot);
            }
            return Ok(());
        }
        if is_nan(key.as_borrowed()) {
            return Err(nan_key());
        }
        let by_value =
            heap::is_constant(key.as_borrowed()) || self.is_identity_guarded(key.as_borrowed());
        if !by_value {
            // Equality and hash of the key may be a user's: the keys as a whole, by identity.
            self.adopt_keys(dict)?;
        }
        let id = self.objects.intern(key.as_borrowed());
        match value {
            Some(value) => {
                self.know_stored_key(dict, key.as_borrowed())?;
                let text = self.key_text(id, key.as_borrowed());
                // Each slot comes here once.
                let source = self.sources.new_dict_item(parent, id, text);
                if stands_in {
                    self.adopt_slot(used, slot, source, value)
                } else {
                    self.adopt_for(used, source, value)
                }
            }
            None => {
                if heap::is_lookup_refused(dict, key.as_borrowed()) {
                    return Err(by_value_alone());
                }
                if !self.objects.is_marked(dict.as_ptr() as usize, Mark::Keyed) {
                    let text = self.key_text(id, key.as_borrowed());
                    self.guard(parent, GuardKind::KeyAbsent { key: id, text });
                }
                Ok(())
            }
        }
    }

    /// How a key is printed: a tensor by where it is found, because many look alike.
    fn key_text(&mut self, id: ObjectId, key: Borrowed<'_, '_>) -> Text {
        match self.source(key) {
            Some(source) if self.kind_alone(key) == Kind::Tensor => {
                self.sources.print(source).as_str().into()
            }
            _ => self.objects.repr(id, key),
        }
    }

    /// Guards the keys of an outside dictionary in iteration order, for who reads them as values.
    pub fn adopt_keys(&mut self, dict: Borrowed<'_, '_>) -> Result<(), Stop> {
        self.settle_keys(dict);
        self.know_keys(dict)
    }

    /// As [`State::adopt_keys`], for who looks at no key.
    pub fn know_keys(&mut self, dict: Borrowed<'_, '_>) -> Result<(), Stop> {
        let Some(source) = self.source(dict) else { return Ok(()) };
        if !self.objects.mark(dict, Mark::Keyed) {
            return Ok(());
        }
        self.reads.first((dict.as_ptr() as usize, KEYS));
        let mut ids = Vec::new();
        let items = heap::dict_items(dict);
        if heap::is_ordered_dict(dict) && items.len() != heap::dict_length(dict) {
            // What `dict`'s own methods wrote to it isn't in its own order.
            return Err((Reason::Unsupported, "a dictionary with two orders that differ".into()));
        }
        for (key, _) in items {
            let key = canonical_key(key.as_borrowed());
            self.adopt_key(key.as_borrowed())?;
            ids.push(self.objects.intern(key.as_borrowed()));
        }
        self.guard(source, GuardKind::DictKeys(ids.into()));
        Ok(())
    }

    /// Vouches for a dictionary's key: constants need nothing, others are known by identity.
    fn adopt_key(&mut self, key: Borrowed<'_, '_>) -> Result<(), Stop> {
        match self.kind(key) {
            Kind::Constant if is_nan(key) => Err(nan_key()),
            Kind::Constant => Ok(()),
            Kind::Tuple => heap::tuple_items(key)
                .iter()
                .try_for_each(|item| self.adopt_key(item.as_borrowed())),
            Kind::Function
            | Kind::Builtin
            | Kind::Type
            | Kind::Module
            | Kind::Singleton
            | Kind::TorchCallable => {
                self.anchor(key);
                Ok(())
            }
            _ if self.origin(key).is_some() => Ok(()),
            _ => Err((Reason::Unsupported, "a dictionary with objects as keys".into())),
        }
    }

    /// Guards an outside dictionary as a whole: keys in order, and every value.
    pub fn adopt_dict(&mut self, dict: Borrowed<'_, '_>) -> Result<(), Stop> {
        self.adopt_dict_for(Use::default(), dict)
    }

    /// As [`State::adopt_dict`], for a use that is known.
    pub fn adopt_dict_for(&mut self, used: Use, dict: Borrowed<'_, '_>) -> Result<(), Stop> {
        self.settle_keys(dict);
        self.adopt_entries(used, dict)
    }

    /// As [`State::adopt_dict_for`], for who looks at no key.
    pub fn adopt_entries(&mut self, used: Use, dict: Borrowed<'_, '_>) -> Result<(), Stop> {
        if self.source(dict).is_none() {
            return Ok(());
        }
        self.know_keys(dict)?;
        for (key, value) in heap::dict_items(dict) {
            self.adopt_value(used, dict, key.as_borrowed(), value.as_borrowed())?;
        }
        Ok(())
    }
}

/// It isn't there itself, but one that equals it may be.
pub(in crate::recorder) fn by_value_alone() -> Stop {
    (Reason::Identity, "a key that another one may equal".into())
}

/// Two that look the same are two keys, and which one is found depends on their identity.
fn nan_key() -> Stop {
    (Reason::Identity, "a NaN as key".into())
}

impl Recorder {
    /// Gives a function that a guarded class attribute led to an origin.
    pub(in crate::recorder) fn vouch(&self, frame: &Frame<'_>, function: Borrowed<'_, '_>) {
        self.note(frame, |state| {
            if state.origin(function).is_none() && state.kind(function) != Kind::Constant {
                state.anchor(function);
            }
            Ok(())
        });
    }
}

impl State {
    /// A container under construction is about to change. Behind a graph break it's an outside
    /// object, but only the stack holds it: it may as well be made anew.
    pub fn own_container(&mut self, container: Borrowed<'_, '_>) -> Result<(), Stop> {
        match self.origin(container) {
            Some(Origin::Fresh) => Ok(()),
            Some(Origin::Source(_)) if self.roots.is_on_stack(container) => {
                if self.kind(container) == Kind::Dict {
                    self.adopt_dict(container)?;
                }
                self.set_fresh(container);
                Ok(())
            }
            _ => Err((Reason::OutsideWrite, "a container under construction".into())),
        }
    }
}

/// Whether a function's code stands within another function's.
fn is_nested(function: Borrowed<'_, '_>) -> bool {
    let code = heap::function_code(function);
    let code = code.as_ref().and_then(|code| Code::of(code.as_borrowed()));
    code.is_some_and(|code| code.flags() & NESTED != 0)
}
