//! Types are printed and read back: tests of the notation.

use proptest::prelude::*;

use super::*;
use crate::types::Container;

/// Any type without Python containers.
fn types() -> impl Strategy<Value = Type> {
    let dims = prop::collection::vec(prop::option::of(0u64..20), 0..4);
    let leaf = prop_oneof![
        8 => (prop::sample::select(DType::ALL), dims)
            .prop_map(|(dtype, dims)| Type::tensor(dtype, Shape::new(dims))),
        1 => prop::sample::select(DType::ALL)
            .prop_map(|dtype| Type::tensor(dtype, Shape::unknown_rank())),
        1 => Just(Type::placement()),
        1 => "[A-Z]".prop_map(|label| Type::abstract_type(label.as_str())),
    ];
    leaf.prop_recursive(5, 24, 5, |inner| {
        let name = prop::option::of("[a-zé_][a-z0-9_é]{0,6}|");
        let fields = prop::collection::vec((name, inner.clone()), 0..5);
        let placed = (inner.clone(), prop::sample::select(&Placement::ALL[..]), any::<bool>());
        prop_oneof![
            fields.prop_filter_map("names are taken once", |fields| {
                let field =
                    |(name, ty): (Option<String>, Type)| Field { name: name.map(Name::from), ty };
                Type::structure(fields.into_iter().map(field).collect(), None).ok()
            }),
            inner.clone().prop_filter_map("no sequence of these", |ty| Type::sequence(ty).ok()),
            (prop::option::of(inner.clone()), inner)
                .prop_map(|(parameter, result)| Type::function(parameter, result)),
            placed.prop_filter_map("no member of these", |(member, placement, all_equal)| {
                Type::federated(member, placement, Some(all_equal)).ok()
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100_000))]

    #[test]
    fn what_is_printed_is_read(ty in types()) {
        prop_assert_eq!(&Type::parse(&ty.to_string())?, &ty);
        prop_assert_eq!(&Type::parse(&ty.formatted())?, &ty);
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn any_text_is_a_type_or_an_error(text in "[<>(){}\\[\\]@*=,?' \na-zA-Z0-9é-]{0,20}") {
        if let Ok(ty) = Type::parse(&text) {
            prop_assert_eq!(&Type::parse(&ty.to_string())?, &ty);
        }
    }
}

#[test]
fn deep_types_are_read_printed_and_dropped() {
    const DEPTH: usize = 100_000;
    for (open, close) in [("<", ">"), ("<a=", ",int32>"), ("( -> ", ")"), ("(bool -> ", ")")] {
        let text = format!("{}int32{}", open.repeat(DEPTH), close.repeat(DEPTH));
        let ty = Type::parse(&text).unwrap();
        assert_eq!(ty.to_string(), text);
        assert!(ty.repr().len() > text.len());
    }
}

#[test]
fn containers_are_not_written() {
    let field = |ty| Field { name: None, ty };
    let int = Type::scalar(DType::Int32);
    let ty = Type::structure(vec![field(int.clone())], Some(Container::List)).unwrap();
    let read = Type::parse(&ty.to_string()).unwrap();
    assert_eq!(read, Type::structure(vec![field(int)], None).unwrap());
}

#[test]
fn errors_say_where() {
    let cases = [
        ("", "line 1, column 1: the text says no type", "expected: a type\n  found:    the end"),
        ("int32 bool", "column 7: ", "expected: the end\n  found:    `b`"),
        ("<int32,bool", "column 12: ", "expected: `,` or `>`"),
        ("(int32)", "column 7: ", "expected: `->`"),
        ("(int32 -> )", "column 11: ", "expected: a type\n  found:    `)`"),
        ("int32@", "column 7: ", "expected: a placement, CLIENTS or SERVER"),
        ("int32@HERE", "column 7: ", "found:    `H`"),
        ("int32[2,x]", "column 9: ", "expected: a size or `?`\n  found:    `x`"),
        ("{int32}", "column 8: ", "expected: `@` and a placement"),
        ("<a=int32,a=bool>", "column 1: two fields are named `a`", ""),
        ("<(int32 -> bool)*>", "column 2: the element of a sequence can't", ""),
        ("<\n  int32,\n  'bool'>", "line 3, column 3: ", "`(shape=None)`"),
    ];
    for (text, first, rest) in cases {
        let error = Type::parse(text).unwrap_err().to_string();
        assert!(error.contains(first) && error.contains(rest), "{text}: {error}");
    }
    let error = Type::parse("<a=int32,b=>").unwrap_err().to_string();
    let expected = "line 1, column 12: the text says no type\n  \
                    there:    <a=int32,b=>\n            \
                    \u{20}          ^\n  \
                    expected: a type\n  found:    `>`";
    assert_eq!(error, expected);
}
