//! Random numbers that a replay draws: those that the generator would give next.
//!
//! A trace takes what `random.random()` gives as a symbol whose number is foretold from the generator's state
//! ([`stator_cpython::heap::twister`]), so guards may speak of it before anything is drawn. A replay
//! moves the generator on by as much as the recorded call did.

use stator_cpython::heap::twister::Twister;
use stator_cpython::object::Object;
use stator_graph::NodeId;

/// What a trace draws from its one generator.
#[derive(Debug, Default)]
pub struct Draws {
    /// Which symbol's source is the generator.
    pub slot: usize,
    /// For each draw: how many nodes the graph had before, and how many words it took.
    pub made: Vec<(usize, u32)>,
    /// The node that seeds the generator, behind all draws: from there on its state is what nodes make of it.
    pub seeded: Option<usize>,
}

/// A generator as it was before a replay.
pub struct Before<'py> {
    generator: Object<'py>,
    state: Twister,
}

impl Draws {
    /// How many words are drawn.
    #[must_use]
    pub fn words(&self) -> u32 {
        self.made.iter().map(|(_, words)| words).sum()
    }

    /// The generator as it is; `generators` holds an object for each symbol.
    #[must_use]
    pub fn look<'py>(&self, generators: &[Object<'py>]) -> Option<Before<'py>> {
        let generator = generators.get(self.slot)?;
        let state = Twister::of(generator.as_borrowed())?;
        Some(Before { generator: generator.clone(), state })
    }

    /// Draws; false: somebody else has drawn since.
    #[must_use]
    pub fn take(&self, before: &Before<'_>) -> bool {
        let generator = before.generator.as_borrowed();
        if Twister::of(generator).as_ref() != Some(&before.state) {
            return false;
        }
        let mut state = before.state.clone();
        state.skip(self.words());
        state.write(generator)
    }

    /// Gives back what was drawn behind a node, or all of it.
    pub fn give_back(&self, before: &Before<'_>, behind: Option<NodeId>) {
        let is_seeded = |node: NodeId| self.seeded.is_some_and(|seeded| seeded < node.index());
        if behind.is_some_and(is_seeded) {
            return;
        }
        let state = self.behind(before, behind.map(NodeId::index));
        let _ = state.write(before.generator.as_borrowed());
    }

    /// Gives back all but the first draws. If another thread has drawn since, it has what comes behind.
    pub fn keep(&self, before: &Before<'_>, count: usize) {
        let generator = before.generator.as_borrowed();
        let drawn = self.behind(before, Some(usize::MAX));
        if Twister::of(generator).as_ref() == Some(&drawn) {
            let mut state = before.state.clone();
            state.skip(self.made[..count].iter().map(|(_, words)| words).sum());
            let _ = state.write(generator);
        }
    }

    /// The state in which only so much was drawn as when the graph had so many nodes; or nothing.
    fn behind(&self, before: &Before<'_>, nodes: Option<usize>) -> Twister {
        let mut state = before.state.clone();
        if let Some(most) = nodes {
            let made = self.made.iter().filter(|(nodes, _)| *nodes <= most);
            state.skip(made.map(|(_, words)| words).sum());
        }
        state
    }
}
