//! The evaluator's sites, as the recorder sees them.

use std::any::Any;

use pyo3::prelude::*;
use pyo3::types::PyString;
use stator_bytecode::Opcode;
use stator_cpython::code::Code;
use stator_cpython::frame::Frame;
use stator_cpython::heap::{iterator, types};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::opcode::TARGET;
use stator_cpython::ops::{self, BinaryOp, CompareOp, Method, UnaryOp};
use stator_cpython::thread::Thread;
use stator_cpython::{Result, generic};
use stator_evaluator::Role;
use stator_evaluator::sites::{Sites, Skip, Step};
use stator_faults as faults;
use stator_faults::{Fault, Stage};

use crate::breaks::Reason;
use crate::frames::anatomy::asks_locals;
use crate::functions::Model;
use crate::handlers::is_plain_manager;
use crate::recorder::Recorder;
use crate::recorder::ending::breaking::EXECUTED;
use crate::recorder::notes::above::{ArrayValues, Calls, Ends};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::frames::{ActiveFrame, Caller, unit};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::reads::Use;
use crate::recorder::notes::state::{Origin, State};
use crate::recorder::reads::items::is_scalar;
use crate::recorder::reads::names::variadic_slots;
use crate::recorder::reads::only_added::only_adds_to;

impl<'py> Sites<'py> for Recorder {
    const STEPS: bool = true;

    #[inline(always)]
    fn step(&self, frame: &Frame<'py>, opcode: u8, arg: u32) -> Step {
        if self.stopped.get() | self.is_watchful | self.watches_finalizers() {
            return self.step_watchfully(frame, opcode, arg);
        }
        self.begin_instruction();
        Step::Evaluate
    }

    fn substitutes(&self, frame: &Frame<'py>) -> Vec<(usize, Object<'py>)> {
        let mut state = self.state.borrow_mut();
        let found = state.symbols.as_mut().map(|symbols| std::mem::take(&mut symbols.substitutes));
        let found = found.unwrap_or_default().into_iter();
        found.map(|(index, value)| (index, value.into_bound(frame.py()))).collect()
    }

    fn plain(&self, held: Borrowed<'_, 'py>) -> Option<Object<'py>> {
        self.plain_left(held)
    }

    fn takes_keys(&self, frame: &Frame<'py>, values: &[Borrowed<'_, 'py>]) {
        self.guarded(frame.py(), || {
            self.concrete(frame, values, "a key");
            self.guard_key(frame, values);
        });
    }

    fn joins(
        &self,
        frame: &Frame<'py>,
        parts: &[Borrowed<'_, 'py>],
        text: Object<'py>,
    ) -> Object<'py> {
        let own = self.guarded(frame.py(), || self.joined(frame, parts, &text));
        own.flatten().unwrap_or(text)
    }

    fn returns(&self, frame: &Frame<'py>, value: Borrowed<'_, 'py>) {
        self.guarded(frame.py(), || {
            self.handed_back(frame, value);
            self.read_handed(frame, value);
        });
    }

    fn fails(&self, frame: &Frame<'py>, payload: &(dyn Any + Send)) -> bool {
        let is_untouched = ops::executed() == self.baseline.get();
        self.fault(frame.py(), Fault::of_panic(payload));
        is_untouched
    }

    fn enters(&self, frame: &Frame<'py>) -> bool {
        let substitutes = self.guarded(frame.py(), || self.entered(frame)).unwrap_or(false);
        self.suspend_mode(frame.py());
        substitutes
    }

    fn leaves(&self, frame: &Frame<'py>) {
        self.guarded(frame.py(), || {
            if self.session.fullgraph && self.is_stopped() {
                self.end_refusal(frame.py());
            }
            self.left(frame);
        });
        self.baseline.set(EXECUTED);
        self.resume_mode(frame.py());
    }

    fn interrupts(&self, frame: &Frame<'py>, what: &'static str) {
        // An exception may be what is about to be looked at.
        let raised = PyErr::take(frame.py());
        self.stop(frame, Reason::Instruction, what);
        if let Some(raised) = raised {
            raised.restore(frame.py());
        }
    }

    fn disturbed(&self, frame: &Frame<'py>) {
        self.guarded(frame.py(), || self.give_in(frame.py()));
    }

    fn skips(&self, frame: &Frame<'py>) -> Option<Skip<'py>> {
        self.guarded(frame.py(), || self.skip_module_call(frame)).flatten()
    }

    fn load_global(&self, frame: &Frame<'py>, name: Borrowed<'_, 'py>) -> Result<Object<'py>> {
        self.global(frame, name)
    }

    fn load_name(&self, frame: &Frame<'py>, name: Borrowed<'_, 'py>) -> Result<Object<'py>> {
        if let Some(locals) = frame.locals()
            && let Some(value) = heap::dict_get(locals, name)
        {
            return Ok(value);
        }
        self.global(frame, name)
    }

    fn store_global(
        &self,
        frame: &Frame<'py>,
        name: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        let globals = frame.globals();
        if !self.writes_slot(frame, globals, name, value.is_none()) {
            self.stop(frame, Reason::OutsideWrite, format!("global {}", heap::text(name)));
        }
        ops::store_global(frame, name, value)
    }

    fn load_cell(
        &self,
        frame: &Frame<'py>,
        cell: Borrowed<'_, 'py>,
        _index: usize,
    ) -> Option<Object<'py>> {
        self.cell(frame, cell)
    }

    fn store_cell(
        &self,
        frame: &Frame<'py>,
        cell: Borrowed<'_, 'py>,
        _index: usize,
        value: Option<Object<'py>>,
    ) {
        self.set_cell(frame, cell, value);
    }

    fn stored_fast(&self, frame: &Frame<'py>, index: usize, value: Borrowed<'_, 'py>) {
        self.guarded(frame.py(), || self.names_local(frame, index, value));
    }

    fn load_attr(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        self.get_attr(frame, owner, name)
    }

    fn load_method(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Method<'py>> {
        self.get_method(frame, owner, name)
    }

    fn store_attr(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        self.set_attr(frame, owner, name, value)
    }

    fn load_item(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        self.get_item(frame, owner, key)
    }

    fn store_item(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
        value: Option<Borrowed<'_, 'py>>,
    ) -> Result<()> {
        self.set_item(frame, owner, key, value)
    }

    fn unary(
        &self,
        frame: &Frame<'py>,
        op: UnaryOp,
        operand: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        self.unary_op(frame, op, operand)
    }

    fn binary(
        &self,
        frame: &Frame<'py>,
        op: BinaryOp,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        self.binary_op(frame, op, left, right)
    }

    fn compare(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        self.compare_op(frame, op, left, right)
    }

    fn compare_truth(
        &self,
        frame: &Frame<'py>,
        op: CompareOp,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> Result<bool> {
        let before = ops::executed();
        let result = self.compare_op(frame, op, left, right)?;
        if let Some(truth) = ops::plain_truth(result.as_borrowed()) {
            return Ok(truth);
        }
        if self.are_plain_operands(&[left, right]) {
            // Should its truth end the trace, CPython executes both.
            ops::uncount_since(before);
        }
        self.truth_of(frame, result.as_borrowed())
    }

    fn convert(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
        conversion: u32,
    ) -> Result<Object<'py>> {
        self.convert_value(frame, value, conversion)
    }

    fn contains(
        &self,
        frame: &Frame<'py>,
        container: Borrowed<'_, 'py>,
        item: Borrowed<'_, 'py>,
    ) -> Result<bool> {
        self.contains_item(frame, container, item)
    }

    fn is_same(
        &self,
        frame: &Frame<'py>,
        left: Borrowed<'_, 'py>,
        right: Borrowed<'_, 'py>,
    ) -> bool {
        self.same(frame, left, right)
    }

    fn truth(&self, frame: &Frame<'py>, operand: Borrowed<'_, 'py>) -> Result<bool> {
        self.truth_of(frame, operand)
    }

    fn format(
        &self,
        frame: &Frame<'py>,
        value: Borrowed<'_, 'py>,
        conversion: u32,
        spec: Option<Borrowed<'_, 'py>>,
    ) -> Result<Object<'py>> {
        // With a spec NumPy's scalars are spelt as Python's numbers.
        if let (0, Some(spec)) = (conversion, spec)
            && spec.len().is_ok_and(|length| length > 0)
            && let Some(number) = self.number_of_scalar(frame, value)
        {
            return self.format_value(frame, number.as_borrowed(), conversion, Some(spec));
        }
        self.format_value(frame, value, conversion, spec)
    }

    fn call(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
        names: Option<Borrowed<'_, 'py>>,
    ) -> Result<Object<'py>> {
        self.links.expect(Role::Callee);
        self.call_object(Call { frame, callable, args, names })
    }

    fn call_ex(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        args: Borrowed<'_, 'py>,
        kwargs: Option<Borrowed<'_, 'py>>,
    ) -> Result<Object<'py>> {
        if self.is_stopped() {
            return ops::call_ex(callable, args, kwargs);
        }
        self.links.expect(Role::Callee);
        self.call_unpacked(frame, callable, args, kwargs)
    }

    fn call_prepared(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        args: Borrowed<'_, 'py>,
        kwargs: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        self.begin_instruction();
        self.call_passed_on(frame, callable, args, kwargs)
    }

    fn initialize(
        &self,
        frame: &Frame<'py>,
        class: Borrowed<'_, 'py>,
        object: Object<'py>,
        args: &[Borrowed<'_, 'py>],
        names: Option<Borrowed<'_, 'py>>,
    ) -> Result<Object<'py>> {
        self.initialized(Call { frame, callable: class, args, names }, object)
    }

    fn before_with(
        &self,
        frame: &Frame<'py>,
        manager: Borrowed<'_, 'py>,
    ) -> Result<(Object<'py>, Object<'py>)> {
        if self.is_stopped() {
            return ops::before_with(manager);
        }
        let py = frame.py();
        let ty = manager.get_type();
        let enter = self.lookup(frame, &ty, pyo3::intern!(py, "__enter__").as_any().as_borrowed());
        let exit = self.lookup(frame, &ty, pyo3::intern!(py, "__exit__").as_any().as_borrowed());
        let is_python = |method: &Option<Object<'py>>| {
            method.as_ref().is_some_and(|method| self.kind(method.as_borrowed()) == Kind::Function)
        };
        let model =
            |method: &Option<Object<'py>>| self.functions.model(method.as_ref()?.as_borrowed());
        let native = || ops::before_with(manager);
        let is_plain = || {
            let code = frame.code().object().to_owned().unbind();
            self.plain_withs.borrow_mut().push((code, frame.unit()));
        };
        match (model(&enter), model(&exit)) {
            (Some(Model::LockTake), Some(Model::LockGive)) => {
                is_plain();
                return self.take_lock(frame, manager, &[], native);
            }
            (Some(Model::DeviceEnter), Some(Model::DeviceExit)) => {
                is_plain();
                return self.enter_device(frame, manager, native);
            }
            _ => {}
        }
        if let Some(entered) = self.enter_value(frame, manager, enter.as_ref()) {
            return entered;
        }
        if !is_python(&enter) || !is_python(&exit) {
            self.stop(frame, Reason::OpaqueCall, format!("with a {}", heap::type_name(manager)));
            return ops::before_with(manager);
        }
        let (Some(enter), Some(exit)) = (enter, exit) else { return ops::before_with(manager) };
        if is_plain_manager(&manager) {
            is_plain();
        }
        let exit = heap::bind_method(exit.as_borrowed(), manager);
        self.note(frame, |state| {
            state.set_fresh(exit.as_borrowed());
            Ok(())
        });
        let held = Some(exit.clone());
        let entered =
            self.call_linked(Role::Enter, held, Call::new(frame, enter.as_borrowed(), &[manager]))?;
        Ok((exit, entered))
    }

    fn import_name(
        &self,
        frame: &Frame<'py>,
        name: Borrowed<'_, 'py>,
        from: Borrowed<'_, 'py>,
        level: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        self.import(frame, name, from, level)
    }

    fn import_from(
        &self,
        frame: &Frame<'py>,
        module: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        if self.is_stopped() {
            return ops::import_from(module, name);
        }
        match self.get_attr(frame, module, name) {
            Ok(value) => Ok(value),
            Err(_) => {
                generic::clear_exception(frame.py());
                self.stop(frame, Reason::OpaqueCall, format!("import of {}", heap::text(name)));
                ops::import_from(module, name)
            }
        }
    }

    fn get_iter(&self, frame: &Frame<'py>, iterable: Borrowed<'_, 'py>) -> Result<Object<'py>> {
        self.iterate(frame, iterable)
    }

    fn next(&self, frame: &Frame<'py>, iterator: Borrowed<'_, 'py>) -> Result<Option<Object<'py>>> {
        self.advance(frame, iterator)
    }

    fn send(
        &self,
        frame: &Frame<'py>,
        receiver: Borrowed<'_, 'py>,
        value: Borrowed<'_, 'py>,
    ) -> Result<std::result::Result<Object<'py>, Object<'py>>> {
        if !self.is_stopped() && value.is_none() && iterator::is_known(receiver) {
            // As in a `for`: it gives no value at its end.
            return Ok(self.advance(frame, receiver)?.ok_or_else(|| value.to_owned()));
        }
        if !self.is_stopped() && !self.may_advance(frame, receiver) {
            self.stop(frame, Reason::OutsideIterator, heap::type_name(receiver));
        }
        let _reading = self.reads_on(frame, &[receiver]);
        ops::send(receiver, value)
    }

    fn consumes(
        &self,
        frame: &Frame<'py>,
        operand: Borrowed<'_, 'py>,
    ) -> Result<Option<Object<'py>>> {
        if self.is_stopped() {
            return Ok(None);
        }
        let kind = self.kind(operand);
        if matches!(kind, Kind::Tuple | Kind::List)
            && types::is_immutable(operand.get_type().as_borrowed())
        {
            // Whoever found it has guarded what it holds.
            return Ok(None);
        }
        if kind == Kind::Tensor {
            if is_scalar(operand) {
                self.stop(frame, Reason::OperationRaised, "iteration over a 0-d tensor");
                return Ok(None);
            }
            return self.tensor_parts(frame, operand).map(Some);
        }
        if let Some(rows) = self.rows_of_array(frame, operand) {
            return rows.map(Some);
        }
        self.take_elements(frame, operand);
        self.reads_alone(frame, operand);
        Ok(None)
    }

    fn gathers(
        &self,
        frame: &Frame<'py>,
        operand: Borrowed<'_, 'py>,
    ) -> Result<Option<Object<'py>>> {
        self.gather(frame, operand).transpose()
    }

    fn reads_mapping(&self, frame: &Frame<'py>, operand: Borrowed<'_, 'py>) {
        if self.is_stopped() {
            return;
        }
        match self.kind(operand) {
            // What is raised names its type.
            Kind::Tensor => self.stop(frame, Reason::OperationRaised, "a tensor as a mapping"),
            _ => self.take_elements(frame, operand),
        }
    }

    fn calls_back<T>(&self, frame: &Frame<'py>, run: impl FnOnce() -> Result<T>) -> Result<T> {
        self.with_mode(frame, run)
    }

    fn collects<T>(
        &self,
        frame: &Frame<'py>,
        operand: Borrowed<'_, 'py>,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let _reading = self.reads_on(frame, &[operand]);
        let _collecting = self.collecting_all(frame, operand);
        self.with_mode(frame, run)
    }

    fn matches(&self, frame: &Frame<'py>, subject: Borrowed<'_, 'py>) {
        self.guarded(frame.py(), || self.matches_pattern(frame, subject));
    }

    fn matches_keys(&self, frame: &Frame<'py>, subject: Borrowed<'_, 'py>) {
        self.keys_pattern(frame, subject);
    }

    fn creates(&self, frame: &Frame<'py>, object: Borrowed<'_, 'py>) {
        self.note(frame, |state| {
            state.set_fresh(object);
            match state.kind_alone(object) {
                Kind::Set | Kind::FrozenSet | Kind::Dict => state.note_hashed(object),
                Kind::Function => return state.share_namespace(frame),
                _ => {}
            }
            Ok(())
        });
    }

    fn hashes(&self, frame: &Frame<'py>, object: Borrowed<'_, 'py>) {
        self.note(frame, |state| {
            state.note_hashed(object);
            Ok(())
        });
    }

    fn grows(&self, frame: &Frame<'py>, container: Borrowed<'_, 'py>) {
        self.note(frame, |state| state.own_container(container));
    }

    fn extends(&self, frame: &Frame<'py>, container: Borrowed<'_, 'py>) {
        self.note(frame, |state| match state.kind(container) {
            Kind::List | Kind::Dict => heap::children(container)
                .iter()
                .try_for_each(|child| state.register(child.as_borrowed())),
            _ => Ok(()),
        });
    }

    fn match_class(
        &self,
        frame: &Frame<'py>,
        subject: Borrowed<'_, 'py>,
        class: Borrowed<'_, 'py>,
        count: usize,
        names: Borrowed<'_, 'py>,
    ) -> Result<Option<Object<'py>>> {
        self.class_pattern(frame, subject, class, count, names)
    }

    fn matches_exception(
        &self,
        frame: &Frame<'py>,
        exception: Borrowed<'_, 'py>,
        _classes: Borrowed<'_, 'py>,
    ) {
        self.guarded(frame.py(), || {
            if !self.is_stopped() {
                self.catches(frame, exception);
            }
        });
    }

    fn splits(&self, frame: &Frame<'py>, exceptions: &[Object<'py>]) {
        self.guarded(frame.py(), || {
            if !self.is_stopped() {
                self.splits_group(frame, exceptions);
            }
        });
    }

    fn raises(&self, frame: &Frame<'py>, exception: Option<Borrowed<'_, 'py>>) {
        let handled = match exception {
            Some(_) => None,
            None => Thread::current(frame.py()).handled(),
        };
        let Some(raised) = exception.or(handled.as_ref().map(|handled| handled.as_borrowed()))
        else {
            return;
        };
        self.note(frame, |state| {
            let outside = state.source(raised).is_some() || state.roots.carried(raised).is_some();
            if outside && state.kind(raised) != Kind::Type {
                return Err((Reason::OutsideWrite, "an exception that is raised again".into()));
            }
            Ok(())
        });
    }

    fn opaque(&self, frame: &Frame<'py>, opcode: Opcode) {
        self.stop(frame, Reason::Instruction, opcode.name());
    }
}

impl Recorder {
    /// A fast local was stored: it holds something else now, and a node may be called after it.
    fn names_local(&self, frame: &Frame<'_>, index: usize, value: Borrowed<'_, '_>) {
        if self.is_stopped() {
            return;
        }
        let mut state = self.state.borrow_mut();
        state.roots.release((frame.id(), index));
        if let Some(Origin::Node(node)) = state.origin(value)
            && state.kind(value) == Kind::Tensor
        {
            let code = frame.code();
            if let Ok(name) = code.local_name(index).cast::<PyString>()
                && let Ok(name) = name.to_str()
            {
                state.graph.set_local_name(node, name);
            }
        }
    }

    fn matches_pattern<'py>(&self, frame: &Frame<'py>, subject: Borrowed<'_, 'py>) {
        if self.is_stopped() {
            return;
        }
        let kind = self.kind(subject);
        if matches!(kind, Kind::Object | Kind::Tensor) {
            // Patterns match what was registered as a sequence or mapping.
            self.note(frame, State::guard_abstract_classes);
        }
        if kind != Kind::Tensor {
            self.take_elements(frame, subject);
        } else if ops::is_sequence(subject) || ops::is_mapping(subject) {
            self.stop(frame, Reason::Unsupported, "tensors that were registered as containers");
        }
    }

    fn entered(&self, frame: &Frame<'_>) -> bool {
        if self.is_stopped() {
            return false;
        }
        let is_root = !self.entered_root.get() && frame.code().as_ptr() as usize == self.root;
        self.entered_root.set(true);
        self.baseline.set(EXECUTED);
        if let Err(fault) = faults::at(Stage::Frame) {
            self.fault(frame.py(), fault);
            return false;
        }
        if !is_root {
            self.tally.frame();
        }
        let is_direct = is_root || self.links.enters(frame);
        let known = self.functions.module_call();
        let is_module_call =
            known.is_some_and(|it| it.outer.code() == frame.code().as_ptr() as usize);
        if !is_direct {
            self.know_special(frame);
        }
        self.note(frame, |state| {
            let caller = match (frame.previous(), state.frames.innermost()) {
                (Some(caller), Some(active)) if caller.id() == active.id => {
                    Caller::At(unit(&caller))
                }
                _ => Caller::Known(None),
            };
            let code = state.frames.number(frame);
            state.repeated.enter(frame.code().object());
            state.frames.enter(ActiveFrame {
                id: frame.id(),
                code,
                caller,
                is_direct,
                module: None,
            });
            if state.enclosed.is_on() && !is_direct {
                state.enter_enclosed(frame);
            }
            if is_root { Ok(()) } else { state.enter_function(frame) }
        });
        if is_root {
            self.enter_root(frame);
        }
        if is_module_call {
            self.note(frame, |state| {
                state.enter_module(frame);
                Ok(())
            });
        }
        is_root && self.has_symbols()
    }

    fn enter_root(&self, frame: &Frame<'_>) {
        self.note(frame, |state| {
            let function = state.anchor(frame.function());
            state.sources.set_entry(function);
            state.enter_function(frame)?;
            let code = frame.code();
            let variadic = variadic_slots(&code);
            let read = read_arguments(&code);
            for (index, first_use) in read.into_iter().enumerate() {
                let Some(value) = frame.local(index) else { continue };
                if state.is_own_argument(value) {
                    continue;
                }
                if state.program.is_some() && variadic.contains(&index) {
                    state.set_fresh(value);
                    continue;
                }
                let name = heap::text(code.local_name(index));
                let slot = u16::try_from(index).unwrap_or(u16::MAX);
                let source = state.sources.local(slot, || name.into());
                if !variadic.contains(&index) {
                    state.roots.hold((frame.id(), index), source, value);
                }
                let Some(first_use) = first_use else {
                    continue;
                };
                state.frames.locate_unit(first_use);
                let used = Use { only_adds: only_adds_to(frame, index), ..state.moving() };
                if variadic.contains(&index) {
                    state.roots.hold_variadic(source);
                }
                let adopted = state.adopt_root(used, source, value, Some(index));
                if let Some(own) = adopted? {
                    let own = own.bind_borrowed(frame.py());
                    if variadic.contains(&index) {
                        state.set_fresh(own);
                    } else {
                        state.roots.hold((frame.id(), index), source, own);
                    }
                    continue;
                }
                if variadic.contains(&index) {
                    // CPython made `*args` and `**kwargs` for this call: what they hold is from
                    // outside, they themselves aren't.
                    if state.kind(value) == Kind::Dict {
                        state.adopt_dict_for(state.moving(), value)?;
                    }
                    state.set_fresh(value);
                }
            }
            Ok(())
        });
    }
}

/// For each argument the unit at which the function's bytecode mentions it first: what it never
/// mentions needs no guard.
fn read_arguments(code: &Code<'_>) -> Vec<Option<usize>> {
    let count = variadic_slots(code).end;
    let begin = code.first_traceable();
    if asks_locals(code) {
        return vec![Some(begin); count];
    }
    let mut first_uses = vec![None; count];
    for (at, unit) in code.instructions() {
        let named = TARGET.info(unit.opcode).map_or([None; 2], |info| info.locals(unit.arg));
        for local in named.into_iter().flatten() {
            // Each argument that is a cell is made one first of all: no use, but it has one.
            if let Some(first) = first_uses.get_mut(local as usize)
                && first.is_none_or(|first| first < begin)
            {
                *first = Some(at);
            }
        }
    }
    first_uses
}
