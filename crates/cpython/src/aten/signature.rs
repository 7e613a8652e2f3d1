//! What functions of PyTorch's library take, as their names say it, and what they give, as PyTorch's schemas do.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use super::{Gives, Kind, Operator};
use crate::heap::libraries::Library;
use crate::modules;

/// A function that calls an operator.
#[derive(Debug)]
pub(super) struct Signature {
    pub address: *const c_void,
    /// Whether it takes a tensor in front that it writes.
    writes: bool,
    /// Behind that.
    pub parameters: Vec<Kind>,
}

// SAFETY: the address of a function.
unsafe impl Send for Signature {}
// SAFETY: as above; nothing is written.
unsafe impl Sync for Signature {}

/// Those that were asked for, by the address of the name.
static KNOWN: Mutex<Option<FxHashMap<usize, Option<&'static Signature>>>> = Mutex::new(None);

impl Signature {
    /// The function of this name, if it gives what it should and its type is known.
    pub(super) fn of(operator: &Operator) -> Option<&'static Self> {
        let key = operator.symbol.as_ptr() as usize;
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().as_ref().and_then(|known| known.get(&key).copied());
        if let Some(found) = found {
            return found;
        }
        let found = Self::find(operator).filter(|found| {
            found.writes == (operator.gives == Gives::Itself)
                && Python::attach(|py| gives(py, operator).unwrap_or(false))
        });
        let found = found.map(|found| &*Box::leak(Box::new(found)));
        known().get_or_insert_default().insert(key, found);
        found
    }

    fn find(operator: &Operator) -> Option<Self> {
        let address = Library::Cpu.symbol(operator.symbol)?;
        let readable = demangled(operator.symbol)?;
        let (function, parameters) = readable.strip_suffix(')')?.split_once('(')?;
        let name = function.strip_prefix("at::_ops::")?.strip_suffix("::call")?;
        if name != operator.unambiguous() {
            return None;
        }
        let mut parameters = split(parameters).peekable();
        let writes = parameters.next_if_eq(&"at::Tensor&").is_some();
        let parameters = parameters.map(kind).collect::<Option<_>>()?;
        Some(Self { address, writes, parameters })
    }
}

/// Whether PyTorch's schema of the operator says the same of its result.
fn gives(py: Python<'_>, operator: &Operator) -> PyResult<bool> {
    let c = modules::import(py, "torch")?.getattr("_C")?;
    let name = format!("aten::{}", operator.name);
    let schema = c.getattr("_get_schema")?.call1((name, operator.overload))?;
    let returns = schema.getattr("returns")?;
    if returns.len()? != 1 {
        return Ok(false);
    }
    let ty: String = returns.get_item(0)?.getattr("type")?.str()?.extract()?;
    Ok(ty == operator.gives.in_schemas())
}

/// The parameters in a list of them.
fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    list.split(move |letter| {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0
    })
    .map(str::trim)
}

/// What a type of C++'s is.
fn kind(ty: &str) -> Option<Kind> {
    Some(match ty {
        "at::Tensor const&" => Kind::Tensor,
        "std::optional<at::Tensor> const&" => Kind::OptionalTensor,
        "c10::ArrayRef<at::Tensor>" => Kind::Tensors,
        "c10::IListRef<at::Tensor> const&" => Kind::TensorList,
        "c10::Scalar const&" => Kind::Scalar,
        "std::optional<c10::Scalar> const&" => Kind::OptionalScalar,
        "long" => Kind::Int,
        "std::optional<long>" => Kind::OptionalInt,
        "c10::SymInt" => Kind::Size,
        "std::optional<c10::SymInt>" => Kind::OptionalSize,
        "c10::ArrayRef<long>" | "c10::ArrayRef<c10::SymInt>" => Kind::Ints,
        "c10::OptionalArrayRef<long>" | "c10::OptionalArrayRef<c10::SymInt>" => Kind::OptionalInts,
        "bool" => Kind::Bool,
        "std::optional<bool>" => Kind::OptionalBool,
        "double" => Kind::Float,
        "std::optional<double>" => Kind::OptionalFloat,
        "std::optional<c10::ScalarType>" | "std::optional<c10::MemoryFormat>" => Kind::OptionalCode,
        "std::basic_string_view<char, std::char_traits<char> >" => Kind::Text,
        _ => return None,
    })
}

/// A name of C++'s with the types that are in it, as people read it.
fn demangled(name: &CStr) -> Option<String> {
    type Demangle =
        unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut i32) -> *mut c_char;
    // SAFETY: C++'s runtime, which PyTorch's library is linked with, has a function of this type and name.
    let demangle: Demangle = unsafe { Library::Cpu.function(c"__cxa_demangle")? };
    let mut status = 0;
    // SAFETY: a C string; the result is one that `malloc` made, or null.
    unsafe {
        let made = demangle(name.as_ptr(), ptr::null_mut(), ptr::null_mut(), &mut status);
        if made.is_null() {
            return None;
        }
        let readable = CStr::from_ptr(made).to_str().ok().map(str::to_owned);
        libc::free(made.cast());
        readable
    }
}
