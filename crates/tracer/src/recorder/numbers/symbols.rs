//! Symbolic numbers: ints and floats that may differ from call to call.
//!
//! In Python such a number is an exact int or float of its own, known by its address: it goes through
//! containers, calls and real operations as the number it is. What computes with it is executed, and
//! gives another one. Who reads its value natively has to say so first ([`State::specialise`]): from
//! then on the trace is for this value.
//!
//! A number becomes a node of the graph when an operation or the result needs it there.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use stator_cpython::generic;
use stator_cpython::heap::container::{exchange_tuple_item, tuple_item};
use stator_cpython::object::{Borrowed, Object};
use stator_graph::{Arg, NodeId, StackId, Target, Value as NodeValue};
use stator_guards::{GuardKind, SourceId};
use stator_shapes::{Cmp, CondId, Duck, ExprId, FloatId, SIZE_LIMIT, SymbolId};

use crate::recorder::notes::heap;
use crate::recorder::notes::state::{Origin, State};
use crate::recorder::notes::symbols::{
    Made, Marked, Number, NumberId, Operand, Sizes, Symbols, TensorKey,
};
use crate::symbolic::{Part, Slot};

/// New lists and tuples with numbers of their own, and what is to stand there.
#[derive(Default)]
pub struct PlainLists<'py> {
    items: Vec<PlainItem<'py>>,
    /// The tuples and lists that were looked into, by address.
    seen: FxHashSet<usize>,
}

struct PlainItem<'py> {
    container: Object<'py>,
    index: usize,
    held: Object<'py>,
    plain: Object<'py>,
}

impl PlainLists<'_> {
    /// Puts plain numbers where those of the trace's own still stand. A tuple stays the object that it is, because it may
    /// be held elsewhere, too.
    ///
    /// # Errors
    /// None, as long as the lists are as long as they were.
    pub fn settle(&self) -> PyResult<()> {
        for PlainItem { container, index, held, plain } in &self.items {
            if let Ok(list) = container.cast_exact::<PyList>() {
                if list.get_item(*index)?.is(held) {
                    list.set_item(*index, plain)?;
                }
            } else if tuple_item(container.as_borrowed(), *index).is_some_and(|now| now.is(held)) {
                exchange_tuple_item(container.as_borrowed(), *index, plain.clone());
            }
        }
        Ok(())
    }
}

impl State {
    /// The symbols, begun if there are none yet.
    pub fn begin_symbols(&mut self, py: Python<'_>) -> &mut Symbols {
        if self.symbols.is_none() {
            self.symbols = Some(Box::default());
            self.take_sizes_apart(py);
        }
        self.symbols.as_mut().expect("just begun")
    }

    /// Whether there are symbols.
    #[inline]
    pub fn has_symbols(&self) -> bool {
        self.symbols.is_some()
    }

    /// Whether objects may be met that this trace, or one before it in this call, made for numbers.
    pub fn has_numbers_of_its_own(&self) -> bool {
        self.has_symbols() || !self.policy.has_no_plain()
    }

    /// The symbolic number that an object is; not if facts leave one value only.
    pub fn number(&mut self, object: Borrowed<'_, '_>) -> Option<NumberId> {
        let symbols = self.symbols.as_mut()?;
        let id = *symbols.known.get(&(object.as_ptr() as usize))?;
        symbols.is_open(id).then_some(id)
    }

    /// The object that stands for an outside number.
    pub fn stand_in<'py>(&self, py: Python<'py>, source: SourceId) -> Option<Object<'py>> {
        let symbols = self.symbols.as_ref()?;
        if let Some(copy) = symbols.copies.get(&source) {
            return Some(copy.bind(py).clone());
        }
        let id = symbols.outside.get(&source)?;
        Some(symbols.entry(*id).object.bind(py).clone())
    }

    /// Whether an object is one that this trace made for a number, fixed by now or not.
    pub fn has_own_object(&self, object: Borrowed<'_, '_>) -> bool {
        let address = object.as_ptr() as usize;
        self.symbols.as_ref().is_some_and(|symbols| symbols.known.contains_key(&address))
    }

    /// The address of the object that plain Python would have in a stand-in's place; others stand for themselves.
    pub fn stands_for(&self, object: Borrowed<'_, '_>) -> usize {
        self.original(object).map_or(object.as_ptr() as usize, |found| found.as_ptr() as usize)
    }

    /// The object that plain Python would have in a stand-in's place: one from outside, or the operand that was the result.
    /// `None`: the object is no stand-in, or a number of no other object's.
    fn original(&self, object: Borrowed<'_, '_>) -> Option<&Py<PyAny>> {
        let mut address = object.as_ptr() as usize;
        let mut found = self.policy.plain_of(object);
        let Some(symbols) = self.symbols.as_ref() else { return found };
        if let Some(original) = symbols.originals.get(&address) {
            return Some(original);
        }
        // Each operand was there before what was computed from it.
        while let Some(id) = symbols.known.get(&address) {
            let entry = symbols.entry(*id);
            match (&entry.outside, &entry.operand) {
                (Some(outside), _) => return Some(outside),
                (None, Some(operand)) => {
                    found = Some(operand);
                    address = operand.as_ptr() as usize;
                }
                (None, None) => break,
            }
        }
        found
    }

    /// A number or text of the trace's own is what plain Python finds as an object from outside.
    pub(in crate::recorder) fn stands_in_for(&mut self, own: Borrowed<'_, '_>, found: &Object<'_>) {
        if let Some(symbols) = self.symbols.as_mut() {
            symbols.originals.insert(own.as_ptr() as usize, found.clone().unbind());
        }
    }

    /// What is computed is this operand itself, as CPython computes it.
    pub fn is_operand(&mut self, own: Borrowed<'_, '_>, operand: Borrowed<'_, '_>) {
        let Some(symbols) = self.symbols.as_mut() else { return };
        let known = |object: Borrowed<'_, '_>| symbols.known.get(&(object.as_ptr() as usize));
        let (Some(&id), of) = (known(own), known(operand)) else { return };
        // A number that was there already isn't made of this one.
        if of.is_none_or(|of| *of < id) {
            symbols.entry_mut(id).operand = Some(operand.to_owned().unbind());
        }
    }

    /// The object that a number of its own is for everybody else; `None`: the object is no such number, or nobody has
    /// another one.
    pub fn plain<'py>(&self, object: &Object<'py>) -> Option<Object<'py>> {
        let py = object.py();
        let found = self.original(object.as_borrowed()).map(|found| found.bind(py).clone());
        let is_own = || self.has_own_object(object.as_borrowed());
        match found {
            Some(found) => Some(generic::shared_int(found.as_borrowed()).unwrap_or(found)),
            None if is_own() => generic::shared_int(object.as_borrowed()),
            None => None,
        }
    }

    /// As [`State::plain`], also of what new tuples and lists hold. These are changed by who gets
    /// `plain`, once the trace is complete.
    pub fn plain_result<'py>(
        &self,
        object: &Object<'py>,
        plain: &mut PlainLists<'py>,
    ) -> Option<Object<'py>> {
        if !self.has_numbers_of_its_own() {
            return None;
        }
        let is_list = object.is_exact_instance_of::<PyList>();
        if !is_list && !heap::is_plain_tuple(object.as_borrowed())
            || self.origin(object.as_borrowed()) != Some(Origin::Fresh)
        {
            return self.plain(object);
        }
        if !plain.seen.insert(object.as_ptr() as usize) {
            return None;
        }
        for (index, held) in heap::children(object.as_borrowed()).into_iter().enumerate() {
            if let Some(item) = self.plain_result(&held, plain) {
                let container = object.clone();
                plain.items.push(PlainItem { container, index, held, plain: item });
            }
        }
        None
    }

    /// Gives an object of its own to a number that was computed or read.
    pub fn own_number<'py>(
        &mut self,
        value: Borrowed<'_, 'py>,
        number: Number,
        made: Made,
    ) -> Object<'py> {
        let py = value.py();
        let stack = self.here_stack();
        let Some(symbols) = self.symbols.as_mut() else { return value.to_owned() };
        if !symbols.is_open_number(number) {
            return value.to_owned();
        }
        if let Number::Integer(expr) = number
            && symbols.is_data_sized(expr)
        {
            return symbols.insert_data_size(py, expr, made, stack).0;
        }
        let own = symbols.own_object(py, number);
        symbols.insert(&own, number, made, stack, None);
        own
    }

    /// Takes an outside number as a symbol; the object that stands for it.
    pub fn adopt_number<'py>(
        &mut self,
        source: SourceId,
        value: Borrowed<'_, 'py>,
        keeps: bool,
    ) -> Object<'py> {
        let py = value.py();
        let name = self.sources.print(source);
        let stack = self.here_stack();
        let plain = self.policy.plain_of(value).map(|plain| plain.clone_ref(py));
        self.objects.intern(value);
        let symbols = self.begin_symbols(py);
        let (number, part) = match value.extract::<i64>() {
            Ok(hint) if !value.is_exact_instance_of::<pyo3::types::PyFloat>() => {
                let symbol = symbols.context.int_symbol(hint);
                (Number::Integer(symbol.expr), Part::Integer)
            }
            _ => {
                let hint = value.extract::<f64>().unwrap_or(f64::NAN);
                let (_, float) = symbols.context.float_symbol(hint);
                (Number::Float(float), Part::Float)
            }
        };
        let own = if keeps { value.to_owned() } else { symbols.own_object(py, number) };
        symbols.add_slot(Slot { source, part }, name, true);
        let outside = Some(plain.unwrap_or_else(|| value.to_owned().unbind()));
        let id = symbols.insert(&own, number, Made::Outside(source), stack, outside);
        symbols.outside.insert(source, id);
        self.guard_type(source, value);
        self.log_facts(py);
        own
    }

    /// A symbol for a size or stride of an outside tensor.
    pub fn adopt_dimension(
        &mut self,
        py: Python<'_>,
        source: SourceId,
        part: Part,
        hint: i64,
        range: (i64, i64),
        ducks: bool,
    ) -> (SymbolId, ExprId) {
        let name = part.print(self.sources.print(source));
        let symbols = self.begin_symbols(py);
        let is_size = matches!(part, Part::Size(_));
        let symbol = symbols.context.symbol(hint, range, (ducks && is_size).then_some(Duck::SIZE));
        let is_own = symbols.context.as_symbol(symbol.expr) == Some(symbol.id);
        symbols.add_slot(Slot { source, part }, name, is_own && is_size);
        self.log_facts(py);
        (symbol.id, symbol.expr)
    }

    /// A user wants this symbol to stay one.
    pub fn mark_symbol(&mut self, symbol: SymbolId, expr: ExprId) {
        let Some(symbols) = self.symbols.as_mut() else { return };
        let name = symbols.names[symbol.index()].clone();
        symbols.marked.push(Marked { expr, name, fixed: None });
    }

    /// A user wanted a symbol where there can't be one.
    pub fn refuse_mark(&mut self, py: Python<'_>, source: SourceId, index: usize, why: &str) {
        let name = format!("{}.size()[{index}]", self.sources.print(source));
        let symbols = self.begin_symbols(py);
        let expr = symbols.context.constant(0);
        symbols.marked.push(Marked { expr, name, fixed: Some(why.to_string()) });
    }

    /// From here on the trace is for the value that a number has now.
    pub fn specialise(&mut self, py: Python<'_>, id: NumberId, why: &str) {
        let Some(symbols) = self.symbols.as_mut() else { return };
        if !symbols.is_open(id) {
            return;
        }
        let number = symbols.entry(id).number;
        if self.refuses_to_fix(number, why) {
            return;
        }
        let symbols = self.symbols.as_mut().expect("there is a number");
        match number {
            Number::Integer(expr) => drop(symbols.context.specialize(expr)),
            Number::Float(float) => self.fix_float(py, float),
            Number::Read(_) => unreachable!("what is read can't be fixed"),
        }
        self.log_specialised(py, why);
    }

    /// Fixes a float, bit by bit: zeros have signs. Those from outside that it was computed from are
    /// fixed with it.
    fn fix_float(&mut self, py: Python<'_>, float: FloatId) {
        let symbols = self.symbols.as_mut().expect("there is a float");
        let context = &mut symbols.context;
        let value = context.float_hint(float);
        let same = context.float_is(float, value);
        let within = context.symbols_in(same);
        let mut fixed = Vec::new();
        for entry in &symbols.entries {
            if let (Number::Float(own), Made::Outside(source)) = (entry.number, &entry.made)
                && context.as_float_constant(own).is_none()
            {
                let hint = context.float_hint(own);
                let is = context.float_is(own, hint);
                if context.symbols_in(is).iter().all(|symbol| within.contains(symbol)) {
                    context.specialize_float(own);
                    fixed.push((*source, entry.object.clone_ref(py)));
                }
            }
        }
        context.specialize_float(float);
        for (source, object) in fixed {
            let object = self.object(object.bind_borrowed(py));
            self.guard(source, GuardKind::Equals(object));
        }
    }

    /// As [`State::specialise`], of an expression.
    pub fn specialise_expr(&mut self, py: Python<'_>, expr: ExprId, why: &str) {
        if self.refuses_to_fix(Number::Integer(expr), why) {
            return;
        }
        let Some(symbols) = self.symbols.as_mut() else { return };
        if symbols.context.as_constant(expr).is_none() {
            symbols.context.specialize(expr);
            self.log_specialised(py, why);
        }
    }

    /// The answer that a condition has in this call; a guard says that it is the same in others.
    pub fn decide(&mut self, py: Python<'_>, condition: CondId) -> bool {
        let symbols = self.symbols.as_mut().expect("conditions are about symbols");
        let answer = symbols.context.evaluate(condition).value();
        self.log_facts(py);
        answer
    }

    /// The expression of a number.
    pub fn number_of(&self, id: NumberId) -> Number {
        self.symbols.as_ref().expect("a number of this trace").entry(id).number
    }

    /// Whether an object is a number that varies, and surely none that `len` refuses.
    pub fn is_length(&mut self, object: Borrowed<'_, '_>) -> bool {
        let Some(id) = self.number(object) else { return false };
        let Number::Integer(expr) = self.number_of(id) else { return false };
        let symbols = self.symbols.as_mut().expect("a number of this trace");
        symbols.context.interval(expr).lo >= 0
    }

    /// The node of a number.
    pub fn number_node(&mut self, id: NumberId) -> NodeId {
        let symbols = self.symbols.as_ref().expect("a number of this trace");
        let entry = symbols.entry(id);
        if let Some(node) = entry.node {
            return node;
        }
        let (made, stack) = (entry.made.clone(), entry.stack);
        let value = match entry.number {
            Number::Integer(_) | Number::Read(false) => NodeValue::Integer,
            Number::Float(_) | Number::Read(true) => NodeValue::Float,
        };
        let node = match made {
            Made::Outside(source) => {
                let node = self.graph.unnamed_placeholder(value);
                self.inputs.add(source, node);
                node
            }
            Made::Drawn(slot) => self.drawn_input(slot, value),
            Made::Node => unreachable!("its node was there first"),
            Made::Element { tensor, method, index } => {
                let whole = self.dimensions_node(tensor, method, stack);
                let node = self.graph.get_item(whole, index);
                self.graph.set_value(node, value);
                node
            }
            Made::Call { target, operands } => {
                let mut args = SmallVec::<[Arg; 4]>::new();
                for operand in operands {
                    args.push(match operand {
                        Operand::Number(number) => Arg::Node(self.number_node(number)),
                        Operand::Other(arg) => arg,
                    });
                }
                let node = self.graph.call(target, &args, stack);
                self.graph.set_value(node, value);
                node
            }
        };
        let symbols = self.symbols.as_mut().expect("a number of this trace");
        symbols.entry_mut(id).node = Some(node);
        node
    }

    /// Makes nodes of the sizes that were read of a tensor; later reads get nodes of their own.
    pub fn settle_elements(&mut self, of: NodeId) {
        for id in self.all_numbers() {
            let symbols = self.symbols.as_ref().expect("there are numbers");
            let entry = symbols.entry(id);
            let reads = match &entry.made {
                Made::Element { tensor, .. } => *tensor == of,
                Made::Call { operands, .. } => operands.iter().any(
                    |operand| matches!(operand, Operand::Other(Arg::Node(node)) if *node == of),
                ),
                Made::Outside(_) | Made::Drawn(_) | Made::Node => false,
            };
            if reads {
                self.number_node(id);
            }
        }
        if let Some(symbols) = self.symbols.as_mut() {
            symbols.elements.retain(|(tensor, _), _| *tensor != of);
        }
    }

    fn dimensions_node(
        &mut self,
        tensor: NodeId,
        method: &'static str,
        stack: Option<StackId>,
    ) -> NodeId {
        let known = self.symbols.as_ref().and_then(|all| all.elements.get(&(tensor, method)));
        if let Some(&known) = known {
            return known;
        }
        // It may have been given other dimensions since it was made.
        let key = match self.inputs.source(tensor) {
            Some(source) => TensorKey::Source(source.index() as u32),
            None => TensorKey::Node(tensor.index() as u32),
        };
        let sizes = self.symbols.as_ref().and_then(|all| all.sizes.get(&key));
        let rank = match (sizes, self.graph.node(tensor).value) {
            (Some(sizes), _) => sizes.len(),
            (None, NodeValue::Tensor(meta)) => meta.dims.rank(),
            (None, _) => 0,
        };
        let target = Target::Method { name: self.graph.intern(method), object: None };
        let whole = self.graph.call(target, &[Arg::Node(tensor)], stack);
        self.graph.set_value(whole, NodeValue::Structure(rank as u32));
        let symbols = self.symbols.as_mut().expect("numbers of this trace");
        symbols.elements.insert((tensor, method), whole);
        whole
    }

    /// All numbers so far.
    pub fn all_numbers(&self) -> Vec<NumberId> {
        self.symbols.as_ref().map_or_else(Vec::new, |symbols| symbols.ids().collect())
    }

    /// Where the outside number comes from, if the number is one.
    pub fn outside_number(&self, id: NumberId) -> Option<SourceId> {
        match self.symbols.as_ref()?.entry(id).made {
            Made::Outside(source) => Some(source),
            _ => None,
        }
    }

    /// Where an object comes from that stands for an outside number, fixed by now or not.
    pub fn outside_of(&self, object: Borrowed<'_, '_>) -> Option<SourceId> {
        let id = self.symbols.as_ref()?.known.get(&(object.as_ptr() as usize))?;
        self.outside_number(*id)
    }

    /// Whether a number that is a symbol comes from here.
    pub fn is_outside_number(&self, source: SourceId) -> bool {
        self.symbols.as_ref().is_some_and(|symbols| symbols.outside.contains_key(&source))
    }

    /// The sizes of a tensor, where they are known to be symbolic.
    pub fn symbolic_sizes(&mut self, tensor: Borrowed<'_, '_>) -> Option<Sizes> {
        let key = self.tensor_key(tensor)?;
        let symbols = self.symbols.as_mut()?;
        let sizes = symbols.sizes.get(&key)?.clone();
        let sizes: Sizes = sizes.iter().map(|size| symbols.simple_size(*size)).collect();
        let is_open = sizes.iter().any(|size| symbols.context.as_constant(*size).is_none());
        is_open.then_some(sizes)
    }

    /// Says what sizes a tensor has.
    pub fn set_sizes(&mut self, key: TensorKey, sizes: Sizes) {
        if let Some(symbols) = self.symbols.as_mut() {
            symbols.sizes.insert(key, sizes);
        }
    }

    /// What stands for a tensor among those with symbolic sizes.
    pub fn tensor_key(&self, tensor: Borrowed<'_, '_>) -> Option<TensorKey> {
        match self.origin(tensor)? {
            Origin::Source(source) => Some(TensorKey::Source(source.index() as u32)),
            Origin::Node(node) => Some(TensorKey::Node(node.index() as u32)),
            Origin::Fresh | Origin::Handle(_) => None,
        }
    }

    /// Makes the symbols in a tensor's sizes inputs of the graph, ahead of the tensor itself.
    pub fn place_symbols(&mut self, source: SourceId) {
        let Some(symbols) = self.symbols.as_mut() else { return };
        let Some(sizes) = symbols.sizes.get(&TensorKey::Source(source.index() as u32)) else {
            return;
        };
        for size in sizes.clone() {
            let Some(symbol) = symbols.context.as_symbol(size) else { continue };
            let slot = symbol.index();
            let is_size = matches!(symbols.slots[slot].part, Part::Size(_));
            if !is_size || symbols.placeholders.contains_key(&(slot as u32)) {
                continue;
            }
            let Some(number) = symbols.numbers[slot] else { continue };
            let position = self.graph.placeholders().len();
            let node = self.graph.placeholder(&format!("s{number}"), NodeValue::Integer);
            symbols.placeholders.insert(slot as u32, node);
            symbols.inputs.push((position, slot));
        }
    }

    /// What was symbolic of these objects when the trace ended.
    pub fn symbolic_among(&mut self, objects: &[Borrowed<'_, '_>]) -> crate::policy::Carried {
        let mut carried = crate::policy::Carried::default();
        for &object in objects {
            let address = object.as_ptr() as usize;
            let may_be_own = heap::is_number(object)
                || object.is_exact_instance_of::<PyString>()
                || object.is_instance_of::<PyTuple>();
            let plain = may_be_own.then(|| self.plain(&object.to_owned())).flatten();
            if let Some(plain) = plain.filter(|plain| !plain.is(object)) {
                let own = object.to_owned().unbind();
                carried.plain.insert(address, (own, plain.unbind()));
            }
            if self.number(object).is_some() {
                carried.numbers.insert(address, object.to_owned().unbind());
            } else if let Some(sizes) = self.symbolic_sizes(object) {
                let symbols = self.symbols.as_ref().expect("there are sizes");
                let open = |size: &ExprId| symbols.context.as_constant(*size).is_none();
                carried.tensors.insert(address, sizes.iter().map(open).collect());
            }
        }
        carried
    }

    pub(in crate::recorder) fn here_stack(&mut self) -> Option<StackId> {
        self.symbols.as_ref()?;
        self.frames.stack_here(&mut self.graph)
    }
}

/// The range of sizes without bounds of their own: 0 and 1 are never symbols.
pub const SIZES: (i64, i64) = (2, SIZE_LIMIT);

/// What a comparison asks.
pub fn comparison(op: stator_cpython::ops::CompareOp) -> Cmp {
    use stator_cpython::ops::CompareOp as O;
    match op {
        O::Lt => Cmp::Lt,
        O::Le => Cmp::Le,
        O::Eq => Cmp::Eq,
        O::Ne => Cmp::Ne,
        O::Gt => Cmp::Gt,
        O::Ge => Cmp::Ge,
    }
}
