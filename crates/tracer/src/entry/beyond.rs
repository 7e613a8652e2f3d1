//! What a trace does and relies on that its graph doesn't say: whoever takes the graph for the whole function has to know.

use pyo3::prelude::*;
use stator_guards::{Guard, GuardKind};

use super::Entry;
use crate::effects::Store;
use crate::locate::Places;
use crate::recipe::Recipe;

/// A kind of it, what it is in the user's terms, and file, line and function of the place it comes from.
pub type Beyond = (&'static str, String, Option<(String, u32, String)>);

impl Entry {
    /// All of it: `"write"` to an outside object, or `"set"` if that is of the same constant each time, `"told"` of a warning or a log record, `"drawn"` random numbers of
    /// Python's, each `"fact"` about sizes that has to hold, and how the `dynamic` log says what was `"decided"` of them.
    #[must_use]
    pub fn beyond_graph(&self, py: Python<'_>) -> Vec<Beyond> {
        let traced = &self.traced;
        let places = Places { py, codes: traced.callers.codes() };
        let place = |(code, unit)| places.place(code, unit);
        let mut found: Vec<Beyond> = Vec::new();
        for store in &traced.effects {
            let target = traced.print_store(py, store);
            if !self.puts_back(py, store, &target) {
                let value = store.value.map(|value| traced.recipes.get(value));
                let is_constant = matches!(value, Some(Recipe::Constant(_)));
                let kind = if is_constant { "set" } else { "write" };
                found.push((kind, target, place(store.place)));
            }
        }
        for emission in &traced.emissions {
            found.push(("told", emission.text.to_string(), place(emission.place)));
        }
        if traced.draws.is_some() {
            found.push(("drawn", "random numbers of Python's".into(), None));
        }
        let facts = traced.symbolic.iter().flat_map(|symbolic| &symbolic.facts);
        for fact in facts.filter(|fact| fact.guard.is_some()) {
            found.push(("fact", fact.text.clone(), None));
        }
        found.extend(self.dynamic_log().iter().map(|line| ("decided", line.clone(), None)));
        found
    }

    /// Whether a store leaves its target as the trace has found it: what was written before was put back
    /// (`self.buffer += 1` sets an attribute to what it is, a flag is set and cleared).
    fn puts_back(&self, py: Python<'_>, store: &Store, target: &str) -> bool {
        let traced = &self.traced;
        let is_of_target = |guard: &&Guard| traced.sources.print(guard.source) == target;
        match store.value.map(|value| traced.recipes.get(value)) {
            Some(Recipe::Source(source)) => {
                traced.sources.print(traced.rebuilt[*source as usize]) == target
            }
            Some(Recipe::Constant(constant)) => {
                traced.guards.iter().filter(is_of_target).any(|guard| match &guard.kind {
                    GuardKind::Is(known) | GuardKind::Equals(known) => known == constant,
                    GuardKind::IsNone => traced.objects[constant.index()].is_none(py),
                    _ => false,
                })
            }
            _ => false,
        }
    }
}
