//! Whether calls of a compiled function run natively because replaying them gains nothing: where that is
//! asked, who is told, and when a trace is to be recorded anew.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use stator_cpython::object::Object;
use stator_cpython::thread::c_stack::{self, Room};

use super::{Compiled, location, name};
use crate::check::Resolved;
use crate::clock::{self, Span};
use crate::config;
use crate::entry::Entry;
use crate::floor::{News, Turn, Verdict};
use crate::gauge::{Finding, Step};
use crate::locate::shown_path;
use crate::lock;
use crate::logs::Log;
use crate::profit::Estimate;
use crate::resume::session::Session;
use crate::resume::testing::Breaks;

/// So often a function's traces are recorded anew because their decisions have come to fall out otherwise.
const RENEWALS: u32 = 4;

impl Compiled {
    /// The program has come to go another way than this trace: the next call is recorded.
    pub(super) fn renew(&self, entry: &Arc<Entry>) {
        let old = {
            let mut state = lock(&self.state);
            let may = state.renewals < RENEWALS;
            let old = if may { state.entries.remove(entry) } else { None };
            state.renewals += u32::from(old.is_some());
            old
        };
        drop(old);
    }

    /// Whether calls that gain nothing may run natively. What a graph gains that a backend has
    /// compiled isn't estimated; tests that count breaks want all of them.
    pub(super) fn may_skip(&self) -> bool {
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
        if estimate.is_steered() {
            lock(&this.get().budget).steer();
        }
        let news = match session {
            None => News::None,
            Some(session) if session.is_unfinished() => News::Unfinished,
            Some(_) => News::Recorded,
        };
        if let Some(session) = session {
            entry.floor().recorded(session.took());
        }
        let Some(verdict) = entry.floor().weigh(estimate, news, entry.leads_on()) else { return };
        if Log::GraphBreaks.is_on() {
            Self::say(this, &verdict.to_string(), &verdict.report(estimate));
        }
    }

    /// What is done with a call that an entry fits. `is_timed`: its start is known.
    pub(super) fn turn(&self, entry: &Entry, is_timed: bool) -> Turn {
        if !self.may_skip() || entry.floor().is_steered() {
            return Turn::Replay;
        }
        if !entry.floor().is_under() {
            if clock::is_still() {
                return Turn::Replay;
            }
            let usual = if entry.gauge().loses() { Turn::Native } else { Turn::Replay };
            return match entry.gauge().step() {
                Step::Usual => usual,
                Step::Timed(Span::Replay) if !is_timed => {
                    self.rest.time(true);
                    usual
                }
                Step::Timed(span) => Turn::Timed(span),
            };
        }
        let turn = entry.floor().turn();
        if turn == Turn::Native
            && let Some(estimate) = entry.floor().reason()
        {
            lock(&self.state).reason = Some(estimate.to_string());
        }
        turn
    }

    /// A call that an entry fits: replays it, or has a reason not to. `began`: the call's start, if it's
    /// timed.
    pub(super) fn take_turn<'py>(
        this: &Bound<'py, Self>,
        entry: &Arc<Entry>,
        resolved: Resolved<'py>,
        (args, kwargs): (&Bound<'py, PyTuple>, Option<&Bound<'py, PyDict>>),
        began: Option<clock::Start>,
    ) -> PyResult<Object<'py>> {
        let (py, own) = (this.py(), this.get());
        entry.fits();
        let turn = own.turn(entry, began.is_some());
        let is_small = !entry.leads_on() && !own.fullgraph && entry.is_small();
        if matches!(turn, Turn::Native | Turn::Timed(Span::Native))
            || is_small
            || (entry.makes_frames() && c_stack::room() != Room::Enough)
        {
            // What was found may be gone before the function ends.
            drop(resolved);
            if turn == Turn::Native {
                own.tire(Some(entry), u32::MAX);
            }
            let is_asked = matches!(turn, Turn::Timed(_)) || entry.floor().wants_time();
            let began = is_asked.then(clock::start);
            let result = own.run_natively(py, args, kwargs);
            if let Some(began) = began {
                let nanos = began.took(Span::Native);
                if matches!(turn, Turn::Timed(_)) {
                    Self::timed(this, entry, Span::Native, nanos);
                } else {
                    entry.floor().timed(nanos);
                    lock(&own.budget).timed(Span::Native, nanos);
                }
            }
            return result;
        }
        if turn == Turn::Replay {
            own.end_rest();
        }
        // Only a call that records nothing says what a replay takes.
        let timed = began.filter(|_| turn == Turn::Timed(Span::Replay));
        let timed = timed.map(|began| (began, lock(&own.budget).takes()));
        let trial = (turn == Turn::Trial).then(clock::start);
        let result = Self::replay(this, entry, resolved, (args, kwargs), turn);
        if let Some(trial) = trial {
            entry.floor().tried(trial.took(Span::Replay));
        }
        if let Some((began, takes)) = timed
            && lock(&own.budget).takes() == takes
        {
            Self::timed(this, entry, Span::Replay, began.took(Span::Replay));
        }
        result
    }

    /// A call that began with this entry was timed.
    pub(super) fn timed(this: &Bound<'_, Self>, entry: &Entry, span: Span, nanos: u64) {
        let own = this.get();
        lock(&own.budget).timed(span, nanos);
        let Some((finding, measured, is_new)) = entry.gauge().add(span, nanos) else { return };
        own.rest.time(false);
        if finding == Finding::Gains && measured.gains() {
            lock(&own.budget).gains();
        } else if finding == Finding::Loses && is_new {
            lock(&own.budget).loses(measured);
            for other in lock(&own.state).entries.iter() {
                own.doubt(other);
            }
        }
        // That replays gain is what everybody expects, unless something else was said before.
        let is_told = is_new && (finding == Finding::Loses || lock(&own.budget).is_told());
        if finding == Finding::Loses && is_new {
            lock(&own.state).reason = Some(measured.to_string());
        }
        if is_told && Log::GraphBreaks.is_on() {
            let what = if finding == Finding::Loses { Verdict::Native } else { Verdict::Replayed };
            Self::say(this, &what.to_string(), &format!("  Why: {measured}"));
        }
    }

    /// Where the function's other entries were found to lose, this one counts as losing until it's measured.
    pub(super) fn doubt(&self, entry: &Entry) {
        if let Some(measured) = lock(&self.budget).doubts() {
            entry.gauge().doubt(measured);
        }
    }

    /// Runs a call natively that no entry fits. The first of them is timed, as the budget is so many such
    /// calls, and so are those that wait until another one may be recorded.
    pub(super) fn run_unfit<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        waits: bool,
    ) -> PyResult<Object<'py>> {
        let is_timed = {
            let budget = lock(&self.budget);
            budget.wants_native() || (waits && budget.allows())
        };
        let began = is_timed.then(clock::start);
        let result = self.run_natively(py, args, kwargs);
        if let Some(began) = began {
            let (nanos, calls) = (began.took(Span::Native), self.calls());
            let mut budget = lock(&self.budget);
            budget.timed(Span::Native, nanos);
            budget.waited(calls, nanos);
        }
        result
    }

    /// Calls of the function so far that were recorded, replayed or run natively.
    pub(super) fn calls(&self) -> u64 {
        let takes = lock(&self.budget).takes();
        self.hits.load(Relaxed) + self.natives() + u64::from(takes)
    }

    /// Whether nothing may be recorded, because that has cost too much for what it has brought: for good,
    /// or for some calls.
    pub(super) fn is_out_of_budget(this: &Bound<'_, Self>) -> bool {
        let own = this.get();
        if !own.may_skip() {
            return false;
        }
        let calls = own.calls();
        let (hurries, told) = {
            let mut budget = lock(&own.budget);
            let allows = budget.allows();
            if allows && !budget.waits(calls) {
                return false;
            }
            (budget.hurries(), if allows { None } else { budget.tell() })
        };
        if hurries {
            for entry in lock(&own.state).entries.iter() {
                entry.gauge().hurry();
            }
        }
        if let Some(why) = told {
            if Log::GraphBreaks.is_on() {
                Self::say(this, "isn't recorded any more:", &format!("  Why: {why}"));
            }
            lock(&own.state).reason = Some(why);
        }
        true
    }

    /// A record of the `graph_breaks` log about the function.
    fn say(this: &Bound<'_, Self>, what: &str, why: &str) {
        let (file, line) = location(this);
        let head = format!("{what} {} ({}:{line})", name(this), shown_path(&file));
        Log::GraphBreaks.emit(this.py(), &format!("{head}\n{why}"));
    }
}
