//! Construction: what `type.__call__` does, so that a graph break in a class's `__new__` or `__init__`
//! is a break in an inlined call.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFunction, PyList, PyTuple, PyType, PyWeakrefReference};
use stator_bytecode::Meaning;
use stator_cpython::frame::{Frame, Operands};
use stator_cpython::heap::{dict, types};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, generic, ops};
use stator_evaluator::{Role, called_class};

use crate::breaks::Reason;
use crate::functions::{Class, Model, values};
use crate::recorder::Recorder;
use crate::recorder::ending::exceptions::has_plain_layout;
use crate::recorder::links::meaning_at;
use crate::recorder::notes::above::{Calls, Ends, Looks, Operations};
use crate::recorder::notes::call::{Call, with_receiver};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State};
use crate::recorder::reads::whole_containers::is_plain;

impl Recorder {
    /// A class: `type.__call__` is followed to `__new__` and `__init__`.
    pub(in crate::recorder) fn construct<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable: class, args, .. } = call;
        self.links.clear();
        if let Some(result) = self.new_tensor_of_numbers(call) {
            return result;
        }
        if let Some(known) = self.functions.class(class).or_else(|| values::of_decimal(class)) {
            return self.call_with_views(call).unwrap_or_else(|| self.call_class(known, call));
        }
        self.sees_more();
        if let Some(result) = self.new_weak_reference(call) {
            return result;
        }
        let ty = class.cast::<PyType>().expect("the kind says it is a class");
        let py = frame.py();
        let meta = ty.get_type();
        if !meta.is(py.get_type::<PyType>()) {
            let name = pyo3::intern!(py, "__call__").as_any().as_borrowed();
            match self.lookup(frame, &meta, name) {
                Some(found) if self.kind(found.as_borrowed()) == Kind::Function => {
                    let all = with_receiver(class, args);
                    return self.call_linked(
                        Role::Callee,
                        None,
                        call.with(found.as_borrowed(), &all),
                    );
                }
                _ => {}
            }
        }
        self.instantiate(call, &ty)
    }

    /// `weakref.ref(x)` of an object whose life the trace knows; that of a tensor it doesn't. C code keeps one such
    /// reference for each object, so it may have been made before.
    fn new_weak_reference<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let ([object], None) = (call.args, call.names) else { return None };
        let is_known = call.callable.is(call.frame.py().get_type::<PyWeakrefReference>())
            && matches!(
                self.kind(*object),
                Kind::Object | Kind::Dict | Kind::List | Kind::Set | Kind::Function
            )
            && matches!(self.origin(*object), Some(Origin::Source(_) | Origin::Fresh));
        if !is_known || self.is_stopped() {
            return None;
        }
        let made = call.natively();
        if let Ok(reference) = &made {
            self.note(call.frame, |state| {
                if state.origin(reference.as_borrowed()).is_none() {
                    state.set_fresh(reference.as_borrowed());
                }
                Ok(())
            });
        }
        Some(made)
    }

    /// `torch.FloatTensor([0.5])`, and `torch.Tensor` likewise: one node, where it's given numbers alone.
    fn new_tensor_of_numbers<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, callable: class, args, names } = call;
        let ([data], None) = (args, names) else { return None };
        let is_given_data = heap::is_exact_list(*data) || data.is_exact_instance_of::<PyTuple>();
        if !is_given_data || self.is_stopped() || !is_legacy_constructor(class) {
            return None;
        }
        self.concrete(frame, args, "the elements of a tensor");
        self.note(frame, |state| {
            state.know_for_good(class)?;
            state.adopt_deep(*data)?;
            if is_plain(state, *data) {
                return Ok(());
            }
            Err((Reason::OpaqueCall, format!("creation of a {}", heap::name_of(class))))
        });
        let target = |state: &mut State| state.function_target(class, heap::name_of(class));
        Some(self.operation(frame, target, args, None, || call.natively()))
    }

    /// What `type.__call__` does.
    pub(in crate::recorder) fn instantiate<'py>(
        &self,
        call: Call<'_, 'py>,
        ty: &Bound<'py, PyType>,
    ) -> Result<Object<'py>> {
        let Call { frame, args, names, .. } = call;
        let py = frame.py();
        let class = ty.as_any().as_borrowed();
        let new = self.lookup(frame, ty, pyo3::intern!(py, "__new__").as_any().as_borrowed());
        let init = self.lookup(frame, ty, pyo3::intern!(py, "__init__").as_any().as_borrowed());
        let (Some(new), Some(init)) = (new, init) else { return call_type(class, args, names) };
        let new = heap::wrapped_function(new.as_borrowed());
        self.vouch(frame, new.as_borrowed());
        if self.kind(new.as_borrowed()) == Kind::Function {
            let all = with_receiver(class, args);
            let made = if waits_on_stack(frame, class, args) {
                self.call_linked(
                    Role::New,
                    None,
                    Call { frame, callable: new.as_borrowed(), args: &all, names },
                )?
            } else {
                self.call_object(Call { frame, callable: new.as_borrowed(), args: &all, names })?
            };
            return self.initialized(Call { frame, callable: class, args, names }, made);
        }
        let known = self.functions.class(new.as_borrowed());
        let new_is_default = matches!(known, Some(Class::Model(Model::New)));
        if !new_is_default && known.is_none() {
            let detail = heap::name_of(class);
            self.stop(frame, Reason::OpaqueCall, format!("creation of a {detail}"));
            return call_type(class, args, names);
        }
        if self.kind(init.as_borrowed()) != Kind::Function && !is_filled_by_python(ty) {
            // Exceptions, plain objects, containers of builtin bases.
            if !only_moves(init.as_borrowed(), call) && !is_plain_exception(ty) {
                self.concrete(frame, args, "the creation of an object");
            }
            self.note(frame, |state| args.iter().try_for_each(|arg| state.adopt_deep(*arg)));
            let result = call_type(class, args, names)?;
            self.note(frame, |state| {
                if state.origin(result.as_borrowed()).is_none() {
                    state.set_fresh(result.as_borrowed());
                }
                Ok(())
            });
            return Ok(result);
        }
        // `__new__` first, then `__init__`, which runs Python code, on a known object.
        let object = if new_is_default {
            generic::new_object(ty, args, names)?
        } else {
            let all = with_receiver(class, args);
            self.call_object(Call { frame, callable: new.as_borrowed(), args: &all, names })?
        };
        self.initialized(Call { frame, callable: class, args, names }, object)
    }

    /// What `type.__call__` does with what `__new__` has made in a call of a class: the object's own `__init__`, if it
    /// is an instance of the class.
    pub(in crate::recorder) fn initialized<'py>(
        &self,
        call: Call<'_, 'py>,
        object: Object<'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable: class, args, names } = call;
        if self.stopped.get() {
            return ops::initialized(class, object, args, names);
        }
        let made = object.clone();
        self.part(
            frame.py(),
            || self.followed_to_init(call, object),
            || ops::initialized(class, made, args, names),
        )
    }

    fn followed_to_init<'py>(
        &self,
        call: Call<'_, 'py>,
        object: Object<'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable: class, args, names } = call;
        let own = object.get_type();
        let ty = class.cast::<PyType>().expect("a class was called");
        if !generic::is_subtype(&own, &ty) {
            return Ok(object);
        }
        let name = pyo3::intern!(frame.py(), "__init__").as_any().as_borrowed();
        let Some(init) = self.lookup(frame, &own, name) else {
            return ops::initialized(class, object, args, names);
        };
        self.note(frame, |state| {
            if !matches!(state.origin(object.as_borrowed()), Some(Origin::Source(_))) {
                state.set_fresh(object.as_borrowed());
            }
            Ok(())
        });
        let known = self.functions.class(init.as_borrowed());
        if matches!(known, Some(Class::Model(Model::Nothing))) {
            return Ok(object);
        }
        let receiver = object.clone();
        let all = with_receiver(receiver.as_borrowed(), args);
        if self.kind(init.as_borrowed()) != Kind::Function {
            if known.is_none() || self.kind(init.as_borrowed()) != Kind::Builtin {
                self.stop(frame, Reason::OpaqueCall, heap::name_of(init.as_borrowed()));
                return ops::initialized(class, object, args, names);
            }
            self.call_object(Call { frame, callable: init.as_borrowed(), args: &all, names })?;
            return Ok(object);
        }
        let held = Some(object.clone());
        let result = self.call_linked(
            Role::Init,
            held,
            Call { frame, callable: init.as_borrowed(), args: &all, names },
        )?;
        if !result.is_none() {
            return Err(generic::raise_init_result(result.as_borrowed()));
        }
        Ok(object)
    }
}

/// Whether a constructor moves what it is given into a dictionary or list, and looks at nothing: containers of these types
/// are copied as they are, and names are texts.
fn only_moves(init: Borrowed<'_, '_>, call: Call<'_, '_>) -> bool {
    let py = init.py();
    let is_of = |class: Bound<'_, PyType>| class.getattr("__init__").is_ok_and(|own| init.is(&own));
    let given = call.positional();
    if is_of(py.get_type::<PyDict>()) {
        return given.len() < 2 && given.iter().all(|given| heap::is_exact_dict(*given));
    }
    let is_row = |given: &Borrowed<'_, '_>| {
        heap::is_exact_list(*given) || given.is_exact_instance_of::<PyTuple>()
    };
    is_of(py.get_type::<PyList>()) && call.names.is_none() && given.iter().all(is_row)
}

/// Whether instances of a class are exceptions that hold their arguments and look at nothing.
fn is_plain_exception(ty: &Bound<'_, PyType>) -> bool {
    ty.is_subclass_of::<PyBaseException>().unwrap_or(false) && has_plain_layout(ty)
}

/// Whether the C code of `OrderedDict.__init__` fills an instance by a `__setitem__` in Python.
fn is_filled_by_python(ty: &Bound<'_, PyType>) -> bool {
    let set = types::lookup_named(ty, "__setitem__");
    set.is_some_and(|set| set.is_instance_of::<PyFunction>())
        && dict::is_ordered_type(ty.as_borrowed())
}

/// Whether a class is `torch.Tensor`, or one of the types of older PyTorch that make tensors on the CPU.
fn is_legacy_constructor(class: Borrowed<'_, '_>) -> bool {
    let name = heap::name_of(class);
    LEGACY_CONSTRUCTORS.contains(&&*name)
        && heap::loaded_module(class.py(), "torch")
            .and_then(|torch| torch.getattr(&*name).ok())
            .is_some_and(|own| own.is(&*class))
}

const LEGACY_CONSTRUCTORS: [&str; 11] = [
    "Tensor",
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
];

/// `type.__call__`, where the class's metaclass has a `__call__` in Python: that one is calling.
fn call_type<'py>(
    class: Borrowed<'_, 'py>,
    args: &[Borrowed<'_, 'py>],
    names: Option<Borrowed<'_, 'py>>,
) -> Result<Object<'py>> {
    let py = class.py();
    let name = pyo3::intern!(py, "__call__").as_any().as_borrowed();
    let found = |ty: &Bound<'py, PyType>| types::lookup(ty.as_borrowed(), name);
    let is_python =
        found(&class.get_type()).is_some_and(|call| call.is_instance_of::<PyFunction>());
    match found(&py.get_type::<PyType>()) {
        Some(call) if is_python => {
            let all = with_receiver(class, args);
            ops::call(call.as_borrowed(), &all, names)
        }
        _ => ops::call(class, args, names),
    }
}

/// Whether the instruction that `frame` stands at calls this very class with these very arguments.
fn waits_on_stack(frame: &Frame<'_>, class: Borrowed<'_, '_>, args: &[Borrowed<'_, '_>]) -> bool {
    let calls = |operands: &Operands<'_, '_>| {
        operands.receiver.is_none() && called_class(operands.callable).as_ptr() == class.as_ptr()
    };
    match meaning_at(frame) {
        Meaning::Call { .. } => frame
            .operands(args.len(), 0)
            .is_some_and(|operands| calls(&operands) && operands.are(args)),
        Meaning::CallNamed { .. } => frame
            .operands(args.len(), 1)
            .is_some_and(|operands| calls(&operands) && operands.are(args)),
        Meaning::CallUnpacked { has_kwargs } => frame
            .operands(1, usize::from(has_kwargs))
            .is_some_and(|operands| calls(&operands) && operands.is_unpacked()),
        _ => false,
    }
}
