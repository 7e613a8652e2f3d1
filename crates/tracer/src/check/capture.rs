//! Taking snapshots of states in which the walk has just passed, and checking them.

use std::sync::Arc;

use pyo3::prelude::*;
use stator_cpython::heap::address::AddressSet;
use stator_cpython::heap::function::Field;
use stator_cpython::heap::snapshot::{Builder, Node, Result, Snapshot, Unwatchable};
use stator_cpython::heap::weak::Liveness;
use stator_cpython::heap::{self, Any, constant, container, context, global_state, tensor};

use super::Report;
use super::keys::{Key, Part};
use super::plan::{Fetch, Plan, Step, Test, TestKind, keys_are};
use super::walk::Values;

/// Snapshots kept per trace: one per set of roots, such as the modules that share a trace.
const KEPT: usize = 8;

/// After this many snapshots in a row that were never used, they are taken only now and then:
/// the roots are new objects at each call.
const PATIENCE: u32 = 4;
const RETRY: u64 = 32;

/// So many arguments are compared with each other one by one.
const FEW: usize = 16;

/// The snapshots of a trace, and how they have done.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    /// The global state in which its guards were last found to hold.
    pub state: Option<global_state::Words>,
    /// The last used first.
    kept: Vec<Entry>,
    /// Snapshots taken since one was last used.
    unused: u32,
    fast: u64,
    walked: u64,
    unwatchable: Option<&'static str>,
}

#[derive(Debug)]
struct Entry {
    snapshot: Snapshot,
    liveness: Arc<Liveness>,
    /// Arguments that must be the object at an address that the snapshot proves.
    same: Vec<(usize, usize)>,
    /// Pairs of arguments that must be the same.
    pairs: Vec<(usize, usize)>,
    distinct: Vec<Distinct>,
    /// Arguments that are tokens, and the context variables of theirs that the snapshot proves.
    tokens: Vec<(usize, Py<PyAny>)>,
    /// Tests to ask again, of the extra objects the snapshot gives.
    again: Vec<(usize, usize)>,
    gradients: Gradients,
}

/// Gradients, which are mostly new at each call: they are read and tested each time, and count as
/// arguments behind those of the call.
#[derive(Debug, Default)]
struct Gradients {
    /// The number of the first among arguments.
    first: usize,
    /// The step of each, and the extra object whose gradient it is.
    steps: Vec<(usize, usize)>,
    /// Which of the wanted objects are gradients: position, and which one.
    wanted: Vec<(usize, usize)>,
}

/// Arguments that must be different objects from each other and from those at these addresses.
#[derive(Debug)]
struct Distinct {
    args: Vec<usize>,
    others: AddressSet,
}

impl Snapshots {
    /// Whether a snapshot passes; then appends the wanted objects to `objects`.
    #[inline]
    pub(super) fn check<'py>(
        &mut self,
        py: Python<'py>,
        plan: &Plan,
        args: &[Any<'_, 'py>],
        objects: &mut Vec<Bound<'py, PyAny>>,
    ) -> bool {
        for index in 0..self.kept.len() {
            if !self.kept[index].snapshot.is_for(args) {
                continue;
            }
            if self.kept[index].check(py, plan, args, objects) {
                self.kept[..=index].rotate_right(1);
                self.unused = 0;
                self.fast += 1;
                return true;
            }
            objects.clear();
            return false;
        }
        false
    }

    /// Takes a snapshot of the present state, in which the walk has just passed.
    pub(super) fn take<'py>(
        &mut self,
        py: Python<'py>,
        plan: &Plan,
        liveness: &Arc<Liveness>,
        args: &[Any<'_, 'py>],
        values: &Values<'py>,
    ) {
        self.walked += 1;
        if self.unused >= PATIENCE && !self.walked.is_multiple_of(RETRY) {
            return;
        }
        match Entry::take(py, plan, liveness, values) {
            Ok(entry) => {
                self.unused += 1;
                self.kept.retain(|old| !old.snapshot.is_for(args));
                self.kept.truncate(KEPT - 1);
                self.kept.insert(0, entry);
            }
            Err(Unwatchable(reason)) => {
                self.unused = PATIENCE;
                self.unwatchable = Some(reason);
            }
        }
    }

    pub(super) fn report(&self) -> Report {
        Report {
            fast: self.fast,
            walked: self.walked,
            snapshots: self.kept.len(),
            compared: self.kept.first().map_or((0, 0), |entry| entry.snapshot.compared()),
            watched: self.kept.first().map_or((0, 0), |entry| entry.snapshot.watched()),
            unwatchable: self.unwatchable,
        }
    }
}

impl Entry {
    #[inline]
    fn check<'py>(
        &mut self,
        py: Python<'py>,
        plan: &Plan,
        args: &[Any<'_, 'py>],
        objects: &mut Vec<Bound<'py, PyAny>>,
    ) -> bool {
        if !self.snapshot.check(py, args, objects) {
            return false;
        }
        let extras = objects.split_off(plan.wanted.len());
        let Some(gradients) = self.gradients.read(plan, &extras) else { return false };
        for (position, which) in &self.gradients.wanted {
            objects[*position].clone_from(&gradients[*which]);
        }
        let with_gradients: Vec<_>;
        let args = if gradients.is_empty() {
            args
        } else {
            let own = args.iter().copied();
            with_gradients = own.chain(gradients.iter().map(Bound::as_borrowed)).collect();
            &with_gradients
        };
        let address = |index: usize| args.get(index).map(|arg| arg.as_ptr() as usize);
        if !self.same.iter().all(|(arg, want)| address(*arg) == Some(*want))
            || !self.pairs.iter().all(|(a, b)| address(*a) == address(*b))
            || !self.distinct.iter().all(|group| group.holds(args))
        {
            return false;
        }
        let fits = |(token, variable): &(usize, Py<PyAny>)| {
            args.get(*token).is_some_and(|token| context::fits(*token, variable.bind_borrowed(py)))
        };
        if !self.tokens.iter().all(fits) {
            return false;
        }
        self.again.iter().all(|(test, extra)| {
            holds_again(&plan.tests[*test].kind, &extras[*extra], &self.liveness)
        })
    }

    fn take<'py>(
        py: Python<'py>,
        plan: &Plan,
        liveness: &Arc<Liveness>,
        values: &Values<'py>,
    ) -> Result<Entry> {
        let before = heap::interruptions();
        let mut capture = Capture {
            builder: Builder::new(py, Arc::clone(liveness)),
            liveness,
            py,
            nodes: Vec::with_capacity(plan.steps.len()),
        };
        for (index, step) in plan.steps.iter().enumerate() {
            let value = values[index].as_ref().ok_or(Unwatchable("a slot that wasn't reached"))?;
            let node = if step.direct || matches!(step.fetch, Fetch::Gradient) {
                None
            } else {
                Some(capture.reach(step, value)?)
            };
            capture.nodes.push(node);
        }
        let mut entry = Entry {
            snapshot: Builder::new(py, Arc::clone(liveness)).finish(),
            liveness: Arc::clone(liveness),
            same: Vec::new(),
            pairs: Vec::new(),
            distinct: Vec::new(),
            tokens: Vec::new(),
            again: Vec::new(),
            gradients: Gradients::default(),
        };
        let mut extras = Vec::new();
        entry.gradients.find(plan, &mut extras, &capture.nodes)?;
        for (index, step) in plan.steps.iter().enumerate() {
            for test in step.tests.clone() {
                if plan.tests[test].kind.is_aliasing() {
                    entry.alias(plan, index, &plan.tests[test], values)?;
                } else if let Some(node) = capture.nodes[index]
                    && capture.content(node, &plan.tests[test])? == Again::EachCall
                {
                    entry.again.push((test, extras.len()));
                    extras.push(node);
                }
            }
        }
        for (position, step) in plan.wanted.iter().enumerate() {
            match (capture.nodes[*step], &plan.steps[*step].fetch) {
                (Some(node), _) => capture.builder.want(node),
                (None, Fetch::Argument(index)) => capture.builder.want_argument(*index),
                (None, Fetch::Gradient) => {
                    let which = entry.gradients.which(*step);
                    let which = which.ok_or(Unwatchable("a wanted object without a node"))?;
                    entry.gradients.wanted.push((position, which));
                    // Stands there until the gradient itself is read.
                    capture.builder.want(extras[entry.gradients.steps[which].1]);
                }
                (None, _) => return Err(Unwatchable("a wanted object without a node")),
            }
        }
        extras.into_iter().for_each(|node| capture.builder.want(node));
        entry.snapshot = capture.builder.finish();
        if heap::interruptions() == before { Ok(entry) } else { Err(Unwatchable("interrupted")) }
    }

    /// Aliasing among the snapshot's own objects follows from their pointers; what is left are
    /// arguments that are new at each call.
    fn alias(&mut self, plan: &Plan, step: usize, test: &Test, values: &Values<'_>) -> Result<()> {
        let gradients = &self.gradients;
        let argument = |step: usize| match plan.steps[step] {
            Step { direct: true, fetch: Fetch::Argument(index), .. } => Some(index),
            Step { fetch: Fetch::Gradient, .. } => {
                gradients.which(step).map(|which| gradients.first + which)
            }
            _ => None,
        };
        let address = |step: usize| values[step].as_ref().map_or(0, |v| v.as_ptr() as usize);
        match &test.kind {
            TestKind::Same(other) => match (argument(step), argument(*other)) {
                (Some(a), Some(b)) => self.pairs.push((a, b)),
                (Some(arg), None) => self.same.push((arg, address(*other))),
                (None, Some(arg)) => self.same.push((arg, address(step))),
                (None, None) => {}
            },
            TestKind::Distinct(others) => {
                let mut group = Distinct { args: Vec::new(), others: AddressSet::default() };
                for step in std::iter::once(&step).chain(others) {
                    match argument(*step) {
                        Some(arg) => group.args.push(arg),
                        None => {
                            group.others.insert(address(*step));
                        }
                    }
                }
                if !group.args.is_empty() {
                    self.distinct.push(group);
                }
            }
            TestKind::TokenOf(variable) => {
                let of = values[*variable].as_ref().filter(|_| argument(*variable).is_none());
                let (Some(token), Some(variable)) = (argument(step), of) else {
                    return Err(Unwatchable("a token of a context variable"));
                };
                self.tokens.push((token, variable.clone().unbind()));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Gradients {
    /// Takes note of the gradients among a plan's steps.
    fn find(&mut self, plan: &Plan, extras: &mut Vec<Node>, nodes: &[Option<Node>]) -> Result<()> {
        self.first = plan.all_arguments();
        for (index, step) in plan.steps.iter().enumerate() {
            if !matches!(step.fetch, Fetch::Gradient) {
                continue;
            }
            let tests = &plan.tests[step.tests.clone()];
            if !tests.iter().all(|test| test.kind.is_direct()) {
                return Err(Unwatchable("a gradient that isn't a plain tensor"));
            }
            let owner = nodes[step.parent].ok_or(Unwatchable("the gradient of a gradient"))?;
            self.steps.push((index, extras.len()));
            extras.push(owner);
        }
        Ok(())
    }

    /// Which gradient a step is.
    fn which(&self, step: usize) -> Option<usize> {
        self.steps.binary_search_by_key(&step, |(known, _)| *known).ok()
    }

    /// Reads and tests them.
    #[inline]
    fn read<'py>(
        &self,
        plan: &Plan,
        extras: &[Bound<'py, PyAny>],
    ) -> Option<Vec<Bound<'py, PyAny>>> {
        let mut found = Vec::with_capacity(self.steps.len());
        for (step, owner) in &self.steps {
            let gradient = tensor::gradient(extras[*owner].as_borrowed())?;
            let mut tests = plan.tests[plan.steps[*step].tests.clone()].iter();
            let holds = |test: &Test| {
                test.kind.is_aliasing() || test.kind.holds_alone(gradient.as_borrowed())
            };
            if !tests.all(holds) {
                return None;
            }
            found.push(gradient);
        }
        Some(found)
    }
}

impl Distinct {
    #[inline]
    fn holds(&self, args: &[Any<'_, '_>]) -> bool {
        if self.args.len() > FEW {
            let mut seen = AddressSet::default();
            return self.args.iter().all(|arg| {
                args.get(*arg).is_some_and(|object| {
                    let address = object.as_ptr() as usize;
                    !self.others.contains(&address) && seen.insert(address)
                })
            });
        }
        self.args.iter().enumerate().all(|(position, arg)| {
            let Some(object) = args.get(*arg) else {
                return false;
            };
            !self.others.contains(&(object.as_ptr() as usize))
                && self.args[..position]
                    .iter()
                    .all(|other| args.get(*other).is_some_and(|other| !other.is(&**object)))
        })
    }
}

/// Whether a test must be asked at each call.
#[derive(PartialEq, Eq)]
enum Again {
    Covered,
    EachCall,
}

struct Capture<'a, 'py> {
    builder: Builder<'py>,
    liveness: &'a Liveness,
    py: Python<'py>,
    /// By step; `None` for direct arguments.
    nodes: Vec<Option<Node>>,
}

impl<'py> Capture<'_, 'py> {
    fn key(&self, key: &Key) -> Result<Bound<'py, PyAny>> {
        match key {
            Key::Constant(object) => Ok(object.bind(self.py).clone()),
            Key::Known(address) => {
                self.liveness.get(self.py, *address).ok_or(Unwatchable("a key that died"))
            }
        }
    }

    /// Records the way from a step's parent to its object.
    fn reach(&mut self, step: &Step, value: &Bound<'py, PyAny>) -> Result<Node> {
        let value = value.as_borrowed();
        match &step.fetch {
            Fetch::Argument(index) => return Ok(self.builder.root(*index, value)),
            Fetch::Known(_) => return self.builder.anchor(value),
            Fetch::Module(name) => {
                let modules = self.builder.modules()?;
                let module = self.builder.dict_item(modules, name.bind_borrowed(self.py))?;
                return module.ok_or(Unwatchable("a module that has gone"));
            }
            _ => {}
        }
        let parent = self.nodes[step.parent].ok_or(Unwatchable("a child of an argument"))?;
        let builder = &mut self.builder;
        let node = match &step.fetch {
            Fetch::InstanceDict => builder.instance_dict(parent)?,
            Fetch::Item(key) => {
                let key = self.key(key)?;
                self.builder.dict_item(parent, key.as_borrowed())?
            }
            Fetch::Hashed(hash, is_key) => builder.hashed_item(parent, *hash, *is_key)?,
            Fetch::CachedItem(parts) => {
                let found = Part::find(parts, builder.object(parent));
                let (key, _) = found.ok_or(Unwatchable("a result that no cache has"))?;
                builder.dict_item(parent, key.as_borrowed())?
            }
            // What it holds depends on the context in which it is asked.
            Fetch::ContextValue | Fetch::ContextDefault => {
                return Err(Unwatchable("a context variable"));
            }
            // Its elements lie in blocks that come and go.
            Fetch::DequeItem(_) | Fetch::DequeMaxLength => return Err(Unwatchable("a deque")),
            Fetch::Iterated(_)
            | Fetch::Upcoming(_)
            | Fetch::UpcomingKey(_)
            | Fetch::OfGenerator(_) => {
                return Err(Unwatchable("an iterator"));
            }
            Fetch::ListItem(index) => Some(builder.list_item(parent, *index)?),
            Fetch::LastItem(index) => {
                let length = container::list_length(builder.object(parent));
                let at = length.and_then(|length| length.checked_sub(*index));
                let at = at.ok_or(Unwatchable("the end of a deque"))?;
                builder.list_length(parent)?;
                Some(builder.list_item(parent, at)?)
            }
            Fetch::TupleItem(index) => Some(builder.tuple_item(parent, *index)?),
            Fetch::Member(member) => builder.member(parent, member)?,
            Fetch::Lookup { after: None, name } => {
                builder.lookup(parent, None, name.bind_borrowed(self.py))?
            }
            Fetch::Lookup { after: Some(after), name } => {
                let after = self.key(after)?;
                let name = name.bind_borrowed(self.py);
                self.builder.lookup(parent, Some(after.as_borrowed()), name)?
            }
            Fetch::TypeOf => Some(builder.type_of(parent)?),
            Fetch::Field(field) => builder.field(parent, *field)?,
            Fetch::ClosureCell(index) => match builder.field(parent, Field::Closure)? {
                Some(closure) => Some(builder.tuple_item(closure, *index)?),
                None => None,
            },
            Fetch::Argument(_) | Fetch::Known(_) | Fetch::Module(_) | Fetch::Gradient => None,
        };
        let node = node.ok_or(Unwatchable("a slot that has emptied"))?;
        if !self.builder.object(node).is(&*value) {
            return Err(Unwatchable("a slot that has changed"));
        }
        Ok(node)
    }

    /// Records what a test asks of a node's object.
    fn content(&mut self, node: Node, test: &Test) -> Result<Again> {
        let builder = &mut self.builder;
        match &test.kind {
            TestKind::Type(_) => builder.exact_type(node)?,
            // Pointers are compared; the objects are held, or immortal.
            TestKind::Is(_) | TestKind::IsNone | TestKind::IsNotNone => {}
            TestKind::Equals(_) => builder.own(node)?,
            // Held, it would keep its attributes alive.
            TestKind::Holds(_) => return Ok(Again::EachCall),
            TestKind::Length(_) => {
                let object = builder.object(node);
                if container::is_deque(object) {
                    return Err(Unwatchable("a deque"));
                }
                if container::list_length(object).is_some() {
                    builder.list_length(node)?;
                } else {
                    builder.tuple_length(node)?;
                }
            }
            TestKind::DictKeys(_) => builder.dict_order(node)?,
            TestKind::DictLength(_) => builder.dict_length(node)?,
            TestKind::KeyAbsent(key) => {
                let key = self.key(key)?;
                absent(self.builder.dict_item(node, key.as_borrowed())?)?;
            }
            TestKind::HashAbsent(hash) => absent(builder.hashed_item(node, *hash, false)?)?,
            TestKind::AbsentWithin(key, holders) => {
                let key = key.bind_borrowed(self.py);
                absent(builder.dict_item(node, key)?)?;
                for holder in holders.iter() {
                    let held = builder.dict_item(node, holder.bind_borrowed(self.py))?;
                    let held = held.ok_or(Unwatchable("a slot that has emptied"))?;
                    builder.exact_type(held)?;
                    absent(builder.dict_item(held, key)?)?;
                }
            }
            TestKind::Vacant(keys) => {
                for key in &keys.absent {
                    absent(builder.dict_item(node, key.bind_borrowed(self.py))?)?;
                }
                for key in &keys.empty {
                    let value = builder.dict_item(node, key.bind_borrowed(self.py))?;
                    builder.empty_dict(value.ok_or(Unwatchable("a slot that has emptied"))?)?;
                }
            }
            TestKind::SetEquals(_) | TestKind::SetHolds(..) => {
                if !constant::is_constant(builder.object(node)) {
                    return Ok(Again::EachCall);
                }
                builder.own(node)?;
            }
            TestKind::LookupAbsent(name) => {
                absent(builder.lookup(node, None, name.bind_borrowed(self.py))?)?;
            }
            TestKind::MemberUnset(member) => absent(builder.member(node, member)?)?,
            TestKind::FieldEmpty(field) => absent(builder.field(node, *field)?)?,
            TestKind::MethodOf(_) => builder.made_from(node)?,
            TestKind::NoTensorHooks => builder.no_hooks(node)?,
            TestKind::Place(_) => return Ok(Again::EachCall),
            TestKind::ContextUnset => return Err(Unwatchable("a context variable")),
            TestKind::IteratorAt(_) | TestKind::Gives(_) | TestKind::GeneratorAt(_) => {
                return Err(Unwatchable("an iterator"));
            }
            TestKind::NoInstanceDict => absent(builder.instance_dict(node)?)?,
            TestKind::Tensor(_, guard) => builder.tensor(
                node,
                |index| guard.sizes.get(index).is_some_and(Option::is_none),
                |index| guard.strides.get(index).is_some_and(Option::is_none),
            )?,
            TestKind::Same(_) | TestKind::Distinct(_) | TestKind::TokenOf(_) => {}
        }
        Ok(Again::Covered)
    }
}

fn absent(node: Option<Node>) -> Result<()> {
    match node {
        None => Ok(()),
        Some(_) => Err(Unwatchable("a slot that has filled")),
    }
}

/// Whether a test holds that no snapshot covers: a mutable set still has its guarded elements in order, or still holds
/// the one that was asked for; a tensor stands where it stood; a number of a class of its own has its value.
fn holds_again(test: &TestKind, object: &Bound<'_, PyAny>, liveness: &Liveness) -> bool {
    let (py, object) = (object.py(), object.as_borrowed());
    match test {
        TestKind::SetEquals(items) => {
            container::set_items(object).is_some_and(|found| keys_are(py, &found, items))
        }
        TestKind::SetHolds(Key::Constant(item), holds) => {
            container::set_holds(object, item.bind_borrowed(py)) == Some(*holds)
        }
        TestKind::SetHolds(Key::Known(address), holds) => liveness
            .get(py, *address)
            .is_some_and(|item| container::set_holds(object, item.as_borrowed()) == Some(*holds)),
        TestKind::Place(_) | TestKind::Holds(_) => test.holds_alone(object),
        _ => false,
    }
}
