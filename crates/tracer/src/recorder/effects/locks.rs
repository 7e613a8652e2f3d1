//! Locks that the trace takes and gives back: a replay holds them from its beginning to its end.

use pyo3::prelude::*;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, ops};
use stator_guards::SourceId;

use crate::breaks::{Break, Reason};
use crate::locks;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::claims::Taken;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::{Noted, State, Stop};

impl Recorder {
    /// Takes a lock: `lock.acquire()`, or the beginning of a `with` block.
    pub(in crate::recorder) fn take_lock<'py, T>(
        &self,
        frame: &Frame<'py>,
        lock: Borrowed<'_, 'py>,
        args: &[Borrowed<'_, 'py>],
        native: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let source = self.note(frame, |state| state.plan_lock(lock, args));
        if source.is_some() {
            // Whoever waits lets others change what was read.
            match locks::try_acquire(lock) {
                true => locks::release(lock),
                false => self.stop(frame, Reason::Lock, "another thread holds it"),
            }
        }
        let spot = self.markable_spot(frame);
        let result = native()?;
        if let Some(source) = source {
            self.note(frame, |state| {
                let known = state.claims.locks.iter_mut().find(|taken| lock.is(&taken.lock));
                match known {
                    Some(taken) if taken.depth > 0 => taken.depth += 1,
                    Some(taken) => (taken.depth, taken.spot) = (1, spot),
                    None => {
                        let lock = lock.to_owned().unbind();
                        state.claims.locks.push(Taken { lock, source, depth: 1, spot });
                    }
                }
                Ok(())
            });
        }
        Ok(result)
    }

    /// Whether a lock is tried, without waiting, that the trace holds: as `Condition` does to ask whether it does.
    pub(in crate::recorder) fn tries_own_lock(
        &self,
        lock: Borrowed<'_, '_>,
        blocking: Borrowed<'_, '_>,
    ) -> bool {
        let is_held = |taken: &Taken| taken.depth > 0 && lock.is(&taken.lock);
        !self.is_stopped()
            && blocking.extract().is_ok_and(|blocking: bool| !blocking)
            && self.state.borrow().claims.locks.iter().any(is_held)
    }

    /// Tries such a lock: it can be taken again, or it can't.
    pub(in crate::recorder) fn try_own_lock<'py>(
        &self,
        frame: &Frame<'py>,
        lock: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        let result = native()?;
        if result.is_truthy().unwrap_or(false) {
            self.note(frame, |state| {
                let taken = state.claims.locks.iter_mut().find(|taken| lock.is(&taken.lock));
                taken.expect("it is held").depth += 1;
                Ok(())
            });
        }
        Ok(result)
    }

    /// Gives a lock back: `lock.release()`, or the end of a `with` block.
    pub(in crate::recorder) fn give_lock<'py>(
        &self,
        frame: &Frame<'py>,
        lock: Borrowed<'_, 'py>,
        native: impl FnOnce() -> Result<Object<'py>>,
    ) -> Result<Object<'py>> {
        self.note(frame, |state| {
            let taken = state.claims.locks.iter_mut().find(|taken| lock.is(&taken.lock));
            match taken {
                Some(taken) if taken.depth > 0 => {
                    taken.depth -= 1;
                    // From here on the instruction can't be broken before.
                    ops::count();
                    Ok(())
                }
                _ => Err((Reason::Lock, "it was taken before the graph began".into())),
            }
        });
        native()
    }

    /// Fails if a lock is still held where the trace ends, or a device still decides where tensors are made. The
    /// next trace ends before that begins.
    pub(in crate::recorder) fn check_blocks(&self, state: &State) -> Noted<()> {
        let held = state.claims.locks.iter().filter(|taken| taken.depth > 0);
        let locks = held.map(|taken| (taken.spot, Reason::Lock, "the graph ends while it is held"));
        let within = "the graph ends in a block with a device";
        let devices = state.claims.devices.iter().map(|spot| (*spot, Reason::OpaqueCall, within));
        let mut first = None;
        for (spot, reason, detail) in locks.chain(devices) {
            let stop = Break { reason, detail: detail.into(), stack: Vec::new() };
            if let Some(spot) = spot {
                self.session.points.mark_spot(spot, stop.clone());
            }
            self.session.try_again(self.point.borrow().is_none(), stop);
            first.get_or_insert((reason, detail.into()));
        }
        first.map_or(Ok(()), Err)
    }
}

impl State {
    /// Whether a replay can hold a lock; if so, where it comes from.
    fn plan_lock(
        &mut self,
        lock: Borrowed<'_, '_>,
        args: &[Borrowed<'_, '_>],
    ) -> std::result::Result<SourceId, Stop> {
        let refuse = |what: &str| Err((Reason::Lock, what.to_string()));
        let is_plain = match args {
            [] => true,
            // Without an end to the waiting.
            [blocking] => blocking.extract().unwrap_or(false),
            _ => false,
        };
        if self.program.is_some() || !locks::is_lock(lock) {
            return Err((Reason::OpaqueCall, heap::type_name(lock)));
        }
        if !is_plain {
            return refuse("it is taken without waiting, or for some time only");
        }
        if self.has_users_nodes() {
            return refuse("behind code of the program's own, which may take it");
        }
        self.source(lock).ok_or_else(|| (Reason::Lock, "the function made it".to_string()))
    }
}
