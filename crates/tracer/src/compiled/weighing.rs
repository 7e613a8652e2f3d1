//! Whether calls of a compiled function run natively because replaying them gains nothing: where that is
//! asked, and who is told.

use std::sync::Arc;

use pyo3::prelude::*;

use super::{Compiled, location, name};
use crate::config;
use crate::entry::Entry;
use crate::floor::{News, Turn};
use crate::locate::shown_path;
use crate::lock;
use crate::logs::Log;
use crate::profit::Estimate;
use crate::resume::session::Session;
use crate::resume::testing::Breaks;

impl Compiled {
    /// Whether calls that gain nothing may run natively. What a graph gains that a backend has
    /// compiled isn't estimated; tests that count breaks want all of them.
    fn may_skip(&self) -> bool {
        self.backend.is_none()
            && !self.fullgraph
            && config::skips_unprofitable()
            && Breaks::now() == Breaks::None
    }

    /// As [`Compiled::weigh`], after a recording: of the entry that the call began with, with the
    /// estimate of what came before.
    pub(super) fn weigh_recorded(
        this: &Bound<'_, Self>,
        entry: Option<(&Arc<Entry>, Estimate)>,
        session: &Session,
    ) {
        if let Some((entry, before)) = entry {
            Self::weigh(this, entry, before + session.estimate(), Some(session));
        }
    }

    /// A call has been estimated, from its entry to its end: decides over later ones.
    pub(super) fn weigh(
        this: &Bound<'_, Self>,
        entry: &Entry,
        estimate: Estimate,
        session: Option<&Session>,
    ) {
        if !this.get().may_skip() {
            return;
        }
        let estimate = estimate + Estimate::of_call();
        let news = match session {
            None => News::None,
            Some(session) if session.is_unfinished() => News::Unfinished,
            Some(_) => News::Recorded,
        };
        let Some(verdict) = entry.floor().weigh(estimate, news, entry.breaks()) else { return };
        if Log::GraphBreaks.is_on() {
            let (file, line) = location(this);
            let head = format!("{verdict} {} ({}:{line})", name(this), shown_path(&file));
            Log::GraphBreaks.emit(this.py(), &format!("{head}\n{}", verdict.report(estimate)));
        }
    }

    /// What is done with a call that an entry fits.
    pub(super) fn turn(&self, entry: &Entry) -> Turn {
        if !entry.floor().is_under() || !self.may_skip() {
            return Turn::Replay;
        }
        let turn = entry.floor().turn();
        if turn == Turn::Native
            && let Some(estimate) = entry.floor().reason()
        {
            lock(&self.state).reason = Some(estimate.to_string());
        }
        turn
    }
}
