//! Operations that may be given sparse tensors.

/// Those whose results have sizes, a type and a layout that follow from these of their arguments, however many elements a
/// sparse one has, and in which order. They write to no argument, and give back none.
const TAKING: &[&str] = &[
    "__matmul__",
    "__rmatmul__",
    "_sparse_addmm",
    "_sparse_mm",
    "addmm",
    "matmul",
    "mm",
    "mv",
    "spmm",
    "t",
    "to_dense",
];

/// Whether an operation may be given a sparse tensor, by the last part of its name. What isn't listed may not.
#[must_use]
pub fn takes_sparse(name: &str) -> bool {
    TAKING.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order() {
        assert!(TAKING.is_sorted());
    }

    #[test]
    fn what_is_not_listed_may_not() {
        assert!(takes_sparse("mm") && takes_sparse("to_dense"));
        assert!(!takes_sparse("coalesce") && !takes_sparse("values") && !takes_sparse("add"));
    }
}
