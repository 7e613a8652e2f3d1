//! The operations of the language: a table of their uris, types and what they do between places.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::types::Type;

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
    ($($constant:ident $uri:literal $ty:literal, $aggregation:expr, $broadcast:expr;)*) => {
        $(
            #[doc = concat!("The uri `", $uri, "`.")]
            pub const $constant: &str = $uri;
        )*

        static ALL: LazyLock<Vec<IntrinsicDef>> = LazyLock::new(|| vec![
            $(IntrinsicDef {
                uri: $constant,
                ty: Type::parse($ty).expect("the table has types"),
                aggregation: $aggregation,
                broadcast: $broadcast,
            },)*
        ]);
    };
}

const SHOWN: Option<AggregationKind> = Some(AggregationKind::Default);
const HIDDEN: Option<AggregationKind> = Some(AggregationKind::Secure);
const NONE: Option<AggregationKind> = None;

// The type in its notation, how it aggregates, how it broadcasts.
intrinsics! {
    FEDERATED_AGGREGATE "federated_aggregate"
        "(<{T}@CLIENTS,U,(<U,T> -> U),(<U,U> -> U),(U -> R)> -> R@SERVER)", SHOWN, None;
    FEDERATED_APPLY "federated_apply"
        "(<(T -> U),T@SERVER> -> U@SERVER)", NONE, None;
    FEDERATED_BROADCAST "federated_broadcast"
        "(T@SERVER -> T@CLIENTS)", NONE, Some(BroadcastKind::Default);
    FEDERATED_COLLECT "federated_collect"
        "({T}@CLIENTS -> T*@SERVER)", SHOWN, None;
    FEDERATED_EVAL_AT_CLIENTS "federated_eval_at_clients"
        "(( -> T) -> {T}@CLIENTS)", NONE, None;
    FEDERATED_EVAL_AT_SERVER "federated_eval_at_server"
        "(( -> T) -> T@SERVER)", NONE, None;
    FEDERATED_MAP "federated_map"
        "(<(T -> U),{T}@CLIENTS> -> {U}@CLIENTS)", NONE, None;
    FEDERATED_MAP_ALL_EQUAL "federated_map_all_equal"
        "(<(T -> U),T@CLIENTS> -> U@CLIENTS)", NONE, None;
    FEDERATED_MAX "federated_max"
        "({T}@CLIENTS -> T@SERVER)", SHOWN, None;
    FEDERATED_MEAN "federated_mean"
        "({T}@CLIENTS -> T@SERVER)", SHOWN, None;
    FEDERATED_MIN "federated_min"
        "({T}@CLIENTS -> T@SERVER)", SHOWN, None;
    FEDERATED_SECURE_SELECT "federated_secure_select"
        "(<{Ks}@CLIENTS,int32@SERVER,T@SERVER,(<T,int32> -> U)> -> {U*}@CLIENTS)", NONE, Some(BroadcastKind::Secure);
    FEDERATED_SECURE_SUM "federated_secure_sum"
        "(<{V}@CLIENTS,M> -> V@SERVER)", HIDDEN, None;
    FEDERATED_SECURE_SUM_BITWIDTH "federated_secure_sum_bitwidth"
        "(<{V}@CLIENTS,B> -> V@SERVER)", HIDDEN, None;
    FEDERATED_SELECT "federated_select"
        "(<{Ks}@CLIENTS,int32@SERVER,T@SERVER,(<T,int32> -> U)> -> {U*}@CLIENTS)", NONE, Some(BroadcastKind::Default);
    FEDERATED_SUM "federated_sum"
        "({T}@CLIENTS -> T@SERVER)", SHOWN, None;
    FEDERATED_VALUE_AT_CLIENTS "federated_value_at_clients"
        "(T -> T@CLIENTS)", NONE, None;
    FEDERATED_VALUE_AT_SERVER "federated_value_at_server"
        "(T -> T@SERVER)", NONE, None;
    FEDERATED_WEIGHTED_MEAN "federated_weighted_mean"
        "(<{T}@CLIENTS,{U}@CLIENTS> -> T@SERVER)", SHOWN, None;
    FEDERATED_ZIP_AT_CLIENTS "federated_zip_at_clients"
        "(T -> {U}@CLIENTS)", NONE, None;
    FEDERATED_ZIP_AT_SERVER "federated_zip_at_server"
        "(T -> U@SERVER)", NONE, None;
    GENERIC_DIVIDE "generic_divide"
        "(<T,T> -> U)", NONE, None;
    GENERIC_MULTIPLY "generic_multiply"
        "(<T,T> -> T)", NONE, None;
    GENERIC_PLUS "generic_plus"
        "(<T,T> -> T)", NONE, None;
    GENERIC_ZERO "generic_zero"
        "T", NONE, None;
    SEQUENCE_MAP "sequence_map"
        "(<(T -> U),T*> -> U*)", NONE, None;
    SEQUENCE_REDUCE "sequence_reduce"
        "(<T*,U,(<U,T> -> U)> -> U)", NONE, None;
    SEQUENCE_SUM "sequence_sum"
        "(T* -> T)", NONE, None;
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
            assert!(lines[row + 1].starts_with(&format!("\"{}\",", def.ty)), "{}", def.ty);
        }
    }

    #[test]
    fn each_is_found_by_its_uri() {
        assert_eq!(all().len(), 28);
        assert!(all().is_sorted_by_key(|def| def.uri));
        for def in all() {
            assert_eq!(by_uri(def.uri).unwrap().uri, def.uri);
        }
        assert!(by_uri("federated_nothing").is_none());
    }
}
