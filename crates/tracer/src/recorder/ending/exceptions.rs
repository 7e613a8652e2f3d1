//! Exceptions that the trace raised and that are alive at a graph break.
//!
//! They are made again with what they hold, and get their tracebacks once the frames are there that
//! these speak of. A traceback through a frame that has left can't be made again.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::PyType;
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};

use super::outcome::{Finish, Made};
use super::recipes::refused;
use crate::breaks::Reason;
use crate::recipe::{Instance, Items, Recipe, RecipeId, Storage};
use crate::recorder::notes::heap;
use crate::trace::{Raised, TracebackEntry};

/// What the C part of an exception holds, in the order in which it is set: a cause says that the
/// context is to be suppressed.
const FIELDS: [&str; 4] = ["args", "__cause__", "__context__", "__suppress_context__"];

/// How many frames of a traceback are made again.
const LONGEST: usize = 64;

/// Whether an exception that nobody vouches for is one of C code, which the trace's own facts made
/// it raise: its class is built in, and its arguments are constants.
pub(in crate::recorder) fn is_raised_by_c_code(object: Borrowed<'_, '_>) -> bool {
    let class = object.get_type();
    object.is_instance_of::<PyBaseException>()
        && heap::is_builtin_type(class.as_any().as_borrowed())
        && fields(&class).is_some()
        && object.getattr("args").is_ok_and(|args| heap::is_constant(args.as_borrowed()))
}

/// Whether instances of a class are laid out as `BaseException`'s, apart from a dictionary and slots.
pub(in crate::recorder) fn has_plain_layout(class: &Bound<'_, PyType>) -> bool {
    fields(class).is_some_and(|fields| fields.is_empty())
}

/// The fields that C classes add to `BaseException`'s, such as `AttributeError.name`: each is a member that can be set.
/// `None`: a class keeps something else.
fn fields<'py>(class: &Bound<'py, PyType>) -> Option<Vec<Object<'py>>> {
    let py = class.py();
    let size =
        |class: &Bound<'_, PyAny>| class.getattr("__basicsize__").ok()?.extract::<usize>().ok();
    let (object, base) = (py.get_type::<PyAny>(), py.get_type::<PyBaseException>());
    let mut found = Vec::new();
    for class in class.mro().iter() {
        if !heap::is_builtin_type(class.as_borrowed()) || class.is(&object) || class.is(&base) {
            continue;
        }
        let class = class.cast_into::<PyType>().ok()?;
        let kept = types::class_dict(class.as_borrowed())?;
        let members = heap::dict_items(kept.as_borrowed()).into_iter().map(|(_, value)| value);
        let own: Vec<_> = members
            .filter(|value| heap::type_name(value.as_borrowed()) == "member_descriptor")
            .collect();
        let added = size(class.as_any())? - size(&class.getattr("__base__").ok()?)?;
        if added != own.len() * size_of::<usize>() {
            return None;
        }
        found.extend(own);
    }
    Some(found)
}

impl Finish<'_> {
    /// The recipe of an exception.
    pub(in crate::recorder) fn exception(&mut self, object: Borrowed<'_, '_>) -> Made<Recipe> {
        let py = object.py();
        let class = object.get_type();
        let refuse = || (Reason::Result, heap::type_name(object));
        let base = py.get_type::<PyBaseException>();
        let Some(own) = fields(&class) else { return Err(refuse()) };
        if base.call_method1("__new__", (&class,)).is_err() {
            return Err(refuse());
        }
        self.traceback(object)?;
        let mut slots = Vec::new();
        let fields = base.getattr("__dict__").map_err(refused)?;
        for name in FIELDS {
            let descriptor = fields.get_item(name).map_err(refused)?;
            let value = descriptor.call_method1("__get__", (object,)).map_err(refused)?;
            // Nothing else holds the arguments' tuple.
            self.temporaries.push(value.clone().unbind());
            if name == "args" && self.state.origin(value.as_borrowed()).is_none() {
                self.state.set_fresh(value.as_borrowed());
            }
            let descriptor = self.keep(descriptor.as_borrowed());
            slots.push((descriptor, self.recipe(value.as_borrowed())?));
        }
        for field in own {
            let value = field.call_method1("__get__", (object,)).map_err(refused)?;
            if !value.is_none() {
                self.temporaries.push(value.clone().unbind());
                let field = self.keep(field.as_borrowed());
                slots.push((field, self.recipe(value.as_borrowed())?));
            }
        }
        for (descriptor, value) in heap::slot_values(object) {
            let descriptor = self.keep(descriptor.as_borrowed());
            slots.push((descriptor, self.recipe(value.as_borrowed())?));
        }
        let mut attributes = Vec::new();
        if let Some(dict) = heap::instance_dict(object) {
            for (name, value) in heap::dict_items(dict.as_borrowed()) {
                // The list that `add_note` has made.
                let is_notes = heap::text(name.as_borrowed()) == "__notes__";
                if is_notes && self.state.origin(value.as_borrowed()).is_none() {
                    self.state.set_fresh(value.as_borrowed());
                }
                let name = self.keep(name.as_borrowed());
                attributes.push((name, self.recipe(value.as_borrowed())?));
            }
        }
        let class = self.keep(class.as_any().as_borrowed());
        let (storage, items) = (Storage::Exception, Items::None);
        Ok(Recipe::Object(Box::new(Instance { class, storage, items, attributes, slots })))
    }

    /// Takes note of an exception's traceback.
    fn traceback(&mut self, object: Borrowed<'_, '_>) -> Made<()> {
        let mut entries = Vec::new();
        let mut next = object.getattr("__traceback__").map_err(refused)?;
        while !next.is_none() {
            let part = |name: &str| -> Made<Object<'_>> { next.getattr(name).map_err(refused) };
            let frame = part("tb_frame")?.as_ptr() as usize;
            let number = |name: &str| -> Made<i32> { part(name)?.extract().map_err(refused) };
            let found = self.standing.iter().position(|standing| *standing == frame);
            let Some(frame) = found.filter(|_| entries.len() < LONGEST) else {
                let detail = format!("a {} with the traceback of a call", heap::type_name(object));
                return Err((Reason::Result, detail));
            };
            let (last, line) = (number("tb_lasti")?, number("tb_lineno")?);
            entries.push(TracebackEntry { frame: frame as u32, last, line });
            next = part("tb_next")?;
        }
        if !entries.is_empty() {
            let made = self.made.get(&(object.as_ptr() as usize)).copied();
            let exception: RecipeId =
                made.ok_or_else(|| (Reason::Result, heap::type_name(object)))?;
            self.raised.push(Raised { exception, traceback: entries.into() });
        }
        Ok(())
    }
}
