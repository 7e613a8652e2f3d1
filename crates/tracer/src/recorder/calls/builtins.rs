//! Builtin functions that call Python methods: called from here, so that a graph break in such a method
//! is a break in an inlined call.
//!
//! Where the instruction is a plain call of the function, its arguments lie on the frame's stack, and
//! [`End`] says how the call ends when the method has returned. The table is [`end_of`].

use std::cell::Cell;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use stator_bytecode::Meaning;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::types;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::Conversion;
use stator_evaluator::{End, Role, format_text};

use crate::breaks::Reason;
use crate::functions::{Class, Model};
use crate::recorder::Recorder;
use crate::recorder::links::{Builtin, meaning_at};
use crate::recorder::notes::above::{Calls, Conversions, Ends, Looks, Protocols};
use crate::recorder::notes::call::{Call, with_receiver};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::numbers::number_functions::boolean;
use crate::recorder::numbers::read_tensors::LONGEST;

/// Resets the current builtin function when dropped.
pub(in crate::recorder) struct Calling<'a> {
    current: &'a Cell<Option<Builtin>>,
    before: Option<Builtin>,
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.current.set(self.before);
    }
}

/// Functions that call methods.
fn calls_methods(model: Model) -> bool {
    matches!(
        model,
        Model::GetAttr
            | Model::HasAttr
            | Model::SetAttr
            | Model::DelAttr
            | Model::SetItem
            | Model::GetItem
            | Model::Contains
            | Model::Iter
            | Model::Next
            | Model::Scalar
            | Model::Len
            | Model::Hash
            | Model::IsInstance
            | Model::Repr
            | Model::Binary(_)
            | Model::Compare(_)
            | Model::Unary(_)
    )
}

impl Conversions for Recorder {
    fn python_converted<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        name: &'static str,
        conversion: Conversion,
    ) -> Option<Result<Object<'py>>> {
        let method = match self.kind(object) {
            // Of a class whose own class is a program's, or of a member of an enumeration.
            Kind::Type | Kind::Singleton => {
                self.special_of_any(frame, object, &PyString::intern(frame.py(), name))?
            }
            _ => self.method(frame, object, name)?,
        };
        Some(self.call_method(frame, End::Convert(conversion), object, &method, &[]))
    }

    fn python_length<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        if !self.has_symbols() || self.is_stopped() || self.kind(object) != Kind::Object {
            return self.python_converted(frame, object, "__len__", Conversion::Length);
        }
        let method = self.method(frame, object, "__len__")?;
        let end = End::Convert(Conversion::Length);
        let args = with_receiver(object, &[]);
        let result = {
            let _measuring = self.measuring(frame);
            let role = Role::Builtin(end);
            self.call_linked(role, None, Call::new(frame, method.as_borrowed(), &args))
        };
        if let Ok(length) = &result {
            let length = length.as_borrowed();
            if !self.is_stopped() && self.state.borrow_mut().is_length(length) {
                return Some(result);
            }
            self.concrete(frame, &[length], "returned to C code");
        }
        let interrupts = |what: &'static str| self.stop(frame, Reason::OpaqueCall, what);
        Some(end.finish(&[object], result, interrupts))
    }

    fn python_text<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        conversion: u32,
        spec: Option<Borrowed<'_, 'py>>,
    ) -> Option<Result<Object<'py>>> {
        const FORMAT: u32 = 0;
        const STR: u32 = 1;
        const REPR: u32 = 2;
        if !matches!(self.kind(object), Kind::Object | Kind::Tuple) {
            return None;
        }
        let py = frame.py();
        let ty = object.get_type();
        let is_default = |name| {
            let [own, default] =
                [&ty, &py.get_type::<PyAny>()].map(|ty| types::lookup_named(ty, name));
            own.zip(default).is_some_and(|(own, default)| own.is(&default))
        };
        let empty = PyString::new(py, "");
        let mut more = None;
        let (name, conversion) = match conversion {
            FORMAT if !is_default("__format__") => {
                more = Some(spec.unwrap_or(empty.as_any().as_borrowed()));
                ("__format__", Conversion::Format)
            }
            FORMAT if spec.is_some_and(|spec| spec.is_truthy().unwrap_or(true)) => return None,
            FORMAT | STR if is_default("__str__") => ("__repr__", Conversion::Str),
            FORMAT | STR => ("__str__", Conversion::Str),
            REPR => ("__repr__", Conversion::Repr),
            _ => return None,
        };
        let method = match self.kind(object) {
            Kind::Tuple if self.is_stopped() => return None,
            Kind::Tuple => {
                self.origin(object)?;
                self.special_of_any(frame, object, &PyString::intern(py, name))?
            }
            _ => self.method(frame, object, name)?,
        };
        self.guard_protocol(frame, object, &["__str__", "__repr__", "__format__"]);
        let more = more.as_slice();
        Some(self.call_method(frame, End::Convert(conversion), object, &method, more))
    }

    fn python_format<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        conversion: u32,
        spec: Option<Borrowed<'_, 'py>>,
    ) -> Option<Result<Object<'py>>> {
        let own = spec.filter(|_| conversion == 0);
        let text = self.python_text(frame, object, conversion, own)?;
        let interrupts = |what: &'static str| self.stop(frame, Reason::OpaqueCall, what);
        Some(text.and_then(|text| format_text(text, conversion != 0, spec, interrupts)))
    }
}

impl Recorder {
    /// The instruction that `frame` stands at calls this function; until the result is dropped, methods
    /// that are called for its sake are the function's.
    pub(in crate::recorder) fn calling(
        &self,
        model: Model,
        call: Call<'_, '_>,
    ) -> Option<Calling<'_>> {
        let Call { frame, callable, args, .. } = call;
        if !calls_methods(model) {
            return None;
        }
        let is_plain = !self.is_stopped() && is_plain_call(call);
        let builtin = is_plain.then(|| Builtin {
            frame: frame.id(),
            model,
            count: args.len(),
            inverted: model == Model::Scalar && &*heap::callable_name(callable) == "not_",
        });
        let current = &self.links.builtin;
        Some(Calling { current, before: current.replace(builtin) })
    }

    /// `functools.reduce` of what is done step by step. `getattr`: a way along attributes, each of which is read as by
    /// `getattr`. An operator of numbers: as the program would write it.
    pub(in crate::recorder) fn reduced<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { callable, args, names, .. } = call;
        let ([function, path, start @ ..], None) = (args, names) else { return None };
        if !heap::is_named(callable, &["reduce"]) || self.is_stopped() {
            return None;
        }
        let items = match self.functions.class(*function) {
            Some(Class::Model(Model::GetAttr)) if !start.is_empty() => {
                if !heap::is_exact_list(*path) && !path.is_exact_instance_of::<PyTuple>() {
                    return None;
                }
                self.note(call.frame, |state| state.adopt_deep(*path));
                heap::children(*path)
            }
            Some(Class::Model(Model::Binary(_))) => {
                let items = self.elements(*path)?;
                let mut state = self.state.borrow_mut();
                let mut all =
                    items.iter().map(|item| item.as_borrowed()).chain(start.iter().copied());
                if items.len() > LONGEST as usize || !all.all(|item| state.term(item).is_some()) {
                    return None;
                }
                items
            }
            _ => return None,
        };
        let mut items = items.into_iter();
        let mut found = match start.first() {
            Some(start) => (*start).to_owned(),
            None => items.next()?,
        };
        for item in items {
            let args = [found.as_borrowed(), item.as_borrowed()];
            match self.call_object(call.with(*function, &args)) {
                Ok(next) => found = next,
                raised => return Some(raised),
            }
        }
        Some(Ok(found))
    }

    /// Calls a method of an object for a builtin function.
    fn call_method<'py>(
        &self,
        frame: &Frame<'py>,
        end: End,
        object: Borrowed<'_, 'py>,
        method: &Object<'py>,
        more: &[Borrowed<'_, 'py>],
    ) -> Result<Object<'py>> {
        let args = with_receiver(object, more);
        let role = Role::Builtin(end);
        let result = self.call_linked(role, None, Call::new(frame, method.as_borrowed(), &args));
        let interrupts = |what: &'static str| self.stop(frame, Reason::OpaqueCall, what);
        end.finish(&[object], result, interrupts)
    }

    /// A special method of an instance whose state is known, if it is a Python function.
    fn method<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        name: &'static str,
    ) -> Option<Object<'py>> {
        self.origin(object)?;
        self.special(frame, object, name)
    }

    /// `float`, `int`, `bool`, `abs`, `round` and such.
    pub(in crate::recorder) fn python_scalar<'py>(
        &self,
        frame: &Frame<'py>,
        name: &str,
        args: &[Borrowed<'_, 'py>],
    ) -> Option<Result<Object<'py>>> {
        let object = *args.first()?;
        if self.kind(object) != Kind::Object {
            return None;
        }
        let (methods, more): (&[(&'static str, End)], &[_]) = match (name, args) {
            ("bool" | "truth" | "not_", [_]) => {
                let truth = self.python_truth(frame, object)?;
                let inverted = name == "not_";
                let value = |truth| boolean(frame.py(), truth ^ inverted);
                return Some(truth.map(value));
            }
            ("float", [_]) => (
                &[
                    ("__float__", End::Convert(Conversion::Float)),
                    ("__index__", End::Convert(Conversion::FloatOfIndex)),
                ],
                &[],
            ),
            ("int", [_]) => (
                &[
                    ("__int__", End::Convert(Conversion::Int)),
                    ("__index__", End::Convert(Conversion::Index)),
                ],
                &[],
            ),
            ("index", [_]) => (&[("__index__", End::Convert(Conversion::Index))], &[]),
            ("abs", [_]) => (&[("__abs__", End::Value)], &[]),
            ("round", [_]) => (&[("__round__", End::Value)], &[]),
            ("round", [_, digits]) if digits.is_none() => (&[("__round__", End::Value)], &[]),
            ("round", [_, _]) => (&[("__round__", End::Value)], &args[1..]),
            _ => return None,
        };
        let ty = object.get_type();
        let (name, end) =
            methods.iter().find(|(name, _)| types::lookup_named(&ty, name).is_some())?;
        let method = self.method(frame, object, name)?;
        Some(self.call_method(frame, *end, object, &method, more))
    }

    /// `isinstance(object, class)` and `issubclass`, by a metaclass's method.
    pub(in crate::recorder) fn python_is_instance<'py>(
        &self,
        frame: &Frame<'py>,
        name: &str,
        [object, class]: [Borrowed<'_, 'py>; 2],
    ) -> Option<Result<Object<'py>>> {
        let method = match name {
            "isinstance" => "__instancecheck__",
            "issubclass" => "__subclasscheck__",
            _ => return None,
        };
        let meta = class.get_type();
        let is_exact = name == "isinstance" && object.get_type().as_ptr() == class.as_ptr();
        if self.kind(class) != Kind::Type || is_exact || types::is_immutable(meta.as_borrowed()) {
            return None;
        }
        let method = PyString::intern(frame.py(), method);
        let method = self.lookup(frame, &meta, method.as_any().as_borrowed())?;
        if self.kind(method.as_borrowed()) != Kind::Function || self.is_stopped() {
            return None;
        }
        let role = Role::Builtin(End::Truth);
        let args = [class, object];
        let result = self.call_linked(role, None, Call::new(frame, method.as_borrowed(), &args));
        let interrupts = |what: &'static str| self.stop(frame, Reason::OpaqueCall, what);
        Some(End::Truth.finish(&[object], result, interrupts))
    }
}

/// Whether the instruction that `frame` stands at calls this very function with these very arguments.
fn is_plain_call(call: Call<'_, '_>) -> bool {
    let Call { frame, callable, args, .. } = call;
    let above = match meaning_at(frame) {
        Meaning::Call { .. } => 0,
        Meaning::CallNamed { .. } => 1,
        _ => return false,
    };
    frame.operands(args.len(), above).is_some_and(|operands| {
        operands.receiver.is_none()
            && operands.callable.as_ptr() == callable.as_ptr()
            && operands.are(args)
    })
}
