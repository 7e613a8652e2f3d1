//! What a trace has done to context variables.

use pyo3::prelude::*;

/// What a token of `ContextVar.set` goes back to.
pub struct Token {
    /// The token: its address must not be taken by another.
    pub(in crate::recorder) token: Py<PyAny>,
    pub(in crate::recorder) variable: usize,
    /// Whether the variable held, before the token's `set`, what it held when the call began.
    pub(in crate::recorder) untouched: bool,
    /// Whether it has been gone back to: CPython refuses to do so twice.
    pub(in crate::recorder) used: bool,
}

/// What a trace has done to context variables, beside what they hold now.
#[derive(Default)]
pub struct ContextWrites {
    /// The tokens that it got for its writes.
    pub(in crate::recorder) tokens: Vec<Token>,
    /// The variables that it has reset with tokens from before the trace.
    pub(in crate::recorder) resets: Vec<usize>,
}

impl ContextWrites {
    /// The variables that went back to what they held before the trace.
    pub fn resets(&self) -> &[usize] {
        &self.resets
    }

    /// Whether it has written any.
    pub fn is_written(&self) -> bool {
        !self.tokens.is_empty() || !self.resets.is_empty()
    }

    /// Whether it has written this one.
    pub fn is_written_at(&self, variable: usize) -> bool {
        self.resets.contains(&variable) || self.tokens.iter().any(|it| it.variable == variable)
    }
}
