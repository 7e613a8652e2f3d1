//! Calls of Python functions that only read: made again, they give the same object again.
//!
//! `config.hidden_size` runs two Python frames where a class has its own `__getattribute__`, and a model asks for it in
//! each of its layers. What the first such call reads is guarded. A second one with the same arguments reads the same,
//! as long as the trace has written nothing outside: so its frames needn't be evaluated.
//!
//! A call is known here only if nothing was seen in it that may do more than read what guards speak of. What hasn't been
//! thought of counts as such:
//! * its frames have no instruction but those of [`only_reads`];
//! * each C function in it is of a class of [`reads`];
//! * each object looked at is of a kind of [`is_steady`], so no tensor is;
//! * no such object that could change was made by the trace, as writes to these aren't noted;
//! * no node and no write came of it;
//! * arguments and result are from outside, or constants.

use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use stator_bytecode::Opcode;
use stator_cpython::code::Code;
use stator_cpython::heap::mortal::is_shared;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::ObjectId;

use super::heap;
use super::kinds::Kind;
use super::state::{Origin, State};
use crate::functions::{Class, Model};
use crate::profit::Work;

/// Arguments of a call that is known; those with more aren't.
const ARGUMENTS: usize = 3;

/// A function and its arguments, by address.
type Key = [usize; 1 + ARGUMENTS];

/// What a call gives.
enum Gives {
    /// An object from outside, which the trace keeps alive.
    Outside(ObjectId),
    Constant(Py<PyAny>),
}

/// A call that has been made.
struct Known {
    /// Arguments that are constants: no other object takes their addresses. Those from outside are kept alive anyway.
    _held: SmallVec<[Py<PyAny>; ARGUMENTS]>,
    result: Gives,
    /// What CPython does in it.
    work: Work,
    /// As [`State::stamp`] was.
    stamp: u64,
}

/// The calls that a trace needn't evaluate again.
#[derive(Default)]
pub struct Repeated {
    known: FxHashMap<Key, Known>,
    /// Whether all instructions of a code object only read, by its address.
    codes: FxHashMap<usize, (Py<PyAny>, bool)>,
    /// How many calls are being watched, one within the other.
    watching: usize,
    /// How many frames of such calls were evaluated.
    entered: u64,
    /// How often something was seen in one that may do more than read.
    seen: u64,
}

/// A call that is being watched.
pub struct Watch {
    key: Key,
    depth: usize,
    entered: u64,
    seen: u64,
    nodes: usize,
    stamp: u64,
    before: Work,
}

impl Repeated {
    /// Something is seen that may do more than read.
    #[inline]
    pub fn see(&mut self) {
        self.seen += 1;
    }

    /// Whether a call is being watched.
    #[inline]
    pub fn is_watching(&self) -> bool {
        self.watching > 0
    }

    /// A frame is entered.
    pub fn enter(&mut self, code: Borrowed<'_, '_>) {
        if self.watching == 0 {
            return;
        }
        self.entered += 1;
        if !self.only_reads(code) {
            self.seen += 1;
        }
    }

    fn only_reads(&mut self, code: Borrowed<'_, '_>) -> bool {
        let (_, only_reads) = self.codes.entry(code.as_ptr() as usize).or_insert_with(|| {
            let instructions = Code::of(code);
            let all = instructions
                .is_some_and(|it| it.instructions().all(|(_, unit)| only_reads(unit.opcode)));
            (code.to_owned().unbind(), all)
        });
        *only_reads
    }
}

impl State {
    /// What such a call gave before, and what CPython does in it; or a watch, if it may be known behind its end.
    pub fn repeated<'py>(
        &mut self,
        function: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
        work: impl FnOnce() -> Work,
    ) -> Result<(Object<'py>, Work), Option<Watch>> {
        let is_within = self.repeated.watching > 0;
        // Within a call that is watched, it has to be one whose frame is evaluated.
        let unknown =
            |state: &mut Self| Err(is_within.then(|| state.watch(Key::default(), Work::default())));
        let is_asked = args.len() <= ARGUMENTS
            && self.may_repeat()
            && matches!(self.origin(function), Some(Origin::Source(_)))
            && args.iter().all(|arg| self.may_be_repeated(*arg));
        if !is_asked {
            return unknown(self);
        }
        let mut key = Key::default();
        key[0] = function.as_ptr() as usize;
        for (place, arg) in key[1..].iter_mut().zip(args) {
            *place = arg.as_ptr() as usize;
        }
        let stamp = self.stamp();
        if let Some(known) = self.repeated.known.get(&key)
            && known.stamp == stamp
        {
            let py = function.py();
            let result = match &known.result {
                Gives::Outside(id) => self.objects.get(py, *id).to_owned(),
                Gives::Constant(constant) => constant.bind(py).clone(),
            };
            return Ok((result, known.work));
        }
        let code = heap::function_code(function);
        if !code.is_some_and(|code| self.repeated.only_reads(code.as_borrowed())) {
            return unknown(self);
        }
        Err(Some(self.watch(key, work())))
    }

    fn watch(&mut self, key: Key, before: Work) -> Watch {
        self.repeated.watching += 1;
        let Repeated { watching: depth, entered, seen, .. } = self.repeated;
        let (nodes, stamp) = (self.graph.len(), self.stamp());
        Watch { key, depth, entered, seen, nodes, stamp, before }
    }

    /// A watched call is over: whether it may be known.
    pub fn watched(
        &mut self,
        watch: &Watch,
        args: &[Borrowed<'_, '_>],
        result: Option<Borrowed<'_, '_>>,
        work: impl FnOnce(Work) -> Work,
    ) {
        // Another trace has begun within it.
        if self.repeated.watching != watch.depth {
            return;
        }
        self.repeated.watching -= 1;
        if self.repeated.entered == watch.entered {
            // Whatever ran, nobody has seen it.
            self.repeated.seen += 1;
        }
        let Some(result) = result else { return };
        let is_known = watch.key[0] != 0
            && self.repeated.seen == watch.seen
            && self.graph.len() == watch.nodes
            && self.stamp() == watch.stamp
            && self.may_repeat()
            && self.may_be_repeated(result)
            // A constant may have been made by the call.
            && is_shared(result);
        if !is_known {
            return;
        }
        let constants = args.iter().filter(|arg| self.origin(**arg).is_none());
        let held = constants.map(|arg| (*arg).to_owned().unbind()).collect();
        let known = Known {
            _held: held,
            result: match self.origin(result) {
                Some(_) => Gives::Outside(self.object(result)),
                None => Gives::Constant(result.to_owned().unbind()),
            },
            work: work(watch.before),
            stamp: watch.stamp,
        };
        self.repeated.known.insert(watch.key, known);
    }

    /// What changes with each write of the trace's to something outside.
    fn stamp(&self) -> u64 {
        self.written.count() + self.written.emissions().len() as u64
    }

    /// Whether no other code changes what is outside, and no number is symbolic.
    fn may_repeat(&self) -> bool {
        !self.enclosed.is_on()
            && !self.enclosed.is_watching()
            && self.symbols.is_none()
            && self.program.is_none()
            && self.roots.carry_nothing()
    }

    /// An object is looked at within a call that is watched.
    #[cold]
    pub fn look_watched(&mut self, object: Borrowed<'_, '_>, kind: Kind) {
        let is_own = || matches!(self.origin(object), Some(Origin::Fresh));
        if !is_steady(kind) || changes(kind) && is_own() {
            self.repeated.see();
        }
    }

    /// A C function of such a class is called with these.
    pub fn calls_watched(&mut self, class: &Class, args: &[Borrowed<'_, '_>]) {
        if !self.repeated.is_watching() {
            return;
        }
        if !reads(class) {
            self.repeated.see();
        }
        args.iter().for_each(|arg| _ = self.kind_alone(*arg));
    }

    /// Whether an object is from outside, or a constant.
    fn may_be_repeated(&mut self, object: Borrowed<'_, '_>) -> bool {
        let kind = self.kind_alone(object);
        kind == Kind::Constant
            || is_steady(kind) && matches!(self.origin(object), Some(Origin::Source(_)))
    }
}

/// Whether what can be asked of such an object changes by writes alone that a trace takes note of.
#[inline]
fn is_steady(kind: Kind) -> bool {
    match kind {
        Kind::Constant
        | Kind::List
        | Kind::Tuple
        | Kind::Dict
        | Kind::Set
        | Kind::FrozenSet
        | Kind::Function
        | Kind::Builtin
        | Kind::Method
        | Kind::Type
        | Kind::Module
        | Kind::Descriptor
        | Kind::Super
        | Kind::Cell
        | Kind::Singleton
        | Kind::Code
        | Kind::TorchCallable
        | Kind::Object => true,
        Kind::Tensor | Kind::Slice | Kind::Partial | Kind::Iterator | Kind::Opaque => false,
    }
}

/// Whether the trace may change such an object if it has made it, which nothing takes note of.
fn changes(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::List
            | Kind::Dict
            | Kind::Set
            | Kind::Function
            | Kind::Type
            | Kind::Module
            | Kind::Cell
            | Kind::Object
    )
}

/// Whether C functions of a class only read what their arguments are.
fn reads(class: &Class) -> bool {
    match class {
        Class::Pure => true,
        Class::Model(model) => matches!(
            model,
            Model::Len
                | Model::IsInstance
                | Model::GetAttr
                | Model::HasAttr
                | Model::TypeOf
                | Model::Super
                | Model::Compare(_)
                | Model::GetItem
                | Model::Contains
                | Model::DictSlotRead
                | Model::ObjectGetAttr
                | Model::IsSame { .. }
        ),
        _ => false,
    }
}

/// Whether an instruction only reads, its frame aside, if what it calls and looks at does.
fn only_reads(opcode: Opcode) -> bool {
    use Opcode as O;
    matches!(
        opcode,
        O::NOP
            | O::RESUME
            | O::CACHE
            | O::COPY_FREE_VARS
            | O::PUSH_NULL
            | O::POP_TOP
            | O::COPY
            | O::SWAP
            | O::LOAD_CONST
            | O::LOAD_FAST
            | O::LOAD_FAST_CHECK
            | O::LOAD_FAST_LOAD_FAST
            | O::STORE_FAST
            | O::STORE_FAST_LOAD_FAST
            | O::STORE_FAST_STORE_FAST
            | O::LOAD_GLOBAL
            | O::LOAD_DEREF
            | O::LOAD_ATTR
            | O::LOAD_METHOD
            | O::LOAD_SUPER_ATTR
            | O::BINARY_SUBSCR
            | O::COMPARE_OP
            | O::CONTAINS_OP
            | O::IS_OP
            | O::UNARY_NOT
            | O::TO_BOOL
            | O::FORMAT_VALUE
            | O::FORMAT_SIMPLE
            | O::CONVERT_VALUE
            | O::BUILD_STRING
            | O::BUILD_TUPLE
            | O::JUMP_FORWARD
            | O::POP_JUMP_FORWARD_IF_FALSE
            | O::POP_JUMP_FORWARD_IF_TRUE
            | O::POP_JUMP_FORWARD_IF_NONE
            | O::POP_JUMP_FORWARD_IF_NOT_NONE
            | O::POP_JUMP_IF_FALSE
            | O::POP_JUMP_IF_TRUE
            | O::POP_JUMP_IF_NONE
            | O::POP_JUMP_IF_NOT_NONE
            | O::JUMP_IF_FALSE_OR_POP
            | O::JUMP_IF_TRUE_OR_POP
            | O::PRECALL
            | O::KW_NAMES
            | O::CALL
            | O::RETURN_VALUE
            | O::RETURN_CONST
            | O::RAISE_VARARGS
            | O::PUSH_EXC_INFO
            | O::CHECK_EXC_MATCH
            | O::POP_EXCEPT
            | O::RERAISE
    )
}
