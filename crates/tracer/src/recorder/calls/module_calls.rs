//! Calls of modules without hooks: what the frames between `module(x)` and `forward` read, read and guarded
//! here at once. The frames are there, for tracebacks and for whoever looks at them; only the stretches
//! of instructions that [`ModuleCall`] knows aren't evaluated.
//!
//! A stretch is skipped where it would find nothing: every condition is looked at each time, because the
//! trace itself may have changed what it reads. What has been guarded isn't guarded again.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyModule, PyTuple, PyWeakrefReference};
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::dict::{self, Lookup};
use stator_cpython::heap::types::{self, Slot, SlotName};
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::opcode::NULL_IS_ABOVE;
use stator_cpython::thread::Deferred;
use stator_cpython::{Raised, Result, ops, vectorcall};
use stator_evaluator::Role;
use stator_evaluator::sites::Skip;
use stator_guards::{GuardKind, ObjectId, Text, Vacancy};

use crate::functions::{ModuleCall, Passes};
use crate::recorder::Recorder;
use crate::recorder::notes::call::{Call, spread};
use crate::recorder::notes::calls::Globals;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::State;

/// Whether a dictionary lacks some keys, and holds empty dictionaries at others.
fn is_vacant(dict: Borrowed<'_, '_>, absent: &[&Py<PyAny>], empty: &[Py<PyAny>]) -> bool {
    let get = |name: &Py<PyAny>| dict::get(dict, name.bind_borrowed(dict.py()));
    absent.iter().all(|name| matches!(get(name), Lookup::Absent))
        && empty.iter().all(|name| match get(name) {
            Lookup::Found(found) => dict::is_plain_empty(found.as_borrowed()),
            Lookup::Absent | Lookup::Refused => false,
        })
}

/// A callable without a receiver, as it lies on the stack.
fn callable_and_null(callable: Object<'_>) -> [Option<Object<'_>>; 2] {
    if NULL_IS_ABOVE { [Some(callable), None] } else { [None, Some(callable)] }
}

impl Recorder {
    /// Does the work of a known stretch, if this frame begins with one and finds nothing to do.
    pub(in crate::recorder) fn skip_module_call<'py>(
        &self,
        frame: &Frame<'py>,
    ) -> Option<Skip<'py>> {
        let known = self.functions.module_call()?;
        let code = frame.code().as_ptr() as usize;
        if code != known.outer.code() && code != known.inner.code() {
            return None;
        }
        if code == known.outer.code() {
            self.tally.module();
        }
        // Marks, and tests that break everywhere, speak of single instructions.
        if self.is_stopped() || self.has_marks || self.trace_log {
            return None;
        }
        let py = frame.py();
        if code == known.outer.code() {
            let module = frame.local(0)?;
            let absent = [&known.compiled, &known.call];
            if !self.is_plainly_called(frame, known, module, &absent, &[]) {
                return None;
            }
            let method =
                self.python_method(frame, known.inner.function().bind_borrowed(py), module);
            if let Some(passes) = &known.outer_passes
                && let (Some(args), Some(kwargs)) =
                    (frame.local(passes.args), frame.local(passes.kwargs))
                && let Some(skip) = self.pass_on(frame, passes, &method, args, kwargs)
            {
                return Some(skip);
            }
            let push = SmallVec::from_iter(callable_and_null(method));
            return Some(Skip { push, unit: known.outer_end, calls: false });
        }
        let [cell, target] = known.cells;
        let module = ops::load_cell(frame.local(cell)?)?;
        let module = module.as_borrowed();
        if !self.is_plainly_called(frame, known, module, &[&known.forward], &known.hooks)
            || !self.has_plain_globals(frame, known)
        {
            return None;
        }
        let ty = module.get_type();
        let forward = types::lookup(ty.as_borrowed(), known.forward.bind_borrowed(py))?;
        let method = self.python_method(frame, forward.as_borrowed(), module);
        ops::store_cell(frame.local(target)?, Some(method.clone()));
        let held = |index| ops::load_cell(frame.local(index)?);
        if let Some(passes) = &known.inner_passes
            && let (Some(args), Some(kwargs)) = (held(passes.args), held(passes.kwargs))
            && let Some(skip) =
                self.pass_on(frame, passes, &method, args.as_borrowed(), kwargs.as_borrowed())
        {
            return Some(skip);
        }
        Some(Skip { push: SmallVec::new(), unit: known.inner_end, calls: false })
    }

    /// The operands of the call that such a frame ends with: its own `args`, and a copy of its `kwargs`. Nobody else
    /// has either, so nothing is read by that; `None`: somebody may look at it.
    fn pass_on<'py>(
        &self,
        frame: &Frame<'py>,
        passes: &Passes,
        method: &Object<'py>,
        args: Borrowed<'_, 'py>,
        kwargs: Borrowed<'_, 'py>,
    ) -> Option<Skip<'py>> {
        if self.is_watchful || self.watches_finalizers() || self.session.program.is_some() {
            return None;
        }
        let kwargs = kwargs.cast_exact::<PyDict>().ok()?;
        if !args.is_exact_instance_of::<PyTuple>() {
            return None;
        }
        {
            let state = self.state.borrow();
            // What the first frame of all is given is from outside.
            if state.frames.active().len() < 2 || state.enclosed.is_on() {
                return None;
            }
        }
        let copy = kwargs.copy().ok()?.into_any();
        self.note(frame, |state| {
            state.set_fresh(copy.as_borrowed());
            Ok(())
        });
        self.tally.instructions(passes.instructions as u64 - 1);
        let mut push = SmallVec::from_iter(callable_and_null(method.clone()));
        push.extend([Some(args.to_owned()), Some(copy)]);
        Some(Skip { push, unit: passes.unit, calls: true })
    }

    /// The call whose operands [`Recorder::pass_on`] has given: of a method of Python's.
    pub(in crate::recorder) fn call_passed_on<'py>(
        &self,
        frame: &Frame<'py>,
        method: Borrowed<'_, 'py>,
        args: Borrowed<'_, 'py>,
        kwargs: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        self.links.expect(Role::Callee);
        let (function, receiver) = heap::method_parts(method);
        let called = spread(Some(receiver.as_borrowed()), args, Some(kwargs), |all, names| {
            let call = Call { frame, callable: function.as_borrowed(), args: all, names };
            self.guard_memo(call);
            let is_inner =
                self.functions.module_call().is_some_and(|known| known.inner.is(call.callable));
            if is_inner {
                // Nobody's marks and models are of this function, and it does more than read.
                self.sees_more();
                return self.call_watched(None, call);
            }
            self.call_function(call)
        });
        called.unwrap_or_else(|error| Err(Raised::set(frame.py(), error)))
    }

    /// Whether this module's class calls `forward` in the plain way, and nothing in the module itself
    /// speaks against it: `absent` aren't there, `hooks` are empty. Guarded.
    fn is_plainly_called(
        &self,
        frame: &Frame<'_>,
        known: &ModuleCall,
        module: Borrowed<'_, '_>,
        absent: &[&Py<PyAny>],
        hooks: &[Py<PyAny>],
    ) -> bool {
        if self.kind(module) != Kind::Object || !self.is_plain_class(frame, known, module) {
            return false;
        }
        let Some(dict) = heap::instance_dict(module) else { return false };
        let dict = dict.as_borrowed();
        if !heap::is_exact_dict(dict) || !is_vacant(dict, absent, hooks) {
            return false;
        }
        self.note(frame, |state| Ok(state.guard_vacancy(known, module, dict))) == Some(true)
    }

    /// What the module's class has to do with it.
    fn is_plain_class(
        &self,
        frame: &Frame<'_>,
        known: &ModuleCall,
        module: Borrowed<'_, '_>,
    ) -> bool {
        let py = frame.py();
        let ty = module.get_type();
        let address = ty.as_ptr() as usize;
        {
            let state = self.state.borrow();
            if !state.written.classes().is_empty() {
                return false;
            }
            let version = types::version_tag(ty.as_borrowed());
            if version != 0 && state.module_calls.classes.get(&address) == Some(&version) {
                return true;
            }
        }
        let find = |name: &Py<PyAny>| types::lookup(ty.as_borrowed(), name.bind_borrowed(py));
        // A class with `__getattr__` and without `__getattribute__` reads what is there as others do.
        let getter = pyo3::intern!(py, "__getattribute__").as_any().as_borrowed();
        let reads_plainly = match types::slot(ty.as_borrowed(), SlotName::GetAttribute) {
            Slot::Default => true,
            Slot::Python => types::lookup(ty.as_borrowed(), getter)
                .is_some_and(|found| self.kind(found.as_borrowed()) != Kind::Function),
            _ => false,
        };
        let is_plain = reads_plainly
            && find(&known.compiled).is_some_and(|found| found.is_none())
            && find(&known.call).is_some_and(|found| known.inner.is(found.as_borrowed()))
            && find(&known.forward)
                .is_some_and(|found| self.kind(found.as_borrowed()) == Kind::Function)
            && known.hooks.iter().all(|hook| find(hook).is_none());
        if !is_plain {
            return false;
        }
        self.lookup(frame, &ty, getter);
        for name in [&known.compiled, &known.call, &known.forward].into_iter().chain(&known.hooks) {
            self.lookup(frame, &ty, name.bind_borrowed(py));
        }
        if self.is_stopped() || !types::assign_version(ty.as_borrowed()) {
            return false;
        }
        let version = types::version_tag(ty.as_borrowed());
        self.state.borrow_mut().module_calls.classes.insert(address, version);
        true
    }

    /// Whether the second frame finds no global hooks and no JIT at work. What it reads for that is
    /// guarded when the frame is evaluated: the first time, and whenever a namespace has changed.
    fn has_plain_globals(&self, frame: &Frame<'_>, known: &ModuleCall) -> bool {
        let py = frame.py();
        if let Some(globals) = &self.state.borrow().module_calls.globals
            && globals.namespaces[0].0.is(&*frame.globals())
            && globals
                .namespaces
                .iter()
                .all(|(dict, version)| dict::version(dict.bind_borrowed(py)) == *version)
        {
            // Nothing that a trace follows switches the JIT's tracing.
            return globals.hooks.iter().all(|hooks| dict::is_plain_empty(hooks.bind_borrowed(py)));
        }
        let found = read_globals(frame, known);
        let old = std::mem::replace(&mut self.state.borrow_mut().module_calls.globals, found);
        drop(old);
        false
    }
}

/// The namespaces, if there are no global hooks and the JIT isn't tracing.
fn read_globals(frame: &Frame<'_>, known: &ModuleCall) -> Option<Globals> {
    let py = frame.py();
    let mut namespace = frame.globals().to_owned();
    let mut namespaces = vec![namespace.clone()];
    let [modules @ .., function] = &known.tracing[..] else { return None };
    for name in modules {
        let module = heap::dict_get(namespace.as_borrowed(), name.bind_borrowed(py))?;
        module.cast_exact::<PyModule>().ok()?;
        namespace = heap::instance_dict(module.as_borrowed())?;
        namespaces.push(namespace.clone());
    }
    if !namespaces.iter().all(|it| dict::is_versioned(it.as_borrowed())) {
        return None;
    }
    let function = heap::dict_get(namespace.as_borrowed(), function.bind_borrowed(py))?;
    let is_tracing = {
        let _native = Suspended::new(py);
        let _deferred = Deferred::new(py);
        vectorcall::call(function.as_borrowed(), &[], None)
    };
    match is_tracing {
        Ok(state) if state.is_none() || state.is(&*PyBool::new(py, false)) => {}
        _ => return None,
    }
    let globals = namespaces[0].as_borrowed();
    let mut hooks = Vec::with_capacity(known.global_hooks.len());
    for name in &known.global_hooks {
        let found = heap::dict_get(globals, name.bind_borrowed(py))?;
        if !dict::is_plain_empty(found.as_borrowed()) {
            return None;
        }
        hooks.push(found.unbind());
    }
    let namespaces: [Object<'_>; 3] = namespaces.try_into().ok()?;
    let namespaces = namespaces.map(|dict| {
        let version = dict::version(dict.as_borrowed());
        (dict.unbind(), version)
    });
    Some(Globals { namespaces, hooks })
}

impl State {
    /// Takes note of the module that this frame is the first one of a call of, if it comes from outside.
    pub(in crate::recorder) fn enter_module(&mut self, frame: &Frame<'_>) {
        if let Some(module) = frame.local(0)
            && let Some(source) = self.source(module)
            && let Ok(class) = PyWeakrefReference::new(module.get_type().as_any())
        {
            self.frames.calls_module(source, class.unbind());
        }
    }

    /// Guards once that a module's instance dictionary is vacant. False: it isn't wholly, or what it is
    /// says nothing of the state at entry, because the trace wrote to it or made it.
    fn guard_vacancy(
        &mut self,
        known: &ModuleCall,
        module: Borrowed<'_, '_>,
        dict: Borrowed<'_, '_>,
    ) -> bool {
        let py = dict.py();
        let absent = [&known.compiled, &known.call, &known.forward];
        if self.module_calls.unwritten != self.written.count() {
            let names = absent.into_iter().chain(&known.hooks);
            if self.written.any_at(names.map(|name| name.as_ptr() as usize)) {
                return false;
            }
            self.module_calls.unwritten = self.written.count();
        }
        if self.module_calls.vacant.contains(&(dict.as_ptr() as usize)) {
            return true;
        }
        if self.source(module).is_none() || !is_vacant(dict, &absent, &known.hooks) {
            return false;
        }
        if self.written.any_dict() || !self.unread.is_empty() {
            let hooks = known.hooks.iter();
            let hooks = hooks.filter_map(|name| heap::dict_get(dict, name.bind_borrowed(py)));
            let parts = std::iter::once(dict.to_owned()).chain(hooks);
            for part in parts {
                let address = part.as_ptr() as usize;
                if self.written.dict(address) || self.unread.contains_key(&address) {
                    return false;
                }
            }
        }
        self.know_instance_dict(module, dict);
        let Some(source) = self.source(dict) else { return false };
        self.module_calls.vacant.insert(dict.as_ptr() as usize);
        let vacancy = match &self.module_calls.vacancy {
            Some(vacancy) => vacancy.clone(),
            None => {
                let mut key = |name: &Py<PyAny>| -> (ObjectId, Text) {
                    let name = name.bind_borrowed(py);
                    let id = self.objects.intern(name);
                    (id, self.objects.repr(id, name))
                };
                let absent = absent.map(&mut key).into();
                let empty = known.hooks.iter().map(&mut key).collect();
                let vacancy = Arc::new(Vacancy { absent, empty });
                self.module_calls.vacancy = Some(vacancy.clone());
                vacancy
            }
        };
        self.guard(source, GuardKind::Vacant(vacancy));
        true
    }
}
