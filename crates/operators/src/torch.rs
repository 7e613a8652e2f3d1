//! PyTorch's operations: rows, and the rule for operators that have none.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use crate::aten;
use crate::class::{Class, Determined};
use crate::facts::Facts;
use crate::row::{Row, Traits};
pub use crate::rows::OPERATIONS;
use crate::versions;

/// Owners whose names are operators written in C, in the order in which a function with several names
/// gets the one that is printed; and how the names begin in print.
pub const NAMESPACES: &[(&str, &str)] = &[
    ("torch._C._VariableFunctions", "torch"),
    ("torch._C._linalg", "torch.linalg"),
    ("torch._C._fft", "torch.fft"),
    ("torch._C._special", "torch.special"),
    ("torch._C._nn", "torch._C._nn"),
    ("torch._C._sparse", "torch._C._sparse"),
];

/// Where operators of `torch.ops` are.
pub const ATEN: &str = "torch.ops.aten";

/// When the results' metadata of an operation follows from its inputs'; `None`: it's unknown.
///
/// A row of the owner is asked first, then one of any owner. Without a row an operator with a public name
/// (in `torch.ops.aten`, with any name) is determined if PyTorch has kernels for all its overloads that give
/// tensors without seeing data, and no tag says otherwise.
#[must_use]
pub fn operation(owner: &str, name: &str) -> Option<Determined> {
    if let Some(Class::Operation(determined)) = row(owner, name).map(|row| row.class) {
        return Some(determined);
    }
    let is_named = owner == ATEN || !name.starts_with('_');
    let is_shaped = |facts: Facts| facts.has(Facts::SHAPED_WITHOUT_DATA);
    (is_named && facts(name).is_some_and(is_shaped)).then_some(Determined::Always)
}

/// The rows of a name, whoever owns it, that speak of this PyTorch.
fn rows(name: &str) -> impl Iterator<Item = &'static Row> + Clone {
    static INDEX: OnceLock<FxHashMap<&str, Vec<&'static Row>>> = OnceLock::new();
    let index = INDEX.get_or_init(|| {
        let mut index: FxHashMap<_, Vec<_>> = FxHashMap::default();
        for row in OPERATIONS {
            row.names().for_each(|name| index.entry(name).or_default().push(row));
        }
        index
    });
    let version = versions::torch();
    let found = index.get(name).map_or(&[][..], Vec::as_slice);
    found.iter().copied().filter(move |row| row.versions.hold(version))
}

/// The row of a name.
fn row(owner: &str, name: &str) -> Option<&'static Row> {
    let of = |owner| rows(name).find(|row| row.owner == owner);
    of(owner).or_else(|| of(""))
}

/// What else is known of operations of this name, whoever owns them.
fn traits(name: &str) -> Traits {
    rows(name).fold(Traits::NONE, |all, row| all.and(row.traits))
}

/// The name of an operation alone: of `torch.nn.functional.relu`, and of `torch.ops.aten.relu.default`.
#[must_use]
pub fn bare(printed: &str) -> &str {
    match printed.strip_prefix("torch.ops.") {
        Some(operator) => operator.split('.').nth(1).unwrap_or(operator),
        None => last_part(printed),
    }
}

/// What stands behind a printed name's last dot. Names are short, so a loop over bytes finds it before a search has begun.
#[must_use]
pub fn last_part(printed: &str) -> &str {
    let behind = printed.bytes().rposition(|byte| byte == b'.').map_or(0, |dot| dot + 1);
    &printed[behind..]
}

/// Whether an operation, as it prints, writes to arguments without counting the write in their versions.
#[must_use]
pub fn writes_silently(printed: &str) -> bool {
    traits(bare(printed)).has(Traits::WRITES_SILENTLY)
}

/// Whether an operation, as it prints, gives an argument itself where a number among the arguments is
/// zero.
#[must_use]
pub fn returns_argument(printed: &str) -> bool {
    traits(bare(printed)).has(Traits::RETURNS_ARGUMENT)
}

/// Whether an operation, as it prints, does nothing where it gives an argument itself.
#[must_use]
pub fn is_idle(printed: &str) -> bool {
    traits(bare(printed)).has(Traits::IDLE)
}

/// Private operators that write to nothing and give new memory, as their schemas say.
const FRESH: &[&str] = &["_grouped_mm", "_int_mm", "_scaled_grouped_mm", "_scaled_mm"];

/// Whether an operation of this name writes to nothing and gives new memory, because the schema of its operator says so.
///
/// Some schemas don't say all: those of operators made of others (`dropout` may give its argument), of private ones
/// (`_unsafe_view`), of what is called unsafe or lifts a tensor, and of what keeps statistics.
#[must_use]
pub fn gives_new_memory(name: &str) -> bool {
    let is_said = |facts: Facts| {
        [Facts::COMPOSITE, Facts::WRITES, Facts::ALIASES, Facts::GIVES_OTHERS]
            .iter()
            .all(|fact| !facts.has(*fact))
    };
    let is_true = if name.starts_with('_') {
        FRESH.contains(&name)
    } else {
        name != "lift" && !name.starts_with("unsafe_") && !writes_silently(name)
    };
    is_true && facts(name).is_some_and(is_said)
}

/// Whether an operator draws random numbers from a generator, as its tags say.
#[must_use]
pub fn draws_numbers(name: &str) -> bool {
    facts(name).is_some_and(|facts| facts.has(Facts::RANDOM))
}

/// What PyTorch says of an operator of `torch.ops.aten`; `None`: it has none of this name.
fn facts(name: &str) -> Option<Facts> {
    static INDEX: OnceLock<FxHashMap<&str, Facts>> = OnceLock::new();
    INDEX.get_or_init(|| aten::ATEN.iter().copied().collect()).get(name).copied()
}
