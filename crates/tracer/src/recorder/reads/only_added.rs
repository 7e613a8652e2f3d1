//! Containers from outside that a trace only adds to.
//!
//! `log.append(x)` doesn't depend on what the log holds, so neither should its trace. A container that
//! is found by an instruction right before such a method's name is guarded by its type alone. It is
//! *read*, and its contents as they were before the call's own changes are guarded, as soon as
//! anything else looks at it: [`State::kind`] is asked first, whoever looks.

use pyo3::prelude::*;
use pyo3::types::{PyFrozenSet, PySet, PyTuple};
use stator_bytecode::Meaning;
use stator_cpython::code::Code;
use stator_cpython::frame::Frame;
use stator_cpython::generic;
use stator_cpython::heap::types::compares_by_identity;
use stator_cpython::heap::{container, mortal};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::opcode::TARGET;
use stator_guards::{Gives, GuardKind, Source, SourceId};
use stator_operators::only_adds;

use super::identity::is_nan;
use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Looks;
use crate::recorder::notes::effects::{CONTENTS, KEYS};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::reads::{Unread, Use};
use crate::recorder::notes::state::{State, Stop};

/// So deep tuples hold constants.
const NESTED: usize = 16;

impl Looks for State {
    fn adopt_deep(&mut self, object: Borrowed<'_, '_>) -> Result<(), Stop> {
        self.adopt_whole(object, false)
    }

    fn adopt_reach(&mut self, iterator: Borrowed<'_, '_>) -> Result<(), Stop> {
        self.adopt_within_reach(iterator, 0)
    }

    fn know_text(&mut self, object: Borrowed<'_, '_>) -> Result<(), Stop> {
        self.knows_text(object)
    }

    #[cold]
    fn read_unread(&mut self, object: Borrowed<'_, '_>) {
        if !self.parts.is_empty() && self.read_part(object) {
            return;
        }
        let address = object.as_ptr() as usize;
        let Some(unread) = self.unread.remove(&address) else { return };
        let before = heap::tuple_items(unread.before.bind(object.py()).as_any().as_borrowed());
        // The trace may have moved them since: numbers among them are constants.
        let is_found_now = !unread.is_asked && !self.written.has(&(address, CONTENTS));
        let used = if is_found_now { unread.used } else { Use::default() };
        if let Err(stop) = self.read_elements(used, unread.source, object, &before) {
            self.failure.get_or_insert(stop);
        }
    }
}

impl State {
    /// Whether what a list from outside holds may as well be guarded when somebody looks at it: then numbers in it
    /// can't be symbols any more.
    pub fn may_be_read_later(&mut self, list: Borrowed<'_, '_>) -> bool {
        heap::is_exact_list(list)
            && heap::list_items(list)
                .iter()
                .all(|item| self.kind_alone(item.as_borrowed()) == Kind::Tensor)
    }

    /// Whether the instruction that finds an object is followed by one that looks up a method that
    /// only adds, or that may take out the first element, which a node may ask for.
    pub fn is_found_to_change(&self, used: Use) -> bool {
        if used.only_adds {
            return true;
        }
        let (code, unit) = (self.frames.code_here(), self.frames.here().1);
        Python::attach(|py| {
            let code = code.and_then(|code| Code::of(code.bind_borrowed(py)));
            code.is_some_and(|code| {
                let changes = |name: &str| only_adds(None, name) || takes_out(name);
                looks_up_next(&code, unit as usize, changes)
            })
        })
    }

    /// Leaves the contents of a container unguarded until somebody looks at them.
    pub fn leave_unread(&mut self, source: SourceId, object: Borrowed<'_, '_>, used: Use) {
        let Ok(before) = PyTuple::new(object.py(), heap::elements(object)) else { return };
        let before = before.unbind();
        let unread = Unread { source, before, used, dropped: 0, early: None, is_asked: false };
        self.unread.insert(object.as_ptr() as usize, unread);
    }

    /// Whether the instruction that finds an object is followed by one that asks whether it holds
    /// another: `x in s`.
    fn is_found_to_ask(&self) -> bool {
        let (code, unit) = (self.frames.code_here(), self.frames.here().1);
        Python::attach(|py| {
            let code = code.and_then(|code| Code::of(code.bind_borrowed(py)));
            code.is_some_and(|code| asks_next(&code, unit as usize))
        })
    }

    /// Whether what a set holds may stay unguarded, as far as the next instruction goes.
    pub fn is_found_as_set(&self, used: Use, set: Borrowed<'_, '_>) -> bool {
        self.is_found_to_change(used) || (heap::is_exact_set(set) && self.is_found_to_ask())
    }

    /// Whether an unread set that the trace hasn't changed holds an element, guarded for that element alone. `None`:
    /// its contents must be read to know.
    pub fn asks_set(&mut self, set: Borrowed<'_, '_>, item: Borrowed<'_, '_>) -> Option<bool> {
        let slot = (set.as_ptr() as usize, CONTENTS);
        if self.written.has(&slot) || self.enclosed.hides(slot.0) || !heap::is_exact_set(set) {
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
        self.reads.first(slot);
        self.guard(source, GuardKind::SetHolds { item, holds });
        Some(holds)
    }

    /// Guards what a list, set or deque holds, and how much a deque may hold.
    pub fn read_elements(
        &mut self,
        used: Use,
        source: SourceId,
        object: Borrowed<'_, '_>,
        items: &[Object<'_>],
    ) -> Result<(), Stop> {
        self.reads.first((object.as_ptr() as usize, CONTENTS));
        let kind = self.kind_alone(object);
        if matches!(kind, Kind::Set | Kind::FrozenSet) {
            let is_plain = |item: &Object<'_>| match self.kind_alone(item.as_borrowed()) {
                Kind::Constant => true,
                Kind::Tuple => heap::is_constant(item.as_borrowed()),
                Kind::Type => compares_by_identity(item.as_borrowed()),
                _ => false,
            };
            let all_plain = items.iter().all(is_plain);
            let holds_nan = |item: &Object<'_>| {
                heap::any_within(item.as_borrowed(), NESTED, &mut |part| is_nan(part))
            };
            if items.iter().any(holds_nan) {
                return Err((Reason::Identity, "a set that holds a NaN".into()));
            }
            if !all_plain {
                return self.read_in_order(used, source, object, items);
            }
            // There is one empty tuple, which other guards may speak of.
            let copy = if items.is_empty() {
                PySet::empty(object.py()).map(Bound::into_any)
            } else {
                PyTuple::new(object.py(), items).map(Bound::into_any)
            };
            let copy = copy.map_err(|_| (Reason::Unsupported, "a set".to_string()))?;
            let copy = self.objects.intern(copy.as_borrowed());
            self.guard(source, GuardKind::SetEquals(copy));
            for item in items {
                if !heap::is_shared_constant(item.as_borrowed()) {
                    let id = self.object(item.as_borrowed());
                    self.by_value.insert(id);
                }
            }
            return Ok(());
        }
        self.guard(source, GuardKind::Length(items.len()));
        for (index, item) in items.iter().enumerate() {
            let child = match kind {
                Kind::List => Source::ListItem { parent: source, index },
                _ => Source::DequeItem { parent: source, index },
            };
            let child = self.sources.intern(child);
            self.adopt_element(used, object, index, child, item.as_borrowed())?;
        }
        if kind == Kind::List { Ok(()) } else { self.read_max_length(object) }
    }

    /// Guards what a set of objects holds, in the order in which it gives it.
    fn read_in_order(
        &mut self,
        used: Use,
        source: SourceId,
        set: Borrowed<'_, '_>,
        items: &[Object<'_>],
    ) -> Result<(), Stop> {
        let refuse = || (Reason::Unsupported, "a set of objects from outside".to_string());
        if !heap::is_exact_set(set) && !set.is_exact_instance_of::<PyFrozenSet>() {
            return Err(refuse());
        }
        for item in items {
            match self.kind_alone(item.as_borrowed()) {
                Kind::Constant | Kind::Tensor => {}
                Kind::Type | Kind::Object if compares_by_identity(item.as_borrowed()) => {}
                // What a `weakref.WeakSet` has.
                _ if heap::is_weak_reference(item.as_borrowed()) => {}
                _ => return Err(refuse()),
            }
        }
        let gives = Gives { items: items.len(), ends: true, parts: 0 };
        self.guard(source, GuardKind::Gives(gives));
        for (index, item) in items.iter().enumerate() {
            let child = self.sources.intern(Source::Upcoming { parent: source, index });
            let used = Use { only_adds: false, ..used };
            self.adopt_for(used, child, item.as_borrowed())?;
        }
        self.note_hashed(set);
        self.reads.first((set.as_ptr() as usize, KEYS));
        Ok(())
    }

    /// Guards what an outside deque holds: C code is about to look.
    pub fn read_deque(&mut self, deque: Borrowed<'_, '_>) -> Result<(), Stop> {
        let slot = (deque.as_ptr() as usize, CONTENTS);
        if self.reads.has(&slot) {
            return Ok(());
        }
        let unknown = || (Reason::UnknownOrigin, heap::type_name(deque));
        let source = self.source(deque).ok_or_else(unknown)?;
        self.read_elements(Use::default(), source, deque, &heap::elements(deque))
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
    pub(in crate::recorder) fn is_unread_set(&self, object: Borrowed<'_, '_>) -> bool {
        let state = self.state.borrow();
        state.unread.contains_key(&(object.as_ptr() as usize)) && heap::is_exact_set(object)
    }

    /// A method of an unread container that doesn't read it either.
    pub(in crate::recorder) fn blind_method<'py>(
        &self,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let mut state = self.state.borrow_mut();
        if !state.unread.contains_key(&(owner.as_ptr() as usize)) {
            return None;
        }
        let text = heap::text(name);
        // What these take out in front may be asked by a node.
        if !takes_out(&text) && !state.is_blind(owner, &text) {
            return None;
        }
        let ty = owner.get_type();
        stator_cpython::heap::types::lookup(ty.as_borrowed(), name)
    }
}

/// Whether a method may take out the first element.
fn takes_out(name: &str) -> bool {
    matches!(name, "pop" | "popleft")
}

/// Whether the instruction at a unit finds an object that the next one takes a method of that only adds.
fn adds_next(code: &Code<'_>, at: usize) -> bool {
    looks_up_next(code, at, |name| only_adds(None, name))
}

/// Whether the instruction at a unit finds an object that the next one takes such a method of.
fn looks_up_next(code: &Code<'_>, at: usize, wanted: impl Fn(&str) -> bool) -> bool {
    use Meaning::{Attribute, Call, Free, Global, Item, Local, Name};
    let Some(unit) = code.unit(at) else { return false };
    let finds = matches!(
        unit.meaning(),
        Attribute { is_method: false, .. }
            | Call { .. }
            | Free(_)
            | Global { .. }
            | Item
            | Local(_)
            | Name(_)
    );
    match code.unit(unit.next).map(|next| next.meaning()) {
        Some(Attribute { name, is_method: true }) => {
            finds && wanted(&heap::text(code.name_at(name as usize)))
        }
        _ => false,
    }
}

/// Whether the instruction at a unit returns what is on top of the stack.
fn returns_next(code: &Code<'_>, at: usize) -> bool {
    code.unit(at).is_some_and(|unit| matches!(unit.meaning(), Meaning::Return))
}

/// Whether the instruction at a unit finds an object that the next one searches.
fn asks_next(code: &Code<'_>, at: usize) -> bool {
    let next = code.unit(at).and_then(|unit| code.unit(unit.next));
    next.is_some_and(|next| matches!(next.meaning(), Meaning::Contains { .. }))
}

/// Whether this is a method such as `list.append`, which waits on the stack for its arguments: its receiver
/// lies above it.
pub fn adds_to_receiver(method: Option<Borrowed<'_, '_>>) -> bool {
    let name = method.filter(|method| generic::is_fixed_method(*method));
    name.and_then(generic::method_name).is_some_and(|name| only_adds(None, name))
}

/// Whether a function takes such methods of what a fast local holds, and does nothing else with it but return it.
pub fn only_adds_to(frame: &Frame<'_>, index: usize) -> bool {
    let code = frame.code();
    let mut adds = false;
    for (at, unit) in code.instructions() {
        let named = TARGET.info(unit.opcode).map_or([None; 2], |info| info.locals(unit.arg));
        if named.into_iter().flatten().any(|local| local as usize == index) {
            match unit.meaning() {
                Meaning::Local(_) if adds_next(&code, at) => adds = true,
                Meaning::Local(_) if returns_next(&code, unit.next) => {}
                // What it held isn't looked at.
                Meaning::SetLocal(_) => {}
                _ => return false,
            }
        }
    }
    adds
}

/// Whether a deque lets go of something as it is added to whose death would be noticed. What it holds is read then: a copy of
/// it would keep that alive.
pub(in crate::recorder) fn keeps_noticed(deque: Borrowed<'_, '_>) -> bool {
    container::deque_max_length(deque).is_some() && holds_noticed(deque)
}

/// Whether a container holds something whose death would be noticed.
pub(super) fn holds_noticed(container: Borrowed<'_, '_>) -> bool {
    let is_noticed = |item: &Object<'_>| mortal::is_noticed_soon(item.as_borrowed());
    heap::elements(container).iter().any(is_noticed)
}
