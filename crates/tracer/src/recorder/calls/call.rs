//! Calls: finding the Python function they end in, or the class of the C function.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyRange, PyString, PyTuple};
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::iterator;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::thread::Deferred;
use stator_cpython::{Result, generic, ops};

use super::marked::break_message;
use super::models::compiles_aloud;
use super::outside_iterators::collected_by;
use crate::breaks::Reason;
use crate::functions::{Class, Model, Traits, numpy, values};
use crate::recorder::notes::above::{Calls, Ends, Looks};
use crate::recorder::notes::call::{Args, Call, spread, with_receiver};
use crate::recorder::notes::kinds::{Descriptor, Kind};
use crate::recorder::notes::repeated::Watch;
use crate::recorder::notes::state::Origin;
use crate::recorder::notes::text_wrappers::guards_text;
use crate::recorder::notes::{heap, machinery};
use crate::recorder::numbers::number_functions::boolean;
use crate::recorder::numbers::tensor_texts::named_fields;
use crate::recorder::operations::array_numbers::Given;
use crate::recorder::reads::attributes::Found;
use crate::recorder::reads::protocols::CALLED_BACK;
use crate::recorder::reads::value_classes::purpose_of;
use crate::recorder::reads::whole_containers::is_plain;
use crate::recorder::{Recorder, place};
use crate::{compiling, disabled, marks, within};

impl Calls for Recorder {
    fn call_object<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        self.guard_memo(call);
        if self.is_stopped() {
            return call.natively();
        }
        let kind = self.kind(callable);
        if matches!(kind, Kind::Builtin | Kind::Type)
            && let Some(result) = self.call_with_all(call)
        {
            return result;
        }
        if matches!(kind, Kind::Object | Kind::Opaque | Kind::Type)
            && let Some(result) = self.call_in_program(call)
        {
            return result;
        }
        match kind {
            Kind::Function => self.call_function(call),
            Kind::Builtin | Kind::TorchCallable => self.call_builtin(call),
            Kind::Method => {
                let (function, receiver) = heap::method_parts(callable);
                let all = with_receiver(receiver.as_borrowed(), args);
                self.call_object(call.with(function.as_borrowed(), &all))
            }
            Kind::Type => self.construct(call),
            Kind::Partial => {
                self.sees_more();
                self.call_partial(call)
            }
            // A function of NumPy's that others may override.
            Kind::Object | Kind::Opaque
                if let Some(class @ Class::Model(Model::Numpy | Model::Arrays(_))) =
                    self.functions.class(callable) =>
            {
                self.note(frame, |state| state.know_for_good(callable));
                self.call_class(class, call)
            }
            Kind::Object
            | Kind::Module
            | Kind::List
            | Kind::Tuple
            | Kind::Dict
            | Kind::Singleton => {
                self.sees_more();
                match within::function(callable) {
                    // A compiled function within another: part of its trace.
                    Some(function) => {
                        let function = function.as_any().as_borrowed();
                        self.note(frame, |state| state.know_for_good(callable));
                        self.vouch(frame, function);
                        self.call_function(call.of(function))
                    }
                    None => {
                        if let Some(why) = disabled::reason(callable) {
                            return self.breaking_call(Reason::Disabled, why, call);
                        }
                        self.call_instance(call)
                    }
                }
            }
            _ => self.breaking_call(Reason::OpaqueCall, heap::name_of(callable), call),
        }
    }

    fn call_python<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let watch = match self.repeated(call) {
            Ok(known) => return Ok(known),
            Err(watch) => watch,
        };
        self.call_watched(watch, call)
    }

    fn guard_callback(&self, frame: &Frame<'_>, argument: Borrowed<'_, '_>) {
        self.guard_called_back(frame, argument);
    }
}

impl Recorder {
    /// As [`Recorder::call_class`], where no symbolic numbers may be met.
    pub(in crate::recorder) fn call_known<'py>(
        &self,
        class: &Class,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        self.guard_readers(frame, class, args);
        match class {
            Class::Operation(operation) => self.tensor_call(operation, call),
            Class::Pure => self.pure_call(call),
            Class::Transparent => {
                if let Some(result) = self.extreme_tensor(call) {
                    return result;
                }
                if let Some(result) = self.reduced(call) {
                    return result;
                }
                args.iter().for_each(|arg| self.guard_callback(frame, *arg));
                self.make_over(call).unwrap_or_else(|| self.transparent_call(call))
            }
            // What it makes only holds a callable: calls of that are met where they happen.
            Class::Constructor => self.transparent_call(call),
            Class::Model(model) => {
                let _calling = self.calling(*model, call);
                self.model_call(*model, call)
            }
            Class::IsCompiling => self.call_is_compiling(call),
            Class::StateRead => {
                let opaque = args.iter().find(|arg| self.kind(**arg) == Kind::Opaque);
                if let Some(opaque) = opaque {
                    let (name, of) = (heap::name_of(callable), heap::type_name(*opaque));
                    self.stop(frame, Reason::Unsupported, format!("{name} of a {of}"));
                }
                if self.asks_under_device(callable, args) {
                    return Ok(boolean(frame.py(), false));
                }
                let _native = Suspended::new(frame.py());
                let _deferred = Deferred::new(frame.py());
                let result = call.natively();
                if let Ok(value) = &result {
                    self.note(frame, |state| match state.kind(value.as_borrowed()) {
                        Kind::Constant => Ok(()),
                        Kind::Tuple | Kind::List => state.register(value.as_borrowed()),
                        _ => Err((Reason::OpaqueCall, heap::name_of(callable))),
                    });
                }
                result
            }
            Class::GraphBreak => {
                self.stop(frame, Reason::Requested, break_message(args));
                call.natively()
            }
            // A program gives no warnings: they are given while it is traced.
            Class::Emitter(_) if self.session.program.is_some() => {
                let _native = Suspended::new(frame.py());
                call.natively()
            }
            Class::Emitter(emitter) => self.emit(*emitter, call),
            Class::Instead(_) | Class::Replaced(_) => {
                self.breaking_call(Reason::OpaqueCall, heap::name_of(callable), call)
            }
            Class::Untraceable(reason) => {
                self.breaking_call(*reason, heap::name_of(callable), call)
            }
        }
    }

    /// What such a call gave before, which isn't made again; or a watch over this one.
    fn repeated<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> std::result::Result<Object<'py>, Option<Watch>> {
        let Call { callable, args, names, .. } = call;
        // Marks, and tests that break everywhere, speak of single instructions.
        if names.is_some() || self.is_stopped() || self.has_marks || self.trace_log {
            self.sees_more();
            return Err(None);
        }
        let mut state = self.state.borrow_mut();
        let (known, work) = state.repeated(callable, args, || self.tally.so_far())?;
        drop(state);
        self.tally.repeat(work);
        self.links.clear();
        Ok(known)
    }

    /// Calls a Python function whose frame is traced, whether or not it was called before.
    pub(in crate::recorder) fn call_watched<'py>(
        &self,
        watch: Option<Watch>,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        let waits = self.links.wait(frame);
        let result = call.natively();
        if let Some(watch) = watch {
            self.guarded(frame.py(), || self.watched(&watch, call, &result));
        }
        self.behind(frame, || {
            self.links.returned(waits);
            if let Ok(value) = &result
                && ops::is_generator(value.as_borrowed())
            {
                self.note_generator(frame, value);
            }
        });
        if result.is_err() {
            self.note(frame, |state| state.refused_arguments(callable));
        }
        result
    }

    fn watched(&self, watch: &Watch, call: Call<'_, '_>, result: &Result<Object<'_>>) {
        let Call { args, .. } = call;
        let result = result.as_ref().ok().map(Bound::as_borrowed);
        if !self.is_stopped() {
            let mut state = self.state.borrow_mut();
            state.watched(watch, args, result, |before| self.tally.since(before));
        }
    }

    /// What is called may do more than read.
    pub(in crate::recorder) fn sees_more(&self) {
        self.state.borrow_mut().repeated.see();
    }

    /// Calls a Python function: as one operation if the table says so, else its frame is traced.
    pub(in crate::recorder) fn call_function<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        if let Some(result) = self.call_in_program(call) {
            return result;
        }
        if let Some(result) = self.call_registered(call) {
            self.sees_more();
            return result;
        }
        let class = self.functions.class(callable);
        if class.is_some() {
            self.sees_more();
        }
        match class {
            Some(Class::Instead(known)) => {
                if let Some(function) = known.instead(callable) {
                    return self.call_instead(&function, call);
                }
            }
            // What other backends make of a graph doesn't give inference tensors.
            Some(Class::Replaced(known)) if self.session.is_eager && known.is_for(call.args) => {
                if let Some(function) = known.instead(callable) {
                    self.vouch(frame, function.as_borrowed());
                    return self.call_function(call.of(function.as_borrowed()));
                }
            }
            Some(Class::Replaced(known))
                if !self.session.fullgraph && known.is_whole_for(callable, call.args) =>
            {
                let detail = format!("an order that {} draws", heap::name_of(callable));
                return self.breaking_call(Reason::RandomNumber, detail, call);
            }
            Some(class @ Class::Model(Model::DeepCopy)) => {
                return self.call_deep_copy(class, call);
            }
            Some(Class::Model(Model::Copy)) => {
                if let Some(copy) = self.copy_of_tensor(call) {
                    return copy;
                }
            }
            Some(Class::Model(Model::Filters)) => {
                if let Some(result) = self.sets_filters(call) {
                    return result;
                }
            }
            Some(Class::Operation(operation)) if self.is_looked_into(operation, call) => {
                self.vouch(frame, callable);
            }
            Some(Class::Model(Model::DrawBelow)) if !self.may_draw_below(call) => {}
            Some(Class::IsCompiling) => {
                return self.call_is_compiling(call);
            }
            Some(Class::Replaced(_)) | None => {}
            Some(Class::Pure) if compiles_aloud(call) => {}
            Some(class) => return self.call_class(class, call),
        }
        if let Some(result) = self.statistic(call).or_else(|| self.call_marked(call)) {
            self.sees_more();
            return result;
        }
        if self.functions.signatures().is_some_and(|known| known.is(callable)) {
            self.sees_more();
            return self.call_signature(call);
        }
        if let Some(found) = self.call_dispatch(call) {
            return found;
        }
        if let Some(result) = self.replaced_fields(call) {
            return result;
        }
        self.make_member(call);
        if guards_text(callable) {
            self.links.clear();
            let _waiting = self.waiting_for_text(frame);
            return self.call_python(call);
        }
        self.call_python(call)
    }

    /// Calls a function that does the same and can be traced.
    fn call_instead<'py>(
        &self,
        function: &Object<'py>,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        self.vouch(frame, function.as_borrowed());
        let traced = self.call_function(call.of(function.as_borrowed()))?;
        let result = {
            let _native = Suspended::new(frame.py());
            call.natively()?
        };
        if !result.is(&traced) {
            // A logger whose level was set behind its back knows it by its cache alone.
            self.stop(
                frame,
                Reason::Unsupported,
                format!("{} by a cache", heap::name_of(callable)),
            );
        }
        Ok(result)
    }

    /// Calls a C function or method.
    fn call_builtin<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        // A method bound by C code (`x.add`): called through its descriptor, the receiver in front.
        if let Some((receiver, descriptor)) = heap::bound_builtin(callable) {
            self.know_generator(frame, callable, receiver.as_borrowed());
            self.know_receiver(frame, receiver.as_borrowed());
            let all = with_receiver(receiver.as_borrowed(), args);
            return self.call_builtin(call.with(descriptor.as_borrowed(), &all));
        }
        if let Some((receiver, descriptor)) = generic::wrapper_parts(callable) {
            self.know_receiver(frame, receiver.as_borrowed());
            let all = with_receiver(receiver.as_borrowed(), args);
            return self.call_builtin(call.with(descriptor.as_borrowed(), &all));
        }
        if let Some(result) = self.call_in_program(call).or_else(|| self.call_shown(call)) {
            return result;
        }
        if let Some(result) = self.got_by_descriptor(call) {
            return result;
        }
        if let Some(result) = self.call_registered(call) {
            self.sees_more();
            return result;
        }
        let class = self.functions.class(callable);
        let class = class.or_else(|| numpy::of_scipy(callable));
        let class = class.or_else(|| values::of_decimal(callable));
        if let Some(class) = class {
            return self.call_class(class, call);
        }
        self.sees_more();
        if let Some(polyfill) = marks::substitute_of_torch(callable) {
            self.vouch(frame, polyfill.as_borrowed());
            return self.call_object(call.of(polyfill.as_borrowed()));
        }
        if self.kind(callable) == Kind::TorchCallable {
            return self.call_operator(call);
        }
        match machinery::native_name(callable) {
            Some(name) => {
                if let Some(result) = self.call_bound_autograd_function(call) {
                    return result;
                }
                self.stop(frame, Reason::Machinery, name);
            }
            None => self.stop(frame, Reason::OpaqueCall, heap::name_of(callable)),
        }
        call.natively()
    }

    /// Calls something the function table knows.
    pub(in crate::recorder) fn call_class<'py>(
        &self,
        class: &Class,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        // It's a Python function.
        if !matches!(class, Class::Model(Model::TensorBackward)) {
            self.links.clear();
        }
        self.state.borrow_mut().calls_watched(class, call.args);
        if !matches!(class, Class::Operation(_)) {
            self.tally.call();
        }
        if let Some(result) = self.asks_history(class, call) {
            return result;
        }
        if matches!(class, Class::Operation(_) | Class::Pure | Class::Transparent) {
            call.args.iter().try_for_each(|arg| self.take_part_apart(call.frame, *arg))?;
        }
        if matches!(class, Class::Operation(_))
            && let Some(result) = self.taken_over(call)
        {
            return result;
        }
        if let Some(result) = self.call_without_arrays(class, call) {
            return result;
        }
        if matches!(class, Class::Model(Model::ContainerWrite))
            && let Some(result) = self.take_first(call)
        {
            return result;
        }
        if matches!(class, Class::StateRead) {
            self.refuse_numbers_of_state(call);
        }
        let is_plain =
            matches!(class, Class::Operation(_) | Class::GraphBreak | Class::IsCompiling);
        if is_plain { self.call_known(class, call) } else { self.call_asking(class, call) }
    }

    /// A call that is given scalars or arrays of NumPy's, with Python's numbers or rows in their place.
    fn call_without_arrays<'py>(
        &self,
        class: &Class,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        if let Some(numbers) = self.arguments_as_numbers(class, call) {
            let args: Args<'_, 'py> = numbers.iter().map(Bound::as_borrowed).collect();
            let result = self.call_class(class, Call { args: &args, ..call });
            let what = || heap::name_of(call.callable);
            return Some(self.or_natively(call.frame, result, what, || call.natively()));
        }
        let rows = self.arguments_as_rows(call).or_else(|| self.sized_as_rows(call))?;
        let rows = match rows {
            Ok(rows) => rows,
            Err(raised) => return Some(Err(raised)),
        };
        let args: Args<'_, 'py> = rows.iter().map(Bound::as_borrowed).collect();
        Some(self.call_class(class, Call { args: &args, ..call }))
    }

    /// The arguments of a call that iterates them, with their rows in place of tensors whose number of rows data decides: all
    /// these numbers are decided before the instruction.
    fn sized_as_rows<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Given<'py>>> {
        let Call { frame, callable, args, .. } = call;
        // `reversed` asks a tensor's own method.
        if !self.functions.traits(callable).has(Traits::ITERATES)
            || heap::is_named(callable, &["reversed"])
        {
            return None;
        }
        let is_sized = |arg: &Borrowed<'_, '_>| {
            // Nobody looks at what a list holds.
            self.state.borrow_mut().kind_alone(*arg) == Kind::Tensor && self.are_data_sized(&[*arg])
        };
        let sized: Vec<_> = args.iter().copied().filter(is_sized).collect();
        if sized.is_empty() || !self.settle_sizes(frame, &sized) || self.is_stopped() {
            return None;
        }
        let rows = args.iter().map(|arg| match sized.iter().any(|sized| sized.is(&**arg)) {
            true => self.tensor_parts(frame, *arg),
            false => Ok((*arg).to_owned()),
        });
        Some(rows.collect())
    }

    /// Asks whether a compiler is at work. By default plain code says so itself.
    fn call_is_compiling<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        let answer = compiling::answer();
        self.note(frame, |state| {
            state.asked = Some(answer);
            Ok(())
        });
        if answer {
            self.links.clear();
            self.tally.steer();
            return Ok(boolean(frame.py(), true));
        }
        self.session.asked(|| place(frame));
        if self.kind(callable) == Kind::Function {
            return self.call_python(call);
        }
        self.links.clear();
        call.natively()
    }

    /// A function of argument values: fine on constants and containers of constants.
    pub(in crate::recorder) fn pure_call<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        if callable.is(frame.py().get_type::<PyRange>())
            && args.iter().any(|arg| self.kind(*arg) == Kind::Tensor)
            && let Some(bounds) = args.iter().map(|arg| self.settled(frame, *arg)).collect()
        {
            let bounds: SmallVec<[Object<'py>; 3]> = bounds;
            let args: Args<'_, 'py> = bounds.iter().map(Bound::as_borrowed).collect();
            return self.pure_call(Call { args: &args, ..call });
        }
        if let Some(bytes) = self.pickled(call) {
            return bytes;
        }
        if let Some(floats) = self.floats_of_tensors(call) {
            let args: Args<'_, 'py> = floats.iter().map(Bound::as_borrowed).collect();
            return self.symbolic_call(&Class::Pure, Call { args: &args, ..call });
        }
        if let Some((args, names)) = named_fields(call) {
            let args: Args<'_, 'py> = args.into_iter().collect();
            let names = names.as_ref().map(|names| names.as_any().as_borrowed());
            return self.symbolic_call(&Class::Pure, Call { args: &args, names, ..call });
        }
        if let Some(numbers) = self.format_numbers(call) {
            let args: Args<'_, 'py> = numbers.iter().map(Bound::as_borrowed).collect();
            return self.symbolic_call(&Class::Pure, Call { args: &args, ..call });
        }
        self.concrete(frame, args, "read by a function of values");
        let purpose = purpose_of(callable);
        self.note(frame, |state| {
            args.iter().try_for_each(|arg| {
                state.adopt_deep(*arg)?;
                let is_value = match purpose {
                    Some(purpose) => state.plain_value(*arg, purpose)?.is_some(),
                    None => false,
                };
                if is_value || is_plain(state, *arg) {
                    Ok(())
                } else {
                    let detail =
                        format!("{} of a {}", heap::name_of(callable), heap::type_name(*arg));
                    Err((Reason::OpaqueCall, detail))
                }
            })
        });
        let is_function = self.kind(callable) == Kind::Function;
        let result = {
            // `torch.device()` asks the mode of another device.
            let is_alone = is_function || self.is_under_device();
            let _native = is_alone.then(|| Suspended::new(frame.py()));
            call.natively()
        };
        if is_function && result.is_err() {
            // The frames of the traceback aren't recorded.
            self.stop(frame, Reason::OperationRaised, heap::name_of(callable));
        }
        let result = result?;
        self.note(frame, |state| state.register(result.as_borrowed()));
        Ok(result)
    }

    /// A function that only moves references or calls its arguments back.
    pub(in crate::recorder) fn transparent_call<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        let traits = self.functions.traits(callable);
        self.go_on_in_all(frame, args);
        self.note(frame, |state| {
            let hands_on = traits.has(Traits::HANDS_ON);
            args.iter().try_for_each(|arg| {
                if state.is_others_iterator(*arg) {
                    return Err((Reason::OutsideIterator, heap::type_name(*arg)));
                }
                if state.kind(*arg) == Kind::Opaque {
                    return Err((Reason::Unsupported, heap::type_name(*arg)));
                }
                state.adopt_whole(*arg, hands_on)
            })?;
            state.note_searched(self.functions, callable, args);
            Ok(())
        });
        for arg in args {
            if matches!(self.kind(*arg), Kind::Set | Kind::FrozenSet)
                && !traits.has(Traits::UNORDERED)
            {
                self.note(frame, |state| state.check_order(*arg));
            }
            self.guard_protocol(frame, *arg, CALLED_BACK);
            if self.kind(*arg) == Kind::Tensor && traits.has(Traits::ITERATES) {
                let name = pyo3::intern!(frame.py(), "__iter__").as_any().as_borrowed();
                self.lookup(frame, &arg.get_type(), name);
            }
            if matches!(self.kind(*arg), Kind::List | Kind::Tuple | Kind::Dict | Kind::Set) {
                let items = if self.kind(*arg) == Kind::Set {
                    heap::set_items(*arg)
                } else {
                    heap::children(*arg)
                };
                for item in items {
                    if heap::is_exact_list(item.as_borrowed()) && traits.has(Traits::HANDS_ON) {
                        // Nobody needs to read it for that.
                        continue;
                    }
                    if traits.has(Traits::MOVES) {
                        self.guard_protocol(frame, item.as_borrowed(), CALLED_BACK);
                    } else {
                        self.guard_answers(frame, item.as_borrowed(), CALLED_BACK);
                    }
                }
            }
        }
        let native = || call.natively();
        let collected = collected_by(callable, args);
        // Of an object it asks for an iterator.
        let is_kept = iterator::is_enumerate(callable) && args.len() == 1;
        let _collecting = match collected {
            Some(iterable) => self.collecting_all(frame, iterable),
            None => is_kept.then(|| self.collecting(frame)),
        };
        let result = if collected.is_some_and(ops::is_generator) {
            native()?
        } else {
            self.with_mode(frame, native)?
        };
        if is_kept && let Some(over) = iterator::over(result.as_borrowed(), 0) {
            self.guard_protocol(frame, over.as_borrowed(), &["__next__"]);
        }
        self.note(frame, |state| state.register(result.as_borrowed()));
        Ok(result)
    }

    /// Ends the trace if nobody vouches for the receiver of a bound C method: a method that was
    /// bound outside is known by identity, but what it is bound to is not.
    fn know_receiver(&self, frame: &Frame<'_>, receiver: Borrowed<'_, '_>) {
        self.note(frame, |state| {
            if state.is_settled_receiver(receiver) {
                return Ok(());
            }
            let what = heap::type_name(receiver);
            Err((Reason::UnknownOrigin, format!("a method bound to a {what}")))
        });
    }

    /// Whether methods of an object read nothing from outside: a constant, or made by this trace.
    pub(super) fn is_own(&self, object: Borrowed<'_, '_>) -> bool {
        self.kind(object) == Kind::Constant
            || (self.origin(object) == Some(Origin::Fresh) && self.kind(object) != Kind::Iterator)
    }

    /// `CALL_FUNCTION_EX`.
    pub(in crate::recorder) fn call_unpacked<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        args: Borrowed<'_, 'py>,
        kwargs: Option<Borrowed<'_, 'py>>,
    ) -> Result<Object<'py>> {
        let called = spread(None, args, kwargs, |all, names| {
            let are_texts = |names: Borrowed<'_, '_>| {
                let names = names.cast::<PyTuple>();
                names.is_ok_and(|names| {
                    names.iter_borrowed().all(|it| it.is_instance_of::<PyString>())
                })
            };
            if !names.is_none_or(are_texts) {
                self.stop(frame, Reason::OpaqueCall, "keywords that are no strings");
                return ops::call_ex(callable, args, kwargs);
            }
            self.call_object(Call { frame, callable, args: all, names })
        });
        called.unwrap_or_else(|_| ops::call_ex(callable, args, kwargs))
    }

    /// An operation that C code called: recorded if it is one of the table's, else a break.
    pub(in crate::recorder) fn call_operation<'py>(
        &self,
        frame: &Frame<'py>,
        callable: Borrowed<'_, 'py>,
        args: Borrowed<'_, 'py>,
        kwargs: Option<Borrowed<'_, 'py>>,
    ) -> Result<Object<'py>> {
        match self.functions.class(callable) {
            Some(Class::Operation(_) | Class::StateRead) => {}
            _ => self.stop(
                frame,
                Reason::OpaqueCall,
                format!("{} on a tensor, called by C code", heap::name_of(callable)),
            ),
        }
        self.call_unpacked(frame, callable, args, kwargs)
    }

    /// `functools.partial`: its function with its arguments in front.
    fn call_partial<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        let (function, first, keywords) = heap::partial_parts(callable);
        let first = heap::tuple_items(first.as_borrowed());
        let merged = PyDict::new(frame.py());
        let pairs;
        let given = names.map_or(0, |names| heap::tuple_items(names).len());
        let (positional, named) = args.split_at(args.len() - given);
        let mut all: Args<'_, 'py> = first.iter().map(|item| item.as_borrowed()).collect();
        all.extend_from_slice(positional);
        for (key, value) in heap::dict_items(keywords.as_borrowed()) {
            merged.set_item(key, value).expect("keyword names are strings");
        }
        if let Some(names) = names {
            for (name, value) in heap::tuple_items(names).iter().zip(named) {
                merged.set_item(name, *value).expect("keyword names are strings");
            }
        }
        pairs = heap::dict_items(merged.as_any().as_borrowed());
        all.extend(pairs.iter().map(|(_, value)| value.as_borrowed()));
        let names = PyTuple::new(frame.py(), pairs.iter().map(|(name, _)| name))
            .expect("as many as counted");
        let names = (!pairs.is_empty()).then(|| names.as_any().as_borrowed());
        self.call_object(Call { frame, callable: function.as_borrowed(), args: &all, names })
    }

    /// An instance of a class with `__call__`.
    fn call_instance<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        if let Some(class @ Class::Model(Model::Numpy | Model::Arrays(_))) =
            self.functions.class(callable)
        {
            return self.call_class(class, call);
        }
        let ty = callable.get_type();
        let name = pyo3::intern!(frame.py(), "__call__").as_any().as_borrowed();
        let Some(found) = self.lookup(frame, &ty, name) else {
            return call.natively();
        };
        if self.kind(found.as_borrowed()) == Kind::Function {
            let all = with_receiver(callable, args);
            return self.call_object(call.with(found.as_borrowed(), &all));
        }
        if self.binding(frame, &ty, name, found.as_borrowed()) == Descriptor::Member {
            // What the object has in that slot is called: a compiled module.
            let own = self.member(frame, found.as_borrowed(), callable, name)?;
            if let Found::Value(own) = own {
                return self.call_object(call.of(own.as_borrowed()));
            }
        }
        if heap::is_weak_reference(callable) && args.is_empty() {
            return self.call_weakref(frame, callable);
        }
        if names.is_none()
            && let Some(result) = self.call_getter(call)
        {
            return result;
        }
        if heap::is_builtin_alias(callable)
            && self.is_fresh(callable)
            && let Ok(origin) = callable.getattr("__origin__")
        {
            // Instances of builtin classes don't keep what they were made by.
            return self.call_object(call.of(origin.as_borrowed()));
        }
        if heap::type_name(callable) == "_lru_cache_wrapper" {
            return self.cached_call(call);
        }
        if self.kind(found.as_borrowed()) == Kind::Descriptor
            || self.origin(callable).is_none()
            || self.functions.class(found.as_borrowed()).is_none()
        {
            return self.breaking_call(Reason::OpaqueCall, heap::name_of(callable), call);
        }
        self.concrete(frame, args, "read by C code");
        call.natively()
    }
}
