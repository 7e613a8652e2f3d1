//! The tokens of one line of a program's text.

use super::Malformed;

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// The line is over.
    End,
    /// `torch.nn.functional.linear`, `.relu`, `None`
    Name(&'a str),
    /// `%3`
    Node(usize),
    /// `12`, `1.5e-07`: no sign
    Number(&'a str),
    /// `'text'`
    Text(String),
    /// `b'\x00'`, as text in which each char is one byte
    Bytes(String),
    /// Any other sign.
    Sign(&'static str),
}

/// Longer signs before their beginnings.
const SIGNS: &[&str] = &[
    "...", "==", "!=", "<=", ">=", "//", "**", "/", "=", "<", ">", "(", ")", "[", "]", "{", "}",
    ",", ":", "*", "?", "+", "-", "%",
];

pub(super) struct Lexer<'a> {
    rest: &'a str,
    line: usize,
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

impl<'a> Lexer<'a> {
    pub(super) const fn new(text: &'a str, line: usize) -> Self {
        Self { rest: text, line }
    }

    pub(super) fn error(&self, message: &str) -> Malformed {
        Malformed::new(self.line, message)
    }

    pub(super) fn unexpected(&self, found: &Token<'_>, expected: &str) -> Malformed {
        let found = match found {
            Token::End => "the end of the line".to_string(),
            Token::Name(text) | Token::Number(text) => format!("{text:?}"),
            Token::Sign(text) => format!("{text:?}"),
            Token::Node(node) => format!("%{node}"),
            Token::Text(_) | Token::Bytes(_) => "a string".to_string(),
        };
        self.error(&format!("expected {expected}, found {found}"))
    }

    pub(super) fn next(&mut self) -> Result<Token<'a>, Malformed> {
        self.rest = self.rest.trim_start_matches(' ');
        let Some(first) = self.rest.chars().next() else { return Ok(Token::End) };
        if let Some(after) = self.rest.strip_prefix('b')
            && after.starts_with(['\'', '"'])
        {
            self.rest = after;
            let text = self.quoted()?;
            if text.chars().any(|c| u32::from(c) > 0xff) {
                return Err(self.error("a character beyond one byte in bytes"));
            }
            return Ok(Token::Bytes(text));
        }
        if first == '\'' || first == '"' {
            return self.quoted().map(Token::Text);
        }
        if first.is_ascii_digit() {
            return Ok(Token::Number(self.number()));
        }
        if let Some(digits) = self.rest.strip_prefix('%')
            && digits.starts_with(|c: char| c.is_ascii_digit())
        {
            self.rest = digits;
            let digits = self.take(|c| c.is_ascii_digit());
            let index = digits.parse().ok().filter(|index| *index < u32::MAX as usize);
            return index
                .map(Token::Node)
                .ok_or_else(|| self.error("a node's number is too large"));
        }
        if let Some(sign) = SIGNS.iter().find(|sign| self.rest.starts_with(**sign)) {
            self.rest = &self.rest[sign.len()..];
            return Ok(Token::Sign(sign));
        }
        if is_name(first) {
            return Ok(Token::Name(self.take(is_name)));
        }
        Err(self.error(&format!("no program holds the character {first:?}")))
    }

    pub(super) fn peek(&mut self) -> Result<Token<'a>, Malformed> {
        let rest = self.rest;
        let token = self.next();
        self.rest = rest;
        token
    }

    /// Whether a parenthesis and a string come next.
    pub(super) fn is_text_next(&mut self) -> bool {
        let rest = self.rest;
        let is_text = self.takes("(") && matches!(self.next(), Ok(Token::Text(_)));
        self.rest = rest;
        is_text
    }

    /// Whether this sign comes next; it is taken then.
    pub(super) fn takes(&mut self, sign: &str) -> bool {
        let rest = self.rest;
        if matches!(self.next(), Ok(Token::Sign(found)) if found == sign) {
            return true;
        }
        self.rest = rest;
        false
    }

    pub(super) fn expect(&mut self, sign: &str) -> Result<(), Malformed> {
        match self.next()? {
            Token::Sign(found) if found == sign => Ok(()),
            other => Err(self.unexpected(&other, &format!("{sign:?}"))),
        }
    }

    pub(super) fn end(&mut self) -> Result<(), Malformed> {
        match self.next()? {
            Token::End => Ok(()),
            other => Err(self.unexpected(&other, "the end of the line")),
        }
    }

    pub(super) fn string(&mut self) -> Result<String, Malformed> {
        match self.next()? {
            Token::Text(text) => Ok(text),
            other => Err(self.unexpected(&other, "a string")),
        }
    }

    fn take(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Digits, a fraction, an exponent.
    fn number(&mut self) -> &'a str {
        let all = self.rest;
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut end = digits(all);
        if all[end..].starts_with('.') {
            end += 1 + digits(&all[end + 1..]);
        }
        if all[end..].starts_with(['e', 'E']) {
            let sign = usize::from(all[end + 1..].starts_with(['+', '-']));
            end += 1 + sign;
            end += digits(&all[end..]);
        }
        self.rest = &all[end..];
        &all[..end]
    }

    /// A string in quotes, as `repr_str` prints it.
    fn quoted(&mut self) -> Result<String, Malformed> {
        let mut chars = self.rest.char_indices();
        let quote = chars.next().map(|(_, quote)| quote);
        let mut out = String::new();
        while let Some((at, c)) = chars.next() {
            if Some(c) == quote {
                self.rest = &self.rest[at + 1..];
                return Ok(out);
            }
            if c != '\\' {
                out.push(c);
                continue;
            }
            out.push(match chars.next().map(|(_, c)| c) {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some(c @ ('\\' | '\'' | '"')) => c,
                Some('x') => {
                    let mut digit = || chars.next().and_then(|(_, c)| c.to_digit(16));
                    let (high, low) = (digit(), digit());
                    let code =
                        high.zip(low).and_then(|(high, low)| char::from_u32(high * 16 + low));
                    code.ok_or_else(|| self.error("a string with a broken escape"))?
                }
                _ => return Err(self.error("a string with an unknown escape")),
            });
        }
        Err(self.error("a string without an end"))
    }
}
