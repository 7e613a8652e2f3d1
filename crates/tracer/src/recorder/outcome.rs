//! From notes to a cache entry: runs the call, then turns its result into recipes.

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use stator_cpython::generic::WithoutGc;
use stator_cpython::hook::Active;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, ops};
use stator_graph::{Arg, Graph, NodeId};
use stator_guards::{GlobalState, Guard, GuardKind, ObjectId, Source, SourceId, Sources};

use super::kinds::Kind;
use super::look as heap;
use super::state::{Origin, State, Stop};
use super::{Recorder, Recording, recorder};
use crate::breaks::{Break, Reason};
use crate::evaluator::evaluate;
use crate::recipe::{Instance, Items, Recipe, RecipeId, Recipes, Storage};
use crate::rollback;

/// What came of a recorded call.
pub enum Outcome {
    /// A graph, its guards and how to rebuild the result.
    Traced(Box<Traced>),
    /// The trace ended before the call did.
    Broke(Break),
    /// The call raised; nothing was recorded.
    Raised,
}

/// A finished trace.
pub struct Traced {
    /// Sources.
    pub sources: Sources,
    /// Guards.
    pub guards: Vec<Guard>,
    /// Objects of guards and recipes.
    pub objects: Vec<Py<PyAny>>,
    /// The graph.
    pub graph: Graph,
    /// Objects of the graph.
    pub graph_objects: Vec<Py<PyAny>>,
    /// Sources of the graph's placeholders, in order.
    pub inputs: Vec<SourceId>,
    /// Sources that recipes refer to, in order.
    pub rebuilt: Vec<SourceId>,
    /// Recipes of the result.
    pub recipes: Recipes,
    /// The result's recipe.
    pub result: RecipeId,
    /// Code objects of places.
    pub codes: Vec<Py<PyAny>>,
    /// Places of guards: index of the code object and unit.
    pub locations: Vec<(u32, u32)>,
    /// Whether the call changed the data of an input.
    pub writes_inputs: bool,
    /// Random generators that the call advanced.
    pub generators: Vec<Py<PyAny>>,
    /// The objects that recipes need.
    pub kept: FxHashSet<ObjectId>,
    /// What a replay writes to outside dictionaries, in order.
    pub effects: Vec<Store>,
}

/// A write of a dictionary's slot.
pub struct Store {
    /// The dictionary's position among [`Traced::rebuilt`].
    pub dict: u32,
    /// The key.
    pub key: ObjectId,
    /// The value's recipe; `None` deletes.
    pub value: Option<RecipeId>,
}

/// Records a call of a Python function: executes it, once, and returns its result with what was
/// recorded. `global` is the state at entry.
///
/// # Errors
/// If the tables that recording needs can't be built.
pub fn record<'py>(
    function: Borrowed<'_, 'py>,
    args: Borrowed<'_, 'py>,
    kwargs: Option<Borrowed<'_, 'py>>,
    global: GlobalState,
    trace_log: bool,
) -> PyResult<(Result<Object<'py>>, Outcome)> {
    let py = function.py();
    let code = heap::function_code(function).map_or(0, |code| code.as_ptr() as usize);
    let recorder = recorder(py, code, trace_log)?;
    super::warm_up(py);
    {
        let mut state = recorder.state.borrow_mut();
        let source = state.sources.intern(Source::GlobalState);
        state.guard(source, GuardKind::GlobalState(Box::new(global)));
    }
    let generators = rollback::generators(py)?;
    let result = {
        let _recording = Recording::start(recorder.clone());
        let _gc = WithoutGc::new(py);
        let _active = Active::new(py, |py, frame, throw| match super::current() {
            Some(recorder) if !recorder.is_stopped() => evaluate(py, frame, throw, &*recorder),
            _ => stator_cpython::hook::default(py, frame, throw),
        });
        ops::call_ex(function, args, kwargs)
    };
    let mut outcome = match &result {
        Err(_) => Outcome::Raised,
        Ok(value) => recorder.finish(value.as_borrowed()),
    };
    if let Outcome::Traced(traced) = &mut outcome {
        traced.generators = rollback::advanced(py, generators)?;
        traced.generators.extend(rollback::explicit(py, &traced.graph_objects)?);
    }
    Ok((result, outcome))
}

impl Recorder {
    fn finish(&self, result: Borrowed<'_, '_>) -> Outcome {
        if let Some(stop) = self.stop.borrow_mut().take() {
            return Outcome::Broke(stop);
        }
        let state = self.state.replace(match State::with_room(result.py(), 0) {
            Ok(state) => state,
            Err(_) => return Outcome::Raised,
        });
        match Finish::run(state, result) {
            Ok(traced) => Outcome::Traced(Box::new(traced)),
            Err((reason, detail)) => Outcome::Broke(Break { reason, detail, stack: Vec::new() }),
        }
    }
}

struct Finish {
    state: State,
    recipes: Recipes,
    made: FxHashMap<usize, RecipeId>,
    outputs: Vec<Arg>,
    positions: FxHashMap<NodeId, u32>,
    rebuilt: Vec<SourceId>,
    kept: FxHashSet<ObjectId>,
}

type Made<T> = std::result::Result<T, Stop>;

impl Finish {
    fn run(state: State, result: Borrowed<'_, '_>) -> Made<Traced> {
        let py = result.py();
        let mut finish = Finish {
            state,
            recipes: Recipes::new(),
            made: FxHashMap::default(),
            outputs: Vec::new(),
            positions: FxHashMap::default(),
            rebuilt: Vec::new(),
            kept: FxHashSet::default(),
        };
        let result = finish.recipe(result)?;
        let effects = finish.effects(py)?;
        let Finish { mut state, recipes, outputs, rebuilt, kept, .. } = finish;
        state.graph.set_outputs(&outputs);
        debug_assert!(state.graph.verify().is_ok(), "{:?}", state.graph.verify());
        let writes_inputs = state.writes_inputs();
        state.guard_tensors_distinct();
        state.guard_written_distinct();
        state.sources.shrink_to_fit();
        state.guards.shrink_to_fit();
        state.locations.shrink_to_fit();
        Ok(Traced {
            sources: state.sources,
            guards: state.guards,
            objects: state.objects.into_inner(),
            graph: state.graph,
            graph_objects: state.graph_objects,
            inputs: state.inputs,
            rebuilt,
            recipes,
            result,
            codes: state.codes,
            locations: state.locations,
            writes_inputs,
            generators: Vec::new(),
            kept,
            effects,
        })
    }

    /// The last value of each slot that was written.
    fn effects(&mut self, py: Python<'_>) -> Made<Vec<Store>> {
        let effects = std::mem::take(&mut self.state.effects);
        let mut stores = Vec::with_capacity(effects.len());
        for effect in &effects {
            let (dict, key) = (effect.dict.bind_borrowed(py), effect.key.bind_borrowed(py));
            let position = u32::try_from(self.rebuilt.len()).expect("fewer than 2^32 sources");
            self.rebuilt.push(effect.source);
            let value = match heap::dict_get(dict, key) {
                Some(value) => Some(self.recipe(value.as_borrowed())?),
                None => None,
            };
            stores.push(Store { dict: position, key: self.keep(key), value });
        }
        self.state.effects = effects;
        Ok(stores)
    }

    /// An object that recipes need: the entry keeps it.
    fn keep(&mut self, object: Borrowed<'_, '_>) -> ObjectId {
        let id = self.state.object(object);
        self.kept.insert(id);
        id
    }

    fn recipe(&mut self, object: Borrowed<'_, '_>) -> Made<RecipeId> {
        let address = object.as_ptr() as usize;
        if let Some(&id) = self.made.get(&address) {
            return Ok(id);
        }
        let kind = self.state.kind(object);
        if kind == Kind::Constant {
            let id = self.keep(object);
            return Ok(self.recipes.push(Recipe::Constant(id)));
        }
        match self.state.origin(object) {
            Some(Origin::Source(source)) => {
                let position = u32::try_from(self.rebuilt.len()).expect("fewer than 2^32 sources");
                self.rebuilt.push(source);
                let id = self.recipes.push(Recipe::Source(position));
                self.made.insert(address, id);
                Ok(id)
            }
            Some(Origin::Node(node)) => {
                let next = u32::try_from(self.outputs.len()).expect("fewer than 2^32 outputs");
                let position = *self.positions.entry(node).or_insert(next);
                if position == next {
                    self.outputs.push(Arg::Node(node));
                }
                let id = self.recipes.push(Recipe::Output(position));
                self.made.insert(address, id);
                Ok(id)
            }
            Some(Origin::Fresh) => {
                let id = self.recipes.reserve();
                self.made.insert(address, id);
                let recipe = self.fresh(object, kind)?;
                self.recipes.set(id, recipe);
                Ok(id)
            }
            // A tuple out of a code object's constants.
            None if heap::is_constant(object) => {
                let id = self.keep(object);
                Ok(self.recipes.push(Recipe::Constant(id)))
            }
            None => {
                Err((Reason::UnknownOrigin, format!("a {} in the result", heap::type_name(object))))
            }
        }
    }

    fn all(&mut self, items: &[Object<'_>]) -> Made<Box<[RecipeId]>> {
        items.iter().map(|item| self.recipe(item.as_borrowed())).collect()
    }

    fn entries(&mut self, object: Borrowed<'_, '_>) -> Made<Vec<(RecipeId, RecipeId)>> {
        heap::dict_items(object)
            .iter()
            .map(|(key, value)| {
                let kind = self.state.kind(key.as_borrowed());
                let is_known = match kind {
                    Kind::Constant | Kind::Type | Kind::Singleton | Kind::Function => true,
                    Kind::Tuple => heap::is_constant(key.as_borrowed()),
                    _ => false,
                };
                if !is_known {
                    return Err((Reason::Result, "a dictionary with objects as keys".into()));
                }
                Ok((self.recipe(key.as_borrowed())?, self.recipe(value.as_borrowed())?))
            })
            .collect()
    }

    fn fresh(&mut self, object: Borrowed<'_, '_>, kind: Kind) -> Made<Recipe> {
        let py = object.py();
        let class = object.get_type();
        match kind {
            Kind::List => Ok(Recipe::List(self.all(&heap::list_items(object))?)),
            Kind::Tuple => {
                let items = self.all(&heap::tuple_items(object))?;
                if class.is(py.get_type::<pyo3::types::PyTuple>()) {
                    return Ok(Recipe::Tuple(items));
                }
                let id = self.keep(class.as_any().as_borrowed());
                if is_struct_sequence(&class) {
                    let inner = self.recipes.push(Recipe::Tuple(items));
                    return Ok(Recipe::Call { callable: id, args: Box::new([inner]) });
                }
                Ok(Recipe::TupleOf { class: id, items })
            }
            Kind::Dict if class.is(py.get_type::<pyo3::types::PyDict>()) => {
                Ok(Recipe::Dict(self.entries(object)?.into()))
            }
            Kind::Set => Ok(Recipe::Set(self.all(&heap::set_items(object))?)),
            Kind::FrozenSet => Ok(Recipe::FrozenSet(self.all(&heap::set_items(object))?)),
            Kind::Method => {
                let (function, receiver) = heap::method_parts(object);
                let args = self.all(&[function, receiver])?;
                let callable = self.keep(class.as_any().as_borrowed());
                Ok(Recipe::Call { callable, args })
            }
            Kind::Dict | Kind::Object => self.instance(object),
            _ => Err((Reason::Result, heap::type_name(object))),
        }
    }

    fn instance(&mut self, object: Borrowed<'_, '_>) -> Made<Recipe> {
        let class = object.get_type();
        let refuse = || (Reason::Result, heap::type_name(object));
        let storage = Storage::of(&class).ok().flatten().ok_or_else(refuse)?;
        let items = match storage {
            Storage::Dict | Storage::OrderedDict | Storage::DefaultDict => {
                Items::Entries(self.entries(object)?)
            }
            Storage::Plain => Items::None,
            Storage::List | Storage::Set => return Err(refuse()),
        };
        let mut attributes = Vec::new();
        if let Some(dict) = heap::instance_dict(object) {
            for (name, value) in heap::dict_items(dict.as_borrowed()) {
                let name = self.keep(name.as_borrowed());
                attributes.push((name, self.recipe(value.as_borrowed())?));
            }
        }
        let mut slots = Vec::new();
        for (descriptor, value) in heap::slot_values(object) {
            let descriptor = self.keep(descriptor.as_borrowed());
            slots.push((descriptor, self.recipe(value.as_borrowed())?));
        }
        let class = self.keep(class.as_any().as_borrowed());
        Ok(Recipe::Object(Box::new(Instance { class, storage, items, attributes, slots })))
    }
}

/// `torch.return_types.max` and such: C classes over tuples that are made from one sequence.
fn is_struct_sequence(class: &Bound<'_, pyo3::types::PyType>) -> bool {
    class.getattr("n_sequence_fields").is_ok()
}
