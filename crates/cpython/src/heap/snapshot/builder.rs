//! Taking a snapshot: which words say that the state is what it is.

use std::ffi::c_void;
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::asked::Told;
use super::tensors::{Kinds, Tensors};
use super::{Entry, Key, Snapshot, Wanted, Watch, WatchKind, Word};
use crate::heap::address::AddressMap;
use crate::heap::function::Field;
use crate::heap::member::Member;
use crate::heap::tensor::{INLINE_DIMENSIONS, Offsets};
use crate::heap::types::DictPlace;
use crate::heap::weak::Liveness;
use crate::heap::{
    Any, constant, container, dict, function, layout, member, tensor, thread_local, torch, types,
    witness, words,
};

/// Why a state can't be made a snapshot of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwatchable(pub &'static str);

/// Result of a builder's step.
pub type Result<T> = std::result::Result<T, Unwatchable>;

/// An object of a [`Builder`], proven alive by the words so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(usize);

struct NodeData<'py> {
    object: Bound<'py, PyAny>,
    /// Whether the words so far prove the object's layout.
    layout: bool,
    /// Index of the object's watch, if it's a dictionary or type with one.
    watch: Option<usize>,
    /// Whether it is a watched dictionary that must be empty.
    empty: bool,
    /// Whether the words so far say how long the list or tuple is.
    length: bool,
    /// Where the elements of the list are, if the words so far say so.
    items: Option<*const c_void>,
    /// The number of the tensor among [`Tensors`].
    tensor: Option<usize>,
}

/// Makes a [`Snapshot`] of the present state. Runs no Python code and allocates no Python objects.
///
/// Each step reads the present state itself, records the words that say so, and returns the node
/// it led to; a step that finds nothing to compare returns [`Unwatchable`].
pub struct Builder<'py> {
    py: Python<'py>,
    nodes: Vec<NodeData<'py>>,
    by_address: AddressMap<Node>,
    kinds: Kinds,
    snapshot: Snapshot,
    /// Whether dictionaries are watched; else their versions are words.
    watches: bool,
}

impl<'py> Builder<'py> {
    /// Nothing yet.
    #[must_use]
    pub fn new(py: Python<'py>, liveness: Arc<Liveness>) -> Self {
        Builder {
            py,
            nodes: Vec::new(),
            by_address: AddressMap::default(),
            kinds: Kinds::default(),
            watches: witness::can_watch(),
            snapshot: Snapshot {
                liveness,
                thread: None,
                arguments: 0,
                roots: Vec::new(),
                words: Vec::new(),
                tensors: Tensors::default(),
                watches: Vec::new(),
                versions: Vec::new(),
                told: Vec::new(),
                asked: Vec::new(),
                changes: Arc::default(),
                wanted: Vec::new(),
                owned: Vec::new(),
            },
        }
    }

    /// An argument, by identity.
    pub fn root(&mut self, index: usize, object: Any<'_, 'py>) -> Node {
        self.snapshot.roots.push((index, object.as_ptr()));
        self.node(object.to_owned(), false)
    }

    /// An object of the `Liveness`.
    pub fn anchor(&mut self, object: Any<'_, 'py>) -> Result<Node> {
        if !self.snapshot.liveness.holds(object) {
            return Err(Unwatchable("an object that isn't held"));
        }
        Ok(self.node(object.to_owned(), false))
    }

    /// `sys.modules`.
    pub fn modules(&mut self) -> Result<Node> {
        let modules = dict::modules(self.py).ok_or(Unwatchable("no modules"))?;
        self.snapshot.owned.push(modules.clone().unbind());
        Ok(self.node(modules, false))
    }

    /// The object of a node.
    #[must_use]
    pub fn object(&self, node: Node) -> Any<'_, 'py> {
        self.nodes[node.0].object.as_borrowed()
    }

    fn node(&mut self, object: Bound<'py, PyAny>, layout: bool) -> Node {
        let next = Node(self.nodes.len());
        let node = *self.by_address.entry(object.as_ptr() as usize).or_insert(next);
        if node == next {
            self.nodes.push(NodeData {
                object,
                layout,
                watch: None,
                empty: false,
                length: false,
                items: None,
                tensor: None,
            });
        } else {
            self.nodes[node.0].layout |= layout;
        }
        node
    }

    fn address(&self, node: Node) -> *mut ffi::PyObject {
        self.nodes[node.0].object.as_ptr()
    }

    /// Records the word at `offset` from `base`, as it is.
    ///
    /// # Safety
    /// The words so far prove that `base` is alive and that `offset` is a field of it.
    unsafe fn word(&mut self, base: *const c_void, offset: isize) -> u64 {
        // SAFETY: passed on to the caller.
        let at = unsafe { base.cast::<u8>().offset(offset).cast::<u64>() };
        // SAFETY: likewise.
        let want = unsafe { at.read() };
        self.snapshot.words.push(Word { at, want });
        want
    }

    /// Records a field that holds an object or null, and the node it leads to.
    ///
    /// # Safety
    /// As for [`Builder::word`], and the field is a counted object pointer.
    unsafe fn field_word(&mut self, base: *const c_void, offset: isize) -> Option<Node> {
        // SAFETY: passed on to the caller.
        unsafe {
            let value = self.word(base, offset) as *mut ffi::PyObject;
            let value = Bound::from_borrowed_ptr_or_opt(self.py, value)?;
            Some(self.node(value, false))
        }
    }

    /// Records that the object's type is what it is, and so its layout.
    pub fn exact_type(&mut self, node: Node) -> Result<()> {
        if self.nodes[node.0].layout {
            return Ok(());
        }
        let object = self.address(node);
        let ty = self.nodes[node.0].object.get_type();
        // SAFETY: the node is proven alive; every object has a type.
        unsafe { self.word(object.cast(), layout::TYPE as isize) };
        if !self.is_lasting(&ty) {
            let ty_node = self.node(ty.clone().into_any(), true);
            self.watch_type(ty_node, WatchKind::Version)?;
        }
        self.nodes[node.0].layout = true;
        Ok(())
    }

    /// Whether no other type will have this one's address.
    fn is_lasting(&self, ty: &Bound<'py, PyType>) -> bool {
        !types::is_heap(ty.as_borrowed()) || self.snapshot.liveness.holds(ty.as_any().as_borrowed())
    }

    /// The object's type.
    pub fn type_of(&mut self, node: Node) -> Result<Node> {
        let object = self.address(node);
        // Also where the layout follows from the slot: the type itself is asked for here.
        // SAFETY: the node is proven alive; every object has a type, and an object's type is a
        // type. (The layout of a type that may be reused is settled by its own watch.)
        unsafe { self.word(object.cast(), layout::TYPE as isize) };
        let ty = self.nodes[node.0].object.get_type();
        Ok(self.node(ty.into_any(), true))
    }

    /// The instance dictionary; `None` if objects of this type have none.
    pub fn instance_dict(&mut self, node: Node) -> Result<Option<Node>> {
        self.exact_type(node)?;
        let object = self.address(node);
        // SAFETY: the layout is proven; the type says where the dictionary is.
        let place = unsafe { types::dict_place(words::type_of(object)) };
        match place {
            DictPlace::None => Ok(self.thread_dict(node)),
            DictPlace::Variable => Err(Unwatchable("an instance of variable size")),
            // It is the class's for good.
            DictPlace::At(_) if let Some(dict) = types::interpreters_dict(self.object(node)) => {
                self.snapshot.owned.push(dict.clone().unbind());
                Ok(Some(self.node(dict, false)))
            }
            DictPlace::At(offset) => {
                let missing = Unwatchable("an instance dictionary not made yet");
                if matches!(dict::peek_instance_dict(self.object(node)), dict::Peek::NotYet) {
                    return Err(missing);
                }
                // SAFETY: as above; the slot owns a dictionary.
                let dict = unsafe { self.field_word(object.cast(), offset) };
                let dict = dict.ok_or(missing)?;
                self.nodes[dict.0].layout |= !dict::is_ordered_dict(self.object(dict));
                Ok(Some(dict))
            }
        }
    }

    /// The attributes of a `threading.local` in this thread. The snapshot is of this thread then: in no other is there the
    /// same dictionary, and in this one there is no other while the object lives.
    fn thread_dict(&mut self, node: Node) -> Option<Node> {
        let dict = thread_local::dict_of(self.object(node))?;
        self.snapshot.thread = Some(thread_local::thread(self.py));
        Some(self.node(dict.into_any(), true))
    }

    /// Takes note of a dictionary that may change, once, and returns its watch.
    fn watch_dict(&mut self, node: Node) -> Result<usize> {
        if let Some(watch) = self.nodes[node.0].watch {
            return Ok(watch);
        }
        if !dict::is_dict(self.object(node)) {
            return Err(Unwatchable("not a dictionary"));
        }
        self.exact_type(node)?;
        let watch = self.watch(node, WatchKind::Dict);
        if self.watches {
            self.tell(node, Some(watch));
        } else {
            self.version_word(node, watch, layout::DICT_VERSION);
        }
        Ok(watch)
    }

    /// A dictionary of whose changes CPython is to tell.
    fn tell(&mut self, node: Node, watch: Option<usize>) {
        let object = self.object(node);
        let told = Told {
            object: object.as_ptr(),
            object_type: types::address_of(object),
            before: self.snapshot.words.len(),
            watch,
            version: dict::version(object),
            is_subscribed: false,
            changes: 0,
            calm: 0,
        };
        self.snapshot.told.push(told);
    }

    fn watch_type(&mut self, node: Node, kind: WatchKind) -> Result<usize> {
        let held = self.snapshot.liveness.holds(self.object(node));
        if let Some(watch) = self.nodes[node.0].watch {
            return Ok(watch);
        }
        let object = self.object(node);
        let ty = object.cast::<PyType>().map_err(|_| Unwatchable("not a type"))?;
        if !types::assign_version(ty) {
            return Err(Unwatchable("a type without a version"));
        }
        let kind = if held || !types::is_heap(ty) { WatchKind::Type } else { kind };
        self.exact_type(node)?;
        let watch = self.watch(node, kind);
        self.version_word(node, watch, layout::TYPE_VERSION);
        Ok(watch)
    }

    fn watch(&mut self, node: Node, kind: WatchKind) -> usize {
        let object = self.address(node);
        let watch = self.snapshot.watches.len();
        self.snapshot.watches.push(Watch {
            object,
            object_type: types::address_of(self.object(node)),
            entries: Vec::new(),
            order: None,
            length: None,
            kind,
        });
        self.nodes[node.0].watch = Some(watch);
        watch
    }

    fn version_word(&mut self, node: Node, watch: usize, offset: usize) {
        self.snapshot.versions.push((self.snapshot.words.len(), watch));
        // SAFETY: a dictionary or type whose layout is proven.
        unsafe { self.word(self.address(node).cast(), offset as isize) };
        if !self.snapshot.watches[watch].kind.is_told(self.object(node))
            && let Some(word) = self.snapshot.words.last_mut()
        {
            word.want = dict::UNTOLD;
        }
    }

    /// Records what a key of a dictionary leads to; `None` where it's absent.
    pub fn dict_item(&mut self, node: Node, key: Any<'_, 'py>) -> Result<Option<Node>> {
        let watch = self.watch_dict(node)?;
        let value = match dict::get(self.object(node), key) {
            dict::Lookup::Found(value) => Some(value),
            dict::Lookup::Absent => None,
            dict::Lookup::Refused => return Err(Unwatchable("a key that can't be looked up")),
        };
        let valued = dict::valued_key(self.object(node), key);
        let key = self.key(key)?;
        let found = self.entry(watch, key, None, value);
        if let Some(valued) = valued {
            self.equality(&valued.get_type())?;
        }
        Ok(found)
    }

    /// Records what a dictionary holds under a hash: the value, or the key; `None` where there is nothing.
    pub fn hashed_item(&mut self, node: Node, hash: isize, is_key: bool) -> Result<Option<Node>> {
        let watch = self.watch_dict(node)?;
        let key = if is_key { Key::StoredAt(hash) } else { Key::Hash(hash) };
        let found = match key.look_up(self.object(node), &self.snapshot.liveness) {
            dict::Lookup::Found(found) => Some(found),
            dict::Lookup::Absent => None,
            dict::Lookup::Refused => return Err(Unwatchable("keys of one hash")),
        };
        Ok(self.entry(watch, key, None, found))
    }

    /// Records how objects of a class are hashed and compared.
    fn equality(&mut self, class: &Bound<'py, PyType>) -> Result<()> {
        let class = self.anchor(class.as_any().as_borrowed())?;
        for name in ["__hash__", "__eq__"] {
            let name = PyString::intern(self.py, name);
            self.lookup(class, None, name.as_any().as_borrowed())?;
        }
        Ok(())
    }

    /// Records the keys of a dictionary in order.
    pub fn dict_order(&mut self, node: Node) -> Result<()> {
        let watch = self.watch_dict(node)?;
        let keys = dict::keys(self.object(node)).ok_or(Unwatchable("keys in disorder"))?;
        for key in &keys {
            if let Key::Constant(key) = self.key(key.as_borrowed())? {
                self.snapshot.owned.push(key);
            }
        }
        let order = keys.iter().map(|key| key.as_ptr() as usize).collect();
        self.snapshot.watches[watch].order = Some(order);
        if dict::is_ordered_dict(self.object(node)) {
            let object = self.address(node);
            // SAFETY: an ordered dictionary whose layout is proven by its type word (an instance
            // dictionary that is an `OrderedDict` isn't taken as proven by its slot).
            unsafe { self.word(object.cast(), layout::ODICT_STATE as isize) };
        }
        Ok(())
    }

    /// Records the number of entries of a dictionary.
    pub fn dict_length(&mut self, node: Node) -> Result<()> {
        let watch = self.watch_dict(node)?;
        self.snapshot.watches[watch].length = dict::length(self.object(node));
        Ok(())
    }

    /// Records that an object is an empty `dict` or `OrderedDict`: one word at most, which says so again
    /// whatever happened to it in between.
    pub fn empty_dict(&mut self, node: Node) -> Result<()> {
        let object = self.object(node);
        if !dict::is_plain_empty(object) {
            return Err(Unwatchable("not an empty dictionary"));
        }
        self.exact_type(node)?;
        match self.nodes[node.0].watch {
            Some(watch) => self.snapshot.watches[watch].length = Some(0),
            None if self.watches => {
                if !std::mem::replace(&mut self.nodes[node.0].empty, true) {
                    self.tell(node, None);
                }
            }
            None => {
                let object = self.address(node);
                // SAFETY: a dictionary whose layout is proven.
                unsafe { self.word(object.cast(), layout::DICT_USED as isize) };
            }
        }
        Ok(())
    }

    /// Keys that aren't constants are found by identity: they mustn't be kept alive here.
    fn key(&self, key: Any<'_, 'py>) -> Result<Key> {
        if constant::is_constant(key) {
            Ok(Key::Constant(key.to_owned().unbind()))
        } else if self.snapshot.liveness.holds(key) {
            Ok(Key::Held(key.as_ptr() as usize))
        } else {
            Err(Unwatchable("a key that isn't held"))
        }
    }

    fn entry(
        &mut self,
        watch: usize,
        key: Key,
        after: Option<Key>,
        value: Option<Bound<'py, PyAny>>,
    ) -> Option<Node> {
        let (pointer, ty) = match &value {
            Some(value) => (value.as_ptr(), types::address_of(value.as_borrowed())),
            None => (std::ptr::null_mut(), 0),
        };
        self.snapshot.watches[watch].entries.push(Entry {
            key,
            after,
            value: pointer,
            value_type: ty as *mut ffi::PyTypeObject,
        });
        let value = value?;
        let fixed = types::is_fixed_for(value.as_borrowed());
        Some(self.node(value, fixed))
    }

    /// Records what a lookup of a name in a type finds, with `after` behind that class only.
    pub fn lookup(
        &mut self,
        node: Node,
        after: Option<Any<'_, 'py>>,
        name: Any<'_, 'py>,
    ) -> Result<Option<Node>> {
        let watch = self.watch_type(node, WatchKind::Version)?;
        let object = self.object(node);
        let ty = object.cast::<PyType>().map_err(|_| Unwatchable("not a type"))?;
        let found = match after {
            None => types::lookup(ty, name),
            Some(after) => types::lookup_after(ty, after, name),
        };
        let (key, after) = (self.key(name)?, after.map(|after| self.key(after)).transpose()?);
        Ok(self.entry(watch, key, after, found))
    }

    /// Records the length of a list.
    pub fn list_length(&mut self, node: Node) -> Result<usize> {
        self.exact_type(node)?;
        let length = container::list_length(self.object(node)).ok_or(Unwatchable("not a list"))?;
        self.size_word(node);
        Ok(length)
    }

    /// Records an element of a list.
    pub fn list_item(&mut self, node: Node, index: usize) -> Result<Node> {
        if index >= self.list_length(node)? {
            return Err(Unwatchable("a list too short"));
        }
        // SAFETY: a list whose layout is proven; the words say where its elements are and that
        // there are enough of them.
        let item = unsafe {
            let items = match self.nodes[node.0].items {
                Some(items) => items,
                None => self.word(self.address(node).cast(), layout::LIST_ITEMS as isize)
                    as *const c_void,
            };
            self.nodes[node.0].items = Some(items);
            self.field_word(items, (index * size_of::<usize>()) as isize)
        };
        item.ok_or(Unwatchable("a list being filled"))
    }

    /// Records the length of a tuple.
    pub fn tuple_length(&mut self, node: Node) -> Result<usize> {
        self.exact_type(node)?;
        let length =
            container::tuple_length(self.object(node)).ok_or(Unwatchable("not a tuple"))?;
        self.size_word(node);
        Ok(length)
    }

    fn size_word(&mut self, node: Node) {
        if !std::mem::replace(&mut self.nodes[node.0].length, true) {
            // SAFETY: a list or tuple whose layout is proven.
            unsafe { self.word(self.address(node).cast(), layout::SIZE as isize) };
        }
    }

    /// Records an element of a tuple.
    pub fn tuple_item(&mut self, node: Node, index: usize) -> Result<Node> {
        if index >= self.tuple_length(node)? {
            return Err(Unwatchable("a tuple too short"));
        }
        let offset = layout::TUPLE_ITEMS + index * size_of::<usize>();
        // SAFETY: a tuple whose layout is proven, with enough elements.
        let item = unsafe { self.field_word(self.address(node).cast(), offset as isize) };
        item.ok_or(Unwatchable("a tuple being filled"))
    }

    /// Records a `__slots__` member; `None` where it's unset.
    pub fn member(&mut self, node: Node, member: &Member) -> Result<Option<Node>> {
        if !matches!(member.read(self.object(node)), member::Read::Value(_) | member::Read::Unset) {
            return Err(Unwatchable("no such member"));
        }
        self.exact_type(node)?;
        // SAFETY: the layout is proven, and `read` says the type has the member.
        Ok(unsafe { self.field_word(self.address(node).cast(), member.offset() as isize) })
    }

    /// Records that a tensor has no hooks.
    pub fn no_hooks(&mut self, node: Node) -> Result<()> {
        if tensor::has_hooks(self.object(node)) != Some(false) {
            return Err(Unwatchable("a tensor with hooks"));
        }
        self.exact_type(node)?;
        for offset in tensor::hook_slots(self.py).into_iter().flatten() {
            // SAFETY: the layout is proven, and such objects have these fields.
            unsafe { self.field_word(self.address(node).cast(), offset as isize) };
        }
        Ok(())
    }

    /// Records a field of a function or the like; `None` where it's empty.
    pub fn field(&mut self, node: Node, field: Field) -> Result<Option<Node>> {
        if matches!(function::read(self.object(node), field), function::Read::NoField) {
            return Err(Unwatchable("no such field"));
        }
        self.exact_type(node)?;
        // SAFETY: the layout is proven, and `read` says the object has the field.
        Ok(unsafe { self.field_word(self.address(node).cast(), field.offset() as isize) })
    }

    /// Records which descriptor a bound method of a C type was made from.
    pub fn made_from(&mut self, node: Node) -> Result<()> {
        if !function::is_native_method(self.object(node)) {
            return Err(Unwatchable("no method of a C type"));
        }
        self.exact_type(node)?;
        // SAFETY: the layout is proven: a C function's definition, or a slot's descriptor.
        unsafe { self.word(self.address(node).cast(), layout::METHOD_FUNC as isize) };
        Ok(())
    }

    /// Records that the object is the leaf it is: immutable, and kept by the snapshot so that its
    /// address stays its own.
    pub fn own(&mut self, node: Node) -> Result<()> {
        if !constant::is_constant(self.object(node)) {
            return Err(Unwatchable("not a constant"));
        }
        self.snapshot.owned.push(self.nodes[node.0].object.clone().unbind());
        Ok(())
    }

    /// Records a tensor's metadata, except sizes and strides where `dynamic_*` says so.
    pub fn tensor(
        &mut self,
        node: Node,
        dynamic_size: impl Fn(usize) -> bool,
        dynamic_stride: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let torch = torch::get(self.py).ok_or(Unwatchable("a tensor without PyTorch"))?;
        let unknown = Unwatchable("a tensor of unknown layout");
        let offsets = torch.offsets.as_ref().ok_or(unknown)?;
        if tensor::impl_address(self.object(node)).is_none() {
            return Err(Unwatchable("not a tensor"));
        }
        let object = self.address(node);
        if self.is_lasting(&self.nodes[node.0].object.get_type()) {
            let (tensors, kinds) = (&mut self.snapshot.tensors, &mut self.kinds);
            // SAFETY: a live tensor; its fields are at the verified offsets.
            let number =
                unsafe { tensors.push(kinds, object, offsets, &dynamic_size, &dynamic_stride) };
            if number.is_some() {
                self.nodes[node.0].tensor = number;
                return Ok(());
            }
        }
        self.exact_type(node)?;
        // SAFETY: a tensor whose Python layout is proven owns a `TensorImpl`, whose fields are at
        // the verified offsets and which owns its `AutogradMeta`; the number of dimensions is
        // compared before the sizes, a pointer before what it points to.
        unsafe {
            let implementation = self.word(object.cast(), offsets.cdata as isize) as *const c_void;
            self.word(implementation, offsets.key_set as isize);
            self.word(implementation, offsets.dtype as isize);
            let count = self.word(implementation, offsets.sizes as isize) as usize;
            self.dimensions(implementation, offsets, count, dynamic_size, dynamic_stride);
            let meta = self.word(implementation, offsets.autograd_meta as isize) as *const c_void;
            if !meta.is_null() && self.word(meta, offsets.requires_grad as isize) & 0xff == 0 {
                self.word(meta, offsets.grad_fn as isize);
            }
        }
        Ok(())
    }

    /// # Safety
    /// A live `TensorImpl` with `count` dimensions, both already compared.
    unsafe fn dimensions(
        &mut self,
        implementation: *const c_void,
        offsets: &Offsets,
        count: usize,
        dynamic_size: impl Fn(usize) -> bool,
        dynamic_stride: impl Fn(usize) -> bool,
    ) {
        let inline = (offsets.sizes + 8) as isize;
        // SAFETY: passed on to the caller; see `SizesAndStrides`.
        unsafe {
            let (base, start, half) = if count <= INLINE_DIMENSIONS {
                (implementation, inline, INLINE_DIMENSIONS)
            } else {
                (self.word(implementation, inline) as *const c_void, 0, count)
            };
            for index in 0..count {
                if !dynamic_size(index) {
                    self.word(base, start + 8 * index as isize);
                }
                if !dynamic_stride(index) {
                    self.word(base, start + 8 * (half + index) as isize);
                }
            }
        }
    }

    /// Asks for an argument among the objects that a check gives.
    pub fn want_argument(&mut self, index: usize) {
        self.snapshot.arguments = self.snapshot.arguments.max(index + 1);
        self.snapshot.wanted.push(Wanted::Argument(index));
    }

    /// Asks for a node among the objects that a check gives.
    pub fn want(&mut self, node: Node) {
        let object = self.address(node);
        let tensor = self.nodes[node.0].tensor;
        let is_first = tensor.is_some_and(|number| self.snapshot.tensors.want(number));
        let wanted = if is_first { Wanted::Tensor(object) } else { Wanted::Object(object) };
        self.snapshot.wanted.push(wanted);
    }

    /// The snapshot.
    #[must_use]
    pub fn finish(mut self) -> Snapshot {
        let snapshot = &mut self.snapshot;
        for (told, number) in snapshot.told.iter_mut().zip(0..) {
            // SAFETY: the node still owns it.
            let object = unsafe { Any::from_ptr(self.py, told.object) };
            told.is_subscribed = witness::watch(object, &snapshot.changes, number);
            snapshot.asked.push(number);
        }
        self.snapshot
    }
}
