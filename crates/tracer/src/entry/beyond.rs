//! What a trace does and relies on that its graph doesn't say: whoever takes the graph for the whole function has to know.

use pyo3::prelude::*;

use super::Entry;
use crate::locate::Places;
use crate::recipe::Recipe;

/// A kind of it, what it is in the user's terms, and file, line and function of the place it comes from.
pub type Beyond = (&'static str, String, Option<(String, u32, String)>);

impl Entry {
    /// All of it: `"write"` to an outside object, `"told"` of a warning or a log record, `"drawn"` random numbers of
    /// Python's, each `"fact"` about sizes that has to hold, and how the `dynamic` log says what was `"decided"` of them.
    #[must_use]
    pub fn beyond_graph(&self, py: Python<'_>) -> Vec<Beyond> {
        let traced = &self.traced;
        let places = Places { py, codes: &traced.codes };
        let place = |(code, unit)| places.place(code, unit);
        let mut found: Vec<Beyond> = Vec::new();
        for store in &traced.effects {
            let target = traced.print_store(py, store);
            // `self.buffer += 1` puts back what was there.
            let is_there = store.value.is_some_and(|value| match traced.recipes.get(value) {
                Recipe::Source(source) => {
                    traced.sources.print(traced.rebuilt[*source as usize]) == target
                }
                _ => false,
            });
            if !is_there {
                found.push(("write", target, place(store.place)));
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
}
