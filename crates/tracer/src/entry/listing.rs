//! The `bytecode` log: what a replay does, written as the bytecode that would do it.
//!
//! Nothing executes this program: frames are moved instead (see [`crate::drive`]). But it says, in
//! terms that `dis` has taught everybody, what is called with what, what is rebuilt for the breaking
//! instruction, and where the next trace begins.

use std::fmt::Write;

use pyo3::prelude::*;
use stator_cpython::code::Code;
use stator_guards::{Source, SourceId};

use crate::effects::Part;
use crate::frames::anatomy::Anatomy;
use crate::recipe::{Items, Recipe, RecipeId};
use crate::trace::{Broken, Ending, FrameRecipe, Traced};

/// The lines of one program.
struct Listing<'a> {
    traced: &'a Traced,
    py: Python<'a>,
    text: String,
}

/// The program of a trace, with the number of its graph and of what it resumes at.
#[must_use]
pub fn list(py: Python<'_>, traced: &Traced, number: u64) -> String {
    let mut listing = Listing { traced, py, text: String::new() };
    listing.line("LOAD_GLOBAL", &format!("__compiled_fn_{number}"));
    for input in &traced.inputs {
        listing.source(*input);
    }
    listing.line("CALL", &traced.inputs.len().to_string());
    listing.line("STORE_FAST", "graph_out_0");
    for store in &traced.effects {
        if let Some(value) = store.value {
            listing.recipe(value);
        }
        let opcode = match (store.value, store.part) {
            (_, Part::Advanced(_) | Part::Generator) => "FOR_ITER",
            (Some(_), _) => "STORE_SUBSCR",
            (None, _) => "DELETE_SUBSCR",
        };
        listing.line(opcode, &traced.print_store(py, store));
    }
    for emission in &traced.emissions {
        listing.recipe(emission.callable);
        listing.all(&emission.args, "CALL");
    }
    match &traced.ending {
        Ending::Return(result) => {
            listing.recipe(*result);
            listing.line("RETURN_VALUE", "");
        }
        Ending::Break(broken) => listing.broken(broken, number),
    }
    listing.text
}

impl Listing<'_> {
    fn line(&mut self, opcode: &str, argument: &str) {
        let argument = if argument.is_empty() { String::new() } else { format!("({argument})") };
        let line = format!("    {opcode:<24} {argument}");
        writeln!(self.text, "{}", line.trim_end()).expect("a string takes what it's given");
    }

    /// Loads an outside object.
    fn source(&mut self, source: SourceId) {
        let sources = &self.traced.sources;
        match sources.get(source) {
            Source::Local { name, .. } => self.line("LOAD_FAST", name),
            Source::DictItem { parent, text, .. } => match sources.get(*parent) {
                Source::Globals(_) | Source::Builtins(_) => {
                    self.line("LOAD_GLOBAL", text.trim_matches('\''))
                }
                Source::Dict(owner) => {
                    self.source(*owner);
                    self.line("LOAD_ATTR", text.trim_matches('\''));
                }
                _ => {
                    self.source(*parent);
                    self.line("LOAD_CONST", text);
                    self.line("BINARY_SUBSCR", "");
                }
            },
            Source::ListItem { parent, index } | Source::TupleItem { parent, index } => {
                self.source(*parent);
                self.line("LOAD_CONST", &index.to_string());
                self.line("BINARY_SUBSCR", "");
            }
            Source::LastItem { parent, index } => {
                self.source(*parent);
                self.line("LOAD_CONST", &format!("-{index}"));
                self.line("BINARY_SUBSCR", "");
            }
            _ => self.line("LOAD_CONST", &sources.print(source)),
        }
    }

    fn all(&mut self, recipes: &[RecipeId], opcode: &str) {
        recipes.iter().for_each(|recipe| self.recipe(*recipe));
        self.line(opcode, &recipes.len().to_string());
    }

    fn constant(&mut self, object: stator_guards::ObjectId) {
        let object = self.traced.objects[object.index()].bind(self.py);
        let text = object.repr().map_or_else(|_| "?".into(), |text| text.to_string());
        self.line("LOAD_CONST", &text);
    }

    fn name(&self, object: stator_guards::ObjectId) -> String {
        self.traced.objects[object.index()].bind(self.py).to_string()
    }

    /// Makes an object.
    fn recipe(&mut self, recipe: RecipeId) {
        match self.traced.recipes.get(recipe) {
            Recipe::Output(position) => {
                self.line("LOAD_FAST", "graph_out_0");
                self.line("LOAD_CONST", &position.to_string());
                self.line("BINARY_SUBSCR", "");
            }
            Recipe::Source(position) => self.source(self.traced.rebuilt[*position as usize]),
            Recipe::Constant(object) => self.constant(*object),
            Recipe::List(items) => self.all(items, "BUILD_LIST"),
            Recipe::Tuple(items) => self.all(items, "BUILD_TUPLE"),
            Recipe::Set(items) | Recipe::FrozenSet(items) => self.all(items, "BUILD_SET"),
            Recipe::TupleOf { class, items } => {
                self.constant(*class);
                self.all(items, "CALL");
            }
            Recipe::Dict(entries) => self.entries(entries),
            Recipe::Call { callable, args } | Recipe::Reduced { callable, args, .. } => {
                self.constant(*callable);
                self.all(args, "CALL");
            }
            Recipe::Token { variable, value, .. } => {
                self.recipe(*variable);
                self.line("LOAD_ATTR", "set");
                self.recipe(*value);
                self.line("CALL", "1");
            }
            Recipe::Attributed { object, attributes } => {
                self.recipe(*object);
                for (name, value) in attributes {
                    self.recipe(*value);
                    self.line("COPY", "2");
                    self.line("STORE_ATTR", &self.name(*name));
                }
            }
            Recipe::Table(set, _) => self.recipe(*set),
            Recipe::InstanceDict(owner) => {
                self.recipe(*owner);
                self.line("LOAD_ATTR", "__dict__");
            }
            Recipe::Cell(contents) => {
                contents.iter().for_each(|contents| self.recipe(*contents));
                self.line("MAKE_CELL", "");
            }
            Recipe::Function(function) => {
                self.constant(function.code);
                self.line("MAKE_FUNCTION", "");
            }
            Recipe::Generator(generator) => {
                self.recipe(generator.function);
                for slot in generator.slots.iter().flatten() {
                    self.recipe(*slot);
                }
                self.line("RETURN_GENERATOR", "");
            }
            Recipe::View { container, .. } => {
                self.recipe(*container);
                self.line("GET_ITER", "");
            }
            Recipe::Object(instance) => {
                self.constant(instance.class);
                match &instance.items {
                    Items::None => {}
                    Items::Elements(items) | Items::Bounded(items, _) => {
                        self.all(items, "BUILD_LIST");
                    }
                    Items::Entries(entries) => self.entries(entries),
                }
                for (name, value) in &instance.attributes {
                    self.constant(*name);
                    self.recipe(*value);
                }
                self.line("CALL", &(2 * instance.attributes.len()).to_string());
            }
        }
    }

    fn entries(&mut self, entries: &[(RecipeId, RecipeId)]) {
        for (key, value) in entries {
            self.recipe(*key);
            self.recipe(*value);
        }
        self.line("BUILD_MAP", &entries.len().to_string());
    }

    fn broken(&mut self, broken: &Broken, number: u64) {
        let frames = &broken.frames;
        for frame in frames {
            frame.stack.iter().for_each(|value| match value {
                Some(value) => self.recipe(*value),
                None => self.line("PUSH_NULL", ""),
            });
            for (slot, value) in &frame.locals {
                self.recipe(*value);
                self.line("STORE_FAST", &self.local(frame, *slot as usize));
            }
        }
        let Some(innermost) = frames.last() else { return };
        let (name, next) = self.instruction(innermost);
        self.line(&name, "");
        for frame in frames.iter().rev() {
            let is_innermost = std::ptr::eq(frame, innermost);
            let next = if is_innermost { next } else { frame.next as usize };
            self.line("LOAD_GLOBAL", &format!("__resume_at_{}_{}", 2 * next, number + 1));
            for (slot, _) in &frame.locals {
                self.line("LOAD_FAST", &self.local(frame, *slot as usize));
            }
            self.line("CALL", &(frame.locals.len() + 1).to_string());
        }
        self.line("RETURN_VALUE", "");
    }

    /// A code object that a frame recipe speaks of.
    fn code(&self, frame: &FrameRecipe) -> Option<Code<'_>> {
        let found =
            self.traced.callers.codes().iter().find(|code| code.as_ptr() as usize == frame.code)?;
        Code::of(found.bind_borrowed(self.py))
    }

    fn local(&self, frame: &FrameRecipe, slot: usize) -> String {
        self.code(frame).map_or_else(|| "?".into(), |code| code.local_name(slot).to_string())
    }

    /// The breaking instruction, and the unit behind it.
    fn instruction(&self, frame: &FrameRecipe) -> (String, usize) {
        let found = self.code(frame).and_then(|code| {
            let anatomy = Anatomy::of(&code)?;
            let unit = anatomy.opcode_unit(frame.last as usize)?;
            let name = code.unit(unit)?.opcode.name();
            Some((name.to_string(), anatomy.next(unit)?))
        });
        found.unwrap_or_else(|| ("?".into(), 0))
    }
}
