//! `json.JSONEncoder.encode`, which has C code look at all that it is given: a Python function that gives the same text
//! is traced in its place, where C code would find builtin containers and plain values alone.
//!
//! What is asked here decides which function is traced. That function asks again, so it is guarded.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use stator_cpython::hook::Suspended;
use stator_cpython::modules;
use stator_cpython::object::Borrowed;

use super::python::KnownFunction;

/// What `encode` does, and what is traced for it. Of a float's text nothing but what is no number has these letters.
const ENCODE: &std::ffi::CStr = c"
import json.encoder
from _json import encode_basestring, encode_basestring_ascii, make_encoder
from json.encoder import JSONEncoder

def known_encode(self, o):
    '''Return a JSON string representation of a Python data structure.

        >>> from json.encoder import JSONEncoder
        >>> JSONEncoder().encode({\"foo\": [\"bar\", \"baz\"]})
        '{\"foo\": [\"bar\", \"baz\"]}'

        '''
    if isinstance(o, str):
        if self.ensure_ascii:
            return encode_basestring_ascii(o)
        else:
            return encode_basestring(o)
    chunks = self.iterencode(o, _one_shot=True)
    if not isinstance(chunks, (list, tuple)):
        chunks = list(chunks)
    return ''.join(chunks)

encode_code = JSONEncoder.encode.__code__
iterencode_code = JSONEncoder.iterencode.__code__
make_code = json.encoder._make_iterencode.__code__

def is_plain(self):
    return (
        type(self) is JSONEncoder
        and 'iterencode' not in self.__dict__
        and JSONEncoder.encode.__code__ is encode_code
        and JSONEncoder.iterencode.__code__ is iterencode_code
        and json.encoder.c_make_encoder is make_encoder
        and json.encoder.encode_basestring is encode_basestring
        and json.encoder.encode_basestring_ascii is encode_basestring_ascii
        and (
            self.indent is None
            or type(self.indent) in (int, str)
            and json.encoder._make_iterencode.__code__ is make_code
        )
        and self.allow_nan is True
        and type(self.key_separator) is str
        and type(self.item_separator) is str
    )

def text_of(value, written, colon, comma, is_sorted, indent, level):
    kind = type(value)
    if kind is str:
        return written(value)
    if value is None:
        return 'null'
    if value is True:
        return 'true'
    if value is False:
        return 'false'
    if kind is int:
        return repr(value)
    if kind is float:
        return repr(value).replace('nan', 'NaN').replace('inf', 'Infinity')
    parts = []
    if kind is not dict:
        for item in value:
            parts.append(text_of(item, written, colon, comma, is_sorted, indent, level + 1))
        return '[' + joined(parts, comma, indent, level) + ']'
    for key in sorted([key for key in value]) if is_sorted else value:
        text = text_of(value[key], written, colon, comma, is_sorted, indent, level + 1)
        parts.append(written(key) + colon + text)
    return '{' + joined(parts, comma, indent, level) + '}'

def joined(parts, comma, indent, level):
    if indent is None or not parts:
        return comma.join(parts)
    line = '\\n' + indent * level
    return line + indent + (comma + line + indent).join(parts) + line

def encode(self, o):
    if not is_plain(self):
        raise SystemError('it was plain')
    written = encode_basestring_ascii if self.ensure_ascii else encode_basestring
    indent = ' ' * self.indent if type(self.indent) is int else self.indent
    return text_of(o, written, self.key_separator, self.item_separator, self.sort_keys, indent, 0)
";

/// `is_plain` of these.
static IS_PLAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// How deep what is encoded may be nested.
const DEPTH: usize = 8;

/// How many values and keys there may be in it.
const MOST: usize = 256;

/// `json.JSONEncoder.encode`, if it is the known one.
///
/// # Errors
/// If something isn't where Python has it.
pub(super) fn encode(py: Python<'_>) -> PyResult<Option<KnownFunction>> {
    let function =
        modules::import(py, "json.encoder")?.getattr("JSONEncoder")?.getattr("encode")?;
    let known = PyModule::from_code(py, ENCODE, c"<stator>", c"_stator_json")?;
    let instead = known.getattr("encode")?;
    IS_PLAIN.get_or_try_init(py, || known.getattr("is_plain").map(Bound::unbind))?;
    let found = KnownFunction::of(&function, &known.getattr("known_encode")?, Some(instead))?;
    Ok(found.map(|known| known.only_for(is_plain)))
}

/// Whether a call encodes plain values with an encoder that does what `json` does.
fn is_plain(args: &[Borrowed<'_, '_>]) -> bool {
    let [encoder, value] = args else { return false };
    let is_plain_encoder = |asks: &Py<PyAny>| {
        let py = encoder.py();
        let _native = Suspended::new(py);
        asks.bind(py).call1((encoder,)).and_then(|answer| answer.is_truthy())
    };
    let mut left = MOST;
    is_plain_value(*value, 0, &mut left)
        && IS_PLAIN.get(encoder.py()).is_some_and(|asks| is_plain_encoder(asks).unwrap_or(false))
}

fn is_plain_value(value: Borrowed<'_, '_>, depth: usize, left: &mut usize) -> bool {
    let Some(less) = left.checked_sub(1) else { return false };
    *left = less;
    let is_within = |item: Bound<'_, PyAny>, left: &mut usize| {
        depth < DEPTH && is_plain_value(item.as_borrowed(), depth + 1, left)
    };
    if let Ok(dict) = value.cast_exact::<PyDict>() {
        return dict
            .iter()
            .all(|(key, item)| key.is_exact_instance_of::<PyString>() && is_within(item, left));
    }
    if let Ok(list) = value.cast_exact::<PyList>() {
        return list.iter().all(|item| is_within(item, left));
    }
    if let Ok(tuple) = value.cast_exact::<PyTuple>() {
        return tuple.iter().all(|item| is_within(item, left));
    }
    value.is_none()
        || value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
}
