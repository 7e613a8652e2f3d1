//! Names: globals, builtins, cells and imports.

use pyo3::prelude::*;
use stator_cpython::code::Code;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, ops};
use stator_guards::{GuardKind, Source};

use super::Recorder;
use super::kinds::Kind;
use super::look as heap;
use super::objects::Mark;
use super::state::{Origin, State, Stop};
use crate::breaks::Reason;

impl Recorder {
    /// `LOAD_GLOBAL`.
    pub(super) fn global<'py>(
        &self,
        frame: &Frame<'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        if self.is_stopped() {
            return ops::load_global(frame, name);
        }
        let (globals, builtins) = (frame.globals(), frame.builtins());
        let found = heap::dict_get(globals, name);
        let from_builtins = match &found {
            Some(_) => None,
            None => heap::dict_get(builtins, name),
        };
        self.note(frame, |state| {
            let slot = (globals.as_ptr() as usize, name.as_ptr() as usize);
            if state.read_slots.contains(&slot) {
                return Ok(());
            }
            state.namespace(frame, globals, false)?;
            state.read_dict_slot(globals, name, found.as_ref().map(|value| value.as_borrowed()))?;
            if found.is_none() {
                state.namespace(frame, builtins, true)?;
                let value = from_builtins.as_ref().map(|value| value.as_borrowed());
                state.read_dict_slot(builtins, name, value)?;
            }
            Ok(())
        });
        match found.or(from_builtins) {
            Some(value) => Ok(value),
            None => ops::load_global(frame, name),
        }
    }

    /// Contents of a cell: outside if the cell belongs to the closure of an outside function.
    pub(super) fn cell<'py>(
        &self,
        frame: &Frame<'py>,
        cell: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let value = ops::load_cell(cell);
        self.note(frame, |state| {
            if state.origin(cell) == Some(Origin::Fresh) {
                return Ok(());
            }
            let source = state.cell_source(frame, cell)?;
            let contents = state.sources.intern(Source::CellContents(source));
            match &value {
                Some(value) => state.adopt(contents, value.as_borrowed()),
                None => {
                    state.guard(source, GuardKind::CellEmpty);
                    Ok(())
                }
            }
        });
        value
    }

    /// `STORE_DEREF` and `DELETE_DEREF`.
    pub(super) fn set_cell<'py>(
        &self,
        frame: &Frame<'py>,
        cell: Borrowed<'_, 'py>,
        value: Option<Object<'py>>,
    ) {
        if !self.is_stopped() && self.origin(cell) != Some(Origin::Fresh) {
            self.stop(frame, Reason::OutsideWrite, "a variable of an enclosing function");
        }
        ops::store_cell(cell, value);
    }

    /// `IMPORT_NAME` of a module that is loaded already.
    pub(super) fn import<'py>(
        &self,
        frame: &Frame<'py>,
        name: Borrowed<'_, 'py>,
        from: Borrowed<'_, 'py>,
        level: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        if self.is_stopped() {
            return ops::import_name(frame, name, from, level);
        }
        let text = heap::text(name);
        let loaded = heap::loaded_module(frame.py(), &text);
        if loaded.is_none() || level.extract::<i64>().unwrap_or(1) != 0 {
            self.stop(frame, Reason::OpaqueCall, format!("import of {text}"));
            return ops::import_name(frame, name, from, level);
        }
        let module = {
            let _native = stator_cpython::hook::Suspended::new(frame.py());
            ops::import_name(frame, name, from, level)?
        };
        // `import a.b` gives `a`; `from a.b import c` gives `a.b`.
        let found = if from.is_none() { text.split('.').next().unwrap_or(&text) } else { &text };
        self.note(frame, |state| {
            let source = state.sources.intern(Source::SysModule { name: found.into() });
            state.adopt(source, module.as_borrowed())
        });
        Ok(module)
    }
}

impl State {
    /// Gives a frame's globals (or builtins) a source, by way of its function.
    fn namespace(
        &mut self,
        frame: &Frame<'_>,
        namespace: Borrowed<'_, '_>,
        builtins: bool,
    ) -> std::result::Result<(), Stop> {
        if self.source(namespace).is_some() {
            return Ok(());
        }
        if self.kind(namespace) != Kind::Dict || !heap::is_exact_dict(namespace) {
            return Err((
                Reason::Unsupported,
                format!("a {} as namespace", heap::type_name(namespace)),
            ));
        }
        let function = frame.function();
        let Some(function) = self.source(function) else {
            return Err((Reason::UnknownOrigin, "a function whose namespace has no source".into()));
        };
        let source = if builtins { Source::Builtins(function) } else { Source::Globals(function) };
        let source = self.sources.intern(source);
        self.objects.adopt(namespace, source);
        Ok(())
    }

    /// The source of an outside cell: an element of the closure of the frame's function.
    fn cell_source(
        &mut self,
        frame: &Frame<'_>,
        cell: Borrowed<'_, '_>,
    ) -> std::result::Result<stator_guards::SourceId, Stop> {
        if let Some(source) = self.source(cell) {
            return Ok(source);
        }
        let unknown = || (Reason::UnknownOrigin, "a variable of an enclosing function".to_string());
        let function = self.source(frame.function()).ok_or_else(unknown)?;
        let closure = frame.closure().ok_or_else(unknown)?;
        let index =
            heap::tuple_items(closure).iter().position(|item| item.is(cell)).ok_or_else(unknown)?;
        let source = self.sources.intern(Source::ClosureCell { parent: function, index });
        self.objects.adopt(cell, source);
        Ok(source)
    }

    /// A function's frame starts: guards the parts of an outside function that its behaviour
    /// depends on (code and defaults; closure and globals are guarded where they are read).
    pub fn enter_function(&mut self, frame: &Frame<'_>) -> std::result::Result<(), Stop> {
        if frame.unit() == 0 {
            for index in variadic_slots(&frame.code()) {
                if let Some(made) = frame.local(index) {
                    self.set_fresh(made);
                }
            }
        }
        let function = frame.function();
        let Some(source) = self.source(function) else {
            return match self.origin(function) {
                Some(_) => Ok(()),
                None => {
                    Err((Reason::UnknownOrigin, format!("function {}", heap::name_of(function))))
                }
            };
        };
        if !self.objects.mark(function, Mark::Entered) {
            return Ok(());
        }
        // Functions that this one makes share its namespaces.
        self.namespace(frame, frame.globals(), false)?;
        self.namespace(frame, frame.builtins(), true)?;
        self.guard_parts(function, source)
    }

    /// As [`State::enter_function`] for one whose work the recorder does itself; false: it has no source.
    pub fn enter_known(&mut self, function: Borrowed<'_, '_>) -> std::result::Result<bool, Stop> {
        let Some(source) = self.source(function) else { return Ok(false) };
        if self.objects.mark(function, Mark::Entered) {
            self.guard_parts(function, source)?;
        }
        Ok(true)
    }

    /// Guards code and defaults of an outside function.
    fn guard_parts(
        &mut self,
        function: Borrowed<'_, '_>,
        source: stator_guards::SourceId,
    ) -> std::result::Result<(), Stop> {
        let part = |source| self.sources.intern(source);
        let [code, defaults, keywords] =
            [Source::Code(source), Source::Defaults(source), Source::KwDefaults(source)].map(part);
        if let Some(object) = heap::function_code(function) {
            self.adopt(code, object.as_borrowed())?;
        }
        // A missing default was a reason to raise where an argument wasn't given.
        match heap::function_defaults(function) {
            Some(object) => self.adopt(defaults, object.as_borrowed())?,
            None => self.guard(source, GuardKind::NoDefaults),
        }
        match heap::function_kwdefaults(function) {
            Some(object) => {
                self.adopt(keywords, object.as_borrowed())?;
                self.adopt_dict(object.as_borrowed())?;
            }
            None => self.guard(source, GuardKind::NoKwDefaults),
        }
        Ok(())
    }
}

impl State {
    /// A function raised without having been entered: its arguments didn't fit.
    pub fn refused_arguments(
        &mut self,
        function: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        match self.source(function) {
            Some(source) if self.objects.mark(function, Mark::Entered) => {
                self.guard_parts(function, source)
            }
            _ => Ok(()),
        }
    }
}

/// The slots of `*args` and `**kwargs`, which CPython makes for each call.
pub fn variadic_slots(code: &Code<'_>) -> std::ops::Range<usize> {
    const VARARGS: u32 = 0x4;
    const VARKEYWORDS: u32 = 0x8;
    let named = code.argcount() + code.kwonlyargcount();
    let flags = code.flags();
    let variadic = usize::from(flags & VARARGS != 0) + usize::from(flags & VARKEYWORDS != 0);
    named..named + variadic
}
