//! Code of the program's own that runs within one node of the graph, as `forward` of a `torch.autograd.Function` does.
//!
//! A replay runs that code again, as a part of the node. So nothing of it is in the graph; but what the trace relies on
//! has to hold. While it is recorded its frames are evaluated as all others are, so what it reads is guarded, and it
//! may not read what a replay has yet to write. Then its nodes are withdrawn, and so are its writes, as it makes them
//! itself. An object that it has written to is out of bounds for the rest of the trace.

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use stator_cpython::frame::Frame;
use stator_cpython::generic;
use stator_cpython::heap::tensor::{self, TensorInfo};
use stator_cpython::modules::Named;
use stator_cpython::object::Borrowed;
use stator_cpython::ops;
use stator_graph::{ObjectId, Target, Value};

use super::effects::{CONTENTS, KEYS};
use super::heap;
use super::inputs::graph_meta;
use super::kinds::Kind;
use super::state::{Origin, Slot, State};
use super::symbols::Sizes;
use crate::breaks::Reason;
use crate::raises::NodeCall;
use crate::recorder::Recorder;

/// What is known of the code that runs within a node.
#[derive(Default)]
pub struct Enclosed {
    /// How many nodes' code runs, one within the other.
    pub(in crate::recorder) depth: usize,
    /// Objects that the trace had written when it began, and those that such code has written, by address.
    pub(in crate::recorder) written: FxHashSet<usize>,
    /// The parts that such code has written.
    pub(in crate::recorder) left: Vec<Slot>,
    /// The lists among them, by address: whether all that they hold is known of the code; else it has only added to them.
    pub(in crate::recorder) lists: FxHashMap<usize, bool>,
    /// What stood in entries of dictionaries that such code has written, before its first write there.
    before: FxHashMap<Slot, Option<Py<PyAny>>>,
    /// What it was given and has changed, by address: only such code may look at it.
    pub(in crate::recorder) changed: FxHashSet<usize>,
    /// Tensors that the nodes are given, by address.
    pub(in crate::recorder) given: FxHashSet<usize>,
    /// Tensors that the node whose code ended last has given back as it got them, by address.
    pub(in crate::recorder) given_back: FxHashSet<usize>,
    /// What nodes call whose code was looked at: it draws no number of Python's.
    seen: FxHashSet<ObjectId>,
    /// Whether going back may lead to such code.
    has_functions: bool,
    /// How many nodes' code ran when one began to compute gradients; none: none does.
    back: Option<usize>,
    /// How often such code did something that nobody took notes of, as a replay does it by the node.
    pub(in crate::recorder) unnoted: usize,
    /// Whether all sizes of the results are known, of the code that ended last.
    pub(in crate::recorder) is_settled: bool,
    /// Those that are symbolic, and the strides, by the addresses of the tensors.
    pub(in crate::recorder) sizes: Vec<(usize, Option<Sizes>, Sizes)>,
}

impl Enclosed {
    /// Whether such code runs.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.depth > 0
    }

    /// Whether it runs while gradients are computed.
    pub fn goes_back(&self) -> bool {
        self.back.is_some()
    }

    /// The code that begins next runs while gradients are computed.
    pub fn go_back(&mut self) {
        self.back.get_or_insert(self.depth);
    }

    /// Whether there are objects that may not be looked at.
    #[inline]
    pub fn is_watching(&self) -> bool {
        !self.written.is_empty() || !self.changed.is_empty()
    }

    /// Whether an object may not be looked at. Nearly always there is nothing to ask about.
    #[inline]
    pub fn hides(&self, address: usize) -> bool {
        self.is_watching()
            && (self.written.contains(&address) || !self.is_on() && self.changed.contains(&address))
    }

    /// Such code is about to write an entry of a dictionary.
    pub fn write_entry(&mut self, slot: Slot, value: Option<Borrowed<'_, '_>>) {
        self.before.entry(slot).or_insert_with(|| value.map(|value| value.to_owned().unbind()));
    }

    /// Such code has ended. Whether what stands in an entry that it has written is what stood there before: a replay
    /// leaves it so, too.
    pub fn is_restored(&mut self, slot: &Slot, value: Option<Borrowed<'_, '_>>) -> bool {
        match (self.before.remove(slot), value) {
            (Some(Some(before)), Some(value)) => value.is(before.bind(value.py())),
            _ => false,
        }
    }

    /// The parts that such code has written.
    pub fn left(&self) -> &[Slot] {
        &self.left
    }

    /// Whether going back may lead to such code.
    pub fn has_functions(&self) -> bool {
        self.has_functions
    }

    /// A node may be gone back through by such code: that of a custom function, a hook or a checkpoint.
    pub fn add_function(&mut self) {
        self.has_functions = true;
    }

    /// Whether such code was given what stands there, and has changed it.
    pub fn has_changed(&self, address: usize) -> bool {
        self.changed.contains(&address)
    }

    /// What stands there is known again.
    pub fn show(&mut self, address: usize) {
        self.changed.remove(&address);
    }

    /// The code has ended, or the trace has: the notes are those of before.
    pub fn end(&mut self, begun: &mut Begun) {
        self.depth = self.depth.saturating_sub(1);
        self.back = self.back.filter(|begun| self.depth > *begun);
        self.written = std::mem::take(&mut begun.outer_written);
        self.written.extend(self.left.iter().map(|(object, _)| *object));
        self.given = std::mem::take(&mut begun.outer_given);
    }
}

impl State {
    /// Whether the trace has written a part that is about to be read. Code within a node would read the old value, as
    /// a replay writes behind its graph.
    pub fn has_written(&mut self, slot: &Slot) -> bool {
        if !self.enclosed.is_on() && self.written.is_part(slot) {
            // What such code has left there was overwritten.
            return true;
        }
        self.look_enclosed(slot.0);
        self.written.has(slot)
    }

    /// Whether code within a node has written to a dictionary, and to entries of it alone: others are what they were.
    pub fn shows_entries(&self, dict: Borrowed<'_, '_>) -> bool {
        let address = dict.as_ptr() as usize;
        let is_entry = |(_, part): &Slot| ![CONTENTS, KEYS].contains(part);
        let mut left = self.enclosed.left.iter().filter(|(object, _)| *object == address);
        !self.enclosed.is_on()
            && self.enclosed.written.contains(&address)
            && !self.enclosed.changed.contains(&address)
            && heap::is_exact_dict(dict)
            && left.all(is_entry)
    }

    /// As [`State::has_written`], of an entry of a dictionary.
    pub fn has_written_entry(&mut self, dict: Borrowed<'_, '_>, slot: &Slot) -> bool {
        let is_beside = self.shows_entries(dict) && !self.enclosed.left.contains(slot);
        if is_beside { self.written.has(slot) } else { self.has_written(slot) }
    }

    /// Something is to be done with the object at an address.
    #[inline]
    pub fn look_enclosed(&mut self, address: usize) {
        if self.enclosed.hides(address) {
            self.refuse_stale();
        }
    }

    #[cold]
    fn refuse_stale(&mut self) {
        let detail = if self.enclosed.is_on() {
            "before code that is one node of the graph looks at it"
        } else {
            "by code that is one node of the graph, before it is looked at"
        };
        self.failure.get_or_insert_with(|| (Reason::OutsideWrite, detail.into()));
    }

    /// A tensor that only such code has: nothing else may use it.
    pub fn enclose_tensor(&mut self, tensor: Borrowed<'_, '_>) {
        if let Some(info) = tensor::info(tensor) {
            let value = graph_meta(self, &info);
            let node = self.graph.withdrawn(value);
            self.set_origin(tensor, Origin::Node(node));
        }
    }

    /// A frame begins that C code has entered: what it is given comes from there.
    pub fn enter_enclosed(&mut self, frame: &Frame<'_>) {
        let function = frame.function();
        if self.origin(function).is_none() && is_way_back(frame) {
            self.anchor(function);
        }
        for index in 0..frame.code().nlocalsplus() {
            if let Some(value) = frame.local(index) {
                self.enclose_argument(value);
            }
        }
    }

    fn enclose_argument(&mut self, object: Borrowed<'_, '_>) {
        let is_given = self.enclosed.given.contains(&(object.as_ptr() as usize));
        match self.kind_alone(object) {
            Kind::Tensor if !is_given && self.source(object).is_none() => {
                // Another tensor of the trace may have stood at its address.
                self.enclose_tensor(object);
            }
            Kind::Tuple if self.source(object).is_none() => {
                self.set_fresh(object);
                for item in heap::tuple_items(object) {
                    self.enclose_argument(item.as_borrowed());
                }
            }
            Kind::Dict | Kind::List if self.is_transforming() && self.source(object).is_none() => {
                self.set_fresh(object);
                for item in heap::children(object) {
                    self.enclose_argument(item.as_borrowed());
                }
            }
            Kind::Object if self.origin(object).is_none() && is_context(object) => {
                self.set_fresh(object);
            }
            _ => {}
        }
    }
}

/// Whether a frame is the one by which PyTorch's engine calls `backward` of a custom function.
pub fn is_way_back(frame: &Frame<'_>) -> bool {
    let code = frame.code();
    heap::text(code.qualname()) == "BackwardCFunction.apply"
        && heap::text(code.filename()).ends_with("torch/autograd/function.py")
}

/// Whether an object is what a custom function keeps of a call.
fn is_context(object: Borrowed<'_, '_>) -> bool {
    static BASE: Named = Named::new("torch._C", "_FunctionBase");
    BASE.get(object.py()).is_ok_and(|base| generic::is_of_class(object, base))
}

impl State {
    /// Whether code of the program's own is a node of the graph. A print runs none.
    pub(in crate::recorder) fn has_users_nodes(&self) -> bool {
        self.has_node(|call| call.is_users() && !call.is_print())
    }

    /// As [`State::has_users_nodes`], of code that nobody has looked at.
    pub(in crate::recorder) fn has_unseen_nodes(&self) -> bool {
        self.has_node(|call| call.is_users() && !call.is_print() && !self.is_seen(call.target))
    }

    fn has_node(&self, is_it: impl Fn(NodeCall<'_>) -> bool) -> bool {
        // Functions of numbers are none.
        let is_one = |id, value| {
            !matches!(value, Value::Integer | Value::Float | Value::Text)
                && NodeCall::of(&self.graph, id).is_some_and(&is_it)
        };
        self.graph.nodes().any(|(id, node)| is_one(id, node.value))
    }

    /// Whether the code of a node is looked at while it is recorded.
    pub(in crate::recorder) fn is_seen(&self, target: Target) -> bool {
        matches!(target, Target::Function { object, .. } if self.enclosed.seen.contains(&object))
    }

    /// The target of nodes whose code is looked at while it is recorded.
    pub(in crate::recorder) fn seen_target(
        &mut self,
        function: Borrowed<'_, '_>,
        name: String,
    ) -> Target {
        let target = self.function_target(function, name);
        if let Target::Function { object, .. } = target {
            self.enclosed.seen.insert(object);
        }
        target
    }
}

impl Recorder {
    /// Whether an instruction that has done nothing yet is one of code within a node.
    pub(in crate::recorder) fn is_enclosed(&self, frame: &Frame<'_>) -> bool {
        ops::executed() == self.baseline.get()
            && self.state.try_borrow().is_ok_and(|state| {
                let own = state.frames.innermost();
                state.enclosed.is_on() && own.is_some_and(|own| own.id == frame.id())
            })
    }
}

/// How a trace stood when code within a node began.
pub struct Begun {
    pub(in crate::recorder) nodes: usize,
    /// How many parts were written.
    pub(in crate::recorder) parts: usize,
    /// How much nobody took notes of.
    pub(in crate::recorder) unnoted: usize,
    /// What else a replay does, as far as it was noted.
    pub(in crate::recorder) others: Others,
    pub(in crate::recorder) given: Vec<(Py<PyAny>, TensorInfo)>,
    pub(in crate::recorder) outer_written: FxHashSet<usize>,
    pub(in crate::recorder) outer_given: FxHashSet<usize>,
}

/// How many warnings were given, locks taken, classes written, words drawn, and such.
pub(in crate::recorder) type Others = (usize, usize, usize, usize, usize);
