//! The operations of the language: a table of their uris, types and what they do between places.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::dtype::DType;
use crate::error::Result;
use crate::placement::Placement::{self, Clients, Server};
use crate::types::{Field, Type};

/// How an operation brings values of the clients together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AggregationKind {
    /// The server may see the single values.
    Default = 1,
    /// The server sees the result only.
    Secure = 2,
}

/// How an operation brings a value of the server to the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BroadcastKind {
    /// The server may see what each client asks for.
    Default = 1,
    /// The server doesn't see it.
    Secure = 2,
}

/// An operation of the language.
#[derive(Clone, Debug)]
pub struct IntrinsicDef {
    /// Its name in trees and messages: `federated_map`.
    pub uri: &'static str,
    /// Its type, in which labels stand for any type.
    pub ty: Type,
    /// How it aggregates, if it does.
    pub aggregation: Option<AggregationKind>,
    /// How it broadcasts, if it does.
    pub broadcast: Option<BroadcastKind>,
}

/// Declares the uris as constants and the table of all operations.
macro_rules! intrinsics {
    ($($constant:ident $uri:literal $ty:expr, $aggregation:expr, $broadcast:expr;)*) => {
        $(
            #[doc = concat!("The uri `", $uri, "`.")]
            pub const $constant: &str = $uri;
        )*

        static ALL: LazyLock<Vec<IntrinsicDef>> = LazyLock::new(|| vec![
            $(IntrinsicDef {
                uri: $constant,
                ty: $ty,
                aggregation: $aggregation,
                broadcast: $broadcast,
            },)*
        ]);
    };
}

const SHOWN: Option<AggregationKind> = Some(AggregationKind::Default);
const HIDDEN: Option<AggregationKind> = Some(AggregationKind::Secure);
const NONE: Option<AggregationKind> = None;

// Above each, its type in notation: a test compares.
intrinsics! {
    // (<{T}@CLIENTS,U,(<U,T> -> U),(<U,U> -> U),(U -> R)> -> R@SERVER)
    FEDERATED_AGGREGATE "federated_aggregate"
        of(&[
            each("T"),
            label("U"),
            of(&[label("U"), label("T")], label("U")),
            of(&[label("U"), label("U")], label("U")),
            function(label("U"), label("R")),
        ], server("R")), SHOWN, None;
    // (<(T -> U),T@SERVER> -> U@SERVER)
    FEDERATED_APPLY "federated_apply"
        of(&[function(label("T"), label("U")), server("T")], server("U")), NONE, None;
    // (T@SERVER -> T@CLIENTS)
    FEDERATED_BROADCAST "federated_broadcast"
        function(server("T"), all_clients("T")), NONE, Some(BroadcastKind::Default);
    // (( -> T) -> {T}@CLIENTS)
    FEDERATED_EVAL_AT_CLIENTS "federated_eval_at_clients"
        function(Type::function(None, label("T")), each("T")), NONE, None;
    // (( -> T) -> T@SERVER)
    FEDERATED_EVAL_AT_SERVER "federated_eval_at_server"
        function(Type::function(None, label("T")), server("T")), NONE, None;
    // (<(T -> U),{T}@CLIENTS> -> {U}@CLIENTS)
    FEDERATED_MAP "federated_map"
        of(&[function(label("T"), label("U")), each("T")], each("U")), NONE, None;
    // (<(T -> U),T@CLIENTS> -> U@CLIENTS)
    FEDERATED_MAP_ALL_EQUAL "federated_map_all_equal"
        of(&[function(label("T"), label("U")), all_clients("T")], all_clients("U")), NONE, None;
    // ({T}@CLIENTS -> T@SERVER)
    FEDERATED_MAX "federated_max" function(each("T"), server("T")), SHOWN, None;
    // ({T}@CLIENTS -> T@SERVER)
    FEDERATED_MEAN "federated_mean" function(each("T"), server("T")), SHOWN, None;
    // ({T}@CLIENTS -> T@SERVER)
    FEDERATED_MIN "federated_min" function(each("T"), server("T")), SHOWN, None;
    // (<{Ks}@CLIENTS,int32@SERVER,T@SERVER,(<T,int32> -> U)> -> {U*}@CLIENTS)
    FEDERATED_SECURE_SELECT "federated_secure_select" select(), NONE, Some(BroadcastKind::Secure);
    // (<{V}@CLIENTS,M> -> V@SERVER)
    FEDERATED_SECURE_SUM "federated_secure_sum"
        of(&[each("V"), label("M")], server("V")), HIDDEN, None;
    // (<{V}@CLIENTS,B> -> V@SERVER)
    FEDERATED_SECURE_SUM_BITWIDTH "federated_secure_sum_bitwidth"
        of(&[each("V"), label("B")], server("V")), HIDDEN, None;
    // (<{Ks}@CLIENTS,int32@SERVER,T@SERVER,(<T,int32> -> U)> -> {U*}@CLIENTS)
    FEDERATED_SELECT "federated_select" select(), NONE, Some(BroadcastKind::Default);
    // ({T}@CLIENTS -> T@SERVER)
    FEDERATED_SUM "federated_sum" function(each("T"), server("T")), SHOWN, None;
    // (T -> T@CLIENTS)
    FEDERATED_VALUE_AT_CLIENTS "federated_value_at_clients"
        function(label("T"), all_clients("T")), NONE, None;
    // (T -> T@SERVER)
    FEDERATED_VALUE_AT_SERVER "federated_value_at_server"
        function(label("T"), server("T")), NONE, None;
    // (<{T}@CLIENTS,{U}@CLIENTS> -> T@SERVER)
    FEDERATED_WEIGHTED_MEAN "federated_weighted_mean"
        of(&[each("T"), each("U")], server("T")), SHOWN, None;
    // (T -> {U}@CLIENTS)
    FEDERATED_ZIP_AT_CLIENTS "federated_zip_at_clients"
        function(label("T"), each("U")), NONE, None;
    // (T -> U@SERVER)
    FEDERATED_ZIP_AT_SERVER "federated_zip_at_server"
        function(label("T"), server("U")), NONE, None;
    // (<T,T> -> U)
    GENERIC_DIVIDE "generic_divide" of(&[label("T"), label("T")], label("U")), NONE, None;
    // (<T,T> -> T)
    GENERIC_MULTIPLY "generic_multiply" of(&[label("T"), label("T")], label("T")), NONE, None;
    // (<T,T> -> T)
    GENERIC_PLUS "generic_plus" of(&[label("T"), label("T")], label("T")), NONE, None;
    // T
    GENERIC_ZERO "generic_zero" label("T"), NONE, None;
    // (<(T -> U),T*> -> U*)
    SEQUENCE_MAP "sequence_map"
        of(&[function(label("T"), label("U")), sequence("T")], sequence("U")), NONE, None;
    // (<T*,U,(<U,T> -> U)> -> U)
    SEQUENCE_REDUCE "sequence_reduce"
        of(&[sequence("T"), label("U"), of(&[label("U"), label("T")], label("U"))], label("U")),
        NONE, None;
    // (T* -> T)
    SEQUENCE_SUM "sequence_sum" function(sequence("T"), label("T")), NONE, None;
}

/// All operations, in the order of their uris.
pub fn all() -> &'static [IntrinsicDef] {
    &ALL
}

/// The operation with this uri.
pub fn by_uri(uri: &str) -> Option<&'static IntrinsicDef> {
    static BY_URI: LazyLock<FxHashMap<&'static str, usize>> =
        LazyLock::new(|| all().iter().enumerate().map(|(at, def)| (def.uri, at)).collect());
    Some(&all()[*BY_URI.get(uri)?])
}

/// Checks that a type is one that the operation with this uri can have. Nothing is known of
/// other uris.
///
/// # Errors
/// Those of [`Type::check_concrete_instance_of`].
pub fn check(uri: &str, ty: &Type) -> Result<()> {
    let Some(def) = by_uri(uri) else { return Ok(()) };
    ty.check_concrete_instance_of(&def.ty)
        .map_err(|error| error.in_context(format_args!("`{uri}` can't be of this type")))
}

impl IntrinsicDef {
    /// Its name as a constant: `FEDERATED_MAP`.
    pub fn name(&self) -> String {
        self.uri.to_ascii_uppercase()
    }
}

fn label(label: &str) -> Type {
    Type::abstract_type(label)
}

fn function(parameter: Type, result: Type) -> Type {
    Type::function(Some(parameter), result)
}

/// A function of a struct of these.
fn of(parameters: &[Type], result: Type) -> Type {
    let field = |ty: &Type| Field { name: None, ty: ty.clone() };
    let fields = parameters.iter().map(field).collect();
    function(Type::structure(fields, None).expect("fields without names"), result)
}

fn sequence(of: &str) -> Type {
    Type::sequence(label(of)).expect("a label may be an element")
}

fn at(member: Type, placement: Placement, all_equal: bool) -> Type {
    Type::federated(member, placement, Some(all_equal)).expect("the member may be placed")
}

fn each(of: &str) -> Type {
    at(label(of), Clients, false)
}

/// The same at all clients.
fn all_clients(of: &str) -> Type {
    at(label(of), Clients, true)
}

fn server(of: &str) -> Type {
    at(label(of), Server, true)
}

fn select() -> Type {
    let int32 = || Type::scalar(DType::Int32);
    let pick = of(&[label("T"), int32()], label("U"));
    let keys = each("Ks");
    of(&[keys, at(int32(), Server, true), server("T"), pick], at(sequence("U"), Clients, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_as_the_table_says() {
        let source = include_str!("intrinsics.rs");
        let lines: Vec<&str> = source.lines().map(str::trim).collect();
        for def in all() {
            let start = format!("{} \"{}\"", def.name(), def.uri);
            let row = lines.iter().position(|line| line.starts_with(&start)).unwrap();
            assert_eq!(lines[row - 1], format!("// {}", def.ty));
        }
    }

    #[test]
    fn each_is_found_by_its_uri() {
        assert_eq!(all().len(), 27);
        assert!(all().is_sorted_by_key(|def| def.uri));
        for def in all() {
            assert_eq!(by_uri(def.uri).unwrap().uri, def.uri);
        }
        assert!(by_uri("federated_nothing").is_none());
    }
}
