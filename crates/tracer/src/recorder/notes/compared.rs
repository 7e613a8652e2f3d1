//! Which objects from outside are guarded to differ.

use rustc_hash::FxHashSet;
use stator_guards::SourceId;

/// Objects from outside that are guarded to differ.
#[derive(Default)]
pub struct Distinct {
    /// Those that C code compared with others: all of them.
    compared: FxHashSet<SourceId>,
    /// Pairs of sources.
    pairs: FxHashSet<(usize, usize)>,
}

impl Distinct {
    /// C code compares what is found at a source with others.
    pub fn compare(&mut self, source: SourceId) {
        self.compared.insert(source);
    }

    /// Those that were compared.
    pub fn compared(&self) -> impl Iterator<Item = SourceId> {
        self.compared.iter().copied()
    }

    /// Whether a pair of sources, the lesser one first, is to be guarded for the first time.
    pub fn first_pair(&mut self, pair: (usize, usize)) -> bool {
        self.pairs.insert(pair)
    }
}
