//! Objects in messages, and the keys that users select fields by.

use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The name of a class.
pub fn class_name(class: &Bound<'_, PyType>) -> String {
    class.name().map_or_else(|_| class.to_string(), |name| name.to_string())
}

/// An object in a message: its `repr`, cut if it is long, and its class.
pub fn describe(object: &Bound<'_, PyAny>) -> String {
    const LONG: usize = 80;
    if object.is_none() {
        return "None".to_owned();
    }
    let class = class_name(&object.get_type());
    let Ok(text) = object.repr() else { return format!("an instance of {class}") };
    let text = text.to_string_lossy();
    if text.chars().count() > LONG || text.contains('\n') {
        let line = text.lines().next().unwrap_or_default();
        let cut: String = line.chars().take(LONG).collect();
        return format!("{cut}... ({class})");
    }
    format!("{text} ({class})")
}

/// An index into something with fields; negative ones are for the caller to refuse.
pub fn index_key(key: &Bound<'_, PyAny>, of: &str) -> PyResult<i64> {
    key.extract::<i64>().map_err(|_| {
        PyTypeError::new_err(format!(
            "a field of {of} is selected by an int, a str or a slice\n  found:    {}",
            describe(key)
        ))
    })
}

/// The error for a position that isn't there.
pub fn index_error(of: &str, at: i64, len: usize) -> PyErr {
    let has = match len {
        0 => "no fields".to_owned(),
        1 => "one field, 0".to_owned(),
        _ => format!("{len} fields, 0 to {}", len - 1),
    };
    PyIndexError::new_err(format!("there is no field {at}: {of} has {has}"))
}
