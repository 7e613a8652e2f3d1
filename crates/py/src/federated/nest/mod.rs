//! The functions of `stator.federated.common_libs.structure`: structs and nested containers.

mod containers;
mod functions;
mod tree;

pub use containers::{Fields, attrs_fields, dataclass_fields, field_names, fields_of};
pub use functions::{register, to_odict};
