//! What a recorded call is: the graph, its guards, and recipes for all that a replay leaves behind.
//!
//! The recorder makes it ([`crate::recorder`]); a cache entry is made of it ([`crate::entry`]).

mod verify;

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;
use rustc_hash::FxHashSet;
use stator_evaluator::Link;
use stator_graph::{Graph, NodeId, StackId};
use stator_guards::{Guard, ObjectId, SourceId, Sources};

use crate::breaks::Place;
use crate::callers::Callers;
use crate::draws::Draws;
use crate::effects::{Key, Part, Store};
use crate::emission::Emission;
use crate::handlers::Withs;
use crate::profit::Work;
use crate::recipe::{Recipe, RecipeId, Recipes};
use crate::symbolic::Symbolic;

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
    /// How the trace ends.
    pub ending: Ending,
    /// The ways out of its middle, in the order of the graph's decisions.
    pub exits: Vec<Exit>,
    /// The recipes of all exits: what they have in common is there once.
    pub exit_recipes: Recipes,
    /// Where the trace begins, if that isn't a call.
    pub begins: Option<Place>,
    /// Of the frames that it began in and that have left, innermost first: the fast locals that held the
    /// same all the time.
    pub left: Box<[Box<[u32]>]>,
    /// Code objects of places, and the frames that a replay's calls are made from.
    pub callers: Arc<Callers>,
    /// Places of guards: index of the code object and unit.
    pub locations: Vec<(u32, u32)>,
    /// The calls of modules that nodes were recorded in, in order.
    pub module_calls: Box<[ModuleCall]>,
    /// Whether the call changed the data of an input.
    pub writes_inputs: bool,
    /// Positions of those inputs.
    pub written: Vec<u32>,
    /// The `with` instructions of its code objects that only switch PyTorch's modes.
    pub plain_withs: Withs,
    /// Random generators that the call advanced.
    pub generators: Vec<Py<PyAny>>,
    /// The objects that recipes need.
    pub kept: FxHashSet<ObjectId>,
    /// What a replay writes to outside objects, in order.
    pub effects: Vec<Store>,
    /// Where the end holds an iterator over what the effects write, it is made behind them; but for these
    /// recipes, which are made before: a token goes back to what its variable holds when it is made.
    pub ending_last: Option<Box<[RecipeId]>>,
    /// How many nodes the graph had when the first of these, or of the emissions, was noted: what runs before
    /// is all that the program has done up to there.
    pub first_effect: Option<usize>,
    /// Warnings and log records that a replay gives, in order.
    pub emissions: Vec<Emission>,
    /// If there are any: the lists that the trace works with, by their positions in `rebuilt`.
    pub known_lists: Box<[u32]>,
    /// Whether nodes print.
    pub prints: bool,
    /// The facts about symbols, if there are any.
    pub symbolic: Option<Box<Symbolic>>,
    /// The locks that a replay holds, by their positions in `rebuilt`.
    pub locks: Box<[u32]>,
    /// The random numbers that a replay draws.
    pub draws: Option<Draws>,
    /// What `torch.compiler.is_compiling()` answered, if it was asked.
    pub asked: Option<bool>,
    /// What it has looked at that is another thing in each process.
    pub of_process: Option<&'static str>,
    /// What CPython does for it.
    pub work: Work,
}

impl Traced {
    /// Whether all that the program has done before a node are operations. A replay holds all its locks from its
    /// start, and has drawn all its numbers.
    #[must_use]
    pub fn has_only_computed(&self, node: NodeId) -> bool {
        self.first_effect.is_none_or(|first| node.index() <= first)
            && self.locks.is_empty()
            && self.draws.is_none()
    }

    /// What is made where a replay leaves by an exit; `None`: at the trace's end.
    #[must_use]
    pub fn leaving(&self, exit: Option<u32>) -> Leaving<'_> {
        match exit.map(|exit| &self.exits[exit as usize]) {
            None => Leaving {
                recipes: &self.recipes,
                ending: &self.ending,
                ending_last: self.ending_last.as_deref(),
                effects: &self.effects,
                emissions: &self.emissions,
            },
            Some(exit) => Leaving {
                recipes: &self.exit_recipes,
                ending: &exit.ending,
                ending_last: exit.ending_last.as_deref(),
                effects: &exit.effects,
                emissions: &exit.emissions,
            },
        }
    }

    /// Of the frames that it began in and that have left by then: see [`Traced::left`].
    #[must_use]
    pub fn left(&self, exit: Option<u32>) -> &[Box<[u32]>] {
        exit.map_or(&self.left, |exit| &self.exits[exit as usize].left)
    }

    /// A store in the user's terms: `L['self'].counter`, `del L['d']['k']`, `L['log'].extend(2 elements)`.
    #[must_use]
    pub fn print_store(&self, py: Python<'_>, store: &Store) -> String {
        let id = self.rebuilt[store.object as usize];
        let object = || self.sources.print(id);
        let repr = |key: ObjectId| {
            let key = self.objects[key.index()].bind(py);
            key.repr().map_or_else(|_| "?".into(), |text| text.to_string_lossy().into_owned())
        };
        let name = |name: ObjectId| repr(name).trim_matches('\'').to_owned();
        let recipe = store.value.map(|value| self.recipes.get(value));
        let items = match recipe {
            Some(Recipe::List(items) | Recipe::Tuple(items)) => items.as_ref(),
            _ => &[],
        };
        if let (Part::Entry, [key, held @ ..]) = (store.part, items) {
            let key = match self.recipes.get(*key) {
                Recipe::Source(key) => self.sources.print(self.rebuilt[*key as usize]),
                Recipe::Constant(key) => repr(*key),
                _ => "...".to_owned(),
            };
            let target = self.sources.print_item(id, &key);
            return if held.is_empty() { format!("del {target}") } else { target };
        }
        let target = match store.part {
            Part::Item { key: Key::Constant(key), .. } => self.sources.print_item(id, &repr(key)),
            Part::Item { key: Key::Resolved(key), .. } => {
                let key = self.sources.print(self.rebuilt[key as usize]);
                self.sources.print_item(id, &key)
            }
            Part::Entry => object(),
            Part::Context => format!("{}.set()", object()),
            Part::Reset => format!("{}.reset()", object()),
            Part::Cell => format!("{}.cell_contents", object()),
            Part::Member(member) => format!("{}.{}", object(), name(member)),
            Part::ClassAttribute(attribute) => format!("{}.{}", object(), name(attribute)),
            Part::Elements => format!("{}[:]", object()),
            Part::Added { dropped: dropped @ 1.. } => {
                format!("{}[:{dropped}] = [], .extend({} elements)", object(), items.len())
            }
            Part::Added { .. } if items.len() == 1 => format!("{}.append()", object()),
            Part::Added { .. } => format!("{}.extend({} elements)", object(), items.len()),
            Part::Calls => {
                let method = |call: &RecipeId| match self.recipes.get(*call) {
                    Recipe::Tuple(parts) => match self.recipes.get(parts[0]) {
                        Recipe::Constant(method) => format!("{}.{}()", object(), name(*method)),
                        _ => object(),
                    },
                    _ => object(),
                };
                items.iter().map(method).collect::<Vec<_>>().join(", ")
            }
            Part::Generator if store.value.is_none() => return format!("{}.close()", object()),
            Part::Generator => format!("{}.gi_frame", object()),
            Part::Advanced(1) => return format!("{}.__next__()", object()),
            Part::Advanced(times) => return format!("{}.__next__() {times} times", object()),
        };
        if store.value.is_some() { target } else { format!("del {target}") }
    }
}

/// A call of a module that was evaluated.
pub struct ModuleCall {
    /// Where the call's first frame stands. What is recorded in the call has this place in its stack, and nothing else has.
    pub stack: StackId,
    /// The module.
    pub source: SourceId,
    /// Its class, which may die.
    pub class: Py<PyWeakrefReference>,
}

/// A way out of the middle of a trace: what its end would be, had it ended before the instruction that decides.
///
/// Outputs are the operands of the graph's decision; sources are those of the trace. Its recipes are those that its
/// ending, its effects and its emissions name, of [`Traced::exit_recipes`].
pub struct Exit {
    /// The frames that stand there.
    pub ending: Ending,
    /// As [`Traced::ending_last`].
    pub ending_last: Option<Box<[RecipeId]>>,
    /// What a replay writes that leaves there.
    pub effects: Vec<Store>,
    /// Warnings and log records that were given before.
    pub emissions: Vec<Emission>,
    /// As [`Traced::left`].
    pub left: Box<[Box<[u32]>]>,
    /// How many random numbers were drawn before: the others aren't.
    pub draws: usize,
}

/// What a replay makes and writes where it leaves a trace.
#[derive(Clone, Copy)]
pub struct Leaving<'a> {
    /// See [`Traced::recipes`].
    pub recipes: &'a Recipes,
    /// See [`Traced::ending`].
    pub ending: &'a Ending,
    /// See [`Traced::ending_last`].
    pub ending_last: Option<&'a [RecipeId]>,
    /// See [`Traced::effects`].
    pub effects: &'a [Store],
    /// See [`Traced::emissions`].
    pub emissions: &'a [Emission],
}

impl<'a> Leaving<'a> {
    /// The recipes of what is left behind: what frames hold or return, what is written and what is given.
    pub fn roots(&self) -> impl Iterator<Item = RecipeId> + use<'a> {
        let written = self.effects.iter().filter_map(|store| store.value);
        let given = self.emissions.iter().flat_map(Emission::roots);
        self.ending.roots().chain(written).chain(given)
    }
}

/// How a trace ends.
pub enum Ending {
    /// The compiled function returns: the recipe of its result.
    Return(RecipeId),
    /// At a graph break.
    Break(Box<Broken>),
}

/// How the frames are made again that stand at a graph break.
pub struct Broken {
    /// Outermost first.
    pub frames: Box<[FrameRecipe]>,
    /// The exception being handled.
    pub handled: Option<RecipeId>,
    /// Exceptions that the trace raised.
    pub raised: Vec<Raised>,
}

/// An exception that is made again with its traceback.
pub struct Raised {
    /// The exception.
    pub exception: RecipeId,
    /// Its traceback, outermost first.
    pub traceback: Box<[TracebackEntry]>,
}

/// A part of a traceback.
#[derive(Clone, Copy, Debug)]
pub struct TracebackEntry {
    /// Which of the frames that are made.
    pub frame: u32,
    /// `tb_lasti`
    pub last: i32,
    /// `tb_lineno`
    pub line: i32,
}

/// How one frame is made again.
pub struct FrameRecipe {
    /// The function whose call it is.
    pub function: RecipeId,
    /// Its code object's address.
    pub code: usize,
    /// Fast locals that are bound.
    pub locals: Box<[(u32, RecipeId)]>,
    /// The stack; `None` is a `NULL`.
    pub stack: Box<[Option<RecipeId>]>,
    /// The unit that tracebacks name.
    pub current: u32,
    /// The unit to go on at.
    pub next: u32,
    /// The innermost frame: the unit of the instruction that is to be executed natively.
    pub last: u32,
    /// The others: how the instruction ends that waits for the next frame.
    pub link: Link,
}

impl Ending {
    /// How many frames stand at the break.
    #[must_use]
    pub fn standing(&self) -> Option<usize> {
        match self {
            Ending::Return(_) => None,
            Ending::Break(broken) => Some(broken.frames.len()),
        }
    }

    /// The recipes of the ending, in a fixed order.
    pub fn roots(&self) -> impl Iterator<Item = RecipeId> {
        let (result, broken) = match self {
            Ending::Return(result) => (Some(*result), None),
            Ending::Break(broken) => (None, Some(broken)),
        };
        let frames = broken.into_iter().flat_map(|broken| &broken.frames);
        let frames = frames.flat_map(|frame| {
            let locals = frame.locals.iter().map(|(_, local)| *local);
            std::iter::once(frame.function)
                .chain(locals)
                .chain(frame.stack.iter().copied().flatten())
        });
        let handled = broken.and_then(|broken| broken.handled);
        let raised = broken.into_iter().flat_map(|broken| &broken.raised);
        let raised = raised.map(|raised| raised.exception);
        result.into_iter().chain(frames).chain(handled).chain(raised)
    }
}
