//! Which rule an operation has, and how its arguments are bound.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use super::call::Call;
use super::{
    Arg, Outcome, convolution, creation, decompositions, each, fourier, indexing, joining, layers,
    linear, losses, normalization, pointwise, reduction, refuse, resampling, selecting, views,
    windows,
};
use crate::Context;

/// A rule and the operations that have it.
pub(super) struct Row {
    /// Names, separated by spaces: `add` stands for `aten::add`, `torch.add`, `Tensor.add`, `add_`
    /// and `__add__`; `fft_fft` for `torch.fft.fft`. A full name is preferred to a short one.
    pub(super) names: &'static str,
    /// Parameters in order: `input|self` has two names, what follows `*` is given by name, `*size` is
    /// a sequence or the remaining arguments. `...`: any.
    pub(super) parameters: &'static str,
    pub(super) rule: fn(&mut Call<'_>) -> Outcome,
}

/// All rules, a list for each family.
const FAMILIES: &[&[Row]] = &[
    pointwise::ROWS,
    views::ROWS,
    joining::ROWS,
    indexing::ROWS,
    selecting::ROWS,
    reduction::ROWS,
    linear::ROWS,
    decompositions::ROWS,
    convolution::ROWS,
    resampling::ROWS,
    normalization::ROWS,
    losses::ROWS,
    creation::ROWS,
    fourier::ROWS,
    layers::ROWS,
    windows::ROWS,
    each::ROWS,
];

/// A row's parameters, taken apart.
pub(super) struct Signature {
    pub(super) parameters: Vec<Parameter>,
    /// Further arguments are the rule's business.
    open: bool,
}

pub(super) struct Parameter {
    pub(super) names: Vec<&'static str>,
    by_name_only: bool,
    variadic: bool,
}

impl Signature {
    fn parse(text: &'static str) -> Self {
        let mut signature = Signature { parameters: Vec::new(), open: false };
        let mut by_name_only = false;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "..." => signature.open = true,
                "*" => by_name_only = true,
                _ => {
                    let names = word.trim_start_matches('*').split('|').collect();
                    let variadic = word.starts_with('*');
                    signature.parameters.push(Parameter { names, by_name_only, variadic });
                }
            }
        }
        signature
    }

    /// The argument of each parameter. None: they don't fit.
    fn bind(&self, positional: &[Arg], named: &[(&str, Arg)]) -> Option<Vec<Option<Arg>>> {
        let mut bound: Vec<Option<Arg>> = vec![None; self.parameters.len()];
        let mut left = positional;
        for (parameter, slot) in self.parameters.iter().zip(&mut bound) {
            if parameter.by_name_only || left.is_empty() {
                break;
            }
            if parameter.variadic {
                *slot = Some(match left {
                    [sequence @ (Arg::List(_) | Arg::Tuple(_))] => sequence.clone(),
                    [Arg::List(items) | Arg::Tuple(items), ..] => {
                        // `repeat((2, 3), ...)`: the rest belongs to other parameters.
                        left = &left[1..];
                        *slot = Some(Arg::List(items.clone()));
                        continue;
                    }
                    _ => Arg::List(left.to_vec()),
                });
                left = &[];
            } else {
                *slot = Some(left[0].clone());
                left = &left[1..];
            }
        }
        if !left.is_empty() && !self.open {
            return None;
        }
        for (name, arg) in named {
            let place = self.parameters.iter().position(|parameter| parameter.names.contains(name));
            match place {
                Some(place) if bound[place].is_none() => bound[place] = Some(arg.clone()),
                Some(_) => return None,
                // Where results go and what they hold doesn't change their sizes, `out` aside.
                None if self.open || NEUTRAL.contains(name) => {}
                None => return None,
            }
        }
        Some(bound)
    }
}

/// Parameters that operations share and that say nothing of sizes.
const NEUTRAL: &[&str] = &[
    "dtype",
    "device",
    "layout",
    "requires_grad",
    "pin_memory",
    "memory_format",
    "generator",
    "non_blocking",
    "inplace",
    "_stacklevel",
];

struct Registry {
    rows: Vec<(&'static Row, Signature)>,
    by_name: FxHashMap<&'static str, usize>,
}

fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let mut registry = Registry { rows: Vec::new(), by_name: FxHashMap::default() };
        for row in FAMILIES.iter().copied().flatten() {
            let place = registry.rows.len();
            registry.rows.push((row, Signature::parse(row.parameters)));
            for name in row.names.split_whitespace() {
                let twice = registry.by_name.insert(name, place);
                debug_assert!(twice.is_none(), "two rules for {name}");
            }
        }
        registry
    })
}

/// Namespaces whose functions have ATen's names, and what ATen puts before them.
const NAMESPACES: &[(&str, &str)] = &[
    ("aten::", ""),
    ("torch.nn.functional.", ""),
    ("torch.Tensor.", ""),
    ("torch._C._nn.", ""),
    ("torch._C.TensorBase.", ""),
    ("torch._C._TensorBase.", ""),
    ("torch._C._VariableFunctions.", ""),
    ("torch.fft.", "fft_"),
    ("torch._C._fft.", ""),
    ("torch.linalg.", "linalg_"),
    ("torch._C._linalg.", ""),
    ("torch.special.", "special_"),
    ("torch._C._special.", ""),
    ("torch.functional.", ""),
    ("torch.ops.aten.", ""),
    ("torch.", ""),
    ("Tensor.", ""),
    ("_operator.", ""),
    ("operator.", ""),
];

/// The row for a name, and whether the operation writes to its first argument.
fn find(name: &str) -> Option<(usize, bool)> {
    let by_name = &registry().by_name;
    if let Some(&place) = by_name.get(name) {
        return Some((place, false));
    }
    let (mut base, mut before) = (name, "");
    for (namespace, prefix) in NAMESPACES {
        if let Some(rest) = name.strip_prefix(namespace) {
            (base, before) = (rest, *prefix);
            break;
        }
    }
    // ATen's overloads: `aten::add.Tensor`.
    if base != name && (name.starts_with("aten::") || name.starts_with("torch.ops.aten.")) {
        base = base.split('.').next().unwrap_or(base);
    }
    let get = |base: &str| {
        // The function `torch.fft.fft` calls itself `fft_fft`.
        if base.starts_with(before) && by_name.contains_key(base) {
            by_name.get(base).copied()
        } else {
            by_name.get(format!("{before}{base}").as_str()).copied()
        }
    };
    if let Some(place) = get(base) {
        return Some((place, false));
    }
    if let Some(word) = base.strip_prefix("__").and_then(|base| base.strip_suffix("__")) {
        return find_method(word).and_then(|(word, in_place)| Some((get(word)?, in_place)));
    }
    if name.starts_with("operator.") || name.starts_with("_operator.") {
        // `operator.iadd`
        return find_method(base).and_then(|(word, in_place)| Some((get(word)?, in_place)));
    }
    // Views that are copied, and operations that write to their first argument.
    base.strip_suffix("_copy")
        .and_then(get)
        .map(|place| (place, false))
        .or_else(|| base.strip_suffix('_').and_then(get).map(|place| (place, true)))
}

/// Operators with two operands; their methods may be reflected (`__radd__`) or in place.
const BINARY: &[&str] = &[
    "add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
    "lshift", "rshift",
];
/// Methods of other operators. Others, such as `__bool__`, don't give tensors.
const OTHER_METHODS: &[&str] =
    &["getitem", "setitem", "neg", "pos", "abs", "invert", "eq", "ne", "lt", "le", "gt", "ge"];

/// The operation of a method without its underscores, and whether it is in place.
fn find_method(word: &str) -> Option<(&str, bool)> {
    let binary = |word: &&str| BINARY.contains(word);
    if BINARY.contains(&word) || OTHER_METHODS.contains(&word) {
        return Some((word, false));
    }
    word.strip_prefix('i')
        .filter(binary)
        .map(|word| (word, true))
        .or_else(|| word.strip_prefix('r').filter(binary).map(|word| (word, false)))
}

/// The sizes of an operation's results, in order; None if it has no rule. The operation is named as
/// ATen names it (`aten::add`, with or without overload) or as programs do (`torch.add`,
/// `Tensor.add`, `torch.nn.functional.linear`, `operator.add`).
///
/// What the rule requires of the arguments becomes a fact of the context.
pub fn infer(
    ctx: &mut Context,
    name: &str,
    positional: &[Arg],
    named: &[(&str, Arg)],
) -> Option<Outcome> {
    let (place, in_place) = find(name)?;
    let (row, signature) = &registry().rows[place];
    if named.iter().any(|(name, arg)| *name == "out" && *arg != Arg::None) {
        return Some(refuse("results are written to given tensors"));
    }
    let named: Vec<(&str, Arg)> =
        named.iter().filter(|(name, _)| *name != "out").cloned().collect();
    let Some(bound) = signature.bind(positional, &named) else {
        return Some(refuse("the arguments don't fit the rule's parameters"));
    };
    let reflected = name.rsplit('.').next().is_some_and(|last| last.starts_with("__r"));
    let mut call = Call { ctx, signature, bound, positional, named: &named, in_place, reflected };
    Some((row.rule)(&mut call))
}

/// The names that have rules, sorted; each stands for those in other namespaces as well, and for
/// in-place forms.
pub fn coverage() -> Vec<&'static str> {
    let mut names: Vec<&str> = registry().by_name.keys().copied().collect();
    names.sort_unstable();
    names
}
