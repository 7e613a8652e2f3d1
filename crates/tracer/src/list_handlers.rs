//! Handlers that keep what they are told: methods that do nothing but append the record, or what C
//! code makes of it, to a list. `self.records.append(record)` is what programs and tests write.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use smallvec::SmallVec;
use stator_bytecode::Meaning;
use stator_cpython::code::Code;
use stator_cpython::heap::dict::{self, InstanceDict, Lookup};
use stator_cpython::heap::function::{Field, value};
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::opcode::NULL_IS_ABOVE;
use stator_cpython::ops;

/// What an object's own dictionary holds.
pub fn own<'py>(object: Borrowed<'_, 'py>, name: &str) -> Option<Object<'py>> {
    match dict::instance_dict(object) {
        InstanceDict::Dict(dict) => entry(dict.as_borrowed(), name),
        InstanceDict::None | InstanceDict::Failed => None,
    }
}

/// What an object's class has.
pub fn method<'py>(object: Borrowed<'_, 'py>, name: &str) -> Option<Object<'py>> {
    let name = PyString::intern(object.py(), name);
    types::lookup(object.get_type().as_borrowed(), name.as_any().as_borrowed())
}

/// What a dictionary holds at a key.
pub fn entry<'py>(dict: Borrowed<'_, 'py>, key: &str) -> Option<Object<'py>> {
    let key = PyString::intern(dict.py(), key);
    match dict::get(dict, key.as_any().as_borrowed()) {
        Lookup::Found(value) => Some(value),
        Lookup::Absent | Lookup::Refused => None,
    }
}

/// A value of the method, as far as it is known.
enum Known<'py> {
    /// The `NULL` below a callable.
    Null,
    /// An object.
    Object(Object<'py>),
    /// The record.
    Record,
    /// `getMessage` of the record.
    GetMessage,
    /// `append` of a list.
    Append(usize),
    /// A number, a text or a tuple of such, or `None`.
    Plain,
}

/// The attributes of a record that are plain whatever was logged.
const PLAIN: &[&str] = &[
    "name",
    "levelname",
    "levelno",
    "lineno",
    "funcName",
    "pathname",
    "filename",
    "module",
    "stack_info",
];

/// The list that `emit` appends to when it is called as a method of `handler`, by address; `None`:
/// it does something else.
pub fn list_of(emit: Borrowed<'_, '_>, handler: Borrowed<'_, '_>) -> Option<usize> {
    let code = value(emit, Field::Code)?;
    let code = Code::of(code.as_borrowed())?;
    if code.argcount() != 2 || code.kwonlyargcount() != 0 {
        return None;
    }
    let globals = value(emit, Field::Globals)?;
    let closure = value(emit, Field::Closure);
    let mut stack: SmallVec<[Known<'_>; 8]> = SmallVec::new();
    let local = |index| match index {
        0 => Some(Known::Object(handler.to_owned())),
        1 => Some(Known::Record),
        _ => None,
    };
    let mut list = None;
    let mut at = 0;
    while let Some(unit) = code.unit(at) {
        at = unit.next;
        match unit.meaning() {
            Meaning::Begin | Meaning::CopyFree | Meaning::Nothing => {}
            Meaning::Constant(_) => stack.push(Known::Plain),
            Meaning::Local(index) => stack.push(local(index)?),
            Meaning::Locals(first, second) => {
                stack.push(local(first)?);
                stack.push(local(second)?);
            }
            Meaning::Free(index) => {
                let free = (index as usize).checked_sub(code.first_free())?;
                let cells =
                    closure.as_ref()?.cast::<pyo3::types::PyTuple>().ok()?.get_item(free).ok()?;
                stack.push(Known::Object(ops::load_cell(cells.as_borrowed())?));
            }
            Meaning::Global { name, with_null } => {
                let key = code.name_at(name as usize);
                let found = match dict::get(globals.as_borrowed(), key) {
                    Lookup::Found(found) => Known::Object(found),
                    Lookup::Absent | Lookup::Refused => return None,
                };
                if with_null {
                    stack.extend(callable(found));
                } else {
                    stack.push(found);
                }
            }
            Meaning::Attribute { name, is_method: false } => {
                let key = text(code.name_at(name as usize));
                let found = match stack.pop()? {
                    Known::Record if PLAIN.contains(&key.as_str()) => Known::Plain,
                    // An attribute that the class says nothing of.
                    Known::Object(owner)
                        if method(owner.as_borrowed(), &key).is_none()
                            && is_plain_object(&owner) =>
                    {
                        Known::Object(own(owner.as_borrowed(), &key)?)
                    }
                    _ => return None,
                };
                stack.push(found);
            }
            Meaning::Attribute { name, is_method: true } => {
                let key = text(code.name_at(name as usize));
                let found = match stack.pop()? {
                    Known::Record if key == "getMessage" => Known::GetMessage,
                    Known::Object(owner)
                        if key == "append" && owner.is_exact_instance_of::<PyList>() =>
                    {
                        Known::Append(owner.as_ptr() as usize)
                    }
                    _ => return None,
                };
                stack.extend(callable(found));
            }
            Meaning::Call { count } => {
                let arguments: Vec<_> = (0..count).map(|_| stack.pop()).collect::<Option<_>>()?;
                let [above, below] = [stack.pop()?, stack.pop()?];
                let called = if NULL_IS_ABOVE { below } else { above };
                match (called, arguments.as_slice()) {
                    (Known::GetMessage, []) => {}
                    (Known::Append(address), [Known::Record | Known::Plain])
                        if list.is_none_or(|known| known == address) =>
                    {
                        list = Some(address);
                    }
                    _ => return None,
                }
                stack.push(Known::Plain);
            }
            Meaning::Tuple { count } => {
                for _ in 0..count {
                    let (Known::Plain | Known::Record) = stack.pop()? else { return None };
                }
                stack.push(Known::Plain);
            }
            Meaning::Pop => drop(stack.pop()?),
            Meaning::Return => return list,
            _ => return None,
        }
    }
    None
}

/// What is called next, and what says that it has no receiver, as they lie on the stack.
fn callable(found: Known<'_>) -> [Known<'_>; 2] {
    if NULL_IS_ABOVE { [found, Known::Null] } else { [Known::Null, found] }
}

fn text(name: Borrowed<'_, '_>) -> String {
    name.cast::<PyString>()
        .map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned())
}

/// Whether attributes of an object are read as `object.__getattribute__` reads them.
fn is_plain_object(object: &Object<'_>) -> bool {
    let py = object.py();
    let plain = py.get_type::<PyAny>();
    let name = pyo3::intern!(py, "__getattribute__").as_any().as_borrowed();
    let found = stator_cpython::heap::types::lookup(object.get_type().as_borrowed(), name);
    let expected = stator_cpython::heap::types::lookup(plain.as_borrowed(), name);
    matches!((found, expected), (Some(found), Some(expected)) if found.is(&expected))
}
