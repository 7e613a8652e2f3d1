//! Sources: the concrete slots a trace read, as a hash-consed forest.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::{ObjectId, SourceId, refused};

/// A text for printing. Shared: a model reads the same few names on each of its modules.
pub type Text = Arc<str>;

/// A concrete slot of the call's entry state.
///
/// Texts and names are for printing only: they don't take part in equality ([`Sources::intern`]).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Source {
    /// The bound argument at `index` of the entry frame.
    Local {
        /// Position among the entry frame's bound arguments.
        index: u16,
        /// The parameter's name.
        name: Text,
    },
    /// An object known by identity (a function, type or module), held weakly by whoever checks.
    Anchor {
        /// The object.
        object: ObjectId,
        /// How to print it.
        text: Text,
    },
    /// A module found in `sys.modules`.
    SysModule {
        /// The module's name in `sys.modules`.
        name: Text,
    },
    /// The process and thread state that guards of kind `GlobalState` speak of; not an object.
    GlobalState,

    /// The concrete instance dictionary (`__dict__`) of the parent.
    Dict(SourceId),
    /// The value at a key of a dictionary.
    DictItem {
        /// The dictionary.
        parent: SourceId,
        /// The key: a constant (found by value) or any other object (found by identity).
        key: ObjectId,
        /// The key's `repr`.
        text: Text,
    },
    /// The value of the only entry of a dictionary whose key has a hash.
    HashedItem {
        /// The dictionary.
        parent: SourceId,
        /// The hash.
        #[serde(with = "refused")]
        hash: isize,
    },
    /// As `HashedItem`, the key.
    HashedKey {
        /// The dictionary.
        parent: SourceId,
        /// The hash.
        #[serde(with = "refused")]
        hash: isize,
    },
    /// An element of a list.
    ListItem {
        /// The list.
        parent: SourceId,
        /// Position of the element.
        index: usize,
    },
    /// An element of a list or deque, counted from its end.
    LastItem {
        /// The list or deque.
        parent: SourceId,
        /// Its place: the last one is 1.
        index: usize,
    },
    /// An element of a tuple.
    TupleItem {
        /// The tuple.
        parent: SourceId,
        /// Position of the element.
        index: usize,
    },
    /// An element of a `collections.deque`.
    DequeItem {
        /// The deque.
        parent: SourceId,
        /// Position of the element.
        index: usize,
    },
    /// `maxlen` of a `collections.deque`.
    DequeMaxLength(SourceId),
    /// What an iterator of a builtin type goes over: a container, or an iterator of `enumerate` or `zip`.
    Iterated {
        /// The iterator.
        parent: SourceId,
        /// Which, of several.
        index: usize,
    },
    /// What an iterator of a builtin type gives when it's advanced for the `index`th time from here on, of a dictionary's
    /// entries the value. Of `enumerate` it's the number; `zip` has none.
    Upcoming {
        /// The iterator.
        parent: SourceId,
        /// How many come before.
        index: usize,
    },
    /// As `Upcoming`, of a dictionary's entries the key.
    UpcomingKey {
        /// The iterator.
        parent: SourceId,
        /// How many come before.
        index: usize,
    },
    /// The function of a generator that stands still.
    GeneratorFunction(SourceId),
    /// What a fast local of such a generator holds, or its stack.
    GeneratorSlot {
        /// The generator.
        parent: SourceId,
        /// Which: the fast locals come first.
        index: usize,
    },
    /// The value of a `__slots__` member.
    Slot {
        /// The instance.
        parent: SourceId,
        /// The member descriptor's offset in the instance.
        offset: usize,
        /// The member's name.
        name: Text,
    },
    /// What a lookup of `name` along the method resolution order of a type finds, unbound.
    TypeLookup {
        /// The type.
        parent: SourceId,
        /// The attribute's name, a string object.
        name: ObjectId,
        /// The attribute's name.
        text: Text,
    },
    /// As `TypeLookup`, but only in the classes behind `after` (`super(after, ...)`).
    SuperLookup {
        /// The type whose method resolution order is searched.
        parent: SourceId,
        /// The class the search starts behind.
        after: ObjectId,
        /// The attribute's name, a string object.
        name: ObjectId,
        /// The attribute's name.
        text: Text,
    },
    /// The parent's type, by the slot (`Py_TYPE`), not by `__class__`.
    TypeOf(SourceId),
    /// The globals dictionary of a function.
    Globals(SourceId),
    /// The builtins dictionary of a function.
    Builtins(SourceId),
    /// The code object of a function.
    Code(SourceId),
    /// The tuple of positional defaults of a function.
    Defaults(SourceId),
    /// The dictionary of keyword-only defaults of a function.
    KwDefaults(SourceId),
    /// Another field of a function.
    FunctionField {
        /// The function.
        parent: SourceId,
        /// Which.
        field: FunctionField,
    },
    /// A field of a class that its attribute lookups don't read.
    ClassField {
        /// The class.
        parent: SourceId,
        /// Which.
        field: ClassField,
    },
    /// A cell of a function's closure.
    ClosureCell {
        /// The function.
        parent: SourceId,
        /// Position in the closure.
        index: usize,
    },
    /// What a cell holds.
    CellContents(SourceId),
    /// `__self__` of a bound method.
    MethodSelf(SourceId),
    /// `__func__` of a bound method.
    MethodFunc(SourceId),
    /// `func` of a `functools.partial`.
    PartialFunc(SourceId),
    /// What a `types.MappingProxyType` or a view of a dictionary shows.
    ShownMapping(SourceId),
    /// `args` of a `functools.partial`.
    PartialArgs(SourceId),
    /// `keywords` of a `functools.partial`.
    PartialKeywords(SourceId),
    /// `fget` of a property.
    PropertyGet(SourceId),
    /// `fset` of a property.
    PropertySet(SourceId),
    /// The function a `staticmethod` object wraps.
    StaticFunc(SourceId),
    /// The function a `classmethod` object wraps.
    ClassFunc(SourceId),
    /// What a weak reference refers to.
    Referent(SourceId),
    /// What a context variable was set to, in the current context.
    ContextValue(SourceId),
    /// The default of a context variable that is unset.
    ContextDefault(SourceId),
    /// The dictionary of a `functools.lru_cache`d function.
    Cache(SourceId),
    /// The result that a link of such a dictionary holds.
    CachedResult(SourceId),
    /// `grad` of a tensor that is a leaf.
    Gradient(SourceId),
}

/// Fields of a function that its calls don't depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum FunctionField {
    Name,
    Qualname,
    Doc,
    Module,
    Annotations,
    Closure,
}

impl FunctionField {
    /// Every field.
    pub const ALL: [Self; 6] =
        [Self::Name, Self::Qualname, Self::Doc, Self::Module, Self::Annotations, Self::Closure];

    /// The attribute's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Name => "__name__",
            Self::Qualname => "__qualname__",
            Self::Doc => "__doc__",
            Self::Module => "__module__",
            Self::Annotations => "__annotations__",
            Self::Closure => "__closure__",
        }
    }

    /// The field with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

/// Fields of a class itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum ClassField {
    Name,
    Qualname,
    Mro,
    Bases,
    Base,
}

impl ClassField {
    /// Every field.
    pub const ALL: [Self; 5] = [Self::Name, Self::Qualname, Self::Mro, Self::Bases, Self::Base];

    /// The attribute's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Name => "__name__",
            Self::Qualname => "__qualname__",
            Self::Mro => "__mro__",
            Self::Bases => "__bases__",
            Self::Base => "__base__",
        }
    }

    /// The field with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

/// What makes two sources the same slot: kind, parent and payload, without the texts.
type Key = (u8, u32, u64);

const NO_PARENT: u32 = u32::MAX;

/// Makes room in a full table for eight times as many entries, not twice: a trace that outgrows a small
/// function's table is that of a model as a rule, and moving the entries costs more than making them.
#[inline]
pub fn grow_in_leaps(len: usize, capacity: usize, reserve: impl FnOnce(usize)) {
    if len == capacity {
        reserve(7 * len);
    }
}

fn pair(a: ObjectId, b: ObjectId) -> u64 {
    u64::from(a.raw()) << 32 | u64::from(b.raw())
}

impl Source {
    /// The source this one is read from.
    #[must_use]
    pub fn parent(&self) -> Option<SourceId> {
        match *self {
            Source::Local { .. }
            | Source::Anchor { .. }
            | Source::SysModule { .. }
            | Source::GlobalState => None,
            Source::Dict(parent)
            | Source::DictItem { parent, .. }
            | Source::HashedItem { parent, .. }
            | Source::HashedKey { parent, .. }
            | Source::ListItem { parent, .. }
            | Source::LastItem { parent, .. }
            | Source::TupleItem { parent, .. }
            | Source::DequeItem { parent, .. }
            | Source::DequeMaxLength(parent)
            | Source::Iterated { parent, .. }
            | Source::Upcoming { parent, .. }
            | Source::UpcomingKey { parent, .. }
            | Source::GeneratorFunction(parent)
            | Source::GeneratorSlot { parent, .. }
            | Source::Slot { parent, .. }
            | Source::TypeLookup { parent, .. }
            | Source::SuperLookup { parent, .. }
            | Source::TypeOf(parent)
            | Source::Globals(parent)
            | Source::Builtins(parent)
            | Source::Code(parent)
            | Source::Defaults(parent)
            | Source::KwDefaults(parent)
            | Source::FunctionField { parent, .. }
            | Source::ClassField { parent, .. }
            | Source::ClosureCell { parent, .. }
            | Source::CellContents(parent)
            | Source::MethodSelf(parent)
            | Source::MethodFunc(parent)
            | Source::PartialFunc(parent)
            | Source::ShownMapping(parent)
            | Source::PartialArgs(parent)
            | Source::PartialKeywords(parent)
            | Source::PropertyGet(parent)
            | Source::PropertySet(parent)
            | Source::StaticFunc(parent)
            | Source::ClassFunc(parent)
            | Source::Referent(parent)
            | Source::ContextValue(parent)
            | Source::ContextDefault(parent)
            | Source::Cache(parent)
            | Source::CachedResult(parent)
            | Source::Gradient(parent) => Some(parent),
        }
    }

    /// The payload that, with kind and parent, identifies the slot; names of modules are numbered
    /// by the caller.
    fn key(&self, module: impl FnOnce(&str) -> u64) -> Key {
        let (tag, payload) = match self {
            Source::Local { index, .. } => (0, u64::from(*index)),
            Source::Anchor { object, .. } => (1, u64::from(object.raw())),
            Source::SysModule { name } => (2, module(name)),
            Source::GlobalState => (3, 0),
            Source::Dict(_) => (4, 0),
            Source::DictItem { key, .. } => (5, u64::from(key.raw())),
            Source::ListItem { index, .. } => (6, *index as u64),
            Source::TupleItem { index, .. } => (7, *index as u64),
            Source::Slot { offset, .. } => (8, *offset as u64),
            Source::TypeLookup { name, .. } => (9, u64::from(name.raw())),
            Source::SuperLookup { after, name, .. } => (10, pair(*after, *name)),
            Source::TypeOf(_) => (11, 0),
            Source::Globals(_) => (12, 0),
            Source::Builtins(_) => (13, 0),
            Source::Code(_) => (14, 0),
            Source::Defaults(_) => (15, 0),
            Source::KwDefaults(_) => (16, 0),
            Source::ClosureCell { index, .. } => (17, *index as u64),
            Source::CellContents(_) => (18, 0),
            Source::MethodSelf(_) => (19, 0),
            Source::MethodFunc(_) => (20, 0),
            Source::PartialFunc(_) => (21, 0),
            Source::PartialArgs(_) => (22, 0),
            Source::PartialKeywords(_) => (23, 0),
            Source::PropertyGet(_) => (24, 0),
            Source::PropertySet(_) => (25, 0),
            Source::StaticFunc(_) => (26, 0),
            Source::ClassFunc(_) => (27, 0),
            Source::Cache(_) => (28, 0),
            Source::CachedResult(_) => (29, 0),
            Source::FunctionField { field, .. } => (30, *field as u64),
            Source::DequeItem { index, .. } => (31, *index as u64),
            Source::DequeMaxLength(_) => (32, 0),
            Source::ContextValue(_) => (33, 0),
            Source::ContextDefault(_) => (34, 0),
            Source::ClassField { field, .. } => (35, *field as u64),
            Source::Gradient(_) => (36, 0),
            Source::Iterated { index, .. } => (37, *index as u64),
            Source::ShownMapping(_) => (38, 0),
            Source::Upcoming { index, .. } => (39, *index as u64),
            Source::UpcomingKey { index, .. } => (40, *index as u64),
            Source::GeneratorFunction(_) => (41, 0),
            Source::GeneratorSlot { index, .. } => (42, *index as u64),
            Source::LastItem { index, .. } => (43, *index as u64),
            Source::HashedItem { hash, .. } => (44, *hash as u64),
            Source::HashedKey { hash, .. } => (45, *hash as u64),
            Source::Referent(_) => (46, 0),
        };
        (tag, self.parent().map_or(NO_PARENT, SourceId::raw), payload)
    }
}

/// The sources of one trace, in topological order, each slot once.
#[derive(Debug, Default)]
pub struct Sources {
    sources: Vec<Source>,
    index: FxHashMap<Key, SourceId>,
    /// Numbers for module names, so that keys are plain words.
    modules: FxHashMap<Box<str>, u64>,
    /// The function whose globals print as `G`; see [`Sources::set_entry`].
    pub(crate) entry: Option<SourceId>,
}

impl Sources {
    /// No sources.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// No sources, with room for so many, of which so many are looked for: growing is what costs most
    /// when sources are interned.
    #[must_use]
    pub fn with_room(room: usize, indexed: usize) -> Self {
        let mut sources = Self::default();
        sources.sources.reserve(room);
        sources.index.reserve(indexed);
        sources
    }

    /// How many sources are looked for when one like them is interned.
    #[must_use]
    pub fn indexed(&self) -> usize {
        self.index.len()
    }

    /// Gives back what room isn't used.
    pub fn shrink_to_fit(&mut self) {
        self.sources.shrink_to_fit();
    }

    /// Says which source is the compiled function: its globals print as `G['name']`, those of
    /// other functions as `f.__globals__['name']`. Unset, all print as `G['name']`.
    pub fn set_entry(&mut self, function: SourceId) {
        self.entry = Some(function);
    }

    /// Which source is the compiled function: see [`Sources::set_entry`].
    #[must_use]
    pub fn entry(&self) -> Option<SourceId> {
        self.entry
    }

    /// Sources that were stored, with the ids that they had; `None` if one doesn't come behind its parent.
    #[must_use]
    pub fn restored(sources: Vec<Source>, entry: Option<SourceId>) -> Option<Self> {
        let mut restored = Self::with_room(sources.len(), 0);
        for (index, source) in sources.into_iter().enumerate() {
            if source.parent().is_some_and(|parent| parent.index() >= index) {
                return None;
            }
            restored.push(source);
        }
        restored.entry = entry.filter(|entry| entry.index() < restored.len());
        Some(restored)
    }

    /// The id of `source`, new or old. The text of a source that is already known is dropped.
    pub fn intern(&mut self, source: Source) -> SourceId {
        let modules = &mut self.modules;
        let key = source.key(|name| {
            modules.get(name).copied().unwrap_or_else(|| {
                let number = modules.len() as u64;
                modules.insert(name.into(), number);
                number
            })
        });
        if let Some(&id) = self.index.get(&key) {
            return id;
        }
        self.insert(key, source)
    }

    /// As [`Sources::intern`] of a `Local`, without making the name when it's known.
    pub fn local(&mut self, index: u16, name: impl FnOnce() -> Text) -> SourceId {
        self.get_or((0, NO_PARENT, u64::from(index)), || Source::Local { index, name: name() })
    }

    /// As [`Sources::intern`] of an `Anchor`, without making the text when it's known.
    pub fn anchor(&mut self, object: ObjectId, text: impl FnOnce() -> Text) -> SourceId {
        self.get_or((1, NO_PARENT, u64::from(object.raw())), || Source::Anchor {
            object,
            text: text(),
        })
    }

    /// As [`Sources::intern`] of a `DictItem`, without making the key's `repr` when it's known.
    pub fn dict_item(
        &mut self,
        parent: SourceId,
        key: ObjectId,
        text: impl FnOnce() -> Text,
    ) -> SourceId {
        self.get_or((5, parent.raw(), u64::from(key.raw())), || Source::DictItem {
            parent,
            key,
            text: text(),
        })
    }

    /// A `DictItem` that wasn't read before, nor will be: it isn't looked for, now or later.
    pub fn new_dict_item(&mut self, parent: SourceId, key: ObjectId, text: Text) -> SourceId {
        self.push(Source::DictItem { parent, key, text })
    }

    /// As [`Sources::intern`] of a `Slot`, without making the name when it's known.
    pub fn slot(
        &mut self,
        parent: SourceId,
        offset: usize,
        name: impl FnOnce() -> Text,
    ) -> SourceId {
        self.get_or((8, parent.raw(), offset as u64), || Source::Slot {
            parent,
            offset,
            name: name(),
        })
    }

    /// As [`Sources::intern`] of a `TypeLookup`, without making the text when it's known.
    pub fn type_lookup(
        &mut self,
        parent: SourceId,
        name: ObjectId,
        text: impl FnOnce() -> Text,
    ) -> SourceId {
        self.get_or((9, parent.raw(), u64::from(name.raw())), || Source::TypeLookup {
            parent,
            name,
            text: text(),
        })
    }

    /// As [`Sources::intern`] of a `SuperLookup`, without making the text when it's known.
    pub fn super_lookup(
        &mut self,
        parent: SourceId,
        after: ObjectId,
        name: ObjectId,
        text: impl FnOnce() -> Text,
    ) -> SourceId {
        self.get_or((10, parent.raw(), pair(after, name)), || Source::SuperLookup {
            parent,
            after,
            name,
            text: text(),
        })
    }

    fn get_or(&mut self, key: Key, make: impl FnOnce() -> Source) -> SourceId {
        if let Some(&id) = self.index.get(&key) {
            return id;
        }
        self.insert(key, make())
    }

    fn insert(&mut self, key: Key, source: Source) -> SourceId {
        let id = self.push(source);
        let index = &mut self.index;
        grow_in_leaps(index.len(), index.capacity(), |more| index.reserve(more));
        self.index.insert(key, id);
        id
    }

    fn push(&mut self, source: Source) -> SourceId {
        let id = SourceId::new(self.sources.len());
        assert!(source.parent().is_none_or(|parent| parent < id), "parent of another Sources");
        let sources = &mut self.sources;
        grow_in_leaps(sources.len(), sources.capacity(), |more| sources.reserve(more));
        self.sources.push(source);
        id
    }

    /// The source with this id.
    ///
    /// # Panics
    /// If the id is of another `Sources`.
    #[must_use]
    pub fn get(&self, id: SourceId) -> &Source {
        &self.sources[id.index()]
    }

    /// Number of sources.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether there is no source.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// All sources, parents before children.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (SourceId, &Source)> + DoubleEndedIterator {
        self.sources.iter().enumerate().map(|(index, source)| (SourceId::new(index), source))
    }
}
