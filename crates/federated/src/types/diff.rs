//! Where and how two types differ, for messages.

use std::fmt::Write;

use rustc_hash::FxHashSet;

use super::{StructType, Type, TypeKind};
use crate::error::{Error, brief};

/// A step from a type to one in it.
#[derive(Clone, Copy)]
enum Step {
    Field(usize),
    Element,
    Member,
    Parameter,
    Result,
}

/// A pair of types on the way to where two differ.
struct Visit<'a> {
    expected: &'a Type,
    found: &'a Type,
    /// Whether it is `expected` that has to fit into `found`: under a parameter.
    reversed: bool,
    /// The visit that this one came from, and the step.
    from: Option<(usize, Step)>,
}

impl Type {
    /// The notation, cut if it is long.
    pub fn brief(&self) -> String {
        const LONG: usize = 200;
        brief(self, LONG)
    }

    /// What keeps a value of type `found` from standing where this type is asked for: where the
    /// types differ, and how. Nothing if that is plain to see.
    pub fn misfit(&self, found: &Self) -> Option<String> {
        let mut visits = vec![Visit { expected: self, found, reversed: false, from: None }];
        let mut seen: FxHashSet<(&Self, &Self, bool)> = FxHashSet::default();
        // Indices of visits; the last one is the next.
        let mut left = vec![0];
        while let Some(at) = left.pop() {
            let Visit { expected, found, reversed, .. } = visits[at];
            if expected == found || !seen.insert((expected, found, reversed)) {
                continue;
            }
            if let Some(difference) = difference(expected, found, reversed) {
                if at == 0 && difference.plain {
                    return None;
                }
                let place = path(&visits, at);
                let place = if place.is_empty() { "it" } else { &place };
                return Some(format!("{place} {}", difference.text));
            }
            let mut next = Vec::new();
            let mut push = |expected, found, reversed, step| {
                visits.push(Visit { expected, found, reversed, from: Some((at, step)) });
                next.push(visits.len() - 1);
            };
            match (expected.kind(), found.kind()) {
                (TypeKind::Struct(a), TypeKind::Struct(b)) => {
                    for (index, (a, b)) in a.fields().iter().zip(b.fields()).enumerate() {
                        push(&a.ty, &b.ty, reversed, Step::Field(index));
                    }
                }
                (TypeKind::Sequence(a), TypeKind::Sequence(b)) => {
                    push(a, b, reversed, Step::Element);
                }
                (TypeKind::Federated(a), TypeKind::Federated(b)) => {
                    push(&a.member, &b.member, reversed, Step::Member);
                }
                (TypeKind::Function(a), TypeKind::Function(b)) => {
                    if let (Some(a), Some(b)) = (&a.parameter, &b.parameter) {
                        push(a, b, !reversed, Step::Parameter);
                    }
                    push(&a.result, &b.result, reversed, Step::Result);
                }
                _ => {}
            }
            left.extend(next.into_iter().rev());
        }
        None
    }
}

/// How two types differ by themselves.
struct Difference {
    text: String,
    /// Whether two whole types show it as well.
    plain: bool,
}

fn difference(expected: &Type, found: &Type, reversed: bool) -> Option<Difference> {
    let (target, source) = if reversed { (found, expected) } else { (expected, found) };
    let some = |text, plain| Some(Difference { text, plain });
    let types = || {
        let verbs = if reversed { ("take", "takes") } else { ("be", "is") };
        some(format!("must {} {}, {} {}", verbs.0, expected.brief(), verbs.1, found.brief()), true)
    };
    match (target.kind(), source.kind()) {
        (TypeKind::Tensor(to), TypeKind::Tensor(from)) => {
            let fits = to.dtype == from.dtype && to.shape.is_assignable_from(&from.shape);
            if fits { None } else { types() }
        }
        (TypeKind::Struct(_), TypeKind::Struct(_)) => {
            let fields = |ty: &Type| ty.as_struct().map_or(0, StructType::len);
            if fields(expected) != fields(found) {
                return some(
                    format!("must have {}, has {}", count(fields(expected)), fields(found)),
                    false,
                );
            }
            let names = |ty: &Type, at: usize| {
                ty.as_struct().and_then(|of| of.fields().get(at)?.name.clone())
            };
            let wrong = (0..fields(target)).find(|&at| {
                let from = names(source, at);
                from.is_some() && from != names(target, at)
            })?;
            let text = |ty| match names(ty, wrong) {
                Some(name) => format!("named `{name}`"),
                None => "without a name".to_owned(),
            };
            let (wanted, there) = (text(expected), text(found));
            some(format!("must have field {wrong} {wanted}, has it {there}"), false)
        }
        (TypeKind::Function(to), TypeKind::Function(from)) => {
            if to.parameter.is_some() == from.parameter.is_some() {
                return None;
            }
            let takes =
                |ty: &Type| ty.as_function().is_some_and(|function| function.parameter.is_some());
            let text = if takes(expected) { "must take" } else { "must not take" };
            some(format!("{text} a parameter"), true)
        }
        (TypeKind::Federated(to), TypeKind::Federated(from)) => {
            let at = |ty: &Type| ty.as_federated().map(|federated| federated.placement);
            if let (Some(wanted), Some(there)) = (at(expected), at(found))
                && wanted != there
            {
                return some(format!("must be at {wanted}, is at {there}"), true);
            }
            if to.all_equal && !from.all_equal {
                let text = "must be equal at all places, and may differ";
                return some(text.to_owned(), false);
            }
            None
        }
        (TypeKind::Sequence(_), TypeKind::Sequence(_))
        | (TypeKind::Placement, TypeKind::Placement) => None,
        _ => types(),
    }
}

fn count(fields: usize) -> String {
    if fields == 1 { "1 field".to_owned() } else { format!("{fields} fields") }
}

/// The steps to a visit, as one would select: `result.a[2]`.
fn path(visits: &[Visit<'_>], at: usize) -> String {
    let mut steps = Vec::new();
    let mut from = visits[at].from;
    while let Some((before, step)) = from {
        steps.push((before, step));
        from = visits[before].from;
    }
    let mut text = String::new();
    for (before, step) in steps.into_iter().rev() {
        let word = match step {
            Step::Field(index) => {
                let structure = visits[before].expected.as_struct();
                match structure.and_then(|of| of.fields()[index].name.as_deref()) {
                    Some(name) => name,
                    None => {
                        write!(text, "[{index}]").expect("writing to a string");
                        continue;
                    }
                }
            }
            Step::Element => "element",
            Step::Member => "member",
            Step::Parameter => "parameter",
            Step::Result => "result",
        };
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(word);
    }
    text
}

impl Error {
    /// The type that was asked for, the one that was there, and where they differ.
    #[must_use]
    pub fn types(self, expected: &Type, found: &Type) -> Self {
        let error = self.expected(expected.brief()).found(found.brief());
        match expected.misfit(found) {
            Some(text) => error.note("because", text),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misfit(expected: &str, found: &str) -> Option<String> {
        let [expected, found] = [expected, found].map(|text| Type::parse(text).unwrap());
        assert!(!expected.is_assignable_from(&found).unwrap());
        expected.misfit(&found)
    }

    #[test]
    fn says_where_types_differ() {
        let cases = [
            ("int32", "bool", None),
            ("<int32>", "<bool>", Some("[0] must be int32, is bool")),
            ("<a=int32,b=<bool,c=str>>", "<int32,<bool,c=int8>>", Some("b.c must be str, is int8")),
            ("<a=int32>", "<b=int32>", Some("it must have field 0 named `a`, has it named `b`")),
            ("<int32>", "<b=int32>", Some("it must have field 0 without a name, has it named `b`")),
            ("<int32,bool>", "<int32>", Some("it must have 2 fields, has 1")),
            (
                "(<int32> -> bool)",
                "(<int8> -> bool)",
                Some("parameter[0] must take int32, takes int8"),
            ),
            (
                "( -> <a=bool[2]>)",
                "( -> <a=bool[?]>)",
                Some("result.a must be bool[2], is bool[?]"),
            ),
            ("<( -> int32)>", "<(bool -> int32)>", Some("[0] must not take a parameter")),
            (
                "int32@CLIENTS",
                "{int32}@CLIENTS",
                Some("it must be equal at all places, and may differ"),
            ),
            ("<int32@SERVER>", "<int32@CLIENTS>", Some("[0] must be at SERVER, is at CLIENTS")),
            ("{int32*}@CLIENTS", "{bool*}@CLIENTS", Some("member.element must be int32, is bool")),
        ];
        for (expected, found, text) in cases {
            assert_eq!(misfit(expected, found).as_deref(), text, "{expected} {found}");
        }
    }

    #[test]
    fn is_short_for_huge_types() {
        // As a tree, this type has 2^60 leaves.
        let mut left = Type::parse("<int32,int32>").unwrap();
        let mut right = Type::parse("<int32,int8>").unwrap();
        for _ in 0..60 {
            [left, right] = [left, right].map(|ty| Type::unnamed([ty.clone(), ty]));
        }
        let error = left.check_assignable_from(&right).unwrap_err().to_string();
        assert!(error.len() < 1000, "{error}");
        assert!(error.ends_with("[1] must be int32, is int8"), "{error}");
    }
}
