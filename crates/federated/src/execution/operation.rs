//! The operations of the language by their uris.

use crate::intrinsics as uris;

macro_rules! operations {
    ($($variant:ident $uri:ident;)*) => {
        /// An operation of the language that is a function.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each is named by its uri")]
        pub enum Operation { $($variant),* }

        impl Operation {
            /// Every operation.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its uri.
            pub fn uri(self) -> &'static str {
                match self { $(Self::$variant => uris::$uri),* }
            }

            /// The operation with this uri.
            pub fn from_uri(uri: &str) -> Option<Self> {
                match uri {
                    $(uris::$uri => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

operations! {
    Aggregate FEDERATED_AGGREGATE;
    Apply FEDERATED_APPLY;
    Broadcast FEDERATED_BROADCAST;
    Collect FEDERATED_COLLECT;
    EvalAtClients FEDERATED_EVAL_AT_CLIENTS;
    EvalAtServer FEDERATED_EVAL_AT_SERVER;
    Map FEDERATED_MAP;
    MapAllEqual FEDERATED_MAP_ALL_EQUAL;
    Max FEDERATED_MAX;
    Mean FEDERATED_MEAN;
    Min FEDERATED_MIN;
    SecureSelect FEDERATED_SECURE_SELECT;
    SecureSum FEDERATED_SECURE_SUM;
    SecureSumBitwidth FEDERATED_SECURE_SUM_BITWIDTH;
    Select FEDERATED_SELECT;
    Sum FEDERATED_SUM;
    ValueAtClients FEDERATED_VALUE_AT_CLIENTS;
    ValueAtServer FEDERATED_VALUE_AT_SERVER;
    WeightedMean FEDERATED_WEIGHTED_MEAN;
    ZipAtClients FEDERATED_ZIP_AT_CLIENTS;
    ZipAtServer FEDERATED_ZIP_AT_SERVER;
    Divide GENERIC_DIVIDE;
    Multiply GENERIC_MULTIPLY;
    Plus GENERIC_PLUS;
    SequenceMap SEQUENCE_MAP;
    SequenceReduce SEQUENCE_REDUCE;
    SequenceSum SEQUENCE_SUM;
}

/// The uri of the one operation that is a value: the zero of its type.
pub const ZERO: &str = uris::GENERIC_ZERO;
