//! Guards compiled into steps: each needed slot once, parents before children.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use smallvec::SmallVec;
use stator_cpython::heap::function::Field;
use stator_cpython::heap::iterator::{self, Position};
use stator_cpython::heap::member::Member;
use stator_cpython::heap::{Any, abc, constant, container, dict, global_state, tensor, types};
use stator_guards::{
    Accelerator, ClassField, FunctionField, Gives, GlobalState, Guard, GuardKind, Holders,
    ObjectId, Rests, Source, SourceId, Sources, TensorGuard, Vacancy,
};

use super::capture::Snapshots;
use super::failure::{Failure, Found};
use super::held::Held;
use super::keys::{Key, Part};
use super::walk::{does_give, does_rest, expected, found};
use crate::accelerator;

/// Arguments with more items are known by identity.
const SPREAD_ITEMS: usize = 32;

/// Items of arguments that are taken apart.
pub(super) type Items<'py> = SmallVec<[Bound<'py, PyAny>; 8]>;

/// The compiled guards of a trace.
#[derive(Debug)]
pub(super) struct Plan {
    /// In topological order.
    pub steps: Vec<Step>,
    /// The tests of all steps, in the order of steps.
    pub tests: Vec<Test>,
    /// Steps of the wanted objects, in the order they were asked for.
    pub wanted: Vec<usize>,
    /// Guards on global state.
    states: Vec<(usize, Arc<GlobalState>)>,
    /// The guard on registrations with abstract classes, and their count.
    abstract_classes: Option<(usize, u64)>,
    /// The guard on the accelerator.
    accelerator: Option<(usize, Arc<Accelerator>)>,
    /// Arguments whose guards are asked at each call, with their steps.
    pub arguments: Vec<(usize, usize)>,
    /// Arguments that are taken apart at each call.
    pub spread: Vec<Spread>,
    /// The arguments that steps speak of; behind them come the items of those taken apart.
    pub own_arguments: usize,
}

/// A slot to fetch, and the guards on what it holds.
#[derive(Debug)]
pub(super) struct Step {
    pub fetch: Fetch,
    /// The step it's fetched from; itself where it's a root.
    pub parent: usize,
    pub tests: Range<usize>,
    /// The guard that fails if the slot can't be reached: the first at or below this step.
    pub blame: Option<usize>,
    /// Whether this is an argument that's asked at each call rather than known by identity.
    pub direct: bool,
}

/// An argument whose items are arguments of their own.
#[derive(Debug)]
pub(super) struct Spread {
    /// Its number among arguments; behind the call's own it is an item of a container further up.
    pub argument: usize,
    pub step: usize,
    /// How each item is read, and its step.
    pub items: Vec<(Fetch, usize)>,
}

/// How a slot is read from its parent's object.
#[derive(Debug)]
pub(super) enum Fetch {
    Argument(usize),
    Known(usize),
    Module(Py<PyAny>),
    InstanceDict,
    Item(Key),
    /// By the key's hash: the value, or the key.
    Hashed(isize, bool),
    /// The item of a cache that has a key of these parts.
    CachedItem(Box<[Part]>),
    ListItem(usize),
    LastItem(usize),
    TupleItem(usize),
    DequeItem(usize),
    DequeMaxLength,
    Iterated(usize),
    Upcoming(usize),
    UpcomingKey(usize),
    OfGenerator(Option<usize>),
    Gradient,
    ContextValue,
    ContextDefault,
    Member(Member),
    Lookup {
        after: Option<Key>,
        name: Py<PyAny>,
    },
    TypeOf,
    Field(Field),
    ClosureCell(usize),
}

/// A guard on one object.
#[derive(Debug)]
pub(super) struct Test {
    /// Index among the trace's guards.
    pub guard: usize,
    pub kind: TestKind,
}

#[derive(Debug)]
pub(super) enum TestKind {
    Type(usize),
    Is(usize),
    IsNone,
    IsNotNone,
    Equals(Py<PyAny>),
    Holds(Py<PyAny>),
    Length(usize),
    DictKeys(Vec<Key>),
    DictLength(usize),
    KeyAbsent(Key),
    HashAbsent(isize),
    AbsentWithin(Py<PyAny>, HolderKeys),
    Vacant(Arc<VacantKeys>),
    SetEquals(Vec<Key>),
    SetHolds(Key, bool),
    LookupAbsent(Py<PyAny>),
    MemberUnset(Member),
    FieldEmpty(Field),
    ContextUnset,
    NoTensorHooks,
    Place(tensor::Place),
    IteratorAt(Position),
    Gives(Gives),
    GeneratorAt(Rests),
    MethodOf(usize),
    TokenOf(usize),
    NoInstanceDict,
    Tensor(usize, Arc<TensorGuard>),
    Same(usize),
    Distinct(Vec<usize>),
}

/// The keys at which a dictionary holds those that a guard of kind `AbsentWithin` speaks of.
pub(super) type HolderKeys = Arc<[Py<PyAny>]>;

/// The keys of a guard of kind `Vacant`: strings.
#[derive(Debug)]
pub(super) struct VacantKeys {
    pub absent: Box<[Py<PyAny>]>,
    pub empty: Box<[Py<PyAny>]>,
}

impl TestKind {
    /// Whether the test may be asked of an argument at each call, without a snapshot.
    pub(super) fn is_direct(&self) -> bool {
        matches!(
            self,
            TestKind::Type(_)
                | TestKind::Is(_)
                | TestKind::IsNone
                | TestKind::IsNotNone
                | TestKind::Equals(_)
                | TestKind::Holds(_)
                | TestKind::Tensor(..)
                | TestKind::Place(_)
                | TestKind::Same(_)
                | TestKind::Distinct(_)
                | TestKind::TokenOf(_)
                | TestKind::Length(_)
                | TestKind::DictKeys(_)
                | TestKind::DictLength(_)
                | TestKind::KeyAbsent(Key::Constant(_))
                | TestKind::HashAbsent(_)
                | TestKind::IteratorAt(_)
                | TestKind::Gives(_)
                | TestKind::GeneratorAt(_)
        )
    }

    /// Whether the test compares this object with others.
    pub(super) fn is_aliasing(&self) -> bool {
        matches!(self, TestKind::Same(_) | TestKind::Distinct(_) | TestKind::TokenOf(_))
    }

    /// Tests that need nothing but the object.
    #[inline]
    pub(super) fn holds_alone(&self, object: Any<'_, '_>) -> bool {
        match self {
            TestKind::Type(ty) => types::address_of(object) == *ty,
            TestKind::Is(address) => object.as_ptr() as usize == *address,
            TestKind::IsNone => object.is_none(),
            TestKind::IsNotNone => !object.is_none(),
            TestKind::Equals(value) => constant::equal(value.bind_borrowed(object.py()), object),
            TestKind::Holds(value) => constant::plain(object).is_some_and(|plain| {
                constant::equal(value.bind_borrowed(object.py()), plain.as_borrowed())
            }),
            TestKind::Tensor(ty, guard) => {
                types::address_of(object) == *ty && tensor::matches(object, &expected(guard))
            }
            TestKind::Place(place) => tensor::place(object) == Some(*place),
            TestKind::Length(length) => {
                let found = container::list_length(object)
                    .or_else(|| container::tuple_length(object))
                    .or_else(|| container::deque_length(object));
                found == Some(*length)
            }
            TestKind::DictKeys(keys) => {
                dict::keys(object).is_some_and(|found| keys_are(object.py(), &found, keys))
            }
            TestKind::DictLength(length) => dict::length(object) == Some(*length),
            TestKind::IteratorAt(position) => iterator::position(object) == Some(*position),
            TestKind::Gives(gives) => does_give(object, gives),
            TestKind::GeneratorAt(rests) => does_rest(object, rests),
            TestKind::KeyAbsent(Key::Constant(key)) => is_absent(object, key),
            TestKind::HashAbsent(hash) => dict::at_hash(object, *hash).is_absent(),
            TestKind::AbsentWithin(key, holders) => {
                let get = |key: &Py<PyAny>| dict::get(object, key.bind_borrowed(object.py()));
                is_absent(object, key)
                    && holders.iter().all(|holder| match get(holder) {
                        dict::Lookup::Found(held) => {
                            dict::is_plain(held.as_borrowed()) && is_absent(held.as_borrowed(), key)
                        }
                        dict::Lookup::Absent | dict::Lookup::Refused => false,
                    })
            }
            TestKind::Vacant(keys) => {
                let get = |key: &Py<PyAny>| dict::get(object, key.bind_borrowed(object.py()));
                keys.absent.iter().all(|key| is_absent(object, key))
                    && keys.empty.iter().all(|key| match get(key) {
                        dict::Lookup::Found(value) => dict::is_plain_empty(value.as_borrowed()),
                        dict::Lookup::Absent | dict::Lookup::Refused => false,
                    })
            }
            _ => unreachable!("{self:?} isn't asked of an argument alone"),
        }
    }
}

fn is_absent(dict: Any<'_, '_>, key: &Py<PyAny>) -> bool {
    matches!(dict::get(dict, key.bind_borrowed(dict.py())), dict::Lookup::Absent)
}

/// Whether these are the keys, in order.
pub(super) fn keys_are(py: Python<'_>, found: &[Bound<'_, PyAny>], keys: &[Key]) -> bool {
    found.len() == keys.len()
        && found.iter().zip(keys).all(|(found, key)| match key {
            Key::Constant(key) => constant::equal(found.as_borrowed(), key.bind_borrowed(py)),
            Key::Known(address) => found.as_ptr() as usize == *address,
        })
}

impl Plan {
    pub(super) fn build(
        py: Python<'_>,
        sources: &Sources,
        guards: &[Guard],
        held: &Held,
        wanted: &[SourceId],
    ) -> PyResult<Self> {
        let steps = needed(sources, guards, wanted);
        let compiler = Compiler {
            py,
            sources,
            held,
            steps,
            last_vacancy: RefCell::default(),
            holders: RefCell::default(),
        };
        let (mut states, mut abstract_classes, mut accelerator) = (Vec::new(), None, None);
        let by_step = GuardsByStep::new(&compiler, guards, |index, kind| match kind {
            GuardKind::GlobalState(state) => states.push((index, state.clone())),
            GuardKind::AbstractClasses(count) => abstract_classes = Some((index, *count)),
            GuardKind::Accelerator(selected) => accelerator = Some((index, selected.clone())),
            _ => {}
        })?;
        let mut plan = Plan {
            steps: Vec::with_capacity(compiler.steps.count),
            tests: Vec::with_capacity(guards.len()),
            wanted: wanted.iter().map(|id| compiler.step(*id)).collect::<PyResult<_>>()?,
            states,
            abstract_classes,
            accelerator,
            arguments: Vec::new(),
            spread: Vec::new(),
            own_arguments: 0,
        };
        for (id, source) in sources.iter() {
            let Some(step) = compiler.steps.get(id) else { continue };
            let from = plan.tests.len();
            for &guard in by_step.of(step) {
                plan.tests.push(Test { guard, kind: compiler.test(&guards[guard])? });
            }
            plan.steps.push(Step {
                fetch: compiler.fetch(source)?,
                parent: source.parent().map_or(Ok(step), |parent| compiler.step(parent))?,
                tests: from..plan.tests.len(),
                blame: plan.tests.get(from).map(|test| test.guard),
                direct: false,
            });
        }
        plan.settle(py);
        Ok(plan)
    }

    /// Fills in what needs all steps: who is to blame, and which arguments are taken apart or direct.
    fn settle(&mut self, py: Python<'_>) {
        for step in (0..self.steps.len()).rev() {
            let parent = self.steps[step].parent;
            if parent != step && self.steps[parent].tests.is_empty() {
                self.steps[parent].blame = self.steps[step].blame.or(self.steps[parent].blame);
            }
        }
        self.spread_arguments(py);
        let mut has_child = vec![false; self.steps.len()];
        for (index, step) in self.steps.iter().enumerate() {
            if step.parent != index {
                has_child[step.parent] = true;
            }
        }
        for (index, step) in self.steps.iter_mut().enumerate() {
            if let Fetch::Argument(argument) = step.fetch
                && !has_child[index]
                && self.tests[step.tests.clone()].iter().all(|test| test.kind.is_direct())
            {
                step.direct = true;
                if !self.spread.iter().any(|spread| spread.step == index) {
                    self.arguments.push((argument, index));
                }
            }
        }
    }

    /// Finds the arguments that are taken apart at each call: iterators, small tuples and dictionaries, which
    /// are mostly new at each call (`*args` and `**kwargs` always are), with items that may not be.
    fn spread_arguments(&mut self, py: Python<'_>) {
        let mut children = vec![Vec::new(); self.steps.len()];
        for (index, step) in self.steps.iter().enumerate() {
            if step.parent != index {
                children[step.parent].push(index);
            }
            if let Fetch::Argument(argument) = step.fetch {
                self.own_arguments = self.own_arguments.max(argument + 1);
            }
        }
        let types = [py.get_type::<PyTuple>(), py.get_type::<PyDict>()];
        let [tuple, dict] = types.map(|ty| ty.as_ptr() as usize);
        let mut next = self.own_arguments;
        for (index, children) in children.iter().enumerate() {
            let step = &self.steps[index];
            let Fetch::Argument(argument) = step.fetch else { continue };
            let tests = &self.tests[step.tests.clone()];
            let is =
                |ty| tests.iter().any(|test| matches!(test.kind, TestKind::Type(is) if is == ty));
            let is_item = |child: &usize| match &self.steps[*child].fetch {
                Fetch::TupleItem(_) => is(tuple),
                Fetch::Item(Key::Constant(_)) => is(dict),
                fetch => fetch.is_of_iterator(),
            };
            if children.is_empty()
                || children.len() > SPREAD_ITEMS
                || !tests.iter().all(|test| test.kind.is_direct())
                || !children.iter().all(is_item)
            {
                continue;
            }
            let mut items = Vec::with_capacity(children.len());
            for child in children {
                let step = &mut self.steps[*child];
                let fetch = std::mem::replace(&mut step.fetch, Fetch::Argument(next));
                step.parent = *child;
                items.push((fetch, *child));
                next += 1;
            }
            self.spread.push(Spread { argument, step: index, items });
        }
    }

    /// The items of the arguments that are taken apart, after the guards on these.
    pub(super) fn items<'py>(&self, args: &[Any<'_, 'py>]) -> Result<Items<'py>, Failure> {
        let mut items = Items::new();
        if args.len() < self.own_arguments {
            let is_missing =
                |step: &&Step| matches!(step.fetch, Fetch::Argument(index) if index >= args.len());
            let guard = self.steps.iter().find(is_missing).and_then(|step| step.blame);
            return Err(Failure { guard, found: Found::Missing });
        }
        for spread in &self.spread {
            // An item of another one is among those already found.
            let object = match spread.argument.checked_sub(self.own_arguments) {
                None => (*args[spread.argument]).clone(),
                Some(item) => items[item].clone(),
            };
            let object = object.as_borrowed();
            self.check_argument(spread.step, object)?;
            for (fetch, step) in &spread.items {
                let item = match fetch {
                    Fetch::TupleItem(index) => container::tuple_item(object, *index),
                    Fetch::Item(Key::Constant(key)) => {
                        found(dict::get(object, key.bind_borrowed(object.py())))
                    }
                    _ => fetch.of_iterator(object),
                };
                let missing = Failure { guard: self.steps[*step].blame, found: Found::Missing };
                items.push(item.ok_or(missing)?);
            }
        }
        Ok(items)
    }

    /// The arguments as steps number them: those of the call, then the items.
    pub(super) fn with_items<'a, 'py>(
        &self,
        args: &[Any<'a, 'py>],
        items: &'a Items<'py>,
    ) -> SmallVec<[Any<'a, 'py>; 8]> {
        let own = args.iter().take(self.own_arguments).copied();
        own.chain(items.iter().map(Bound::as_borrowed)).collect()
    }

    /// How many arguments there are, with the items of those taken apart.
    pub(super) fn all_arguments(&self) -> usize {
        self.own_arguments + self.spread.iter().map(|spread| spread.items.len()).sum::<usize>()
    }

    /// Whether nothing happened that can't be undone and makes the guards fail.
    pub(super) fn can_hold(&self, py: Python<'_>) -> bool {
        self.abstract_classes.is_none_or(|(_, count)| abc::registrations(py) == Some(count))
    }

    /// The guards on global state: by words if they're known, by facts otherwise.
    #[inline]
    pub(super) fn check_global_state(
        &self,
        py: Python<'_>,
        mut snapshots: Option<&mut Snapshots>,
    ) -> Result<(), Failure> {
        if let Some((guard, count)) = self.abstract_classes
            && abc::registrations(py) != Some(count)
        {
            return Err(Failure { guard: Some(guard), found: Found::Registered });
        }
        if let Some((guard, selected)) = &self.accelerator
            && let Err(found) = accelerator::check(py, selected)
        {
            return Err(Failure { guard: Some(*guard), found: Found::Accelerator(found) });
        }
        if self.states.is_empty() {
            return Ok(());
        }
        if let Some(words) = snapshots.as_ref().and_then(|snapshots| snapshots.state.as_ref())
            && global_state::is(py, words)
        {
            return Ok(());
        }
        let now = super::global::read(py).ok();
        for (guard, expected) in &self.states {
            if now.as_deref() != Some(&**expected) {
                return Err(Failure { guard: Some(*guard), found: Found::GlobalState });
            }
        }
        if let Some(snapshots) = &mut snapshots {
            snapshots.state = global_state::read(py);
        }
        Ok(())
    }

    /// The guards on direct arguments, except those that compare them with other objects.
    #[inline]
    pub(super) fn check_arguments(&self, args: &[Any<'_, '_>]) -> Result<(), Failure> {
        for (argument, step) in &self.arguments {
            let Some(object) = args.get(*argument) else {
                return Err(Failure { guard: self.steps[*step].blame, found: Found::Missing });
            };
            self.check_argument(*step, *object)?;
        }
        Ok(())
    }

    #[inline]
    fn check_argument(&self, step: usize, object: Any<'_, '_>) -> Result<(), Failure> {
        for test in &self.tests[self.steps[step].tests.clone()] {
            if !test.kind.is_aliasing() && !test.kind.holds_alone(object) {
                let found = Found::Object((*object).clone().unbind());
                return Err(Failure { guard: Some(test.guard), found });
            }
        }
        Ok(())
    }
}

/// The steps of sources: those that guards or wanted objects need, numbered in order.
struct Steps {
    /// By source.
    numbers: Vec<Option<u32>>,
    count: usize,
}

impl Steps {
    #[inline]
    fn get(&self, id: SourceId) -> Option<usize> {
        self.numbers.get(id.index()).copied().flatten().map(|number| number as usize)
    }
}

/// The sources that guards or wanted objects need, and with them their parents.
fn needed(sources: &Sources, guards: &[Guard], wanted: &[SourceId]) -> Steps {
    let mut marks = vec![None; sources.len()];
    let others = guards.iter().flat_map(|guard| match &guard.kind {
        GuardKind::SameAs(other) | GuardKind::TokenOf(other) => std::slice::from_ref(other),
        GuardKind::Distinct(others) => others,
        _ => &[],
    });
    let guarded = guards.iter().map(|guard| &guard.source);
    for id in guarded.chain(others).chain(wanted) {
        if !matches!(sources.get(*id), Source::GlobalState) {
            marks[id.index()] = Some(0);
        }
    }
    for (id, source) in sources.iter().rev() {
        if marks[id.index()].is_some()
            && let Some(parent) = source.parent()
        {
            marks[parent.index()] = Some(0);
        }
    }
    let mut count = 0;
    for number in marks.iter_mut().flatten() {
        *number = count;
        count += 1;
    }
    Steps { numbers: marks, count: count as usize }
}

/// Indices of guards, sorted by the steps they are on.
struct GuardsByStep {
    guards: Vec<usize>,
    /// Where each step's guards begin, and the end.
    starts: Vec<usize>,
}

impl GuardsByStep {
    /// Sorts `guards`; those on global state go to `global`.
    fn new<'a>(
        compiler: &Compiler<'_, '_>,
        guards: &'a [Guard],
        mut global: impl FnMut(usize, &'a GuardKind),
    ) -> PyResult<Self> {
        let mut starts = vec![0; compiler.steps.count + 1];
        let mut sorted = 0;
        for (index, guard) in guards.iter().enumerate() {
            if is_global(guard) {
                global(index, &guard.kind);
                continue;
            }
            if is_symbolic(guard) {
                continue;
            }
            starts[compiler.step(guard.source)?] += 1;
            sorted += 1;
        }
        let mut before = 0;
        for start in &mut starts {
            before += std::mem::replace(start, before);
        }
        // Each guard is put where its step's next one goes: in the end a step's mark has moved to
        // where the following step begins.
        let mut by_step = vec![0; sorted];
        for (index, guard) in guards.iter().enumerate() {
            if is_global(guard) || is_symbolic(guard) {
                continue;
            }
            let next = &mut starts[compiler.step(guard.source)?];
            by_step[*next] = index;
            *next += 1;
        }
        starts.rotate_right(1);
        starts[0] = 0;
        Ok(Self { guards: by_step, starts })
    }

    fn of(&self, step: usize) -> &[usize] {
        &self.guards[self.starts[step]..self.starts[step + 1]]
    }
}

/// Whether a guard speaks of no object.
fn is_global(guard: &Guard) -> bool {
    matches!(
        guard.kind,
        GuardKind::GlobalState(_) | GuardKind::AbstractClasses(_) | GuardKind::Accelerator(_)
    )
}

/// Whether a guard is checked with all others of its kind, on what the steps found.
fn is_symbolic(guard: &Guard) -> bool {
    matches!(guard.kind, GuardKind::Symbolic { .. })
}

struct Compiler<'a, 'py> {
    py: Python<'py>,
    sources: &'a Sources,
    held: &'a Held,
    steps: Steps,
    last_vacancy: RefCell<Option<(Arc<Vacancy>, Arc<VacantKeys>)>>,
    holders: RefCell<Vec<(Arc<Holders>, HolderKeys)>>,
}

impl<'py> Compiler<'_, 'py> {
    #[inline]
    fn step(&self, id: SourceId) -> PyResult<usize> {
        match self.steps.get(id) {
            Some(step) => Ok(step),
            None => Err(self.no_step(id)),
        }
    }

    #[cold]
    fn no_step(&self, id: SourceId) -> PyErr {
        PyValueError::new_err(format!("{} isn't an object", self.sources.print(id)))
    }

    fn address(&self, id: ObjectId) -> PyResult<usize> {
        self.held.address(id)
    }

    fn key(&self, id: ObjectId) -> PyResult<Key> {
        self.held.key(self.py, id)
    }

    fn constant(&self, id: ObjectId) -> PyResult<Py<PyAny>> {
        Ok(self.held.constant(id)?.clone_ref(self.py))
    }

    fn fetch(&self, source: &Source) -> PyResult<Fetch> {
        Ok(match source {
            Source::Local { index, .. } => Fetch::Argument(usize::from(*index)),
            Source::Anchor { object, .. } => Fetch::Known(self.address(*object)?),
            Source::SysModule { name } => Fetch::Module(PyString::new(self.py, name).into()),
            Source::GlobalState => unreachable!("no step is made for it"),
            Source::Dict(_) => Fetch::InstanceDict,
            Source::DictItem { key, .. } => match self.held.parts(*key) {
                Some(parts) => Fetch::CachedItem(parts.into()),
                None => Fetch::Item(self.key(*key)?),
            },
            Source::HashedItem { hash, .. } => Fetch::Hashed(*hash, false),
            Source::HashedKey { hash, .. } => Fetch::Hashed(*hash, true),
            Source::ListItem { index, .. } => Fetch::ListItem(*index),
            Source::LastItem { index, .. } => Fetch::LastItem(*index),
            Source::TupleItem { index, .. } => Fetch::TupleItem(*index),
            Source::DequeItem { index, .. } => Fetch::DequeItem(*index),
            Source::DequeMaxLength(_) => Fetch::DequeMaxLength,
            Source::Iterated { index, .. } => Fetch::Iterated(*index),
            Source::Upcoming { index, .. } => Fetch::Upcoming(*index),
            Source::UpcomingKey { index, .. } => Fetch::UpcomingKey(*index),
            Source::GeneratorFunction(_) => Fetch::OfGenerator(None),
            Source::GeneratorSlot { index, .. } => Fetch::OfGenerator(Some(*index)),
            Source::Gradient(_) => Fetch::Gradient,
            Source::ContextValue(_) => Fetch::ContextValue,
            Source::ContextDefault(_) => Fetch::ContextDefault,
            Source::Slot { offset, .. } => Fetch::Member(Member::new(*offset)),
            Source::TypeLookup { name, .. } => {
                Fetch::Lookup { after: None, name: self.constant(*name)? }
            }
            Source::SuperLookup { after, name, .. } => {
                Fetch::Lookup { after: Some(self.key(*after)?), name: self.constant(*name)? }
            }
            Source::TypeOf(_) => Fetch::TypeOf,
            Source::ClosureCell { index, .. } => Fetch::ClosureCell(*index),
            Source::Globals(_) => Fetch::Field(Field::Globals),
            Source::Builtins(_) => Fetch::Field(Field::Builtins),
            Source::Code(_) => Fetch::Field(Field::Code),
            Source::Defaults(_) => Fetch::Field(Field::Defaults),
            Source::KwDefaults(_) => Fetch::Field(Field::KwDefaults),
            Source::CellContents(_) => Fetch::Field(Field::CellContents),
            Source::MethodSelf(_) => Fetch::Field(Field::MethodSelf),
            Source::MethodFunc(_) => Fetch::Field(Field::MethodFunc),
            Source::PartialFunc(_) => Fetch::Field(Field::PartialFunc),
            Source::ShownMapping(_) => Fetch::Field(Field::ShownMapping),
            Source::PartialArgs(_) => Fetch::Field(Field::PartialArgs),
            Source::PartialKeywords(_) => Fetch::Field(Field::PartialKeywords),
            Source::PropertyGet(_) => Fetch::Field(Field::PropertyGet),
            Source::PropertySet(_) => Fetch::Field(Field::PropertySet),
            Source::StaticFunc(_) => Fetch::Field(Field::StaticFunc),
            Source::ClassFunc(_) => Fetch::Field(Field::ClassFunc),
            Source::Referent(_) => Fetch::Field(Field::Referent),
            Source::FunctionField { field, .. } => Fetch::Field(match field {
                FunctionField::Name => Field::Name,
                FunctionField::Qualname => Field::Qualname,
                FunctionField::Doc => Field::Doc,
                FunctionField::Module => Field::Module,
                FunctionField::Annotations => Field::Annotations,
                FunctionField::Closure => Field::Closure,
            }),
            Source::ClassField { field, .. } => Fetch::Field(match field {
                ClassField::Name => Field::ClassName,
                ClassField::Qualname => Field::ClassQualname,
                ClassField::Mro => Field::ClassMro,
                ClassField::Bases => Field::ClassBases,
                ClassField::Base => Field::ClassBase,
            }),
            Source::Cache(_) => Fetch::Field(Field::Cache),
            Source::CachedResult(_) => Fetch::Field(Field::CachedResult),
        })
    }

    /// The keys of a vacancy; many guards share one.
    fn vacant(&self, vacancy: &Arc<Vacancy>) -> PyResult<Arc<VacantKeys>> {
        if let Some((known, keys)) = &*self.last_vacancy.borrow()
            && Arc::ptr_eq(known, vacancy)
        {
            return Ok(keys.clone());
        }
        let keys = |keys: &[(ObjectId, _)]| -> PyResult<_> {
            keys.iter().map(|(key, _)| self.constant(*key)).collect()
        };
        let keys =
            Arc::new(VacantKeys { absent: keys(&vacancy.absent)?, empty: keys(&vacancy.empty)? });
        *self.last_vacancy.borrow_mut() = Some((vacancy.clone(), keys.clone()));
        Ok(keys)
    }

    /// The keys of holders; a trace has few of them.
    fn holders(&self, holders: &Arc<Holders>) -> PyResult<HolderKeys> {
        let known = self.holders.borrow();
        if let Some((_, keys)) = known.iter().find(|(known, _)| Arc::ptr_eq(known, holders)) {
            return Ok(keys.clone());
        }
        drop(known);
        let keys: HolderKeys =
            holders.0.iter().map(|(key, _)| self.constant(*key)).collect::<PyResult<_>>()?;
        self.holders.borrow_mut().push((holders.clone(), keys.clone()));
        Ok(keys)
    }

    fn test(&self, guard: &Guard) -> PyResult<TestKind> {
        Ok(match &guard.kind {
            GuardKind::TypeIs(ty) => TestKind::Type(self.address(*ty)?),
            GuardKind::Is(object) => TestKind::Is(self.address(*object)?),
            GuardKind::IsNone => TestKind::IsNone,
            GuardKind::IsNotNone => TestKind::IsNotNone,
            GuardKind::Equals(object) => TestKind::Equals(self.constant(*object)?),
            GuardKind::Holds(object) => TestKind::Holds(self.constant(*object)?),
            GuardKind::Length(length) => TestKind::Length(*length),
            GuardKind::DictKeys(keys) => {
                TestKind::DictKeys(keys.iter().map(|id| self.key(*id)).collect::<PyResult<_>>()?)
            }
            GuardKind::DictLength(length) => TestKind::DictLength(*length),
            GuardKind::KeyAbsent { key, .. } => TestKind::KeyAbsent(self.key(*key)?),
            GuardKind::HashAbsent(hash) => TestKind::HashAbsent(*hash),
            GuardKind::AbsentWithin { key, holders, .. } => {
                TestKind::AbsentWithin(self.constant(*key)?, self.holders(holders)?)
            }
            GuardKind::Vacant(vacancy) => TestKind::Vacant(self.vacant(vacancy)?),
            GuardKind::SetEquals(set) => TestKind::SetEquals(self.held.items(self.py, *set)?),
            GuardKind::SetHolds { item, holds } => TestKind::SetHolds(self.key(*item)?, *holds),
            GuardKind::LookupAbsent { name, .. } => TestKind::LookupAbsent(self.constant(*name)?),
            GuardKind::SlotUnset { offset, .. } => TestKind::MemberUnset(Member::new(*offset)),
            GuardKind::ContextUnset => TestKind::ContextUnset,
            GuardKind::IteratorAt(position) => TestKind::IteratorAt(*position),
            GuardKind::Gives(gives) => TestKind::Gives(*gives),
            GuardKind::GeneratorAt(rests) => TestKind::GeneratorAt(*rests),
            GuardKind::NoTensorHooks => TestKind::NoTensorHooks,
            &GuardKind::Place { is_leaf, view } => TestKind::Place(tensor::Place { is_leaf, view }),
            GuardKind::MethodOf { made_from, .. } => TestKind::MethodOf(*made_from),
            GuardKind::CellEmpty => TestKind::FieldEmpty(Field::CellContents),
            GuardKind::NoDefaults => TestKind::FieldEmpty(Field::Defaults),
            GuardKind::NoKwDefaults => TestKind::FieldEmpty(Field::KwDefaults),
            GuardKind::NoInstanceDict => TestKind::NoInstanceDict,
            GuardKind::Tensor(tensor) => {
                TestKind::Tensor(self.address(tensor.python_type)?, tensor.clone())
            }
            GuardKind::SameAs(other) => TestKind::Same(self.step(*other)?),
            GuardKind::TokenOf(variable) => TestKind::TokenOf(self.step(*variable)?),
            GuardKind::Distinct(others) => {
                TestKind::Distinct(others.iter().map(|id| self.step(*id)).collect::<PyResult<_>>()?)
            }
            GuardKind::GlobalState(_)
            | GuardKind::AbstractClasses(_)
            | GuardKind::Accelerator(_)
            | GuardKind::Symbolic { .. } => {
                unreachable!("compiled apart")
            }
        })
    }
}
