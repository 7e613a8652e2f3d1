//! The stored form of a trace: bytes without an object in them, and the objects beside.
//!
//! What a trace says of the program (sources, guards, graph, recipes, writes) is data, and is written as
//! such. The objects that it names are handed out as lists; how they are found again in another process is
//! the caller's to say. A trace that is made of both is verified, and its guards are checked at each call as
//! any other's.
//!
//! Not all traces have a stored form: one that ends at a graph break or has ways out of its middle stands on
//! frames, and some facts are addresses. [`store`] says what it is that can't be stored.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyType, PyWeakrefMethods, PyWeakrefReference};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use stator_graph::{Graph, StackId};
use stator_guards::{
    Fact, GlobalState, Guard, GuardKind, ObjectId, Source, SourceId, Sources, Value,
};

use crate::callers::Callers;
use crate::check::read_global_state;
use crate::effects::Store;
use crate::emission::Emission;
use crate::profit::Work;
use crate::recipe::{RecipeId, Recipes};
use crate::symbolic::Symbolic;
use crate::trace::{Ending, ModuleCall, Traced};

/// Goes up with each change of what is written. A form with another number isn't read.
pub const VERSION: u32 = 1;

/// A trace as it is stored.
#[derive(FromPyObject, IntoPyObject)]
#[pyo3(from_item_all)]
pub struct Stored {
    /// What the trace says.
    pub data: Vec<u8>,
    /// The objects that its guards and recipes name; `None` where none is needed.
    pub objects: Vec<Option<Py<PyAny>>>,
    /// Those that its graph names.
    pub graph_objects: Vec<Py<PyAny>>,
    /// Its code objects, and the global variables that each is evaluated with.
    pub codes: Vec<(Py<PyAny>, Py<PyAny>)>,
    /// The classes of the modules that it calls.
    pub classes: Vec<Py<PyAny>>,
    /// The random generators that it advances.
    pub generators: Vec<Py<PyAny>>,
}

/// All of a trace that isn't an object.
#[derive(Serialize, Deserialize)]
struct Data {
    version: u32,
    sources: Vec<Source>,
    entry: Option<SourceId>,
    /// But for those on global state, which follow.
    guards: Vec<Guard>,
    states: Vec<State>,
    graph: Graph,
    inputs: Vec<SourceId>,
    rebuilt: Vec<SourceId>,
    recipes: Recipes,
    result: RecipeId,
    locations: Vec<(u32, u32)>,
    module_calls: Vec<(StackId, SourceId)>,
    writes_inputs: bool,
    written: Vec<u32>,
    /// As [`Traced::plain_withs`], with numbers of code objects.
    plain_withs: Vec<(u32, usize)>,
    kept: Vec<ObjectId>,
    effects: Vec<Store>,
    ending_last: Option<Box<[RecipeId]>>,
    first_effect: Option<usize>,
    emissions: Vec<Emission>,
    known_lists: Box<[u32]>,
    symbolic: Option<Box<Symbolic>>,
    locks: Box<[u32]>,
    asked: Option<bool>,
    work: Work,
}

/// A guard on global state. Names of facts belong to the process.
#[derive(Serialize, Deserialize)]
struct State {
    source: SourceId,
    location: Option<u32>,
    facts: Vec<(String, Value)>,
}

/// Stores a trace. `mentioned` gives the objects that its guards speak of: a table doesn't keep them.
///
/// # Errors
/// What of the trace can't be stored.
pub fn store(
    py: Python<'_>,
    traced: &Traced,
    mentioned: impl Fn(ObjectId) -> Option<Py<PyAny>>,
) -> Result<Stored, String> {
    let Ending::Return(result) = traced.ending else {
        return Err("it ends at a graph break".into());
    };
    if !traced.exits.is_empty() {
        return Err("data decides in it how the program goes on".into());
    }
    if traced.begins.is_some() {
        return Err("it begins behind a graph break".into());
    }
    if traced.draws.is_some() {
        return Err("it draws random numbers of Python's".into());
    }
    if let Some(what) = traced.of_process {
        return Err(what.into());
    }
    let (states, guards): (Vec<_>, Vec<_>) =
        traced.guards.iter().partition(|guard| matches!(guard.kind, GuardKind::GlobalState(_)));
    let codes = traced.callers.codes();
    let plain_withs = traced.plain_withs.iter().filter_map(|(code, unit)| {
        let number = codes.iter().position(|known| known.as_ptr() as usize == *code)?;
        Some((u32::try_from(number).ok()?, *unit))
    });
    let data = Data {
        version: VERSION,
        sources: traced.sources.iter().map(|(_, source)| source.clone()).collect(),
        entry: traced.sources.entry(),
        guards: guards.into_iter().cloned().collect(),
        states: states.into_iter().filter_map(State::of).collect(),
        graph: traced.graph.clone(),
        inputs: traced.inputs.clone(),
        rebuilt: traced.rebuilt.clone(),
        recipes: traced.recipes.clone(),
        result,
        locations: traced.locations.clone(),
        module_calls: traced.module_calls.iter().map(|call| (call.stack, call.source)).collect(),
        writes_inputs: traced.writes_inputs,
        written: traced.written.clone(),
        plain_withs: plain_withs.collect(),
        kept: traced.kept.iter().copied().collect(),
        effects: traced.effects.clone(),
        ending_last: traced.ending_last.clone(),
        first_effect: traced.first_effect,
        emissions: traced.emissions.clone(),
        known_lists: traced.known_lists.clone(),
        symbolic: traced.symbolic.clone(),
        locks: traced.locks.clone(),
        asked: traced.asked,
        work: traced.work,
    };
    let object = |index: usize| {
        let id = ObjectId::new(index);
        let kept = traced.kept.contains(&id).then(|| traced.objects[index].clone_ref(py));
        kept.or_else(|| mentioned(id))
    };
    let class = |call: &ModuleCall| {
        let class = call.class.bind(py).upgrade();
        class.map(|class| class.unbind()).ok_or("a class of its modules is gone")
    };
    Ok(Stored {
        data: postcard::to_stdvec(&data)
            .map_err(|_| "it relies on what each process has of its own")?,
        objects: (0..traced.objects.len()).map(object).collect(),
        graph_objects: traced.graph_objects.iter().map(|object| object.clone_ref(py)).collect(),
        codes: traced.callers.pairs(py),
        classes: traced.module_calls.iter().map(class).collect::<Result<_, _>>()?,
        generators: traced.generators.iter().map(|object| object.clone_ref(py)).collect(),
    })
}

/// Makes a trace of its stored form.
///
/// # Errors
/// [`PyValueError`] for bytes that aren't one, or that don't fit to the objects.
pub fn restore(py: Python<'_>, stored: Stored) -> PyResult<Traced> {
    let wrong = |what: String| PyValueError::new_err(format!("this is no stored trace: {what}"));
    let data: Data =
        postcard::from_bytes(&stored.data).map_err(|error| wrong(error.to_string()))?;
    if data.version != VERSION {
        return Err(wrong(format!("its form has version {}, not {VERSION}", data.version)));
    }
    let sources = Sources::restored(data.sources, data.entry)
        .ok_or_else(|| wrong("a source comes before its parent".into()))?;
    let mut guards = data.guards;
    for state in data.states {
        guards.push(state.guard(py)?.ok_or_else(|| wrong("of another PyTorch".into()))?);
    }
    let (codes, globals): (Vec<_>, Vec<_>) = stored.codes.into_iter().unzip();
    let withs = data.plain_withs.iter();
    let withs: Option<_> = withs
        .map(|(code, unit)| Some((codes.get(*code as usize)?.as_ptr() as usize, *unit)))
        .collect();
    let classes = stored
        .classes
        .iter()
        .map(|class| Ok(PyWeakrefReference::new(class.bind(py).cast::<PyType>()?)?.unbind()));
    let classes = classes.collect::<PyResult<Vec<_>>>()?;
    if classes.len() != data.module_calls.len() {
        return Err(wrong("classes of modules are missing".into()));
    }
    let calls = data.module_calls.into_iter().zip(classes);
    let none = || py.None();
    let traced = Traced {
        sources,
        guards,
        objects: stored.objects.into_iter().map(|object| object.unwrap_or_else(none)).collect(),
        graph: data.graph,
        graph_objects: stored.graph_objects,
        inputs: data.inputs,
        rebuilt: data.rebuilt,
        recipes: data.recipes,
        ending: Ending::Return(data.result),
        exits: Vec::new(),
        exit_recipes: Recipes::new(),
        begins: None,
        left: Box::default(),
        callers: Arc::new(Callers::new(codes, globals)),
        locations: data.locations,
        module_calls: calls
            .map(|((stack, source), class)| ModuleCall { stack, source, class })
            .collect(),
        writes_inputs: data.writes_inputs,
        written: data.written,
        plain_withs: withs.ok_or_else(|| wrong("a code object is missing".into()))?,
        generators: stored.generators,
        kept: data.kept.into_iter().collect::<FxHashSet<_>>(),
        effects: data.effects,
        ending_last: data.ending_last,
        first_effect: data.first_effect,
        emissions: data.emissions,
        known_lists: data.known_lists,
        // What prints has a way out.
        prints: false,
        symbolic: data.symbolic,
        locks: data.locks,
        draws: None,
        asked: data.asked,
        of_process: None,
        work: data.work,
    };
    traced.verify().map_err(wrong)?;
    Ok(traced)
}

impl State {
    fn of(guard: &Guard) -> Option<Self> {
        let GuardKind::GlobalState(state) = &guard.kind else { return None };
        let facts = state.facts.iter().map(|fact| (fact.name.to_owned(), fact.value.clone()));
        Some(Self { source: guard.source, location: guard.location, facts: facts.collect() })
    }

    /// The guard, with this process's names; `None` if it knows other facts.
    fn guard(self, py: Python<'_>) -> PyResult<Option<Guard>> {
        let known = read_global_state(py)?;
        let known = known.facts.iter().map(|fact| fact.name);
        if !known.clone().eq(self.facts.iter().map(|(name, _)| name.as_str())) {
            return Ok(None);
        }
        let facts = known.zip(self.facts).map(|(name, (_, value))| Fact { name, value });
        let kind = GuardKind::GlobalState(Arc::new(GlobalState { facts: facts.collect() }));
        Ok(Some(Guard { source: self.source, kind, location: self.location }))
    }
}
