//! Passes: trees in, trees out that mean the same.
//!
//! Each says whether it changed something, keeps what it didn't change, and takes time in
//! proportion to the blocks of its input and result.

mod called;
mod inline;
mod selections;
#[cfg(test)]
mod tests;
mod unique;
mod unused;

pub use called::replace_called_lambda_with_block;
pub use inline::inline_block_locals;
pub use selections::{merge_chained_selections, selections_by_index};
pub use unique::{NameGenerator, all_names, separate_names, uniquify_reference_names};
pub use unused::remove_unused_block_locals;
