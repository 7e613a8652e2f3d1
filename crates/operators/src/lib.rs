//! What is known of callables by name: one table, and what PyTorch says of its own operators.
//!
//! A [`Row`] says of callables of one owner what they do, as far as a trace is concerned. What has no row
//! is unknown, and ends a trace. One rule makes rows out of facts ([`torch::operation`]): an operator of
//! PyTorch with a public name, whose results PyTorch itself computes without data, is determined.
//!
//! ```
//! use stator_operators::{Determined, torch};
//!
//! assert_eq!(torch::operation("torch", "relu"), Some(Determined::Always)); // the rule
//! assert_eq!(torch::operation("torch", "cat"), Some(Determined::Always)); // a row
//! assert_eq!(torch::operation("torch", "nonzero"), Some(Determined::Sized));
//! assert_eq!(torch::operation("torch", "_unique2"), None); // private, and no row
//! ```

#![forbid(unsafe_code)]

mod aten;
mod class;
mod data;
pub mod direct;
mod direct_rows;
mod facts;
mod fills;
pub mod functional;
mod numbered;
mod numeric;
pub mod programs;
mod python;
mod raising;
mod row;
mod rows;
mod schemas;
mod sparse;
mod state;
pub mod torch;
mod versions;

pub use class::{ArrayUse, Class, Determined, Emitter, Model, Why, Writes};
pub use data::{Data, DataOrigin, Uniform, data, data_rows};
pub use facts::Facts;
pub use fills::{Filled, fits, largest, type_of_number};
pub use numbered::is_numbered;
pub use numeric::{Numeric, Range};
pub use python::{PYTHON, only_adds};
pub use raising::{Raising, raises_no_more_for_scalars, raising};
pub use row::{Row, Traits, rows_for};
pub use schemas::{Given, Schemas, Use};
pub use sparse::takes_sparse;
pub use state::STATE;
pub use versions::{Version, Versions, found_torch, torch as torch_version};
