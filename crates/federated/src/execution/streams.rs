//! What clients make, merged as it comes: nobody holds the results of all of them.
//!
//! Mapping a computation over clients is put off: what it gives is a [`Later`]. What is made of that for each client
//! alone (structs, fields, further maps) is put off too, and so are merges of it, such as sums: a [`Merge`] stands
//! for the result at the server. When one of them is needed, the clients' work is done once, some clients at a time:
//! their values go into all merges that somebody waits for, and are gone. Only what somebody else still holds is kept
//! for all clients.
//!
//! It makes no difference to what is seen. Work that may have effects is done before other such work begins, and all
//! that was put off is done before a call ends, used or not, and before an error is raised that came later.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rustc_hash::FxHashMap;

use super::leaves::rebuild;
use super::machine::{Calls, not_this};
use super::merges::{How, Merging};
use super::perform::member_type;
use super::{Function, Interpreter, Items, Kernels, Members, Value};
use crate::error::{Class, Error};
use crate::types::Type;

/// How much memory the results may take of clients that work at the same time, for each thread.
const BYTES: u64 = 16 << 20;

/// How many clients work in a thread before their results are merged, where memory allows it.
const TURN: usize = 64;

/// How long a chain of maps is put off: what is longer is worked off on the way.
const DEPTH: u32 = 64;

/// What each client holds, put off.
pub struct Later<L>(Arc<Node<L>>);

struct Node<L> {
    stream: Arc<Stream<L>>,
    what: What<L>,
    /// How many nodes it goes through.
    depth: u32,
    /// What all clients hold, where somebody wanted that.
    all: OnceLock<Items<L>>,
}

enum What<L> {
    /// What the stream's function gives.
    Given,
    /// What a function gives for what the clients hold.
    Map(Function<L>, Later<L>),
    /// Structs, with what they hold in the places of federated values.
    Zip(Value<L>),
}

/// The result of a merge, at the server, put off.
pub struct Merge<L>(Arc<Merged<L>>);

struct Merged<L> {
    stream: Arc<Stream<L>>,
    how: How<L>,
    ty: Type,
    /// What is merged: what clients hold, or a struct of that.
    of: Value<L>,
    result: OnceLock<Value<L>>,
}

/// Work of clients that is done once.
pub struct Stream<L> {
    function: Function<L>,
    clients: usize,
    /// Which one of the call's maps it is.
    map: usize,
    /// How much memory a client's result takes, if that is known.
    bytes: Option<u64>,
    has_effects: bool,
    state: Mutex<State<L>>,
}

struct State<L> {
    /// What the function is called with. None: it has been.
    calls: Option<Calls<L>>,
    nodes: Vec<Weak<Node<L>>>,
    merges: Vec<Weak<Merged<L>>>,
}

type Nodes<L> = Vec<Arc<Node<L>>>;
type Merges<L> = Vec<Arc<Merged<L>>>;

/// What nodes hold for some clients, by their addresses.
type Known<L> = FxHashMap<usize, Items<L>>;

impl<L> Stream<L> {
    fn state(&self) -> MutexGuard<'_, State<L>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nodes and merges that somebody holds.
    fn waiting(&self) -> (Nodes<L>, Merges<L>) {
        let mut state = self.state();
        let nodes = std::mem::take(&mut state.nodes);
        let merges = std::mem::take(&mut state.merges);
        drop(state);
        let nodes = nodes.iter().filter_map(Weak::upgrade).collect();
        (nodes, merges.iter().filter_map(Weak::upgrade).collect())
    }

    /// Adds what is put off.
    fn node(self: &Arc<Self>, what: What<L>, depth: u32) -> Value<L> {
        let all = OnceLock::new();
        let node = Arc::new(Node { stream: Arc::clone(self), what, depth, all });
        self.state().nodes.push(Arc::downgrade(&node));
        Value::Later(Later(node))
    }
}

impl<L> Node<L> {
    fn address(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).cast::<()>() as usize
    }
}

impl<K: Kernels> Interpreter<K> {
    /// What a function gives for each client, put off. `ty` is the type of what all hold, `map` the number of the map.
    pub(super) fn later(
        &self,
        function: Function<K::Leaf>,
        calls: Calls<K::Leaf>,
        ty: &Type,
        map: usize,
    ) -> Result<Value<K::Leaf>, K::Error> {
        let has_effects = function.has_effects(&*self.kernels);
        if has_effects {
            self.settle(|stream| stream.has_effects)?;
        }
        let clients = calls.len();
        let state = State { calls: Some(calls), nodes: Vec::new(), merges: Vec::new() };
        let bytes = member_type(ty).bytes();
        let state = Mutex::new(state);
        let stream = Arc::new(Stream { function, clients, map, bytes, has_effects, state });
        self.streams().push(Arc::clone(&stream));
        Ok(stream.node(What::Given, 0))
    }

    /// The same of what clients hold that is put off itself; nothing, where it can't be put off any longer.
    pub(super) fn map_later(
        &self,
        function: &Function<K::Leaf>,
        of: &Later<K::Leaf>,
    ) -> Option<Value<K::Leaf>> {
        if of.0.all.get().is_some()
            || of.0.depth >= DEPTH
            || function.is_heavy() && function.has_effects(&*self.kernels)
        {
            return None;
        }
        Some(of.0.stream.node(What::Map(function.clone(), of.clone()), of.0.depth + 1))
    }

    /// Structs of what clients hold, where some of that is put off in one stream.
    pub(super) fn zip_later(&self, of: &Value<K::Leaf>) -> Option<Value<K::Leaf>> {
        let (stream, depth) = put_off(of)?;
        (depth < DEPTH).then(|| stream.node(What::Zip(of.clone()), depth + 1))
    }

    /// The merge of what clients hold, where that is put off in one stream. `ty` is the type of the result.
    pub(super) fn merge_later(
        &self,
        how: How<K::Leaf>,
        ty: &Type,
        of: &Value<K::Leaf>,
    ) -> Option<Value<K::Leaf>> {
        let (stream, _) = put_off(of)?;
        let (of, ty, result) = (of.clone(), ty.clone(), OnceLock::new());
        let merge = Arc::new(Merged { stream: Arc::clone(&stream), how, ty, of, result });
        stream.state().merges.push(Arc::downgrade(&merge));
        Some(Value::Merge(Merge(merge)))
    }

    /// What all clients hold.
    pub(super) fn all(&self, later: &Later<K::Leaf>) -> Result<Items<K::Leaf>, K::Error> {
        if later.0.all.get().is_none() {
            self.flow(&later.0.stream)?;
        }
        later.0.all.get().cloned().ok_or_else(|| lost().into())
    }

    /// The result of a merge.
    pub(super) fn merged(&self, merge: &Merge<K::Leaf>) -> Result<Value<K::Leaf>, K::Error> {
        if merge.0.result.get().is_none() {
            self.flow(&merge.0.stream)?;
        }
        merge.0.result.get().cloned().ok_or_else(|| lost().into())
    }

    /// Does the work that was put off in some of the streams, in their order.
    pub(super) fn settle(&self, which: impl Fn(&Stream<K::Leaf>) -> bool) -> Result<(), K::Error> {
        let streams: Vec<_> =
            self.streams().iter().filter(|stream| which(stream)).cloned().collect();
        streams.iter().try_for_each(|stream| self.flow(stream))
    }

    /// Does the work that was put off in all streams.
    pub(super) fn settle_all(&self) -> Result<(), K::Error> {
        self.settle(|_| true)
    }

    /// Whether something is put off.
    pub(super) fn puts_off(&self) -> bool {
        !self.at_client && !self.streams().is_empty()
    }

    /// Does the work that has effects before other such work begins.
    pub(super) fn settle_effects(&self) -> Result<(), K::Error> {
        self.settle(|stream| stream.has_effects)
    }

    /// The value with what was put off in its place.
    pub(super) fn here(&self, value: Value<K::Leaf>) -> Result<Value<K::Leaf>, K::Error> {
        match &value {
            Value::Later(later) => Ok(Value::Each(self.all(later)?)),
            Value::Merge(merge) => self.merged(merge),
            Value::Struct(_) => rebuild(&value, |part| match part {
                Value::Later(later) => Ok(Value::Each(self.all(later)?)),
                Value::Merge(merge) => self.merged(merge),
                other => Ok(other.clone()),
            }),
            _ => Ok(value),
        }
    }

    fn streams(&self) -> MutexGuard<'_, Vec<Arc<Stream<K::Leaf>>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the work of a stream, unless it has been done.
    fn flow(&self, stream: &Arc<Stream<K::Leaf>>) -> Result<(), K::Error> {
        let at = {
            let mut streams = self.streams();
            let Some(at) = streams.iter().position(|other| Arc::ptr_eq(other, stream)) else {
                return Ok(());
            };
            streams.remove(at);
            at
        };
        let Some(calls) = stream.state().calls.take() else { return Ok(()) };
        let result = self.flow_once(stream, &calls);
        if result.is_err() {
            // What came after it isn't begun any more.
            self.streams().truncate(at);
        }
        result
    }

    fn flow_once(&self, stream: &Stream<K::Leaf>, calls: &Calls<K::Leaf>) -> Result<(), K::Error> {
        let (nodes, merges) = stream.waiting();
        let kept = held_elsewhere(nodes, &merges);
        let mut rows: Vec<Members<K::Leaf>> =
            kept.iter().map(|_| Vec::with_capacity(stream.clients)).collect();
        let mut merging = merges
            .iter()
            .map(|merge| Merging::new(self, &merge.how, &merge.ty))
            .collect::<Result<Vec<_>, _>>()?;
        let turn = self.turn(stream);
        let mut first = 0;
        while first < stream.clients {
            let range = first..stream.clients.min(first + turn);
            first = range.end;
            let given =
                Items::new(self.work(&stream.function, calls, range.clone(), 0, stream.map)?);
            let mut merge = || -> Result<(), K::Error> {
                let mut known = Known::default();
                for (merge, merging) in merges.iter().zip(&mut merging) {
                    let members = self.held(&merge.of, &given, &range, &mut known)?;
                    merging.add(self, &merge.ty, &members, range.start)?;
                }
                for (node, row) in kept.iter().zip(&mut rows) {
                    let members = self.of_node(node, &given, &range, &mut known)?;
                    row.extend(members.iter().cloned());
                }
                Ok(())
            };
            if let Err(error) = merge() {
                if !self.kernels.ends_all(&error) {
                    // All clients do their work before anything is made of it.
                    self.rest(stream, calls, first, turn)?;
                }
                return Err(error);
            }
        }
        for (merge, merging) in merges.iter().zip(merging) {
            let _ = merge.result.set(merging.finish(self, &merge.ty)?);
        }
        for (node, row) in kept.iter().zip(rows) {
            let _ = node.all.set(Items::new(row));
        }
        Ok(())
    }

    /// The work of the clients that are left, when nobody wants its results any more.
    fn rest(
        &self,
        stream: &Stream<K::Leaf>,
        calls: &Calls<K::Leaf>,
        mut first: usize,
        turn: usize,
    ) -> Result<(), K::Error> {
        while first < stream.clients {
            let range = first..stream.clients.min(first + turn);
            first = range.end;
            self.work(&stream.function, calls, range, 0, stream.map)?;
        }
        Ok(())
    }

    /// For how many clients work is done before it is merged.
    fn turn(&self, stream: &Stream<K::Leaf>) -> usize {
        let window = self.window(&stream.function);
        let turn = TURN.min(fitting(stream.bytes)).next_multiple_of(window);
        turn.saturating_mul(self.threads)
    }

    /// For how many clients a function runs at once. It depends on nothing but the function.
    pub(super) fn window(&self, function: &Function<K::Leaf>) -> usize {
        let Function::Compiled(compiled, ty) = function else { return 1 };
        let bytes = ty.as_function().and_then(|of| of.result.bytes());
        self.kernels.clients_at_once(compiled, ty).clamp(1, fitting(bytes))
    }

    /// What some clients hold of a federated value, or of a struct of such.
    fn held(
        &self,
        of: &Value<K::Leaf>,
        given: &Items<K::Leaf>,
        range: &Range<usize>,
        known: &mut Known<K::Leaf>,
    ) -> Result<Items<K::Leaf>, K::Error> {
        match of {
            Value::Later(later) => self.of_node(&later.0, given, range, known),
            Value::Each(members) => Ok(Items::new(members[range.clone()].to_vec())),
            Value::Everywhere(member) => Ok(Items::new(vec![member[0].clone(); range.len()])),
            Value::Struct(fields)
                if !fields.iter().any(|part| matches!(part, Value::Struct(_))) =>
            {
                let parts = fields.iter().map(|part| self.held(part, given, range, known));
                let parts = parts.collect::<Result<Vec<_>, _>>()?;
                let of_client = |at: usize| {
                    Value::structure(parts.iter().map(|part| part[at].clone()).collect())
                };
                Ok(Items::new((0..range.len()).map(of_client).collect()))
            }
            Value::Struct(_) => {
                let mut parts = Vec::new();
                rebuild(of, |part| {
                    parts.push(self.held(part, given, range, known)?);
                    Ok::<_, K::Error>(part.clone())
                })?;
                let of_client = |at: usize| {
                    let mut parts = parts.iter();
                    rebuild(of, |_| {
                        Ok::<_, K::Error>(parts.next().expect("as many as before")[at].clone())
                    })
                };
                Ok(Items::new((0..range.len()).map(of_client).collect::<Result<_, _>>()?))
            }
            other => Err(not_this("a federated value", other).into()),
        }
    }

    fn of_node(
        &self,
        node: &Arc<Node<K::Leaf>>,
        given: &Items<K::Leaf>,
        range: &Range<usize>,
        known: &mut Known<K::Leaf>,
    ) -> Result<Items<K::Leaf>, K::Error> {
        if let Some(all) = node.all.get() {
            return Ok(Items::new(all[range.clone()].to_vec()));
        }
        if let Some(found) = known.get(&node.address()) {
            return Ok(found.clone());
        }
        let made = match &node.what {
            What::Given => return Ok(given.clone()),
            What::Map(function, of) => {
                let calls = Calls::With(self.of_node(&of.0, given, range, known)?);
                let count = calls.len();
                // What may draw isn't put off twice.
                let made = self.work(function, &calls, 0..count, range.start, 0)?;
                Items::new(made)
            }
            What::Zip(of) => self.held(of, given, range, known)?,
        };
        known.insert(node.address(), made.clone());
        Ok(made)
    }
}

/// The nodes that others hold than these nodes and merges.
fn held_elsewhere<L>(nodes: Nodes<L>, merges: &[Arc<Merged<L>>]) -> Nodes<L> {
    let mut inside: FxHashMap<usize, usize> = FxHashMap::default();
    let mut count = |later: &Later<L>| *inside.entry(later.0.address()).or_default() += 1;
    for node in &nodes {
        match &node.what {
            What::Given => {}
            What::Map(_, of) => count(of),
            What::Zip(of) => drop(laters(of, &mut count)),
        }
    }
    merges.iter().for_each(|merge| drop(laters(&merge.of, &mut count)));
    // One more is that of `nodes`.
    let is_held = |node: &&Arc<Node<L>>| {
        Arc::strong_count(node) > 1 + inside.get(&node.address()).copied().unwrap_or(0)
    };
    let kept = nodes.iter().filter(is_held).cloned().collect();
    drop(nodes);
    kept
}

/// The one stream that what is in a struct of federated values comes from, and how deep it is; none, if nothing is put
/// off, or not all in the same one.
fn put_off<L: Clone>(of: &Value<L>) -> Option<(Arc<Stream<L>>, u32)> {
    let mut found: Option<(Arc<Stream<L>>, u32)> = None;
    let mut fits = true;
    let others = laters(of, &mut |later| {
        let Node { stream, depth, all, .. } = &*later.0;
        if all.get().is_some() {
            return;
        }
        match &mut found {
            Some((known, most)) if Arc::ptr_eq(known, stream) => *most = (*most).max(*depth),
            Some(_) => fits = false,
            None => found = Some((Arc::clone(stream), *depth)),
        }
    });
    let (stream, depth) = found?;
    let fits = fits
        && others.iter().all(|other| match other {
            Value::Each(members) => members.len() == stream.clients,
            Value::Everywhere(_) => true,
            _ => false,
        });
    fits.then_some((stream, depth))
}

/// Looks at what is put off in a struct; gives the rest of what is in it.
fn laters<'a, L>(of: &'a Value<L>, look: &mut dyn FnMut(&Later<L>)) -> Vec<&'a Value<L>> {
    let mut left = vec![of];
    let mut others = Vec::new();
    while let Some(value) = left.pop() {
        match value {
            Value::Later(later) => look(later),
            Value::Struct(fields) => left.extend(fields.iter()),
            other => others.push(other),
        }
    }
    others
}

/// How many results of so many bytes may be there at the same time.
fn fitting(bytes: Option<u64>) -> usize {
    (BYTES / bytes.unwrap_or(1).max(1)).max(1) as usize
}

fn lost() -> Error {
    Error::new(Class::Value, "the work that this comes from failed")
}

impl<L> Clone for Later<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L> Clone for Merge<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L> std::fmt::Debug for Later<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("later")
    }
}

impl<L> std::fmt::Debug for Merge<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("merge")
    }
}
