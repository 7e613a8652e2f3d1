//! The ways out of a trace's middle.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use stator_cpython::object::Borrowed;
use stator_graph::{Arg, NodeId};
use stator_guards::SourceId;

use super::heap;
use crate::recipe::{RecipeId, Recipes};
use crate::trace::Exit;

/// So many questions of the program's own a trace goes on behind at most: a loop that data ends isn't unrolled for good.
/// Those of what came in aren't counted.
pub(in crate::recorder) const QUESTIONS: usize = 64;

/// Who asks about data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::recorder) enum Asks {
    /// The program: a branch, a comparison.
    Program,
    /// An operation that gives something else, or raises, for some numbers.
    Operation,
    /// Nobody: it leads out where an operation raises.
    Nobody,
}

/// The exits of a trace, and what they have in common.
#[derive(Default)]
pub struct Exits {
    pub(in crate::recorder) made: Vec<Exit>,
    pub(in crate::recorder) last: Option<Last>,
    /// The one before the instruction that C code runs for, where that calls back.
    pub(in crate::recorder) around: Option<Around>,
    pub(in crate::recorder) recipes: Recipes,
    /// How many questions of the program's own are among them.
    pub(in crate::recorder) questions: usize,
    /// How many such questions were asked of an input that aren't counted.
    pub(in crate::recorder) near: FxHashMap<NodeId, u32>,
    /// How many operations have one for what they raise.
    pub(in crate::recorder) caught: usize,
    /// How many arguments the decisions have.
    pub(in crate::recorder) outputs: usize,
    /// Lists of objects from outside, by address: their recipes, and what they hold.
    lists: FxHashMap<usize, (RecipeId, Box<[usize]>)>,
    pub(in crate::recorder) sources: Vec<SourceId>,
    positions: FxHashMap<SourceId, u32>,
}

impl Exits {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.made.is_empty()
    }

    /// Whether no more questions of the program's own are decided.
    pub fn is_full(&self) -> bool {
        self.questions >= QUESTIONS
    }

    /// How many recipes and sources there are.
    pub(in crate::recorder) fn lengths(&self) -> (usize, usize) {
        (self.recipes.len(), self.sources.len())
    }

    /// The C code has ended. Where it asked nothing, its exit was none.
    pub(in crate::recorder) fn end_around(&mut self) {
        let Some(around) = self.around.take() else { return };
        if around.exit.is_some() {
            let (recipes, sources) = around.before;
            self.recipes.truncate(recipes);
            self.lists.retain(|_, (recipe, _)| recipe.index() < recipes);
            for source in self.sources.drain(sources..) {
                self.positions.remove(&source);
            }
        }
    }

    /// Where among the sources that are resolved one stands.
    pub fn resolved(&mut self, source: SourceId) -> u32 {
        let sources = &mut self.sources;
        *self.positions.entry(source).or_insert_with(|| {
            sources.push(source);
            u32::try_from(sources.len() - 1).expect("fewer than 2^32 sources")
        })
    }

    /// The recipe of a list that holds what it held at an earlier exit.
    pub fn list(&self, list: Borrowed<'_, '_>) -> Option<RecipeId> {
        let (recipe, known) = self.lists.get(&(list.as_ptr() as usize))?;
        heap::list_holds(list, known).then_some(*recipe)
    }

    /// A list has a recipe that later exits may name.
    pub fn add_list(&mut self, address: usize, recipe: RecipeId, items: Box<[usize]>) {
        self.lists.insert(address, (recipe, items));
    }

    /// The exits, their recipes, and the sources that are resolved for these and for the trace's end.
    pub fn into_parts(self) -> (Vec<Exit>, Recipes, Vec<SourceId>) {
        (self.made, self.recipes, self.sources)
    }
}

/// The way out around C code that calls back or asks (`any(...)`, `sorted(key=...)`): before its instruction.
pub(in crate::recorder) struct Around {
    /// The frame of that instruction.
    pub(in crate::recorder) frame: usize,
    /// Until something has been asked.
    pub(in crate::recorder) exit: Option<Exit>,
    /// The nodes that the exit needs; then the first decision that leaves by it.
    pub(in crate::recorder) outputs: SmallVec<[Arg; 8]>,
    /// How many nodes of the graph are known to do nothing that can't be done again from there.
    pub(in crate::recorder) nodes: usize,
    /// How many recipes and sources there were before it.
    pub(in crate::recorder) before: (usize, usize),
}

/// The decision that an exit was made for last.
pub(in crate::recorder) struct Last {
    pub(in crate::recorder) decision: NodeId,
    /// The instruction that asked, as the trace counts them.
    pub(in crate::recorder) instruction: u64,
    /// How many nodes of the graph are known to do nothing that can't be done again from there.
    pub(in crate::recorder) nodes: usize,
}
