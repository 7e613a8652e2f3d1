//! `copy.deepcopy`. Followed step by step it would end the trace at its first object, because its memo is
//! keyed by addresses. So it is done in one piece where nothing of the user's takes part. Where classes
//! read their attributes in Python, its functions are followed, and the addresses left out: they are
//! keys of the memo, which nobody but these functions sees.
//!
//! Modules of `torch.nn` read their members and set their state in Python. What these methods do is known, so such a
//! module is copied like any object (`modules_copied`).
//!
//! Tensors in what is copied are copied first, all by one node, which keeps what memory they share. The rest is
//! copied with a memo in which they stand.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use rustc_hash::FxHashSet;
use stator_cpython::frame::Frame;
use stator_cpython::heap::dict::{self, Peek};
use stator_cpython::heap::tensor;
use stator_cpython::heap::types::{Slot, SlotName};
use stator_cpython::hook::Suspended;
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, generic, modules, ops};

use crate::breaks::Reason;
use crate::functions::{Class, Copying, Determined, Operation};
use crate::raises::COPY;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Calls, Ends};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::copies::Memo;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State, Stop};

/// What of a class `object.__reduce_ex__` asks.
const REDUCED: &[&str] = &["__reduce__", "__getstate__", "__getnewargs__", "__getnewargs_ex__"];

/// What of a class `copy.deepcopy` asks, apart from how it reads attributes.
pub(super) const ASKED: &[&str] = &[
    "__deepcopy__",
    "__reduce_ex__",
    "__reduce__",
    "__getstate__",
    "__getnewargs__",
    "__getnewargs_ex__",
    "__setstate__",
    "__new__",
];

/// How a class reads attributes.
const READS: &[&str] = &["__getattribute__", "__getattr__"];

/// Tables that say how instances of a class are copied: module and name.
const TABLES: [Table; 2] = [("copyreg", "dispatch_table"), ("copy", "_deepcopy_dispatch")];

/// As [`TABLES`], of `copy.copy`.
const SHALLOW: [Table; 2] = [("copyreg", "dispatch_table"), ("copy", "_copy_dispatch")];

type Table = (&'static str, &'static str);

/// About how many instructions `copy.deepcopy` spends on an object.
const COPYING: u64 = 60;

/// Objects that hold each other further down than this aren't copied in one piece.
const DEEPEST: usize = 200;

/// What a search for how an object is copied has come by.
#[derive(Default)]
struct Searched<'py> {
    seen: FxHashSet<usize>,
    /// The tensors in it.
    tensors: Vec<Object<'py>>,
}

/// How an object is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Nothing of the user's takes part.
    InOnePiece,
    /// Nothing but functions that read attributes.
    InSteps,
}

impl Recorder {
    /// Calls `copy.deepcopy`.
    pub(in crate::recorder) fn call_deep_copy<'py>(
        &self,
        class: &Class,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, args, names, .. } = call;
        let follow = || self.call_python(call);
        let (object, is_outermost) = match (args, names) {
            ([object], None) => (*object, true),
            ([object, memo], None) if self.is_memo(frame, *memo) => (*object, false),
            _ => return follow(),
        };
        let own_class = object.get_type();
        if is_atom(&own_class) && !self.is_stopped() {
            // It's its own copy: nobody looks at a number that was read.
            self.guard_registered_copier(frame, &own_class, &TABLES);
            return Ok(object.to_owned());
        }
        let mut searched = Searched::default();
        let manner = match self.kind(object) {
            Kind::Tensor if is_outermost && !has_attributes(object) => Some(Manner::InOnePiece),
            Kind::Tensor => None,
            _ => self.manner(object, &mut searched, 0),
        };
        let may_hold = is_outermost && self.session.is_replayed();
        match manner {
            // The memo of the copy around it has what tensors share memory with these.
            Some(Manner::InOnePiece) if !searched.tensors.is_empty() && !may_hold => follow(),
            Some(Manner::InOnePiece) => self.call_class(class, call),
            Some(Manner::InSteps) if is_outermost => {
                let outer = self.exchange_memo(Memo::Awaited);
                let copy = follow();
                self.exchange_memo(outer);
                copy
            }
            // Each object's address would end a trace.
            None if is_outermost && !self.is_stopped() => {
                let detail = format!("copy.deepcopy of a {}", heap::type_name(object));
                self.stop(frame, Reason::OpaqueCall, detail);
                let _native = Suspended::new(frame.py());
                call.natively()
            }
            _ => follow(),
        }
    }

    /// Whether this is the memo of the copy that is being made, in the hands of those who make it.
    fn is_memo(&self, frame: &Frame<'_>, memo: Borrowed<'_, '_>) -> bool {
        self.copies(frame) && self.knows_memo(memo)
    }

    /// Ends the trace before the memo gets into other hands.
    #[inline]
    pub(in crate::recorder) fn guard_memo(&self, call: Call<'_, '_>) {
        let Call { frame, callable, args, .. } = call;
        let Ok(memo) = self.state.try_borrow().map(|state| state.memo) else { return };
        let Memo::At(_) = memo else { return };
        let is_handed = args.iter().any(|arg| memo.is(*arg));
        let is_known = |copying: &Copying| copying.has(callable);
        if is_handed
            && self.kind(callable) != Kind::Builtin
            && !self.functions.copying().is_some_and(is_known)
        {
            self.stop(frame, Reason::Identity, "the memo of copy.deepcopy");
        }
    }

    /// How an object is copied; `None`: by code that may do anything.
    fn manner<'py>(
        &self,
        object: Borrowed<'_, 'py>,
        searched: &mut Searched<'py>,
        depth: usize,
    ) -> Option<Manner> {
        let kind = self.kind(object);
        let exact = heap::is_builtin_type(object.get_type().as_any().as_borrowed());
        let mut manner = Manner::InOnePiece;
        let is_leaf = matches!(kind, Kind::Constant | Kind::Function | Kind::Type);
        if is_leaf || !searched.seen.insert(object.as_ptr() as usize) {
            return Some(manner);
        }
        let parts = match kind {
            _ if depth > DEEPEST => return None,
            Kind::Tensor if is_copied_alone(object) => {
                searched.tensors.push(object.to_owned());
                return Some(manner);
            }
            Kind::List | Kind::Tuple if exact => heap::children(object),
            Kind::Dict if exact => {
                let items = heap::dict_items(object).into_iter();
                let items = items.flat_map(|(key, value)| [key, value]);
                items.chain(own_attributes(object)).collect()
            }
            Kind::Set if exact => heap::set_items(object),
            Kind::Object => {
                manner = self.manner_of_instance(object)?;
                own_attributes(object)
            }
            _ => return None,
        };
        for part in parts {
            if self.manner(part.as_borrowed(), searched, depth + 1)? == Manner::InSteps {
                manner = Manner::InSteps;
            }
        }
        Some(manner)
    }

    /// How `copy.deepcopy` copies an instance, if it makes it by `object.__new__` and copies its dictionary.
    fn manner_of_instance(&self, object: Borrowed<'_, '_>) -> Option<Manner> {
        let ty = object.get_type();
        let reads = stator_cpython::heap::types::slot(ty.as_borrowed(), SlotName::GetAttribute);
        let is_module = reads == Slot::Python && self.is_copied_module(object);
        let manner = match reads {
            _ if is_module => Manner::InOnePiece,
            Slot::Default => Manner::InOnePiece,
            Slot::Python => Manner::InSteps,
            _ => return None,
        };
        let is_plain = stator_cpython::heap::types::is_heap(ty.as_borrowed())
            && !stator_cpython::heap::types::has_native_state(ty.as_borrowed())
            && !has_members(object)
            && !has_registered_copier(&ty, &TABLES)
            && (is_module || !overrides_any(object, ASKED));
        is_plain.then_some(manner)
    }

    /// `copy.deepcopy` in one piece.
    pub(in crate::recorder) fn deep_copy<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, args, .. } = call;
        let object = args[0];
        if self.kind(object) == Kind::Tensor {
            // What a program adds to a tensor is copied with it.
            self.note(frame, |state| match state.instance_dict(object) {
                Some(dict) => state.adopt_keys(dict.as_borrowed()),
                None => Ok(()),
            });
            let name = "copy.deepcopy".into();
            let operation = Operation { name, is_method: false, determined: Determined::EagerOnly };
            return self.tensor_call(&operation, call);
        }
        let mut copied = FxHashSet::default();
        self.guard_copied(frame, object, &mut copied);
        self.tally.instructions(COPYING * copied.len() as u64);
        let memo = self.copy_tensors(call, object)?;
        let copy = {
            let _native = Suspended::new(frame.py());
            match &memo {
                Some(memo) => ops::call(callable, &[object, memo.as_borrowed()], None)?,
                None => call.natively()?,
            }
        };
        self.note(frame, |state| {
            state.register_copy(copy.as_borrowed(), &mut FxHashSet::default())
        });
        Ok(copy)
    }

    /// `copy.copy` of a tensor: another one with the same memory.
    pub(super) fn copy_of_tensor<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let ([tensor], None) = (args, names) else { return None };
        static TENSOR: Named = Named::new("torch", "Tensor");
        if self.is_stopped() || self.kind(*tensor) != Kind::Tensor || has_attributes(*tensor) {
            return None;
        }
        let info = tensor::info(*tensor)?;
        let class = tensor.get_type();
        let is_registered = has_registered_copier(&class, &SHALLOW);
        if info.requires_grad
            || is_registered
            || !TENSOR.get(frame.py()).is_ok_and(|plain| class.is(plain))
        {
            return None;
        }
        self.vouch(frame, callable);
        self.guard_registered_copier(frame, &class, &SHALLOW);
        let operation =
            Operation { name: COPY.into(), is_method: false, determined: Determined::EagerOnly };
        Some(self.tensor_call(&operation, call))
    }

    /// Copies the tensors in an object by one node; a memo that has the copies. `None`: there are none.
    fn copy_tensors<'py>(
        &self,
        call: Call<'_, 'py>,
        object: Borrowed<'_, 'py>,
    ) -> Result<Option<Object<'py>>> {
        let Call { frame, callable, .. } = call;
        let py = frame.py();
        let raised = |error| stator_cpython::Raised::set(py, error);
        let mut searched = Searched::default();
        if self.manner(object, &mut searched, 0).is_none() || searched.tensors.is_empty() {
            return Ok(None);
        }
        let tensors = PyList::new(py, &searched.tensors).map_err(raised)?.into_any();
        self.note(frame, |state| state.register(tensors.as_borrowed()));
        let name = "copy.deepcopy".into();
        let operation = Operation { name, is_method: false, determined: Determined::EagerOnly };
        let given = [tensors.as_borrowed()];
        let copies = self.tensor_call(&operation, Call::new(frame, callable, &given))?;
        let copies = heap::list_items(copies.as_borrowed());
        let memo = PyDict::new(py);
        for (tensor, copy) in searched.tensors.iter().zip(&copies) {
            memo.set_item(tensor.as_ptr() as usize, copy).map_err(raised)?;
        }
        Ok(Some(memo.into_any()))
    }

    /// `object.__reduce_ex__`.
    pub(in crate::recorder) fn reduce<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        self.guard_protocol(frame, object, REDUCED);
        let is_module = !self.is_stopped() && self.is_copied_module(object);
        if is_module {
            self.guard_copied_module(frame, object);
        }
        self.note(frame, |state| {
            if state.kind(object) != Kind::Object {
                let detail = format!("a copy of a {}", heap::type_name(object));
                return Err((Reason::Unsupported, detail));
            }
            if !is_module && overrides_any(object, REDUCED) {
                return Err((Reason::Unsupported, "a copy that a class makes".into()));
            }
            match state.instance_dict(object) {
                Some(dict) if !has_members(object) => state.adopt_dict(dict.as_borrowed()),
                _ => Err((Reason::Unsupported, "a copy of an object with slots".into())),
            }
        });
        let ty = object.get_type();
        let reads = stator_cpython::heap::types::slot(ty.as_borrowed(), SlotName::GetAttribute);
        let result = if reads == Slot::Python && !is_module && !self.is_stopped() {
            self.reduce_in_steps(frame, object, args)?
        } else {
            let _native = Suspended::new(frame.py());
            native()?
        };
        self.note(frame, |state| state.register_parts(result.as_borrowed()));
        Ok(result)
    }

    /// As C code does it for an object whose class reads attributes in Python: two of them are asked.
    fn reduce_in_steps<'py>(
        &self,
        frame: &Frame<'py>,
        object: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
    ) -> Result<Object<'py>> {
        let py = frame.py();
        let name = pyo3::intern!(py, "__reduce__").as_any().as_borrowed();
        if let Err(raised) = self.get_attr(frame, object, name) {
            if !generic::exception_matches::<pyo3::exceptions::PyAttributeError>(py) {
                return Err(raised);
            }
            generic::clear_exception(py);
        }
        let name = pyo3::intern!(py, "__getstate__").as_any().as_borrowed();
        let getter = self.get_attr(frame, object, name)?;
        let default = stator_cpython::heap::types::lookup(object.get_type().as_borrowed(), name);
        let parts = heap::bound_parts(getter.as_borrowed());
        let is_default = parts.zip(default).is_some_and(|((receiver, found), default)| {
            receiver.is(&*object) && found.is(&default)
        });
        let state = if is_default {
            let dict = heap::instance_dict(object);
            dict.filter(|dict| heap::dict_length(dict.as_borrowed()) > 0)
        } else {
            self.stop(frame, Reason::Unsupported, "a copy that a class makes");
            Some(ops::call(getter.as_borrowed(), &[], None)?)
        };
        let made = || -> PyResult<Object<'py>> {
            let protocol: u32 = args.get(1).map_or(Ok(0), |protocol| protocol.extract())?;
            debug_assert!(protocol >= 2);
            static MAKE: Named = Named::new("copyreg", "__newobj__");
            let make = MAKE.get(py)?;
            let class = PyTuple::new(py, [object.get_type()])?;
            Ok((make, class, state, py.None(), py.None()).into_pyobject(py)?.into_any())
        };
        made().map_err(|error| stator_cpython::Raised::set(py, error))
    }

    /// Guards that nobody says elsewhere how a class is copied.
    fn guard_registered_copier(
        &self,
        frame: &Frame<'_>,
        class: &Bound<'_, PyType>,
        tables: &[Table],
    ) {
        let py = frame.py();
        for (module, table) in tables {
            let Ok(module) = modules::import(py, module) else { return };
            self.vouch(frame, module.as_any().as_borrowed());
            let name = pyo3::types::PyString::intern(py, table);
            let name = name.as_any().as_borrowed();
            if let Some(table) = self.instance_value(frame, module.as_any().as_borrowed(), name) {
                let class = class.as_any().as_borrowed();
                let found = heap::dict_get(table.as_borrowed(), class);
                self.note(frame, |state| state.read_key(table.as_borrowed(), class, found));
            }
        }
    }

    /// Guards what a copy is made of, deeply, how its classes are copied, and which of its parts are one.
    fn guard_copied(
        &self,
        frame: &Frame<'_>,
        object: Borrowed<'_, '_>,
        seen: &mut FxHashSet<usize>,
    ) {
        if !seen.insert(object.as_ptr() as usize) {
            return;
        }
        self.guard_protocol(frame, object, ASKED);
        self.guard_protocol(frame, object, READS);
        let class = object.get_type();
        let kind = self.kind(object);
        if kind == Kind::Object && self.is_copied_module(object) {
            self.guard_copied_module(frame, object);
        }
        let is_new_class = seen.insert(class.as_ptr() as usize);
        if is_new_class && !matches!(kind, Kind::Constant | Kind::Function | Kind::Type) {
            self.guard_registered_copier(frame, &class, &TABLES);
        }
        let parts = self.note(frame, |state| {
            if let Some(source) = state.source(object)
                && !matches!(kind, Kind::Constant | Kind::Function | Kind::Type)
            {
                state.distinct.compare(source);
            }
            match kind {
                Kind::List | Kind::Tuple => Ok(heap::children(object)),
                Kind::Dict => {
                    state.adopt_dict_for(state.moving(), object)?;
                    if matches!(dict::peek_instance_dict(object), Peek::NoPlace) {
                        return Ok(heap::children(object));
                    }
                    if let Some(dict) = state.instance_dict(object) {
                        state.adopt_dict(dict.as_borrowed())?;
                    }
                    let attributes = own_attributes(object);
                    Ok(heap::children(object).into_iter().chain(attributes).collect())
                }
                Kind::Object => match state.instance_dict(object) {
                    Some(dict) => {
                        state.adopt_dict_for(state.moving(), dict.as_borrowed())?;
                        Ok(heap::children(dict.as_borrowed()))
                    }
                    None => Ok(Vec::new()),
                },
                _ => Ok(Vec::new()),
            }
        });
        for part in parts.iter().flatten() {
            self.guard_copied(frame, part.as_borrowed(), seen);
        }
    }
}

impl State {
    /// Vouches for a copy: all of it is new, but for what copies share with outside objects.
    fn register_copy(
        &mut self,
        object: Borrowed<'_, '_>,
        seen: &mut FxHashSet<usize>,
    ) -> std::result::Result<(), Stop> {
        if matches!(self.origin(object), Some(Origin::Source(_)))
            || !seen.insert(object.as_ptr() as usize)
        {
            return Ok(());
        }
        let kind = self.kind_alone(object);
        let parts = match kind {
            // It has its node.
            Kind::Tensor => return Ok(()),
            Kind::List | Kind::Tuple => heap::children(object),
            Kind::Dict => {
                heap::children(object).into_iter().chain(own_attributes(object)).collect()
            }
            Kind::Object => self
                .instance_dict(object)
                .map_or_else(Vec::new, |d| heap::children(d.as_borrowed())),
            Kind::Set => Vec::new(),
            _ => return self.register(object),
        };
        // What stood at this address before has died.
        self.set_fresh(object);
        if matches!(kind, Kind::Set | Kind::Dict) {
            self.note_hashed(object);
        }
        parts.iter().try_for_each(|part| self.register_copy(part.as_borrowed(), seen))
    }
}

/// Whether the class of an object has `__slots__` with names.
fn has_members(object: Borrowed<'_, '_>) -> bool {
    let class = object.get_type();
    let Some(mro) = stator_cpython::heap::types::mro(class.as_borrowed()) else { return true };
    heap::tuple_items(mro.as_borrowed()).into_iter().any(|base| {
        let Ok(base) = base.cast_into::<PyType>() else { return true };
        let dict = stator_cpython::heap::types::class_dict(base.as_borrowed());
        !stator_cpython::heap::types::is_immutable(base.as_borrowed())
            && dict.is_none_or(|dict| {
                heap::dict_items(dict.as_borrowed()).iter().any(|(_, descriptor)| {
                    stator_cpython::heap::member::offset_of(descriptor.as_borrowed()).is_some()
                })
            })
    })
}

/// Whether the class of an object has one of these methods of its own.
pub(super) fn overrides_any(object: Borrowed<'_, '_>, names: &[&str]) -> bool {
    let ty = object.get_type();
    let own = |name: &&str| {
        let found = stator_cpython::heap::types::lookup_named(&ty, name);
        let object = object.py().get_type::<PyAny>();
        let default = stator_cpython::heap::types::lookup_named(&object, name);
        match (found, default) {
            (Some(found), Some(default)) => !found.is(&default),
            (found, None) => found.is_some(),
            (None, Some(_)) => true,
        }
    };
    names.iter().any(own)
}

fn has_registered_copier(class: &Bound<'_, PyType>, tables: &[Table]) -> bool {
    tables.iter().any(|(module, table)| {
        let table = modules::import(class.py(), module)
            .and_then(|module| modules::attribute(&module, table));
        table.map_or(true, |table| {
            heap::dict_get(table.as_borrowed(), class.as_any().as_borrowed()).is_some()
        })
    })
}

/// Whether objects of a class are their own copies, as `copy` itself says: numbers and texts.
fn is_atom(class: &Bound<'_, PyType>) -> bool {
    let py = class.py();
    let known = [
        py.get_type::<PyBool>(),
        py.get_type::<PyFloat>(),
        py.get_type::<PyInt>(),
        py.get_type::<PyString>(),
    ];
    let copiers = modules::import(py, "copy").and_then(|copy| {
        Ok((
            copy.getattr("_deepcopy_dispatch")?.get_item(class)?,
            copy.getattr("_deepcopy_atomic")?,
        ))
    });
    known.iter().any(|known| known.is(class))
        && copiers.is_ok_and(|(copier, atomic)| copier.is(&atomic))
}

/// Whether a tensor is copied by its data alone, and never refuses.
fn is_copied_alone(tensor: Borrowed<'_, '_>) -> bool {
    let Some(info) = tensor::info(tensor) else { return false };
    let is_parameter = heap::type_name(tensor) == "Parameter";
    let has_gradient = || tensor::gradient(tensor).is_none_or(|gradient| !gradient.is_none());
    info.is_plain()
        && !has_attributes(tensor)
        && (is_parameter || !info.requires_grad && !has_gradient())
}

/// What stands in an object's instance dictionary, which `OrderedDict`s have, too.
fn own_attributes<'py>(object: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    match dict::peek_instance_dict(object) {
        Peek::Dict(dict) => heap::children(dict.as_borrowed()),
        Peek::NotYet | Peek::NoPlace => Vec::new(),
    }
}

fn has_attributes(object: Borrowed<'_, '_>) -> bool {
    match dict::peek_instance_dict(object) {
        Peek::Dict(dict) => heap::dict_length(dict.as_borrowed()) > 0,
        Peek::NotYet | Peek::NoPlace => false,
    }
}
