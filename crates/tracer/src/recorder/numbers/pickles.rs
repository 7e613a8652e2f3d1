//! `pickle.dumps` of plain data: the bytes are carried, if numbers in the data are.
//!
//! A pickle says of each text and container whether it was met before, that very object. So nothing in the data may be
//! met twice: no container, and no two texts that are equal, which may be one object or two. Containers are the trace's
//! own, as two from outside may be one at another call.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};
use rustc_hash::FxHashSet;
use stator_cpython::Result;
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Ends};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::{Origin, State};
use crate::recorder::notes::symbols::Piece;

/// How deep the data may be nested.
const DEPTH: usize = 8;

/// How many values there may be in it.
const MOST: usize = 256;

impl Recorder {
    /// A call of `pickle.dumps`; `None`: of another function, or of data without numbers that vary.
    pub(in crate::recorder) fn pickled<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        if !is_dumps(callable) {
            return None;
        }
        let data = match (args, names) {
            ([data], _) if names.is_none() => *data,
            ([data, protocol], _) if protocol.is_exact_instance_of::<PyInt>() => {
                self.concrete(frame, &[*protocol], "the protocol of a pickle");
                *data
            }
            _ => return self.not_pickled(call),
        };
        if args.len() == 2
            && names.is_some_and(|names| !names.contains("protocol").unwrap_or(false))
        {
            return self.not_pickled(call);
        }
        let mut met = Met::default();
        let piece = self.note(frame, |state| Ok(state.pickle_piece(data, 0, &mut met)))?;
        let Some(piece) = piece else { return self.not_pickled(call) };
        self.spelt_pieces(call, vec![piece])
    }

    fn not_pickled<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        self.stop(call.frame, Reason::OpaqueCall, "dumps");
        Some(call.natively())
    }
}

/// What was met in the data.
#[derive(Default)]
struct Met {
    texts: FxHashSet<String>,
    /// Containers and carried texts, by address.
    objects: FxHashSet<usize>,
    count: usize,
}

impl State {
    fn pickle_piece(
        &mut self,
        object: Borrowed<'_, '_>,
        depth: usize,
        met: &mut Met,
    ) -> Option<Piece> {
        met.count += 1;
        if depth > DEPTH || met.count > MOST {
            return None;
        }
        if let Some(number) = self.number(object) {
            return Some(Piece::Number(number));
        }
        if object.is_exact_instance_of::<PyString>() {
            return self.pickle_text(object, met);
        }
        let is_value = object.is_none()
            || object.is_exact_instance_of::<PyInt>()
            || object.is_exact_instance_of::<PyFloat>()
            || object.is_exact_instance_of::<PyBool>();
        if is_value {
            return self.graph_arg(object).ok().map(Piece::Plain);
        }
        if !met.objects.insert(object.as_ptr() as usize)
            || self.origin(object) != Some(Origin::Fresh)
        {
            return None;
        }
        if heap::is_exact_dict(object) {
            let mut items = Vec::new();
            for (key, value) in heap::dict_items(object) {
                let key = key.as_borrowed();
                if !key.is_exact_instance_of::<PyString>() {
                    return None;
                }
                let key = self.pickle_text(key, met)?;
                items.push((key, self.pickle_piece(value.as_borrowed(), depth + 1, met)?));
            }
            return Some(Piece::Dict(items));
        }
        let is_list = heap::is_exact_list(object);
        if !is_list && !heap::is_plain_tuple(object) {
            return None;
        }
        let items = heap::children(object);
        let pieces: Option<Vec<_>> = items
            .iter()
            .map(|item| self.pickle_piece(item.as_borrowed(), depth + 1, met))
            .collect();
        pieces.map(|pieces| Piece::row(object, pieces))
    }

    fn pickle_text(&mut self, text: Borrowed<'_, '_>, met: &mut Met) -> Option<Piece> {
        if !self.spelt(text).is_empty() {
            // Another call's text may be one that is there already.
            return None;
        }
        let is_first = met.texts.insert(text.cast::<PyString>().ok()?.to_str().ok()?.to_owned());
        if !is_first {
            return None;
        }
        self.graph_arg(text).ok().map(Piece::Plain)
    }
}

fn is_dumps(callable: Borrowed<'_, '_>) -> bool {
    static DUMPS: Named = Named::new("_pickle", "dumps");
    DUMPS.is(callable)
}
