//! Modelled C functions: what each reads and writes becomes guards, or ends the trace.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString, PyType};
use stator_cpython::frame::Frame;
use stator_cpython::heap::types;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::{BinaryOp, Conversion};
use stator_cpython::{Result, generic};

use crate::breaks::Reason;
use crate::functions::{Determined, Model, Operation};
use crate::recorder::Recorder;
use crate::recorder::notes::above::{
    Calls, Conversions, Ends, HashedKeys, Looks, Operations, PlainValues,
};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State};
use crate::recorder::notes::text_wrappers::is_in_wrapper;
use crate::recorder::numbers::number_functions::boolean;
use crate::recorder::numbers::read_tensors::TensorRead;
use crate::recorder::numbers::tensors::holds_tensor;
use crate::recorder::numbers::texts::STR;
use crate::recorder::reads::abstract_classes::is_library_metaclass;

impl Recorder {
    /// Calls a modelled function.
    pub(in crate::recorder) fn model_call<'py>(
        &self,
        model: Model,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        let native = || call.natively();
        if names.is_some() && !takes_keywords(model) {
            return self.unknown(call);
        }
        match (model, args) {
            (Model::Len, [object]) => self.length(frame, *object, native),
            (Model::Id, [object]) => self.identity_of(frame, *object, || self.call_of_plain(call)),
            (Model::Hash, [object]) => self.hash_of_any(frame, *object, native),
            (Model::IsInstance, _) => self.is_instance(call, native),
            (Model::AbstractCheck, [class, asked]) => self.abstract_check(call, [*class, *asked]),
            (
                Model::GetAttr
                | Model::HasAttr
                | Model::SetAttr
                | Model::DelAttr
                | Model::ObjectGetAttr
                | Model::ObjectSetAttr
                | Model::ObjectDelAttr,
                [_, name, ..],
            ) if is_str(*name) => self.attribute_call(model, call),
            (Model::Iter, [iterable]) => self.iterate(frame, *iterable),
            (Model::Next, [iterator]) => self
                .next_calling(frame, *iterator)
                .unwrap_or_else(|| self.next_item(frame, *iterator, native)),
            (Model::Next, [iterator, default]) => {
                Ok(self.advance(frame, *iterator)?.unwrap_or_else(|| (*default).to_owned()))
            }
            (Model::TypeOf, [object]) => Ok(self.type_of(frame, *object)),
            (Model::Vars, [class]) if self.kind(*class) == Kind::Type => {
                if let Some(proxy) = self.class_proxy(frame, *class) {
                    return Ok(proxy);
                }
                self.stop(frame, Reason::Unsupported, "attribute __dict__ of a class");
                native()
            }
            (Model::Vars, [object]) => self.dict_of(frame, *object).map_or_else(native, Ok),
            // Of `inspect.unwrap`'s chain of wrappers, which is followed. Elsewhere it's a setting that nothing guards.
            (Model::RecursionLimit, []) if is_unwrap(frame) => native(),
            (Model::Repr, [object]) => self.text_call(call, *object, None),
            (Model::Repr, [object, spec]) if is_str(*spec) => {
                self.text_call(call, *object, Some(*spec))
            }
            (Model::Super, _) => self.fresh(call),
            (Model::Scalar, _) => self.scalar(call),
            (Model::Binary(BinaryOp::InPlaceAdd), [left, right])
                if heap::is_named(callable, &["iconcat"]) && !heap::are_joined(*left, *right) =>
            {
                // It asks for sequences, `+=` doesn't.
                self.unknown(call)
            }
            (Model::Binary(op), [left, right]) => self.binary_op(frame, op, *left, *right),
            (Model::Unary(op), [operand]) => self.unary_op(frame, op, *operand),
            (Model::Compare(op), [left, right]) => self.compare_op(frame, op, *left, *right),
            (
                Model::GetItem
                | Model::SetItem
                | Model::DelItem
                | Model::Contains
                | Model::DictSlotRead
                | Model::DictRead
                | Model::SequenceRead
                | Model::ContainerWrite,
                _,
            ) => self.container_call(model, call),
            (Model::Insort, [list, ..]) => self.insort(call, *list),
            (Model::New, [class, given @ ..]) => self.new_object(call, *class, given),
            (Model::Draw, [generator, args @ ..]) => self.draw(call, *generator, args),
            (Model::NewRandom | Model::Filters, _) => self.made_by_node(model, call),
            (Model::DrawBelow, [generator, end]) => self.draw_below(call, *generator, *end),
            (Model::Check, _) => self.check_tensor(call),
            (Model::Clock, _) => self.read_clock(call),
            (Model::ThisThread, []) => self.ask_thread(call),
            (Model::Stream, _) => self.write_to_stream(call).unwrap_or_else(|| self.unknown(call)),
            (Model::Print, _) => self.print(call).unwrap_or_else(|| self.unknown(call)),
            (Model::Handled, _) => self.read_handled(call),
            (Model::FrameModule, _) => self.module_of_frame(call),
            (Model::Locals | Model::Globals, []) => self.read_names(model, call),
            (Model::Seed, [.., seed]) => self.seed(call, *seed),
            (Model::GeneratorState, [generator]) => self.generator_state(call, *generator),
            (Model::NewGenerator, _) => self.new_generator(call),
            (Model::Numpy, _) => self.call_numpy(call),
            (Model::Order, [_, _, _, ..]) => self.draw_order(call),
            (Model::Arrays(what), _) => self.call_arrays(what, call),
            (Model::Values, _) => self.call_values(call),
            (Model::TensorBackward, _) => self.tensor_backward(call),
            (Model::Backward, [_, _, ..]) => self.run_backward(call),
            (Model::SelectedDevice, _) => self.ask_selected_device(call),
            (Model::Capturing, _) => self.ask_capturing(call),
            (Model::DeviceEnter, [device]) => self.enter_device(frame, *device, native),
            (Model::DeviceExit, _) => self.exit_device(frame, native),
            (Model::LockTake, [lock, blocking]) if self.tries_own_lock(*lock, *blocking) => {
                self.try_own_lock(frame, *lock, native)
            }
            (Model::LockTake, [lock, args @ ..]) => self.take_lock(frame, *lock, args, native),
            (Model::LockGive, [lock, ..]) => self.give_lock(frame, *lock, native),
            (Model::DeepCopy, _) => self.deep_copy(call),
            (Model::Nothing, _) => native(),
            (Model::TypeCall, [class, rest @ ..]) if self.kind(*class) == Kind::Type => {
                let ty = class.cast::<PyType>().expect("the kind says it is a class").to_owned();
                self.instantiate(call.with(*class, rest), &ty)
            }
            (Model::GeneratorStep, [generator, ..]) => {
                self.generator_step(frame, *generator, native)
            }
            (Model::Call, [function, args @ ..]) => self.call_object(call.with(*function, args)),
            (Model::Substitute, [_, text, ..]) if is_str(*text) => self.substituted_by_text(call),
            (Model::Substitute, _) => self.substituted(call).unwrap_or_else(|| self.unknown(call)),
            (Model::IsSame { inverted }, [left, right]) => {
                Ok(boolean(frame.py(), self.same(frame, *left, *right) != inverted))
            }
            (Model::Reduce, [object, ..]) => self.reduce(frame, *object, args, native),
            (Model::StateSwitch, _) => self.state_switch(call),
            (Model::KernelSwitch, _) => self.kernel_switch(call),
            (Model::InferenceEnter, [mode]) => self.enter_inference(call, *mode),
            (Model::InferenceExit, [handle]) => self.exit_inference(call, *handle),
            (
                Model::ContextGet | Model::ContextSet | Model::ContextReset | Model::ContextCopy,
                _,
            ) => self.context_call(model, call),
            _ => self.unknown(call),
        }
    }

    /// `backward` of a tensor.
    fn tensor_backward<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        if self.session.takes_steps() {
            return self.call_python(call);
        }
        self.stop(call.frame, Reason::OpaqueCall, "backward");
        call.natively()
    }

    /// `send`, `throw` and `close` of a generator.
    fn generator_step<'py>(
        &self,
        frame: &Frame<'py>,
        generator: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        if !self.may_advance(frame, generator) {
            self.stop(frame, Reason::OutsideIterator, heap::type_name(generator));
        }
        self.registered(frame, native)
    }

    /// `getattr` and relatives, whose second argument is a text.
    fn attribute_call<'py>(&self, model: Model, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, args, .. } = call;
        let py = frame.py();
        let name = heap::interned(args[1]);
        let (owner, name) = (args[0], name.as_borrowed());
        match (model, &args[2..]) {
            (Model::GetAttr, []) => self.get_attr(frame, owner, name),
            (Model::GetAttr, [default]) => {
                let found = self.get_attr(frame, owner, name);
                self.or_default(frame, found, || (*default).to_owned())
            }
            (Model::HasAttr, []) => {
                let found = self.get_attr(frame, owner, name).map(|_| boolean(py, true));
                self.or_default(frame, found, || boolean(py, false))
            }
            (Model::SetAttr, [value]) => {
                self.set_attr(frame, owner, name, Some(*value)).map(|()| none(py))
            }
            (Model::DelAttr, []) => self.set_attr(frame, owner, name, None).map(|()| none(py)),
            (Model::ObjectGetAttr, []) => self.generic_attr_value(frame, owner, name),
            (Model::ObjectSetAttr, [value]) => {
                self.generic_set_attr(frame, owner, name, Some(*value)).map(|()| none(py))
            }
            (Model::ObjectDelAttr, []) => {
                self.generic_set_attr(frame, owner, name, None).map(|()| none(py))
            }
            _ => self.unknown(call),
        }
    }

    /// What containers hold is read or written.
    fn container_call<'py>(&self, model: Model, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, args, .. } = call;
        let py = frame.py();
        match (model, args) {
            (Model::GetItem, [owner, key]) => self.get_item(frame, *owner, *key),
            (Model::SetItem, [owner, key, value]) => {
                self.set_item(frame, *owner, *key, Some(*value)).map(|()| none(py))
            }
            (Model::DelItem, [owner, key]) => {
                self.set_item(frame, *owner, *key, None).map(|()| none(py))
            }
            (Model::Contains, [container, item]) => {
                self.contains_item(frame, *container, *item).map(|found| boolean(py, found))
            }
            (Model::DictSlotRead, [dict, key, ..]) => self.read_dict_key(call, *dict, *key),
            (Model::DictRead, [dict, others @ ..]) => self.read_dict(call, *dict, others),
            (Model::SequenceRead, _) => self.read_sequences(call),
            (Model::ContainerWrite, [_, ..]) if is_in_wrapper(frame) => call.natively(),
            (Model::ContainerWrite, [_, ..]) => {
                self.count_elements(call).unwrap_or_else(|| self.container_write(call))
            }
            _ => self.unknown(call),
        }
    }

    /// What is done with context variables, and with contexts.
    fn context_call<'py>(&self, model: Model, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, args, .. } = call;
        let native = || call.natively();
        match (model, args) {
            (Model::ContextGet, [variable] | [variable, _]) => {
                self.context_get(frame, *variable, args.len() == 2, native)
            }
            (Model::ContextSet, [variable, _]) => self.context_set(frame, *variable, native),
            (Model::ContextReset, [variable, token]) => {
                self.context_reset(frame, *variable, *token, native)
            }
            (Model::ContextCopy, []) if self.session.takes_steps() && is_engine(frame) => {
                self.copy_context(call)
            }
            _ => self.unknown(call),
        }
    }

    /// `bisect.insort` into a list; of others it calls methods.
    fn insort<'py>(&self, call: Call<'_, 'py>, list: Borrowed<'_, 'py>) -> Result<Object<'py>> {
        if !call.positional().is_empty() && heap::is_exact_list(list) {
            self.container_write(call)
        } else {
            self.unknown(call)
        }
    }

    /// A call whose form no row describes ends the trace.
    fn unknown<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        self.stop(call.frame, Reason::OpaqueCall, heap::name_of(call.callable));
        call.natively()
    }

    /// A call whose result is new and belongs to the trace.
    fn fresh<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let object = call.natively()?;
        self.note(call.frame, |state| {
            state.set_fresh(object.as_borrowed());
            Ok(())
        });
        Ok(object)
    }

    /// `type(x)`.
    fn type_of<'py>(&self, frame: &Frame<'py>, object: Borrowed<'_, 'py>) -> Object<'py> {
        let ty = object.get_type();
        self.note(frame, |state| {
            state.anchor(ty.as_any().as_borrowed());
            Ok(())
        });
        ty.into_any()
    }

    /// `d.get(k)`, `d[k]`, `k in d`: one slot is read.
    fn read_dict_key<'py>(
        &self,
        call: Call<'_, 'py>,
        dict: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        let name = heap::callable_name(call.callable);
        let gets = name != "__contains__";
        // With others it raises.
        let is_whole = call.args.len() == 2 || (name == "get" && call.args.len() == 3);
        if is_whole
            && call.names.is_none()
            && (name != "__getitem__" || heap::is_exact_dict(dict))
            && let Some(found) = self.entry_by_hash(call.frame, dict, key)
        {
            return self.answered_by_hash(call, &name, found?);
        }
        let own = self.note(call.frame, |state| {
            let value = heap::dict_get(dict, key);
            if !gets {
                return state.asks_membership(dict, key, value).map(|()| None);
            }
            if let Some(value) = &value
                && is_whole
                && call.names.is_none()
                && state.takes_stand_ins(dict)
                && state.is_plain_key(key)
                && let Some(own) = state.read_slot_value(dict, key, value.as_borrowed())?
            {
                return Ok(Some(own));
            }
            state.read_key(dict, key, value).map(|()| None)
        });
        own.flatten().map_or_else(|| call.natively(), Ok)
    }

    /// What a method of a dictionary gives that was asked for a key.
    fn answered_by_hash<'py>(
        &self,
        call: Call<'_, 'py>,
        name: &str,
        found: Option<Object<'py>>,
    ) -> Result<Object<'py>> {
        let py = call.frame.py();
        match (name, found) {
            ("__contains__", found) => Ok(PyBool::new(py, found.is_some()).to_owned().into_any()),
            (_, Some(value)) => Ok(value),
            ("get", None) => {
                let default = call.args.get(2).map(|default| (*default).to_owned());
                Ok(default.unwrap_or_else(|| py.None().into_bound(py)))
            }
            (_, None) => Err(self.lacks_key(call.args[1])),
        }
    }

    /// Methods that read a dictionary as a whole.
    fn read_dict<'py>(
        &self,
        call: Call<'_, 'py>,
        dict: Borrowed<'_, 'py>,
        others: &[Borrowed<'_, 'py>],
    ) -> Result<Object<'py>> {
        let name = heap::callable_name(call.callable);
        self.note(call.frame, |state| {
            if heap::passes_order(call.callable, dict) {
                return Err((Reason::Unsupported, format!("dict.{name} of an OrderedDict")));
            }
            state.adopt_dict_of(&name, dict)?;
            others.iter().try_for_each(|other| state.adopt_deep(*other))
        });
        self.registered(call.frame, || call.natively())
    }

    /// Functions that compare what sequences hold.
    fn read_sequences<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        self.note(call.frame, |state| {
            call.args.iter().try_for_each(|arg| {
                state.refuse_own_equality(*arg)?;
                state.adopt_deep(*arg)?;
                if holds_tensor(state, *arg) {
                    let detail = format!("{} with tensors", heap::name_of(call.callable));
                    return Err((Reason::DataRead, detail));
                }
                state.note_equated(*arg);
                Ok(())
            })
        });
        self.registered(call.frame, || call.natively())
    }

    /// `object.__new__` and relatives.
    fn new_object<'py>(
        &self,
        call: Call<'_, 'py>,
        class: Borrowed<'_, 'py>,
        given: &[Borrowed<'_, 'py>],
    ) -> Result<Object<'py>> {
        self.note(call.frame, |state| {
            if state.kind(class) == Kind::Type {
                given.iter().try_for_each(|arg| state.adopt_deep(*arg))
            } else {
                Err((Reason::OpaqueCall, heap::name_of(call.callable)))
            }
        });
        self.fresh(call)
    }

    fn registered<'py>(
        &self,
        frame: &Frame<'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        let result = native()?;
        self.note(frame, |state| state.register(result.as_borrowed()));
        Ok(result)
    }

    fn or_default<'py>(
        &self,
        frame: &Frame<'py>,
        found: Result<Object<'py>>,
        default: impl FnOnce() -> Object<'py>,
    ) -> Result<Object<'py>> {
        match found {
            Err(raised)
                if !generic::exception_matches::<pyo3::exceptions::PyAttributeError>(
                    frame.py(),
                ) =>
            {
                Err(raised)
            }
            Err(_) => {
                generic::clear_exception(frame.py());
                Ok(default())
            }
            found => found,
        }
    }

    /// `len()`.
    pub(in crate::recorder) fn length<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        if self.length_of_array(frame, object) {
            return native();
        }
        if matches!(self.kind(object), Kind::Type | Kind::Singleton)
            && !self.is_stopped()
            && let Some(length) =
                self.python_converted(frame, object, "__len__", Conversion::Length)
        {
            return length;
        }
        self.guard_length(frame, object);
        if self.kind(object) == Kind::Tensor {
            let _native = Suspended::new(frame.py());
            return native();
        }
        self.python_length(frame, object).unwrap_or_else(native)
    }

    /// `isinstance`, `issubclass`, `callable`: functions of types, which are guarded.
    pub(in crate::recorder) fn is_instance<'py>(
        &self,
        call: Call<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        self.note(frame, |state| {
            args.iter().enumerate().try_for_each(|(index, arg)| {
                if index > 0 {
                    state.adopt_deep(*arg)?;
                }
                match state.kind(*arg) {
                    Kind::Opaque if !state.is_array_value(*arg) => {
                        Err((Reason::Unsupported, heap::type_name(*arg)))
                    }
                    _ => Ok(()),
                }
            })
        });
        self.guard_protocol(frame, args[0], &["__class__", "__instancecheck__", "__call__"]);
        let Some(classes) = args.get(1) else { return native() };
        let members = heap::union_members(*classes);
        let is_union = members.is_some();
        let classes = match (self.kind(*classes), members) {
            (Kind::Tuple, _) => heap::tuple_items(*classes),
            (_, Some(members)) => members,
            _ => vec![(*classes).to_owned()],
        };
        let is_known = |class: &Object<'_>| {
            let meta = class.get_type();
            meta.is(frame.py().get_type::<PyType>()) || is_library_metaclass(&meta)
        };
        if is_union && !classes.iter().all(is_known) {
            self.stop(
                frame,
                Reason::Unsupported,
                "a union of classes of which one says what is in it",
            );
        }
        self.guard_registrations(frame, args[0], &classes);
        let library = classes.iter().any(|class| is_library_metaclass(&class.get_type()));
        for class in &classes {
            self.guard_protocol_of(
                frame,
                class.as_borrowed(),
                &["__instancecheck__", "__subclasscheck__"],
            );
        }
        if library || self.kind(args[0]) == Kind::Tensor {
            // The checks of abstract classes and of PyTorch's are functions of the type.
            let _native = Suspended::new(frame.py());
            return native();
        }
        if let [object, class] = args
            && let Some(found) =
                self.python_is_instance(frame, &heap::callable_name(callable), [*object, *class])
        {
            return found;
        }
        native()
    }

    /// `repr`, `str` and `format` of an object.
    fn text_call<'py>(
        &self,
        call: Call<'_, 'py>,
        object: Borrowed<'_, 'py>,
        spec: Option<Borrowed<'_, 'py>>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        let conversion = conversion_of(callable);
        let takes = spec.is_none() || conversion == 0;
        if matches!(conversion, 0 | 1)
            && spec.is_none_or(|spec| heap::text(spec).is_empty())
            && let Some(said) = self.said_by(frame, object)
        {
            return self.convert_value(frame, said.as_borrowed(), STR);
        }
        let text = takes.then(|| {
            let text = self.python_text(frame, object, conversion, spec);
            text.or_else(|| self.carried_format(frame, object, conversion, spec))
        });
        text.flatten().unwrap_or_else(|| self.text_of(frame, object, || call.natively()))
    }

    /// A call of a class of which a node may make an instance.
    fn made_by_node<'py>(&self, model: Model, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let made = match model {
            Model::NewRandom => self.new_random(call),
            _ => self.new_filters(call),
        };
        made.unwrap_or_else(|| {
            let ty = call.callable.cast::<PyType>().expect("the row's is a class").to_owned();
            self.instantiate(call, &ty)
        })
    }

    /// Functions that read a number: of constants they're pure, of tensors they read data.
    fn scalar<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        let name = heap::callable_name(callable);
        if args.iter().any(|arg| self.kind(*arg) == Kind::Tensor) {
            if matches!(&*name, "abs" | "pow") && names.is_none() {
                let operation = Operation {
                    name: name.as_ref().into(),
                    is_method: false,
                    determined: Determined::Always,
                };
                let target = |state: &mut State| operation.target(state, callable);
                return self.operation(frame, target, args, None, || call.natively());
            }
            if !matches!(args, [tensor] if self.is_constant_data(*tensor)) {
                if let ([tensor], None) = (args, names) {
                    let native = || call.natively();
                    if let Some(read) = TensorRead::by_type(&name)
                        && let Some(found) = self.converted(frame, read, *tensor, native)
                    {
                        return found;
                    }
                }
                self.stop(frame, Reason::DataRead, format!("{name}() of a tensor"));
            }
            return call.natively();
        }
        if names.is_some() && args.iter().any(|arg| self.kind(*arg) == Kind::Object) {
            // The argument in front may be another one than the number.
            return self.unknown(call);
        }
        if let Some(result) = self.scalar_of_value(call) {
            return result;
        }
        if let ("float", [scalar]) = (&*name, args)
            && let Some(number) = self.float_of_scalar(frame, callable, *scalar)
        {
            return Ok(number);
        }
        if matches!(&*name, "abs" | "round")
            && args.first().is_some_and(|arg| self.holds_array(*arg))
            && args.iter().skip(1).all(|arg| self.kind(*arg) == Kind::Constant)
        {
            self.concrete(frame, &args[1..], "read by NumPy");
            return self.array_node(call, &name, false);
        }
        if let [arg] = args
            && self.kind(*arg) == Kind::Singleton
            && (heap::is_truth_of_numpy(*arg) || heap::is_of_pybind(*arg))
        {
            return call.natively();
        }
        let is_truth = matches!(&*name, "bool" | "not_" | "truth");
        for arg in args {
            self.note(frame, |state| state.refuse_native_state(*arg));
            match self.kind(*arg) {
                Kind::Constant => {}
                Kind::List | Kind::Tuple | Kind::Dict | Kind::Set | Kind::FrozenSet => {
                    self.guard_length(frame, *arg);
                    self.guard_protocol(frame, *arg, &["__bool__"]);
                }
                Kind::Object if is_truth => {
                    self.guard_protocol(frame, *arg, &["__bool__", "__len__"]);
                }
                Kind::Object => self.guard_protocol(frame, *arg, AS_NUMBER),
                Kind::Singleton if !is_truth && self.is_enumerated(*arg) => {
                    self.guard_protocol(frame, *arg, AS_NUMBER);
                }
                Kind::Iterator if self.origin(*arg) != Some(Origin::Fresh) => {
                    self.stop(frame, Reason::OutsideIterator, heap::type_name(*arg));
                }
                Kind::Opaque | Kind::Type if is_truth => {
                    self.guard_operands(frame, &[*arg], &["__bool__", "__len__"]);
                }
                _ if is_truth => {}
                _ => self.stop(
                    frame,
                    Reason::Unsupported,
                    format!("{name}() of a {}", heap::type_name(*arg)),
                ),
            }
        }
        if let Some(result) = self.python_scalar(frame, &name, args) {
            let result = result?;
            self.note(frame, |state| state.register(result.as_borrowed()));
            return Ok(result);
        }
        self.registered(frame, || call.natively())
    }

    /// Whether an object that is known by identity is an int all the same, by the methods of `int`: a member of an `IntEnum`
    /// or `IntFlag`.
    fn is_enumerated(&self, object: Borrowed<'_, '_>) -> bool {
        let ty = object.get_type();
        let is_native = |name: &&str| {
            let found = types::lookup_named(&ty, name);
            found.is_none_or(|found| self.kind(found.as_borrowed()) != Kind::Function)
        };
        object.is_instance_of::<PyInt>() && AS_NUMBER.iter().all(is_native)
    }
}

/// The special methods by which an object is a number.
const AS_NUMBER: &[&str] = &[
    "__int__",
    "__float__",
    "__index__",
    "__abs__",
    "__round__",
    "__trunc__",
    "__divmod__",
    "__pow__",
    "__complex__",
];

/// How `FORMAT_VALUE` numbers what a builtin function does.
fn conversion_of(callable: Borrowed<'_, '_>) -> u32 {
    match &*heap::callable_name(callable) {
        "format" => 0,
        "str" => 1,
        "repr" => 2,
        _ => 3,
    }
}

fn takes_keywords(model: Model) -> bool {
    matches!(
        model,
        Model::TypeCall
            | Model::ContainerWrite
            | Model::Insort
            | Model::New
            | Model::Nothing
            | Model::Scalar
            | Model::Repr
            | Model::Call
            | Model::Substitute
            | Model::Check
            | Model::Print
            | Model::NewGenerator
            | Model::NewRandom
            | Model::Filters
            | Model::Numpy
            | Model::Arrays(_)
            | Model::Values
            | Model::Backward
            | Model::TensorBackward
    )
}

/// Whether `re._compile` prints how it does it.
pub(super) fn compiles_aloud(call: Call<'_, '_>) -> bool {
    const DEBUG: i64 = 128;
    let is_aloud =
        |flags: &Borrowed<'_, '_>| flags.extract::<i64>().map_or(true, |flags| flags & DEBUG != 0);
    call.args.get(1).is_some_and(is_aloud)
}

/// Whether a frame is that of `inspect.unwrap`.
fn is_unwrap(frame: &Frame<'_>) -> bool {
    let code = frame.code();
    heap::text(code.qualname()) == "unwrap" && heap::text(code.filename()).ends_with("/inspect.py")
}

/// Whether a frame is the one that calls PyTorch's engine.
fn is_engine(frame: &Frame<'_>) -> bool {
    let code = frame.code();
    heap::text(code.qualname()) == "_engine_run_backward"
        && heap::text(code.filename()).ends_with("torch/autograd/graph.py")
}

fn none(py: Python<'_>) -> Object<'_> {
    py.None().into_bound(py)
}

fn is_str(object: Borrowed<'_, '_>) -> bool {
    object.is_exact_instance_of::<PyString>()
}
