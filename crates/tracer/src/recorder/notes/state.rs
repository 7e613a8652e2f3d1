//! What one trace knows: origins of objects, sources, guards and the graph so far.
//!
//! Invariants:
//! * Nothing here runs Python code or drops a Python reference while the trace goes on, so the
//!   state can be borrowed at any site.
//! * An outside object (origin `Source`) is kept alive, so its address can't be taken by another.
//!   A tensor made by the trace isn't: when its address is taken by a new tensor, the site that made
//!   that one has overwritten the origin; of anything else there, the origin isn't known.

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor;
use stator_cpython::object::{Borrowed, Object};
use stator_graph::{Graph, NodeId, StackId, Target};
use stator_guards::{Guard, GuardKind, ObjectId, SourceId, Sources, grow_in_leaps};

use super::above::Looks;
use super::arrays::Arrays;
use super::calls::{ModuleCalls, Signatures};
use super::capacity::Room;
use super::claims::Claims;
use super::compared::Distinct;
use super::context::ContextWrites;
use super::copies::Memo;
use super::enclosed::Enclosed;
use super::exits::Exits;
use super::frames::Frames;
use super::given::Given;
use super::gradients::Gradients;
use super::heap;
use super::inputs::Inputs;
use super::kinds::{Kind, Kinds};
use super::lookups::Lookups;
use super::members::Members;
use super::objects::{Mark, Mortal, Objects};
use super::programs::Notes;
use super::reads::{Foreseen, PartOf, Reads, Unread};
use super::recent_globals::RecentGlobals;
use super::repeated::Repeated;
use super::roots::Roots;
use super::sparse::Sparse;
use super::sparse_tensors::SparseTensors;
use super::symbols::Symbols;
use super::written::Written;
use crate::breaks::Reason;
use crate::policy::Policy;
use crate::writes::Writes;

/// Where an object with identity came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It existed before the call, at this slot.
    Source(SourceId),
    /// A tensor made by a node of the graph.
    Node(NodeId),
    /// What else a node gives, known by this object: what switches a mode (leaving it puts back what was before),
    /// an array or a generator of NumPy's.
    Handle(NodeId),
    /// Any other object that this trace made.
    Fresh,
}

/// Why the trace ends; the place is added by the recorder.
pub type Stop = (Reason, String);

/// What taking a note gives, unless the trace has to end.
pub(in crate::recorder) type Noted<T> = Result<T, Stop>;

/// Python objects that a graph speaks of, each once.
#[derive(Default)]
pub struct GraphObjects {
    objects: Vec<Py<PyAny>>,
    ids: FxHashMap<usize, stator_graph::ObjectId>,
}

impl GraphObjects {
    fn id(
        &mut self,
        graph: &mut Graph,
        object: Borrowed<'_, '_>,
        text: impl FnOnce() -> String,
    ) -> stator_graph::ObjectId {
        *self.ids.entry(object.as_ptr() as usize).or_insert_with(|| {
            self.objects.push(object.to_owned().unbind());
            graph.add_object(&text())
        })
    }

    /// The objects, by their ids.
    pub fn all(&self) -> &[Py<PyAny>] {
        &self.objects
    }

    /// As [`GraphObjects::all`].
    pub fn into_inner(self) -> Vec<Py<PyAny>> {
        self.objects
    }
}

/// A part of an object: its address, and what stands for the part (a key's address, mostly).
pub type Slot = (usize, usize);

/// What `typing` has made of types, and the call that makes it again: it comes out of a cache.
pub struct Alias {
    /// It can't die meanwhile.
    pub made: Py<PyAny>,
    /// The function, one of `typing`'s own.
    pub function: Py<PyAny>,
    /// What it was given.
    pub args: Box<[Py<PyAny>]>,
}

/// The state of a trace.
pub struct State {
    /// Objects that guards and recipes speak of.
    pub objects: Objects,
    /// Sources read so far.
    pub sources: Sources,
    /// Guards so far.
    pub guards: Vec<Guard>,
    /// The graph so far.
    pub graph: Graph,
    /// Python objects the graph speaks of.
    pub graph_objects: GraphObjects,
    /// The graph's inputs.
    pub inputs: Inputs,
    /// The frames being evaluated.
    pub frames: Frames,
    /// What the trace began with.
    pub roots: Roots,
    /// What `torch.compiler.is_compiling()` answered, if the trace asked.
    pub asked: Option<bool>,
    /// What was looked at that is another thing in each process, if anything was.
    pub of_process: Option<&'static str>,
    /// Whether nodes print.
    pub prints: bool,
    /// What a replay takes at its beginning.
    pub claims: Claims,
    kinds: Kinds,
    /// What was read so far.
    pub reads: Reads,
    /// Type lookups that are guarded already.
    pub lookups: Lookups,
    /// Global variables that were read more than once.
    pub recent_globals: RecentGlobals,
    /// Calls that needn't be evaluated again.
    pub repeated: Repeated,
    /// Objects that are guarded to differ.
    pub distinct: Distinct,
    /// What this trace has written so far.
    pub written: Written,
    /// What is known of calls of modules.
    pub module_calls: ModuleCalls,
    /// What is known of signatures of functions.
    pub signatures: Signatures,
    /// What is known of how attributes of instances are read.
    pub members: Members,
    /// Containers from outside that were only added to so far.
    pub unread: Sparse<Unread>,
    /// Iterators from outside that it has advanced, by address, unless it has taken them over.
    pub foreseen: FxHashMap<usize, Foreseen>,
    /// Iterators that it has made over such ones, by address.
    pub made_over: FxHashMap<usize, Py<PyAny>>,
    /// Aliases that `typing` has made, as `Optional[int]`, by address.
    pub aliases: FxHashMap<usize, Alias>,
    /// Parts of such lists, by address.
    pub parts: Sparse<PartOf>,
    /// Its writes of context variables.
    pub context: ContextWrites,
    /// The memo of the copy that is being made.
    pub memo: Memo,
    /// The nodes by which this trace has entered inference mode (or left it for a while), outermost
    /// first, until their blocks end.
    pub inference: Vec<NodeId>,
    /// What it knows of gradients.
    pub gradients: Gradients,
    /// Why the trace can't go on, found where nothing could be returned.
    pub failure: Option<Stop>,
    /// Objects whose death would be noticed, and what keeps them alive.
    pub mortal: Mortal,
    /// Objects that the entry keeps: results of calls that are constants of the trace.
    pub kept: FxHashSet<ObjectId>,
    /// Constants of which guards say the values, not that they are the same objects: those in sets.
    pub by_value: FxHashSet<ObjectId>,
    /// Which sizes and numbers are to be symbols.
    pub policy: Policy,
    /// The symbols, once there is one.
    pub symbols: Option<Box<Symbols>>,
    /// The ways out of the trace's middle.
    pub exits: Exits,
    /// Which inputs the graph writes, as far as that was asked.
    pub writes: Writes,
    /// What is known of code that runs within a node.
    pub enclosed: Enclosed,
    /// What it has made for such code.
    pub given: Given,
    /// What is known of NumPy's arrays.
    pub arrays: Arrays,
    /// What is known of sparse tensors.
    pub sparse_tensors: SparseTensors,
    /// Where a tensor program is traced: what that takes note of.
    pub program: Option<Box<Notes>>,
}

impl State {
    /// An empty state.
    ///
    /// # Errors
    /// If the standard library lacks a type that the recorder needs.
    pub fn new(py: Python<'_>, room: &Room) -> PyResult<Self> {
        Ok(Self {
            objects: Objects::with_room(room.objects, room.known),
            sources: Sources::with_room(room.sources, room.indexed),
            guards: Vec::with_capacity(room.guards),
            graph: Graph::with_room(&room.graph),
            graph_objects: GraphObjects::default(),
            inputs: Inputs::with_room(room.inputs),
            frames: Frames::with_room(room.locations),
            roots: Roots::default(),
            asked: None,
            of_process: None,
            prints: false,
            claims: Claims::default(),
            kinds: Kinds::new(py)?,
            reads: Reads::with_room(room.sources, room.read_slots),
            lookups: Lookups::with_room(room.lookups),
            recent_globals: RecentGlobals::default(),
            repeated: Repeated::default(),
            written: Written::default(),
            distinct: Distinct::default(),
            module_calls: ModuleCalls::default(),
            members: Members::default(),
            signatures: Signatures::default(),
            unread: Sparse::default(),
            foreseen: FxHashMap::default(),
            made_over: FxHashMap::default(),
            aliases: FxHashMap::default(),
            parts: Sparse::default(),
            context: ContextWrites::default(),
            memo: Memo::None,
            inference: Vec::new(),
            gradients: Gradients::default(),
            failure: None,
            mortal: Mortal::default(),
            kept: FxHashSet::default(),
            by_value: FxHashSet::default(),
            policy: Policy::default(),
            symbols: None,
            exits: Exits::default(),
            writes: Writes::default(),
            enclosed: Enclosed::default(),
            given: Given::default(),
            arrays: Arrays::default(),
            sparse_tensors: SparseTensors::default(),
            program: None,
        })
    }

    /// The kind of an object that is about to be looked at: a container that was only added to so far
    /// is read from here on.
    #[inline]
    pub fn kind(&mut self, object: Borrowed<'_, '_>) -> Kind {
        let address = object.as_ptr() as usize;
        if self.unread.or_may_hold(&self.parts, address) || self.enclosed.is_watching() {
            self.look_closer(object);
        }
        self.kind_alone(object)
    }

    /// Reads an object that hasn't been yet, and refuses one that may not be looked at.
    #[cold]
    fn look_closer(&mut self, object: Borrowed<'_, '_>) {
        let address = object.as_ptr() as usize;
        if self.unread.or_may_hold(&self.parts, address) {
            self.read_unread(object);
        }
        self.look_enclosed(address);
    }

    /// Says what instances of a type are, from here on.
    pub fn set_kind(&mut self, ty: &Object<'_>, kind: Kind) {
        self.kinds.set(ty.as_ptr() as usize, kind);
    }

    /// The kinds, for what changes them.
    pub fn kinds_mut(&mut self) -> &mut Kinds {
        &mut self.kinds
    }

    /// Whether a transform of `torch.func` runs.
    #[inline]
    pub fn is_transforming(&self) -> bool {
        self.kinds.is_transforming()
    }

    /// The kind of an object whose contents nobody looks at.
    #[inline]
    pub fn kind_alone(&mut self, object: Borrowed<'_, '_>) -> Kind {
        let kind = if self.roots.carry_nothing() {
            self.kinds.of(object)
        } else {
            self.kind_behind_break(object)
        };
        if self.repeated.is_watching() {
            self.look_watched(object, kind);
        }
        if kind == Kind::Opaque {
            self.meet_opaque(object);
        }
        kind
    }

    /// The kind of an object where some can only be passed on.
    #[inline(never)]
    fn kind_behind_break(&mut self, object: Borrowed<'_, '_>) -> Kind {
        if self.roots.carried(object).is_some() { Kind::Opaque } else { self.kinds.of(object) }
    }

    /// Whether C code may read a state of an object that nothing guards.
    pub fn has_native_state(&mut self, object: Borrowed<'_, '_>) -> bool {
        self.kinds.has_native_state(&object.get_type())
    }

    /// Where an object came from; `None` for constants and for objects nobody vouches for.
    pub fn origin(&self, object: Borrowed<'_, '_>) -> Option<Origin> {
        match self.objects.origin(object.as_ptr() as usize) {
            // A tensor that stood at this address has died.
            Some(Origin::Node(_)) if !tensor::is_tensor(object) => None,
            origin => origin,
        }
    }

    /// The source of an outside object.
    pub fn source(&self, object: Borrowed<'_, '_>) -> Option<SourceId> {
        match self.origin(object) {
            Some(Origin::Source(source)) => Some(source),
            _ => None,
        }
    }

    /// The source of the outside object at an address.
    pub fn source_at(&self, address: usize) -> Option<SourceId> {
        match self.objects.origin(address) {
            Some(Origin::Source(source)) => Some(source),
            _ => None,
        }
    }

    /// Says where an object came from.
    pub fn set_origin(&mut self, object: Borrowed<'_, '_>, origin: Origin) {
        self.objects.set_origin(object, origin);
    }

    /// The object was made by this trace.
    pub fn set_fresh(&mut self, object: Borrowed<'_, '_>) {
        self.set_origin(object, Origin::Fresh);
        self.watch_made(object);
    }

    /// Whether an iterator is one that the trace has made over some from outside.
    pub fn is_made_over(&self, object: Borrowed<'_, '_>) -> bool {
        !self.made_over.is_empty() && self.made_over.contains_key(&(object.as_ptr() as usize))
    }

    /// Whether an object is known for good by identity (a function, class, module, enum member).
    pub fn is_identity_guarded(&self, object: Borrowed<'_, '_>) -> bool {
        self.is_address_known(object.as_ptr() as usize)
    }

    /// As [`State::is_identity_guarded`], of the object at an address.
    pub fn is_address_known(&self, address: usize) -> bool {
        self.objects.is_marked(address, Mark::ByIdentity)
    }

    /// The place of the instruction that is being evaluated, as a node's stack.
    pub fn place(&mut self, frame: &Frame<'_>) -> Option<StackId> {
        self.frames.stack(&mut self.graph, frame)
    }

    /// Records a guard, read at the current instruction.
    pub fn guard(&mut self, source: SourceId, kind: GuardKind) {
        let location = Some(self.frames.read());
        let guards = &mut self.guards;
        grow_in_leaps(guards.len(), guards.capacity(), |more| guards.reserve(more));
        guards.push(Guard { source, kind, location });
    }

    /// Whether nothing was found at a source yet.
    pub fn first_seen(&mut self, source: SourceId) -> bool {
        self.reads.first_at(source, self.sources.len())
    }

    /// The id of an object that the graph speaks of.
    pub fn graph_object(
        &mut self,
        object: Borrowed<'_, '_>,
        text: impl FnOnce() -> String,
    ) -> stator_graph::ObjectId {
        self.graph_objects.id(&mut self.graph, object, text)
    }

    /// A function as the graph calls it, by the name that is printed.
    pub fn function_target(&mut self, function: Borrowed<'_, '_>, name: String) -> Target {
        let text = self.graph.intern(&name);
        Target::Function { name: text, object: self.graph_object(function, || name) }
    }

    /// The id of an object in the table that guards use.
    pub fn object(&mut self, object: Borrowed<'_, '_>) -> ObjectId {
        self.objects.intern(object)
    }

    /// A source for an object known by identity: a type, or the entry function.
    pub fn anchor(&mut self, object: Borrowed<'_, '_>) -> SourceId {
        if let Some(source) = self.source(object) {
            return source;
        }
        let id = self.objects.intern(object);
        let source = self.sources.anchor(id, || heap::name_of(object).into());
        self.set_origin(object, Origin::Source(source));
        self.objects.mark(object, Mark::ByIdentity);
        source
    }

    /// Guards the exact type of the object at `source`.
    pub fn guard_type(&mut self, source: SourceId, object: Borrowed<'_, '_>) {
        let ty = object.get_type();
        let id = self.objects.intern_type(ty.as_any().as_borrowed());
        self.guard(source, GuardKind::TypeIs(id));
    }

    /// Whether an object is a bound method of a C type that other calls bind anew: it isn't known by identity.
    pub fn is_own_method(&mut self, object: Borrowed<'_, '_>) -> bool {
        self.kind(object) == Kind::Builtin
            && match self.origin(object) {
                Some(Origin::Source(_)) => !self.is_identity_guarded(object),
                origin => origin == Some(Origin::Fresh),
            }
    }
}
