//! Global variables that were read before, and are likely read again: by each module of a class.
//!
//! A small table without chains: a name that meets another one's place takes it. A name is known as long as
//! its namespaces have the versions they had when it was read, so nothing has written them since.

use stator_cpython::heap::dict;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::ObjectId;

use super::kinds::Kind;
use super::state::{Origin, State};
use crate::recorder::Recorder;

/// How many names are known. A power of two.
const ROOM: usize = 256;

/// A name that was read, and is guarded.
#[derive(Clone, Copy)]
struct RecentGlobal {
    globals: usize,
    name: usize,
    version: u64,
    /// The version of the builtins, if the name was found there.
    builtins: Option<u64>,
    /// What was found. The table of objects keeps it alive.
    value: ObjectId,
}

/// The names that a trace has read more than once.
#[derive(Default)]
pub struct RecentGlobals(Vec<Option<RecentGlobal>>);

fn place(globals: usize, name: usize) -> usize {
    (globals >> 4 ^ name >> 4 ^ name >> 12) & (ROOM - 1)
}

impl Recorder {
    /// What a name is known to be.
    pub(in crate::recorder) fn recent_global<'py>(
        &self,
        globals: Borrowed<'_, 'py>,
        builtins: Borrowed<'_, 'py>,
        name: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        let state = self.state.try_borrow().ok()?;
        let (at, by) = (globals.as_ptr() as usize, name.as_ptr() as usize);
        let known = state.recent_globals.0.get(place(at, by))?.as_ref()?;
        let is_current = known.globals == at
            && known.name == by
            && known.version == dict::version(globals)
            && known.builtins.is_none_or(|version| version == dict::version(builtins));
        is_current.then(|| state.objects.get(name.py(), known.value).to_owned())
    }
}

impl State {
    /// Remembers what was found under a name whose slots are guarded, in the globals or in the builtins.
    pub(in crate::recorder) fn remember_global(
        &mut self,
        globals: Borrowed<'_, '_>,
        builtins: Borrowed<'_, '_>,
        name: Borrowed<'_, '_>,
        in_globals: bool,
        value: Option<&Object<'_>>,
    ) {
        let Some(value) = value else { return };
        if !dict::is_versioned(globals) || !dict::is_versioned(builtins) {
            return;
        }
        let is_kept = matches!(self.origin(value.as_borrowed()), Some(Origin::Source(_)));
        if !is_kept && self.kind_alone(value.as_borrowed()) != Kind::Constant {
            // The trace wrote it, and mustn't keep it alive.
            return;
        }
        let value = self.objects.intern(value.as_borrowed());
        self.objects.intern(name);
        let (at, by) = (globals.as_ptr() as usize, name.as_ptr() as usize);
        let table = &mut self.recent_globals.0;
        if table.is_empty() {
            table.resize(ROOM, None);
        }
        table[place(at, by)] = Some(RecentGlobal {
            globals: at,
            name: by,
            version: dict::version(globals),
            builtins: (!in_globals).then(|| dict::version(builtins)),
            value,
        });
    }
}
