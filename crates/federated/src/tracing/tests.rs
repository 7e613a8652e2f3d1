//! Scopes, finished trees and zips, also of great depth.

use super::{Scope, finished};
use crate::Name;
use crate::ast::{BlockKind, BuildingBlock};
use crate::dtype::DType;
use crate::factory;
use crate::placement::Placement;
use crate::types::{Container, Field, Type};

fn int() -> Type {
    Type::scalar(DType::Int32)
}

fn at_clients(member: Type) -> Type {
    Type::federated(member, Placement::Clients, None).unwrap()
}

fn named(fields: &[(&str, Type)], container: Option<Container>) -> Type {
    let field = |(name, ty): &(&str, Type)| Field { name: Some(Name::from(*name)), ty: ty.clone() };
    Type::structure(fields.iter().map(field).collect(), container).unwrap()
}

fn scope(name: &str, around: &[&str]) -> Scope {
    let around: Vec<Name> = around.iter().map(|name| Name::from(*name)).collect();
    Scope::new(name, &around, "what".into())
}

#[test]
fn names_differ_from_those_around() {
    assert_eq!(&**scope("f", &[]).name(), "f");
    assert_eq!(&**scope("f", &["g"]).name(), "f");
    assert_eq!(&**scope("f", &["f"]).name(), "f_1");
    assert_eq!(&**scope("f", &["f_1", "g", "f"]).name(), "f_2");
}

#[test]
fn symbols_become_locals() {
    let mut scope = scope("f", &[]);
    let parameter = scope.parameter("arg", int());
    let first = scope.bind(parameter.clone());
    let second = scope.bind(first);
    let (lambda, outer) = scope.finish(Some(&parameter), second);
    assert!(outer.is_none());
    let expected = "(f_arg -> (let fc_f_symbol_0=f_arg,fc_f_symbol_1=fc_f_symbol_0 in \
                    fc_f_symbol_1))";
    assert_eq!(lambda.to_string(), expected);
}

#[test]
fn a_scope_closes_when_it_ends_or_is_dropped() {
    let ended = scope("f", &[]);
    let open = ended.open().clone();
    assert!(open.is_open());
    let parameter = ended.parameter("arg", int());
    ended.finish(Some(&parameter), parameter.clone());
    assert!(!open.is_open());
    let dropped = scope("f", &[]);
    let open = dropped.open().clone();
    drop(dropped);
    assert!(!open.is_open());
}

#[test]
fn a_scope_knows_the_innermost_one_around_that_it_uses() {
    let outer = scope("a", &[]);
    let middle = scope("b", &["a"]);
    let mut inner = scope("c", &["b", "a"]);
    inner.uses(middle.open());
    inner.uses(outer.open());
    let own = inner.open().clone();
    inner.uses(&own);
    let parameter = inner.parameter("arg", int());
    let (_, used) = inner.finish(Some(&parameter), parameter.clone());
    assert!(used.unwrap().is(middle.open()));
}

#[test]
fn finished_trees_have_positions_and_no_containers() {
    let ty = named(&[("a", int()), ("b", int())], Some(Container::Dict));
    let parameter = BuildingBlock::reference("x", ty.clone());
    let field = BuildingBlock::select_name(parameter, "b").unwrap();
    let pair = vec![(None, field.clone()), (None, field)];
    let result = BuildingBlock::structure(pair, Some(Container::List)).unwrap();
    let lambda = BuildingBlock::lambda(Some(("x".into(), ty)), result);
    let done = finished(&lambda).unwrap();
    assert_eq!(done.to_string(), "(x -> <x[1],x[1]>)");
    assert!(!done.ty().facts().any(crate::types::Facts::CONTAINER));
    // What was shared is.
    let BlockKind::Lambda(lambda) = done.kind() else { panic!("a lambda") };
    let fields = &lambda.result.as_struct().unwrap().elements;
    assert!(fields[0].1.is(&fields[1].1));
    // Twice is once.
    assert!(finished(&done).unwrap().is(&done));
}

#[test]
fn deep_trees_are_finished() {
    let same = BuildingBlock::reference("f", Type::function(Some(int()), int()));
    let ty = named(&[("a", int())], None);
    let mut block = BuildingBlock::select_name(BuildingBlock::reference("x", ty), "a").unwrap();
    for _ in 0..100_000 {
        block = BuildingBlock::call(same.clone(), Some(block)).unwrap();
    }
    let done = finished(&block).unwrap().to_string();
    assert!(done.ends_with(&format!("f(x[0]{}", ")".repeat(100_000))));
}

#[test]
fn deep_structs_are_zipped() {
    let mut ty = at_clients(int());
    let mut member = int();
    for _ in 0..100_000 {
        ty = Type::unnamed([ty]);
        member = Type::unnamed([member]);
    }
    let zip = factory::federated_zip(BuildingBlock::reference("x", ty)).unwrap();
    assert!(*zip.ty() == at_clients(member));
}

#[test]
fn values_are_zipped_where_that_makes_them_fit() {
    let pair = Type::unnamed([at_clients(int()), at_clients(int())]);
    let value = BuildingBlock::reference("v", named(&[("y", pair), ("z", int())], None));
    let both = at_clients(Type::unnamed([int(), int()]));
    let target = named(&[("y", both), ("z", int())], None);
    let zipped = factory::zip_to_match(&value, &target).unwrap().unwrap();
    assert_eq!(zipped.to_string(), "<y=federated_zip_at_clients(v[0]),z=v[1]>");
    assert!(factory::zip_to_match(&value, &int()).unwrap().is_none());
}
