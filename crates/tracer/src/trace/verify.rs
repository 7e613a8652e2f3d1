//! The verifier: what must hold of a finished trace, whoever uses it.
//!
//! 1. The graph is well formed (`stator_graph`'s own verifier), and has a source or a symbol for each placeholder.
//! 2. A recipe names recipes and objects of the trace, outputs that the graph has, sources that are resolved.
//! 3. So do the ending, the writes and what is given to logs: each refers to recipes of the trace. All that holds
//!    for each exit as well, whose outputs are what the graph's decision is given (or the node that catches); there is one for each.
//! 4. Guards and slots of symbols speak of sources of the trace.
//! 5. Positions (inputs that are written, locks, lists, the frames of tracebacks, code objects of places) lie inside
//!    what they are positions in.
//!
//! Tests verify each trace (`stator.config.strict`); it's linear in the trace's size.

use stator_graph::Target;

use super::{Ending, Leaving, Traced};
use crate::effects::{Key, Part};
use crate::emission::Told;
use crate::raises::NodeCall;
use crate::recipe::{Recipe, RecipeId};

/// What is wrong with a trace.
type Check = Result<(), String>;

fn inside(what: &str, position: usize, length: usize) -> Check {
    if position < length { Ok(()) } else { Err(format!("{what} {position} of {length}")) }
}

impl Traced {
    /// Checks every invariant.
    ///
    /// # Errors
    /// The first one that doesn't hold.
    pub fn verify(&self) -> Check {
        self.graph.verify().map_err(|error| error.to_string())?;
        let numbers = self.symbolic.as_ref().map_or(0, |symbolic| symbolic.inputs.len());
        let (given, placeholders) = (self.inputs.len() + numbers, self.graph.placeholders().len());
        if given != placeholders {
            return Err(format!("{given} inputs of {placeholders} placeholders"));
        }
        self.verify_sources()?;
        self.verify_leavings()?;
        self.verify_symbols()
    }

    fn verify_sources(&self) -> Check {
        let known = self.sources.len();
        let guarded = self.guards.iter().map(|guard| guard.source);
        for source in self.inputs.iter().chain(&self.rebuilt).copied().chain(guarded) {
            inside("source", source.index(), known)?;
        }
        for location in self.guards.iter().filter_map(|guard| guard.location) {
            inside("location", location as usize, self.locations.len())?;
        }
        for written in &self.written {
            inside("a written input", *written as usize, self.graph.placeholders().len())?;
        }
        for position in self.known_lists.iter().chain(&self.locks) {
            inside("a resolved source", *position as usize, self.rebuilt.len())?;
        }
        self.locations.iter().try_for_each(|(code, _)| self.code(*code))
    }

    fn code(&self, code: u32) -> Check {
        inside("code object", code as usize, self.callers.codes().len())
    }

    fn verify_leavings(&self) -> Check {
        if let Some(nodes) = self.first_effect.filter(|nodes| *nodes > self.graph.len()) {
            return Err(format!("a write after node {nodes}"));
        }
        let ids: Vec<RecipeId> = self.recipes.ids().collect();
        self.verify_leaving(self.leaving(None), &ids, self.graph.outputs().len())?;
        let mut exits = 0;
        for (id, _) in self.graph.nodes() {
            let call = NodeCall::of(&self.graph, id);
            let own = call.and_then(|call| match call.target {
                Target::Decide => self.graph.earlier_decision(call.args).is_none().then_some(2),
                Target::Catch => Some(0),
                _ => None,
            });
            if let Some((call, own)) = call.zip(own) {
                inside("exit", exits, self.exits.len())?;
                let leaving = self.leaving(Some(exits as u32));
                let roots: Vec<RecipeId> = leaving.roots().collect();
                let ids = leaving.recipes.below(&roots);
                self.verify_leaving(leaving, &ids, call.args.len() - own)?;
                exits += 1;
            }
        }
        let count = self.exits.len();
        if exits == count { Ok(()) } else { Err(format!("{count} exits of {exits} decisions")) }
    }

    /// `ids`: the recipes that are its own.
    fn verify_leaving(&self, leaving: Leaving<'_>, ids: &[RecipeId], outputs: usize) -> Check {
        let Leaving { recipes, ending, effects, emissions, .. } = leaving;
        let known = |id: RecipeId| inside("recipe", id.index(), recipes.len());
        leaving.roots().try_for_each(known)?;
        for id in ids {
            let recipe = recipes.get(*id);
            match recipe {
                Recipe::Output(output) => inside("output", *output as usize, outputs)?,
                Recipe::Source(source) => {
                    inside("a resolved source", *source as usize, self.rebuilt.len())?;
                }
                _ => {}
            }
            let parts = recipe.parts();
            parts.recipes.iter().try_for_each(|part| known(*part))?;
            for object in parts.objects {
                inside("object", object.index(), self.objects.len())?;
            }
        }
        if let Ending::Break(broken) = ending {
            let entries = broken.raised.iter().flat_map(|raised| &raised.traceback);
            for entry in entries {
                inside("frame", entry.frame as usize, broken.frames.len())?;
            }
        }
        for store in effects {
            inside("a written object", store.object as usize, self.rebuilt.len())?;
            self.code(store.place.0)?;
            match store.part {
                Part::Item { key: Key::Resolved(key), .. } => {
                    inside("a key", key as usize, self.rebuilt.len())?;
                }
                Part::Item { key: Key::Constant(name), .. }
                | Part::Member(name)
                | Part::ClassAttribute(name) => {
                    inside("object", name.index(), self.objects.len())?;
                }
                _ => {}
            }
        }
        for emission in emissions {
            let frames = emission.frames.iter().map(|(function, _)| *function);
            let told = match emission.told {
                Told::Warning { text, category } => [Some(text), category],
                Told::Record { logger } => [Some(logger), None],
            };
            let told = told.into_iter().flatten();
            let recipes = frames.chain([emission.callable]).chain(told);
            recipes.chain(emission.args.iter().copied()).try_for_each(known)?;
            self.code(emission.place.0)?;
            if emission.after > effects.len() {
                return Err(format!("given after write {}", emission.after));
            }
        }
        Ok(())
    }

    fn verify_symbols(&self) -> Check {
        let slots = self.symbolic.as_ref().map_or(0, |symbolic| symbolic.slots.len());
        if let Some(draws) = &self.draws {
            inside("the slot of random numbers", draws.slot, slots)?;
        }
        let Some(symbolic) = &self.symbolic else { return Ok(()) };
        for slot in &symbolic.slots {
            inside("source", slot.source.index(), self.sources.len())?;
        }
        for (input, slot) in &symbolic.inputs {
            inside("a number among the inputs", *input, self.graph.placeholders().len())?;
            inside("slot", *slot, slots)?;
        }
        for guard in symbolic.facts.iter().filter_map(|fact| fact.guard) {
            inside("guard", guard, self.guards.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stator_graph::Graph;
    use stator_guards::{Guard, GuardKind, Source, Sources};

    use super::super::{Ending, Traced};
    use crate::callers::Callers;
    use crate::handlers::Withs;
    use crate::profit::Work;
    use crate::recipe::{Recipe, Recipes};

    /// A trace without operations that returns an empty tuple.
    fn trace() -> Traced {
        let mut recipes = Recipes::new();
        let result = recipes.push(Recipe::Tuple(Box::default()));
        Traced {
            sources: Sources::new(),
            guards: Vec::new(),
            objects: Vec::new(),
            graph: Graph::new(),
            graph_objects: Vec::new(),
            inputs: Vec::new(),
            rebuilt: Vec::new(),
            recipes,
            ending: Ending::Return(result),
            exits: Vec::new(),
            exit_recipes: Recipes::new(),
            begins: None,
            left: Box::default(),
            callers: Arc::new(Callers::new(Vec::new(), Vec::new())),
            locations: Vec::new(),
            module_calls: Box::default(),
            writes_inputs: false,
            written: Vec::new(),
            plain_withs: Withs::default(),
            generators: Vec::new(),
            kept: Default::default(),
            effects: Vec::new(),
            ending_last: None,
            first_effect: None,
            emissions: Vec::new(),
            known_lists: Box::default(),
            prints: false,
            symbolic: None,
            locks: Box::default(),
            draws: None,
            asked: None,
            of_process: None,
            work: Work::default(),
        }
    }

    fn wrong(change: impl FnOnce(&mut Traced)) -> String {
        let mut traced = trace();
        change(&mut traced);
        traced.verify().unwrap_err()
    }

    #[test]
    fn the_smallest_trace_is_right() {
        assert_eq!(trace().verify(), Ok(()));
    }

    #[test]
    fn what_is_referred_to_is_there() {
        assert_eq!(wrong(|it| it.recipes = Recipes::new()), "recipe 0 of 0");
        let push = |recipe: Recipe| {
            wrong(|it| {
                it.recipes.push(recipe);
            })
        };
        assert_eq!(push(Recipe::Output(0)), "output 0 of 0");
        assert_eq!(push(Recipe::Source(1)), "a resolved source 1 of 0");
        assert_eq!(wrong(|it| it.written.push(2)), "a written input 2 of 0");
        assert_eq!(wrong(|it| it.locations.push((0, 4))), "code object 0 of 0");
        assert_eq!(wrong(|it| it.first_effect = Some(1)), "a write after node 1");
    }

    #[test]
    fn guards_speak_of_sources_of_the_trace() {
        let mut others = Sources::new();
        let source = others.intern(Source::GlobalState);
        let guard = Guard { source, kind: GuardKind::CellEmpty, location: None };
        assert_eq!(wrong(|it| it.guards.push(guard)), "source 0 of 0");
    }
}
