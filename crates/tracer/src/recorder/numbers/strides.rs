//! Strides of tensors as symbolic numbers, found when a program asks for them.
//!
//! An outside tensor's strides are guarded. Those of a computed one follow from its operation and from what
//! went in, and only so far as the tables here say: views that are followed exactly, operations whose
//! result is contiguous, and those whose result lies in memory as their arguments do. Each step must give
//! the strides that the recorded call had. What can't be said is fixed: the sizes and strides that the
//! tensor was made from.

use pyo3::prelude::*;
use rustc_hash::FxHashSet;
use stator_cpython::Result;
use stator_cpython::heap::tensor;
use stator_cpython::object::{Borrowed, Object};
use stator_graph::{Arg, Constant, NodeId, NodeKind, Value};
use stator_operators::torch::last_part;
use stator_shapes::{Cmp, Context, ExprId};

use crate::raises::NodeCall;
use crate::recorder::Recorder;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::state::{Origin, State};
use crate::recorder::notes::symbols::{Sizes, TensorKey};
use crate::recorder::numbers::number_functions::boolean;

/// New tensors, contiguous whatever went in.
const CONTIGUOUS: &str = "zeros ones full empty rand randn randint arange eye linspace new_zeros new_ones \
    new_full new_empty mm addmm bmm baddbmm index_select gather embedding";

/// Contiguous where all tensors that went in are.
const CONTIGUOUS_OF_CONTIGUOUS: &str = "view reshape view_as reshape_as flatten unflatten ravel linear layer_norm rms_norm \
    softmax log_softmax cat concat stack tril triu cumsum cumprod sum mean amax amin prod \
    repeat tile flip pad conv1d conv2d conv3d batch_norm group_norm instance_norm \
    max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d \
    adaptive_avg_pool2d adaptive_max_pool2d interpolate masked_fill";

/// Results lie in memory as the arguments do, if those are dense and lie alike.
const ALIKE: &str = "add sub mul div true_divide truediv pow remainder mod floordiv maximum minimum eq ne \
    lt le gt ge and or xor logical_and logical_or logical_not where lerp clamp neg abs exp \
    log sqrt rsqrt sigmoid tanh sin cos relu gelu silu erf floor ceil round sign \
    reciprocal square softplus hardtanh leaky_relu elu invert clone to float half double \
    bfloat16 long int bool zeros_like ones_like full_like empty_like rand_like randn_like \
    dropout";

/// Where functions and methods of these names are PyTorch's.
const NAMESPACES: &str = "Tensor operator torch torch.nn.functional torch._C._nn torch.functional \
    torch._C._VariableFunctions";

/// In place, and the strides change.
const RESTRIDING: &str = "t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ set_ resize_ \
    resize_as_ _resize_output_";

/// Keywords that say how a result is to lie in memory, or where.
const ARRANGING: &str = "memory_format layout out names";

/// Views of their argument, where it lies in memory so that it can be looked at.
const SOMETIMES: &str = "contiguous flatten ravel reshape reshape_as to unflatten";

/// Operations that look at their argument's memory with other sizes, or copy it if they can't.
const RESHAPING: &str = "view reshape view_as reshape_as flatten unflatten";

fn listed(names: &str, name: &str) -> bool {
    names.split_whitespace().any(|listed| listed == name)
}

impl State {
    /// The strides of a tensor, where they are known: as expressions, which may be constants.
    pub fn symbolic_strides(&mut self, tensor: Borrowed<'_, '_>) -> Option<Sizes> {
        self.symbols.as_ref()?;
        let found = match self.origin(tensor)? {
            Origin::Source(source) => {
                let key = TensorKey::Source(source.index() as u32);
                self.scan_nodes();
                let layouts = &self.symbols.as_ref()?.layouts;
                layouts.outside.get(&key).filter(|_| !layouts.lost).cloned()
            }
            Origin::Node(node) => self.node_strides(node),
            Origin::Fresh | Origin::Handle(_) => None,
        }?;
        self.has_strides(tensor, &found).then_some(found)
    }

    /// Says what strides an outside tensor has.
    pub fn set_strides(&mut self, key: TensorKey, strides: Sizes) {
        if let Some(symbols) = self.symbols.as_mut() {
            symbols.layouts.outside.insert(key, strides);
        }
    }

    /// Whether expressions are a tensor's strides in this call.
    fn has_strides(&self, tensor: Borrowed<'_, '_>, strides: &Sizes) -> bool {
        let (Some(symbols), Some(info)) = (self.symbols.as_ref(), tensor::info(tensor)) else {
            return false;
        };
        let hints = strides.iter().map(|stride| symbols.context.hint(*stride));
        info.strides.iter().copied().eq(hints)
    }

    /// Whether an operation that has just been executed changed a tensor's strides, as far as it was asked
    /// for them before.
    pub fn is_restrided(&self, tensor: Borrowed<'_, '_>) -> bool {
        let Some(symbols) = self.symbols.as_ref() else { return false };
        let known = match self.origin(tensor) {
            Some(Origin::Source(source)) => {
                symbols.layouts.outside.get(&TensorKey::Source(source.index() as u32))
            }
            Some(Origin::Node(node)) => {
                symbols.layouts.computed.get(&node).and_then(Option::as_ref)
            }
            _ => None,
        };
        known.is_some_and(|strides| !self.has_strides(tensor, strides))
    }

    /// Looks at new nodes for one that changes strides in place.
    fn scan_nodes(&mut self) {
        let Some(layouts) = self.symbols.as_ref().map(|symbols| &symbols.layouts) else { return };
        let (from, to) = (layouts.scanned, self.graph.len());
        let mut lost = layouts.lost;
        for index in from..to {
            if lost {
                break;
            }
            let NodeKind::Call { target, keywords, .. } = self.graph.node(NodeId::new(index)).kind
            else {
                continue;
            };
            let name = self.operation_name(target);
            let last = last_part(&name);
            // A user's function does what it likes.
            lost = name.starts_with('(')
                || name.contains(".data.__")
                || listed(RESTRIDING, last)
                || self.graph.keywords(keywords).iter().any(|name| self.graph.text(*name) == "out");
        }
        let layouts = &mut self.symbols.as_mut().expect("still there").layouts;
        layouts.scanned = to;
        layouts.lost = lost;
    }

    /// A node and all that it was made from, in order.
    pub(super) fn ancestors(&self, node: NodeId) -> Vec<NodeId> {
        let mut found = FxHashSet::default();
        let mut open = vec![node];
        while let Some(next) = open.pop() {
            if found.insert(next) {
                self.graph.visit_inputs(next, &mut |input| open.push(input));
            }
        }
        let mut all: Vec<_> = found.into_iter().collect();
        all.sort_unstable();
        all
    }

    fn node_strides(&mut self, node: NodeId) -> Option<Sizes> {
        self.scan_nodes();
        if self.symbols.as_ref()?.layouts.lost {
            return None;
        }
        if !self.symbols.as_ref()?.layouts.computed.contains_key(&node) {
            for next in self.ancestors(node) {
                if self.symbols.as_ref()?.layouts.computed.contains_key(&next) {
                    continue;
                }
                let strides = self.strides_of(next).filter(|found| self.agrees_with(next, found));
                self.symbols.as_mut()?.layouts.computed.insert(next, strides);
            }
        }
        self.symbols.as_ref()?.layouts.computed.get(&node)?.clone()
    }

    /// Whether these are the strides that the recorded call had.
    fn agrees_with(&self, node: NodeId, strides: &Sizes) -> bool {
        let Value::Tensor(meta) = self.graph.node(node).value else { return false };
        let Some(symbols) = self.symbols.as_ref() else { return false };
        let hints = strides.iter().map(|stride| symbols.context.hint(*stride));
        self.graph.strides(&meta).is_some_and(|real| real.iter().copied().eq(hints))
    }

    /// The outside tensor that a placeholder takes in.
    pub(super) fn placeholder_key(&self, node: NodeId) -> Option<TensorKey> {
        let source = self.inputs.source(node)?;
        Some(TensorKey::Source(source.index() as u32))
    }

    /// A tensor's sizes, as expressions.
    pub(super) fn node_sizes(&mut self, node: NodeId) -> Option<Sizes> {
        let Value::Tensor(meta) = self.graph.node(node).value else { return None };
        let key = match self.graph.node(node).kind {
            NodeKind::Placeholder { .. } => self.placeholder_key(node)?,
            _ => TensorKey::Node(node.index() as u32),
        };
        let symbols = self.symbols.as_mut()?;
        Some(match symbols.sizes.get(&key) {
            Some(sizes) => {
                sizes.clone().iter().map(|size| symbols.context.simplify(*size)).collect()
            }
            None => {
                let sizes = self.graph.sizes(&meta);
                sizes.iter().map(|size| symbols.context.constant(*size)).collect()
            }
        })
    }

    /// The strides of what a node makes, from those of what it is made from.
    fn strides_of(&mut self, node: NodeId) -> Option<Sizes> {
        let Value::Tensor(meta) = self.graph.node(node).value else { return None };
        let (target, args, keywords) = match self.graph.node(node).kind {
            NodeKind::Placeholder { .. } => {
                let key = self.placeholder_key(node)?;
                let symbols = self.symbols.as_mut()?;
                return match symbols.layouts.outside.get(&key) {
                    Some(strides) => Some(strides.clone()),
                    None => {
                        let strides = self.graph.strides(&meta)?;
                        Some(strides.iter().map(|one| symbols.context.constant(*one)).collect())
                    }
                };
            }
            NodeKind::GetItem { of, .. } => return self.part_strides(of),
            NodeKind::Call { target, args, keywords } => (target, args, keywords),
        };
        let name = self.operation_name(target);
        let (namespace, last) = name.rsplit_once('.')?;
        let last = last.strip_prefix("__").and_then(|last| last.strip_suffix("__")).unwrap_or(last);
        let keywords = self.graph.keywords(keywords);
        let arranged = keywords.iter().any(|name| listed(ARRANGING, self.graph.text(*name)));
        if !listed(NAMESPACES, namespace) || arranged {
            return None;
        }
        let positional = args.len() - keywords.len();
        let args = self.graph.args(args).to_vec();
        let sizes = self.node_sizes(node)?;
        if listed(CONTIGUOUS, last) {
            return self.contiguous(&sizes);
        }
        if last == "contiguous" {
            let Some(&Arg::Node(base)) = args.first() else { return None };
            let strides = self.symbols.as_ref()?.layouts.computed.get(&base)?.clone()?;
            // It's the tensor itself then.
            let is_same = self.decide_contiguous(&sizes, &strides)?;
            return if is_same { Some(strides) } else { self.contiguous(&sizes) };
        }
        if listed(CONTIGUOUS_OF_CONTIGUOUS, last) {
            return match self.are_contiguous(&args)? {
                true => self.contiguous(&sizes),
                false if listed(RESHAPING, last) => {
                    let Some(&Arg::Node(base)) = args.first() else { return None };
                    let strides = self.symbols.as_ref()?.layouts.computed.get(&base)?.clone()?;
                    let before = self.node_sizes(base)?;
                    self.reshaped(&before, &strides, &sizes)
                }
                false => None,
            };
        }
        if last == "matmul" {
            // The other way round, the result may be a transposed one.
            let rank = |arg: &Arg| match arg {
                Arg::Node(node) => self.node_rank(*node),
                _ => None,
            };
            let (left, right) = (rank(args.first()?)?, rank(args.get(1)?)?);
            return if left >= right || left >= 3 { self.contiguous(&sizes) } else { None };
        }
        if listed(ALIKE, last) {
            return self.alike(&args, &sizes);
        }
        self.view_strides(last, &args[..positional], positional < args.len(), &sizes)
    }

    fn node_rank(&self, node: NodeId) -> Option<usize> {
        match self.graph.node(node).value {
            Value::Tensor(meta) => Some(meta.dims.rank()),
            _ => None,
        }
    }

    /// The strides of one of the results of `split` and such; others aren't views.
    fn part_strides(&mut self, of: NodeId) -> Option<Sizes> {
        let NodeKind::Call { target, args, keywords } = self.graph.node(of).kind else {
            return None;
        };
        let name = self.operation_name(target);
        let args = self.graph.args(args).to_vec();
        let named = self.graph.keywords(keywords).to_vec();
        let Some(&Arg::Node(base)) = args.first() else { return None };
        let (namespace, last) = name.rsplit_once('.')?;
        if !listed(NAMESPACES, namespace) || named.len() == args.len() {
            return None;
        }
        let strides = self.symbols.as_ref()?.layouts.computed.get(&base)?.clone()?;
        match last {
            "split" | "chunk" | "tensor_split" | "split_with_sizes" => Some(strides),
            "unbind" => {
                let dim = match args.get(1) {
                    None => 0,
                    Some(dim) => self.dimension_in(*dim, strides.len())?,
                };
                let mut strides = strides;
                strides.remove(dim);
                Some(strides)
            }
            _ => None,
        }
    }

    /// The strides of a contiguous tensor; sizes must be 1 at least.
    pub(super) fn contiguous(&mut self, sizes: &Sizes) -> Option<Sizes> {
        let context = &mut self.symbols.as_mut()?.context;
        let one = context.constant(1);
        let mut strides: Sizes = sizes.iter().map(|_| one).collect();
        let mut stride = one;
        for at in (0..sizes.len()).rev() {
            strides[at] = stride;
            let filled = context.compare(Cmp::Ge, sizes[at], one);
            if !context.cond_hint(filled) {
                return None;
            }
            if at > 0 {
                context.evaluate(filled);
                stride = context.mul(stride, sizes[at]).ok()?;
            }
        }
        Some(strides)
    }

    /// Whether all tensors among these are known to be contiguous, with the strides that new tensors have.
    fn are_contiguous(&mut self, args: &[Arg]) -> Option<bool> {
        let mut tensors = Vec::new();
        self.tensors_among(args, &mut tensors);
        for node in tensors {
            let sizes = self.node_sizes(node)?;
            let strides = self.symbols.as_ref()?.layouts.computed.get(&node)?.clone()?;
            let expected = self.contiguous(&sizes)?;
            if !self.same(&strides, &expected) {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Whether all tensors among these are contiguous, or have strides that decrease.
    fn are_in_order(&mut self, args: &[Arg]) -> Option<bool> {
        let mut tensors = Vec::new();
        self.tensors_among(args, &mut tensors);
        for node in tensors {
            if self.are_contiguous(&[Arg::Node(node)])? {
                continue;
            }
            let strides = self.symbols.as_ref()?.layouts.computed.get(&node)?.clone()?;
            let context = &mut self.symbols.as_mut()?.context;
            let decrease = strides.windows(2).all(|pair| {
                let larger = context.compare(Cmp::Gt, pair[0], pair[1]);
                context.decide(larger) == Some(true)
            });
            if !decrease {
                return Some(false);
            }
        }
        Some(true)
    }

    fn same(&mut self, left: &Sizes, right: &Sizes) -> bool {
        let Some(symbols) = self.symbols.as_mut() else { return false };
        let context = &mut symbols.context;
        left.len() == right.len()
            && left.iter().zip(right).all(|(a, b)| {
                let equal = context.eq(*a, *b);
                context.decide(equal) == Some(true)
            })
    }

    fn tensors_among(&self, args: &[Arg], found: &mut Vec<NodeId>) {
        for arg in args {
            self.graph.visit_nodes(*arg, &mut |node| {
                if matches!(self.graph.node(node).value, Value::Tensor(_)) {
                    found.push(node);
                }
            });
        }
    }

    /// Elementwise results: contiguous where no argument asks for another order of dimensions; else laid
    /// out as the arguments, where those of the result's sizes agree. Arguments of one dimension have
    /// no say.
    fn alike(&mut self, args: &[Arg], sizes: &Sizes) -> Option<Sizes> {
        if self.are_in_order(args)? {
            return self.contiguous(sizes);
        }
        let mut tensors = Vec::new();
        self.tensors_among(args, &mut tensors);
        let mut found: Option<Sizes> = None;
        for node in tensors {
            if self.node_rank(node)? <= 1 {
                continue;
            }
            let own = self.node_sizes(node)?;
            let strides = self.symbols.as_ref()?.layouts.computed.get(&node)?.clone()?;
            if !self.same(&own, sizes) {
                return None;
            }
            match &found {
                Some(others) if !self.same(others, &strides) => return None,
                _ => found = Some(strides),
            }
        }
        let strides = found?;
        self.is_dense(sizes, &strides).then_some(strides)
    }

    /// Whether a tensor is a permuted contiguous one without dimensions of size 1, whose strides say nothing.
    fn is_dense(&mut self, sizes: &Sizes, strides: &Sizes) -> bool {
        let Some(symbols) = self.symbols.as_mut() else { return false };
        let context = &mut symbols.context;
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|at| context.hint(strides[*at]));
        let two = context.constant(2);
        let mut expected = context.constant(1);
        for at in order {
            let large = context.compare(Cmp::Ge, sizes[at], two);
            let equal = context.eq(strides[at], expected);
            if context.decide(large) != Some(true) || context.decide(equal) != Some(true) {
                return false;
            }
            match context.mul(expected, sizes[at]) {
                Ok(next) => expected = next,
                Err(_) => return false,
            }
        }
        true
    }

    /// An integer argument.
    fn integer_arg(&mut self, arg: Arg) -> Option<ExprId> {
        match arg {
            Arg::Constant(Constant::Int(value)) => {
                Some(self.symbols.as_mut()?.context.constant(value))
            }
            Arg::Node(node) => self.symbols.as_ref()?.integer_of(node),
            _ => None,
        }
    }

    fn integer_args(&mut self, args: &[Arg]) -> Option<Sizes> {
        let list = match args {
            [Arg::List(list) | Arg::Tuple(list)] => self.graph.args(*list).to_vec(),
            _ => args.to_vec(),
        };
        list.into_iter().map(|arg| self.integer_arg(arg)).collect()
    }

    /// A dimension, counted from either end.
    fn dimension_in(&mut self, arg: Arg, rank: usize) -> Option<usize> {
        let dim = self.integer_arg(arg)?;
        let dim = self.symbols.as_ref()?.context.as_constant(dim)?;
        let rank = i64::try_from(rank).ok()?;
        usize::try_from(if dim < 0 { dim + rank } else { dim })
            .ok()
            .filter(|at| (*at as i64) < rank)
    }

    /// Views, followed exactly.
    fn view_strides(
        &mut self,
        name: &str,
        args: &[Arg],
        has_names: bool,
        sizes: &Sizes,
    ) -> Option<Sizes> {
        let Some(&Arg::Node(base)) = args.first() else { return None };
        let old = self.node_sizes(base)?;
        let mut strides = self.symbols.as_ref()?.layouts.computed.get(&base)?.clone()?;
        let rest = &args[1..];
        let rank = strides.len();
        if has_names {
            return None;
        }
        match name {
            "detach" | "alias" => {}
            "t" | "T" if rank <= 2 => strides.reverse(),
            "mT" | "adjoint" if rank >= 2 => strides.swap(rank - 1, rank - 2),
            "transpose" | "swapaxes" | "swapdims" => {
                let [a, b] = *rest else { return None };
                let (a, b) = (self.dimension_in(a, rank)?, self.dimension_in(b, rank)?);
                strides.swap(a, b);
            }
            "permute" => {
                let dims = match rest {
                    [Arg::List(list) | Arg::Tuple(list)] => self.graph.args(*list).to_vec(),
                    _ => rest.to_vec(),
                };
                let dims: Option<Vec<usize>> =
                    dims.into_iter().map(|dim| self.dimension_in(dim, rank)).collect();
                strides = dims?.into_iter().map(|dim| strides[dim]).collect();
            }
            "unsqueeze" => {
                let [dim] = *rest else { return None };
                let at = self.dimension_in(dim, rank + 1)?;
                let stride = self.inserted(&old, &strides, at)?;
                strides.insert(at, stride);
            }
            "squeeze" => {
                let [dim] = *rest else { return None };
                let at = self.dimension_in(dim, rank)?;
                if sizes.len() < rank {
                    strides.remove(at);
                }
            }
            "select" => {
                let at = self.dimension_in(*rest.first()?, rank)?;
                strides.remove(at);
            }
            "narrow" => {}
            "expand" | "broadcast_to" => strides = self.expanded(&old, &strides, sizes)?,
            "as_strided" => {
                let [_, given, ..] = rest else { return None };
                strides = self.integer_args(&[*given])?;
            }
            "getitem" => {
                let [index] = *rest else { return None };
                strides = self.indexed(&old, &strides, index)?;
            }
            _ => return None,
        }
        Some(strides)
    }

    /// The stride of a new dimension of size 1.
    fn inserted(&mut self, sizes: &Sizes, strides: &Sizes, at: usize) -> Option<ExprId> {
        let context = &mut self.symbols.as_mut()?.context;
        match sizes.get(at) {
            Some(size) => context.mul(*size, strides[at]).ok(),
            None => Some(context.constant(1)),
        }
    }

    fn expanded(&mut self, old: &Sizes, strides: &Sizes, to: &Sizes) -> Option<Sizes> {
        let lead = to.len().checked_sub(old.len())?;
        let context = &mut self.symbols.as_mut()?.context;
        let (zero, one) = (context.constant(0), context.constant(1));
        let mut found = Sizes::new();
        for (at, &size) in to.iter().enumerate() {
            let from = at.checked_sub(lead).map_or(one, |at| old[at]);
            let equal = context.eq(from, size);
            found.push(match (context.decide(equal)?, at.checked_sub(lead)) {
                (true, Some(at)) => strides[at],
                (true, None) => return None,
                (false, _) => zero,
            });
        }
        Some(found)
    }

    /// The strides of `x[index]` for numbers, slices, `None` and `...`.
    fn indexed(&mut self, sizes: &Sizes, strides: &Sizes, index: Arg) -> Option<Sizes> {
        let parts = match index {
            Arg::Tuple(list) => self.graph.args(list).to_vec(),
            single => vec![single],
        };
        let takes = |arg: &&Arg| !matches!(arg, Arg::Constant(Constant::None | Constant::Ellipsis));
        let taken = parts.iter().filter(takes).count();
        let (mut found, mut at) = (Sizes::new(), 0);
        for part in parts {
            match part {
                Arg::Constant(Constant::None) => found.push(self.inserted(sizes, strides, at)?),
                Arg::Constant(Constant::Ellipsis) => {
                    let skipped = strides.len().checked_sub(taken)?;
                    found.extend_from_slice(strides.get(at..at + skipped)?);
                    at += skipped;
                }
                Arg::Slice(list) => {
                    let step = *self.graph.args(list).get(2)?;
                    let stride = *strides.get(at)?;
                    found.push(match step {
                        Arg::Constant(Constant::None) => stride,
                        step => {
                            let step = self.integer_arg(step)?;
                            self.symbols.as_mut()?.context.mul(stride, step).ok()?
                        }
                    });
                    at += 1;
                }
                number => {
                    self.integer_arg(number)?;
                    at += 1;
                }
            }
        }
        found.extend_from_slice(strides.get(at..)?);
        Some(found)
    }

    /// The strides of a tensor can't be followed: fixes everything that it was made from.
    pub fn fix_strides(&mut self, tensor: Borrowed<'_, '_>, why: &str) {
        let py = tensor.py();
        match self.origin(tensor) {
            Some(Origin::Source(source)) => {
                self.fix_layouts(py, &[TensorKey::Source(source.index() as u32)], why);
            }
            Some(Origin::Node(node)) => self.fix_strides_of(py, node, why),
            _ => {}
        }
    }

    /// As [`Self::fix_strides`], of what a node gives.
    pub(super) fn fix_strides_of(&mut self, py: Python<'_>, node: NodeId, why: &str) {
        let mut keys = Vec::new();
        for next in self.ancestors(node) {
            keys.push(TensorKey::Node(next.index() as u32));
            keys.extend(self.placeholder_key(next));
            let number = self.symbols.as_ref().and_then(|all| all.integer_of(next));
            if let Some(number) = number {
                self.specialise_expr(py, number, why);
            }
        }
        self.fix_layouts(py, &keys, why);
    }

    fn fix_layouts(&mut self, py: Python<'_>, keys: &[TensorKey], why: &str) {
        for key in keys {
            let Some(symbols) = self.symbols.as_ref() else { return };
            let sizes = symbols.sizes.get(key).into_iter();
            let all: Vec<ExprId> =
                sizes.chain(symbols.layouts.outside.get(key)).flatten().copied().collect();
            for expr in all {
                self.specialise_expr(py, expr, why);
            }
        }
    }

    /// Whether a tensor is one from outside whose strides don't follow from its sizes, or looks at the memory of one.
    pub(super) fn follows_loose_strides(&self, tensor: Borrowed<'_, '_>) -> bool {
        let key = match self.origin(tensor) {
            Some(Origin::Source(source)) => Some(TensorKey::Source(source.index() as u32)),
            Some(Origin::Node(node)) => self.placeholder_key(self.looked_at(node)),
            _ => None,
        };
        let (Some(key), Some(symbols)) = (key, self.symbols.as_ref()) else { return false };
        let symbols_of = |exprs: Option<&Sizes>| -> Vec<_> {
            let exprs = exprs.into_iter().flatten();
            exprs.flat_map(|expr| symbols.context.symbols_of(*expr)).collect()
        };
        let known = symbols_of(symbols.sizes.get(&key));
        let asked = symbols_of(symbols.layouts.outside.get(&key));
        asked.iter().any(|symbol| !known.contains(symbol))
    }

    /// The node whose memory a node's result may look at, through views and what copies only where it has to.
    pub(super) fn looked_at(&self, mut node: NodeId) -> NodeId {
        loop {
            let looks = |call: &NodeCall<'_>| call.is_view() || listed(SOMETIMES, call.operation());
            node = match (self.graph.node(node).kind, NodeCall::of(&self.graph, node)) {
                (NodeKind::GetItem { of, .. }, _) => of,
                (_, Some(call)) if looks(&call) => match call.args.first() {
                    Some(&Arg::Node(base)) => base,
                    _ => return node,
                },
                _ => return node,
            }
        }
    }

    /// Whether a tensor of these sizes and strides is contiguous; what isn't known becomes a guard.
    pub(super) fn decide_contiguous(&mut self, sizes: &Sizes, strides: &Sizes) -> Option<bool> {
        let context = &mut self.symbols.as_mut()?.context;
        let (zero, one) = (context.constant(0), context.constant(1));
        for &size in sizes {
            if are_equal(context, size, zero) {
                return Some(true);
            }
        }
        let mut expected = one;
        for (&size, &stride) in sizes.iter().zip(strides).rev() {
            // What steps over the only element there is says nothing.
            if are_equal(context, size, one) {
                continue;
            }
            if !are_equal(context, stride, expected) {
                return Some(false);
            }
            expected = context.mul(expected, size).ok()?;
        }
        Some(true)
    }

    /// A tensor's sizes as expressions, which may all be constants.
    pub(super) fn all_sizes(&mut self, tensor: Borrowed<'_, '_>) -> Option<Sizes> {
        if let Some(sizes) = self.symbolic_sizes(tensor) {
            return Some(sizes);
        }
        let info = tensor::info(tensor)?;
        let context = &mut self.symbols.as_mut()?.context;
        Some(info.sizes.iter().map(|size| context.constant(*size)).collect())
    }
}

impl Recorder {
    /// A call that asks how a tensor lies in memory.
    pub(in crate::recorder) fn symbolic_layout<'py>(
        &self,
        name: &str,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, args, names, .. } = call;
        let tensor = *args.first()?;
        self.concrete(frame, &args[1..], "the number of a dimension");
        let known = {
            let mut state = self.state.borrow_mut();
            state.frames.locate(frame);
            let strides = if names.is_none() { state.symbolic_strides(tensor) } else { None };
            if strides.is_none() {
                state.fix_strides(tensor, name);
            }
            strides
        };
        let strides = known?;
        match (name, args) {
            ("stride", [_]) => self.dimensions(frame, tensor, &strides, "stride"),
            ("stride", [_, index]) => {
                let index: i64 = index.extract().ok()?;
                let index = if index < 0 { index + strides.len() as i64 } else { index };
                let at = usize::try_from(index).ok()?;
                self.dimension(frame, tensor, *strides.get(at)?, "stride", at).map(Ok)
            }
            ("is_contiguous", [_]) => {
                let mut state = self.state.borrow_mut();
                let sizes = state.all_sizes(tensor)?;
                let answer = state.decide_contiguous(&sizes, &strides);
                state.log_facts(frame.py());
                match answer {
                    Some(answer) => Some(Ok(boolean(frame.py(), answer))),
                    None => {
                        state.fix_strides(tensor, name);
                        None
                    }
                }
            }
            _ => {
                self.state.borrow_mut().fix_strides(tensor, name);
                None
            }
        }
    }
}

/// Whether two numbers are equal; what isn't known becomes a guard.
pub(super) fn are_equal(context: &mut Context, left: ExprId, right: ExprId) -> bool {
    let equal = context.eq(left, right);
    context.evaluate(equal).value()
}
