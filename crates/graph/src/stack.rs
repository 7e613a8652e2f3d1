//! Where in the user's program a node was recorded: a tree of frames, resolved only for printing.
//!
//! Recording pushes three numbers for each call site; file, line and source text are looked up
//! through [`Locate`] when somebody asks. The table never keeps a frame or a code object alive.

use std::rc::Rc;

use crate::ids::StackId;
use serde::{Deserialize, Serialize};

/// A frame and the instruction it was at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The calling frame, at its call instruction. Always an earlier entry of the table.
    pub parent: Option<StackId>,
    /// The code object, by its place in a table the tracer keeps.
    pub code: u32,
    /// The instruction's index in the code.
    pub instruction: u32,
}

/// The frames of a graph. Nodes of one instruction share one entry.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StackTable {
    frames: Vec<Frame>,
}

impl StackTable {
    /// An empty table with room for so many entries.
    pub(crate) fn with_room(room: usize) -> Self {
        Self { frames: Vec::with_capacity(room) }
    }

    /// The entry for a frame at an instruction; the same as the last one where nothing changed.
    #[inline]
    pub fn push(&mut self, frame: Frame) -> StackId {
        if self.frames.last() != Some(&frame) {
            self.frames.push(frame);
        }
        StackId::new(self.frames.len() - 1)
    }

    /// The frame behind an id.
    pub fn get(&self, id: StackId) -> Option<Frame> {
        self.frames.get(id.index()).copied()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// All entries with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (StackId, Frame)> + '_ {
        self.frames.iter().enumerate().map(|(index, &frame)| (StackId::new(index), frame))
    }

    /// The entries of the stack that ends in this one, innermost first.
    pub fn ids(&self, innermost: StackId) -> impl Iterator<Item = StackId> + '_ {
        std::iter::successors(Some(innermost), |id| self.get(*id)?.parent)
    }

    /// The stack that ends in this entry, innermost frame first.
    pub fn walk(&self, innermost: StackId) -> impl Iterator<Item = Frame> + '_ {
        std::iter::successors(self.get(innermost), |frame| self.get(frame.parent?))
    }
}

/// A place in a user's program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The file as the code object names it.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
    /// The function's name.
    pub function: String,
    /// The line's text without indentation; empty where the source isn't at hand.
    pub code: String,
    /// Whether this is library code that only forwards (`torch/nn/modules/...`): listings show the
    /// innermost frame that isn't.
    pub is_library: bool,
}

/// Turns instructions into places; the tracer implements it over its code objects.
pub trait Locate {
    /// The place of an instruction, or `None` where it is unknown.
    fn locate(&self, code: u32, instruction: u32) -> Option<Rc<Location>>;
}

/// For graphs whose nodes have no known place.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSource;

impl Locate for NoSource {
    fn locate(&self, _code: u32, _instruction: u32) -> Option<Rc<Location>> {
        None
    }
}

/// The places of a stack that are shown to users, innermost first: those that aren't library code,
/// or all where each one is.
pub(crate) fn shown_locations(
    stacks: &StackTable,
    innermost: StackId,
    locate: &dyn Locate,
) -> Vec<Rc<Location>> {
    let places = stacks.walk(innermost);
    let places = places.filter_map(|frame| locate.locate(frame.code, frame.instruction));
    let mut places: Vec<_> = places.collect();
    if places.iter().any(|place| !place.is_library) {
        places.retain(|place| !place.is_library);
    }
    places
}
