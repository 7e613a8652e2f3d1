//! The log `dynamic`: which facts a trace assumes of its symbols, where and why; and what a fact breaks that a user
//! has marked.

use std::fmt::Write;

use pyo3::prelude::*;

use stator_shapes::CondId;

use crate::breaks::Reason;
use crate::locate::{Places, shown_path};
use crate::recorder::notes::state::State;

impl State {
    fn here_text(&self, py: Python<'_>) -> String {
        let places = Places { py, codes: self.frames.codes() };
        let (code, unit) = self.frames.here();
        match places.place(code, unit) {
            Some((file, line, function)) => {
                let name = function.rsplit('.').next().unwrap_or(&function).to_string();
                format!("{}:{line} in {name}", shown_path(&file))
            }
            None => "the call".to_string(),
        }
    }

    /// Writes down the facts that were assumed since this was called last.
    pub fn log_facts(&mut self, py: Python<'_>) {
        self.log_added(py, None);
    }

    pub(super) fn log_specialised(&mut self, py: Python<'_>, why: &str) {
        self.log_added(py, Some(why));
    }

    fn log_added(&mut self, py: Python<'_>, why: Option<&str>) {
        let Some(symbols) = self.symbols.as_mut() else { return };
        let added = symbols.context.take_added();
        if added.is_empty() {
            return;
        }
        self.refuse_undecided(&added);
        self.log_conditions(py, added, why);
    }

    /// Writes down facts that were assumed.
    pub(super) fn log_conditions(&mut self, py: Python<'_>, added: Vec<CondId>, why: Option<&str>) {
        self.assumed_in_program(&added);
        let Some(symbols) = self.symbols.as_ref() else { return };
        if !crate::logs::Log::Dynamic.is_on() && symbols.marked.is_empty() {
            return;
        }
        let place = self.here_text(py);
        let symbols = self.symbols.as_mut().expect("still there");
        for condition in added {
            let text = symbols.print(condition);
            let mut line = format!("eval {text} [guard added] at {place}");
            if let Some(why) = why {
                let _ = write!(line, " ({why})");
            }
            symbols.note_fixed(&line);
            if self.program.as_ref().is_some_and(|notes| !notes.is_sized)
                && let Some(size) =
                    symbols.broken_mark().map(|(size, _)| size).or_else(|| symbols.narrowed_mark())
            {
                let detail = format!("{size}, {}", why.unwrap_or("in a condition"));
                self.failure.get_or_insert((Reason::VaryingSize, detail));
            }
            symbols.log.push(line);
        }
    }
}
