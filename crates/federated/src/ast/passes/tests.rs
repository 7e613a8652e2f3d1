//! Random trees mean the same after each pass; deep ones are no problem.

use std::rc::Rc;

use proptest::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::*;
use crate::ast::names::FreeNames;
use crate::ast::walk::{Transformed, distinct, preorder};
use crate::ast::{BlockKind, BuildingBlock};
use crate::dtype::DType;
use crate::types::{Field, Type};
use crate::{Name, Result};

fn int() -> Type {
    Type::scalar(DType::Int32)
}

fn pair() -> Type {
    let field = |name: &str, ty| Field { name: Some(name.into()), ty };
    Type::structure(vec![field("a", int()), field("b", int())], None).unwrap()
}

fn function() -> Type {
    Type::function(Some(int()), int())
}

/// Makes random trees of few names, so that they hide each other, with shared blocks.
struct Maker {
    state: u64,
    pool: Vec<BuildingBlock>,
}

impl Maker {
    fn below(&mut self, end: u64) -> u64 {
        // Marsaglia's xorshift.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % end
    }

    /// A name tells its type: what it means may differ.
    fn name(&mut self, ty: &Type) -> Name {
        let names = match ty {
            ty if *ty == int() => ["x", "y", "z"],
            ty if *ty == pair() => ["s", "t", "u"],
            _ => ["f", "g", "h"],
        };
        names[self.below(3) as usize].into()
    }

    fn some_type(&mut self) -> Type {
        [int(), pair(), function()][self.below(3) as usize].clone()
    }

    fn tree(&mut self, ty: &Type, size: u64) -> BuildingBlock {
        if self.below(5) == 0 {
            let fitting: Vec<_> =
                self.pool.iter().filter(|block| block.ty() == ty).cloned().collect();
            if !fitting.is_empty() {
                return fitting[self.below(fitting.len() as u64) as usize].clone();
            }
        }
        let made = self.fresh_tree(ty, size);
        self.pool.push(made.clone());
        made
    }

    fn fresh_tree(&mut self, ty: &Type, size: u64) -> BuildingBlock {
        if size == 0 {
            return BuildingBlock::reference(self.name(ty), ty.clone());
        }
        let size = size - 1;
        match self.below(7) {
            0 | 1 => {
                let count = 1 + self.below(3);
                let locals = (0..count).map(|_| {
                    let of = self.some_type();
                    (self.name(&of), self.tree(&of, size / 2))
                });
                let locals = locals.collect();
                BuildingBlock::block(locals, self.tree(ty, size))
            }
            2 => {
                let of = self.some_type();
                let function = Type::function(Some(of.clone()), ty.clone());
                let name = self.name(&of);
                let lambda = if *ty == int() && of == int() && self.below(2) == 0 {
                    self.tree(&function, size)
                } else {
                    BuildingBlock::lambda(Some((name, of.clone())), self.tree(ty, size))
                };
                BuildingBlock::call(lambda, Some(self.tree(&of, size))).unwrap()
            }
            3 => {
                let lambda = BuildingBlock::lambda(None, self.tree(ty, size));
                BuildingBlock::call(lambda, None).unwrap()
            }
            _ if *ty == int() => {
                let source = self.tree(&pair(), size);
                if self.below(2) == 0 {
                    BuildingBlock::select_name(source, "b").unwrap()
                } else {
                    BuildingBlock::select_index(source, 0).unwrap()
                }
            }
            _ if *ty == pair() => {
                let (a, b) = (self.tree(&int(), size), self.tree(&int(), size));
                let fields = vec![(Some("a".into()), a), (Some("b".into()), b)];
                BuildingBlock::structure(fields, None).unwrap()
            }
            _ => {
                let name = self.name(&int());
                BuildingBlock::lambda(Some((name, int())), self.tree(&int(), size))
            }
        }
    }
}

#[derive(Clone)]
enum Value<'a> {
    Int(u64),
    Pair(u64, u64),
    Closure(&'a BuildingBlock, Env<'a>),
    /// What an open name of a function means.
    Open(u64),
}

/// The meaning of names, innermost first.
type Env<'a> = Option<Rc<Entry<'a>>>;

struct Entry<'a> {
    name: &'a Name,
    value: Value<'a>,
    outer: Env<'a>,
}

fn number(name: &str) -> u64 {
    name.bytes().fold(7, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()))
}

fn evaluate<'a>(block: &'a BuildingBlock, env: &Env<'a>) -> Value<'a> {
    match block.kind() {
        BlockKind::Reference(reference) => {
            let mut scope = env;
            while let Some(entry) = scope {
                if *entry.name == reference.name {
                    return entry.value.clone();
                }
                scope = &entry.outer;
            }
            let number = number(&reference.name);
            match block.ty() {
                ty if *ty == int() => Value::Int(number),
                ty if *ty == pair() => Value::Pair(number, number + 1),
                _ => Value::Open(number),
            }
        }
        BlockKind::Selection(selection) => match evaluate(&selection.source, env) {
            Value::Pair(a, b) => Value::Int(if selection.position() == 0 { a } else { b }),
            _ => unreachable!(),
        },
        BlockKind::Struct(structure) => {
            let mut values = structure.elements.iter().map(|(_, value)| evaluate(value, env));
            match (values.next(), values.next()) {
                (Some(Value::Int(a)), Some(Value::Int(b))) => Value::Pair(a, b),
                _ => unreachable!(),
            }
        }
        BlockKind::Call(call) => {
            let function = evaluate(&call.function, env);
            let argument = call.argument.as_ref().map(|argument| evaluate(argument, env));
            apply(function, argument)
        }
        BlockKind::Lambda(_) => Value::Closure(block, env.clone()),
        BlockKind::Block(of) => {
            let mut env = env.clone();
            for (name, value) in &of.locals {
                let value = evaluate(value, &env);
                env = Some(Rc::new(Entry { name, value, outer: env }));
            }
            evaluate(&of.result, &env)
        }
        _ => unreachable!(),
    }
}

fn apply<'a>(function: Value<'a>, argument: Option<Value<'a>>) -> Value<'a> {
    match (function, argument) {
        (Value::Closure(block, env), argument) => {
            let lambda = block.as_lambda().unwrap();
            let env = match (&lambda.parameter, argument) {
                (Some((name, _)), Some(argument)) => {
                    Some(Rc::new(Entry { name, value: argument, outer: env }))
                }
                _ => env,
            };
            evaluate(&lambda.result, &env)
        }
        (Value::Open(number), Some(Value::Int(argument))) => {
            Value::Int(argument.wrapping_mul(number).wrapping_add(1))
        }
        _ => unreachable!(),
    }
}

/// What a tree means: numbers.
fn meaning(block: &BuildingBlock) -> Vec<u64> {
    match evaluate(block, &None) {
        Value::Int(number) => vec![number],
        Value::Pair(a, b) => vec![a, b],
        function => [3, 4]
            .into_iter()
            .map(|argument| match apply(function.clone(), Some(Value::Int(argument))) {
                Value::Int(number) => number,
                _ => unreachable!(),
            })
            .collect(),
    }
}

fn tree(seed: u64) -> BuildingBlock {
    let mut maker = Maker { state: seed | 1, pool: Vec::new() };
    let ty = maker.some_type();
    maker.tree(&ty, 6)
}

fn uniquify(root: &BuildingBlock) -> Result<Transformed> {
    let mut names = NameGenerator::new(root, Some("_var"));
    uniquify_reference_names(root, || Ok(names.next().unwrap()))
}

/// Checks that a pass keeps the meaning and type, and tells whether it changed something.
fn check(
    root: &BuildingBlock,
    pass: impl Fn(&BuildingBlock) -> Result<Transformed>,
) -> BuildingBlock {
    let (made, changed) = pass(root).unwrap();
    assert_eq!(made.ty(), root.ty());
    assert_eq!(meaning(&made), meaning(root), "{root}\n{made}");
    assert_eq!(changed, !made.is(root), "{root}\n{made}");
    made
}

/// Checks that doing a pass again changes nothing.
fn check_done(root: &BuildingBlock, pass: impl Fn(&BuildingBlock) -> Result<Transformed>) {
    let (made, changed) = pass(root).unwrap();
    assert!(!changed && made.is(root), "{root}\n{made}");
}

fn inline(root: &BuildingBlock) -> Result<Transformed> {
    inline_block_locals(root, None)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn passes_keep_the_meaning(seed: u64) {
        let root = tree(seed);
        let made = check(&root, inline);
        check_done(&made, inline);
        prop_assert!(!preorder(&made).any(|block| block.as_block().is_some()));

        let made = check(&root, remove_unused_block_locals);
        check_done(&made, remove_unused_block_locals);

        let made = check(&root, replace_called_lambda_with_block);
        check_done(&made, replace_called_lambda_with_block);

        let made = check(&root, merge_chained_selections);
        check_done(&made, merge_chained_selections);

        let made = check(&root, selections_by_index);
        check_done(&made, selections_by_index);

        // All after each other: no lambdas are called, no names are left but parameters.
        let made = check(&root, |root| {
            let made = replace_called_lambda_with_block(root)?.0;
            let made = inline_block_locals(&made, None)?.0;
            let made = merge_chained_selections(&made)?.0;
            let changed = !made.is(root);
            Ok((made, changed))
        });
        prop_assert!(!preorder(&made).any(|block| block.as_block().is_some()));
    }

    #[test]
    fn unique_names_are_unique(seed: u64) {
        let root = tree(seed);
        let made = check(&root, uniquify);
        let mut bound: FxHashSet<Name> = FxHashSet::default();
        let mut free = FreeNames::default();
        let open = free.of(&made);
        bound.extend(free.names(open).into_iter().cloned());
        for block in preorder(&made) {
            match block.kind() {
                BlockKind::Lambda(lambda) => {
                    let name = lambda.parameter.as_ref().map(|(name, _)| name.clone());
                    prop_assert!(name.is_none_or(|name| bound.insert(name)));
                }
                BlockKind::Block(of) => {
                    for (name, _) in &of.locals {
                        prop_assert!(bound.insert(name.clone()), "{}", made);
                    }
                }
                _ => {}
            }
        }
        let separate = check(&root, |root| Ok(separate_names(root)?.0));
        check_done(&separate, |root| Ok(separate_names(root)?.0));
    }

    #[test]
    fn only_the_named_locals_are_inlined(seed: u64) {
        let root = tree(seed);
        let only: FxHashSet<Name> = ["x".into(), "s".into()].into_iter().collect();
        check(&root, |root| inline_block_locals(root, Some(&only)));
    }

    #[test]
    fn open_names_are_those_of_a_naive_search(seed: u64) {
        fn open<'a>(block: &'a BuildingBlock, bound: &mut Vec<&'a Name>, into: &mut FxHashSet<Name>) {
            match block.kind() {
                BlockKind::Reference(reference) => {
                    if !bound.contains(&&reference.name) {
                        into.insert(reference.name.clone());
                    }
                }
                BlockKind::Lambda(lambda) => {
                    let depth = bound.len();
                    bound.extend(lambda.parameter.as_ref().map(|(name, _)| name));
                    open(&lambda.result, bound, into);
                    bound.truncate(depth);
                }
                BlockKind::Block(of) => {
                    let depth = bound.len();
                    for (name, value) in &of.locals {
                        open(value, bound, into);
                        bound.push(name);
                    }
                    open(&of.result, bound, into);
                    bound.truncate(depth);
                }
                _ => block.children().into_iter().for_each(|child| open(child, bound, into)),
            }
        }
        let root = tree(seed);
        let mut free = FreeNames::default();
        for block in distinct(&root) {
            let mut naive = FxHashSet::default();
            open(block, &mut Vec::new(), &mut naive);
            let set = free.of(block);
            prop_assert_eq!(free.len(set), naive.len());
            let found: FxHashSet<Name> = free.names(set).into_iter().cloned().collect();
            prop_assert_eq!(found, naive);
        }
    }
}

/// `(let v=.. in (let w=.. in ..))` and `(x -> ..)(..)`, nested this deep.
fn deep(depth: usize) -> BuildingBlock {
    let mut root = BuildingBlock::reference("x", int());
    for at in 0..depth {
        root = match at % 4 {
            0 => {
                let lambda = BuildingBlock::lambda(Some(("x".into(), int())), root);
                BuildingBlock::call(lambda, Some(BuildingBlock::reference("y", int()))).unwrap()
            }
            1 => {
                BuildingBlock::block(vec![("x".into(), BuildingBlock::reference("y", int()))], root)
            }
            2 => {
                let fields = vec![(None, root), (None, BuildingBlock::reference("z", int()))];
                let pair = BuildingBlock::structure(fields, None).unwrap();
                BuildingBlock::select_index(pair, 0).unwrap()
            }
            _ => {
                let f = BuildingBlock::reference("f", function());
                BuildingBlock::call(f, Some(root)).unwrap()
            }
        };
    }
    root
}

#[test]
fn deep_trees_pass() {
    let root = deep(100_000);
    for pass in [
        inline,
        uniquify,
        remove_unused_block_locals,
        replace_called_lambda_with_block,
        merge_chained_selections,
        selections_by_index,
    ] {
        let (made, _) = pass(&root).unwrap();
        assert_eq!(made.ty(), &int());
    }
    assert!(root.to_string().len() > 100_000);
    assert!(root.repr(&mut |_| String::new()).len() > 100_000);
    // Structs in structs would be indented deeper and deeper.
    let root = (0..100_000).fold(BuildingBlock::reference("x", int()), |root, _| {
        let f = BuildingBlock::reference("f", function());
        let call = BuildingBlock::call(f, Some(root)).unwrap();
        BuildingBlock::block(vec![("x".into(), BuildingBlock::reference("y", int()))], call)
    });
    assert!(root.formatted().len() > 100_000);
}

/// Each level uses the one below twice: as a tree it is of 2^depth blocks.
fn doubled(depth: usize) -> BuildingBlock {
    let mut root = BuildingBlock::reference("x", int());
    let add = BuildingBlock::reference("add", Type::function(Some(pair()), int()));
    for at in 0..depth {
        let fields = vec![(Some("a".into()), root.clone()), (Some("b".into()), root)];
        let both = BuildingBlock::structure(fields, None).unwrap();
        root = BuildingBlock::call(add.clone(), Some(both)).unwrap();
        if at % 3 == 0 {
            let name: Name = if at % 2 == 0 { "x" } else { "y" }.into();
            let lambda = BuildingBlock::lambda(Some((name, int())), root);
            root = BuildingBlock::call(lambda, Some(BuildingBlock::reference("x", int()))).unwrap();
        }
        if at % 3 == 1 {
            let value = BuildingBlock::reference("z", int());
            root = BuildingBlock::block(vec![("x".into(), value)], root);
        }
    }
    root
}

#[test]
fn shared_blocks_are_looked_at_once() {
    let root = doubled(300);
    for pass in [
        inline,
        remove_unused_block_locals,
        replace_called_lambda_with_block,
        merge_chained_selections,
        selections_by_index,
    ] {
        let (made, _) = pass(&root).unwrap();
        assert!(distinct(&made).len() < 20 * 300);
    }
    let ((made, _), former) = separate_names(&root).unwrap();
    assert!(distinct(&made).len() < 20 * 300);
    assert!(!former.is_empty());
    assert_eq!(crate::ast::walk::occurrences(&root).values().max(), Some(&u64::MAX));
    let _: FxHashMap<Name, Name> = former;
}
