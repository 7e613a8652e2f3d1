//! Containers from outside that a trace only adds to.
//!
//! `log.append(x)` doesn't depend on what the log holds, so neither should its trace. A container that
//! is found by an instruction right before such a method's name is guarded by its type alone. It is
//! *read*, and its contents as they were before the call's own changes are guarded, as soon as
//! anything else looks at it: [`State::kind`] is asked first, whoever looks.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stator_bytecode::{Opcode, Version};
use stator_cpython::code::Code;
use stator_cpython::frame::Frame;
use stator_cpython::generic;
use stator_cpython::heap::types::compares_by_identity;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::opcode;
use stator_guards::{GuardKind, Source, SourceId};
use stator_operators::only_adds;

use super::Recorder;
use super::effects::CONTENTS;
use super::identity::is_nan;
use super::kinds::Kind;
use super::look as heap;
use super::state::{State, Stop};
use crate::breaks::Reason;

/// A container whose contents aren't guarded.
pub struct Unread {
    source: SourceId,
    /// A tuple of what it held when it was found.
    pub before: Py<PyTuple>,
}

impl State {
    /// Whether the instruction that finds an object is followed by one that looks up a method that
    /// only adds.
    pub fn is_found_to_change(&self) -> bool {
        if self.only_changed {
            return true;
        }
        let (code, unit) = self.here;
        let code = self.codes.get(code as usize);
        Python::attach(|py| {
            let code = code.and_then(|code| Code::of(code.bind_borrowed(py)));
            code.is_some_and(|code| adds_next(&code, unit as usize))
        })
    }

    /// Leaves the contents of a container unguarded until somebody looks at them.
    pub fn leave_unread(&mut self, source: SourceId, object: Borrowed<'_, '_>) {
        let Ok(before) = PyTuple::new(object.py(), heap::elements(object)) else { return };
        let unread = Unread { source, before: before.unbind() };
        self.unread.insert(object.as_ptr() as usize, unread);
    }

    /// Whether the instruction that finds an object is followed by one that asks whether it holds
    /// another: `x in s`.
    fn is_found_to_ask(&self) -> bool {
        let (code, unit) = self.here;
        let code = self.codes.get(code as usize);
        Python::attach(|py| {
            let code = code.and_then(|code| Code::of(code.bind_borrowed(py)));
            code.is_some_and(|code| asks_next(&code, unit as usize))
        })
    }

    /// Whether what a set holds may stay unguarded, as far as the next instruction goes.
    pub fn is_found_as_set(&self, set: Borrowed<'_, '_>) -> bool {
        self.is_found_to_change() || (heap::is_exact_set(set) && self.is_found_to_ask())
    }

    /// Whether an unread set that the trace hasn't changed holds an element, guarded for that element alone. `None`:
    /// its contents must be read to know.
    pub fn asks_set(&mut self, set: Borrowed<'_, '_>, item: Borrowed<'_, '_>) -> Option<bool> {
        let slot = (set.as_ptr() as usize, CONTENTS);
        if self.written.contains_key(&slot) || !heap::is_exact_set(set) {
            return None;
        }
        let source = self.unread.get(&slot.0)?.source;
        let is_known = match self.kind_alone(item) {
            Kind::Constant => heap::is_constant(item) && !is_nan(item),
            Kind::Type => self.is_identity_guarded(item),
            _ => false,
        };
        if !is_known {
            return None;
        }
        let holds = stator_cpython::heap::container::set_holds(set, item)?;
        let item = self.objects.intern(item);
        self.read_slots.insert(slot);
        self.guard(source, GuardKind::SetHolds { item, holds });
        Some(holds)
    }

    /// Guards the contents of a container as they were before this trace changed it.
    #[cold]
    pub fn read_unread(&mut self, object: Borrowed<'_, '_>) {
        let Some(unread) = self.unread.remove(&(object.as_ptr() as usize)) else { return };
        let before = heap::tuple_items(unread.before.bind(object.py()).as_any().as_borrowed());
        // The trace may have moved them since: numbers among them are constants.
        let may_stand_in = std::mem::replace(&mut self.may_stand_in, false);
        if let Err(stop) = self.read_elements(unread.source, object, &before) {
            self.failure.get_or_insert(stop);
        }
        self.may_stand_in = may_stand_in;
    }

    /// Guards what a list, set or deque holds, and how much a deque may hold.
    pub fn read_elements(
        &mut self,
        source: SourceId,
        object: Borrowed<'_, '_>,
        items: &[Object<'_>],
    ) -> Result<(), Stop> {
        self.read_slots.insert((object.as_ptr() as usize, CONTENTS));
        let kind = self.kind_alone(object);
        if matches!(kind, Kind::Set | Kind::FrozenSet) {
            let is_plain = |item: &Object<'_>| match self.kind_alone(item.as_borrowed()) {
                Kind::Constant => true,
                Kind::Type => compares_by_identity(item.as_borrowed()),
                _ => false,
            };
            if !items.iter().all(is_plain) {
                return Err((Reason::Unsupported, "a set of objects from outside".into()));
            }
            if items.iter().any(|item| is_nan(item.as_borrowed())) {
                return Err((Reason::Identity, "a set that holds a NaN".into()));
            }
            let copy = PyTuple::new(object.py(), items);
            let copy = copy.map_err(|_| (Reason::Unsupported, "a set".to_string()))?;
            let copy = self.objects.intern(copy.as_any().as_borrowed());
            self.guard(source, GuardKind::SetEquals(copy));
            return Ok(());
        }
        self.guard(source, GuardKind::Length(items.len()));
        for (index, item) in items.iter().enumerate() {
            let child = match kind {
                Kind::List => Source::ListItem { parent: source, index },
                _ => Source::DequeItem { parent: source, index },
            };
            let child = self.sources.intern(child);
            self.adopt_element(object, index, child, item.as_borrowed())?;
        }
        if kind == Kind::List { Ok(()) } else { self.read_max_length(object) }
    }

    /// Guards what an outside deque holds: C code is about to look.
    pub fn read_deque(&mut self, deque: Borrowed<'_, '_>) -> Result<(), Stop> {
        let slot = (deque.as_ptr() as usize, CONTENTS);
        if self.read_slots.contains(&slot) {
            return Ok(());
        }
        let unknown = || (Reason::UnknownOrigin, heap::type_name(deque));
        let source = self.source(deque).ok_or_else(unknown)?;
        self.read_elements(source, deque, &heap::elements(deque))
    }

    /// Guards `maxlen` of an outside deque.
    pub fn read_max_length(&mut self, deque: Borrowed<'_, '_>) -> Result<(), Stop> {
        let Some(source) = self.source(deque) else { return Ok(()) };
        let source = self.sources.intern(Source::DequeMaxLength(source));
        match stator_cpython::heap::container::deque_max_length(deque) {
            Some(length) => self.adopt(source, length.as_borrowed()),
            None => Ok(()),
        }
    }

    /// Whether a method changes an unread container without looking at it.
    pub fn is_blind(&mut self, container: Borrowed<'_, '_>, name: &str) -> bool {
        self.unread.contains_key(&(container.as_ptr() as usize))
            && match self.kind_alone(container) {
                Kind::List => only_adds(Some("builtins:list"), name),
                Kind::Set => only_adds(Some("builtins:set"), name),
                _ => only_adds(Some("collections:deque"), name),
            }
    }
}

impl Recorder {
    /// Whether an object is a set whose contents aren't guarded.
    pub(super) fn is_unread_set(&self, object: Borrowed<'_, '_>) -> bool {
        let state = self.state.borrow();
        state.unread.contains_key(&(object.as_ptr() as usize)) && heap::is_exact_set(object)
    }

    /// A method of an unread container that doesn't read it either.
    pub(super) fn blind_method<'py>(
        &self,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let mut state = self.state.borrow_mut();
        if state.unread.is_empty() || !state.is_blind(owner, &heap::text(name)) {
            return None;
        }
        let ty = owner.get_type();
        stator_cpython::heap::types::lookup(ty.as_borrowed(), name)
    }
}

/// The instruction in a code unit, and the unit after it.
fn instruction(units: &[u16], at: usize) -> Option<(Opcode, usize, usize)> {
    let [number, arg] = units.get(at)?.to_ne_bytes();
    let opcode = Opcode::from_u8(opcode::deopt(number))?;
    let caches = Version::TARGET.info(opcode).map_or(0, |info| usize::from(info.caches));
    Some((opcode, usize::from(arg), at + 1 + caches))
}

/// Whether the instruction at a unit finds an object that the next one takes such a method of.
fn adds_next(code: &Code<'_>, at: usize) -> bool {
    use Opcode::{BINARY_SUBSCR, CALL, LOAD_ATTR, LOAD_DEREF, LOAD_FAST, LOAD_GLOBAL, LOAD_NAME};
    let units = code.units();
    let Some((found, _, next)) = instruction(units, at) else { return false };
    let finds = matches!(
        found,
        BINARY_SUBSCR | CALL | LOAD_ATTR | LOAD_DEREF | LOAD_FAST | LOAD_GLOBAL | LOAD_NAME
    );
    let Some((Opcode::LOAD_METHOD, name, _)) = instruction(units, next) else { return false };
    let name = heap::text(code.name_at(name));
    finds && only_adds(None, &name)
}

/// Whether the instruction at a unit finds an object that the next one searches.
fn asks_next(code: &Code<'_>, at: usize) -> bool {
    let units = code.units();
    let next = instruction(units, at).and_then(|(_, _, next)| instruction(units, next));
    next.is_some_and(|(opcode, ..)| opcode == Opcode::CONTAINS_OP)
}

/// Whether this is a method such as `list.append`, which waits on the stack for its arguments: its receiver
/// lies above it.
pub fn adds_to_receiver(method: Option<Borrowed<'_, '_>>) -> bool {
    let name = method.filter(|method| generic::is_fixed_method(*method));
    name.and_then(generic::method_name).is_some_and(|name| only_adds(None, name))
}

/// Whether a function does nothing with an argument but take such methods of it.
pub fn only_adds_to(frame: &Frame<'_>, index: usize) -> bool {
    let code = frame.code();
    let units = code.units();
    let mut at = 0;
    let mut extended = false;
    let mut adds = false;
    while let Some((opcode, arg, next)) = instruction(units, at) {
        let local = Version::TARGET.info(opcode).is_some_and(|i| i.has_local() || i.has_free());
        // Which local an extended argument names isn't asked.
        if local && (extended || arg == index) {
            if extended || opcode != Opcode::LOAD_FAST || !adds_next(&code, at) {
                return false;
            }
            adds = true;
        }
        extended = opcode == Opcode::EXTENDED_ARG;
        at = next;
    }
    adds
}
