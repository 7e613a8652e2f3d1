//! Which frames wait for a Python function that one of their instructions has called, and how that
//! instruction goes on: what a graph break in the function needs to know of its callers.

use std::cell::{Cell, RefCell};

use pyo3::prelude::*;
use stator_bytecode::Meaning;
use stator_cpython::frame::Frame;
use stator_cpython::object::Object;
use stator_cpython::{Result, ops};
use stator_evaluator::{End, Link, Role};

use crate::frames::anatomy::Anatomy;
use crate::functions::Model;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Calls;
use crate::recorder::notes::call::Call;
use crate::resume::point::Waiting;

/// A builtin function that an instruction calls.
#[derive(Clone, Copy)]
pub(super) struct Builtin {
    /// The instruction's frame, by address.
    pub frame: usize,
    pub model: Model,
    /// How many arguments it has.
    pub count: usize,
    pub inverted: bool,
}

/// The links between the frames of a recording.
#[derive(Default)]
pub(super) struct Links {
    /// What the next Python function is to the current instruction, which does nothing but end when
    /// the function returns; with [`ops::executed`] as it was when that was said.
    expected: Cell<Option<(Role, u64)>>,
    /// What the instruction has made so far.
    held: RefCell<Option<Py<PyAny>>>,
    /// The builtin function that the current instruction calls, if it's one that calls methods.
    pub builtin: Cell<Option<Builtin>>,
    /// The frame that is calling such a function, by address.
    caller: Cell<usize>,
    waiting: RefCell<Vec<Wait>>,
    /// Frames that were made again in the middle of an instruction.
    already: RefCell<Vec<(usize, Link)>>,
}

/// A frame that waits.
struct Wait {
    /// Its address.
    frame: usize,
    role: Role,
    held: Option<Py<PyAny>>,
}

/// How a waiting frame goes on.
pub(super) struct Linked<'py> {
    /// How the instruction ends.
    pub link: Link,
    /// How many values of the stack are done with.
    pub taken: usize,
    /// What takes their place.
    pub held: Option<Object<'py>>,
}

impl Links {
    /// The next Python function that is called has this role.
    #[inline]
    pub fn expect(&self, role: Role) {
        self.expected.set(Some((role, ops::executed())));
    }

    /// Nothing is known of what is called next.
    #[inline]
    pub fn clear(&self) {
        self.expected.set(None);
    }

    /// `frame` calls a Python function; whether it only waits for it then.
    pub fn wait(&self, frame: &Frame<'_>) -> bool {
        let Some((role, executed)) = self.expected.take() else { return false };
        if ops::executed() != executed {
            return false;
        }
        self.caller.set(frame.id());
        let held = self.held.take();
        self.waiting.borrow_mut().push(Wait { frame: frame.id(), role, held });
        true
    }

    /// The function has returned.
    pub fn returned(&self, waited: bool) {
        self.caller.set(0);
        if waited {
            let done = self.waiting.borrow_mut().pop();
            drop(done);
        }
    }

    /// A frame begins; whether its caller only waits for it.
    pub fn enters(&self, frame: &Frame<'_>) -> bool {
        let caller = self.caller.replace(0);
        caller != 0 && frame.previous().is_some_and(|previous| previous.id() == caller)
    }

    /// Frames that waited before the recording began.
    pub fn wait_already(&self, chain: &[Waiting<'_>]) {
        let linked = |waiting: &Waiting<'_>| Some((waiting.frame.id(), waiting.link?));
        *self.already.borrow_mut() = chain.iter().filter_map(linked).collect();
    }

    /// A frame has left: another may take its address.
    pub fn forget(&self, frame: &Frame<'_>) {
        let mut already = self.already.borrow_mut();
        if !already.is_empty() {
            already.retain(|(id, _)| *id != frame.id());
        }
    }

    /// How a waiting frame goes on.
    pub fn of<'py>(&self, frame: &Frame<'py>, anatomy: &Anatomy) -> Option<Linked<'py>> {
        let id = frame.id();
        let waiting = self.waiting.borrow();
        if let Some(wait) = waiting.iter().rev().find(|wait| wait.frame == id) {
            let unit = frame.unit();
            let (mut link, taken) = Link::of(anatomy.meaning(unit)?, wait.role)?;
            if let Link::New { names, .. } = &mut link {
                *names = anatomy.names(unit);
            }
            let held = wait.held.as_ref().map(|held| held.bind(frame.py()).clone());
            return Some(Linked { link, taken, held });
        }
        let already = self.already.borrow();
        let (_, link) = already.iter().find(|(frame, _)| *frame == id)?;
        Some(Linked { link: *link, taken: 0, held: None })
    }
}

/// What the instruction does that a frame stands at; its argument's low byte is known.
pub(super) fn meaning_at(frame: &Frame<'_>) -> Meaning {
    frame.code().unit(frame.unit()).map_or(Meaning::Other, |unit| unit.meaning())
}

impl Recorder {
    /// Calls what has a role in the current instruction, which ends with it; `held` is what the
    /// instruction has made so far.
    pub(super) fn call_linked<'py>(
        &self,
        role: Role,
        held: Option<Object<'py>>,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, .. } = call;
        self.links.clear();
        // The same is done for other instructions' sake, as parts of what they do.
        let role = Builtin::role(self.links.builtin.get(), frame, role);
        let known = |role: &Role| Link::of(meaning_at(frame), *role).is_some();
        if let Some(role) = role.filter(known)
            && !self.is_stopped()
        {
            *self.links.held.borrow_mut() = held.map(Bound::unbind);
            self.links.expect(role);
        }
        let result = self.call_object(call);
        self.links.clear();
        let unused = self.links.held.take();
        drop(unused);
        result
    }
}

impl Builtin {
    /// What a method is to the function that an instruction of `frame` calls.
    fn role(current: Option<Self>, frame: &Frame<'_>, role: Role) -> Option<Role> {
        let own = current.filter(|builtin| builtin.frame == frame.id());
        match (own, role) {
            (Some(_), Role::Builtin(_)) => Some(role),
            (Some(builtin), _) => end_of(builtin, role).map(Role::Builtin),
            // Reached through `partial` and such, whose arguments are others.
            (None, Role::Builtin(_)) if is_call(frame) => None,
            (None, _) => Some(role),
        }
    }
}

/// How a call ends, by the function and what it has called.
fn end_of(Builtin { model, count, inverted, .. }: Builtin, role: Role) -> Option<End> {
    Some(match (model, role, count) {
        (Model::GetAttr, Role::Getter { next }, 2) => End::Attribute { next },
        (Model::GetAttr, Role::Getter { next }, 3) => End::AttributeOr { next },
        (Model::HasAttr, Role::Getter { next }, 2) => End::HasAttribute { next },
        (Model::SetAttr | Model::DelAttr, Role::Setter, _) => End::Nothing,
        (Model::SetItem, Role::SetItem, _) => End::Nothing,
        (Model::GetItem, Role::Item, _) => End::Value,
        (Model::Contains, Role::Contains, _) => End::Truth,
        (Model::Iter, Role::Iter, 1) => End::Iterator,
        (Model::Next, Role::Next, 1) => End::Value,
        (Model::Next, Role::Next, 2) => End::NextOr,
        (Model::Scalar, Role::Bool, 1) => End::Bool { inverted },
        (Model::Scalar, Role::Length, 1) => End::LengthTruth { inverted },
        (Model::Binary(op), Role::Operator(asked), 2) => End::Binary(op, asked),
        (Model::Compare(op), Role::Operator(asked), 2) => End::Compare(op, asked),
        (Model::Unary(_), Role::Operator(_), 1) => End::Value,
        _ => return None,
    })
}

/// Whether the instruction that `frame` stands at is a call without `*args` and `**kwargs`.
fn is_call(frame: &Frame<'_>) -> bool {
    matches!(meaning_at(frame), Meaning::Call { .. } | Meaning::CallNamed { .. })
}
