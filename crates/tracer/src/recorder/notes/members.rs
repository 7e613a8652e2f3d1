//! What a trace knows of how classes read attributes, and of the dictionaries of modules' members.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use stator_guards::Holders;

/// How the attributes of a class's instances are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// By the ordinary rules: it has no `__getattribute__` of its own.
    Plainly,
    /// Likewise; what isn't there is a member, as `nn.Module` has them.
    Members,
}

/// What a trace knows of classes, and the keys of the dictionaries of members.
#[derive(Default)]
pub struct Members {
    /// Each class's version when it was looked at, by its address. (No two classes ever share one.)
    classes: FxHashMap<usize, (u32, Reads)>,
    /// The first of the dictionaries, and the first two.
    holders: [Option<Arc<Holders>>; 2],
}

impl Members {
    /// How the class at an address reads attributes, if that was found out of this version.
    pub fn reads(&self, class: usize, version: u32) -> Option<Reads> {
        let (known, reads) = self.classes.get(&class)?;
        (*known == version).then_some(*reads)
    }

    /// The class at an address, of this version, reads attributes so.
    pub fn set_reads(&mut self, class: usize, version: u32, reads: Reads) {
        self.classes.insert(class, (version, reads));
    }

    /// The first dictionary of members as guards name it, or the first two.
    pub fn holders(&mut self, place: usize) -> &mut Option<Arc<Holders>> {
        &mut self.holders[place]
    }
}
