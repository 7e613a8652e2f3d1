//! Questions about trees: what is called in them, what depends on what, what is left open.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::Name;
use crate::ast::names::FreeNames;
use crate::ast::passes::separate_names;
use crate::ast::walk::{contains, distinct, occurrences, preorder};
use crate::ast::{BlockKind, BuildingBlock, Call};
use crate::error::{Class, Error, Result};
use crate::intrinsics::{self, AggregationKind, IntrinsicDef};
use crate::placement::Placement;
use crate::types::Facts;

/// The uri of the operation that a block is a call of.
pub fn called_intrinsic(block: &BuildingBlock) -> Option<&Name> {
    block.as_call()?.function.as_intrinsic()
}

/// Whether a block is a call of an operation; with `uris`, of one of these.
pub fn is_called_intrinsic(block: &BuildingBlock, uris: Option<&[Name]>) -> bool {
    called_intrinsic(block).is_some_and(|uri| uris.is_none_or(|uris| uris.contains(uri)))
}

/// Whether an operation is called in a tree; with `uris`, one of these.
pub fn contains_called_intrinsic(root: &BuildingBlock, uris: Option<&[Name]>) -> bool {
    contains(root, |block| is_called_intrinsic(block, uris))
}

/// Whether a block is a call of an operation that aggregates in this way.
pub fn is_called_aggregation(block: &BuildingBlock, kind: AggregationKind) -> bool {
    called_intrinsic(block)
        .and_then(|uri| intrinsics::by_uri(uri))
        .is_some_and(|def| def.aggregation == Some(kind))
}

/// Whether a block is a lambda that gives back its parameter.
pub fn is_identity_function(block: &BuildingBlock) -> bool {
    let Some(lambda) = block.as_lambda() else { return false };
    let (Some((name, _)), Some(result)) = (&lambda.parameter, lambda.result.as_reference()) else {
        return false;
    };
    *name == result.name
}

/// Every call in a tree of an operation that aggregates in a way that `wanted` says, with an
/// argument that holds tensors; each occurrence, before what is below it.
///
/// # Errors
/// `Class::Value`: something is called of which nothing is known, and it gives federated values.
pub fn find_aggregations(
    root: &BuildingBlock,
    mut wanted: impl FnMut(AggregationKind) -> bool,
) -> Result<Vec<&BuildingBlock>> {
    let mut found = Vec::new();
    for block in preorder(root) {
        let Some(call) = block.as_call() else { continue };
        if call.function.as_lambda().is_some() {
            continue;
        }
        let uri = call.function.as_intrinsic();
        let Some(def) = uri.and_then(|uri| intrinsics::by_uri(uri)) else {
            if block.ty().facts().any(Facts::FEDERATED) {
                return Err(Error::new(
                    Class::Value,
                    "whether a call aggregates can't be told: what is called isn't known",
                )
                .expected("a call of an operation of the language, or of a lambda")
                .found(short(block)));
            }
            continue;
        };
        let holds_tensors = |call: &Call| {
            call.argument.as_ref().is_some_and(|argument| argument.ty().facts().any(Facts::TENSOR))
        };
        if def.aggregation.is_some_and(&mut wanted) && holds_tensors(call) {
            found.push(block);
        }
    }
    Ok(found)
}

/// A name that a tree binds twice, or binds and also leaves open.
pub fn repeated_name(root: &BuildingBlock) -> Option<Name> {
    let mut free = FreeNames::default();
    let open = free.of(root);
    let counts = occurrences(root);
    let mut bound: FxHashSet<&Name> = FxHashSet::default();
    for block in distinct(root) {
        let names: Vec<&Name> = match block.kind() {
            BlockKind::Lambda(lambda) => lambda.parameter.iter().map(|(name, _)| name).collect(),
            BlockKind::Block(of) => of.locals.iter().map(|(name, _)| name).collect(),
            _ => continue,
        };
        let occurs_once = counts[&block.address()] == 1;
        for name in names {
            if !occurs_once || !bound.insert(name) || free.contains(open, name) {
                return Some(name.clone());
            }
        }
    }
    None
}

/// The names that a tree leaves open but for those of `excluding`, sorted.
pub fn unbound_names(root: &BuildingBlock, excluding: &FxHashSet<Name>) -> Vec<Name> {
    let mut free = FreeNames::default();
    let open = free.of(root);
    let mut names: Vec<Name> =
        free.names(open).into_iter().filter(|name| !excluding.contains(*name)).cloned().collect();
    names.sort_unstable();
    names
}

/// The names that each block of a tree leaves open.
pub fn unbound_names_of_all(root: &BuildingBlock) -> Vec<(&BuildingBlock, Vec<Name>)> {
    let mut free = FreeNames::default();
    let mut all = Vec::new();
    for block in distinct(root) {
        let open = free.of(block);
        all.push((block, free.names(open).into_iter().cloned().collect()));
    }
    all
}

/// # Errors
/// `Class::Value`: the tree leaves names open that are not in `excluding`.
pub fn check_contains_no_unbound_references(
    root: &BuildingBlock,
    excluding: &FxHashSet<Name>,
) -> Result<()> {
    let open = unbound_names(root, excluding);
    if open.is_empty() {
        return Ok(());
    }
    Err(Error::new(Class::Value, "names are used that nothing binds")
        .found(listed(&open))
        .note("in", short(root)))
}

/// # Errors
/// `Class::Value`: `new` leaves names open that `old` doesn't.
pub fn check_contains_no_new_unbound_references(
    old: &BuildingBlock,
    new: &BuildingBlock,
) -> Result<()> {
    let before: FxHashSet<Name> = unbound_names(old, &FxHashSet::default()).into_iter().collect();
    let added = unbound_names(new, &before);
    if added.is_empty() {
        return Ok(());
    }
    Err(Error::new(Class::Value, "names have become open: nothing binds them any more")
        .found(listed(&added))
        .note("before", short(old))
        .note("after", short(new)))
}

/// Looks at the blocks whose values are federated, not at functions of such, nor at structs.
///
/// # Errors
/// `Class::Value`: a value of the tree is placed elsewhere.
pub fn check_has_single_placement(root: &BuildingBlock, placement: Placement) -> Result<()> {
    for block in distinct(root) {
        if let Some(of) = block.ty().as_federated()
            && of.placement != placement
        {
            return Err(Error::new(Class::Value, "a value is placed elsewhere")
                .expected(format!("values at {placement} only"))
                .found(format!("{} of type {}", short(block), block.ty())));
        }
    }
    Ok(())
}

/// The operations that others can be reduced to.
const REDUCIBLE: &[&str] = &[
    intrinsics::FEDERATED_AGGREGATE,
    intrinsics::FEDERATED_APPLY,
    intrinsics::FEDERATED_BROADCAST,
    intrinsics::FEDERATED_EVAL_AT_CLIENTS,
    intrinsics::FEDERATED_EVAL_AT_SERVER,
    intrinsics::FEDERATED_MAP,
    intrinsics::FEDERATED_MAP_ALL_EQUAL,
    intrinsics::FEDERATED_SECURE_SUM,
    intrinsics::FEDERATED_SECURE_SUM_BITWIDTH,
    intrinsics::FEDERATED_VALUE_AT_CLIENTS,
    intrinsics::FEDERATED_VALUE_AT_SERVER,
    intrinsics::FEDERATED_ZIP_AT_CLIENTS,
    intrinsics::FEDERATED_ZIP_AT_SERVER,
];

/// # Errors
/// `Class::Value`: the tree has an operation that can't be reduced to aggregation and broadcast.
pub fn check_contains_only_reducible_intrinsics(root: &BuildingBlock) -> Result<()> {
    for block in distinct(root) {
        if let Some(uri) = block.as_intrinsic()
            && !REDUCIBLE.contains(&&**uri)
        {
            return Err(Error::new(
                Class::Value,
                "an operation can't be reduced to aggregations and broadcasts",
            )
            .expected(format!("one of {}", REDUCIBLE.join(", ")))
            .found(uri));
        }
    }
    Ok(())
}

/// # Errors
/// `Class::Value`: what is broadcast depends on an aggregate.
pub fn check_broadcast_not_dependent_on_aggregate(root: &BuildingBlock) -> Result<()> {
    let call = dependent_call(root, |def| def.broadcast.is_some())?;
    let Some(call) = call else { return Ok(()) };
    Err(Error::new(Class::Value, "what is broadcast depends on an aggregate").found(short(&call)))
}

/// # Errors
/// `Class::Value`: what is aggregated depends on another aggregate.
pub fn check_aggregate_not_dependent_on_aggregate(root: &BuildingBlock) -> Result<()> {
    let call = dependent_call(root, |def| def.aggregation.is_some())?;
    let Some(call) = call else { return Ok(()) };
    Err(Error::new(Class::Value, "what is aggregated depends on another aggregate")
        .found(short(&call)))
}

/// A call of something that has an operation which `is_consumer`, with an argument that has an
/// aggregation; also through names.
fn dependent_call(
    root: &BuildingBlock,
    is_consumer: impl Fn(&IntrinsicDef) -> bool,
) -> Result<Option<BuildingBlock>> {
    /// What is in a block: a consumer, an aggregation.
    #[derive(Clone, Copy, Default)]
    struct Has {
        consumer: bool,
        aggregation: bool,
    }
    enum Step<'a> {
        Visit(&'a BuildingBlock),
        Local(&'a Name, &'a BuildingBlock),
        Build(&'a BuildingBlock),
    }
    // Then a block means the same wherever it occurs.
    let ((root, _), _) = separate_names(root)?;
    let mut locals: FxHashMap<&Name, Has> = FxHashMap::default();
    let mut done: FxHashMap<usize, Has> = FxHashMap::default();
    let mut steps = vec![Step::Visit(&root)];
    while let Some(step) = steps.pop() {
        match step {
            Step::Visit(block) if done.contains_key(&block.address()) => {}
            Step::Visit(block) => {
                let start = steps.len();
                if let Some(of) = block.as_block() {
                    for (name, value) in &of.locals {
                        steps.extend([Step::Visit(value), Step::Local(name, value)]);
                    }
                    steps.push(Step::Visit(&of.result));
                } else {
                    steps.extend(block.children().into_iter().map(Step::Visit));
                }
                steps.push(Step::Build(block));
                steps[start..].reverse();
            }
            Step::Local(name, value) => {
                locals.insert(name, done[&value.address()]);
            }
            Step::Build(block) => {
                let mut has = Has::default();
                for child in block.children() {
                    let child = done[&child.address()];
                    has.consumer |= child.consumer;
                    has.aggregation |= child.aggregation;
                }
                match block.kind() {
                    BlockKind::Reference(of) => {
                        has = locals.get(&of.name).copied().unwrap_or_default();
                    }
                    BlockKind::Intrinsic(uri) => {
                        if let Some(def) = intrinsics::by_uri(uri) {
                            has.consumer = is_consumer(def);
                            has.aggregation = def.aggregation.is_some();
                        }
                    }
                    BlockKind::Call(call) => {
                        let argument = call.argument.as_ref();
                        if done[&call.function.address()].consumer
                            && argument.is_some_and(|of| done[&of.address()].aggregation)
                        {
                            return Ok(Some(block.clone()));
                        }
                    }
                    _ => {}
                }
                done.insert(block.address(), has);
            }
        }
    }
    Ok(None)
}

fn listed(names: &[Name]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// The text of a block, cut if it is long.
pub fn short(block: &BuildingBlock) -> String {
    use std::fmt::Write;

    const LONG: usize = 200;

    /// Takes so many bytes, then fails, which ends the printing.
    struct Cut(String);

    impl Write for Cut {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            let left = LONG.saturating_sub(self.0.len());
            let end = text.char_indices().map(|(at, _)| at).find(|&at| at >= left);
            self.0.push_str(&text[..end.unwrap_or(text.len())]);
            if end.is_some() { Err(std::fmt::Error) } else { Ok(()) }
        }
    }

    let mut cut = Cut(String::new());
    match write!(cut, "{block}") {
        Ok(()) => cut.0,
        Err(_) => format!("{}...", cut.0),
    }
}
