//! Operations that are given sizes, bounds and indices which a program has read from tensors.
//!
//! No guard speaks of such a number: whatever an operation asks of it is decided in the middle of a replay. So only operations are
//! listed whose shape rule says all of it: which numbers there may be, and how large the results are. Of all others the
//! numbers themselves are decided.

/// Names without their modules, sorted: each operation that is recorded is looked up. An in-place form isn't meant.
const NUMBERED: [&str; 36] = [
    "arange",
    "bartlett_window",
    "blackman_window",
    "broadcast_to",
    "constant_pad_nd",
    "empty",
    "expand",
    "eye",
    "full",
    "hamming_window",
    "hann_window",
    "linspace",
    "logspace",
    "narrow",
    "new_empty",
    "new_full",
    "new_ones",
    "new_zeros",
    "one_hot",
    "ones",
    "pad",
    "rand",
    "randn",
    "randperm",
    "repeat",
    "repeat_interleave",
    "reshape",
    "roll",
    "select",
    "split",
    "split_with_sizes",
    "topk",
    "tril",
    "triu",
    "view",
    "zeros",
];

/// Whether the shape rule of an operation says all that it asks of numbers that are sizes, bounds or indices.
#[must_use]
pub fn is_numbered(name: &str) -> bool {
    NUMBERED.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{NUMBERED, is_numbered};

    #[test]
    fn names_are_sorted_and_stand_once() {
        assert!(NUMBERED.is_sorted_by(|left, right| left < right));
    }

    #[test]
    fn dimensions_and_counts_of_results_are_none() {
        assert!(is_numbered("arange") && is_numbered("split"));
        assert!(!is_numbered("chunk") && !is_numbered("unsqueeze") && !is_numbered("roll_"));
    }
}
