//! A Python function's parameters: which type they have together, and what can be passed to them.

use crate::Name;
use crate::error::{Class, Error, Result};
use crate::types::{Container, Field, StructType, Type};

/// The kinds of parameters that Python has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Before a `/`.
    PositionalOnly,
    /// An ordinary one.
    Ordinary,
    /// `*args`
    Varargs,
    /// Behind a `*`.
    KeywordOnly,
    /// `**kwargs`
    Keywords,
}

/// One parameter.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: Name,
    /// How it is passed.
    pub kind: Kind,
    /// Whether it may be left out.
    pub default: bool,
}

/// Refuses parameters that no computation can have.
///
/// # Errors
/// `Class::Type`: a default, or a parameter that isn't an ordinary one.
pub fn check_ordinary(parameters: &[Parameter]) -> Result<()> {
    for Parameter { name, kind, default } in parameters {
        let wrong = |what: &str, hint: &str| {
            Err(Error::new(Class::Type, format!("a computation can't have {what}"))
                .expected("ordinary parameters without defaults")
                .found(format_args!("`{name}`"))
                .hint(hint))
        };
        match kind {
            _ if *default => {
                return wrong(
                    "a parameter with a default",
                    "declare it without the default, or let the function's body name the value",
                );
            }
            Kind::Ordinary => {}
            Kind::PositionalOnly => {
                return wrong("a positional-only parameter", "remove the `/` behind it");
            }
            Kind::KeywordOnly => {
                return wrong("a keyword-only parameter", "remove the `*` before it");
            }
            Kind::Varargs | Kind::Keywords => {
                return wrong(
                    "a variable number of parameters",
                    "declare one parameter, of a struct type",
                );
            }
        }
    }
    Ok(())
}

/// The names of the parameters that types are given for, where a default that stays is a constant: those without a
/// default, and as many others, in order, as there are types.
///
/// # Errors
/// `Class::Type`: there is a parameter that isn't an ordinary one, and no constant.
pub fn typed(parameters: &[Parameter], given: &[Option<Type>]) -> Result<Vec<Name>> {
    let is_constant =
        |parameter: &&Parameter| parameter.default && parameter.kind == Kind::KeywordOnly;
    let others: Vec<Parameter> =
        parameters.iter().filter(|parameter| !is_constant(parameter)).cloned().collect();
    let plain = others.iter().map(|parameter| Parameter { default: false, ..parameter.clone() });
    check_ordinary(&plain.collect::<Vec<_>>())?;
    let needed = others.iter().filter(|parameter| !parameter.default).count();
    let types = match given {
        [Some(ty)] if needed > 1 => ty.as_struct().map_or(needed, StructType::len),
        _ => given.len(),
    };
    let count = types.clamp(needed, others.len());
    Ok(others.into_iter().take(count).map(|parameter| parameter.name).collect())
}

/// The type of a function's parameters together, from the types given for them. `None` among
/// the given types is a type that was given as `None`.
///
/// # Errors
/// `Class::Type`: there are more or fewer types than parameters, or their names differ.
pub fn type_of(names: &[Name], given: &[Option<Type>]) -> Result<Option<Type>> {
    match (names, given) {
        ([], []) | ([], [None]) => Ok(None),
        ([_], [ty]) => Ok(ty.clone()),
        (_, [ty]) => struct_for(names, ty.as_ref()).map(Some),
        _ => {
            let types = given.iter().map(|ty| ty.as_ref().ok_or_else(none_given).cloned());
            let types = types.collect::<Result<Vec<_>>>()?;
            if names.len() == 1 {
                return Ok(Some(Type::unnamed(types)));
            }
            if names.len() != types.len() {
                return Err(Error::new(Class::Type, "there must be a type for each parameter")
                    .expected(format_args!("{} for {}", plural(names.len(), "type"), list(names)))
                    .found(format_args!("{}: {}", plural(types.len(), "type"), join(&types))));
            }
            named(names, types.into_iter()).map(Some)
        }
    }
}

/// One struct type for several parameters.
fn struct_for(names: &[Name], ty: Option<&Type>) -> Result<Type> {
    let ty = ty.ok_or_else(none_given)?;
    let fields = match ty.as_struct() {
        Some(structure) if structure.len() == names.len() && !names.is_empty() => {
            structure.fields()
        }
        _ => {
            let error = Error::new(Class::Type, "the type doesn't fit the function's parameters");
            return Err(match names.len() {
                0 => error.expected("no type: the function has no parameters").found(ty),
                _ => {
                    let fields = plural(names.len(), "field");
                    let expected =
                        format!("a struct of {fields}, or a type for each of {}", list(names));
                    error.expected(expected).found(ty)
                }
            });
        }
    };
    let given: Vec<&Name> = fields.iter().filter_map(|field| field.name.as_ref()).collect();
    if given.is_empty() {
        return named(names, fields.iter().map(|field| field.ty.clone()));
    }
    if given.len() != fields.len() {
        return Err(Error::new(
            Class::Type,
            "a struct with named and unnamed fields can't be the type of several parameters",
        )
        .expected("names for all fields, or for none")
        .found(ty));
    }
    if given.iter().any(|name| !names.contains(name)) {
        return Err(Error::new(Class::Type, "the fields aren't named as the parameters are")
            .expected(list(names))
            .found(ty));
    }
    Ok(ty.clone())
}

fn named(names: &[Name], types: impl Iterator<Item = Type>) -> Result<Type> {
    let field = |(name, ty): (&Name, Type)| Field { name: Some(name.clone()), ty };
    let fields = names.iter().zip(types).map(field).collect();
    Type::structure(fields, Some(Container::OrderedDict))
}

fn none_given() -> Error {
    Error::new(Class::Type, "`None` is no type").expected("a type for each parameter").found("None")
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn list(names: &[Name]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn join(types: &[Type]) -> String {
    types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether a function with these parameters can be called with so many positional arguments and
/// these keywords. If so, for each parameter with a default, which positional argument or keyword
/// it takes instead of it.
pub fn bind(
    parameters: &[Parameter],
    positional: usize,
    keywords: &[&str],
) -> Option<Vec<Option<super::packing::From>>> {
    use super::packing::From;
    let mut bound: Vec<Option<From>> = vec![None; parameters.len()];
    let mut next = 0;
    let mut varargs = false;
    for (at, parameter) in parameters.iter().enumerate() {
        match parameter.kind {
            Kind::PositionalOnly | Kind::Ordinary if next < positional => {
                bound[at] = Some(From::Position(next));
                next += 1;
            }
            Kind::Varargs => varargs = true,
            _ => {}
        }
    }
    if next < positional && !varargs {
        return None;
    }
    let any = parameters.iter().any(|parameter| parameter.kind == Kind::Keywords);
    for (keyword, name) in keywords.iter().enumerate() {
        let by_name = |parameter: &Parameter| {
            matches!(parameter.kind, Kind::Ordinary | Kind::KeywordOnly)
                && *parameter.name == **name
        };
        match parameters.iter().position(by_name) {
            Some(at) if bound[at].is_none() => bound[at] = Some(From::Keyword(keyword)),
            Some(_) => return None,
            None if any => {}
            None => return None,
        }
    }
    let missing = |(bound, parameter): (&Option<From>, &Parameter)| {
        bound.is_none()
            && !parameter.default
            && !matches!(parameter.kind, Kind::Varargs | Kind::Keywords)
    };
    let complete = !bound.iter().zip(parameters).any(missing);
    complete.then_some(bound)
}

/// The positional arguments and the keywords that the fields of an argument struct are.
pub fn spread(structure: &StructType) -> (usize, Vec<&str>) {
    let named = structure.fields().iter().filter_map(|field| field.name.as_deref());
    let names: Vec<&str> = named.collect();
    (structure.len() - names.len(), names)
}
