//! The printed forms, and hash-consing.

use insta::assert_snapshot;
use proptest::prelude::*;

use crate::{
    Fact, Gives, GlobalState, Guard, GuardKind, Holders, ObjectId, Objects, Printed, Rests, Source,
    SourceId, Sources, TensorGuard, Vacancy, Value,
};

/// Objects that print as themselves.
struct Table(&'static [(usize, &'static str)]);

impl Objects for Table {
    fn address(&self, object: ObjectId) -> usize {
        self.0[object.index()].0
    }

    fn repr(&self, object: ObjectId) -> String {
        self.0[object.index()].1.to_owned()
    }

    fn type_address(&self, object: ObjectId) -> usize {
        self.0[object.index()].0
    }
}

const OBJECTS: Table = Table(&[
    (94_334_122_025_024, "<class 'str'>"),
    (1, "'Hello'"),
    (2, "'k'"),
    (3, "'not an identifier'"),
    (4, "{1, 2}"),
]);

fn object(index: usize) -> ObjectId {
    ObjectId::new(index)
}

fn local(sources: &mut Sources, index: u16, name: &str) -> SourceId {
    sources.local(index, || name.into())
}

fn guard(source: SourceId, kind: GuardKind) -> Guard {
    Guard { source, kind, location: None }
}

fn tensor() -> TensorGuard {
    TensorGuard {
        python_type: object(0),
        dtype: 6,
        device_type: 0,
        device_index: -1,
        layout: 0,
        requires_grad: false,
        sizes: [Some(4), Some(3)].into(),
        strides: [Some(3), Some(1)].into(),
        key_set: 1,
    }
}

/// One source of each kind; the parent is `L['x']` where there is one.
fn every_source(sources: &mut Sources) -> Vec<SourceId> {
    let x = local(sources, 0, "x");
    let text = |text: &str| text.into();
    let dict = sources.intern(Source::Dict(x));
    let globals = sources.intern(Source::Globals(x));
    let cell = sources.intern(Source::ClosureCell { parent: x, index: 1 });
    let kinds = [
        Source::Anchor { object: object(0), text: text("torch.nn.functional") },
        Source::SysModule { name: text("torch") },
        Source::GlobalState,
        Source::DictItem { parent: x, key: object(2), text: text("'k'") },
        Source::DictItem { parent: dict, key: object(2), text: text("'layers'") },
        Source::DictItem { parent: dict, key: object(3), text: text("'not an identifier'") },
        Source::DictItem { parent: globals, key: object(2), text: text("'cfg'") },
        Source::HashedItem { parent: x, hash: -7 },
        Source::HashedKey { parent: x, hash: -7 },
        Source::ListItem { parent: x, index: 0 },
        Source::LastItem { parent: x, index: 1 },
        Source::TupleItem { parent: x, index: 7 },
        Source::Slot { parent: x, offset: 16, name: text("slot") },
        Source::TypeLookup { parent: x, name: object(1), text: text("forward") },
        Source::SuperLookup { parent: x, after: object(0), name: object(1), text: text("forward") },
        Source::TypeOf(x),
        Source::Builtins(x),
        Source::Code(x),
        Source::Defaults(x),
        Source::KwDefaults(x),
        Source::CellContents(cell),
        Source::MethodSelf(x),
        Source::MethodFunc(x),
        Source::PartialFunc(x),
        Source::PartialArgs(x),
        Source::ShownMapping(x),
        Source::PartialKeywords(x),
        Source::PropertyGet(x),
        Source::PropertySet(x),
        Source::StaticFunc(x),
        Source::ClassFunc(x),
        Source::Referent(x),
    ];
    let mut ids = vec![x, dict, globals, cell];
    ids.extend(kinds.map(|kind| sources.intern(kind)));
    ids
}

#[test]
fn sources_print_the_same_one_after_the_other() {
    let mut sources = Sources::new();
    every_source(&mut sources);
    let x = local(&mut sources, 0, "x");
    let modules = sources.dict_item(x, object(7), || "'modules'".into());
    for parent in [x, modules, modules, x] {
        sources.new_dict_item(parent, object(8), "'weight'".into());
    }
    let mut last = Printed::default();
    let forwards: Vec<_> = sources.iter().map(|(id, _)| id).collect();
    for id in forwards.iter().chain(forwards.iter().rev()) {
        assert_eq!(sources.print_next(*id, &mut last), sources.print(*id));
    }
}

#[test]
fn sources_print_as_the_user_would_write_them() {
    let mut sources = Sources::new();
    let ids = every_source(&mut sources);
    let lines: Vec<_> = ids.iter().map(|id| sources.print(*id)).collect();
    assert_snapshot!(lines.join("\n"), @r"
    L['x']
    L['x'].__dict__
    G
    L['x'].__closure__[1]
    torch.nn.functional
    sys.modules['torch']
    global state
    L['x']['k']
    L['x'].layers
    L['x'].__dict__['not an identifier']
    G['cfg']
    L['x'].___of_hash(-7)
    L['x'].___key_of_hash(-7)
    L['x'][0]
    L['x'][-1]
    L['x'][7]
    L['x'].slot
    L['x'].forward
    super(o0, L['x']).forward
    type(L['x'])
    L['x'].__builtins__
    L['x'].__code__
    L['x'].__defaults__
    L['x'].__kwdefaults__
    L['x'].__closure__[1].cell_contents
    L['x'].__self__
    L['x'].__func__
    L['x'].func
    L['x'].args
    L['x'].mapping
    L['x'].keywords
    L['x'].fget
    L['x'].fset
    L['x'].__func__
    L['x'].__func__
    L['x']()
    ");
}

#[test]
fn only_the_entry_has_short_globals() {
    let mut sources = Sources::new();
    let entry = sources.anchor(object(0), || "fn".into());
    let other = sources.anchor(object(1), || "helper".into());
    sources.set_entry(entry);
    let mut global = |function| {
        let globals = sources.intern(Source::Globals(function));
        let item = sources.dict_item(globals, object(2), || "'cfg'".into());
        sources.print(item)
    };
    assert_eq!(global(entry), "G['cfg']");
    assert_eq!(global(other), "helper.__globals__['cfg']");
}

#[test]
fn guards_print_as_the_deep_dive_shows_them() {
    let mut sources = Sources::new();
    let a = local(&mut sources, 0, "a");
    let b = local(&mut sources, 1, "b");
    let state = sources.intern(Source::GlobalState);
    let dict = sources.intern(Source::Dict(a));
    let dynamic = TensorGuard {
        device_type: 1,
        device_index: 0,
        requires_grad: true,
        sizes: [None, Some(3)].into(),
        ..tensor()
    };
    let fact = Fact { name: "torch.is_grad_enabled()", value: Value::Bool(true) };
    let level = Fact { name: "level", value: Value::Int(-1) };
    let vacancy = Vacancy {
        absent: [(object(2), "'k'".into())].into(),
        empty: [(object(2), "'hooks'".into()), (object(2), "1".into())].into(),
    };
    let holders = Holders([(object(2), "'first'".into()), (object(2), "'second'".into())].into());
    let guards = [
        guard(b, GuardKind::TypeIs(object(0))),
        guard(b, GuardKind::Is(object(0))),
        guard(b, GuardKind::IsNone),
        guard(b, GuardKind::IsNotNone),
        guard(b, GuardKind::Equals(object(1))),
        guard(b, GuardKind::Length(2)),
        guard(b, GuardKind::DictKeys([object(1), object(2)].into())),
        guard(b, GuardKind::DictLength(2)),
        guard(b, GuardKind::KeyAbsent { key: object(2), text: "'k'".into() }),
        guard(dict, GuardKind::KeyAbsent { key: object(2), text: "'k'".into() }),
        guard(dict, GuardKind::Vacant(vacancy.into())),
        guard(
            dict,
            GuardKind::AbsentWithin { key: object(2), text: "'k'".into(), holders: holders.into() },
        ),
        guard(b, GuardKind::SetEquals(object(4))),
        guard(b, GuardKind::Holds(object(1))),
        guard(b, GuardKind::LookupAbsent { name: object(2), text: "k".into() }),
        guard(b, GuardKind::SlotUnset { offset: 16, name: "slot".into() }),
        guard(b, GuardKind::CellEmpty),
        guard(b, GuardKind::NoInstanceDict),
        guard(a, GuardKind::Tensor(tensor().into())),
        guard(a, GuardKind::Tensor(dynamic.into())),
        guard(a, GuardKind::SameAs(b)),
        guard(a, GuardKind::Distinct([b].into())),
        guard(a, GuardKind::Distinct([b, dict].into())),
        guard(state, GuardKind::GlobalState(GlobalState { facts: [fact, level].into() }.into())),
    ];
    let lines: Vec<_> = guards.iter().map(|guard| sources.print_guard(guard, &OBJECTS)).collect();
    assert_snapshot!(lines.join("\n"), @r"
    ___check_type_id(L['b'], 94334122025024)
    ___check_obj_id(L['b'], 94334122025024)
    L['b'] is None
    L['b'] is not None
    L['b'] == 'Hello'
    len(L['b']) == 2
    list(L['b']) == ['Hello', 'k']
    len(L['b']) == 2
    'k' not in L['b']
    'k' not in vars(L['a'])
    'k' not in vars(L['a']) and len(L['a'].hooks) == 0 and len(L['a'].__dict__[1]) == 0
    'k' not in vars(L['a']) and type(L['a'].first) is dict and 'k' not in L['a'].first and type(L['a'].second) is dict and 'k' not in L['a'].second
    L['b'] == {1, 2}
    ___value(L['b']) == 'Hello'
    not hasattr(L['b'], 'k')
    not hasattr(L['b'], 'slot')
    not hasattr(L['b'], 'cell_contents')
    not hasattr(L['b'], '__dict__')
    check_tensor(L['a'], torch.float32, device=None, requires_grad=False, size=[4, 3], stride=[3, 1])
    check_tensor(L['a'], torch.float32, device=0, requires_grad=True, size=[None, 3], stride=[3, 1])
    L['a'] is L['b']
    L['a'] is not L['b']
    ___check_distinct(L['a'], L['b'], L['a'].__dict__)
    ___check_global_state(torch.is_grad_enabled() == True, level == -1)
    ");
}

#[test]
fn states_say_where_they_differ() {
    let state = |value| GlobalState {
        facts: [Fact { name: "torch.is_grad_enabled()", value: Value::Bool(value) }].into(),
    };
    let (on, off) = (state(true), state(false));
    assert_eq!(on.differences(&on).count(), 0);
    assert_eq!(
        on.differences(&off).collect::<Vec<_>>(),
        [(&on.facts[0], Some(&off.facts[0].value))]
    );
}

#[test]
fn every_kind_of_source_is_a_slot_of_its_own() {
    let mut sources = Sources::new();
    let mut ids = every_source(&mut sources);
    let count = sources.len();
    assert_eq!(every_source(&mut sources), ids, "the same slots again");
    assert_eq!(sources.len(), count);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

proptest! {
    /// Interning is a function of the slot, parents come first, and texts don't matter.
    #[test]
    fn interning(steps in prop::collection::vec((0..6_u8, any::<prop::sample::Index>(), 0..4_usize), 1..200)) {
        let mut sources = Sources::new();
        let mut known = std::collections::HashMap::new();
        let root = local(&mut sources, 0, "x");
        let mut ids = vec![root];
        for (number, (kind, parent, payload)) in steps.into_iter().enumerate() {
            let parent = ids[parent.index(ids.len())];
            let text: crate::Text = format!("'t{number}'").into();
            let source = match kind {
                0 => Source::Dict(parent),
                1 => Source::DictItem { parent, key: object(payload), text },
                2 => Source::ListItem { parent, index: payload },
                3 => Source::TupleItem { parent, index: payload },
                4 => Source::Slot { parent, offset: payload, name: text },
                _ => Source::TypeLookup { parent, name: object(payload), text },
            };
            let payload = if kind == 0 { 0 } else { payload };
            let id = sources.intern(source);
            prop_assert!(sources.get(id).parent() == Some(parent) && parent < id);
            let first = *known.entry((kind, parent, payload)).or_insert(id);
            prop_assert_eq!(first, id);
            ids.push(id);
            prop_assert!(sources.print(id).starts_with("L['x']") || sources.print(id).contains("L['x']"));
        }
        prop_assert_eq!(sources.len(), known.len() + 1);
        let order: Vec<_> = sources.iter().map(|(id, _)| id).collect();
        prop_assert!(order.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

/// Not a bound in CI, where machines are noisy: prints what an intern costs.
#[test]
#[ignore = "a measurement"]
fn intern_cost() {
    for _ in 0..3 {
        let mut sources = Sources::new();
        let x = local(&mut sources, 0, "x");
        let mut round = || {
            let start = std::time::Instant::now();
            for key in 0..5_000 {
                sources.dict_item(x, object(key), || "'k'".into());
            }
            start.elapsed().as_nanos() / 5_000
        };
        let (new, known) = (round(), round());
        println!("new {new} ns, known {known} ns");
    }
}

#[test]
fn iterators_print_what_they_go_over() {
    let mut sources = Sources::new();
    let a = local(&mut sources, 0, "a");
    let inner = sources.intern(Source::Iterated { parent: a, index: 1 });
    let items = sources.intern(Source::Iterated { parent: inner, index: 0 });
    assert_eq!(sources.print(items), "L['a'].___over[1].___over[0]");
    assert_ne!(sources.intern(Source::Iterated { parent: a, index: 0 }), inner);
    let at = guard(inner, GuardKind::IteratorAt([3, -1, 2]));
    let printed = sources.print_guard(&at, &OBJECTS);
    assert_eq!(printed, "___check_position(L['a'].___over[1], (3, -1, 2))");
    let item = sources.intern(Source::Upcoming { parent: inner, index: 2 });
    let key = sources.intern(Source::UpcomingKey { parent: inner, index: 2 });
    assert_eq!(sources.print(item), "L['a'].___over[1].___upcoming[2]");
    assert_eq!(sources.print(key), "L['a'].___over[1].___upcoming_keys[2]");
    let gives = guard(inner, GuardKind::Gives(Gives { items: 2, ends: false, parts: 1 }));
    assert_eq!(sources.print_guard(&gives, &OBJECTS), "___check_gives(L['a'].___over[1], 2 of 1)");
    let gives = guard(a, GuardKind::Gives(Gives { items: 1, ends: true, parts: 3 }));
    assert_eq!(sources.print_guard(&gives, &OBJECTS), "___check_gives(L['a'], 1 of 3 and ends)");
    let rests = Rests { unit: 12, started: true, slots: 3, live: 0b101, bound: 0b100 };
    let rests = guard(a, GuardKind::GeneratorAt(rests));
    let printed = sources.print_guard(&rests, &OBJECTS);
    assert_eq!(printed, "___check_generator(L['a'], 12, 3 slots, 0x4)");
    let slot = sources.intern(Source::GeneratorSlot { parent: a, index: 2 });
    let function = sources.intern(Source::GeneratorFunction(a));
    assert_eq!(sources.print(slot), "L['a'].gi_frame.___slots[2]");
    assert_eq!(sources.print(function), "L['a'].___function");
}
