//! Guards: facts about what a source held when the trace read it.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::refused;
use crate::{Accelerator, GlobalState, ObjectId, SourceId, TensorGuard, Text};

/// A fact about the object at a source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Guard {
    /// The slot the fact is about; [`Source::GlobalState`](crate::Source::GlobalState) for
    /// `GuardKind::GlobalState`.
    pub source: SourceId,
    /// The fact.
    pub kind: GuardKind,
    /// Where the slot was read: an id that the tracer resolves to file and line when asked.
    pub location: Option<u32>,
}

/// How often an iterator of a builtin type can be advanced, without running code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gives {
    /// How many items it gives at least.
    pub items: usize,
    /// Whether it ends behind them.
    pub ends: bool,
    /// How many things it goes over: a container, unless it has ended, or other iterators.
    pub parts: usize,
}

/// Where a generator stands, and which of its slots hold something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rests {
    /// The unit of its last instruction.
    pub unit: usize,
    /// Whether any of its body has run.
    pub started: bool,
    /// How many slots it has: fast locals, then its stack.
    pub slots: usize,
    /// The slots that matter, a bit for each.
    pub live: u64,
    /// Those of them that hold something.
    pub bound: u64,
}

/// The kinds of facts. None of them needs a user's code to be checked.
///
/// Kinds that look into a container (`Length`, `DictKeys`, `KeyAbsent`, ...) and sources that do
/// check the layout they need themselves (that there *is* a list), but not the exact type: two
/// exact types may share a layout, so a trace that depends on the type says `TypeIs` as well.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum GuardKind {
    /// The exact type (`Py_TYPE`, not `__class__`).
    TypeIs(ObjectId),
    /// Identity.
    Is(ObjectId),
    /// The object is `None`.
    IsNone,
    /// The object isn't `None`.
    IsNotNone,
    /// Same exact type and value as a constant; floats bit by bit, tuples, frozensets, slices and
    /// ranges element by element. Never runs a user's `__eq__`.
    Equals(ObjectId),
    /// A number, text or bytes of a class of its own has the value of this constant, as `Equals` compares. Nothing else is
    /// said of it: the class may be another one.
    Holds(ObjectId),
    /// Length of a list or tuple, or of a subclass's storage; of a `collections.deque`.
    Length(usize),
    /// The keys of a dictionary in iteration order: constants by value, others by identity.
    DictKeys(Box<[ObjectId]>),
    /// Number of entries of a dictionary.
    DictLength(usize),
    /// A dictionary lacks a key.
    KeyAbsent {
        /// The key.
        key: ObjectId,
        /// The key's `repr`.
        text: Text,
    },
    /// No key of a dictionary has this hash.
    HashAbsent(#[serde(with = "refused")] isize),
    /// A dictionary lacks a key, and so do some of the dictionaries that it holds.
    AbsentWithin {
        /// The key, a string.
        key: ObjectId,
        /// The key's `repr`.
        text: Text,
        /// Which.
        holders: Arc<Holders>,
    },
    /// A dictionary lacks some keys, and holds empty dictionaries at others.
    Vacant(Arc<Vacancy>),
    /// A set or frozenset has the elements of this one, or of this tuple, in this iteration order.
    SetEquals(ObjectId),
    /// A set or frozenset holds an element or doesn't; its others don't matter.
    SetHolds {
        /// The element: a constant, or an object that's equal to itself alone.
        item: ObjectId,
        /// Whether the set holds it.
        holds: bool,
    },
    /// The lookup of a name along the method resolution order of a type finds nothing.
    LookupAbsent {
        /// The name, a string object.
        name: ObjectId,
        /// The name.
        text: Text,
    },
    /// The `__slots__` member at this offset is unset.
    SlotUnset {
        /// The member descriptor's offset in the instance.
        offset: usize,
        /// The member's name.
        name: Text,
    },
    /// A bound method of a C type was made from a descriptor.
    MethodOf {
        /// Where the definition or the descriptor is that tells it from others.
        #[serde(with = "refused")]
        made_from: usize,
        /// The descriptor's name.
        name: Text,
    },
    /// How far an iterator of a builtin type has come, in numbers that depend on its type.
    IteratorAt([i64; 3]),
    /// How an iterator of a builtin type goes on.
    Gives(Gives),
    /// Where a generator stands. Its function has the code that it runs.
    GeneratorAt(Rests),
    /// A tensor has no hooks: none on its gradient, none behind its accumulation.
    NoTensorHooks,
    /// Where a tensor stands in gradients' graphs: that decides whether it may be written in place.
    Place {
        /// Whether it is a leaf.
        is_leaf: bool,
        /// Of a view, how it was made: PyTorch's `CreationMeta`.
        view: Option<u8>,
    },
    /// A context variable is unset in the current context, its default aside.
    ContextUnset,
    /// A token that the context variable at a source can be reset with: unused, and of the current context.
    TokenOf(SourceId),
    /// A cell is empty.
    CellEmpty,
    /// A function has no positional defaults.
    NoDefaults,
    /// A function has no keyword-only defaults.
    NoKwDefaults,
    /// The object has no instance dictionary, be it that none was made so far.
    NoInstanceDict,
    /// Metadata of a tensor.
    Tensor(Arc<TensorGuard>),
    /// The same object as at another source.
    SameAs(SourceId),
    /// The object isn't the one at any of these sources, nor are those the same as each other.
    Distinct(Box<[SourceId]>),
    /// So many classes had been registered with abstract classes, which decides what `isinstance`
    /// says of these. [`Source::GlobalState`](crate::Source::GlobalState) bears it.
    AbstractClasses(u64),
    /// A fact about symbolic sizes and numbers, at sources that it names itself; whoever checks has
    /// it compiled. It stands at the source of the first symbol that it mentions.
    Symbolic {
        /// As it prints: `2 <= L['a'].size()[0]`.
        text: Text,
    },
    /// Facts about process and thread state at entry.
    GlobalState(#[serde(with = "refused")] Arc<GlobalState>),
    /// What was selected of an accelerator whose tensors the trace touched.
    /// [`Source::GlobalState`](crate::Source::GlobalState) bears it.
    Accelerator(Arc<Accelerator>),
}

/// What a guard of kind `Vacant` says of a dictionary: what each module of a model without hooks has
/// in common, said once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Vacancy {
    /// Keys that aren't there: strings, each with its `repr`.
    pub absent: Box<[(ObjectId, Text)]>,
    /// Keys that lead to an empty `dict` or `OrderedDict`, not to an instance of a subclass.
    pub empty: Box<[(ObjectId, Text)]>,
}

/// The dictionaries that a guard of kind `AbsentWithin` speaks of, by the keys (strings, each with its
/// `repr`) at which another one holds them. Each is a `dict`, not an instance of a subclass.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Holders(pub Box<[(ObjectId, Text)]>);
