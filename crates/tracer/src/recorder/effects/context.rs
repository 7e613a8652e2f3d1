//! Context variables: reads are guarded by what the variable was set to, writes are side effects.

use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::context;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::{GuardKind, Source, SourceId};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::context::Token;
use crate::recorder::notes::effects::{CONTEXT, Part};
use crate::recorder::notes::heap;
use crate::recorder::notes::state::{State, Stop};

impl Recorder {
    /// `ContextVar.get`.
    pub(in crate::recorder) fn context_get<'py>(
        &self,
        frame: &Frame<'py>,
        variable: Borrowed<'_, 'py>,
        has_default: bool,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        self.note(frame, |state| state.read_context(variable, has_default));
        native()
    }

    /// `ContextVar.set`.
    pub(in crate::recorder) fn context_set<'py>(
        &self,
        frame: &Frame<'py>,
        variable: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        let untouched = self.note(frame, |state| state.write_context(variable));
        let token = native()?;
        self.note(frame, |state| {
            state.set_fresh(token.as_borrowed());
            state.context.tokens.push(Token {
                token: token.clone().unbind(),
                variable: variable.as_ptr() as usize,
                untouched: untouched == Some(true),
                used: false,
            });
            Ok(())
        });
        Ok(token)
    }

    /// `ContextVar.reset`.
    pub(in crate::recorder) fn context_reset<'py>(
        &self,
        frame: &Frame<'py>,
        variable: Borrowed<'_, 'py>,
        token: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        self.note(frame, |state| state.check_reset(variable, token));
        let result = native()?;
        self.note(frame, |state| state.reset_context(variable, token));
        Ok(result)
    }
}

impl State {
    fn context_source(&self, variable: Borrowed<'_, '_>) -> std::result::Result<SourceId, Stop> {
        self.source(variable)
            .filter(|_| context::is_variable(variable))
            .ok_or_else(|| (Reason::UnknownOrigin, "a context variable".into()))
    }

    fn read_context(
        &mut self,
        variable: Borrowed<'_, '_>,
        has_default: bool,
    ) -> std::result::Result<(), Stop> {
        let source = self.context_source(variable)?;
        let slot = (variable.as_ptr() as usize, CONTEXT);
        if self.written.has(&slot) {
            return Ok(());
        }
        if self.context.resets.contains(&slot.0) {
            let detail = "a context variable that is back at what it held before the trace";
            return Err((Reason::Unsupported, detail.into()));
        }
        let first = self.reads.first(slot);
        if let Some(value) = context::own_value(variable) {
            let child = self.sources.intern(Source::ContextValue(source));
            return if first { self.adopt(child, value.as_borrowed()) } else { Ok(()) };
        }
        if first {
            self.guard(source, GuardKind::ContextUnset);
        }
        if has_default {
            return Ok(());
        }
        match context::default_value(variable) {
            Some(value) => {
                let child = self.sources.intern(Source::ContextDefault(source));
                self.adopt(child, value.as_borrowed())
            }
            None => Err((Reason::Unsupported, "a context variable without a value".into())),
        }
    }

    /// Whether the variable was untouched before.
    fn write_context(&mut self, variable: Borrowed<'_, '_>) -> std::result::Result<bool, Stop> {
        let source = self.context_source(variable)?;
        let untouched = !self.written.has(&(variable.as_ptr() as usize, CONTEXT));
        self.wrote(variable, source, CONTEXT, || Part::Context);
        Ok(untouched)
    }

    /// Fails for what a replay could not do: go back with a token that isn't known to fit there, too.
    fn check_reset(
        &mut self,
        variable: Borrowed<'_, '_>,
        token: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let address = variable.as_ptr() as usize;
        if self
            .context
            .tokens
            .iter()
            .any(|known| known.token.is(&*token) && known.variable == address)
        {
            return Ok(());
        }
        let is_untouched = !self.written.has(&(address, CONTEXT));
        if is_untouched && self.source(token).is_some() && context::fits(token, variable) {
            return self.context_source(variable).map(|_| ());
        }
        Err((Reason::OutsideWrite, format!("a token of a {}", heap::type_name(variable))))
    }

    fn reset_context(
        &mut self,
        variable: Borrowed<'_, '_>,
        token: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let address = variable.as_ptr() as usize;
        if let Some(known) = self.context.tokens.iter_mut().find(|known| known.token.is(&*token)) {
            known.used = true;
            if known.untouched {
                // Back to what it was: a replay has nothing to do, and what is read now is from outside.
                self.written.forget(&(address, CONTEXT));
            }
            return Ok(());
        }
        let source = self.context_source(variable)?;
        let unknown = || (Reason::UnknownOrigin, heap::type_name(token));
        let token_source = self.source(token).ok_or_else(unknown)?;
        self.guard(token_source, GuardKind::TokenOf(source));
        let kept = token.to_owned().unbind();
        self.wrote(variable, source, token.as_ptr() as usize, || Part::Reset(kept));
        self.context.resets.push(address);
        Ok(())
    }
}
