//! From messages to types and trees.
//!
//! A message is taken apart into its fields, then the messages in it are read, then the node is
//! built from what they were. What is left to do is a stack of tasks; what was read lies on two
//! other stacks, one of types and one of blocks.

mod blocks;
mod types;

use rustc_hash::{FxHashMap, FxHashSet};

use super::read::{Fault, Message, Read, Span};
use crate::Name;
use crate::ast::BuildingBlock;
use crate::error::{Error, Result};
use crate::types::Type;

/// Whether abstract types are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Labels {
    Taken,
    Refused,
}

pub fn decode_type(input: &[u8], labels: Labels) -> Result<Type> {
    let mut decoder = Decoder::new(input, labels);
    decoder.run(Work::Type)?;
    Ok(decoder.types.pop().expect("one message is one type"))
}

pub fn decode_block(input: &[u8]) -> Result<BuildingBlock> {
    let mut decoder = Decoder::new(input, Labels::Refused);
    decoder.run(Work::Block)?;
    Ok(decoder.blocks.pop().expect("one message is one block"))
}

struct Decoder<'a> {
    input: &'a [u8],
    labels: Labels,
    /// The last task is the next one.
    tasks: Vec<Task>,
    types: Vec<Type>,
    blocks: Vec<BuildingBlock>,
    /// Types of computations by their bytes. Not the types in them: their bytes would be hashed
    /// once for every type around them.
    known_types: FxHashMap<&'a [u8], Type>,
    names: FxHashMap<&'a [u8], Name>,
    /// Operations with types that were found to fit their templates.
    checked: FxHashSet<(&'static str, Type)>,
}

/// Something to be done for a message.
struct Task {
    place: Place,
    /// Where the message begins.
    at: usize,
    work: Work,
}

enum Work {
    /// To read the message `Type`.
    Type(Message),
    /// To read the message `Type`, if its bytes weren't read before.
    KnownType(Message),
    /// To remember the last type that was read as that of these bytes.
    Remember(Span),
    /// To read the message `Computation`.
    Block(Message),
    BuildType(types::Parts),
    BuildBlock(blocks::Parts),
}

/// Where a message stands in the one around it: the fields to follow.
#[derive(Clone, Copy)]
enum Place {
    Root,
    Field(&'static str),
    /// One of several values of a field.
    Item(&'static str, usize),
}

impl<'a> Decoder<'a> {
    fn new(input: &'a [u8], labels: Labels) -> Self {
        Self {
            input,
            labels,
            tasks: Vec::new(),
            types: Vec::new(),
            blocks: Vec::new(),
            known_types: FxHashMap::default(),
            names: FxHashMap::default(),
            checked: FxHashSet::default(),
        }
    }

    fn run(&mut self, read: fn(Message) -> Work) -> Result<()> {
        let all = Span::all(self.input).map_err(Fault::into_error)?;
        self.push(Place::Root, 0, read(Message::new(all)));
        while let Some(Task { place, at, work }) = self.tasks.pop() {
            let left = self.tasks.len();
            let done = match work {
                Work::Type(message) => self.read_type(place, &message),
                Work::KnownType(message) => self.read_known_type(place, message),
                Work::Remember(span) => {
                    let ty = self.types.last().expect("it was just read").clone();
                    self.known_types.insert(span.of(self.input), ty);
                    Ok(())
                }
                Work::Block(message) => self.read_block(place, &message),
                Work::BuildType(parts) => self.build_type(at, parts),
                Work::BuildBlock(parts) => self.build_block(at, parts),
            };
            if let Err(fault) = done {
                self.tasks.truncate(left);
                return Err(self.locate(place, fault));
            }
        }
        Ok(())
    }

    fn push(&mut self, place: Place, at: usize, work: Work) {
        self.tasks.push(Task { place, at, work });
    }

    fn push_type(&mut self, place: Place, message: Message) {
        self.push(place, message.at(), Work::Type(message));
    }

    fn push_block(&mut self, place: Place, message: Message) {
        self.push(place, message.at(), Work::Block(message));
    }

    /// The error for what is wrong in the message at `place`.
    fn locate(&self, place: Place, fault: Fault) -> Error {
        // The nodes to be built are those around the message.
        let around = self.tasks.iter().filter_map(|task| match task.work {
            Work::BuildType(_) | Work::BuildBlock(_) => Some(task.place),
            _ => None,
        });
        let places: Vec<Place> = around.chain([place]).collect();
        let error = fault.into_error();
        match path(&places) {
            path if path.is_empty() => error,
            path => error.note("in", path),
        }
    }

    fn read_known_type(&mut self, place: Place, message: Message) -> Read<()> {
        if let Some(span) = message.span() {
            if let Some(ty) = self.known_types.get(span.of(self.input)) {
                self.types.push(ty.clone());
                return Ok(());
            }
            self.push(place, message.at(), Work::Remember(span));
        }
        self.read_type(place, &message)
    }

    /// The name in a part of the input.
    fn name(&mut self, span: Span) -> Read<Name> {
        let bytes = span.of(self.input);
        if let Some(name) = self.names.get(bytes) {
            return Ok(name.clone());
        }
        let name = Name::from(span.text(self.input)?);
        self.names.insert(bytes, name.clone());
        Ok(name)
    }

    /// The name and the value in a message that is one of several fields, locals or elements.
    fn named(&mut self, message: &Message) -> Read<(Option<Name>, Message)> {
        let mut name = None;
        let mut value = Message::missing(message.at());
        for field in message.fields(self.input) {
            let field = field?;
            match field.number {
                1 => name = Some(self.name(field.span()?)?),
                2 => value.merge(field)?,
                _ => {}
            }
        }
        Ok((name.filter(|name| !name.is_empty()), value))
    }
}

/// The fields to follow from the outermost message; of many only the first and last ones.
fn path(places: &[Place]) -> String {
    const FIRST: usize = 4;
    const LAST: usize = 8;
    let mut path = String::new();
    for (at, place) in places.iter().enumerate() {
        let skipped = places.len().saturating_sub(FIRST + LAST);
        if skipped > 0 && (FIRST..FIRST + skipped).contains(&at) {
            if at == FIRST {
                path.push_str(&format!(".({skipped} more)"));
            }
            continue;
        }
        if !path.is_empty() {
            path.push('.');
        }
        match place {
            Place::Root => {}
            Place::Field(name) => path.push_str(name),
            Place::Item(name, index) => path.push_str(&format!("{name}[{index}].value")),
        }
    }
    path
}
