//! Which argument of a call goes to which field of a computation's parameter.

use crate::Name;
use crate::error::{Class, Error, Result};
use crate::types::{StructType, Type};

/// How the arguments of a call become the one argument of a computation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packing {
    /// There is no argument.
    Nothing,
    /// The only positional argument is the argument.
    Whole,
    /// The arguments are the fields of a struct, in the order of the fields.
    Fields(Vec<From>),
}

/// Where a field comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The positional argument at this position.
    Position(usize),
    /// The keyword argument at this position, in the order of the call.
    Keyword(usize),
}

/// How `positional` arguments and those named `keywords` are packed for `parameter`.
///
/// # Errors
/// `Class::Type`: they don't fit it.
pub fn pack(parameter: Option<&Type>, positional: usize, keywords: &[&str]) -> Result<Packing> {
    let Some(parameter) = parameter else {
        return match positional + keywords.len() {
            0 => Ok(Packing::Nothing),
            _ => Err(Error::new(Class::Type, "the computation takes no arguments")
                .expected("no arguments")
                .found(count(positional, keywords))),
        };
    };
    match (positional, keywords) {
        (0, []) => Err(Error::new(Class::Type, "the computation needs an argument")
            .expected(parameter)
            .found("no arguments")),
        (1, []) => Ok(Packing::Whole),
        _ => {
            let Some(structure) = parameter.as_struct() else {
                return Err(Error::new(
                    Class::Type,
                    "the computation takes one positional argument",
                )
                .expected(parameter)
                .found(count(positional, keywords)));
            };
            pack_fields(structure, parameter, positional, keywords).map(Packing::Fields)
        }
    }
}

/// The arguments as the fields of a struct.
///
/// # Errors
/// `Class::Type`: they don't fit it.
pub fn pack_fields(
    structure: &StructType,
    parameter: &Type,
    positional: usize,
    keywords: &[&str],
) -> Result<Vec<From>> {
    let wrong = |message: String| Error::new(Class::Type, message).expected(parameter);
    if !is_argument_struct(structure) {
        return Err(wrong(
            "a struct with unnamed fields behind named ones can't be given as several arguments"
                .to_owned(),
        )
        .found(count(positional, keywords))
        .hint("give the whole struct as the only argument"));
    }
    let mut used = vec![false; keywords.len()];
    let mut fields = Vec::with_capacity(structure.len());
    for (at, field) in structure.fields().iter().enumerate() {
        let keyword = field.name.as_deref().and_then(|name| {
            let at = keywords.iter().position(|keyword| *keyword == name)?;
            Some((name, at))
        });
        fields.push(match keyword {
            Some((name, _)) if at < positional => {
                return Err(wrong(format!("the argument `{name}` is given twice"))
                    .found(format_args!("position {at} and `{name}=...`")));
            }
            _ if at < positional => From::Position(at),
            Some((_, keyword)) => {
                used[keyword] = true;
                From::Keyword(keyword)
            }
            None => {
                let which = match field.name.as_deref().filter(|name| !name.is_empty()) {
                    Some(name) => format!("the argument `{name}` of type {} is missing", field.ty),
                    None => format!("the argument {at} of type {} is missing", field.ty),
                };
                return Err(wrong(which).found(count(positional, keywords)));
            }
        });
    }
    if positional > structure.len() {
        return Err(wrong(format!("{} positional arguments are too many", positional))
            .found(count(positional, keywords)));
    }
    if let Some(at) = used.iter().position(|used| !used) {
        return Err(wrong(format!("there is no argument `{}`", keywords[at]))
            .found(count(positional, keywords)));
    }
    Ok(fields)
}

/// Whether a struct can be given as positional arguments and keywords: no unnamed field stands
/// behind a named one.
pub fn is_argument_struct(structure: &StructType) -> bool {
    names_come_last(structure.fields().iter().map(|field| field.name.as_ref()))
}

/// Whether no unnamed field stands behind a named one.
pub fn names_come_last<'a>(names: impl IntoIterator<Item = Option<&'a Name>>) -> bool {
    let mut named = false;
    names.into_iter().all(|name| match name.filter(|name| !name.is_empty()) {
        Some(_) => {
            named = true;
            true
        }
        None => !named,
    })
}

/// `2 positional arguments and `a=``.
fn count(positional: usize, keywords: &[&str]) -> String {
    let mut parts = Vec::new();
    match positional {
        0 => {}
        1 => parts.push("1 positional argument".to_owned()),
        _ => parts.push(format!("{positional} positional arguments")),
    }
    parts.extend(keywords.iter().map(|name| format!("`{name}=...`")));
    match parts.split_last() {
        None => "no arguments".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::types::Field;

    fn structure(names: &[Option<&str>]) -> Type {
        let field = |name: &Option<&str>| Field {
            name: name.map(Name::from),
            ty: Type::scalar(DType::Int32),
        };
        Type::structure(names.iter().map(field).collect(), None).unwrap()
    }

    fn message(packing: Result<Packing>) -> String {
        packing.unwrap_err().message().to_owned()
    }

    #[test]
    fn arguments_go_to_fields_by_position_then_by_name() {
        let ty = structure(&[None, Some("a"), Some("b")]);
        let packed = pack(Some(&ty), 2, &["b"]).unwrap();
        assert_eq!(
            packed,
            Packing::Fields(vec![From::Position(0), From::Position(1), From::Keyword(0)])
        );
        let packed = pack(Some(&ty), 1, &["b", "a"]).unwrap();
        assert_eq!(
            packed,
            Packing::Fields(vec![From::Position(0), From::Keyword(1), From::Keyword(0)])
        );
    }

    #[test]
    fn one_argument_is_passed_as_it_is() {
        let ty = structure(&[Some("a"), Some("b")]);
        assert_eq!(pack(Some(&ty), 1, &[]).unwrap(), Packing::Whole);
        assert_eq!(pack(None, 0, &[]).unwrap(), Packing::Nothing);
    }

    #[test]
    fn arguments_that_do_not_fit_are_named() {
        let ty = structure(&[Some("a"), Some("b")]);
        let of = |positional, keywords: &[&str]| message(pack(Some(&ty), positional, keywords));
        assert_eq!(of(2, &["a"]), "the argument `a` is given twice");
        assert_eq!(of(0, &["a"]), "the argument `b` of type int32 is missing");
        assert_eq!(of(3, &[]), "3 positional arguments are too many");
        assert_eq!(of(2, &["c"]), "there is no argument `c`");
        assert_eq!(of(0, &[]), "the computation needs an argument");
        assert_eq!(message(pack(None, 1, &[])), "the computation takes no arguments");
        let mixed = structure(&[Some("a"), None]);
        assert!(message(pack(Some(&mixed), 2, &[])).contains("behind named ones"));
        let tensor = Type::scalar(DType::Int32);
        assert!(message(pack(Some(&tensor), 2, &[])).contains("one positional"));
    }
}
