//! What is decided, what isn't, how facts and expressions print; written as Python, parsed here.

use std::borrow::Cow;

use stator_shapes::{
    Cmp, CondId, Context, Error, ExprId, FloatOp, Rounding, SIZE_LIMIT, Style, SymbolId,
};

fn name(symbol: SymbolId) -> Cow<'static, str> {
    Context::symbol_name(symbol)
}

/// A reader of the Python that the tests are written in: `s0*(s1 + 2) // 3 == max(s0, 4)`.
struct Reader<'a> {
    ctx: &'a mut Context,
    symbols: &'a [ExprId],
    words: Vec<String>,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> &str {
        self.words.get(self.at).map_or("", String::as_str)
    }

    fn take(&mut self) -> String {
        self.at += 1;
        self.words[self.at - 1].clone()
    }

    fn takes(&mut self, word: &str) -> bool {
        let found = self.peek() == word;
        self.at += usize::from(found);
        found
    }

    fn condition(&mut self) -> CondId {
        let mut parts = vec![self.comparison()];
        if self.peek() == "and" {
            while self.takes("and") {
                parts.push(self.comparison());
            }
            return self.ctx.and(&parts);
        }
        while self.takes("or") {
            parts.push(self.comparison());
        }
        self.ctx.or(&parts)
    }

    fn comparison(&mut self) -> CondId {
        let a = self.sum();
        let op = match self.take().as_str() {
            "==" => Cmp::Eq,
            "!=" => Cmp::Ne,
            "<" => Cmp::Lt,
            "<=" => Cmp::Le,
            ">" => Cmp::Gt,
            ">=" => Cmp::Ge,
            word => panic!("no comparison: {word}"),
        };
        let b = self.sum();
        self.ctx.compare(op, a, b)
    }

    fn sum(&mut self) -> ExprId {
        let mut sum = self.product();
        loop {
            sum = if self.takes("+") {
                let term = self.product();
                self.ctx.add(sum, term).unwrap()
            } else if self.takes("-") {
                let term = self.product();
                self.ctx.sub(sum, term).unwrap()
            } else {
                return sum;
            };
        }
    }

    fn product(&mut self) -> ExprId {
        let mut product = self.unary();
        loop {
            product = if self.takes("*") {
                let factor = self.unary();
                self.ctx.mul(product, factor).unwrap()
            } else if self.takes("//") {
                let divisor = self.unary();
                self.ctx.floordiv(product, divisor).unwrap()
            } else if self.takes("%") {
                let divisor = self.unary();
                self.ctx.modulus(product, divisor).unwrap()
            } else {
                return product;
            };
        }
    }

    fn unary(&mut self) -> ExprId {
        if self.takes("-") {
            let value = self.unary();
            return self.ctx.neg(value).unwrap();
        }
        let base = self.primary();
        if self.takes("**") {
            let exponent = self.take().parse().unwrap();
            return self.ctx.pow(base, exponent).unwrap();
        }
        base
    }

    fn primary(&mut self) -> ExprId {
        let word = self.take();
        match word.as_str() {
            "(" => {
                let inner = self.sum();
                assert!(self.takes(")"));
                inner
            }
            "min" | "max" | "abs" => {
                assert!(self.takes("("));
                let mut operands = vec![self.sum()];
                while self.takes(",") {
                    operands.push(self.sum());
                }
                assert!(self.takes(")"));
                match word.as_str() {
                    "min" => self.ctx.min(&operands).unwrap(),
                    "max" => self.ctx.max(&operands).unwrap(),
                    _ => self.ctx.abs(operands[0]).unwrap(),
                }
            }
            _ => match word.strip_prefix('s') {
                Some(index) => self.symbols[index.parse::<usize>().unwrap()],
                None => self.ctx.constant(word.parse().unwrap()),
            },
        }
    }
}

fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut glue = false;
    for c in text.chars() {
        let kind = |c: char| if c.is_alphanumeric() { 0 } else { 1 };
        match words.last_mut() {
            Some(last)
                if glue
                    && !"(),".contains(c)
                    && !"(),".contains(&last[..1])
                    && last.chars().all(|other| kind(other) == kind(c))
                    && c != ' '
                    && !(kind(c) == 1 && c == '-') =>
            {
                last.push(c);
            }
            _ if c != ' ' => words.push(c.to_string()),
            _ => {}
        }
        glue = c != ' ';
    }
    words
}

struct World {
    ctx: Context,
    symbols: Vec<ExprId>,
}

impl World {
    /// Sizes that are all at least 2, each a symbol of its own.
    fn sizes(hints: &[i64]) -> Self {
        let mut ctx = Context::new();
        let symbols =
            hints.iter().map(|&hint| ctx.symbol(hint, (2, SIZE_LIMIT), None).expr).collect();
        Self { ctx, symbols }
    }

    fn reader(&mut self, text: &str) -> Reader<'_> {
        Reader { ctx: &mut self.ctx, symbols: &self.symbols, words: words(text), at: 0 }
    }

    fn int(&mut self, text: &str) -> ExprId {
        self.reader(text).sum()
    }

    fn cond(&mut self, text: &str) -> CondId {
        self.reader(text).condition()
    }

    fn assume(&mut self, text: &str) {
        let c = self.cond(text);
        assert!(self.ctx.cond_hint(c), "{text} is to hold at the hints");
        self.ctx.assume(c);
    }

    fn shown(&mut self, text: &str) -> String {
        let e = self.int(text);
        self.ctx.display(e, &name)
    }

    fn facts(&mut self) -> Vec<String> {
        let facts = self.ctx.facts();
        facts
            .iter()
            .filter(|fact| !fact.implicit)
            .map(|fact| self.ctx.display_cond(fact.cond, Style::Math, &name))
            .collect()
    }
}

/// Given assumptions at hints, a condition and whether it is decided.
type Case = (&'static [i64], &'static [&'static str], &'static str, Option<bool>);

const DECIDED: &[Case] = &[
    // Normal forms.
    (&[8, 4], &[], "(s0 + s1)**2 == s0**2 + 2*s0*s1 + s1**2", Some(true)),
    (&[8, 4], &[], "s0*s1 // s1 == s0", Some(true)),
    (&[8, 4], &[], "(s0*s1 + s0) // (s1 + 1) == s0", Some(true)),
    (&[8, 4], &[], "(2*s0 + 3) // 2 == s0 + 1", Some(true)),
    (&[8], &[], "(s0 - 1) // 2 + 1 == -(-s0 // 2)", Some(true)),
    (&[8], &[], "s0 // 2 // 3 == s0 // 6", Some(true)),
    (&[8], &[], "(s0 // 2 + 1) // 3 == (s0 + 2) // 6", Some(true)),
    (&[8], &[], "(4*s0 + 3) // 8 == s0 // 2", Some(true)),
    (&[8], &[], "s0 % 6 % 3 == s0 % 3", Some(true)),
    (&[8], &[], "(5*s0 + 7) % 3 == (2*s0 + 1) % 3", Some(true)),
    (&[8, 4], &[], "min(s0, s1, s0) == min(s1, s0)", Some(true)),
    (&[8], &[], "3*s0 // 2 == s0 + s0 // 2", Some(true)),
    // Ranges.
    (&[8], &[], "s0 != 0", Some(true)),
    (&[8], &[], "s0 == 1", Some(false)),
    (&[8, 4], &[], "s0*s1 >= 4", Some(true)),
    (&[8], &[], "max(s0, 1) == s0", Some(true)),
    (&[8], &["s0 <= 9"], "s0 // 10 == 0", Some(true)),
    (&[8, 4], &[], "s0*s1 >= s0", Some(true)),
    (&[8, 4], &[], "s0*s1 == s0", Some(false)),
    (&[8], &[], "s0 // 2 <= s0", Some(true)),
    (&[8], &[], "s0 // 2 * 2 <= s0", Some(true)),
    (&[8], &[], "s0 - s0 // 2 * 2 <= 1", Some(true)),
    (&[8], &[], "s0 % 2 == s0 - s0 // 2 * 2", Some(true)),
    (&[8], &["2*s0 >= 16"], "s0 >= 8", Some(true)),
    (&[8], &["2*s0 > 14"], "s0 < 8", Some(false)),
    (&[8], &["s0 // 2 == 4"], "s0 <= 9", Some(true)),
    (&[8, 4], &["s0 + s1 <= 12"], "s0 <= 10", Some(true)),
    (&[8, 4], &["s0 >= s1"], "s0 + 1 > s1", Some(true)),
    (&[8, 4], &["s0 >= s1"], "min(s0, s1) == s1", Some(true)),
    (&[8, 4], &["s0 > s1"], "s0 == s1", Some(false)),
    (&[8, 4, 3], &["s0 >= s1"], "s0 + s2 >= s1", Some(true)),
    (&[8, 4, 2], &["s0 >= s1", "s1 >= s2"], "s0 >= s2", Some(true)),
    (&[8, 4], &["min(s0, s1) >= 4"], "s0 >= 3", Some(true)),
    (&[8, 4, 3], &["s0 >= s1"], "s0*s2 >= s1*s2", Some(true)),
    // Rests.
    (&[8], &["s0 % 2 == 0"], "s0 // 2 * 2 == s0", Some(true)),
    (&[8], &["s0 % 4 == 0"], "s0 % 2 == 0", Some(true)),
    (&[8], &["s0 % 2 == 0"], "(s0 + 1) // 2 * 2 == s0", Some(true)),
    (&[9], &["s0 % 4 == 1"], "(s0 + 2) // 4 == s0 // 4", Some(true)),
    (&[12], &["s0 % 4 == 0", "s0 % 3 == 0"], "s0 % 12 == 0", Some(true)),
    (&[8, 6], &["s0 % 2 == 0"], "s0 // 2 * s1 * 2 == s0*s1", Some(true)),
    (&[8, 6], &["s0 % 2 == 0", "s1 % 2 == 0"], "(s0 + s1) % 2 == 0", Some(true)),
    (&[9], &["s0 % 2 == 1"], "s0 == 8", Some(false)),
    (&[8, 4], &[], "2*s0 == 2*s1 + 1", Some(false)),
    (&[9, 6], &["2*s0 == 3*s1"], "s1 % 2 == 0", Some(true)),
    // Equalities.
    (&[8, 4], &["s0 == 2*s1"], "s0 // s1 == 2", Some(true)),
    (&[8, 4], &["s0 == 2*s1"], "s0 % 2 == 0", Some(true)),
    (&[8, 4, 4], &["s0 == s1 + s2", "s1 == s2"], "s0 == 2*s2", Some(true)),
    (&[8, 4, 2], &["s0*s1 == s0*s2 + 2*s0"], "s1 == s2 + 2", Some(true)),
    (&[8, 4], &["s0 == 8"], "s0*s1 == 8*s1", Some(true)),
    (&[8, 4], &["s0 != 5"], "s0 == 5", Some(false)),
    (&[8, 4], &["s0 != 2"], "s0 >= 3", Some(true)),
    // Connectives.
    (&[8, 4], &["s0 == s1 or s0 > 7"], "s0 == s1 or s0 > 7", Some(true)),
    (&[8, 4], &["s0 == 3 or s0 > 7", "s0 != 3"], "s0 > 7", None),
];

/// What follows, and isn't found: each costs a guard more.
const UNDECIDED: &[Case] = &[
    // Three inequalities that must be added up; two are.
    (&[8, 4, 3, 2], &["s0 >= s1", "s1 >= s2", "s2 >= s3"], "s0 >= s3", None),
    // Quotients by symbols have only bounds.
    (&[8, 4], &[], "s0 // s1 * s1 <= s0", None),
    // Products are atoms to inequalities.
    (&[8, 4, 3, 2], &["s0 >= s1"], "s0*s2 + s3 >= s1*s2", None),
    // No case distinctions.
    (&[8, 4], &[], "min(s0, s1) + max(s0, s1) == s0 + s1", None),
    (&[8], &[], "s0 * (s0 + 1) % 2 == 0", None),
    // Roots.
    (&[8], &["s0**2 == 64"], "s0 == 8", None),
];

#[test]
fn decisions() {
    for (hints, assumed, asked, expected) in DECIDED.iter().chain(UNDECIDED) {
        let mut world = World::sizes(hints);
        for text in *assumed {
            world.assume(text);
        }
        let c = world.cond(asked);
        assert_eq!(world.ctx.decide(c), *expected, "{asked}, given {assumed:?}");
    }
}

#[test]
fn expressions_print_as_python() {
    for (text, printed) in [
        ("2*s0", "2*s0"),
        ("s1 + s0", "s0 + s1"),
        ("s0 - 1", "s0 - 1"),
        ("1 - s0", "1 - s0"),
        ("-s0 - 1", "-s0 - 1"),
        ("s0 // 2", "s0//2"),
        ("s0 // 2 * 3", "3*(s0//2)"),
        ("s0 // 2 * s1", "s1*(s0//2)"),
        ("(s0 + 1) // 2", "(s0 + 1)//2"),
        ("-(s0 // 2)", "-(s0//2)"),
        ("s0 // (s1 * s2)", "s0//(s1*s2)"),
        ("s0*s0 + s0*s1 + 7", "s0**2 + s0*s1 + 7"),
        ("max(s0, s1, 7)", "Max(s0, s1, 7)"),
        ("min(7, s0)", "Min(s0, 7)"),
        ("s0 % 2", "Mod(s0, 2)"),
        ("abs(s0 - s1)", "Abs(s0 - s1)"),
        ("(s0 - 1) // 2 + 1", "(s0 + 1)//2"),
        ("s0 // 2 // 2", "s0//4"),
        ("s0 - s0", "0"),
    ] {
        let mut world = World::sizes(&[8, 4, 3]);
        assert_eq!(world.shown(text), printed, "{text}");
    }
    let mut world = World::sizes(&[8, 4]);
    let e = world.int("max(s0 % 3, abs(s0 - s1)) + s0 // 2");
    assert_eq!(world.ctx.python(e, &name), "max(s0 % 3, abs(s0 - s1)) + s0//2");
}

#[test]
fn facts_are_few() {
    for (hints, assumed, left) in [
        (&[8][..], &["s0 >= 4", "s0 >= 6", "s0 != 3"][..], &["s0 >= 6"][..]),
        (&[8], &["2*s0 >= 16"], &["2*s0 >= 16"]),
        (&[8, 4], &["s0 == 2*s1"], &["s0 == 2*s1", "2 <= s1"]),
        (&[8, 8], &["s1 == s0", "s0 + s1 >= 10"], &["s1 == s0", "2*s0 >= 10"]),
        (&[8], &["s0 == 8", "s0 % 2 == 0", "s0 > 3"], &["s0 == 8"]),
        (&[8], &["s0 % 2 == 0", "s0 % 4 == 0"], &["Mod(s0, 4) == 0", "2 <= s0"]),
        (&[8, 4], &["s0 > s1 and s0 >= s1"], &["2 <= s0", "2 <= s1", "s0 > s1"]),
        (&[8, 4], &["s0 == 3 or s1 == 4"], &["2 <= s0", "2 <= s1", "s0 == 3 or s1 == 4"]),
    ] {
        let mut world = World::sizes(hints);
        for text in assumed {
            world.assume(text);
        }
        assert_eq!(world.facts(), left, "{assumed:?}");
    }
}

#[test]
fn overflow_is_an_error() {
    let mut ctx = Context::new();
    let large = ctx.symbol(i64::MAX - 1, (i64::MIN, i64::MAX), None).expr;
    let two = ctx.constant(2);
    assert_eq!(ctx.add(large, two), Err(Error::Overflow));
    assert_eq!(ctx.mul(large, large), Err(Error::Overflow));
    assert_eq!(ctx.pow(large, 2), Err(Error::Overflow));
    // The polynomial fits, the hint doesn't leave 64 bits on the way.
    let back = ctx.sub(large, two).and_then(|e| ctx.add(e, two)).unwrap();
    assert_eq!(back, large);
    let small = ctx.symbol(3, (2, i64::MAX), None);
    let square = ctx.mul(small.expr, small.expr).unwrap();
    let program = ctx.compile_expr(square, &|_| 0);
    assert_eq!(program.eval(&[3_000_000_000], &[]), Some(9_000_000_000_000_000_000));
    assert_eq!(program.eval(&[4_000_000_000], &[]), None);
    let zero = ctx.constant(0);
    assert_eq!(ctx.floordiv(large, zero), Err(Error::ZeroDivision));
    assert_eq!(ctx.modulus(large, zero), Err(Error::ZeroDivision));
}

#[test]
fn long_programs_take_linear_time() {
    let mut ctx = Context::new();
    let a = ctx.size_symbol(7).expr;
    let b = ctx.size_symbol(9).expr;
    let mut sum = ctx.constant(0);
    for i in 0..100_000 {
        let one = ctx.constant(i % 3);
        sum = ctx.add(sum, if i % 2 == 0 { a } else { b }).unwrap();
        sum = ctx.add(sum, one).unwrap();
    }
    assert_eq!(ctx.display(sum, &name), "50000*s0 + 50000*s1 + 99999");

    // What has no short form is refused before it is large.
    let mut nested = a;
    let mut depth = 0;
    let error = loop {
        let step = ctx.mul(nested, b).and_then(|e| ctx.add(e, a));
        let three = ctx.constant(3);
        match step.and_then(|e| ctx.floordiv(e, three)) {
            Ok(e) => nested = e,
            Err(error) => break error,
        }
        depth += 1;
    };
    assert!(matches!(error, Error::TooComplex | Error::Overflow), "{error}");
    assert!(depth < 100);
    let many: Vec<ExprId> = (2..5000).map(|hint| ctx.size_symbol(hint).expr).collect();
    assert_eq!(ctx.sum(&many), Err(Error::TooComplex));
}

#[test]
fn floats_become_integers_exactly() {
    let mut world = World::sizes(&[7, 3]);
    let (a, b) = (world.symbols[0], world.symbols[1]);
    let ctx = &mut world.ctx;
    let quotient = ctx.truediv(a, b).unwrap();
    for (rounding, printed) in [
        (Rounding::Floor, "s0//s1"),
        (Rounding::Ceil, "-(-s0//s1)"),
        (Rounding::Trunc, "s0//s1"),
        (Rounding::Round, "round(s0/s1)"),
    ] {
        let e = ctx.round(rounding, quotient).unwrap();
        assert_eq!(ctx.display(e, &name), printed);
        let program = ctx.compile_expr(e, &|symbol| symbol.index());
        for (x, y) in [(7, 3), (9, 2), (11, 2), (6, 3), (SIZE_LIMIT, 3), (SIZE_LIMIT - 1, 7)] {
            #[allow(clippy::cast_precision_loss)]
            let value = x as f64 / y as f64;
            let value = match rounding {
                Rounding::Floor | Rounding::Trunc => value.floor(),
                Rounding::Ceil => value.ceil(),
                Rounding::Round => value.round_ties_even(),
            };
            #[allow(clippy::cast_possible_truncation)]
            let value = value as i64;
            assert_eq!(program.eval(&[x, y], &[]), Some(value), "{rounding:?} {x}/{y}");
        }
    }
    // Without bounds the quotient may round to an integer that it isn't.
    let wide = ctx.symbol(7, (1, i64::MAX), None).expr;
    let quotient = ctx.truediv(wide, b).unwrap();
    let e = ctx.round(Rounding::Ceil, quotient).unwrap();
    assert_eq!(ctx.display(e, &name), "ceil(s2/s1)");
}

#[test]
fn floats_are_guarded() {
    let mut ctx = Context::new();
    let size = ctx.size_symbol(10);
    let (symbol, scale) = ctx.float_symbol(0.5);
    let float = ctx.float_from_int(size.expr).unwrap();
    let product = ctx.float_binary(FloatOp::Mul, float, scale).unwrap();
    let four = ctx.float_constant(4.0);
    let c = ctx.compare_floats(Cmp::Ge, product, four);
    let fact = ctx.evaluate(c).fact().unwrap();
    assert_eq!(ctx.display_cond(fact, Style::Math, &name), "float(s0)*s1 >= 4.0");
    let rounded = ctx.round(Rounding::Trunc, product).unwrap();
    assert_eq!(ctx.python(rounded, &name), "int(float(s0)*s1)");
    assert_eq!(ctx.hint(rounded), 5);
    assert_eq!(ctx.symbols_of(rounded), [size.id, symbol]);

    let facts = ctx.facts();
    let slot = |s: SymbolId| if s == size.id { 0 } else { usize::from(s != symbol) };
    let program = ctx.compile(&facts, &slot);
    let value = ctx.compile_expr(rounded, &slot);
    assert!(program.check(&[10], &[0.5]));
    assert!(!program.check(&[10], &[0.3]));
    assert!(!program.check(&[10], &[f64::NAN]));
    assert!(!program.check(&[10], &[]));
    assert_eq!(value.eval(&[10], &[0.55]), Some(5));
    assert_eq!(value.eval(&[10], &[f64::INFINITY]), None);

    // Specialised floats are one value, bit by bit.
    let mut ctx = Context::new();
    let (_, zero) = ctx.float_symbol(0.0);
    ctx.specialize_float(zero);
    let facts = ctx.facts();
    let program = ctx.compile(&facts, &|_| 0);
    assert!(program.check(&[], &[0.0]));
    assert!(!program.check(&[], &[-0.0]));
}
