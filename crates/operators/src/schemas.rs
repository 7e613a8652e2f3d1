//! Which arguments of an operation are data, and which are numbers that it reads: by PyTorch's schemas.
//!
//! PyTorch takes a tensor of one element wherever it takes a number (`torch.sum(x, dim=t)`). Where the
//! number is an integer the tensor's data decides the result's shape, or whether there is one. Which
//! overload a call ends in is PyTorch's business, so a tensor is data only if no overload that the call
//! might fit reads it.

/// What a schema says of one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// `Tensor`.
    Tensor,
    /// `Tensor[]`.
    Tensors,
    /// `Scalar`, `float`: takes part in the arithmetic.
    Scalar,
    /// `Scalar[]`.
    Scalars,
    /// `int`, `SymInt`, `bool`.
    Integer,
    /// `int[]`, `float[]` and such.
    Numbers,
    /// What no tensor can be given for: `str`, `ScalarType`, ...
    Other,
}

/// An argument, as far as overloads tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// A tensor.
    Tensor {
        /// Of one element: it may stand for a number.
        is_single: bool,
        /// Of a floating-point or complex type: it can't stand for an integer.
        is_inexact: bool,
    },
    /// An exact `int` or `bool`.
    Integer,
    /// Another number.
    Number,
    /// A list or tuple.
    Sequence {
        /// Nothing but tensors.
        is_tensors: bool,
        /// A tensor of one element among its items, or deeper.
        holds_single: bool,
    },
    /// `None`.
    Nothing,
    /// Anything else, that holds no tensor.
    Other,
    /// Anything else, with a tensor of one element in it.
    Holder,
}

impl Given {
    /// Whether it is or holds a tensor that may stand for a number.
    #[must_use]
    pub fn bears_single(self) -> bool {
        match self {
            Given::Tensor { is_single, .. } => is_single,
            Given::Sequence { holds_single, .. } => holds_single,
            Given::Holder => true,
            Given::Integer | Given::Number | Given::Nothing | Given::Other => false,
        }
    }
}

/// What an operation makes of the tensors that may stand for numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Tensors like any others.
    Data,
    /// A number of the arithmetic: read, but nothing but values depends on it.
    Scalar,
    /// A number that decides more than values.
    Read,
}

#[derive(Debug)]
struct Parameter {
    name: Box<str>,
    slot: Slot,
}

/// One overload.
#[derive(Debug)]
struct Overload {
    parameters: Vec<Parameter>,
    /// How many of them may be given by position.
    positional: usize,
}

/// The overloads of one operator.
#[derive(Debug, Default)]
pub struct Schemas {
    overloads: Vec<Overload>,
    /// Its scalars decide shapes: `arange`.
    scalars_decide: bool,
    /// PyTorch tries its overload over tensors before the others: `min`.
    tensors_first: bool,
}

/// NumPy's names of parameters, which PyTorch's functions take too, and `input`, which is a method's `self`.
const ALIASES: &[(&str, &str)] = &[
    ("input", "self"),
    ("a", "self"),
    ("x", "self"),
    ("x1", "self"),
    ("x2", "other"),
    ("axis", "dim"),
    ("keepdims", "keepdim"),
];

/// Further overloads that only TorchScript has. Python makes a tensor of a number that `copy_` is given.
const OF_TORCHSCRIPT: [&str; 2] = ["aten::copy_.int", "aten::copy_.float"];

/// Operators whose `Scalar`s decide shapes.
const DECIDING_SCALARS: &[&str] = &["arange", "range"];

/// Operators that take two tensors, or a tensor and a dimension, and of an integer tensor of one element the former.
const TENSORS_FIRST: &[&str] = &["max", "min"];

impl Schemas {
    /// Of the operator that is called `name`, from its schemas as PyTorch prints them. Overloads that
    /// only TorchScript has are left out: those over numbers and lists.
    #[must_use]
    pub fn parse<'a>(name: &str, printed: impl IntoIterator<Item = &'a str>) -> Self {
        Schemas {
            overloads: printed.into_iter().filter_map(overload).collect(),
            scalars_decide: DECIDING_SCALARS.contains(&name),
            tensors_first: TENSORS_FIRST.contains(&name),
        }
    }

    /// What the operator makes of the tensors among its arguments that may stand for numbers. The last
    /// arguments are those of `names`.
    #[must_use]
    pub fn tensors(&self, args: &[Given], names: &[&str]) -> Use {
        // Operators over tensors and numbers are given both in each other's place: `torch.sub(2, t)`.
        let uses = |numbers_too| {
            self.overloads.iter().filter_map(move |overload| {
                overload.tensors(args, names, numbers_too, self.scalars_decide)
            })
        };
        let is_of_tensors = |overload: &Overload| {
            names.iter().all(|name| overload.named(name).is_some())
                && overload.tensors(args, names, false, self.scalars_decide) == Some(Use::Data)
        };
        if self.tensors_first && self.overloads.iter().any(is_of_tensors) {
            return Use::Data;
        }
        if let Some(found) = worst(uses(false)).or_else(|| worst(uses(true))) {
            return found;
        }
        // A deprecated order of arguments (`x.add(2, t)`), or sizes one by one (`x.view(t, 2)`).
        let slots = self.overloads.iter().flat_map(|overload| &overload.parameters);
        let mut slots = slots.map(|parameter| self.reads(parameter.slot));
        if self.overloads.is_empty() || slots.any(|reads| reads == Use::Read) {
            Use::Read
        } else {
            Use::Scalar
        }
    }

    /// Whether each overload that the call might fit reads a tensor. Arguments as for [`Schemas::tensors`].
    #[must_use]
    pub fn only_read(&self, args: &[Given], names: &[&str]) -> bool {
        let overloads = self.overloads.iter();
        let mut uses = overloads
            .filter_map(|overload| overload.tensors(args, names, true, self.scalars_decide))
            .peekable();
        uses.peek().is_some() && uses.all(|found| found == Use::Read)
    }

    fn reads(&self, slot: Slot) -> Use {
        slot_reads(slot, self.scalars_decide)
    }
}

fn slot_reads(slot: Slot, scalars_decide: bool) -> Use {
    match slot {
        Slot::Scalar | Slot::Scalars if scalars_decide => Use::Read,
        Slot::Scalar | Slot::Scalars => Use::Scalar,
        Slot::Integer | Slot::Numbers => Use::Read,
        Slot::Tensor | Slot::Tensors | Slot::Other => Use::Data,
    }
}

/// What several overloads come to: one that reads integers makes it a read; of the others PyTorch
/// takes that over tensors.
fn worst(uses: impl Iterator<Item = Use>) -> Option<Use> {
    let mut found = None;
    for each in uses {
        found = Some(match found {
            None => each,
            Some(Use::Read) => Use::Read,
            Some(_) if each == Use::Read => Use::Read,
            Some(before) => before.min(each),
        });
    }
    found
}

impl Overload {
    /// What this overload makes of the tensors; `None` if the call doesn't fit it.
    fn tensors(
        &self,
        args: &[Given],
        names: &[&str],
        numbers_too: bool,
        scalars_decide: bool,
    ) -> Option<Use> {
        let (positional, named) = args.split_at(args.len().checked_sub(names.len())?);
        if positional.len() > self.positional {
            return None;
        }
        let mut found = Use::Data;
        let mut take = |slot, given: Given| {
            if !fits(slot, given, numbers_too) {
                return None;
            }
            if given.bears_single() {
                found = found.max(slot_reads(slot, scalars_decide));
            }
            Some(())
        };
        for (parameter, given) in self.parameters.iter().zip(positional) {
            take(parameter.slot, *given)?;
        }
        for (name, given) in names.iter().zip(named) {
            match self.named(name) {
                Some(slot) => take(slot, *given)?,
                None if given.bears_single() => return None,
                // `requires_grad` and such are no part of schemas.
                None => {}
            }
        }
        Some(found)
    }

    fn named(&self, name: &str) -> Option<Slot> {
        let find = |name: &str| {
            self.parameters
                .iter()
                .find(|parameter| &*parameter.name == name)
                .map(|found| found.slot)
        };
        find(name).or_else(|| {
            let (_, own) = ALIASES.iter().find(|(alias, _)| *alias == name)?;
            find(own)
        })
    }
}

/// Whether an argument may stand for a parameter.
fn fits(slot: Slot, given: Given, numbers_too: bool) -> bool {
    match (slot, given) {
        (_, Given::Nothing | Given::Other) => true,
        (_, Given::Holder) => false,
        (Slot::Tensor, Given::Tensor { .. }) => true,
        (Slot::Tensor, Given::Integer | Given::Number) => numbers_too,
        (Slot::Tensors, Given::Sequence { is_tensors, .. }) => is_tensors,
        (Slot::Scalar | Slot::Scalars | Slot::Numbers, Given::Integer | Given::Number) => true,
        (Slot::Scalar | Slot::Scalars, Given::Tensor { is_single, .. }) => is_single,
        (Slot::Integer, Given::Integer) => true,
        (Slot::Integer | Slot::Numbers, Given::Tensor { is_single, is_inexact }) => {
            is_single && !is_inexact
        }
        (Slot::Scalars | Slot::Numbers, Given::Sequence { .. }) => true,
        (Slot::Other, Given::Sequence { holds_single, .. }) => !holds_single,
        (Slot::Other, Given::Integer | Given::Number) => true,
        (Slot::Tensor | Slot::Tensors | Slot::Scalar | Slot::Integer | Slot::Other, _) => false,
    }
}

/// An overload from its printed form; `None` of those that make no tensor.
fn overload(printed: &str) -> Option<Overload> {
    let open = printed.find('(')?;
    if OF_TORCHSCRIPT.contains(&&printed[..open]) {
        return None;
    }
    let close = open + end(&printed[open..])?;
    let results = printed[close + 1..].trim_start().strip_prefix("->")?.trim();
    if !(results.contains("Tensor") || results == "()") {
        return None;
    }
    // TorchScript's methods of lists write to the list itself: `sort(int[](a!) self)`. Operators write to tensors in one.
    if printed[open..close].contains("](") {
        return None;
    }
    let mut parameters = Vec::new();
    let mut positional = None;
    for part in parts(&printed[open + 1..close]) {
        let part = part.trim();
        if part == "*" {
            positional = Some(parameters.len());
        } else if !part.is_empty() {
            parameters.push(parameter(part)?);
        }
    }
    let positional = positional.unwrap_or(parameters.len());
    Some(Overload { parameters, positional })
}

fn parameter(text: &str) -> Option<Parameter> {
    let bare = parts_at(text, '=').next()?.trim();
    let (ty, name) = bare.rsplit_once(' ')?;
    Some(Parameter { name: name.into(), slot: slot(ty.trim()) })
}

fn slot(ty: &str) -> Slot {
    let end = ty.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(ty.len());
    let is_list = ty.contains('[');
    match (&ty[..end], is_list) {
        ("Tensor", false) => Slot::Tensor,
        ("Tensor", true) => Slot::Tensors,
        ("Scalar" | "float" | "complex" | "number" | "SymFloat", false) => Slot::Scalar,
        ("Scalar" | "number", true) => Slot::Scalars,
        ("int" | "SymInt" | "bool" | "SymBool", false) => Slot::Integer,
        ("int" | "SymInt" | "bool" | "float" | "complex", true) => Slot::Numbers,
        _ => Slot::Other,
    }
}

/// Where the parenthesis that a text begins with is closed.
fn end(text: &str) -> Option<usize> {
    let mut walk = Walk::default();
    text.char_indices().find(|(_, c)| walk.step(*c) && *c == ')').map(|(at, _)| at)
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    parts_at(text, ',')
}

fn parts_at(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut walk = Walk::default();
    text.split(move |c| walk.step(c) && c == separator)
}

/// Follows brackets and quotes.
#[derive(Default)]
struct Walk {
    depth: usize,
    quote: Option<char>,
}

impl Walk {
    /// Takes a character; whether it stands outside of all brackets and quotes.
    fn step(&mut self, c: char) -> bool {
        match self.quote {
            Some(quote) => {
                if c == quote {
                    self.quote = None;
                }
                return false;
            }
            None if c == '"' || c == '\'' => {
                self.quote = Some(c);
                return false;
            }
            None => {}
        }
        match c {
            '(' | '[' => self.depth += 1,
            ')' | ']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.depth == 0
    }
}

#[cfg(test)]
mod tests {
    use super::{Given, Schemas, Use};

    const SINGLE: Given = Given::Tensor { is_single: true, is_inexact: false };
    const FLOAT: Given = Given::Tensor { is_single: true, is_inexact: true };
    const LARGE: Given = Given::Tensor { is_single: false, is_inexact: true };
    const MIXED: Given = Given::Sequence { is_tensors: false, holds_single: true };
    const TENSORS: Given = Given::Sequence { is_tensors: true, holds_single: true };

    fn tensors(name: &str, printed: &[&str], args: &[Given], names: &[&str]) -> Use {
        Schemas::parse(name, printed.iter().copied()).tensors(args, names)
    }

    const MIN: &[&str] = &[
        "aten::min(Tensor self) -> Tensor",
        "aten::min.other(Tensor self, Tensor other) -> Tensor",
        "aten::min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
    ];

    const ADD: &[&str] = &[
        "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
        "aten::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
        "aten::add.t(t[] a, t[] b) -> t[]",
        "aten::add.int(int a, int b) -> int",
    ];
    const SUM: &[&str] = &[
        "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        "aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor",
        "aten::sum.dim_DimnameList(Tensor self, str[1] dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    ];
    const PAD: &[&str] =
        &["aten::pad(Tensor self, SymInt[] pad, str mode=\"a, (b\", float? value=None) -> Tensor"];

    #[test]
    fn elementwise_operators_take_tensors_as_data() {
        assert_eq!(tensors("add", ADD, &[LARGE, SINGLE], &[]), Use::Data);
        assert_eq!(tensors("add", ADD, &[SINGLE, SINGLE], &[]), Use::Data);
        assert_eq!(tensors("add", ADD, &[Given::Integer, SINGLE], &[]), Use::Data);
        assert_eq!(tensors("add", ADD, &[LARGE, LARGE, SINGLE], &["alpha"]), Use::Scalar);
        assert_eq!(tensors("add", ADD, &[LARGE, Given::Number, SINGLE], &["alpha"]), Use::Scalar);
    }

    #[test]
    fn tensors_come_before_dimensions_where_both_may_be_given() {
        assert_eq!(tensors("min", MIN, &[LARGE, SINGLE], &[]), Use::Data);
        assert_eq!(tensors("min", MIN, &[LARGE, SINGLE], &["other"]), Use::Data);
        assert_eq!(tensors("min", MIN, &[LARGE, SINGLE], &["dim"]), Use::Read);
        assert_eq!(tensors("min", MIN, &[LARGE, SINGLE, Given::Integer], &[]), Use::Read);
        assert_eq!(tensors("min", MIN, &[LARGE, SINGLE, Given::Integer], &["keepdim"]), Use::Read);
    }

    #[test]
    fn copies_take_tensors_as_data() {
        const COPY: [&str; 3] = [
            "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
            "aten::copy_.int(Tensor(a!) self, int other) -> Tensor(a!)",
            "aten::copy_.float(Tensor(a!) self, float other) -> Tensor(a!)",
        ];
        assert_eq!(tensors("copy_", &COPY, &[SINGLE, SINGLE], &[]), Use::Data);
    }

    #[test]
    fn methods_of_lists_are_no_overloads() {
        const SORT: [&str; 2] = [
            "aten::sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
            "aten::sort.int(int[](a!) self, bool reverse=False) -> ()",
        ];
        assert_eq!(tensors("sort", &SORT, &[SINGLE], &[]), Use::Data);
        assert_eq!(tensors("sort", &SORT, &[LARGE, SINGLE], &[]), Use::Read);
    }

    #[test]
    fn deprecated_orders_of_scalars_are_no_reads() {
        assert_eq!(tensors("add", ADD, &[SINGLE, Given::Number, SINGLE], &[]), Use::Scalar);
    }

    #[test]
    fn integers_are_reads() {
        assert_eq!(tensors("sum", SUM, &[LARGE, SINGLE], &[]), Use::Read);
        assert_eq!(tensors("sum", SUM, &[LARGE, SINGLE], &["dim"]), Use::Read);
        assert_eq!(tensors("sum", SUM, &[LARGE, SINGLE], &["axis"]), Use::Read);
        assert_eq!(tensors("sum", SUM, &[LARGE, MIXED], &["dim"]), Use::Read);
        assert_eq!(tensors("sum", SUM, &[LARGE, TENSORS], &[]), Use::Read);
        assert_eq!(tensors("sum", SUM, &[SINGLE], &[]), Use::Data);
        assert_eq!(tensors("sum", SUM, &[SINGLE], &["input"]), Use::Data);
        assert_eq!(tensors("sum", SUM, &[SINGLE, Given::Integer], &[]), Use::Data);
    }

    #[test]
    fn defaults_with_brackets_and_commas_are_passed_over() {
        assert_eq!(tensors("pad", PAD, &[LARGE, MIXED], &[]), Use::Read);
        let args = [LARGE, MIXED, Given::Other, Given::Number];
        assert_eq!(tensors("pad", PAD, &args, &["mode", "value"]), Use::Read);
        let plain = Given::Sequence { is_tensors: false, holds_single: false };
        assert_eq!(tensors("pad", PAD, &[LARGE, plain, Given::Other, FLOAT], &[]), Use::Scalar);
    }

    #[test]
    fn what_fits_no_overload_is_a_read() {
        let view = &["aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)"];
        assert_eq!(tensors("view", view, &[LARGE, SINGLE, Given::Integer], &[]), Use::Read);
        assert_eq!(tensors("view", view, &[LARGE, SINGLE], &["unheard_of"]), Use::Read);
        assert_eq!(tensors("unknown", &[], &[LARGE, SINGLE], &[]), Use::Read);
    }

    #[test]
    fn scalars_of_ranges_decide() {
        let arange = &["aten::arange(Scalar end, *, ScalarType? dtype=None) -> Tensor"];
        assert_eq!(tensors("arange", arange, &[FLOAT], &[]), Use::Read);
    }

    #[test]
    fn the_type_of_a_tensor_tells_overloads_apart() {
        let max = &[
            "aten::max.other(Tensor self, Tensor other) -> Tensor",
            "aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        ];
        assert_eq!(tensors("max", max, &[LARGE, FLOAT], &[]), Use::Data);
        assert_eq!(tensors("some", max, &[LARGE, SINGLE], &[]), Use::Read);
        assert_eq!(tensors("max", max, &[LARGE, LARGE], &[]), Use::Data);
    }
}
