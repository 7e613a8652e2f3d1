//! Federated computations: programs over values that live at many clients and at a server.
//!
//! A computation is a typed abstract syntax tree of [`ast::BuildingBlock`]s. Types and trees are
//! immutable and shared. Layers, lowest first: `dtype`, `placement`, `error` < `types`, `array` <
//! `ast` < `intrinsics` < `wire`, `factory` < `tracing`, `execution`. Nothing here knows of Python:
//! what belongs to it (container classes, callables) passes through as opaque handles.

pub mod analysis;
pub mod array;
pub mod ast;
pub mod dtype;
pub mod error;
pub mod execution;
pub mod factory;
pub mod intrinsics;
pub mod placement;
pub mod tracing;
pub mod types;
pub mod wire;

use std::sync::Arc;

pub use error::{Class, Error, Result};

/// The name of a field, a symbol or a label.
pub type Name = Arc<str>;
