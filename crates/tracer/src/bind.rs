//! Binding: a call's arguments as the bound locals of a function's frame.
//!
//! It follows the rules of CPython's own binding. Where the arguments don't fit, it says so, and
//! the caller lets the function itself raise.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use smallvec::SmallVec;
use stator_cpython::code::Code;
use stator_cpython::heap::function::{Field, value};
use stator_cpython::object::Object;

const VARARGS: u32 = 0x4;
const VARKEYWORDS: u32 = 0x8;
const GENERATOR: u32 = 0x20;
const COROUTINE: u32 = 0x80;
const ASYNC_GENERATOR: u32 = 0x200;

/// What binding needs to know of a code object.
#[derive(Debug)]
pub struct Signature {
    positional: usize,
    positional_only: usize,
    keyword_only: usize,
    has_varargs: bool,
    has_varkeywords: bool,
    names: Vec<Py<PyAny>>,
    /// Address of the code object this is the signature of.
    pub code: usize,
    /// Whether calls make a generator, coroutine or asynchronous generator.
    pub is_suspendable: bool,
}

/// Bound locals, in the order of the frame's.
pub type Locals<'py> = SmallVec<[Object<'py>; 8]>;

impl Signature {
    /// The signature of a function.
    #[must_use]
    pub fn of(function: &Bound<'_, PyAny>) -> Option<Self> {
        let code_object = value(function.as_borrowed(), Field::Code)?;
        let code = Code::of(code_object.as_borrowed())?;
        let flags = code.flags();
        let positional = code.argcount();
        let keyword_only = code.kwonlyargcount();
        let names = (0..positional + keyword_only)
            .map(|index| code.local_name(index).to_owned().unbind())
            .collect();
        Some(Self {
            positional,
            positional_only: code.posonlyargcount(),
            keyword_only,
            has_varargs: flags & VARARGS != 0,
            has_varkeywords: flags & VARKEYWORDS != 0,
            names,
            code: code_object.as_ptr() as usize,
            is_suspendable: flags & (GENERATOR | COROUTINE | ASYNC_GENERATOR) != 0,
        })
    }

    /// Binds arguments; `None`: they don't fit.
    #[must_use]
    pub fn bind<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> Option<Locals<'py>> {
        let py = function.py();
        let given = args.len();
        let simple = self.keyword_only == 0 && !self.has_varargs && !self.has_varkeywords;
        let kwargs = kwargs.filter(|kwargs| !kwargs.is_empty());
        if simple && given == self.positional && kwargs.is_none() {
            return Some(args.iter().collect());
        }
        if given > self.positional && !self.has_varargs {
            return None;
        }
        let named = self.positional + self.keyword_only;
        let mut slots: SmallVec<[Option<Object<'py>>; 8]> =
            args.iter().take(self.positional).map(Some).collect();
        slots.resize(named, None);
        let extra = self.has_varkeywords.then(|| PyDict::new(py));
        for (name, value) in kwargs.into_iter().flatten() {
            match self.position(&name) {
                Some(index) => {
                    if slots[index].replace(value).is_some() {
                        return None;
                    }
                }
                None => extra.as_ref()?.set_item(name, value).ok()?,
            }
        }
        self.fill_defaults(function, &mut slots)?;
        let mut locals: Locals<'py> = slots.into_iter().collect::<Option<_>>()?;
        if self.has_varargs {
            let rest = args.get_slice(self.positional.min(given), given);
            locals.push(rest.into_any());
        }
        locals.extend(extra.map(Bound::into_any));
        Some(locals)
    }

    fn position(&self, name: &Bound<'_, PyAny>) -> Option<usize> {
        let nameable = &self.names[self.positional_only..];
        let found = nameable.iter().position(|known| known.is(name)).or_else(|| {
            let text = name.cast::<PyString>().ok()?;
            nameable.iter().position(|known| {
                known
                    .bind(name.py())
                    .cast::<PyString>()
                    .is_ok_and(|known| known.to_cow().ok() == text.to_cow().ok())
            })
        })?;
        Some(found + self.positional_only)
    }

    fn fill_defaults<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        slots: &mut [Option<Object<'py>>],
    ) -> Option<()> {
        if slots[..self.positional].iter().any(Option::is_none) {
            let defaults = value(function.as_borrowed(), Field::Defaults)?;
            let defaults = defaults.cast::<PyTuple>().ok()?;
            let first = self.positional.checked_sub(defaults.len())?;
            for (index, default) in (first..self.positional).zip(defaults.iter()) {
                slots[index].get_or_insert(default);
            }
        }
        if slots[self.positional..].iter().any(Option::is_none) {
            let defaults = value(function.as_borrowed(), Field::KwDefaults)?;
            let defaults = defaults.cast::<PyDict>().ok()?;
            let names = &self.names[self.positional..];
            for (slot, name) in slots[self.positional..].iter_mut().zip(names) {
                if slot.is_none() {
                    *slot = Some(defaults.get_item(name).ok()??);
                }
            }
        }
        Some(())
    }
}
