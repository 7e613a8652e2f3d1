//! What one trace knows: origins of objects, sources, guards and the graph so far.
//!
//! Invariants:
//! * Nothing here runs Python code or drops a Python reference while the trace goes on, so the
//!   state can be borrowed at any site.
//! * An outside object (origin `Source`) is kept alive, so its address can't be taken by another.
//!   A tensor made by the trace isn't: when its address is taken by a new object, the site that
//!   made that object has overwritten the origin.

use std::collections::{HashMap, HashSet};

use pyo3::prelude::*;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_graph::{Graph, NodeId, StackId};
use stator_guards::{Guard, GuardKind, ObjectId, SourceId, Sources, grow_in_leaps};

use super::capacity::Room;
use super::heap;
use super::kinds::{Kind, Kinds};
use super::objects::{Mark, Objects};
use crate::breaks::{Place, Reason};
use crate::policy::Policy;
use crate::recorder::calls::copies::Memo;
use crate::recorder::calls::module_calls::ModuleCalls;
use crate::recorder::calls::signatures::Signatures;
use crate::recorder::effects::context::Token;
use crate::recorder::effects::emissions::Emitted;
use crate::recorder::effects::locks::Claims;
use crate::recorder::effects::writes::Effect;
use crate::recorder::numbers::symbols::Symbols;
use crate::recorder::programs::Notes;
use crate::recorder::reads::lookups::RecentLookups;
use crate::recorder::reads::members::Members;
use crate::recorder::reads::only_added::Unread;
use crate::recorder::reads::recent_globals::RecentGlobals;

/// Where an object with identity came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It existed before the call, at this slot.
    Source(SourceId),
    /// A tensor made by a node of the graph.
    Node(NodeId),
    /// Any other object that this trace made.
    Fresh,
}

/// Why the trace ends; the place is added by the recorder.
pub type Stop = (Reason, String);

/// Where the caller of a frame stands. Most frames hold no node, so the graph's entry is made when one
/// needs it.
#[derive(Clone, Copy, Debug)]
pub enum Caller {
    /// At this entry of the graph; none: nobody knows.
    Known(Option<StackId>),
    /// At this unit of the frame before.
    At(u32),
}

/// A frame being evaluated.
#[derive(Clone, Copy, Debug)]
pub struct ActiveFrame {
    /// Address of the frame.
    pub id: usize,
    /// Index of its code object in [`State::codes`].
    pub code: u32,
    /// Where its caller stands.
    pub caller: Caller,
    /// Whether its caller, evaluated as well, only waits for what it returns.
    pub is_direct: bool,
}

/// The slots this trace wrote: container address and key address.
pub type Slot = (usize, usize);

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
    /// Python objects the graph speaks of, by the graph's object id.
    pub graph_objects: Vec<Py<PyAny>>,
    /// Graph object ids by address.
    pub graph_object_ids: FxHashMap<usize, stator_graph::ObjectId>,
    /// Placeholders by source, in the order they were made.
    pub placeholders: FxHashMap<SourceId, NodeId>,
    /// Sources of the placeholders, in the graph's order.
    pub inputs: Vec<SourceId>,
    /// Those that are tensors: position, and the version of their data when they were first used.
    pub input_versions: Vec<(u32, Py<PyAny>, Option<u32>)>,
    /// Frames being evaluated, outermost first.
    pub frames: Vec<ActiveFrame>,
    /// Where the trace begins, if that isn't a call.
    pub begins: Option<Place>,
    /// What `torch.compiler.is_compiling()` answered, if the trace asked.
    pub asked: Option<bool>,
    /// What a replay takes at its beginning.
    pub claims: Claims,
    /// Code objects of nodes' places.
    pub codes: Vec<Py<PyAny>>,
    code_ids: FxHashMap<usize, u32>,
    /// Places of guards: code and unit.
    pub locations: Vec<(u32, u32)>,
    /// The place of the instruction that is being evaluated.
    pub here: (u32, u32),
    kinds: Kinds,
    /// Whether what was found at a source is guarded already, by source.
    seen: Vec<bool>,
    /// Type lookups that are guarded already: type and name.
    pub lookups: FxHashSet<Slot>,
    /// Those of them that were asked last.
    pub recent_lookups: RecentLookups,
    /// Global variables that were read more than once.
    pub recent_globals: RecentGlobals,
    /// Slots that are guarded already: owner, and what stands for the key (see `effects`).
    pub read_slots: FxHashSet<Slot>,
    /// Parts of outside objects that this trace wrote, with their places among the effects.
    pub written: FxHashMap<Slot, usize>,
    /// What stands for the keys of all those parts.
    pub written_keys: FxHashSet<usize>,
    /// Attributes of classes that this trace wrote: class and name.
    pub class_writes: Vec<Slot>,
    /// Outside objects that C code compared with others.
    pub compared: FxHashSet<SourceId>,
    /// Whether registrations with abstract classes are guarded.
    pub abstract_classes: bool,
    /// Dictionaries that this trace wrote to.
    pub written_dicts: FxHashSet<usize>,
    /// Dictionaries whose keys this trace changed, with their keys before that.
    pub rekeyed: FxHashMap<usize, Vec<Py<PyAny>>>,
    /// The writes, in the order of the first write to each part.
    pub effects: Vec<Effect>,
    /// How many nodes there were when the first of these was noted, or the first emission.
    pub first_effect: Option<usize>,
    /// What is known of calls of modules.
    pub module_calls: ModuleCalls,
    /// How often this trace wrote to outside objects.
    pub writes: u64,
    /// What is known of signatures of functions.
    pub signatures: Signatures,
    /// What is known of how attributes of instances are read.
    pub members: Members,
    /// Warnings and log records that were given.
    pub emissions: Vec<Emitted>,
    /// Special methods of types that are guarded already: type and name.
    pub protocols: FxHashSet<Slot>,
    /// Pairs of sources that are guarded to differ.
    pub distinct: FxHashSet<Slot>,
    /// Containers from outside that were only added to so far.
    pub unread: FxHashMap<usize, Unread>,
    /// The tokens that this trace got for writes of context variables.
    pub tokens: Vec<Token>,
    /// The context variables that were reset with tokens from before the trace.
    pub resets: Vec<usize>,
    /// The memo of the copy that is being made.
    pub memo: Memo,
    /// The nodes by which this trace has entered inference mode (or left it for a while), outermost
    /// first, until their blocks end.
    pub inference: Vec<NodeId>,
    /// Whether a function that is one node of the graph may have set any gradient.
    pub unknown_gradients: bool,
    /// Tensors whose gradients this trace has set.
    pub written_gradients: Vec<Py<PyAny>>,
    /// Why the contents of one of them could not be guarded.
    pub failure: Option<Stop>,
    /// Containers that are being looked into.
    pub(in crate::recorder) visiting: FxHashSet<usize>,
    /// Cells found a second time, which are guarded to be the first.
    pub shared_cells: FxHashSet<SourceId>,
    /// Objects whose death would be noticed, and what keeps them alive.
    pub(in crate::recorder) mortal: Vec<ObjectId>,
    /// Objects that the entry keeps: results of calls that are constants of the trace.
    pub kept: FxHashSet<ObjectId>,
    /// Fast locals (frame and slot) that hold what they held when the trace began.
    pub(in crate::recorder) unchanged: FxHashMap<(usize, usize), (SourceId, usize)>,
    /// The frames of these locals.
    pub(in crate::recorder) holders: Vec<usize>,
    /// How many of the frames the trace began in haven't left.
    pub(in crate::recorder) begun: usize,
    /// Of those that have, innermost first: the fast locals that held to the end what they held when the
    /// trace began.
    pub(in crate::recorder) left: Vec<Box<[u32]>>,
    /// Constants that fast locals or the stack held when the trace began, by address. Guards say
    /// that a replay's are equal; passing those on keeps their identity.
    pub(in crate::recorder) constants: FxHashMap<usize, SourceId>,
    /// Values of the stack at a resume point, by address.
    pub on_stack: FxHashSet<usize>,
    /// Objects from outside that can only be passed on, by address.
    pub(in crate::recorder) carried: FxHashMap<usize, SourceId>,
    /// Which sizes and numbers are to be symbols.
    pub policy: Policy,
    /// The symbols, once there is one.
    pub symbols: Option<Box<Symbols>>,
    /// Where a tensor program is traced: what that takes note of.
    pub program: Option<Box<Notes>>,
    /// The sources of `*args` and `**kwargs`.
    pub variadic: smallvec::SmallVec<[SourceId; 2]>,
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
            graph_objects: Vec::new(),
            graph_object_ids: FxHashMap::default(),
            placeholders: HashMap::with_capacity_and_hasher(room.inputs, FxBuildHasher),
            inputs: Vec::with_capacity(room.inputs),
            input_versions: Vec::with_capacity(room.inputs),
            frames: Vec::new(),
            begins: None,
            asked: None,
            claims: Claims::default(),
            codes: Vec::new(),
            code_ids: FxHashMap::default(),
            locations: Vec::with_capacity(room.locations),
            here: (0, 0),
            kinds: Kinds::new(py)?,
            seen: Vec::with_capacity(room.sources),
            lookups: HashSet::with_capacity_and_hasher(room.lookups, FxBuildHasher),
            recent_lookups: RecentLookups::with_room(2 * room.lookups),
            recent_globals: RecentGlobals::default(),
            read_slots: HashSet::with_capacity_and_hasher(room.read_slots, FxBuildHasher),
            written: FxHashMap::default(),
            written_keys: FxHashSet::default(),
            class_writes: Vec::new(),
            compared: FxHashSet::default(),
            abstract_classes: false,
            written_dicts: FxHashSet::default(),
            rekeyed: FxHashMap::default(),
            effects: Vec::new(),
            first_effect: None,
            module_calls: ModuleCalls::default(),
            members: Members::default(),
            writes: 0,
            signatures: Signatures::default(),
            emissions: Vec::new(),
            protocols: FxHashSet::default(),
            distinct: FxHashSet::default(),
            unread: FxHashMap::default(),
            tokens: Vec::new(),
            resets: Vec::new(),
            memo: Memo::None,
            inference: Vec::new(),
            unknown_gradients: false,
            written_gradients: Vec::new(),
            failure: None,
            visiting: FxHashSet::default(),
            shared_cells: FxHashSet::default(),
            mortal: Vec::new(),
            kept: FxHashSet::default(),
            unchanged: FxHashMap::default(),
            holders: Vec::new(),
            begun: 0,
            left: Vec::new(),
            constants: FxHashMap::default(),
            on_stack: FxHashSet::default(),
            carried: FxHashMap::default(),
            policy: Policy::default(),
            symbols: None,
            program: None,
            variadic: smallvec::SmallVec::new(),
        })
    }

    /// The kind of an object that is about to be looked at: a container that was only added to so far
    /// is read from here on.
    #[inline]
    pub fn kind(&mut self, object: Borrowed<'_, '_>) -> Kind {
        if !self.unread.is_empty() {
            self.read_unread(object);
        }
        self.kind_alone(object)
    }

    /// Says what instances of a type are, from here on.
    pub fn set_kind(&mut self, ty: &Object<'_>, kind: Kind) {
        self.kinds.set(ty.as_ptr() as usize, kind);
    }

    /// The kind of an object whose contents nobody looks at.
    #[inline]
    pub fn kind_alone(&mut self, object: Borrowed<'_, '_>) -> Kind {
        if self.carried.is_empty() { self.kinds.of(object) } else { self.kind_behind_break(object) }
    }

    /// The kind of an object where some can only be passed on.
    #[inline(never)]
    fn kind_behind_break(&mut self, object: Borrowed<'_, '_>) -> Kind {
        if self.carried(object).is_some() { Kind::Opaque } else { self.kinds.of(object) }
    }

    /// Fails for an outside object whose state C code would read: nothing guards it.
    pub fn refuse_native_state(&mut self, object: Borrowed<'_, '_>) -> Result<(), Stop> {
        let outside =
            self.kind(object) == Kind::Object && self.origin(object) != Some(Origin::Fresh);
        if outside && heap::is_deque(object) {
            return self.read_deque(object);
        }
        if outside
            && self.kinds.has_native_state(&object.get_type())
            && !heap::is_function_like(object)
        {
            return Err((
                Reason::Unsupported,
                format!("the state of a {}", heap::type_name(object)),
            ));
        }
        Ok(())
    }

    /// Where an object came from; `None` for constants and for objects nobody vouches for.
    pub fn origin(&self, object: Borrowed<'_, '_>) -> Option<Origin> {
        self.objects.origin(object.as_ptr() as usize)
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
    }

    /// Whether an object is known for good by identity (a function, class, module, enum member).
    pub fn is_identity_guarded(&self, object: Borrowed<'_, '_>) -> bool {
        self.is_address_known(object.as_ptr() as usize)
    }

    /// As [`State::is_identity_guarded`], of the object at an address.
    pub fn is_address_known(&self, address: usize) -> bool {
        self.objects.is_marked(address, Mark::ByIdentity)
    }

    /// The index of a code object among [`State::codes`].
    pub fn code_id(&mut self, code: Borrowed<'_, '_>) -> u32 {
        let next = u32::try_from(self.codes.len()).expect("fewer than 2^32 code objects");
        let id = *self.code_ids.entry(code.as_ptr() as usize).or_insert(next);
        if id == next {
            self.codes.push(code.to_owned().unbind());
        }
        id
    }

    /// The place of the instruction that is being evaluated, as a node's stack.
    pub fn place(&mut self, frame: &Frame<'_>) -> Option<StackId> {
        let active = *self.frames.last()?;
        let caller = self.caller();
        Some(self.graph.stack(caller, active.code, unit(frame)))
    }

    /// Where the caller of the innermost frame stands, as a node's stack.
    pub fn caller(&mut self) -> Option<StackId> {
        let last = self.frames.len().checked_sub(1)?;
        let mut known = last;
        let mut stack = loop {
            match self.frames[known].caller {
                Caller::Known(stack) => break stack,
                // Only a frame with one before it is given this.
                Caller::At(_) => known -= 1,
            }
        };
        for at in known + 1..=last {
            let Caller::At(unit) = self.frames[at].caller else { continue };
            stack = Some(self.graph.stack(stack, self.frames[at - 1].code, unit));
            self.frames[at].caller = Caller::Known(stack);
        }
        stack
    }

    /// Records a guard, read at the current instruction.
    pub fn guard(&mut self, source: SourceId, kind: GuardKind) {
        if self.locations.last() != Some(&self.here) {
            let locations = &mut self.locations;
            grow_in_leaps(locations.len(), locations.capacity(), |more| locations.reserve(more));
            locations.push(self.here);
        }
        let location = Some((self.locations.len() - 1) as u32);
        let guards = &mut self.guards;
        grow_in_leaps(guards.len(), guards.capacity(), |more| guards.reserve(more));
        guards.push(Guard { source, kind, location });
    }

    /// Marks the instruction that the next guards are read at.
    pub fn locate(&mut self, frame: &Frame<'_>) {
        if let Some(active) = self.frames.last() {
            self.here = (active.code, unit(frame));
        }
    }

    /// As [`State::locate`] for an instruction of the current frame that is yet to come.
    pub fn locate_unit(&mut self, unit: usize) {
        self.here.1 = u32::try_from(unit).unwrap_or(u32::MAX);
    }

    /// Whether nothing was found at a source yet.
    pub fn first_seen(&mut self, source: SourceId) -> bool {
        if self.seen.len() <= source.index() {
            self.seen.resize(self.sources.len(), false);
        }
        !std::mem::replace(&mut self.seen[source.index()], true)
    }

    /// The id of an object that the graph speaks of.
    pub fn graph_object(
        &mut self,
        object: Borrowed<'_, '_>,
        text: impl FnOnce() -> String,
    ) -> stator_graph::ObjectId {
        let address = object.as_ptr() as usize;
        if let Some(&id) = self.graph_object_ids.get(&address) {
            return id;
        }
        let id = self.graph.add_object(&text());
        self.graph_objects.push(object.to_owned().unbind());
        self.graph_object_ids.insert(address, id);
        id
    }

    /// The id of an object in the table that guards use.
    pub fn object(&mut self, object: Borrowed<'_, '_>) -> ObjectId {
        self.objects.intern(object)
    }

    /// The positions of the inputs whose data the call changed.
    pub fn written_inputs(&self, py: Python<'_>) -> Vec<u32> {
        let changed = |(position, tensor, before): &(u32, Py<PyAny>, Option<u32>)| {
            let now = stator_cpython::heap::tensor::info(tensor.bind_borrowed(py));
            now.is_none_or(|now| now.version != *before).then_some(*position)
        };
        self.input_versions.iter().filter_map(changed).collect()
    }
}

/// The unit that a frame stands at.
pub fn unit(frame: &Frame<'_>) -> u32 {
    u32::try_from(frame.unit()).expect("code objects have fewer than 2^32 units")
}
