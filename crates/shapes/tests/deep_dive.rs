//! The examples of TorchDynamo's deep dive, as they print there.

use std::borrow::Cow;

use stator_shapes::{Cmp, Context, Style, SymbolId, Verdict};

fn name(symbol: SymbolId) -> Cow<'static, str> {
    Context::symbol_name(symbol)
}

fn source(symbol: SymbolId) -> Cow<'static, str> {
    ["L['a'].size()[0]", "L['b'].size()[0]", "L['c'].size()[0]"][symbol.index()].into()
}

fn facts(ctx: &mut Context, name: &dyn Fn(SymbolId) -> Cow<'static, str>) -> Vec<String> {
    let facts = ctx.facts();
    facts
        .iter()
        .filter(|fact| !fact.implicit)
        .map(|fact| ctx.display_cond(fact.cond, Style::Math, name))
        .collect()
}

#[test]
fn equal_sizes_are_one_symbol() {
    let mut ctx = Context::new();
    let a = ctx.size_symbol(8);
    let b = ctx.size_symbol(8);
    assert_eq!(a.expr, b.expr);
    assert_ne!(a.id, b.id);
    assert_eq!(
        facts(&mut ctx, &source),
        ["L['b'].size()[0] == L['a'].size()[0]", "2 <= L['a'].size()[0]"]
    );
}

#[test]
fn a_branch_adds_its_guard() {
    let mut ctx = Context::new();
    let a = ctx.size_symbol(8).expr;
    let two = ctx.constant(2);
    let sixteen = ctx.constant(16);
    let twice = ctx.mul(a, two).unwrap();
    let less = ctx.compare(Cmp::Lt, twice, sixteen);
    let Verdict::Guarded { value: false, fact } = ctx.evaluate(less) else {
        panic!("nothing is known yet")
    };
    assert_eq!(ctx.display_cond(fact, Style::Math, &name), "2*s0 >= 16");
    assert_eq!(facts(&mut ctx, &source), ["2*L['a'].size()[0] >= 16"]);
    assert_eq!(ctx.evaluate(less), Verdict::Known(false));
    assert_eq!(ctx.take_added(), [fact]);

    let guards = ctx.facts();
    let program = ctx.compile(&guards, &|symbol| symbol.index());
    assert!(program.check(&[8], &[]));
    assert!(!program.check(&[7], &[]));
    assert_eq!(program.first_failing(&[7], &[]), Some(0));
}
