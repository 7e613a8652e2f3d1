//! What the data of operations' results follows from, where a trace may know it without looking.
//!
//! Names stand without their modules and underscores, as in `raising.rs`. What isn't listed gives data that
//! nobody knows. `tests/soundness/tensors/test_data_rows.py` runs each name on PyTorch's samples.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

/// What the data of a result follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Where the elements come from.
    pub origin: DataOrigin,
    /// When they are all zeros, or all ones.
    pub uniform: Uniform,
}

/// Where the elements of a result come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataOrigin {
    /// Numbers alone: no tensor is among the arguments.
    Numbers,
    /// The arguments alone: the same arguments give the same data.
    Arguments,
}

/// When a result consists of zeros or of ones, whatever its sizes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uniform {
    /// That doesn't follow from the name.
    Unknown,
    /// Always: of ones, if this is true.
    Always(bool),
    /// If the argument at this place, or of the name `fill_value`, is zero or one.
    Filled(usize),
    /// If the first argument does: the result holds elements of it, and no others.
    Part,
    /// As [`Uniform::Part`], unless the elements are of another type: then their bytes are read as that.
    Bytes,
    /// If the first argument consists of these, because that is what the result for no elements is, too.
    Neutral(bool),
}

const fn row(origin: DataOrigin, uniform: Uniform, names: &'static str) -> (Data, &'static str) {
    (Data { origin, uniform }, names)
}

use DataOrigin::{Arguments, Numbers};
use Uniform::{Always, Bytes, Filled, Neutral, Part, Unknown};

/// The rows.
const ROWS: &[(Data, &str)] = &[
    row(Numbers, Unknown, "arange eye linspace scalar_tensor tensor"),
    row(Numbers, Always(true), "ones"),
    row(Numbers, Always(false), "zeros"),
    row(Numbers, Filled(1), "full"),
    row(Arguments, Always(true), "new_ones ones_like"),
    row(Arguments, Always(false), "new_zeros zeros_like"),
    row(Arguments, Filled(1), "full_like"),
    row(Arguments, Filled(2), "new_full"),
    row(Arguments, Neutral(true), "all"),
    row(Arguments, Neutral(false), "any"),
    row(
        Arguments,
        Part,
        "bfloat16 bool broadcast_to byte clone contiguous cpu detach diagonal double expand expand_as \
         flatten float flip getitem half int long movedim moveaxis narrow permute repeat reshape \
         reshape_as roll select squeeze swapaxes swapdims t to transpose type_as unflatten unsqueeze \
         view_as",
    ),
    row(Arguments, Bytes, "view"),
    row(
        Arguments,
        Unknown,
        "abs add amax amin and bitwise_and bitwise_not bitwise_or bitwise_xor cat clamp concat \
         constant_pad_nd cumsum diff div divide eq floor_divide ge greater greater_equal gt interpolate invert le less \
         less_equal logical_and logical_not logical_or logical_xor lt masked_fill max maximum min \
         minimum mul multiply ne neg negative not not_equal or outer pad stack sub subtract sum tril \
         triu upsample_nearest1d upsample_nearest2d upsample_nearest3d where xor",
    ),
];

static INDEX: LazyLock<FxHashMap<&str, Data>> = LazyLock::new(|| {
    let names = |(data, names): &(Data, &'static str)| {
        let data = *data;
        names.split_whitespace().map(move |name| (name, data))
    };
    ROWS.iter().flat_map(names).collect()
});

/// What the data of an operation's result follows from; the name stands without modules and overloads.
#[must_use]
pub fn data(name: &str) -> Option<Data> {
    INDEX.get(name.trim_matches('_')).copied()
}

/// The rows, for tests: the names, and what is known of them.
pub fn data_rows() -> impl Iterator<Item = (Vec<&'static str>, Data)> {
    ROWS.iter().map(|(data, names)| (names.split_whitespace().collect(), *data))
}

#[cfg(test)]
mod tests {
    use super::{INDEX, data_rows};

    #[test]
    fn each_name_stands_once() {
        assert_eq!(data_rows().map(|(names, _)| names.len()).sum::<usize>(), INDEX.len());
    }
}
