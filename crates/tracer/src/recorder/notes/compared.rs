//! Which objects from outside are guarded to differ.

use rustc_hash::FxHashSet;
use stator_guards::SourceId;

/// Objects from outside that are guarded to differ.
#[derive(Default)]
pub struct Distinct {
    /// Those that C code compared with others: all of them.
    pub(in crate::recorder) compared: FxHashSet<SourceId>,
    /// Pairs of sources.
    pub(in crate::recorder) pairs: FxHashSet<(usize, usize)>,
}

impl Distinct {
    /// C code compares what is found at a source with others.
    pub fn compare(&mut self, source: SourceId) {
        self.compared.insert(source);
    }
}
