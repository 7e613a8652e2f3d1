//! The walk: guards asked structurally, from the arguments down.

use pyo3::prelude::*;
use pyo3::types::PyType;
use stator_cpython::heap::address::AddressSet;
use stator_cpython::heap::function::{self, Field};
use stator_cpython::heap::weak::Liveness;
use stator_cpython::heap::{
    self, Any, container, context, dict, iterator, member, tensor, thread_local, types,
};
use stator_cpython::{generator, generic};
use stator_guards::{Gives, Rests, TensorGuard};

use super::failure::{Failure, Found};
use super::keys::{Key, Part};
use super::plan::{Fetch, Plan, TestKind, keys_are};

/// The objects at the steps of a plan.
pub(super) type Values<'py> = Vec<Option<Bound<'py, PyAny>>>;

/// Fetches every step and asks every test.
///
/// Making an instance dictionary may run a garbage collection, and so finalizers: then what was
/// read before may have changed, and the walk starts again.
pub(super) fn walk<'py>(
    py: Python<'py>,
    plan: &Plan,
    liveness: &Liveness,
    args: &[Any<'_, 'py>],
) -> Result<Values<'py>, Failure> {
    loop {
        let before = heap::interruptions();
        let walk = Walk { py, liveness, args };
        let result = walk.steps(plan);
        if !liveness.is_alive() {
            return Err(Failure::dead());
        }
        if heap::interruptions() == before {
            return result;
        }
    }
}

/// The objects of the wanted steps.
pub(super) fn wanted<'py>(
    plan: &Plan,
    values: Values<'py>,
) -> Result<Vec<Bound<'py, PyAny>>, Failure> {
    let found = plan.wanted.iter().map(|step| values[*step].clone());
    found.collect::<Option<_>>().ok_or(Failure { guard: None, found: Found::Missing })
}

impl Fetch {
    /// Whether it's read from an iterator.
    pub(super) fn is_of_iterator(&self) -> bool {
        matches!(
            self,
            Fetch::Iterated(_) | Fetch::Upcoming(_) | Fetch::UpcomingKey(_) | Fetch::OfGenerator(_)
        )
    }

    /// What is read from an iterator, if that's it.
    pub(super) fn of_iterator<'py>(&self, iterator: Any<'_, 'py>) -> Option<Bound<'py, PyAny>> {
        match self {
            Fetch::Iterated(index) => iterator::over(iterator, *index),
            Fetch::Upcoming(index) => iterator::upcoming(iterator, *index),
            Fetch::UpcomingKey(index) => iterator::upcoming_key(iterator, *index),
            Fetch::OfGenerator(None) => generator::function(iterator),
            Fetch::OfGenerator(Some(slot)) => generator::slot(iterator, *slot),
            _ => None,
        }
    }
}

struct Walk<'a, 'b, 'py> {
    py: Python<'py>,
    liveness: &'a Liveness,
    args: &'a [Any<'b, 'py>],
}

impl<'py> Walk<'_, '_, 'py> {
    fn steps(&self, plan: &Plan) -> Result<Values<'py>, Failure> {
        let mut values: Values<'py> = Vec::with_capacity(plan.steps.len());
        let mut aliasing = Vec::new();
        for (index, step) in plan.steps.iter().enumerate() {
            let parent = values.get(step.parent).and_then(Option::as_ref);
            let Some(object) = self.fetch(&step.fetch, parent.map(Bound::as_borrowed)) else {
                return Err(Failure { guard: step.blame, found: Found::Missing });
            };
            for test in &plan.tests[step.tests.clone()] {
                if test.kind.is_aliasing() {
                    aliasing.push((index, test));
                } else if !self.holds(&test.kind, object.as_borrowed()) {
                    let found = Found::Object(object.unbind());
                    return Err(Failure { guard: Some(test.guard), found });
                }
            }
            values.push(Some(object));
        }
        for (index, test) in aliasing {
            if !aliasing_holds(&test.kind, index, &values) {
                let found = values[index]
                    .take()
                    .map_or(Found::Missing, |object| Found::Object(object.unbind()));
                return Err(Failure { guard: Some(test.guard), found });
            }
        }
        Ok(values)
    }

    fn key(&self, key: &Key) -> Option<Bound<'py, PyAny>> {
        match key {
            Key::Constant(object) => Some(object.bind(self.py).clone()),
            Key::Known(address) => self.liveness.get(self.py, *address),
        }
    }

    /// Reads a slot; `parent` is `None` for roots.
    fn fetch(&self, fetch: &Fetch, parent: Option<Any<'_, 'py>>) -> Option<Bound<'py, PyAny>> {
        match fetch {
            Fetch::Argument(index) => return self.args.get(*index).map(|arg| (**arg).clone()),
            Fetch::Known(address) => return self.liveness.get(self.py, *address),
            Fetch::Module(name) => {
                let modules = dict::modules(self.py)?;
                return found(dict::get(modules.as_borrowed(), name.bind_borrowed(self.py)));
            }
            _ => {}
        }
        let parent = parent?;
        match fetch {
            Fetch::InstanceDict => match dict::instance_dict(parent) {
                dict::InstanceDict::Dict(dict) => Some(dict),
                dict::InstanceDict::None => thread_local::dict_of(parent).map(Bound::into_any),
                dict::InstanceDict::Failed => None,
            },
            Fetch::Item(key) => found(dict::get(parent, self.key(key)?.as_borrowed())),
            Fetch::Hashed(hash, is_key) => dict::at_hash(parent, *hash).only(*is_key),
            Fetch::CachedItem(parts) => Some(Part::find(parts, parent)?.1),
            Fetch::ListItem(index) => container::list_item(parent, *index),
            Fetch::LastItem(index) => container::last_item(parent, *index),
            Fetch::TupleItem(index) => container::tuple_item(parent, *index),
            Fetch::DequeItem(index) => container::deque_item(parent, *index),
            Fetch::DequeMaxLength => container::deque_max_length(parent),
            Fetch::Iterated(_)
            | Fetch::Upcoming(_)
            | Fetch::UpcomingKey(_)
            | Fetch::OfGenerator(_) => fetch.of_iterator(parent),
            Fetch::Gradient => tensor::gradient(parent),
            Fetch::ContextValue => context::own_value(parent),
            Fetch::ContextDefault => context::default_value(parent),
            Fetch::Member(member) => match member.read(parent) {
                member::Read::Value(value) => Some(value),
                member::Read::Unset | member::Read::NoMember => None,
            },
            Fetch::Lookup { after, name } => {
                let ty = parent.cast::<PyType>().ok()?;
                let name = name.bind_borrowed(self.py);
                match after {
                    None => types::lookup(ty, name),
                    Some(after) => types::lookup_after(ty, self.key(after)?.as_borrowed(), name),
                }
            }
            Fetch::TypeOf => Some(types::of(parent).into_any()),
            Fetch::Field(field) => function::value(parent, *field),
            Fetch::ClosureCell(index) => {
                let closure = function::value(parent, Field::Closure)?;
                container::tuple_item(closure.as_borrowed(), *index)
            }
            Fetch::Argument(_) | Fetch::Known(_) | Fetch::Module(_) => None,
        }
    }

    fn holds(&self, test: &TestKind, object: Any<'_, 'py>) -> bool {
        match test {
            TestKind::KeyAbsent(key) => self.key(key).is_some_and(|key| {
                matches!(dict::get(object, key.as_borrowed()), dict::Lookup::Absent)
            }),
            TestKind::SetEquals(items) => {
                container::set_items(object).is_some_and(|found| keys_are(self.py, &found, items))
            }
            TestKind::SetHolds(item, holds) => {
                self.key(item).and_then(|item| container::set_holds(object, item.as_borrowed()))
                    == Some(*holds)
            }
            TestKind::LookupAbsent(name) => object
                .cast::<PyType>()
                .is_ok_and(|ty| types::lookup(ty, name.bind_borrowed(self.py)).is_none()),
            TestKind::MemberUnset(member) => matches!(member.read(object), member::Read::Unset),
            TestKind::FieldEmpty(field) => {
                matches!(function::read(object, *field), function::Read::Empty)
            }
            TestKind::ContextUnset => {
                context::is_variable(object) && context::own_value(object).is_none()
            }
            TestKind::MethodOf(descriptor) => generic::made_from(object) == Some(*descriptor),
            TestKind::NoTensorHooks => tensor::has_hooks(object) == Some(false),
            TestKind::NoInstanceDict => {
                !matches!(dict::peek_instance_dict(object), dict::Peek::Dict(_))
            }
            _ => test.holds_alone(object),
        }
    }
}

fn aliasing_holds(test: &TestKind, step: usize, values: &Values<'_>) -> bool {
    let address = |step: usize| values[step].as_ref().map(|object| object.as_ptr() as usize);
    match test {
        TestKind::Same(other) => address(step) == address(*other),
        TestKind::TokenOf(variable) => match (&values[step], &values[*variable]) {
            (Some(token), Some(variable)) => {
                context::fits(token.as_borrowed(), variable.as_borrowed())
            }
            _ => false,
        },
        TestKind::Distinct(others) => {
            let mut seen = AddressSet::default();
            std::iter::once(&step)
                .chain(others)
                .all(|step| address(*step).is_some_and(|address| seen.insert(address)))
        }
        _ => true,
    }
}

/// What a tensor's metadata has to be.
pub(super) fn expected(guard: &TensorGuard) -> tensor::Expected<'_> {
    tensor::Expected {
        dtype: guard.dtype,
        device_type: guard.device_type,
        device_index: guard.device_index,
        layout: guard.layout,
        requires_grad: guard.requires_grad,
        key_set: guard.key_set,
        sizes: &guard.sizes,
        strides: &guard.strides,
    }
}

/// Whether an iterator can be advanced so.
pub(super) fn does_give(iterator: Any<'_, '_>, gives: &Gives) -> bool {
    iterator::gives(iterator, gives.items, gives.ends) && iterator::parts(iterator) == gives.parts
}

/// Whether a generator stands there.
pub(super) fn does_rest(generator: Any<'_, '_>, rests: &Rests) -> bool {
    generator::rested(generator).is_some_and(|found| {
        found.unit == rests.unit
            && found.started == rests.started
            && found.slots == rests.slots
            && found.bound & rests.live == rests.bound
    })
}

pub(super) fn found(lookup: dict::Lookup<'_>) -> Option<Bound<'_, PyAny>> {
    match lookup {
        dict::Lookup::Found(value) => Some(value),
        dict::Lookup::Absent | dict::Lookup::Refused => None,
    }
}
