//! Checking guards: does the state at a call's entry agree with what a trace read?
//!
//! Two levels. The *walk* (L2, [`walk`]) is the meaning: it follows the sources from the arguments
//! down and asks each guard. A *snapshot* (L1, [`capture`]) is a state in which the walk has just
//! found all guards to hold, as a flat array of words to compare; see
//! [`stator_cpython::heap::snapshot`] for why it's right.
//!
//! Three kinds of guards stay outside snapshots and are asked at each call: those on global state;
//! those on arguments from which nothing else is read (a fresh tensor each call is the common
//! case, so it's known by its metadata, not by identity); and those on mutable sets. Small tuples and
//! dictionaries among the arguments are taken apart first, and their items are arguments too.

mod capture;
mod explain;
mod failure;
mod global;
mod held;
mod keys;
mod plan;
mod tensor_type;
pub mod testing;
mod walk;

pub use failure::{Failure, Found};
pub use global::{foreign_mode, read as read_global_state, read_usual as read_usual_states};

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};

use pyo3::prelude::*;
use stator_cpython::heap::weak::Liveness;
use stator_cpython::heap::{self, Any};
use stator_guards::{Guard, SourceId, Sources};

use capture::Snapshots;
use held::Held;
use plan::Plan;

/// The sources and guards of a trace: those that its checker was built from.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Sources.
    pub sources: &'a Sources,
    /// Guards.
    pub guards: &'a [Guard],
}

/// Checks the guards of one trace.
///
/// What the recorded call pays for is what can't be done later: to hold what the guards mention. The
/// plan is made at the first check.
#[derive(Debug)]
pub struct Checker {
    plan: OnceLock<Plan>,
    wanted: Box<[SourceId]>,
    held: Held,
    liveness: Arc<Liveness>,
    /// Taken with `try_lock`: where it's taken already (a finalizer called this trace again), the
    /// walk alone decides.
    snapshots: Mutex<Snapshots>,
}

/// The wanted objects of a call that passed, in the order they were asked for.
#[derive(Debug)]
pub struct Resolved<'py>(Vec<Bound<'py, PyAny>>);

impl<'py> Deref for Resolved<'py> {
    type Target = [Bound<'py, PyAny>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'py> Resolved<'py> {
    /// The objects.
    #[must_use]
    pub fn into_vec(self) -> Vec<Bound<'py, PyAny>> {
        self.0
    }
}

impl Checker {
    /// Compiles guards. `objects` is the trace's table of objects; of those that guards and sources
    /// mention, constants are kept, the others are held weakly.
    ///
    /// # Errors
    /// If a guard asks for what can't be checked without running a user's code, such as `Equals`
    /// with something that isn't a constant.
    pub fn build(
        py: Python<'_>,
        facts: Facts<'_>,
        objects: &[Py<PyAny>],
        wanted: Vec<SourceId>,
    ) -> PyResult<Self> {
        heap::prepare(py);
        let mut liveness = Liveness::new();
        let held = Held::build(py, facts.sources, facts.guards, objects, &mut liveness)?;
        Ok(Checker {
            plan: OnceLock::new(),
            wanted: wanted.into(),
            held,
            liveness: Arc::new(liveness),
            snapshots: Mutex::new(Snapshots::default()),
        })
    }

    /// The compiled guards.
    ///
    /// # Errors
    /// If a guard speaks of what is no object.
    #[inline]
    fn plan(&self, py: Python<'_>, facts: Facts<'_>) -> PyResult<&Plan> {
        match self.plan.get() {
            Some(plan) => Ok(plan),
            None => self.make_plan(py, facts),
        }
    }

    #[cold]
    fn make_plan(&self, py: Python<'_>, facts: Facts<'_>) -> PyResult<&Plan> {
        let plan = Plan::build(py, facts.sources, facts.guards, &self.held, &self.wanted)?;
        Ok(self.plan.get_or_init(|| plan))
    }

    /// Whether the guards hold for these bound arguments; if so, the wanted objects.
    ///
    /// Runs no user code. (The first time an object's instance dictionary is asked for, CPython
    /// may have to make it, and so run a garbage collection; the walk then starts again.)
    ///
    /// # Errors
    /// The first guard that doesn't hold, parents before children.
    pub fn check<'py>(
        &self,
        py: Python<'py>,
        facts: Facts<'_>,
        args: &[Any<'_, 'py>],
    ) -> Result<Resolved<'py>, Failure> {
        if !self.is_alive() {
            return Err(Failure::dead());
        }
        let Ok(plan) = self.plan(py, facts) else { return Err(Failure::void()) };
        let mut snapshots = self.snapshots();
        plan.check_global_state(py, snapshots.as_deref_mut())?;
        loop {
            let before = heap::interruptions();
            let items = plan.items(args)?;
            let args = &plan.with_items(args, &items)[..];
            if let Some(objects) = Self::check_with(py, plan, args, snapshots.as_deref_mut())? {
                return Ok(Resolved(objects));
            }
            let values = walk::walk(py, plan, &self.liveness, args)?;
            if heap::interruptions() != before && !plan.spread.is_empty() {
                // A finalizer may have put other items there.
                continue;
            }
            if let Some(snapshots) = &mut snapshots {
                snapshots.take(py, plan, &self.liveness, args, &values);
            }
            return walk::wanted(plan, values).map(Resolved);
        }
    }

    /// Whether a snapshot says that the guards hold. `None` says nothing: [`Checker::check`]
    /// decides. With several traces of one function, ask all of them this first.
    #[must_use]
    pub fn check_fast<'py>(&self, py: Python<'py>, args: &[Any<'_, 'py>]) -> Option<Resolved<'py>> {
        if !self.is_alive() {
            return None;
        }
        // Without a plan there is no snapshot.
        let plan = self.plan.get()?;
        let mut snapshots = self.snapshots()?;
        plan.check_global_state(py, Some(&mut snapshots)).ok()?;
        let items = plan.items(args).ok()?;
        let args = &plan.with_items(args, &items)[..];
        Self::check_with(py, plan, args, Some(&mut snapshots)).ok().flatten().map(Resolved)
    }

    fn snapshots(&self) -> Option<MutexGuard<'_, Snapshots>> {
        match self.snapshots.try_lock() {
            Ok(snapshots) => Some(snapshots),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The arguments that are asked at each call, and then the snapshots.
    #[inline]
    fn check_with<'py>(
        py: Python<'py>,
        plan: &Plan,
        args: &[Any<'_, 'py>],
        snapshots: Option<&mut Snapshots>,
    ) -> Result<Option<Vec<Bound<'py, PyAny>>>, Failure> {
        plan.check_arguments(args)?;
        let mut objects = Vec::new();
        let passes =
            snapshots.is_some_and(|snapshots| snapshots.check(py, plan, args, &mut objects));
        Ok(passes.then_some(objects))
    }

    /// The walk alone, for tests and measurements.
    fn check_walking(&self, py: Python<'_>, facts: Facts<'_>, args: &[Any<'_, '_>]) -> bool {
        let Ok(plan) = self.plan(py, facts) else { return false };
        let Ok(items) = plan.items(args) else { return false };
        let args = &plan.with_items(args, &items)[..];
        plan.check_global_state(py, None).is_ok()
            && plan.check_arguments(args).is_ok()
            && walk::walk(py, plan, &self.liveness, args).is_ok()
    }

    /// False once an object that the guards know by identity has died: they can't pass any more.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.liveness.is_alive()
    }

    /// False once something happened that can't be undone and makes the guards fail.
    #[must_use]
    pub fn can_hold(&self) -> bool {
        Python::attach(|py| self.plan.get().is_none_or(|plan| plan.can_hold(py)))
    }

    /// What failed, in the user's terms: the printed guard, and what was found instead; for global
    /// state each fact that differs.
    #[must_use]
    pub fn explain(
        &self,
        py: Python<'_>,
        facts: Facts<'_>,
        failure: &Failure,
    ) -> Vec<(String, String)> {
        explain::explain(py, facts, &self.held.bind(py, &self.liveness), failure)
    }

    /// The constant with this id, if a guard compares with it.
    pub fn constant(&self, id: stator_guards::ObjectId) -> Option<&Py<PyAny>> {
        self.held.constant(id).ok()
    }

    /// An object that guards or sources mention, if it is alive.
    pub fn object(&self, py: Python<'_>, id: stator_guards::ObjectId) -> Option<Py<PyAny>> {
        self.held.object(py, id, &self.liveness)
    }

    /// The guard, printed: one or two lines.
    #[must_use]
    pub fn print(&self, py: Python<'_>, sources: &Sources, guard: &Guard) -> Vec<String> {
        sources.print_guard_lines(guard, &self.held.bind(py, &self.liveness))
    }

    /// How checks have gone, for tests and reports.
    #[must_use]
    pub fn report(&self) -> Report {
        crate::lock(&self.snapshots).report()
    }
}

/// How checks have gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Checks that a snapshot passed.
    pub fast: u64,
    /// Checks that the walk passed.
    pub walked: u64,
    /// Snapshots kept.
    pub snapshots: usize,
    /// Words and tensors in the snapshot used last.
    pub compared: (usize, usize),
    /// Dictionaries of whose changes CPython tells in the snapshot used last, and those of them that the next check
    /// looks into all the same.
    pub watched: (usize, usize),
    /// Why the last attempt to take a snapshot failed.
    pub unwatchable: Option<&'static str>,
}
