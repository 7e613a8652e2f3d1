//! Names: globals, builtins, cells and imports.

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyString};
use stator_cpython::code::Code;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, ops};
use stator_guards::{GuardKind, Source};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::effects::CELL;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::objects::Mark;
use crate::recorder::notes::reads::Use;
use crate::recorder::notes::state::{Origin, State, Stop};

/// How far around a function's frame the owners of its cells are looked for.
const MAX_NESTING: usize = 64;

impl Recorder {
    /// `LOAD_GLOBAL`.
    pub(in crate::recorder) fn global<'py>(
        &self,
        frame: &Frame<'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        if self.is_stopped() {
            return ops::load_global(frame, name);
        }
        let (globals, builtins) = (frame.globals(), frame.builtins());
        if let Some(value) = self.recent_global(globals, builtins, name) {
            return Ok(value);
        }
        let found = heap::dict_get(globals, name);
        let from_builtins = match &found {
            Some(_) => None,
            None => heap::dict_get(builtins, name),
        };
        let own = self.note(frame, |state| {
            let slot = (globals.as_ptr() as usize, name.as_ptr() as usize);
            if !state.policy.is_static()
                && let Some(value) = &found
            {
                state.namespace(frame, globals, false)?;
                return state.read_slot_value(globals, name, value.as_borrowed());
            }
            if state.reads.has(&slot) {
                let value = found.as_ref().or(from_builtins.as_ref());
                state.remember_global(globals, builtins, name, found.is_some(), value);
                return Ok(None);
            }
            state.namespace(frame, globals, false)?;
            state.read_dict_slot(globals, name, found.as_ref().map(|value| value.as_borrowed()))?;
            if found.is_none() {
                state.namespace(frame, builtins, true)?;
                let value = from_builtins.as_ref().map(|value| value.as_borrowed());
                state.read_dict_slot(builtins, name, value)?;
            }
            Ok(None)
        });
        match own.flatten().or(found).or(from_builtins) {
            Some(value) => Ok(value),
            None => ops::load_global(frame, name),
        }
    }

    /// `globals()`.
    pub(in crate::recorder) fn namespace_of<'py>(&self, frame: &Frame<'py>) -> Object<'py> {
        let globals = frame.globals();
        self.note(frame, |state| state.namespace(frame, globals, false));
        globals.to_owned()
    }

    /// Contents of a cell: outside if the cell belongs to the closure of an outside function.
    pub(in crate::recorder) fn cell<'py>(
        &self,
        frame: &Frame<'py>,
        cell: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let value = ops::load_cell(cell);
        let own = self.note(frame, |state| {
            if state.origin(cell) == Some(Origin::Fresh) {
                state.look_enclosed(cell.as_ptr() as usize);
                return Ok(None);
            }
            let source = state.cell_source(frame, cell)?;
            let held = value.as_ref().map(|value| value.as_borrowed());
            state.read_cell(cell, source, held)?;
            Ok(state.cell_stand_in(cell))
        });
        own.flatten().or(value)
    }

    /// What `from ..name import` names, by the package that the frame's globals name; its reads are guarded.
    /// `None`: CPython would ask for more than that name.
    fn absolute_name(&self, frame: &Frame<'_>, name: &str, level: usize) -> Result<Option<String>> {
        let py = frame.py();
        let [package, spec] = ["__package__", "__spec__"].map(|name| PyString::intern(py, name));
        let (package, spec) = (package.as_any().as_borrowed(), spec.as_any().as_borrowed());
        let is_known =
            [package, spec].iter().all(|name| heap::dict_get(frame.globals(), *name).is_some());
        if !is_known {
            return Ok(None);
        }
        let (package, spec) = (self.global(frame, package)?, self.global(frame, spec)?);
        let parent = {
            let _native = stator_cpython::hook::Suspended::new(py);
            let is_plain = heap::type_name(spec.as_borrowed()) == "ModuleSpec";
            is_plain.then(|| spec.getattr("parent").ok()).flatten()
        };
        let agrees = parent.is_some_and(|parent| {
            parent.is_exact_instance_of::<PyString>()
                && package.is_exact_instance_of::<PyString>()
                && heap::text(parent.as_borrowed()) == heap::text(package.as_borrowed())
        });
        if !agrees {
            return Ok(None);
        }
        let package = heap::text(package.as_borrowed());
        let Some(base) = (1..level).try_fold(&*package, |base, _| Some(base.rsplit_once('.')?.0))
        else {
            return Ok(None);
        };
        let absolute = if name.is_empty() { base.to_owned() } else { format!("{base}.{name}") };
        Ok((!base.is_empty()).then_some(absolute))
    }

    /// `IMPORT_NAME` of a module that is loaded already.
    pub(in crate::recorder) fn import<'py>(
        &self,
        frame: &Frame<'py>,
        name: Borrowed<'_, 'py>,
        from: Borrowed<'_, 'py>,
        level: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        if self.is_stopped() {
            return ops::import_name(frame, name, from, level);
        }
        let text = match level.extract::<usize>() {
            Ok(0) => Some(heap::text(name)),
            Ok(level) => self.absolute_name(frame, &heap::text(name), level)?,
            Err(_) => None,
        };
        let Some(text) = text else {
            self.stop(frame, Reason::OpaqueCall, format!("import of {}", heap::text(name)));
            return ops::import_name(frame, name, from, level);
        };
        let loaded = heap::loaded_module(frame.py(), &text);
        // A part of PyTorch that is loaded late: `torch._check` has such a line.
        let is_torch =
            || text.starts_with("torch.") && heap::loaded_module(frame.py(), "torch").is_some();
        if loaded.is_none() && !is_torch() {
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

    /// `sys._getframemodulename(depth)`: the module of the function whose frame it is, if the trace has called it.
    pub(in crate::recorder) fn module_of_frame<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Some(asked) = self.frame_at_depth(call) else {
            self.stop(call.frame, Reason::Instruction, heap::name_of(call.callable));
            return call.natively();
        };
        let name = pyo3::intern!(call.frame.py(), "__module__").as_any().as_borrowed();
        self.get_attr(call.frame, asked.function(), name)
    }

    /// The frame of the trace that a constant depth leads to.
    fn frame_at_depth<'py>(&self, call: Call<'_, 'py>) -> Option<Frame<'py>> {
        let Call { frame, args: [depth], names: None, .. } = call else { return None };
        if self.kind(*depth) != Kind::Constant || self.is_stopped() {
            return None;
        }
        let depth: usize = depth.extract().ok()?;
        let state = self.state.borrow();
        let mut known = state.frames.active().iter().rev().map(|active| active.id);
        let mut asked = *frame;
        for _ in 0..depth {
            if known.next() != Some(asked.id()) {
                return None;
            }
            asked = asked.previous()?;
        }
        (known.next() == Some(asked.id())).then_some(asked)
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

    /// A function is made, which shares the namespaces of the one that makes it. Behind a graph break or a way out nobody
    /// has asked for them yet.
    pub(in crate::recorder) fn share_namespace(
        &mut self,
        frame: &Frame<'_>,
    ) -> std::result::Result<(), Stop> {
        // The body of a class: the class is another one in each call, and so is what guards say of it.
        let mut waits = frame.stack().iter().rev().take(2).copied().flatten();
        let is_body = waits.any(|it| {
            it.is_exact_instance_of::<PyCFunction>() && heap::name_of(it) == "__build_class__"
        });
        match self.source(frame.function()) {
            Some(_) if !is_body => {
                self.namespace(frame, frame.globals(), false)?;
                self.namespace(frame, frame.builtins(), true)
            }
            _ => Ok(()),
        }
    }

    /// The source of an outside cell: an element of the closure of the frame's function.
    pub(in crate::recorder) fn cell_source(
        &mut self,
        frame: &Frame<'_>,
        cell: Borrowed<'_, '_>,
    ) -> std::result::Result<stator_guards::SourceId, Stop> {
        // A function made by this trace has its cells from one around it.
        let around = std::iter::successors(Some(*frame), Frame::previous);
        let found = around.take(MAX_NESTING).find_map(|frame| {
            let function = self.source(frame.function())?;
            Some((function, heap::tuple_position(frame.closure()?, cell)?))
        });
        let known = self.source(cell);
        let Some((parent, index)) = found else {
            let unknown = || (Reason::UnknownOrigin, "a variable of an enclosing function".into());
            return known.ok_or_else(unknown);
        };
        let source = self.sources.intern(Source::ClosureCell { parent, index });
        match known {
            None => {
                self.objects.adopt(cell, source);
                Ok(source)
            }
            Some(known) => {
                // Two functions that share it: functions made for each call may not.
                if known != source && self.reads.first_shared(source) {
                    self.guard(source, GuardKind::SameAs(known));
                }
                Ok(known)
            }
        }
    }

    /// Reads a cell of an enclosing function: guards it, unless this trace wrote it.
    pub fn read_cell(
        &mut self,
        cell: Borrowed<'_, '_>,
        source: stator_guards::SourceId,
        value: Option<Borrowed<'_, '_>>,
    ) -> std::result::Result<(), Stop> {
        let used = self.moving();
        let slot = (cell.as_ptr() as usize, CELL);
        if self.has_written(&slot) || !self.reads.first(slot) {
            if !used.moves {
                self.fix_slot(cell.py(), slot);
            }
            return Ok(());
        }
        match value {
            Some(value) => {
                let contents = self.sources.intern(Source::CellContents(source));
                self.adopt_slot(used, slot, contents, value)
            }
            None => {
                self.guard(source, GuardKind::CellEmpty);
                Ok(())
            }
        }
    }

    /// What stands for the number in a cell, unless this trace wrote it.
    fn cell_stand_in<'py>(&self, cell: Borrowed<'_, 'py>) -> Option<Object<'py>> {
        let slot = (cell.as_ptr() as usize, CELL);
        if self.enclosed.hides(slot.0) { None } else { self.slot_stand_in(cell.py(), slot) }
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
        // What a list holds is guarded as soon as somebody looks: calls may only add to it.
        let held = Use { only_adds: true, ..Use::default() };
        let part = |source| self.sources.intern(source);
        let [code, defaults, keywords] =
            [Source::Code(source), Source::Defaults(source), Source::KwDefaults(source)].map(part);
        if let Some(object) = heap::function_code(function) {
            self.adopt(code, object.as_borrowed())?;
        }
        // A missing default was a reason to raise where an argument wasn't given.
        match heap::function_defaults(function) {
            Some(object) => self.adopt_for(held, defaults, object.as_borrowed())?,
            None => self.guard(source, GuardKind::NoDefaults),
        }
        match heap::function_kwdefaults(function) {
            Some(object) => {
                self.adopt(keywords, object.as_borrowed())?;
                self.adopt_dict_for(held, object.as_borrowed())?;
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
