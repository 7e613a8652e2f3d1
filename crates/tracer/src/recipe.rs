//! Recipes: how the objects that a traced call left behind are made again after a replay.
//!
//! A recipe says where a value comes from: an output of the graph, an outside object, a constant,
//! or a new object made of other recipes. [`Recipes`] holds all recipes of one state (a return
//! value; at a break stack, locals and pending writes), so that what was one object is one object
//! again: a recipe is made at most once in a rebuild, and cycles are allowed wherever Python
//! allows them.
//!
//! Rebuilding runs no code of the user's:
//! * instances are made by the `__new__` of their C base class ([`Storage`]), never by the class;
//! * attributes go straight into the instance dictionary, slots through their member descriptors,
//!   items through the methods of the C base class;
//! * dict keys and set elements are hashed, so the tracer only records those whose `__hash__` and
//!   `__eq__` are C functions ([`Recipe::Dict`]).
//!
//! Making happens in two rounds: mutable objects are first made empty, then filled, in the order
//! in which they were met. So recursion goes through immutable containers only, whose depth the
//! program that was traced went through as well.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use pyo3::exceptions::PyBaseException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyCFunction, PyDict, PyFrozenSet, PyFunction, PyList, PySet, PyString, PyTuple, PyType,
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use stator_cpython::code::Code;
use stator_cpython::generator::{self, Place};
use stator_cpython::heap::context;
use stator_cpython::heap::dict::{self, Lookup};
use stator_cpython::heap::set_table::Table;
use stator_cpython::heap::types;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::vectorcall::instance_dict;
use stator_cpython::{modules, ops, reduced};
use stator_graph::{Arg, Graph, NodeId};
use stator_guards::{ObjectId, refused};

pub mod instances;
mod parts;
#[cfg(test)]
mod tests;
mod view;

pub use parts::Parts;
pub use view::View;

/// A recipe's place in its [`Recipes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecipeId(u32);

impl RecipeId {
    /// The place as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How one object is made. Containers name the recipes of what they hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Recipe {
    /// An output of the graph, by position.
    Output(u32),
    /// An outside object, by position among those that the caller resolves and hands in.
    Source(u32),
    /// An object of the tracer's table.
    Constant(ObjectId),
    /// An exact list.
    List(Box<[RecipeId]>),
    /// An exact tuple.
    Tuple(Box<[RecipeId]>),
    /// An instance of a Python class on top of `tuple` (a named tuple).
    TupleOf {
        /// The class.
        class: ObjectId,
        /// Its elements.
        items: Box<[RecipeId]>,
    },
    /// An exact dict. Keys have `__hash__` and `__eq__` written in C.
    Dict(Box<[(RecipeId, RecipeId)]>),
    /// An exact set. Elements: as the keys of a dict.
    Set(Box<[RecipeId]>),
    /// An exact frozenset. Elements: as the keys of a dict.
    FrozenSet(Box<[RecipeId]>),
    /// A set or frozenset, made of its elements, with a table that tells of its history: that decides the order.
    Table(RecipeId, #[serde(with = "refused")] Box<Table>),
    /// The result of a C class or function that only stores what it is given, and whose arguments are known before it
    /// is (`slice`, `functools.partial`, `types.MethodType`, `torch.Size`, a struct sequence).
    Call {
        /// The class or function.
        callable: ObjectId,
        /// Its arguments.
        args: Box<[RecipeId]>,
    },
    /// A token that `ContextVar.set` gives.
    Token {
        /// The variable.
        variable: RecipeId,
        /// What it is set to.
        value: RecipeId,
        /// The token of the `set` before it, which is made first: this one goes back to what that has set.
        before: Option<RecipeId>,
    },
    /// An instance of any other class.
    Object(Box<Instance>),
    /// The instance dictionary of an object that is made as well.
    InstanceDict(RecipeId),
    /// A closure cell; `None`: an empty one.
    Cell(Option<RecipeId>),
    /// A Python function.
    Function(Box<Function>),
    /// An object made in another way, with entries of its instance dictionary.
    Attributed {
        /// The object.
        object: RecipeId,
        /// What its instance dictionary holds, in order.
        attributes: Vec<(ObjectId, RecipeId)>,
    },
    /// What a builtin type's `__reduce__` says: the callable, its arguments, and what
    /// `__setstate__` gets.
    Reduced {
        /// The class or function.
        callable: ObjectId,
        /// Its arguments.
        args: Box<[RecipeId]>,
        /// The state.
        state: Option<RecipeId>,
    },
    /// A generator that stands still.
    Generator(#[serde(with = "refused")] Box<Generator>),
    /// A view of a dictionary, or an iterator over a dictionary or set that has passed some entries.
    View {
        /// Which.
        view: View,
        /// The dictionary or set.
        container: RecipeId,
        /// How many entries an iterator has passed.
        passed: usize,
    },
}

/// A Python function that the traced program made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Function {
    /// The code object.
    pub code: ObjectId,
    /// Globals, name, defaults and closure: the arguments of `types.FunctionType`.
    pub args: Box<[RecipeId]>,
    /// What is set afterwards.
    pub attributes: Vec<(ObjectId, RecipeId)>,
}

/// A generator of a Python function.
#[derive(Clone, Debug)]
pub struct Generator {
    /// The function.
    pub function: RecipeId,
    /// Where it stands.
    pub place: Place,
    /// Its fast locals, then its stack; `None`: unbound, or a `NULL`.
    pub slots: Box<[Option<RecipeId>]>,
}

/// An instance of a Python class.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Instance {
    /// The class.
    pub class: ObjectId,
    /// Where the class keeps items.
    pub storage: Storage,
    /// What the storage holds.
    pub items: Items,
    /// The instance dictionary, in order. Empty: it isn't touched.
    pub attributes: Vec<(ObjectId, RecipeId)>,
    /// Slots by their member descriptors. Those that were never set aren't named.
    pub slots: Vec<(ObjectId, RecipeId)>,
}

/// What the C part of an instance holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub enum Items {
    /// Nothing.
    #[default]
    None,
    /// Elements of a list or a set.
    Elements(Vec<RecipeId>),
    /// Entries of a dict, in order.
    Entries(Vec<(RecipeId, RecipeId)>),
    /// Elements of a deque, and how many it may hold.
    Bounded(Vec<RecipeId>, RecipeId),
}

/// The C class below a Python class: it makes the instance and holds its items. The order is that
/// of [`Storage::ALL`] and of the tables in [`Classes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    /// `object`: nothing but attributes and slots.
    Plain,
    /// `dict`
    Dict,
    /// `collections.OrderedDict`, which keeps its order apart from the dict's.
    OrderedDict,
    /// `collections.defaultdict`; its factory is a slot.
    DefaultDict,
    /// `list`
    List,
    /// `set`
    Set,
    /// `collections.deque`
    Deque,
    /// `BaseException`; what its C part holds is said as slots.
    Exception,
}

impl Storage {
    const ALL: [Self; 8] = [
        Self::Plain,
        Self::Dict,
        Self::OrderedDict,
        Self::DefaultDict,
        Self::List,
        Self::Set,
        Self::Deque,
        Self::Exception,
    ];

    /// The storage of a class: the first class of its resolution order that this table knows,
    /// provided that every class before it is a Python class. `None` if instances can't be made
    /// without running unknown code.
    ///
    /// # Errors
    /// If the standard library lacks one of the classes.
    pub fn of(class: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let py = class.py();
        for base in class.mro().iter() {
            for storage in Self::ALL {
                if storage.class(py)?.is(&base) {
                    return Ok(Some(storage));
                }
            }
            if !is_python_class(base.cast::<PyType>()?) {
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn class<'py>(self, py: Python<'py>) -> PyResult<&'py Bound<'py, PyAny>> {
        Ok(Classes::get(py)?.classes[self as usize].bind(py))
    }

    /// Whether it's this class itself, and no Python class above it.
    pub fn is_of(self, class: Borrowed<'_, '_>) -> bool {
        self.class(class.py()).is_ok_and(|own| own.is(&*class))
    }

    fn make<'py>(self, class: Borrowed<'_, 'py>) -> PyResult<Object<'py>> {
        let py = class.py();
        Classes::get(py)?.news[self as usize].bind(py).call1((class,))
    }
}

/// The C classes' own functions, looked up once.
struct Classes {
    /// The class of each [`Storage`].
    classes: [Py<PyAny>; Storage::ALL.len()],
    /// Their `__new__`.
    news: [Py<PyAny>; Storage::ALL.len()],
    tuple_new: Py<PyAny>,
    ordered_set_item: Py<PyAny>,
    deque_init: Py<PyAny>,
    cell: Py<PyAny>,
    function: Py<PyAny>,
}

impl Classes {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
        CLASSES.get_or_try_init(py, || Self::find(py))
    }

    fn find(py: Python<'_>) -> PyResult<Self> {
        let collections = modules::import(py, "collections")?;
        let ordered = collections.getattr("OrderedDict")?;
        let classes = [
            py.get_type::<PyAny>().into_any(),
            py.get_type::<PyDict>().into_any(),
            ordered.clone(),
            collections.getattr("defaultdict")?,
            py.get_type::<PyList>().into_any(),
            py.get_type::<PySet>().into_any(),
            collections.getattr("deque")?,
            py.get_type::<PyBaseException>().into_any(),
        ];
        let new = |class: &Bound<'_, PyAny>| class.getattr("__new__").map(Bound::unbind);
        let news = classes.iter().map(new).collect::<PyResult<Vec<_>>>()?;
        Ok(Self {
            classes: classes.map(Bound::unbind),
            news: news.try_into().expect("one for each class"),
            tuple_new: new(&py.get_type::<PyTuple>())?,
            deque_init: collections.getattr("deque")?.getattr("__init__")?.unbind(),
            ordered_set_item: ordered.getattr("__setitem__")?.unbind(),
            cell: modules::import(py, "types")?.getattr("CellType")?.unbind(),
            function: py.get_type::<PyFunction>().into_any().unbind(),
        })
    }
}

/// Whether a class was made by a `class` statement, as far as making its instances is concerned: a
/// heap type without a `__new__` of C code. (C libraries make heap types too, but those with
/// fields of their own bring their own `__new__`.)
fn is_python_class(class: &Bound<'_, PyType>) -> bool {
    let name = intern!(class.py(), "__new__").as_any().as_borrowed();
    let is_of_c = |new: Lookup<'_>| match new {
        Lookup::Found(new) => new.is_exact_instance_of::<PyCFunction>(),
        Lookup::Absent => false,
        Lookup::Refused => true,
    };
    types::is_heap(class.as_borrowed())
        && types::class_dict(class.as_borrowed())
            .is_some_and(|own| !is_of_c(dict::get(own.as_borrowed(), name)))
}

/// The recipes of one state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recipes {
    recipes: Vec<Recipe>,
}

impl Recipes {
    /// No recipes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a recipe.
    ///
    /// # Panics
    /// If there are more than 2^32.
    pub fn push(&mut self, recipe: Recipe) -> RecipeId {
        self.recipes.push(recipe);
        RecipeId(u32::try_from(self.recipes.len() - 1).expect("recipes fit into 32 bits"))
    }

    /// A recipe that will be said later, for an object that may hold itself.
    pub fn reserve(&mut self) -> RecipeId {
        self.push(Recipe::Tuple(Box::default()))
    }

    /// Says a reserved recipe.
    pub fn set(&mut self, id: RecipeId, recipe: Recipe) {
        self.recipes[id.0 as usize] = recipe;
    }

    /// All of them, in order.
    pub fn ids(&self) -> impl Iterator<Item = RecipeId> {
        (0..self.recipes.len() as u32).map(RecipeId)
    }

    /// A recipe.
    pub fn get(&self, id: RecipeId) -> &Recipe {
        &self.recipes[id.0 as usize]
    }

    /// The number of recipes.
    pub fn len(&self) -> usize {
        self.recipes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.recipes.is_empty()
    }

    /// Makes the objects of `roots`, each object once.
    ///
    /// # Errors
    /// `TypeError` where an instance can't be made, `MemoryError`, or what hashing raises.
    pub fn rebuild<'py>(
        &self,
        py: Python<'py>,
        roots: &[RecipeId],
        values: &Values<'_, 'py>,
    ) -> PyResult<SmallVec<[Object<'py>; 4]>> {
        self.rebuilding(py, values).all(roots)
    }

    /// Makes objects in several steps: what one step has made, the next ones share.
    pub fn rebuilding<'a, 'py>(
        &'a self,
        py: Python<'py>,
        values: &'a Values<'a, 'py>,
    ) -> Rebuild<'a, 'py> {
        let made = smallvec::smallvec![None; self.recipes.len()];
        Rebuild { recipes: self, py, values, made, unfilled: VecDeque::new() }
    }

    /// The recipes of `roots`, and of what is in them, each once. One that isn't there isn't looked into.
    pub fn below(&self, roots: &[RecipeId]) -> Vec<RecipeId> {
        let mut seen: FxHashSet<RecipeId> = FxHashSet::default();
        let mut left: Vec<RecipeId> = roots.to_vec();
        let mut found = Vec::new();
        while let Some(id) = left.pop() {
            if seen.insert(id) {
                found.push(id);
                let recipe = self.recipes.get(id.index());
                left.extend(recipe.into_iter().flat_map(|recipe| recipe.parts().recipes));
            }
        }
        found
    }

    /// Whether an object of `roots` is, or holds, an iterator over one of `containers`: it is made at
    /// its position, so what it iterates over has to be what it was at the end of the call.
    pub fn iterate_over(&self, roots: &[RecipeId], containers: &FxHashSet<RecipeId>) -> bool {
        if containers.is_empty() {
            return false;
        }
        let mut seen: FxHashSet<RecipeId> = roots.iter().copied().collect();
        let mut left: Vec<RecipeId> = roots.to_vec();
        while let Some(id) = left.pop() {
            let recipe = self.get(id);
            let iterates = match recipe {
                Recipe::Reduced { args, .. } => args.iter().any(|arg| containers.contains(arg)),
                Recipe::View { view, container, .. } => {
                    view.is_iterator() && containers.contains(container)
                }
                _ => false,
            };
            if iterates {
                return true;
            }
            left.extend(recipe.parts().recipes.into_iter().filter(|part| seen.insert(*part)));
        }
        false
    }
}

/// What a rebuild starts from.
#[derive(Clone, Copy)]
pub struct Values<'a, 'py> {
    /// What the graph handed back.
    pub outputs: &'a [Object<'py>],
    /// Outside objects, resolved for this call.
    pub sources: &'a [Borrowed<'a, 'py>],
    /// The tracer's table.
    pub objects: &'a [Py<PyAny>],
}

/// Collects the nodes that recipes need, as outputs of the graph, each once.
#[derive(Clone, Debug, Default)]
pub struct GraphOutputs {
    positions: FxHashMap<NodeId, u32>,
    nodes: Vec<Arg>,
}

impl GraphOutputs {
    /// The recipe of a node's value.
    pub fn recipe(&mut self, node: NodeId) -> Recipe {
        let next = u32::try_from(self.nodes.len()).expect("outputs fit into 32 bits");
        let position = *self.positions.entry(node).or_insert_with(|| {
            self.nodes.push(Arg::Node(node));
            next
        });
        Recipe::Output(position)
    }

    /// The nodes.
    pub fn nodes(&self) -> &[Arg] {
        &self.nodes
    }

    /// Makes them the outputs of the graph.
    pub fn set(&self, graph: &mut Graph) {
        graph.set_outputs(&self.nodes);
    }
}

/// Objects in the making: [`Recipes::rebuilding`].
pub struct Rebuild<'a, 'py> {
    recipes: &'a Recipes,
    py: Python<'py>,
    values: &'a Values<'a, 'py>,
    /// What was made so far, by recipe.
    made: SmallVec<[Option<Object<'py>>; 8]>,
    /// Objects that were made empty.
    unfilled: VecDeque<RecipeId>,
}

impl<'py> Rebuild<'_, 'py> {
    /// Makes the objects of `roots`, each object once, and what is in them.
    ///
    /// # Errors
    /// As of [`Recipes::rebuild`].
    pub fn all(&mut self, roots: &[RecipeId]) -> PyResult<SmallVec<[Object<'py>; 4]>> {
        let objects = roots.iter().map(|&root| self.make(root)).collect::<PyResult<_>>()?;
        while let Some(id) = self.unfilled.pop_front() {
            self.fill(id)?;
        }
        Ok(objects)
    }

    fn make(&mut self, id: RecipeId) -> PyResult<Object<'py>> {
        if let Some(made) = &self.made[id.0 as usize] {
            return Ok(made.clone());
        }
        let (made, is_empty) = self.make_new(id)?;
        self.made[id.0 as usize] = Some(made.clone());
        if is_empty {
            self.unfilled.push_back(id);
        }
        Ok(made)
    }

    /// The object, and whether it is still to be filled.
    fn make_new(&mut self, id: RecipeId) -> PyResult<(Object<'py>, bool)> {
        let py = self.py;
        let object = match self.recipes.get(id) {
            Recipe::Output(position) => self.values.outputs[*position as usize].clone(),
            Recipe::Source(position) => self.values.sources[*position as usize].to_owned(),
            Recipe::Constant(object) => self.object(*object).to_owned(),
            Recipe::Tuple(items) => self.tuple(items)?.into_any(),
            Recipe::TupleOf { class, items } => {
                let items = self.tuple(items)?;
                Classes::get(py)?.tuple_new.bind(py).call1((self.object(*class), items))?
            }
            Recipe::FrozenSet(items) => {
                let items = self.tuple(items)?;
                py.get_type::<PyFrozenSet>().call1((items,))?
            }
            Recipe::Call { callable, args } => {
                let args = self.tuple(args)?;
                self.object(*callable).call1(args)?
            }
            Recipe::Token { variable, value, before } => {
                before.map(|before| self.make(before)).transpose()?;
                let (variable, value) = (self.make(*variable)?, self.make(*value)?);
                context::set(variable.as_borrowed(), value.as_borrowed())
                    .map_err(|raised| raised.take(py))?
            }
            Recipe::Attributed { object, .. } | Recipe::Table(object, _) => {
                return Ok((self.make(*object)?, true));
            }
            Recipe::InstanceDict(owner) => {
                instance_dict(self.make(*owner)?.as_borrowed())?.into_any()
            }
            Recipe::Cell(_) => {
                return Ok((Classes::get(py)?.cell.bind(py).call0()?, true));
            }
            Recipe::Function(function) => {
                let parts = self.tuple(&function.args)?;
                if let Some(half_made) = self.half_made(function, &parts)? {
                    return Ok((half_made, true));
                }
                let args = [self.object(function.code).to_owned()].into_iter().chain(parts.iter());
                let args = PyTuple::new(py, args.collect::<Vec<_>>())?;
                return Ok((Classes::get(py)?.function.bind(py).call1(args)?, true));
            }
            Recipe::Generator(generator) => {
                let function = self.make(generator.function)?;
                let _native = Suspended::new(py);
                return Ok((generator::make(function.as_borrowed())?, true));
            }
            Recipe::Reduced { callable, args, state } => {
                let made = self.tuple(args)?;
                // An iterator's position can't be beyond the end of what it iterates over.
                args.iter().try_for_each(|&arg| self.finish(arg))?;
                let made = self.object(*callable).call1(made)?;
                if let Some(state) = state {
                    reduced::set_state(made.as_borrowed(), &self.make(*state)?)?;
                }
                made
            }
            Recipe::View { view, container, passed } => {
                let made = self.make(*container)?;
                // An iterator knows the size that its container had when it was made.
                self.finish(*container)?;
                view.make(&made, *passed)?
            }
            Recipe::List(_) => return Ok((PyList::empty(py).into_any(), true)),
            Recipe::Dict(_) => return Ok((PyDict::new(py).into_any(), true)),
            Recipe::Set(_) => return Ok((PySet::empty(py)?.into_any(), true)),
            Recipe::Object(instance) => {
                return Ok((instance.storage.make(self.object(instance.class))?, true));
            }
        };
        Ok((object, false))
    }

    fn tuple(&mut self, items: &[RecipeId]) -> PyResult<Bound<'py, PyTuple>> {
        let items: SmallVec<[Object<'py>; 8]> =
            items.iter().map(|&item| self.make(item)).collect::<PyResult<_>>()?;
        PyTuple::new(self.py, items)
    }

    fn object(&self, id: ObjectId) -> Borrowed<'_, 'py> {
        self.values.objects[id.index()].bind_borrowed(self.py)
    }

    /// Fills an object at once, if it's still empty.
    fn finish(&mut self, id: RecipeId) -> PyResult<()> {
        match self.unfilled.iter().position(|unfilled| *unfilled == id) {
            Some(at) => {
                self.unfilled.remove(at);
                self.fill(id)
            }
            None => Ok(()),
        }
    }

    fn fill(&mut self, id: RecipeId) -> PyResult<()> {
        let recipes = self.recipes;
        let object = self.made[id.0 as usize].clone().expect("only what was made is filled");
        match recipes.get(id) {
            Recipe::List(items) => self.fill_list(&object, items),
            Recipe::Set(items) => self.fill_set(&object, items),
            Recipe::Table(set, table) => {
                self.finish(*set)?;
                // Tensors are hashed by addresses: in plain Python as well they come in any order.
                let _ = table.lay_out(object.as_borrowed());
                Ok(())
            }
            Recipe::Dict(entries) => self.fill_dict(&object, entries),
            Recipe::Object(instance) => self.fill_instance(&object, instance),
            Recipe::Attributed { attributes, .. } => self.fill_attributes(&object, attributes),
            Recipe::Cell(contents) => match contents {
                Some(contents) => object.setattr("cell_contents", self.make(*contents)?),
                None => Ok(()),
            },
            Recipe::Function(function) => {
                function.attributes.iter().try_for_each(|&(name, value)| {
                    let value = self.make(value)?;
                    object.setattr(self.object(name).cast::<PyString>()?, value)
                })
            }
            Recipe::Generator(generator) => {
                let slots = generator.slots.iter();
                let slots = slots.map(|slot| slot.map(|slot| self.make(slot)).transpose());
                generator::restore(&object, generator.place, slots.collect::<PyResult<Vec<_>>>()?)
            }
            _ => unreachable!("immutable objects are made whole"),
        }
    }

    /// A function that has not got its closure yet, as it stands between two instructions of CPython 3.13.
    fn half_made(
        &self,
        function: &Function,
        parts: &Bound<'py, PyTuple>,
    ) -> PyResult<Option<Object<'py>>> {
        let code = self.object(function.code);
        let (globals, closure) = (parts.get_item(0)?, parts.get_item(3)?);
        let has_free = || Code::of(code).is_some_and(|code| code.nfreevars() > 0);
        if !closure.is_none() || !has_free() || !globals.is_instance_of::<PyDict>() {
            return Ok(None);
        }
        let made = ops::bare_function(code, globals.as_borrowed());
        let made = made.map_err(|raised| raised.take(self.py))?;
        made.setattr(intern!(self.py, "__name__"), parts.get_item(1)?)?;
        made.setattr(intern!(self.py, "__defaults__"), parts.get_item(2)?)?;
        Ok(Some(made))
    }

    // `append`, `add` and `set_item` of PyO3's types are the C API's functions: they work on
    // instances of subclasses and call no override.

    fn fill_list(&mut self, list: &Object<'py>, items: &[RecipeId]) -> PyResult<()> {
        let list = list.cast::<PyList>()?;
        items.iter().try_for_each(|&item| list.append(self.make(item)?))
    }

    fn fill_set(&mut self, set: &Object<'py>, items: &[RecipeId]) -> PyResult<()> {
        let set = set.cast::<PySet>()?;
        items.iter().try_for_each(|&item| set.add(self.make(item)?))
    }

    fn fill_dict(&mut self, dict: &Object<'py>, entries: &[(RecipeId, RecipeId)]) -> PyResult<()> {
        let dict = dict.cast::<PyDict>()?;
        for &(key, value) in entries {
            dict.set_item(self.make(key)?, self.make(value)?)?;
        }
        Ok(())
    }

    fn fill_instance(&mut self, object: &Object<'py>, instance: &Instance) -> PyResult<()> {
        match &instance.items {
            Items::None => {}
            Items::Elements(items) if instance.storage == Storage::List => {
                self.fill_list(object, items)?;
            }
            Items::Elements(items) => self.fill_set(object, items)?,
            Items::Entries(entries) if instance.storage == Storage::OrderedDict => {
                let set = Classes::get(self.py)?.ordered_set_item.bind(self.py);
                for &(key, value) in entries {
                    set.call1((object, self.make(key)?, self.make(value)?))?;
                }
            }
            Items::Entries(entries) => self.fill_dict(object, entries)?,
            Items::Bounded(items, limit) => {
                let items = self.tuple(items)?;
                let init = Classes::get(self.py)?.deque_init.bind(self.py);
                init.call1((object, items, self.make(*limit)?))?;
            }
        }
        for &(descriptor, value) in &instance.slots {
            let value = self.make(value)?;
            self.object(descriptor).getattr("__set__")?.call1((object, value))?;
        }
        self.fill_attributes(object, &instance.attributes)
    }

    fn fill_attributes(
        &mut self,
        object: &Object<'py>,
        attributes: &[(ObjectId, RecipeId)],
    ) -> PyResult<()> {
        if !attributes.is_empty() {
            let dict = instance_dict(object.as_borrowed())?;
            for &(name, value) in attributes {
                let value = self.make(value)?;
                dict.set_item(self.object(name), value)?;
            }
        }
        Ok(())
    }
}
