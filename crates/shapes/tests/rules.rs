//! Shape rules, compared with what PyTorch gives: `cases/*.calls`, run by `tools/gen_shape_cases.py`.
//!
//! Each size at which PyTorch succeeds is the recorded call once: the rule must give its results,
//! and for every other size that passes the guards the results of that.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use stator_shapes::rules::{self, Arg, Element, Sizes};
use stator_shapes::{Context, Error, ExprId, SIZE_LIMIT, SymbolId};

/// An assignment, and the sizes of the results if the operation succeeds there.
type Row = (Vec<i64>, Option<Vec<Vec<i64>>>);

/// An operation, its arguments, and what it gives at each assignment of `a` to `e`.
struct Case {
    file: String,
    name: String,
    arguments: String,
    rows: Vec<(Vec<i64>, Given)>,
}

/// The sizes of the results; None where PyTorch fails.
type Given = Option<Vec<Vec<i64>>>;

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut cases: Vec<Case> = Vec::new();
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "txt")) {
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        for line in std::fs::read_to_string(path).unwrap().lines().skip(1) {
            if let Some(row) = line.strip_prefix("    ") {
                let (sizes, result) = row.split_once(": ").unwrap();
                let numbers = |text: &str, by: char| -> Vec<i64> {
                    text.split(by).map(|word| word.trim().parse().unwrap()).collect()
                };
                let result = match result {
                    "error" => None,
                    "none" => Some(Vec::new()),
                    _ => Some(
                        result
                            .split("; ")
                            .map(|text| if text == "()" { vec![] } else { numbers(text, ',') })
                            .collect(),
                    ),
                };
                cases.last_mut().unwrap().rows.push((numbers(sizes, ' '), result));
            } else {
                let (name, arguments) = line.split_once(' ').unwrap();
                cases.push(Case {
                    file: file.clone(),
                    name: name.into(),
                    arguments: arguments.into(),
                    rows: Vec::new(),
                });
            }
        }
    }
    cases
}

/// Reads arguments: `T(a, b), dim=-1`.
struct Reader<'a> {
    ctx: &'a mut Context,
    symbols: Vec<ExprId>,
    text: &'a [u8],
}

impl Reader<'_> {
    fn peek(&mut self) -> u8 {
        self.text = self.text.trim_ascii_start();
        self.text.first().copied().unwrap_or(0)
    }

    fn takes(&mut self, word: &str) -> bool {
        self.peek();
        let found = self.text.starts_with(word.as_bytes());
        if found {
            self.text = &self.text[word.len()..];
        }
        found
    }

    fn word(&mut self, accept: impl Fn(u8) -> bool) -> String {
        self.peek();
        let end = self.text.iter().position(|&c| !accept(c)).unwrap_or(self.text.len());
        let (word, rest) = self.text.split_at(end);
        self.text = rest;
        String::from_utf8(word.into()).unwrap()
    }

    /// Positional and named arguments, up to the end or a closing bracket.
    fn arguments(&mut self) -> (Vec<Arg>, Vec<(String, Arg)>) {
        let (mut positional, mut named) = (Vec::new(), Vec::new());
        while !matches!(self.peek(), 0 | b')' | b']') {
            let before = self.text;
            let name = self.word(|c| c.is_ascii_alphanumeric() || c == b'_');
            if !name.is_empty() && self.takes("=") {
                let arg = self.arg();
                named.push((name, arg));
            } else {
                self.text = before;
                positional.push(self.arg());
            }
            self.takes(",");
        }
        (positional, named)
    }

    fn items(&mut self, close: &str) -> (Vec<Arg>, bool) {
        let before = self.text;
        let (items, _) = self.arguments();
        let comma = before[..before.len() - self.text.len()].contains(&b',');
        assert!(self.takes(close));
        (items, comma)
    }

    fn int(&mut self, arg: &Arg) -> ExprId {
        match arg {
            Arg::Int(e) => *e,
            other => panic!("no integer: {other:?}, {}", self.text.len()),
        }
    }

    fn arg(&mut self) -> Arg {
        let first = self.primary();
        for operator in ["-", "//"] {
            if self.takes(operator) {
                let second = self.primary();
                let (x, y) = (self.int(&first), self.int(&second));
                let result =
                    if operator == "-" { self.ctx.sub(x, y) } else { self.ctx.floordiv(x, y) };
                return Arg::Int(result.unwrap());
            }
        }
        first
    }

    fn primary(&mut self) -> Arg {
        match self.peek() {
            b'(' => {
                self.takes("(");
                let (mut items, comma) = self.items(")");
                if items.len() == 1 && !comma { items.remove(0) } else { Arg::Tuple(items) }
            }
            b'[' => {
                self.takes("[");
                Arg::List(self.items("]").0)
            }
            b'\'' => {
                self.takes("'");
                let text = self.word(|c| c != b'\'');
                self.takes("'");
                Arg::Text(text)
            }
            b'-' | b'0'..=b'9' => {
                let text = self.word(|c| c.is_ascii_digit() || b".-e".contains(&c));
                match text.parse() {
                    Ok(value) => Arg::Int(self.ctx.constant(value)),
                    Err(_) => Arg::Float(self.ctx.float_constant(text.parse().unwrap())),
                }
            }
            _ => {
                let name = self.word(|c| c.is_ascii_alphanumeric());
                if self.takes("(") {
                    let (items, _) = self.items(")");
                    return self.made(&name, items);
                }
                match name.as_str() {
                    "None" => Arg::None,
                    "True" => Arg::Bool(true),
                    "False" => Arg::Bool(false),
                    "E" => Arg::Ellipsis,
                    _ => Arg::Int(self.symbols[usize::from(name.as_bytes()[0] - b'a')]),
                }
            }
        }
    }

    fn made(&mut self, name: &str, items: Vec<Arg>) -> Arg {
        let element = match name {
            "T" => Element::Number,
            "I" => Element::Integer,
            "M" => Element::Mask,
            _ => {
                let mut parts = [Arg::None, Arg::None, Arg::None];
                match items.len() {
                    1 => parts[1] = items[0].clone(),
                    n => parts[..n].clone_from_slice(&items),
                }
                return Arg::Slice(Box::new(parts));
            }
        };
        let sizes: Sizes = items.iter().map(|item| self.int(item)).collect();
        Arg::Tensor { sizes, element }
    }
}

fn infer(ctx: &mut Context, case: &Case, hints: &[i64]) -> Result<Vec<Sizes>, String> {
    let symbols: Vec<ExprId> =
        hints.iter().map(|&hint| ctx.symbol(hint, (2, SIZE_LIMIT), None).expr).collect();
    let mut reader = Reader { ctx, symbols, text: case.arguments.as_bytes() };
    let (positional, named) = reader.arguments();
    let named: Vec<(&str, Arg)> =
        named.iter().map(|(name, arg)| (name.as_str(), arg.clone())).collect();
    match rules::infer(ctx, &case.name, &positional, &named) {
        None => Err("no rule".into()),
        Some(Err(unsupported)) => Err(unsupported.to_string()),
        Some(Ok(sizes)) => Ok(sizes),
    }
}

/// Operations that succeed at one size and fail at others for reasons that aren't guarded: replayed
/// there, the operation itself fails, as it does in Python.
const FAILS_ITSELF: &[&str] = &[
    // Reflection must be smaller than what it reflects.
    "torch.nn.functional.pad T(a, b, c), (1, 1), mode='reflect'",
];

/// Operations whose number of results is a size.
const SPECIALIZES: &[&str] = &["torch.unbind T(a, b), 1"];

#[test]
fn rules_give_what_pytorch_gives() {
    let slot = |symbol: SymbolId| symbol.index();
    let mut wrong = String::new();
    let mut compared = 0;
    let cases = cases();
    for case in &cases {
        let line = format!("{}: {} {}", case.file, case.name, case.arguments);
        let (mut general, mut successes) = (0, 0);
        for (hints, expected) in &case.rows {
            let Some(expected) = expected else { continue };
            successes += 1;
            let mut ctx = Context::new();
            let sizes = match infer(&mut ctx, case, hints) {
                Ok(sizes) => sizes,
                Err(reason) => {
                    let _ = writeln!(wrong, "{line} at {hints:?}: {reason}");
                    continue;
                }
            };
            let facts = ctx.facts();
            let guards = ctx.compile(&facts, &slot);
            let programs: Vec<Vec<_>> = sizes
                .iter()
                .map(|sizes| sizes.iter().map(|&e| ctx.compile_expr(e, &slot)).collect())
                .collect();
            assert!(guards.check(hints, &[]), "{line}: the recorded call passes");
            for (values, expected_there) in &case.rows {
                if !guards.check(values, &[]) {
                    continue;
                }
                general += usize::from(values != hints);
                compared += 1;
                let found: Given = programs
                    .iter()
                    .map(|sizes| sizes.iter().map(|size| size.eval(values, &[])).collect())
                    .collect();
                let expected =
                    if values == hints { Some(expected) } else { expected_there.as_ref() };
                let fails_itself =
                    expected.is_none() && FAILS_ITSELF.contains(&line.split_once(": ").unwrap().1);
                if found.as_ref() != expected && !fails_itself {
                    let _ = writeln!(
                        wrong,
                        "{line} recorded at {hints:?}, used at {values:?}: {found:?}, not {expected:?}"
                    );
                }
            }
        }
        let specializes = SPECIALIZES.contains(&line.split_once(": ").unwrap().1);
        if successes > 3 && (general == 0) != specializes {
            let _ = writeln!(wrong, "{line}: serves only the sizes it was recorded at");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(compared > 5_000, "only {compared} results were compared");
}

/// Every rule is met by a case, except for those that share their function with one that is.
#[test]
fn families_have_cases() {
    let met: BTreeSet<String> = cases()
        .into_iter()
        .map(|case| case.name.rsplit(['.', ':']).next().unwrap().trim_matches('_').to_owned())
        .collect();
    let names = rules::coverage();
    assert!(names.len() > 450, "{}", names.len());
    assert!(names.is_sorted());
    let covered = names.iter().filter(|name| met.contains(**name)).count();
    assert!(covered > 180, "only {covered} names have cases of their own");
}

#[test]
fn refusals_say_why() {
    for (name, arguments, reason) in [
        ("torch.where", "M(a)", "the number of results depends on data"),
        ("Tensor.__getitem__", "T(a, b), M(a, b)", "a mask as an index"),
        ("Tensor.repeat_interleave", "T(a), I(a)", "a size depends on data"),
        ("torch.nn.functional.one_hot", "I(a)", "a size depends on data"),
        ("torch.add", "T(a), T(b), out=T(a)", "results are written to given tensors"),
        ("torch.add", "T(a), T(b)", "sizes don't broadcast"),
        ("torch.unsqueeze", "T(a), 5", "there is no such dimension"),
        (
            "torch.permute",
            "T(a), 1, 2, 3, other=4",
            "the arguments don't fit the rule's parameters",
        ),
        ("torch.nonzero", "T(a)", "no rule"),
    ] {
        let case = Case {
            file: String::new(),
            name: name.into(),
            arguments: arguments.into(),
            rows: Vec::new(),
        };
        let answer = infer(&mut Context::new(), &case, &[6, 4, 3, 5, 7]);
        assert_eq!(answer.unwrap_err(), reason, "{name}({arguments})");
    }
    assert_eq!(Error::Overflow.to_string(), "the value leaves 64 bits");
}
