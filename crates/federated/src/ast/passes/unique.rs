//! One name for one thing.

use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ast::names::FreeNames;
use crate::ast::walk::{Transformed, distinct, with_children};
use crate::ast::{BlockKind, BuildingBlock};
use crate::{Name, Result};

/// Every name that a tree uses or binds.
pub fn all_names(root: &BuildingBlock) -> FxHashSet<Name> {
    let mut names = FxHashSet::default();
    for block in distinct(root) {
        match block.kind() {
            BlockKind::Reference(reference) => names.extend([reference.name.clone()]),
            BlockKind::Lambda(lambda) => {
                names.extend(lambda.parameter.as_ref().map(|(name, _)| name.clone()));
            }
            BlockKind::Block(of) => names.extend(of.locals.iter().map(|(name, _)| name.clone())),
            _ => {}
        }
    }
    names
}

/// Names that a tree doesn't have: `_var1`, `_var2`, ...
#[derive(Clone, Debug)]
pub struct NameGenerator {
    prefix: String,
    count: u64,
}

impl NameGenerator {
    /// Names that begin with `prefix`. Where it is `None`, or a name of the tree begins so, three
    /// letters after a line stand for it.
    pub fn new<'a>(root: impl Into<Option<&'a BuildingBlock>>, prefix: Option<&str>) -> Self {
        let names = root.into().map(all_names).unwrap_or_default();
        let free = |prefix: &str| !names.iter().any(|name| name.starts_with(prefix));
        let prefix = match prefix {
            Some(prefix) if free(prefix) => prefix.to_owned(),
            // More prefixes than the tree has names.
            _ => prefixes().find(|prefix| free(prefix)).expect("a prefix is free"),
        };
        Self { prefix, count: 0 }
    }
}

/// `_aaa`, `_aab`, ..., then longer ones.
fn prefixes() -> impl Iterator<Item = String> {
    (0u64..).map(|number| {
        let mut letters = Vec::new();
        let mut rest = number;
        while rest > 0 || letters.len() < 3 {
            letters.push(b'a' + (rest % 26) as u8);
            rest /= 26;
        }
        letters.push(b'_');
        letters.reverse();
        String::from_utf8(letters).expect("letters")
    })
}

impl Iterator for NameGenerator {
    type Item = Name;

    fn next(&mut self) -> Option<Name> {
        self.count += 1;
        Some(format!("{}{}", self.prefix, self.count).into())
    }
}

/// Gives everything that is bound a name of its own, from `fresh`, which must give names that the
/// tree doesn't have. Where a block occurs several times and binds something, each occurrence
/// becomes another block.
///
/// # Errors
/// None that a tree of fitting types can cause.
pub fn uniquify_reference_names<E: From<crate::Error>>(
    root: &BuildingBlock,
    mut fresh: impl FnMut() -> std::result::Result<Name, E>,
) -> std::result::Result<Transformed, E> {
    let mut binds: FxHashSet<usize> = FxHashSet::default();
    for block in distinct(root) {
        let own = match block.kind() {
            BlockKind::Lambda(lambda) => lambda.parameter.is_some(),
            BlockKind::Block(of) => !of.locals.is_empty(),
            _ => false,
        };
        if own || block.children().iter().any(|child| binds.contains(&child.address())) {
            binds.insert(block.address());
        }
    }
    rename(root, |_| fresh(), |block| !binds.contains(&block.address()))
}

/// Renames what is bound so that no two blocks bind one name, and none binds a name that the tree
/// leaves open. A name that is bound once stays. Blocks stay shared as far as can be. Also the
/// former name of each new one.
///
/// # Errors
/// None that a tree of fitting types can cause.
pub fn separate_names(root: &BuildingBlock) -> Result<(Transformed, FxHashMap<Name, Name>)> {
    let mut free = FreeNames::default();
    let open = free.of(root);
    let mut taken: FxHashSet<Name> = free.names(open).into_iter().cloned().collect();
    let mut former = FxHashMap::default();
    let mut is_clear = true;
    for block in distinct(root) {
        match block.kind() {
            BlockKind::Lambda(lambda) => {
                let name = lambda.parameter.as_ref().map(|(name, _)| name);
                is_clear &= name.is_none_or(|name| taken.insert(name.clone()));
            }
            BlockKind::Block(of) => {
                for (name, _) in &of.locals {
                    is_clear &= taken.insert(name.clone());
                }
            }
            _ => {}
        }
    }
    if is_clear {
        return Ok(((root.clone(), false), former));
    }
    let mut fresh = NameGenerator::new(root, Some("_var"));
    let mut taken: FxHashSet<Name> = free.names(open).into_iter().cloned().collect();
    let choose = |name: &Name| -> Result<Name> {
        if taken.insert(name.clone()) {
            return Ok(name.clone());
        }
        let made = fresh.next().expect("names don't end");
        former.insert(made.clone(), name.clone());
        Ok(made)
    };
    let renamed = rename(root, choose, |_| true)?;
    Ok((renamed, former))
}

/// A scope of names that was opened: the higher, the later.
type Scope = u64;

/// Renames what is bound. Occurrences of a block that `may_share`, and whose open names mean the
/// same, become one block.
fn rename<E: From<crate::Error>>(
    root: &BuildingBlock,
    mut choose: impl FnMut(&Name) -> std::result::Result<Name, E>,
    may_share: impl Fn(&BuildingBlock) -> bool,
) -> std::result::Result<Transformed, E> {
    let mut renaming = Renaming::new(root);
    while let Some(step) = renaming.steps.pop() {
        match step {
            Step::Visit(block) => renaming.visit(block),
            Step::Bind(name) => renaming.bind(name, choose(name)?),
            Step::Unbind(name) => renaming.unbind(name),
            Step::Build(block, scope) => {
                let made = renaming.build(block)?;
                if may_share(block)
                    && let Entry::Vacant(entry) = renaming.known.entry((block.address(), scope))
                {
                    entry.insert(made.clone());
                }
                renaming.done.push(made);
            }
        }
    }
    let made = renaming.done.pop().expect("the root was visited");
    let changed = !made.is(root);
    Ok((made, changed))
}

/// What is left to do in [`rename`]; a tree may be deeper than the stack.
enum Step<'a> {
    Visit(&'a BuildingBlock),
    Bind(&'a Name),
    Unbind(&'a Name),
    Build(&'a BuildingBlock, Scope),
}

/// A tree in the middle of [`rename`].
struct Renaming<'a> {
    free: FreeNames,
    /// The new names of each old one, innermost last, with their scopes.
    meanings: FxHashMap<&'a Name, Vec<(Name, Scope)>>,
    /// How many scopes were opened.
    opened: Scope,
    open_scopes: Vec<Scope>,
    /// Blocks built, by the old block and the innermost scope that it depends on.
    known: FxHashMap<(usize, Scope), BuildingBlock>,
    /// Names of the blocks that are being built.
    chosen: Vec<Name>,
    /// Built children that wait for their parent.
    done: Vec<BuildingBlock>,
    steps: Vec<Step<'a>>,
}

impl<'a> Renaming<'a> {
    fn new(root: &'a BuildingBlock) -> Self {
        Self {
            free: FreeNames::default(),
            meanings: FxHashMap::default(),
            opened: 0,
            open_scopes: vec![0],
            known: FxHashMap::default(),
            chosen: Vec::new(),
            done: Vec::new(),
            steps: vec![Step::Visit(root)],
        }
    }

    fn bind(&mut self, name: &'a Name, new: Name) {
        self.opened += 1;
        self.open_scopes.push(self.opened);
        self.meanings.entry(name).or_default().push((new.clone(), self.opened));
        self.chosen.push(new);
    }

    fn unbind(&mut self, name: &'a Name) {
        self.open_scopes.pop();
        self.meanings.get_mut(name).expect("the name was bound").pop();
    }

    /// Finishes what is known; of others, plans the steps.
    fn visit(&mut self, block: &'a BuildingBlock) {
        if let BlockKind::Reference(reference) = block.kind() {
            let meaning = self.meanings.get(&reference.name).and_then(|all| all.last());
            self.done.push(match meaning {
                Some((new, _)) if *new != reference.name => BuildingBlock::reference_in(
                    new.clone(),
                    block.ty().clone(),
                    reference.context.clone(),
                ),
                _ => block.clone(),
            });
            return;
        }
        let scope = self.scope(block);
        if let Some(made) = self.known.get(&(block.address(), scope)) {
            self.done.push(made.clone());
            return;
        }
        let start = self.steps.len();
        match block.kind() {
            BlockKind::Lambda(lambda) => {
                let name = lambda.parameter.as_ref().map(|(name, _)| name);
                self.steps.extend(name.map(Step::Bind));
                self.steps.push(Step::Visit(&lambda.result));
                self.steps.extend(name.map(Step::Unbind));
            }
            BlockKind::Block(of) => {
                for (name, value) in &of.locals {
                    self.steps.extend([Step::Visit(value), Step::Bind(name)]);
                }
                self.steps.push(Step::Visit(&of.result));
                self.steps.extend(of.locals.iter().rev().map(|(name, _)| Step::Unbind(name)));
            }
            _ => self.steps.extend(block.children().into_iter().map(Step::Visit)),
        }
        self.steps.push(Step::Build(block, scope));
        self.steps[start..].reverse();
    }

    /// The innermost scope that a block depends on.
    fn scope(&mut self, block: &BuildingBlock) -> Scope {
        const MANY: usize = 32;
        let names = self.free.of(block);
        if self.free.len(names) > MANY {
            return *self.open_scopes.last().expect("the outermost");
        }
        let scopes = self.free.names(names).into_iter();
        let scopes = scopes.filter_map(|name| Some(self.meanings.get(name)?.last()?.1));
        scopes.max().unwrap_or_default()
    }

    /// A block of its built children, which are taken; the old one, if nothing of it changed.
    fn build(&mut self, block: &BuildingBlock) -> Result<BuildingBlock> {
        let before = block.children();
        let children = self.done.split_off(self.done.len() - before.len());
        let names = match block.kind() {
            BlockKind::Lambda(lambda) => usize::from(lambda.parameter.is_some()),
            BlockKind::Block(of) => of.locals.len(),
            _ => 0,
        };
        let names = self.chosen.split_off(self.chosen.len() - names);
        let same = children.iter().zip(&before).all(|(now, before)| now.is(before));
        Ok(match block.kind() {
            BlockKind::Lambda(lambda) => match (&lambda.parameter, names.first()) {
                (Some((old, ty)), Some(new)) if !same || old != new => {
                    let parameter = Some((new.clone(), ty.clone()));
                    BuildingBlock::lambda(parameter, children[0].clone())
                }
                (None, _) if !same => BuildingBlock::lambda(None, children[0].clone()),
                _ => block.clone(),
            },
            BlockKind::Block(of)
                if !same || of.locals.iter().zip(&names).any(|(old, new)| old.0 != *new) =>
            {
                let mut children = children;
                let result = children.pop().expect("a block has a result");
                BuildingBlock::block(names.into_iter().zip(children).collect(), result)
            }
            _ if same => block.clone(),
            _ => with_children(block, children)?,
        })
    }
}
